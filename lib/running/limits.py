"""Limits of a run's wall-clock time, also for code that never awaits and that catches every exception."""

import asyncio
import gc
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import uniform
from types import CoroutineType, FrameType
from typing import Any, NoReturn

from ..basics.collector import collector_off as collector_off
from ..basics.errors import is_learners, show_line

TIMEOUT, A_LAYER = 10.0, 0.001
"""The default limit of a run in seconds, and the additional seconds for each layer of a rank or a micro-batch, ten
times what a slow machine needs."""
OFTEN = 0.2  # seconds between two alarms once time is up
SOON = (1e-6, 3e-5)  # seconds until the next one, at random, where one was caught again and again
_LIB = str(Path(__file__).parent.parent)
UNFINISHED = 5  # alarms that wait until code of ours has done what it was called for


def room(ranks: int, layers: int, batches: int) -> float:
    """Return the seconds that a run of this size may take in addition to its timeout."""
    return A_LAYER * layers * (ranks + batches)


def limit(timeout: float | None, ranks: int, layers: int, batches: int) -> float | None:
    """Return the seconds that a run of this size may take: as many as were asked for, or the default, which is more for
    a large run."""
    nothing_said = timeout is TIMEOUT  # the very object
    return TIMEOUT + room(ranks, layers, batches) if nothing_said else timeout


class TimeIsUp(BaseException):
    """Raised in the learner's code by the alarm. It is no Exception, so that ``except Exception`` does not catch it."""


@contextmanager
def alarm(timeout: float | None) -> Iterator[list[str]]:
    """Interrupt the block after ``timeout`` seconds, even in a loop that never awaits. This needs timers and the main
    thread.

    Code of ours that the learner's has called is interrupted at the learner's next line: half of what it does would be
    a log that nobody can read. A loop in C, such as ``map``, may never come to a line: it is interrupted all the same,
    after a second.

    The yielded list holds the interrupted line once time is up. The list decides, not the exception, which the event
    loop or a learner's code may catch.
    """
    bell = _Bell(sys._getframe(2))
    with ExitStack() as undo:
        if timeout is not None and has_timers():
            with suppress(ValueError, OSError):
                before, tracing = signal.signal(signal.SIGALRM, bell.ring), sys.gettrace()
                timer = signal.setitimer(signal.ITIMER_REAL, timeout, OFTEN)  # again and again: one may be caught
                undo.callback(sys.settrace, tracing)
                undo.callback(signal.signal, signal.SIGALRM, before)
                undo.callback(signal.setitimer, signal.ITIMER_REAL, *timer)
        yield bell.late


class _Bell:
    """What rings when time is up, again and again, until the learner's code, which ``caller`` has called, has ended."""

    def __init__(self, caller: FrameType) -> None:
        self.caller, self.late = caller, list[str]()
        self.struck, self.left = False, UNFINISHED

    def ring(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the learner's line that runs: now, or, where it has called code of ours, the next one."""
        ours = False
        while frame is not None and frame is not self.caller and not is_learners(frame.f_code):
            ours = ours or frame.f_code.co_filename.startswith(_LIB)
            frame = frame.f_back
        if frame is None or frame is self.caller:
            # Our own code comes to an end, and must not be interrupted while it cleans up.
            self.late[:] = self.late or [""]
            return
        self.late[:] = self.late or [show_line(frame.f_code, frame.f_lineno)]
        unfinished = ours and self.left > 0
        if unfinished or self.struck:
            # Where it was caught, and is raised at the next line as well, it also reaches lines outside the `try`.
            frame.f_trace = self.again
            with suppress(RuntimeError):  # this very line may have been interrupted
                sys.settrace(self.again)
        if unfinished:
            self.left -= 1
            return
        self.struck = True
        strike(frame, (OFTEN, OFTEN))

    def again(self, frame: FrameType, event: str, argument: object) -> Any:
        """Interrupt the learner's next line (see ``sys.settrace``)."""
        if event == "line" and is_learners(frame.f_code):
            # Python ends a trace that raises. Where one `try` is inside another, the next alarm has to come before the
            # outer loop begins anew, that is within a microsecond or so: at some moment or other it does.
            soon, self.struck = uniform(*SOON) if self.struck else OFTEN, True
            strike(frame, (soon, OFTEN))
        return self.again


def strike(frame: FrameType, next_alarms: tuple[float, float]) -> NoReturn:
    """Raise TimeIsUp in a frame, and let the timer ring again."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # a long chain takes long
    unchain([frame])
    signal.setitimer(signal.ITIMER_REAL, *next_alarms)
    raise TimeIsUp


def has_timers() -> bool:
    """Return whether signals of a timer come here: on this platform, in the main thread."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds, where there are timers and this is the main thread."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    with ExitStack() as undo:
        if has_timers():
            undo.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, ring))
            timer = signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
            undo.callback(signal.setitimer, signal.ITIMER_REAL, *timer)
        yield


