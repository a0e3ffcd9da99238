"""What no schedule of a pipeline beats: against every program that we have, against formulas, and against searches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any, NamedTuple

import pytest

from lib import Cost, Model, PuzzleError, RingCost, Run, run
from lib.basics.units import exact
from lib.course import bounds as module
from lib.course.bounds import Bounds, bounds, bounds_of
from lib.course.layouts import Size
from lib.course.sketches import elsewhere
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading.judge import check
from tests.corpus.honest import HONEST
from tests.test_closed_forms import program
from tests.test_corpus import function
from tests.test_passes import programs

HALVES = ("backward_input", "backward_weight")
OWN = ["own_layers", "one_micro_batch"]


def of_stages(p: int, layers: int, m: int, cost: Cost, words: Sequence[str] = ()) -> Bounds:
    found = bounds("stages", OWN, {"ranks": p, "layers": layers, "batches": m}, cost, words)
    assert found is not None
    return found


# -- the puzzles --------------------------------------------------------------------------------------------

TABLE = {
    "pipeline": ("24.9", "31.4"),
    "gpipe": ("24.9", "31.4"),
    "pipeline_fsdp": ("11.5", None),
    "one_f_one_b": ("40.9", "47.4"),
    "interleaved": ("39.7", "46.2"),
    "breadth_first": ("39.9", None),
    "zero_bubble": ("19.5", None),
}
PIPELINES = [puzzles()[name] for name in TABLE]


def test_the_puzzles_that_are_pipelines_have_these_bounds() -> None:
    found = {name: bounds_of(puzzle) for name, puzzle in puzzles().items()}
    assert {name: one for name, one in found.items() if one} == {
        name: Bounds(Fraction(time), one_stage and Fraction(one_stage)) for name, (time, one_stage) in TABLE.items()
    }


@pytest.mark.parametrize("puzzle", PIPELINES, ids=list(TABLE))
def test_what_is_known_of_a_puzzle_is_not_below_its_bound(puzzle: Puzzle) -> None:
    bound = bounds_of(puzzle)
    assert bound is not None and puzzle.star is not None
    for known in (puzzle.target, puzzle.star, *puzzle.frontier):
        assert exact(known["time"]) >= bound.time


# -- against every program ----------------------------------------------------------------------------------

PRICES = {
    "free links": Cost(send=0, receive=0),
    "slow links": Cost(send=1.5, receive=0.5),
    "long backwards": Cost(backward=2, update=3),
    "a loss": Cost(loss=4, backward_input=0.25, backward_weight=1.5),
    "a ring": RingCost(),
}


def least_and_right(fn: Callable[[Model], Any], puzzle: Puzzle, size: Size, cost: Cost) -> Run | None:
    """A run that is right in everything but time and memory, or None."""
    try:
        done = run(fn, **size, cost=cost)
        check(done, puzzle, size)
    except PuzzleError:
        return None
    return done


def is_kept(done: Run, puzzle: Puzzle, size: Size, cost: Cost) -> Fraction:
    """How far a run is above its bound."""
    bound = bounds(puzzle.layout, puzzle.rules, size, cost, puzzle.words)
    assert bound is not None
    over = exact(done.time) - bound.time
    assert float(over) > -1e-9, (done.name, size, done.time, bound)
    return over


@pytest.mark.parametrize("puzzle", PIPELINES, ids=list(TABLE))
def test_no_program_that_we_have_is_below_the_bound_of_a_puzzle(puzzle: Puzzle) -> None:
    sizes = [there.size for there in elsewhere(puzzle)]
    some = Random(puzzle.name).sample(sizes, min(6, len(sizes)))
    right = 0
    for fn in [fn for _, fn in programs().values()]:
        at_home = least_and_right(fn, puzzle, puzzle.size, cost_named(puzzle.cost))
        if at_home is None:
            continue
        is_kept(at_home, puzzle, puzzle.size, cost_named(puzzle.cost))
        for size, cost in itertools.product(some, [cost_named(puzzle.cost), *PRICES.values()]):
            done = least_and_right(fn, puzzle, size, cost)
            if done is not None:
                is_kept(done, puzzle, size, cost)
                right += 1
    assert right >= 6 * len(some)


@pytest.mark.parametrize("puzzle", PIPELINES, ids=list(TABLE))
def test_no_honest_program_is_below_the_bound(puzzle: Puzzle) -> None:
    ours = [one for one in HONEST if one.puzzle == puzzle.name]
    ends = [there.size for there in elsewhere(puzzle)]
    runs = 0
    for one, size, cost in itertools.product(ours, [puzzle.size, ends[0], ends[-1]], [None, PRICES["slow links"]]):
        cost = cost or cost_named(puzzle.cost)
        done = least_and_right(function(one), puzzle, size, cost)
        if done is not None:
            is_kept(done, puzzle, size, cost)
            runs += 1
    assert ours and runs >= len(ours)


# -- against formulas ---------------------------------------------------------------------------------------

SIZES = [(p, n, m) for p in (1, 2, 3, 4, 8) for n in (1, 2, 3) for m in (1, 2, 5, 8, 16)]
AT = [(1, 1), (1, 2), (Fraction(3, 2), Fraction(1, 3))]


@pytest.mark.parametrize(("forward", "backward"), AT)
@pytest.mark.parametrize(("p", "n", "m"), SIZES)
def test_one_stage_a_rank_has_the_bound_of_gpipe_and_1f1b(p: int, n: int, m: int, forward: Any, backward: Any) -> None:
    """(m + p - 1)(F + B), the updates, and p - 1 messages there and back."""
    cost = Cost(forward=forward, backward=backward, send=0.1, receive=0.3, update=0.2)
    found = of_stages(p, p * n, m, cost)
    expected = (m + p - 1) * n * (forward + backward) + 2 * (p - 1) * Fraction(2, 5) + n * Fraction(1, 5)
    assert (found.one_stage or found.time) == expected
    if p > 1 < n < m:
        assert found.one_stage is not None


@pytest.mark.parametrize(("forward", "backward"), AT)
@pytest.mark.parametrize(("p", "n", "m"), [size for size in SIZES if size[2] >= size[0] > 1])
def test_any_stages_have_the_bound_of_the_interleaved_schedule(
    p: int, n: int, m: int, forward: Any, backward: Any
) -> None:
    """(m + (p - 1)/v)(F + B) of all of a rank's layers, from as many micro-batches as ranks, and an update."""
    cost = Cost(forward=forward, backward=backward, send=0, receive=0)
    of_a_rank = n * (forward + backward)
    assert of_stages(p, p * n, m, cost).time == (m + Fraction(p - 1, n)) * of_a_rank + Fraction(1, 2)


