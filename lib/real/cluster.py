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
        mfu: str = "megatron",
        adapter_rank: int = 16,
        frozen_bits: float | None = None,
    ) -> RealCost:
        """Return the prices of a model on this cluster, in seconds and bytes: ``run(..., cost=cluster.cost(model))``.

        ``micro_batch``: sequences in a micro-batch; ``tensor``: GPUs that share each layer, which are one rank of a
        run, with ``sequence_parallel`` also its norms and residuals; ``recompute``: what backward does again (see
        ``transformer.RECOMPUTE``; with ``"full"`` a program may say itself what is kept, with ``keep=``);
        ``optimizer``: ``"adam"``, ``"momentum"`` or ``"sgd"``; ``stored`` and ``gradients``: bytes of a weight and of
        its gradient in memory; ``gathered``: of a weight that was gathered, and of its gradient before it is reduced,
        in memory and on the links; ``reduced``: of a gradient on the links (each as in memory, unless given); ``mfu``:
        the formula of ``Run.mfu``, ``"megatron"`` or ``"palm"``; ``adapter_rank``: of the adapters of a program that
        trains such, whose other weights take ``frozen_bits`` bits each, if that is given. Raises PuzzleError for what
        cannot be.
        """
        model.check_tensor(tensor)
        whole_number("micro_batch", micro_batch)
        one_of_names("recompute", recompute, RECOMPUTE)
        one_of_names("mfu", mfu, FORMULAS)
        for name, size in (("stored", stored), ("gradients", gradients), ("gathered", gathered), ("reduced", reduced)):
            if size is not None and (not isinstance(size, (int, float)) or not 0 < size <= 8):
                problem, cure = f"{name} must be the bytes of a number", f"{name}=2"
                raise PuzzleError(problem, where="cost", expected="above 0, at most 8", got=describe(size), cure=cure)
        self.check_gpus(tensor, "tensor")
        if frozen_bits is not None and (not isinstance(frozen_bits, (int, float)) or not 0 < frozen_bits <= 64):
            problem, cure = "frozen_bits must be the bits of a number", "frozen_bits=4"
            raise PuzzleError(problem, where="cost", got=describe(frozen_bits), cure=cure)
        if frozen_bits is None:
            states = model.state_bytes(stored=stored, gradients=gradients, optimizer=optimizer)
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
            formula=mfu,
            adapter_rank=whole_number("adapter_rank", adapter_rank),
            frozen_bits=frozen_bits,
        )
