"""Finds out how code can be kept apart on this machine, and starts workers that way."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ..basics.errors import PuzzleError
from ..recording.safe import shown
from .known import Known
from .sandbox import MECHANISMS, Worker, available, hidden

TRIES, PAUSE = 3, 0.2  # how often to try to start a worker, and the seconds in between
LAST_WORDS = 300  # bytes of the output of a worker that did not start, at most: at its end it says why

decided: dict[tuple[str, ...], str] = {}
"""For several mechanisms the first that works here, tried once, before any code of a learner's is there."""
exposed: dict[tuple[str, tuple[str, ...]], list[str]] = {}
"""By mechanism and what is secret: what a worker has found that it must not find."""


class Referee:
    """Runs code in workers. ``timeout`` is in seconds of wall-clock time for each run, and large machines have more;
    ``secret``: folders that no code may see, but for its own in them; ``watch`` gets the seconds that what begins may
    take and whether they are the learner's code's own (else its calls are carried out again), and that there is no
    limit when it has ended."""

    def __init__(
        self,
        timeout: float,
        mechanisms: Sequence[str] | None = None,
        secret: Sequence[str] = (),
        watch: Callable[[float, bool], None] = lambda seconds, learners: None,
    ) -> None:
        self.timeout, self.secret = timeout, tuple(os.path.realpath(path) for path in secret)
        self.mechanisms, self.watch = list(mechanisms or available()), watch
        self.known = Known()

    def isolation(self) -> str:
        """Return a sentence on how workers are kept apart here, as one has found that has tried."""
        try:
            mechanism = self._mechanism()
        except (OSError, RuntimeError):
            return "in no process, since none could be started"
        seen = "" if mechanism == "process" else "; ".join(exposed.get((mechanism, self.secret), []))
        return MECHANISMS[mechanism] + (f"; BUT THIS CAN BE READ: {shown(seen, 300)}" if seen else "")

    def _mechanism(self) -> str:
        """Return the mechanism of all workers, chosen once: a later failure never leads to a weaker one."""
        several = tuple(self.mechanisms)
        if several not in decided:
            decided[several] = next((one for one in several[:-1] if self._works(one)), several[-1])
        self.mechanisms = [mechanism] = [decided[several]]
        if (mechanism, self.secret) not in exposed and mechanism != "process":
            self._works(mechanism)
        return mechanism

    def _works(self, mechanism: str) -> bool:
        """Return whether a worker starts in an empty folder."""
        with tempfile.TemporaryDirectory(prefix="puzzle-") as folder:
            worker, _ = self._try(mechanism, folder, hidden(folder, self.secret))
        if worker is not None:
            exposed[mechanism, self.secret] = worker.found
            worker.close()
        return worker is not None

    def start(self, folder: str | None) -> Worker:
        """Return a worker that sees the folder and is ready. Raise PuzzleError or RuntimeError if none starts."""
        mechanism = self._mechanism()
        worker, output = self._try(mechanism, folder)
        if worker is not None:
            return worker
        if folder is not None and self._works(mechanism):
            problem = "the submission cannot be started in the sandbox, and is not run without it"
            got, expected = output.rpartition("\n")[2], "a folder whose path is short, and can be read"
            raise PuzzleError(problem, expected=expected, got=got, line="")
        raise RuntimeError(f"no worker could be started:\n{output}")

    def _try(self, mechanism: str, folder: str | None, secrets: Sequence[str] = ()) -> tuple[Worker | None, str]:
        """Return a worker that is ready, or None, and what the last one that did not start has said. A worker that has
        to look for files that are hidden (``sought``) gets no code."""
        output = ""
        for tried in range(TRIES):
            time.sleep(PAUSE if tried else 0)
            try:
                worker = Worker(mechanism, folder, self.secret)
            except (FileNotFoundError, PermissionError) as error:  # found, and cannot be started
                output = f"{mechanism}: {error.strerror}"
                continue
            with ExitStack() as undo:
                undo.callback(worker.close)
                if worker.begin(secrets):
                    undo.pop_all()
                    return worker, output
                worker.end()
                output = worker.printed(max(0, worker.printed_bytes() - LAST_WORDS)).strip()
        return None, output
