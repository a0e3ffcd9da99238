"""The execution of a run: every rank's function on an event loop of our own, from start to end."""

import asyncio
import inspect
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from contextvars import ContextVar
from traceback import walk_tb
from typing import Any

from ..basics.asyncio_private import default_executor, failed_unasked, gathered, host_aside, waited_for
from ..basics.errors import NOWHERE, Deadlock, OutOfTime, Place, PuzzleError, Spot, is_learners, show_line, witnessed
from ..learner.model import Model
from ..record.table import meant
from .limits import TimeIsUp, alarm, collector_off, end_for_good, learners_frames, unchain, waiting
from .loop import QuietLoop

_rank: ContextVar[Model | None] = ContextVar("rank", default=None)

MANY = 64  # with more ranks a run may take long because it is large
TASK = ", a task that waits at "
"""What stands between the lines at which the tasks of a rank wait, first that of its function."""
LAST_TURNS = 200
"""Turns of the loop for the other ranks after one has failed, so that those with the same mistake make it, too."""


def execute(
    fn: Callable[[Model], object], models: Sequence[Model], timeout: float | None, order: Sequence[int] | None = None
) -> None:
    """Run ``fn`` on every rank to its end. Raise the PuzzleError of the earliest tick and lowest rank, even one that
    was caught. ``order``: the order in which the ranks are started, which changes no figure."""
    errors, failed = CollectedErrors(), list[PuzzleError]()
    token, outer = witnessed.set(errors), _rank.set(None)  # a run inside a rank is a run of its own
    try:
        labelled = None if sys.stdout is None else Labelled()  # without a stdout, print does nothing
        with collector_off(), alarm(timeout) as late, host_aside(), redirect_stdout(labelled):
            Execution(fn, models, timeout, late).to_its_end(order or range(len(models)))
    except PuzzleError as error:
        failed = [error]
    finally:
        witnessed.reset(token)
        _rank.reset(outer)
    errors.place()
    if errors or failed:
        first = cause([*errors, *failed])
        raise first.with_traceback(None) from (first.__cause__ if failed else None)


def left_over(models: Sequence[Model]) -> PuzzleError | None:
    """Return the error of a call that nobody has awaited, or a message that nobody has received, at the end of a run,
    with the line of that call."""
    error = models[0].dist._simulator.unfinished() if models else None
    if error is not None and error.entry is not None:
        model = next(model for model in models if model._rank == error.place.rank)
        error.line = str(model._line_of(error.entry) or "")
    return error


class CollectedErrors(list[PuzzleError]):
    """The errors raised in a run, and the ranks of those that do not name one."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[PuzzleError, int, float]] = []

    def append(self, error: PuzzleError) -> None:
        """Add a new error, whose place may be known only later."""
        super().append(error)
        model = _rank.get()
        if model is not None and error.place.rank is None:
            self.made.append((error, model._rank, model.time))

    def place(self) -> None:
        """Give the errors without a place a rank and a tick."""
        for error, rank, tick in self.made:
            place_at(error, rank, tick)


def place_at(error: PuzzleError, rank: int, tick: float) -> None:
    """Give an error a rank and a tick if it has neither."""
    place = getattr(error, "place", None)  # a learner's class of errors may have none
    if place is not None and place.rank is None and place.tick is None:
        error.place = place._replace(rank=rank, tick=tick)


def cause(errors: Sequence[PuzzleError]) -> PuzzleError:
    """Return the root cause of several errors: that of the earliest tick, then of the lowest rank, then the first. A
    deadlock comes after all others, and may have come of them."""

    def order(error: PuzzleError) -> tuple[bool, float, int, list[int]]:
        place = getattr(error, "place", NOWHERE)
        rank, numbers = -1 if place.rank is None else place.rank, re.findall(r"\d+", str(place.detail))
        return isinstance(error, Deadlock), place.tick or 0.0, rank, [*map(int, numbers)]

    return min(errors, key=order)


class Labelled:
    """A stdout that writes ``[rank 2, tick 3.3]`` before each line that a rank prints."""

    def __init__(self) -> None:
        outer = sys.stdout  # of another run, if a rank starts one: only the inner rank is named
        self.stream: Any = outer.stream if isinstance(outer, Labelled) else outer
        self.writer: Model | None = None
        self.fresh = True  # whether the next character begins a line

    def write(self, text: str) -> int:
        """Write the text, on a new line if the line before is another rank's."""
        model = _rank.get()
        if model is not None and text:
            if not self.fresh and model is not self.writer:
                self.stream.write("\n")
                self.fresh = True
            if self.fresh and not text.startswith("[rank "):
                self.stream.write(_label(model) + " ")
        if text:
            self.writer, self.fresh = model, text.endswith("\n")
        self.stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _label(model: Model) -> str:
    """Return what begins a line that a rank prints."""
    try:
        return f"[rank {model._rank}, {model.dist.cost.time_unit.at(f'{model.time:g}')}]"
    except PuzzleError:  # the run is over, and a task still prints
        return f"[rank {model._rank}]"


