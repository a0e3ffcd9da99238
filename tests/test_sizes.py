"""The other sizes of a puzzle: they cover every pair of relations, and a program that is wrong at one of them fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import combinations
from typing import Any

import pytest

from lib import Model, PuzzleError, run
from lib.course.outlines import Room, SolutionFigures, figures_elsewhere, solution_figures
from lib.course.sizes import SIZES, Relation, covering, other_sizes, relations, show_size
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading.judge import alike, check_limits, judge, limits, one_tensor
from lib.grading.verdict import FAIL, PASS
from lib.machine.outcome import Outcome
from solutions import build
from solutions.room import ROOM
from tests.allowed_sizes import allowed, pairs_of_comparisons
from tests.programs import SMALLER, solutions
from tests.slow import some

SOLUTIONS = {spec["name"]: fn for fn, spec in solutions()}
OF_CHOICE = {puzzle.other_sizes: puzzle for puzzle in puzzles().values()}


# -- which sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_every_pair_of_relations_is_tried(name: str) -> None:
    own = OF_CHOICE[name].size
    tried, possible = other_sizes(name, own), SIZES[name](own)

    def pairs(sizes: list[Any]) -> set[tuple[Relation, Relation]]:
        return {
            (one, two) for size in sizes for one, two in combinations(relations(size), 2) if one[0] != two[0]
        }  # of one thing several relations may hold, as 2 and n - 1 of 3 ranks

    assert pairs(tried) == pairs([size for size in possible if size != own]) and own not in tried
    assert all(size in possible and tried.count(size) == 1 for size in tried)
    assert {size["ranks"] for size in tried} == {size["ranks"] for size in possible}
    assert 2 <= len(tried) <= 45
    product = [size["ranks"] * size["layers"] * (1 + size["batches"]) for size in tried]
    assert product == sorted(product)  # small ones first: they take no time, and are wrong as often


@pytest.mark.parametrize("puzzle", puzzles().values(), ids=puzzles())
def test_any_two_comparisons_that_the_text_allows_come_together_at_some_size(puzzle: Puzzle) -> None:
    """As more layers than ranks, which do not divide them, where an axis is longer than the other one."""
    tried = [puzzle.size, *other_sizes(puzzle.other_sizes, puzzle.size)]
    wanted = pairs_of_comparisons(allowed(puzzle.other_sizes, puzzle.size))
    assert not wanted - pairs_of_comparisons(tried)


def test_relations_of_a_size() -> None:
    found = relations({"ranks": 3, "layers": 6, "batches": 2})
    assert found == [("ranks", "odd"), ("layers", "n + 3"), ("layers", "2n"), ("batches", "2"), ("batches", "n - 1")]
    ring = relations({"ranks": 6, "layers": 4, "batches": 9, "mesh": {"stage": 2, "shard": 3}})
    assert ring == [("stage", "2"), ("shard", "3"), ("layers", "2n"), ("batches", "n + 1")]
    nodes = relations({"ranks": 6, "layers": 5, "batches": 6, "mesh": {"replica": 3, "shard": 2}, "node_size": 2})
    assert nodes == [("replica", "3"), ("shard", "2"), ("layers", "more")]


def test_what_once_got_through_is_tried() -> None:
    """A 1F1B that is wrong wherever there are two or more micro-batches and fewer than ranks; a breadth-first that
    hangs where there are more stages than shards and several layers each."""
    pipelines = other_sizes("pipeline", puzzles()["one_f_one_b"].size)
    assert sum(2 <= size["batches"] < size["ranks"] for size in pipelines) >= 3
    rings = other_sizes("rings", puzzles()["breadth_first"].size)
    assert sum(size["mesh"]["stage"] > size["mesh"]["shard"] and size["layers"] > size["ranks"] for size in rings) >= 3


def test_few_are_chosen_and_the_smallest_that_do() -> None:
    sizes = [{"ranks": n, "layers": layers, "batches": n} for n in (3, 5, 7) for layers in (1, n)]
    assert covering(sizes)[0] == {"ranks": 3, "layers": 1, "batches": 3}
    assert covering(sizes[:1]) == sizes[:1] and covering([]) == []


@pytest.mark.parametrize("name", SOLUTIONS)
def test_they_are_those_of_which_figures_are_kept(name: str) -> None:
    puzzle = puzzles()[name]
    assert [there.size for there in figures_elsewhere(puzzle)] == other_sizes(puzzle.other_sizes, puzzle.size)


# -- wrong at one of them ----------------------------------------------------------------------------------


@cache
def right(name: str, at: int) -> Outcome:
    """The solution at one of the sizes of its puzzle: 0 is its own."""
    puzzle = puzzles()[name]
    return run(SOLUTIONS[name], **sizes_of(puzzle)[at], cost=cost_named(puzzle.cost))


def sizes_of(puzzle: Puzzle) -> list[Any]:
    return [puzzle.size, *[there.size for there in figures_elsewhere(puzzle)]]


def raises(model: Model) -> None:
    raise ValueError("wrong at this size")


async def waits_for_ever(model: Model) -> None:
    if model.rank == 0:
        await model.receive()


def wrong(name: str, at: int, before: Callable[[Model], Any]) -> Outcome:
    """A run of the solution in which every rank does something else first."""

    async def program(model: Model) -> Model:
        for step in (before, SOLUTIONS[name]):
            if inspect.isawaitable(done := step(model)):
                await done
        return model

    puzzle = puzzles()[name]
    return run(program, **sizes_of(puzzle)[at], cost=cost_named(puzzle.cost))


def changed(name: str, at: int, **figures: Any) -> Outcome:
    """A run with other figures."""
    done = run(SOLUTIONS[name], **sizes_of(puzzles()[name])[at], cost=cost_named(puzzles()[name].cost))
    vars(done).update(figures)
    return done


def room(name: str, at: int) -> Any:
    """The memory that an answer which is as small as the solution at home does not reach at another size."""
    puzzle = puzzles()[name]
    return limits(puzzle, figures_elsewhere(puzzle)[at - 1], right(name, 0).time, right(name, 0).memory)[1]


WRONG: dict[str, Callable[[str, int], Outcome]] = {
    "raises": lambda name, at: wrong(name, at, raises),
    "waits for ever": lambda name, at: wrong(name, at, waits_for_ever),
    "takes 30 percent longer": lambda name, at: changed(name, at, time=1.3 * right(name, at).time),
    "takes one tensor more than there is room for": lambda name, at: changed(name, at, memory=room(name, at)),
}


def fails_at(name: str, kind: str, places: range) -> None:
    """A solution that is wrong at one size fails there, whichever it is."""
    for place in places:
        fails(name, kind, place)


def fails(name: str, kind: str, place: int) -> None:
    puzzle = puzzles()[name]
    sizes = sizes_of(puzzle)
    seen: list[int] = []

    def at(size: Any) -> Outcome:
        seen.append(sizes.index(size))
        return WRONG[kind](name, seen[-1]) if seen[-1] == place else right(name, seen[-1])

    verdict = judge(puzzle, at)
    assert (verdict.status, verdict.failed_at) == (FAIL, show_size(sizes[place])), (place, verdict.message)
    assert seen == [*range(place + 1)] and verdict.held_at == tuple(map(show_size, sizes[1:place]))


@pytest.mark.long
@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", some([name for name in SOLUTIONS if name not in SMALLER], 3))
def test_wrong_at_one_size_is_wrong(name: str, kind: str) -> None:
    many = len(sizes_of(puzzles()[name]))
    fails_at(name, kind, range(1, many, max(1, many // 4)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", SOLUTIONS)
def test_wrong_at_any_one_size_is_wrong(name: str, kind: str) -> None:
    fails_at(name, kind, range(1, len(sizes_of(puzzles()[name]))))


def test_right_at_all_of_them_is_right() -> None:
    puzzle = puzzles()["one_f_one_b"]
    assert judge(puzzle, lambda size: right(puzzle.name, sizes_of(puzzle).index(size))).status == PASS


# -- limits ------------------------------------------------------------------------------------------------


def test_the_limits_of_another_size() -> None:
    puzzle, small, large = puzzles()["fsdp"], 1_966_080, 2_228_224
    slow = solution_figures(puzzle).time
    there = SolutionFigures(
        {"ranks": 2, "layers": 2, "batches": 2},
        10.0,
        1_000_000,
        [Room(slow, small, 10**6), Room(slow, large, 2 * 10**6), Room(slow - 1, small, 10**6 + 500)],
    )
    assert limits(puzzle, there, slow, small) == (11.0, 1_262_144)
    assert limits(puzzle, there, slow, small - 1)[1] == 1_262_144
    assert limits(puzzle, there, slow, small + 10)[1] == 1_262_154  # as much more as at home
    assert limits(puzzle, there, slow, large)[1] == 2_262_144
    assert limits(puzzle, there, slow - 0.5, small)[1] == 1_262_644  # only who is faster may keep what is kept for that
    assert (
        limits(puzzle, there._replace(room=there.room[-1:]), slow, small)[1] == 1_262_644
    )  # or where there is no other
    assert limits(puzzles()["buckets"], there, 1e9, small)[1] == 1_262_644  # where it is for something else, too
    larger = there._replace(room=[Room(slow, 1000, 5000)])
    assert limits(puzzle, larger, slow, 1010)[1] == 5000 + 5 * 10 + 262_144  # or in proportion
    assert limits(puzzle, there._replace(time=100.0), slow, small)[0] == 106.0
    assert limits(puzzle, there._replace(time=2.0), slow, small)[0] == 2.6
    assert limits(puzzles()["gpipe"], there, slow, small)[0] == 13.0
    tensor_parallel, known = puzzles()["tensor_parallel"], solution_figures(puzzles()["tensor_parallel"])
    more = tensor_parallel.target["time"] - known.time  # its target leaves time, too
    assert more and limits(tensor_parallel, there, slow, small)[0] == 10.0 + more + 1
    done, home = changed("fsdp", 0, time=10.9, memory=1_262_143), changed("fsdp", 0, time=slow, memory=small)
    check_limits(done, puzzle, there, home)
    vars(done).update(time=11.0)
    with pytest.raises(PuzzleError, match=r"it takes 11 ticks\n  expected: less than that, where a solution takes 10"):
        check_limits(done, puzzle, there, home)
    vars(done).update(time=10.0, memory=Fraction(10_000_001, 3))  # of pieces of a weight there may be parts
    with pytest.raises(PuzzleError, match=r"it takes 3,333,333.67 elements\n  expected: at most 1,262,143 elements"):
        check_limits(done, puzzle, there, home)


def test_one_tensor_is_a_whole_weight_or_an_activation() -> None:
    sizes = {name: one_tensor(puzzles()[name], puzzles()[name].size) for name in ("fsdp", "context_parallel", "lora")}
    assert sizes == {"fsdp": 512 * 512, "context_parallel": 4 * 512 * 256, "lora": 512 * 512}


NOT_TIGHT, NOR_ANY = 97, 451
"""At how many sizes a solution that holds one tensor more there alone would pass, since another of our programs holds
as much there; and the same of any of our programs. These numbers only fall where no program is added."""


def test_a_solution_with_one_tensor_more_at_a_size_fails_unless_another_of_our_programs_takes_more_there() -> None:
    """And no program holds a tensor more than the largest of them at any size."""
    passing = of_any = points = 0
    for puzzle in puzzles().values():
        known = solution_figures(puzzle)
        for there in figures_elsewhere(puzzle):
            tensor = one_tensor(puzzle, there.size)
            points += 1
            passing += there.memory + tensor < limits(puzzle, there, known.time, known.memory)[1]
            for one in there.room:
                largest = limits(puzzle, there, one.time, one.memory)[1]
                assert one.there < largest <= max(other.there for other in there.room) + tensor
                of_any += one.there + tensor < largest
    assert points > 900 and passing <= NOT_TIGHT and of_any <= NOR_ANY


def test_a_fast_program_that_is_slower_for_some_reason_is_as_right_at_other_sizes() -> None:
    """What is kept to be fast may stay where the time is lost again, up to the target."""
    for puzzle in puzzles().values():
        for there in figures_elsewhere(puzzle):
            for one in there.room:
                for part in (0.25, 0.5, 0.75, 0.95):
                    took = one.time + part * (puzzle.target["time"] - one.time)
                    assert one.there < limits(puzzle, there, took, one.memory)[1], (puzzle.name, there.size, one)


SOME = [pytest.param(name, marks=pytest.mark.slow if name in SMALLER else ()) for name in some([*ROOM], 3)]


@pytest.mark.parametrize("name", SOME)
def test_programs_that_make_room_pass(name: str) -> None:
    puzzle = puzzles()[name]
    spec, others = puzzle._asdict(), [one._asdict() for one in puzzles().values()]
    for program in list(build._roomy(build.ROOT, spec, others))[len(puzzle.frontier) :]:
        verdict = judge(puzzle, lambda size, program=program: run(program, **size, cost=cost_named(puzzle.cost)))
        assert verdict.status == PASS, verdict.message


@pytest.mark.parametrize("name", [name for name in SOLUTIONS if alike(puzzles()[name])])
def test_a_call_for_nothing_in_each_layer_is_found_where_all_ranks_do_the_same(name: str) -> None:
    """With a tenth more time at the other sizes, as of such a call, a solution fails at some of them."""
    puzzle = puzzles()[name]
    assert any(1.1 * there.time >= limits(puzzle, there, 0, 0)[0] for there in figures_elsewhere(puzzle))
