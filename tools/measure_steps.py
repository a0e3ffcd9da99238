"""Measure whole steps on one GPU with PyTorch: ``python -m tools.measure_steps shapes.csv rows.csv``.

``shapes.csv`` has rows of the set ``step`` as ``h100_2026.csv`` has them: the family (Llama or GPT), its sizes, the
micro-batch, what is computed again (``name``) and how it is laid out (``how``): ``FSDP2`` by ``fully_shard`` on a group
of one rank, weights in 4 bytes gathered in 2 and gradients reduced in 4, or ``whole``, weights and gradients in 2 bytes
with main weights of 4 beside them; either with ``, compiled`` behind it. What is measured goes into the last columns:
the median of the steps in ms, the peak of what tensors hold, what the allocator reserved, and how often it had to make
room. A step is one micro-batch forward and backward, clipping by the norm of all gradients, and AdamW.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint

from tools.measure_gpu import Layer, turns_of

WARM, STEPS, TIMES, DROPPED = 3, 5, 3, 0.1
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


class GPTLayer(nn.Module):
    """A layer of the GPT family: LayerNorm, biases, GELU, dropout behind attention and the feed-forward part."""

    def __init__(self, hidden: int, heads: int, _: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in range(2)])
        self.into, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, inp: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        """Return what the layer gives."""
        batch, tokens, hidden = inp.shape
        q, k, v = self.into(self.norms[0](inp)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        attended = self.out(attended.transpose(1, 2).reshape(batch, tokens, hidden))
        inp = inp + functional.dropout(attended, DROPPED)
        done: torch.Tensor = self.down(functional.gelu(self.up(self.norms[1](inp))))
        return inp + functional.dropout(done, DROPPED)


def every_second_product() -> Any:
    """Return the contexts of a layer's checkpoint that keeps attention and every second matrix product."""
    aten, seen = torch.ops.aten, [0, 0]
    attention = {
        aten._scaled_dot_product_cudnn_attention.default, aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
    }  # fmt: skip

    def keeps(context: Any, operation: Any, *_: Any, **__: Any) -> Any:
        if operation in (aten.mm.default, aten.addmm.default):
            seen[context.is_recompute] += 1
            kept = seen[context.is_recompute] % 2 == 1
        else:
            kept = operation in attention
        return checkpoint.CheckpointPolicy.MUST_SAVE if kept else checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

    return checkpoint.create_selective_checkpoint_contexts(keeps)


