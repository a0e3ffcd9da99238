"""Transformers in figures that were published: each must come out exactly, to as many digits as were printed.

Sources: arXiv 1910.02054, figure 1; docs/performance.md and
benchmarks/llama3_h100_202412_torchtitan.md of github.com/pytorch/torchtitan; the abstract of arXiv 2305.14314.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from lib import PuzzleError
from lib.real import (
    GPT_1T,
    GPT_2_XL,
    GPT_175B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_65B,
    MEGATRON_22B,
    MEGATRON_530B,
    OLMO_2_7B,
    OLMO_2_13B,
    OLMO_2_32B,
    QWEN_3_8B,
    QWEN_3_32B,
    Transformer,
)

GIB = 2**30


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        (LLAMA_3_8B, 8.03),
        (LLAMA_3_70B, 70.55),
        (QWEN_3_8B, 8.19073536),
        (QWEN_3_32B, 32.762123264),
        (OLMO_2_7B, 7.298617344),
        (OLMO_2_13B, 13.7161984),
        (OLMO_2_32B, 32.234279936),
        (replace(GPT_175B, vocabulary=50257), 174.6),
        (GPT_2_XL, 1.5576),
    ],
)
def test_models_have_the_parameters_that_they_are_said_to_have(model: Transformer, billions: float) -> None:
    digits = len(str(billions).partition(".")[2])
    assert round(model.size / 1e9, digits) == billions
    ends = [model.layers * part // 4 for part in range(5)]
    assert sum(model.parameters_between(*both) for both in pairwise(ends)) == model.size


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_states_are_those_of_zero(stage: int, gigabytes: float) -> None:
    states = LLAMA_3_8B.state_bytes(parameters=7_500_000_000)
    sharded = ["OptState", "WeightGrad", "Weight"][:stage]
    assert round(sum(size / (64 if kind in sharded else 1) for kind, size in states.items()) / 1e9, 1) == gigabytes


def test_bytes_are_those_of_qlora() -> None:
    """From more than 780 GB to less than 48, for 65 billion parameters."""
    whole = sum(LLAMA_65B.state_bytes().values()) - 4 * LLAMA_65B.size  # without main weights
    assert whole == 12 * LLAMA_65B.size and 780e9 < whole < 785e9
    adapted = LLAMA_65B.state_bytes(bits=4, adapter_rank=64)
    assert 44e9 < sum(adapted.values()) < 48e9
    of_adapters = 2 * LLAMA_65B.adapter_parameters(64)
    kinds = "Weight", "WeightGrad", "OptState"
    assert [adapted[kind] for kind in kinds] == [LLAMA_65B.size / 2 + of_adapters, of_adapters, 6 * of_adapters]
    assert sum(LLAMA_65B.state_bytes(adapter_rank=64).values()) > 2 * 48e9  # with frozen weights of 16 bits


@pytest.mark.parametrize(
    ("model", "micro_batch", "gpus", "batches", "seconds", "mfu"),
    [
        (MEGATRON_22B, 4, 8, 1, 1.10, 41.5),
        (GPT_175B, 1, 64, 64, 13.75, 51.4),
        (MEGATRON_530B, 1, 280, 280, 37.83, 56.0),
        (GPT_1T, 1, 512, 512, 71.49, 56.3),
    ],
)
def test_megatrons_formula_gives_the_mfu_that_it_prints(
    model: Transformer, micro_batch: int, gpus: int, batches: int, seconds: float, mfu: float
) -> None:
    done = model.model_flops(micro_batch, "megatron") * batches
    assert 100 * done / seconds / gpus / 312e12 == pytest.approx(mfu, abs=0.2)  # seconds have three digits


def test_flash_attention_writes_no_scores_and_skips_what_is_masked() -> None:
    flash = replace(GPT_175B, attention="flash")
    assert flash.score_bytes() == 0 < GPT_175B.score_bytes() < GPT_175B.score_bytes(backward=True)
    assert 2 * flash.attention_flops(done=True) == GPT_175B.attention_flops(done=True) == flash.attention_flops()
    assert flash.activation_bytes() == GPT_175B.activation_bytes(recompute="selective")
    assert flash.done_again("selective") == flash.done_again("none") != GPT_175B.done_again("selective")


def test_a_llama_keeps_what_its_parts_need() -> None:
    """In 2 bytes a number: what goes into the layer and into both norms, queries, keys, values, the gate."""
    each = LLAMA_3_8B.tokens() * LLAMA_3_8B.hidden
    kept = {"none": 34, "every second product": 15.5, "every second layer": 18, "full": 2, "selective": 34}
    assert {how: LLAMA_3_8B.activation_bytes(recompute=how) / each for how in kept} == kept
    assert LLAMA_3_70B.activation_bytes() / LLAMA_3_70B.tokens() / LLAMA_3_70B.hidden == 33.5


def test_tensor_parallel_leaves_norms_whole_and_sequence_parallel_does_not() -> None:
    each = GPT_175B.tokens() * GPT_175B.hidden
    assert GPT_175B.activation_bytes(1, 8, recompute="selective") == each * (10 + 24 / 8)
    assert GPT_175B.activation_bytes(1, 8, True, "selective") == each * 34 / 8
    assert GPT_175B.pointwise_bytes(1, 8) == each * (22 + 16 / 8)
    assert GPT_175B.pointwise_bytes(1, 8, True) == each * 38 / 8
    assert LLAMA_3_8B.pointwise_bytes(fused=False) > 2 * LLAMA_3_8B.pointwise_bytes()


def test_the_loss_of_a_large_vocabulary_is_large() -> None:
    """torchtitan: 27.4 of the 77 GiB that an H100 holds at the peak."""
    assert round(LLAMA_3_8B.loss_bytes(2) / GIB, 1) == 27.4
    assert LLAMA_3_8B.loss_bytes(2, tensor=8) == LLAMA_3_8B.loss_bytes(2) / 8


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Transformer(2, 100, 7, 8, 9), r"not a multiple of heads.*\n.*heads=4 or 5.*\n.*hidden 100, heads 7"),
        (lambda: Transformer(2, 64, 8, 8, 9, kv_heads=3), "heads is not a multiple of kv_heads"),
        (lambda: LLAMA_3_8B.check_tensor(16), r"8 heads of keys and values.*\n.*\n.*got: +16\n.*1, 2, 4, 8"),
        (lambda: GPT_175B.activation_bytes(tensor=5), "96 heads, which cannot be split over 5"),
        (lambda: LLAMA_65B.state_bytes(bits=4), "weights of so few bits are not trained"),
        (lambda: LLAMA_65B.model_flops(formula="mine"), "there is no such formula"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(make: Any, said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        make()
