"""What is on its way: a call from its issue to its end, a message, a meeting of a group, and a rank's lanes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ..basics.errors import PuzzleError, numbered, show_call
from ..basics.units import Elements, show_ticks
from ..record.events import Event, make_event
from ..record.kinds import ACTIVATIONS
from ..record.labels import HOSTS, LISTS, NONE, Labels
from ..record.operations import Collective, Value
from ..record.table import SEND
from .cost import Grains
from .failure import Wait
from .mesh import Group
from .rank_state import Origin, RankState, Result, Results, TensorState


class InFlight:
    """One rank's part in a communication, from issue to end: its share of a collective, a send, or a receive."""

    # In slots and all set from the start: a default of the class would be asked for many times more slowly.
    __slots__ = (
        "lanes", "rank", "kind", "layer", "issued", "tick", "index", "holder", "operand", "labels", "memory", "held",
        "group", "meeting", "peer", "value", "origin", "end", "ticks", "op", "result", "message", "waiter", "awaited",
        "since",
    )  # fmt: skip
    layers: tuple[int, ...] = ()  # of a collective that got a list
    operands: Sequence[TensorState] = ()  # what that carries
    brought: Sequence[TensorState | None] = ()  # the same with None where it brings nothing

    def __init__(
        self,
        lanes: Lanes,
        kind: str,
        layer: int | None,
        op: tuple[object, ...] = (),
        operand: TensorState | None = None,
    ) -> None:
        self.lanes = lanes
        self.rank = rank = lanes.rank
        self.kind, self.layer = kind, layer
        self.issued, self.tick = rank.clock, rank.tick
        self.index = len(rank.log)  # where in the log it stands
        self.holder = rank.holder() if rank.several else None  # the coroutine that has issued it
        self.operand = operand  # the tensor that it carries: it stays in memory until the end of the call
        self.labels: Labels | None = None
        self.memory: Elements = 0
        if operand is not None:
            self.labels, self.memory = operand.labels, operand.memory
        self.held: tuple[Elements, ...] = ()
        self.group: Group | None = None  # whose collective it is part of
        self.meeting: Meeting | None = None  # that collective, until it takes place
        self.peer: int | None = None  # receiver of a send, sender that a receive insists on
        self.value: Value = None  # what a send carries: that of its tensor, from its start on, or a plain one
        self.origin: Origin = None  # and its tensor's
        self.end: Grains | None = None
        self.ticks: tuple[float, float] | None = None  # its start and its end, in ticks
        self.op = op
        self.result: Result | Results | PuzzleError | None = None
        """What a collective has brought, or why it never will."""
        self.message: InFlight | None = None  # the send that a receive has found
        self.waiter: Callable[[], None] | None = None
        self.awaited = False
        self.since = (
            rank.fetched_since() if rank.fetched else ()
        )  # calls fetched between the record before and this one

    @property
    def over(self) -> bool:
        """Whether its result, or the error in its place, can be fetched."""
        return self.end is not None or self.result is not None

    @property
    def fetched(self) -> bool:
        """Whether its result has been taken."""
        return self.index not in self.lanes.open

    def event(self) -> Event | None:
        """Return the record of the call; None as long as its times are not known."""
        if self.ticks is None:
            return None
        labels, group, (start, end) = self.labels, self.group, self.ticks
        words = labels.words() if labels and labels.kind in ACTIVATIONS else ()
        if self.lanes.with_host(self.peer):
            words = (*words, HOSTS)
        ends = group.ranks if group else (self.rank.rank, self.peer) if self.sends else (self.peer, self.rank.rank)
        return make_event((
            self.rank.rank, self.kind, self.layer, labels.batches if labels else NONE,
            self.tick, start, end, self.held, self.op or None,
            ends, labels.kind if labels else None, self.memory, words, (), self.since,
        ))  # fmt: skip

    @property
    def sends(self) -> bool:
        """Whether it is a send."""
        return self.kind == SEND.kind

    def wait(self) -> Wait:
        """Return the record of a call that has not ended."""
        others: tuple[int, ...] = (self.peer,) if self.peer is not None else ()
        if self.group is not None and self.meeting is not None:
            calls = zip(self.group.ranks, self.meeting.calls, strict=True)
            others = tuple(rank for rank, call in calls if call is None or not call.meets(self))
        elif self.sends:
            others = (self.rank.rank, *others)
        rank, layers = self.rank.rank, self.layers
        return Wait(rank, self.kind, self.layer, self.tick, others, self.index, self.awaited, layers=layers)

    @property
    def brings(self) -> Labels | list[Labels | None] | None:
        """The labels of what it brings to a collective, of a list those of each tensor."""
        if self.layers:
            return labels_of_each(self.brought)
        return self.labels

    @property
    def what(self) -> tuple[str, int | tuple[int, ...] | None]:
        """Its verb, and its layer, or the layers of its list: what all who meet there have to agree on."""
        return self.kind, self.layers or self.layer

    def meets(self, other: InFlight) -> bool:
        """Return whether it is the same collective as another call of its meeting, and its rank's next."""
        queue = self.lanes.queue
        return self.what == other.what and bool(queue) and queue[0] is self

    def __str__(self) -> str:
        """Return what a rank that waits for this call waits for."""
        if self.group is not None:
            missing = self.missing()
            late = f"; missing: {numbered('rank', missing)}" if missing else ""
            return f"{show_call(*self.what)} of {self.group}, since tick {show_ticks(self.tick)}{late}"
        if self.sends:
            what = f"{self.kind} to rank {self.peer}, behind this rank's earlier calls"
        else:
            what = f"{self.kind} from {'anyone' if self.peer is None else f'rank {self.peer}'}"
        return f"{what}, since tick {show_ticks(self.tick)}"

    def missing(self) -> list[int]:
        """Return the ranks of the group that have not come to this collective yet."""
        if self.group is None or self.meeting is None:
            return []
        return [rank for rank, call in zip(self.group.ranks, self.meeting.calls, strict=True) if call is None]


