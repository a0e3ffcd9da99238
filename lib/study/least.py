"""What a way to train takes at the least: bounds of its time and memory that are known without a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from operator import itemgetter
from typing import Any

from ..real.prices import Cluster, RealCost
from ..real.transformer import Transformer
from ..record.training import BACKWARD, BACKWARD_INPUT
from .planned import work_of
from .ways import COPIES, HYBRID, SHARDED, WHOLE, ZERO1, Plan

SURE = 0.9999
"""A bound that is a sum of many figures is taken to be so much of it: a run rounds each."""
OF_STAGES: dict[str, Any] = {"stored": 2, "gathered": None}
"""A stage of a pipeline keeps weights in 2 bytes, beside the main weights of the optimizer."""
NEARLY = 0.98
"""The same of what only the middle of a run is known of."""


class Least:
    """Prices of ways to train a model with a batch of so many sequences on a cluster, and what each takes at the least.

    ``given``: arguments of ``Cluster.cost`` that are the same for all; ``hosts``, ``sequence_parallel``: as in
    ``plan``; ``yours``: whether programs are a learner's, of which less is known.
    """

    def __init__(
        self,
        model: Transformer,
        cluster: Cluster,
        batch: int,
        given: dict[str, Any],
        *,
        hosts: bool = False,
        sequence_parallel: bool = True,
        yours: bool = False,
    ) -> None:
        self.model, self.cluster, self.batch, self.given = model, cluster, batch, given
        self.hosts, self.sequence_parallel, self.yours = hosts, sequence_parallel, yours
        self.adapters = bool(given.get("adapter_rank"))
        self.states_on_hosts = hosts and not yours and not self.adapters  # those of adapters are small
        self._costs: dict[tuple[object, ...], RealCost] = {}

    def cost(self, way: Plan, split: bool = True) -> RealCost:
        """Return the prices of a way, or with all layers alike."""
        if way.split and not split:
            way = way._replace(split=None)
        key = (self.shards(way), *way.choice[4:])
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self.prices(way, self.model)
        return found

    def prices(self, way: Plan, model: Transformer) -> RealCost:
        """Return the prices of a way for a model, which may be a part of it."""
        return self.cluster.cost(
            model,
            micro_batch=way.micro_batch,
            tensor=way.tensor,
            context=way.context,
            zero=1 if way.name in WHOLE else 3,
            expert_parallel=way.expert_parallel,
            expert_tensor=way.expert_tensor,
            split=way.split,
            sequence_parallel=way.tensor > 1 and self.sequence_parallel,
            recompute=way.recompute,
            recompute_part=way.part,
            offload=way.offload,
            states_on_hosts=self.states_on_hosts,
            **(self.given if self.shards(way) else {**self.given, **OF_STAGES}),
        )

    def shards(self, way: Plan) -> bool:
        """Return whether weights are in pieces, which are gathered: those may be kept and gathered in other bytes."""
        return way.name not in WHOLE and way.replicas * way.context > 1

    def batches(self, way: Plan) -> int:
        """Return how many micro-batches a replica has."""
        return self.batch // way.replicas // way.micro_batch

    def states(self, parameters: float, part: float = 1.0, sharded: bool = False) -> dict[str, float]:
        """Return the bytes of the states of so many parameters, and with adapters of this part of all of these;
        ``sharded``: whether weights are in pieces."""
        known: dict[str, Any] = {name: self.given[name] for name in ("gradients", "optimizer") if name in self.given}
        known |= {"stored": self.given.get("stored", 2)} if sharded else {}
        if not self.adapters:
            return self.model.state_bytes(parameters=max(1, round(parameters)), **known)
        adapter_parameters = part * self.model.adapter_parameters(self.given["adapter_rank"])
        states = self.model.state_bytes(parameters=max(1, round(adapter_parameters)), **known)
        frozen = self._frozen if sharded else (self.given.get("frozen_bits") or 16) / 8
        return {**states, "Weight": states["Weight"] + parameters * frozen}

    @property
    def _frozen(self) -> float:
        """The bytes of a weight that is gathered for each use."""
        if bits := self.given.get("frozen_bits"):
            return float(bits) / 8
        return float(self.given.get("gathered") or self.given.get("stored", 2))

    def each(self, cost: RealCost) -> float:
        """Return the seconds of a layer, forward and backward. Beside adapters weights have no gradients."""
        return float(cost.forward + getattr(cost, BACKWARD_INPUT.kind if self.adapters else BACKWARD.kind))

    def on_host_takes(self, way: Plan) -> float:
        """Return the seconds of the updates on the hosts at the least."""
        if not way.states_on_hosts:
            return 0.0
        moved = 2 * self.states(1, sharded=self.shards(way))["OptState"] + 2 + self.given["gradients"]
        bandwidth = self.cluster.host_bandwidth / self.cluster.per_node
        return float(0.9 * self.model.size * self._piece_on_host(way) * moved / bandwidth)

    def offloaded(self, way: Plan, cost: RealCost) -> float:
        """Return the bytes of what a GPU's forward leaves behind that are on the host when most is in flight."""
        flight = self.model.layers if way.stages == 1 else self._in_flight(way)
        return way.offload * flight * cost._inner(way.recompute)

    def least_on_host(self, way: Plan) -> float:
        """Return a lower bound of what the hosts of a node hold: states, and what goes there of activations."""
        held = self.offloaded(way, self.cost(way, False))
        if way.states_on_hosts:
            held += 0.9 * self.states(self.model.size, sharded=self.shards(way))["OptState"] * self._piece_on_host(way)
        return self.cluster.per_node * held

    def _piece_on_host(self, way: Plan) -> float:
        """Return which part of the states a host beside a GPU has."""
        shards = dict(way.mesh).get("shard", 1) * dict(way.mesh).get("node", 1)
        return 1 / way.tensor / way.context / (shards if way.stages == 1 else way.replicas * way.stages)

    def least_bytes(self, way: Plan) -> float:
        """Return a lower bound of a GPU's memory: states, and the activations in flight on the first stage."""
        kept = (1 - way.offload) * (self.cost(way, False)._inner(way.recompute)) + self.cost(way, False)._boundary()
        if way.name == ZERO1:
            cost, whole = self.cost(way), self.states(self._parameters_of(way, range(way.layers)))
            held = whole["Weight"] + whole["WeightGrad"] * (way.batches > way.replicas)
            held += self.states(self.model.size)["OptState"] / way.replicas / way.context / way.tensor
            return held + SURE * (way.layers * kept + max(cost.held_by_loss, cost.made_again(way.recompute)))
        if way.stages == 1:
            ranks = dict(way.mesh).get("shard", way.replicas)
            ranks = way.replicas if way.name == COPIES else ranks
            states = self.states(self.model.size, sharded=self.shards(way))
            if way.states_on_hosts:
                states["OptState"] = 0.0
            if way.batches == way.replicas:  # its gradients come when activations go
                states["WeightGrad"] = 0.0
            kept = self._most_kept(way, ranks * way.context, kept) + self._copies(way)
            return sum(states.values()) / ranks / way.context / way.tensor + kept
        own = [sum(self._sizes(way)[stage :: way.stages]) for stage in range(way.stages)]
        some = {0, 1, own.index(max(own)), way.stages - 1}  # the first ones have most in flight
        return max(self._of_stage(way, stage, kept) for stage in some)

    def _of_stage(self, way: Plan, stage: int, kept: float) -> float:
        """Return what a stage of a pipeline holds at the least when its first backward begins, or the last one's loss,
        where ``kept`` is what a layer of the model keeps for a micro-batch."""
        cost, sizes = self.cost(way, False), self._sizes(way)
        own = range(stage, way.layers, way.stages)
        part = sum(sizes[stage :: way.stages]) / self.model.layers / way.tensor
        states, whole = (self.states(self._parameters_of(way, own, divided), part) for divided in (True, False))
        share = 1 / way.context if self.yours else 1 / way.replicas / way.context  # experts are among the replicas
        held = states["Weight"] + (0 if way.states_on_hosts else share * whole["OptState"])
        works = cost.made_again(way.recompute) + cost._boundary()  # and the gradient that has come
        if self.yours:  # of whose order nothing is known but what is in flight
            works = max(works, cost.held_by_loss) if stage == way.stages - 1 else works
            held += states["WeightGrad"] * (self.batches(way) > way.stages)
            return held + NEARLY * (self._in_flight(way, stage) * kept + works)
        there, most, grads, last = 0.0, 0.0, dict[int, float](), way.layers - 1
        for ahead, layer, _ in work_of(stage, way.stages, way.layers, min(self.batches(way), 3 * way.stages)):
            if ahead:
                there += sizes[layer] * kept
                continue
            most = max(most, there + sum(grads.values()) + (max(works, cost.held_by_loss) if layer == last else works))
            there -= sizes[layer] * kept
            if layer not in grads:
                part = sizes[layer] / self.model.layers / way.tensor
                grads[layer] = self.states(self._parameters_of(way, [layer]), part)["WeightGrad"]
        return held + SURE * most

    def _parameters_of(self, way: Plan, layers: Iterable[int], divided: bool = True) -> float:
        """Return how many parameters layers of a run have on each GPU. Experts may be ``divided`` among replicas."""
        found, ways = 0.0, way.sharing if divided else 1
        for layer in layers:
            between = self.cost(way)._between(layer, way.layers)
            of_experts = self.model.experts_between(*between)
            found += self.model.parameters_between(*between) - of_experts * (1 - 1 / ways)
        return found / way.tensor

    def _most_kept(self, way: Plan, ranks: int, each: float) -> float:
        """Return what a rank of FSDP holds at the least besides its pieces, when it keeps ``each`` of all layers: while
        the loss runs; while the last layer goes back, with its weight and the next one; or while the next one does,
        with the whole gradient of the last."""
        cost, layers = self.cost(way, False), self.model.layers
        again, layer = cost.made_again(way.recompute), cost._each * (ranks > 1)
        weights = min(2, layers) * self._frozen * layer
        whole = self.given.get("gathered") or self.given["gradients"]  # bytes of a gradient before it is reduced
        gradient = 0.0 if self.adapters or layers < 3 else whole * layer
        back = again + NEARLY * weights + max(0.0, NEARLY * gradient - each)
        return float(layers * each + max(cost.held_by_loss, back))

    def _copies(self, way: Plan) -> float:
        """Return the bytes of the copy of weights that a node has (hpZ), on each of its GPUs."""
        if way.name != COPIES:
            return 0.0
        gpus = dict(way.mesh)["shard"] * way.tensor * way.context
        return self.model.layers * self.model.layer_size * self._frozen / gpus

    def _sizes(self, way: Plan) -> Sequence[int]:
        """Return how many layers of the model each layer of the run has."""
        return way.split or (self.model.layers // way.layers,) * way.layers

    def _in_flight(self, way: Plan, stage: int = 0) -> int:
        """Return how many layers of the model, counted once for each micro-batch, a stage of a pipeline has done when
        its first backward begins."""
        batches = min(self.batches(way), 3 * way.stages)  # as many as begin before that
        begun = takewhile(itemgetter(0), work_of(stage, way.stages, way.layers, batches))
        return sum(self._sizes(way)[layer] for _, layer, _ in begun)

    def least_seconds(self, way: Plan) -> float:
        """Return a lower bound of a step's time: what each stage computes and, of a pipeline, that of one micro-batch
        through all of them, by 1F1B or interleaved (arXiv 2104.04473); of shards, what their links carry."""
        cost, batches = self.cost(way, False), self.batches(way)
        layers = self.model.layers / way.stages
        each, updated = self.each(cost), self.on_host_takes(way)
        once = layers * each
        if way.stages > 1:
            sizes = self._sizes(way)
            own = [sum(sizes[stage :: way.stages]) for stage in range(way.stages)]
            slowest = max(max(own) * each, own[-1] * each + cost.loss)
            return float(batches * slowest + SURE * (way.stages - 1) * min(sizes) * each + updated)
        once += cost.loss
        if way.name in (HYBRID, ZERO1):
            return float(once * batches + updated)
        gathers = 2 * batches if way.name == SHARDED else 1
        reduced = 0 if self.adapters else batches
        across, ranks = max(1, self.cluster.gpus_per_box // way.tensor), way.replicas * way.context
        each_sent = self.given.get("reduced") or self.given["gradients"]
        bytes_sent = (gathers * self._frozen + each_sent * reduced) * self._parameters_of(way, range(way.layers))
        bytes_sent *= (ranks - 1) / ranks * (way.replicas > 1)
        calls = self.model.layers * (gathers + reduced)
        carried = bytes_sent / self.cluster.bandwidth(ranks, min(across, ranks))
        carried += calls * self.cluster.ring_takes(0, ranks, min(across, ranks)) * (way.replicas > 1)
        return float(max(once * batches, NEARLY * carried) + updated)

    def soonest(self, way: Plan) -> float:
        """Return a lower bound that is nearer to a run's time, and takes longer to find: of one of our pipelines, how
        long it takes if messages take no time, with the updates."""
        least = self.least_seconds(way)
        if way.stages == 1 or self.yours:
            return least
        cost = self.cost(way)
        forward = [float(cost.forward) * size for size in self._sizes(way)]
        backward = [(self.each(cost) - float(cost.forward)) * size for size in self._sizes(way)]
        backward[-1] += cost.loss_takes

        def updated(stage: int) -> float:
            if self.adapters or way.states_on_hosts:
                return 0.0
            own = self._parameters_of(way, range(stage, way.layers, way.stages), divided=False)
            return cost.update_takes(own / way.replicas / way.context)

        went = partial(soonest, way.stages, way.layers, forward=forward, backward=backward, after=updated)
        return max(least, SURE * (grown(way, self.batches(way), went) + self.summing_takes(way, cost)))

    def summed_of(self, way: Plan, cost: RealCost, stage: int) -> tuple[float, float]:
        """Return of how many parameters a GPU of a stage sums gradients over all replicas, and over those that have the
        same experts."""
        layers = [cost._between(layer, way.layers) for layer in range(stage, way.layers, way.stages)]
        if self.adapters:
            return cost._of_adapter * sum(end - first for first, end in layers), 0.0
        of_experts = sum(self.model.experts_between(*both) for both in layers)
        own = sum(self.model.parameters_between(*both) for both in layers) - of_experts
        return own / way.tensor, of_experts / way.tensor / way.sharing

    def summing_takes(self, way: Plan, cost: RealCost) -> float:
        """Return the seconds in which the replicas of a pipeline's first stage sum gradients: an all-reduce, or with
        divided states a reduce-scatter and a gather."""
        if way.states_on_hosts:
            return 0.0
        own, of_experts = self.summed_of(way, cost, 0)
        sent = float(cost.gradients if cost.reduced is None else cost.reduced)
        per_node = max(1, self.cluster.gpus_per_box // (way.tensor * way.stages))
        then, found = sent if self.yours else float(cost.stored), 0.0
        for parameters, replicas in ((own, way.replicas), (of_experts, way.replicas // way.sharing)):
            if (ranks := replicas * way.context) > 1:
                rings = partial(self.cluster.ring_takes, ranks=ranks, per_node=min(per_node, ranks))
                found += rings(sent * parameters) + rings(then * parameters)
        return found


# -- the work of a pipeline, without its messages -----------------------------------------------


def soonest(
    stages: int,
    layers: int,
    batches: int,
    *,
    forward: Sequence[float],
    backward: Sequence[float],
    after: Callable[[int], float] = lambda stage: 0.0,
) -> float:
    """Return the seconds that all stages of ``planned.pipelined`` need for so many micro-batches.

    ``forward`` and ``backward``: seconds of each layer of the run, with those of the loss in the last backward;
    ``after``: what a stage does when all its micro-batches are back. Each stage does its work in the order of the
    program, as soon as what it needs is there.

    >>> soonest(4, 4, 8, forward=[1.0] * 4, backward=[2.0] * 4)  # (8 + 3) x 3
    33.0
    """
    orders = [[*work_of(stage, stages, layers, batches)] for stage in range(stages)]
    there = {(True, -1, number): 0.0 for number in range(batches)}  # when each piece of work is done
    free, next_one, left = [0.0] * stages, [0] * stages, stages
    while left:
        for stage, order in enumerate(orders):
            at, clock = next_one[stage], free[stage]
            begun = at
            while at < len(order):
                ahead, layer, number = order[at]
                before = (ahead, layer - 1, number) if ahead else (ahead, layer + 1, number)
                if not ahead and layer == layers - 1:
                    before = (True, layer, number)
                ready = there.get(before)
                if ready is None:
                    break
                clock = max(clock, ready) + (forward if ahead else backward)[layer]
                there[order[at]] = clock
                at += 1
            left -= begun < at == len(order)
            next_one[stage], free[stage] = at, clock
    return max(done + after(stage) for stage, done in enumerate(free))


def two_lengths(way: Plan, batches: int) -> tuple[int, int]:
    """Return two numbers of micro-batches that tell how long a pipeline takes for more: each further round, of as many
    as there are stages, takes as long as that between them. Chunks of different sizes have even rounds later."""
    few = way.stages * (2 if way.split and way.chunks > 1 else 1) + batches % way.stages
    return few, min(batches, few + way.stages)


def grown(way: Plan, batches: int, takes: Callable[[int], float]) -> float:
    """Return what a pipeline takes for so many micro-batches, by what it ``takes`` for fewer."""
    few, more = two_lengths(way, batches)
    longer = takes(more)
    return longer if batches == more else longer + (longer - takes(few)) * (batches - more) / way.stages
