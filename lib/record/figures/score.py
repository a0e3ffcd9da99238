"""The figures of a run, from its event log."""

from collections.abc import Container, Iterable, Sequence
from operator import attrgetter

from ...basics.units import Elements
from ..events import Event
from ..kinds import MEMORY_KINDS
from ..table import OPERATIONS

_end, _held = attrgetter("end"), attrgetter("held")


def makespan(events: Iterable[Event]) -> float:
    """Return the end of the last operation, in ticks."""
    return max(map(_end, events), default=0.0)


def peak(events: Iterable[Event]) -> Elements:
    """Return the largest memory sample of any rank, in elements."""
    return max(map(sum, map(_held, events)), default=0)


def peak_event(events: Iterable[Event]) -> Event | None:
    """Return the first event, in the order of the log, at which memory was highest."""
    known = list(events)
    amounts = {held: sum(held) for held in set(map(_held, known))}  # the same few again and again
    most = max(amounts.values(), default=0)
    return next((event for event in known if amounts[event.held] == most), None)


def memory_parts(event: Event) -> dict[str, Elements]:
    """Return the parts of a record's memory sample, in elements by MEMORY_KINDS, without those that are empty."""
    return {kind: size for kind, size in zip(MEMORY_KINDS, event.held, strict=False) if size}


def share(events: Sequence[Event], ranks: int, kinds: Iterable[str], time: float | None = None) -> float:
    """Return the part (0 to 1) of all ranks' time that is covered by events of these kinds. ``time``: how long the run
    takes, if these are not all of its events. Overlapping events of one rank count once, so communication hidden behind
    compute and the compute that hides it may each reach 1, and their union never exceeds it."""
    wanted = frozenset(kinds)
    covered = [event for event in events if event.kind in wanted]
    return part_of_time(covered, makespan(events) if time is None else time, ranks)


def part_of_time(events: Iterable[Event], time: float, ranks: int) -> float:
    """Return the part (0 to 1) of ``time`` on so many ranks that events cover, however many overlap."""
    spans: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        spans.setdefault(event.rank, []).append((event.start, event.end))
    return sum(_covered(own) for own in spans.values()) / (time * ranks) if time else 0.0


def idle_share(events: Sequence[Event], ranks: int, time: float | None = None) -> float:
    """Return the part (0 to 1) of all ranks' time in which they are idle: in a pipeline the bubble (see ``share``)."""
    busy = share(events, ranks, OPERATIONS, time)
    return max(0.0, 1.0 - busy) if events else 0.0


def spans_boxes(event: Event, node_size: int | None, hosts: Container[int] = ()) -> bool:
    """Return whether a communication leaves a node of ``node_size`` ranks. A host is in the node of its devices."""
    if node_size is None or len(event.group) < 2:
        return False
    # Groups are in order, so the first and the last rank tell.
    first, last = event.group[0], event.group[-1]
    return first // node_size != last // node_size and first not in hosts and last not in hosts


def _covered(spans: list[tuple[float, float]]) -> float:
    """Return the length of the union of spans, in ticks."""
    total, reached = 0.0, 0.0
    for start, end in sorted(spans):
        if end > reached:
            total += end - (start if start > reached else reached)
            reached = end
    return total
