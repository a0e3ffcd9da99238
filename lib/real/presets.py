"""Models and clusters whose figures are published. ``reached`` was fitted on published rows, which are named (`make
papers` prints how the others come out), or is assumed. What the numbers mean is in ``Hardware``."""

from dataclasses import replace
from typing import Any

from .hardware import MIB
from .prices import Cluster
from .transformer import FUSED, Transformer


def _llama(layers: int, hidden: int, heads: int, sequence: int, vocabulary: int, **more: Any) -> Transformer:
    return Transformer(layers, hidden, heads, sequence, vocabulary, gated=True, attention="flash", **more)


# -- models: sizes from the tables of the papers that trained them ----------------------------------

GPT_2_XL = Transformer(48, 1600, 25, 1024, 50257, tied=True, name="GPT-2 XL")
"""Radford et al., "Language Models are Unsupervised Multitask Learners", table 2, and the published configuration."""
GPT_175B = Transformer(96, 12288, 96, 2048, 51200, tied=True, name="GPT-3 175B")
"""Brown et al., arXiv 2005.14165, table 2.1, with Megatron's vocabulary of 51,200 words."""
GPT_1T = Transformer(128, 25600, 160, 2048, 51200, tied=True, name="GPT 1T")
MEGATRON_22B = Transformer(48, 6144, 64, 2048, 51200, tied=True, name="Megatron 22B")
MEGATRON_530B = Transformer(105, 20480, 128, 2048, 51200, tied=True, name="MT-NLG 530B")
"""Korthikanti et al., arXiv 2205.05198, table 3; Smith et al., arXiv 2201.11990."""
LLAMA_3_8B = _llama(32, 4096, 32, 8192, 128256, kv_heads=8, feed_forward=14336, name="Llama 3 8B")
LLAMA_3_70B = _llama(80, 8192, 64, 8192, 128256, kv_heads=8, feed_forward=28672, name="Llama 3 70B")
LLAMA_3_405B = _llama(126, 16384, 128, 8192, 128256, kv_heads=8, feed_forward=53248, name="Llama 3 405B")
"""Grattafiori et al., arXiv 2407.21783, table 3."""
LLAMA_2_7B = _llama(32, 4096, 32, 4096, 32000, feed_forward=11008, name="Llama 2 7B")
LLAMA_2_13B = _llama(40, 5120, 40, 4096, 32000, feed_forward=13824, name="Llama 2 13B")
LLAMA_2_70B = _llama(80, 8192, 64, 4096, 32000, kv_heads=8, feed_forward=28672, name="Llama 2 70B")
"""Touvron et al., arXiv 2307.09288, and the configurations that were published with the weights."""
LLAMA_65B = _llama(80, 8192, 64, 2048, 32000, feed_forward=22016, name="Llama 65B")
"""Touvron et al., arXiv 2302.13971, table 2; the model of QLoRA, arXiv 2305.14314."""

