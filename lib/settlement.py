"""Settling a rank's log: times of calls and memory that are known only afterwards.

What a sample held besides stored tensors and operands (calls in flight, the inbox, what another coroutine
had in hand) depends on ends that lie in its future, so it is added when the log is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from operator import add

from .entries import IN_FLIGHT, INBOX, Entry
from .events import MARKS, MEMORY_KINDS, Event, make_event
from .ledger import Account
from .units import Elements

HELD = Event._fields.index("held")


def settled_events(account: Account) -> list[Event]:
    """The log, settled: calls whose times are known, and memory that is known only now."""
    more = _more_memory(account)
    settled = []
    for index, record in enumerate(account.log):
        event = record if record.__class__ is Event else record.event()  # type: ignore[union-attr]
        if event is not None:
            if index in more:
                held = tuple(map(add, event.held, more[index]))
                event = make_event((*event[:HELD], held, *event[HELD + 1 :]))
            settled.append(event)
    return settled


def _more_memory(account: Account) -> dict[int, list[Elements]]:
    """By sample, what it held besides stored tensors and operands, by kind.

    A difference array: every span adds at its start and takes away at its end.
    """
    steps: dict[int, list[Elements]] = {}
    for start, stop, slot, memory in _spans(account):
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


def _spans(account: Account) -> Iterator[tuple[int, int, int, Elements]]:
    """(first sample, sample after the last, slot, elements) of all memory that is settled late."""
    count = len(account.log)
    yield from account.more
    for start, stop, slot, memory in account.kept_loose:
        for index in range(start, stop):  # marks see stored tensors only
            if account.log[index].kind not in MARKS:
                yield index, index + 1, slot, memory
    clocks = account.clocks
    for arrival, stop, memory in account.received:
        if stop and clocks[stop - 1] >= arrival:
            yield bisect_left(clocks, arrival), stop, INBOX, memory
    for flight in account.open.values():
        if flight.end is not None and flight.result_memory:
            yield flight.index + 1, count, IN_FLIGHT, flight.result_memory
    for entry, (start, stop) in account.carried:
        yield from _carried_spans(account, entry, start, stop)


def _carried_spans(account: Account, entry: Entry, start: int, stop: int) -> Iterator[tuple[int, int, int, Elements]]:
    """Samples in which an unstored tensor is carried by an unfinished call, each counted once."""
    reached = start
    for flight in sorted(entry.flights or (), key=lambda flight: flight.index):
        last = len(account.log) if flight.end is None else bisect_left(account.clocks, flight.end)
        first, last = max(reached, flight.index + 1), min(stop, last)
        if first < last:
            yield first, last, IN_FLIGHT, entry.memory
            reached = last


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
