"""What is on its way: a call from its issue to its end, a message, a meeting of a group, and a rank's links."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from ..basics.errors import PuzzleError, numbered, show_call
from ..basics.units import Elements
from ..record.events import Event, make_event
from ..record.labels import AXES, EXCHANGES, HOSTS, LISTS, Labels
from ..record.operations import Collective, Value
from ..record.shards import NONE
from ..record.table import SEND
from .cost import TimeUnits
from .failure import Wait
from .mesh import Axis, Group
from .rank_state import Origin, RankState, Result, Results, TensorState


class InFlight:
    """One rank's part in a communication: its share of a collective (``Member``), a send or a receive (``Message``).
    When it is made it samples memory, and stands in the log from then on, as its own record. What is known later only,
    its start, its end, the other rank of a receive, is set once, by ``network``; nothing else of a record changes."""

    # In slots and all set from the start: a default of the class would be asked for many times more slowly.
    __slots__ = (
        "links", "link", "kind", "layer", "meeting", "issued", "index", "operands", "labels", "sent", "held",
        "end", "result", "waiter", "awaited",
    )  # fmt: skip
    layers: tuple[int, ...] = ()  # of a collective that got a list
    group: Group | None = None
    peer: int | None = None  # of a message: receiver of a send, sender that a receive insists on
    op: tuple[object, ...] = ()
    start: TimeUnits | None = None
    with_host = False  # of a message: whether it is one between a device and its host
    within: Exchange | None = None  # of a message: the exchange that it is part of
    slot: int | None = None  # of a message, see ``Event``
    ready: TimeUnits | None = None  # of a message, see there

    def __init__(
        self,
        links: RankLinks,
        kind: str,
        layer: int | None,
        operands: Sequence[TensorState] = (),
        meeting: Meeting | None = None,
    ) -> None:
        self.links: RankLinks | None = links  # None after the run, of which nothing then hangs together in a circle
        self.link = links.network[0]  # of the network, if it goes over it
        rank = links.rank
        log = rank.log
        self.kind, self.layer = kind, layer
        self.meeting = meeting  # of a member: its collective
        self.issued, self.index = rank.clock, len(log)  # where in the log it stands
        self.operands = operands  # the tensors that it carries: they stay in memory until the end of the call
        self.labels: Labels | None = None
        for operand in operands:
            self.labels = operand.labels
            if operand.carriers is None:
                operand.carriers = [self]
            else:
                operand.carriers.append(self)
        self.sent: Elements = 0
        """How much goes over the links, of what it carries."""
        if operands:
            if not rank.cost.sent_as_stored:
                self.sent = sum([rank.cost.sent(one.labels) for one in operands])
            else:
                self.sent = operands[0].memory if len(operands) == 1 else sum([one.memory for one in operands])
        self.held = rank.sample(operands)
        self.end: TimeUnits | None = None
        self.result: Result | Results | PuzzleError | None = None
        """What a collective has brought, or why it never will."""
        self.waiter: Callable[[], None] | None = None
        self.awaited = False
        log.append(self)
        links.open[self.index] = self

    def let_go(self) -> None:
        """Forget the rank and its links, after the run: then nothing hangs together in a circle."""
        if self.links is not None:
            self.links = None
            del self.link

    @property
    def rank(self) -> RankState:
        """The rank that has issued it, until the run is over."""
        assert self.links is not None
        return self.links.rank

    @property
    def tick(self) -> float:
        """When it was issued, in ticks."""
        return float(self.issued / self.rank.per_tick)

    @property
    def over(self) -> bool:
        """Whether its result, or the error in its place, can be fetched."""
        return self.end is not None or self.result is not None

    @property
    def fetched(self) -> bool:
        """Whether its result has been taken."""
        return self.links is None or self.index not in self.links.open

    @property
    def sends(self) -> bool:
        """Whether it is a send."""
        return self.kind == SEND.kind

    def event(
        self, rank: int, ticks: Callable[[TimeUnits], float], held: tuple[Elements, ...], awaited: tuple[int, ...]
    ) -> Event:
        """Return its record, once its times are known. ``ticks`` gives a time in ticks; ``held`` is what was in memory
        when it was issued."""
        assert self.start is not None and self.end is not None
        labels, group = self.labels, self.group
        words = labels.words() if labels else ()
        if self.meeting is not None:
            words = (*self.meeting.row.words, *words)
            if self.meeting.op[0].__class__ is tuple:
                words = (*words, AXES)
        elif self.with_host:
            words = (*words, HOSTS)
        if self.within is not None:
            words = (*words, EXCHANGES)
        ready = None if self.ready is None or self.with_host else ticks(self.ready)
        ends = group.ranks if group else (rank, self.peer) if self.sends else (self.peer, rank)
        return make_event((
            rank, self.kind, self.layer, labels.batches if labels else NONE,
            ticks(self.issued), ticks(self.start), ticks(self.end), held, self.op or None,
            ends, labels.kind if labels else None, self.sent, words, (), awaited, (), ready, self.slot,
        ))  # fmt: skip

    def wait(self) -> Wait:
        """Return the record of a call that has not ended."""
        others: tuple[int, ...] = (self.peer,) if self.peer is not None else ()
        if self.group is not None and self.meeting is not None:
            calls = zip(self.group.position, self.meeting.calls, strict=True)
            others = tuple(rank for rank, call in calls if call is None or not call.meets(self))
        elif self.sends:
            others = (self.rank.rank, *others)
        rank, layers = self.rank.rank, self.layers
        return Wait(rank, self.kind, self.layer, self.tick, others, self.index, self.awaited, layers=layers)

    @property
    def brings(self) -> Labels | Sequence[Labels | None] | None:
        """The labels of what it brings to a collective, of a list those of each tensor."""
        return self.labels

    @property
    def what(self) -> tuple[str, int | tuple[int, ...] | None]:
        """Its verb, and its layer, or the layers of its list: what all who meet there have to agree on."""
        return self.kind, self.layers or self.layer

    def meets(self, other: InFlight) -> bool:
        """Return whether it is the same collective as another call of its meeting, and its rank's next."""
        queue = self.link.queue
        return self.what == other.what and bool(queue) and queue[0] is self

    def __str__(self) -> str:
        """Return what a rank that waits for this call waits for."""
        if self.group is not None and self.meeting is not None:
            calls = zip(self.group.position, self.meeting.calls, strict=True)
            missing = [rank for rank, call in calls if call is None]
            late = f"; missing: {numbered('rank', missing)}" if missing else ""
            return f"{show_call(*self.what)} of {self.group}, since {self._since}{late}"
        if self.sends:
            what = f"{self.kind} to rank {self.peer}, behind this rank's earlier calls"
        else:
            what = f"{self.kind} from {'anyone' if self.peer is None else f'rank {self.peer}'}"
        return f"{what}, since {self._since}"

    @property
    def _since(self) -> str:
        unit = self.rank.cost.time_unit
        return unit.at(unit.show(self.tick))


