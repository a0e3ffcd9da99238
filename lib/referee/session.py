"""Attempts of one learner or of a class, graded as many at a time as there are processors."""

import math
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing.connection import wait

from ..basics.errors import PuzzleError
from ..basics.streams import print_to_stderr
from ..course.specs import puzzles
from ..grading.verdict import FAIL, PASS, Report, Verdict
from .attempts import Attempt, Found, attempts_in
from .examiner import Examiner
from .loaded import MOST_NAMES, Submission

OFTEN = 0.25  # seconds between two looks whether something takes too long
MOST_TRIES = 5  # attempts of one student at the same puzzle that are graded, at most
CHECKING = 4  # times a student's seconds that the grader may take to carry out the calls of these programs again


@dataclass
class Allowance:
    """The seconds that the programs of one student may take, all together. What the grader takes to carry out their
    calls again (``checked``), which is about as long, is none of them; a flood of calls ends all the same."""

    seconds: float = float("inf")
    used: float = 0.0
    checked: float = 0.0

    def used_up(self) -> str:
        """Return what is used up, or an empty text."""
        if self.used >= self.seconds:
            return f"this student's programs have taken {self.used:.0f} s, and {self.seconds:g} are allowed (--budget)"
        if self.checked >= CHECKING * self.seconds:
            return f"to check the calls of this student's programs has taken {self.checked:.0f} s (--budget)"
        return ""


@dataclass(eq=False)
class Turn:
    """What is done in one go: attempts, and files, of which one first looks what they define, and then grades that.

    ``chosen``: the puzzles that count in these files; ``found``: what each defines; ``whose``: the name of a student,
    and ``trouble``: what could not be read, and why.
    """

    waiting: list[Attempt | Submission]
    chosen: Collection[str] = ()
    allowance: Allowance = field(default_factory=Allowance)
    found: list[tuple[Submission, list[Attempt], Found]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    left_out: int = 0  # attempts at a puzzle that were too many
    whose: str = ""
    trouble: str = ""

    def due(self) -> Attempt | Submission | None:
        """Return what is to be done next, or None when the turn is over."""
        while self.waiting and not self.allowance.used_up():
            request = self.waiting.pop(0)
            if not isinstance(request, Attempt):
                return request
            tries = [verdict for verdict in self.verdicts if verdict.puzzle == request.puzzle]
            if any(one.status == PASS and (one.starred or not one.puzzle.star) for one in tries):
                continue
            if len(tries) < MOST_TRIES:
                return request
            self.left_out += 1
        for request in self.waiting:
            self.cut(request)
        self.waiting.clear()
        return None

    def hear(self, request: Attempt | Submission, answer: Verdict | Found) -> None:
        """Take an answer."""
        if isinstance(answer, Verdict):
            own = request.submission if isinstance(request, Attempt) else None
            self.verdicts.append(replace(answer, file=own.file, folder=own.folder or "") if own else answer)
        elif isinstance(request, Submission):
            attempts = [one for one in attempts_in(request, answer) if one.puzzle.name in self.chosen]
            self.found.append((request, attempts, answer))
            self.waiting[:0] = attempts

    def cut(self, request: Attempt | Submission) -> None:
        """Say that something is not graded, as the allowance is used up."""
        why = f"not graded: {self.allowance.used_up()}"
        if isinstance(request, Attempt):
            names = [request.puzzle.name]
        else:
            names = [name for name in request.functions if name in self.chosen]
            self.found.append((request, [], Found([], why)))
        self.verdicts += [Verdict(puzzles()[name], FAIL, why) for name in names]


class Examiners:
    """As many examiners as there are processors. Each starts when it is needed."""

    def __init__(self, timeout: float, secret: Sequence[str] = ()) -> None:
        """``timeout``: seconds for each run, more for a large one; ``secret``: folders that no code may see."""
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.examiners = [Examiner(timeout, secret) for _ in range(processors)]
        self.isolation = ""  # how the code was kept apart, in a sentence

    def done(self, turns: Iterable[Turn]) -> Iterator[Turn]:
        """Yield each turn when it is over. Few turns are in memory at once, however large a class is."""
        waiting, taken = iter(turns), dict[Examiner, Turn]()
        while True:
            for examiner in self.examiners:
                if examiner.request is None:
                    turn = taken.pop(examiner, None) or next(waiting, None)
                    while turn is not None and (request := turn.due()) is None:
                        yield turn
                        turn = next(waiting, None)
                    if turn is not None and request is not None:
                        taken[examiner] = turn
                        examiner.ask(request)
            if not taken:
                return
            begun = time.monotonic()
            wait([examiner.line for examiner in taken], OFTEN)
            for examiner, turn in taken.items():
                if examiner.learners:
                    turn.allowance.used += time.monotonic() - begun
                elif examiner.seconds < math.inf:  # the calls of a program are carried out again
                    turn.allowance.checked += time.monotonic() - begun
                request = examiner.request
                assert request is not None
                if (answer := examiner.answer()) is not None:
                    turn.hear(request, answer[0])
                    self.isolation = answer[1] or self.isolation
                elif turn.allowance.used_up():
                    turn.cut(request)
                    examiner.close()

    def close(self) -> None:
        """End them all, and with them all workers."""
        for examiner in self.examiners:
            examiner.close()


def session(
    requests: Sequence[Attempt | Submission], chosen: Collection[str], examiners: Examiners, plain: bool
) -> Report:
    """Return the verdict on each attempt, and on those of the ``chosen`` puzzles in each file. ``plain``: without a
    progress bar. Raise PuzzleError for a file without any."""
    turns = [Turn([one], chosen) for one in requests]
    largest_first = sorted(turns, key=_work, reverse=True)  # so that no processor waits for the last one
    with progress_bar(len(turns), plain) as step:
        for turn in examiners.done(largest_first):
            for submission, attempts, found in turn.found:
                if not attempts:
                    names = " or ".join([*chosen][:MOST_NAMES]) + " ..." * (len(chosen) > MOST_NAMES)
                    problem = f"{submission.file} defines none of the puzzles asked for at its top"
                    expected, got = f"a function of the name {names}", found.failed or found.incomplete
                    raise PuzzleError(problem, expected=expected, got=got or str(submission), line="")
            step(turn.verdicts[0].puzzle.name)
    return Report([verdict for turn in turns for verdict in turn.verdicts], examiners.isolation)


def _work(turn: Turn) -> float:
    """Return how much is to be done: of a file one does not know."""
    [request] = turn.waiting
    size = request.puzzle.size if isinstance(request, Attempt) else None
    return math.inf if size is None else float(size["ranks"] * size["layers"] * size["batches"])


@contextmanager
def progress_bar(total: int, plain: bool, lines: bool = False) -> Iterator[Callable[[str], None]]:
    """Give what counts one more, of a name, and shows it on stderr: in a bar at a terminal, unless ``plain``; elsewhere
    not at all, or in ``lines``."""
    at_terminal = not plain and sys.stderr is not None and sys.stderr.isatty()
    places = count(1)

    def step(name: str) -> None:
        done = next(places)
        if at_terminal:
            filled = 20 * done // total
            print_to_stderr(f"\r\033[K[{'#' * filled}{'.' * (20 - filled)}] {done} of {total}  {name}", end="")
        elif lines:
            print_to_stderr(f"{done} of {total}  {name}")

    try:
        yield step
    finally:
        if at_terminal:
            print_to_stderr("\r\033[K", end="")
