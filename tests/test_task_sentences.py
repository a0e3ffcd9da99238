"""Each sentence of a task is held, and a wrong program of the corpus is stopped by what holds it, and by no other
rule."""

from __future__ import annotations

from functools import cache

import pytest

from lib import PuzzleError, run
from lib.course.held import check_held
from lib.course.layouts import check_layout
from lib.course.rules import RULES
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading import judge
from lib.machine.check import TRAINED, check_finals
from lib.machine.outcome import Outcome
from tests.corpus import Program
from tests.corpus.mistakes import MISTAKES
from tests.slow import some
from tests.task_sentences import FINALS, HELD, LAYOUT, MACHINE, SIZES, TARGET, TASKS, WORDS, Row
from tests.tasks import sentences
from tests.test_corpus import LONG_RUNS, function, in_a_notebook

KNOWN = ("Target", "The star:", "The star wants", "Sends that go on")
"""How sentences begin that say the target or the star, or where the skill for it is taught."""

NOT_HELD, ALSO_OVER, NO_TARGET = 0, 39, 1
"""How many sentences nothing holds; how many of the programs, as it happens, are over the target, too; of how many
puzzles there is no program that is right, and over the target. These numbers only fall."""
BEYOND = (SIZES, MACHINE, TARGET, "as_many_each")
"""What holds programs that cannot be in time, or are not looked at: a rank with twice the work takes longer."""

PROGRAMS = {(program.puzzle, program.name): program for program in MISTAKES}
ROWS = [(name, row) for name, task in TASKS.items() for row in task.rows]
OVER = [(name, Row("Target", TARGET, task.target)) for name, task in TASKS.items() if task.target]


@cache
def stops(program: Program) -> list[str]:
    """What stops a program at the puzzle's own size. Each is asked on its own, as if all others were switched off."""
    puzzle = puzzles()[program.puzzle]
    try:
        fn = function(program)
        outcome = run(fn, **puzzle.size, cost=cost_named(puzzle.cost), timeout=None)  # type: ignore[arg-type]
    except PuzzleError:
        return [MACHINE]
    found = []
    for name in (WORDS, FINALS, LAYOUT, *puzzle.rules, HELD, TARGET):
        try:
            ask(name, outcome, puzzle)
        except PuzzleError:
            found.append(name)
    return found


def ask(name: str, outcome: Outcome, puzzle: Puzzle) -> None:
    """Raise PuzzleError if this one stops a run at the puzzle's own size."""
    if name == WORDS:
        judge.check_features(outcome, puzzle)
    elif name == FINALS:
        check_finals(outcome.final_states, puzzle.size.get("train", TRAINED[0]))
    elif name == LAYOUT:
        check_layout(puzzle.layout, puzzle.size, outcome.final_states)
    elif name == HELD:
        check_held(outcome)
    elif name != TARGET:
        RULES[name](outcome)
    elif over := judge.over_target(outcome, puzzle):
        raise PuzzleError(over)


def slow_ones(rows: list[tuple[str, Row]]) -> list[object]:
    """The rows, with those of models of real size marked slow."""
    return [
        pytest.param(name, row, id=f"{name}: {row.begins}", marks=pytest.mark.slow if name in LONG_RUNS else ())
        for name, row in rows
    ]


@pytest.mark.parametrize("puzzle", puzzles().values(), ids=puzzles())
def test_every_sentence_of_a_task_is_in_the_table_once(puzzle: Puzzle) -> None:
    task, found = TASKS[puzzle.name], sentences(puzzle)
    begins = [*dict.fromkeys(row.begins for row in task.rows), *task.explains, *task.not_held]
    for sentence in found:
        if not sentence.startswith(KNOWN):
            assert sum(sentence.startswith(one) for one in begins) >= 1, f"nothing holds {sentence!r}"
    for one in begins:
        assert sum(sentence.startswith(one) for sentence in found) == 1, f"no sentence, or several, begin with {one!r}"


@pytest.mark.parametrize("puzzle", puzzles().values(), ids=puzzles())
def test_every_rule_of_a_puzzle_holds_a_sentence(puzzle: Puzzle) -> None:
    unsaid = set(puzzle.rules) - {row.held_by for row in TASKS[puzzle.name].rows}
    assert unsaid == UNSAID.get(puzzle.name, set())


UNSAID = {
    "pipeline_fsdp": {"four_stages"},
    "breadth_first": {"own_layers"},
    "replica_fsdp": {"as_many_each"},
    "repair_quiet": {"as_many_each"},
    "repair_book": {"as_many_each"},
    "repair_skip": {"each_on_one_rank"},
    "repair_straggler": {"each_on_one_rank"},
}
"""Rules that no sentence of the task says: the page does, above it. And rules that no program breaks in time at the
puzzle's own size, but at others."""


@pytest.mark.parametrize(("name", "row"), some(slow_ones(ROWS + OVER), 3))
def test_only_what_holds_a_sentence_stops_its_program(name: str, row: Row) -> None:
    program = PROGRAMS[name, row.program]
    verdict, _ = in_a_notebook(program)
    assert verdict is not None and verdict.status == "FAIL"
    found = stops(program)
    if row.held_by == SIZES:
        assert not found and verdict.failed_at
    elif row.held_by == MACHINE:
        assert found == [MACHINE]
    else:
        assert row.held_by in found and set(found) <= {row.held_by, TARGET}


def test_the_numbers_of_what_is_not_held_only_fall() -> None:
    assert sum(len(task.not_held) for task in TASKS.values()) == NOT_HELD
    assert sum(not task.target for task in TASKS.values()) == NO_TARGET
    rows = [(name, row) for name, row in ROWS if name not in LONG_RUNS and row.held_by not in BEYOND]
    assert sum(TARGET in stops(PROGRAMS[name, row.program]) for name, row in rows) <= ALSO_OVER