def name_of(fn: object) -> str:
    """Return the name of a function, of the function of a partial, or of the type of a callable object."""
    inner = getattr(fn, "func", fn)
    return str(getattr(inner, "__name__", type(fn).__name__))


class Execution:
    """A run of a function on all ranks: event loop, tasks, and its end."""

    def __init__(
        self, fn: Callable[[Model], object], models: Sequence[Model], timeout: float | None, late: list[str]
    ) -> None:
        self.fn, self.models, self.timeout, self.late = fn, models, timeout, late
        self.simulator = models[0]._simulator
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.started: dict[int, list[asyncio.Task[object]]] = {}  # by the ranks' own code, which may not await them
        self.finished: set[int] = set()
        self.raised: list[BaseException] = []  # one error of each failed rank
        self.over = False
        self.busy: Model | None = None  # the rank whose code ran when time was up
        deadline = None if timeout is None else time.monotonic() + timeout
        self.loop = QuietLoop(self._quiet, self._stuck, self._started, deadline)
        self.done: asyncio.Future[None] = self.loop.create_future()

    def to_its_end(self, order: Sequence[int]) -> None:
        """Start the ranks in this order and turn the loop until all have ended, or one has failed."""
        loop = self.loop
        loop.set_exception_handler(lambda loop, context: None)  # we report errors ourselves
        try:
            with suppress(TimeIsUp):
                loop.run_until_complete(self._all_ranks(order))
            for error in self.raised:
                if not isinstance(error, (PuzzleError, TimeIsUp)):
                    raise error  # such as KeyboardInterrupt
            if wrong := [error for error in self.raised if isinstance(error, PuzzleError)]:
                raise cause(wrong)
            if self.late or self.raised:
                limit = f"{self.timeout:.3g} second{'s' * (self.timeout != 1)}"
                where = Place(detail=name_of(self.fn))
                if self.busy is not None:
                    where = where._replace(rank=self.busy.rank)
                raise OutOfTime("out_of_time", where=where, line=self.late[0] if self.late else "", limit=limit)
        finally:
            self.over = True
            for task in asyncio.all_tasks(loop):
                end_for_good(task)
            if (executor := default_executor(loop)) is not None:
                executor.shutdown(wait=False, cancel_futures=True)
            loop.close()

    async def _all_ranks(self, order: Sequence[int]) -> None:
        for rank in order:
            self.tasks[rank] = self.loop.create_task(self._one_rank(self.models[rank]))
        await self.done
        pending = [task for task in asyncio.all_tasks(self.loop) if task is not asyncio.current_task()]
        for task in pending:
            task.cancel()
        for _ in range(50):  # a learner's code may catch a cancellation, but not all of them
            if all(task.done() for task in pending):
                break
            await asyncio.sleep(0)

    async def _one_rank(self, model: Model) -> None:
        _rank.set(model)
        try:
            result = self.fn(model)
            if inspect.isawaitable(result):
                await result
            while pending := [task for task in self.started.get(model._rank, ()) if not task.done()]:
                await _until_done(pending)
            for task in self.started.get(model._rank, ()):
                if failed_unasked(task):
                    task.result()
            self.simulator.finish(model._handle)
            self.finished.add(model._rank)
        except asyncio.CancelledError as error:
            if not self.done.done():
                self._fail(_cancelled(error, model))
        except BaseException as error:
            if isinstance(error, TimeIsUp):
                self.busy = self.busy or model
            elif isinstance(error, KeyboardInterrupt):
                unchain(frame for frame, _ in walk_tb(error.__traceback__))
            if not self.over:
                self._fail(_as_ours(error, model))
        if len(self.finished) == len(self.models) and not self.done.done():
            self.done.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self.over:
            return
        self.raised.append(error)
        if not isinstance(error, PuzzleError):
            self._end(0)
        elif len(self.raised) == 1:
            self._end(LAST_TURNS)

    def _end(self, turns: int) -> None:
        """End the run after so many turns of the loop."""
        if turns and len(self.raised) + len(self.finished) < len(self.models):
            self.loop.call_soon(self._end, turns - 1)
        elif not self.done.done():
            self.done.set_result(None)

    def _quiet(self) -> bool:
        return self.done.done() or self.simulator.decide_next()

    def _stuck(self) -> None:
        if self.done.done():
            return
        if self.loop._deadline is not None and time.monotonic() > self.loop._deadline:
            running = [rank for rank, task in sorted(self.tasks.items()) if not task.done() and goes_on(task)]
            if running:
                self.busy, self.late[:] = self.models[running[0]], [waiting_line(self.tasks[running[0]])]
            self._fail(TimeIsUp())
            return
        lines = {
            rank: where_it_waits(task, self.started.get(rank, ()))
            for rank, task in self.tasks.items()
            if not task.done()
        }
        self._fail(self.simulator.deadlock(lines, frozenset(self.finished)))

    def _started(self, task: asyncio.Task[object]) -> None:
        model = _rank.get()
        if model is not None:
            model._share()
            self.started.setdefault(model._rank, []).append(task)


