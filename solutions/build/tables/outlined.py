"""What lib keeps of the solutions: what may be shown of them, and what only a grader reads."""

import json
import math

from lib import Run
from lib.course.outlines import OUTLINES, PROGRAMS
from lib.course.specs import Puzzle

from ..runs.course import Course
from ..sources.files import Json
from .outlines import half_of, outline_of
from .silhouettes import silhouette_of


def tables_of_outlines(course: Course) -> dict[str, str]:
    """The texts of the two tables by name, a line for each puzzle."""
    rows = {puzzle.name: outline_rows(course, puzzle) for puzzle in course.puzzles}
    return {
        name: _in_lines({of: both[at] for of, both in rows.items()}) for at, name in enumerate((OUTLINES, PROGRAMS))
    }


def _in_lines(rows: Json) -> str:
    lines = (f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in rows.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def outline_rows(course: Course, puzzle: Puzzle) -> tuple[Json, Json]:
    """What may be shown of a puzzle's solution; and what is secret, of the program with its star."""
    played = course.played(puzzle)
    shown = {
        "at_home": [played.time, math.ceil(played.memory)],
        "sketch": half_of(played.events, played.time),
        "silhouette": silhouette_of(played.events, played.time),
        "target": _goal(played),
    }
    return shown, ({"star": _of_the_star(course, puzzle)} if puzzle.star else {})


def _of_the_star(course: Course, puzzle: Puzzle) -> Json:
    """Of the program with the star that has least time to spare: a far faster one has another idea than that of which
    the star's hint asks."""
    runs = [played for _, played in course.starred(puzzle)]
    return _goal(max(runs, key=lambda one: (one.time, -one.memory)))


def _goal(played: Run) -> Json:
    return {"outline": outline_of(played.events, played.time, played.devices_of)}
