"""A process that judges attempts, one after the other, while the one that has asked watches how long that takes.

It is a process and not a thread, since a judge carries out every operation of a program that runs: threads of one
process would wait for each other at each. It is of no pool of the library's, since those end with the first that dies.
"""

import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait

from ..grading.judge import judge
from ..grading.reasons import references_of
from ..grading.submission import sources
from ..grading.verdict import ERROR, FAIL, TODO, Verdict
from ..lab.commands import called
from ..recording.safe import shown
from .attempts import Attempt, Found
from .loaded import GRACE, LATE, Loaded, Missing, Submission
from .namespaces import limit
from .referee import Referee

LONGEST = 10_000  # characters of a message at most: it may repeat what the code has named, sent and raised
MEMORY = 4 << 30  # bytes that an examiner may have, whatever a program lets it keep
SPARE = GRACE + 1.0  # seconds more than a run may take, after which the examiner that is still about it is ended
PATIENCE = 2.0  # seconds in which it ends by itself what it is about
DIED = "the grader failed: the process that judges has ended, often because memory ran out"
FORK = multiprocessing.get_context("fork")


class Judge:
    """Judges attempts, and finds what files define. The last file stays loaded until an attempt in it is judged."""

    def __init__(self, referee: Referee) -> None:
        self.referee = referee
        self.code: Loaded | None = None

    def found(self, submission: Submission) -> Found:
        """Return what a file defines."""
        self.close()
        try:
            self.code = code = Loaded(submission, self.referee)
        except Exception as error:
            return Found([], incomplete=_failure(error))
        return Found(code.defines, shown(str(code.failed), LONGEST) if code.failed else "", code.notes.failed)

    def verdict(self, attempt: Attempt) -> Verdict:
        """Return the verdict on an attempt, with what to type for a hint: ERROR if the grader itself fails."""
        begun, printed = time.perf_counter(), list[str]()
        try:
            verdict = self._judged(attempt, printed)
        except Missing as nothing:
            verdict = Verdict(attempt.puzzle, TODO, f"not attempted yet: {nothing}")
        except Exception as error:
            verdict = Verdict(attempt.puzzle, ERROR, _failure(error))
        seconds = time.perf_counter() - begun
        self.close()  # so that no puzzle finds what another has left
        message, hint = shown(verdict.message, LONGEST), f"{called()} grade --hint {attempt.puzzle.name}"
        return replace(verdict, message=message, printed="".join(printed[:1]), seconds=seconds, next_hint=hint)

    def _judged(self, attempt: Attempt, printed: list[str]) -> Verdict:
        """Return the verdict on an attempt, and append what each run has printed to ``printed``."""
        puzzle, submission, trouble = attempt
        if trouble or submission is None:
            return Verdict(puzzle, FAIL if trouble else TODO, trouble or "not attempted yet: there is no file of it")
        if self.code is None or self.code.submission != submission:
            self.close()
            self.code = Loaded(submission, self.referee)
        run = partial(self.code.run, puzzle.name, printed=printed, cost=puzzle.cost)
        return judge(puzzle, run, self.code.recording, references_of, partial(_source, submission, puzzle.name))

    def close(self) -> None:
        """End the worker that has the file."""
        if self.code is not None:
            self.code.close()
            self.code = None


def _source(submission: Submission, name: str) -> str:
    """Return the text of a file, or the cell of a notebook, that defines a function last; nothing if none does."""
    texts = [text for _, text in sources(submission.file, submission.text)]
    return next((text for text in reversed(texts) if f"def {name}(" in text), "")


def _failure(error: Exception) -> str:
    return f"the grader failed: {type(error).__name__}: {error}"


def _work(line: Connection, timeout: float, secret: Sequence[str]) -> None:
    """Answer what comes. Tell of all that is to be watched when it begins, and when it has ended (see Referee)."""
    os.setsid()  # an interrupt at the terminal is for the grader, which then ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that all files are removed
    threading.Thread(target=_end_with_parent, daemon=True).start()
    limit("AS", MEMORY, for_good=False)
    with closing(Judge(Referee(timeout, secret=secret, watch=lambda *limit: line.send(limit)))) as judge:
        while True:
            request = line.recv()
            answer = judge.verdict(request) if isinstance(request, Attempt) else judge.found(request)
            line.send((answer, judge.referee.isolation()))


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


class Examiner:
    """A handle of a process that judges. The process starts at the first question, and a new one if it has died."""

    def __init__(self, timeout: float, secret: Sequence[str]) -> None:
        self.how = (timeout, secret)
        self.process: multiprocessing.process.BaseProcess | None = None
        self.request: Attempt | Submission | None = None  # what it is about

    def ask(self, request: Attempt | Submission) -> None:
        """Let it judge an attempt, or look what a file defines."""
        if self.process is None:
            self.line, theirs = Pipe()
            self.process = FORK.Process(target=_work, args=(theirs, *self.how), daemon=True)
            self.process.start()
            theirs.close()
        self.request = request
        self.seconds, self.learners, self.begun = math.inf, False, 0.0
        """How long what is going on may take, whether a program runs (else it is the grader), and since when."""
        with suppress(OSError):  # it has died: so says the answer
            self.line.send(request)

    def answer(self) -> tuple[Verdict | Found, str] | None:
        """Return the verdict, or what a file defines, and how the code was kept apart, or None while that takes."""
        request = self.request
        assert request is not None
        try:
            while self.line.poll():
                match self.line.recv():
                    case (Verdict() | Found() as answer, str() as isolation):
                        self.request = None
                        return answer, isolation
                    case seconds, learners:
                        self.seconds, self.learners, self.begun = seconds, learners, time.monotonic()
            if time.monotonic() < self.begun + self.seconds + SPARE:
                return None
            failed = LATE.format(self.seconds)
        except (EOFError, OSError):
            failed = ""
        self.close()
        if isinstance(request, Submission):
            return Found([], failed, "" if failed else DIED), ""
        return Verdict(request.puzzle, FAIL if failed else ERROR, failed or DIED), ""

    def close(self) -> None:
        """End the process, and what it is about."""
        self.request = None
        if self.process is not None:
            self.process.terminate()
            self.process.join(PATIENCE)
            self.process.kill()
            self.process.join()
            self.line.close()
            self.process = None
