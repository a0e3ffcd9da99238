"""Models and clusters whose figures are published. ``reached`` was fitted on one published row, which is named (`make
papers` prints how the others come out), or is assumed. What the numbers mean is in ``Hardware``."""

from typing import Any

from .prices import Cluster
from .transformer import Transformer


def _llama(layers: int, hidden: int, heads: int, sequence: int, vocabulary: int, **more: Any) -> Transformer:
    return Transformer(layers, hidden, heads, sequence, vocabulary, gated=True, attention="flash", **more)


# -- models: sizes from the tables of the papers that trained them ----------------------------------

GPT_2_XL = Transformer(48, 1600, 25, 1024, 50257, tied=True, name="GPT-2 XL")
"""Radford et al., "Language Models are Unsupervised Multitask Learners", table 2, and the published configuration."""
GPT_175B = Transformer(96, 12288, 96, 2048, 51200, tied=True, name="GPT-3 175B")
"""Brown et al., arXiv 2005.14165, table 2.1, with Megatron's vocabulary of 51,200 words."""
GPT_1T = Transformer(128, 25600, 160, 2048, 51200, tied=True, name="GPT 1T")
"""Korthikanti et al., arXiv 2205.05198, table 3."""
MEGATRON_22B = Transformer(48, 6144, 64, 2048, 51200, tied=True, name="Megatron 22B")
"""The same table."""
MEGATRON_530B = Transformer(105, 20480, 128, 2048, 51200, tied=True, name="MT-NLG 530B")
"""The same table; Smith et al., arXiv 2201.11990."""
LLAMA_3_8B = _llama(32, 4096, 32, 8192, 128256, kv_heads=8, feed_forward=14336, name="Llama 3 8B")
"""Grattafiori et al., arXiv 2407.21783, table 3."""
LLAMA_3_70B = _llama(80, 8192, 64, 8192, 128256, kv_heads=8, feed_forward=28672, name="Llama 3 70B")
"""The same table."""
LLAMA_3_405B = _llama(126, 16384, 128, 8192, 128256, kv_heads=8, feed_forward=53248, name="Llama 3 405B")
"""The same table."""
LLAMA_2_7B = _llama(32, 4096, 32, 4096, 32000, feed_forward=11008, name="Llama 2 7B")
"""Touvron et al., arXiv 2307.09288, and the configuration that was published with the weights."""
LLAMA_2_13B = _llama(40, 5120, 40, 4096, 32000, feed_forward=13824, name="Llama 2 13B")
"""The same."""
LLAMA_2_70B = _llama(80, 8192, 64, 4096, 32000, kv_heads=8, feed_forward=28672, name="Llama 2 70B")
"""The same."""
LLAMA_65B = _llama(80, 8192, 64, 2048, 32000, feed_forward=22016, name="Llama 65B")
"""Touvron et al., arXiv 2302.13971, table 2; the model of QLoRA, arXiv 2305.14314."""

# -- clusters: a machine and a software stack -------------------------------------------------------

A100_MEGATRON = Cluster(
    "A100 80 GB, Megatron 2022", peak=312e12, reached=0.71, memory=80e9, memory_bandwidth=2.039e12, link=300e9, nic=25e9
)
"""DGX A100: NVIDIA's sheets for the A100 80 GB SXM and for the node (8 cards of 200 Gbit/s). Megatron-LM as of arXiv
2205.05198, fp16, with scores of attention in memory. 0.712 fits the step of 18.13 s of GPT-3 in table 5."""
A100_TORCHTITAN = Cluster(
    "A100 80 GB, torchtitan 2024", peak=312e12, reached=0.64, attention_reached=0.6, memory=80e9,
    memory_bandwidth=2.039e12, link=300e9, nic=25e9, fused=False,
)  # fmt: skip
"""The same GPU with PyTorch FSDP2, bf16, not compiled: docs/performance.md of torchtitan, 2024. FlashAttention-2
reaches 0.5 to 0.73 of the peak there (arXiv 2307.08691). The links of this cluster are not published; DGX's are
assumed, and hardly matter: they are hidden. 0.643 fits the 2,904 tokens a second of Llama 3 8B."""
H100_TORCHTITAN = Cluster(
    "H100 96 GB 500 W, torchtitan 2024", peak=989e12, reached=0.45, attention_reached=0.35, memory=96e9,
    memory_bandwidth=2.4e12, link=450e9, nic=50e9,
)  # fmt: skip
"""H100 with HBM2e, limited to 500 W, with a card of 400 Gbit/s each; PyTorch FSDP2, bf16, compiled:
benchmarks/llama3_h100_202412 of torchtitan. The peak is the nominal one of the 700 W part.
0.446 fits the 6,667 tokens a second of 8 GPUs."""
H100_DGX = Cluster(
    "H100 80 GB", peak=989e12, reached=0.6, attention_reached=0.6, memory=80e9, memory_bandwidth=3.35e12, link=450e9,
    nic=50e9,
)  # fmt: skip
"""DGX H100: NVIDIA's sheet. FlashAttention-3 reaches up to 0.75 of the peak (arXiv 2407.08608). Both parts are
assumed."""
A100_40_P4D = Cluster(
    "A100 40 GB, p4d", peak=312e12, reached=0.68, memory=40e9, memory_bandwidth=1.555e12, link=300e9, nic=6.25e9
)
"""Eight GPUs that share 400 Gbit/s of network: AWS's p4d.24xlarge, on which PyTorch's FSDP was announced in 2022."""
RTX_4090 = Cluster(
    "RTX 4090", peak=165e12, reached=0.6, memory=24e9, memory_bandwidth=1.008e12, link=25e9, nic=1.25e9 / 8,
    host_memory=512e9, host_bandwidth=60e9,
)  # fmt: skip
"""A node of eight gaming GPUs without NVLink: PCIe 4.0 x16 between them, and one card of 10 Gbit/s. ``reached`` is
assumed, not fitted."""
