"""``grade``, ``hint`` and ``progress``, as a learner calls them in a notebook's cell.

Here everything shares one process: mistakes are found with certainty, somebody who wants to fool the grader is
not always stopped. The referee is the shell: ``python -m lib grade``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..basics.arguments import describe
from ..basics.errors import PuzzleError
from ..basics.units import show_ticks
from ..course.costs import cost_named, written
from ..course.sketches import sketch
from ..course.specs import Puzzle, find
from ..record.codes import grid, legend
from ..record.table import OPERATIONS
from ..record.training import FORWARD
from ..running.execution import name_of
from ..running.run import run
from . import page
from .answer import kept_at
from .judge import judge, new_seed
from .progress import Progress, next_hint
from .seal import broken_seal
from .verdict import ERROR, FAIL, Verdict


class Shown:
    """A verdict as a cell shows it."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def __getattr__(self, name: str) -> Any:
        return getattr(self.verdict, name)

    def __repr__(self) -> str:
        return page.text(self.verdict)

    def _repr_html_(self) -> str:
        return page.table(self.verdict)


def grade(
    fn: Callable[[Any], Any], puzzle: str | None = None, *, seed: int | None = None, timeout: float | None = 10.0
) -> Shown:
    """The verdict on a function: right or not, at the puzzle's size and others; time and memory against the target.

    The puzzle is found by the function's name, or named. The other sizes are drawn at random; the seed
    is shown, and can be given again. ``timeout`` bounds the seconds of each run. Raises PuzzleError for an
    unknown puzzle or what is no function.
    """
    if not callable(fn):
        raise PuzzleError("grade takes a function", got=describe(fn), cure="grade(fsdp)")
    spec = find(puzzle if puzzle is not None else getattr(fn, "__name__", fn))
    seed = new_seed() if seed is None else seed
    begun = time.perf_counter()
    try:
        verdict = judge(spec, lambda size: run(fn, **size, cost=cost_named(spec.cost), timeout=timeout), seed)
    except Exception as error:
        message = f"the grader failed: {type(error).__name__}: {error}. Please report it, with the code."
        verdict = Verdict(spec, ERROR, message)
    if changed := broken_seal():
        message = f"{changed} is not what it was when lib was imported: restart the kernel, then grade again"
        verdict = Verdict(spec, FAIL, message)
    size = ", ".join(f"{name}={value}" for name, value in spec.size.items())
    size += "" if spec.cost == "default" else f", cost={written(spec.cost)}"
    named = "" if getattr(fn, "__name__", "") == spec.name else f', "{spec.name}"'
    verdict = replace(
        verdict,
        seconds=time.perf_counter() - begun,
        next_hint=f'hint("{spec.name}")',
        beside=f"beside_target(run({name_of(fn)}, {size}){named})",
        solution=f'solution("{spec.name}")' if kept_at(spec).exists() else "",
    )
    if "ipykernel" in sys.modules:
        kept = Progress()
        kept.record(verdict)
        verdict = replace(verdict, note=kept.note)
    return Shown(verdict)


class Hint:
    """One hint: a text, and with the second one half of a schedule, which is drawn once ``drawing`` is imported."""

    def __init__(self, puzzle: Puzzle, number: int) -> None:
        self.puzzle, self.number = puzzle, number
        self.sketched = number == min(1, len(puzzle.hints) - 1)

    @property
    def text(self) -> str:
        """The hint in words."""
        hints = self.puzzle.hints
        if not hints:
            return f"{self.puzzle.name}: there are no hints"
        last = f'; that was the last. Still stuck? solution("{self.puzzle.name}")'
        more = "; ask again for the next" if self.number + 1 < len(hints) else last
        return f"Hint {self.number + 1} of {len(hints)} for {self.puzzle.name}{more}\n\n{hints[self.number]}"

    def __str__(self) -> str:
        if not self.sketched:
            return self.text
        half = sketch(self.puzzle)
        until = f"The first {show_ticks(half.until)} of {show_ticks(half.time)} ticks of a schedule"
        happened = {event.kind for event in half.events}
        known = "; ".join(legend(row.kind) for row in OPERATIONS.values() if row.kind in happened - {FORWARD.kind})
        return f"{self.text}\n\n{until} (2F0: layer 2 forward, micro-batch 0; {known}):\n\n{grid(half.events)}"

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return self.text


_given: dict[str, int] = {}  # in this session: another day begins with the first hint again


def hint(puzzle: str = "") -> Hint:
    """The next hint of a puzzle; after the last one, the last again. Raises PuzzleError for an unknown puzzle."""
    spec = find(getattr(puzzle, "__name__", puzzle))
    return Hint(spec, next_hint(_given, spec))


def progress() -> Progress:
    """All puzzles and the best so far, from the file beside the notebook."""
    return Progress()
