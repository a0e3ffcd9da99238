"""The private details of asyncio that this project needs. No other module touches one.

asyncio has no public way to give a loop another clock, to run one loop inside another, or to ask what a task waits
for. What is needed here is read without a default: an AttributeError says so at once where a Python no longer has it.

It is the same in Python 3.11.7, 3.12.1, 3.13.0, 3.14.10 and 3.15.2. `tests/test_asyncio_private.py`, which has a test
for each name, says whether it is in a new one.
"""

import asyncio
import selectors
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from typing import Any


class SelectorlessLoop(asyncio.BaseEventLoop):
    """An event loop that waits for nothing outside the process: it is its own selector.

    Needs what ``BaseEventLoop`` asks of its subclasses since 3.4 and documents nowhere, tried with 3.11 to 3.15:
    ``_selector``, an object whose ``select(timeout)`` it calls once a turn; ``_process_events``, which is handed what
    ``select`` has returned; and ``_write_to_self``, which ``call_soon_threadsafe`` calls to wake the loop. Also
    ``_run_once``, a round of callbacks, ``_ready`` and ``_scheduled``, what is due now and later, ``_closed``, and the
    ``_callback``, ``_args``, ``_context`` and ``_cancelled`` of a Handle: here a callback is noted and run without the
    calls that asyncio makes for debugging and for other threads, which were a third of what asyncio takes of a run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = self

    def close(self) -> None:
        """Close the loop, which then is no selector of its own any more: no circle is left to be collected."""
        super().close()
        self._selector = None  # type: ignore[assignment]

    def select(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return an empty list, at once or after a wait. The loop calls it once for every round of callbacks.
        ``timeout``: 0 or less where callbacks are due, the seconds until the next timer where there is one, or None."""
        raise NotImplementedError

    def woken(self) -> None:
        """React to a callback that another thread has just added; it is called in that thread."""

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if not ready or self._scheduled:  # type: ignore[attr-defined]
            super()._run_once()  # type: ignore[misc]
            return
        self._process_events(self.select(0))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": f"Exception in {handle}", "exception": error})

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Note a callback that is due at once."""
        if self._closed or self.get_debug():  # type: ignore[attr-defined]
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _process_events(self, event_list: list[tuple[selectors.SelectorKey, int]]) -> None:
        pass  # nothing ever comes from outside

    def _write_to_self(self) -> None:
        self.woken()


def default_executor(loop: asyncio.BaseEventLoop) -> Executor | None:
    """Return the threads that ``asyncio.to_thread`` has started on this loop, or None as long as it has started none.
    Needs ``BaseEventLoop._default_executor``, tried with 3.11 to 3.15: a loop's executor can be set, not read."""
    return loop._default_executor  # type: ignore[attr-defined, no-any-return]


@contextmanager
def host_aside() -> Iterator[None]:
    """Suspend the running event loop and its task inside the block, so that another loop can run there.

    Needs ``_set_running_loop``, as asyncio refuses to run a loop inside another, and ``_leave_task`` and
    ``_enter_task``, which asyncio documents for those who extend it, as from 3.14 on a thread has one current task, and
    no longer one for each loop. Tried with 3.11 to 3.15; the task leaves before its loop, as 3.14 demands.
    """
    try:
        host = asyncio.get_running_loop()
    except RuntimeError:
        yield
        return
    task = asyncio.current_task(host)
    if task is not None:
        asyncio.tasks._leave_task(host, task)
    asyncio.events._set_running_loop(None)
    try:
        yield
    finally:
        asyncio.events._set_running_loop(host)
        if task is not None:
            asyncio.tasks._enter_task(host, task)


def ready_callbacks(loop: asyncio.AbstractEventLoop) -> list[Callable[..., object] | None] | None:
    """Return the callbacks that are due on a loop, without the one that runs now, and None for a cancelled one. Needs
    ``BaseEventLoop._ready`` and ``Handle._callback``, tried with 3.11 to 3.15. Return None for loops of another make,
    such as uvloop's, which have neither."""
    if not isinstance(loop, asyncio.BaseEventLoop):
        return None
    # A list at once: the queue may grow from another thread while Python code looks at it.
    return [handle._callback for handle in list(loop._ready)]  # type: ignore[attr-defined]


def waited_for(task: asyncio.Task[object]) -> asyncio.Future[object] | None:
    """Return the future or task that a task waits for at this moment, or None if it can go on or has ended. Needs
    ``Task._fut_waiter``, tried with 3.11 to 3.15: the public ``asyncio.capture_call_graph`` of 3.14 looks the other
    way, from a future to those who wait, and does not see through ``asyncio.gather`` of calls in flight."""
    return task._fut_waiter  # type: ignore[attr-defined, no-any-return]


def gathered(future: object) -> Sequence[Any]:
    """Return what ``asyncio.gather`` waits for, if this is the future that it has returned, else nothing. Needs
    ``tasks._GatheringFuture`` and its ``_children``, tried with 3.11 to 3.15."""
    return future._children if isinstance(future, asyncio.tasks._GatheringFuture) else ()  # type: ignore[attr-defined]


def failed_unasked(task: asyncio.Task[object]) -> bool:
    """Return whether a task has failed and nobody has asked for its error by ``await``, ``result`` or ``exception``.
    Needs ``Future._log_traceback``, tried with 3.11 to 3.15: what asyncio itself goes by when it prints "Task exception
    was never retrieved". A Task class of our own would not be there for tasks of another task factory."""
    return task._log_traceback
