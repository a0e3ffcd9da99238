"""Which tokens go to which experts, and how long these take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...basics.units import Elements
from ..events import Event
from ..experts import ALLTOALL, EXPERT_FORWARD, OUTWARD
from ..labels import experts_of

DIGITS = 9
"""Of a time, so that sums of the same lengths are the same."""


class Expert(NamedTuple):
    """An expert on the rank that computes it, and how many of the numbers of each micro-batch go there."""

    rank: int
    number: int
    load: Elements


class Traffic(NamedTuple):
    """What goes to the experts of a layer. ``brought``: the micro-batches of each rank; ``came``: those of which each
    rank gets tokens; ``ticks``: how long its experts take."""

    layer: int
    experts: Sequence[Expert]
    brought: dict[int, list[int]]
    came: dict[int, frozenset[int]]
    ticks: dict[int, float]

    @property
    def hottest(self) -> list[int]:
        """The ranks that all others wait for, if not all take as long."""
        most = max(self.ticks.values())
        return [rank for rank, ticks in self.ticks.items() if ticks == most] if most > min(self.ticks.values()) else []

    @property
    def against_the_mean(self) -> float:
        """How long the hottest rank takes, against the mean of all."""
        return max(self.ticks.values()) * len(self.ticks) / sum(self.ticks.values())


def traffic_of(events: Iterable[Event], layer: int, experts: int, load: Callable[[int], Elements]) -> Traffic | None:
    """Return what went to the experts of a layer, of so many, or None if no tokens did. ``load(number)``: how many
    elements of each micro-batch go to an expert."""
    out, computed = defaultdict[int, list[Event]](list), list[Event]()
    for event in events:
        goes_out = event.kind == ALLTOALL.kind and event.tensor in ("Activation", OUTWARD["Activation"])
        if goes_out and layer in (event.layers or (event.layer,)):
            out[event.rank].append(event)
        elif event.kind == EXPERT_FORWARD.kind and event.layer == layer:
            computed.append(event)
    if not (experts_of(layer, experts) and out and computed):
        return None
    came, ticks = dict[int, frozenset[int]](), dict[int, float]()
    for event in computed:
        came[event.rank] = came.get(event.rank, frozenset()) | event.batches
        ticks[event.rank] = round(ticks.get(event.rank, 0.0) + event.length, DIGITS)
    dealt = [
        Expert(rank, number, load(number)) for rank in sorted(came) for number in _experts_at(experts, rank, out[rank])
    ]
    brought = {
        rank: sorted(frozenset().union(*[event.batches for event in own if event.tensor == "Activation"]))
        for rank, own in sorted(out.items())
    }
    return Traffic(layer, dealt, brought, came, {rank: ticks[rank] for rank in sorted(ticks)})


def _experts_at(experts: int, rank: int, events: Sequence[Event]) -> range:
    """Return which experts a rank gets tokens for: in each group, along one axis after the other, the i-th rank has
    piece i."""
    place, pieces = 0, 1
    for group in dict.fromkeys(event.group for event in events):
        place, pieces = place * len(group) + group.index(rank), pieces * len(group)
    return range(place * experts // pieces, (place + 1) * experts // pieces)