class Network(nn.Module):
    """Embedding, layers, a norm, the head and its loss."""

    def __init__(self, row: dict[str, str]) -> None:
        super().__init__()
        hidden, heads, kv_heads, inner, words, tokens = (
            int(row[name]) for name in ("wide", "heads", "kv_heads", "high", "words", "sequence")
        )
        llama = row["family"] == "Llama"
        self.embedding, self.again = nn.Embedding(words, hidden), row["name"]
        self.positions = None if llama else nn.Embedding(tokens, hidden)
        kind = Layer if llama else GPTLayer
        self.layers = nn.ModuleList([kind(hidden, heads, kv_heads, inner) for _ in range(int(row["layers"]))])
        self.norm = nn.RMSNorm(hidden, eps=1e-5) if llama else nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, words, bias=False)

    def forward(self, words: torch.Tensor, answers: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        inp = self.embedding(words)
        if self.positions is not None:
            inp = inp + self.positions(torch.arange(words.shape[1], device=words.device))
        for layer in self.layers:
            if self.again == "none":
                inp = layer(inp, turns)
            elif self.again == "full":
                inp = checkpoint.checkpoint(layer, inp, turns, use_reentrant=False)
            else:
                inp = checkpoint.checkpoint(layer, inp, turns, use_reentrant=False, context_fn=every_second_product)
        return functional.cross_entropy(self.head(self.norm(inp)).flatten(0, 1).float(), answers.flatten())


def sharded(network: Network) -> Callable[[], None]:
    """Shard the network by FSDP2, and return its update."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    rule = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in network.layers:
        fully_shard(layer, mp_policy=rule)
    fully_shard(network, mp_policy=rule)
    adam = torch.optim.AdamW(network.parameters(), fused=True)

    def update() -> None:
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        adam.step()
        adam.zero_grad()

    return update


def whole(network: Network) -> Callable[[], None]:
    """Turn weights to 2 bytes, keep main weights of 4 beside them, and return the update, layer after layer."""
    network.to(torch.bfloat16)
    rest = [one for name, one in network.named_parameters() if not name.startswith("layers.")]
    groups = [list(layer.parameters()) for layer in network.layers] + [[one] for one in rest]
    mains = [[one.detach().float() for one in group] for group in groups]
    adams = [torch.optim.AdamW(group, fused=True) for group in mains]

    def update() -> None:
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for group, main, adam in zip(groups, mains, adams, strict=True):
            for one, large in zip(group, main, strict=True):
                large.grad = one.grad.float() if one.grad is not None else None
                one.grad = None
            adam.step()
            adam.zero_grad()
            torch._foreach_copy_([one.detach() for one in group], main)

    return update


def measured(row: dict[str, str]) -> dict[str, str]:
    """Return the row with what was measured in it."""
    layout, _, compiled = row["how"].partition(", ")
    with torch.device(DEVICE):
        network = Network(row)
    if compiled:
        for layer in network.layers:
            layer.compile()
    update = (sharded if layout == "FSDP2" else whole)(network)
    shape = int(row["batch"]), int(row["sequence"])
    words, answers = (torch.randint(int(row["words"]), shape, device=DEVICE) for _ in range(2))
    turns = turns_of(shape[1], int(row["wide"]) // int(row["heads"]), DEVICE)

    steps = partial(timed, partial(network, words, answers, turns), update)
    steps(WARM)
    if GPU:
        torch.cuda.reset_peak_memory_stats()
    before = retries()
    forward, backward, whole_step = (median(one) for one in zip(*(steps(STEPS) for _ in range(TIMES)), strict=True))
    found = {"forward_ms": f"{forward:.4f}", "backward_ms": f"{backward:.4f}", "ms": f"{whole_step:.4f}"}
    if GPU:
        found["retries"] = str((retries() - before) // (TIMES * STEPS))
        found["bytes"], found["reserved"] = (
            str(torch.cuda.max_memory_allocated()),
            str(torch.cuda.max_memory_reserved()),
        )
    return {**row, **found}


def timed(loss: Callable[[], torch.Tensor], update: Callable[[], None], many: int) -> tuple[float, float, float]:
    """Return the ms of forward with the loss, of backward, and of all, in each of so many steps, which are given to
    the GPU one after the other."""
    marks = [moment()]
    for _ in range(many):
        given = loss()
        marks.append(moment())
        given.backward()
        marks.append(moment())
        update()
        marks.append(moment())
    if GPU:
        torch.cuda.synchronize()
    took = [between(*pair) for pair in pairwise(marks)]
    return sum(took[::3]) / many, sum(took[1::3]) / many, sum(took) / many


def moment() -> Any:
    """Return a mark of the time, on the GPU where there is one."""
    if not GPU:
        return time.perf_counter()
    mark = torch.cuda.Event(enable_timing=True)
    mark.record()
    return mark


def between(first: Any, last: Any) -> float:
    """Return the ms between two marks."""
    return float(first.elapsed_time(last)) if GPU else 1e3 * (last - first)


def retries() -> int:
    """Return how often the allocator had to make room."""
    return int(torch.cuda.memory_stats()["num_alloc_retries"]) if GPU else 0


def alone(row: dict[str, str]) -> dict[str, str]:
    """Return the row measured in a process of its own, so that nothing is left of the one before."""
    torch.distributed.init_process_group(
        "nccl" if GPU else "gloo", init_method="tcp://127.0.0.1:29555", rank=0, world_size=1
    )
    try:
        return measured(row)
    except RuntimeError as failed:  # torch's own for memory that is not there among them
        print("not measured:", row, str(failed)[:300], file=sys.stderr)
        return row
    finally:
        torch.distributed.destroy_process_group()


def main(shapes: str, target: str = "rows.csv") -> None:
    """Measure the steps of the first file and write them into the second, each as soon as it is there."""
    with open(Path(shapes), encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["set"].startswith("step")]
    with open(Path(target), "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        with get_context("spawn").Pool(1, maxtasksperchild=1) as one_at_a_time:
            for row in one_at_a_time.imap(alone, rows):
                table.writerow(row)
                file.flush()
                print(*(f"{name} {row[name]}" for name in row if row[name]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
