"""``why``: more of what the last verdict, or the last run that failed, shows."""

from typing import Any

from ..basics.errors import PuzzleError
from ..course.specs import Puzzle, puzzles
from ..explain import words
from ..explain.explanation import explain
from ..explain.statement import Explanation
from ..learner.dist import Dist
from ..recording.recorder import recorder_for
from ..running.run import Failed, failed
from ..running.trained import train_on
from .reasons import is_explained, references_of
from .verdict import Verdict

LEVELS = (1, 2, 3)
graded: list[Verdict] = []
"""The last verdict, if there is one."""


class Why(str):
    """An explanation in words, which shows itself."""

    __repr__ = str.__str__


def why(level: int = 2) -> Why:
    """Why the last attempt that was graded, or the last run that failed, is wrong, slow or large.

    ``level``: 1 what is wrong with which tensor, and where; 2 what right runs do there; 3 their lines beside yours. A
    run that has failed is run once more, and its calls are noted. Raises PuzzleError where there is nothing to explain.
    """
    if level not in LEVELS:
        raise PuzzleError("why has three levels", expected="1, 2 or 3", got=repr(level))
    if not failed and not graded:
        raise PuzzleError("nothing has failed here", expected="a run that fails, or a verdict that is no pass", line="")
    sentences = _sentences(_of_run(failed[0]) if failed else graded[0].explanation, level)
    return Why("\n".join(sentences) or "the calls of this run show no more")


def right_lines(puzzle: Puzzle) -> str:
    """Return the lines of a right run that differ from those of the last attempt at a puzzle, or an empty text."""
    explanation = graded[0].explanation if graded and graded[0].puzzle.name == puzzle.name else None
    known = _sentences(explanation, 2)
    return "\n".join(line for line in _sentences(explanation, 3) if line not in known)


def _sentences(explanation: Explanation | None, level: int) -> list[str]:
    return [] if explanation is None else words.why(explanation, level)


def _of_run(run: Failed) -> Explanation | None:
    """Return why a run has failed, by running it once more."""
    fn, shape, work, settings = run
    cost: Any = shape.cost  # in the place of a name
    recorder = recorder_for(shape)
    try:
        train_on(fn, Dist.of(shape, recorder.as_simulator), work, settings)
    except PuzzleError as error:
        if error.run is not None:
            size, puzzle = error.run.size, puzzles().get(error.run.name)
            references = references_of(puzzle, size, cost) if puzzle is not None and is_explained(size) else ()
            return explain(recorder.whole(), error, references, size, cost)
    return None
