"""The picture that the course begins with: three answers to one question."""

from lib import Run

from ..runs.course import Course
from ..sources.files import BuildError

HERO = "pipeline", "gpipe"
"""The puzzles whose solutions it compares; below them is the program that has the star of the second."""
TITLES = ("one big batch", "GPipe", "interleaved stages")


def compared(course: Course) -> list[tuple[str, Run]]:
    """The runs that it compares, each with its title; none where one of the puzzles is missing."""
    known = {puzzle.name: puzzle for puzzle in course.puzzles}
    if not known.keys() >= {*HERO}:
        return []
    last = known[HERO[-1]]
    if (starred := next(course.starred(last), None)) is None:
        raise BuildError(f"{last.file}.py: the gallery shows its star, which no program earns")
    done = [course.played(known[name]) for name in HERO]
    return [*zip(TITLES, [*done, starred[1]], strict=True)]
