"""Published figures beside what the programs of the course give: ``python -m tools.papers``, or ``make papers``.

Tables: figures that must come out exactly; ratios, in which nothing is fitted; seconds, with one number for each
software stack (the part of the peak that matrix products reach) fitted on one row; how far each set is off, with the
139 rows of ``tools/foundry.py``; one H100 that was measured for this course (``tools/measured.py``); what fits; what is
only shown; and what the planner would choose beside what others chose. They are printed, and written as ``papers.csv``,
``planner.csv`` and ``papers.svg`` into the folder that is named, or ``dist``.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from lib import Model, Plan, Run, plan, run
from lib.basics.units import show_bytes
from lib.real import (
    A100_40_P4D,
    A100_MEGATRON,
    H100_DGX,
    H100_TORCHTITAN,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_3_405B,
    LLAMA_3_405B_LONG,
    Cluster,
    Transformer,
)
from lib.real.prices import RealCost
from lib.record.kinds import MEMORY_KINDS
from lib.study.plan import Search
from tools import foundry, measured, published
from tools.papers_picture import picture

with redirect_stdout(StringIO()):  # the cells of a puzzle print, the last one what a step takes
    from solutions.p12_prefetch import prefetch
    from solutions.p13_one_f_one_b import one_f_one_b
    from solutions.p14_interleaved import interleaved

TENSOR = 8  # GPUs of a stage of Megatron's pipelines: a node


class Line(NamedTuple):
    """A published figure and ours. ``without``: what comes out if the idea that the figure is about is switched off."""

    table: str
    name: str
    unit: str
    published: float
    ours: float
    without: float | None = None
    fitted: bool = False  # whether the part of the peak is such that ours is what was published

    @property
    def residual(self) -> float:
        """How far ours is off, as a part of the published one."""
        return self.ours / self.published - 1


# -- runs ---------------------------------------------------------------------------------------------


def in_gb(gib: float) -> float:
    """Return the GB of what was published in GiB."""
    return round(gib * 2**30) / 1e9


def pipeline_seconds(cluster: Cluster, row: published.Pipeline, present: bool, batches: int | None = None) -> float:
    """Return the seconds of a step on a pipeline, of the programs of puzzles 13 and 14.

    Each stage is one rank, and each chunk one layer. The time grows evenly from as many micro-batches as there are
    stages on (tests/test_real_prices.py), in steps of as many with several chunks: two short runs tell that of a long
    one.
    """
    cost = pipeline_cost(cluster, row, present, "selective" if present else "full")
    fn, few = (one_f_one_b, row.stages) if row.chunks == 1 else (interleaved, row.stages)
    more = few + (row.stages if row.chunks > 1 else max(1, row.stages // 8))
    many = row.batches if batches is None else batches
    went = partial(run, fn, ranks=row.stages, layers=row.stages * row.chunks, cost=cost, timeout=None)
    if many <= more:
        return went(batches=many).seconds
    short, longer = went(batches=few).seconds, went(batches=more).seconds
    return short + (longer - short) * (many - few) / (more - few)


def sharded_run(cluster: Cluster, row: published.Sharded) -> Run:
    """Return the run of puzzle 12's program: weights are gathered one layer ahead, gradients reduced after backward."""
    cost = replace(cluster, fused=row.fused).cost(
        row.model, micro_batch=row.micro_batch, recompute=row.recompute, mfu="palm", tensor=row.tensor,
        sequence_parallel=row.tensor > 1, fp8=row.fp8, overlap=row.overlap, **published.FSDP2
    )  # fmt: skip
    ranks = row.gpus // row.tensor
    return run(
        prefetch,
        ranks=ranks,
        layers=row.model.layers,
        batches=ranks,
        cost=cost,
        timeout=None,
        represent=True,
    )


def sharded_seconds(cluster: Cluster, row: published.Sharded) -> float:
    """Return the seconds of its step."""
    return sharded_run(cluster, row).seconds


