"""A model on a cluster: what operations take in seconds and bytes, and the shorter runs that give the same as whole
ones."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from drawing import compare, draw
from lib import Dist, Model, PuzzleError, Run, run
from lib.real import (
    A100_40_P4D,
    A100_MEGATRON,
    DEEPSEEK_V3,
    GPT_175B,
    H100_DGX,
    H100_TORCHTITAN,
    LLAMA_3_8B,
    LLAMA_3_405B,
    RTX_4090,
    Transformer,
    report,
)
from lib.real.prices import RealCost
from lib.real.report import sent_by
from lib.record.labels import NO_EXTRA, ExtraLabels, Labels
from solutions.p01_grad_accum import grad_accum
from solutions.p02_ddp import ddp
from solutions.p04_fsdp import fsdp
from solutions.p11_checkpointing import keep_everything, keep_nothing, keep_selectively
from solutions.p12_prefetch import prefetch
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p14_interleaved import interleaved
from solutions.p17_tensor_parallel import tensor_parallel
from solutions.p18_sequence_parallel import sequence_parallel
from solutions.p22_offload import offload
from solutions.p23_lora import lora
from solutions.p26_ring_attention import ulysses

SMALL = Transformer(12, 1024, 16, 512, 8192, tied=True, name="small")
FLASH = replace(LLAMA_3_8B, layers=8, sequence=2048)
PLAIN: dict[str, Any] = {"gradients": 4}
FSDP2: dict[str, Any] = {"stored": 4, "gradients": 4, "gathered": 2, "reduced": 4}


def lengths(done: Run, kind: str) -> set[float]:
    return {round(event.length, 9) for event in done.events if event.kind == kind}


def near(seconds: float) -> Any:
    return pytest.approx(seconds, abs=2e-9)  # every duration is rounded to a nanosecond once


# -- time -----------------------------------------------------------------------------------------


def test_a_layer_takes_what_its_parts_add_up_to() -> None:
    """Written out for GPT-3 on 8 GPUs that share each layer: operations by the peak, bytes by bandwidth."""
    c, s, h, a, t = A100_MEGATRON, 2048, 12288, 96, 8

    def takes(flops: float, smallest: float) -> float:
        return flops / t / (c.peak * c.reached * smallest / (smallest + c.half_reached_at))

    # Queries, keys and values; what attention gives; up and down. Tensor parallelism cuts what goes into two of these.
    products = takes(6 * s * h * h, s) + takes(2 * s * h * h, h / t) + takes(16 * s * h * h, s)
    attention = 4 * s * s * h / t / (c.peak * c.attention_reached)
    moves = c.memory_bandwidth * c.memory_reached
    scores, scores_back = (k * a * s * s / t / moves for k in (13, 19))
    pointwise = s * h * (22 + 16 / t) / moves
    traffic = 4 * (7 * c.latency + 7 / 8 * 2 * s * h / (0.8 * c.link))
    forward = products + attention + scores + pointwise + traffic
    backward = 2 * products + 2 * attention + scores_back + 1.5 * pointwise + traffic
    cost = c.cost(GPT_175B, tensor=t)
    assert (cost.forward, cost.backward) == (pytest.approx(forward), pytest.approx(backward))
    full, selective = (c.cost(GPT_175B, tensor=t, recompute=how) for how in ("full", "selective"))
    assert full.backward == pytest.approx(backward + forward)
    assert selective.backward == pytest.approx(backward + attention + scores)
    together = c.cost(GPT_175B, tensor=t, sequence_parallel=True)
    assert cost.forward - together.forward == pytest.approx(22 * s * h * (1 - 1 / t) / moves)
    assert cost.loss == pytest.approx(takes(6 * s * h * 51200, s) + 2 * 14 * s * 51200 / t / moves)
    assert c.cost(GPT_175B, tensor=t, **PLAIN).update == pytest.approx(58 * GPT_175B.layer_size / t / moves)


def test_a_run_takes_these_prices_to_the_nanosecond() -> None:
    cost = A100_MEGATRON.cost(SMALL, micro_batch=4, recompute="full", **PLAIN)
    done = run(grad_accum, layers=12, batches=3, cost=cost)
    done.check()
    for kind in ("forward", "backward", "loss"):
        assert [*lengths(done, kind)] == [near(getattr(cost, kind))]
    ends = SMALL.parameters_between(0, 1), SMALL.layer_size, SMALL.parameters_between(11, 12)
    assert sorted(lengths(done, "update")) == [near(took) for took in sorted(map(cost.update_takes, ends))]
    assert done.seconds == done.time and isinstance(done.seconds, float)
    whole = 3 * (12 * (cost.forward + cost.backward) + cost.loss) + cost.update_takes(SMALL.size)
    assert done.seconds == pytest.approx(whole, abs=1e-7)


def test_halves_of_a_backward_share_its_work() -> None:
    cost = H100_DGX.cost(FLASH)
    assert cost.backward == pytest.approx(cost.backward_input + cost.backward_weight)
    assert cost.backward_weight == pytest.approx(sum(H100_DGX.product_takes(*sizes) for sizes in FLASH.product_sizes()))


@pytest.mark.parametrize(
    ("ranks", "node_size", "bandwidth"), [(8, 8, 300e9), (16, 8, 200e9), (4, 1, 25e9), (8, 2, 50e9), (4, 4, 300e9)]
)
def test_a_ring_is_as_fast_as_its_slowest_link_and_has_a_card_for_each_rank(
    ranks: int, node_size: int, bandwidth: float
) -> None:
    cost = A100_MEGATRON.cost(SMALL)
    done = run(fsdp, ranks=ranks, layers=12, batches=ranks, node_size=node_size, cost=cost)
    gather = max(event.length for event in done.events if event.kind == "allgather" and event.layer == 5)
    across = ranks // min(ranks, node_size) - 1  # steps that lead to another node
    steps = (ranks - 1 - across) * A100_MEGATRON.latency + across * A100_MEGATRON.latency_across
    part = (ranks - 1) / ranks
    assert gather == near(steps + part * 2 * SMALL.layer_size / (0.8 * bandwidth))


def test_boxes_are_those_of_the_cluster_unless_they_are_named() -> None:
    assert run(ddp, ranks=16, layers=1, batches=16, cost=A100_MEGATRON.cost(SMALL)).node_size == 8
    assert run(ddp, ranks=4, layers=1, batches=4, cost=A100_MEGATRON.cost(SMALL, tensor=8)).node_size == 1
    assert run(ddp, ranks=4, layers=1, batches=4, node_size=2, cost=A100_MEGATRON.cost(SMALL)).node_size == 2
    assert Dist(16, cost=A100_MEGATRON.cost(SMALL)).node_size == 8
    assert run(ddp, ranks=16, layers=1, batches=16).node_size is None


def test_what_is_sent_has_its_own_width() -> None:
    for width, seen in (({}, 2), ({"gathered": 4}, 4), ({"stored": 4}, 4), (FSDP2, 2)):
        done = run(fsdp, ranks=2, layers=12, batches=2, cost=A100_MEGATRON.cost(SMALL, **width))
        brought = {e.elements for e in done.events if e.kind == "allgather" and e.layer == 5}
        assert brought == {SMALL.layer_size * seen // 2}
    reduced = {e.elements for e in done.events if e.kind == "scatterreduce" and e.layer == 5}
    assert reduced == {4 * SMALL.layer_size}
    sent = [sent_by(e) for e in done.events if e.layer == 5 and e.rank == 0 and e.op]
    assert sorted(sent) == [SMALL.layer_size, SMALL.layer_size, 2 * SMALL.layer_size]  # 2f, 2f and 4f bytes, f = 1/2


@pytest.mark.parametrize(("ranks", "node_size"), [(8, 8), (16, 8), (8, 2), (4, 1)])
def test_a_card_carries_a_share_of_what_each_gpu_sends(ranks: int, node_size: int) -> None:
    """A ring leaves each node once: of eight GPUs of a node each sends an eighth over its card. A report said all."""
    done = run(fsdp, ranks=ranks, layers=12, batches=ranks, node_size=node_size, cost=A100_MEGATRON.cost(SMALL))
    rows = [line.split() for line in report(done).split("links,")[1].splitlines() if ", busy for" in line]
    sent = {" ".join(row[2:]).split(",")[0]: float(row[0]) * {"MB": 1e6, "GB": 1e9}[row[1]] for row in rows}
    whole = 3 * 2 * SMALL.size * (ranks - 1) / ranks  # two gathers and a sum
    near_by = min(node_size, ranks)
    across = whole / near_by if ranks > node_size else 0.0
    assert sent.get("between nodes", 0.0) == pytest.approx(across, rel=0.03)
    assert sent.get("in a node", 0.0) == pytest.approx(whole - across, rel=0.03)


# -- memory ---------------------------------------------------------------------------------------


def test_a_forward_leaves_its_inner_activations_until_the_backward() -> None:
    """Of one layer: 34sbh and the scores, of which the input is a tensor of the program's."""
    model = replace(SMALL, layers=1)
    whole, boundary = model.activation_bytes(2), model.boundary_bytes(2)
    for how in ("none", "selective", "full"):
        cost = A100_MEGATRON.cost(model, micro_batch=2, recompute=how, **PLAIN)
        done = run(grad_accum, layers=1, batches=1, cost=cost)
        held = {event.kind: event for event in done.events}
        states = model.size * (2 + 12)
        kept = model.activation_bytes(2, recompute=how)
        assert held["forward"].memory == states + boundary
        assert held["loss"].memory == states + kept + boundary + model.loss_bytes(2)
        assert held["backward"].memory == states + whole + boundary  # again, or still
        assert held["update"].memory == states + 4 * model.size


