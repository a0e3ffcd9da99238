"""What is trained when tensors hold numbers: kind and sizes of a layer, precision, seed. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass

from ..basics.arguments import one_of_names, whole_number

KINDS = ("mlp", "block")
"""Kinds of layer: ``x + tanh(x W)``, and a transformer block."""

TOLERANCES = {"float32": 1e-4, "float64": 1e-10}
"""Precisions, and how far the trained weights may be off, relative to the largest update of their layer."""


@dataclass(frozen=True, init=False)
class Workload:
    """The training that real tensors carry out; it can be sent to other processes.

    A weight belongs to one of ``layers`` layers of kind ``layer``; a micro-batch, one of ``batches``, has ``length``
    tokens of ``hidden`` numbers each. Everything random follows from ``seed``. Raises PuzzleError for what is none
    of the known kinds and precisions, and for a size that is no number from 1 up.
    """

    layers: int
    batches: int
    layer: str
    dtype: str
    hidden: int
    length: int
    seed: int

    def __init__(
        self,
        layers: int = 2,
        batches: int = 1,
        layer: str = "mlp",
        dtype: str = "float32",
        hidden: int = 64,
        length: int = 16,
        seed: int = 0,
    ) -> None:
        # Written out, for errors to name the learner's line: a generated one would look like the learner's.
        one_of_names("layer", layer, KINDS)
        one_of_names("dtype", dtype, tuple(TOLERANCES))
        values = {"layers": layers, "batches": batches, "hidden": hidden, "length": length, "seed": seed}
        whole = {name: whole_number(name, value, least=int(name != "seed")) for name, value in values.items()}
        for name, value in {"layer": layer, "dtype": dtype, **whole}.items():
            object.__setattr__(self, name, value)

    @property
    def tolerance(self) -> float:
        """How far trained weights may be off, relative to the largest update of their layer."""
        return TOLERANCES[self.dtype]
