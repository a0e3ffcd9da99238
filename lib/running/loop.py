"""An event loop that knows when nothing can go on, and takes no wall-clock time.

asyncio asks its selector "wait until something happens"; ours answers at once, because nothing outside this process
ever will. What it is asked tells how things stand:

- a timeout of 0: callbacks are due, go on;
- no timeout: every coroutine waits, so the machine decides what ends next (``quiet``);
- some seconds: every coroutine waits, and there is a timer. The machine decides first; when it has nothing to decide,
  the loop's clock jumps to the timer, so ``asyncio.sleep`` is free.

No thread, no socket and no patching, so it works under a running loop and in a browser as well.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from ..basics.asyncio_private import SelectorlessLoop, default_executor
from ..learner.calls import Call


class QuietLoop(SelectorlessLoop):
    """An event loop for coroutines that wait for each other only.

    ``quiet()`` is called when all of them wait; it gives whether it woke one. ``stuck()`` is called when it did not and
    no timer is left, and after the ``deadline`` (of time.monotonic). ``started(task)`` hears of every task.
    """

    def __init__(
        self,
        quiet: Callable[[], bool],
        stuck: Callable[[], object],
        started: Callable[[asyncio.Task[Any]], object],
        deadline: float | None,
    ) -> None:
        super().__init__()
        self._quiet, self._stuck, self._started, self._deadline = quiet, stuck, started, deadline
        self._woken = threading.Event()
        self._jumped, self._turns = 0.0, 0

    def close(self) -> None:
        """Close the loop, and let go of those who are called: what belongs to a run is then given back with it."""
        super().close()
        self._quiet = self._stuck = self._started = bool

    def time(self) -> float:
        """Seconds of the loop's clock, which jumps over what is only waited for."""
        return super().time() + self._jumped

    def create_task(self, coro: Any, **kwargs: Any) -> Any:
        """A task for a coroutine; a call in flight is as good as a task already."""
        if isinstance(coro, Call):
            return coro
        task = super().create_task(coro, **kwargs)
        self._started(task)
        return task

    def select(self, timeout: float | None) -> list[Any]:
        """Called once a turn by the base class."""
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
        """Called when a thread has an answer."""
        self._woken.set()
