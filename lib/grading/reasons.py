"""Why a run fails, or is slower or larger than the target: worked out from its recording (see ``lib.explain``), beside
right runs of the puzzle. These are runs of the solution, where the solutions are installed.

Only a grader asks for right runs, and never in the process that runs a student's code at a shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ..basics.errors import NOWHERE, PuzzleError
from ..course.layouts import Size
from ..course.solutions import source_of
from ..course.specs import Puzzle, machine_of
from ..explain.compare import Reference
from ..explain.explanation import explain
from ..explain.notes import noted
from ..explain.spelling import spelled
from ..explain.statement import Explanation
from ..learner import tensors
from ..learner.model import Model
from ..machine.cost import Cost
from ..machine.lives import Peak
from ..machine.outcome import Outcome
from ..record.figures.score import peak_event
from ..recording.recorder import recorded_run
from ..recording.wire import ProtocolError
from ..schedules.program import schedule
from .answers import answer_in

Recording = Mapping[str, Any]
References = Callable[[Puzzle, Size], Sequence[Reference]]
"""Returns right runs of a puzzle at a size: where there are none, less is said."""
SOLUTION, SOLVED = "solution", "### BEGIN SOLUTION"
SECONDS = 20.0
LARGEST = 8_000
"""Ranks times layers times micro-batches of a run that is explained beside a right one. Of a larger one the error is
explained by what the run shows by itself, and its costs are not."""


def is_explained(size: Size) -> bool:
    """Return whether runs of this size are explained beside a right one."""
    return int(size["ranks"] * size["layers"] * size["batches"]) <= LARGEST


def references_of(puzzle: Puzzle, size: Size, cost: Cost | None = None) -> Sequence[Reference]:
    """Return right runs of a puzzle at a size, with its own cost or another one; none without the solutions."""
    return _runs_of(source_of(puzzle), puzzle.name, cost or puzzle.cost, json.dumps(size))


@lru_cache(maxsize=64)
def _runs_of(path: Path, name: str, cost: Any, size_json: str) -> tuple[Reference, ...]:
    size: Size = json.loads(size_json)
    function = _solution(path, name)
    if function is None:
        return ()
    with contextlib.redirect_stdout(io.StringIO()):
        machine = machine_of(size, cost)
        recording, error = recorded_run(function, machine, size["layers"], size["batches"], SECONDS)
    return () if error is not None else (Reference(SOLUTION, recording, size, cost),)


@cache
def _solution(path: Path, name: str) -> Callable[[Any], object] | None:
    """Return the function of a solution, or None where the solutions are not installed."""
    if not path.exists():
        return None
    cells = path.read_text(encoding="utf-8").split("\n# %%")
    names: dict[str, Any] = {**vars(tensors), "Model": Model, "asyncio": asyncio, "schedule": schedule}
    own = answer_in([cell.partition("\n")[2] for cell in cells if SOLVED in cell], name)
    file = f"<solution of {name}>"
    linecache.cache[file] = len(own), None, own.splitlines(keepends=True), file  # where the text of a line is looked up
    exec(compile(own, file, "exec"), names)
    return names.get(name)


@dataclass
class Reasons:
    """What the run that decides a verdict is explained with: what it has called and the text of its program, as far as
    they are known. ``trouble``: why there is no explanation, where that fails."""

    puzzle: Puzzle
    size: Size
    recording: Recording | None
    references: References
    source: str
    trouble: str = ""

    def explanation(self, error: PuzzleError | None = None, over: Sequence[str] = ()) -> Explanation | None:
        """Return why the run fails with this error, or is ``over`` the target in time or memory; without any of these,
        what the text of the program shows. None where that is not known or fails: no verdict depends on it."""
        size, puzzle = self.size, self.puzzle
        try:
            if error is None and not over:
                seen = tuple(spelled(self.source, size, puzzle.size))
                return Explanation(NOWHERE, given=seen, look_at=seen[:1])
            small = is_explained(size)
            if self.recording is not None and (small or error is not None):
                runs = self.references(puzzle, size) if small else ()
                return explain(self.recording, error, runs, size, puzzle.cost, self.source, puzzle.size, over)
        except ProtocolError:  # it is no recording
            pass
        except Exception as failure:
            self.trouble = f"the explanation has failed ({type(failure).__name__}: {failure}): please report it"
        return None

    def find_line(self, error: PuzzleError, outcome: Outcome) -> None:
        """Give an error of a whole run, which has none, the learner's line of the operation that it is about: the last
        one that ``error.about`` names, or the one at the moment of its place."""
        place, tick = error.place, None if error.about else error.place.tick
        if error.line or place.rank is None or self.recording is None or not (error.about or tick is not None):
            return
        which = error.about or (place.operation, place.layer)
        own = [event for event in outcome.events if event.rank == place.rank]
        fitting = [at for at, one in enumerate(own) if (one.kind, one.layer) == which and tick in (None, one.issued)]
        if fitting:
            lines = noted(self.recording, self.size, self.puzzle.cost).lines(place.rank)
            error.line = lines.get(fitting[-1], "")

    def peak(self, outcome: Outcome) -> Peak | None:
        """Return what the rank with the highest peak holds there, with the learner's lines of its log."""
        highest = peak_event(outcome.device_events)
        if highest is None or self.recording is None:
            return None
        return noted(self.recording, self.size, self.puzzle.cost, SECONDS, watched=highest.rank).peak
