"""Attempts of one learner or of a class, graded as many at a time as there are processors."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import NamedTuple

from ..grading.verdict import FAIL, PASS, Report, Verdict
from .attempts import Attempt
from .examiner import Examiner, failed, processors, verdict_on
from .referee import Referee


class How(NamedTuple):
    """How all is graded: the seed of the other sizes, seconds for each run, and folders that no code may see."""

    seed: int
    timeout: float
    secret: Sequence[str] = ()


@dataclass
class Allowance:
    """The seconds that the programs of one student may take, all together."""

    seconds: float = float("inf")
    used: float = 0.0
    begun: list[float] = field(default_factory=list)  # when the attempts have begun that are judged now

    def left(self) -> float:
        """Return how many of the seconds are left at this moment."""
        now = time.monotonic()
        return self.seconds - self.used - sum(now - begun for begun in self.begun)


@dataclass(frozen=True, eq=False)
class Turn:
    """What is graded in one go: a student's attempts at one puzzle, until one passes."""

    attempts: Sequence[Attempt]
    allowance: Allowance


class Result(NamedTuple):
    """Verdicts on the attempts of a turn, and a sentence on how their code was kept apart."""

    turn: Turn
    verdicts: list[Verdict]
    isolation: str


Judge = Callable[[Attempt, float], tuple[Verdict, str]]
"""What judges an attempt that may take so many seconds."""


def session(attempts: Sequence[Attempt], how: How, plain: bool) -> Report:
    """Return the verdict on each attempt. ``plain``: without a progress bar."""
    turns = [Turn([attempt], Allowance()) for attempt in attempts]
    results: dict[Turn, Result] = {}
    with Bar(len(turns), plain) as bar:
        for result in graded(turns, how, alone=len(turns) == 1):
            results[result.turn] = result
            bar.step(result.turn.attempts[0].puzzle.name)
    verdicts = [verdict for turn in turns for verdict in results[turn].verdicts]
    return Report(verdicts, next((result.isolation for result in results.values()), ""))


def graded(turns: Iterable[Turn], how: How, alone: bool = False) -> Iterator[Result]:
    """Give the result of each turn as soon as it is there. Turns are taken when their time has come, so that a class
    need not be in memory at once. ``alone``: they are judged in this process."""
    if alone:
        referee = Referee(how.timeout, secret=how.secret)
        try:
            for turn in turns:
                yield _taken(
                    turn, lambda attempt, left: (verdict_on(attempt, referee, how.seed, left), referee.isolation())
                )
        finally:
            referee.stop()
        return
    waiting, taking, done = iter(turns), threading.Lock(), SimpleQueue[Result | BaseException | None]()
    desks = [Desk(how) for _ in range(processors())]

    def work(desk: Desk) -> None:
        try:
            while True:
                with taking:
                    turn = next(waiting, None)
                if turn is None:
                    break
                done.put(_taken(turn, desk))
        except BaseException as error:
            done.put(error)
        done.put(None)

    try:
        for desk in desks:
            threading.Thread(target=work, args=[desk], daemon=True).start()
        left = len(desks)
        while left:
            match done.get():
                case None:
                    left -= 1
                case BaseException() as error:
                    raise error
                case Result() as result:
                    yield result
    finally:
        for desk in desks:
            desk.close()


class Desk:
    """A place where attempts are judged, by an examiner. One that has died is replaced by another."""

    def __init__(self, how: How) -> None:
        self.how = how
        self.examiner: Examiner | None = None
        self.closed = False

    def __call__(self, attempt: Attempt, left: float) -> tuple[Verdict, str]:
        """Return the verdict on an attempt that may take so many seconds, and how its code was kept apart."""
        self.examiner = self.examiner or Examiner()
        try:
            return self.examiner.verdict_on(attempt, left, *self.how)
        except (EOFError, OSError):
            if self.closed:
                raise
            self.examiner.close()
            self.examiner = None
            return failed(attempt, "the process that judges has ended, often because memory ran out"), ""

    def close(self) -> None:
        """End its examiner."""
        self.closed = True
        if self.examiner is not None:
            self.examiner.close()


def _taken(turn: Turn, judge: Judge) -> Result:
    """Return the verdicts on a turn's attempts, until one passes with its star or the allowance is used up."""
    verdicts: list[Verdict] = []
    isolation, allowed = "", turn.allowance
    for attempt in turn.attempts:
        if (left := allowed.left()) <= 0:
            taken = allowed.seconds - left
            spent = f"this student's programs have taken {taken:.0f} s, and {allowed.seconds:g} are allowed"
            verdicts.append(Verdict(attempt.puzzle, FAIL, f"not graded: {spent} (--budget)"))
            break
        allowed.begun.append(begun := time.monotonic())
        verdict, isolation = judge(attempt, left)
        allowed.begun.remove(begun)
        allowed.used += verdict.seconds
        verdicts.append(verdict)
        if verdict.status == PASS and (verdict.starred or not attempt.puzzle.star):
            break
    return Result(turn, verdicts, isolation)


class Bar:
    """How far the grading is, on stderr: a bar at a terminal, unless ``plain``; elsewhere nothing, or ``lines``."""

    def __init__(self, total: int, plain: bool, lines: bool = False) -> None:
        self.total, self.done, self.begun = total, 0, time.monotonic()
        self.bar = sys.stderr.isatty() and not plain
        self.lines = lines and not self.bar

    def __enter__(self) -> "Bar":
        self._show("")
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def step(self, name: str) -> None:
        """Count one more, of that name."""
        self.done += 1
        self._show(name)

    def _show(self, name: str) -> None:
        if self.bar:
            filled = 20 * self.done // max(1, self.total)
            left = (time.monotonic() - self.begun) * (self.total - self.done) / max(1, self.done)
            more = f", about {left:.0f} s left" if self.done and left >= 2 else ""
            bar = f"[{'#' * filled}{'.' * (20 - filled)}] {self.done} of {self.total}{more}  {name}"
            print(f"\r\033[K{bar}", end="", file=sys.stderr, flush=True)
        elif self.lines and name:
            print(f"{self.done} of {self.total}  {name}", file=sys.stderr, flush=True)
