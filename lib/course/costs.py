"""The costs that a puzzle's spec may name under its key ``cost``."""

from __future__ import annotations

from collections.abc import Mapping

from ..basics.arguments import one_of_names
from ..machine.cost import Cost, RingCost

COSTS: Mapping[str, Cost] = {"default": Cost(), "ring": RingCost()}


def cost_named(name: str) -> Cost:
    """Return the cost of that name. Raise PuzzleError for a name that is none of the known ones."""
    one_of_names("cost", name, tuple(COSTS))
    return COSTS[name]