LLAMA_3_405B_LONG = replace(LLAMA_3_405B, sequence=131_072, name="Llama 3 405B, 131,072 tokens")
"""The same at the length of its last stage of training: table 4 of that paper."""
MIXTRAL_8X7B = _llama(
    32, 4096, 32, 32768, 32000, kv_heads=8, feed_forward=14336, experts=8, chosen=2, expert_hidden=14336,
    name="Mixtral 8x7B",
)  # fmt: skip
"""Jiang et al., arXiv 2401.04088, table 1: 46.7 billion parameters, of which a token uses 12.9."""
DEEPSEEK_V3 = _llama(
    61, 7168, 128, 4096, 129280, feed_forward=18432, head_width=128, latent=(1536, 512, 64), experts=256, chosen=8,
    expert_hidden=2048, shared_experts=1, dense_layers=3, most_nodes=4, router_biases=True, name="DeepSeek-V3",
)  # fmt: skip
"""DeepSeek-AI, arXiv 2412.19437, section 4.2, and README_WEIGHTS.md beside the weights: 671 billion parameters, of
which a token uses 36.6 without the embedding. Its second head, which predicts one token more, is left out."""
QWEN_3_8B = _llama(
    36, 4096, 32, 4096, 151936, kv_heads=8, feed_forward=12288, head_width=128, head_norms=True, name="Qwen3 8B"
)
QWEN_3_32B = _llama(
    64, 5120, 64, 4096, 151936, kv_heads=8, feed_forward=25600, head_width=128, head_norms=True, name="Qwen3 32B"
)
QWEN_3_235B = _llama(
    94, 4096, 64, 4096, 151936, kv_heads=4, head_width=128, head_norms=True, experts=128, chosen=8,
    expert_hidden=1536, name="Qwen3 235B-A22B",
)  # fmt: skip
"""Qwen team, arXiv 2505.09388, tables 1 and 2, and the configurations that were published with the weights."""
OLMO_2_7B = _llama(32, 4096, 32, 4096, 100352, feed_forward=11008, wide_norms=True, name="OLMo 2 7B")
OLMO_2_13B = _llama(40, 5120, 40, 4096, 100352, feed_forward=13824, wide_norms=True, name="OLMo 2 13B")
OLMO_2_32B = _llama(64, 5120, 40, 4096, 100352, kv_heads=8, feed_forward=27648, wide_norms=True, name="OLMo 2 32B")
"""OLMo team, arXiv 2501.00656, and src/olmo_core/nn/transformer/config.py of github.com/allenai/OLMo-core: norms after
attention and the feed-forward part, and of queries and keys over their whole width. 100,352 words as published."""

# -- clusters: a machine and a software stack, with its date ---------------------------------------

# How ``reached`` falls with the smallest dimension is the same for all stacks of a GPU: 300 for an A100 fits LLM
# Foundry's rows (below), and 8192 x 1600 x 6400 at 237 TFLOP/s (gist.github.com/rizar, 2022) lies on that curve. An
# H100 computes 1.9 times as much for each byte that it reads. The best products of any size reach 0.87 of the peak on
# an A100, 0.80 on an H100 and an H200, 0.78 on a B200, 0.73 on a GB200, 0.51 on an MI300X: github.com/stas00/
# ml-engineering, "Maximum Achievable Matmul FLOPS", 2025.
_A100_HALF, _H100_HALF = 300, 600
_A100, _A100_40, _H100 = 81_920 * MIB, 40_960 * MIB, 81_559 * MIB
"""What nvidia-smi says that these cards have."""

