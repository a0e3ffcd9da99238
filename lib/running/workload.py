"""The training of tensors with numbers: kind and sizes of a layer, precision, seed. Nothing here needs torch."""

from dataclasses import dataclass

from ..basics.arguments import one_of_names, whole_number
from ..machine.check import TRAINED

KINDS = ("mlp", "block")  # kinds of layer: ``x + gelu(x A) B``, and a transformer block

TOLERANCES = {"float32": 1e-4, "float64": 1e-10}
"""The precisions, with the largest error of trained weights relative to the largest update of their layer."""


@dataclass(frozen=True)
class Workload:
    """The training that real tensors carry out; it can be sent to other processes.

    A weight belongs to one of ``layers`` layers of kind ``layer``; a micro-batch, one of ``batches``, has ``length``
    tokens of ``hidden`` numbers each. ``train`` says what is trained: the layers' weights, or adapters beside them.
    Everything random follows from ``seed``. Raises PuzzleError for an unknown kind or precision, and for a size that is
    no number from 1 up.
    """

    layers: int = 2
    batches: int = 1
    layer: str = "mlp"
    dtype: str = "float32"
    hidden: int = 64
    length: int = 16
    seed: int = 0
    train: str = TRAINED[0]

    def __post_init__(self) -> None:
        one_of_names("layer", self.layer, KINDS)
        one_of_names("dtype", self.dtype, tuple(TOLERANCES))
        one_of_names("train", self.train, TRAINED)
        for name in ("layers", "batches", "hidden", "length", "seed"):
            whole = whole_number(name, getattr(self, name), least=int(name != "seed"))
            object.__setattr__(self, name, whole)

    @property
    def tolerance(self) -> float:
        """The largest error of trained weights, relative to the largest update of their layer."""
        return TOLERANCES[self.dtype]
