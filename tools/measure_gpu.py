"""Measure matrix products, attention and layers on a GPU with PyTorch: ``python -m tools.measure_gpu rows.csv``.

It writes rows as ``h100_2026.csv`` has them. Those were made by a longer script, of which this is the part that others
need: it was tried on a CPU only, with ``--small``, which takes tiny sizes. Each figure is the median of as many calls
as take some tenths of a second.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

FEW, MOST, LONG = 3, 100, 0.2
"""Calls of a figure, and the seconds for which they are made."""
COLUMNS = ("set", "name", "how", "batch", "sequence", "rows", "wide", "high", "heads", "kv_heads", "head_width")
TIMES = ("forward_ms", "backward_ms", "ms", "bytes")
LAYERS = {"Llama 3 8B": (4096, 32, 8, 14336), "Llama 3 70B": (8192, 64, 8, 28672), "Llama 2 7B": (4096, 32, 32, 11008)}
TINY = {"tiny": (64, 4, 2, 128)}
Row = dict[str, Any]


class Layer(nn.Module):
    """A layer of the Llama family, not fused by hand."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, hidden // heads
        sizes = {"q": hidden, "k": kv_heads * self.width, "v": kv_heads * self.width, "gate": inner, "up": inner}
        self.into = nn.ModuleDict({name: nn.Linear(hidden, wide, bias=False) for name, wide in sizes.items()})
        self.out, self.down = nn.Linear(hidden, hidden, bias=False), nn.Linear(inner, hidden, bias=False)
        self.norms = nn.ModuleList([nn.RMSNorm(hidden, eps=1e-5) for _ in range(2)])

    def forward(self, inp: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Return what the layer gives."""
        batch, tokens, hidden = inp.shape
        normed = self.norms[0](inp)
        q, k, v = (self.into[name](normed).view(batch, tokens, -1, self.width) for name in "qkv")
        q, k = rotated(q, turns), rotated(k, turns)
        attended = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
            enable_gqa=self.heads != self.kv_heads,
        )  # fmt: skip
        inp = inp + self.out(attended.transpose(1, 2).reshape(batch, tokens, hidden))
        normed = self.norms[1](inp)
        done: torch.Tensor = inp + self.down(functional.silu(self.into["gate"](normed)) * self.into["up"](normed))
        return done


def rotated(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Return queries or keys turned by their positions, in complex numbers of 4 bytes."""
    pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None]).flatten(3).type_as(heads)


def turns_of(tokens: int, width: int, device: str) -> torch.Tensor:
    """Return the rotations of all positions."""
    each = 500_000.0 ** -(torch.arange(0, width, 2, device=device).float() / width)
    angles = torch.outer(torch.arange(tokens, device=device).float(), each)
    return torch.polar(torch.ones_like(angles), angles)


def ms(call: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    """Return the median of the milliseconds that calls take. ``before`` each there is something that does not count."""
    on_gpu = torch.cuda.is_available()

    def once() -> float:
        before()
        if not on_gpu:
            begun = time.perf_counter()
            call()
            return 1e3 * (time.perf_counter() - begun)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last))

    once()
    long = once() / 1e3
    return median(once() for _ in range(max(FEW, min(MOST, int(LONG / max(long, 1e-6))))))


def random(*shape: int, device: str, trained: bool = False) -> torch.Tensor:
    """Return random numbers in 2 bytes."""
    return torch.randn(*shape, device=device, dtype=torch.bfloat16).requires_grad_(trained)


def products(sizes: Sequence[int], large: int, device: str) -> Iterator[Row]:
    """Yield products one of whose dimensions is small."""
    for small in sizes:
        for rows, wide, high in {(small, large, large), (large, small, large), (large, large, small)}:
            left, right = random(rows, wide, device=device), random(wide, high, device=device)
            took = ms(lambda left=left, right=right: left @ right)  # type: ignore[misc]
            yield {"set": "product", "name": "sweep", "rows": rows, "wide": wide, "high": high, "ms": took}


def attention(lengths: Sequence[int], device: str, heads: int = 32, width: int = 128) -> Iterator[Row]:
    """Yield causal attention, forward and backward, of some 16,384 tokens or one sequence, by what PyTorch chooses."""
    for tokens in lengths:
        batch = max(1, max(lengths) // tokens) if max(lengths) < 32768 else max(1, 16384 // tokens)
        shape = (batch, heads, tokens, width)
        q, k, v = (random(*shape, device=device, trained=True) for _ in range(3))
        grad, out = random(*shape, device=device), functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        with torch.no_grad():
            forward = ms(lambda q=q, k=k, v=v: functional.scaled_dot_product_attention(q, k, v, is_causal=True))  # type: ignore[misc]
        given = (q, k, v)
        backward = ms(lambda a=out, b=given, c=grad: torch.autograd.grad(a, b, c, retain_graph=True))  # type: ignore[misc]
        sizes = {"batch": batch, "sequence": tokens, "heads": heads, "kv_heads": heads, "head_width": width}
        yield {"set": "attention", **sizes, "forward_ms": forward, "backward_ms": backward}


def layers(tokens: Sequence[int], device: str, models: dict[str, tuple[int, int, int, int]]) -> Iterator[Row]:
    """Yield layers, forward and backward, and on a GPU the bytes that forward leaves."""
    for name, (hidden, heads, kv_heads, inner) in models.items():
        layer = Layer(hidden, heads, kv_heads, inner).to(device=device, dtype=torch.bfloat16)
        for many in tokens:
            turns, grad = turns_of(many, hidden // heads, device), random(1, many, hidden, device=device)
            inp = random(1, many, hidden, device=device, trained=True)
            held = torch.cuda.memory_allocated() if device == "cuda" else 0
            outs = [layer(inp, turns)]
            left = torch.cuda.memory_allocated() - held if device == "cuda" else 0

            def ahead(inp: Any = inp, turns: Any = turns, outs: Any = outs, layer: Any = layer) -> None:
                layer.zero_grad()
                outs[:] = [layer(inp, turns)]

            forward = ms(ahead, outs.clear)
            backward = ms(lambda outs=outs, grad=grad: outs[0].backward(grad), ahead)  # type: ignore[misc]
            known = {"set": "layer", "name": name, "how": "eager", "batch": 1, "sequence": many, "bytes": left}
            yield {**known, "forward_ms": forward, "backward_ms": backward}


def main(arguments: Sequence[str]) -> None:
    """Write all rows into the file that is named."""
    device, small = "cuda" if torch.cuda.is_available() else "cpu", "--small" in arguments
    found = [
        *products([32] if small else [2**n for n in range(6, 14)], 64 if small else 8192, device),
        *attention([64, 128] if small else [2**n for n in range(9, 17)], device, 4 if small else 32),
        *layers([64] if small else [2048, 8192], device, TINY if small else LAYERS),
    ]
    name = next((one for one in arguments if not one.startswith("-")), "rows.csv")
    with open(Path(name), "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [*COLUMNS, *TIMES], restval="", lineterminator="\n")
        table.writeheader()
        table.writerows({**row, **{key: f"{row[key]:.4f}" for key in TIMES[:3] if key in row}} for row in found)


if __name__ == "__main__":
    main(sys.argv[1:])