def train(model: Model, adapters: bool = False, updates: bool = False) -> Model:
    """Forward and backward of one micro-batch on one rank; with adapters alone, no gradient of any other weight. With
    ``updates`` each layer is updated as well."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation([0])
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    model.grad_activations["last"] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        operands = model.activations.pop(layer), model.grad_activations.pop("last"), model.weights[layer]
        if adapters:
            model.grad_activations["last"] = model.backward_input(layer, *operands)
            continue
        model.grad_weights[layer], model.grad_activations["last"] = model.backward(layer, *operands)
        if updates:
            model.update(layer, model.grad_weights[layer], model.weights[layer], model.opt_states[layer])
    return model


# -- figures that must come out exactly ------------------------------------------------------------------


def exact(rows: Sequence[published.Pipeline] = published.MEGATRON) -> Iterator[Line]:
    """Yield memory, parameters and states. What is in flight is that of runs."""
    for row in rows:
        model, name = row.model, row.model.name
        states = model.state_bytes(gradients=4, parameters=model.layers * model.matrices)
        yield Line(
            "exact", f"{name}: states", "GB", in_gb(row.states), sum(states.values()) / TENSOR / row.stages / 1e9
        )
        yield Line("exact", f"{name}: activations", "GB", in_gb(row.whole), kept_in_flight(row, False) / 1e9)
        yield Line("exact", f"{name}: activations, selective", "GB", in_gb(row.less), kept_in_flight(row, True) / 1e9)
    for model, billions in ((LLAMA_3_8B, 8.03), (LLAMA_3_70B, 70.55)):
        yield Line(
            "exact",
            f"{model.name}: parameters",
            "billion",
            billions,
            round(model.size / 1e9, 2),
        )
    states = LLAMA_3_8B.state_bytes(parameters=7_500_000_000)
    for stage, (said, gigabytes) in enumerate((("DDP", 120.0), ("ZeRO-1", 31.4), ("ZeRO-2", 16.6), ("ZeRO-3", 1.9))):
        sharded = ("OptState", "WeightGrad", "Weight")[:stage]
        held = sum(size / (64 if kind in sharded else 1) for kind, size in states.items())
        yield Line(
            "exact",
            f"{said}, 7.5 billion parameters on 64 GPUs",
            "GB",
            gigabytes,
            round(held / 1e9, 1),
        )
    yield Line("exact", "65 billion parameters in 16 bits", "GB", 780, 12 * 65.0)


def pipeline_cost(cluster: Cluster, row: published.Pipeline, present: bool, recompute: str) -> RealCost:
    """Return the prices of a pipeline of Megatron's, ``present`` with sequence parallelism."""
    return cluster.cost(
        row.model, micro_batch=row.micro_batch, tensor=TENSOR, sequence_parallel=present, recompute=recompute,
        gradients=4,
    )  # fmt: skip


def fullest(row: published.Pipeline, cost: RealCost) -> Run:
    """Return a run of a pipeline with no more micro-batches than fill its memory."""
    fn = one_f_one_b if row.chunks == 1 else interleaved
    batches = min(row.batches, row.stages * (2 if row.chunks > 1 else 1))
    return run(fn, ranks=row.stages, layers=row.stages * row.chunks, batches=batches, cost=cost, timeout=None)


def kept_in_flight(row: published.Pipeline, present: bool) -> int:
    """Return the bytes of activations that the first stage of a run has kept when most is in flight. Figure 1 counts
    neither what the last layer hands on nor what an operation holds while it runs."""
    cost = pipeline_cost(A100_MEGATRON, row, present, "selective" if present else "none")
    done = fullest(row, cost)
    handed_on = [each for each in done.events if each.rank == 0 and each.kind in ("pass_to", "loss")]
    besides = cost.activation_elements + (0 if row.stages > 1 else cost.held_by_loss)
    return max(each.held[MEMORY_KINDS.index("activations")] for each in handed_on) - round(besides)


