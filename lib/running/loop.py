"""An event loop that knows when nothing can go on, and takes no wall-clock time.

asyncio asks its selector "wait until something happens"; ours answers at once, because nothing
outside this process ever will. What it is asked tells how things stand:

- a timeout of 0: callbacks are due, go on;
- no timeout: every coroutine waits, so the machine decides what ends next (``quiet``);
- some seconds: every coroutine waits, and there is a timer. The machine decides first; when it
  has nothing to decide, the loop's clock jumps to the timer, so ``asyncio.sleep`` is free.

No thread, no socket and no patching, so it works under a running loop and in a browser as well.
"""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..learner.calls import Call


class QuietLoop(asyncio.BaseEventLoop):
    """An event loop for coroutines that wait for each other only.

    ``quiet()`` is called when all of them wait; it gives whether it woke one. ``stuck()`` is called
    when it did not and no timer is left. ``started(task)`` hears of every task. ``deadline``: the
    time.monotonic() after which ``late()`` is called between callbacks.
    """

    def __init__(
        self,
        quiet: Callable[[], bool],
        stuck: Callable[[], None],
        started: Callable[[asyncio.Task[Any]], None],
        deadline: float | None,
    ) -> None:
        super().__init__()
        self._selector = self  # the base class asks its selector; select() below is the answer
        self._quiet, self._stuck, self._started = quiet, stuck, started
        self._deadline = deadline
        self._jumped = 0.0
        self._woken = threading.Event()
        self._turns = 0

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
        elif self._default_executor is not None:  # type: ignore[attr-defined]
            self._woken.wait(0.05 if timeout is None else min(timeout, 0.05))  # a thread may still answer
            self._woken.clear()
        elif timeout is not None:
            self._jumped += timeout
        else:
            self._stuck()
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Nothing ever comes from outside."""

    def _write_to_self(self) -> None:
        self._woken.set()  # call_soon_threadsafe: a thread has an answer


@contextmanager
def host_aside() -> Iterator[None]:
    """Step a running loop and its task aside, so that another loop can turn inside; restore them after."""
    host = events._get_running_loop()
    if host is None:
        yield
        return
    task = asyncio.current_task(host)
    if task is not None:
        asyncio.tasks._leave_task(host, task)
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(host)
        if task is not None:
            asyncio.tasks._enter_task(host, task)
