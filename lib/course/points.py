"""Points for an attempt that passes, by a formula: for the pass, for the star, and for being near the frontier.

    score  = 0                                  where it does not pass
    score  = 0.5 + 0.2 * star + 0.3 * nearness  where it does
    points = score * what the puzzle is worth

``star`` is 1 for an attempt with the star, of a puzzle without one, or on the frontier. ``nearness`` is
(frontier's time / time) * (frontier's memory / memory), neither factor above 1, for the point of the frontier that
gives most. So the score is above 0.5 for a pass, and 1 for the best figures that we know.
"""

from collections.abc import Mapping

from ..basics.errors import PuzzleError
from ..basics.units import Elements
from .specs import Puzzle, find, puzzles

FOR_PASS, FOR_STAR, FOR_NEARNESS = 0.5, 0.2, 0.3
DIGITS = 4  # of a score; points have two


def nearness(puzzle: Puzzle, time: float, memory: Elements | float) -> float:
    """Return how near figures are to the puzzle's frontier: 1 on it or beyond, and less with more time or memory."""
    each = [(point["time"] / time, point["memory"] / memory) for point in puzzle.frontier]
    return max([min(1.0, float(faster)) * min(1.0, float(smaller)) for faster, smaller in each])


def score_of(puzzle: Puzzle, time: float, memory: Elements | float) -> float:
    """Return the score of a pass with these figures, from 0 to 1."""
    near = nearness(puzzle, time, memory)
    star = puzzle.star is None or puzzle.has_star(time, memory) or near == 1
    return round(FOR_PASS + FOR_STAR * star + FOR_NEARNESS * near, DIGITS)


def assignment(text: str) -> Mapping[str, float]:
    """Return what each puzzle is worth: "fsdp=20,7=10" for two puzzles, or "10" for each. Raise PuzzleError for any
    other text."""
    if "=" not in text:
        return dict.fromkeys(puzzles(), _worth(text))
    pairs = [part.partition("=") for part in text.split(",")]
    worths = {find(name.strip()).name: _worth(number) for name, _, number in pairs}
    if len(worths) < len(pairs):
        raise PuzzleError(f"--points {text} names a puzzle twice", expected="--points fsdp=20,gpipe=10", line="")
    return worths


def _worth(text: str) -> float:
    try:
        worth = float(text)
    except ValueError:
        worth = 0.0
    if not 0 < worth <= 1e6:
        got, expected = f"{text.strip()!r}", "--points 10, for each puzzle, or --points fsdp=20,gpipe=10"
        raise PuzzleError("a puzzle is worth a number of points, more than 0", expected=expected, got=got, line="")
    return worth
