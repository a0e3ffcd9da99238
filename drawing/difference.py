"""The difference of two runs: how the time of their ranks is spent, in parts that add up."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from fractions import Fraction

from lib.basics.units import Elements, show_ticks
from lib.record.figures.breakdown import WAITS, name_of
from lib.record.table import OPERATIONS, RECEIVE, TRACED
from lib.record.training import BACKWARD

from .trace import Trace

PLACES = 2
"""Decimals of a tick in a sentence. Milliseconds are shown with three digits."""


def parts_of(trace: Trace) -> dict[str, Fraction]:
    """Return the parts of the time of a run (see ``lib.record.figures.breakdown``), averaged over the ranks, in the
    unit of the trace. All of a backward is one part, and so is all waiting. The parts add up to the time of the run."""
    time, spent = Fraction(trace.time), defaultdict[str, Fraction](Fraction)
    for part, share in trace.parts.items():
        row, word = OPERATIONS.get(part), "waits" if part in WAITS else name_of(part)
        spent[BACKWARD.word if row is not None and row.backward else word] += share * time
    return dict(spent)


def changes(before: Trace, after: Trace) -> dict[str, Fraction]:
    """Return by how much each part of the second run is longer, for an average rank: the largest changes first, without
    zeros. They add up to the difference of the times."""
    old, new = parts_of(before), parts_of(after)
    found = {part: new.get(part, Fraction()) - old.get(part, Fraction()) for part in {**old, **new}}
    return {part: found[part] for part in sorted(found, key=lambda part: -abs(found[part])) if found[part]}


def rounded(parts: Mapping[str, Fraction], places: int) -> dict[str, Fraction]:
    """Return the parts with so many decimals, rounded up or down so that they add up to their rounded sum.

    >>> thirds = {"a": Fraction(1, 3), "b": Fraction(1, 3), "c": Fraction(1, 3)}
    >>> [float(part) for part in rounded(thirds, 1).values()]
    [0.4, 0.3, 0.3]
    """
    scale = 10**places
    down = {part: math.floor(value * scale) for part, value in parts.items()}
    missing = round(sum(parts.values()) * scale) - sum(down.values())
    most = sorted(parts, key=lambda part: down[part] - parts[part] * scale)
    up = set(most[:missing])
    return {part: Fraction(down[part] + (part in up), scale) for part in parts}


def in_words(before: Trace, after: Trace) -> tuple[str, str]:
    """Return how much shorter or longer the second run is, and the parts of this difference."""
    found = changes(before, after)
    unit, largest = after.unit, max(map(abs, found.values()), default=Fraction())
    places = PLACES if unit.brief is show_ticks else max(0, 2 - math.floor(math.log10(largest or 1)))
    shown = {part: value for part, value in rounded(found, places).items() if value}
    total = sum(shown.values())
    more = f"{show_ticks(float(abs(total)))} {unit.name} {'shorter' if total < 0 else 'longer'} than"
    head = f"{more if total else 'as long as'} {before.title}"
    said = [f"{part} {_more(show_ticks(float(abs(value))), value)}" for part, value in shown.items()]
    made = [f"{'a rank on average: ' * (after.ranks > 1 or before.ranks > 1)}{', '.join(said)}"] if said else []
    if before.profile is not None or after.profile is not None:
        made += calls_in_words(before, after)
    if before.peak is not None and after.peak is not None:
        change: Elements = after.peak.memory - before.peak.memory
        more = _more(after.size_unit.show(max(change, -change)), change)
        made.append(f"peak memory {more if change else 'is the same'}")
    return head, "; ".join(made)


def calls_in_words(before: Trace, after: Trace) -> list[str]:
    """Return what calls of the network a rank makes more often, or less often, in the second run."""
    old, new = calls_of(before), calls_of(after)
    kinds = [kind for kind in (*OPERATIONS, *TRACED) if old[kind] != new[kind]]
    return [f"{name_of(kind)} {new[kind] or 'never'}{' times' * bool(new[kind])}, not {old[kind]}" for kind in kinds]


def calls_of(trace: Trace) -> Counter[str]:
    """Return how many calls of the network of each kind a rank makes, at most. Receives count as their sends."""
    most = Counter[str]()
    for events in trace.by_rank.values():
        talk = (event for event in events if event.stream in ("collective", "message"))
        most |= Counter(event.kind for event in talk if event.kind != RECEIVE.kind)
    return most


def _more(size: str, change: Elements) -> str:
    return f"{size} {'more' if change > 0 else 'less'}"
