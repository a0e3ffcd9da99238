"""A new Python that has no longer what lib.basics.asyncio_private needs, or has it with another meaning, fails here."""

import asyncio
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from lib.basics.asyncio_private import (
    SelectorlessLoop,
    default_executor,
    failed_unasked,
    gathered,
    host_aside,
    ready_callbacks,
    waited_for,
)

ROOT = Path(__file__).resolve().parent.parent

eager = pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks that start at once came with Python 3.12")


# -- the loop: _selector, _process_events, _write_to_self, _default_executor, _scheduled --------------------------


class Asked(SelectorlessLoop):
    """Notes what it is asked; its clock stands still but for what it is told to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float | None] = []
        self.now = 0.0
        self.wakes = threading.Event()

    def time(self) -> float:
        return self.now

    def select(self, timeout: float | None) -> list[Any]:
        self.asked.append(timeout)
        if timeout is None:
            assert self.wakes.wait(60), "nobody has woken the loop"
            self.wakes.clear()
        else:
            self.now += timeout
        return []

    def woken(self) -> None:
        self.wakes.set()


@pytest.fixture
def loop() -> Iterator[Asked]:
    made = Asked()
    yield made
    made.close()


def test_a_loop_asks_itself_and_not_a_selector_what_happens(loop: Asked) -> None:
    async def waits() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(7)
        return "done"

    assert loop.run_until_complete(waits()) == "done"
    assert [asked for asked in loop.asked if asked] == [7]
    assert loop.asked[0] == 0, "a callback was due"
    assert loop.now == 7


def test_a_loop_where_all_wait_is_asked_without_a_time_and_a_thread_wakes_it(loop: Asked) -> None:
    future = loop.create_future()
    thread = threading.Timer(0.05, lambda: loop.call_soon_threadsafe(future.set_result, "from a thread"))
    thread.start()
    assert loop.run_until_complete(future) == "from a thread"
    assert None in loop.asked
    thread.join()


def test_an_executor_is_there_once_a_thread_was_asked_for(loop: Asked) -> None:
    async def threads() -> tuple[object, object, object]:
        before = default_executor(loop)
        return before, await asyncio.to_thread(threading.get_ident), default_executor(loop)

    before, thread, after = loop.run_until_complete(threads())
    assert before is None
    assert thread != threading.get_ident()
    assert after is not None
    after.shutdown()  # type: ignore[attr-defined]


# -- a loop inside another: _set_running_loop, _enter_task, _leave_task --------------------------------------------


def running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def test_without_a_running_loop_nothing_is_set_aside() -> None:
    with host_aside():
        assert running() is None
    assert running() is None


def test_a_loop_turns_inside_another_and_both_know_their_tasks() -> None:
    async def inner(name: str) -> str:
        task = asyncio.current_task()
        assert task is not None
        async with asyncio.TaskGroup() as group:
            told = group.create_task(asyncio.wait_for(asyncio.sleep(0, name), 60))
        assert asyncio.current_task() is task
        return told.result()

    async def outer() -> list[str]:
        host, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with host_aside():
            assert running() is None
            assert asyncio.current_task(host) is None
            one = asyncio.run(inner("one"))
            own = Asked()
            two = own.run_until_complete(inner("two"))
            own.close()
            assert running() is None
        assert running() is host
        assert asyncio.current_task() is task
        assert asyncio.all_tasks() == {task}
        return [one, two, await inner("three")]

    assert asyncio.run(outer()) == ["one", "two", "three"]


def test_loop_and_task_are_back_after_an_error() -> None:
    async def outer() -> bool:
        host, task = asyncio.get_running_loop(), asyncio.current_task()
        with pytest.raises(ZeroDivisionError), host_aside():
            raise ZeroDivisionError
        return running() is host and asyncio.current_task() is task

    assert asyncio.run(outer())


def test_a_loop_is_set_aside_from_a_callback_which_is_no_task() -> None:
    async def outer() -> str:
        host = asyncio.get_running_loop()
        told: asyncio.Future[str] = host.create_future()

        def callback() -> None:
            assert asyncio.current_task() is None
            with host_aside():
                told.set_result(asyncio.run(asyncio.sleep(0, "from inside")))
            assert running() is host

        host.call_soon(callback)
        return await told

    assert asyncio.run(outer()) == "from inside"


@eager
def test_a_loop_turns_inside_a_task_that_starts_at_once() -> None:
    async def inner() -> object:
        with host_aside():
            told = asyncio.run(asyncio.sleep(0, "told"))
        return told, asyncio.current_task()

    async def outer() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        task, mine = asyncio.create_task(inner()), asyncio.current_task()
        assert asyncio.current_task() is mine
        assert await task == ("told", task)

    asyncio.run(outer())


# -- what is due: _ready, Handle._callback -------------------------------------------------------------------------


def test_callbacks_that_are_due_are_told_as_they_were_given() -> None:
    class Owner:
        def method(self) -> None:
            pass

    async def look() -> None:
        loop, owner = asyncio.get_running_loop(), Owner()
        assert ready_callbacks(loop) == []
        loop.call_soon(owner.method)
        loop.call_soon_threadsafe(print)
        loop.call_later(3600, repr)
        loop.call_soon(repr).cancel()
        (method, other, canceled) = ready_callbacks(loop) or ()
        assert method is not None
        assert method.__func__ is Owner.method  # type: ignore[attr-defined]
        assert other is print and canceled is None

    asyncio.run(look())
    assert ready_callbacks(asyncio.AbstractEventLoop()) is None, "one of another make does not tell"


def test_a_task_that_can_go_on_is_due_and_one_that_waits_is_not() -> None:
    async def look() -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        task = asyncio.create_task(wait_for(future))
        assert len(ready_callbacks(loop) or ()) == 1, "it has not started"
        await asyncio.sleep(0)
        assert ready_callbacks(loop) == []
        future.set_result(None)
        assert len(ready_callbacks(loop) or ()) == 1, "it can go on"
        await task

    asyncio.run(look())


# -- who waits for whom: Task._fut_waiter, _GatheringFuture._children ----------------------------------------------


async def wait_for(one: Awaitable[Any]) -> Any:
    return await one


def test_a_task_waits_for_the_future_that_its_innermost_coroutine_awaits() -> None:
    async def look() -> None:
        future = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(wait_for(wait_for(wait_for(future))))
        behind = asyncio.create_task(wait_for(task))
        assert (waited_for(task), waited_for(behind)) == (None, None), "they have not started"
        await asyncio.sleep(0)
        assert waited_for(task) is future
        assert waited_for(behind) is task
        future.set_result("done")
        assert await behind == "done"
        assert (waited_for(task), waited_for(behind)) == (None, None), "they have ended"
        assert waited_for(running_task()) is None
        stopped = asyncio.create_task(wait_for(asyncio.get_running_loop().create_future()))
        await asyncio.sleep(0)
        stopped.cancel()
        await asyncio.wait([stopped])
        assert waited_for(stopped) is None, "it was canceled"

    asyncio.run(look())


def running_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


class Like:
    """A future that is none of asyncio's, as a call in flight is."""

    _asyncio_future_blocking = False

    def __init__(self) -> None:
        self.future = asyncio.get_running_loop().create_future()

    def __await__(self) -> Iterator[Any]:
        return self.future.__await__()

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Any = None) -> None:
        self.future.add_done_callback(lambda future: callback(self), context=context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.future, name)


