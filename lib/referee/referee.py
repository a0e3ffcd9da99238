"""Runs a learner's code in a worker, and believes only what a replay of its calls has seen."""

import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..basics.errors import PuzzleError
from ..course.layouts import Size
from ..course.specs import machine_of
from ..machine.check import TRAINED
from ..machine.outcome import Outcome
from ..machine.simulator import LocalSimulator
from ..recording.replay import MOST_BYTES, Replay
from ..recording.safe import presentable, shown, unpack_error
from ..recording.wire import ProtocolError
from ..running.execution import cause
from ..running.limits import collector_off, room, watchdog
from .sandbox import MECHANISMS, PACKAGE, PATIENCE, Worker, available

AGAIN = 3
"""How much longer than in a notebook a run on a large machine may take: it is recorded, and replayed."""
GRACE = 2.0  # seconds that a worker has, after its own time limit, to report that it was late, and that a replay has
TRIES, PAUSE = 3, 0.2  # how often to try to start a worker, and the seconds in between
UNTAKEN = "these lines could not be taken"
LAST_WORDS = 300  # bytes of the output of a worker that did not start, at most: at its end it says why

decided: dict[tuple[str, ...], str] = {}
"""For several mechanisms the first that works here, tried once, before any code of a learner's is there."""
deciding = threading.Lock()
exposed: dict[tuple[str, tuple[str, ...]], list[str]] = {}
"""By mechanism and what is secret: what a worker has found that it must not find."""


@dataclass(frozen=True)
class Submission:
    """A learner's code: the name of its file, its text, and the folder with its other modules, or None."""

    file: str
    text: str
    folder: str | None = None


class Said(NamedTuple):
    """What a worker says at its end: what has been called, ``done``, ``failed`` or ``missing``, and more of that."""

    recording: dict[str, Any] | None
    how: str
    more: list[Any]


class Missing(Exception):
    """Raised when the code has no function of the puzzle's name."""


