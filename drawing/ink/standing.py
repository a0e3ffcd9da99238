"""What a run has to do with the course: whose run it is, and what its puzzle refuses of it. It is asked once of a run,
however often that is drawn."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

from lib.basics.errors import PuzzleError
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading.judge import check
from lib.running.run import Run


class Standing(NamedTuple):
    """The puzzle that a run is of, at its own size and prices, or None; and what it refuses of it, in a line."""

    puzzle: Puzzle | None = None
    refused: str = ""


_known: WeakKeyDictionary[Run, Standing] = WeakKeyDictionary()


def standing_of(run: Run) -> Standing:
    """Return how a run stands to the puzzle of its name. A run that fails, or is only timed, has none."""
    if run not in _known:
        puzzle = None if run.failed or run.note else puzzles().get(run.name)
        own = puzzle is not None and run.cost == cost_named(puzzle.cost) and run.size == puzzle.size
        _known[run] = Standing(puzzle, _refused(run, puzzle)) if puzzle is not None and own else Standing()
    return _known[run]


def _refused(run: Run, puzzle: Puzzle) -> str:
    try:
        if not run.fault:  # its final weights are proved
            check(run, puzzle, puzzle.size, proved=True)
    except PuzzleError as error:
        return str(error).split("\n", 1)[0]
    return ""