def test_gather_tells_what_it_waits_for_whatever_that_is() -> None:
    async def look() -> None:
        future, like = asyncio.get_running_loop().create_future(), Like()
        task = asyncio.create_task(wait_for(future))
        inner = asyncio.gather(task, like)
        outer = asyncio.gather(inner, future, wait_for(future))
        assert list(gathered(inner)) == [task, like]
        first, second, third = gathered(outer)
        assert (first, second) == (inner, future)
        assert isinstance(third, asyncio.Task)
        waiting = asyncio.create_task(wait_for(outer))
        await asyncio.sleep(0)
        assert waited_for(waiting) is outer
        future.set_result(1)
        like.future.set_result(2)
        assert await waiting == [[1, 2], 1, 1]

    asyncio.run(look())


def test_other_futures_gather_nothing() -> None:
    async def look() -> None:
        task = asyncio.create_task(asyncio.sleep(0))
        for one in (None, asyncio.get_running_loop().create_future(), task, asyncio.shield(task), Like()):
            assert list(gathered(one)) == []
        await task

    asyncio.run(look())


# -- who has asked: Future._log_traceback --------------------------------------------------------------------------


async def fails() -> None:
    raise ZeroDivisionError


async def by_await(task: asyncio.Task[None]) -> None:
    with pytest.raises(ZeroDivisionError):
        await task


