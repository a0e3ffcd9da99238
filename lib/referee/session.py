"""Attempts of one learner or of a class, graded as many at a time as there are processors."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from ..basics.streams import tell
from ..grading.verdict import FAIL, PASS, Report, Verdict
from .attempts import Attempt
from .examiner import Examiner

OFTEN = 0.25  # seconds between two looks whether something takes too long


@dataclass
class Allowance:
    """The seconds that the programs of one student may take, all together."""

    seconds: float = float("inf")
    used: float = 0.0

    def is_used_up(self) -> bool:
        """Return whether nothing is left."""
        return self.used >= self.seconds


@dataclass(eq=False)
class Turn:
    """What is graded in one go: a student's attempts at one puzzle, until one passes with its star."""

    waiting: list[Attempt]
    allowance: Allowance
    verdicts: list[Verdict] = field(default_factory=list)

    def due(self) -> Attempt | None:
        """Return the attempt that is to be judged next, or None when the turn is over."""
        best = self.verdicts[-1] if self.verdicts else None
        if best and best.status == PASS and (best.starred or not best.puzzle.star):
            return None
        attempt = self.waiting.pop(0) if self.waiting else None
        if attempt is not None and self.allowance.is_used_up():
            self.cut(attempt)
            return None
        return attempt

    def cut(self, attempt: Attempt) -> None:
        """End the turn, as the allowance is used up before this attempt is judged."""
        taken = f"{self.allowance.used:.0f} s, and {self.allowance.seconds:g} are allowed (--budget)"
        why = f"not graded: this student's programs have taken {taken}"
        self.verdicts.append(Verdict(attempt.puzzle, FAIL, why))
        self.waiting.clear()


class Examiners:
    """As many as there are processors, each of them started when it is needed."""

    def __init__(self, timeout: float, secret: Sequence[str] = ()) -> None:
        """``timeout``: seconds for each run, more for a large one; ``secret``: folders that no code may see."""
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.examiners = [Examiner(timeout, secret) for _ in range(processors)]
        self.isolation = ""  # how the code was kept apart, in a sentence

    def graded(self, turns: Iterable[Turn], seed: int) -> Iterator[Turn]:
        """Give each turn when it is over. Turns are taken when their time has come, so that a class need not be in
        memory at once. ``seed``: that of the other sizes."""
        waiting, taken = iter(turns), dict[Examiner, Turn]()
        while True:
            for examiner in self.examiners:
                if examiner.attempt is None:
                    turn = taken.pop(examiner, None) or next(waiting, None)
                    while turn is not None and (attempt := turn.due()) is None:
                        yield turn
                        turn = next(waiting, None)
                    if turn is not None and attempt is not None:
                        taken[examiner] = turn
                        examiner.ask(attempt, seed)
            if not taken:
                return
            begun = time.monotonic()
            wait([examiner.line for examiner in taken], OFTEN)
            for examiner, turn in taken.items():
                turn.allowance.used += examiner.is_running() * (time.monotonic() - begun)
                if (answer := examiner.answer()) is not None:
                    turn.verdicts.append(answer[0])
                    self.isolation = answer[1] or self.isolation
                elif turn.allowance.is_used_up() and examiner.attempt is not None:
                    turn.cut(examiner.attempt)
                    examiner.close()

    def close(self) -> None:
        """End them all, and with them all workers."""
        for examiner in self.examiners:
            examiner.close()


def session(attempts: Sequence[Attempt], examiners: Examiners, seed: int, plain: bool) -> Report:
    """Return the verdict on each attempt. ``plain``: without a progress bar."""
    turns = [Turn([attempt], Allowance()) for attempt in attempts]
    with Bar(len(turns), plain) as bar:
        for turn in examiners.graded(turns, seed):
            bar.step(turn.verdicts[0].puzzle.name)
    return Report([verdict for turn in turns for verdict in turn.verdicts], examiners.isolation)


class Bar:
    """How far the grading is, on stderr: a bar at a terminal, unless ``plain``; elsewhere nothing, or ``lines``."""

    def __init__(self, total: int, plain: bool, lines: bool = False) -> None:
        self.total, self.done, self.begun = total, 0, time.monotonic()
        self.bar = not plain and sys.stderr is not None and sys.stderr.isatty()
        self.lines = lines and not self.bar

    def __enter__(self) -> "Bar":
        self._show("")
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar:
            tell("\r\033[K", end="")

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
            tell(f"\r\033[K{bar}", end="")
        elif self.lines and name:
            tell(f"{self.done} of {self.total}  {name}")
