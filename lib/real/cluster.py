"""A cluster: GPUs in boxes, and what a model costs on them."""

from __future__ import annotations

from dataclasses import dataclass

from ..basics.arguments import describe, one_of_names, whole_number
from ..basics.errors import PuzzleError
from .hardware import Hardware
from .prices import RealCost
from .transformer import FORMULAS, RECOMPUTE, Transformer


@dataclass(frozen=True)
class Cluster(Hardware):
    """GPUs in boxes, and the software that runs on them (see Hardware for the numbers)."""

    def cost(
        self,
        model: Transformer,
        *,
        micro_batch: int = 1,
        tensor: int = 1,
        sequence_parallel: bool = False,
        recompute: str = "none",
        optimizer: str = "adam",
        stored: float = 2,
        gradients: float = 2,
        gathered: float | None = None,
        reduced: float | None = None,
        adapter_rank: int | None = None,
        frozen_bits: float | None = None,
        mfu: str = "megatron",
    ) -> RealCost:
        """Return the prices of a model on this cluster, in seconds and bytes: ``run(..., cost=cluster.cost(model))``.

        ``micro_batch``: sequences in a micro-batch; ``tensor``: GPUs that share each layer, which are one rank of a
        run, with ``sequence_parallel`` also its norms and residuals; ``recompute``: what backward does again (see
        ``transformer.RECOMPUTE``; with ``"full"`` a program may say itself what is kept, with ``keep=``);
        ``optimizer``: ``"adam"``, ``"momentum"`` or ``"sgd"``; ``stored`` and ``gradients``: bytes of a weight and of
        its gradient in memory; ``gathered``: of a weight that was gathered, and of its gradient before it is reduced,
        in memory and on the links; ``reduced``: of a gradient on the links (each as in memory, unless given);
        ``adapter_rank``: of the adapter of each matrix, where only adapters are trained (``train="adapters"``), and
        ``frozen_bits``: of a weight beside them, in memory and on the links; ``mfu``: the formula of ``Run.mfu``, which
        counts what training all weights takes, ``"megatron"`` or ``"palm"``. Raises PuzzleError for what cannot be.
        """
        model.check_tensor(tensor)
        whole_number("micro_batch", micro_batch)
        one_of_names("recompute", recompute, RECOMPUTE)
        one_of_names("mfu", mfu, FORMULAS)
        _check_widths(8, "bytes", 2, stored=stored, gradients=gradients, gathered=gathered, reduced=reduced)
        _check_widths(64, "bits", 4, frozen_bits=frozen_bits)
        self.check_gpus(tensor, "tensor")
        states = model.state_bytes(
            stored=stored, gradients=gradients, optimizer=optimizer, adapter_rank=adapter_rank, bits=frozen_bits
        )
        self.check_room(sum(states.values()), model.name)
        return RealCost(
            cluster=self,
            model=model,
            micro_batch=micro_batch,
            tensor=tensor,
            sequence_parallel=sequence_parallel,
            recomputed=recompute,
            optimizer=optimizer,
            stored=stored,
            gradients=gradients,
            gathered=gathered,
            reduced=reduced,
            adapter_rank=adapter_rank,
            frozen_bits=frozen_bits,
            formula=mfu,
        )


def _check_widths(most: int, unit: str, usual: int, **widths: float | None) -> None:
    """Raise PuzzleError for what cannot be the width of a number, in bytes or bits. None is not given."""
    for name, width in widths.items():
        if width is not None and (not isinstance(width, (int, float)) or not 0 < width <= most):
            problem, expected = f"{name} must be the {unit} of a number", f"above 0, at most {most}"
            raise PuzzleError(problem, where="cost", expected=expected, got=describe(width), cure=f"{name}={usual}")
