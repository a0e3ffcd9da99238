"""The ways to train a model on so many GPUs that a planner tries: which meshes, micro-batches and recomputation.

What is no way is counted with the reason, so that a planner can say what it has left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from ..machine.check import TRAINED
from ..real.prices import Cluster, RealCost
from ..real.transformer import Recompute, Transformer, divisors

Program = Callable[[Any], object]
CHUNKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
"""Chunks of a stage that are tried."""
MICRO_BATCHES = (1, 2, 4, 8)  # sequences of a micro-batch that are tried
MOST_GPUS, MOST_LAYERS = 2**17, 2**10
"""On more GPUs, or with more layers, nobody has trained, and a search would not end."""
LONG = 32_768  # tokens of a sequence from which on several GPUs may share it
SHARDED, HYBRID, COPIES, ZERO1 = "sharded", "hybrid", "copies", "zero1"
"""FSDP; in a node with replicas (HSDP); with a copy of the weights in each node (hpZ); and with whole weights."""
PIPELINE, INTERLEAVED = "pipeline", "interleaved"
WHOLE = (ZERO1, PIPELINE, INTERLEAVED)
"""Programs whose ranks have whole weights."""


class Plan(NamedTuple):
    """A way to train on ``replicas`` x ``stages`` x ``tensor`` x ``context`` GPUs: ``seconds`` a step, ``bytes`` a GPU.

    ``name``: the kind of program; ``chunks``: layers of a run on each stage; ``micro_batch``: sequences; ``recompute``:
    what backward does again, in ``part`` of the layers; ``expert_parallel`` and ``expert_tensor``: those of
    ``cluster.cost``; ``split``: how many layers of the model each layer of the run has, if not all the same;
    ``offload``: the part of what is kept that goes to hosts; ``states_on_hosts``: whether these have the optimizer's
    states, and update; ``host_bytes``: what a node's processors hold. ``program`` is the function that was run, and
    ``run(plan.program, **plan.size)`` runs it again.
    """

    name: str
    replicas: int
    stages: int
    chunks: int
    tensor: int
    micro_batch: int
    recompute: Recompute
    seconds: float = 0.0
    bytes: int = 0
    mfu: float = 0.0
    context: int = 1
    expert_parallel: int = 1
    expert_tensor: int | None = None
    part: float = 1.0
    split: tuple[int, ...] | None = None
    offload: float = 0.0
    states_on_hosts: bool = False
    program: Program | None = None
    cost: RealCost | None = None
    layers: int = 0
    batches: int = 0
    mesh: tuple[tuple[str, int], ...] = ()
    host_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.name} of {self.replicas} x {self.stages} x {self.tensor}"

    @property
    def figures(self) -> tuple[float, int]:
        """Seconds and bytes."""
        return self.seconds, self.bytes

    @property
    def choice(self) -> tuple[object, ...]:
        """What was chosen, without what came out."""
        return (*self[:7], *self[10:17])

    @property
    def sharing(self) -> int:
        """Among how many replicas experts are divided."""
        return self.expert_parallel * (self.expert_tensor or self.tensor) // self.tensor

    @property
    def size(self) -> dict[str, Any]:
        """The arguments of ``run`` for its program. Replicas that do the same are represented by a few."""
        alone = self.stages > 1 and not self.mesh  # a pipeline that knows of no replicas: one of them
        ranks, batches = self.replicas * self.stages, self.batches
        if alone:
            ranks, batches = self.stages, self.batches // self.replicas
        found: dict[str, Any] = {"ranks": ranks, "layers": self.layers, "batches": batches, "cost": self.cost}
        if self.mesh:
            found["mesh"] = dict(self.mesh)
        if not alone:
            found["represent"] = True if self.stages == 1 else "replica"
        if self.cost is not None and self.cost.adapter_rank is not None:
            found["train"] = TRAINED[1]
        if self.states_on_hosts:
            found["hosts"] = ranks
        return found

    @property
    def recomputed(self) -> str:
        """What backward does again, in words."""
        modules = self.recompute if isinstance(self.recompute, str) else " + ".join(self.recompute)
        return modules if self.part == 1 else f"{modules}, {100 * self.part:.0f}% of layers"


class Ways:
    """All ways to train a model with a batch of so many sequences on a cluster, by programs of these ``kinds``. With
    ``hosts`` also those in which what forward leaves behind goes to hosts, with ``states_on_hosts`` the states.

    ``dropped``: why what was thought of is no way, and how often; ``example``: one of each of these.
    """

    def __init__(
        self,
        model: Transformer,
        cluster: Cluster,
        batch: int,
        kinds: Collection[str],
        *,
        hosts: bool = False,
        states_on_hosts: bool = False,
    ) -> None:
        self.model, self.cluster, self.batch, self.kinds = model, cluster, batch, set(kinds)
        self.to_hosts = [
            (part, states) for part in (0.0, 1.0)[: 1 + hosts] for states in (False, True)[: 1 + states_on_hosts]
        ]
        assert cluster.gpus is not None
        self.gpus = cluster.gpus
        self.dropped: Counter[str] = Counter()
        self.example: dict[str, str] = {}

    def drop(self, why: str, example: str, many: int = 1) -> None:
        """Count what is left out."""
        self.dropped[why] += many
        self.example.setdefault(why, example)

    def complete(self, plan: Plan) -> Plan:
        """Return a plan with what follows from its choices: layers, micro-batches and mesh of its run."""
        batches = self.batch // plan.micro_batch
        if plan.stages > 1:
            mesh, layers = (("replica", plan.replicas), ("stage", plan.stages)), plan.stages * plan.chunks
            return plan._replace(layers=layers, batches=batches, mesh=mesh)
        mesh, layers = (("replica", 1), ("shard", plan.replicas)), self.model.layers
        if plan.name in (HYBRID, COPIES):
            per_node = max(1, self.cluster.gpus_per_box // (plan.tensor * plan.context))
            axis = "replica" if plan.name == HYBRID else "node"
            mesh = ((axis, plan.replicas // per_node), ("shard", per_node))
        return plan._replace(layers=layers, batches=batches, mesh=mesh)

    def all(self) -> Iterator[Plan]:
        """Yield all ways, as plans without figures."""
        heads = self.model.kv_heads or self.model.heads
        most = min(self.cluster.gpus_per_box, self.gpus)
        for tensor in range(1, most + 1):
            if self.gpus % tensor:
                self.drop("GPUs that share a layer have to divide all GPUs", f"{tensor} of {self.gpus:,}")
            elif heads % tensor:
                self.drop("each GPU that shares a layer has whole heads", f"{tensor} for {heads} heads of keys")
            else:
                for context in self._contexts(self.gpus // tensor):
                    yield from self._on(self.gpus // tensor // context, tensor, context)

    def _contexts(self, ranks: int) -> list[int]:
        """Return how many GPUs may share a sequence."""
        if self.model.sequence < LONG:
            return [1]
        return [n for n in (1, 2, 4, 8, 16, 32) if ranks % n == 0 and self.model.sequence % (2 * n) == 0]

    def _on(self, ranks: int, tensor: int, context: int) -> Iterator[Plan]:
        """Yield the ways to use so many ranks of ``tensor`` x ``context`` GPUs."""
        for plan in self._meshes(ranks, tensor, context):
            for recompute, part in self._recompute():
                for offload, states in self.to_hosts:
                    if states and plan.name == ZERO1:
                        continue
                    yield plan._replace(recompute=recompute, part=part, offload=offload, states_on_hosts=states)

    def _recompute(self) -> list[tuple[Recompute, float]]:
        if self.model.attention == "scores":
            return [("selective", 1.0), ("full", 1.0)]
        some = ("layernorm", "moe_act", *(("mla_up_proj",) if self.model.latent else ()))
        return [("none", 1.0), *([(some, 1.0)] if self.model.experts else []), ("full", 0.5), ("full", 1.0)]

    def _meshes(self, ranks: int, tensor: int, context: int) -> Iterator[Plan]:
        yield from self._sharded(ranks, tensor, context)
        wanted = {PIPELINE, INTERLEAVED} & self.kinds
        for stages in divisors(ranks)[1:] if wanted else ():
            if stages > self.model.layers:
                self.drop("a stage has at least one layer", f"{stages} stages of {self.model.layers} layers")
                continue
            yield from self._pipelines(ranks // stages, stages, tensor, context)

    def _sharded(self, ranks: int, tensor: int, context: int) -> Iterator[Plan]:
        if not {SHARDED, HYBRID, COPIES, ZERO1} & self.kinds:
            return
        each, rest = divmod(self.batch, ranks)
        if rest or not each:
            self.drop("the batch is divided by the ranks that train it", f"{self.batch:,} sequences on {ranks:,} ranks")
            return
        per_node = max(1, self.cluster.gpus_per_box // (tensor * context))
        for micro_batch in MICRO_BATCHES:
            if each % micro_batch:
                continue
            nodes = 1 < per_node < ranks and ranks % per_node == 0
            for kind in (SHARDED, HYBRID, COPIES, ZERO1) if nodes else (SHARDED, ZERO1):
                if kind in self.kinds:
                    plan = self.complete(Plan(kind, ranks, 1, 1, tensor, micro_batch, "", context=context))
                    yield from self._dividing_experts(plan) if kind in (SHARDED, ZERO1) else [plan]

    def _pipelines(self, replicas: int, stages: int, tensor: int, context: int) -> Iterator[Plan]:
        each, rest = divmod(self.batch, replicas)
        if rest or not each:
            self.drop("the batch is divided by the replicas", f"{self.batch:,} sequences for {replicas:,} replicas")
            return
        for micro_batch in MICRO_BATCHES:
            batches, left = divmod(each, micro_batch)
            size = f"{batches} micro-batch{'es' * (batches != 1)} on {stages} stages"
            if left:
                self.drop("a replica's batch is divided by the micro-batch", f"{each:,} sequences by {micro_batch}")
                continue
            if batches < stages:
                self.drop("a pipeline of fewer micro-batches than stages waits more than it works", size)
                continue
            for chunks in CHUNKS:
                kind = PIPELINE if chunks == 1 else INTERLEAVED
                if kind not in self.kinds:
                    continue
                if chunks > 1 and batches % stages:
                    self.drop("interleaved stages take micro-batches by as many as there are stages", size)
                    break
                split = self._split(stages * chunks)
                if split is None:
                    many = f"{self.model.layers} layers in {stages} x {chunks} chunks"
                    self.drop("chunks differ by one layer at the most, and all have some", many)
                    continue
                plan = Plan(kind, replicas, stages, chunks, tensor, micro_batch, "", context=context)
                yield from self._dividing_experts(self.complete(plan._replace(split=split or None)))

    def _dividing_experts(self, plan: Plan) -> Iterator[Plan]:
        """Yield a plan as it is, and with whole experts on each GPU, divided among those of one or several replicas."""
        yield plan
        for ways in (n * plan.tensor for n in divisors(plan.replicas) if n * plan.tensor > 1):
            if self.model.experts and self.model.experts % ways == 0:
                yield plan._replace(expert_parallel=ways, expert_tensor=1 if plan.tensor > 1 else None)

    def _split(self, parts: int) -> tuple[int, ...] | None:
        """Return how many layers each of these parts has, () if all have as many, None if there are too few. The first
        and the last, which also have the embedding and the head, are not among those that have one more."""
        few, more = divmod(self.model.layers, parts)
        if not more:
            return ()
        if not few or parts < more + 2:
            return None if not few else (few + 1,) * (more - 1) + (few,) * (parts - more) + (few + 1,)
        start = (parts - more) // 2
        return tuple(few + (start <= at < start + more) for at in range(parts))