def test_a_program_may_say_what_is_kept() -> None:
    cost = A100_MEGATRON.cost(SMALL, micro_batch=2, recompute="full", **PLAIN)
    runs = [run(fn, layers=12, cost=cost) for fn in (keep_nothing, keep_selectively, keep_everything)]
    kept = [A100_MEGATRON.cost(SMALL, micro_batch=2, recompute=how, **PLAIN) for how in ("full", "selective", "none")]
    for done, like in zip(runs, kept, strict=True):
        done.check()
        assert max(lengths(done, "backward")) == near(like.backward)
    assert runs[0].bytes < runs[1].bytes < runs[2].bytes
    assert runs[0].seconds > runs[1].seconds > runs[2].seconds


def test_it_fits_if_92_percent_are_enough() -> None:
    cost = H100_TORCHTITAN.cost(LLAMA_3_8B, recompute="full")
    most = 0.92 * H100_TORCHTITAN.memory
    assert cost.fits(most) and not cost.fits(most + 1)
    done = run(prefetch, ranks=8, layers=32, batches=8, cost=cost)
    assert done.fits and not run(ddp, ranks=8, layers=32, batches=8, cost=cost).fits


# -- shorter runs that give the same -----------------------------------------------------------------


def test_a_group_that_divides_the_sequence_as_well_is_one_rank() -> None:
    """The price of a layer has its forward's two calls, and as many of its backward."""
    layers, each = 3, 4  # of the run, and of the model to one of these

    def work(fn: Any, together: bool) -> tuple[float, list[float]]:
        """The time of one of four ranks besides loss and calls, and how long each of its calls is."""
        cost = A100_MEGATRON.cost(SMALL, micro_batch=2, sequence_parallel=together, recompute="selective", **PLAIN)
        done = run(fn, ranks=4, layers=layers, cost=cost)
        done.check()
        calls = [event.length for event in done.events if event.rank == 0 and event.stream == "collective"]
        return done.time - sum(calls) - max(lengths(done, "loss")), calls

    cost = A100_MEGATRON.cost(SMALL, micro_batch=2, tensor=4, sequence_parallel=True, recompute="selective", **PLAIN)
    folded = run(grad_accum, layers=layers, cost=cost)
    alone, calls = work(sequence_parallel, True)
    assert alone == pytest.approx(folded.time - cost.loss - 2 * layers * each * cost.traffic, abs=60e-9)
    assert all(length == near(each * cost.traffic / 2) for length in calls)
    # Forward: two a layer. Backward: the same, but for layer 0, the gradient of whose input nobody needs. Besides, the
    # program gathers the last output, for the loss, and each input again, which Megatron hides.
    assert len(calls) == (2 * layers) + (2 * layers - 2) + 1 + layers
    assert alone < work(tensor_parallel, False)[0] - 1e-5  # norms and residuals are divided, too