def _as_ours(error: BaseException, model: Model) -> BaseException:
    """Return a learner's own error as a PuzzleError with its rank and line. Our errors stay as they are."""
    while isinstance(error, BaseExceptionGroup):  # what a TaskGroup makes of one error
        error = error.exceptions[0]
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
        error = error.__cause__  # what a coroutine makes of it, without a line
    if isinstance(error, PuzzleError):
        place_at(error, model._rank, model.time)
        if error.entry is not None and (made := model._line_of(error.entry)) is not None:
            error.line = str(made)
    if isinstance(error, (PuzzleError, KeyboardInterrupt, TimeIsUp)):
        return error
    lines = [(at.f_code, line) for at, line in walk_tb(error.__traceback__) if is_learners(at.f_code)]
    line = show_line(*lines[-1]) if lines else ""
    place = Place(model._rank, tick=model.time)
    if isinstance(error, AttributeError) and inspect.iscoroutine(error.obj):
        what = f"{error.obj.__name__}(...) has no {error.name} yet"
        ours = PuzzleError("forgot_await", where=place, line=line, what=what)
    else:
        near = meant(error.name or "", dir(model)) if isinstance(error, AttributeError) and error.obj is model else ""
        told = says(error) + f"; did you mean model.{near}?" * bool(near)
        ours = PuzzleError("raised", where=place, line=line, error=f"{type(error).__name__}{told}")
    ours.__cause__ = error
    return ours


async def _until_done(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait for the tasks that a function has left at work. One that it has cancelled, as a worker whose queue is empty,
    is no error."""
    try:
        await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        own = asyncio.current_task()
        if own is None or own.cancelling():
            raise


def _cancelled(error: BaseException, model: Model) -> PuzzleError:
    """Return the error of a function that ends with a cancellation which is its own."""
    lines = [(at.f_code, line) for at, line in walk_tb(error.__traceback__) if is_learners(at.f_code)]
    line = show_line(*lines[0]) if lines else ""
    return PuzzleError("cancelled", where=Place(model._rank), line=line)


def says(error: BaseException) -> str:
    """Return what an error of Python says, after a colon, and how to import a name of ours that is missing."""
    try:
        text = str(error)
    except Exception:
        return ", which does not say what it is"
    if type(error) is NameError and error.name in sys.modules[__name__.partition(".")[0]].__all__:
        text += f": write from lib import {error.name} above it"
    return f": {text}" if text else ""


def goes_on(task: asyncio.Task[object]) -> bool:
    """Return whether a task waits for nothing, or sleeps."""
    sleeps = any(getattr(one, "cr_code", None) is asyncio.sleep.__code__ for one in waiting(task.get_coro()))
    return sleeps or waited_for(task) is None


def waiting_line(task: asyncio.Task[object]) -> str:
    """Return the learner's innermost line at which a task waits, and that of the task for which it waits, if any."""
    frames = learners_frames(task.get_coro())
    line = show_line(frames[-1].f_code, frames[-1].f_lineno) if frames else ""
    other = waited_for(task)
    within = waiting_line(other) if isinstance(other, asyncio.Task) else ""
    return f"{line}{TASK}{within}" if line and within else line


def where_it_waits(task: asyncio.Task[object], started: Sequence[asyncio.Task[object]]) -> str:
    """Return the line at which a rank waits and, where it has started tasks, those at which each of these waits, if it
    is for a call."""
    line = waiting_line(task)
    text = line
    for one in started:
        within = waiting_line(one)
        if one.done() or not within or isinstance(waited_for(one), asyncio.Task) or gathered(waited_for(one)):
            continue
        if TASK + within not in text:
            text += TASK + within
    return line if text == line else _same_spot(line, text)


def _same_spot(spot: str, text: str) -> str:
    """Return another text of a line of the learner's code."""
    if not isinstance(spot, Spot):
        return text
    other = Spot(text)
    other.file, other.number = spot.file, spot.number
    return other
