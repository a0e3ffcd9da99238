"""The search for the best way to train a model on a cluster: a learner's programs on every mesh that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..basics.arguments import describe, instance_of, whole_number
from ..basics.columns import in_columns
from ..basics.errors import PuzzleError
from ..basics.units import show_bytes
from ..real.prices import Cluster, RealCost
from ..real.transformer import Transformer
from .run import check_function, run
from .sweep import beats, show_progress

Program = Callable[[Any], object]
ALIKE = 0.08
"""The relative error of the model of a cluster: times within this of the fastest count as equal."""
HOPELESS = 1.3
"""A program that takes this many times the fastest even without waiting is not run."""
MOST_CHUNKS = 6
SHOWN = 20  # plans of a table
GRADIENTS = 4  # bytes of a gradient in memory; it is reduced in 2
MICRO_BATCHES = (1, 2, 4, 8)  # sequences of a micro-batch that are tried in a pipeline


class Plan(NamedTuple):
    """A way to train on ``replicas`` x ``stages`` x ``tensor`` GPUs: ``seconds`` a step, ``bytes`` a GPU."""

    name: str
    replicas: int
    stages: int
    chunks: int
    tensor: int
    micro_batch: int
    recompute: str
    seconds: float = 0.0
    bytes: int = 0
    mfu: float = 0.0

    @property
    def figures(self) -> tuple[float, int]:
        """Seconds and bytes."""
        return self.seconds, self.bytes


class Plans:
    """The result of a search. ``plans``: those that fit; first those within 8 percent of the fastest, from small to
    large, then the others by seconds. ``tried``: the number of plans that were run or ruled out."""

    def __init__(self, plans: Sequence[Plan], tried: int) -> None:
        fastest = min(plan.seconds for plan in plans)
        self.limit = fastest * (1 + ALIKE)
        self.plans = sorted(
            plans, key=lambda plan: (0, plan.bytes, plan.seconds) if self.ties(plan) else (1, plan.seconds, plan.bytes)
        )
        self.tried = tried

    def ties(self, plan: Plan) -> bool:
        """Return whether a plan is as fast as the fastest, within the error of the model."""
        return plan.seconds <= self.limit

    def front(self) -> list[Plan]:
        """Return the plans that no other one beats in seconds and bytes: the Pareto front, from fast to small."""
        front = [plan for plan in self.plans if not any(beats(other.figures, plan.figures) for other in self.plans)]
        return sorted(front, key=lambda plan: plan.seconds)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table as texts."""
        front = self.front()
        return [
            (
                plan.name, f"{plan.replicas} x {plan.stages} x {plan.tensor}", str(plan.chunks), str(plan.micro_batch),
                plan.recompute, f"{plan.seconds:.3g}", show_bytes(plan.bytes), f"{100 * plan.mfu:.0f}%",
                "=" * self.ties(plan), "front" * (plan in front),
            )
            for plan in self.plans
        ]  # fmt: skip

    def __str__(self) -> str:
        rows = [HEADS, *self.rows()]
        more = len(rows) - 1 - SHOWN
        lines = in_columns(rows[: SHOWN + 1]) + [f"and {more} more, in plans.rows()"] * (more > 0)
        said = f"=: as fast as the fastest, within {100 * ALIKE:.0f} percent"
        return "\n".join([*lines, f"{said}; {self.tried} ways were considered"])

    __repr__ = __str__


HEADS = ("program", "replicas x stages x tensor", "chunks", "micro-batch", "recompute", "s", "memory", "MFU", "", "")


def plan(
    model: Transformer,
    cluster: Cluster,
    batch: int,
    *,
    sharded: Program | None = None,
    pipeline: Program | None = None,
    interleaved: Program | None = None,
) -> Plans:
    """Tries programs of yours on all meshes of a cluster, and returns those that fit, with seconds and bytes.

    ``batch``: sequences of a step; ``sharded``: a program like that of puzzle 4, in which each rank trains a
    micro-batch of its own; ``pipeline`` and ``interleaved``: programs like those of puzzles 13 and 14. Of the replicas
    of a pipeline one is run, and their all-reduce is added, with nothing beside it; the time of many micro-batches is
    known from two short runs. What cannot fit, or cannot be fast, is not run. Raises PuzzleError for what is no
    model or cluster, for a cluster that does not say how many GPUs it has, and if nothing fits.
    """
    instance_of("model", model, Transformer, "plan(GPT_175B, ...), with GPT_175B from lib.real")
    instance_of("cluster", cluster, Cluster, "replace(A100_MEGATRON, gpus=64), with A100_MEGATRON from lib.real")
    batch = whole_number("batch", batch)
    if cluster.gpus is None:
        fix = "replace(cluster, gpus=64), with replace from dataclasses"
        raise PuzzleError("plan needs the number of GPUs", where="plan", got=describe(str(cluster)), fix=fix)
    programs = {"sharded": sharded, "pipeline": pipeline, "interleaved": interleaved}
    for fn in programs.values():
        if fn is not None:
            check_function(fn)
    search = Search(model, cluster, batch, programs)
    least = {way: search.least_seconds(way) for way in search.ways()}
    ways = sorted(least, key=least.__getitem__)
    found: list[Plan] = []
    for count, way in enumerate(ways, 1):
        fastest = min((plan.seconds for plan in found), default=float("inf"))
        if search.least_bytes(way) <= cluster.room and least[way] <= HOPELESS * fastest:
            done = search.run(way)
            if done.bytes <= cluster.room:
                found.append(done)
        show_progress(count, len(ways))
    if not found:
        smallest = min(map(search.least_bytes, ways), default=0.0)
        problem = f"no mesh of {cluster.gpus:,} GPUs holds {model.name} with a batch of {batch:,}"
        expected = f"at most {show_bytes(cluster.room)} on a GPU"
        got = f"{show_bytes(smallest)} at the least" if ways else "no mesh into which layers and batch can be divided"
        fix = "more GPUs, a batch that they divide, or all of sharded=, pipeline= and interleaved="
        raise PuzzleError(problem, where="plan", expected=expected, got=got, fix=fix)
    return Plans(found, len(ways))


