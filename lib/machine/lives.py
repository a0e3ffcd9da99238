"""What a peak of memory is made of: a simulator that notes where each tensor of a rank was made, stored and read.

The notes cost time, and a program takes the same memory each time that it runs. So nothing is noted at first, and
whoever wants to know what a peak is made of runs the program once more here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple, cast

from ..basics.errors import with_article
from ..basics.units import Elements
from ..record.events import MARKS, Event
from ..record.kinds import INNER, KINDS, MEMORY_KINDS
from ..record.labels import Labels
from ..record.operations import Computation, Value
from . import deferred_memory
from .cost import Shape
from .in_flight import RankLinks
from .interface import AnySimulator
from .rank_state import END, Origin, RankState, TensorState
from .simulator import LocalSimulator

MADE_AGAIN = "inner activations that a backward makes again"


class Held(NamedTuple):
    """Something that is in memory at the peak. ``made``, ``last`` and ``following`` are places in the rank's log."""

    memory: str  # what the memory is used for, one of MEMORY_KINDS
    labels: Labels | None  # None: the inner activations of a layer, which no tensor of the learner holds
    elements: Elements
    made: int  # the record that has made, loaded or received it; -1: none has
    last: int | None = None  # the record that reads it last, at the peak or before, if any has
    following: int | None = None  # the record that reads it next, after the peak, if any does
    stays: bool = False  # whether it is a result: set as a final weight, or the last version that is stored at the end

    @property
    def what(self) -> str:
        """What it is, in words."""
        labels = self.labels
        if labels is None:
            return MADE_AGAIN if self.made == self.last else "layer of inner activations"
        row = KINDS[labels.kind]
        plain = row.of_adapter if labels.adapter else row.word
        several = plain.partition(" of ")[0].endswith("s")  # keys and values, which nobody counts one by one
        word = f"set of {plain}" if several else plain
        word += f" (keep={labels.keep!r})" if labels.keep else ""
        share = Fraction(len(labels.shards), labels.total)
        if share != 1:
            word = f"{row.piece} ({share}) of {plain if several else with_article(word)}"
        return word + (f" of {len(labels.batches)} micro-batches" if row.by_batch and len(labels.batches) > 1 else "")


