"""What commands at a shell have in common: a function in a file, and the machine that runs it."""

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..basics.errors import PuzzleError
from ..course.specs import cost_named, puzzles
from ..running.options import size_from
from .submission import load_quietly, summary


class Usage(Exception):
    """Raised for a wrong command line."""


def function_in(what: str) -> Callable[..., Any]:
    """Return the function that ``FILE:function`` names, or the only one of ``FILE``. Raise Usage without one."""
    name, colon, wanted = what.rpartition(":")
    if not colon or not name or "/" in wanted or "\\" in wanted:
        name, wanted = what, ""
    path = Path(name)
    try:
        names, trouble, _ = load_quietly(path.name, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PuzzleError) as error:
        raise Usage(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    own = {key: value for key, value in names.items() if inspect.isfunction(value) and value.__module__ == "submission"}
    if wanted in own or (not wanted and len(own) == 1):
        return own[wanted or next(iter(own))]
    missing = f"{name} has no function {wanted!r}" if wanted else f"which function of {name}? Write {name}:function"
    known = f"it has {', '.join(own)}" if own else "it has no function at all"
    raise Usage("; ".join(filter(None, [missing, known, summary(trouble)])))


def size_for(function: Callable[..., Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``run``: those of the options, and for the rest those of the puzzle of this name."""
    puzzle = puzzles().get(function.__name__)
    cost = {"cost": cost_named(puzzle.cost)} if puzzle else {}
    return size_from(options, puzzle.size if puzzle else {}) | cost