def waiting(coroutine: object) -> list[Any]:
    """Return a coroutine and the awaitables that it waits for, the innermost last."""
    found = []
    while coroutine is not None:
        found.append(coroutine)
        coroutine = getattr(coroutine, "cr_await", None)
    return found


def learners_frames(coroutine: object) -> list[FrameType]:
    """Return the learner's frames in which a coroutine waits, the innermost last."""
    frames = [getattr(one, "cr_frame", None) for one in waiting(coroutine)]
    return [frame for frame in frames if frame is not None and is_learners(frame.f_code)]


def end_for_good(task: asyncio.Task[object]) -> None:
    """Close a coroutine that has caught every cancellation, so that nothing of it is left for later runs. It gets an
    error at the first line of the learner's that no ``try`` guards. From Python 3.13 on, the line that awaits counts
    once more, inside its ``try``."""
    tracing = sys.gettrace()
    for coroutine in reversed(waiting(task.get_coro())):
        for lines in range(50):
            if getattr(coroutine, "cr_frame", None) is None:
                break
            trace = _raise_after(lines)
            for frame in learners_frames(coroutine):
                frame.f_trace = trace
            try:
                sys.settrace(trace)
                coroutine.close()
            except BaseException:  # whatever it raises now, the verdict is known
                pass
            finally:
                sys.settrace(tracing)


DEEP = 500  # so many coroutines, each within the one before, are more than anybody means


def unchain(frames: Iterable[FrameType]) -> None:
    """Close coroutines in these frames that hold one another in a long chain, as those of a loop `x = f(x)` without its
    await do. Python frees each from within the one that holds it, and that ends the process where they are many."""
    for frame in frames:
        for first in _not_begun(frame.f_locals.values()):
            depth, deeper = 1, _held_by(first)
            while deeper and depth < DEEP:
                depth, deeper = depth + 1, _held_by(deeper[0])
            chain = [first] if deeper else []
            while chain:
                with suppress(KeyboardInterrupt):  # who presses the stop button again waits for this
                    while chain:
                        one, chain[-1:] = chain[-1], _held_by(chain[-1])
                        one.close()  # what it holds is let go, and not freed yet


def _not_begun(values: Iterable[object]) -> "list[CoroutineType[Any, Any, Any]]":
    """Return the coroutines among these that nobody has awaited."""
    coroutines = (one for one in values if isinstance(one, CoroutineType))
    return [one for one in coroutines if inspect.getcoroutinestate(one) == inspect.CORO_CREATED]


def _held_by(coroutine: "CoroutineType[Any, Any, Any]") -> "list[CoroutineType[Any, Any, Any]]":
    return _not_begun(gc.get_referents(coroutine))


def _raise_after(lines: int) -> Callable[[FrameType, str, object], Any]:
    """Return a trace function that raises TimeIsUp after so many lines of the learner's."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if event == "line" and is_learners(frame.f_code):
            if lines == 0:
                raise TimeIsUp
            lines -= 1
        return trace

    return trace
