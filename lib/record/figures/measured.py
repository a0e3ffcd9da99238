"""Who waits for whom, and the longest chain, in times that a clock has measured.

Such times do not follow from each other exactly, as those of a simulated run do. So a chain goes back from the end of
the run by one rule: on a rank, from when an operation begins to the operation that ended last before that; and from the
beginning of a collective or of a receive to the rank that came last to it. What lies between two operations, where
nothing was recorded, is a part of the chain, too.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum

from ..events import Event
from .chain import Chain, Link, word_of
from .waiting import NEARLY, Waiting

BETWEEN = "between operations"
"""What is called so in a chain: time in which its rank does nothing that was recorded."""


class MeasuredWaiting(Waiting):
    """The gaps of a profile. What a rank waits for is the call that begins when the gap ends, though the rank was there
    before; ``event.issued`` is when it was there."""

    def _awaited(self, events: Sequence[Event]) -> Callable[[float, float], Event | None]:
        waited = [event for event in events if event.op is not None and event.start > event.issued + NEARLY]
        begins = {event.start: event for event in waited}
        return lambda start, end: begins.get(end)

    def _ranks(self, rank: int, call: Event | None) -> tuple[int, ...]:
        if call is None:
            return ()
        return tuple(other for other in last_to(self.members.get(call.op, {})) if other != rank)

    @cached_property
    def members(self) -> Mapping[object, Mapping[int, Event]]:
        """The records of all ranks of each call, by its ``op``."""
        found = defaultdict[object, dict[int, Event]](dict)
        for rank, events in self.by_rank.items():
            for event in events:
                if event.op is not None:
                    found[event.op][rank] = event
        return found


def last_to(members: Mapping[int, Event]) -> tuple[int, ...]:
    """Return the ranks that came last to a call: to a receive, its sender, if that came later."""
    latest = max((event.issued for event in members.values()), default=0.0)
    return tuple(sorted(rank for rank, event in members.items() if event.issued >= latest - NEARLY))


@dataclass(frozen=True)
class MeasuredChain(Chain):
    """The longest chain of a profile. ``spans``: of each of its operations the part that is on the chain: a call may
    begin in the middle of other work of its rank, which is on the chain up to then. Times are in ms."""

    spans: tuple[tuple[float, float], ...] = ()

    def spent(self) -> list[tuple[str, float]]:
        """Return what the chain spends on each operation, and between operations."""
        lengths = [end - start for start, end in self.spans]
        words = [word_of(event.kind) for _, event in self.links]
        return [*zip(words, lengths, strict=True), (BETWEEN, self.time - fsum(lengths))]


def measured_chain(waiting: MeasuredWaiting) -> MeasuredChain:
    """Return the longest chain of a profile, from its end back to its beginning."""
    members, logs = waiting.members, {rank: _Log(events) for rank, events in waiting.by_rank.items()}
    links, spans = list[Link](), list[tuple[float, float]]()
    rank, moment = max(logs, key=lambda rank: logs[rank].last), float("inf")
    while (left := logs[rank].before(moment)) is not None:
        entered, begins = left, left.start
        if left.op is not None and left.start > left.issued + NEARLY:  # it has waited for another rank
            entered = members[left.op][last_to(members[left.op])[0]]
        links.append(Link(entered, left))
        spans.append((begins, min(left.end, moment)))
        rank, moment = entered.rank, min(entered.issued, begins)
    return MeasuredChain(tuple(reversed(links)), tuple(reversed(spans)))


class _Log:
    """What one rank did, to be asked what was before a moment."""

    def __init__(self, events: Sequence[Event]) -> None:
        lasting = [event for event in events if event.end > event.start]
        self.ended = sorted(lasting, key=lambda event: event.end)
        self.ends = [event.end for event in self.ended]
        self.work = sorted((event for event in lasting if event.stream == "compute"), key=lambda event: event.start)
        self.starts = [event.start for event in self.work]
        self.last = self.ends[-1] if self.ends else 0.0

    def before(self, moment: float) -> Event | None:
        """Return the work that goes on at a moment, or else what ended last before it."""
        at = bisect_left(self.starts, moment) - 1
        if at >= 0 and self.work[at].end > moment:
            return self.work[at]
        at = bisect_right(self.ends, moment) - 1
        return self.ended[at] if at >= 0 else None
