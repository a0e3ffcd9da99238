"""What a layer computes: pure functions of an input and one flat weight, in any precision, on any device.

``x`` is (length, hidden), the output too; ``flat`` is (parameters,), all matrices of the layer one after the other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ..running.workload import units_of

Shape = tuple[int, ...]
Cheap = Callable[..., Tensor]
"""How the part of a layer is computed that is cheap to make again: ``cheap(function, *tensors)``."""
Gates: TypeAlias = Tensor | None
"""With which weight each token goes through each unit of a layer with experts, (length, units); None: all with 1."""


def at_once(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Compute it, and keep what its backward needs."""
    return function(*tensors)


def again(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Compute it, keep nothing, and make it again in backward."""
    return cast(Tensor, checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False))


class Layer(NamedTuple):
    """A kind of layer."""

    shapes: Callable[[int], tuple[Shape, ...]]
    """The shapes of the parameters for a hidden size, in the order of the flat weight. One dimension: a gain near 1."""
    function: Callable[[Tensor, Sequence[Tensor], Cheap, Gates], Tensor]
    """The output, for input and parameters."""


def units_of_mlp(x: Tensor, units: Tensor, cheap: Cheap = at_once, gates: Gates = None) -> Tensor:
    """Return ``gelu(x A) B``. Unit j, (2 hidden,), is column j of A and then row j of B: so what some units add to the
    output can be computed without the others (Shoeybi and others, "Megatron-LM", 2019, arXiv 1909.08053)."""
    up, down = units.split(x.shape[-1], 1)

    def through(inner: Tensor, down: Tensor) -> Tensor:
        inner = functional.gelu(inner)
        return (inner if gates is None else inner * gates) @ down

    return cheap(through, x @ up.T, down)


def residual_mlp(x: Tensor, parameters: Sequence[Tensor], cheap: Cheap, gates: Gates) -> Tensor:
    """Return ``x + gelu(x A) B``. With gates, which for each token are those of its experts and add up to 1, this is
    what all experts together give."""
    return x + units_of_mlp(x, parameters[0], cheap, gates)


def transformer_block(x: Tensor, parameters: Sequence[Tensor], cheap: Cheap = at_once, gates: Gates = None) -> Tensor:
    """Return causal attention among the tokens of x, then an MLP, each after a layer norm and with a bypass. Cheap to
    make again is what lies between the matrices: the attention of each head, and gelu (Korthikanti and others,
    "Reducing Activation Recomputation in Large Transformer Models", 2022, arXiv 2205.05198)."""
    count = heads(x.shape[-1])

    def attend(queries_keys_values: Tensor) -> Tensor:
        queries, keys, values = (
            part.unflatten(-1, (count, -1)).transpose(0, 1)  # (heads, length, hidden / heads)
            for part in queries_keys_values.chunk(3, -1)
        )
        scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return (scores.masked_fill(future, -math.inf).softmax(-1) @ values).transpose(0, 1).flatten(-2)

    return rest_of_block(x, cheap(attend, projected(x, parameters)), parameters, cheap)


def projected(x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return queries, keys and values of a block, side by side, a row for each token."""
    return cast(Tensor, (functional.layer_norm(x, x.shape[-1:]) * parameters[0]) @ parameters[1])


def rest_of_block(x: Tensor, found: Tensor, parameters: Sequence[Tensor], cheap: Cheap = at_once) -> Tensor:
    """Return the output of a block, from what its queries have found."""
    _, _, from_heads, gain, up, down = parameters
    x = x + found @ from_heads
    inner = (functional.layer_norm(x, x.shape[-1:]) * gain) @ up
    return x + cheap(lambda inner, down: functional.gelu(inner) @ down, inner, down)


def heads(hidden: int) -> int:
    """Return the number of attention heads: up to 8 of equal size, at least 16 wide."""
    return next((count for count in (8, 4, 2) if hidden % count == 0 and hidden // count >= 16), 1)


MLP = Layer(lambda h: ((units_of(h), 2 * h),), residual_mlp)
BLOCK = Layer(lambda h: ((h,), (h, 3 * h), (h, h), (h,), (h, 4 * h), (4 * h, h)), transformer_block)
LAYERS = {"mlp": MLP, "block": BLOCK, "experts": MLP}
"""The kinds of layer (``lib.running.workload.KINDS``)."""


def parameters(kind: str, hidden: int) -> int:
    """Return how many numbers the weight of a layer has."""
    return sum(map(math.prod, LAYERS[kind].shapes(hidden)))


def shapes_of_adapter(kind: str, hidden: int) -> tuple[Shape, ...]:
    """Return the shapes of an adapter, in the order of its flat numbers: for each matrix of the layer two, whose
    product, of rank hidden / 16, has the shape of that matrix (Hu and others, "LoRA", 2021, arXiv 2106.09685)."""
    rank, matrices = max(1, hidden // 16), [shape for shape in LAYERS[kind].shapes(hidden) if len(shape) == 2]
    return tuple(shape for rows, columns in matrices for shape in ((rows, rank), (rank, columns)))


def pairs_of(kind: str, hidden: int, adapter: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the two thin matrices beside each matrix of a layer, of a flat adapter."""
    thin = split(shapes_of_adapter(kind, hidden), adapter)
    return list(zip(thin[::2], thin[1::2], strict=True))


def merged(kind: str, hidden: int, flat: Tensor, adapter: Tensor) -> Tensor:
    """Return the flat weight of a layer with the products of its adapter added to its matrices."""
    pairs, parts = iter(pairs_of(kind, hidden, adapter)), split(LAYERS[kind].shapes(hidden), flat)
    return torch.cat([(part if part.dim() == 1 else part + torch.mm(*next(pairs))).flatten() for part in parts])


@dataclass(frozen=True)
class Adapted:
    """A frozen matrix with the two thin ones beside it. It multiplies as ``matrix + tall @ wide`` does, but what is
    thin stays thin: so neither their product nor the gradient of the matrix is ever computed."""

    matrix: Tensor
    tall: Tensor
    wide: Tensor

    def __rmatmul__(self, x: Tensor) -> Tensor:
        return x @ self.matrix + (x @ self.tall) @ self.wide

    @property
    def T(self) -> "Adapted":
        """The transposed of it."""
        return Adapted(self.matrix.T, self.wide.T, self.tall.T)

    def split(self, size: int, dim: int) -> list["Adapted"]:
        """Return it in blocks of so many columns. ``dim`` is 1."""
        blocks = zip(self.matrix.split(size, dim), self.wide.split(size, dim), strict=True)
        return [Adapted(matrix, self.tall, wide) for matrix, wide in blocks]


def split(shapes: Sequence[Shape], flat: Tensor) -> list[Tensor]:
    """Return the parameters that a flat weight holds, in their shapes."""
    parts = flat.split([math.prod(shape) for shape in shapes])  # split, whose gradient is a single concatenation
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def apply(
    kind: str, x: Tensor, flat: Tensor, cheap: Cheap = at_once, gates: Gates = None, adapter: Any = None
) -> Tensor:
    """Return the output of a layer with this flat weight; beside a flat adapter, the weight is frozen."""
    parameters: list[Any] = [*split(LAYERS[kind].shapes(x.shape[-1]), flat)]
    if adapter is not None:
        pairs = iter(pairs_of(kind, x.shape[-1], adapter))
        parameters = [part if part.dim() == 1 else Adapted(part, *next(pairs)) for part in parameters]
    return LAYERS[kind].function(x, parameters, cheap, gates)


def apply_units(x: Tensor, flat: Tensor, bypass: bool, cheap: Cheap = at_once, gates: Gates = None) -> Tensor:
    """Return what the units of an MLP in ``flat``, one after the other, add to its output; with ``bypass`` x, too."""
    added = units_of_mlp(x, flat.view(-1, 2 * x.shape[-1]), cheap, gates)
    return x + added if bypass else added
