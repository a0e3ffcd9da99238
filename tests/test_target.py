"""Who meets the printed target passes: programs that take all of the target, and right ones that hold a tensor more."""

from typing import Any

import pytest

from lib import Model, PuzzleError, Run, run
from lib.course.layouts import Size
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading.judge import judge
from lib.grading.verdict import PASS, Verdict
from tests.corpus.honest import HONEST
from tests.facts import title
from tests.programs import SLACK, SMALLER, slack
from tests.slow import some
from tests.test_corpus import function


def at(size: Size, puzzle: Puzzle, fn: Any) -> Run:
    return run(fn, **size, cost=cost_named(puzzle.cost), timeout=60.0)


def verdict(puzzle: Puzzle, fn: Any, known: Run | None = None) -> Verdict:
    """``known``: the run at the puzzle's own size."""
    return judge(puzzle, lambda size: known if known and size == puzzle.size else at(size, puzzle, fn))


@pytest.mark.parametrize("name", SLACK)
def test_a_program_that_takes_all_of_the_target_passes_at_all_sizes(name: str) -> None:
    puzzle = puzzles()[name]
    found = verdict(puzzle, slack(name))
    assert (found.status, found.time, found.memory) == (PASS, puzzle.target["time"], puzzle.target["memory"])


class OneMore:
    """A model whose first weight is held a second time, from the beginning to the end."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        weight, state = self.model.load_weights(*args, **kwargs)
        self.model.weights.setdefault("one more", weight)
        return weight, state


def holds_one_more(fn: Any) -> Any:
    """The same function, with a tensor more than it needs."""

    def program(model: Model) -> Any:
        return fn(OneMore(model))

    return program


def test_a_right_program_may_hold_a_tensor_more_as_long_as_it_meets_the_target() -> None:
    tried, programs = 0, some([one for one in HONEST if one.puzzle not in SMALLER], 17)
    for program in programs:
        puzzle, fn = puzzles()[program.puzzle], holds_one_more(function(program))
        try:
            outcome = at(puzzle.size, puzzle, fn)
        except PuzzleError:
            continue  # it goes through all of model.weights, or asks for the class of its model
        time, memory = puzzle.scored(outcome.time, outcome.memory)
        if time <= puzzle.target["time"] and memory <= puzzle.target["memory"]:
            found = verdict(puzzle, fn, outcome)
            assert found.status == PASS, (title(program), found.message)
            tried += 1
    assert tried > 0.4 * len(programs)
