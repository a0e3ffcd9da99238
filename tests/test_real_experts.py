"""Models with experts, and sequences that GPUs share: parameters that were published, and prices by closed forms."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from lib import Model, PuzzleError, run
from lib.real import (
    B200_DGX,
    DEEPSEEK_V3,
    GB200_NVL72,
    H100_DGX,
    H200_DGX,
    H800_DEEPSEEK,
    LLAMA_3_70B,
    LLAMA_3_405B_LONG,
    MI300X,
    MIXTRAL_8X7B,
    QWEN_3_235B,
    Transformer,
    report,
)
from lib.real.prices import RealCost
from solutions.p00_basic import basic
from solutions.p25_context_parallel import context_parallel
from solutions.p26_ring_attention import ring_attention
from tests.test_closed_forms import program
from tools import papers, published

EXPERT_PARALLEL = program("p27_expert_parallel", "expert_parallel")
near = lambda seconds: pytest.approx(seconds, rel=1e-6, abs=3e-9)  # noqa: E731
TINY = Transformer(
    4, 1024, 8, 512, 8192, kv_heads=4, gated=True, attention="flash", experts=8, chosen=2, expert_hidden=512,
    name="tiny",
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "whole", "active"),
    [
        (MIXTRAL_8X7B, 46_702_792_704, 12.9),
        (DEEPSEEK_V3, 671_026_419_200, 37.6),  # 58 x 256 of them are biases of routers
        (QWEN_3_235B, 235_093_634_560, 22.2),
    ],
    ids=lambda row: getattr(row, "name", None),
)
def test_models_with_experts_have_the_parameters_that_were_published(
    model: Transformer, whole: int, active: float
) -> None:
    assert model.size == whole == sum(model.parameters_between(layer, layer + 1) for layer in range(model.layers))
    assert round(model.active_size / 1e9, 1) == active
    assert model.experts_between(0, model.layers) == model.parameters()["experts"]


def test_a_token_computes_with_as_many_parameters_as_it_meets() -> None:
    for model in (MIXTRAL_8X7B, DEEPSEEK_V3, QWEN_3_235B, TINY):
        done = 3 * (model.layers * model.matmul_flops() + model.head_flops())
        small = model.parameters()["norms"] + model.parameters()["embedding"]
        assert done == pytest.approx(6 * (model.active_size - small) * model.tokens(), rel=1e-6)


def test_context_divides_what_each_gpu_keeps() -> None:
    for model in (LLAMA_3_405B_LONG, MIXTRAL_8X7B):
        for how in ("none", "full", "every second layer"):
            whole = model.activation_bytes(1, 8, True, how)
            assert model.activation_bytes(Fraction(1, 16), 8, True, how) == pytest.approx(whole / 16)
    assert LLAMA_3_405B_LONG.tokens(Fraction(1, 16)) == 8192


@pytest.mark.parametrize(("ranks", "per_node"), [(8, 8), (16, 8), (64, 8), (4, 1)])
@pytest.mark.parametrize("across", [1.0, 0.5])
def test_an_all_to_all_goes_over_the_cards_of_all_gpus_at_once(ranks: int, per_node: int, across: float) -> None:
    c, size = H800_DEEPSEEK, 10**9
    near_by, far = (per_node - 1) / ranks * size, (ranks - per_node) / ranks * size
    through = near_by + (far if across < 1 else 0)
    steps = (per_node - 1) * c.latency + (ranks // per_node - 1) * c.latency_across
    expected = steps + max(through / 160e9, across * far / 40e9)
    assert c.alltoall_takes(size, ranks, per_node, across) == pytest.approx(expected)


def test_experts_on_more_gpus_have_more_rows_and_the_same_work() -> None:
    """Larger products are faster, and tokens travel: the bytes of a token's copies, twice forward and twice back."""
    one, four = (H100_DGX.cost(TINY, expert_parallel=ways) for ways in (1, 4))
    c, rows = H100_DGX, 512 * 2 / 8
    each = [sum(c.product_takes(*sizes) for sizes in TINY.expert_sizes(many)) for many in (rows, 4 * rows)]
    assert (one.layer.routed, four.layer.routed) == (near(8 * each[0]), near(2 * each[1]))
    assert one.traffic == 0 < four.traffic == near(2 * c.alltoall_takes(2 * 2 * 512 * 1024, 4, 4))
    weights = [cost._parameters(_label(cost)) for cost in (one, four)]
    assert weights[0] - weights[1] == TINY.experts * TINY.expert_size * 3 / 4