@pytest.mark.parametrize("half", [Fraction(1, 2), Fraction(1, 3), 1])
@pytest.mark.parametrize(("p", "m"), [(p, m) for p in (2, 3, 4, 6) for m in (p, p + 1, 13)])
def test_with_halves_it_is_what_zb_h1_takes(p: int, m: int, half: Any) -> None:
    """m(F + B + W) + (p - 1)(F + B - W) and the update, where B = W (arXiv 2401.10241)."""
    free = Cost(send=0, receive=0, backward=2 * half)
    expected = m * (1 + 2 * half) + (p - 1) + Fraction(1, 2)
    assert of_stages(p, p, m, free, HALVES).time == expected
    done = run(program("p16_zero_bubble", "zb_h1"), p, p, m, cost=free)
    assert float(expected) == pytest.approx(done.time)
    whole = of_stages(p, p, m, free).time
    assert whole == (m + p - 1) * (1 + 2 * half) + Fraction(1, 2)  # that of whole backwards is higher


@pytest.mark.parametrize(("layers", "m"), [(1, 1), (1, 4), (3, 2)])
def test_a_rank_alone_has_all_the_work(layers: int, m: int) -> None:
    cost = Cost(loss=0.25, backward_input=0.7, backward_weight=0.6)
    work = m * (2 * layers + Fraction(1, 4)) + layers * Fraction(1, 2)
    assert of_stages(1, layers, m, cost) == Bounds(work)
    spared = m * Fraction(2, 5)  # nobody needs the gradient of the input of layer 0; the whole is the cheaper elsewhere
    assert of_stages(1, layers, m, cost, HALVES) == Bounds(work - spared)


