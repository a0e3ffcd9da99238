"""Right runs of a puzzle, with which other runs are compared: of the solution, where the solutions are installed.

Only a grader asks for them, and never in the process that runs a student's code at a shell.
"""

import asyncio
import contextlib
import io
import json
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from ..basics.folders import SOLUTIONS
from ..course.layouts import Size
from ..course.specs import Puzzle, machine_of
from ..explain.reference import Reference
from ..learner import tensors
from ..learner.model import Model
from ..machine.cost import Cost
from ..recording.lines import recorded_run
from .answers import answer_in

CELLS, SOLVED = re.compile(r"^(?=# %%)", re.MULTILINE), "### BEGIN SOLUTION"
"""Of the source of a puzzle: where its cells begin, and what those of its solution have in them."""
SOLUTION = "solution"
SECONDS = 20.0
LARGEST = 8_000
"""Ranks times layers times micro-batches of a run that is explained: of a larger one the verdict tells the facts."""


def references_of(puzzle: Puzzle, size: Size, cost: Cost | None = None) -> Sequence[Reference]:
    """Return right runs of a puzzle at a size, with its own cost or another one: none where the solutions are not
    installed."""
    return _runs_of(puzzle.file, puzzle.name, cost or puzzle.cost, json.dumps(size))


def is_explained(size: Size) -> bool:
    """Return whether runs of this size are explained."""
    return int(size["ranks"] * size["layers"] * size["batches"]) <= LARGEST


@lru_cache(maxsize=64)
def _runs_of(file: str, name: str, cost: Any, written: str) -> tuple[Reference, ...]:
    size: Size = json.loads(written)
    function = _solution(file, name)
    if function is None:
        return ()
    with contextlib.redirect_stdout(io.StringIO()):
        machine = machine_of(size, cost)
        recording, error = recorded_run(function, machine, size["layers"], size["batches"], SECONDS)
    return () if error is not None else (Reference(SOLUTION, recording, size, cost),)


@cache
def _solution(file: str, name: str) -> Callable[[Any], object] | None:
    """Return the function of a solution, or None where the solutions are not installed."""
    path = SOLUTIONS / f"{file}.py"
    try:
        cells = CELLS.split(path.read_text(encoding="utf-8"))
    except OSError:
        return None
    names: dict[str, Any] = {"Model": Model, "asyncio": asyncio, **{one: vars(tensors)[one] for one in tensors.__all__}}
    own = answer_in([cell for cell in cells if SOLVED in cell], name)
    exec(compile(own, str(path), "exec"), names)
    return names.get(name)
