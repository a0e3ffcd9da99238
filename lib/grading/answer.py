"""The solution of a puzzle with its explanation, for those who have solved it, or are sure that they want to see it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..basics.errors import PuzzleError
from ..course.specs import Puzzle
from .submission import load

# Not in lib: a worker can read lib, and no submission may find a solution there.
SOLUTIONS = Path(__file__).resolve().parent.parent.parent / "solutions"
_CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)
_MARKS = re.compile(
    r"^[ \t]*### (?:BEGIN SOLUTION\n|END SOLUTION\n|BROKEN\n(.*?)^[ \t]*### END SOLUTION\n)",
    re.MULTILINE | re.DOTALL,
)
_SPEC = re.compile(r'tags=\["spec"\]')


def kept_at(puzzle: Puzzle) -> Path:
    """Return the file with the solution of a puzzle, in a clone of the project."""
    return SOLUTIONS / f"{puzzle.file}.py"


def attempt_of(puzzle: Puzzle) -> Callable[[Any], Any]:
    """Return the learner's function, from the puzzle's notebook or script here. Raise PuzzleError without one."""
    for path in (Path.cwd() / f"{puzzle.file}{ending}" for ending in (".ipynb", ".py")):
        if path.is_file():
            names, trouble = load(path.name, path.read_text(encoding="utf-8"))
            if callable(found := names.get(puzzle.name)):
                return found  # type: ignore[no-any-return]
            raise PuzzleError(f"{path.name} defines no function {puzzle.name}", got="; ".join(trouble), line="")
    raise PuzzleError(
        f"there is no notebook of {puzzle.name} here", expected=f"{puzzle.file}.ipynb in the same folder", line=""
    )


class Answer:
    """The solution as Markdown, or the question whether it is really wanted."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text


def answer(puzzle: Puzzle, solved: bool, sure: bool) -> Answer:
    """Return the solution, or the question for ``sure``. Raise PuzzleError where there is none, as in Colab."""
    if not solved and not sure:
        return Answer(
            f"{puzzle.name} is not solved yet. `hint({puzzle.name!r})` gives the next hint. "
            f"If you are sure that you want to see the solution: `solution({puzzle.name!r}, sure=True)`"
        )
    path = kept_at(puzzle)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise PuzzleError(
            f"the solution of {puzzle.name} is not here",
            got=f"no {path.name} in a folder solutions beside lib",
            cure="it is in a clone of the project",
            line="",
        ) from None
    return Answer("\n\n".join([f"## {puzzle.title}", *_sections(text, puzzle.name)]))


def _sections(text: str, name: str) -> list[str]:
    """Return the function of a solution, and the texts that stand only in the solved notebook."""
    pieces = _CELL.split(text)
    parts = []
    ours = False  # from the puzzle's spec to the next one's
    for head, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if _SPEC.search(head):
            ours = f'"name": "{name}"' in body
            continue
        if not ours:
            continue
        if "### BEGIN SOLUTION" in body or "solution" in head:
            body = _MARKS.sub("", body).strip("\n")
            prose = "[markdown]" in head
            parts.append(re.sub(r"^# ?", "", body, flags=re.MULTILINE) if prose else f"```python\n{body}\n```")
    return parts
