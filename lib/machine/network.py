"""Who meets whom, and when: links, meetings, mailboxes, and the order in which waits end.

Every rank has a network link for each tier of links (collectives and sends, one at a time, in the order issued; by
default there is one tier) and a receive link. What is certain is decided at once. What depends on others (a receive
from anyone, the order of waits in a rank with several coroutines) is decided by ``decide_next`` when every coroutine
waits: then the earliest possible end of all is certain, because whatever happens next happens after it.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import islice, repeat
from operator import attrgetter, is_
from typing import Any, Protocol, cast

from ..basics.errors import NO_OTHERS, Deadlock, Fix, Place, PuzzleError, numbered, show_axis, show_call, show_layers
from ..basics.units import Elements
from ..record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ..record.kinds import IN_FLIGHT, KINDS
from ..record.labels import DEALT, Labels, same_pieces
from ..record.operations import Collective, Part
from ..record.table import RECEIVE, SEND, sums
from ..record.training import BACKWARD, FORWARD, LOSS
from .circle import Circle, after, against_rounds, carried, missing_send, send_to, unsent_of
from .cost import TimeUnits
from .in_flight import InFlight, ListMember, Meeting, Member, Membership, Message, RankLinks
from .mesh import Axis, Mesh
from .rank_state import MADE_UP, RankState, Result, Results, TensorState, Terms


class Watcher(Protocol):
    """Who wants to know when tensors can really move: an engine whose ranks are processes."""

    def met(self, kind: str, calls: Sequence[InFlight], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """A collective has taken place: its calls in group order, labels of what each of them brought, and of what it
        gets. In a collective of several layers each of these is a list of labels."""

    def received(self, sent: Message, call: Message) -> None:
        """A message has found its receive."""


Held = tuple[Sequence[Result | Results], Labels, Elements]
"""What each member of a collective gets, the labels of a tensor that one brings, and the elements of the largest that a
member brings or gets."""
# As functions of C: they are asked of every member of a group.
labels_and_value, origin_of, memory_of = attrgetter("labels", "value"), attrgetter("origin"), attrgetter("memory")


MOST_ROWS, ALIKE = 32, 4
"""Rows of a report of a deadlock, at most, and how many of them may differ by nothing but numbers: of more there is the
first, and the ranks of the others."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
HELD: list[InFlight | None] = []  # the calls of all meetings that have been held
EACH_ITS_OWN = "each rank brings a piece of its own: model.load_weights(layer, model.rank, model.RANKS)"
SHARD, CUT_ALONG = "shard", ("hybrid_sharded", "replica_sharded")
"""The axis along which weights are cut, and the layouts of puzzles in which they are."""
WHOLE_ALREADY = {
    "whole": "here each rank has all of the weight: use it as it is, without a gather",
    "states_sharded": "each rank has all of the weight, until it is updated: gather the pieces that update gives, "
    "await model.allgather(piece, layer)",
}
"""What to do about a gather in which a piece comes twice, and of whole weights by the layout of a puzzle."""