class Member(InFlight):
    """One rank's part in a collective."""

    __slots__ = ()
    meeting: Meeting

    @property
    def group(self) -> Group:  # type: ignore[override]
        """Whose collective it is part of."""
        return self.meeting.group

    @property
    def op(self) -> tuple[object, ...]:  # type: ignore[override]
        """One object for all members."""
        return self.meeting.op

    @property
    def start(self) -> TimeUnits:  # type: ignore[override]
        """When the collective starts, as far as is known."""
        return self.meeting.start


class ListMember(Member):
    """One rank's part in a collective of several layers, with a tensor of each, or None where it brings nothing."""

    __slots__ = ("layers", "brought")

    def __init__(
        self,
        links: RankLinks,
        kind: str,
        layers: tuple[int, ...],
        meeting: Meeting,
        brought: Sequence[TensorState | None],
    ) -> None:
        operands = [operand for operand in brought if operand is not None]
        super().__init__(links, kind, layers[0], operands, meeting)
        self.layers, self.brought = layers, brought
        if operands:
            labels = [operand.labels for operand in operands]
            self.labels = labels[0].changed(batches=NONE.union(*[one.batches for one in labels]))
        links.rank.lists[meeting.op] = tuple(labels_of_each(brought))

    @property
    def brings(self) -> Sequence[Labels | None]:
        """The labels of each tensor that it brings."""
        return labels_of_each(self.brought)

    def event(
        self, rank: int, ticks: Callable[[TimeUnits], float], held: tuple[Elements, ...], awaited: tuple[int, ...]
    ) -> Event:
        """Return its record, which names the layers of the list."""
        event = super().event(rank, ticks, held, awaited)
        return event._replace(words=(*event.words, LISTS), layers=self.layers)


