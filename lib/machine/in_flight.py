"""What is on its way: a call from its issue to its end, a message, a meeting of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..basics.units import Elements, show_ticks
from ..record.events import Event, make_event
from ..record.labels import NONE, Labels
from .mesh import Group
from .tensor_state import Entry

if TYPE_CHECKING:
    from .rank_state import Account


class Flight:
    """A call from its issue to its end: a collective's one rank, a send, or a receive."""

    operand: Entry | None = None
    labels: Labels | None = None
    memory: Elements = 0
    held: tuple[Elements, ...] = ()
    meeting: Meeting | None = None
    peer: int | None = None  # receiver of a send, sender that a receive insists on
    start: int | None = None
    end: int | None = None
    op: tuple[object, ...] | None = None
    result: Any = None
    result_memory: Elements = 0
    waiter: Callable[[], None] | None = None
    awaited = fetched = False
    message: Message | None = None
    holder: object = None

    def __init__(self, account: Account, kind: str, layer: int | None) -> None:
        self.account = account
        self.kind = kind
        self.layer = layer
        self.issued = account.clock
        self.index = len(account.log)
        account.issued = self.number = account.issued + 1
        if account.several:
            self.holder = account.holder()

    def carry(self, entry: Entry) -> None:
        """The call carries a tensor: it stays in memory until the end of the call."""
        self.operand, self.labels, self.memory = entry, entry.labels, entry.memory
        if entry.flights is None:
            entry.flights = [self]
        else:
            entry.flights.append(self)

    def event(self) -> Event | None:
        """The record of the call; None as long as its times are not known."""
        if self.end is None or self.start is None:
            return None
        account, labels, grain = self.account, self.labels, self.account.grain
        if self.meeting is not None:
            group = self.meeting.group.ranks
        else:
            sends = self.kind == "pass_to"
            group = (account.rank, self.peer) if sends else (self.peer, account.rank)  # type: ignore[assignment]
        return make_event((
            account.rank, self.kind, self.layer, labels.batches if labels else NONE,
            self.issued / grain, self.start / grain, self.end / grain, self.held, self.op, group,
            labels.kind if labels else None, self.memory,
        ))  # fmt: skip

    def __str__(self) -> str:
        """What a rank that waits for this call waits for."""
        name = f"{self.kind}(layer {self.layer})" if self.meeting else self.kind
        if self.meeting is not None:
            missing = [
                r for r in self.meeting.group.ranks if self.meeting.flights[self.meeting.group.position[r]] is None
            ]
            late = f"; not there: rank {', '.join(map(str, missing[:8]))}" + (" ..." if len(missing) > 8 else "")
            who = f" of {self.meeting.group}{late if missing else ''}"
        elif self.kind == "receive":
            who = " from anyone" if self.peer is None else f" from rank {self.peer}"
        else:
            who = f" to rank {self.peer}, behind this rank's earlier calls"
        return f"{name}{who}, since tick {show_ticks(self.issued / self.account.grain)}"


class Message(NamedTuple):
    """Something on its way, in the mailbox of its receiver."""

    arrival: int
    sender: int
    op: tuple[object, ...]
    layer: int | None
    labels: Labels | None
    value: Any
    memory: Elements
    made_up: bool


class Meeting:
    """A collective: the calls of its group, and how many of them are at the head of their lanes."""

    __slots__ = ("group", "kind", "layer", "op", "flights", "at_head", "start", "first")

    def __init__(self, group: Group, kind: str, layer: int, op: tuple[object, ...], first: Flight) -> None:
        self.group, self.kind, self.layer, self.op, self.first = group, kind, layer, op, first
        self.flights: list[Flight | None] = [None] * len(group.ranks)
        self.at_head = 0
        self.start = 0
