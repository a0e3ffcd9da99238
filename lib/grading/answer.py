"""A learner's own function, out of its notebook, and the solution of a puzzle, for those who are through with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..basics.errors import PuzzleError
from ..course.specs import Puzzle, find
from .progress import Progress
from .submission import load

# Not in lib: a worker can read lib, and no submission may find a solution there.
SOLUTIONS = Path(__file__).resolve().parent.parent.parent / "solutions"
_CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)
_MARKS = re.compile(
    r"^[ \t]*### (?:BEGIN SOLUTION\n|END SOLUTION\n|BROKEN\n(.*?)^[ \t]*### END SOLUTION\n)",
    re.MULTILINE | re.DOTALL,
)


class Answer(str):
    """The solution as Markdown, or the question whether it is really wanted."""

    __repr__ = _repr_markdown_ = str.__str__


def attempt(puzzle: str) -> Callable[[Any], Any]:
    """Your own function for a puzzle, out of its notebook in this folder.

    Raises PuzzleError for an unknown puzzle, and where there is no such notebook (in Colab).
    """
    spec = find(getattr(puzzle, "__name__", puzzle))
    for path in (Path(f"{spec.file}{ending}") for ending in (".ipynb", ".py")):
        if path.is_file():
            names, trouble = load(path.name, path.read_text(encoding="utf-8"))
            if callable(found := names.get(spec.name)):
                return found  # type: ignore[no-any-return]
            raise PuzzleError(f"{path.name} defines no function {spec.name}", got="; ".join(trouble), line="")
    there = f"{spec.file}.ipynb in the same folder"
    raise PuzzleError(f"there is no notebook of {spec.name} here", expected=there, line="")


def kept_at(puzzle: Puzzle) -> Path:
    """Return the file with the solution of a puzzle, in a clone of the project."""
    return SOLUTIONS / f"{puzzle.file}.py"


def solution(puzzle: str, sure: bool = False) -> Answer:
    """The solution of a puzzle with its explanation, once it is solved, or if you are ``sure``.

    Raises PuzzleError for an unknown puzzle, and where there are no solutions (in Colab).
    """
    spec = find(getattr(puzzle, "__name__", puzzle))
    if spec.name not in Progress().solved and not sure:
        return Answer(
            f"{spec.name} is not solved yet. `hint({spec.name!r})` gives the next hint. "
            f"If you are sure that you want to see the solution: `solution({spec.name!r}, sure=True)`"
        )
    path = kept_at(spec)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise PuzzleError(
            f"the solution of {spec.name} is not here",
            got=f"no {path.name} in a folder solutions beside lib",
            cure="it is in a clone of the project",
            line="",
        ) from None
    return Answer("\n\n".join([f"## {spec.title}", *_sections(text, spec.name)]))


def _sections(text: str, name: str) -> list[str]:
    """Return the function of a solution, and the texts that stand only in the solved notebook."""
    pieces = _CELL.split(text)
    parts = []
    ours = False  # from the puzzle's spec to the next one's
    for head, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if 'tags=["spec"]' in head:
            ours = f'"name": "{name}"' in body
        elif ours and ("### BEGIN SOLUTION" in body or "solution" in head):
            body = _MARKS.sub("", body).strip("\n")
            prose = "[markdown]" in head
            parts.append(re.sub(r"^# ?", "", body, flags=re.MULTILINE) if prose else f"```python\n{body}\n```")
    return parts
