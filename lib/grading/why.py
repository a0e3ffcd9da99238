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
from .references import is_explained, references_of
from .standing import size_of_run
from .verdict import Verdict

LEVELS = (1, 2, 3)
last: list[Verdict] = []
"""The last verdict, if there is one since the last run that failed."""


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
    if failed:
        explanation: Explanation | None = _of_run(failed[0])
    elif last:
        explanation = last[0].explanation
    else:
        raise PuzzleError("nothing has failed here", expected="a run that fails, or a verdict that is no pass", line="")
    return Why(in_words(explanation, level))


def beside(puzzle: Puzzle) -> str:
    """Return the lines of a right run that differ from those of the last attempt at a puzzle, or an empty text."""
    explanation = last[0].explanation if last and last[0].puzzle.name == puzzle.name else None
    known = words.why(explanation, 2) if explanation else []
    return "\n".join(said for said in (words.why(explanation, 3) if explanation else []) if said not in known)


def in_words(explanation: Explanation | None, level: int = 2) -> str:
    """Return an explanation as text, a sentence in a line."""
    said = words.why(explanation, level) if explanation is not None else []
    return "\n".join(said) or "the calls of this run show no more"


def _of_run(run: Failed) -> Explanation | None:
    """Return why a run has failed, by running it once more."""
    fn, shape, work, settings = run
    cost: Any = shape.cost  # in the place of a name
    recorder = recorder_for(shape)
    try:
        train_on(fn, Dist.of(shape, recorder.as_simulator), work, settings)
    except PuzzleError as error:
        if error.run is None:
            return None
        size = size_of_run(error.run)
        puzzle = puzzles().get(error.run.name)
        references = () if puzzle is None or not is_explained(size) else references_of(puzzle, size, cost)
        return explain(recorder.whole(), error, references, size, cost)
    return None
