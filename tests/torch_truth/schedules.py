"""The table of PyTorch's schedules in docs/schedules.md. ``python -m tests.torch_truth.schedules`` prints it anew."""

from dataclasses import replace
from functools import cache
from typing import Any

from lib import Cost, Run, run, schedule
from lib.engines import torch_order
from lib.engines.torch_order import Rank

QUICK = Cost(send=0.1, receive=0.1)
LOOPED = ("LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
SINGLE = {"GPipe": torch_order.gpipe, "1F1B": torch_order.one_f_one_b}
SIZES = ((2, 2), (2, 4), (2, 8), (3, 6), (3, 9), (4, 4), (4, 8), (4, 12), (5, 10), (8, 16))
"""Ranks, and micro-batches."""


def possible(name: str, ranks: int, batches: int) -> bool:
    """Whether torch makes this schedule at this size."""
    return name != "DualPipeV" or batches >= 2 * ranks


def single(name: str, ranks: int, batches: int) -> str:
    """The rows of a schedule with one stage a rank, as torch was recorded to run them."""
    rows, letters = [], {"forward": "F", "backward": "B"}
    for rank in range(ranks):
        steps = SINGLE[name](Rank(rank, tuple(range(ranks)), ranks, batches))
        rows.append([f"{step.layers[0]}{letters[step.kind]}{step.turn}" for step in steps if step.kind in letters])
    return "\n".join(",".join(row) for row in rows)


@cache
def torch_rows(name: str, ranks: int, batches: int, with_messages: bool = False) -> str:
    """The rows of a schedule of torch: two stages a rank, where it can have several."""
    if name in SINGLE:
        return single(name, ranks, batches)
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    ops: Any = get_schedule_ops(name, ranks, batches, num_stages_per_rank=2, with_comms=with_messages)
    return "\n".join(",".join("" if action is None else str(action) for action in row) for row in ops)


@cache
def done(name: str, ranks: int, batches: int, with_messages: bool = False, saved: int = 0) -> Run:
    """A run by rows of torch, in which overlapped pairs save nothing, or all of the shorter one."""
    plan = schedule(torch_rows(name, ranks, batches, with_messages))
    return run(plan, **plan.sizes | {"layers": 2 * ranks}, cost=replace(QUICK, overlapped=saved))


def table() -> str:
    """Time, and thousands of elements, of every schedule at every size, as Markdown."""

    def figures(name: str, ranks: int, batches: int) -> str:
        if not possible(name, ranks, batches):
            return ""
        run = done(name, ranks, batches)
        time = f"{run.time:g}"
        if name == "DualPipeV":
            time += f" to {done(name, ranks, batches, saved=1).time:g}"
        return f"{time}, {run.memory / 1000:,.0f}"

    names = (*SINGLE, *LOOPED)
    lines = [f"| ranks, micro-batches | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for size in SIZES:
        lines.append(f"| {size[0]}, {size[1]} | {' | '.join(figures(name, *size) for name in names)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
