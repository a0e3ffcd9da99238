"""A learner's file in a worker: loaded once, run as often as one likes, and only a replay of its calls is believed."""

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..basics.errors import Place, PuzzleError
from ..basics.folders import LIB, SECRET, SOLUTIONS
from ..course.layouts import Size
from ..course.specs import machine_of, puzzles
from ..grading.submission import AWAITS, LONGEST_SUMMARY
from ..machine.check import TRAINED
from ..machine.outcome import Outcome
from ..machine.simulator import LocalSimulator
from ..recording.diary import read_diary
from ..recording.replay import MOST_BYTES, Replay
from ..recording.safe import LONGEST_ERROR, presentable, shown, unpack_error
from ..recording.wire import CHARACTER, LONGEST, ProtocolError, parse
from ..running.execution import cause
from ..running.limits import collector_off, room, watchdog
from .known import Recorded
from .referee import Referee
from .sandbox import PATIENCE, Worker

MOST_NAMES, LONGEST_NAMES = 4, 200  # of functions and puzzles that a message lists, and their characters
AGAIN = 3
"""How much longer than in a notebook a run on a large machine may take: it is recorded, and replayed."""
GRACE = 2.0  # seconds that a worker has, after its own time limit, to report that it was late, and that a replay has
TELLING = 5.0  # seconds in which a worker tells the diary of a run: an explanation is not worth more
LATE = "the run did not end within {:g} seconds, and could not be interrupted"


@dataclass(frozen=True)
class Submission:
    """A learner's code: the name of its file, its text, and the folder with its other modules, or None."""

    file: str
    text: str
    folder: str | None = None

    @property
    def functions(self) -> list[str]:
        """The names of the functions that it seems to define, as lines or in the JSON of a notebook. Nothing of it is
        parsed or run, so it may be broken."""
        return [*dict.fromkeys(re.findall(r"(?:(?<!\w)|(?<=\\[nrt]))def[ \t]++(\w++)", self.text))]

    def __str__(self) -> str:
        if not self.text.strip():
            return f"{self.file} is empty"
        names = ", ".join(self.functions[:MOST_NAMES]) + ", ..." * (len(self.functions) > MOST_NAMES)
        return f"{self.file} defines {shown(names, LONGEST_NAMES) or 'no function'}"


class Notes(NamedTuple):
    """A file's statements, as text, that failed, or that were left out although functions need them."""

    failed: str = ""
    left_out: str = ""

    def about(self, raised: bool) -> str:
        """Return sentences on what the function may miss, more of them where Python has raised an error."""
        found = [("The grader did not run these lines, which change what the function uses", self.left_out)]
        found += [("Python could not run these lines", self.failed)] * raised
        return ". ".join(f"{sentence}: {lines}" for sentence, lines in found if lines)


LONGEST_LOADED = LONGEST + max(len(Notes._fields) * LONGEST_SUMMARY * CHARACTER, LONGEST_ERROR)
"""Bytes that a worker may take to say what it has loaded, or why it has not: texts, and what is around them."""


class Missing(Exception):
    """Raised when the code has no function of the puzzle's name."""


