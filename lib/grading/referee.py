"""A run of somebody's code in a worker, of which only what the books saw is believed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..books import Books
from ..cost import Cost
from ..errors import PuzzleError
from ..layouts import Size
from ..mesh import Mesh
from ..outcome import Outcome
from .clerk import Clerk
from .sandbox import MECHANISMS, PACKAGE, Worker, available, visible
from .wire import Garbled, shown, unpack_error

GRACE = 2.0
"""Seconds that a worker has beyond its own limit to say that it was late."""
PATIENCE = 60.0
"""Seconds for a process to start, on a machine that is busy with other things."""


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
        self.lock = threading.Lock()

    def stop(self) -> None:
        """End all workers: their runs fail."""
        for worker in list(self.workers):
            worker.end()

    def isolation(self) -> str:
        """How workers are kept apart here."""
        return MECHANISMS[self.mechanisms[0]]

    def play(self, submission: Submission, name: str, size: Size, printed: list[str]) -> Outcome:
        """The outcome of a run; what it prints is added to ``printed``.

        Raises PuzzleError for what is wrong, Missing where there is nothing to run.
        """
        worker = self._start(submission, name, size)
        try:
            deadline = time.monotonic() + self.timeout + GRACE
            mesh = Mesh(size["ranks"], size.get("mesh"), size.get("node_size"))
            clerk = Clerk(Books(mesh, Cost(), graded=True), size["layers"], size["batches"])
            ending = self._serve(clerk, worker, deadline)
            status = worker.end(GRACE if ending == ["gone"] else 0.0)
            return self._judge(clerk, ending, status, name)
        finally:
            worker.end()
            printed.append(worker.printed())
            self.workers.discard(worker)
            worker.close()

    def _start(self, submission: Submission, name: str, size: Size) -> Worker:
        """A worker that has begun, by the best mechanism that works here."""
        while True:
            mechanism = self.mechanisms[0]
            worker = Worker(mechanism, submission.folder)
            self.workers.add(worker)
            task = {
                "name": name, "size": size, "file": submission.file, "text": submission.text,
                "folder": submission.folder, "timeout": self.timeout, "jail": mechanism == "namespaces",
                "visible": visible(submission.folder), "root": worker.temporary,
                "hidden": [str(PACKAGE.parent / "solutions"), str(PACKAGE.parent / "tests")],
            }  # fmt: skip
            deadline = time.monotonic() + PATIENCE
            try:
                worker.wire.send(task, deadline)
                if worker.wire.receive(deadline) == ["ready"]:
                    return worker
            except (OSError, EOFError, Garbled, TimeoutError):
                pass
            worker.end()
            said = worker.printed()
            self.workers.discard(worker)
            worker.close()
            with self.lock:
                if mechanism == self.mechanisms[0] and len(self.mechanisms) > 1:
                    del self.mechanisms[0]
                elif len(self.mechanisms) == 1:
                    raise RuntimeError(f"no worker could be started:\n{said}")

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