class Peak(NamedTuple):
    """What a rank held when its memory was highest: the sizes add up to the peak."""

    rank: int
    at: int  # the place in the rank's log of the record at which the sample was taken
    held: tuple[Held, ...]
    lines: tuple[str, ...] = ()  # the learner's line of each record of that log, as far as it is known

    def as_json(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """Return each thing that was held as JSON values, the largest first. ``events``: the log of the run."""
        own = [event for event in events if event.rank == self.rank]

        def moment(place: int | None, made: bool = False) -> dict[str, Any] | None:
            if place is None or not 0 <= place < len(own):
                return None
            event, line = own[place], self.lines[place] if place < len(self.lines) else ""
            tick = event.end if made and event.stream in ("message", "collective") else event.issued
            return {"operation": event.kind, "layer": event.layer, "tick": tick, "line": line}

        return [
            {
                "memory": held.memory, "what": held.what, "labels": "" if held.labels is None else str(held.labels),
                "layer": own[held.made].layer if held.labels is None else held.labels.layer,
                "elements": held.elements if isinstance(held.elements, int) else float(held.elements),
                "made": moment(held.made, made=True), "last_read": moment(held.last),
                "read_next": moment(held.following), "result": held.stays,
            }
            for held in sorted(self.held, key=lambda one: -one.elements)
        ]  # fmt: skip


class Stay(NamedTuple):
    """Something that is in memory from one sample on (``start``) and not any more at another (``stop``): places in the
    rank's log. What ``memory`` it counts as is one of MEMORY_KINDS."""

    start: int
    stop: int
    memory: str
    layer: int
    batches: frozenset[int]
    elements: Elements
    made: int  # as in Held
    life: Life | None = None  # of a tensor; None: the inner activations of a layer
    stored: bool = False  # whether a dictionary of the learner holds it

    @property
    def labels(self) -> Labels | None:
        """What it is, if it is a tensor."""
        return None if self.life is None else self.life.tensor.labels

    @property
    def kind(self) -> str:
        """Of what kind it is: that of what is in flight, too."""
        return MEMORY_KINDS[INNER] if self.labels is None else KINDS[self.labels.kind].memory

    def held(self, at: int, newest: Mapping[tuple[object, ...], int]) -> Held:
        """Return what is known of it as a part of the sample at this place, as ``Life.held`` does."""
        if self.life is not None:
            return self.life.held(self.memory, at, newest)
        again = self.made == self.start
        following = None if again or self.stop == END else self.stop - 1
        return Held(self.memory, None, self.elements, self.made, self.made if again else None, following)


class Life:
    """The notes on one tensor. Its times are numbers of records that were in its rank's log."""

    __slots__ = ("tensor", "made", "stored", "open", "reads", "is_answer")

    def __init__(self, tensor: TensorState, made: int) -> None:
        self.tensor, self.made = tensor, made
        self.stored: list[list[int]] = []  # from and to, for each time that a dictionary held it
        self.open: list[list[int]] = []  # those of them that have not ended
        self.reads: list[int] = []
        self.is_answer = False

    @property
    def version(self) -> tuple[tuple[object, ...], int]:
        """What it is a version of, and of which step."""
        labels = self.tensor.labels
        return (labels.kind, labels.layer, labels.adapter), labels.step

    def held(self, memory: str, at: int, newest: Mapping[tuple[object, ...], int]) -> Held:
        """Return what is known of it as a part of the sample at this place of the log. ``newest``: the last step of
        each weight and state that the rank has had."""
        tensor, read = self.tensor, bisect_right(self.reads, at)
        last = self.reads[read - 1] if read else None
        following = self.reads[read] if read < len(self.reads) else None
        which, step = self.version
        is_kept = KINDS[tensor.labels.kind].stepped and bool(self.open)
        stays = self.is_answer or (is_kept and newest.get(which) == step)
        return Held(memory, tensor.labels, tensor.memory, self.made, last, following, stays)


def _noted(verb: str) -> Any:
    """Return the method of a tensor that does this, and notes what it has read."""
    plain = getattr(TensorState, verb)
    return lambda tensor, *given: (made := plain(tensor, *given)) and tensor._gives(made, *given)


class WatchedTensor(TensorState):
    """A tensor with notes."""

    __slots__ = ("life",)
    life: Life

    def _gives(self, tensor: TensorState, *others: object) -> TensorState:
        """Note that these are read, and that the new tensor comes from where this one came from."""
        for one in (self, *others):
            if isinstance(one, WatchedTensor) and one.rank is not None:
                one.life.reads.append(len(one.rank.log))
        if isinstance(tensor, WatchedTensor):
            tensor.life.made = self.life.made
        return tensor

    shard, combine, add, scale = map(_noted, ("shard", "combine", "add", "scale"))


class WatchedRank(RankState):
    """A rank whose tensors have notes."""

    tensor_type = WatchedTensor

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lives: list[Life] = []
        self.of_call = defaultdict[int, list[Life]](list)  # what a call has brought, by the call's place in the log
        self.loose = defaultdict[int, list[Life]](list)  # operands that are not stored, by the operation's place
        self.inner_spans: list[list[Any]] = []  # of what forwards have left: from, to, layer and micro-batch, elements
        self.inner_open: dict[object, list[Any]] = {}  # those of them that have not ended, by layer and micro-batch
        self.workspaces: dict[int, Elements] = {}  # inner activations that a backward makes again, by its place

    def mint(
        self, labels: Labels, value: Value, origin: Origin = None, call: int = -1, memory: Elements | None = None
    ) -> TensorState:
        tensor = cast(WatchedTensor, super().mint(labels, value, origin, call, memory))
        tensor.life = Life(tensor, len(self.log) - 1 if call < 0 else call)
        self.lives.append(tensor.life)
        if call >= 0:
            self.of_call[call].append(tensor.life)
        return tensor

    def store(self, tensor: TensorState) -> None:
        super().store(tensor)
        life, span = cast(WatchedTensor, tensor).life, [len(self.log), END]
        life.stored.append(span)
        life.open.append(span)

    def drop(self, tensor: TensorState) -> None:
        super().drop(tensor)
        cast(WatchedTensor, tensor).life.open.pop()[1] = len(self.log)

    def sample(self, operands: Sequence[TensorState], workspace: Elements = 0) -> tuple[Elements, ...]:
        now = len(self.log)
        for life in {id(one): one.life for one in operands if isinstance(one, WatchedTensor)}.values():
            life.reads.append(now)
            if not life.tensor.stored and life.tensor.since >= 0:
                self.loose[now].append(life)
        if workspace:
            self.workspaces[now] = workspace
        return super().sample(operands, workspace)

    def leave_behind(self, row: Computation, layer: int | None, labels: Sequence[Labels]) -> None:
        which = layer, labels[0].batches
        before = self.inner.get(which)
        super().leave_behind(row, layer, labels)
        after, now = self.inner.get(which), len(self.log)
        if before is None and after is not None:
            self.inner_open[which] = span = [now, END, which, after]
            self.inner_spans.append(span)
        elif before is not None and after is None:
            self.inner_open.pop(which)[1] = now


class WatchedSimulator(LocalSimulator):
    """A simulator that notes what ``watched``, a rank, or all ranks (None) do with their tensors. After the run
    ``stays`` has what each of them held, and ``peak`` what the one held when its memory was highest. ``how``: as for a
    LocalSimulator."""

    def __init__(self, shape: Shape, watched: int | None, strict: bool = True, **how: Any) -> None:
        super().__init__(shape, graded=True, strict=strict, **how)
        self.watched = watched
        self.peak = Peak(watched or 0, 0, ())
        self.stays: dict[int, list[Stay]] = {}

    def open(self, rank: int, layers: int, batches: int) -> RankState:
        self.rank_type = WatchedRank if self.watched in (None, rank) else RankState
        return super().open(rank, layers, batches)

    def store(self, rank: RankState, tensor: TensorState) -> None:
        rank.store(tensor)

    def drop(self, rank: RankState, tensor: TensorState) -> None:
        rank.drop(tensor)

    def set_final_weight(self, rank: RankState, layer: int, weight: TensorState) -> None:
        super().set_final_weight(rank, layer, weight)
        if isinstance(weight, WatchedTensor):
            weight.life.is_answer = True

    def finish_logs(self, ranks: Iterable[RankState]) -> list[Sequence[Event]]:
        ranks = [*ranks]
        for rank in ranks:
            if isinstance(rank, WatchedRank):
                self.stays[rank.rank] = [stay for stay in _stays(rank, self.network.links[rank.rank]) if stay.elements]
        logs = super().finish_logs(ranks)
        for rank, log in zip(ranks, logs, strict=True):
            if rank.rank == self.watched and log:
                at = max(range(len(log)), key=lambda place: log[place].memory)
                held = [stay for stay in self.stays[rank.rank] if stay.start <= at < stay.stop]
                newest = dict[tuple[object, ...], int]()  # the last step of each weight and state that it has had
                for which, step in (life.version for life in cast(WatchedRank, rank).lives):
                    newest[which] = max(step, newest.get(which, 0))
                self.peak = Peak(self.watched, at, tuple([stay.held(at, newest) for stay in held]))
        return logs

    @property
    def as_simulator(self) -> AnySimulator:
        """This, for a learner's side that looks into no handle."""
        return cast(AnySimulator, self)


def _stays(rank: WatchedRank, links: RankLinks) -> Iterator[Stay]:
    """Yield what the rank has held: at each place in its log those that are there add up to the sample."""
    inner = MEMORY_KINDS[INNER]
    for life in rank.lives:
        for start, stop in life.stored:
            yield _stay(life, start, stop, life.tensor.slot, stored=True)
    for at, lives in rank.loose.items():
        yield from (_stay(life, at, at + 1, life.tensor.slot) for life in lives)
    for start, stop, (layer, batches), elements in rank.inner_spans:
        yield Stay(start, stop, inner, layer, batches, elements, start - 1)
    for at, elements in rank.workspaces.items():
        yield Stay(at, at + 1, inner, rank.log[at].layer or 0, rank.log[at].batches, elements, at)
    for start, stop, slot, _, what in deferred_memory.spans_of(links):
        own = [what.life] if isinstance(what, WatchedTensor) else rank.of_call[cast(int, what)]
        yield from (_stay(life, start, stop, slot) for life in own)
    marks = [at for at, record in enumerate(rank.log) if record.kind in MARKS]
    for start, stop, slot, _, what in rank.kept_loose:
        between = [start - 1, *(at for at in marks if start <= at < stop), stop]  # marks see stored tensors only
        for before, after in pairwise(between):
            yield _stay(cast(WatchedTensor, what).life, before + 1, after, slot)


def _stay(life: Life, start: int, stop: int, slot: int, stored: bool = False) -> Stay:
    tensor, labels = life.tensor, life.tensor.labels
    return Stay(start, stop, MEMORY_KINDS[slot], labels.layer, labels.batches, tensor.memory, life.made, life, stored)
