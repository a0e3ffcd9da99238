"""A process that judges attempts, one after the other. A class has as many of them as there are processors.

They are processes and not threads, since a judge answers every message of a program that runs: threads of one process
would wait for each other at each.
"""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from ..grading.judge import judge
from ..grading.verdict import ERROR, FAIL, TODO, Verdict
from ..recording.safe import shown
from .attempts import Attempt
from .referee import Missing, Referee
from .sandbox import START

LONGEST = 10_000  # characters of a message at most: it may repeat what the code has named, sent and raised
MEMORY = 4 << 30  # bytes that an examiner may have, whatever a program lets it keep
PATIENCE = 5.0  # seconds to end what it is about


def verdict_on(attempt: Attempt, referee: Referee, seed: int, left: float = float("inf")) -> Verdict:
    """Return the verdict on one attempt: ERROR if the grader itself fails. ``seed``: that of the other sizes; ``left``:
    the seconds that it may take in all."""
    puzzle, submission, trouble = attempt
    more = f"python -m lib grade --hint {puzzle.name}"
    if submission is None:
        status, message = (FAIL, trouble) if trouble else (TODO, "not attempted yet: there is no file of it")
        return Verdict(puzzle, status, message, next_hint=more)
    printed: list[str] = []
    begun = time.perf_counter()
    referee.until = time.monotonic() + left
    try:
        verdict = judge(puzzle, lambda size: referee.run(submission, puzzle.name, size, printed, puzzle.cost), seed)
    except Missing:
        verdict = Verdict(puzzle, TODO, f"not attempted yet: {submission.file} defines no function {puzzle.name}")
    except Exception as error:
        verdict = failed(attempt, f"{type(error).__name__}: {error}")
    seconds, said = time.perf_counter() - begun, "".join(printed[:1])
    verdict = replace(verdict, file=submission.file, printed=said, seconds=seconds, next_hint=more)
    wrong = verdict.error and verdict.error.shown(LONGEST)
    return replace(verdict, message=shown(verdict.message, LONGEST), error=wrong)


def failed(attempt: Attempt, why: str) -> Verdict:
    """Return the verdict that the grader itself has failed."""
    return Verdict(attempt.puzzle, ERROR, f"the grader failed: {why}", file=getattr(attempt.submission, "file", ""))


def main(descriptor: int) -> None:
    """Judge what comes, until the other end is closed."""
    line = Connection(descriptor)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that all files are removed
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(ValueError, OSError):  # macOS refuses
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    referees: dict[Any, Referee] = {}
    with suppress(EOFError):
        while True:
            attempt, seed, left, *how = line.recv()
            referee = referees.setdefault(tuple(how), Referee(how[0], secret=how[1]))
            line.send((verdict_on(attempt, referee, seed, left), referee.isolation()))


def _end_with_parent() -> None:
    """Wait until nobody holds the other end of stdin, and then end what this process is about."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


class Examiner:
    """Such a process, from outside."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.line = Connection(ours.detach())
        with theirs:
            command = [sys.executable, "-I", "-B", "-X", "utf8", str(START), "examiner", str(theirs.fileno())]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()], start_new_session=True
            )

    def verdict_on(
        self, attempt: Attempt, left: float, seed: int, timeout: float, secret: Sequence[str]
    ) -> tuple[Verdict, str]:
        """Return the verdict on an attempt that may take so many seconds, and how its code was kept apart. Raise
        EOFError or OSError if the process is gone."""
        self.line.send((attempt, seed, left, timeout, tuple(secret)))
        return self.line.recv()  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process, and with it all workers of its own."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.line.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
