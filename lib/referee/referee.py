"""A run of somebody's code in a worker, of which only what the books saw is believed."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..basics.errors import PuzzleError
from ..course.costs import cost_named
from ..course.layouts import Size
from ..machine.books import LocalBooks
from ..machine.outcome import Outcome
from ..machine.shape import Shape
from ..remote.clerk import Clerk
from ..remote.wire import Garbled, shown, unpack_error
from .sandbox import MECHANISMS, PACKAGE, PATIENCE, Worker, available

GRACE = 2.0
"""Seconds that a worker has beyond its own limit to say that it was late."""
TRIES, PAUSE = 3, 0.2
"""How often a worker is started that does not start, and seconds in between."""

decided: dict[tuple[str, ...], str] = {}
"""Of several mechanisms, the first that works here: tried once, before there is anything of a learner's."""
deciding = threading.Lock()


@dataclass(frozen=True)
class Submission:
    """Somebody's code: the name of its file, its text, and a folder with more of it, or None."""

    file: str
    text: str
    folder: str | None = None


class Missing(Exception):
    """The code has no function of the puzzle's name."""


class Referee:
    """Runs code in workers; ``timeout``: seconds of wall-clock time for a run."""

    def __init__(self, timeout: float, mechanisms: Sequence[str] | None = None) -> None:
        self.timeout = timeout
        self.mechanisms = list(mechanisms or available())
        self.workers: set[Worker] = set()
        self.stopped = False

    def stop(self) -> None:
        """End all workers: their runs fail, and there are no others."""
        self.stopped = True
        for worker in list(self.workers):
            worker.end()

    def isolation(self) -> str:
        """How workers are kept apart here, all of them."""
        try:
            return MECHANISMS[self._mechanism()]
        except (OSError, RuntimeError):
            return "in no process, since none could be started"

    def run(self, submission: Submission, name: str, size: Size, printed: list[str], cost: str = "default") -> Outcome:
        """Return the outcome of a run at a cost of that name; what it prints is added to ``printed``.

        Raises PuzzleError for what is wrong, Missing where there is nothing to run.
        """
        worker = self._start(submission.folder)
        try:
            self._send(worker, submission, name, size, cost)
            deadline = time.monotonic() + self.timeout + GRACE
            shape = Shape.of(size["ranks"], size.get("mesh"), size.get("node_size"), cost_named(cost))
            clerk = Clerk(LocalBooks(shape, graded=True), size["layers"], size["batches"])
            ending = self._serve(clerk, worker, deadline)
            status = worker.end(GRACE if ending == ["gone"] else 0.0)
            return self._judge(clerk, ending, status, name)
        finally:
            try:
                worker.end()
                printed.append(worker.printed())
            finally:
                self._leave(worker)

    def _mechanism(self) -> str:
        """The one for all workers. What does not start later has failed, and is not started with less around it."""
        with deciding:
            several = tuple(self.mechanisms)
            if several not in decided:
                decided[several] = next((one for one in several[:-1] if self._works(one)), several[-1])
            self.mechanisms = [decided[several]]
            return self.mechanisms[0]

    def _works(self, mechanism: str) -> bool:
        """Whether a worker starts that has nothing to do, in a folder with nothing in it."""
        with tempfile.TemporaryDirectory(prefix="puzzle-") as folder:
            worker, _ = self._try(mechanism, folder)
        if worker is not None:
            self._leave(worker)
        return worker is not None

    def _start(self, folder: str | None) -> Worker:
        """A worker that sees the folder, and is ready."""
        mechanism = self._mechanism()
        worker, said = self._try(mechanism, folder)
        if worker is not None:
            return worker
        if folder is not None and self._works(mechanism):
            raise PuzzleError(
                "the submission cannot be started in the sandbox, and is not run without it",
                got=said.rpartition("\n")[2],
                cure="a folder whose path is short, and can be read",
                line="",
            )
        raise RuntimeError(f"no worker could be started:\n{said}")

    def _try(self, mechanism: str, folder: str | None) -> tuple[Worker | None, str]:
        """A worker that is ready, or None and the last that was heard of one."""
        said = ""
        for left in reversed(range(TRIES)):
            if self.stopped:
                raise RuntimeError("the grader was stopped")
            worker = Worker(mechanism, folder)
            self.workers.add(worker)
            ready = False
            try:
                if ready := worker.begin(self.timeout):
                    return worker, said
                worker.end()
                said = worker.last_words().strip()
            finally:
                if not ready:
                    self._leave(worker)
            time.sleep(PAUSE if left else 0)
        return None, said

    def _leave(self, worker: Worker) -> None:
        self.workers.discard(worker)
        worker.close()

    def _send(self, worker: Worker, submission: Submission, name: str, size: Size, cost: str) -> None:
        """Tell a worker its task. If it ends over that, as over 10 MiB of code, what it says next is its end."""
        task = {
            "name": name, "size": size, "cost": cost, "timeout": self.timeout,
            "file": submission.file, "text": submission.text, "folder": submission.folder,
            "hidden": [str(PACKAGE.parent / "solutions"), str(PACKAGE.parent / "tests")],
        }  # fmt: skip
        with suppress(OSError):
            worker.wire.send(task, time.monotonic() + PATIENCE)

    def _serve(self, clerk: Clerk, worker: Worker, deadline: float) -> list[Any]:
        try:
            return clerk.serve(worker.wire, deadline)
        except (EOFError, ConnectionError):
            return ["gone"]
        except TimeoutError:
            return ["late"]
        except Garbled as garbled:
            return ["garbled", str(garbled)]

    def _judge(self, clerk: Clerk, ending: list[Any], status: int, name: str) -> Outcome:
        """The outcome, if the run has come to its end. Raises the PuzzleError that says why not."""
        match ending:
            case ["done"]:
                return clerk.outcome(name)
            case ["missing", list() as trouble]:
                if trouble:
                    raise PuzzleError(f"there is no function {name}", got=_notes(trouble), line="")
                raise Missing
            case ["failed", dict() as packed, list() as trouble]:
                raise _told(clerk, packed, trouble)
            case ["late"]:
                raise PuzzleError(
                    f"the run did not end within {self.timeout:g} seconds, and could not be interrupted",
                    where=name,
                    cure="look for a loop, or a call of something outside Python, that never ends",
                    line="",
                )
            case ["gone"]:
                raise PuzzleError(
                    "the process ended before the function did",
                    where=name,
                    expected="the function returns on every rank",
                    got=_status(status),
                    cure="a program of a puzzle does not end its process",
                    line="",
                )
        raise PuzzleError(
            "the program has written to the line between it and the grader",
            where=name,
            got=shown(str(ending[-1]), 200),
            cure="use the methods of model only",
            line="",
        )


def _told(clerk: Clerk, packed: dict[Any, Any], trouble: list[Any]) -> PuzzleError:
    """What to say of a run that failed: what the books saw first, at the line that the worker knows."""
    try:
        parts = unpack_error(packed)
    except Garbled:
        parts = {"problem": "the run failed, and the program has garbled its error"}
    if clerk.errors:
        first = clerk.errors[0]
        if parts["problem"] == first.problem:
            first.line = parts.get("line", "")
        return first
    if trouble and "NameError" in parts["problem"]:
        parts["got"] = _notes(trouble)
    return PuzzleError(**parts)


def _notes(trouble: list[Any]) -> str:
    lines = [shown(str(line), 300) for line in trouble[:3]]
    return "these lines could not be taken: " + "; ".join(lines)


def _status(status: int) -> str:
    number = -status if status < 0 else status - 128
    return f"exit status {status}" if number <= 0 else f"ended by signal {number}"
