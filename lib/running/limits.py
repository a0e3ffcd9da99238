"""Limits of a run: wall-clock time, also for code that never awaits and swallows what it is thrown."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ..basics.errors import is_learners, show_line


class TimeIsUp(BaseException):
    """Raised into the learner's code by the alarm; not an Exception, so that no handler swallows it."""


@contextmanager
def collector_off() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: with 38,000 events it cost a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def alarm(timeout: float | None) -> Iterator[list[str]]:
    """Interrupt even a loop that never awaits, where there are timers and this is the main thread.

    Gives a list that holds the interrupted line once time is up. The flag, not the exception, decides:
    an exception that strikes outside a task is swallowed by the loop, and one may be caught.
    """
    late: list[str] = []
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if timeout is None or not usable:
        yield late
        return

    caller, struck = sys._getframe(2), False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal struck
        while frame is not None and frame is not caller and not is_learners(frame.f_code):
            frame = frame.f_back
        if frame is None or frame is caller:
            late[:] = late or [""]  # our own code, which comes to an end, and is not to be struck while it clears up
            return
        if not struck:
            struck, late[:] = True, [show_line(frame.f_code, frame.f_lineno)]
        else:
            # It was swallowed. Raised at every line from now on, it also strikes outside the `try`.
            frame.f_trace = _raise_at_every_line
            sys.settrace(_raise_at_every_line)
        raise TimeIsUp

    try:
        before = signal.signal(signal.SIGALRM, ring)
        timer = signal.setitimer(signal.ITIMER_REAL, timeout, 0.2)  # again and again: one may be swallowed
    except (ValueError, OSError):
        yield late
        return
    tracing = sys.gettrace()
    try:
        yield late
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)
        sys.settrace(tracing)


def _raise_at_every_line(frame: FrameType, event: str, argument: object) -> Any:
    if event == "line" and is_learners(frame.f_code):
        raise TimeIsUp
    return _raise_at_every_line


def end_for_good(task: asyncio.Task[Any]) -> None:
    """Close a coroutine that has swallowed every cancellation, so that nothing of it is left for later runs."""
    coroutine: Any = task.get_coro()
    outer, tracing = coroutine, sys.gettrace()
    while coroutine is not None:
        frame: FrameType | None = getattr(coroutine, "cr_frame", None)
        if frame is not None and is_learners(frame.f_code):
            frame.f_trace = _raise_at_every_line
        coroutine = getattr(coroutine, "cr_await", None)
    sys.settrace(_raise_at_every_line)
    try:
        outer.close()
    except BaseException:  # whatever it says on its way out, the verdict is known
        pass
    finally:
        sys.settrace(tracing)
