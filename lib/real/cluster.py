"""A cluster: GPUs in nodes, and what a model costs on them."""

from __future__ import annotations

from dataclasses import dataclass

from ..basics.arguments import instance_of, one_of_names, whole_number
from .hardware import Hardware
from .prices import RealCost
from .transformer import FORMULAS, RECOMPUTE, Transformer, check_widths


@dataclass(frozen=True)
class Cluster(Hardware):
    """GPUs in nodes, and the software that runs on them (see Hardware for the numbers)."""

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
        instance_of("model", model, Transformer, "cluster.cost(GPT_175B), with GPT_175B from lib.real")
        instance_of("sequence_parallel", sequence_parallel, bool, "sequence_parallel=True, or False")
        model.check_tensor(tensor)
        whole_number("micro_batch", micro_batch)
        one_of_names("recompute", recompute, RECOMPUTE)
        one_of_names("mfu", mfu, FORMULAS)
        check_widths("bytes", stored=stored, gradients=gradients)
        check_widths("bytes", **{n: w for n, w in (("gathered", gathered), ("reduced", reduced)) if w is not None})
        if frozen_bits is not None:
            check_widths("bits", frozen_bits=frozen_bits)
        self.check_gpus(tensor, "tensor")
        states = model.state_bytes(
            stored=stored, gradients=gradients, optimizer=optimizer, adapter_rank=adapter_rank, bits=frozen_bits
        )
        self.check_room(sum(states.values()), model.name)
        return RealCost(
            cluster=self, model=model, micro_batch=micro_batch, tensor=tensor, sequence_parallel=sequence_parallel,
            recomputed=recompute, optimizer=optimizer, stored=stored, gradients=gradients, gathered=gathered,
            reduced=reduced, adapter_rank=adapter_rank, frozen_bits=frozen_bits, formula=mfu,
        )  # fmt: skip
