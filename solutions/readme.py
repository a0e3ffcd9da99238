"""The table of puzzles in README.md: number, name and idea of each, from the sources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lib.course.specs import Puzzle

from . import gallery

PLACE = re.compile(r"(<!-- puzzles[^>]*-->\n).*?(<!-- end of puzzles -->)", re.DOTALL)
"""The place that the build fills."""
HEAD = "| # | puzzle | idea |\n|---|---|---|"


def with_puzzles(readme: str, puzzles: Sequence[Puzzle], solutions: Path) -> str:
    """The text of README.md with a row for each puzzle, in the words of the overview."""
    said = gallery.sentences(solutions)
    table = [HEAD]
    for puzzle in puzzles:
        if not puzzle.repair:
            link = f"[`{puzzle.name}`](puzzles/{puzzle.file}.ipynb)"
            table.append(f"| {puzzle.number} | {link} | {said[puzzle.name]} |")
    return PLACE.sub(lambda place: "\n".join([place[1].rstrip(), *table, place[2]]), readme)
