"""Who meets whom, and when: links, meetings, mailboxes, and the order in which waits end.

Every rank has a network link for each tier of links (collectives and sends, one at a time, in the order issued; by
default there is one tier) and a receive link. What is certain is decided at once. What depends on others (a receive
from anyone, the order of waits in a rank with several coroutines) is decided by ``decide_next`` when every coroutine
waits: then the earliest possible end of all is certain, because whatever happens next happens after it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice, repeat
from operator import attrgetter, is_
from typing import Any, Protocol, cast

from ..basics.errors import Deadlock, Place, PuzzleError, show_call, show_layers
from ..basics.units import Elements
from ..record.kinds import IN_FLIGHT
from ..record.labels import Labels
from ..record.operations import Collective, Part
from ..record.table import RECEIVE, SEND
from . import deadlock
from .cost import Cost, TimeUnits
from .failure import Wait
from .in_flight import Exchange, InFlight, ListMember, Meeting, Member, Membership, Message, RankLinks
from .mesh import Axis, Mesh
from .rank_state import MADE_UP, RankState, Result, Results, TensorState, Terms


class Watcher(Protocol):
    """What is called when tensors can be moved: an engine whose ranks are processes moves real ones then."""

    def met(self, kind: str, calls: Sequence[InFlight], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Hear that a collective has taken place: its calls in group order, the labels of the input and of the output
        of each. In a collective of several layers these are lists of labels."""

    def received(self, sent: Message, call: Message) -> None:
        """Hear that a sent message has met its receive."""


Held = tuple[Sequence[Result | Results], Labels, Elements]
"""What each member of a collective gets, the labels of a tensor that one brings, and the elements of the largest that a
member brings or gets."""
# As functions of C: they are asked of every member of a group.
labels_and_value, origin_of, memory_of = attrgetter("labels", "value"), attrgetter("origin"), attrgetter("memory")


HELD: list[InFlight | None] = []  # the calls of all meetings that have been held


Heads = list[InFlight | Exchange]
"""What has come to the head of its link."""


