"""What others have measured and published, row by row, with where it stands: nothing here is ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from lib import Plan
from lib.real import (
    A100_40_P4D,
    A100_MEGATRON,
    A100_TORCHTITAN,
    DEEPSEEK_V3,
    GPT_1T,
    GPT_175B,
    H100_DGX,
    H100_MEGATRON,
    H100_TORCHTITAN,
    H200_DGX,
    H800_DEEPSEEK,
    LLAMA_2_7B,
    LLAMA_2_13B,
    LLAMA_2_70B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_3_405B,
    MEGATRON_22B,
    MEGATRON_530B,
    MIXTRAL_8X7B,
    Cluster,
    Transformer,
)
from lib.real.prices import RealCost
from tools import foundry


class Pipeline(NamedTuple):
    """A model on a pipeline of stages of 8 GPUs each. GiB of a GPU, and seconds of a step."""

    model: Transformer
    micro_batch: int
    stages: int
    chunks: int
    batches: int
    states: float  # GiB
    whole: float  # GiB of activations, all kept
    less: float  # GiB of activations, with sequence parallel and selective recomputation
    full: float  # seconds, everything recomputed
    present: float  # seconds, with sequence parallel and selective recomputation


MEGATRON = (
    Pipeline(MEGATRON_22B, 4, 1, 1, 1, 45.5625, 59.25, 9.5625, 1.42, 1.10),
    Pipeline(GPT_175B, 1, 8, 3, 64, 45.5625, 66.84375, 12.3515625, 18.13, 13.75),
    Pipeline(MEGATRON_530B, 1, 35, 3, 280, 31.640625, 114.0234375, 23.076171875, 49.05, 37.83),
    Pipeline(GPT_1T, 1, 64, 1, 512, 32.958984375, 131.25, 26.5625, 94.42, 71.49),
)
"""arXiv 2205.05198, figure 1 and table 5, in the digits of calculon/llm/validation.py, which stands in
github.com/calculon-ai/calculon."""


class Chosen(NamedTuple):
    """How a model was trained where it was published. ``plan``: without seconds and bytes; ``took``: the seconds of a
    step that were measured, and ``source``, where that stands; ``given``: other arguments of ``plan``."""

    model: Transformer
    cluster: Cluster
    gpus: int
    batch: int  # sequences of a step
    plan: Plan
    took: float = 0.0
    source: str = ""
    given: dict[str, Any] = {}  # noqa: RUF012  (nobody changes it)


FSDP2: dict[str, Any] = {"stored": 4, "gradients": 4, "gathered": 2, "reduced": 4}
"""Bytes of a number: weights and gradients are kept in 4, weights are gathered in 2, gradients reduced in 4."""


class Sharded(NamedTuple):
    """A model under FSDP2, and the tokens a second of each GPU."""

    name: str
    cluster: Cluster
    model: Transformer
    gpus: int
    micro_batch: int
    recompute: str
    tokens: float
    fused: bool
    tensor: int = 1
    fp8: bool = False
    overlap: bool = False


def _a100(model: Transformer, micro_batch: int, recompute: str, tokens: float) -> Sharded:
    name = f"{model.name}, {micro_batch} a GPU, {recompute}"
    return Sharded(name, A100_TORCHTITAN, model, 64, micro_batch, recompute, tokens, fused=False)


LAYER, PRODUCT = "every second layer", "every second product"
TORCHTITAN_A100 = (
    _a100(LLAMA_3_8B, 1, LAYER, 2904),
    _a100(LLAMA_3_8B, 1, PRODUCT, 2973),
    _a100(LLAMA_3_70B, 1, "full", 331),
    _a100(LLAMA_2_13B, 2, "none", 2162),
    _a100(LLAMA_2_13B, 2, LAYER, 1914),
    _a100(LLAMA_2_13B, 2, PRODUCT, 1904),
    _a100(LLAMA_2_70B, 1, PRODUCT, 355),
    _a100(LLAMA_2_70B, 2, "full", 353),
)
"""github.com/pytorch/torchtitan, docs/performance.md as of 2024: 64 A100, tokens a second."""


def _h100(gpus: int, fused: bool, tokens: float) -> Sharded:
    name = f"{LLAMA_3_8B.name}, {gpus} GPUs, {'compiled' if fused else 'not compiled'}"
    return Sharded(name, H100_TORCHTITAN, LLAMA_3_8B, gpus, 2, PRODUCT, tokens, fused)


TORCHTITAN_H100 = (
    _h100(8, True, 6667),
    _h100(8, False, 5762),
    _h100(128, True, 6514),
    _h100(128, False, 5605),
)
"""The same, benchmarks/llama3_h100_202412_torchtitan.md."""
_IN_8_BITS = replace(H100_TORCHTITAN, name="H100 96 GB 500 W, torchtitan 2024, in 8 bits")
_H200 = replace(
    H200_DGX, name="H200 141 GB, torchtitan 2025", attention_reached=0.37, attention_back_reached=0.3, cast_bytes=10,
)  # fmt: skip
"""Attention is FlashAttention-2, as published for 700 W (arXiv 2407.08608); all else is as assumed for a DGX H200."""


def _fp8(cluster: Cluster, model: Transformer, gpus: int, tokens: float, **other: Any) -> Sharded:
    said = ", asynchronous" * other.get("overlap", False)
    known: dict[str, Any] = {"micro_batch": 2, "recompute": PRODUCT, **other}
    name = f"{model.name}, {gpus} {cluster.name.split()[0]}, 8 bits{said}"
    return Sharded(name, cluster, model, gpus, tokens=tokens, fused=True, fp8=True, **known)


_WITH_TENSOR: dict[str, Any] = {"micro_batch": 16, "recompute": "full", "tensor": 8}
TORCHTITAN_FP8 = (
    _fp8(_IN_8_BITS, LLAMA_3_8B, 8, 8532),
    _fp8(_IN_8_BITS, LLAMA_3_8B, 128, 8380),
    _fp8(_IN_8_BITS, LLAMA_3_70B, 256, 829, **_WITH_TENSOR),
    _fp8(_IN_8_BITS, LLAMA_3_70B, 256, 876, **_WITH_TENSOR, overlap=True),
    _fp8(_H200, LLAMA_3_8B, 32, 10938),
    _fp8(_H200, LLAMA_3_8B, 64, 10753),
)
"""The same, tables 1, 3 and 4, and of H200 benchmarks/llama3_8b_h200_2025-06_torchtitan.md. Nothing is fitted on
them."""
H100_MEMORY = {8: 77.0, 128: 62.0}
"""GiB that are reserved at the peak, by GPUs, compiled: the same table."""

THREE_CLUSTERS = {2240: 60.1, 2800: 50.2, 3360: 44.4}
"""GPUs, and seconds of a step of 1,920 sequences of the 530B model: Smith et al., arXiv 2201.11990, as in
github.com/cli99/llm-analysis, examples/megatron-turing-nlg."""
INTERLEAVED = (100, 128)
"""Tokens a second of a GPU, with 1F1B and with two chunks, 8 stages and 8 micro-batches, of Llama 3.1 405B on 512 H100:
github.com/pytorch/torchtitan, docs/performance.md as of 2025."""
ADAPTERS = ((LLAMA_2_7B, 16891, 24824), (LLAMA_2_13B, 10176, 14629), (LLAMA_2_70B, 1816, 2621))
"""Tokens a second of a GPU of a DGX H100, all weights trained and adapters alone: docs.nvidia.com, NeMo Framework
24.12, performance summary."""
ADAPTED_BATCH = 32
"""Micro-batches of one sequence in each step of these: the same table."""
ANNOUNCED = ((GPT_175B, 20, 512, 159), (GPT_1T, 4, 2048, 84))
"""Micro-batch, sequence and TFLOP/s of a GPU, on 128 A100 of 40 GB: PyTorch's announcement of FSDP, 2022. Parameters
were offloaded to the processors."""


LONG = (16, 16, 16, 380)
"""Stages, ways of context, micro-batches of a replica, and TFLOP/s of each of 16,384 H100, with 8 ways of tensor
parallelism: Llama 3 405B at 131,072 tokens, arXiv 2407.21783, table 4."""
LLAMA_405B = (16384, 2048, 400)
"""GPUs, sequences of 8,192 tokens in a step, and TFLOP/s of each GPU, with 16 stages, 8 ways of tensor parallelism and
128 replicas, of Llama 3 405B: the same table."""
DEEPSEEK_STEP = (16, 64, 15360, 2048, 180_000 * 3600 * 15360 * 4096 / 1e12 / 2048)
"""Stages, ways of expert parallelism, sequences of a step, GPUs, and seconds of a step of DeepSeek-V3: arXiv
2412.19437, section 3.2 and 4.2, and 180,000 hours of an H800 for 10¹² tokens in its table 1."""


def too_large() -> tuple[tuple[Transformer, RealCost], ...]:
    """Return models and prices of FSDP on 128 GPUs that are known not to have fitted: the announced model of 10¹²
    parameters, without the offload of its parameters, and with nothing computed again."""
    model, micro_batch, sequence, _ = ANNOUNCED[1]
    model = replace(model, sequence=sequence)
    return tuple(
        (model, A100_40_P4D.cost(model, micro_batch=micro_batch, recompute=how, optimizer="sgd"))
        for how in ("full", "none")
    )


def _sharded_choice(row: Sharded) -> Chosen:
    each = row.gpus * row.micro_batch
    way = Plan("sharded", row.gpus, 1, 1, 1, row.micro_batch, row.recompute)
    took = row.model.tokens(row.micro_batch) / row.tokens
    return Chosen(
        row.model, row.cluster, row.gpus, each, way, took, "torchtitan, docs/performance.md and benchmarks", FSDP2
    )


def _foundry_choice(row: foundry.Row) -> Chosen:
    way = Plan("sharded", row.gpus, 1, 1, 1, row.micro_batch, row.recompute)
    batch = row.gpus * row.micro_batch * row.batches
    return Chosen(
        row.model,
        row.cluster,
        row.gpus,
        batch,
        way,
        row.seconds,
        "LLM Foundry, scripts/train/benchmarking",
        {**FSDP2, "reduced": row.reduced},
    )


BLOOM = Transformer(70, 14336, 112, 2048, 250_880, tied=True, name="BLOOM 176B")
"""arXiv 2211.05100, table 3. It has no embedding of positions, which is one part in 6,000."""
JEAN_ZAY = replace(A100_MEGATRON, name="A100 80 GB, Jean Zay 2022", nic=6.25e9)
"""Four cards of 100 Gbit/s for each node of eight GPUs: the same, section 3.4.1. The software is taken for that of
Megatron."""


def _bloom() -> Chosen:
    """Without sequence parallelism; 105 seconds a step: github.com/bigscience-workshop/bigscience,
    train/tr11-176B-ml/README.md."""
    way = Plan("pipeline", 8, 12, 1, 4, 2, "full", split=(5, *(6,) * 10, 5))
    source = "bigscience, train/tr11-176B-ml"
    return Chosen(BLOOM, JEAN_ZAY, 384, 2048, way, 105.0, source, {"sequence_parallel": False})


def _llama_405b() -> Chosen:
    """At 400 TFLOP/s of each GPU. Nobody has said how many chunks a stage had; four are assumed here, which are as the
    planner would divide 126 layers into 64."""
    gpus, batch, tflops = LLAMA_405B
    way = Plan("interleaved", 128, 16, 4, 8, 1, "none", split=(*(1,) * 1, *(2,) * 62, 1))
    took = LLAMA_3_405B.model_flops() * batch / gpus / tflops / 1e12
    return Chosen(LLAMA_3_405B, H100_DGX, gpus, batch, way, took, "arXiv 2407.21783, table 4; 4 chunks assumed")


def _deepseek() -> Chosen:
    """Norms and what latent attention makes of its latents were computed again."""
    stages, ways, batch, gpus, took = DEEPSEEK_STEP
    again = ("layernorm", "mla_up_proj")
    way = Plan("pipeline", gpus // stages, stages, 1, 1, 1, again, expert_parallel=ways, split=(4,) * 13 + (3,) * 3)
    return Chosen(
        DEEPSEEK_V3, H800_DEEPSEEK, gpus, batch, way, took, "arXiv 2412.19437, sections 3 and 4", {"fp8": True}
    )


def _llama_70b() -> Chosen:
    """At 1,619 tokens a second of each GPU, in 8 bits: release 25.09."""
    way = Plan("interleaved", 2, 8, 5, 4, 1, "none")
    took, source = 128 * LLAMA_3_70B.sequence / 64 / 1619, "Megatron-Bridge, docs/performance-summary-archive.md"
    return Chosen(LLAMA_3_70B, H100_MEGATRON, 64, 128, way, took, source, {"fp8": True})


def _mixtral() -> Chosen:
    """At 468 TFLOP/s of each GPU, in 16 bits: Megatron Core 0.9, which hid nothing of experts; the mapping of 0.8."""
    cluster = replace(H100_MEGATRON, name="H100 80 GB, Megatron 2024", experts_hidden=0.0, sent_once=False)
    model, way = replace(MIXTRAL_8X7B, sequence=4096), Plan("interleaved", 16, 4, 8, 1, 1, "none", expert_parallel=8)
    took = model.model_flops() * 256 / 64 / 468e12
    return Chosen(model, cluster, 64, 256, way, took, "Megatron-LM, megatron/core/transformer/moe/README.md")


def _smallest_of_foundry() -> Chosen:
    """The first row of a model of 7 billion parameters and 2,048 tokens on eight A100s of 80 GB."""
    some = (
        row for row in foundry.rows() if row.gpus == 8 and row.model.name == "MPT 7b" and row.model.sequence == 2048
    )
    return _foundry_choice(next(row for row in some if row.cluster.memory > 80e9))


NOT_FITTED = (_bloom(), _llama_405b(), _llama_70b(), _mixtral(), _deepseek())
"""Set-ups whose software no row is fitted on."""
CHOSEN = (
    *(
        Chosen(
            row.model, A100_MEGATRON, 8 * row.stages, row.batches * row.micro_batch,
            Plan(
                "interleaved" if row.chunks > 1 else "pipeline", 1, row.stages, row.chunks, 8, row.micro_batch,
                "selective",
            ),
            row.present, "arXiv 2205.05198, table 5",
        )
        for row in MEGATRON[1:]
    ),
    *map(_sharded_choice, (TORCHTITAN_A100[1], TORCHTITAN_A100[3], TORCHTITAN_H100[2])),
    *map(_foundry_choice, (foundry.rows()[0], foundry.rows()[2])),
    _smallest_of_foundry(),
    *NOT_FITTED,
)  # fmt: skip
"""The set-ups of three rows of arXiv 2205.05198, table 5, of three of torchtitan's, the fastest that it has of each
model and GPU, of LLM Foundry's two largest models and one of 7 billion, the first rows of each, and those above."""
