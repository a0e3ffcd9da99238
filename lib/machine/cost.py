"""How long an operation takes and how big a tensor is: the only place with prices."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property

from ..basics.errors import PuzzleError
from ..basics.units import HIDDEN, LENGTH, Elements, common_grain, divided, exact
from ..record.events import COLLECTIVE
from ..record.labels import SHARDED, Labels

Ticks = int | float | Fraction


@dataclass(frozen=True)
class Cost:
    """Prices in ticks (0.3 means exactly three tenths) and sizes in elements.

    ``forward`` and ``backward`` are per micro-batch; ``..._across`` holds for a group, or a pair
    of ranks, that does not fit in one box. Raises PuzzleError for a price that is no number or negative.

    A pipeline is measured in whole layers per tick, links in fractions of it; the default ratio
    of five between links inside a box and between boxes is on the gentle side of real machines.
    """

    forward: Ticks = 1
    backward: Ticks = 1
    update: Ticks = 0.5
    loss: Ticks = 0
    collective: Ticks = 0.3
    collective_across: Ticks = 1.5
    send: Ticks = 0.2
    send_across: Ticks = 1.0
    receive: Ticks = 0.2
    weight_elements: int = HIDDEN * HIDDEN
    activation_elements: int = HIDDEN * LENGTH

    def __post_init__(self) -> None:
        for field in fields(self):
            price = getattr(self, field.name)
            if not isinstance(price, (int, float, Fraction)) or not price >= 0 or price == float("inf"):
                raise PuzzleError(
                    f"{field.name} is no price", where="Cost", expected="a number from 0 up", got=repr(price)
                )

    @cached_property
    def grain(self) -> int:
        """Grains in a tick: every price is a whole number of grains."""
        return common_grain([exact(getattr(self, field.name)) for field in fields(self)])

    def grains(self, kind: str, across: bool = False) -> int:
        """The price of a verb in grains: its own, or that of a collective in general."""
        name = "collective" if kind in COLLECTIVE else {"pass_to": "send"}.get(kind, kind)
        return int(exact(getattr(self, f"{name}_across" if across else name)) * self.grain)

    def elements(self, labels: Labels) -> Elements:
        """The size of a tensor: 0 for a gradient of no micro-batches."""
        if labels.kind not in SHARDED:
            return self.activation_elements * len(labels.batches)
        if labels.kind == "WeightGrad" and not labels.batches:
            return 0
        return divided(self.weight_elements * len(labels.shards), labels.total)
