"""When a rank is idle, and for which ranks it waits then, read off the log.

A rank is idle while it neither computes nor communicates. Its clock stands, then, because it waits for the end of a
communication that cannot begin yet: a message that is not sent yet, or a collective to which another rank has not come
yet. The record after such a gap says which one that was (``Event.awaited``), and the logs of the others say who came
last. All this holds for times that were measured as well, where a gap may also be time in which nobody was waited for.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, islice
from typing import NamedTuple

from ..events import MARKS, Event
from ..table import RECEIVE
from .chain import Tier, one_tier

NEARLY = 1e-9
"""Times nearer to each other than this are one, in ticks or ms."""


class Gap(NamedTuple):
    """A span in which a rank is idle, from ``start`` to ``end`` in ticks (ms where times were measured)."""

    start: float
    end: float
    call: Event | None = None
    """The communication whose end is waited for, as its own rank sees it, or None if nobody was waited for."""
    ranks: tuple[int, ...] = ()
    """The ranks that are waited for: who sends, or who comes last to a collective."""
    over: bool = False
    """Whether the rank stays idle to the end of the run."""

    @property
    def length(self) -> float:
        """How long it lasts, in ticks (or ms)."""
        return self.end - self.start


def idle_spans(events: Sequence[Event], time: float) -> list[tuple[float, float]]:
    """Return the spans, (start, end) in ticks, in which the rank of these events is idle between 0 and ``time``."""
    spans, reached = [], 0.0
    busy = sorted((event.start, event.end) for event in events if event.kind not in MARKS)
    for start, end in [*busy, (time, time)]:
        if start > reached:
            spans.append((reached, start))
        if end > reached:
            reached = end
    return spans


class Waiting:
    """The gaps of a run, rank by rank. ``by_rank``: the events of each rank in the order of its log; ``tier``: which
    tier of links a communication goes over, each of which has a queue of its own; ``same_ranks``: for a rank the ranks
    that do the same, itself among them, where the events of some only are given."""

    def __init__(
        self,
        by_rank: Mapping[int, Sequence[Event]],
        time: float,
        tier: Tier = one_tier,
        same_ranks: Callable[[int], Sequence[int]] = lambda rank: (rank,),
    ) -> None:
        self.by_rank, self.time, self.tier, self.same_ranks = by_rank, time, tier, same_ranks
        self._known: dict[int, list[Gap]] = {}

    def gaps(self, rank: int) -> list[Gap]:
        """Return the spans in which a rank is idle, and for whom it waits in each."""
        if rank not in self._known:
            self._known[rank] = self._found(rank)
        return self._known[rank]

    def _found(self, rank: int) -> list[Gap]:
        events = self.by_rank[rank]
        spans = [(start, end) for start, end in idle_spans(events, self.time) if end - start > NEARLY]
        if not spans:
            return []
        last = max((event.end for event in events if event.kind not in MARKS), default=0.0)
        awaited, found = self._awaited(events), []
        for start, end in spans:
            call = awaited(start, end)
            over = call is None and start >= last - NEARLY
            found.append(Gap(start, end, call, self._ranks(rank, call), over))
        return found

    def _awaited(self, events: Sequence[Event]) -> Callable[[float, float], Event | None]:
        """Return a function that gives the communication for which the rank of these events waits in a gap."""
        reached = list(accumulate((event.issued for event in events), max))
        return lambda start, end: _awaited(events, bisect_right(reached, start + NEARLY), start)

    def _ranks(self, rank: int, call: Event | None) -> tuple[int, ...]:
        """Return the ranks for which a rank has waited before a communication of its own could begin."""
        if call is None:
            return ()
        if call.kind == RECEIVE.kind:
            return tuple(call.group[:1])
        if call.ready is not None and call.ready < call.start:  # a send has waited for its receive
            return tuple(call.group[1:])
        if call.stream != "collective" or call.op is None:
            return ()
        came = self._arrivals.get(call.op, {})
        latest = max(came.values(), default=0.0)
        last = [other for other, tick in came.items() if tick >= latest - NEARLY]
        if rank in last:
            return ()
        return tuple(
            sorted(one for other in last for one in self.same_ranks(other) if one == other or one in call.group)
        )

    @cached_property
    def _arrivals(self) -> dict[object, dict[int, float]]:
        """When each rank of each collective was ready for it: its clock was there, and its earlier calls had ended."""
        found = defaultdict[object, dict[int, float]](dict)
        for rank, events in self.by_rank.items():
            clock, links = 0.0, defaultdict[object, float](float)
            for event in events:
                clock = max([clock, *(events[at].end for at in event.awaited)]) if event.awaited else clock
                kind = event.stream
                if kind == "collective":
                    found[event.op][rank] = max(clock, links[self.tier(event)])
                if kind == "compute":
                    clock = max(clock, event.end)
                elif kind and (event.kind != RECEIVE.kind or event.slot is not None):
                    links[self.tier(event)] = event.end
        return found


def _awaited(events: Sequence[Event], at: int, start: float) -> Event | None:
    """Return the communication for which a rank waits from ``start`` on: of those that its next records have fetched,
    the one that ends last. ``at``: the first record after ``start``."""
    for event in islice(events, at, None):
        fetched = [events[place] for place in event.awaited if events[place].end > start + NEARLY]
        if fetched:
            return max(fetched, key=lambda one: one.end)
        if event.stream == "compute" and event.end > start + NEARLY:
            return None
    return None
