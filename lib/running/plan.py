"""The search for the best way to train a model on a cluster: programs on every mesh that fits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ..basics.arguments import describe, instance_of, whole_number
from ..basics.errors import PuzzleError
from ..basics.units import show_bytes
from ..machine.check import TRAINED
from ..real.prices import Cluster, RealCost
from ..real.transformer import Transformer
from ..record.training import BACKWARD, BACKWARD_INPUT
from . import planned
from .few import time_few
from .instead import WAYS, around, what_would_do
from .plans import ALIKE as ALIKE
from .plans import Plans as Plans
from .run import check_function, run
from .sweep import show_progress
from .ways import COPIES, HYBRID, INTERLEAVED, PIPELINE, SHARDED, Program, Ways
from .ways import Plan as Plan

HOPELESS = 1.3
"""A program that takes this many times the fastest even without waiting is not run."""
GRADIENTS = 4  # bytes of a gradient in memory; it is reduced in 2
OURS: dict[str, Program] = {
    SHARDED: planned.sharded, HYBRID: planned.sharded, COPIES: planned.sharded_with_copies,
    PIPELINE: planned.pipelined, INTERLEAVED: planned.pipelined,
}  # fmt: skip
"""The programs that are tried unless others are given."""
OF_ADAPTERS: dict[str, Program] = {
    SHARDED: planned.sharded_adapters, HYBRID: planned.sharded_adapters, COPIES: planned.sharded_adapters_with_copies,
    PIPELINE: planned.pipelined_adapters, INTERLEAVED: planned.pipelined_adapters,
}  # fmt: skip
"""The same where adapters are trained."""
SAFE = 0.93
"""A way that fills at most so much of the room by its lower bound mostly fits."""
HIDDEN = 1.02
"""Plain FSDP that takes so many times what it computes hides what it sends."""
FEW_LAYERS = (6, 8)
"""Of so many layers it is run to know what another micro-batch takes: that grows evenly with the layers."""


def plan(
    model: Transformer,
    cluster: Cluster,
    batch: int,
    *,
    sharded: Program | None = None,
    pipeline: Program | None = None,
    interleaved: Program | None = None,
    optimizer: str = "adam",
    gradients: float = GRADIENTS,
    reduced: float = 2,
    adapter_rank: int | None = None,
    frozen_bits: float | None = None,
    hosts: bool = False,
    sequence_parallel: bool = True,
    fp8: bool = False,
    overlap: bool = False,
) -> Plans:
    """Tries all meshes of a cluster, and returns the ways to train a model that fit, with seconds and bytes.

    ``batch``: sequences of a step. Unless programs are given, those of ``lib.running.planned`` are tried: FSDP with
    gradient accumulation, in all GPUs, in each node (HSDP), and with a copy of the weights in each node (hpZ), and
    pipelines with one or several chunks, whose replicas divide the optimizer's states (ZeRO-1). ``sharded``: a program
    of yours like that of puzzle 4, in which each rank trains a micro-batch; ``pipeline`` and ``interleaved``: programs
    like those of puzzles 13 and 14, of whose replicas one is run, and their all-reduce added; only those that are given
    are tried then. With long sequences GPUs may share them, with experts replicas may divide them. ``optimizer``,
    ``gradients``, ``reduced``, ``adapter_rank``, ``frozen_bits``, ``fp8`` and ``overlap``: those of ``cluster.cost``,
    adapters being trained where their rank is given; ``hosts``: whether what forward leaves behind may go to the hosts,
    and the optimizer's states may be there, and be updated there; ``sequence_parallel``: whether GPUs that share layers
    share their norms and residuals, too. The time of many micro-batches is known from two short runs. What cannot fit,
    or cannot be fast, is not run. Raises PuzzleError for what is no model or cluster, for a cluster that does not say
    how many GPUs it has, and if nothing fits; then it names what would do, each of which was tried.
    """
    instance_of("model", model, Transformer, "plan(GPT_175B, ...), with GPT_175B from lib.real")
    instance_of("cluster", cluster, Cluster, "replace(A100_MEGATRON, gpus=64), with A100_MEGATRON from lib.real")
    batch = whole_number("batch", batch)
    for name, flag in (("hosts", hosts), ("sequence_parallel", sequence_parallel)):
        instance_of(name, flag, bool, f"{name}=True, or False")
    if adapter_rank is not None:
        whole_number("adapter_rank", adapter_rank)
    if cluster.gpus is None:
        fix = "replace(cluster, gpus=64), with replace from dataclasses"
        raise PuzzleError("plan needs the number of GPUs", where="plan", got=describe(str(cluster)), fix=fix)
    programs = {SHARDED: sharded, PIPELINE: pipeline, INTERLEAVED: interleaved}
    for fn in programs.values():
        if fn is not None:
            check_function(fn)
    given: dict[str, Any] = {"optimizer": optimizer, "gradients": gradients, "reduced": reduced}
    given |= {"adapter_rank": adapter_rank, "frozen_bits": frozen_bits, "fp8": fp8, "overlap": overlap}
    replace(cluster, gpus=None).cost(model, **given)  # which refuses what cannot be
    search = Search(model, cluster, batch, programs, hosts=hosts, sequence_parallel=sequence_parallel, **given)
    return search.found()


class Search:
    """The search over all ways to train a model on a cluster: lower bounds of time and memory, and runs."""

    def __init__(
        self,
        model: Transformer,
        cluster: Cluster,
        batch: int,
        programs: dict[str, Program | None] | None = None,
        *,
        hosts: bool = False,
        sequence_parallel: bool = True,
        **given: Any,
    ) -> None:
        own = {name: fn for name, fn in (programs or {}).items() if fn is not None}
        self.model, self.cluster, self.batch = model, cluster, batch
        self.given = {"gradients": GRADIENTS, "reduced": 2, **given}
        self.adapters, self.hosts, self.sequence_parallel = bool(given.get("adapter_rank")), hosts, sequence_parallel
        self.programs: dict[str, Program] = own or (OF_ADAPTERS if self.adapters else OURS)
        self.yours = bool(own)
        self.states_on_hosts = hosts and not self.yours and not self.adapters  # those of adapters are small
        self.every = Ways(model, cluster, batch, self.programs, hosts=hosts, states_on_hosts=self.states_on_hosts)
        self.gpus = self.every.gpus
        self._costs: dict[tuple[object, ...], RealCost] = {}

    def ways(self) -> list[Plan]:
        """Return all ways, as plans without figures."""
        found = []
        for way in self.every.all():
            if self.yours and way.stages == 1:  # its ranks train one micro-batch each, whatever its size
                way = way._replace(micro_batch=self.batch // way.replicas, batches=way.replicas, mesh=())
            if self.yours and way.expert_parallel > 1:
                self.every.drop("programs of yours divide no experts", f"among {way.expert_parallel} replicas")
            elif way not in found:
                found.append(way)
        return found

    def found(self) -> Plans:
        """Return the plans that fit."""
        drop = self.every.drop
        if not self.states_fit():
            self._refuse_states()
        least = {way: self.least_seconds(way) for way in self.ways()}
        ways = sorted(least, key=lambda way: (least[way], way.name in (HYBRID, COPIES)))
        if not ways:
            self._refuse_meshes()
        found: list[Plan] = []
        smallest, room = float("inf"), self.cluster.room
        fastest = float("inf")
        for count, way in enumerate(ways, 1):
            said = f"{way.name} of {way.replicas} x {way.stages} x {way.tensor}"
            if (there := self.least_on_host(way)) > self.cluster.host_memory:
                drop("more memory than the hosts of a node have, even at the least", f"{said}: {show_bytes(there)}")
            elif (size := self.least_bytes(way)) > room:
                smallest = min(smallest, size)
                drop("more memory than a GPU has, even at the least", f"{said}: {show_bytes(size)}")
            elif least[way] > HOPELESS * fastest:
                drop(f"{HOPELESS} times the fastest, even if no rank waits", f"{said}: {least[way]:.3g} s")
            elif way.name in (HYBRID, COPIES) and self._is_hidden(way, found):
                drop("gathers are hidden already, so copies of weights only take memory", said)
            elif any(one.seconds <= least[way] and one.bytes <= size for one in found):
                drop("slower and larger than another one, even at the least", f"{said}: {least[way]:.3g} s")
            else:
                done = self.run(way)
                smallest = min(smallest, done.bytes)
                if self.fits(done):
                    found.append(done)
                    fastest = min(fastest, done.seconds)
                else:
                    here, beside = show_bytes(done.bytes), show_bytes(done.host_bytes)
                    drop(
                        "ran, and does not fit",
                        f"{said}: {here}" + f", {beside} on the hosts of a node" * (done.host_bytes > 0),
                    )
            show_progress(count, len(ways))
        if not found:
            self._refuse_room(smallest)
        self._say_what_is_near()
        left_out = {why: (many, self.every.example[why]) for why, many in self.every.dropped.items()}
        return Plans(found, len(ways), left_out)

    def _say_what_is_near(self) -> None:
        """Where no ranks divide the batch, note which numbers do: a pipeline with an odd number of stages is no
        bargain."""
        if SHARDED in self.programs and not any(way.stages == 1 for way in self.every.all()):
            near = self._near({SHARDED})
            self.every.drop("no FSDP: its ranks do not divide the batch", f"{near} would do" if near else "none near")

    def _near(self, kinds: Collection[str]) -> str:
        """Return the nearest numbers of GPUs, and of sequences, with which there is a way of these kinds, as text."""
        near = []
        if gpus := self._nearest(self.gpus, lambda n: (n, self.batch), kinds):
            near.append(f"{gpus:,} GPUs")
        if batch := self._nearest(self.batch, lambda n: (self.gpus, n), kinds):
            near.append(f"a batch of {batch:,}")
        return " or ".join(near)

    def _nearest(self, number: int, sizes: Any, kinds: Collection[str]) -> int | None:
        """Return the number nearest to this one with which there is a way."""
        for near in around(number):
            gpus, batch = sizes(near)
            ways = Ways(self.model, replace(self.cluster, gpus=gpus), batch, kinds)
            if any(True for _ in ways.all()):
                return near
        return None

    # -- what would do instead ------------------------------------------------------------------

    def _refuse_states(self) -> None:
        """Raise PuzzleError: nothing holds so large states. Say what would do."""
        problem = (
            f"{self.model.name} fits nowhere on {self.cluster.name}: its states alone are more than the memory of "
        )
        problem += "all GPUs"
        states = self._states(self.model.size)
        got = sum(states.values()) - (states["OptState"] if self.states_on_hosts else 0)
        expected = f"at most {self.gpus} x {show_bytes(self.cluster.room)}"
        raise PuzzleError(problem, where="plan", expected=expected, got=show_bytes(got), fix=what_would_do(self))

    def _refuse_meshes(self) -> None:
        """Raise PuzzleError: nothing divides these GPUs and this batch. Say what would do."""
        problem = f"no mesh of {self.gpus:,} GPUs trains {self.model.name} with a batch of {self.batch:,}"
        got = "no mesh into which layers and batch can be divided"
        why = next(iter(self.every.dropped), "")
        expected = f"{why} ({self.every.example[why]})" if why else "a mesh"
        raise PuzzleError(problem, where="plan", expected=expected, got=got, fix=what_would_do(self))

    def _refuse_room(self, smallest: float) -> None:
        """Raise PuzzleError: nothing fits. Say what would do."""
        problem = f"no mesh of {self.gpus:,} GPUs holds {self.model.name} with a batch of {self.batch:,}"
        expected, got = f"at most {show_bytes(self.cluster.room)} on a GPU", f"{show_bytes(smallest)} at the least"
        if smallest <= self.cluster.room:
            expected, got = (
                f"at most {show_bytes(self.cluster.host_memory)} on the hosts of a node",
                "more at the least",
            )
        raise PuzzleError(problem, where="plan", expected=expected, got=got, fix=what_would_do(self))

    def with_others(self, **changed: Any) -> Search:
        """Return the search with other arguments of ``plan``."""
        known: dict[str, Any] = {
            "gpus": self.gpus,
            "batch": self.batch,
            "programs": self.programs if self.yours else {},
        }
        known |= {"hosts": self.hosts, "sequence_parallel": self.sequence_parallel, **self.given, **changed}
        cluster = replace(self.cluster, gpus=known.pop("gpus"))
        return Search(self.model, cluster, known.pop("batch"), known.pop("programs"), **known)

    def is_possible(self) -> bool:
        """Return whether a way fits. A few are run: of those that are well below the room even if what is not known is
        counted, those that are run soonest; then the smallest."""
        if not self.states_fit():
            return False
        room, kept = self.cluster.room, list[tuple[bool, int, float, int, Plan]]()
        for at, way in enumerate(self.ways()):
            if (size := self.least_bytes(way)) <= room and self.least_on_host(way) <= self.cluster.host_memory:
                kept.append((size > SAFE * room, way.stages**2 * way.chunks, size, at, way))
        return any(self.fits(self.run(way)) for *_, way in sorted(kept)[:WAYS])

    def least_gpus(self) -> int:
        """Return on how many GPUs there is room for the states alone."""
        return -int(-sum(self._states(self.model.size).values()) // self.cluster.room)

    def states_fit(self) -> bool:
        """Return whether states alone fit the memory of all GPUs, without those that may be on hosts."""
        states = self._states(self.model.size)
        return self.cluster.has_room(sum(states.values()) - (states["OptState"] if self.states_on_hosts else 0))

    def fits(self, way: Plan) -> bool:
        """Return whether a way that was run fits the GPUs, and the hosts beside them."""
        return way.bytes <= self.cluster.room and way.host_bytes <= self.cluster.host_memory

    def _is_hidden(self, way: Plan, found: Sequence[Plan]) -> bool:
        """Return whether plain FSDP takes hardly more than what it computes, so that nothing that it sends is seen."""
        cost = self.cost(way)
        computes = self.batches(way) * (self.model.layers * self._each(cost) + cost.loss)
        like = way._replace(name=SHARDED, mesh=()).choice
        return any(one.choice == like and one.seconds < HIDDEN * computes for one in found)

    # -- prices and bounds ------------------------------------------------------------------

    def cost(self, way: Plan, split: bool = True) -> RealCost:
        """Return the prices of a way, or with all layers alike."""
        if way.split and not split:
            way = way._replace(split=None)
        key = (*way.choice[4:7], *way.choice[7:])
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self._prices(way, self.model)
        return found

    def _prices(self, way: Plan, model: Transformer) -> RealCost:
        return self.cluster.cost(
            model,
            micro_batch=way.micro_batch,
            tensor=way.tensor,
            context=way.context,
            expert_parallel=way.expert_parallel,
            split=way.split,
            sequence_parallel=way.tensor > 1 and self.sequence_parallel,
            recompute=way.recompute,
            recompute_part=way.part,
            offload=way.offload,
            states_on_hosts=self.states_on_hosts,
            **self.given,
        )

    def batches(self, way: Plan) -> int:
        """Return how many micro-batches a replica has."""
        return self.batch // way.replicas // way.micro_batch

    @cached_property
    def _own(self) -> tuple[float, float]:
        """How many parameters a layer has, on the average, that are not those of experts, and that are."""
        between = self.model.experts_between(0, self.model.layers)
        ends = self.model.parameters_between(0, self.model.layers) - self.model.layers * self.model.layer_size
        own = self.model.size - between - max(0, ends)
        return own / self.model.layers, between / self.model.layers

    def _states(self, parameters: float, part: float = 1.0) -> dict[str, float]:
        """Return the bytes of the states of so many parameters, and with adapters of this part of all of these."""
        known = {"gradients": self.given["gradients"], "optimizer": self.given.get("optimizer", "adam")}
        if not self.adapters:
            return self.model.state_bytes(parameters=max(1, round(parameters)), **known)
        beside = part * self.model.adapter_parameters(self.given["adapter_rank"])
        states = self.model.state_bytes(parameters=max(1, round(beside)), **known)
        return {**states, "Weight": states["Weight"] + parameters * self._frozen}

    @property
    def _frozen(self) -> float:
        """The bytes of a weight that is gathered for each use."""
        return float(self.given.get("frozen_bits") or 16) / 8

    def _each(self, cost: RealCost) -> float:
        """Return the seconds of a layer, forward and backward. Beside adapters weights have no gradients."""
        return float(cost.forward + getattr(cost, BACKWARD_INPUT.kind if self.adapters else BACKWARD.kind))

    def on_host_takes(self, way: Plan) -> float:
        """Return the seconds of the updates on the hosts at the least."""
        if not way.states_on_hosts:
            return 0.0
        moved = 2 * self._states(1)["OptState"] + 2 + self.given["gradients"]
        bandwidth = self.cluster.host_bandwidth / self.cluster.gpus_per_box
        return float(0.9 * self.model.size * self._piece_on_host(way) * moved / bandwidth)

    def least_on_host(self, way: Plan) -> float:
        """Return a lower bound of what the hosts of a node hold: states, and what goes there of activations."""
        held = self._offloaded(way, self.cost(way, False))
        if way.states_on_hosts:
            held += 0.9 * self._states(self.model.size)["OptState"] * self._piece_on_host(way)
        return self.cluster.gpus_per_box * held

    def _piece_on_host(self, way: Plan) -> float:
        """Return which part of the states a host beside a GPU has."""
        shards = dict(way.mesh).get("shard", 1) * dict(way.mesh).get("node", 1)
        return 1 / way.tensor / (shards if way.stages == 1 else way.replicas * way.stages)

    def least_bytes(self, way: Plan) -> float:
        """Return a lower bound of a GPU's memory: states, and the activations in flight on the first stage."""
        kept = (1 - way.offload) * (self.cost(way, False)._inner(way.recompute)) + self.cost(way, False)._boundary()
        if way.stages == 1:
            ranks = dict(way.mesh).get("shard", way.replicas)
            ranks = way.replicas if way.name == COPIES else ranks
            states = self._states(self.model.size)
            if way.states_on_hosts:
                states["OptState"] = 0.0
            if way.batches == way.replicas:  # its gradients come when activations go
                states["WeightGrad"] = 0.0
            kept = self.model.layers * kept + self.cost(way, False).held_by_loss
            return sum(states.values()) / ranks / way.tensor + kept
        few = sum(way.split[:: way.stages]) if way.split else self.model.layers / way.stages
        own, of_experts = self._own
        here = few * (own + of_experts / way.expert_parallel) / way.tensor
        states = self._states(here, few / self.model.layers / way.tensor)
        share = 1 if self.yours else 1 / way.replicas
        held = states["Weight"] + (0 if way.states_on_hosts else share * states["OptState"])
        if self.batches(way) > way.stages:  # else the first gradient comes when activations go
            held += states["WeightGrad"]
        return held + 0.98 * few * way.stages * kept * self._in_flight(way)

    def _in_flight(self, way: Plan) -> float:
        """Return for how many micro-batches the first stage of a pipeline keeps its layers, as a part of the stages."""
        if way.chunks == 1:
            return 1.0
        most = 2 * (way.stages - 1) + (way.chunks - 1) * way.stages + 1
        return min(self.batches(way) * way.chunks, most) / way.stages / way.chunks

    def least_seconds(self, way: Plan) -> float:
        """Return a lower bound of a step's time: what each stage computes and, of a pipeline, that of one micro-batch
        through all of them, by 1F1B or interleaved (arXiv 2104.04473); of shards, what their links carry."""
        cost, batches = self.cost(way, False), self.batches(way)
        layers = self.model.layers / way.stages
        each, updated = self._each(cost), self.on_host_takes(way)
        once = layers * each
        if way.stages > 1:
            own = [sum(way.split[stage :: way.stages]) for stage in range(way.stages)] if way.split else [layers]
            slowest = max(max(own) * each, own[-1] * each + cost.loss)
            return float(batches * slowest + 0.98 * (way.stages - 1) / way.chunks * min(own) * each + updated)
        once += cost.loss
        if way.name == HYBRID:
            return float(once * batches + updated)
        gathers = 2 * batches if way.name == SHARDED else 1
        reduced = 0 if self.adapters else batches
        across = max(1, self.cluster.gpus_per_box // (way.tensor * way.context))
        bytes_sent = (gathers * self._frozen + 2 * reduced) * self.model.size / way.tensor
        bytes_sent *= (way.replicas - 1) / way.replicas
        carried = bytes_sent / self.cluster.bandwidth(way.replicas, min(across, way.replicas))
        return float(max(once * batches, 0.98 * carried) + updated)

    # -- runs ---------------------------------------------------------------------------------

    def run(self, way: Plan) -> Plan:
        """Return a way with its figures."""
        cost, fn = self.cost(way), self.programs[way.name]
        if way.stages == 1:
            seconds, size, there = self._sharded(way, fn, cost)
        else:
            seconds, size, there = self._pipeline(way, fn, cost)
        of_node = self.cluster.gpus_per_box * (there + self._offloaded(way, cost))
        count = self.batch // way.micro_batch
        mfu = cost.mfu(seconds, count, self.gpus // cost.gpus)
        found = way._replace(
            seconds=seconds, bytes=size, mfu=float(mfu), program=fn, cost=cost, host_bytes=round(of_node)
        )
        if self.yours and way.stages > 1:  # its program knows of no replicas
            return found._replace(mesh=())
        return found

    def _offloaded(self, way: Plan, cost: RealCost) -> float:
        """Return the bytes of what a GPU's forward leaves behind that are on the host when most is in flight."""
        flight = self.model.layers if way.stages == 1 else self.model.layers * self._in_flight(way)
        return way.offload * flight * cost._inner(way.recompute)

    def _sharded(self, way: Plan, fn: Program, cost: RealCost) -> tuple[float, int, int]:
        """Return seconds, bytes, and bytes on the host, of ranks that all do the same, of which a few are run. With
        accumulation each further micro-batch takes as long as the third, and no more memory than the second."""
        size = way._replace(cost=cost).size
        size.pop("represent")
        once = partial(run, timeout=None) if self.yours else time_few
        each = way.batches // way.replicas
        done = once(fn, **{**size, "batches": min(each, 2) * way.replicas})
        if each <= 2:
            return done.seconds, done.bytes, int(done.host_memory)

        def another(layers: int) -> float:
            few = {**size, "layers": layers, "cost": self._prices(way, replace(self.model, layers=layers))}
            second, third = (once(fn, **{**few, "batches": count * way.replicas}).seconds for count in (2, 3))
            return third - second

        few, more = FEW_LAYERS
        if self.model.layers <= more or self.model.experts:
            next_one = once(fn, **{**size, "batches": 3 * way.replicas}).seconds - done.seconds
        else:
            next_one = another(few)
            next_one += (another(more) - next_one) * (self.model.layers - few) / (more - few)
        return done.seconds + (each - 2) * next_one, done.bytes, int(done.host_memory)

    def _pipeline(self, way: Plan, fn: Program, cost: RealCost) -> tuple[float, int, int]:
        """Return seconds, bytes, and bytes on the host, of a pipeline, extrapolated from two short runs. Each further
        round of as many micro-batches as there are stages takes as long as the one before, while single ones may not,
        where messages are slow; with two rounds, no more will be in flight."""
        stages, layers, batches = way.stages, way.stages * way.chunks, self.batches(way)
        size: dict[str, Any] = {"ranks": stages, "layers": layers, "cost": cost, "timeout": None}
        if self.adapters:
            size["train"] = TRAINED[1]
        if not self.yours:
            size["mesh"] = {"replica": 1, "stage": stages}
        went, times = partial(run, fn, **size), 1
        if way.states_on_hosts:  # each replica's hosts update a piece
            times = way.replicas
            size |= {"ranks": stages * times, "hosts": stages * times, "mesh": dict(way.mesh)}
            size.pop("timeout")
            went = partial(time_few, fn, represent="replica", **size)
        few = stages + batches % stages
        longer = went(batches=min(batches, few + stages) * times)
        seconds, held, there = longer.seconds, longer.bytes, int(longer.host_memory)
        if batches > few + stages:
            each = longer.seconds - went(batches=few * times).seconds
            seconds += each * (batches - few - stages) / stages
        if way.replicas > 1 and times == 1:
            seconds, held = self._of_replicas(way, cost, seconds, held)
        return seconds, held, there

    def _of_replicas(self, way: Plan, cost: RealCost, seconds: float, held: int) -> tuple[float, int]:
        """Return the same with the sums of the replicas' gradients, which nothing hides on the first stage: an
        all-reduce, or with divided states a reduce-scatter, an update of a piece, and a gather."""
        layers = [cost._between(at * way.stages, way.stages * way.chunks) for at in range(way.chunks)]
        whole = sum(self.model.parameters_between(*both) for both in layers)
        of_experts = sum(self.model.experts_between(*both) for both in layers)
        own, ways = (whole - of_experts) / way.tensor, way.expert_parallel
        if self.adapters:
            own, of_experts = cost._of_adapter * sum(end - first for first, end in layers), 0
        per_node = max(1, self.cluster.gpus_per_box // (cost.gpus * way.stages))
        stored = float(cost.stored)
        sent = float(cost.gradients if cost.reduced is None else cost.reduced)

        def summed(parameters: float, replicas: int) -> float:
            if replicas == 1:
                return 0.0
            near, rings = min(per_node, replicas), self.cluster.ring_takes
            if self.yours:
                return rings(sent * parameters, replicas, near, rounds=2)
            return rings(sent * parameters, replicas, near) + rings(stored * parameters, replicas, near)

        expert_part = of_experts / way.tensor / ways
        seconds += summed(own, way.replicas) + summed(expert_part, way.replicas // ways)
        if not self.yours:
            spared = own * (1 - 1 / way.replicas) + expert_part * (1 - ways / way.replicas)
            seconds -= cost.update_takes(spared)
            held -= round(spared * self.model.optimizer_bytes(stored, cost.optimizer))
        return seconds, held