@pytest.mark.parametrize("together", [False, True])
def test_a_rank_that_computes_with_a_piece_keeps_what_a_gpu_of_a_tensor_parallel_group_keeps(together: bool) -> None:
    """Norms and residuals are whole on each rank, unless the sequence is divided, too."""
    fn = sequence_parallel if together else tensor_parallel
    held = {}
    for how in ("none", "selective"):
        cost = A100_MEGATRON.cost(SMALL, sequence_parallel=together, recompute=how, **PLAIN)
        done = run(fn, ranks=4, layers=12, batches=1, cost=cost)
        first = {event.kind: event.held[3] for event in reversed(done.events) if event.rank == 0}
        kept = 12 * SMALL.activation_bytes(1, 4, together, how)  # the inputs of the layers, and what is inside
        output = SMALL.boundary_bytes()
        assert first["loss"] == pytest.approx(kept + output + SMALL.loss_bytes(), abs=12)
        held[how] = first["backward"]
    scores = SMALL.activation_bytes(1, 4) - SMALL.activation_bytes(1, 4, recompute="selective")
    assert held["none"] - held["selective"] == pytest.approx(11 * scores, abs=12)  # one layer has them again


@pytest.mark.parametrize("how", ["none", "selective", "full"])
@pytest.mark.parametrize("together", [False, True])
def test_layers_of_a_chunk_are_one_layer(how: str, together: bool) -> None:
    """In bytes, too: between the layers that one of the run stands for lie their inputs."""
    cost = A100_MEGATRON.cost(SMALL, tensor=2, sequence_parallel=together, recompute=how, **PLAIN)
    whole = run(one_f_one_b, ranks=3, layers=12, batches=6, cost=cost)
    for layers in (3, 6):
        folded = run(one_f_one_b, ranks=3, layers=layers, batches=6, cost=cost)
        assert folded.time == pytest.approx(whole.time, abs=1e-7)
        assert folded.memory == whole.memory


