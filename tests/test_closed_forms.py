"""What the field's formulas say of the techniques of puzzles 9 and up, and what they take here, at many sizes."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise
from math import prod
from typing import Any

import pytest

from lib import Cost, Model, RingCost, Run, run
from lib.basics.units import exact
from lib.course.specs import cost_named
from lib.grading.submission import load
from lib.machine.mesh import Mesh
from lib.record.kinds import MEMORY_KINDS
from lib.record.labels import of_batches
from solutions.build.sources.files import ROOT

WEIGHT = Cost().weight_elements
HALVES = Cost(allreduce=0.6, allreduce_across=3.0)
RANKS = (2, 3, 4, 8)
SHARES = {"Weight": 2, "OptState": 12}
"""Bytes of each parameter."""


@cache
def program(file: str, name: str) -> Callable[[Model], Any]:
    text = (ROOT / "solutions" / f"{file}.py").read_text(encoding="utf-8")
    return load(f"{file}.py", text)[0][name]  # type: ignore[no-any-return]


def sent(done: Run, rank: int = 0) -> Fraction:
    """How many elements a rank sends in collectives, if each is carried out as a ring: of n ranks, (n - 1)/n of the
    whole tensor, and twice that for an all-reduce."""
    total = Fraction(0)
    for event in done.models[rank].log:
        if event.group and event.kind in ("allgather", "scatterreduce", "allreduce"):
            n = len(event.group)
            whole = n * event.elements if event.kind == "allgather" else event.elements
            total += (2 if event.kind == "allreduce" else 1) * Fraction(n - 1, n) * whole
    return total


def at_most(done: Run, kind: str, rank: int = 0) -> Fraction:
    """The most elements of a kind that a rank holds at any time: "weights", "opt_states", ..."""
    place = MEMORY_KINDS.index(kind)
    return Fraction(max(event.held[place] for event in done.models[rank].log))


def kept(done: Run, kind: str, rank: int = 0) -> Fraction:
    """The elements of tensors of a kind that a rank has at its end: "Weight", "OptState", ..."""
    sizes = [Cost().elements(one.labels) for one in done.final_states[rank].kept if one.labels.kind == kind]
    return Fraction(sum(sizes))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("layers", [1, 6])
def test_zero1_sends_what_data_parallel_sends_and_divides_the_states(ranks: int, layers: int) -> None:
    """4 + 12/n of the 16 bytes of a parameter (ZeRO, arXiv 1910.02054), and the volume of an all-reduce."""
    size = {"ranks": ranks, "layers": layers, "batches": 2 * ranks, "cost": HALVES}
    plain, zero1 = (run(program("p09_zero1", name), **size) for name in ("ddp_twice", "zero1"))
    whole = layers * WEIGHT
    assert sent(zero1) == sent(plain) == 2 * Fraction(ranks - 1, ranks) * whole
    assert kept(zero1, "Weight") == at_most(zero1, "weight_grads") == whole
    assert at_most(zero1, "opt_states") * ranks == at_most(plain, "opt_states") == whole
    assert zero1.time == plain.time


PIPELINES = [(p, m) for p in (2, 3, 4, 6) for m in (p, p + 1, 2 * p, 13)]
HALVES_AT = [(Fraction(1, 2), Fraction(1, 2)), (1, 1), (1, Fraction(1, 4)), (Fraction(3, 4), Fraction(1, 2))]


@pytest.mark.parametrize(("p", "m"), PIPELINES)
@pytest.mark.parametrize(("b", "w"), HALVES_AT)
def test_zero_bubble_takes_what_zb_h1_takes_and_holds_p_micro_batches(p: int, m: int, b: Any, w: Any) -> None:
    """m(F + B + W) + (p - 1)(F + B - W) for W up to F (Qi et al., arXiv 2401.10241), and the update."""
    free = Cost(send=0, send_across=0, receive=0, backward=b + w, backward_input=b, backward_weight=w)
    done = run(program("p16_zero_bubble", "zb_h1"), p, p, m, cost=free)
    whole = run(program("p16_zero_bubble", "never_split"), p, p, m, cost=free)
    assert done.time == m * (1 + b + w) + (p - 1) * (1 + b - w) + Fraction(1, 2)
    assert whole.time == m * (1 + b + w) + (p - 1) * (1 + b + w) + Fraction(1, 2)
    for rank in range(p):
        ahead = [event.batches for event in done.models[rank].log if event.kind in ("forward", "backward_weight")]
        alive: set[int] = set()
        most = 0
        for batches in ahead:
            alive ^= batches  # comes with its forward, goes with the half for its weight
            most = max(most, len(alive))
        assert most == min(p, m)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("each", [1, 2, 5])
def test_zero2_keeps_a_piece_of_the_gradients_and_sends_one_more_than_it_has_micro_batches(
    ranks: int, each: int
) -> None:
    """2 + 14/n of the 16 bytes of a parameter, besides one layer's gradient on its way; (K + 1) times the model."""
    layers = 5
    done = run(program("p10_zero2", "zero2"), ranks, layers, each * ranks, cost=HALVES)
    whole = layers * WEIGHT
    assert sent(done) == (each + 1) * Fraction(ranks - 1, ranks) * whole
    assert kept(done, "Weight") == at_most(done, "opt_states") * ranks == whole
    one_layer = WEIGHT - (Fraction(WEIGHT, ranks) if each == 1 else 0)  # in its place there is no piece of a sum yet
    assert at_most(done, "weight_grads") == Fraction(whole, ranks) + one_layer
    first_update = next(event for event in done.models[0].log if event.kind == "update")
    assert first_update.held[MEMORY_KINDS.index("weight_grads")] * ranks == whole