# -- ratios, in which nothing is fitted --------------------------------------------------------------------


def ratios(cluster: Cluster = A100_MEGATRON) -> Iterator[Line]:
    """Yield ratios of two figures of one set-up: whatever the part of the peak is, it cancels."""
    yield from (recompute_ratio(row, cluster) for row in published.MEGATRON)
    yield interleaved_ratio()
    yield from cluster_ratios(cluster)
    yield from map(adapter_ratio, published.ADAPTERS)


def recompute_ratio(row: published.Pipeline, cluster: Cluster = A100_MEGATRON) -> Line:
    """Return how much longer a step is with everything recomputed. Without recomputation there is no difference."""
    ours = pipeline_seconds(cluster, row, present=False) / pipeline_seconds(cluster, row, present=True)
    cost = cluster.cost(row.model, micro_batch=row.micro_batch, tensor=TENSOR)
    kept = cluster.cost(row.model, micro_batch=row.micro_batch, tensor=TENSOR, sequence_parallel=True)
    without = (cost.forward + cost.backward) / (kept.forward + kept.backward)
    return Line(
        "ratio",
        f"full / present recomputation, {row.model.name}",
        "x",
        row.full / row.present,
        ours,
        without,
    )


def interleaved_ratio() -> Line:
    """Return how much longer 1F1B takes with one chunk a stage than with two. (128 layers, where the model has 126:
    torchtitan's stages are not all of one size.)"""
    model = replace(LLAMA_3_405B, layers=128)
    cost = H100_TORCHTITAN.cost(model, micro_batch=4, tensor=TENSOR, sequence_parallel=True, recompute="full")
    once, twice, without = (
        run(fn, ranks=8, layers=layers, batches=8, cost=cost).seconds
        for fn, layers in ((one_f_one_b, 16), (interleaved, 16), (interleaved, 8))
    )
    slow, fast = published.INTERLEAVED
    return Line(
        "ratio",
        f"1F1B / interleaved, {LLAMA_3_405B.name}",
        "x",
        fast / slow,
        once / twice,
        once / without,
    )


def cluster_ratios(cluster: Cluster = A100_MEGATRON) -> Iterator[Line]:
    """Yield how much shorter a step is on more GPUs. Without a pipeline it is as much shorter as there are more."""
    row = published.MEGATRON[2]._replace(chunks=1)
    alone = row._replace(stages=1)
    seconds, without = dict[int, float](), dict[int, float]()
    for gpus in published.THREE_CLUSTERS:
        batches = 1920 * TENSOR * row.stages // gpus
        seconds[gpus] = pipeline_seconds(cluster, row, False, batches)
        without[gpus] = pipeline_seconds(cluster, alone, False, batches)
    first, *others = published.THREE_CLUSTERS
    for gpus in others:
        known, ours, off = (found[gpus] / found[first] for found in (published.THREE_CLUSTERS, seconds, without))
        yield Line("ratio", f"530B on {gpus:,} / {first:,} GPUs", "x", known, ours, off)


def adapter_ratio(row: tuple[Transformer, float, float]) -> Line:
    """Return how much faster adapters train than all weights: two of three matrix products are left, of the head as
    well, and next to nothing of the update at the end of a step, in which each parameter is updated once, on some GPU.
    Switched off, backward makes the gradients of all weights, which are not used."""
    model, full, adapted = row
    cost = H100_DGX.cost(model)
    head = H100_DGX.product_takes(
        model.tokens(), model.hidden, model.vocabulary
    )  # the gradient of its weight, in ``loss``
    whole, part, step = (
        run(partial(train, **trained), layers=model.layers, cost=cost).seconds
        for trained in ({}, {"adapters": True}, {"updates": True})
    )
    updated = whole + (step - whole) / published.ADAPTED_BATCH  # by micro-batch
    name = f"adapters / all weights, {model.name}"
    return Line("ratio", name, "x", adapted / full, updated / (part - head), updated / whole)


