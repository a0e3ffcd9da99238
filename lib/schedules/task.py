"""What a search looks for: rows for stages that lie somewhere, at some prices. And the bounds that all rows have.

The bounds are proved, and know of memory. A rank can begin only when a micro-batch has come to it, and then has all its
work to do. The first layer's last work waits until a micro-batch is back. And what a rank holds of a micro-batch it
holds for as long as that takes to go up to the last stage and come back: if so many fit at a time, so many go through
in that time, and no more (Little's law).
"""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

from ..basics.errors import PuzzleError
from ..basics.units import Elements
from ..machine.cost import Cost, TimeUnits
from .actions import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD
from .figures import Prices, Work, figures

Rows = list[list[Work]]
Score = tuple[float, float, float]
"""How much more memory than the cap, the time, the memory: the least is the best."""
PLACEMENTS: dict[str, Callable[[int], list[int]]] = {
    "line": lambda ranks: [*range(ranks)],
    "ring": lambda ranks: [*range(ranks), *range(ranks)],
    "v": lambda ranks: [*range(ranks), *reversed(range(ranks))],
}
"""The rank of each stage: one stage a rank; or two, the second ones in the same order, or in the opposite one."""


class Task:
    """Where the stages lie, how many micro-batches there are, at which prices, and how much a rank may hold (None: any
    amount). ``halves``: whether a backward is done in two halves."""

    def __init__(
        self, placement: str, ranks: int, batches: int, cost: Cost, halves: bool, cap: Elements | None
    ) -> None:
        self.placement, self.ranks, self.batches, self.cost, self.cap = placement, ranks, batches, cost, cap
        self.rank_of = PLACEMENTS[placement](ranks)
        self.prices, self.stages = Prices.of(cost), len(self.rank_of)
        self.back = (BACKWARD_INPUT, BACKWARD_WEIGHT) if halves else (BACKWARD,)
        self.mine = [[at for at, rank in enumerate(self.rank_of) if rank == place] for place in range(ranks)]

    def room(self, place: int, gradients: bool = True) -> float:
        """Return how many activations a rank may hold beside its weights and their gradients."""
        if self.cap is None:
            return math.inf
        own = self.prices.kept + (self.prices.grad if gradients else 0)
        return math.floor((self.cap - len(self.mine[place]) * own) / self.prices.activation)

    def score(self, rows: Rows) -> Score:
        """Return how good rows are."""
        found = figures(rows, self.rank_of, self.prices)
        if found is None:
            return math.inf, math.inf, math.inf
        beyond = 0 if self.cap is None else max(0, found[1] - self.cap)
        return float(beyond), float(found[0]), float(found[1])

    def too_small(self) -> PuzzleError:
        """Return the error for a cap under which nothing was found."""
        unit = self.cost.size_unit
        problem = f"no schedule was found that holds at most {unit.describe(self.cap or 0)}"
        least = max(map(len, self.mine)) * (self.prices.kept + self.prices.grad) + 2 * self.prices.activation
        fix = f"more memory: weights, their gradients and two activations take {unit.show(least)}"
        return PuzzleError(problem, where="search", fix=fix)

    # -- bounds ------------------------------------------------------------------------------------------------

    def bound(self) -> Fraction:
        """Return what no rows within the cap can be faster than, in ticks."""
        return Fraction(max(self._bound_of(place) for place in range(self.ranks))) / self.cost.per_tick

    def _bound_of(self, place: int) -> Fraction:
        """Return the bound that follows from the work of one rank, in time units."""
        prices, mine, last = self.prices, self.mine[place], self.stages - 1
        forward, whole, to_input = prices.work[FORWARD], self._backward(), self._to_input()
        begins = mine[0] * forward + self._hops(0, mine[0])  # the lowest of its stages comes first
        work = len(mine) * (self.batches * (forward + whole) + prices.update)
        work += self.batches * prices.loss * (last in mine)
        up = (last + 1) * forward + prices.loss
        back = up + 2 * self._hops(0, last) + last * to_input + whole + prices.update
        found = [Fraction(begins + work), Fraction(back)]
        if len(mine) == 1 and mine[0]:  # after its last backward come those of the stages below
            [stage] = mine
            till = begins + self.batches * (forward + to_input + prices.loss * (stage == last))
            found.append(Fraction(till + self._hops(0, stage) + (stage - 1) * to_input + whole + prices.update))
        if self.cap is not None:
            room = int(self.room(place, gradients=False)) - 1  # for inputs: after a forward its output is there, too
            if room < 1:
                raise self.too_small()
            trips = [
                (last - stage + 1) * forward + prices.loss + (last - stage) * to_input + 2 * self._hops(stage, last)
                for stage in mine
            ]
            found.append(begins + Fraction(self.batches * sum(trip + whole for trip in trips), room) + prices.update)
        return max(found)

    def _backward(self) -> TimeUnits:
        """The least time of a backward, both of its halves together."""
        work = self.prices.work
        halves = work[BACKWARD_INPUT] + work[BACKWARD_WEIGHT]
        return min(work[BACKWARD], halves) if len(self.back) > 1 else work[BACKWARD]

    def _to_input(self) -> TimeUnits:
        """The least time to the gradient of a stage's input."""
        work = self.prices.work
        return min(work[BACKWARD], work[BACKWARD_INPUT]) if len(self.back) > 1 else work[BACKWARD]

    def _hops(self, first: int, last: int) -> TimeUnits:
        """The time of the messages between one stage and another, one way."""
        way = self.rank_of[first : last + 1]
        return (self.prices.send + self.prices.receive) * sum(one != two for one, two in pairwise(way))
