"""Memory of a sample that is known only afterwards.

What a sample held besides stored tensors and operands (calls in flight, the inbox, what another coroutine
held as temporaries) depends on ends that lie in its future, so it is added when the log is read.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import add, attrgetter

from ..basics.units import Elements
from ..record.events import MARKS, Event
from ..record.kinds import IN_FLIGHT, INBOX, MEMORY_KINDS
from .cost import TimeUnits
from .in_flight import RankLinks
from .log import Entry, Log, awaited_by, events_of
from .rank_state import END, Done, Result, Results, Span, TensorState

Held = tuple[Elements, ...]
issued_of = attrgetter("issued")  # a function of C: asked of every record


def events_so_far(links: RankLinks) -> list[Event]:
    """Return the log of a rank so far: only calls whose times are known, which ``awaited`` names by place, too."""
    rank, samples = links.rank, _samples(links)
    log: list[Entry] = rank.log
    known = [entry.end is not None for entry in log]
    place = [*accumulate(known, initial=0)]
    awaited = {
        place[before]: tuple(place[at] for at in calls)
        for before, calls in awaited_by(rank.fetched).items()
        if before < len(log) and known[before]
    }
    more = {place[at]: held for at, held in samples.items() if known[at]}
    pieces = {place[at]: slices for at, slices in rank.pieces.items()}
    ended = [entry for entry in log if entry.end is not None]
    return events_of(rank.rank, ended, awaited, more, pieces, rank.per_tick)


def finish_log(links: RankLinks) -> Sequence[Event]:
    """Return the finished log of a rank, and drop the bookkeeping behind it. Its entries stay as they were written: the
    samples that hold more than was known then are kept beside them."""
    rank, samples = links.rank, _samples(links)
    log: list[Entry] = rank.log
    calls = [entry for entry in log if not isinstance(entry, Done)]
    ended = all(call.end is not None for call in calls)
    finished = Log(rank.rank, log, rank.fetched, samples, rank.pieces, rank.per_tick) if ended else events_so_far(links)
    for notes in (rank.late, rank.kept_loose, rank.received, rank.carried, rank.taken):
        notes.clear()
    links.open.clear()
    links.settled = samples
    if ended:
        links.network.clear()
        links.memberships.clear()
    for call in calls:
        if call.end is not None:
            call.let_go()
    return finished


def _samples(links: RankLinks) -> dict[int, Held]:
    """Return the samples that hold more than was known when they were taken, by place in the log."""
    rank, samples = links.rank, dict(links.settled)
    for more, at_marks in ((_more_memory(spans_of(links)), True), (_more_memory(rank.kept_loose), False)):
        for at, extra in more.items():
            entry = rank.log[at]
            if at_marks or entry.kind not in MARKS:  # marks see stored tensors only
                samples[at] = rank.shared(tuple(map(add, samples.get(at, entry.held), extra)))
    return samples


def _more_memory(spans: Iterable[Span]) -> dict[int, Held]:
    """Return the extra memory of each sample that has some, by MEMORY_KINDS. A difference array: every span adds at its
    start and takes away at its end."""
    steps = defaultdict[int, list[tuple[int, Elements]]](list)
    for start, stop, slot, memory, _ in spans:
        if start < stop and memory:
            steps[start].append((slot, memory))
            steps[stop].append((slot, -memory))
    more: dict[int, Held] = {}
    running: list[Elements] = [0] * len(MEMORY_KINDS)
    for index, following in pairwise(sorted(steps)):
        for slot, change in steps[index]:
            running[slot] += change
        if any(running):
            extra = tuple(running)
            for at in range(index, following):
                more[at] = extra
    return more


def spans_of(links: RankLinks) -> Iterator[Span]:
    """Yield the spans of memory whose end was not known when sampled: calls in flight, inbox, what is carried."""
    rank = links.rank
    yield from rank.late
    if not (rank.received or rank.carried or links.open):
        return
    clocks = [*map(issued_of, rank.log)]
    for arrival, stop, memory, place in rank.received:
        if stop and clocks[stop - 1] >= arrival:
            yield bisect_left(clocks, arrival), stop, INBOX, memory, place
    for call in links.open.values():
        if isinstance(call.result, (Result, Results)):
            yield call.index + 1, len(rank.log), IN_FLIGHT, call.result.memory, call.index
    journeys: dict[int, list[tuple[int, int]]] = {}  # by tensor: asked for once, however often it was unstored
    for tensor, (start, stop) in rank.carried:
        own = journeys.get(id(tensor))
        if own is None:
            own = journeys[id(tensor)] = _journeys(tensor, clocks)
        for at in range(max(0, bisect_right(own, (start, END)) - 1), len(own)):
            first, last = own[at]
            if first >= stop:
                break
            if max(first, start) < min(last, stop):
                yield max(first, start), min(last, stop), IN_FLIGHT, tensor.memory, tensor


def _journeys(tensor: TensorState, clocks: Sequence[TimeUnits]) -> list[tuple[int, int]]:
    """Return the disjoint spans of samples, (first, after the last), in which unfinished calls carry a tensor."""
    journeys: list[tuple[int, int]] = []
    for call in sorted(tensor.carriers or (), key=lambda call: call.index):
        first, last = call.index + 1, len(clocks) if call.end is None else bisect_left(clocks, call.end)
        if journeys and first <= journeys[-1][1]:
            first, before = journeys.pop()
            last = max(before, last)
        journeys.append((first, max(first, last)))
    return journeys
