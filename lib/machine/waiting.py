"""Links on which a send waits for its receive, as it may on real ones (SPEC of ``run``: ``links``).

A send is *offered* when it is first on its link, and starts when the receive that takes it is *posted*. That is the
first receive, in the order of issue, that accepts it and that nothing offered before takes. Under "rendezvous" a
receive is posted when it is issued. Under "ordered" it stands in its rank's queue with collectives and sends, is posted
when it is first there, and the next call starts when it is over. A copy between a device and its host waits for nobody.

Which send a receive from a named rank takes is certain at once. A receive from anyone takes what was offered first:
that is decided when every coroutine waits, and nothing can be offered any more that would have come before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from ..basics.errors import Deadlock, PuzzleError
from ..basics.units import Elements
from ..record.events import Event
from ..record.table import RECEIVE
from .cost import TimeUnits
from .deadlock import in_circle
from .failure import Wait
from .in_flight import Exchange, InFlight, Message, RankLinks
from .mesh import Mesh
from .network import Network, Watcher
from .rank_state import Terms

Heads = list[InFlight | Exchange]


class WaitingMessage(Message):
    """A send that waits for its receive, or a receive that such sends wait for."""

    __slots__ = ()

    def event(
        self, rank: int, ticks: Callable[[TimeUnits], float], held: tuple[Elements, ...], awaited: tuple[int, ...]
    ) -> Event:
        """Return its record, which says since when it could start."""
        event = super().event(rank, ticks, held, awaited)
        return event if self.with_host or self.ready is None else event._replace(ready=ticks(self.ready))


class WaitingNetwork(Network):
    """The links between the ranks of a machine on which sends wait. ``mailboxes`` have the messages that no receive has
    taken, and ``receives`` of a rank's links those that have taken none, in the order of issue."""

    message_type = WaitingMessage

    def __init__(self, ordered: bool, mesh: Mesh, terms: Terms, watcher: Watcher | None = None) -> None:
        super().__init__(mesh, terms, watcher)
        self.ordered = ordered
        self.coming: dict[int, list[Message]] = {}  # receives that have taken a message and are not over, by rank

    def receive(self, links: RankLinks, src: int | None) -> Message:
        """Receive the next message, or the next from ``src``."""
        if self.ordered and src is None:
            where, expected = links.rank.place(RECEIVE.kind), "the rank that it is from, as in receive(src=0)"
            raise PuzzleError(
                "on these links a receive from anyone cannot stand in the queue", where=where, expected=expected
            )
        call = self.message_type(links, RECEIVE.kind, src)
        links.receives.setdefault(src, deque()).append(call)
        if not self.ordered or call.with_host:
            call.ready = call.issued
            self._pair(links.rank.rank)
            return call
        assert src is not None
        call.slot = call.index
        if self.mesh.node(links.rank.rank) != self.mesh.node(src):
            call.link = links.network[-1]
        call.link.queue.append(call)
        if len(call.link.queue) == 1:
            self._advance([call])
        return call

    def _transmit(self, call: Message, start: TimeUnits, heads: Heads) -> None:
        """Offer a send, or post a receive, that is first on its link."""
        call.ready = start
        if not call.sends:
            self._pair(call.rank.rank, heads)
            return
        sender, receiver, _ = call.op
        self.mailboxes.setdefault(receiver, {}).setdefault(sender, deque()).append(call)
        if call.with_host:
            self._go(call, start, heads)
        self._pair(receiver, heads)

    def _pair(self, rank: int, heads: Heads | None = None) -> None:
        """Let the receives of a rank take what is offered, as far as that is certain, and start these sends."""
        links, started = self.links[rank], [] if heads is None else heads
        for sender, mailbox in self.mailboxes.get(rank, {}).items():
            while (
                mailbox and (call := links.first_receive(sender)) and call.ready is not None and call.peer is not None
            ):
                self._join_ends(links, mailbox.popleft(), call, started)
        self._match(rank)
        if heads is None:
            self._advance(started)

    def _join_ends(self, links: RankLinks, sent: Message, call: Message, heads: Heads) -> None:
        """Let a receive take a send, which starts, if it has waited."""
        queue = links.receives[call.peer]
        queue.popleft()
        if not queue:
            del links.receives[call.peer]
        call.message = sent
        self.coming.setdefault(links.rank.rank, []).append(call)
        if sent.end is None:
            assert sent.ready is not None and call.ready is not None
            self._go(sent, max(sent.ready, call.ready), heads)

    def _open(self, exchange: Exchange, start: TimeUnits, heads: Heads) -> None:
        rank = next(iter(exchange.parts)).rank.rank
        super()._open(exchange, start, heads)
        self._pair(rank, heads)

    def _match(self, rank: int) -> None:
        """Receive what has come: at once if nothing can come in between, else as a candidate for ``decide_next``."""
        links, coming = self.links[rank], self.coming.get(rank, ())
        if len(coming) == 1 and not links.receives and not links.rank.several and coming[0].waiter is not None:
            self._receive(links, coming[0], -1)
        elif coming:
            self._note_candidate(links)

    def _note_candidate(self, links: RankLinks) -> None:
        """Remember which receive of this rank could be next: the link serves what is there first."""
        links.version += 1
        first: tuple[TimeUnits, TimeUnits, int, Message] | None = None
        for call in self.coming.get(links.rank.rank, ()):
            sent = call.message
            assert sent is not None and sent.end is not None and call.ready is not None
            key = (max(call.ready, sent.end), sent.end, sent.op[0])
            if first is None or key < first[:3]:
                first = (*key, call)
        if first is not None:
            end = max(first[0], links.receive_free) + self.cost.receiving
            heappush(self.candidates, (end, links.rank.rank, links.version, first[3], first[2]))

    def _receive(self, links: RankLinks, call: Message, sender: int) -> None:
        """Let a rank's receive link take the message that a receive has met."""
        self.coming[links.rank.rank].remove(call)
        assert call.message is not None
        self._take(links, call, call.message)
        if call.slot is not None and call.within is None:
            assert call.end is not None
            heads: Heads = []
            self._leave(call.link, call.end, heads)
            self._advance(heads)

    # -- where nobody can go on ---------------------------------------------------------

    def wait_of(self, call: InFlight) -> Wait:
        """Return the record of what holds a call up: the first call in its queue, if it stands in one."""
        link = call.link if call.within is None else call.within.link
        queue = link.queue if call.kind != RECEIVE.kind or call.slot is not None else ()
        head = queue[0] if queue else call
        if isinstance(head, Exchange):
            parts = [one for one in call.rank.log[head.at :] if isinstance(one, InFlight) and one.within is head]
            head = next(one for one in parts if one.end is None)
        wait = head.wait()
        others = tuple(one for one in wait.others if one != wait.rank)
        return wait._replace(others=others, awaited=call.awaited, first=True)

    def deadlock(self, lines: Mapping[int, str], finished: frozenset[int] | None = None) -> Deadlock:
        """Return the report of a machine in which nobody can go on. ``lines``: where each rank stands."""
        waits = []
        for links in self.links.values():
            calls = [call for call in links.open.values() if call.awaited and call.end is None]
            waits += [self.wait_of(call) for call in calls[:1]]
        return in_circle(waits, lines, frozenset(self.links) - lines.keys() if finished is None else finished)

    # -- waiting ------------------------------------------------------------------------

    def decide_next(self) -> bool:
        """Decide what happens first, when all coroutines wait: which wait ends, or what a receive from anyone takes."""
        offered = self._first_for_anyone()
        if offered is None or self.mixed:
            return super().decide_next()
        while self.waits and self.waits[0][3].fetched:
            heappop(self.waits)
        ends = [self._first_candidate(), self.waits[0][0] if self.waits else None]
        if any(end is not None and end <= offered[0] for end in ends):
            return super().decide_next()
        links, sender = self.links[offered[1]], offered[2]
        call, heads = links.first_receive(sender), Heads()
        assert call is not None
        self._join_ends(links, self.mailboxes[links.rank.rank][sender].popleft(), call, heads)
        self._pair(links.rank.rank, heads)
        self._advance(heads)
        return True

    def _first_for_anyone(self) -> tuple[TimeUnits, int, int] | None:
        """Return when what was offered first that a receive from anyone takes, with the receiver and the sender."""
        found = [
            (ready, rank, sender)
            for rank, links in self.links.items()
            if None in links.receives
            for sender, mailbox in self.mailboxes.get(rank, {}).items()
            if mailbox and (call := links.first_receive(sender)) is not None and call.peer is None
            if (ready := mailbox[0].ready) is not None
        ]
        return min(found, default=None)