class Referee:
    """Runs code in workers. ``timeout`` is in seconds of wall-clock time for each run, and large machines have more;
    ``secret``: folders that no code may see, but for its own in them; ``watch`` gets the seconds of a run when it
    begins, and that there is no limit when it has ended."""

    def __init__(
        self,
        timeout: float,
        mechanisms: Sequence[str] | None = None,
        secret: Sequence[str] = (),
        watch: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.timeout, self.secret = timeout, tuple(os.path.realpath(path) for path in secret)
        self.mechanisms, self.watch = list(mechanisms or available()), watch

    def isolation(self) -> str:
        """Return a sentence on how workers are kept apart here, as one has found that has tried."""
        try:
            mechanism = self._mechanism()
        except (OSError, RuntimeError):
            return "in no process, since none could be started"
        seen = "" if mechanism == "process" else "; ".join(exposed.get((mechanism, self.secret), []))
        return MECHANISMS[mechanism] + (f"; BUT THIS CAN BE READ: {shown(seen, 300)}" if seen else "")

    def run(self, submission: Submission, name: str, size: Size, printed: list[str], cost: str = "default") -> Outcome:
        """Return the outcome of a run at a cost of that name, and append what it prints to ``printed``.

        Raise PuzzleError if the run fails, and Missing if there is no function of that name.
        """
        seconds = self.timeout + AGAIN * room(size["ranks"], size["layers"], size["batches"])
        task = {
            "name": name, "size": size, "cost": cost, "timeout": seconds,
            "file": submission.file, "text": submission.text, "folder": submission.folder,
            "hidden": [str(PACKAGE.parent / "solutions"), str(PACKAGE.parent / "tests")],
        }  # fmt: skip
        worker = self._start(submission.folder, seconds)
        self.watch(seconds)
        try:
            with suppress(OSError):  # it may end meanwhile, over 10 MiB of code: that is found out below
                worker.wire.send(task, time.monotonic() + PATIENCE)
            deadline = time.monotonic() + seconds + GRACE
            with collector_off(cycles=True):  # it would look at each call of the recording again and again
                said = self._hear(worker, name, seconds, deadline)
                worker.end()
                simulator, train = LocalSimulator(machine_of(size, cost), graded=True), size.get("train", TRAINED[0])
                return judged(said, Replay(simulator, size["layers"], size["batches"], train), name, deadline)
        finally:
            try:
                worker.end()
                printed.append(worker.printed())
            finally:
                worker.close()
                self.watch(math.inf)

    def _mechanism(self) -> str:
        """Return the mechanism of all workers, chosen once: a later failure never leads to a weaker one."""
        with deciding:
            several = tuple(self.mechanisms)
            if several not in decided:
                decided[several] = next((one for one in several[:-1] if self._works(one)), several[-1])
            self.mechanisms = [decided[several]]
            if (self.mechanisms[0], self.secret) not in exposed and self.mechanisms[0] != "process":
                self._works(self.mechanisms[0])
            return self.mechanisms[0]

    def _works(self, mechanism: str) -> bool:
        """Return whether a worker starts in an empty folder."""
        with tempfile.TemporaryDirectory(prefix="puzzle-") as folder:
            worker, _ = self._try(mechanism, folder, self.timeout, probe=True)
        if worker is not None:
            exposed[mechanism, self.secret] = worker.found
            worker.close()
        return worker is not None

    def _start(self, folder: str | None, seconds: float) -> Worker:
        """Return a worker that sees the folder and is ready. Raise PuzzleError or RuntimeError if none starts."""
        mechanism = self._mechanism()
        worker, said = self._try(mechanism, folder, seconds)
        if worker is not None:
            return worker
        if folder is not None and self._works(mechanism):
            problem = "the submission cannot be started in the sandbox, and is not run without it"
            got, fix = said.rpartition("\n")[2], "a folder whose path is short, and can be read"
            raise PuzzleError(problem, got=got, fix=fix, line="")
        raise RuntimeError(f"no worker could be started:\n{said}")

    def _try(
        self, mechanism: str, folder: str | None, seconds: float, probe: bool = False
    ) -> tuple[Worker | None, str]:
        """Return a worker that is ready, or None, and what the last one that did not start has said."""
        said = ""
        for tried in range(TRIES):
            time.sleep(PAUSE if tried else 0)
            try:
                worker = Worker(mechanism, folder, self.secret)
            except (FileNotFoundError, PermissionError) as error:  # found, and cannot be started
                said = f"{mechanism}: {error.strerror}"
                continue
            ready = False
            try:
                if ready := worker.begin(seconds, probe):
                    return worker, said
                worker.end()
                said = worker.printed(LAST_WORDS).strip()
            finally:
                if not ready:
                    worker.close()
        return None, said

    def _hear(self, worker: Worker, name: str, seconds: float, deadline: float) -> Said:
        """Return what a worker says at its end. Raise PuzzleError if it says nothing in time, or nothing at all."""
        try:
            match worker.wire.receive(deadline, MOST_BYTES):
                case [dict() | None as recording, str() as how, *more]:
                    return Said(recording, how, more)
        except TimeoutError:
            late = f"the run did not end within {seconds:g} seconds, and could not be interrupted"
            fix = "look for a loop, or a call of something outside Python, that never ends"
            raise PuzzleError(late, where=name, fix=fix, line="") from None
        except (EOFError, ConnectionError):
            status = worker.end(GRACE)
            got = f"exit status {status}" if status <= 128 else f"ended by signal {status - 128}"
            expected, fix = "the function returns on every rank", "a program of a puzzle does not end its process"
            gone = "the process ended before the function did"
            raise PuzzleError(gone, where=name, expected=expected, got=got, fix=fix, line="") from None
        except ProtocolError as error:
            raise tampered(str(error), name) from None
        raise tampered("something else", name)


def judged(said: Said, replay: Replay, name: str, deadline: float) -> Outcome:
    """Return the outcome of a run that was finished, as a replay of its calls has it. Raise PuzzleError, or Missing,
    for any other ending."""
    match said.how, *said.more:
        case ["missing", []]:
            raise Missing
        case ["missing", list() as trouble]:
            raise PuzzleError(f"there is no function {name}", got=f"{UNTAKEN}: {_notes(trouble)}", line="")
    wrong = tampered(f"an end of another kind, {said.how!r}", name)
    try:
        with watchdog(deadline - time.monotonic()):
            if said.recording is not None:
                replay.play(said.recording, deadline)
            if [said.how, *said.more] == ["done"]:
                return replay.outcome(name)
    except TimeoutError:
        late, fix = (
            "the run did not end within its time: its calls take too long to be carried out again",
            "fewer calls",
        )
        wrong = PuzzleError(late, where=name, fix=fix, line="")
    except ProtocolError as error:
        wrong = tampered(str(error), name)
    match said.how, *said.more:
        case ["failed", dict() as packed, list() as trouble, list() as left_out]:
            raise _failure(replay, packed, trouble, left_out)
    raise wrong


def tampered(got: str, name: str) -> PuzzleError:
    """Return what to say of a worker that says something else than this library's."""
    problem, fix = "what the program has sent to the grader is no recording of a run", "use the methods of model only"
    return PuzzleError(problem, where=name, got=shown(got, 200), fix=fix, line="")


def _failure(replay: Replay, packed: dict[Any, Any], trouble: list[Any], left_out: list[Any]) -> PuzzleError:
    """Return the error of a failed run: of the one that the worker tells and those of the replay, that of which the
    others come. (A worker that tells another than the real one has failed all the same.)"""
    try:
        parts = unpack_error(packed)
    except ProtocolError:
        parts = {"problem": "the run failed, and the program has damaged its error"}
    error = PuzzleError(**parts)
    if replay.errors or replay.stuck:
        first = cause([*replay.errors, *filter(None, [replay.stuck]), error])
        first.line = error.line if error.problem == first.problem else first.line
        error = presentable(first)
    elif trouble and "NameError" in error.problem:
        error.got = f"{UNTAKEN}: {_notes(trouble)}"
    if left_out:
        said = "the grader did not run these lines, which change what the function uses"
        error.got = "\n".join(filter(None, [error.got, f"{said}: {_notes(left_out)}"]))
    return error


def _notes(lines: list[Any]) -> str:
    return "; ".join(shown(str(line), 300) for line in lines[:3]) + " ..." * (len(lines) > 3)
