"""The table of PyTorch's schedules in docs/schedules.md. ``python -m tests.torch_truth.schedules`` prints it anew."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from lib import Cost, Run, run, schedule
from lib.record.breakdown import idle_of, time_parts
from solutions.p06_gpipe import gpipe
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p14_interleaved import interleaved
from solutions.p16_zero_bubble import zb_h1
from solutions.p29_zbv import zb_v

QUICK = Cost(send=0.1, receive=0.1)
LOOPED = ("LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
SIZES = ((2, 2), (2, 4), (2, 8), (3, 6), (3, 9), (4, 4), (4, 8), (4, 12), (5, 10), (8, 16))
"""Ranks, and micro-batches."""


def possible(name: str, ranks: int, batches: int) -> bool:
    """Whether torch makes this schedule at this size."""
    return name != "DualPipeV" or batches >= 2 * ranks


@cache
def torch_rows(name: str, ranks: int, batches: int, with_messages: bool = False) -> str:
    """The rows of a schedule of torch, two stages a rank."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    ops: Any = get_schedule_ops(name, ranks, batches, num_stages_per_rank=2, with_comms=with_messages)
    return "\n".join(",".join("" if action is None else str(action) for action in row) for row in ops)


@cache
def done(name: str, ranks: int, batches: int, with_messages: bool = False, saved: int = 0) -> Run:
    """A run by rows of torch, in which overlapped pairs save nothing, or all of the shorter one."""
    plan = schedule(torch_rows(name, ranks, batches, with_messages))
    return run(plan, **plan.sizes, cost=replace(QUICK, overlapped=saved))


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

    lines = [f"| ranks, micro-batches | {' | '.join(LOOPED)} |", "|---|" + "---|" * len(LOOPED)]
    for size in SIZES:
        lines.append(f"| {size[0]}, {size[1]} | {' | '.join(figures(name, *size) for name in LOOPED)} |")
    return "\n".join(lines)


def side_by_side() -> str:
    """Six pipelines of one model on one scale, as Markdown: 4 ranks, 8 layers, 8 micro-batches, F = B = W = 1 tick,
    free messages. Time, the part of it in which ranks are idle, memory in thousands of elements, and what is sent."""
    cost = Cost(backward=2, send=0, send_across=0, receive=0)
    size = {"ranks": 4, "layers": 8, "batches": 8, "cost": cost}
    dual = schedule(torch_rows("DualPipeV", 4, 8))
    found = {
        "GPipe": run(gpipe, **size),
        "1F1B": run(one_f_one_b, **size),
        "Interleaved 1F1B": run(interleaved, **size),
        "Zero bubble (ZB-H1)": run(zb_h1, **size),
        "ZB-V": run(zb_v, **size),
        "DualPipeV, pairs save nothing": run(dual, **size),
        "DualPipeV, pairs take the longer one": run(dual, **size | {"cost": replace(cost, overlapped=1)}),
    }
    lines = ["| pipeline | ticks | idle | thousands of elements | activations sent |", "|---|---|---|---|---|"]
    for name, one in found.items():
        idle = float(idle_of(time_parts(one.events, one.ranks, one.time)))
        sent = sum(event.elements for event in one.events if event.kind == "pass_to") / cost.activation_elements
        lines.append(f"| {name} | {one.time:g} | {idle:.1%} | {one.memory / 1000:,.0f} | {sent:g} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(), side_by_side(), sep="\n\n")
