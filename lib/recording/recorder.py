"""The simulator of a worker: it records each call before it carries it out.

A call is written first, and carried out as it was written, by a replay of its own. So what a learner sees is what the
grader's replay will see, and a question (the clock, the log, what is stored) is answered here and not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, partialmethod
from operator import attrgetter
from typing import Any, cast

from ..basics.errors import Deadlock, PuzzleError
from ..machine.cost import Shape
from ..machine.in_flight import InFlight
from ..machine.interface import AnySimulator, Simulator, Token
from ..machine.rank_state import RankState, TensorState
from ..machine.simulator import LocalSimulator, second_model
from ..record.operations import NO_OPTIONS, Options
from ..running.limits import TimeIsUp
from .replay import MOST, Replay
from .verbs import VERBS
from .wire import ProtocolError


class Recorded:
    """What records the calls of a tensor: shard, combine and add. ``carried_out_by``: the class that has its own."""

    __slots__ = ()
    carried_out_by: type[TensorState]
    rank: Any

    def _recorded(self, verb: str, *arguments: Any) -> TensorState:
        return self.rank.recorder.record(verb, self.rank, self, *arguments)  # type: ignore[no-any-return]

    shard: Any = partialmethod(_recorded, "shard")
    combine: Any = partialmethod(_recorded, "combine")
    add: Any = partialmethod(_recorded, "add")


class RecordedTensor(Recorded, TensorState):
    """A tensor whose calls are recorded."""

    __slots__ = ()
    carried_out_by = TensorState


class RecordedRank(RankState):
    """A rank whose tensors are recorded."""

    __slots__ = ("recorder",)
    tensor_type = RecordedTensor
    recorder: Recorder


class RecordedSimulator(LocalSimulator):
    """A simulator of such ranks."""

    rank_type = RecordedRank


def recorder_for(shape: Shape, layers: int, batches: int) -> Recorder:
    """Return a recorder of a run on a machine of this shape."""
    return Recorder(RecordedSimulator(shape, graded=True), layers, batches)


class Recorder(Replay):
    """The simulator that a learner's function runs beside (see ``machine.interface``), and what has been recorded."""

    methods_of = staticmethod(attrgetter("carried_out_by"))
    listed: Callable[[], list[list[Any]]] = list
    """Makes the list of the calls (see ``lines``)."""

    def __init__(self, simulator: LocalSimulator, layers: int, batches: int) -> None:
        super().__init__(simulator, layers, batches)
        for rank in self.ranks:
            cast(RecordedRank, rank).recorder = self
        self.recorded: list[list[Any]] = self.listed()
        self.failed: dict[int, PuzzleError] = {}  # by place among the calls
        self.inside = False  # whether a call is being carried out
        self.opened: set[int] = set()
        self.numbers: dict[object, int] = {}  # of tensors
        self.made_up: dict[object, TensorState] = {}  # what was entered for a tensor of no rank of this machine
        self.numbers_of_calls: dict[object, int] = {}
        self.coroutines: dict[object, int] = {}  # keeps the tasks alive, so that no two get the same number
        self.holders: dict[int, Callable[[], object]] = {}  # by rank: what names the coroutine that runs
        self.writes = {verb: [kind.write for kind in kinds] for verb, kinds in VERBS.items()}
        self.store = self._short("store", simulator.store, self.numbers)
        self.drop = self._short("drop", simulator.drop, self.numbers)
        self.short_wait = self._short("wait", self._wait, self.numbers_of_calls)
        self.short_fetch = self._short("fetch", self._fetch, self.numbers_of_calls)
        for verb in VERBS:
            if not hasattr(self, verb):
                setattr(self, verb, partial(self.record, verb))
        for question in vars(Simulator):  # what is left of its methods is asked, and not recorded
            if not question.startswith("_") and not hasattr(self, question):
                setattr(self, question, getattr(simulator, question))

    @property
    def as_simulator(self) -> AnySimulator:
        """This, for a learner's side that looks into no handle."""
        return cast(AnySimulator, self)

    def recording(self) -> dict[str, Any]:
        """Return what has been recorded, as ``Replay.play`` takes it."""
        return {"calls": self.recorded, "failed": [[place, str(one.line)] for place, one in self.failed.items()]}

    def record(self, verb: str, rank: RankState, *arguments: Any) -> Any:
        """Write a call down, carry it out, and return its result. Raise the PuzzleError of one that fails."""
        if self.inside:
            raise TimeIsUp  # it was raised while a call was carried out, and caught: the machine is half way in it
        coroutine = self._running(rank.rank) if self.holders else None
        writes = self.writes[verb]
        written: Sequence[Any]
        if len(arguments) == 1:  # most often
            [write], [argument] = writes, arguments
            written = (argument if write is None else write(self, argument),)
        else:
            both = zip(writes, arguments, strict=True)
            written = [argument if write is None else write(self, argument) for write, argument in both]
        if len(self.recorded) >= MOST:
            raise PuzzleError(f"more than {MOST:,} calls in one run")
        self.inside = True
        self.recorded.append(call := [verb, rank.rank, coroutine, *written])
        try:
            result = self.act(self.by_number[rank.rank], call)
        except BaseException as error:
            self._note(error)
            raise
        self.inside = False
        return result

    def _short(self, verb: str, act: Callable[..., Any], numbers: dict[object, int]) -> Callable[..., Any]:
        """Return ``record`` for a verb of one tensor or call, which is not read again from what is written: it is the
        same. Two of three calls are such, and a run takes a twelfth less. What is unusual is left to ``record``."""
        recorded, finished, holders, of_tensor = self.recorded, self.finished, self.holders, numbers is self.numbers

        def short(rank: RankState, thing: Any, *more: Any) -> Any:
            number = numbers.get(thing)
            if number is None or self.inside or rank.rank in finished or len(recorded) >= MOST:
                return self.record(verb, rank, thing, *more)
            self.coroutine = coroutine = self._running(rank.rank) if holders else None
            self.inside = True
            recorded.append([verb, rank.rank, coroutine, number, *more])
            try:
                if of_tensor:
                    self.count(thing.labels)
                result = act(rank, thing, *more)
                if result is not None and result.__class__ is not bool:
                    self._enter(result)
            except BaseException as error:
                self._note(error)
                raise
            self.inside = False
            return result

        return short

    def _running(self, rank: int) -> int | None:
        """Return the number of the coroutine that runs, where a rank has several."""
        holder = self.holders.get(rank)
        if holder is None or (running := holder()) is None:
            return None
        return self.coroutines.setdefault(running, len(self.coroutines))

    def _note(self, error: BaseException) -> None:
        """Note how the latest call has failed. Raise PuzzleError in place of a ProtocolError."""
        if isinstance(error, PuzzleError):
            self.failed[len(self.recorded) - 1] = error
            self.failures += 1
            self.inside = self.too_many_errors
            return
        self.recorded.pop()
        if isinstance(error, ProtocolError):
            self.inside = False
            raise PuzzleError(str(error)) from None

    def number(self, token: Token) -> int:
        """Return the number of a tensor. One made by hand, or of another machine, is first entered as made up."""
        number = self.numbers.get(token)
        if number is None:
            if token not in self.made_up:
                self.made_up[token] = self.record("by_hand", self.ranks[0], token.labels)
            number = self.numbers[self.made_up[token]]
        return number

    def _enter(self, result: object) -> None:
        super()._enter(result)  # which comes here with each of several
        if isinstance(result, TensorState):
            self.numbers[result] = len(self.tensors) - 1
        elif isinstance(result, InFlight):
            self.numbers_of_calls[result] = len(self.calls) - 1

    # -- what is called in another way than it is recorded ---------------------------------------------------------

    def open(self, rank: int, layers: int, batches: int) -> RankState:
        if rank in self.opened:
            raise second_model(rank)
        self.opened.add(rank)
        return self.by_number[rank]

    def compute(
        self, rank: RankState, kind: str, layer: Any, operands: Sequence[Token], options: Options = NO_OPTIONS
    ) -> list[TensorState]:
        return self.record("compute", rank, kind, layer, operands, options)  # type: ignore[no-any-return]

    def wait(self, call: InFlight, waiter: Callable[[], None]) -> bool:
        self.waiter = waiter
        return self.short_wait(call.rank, call)  # type: ignore[no-any-return]

    def fetch(self, call: InFlight) -> object:
        return self.short_fetch(call.rank, call, call.peer)

    def decide_next(self) -> bool:
        return self.record("decide_next", self.ranks[0])  # type: ignore[no-any-return]

    def share(self, rank: RankState, holder: Callable[[], object]) -> None:
        if rank.rank not in self.holders:
            self.holders[rank.rank] = holder
            self.record("share", rank)

    def deadlock(self, lines: Mapping[int, str], finished: frozenset[int] | None = None) -> Deadlock:
        return self.record("deadlock", self.ranks[0], lines)  # type: ignore[no-any-return]
