"""What training starts from, the same on every rank without a word between them: each thing has a generator of its
own, seeded by (seed, kind, index). Numbers are drawn on the CPU in float64, so that precisions and devices differ by
rounding only. All functions give tensors of the workload's dtype, on the CPU.
"""

from __future__ import annotations

import math
from hashlib import sha256

import torch

from ..running.workload import Workload
from .layers import LAYERS, parameters

RATE, BETAS, EPSILON = 1e-2, (0.9, 0.95), 1e-8
"""Adam's learning rate, decay of its two moments, and what keeps it from dividing by zero."""

WARM = 10
"""Optimizer steps that lie behind the first state. It must not be empty: Adam's first step from zero is the sign of the
gradient, which says nothing of its size, and doubles the noise of a rounding error near zero to a whole step."""


def inputs(work: Workload, batch: int) -> torch.Tensor:
    """The input of layer 0 for a micro-batch: (length, hidden)."""
    return _cast(work, _normal(work, "input", batch, work.length, work.hidden))


def target(work: Workload, batch: int) -> torch.Tensor:
    """What the last layer should give for a micro-batch: (length, hidden)."""
    return _cast(work, _normal(work, "target", batch, work.length, work.hidden))


def weight(work: Workload, layer: int) -> torch.Tensor:
    """A layer's flat weight before training: (parameters,). Gains are near 1, matrices keep the size of their input."""
    shapes = LAYERS[work.layer].shapes(work.hidden)
    numbers = _normal(work, "weight", layer, parameters(work.layer, work.hidden))
    parts = numbers.split([math.prod(shape) for shape in shapes])
    scaled = [
        1 + part / 10 if len(shape) == 1 else part / math.sqrt(shape[0])
        for part, shape in zip(parts, shapes, strict=True)
    ]
    return _cast(work, torch.cat(scaled))


def moments(work: Workload, layer: int) -> torch.Tensor:
    """Adam's m and v of a layer after WARM steps: (2, parameters). As large as gradients of this size of batch are, so
    that the update depends on both."""
    drawn = _normal(work, "moments", layer, 2, parameters(work.layer, work.hidden))
    size = 0.4 / math.sqrt(work.length * work.batches)
    return _cast(work, torch.stack([size * drawn[0], (size * (1 + drawn[1].abs())) ** 2]))


def loss_scale(work: Workload) -> float:
    """What the sum of squares is divided by: ALL tokens of all micro-batches, so that gradients of parts add up."""
    return float(work.length * work.batches)


def _normal(work: Workload, kind: str, index: int, *shape: int) -> torch.Tensor:
    digest = sha256(f"{work.seed} {kind} {index}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _cast(work: Workload, numbers: torch.Tensor) -> torch.Tensor:
    return numbers.to(getattr(torch, work.dtype))
