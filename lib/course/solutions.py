"""The solution of a puzzle, as it is shown: its function, and the texts that only the solved notebook has."""

import re
from collections.abc import Iterator
from pathlib import Path

from ..basics.errors import PuzzleError
from ..basics.folders import SOLUTIONS
from .specs import Puzzle, kept

_FIGURE = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
_CELL = re.compile(r"(?m)^# %%(.*)$")
_MARKS = re.compile(r"(?ms)^[ \t]*### (?:BEGIN SOLUTION\n|END SOLUTION\n|BROKEN\n(.*?)^[ \t]*### END SOLUTION\n)")


def source_of(puzzle: Puzzle) -> Path:
    """Return the file with the solution of a puzzle, which need not be there."""
    return SOLUTIONS / f"{puzzle.file}.py"


def explained(puzzle: Puzzle) -> str:
    """Return the solution of a puzzle as Markdown. Raise PuzzleError if the solutions are not here."""
    path = source_of(puzzle)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        got = f"no {path.name} in a folder solutions beside lib"
        expected = "a clone of the project, or the package llm-training-puzzles as it is published"
        raise PuzzleError(f"the solution of {puzzle.name} is not here", expected=expected, got=got, line="") from None
    figures = kept("figures.json").get(puzzle.file, {})  # that the build has computed
    shown = "\n\n".join([f"## {puzzle.title}", *_sections(text, puzzle.name)])
    return _FIGURE.sub(lambda at: figures.get(" ".join(at[1].split()), at[0]), shown)


def _sections(text: str, name: str) -> Iterator[str]:
    pieces = _CELL.split(text)
    ours = False  # from the puzzle's spec to the next one's
    for head, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if 'tags=["spec"]' in head:
            ours = f'"name": "{name}"' in body
        elif ours and ("### BEGIN SOLUTION" in body or "solution" in head):
            body = _MARKS.sub("", body).strip("\n")
            prose = "[markdown]" in head
            yield re.sub(r"^# ?", "", body, flags=re.MULTILINE) if prose else f"```python\n{body}\n```"