# -- figures, pictures and texts ---------------------------------------------------------------------


def test_a_run_tells_seconds_bytes_and_the_part_of_the_peak() -> None:
    cost = H100_TORCHTITAN.cost(LLAMA_3_8B, micro_batch=2, recompute="every second product", mfu="palm", **FSDP2)
    done = run(prefetch, ranks=8, layers=32, batches=8, cost=cost)
    palm, megatron = (LLAMA_3_8B.model_flops(2, how) / done.seconds / 989e12 for how in ("palm", "megatron"))
    assert done.mfu == pytest.approx(palm) and "by PaLM's formula" in str(done.mfu) and done.mfu.formula == "palm"
    assert cost.mfu(done.seconds, 8, 8, "megatron") == pytest.approx(megatron)
    assert 1.04 * megatron < done.mfu  # the embedding counts there
    assert f"time {done.time:.4g} s" in repr(done) and "GB" in repr(done) and "elements" not in repr(done)
    assert isinstance(done.bytes, int) and done.bytes == done.memory


def test_a_run_in_ticks_has_neither() -> None:
    done = run(fsdp, ranks=2, layers=2, batches=2)
    for name in ("seconds", "bytes", "fits", "mfu"):
        with pytest.raises(PuzzleError, match=rf"in ticks and elements, so it has no {name}\n.*cluster.cost"):
            getattr(done, name)
    with pytest.raises(PuzzleError, match="report takes a run on a cluster"):
        report(done)


