"""Numbers only: ticks of axes, sizes in words, ranks that share a row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lib.events import Event

GROUP_ABOVE = 16
"""Up to so many ranks, every rank has a row; above, ranks that do the same share one."""


def ticks(top: float, about: int) -> list[float]:
    """Round numbers from 0 to ``top``, about so many."""
    if top <= 0:
        return [0.0]
    raw = top / about
    power = 10 ** math.floor(math.log10(raw))
    step = next((s * power for s in (1, 2, 5) if s * power >= raw * 0.999), 10 * power)
    return [step * k for k in range(int(top / step + 1e-6) + 1)]


def si(number: float) -> str:
    """A size in three digits: 1769472 is 1.77M."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:.3g}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers with runs folded: 0-2, 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}-{b}" for a, b in runs)


def brief_ranks(ranks: Sequence[int]) -> str:
    """Ranks of a row, short enough for its label."""
    text = ranges(ranks)
    return text if len(text) <= 7 else f"{ranks[0]}..{ranks[-1]}"


@dataclass
class Row:
    """A row of the timeline: the ranks that share it, the events of the first, its place."""

    ranks: list[int]
    events: list[Event]
    y: float = 0.0
    same_batches: bool = True
    overlapped: set[int] = field(default_factory=set)  # indices of events drawn in the thin lanes

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"rank {brief_ranks(self.ranks)}" if len(self.ranks) == 1 else f"ranks {brief_ranks(self.ranks)}"


def rows_of(by_rank: Sequence[list[Event]]) -> list[Row]:
    """Rows in order of rank; equal ranks share one when there are many."""
    if len(by_rank) <= GROUP_ABOVE:
        return [Row([rank], events) for rank, events in enumerate(by_rank)]
    groups: dict[tuple[object, ...], Row] = {}
    for rank, events in enumerate(by_rank):
        key = tuple((e.kind, e.layer, e.start, e.end, len(e.batches)) for e in events)
        row = groups.get(key)
        if row is None:
            groups[key] = Row([rank], events)
        else:
            row.ranks.append(rank)
            row.same_batches = row.same_batches and all(
                a.batches == b.batches for a, b in zip(row.events, events, strict=True)
            )
    return list(groups.values())
