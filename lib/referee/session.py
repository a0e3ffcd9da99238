"""Several attempts, graded in parallel, each run in a worker."""

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import chain

from ..grading.judge import judge, new_seed
from ..grading.verdict import ERROR, FAIL, TODO, Report, Verdict
from ..remote.wire import shown
from .referee import Missing, Referee
from .shelf import Attempt

LONGEST = 10_000  # characters of a message at most: it may repeat what the code has named, sent and raised


def session(
    attempts: Sequence[Attempt],
    seed: int | None,
    timeout: float,
    plain: bool,
    whose: str = "",
    secret: Sequence[str] = (),
) -> Report:
    """Return verdicts on attempts, graded as many at a time as there are processors.

    ``seed``: that of the other sizes; ``timeout``: in seconds, for each run; ``plain``: without a progress bar;
    ``whose``: the name of the student, for the bar; ``secret``: folders that the code must not see, with other work.
    """
    drawn = new_seed() if seed is None else seed
    referee = Referee(timeout, secret=secret)

    def show(bar: str) -> None:
        """Write over the last line of stderr, if that is a terminal."""
        if not plain and sys.stderr.isatty():
            print(f"\r\033[K{bar}", end="", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            graded = {pool.submit(verdict_on, attempt, referee, drawn): attempt.puzzle.name for attempt in attempts}
            for done, name in enumerate(chain([""], (graded[one] for one in as_completed(graded)))):
                filled = 20 * done // max(1, len(attempts))
                show(f"[{'#' * filled}{'.' * (20 - filled)}] {done} of {len(attempts)} {whose} {name}")
            verdicts = [one.result() for one in graded]
        except BaseException:
            referee.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            show("")
    return Report(verdicts, referee.isolation())


def verdict_on(attempt: Attempt, referee: Referee, seed: int) -> Verdict:
    """Return the verdict on one attempt: ERROR if the grader itself fails."""
    puzzle, submission, trouble = attempt
    more = f"python -m lib grade --hint {puzzle.name}"
    if submission is None:
        status, message = (FAIL, trouble) if trouble else (TODO, "not attempted yet: there is no file of it")
        return Verdict(puzzle, status, message, next_hint=more)
    printed: list[str] = []
    begun = time.perf_counter()
    try:
        verdict = judge(puzzle, lambda size: referee.run(submission, puzzle.name, size, printed, puzzle.cost), seed)
    except Missing:
        verdict = Verdict(puzzle, TODO, f"not attempted yet: {submission.file} defines no function {puzzle.name}")
    except Exception as error:
        verdict = Verdict(puzzle, ERROR, f"the grader failed: {type(error).__name__}: {error}")
    seconds, said = time.perf_counter() - begun, "".join(printed[:1])
    verdict = replace(verdict, file=submission.file, printed=said, seconds=seconds, next_hint=more)
    wrong = verdict.error and verdict.error.shown(LONGEST)
    return replace(verdict, message=shown(verdict.message, LONGEST), error=wrong)
