"""The clocks of several machines, set by what must have happened first.

A collective in which everyone needs everyone cannot end on one rank before another has come to it, and a message cannot
be there before it is sent. Where that has happened by the clocks, they differ, and they are set so that collectives end
at the same moment on all ranks, and messages on both, which they nearly do (the median of all differences is taken).
Where nothing speaks against the clocks, they stay as they are.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ...record.collectives import ROWS as COLLECTIVES
from ...record.experts import ALLTOALL
from .calls import ROUGHLY
from .meetings import Meeting

TOGETHER = (*(row.kind for row in COLLECTIVES), ALLTOALL.kind, "barrier")
"""Collectives that end nowhere before all have come."""


class Clocks(NamedTuple):
    """``shifts``: microseconds to add to the times of each rank; ``contradiction``: by how many microseconds times
    still contradict each other after that."""

    shifts: Mapping[int, float]
    contradiction: float

    def notes(self) -> list[str]:
        """Return what to say of clocks that were set."""
        moved = {rank: shift for rank, shift in self.shifts.items() if abs(shift) > ROUGHLY}
        shifted = [f"rank {rank} by {shift / 1e3:+.3g} ms" for rank, shift in sorted(moved.items())[:4]]
        more = f" and {len(moved) - 4} more" if len(moved) > 4 else ""
        notes = [f"clocks were set: {', '.join(shifted)}{more}"] if moved else []
        if self.contradiction > ROUGHLY:
            notes.append(f"clocks drift: times contradict each other by up to {self.contradiction / 1e3:.3g} ms")
        return notes


def clocks_of(meetings: Sequence[Meeting], bases: Mapping[int, float]) -> Clocks:
    """Return how to set the clocks of ranks. ``bases``: the microseconds at which their times begin."""
    known = [one for one in meetings if len(one.members) > 1 and all(c.end is not None for c in one.members.values())]
    shifts = dict(bases)
    if contradiction(known, shifts) > ROUGHLY:
        shifts = _set(known, bases)
    moved = {rank: shifts[rank] - base for rank, base in bases.items()}
    return Clocks(moved, contradiction(known, shifts))


def contradiction(meetings: Sequence[Meeting], shifts: Mapping[int, float]) -> float:
    """Return by how many microseconds anything ends before what it needs has begun."""
    worst = 0.0
    for one in meetings:
        if one.message:
            source, target = one.group
            first, last = one.members[source], one.members[target]
            worst = max(worst, first.start + shifts[source] - (last.end or 0.0) - shifts[target])
        elif one.kind in TOGETHER:
            came = max(call.start + shifts[rank] for rank, call in one.members.items())
            worst = max(worst, came - min((call.end or 0.0) + shifts[rank] for rank, call in one.members.items()))
    return worst


def _set(meetings: Sequence[Meeting], bases: Mapping[int, float]) -> dict[int, float]:
    """Return shifts with which collectives end at once, from the lowest rank on to those that meet it."""
    apart = defaultdict[int, dict[int, list[float]]](lambda: defaultdict(list))
    for one in meetings:
        if not one.message and one.kind not in TOGETHER:
            continue  # of which some ranks may be done long before others
        first, *others = sorted(one.members)
        for other in others:
            later = (one.members[first].end or 0.0) - (one.members[other].end or 0.0)
            apart[first][other].append(later)
            apart[other][first].append(-later)
    shifts: dict[int, float] = {}
    for begin in sorted(bases):
        if begin in shifts:
            continue
        shifts[begin] = bases[begin]
        waiting = [begin]
        while waiting:
            rank = waiting.pop(0)
            for other, between in sorted(apart[rank].items(), key=lambda one: (-len(one[1]), one[0])):
                if other not in shifts:
                    shifts[other] = shifts[rank] + median(between)
                    waiting.append(other)
    return shifts