def test_pictures_are_in_seconds_and_bytes() -> None:
    cost = A100_MEGATRON.cost(GPT_175B, tensor=8, recompute="full", **PLAIN)
    done = run(interleaved, ranks=4, layers=8, batches=4, cost=cost)
    assert f"{done.time:.4g} = " in str(draw(done, chain=True))
    with pytest.raises(PuzzleError, match="sizes of one are in bytes and of another in elements"):
        compare(done, run(fsdp, ranks=2, layers=2, batches=2))


def test_a_rank_prints_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.status()

    run(program, layers=12, cost=A100_MEGATRON.cost(SMALL))
    size = 2 * SMALL.parameters_between(0, 1) / 1e6
    assert capsys.readouterr().out.startswith(f"[rank 0, 0 s] {size:.3g} MB stored")


def test_a_report_says_where_time_and_memory_go() -> None:
    cost = A100_MEGATRON.cost(GPT_175B, tensor=8, recompute="full", **PLAIN)
    done = run(one_f_one_b, ranks=8, layers=8, batches=8, cost=cost)
    said = report(done)
    assert f"{done.seconds:.4g} s a step" in said and "64 GPUs, 8 a rank" in said and "by Megatron's formula" in said
    shares = {line.split("%")[1].strip(): float(line.split("%")[0]) for line in said.splitlines() if " %  " in line}
    for kind in ("forward", "backward"):
        spent = sum(event.length for event in done.events if event.kind == kind) / 8 / done.time
        assert shares[kind] == pytest.approx(100 * spent, abs=0.06)
    # Three times a layer: forward, backward, and forward again.
    traffic = 3 * 96 * 8 * cost.traffic / 8 / done.time
    assert shares["of these, traffic within layers"] == pytest.approx(100 * traffic, abs=0.06)
    assert shares["bubble"] > 40 and "between nodes" in said
    happened, changes = said.split("\n  optimizer=", 1)  # from there on: what would be with something else
    assert "does not fit" not in happened and "nothing computed again: 25 % faster" in changes
    assert "opt states" in said and f"{done.memory / 1e9:.3g} GB at the peak" in said