class Network:
    """The links between the ranks of one machine."""

    def __init__(self, mesh: Mesh, terms: Terms, watcher: Watcher | None = None) -> None:
        self.mesh, self.terms, self.cost, self.watcher = mesh, terms, terms.cost, watcher
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
            self._advance(call)
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

    def _advance(self, head: InFlight) -> None:
        """A call has come to the head of its network link: start what can start, and what that lets start."""
        heads = [head]
        while heads:
            call = heads.pop()
            meeting, free = call.meeting, call.link.free
            start = call.issued if call.issued > free else free
            if meeting is None:
                self._transmit(cast(Message, call), start, heads)
                continue
            if start > meeting.start:
                meeting.start = start
            meeting.at_head += 1
            if meeting.at_head == len(meeting.calls) and not meeting.mixed:
                self._hold(meeting, heads)

    def _hold(self, meeting: Meeting, heads: list[InFlight]) -> None:
        """Everyone is there: the collective takes place and ends everywhere at once."""
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
        axis = meeting.op[0]
        brought: Sequence[TensorState] = [one for one in operands if one is not None]
        if not brought:
            where = _held_at(meeting, layer, Place())
            raise PuzzleError("no rank brings a tensor", where=where, expected="a tensor of one of them")
        parts = iter(map(labels_and_value, brought))
        everyone: Sequence[Any] = (
            [*parts] if len(brought) == len(operands) else [one and next(parts) for one in operands]
        )
        try:
            outputs = self._outputs(meeting, everyone)
        except PuzzleError as error:
            error.place = _held_at(meeting, layer, error.place)
            plain = error.fix or self._which_axis(axis) or EACH_ITS_OWN * (meeting.row is ALLGATHER)
            if axis is not None:  # a rank's place in such a group is not its number
                place, size = f"model.axis_index({show_axis(axis)})", f"model.axis_size({show_axis(axis)})"
                plain = plain.replace("model.rank, model.RANKS", f"{place}, {size}")
            pieces = partial(
                _first_of, partial(self._pieces, meeting, layer, brought), _whole_already(meeting, brought)
            )
            others = {} if self.mesh.axes else dict(error.fix_for)  # setting a fix takes these away

            def otherwise() -> str:
                return (
                    _different_experts(meeting, layer, brought)
                    or pieces()
                    or _cut_by_place(meeting, layer, brought)
                    or _over_axes(meeting, layer, brought)
                    or _summed_before(meeting, layer, brought)
                    or plain
                )

            error.fix = otherwise
            error.fix_for = {name: partial(_first_of, pieces, own) for name, own in others.items()}
            if meeting.row is ALLGATHER and brought[0].labels.kind == "Weight" and brought[0].labels.is_whole():
                error.fix_for = {**error.fix_for, **WHOLE_ALREADY}
            if axis == SHARD:
                own = partial(_first_of, partial(_cut_along, meeting, layer, brought), otherwise)
                error.fix_for = {**error.fix_for, **dict.fromkeys(CUT_ALONG, own)}
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

    def _pieces(self, meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
        """Return what to do about a gather of weights in which a piece comes twice, by what the ranks have loaded; an
        empty text for another collective, and where they have loaded what they bring as they should."""
        labels = [one.labels for one in brought]
        if meeting.row is not ALLGATHER or any(one.kind != "Weight" or one.layer != layer for one in labels):
            return ""
        ranks = [one.rank for one in brought if one.rank is not None]
        loaded = [rank.has_brought_what_it_loaded(one.labels) for rank, one in zip(ranks, brought, strict=False)]
        axis, right = meeting.op[0], ranks[0].axis_of_pieces(layer, labels[0].adapter) if ranks else None
        if right is None or right == (axis or "") or any(one.is_whole() for one in labels):
            whole = [rank for rank, one in zip(ranks, labels, strict=False) if one.is_whole()]
            if whole and all(rank.has_gathered(labels[0].changed(shards=frozenset({0}), total=1)) for rank in whole):
                key = f"model.weights[{layer}]"
                return (
                    "it was gathered before, and is whole already: keep the piece that each rank has loaded, "
                    f"weight = await model.allgather({key}, {layer}), and store nothing else in {key}"
                )
            if any(loaded) or whole:
                return ""
        elif any(loaded):
            over = f"along axis={show_axis(right)}" if right else "over all ranks"
            call = f"await model.allgather(..., {layer}" + (f", axis={show_axis(right)})" if right else ")")
            pieces = [(one.shards, one.total) for one in labels]
            twice = next((one for one in pieces if pieces.count(one) > 1), pieces[0])
            same = numbered("rank", [rank.rank for rank, one in zip(ranks, pieces, strict=False) if one == twice])
            return f"{same} hold the same shard, as they have loaded it; the shards differ {over}: {call}"
        index = "model.rank, model.RANKS"
        if axis:
            index = f"model.axis_index({show_axis(axis)}), model.axis_size({show_axis(axis)})"
        fix = f"each rank of the group brings another piece of the whole weight: weight.shard({index})"
        for name, size in self.mesh.axes.items():
            places = [self.mesh.group(rank.rank, name).position[rank.rank] for rank in ranks]
            cuts = zip(labels, places, strict=False)
            if name != axis and all(one.shards == {at} and one.total == size for one, at in cuts):
                call = f'await model.allgather(..., {layer}, axis="{name}")'
                return f'these are cut along axis="{name}": gather them along it, {call}; or {fix}'
        return fix

    def _outputs(self, meeting: Meeting, brought: Sequence[Part | None]) -> Sequence[Part]:
        """Return what each member gets, by the rule of the collective."""
        return meeting.row.result(brought, self.terms.values, self.terms.strict)

    def _lists_result(self, meeting: Meeting, layers: tuple[int, ...], calls: Sequence[ListMember]) -> Held:
        """Return what comes of a collective of several layers: each place follows its own rule, and sizes add up."""
        places = [self._result(meeting, layer, [call.brought[at] for call in calls]) for at, layer in enumerate(layers)]
        each = cast("Iterable[tuple[Result, ...]]", zip(*[results for results, _, _ in places], strict=True))
        return [Results.of(own) for own in each], places[0][1], sum(size for _, _, size in places)

    def _which_axis(self, axis: object) -> str:
        """Return what to write where a mesh has axes, and none was named."""
        if axis is not None or not self.mesh.axes:
            return ""
        axes = " or ".join(f'axis="{name}"' for name in self.mesh.axes)
        return f"without an axis all ranks take part; name the one that is meant, {axes}"

    def _refuse_mixed(self) -> None:
        """End collectives that differ between members, each member's with an error, and so what stands behind them in a
        link. Nobody else will come any more."""
        for meeting in self.mixed:
            calls = [call for call in meeting.calls if call is not None]
            for call in calls:
                other = next(one for one in calls if one.what != call.what)
                one, two = sorted((call, other), key=lambda call: call.rank.rank)
                error = PuzzleError(
                    f"rank {one.rank.rank} calls {show_call(*one.what)} "
                    f"where rank {two.rank.rank} calls {show_call(*two.what)}",
                    where=Place(call.rank.rank, call.kind, call.layer, tick=call.tick),
                    expected=f"{meeting.group} call the same collectives, for the same layers, in the same order",
                    got=f"number {meeting.op[2]} of their collectives, counted from 0, differs",
                    fix=self._which_axis(meeting.op[0])
                    or _shared_over(meeting.op[0], one, two)
                    or _gone_past(calls)
                    or _same_for_all(one, two),
                    line="",
                )
                queue = call.link.queue
                for ended in [*islice(queue, queue.index(call), None)]:
                    ended.result = ended.result or error
                    waiter, ended.waiter = ended.waiter, None
                    if waiter is not None:
                        waiter()
        self.mixed.clear()

    # -- point to point -----------------------------------------------------------------

    def send(self, links: RankLinks, receiver: int, operand: TensorState | None, plain: object) -> Message:
        """Send a tensor, or a plain value where ``operand`` is None."""
        number = links.sent.get(receiver, 0)
        links.sent[receiver] = number + 1
        op = (links.rank.rank, receiver, number)
        call = Message(links, SEND.kind, receiver, op, () if operand is None else (operand,))
        call.value = plain
        if self.mesh.node(links.rank.rank) != self.mesh.node(receiver):
            call.link = links.network[-1]
        queue = call.link.queue
        queue.append(call)
        if len(queue) == 1:
            self._advance(call)
        return call

    def _transmit(self, call: Message, start: TimeUnits, heads: list[InFlight]) -> None:
        """A send starts; it never waits for its receiver."""
        links, receiver = call.links, call.peer
        assert links is not None and receiver is not None
        sender = links.rank.rank
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
        self.mailboxes.setdefault(receiver, {}).setdefault(sender, deque()).append(call)
        if call.waiter is not None:
            self._ended(call)
        self._match(receiver)

    def receive(self, links: RankLinks, src: int | None) -> Message:
        """Receive the next message, or the next from ``src``."""
        call = Message(links, RECEIVE.kind, src)
        links.receives.setdefault(src, deque()).append(call)
        self._match(links.rank.rank)
        return call

    def _match(self, rank: int) -> None:
        """Match messages and receives of a rank: at once if nothing can come in between, else as a candidate for
        ``decide_next``."""
        links = self.links.get(rank)
        if links is None or not links.receives:
            return
        if len(links.receives) == 1 and not links.rank.several:
            [(peer, queue)] = links.receives.items()
            call = queue[0]
            if len(queue) == 1 and peer is not None and call.waiter is not None:
                # The only coroutine waits for this sender: nothing can come in between.
                if self.mailboxes.get(rank, {}).get(peer):
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
            if not mailbox:
                continue
            arrival, call = mailbox[0].end, links.first_receive(sender)
            assert arrival is not None
            if call is not None:
                key = (max(call.issued, arrival), arrival, sender)
                if best is None or key < best[0]:
                    best = key, call
        if best is not None:
            (ready, _, sender), call = best
            end = max(ready, links.receive_free) + self.cost.receiving
            heappush(self.candidates, (end, links.rank.rank, links.version, call, sender))

    def _receive(self, links: RankLinks, call: Message, sender: int) -> None:
        """The receive link takes the next message of a sender."""
        sent = self.mailboxes[links.rank.rank][sender].popleft()
        assert sent.end is not None
        queue = links.receives[call.peer]
        queue.popleft()
        if not queue:
            del links.receives[call.peer]
        call.start = start = max(call.issued, links.receive_free, sent.end)
        call.end = links.receive_free = start + self.cost.receiving
        call.peer, call.op, call.layer = sender, sent.op, sent.layer
        call.labels, call.memory, call.sent, call.message = sent.labels, sent.memory, sent.sent, sent
        call.with_host, call.passed_on = sent.with_host, sent.passed_on
        if self.watcher is not None:
            self.watcher.received(sent, call)
        self._note_candidate(links)
        if call.waiter is not None:
            self._ended(call)

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
        """The end of an awaited call is known: wake its waiter, at once if no other wait can come first."""
        rank = call.rank
        if rank.several:
            assert call.end is not None
            heappush(self.waits, (call.end, rank.rank, call.index, call))
        elif call.waiter is not None:
            waiter, call.waiter = call.waiter, None
            waiter()

    def decide_next(self) -> bool:
        """Everyone waits: decide what ends first. Return False if nothing can be decided.

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
            call = heappop(self.waits)[3]
            waiter, call.waiter = call.waiter, None
            if waiter is not None:
                waiter()
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
        if isinstance(result, Result):
            if now > index + 1:
                rank.late.append((index + 1, now, IN_FLIGHT, result.memory, index))
            return rank.mint(result.labels, result.value, result.origin, index, result.memory)
        if isinstance(result, Results):
            if now > index + 1:
                rank.late.append((index + 1, now, IN_FLIGHT, result.memory, index))
            cast(ListMember, call).brought = ()
            each = [rank.mint(one.labels, one.value, one.origin, index, one.memory) for one in result.each]
            for number, tensor in enumerate(each):
                rank.owe((tensor,), index, number)
            return each
        return _fetched_message(rank, cast(Message, call))

    # -- what is left -------------------------------------------------------------------

    def unfinished(self) -> PuzzleError | None:
        """Return the error of a call never awaited or a message never received, at the end of a run."""
        for rank, links in sorted(self.links.items()):
            for call in links.open.values():
                if not call.awaited:
                    what = f"{call.kind}({call.peer})" if call.sends else show_call(*call.what)
                    problem = f"{what} was started and never awaited"
                    fix = f"await model.{call.kind}(...), on the spot or later"
                    return _left(call, PuzzleError(problem, where=Place(rank, tick=call.tick), fix=fix, line=""))
            for sender, mailbox in self.mailboxes.get(rank, {}).items():
                if mailbox:
                    problem = f"a message was sent and never received: {mailbox[0].labels or repr(mailbox[0].value)}"
                    sent = mailbox[0].labels
                    fix = f"rank {rank} must await model.receive() once for every pass_to"
                    if sent is not None and sent.kind == "ActivationGrad" and sent.layer < 0:
                        fix = "that is the gradient of the first input, which no layer has made: nobody needs it, so "
                        fix += "do not send what backward(layer 0) gives"
                    where = Place(sender, f"{SEND.kind}({rank})", tick=mailbox[0].tick)
                    return _left(mailbox[0], PuzzleError(problem, where=where, fix=fix, line=""))
        return None

    def deadlock(self, lines: Mapping[int, str], finished: frozenset[int] | None = None) -> Deadlock:
        """Return the report of a machine in which nobody can go on. ``lines``: where each rank stands."""
        ended = frozenset(self.links) - lines.keys() if finished is None else finished
        waiting = {
            rank: [call for call in links.open.values() if call.awaited and call.end is None]
            for rank, links in sorted(self.links.items())
        }
        stands: dict[str, list[int]] = {}  # ranks of which the same is to be said
        for rank, calls in waiting.items():
            line = f" [{lines[rank]}]" if lines.get(rank) else ""
            others = "finished" if rank in ended else f"something that no rank of this machine will do{line}"
            for what in [f"{call}{after(call)}{line}" for call in calls[:3]] or [others]:
                stands.setdefault(what, []).append(rank)
        alike: dict[str, list[str]] = {}  # what is to be said, by what it has in common but for its numbers
        for what, ranks in stands.items():
            place = f" [{lines.get(ranks[0], '')}]"
            alike.setdefault(_NUMBER.sub("0", what.removesuffix(place)) + place, []).append(what)
        rows = list[str]()
        for several in alike.values():
            shown = several if len(several) <= ALIKE else several[:1]
            rows += [_row(what, stands[what]) for what in shown]
            if more := {rank for what in several[len(shown) :] for rank in stands[what]}:
                rows.append(f"{len(more)} more, {numbered('rank', more)}, wait in the same way, each for its own")
        rows += self._unread()
        if len(rows) > MOST_ROWS:
            rows = [*rows[:MOST_ROWS], f"and {len(rows) - MOST_ROWS} more like these"]
        waits = [call for calls in waiting.values() for call in calls]
        senders = {call.rank.rank: call.peer for call in waits if call.peer is not None and not call.sends}
        order = against_rounds({rank: links.rank for rank, links in self.links.items()}, senders)
        fix, fix_for = self._way_out(waits, ended), {DEALT: order} if order else NO_OTHERS
        problem = "deadlock: no rank can ever go on\n    " + "\n    ".join(rows)
        deadlock = Deadlock(problem, fix=fix, fix_for=fix_for, line="")
        deadlock.lines = lines
        return deadlock

    def _unread(self) -> list[str]:
        """Return a row for each pair of ranks with messages that no receive has taken."""
        return [
            f"a message from rank {sender} to rank {rank} is not received yet: {carried(mailbox[0])}"
            if len(mailbox) == 1
            else f"{len(mailbox)} messages from rank {sender} to rank {rank} are not received yet, "
            f"first {carried(mailbox[0])}"
            for rank, mailboxes in sorted(self.mailboxes.items())
            for sender, mailbox in sorted(mailboxes.items())
            if mailbox
        ]

    def _way_out(self, waits: Sequence[InFlight], ended: frozenset[int]) -> str:
        """Return what may be done about a deadlock in which ranks wait for these calls, and others have ended."""
        for call in waits:
            if gone := ended.intersection(call.missing()):
                idle = [rank for rank in ended if rank in self.links and not self.links[rank].rank.layers_loaded()]
                if set(idle) & gone and any(links.rank.layers_loaded() for links in self.links.values()):
                    nothing = (
                        f"{numbered('rank', idle)} {'has' if len(idle) == 1 else 'have'} loaded no layer, and so have "
                    )
                    nothing += "done nothing: is their list of layers empty? "
                    stage = "With several pipelines it begins with the stage, and not with model.rank"
                    return f"{nothing}{stage if self.mesh.axes else 'Each rank has a share of model.LAYERS'}"
                have = "has" if len(gone) == 1 else "have"
                return (
                    f"{numbered('rank', gone)} {have} finished without {call.kind}: every rank of the group calls it, "
                    "also one that has nothing to add"
                )
        receives = [call for call in waits if not call.sends and call.group is None]
        if len(receives) < len(waits) and (astray := self._not_for_it(receives, of_its_stage=True)):
            return astray
        if elsewhere := next(filter(None, map(self._sent_by_another, receives)), ""):
            return elsewhere
        if len(receives) < len(waits) and (astray := self._astray(receives)):
            return astray
        if quiet := ended.intersection(call.peer for call in receives if call.peer is not None):
            have = "has" if len(quiet) == 1 else "have"
            fix = f"{numbered('rank', quiet)} {have} finished without the pass_to that others wait for"
            return fix + next(filter(None, [self._one_more(call) for call in receives if call.peer in quiet]), "")
        by_rank = {call.rank.rank: call for call in reversed(waits)}
        if receives and any(call.group for call in waits):
            return self._of_other_copy(receives) or _both_ways(receives, by_rank)
        if any(call.missing() for call in waits):
            return "let every rank of the group call the same collectives in the same order"
        if len(receives) == len(waits) > 1 and not any(links.sent for links in self.links.values()):
            first = unsent_of(receives) or [Circle(receives, self.links, self.mailboxes).no_input()]
            first = ["all wait to receive, and nobody has sent: some rank has to send before it receives", *first]
            if self.mesh.hosts:
                first.append("a device sends gradients, model.pass_to(model.host, grad), and its host updated weights")
            return "; ".join(filter(None, first))
        if receives:
            return missing_send(receives, self.links, self.mailboxes, self._astray, self._one_more)
        return "" if waits else "a Future, an Event or a Queue of your own has to be set by a rank that still runs"

    def _of_other_copy(self, receives: Sequence[InFlight]) -> str:
        """Return what to do about messages to a rank that takes these from another one, while a rank that has the same
        layer waits for that one, which sends it nothing: stages of several pipelines are mixed up; or an empty text."""
        for receiver, mailboxes in sorted(self.mailboxes.items()):
            for sender, mailbox in sorted(mailboxes.items()):
                labels = mailbox[0].labels if mailbox else None
                if labels is None or not KINDS[labels.kind].by_batch or receiver not in self.links:
                    continue
                calls = [
                    call
                    for call in receives
                    if call.peer not in (None, sender)
                    and call.peer in self.links
                    and call.rank.rank != receiver
                    and call.rank.has_loaded(labels.layer)
                    and self.links[receiver].rank.has_loaded(labels.layer)
                    and self.links[call.peer].sent.get(receiver)
                    and not self.links[call.peer].sent.get(call.rank.rank)
                ]
                if calls:
                    call = min(calls, key=lambda one: abs(one.rank.rank - sender))
                    right, peer = call.rank.rank, call.peer
                    sent = (
                        f"rank {sender} has sent {carried(mailbox[0])} to rank {receiver}, which has its own from rank "
                    )
                    sent += (
                        f"{peer}, and rank {right}, with the same layer, waits for rank {peer}. Each pipeline has its "
                    )
                    sent += f"own neighbors: await model.pass_to({right}, ...) on rank {sender}, and await "
                    return f"{sent}model.receive(src={sender}) on rank {right}"
        return ""

    def _one_more(self, call: InFlight) -> str:
        """Return how often the sender that a receive waits for has sent already, if it has."""
        rank, peer = call.rank.rank, call.peer
        sent = self.links[peer].sent.get(rank, 0) if peer in self.links else 0
        many = "once" if sent == 1 else f"{sent} times"
        return f"; rank {peer} has sent to rank {rank} {many}, which waits for one more" if sent else ""

    def _sent_by_another(self, call: InFlight) -> str:
        """Return what to do about a receive from a rank that has sent nothing, while another one's messages have never
        been received; an empty text where that is not so."""
        rank, peer = call.rank.rank, call.peer
        if peer is None or peer not in self.links or self.links[peer].sent.get(rank):
            return ""
        for sender, mailbox in sorted(self.mailboxes.get(rank, {}).items()):
            if mailbox and len(mailbox) == self.links[sender].sent[rank]:
                right = mailbox[0].labels is None or self.links[rank].rank.has_loaded(mailbox[0].labels.layer)
                for other, links in sorted(self.links.items()):
                    if not right and sender in links.receives and not self.links[sender].sent.get(other):
                        have = f"rank {other} waits for rank {sender}, which has sent to rank {rank}"
                        return f"{have}: await model.pass_to({other}, ...) on rank {sender}"
                have = f"rank {sender} has sent to rank {rank}, and rank {peer} has not"
                return f"{have}: await model.receive(src={sender}) on rank {rank}"
        return ""

    def _is_what_it_needs(self, call: InFlight, sent: Message) -> bool:
        """Return whether a message is a gradient for a layer that the receiving rank has run, and that the rank from
        which it wants to receive cannot have."""
        labels, peer = sent.labels, self.links[call.peer].rank if call.peer is not None else None
        if labels is None or peer is None or labels.kind != "ActivationGrad":
            return False
        after = peer.has_run(FORWARD.kind, labels.layer + 1)
        return labels.batches <= call.rank.has_run(FORWARD.kind, labels.layer) and not labels.batches <= after

    def _astray(self, receives: Sequence[InFlight]) -> str:
        """Return what to do about a message that no receive has taken: its receiver needs it and waits for another
        rank, or it has gone to a rank of the sender's own stage, or it is the gradient of a layer that its receiver has
        not run; an empty text where there is none. ``receives``: those for which ranks wait."""
        for wait in receives:
            to, peer = wait.rank.rank, wait.peer
            for sender, mailbox in sorted(self.mailboxes.get(to, {}).items()):
                if mailbox and peer in self.links and self._is_what_it_needs(wait, mailbox[0]):
                    have = f"rank {sender} has sent {carried(mailbox[0])} to rank {to}, which waits for rank {peer}"
                    return f"{have}: await model.receive(src={sender}) on rank {to}"
        return self._not_for_it(receives)

    def _not_for_it(self, receives: Sequence[InFlight], of_its_stage: bool = False) -> str:
        """Return what to do about a message that no receive has taken, and that its receiver cannot use: it has run the
        layer itself that made this, or is to get the gradient of a layer that it has not run; an empty text where there
        is none. ``of_its_stage``: the first of these alone."""
        left = [(sender, receiver) for receiver, mailboxes in self.mailboxes.items() for sender in mailboxes]
        for sender, receiver in sorted(left):
            mailbox = self.mailboxes[receiver][sender]
            labels = mailbox[0].labels if mailbox else None
            if labels is None or not KINDS[labels.kind].by_batch or receiver not in self.links:
                continue
            reads, rank = labels.layer, self.links[receiver].rank
            made = reads + 1 if labels.kind == "ActivationGrad" else reads - 1
            too, useless = rank.has_run(FORWARD.kind, made), labels.kind == "ActivationGrad"
            if rank.has_run(FORWARD.kind, reads) or not (too or (useless and not of_its_stage)):
                continue
            runs = f"runs layer {made} too" if too else f"does not run layer {reads}"
            waits = next((call.rank.rank for call in receives if call.peer == sender), None)
            if waits is not None:
                return send_to(sender, carried(mailbox[0]), receiver, runs, waits)
            sent = f"rank {sender} has sent {carried(mailbox[0])} to rank {receiver}, which {runs}"
            if too and (stage := self._stage_of(made)):
                return f"{sent}: {stage}"
            right = f"send it to the rank that runs layer {reads} on {numbered('micro-batch', labels.batches)}"
            return f"{sent}: {right}, and let that one receive from rank {sender}"
        return ""

    def _stage_of(self, layer: int) -> str:
        """Return how the ranks of a stage send to those of the next one, where their numbers follow one another;
        an empty text where they have not."""
        ranks = [one for one, links in sorted(self.links.items()) if links.rank.has_run(FORWARD.kind, layer)]
        many = len(ranks)
        if many < 2 or ranks[-1] - ranks[0] != many - 1 or self.mesh.ranks % many:
            return ""
        stages = self.mesh.ranks // many
        number = f"for neighbors to be on different stages, let model.rank % {stages} be the stage, and "
        number += f"model.rank // {stages} the pipeline"
        steps = f"send to model.rank + {many}, receive from model.rank - {many}, and gradients the other way round"
        return f"{numbered('rank', ranks)} are all on that stage: {number}; or {steps}"


def _left(call: InFlight, error: PuzzleError) -> PuzzleError:
    """Return the error of a call that is left over, which then names the place of that call."""
    error.entry = call.index
    return error


def _row(what: str, ranks: Sequence[int]) -> str:
    """Return what some ranks wait for, as a row of the report of a deadlock."""
    one, who = len(ranks) == 1, numbered("rank", ranks)
    if what == "finished":
        return f"{who} {'has' if one else 'have'} finished"
    return f"{who} {'waits' if one else 'wait'} for {what}"


def _first_of(known: Fix, otherwise: Fix) -> str:
    """Return the first of two fixes that says something."""
    return _text(known) or _text(otherwise)


def _cut_along(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return how weights are loaded that are gathered over an axis, where they are cut along another one; an empty text
    where they are not."""
    first, axis = brought[0], meeting.op[0]
    if meeting.row is not ALLGATHER or first.labels.kind != "Weight" or first.rank is None:
        return ""
    if first.rank.axis_of_pieces(layer) in (None, axis):
        return ""
    piece = f"model.load_weights({layer}, model.axis_index({show_axis(axis)}), model.axis_size({show_axis(axis)}))"
    return f"here the ranks along axis={show_axis(axis)} have the pieces of a weight: each loads its own, {piece}"


def _text(fix: Fix) -> str:
    return fix() if callable(fix) else fix


def _whole_already(meeting: Meeting, brought: Sequence[TensorState]) -> str:
    """Return what to do about a sum of activations, or of their gradients, that are whole already; an empty text for
    others."""
    first, labels = brought[0], brought[0].labels
    if not sums(meeting.row.kind) or not KINDS[labels.kind].by_batch or labels.extra.of != 1 or labels.total != 1:
        return ""
    if first.brought:
        enough = "model.allreduce adds up, model.scatterreduce adds up and cuts, and one of the two is enough"
        return f"a call has given all of it already: {enough}"
    if labels.kind == "ActivationGrad" and labels.layer == labels.layers - 1:
        return "model.loss gives all of it, on every rank: use it as it is"
    return ""


def _summed_before(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return what to do about a reduction in which the micro-batch of a gradient comes twice, by what the ranks have
    run; an empty text for another one, and where a rank brings what has been summed before."""
    ranks = [(one.rank, one.labels) for one in brought if one.rank is not None and one.labels.kind == "WeightGrad"]
    if not sums(meeting.row.kind) or any(one.layer != layer for _, one in ranks):
        return ""
    summed = not all(one.batches <= rank.with_gradients(layer) for rank, one in ranks)
    if summed and meeting.op[0] and (over_all := ranks[0][0].summed_over_all(layer)):
        return over_all
    seen, twice = set[int](), set[int]()
    for _, one in ranks:
        twice |= seen & one.batches
        seen |= one.batches
    return ranks[0][0].runs_too(layer, frozenset(twice)) if twice else ""


def _different_experts(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return what to do about gradients of different experts that are to be summed; an empty text for others."""
    labels = [one.labels for one in brought]
    rank = brought[0].rank
    if rank is None or not sums(meeting.row.kind) or any(one.kind != "WeightGrad" or not one.batches for one in labels):
        return ""
    alike = all(same_pieces(one, labels[0]) for one in labels)
    return "" if alike else rank.different_experts(layer)


def _held_at(meeting: Meeting, layer: int, place: Place) -> Place:
    """Return a place with what is known of a collective that cannot be held, because of the tensors of this layer."""
    first = cast(InFlight, meeting.calls[0])
    among = f", in one call for {show_layers(first.layers)}" if first.layers else ""
    detail = f"of {meeting.group}{among}"
    return place._replace(operation=meeting.row.kind, layer=layer, tick=first.rank.tick, detail=detail)


def _cut_by_place(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return how gradients are cut that are summed over an axis, where each rank has cut its own by its place along
    that axis, or by its number; an empty text for others."""
    axis, rank = cast(Axis, meeting.op[0]), brought[0].rank
    mine = [(one.rank.rank, one.labels) for one in brought if one.rank is not None and one.labels.kind == "WeightGrad"]
    others = [] if rank is None else [name for name in rank.mesh.axes if name not in rank.mesh.names(axis)]
    if (
        meeting.row is not ALLREDUCE
        or rank is None
        or not axis
        or not others
        or len(mine) < len(brought)
        or rank.is_cut(layer)
    ):
        return ""
    position, size = rank.mesh.group(rank.rank, axis).position, rank.mesh.along(axis)
    by = ""
    if all(one.shards == {position[number]} and one.total == size for number, one in mine):
        by = f"its place along axis={show_axis(axis)}"
    if all(one.shards == {number} and one.total == rank.mesh.ranks for number, one in mine):
        by = "its number among all ranks"
    if not by:
        return ""
    other = next((name for name in others if name in rank.summed_over(layer, meeting.op)), others[-1])
    same = f"{numbered('rank', [number for number, _ in mine])} are to bring the same piece, and each is cut by {by}"
    cut = f"cut by model.axis_index({show_axis(other)}), model.axis_size({show_axis(other)})"
    return (
        f"{same}: {cut}; or let one call sum and cut, grad = await model.scatterreduce(grad, {layer}, "
        f"axis={show_axis(other)})"
    )


def _over_axes(meeting: Meeting, layer: int, brought: Sequence[TensorState]) -> str:
    """Return over which axis gradients are to be summed or gathered that another collective has brought; an empty text
    for other tensors, and where that is not known."""
    first = brought[0]
    rank = first.rank
    if rank is None or not all(one.brought and one.labels.kind == "WeightGrad" for one in brought):
        return ""
    axis, kind = cast(Axis, meeting.op[0]), meeting.row.kind
    sums = [one.rank.summed_over(layer, meeting.op) for one in brought if one.rank is not None]
    done = [over for over in sums[0] if all(over in others for others in sums)]
    if meeting.row is ALLGATHER:
        return _gathered(rank, axis, layer, brought, sums, done)
    if None in done:
        if part := rank.summed_in_part(layer, first.labels):
            return part
        if axis and (summed := rank.summed_over_all(layer)):
            return summed
        again = f"the gradient of layer {layer} has been summed over all ranks already: reduce each gradient once"
        return f'{again}; or is the call before this one to have an axis="..." of its own?' if axis else again
    left = [one for one in rank.mesh.axes if one not in rank.mesh.among(done)]
    if (
        done
        and not left
        and axis in done
        and meeting.row is SCATTERREDUCE
        and not rank.has_cut_over(layer, axis, meeting.op)
    ):
        over = f"the gradient of layer {layer} has been summed over axis={show_axis(axis)} before: sum once over each "
        over += "axis"
        return f"{over}, so leave one of these two calls out"
    if done and not left:
        again = f"the gradient of layer {layer} has been summed over all axes already"
        if first.labels.is_whole():
            return f"{again}: reduce each gradient once over each"
        return (
            f"{again}, and is in pieces: join them, grad = await model.allgather(grad, {layer}{rank.last_cut(layer)})"
        )
    if not done or {*rank.mesh.names(axis)} <= {*left}:
        return ""  # it is the right sum, of the wrong micro-batches
    fix = f"these are sums over {_axes(done)} already: one of these two calls is too many, and what is left is the sum "
    fix += f"over {_axes(left)}, "
    verb = kind if first.labels.is_whole() else ALLREDUCE.kind
    return f"{fix}in which every rank takes part: await model.{verb}(grad, {layer}, axis={show_axis(left[0])})"


def _gathered(
    rank: RankState,
    axis: object,
    layer: int,
    brought: Sequence[TensorState],
    sums: Sequence[Collection[object]],
    done: Collection[object],
) -> str:
    """Return what is wrong with a gather of gradients, over an axis. ``sums``: over which axes each was summed before;
    ``done``: over which all of them."""
    over = rank.last_cut(layer)
    if len({one.labels.batches for one in brought}) > 1:
        if axis and axis not in done and not over and all(axis not in own for own in sums):
            sums_and_cuts = f"grad = await model.scatterreduce(grad, {layer}, axis={show_axis(axis)})"
            missing = f"these are not summed over axis={show_axis(axis)} yet"
            return f"{missing}: {sums_and_cuts} sums and cuts before that; shard only cuts"
        ranks = [one.rank.rank for one in brought if one.rank is not None]
        by_rank = dict(zip(ranks, sums, strict=True))
        some = [one for one in rank.mesh.axes if 0 < sum(one in own for own in by_rank.values()) < len(by_rank)]
        if not some:
            return ""
        only = [one for one, own in by_rank.items() if some[0] in own]
        return f"only {numbered('rank', only)} took part in the sum over {_axes(some)}: let every rank do so"
    if not over or over == f", axis={show_axis(axis)}":
        return ""
    cut = f"scatterreduce has cut the gradient{over.replace(', ', ' over ')}, so these ranks hold the same piece"
    return f"{cut}: gather it over the same axis, await model.allgather(grad, {layer}{over})"


def _axes(names: Iterable[object]) -> str:
    return " and ".join(f"axis={show_axis(name)}" for name in names)


def _count(layer: int | tuple[int, ...]) -> int:
    """Return how many tensors a rank brings to a collective as a list; 0 if it brings one that is in no list."""
    return len(layer) if isinstance(layer, tuple) else 0


def _fetched_message(rank: RankState, call: Message) -> object:
    """Return what a receive has brought its rank; None of a send."""
    sent, call.message = call.message, None
    if sent is None:
        return None
    assert sent.end is not None
    rank.received.append((sent.end, len(rank.log), sent.memory, call.index))
    value, sent.value = sent.value, None  # with real tensors it is large, and a learner may keep the send
    return value if sent.labels is None else rank.mint(sent.labels, value, sent.origin, call.index, sent.memory)


def _shared_over(axis: object, one: InFlight, two: InFlight) -> str:
    """Return over which axis ranks share the layers that they bring to a collective over another one; or nothing."""
    rank, other = one.rank, two.rank
    if one.kind != two.kind or one.layer is None or two.layer is None or rank.has_loaded(two.layer):
        return ""
    right = rank.axis_of_pieces(one.layer)
    if axis is None or right == axis or other.has_loaded(one.layer):
        return ""
    if right:
        have = f"ranks along axis={show_axis(axis)} have different layers, and those along axis={show_axis(right)} "
        have += "share them"
        return f"{have}: await model.{one.kind}(..., {one.layer}, axis={show_axis(right)})"
    own = f"rank {rank.rank} has loaded layer {one.layer}, and rank {other.rank} layer {two.layer}"
    return f"{own}: ranks that meet along axis={show_axis(axis)} work on the same layers"


def _gone_past(calls: Sequence[InFlight]) -> str:
    """Return what to do about a collective that some ranks of a group call while the others are in a sum of gradients
    that comes to these later; an empty text for other calls."""
    for call in calls:
        ahead = [one for one in calls if sums(one.kind) and one.labels and one.labels.kind == "WeightGrad"]
        if sums(call.kind) or not ahead or ahead[0].layer is None or len({one.what for one in calls}) != 2:
            continue
        done = [len(one.rank.has_run(BACKWARD.kind, ahead[0].layer)) for one in (call, ahead[0])]
        if done[0] < done[1]:
            alone = [one.rank.rank for one in calls if one.what == call.what]
            past = [one.rank.rank for one in calls if one.what != call.what]
            goes = "goes" if len(past) == 1 else "go"
            last = ", each at its own last micro-batch" * (done[1] > 1)
            who, others = numbered("rank", alone), numbered("rank", past)
            return (
                f"only {who} call{'s' * (len(alone) == 1)} {show_call(*call.what)}, and {others} {goes} past it: "
                f"a condition above it is true on {who} only. Make it true on every rank{last}"
            )
    return ""


def _same_for_all(one: InFlight, two: InFlight) -> str:
    """Return what to do about two ranks of a group that are in different collectives."""
    if one.kind == two.kind and (one.layers or two.layers):
        return "every rank brings a list of the same layers in the same order; a list meets lists only"
    alone = [call for call in (one, two) if call.layer is not None and not call.rank.others_have(call.layer)]
    if one.kind == two.kind and sums(one.kind) and len(alone) == 2:
        layers = " and ".join(f"layer {call.layer}, rank {call.rank.rank}" for call in alone)
        return f"each has its layer for itself ({layers}): no other rank has a gradient to add, so leave the sum out"
    if one.kind == two.kind:
        return "do the layers in the same order on every rank, whatever its number, and below no `if` of a rank"
    return (
        "every rank takes part in every collective of its group, in the same order; one that has nothing to add to a "
        "sum brings model.fake_grad(layer, [])"
    )


def _both_ways(receives: Sequence[InFlight], waits: Mapping[int, InFlight]) -> str:
    """Return what to do where some ranks wait for a message, and others in a collective."""
    for call in receives:
        other = None if call.peer is None else waits.get(call.peer)
        if other is not None and call.rank.rank in other.missing():
            rank, verb = call.rank.rank, show_call(*other.what)
            waits_for = f"rank {rank} waits for a message of rank {call.peer}, which waits in {verb} for rank {rank}: "
            if unsent := unsent_of([other]):
                ends = (
                    f". If the layers of rank {call.peer} end there, it sends that before this collective. If they go "
                )
                ends += f"on, rank {rank} waits too soon: its own layers begin where those of rank {call.peer} end"
                return waits_for + unsent[0] + ends
            last = call.rank.layers - 1
            if call.rank.has_run(FORWARD.kind, last) - call.rank.has_run(LOSS.kind, last + 1):
                makes = f"rank {rank} has run the last layer, {last}: model.loss makes the first gradient there"
                none = [one.rank for one in call.rank.ranks.values() if not one.layers_run() and not one.is_host]
                too = f"; {numbered('rank', none)} {'has' if len(none) == 1 else 'have'} run no layer: are all layers "
                return waits_for + makes + (too + "divided among all stages, with none twice?") * bool(none)
            if backward := _in_forward_order(call.rank, other.layer):
                return waits_for + backward
            begun = bool(call.rank.layers_run())
            turn = "in the backward pass, of the last layer" if begun else "of the first layer"
            no_input = "; and a rank whose own first layer is 0 receives nothing there: its input is "
            no_input += "model.get_activation(...)"
            ranks = call.rank.mesh.ranks
            if other.layer == 0 and call.rank.layers < ranks < 2 * len(receives):
                no_input += f" (model.LAYERS // model.RANKS would be 0 here, {call.rank.layers} // "
                no_input += f"{call.rank.mesh.ranks}: a stage has model.LAYERS // stages layers)"
            return (
                f"{waits_for}receive only after the collectives that the sender joins before it sends, also those of "
                f"layers that this rank does not run; in a loop over all layers that is in the turn {turn} of your own"
                + no_input
                * (not begun)
            )
    return "some wait in a collective, others for a message: let all ranks do both in the same order"


def _in_forward_order(rank: RankState, layer: int | None) -> str:
    """Return what to do where a rank has come back to a layer for its backward, and no rank has run the backward of the
    next layer; an empty text where that is not so."""
    if layer is None or layer + 1 >= rank.layers or not rank.has_run(FORWARD.kind, layer):
        return ""
    if any(one.has_run(BACKWARD.kind, layer + 1) for one in rank.ranks.values()):
        return ""
    return "the backward of the layers goes from the last one down to the first, reversed(range(model.LAYERS))"