PRICES = [
    # forward, backward, collective: a forward hides a gather, and a backward a gather and a sum
    (1, 2, Fraction(4, 5)),
    (1, 2, 1),
    (1, 1, Fraction(3, 10)),
    (2, 3, Fraction(3, 2)),
    (Fraction(1, 2), 2, Fraction(1, 2)),
]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("layers", [1, 2, 3, 6])
@pytest.mark.parametrize(("forward", "backward", "collective"), PRICES)
def test_prefetching_hides_all_but_what_nothing_is_computed_beside(
    ranks: int, layers: int, forward: Fraction, backward: Fraction, collective: Fraction
) -> None:
    """With c <= F and 2c <= B: the first gather of each pass and the last sum. The bound: the first gather alone."""
    cost = Cost(forward=forward, backward=backward, collective=collective)
    size = {"ranks": ranks, "layers": layers, "batches": ranks, "cost": cost}
    names = ("fsdp_blocking", "prefetch", "prefetch_in_21_8")
    blocking, prefetch, best = (run(program("p12_prefetch", name), **size) for name in names)
    update = Fraction(1, 2)
    computing = layers * (forward + backward + update)
    assert Fraction(str(blocking.time)) == computing + 3 * layers * collective
    assert Fraction(str(prefetch.time)) == computing + 3 * collective
    beside_the_last_sum = min(layers - 1, 2) * update
    assert Fraction(str(best.time)) == computing + collective + max(0, collective - beside_the_last_sum)
    assert sent(blocking) == sent(prefetch) == 3 * Fraction(ranks - 1, ranks) * layers * WEIGHT


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("layers", [3, 6, 12])
def test_prefetching_holds_two_whole_weights_and_one_whole_gradient(ranks: int, layers: int) -> None:
    """What PyTorch's documentation says of BACKWARD_PRE, beside the shards and the activations."""
    cost = Cost(backward=2, collective=0.8)
    done = run(program("p12_prefetch", "prefetch"), ranks=ranks, layers=layers, batches=ranks, cost=cost)
    shard, activation = Fraction(WEIGHT, ranks), Fraction(WEIGHT, 2)
    shards = 2 * layers * shard  # of the weights and of the states
    activations = (layers - 1 + 1) * activation  # without that of the highest layer, and a gradient
    assert done.memory == shards + 2 * WEIGHT + (WEIGHT + shard) + activations
    assert at_most(done, "in_flight") == 2 * WEIGHT + shard


def in_flight(done: Run, rank: int, first: bool = False) -> int:
    """How many forwards a rank has done, at most, whose backwards it has not. ``first``: of its lowest layer only."""
    now = most = 0
    log = [event for event in done.models[rank].log if event.kind in ("forward", "backward")]
    lowest = min(event.layer for event in log)
    for event in log:
        if event.layer == lowest or not first:
            now += 1 if event.kind == "forward" else -1
            most = max(most, now)
    return most


