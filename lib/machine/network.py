"""Who meets whom, and when: lanes, meetings, mailboxes, and the order in which waits end.

Every rank has a network lane (collectives and sends, one at a time, in the order issued) and a
receive lane. What is certain is decided at once. What depends on others (a receive from anyone,
the order of waits in a rank with several coroutines) is decided by ``settle`` when every
coroutine waits: then the earliest possible end of all is certain, because whatever happens
next happens after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from ..basics.errors import Deadlock, PuzzleError
from ..basics.units import Elements
from .collectives import RULES, Part
from .cost import Cost
from .in_flight import Flight, Meeting, Message
from .mesh import Group, Mesh
from .rank_state import Account
from .tensor_state import IN_FLIGHT


class Network:
    """The links between the ranks of one machine."""

    def __init__(self, mesh: Mesh, cost: Cost, values: Any, strict: bool) -> None:
        self.mesh, self.values, self.strict = mesh, values, strict
        self.accounts: dict[int, Account] = {}
        self.meetings: dict[tuple[object, ...], Meeting] = {}
        self.mailboxes: dict[int, dict[int, deque[Message]]] = {}
        self.collective = {kind: (cost.grains(kind), cost.grains(kind, across=True)) for kind in RULES}
        self.send = (cost.grains("pass_to"), cost.grains("pass_to", across=True))
        self.receive_time = cost.grains("receive")
        self.waits: list[tuple[int, int, int, Flight]] = []  # ends known, awaited in ranks with several coroutines
        self.candidates: list[tuple[int, int, int, Flight, int]] = []
        """(end, rank, version, receive, sender) of the receive that each rank could do next."""
        self.versions: dict[int, int] = {}

    # -- collectives --------------------------------------------------------------------

    def meet(self, flight: Flight, axis: str | None) -> None:
        """Join the next collective of the rank's group along an axis."""
        account = flight.account
        on_axis = account.meetings.get(axis)
        if on_axis is None:
            on_axis = account.meetings[axis] = [self.mesh.group(account.rank, axis), 0]
        group: Group = on_axis[0]
        op = (axis, group.ranks[0], on_axis[1])
        meeting = self.meetings.get(op)
        if meeting is None:
            meeting = self.meetings[op] = Meeting(group, flight.kind, flight.layer, op, flight)  # type: ignore[arg-type]
        elif self.strict and (meeting.kind != flight.kind or meeting.layer != flight.layer):
            raise _mismatch(meeting, flight)
        on_axis[1] += 1
        flight.meeting, flight.op = meeting, op
        meeting.flights[group.position[account.rank]] = flight

    def enqueue(self, flight: Flight) -> None:
        """Put a collective's call or a send into its rank's network lane."""
        lane = flight.account.lane
        lane.append(flight)
        if len(lane) == 1:
            self._advance(flight)

    def _advance(self, head: Flight) -> None:
        """A call has come to the head of its lane: start what can start, and what that lets start."""
        heads = [head]
        while heads:
            flight = heads.pop()
            account, meeting = flight.account, flight.meeting
            start = flight.issued if flight.issued > account.lane_free else account.lane_free
            if meeting is None:
                self._transmit(flight, start, heads)
                continue
            if start > meeting.start:
                meeting.start = start
            meeting.at_head += 1
            if meeting.at_head == len(meeting.flights):
                self._hold(meeting, heads)

    def _hold(self, meeting: Meeting, heads: list[Flight]) -> None:
        """Everyone is there: the collective takes place and ends everywhere at once."""
        del self.meetings[meeting.op]
        flights: list[Flight] = meeting.flights  # type: ignore[assignment]
        inputs: list[Part] = [(f.labels, f.operand.value) for f in flights]  # type: ignore[union-attr, misc]
        made_up = any([f.operand.made_up for f in flights])  # type: ignore[union-attr]
        try:
            outputs = RULES[meeting.kind](inputs, self.values, self.strict)
        except PuzzleError as error:
            error.where = f"{meeting.kind}(layer {meeting.layer}) of {meeting.group}"
            raise
        start = meeting.start
        end = start + self.collective[meeting.kind][meeting.group.across]
        memory: Elements = -1
        labels = None
        for flight, output in zip(flights, outputs, strict=True):
            account = flight.account
            flight.start, flight.end = start, end
            if output[0] is not labels:
                labels = output[0]
                memory = account.cost.elements(labels)
            flight.result, flight.result_memory = (output, made_up), memory
            account.lane_free = end
            lane = account.lane
            lane.popleft()
            if lane:
                heads.append(lane[0])
            if flight.waiter is not None:
                self._ended(flight)

    # -- point to point -----------------------------------------------------------------

    def _transmit(self, flight: Flight, start: int, heads: list[Flight]) -> None:
        """A send starts; it never waits for its receiver."""
        account, receiver = flight.account, flight.peer
        assert receiver is not None
        end = start + self.send[self.mesh.box(account.rank) != self.mesh.box(receiver)]
        flight.start, flight.end = start, end
        account.lane_free = end
        account.lane.popleft()
        if account.lane:
            heads.append(account.lane[0])
        entry = flight.operand
        box = self.mailboxes.setdefault(receiver, {}).setdefault(account.rank, deque())
        made_up = entry is not None and entry.made_up
        value = flight.result if entry is None else entry.value
        flight.result = None
        box.append(
            Message(end, account.rank, flight.op or (), flight.layer, flight.labels, value, flight.memory, made_up)
        )
        if flight.waiter is not None:
            self._ended(flight)
        self.deliver(receiver)

    def deliver(self, rank: int) -> None:
        """Mail or a receive is new at this rank: receive what is certain, else note what is possible."""
        account = self.accounts.get(rank)
        if account is None or not account.receives:
            return
        if len(account.receives) == 1 and not account.several:
            flight = account.receives[0]
            if flight.peer is not None and flight.waiter is not None:
                # The only coroutine waits for this sender: nothing can come in between.
                if self.mailboxes.get(rank, {}).get(flight.peer):
                    self._receive(account, flight, flight.peer)
                return
        self._note_candidate(account)

    def _note_candidate(self, account: Account) -> None:
        """Remember when the next receive of this rank could end, as things stand now."""
        version = self.versions[account.rank] = self.versions.get(account.rank, 0) + 1
        possible = self._next_receive(account) if account.receives else None
        if possible is not None:
            end, flight, sender = possible
            heappush(self.candidates, (end, account.rank, version, flight, sender))

    def _next_receive(self, account: Account) -> tuple[int, Flight, int] | None:
        """(end, receive, sender) of the receive that the lane serves next, if any can be.

        The lane serves in the order in which message and receive are both there; ties go to the
        earlier message, then to the lower sender; a message goes to the first receive that accepts it.
        """
        best: tuple[tuple[int, int, int], Flight] | None = None
        for sender, box in self.mailboxes.get(account.rank, {}).items():
            if not box:
                continue
            for flight in account.receives:
                if flight.peer is None or flight.peer == sender:
                    key = (max(flight.issued, box[0].arrival), box[0].arrival, sender)
                    if best is None or key < best[0]:
                        best = key, flight
                    break
        if best is None:
            return None
        (ready, _, sender), flight = best
        return max(ready, account.receive_free) + self.receive_time, flight, sender

    def _receive(self, account: Account, flight: Flight, sender: int) -> None:
        """The receive lane takes the next message of a sender."""
        message = self.mailboxes[account.rank][sender].popleft()
        account.receives.remove(flight)
        start = max(flight.issued, account.receive_free, message.arrival)
        flight.start, flight.end = start, start + self.receive_time
        account.receive_free = start + self.receive_time
        flight.peer, flight.op, flight.layer = sender, message.op, message.layer
        flight.labels, flight.memory, flight.message = message.labels, message.memory, message
        self._note_candidate(account)
        if flight.waiter is not None:
            self._ended(flight)

    # -- waiting ------------------------------------------------------------------------

    def wait(self, flight: Flight, waiter: Callable[[], None]) -> bool:
        """Whether the result can be fetched now; if not, ``waiter`` is called when it can."""
        account = flight.account
        flight.awaited = True
        if flight.end is not None:
            if not account.several:
                return True
            first = flight.waiter is None
            flight.waiter = waiter
            if first:
                self._ended(flight)
            return False
        flight.waiter = waiter
        if flight.kind == "receive" and flight.peer is not None and not account.several:
            self.deliver(account.rank)
            return flight.end is not None
        return False

    def _ended(self, flight: Flight) -> None:
        """The end of an awaited call is known: wake its waiter, at once if no other wait can come first."""
        account = flight.account
        if account.several:
            assert flight.end is not None
            heappush(self.waits, (max(flight.end, account.clock), account.rank, flight.number, flight))
        elif flight.waiter is not None:
            flight.waiter()

    def settle(self) -> bool:
        """Everyone waits: decide what ends first. False if nothing can be decided.

        A message that anyone sends from now on is there a send later at the earliest, so receives that
        are ready before that are certain as well, where the rank has no other coroutine to issue more.
        """
        while self.waits and self.waits[0][3].fetched:
            heappop(self.waits)
        first = self._first_candidate()
        if first is not None and (not self.waits or first <= self.waits[0][0]):
            certain = first + self.send[False] + self.receive_time
            while first is not None:
                _, rank, _, flight, sender = heappop(self.candidates)
                self._receive(self.accounts[rank], flight, sender)
                first = self._first_candidate()
                if first is None or first >= certain or self.accounts[self.candidates[0][1]].several:
                    break
            return True
        if self.waits:
            flight = heappop(self.waits)[3]
            waiter, flight.waiter = flight.waiter, None
            if waiter is not None:
                waiter()
            return True
        return False

    def _first_candidate(self) -> int | None:
        """The earliest end of a receive that could be next; drops what has changed since it was noted."""
        candidates = self.candidates
        while candidates and self.versions[candidates[0][1]] != candidates[0][2]:
            heappop(candidates)
        return candidates[0][0] if candidates else None

    def fetch(self, flight: Flight) -> Any:
        """The result of a call that has ended: the clock moves to its end. An Entry, or a plain value."""
        account = flight.account
        assert flight.end is not None
        if flight.end > account.clock:
            account.clock = flight.end
        flight.fetched = True
        del account.open[flight.number]
        now = len(account.log)
        overlapped = now > flight.index + 1
        entry, flight.operand = flight.operand, None
        if entry is not None and not overlapped and entry.flights is not None:
            entry.flights.remove(flight)
        if flight.meeting is not None:
            (labels, value), made_up = flight.result
            flight.result = None
            if overlapped:
                account.more.append((flight.index + 1, now, IN_FLIGHT, flight.result_memory))
            return account.mint(labels, value, made_up, flight.result_memory, issuer=flight.holder)
        message, flight.message = flight.message, None
        if message is None:
            return None
        account.received.append((message.arrival, now, message.memory))
        if message.labels is None:
            return message.value
        return account.mint(message.labels, message.value, message.made_up, message.memory, issuer=flight.holder)

    # -- what is left -------------------------------------------------------------------

    def forget(self, account: Account) -> None:
        """A rank starts anew (a cell run again): what it left behind is void."""
        for flight in account.open.values():
            if flight.meeting is not None:
                self.meetings.pop(flight.meeting.op, None)
        self.mailboxes.pop(account.rank, None)
        for boxes in self.mailboxes.values():
            boxes.pop(account.rank, None)

    def unfinished(self) -> PuzzleError | None:
        """A call never awaited or a message never received, at the end of a run."""
        for account in self.accounts.values():
            for flight in account.open.values():
                if not flight.awaited:
                    name = flight.kind if flight.layer is None else f"{flight.kind}(layer {flight.layer})"
                    return PuzzleError(
                        f"{name} was started and never awaited",
                        where=f"rank {account.rank}",
                        cure=f"await model.{flight.kind}(...), on the spot or later",
                        line="",
                    )
            for box in self.mailboxes.get(account.rank, {}).values():
                for message in box:
                    what = message.labels or repr(message.value)
                    return PuzzleError(
                        f"a message was sent and never received: {what}",
                        where=f"rank {message.sender} to rank {account.rank}",
                        cure=f"rank {account.rank} must await model.receive() once for every pass_to",
                        line="",
                    )
        return None

    def deadlock(self, finished: frozenset[int], lines: dict[int, str]) -> Deadlock:
        """The report of a machine in which nobody can go on. ``lines``: where each rank stands."""
        rows = []
        for rank, account in sorted(self.accounts.items()):
            waits = [str(flight) for flight in account.open.values() if flight.awaited and flight.end is None]
            line = f" [{lines[rank]}]" if lines.get(rank) else ""
            if waits:
                rows += [f"rank {rank} waits for {wait}{line}" for wait in waits[:3]]
            elif rank in finished:
                rows.append(f"rank {rank} has finished")
            else:
                rows.append(f"rank {rank} waits for something that no rank of this machine will do{line}")
        return Deadlock("deadlock: no rank can ever go on\n    " + "\n    ".join(rows), line="")


def _mismatch(meeting: Meeting, flight: Flight) -> PuzzleError:
    other = meeting.first
    return PuzzleError(
        f"rank {flight.account.rank} calls {flight.kind}(layer {flight.layer}) "
        f"where rank {other.account.rank} calls {other.kind}(layer {other.layer})",
        where=f"rank {flight.account.rank}, {flight.kind}(layer {flight.layer})",
        expected=f"all of {meeting.group} in the same collective for the same layer, in the same order",
        got=f"their collective number {meeting.op[2]} differs",
        cure="make every rank of the group call the same collectives in the same order",
    )
