"""What a layer computes: pure functions of an input and one flat weight, in any precision, on any device.

``x`` is (length, hidden), the output too; ``flat`` is (parameters,), all matrices of the layer one after the other.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch.nn import functional

Shape = tuple[int, ...]


class Layer(NamedTuple):
    """A kind of layer."""

    shapes: Callable[[int], tuple[Shape, ...]]
    """The shapes of the parameters for a hidden size, in the order of the flat weight. One dimension: a gain near 1."""
    function: Callable[[torch.Tensor, Sequence[torch.Tensor]], torch.Tensor]  # the output, for input and parameters


def residual_mlp(x: torch.Tensor, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return ``x + tanh(x W)``, with as many parameters as a simulated weight has elements."""
    (w,) = parameters
    return x + torch.tanh(x @ w)


def transformer_block(x: torch.Tensor, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return causal attention among the tokens of x, then an MLP, each after a layer norm and with a bypass."""
    gain1, to_qkv, from_heads, gain2, up, down = parameters
    hidden = x.shape[-1]
    queries, keys, values = (
        part.unflatten(-1, (heads(hidden), -1)).transpose(0, 1)  # (heads, length, hidden / heads)
        for part in ((functional.layer_norm(x, (hidden,)) * gain1) @ to_qkv).chunk(3, -1)
    )
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    attention = scores.masked_fill(future, -math.inf).softmax(-1)
    x = x + (attention @ values).transpose(0, 1).flatten(-2) @ from_heads
    return x + functional.gelu((functional.layer_norm(x, (hidden,)) * gain2) @ up) @ down


def heads(hidden: int) -> int:
    """Return the number of attention heads: up to 8 of equal size, at least 16 wide."""
    return next((count for count in (8, 4, 2) if hidden % count == 0 and hidden // count >= 16), 1)


LAYERS = {
    "mlp": Layer(lambda h: ((h, h),), residual_mlp),
    "block": Layer(lambda h: ((h,), (h, 3 * h), (h, h), (h,), (h, 4 * h), (4 * h, h)), transformer_block),
}
"""The kinds of layer (``lib.running.workload.KINDS``)."""


def parameters(kind: str, hidden: int) -> int:
    """Return how many numbers the weight of a layer has."""
    return sum(map(math.prod, LAYERS[kind].shapes(hidden)))


def split(kind: str, hidden: int, flat: torch.Tensor) -> list[torch.Tensor]:
    """Return the parameters that a flat weight holds, in their shapes."""
    shapes = LAYERS[kind].shapes(hidden)
    parts = flat.split([math.prod(shape) for shape in shapes])  # split, whose gradient is a single concatenation
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def apply(kind: str, x: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """Return the output of a layer with this flat weight."""
    return LAYERS[kind].function(x, split(kind, x.shape[-1], flat))