# -- what cannot be ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: A100_MEGATRON.cost(GPT_175B, tensor=7), "cannot be split over 7 tensor-parallel ranks"),
        (lambda: A100_MEGATRON.cost(LLAMA_3_8B, tensor=16), r"8 heads of keys and values"),
        (lambda: replace(A100_MEGATRON, gpus=4).cost(SMALL, tensor=8), r"has 4 GPUs\n.*\n.*8 GPUs"),
        (lambda: replace(RTX_4090, gpus=8).cost(GPT_175B), r"fits nowhere on RTX 4090(.|\n)*127 GPUs or more"),
        (lambda: replace(A100_40_P4D, gpus=16).cost(GPT_175B, tensor=8), r"fits nowhere"),
        (
            lambda: run(ddp, ranks=16, layers=12, batches=16, cost=replace(H100_DGX, gpus=8).cost(SMALL)),
            r"has 8 GPUs\n.*\n.*16 GPUs",
        ),
        (
            lambda: run(ddp, ranks=2, layers=12, batches=2, cost=replace(H100_DGX, gpus=8).cost(SMALL, tensor=8)),
            r"2 ranks of 8 GPUs: H100 80 GB has 8 GPUs\n.*\n.*16 GPUs",
        ),
        (
            lambda: run(tensor_parallel, ranks=32, layers=12, cost=H100_DGX.cost(SMALL)),
            r"16 heads, which cannot be split over 32 tensor-parallel ranks",
        ),
        (
            lambda: run(grad_accum, layers=5, cost=H100_DGX.cost(SMALL)),
            r"small has 12 layers, which cannot be 5 equal ones\n.*1, 2, 3, 4, 6, 12",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_do(make: Any, said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        make()


# -- adapters and hosts --------------------------------------------------------------------------------


def test_adapters_have_their_own_size_and_leave_out_the_gradient_of_the_weight() -> None:
    cost = A100_MEGATRON.cost(SMALL, micro_batch=2, gradients=4, adapter_rank=8)
    done = run(lora, ranks=4, layers=12, batches=4, cost=cost, train="adapters")
    done.check()
    assert [*lengths(done, "backward")] == [near(cost.backward_input)]
    assert [*lengths(done, "forward")] == [near(cost.forward)]
    adapter = SMALL.adapter_parameters(8) // 12
    assert {event.elements for event in done.events if event.kind == "allreduce"} == {4 * adapter}
    assert [*lengths(done, "update")] == [near(cost.update_takes(adapter))]
    few = A100_MEGATRON.cost(SMALL, micro_batch=2, gradients=4, adapter_rank=8, frozen_bits=4)
    light = run(lora, ranks=4, layers=12, batches=4, cost=few, train="adapters")
    gathered = [{e.elements for e in each.events if e.kind == "allgather" and e.layer == 5} for each in (done, light)]
    assert gathered == [{2 * SMALL.layer_size // 4}, {SMALL.layer_size // 2 // 4}]
    assert light.bytes < done.bytes
    assert "MFU" not in report(done)  # the formulas count the gradients of all weights


def test_a_report_of_nothing_says_so() -> None:
    def idle(model: Model) -> None:
        """Nothing yet."""

    assert report(run(idle, layers=12, cost=A100_MEGATRON.cost(SMALL))) == "idle: not attempted yet"
    said = report(run(grad_accum, layers=12, cost=A100_MEGATRON.cost(SMALL))).splitlines()[0]
    assert said.endswith(" a micro-batch, 1 micro-batch on 1 GPU")


def test_a_host_updates_at_the_bandwidth_of_its_memory_and_is_behind_a_link() -> None:
    cost = A100_MEGATRON.cost(SMALL, micro_batch=4, **PLAIN)
    done = run(offload, ranks=1, hosts=1, layers=12, batches=2, cost=cost)
    done.check()
    updates = [event.length for event in done.events if event.kind == "update" and event.layer == 5]
    assert updates == [near(SMALL.layer_size * (2 * 12 + 2 + 4) / (200e9 / 8))]
    sent = {event.length for event in done.events if event.kind == "pass_to" and event.layer == 5 and event.rank == 0}
    assert [*{round(took, 9) for took in sent}] == [near(3e-6 + 4 * SMALL.layer_size / (0.8 * 25e9))]
    assert done.bytes < run(grad_accum, layers=12, batches=2, cost=cost).bytes
    rows = [line for line in report(done).partition("memory:")[0].splitlines() if " %  " in line]
    assert sum(float(line.split("%")[0]) for line in rows) == pytest.approx(100, abs=0.3)  # of the device's time alone


@pytest.mark.parametrize(
    "cost",
    [
        A100_MEGATRON.cost(SMALL, stored=4, gradients=4, gathered=2, reduced=4, adapter_rank=4, frozen_bits=4),
        A100_MEGATRON.cost(SMALL, tensor=4, recompute="selective"),
    ],
)
def test_what_is_known_of_a_tensor_is_not_taken_for_another(cost: RealCost) -> None:
    """A size is computed once for all that are alike: asked alone, of a fresh cost, each is the same."""
    of_weights = [
        Labels(kind, layer, layers, batches=batches, shards=shards, total=total, extra=extra)
        for kind in ("Weight", "OptState", "WeightGrad")
        for layer, layers in ((0, 12), (1, 12), (11, 12), (1, 2), (0, 1))
        for batches in (frozenset[int](), frozenset({0}))
        for shards, total in ((frozenset({0}), 1), (frozenset({0}), 4), (frozenset({1, 2}), 4))
        for extra in (NO_EXTRA, *([ExtraLabels(adapter=True)] if cost.adapter_rank else []))
    ]
    inner = [
        Labels(kind, 1, layers, batches=batches, shards=shards, total=4, extra=ExtraLabels(keep=keep))
        for kind, keep in (("Activation", ""), ("ActivationGrad", ""), ("Saved", "selective"), ("Saved", "all"))
        for layers in (2, 12)
        for batches in (frozenset({0}), frozenset({0, 3}))
        for shards in (frozenset({0}), frozenset({0, 1, 2, 3}))
    ]
    every = [*of_weights, *inner]
    together = [(cost.elements(labels), cost.sent(labels)) for labels in every]
    assert together == [(replace(cost).elements(labels), replace(cost).sent(labels)) for labels in every]
    assert len(set(together)) > 40


@pytest.mark.parametrize("bytes_of", [{}, FSDP2], ids=["2 bytes", "FSDP2"])
def test_gpus_that_share_a_sequence_share_weights_gradients_and_states(bytes_of: dict[str, Any]) -> None:
    """FSDP over both: eight GPUs with as many tokens each hold as much, however many of them share a sequence. 35, 53,
    89 and 161 GB were said, where torchtitan measured 84, 84, 84 and 84.5 with its own."""
    held, gathers = list[float](), list[float]()
    for context in (1, 2, 4, 8):
        model = replace(LLAMA_3_8B, sequence=8192 * context)
        done = run(prefetch, 8 // context, 32, 8 // context, cost=H100_DGX.cost(model, context=context, **bytes_of))
        held.append(done.bytes)
        gathers += [event.length for event in done.events if event.kind == "allgather" and event.layer == 5][:1]
    assert held == pytest.approx([held[0]] * 4, rel=0.03) and gathers == pytest.approx([gathers[0]] * 4, rel=0.2)
    stage = H100_DGX.cost(replace(LLAMA_3_8B, sequence=65_536), context=8, zero=1, **bytes_of)
    more = (2 - bytes_of.get("stored", 2) / 8) * LLAMA_3_8B.size  # whole weights, when no gradients are there yet
    assert run(prefetch, 1, 32, 1, cost=stage).bytes - held[3] == pytest.approx(more, rel=0.01)


@pytest.mark.parametrize("fp8", [False, True])
def test_what_products_of_8_bits_read_is_kept_in_one_byte(fp8: bool) -> None:
    """Of Llama 3 8B, for each token: norms, queries, keys, values, what attention gives, and the gate."""
    h, inner, kv = 4096, 14336, 1024
    kept = H100_DGX.cost(LLAMA_3_8B, fp8=fp8)._inner("none") / 8192
    assert kept == 2 * h + (2 + 2) * h / (1 + fp8) + 2 * h + 4 * kv + (2 + fp8) * h + (4 + 2 / (1 + fp8)) * inner


@pytest.mark.parametrize(
    ("recompute", "saved"),
    [
        (("layernorm",), 4 * 7168),
        (("mlp",), 6 * 18432 * 3 / 61),
        (("moe_act",), 2 * 8 * 2048 * 58 / 61),
        (("moe",), (6 * 8 * 2048 + 4 * 8 * 7168) * 58 / 61),
        (("shared_experts",), 6 * 2048 * 58 / 61),
        (("mla_up_proj",), 2 * 128 * 192 + 4 * 128 * 160),
        (("layernorm", "moe_act"), 4 * 7168 + 2 * 8 * 2048 * 58 / 61),
    ],
)
def test_modules_that_are_computed_again_are_not_kept(recompute: tuple[str, ...], saved: float) -> None:
    """By the names of Megatron Core. What is done again takes time: no more than all of it."""
    none, some, full = (H100_DGX.cost(DEEPSEEK_V3, recompute=how) for how in ("none", recompute, "full"))
    assert none._inner("none") - some._inner(recompute) == pytest.approx(4096 * saved)
    assert some.made_again(recompute) == pytest.approx(4096 * saved)
    assert none.backward < some.backward < full.backward


@pytest.mark.parametrize(("ranks", "tensor", "said"), [(4, 8, "at most 1 rank that"), (16, 1, "at most 8 ranks")])
def test_no_more_ranks_turn_slices_into_heads_than_keys_have(ranks: int, tensor: int, said: str) -> None:
    model = replace(LLAMA_3_405B, sequence=131_072, layers=2)
    program = partial(run, ulysses, layers=2, batches=1)
    assert program(4, cost=H100_DGX.cost(model, tensor=2)).seconds > 0
    with pytest.raises(PuzzleError, match="8 heads of keys and values, which cannot be split") as caught:
        program(ranks, cost=H100_DGX.cost(model, tensor=tensor))
    assert said in str(caught.value)