def test_a_single_micro_batch_goes_all_the_way() -> None:
    cost = Cost(loss=3)
    way = 8 * 2 + 2 * 3 * Fraction(2, 5) + 3
    assert of_stages(4, 8, 1, cost) == Bounds(way + Fraction(1, 2), way + 1)
    halves = way - 8 * Fraction(1, 2)  # up go the halves for the inputs, and at the end that for the weight of layer 0
    assert of_stages(4, 8, 1, cost, HALVES).time == halves + Fraction(1, 2)


# -- what is no pipeline, or no layout that anything could have ----------------------------------------------

HOME: Size = {"ranks": 4, "layers": 8, "batches": 8}


@pytest.mark.parametrize(
    ("layout", "rules", "size"),
    [
        ("whole", OWN, HOME),
        ("sharded", ["no_whole_gradient"], HOME),
        ("stages", ["one_micro_batch"], HOME),  # weights may travel, so a rank may run any layer
        ("stages", OWN, HOME | {"layers": 6}),
        ("stages", OWN, HOME | {"layers": 2}),
        ("sharded", ["four_stages"], HOME | {"layers": 3}),
    ],
)
def test_elsewhere_there_is_none(layout: str, rules: list[str], size: Size) -> None:
    assert bounds(layout, rules, size, Cost()) is None


def test_of_links_between_boxes_it_counts_the_quickest() -> None:
    size, across = HOME | {"node_size": 2}, Cost(send=1, send_across=0.5)
    assert bounds("stages", OWN, size, Cost()) == bounds("stages", OWN, HOME, Cost())
    assert bounds("stages", OWN, size, across) == bounds("stages", OWN, HOME, Cost(send=0.5))


def test_a_part_of_a_weight_comes_by_what_is_quickest() -> None:
    size = HOME | {"ranks": 8, "batches": 16, "mesh": {"stage": 4, "shard": 2}}

    def at(cost: Cost) -> Fraction:
        found = bounds("sharded_stages", OWN, size, cost)
        assert found is not None and found.one_stage is None
        return found.time

    plain = at(Cost(collective=0))
    assert [at(Cost(collective=c)) - plain for c in (0.3, 0.8)] == [Fraction(3, 10), Fraction(2, 5)]
    one_each = bounds("sharded_stages", OWN, size | {"mesh": {"stage": 8, "shard": 1}}, Cost())
    assert one_each == bounds("stages", OWN, {**size, "mesh": None}, Cost())._replace(one_stage=None)  # type: ignore[union-attr]


# -- against searches: a plain model --------------------------------------------------------------------------


class Piece(NamedTuple):
    """A piece of work: who does it (None: anybody, at any time), how long it takes, and what comes before it."""

    rank: int | None
    takes: Fraction
    after: Sequence[tuple[Name, Fraction]]  # and how long its result is on its way


Name = tuple[str, int, int]  # what, of which layer and micro-batch


def work(owner: Sequence[int], m: int, cost: Cost, halves: bool = False, at_home: bool = False) -> dict[Name, Piece]:
    """All pieces of work, where ``owner`` has each layer. ``at_home``: an update is its owner's, too."""
    top, hop = len(owner) - 1, exact(cost.send) + exact(cost.receive)
    found: dict[Name, Piece] = {}
    down = "I" if halves else "B"

    def piece(name: Name, price: str, *after: tuple[Name, Fraction]) -> None:
        found[name] = Piece(owner[name[1]], exact(cost.price(price)), after)

    def way(one: int, other: int) -> Fraction:
        return Fraction(0) if owner[one] == owner[other] else hop

    for mb in range(m):
        for layer in range(top + 1):
            piece(("F", layer, mb), "forward", *[(("F", layer - 1, mb), way(layer - 1, layer))] * (layer > 0))
        for layer in range(top, -1, -1):
            above = (("F", top, mb), exact(cost.loss)) if layer == top else ((down, layer + 1, mb), way(layer + 1, layer))
            if not halves:
                piece(("B", layer, mb), "backward", above)
                continue
            if layer:
                piece(("I", layer, mb), "backward_input", above)
            piece(("W", layer, mb), "backward_weight", above)
    for layer in range(top + 1):
        whole = [(("W" if halves else "B", layer, mb), Fraction(0)) for mb in range(m)]
        found["U", layer, 0] = Piece(owner[layer] if at_home else None, exact(cost.update), whole)
    return found


