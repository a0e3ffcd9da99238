"""The difference of two runs in words."""

from __future__ import annotations

import math
from fractions import Fraction

from lib.basics.units import TICKS, Elements, show_ticks
from lib.record.figures.breakdown import name_of
from lib.record.figures.difference import calls_of, changes, parts_of, rounded
from lib.record.table import OPERATIONS, TRACED

from ..ink.trace import Trace

PLACES = 2
"""Decimals of a tick in a sentence. Milliseconds are shown with three digits."""


def in_words(before: Trace, after: Trace) -> tuple[str, str]:
    """Return how much shorter or longer the second run is, and the parts of this difference."""
    found = changes(parts_of(before.time, before.parts), parts_of(after.time, after.parts))
    unit, largest = after.unit, max(map(abs, found.values()), default=Fraction())
    places = PLACES if unit is TICKS else max(0, 2 - math.floor(math.log10(largest or 1)))
    shown = {part: value for part, value in rounded(found, places).items() if value}
    total = sum(shown.values())
    more = f"{show_ticks(float(abs(total)))} {unit.name} {'shorter' if total < 0 else 'longer'} than"
    head = f"{more if total else 'as long as'} {before.title}"
    lines = [f"{part} {_more(f'{show_ticks(float(abs(value)))} {unit.name}', value)}" for part, value in shown.items()]
    made = [f"{'a rank on average: ' * (after.ranks > 1 or before.ranks > 1)}{', '.join(lines)}"] if lines else []
    if before.profile is not None or after.profile is not None:
        old, new = calls_of(before.by_rank.values()), calls_of(after.by_rank.values())
        for kind in (*OPERATIONS, *TRACED):  # the calls of the network that a rank makes more often, or less often
            if old[kind] != new[kind]:
                made.append(f"{name_of(kind)} {new[kind] or 'never'}{' times' * bool(new[kind])}, not {old[kind]}")
    if before.peak is not None and after.peak is not None:
        change: Elements = after.peak.memory - before.peak.memory
        more = _more(after.size_unit.describe(max(change, -change)), change)
        made.append(f"peak memory {more if change else 'is the same'}")
    return head, "; ".join(made)


def _more(size: str, change: Elements) -> str:
    return f"{size} {'more' if change > 0 else 'less'}"
