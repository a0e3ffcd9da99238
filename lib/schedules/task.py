"""What a search looks for: rows for stages that lie somewhere, at some prices. And the bounds that all rows have.

The bounds are proved, and know of memory. A rank can begin only when a micro-batch has come to it, and then has all its
work to do. The first layer's last work waits until a micro-batch is back. And what a rank holds of a micro-batch it
holds for as long as that takes to go up to the last stage and come back: if so many fit at a time, so many go through
in that time, and no more (Little's law). See ``Task._bound_with_gradients`` for what a gradient leaves of the room.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

from ..basics.errors import PuzzleError
from ..basics.units import Elements
from ..machine.cost import Cost, TimeUnits
from .actions import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, SEND_B, SEND_F
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
    amount). ``halves``: whether a backward is done in two halves. ``late``: whether a result may be sent later than it
    is made, which is of use only where a message takes time."""

    def __init__(
        self,
        placement: str,
        ranks: int,
        batches: int,
        cost: Cost,
        halves: bool,
        cap: Elements | None,
        late: bool = True,
    ) -> None:
        self.placement, self.ranks, self.batches, self.cost, self.cap = placement, ranks, batches, cost, cap
        self.rank_of = PLACEMENTS[placement](ranks)
        self.prices, self.stages = Prices.of(cost), len(self.rank_of)
        self.back = (BACKWARD_INPUT, BACKWARD_WEIGHT) if halves else (BACKWARD,)
        self.late = late and self.prices.send > 0
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

    def send_of(self, work: Work) -> Work | None:
        """Return the send of what a piece of work makes, if the stage that reads it is on another rank."""
        kind, stage, mb = work
        reader = stage + 1 if kind == FORWARD else stage - 1
        if kind not in (FORWARD, BACKWARD, BACKWARD_INPUT) or not 0 <= reader < self.stages:
            return None
        if self.rank_of[reader] == self.rank_of[stage]:
            return None
        return (SEND_F if kind == FORWARD else SEND_B), stage, mb

    def too_small(self) -> PuzzleError:
        """Return the error for a cap under which nothing was found."""
        unit = self.cost.size_unit
        problem = f"no schedule was found that holds at most {unit.describe(self.cap or 0)}"
        stages = len(self.mine[0])
        least = stages * (self.prices.kept + self.prices.grad) + (1 + stages) * self.prices.activation
        held = f"weights, their gradients and {('two', 'three')[stages - 1]} activations"
        expected = f"more memory; {held} take {unit.show(least)}, enough for one micro-batch after the other"
        return PuzzleError(problem, where="search", expected=expected)

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
            holds = [trip + whole for trip in trips]
            found.append(begins + Fraction(self.batches * sum(holds), room) + prices.update)
            found.append(begins + self._bound_with_gradients(place, holds, room) + prices.update)
        return max(found)

    def _bound_with_gradients(self, place: int, holds: Sequence[TimeUnits], room: int) -> Fraction:
        """Return what a rank needs at least from its first forward to its last backward, in time units. ``holds``: for
        how long it holds an input of each of its stages; ``room``: for how many at a time, without any gradient.

        Proof. Nothing is let go before its first weight gradient is made, by which time one micro-batch has gone up and
        come back to the highest of its stages. Till then it has begun with ``before`` inputs at most: all but one are
        still there beside the gradient. The gradient stays; so of all others, of which each is held for its time, no
        more than ``after`` are there at once.
        """
        stages, prices = self.mine[place], self.prices
        left = Fraction(self.cap or 0) - len(stages) * Fraction(prices.kept) - Fraction(prices.grad)
        after = math.floor(left / Fraction(prices.activation)) - 1
        if after < 1:
            return Fraction(0)
        before = min(room, after + 2)
        if len(stages) == 1:
            return self._bound_in_turn(holds[0], before, after)
        first = (self.stages - stages[0]) * prices.work[FORWARD] + prices.loss + self._backward()
        first += (self.stages - 1 - stages[-1]) * self._to_input()
        first += self._hops(stages[0], self.stages - 1) + self._hops(stages[-1], self.stages - 1)
        others = sorted((hold for hold in holds for _ in range(self.batches)), reverse=True)[before:]
        return first + Fraction(sum(others), after)

    def _bound_in_turn(self, hold: TimeUnits, before: int, after: int) -> Fraction:
        """Return the same for a rank with one stage, from how its inputs come and go.

        Proof. Among the first i that are let go one was taken as the i-th, or later: it went ``hold`` after that. And
        when more than ``before`` have been taken there is a gradient, and ``after`` fit beside it: so when the i-th is
        taken, all but ``after`` of those so far are gone. In between a rank does one thing after the other.
        """
        work = self.prices.work
        piece = min(work[kind] for kind in (BACKWARD, self.back[-1]))  # with which an input is let go
        taken, gone = list[TimeUnits](), list[TimeUnits]()
        for turn in range(self.batches):
            begins = taken[-1] + work[FORWARD] if taken else 0
            if turn >= before:
                begins = max(begins, gone[turn - after])
            taken.append(begins)
            gone.append(max(begins + hold, gone[-1] + piece if gone else 0))
        return Fraction(gone[-1])

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
