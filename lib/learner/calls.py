"""A call that has started: a collective, a send or a receive on its way, to be awaited now or later.

asyncio takes it for a Future, so ``gather``, ``wait``, ``wait_for`` and ``ensure_future`` work with it
as it is. The rank's clock moves to its end when its result is taken.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

from ..basics.errors import PuzzleError, line_at, show_call, show_line
from ..machine.interface import AnySimulator, CallHandle, RankHandle, Token
from .tensors import TENSORS, of_token
from .watch import Watch

_PENDING = object()


class Caller(NamedTuple):
    """The rank that makes a call, and who decides for it."""

    rank: int
    simulator: AnySimulator
    handle: RankHandle
    watch: Watch | None  # who has to know that a coroutine waits; None where the loop knows

    def share(self) -> None:
        """Tell the simulator that several coroutines may run in this rank from now on."""
        self.simulator.share(self.handle, running_task)


def running_task() -> object:
    """Return the task that is running, or None in plain code and in callbacks."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class Call:
    """A call in flight. ``await`` gives its result; awaiting again gives the same result."""

    __slots__ = ("_caller", "_handle", "_future", "_result", "_code", "_at")
    _asyncio_future_blocking = False  # what asyncio.isfuture looks for

    def __init__(self, caller: Caller, handle: CallHandle, frame: FrameType) -> None:
        self._caller, self._handle = caller, handle
        self._future: asyncio.Future[None] | None = None
        self._result: Any = _PENDING
        self._code, self._at = frame.f_code, frame.f_lasti  # its line costs more, and is hardly ever asked for

    def __await__(self) -> Generator[Any, None, Any]:
        if self._result is not _PENDING:
            return self._result
        if not self._caller.simulator.wait(self._handle, self._wake):
            yield from self._waiting()
        return self._take()

    def _waiting(self) -> asyncio.Future[None]:
        """Return the future on which whoever waits for the call blocks."""
        future = self._future
        if future is None or future.cancelled():  # cancelling a waiter does not withdraw the call
            future = self._future = asyncio.Future(loop=asyncio.get_running_loop())
        if self._caller.watch is not None:
            self._caller.watch.blocked(self, future)
        return future

    def _wake(self) -> None:
        """Let whoever waits go on: the call can be fetched now."""
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    def _take(self) -> Any:
        """Return the result, which is fetched when it is first asked for."""
        if self._result is _PENDING:
            try:
                result = self._caller.simulator.fetch(self._handle)
            except PuzzleError as error:
                error.line = error.line or self.line()
                raise
            if isinstance(result, Token):
                self._result = of_token(result)
            else:
                self._result = [*map(of_token, result)] if isinstance(result, list) else result
            if self._future is not None:
                self._wake()  # others may wait for the same call
        return self._result

    def line(self) -> str:
        """Return the learner's line that started the call."""
        return show_line(self._code, line_at(self._code, self._at))

    # -- what asyncio asks of a Future ----------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that is running."""
        return asyncio.get_running_loop()

    def done(self) -> bool:
        """Return whether the result can be taken without waiting."""
        return self._result is not _PENDING or (self._future is not None and self._future.done())

    def cancelled(self) -> bool:
        """Return whether the waiting was cancelled (the call itself goes on)."""
        return self._result is _PENDING and self._future is not None and self._future.cancelled()

    def cancel(self, msg: object = None) -> bool:
        """End the waiting, and return whether anybody waited. The call goes on, and can be awaited again."""
        return self._future is not None and self._future.cancel()

    def result(self) -> Any:
        """Return the result. Raise InvalidStateError if it is not there yet."""
        if self._result is _PENDING:
            if self._future is None:
                raise asyncio.InvalidStateError("the call has not ended: await it")
            self._future.result()
        return self._take()

    def exception(self) -> BaseException | None:
        """Return the error that ended the waiting, if any."""
        return None if self._result is not _PENDING or self._future is None else self._future.exception()

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Any = None) -> None:
        """Call ``callback`` when the result can be taken. asyncio.gather and wait use this."""
        self._caller.share()
        if self._result is not _PENDING:
            asyncio.get_running_loop().call_soon(callback, self, context=context)
            return
        ready = self._caller.simulator.wait(self._handle, self._wake)
        self._waiting().add_done_callback(_Forward(self, callback), context=context)
        if ready:
            self._wake()

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Remove a callback. Return how many were removed."""
        return 0 if self._future is None else self._future.remove_done_callback(_Forward(self, callback))

    def set_name(self, name: object) -> None:
        """Do nothing: asyncio names its tasks, and calls need no names."""

    def __repr__(self) -> str:
        state = "in flight" if self._result is _PENDING else "taken"
        handle = self._handle
        return f"<{show_call(handle.kind, handle.layers or handle.layer)} of rank {self._caller.rank}, {state}>"

    def __add__(self, other: object = None) -> Any:
        raise PuzzleError("forgot_await", what=f"{self!r} is no tensor yet")

    __radd__ = __getitem__ = __iter__ = __add__


class Exchange(NamedTuple):
    """The calls of an exchange in flight. ``await`` gives a list of what it has received."""

    sends: Sequence[Call]
    receives: Sequence[Call]

    def __await__(self) -> Generator[Any, None, list[Any]]:
        for call in (*self.sends, *self.receives):
            yield from call.__await__()
        return [call.result() for call in self.receives]


class AwaitMissing(PuzzleError, AttributeError):
    """Raised where a call is asked for an attribute of its tensor. An AttributeError too, as hasattr needs it."""

    sticks = False  # hasattr asks, too
    __str__ = PuzzleError.__str__


def _missing(name: str) -> property:
    """Return a property that raises AwaitMissing, for an attribute that tensors have."""

    def refuse(call: Call) -> None:
        raise AwaitMissing("forgot_await", what=f"{call!r} has no {name}")

    return property(refuse)


# One by one: a class with __getattr__ is slower in all its attributes.
for _name in {name for kind in TENSORS for name in dir(kind) if not name.startswith("_")}:
    setattr(Call, _name, _missing(_name))


@dataclass(frozen=True, slots=True)
class _Forward:
    """A done-callback that is given the call in place of the future inside it."""

    call: Call
    callback: Callable[[Any], object]

    def __call__(self, future: object) -> None:
        self.callback(self.call)
