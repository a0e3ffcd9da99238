"""What a run has to do with the course: whose run it is, and what its puzzle refuses of it. It is asked once of a run,
however often that is drawn."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..basics.errors import PuzzleError
from ..course.layouts import Size
from ..course.specs import Puzzle, cost_named, puzzles
from ..machine.check import TRAINED
from ..running.run import Run
from .judge import check


class Standing(NamedTuple):
    """The puzzle that a run is of, at its own size and prices, or None; and what it refuses of it, in a line."""

    puzzle: Puzzle | None = None
    refused: str = ""


_known: WeakKeyDictionary[Run, Standing] = WeakKeyDictionary()


def standing_of(run: Run) -> Standing:
    """Return how a run stands to the puzzle of its name. A run that fails, or is only timed, has none."""
    if run not in _known:
        _known[run] = _found(run)
    return _known[run]


def _found(run: Run) -> Standing:
    puzzle = None if run.failed or run.note else puzzles().get(run.name)
    if puzzle is None or run.cost != cost_named(puzzle.cost) or size_of_run(run) != puzzle.size:
        return Standing()
    try:
        if not run.fault:  # its final weights are proved
            check(run, puzzle, puzzle.size, proved=True)
    except PuzzleError as error:
        return Standing(puzzle, str(error).split("\n", 1)[0])
    return Standing(puzzle)


def size_of_run(run: Run) -> Size:
    """Return the arguments of ``run`` that say how large a machine is, and what it trains."""
    size = {
        name: getattr(run, name) for name in ("ranks", "layers", "batches", "mesh", "node_size", "hosts", "experts")
    }
    size["train"] = None if run.train == TRAINED[0] else run.train
    if run.node_size == run.cost.node_size:  # the prices say it, nobody else
        size["node_size"] = None
    return {name: value for name, value in size.items() if value}
