"""Pipelines on one model, one machine and one scale, and the picture in which they race: the project begins with it."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from drawing import Figure, race
from lib import Cost, Run, run

from ..runs.programs import defined_by
from ..sources.files import FOLDER

NAME = "race"
SIZE: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 8}
HALVES, ALONE = {"half": 2, "place": 2}, {"half": 1, "place": 4}
"""The meshes of DualPipe, and of one of its halves by itself, which is DualPipeV."""


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


def can_race(folder: Path = FOLDER) -> bool:
    """Whether all of them are there."""
    return all((folder / f"{row.file}.py").exists() for row in ROWS)


@cache
def side_by_side(folder: Path = FOLDER) -> dict[str, Run]:
    """Each of them as a run, by its title: a forward and each half of a backward take a tick, and messages none."""
    found = {}
    for title, file, program, _, mesh, saved in ROWS:
        cost = Cost(backward=2, send=0, send_across=0, receive=0, overlapped=saved)
        found[title] = run(defined_by(folder / f"{file}.py")[program], **SIZE, mesh=mesh, cost=cost)
    return found


def picture(folder: Path = FOLDER) -> Figure:
    """The race of those that say what they do."""
    runs = side_by_side(folder)
    shown = [row for row in ROWS if row.note]
    return race(
        *(runs[row.title] for row in shown),
        titles=[row.title for row in shown],
        notes=[row.note for row in shown],
        title="One model, one batch, four GPUs: which schedule wins?",
    )