# -- seconds, with one number fitted -------------------------------------------------------------------------


class Stack(NamedTuple):
    """The rows of one software stack, and which of them the part of the peak is fitted on."""

    name: str
    cluster: Cluster
    rows: Sequence[tuple[str, str, float, Callable[[Cluster], float]]]
    """Name, unit, what is published, and the seconds of a step on a cluster."""
    tokens: Sequence[float]  # of a GPU and step, where tokens a second are published
    fitted: int


def stacks() -> list[Stack]:
    """Return all of them."""
    steps = [
        (
            f"{row.model.name}, {said}",
            "s",
            getattr(row, said),
            partial(pipeline_seconds, row=row, present=present),
        )
        for row in published.MEGATRON
        for said, present in (("full", False), ("present", True))
    ]
    found = [Stack("Megatron 2022, A100", A100_MEGATRON, steps, [], 2)]
    for name, rows in (
        ("A100", published.TORCHTITAN_A100),
        ("H100", published.TORCHTITAN_H100),
    ):
        each = [(row.name, "tokens/s", row.tokens, partial(sharded_seconds, row=row)) for row in rows]
        tokens = [float(row.model.tokens(row.micro_batch)) for row in rows]
        found.append(Stack(f"torchtitan, {name}", rows[0].cluster, each, tokens, 0))
    return found


def seconds(stack: Stack, said: Callable[[str], None] = lambda text: None) -> tuple[float, list[Line], list[float]]:
    """Return the part of the peak that fits one row, all rows with it, and how far the worst of the others is off if
    each of the rows is fitted instead.

    A step takes as long as its matrix products, which go with 1 over that part, and all the rest: two runs of a row
    tell it for any part.
    """
    parts = (0.5, 0.8)
    lines = []
    for name, _, _, took in stack.rows:
        said(f"{stack.name}: {name}")
        slow, fast = (took(replace(stack.cluster, reached=part)) for part in parts)
        slope = (slow - fast) / (1 / parts[0] - 1 / parts[1])
        lines.append((fast - slope / parts[1], slope))
    known = [row[2] if row[1] == "s" else stack.tokens[at] / row[2] for at, row in enumerate(stack.rows)]

    def table(fitted: int) -> tuple[float, list[float]]:
        rest, slope = lines[fitted]
        part = slope / (known[fitted] - rest)
        return part, [rest + slope / part for rest, slope in lines]

    def worst(fitted: int) -> float:
        _, ours = table(fitted)
        off = [_off(stack, at, took, known) for at, took in enumerate(ours) if at != fitted]
        return max(off, key=abs)

    part, ours = table(stack.fitted)
    rows = []
    for at, (name, unit, figure, _) in enumerate(stack.rows):
        shown = ours[at] if unit == "s" else stack.tokens[at] / ours[at]
        rows.append(Line(stack.name, name, unit, figure, shown, fitted=at == stack.fitted))
    return part, rows, [worst(at) for at in range(len(rows))]


def _off(stack: Stack, at: int, took: float, known: Sequence[float]) -> float:
    """Return how far a row is off, in the unit in which it was published."""
    return took / known[at] - 1 if stack.rows[at][1] == "s" else known[at] / took - 1


# -- does it fit? --------------------------------------------------------------------------------------------


class Fit(NamedTuple):
    """Whether a set-up fitted, and what we say."""

    name: str
    fitted: bool
    bytes: int
    fits: bool


