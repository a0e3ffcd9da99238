"""What the figures in docs/ are made of: solutions, the run that docs/pictures.md shows, and what was measured."""

from types import SimpleNamespace
from typing import Any

from lib import Run
from lib.real import A100_MEGATRON, GPT_175B, H100_DGX
from lib.real.hardware import FITS
from lib.record.figures.chain import chain_of
from tools import foundry
from tools.published import MEGATRON

from ..pictures.race import side_by_side
from ..runs.course import Course
from . import pipelines
from .profiled import of_profile, profile_of

SHOWN = "gpipe"
"""The puzzle whose picture docs/pictures.md shows."""


def measured(course: Course) -> dict[str, Any]:
    """What the figures of these pages may name."""
    named = {puzzle.name: puzzle for puzzle in course.puzzles}
    programs = {name: course.solution(named[name]) for name in ("interleaved", "one_f_one_b")}
    [row] = [row for row in MEGATRON if row.model == GPT_175B]
    return {
        **programs,
        "measured": row.present,
        "off": _how_far_off(),
        "FITS": FITS,
        "A100_MEGATRON": A100_MEGATRON,
        "H100_DGX": H100_DGX,
        "gpipe": course.played(named[SHOWN]),
        "profile": of_profile(profile_of(course.folder.parent), programs["one_f_one_b"]),
        "longest": _longest,
        "side_by_side": pipelines.table(side_by_side(course.folder)),
        "searched": pipelines.searched(),
    }


def _longest(done: Run, *kinds: str) -> float:
    """Ticks of these operations on the chain that makes a run as long as it is."""
    steps = [link.entered for link in chain_of(done.events).links]
    return round(sum(step.end - step.start for step in steps if step.kind in kinds), 6)


def _how_far_off() -> dict[str, Any]:
    """How far LLM Foundry's rows are off in percent, by the prices alone, and on how many."""
    rows = foundry.rows()
    some = {
        "all": rows,
        "kept back": [row for row in rows if row.held_back],
        "long": [row for row in rows if row.model.sequence > 8192],
    }
    found = {name: foundry.errors(name, map(foundry.estimated, each)) for name, each in some.items()}
    found["sizes"] = foundry.left_out(lambda row: row.model.name)
    found["gpus"] = foundry.left_out(lambda row: row.gpus)
    found["halves"] = max(map(foundry.left_out, foundry.HALVES.values()), key=lambda one: one.median)
    return {
        name: SimpleNamespace(
            rows=one.rows,
            median=round(100 * one.median, 1),
            worst=round(abs(100 * one.worst)),
            signed=round(100 * one.signed, 1),
        )
        for name, one in found.items()
    }
