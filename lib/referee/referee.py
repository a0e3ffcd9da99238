"""Runs a learner's code in a worker, and believes only what a replay of its calls has seen."""

import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ..basics.errors import Place, PuzzleError
from ..course.layouts import Size
from ..course.specs import machine_of
from ..machine.check import TRAINED
from ..machine.outcome import Outcome
from ..machine.simulator import LocalSimulator
from ..recording.replay import MOST_BYTES, Replay
from ..recording.safe import presentable, shown, unpack_error
from ..recording.wire import LONGEST, ProtocolError
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

    @contextmanager
    def loaded(self, submission: Submission) -> Iterator["Loaded"]:
        """Give a submission that a worker has loaded, and end all that it has started."""
        worker = self._start(submission.folder)
        try:
            yield Loaded(worker, submission, self.timeout, self.watch)
        finally:
            worker.close()

    def run(self, submission: Submission, name: str, size: Size, printed: list[str], cost: str = "default") -> Outcome:
        """Return the outcome of one run (see ``Loaded.run``), in a worker of its own."""
        with self.loaded(submission) as code:
            return code.run(name, size, printed, cost)

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
            worker, _ = self._try(mechanism, folder, probe=True)
        if worker is not None:
            exposed[mechanism, self.secret] = worker.found
            worker.close()
        return worker is not None

    def _start(self, folder: str | None) -> Worker:
        """Return a worker that sees the folder and is ready. Raise PuzzleError or RuntimeError if none starts."""
        mechanism = self._mechanism()
        worker, said = self._try(mechanism, folder)
        if worker is not None:
            return worker
        if folder is not None and self._works(mechanism):
            problem = "the submission cannot be started in the sandbox, and is not run without it"
            got, fix = said.rpartition("\n")[2], "a folder whose path is short, and can be read"
            raise PuzzleError(problem, got=got, fix=fix, line="")
        raise RuntimeError(f"no worker could be started:\n{said}")

    def _try(self, mechanism: str, folder: str | None, probe: bool = False) -> tuple[Worker | None, str]:
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
                if ready := worker.begin(probe):
                    return worker, said
                worker.end()
                said = worker.printed(LAST_WORDS).strip()
            finally:
                if not ready:
                    worker.close()
        return None, said


