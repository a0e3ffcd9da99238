"""The same training by torch itself, and how far the ranks' weights are from it.

The reference shares a layer's formula and the starting numbers with the engines, and nothing else: it is one
function of all weights and all micro-batches, differentiated as a whole, and updated by ``torch.optim.Adam``, or by
what Muon makes of singular values.
"""

import math
from collections.abc import Mapping
from functools import lru_cache

import torch

from ..machine.check import TRAINED
from ..running.workload import Workload
from . import data
from .agreement import Agreement, LayerError, badness
from .layers import LAYERS, apply, merged, split
from .pieces import Pieces, Span


@lru_cache(maxsize=4)
def reference(work: Workload) -> tuple[torch.Tensor, ...]:
    """Return each layer's weight, or its adapter, after a step of plain training: flat, on the CPU, in work's dtype."""
    adapters, own = work.train == TRAINED[1], work.layers - work.tied
    used = [*range(own), *range(work.tied)]  # by each layer, the weight of which: the last may use that of the first
    frozen, weights = [data.weight(work, one) for one in used], [torch.nn.Parameter(begun(work, i)) for i in range(own)]
    adam = torch.optim.Adam(weights, lr=data.RATE, betas=data.BETAS, eps=data.EPSILON)
    for layer, weight in enumerate(weights):
        m, v = data.moments(work, layer, adapters)
        adam.state[weight] = {"step": torch.tensor(float(data.WARM)), "exp_avg": m, "exp_avg_sq": v}
    with torch.enable_grad():
        loss = torch.zeros((), dtype=weights[0].dtype)
        for batch in range(work.batches):
            x = data.inputs(work, batch)
            for one, fixed in zip(used, frozen, strict=True):
                flat = merged(work.layer, work.hidden, fixed, weights[one]) if adapters else weights[one]
                x = apply(work.layer, x, flat, gates=data.gates(work, one, batch))
            counts = data.shares(work, batch) > 0  # of all that count one mean: no micro-batch is weighted
            tokens = sum(work.tokens) or work.length * work.batches
            loss = loss + ((x - data.target(work, batch)) * counts).square().sum() / 2 / tokens
        loss.backward()
    if work.train == TRAINED[2]:
        return tuple(weight.detach() - data.RATE * direction(work, weight.grad) for weight in weights)
    adam.step()
    return tuple(weight.detach() for weight in weights)


def direction(work: Workload, grad: torch.Tensor) -> torch.Tensor:
    """Return the direction in which Muon goes: a flat gradient whose matrices have other singular values."""
    parts = []
    for part in split(LAYERS[work.layer].shapes(work.hidden), grad.double()):
        left, values, right = torch.linalg.svd(part.view(-1, part.shape[-1]), full_matrices=False)
        values = values / values.norm()
        for _ in range(data.TIMES):
            values = sum(factor * values**power for factor, power in zip(data.TO_ONE, (1, 3, 5), strict=True))
        parts.append((left * values @ right).flatten())
    return torch.cat(parts).to(grad.dtype)


def compare(work: Workload, finals: Mapping[int, Mapping[int, object]]) -> Agreement:
    """Return how far the ranks' final weights, {rank: {layer: value}}, are from the reference. A rank may have any part
    of a layer. Wrong or missing numbers raise nothing here: see ``Agreement.check``."""
    rows: list[LayerError] = []
    for layer, right in enumerate(reference(work)):
        parts = {rank: finals[rank][layer] for rank in sorted(finals) if layer in finals[rank]}
        rows.append(_compare_layer(layer, right.double(), begun(work, layer).double(), parts))
    return Agreement(work, len(begun(work, 0)), tuple(rows))


def begun(work: Workload, layer: int) -> torch.Tensor:
    """Return what is trained of a layer, its adapter or else its weight, as it is before."""
    return (data.adapter if work.train == TRAINED[1] else data.weight)(work, layer)


def _compare_layer(layer: int, right: torch.Tensor, before: torch.Tensor, found: Mapping[int, object]) -> LayerError:
    update = (right - before).abs().max().item()
    first = torch.zeros_like(right)  # what the first rank that has a number says it is
    known = torch.zeros_like(right, dtype=torch.bool)
    worst: list[tuple[float, int | None, int, Span]] = []  # of each rank
    spread = 0.0
    for rank, part in found.items():
        if not isinstance(part, Pieces) or not part.spans:
            continue
        here = torch.cat([torch.arange(start, stop) for start, stop in part.spans])
        numbers = part.flat[0].double().cpu()
        off = (numbers - right[here]).abs()
        most = int(off.argmax())  # of nan, if there is any
        at = int(here[most])
        worst.append((off[most].item(), rank, at, next(span for span in part.spans if at < span[1])))
        differ = torch.where(known[here], (numbers - first[here]).abs(), 0.0).max().item()
        spread = max(spread, differ, key=badness)
        first[here] = torch.where(known[here], first[here], numbers)
        known[here] = True
    error, rank_of_worst, at, span = max(worst, key=lambda one: badness(one[0]), default=(0.0, None, 0, (0, 0)))
    missing = int((~known).sum())
    relative = math.inf if missing or not update else error / update
    if math.isnan(error):
        relative = error
    return LayerError(layer, math.inf if missing else error, relative, rank_of_worst, at, span, spread, missing)