def room(
    foundry_rows: Sequence[foundry.Done], rows: Sequence[published.Pipeline] = published.MEGATRON
) -> Iterator[Fit]:
    """Yield what is known to have fitted, or not to: the red line of figure 1 of arXiv 2205.05198 is the memory of a
    GPU, which all four models need more than if all is kept, and less than with that paper's ideas."""
    for row in rows:
        for present in (True, False):
            cost = pipeline_cost(A100_MEGATRON, row, present, "selective" if present else "none")
            done = fullest(row, cost)
            yield Fit(f"{row.model.name}, {'selective' if present else 'all kept'}", present, done.bytes, done.fits)
    for each in (*published.TORCHTITAN_A100, *published.TORCHTITAN_H100):
        done = sharded_run(each.cluster, each)
        yield Fit(each.name, True, done.bytes, done.fits)
    for one in foundry_rows:
        yield Fit(one.row.model.name, True, one.memory, one.fits)
    for model, cost in published.too_large():
        done = run(prefetch, ranks=128, layers=model.layers, batches=128, cost=cost, timeout=None, represent=True)
        yield Fit(model.name, False, done.bytes, done.fits)


# -- what is only shown --------------------------------------------------------------------------------------


def shown() -> Iterator[Line]:
    """Yield figures that the model is not meant to meet, beside what it gives."""
    for row in published.TORCHTITAN_H100:
        if row.fused:
            held = sharded_run(row.cluster, row).bytes / 1e9
            yield Line("shown", f"{row.name}: memory", "GB", in_gb(published.H100_MEMORY[row.gpus]), held)
    for model, micro_batch, sequence, tflops in published.ANNOUNCED:
        short = replace(model, sequence=sequence)
        cost = A100_40_P4D.cost(short, micro_batch=micro_batch, recompute="full", optimizer="sgd")
        done = run(prefetch, ranks=128, layers=model.layers, batches=128, cost=cost, timeout=None)
        ours = short.model_flops(micro_batch) / done.seconds / 1e12
        room = "fits" if done.fits else "does not fit"
        name = f"FSDP announced, {model.name}: {show_bytes(done.bytes)}, {room}"
        yield Line("shown", name, "TFLOP/s", tflops, ours)


def in_8_bits() -> Iterator[Line]:
    """Yield torchtitan's rows that compute in 8 bits: the part of the peak is that of 16 bits, fitted on another row,
    or for H200 the one that is assumed."""
    for row in published.TORCHTITAN_FP8:
        ours = row.model.tokens(row.micro_batch) / row.tensor / sharded_seconds(row.cluster, row)
        yield Line("shown", row.name, "tokens/s", row.tokens, ours)


def shown_apart() -> Iterator[Line]:
    """Yield the step of a model that reads long sequences. The chunks of a stage are not published; two are assumed, in
    128 layers, where the model has 126."""
    stages, ways, batches, tflops = published.LONG
    model = replace(LLAMA_3_405B_LONG, layers=128)
    cost = H100_DGX.cost(model, tensor=TENSOR, context=ways, sequence_parallel=True, gradients=4)
    done = run(interleaved, stages, 2 * stages, batches, cost=cost, timeout=None)
    ours = model.model_flops() * batches / done.seconds / stages / cost.gpus / 1e12
    yield Line("shown", LLAMA_3_405B_LONG.name, "TFLOP/s", tflops, ours)


# -- what the planner would choose ---------------------------------------------------------------------------


class Choice(NamedTuple):
    """What others chose, and what the planner puts first, both with our seconds and bytes. ``place``: that of theirs in
    the planner's order, from 1; ``ties``: how many it holds for as fast as the fastest; ``behind``: how much longer
    theirs takes than the fastest."""

    setup: published.Chosen
    theirs: Plan
    first: Plan
    place: int
    ties: int
    behind: float


PLAN_FIELDS = Plan._fields.index("program")  # the others are no text


def theirs_run(setup: published.Chosen, programs: dict[str, Any] | None = None) -> Plan:
    """Return what others chose, with our seconds and bytes."""
    search = Search(setup.model, replace(setup.cluster, gpus=setup.gpus), setup.batch, programs, **setup.given)
    return search.run(search.every.complete(setup.plan))


