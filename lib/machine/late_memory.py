"""Settling a rank's log: times of calls and memory that are known only afterwards.

What a sample held besides stored tensors and operands (calls in flight, the inbox, what another coroutine
had in hand) depends on ends that lie in its future, so it is added when the log is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import add

from ..basics.units import Elements
from ..record.events import MARKS, MEMORY_KINDS, Event, make_event
from .rank_state import END, Account
from .tensor_state import IN_FLIGHT, INBOX, Entry

HELD = Event._fields.index("held")
Span = tuple[int, int, int, Elements]
"""(first sample, sample after the last, slot, elements)"""


def settled_events(account: Account) -> list[Event]:
    """The log, settled: calls whose times are known, and memory that is known only now."""
    more = _more_memory(_spans(account))
    loose = _more_memory(account.kept_loose)
    settled = []
    for index, record in enumerate(account.log):
        event = record if record.__class__ is Event else record.event()  # type: ignore[union-attr]
        if event is not None:
            held = event.held
            if index in more:
                held = tuple(map(add, held, more[index]))
            if index in loose and event.kind not in MARKS:  # marks see stored tensors only
                held = tuple(map(add, held, loose[index]))
            if held is not event.held:
                event = make_event((*event[:HELD], held, *event[HELD + 1 :]))
            settled.append(event)
    return settled


def _more_memory(spans: Iterable[Span]) -> dict[int, list[Elements]]:
    """By sample, what it held besides stored tensors and operands, by kind.

    A difference array: every span adds at its start and takes away at its end.
    """
    steps: dict[int, list[Elements]] = {}
    for start, stop, slot, memory in spans:
        if start < stop and memory:
            for index, change in ((start, memory), (stop, -memory)):
                if index not in steps:
                    steps[index] = [0] * len(MEMORY_KINDS)
                steps[index][slot] += change
    more: dict[int, list[Elements]] = {}
    running: list[Elements] = [0] * len(MEMORY_KINDS)
    at = sorted(steps)
    for index, following in pairwise(at):
        running = list(map(add, running, steps[index]))
        if any(running):
            more.update(dict.fromkeys(range(index, following), running))
    return more


def _spans(account: Account) -> Iterator[Span]:
    """All memory that is settled late, but for what coroutines had in hand."""
    count = len(account.log)
    yield from account.more
    clocks = account.clocks
    for arrival, stop, memory in account.received:
        if stop and clocks[stop - 1] >= arrival:
            yield bisect_left(clocks, arrival), stop, INBOX, memory
    for flight in account.open.values():
        if flight.end is not None and flight.result_memory:
            yield flight.index + 1, count, IN_FLIGHT, flight.result_memory
    journeys: dict[int, list[tuple[int, int]]] = {}  # by entry: asked for once, however often it was unstored
    for entry, (start, stop) in account.carried:
        own = journeys.get(id(entry))
        if own is None:
            own = journeys[id(entry)] = list(_journeys(account, entry))
        for at in range(max(0, bisect_right(own, (start, END)) - 1), len(own)):
            first, last = own[at]
            if first >= stop:
                break
            if max(first, start) < min(last, stop):
                yield max(first, start), min(last, stop), IN_FLIGHT, entry.memory


def _journeys(account: Account, entry: Entry) -> Iterator[tuple[int, int]]:
    """Samples in which some unfinished call carries a tensor: (first, after the last), apart from each other."""
    begun, reached = 0, 0
    for flight in sorted(entry.flights or (), key=lambda flight: flight.index):
        last = len(account.log) if flight.end is None else bisect_left(account.clocks, flight.end)
        first = flight.index + 1
        if first > reached:
            if begun < reached:
                yield begun, reached
            begun, reached = first, first
        reached = max(reached, last)
    if begun < reached:
        yield begun, reached


def settle(account: Account) -> list[Event]:
    """The log at the end of a run: from now on it is all there is."""
    settled = settled_events(account)
    account.log = [*settled]
    account.clocks.clear()
    account.more.clear()
    account.kept_loose.clear()
    account.received.clear()
    account.carried.clear()
    account.open.clear()
    return settled
