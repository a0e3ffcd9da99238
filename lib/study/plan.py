"""The search for the best way to train a model on a cluster: programs on every mesh that fits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

from ..basics.arguments import describe, instance_of, whole_number
from ..basics.columns import in_columns
from ..basics.errors import PuzzleError
from ..basics.units import show_bytes
from ..machine.check import TRAINED
from ..real.prices import Cluster, RealCost
from ..real.transformer import Transformer
from ..running.few import time_few
from ..running.run import Run, check_function, run
from . import planned
from .alternatives import WAYS, around, what_would_do
from .least import Least, two_lengths
from .sweep import beats, show_progress
from .ways import COPIES, HYBRID, INTERLEAVED, MOST_GPUS, MOST_LAYERS, PIPELINE, SHARDED, ZERO1, Program, Ways
from .ways import Plan as Plan

HOPELESS = 1.2
"""A program that takes this many times the fastest at the least is not run."""
GRADIENTS = 4  # bytes of a gradient in memory; it is reduced in 2
OURS: dict[str, Program] = {
    SHARDED: planned.sharded, HYBRID: planned.sharded, COPIES: planned.sharded_with_copies, ZERO1: planned.zero1,
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
EQUALLY_FAST = 0.08
"""The relative error of the model of a cluster: times within this of the fastest count as equal."""
NEAR = 0.99
"""The part of a GPU's room above which memory decides: peaks of measured steps were one percent off in the median
(docs/real-machines.md, "its peak")."""
SHOWN = 20  # plans of a table
HEADS = ("program", "replicas x stages x tensor", "chunks", "micro-batch", "recompute", "s", "memory", "MFU", "", "")


def plan(
    model: Transformer,
    cluster: Cluster,
    batch: int,
    *,
    sharded: Program | None = None,
    pipeline: Program | None = None,
    interleaved: Program | None = None,
    optimizer: str = "adam",
    stored: float = 2,
    gradients: float = GRADIENTS,
    gathered: float | None = None,
    reduced: float = 2,
    adapter_rank: int | None = None,
    frozen_bits: float | None = None,
    hosts: bool = False,
    sequence_parallel: bool = True,
    fp8: bool = False,
    overlap: bool | None = None,
) -> Plans:
    """Tries all meshes of a cluster, and returns the ways to train a model that fit, with seconds and bytes.

    ``batch``: sequences of a step. Unless programs are given, those of ``lib.study.planned`` are tried: FSDP with
    gradient accumulation, in all GPUs, in each node (HSDP), and with a copy of the weights in each node (hpZ), ZeRO-1
    alone, and pipelines with one or several chunks, whose replicas divide the states. ``sharded``: a program of yours
    like that of puzzle 4, in which each rank trains a micro-batch; ``pipeline`` and ``interleaved``: programs like
    those of puzzles 13 and 14, of whose replicas one is run, and their all-reduce added; only those that are given
    are tried then. GPUs may share long sequences, and experts. ``optimizer``, ``gradients``, ``reduced``,
    ``adapter_rank``, ``frozen_bits``, ``fp8`` and ``overlap``: those of ``cluster.cost``, adapters being trained where
    their rank is given; so are ``stored`` and ``gathered``, of FSDP, while a stage of a pipeline keeps weights in 2
    bytes; ``hosts``: whether what forward leaves behind may go to the hosts, and the optimizer's states may be there,
    and be updated there; ``sequence_parallel``: whether GPUs that share layers share their norms and residuals, too.
    The time of many micro-batches is known from two short runs. What cannot fit,
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
        expected = "replace(cluster, gpus=64), or another number"
        raise PuzzleError("plan needs the number of GPUs", where="plan", expected=expected, got=describe(str(cluster)))
    for name, number, most in (("gpus", cluster.gpus, MOST_GPUS), ("layers", model.layers, MOST_LAYERS)):
        if number > most:
            problem, expected = f"plan looks at no more than {most:,} {name}", f"at most {most:,}"
            raise PuzzleError(problem, where="plan", expected=expected, got=f"{number:,}")
    programs = {SHARDED: sharded, PIPELINE: pipeline, INTERLEAVED: interleaved}
    for fn in programs.values():
        if fn is not None:
            check_function(fn)
    given: dict[str, Any] = {
        "optimizer": optimizer,
        "stored": stored,
        "gradients": gradients,
        "gathered": gathered,
        "reduced": reduced,
    }
    given |= {"adapter_rank": adapter_rank, "frozen_bits": frozen_bits, "fp8": fp8, "overlap": overlap}
    replace(cluster, gpus=None).cost(model, **given)  # which refuses what cannot be
    search = Search(model, cluster, batch, programs, hosts=hosts, sequence_parallel=sequence_parallel, **given)
    return search.found()


