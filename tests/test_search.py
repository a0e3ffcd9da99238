"""The search for better schedules: what it writes down, and what its changes leave as it was."""

from random import Random

import pytest

from lib.course.specs import Puzzle, find, puzzles
from tools.search import (
    Found,
    Schedule,
    Step,
    Value,
    changed,
    gathers_of,
    kept,
    measured,
    moved,
    programs_of,
    schedules_of,
)

WRITTEN_DOWN = [
    ("prefetch", "prefetch_in_21_8"),
    ("zero_bubble", "zb_h1"),
    ("interleaved", "interleaved_in_40_5"),
    ("sequence_parallel", "sequence_parallel_in_14_85"),
    ("context_parallel", "zigzag_and_ahead"),
]


def steps_of(puzzle: str, program: str) -> tuple[list[Schedule], Found]:
    """What the ranks do in a program, and what that takes when it is done step by step."""
    spec = find(puzzle)
    schedules = schedules_of(programs_of(spec)[program], spec)
    found = measured(spec, schedules)
    assert found is not None
    return schedules, found


@pytest.mark.parametrize(("puzzle", "program"), WRITTEN_DOWN)
def test_a_program_that_is_written_down_takes_what_it_took(puzzle: str, program: str) -> None:
    spec, (_, found) = find(puzzle), steps_of(puzzle, program)
    known = [(point["time"], point["memory"]) for point in spec.frontier if point["by"] == program]
    assert [(found.time, found.memory)] == known


def step(verb: str, needs: list[int], gives: int) -> Step:
    """A step that needs the values of these numbers, and gives one."""
    return Step(verb, tuple(map(Value, needs)), (), (Value(gives),))


def test_a_step_moves_with_all_that_it_needs_and_that_needs_it() -> None:
    steps = [step("a", [], 1), step("b", [], 2), step("c", [2], 3), step("d", [1], 4), step("e", [3], 5)]
    assert [one.verb for one in moved(steps, 4, 0)] == list("bcead")
    assert [one.verb for one in moved(steps, 1, 3)] == list("adbce")
    assert [one.verb for one in moved(steps, 0, 4)] == list("bcead")
    assert [one.verb for one in moved(steps, 3, 2)] == list("abdce")


def test_after_any_changes_no_step_comes_before_what_it_needs() -> None:
    schedules, _ = steps_of("prefetch", "prefetch")
    random = Random(1)
    for _ in range(300):
        schedules = changed(schedules, random) or schedules
    for steps in schedules:
        known: set[Value] = set()
        for one in steps:
            assert known.issuperset(one.needs()), one
            known |= set(one.gives)


def test_a_weight_that_is_kept_is_gathered_once_less() -> None:
    schedules, before = steps_of("prefetch", "fsdp_blocking")
    _, last = max(gathers_of(schedules[0]), key=lambda pair: -pair[1])  # the second gather of the last layer
    first = next(one for one, other in gathers_of(schedules[0]) if other == last)
    after = measured(find("prefetch"), [kept(steps, first, last) for steps in schedules])
    assert after is not None
    assert round(before.time - after.time, 9) == 0.8


TAUGHT_LATER = {
    "wsdp": "fsdp",  # gradients are reduce-scattered
    "gpipe": "interleaved",  # a rank has several thin stages
    "zero1": "zero2",  # gradients are summed after every micro-batch
    "one_f_one_b": "interleaved",
    "two_batch_overlap": "two_batch_overlap",  # its star is for turns; earlier updates come on top
}
"""Puzzles whose star is about their own idea, and the later puzzle whose idea does better. Its programs are on the
frontier."""

TIGHT = 0.98
STARS = [puzzle for puzzle in puzzles().values() if puzzle.star]


def beats(time: float, memory: float, puzzle: Puzzle) -> bool:
    """Whether these figures are more than 2 percent better than the star, in time or in memory, and no worse in the
    other."""
    assert puzzle.star is not None
    times, memories = time / puzzle.star["time"], memory / puzzle.star["memory"]
    return min(times, memories) < TIGHT - 1e-9 and max(times, memories) <= 1


def test_what_beats_a_star_is_more_than_two_percent_better_in_one_and_no_worse_in_the_other() -> None:
    puzzle = find("prefetch")
    assert puzzle.star == {"time": 21.8, "memory": 2424832}
    assert beats(21.8, 2359296, puzzle) and beats(21.3, 2424832, puzzle)
    assert not beats(21.4, 2424832, puzzle) and not beats(20.0, 2424833, puzzle) and not beats(21.9, 1, puzzle)


@pytest.mark.parametrize("puzzle", STARS, ids=[puzzle.name for puzzle in STARS])
def test_no_known_program_beats_the_star_unless_its_idea_is_taught_later(puzzle: Puzzle) -> None:
    better = [point["by"] for point in puzzle.frontier if beats(point["time"], point["memory"], puzzle)]
    assert bool(better) == (puzzle.name in TAUGHT_LATER)
    later = find(TAUGHT_LATER.get(puzzle.name, puzzle.name))
    assert later.number >= puzzle.number
    assert {*better} <= programs_of(later).keys()
