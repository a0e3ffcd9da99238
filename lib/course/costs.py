"""The costs that a puzzle's spec may name under its key ``cost``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from ..basics.arguments import one_of_names
from ..machine.cost import Cost, RingCost

COSTS: Mapping[str, Cost] = {"default": Cost(), "ring": RingCost()}


def cost_named(name: str) -> Cost:
    """Return the cost of that name. Raise PuzzleError for a name that is none of the known ones."""
    one_of_names("cost", name, tuple(COSTS))
    return COSTS[name]


def written(name: str) -> str:
    """Return how the cost of that name is written in code.

    >>> written("ring")
    'RingCost()'
    """
    cost = cost_named(name)
    own = [f"{f.name}={price!r}" for f in fields(cost) if (price := getattr(cost, f.name)) != f.default]
    return f"{type(cost).__name__}({', '.join(own)})"
