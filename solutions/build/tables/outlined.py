"""The rows of lib/outlines.json: what of the solutions may be shown."""

import json
import math

from lib import Run
from lib.course.specs import Puzzle

from ..runs.course import Course
from ..sources.files import Json
from .outlines import half_of, outline_of
from .silhouettes import silhouette_of


def table_of_outlines(course: Course) -> str:
    """The text of the table, a line for each puzzle."""
    rows = {puzzle.name: outline_row(course, puzzle) for puzzle in course.puzzles}
    lines = (f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in rows.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def outline_row(course: Course, puzzle: Puzzle) -> Json:
    """What may be shown of a puzzle's solution, and of the program with its star."""
    played = course.played(puzzle)
    return {
        "at_home": [played.time, math.ceil(played.memory)],
        "sketch": half_of(played.events, played.time),
        "silhouette": silhouette_of(played.events, played.time),
        "target": _goal(played),
        **({"star": _of_the_star(course, puzzle)} if puzzle.star else {}),
    }


def _of_the_star(course: Course, puzzle: Puzzle) -> Json:
    """Of the program with the star that has least time to spare: a far faster one has another idea than that of which
    the star's hint asks."""
    runs = [played for _, played in course.starred(puzzle)]
    return _goal(max(runs, key=lambda one: (one.time, -one.memory)))


def _goal(played: Run) -> Json:
    return {"outline": outline_of(played.events, played.time, played.beside)}
