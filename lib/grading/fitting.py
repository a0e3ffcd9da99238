"""What to write instead, where that depends on the puzzle: a run knows of none."""

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from ..basics.errors import GRADED, Fix, PuzzleError
from ..course.specs import Puzzle, taught_later

P = ParamSpec("P")
T = TypeVar("T")


def fitting(puzzle: Puzzle, run: Callable[P, T]) -> Callable[P, T]:
    """Return a function that does what ``run`` does. The PuzzleError that it raises says what to write in this puzzle:
    what its words grant, what its rules or its layout ask for, or what pages have written up to it."""

    def fitted(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return run(*args, **kwargs)
        except PuzzleError as error:
            fixes: Mapping[str, Fix] = getattr(error, "fix_for", {})
            asked = {*puzzle.words, *puzzle.ideas, puzzle.layout, GRADED, *(("mesh",) if "mesh" in puzzle.size else ())}
            asked |= {f"before {method}" for method in taught_later(puzzle)}
            known = [fix for name, fix in fixes.items() if name in asked]  # the error names first what decides
            if known:
                error.fix = known[0]
            raise

    return fitted