def choice(setup: published.Chosen, programs: dict[str, Any] | None = None) -> Choice:
    """Return what the planner makes of a set-up. What others chose is run if it is none of the ways that it tries."""
    cluster = replace(setup.cluster, gpus=setup.gpus)
    found = plan(setup.model, cluster, setup.batch, **setup.given, **(programs or {}))
    theirs = next((one for one in found.plans if one.choice == setup.plan.choice), None)
    theirs = theirs or theirs_run(setup, programs)
    place = 1 + sum(one.figures < theirs.figures for one in found.plans)  # of what plan gives, theirs is no part
    fastest, ties = min(one.seconds for one in found.plans), sum(map(found.ties, found.plans))
    return Choice(setup, theirs, found.best, place, ties, theirs.seconds / fastest - 1)


def choices_text(choices: Sequence[Choice]) -> str:
    """Return choices as a table of two lines each."""

    def row(what: str, one: Plan, then: str) -> str:
        mesh = f"{one.replicas} x {one.stages} x {one.tensor}"
        how = f"{one.name:11}  {mesh:11}  {one.chunks}  {one.micro_batch}  {one.recomputed:20}"
        return f"  {what:7}  {how}  {one.seconds:6.3g}  {show_bytes(one.bytes):>7}  {then}".rstrip()

    lines = [f"  {'':7}  {'program':11}  {'mesh':11}  v  b  {'recompute':20}  {'s':>6}  {'memory':>7}"]
    for each in choices:
        setup = each.setup
        lines.append(f"{setup.model.name}, {setup.gpus} x {setup.cluster.name}, {setup.batch} sequences")
        behind = f"number {each.place}; {100 * each.behind:.1f} % behind the fastest"
        lines += [row("theirs", each.theirs, behind), row("first", each.first, f"of {each.ties} that are equal")]
    return "\n".join(lines)


PAGE = Path(__file__).parent.parent / "docs" / "real-machines.md"
BEGINS, ENDS = "<!-- set-ups, made by `make papers` -->", "<!-- end of set-ups -->"
HEAD = (
    "model",
    "GPUs",
    "sequences",
    "they chose",
    "measured",
    "ours",
    "memory",
    "`plan` chooses",
    "ours",
    "memory",
    "source",
)