class Network:
    """The links between the ranks of one machine."""

    pairs = False  # whether a message is received by the receive that it has found before it was sent
    wait_of: Callable[[Any], Wait] = staticmethod(InFlight.wait)  # gives the record of a call that has not ended

    def __init__(self, mesh: Mesh, terms: Terms, watcher: Watcher | None = None) -> None:
        self.mesh, self.terms, self.cost, self.watcher = mesh, terms, terms.cost, watcher
        self.one_by_one = type(terms.cost).taking_in is not Cost.taking_in  # to ask each time took a run 3 percent
        self.links: dict[int, RankLinks] = {}
        self.meetings: dict[tuple[object, ...], dict[int, Meeting]] = {}  # by axis and first rank, then by number
        self.mixed: list[Meeting] = []  # collectives that are not the same for all, and that no error has named yet
        self.mailboxes: dict[int, dict[int, deque[Message]]] = {}  # messages, as sends, by receiver and sender
        self.waits: list[tuple[TimeUnits, int, int, InFlight]] = []
        """Ends known, awaited in ranks with several coroutines: (end, rank, place in the log, call)."""
        self.candidates: list[tuple[TimeUnits, int, int, Message, int]] = []
        """(end, rank, version, receive, sender) of the receive that each rank could do next."""

    def open(self, rank: RankState) -> None:
        """Open a rank's links. What an earlier run of the cell left of them is void."""
        old = self.links.get(rank.rank)
        if old is not None:
            for call in old.open.values():
                if call.meeting is not None and call.end is None:
                    axis, first, number = call.meeting.op
                    self.meetings[axis, first].pop(cast(int, number), None)
            self.mailboxes.pop(rank.rank, None)
            for mailboxes in self.mailboxes.values():
                mailboxes.pop(rank.rank, None)
        self.links[rank.rank] = RankLinks(rank, self.mesh.host_of(rank.rank))

    # -- collectives --------------------------------------------------------------------

    def meet(
        self, links: RankLinks, row: Collective, layer: int | tuple[int, ...], axis: Axis, operand: Any
    ) -> InFlight:
        """Join the next collective of a rank's group along an axis, with a tensor or None, or one for each layer."""
        membership = links.memberships.get(axis)
        if membership is None:
            membership = links.memberships[axis] = self._join(links.rank.rank, axis)
        number = membership.issued
        meeting = membership.meetings.get(number)
        if meeting is None:
            group = membership.group
            op = (axis, group.ranks[0], number)
            meeting = membership.meetings[number] = Meeting(group, row, layer, op)
        elif meeting.row is not row or meeting.layer != layer:
            self._differs(meeting, layer)
        membership.issued = number + 1
        call: Member
        if isinstance(layer, tuple):
            call = ListMember(links, row.kind, layer, meeting, operand)
        else:
            call = Member(links, row.kind, layer, () if operand is None else (operand,), meeting)
        meeting.calls[membership.place] = call
        if membership.group.across:
            call.link = links.network[-1]
        queue = call.link.queue
        queue.append(call)
        if len(queue) == 1:
            self._advance([call])
        return call

    def _join(self, rank: int, axis: Axis) -> Membership:
        """Return what a rank is in its group along an axis."""
        group = self.mesh.group(rank, axis)
        return Membership(group, rank, self.meetings.setdefault((axis, group.ranks[0]), {}))

    def _differs(self, meeting: Meeting, layer: int | tuple[int, ...]) -> None:
        """Note that a group does not call the same. Where sets are not checked, only lists of other lengths matter."""
        if (self.terms.strict or _count(meeting.layer) != _count(layer)) and not meeting.mixed:
            meeting.mixed = True
            self.mixed.append(meeting)

    def _advance(self, heads: Heads) -> None:
        """Start calls that have come to the heads of their links, if they can start, and all that can start then."""
        while heads:
            call = heads.pop()
            meeting, free = call.meeting, call.link.free
            start = call.issued if call.issued > free else free
            if meeting is None:
                if isinstance(call, Exchange):
                    self._open(call, start, heads)
                else:
                    self._transmit(cast(Message, call), start, heads)
                continue
            if start > meeting.start:
                meeting.start = start
            meeting.at_head += 1
            if meeting.at_head == len(meeting.calls) and not meeting.mixed:
                self._hold(meeting, heads)

    def _hold(self, meeting: Meeting, heads: Heads) -> None:
        """Carry out a collective for which all ranks are ready. It ends on all of them at the same time."""
        axis, first, number = meeting.op
        del self.meetings[axis, first][cast(int, number)]
        row, calls = meeting.row, cast("list[Member]", meeting.calls)
        if isinstance(meeting.layer, tuple):
            results, labels, size = self._lists_result(meeting, meeting.layer, cast("list[ListMember]", calls))
        else:
            brought = [call.operands[0] if call.operands else None for call in calls]
            results, labels, size = self._result(meeting, meeting.layer, brought)
        took = self.cost.meeting(row.kind, labels, size, meeting.group)
        if self.cost.uneven is not None:
            took = self.cost.times(took, self.cost.uneven.of_sending(*meeting.group.ranks))
        end = meeting.start + took
        if self.watcher is not None:
            self.watcher.met(row.kind, calls, [call.brings for call in calls], [one.labels for one in results])
        meeting.calls = HELD  # from now on its members name the meeting, and it names none
        for call, result in zip(calls, results, strict=True):
            link = call.link
            call.end = link.free = end
            call.result = result
            queue = link.queue
            queue.popleft()
            if queue:
                heads.append(queue[0])
            if call.waiter is not None:
                self._ended(call)

    def _result(self, meeting: Meeting, layer: int, operands: Sequence[TensorState | None]) -> Held:
        """Return what comes of a collective of one layer. Raise PuzzleError where the tensors do not fit."""
        brought: Sequence[TensorState] = [one for one in operands if one is not None]
        if not brought:
            where, expected = _held_at(meeting, layer, Place()), "a tensor of one of them"
            raise PuzzleError(
                "nothing_brought", where=where, expected=expected, who="no rank brings", kind=meeting.row.kind
            )
        parts = iter(map(labels_and_value, brought))
        everyone: Sequence[Any] = (
            [*parts] if len(brought) == len(operands) else [one and next(parts) for one in operands]
        )
        try:
            outputs = self._outputs(meeting, everyone)
        except PuzzleError as error:
            error.place = _held_at(meeting, layer, error.place)
            error.operands = tuple([one.labels for one in brought])
            raise
        origin = MADE_UP if MADE_UP in map(origin_of, brought) else None
        shared = all(map(is_, outputs, repeat(outputs[0])))  # where everyone gets the same, it is made once
        results = [
            Result(labels, value, origin, self.cost.elements(labels))
            for labels, value in (outputs[:1] if shared else outputs)
        ]
        if self.cost.sent_as_stored:
            largest = max(max(map(memory_of, brought)), max(map(memory_of, results)))
        else:
            sent = self.cost.sent
            largest = max(max(sent(one.labels) for one in brought), max(sent(one.labels) for one in results))
        return results * len(outputs) if shared else results, brought[0].labels, largest

    def _outputs(self, meeting: Meeting, brought: Sequence[Part | None]) -> Sequence[Part]:
        """Return what each member gets, by the rule of the collective."""
        return meeting.row.result(brought, self.terms.values, self.terms.strict)

    def _lists_result(self, meeting: Meeting, layers: tuple[int, ...], calls: Sequence[ListMember]) -> Held:
        """Return what comes of a collective of several layers: each place follows its own rule, and sizes add up."""
        places = [self._result(meeting, layer, [call.brought[at] for call in calls]) for at, layer in enumerate(layers)]
        each = cast("Iterable[tuple[Result, ...]]", zip(*[results for results, _, _ in places], strict=True))
        return [Results.of(own) for own in each], places[0][1], sum(size for _, _, size in places)

    def _refuse_mixed(self) -> None:
        """End collectives that differ between members, each member's with an error, and so what stands behind them in a
        link. Nobody else will come any more."""
        for meeting in self.mixed:
            calls = [call for call in meeting.calls if call is not None]
            for call in calls:
                other = next(one for one in calls if one.what != call.what)
                one, two = sorted((call, other), key=lambda call: call.rank.rank)
                where = Place(call.rank.rank, call.kind, call.layer, tick=call.tick)
                expected = f"{meeting.group} call the same collectives, for the same layers, in the same order"
                got = f"number {meeting.op[2]} of their collectives, counted from 0, differs"
                facts: dict[str, Any] = {"one": one.rank.rank, "calls": show_call(*one.what)}
                facts |= {"other": two.rank.rank, "otherwise": show_call(*two.what)}
                error = PuzzleError("calls_differ", where=where, expected=expected, got=got, line="", **facts)
                error.entry = call.index
                queue = call.link.queue
                for ended in [one for one in islice(queue, queue.index(call), None) if isinstance(one, InFlight)]:
                    ended.result = ended.result or error
                    self._wake(ended)
        self.mixed.clear()

    # -- point to point -----------------------------------------------------------------

    def send(self, links: RankLinks, receiver: int, operand: TensorState | None, plain: object) -> Message:
        """Send a tensor, or a plain value where ``operand`` is None."""
        number = links.sent.get(receiver, 0)
        links.sent[receiver] = number + 1
        op = (links.rank.rank, receiver, number)
        call = Message(links, SEND.kind, receiver, op, () if operand is None else (operand,))
        call.value = plain
        if links.group is not None:
            links.group.append(call)
            return call
        if self.mesh.node(links.rank.rank) != self.mesh.node(receiver):
            call.link = links.network[-1]
        self._enqueue(call)
        return call

    def _transmit(self, call: Message, start: TimeUnits, heads: Heads) -> None:
        """Start a send that is first on its link, and here never waits for its receiver; or post a receive."""
        if not call.op:
            call.posted = start
            self._match(call.rank.rank)
            return
        self._go(call, start, heads)
        sender, receiver, _ = call.op
        self.mailboxes.setdefault(receiver, {}).setdefault(sender, deque()).append(call)
        self._match(receiver)

    def _go(self, call: Message, start: TimeUnits, heads: Heads) -> None:
        """Let a send go over its link."""
        sender, receiver, _ = call.op
        if call.with_host:
            end = start + self.cost.transfer_to_host(call.sent)
        else:
            across = self.mesh.node(sender) != self.mesh.node(receiver)
            took = self.cost.message(call.labels, call.sent, across, self.mesh.ranks)
            if self.cost.uneven is not None:
                took = self.cost.times(took, self.cost.uneven.of_sending(sender, receiver))
            end = start + took
        call.start, call.end = start, end
        call.link.free = end
        queue = call.link.queue
        queue.popleft()
        if queue:
            heads.append(queue[0])
        for tensor in call.operands:
            call.value, call.origin = tensor.value, tensor.origin
        if call.within is not None:
            self._over(call, heads)
        if call.waiter is not None:
            self._ended(call)

    def receive(self, links: RankLinks, src: int | None) -> Message:
        """Receive the next message, or the next from ``src``."""
        call = Message(links, RECEIVE.kind, src)
        links.receives.setdefault(src, deque()).append(call)
        if links.group is not None:
            links.group.append(call)
        else:
            self._post(call)
        return call

    def _post(self, call: Message) -> None:
        """Let a receive that was issued wait for its message."""
        call.posted = call.issued
        self._match(call.rank.rank)

    def group(self, rank: RankState, begins: bool) -> None:
        """Begin an exchange of a rank, or end it: what it has sent and received in between is one call."""
        links = self.links[rank.rank]
        parts, links.group = links.group, [] if begins else None
        if parts:
            nodes = {self.mesh.node(call.peer) for call in parts if call.peer is not None}
            self._enqueue(Exchange(links.network[-(nodes != {self.mesh.node(rank.rank)})], parts))

    def _enqueue(self, call: InFlight | Exchange) -> None:
        """Put a call into the queue of its link."""
        call.link.queue.append(call)
        if len(call.link.queue) == 1:
            self._advance([call])

    def _open(self, exchange: Exchange, start: TimeUnits, heads: Heads) -> None:
        """Begin an exchange that is first on its link: its sends come to their heads, and its receives are posted."""
        for lane in exchange.lanes.values():
            lane.free = start
            heads.append(lane.queue[0])
        for call in exchange.receives:
            self._transmit(call, start, heads)

    def _over(self, call: Message, heads: Heads) -> None:
        """Free the link of a receive that stood in its queue, or of an exchange after the last of its parts."""
        link, end, exchange = call.link, call.end or 0, call.within
        if exchange is not None:
            exchange.left -= 1
            link, end = exchange.link, max(exchange.end, end)
            exchange.end = end
        if exchange is None or not exchange.left:
            link.free = end
            link.queue.popleft()
            heads.extend([*link.queue][:1])

    def _match(self, rank: int) -> None:
        """Match messages and receives of a rank: at once if nothing can come in between, else as a candidate for
        ``decide_next``."""
        links = self.links.get(rank)
        if links is None or not links.receives:
            return
        if len(links.receives) == 1 and not links.rank.several:
            [(peer, queue)] = links.receives.items()
            call = queue[0]
            if len(queue) == 1 and peer is not None and call.waiter is not None and call.posted is not None:
                # The only coroutine waits for this sender: nothing can come in between.
                if (mailbox := self.mailboxes.get(rank, {}).get(peer)) and mailbox[0].end is not None:
                    self._receive(links, call, peer)
                return
        self._note_candidate(links)

    def _note_candidate(self, links: RankLinks) -> None:
        """Remember which receive of this rank could be next, and when it would end, as things stand now.

        The link serves in the order in which message and receive are both there; ties go to the earlier message, then
        to the lower sender; a message goes to the first receive that accepts it.
        """
        links.version += 1
        best: tuple[tuple[TimeUnits, TimeUnits, int], Message] | None = None
        for sender, mailbox in (self.mailboxes.get(links.rank.rank, {}) if links.receives else {}).items():
            if not mailbox or (arrival := mailbox[0].end) is None:
                continue
            call = mailbox[0].taker if self.pairs else links.first_receive(sender)
            if call is not None and call.posted is not None:
                key = (max(call.posted, arrival), arrival, sender)
                if best is None or key < best[0]:
                    best = key, call
        if best is not None:
            (ready, _, sender), call = best
            free = links.receive_free
            if self.one_by_one:
                free = self._arrived(links, self.mailboxes[links.rank.rank][sender][0])
            end = max(ready, free) + self.cost.receiving
            heappush(self.candidates, (end, links.rank.rank, links.version, call, sender))

    def _arrived(self, links: RankLinks, sent: Message) -> TimeUnits:
        """Return when a sent message is in, which comes after the one that its receiver has taken in before."""
        free = links.receive_free
        if self.one_by_one:
            free += self.cost.taking_in(sent.sent, self.mesh.node(sent.op[0]) != self.mesh.node(sent.op[1]))
        return max(free, sent.end or 0)

    def _receive(self, links: RankLinks, call: Message, sender: int) -> None:
        """Let a rank's receive link take the next message of a sender."""
        sent = self.mailboxes[links.rank.rank][sender].popleft()
        assert sent.end is not None and call.posted is not None
        queue = links.receives[call.peer]
        queue.remove(call)  # the first, unless it was found by another's message
        if not queue:
            del links.receives[call.peer]
        start, receiving = max(call.posted, links.receive_free, sent.end), self.cost.receiving
        end = (max(start, self._arrived(links, sent)) if self.one_by_one else start) + receiving
        # What comes in by itself does so while its receiver does something else.
        links.receive_free = end if receiving else self._arrived(links, sent)
        call.start, call.end = start, end
        call.peer, call.op, call.layer = sender, sent.op, sent.layer
        call.labels, call.memory, call.sent, call.message = sent.labels, sent.memory, sent.sent, sent
        call.with_host = sent.with_host
        if self.watcher is not None:
            self.watcher.received(sent, call)
        self._note_candidate(links)
        if call.waiter is not None:
            self._ended(call)
        if call.slot is not None:
            heads: Heads = []
            self._over(call, heads)
            self._advance(heads)

    # -- waiting ------------------------------------------------------------------------

    def wait(self, call: InFlight, waiter: Callable[[], None]) -> bool:
        """Return whether the result can be fetched now; if not, ``waiter`` is called when it can."""
        several = call.rank.several
        call.awaited = True
        if call.end is not None:
            if not several:
                return True
            first = call.waiter is None
            call.waiter = waiter
            if first:
                self._ended(call)
            return False
        if call.result is not None:
            return True  # the error in its place
        call.waiter = waiter
        if call.kind == RECEIVE.kind and call.peer is not None and not several:
            self._match(call.rank.rank)
            return call.end is not None
        return False

    def _ended(self, call: InFlight) -> None:
        """Wake what waits for a call whose end is known now: at once, if no other wait can end before it."""
        rank = call.rank
        if rank.several:
            assert call.end is not None
            heappush(self.waits, (call.end, rank.rank, call.index, call))
        elif call.waiter is not None:
            waiter, call.waiter = call.waiter, None
            waiter()

    def _wake(self, call: InFlight) -> None:
        """Let what waits for a call go on, once."""
        waiter, call.waiter = call.waiter, None
        if waiter is not None:
            waiter()

    def decide_next(self) -> bool:
        """Decide which wait ends first, when all coroutines wait. Return False if none can ever end.

        A message that anyone sends from now on is received a shortest transfer later at the earliest, so receives that
        are ready before that are certain as well, where the rank has no other coroutine to issue more.
        """
        if self.mixed:
            self._refuse_mixed()
            return True
        while self.waits and self.waits[0][3].fetched:
            heappop(self.waits)
        first = self._first_candidate()
        if first is not None and (not self.waits or first <= self.waits[0][0]):
            certain = first + self.cost.shortest_transfer
            while first is not None:
                _, rank, _, receive, sender = heappop(self.candidates)
                self._receive(self.links[rank], receive, sender)
                first = self._first_candidate()
                if first is None or first >= certain or self.links[self.candidates[0][1]].rank.several:
                    break
            return True
        if self.waits:
            self._wake(heappop(self.waits)[3])
            return True
        return False

    def _first_candidate(self) -> TimeUnits | None:
        """Return the earliest end of a receive that could be next; drop what has changed since it was noted."""
        candidates = self.candidates
        while candidates and self.links[candidates[0][1]].version != candidates[0][2]:
            heappop(candidates)
        return candidates[0][0] if candidates else None

    def fetch(self, call: InFlight) -> object:
        """Return the result of a call that has ended, a tensor or a plain value, and move the clock to its end."""
        links, end, index, result = call.links, call.end, call.index, call.result
        assert links is not None
        del links.open[index]
        if end is None:
            assert isinstance(result, PuzzleError)
            raise result
        rank = links.rank
        if end > rank.clock:
            rank.clock = end
        now = len(rank.log)
        rank.fetched.append(now)
        rank.fetched.append(index)
        if now == index + 1:  # nothing has happened meanwhile, so nobody will ask who carried it
            for carried in reversed(call.operands):
                if carried.carriers:
                    carried.carriers.pop()  # it is the last
                    if rank.carried and rank.carried[-1][0] is carried and not carried.carriers:
                        rank.carried.pop()
        call.operands, call.result = (), None
        if now > index + 1 and isinstance(result, (Result, Results)):
            rank.late.append((index + 1, now, IN_FLIGHT, result.memory, index))
        if isinstance(result, Result):
            return rank.mint(result.labels, result.value, result.origin, index, result.memory)
        if isinstance(result, Results):
            cast(ListMember, call).brought = ()
            return [rank.mint(one.labels, one.value, one.origin, index, one.memory) for one in result.each]
        message = cast(Message, call)
        sent, message.message = message.message, None
        if sent is None:  # it is a send itself
            return None
        assert sent.end is not None
        rank.received.append((sent.end, now, sent.memory, index))
        value, sent.value = sent.value, None  # with real tensors it is large, and a learner may keep the send
        return value if sent.labels is None else rank.mint(sent.labels, value, sent.origin, index, sent.memory)

    # -- what is left -------------------------------------------------------------------

    def unfinished(self) -> PuzzleError | None:
        """Return the error of a call never awaited or a message never received, at the end of a run."""
        for rank, links in sorted(self.links.items()):
            for call in links.open.values():
                if not call.awaited:
                    what = f"{call.kind}({call.peer})" if call.sends else show_call(*call.what)
                    error = PuzzleError("never_awaited", where=Place(rank, tick=call.tick), line="", call=what)
                    error.entry = call.index
                    return error
            for sender, mailbox in self.mailboxes.get(rank, {}).items():
                if mailbox:
                    message, where = mailbox[0], Place(sender, f"{SEND.kind}({rank})", tick=mailbox[0].tick)
                    what = str(message.labels or repr(message.value))
                    error = PuzzleError("never_received", where=where, line="", message=what)
                    error.entry = message.index
                    return error
        return None

    def deadlock(self, lines: Mapping[int, str], finished: frozenset[int] | None = None) -> Deadlock:
        """Return the report of a machine in which nobody can go on. ``lines``: where each rank stands."""
        ended = frozenset(self.links) - lines.keys() if finished is None else finished
        return deadlock.report(self.links, self.mailboxes, lines, ended)


def _held_at(meeting: Meeting, layer: int, place: Place) -> Place:
    """Return a place with what is known of a collective that cannot be held, because of the tensors of this layer."""
    first = cast(InFlight, meeting.calls[0])
    among = f", in one call for {show_layers(first.layers)}" if first.layers else ""
    detail = f"of {meeting.group}{among}"
    return place._replace(operation=meeting.row.kind, layer=layer, tick=first.rank.tick, detail=detail)


def _count(layer: int | tuple[int, ...]) -> int:
    """Return how many tensors a rank brings to a collective as a list; 0 if it brings one that is in no list."""
    return len(layer) if isinstance(layer, tuple) else 0
