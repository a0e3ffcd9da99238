"""Pipelines side by side for docs/schedules.md: one model, one machine, one scale. The build runs
them, and a search for more."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from drawing import Figure, race
from lib import Cost, Run, run, search
from lib.record.figures.breakdown import idle_of, time_parts

from ..runs.programs import defined_by
from ..sources.files import FOLDER

PICTURE = "race.svg"
SIZE: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 8}
HALVES, ALONE = {"half": 2, "place": 2}, {"half": 1, "place": 4}
"""The meshes of DualPipe, and of one of its halves by itself, which is DualPipeV."""
COLUMNS = "| pipeline | ticks | idle | thousands of elements | of these weights and states | thousands sent |"


CAPS = [1_179_648, 1_310_720, 1_441_792, 1_572_864, 1_703_936, 1_966_080]
"""Elements that a rank may hold, in a search."""


class Row(NamedTuple):
    """A pipeline: in which source of solutions/ which program is, what it does (a picture shows those that say it), how
    its ranks lie, and what a pair saves."""

    title: str
    file: str
    program: str
    note: str = ""
    mesh: dict[str, int] | None = None
    saved: int = 0


ROWS = (
    Row("GPipe", "p06_gpipe", "gpipe", "all forwards, then all backwards"),
    Row("1F1B", "p13_one_f_one_b", "one_f_one_b", "a backward as soon as there is one"),
    Row("Interleaved 1F1B", "p14_interleaved", "interleaved", "two thin stages on each GPU"),
    Row("Zero bubble (ZB-H1)", "p16_zero_bubble", "zb_h1", "weight gradients fill the gaps"),
    Row("ZB-V", "p29_zbv", "zb_v", "stages go down the GPUs and come back up"),
    Row("DualPipeV, pairs save nothing", "p30_dualpipe", "cut_in_half", "", ALONE),
    Row("DualPipe, pairs save nothing", "p30_dualpipe", "in_halves", "filled from both ends", HALVES),
    Row("DualPipeV, pairs overlap", "p30_dualpipe", "cut_in_half", "", ALONE, 1),
    Row("DualPipe, pairs overlap", "p30_dualpipe", "in_halves", "a forward beside a backward", HALVES, 1),
)


@cache
def side_by_side(folder: Path = FOLDER) -> dict[str, Run]:
    """Each of them as a run, by its title: a forward and each half of a backward take a tick, and messages none."""
    found = {}
    for title, file, program, _, mesh, saved in ROWS:
        cost = Cost(backward=2, send=0, send_across=0, receive=0, overlapped=saved)
        found[title] = run(defined_by(folder / f"{file}.py")[program], **SIZE, mesh=mesh, cost=cost)
    return found


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


def picture(runs: Mapping[str, Run]) -> Figure:
    """Them against each other, as the project begins with it."""
    shown = [row for row in ROWS if row.note]
    return race(
        *(runs[row.title] for row in shown),
        titles=[row.title for row in shown],
        notes=[row.note for row in shown],
        title="One model, one batch, four GPUs: which schedule wins?",
    )
