"""What a cell of figures may use, besides what its page defines."""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lib import Run
from lib.basics.units import exact
from lib.engines.torch_order import TORCH
from lib.record.figures.breakdown import idle_of, time_parts
from lib.record.kinds import MEMORY_KINDS

from ..runs.programs import once, program
from ..sources.blanks import blanked
from ..sources.files import FIGURES, ROOT, read_cells, source_of
from .writing import show


class Published:
    """A number with its source."""

    source: str


class PublishedInt(int, Published):
    """A whole one."""


class PublishedFloat(float, Published):
    """Any other."""


def published(value: float, source: str) -> Any:
    """Return a number that was measured or said by others. A text of the page has to name the source."""
    number = PublishedInt(value) if value == int(value) else PublishedFloat(value)
    number.source = source
    return number


def shares(parts: Sequence[Any]) -> list[Fraction]:
    """Return shares of a whole, each a whole percent, that add up: what is cut off goes to those that lose most by it.

    >>> [str(share) for share in shares([1, 1, 1])]
    ['17/50', '33/100', '33/100']
    """
    whole = sum(map(exact, parts))
    percents = [exact(part) * 100 / whole for part in parts]
    floors = [int(percent) for percent in percents]
    by_loss = sorted(range(len(parts)), key=lambda i: floors[i] - percents[i])
    for i in by_loss[: 100 - sum(floors)]:
        floors[i] += 1
    return [Fraction(floor, 100) for floor in floors]


def idle(done: Run) -> float:
    """Return the part of all ranks' time in which they compute nothing, as pictures say it."""
    return float(idle_of(time_parts(done.events, done.ranks, done.time)))


def most(done: Run, rank: int, *kinds: str) -> Any:
    """Return the most elements of these kinds (see MEMORY_KINDS) that a rank holds at any time."""
    slots = [MEMORY_KINDS.index(kind) for kind in kinds]
    held = (event.held for event in done.events if event.rank == rank and event.held)
    return max(sum(one[slot] for slot in slots) for one in held)


def broken(name: str) -> dict[str, Any]:
    """Return what the notebook of a source defines as learners get it, with its mistakes."""
    cells = [cell for cell in read_cells(source_of(name)) if cell.kind == "code" and FIGURES not in cell.tags]
    return program(f"{name}, as it is given", "\n".join(blanked(cell.source) for cell in cells))


def recorded(row: str, what: str) -> int:
    """Return how many of these calls PyTorch made in what a row of tests/torch_truth/TABLE.md is named for."""
    [count] = re.findall(rf"(\d+) {what}\b", _row(row))
    return int(count)


def recorded_buckets(row: str) -> list[int]:
    """Return how many layers are in each of the sums of such a row."""
    return [int(last or first) - int(first) + 1 for first, last in re.findall(r"(\d+)(?:-(\d+))?AR", _row(row))]


def _row(name: str) -> str:
    table = (ROOT / "tests" / "torch_truth" / "TABLE.md").read_text(encoding="utf-8")
    [row] = [line for line in table.split("\n") if line.startswith(f"| {name} |")]
    return row


WORDS: dict[str, Any] = {
    "run": once,
    "TORCH": TORCH,
    "MILLION": 10**6,
    "BILLION": 10**9,
    "Fraction": Fraction,
    **{one.__name__: one for one in (published, show, shares, most, idle, broken, recorded, recorded_buckets)},
}
"""These by their names. A page cannot give another meaning to them, but can to facts."""
