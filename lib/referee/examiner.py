"""A process that judges attempts, one after the other, while the one that has asked watches how long that takes.

It is a process and not a thread, since a judge carries out every operation of a program that runs: threads of one
process would wait for each other at each. It is of no pool of the library's, since those end with the first that dies.
"""

import math
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait

from ..grading.judge import judge
from ..grading.verdict import ERROR, FAIL, TODO, Verdict
from ..recording.safe import shown
from .attempts import Attempt
from .referee import GRACE, Missing, Referee

LONGEST = 10_000  # characters of a message at most: it may repeat what the code has named, sent and raised
MEMORY = 4 << 30  # bytes that an examiner may have, whatever a program lets it keep
SPARE = GRACE + 1.0  # seconds more than a run may take, after which the examiner that is still about it is ended
PATIENCE = 2.0  # seconds in which it ends by itself what it is about
DIED = "the grader failed: the process that judges has ended, often because memory ran out"
FORK = multiprocessing.get_context("fork")


def verdict_on(attempt: Attempt, referee: Referee, seed: int) -> Verdict:
    """Return the verdict on one attempt: ERROR if the grader itself fails. ``seed``: that of the other sizes."""
    puzzle, submission, trouble = attempt
    more = f"python -m lib grade --hint {puzzle.name}"
    if submission is None:
        status, message = (FAIL, trouble) if trouble else (TODO, "not attempted yet: there is no file of it")
        return Verdict(puzzle, status, message, next_hint=more)
    printed: list[str] = []
    begun = time.perf_counter()
    try:
        with referee.loaded(submission) as code:
            verdict = judge(puzzle, lambda size: code.run(puzzle.name, size, printed, puzzle.cost), seed)
    except Missing:
        verdict = Verdict(puzzle, TODO, f"not attempted yet: {submission.file} defines no function {puzzle.name}")
    except Exception as error:
        verdict = _failed(attempt, ERROR, f"the grader failed: {type(error).__name__}: {error}")
    seconds, said = time.perf_counter() - begun, "".join(printed[:1])
    verdict = replace(verdict, file=submission.file, printed=said, seconds=seconds, next_hint=more)
    wrong = verdict.error and verdict.error.shown(LONGEST)
    return replace(verdict, message=shown(verdict.message, LONGEST), error=wrong)


def _failed(attempt: Attempt, status: str, why: str) -> Verdict:
    return Verdict(attempt.puzzle, status, why, file=getattr(attempt.submission, "file", ""))


def _work(line: Connection, timeout: float, secret: Sequence[str]) -> None:
    """Judge what comes. Tell of each run when it begins how long it may take, and when it has ended that nothing is
    to be watched."""
    os.setsid()  # an interrupt at the terminal is for the grader, which then ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that all files are removed
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(ValueError, OSError):  # macOS refuses
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    referee = Referee(timeout, secret=secret, watch=line.send)
    while True:
        attempt, seed = line.recv()
        line.send((verdict_on(attempt, referee, seed), referee.isolation()))


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


class Examiner:
    """Such a process, from outside. It is started when it is asked, as is another one where it has died."""

    def __init__(self, timeout: float, secret: Sequence[str]) -> None:
        self.how = (timeout, secret)
        self.process: multiprocessing.process.BaseProcess | None = None
        self.attempt: Attempt | None = None  # what it judges now

    def ask(self, attempt: Attempt, seed: int) -> None:
        """Let it judge an attempt. ``seed``: that of the other sizes."""
        if self.process is None:
            self.line, theirs = Pipe()
            self.process = FORK.Process(target=_work, args=(theirs, *self.how), daemon=True)
            self.process.start()
            theirs.close()
        self.attempt, self.seconds, self.begun = attempt, math.inf, 0.0
        with suppress(OSError):  # it has died: so says the answer
            self.line.send((attempt, seed))

    def is_running(self) -> bool:
        """Return whether a program runs, as opposed to what the grader does for itself."""
        return self.seconds < math.inf

    def answer(self) -> tuple[Verdict, str] | None:
        """Return the verdict, and how the code was kept apart, or None while it is judged."""
        attempt = self.attempt
        assert attempt is not None
        try:
            while self.line.poll():
                match self.line.recv():
                    case (Verdict() as verdict, str() as isolation):
                        self.attempt = None
                        return verdict, isolation
                    case seconds:
                        self.seconds, self.begun = seconds, time.monotonic()
            if time.monotonic() < self.begun + self.seconds + SPARE:
                return None
            late = f"the run did not end within {self.seconds:g} seconds, and could not be interrupted"
            verdict = _failed(attempt, FAIL, late)
        except (EOFError, OSError):
            verdict = _failed(attempt, ERROR, DIED)
        self.close()
        return verdict, ""

    def close(self) -> None:
        """End the process, and what it is about."""
        self.attempt = None
        if self.process is not None:
            self.process.terminate()
            self.process.join(PATIENCE)
            self.process.kill()
            self.process.join()
            self.line.close()
            self.process = None
