"""What the build writes into README.md and docs/: the table of puzzles, and figures."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lib import PuzzleError
from lib.course.specs import Puzzle

from ..figures import facts
from ..figures.writing import FigureError, shown
from ..sources.files import BuildError
from ..sources.overview import parts, sentences

PLACE = re.compile(r"(<!-- puzzles[^>]*-->\n).*?(<!-- end of puzzles -->)", re.DOTALL)
"""The place that the build fills."""
HEAD = "puzzle | idea\n---|---"


def with_puzzles(readme: str, puzzles: Sequence[Puzzle], solutions: Path) -> str:
    """The text of README.md with a row for each puzzle, in the words of the overview."""
    said, begins = sentences(solutions), parts(solutions)
    table = [HEAD]
    for puzzle in puzzles:
        if not puzzle.repair:
            if puzzle.file in begins:
                table.append(f"**{begins[puzzle.file]}** |")
            link = f"[`{puzzle.name}`](puzzles/{puzzle.file}.ipynb)"
            table.append(f"{puzzle.number} {link} | {said[puzzle.name]}")
    return PLACE.sub(lambda place: "\n".join([place[1].rstrip(), *table, place[2]]), readme)


FIGURE = re.compile(r"<!--= (.+?) -->.*?<!-- -->", re.DOTALL)
"""A figure: an expression as in the texts of notebooks (see figures.py), and what it gives, which is
what readers see."""
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
VALUE = re.compile(r"^((?:done|best)\.[^#\n]*?)  # (?:[\d(]|True|False)[^\n]*$", re.MULTILINE)
"""In a block of Python, what a run or a plan says of itself, and its value as a comment."""


def _with_figures(text: str, given: dict[str, Any]) -> str:
    """A text with its figures, made of what is ``given``, of facts, and of what its blocks of Python
    define where they show values. Raise FigureError for one that cannot be computed."""
    names: dict[str, Any] = {**facts.NAMES, "BILLION": 10**9, **given, "print": lambda *_: None}

    def block(found: re.Match[str]) -> str:
        if not VALUE.search(found[1]):
            return found[0]
        exec(found[1], names)  # and then each expression, as it is after all of the block
        return VALUE.sub(lambda line: f"{line[1]}  # {_value(eval(line[1], names))}", found[0])

    with patch("lib.attempt", given.__getitem__):  # a reader's own functions; here they are ours
        text = BLOCK.sub(block, text)
    return FIGURE.sub(lambda place: f"<!--= {place[1]} -->{shown(place[1], names)}<!-- -->", text)


def _value(value: object) -> str:
    return f"{value:.1f}" if type(value) is float else str(value)


def documented(page: Path, given: dict[str, Any]) -> str:
    """A page of the documentation, with its figures."""
    try:
        return _with_figures(page.read_text(encoding="utf-8"), given)
    except (FigureError, PuzzleError, NameError, AttributeError, SyntaxError) as error:
        raise BuildError(f"{page.name}: {error}") from None
