"""The training of tensors with numbers: kind and sizes of a layer, precision, seed. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..basics.arguments import one_of_names, whole_number
from ..basics.errors import PuzzleError
from ..machine.check import TRAINED
from ..machine.cost import Shape

KINDS = ("mlp", "block", "experts")
"""The kinds of layer: ``x + gelu(x A) B``; a transformer block; and the first one, with the units of every other layer
dealt to experts."""

TOLERANCES = {"float32": 1e-4, "float64": 1e-10}
"""The precisions, with the largest error of trained weights relative to the largest update of their layer."""


@dataclass(frozen=True)
class Workload:
    """The training that real tensors carry out; it can be sent to other processes.

    A weight belongs to one of ``layers`` layers of kind ``layer``; a micro-batch, one of ``batches``, has ``length``
    tokens of ``hidden`` numbers each. ``train`` says what is trained: the layers' weights, or adapters beside them.
    Everything random follows from ``seed``. Of ``experts`` in every other layer, a token goes to ``chosen``, and to
    all together go as many tokens as ``loads`` says (``ExpertCost``). Where ``tokens`` says how many each micro-batch
    has, all are as long as the longest, and the rest of it does not count. ``tied``: the last layer uses the weight of
    layer 0. Raises PuzzleError for an unknown kind or precision, and for a size that is no number from 1 up.
    """

    layers: int = 2
    batches: int = 1
    layer: str = "mlp"
    dtype: str = "float32"
    hidden: int = 64
    length: int = 16
    seed: int = 0
    train: str = TRAINED[0]
    experts: int = 0
    loads: tuple[int, ...] = ()
    chosen: int = 1
    tokens: tuple[int, ...] = ()
    tied: bool = False

    def __post_init__(self) -> None:
        one_of_names("layer", self.layer, KINDS)
        one_of_names("dtype", self.dtype, tuple(TOLERANCES))
        one_of_names("train", self.train, TRAINED)
        for name in ("layers", "batches", "hidden", "length", "seed"):
            whole = whole_number(name, getattr(self, name), least=int(name != "seed"))
            object.__setattr__(self, name, whole)

    def on(self, shape: Shape) -> Workload:
        """Return the same training on a machine whose layers may have experts. Raise PuzzleError where a layer of this
        kind and size has none, or not so many."""
        experts, (loads, chosen) = shape.experts, shape.cost.routing
        if experts and self.layer != "experts":
            problem = f"a layer of kind {self.layer!r} has no experts"
            raise PuzzleError(problem, where="real tensors", expected='layer="experts"', got=f"experts={experts}")
        if self.layer == "experts":
            self._check_dealt(experts)
        experts_too = replace(self, experts=experts, loads=loads or (1,) * experts, chosen=chosen)
        length = max(self.length, *shape.tokens, 0)
        return replace(experts_too, tokens=shape.tokens, length=length, tied=shape.tied)

    def _check_dealt(self, experts: int) -> None:
        """Raise PuzzleError unless the units of a layer are dealt to so many experts in equal parts."""
        if not experts:
            problem = "it is not said how many experts the layers have"
            raise PuzzleError(problem, where="real tensors", expected="a number of experts", got="none")
        units = units_of(self.hidden)
        if units % experts or self.hidden < 2:
            problem = f"with hidden={self.hidden} a layer has {units} units, which are not dealt to {experts} experts"
            hidden = 2 * experts * max(1, round(units / experts))
            expected = f"a multiple of {experts} units, as with hidden={hidden}"
            raise PuzzleError(problem, where="real tensors", expected=expected)

    @property
    def tolerance(self) -> float:
        """The largest error of trained weights, relative to the largest update of their layer."""
        return TOLERANCES[self.dtype]


def units_of(hidden: int) -> int:
    """Return how many units a layer of kind ``mlp`` has: it has about as many numbers as a simulated weight."""
    return (hidden + 1) // 2
