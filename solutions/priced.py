"""What a step takes on real GPUs: each puzzle's solution under a model and a cluster, as a line and a picture.

A source has a cell tagged ``priced``, which a learner runs with a function of their own: it ends with a run named
``priced``. The build runs it with the solution, and puts what comes out in the place of ``![...](picture:priced)``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from drawing import Figure
from drawing.picture import small_enough
from lib import Run
from lib.basics.units import show_bytes
from lib.machine.check import TRAINED
from lib.real.prices import RealCost

from .figures import program
from .schedules import draw_schedule

TAG = NAME = "priced"
"""The tag of the cell, and the name of its run."""
MOST = 70_000
"""Bytes of the picture at most: Colab's notebooks are to stay below 750,000 with all they have."""


@cache
def shown(done: Run) -> str:
    """Return the line and the picture of such a run, for a notebook."""
    return f"{line(done)}\n\n{picture(done)._repr_html_()}"


@cache
def run_of(file: str, text: str, cell: str) -> Run:
    """Return the run that a cell of a source names ``priced``. It prints nothing. Raise ValueError if there is none on a
    cluster, and PuzzleError if it does not train the model."""
    names: dict[str, Any] = {**program(file, text), "print": lambda *_: None}
    exec(compile(cell, file, "exec"), names)
    done = names.get(NAME)
    if not isinstance(done, Run) or not isinstance(done.cost, RealCost):
        raise ValueError(
            f"{file}: its cell tagged {TAG} is to give a run on a cluster the name {NAME}"
        )
    done.verify()
    return done


def line(done: Run) -> str:
    """Return what a step takes, as a sentence in Markdown."""
    cost = done.cost
    assert isinstance(cost, RealCost)
    gpus, tokens = done.ranks * cost.tensor, cost.model.tokens(cost.micro_batch)
    each = f", {cost.tensor} to a rank" if cost.tensor > 1 else ""
    where = f"{gpus} GPU{'s' * (gpus > 1)} ({cost.cluster.name}{each})"
    many = f"{done.batches} micro-batches" if done.batches > 1 else "one micro-batch"
    said = (
        f"Priced: our solution trains **{cost.model.name}** on {where}, with {many} of "
        f"{tokens:,} tokens, in **{done.seconds:.3g} s** a step. At its peak a GPU holds "
        f"**{show_bytes(done.bytes)}**"
    )
    memory = show_bytes(cost.cluster.memory)
    room = show_bytes(cost.cluster.room)
    said += (
        f" of {memory}."
        if done.fits
        else f". It has {memory}, and no more than {room} can be filled: **it does not fit**."
    )
    if done.train == TRAINED[0]:
        said += f" It reaches {done.mfu} (MFU)."
    return said


def picture(done: Run) -> Figure:
    """Return the schedule in seconds, and the memory below it, as a small image."""
    return small_enough(lambda rough: draw_schedule(done, rough, alone=True), MOST)
