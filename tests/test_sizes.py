"""The other sizes of a puzzle: short lists that have a size of every kind, so that a program which is wrong at one kind
of size fails."""

from functools import cache
from typing import Any

import pytest

from lib import Model, run
from lib.course.sizes import SIZES, other_sizes, show_size
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading.judge import judge
from lib.grading.verdict import FAIL, PASS
from lib.machine.outcome import Outcome
from tests.allowed_sizes import Kind, Size, allowed, kinds
from tests.programs import SMALLER, solutions

SOLUTIONS = {spec["name"]: fn for fn, spec in solutions()}


def graded(puzzle: Puzzle) -> list[Size]:
    return [puzzle.size, *other_sizes(puzzle.other_sizes, puzzle.size)]


def test_every_list_has_a_use_and_is_short() -> None:
    assert {puzzle.other_sizes for puzzle in puzzles().values()} == SIZES.keys()
    for puzzle in puzzles().values():
        others = graded(puzzle)[1:]
        assert 9 <= len(others) <= 20 and puzzle.size not in others, puzzle.name
        assert all(others.count(size) == 1 for size in others)


FEW: dict[str, set[Kind]] = {
    "rings": {("ranks, layers", "less, one left")},
    "squares": {("layers, batches", "equal"), ("ranks, layers", "equal")},
    "replica_fsdp": {("layers, shard", "less, several left"), ("layers, replica", "less, several left")},
}
"""Kinds that a short list leaves out, as only large sizes have them, or none whose groups are worth crossing."""


def test_every_kind_of_size_that_the_text_allows_is_graded() -> None:
    for puzzle in puzzles().values():
        possible = set().union(*map(kinds, allowed(puzzle.other_sizes, puzzle.size)))
        missing = possible - set().union(*map(kinds, graded(puzzle)))
        assert missing <= FEW.get(puzzle.other_sizes, set()), puzzle.name


def test_layers_ranks_and_micro_batches_of_each_number() -> None:
    one_rank = graded(puzzles()["basic"])
    assert {size["layers"] for size in one_rank} >= {*range(1, 9), 13}
    assert {size["batches"] for size in one_rank} >= {*range(1, 9)}
    for name in ("ddp", "fsdp", "lora", "tensor_parallel", "zero1"):
        assert {size["ranks"] for size in graded(puzzles()[name])} == {*range(1, 9)}
    for name in ("pipeline", "gpipe", "one_f_one_b"):
        sizes = graded(puzzles()[name])
        assert {size["ranks"] for size in sizes} >= {6, 8}
        assert {size["layers"] // size["ranks"] for size in sizes} >= {1, 2, 3, 4}
        rests = {(size["ranks"], size["batches"] % size["ranks"]) for size in sizes}
        assert {0, 1} <= {rest for _, rest in rests} and any(1 < rest == n - 1 for n, rest in rests)
        assert any(1 < rest < n - 1 for n, rest in rests)


def does_nothing(model: Model) -> None:
    """The end of a program that stops at some sizes."""


@cache
def right(name: str, at: int) -> Outcome:
    """The solution at one of the sizes of its puzzle: 0 is its own."""
    puzzle = puzzles()[name]
    return run(SOLUTIONS[name], **graded(puzzle)[at], cost=cost_named(puzzle.cost))


@pytest.mark.parametrize("name", [name for name in SOLUTIONS if name not in SMALLER])
def test_a_solution_that_is_wrong_at_one_kind_of_size_is_refused(name: str) -> None:
    puzzle = puzzles()[name]
    sizes = graded(puzzle)
    for kind in set().union(*map(kinds, sizes)) - kinds(puzzle.size):

        def at(size: Any, kind: Kind = kind) -> Outcome:
            stops = kind in kinds(size)
            return run(does_nothing, **size) if stops else right(name, sizes.index(size))

        verdict, first = judge(puzzle, at), next(size for size in sizes if kind in kinds(size))
        assert (verdict.status, verdict.failed_at) == (FAIL, show_size(first)), kind
        assert verdict.held_at == tuple(map(show_size, sizes[1 : sizes.index(first)]))


def test_right_at_all_of_them_is_right() -> None:
    puzzle = puzzles()["one_f_one_b"]
    assert judge(puzzle, lambda size: right(puzzle.name, graded(puzzle).index(size))).status == PASS