def by_turns(most: str, hidden: str = "") -> Callable[[Model], Any]:
    """Micro-batches through a pipeline, with so many forwards first."""
    return partial(program("p13_one_f_one_b", "taking_turns"), most=program("p13_one_f_one_b", most), hidden=hidden)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("batches", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize(("forward", "backward", "share"), [(1, 1, 1), (1, 2, 2), (Fraction(3, 2), Fraction(1, 2), 1)])
def test_on_free_links_1f1b_takes_the_time_of_gpipe_with_fewer_in_flight(
    ranks: int, batches: int, forward: Fraction, backward: Fraction, share: int
) -> None:
    """(m + p - 1)(F + B) of a stage and the update, for both; m in flight on every rank, or min(p - r, m) on rank r."""
    cost = Cost(forward=forward, backward=backward, send=0, receive=0)
    size = {"ranks": ranks, "layers": ranks * share, "batches": batches, "cost": cost}
    takes = (batches + ranks - 1) * (forward + backward) * share + share * Fraction(1, 2)
    everything = [batches] * ranks
    stairs = [min(ranks - rank, batches) for rank in range(ranks)]
    for fn, expected in (
        (program("p06_gpipe", "gpipe"), everything),
        (by_turns("all_of_them"), everything),
        (program("p13_one_f_one_b", "one_f_one_b"), stairs),
        (by_turns("just_enough"), stairs),
    ):
        done = run(fn, **size)
        assert Fraction(str(done.time)) == takes
        assert [in_flight(done, rank, first=True) for rank in range(ranks)] == expected


LINKS = [(Fraction(1, 5), Fraction(1, 5)), (Fraction(1, 10), 0), (Fraction(1, 2), Fraction(1, 2))]
"""Ticks to send and to receive: a message there and one back take no longer than a forward and a backward."""


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
@pytest.mark.parametrize("batches", [1, 3, 8, 24])
@pytest.mark.parametrize(("send", "receive"), LINKS)
def test_two_more_than_the_next_rank_hide_all_messages_but_the_first_and_the_last(
    ranks: int, batches: int, send: Fraction, receive: Fraction
) -> None:
    """Eager 1F1B, 2(p - r) - 1 in flight (arXiv 2211.05322), meets the bound of one piece a rank."""
    cost = Cost(send=send, receive=receive)
    size = {"ranks": ranks, "layers": ranks, "batches": batches, "cost": cost}
    done = run(by_turns("twice_as_many", "sends and receives"), **size)
    bound = 2 * (ranks - 1) * (1 + send + receive) + 2 * batches + Fraction(1, 2)
    assert Fraction(str(done.time)) == bound
    assert [in_flight(done, rank) for rank in range(ranks)] == [
        min(2 * (ranks - rank) - 1, batches) for rank in range(ranks)
    ]


# -- pipelines ----------------------------------------------------------------------------------------------

FREE = {"send": 0, "receive": 0}
PIPELINES = [
    (ranks, chunks, ranks * rounds) for ranks in (2, 3, 4, 6) for chunks in (1, 2, 3, 4) for rounds in (1, 2, 3)
]
"""Ranks, chunks of layers on each, and micro-batches."""


def sends(done: Run, rank: int) -> int:
    return sum(event.kind == "pass_to" for event in done.models[rank].log)


@pytest.mark.parametrize(("forward", "backward"), [(1, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize(("ranks", "chunks", "batches"), PIPELINES)
def test_interleaved_stages_divide_the_bubble_and_what_is_in_flight_is_megatrons(
    ranks: int, chunks: int, batches: int, forward: int, backward: int
) -> None:
    """(m + (p - 1)/v)(F + B), with F and B of all of a rank's layers, and updates (arXiv 2104.04473). In flight are
    min(m v, 2(p - 1 - r) + (v - 1)p + 1) chunks. Each goes v times round the ring."""
    cost = Cost(forward=forward, backward=backward, **FREE)
    size = {"ranks": ranks, "layers": ranks * chunks, "batches": batches}
    done = run(program("p14_interleaved", "interleaved"), **size, cost=cost)
    done.check()
    of_a_rank = chunks * (forward + backward)
    assert done.time == (batches + Fraction(ranks - 1, chunks)) * of_a_rank + Fraction(chunks, 2)
    for rank in range(ranks):
        most = 2 * (ranks - 1 - rank) + (chunks - 1) * ranks + 1
        assert in_flight(done, rank) == min(batches * chunks, most)
        ends = rank in (0, ranks - 1)
        assert sends(done, rank) == (2 * chunks - ends) * batches
    if batches >= 2 * ranks:  # more than 1F1B's p v layers, by the factor of arXiv 2205.05198
        assert in_flight(done, 0) == ranks * chunks * (1 + Fraction(ranks - 1, ranks * chunks))


RINGS = [
    (stages, shards, chunks, each)
    for stages, shards in ((2, 2), (3, 2), (4, 2), (2, 3), (4, 1))
    for chunks in (1, 2, 3)
    for each in (stages, stages + 1, 3 * stages)
]
"""Stages, shards, layers of a stage, and micro-batches of a pipeline, at least as many as stages."""


def ring(stages: int, shards: int, chunks: int, each: int) -> dict[str, Any]:
    mesh = {"stage": stages, "shard": shards}
    return {"ranks": stages * shards, "layers": stages * chunks, "batches": shards * each, "mesh": mesh}


def meetings(done: Run, rank: int, layer: int) -> tuple[int, int]:
    """How many gathers and how many reduce-scatters of a layer a rank takes part in."""
    kinds = [event.kind for event in done.models[rank].log if event.layer == layer]
    return kinds.count("allgather"), kinds.count("scatterreduce")


@pytest.mark.parametrize(("forward", "backward"), [(1, 1), (1, 2)])
@pytest.mark.parametrize(("stages", "shards", "chunks", "each"), RINGS)
def test_breadth_first_has_a_small_bubble_and_gathers_a_layer_twice(
    stages: int, shards: int, chunks: int, each: int, forward: int, backward: int
) -> None:
    """(m + (p - 1)/v)(F + B): a bubble of (p - 1)/(v m). Two gathers and one reduce-scatter of each layer, however many
    micro-batches there are; and m v chunks in flight (arXiv 2211.05953)."""
    cost = Cost(forward=forward, backward=backward, update=0, collective=0, **FREE)
    done = run(program("p15_breadth_first", "breadth_first"), **ring(stages, shards, chunks, each), cost=cost)
    done.check()
    work = each * chunks * (forward + backward)
    assert done.time == work * (1 + Fraction(stages - 1, chunks * each))
    for rank in range(stages * shards):
        mine = range(rank // shards, stages * chunks, stages)
        assert {meetings(done, rank, layer) for layer in mine} == {(2, 1)}
        assert in_flight(done, rank) == each * chunks
        assert sends(done, rank) == (2 * chunks - (rank // shards in (0, stages - 1))) * each


# -- activation checkpointing -------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 3, 5, 7, 12, 16, 24, 36])
@pytest.mark.parametrize("batches", [1, 3])
def test_what_is_kept_inside_a_layer_is_not_computed_again(layers: int, batches: int) -> None:
    """A layer of GPT-3 takes 114sbh, 34sbh without the scores of attention, 2sbh for its input (arXiv 2205.05198).
    At the peak is what the lower layers keep, and all of the last, whatever that keeps."""
    cost = cost_named("inner_activations")
    size = {"layers": layers, "batches": batches, "cost": cost}
    inp = cost.activation_elements * batches
    assert (56 + 1) * 2 == 114 and (16 + 1) * 2 == 34  # in sbh, with the input
    assert (cost.saved_elements, cost.saved_selective_elements) == (56 * inp // batches, 16 * inp // batches)
    training = program("p11_checkpointing", "training")
    below, half = layers - 1, layers // 2
    kept = {
        "keep_nothing": (layers * Fraction(1), 0),
        "keep_selectively": (layers * Fraction(3, 100), 16 * below),
        "keep_everything": (Fraction(0), 56 * below),
        "last_one_free": ((below - half) + half * Fraction(3, 100), 16 * half),
    }
    if layers % 2 == 0:
        kept["checkpointing_in_47_18"] = kept["last_one_free"]
    for name, (again, elsewhere) in kept.items():
        done = run(program("p11_checkpointing", name), **size)
        done.check()
        assert done.time == pytest.approx(float(batches * (3 * layers + again)) + layers / 2, abs=1e-9)
        if name == "checkpointing_in_47_18":
            continue
        peak = 2 * layers * WEIGHT + inp * (layers + 1 + 56 + elsewhere)
        assert done.memory == max(peak, 2 * layers * WEIGHT + WEIGHT + inp), name  # or the first update
    for layer in range(layers):  # of one layer alone: whatever it keeps, the last takes no more room at the peak
        done = run(partial(training, keep=lambda at, _, only=layer: "all" if at == only else None), **size)
        peak = 2 * layers * WEIGHT + inp * (layers + 1 + 56 * (1 + (layer < below)))
        assert done.memory == max(peak, 2 * layers * WEIGHT + WEIGHT + inp)


DEEP = [4, 5, 9, 13, 16, 25, 36, 37, 40, 64]


def most_inputs(layers: int, every: int) -> int:
    """The inputs and the gradient that are in memory while a segment is worked on, at most: its own, and the
    checkpoints before it."""
    firsts = range(0, layers, every)
    return max(place + 1 + min(every, layers - first) for place, first in enumerate(firsts))


@pytest.mark.parametrize("layers", DEEP)
def test_a_checkpoint_every_so_many_layers(layers: int) -> None:
    """L/k + k activations, at best 2 sqrt(L), for L - ceil(L/k) forwards (Chen et al., arXiv 1604.06174)."""
    inp = 16 * Cost().activation_elements
    cost = Cost(backward=2, activation_elements=inp)
    figures = {}
    for every in range(1, layers + 1):
        fn = partial(program("p11_checkpointing", "across_layers"), every=every)
        done = run(fn, layers=layers, cost=cost)
        done.check()
        checkpoints = -(-layers // every)
        assert done.time == 3 * layers + (layers - checkpoints) + layers / 2
        figures[every] = most_inputs(layers, every)
        assert done.memory == 2 * layers * WEIGHT + figures[every] * inp
        if layers % every == 0:
            assert figures[every] == checkpoints + every
    root = round(layers**0.5)
    if root**2 == layers:
        assert figures[root] == min(figures.values()) == 2 * root


TENSOR = [(t, layers) for t in (2, 3, 4, 8) for layers in (1, 2, 5)]
ACTIVATION = Cost().activation_elements


@pytest.mark.parametrize(("t", "layers"), TENSOR)
def test_tensor_parallel_divides_work_weights_and_states_and_adds_up_2l_minus_1_times(t: int, layers: int) -> None:
    """Forward and backward take 1/t each, and there is an all-reduce in each but for the gradient of the first input:
    Shoeybi and others, "Megatron-LM", arXiv 1909.08053."""
    size = {"ranks": t, "layers": layers, "batches": 1}
    done, overlapped = (
        run(program("p17_tensor_parallel", name), **size) for name in ("tensor_parallel", "tensor_parallel_overlap")
    )
    price, update = Fraction(3, 10), Fraction(1, 2)
    work = Fraction(2 * layers, t)
    assert done.time == float(work + (2 * layers - 1) * price + layers * update)
    assert overlapped.time == float(work + layers * price + layers * update)  # half of the sums are under updates
    for rank in range(t):
        log = done.models[rank].log
        assert sum(event.kind == "allreduce" for event in log) == 2 * layers - 1
        assert {event.kind for event in log if event.tensor} == {"allreduce"}
        assert sent(done, rank) == 2 * Fraction(t - 1, t) * (2 * layers - 1) * ACTIVATION
        for kind in ("Weight", "OptState"):
            assert kept(done, kind, rank) == Fraction(layers * WEIGHT, t)
        for store in ("weights", "opt_states"):
            assert at_most(done, store, rank) == Fraction(layers * WEIGHT, t)
        assert at_most(done, "weight_grads", rank) == Fraction(WEIGHT, t)
        assert at_most(done, "activations", rank) == (layers + 1) * ACTIVATION  # these are not divided


MESHES = [(2, 2, 2), (2, 4, 2), (3, 2, 4), (2, 3, 3), (1, 2, 3), (1, 1, 1)]


@pytest.mark.parametrize(("replicas", "shards", "t"), MESHES)
@pytest.mark.parametrize(("layers", "each"), [(1, 1), (3, 2)])
def test_replica_fsdp_of_tensor_parallel_pieces_divides_by_all_axes(
    replicas: int, shards: int, t: int, layers: int, each: int
) -> None:
    """Weights over shard and tensor, states over all three, as in issue 325 of Levanter; what each axis sends."""
    mesh, pieces = {"replica": replicas, "shard": shards, "tensor": t}, shards * t
    size = {"ranks": replicas * pieces, "layers": layers, "batches": each * replicas * shards, "mesh": mesh}
    done = run(program("p17_tensor_parallel", "replica_fsdp_tensor"), **size, node_size=pieces)
    done.check()
    for rank, model in enumerate(done.models):
        assert kept(done, "Weight", rank) == Fraction(layers * WEIGHT, pieces)
        assert kept(done, "OptState", rank) == Fraction(layers * WEIGHT, pieces * replicas)
        for layer in range(layers):
            of_weight = Fraction(1, pieces)
            assert Fraction(len(model.weights[layer].shards), model.weights[layer].total) == of_weight
        groups = {event.group for event in model.log if event.kind == "allreduce"}
        assert groups <= {tuple(range(rank // t * t, rank // t * t + t))}  # neighbors, in one box
    whole = Fraction(shards - 1, shards) * Fraction(layers * WEIGHT, t)
    across = 2 * Fraction(replicas - 1, replicas) * Fraction(layers * WEIGHT, pieces)
    added = 2 * Fraction(t - 1, t) * (2 * layers - 1) * ACTIVATION
    assert sent(done) == 3 * each * whole + across + each * added


def volume(done: Run, until_loss: bool, kind: str, rank: int = 0) -> int:
    """How many collectives of a kind a rank takes part in before the loss, or after it."""
    log = list(done.models[rank].log)
    at = [event.kind for event in log].index("loss")
    return sum(event.kind == kind for event in (log[:at] if until_loss else log[at:]))


LONGER = 4 * ACTIVATION
ACTIVATIONS = MEMORY_KINDS.index("activations")


@pytest.mark.parametrize(("t", "layers"), TENSOR)
def test_sequence_parallel_sends_one_gather_more_a_layer_and_keeps_a_piece(t: int, layers: int) -> None:
    """Korthikanti and others, arXiv 2205.05198: each all-reduce is its two halves, and inputs are gathered again in the
    backward pass. (The forward pass has one gather more as well, that of the first input, which a program that keeps
    whole inputs does not need.)"""
    names = ("tensor_parallel_long", "sequence_parallel", "whole_inputs_kept")
    prices = (Cost(activation_elements=LONGER, allreduce=0.6), RingCost(activation_elements=LONGER))
    for cost in prices:
        plain, sliced, kept_whole = (
            run(program("p18_sequence_parallel", name), t, layers, 1, cost=cost) for name in names
        )
        labels, group = of_batches("Activation", 1, layers, frozenset({0}), 1), Mesh(t).group(0, None)
        kinds = ("allreduce", "scatterreduce", "allgather")
        both, add, join = (Fraction(cost.meeting(kind, labels, LONGER, group)) / cost.per_tick for kind in kinds)
        assert both == add + join
        assert sliced.time == pytest.approx(float(Fraction(str(plain.time)) + (layers + 1) * join), abs=1e-9)
        assert kept_whole.time == pytest.approx(plain.time, abs=1e-9)
        once = Fraction(t - 1, t) * LONGER
        assert sent(plain) == 2 * (2 * layers - 1) * once
        assert sent(sliced) == sent(plain) + (layers + 1) * once
        assert (volume(plain, True, "allreduce"), volume(plain, False, "allreduce")) == (layers, layers - 1)
        assert (volume(sliced, True, "scatterreduce"), volume(sliced, True, "allgather")) == (layers, layers + 1)
        assert (volume(sliced, False, "scatterreduce"), volume(sliced, False, "allgather")) == (
            layers - 1,
            2 * layers - 1,
        )
        for rank in range(t):  # at the loss: what is kept for the backward pass, and what the loss reads
            kept_then = {
                name: next(event.held[ACTIVATIONS] for event in done.models[rank].log if event.kind == "loss")
                for name, done in (("plain", plain), ("sliced", sliced), ("whole", kept_whole))
            }
            assert kept_then["plain"] == kept_then["whole"] == (layers + 1) * LONGER
            assert kept_then["sliced"] == Fraction(layers * LONGER, t) + LONGER


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize("layers", [1, 2, 6, 7])
@pytest.mark.parametrize("bits", [16, 4])
def test_adapters_leave_gathers_of_weights_and_nothing_else_that_is_large(n: int, layers: int, bits: int) -> None:
    """A layer takes two gathers, a forward, the half of a backward, an all-reduce of its adapter and an update. With
    the gathers under other work only one of each pass is left. In memory are shards of frozen weights, one whole one,
    the inputs of all layers with one gradient, and adapters with their states. The links carry 2 x (n - 1)/n of all
    weights, and twice (n - 1)/n of all adapters."""
    cost = Cost(weight_elements=WEIGHT * bits // 16)
    size = {"ranks": n, "layers": layers, "batches": n, "train": "adapters", "cost": cost}
    plain, hidden = (run(program("p23_lora", name), **size) for name in ("lora", "lora_overlap"))
    for done in (plain, hidden):
        done.check()
    work, gather = cost.forward + Fraction(cost.backward) / 2 + Fraction(1, 2), Fraction(3, 10)
    assert plain.time == float(layers * (work + 3 * gather))
    assert hidden.time == float(layers * work + 2 * gather)
    weight, activation, adapter = cost.weight_elements, cost.activation_elements, cost.adapter_elements
    assert plain.memory == Fraction(layers * weight, n) + weight + (layers + 1) * activation + 2 * layers * adapter
    if bits == 16:  # in 4 bits weights are no longer what a prefetch is felt by
        assert hidden.memory == plain.memory
    own = [event for event in plain.events if event.rank == 0]
    moved = {kind: sum(event.elements for event in own if event.kind == kind) for kind in ("allgather", "allreduce")}
    assert moved == {"allgather": Fraction(2 * layers * weight, n), "allreduce": layers * adapter}


HOSTS = [
    (layers, batches, backward, update)
    for layers in (1, 2, 6)
    for batches in (1, 2, 4)
    for backward, update in ((3, 5.5), (2, 1), (1, 9))
]


@pytest.mark.parametrize(("layers", "batches", "backward", "update"), HOSTS)
def test_offload_hides_updates_as_long_as_the_host_keeps_up(
    layers: int, batches: int, backward: float, update: float
) -> None:
    """The device works for m L (F + B). After its last backward a gradient goes down, is used, and comes back. A host
    that is slower than the time between two complete gradients is what the run waits for: that is a backward where the
    last micro-batch goes alone, and m of them layer by layer (ZeRO-Offload, arXiv 2101.06840)."""
    transfer = 0.75
    cost = Cost(backward=backward, host_update=update, host_transfer=transfer, receive=0)
    names = ("offload_blocking", "offload", "offload_by_layer", "offload_weights_too")
    blocking, alone, by_layer, streamed = (
        run(program("p22_offload", name), 1, layers, batches, hosts=1, cost=cost) for name in names
    )
    work, way = batches * layers * (1 + backward), 2 * transfer

    def overlapped(first: float, between: float) -> float:
        """``first``: when the first gradient is complete; ``between``: how long until the next one is."""
        return first + way + max((layers - 1) * between + update, layers * update)

    assert blocking.time == work + layers * (way + update)
    assert alone.time == overlapped((batches - 1) * layers * (1 + backward) + layers + backward, backward)
    assert by_layer.time == overlapped(batches * (layers + backward), batches * backward)
    assert by_layer.time >= work + way + update and (by_layer.time == work + way + update) == (
        layers == 1 or update <= batches * backward
    )
    assert streamed.time >= by_layer.time


BUCKETS = [(layers, k) for layers in (6, 12, 24) for k in (1, 2, 3, 6, 12, 24) if layers % k == 0]
GROWING = [(4, 5, 7), (2, 3, 5, 6, 8), (1, 2, 4, 5, 7, 8), (1,)]


def in_buckets(ranks: int, sizes: Sequence[int], latency: Fraction, per_layer: Fraction) -> Run:
    """Data parallel in one box, with buckets of these sizes: a hop takes ``latency``, a layer's bytes ``per_layer``."""
    bandwidth = Fraction(2 * (ranks - 1) * WEIGHT, ranks) / per_layer
    cost = RingCost(backward=2, update=0, latency=latency, bandwidth=bandwidth)
    fn = partial(program("p19_buckets", "buckets_of"), sizes=sizes)
    return run(fn, ranks, sum(sizes), ranks, cost=cost)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("layers", "k"), BUCKETS)
@pytest.mark.parametrize("latency", [Fraction(1, 10), Fraction(1, 2)])
def test_equal_buckets_leave_the_latency_of_each_and_the_bytes_of_one(
    ranks: int, layers: int, k: int, latency: Fraction
) -> None:
    """With bytes that take as long as a backward, k alpha + t L/k are left, where alpha are the 2(n - 1) hops of a
    ring. So the best k is the root of t L / alpha."""
    alpha, each = 2 * (ranks - 1) * latency, layers // k
    done = in_buckets(ranks, [each] * k, latency, Fraction(2))
    assert Fraction(str(done.time)) == layers * (1 + 2) + k * alpha + 2 * each
    sums = [event for event in done.models[0].log if event.kind == "allreduce"]
    assert len(sums) == k and sent(done) == 2 * Fraction(ranks - 1, ranks) * layers * WEIGHT


@pytest.mark.parametrize("ranks", [4, 16])
@pytest.mark.parametrize("sizes", GROWING)
def test_a_network_never_waits_for_buckets_that_grow_by_the_latency(ranks: int, sizes: tuple[int, ...]) -> None:
    """With alpha = 3 ticks and 2 for a layer, bucket i may be 3/2 i larger than the first: what is left is the first
    bucket's bytes and the latency of each."""
    done = in_buckets(ranks, sizes, Fraction(3, 2 * (ranks - 1)), Fraction(2))
    assert all(2 * size <= 2 * sizes[0] + 3 * place for place, size in enumerate(sizes))
    assert Fraction(str(done.time)) == sum(sizes) * (1 + 2) + 2 * sizes[0] + 3 * len(sizes)
    calls = [event for event in done.models[0].log if event.kind == "allreduce"]
    assert all(one.end == next_one.start for one, next_one in pairwise(calls))


@pytest.mark.parametrize(("boxes", "each"), [(2, 2), (2, 4), (4, 2), (3, 4), (4, 4)])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_sum_in_two_levels_takes_both_their_hops_and_a_share_of_the_bytes(boxes: int, each: int, layers: int) -> None:
    """2(b - 1) slow hops instead of 2(n - 1), and 1/g of the bytes over each card (g ranks in each of b boxes)."""
    cost = RingCost(backward=2, latency=Fraction(1, 50), latency_across=Fraction(1, 10))
    inside, across, ranks = exact(cost.bandwidth), exact(cost.bandwidth_across), boxes * each
    size = {"ranks": ranks, "layers": layers, "batches": ranks, "node_size": each, "cost": cost}
    names = ("flat_ring", "everything_across", "hierarchical")
    mesh = {"replica": boxes, "shard": each}
    runs = [run(program("p20_hierarchical", name), mesh=mesh, **size) for name in names]

    def ring(n: int, elements: Fraction | int, hop: Fraction, bandwidth: Fraction | int) -> Fraction:
        return 2 * ((n - 1) * hop + Fraction(n - 1, n) * elements / bandwidth)

    slow, fast = Fraction(1, 10), Fraction(1, 50)
    in_box = ring(each, WEIGHT, fast, inside)
    takes = [
        ring(ranks, WEIGHT, slow, across),
        in_box + ring(boxes, WEIGHT, slow, across),
        in_box + ring(boxes, Fraction(WEIGHT, each), slow, across),
    ]
    computing = Fraction(7, 2)
    assert [done.time for done in runs] == pytest.approx([float(layers * (computing + one)) for one in takes])
    assert takes[2] < takes[0] and takes[2] < takes[1]


@pytest.mark.parametrize(("boxes", "each"), [(2, 2), (2, 4), (4, 2), (3, 4), (4, 4)])
@pytest.mark.parametrize("layers", [1, 3, 6])
def test_a_copy_in_the_box_takes_one_of_three_trips_across_for_the_weights_over_the_box(
    boxes: int, each: int, layers: int
) -> None:
    """Of 3 trips across for each layer, hpZ (ZeRO++, arXiv 2306.10209) makes 2, and one in the box. Besides what FSDP
    has, it keeps all weights once more over the s ranks of a box, P/s, until backward has come to them."""
    ranks, mesh = boxes * each, {"replica": boxes, "shard": each}
    cost = cost_named("one_card")
    size = {"ranks": ranks, "layers": layers, "batches": ranks, "node_size": each, "mesh": mesh, "cost": cost}
    runs = [run(program("p21_hpz", name), **size) for name in ("fsdp_through_one_card", "hpz", "hsdp")]
    trip, inside, computing = 8, Fraction(2, 5), Fraction(9, 2)
    takes = [3 * trip, 2 * trip + inside, 2 * trip + 3 * inside]  # an all-reduce across is two trips
    assert [exact(done.time) for done in runs] == [layers * (computing + one) for one in takes]
    across = [sum(len({rank // each for rank in event.group}) > 1 for event in done.models[0].log) for done in runs]
    assert across == [3 * layers, 2 * layers, layers]

    shard, in_box = Fraction(layers * WEIGHT, ranks), Fraction(layers * WEIGHT, each)
    place = MEMORY_KINDS.index("weights")
    after = [[event.held[place] for event in done.models[0].log if event.kind == "loss"] for done in runs]
    assert after == [[shard], [shard + in_box], [in_box]]  # when the whole forward pass is over
    assert [kept(done, "OptState") for done in runs] == [shard, shard, in_box]


@pytest.mark.parametrize(
    ("axes", "mesh"),
    [("x", {"x": 2, "y": 2, "z": 2}), ("xy", {"x": 4, "y": 2, "z": 3}), ("z", {"x": 2, "y": 1, "z": 3})],
)
@pytest.mark.parametrize("chunks", [2, 4])
@pytest.mark.parametrize("each", [2, 4])
def test_a_composition_has_the_states_of_its_stage_in_pieces_and_the_bubble_of_its_thin_stages(
    axes: str, mesh: dict[str, int], chunks: int, each: int
) -> None:
    """Of p stages, d replicas and t GPUs in a box, with P parameters: weights 2P/(pt), states 12P/(ptd) bytes (ZeRO-1),
    an all-reduce of 2P/(pt) bytes between the replicas; (m + (p - 1)/v)(F + B) for the passes of m micro-batches, and
    little more for loss, messages and updates."""
    cost: Any = cost_named("gpt_3_on_a100")
    replicas = prod(mesh[axis] for axis in axes)
    stages = prod(mesh.values()) // replicas
    layers, batches = stages * chunks, stages * replicas * each
    ranks = {"ranks": stages * replicas, "mesh": mesh, "layers": layers, "batches": batches, "cost": cost}
    laid_out = program("p24_compose", "laid_out")
    done = run(partial(laid_out, axes=axes, pieces=True, each_round=False), **ranks)
    done.check()

    hidden = cost.model.hidden
    inside = stages > 2  # else each stage has the embedding or the head, too
    parameters = 96 / stages * (12 * hidden**2 + 13 * hidden) / cost.tensor
    middle = done.final_states[replicas if axes == "z" else 1].kept if inside else []
    sizes = {kind: sum(cost.elements(one.labels) for one in middle if one.labels.kind == kind) for kind in SHARES}
    for kind, share in SHARES.items():
        assert not inside or sizes[kind] == pytest.approx(share * parameters / (replicas if kind == "OptState" else 1))

    passes = 96 / layers * (cost.forward + cost.backward)  # of a micro-batch, through a thin stage
    least = (stages * each * chunks + stages - 1) * passes
    lowest = 2 * parameters * stages / layers  # bytes of the layer whose sum comes last
    first, *second = [mesh[axis] for axis in axes]
    tail = cost.cluster.ring_takes(lowest, first, 1, rounds=2) + stages * each * cost.loss
    if second:  # what the first axis has left of each layer goes over the second, and is waited for
        tail += chunks * cost.cluster.ring_takes(lowest / first, *second, 1, rounds=2)
    assert least < done.time < 1.05 * (least + tail)