def test_gpus_with_whole_experts_share_them_with_the_gpus_of_other_ranks_and_tokens_travel_hidden() -> None:
    how, model = partial(H100_DGX.cost, tensor=2, sequence_parallel=True), replace(TINY, kv_heads=None)
    apart, whole = how(model, expert_parallel=4), how(model, expert_parallel=8, expert_tensor=1)
    assert apart.sharing == whole.sharing and apart._each == whole._each and whole.layer.routed < apart.layer.routed
    hidden = replace(whole, experts_hidden=0.5).layer.expert_traffic / whole.layer.expert_traffic
    assert hidden == near(0.5 + 0.5 * 20 / 132) and 2 * whole.layer.tensor_traffic < apart.layer.tensor_traffic


def _label(cost: RealCost) -> Any:
    from lib.record.labels import Labels

    return Labels("Weight", layer=1, layers=4, shards=frozenset({0}), total=1)


def test_a_run_whose_odd_layers_are_experts_costs_what_whole_layers_do() -> None:
    """On one rank nothing travels: attention and experts one after the other take as long as both at once."""
    for model in (TINY, replace(TINY, dense_layers=2, shared_experts=1), replace(TINY, name="two")):
        whole = run(basic, layers=4, cost=H100_DGX.cost(model, stored=2))
        apart = run(basic, layers=8, experts=8, cost=H100_DGX.cost(model, stored=2, experts=8))
        assert apart.seconds == pytest.approx(whole.seconds, rel=2e-3)
        states = sum(model.state_bytes().values())
        assert states < apart.bytes < whole.bytes * 1.03 and apart.bytes > whole.bytes * 0.97