class Loaded:
    """A submission that a worker has loaded. ``defines``: the names of puzzles of which it has something to call."""

    def __init__(self, submission: Submission, referee: Referee) -> None:
        self.submission, self.timeout = submission, referee.timeout
        self.watch, self.known = referee.watch, referee.known
        self.worker: Worker | None = None
        self.begun = 0  # bytes that were printed while it was loaded
        self.defines: list[str] = []
        self.notes = Notes()
        self.failed: PuzzleError | None = None  # why nothing was loaded
        self.runs = 0  # how many were asked for
        self.kept: list[Recorded] = []  # the first run and the last one, which may be looked at once more
        task = {
            "file": submission.file, "text": submission.text, "folder": submission.folder, "timeout": self.timeout,
            "hidden": [str(SOLUTIONS), str(LIB.parent / "tests"), str(SECRET)],
        }  # fmt: skip
        try:
            self.worker = referee.start(submission.folder)
            with self._timed(""):
                match parse(self._answer(task, "", self.timeout, longest=LONGEST_LOADED)):
                    case ["loaded", list() as defines, [str(), str()] as notes]:
                        self.defines = [name for name in puzzles() if name in defines]
                        self.notes = Notes(*(shown(note, LONGEST_SUMMARY) for note in notes))
                        self.begun = self.worker.printed_bytes()
                    case ["failed", dict() as packed]:
                        raise unpack_error(packed)
                    case _:
                        raise ProtocolError("something else")
        except PuzzleError as error:
            self.failed = error
        except BaseException:
            self.close()
            raise

    def run(self, name: str, size: Size, printed: list[str], cost: str = "default") -> Outcome:
        """Return the outcome of a run at a cost of that name, and append what has been printed to ``printed``.

        Raise PuzzleError if the run fails, and Missing if there is no function of that name.
        """
        with self._timed(name):
            return self._replayed(self._recorded(name, size, printed, cost))

    def recording(self, size: Size) -> dict[str, Any] | None:
        """Return what the first run, or the last one, of this size has called, with the learner's lines as far as the
        worker tells them; or None where it has called nothing."""
        recorded = next((one for one in reversed(self.kept) if one.size == size), None)
        if recorded is None:
            return None  # its worker has ended
        with suppress(ProtocolError):
            match parse(recorded.line):
                case [{"calls": list() as calls, "failed": list() as failed}, *_]:
                    return {"calls": calls, "failed": failed, "diary": self._diary(recorded)}
        return None

    def _diary(self, recorded: Recorded) -> object:
        """Return the diary of a run; None where the worker does not tell it."""
        size = recorded.size
        seconds = TELLING + AGAIN * room(size["ranks"], size["layers"], size["batches"])
        with suppress(PuzzleError), self._timed(recorded.name):
            answer = self._answer({"diary": recorded.number}, recorded.name, seconds, learners=False)
            read_diary(diary := parse(answer))
            return diary
        return None

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        """Let the time of a run end with the block. What is no recording is reported as that."""
        try:
            yield
        except ProtocolError as error:
            raise tampered(str(error), name) from None
        finally:
            self.watch(math.inf, False)

    def _recorded(self, name: str, size: Size, printed: list[str], cost: str) -> Recorded:
        """Return what a worker says of a run. Raise PuzzleError if it says nothing."""
        try:
            if self.failed is not None:
                self.failed.place = Place(detail=name)
                raise self.failed
            seconds = self.timeout + AGAIN * room(size["ranks"], size["layers"], size["batches"])
            self.runs += 1
            line = self._answer({"name": name, "size": size, "cost": cost, "timeout": seconds}, name, seconds)
            self.watch(seconds, False)  # to carry the calls out again takes time of its own
            self.kept[1:] = [Recorded(self.runs - 1, name, size, cost, line, time.monotonic() + seconds + GRACE)]
            return self.kept[-1]
        finally:
            printed.append(self.worker.printed(self.begun) if self.worker else "")

    def _replayed(self, recorded: Recorded) -> Outcome:
        """Return the outcome of a run by a replay. Raise PuzzleError if it fails, and Missing without a function."""
        if (outcome := self.known.outcome(recorded)) is not None:
            return outcome
        name, size, shape = recorded.name, recorded.size, machine_of(recorded.size, recorded.cost)
        of_size = size["layers"], size["batches"], size.get("train", TRAINED[0])
        with collector_off(cycles=True):  # it would look at each call of the recording again and again
            match parse(recorded.line):
                case [None, "missing"]:
                    raise self._missing(name)
                case [dict() | None as recording, str(), *_] as answer:
                    replay = Replay(LocalSimulator(shape, graded=True), *of_size)
                    outcome = self._judged(recording, answer[1:], replay, name, recorded.deadline)
                case _:
                    raise ProtocolError("something else")
        self.known.keep(recorded, outcome)
        return outcome

    def close(self) -> None:
        """End the worker, and all that it has started."""
        if self.worker is not None:
            self.worker.close()

    def _missing(self, name: str) -> Exception:
        if self.notes.failed:
            expected = f"async def {name}(model): a function that awaits begins so" * (AWAITS in self.notes.failed)
            problem = f"there is no function {name}. {self.notes.about(raised=True)}"
            return PuzzleError(problem, expected=expected, line="")
        return Missing(f"there is no function {name}: {self.submission}")

    def _answer(
        self, task: dict[str, Any], name: str, seconds: float, learners: bool = True, longest: int = MOST_BYTES
    ) -> bytes:
        """Return the line with which the worker answers. ``learners``: whether the learner's code runs meanwhile. Raise
        PuzzleError if it says nothing in time, or nothing at all."""
        assert self.worker is not None
        self.watch(seconds, learners)
        with suppress(OSError):  # it may end meanwhile, over 10 MiB of code: that is found out at its answer
            self.worker.wire.send(task, time.monotonic() + PATIENCE)
        try:
            return self.worker.wire.receive_line(time.monotonic() + seconds + GRACE, longest)
        except TimeoutError:
            raise PuzzleError(LATE.format(seconds), where=name, line="") from None
        except (EOFError, OSError):
            status = self.worker.end()
            got = f"exit status {status}" if status <= 128 else f"ended by signal {status - 128}"
            expected = "the function returns on every rank"
            gone = "the process ended before the function did"
            raise PuzzleError(gone, where=name, expected=expected, got=got, line="") from None

    def _judged(self, recording: object, ending: list[object], replay: Replay, name: str, deadline: float) -> Outcome:
        """Return the outcome of a finished run, by a replay of its calls. Raise PuzzleError for any other ending."""
        wrong = tampered(f"an end of another kind, {ending[0]!r}", name)
        try:
            with watchdog(deadline - time.monotonic()):
                if recording is not None:
                    replay.play(recording, deadline)
                if ending == ["done"]:
                    return replay.outcome(name)
        except TimeoutError:
            late = "the run did not end within its time: its calls take too long to be carried out again"
            wrong = PuzzleError(late, where=name, line="")
        except ProtocolError as error:
            wrong = tampered(str(error), name)
        match ending:
            case ["failed", dict() as packed]:
                raise self._failure(replay, packed)
        raise wrong

    def _failure(self, replay: Replay, packed: object) -> PuzzleError:
        """Return the error of a failed run: of the one that the worker tells and those of the replay, that of which
        the others come. (A worker that tells another than the real one has failed all the same.)"""
        try:
            error = unpack_error(packed)
        except ProtocolError:
            error = PuzzleError("the run failed, and the program has damaged its error")
        if replay.errors or replay.stuck:
            first = cause([*replay.errors, *filter(None, [replay.stuck]), error])
            if error.problem == first.problem:
                first.line = error.line
            error = presentable(first)
        about = self.notes.about(raised=error.rule == "raised")
        error.problem = ". ".join(filter(None, [error.problem, about]))
        error.so_far = replay.so_far
        return error


def tampered(got: str, name: str) -> PuzzleError:
    """Return what to say of a worker that says something else than this library's."""
    problem = "what the program has sent to the grader is no recording of a run"
    return PuzzleError(problem, where=name, got=shown(got, 200), line="")
