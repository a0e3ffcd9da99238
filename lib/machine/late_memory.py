"""Memory of a sample that is known only afterwards, and times of calls.

What a sample held besides stored tensors and operands (calls in flight, the inbox, what another coroutine
had in hand) depends on ends that lie in its future, so it is added when the log is read.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import add

from ..basics.units import Elements
from ..record.events import MARKS, Event
from ..record.kinds import IN_FLIGHT, INBOX, MEMORY_KINDS
from .in_flight import Lanes
from .rank_state import END, RankState, Result, Results, Span, TensorState, Unfinished


def events_so_far(lanes: Lanes) -> list[Event]:
    """Return the log of a rank: the calls whose times are known, and memory that is known only now."""
    return _known(_settled(lanes))


def finish_log(lanes: Lanes) -> list[Event]:
    """Finish the log of a rank, drop the bookkeeping behind it, and return it."""
    rank = lanes.rank
    rank.log = _settled(lanes)
    lanes.open.clear()
    for notes in (rank.clocks, rank.late, rank.kept_loose, rank.received, rank.carried):
        notes.clear()
    return _known(rank.log)


def _known(log: Sequence[Event | Unfinished]) -> list[Event]:
    """Return the records whose times are known. They say which *of these* were fetched, by place."""
    known = [record for record in log if isinstance(record, Event)]
    if len(known) == len(log):
        return known
    place = [*accumulate((isinstance(record, Event) for record in log), initial=0)]
    return [one._replace(awaited=tuple(place[at] for at in one.awaited)) if one.awaited else one for one in known]


def _settled(lanes: Lanes) -> list[Event | Unfinished]:
    """Return the log with the records of all calls whose times are known, and the memory that only they tell."""
    rank, log = lanes.rank, list(lanes.rank.log)
    for call in lanes.open.values():
        log[call.index] = call.event() or call
    for more, at_marks in ((_more_memory(_spans(lanes)), True), (_more_memory(rank.kept_loose), False)):
        for index, extra in more.items():
            event = log[index]
            if isinstance(event, Event) and (at_marks or event.kind not in MARKS):  # marks see stored tensors only
                log[index] = event._replace(held=tuple(map(add, event.held, extra)))
    return log


def _more_memory(spans: Iterable[Span]) -> dict[int, list[Elements]]:
    """Return the extra memory of each sample that has some, as a list over MEMORY_KINDS. A difference array: every span
    adds at its start and takes away at its end."""
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


def _spans(lanes: Lanes) -> Iterator[Span]:
    """Return the spans of memory whose end was unknown when sampled: calls in flight, the inbox, tensors still
    carried."""
    rank = lanes.rank
    yield from rank.late
    clocks = rank.clocks
    for arrival, stop, memory in rank.received:
        if stop and clocks[stop - 1] >= arrival:
            yield bisect_left(clocks, arrival), stop, INBOX, memory
    for call in lanes.open.values():
        if isinstance(call.result, (Result, Results)):
            yield call.index + 1, len(rank.log), IN_FLIGHT, call.result.memory
    journeys: dict[int, list[tuple[int, int]]] = {}  # by tensor: asked for once, however often it was unstored
    for tensor, (start, stop) in rank.carried:
        own = journeys.get(id(tensor))
        if own is None:
            own = journeys[id(tensor)] = _journeys(rank, tensor)
        for at in range(max(0, bisect_right(own, (start, END)) - 1), len(own)):
            first, last = own[at]
            if first >= stop:
                break
            if max(first, start) < min(last, stop):
                yield max(first, start), min(last, stop), IN_FLIGHT, tensor.memory


def _journeys(rank: RankState, tensor: TensorState) -> list[tuple[int, int]]:
    """Return the samples in which some unfinished call carries a tensor: (first, after the last), apart from each
    other."""
    journeys: list[tuple[int, int]] = []
    for call in sorted(tensor.carriers or (), key=lambda call: call.index):
        first, last = call.index + 1, len(rank.log) if call.end is None else bisect_left(rank.clocks, call.end)
        if journeys and first <= journeys[-1][1]:
            first, before = journeys.pop()
            last = max(before, last)
        journeys.append((first, max(first, last)))
    return journeys
