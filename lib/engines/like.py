"""A run beside what PyTorch does for the same puzzle at the same sizes, with the first difference marked.

What is compared, rank by rank, is the order in which work, collectives, sends and updates are started. Left out is what
the two have no common word for or what follows from the rest:

- loads, the loss, and sums of gradients, which PyTorch makes in other places without a call,
- receives: which of them a rank needs follows from its work, and PyTorch asks for some of them earlier,
- which micro-batches a rank works on: they are counted in the order in which it first does,
- the order of updates that follow each other: PyTorch's optimizer makes them at once,
- whether the gather of the next weight is called right before a forward or right after it. PyTorch calls it after, but
  a GPU only queues its forward and gathers beside it; here a rank has to call it before, for the same,
- the order of the weight halves of a stage's layers, which need nothing of each other, and whether the layers of a
  forward and of the backward that overlaps with it alternate, or come one stage after the other.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from ..basics.units import show_ticks
from ..learner.model import Model
from ..record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ..record.events import Event
from ..record.table import SEND, operation
from ..record.training import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, OVERLAPPED_WORD
from . import torch_order
from .torch_order import TORCH, UPDATE, Rank, Step

COLLECTIVES = (ALLGATHER.kind, SCATTERREDUCE.kind, ALLREDUCE.kind)
COMPARED = (*(row.kind for row in (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, UPDATE, SEND)), *COLLECTIVES)
AROUND = 5
"""Steps that are shown before and after the first difference."""


class Counterpart(NamedTuple):
    """What PyTorch has for a puzzle."""

    thing: str  # its name in PyTorch, and how it is used
    order: Callable[[Rank], list[Step]]
    at: Callable[[Model], Rank]
    collectives: bool = True  # whether they are compared
    both_ends: bool = False
    """Whether micro-batches come from both ends, to a rank that PyTorch fills from one. Then those of each layer are
    counted by themselves, and messages to ranks that are not among its members are left out."""


class Difference(NamedTuple):
    """Where a rank first does something else than PyTorch, and what each of them does there, if anything."""

    rank: int
    place: int
    yours: list[tuple[Step, int]]  # all steps of the rank, and where they stand in its log
    theirs: list[Step]
    why: str


def _among_all(turns: Callable[[Model], int]) -> Callable[[Model], Rank]:
    """Return a function that gives a rank among all of them, with so many micro-batches."""
    return lambda model: Rank(model.rank, tuple(range(model.RANKS)), model.LAYERS, turns(model))


_whole_batch = _among_all(lambda model: 1)
_every_rank = _among_all(lambda model: model.BATCHES // model.RANKS)  # each has its share of the micro-batches
_stages = _among_all(lambda model: model.BATCHES)  # all ranks work on each micro-batch


def _replicas(model: Model) -> Rank:
    place, turns = model.axis_index("shard"), model.BATCHES // model.RANKS
    return Rank(place, _axis(model, "shard"), model.LAYERS, turns, _axis(model, "replica"))


def _along(axis: str, other: str) -> Callable[[Model], Rank]:
    """Return a function that gives a rank among those of an axis, with a share of the micro-batches by the other."""
    return lambda own: Rank(own.axis_index(axis), _axis(own, axis), own.LAYERS, own.BATCHES // own.axis_size(other))


def _axis(model: Model, axis: str) -> tuple[int, ...]:
    return tuple(model.rank_at(**{axis: place}) for place in range(model.axis_size(axis)))


SHARDED = Counterpart("fully_shard on each layer and on the model", torch_order.fully_shard, _every_rank)
COUNTERPARTS = {
    "basic": Counterpart("backward() and the optimizer's step()", torch_order.plain, _whole_batch),
    "grad_accum": Counterpart("backward() for each micro-batch, then step()", torch_order.plain, _every_rank),
    "ddp": Counterpart("DistributedDataParallel, layers of 25 MiB and more", torch_order.ddp, _every_rank),
    "fsdp": SHARDED,
    "prefetch": SHARDED,
    "pipeline": Counterpart("ScheduleGPipe with one micro-batch", torch_order.gpipe, _whole_batch),
    "gpipe": Counterpart("ScheduleGPipe", torch_order.gpipe, _stages),
    "replica_fsdp": Counterpart(
        "fully_shard on a mesh of replicas and shards, with set_requires_all_reduce(False) before the last micro-batch",
        torch_order.fully_shard,
        _replicas,
    ),
    "one_f_one_b": Counterpart("Schedule1F1B", torch_order.one_f_one_b, _stages),
    "interleaved": Counterpart("ScheduleInterleaved1F1B", torch_order.interleaved, _stages),
    "breadth_first": Counterpart(
        "ScheduleLoopedBFS, collectives left out", torch_order.looped_bfs, _along("stage", "shard"), False
    ),
    "zero_bubble": Counterpart("ScheduleInterleavedZeroBubble, one layer a stage", torch_order.zero_bubble, _stages),
    "zbv": Counterpart("ScheduleZBVZeroBubble", torch_order.zbv, _stages),
    "dualpipe": Counterpart(
        "ScheduleDualPipeV on each half by itself", torch_order.dual_pipe_v, _along("place", "half"), False, True
    ),
}
CONTEXT = (
    "PyTorch's context_parallel (torch.distributed.tensor.experimental) takes the place of attention alone, and only "
    "of three kernels for CUDA: flash, efficient and cuDNN. Recordings here are made without a GPU, and there PyTorch "
    f"{TORCH} raises NotImplementedError: Operator aten._scaled_dot_product_flash_attention_for_cpu.default does not "
    "have a sharding strategy registered."
)
"""What PyTorch has for a sequence that is cut, and why it is not recorded: a test asks the torch that is installed."""
OVER_LINKS = "PyTorch leaves it to NCCL how a sum goes over the links, and starts one all-reduce."
NONE = {
    "wsdp": "PyTorch has nothing that divides weights and states and leaves gradients whole: see puzzle 4.",
    "pipeline_fsdp": "PyTorch has a schedule and fully_shard for this. Puzzles 4 and 6 compare them, one at a time.",
    "zero1": "PyTorch's ZeroRedundancyOptimizer divides states by whole layers: one rank updates and broadcasts each.",
    "zero2": "PyTorch has none. fully_shard(..., reshard_after_forward=False) has only shards between steps.",
    "checkpointing": "torch.utils.checkpoint starts nothing to compare: a forward more happens inside backward.",
    "tensor_parallel": "PyTorch's parallelize_module cuts each matrix by itself; what it starts is not recorded here.",
    "sequence_parallel": "PyTorch's SequenceParallel is for single modules, and what it starts is not recorded here.",
    "lora": "PyTorch itself has no adapters: PEFT adds them. What fully_shard starts then is not recorded here.",
    "buckets": "PyTorch's DDP fills its buckets by bytes, 1 MiB first and then 25: see tests/torch_truth/TABLE.md.",
    **dict.fromkeys(("hierarchical", "ring_allreduce", "small_messages"), OVER_LINKS),
    "hpz": "fully_shard(..., reshard_after_forward=4) does this on nodes of 4. What it starts is not recorded here.",
    "offload": "PyTorch's CPUOffloadPolicy has the weights on the processor, too, and updates after all backwards.",
    "compose": "PyTorch has this only put together from parts. Puzzles 9, 14 and 17 say which of these are compared.",
    **dict.fromkeys(("context_parallel", "ring_attention"), CONTEXT),
    "expert_parallel": "PyTorch itself has no layer with experts. What others build of it is not recorded here.",
    "two_batch_overlap": "PyTorch itself has no layer with experts. DualPipe, a program of its own, does this.",
    "token_mean": "DDP takes the mean over ranks. To weight by tokens is left to the loss, and starts nothing else.",
    "muon": "torch.optim.Muon takes whole matrices. Who has which, and how they travel, is left to the program.",
    "sends_that_wait": "It is puzzle 13's schedule. How links carry its messages is left to NCCL or gloo.",
    "weight_sync": "PyTorch sends no weights from trainers to generators: another library does, torchstore.",
}
"""Puzzles that PyTorch has no counterpart for, or none that was recorded, and why."""

UPDATES_LAST = "PyTorch's optimizer begins when the whole backward pass is done and every sum has arrived."
GATHERED_AHEAD = "FSDP2 issues the next all-gather before this backward: the weight comes while the rank computes."
GATHERED_BY_NOW = "FSDP2 has issued the next all-gather by now, before the sum of this gradient."
NEVER_WHOLE = "FSDP2 never has a whole summed gradient: it reduces each to the rank's shard."
BACKWARD_FIRST = "PyTorch's schedule does a backward first, and holds one micro-batch less."
WEIGHT_LATER = "PyTorch's schedule does the weight's half of a backward later."
IN_HALVES = "PyTorch's schedule does this backward in two halves: what others wait for is first."
WHY = {
    (ALLGATHER.kind, BACKWARD.kind): GATHERED_AHEAD,
    (ALLGATHER.kind, SCATTERREDUCE.kind): GATHERED_BY_NOW,
    (SCATTERREDUCE.kind, ALLGATHER.kind): "FSDP2 issues the sum of this gradient first: only one gather is ahead.",
    (SCATTERREDUCE.kind, ALLREDUCE.kind): NEVER_WHOLE,
    (BACKWARD.kind, UPDATE.kind): UPDATES_LAST,
    (BACKWARD.kind, BACKWARD.kind): "PyTorch's schedule takes another layer or micro-batch first.",
    (BACKWARD.kind, FORWARD.kind): BACKWARD_FIRST,
    (BACKWARD_INPUT.kind, FORWARD.kind): BACKWARD_FIRST,
    (BACKWARD_WEIGHT.kind, FORWARD.kind): "PyTorch's schedule does the weight's half of a backward first.",
    (FORWARD.kind, BACKWARD_WEIGHT.kind): WEIGHT_LATER,
    (BACKWARD_INPUT.kind, BACKWARD_WEIGHT.kind): WEIGHT_LATER,
    (BACKWARD_INPUT.kind, BACKWARD.kind): IN_HALVES,
}
"""What a difference means, by what PyTorch starts and what the learner does."""


def first_difference(models: Sequence[Model], other: Counterpart) -> Difference | None:
    """Return where a run first differs from PyTorch, on the lowest rank that does, or None if it does not."""
    for model in models:
        at = other.at(model)
        yours = steps_of(model, other.collectives, at if other.both_ends else None)
        theirs = [step for step, _ in _sorted_weight_halves((step, 0) for step in other.order(at))]
        mine = [step for step, _ in yours]
        if mine != theirs:
            shared = min(len(mine), len(theirs))
            place = next((at for at in range(shared) if mine[at] != theirs[at]), shared)
            return Difference(model.rank, place, yours, theirs, _why(theirs[place:], mine[place:]))
        if other.collectives and (tick := _too_early(model.log)) is not None:
            why = f"The first update begins at tick {show_ticks(tick)}, while a sum is on its way. {UPDATES_LAST}"
            return Difference(model.rank, mine.index(UPDATE), yours, theirs, why)
    return None


def steps_of(model: Model, collectives: bool = True, of_half: Rank | None = None) -> list[tuple[Step, int]]:
    """Return what a rank has started, as far as it is compared, each step with its place in the log. ``of_half``: the
    rank among those of its half, where micro-batches come from both ends (see ``Counterpart.both_ends``)."""
    turns = defaultdict[int | None, dict[frozenset[int], int]](dict)
    steps: list[tuple[Step, int]] = []
    for at, event in enumerate(model.log):
        if event.kind not in COMPARED or (event.kind in COLLECTIVES and not collectives):
            continue
        if of_half is not None and event.kind == SEND.kind and not {*event.group} <= {*of_half.members}:
            continue
        step = _step(event, turns[None if of_half is None else event.layer])
        if step == UPDATE and steps and steps[-1][0] == UPDATE:
            continue
        place = len(steps) if of_half is None else _place_in_pair(steps, step, of_half, model.log)
        steps.insert(place, (step, at))
        before = steps[-2][0] if len(steps) > 1 else UPDATE
        if (step.kind, before.kind) == (FORWARD.kind, ALLGATHER.kind) and before.layers == (step.layers[0] + 1,):
            steps[-2:] = reversed(steps[-2:])  # the next layer's weight was gathered right before this forward
    return _sorted_weight_halves(steps)


def _place_in_pair(steps: Sequence[tuple[Step, int]], step: Step, at: Rank, log: Sequence[Event]) -> int:
    """Return where a step belongs: a forward, whose stage has begun before backwards that overlap with it, right after
    the layer below; any other at the end."""
    place, share = len(steps), max(1, at.layers // (2 * len(at.members)))
    if step.kind == FORWARD.kind and step.layers[0] % share:
        while place and OVERLAPPED_WORD in log[steps[place - 1][1]].words:
            place -= 1
        if place and steps[place - 1][0] == step._replace(layers=(step.layers[0] - 1,)):
            return place
    return len(steps)


def _sorted_weight_halves(steps: Iterable[tuple[Step, int]]) -> list[tuple[Step, int]]:
    """Return steps in which weight halves of one micro-batch that follow each other come from the top layer down."""
    found = list[tuple[Step, int]]()
    for _, run in groupby(steps, key=lambda one: (one[0].kind, one[0].turn)):
        each = [*run]
        halves = each[0][0].kind == BACKWARD_WEIGHT.kind
        found += sorted(each, key=lambda one: one[0].layers, reverse=True) if halves else each
    return found


def _step(event: Event, turns: dict[frozenset[int], int]) -> Step:
    if event.kind == UPDATE.kind:
        return UPDATE
    layers = tuple(sorted(event.layers)) if event.layers else () if event.layer is None else (event.layer,)
    if event.kind == SEND.kind and event.tensor == "ActivationGrad":
        layers = (layers[0] + 1,)  # the gradient of a layer's output is that of the next layer's input
    turn = None if event.kind in COLLECTIVES else turns.setdefault(event.batches, len(turns))
    return Step(event.kind, layers, turn, event.group)


def _too_early(log: Sequence[Event]) -> float | None:
    """Return the tick of an update that begins before all sums of gradients have arrived, or None."""
    updates = [event.start for event in log if event.kind == UPDATE.kind]
    sums = [event.end for event in log if event.kind in COLLECTIVES and event.tensor == "WeightGrad"]
    return updates[0] if updates and sums and updates[0] < max(sums) else None


def _why(theirs: Sequence[Step], yours: Sequence[Step]) -> str:
    if not theirs or not yours:
        return f"{'Here' if yours else 'PyTorch'} goes on, and {'PyTorch' if yours else 'this rank'} is done."
    its, mine = theirs[0], yours[0]
    if its.kind == ALLGATHER.kind and mine.kind in (ALLGATHER.kind, BACKWARD.kind) and its.layers >= mine.layers:
        return "By default FSDP2 frees the last layer after its forward, and gathers it again at once."
    if (its.kind, mine.kind) in WHY:
        return WHY[its.kind, mine.kind]
    words = [f"{step} ({operation(step.kind).word})" for step in (its, mine)]
    return f"PyTorch starts {words[0]} here, and this rank {words[1]}."


def side_by_side(name: str, models: Sequence[Model], other: Counterpart, found: Difference | None) -> str:
    """Return a run beside PyTorch's, in words, with the first difference marked."""
    head = f"{name} on {len(models)} ranks beside PyTorch {TORCH}: {other.thing}"
    if found is None:
        return f"{head}\nIdentical, on every rank: the same work, collectives and sends, started in the same order."
    yours = [step for step, _ in found.yours]
    places = [at for _, at in found.yours[found.place : found.place + 1]]
    lines = [f"There stands {line}" for at in places if (line := models[found.rank].lines()[at]) is not None]
    rows = []
    first, end = max(0, found.place - AROUND), found.place + AROUND + 1
    for at in range(first, min(end, max(len(yours), len(found.theirs)))):
        both = [str(steps[at]) if at < len(steps) else "" for steps in (yours, found.theirs)]
        rows.append(f"{at + 1:6} {'>' if at == found.place else ' '} {both[0]:8} {both[1]}".rstrip())
    above = [head, f"Rank {found.rank} differs first at its step {found.place + 1}.", *lines]
    table = [f"         {'yours':8} PyTorch", *rows]
    return "\n".join([*above, "", *table, "", found.why, _counts(yours, found.theirs)])


def _counts(yours: Sequence[Step], theirs: Sequence[Step]) -> str:
    """Return how often each kind of step is started, where that differs. Updates are made when they can be."""
    mine, its = (Counter(step.kind for step in steps if step != UPDATE) for steps in (yours, theirs))
    apart = [kind for kind in mine | its if mine[kind] != its[kind]]
    if not apart:
        return "Apart from the order it is the same: each kind of step as often as in PyTorch."
    counts = [f"{operation(kind).word}: {mine[kind]} here, {its[kind]} in PyTorch" for kind in apart]
    return "On this rank in all: " + "; ".join(counts) + "."
