"""What would help a run on a cluster: its time and memory with each single change of its prices.

Nothing is run again. On every rank each operation takes what it took, times the ratio of its new price to the old one,
and stages that wait for others wait in proportion; what is held at each moment is counted anew. That is exact where
nothing is exposed but the pipeline's bubble, and close elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ..basics.units import show_bytes
from ..machine.outcome import Outcome
from ..record.events import Event
from ..record.kinds import MEMORY_KINDS
from ..record.table import SEND
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, LOSS, UPDATE
from .prices import RealCost
from .transformer import FUSED

PRICED = (FORWARD.kind, BACKWARD.kind, BACKWARD_INPUT.kind, BACKWARD_WEIGHT.kind, LOSS.kind, UPDATE.kind)
ACTIVATIONS = MEMORY_KINDS.index("activations")
LEAST = 0.005  # changes of less in time and in memory are not worth a line


class Change(NamedTuple):
    """A single change, and the ``seconds`` and ``bytes`` of a step with it."""

    name: str
    seconds: float
    bytes: float
    fits: bool

    def line(self, run: Outcome) -> str:
        """Return the change as a line: what it takes away, or adds."""
        time, size = self.seconds / run.time - 1, self.bytes - run.memory
        parts = [f"{100 * abs(time):.0f} % {'slower' if time > 0 else 'faster'}"] if abs(time) >= LEAST else []
        if abs(size) >= LEAST * run.memory:
            parts.append(f"{show_bytes(abs(size))} {'more' if size > 0 else 'less'}")
        return f"{self.name}: {', '.join(parts)}{'' if self.fits else ': does not fit'}"


def changes(run: Outcome, cost: RealCost) -> list[Change]:
    """Return the changes that are worth a line: first those that are faster and fit, from the fastest."""
    found = []
    moments = {(event.kind, len(event.batches), event.held): event for event in run.typical[0]}.values()
    for name, other in _others(cost):
        seconds, size = _time(run, cost, other), _memory(moments, cost.model.layers / run.layers, cost, other)
        if abs(seconds / run.time - 1) >= LEAST or abs(size / run.memory - 1) >= LEAST:
            found.append(Change(name, seconds, size, other.fits(round(size))))
    return sorted(found, key=lambda one: (not one.fits, one.seconds, one.bytes))


def _others(cost: RealCost) -> Iterator[tuple[str, RealCost]]:
    """Yield single changes, each with the prices that it makes."""
    of = partial(replace, cost)
    if cost.recomputed != "none":
        yield "nothing computed again", of(recomputed="none", recompute_part=1.0)
    if cost.model.attention == "scores" and cost.recomputed != "selective":
        yield "only the scores of attention computed again", of(recomputed="selective", recompute_part=1.0)
    for part, name in ((0.5, "half of the layers computed again"), (1.0, "all layers computed again")):
        if (cost.recomputed, cost.recompute_part) != ("full", part):
            yield name, of(recomputed="full", recompute_part=part)
    if not cost.offload:
        yield "what forward leaves behind on the host until backward", of(offload=1.0)
    if cost.tensor > 1 and not cost.sequence_parallel:
        yield "sequence parallelism", of(sequence_parallel=True)
    if cost.tensor > 1 and not cost.overlap:
        yield "tensor-parallel traffic hidden behind products", of(overlap=True)
    if cost.cluster.peak_fp8 and not cost.fp8:
        yield "layers in 8 bits", of(fp8=True)
    if cost.cluster.loss_bytes > FUSED:
        yield "a fused loss", of(cluster=replace(cost.cluster, loss_bytes=FUSED))
    if not cost.cluster.fused:
        yield "norms and the like compiled", of(cluster=replace(cost.cluster, fused=True))
    for optimizer in ("momentum", "sgd"):
        if cost.optimizer == "adam" and cost.adapter_rank is None:
            yield f'optimizer="{optimizer}"', of(optimizer=optimizer)
    if cost.gradients > 2:
        yield "gradients kept in 2 bytes", of(gradients=2)


def _time(run: Outcome, cost: RealCost, other: RealCost) -> float:
    """Return the seconds of a step at other prices, by the rank that computes most. In a pipeline the time in which it
    waits is in proportion to what it computes."""
    ratios = {kind: getattr(other, kind) / getattr(cost, kind) for kind in PRICED if getattr(cost, kind)}
    typical, _ = run.typical
    busy, then = defaultdict[int, float](float), defaultdict[int, float](float)
    for event in typical:
        if event.kind in PRICED:
            took = float(event.end - event.start)
            busy[event.rank] += took
            then[event.rank] += took * ratios.get(event.kind, 1.0)
    rank = max(sorted(busy), key=busy.__getitem__, default=0)
    if not busy[rank]:
        return run.time
    if any(event.kind == SEND.kind for event in typical):  # stages wait for each other's work
        return run.time * then[rank] / busy[rank]
    return run.time - busy[rank] + then[rank]


def _memory(moments: Iterable[Event], together: float, cost: RealCost, other: RealCost) -> float:
    """Return the highest peak at other prices, of what is held at each moment, with so many layers to a layer."""

    def layer(prices: RealCost) -> float:
        inner = (1 - prices.offload) * prices._inner(prices.recomputed)
        return (inner + prices._boundary()) * together

    before, after = ((one.model.optimizer_bytes(one.stored, one.optimizer), one.gradients) for one in (cost, other))
    slots = map(MEMORY_KINDS.index, ("opt_states", "weight_grads"))
    scaled = [(slot, now / was if was else 1.0) for slot, was, now in zip(slots, before, after, strict=True)]
    unit = layer(other) / layer(cost)

    def held(event: Event) -> float:
        works = [_workspace(event, prices) for prices in (cost, other)]
        kept = max(0.0, float(event.held[ACTIVATIONS]) - works[0])
        found = float(sum(event.held)) - float(event.held[ACTIVATIONS]) + kept * unit + works[1]
        return found + sum(float(event.held[slot]) * (times - 1) for slot, times in scaled)

    return max(map(held, moments))


def _workspace(event: Event, cost: RealCost) -> float:
    """Return the bytes that an operation holds while it runs: a loss its logits, a backward a layer made again."""
    many = max(1, len(event.batches))
    if event.kind == LOSS.kind:
        head = 0.0 if cost.gathered is None else 2 * cost.gathered * cost.model.vocabulary * cost.model.hidden
        return cost.held_by_loss * many + head / cost.tensor
    if event.kind not in (BACKWARD.kind, BACKWARD_INPUT.kind) or cost.recomputed == "none":
        return cost.offload * cost._inner(cost.recomputed) * many if event.kind in PRICED[:3] else 0.0
    return (cost.made_again(cost.recomputed) + cost.offload * cost._inner(cost.recomputed)) * many