async def by_result(task: asyncio.Task[None]) -> None:
    with pytest.raises(ZeroDivisionError):
        task.result()


async def by_gather(task: asyncio.Task[None]) -> None:
    assert [type(one) for one in await asyncio.gather(task, return_exceptions=True)] == [ZeroDivisionError]


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("ask", [by_await, by_gather, by_result])
def test_who_asks_for_an_error_has_asked(ask: Callable[[Any], Coroutine[Any, Any, None]], ended: bool) -> None:
    async def look() -> None:
        task = asyncio.create_task(fails())
        assert not failed_unasked(task), "it has not failed yet"
        if ended or ask is by_result:
            await asyncio.wait([task])
            assert failed_unasked(task), "asyncio.wait asks for no result"
        await ask(task)
        assert not failed_unasked(task)

    asyncio.run(look())


@eager
def test_a_task_that_starts_at_once_waits_and_fails_as_others_do() -> None:
    async def look() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(asyncio.eager_task_factory)
        future = loop.create_future()
        task, failed = asyncio.create_task(wait_for(future)), asyncio.create_task(fails())
        assert waited_for(task) is future and failed_unasked(failed)
        future.set_result(None)
        await task
        await by_await(failed)
        assert not failed_unasked(failed) and not failed_unasked(task), "one has ended well"

    asyncio.run(look())


def test_what_is_missing_is_never_taken_for_no() -> None:
    for look in (failed_unasked, waited_for):
        with pytest.raises(AttributeError):
            look(object())  # type: ignore[arg-type]


# -- one module only -----------------------------------------------------------------------------------------------

OWNER = "lib/basics/asyncio_private.py"
OURS = {"_result", "_wait", "_asyncio_future_blocking"}
"""Names that stand for something of our own, and by chance for something of asyncio's; and one that it documents."""


def private_names_of_asyncio() -> set[str]:
    """What this Python's loops, futures, tasks and handles keep private, and the modules that make them."""
    loop = Asked()
    loop.close()
    classes = (asyncio.BaseEventLoop, asyncio.Future, asyncio.Task, asyncio.Handle, asyncio.TimerHandle)
    modules = (asyncio, asyncio.base_events, asyncio.events, asyncio.futures, asyncio.tasks)
    names = {*vars(loop)}.union(*map(dir, classes), *map(vars, modules))
    return {name for name in names if name.startswith("_") and not name.startswith("__")} - OURS


def used(text: str) -> set[str]:
    """Every private name that a text reads or sets as an attribute, defines, imports or spells out."""
    return {*re.findall(r"""(?:\.|    def |import |["'])(_(?!_)\w+)""", text)}


def test_no_other_module_touches_what_asyncio_keeps_private() -> None:
    forbidden = private_names_of_asyncio() | used((ROOT / OWNER).read_text(encoding="utf-8")) - OURS
    files = [path for package in ("lib", "drawing") for path in (ROOT / package).rglob("*.py")]
    touched = {path.relative_to(ROOT).as_posix(): used(path.read_text(encoding="utf-8")) & forbidden for path in files}
    assert touched.pop(OWNER)
    assert {path: names for path, names in touched.items() if names} == {}


@pytest.mark.parametrize(
    "code",
    [
        "ready = loop._ready",
        "getattr(task, '_log_traceback', False)",
        "from asyncio.events import _set_running_loop",
        "class Loop:\n    def _write_to_self(self):\n        pass",
    ],
)
def test_these_uses_are_seen(code: str) -> None:
    assert used(code) & private_names_of_asyncio()


def test_rounds_of_callbacks_with_and_without_timers_run_in_order(loop: Asked) -> None:
    """Ours, where nothing is due later, and the base class's: in order, cancelled ones not, errors reported."""
    seen: list[str] = []
    reported: list[object] = []
    loop.set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    for timer in (None, loop.call_later(1000, seen.append, "never")):
        seen.clear()
        loop.call_soon(seen.append, "first")
        loop.call_soon(seen.append, "cancelled").cancel()
        loop.call_soon(lambda: 1 // 0)
        loop.call_soon(lambda: loop.call_soon(seen.append, "of the next round"))
        loop.call_soon(seen.append, "last")
        loop._run_once()
        assert seen == ["first", "last"]
        loop._run_once()
        assert seen == ["first", "last", "of the next round"]
        if timer is not None:
            timer.cancel()
    assert [type(error) for error in reported] == [ZeroDivisionError] * 2
