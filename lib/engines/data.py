"""What training starts from, the same on every rank without any communication.

Each tensor has a generator of its own, seeded by (seed, kind, index). Numbers are drawn on the CPU in float64, so that
precisions and devices differ by rounding only. All functions return tensors of the workload's dtype, on the CPU.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

import torch

from ..record.labels import experts_of
from ..running.workload import Workload, units_of
from .layers import LAYERS, Gates, Shape, parameters, shapes_of_adapter, split

RATE, BETAS, EPSILON = 1e-2, (0.9, 0.95), 1e-8
"""Adam's learning rate, the decay of its two moments, and what keeps it from dividing by zero."""

TO_ONE, TIMES = (3.4445, -4.7750, 2.0315), 5
"""Muon's a x + b x^3 + c x^5, which brings singular values near 1, and how often it does (Jordan and others, 2024)."""

WARM = 10
"""Optimizer steps before the first state. Adam's first step from zero would be the sign of the gradient, which says
nothing of its size, and would turn a rounding error near zero into a whole step."""


def inputs(work: Workload, batch: int) -> torch.Tensor:
    """Return the input of layer 0 for a micro-batch: (length, hidden)."""
    return _cast(work, _normal(work, "input", batch, work.length, work.hidden))


def target(work: Workload, batch: int) -> torch.Tensor:
    """Return what the last layer should give for a micro-batch: (length, hidden)."""
    return _cast(work, _normal(work, "target", batch, work.length, work.hidden))


def weight(work: Workload, layer: int) -> torch.Tensor:
    """Return a layer's flat weight before training: (parameters,)."""
    return _drawn(work, "weight", layer, LAYERS[work.layer].shapes(work.hidden))


def moments(work: Workload, layer: int, of_adapter: bool = False) -> torch.Tensor:
    """Return Adam's m and v of a layer, or of its adapter, after WARM steps, (2, parameters). They are as large as
    gradients of this size of batch are, so that the update depends on both."""
    count = len(adapter(work, layer)) if of_adapter else parameters(work.layer, work.hidden)
    drawn = _normal(work, "moments of the adapter" if of_adapter else "moments", layer, 2, count)
    size = 0.4 / math.sqrt(work.length * work.batches)
    return _cast(work, torch.stack([size * drawn[0], (size * (1 + drawn[1].abs())) ** 2]))


def adapter(work: Workload, layer: int) -> torch.Tensor:
    """Return a layer's flat adapter as it is during training: at first the second matrix of each pair would be zero."""
    return _drawn(work, "adapter", layer, shapes_of_adapter(work.layer, work.hidden))


def _drawn(work: Workload, kind: str, layer: int, shapes: Sequence[Shape]) -> torch.Tensor:
    """Return parameters, flat: gains near 1, matrices that make nothing larger. A deep model would make a rounding
    large as well."""
    parts = split(shapes, _normal(work, kind, layer, sum(map(math.prod, shapes))))
    scaled = [1 + part / 10 if part.dim() == 1 else part / math.sqrt(max(part.shape)) for part in parts]
    return _cast(work, torch.cat([part.flatten() for part in scaled]))


class Routes(NamedTuple):
    """Which tokens of a micro-batch go to which experts of a layer: a row for each token and each of its experts,
    expert by expert, in the order of the tokens."""

    tokens: torch.Tensor  # (rows,): which token it is
    gates: torch.Tensor  # (rows,): with which weight it goes there; those of a token add up to 1


@lru_cache(maxsize=256)
def routes(work: Workload, layer: int, batch: int) -> Routes:
    """Return where the tokens of a micro-batch go in a layer: in an order that is drawn, the first ones to the first
    expert, and so on, until each token has gone to as many as it has chosen."""
    drawn = _normal(work, f"routes of layer {layer}", batch, 1 + work.chosen, work.length)
    order, strength = drawn[0].argsort(), drawn[1:].exp()
    ended = torch.tensor(ends(work, layer))
    experts = torch.arange(work.experts).repeat_interleave(ended.diff())
    tokens, gates = order.repeat(work.chosen), (strength / strength.sum(0))[:, order].flatten()
    in_order = (experts * work.length + tokens).argsort(stable=True)
    return Routes(tokens[in_order], _cast(work, gates[in_order]))


@lru_cache(maxsize=256)
def ends(work: Workload, layer: int) -> tuple[int, ...]:
    """Return where the rows of each expert begin, and the end of the last: as many for each as its load says, but for
    rounding. From a layer with experts to the next the loads are turned by one (``ExpertCost``)."""
    rows, turn, loads = work.length * work.chosen, layer // 2 % work.experts, work.loads
    return tuple(rows * upto // sum(loads) for upto in accumulate(loads[turn:] + loads[:turn], initial=0))


def gates(work: Workload, layer: int, batch: int) -> Gates:
    """Return with which weight each token goes through each unit of a layer, (length, units); None for a dense one."""
    if not experts_of(layer, work.experts):
        return None
    tokens, weights = routes(work, layer, batch)
    experts = torch.arange(work.experts).repeat_interleave(torch.tensor(ends(work, layer)).diff())
    table = weights.new_zeros(work.length, work.experts).index_put((tokens, experts), weights, accumulate=True)
    return table.repeat_interleave(units_of(work.hidden) // work.experts, 1)


def shares(work: Workload, batch: int) -> torch.Tensor:
    """Return by how much the numbers of an output count, (length, hidden): one by ALL tokens of all micro-batches, so
    that gradients add up; where it is said how many each has, one by these, and nothing behind the last."""
    n, parts = (work.tokens[batch], 1) if work.tokens else (work.length, work.batches)
    return _cast(work, (torch.arange(work.length) < n).double()[:, None].expand(-1, work.hidden) / (n * parts))


def _normal(work: Workload, kind: str, index: int, *shape: int) -> torch.Tensor:
    digest = sha256(f"{work.seed} {kind} {index}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _cast(work: Workload, numbers: torch.Tensor) -> torch.Tensor:
    return numbers.to(getattr(torch, work.dtype))