A100_MEGATRON = Cluster(
    "A100 80 GB, Megatron 2022", peak=312e12, reached=0.83, half_reached_at=_A100_HALF, attention_reached=0.5,
    memory=_A100, memory_bandwidth=2.039e12, link=300e9, nic=25e9,
)  # fmt: skip
"""DGX A100: NVIDIA's sheets for the A100 80 GB SXM and for the node (8 cards of 200 Gbit/s). Megatron-LM as of arXiv
2205.05198 (May 2022), fp16, with scores of attention in memory, whose products have a dimension of 96 to 160: 0.5 is
assumed. 0.828 fits the step of 18.13 s of GPT-3 in table 5."""
A100_TORCHTITAN = Cluster(
    "A100 80 GB, torchtitan 2024", peak=312e12, reached=0.69, half_reached_at=_A100_HALF, attention_reached=0.62,
    attention_back_reached=0.56, memory=_A100, memory_bandwidth=2.039e12, link=300e9, nic=25e9, fused=False,
)  # fmt: skip
"""The same GPU with PyTorch FSDP2, bf16, not compiled: docs/performance.md of torchtitan, 2024. FlashAttention-2
reaches 0.5 to 0.73 of the peak there (arXiv 2307.08691), backward less than forward. The links of this cluster are not
published; DGX's are assumed, and hardly matter: they are hidden. 0.699 fits the 2,904 tokens a second of Llama 3 8B."""
A100_LLM_FOUNDRY = Cluster(
    "A100 80 GB, LLM Foundry 2023", peak=312e12, reached=0.78, half_reached_at=_A100_HALF, attention_reached=0.355,
    attention_back_reached=0.3, loss_bytes=FUSED, memory=_A100, memory_bandwidth=2.039e12, link=300e9, nic=25e9,
    fused=False,
)  # fmt: skip
"""MosaicML's LLM Foundry of 2023, PyTorch 1.13 with FSDP, not compiled, with flash-attn's fused cross-entropy: 61 rows
of MPT in scripts/train/benchmarking of github.com/mosaicml/llm-foundry. Attention is the first FlashAttention's kernel
in Triton: 0.355 is 1.86 ms for 8 x 12 heads of 64 and 4,096 tokens (github.com/Dao-AILab/flash-attention, issue 142).
0.78 and 0.3 fit two of every three of these rows."""
A100_40_LLM_FOUNDRY = replace(
    A100_LLM_FOUNDRY, name="A100 40 GB, LLM Foundry 2023", reached=0.74, memory=_A100_40, memory_bandwidth=1.555e12
)
"""The same with 40 GB, and software some months older: 78 rows of that table. 0.743 fits two of every three."""
H100_LLM_FOUNDRY = Cluster(
    "H100 80 GB, LLM Foundry 2023", peak=989e12, reached=0.7, half_reached_at=_H100_HALF, attention_reached=0.185,
    attention_back_reached=0.15, loss_bytes=FUSED, memory=_H100, memory_bandwidth=3.35e12, link=450e9, nic=50e9,
    fused=False,
)  # fmt: skip
"""The same on a DGX H100, with PyTorch 2.0. No row is fitted. ``reached`` is assumed. Attention is the same kernel,
which does not know the instructions of an H100; FlashAttention-2, which does not either, is 1.65 times as fast as on an
A100 (370 TFLOP/s in arXiv 2407.08608, 225 in arXiv 2307.08691)."""
H100_TORCHTITAN = Cluster(
    "H100 96 GB 500 W, torchtitan 2024", peak=989e12, reached=0.55, half_reached_at=_H100_HALF, attention_reached=0.28,
    attention_back_reached=0.227, memory=95.04 * 2**30, memory_bandwidth=2.4e12, link=450e9, nic=50e9,
    peak_fp8=1979e12, cast_bytes=10, ring=True,
)  # fmt: skip
"""H100 with HBM2e, limited to 500 W, with a card of 400 Gbit/s each; PyTorch FSDP2, bf16, compiled:
benchmarks/llama3_h100_202412 of torchtitan, whose log says 95.04 GiB. The peak is the nominal one of the 700 W part. Of
that FlashAttention-2 reaches 370 TFLOP/s forward (arXiv 2407.08608), and 0.3 backward; both are taken to fall with the
power as products do, from 0.7 to 0.53. 0.544 fits the 6,667 tokens a second of 8 GPUs. A cast moves 10 bytes for each
number, compiled, as was measured. Keys and values are repeated for all heads, then shared by a ring (repeat_kv)."""
H100_DGX = Cluster(
    "H100 80 GB", peak=989e12, reached=0.7, half_reached_at=_H100_HALF, attention_reached=0.6,
    attention_back_reached=0.5, memory=_H100, memory_bandwidth=3.35e12, link=450e9, nic=50e9,
    peak_fp8=1979e12, host_link=64e9,
)  # fmt: skip
"""DGX H100: NVIDIA's sheet, with PCIe 5.0 to the host, of which 55 GB/s were measured (``make papers``). All three
parts are assumed; FlashAttention-3 reaches up to 0.75 of the peak forward, less backward (arXiv 2407.08608)."""
H100_MEGATRON = replace(H100_DGX, name="H100 80 GB, Megatron 2025", overlap=True, experts_hidden=0.35, sent_once=True)
"""The same with Megatron Core and Transformer Engine of September 2025 and later, which send tensor-parallel traffic
while products are computed (``tp_comm_overlap``): docs/performance-summary of github.com/NVIDIA-NeMo/Megatron-Bridge.
No row is fitted. Tokens go to experts by DeepEP, a part of that time beside another micro-batch, as can be done since
Core 0.14 of September 2025 (``overlap_moe_expert_parallel_comm``): 0.35 of it by our prices, as without that a step of
Qwen3 235B took 19.7 s, with it 17.6 (best_practice/Qwen3 of github.com/yanring/Megatron-MoE-ModelZoo). Seconds of a
model with experts hold for no release: Qwen3 30B had 23,766, then 39,936 tokens/s."""
H100_PYTORCH = replace(
    H100_DGX, name="H100 80 GB, PyTorch 2026", reached=0.73, half_reached_at=0, attention_reached=0.57,
    attention_back_reached=0.5, fused=False, fused_norms=True, cast_bytes=10,
)  # fmt: skip
"""One H100 80 GB HBM3 (700 W) measured for this course on 26 November 2026, with PyTorch 2.11 and CUDA 13.0, bf16, not
compiled: ``tools/h100_2026.csv``. A quarter of the products of 512 or more reach 0.73, half of them 0.71; below some
400 a product takes what its bytes take. Attention is cuDNN's, of 8,192 tokens. The links are those of a DGX H100.
``replace(H100_PYTORCH, fused=True, loss_bytes=FUSED)`` is the same compiled."""
A100_40_P4D = Cluster(
    "A100 40 GB, p4d", peak=312e12, reached=0.74, half_reached_at=_A100_HALF, attention_reached=0.5, memory=_A100_40,
    memory_bandwidth=1.555e12, link=300e9, nic=6.25e9,
)  # fmt: skip
"""Eight GPUs that share 400 Gbit/s of network: AWS's p4d.24xlarge, on which PyTorch's FSDP was announced in 2022."""
RTX_4090 = Cluster(
    "RTX 4090", peak=165e12, reached=0.65, half_reached_at=_A100_HALF, memory=24_564 * MIB, memory_bandwidth=1.008e12,
    link=25e9, nic=1.25e9 / 8, host_memory=512e9, host_bandwidth=60e9,
)  # fmt: skip
"""A node of eight gaming GPUs without NVLink: PCIe 4.0 x16 between them, and one card of 10 Gbit/s. ``reached`` is
assumed, not fitted; it computes about as much as an A100 for each byte that it reads."""
H800_DEEPSEEK = Cluster(
    "H800 80 GB", peak=989e12, reached=0.7, half_reached_at=_H100_HALF, attention_reached=0.6,
    attention_back_reached=0.5, memory=_H100, memory_bandwidth=3.35e12, link=200e9, nic=50e9, peak_fp8=1979e12,
    experts_hidden=1.0, sent_once=True,
)  # fmt: skip
"""The nodes of arXiv 2412.19437, section 3.1 and 3.2.2: eight H800, links of 200 GB/s in one direction, of which 160
are reached, and a card of 400 Gbit/s each. ``reached`` is assumed as for ``H100_DGX``. Two directions of a pipeline
hide all traffic of experts, and a token is sent to a node once (December 2024, section 3.2)."""

