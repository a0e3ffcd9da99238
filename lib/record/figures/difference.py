"""The difference of two runs: how the time of their ranks is spent, in parts that add up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor

from ..events import Event
from ..table import OPERATIONS, RECEIVE
from ..training import BACKWARD
from .breakdown import WAITS, name_of


def parts_of(time: float, shares: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return the parts of the time of a run from their ``shares`` (see ``breakdown``), averaged over the ranks. All of
    a backward is one part, and so is all waiting. The parts add up to the time of the run."""
    spent = defaultdict[str, Fraction](Fraction)
    for part, share in shares.items():
        row, word = OPERATIONS.get(part), "waits" if part in WAITS else name_of(part)
        spent[BACKWARD.word if row is not None and row.backward else word] += share * Fraction(time)
    return dict(spent)


def changes(old: Mapping[str, Fraction], new: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return by how much each part of the second run is longer, for an average rank: the largest changes first, without
    zeros. They add up to the difference of the times."""
    found = {part: new.get(part, Fraction()) - old.get(part, Fraction()) for part in {**old, **new}}
    return {part: found[part] for part in sorted(found, key=lambda part: -abs(found[part])) if found[part]}


def rounded(parts: Mapping[str, Fraction], places: int) -> dict[str, Fraction]:
    """Return the parts with so many decimals, rounded up or down so that they add up to their rounded sum.

    >>> thirds = {"a": Fraction(1, 3), "b": Fraction(1, 3), "c": Fraction(1, 3)}
    >>> [float(part) for part in rounded(thirds, 1).values()]
    [0.4, 0.3, 0.3]
    """
    scale = 10**places
    whole = {part: floor(scale * value) for part, value in parts.items()}
    missing = round(scale * sum(parts.values())) - sum(whole.values())
    for part in sorted(parts, key=lambda part: whole[part] - scale * parts[part])[:missing]:  # that lose most
        whole[part] += 1
    return {part: Fraction(value, scale) for part, value in whole.items()}


def calls_of(logs: Iterable[Sequence[Event]]) -> Counter[str]:
    """Return how many calls of the network of each kind a rank makes, at most. Receives count as their sends."""
    most = Counter[str]()
    for events in logs:
        talk = (event for event in events if event.stream in ("collective", "message"))
        most |= Counter(event.kind for event in talk if event.kind != RECEIVE.kind)
    return most