class Message(InFlight):
    """A send, or a receive. ``posted``: since when a receive waits for its message. Where sends wait for receives,
    ``ready``: the same, and since when a send is first on its link; ``taker``: the receive that a send has found."""

    __slots__ = (
        "peer", "with_host", "op", "start", "memory", "value", "origin", "message", "posted", "ready", "taker",
        "within", "slot",
    )  # fmt: skip
    op: tuple[Any, ...]  # sender, receiver, and the number among their messages; of a receive once it is over

    def __init__(
        self,
        links: RankLinks,
        kind: str,
        peer: int | None,
        op: tuple[object, ...] = (),
        operands: Sequence[TensorState] = (),
    ) -> None:
        super().__init__(links, kind, operands[0].labels.layer if operands else None, operands)
        self.peer, self.op = peer, op
        self.memory: Elements = operands[0].memory if operands else 0
        self.with_host = links.with_host(peer)
        self.start: TimeUnits | None = None
        self.value: Value = None  # what a send carries: that of its tensor, from its start on, or a plain one
        self.origin: Origin = None  # and its tensor's
        self.message: Message | None = None  # the send that a receive has found
        self.taker: Message | None = None
        self.posted: TimeUnits | None = None
        self.ready: TimeUnits | None = None
        self.within = self.slot = None


class Exchange:
    """Sends and receives of a rank that take one place in the queue of a link, and go on independently there, the sends
    to one peer, in ``lanes``, in order. It is over when all are. ``at``: the place of the first in the rank's log."""

    __slots__ = ("issued", "link", "lanes", "receives", "left", "end", "at")
    meeting = None  # as of a message

    def __init__(self, link: Link, parts: Sequence[Message]) -> None:
        self.link, self.issued, self.at = link, parts[0].issued, parts[0].index
        self.lanes: dict[int | None, Link] = {}
        self.receives = [call for call in parts if not call.sends]
        for call in parts:
            call.within, call.slot = self, self.at
            if call.sends:
                call.link = self.lanes.setdefault(call.peer, Link())
                call.link.queue.append(call)
        self.left, self.end = len(parts), self.issued


def labels_of_each(tensors: Sequence[TensorState | None]) -> list[Labels | None]:
    """Return the labels of tensors that a rank brings, and None for those that it does not."""
    return [None if tensor is None else tensor.labels for tensor in tensors]


class Meeting:
    """A collective: the calls of its group, and how many of them are next on their links. ``layer`` is that of
    the first who came, or the layers of its list."""

    __slots__ = ("group", "row", "layer", "op", "calls", "at_head", "start", "mixed")

    def __init__(self, group: Group, row: Collective, layer: int | tuple[int, ...], op: tuple[object, ...]) -> None:
        self.group, self.row, self.layer, self.op = group, row, layer, op
        self.mixed = False  # whether the group has not all called the same
        self.calls: list[InFlight | None] = [None] * len(group.position)  # by place in the group
        self.at_head = 0
        self.start: TimeUnits = 0


class Membership:
    """A rank in a group: its place there, how many collectives it has issued, and the group's meetings by number."""

    __slots__ = ("group", "place", "issued", "meetings")

    def __init__(self, group: Group, rank: int, meetings: dict[int, Meeting]) -> None:
        self.group, self.place, self.issued, self.meetings = group, group.position[rank], 0, meetings


index_of = attrgetter("index")


class Link:
    """A link to the network: calls one at a time, in order, and when it is free."""

    __slots__ = ("queue", "free")

    def __init__(self) -> None:
        self.queue: deque[InFlight | Exchange] = deque()
        self.free: TimeUnits = 0


class RankLinks:
    """One rank's links: what it has issued, and when each link is free."""

    __slots__ = (
        "rank", "host", "network", "receives", "receive_free", "open", "sent", "memberships", "version",
        "settled", "group",
    )  # fmt: skip

    def __init__(self, rank: RankState, host: int | None = None) -> None:
        self.rank, self.host = rank, host  # its host, if there is one; of a host it is the rank itself
        self.network = [Link() for _ in rank.cost.tiers]  # collectives and sends, a queue for each tier of links
        self.receives: dict[int | None, deque[Message]] = {}
        """Receives that have no message yet, in order, by the sender that they insist on."""
        self.receive_free: TimeUnits = 0
        self.open: dict[int, InFlight] = {}  # issued and not fetched, by place in the log
        self.sent: dict[int, int] = {}  # messages to each rank
        self.memberships: dict[Axis, Membership] = {}  # by axis
        self.group: list[Message] | None = None  # of an exchange that has begun: its parts
        self.version = 0  # of what this rank could receive next
        self.settled: dict[int, tuple[Elements, ...]] = {}  # samples that were found to hold more, by place in the log

    def first_receive(self, sender: int) -> Message | None:
        """Return the first receive that accepts a message of this sender."""
        heads = [queue[0] for queue in (self.receives.get(sender), self.receives.get(None)) if queue]
        return min(heads, key=index_of, default=None)

    def with_host(self, peer: int | None) -> bool:
        """Return whether a message to or from that rank is one between a device and its host."""
        return peer is not None and (peer == self.host or self.rank.is_host)