def quickest(pieces: Mapping[Name, Piece], m: int) -> Fraction:
    """The time of the best of all schedules: of each rank, every order in which no piece could be moved forward
    without another having to wait (Giffler and Thompson, 1960); the best is among them."""
    before: dict[Name, list[Name]] = {name: [] for name in pieces}
    for name, piece in pieces.items():
        for earlier, _ in piece.after:
            before[earlier].append(name)

    @cache
    def tail(name: Name) -> Fraction:
        ways = {later: dict(pieces[later].after)[name] for later in before[name]}
        return max((way + pieces[later].takes + tail(later) for later, way in ways.items()), default=Fraction(0))

    best = sum((piece.takes for piece in pieces.values()), Fraction(0)) + 1000
    seen: set[object] = set()

    def go(ends: dict[Name, Fraction], free: dict[int, Fraction]) -> None:
        nonlocal best
        if len(ends) == len(pieces):
            best = min(best, max(ends.values()))
            return
        key = (frozenset(ends.items()),)
        if key in seen:
            return
        seen.add(key)
        could: dict[Name, Fraction] = {}
        for name, piece in pieces.items():
            if name not in ends and all(one in ends for one, _ in piece.after):
                ready = max((ends[one] + way for one, way in piece.after), default=Fraction(0))
                could[name] = ready if piece.rank is None else max(ready, free.get(piece.rank, Fraction(0)))
        if any(start + pieces[name].takes + tail(name) >= best for name, start in could.items()):
            return
        first = min(could, key=lambda name: could[name] + pieces[name].takes)
        end, rank = could[first] + pieces[first].takes, pieces[first].rank
        rivals = [first]
        if rank is not None:
            rivals = [name for name in could if pieces[name].rank == rank and could[name] < end or name == first]
        kinds = set()
        for name in sorted(rivals, key=lambda name: -tail(name)):
            alike = name[:2], could[name], all(other[2] != name[2] for other in ends)
            if alike[2] and alike in kinds:
                continue  # of micro-batches of which nothing is done, one is like another
            kinds.add(alike)
            done = {**ends, name: could[name] + pieces[name].takes}
            go(done, free if rank is None else {**free, rank: done[name]})

    go({}, {})
    return best


def dealt(p: int, n: int) -> list[list[int]]:
    """All ways to give n layers to each of p ranks, but for the ranks' names."""
    every = set(itertools.permutations([rank for rank in range(p) for _ in range(n)]))
    return sorted(list(one) for one in every if list(dict.fromkeys(one)) == list(range(p)))


TINY = [
    # ranks, layers of each, micro-batches, halves
    (2, 1, 1, False),
    (2, 1, 2, False),
    (2, 1, 3, False),
    (3, 1, 2, False),
    (2, 2, 1, False),
    (2, 2, 2, False),
    (2, 1, 2, True),
    (2, 1, 3, True),
    (3, 1, 1, True),
]
TINY_PRICES = [
    Cost(send=0, receive=0),
    Cost(),
    Cost(backward=2, send=0.5, receive=0.5, backward_input=1.5, backward_weight=0.5),
    Cost(loss=2, update=2),
]


@pytest.mark.parametrize("cost", TINY_PRICES, ids=["free", "default", "long", "loss"])
@pytest.mark.parametrize(("p", "n", "m", "halves"), TINY)
def test_no_schedule_at_all_is_below_the_bound(p: int, n: int, m: int, halves: bool, cost: Cost) -> None:
    found = of_stages(p, p * n, m, cost, HALVES if halves else ())
    best = min(quickest(work(owner, m, cost, halves), m) for owner in dealt(p, n))
    assert best >= found.time
    in_line = [rank for rank in range(p) for _ in range(n)]
    at_home = quickest(work(in_line, m, cost, halves, at_home=True), m)
    assert at_home >= (found.one_stage or found.time)
    print(p,n,m,halves,float(best),float(found.time),float(at_home),float(found.one_stage or found.time))
