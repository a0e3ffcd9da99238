"""A hint in words: a text, and for the second one half of a schedule; and which hint fits the last attempt."""

from __future__ import annotations

from typing import NamedTuple

from ..basics.errors import numbered
from ..course.layouts import mesh_of
from ..course.outlines import half_schedule
from ..course.solutions import source_of
from ..course.specs import Puzzle
from ..record.codes import code_of, copies, grid, legend
from ..record.table import OPERATIONS
from ..record.training import FORWARD


class Ending(NamedTuple):
    """How an attempt ended: whether it was right, and its time and memory."""

    right: bool
    time: float | None
    memory: float | None


def fitting_hint(puzzle: Puzzle, last: Ending, passed: bool = False) -> tuple[int, str]:
    """Return the index of the hint that fits an attempt that ended so, and why it fits, in parentheses. That of the
    question for the star comes after all hints. ``passed``: whether an earlier attempt has passed without the star."""
    if not last.right or last.time is None or last.memory is None:
        return 0, ""
    over = {"slow": last.time > puzzle.target["time"], "large": last.memory > puzzle.target["memory"]}
    if any(over.values()) and not (passed and puzzle.star_hint):  # of a repair, whose mistake is gone: the last but one
        hints = puzzle.hints_for or dict.fromkeys(over, len(puzzle.hints) - 1)
        return min((hints[what] - 1, f" (your last program is right, but too {what})") for what in over if over[what])
    if puzzle.star_hint and not puzzle.has_star(last.time, last.memory):
        return len(puzzle.hints), " (you have passed, and have no star yet)"
    return 0, ""


class Hint:
    """A hint, which shows itself. The second one is a picture, too, once ``drawing`` is imported; after the last one
    there is a question for the star. ``why``: why it is this one. ``beyond``: what whoever has had all is told."""

    def __init__(self, puzzle: Puzzle, number: int, why: str = "", beyond: str = "") -> None:
        self.puzzle, self.number, self.why, self.beyond = puzzle, number, why, beyond
        self.has_schedule = number == 1

    @property
    def text(self) -> str:
        """The hint in words."""
        name, hints = self.puzzle.name, self.puzzle.hints
        if self.number == len(hints):
            return f"The question for the star of {name}{self.why}\n\n{self.puzzle.star_hint}"
        ours = f'. Still stuck? solution("{name}", sure=True) shows ours' * source_of(self.puzzle).exists()
        more = "; ask again for the next" if self.number + 1 < len(hints) else f"; that was the last{ours}"
        head = f"Hint {self.number + 1} of {len(hints)} for {name}{self.why}{more}"
        return "\n\n".join(filter(None, [head, hints[self.number], self.beyond]))

    def __str__(self) -> str:
        return f"{self.text}\n\n{_schedule(self.puzzle)}" if self.has_schedule else self.text

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return self.text


def _schedule(puzzle: Puzzle) -> str:
    """Return half of a schedule as text, with what its codes mean."""
    half, unit = half_schedule(puzzle), puzzle.unit
    copied = copies(half.events)
    shown = [event for event in half.events if event.rank not in copied]
    forwards = [event for event in half.events if event.kind == FORWARD.kind]  # none where layers have steps
    known = [f"{code_of(one)}: layer {one.layer} forward, {numbered('micro-batch', one.batches)}" for one in forwards]
    others = {event.kind for event in shown} - {FORWARD.kind}
    means = [*known[-1:], *(legend(row.kind) for row in OPERATIONS.values() if row.kind in others)]
    drawn = grid(shown, unit, hosts=mesh_of(puzzle.size).devices_of)
    means += ["a + joins what starts at the same time"] * ("+" in drawn)
    until = f"The first {unit.brief(half.until)} of {unit.lasting(half.time)} of a schedule"
    until += ", without ranks that do the same" * (half.others > 0)
    same = f"{numbered('rank', copied)} do the same as rank {shown[0].rank}, on their own micro-batches."
    return f"{until} ({'; '.join(means)}):\n\n{drawn}" + (f"\n\n{same}" if copied else "")
