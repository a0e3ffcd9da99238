"""Links on which a send waits for its receive, as it may on real ones.

A send is *offered* when it is first on its link, and starts when the receive that takes it is *posted*. That is the
first receive, in the order of issue, that accepts it and that nothing offered before takes. Under "rendezvous" a
receive is posted when it is issued. Under "ordered" it stands in its rank's queue with collectives and sends, is posted
when it is first there, and the next call starts when it is over. A copy between a device and its host waits for nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heappop

from ..basics.errors import Deadlock, PuzzleError
from ..record.table import RECEIVE
from .cost import TimeUnits
from .deadlock import in_circle
from .failure import Wait
from .in_flight import Exchange, InFlight, Message, index_of
from .mesh import Mesh
from .network import Heads, Network, Watcher
from .rank_state import Terms


class WaitingNetwork(Network):
    """The links between the ranks of a machine on which sends wait. The mailboxes have what is offered, too."""

    pairs = True

    def __init__(self, ordered: bool, mesh: Mesh, terms: Terms, watcher: Watcher | None = None) -> None:
        super().__init__(mesh, terms, watcher)
        self.ordered = ordered

    def _post(self, call: Message) -> None:
        """Let a receive that was issued stand in its rank's queue, or wait for its message."""
        if not self.ordered or call.with_host:
            self._transmit(call, call.issued, heads := Heads())
            self._advance(heads)
            return
        if call.peer is None:
            raise PuzzleError("on these links a receive says from whom", where=call.rank.place(RECEIVE.kind))
        call.slot, across = call.index, self.mesh.node(call.rank.rank) != self.mesh.node(call.peer)
        call.link = self.links[call.rank.rank].network[-across]
        self._enqueue(call)

    def _transmit(self, call: Message, start: TimeUnits, heads: Heads) -> None:
        """Offer a send, or post a receive."""
        call.ready, rank = start, call.rank.rank
        if call.op:
            if call.with_host:
                self._go(call, start, heads)
            sender, rank, _ = call.op
            self.mailboxes.setdefault(rank, {}).setdefault(sender, deque()).append(call)
        else:
            call.posted = start
        self._pair(rank, heads)

    def _pair(self, rank: int, heads: Heads) -> None:
        """Let receives take what is offered to a rank, as far as that is certain: these sends start."""
        while pairs := [one for one in self._offered(rank) if one[1].posted is not None and one[1].peer is not None]:
            for sent, taker in pairs:
                self._start(sent, taker, heads)
        self._match(rank)

    def _offered(self, rank: int) -> list[tuple[Message, Message]]:
        """Return what each sender has offered first to a rank, with the receive that takes it, if there is one."""
        receives, found = self.links[rank].receives, []
        for sender, mailbox in self.mailboxes.get(rank, {}).items():
            sent = next((one for one in mailbox if one.taker is None), None)
            queues = [receives.get(sender, ()), receives.get(None, ())]
            free = (next((one for one in queue if one.message is None), None) for queue in queues)
            taker = min(filter(None, free), key=index_of, default=None)
            found += [(sent, taker)] if sent is not None and taker is not None else []
        return found

    def _start(self, sent: Message, call: Message, heads: Heads) -> None:
        """Let a receive take a send, which starts, if it has waited."""
        sent.taker, call.message = call, sent
        if sent.end is None:
            assert sent.ready is not None and call.posted is not None
            self._go(sent, max(sent.ready, call.posted), heads)

    def decide_next(self) -> bool:
        """Decide what happens first, when all coroutines wait: which wait ends, or what a receive from anyone takes."""
        anyone = [rank for rank, links in self.links.items() if None in links.receives]
        offered = [pair for rank in anyone for pair in self._offered(rank) if pair[1].peer is None]
        while self.waits and self.waits[0][3].fetched:
            heappop(self.waits)
        ends = [self._first_candidate(), self.waits[0][0] if self.waits else None]
        if self.mixed or not offered:
            return super().decide_next()
        sent, call = min(offered, key=lambda pair: (pair[0].ready, pair[0].op[1], pair[0].op[0]))
        if any(end is not None and sent.ready is not None and end <= sent.ready for end in ends):
            return super().decide_next()
        self._start(sent, call, heads := Heads())
        self._pair(call.rank.rank, heads)
        self._advance(heads)
        return True

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
        stuck = [[one for one in own.open.values() if one.awaited and one.end is None] for own in self.links.values()]
        waits = [self.wait_of(calls[0]) for calls in stuck if calls]
        return in_circle(waits, lines, finished or frozenset())  # a run says it, and by hand no sends wait