class Search:
    """The search over all ways to train a model on a cluster: lower bounds of time and memory, and runs."""

    def __init__(self, model: Transformer, cluster: Cluster, batch: int, programs: dict[str, Program | None]) -> None:
        self.model, self.cluster, self.batch, self.programs = model, cluster, batch, programs
        assert cluster.gpus is not None
        self.gpus = cluster.gpus

    def ways(self) -> Iterator[Plan]:
        """Yield all ways, as plans without figures."""
        heads = self.model.kv_heads or self.model.heads
        recompute = ("selective", "full") if self.model.attention == "scores" else ("none", "full")
        for tensor in range(1, self.cluster.gpus_per_box + 1):
            if self.gpus % tensor or heads % tensor:
                continue
            ranks = self.gpus // tensor
            for how in recompute:
                if self.programs["sharded"] and self.batch % ranks == 0:
                    yield Plan("sharded", ranks, 1, 1, tensor, self.batch // ranks, how)
                for stages in range(2, ranks + 1):
                    if ranks % stages == 0 and self.model.layers % stages == 0:
                        yield from self._pipelines(ranks // stages, stages, tensor, how)

    def _pipelines(self, replicas: int, stages: int, tensor: int, how: str) -> Iterator[Plan]:
        each, rest = divmod(self.batch, replicas)
        for micro_batch in MICRO_BATCHES:
            batches, left = divmod(each, micro_batch)
            if rest or left or batches < stages:
                continue
            if self.programs["pipeline"]:
                yield Plan("pipeline", replicas, stages, 1, tensor, micro_batch, how)
            for chunks in range(2, MOST_CHUNKS + 1):
                even = batches % stages == 0 and self.model.layers % (stages * chunks) == 0
                if self.programs["interleaved"] and even:
                    yield Plan("interleaved", replicas, stages, chunks, tensor, micro_batch, how)

    def cost(self, way: Plan) -> RealCost:
        """Return the prices of a way."""
        return self.cluster.cost(
            self.model,
            micro_batch=way.micro_batch,
            tensor=way.tensor,
            sequence_parallel=way.tensor > 1,
            recompute=way.recompute,
            gradients=GRADIENTS,
            reduced=2,
        )

    def batches(self, way: Plan) -> int:
        """Return how many micro-batches a replica has."""
        return self.batch // way.replicas // way.micro_batch

    def least_bytes(self, way: Plan) -> float:
        """Return a lower bound of a GPU's memory: states, and the activations in flight on the first stage."""
        states = sum(self.model.state_bytes().values()) / self.gpus
        if way.stages > 1:
            layers = self.model.layers / way.stages
            states = sum(self.model.state_bytes(parameters=round(layers * self.model.layer_size)).values()) / way.tensor
        kept = self.model.activation_bytes(way.micro_batch, way.tensor, way.tensor > 1, way.recompute)
        return states + self.model.layers * kept

    def least_seconds(self, way: Plan) -> float:
        """Return a lower bound of a step's time, in which no rank ever waits."""
        cost = self.cost(way)
        layers = self.model.layers / way.stages
        return float(layers * (cost.forward + cost.backward) * self.batches(way))

    def run(self, way: Plan) -> Plan:
        """Return a way with its figures."""
        cost, fn = self.cost(way), self.programs[way.name]
        assert fn is not None
        if way.stages == 1:
            done = run(fn, way.replicas, self.model.layers, way.replicas, cost=cost, timeout=None)
            seconds, size = done.seconds, done.bytes
        else:
            seconds, size = self._pipeline(way, fn, cost)
        mfu = cost.mfu(seconds, self.batch // way.micro_batch, self.gpus // way.tensor)
        return way._replace(seconds=seconds, bytes=size, mfu=float(mfu))

    def _pipeline(self, way: Plan, fn: Program, cost: RealCost) -> tuple[float, int]:
        """Return seconds and bytes of a pipeline, extrapolated from two short runs. The time grows linearly with the
        micro-batches, in steps of the number of stages; with more than twice as many, no more are in flight."""
        few, layers, batches = way.stages, way.stages * way.chunks, self.batches(way)
        more = few * (2 if way.chunks > 1 else 1) + (way.chunks == 1)
        short = run(fn, few, layers, few, cost=cost, timeout=None)
        seconds, size = short.seconds, short.bytes
        if batches > few:
            longer = run(fn, few, layers, more, cost=cost, timeout=None)
            seconds += (longer.seconds - short.seconds) * (batches - few) / (more - few)
            size = longer.bytes
        gradients = 2 * self.model.size / way.stages / way.tensor
        per_node = max(1, self.cluster.gpus_per_box // (way.tensor * way.stages))
        if way.replicas > 1:
            seconds += self.cluster.ring_takes(gradients, way.replicas, min(per_node, way.replicas), rounds=2)
        return seconds, size
