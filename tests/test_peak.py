"""What a peak is made of, and what of it is named: checked against the log alone, on programs that are right but too
large."""

import importlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lib import Model, PuzzleError, Run, grade, run
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading.judge import check
from lib.record.figures.score import memory_parts, peak_event
from tests.corpus import HEAD, Program, functions
from tests.corpus.mistakes import MISTAKES
from tests.programs import PATIENCE
from tests.slow import some
from tests.test_corpus import function, near

SMALL = [puzzle for puzzle in puzzles().values() if puzzle.name != "compose" and puzzle.name in functions()]
SOME = some(SMALL, 3)
Function = Callable[[Model], Any]


def kept_too_long() -> Iterator[Program]:
    """Every solution with one tensor kept that it takes out: ``pop(key)`` becomes ``[key]``."""
    for puzzle in SMALL:
        source = functions()[puzzle.name]
        for found in re.finditer(r"(model\.\w+)\.pop\(", source):
            end, depth = found.end(), 1
            while depth:
                depth += {"(": 1, ")": -1}.get(source[end], 0)
                end += 1
            key = source[found.end() : end - 1]
            text = f"{source[: found.start()]}{found[1]}[{key}]{source[end:]}"
            yield Program(puzzle.name, f"{found[1]}[{key}] kept, from {found.start()}", f"{HEAD}{text}\n")


def large(puzzle: Puzzle, fn: Function) -> Run | None:
    """The run of a program that is right for a puzzle but takes too much memory, or None for any other."""
    try:
        done = run(fn, **puzzle.size, cost=cost_named(puzzle.cost))
        check(done, puzzle, puzzle.size)
    except PuzzleError:
        return None
    return done if puzzle.size_unit.scored(done.memory) > puzzle.target["memory"] else None


def look(puzzle: Puzzle, fn: Function, done: Run) -> None:
    """Check all that is said of the peak of a run."""
    event = peak_event(done.device_events)
    verdict = grade(fn, puzzle.name).verdict
    rows = verdict.as_json()["peak"]
    json.dumps(rows)
    assert event is not None and verdict.peak_memory == done.memory
    held = Counter[str]()
    for row in rows:
        held[row["memory"]] += row["elements"]
    assert dict(held) == memory_parts(event)  # the sizes add up, kind by kind
    ticks = {one.issued for one in done.events if one.rank == event.rank} | {one.end for one in done.events}
    for row in rows:
        moments = [row[when] for when in ("made", "last_read", "read_next") if row[when]]
        assert {one["tick"] for one in moments} <= ticks and "{s}" not in row["what"]
        assert not row["last_read"] or row["last_read"]["tick"] <= event.issued
        assert not row["read_next"] or row["read_next"]["tick"] >= event.issued


@pytest.mark.parametrize("puzzle", SOME, ids=[puzzle.name for puzzle in SOME])
def test_a_peak_is_told_where_a_tensor_is_kept_too_long(puzzle: Puzzle) -> None:
    found = 0
    for program in kept_too_long():
        if program.puzzle == puzzle.name:
            fn: Any = function(program)
            done = large(puzzle, fn)
            if done is not None:
                look(puzzle, fn, done)
                found += 1
    if puzzle.name in ("basic", "grad_accum", "zero1", "checkpointing", "one_f_one_b", "sequence_parallel"):
        assert found


@pytest.mark.parametrize(
    ("puzzle", "name"),
    [
        ("repair_bargain", "as it is"),
        ("one_f_one_b", "eight little sums"),
        ("offload", "gradients added up on the device"),
    ],
)
def test_the_verdict_at_a_shell_has_the_same_list_with_lines(puzzle: str, name: str) -> None:
    """Also of what is added up, cut and joined, which a replay carries out in another way."""
    [program] = [one for one in MISTAKES if (one.puzzle, one.name) == (puzzle, name)]
    there, here = near(program), grade(function(program), program.puzzle).verdict  # type: ignore[arg-type]

    def without_files(thing: object) -> object:
        return re.sub(r" of \S+\.py", "", json.dumps(thing))

    assert here.peak and without_files(there.as_json()["peak"]) == without_files(here.as_json()["peak"])
    assert sum(row["elements"] for row in there.as_json()["peak"]) == there.memory
    assert all(row["made"]["line"] for row in there.peak if row["made"])


def test_what_is_received_counts_from_when_it_came() -> None:
    """Rank 3 of GPipe waits from tick 0 on for its first input, which comes at 7.2."""
    [program] = [one for one in MISTAKES if (one.puzzle, one.name) == ("one_f_one_b", "GPipe")]
    fn: Any = function(program)
    verdict = grade(fn, program.puzzle).verdict
    done = run(fn, **puzzles()[program.puzzle].size)
    event = peak_event(done.device_events)
    assert event is not None
    came = {one.end for one in done.events if one.rank == event.rank and one.kind == "receive"}
    received = [row["made"]["tick"] for row in verdict.peak if row["made"] and row["made"]["operation"] == "receive"]
    assert {*received} <= came and min(received) > 0


@pytest.mark.slow
def test_where_sizes_are_rounded_the_list_adds_up_to_the_peak_without_that() -> None:
    verdict = grade(renamed("compose", "whole_states"), "compose", timeout=PATIENCE).verdict
    held = sum(row["elements"] for row in verdict.as_json()["peak"])
    assert verdict.right is True and held == verdict.peak_memory != verdict.memory, verdict.message


def renamed(puzzle: str, name: str) -> Function:
    """Another program of a puzzle's source."""
    module = importlib.import_module(f"solutions.{puzzles()[puzzle].file}")
    return getattr(module, name)  # type: ignore[no-any-return]