class ListCall(InFlight):
    """One rank's part in a collective of several layers: it carries a tensor of each, and its result is as many."""

    __slots__ = ("layers", "operands", "brought")

    def __init__(
        self,
        lanes: Lanes,
        kind: str,
        layers: tuple[int, ...],
        op: tuple[object, ...],
        brought: Sequence[TensorState | None],
    ) -> None:
        super().__init__(lanes, kind, layers[0], op)
        self.layers, self.brought = layers, brought
        self.operands = [operand for operand in brought if operand is not None]
        self.memory = sum(operand.memory for operand in self.operands)
        if self.operands:
            labels = [operand.labels for operand in self.operands]
            self.labels = labels[0].changed(batches=NONE.union(*[one.batches for one in labels]))
        self.rank.lists[op] = tuple(labels_of_each(brought))

    def event(self) -> Event | None:
        """Return the record of the call; None as long as its times are not known."""
        event = super().event()
        return event and event._replace(words=(*event.words, LISTS), layers=self.layers)


def labels_of_each(tensors: Sequence[TensorState | None]) -> list[Labels | None]:
    """Return the labels of tensors that a rank brings, and None for those that it does not."""
    return [None if tensor is None else tensor.labels for tensor in tensors]


class Meeting:
    """A collective: the calls of its group, and how many of them are at the head of their lanes. ``layer`` is that of
    the first who came, or the layers of its list."""

    __slots__ = ("group", "row", "layer", "op", "calls", "at_head", "start", "mixed")

    def __init__(self, group: Group, row: Collective, layer: int | tuple[int, ...], op: tuple[object, ...]) -> None:
        self.group, self.row, self.layer, self.op = group, row, layer, op
        self.mixed = False  # whether the group has not all called the same
        self.calls: list[InFlight | None] = [None] * len(group.ranks)  # by place in the group
        self.at_head = 0
        self.start: Grains = 0


class Membership:
    """A rank in a group: how many collectives it has issued there."""

    __slots__ = ("group", "issued")

    def __init__(self, group: Group) -> None:
        self.group, self.issued = group, 0


class Lanes:
    """One rank's lanes: what it has issued, and when each lane is free."""

    def __init__(self, rank: RankState, host: int | None = None) -> None:
        self.rank, self.host = rank, host  # its host, if there is one; of a host it is the rank itself
        self.queue: deque[InFlight] = deque()  # the network lane: collectives and sends, in order
        self.free: Grains = 0
        self.receives: deque[InFlight] = deque()  # receives that have no message yet, in order
        self.receive_free: Grains = 0
        self.open: dict[int, InFlight] = {}  # issued and not fetched, by place in the log
        self.sent: dict[int, int] = {}  # messages to each rank
        self.memberships: dict[str | None, Membership] = {}  # by axis
        self.version = 0  # of what this rank could receive next

    def with_host(self, peer: int | None) -> bool:
        """Return whether a message to or from that rank is one between a device and its host."""
        return peer is not None and (peer == self.host or self.rank.is_host)

    def issue(self, call: InFlight, queue: deque[InFlight]) -> bool:
        """Sample memory, note the call in the log and among what is open, and queue it. Return whether it is the first
        of its queue."""
        rank, operand = self.rank, call.operand
        if operand is None:
            for one in call.operands:
                one.carriers = [*(one.carriers or ()), call]
            call.held = rank.sample(call.operands)
        else:
            if operand.carriers is None:
                operand.carriers = [call]
            else:
                operand.carriers.append(call)
            call.held = rank.sample((operand,))
        rank.log.append(call)
        self.open[call.index] = call
        queue.append(call)
        return len(queue) == 1

    def leave_queue(self, end: Grains, heads: list[InFlight]) -> None:
        """The call at the head of the network lane ends then. Add the one behind it, if any, to the heads."""
        self.free = end
        queue = self.queue
        queue.popleft()
        if queue:
            heads.append(queue[0])
