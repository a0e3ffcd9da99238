"""Several attempts, graded in parallel, each run in a worker."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ..basics.errors import PuzzleError
from ..grading.judge import judge, new_seed
from ..grading.verdict import ERROR, FAIL, TODO, Mistake, Report, Verdict
from ..remote.wire import shown
from .referee import Missing, Referee
from .shelf import Attempt

LONGEST = 10_000
"""Characters of a message at most: it may repeat what the code has named, sent and raised."""


def session(
    attempts: Sequence[Attempt], seed: int | None, timeout: float, plain: bool = False, whose: str = ""
) -> Report:
    """Return verdicts on attempts, graded as many at a time as there are processors.

    ``seed``: that of the other sizes; ``timeout``: in seconds, for each run; ``plain``: without a progress bar;
    ``whose``: the name of the student, for the bar.
    """
    drawn = new_seed() if seed is None else seed
    referee = Referee(timeout)
    done = threading.Event()
    bar = Bar(len(attempts), whose, plain)

    def one(attempt: Attempt) -> Verdict:
        if done.is_set():
            raise KeyboardInterrupt
        verdict = verdict_on(attempt, referee, drawn)
        bar.step(attempt.puzzle.name)
        return verdict

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            verdicts = list(pool.map(one, attempts))
        except BaseException:
            done.set()
            referee.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            bar.clear()
    return Report(verdicts, referee.isolation())


def verdict_on(attempt: Attempt, referee: Referee, seed: int) -> Verdict:
    """Return the verdict on one attempt: ERROR if the grader itself fails."""
    puzzle, submission, trouble = attempt
    more = f"python -m lib grade --hint {puzzle.name}"
    if submission is None:
        if trouble:
            return Verdict(puzzle, FAIL, trouble, next_hint=more)
        return Verdict(puzzle, TODO, "not attempted yet: there is no file of it", next_hint=more)
    printed: list[str] = []
    begun = time.perf_counter()
    try:
        verdict = judge(puzzle, lambda size: referee.run(submission, puzzle.name, size, printed, puzzle.cost), seed)
    except Missing:
        verdict = Verdict(puzzle, TODO, f"not attempted yet: {submission.file} defines no function {puzzle.name}")
    except PuzzleError as error:
        verdict = Verdict(puzzle, FAIL, str(error), error=Mistake.of(error))
    except Exception as error:
        message = f"the grader failed: {type(error).__name__}: {error}"
        verdict = Verdict(puzzle, ERROR, message)
    seconds, said = time.perf_counter() - begun, printed[0] if printed else ""
    message, wrong = shown(verdict.message, LONGEST), verdict.error and verdict.error.shown(LONGEST)
    verdict = replace(verdict, message=message, error=wrong, file=submission.file)
    return replace(verdict, printed=said, seconds=seconds, next_hint=more)


class Bar:
    """A progress bar on stderr, if that is a terminal."""

    def __init__(self, total: int, whose: str, plain: bool) -> None:
        self.total, self.whose, self.done = total, whose, 0
        self.visible = not plain and sys.stderr.isatty()
        self.lock = threading.Lock()
        self._draw("")

    def step(self, name: str) -> None:
        """Count one more as done."""
        with self.lock:
            self.done += 1
            self._draw(name)

    def _draw(self, name: str) -> None:
        if self.visible:
            filled = 20 * self.done // max(1, self.total)
            line = f"\r\033[K[{'#' * filled}{'.' * (20 - filled)}] {self.done} of {self.total} {self.whose} {name}"
            print(line, end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave the line empty for the report."""
        if self.visible:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
