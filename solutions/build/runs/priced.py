"""What a step takes on real GPUs: each puzzle's solution under a model and a cluster.

A source has a cell tagged ``priced``, which a learner runs with a function of their own: it ends with a run named
``priced``. The build runs it with the solution.
"""

from functools import cache
from pathlib import Path
from typing import Any

from lib import PuzzleError, Run
from lib.basics.units import show_bytes
from lib.machine.check import TRAINED
from lib.real.prices import RealCost

from ..sources.files import BuildError, cells_of, tagged
from .programs import program

TAG = NAME = "priced"
"""The tag of the cell, and the name of its run."""


def priced_run(path: Path) -> Run | None:
    """Return the run that a source names ``priced``, or nothing where it has no such cell. It prints nothing. Raise
    BuildError if it is on no cluster, or does not train the model."""
    return _priced_run(path.name, path.read_text(encoding="utf-8"))


@cache
def _priced_run(file: str, text: str) -> Run | None:
    for cell in tagged(cells_of(text), TAG):
        names: dict[str, Any] = {**program(file, text), "print": lambda *_: None}
        exec(compile(cell, file, "exec"), names)
        done = names.get(NAME)
        if not isinstance(done, Run) or not isinstance(done.cost, RealCost):
            raise BuildError(f"{file}: its cell tagged {TAG} is to give a run on a cluster the name {NAME}")
        try:
            done.verify()
        except PuzzleError as error:
            raise BuildError(f"{file}: {error}") from None
        return done
    return None


def line(done: Run) -> str:
    """Return what a step takes, as a sentence in Markdown."""
    cost = done.cost
    assert isinstance(cost, RealCost)
    gpus, tokens = done.ranks * cost.tensor, cost.model.tokens(cost.micro_batch)
    each = f", {cost.tensor} to a rank" if cost.tensor > 1 else ""
    where = f"{gpus} GPU{'s' * (gpus > 1)} ({cost.cluster.name}{each})"
    many = f"{done.batches} micro-batches" if done.batches > 1 else "one micro-batch"
    said = (
        f"Priced: our solution trains **{cost.model.name}** on {where}. A step has {many} of {tokens:,} tokens and "
        f"takes **{done.seconds:.3g} s**. At its peak a GPU holds **{show_bytes(done.bytes)}**"
    )
    memory, room = show_bytes(cost.cluster.memory), show_bytes(cost.cluster.room)
    memory += " (1 GB is 10⁹ bytes here; makers of cards count in 2³⁰)"
    if done.fits:
        said += f" of {memory}."
    else:
        said += f". It has {memory}, and no more than {room} can be filled: **it does not fit**."
    if done.train == TRAINED[0]:
        said += f" The GPUs reach {done.mfu} (MFU)."
    return said
