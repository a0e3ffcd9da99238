"""An event loop that knows when nothing can go on, and takes no wall-clock time.

asyncio asks its selector to wait until something happens; ours answers at once, because nothing outside this process
ever happens. The timeout of the question shows the state of the loop:

- a timeout of 0: callbacks are due, go on;
- no timeout: every coroutine waits, so the machine decides what ends next (``quiet``);
- some seconds: every coroutine waits, and there is a timer. The machine decides first; when it has nothing to decide,
  the loop's clock jumps to the timer, so ``asyncio.sleep`` is free.

No thread, no socket and no patching, so it works under a running loop and in a browser as well.
"""

import asyncio
import selectors
import threading
import time
from collections.abc import Callable
from typing import Any

from ..basics.asyncio_private import SelectorlessLoop, default_executor
from ..learner.calls import Call


class QuietLoop(SelectorlessLoop):
    """An event loop for coroutines that wait only for each other. ``quiet()`` is called when all of them wait, and
    returns whether it woke one. ``stuck()`` is called when it did not and no timer is left, and after the ``deadline``
    (of time.monotonic). ``started(task)`` is called for every task."""

    def __init__(
        self,
        quiet: Callable[[], bool],
        stuck: Callable[[], object],
        started: Callable[[asyncio.Task[object]], object],
        deadline: float | None,
    ) -> None:
        super().__init__()
        self._quiet, self._stuck, self._started, self._deadline = quiet, stuck, started, deadline
        self._woken = threading.Event()
        self._jumped, self._turns = 0.0, 0

    def close(self) -> None:
        """Close the loop and drop its callbacks, so that the objects of a run are freed with it."""
        super().close()
        self._quiet = self._stuck = self._started = bool

    def time(self) -> float:
        """Return the seconds of the loop's clock, which jumps over waiting times."""
        return super().time() + self._jumped

    def create_task(self, coro: Any, **kwargs: Any) -> Any:
        """Return a task for a coroutine, or a call in flight itself, which serves as a task."""
        if isinstance(coro, Call):
            return coro
        task = super().create_task(coro, **kwargs)
        self._started(task)
        return task

    def select(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let the machine decide what ends next. The base class calls this once a turn."""
        self._turns += 1
        if self._deadline is not None and self._turns % 64 == 0 and time.monotonic() > self._deadline:
            self._stuck()
        elif (timeout is not None and timeout <= 0) or self._quiet():
            pass
        elif default_executor(self) is not None:
            self._woken.wait(min(timeout or 0.05, 0.05))  # a thread may still answer
            self._woken.clear()
        elif timeout is not None:
            self._jumped += timeout
        else:
            self._stuck()
        return []

    def woken(self) -> None:
        """Note that a thread has an answer."""
        self._woken.set()
