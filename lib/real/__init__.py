"""Real models on real machines: what a step of training takes in seconds and bytes.

===========  ======================================================================
transformer  weights, operations, and bytes of a transformer
hardware     GPUs in nodes: how fast they compute and what links them
prices       a Cost of both, in seconds and bytes
cluster      hardware that makes such a Cost
report       where time and memory of a run go, as text
presets      models and clusters whose figures are published
real         this file: what is imported from it
===========  ======================================================================
"""

from .cluster import Cluster
from .presets import (
    A100_40_P4D,
    A100_MEGATRON,
    A100_TORCHTITAN,
    GPT_1T,
    GPT_2_XL,
    GPT_175B,
    H100_DGX,
    H100_TORCHTITAN,
    LLAMA_2_7B,
    LLAMA_2_13B,
    LLAMA_2_70B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_3_405B,
    LLAMA_65B,
    MEGATRON_22B,
    MEGATRON_530B,
    RTX_4090,
)
from .report import report
from .transformer import Transformer

__all__ = [
    "A100_40_P4D",
    "A100_MEGATRON",
    "A100_TORCHTITAN",
    "GPT_1T",
    "GPT_2_XL",
    "GPT_175B",
    "H100_DGX",
    "H100_TORCHTITAN",
]
__all__ += ["LLAMA_2_7B", "LLAMA_2_13B", "LLAMA_2_70B", "LLAMA_3_8B", "LLAMA_3_70B", "LLAMA_3_405B", "LLAMA_65B"]
__all__ += ["MEGATRON_22B", "MEGATRON_530B", "RTX_4090", "Cluster", "Transformer", "report"]