@pytest.mark.parametrize("model", [TINY, replace(DEEPSEEK_V3, layers=4, dense_layers=1)], ids=["tiny", "DeepSeek"])
def test_expert_parallel_runs_with_prices_of_a_model(model: Transformer) -> None:
    cost = H800_DEEPSEEK.cost(model, experts=8)
    done = run(EXPERT_PARALLEL, 4, 8, 4, experts=8, cost=cost, timeout=None)
    sent = {event.elements for event in done.events if event.kind == "alltoall" and event.rank == 0}
    copies, met = model.chosen * 2 * model.tokens() * model.hidden, model.copies_across(4.0, once=True)
    assert sent == {copies, copies // model.chosen}  # on the way there, copies are made
    took = {round(e.end - e.start, 9) for e in done.events if e.kind == "alltoall" and e.rank == 0}
    assert [*took] == [near(H800_DEEPSEEK.alltoall_takes(copies, 4, 4))] and met < 1
    assert "communication that nothing hides" in report(done)


@pytest.mark.parametrize("fn", [context_parallel, ring_attention])
def test_context_parallel_runs_with_prices_of_a_model(fn: Callable[[Model], object]) -> None:
    """Its three steps take together as long as a layer, divided by the GPUs; ours waits for gathers besides."""
    model = replace(LLAMA_3_405B_LONG, layers=8, vocabulary=8192)
    cluster = replace(H100_DGX, memory=1e13)
    done = run(fn, 4, 8, 1, cost=cluster.cost(model), timeout=None)
    cost = cluster.cost(model)
    work = 8 * (cost.forward + cost.backward) / 4
    compute = sum(e.end - e.start for e in done.events if e.op is None and e.kind not in ("loss", "update")) / 4
    assert compute == pytest.approx(work, rel=0.01)
    assert done.seconds > work
    keys = {e.elements for e in done.events if e.kind == "allgather" and e.rank == 0}
    assert all(size == 4 * model.kv_width * model.sequence // 4 for size in keys)


def test_context_in_the_price_of_a_layer_gathers_keys_and_values() -> None:
    model = LLAMA_3_405B_LONG
    one, many = (H100_DGX.cost(model, tensor=8, sequence_parallel=True, context=c) for c in (1, 16))
    assert many.layer.attention(8) == pytest.approx(one.layer.attention(8) / 16)
    assert many.layer.context_traffic() == near(H100_DGX.ring_takes(4 * 131072 * 1024 / 8, 16, 1))
    ring = replace(H100_DGX, ring=True).cost(model, tensor=8, sequence_parallel=True, context=16).layer
    gathered, adds = H100_DGX.ring_takes(4 * 131072 * 2048, 16, 1), H100_DGX.moving_takes(10 * 131072 * 2048)
    assert ring.context_traffic() == near(gathered - ring.attention(8) / 16)
    assert ring.attention(8) - many.layer.attention(8) == near(adds) and ring.context_traffic(True) > 0
    assert many._inner("none") == pytest.approx(one._inner("none") / 16) and many.gpus == 128
    assert many.loss_takes < one.loss_takes / 15


def test_published_steps_with_experts_and_long_sequences_are_near() -> None:
    """Nothing is fitted. Of one nobody has said how many chunks a stage has; ours has no second head."""
    [long], experts = papers.shown_apart(), published.NOT_FITTED[-1]
    assert abs(long.residual) < 0.1 and -0.2 < papers.theirs_run(experts).seconds / experts.took - 1 < 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: replace(TINY, chosen=9), r"a token goes to some of 8 experts(.|\n)*chosen from 1 to 8"),
        (lambda: replace(TINY, gated=False), "only models of the Llama family have experts"),
        (lambda: replace(TINY, experts=0), "there are no experts, but chosen"),
        (lambda: replace(TINY, latent=(8, 8, 8)), "latent is three widths, and goes with head_width"),
        (lambda: H100_DGX.cost(TINY, experts=3), r"tiny has 8 experts in a layer(.|\n)*experts= one of 1, 2, 4, 8"),
        (lambda: H100_DGX.cost(LLAMA_3_405B_LONG, expert_parallel=2), "is dense"),
        (lambda: H100_DGX.cost(TINY, tensor=2, expert_parallel=1, expert_tensor=1), "experts are whole, or in as many"),
        (lambda: H100_DGX.cost(LLAMA_3_405B_LONG, context=3), "are not divided by 3 GPUs"),
        (
            lambda: H100_DGX.cost(TINY, experts=8, expert_parallel=2),
            "divided by the program, or in the price of a layer",
        ),
        (lambda: replace(H100_DGX, peak_fp8=0.0).cost(TINY, fp8=True), "no products of 8-bit numbers"),
        (lambda: H100_DGX.cost(TINY, split=(2, 1)), r"split does not divide the layers of tiny(.|\n)*4 together"),
        (
            lambda: run(EXPERT_PARALLEL, 4, 8, 4, experts=8, cost=H100_DGX.cost(TINY)),
            r"these prices are of a run with experts=0(.|\n)*cluster.cost\(model, experts=8\)",
        ),
    ],
)
def test_experts_and_contexts_that_cannot_be_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        make()


def test_machines_are_told_apart_by_their_sheets() -> None:
    """A layer of a 70B model: more memory bandwidth, more operations, and 72 GPUs in a node are each faster."""
    took = {
        cluster.name: cluster.cost(LLAMA_3_70B, tensor=8, sequence_parallel=True).forward
        for cluster in (H100_DGX, H200_DGX, B200_DGX, GB200_NVL72)
    }
    assert [*took.values()] == sorted(took.values(), reverse=True)
    assert GB200_NVL72.bandwidth(72, 72) > 10 * B200_DGX.bandwidth(72, 8) / 8
    assert MI300X.cost(LLAMA_3_70B, fp8=True).forward < MI300X.cost(LLAMA_3_70B).forward
    assert H200_DGX.room > 1.6 * H100_DGX.room