def choices_page(choices: Sequence[Choice]) -> str:
    """Return choices as a table of a page: what was measured, and what our machine says of theirs and of the plan's."""
    rows = [HEAD, ("---",) * len(HEAD)]
    for each in choices:
        setup, theirs, first = each.setup, each.theirs, each.first
        name, gpus = setup.model.name, f"{setup.gpus:,} x {setup.cluster.name}"
        measured = f"{setup.took:.3g} s"
        rest = "" if theirs.bytes <= setup.cluster.room else ", which does not fit"
        figures = [(_chosen(one), f"{one.seconds:.3g} s", show_bytes(one.bytes)) for one in (theirs, first)]
        figures[0] = (*figures[0][:2], figures[0][2] + rest)
        rows.append(
            (name, gpus, f"{setup.batch:,}", figures[0][0], measured, *figures[0][1:], *figures[1], setup.source)
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _chosen(one: Plan) -> str:
    """Return a way to train in words."""
    mesh, micro = f"{one.replicas} x {one.stages} x {one.tensor}", f"micro-batch {one.micro_batch}"
    chunks = f", {one.chunks} chunks" * (one.chunks > 1)
    shared = f", {one.context} share a sequence" * (one.context > 1)
    shared += f", {one.expert_parallel} share experts" * (one.expert_parallel > 1)
    return f"{one.name} {mesh}{chunks}{shared}, {micro}, recompute {one.recomputed}"


def between(page: str, begins: str, ends: str, table: str) -> str:
    """Return the text of a page with another table between two marks."""
    before, rest = page.split(begins)
    return f"{before}{begins}\n{table}\n{ends}{rest.split(ends)[1]}"


ERRORS_BEGIN, ERRORS_END = "<!-- errors, made by `make papers` -->", "<!-- end of errors -->"


def errors_page(sets: Sequence[foundry.Errors]) -> str:
    """Return how far sets are off as a table of a page, in percent."""
    rows: list[tuple[str, ...]] = [("set", "rows", "median", "worst", "median with its sign"), ("---",) * 5]
    for one in sets:
        figures = (f"{100 * one.median:.1f}", f"{100 * one.worst:+.0f}", f"{100 * one.signed:+.1f}")
        rows.append((one.name, f"{one.rows}", *figures))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


ONE_BEGINS, ONE_ENDS = "<!-- one H100, made by `make papers` -->", "<!-- end of one H100 -->"


def one_gpu() -> list[foundry.Errors]:
    """Return how far our prices of one H100 are off what was measured of one, set by set, and how far those of the
    H100 are whose parts of the peak were assumed."""
    found = measured.errors(measured.lines())
    for how in ("eager", "compiled"):
        off = [line.off for line in measured.layers(how, H100_DGX) if "bytes" not in line.what]
        found.append(foundry.errors(f"a layer, {how}, by the {H100_DGX.name} that is assumed", off))
    return found


def write_page(
    sets: Sequence[foundry.Errors], choices: Sequence[Choice], one: Sequence[foundry.Errors], path: Path = PAGE
) -> None:
    """Write all tables into the page on real machines."""
    page = between(path.read_text(encoding="utf-8"), BEGINS, ENDS, choices_page(choices))
    page = between(page, ONE_BEGINS, ONE_ENDS, errors_page(one))
    path.write_text(between(page, ERRORS_BEGIN, ERRORS_END, errors_page(sets)), encoding="utf-8")


# -- text, CSV and a picture -----------------------------------------------------------------------------------


def text(lines: Sequence[Line]) -> str:
    """Return lines as a table."""
    wide = max(len(line.name) for line in lines)
    rows = [f"{'':{wide}}  published       ours      off  " + "without" * any(line.without for line in lines)]
    for line in lines:
        off = "fitted" if line.fitted else "exact" if line.ours == line.published else f"{100 * line.residual:+.1f} %"
        without = "" if line.without is None else f"{line.without:9.3f}"
        figures = f"{line.published:9,.6g}  {line.ours:9,.4g}  {off:>7}{without}"
        rows.append(f"{line.name:{wide}}  {figures}  {line.unit}".rstrip())
    return "\n".join(rows)


def time_off(line: Line) -> float:
    """Return how much longer our step takes, as a part of the published one, whatever the unit of the line is."""
    return line.residual if line.unit == "s" else line.published / line.ours - 1


def room_text(fits: Sequence[Fit]) -> str:
    """Return how many set-ups fitted, and what we say, with the names of those of which we say otherwise."""
    lines = []
    for fitted, what in ((True, "ran"), (False, "needed more memory than a GPU has")):
        some = [each for each in fits if each.fitted == fitted]
        wrong = [f"{each.name}, {show_bytes(each.bytes)}" for each in some if each.fits != fitted]
        otherwise = "do not fit" if fitted else "fit"
        lines.append(
            f"  {len(some)} {what}; {len(wrong)} of them {otherwise} here{': ' * bool(wrong)}{'; '.join(wrong)}"
        )
    return "\n".join(lines)


def save(lines: Sequence[Line], folder: Path, choices: Sequence[Choice] = ()) -> None:
    """Write all lines as papers.csv, how far they are off as papers.svg, and choices as planner.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "planner.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["model", "gpus", "batch", "whose", *Plan._fields[:PLAN_FIELDS], "place", "behind"])
        for each in choices:
            setup = [each.setup.model.name, each.setup.gpus, each.setup.batch]
            table.writerow([*setup, "theirs", *each.theirs[:PLAN_FIELDS], each.place, f"{each.behind:.4f}"])
            table.writerow([*setup, "first", *each.first[:PLAN_FIELDS], 1, ""])
    with open(folder / "papers.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["table", "row", "unit", "published", "ours", "off", "without"])
        for line in lines:
            table.writerow(
                [
                    *line[:3],
                    line.published,
                    line.ours,
                    f"{line.residual:.4f}",
                    line.without or "",
                ]
            )
    picture([line for line in lines if line.table not in ("exact", "shown")]).save(folder / "papers.svg")


def main(arguments: Sequence[str]) -> None:
    """Print the tables, and write them into the folder that is named."""

    def said(what: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{what} ...", end="", file=sys.stderr, flush=True)

    done = [*exact()]
    print(f"Exactly as published\n\n{text(done)}\n")
    said("ratios")
    found = [*ratios()]
    print(f"Ratios: nothing is fitted. The last figure is what comes out without the idea\n\n{text(found)}\n")
    done += found
    of_page = [foundry.errors("ratios in which nothing is fitted", (line.residual for line in found))]
    print(
        "Seconds: one number for each stack is fitted on one row. Below each table: the worst of the other rows,\n"
        "for each row on which it could be fitted\n"
    )
    sets: list[foundry.Errors] = []
    for stack in stacks():
        part, rows, worst = seconds(stack, said)
        print(f"{stack.name}: {part:.3f} of the peak, fitted on {rows[stack.fitted].name}\n\n{text(rows)}\n")
        for row, off in zip(rows, worst, strict=True):
            print(f"  fitted on {row.name}: the worst is {100 * off:+.1f} %")
        print()
        done += rows
        sets.append(foundry.errors(stack.name, (time_off(row) for row in rows if not row.fitted)))
    of_page += sets
    said("LLM Foundry's rows")
    open_rows = [foundry.done(row) for row in foundry.rows()]
    sets += foundry.groups(open_rows)
    print(
        "How far off each set is, in percent of a step's time: the median without and with its sign, and the worst.\n"
        "Of the first three, without the row that is fitted; then LLM Foundry's, all, and parts of them\n\n"
        f"{foundry.text(sets)}\n"
    )
    said("one H100")
    one = one_gpu()
    print(f"One H100 that was measured for this course, in percent of what was measured\n\n{foundry.text(one)}\n")
    said("what fits")
    print(f"Does it fit?\n\n{room_text([*room(open_rows)])}\n")
    said("what is only shown")
    apart, eight, only_shown = [*shown_apart()], [*in_8_bits()], [*shown()]
    for gpu in ("H100", "H200"):
        rows = [time_off(line) for line in eight if gpu in line.name]
        of_page.append(foundry.errors(f"torchtitan, {gpu} in 8 bits, nothing fitted", rows))
    rows = [time_off(line) for line in only_shown if line.unit == "TFLOP/s"]
    of_page.append(foundry.errors("FSDP as announced in 2022, A100 40 GB, nothing fitted", rows))
    of_page += (foundry.errors(f"{line.name}, nothing fitted", [time_off(line)]) for line in apart)
    found = [*only_shown, *eight, *apart]
    print(f"Shown, without an aim\n\n{text(found)}\n")
    choices = []
    for setup in published.CHOSEN:
        said(f"the planner: {setup.model.name}")
        choices.append(choice(setup))
        if setup in published.NOT_FITTED:
            off = choices[-1].theirs.seconds / setup.took - 1
            of_page.append(foundry.errors(f"{setup.model.name} on {setup.gpus:,} GPUs, nothing fitted", [off]))
    print(
        "The planner: what others chose, and what it puts first, by our prices. The fastest is first,\n"
        f"unless it is near the limit of memory (replicas x stages x tensor, v chunks, b a micro-batch)\n\n"
        f"{choices_text(choices)}"
    )
    folder = Path(arguments[0]) if arguments else Path("dist")
    save([*done, *found], folder, choices)
    write_page(of_page, choices, one)


if __name__ == "__main__":
    main(sys.argv[1:])