# Of the GPUs below no row is fitted. ``reached`` is as far below the best product that was found (see above) as it is
# assumed for H100_DGX, ``half_reached_at`` goes with how much each computes for a byte that it reads, and the parts of
# attention are those of H100_DGX.

H200_DGX = replace(
    H100_DGX, name="H200 141 GB", memory=143_771 * MIB, memory_bandwidth=4.8e12, half_reached_at=400
)  # fmt: skip
"""DGX H200: NVIDIA's sheet. It computes as an H100 does, with more memory that is faster."""
B200_DGX = replace(
    H100_DGX, name="B200 180 GB", peak=2250e12, peak_fp8=4500e12, reached=0.68, half_reached_at=550,
    memory=183_359 * MIB, memory_bandwidth=8e12, link=900e9,
)  # fmt: skip
"""DGX B200: NVIDIA's sheet, a card of 400 Gbit/s for each GPU."""
GB200_NVL72 = replace(
    B200_DGX, name="GB200 NVL72", peak=2500e12, peak_fp8=5000e12, reached=0.64, half_reached_at=600,
    memory=186e9, gpus_per_box=72, host_link=225e9,
)  # fmt: skip
"""NVIDIA's sheet: 72 GPUs in one domain of NVLink, with 13.4 TB of memory and 576 TB/s together, and 900 GB/s, both
ways together, between a processor and its two GPUs."""
MI300X = replace(
    H100_DGX, name="MI300X 192 GB", peak=1307e12, peak_fp8=2615e12, reached=0.45, half_reached_at=480,
    memory=196_592 * MIB, memory_bandwidth=5.3e12, link=448e9,
)  # fmt: skip
"""Eight in a node: AMD's sheet of the MI300X platform, seven links of 64 GB/s in each direction from each GPU."""
