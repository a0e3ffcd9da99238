"""Finds out when every coroutine waits under a loop that is not ours: the plain form with ``asyncio.gather``.

``run`` turns a loop of its own, which knows exactly. Under another loop the simulator decides what ends next, or that
nobody can ever go on, when the loop's queue of ready callbacks is empty and no task that holds a Model of this machine
can go on by itself.
"""

import asyncio
from collections.abc import Iterator
from types import CoroutineType, FrameType
from typing import Any

from ..basics.asyncio_private import gathered, ready_callbacks, waited_for
from ..machine.interface import AnySimulator

PATIENCE = 0.005  # seconds between looks while a rank waits for something outside the machine


class Watch:
    """Watches the calls of one machine that are waited for. It does nothing as long as there are none."""

    def __init__(self, simulator: AnySimulator) -> None:
        self.simulator = simulator
        self.waiting: dict[asyncio.Future[None], Any] = {}  # calls (``calls.Call``), by what their waiters block on
        self.looking = False
        self.quiet_looks = 0

    def blocked(self, call: Any, future: asyncio.Future[None]) -> None:
        """Note that a coroutine waits for a call."""
        if future.done():
            return
        self.waiting[future] = call
        self.quiet_looks = 0
        if not self.looking:
            self.looking = True
            future.get_loop().call_soon(self._look, future.get_loop())

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waiting = {future: call for future, call in self.waiting.items() if not future.done()}
        if not self.waiting:
            self.looking = False
        elif self._others_ready(loop):
            loop.call_soon(self._look, loop)
        elif self._someone_may_go_on(loop):
            loop.call_later(PATIENCE, self._look, loop)
        elif self.simulator.decide_next():
            self.quiet_looks = 0
            loop.call_soon(self._look, loop)
        else:
            self.looking = False
            self._report_deadlock()

    def _others_ready(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether callbacks are due besides this one."""
        ready = ready_callbacks(loop)
        if ready is not None:  # two machines that look at each other looking would look for ever
            return any(getattr(callback, "__func__", None) is not Watch._look for callback in ready)
        # A loop that does not tell (uvloop): three turns without a new wait are taken for quiet.
        self.quiet_looks += 1
        return self.quiet_looks % 4 != 0

    def _someone_may_go_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether a task that holds a Model of this machine waits for none of its calls."""
        free = [task for task in asyncio.all_tasks(loop) if not self._stuck(task)]
        models = [value for task in free for value in _locals_of(task) if type(value).__name__ == "Model"]
        return any(getattr(getattr(model, "dist", None), "_simulator", None) is self.simulator for model in models)

    def _stuck(self, waited: Any) -> bool:
        """Return whether a task or future waits, through whatever it waits for, for a call of this machine."""
        while isinstance(waited, asyncio.Task):
            waited = waited_for(waited)
        if waited is None:
            return False
        if waited in self.waiting:
            return True
        pending = [child for child in gathered(waited) if not child.done()]
        return any(child in self.waiting.values() or self._stuck(child) for child in pending)

    def _report_deadlock(self) -> None:
        lines = {call._caller.rank: call.line() for call in self.waiting.values()}
        for future in list(self.waiting):
            if not future.done():
                future.set_exception(self.simulator.deadlock(lines))
        self.waiting.clear()


def _locals_of(task: asyncio.Task[object]) -> Iterator[object]:
    """Yield the values of the local variables of a task's coroutines, outermost first."""
    coroutine: Any = task.get_coro()
    while isinstance(coroutine, CoroutineType):
        frame: FrameType | None = coroutine.cr_frame
        if frame is not None:
            yield from frame.f_locals.values()
        coroutine = coroutine.cr_await