class Loaded:
    """A submission that a worker has loaded. ``defines``: the puzzles of which it has a function."""

    def __init__(
        self, worker: Worker, submission: Submission, timeout: float, watch: Callable[[float], None]
    ) -> None:
        """``timeout`` is in seconds of wall-clock time, for loading and for each run; ``watch`` as for Referee."""
        self.worker, self.timeout, self.watch = worker, timeout, watch
        self.defines: list[str] = []
        self.trouble: list[str] = []  # a line for each statement that failed
        self.left_out: list[str] = []  # and for each that was not run, although it changes what a function uses
        self.failed: PuzzleError | None = None  # why nothing was loaded
        task = {
            "file": submission.file, "text": submission.text, "folder": submission.folder, "timeout": timeout,
            "hidden": [str(PACKAGE.parent / "solutions"), str(PACKAGE.parent / "tests")],
        }  # fmt: skip
        try:
            self._ask(task, timeout)
            match self._answer("", timeout, time.monotonic() + timeout + GRACE, LONGEST):
                case ["loaded", list() as defines, list() as trouble, list() as left_out]:
                    self.defines = [name for name in defines if isinstance(name, str)]
                    self.trouble, self.left_out = [*map(str, trouble)], [*map(str, left_out)]
                case ["failed", dict() as packed]:
                    raise _unpacked(packed)
                case _:
                    raise tampered("something else", "")
        except ProtocolError as error:
            self.failed = tampered(str(error), "")
        except PuzzleError as error:
            self.failed = error
        finally:
            self.watch(math.inf)

    def run(self, name: str, size: Size, printed: list[str], cost: str = "default") -> Outcome:
        """Return the outcome of a run at a cost of that name, and append what has been printed to ``printed``.

        Raise PuzzleError if the run fails, and Missing if there is no function of that name.
        """
        try:
            if self.failed is not None:
                self.failed.place = Place(detail=name)
                raise self.failed
            seconds = self.timeout + AGAIN * room(size["ranks"], size["layers"], size["batches"])
            deadline = time.monotonic() + seconds + GRACE
            self._ask({"name": name, "size": size, "cost": cost, "timeout": seconds}, seconds)
            with collector_off(cycles=True):  # it would look at each call of the recording again and again
                match self._answer(name, seconds, deadline, MOST_BYTES):
                    case [None, "missing"]:
                        raise self._missing(name)
                    case [dict() | None as recording, str(), *_] as said:
                        simulator = LocalSimulator(machine_of(size, cost), graded=True)
                        train = size.get("train", TRAINED[0])
                        replay = Replay(simulator, size["layers"], size["batches"], train)
                        return self._judged(recording, said[1:], replay, name, deadline)
            raise tampered("something else", name)
        except ProtocolError as error:
            raise tampered(str(error), name) from None
        finally:
            printed.append(self.worker.printed())
            self.watch(math.inf)

    def _missing(self, name: str) -> Exception:
        if self.trouble:
            got = f"{UNTAKEN}: {_notes(self.trouble)}"
            return PuzzleError(f"there is no function {name}", got=got, line="")
        return Missing()

    def _ask(self, task: dict[str, Any], seconds: float) -> None:
        self.watch(seconds)
        with suppress(OSError):  # it may end meanwhile, over 10 MiB of code: that is found out at its answer
            self.worker.wire.send(task, time.monotonic() + PATIENCE)

    def _answer(self, name: str, seconds: float, deadline: float, longest: int) -> Any:
        """Return what the worker says. Raise PuzzleError if it says nothing in time, or nothing at all."""
        try:
            return self.worker.wire.receive(deadline, longest)
        except TimeoutError:
            late = f"the run did not end within {seconds:g} seconds, and could not be interrupted"
            fix = "look for a loop, or a call of something outside Python, that never ends"
            raise PuzzleError(late, where=name, fix=fix, line="") from None
        except (EOFError, ConnectionError):
            status = self.worker.end(GRACE)
            got = f"exit status {status}" if status <= 128 else f"ended by signal {status - 128}"
            expected, fix = "the function returns on every rank", "a program of a puzzle does not end its process"
            gone = "the process ended before the function did"
            raise PuzzleError(gone, where=name, expected=expected, got=got, fix=fix, line="") from None

    def _judged(self, recording: Any, ending: list[Any], replay: Replay, name: str, deadline: float) -> Outcome:
        """Return the outcome of a run that was finished, as a replay of its calls has it. Raise PuzzleError for any
        other ending."""
        wrong = tampered(f"an end of another kind, {ending[0]!r}", name)
        try:
            with watchdog(deadline - time.monotonic()):
                if recording is not None:
                    replay.play(recording, deadline)
                if ending == ["done"]:
                    return replay.outcome(name)
        except TimeoutError:
            late = "the run did not end within its time: its calls take too long to be carried out again"
            wrong = PuzzleError(late, where=name, fix="fewer calls", line="")
        except ProtocolError as error:
            wrong = tampered(str(error), name)
        match ending:
            case ["failed", dict() as packed]:
                raise self._failure(replay, packed)
        raise wrong

    def _failure(self, replay: Replay, packed: dict[Any, Any]) -> PuzzleError:
        """Return the error of a failed run: of the one that the worker tells and those of the replay, that of which
        the others come. (A worker that tells another than the real one has failed all the same.)"""
        error = _unpacked(packed)
        if replay.errors or replay.stuck:
            first = cause([*replay.errors, *filter(None, [replay.stuck]), error])
            first.line = error.line if error.problem == first.problem else first.line
            error = presentable(first)
        elif self.trouble and "NameError" in error.problem:
            error.got = f"{UNTAKEN}: {_notes(self.trouble)}"
        if self.left_out:
            said = "the grader did not run these lines, which change what the function uses"
            error.got = "\n".join(filter(None, [error.got, f"{said}: {_notes(self.left_out)}"]))
        return error


def _unpacked(packed: dict[Any, Any]) -> PuzzleError:
    """Return the error that a worker tells."""
    try:
        return PuzzleError(**unpack_error(packed))
    except ProtocolError:
        return PuzzleError("the run failed, and the program has damaged its error")


def tampered(got: str, name: str) -> PuzzleError:
    """Return what to say of a worker that says something else than this library's."""
    problem, fix = "what the program has sent to the grader is no recording of a run", "use the methods of model only"
    return PuzzleError(problem, where=name, got=shown(got, 200), fix=fix, line="")


def _notes(lines: list[Any]) -> str:
    return "; ".join(shown(str(line), 300) for line in lines[:3]) + " ..." * (len(lines) > 3)
