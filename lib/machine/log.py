"""The log of a rank: it notes as little as can be while it runs, and makes Events of that when somebody reads them.

The end and the peak memory of a run need no Event.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from ..basics.units import Elements
from ..record.causal import Slices
from ..record.events import Event, make_event
from .cost import TimeUnits
from .in_flight import InFlight
from .rank_state import Done

Entry = Done | InFlight
Awaited = Mapping[int, tuple[int, ...]]
"""By place in the log: the calls that were fetched between the record before and that one, by their places."""
Samples = Mapping[int, tuple[Elements, ...]]  # memory by MEMORY_KINDS, by place in the log
Pieces = Mapping[int, tuple[Slices, ...]]  # the slices of the operands of a layer's steps, by place in the log


class Log(Sequence[Event]):
    """The records of a rank whose calls have all ended, as they stand now."""

    def __init__(
        self, rank: int, entries: Sequence[Entry], fetched: array[int], samples: Samples, pieces: Pieces, per_tick: int
    ) -> None:
        self._rank, self._entries, self._count = rank, entries, len(entries)
        self._fetched, self._samples, self._pieces, self._per_tick = fetched, samples, pieces, per_tick
        self._events: list[Event] | None = None

    @cached_property
    def end(self) -> float:
        """The end of the last record, in ticks."""
        ends = [entry.end for entry in islice(self._entries, self._count)]
        return float(max(ends, default=0) / self._per_tick)  # type: ignore[type-var, operator]

    @cached_property
    def peak(self) -> Elements:
        """The largest memory sample, in elements."""
        held = [*self._samples.values(), *[entry.held for entry in islice(self._entries, self._count)]]
        return max(map(sum, held), default=0)  # what is known afterwards is only more

    def events(self) -> list[Event]:
        """Return the records, made at the first time that they are asked for."""
        if self._events is None:
            entries = list(islice(self._entries, self._count))  # more may have been done since
            awaited = awaited_by(self._fetched)
            self._events = events_of(self._rank, entries, awaited, self._samples, self._pieces, self._per_tick)
        return self._events

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events())

    def __getitem__(self, place: Any) -> Any:
        return self.events()[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.events() == list(other)

    __hash__ = None  # type: ignore[assignment]


def awaited_by(fetched: Sequence[int]) -> Awaited:
    """Return the calls fetched before each record, given pairs of how long the log was and a call's place in it, in
    order. Half a pair counts for nothing: there the time for the run was up."""
    awaited: dict[int, tuple[int, ...]] = {}
    for before, pairs in groupby(zip(fetched[::2], fetched[1::2], strict=False), itemgetter(0)):
        awaited[before] = tuple([place for _, place in pairs])
    return awaited


def events_of(
    rank: int, entries: Sequence[Entry], awaited: Awaited, samples: Samples, pieces: Pieces, per_tick: int
) -> list[Event]:
    """Return the records of what a rank has done, all of which has ended. ``samples``: what was held, by place, where
    it is more than the entry says; ``pieces``: of the steps of layers the slices of their operands, by place."""

    @lru_cache(maxsize=1 << 10)  # the same moment is the same float: a hundred bytes less for each record
    def ticks(time: TimeUnits) -> float:
        return float(time / per_tick)

    events = []
    for place, entry in enumerate(entries):
        before = awaited.get(place, ())
        if isinstance(entry, Done):
            kind, layer, batches, words, issued, end, held = entry
            held = samples.get(place, held)
            start = ticks(issued)
            events.append(
                make_event((
                    rank, kind, layer, batches, start, start, ticks(end), held,
                    None, (), None, 0, words, (), before, pieces.get(place, ()), None, None
                ))
            )  # fmt: skip
        else:
            events.append(entry.event(rank, ticks, samples.get(place, entry.held), before))
    return events
