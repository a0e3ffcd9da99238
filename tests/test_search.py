"""The search for better schedules: what it writes down, and what its changes leave as it was."""

from __future__ import annotations

from random import Random

import pytest

from lib.course.specs import find
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
    ("lora", "lora_overlap"),
    ("zero_bubble", "zb_h1"),
    ("interleaved", "interleaved_in_40_5"),
    ("sequence_parallel", "sequence_parallel_in_14_85"),
    ("replica_fsdp", "replica_fsdp"),
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
    expected = known or [(spec.target["time"], spec.target["memory"])]  # that of the solution of puzzle 8
    assert [(found.time, found.memory)] == expected


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
