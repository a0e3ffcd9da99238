"""What several pages take for granted: sizes of models and machines. Every page can name them in its figures."""

from typing import Any

# Bytes for each parameter with Adam and 16-bit arithmetic (arXiv 1910.02054).
WEIGHT, GRADIENT, MASTER, AVERAGE = 2, 2, 4, 4
STATE = MASTER + AVERAGE + AVERAGE
TRAINED = WEIGHT + GRADIENT + STATE

OPERATIONS = 6
"""For each parameter and token: 2 forward and 4 backward (arXiv 2001.08361)."""
PEAK, REACHED = 989e12, 0.4
"""Operations a second of an H100 in 16 bits, by its data sheet, and the part of them that training reaches."""
PER_SECOND = 4e14
"""Their product, rounded."""
CARD = 80
"""GB of an A100 or H100, as people say. (The cards have a little more.)"""
IN_NODE, BETWEEN, CABLE = 450, 50, 400
"""GB a second from one GPU: NVLink in a node of H100s (900 both ways), and a network card; and its Gbit a second."""

YEAR, DAY, HOUR = 365.25 * 86_400, 86_400, 3_600
"""Seconds."""

LLAMA, LLAMA_LAYERS, LLAMA_HIDDEN, CONTEXT = 70e9, 80, 8192, 4096
"""Parameters, layers and width of Llama 3 70B (arXiv 2407.21783), and tokens of a micro-batch of these examples."""
LAYER = LLAMA / LLAMA_LAYERS
MODEL, GPUS = 7.5e9, 64
"""The example of the ZeRO paper (arXiv 1910.02054): parameters and GPUs."""

GPT, GPT_LAYERS, GPT_HIDDEN, GPT_HEADS, GPT_SEQUENCE = 175e9, 96, 12_288, 96, 2048
"""GPT-3 (arXiv 2005.14165)."""
INPUT = 2 * GPT_SEQUENCE * GPT_HIDDEN
"""Bytes of the input of one of its layers, for one sequence; what follows is from arXiv 2205.05198."""
KEPT = GPT_SEQUENCE * GPT_HIDDEN * (34 + 5 * GPT_HEADS * GPT_SEQUENCE // GPT_HIDDEN)
"""Bytes of all that a forward of one layer leaves for its backward."""
GPT_LAYER = 2 * 12 * GPT_HIDDEN**2
"""Bytes of the weights of one layer."""


def trained(parameters: float) -> float:
    """Return the bytes of weights, gradients and optimizer states."""
    return TRAINED * parameters


def operations(parameters: float, tokens: float) -> float:
    """Return how many operations it takes to train on so many tokens."""
    return OPERATIONS * parameters * tokens


def ring(ranks: int, size: float, hop: float, links: float) -> float:
    """Return the seconds of a reduce-scatter or an all-gather of so many bytes, half of those of an all-reduce."""
    return (ranks - 1) * hop + (ranks - 1) / ranks * size / links


NAMES: dict[str, Any] = {name: value for name, value in vars().items() if not name.startswith("_")}
