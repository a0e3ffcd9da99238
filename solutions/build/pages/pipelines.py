"""The pipelines of docs/schedules.md: their figures, and what a search finds."""

from collections.abc import Mapping

from lib import Cost, Run, search
from lib.record.figures.breakdown import idle_of, time_parts

COLUMNS = "| pipeline | ticks | bubble | thousands of elements | of these weights and states | thousands sent |"
CAPS = [1_179_648, 1_310_720, 1_441_792, 1_572_864, 1_703_936, 1_966_080]
"""Elements that a rank may hold, in a search."""


def table(runs: Mapping[str, Run]) -> str:
    """Their figures as Markdown. Sent is what all ranks send; a rank of an all-reduce of two sends all that it has."""
    lines = [COLUMNS, "|---" * COLUMNS.count(" | ") + "|---|"]
    for title, done in runs.items():
        idle = float(idle_of(time_parts(done.events, done.ranks, done.time)))
        kept = max(_of_weights(done, rank) for rank in range(done.ranks))
        sent = sum(one.elements for one in done.events if one.kind in ("pass_to", "allreduce"))
        sizes = " | ".join(f"{size / 1000:,.0f}" for size in (done.memory, kept, sent))
        lines.append(f"| {title} | {done.time:g} | {idle:.1%} | {sizes} |")
    return "\n".join(["\n", *lines, "\n"])


def _of_weights(done: Run, rank: int) -> float:
    """How many elements of weights and optimizer states a rank begins with."""
    began = done.final_states[rank].began
    return float(sum(done.cost.elements(labels) for labels in began))


def searched() -> str:
    """What a search finds for puzzle 16's pipeline in little memory, as the page prints it."""
    found = search("line", cost=Cost(send=0, receive=0), tries=1500, memory=CAPS)
    return f"\n\n```\n{found}\n```\n\n"
