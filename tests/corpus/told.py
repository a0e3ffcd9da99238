"""More wrong programs, in many hands: what people write who have half understood, and right programs with a line changed.

They stand in told.json, a row each: the puzzle, a name, a base, and what replaces which of its lines. A base is a
function of the solutions, or ``#7``, the program of that row.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from . import HEAD, Program, function


@cache
def told() -> list[Program]:
    """All of these programs."""
    return [*_programs()]


def _programs() -> Iterator[Program]:
    done: list[list[str]] = []
    for puzzle, name, base, edits in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")):
        lines = done[int(base[1:])] if base[:1] == "#" else f"{HEAD}{function(base)}\n".splitlines(keepends=True)
        done.append(_edited(lines, edits))
        yield Program(puzzle, f"{name}, told", "".join(done[-1]))


def _edited(lines: Sequence[str], edits: Sequence[tuple[int, int, str]]) -> list[str]:
    """Return lines of which some are replaced, each from the first number to before the second one."""
    made = [*lines]
    for first, end, text in reversed(edits):
        made[first:end] = text.splitlines(keepends=True)
    return made