class Search(Least):
    """The search over all ways to train a model on a cluster: what none can take less than, and runs."""

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
        given = {"gradients": GRADIENTS, "reduced": 2, **given}
        super().__init__(
            model, cluster, batch, given, hosts=hosts, sequence_parallel=sequence_parallel, yours=bool(own)
        )
        self.programs: dict[str, Program] = own or (OF_ADAPTERS if self.adapters else OURS)
        self.every = Ways(model, cluster, batch, self.programs, hosts=hosts, states_on_hosts=self.states_on_hosts)
        self.gpus = self.every.gpus

    def ways(self) -> list[Plan]:
        """Return all ways, as plans without figures."""
        found = dict[Plan, None]()
        for way in self.every.all():
            if self.yours and way.stages == 1:  # its ranks train one micro-batch each, whatever its size
                way = way._replace(micro_batch=self.batch // way.replicas, batches=way.replicas, mesh=())
            if self.yours and way.expert_parallel > 1:
                self.every.drop("programs of yours divide no experts", f"among {way.expert_parallel} replicas")
            else:
                found[way] = None
        return [*found]

    def found(self) -> Plans:
        """Return the plans that fit. What may be fastest is tried first, by a bound that is quick to find and then by
        one that is nearer."""
        if not self.states_fit():
            self._refuse_states()
        ways = self.ways()
        if not ways:
            self._refuse_meshes()
        queue = [(self.least_seconds(way), way.name in (HYBRID, COPIES), at, False) for at, way in enumerate(ways)]
        heapify(queue)
        found, sizes, tried = list[Plan](), list[float](), 0
        while queue:
            least, copies, at, near = heappop(queue)
            if why := self._left_out(ways[at], least, found):
                self.every.drop(*why)
            elif not near:
                heappush(queue, (self.soonest(ways[at]), copies, at, True))
                continue
            else:
                done = self.run(ways[at])
                sizes.append(done.bytes)
                if self.fits(done):
                    found.append(done)
                else:
                    size = f"{done}: {show_bytes(done.bytes)}"
                    on_hosts = f", {show_bytes(done.host_bytes)} on the hosts of a node" * (done.host_bytes > 0)
                    self.every.drop("ran, and does not fit", size + on_hosts)
            tried += 1
            show_progress(tried, len(ways))
        if not found:
            self._refuse_room(min([*sizes, *map(self.least_bytes, ways)]))
        self._say_what_is_near()
        left_out = {why: (many, self.every.example[why]) for why, many in self.every.dropped.items()}
        return Plans(found, len(ways), left_out, self.cluster.room)

    def _left_out(self, way: Plan, least: float, found: Sequence[Plan]) -> tuple[str, str] | None:
        """Return why a way that takes so many seconds at the least is not run, and what it is; None if it is."""
        room, seconds = self.cluster.room, f"{way}: {least:.3g} s"
        if found and least > HOPELESS * min(one.seconds for one in found):
            return f"{HOPELESS} times the fastest, even at the least", seconds
        if (there := self.least_on_host(way)) > self.cluster.host_memory:
            return "more memory than the hosts of a node have, even at the least", f"{way}: {show_bytes(there)}"
        if (size := self.least_bytes(way)) > room:
            return "more memory than a GPU has, even at the least", f"{way}: {show_bytes(size)}"
        if way.name in (HYBRID, COPIES) and self._is_hidden(way, found):
            return "gathers are hidden already, so copies of weights only take memory", str(way)
        if any(one.seconds <= least and one.bytes <= size for one in found):
            return "slower and larger than another one, even at the least", seconds
        return None

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
        states = self.states(self.model.size)
        got = sum(states.values()) - (states["OptState"] if self.states_on_hosts else 0)
        expected = f"at most {self.gpus} x {show_bytes(self.cluster.room)}"
        raise self._nothing(problem, expected, show_bytes(got))

    def _refuse_meshes(self) -> None:
        """Raise PuzzleError: nothing divides these GPUs and this batch. Say what would do."""
        problem = f"no mesh of {self.gpus:,} GPUs trains {self.model.name} with a batch of {self.batch:,}"
        got = "no mesh into which layers and batch can be divided"
        why = next(iter(self.every.dropped), "")
        expected = f"{why} ({self.every.example[why]})" if why else "a mesh"
        raise self._nothing(problem, expected, got)

    def _refuse_room(self, smallest: float) -> None:
        """Raise PuzzleError: nothing fits. Say what would do."""
        problem = f"no mesh of {self.gpus:,} GPUs holds {self.model.name} with a batch of {self.batch:,}"
        expected, got = f"at most {show_bytes(self.cluster.room)} on a GPU", f"{show_bytes(smallest)} at the least"
        if smallest <= self.cluster.room:
            expected = f"at most {show_bytes(self.cluster.host_memory)} on the hosts of a node"
            got = "more at the least"
        raise self._nothing(problem, expected, got)

    def _nothing(self, problem: str, expected: str, got: str) -> PuzzleError:
        """Return the error of a search that finds nothing, with what would do."""
        return PuzzleError(problem, where="plan", expected=f"{expected}; or {what_would_do(self)}", got=got)

    def with_others(self, **changed: Any) -> Search:
        """Return the search with other arguments of ``plan``."""
        known: dict[str, Any] = {
            "model": self.model,
            "gpus": self.gpus,
            "batch": self.batch,
            "programs": self.programs if self.yours else {},
        }
        known |= {"hosts": self.hosts, "sequence_parallel": self.sequence_parallel, **self.given, **changed}
        cluster = replace(self.cluster, gpus=known.pop("gpus"))
        return Search(known.pop("model"), cluster, known.pop("batch"), known.pop("programs"), **known)

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
        return -int(-sum(self.states(self.model.size).values()) // self.cluster.room)

    def states_fit(self) -> bool:
        """Return whether states alone fit the memory of all GPUs, without those that may be on hosts."""
        every = [self.states(self.model.size, sharded=sharded) for sharded in (False, True)]
        least = min(sum(one.values()) - (one["OptState"] if self.states_on_hosts else 0) for one in every)
        return self.cluster.has_room(least)

    def fits(self, way: Plan) -> bool:
        """Return whether a way that was run fits the GPUs, and the hosts beside them."""
        return way.bytes <= self.cluster.room and way.host_bytes <= self.cluster.host_memory

    def _is_hidden(self, way: Plan, found: Sequence[Plan]) -> bool:
        """Return whether plain FSDP takes hardly more than what it computes, so that nothing that it sends is seen."""
        cost = self.cost(way)
        computes = self.batches(way) * (self.model.layers * self.each(cost) + cost.loss)
        like = way._replace(name=SHARDED, mesh=()).choice
        return any(one.choice == like and one.seconds < HIDDEN * computes for one in found)

    # -- runs ---------------------------------------------------------------------------------

    def run(self, way: Plan) -> Plan:
        """Return a way with its figures."""
        cost, fn = self.cost(way), self.programs[way.name]
        if way.stages == 1:
            seconds, size, there = self._sharded(way, fn, cost)
        else:
            seconds, size, there = self._pipeline(way, fn, cost)
        of_node = self.cluster.per_node * (there + self.offloaded(way, cost))
        count = self.batch // way.micro_batch
        mfu = cost.mfu(seconds, count, self.gpus // cost.gpus)
        found = way._replace(
            seconds=seconds, bytes=size, mfu=float(mfu), program=fn, cost=cost, host_bytes=round(of_node)
        )
        if self.yours and way.stages > 1:  # its program knows of no replicas
            return found._replace(mesh=())
        return found

    def _sharded(self, way: Plan, fn: Program, cost: RealCost) -> tuple[float, int, int]:
        """Return seconds, bytes, and bytes on the host, of ranks that all do the same, of which a few are run. With
        accumulation each further micro-batch takes as long as the third, and no more memory than the second."""
        size = way._replace(cost=cost).size
        size.pop("represent")
        once = partial(run, timeout=None) if self.yours else time_few
        each = way.batches // way.replicas
        done = once(fn, **{**size, "batches": min(each, 2) * way.replicas})
        if self.yours:
            done.verify()
        if each <= 2:
            return done.seconds, done.bytes, int(done.host_memory)

        def another(layers: int) -> float:
            few = {**size, "layers": layers, "cost": self.prices(way, replace(self.model, layers=layers))}
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
        where messages are slow; with two rounds, no more will be in flight. Chunks of different sizes need one more."""
        stages, layers, batches = way.stages, way.stages * way.chunks, self.batches(way)
        size: dict[str, Any] = {"ranks": stages, "layers": layers, "cost": cost, "timeout": None}
        if self.adapters:
            size["train"] = TRAINED[1]
        if not self.yours:
            size["mesh"] = {"replica": 1, "stage": stages}
        went, times = partial(run, fn, represent=False, **size), 1  # no stage does the same as another one
        if way.states_on_hosts:  # each replica's hosts update a piece
            times = way.replicas
            size |= {"ranks": stages * times, "hosts": stages * times, "mesh": dict(way.mesh)}
            size.pop("timeout")
            went = partial(time_few, fn, represent="replica", **size)
        few, more = two_lengths(way, batches)
        longer = went(batches=more * times)
        if self.yours:
            longer.verify()
        seconds, held, there = longer.seconds, longer.bytes, int(longer.host_memory)
        if batches > more:
            each = longer.seconds - went(batches=few * times).seconds
            seconds += each * (batches - more) / stages
        if way.replicas * way.context > 1 and times == 1:
            seconds, held = self._of_replicas(way, cost, seconds, longer)
        return seconds, held, there

    def _of_replicas(self, way: Plan, cost: RealCost, seconds: float, done: Run) -> tuple[float, int]:
        """Return seconds and bytes with the sums of the replicas' gradients, which nothing hides on the first stage,
        and with divided states, of which each replica updates its own."""
        seconds += self.summing_takes(way, cost)
        if self.yours:
            return seconds, done.bytes

        def spared(stage: int) -> float:
            own, of_experts = self.summed_of(way, cost, stage)
            return (own * (1 - 1 / way.replicas) + of_experts * (1 - way.sharing / way.replicas)) / way.context

        each = self.model.optimizer_bytes(float(cost.stored), cost.optimizer)
        peaks = dict.fromkeys(range(way.stages), 0.0)
        for event in done.events:
            peaks[event.rank] = max(peaks[event.rank], float(sum(event.held)))
        held = max(peak - round(spared(stage) * each) for stage, peak in peaks.items())
        return seconds - cost.update_takes(spared(0)), int(held)


# -- what was found, as a table -----------------------------------------------------------------


class Plans:
    """The result of a search. ``plans``: those that fit, by seconds; of those within 8 percent of the fastest, the ones
    that leave less than a percent of the room of a GPU come last. ``tried``: the number of plans that were run or ruled
    out. ``dropped``: what was left out, with the number of ways and an example. ``room``: the bytes that a GPU can
    hold."""

    def __init__(
        self,
        plans: Sequence[Plan],
        tried: int,
        dropped: Mapping[str, tuple[int, str]] | None = None,
        room: float = float("inf"),
    ) -> None:
        self.limit, self.room = min(plan.seconds for plan in plans) * (1 + EQUALLY_FAST), room
        self.plans = sorted(
            plans, key=lambda plan: (not self.ties(plan), self.ties(plan) and self.is_near(plan), *plan.figures)
        )
        self.tried, self.dropped = tried, dict(dropped or {})

    @property
    def best(self) -> Plan:
        """The first plan: the fastest, unless it is near the limit of memory and another one, hardly slower, is not."""
        return self.plans[0]

    def ties(self, plan: Plan) -> bool:
        """Return whether a plan is as fast as the fastest, within the error of the model."""
        return plan.seconds <= self.limit

    def is_near(self, plan: Plan) -> bool:
        """Return whether a plan leaves less of a GPU's room than the bytes of a run are known to."""
        return plan.bytes > NEAR * self.room

    def front(self) -> list[Plan]:
        """Return the plans that no other one beats in seconds and bytes: the Pareto front, from fast to small."""
        front = [plan for plan in self.plans if not any(beats(other.figures, plan.figures) for other in self.plans)]
        return sorted(front, key=lambda plan: plan.seconds)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table as texts."""
        front = self.front()
        return [
            (
                plan.name, _mesh(plan), str(plan.chunks), str(plan.micro_batch), plan.recomputed, f"{plan.seconds:.3g}",
                show_bytes(plan.bytes) + " !" * self.is_near(plan), f"{100 * plan.mfu:.0f}%", "=" * self.ties(plan),
                "front" * (plan in front),
            )
            for plan in self.plans
        ]  # fmt: skip

    def __str__(self) -> str:
        rows = [HEADS, *self.rows()]
        more = len(rows) - 1 - SHOWN
        lines = in_columns(rows[: SHOWN + 1]) + [f"and {more} more, in plans.rows()"] * (more > 0)
        lines.append(f"=: as fast as the fastest, within {100 * EQUALLY_FAST:.0f} percent")
        if near := [plan for plan in self.plans if self.is_near(plan)]:
            fastest = min(near, key=lambda plan: plan.seconds)
            note = f"!: near the limit: the fastest of these leaves {show_bytes(self.room - fastest.bytes)}"
            if (less := fastest.bytes - self.best.bytes) > 0:
                longer = 100 * (self.best.seconds / fastest.seconds - 1)
                note += f"; the first plan takes {longer:.1f} % longer and {show_bytes(less)} less"
            lines.append(note)
        lines.append("front: no other plan is both as fast and as small; each of these trades seconds for memory")
        lines.append(f"{self.tried:,} ways were considered. Left out:")
        lines += [f"  {many:,}: {why} ({example})" for why, (many, example) in self.dropped.items()]
        return "\n".join(lines if self.dropped else [*lines[:-1], f"{self.tried:,} ways were considered"])

    __repr__ = __str__


def _mesh(plan: Plan) -> str:
    """Return the mesh of a plan as text, with the axes that few plans have by name."""
    axes = f"{plan.replicas} x {plan.stages} x {plan.tensor}"
    axes += f", context {plan.context}" if plan.context > 1 else ""
    axes += f", experts {plan.expert_parallel}" if plan.expert_parallel > 1 else ""
    axes += ", activations on hosts" if plan.offload else ""
    axes += ", states on hosts" if plan.states_on_hosts else ""
    return axes + (f", {max(plan.split)} or {min(plan.split)} layers" if plan.split else "")
