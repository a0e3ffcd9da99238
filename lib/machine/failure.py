"""How a run that failed has ended: where it stopped, which ranks wait, and for what."""

from __future__ import annotations

from typing import NamedTuple

from ..basics.errors import Line, Place, numbered, show_call, show_layers
from ..basics.units import TICKS, Unit
from ..record.table import OPERATIONS, RECEIVE, SEND


class Wait(NamedTuple):
    """A call of a rank that has not ended."""

    rank: int
    kind: str  # the learner's verb; empty for something that is no call of this machine
    layer: int | None
    since: float  # the rank's clock, in ticks, when the call was made
    others: tuple[int, ...] = ()  # the ranks that have not come; of a receive, the one it insists on
    at: int = -1  # its place in the rank's log
    awaited: bool = True
    line: Line | None = None  # where the call was made
    layers: tuple[int, ...] = ()  # of a collective that got a list: all of them
    first: bool = False  # whether sends wait for their receives, and it is what the others in the queue wait for

    @property
    def unposted(self) -> int | None:
        """The rank that has not posted the receive which this send waits for, if that is why it waits."""
        return self.others[0] if self.first and self.kind == SEND.kind else None

    @property
    def fact(self) -> str:
        """Of the first call of a rank, what it waits for."""
        who = numbered("rank", self.others) if self.others else "any rank"
        if self.kind == SEND.kind:
            return f"the send to {who}, which waits for a receive that {who} has not posted"
        if self.kind == RECEIVE.kind:
            return f"the receive from {who}, which waits for a message that {who} has not sent"
        return f"{show_call(self.kind, self.layers or self.layer)}, which waits for {who}"

    @property
    def what(self) -> str:
        """What is waited for, and which ranks are missing there."""
        others = [rank for rank in self.others if rank != self.rank]
        behind = ", behind its own earlier calls" if self.rank in self.others else ""
        row = OPERATIONS.get(self.kind)
        if row is None:
            return "for something that no rank will do"
        if row is RECEIVE:
            return f"for a message from {numbered('rank', others) if others else 'any rank'}"
        if row is SEND:
            posted = ", which has not posted a receive for it" * self.first
            return f"to send to {numbered('rank', others)}{behind}{posted}"
        who = f"for {numbered('rank', others)} " if others else ""
        of_layers = "" if self.layer is None else f" of {show_layers(self.layers or self.layer)}"
        return f"{who}in {row.word}{of_layers}{behind}"


class Failure(NamedTuple):
    """How a run has failed. ``says``: the head of its error; ``tick``: when that was, by the clock of the rank that
    ``place`` names, or of them all; ``waits``: of each rank that waits the first call; ``ended``: the ranks whose
    functions had returned; ``line``: the learner's line that the error names, if any, in words; ``unit``: of times."""

    says: str
    place: Place
    tick: float
    waits: tuple[Wait, ...] = ()
    ended: frozenset[int] = frozenset()
    line: str = ""
    unit: Unit = TICKS

    @property
    def where(self) -> str:
        """The operation in which it is, if any."""
        operation, layer = self.place.operation, self.place.layer
        if operation in OPERATIONS:
            return OPERATIONS[operation].word + ("" if layer is None else f" of layer {layer}")
        return show_call(operation, layer) if operation else ""

    def at(self, time: float) -> str:
        """Return when something was, for people."""
        return self.unit.at(self.unit.show(time))

    def sentences(self) -> list[tuple[str, str]]:
        """Return where the error is, who has returned, and who waits for whom since when: first what explains the
        rest. Each with the mark (see ``marks``) that is explained by it; ranks that do the same share a sentence."""
        found = []
        if self.place.rank is not None and self.place.rank not in [wait.rank for wait in self.waits]:
            where = self.where and f", in {self.where}"
            found.append(("!", f"the error is on rank {self.place.rank} at {self.at(self.tick)}{where}"))
        if self.waits and self.ended:
            found.append(("", f"{numbered('rank', self.ended)} {'has' if len(self.ended) == 1 else 'have'} returned"))
        groups: dict[str, list[int]] = {}
        knot = self.knot()
        for wait in sorted(self.waits, key=lambda wait: (wait.rank not in knot, -wait.since, wait.rank)):
            groups.setdefault(f"{wait.what}, since {self.at(wait.since)}", []).append(wait.rank)
        waits = [f"{numbered('rank', own)} wait{'s' * (len(own) == 1)} {what}" for what, own in groups.items()]
        return [*found, *(("~", wait) for wait in waits)]

    def knot(self) -> list[int]:
        """Return ranks that wait for each other in a circle or, if there are none, the last of those that wait for one
        another: where to look first."""
        waits = {wait.rank: wait for wait in self.waits}
        seen: list[int] = []
        at: int | None = min(waits, default=None)
        while at in waits and at not in seen:
            seen.append(at)
            at = next((rank for rank in waits[at].others if rank != at), None)
        return seen[seen.index(at) :] if at in seen else seen[-1:]

    def marks(self, ranks: int) -> dict[int, tuple[float, str]]:
        """Return a tick and a mark for each rank: ``!`` where the run stopped, ``~`` where a rank waits, or none."""
        marks = dict.fromkeys(range(ranks), (self.tick, ""))
        marks |= {wait.rank: (wait.since, "~") for wait in self.waits}
        return marks | ({} if self.place.rank is None else {self.place.rank: (self.tick, "!")})
