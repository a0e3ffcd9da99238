"""The sentences of the tasks, as the built pages have them."""

import json
import re
from functools import cache
from pathlib import Path

from lib.course.specs import Puzzle

PAGES = Path(__file__).parent.parent / "puzzles"
END = re.compile(r"(?<=[.!?])[*)]*\s+(?=[A-Z*`(])")
"""Where a sentence ends."""


@cache
def cells(page: str) -> list[str]:
    """The text of a page, cell by cell."""
    notebook = json.loads((PAGES / f"{page}.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]


def task(puzzle: Puzzle) -> str:
    """What a page asks for: the section "Your task", or the case of a program to be repaired."""
    title = f"## {puzzle.number}. {puzzle.title}\n" if puzzle.repair else "## Your task\n"
    [found] = [text for text in cells(puzzle.file) if title in text]
    return re.split(r"^## ", found.partition(title)[2], flags=re.M)[0]


def sentences(puzzle: Puzzle) -> list[str]:
    """The sentences of a task, each on one line. A table is one, and so is an item of a list that has no full stop."""
    found = []
    for block in re.split(r"\n\s*\n|\n(?=- )", task(puzzle)):
        text = " ".join(block.split()).removeprefix("- ")
        found += [text] if text.startswith("|") else END.split(text)
    return [sentence for sentence in found if sentence]
