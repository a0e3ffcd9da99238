"""What no schedule of a pipeline beats: against every program that we have, against formulas, and against searches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any, NamedTuple

import pytest

from lib import Activation, Cost, ExpertCost, Model, PuzzleError, RingCost, Run, run
from lib.basics.units import exact
from lib.course.bounds import Bounds, bounds, bounds_of
from lib.course.layouts import Size
from lib.course.sizes import other_sizes
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading.judge import check
from tests import experts
from tests.corpus.honest import HONEST
from tests.corpus.mistakes import MISTAKES
from tests.slow import EVERYTHING, some
from tests.test_closed_forms import program
from tests.test_corpus import function
from tests.test_passes import is_right_in_small, programs

HALVES = ("backward_input", "backward_weight")
OWN = ["own_layers", "one_micro_batch"]


def of_stages(p: int, layers: int, m: int, cost: Cost, words: Sequence[str] = ()) -> Bounds:
    found = bounds("stages", OWN, {"ranks": p, "layers": layers, "batches": m}, cost, words)
    assert found is not None
    return found


# -- the puzzles --------------------------------------------------------------------------------------------

TABLE = {
    "pipeline": ("66.9", "67.4"),
    "gpipe": ("24.9", "31.4"),
    "pipeline_fsdp": ("11.5", None),
    "one_f_one_b": ("40.9", "47.4"),
    "interleaved": ("39.7", None),
    "breadth_first": ("39.9", None),
    "zero_bubble": ("19.5", None),
    "ddp": ("5", None),
    "hierarchical": ("28", None),
    "lora": ("10.05", None),
    "context_parallel": ("28", None),
    "ring_attention": ("28", None),
    "expert_parallel": ("33.28", None),
    "two_batch_overlap": ("55", None),
    "zbv": ("51.5", None),
    "dualpipe": ("42.5", None),
}
PIPELINES = [puzzle for puzzle in puzzles().values() if bounds_of(puzzle)]
SOME = some(PIPELINES, 7)


def test_the_puzzles_that_are_pipelines_have_these_bounds() -> None:
    found = {name: bounds_of(puzzle) for name, puzzle in puzzles().items()}
    assert {name: found[name] for name in TABLE} == {
        name: Bounds(Fraction(time), Fraction(one_stage) if one_stage else None)
        for name, (time, one_stage) in TABLE.items()
    }


@pytest.mark.parametrize("puzzle", PIPELINES, ids=[puzzle.name for puzzle in PIPELINES])
def test_what_is_known_of_a_puzzle_is_not_below_its_bound(puzzle: Puzzle) -> None:
    bound = bounds_of(puzzle)
    assert bound is not None and puzzle.star is not None
    for known in (puzzle.target, puzzle.star, *puzzle.frontier):
        assert exact(known["time"]) >= bound.time


# -- against every program ----------------------------------------------------------------------------------

PRICES = {
    "free links": Cost(send=0, receive=0, collective=0),
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
    bound = bounds(puzzle.layout, puzzle.ideas, size, cost, puzzle.words)
    assert bound is not None
    over = exact(done.time) - bound.time
    assert float(over) > -1e-9, (done.name, size, done.time, bound)
    return over


@pytest.mark.parametrize("puzzle", SOME, ids=[puzzle.name for puzzle in SOME])
def test_no_program_that_we_have_is_below_the_bound_of_a_puzzle(puzzle: Puzzle) -> None:
    sizes = other_sizes(puzzle.other_sizes, puzzle.size)
    few = Random(puzzle.name).sample(sizes, min(4 if EVERYTHING else 2, len(sizes)))
    right = 0
    for fn in some([fn for name, (_, fn) in programs().items() if is_right_in_small(puzzle, name)], 4):
        at_home = least_and_right(fn, puzzle, puzzle.size, cost_named(puzzle.cost))
        if at_home is None:
            continue
        is_kept(at_home, puzzle, puzzle.size, cost_named(puzzle.cost))
        for size, cost in itertools.product(few, [cost_named(puzzle.cost), *PRICES.values()]):
            done = least_and_right(fn, puzzle, size, cost)
            if done is not None:
                is_kept(done, puzzle, size, cost)
                right += 1
    assert right >= 6 * len(few)


@pytest.mark.parametrize("puzzle", SOME, ids=[puzzle.name for puzzle in SOME])
def test_no_honest_program_is_below_the_bound(puzzle: Puzzle) -> None:
    ours = some([one for one in [*HONEST, *MISTAKES] if one.puzzle == puzzle.name], 4)  # some mistakes are only slow
    ends = other_sizes(puzzle.other_sizes, puzzle.size)
    runs = 0
    own = cost_named(puzzle.cost)
    for one in ours:
        fn = function(one)
        for size, cost in itertools.product([puzzle.size, ends[0], ends[-1]], [own, PRICES["slow links"]]):
            done = least_and_right(fn, puzzle, size, cost)
            if done is None:
                break  # what is wrong at its own size is not looked at elsewhere
            is_kept(done, puzzle, size, cost)
            runs += 1
    assert runs >= sum(one in HONEST for one in ours) > 0


# -- experts ------------------------------------------------------------------------------------------------

EXPERTS = ["as_many_each", "weights_stay"]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("loads", [(), (4, 2, 2, 2, 2, 2, 1, 1)])
def test_where_sums_and_updates_take_no_time_the_plain_program_meets_the_bound(
    ranks: int, loads: tuple[int, ...]
) -> None:
    size: Size = {"ranks": ranks, "layers": 4, "batches": ranks, "experts": 8}
    cost = ExpertCost(update=0, allreduce=0, send=0, receive=0, loads=loads)
    found = bounds("experts_sharded", EXPERTS, size, cost)
    assert found is not None and run(experts.plain, **size, cost=cost).time == float(found.time)


def test_a_rank_has_its_experts_and_the_dense_layers_of_its_micro_batches() -> None:
    """Twice the hottest rank's experts and as much of dense layers as any."""
    size: Size = {"ranks": 2, "layers": 2, "batches": 8, "experts": 8}
    cost = ExpertCost(forward=1, backward=2, update=0, collective=0, loads=(3, 3, 3, 3, 1, 1, 1, 1))
    assert bounds("experts_sharded", EXPERTS, size, cost) == Bounds(Fraction(4 * 3 + 8 * 3 * 3, 4) + 9)
    assert bounds("experts_sharded", EXPERTS[1:], size, cost) is None


def test_where_dense_layers_stay_each_rank_makes_their_updates() -> None:
    size: Size = {"ranks": 2, "layers": 4, "batches": 8, "experts": 8}
    cost = ExpertCost(forward=1, backward=2, update=1, collective=0, loads=(3, 3, 3, 3, 1, 1, 1, 1))
    work = 4 * 3 * 2 + 8 * 3 * Fraction(12 + 10, 16)  # of dense layers, and of the first experts, turned by one
    assert bounds("experts_sharded", EXPERTS, size, cost) == Bounds(work + 4)


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
    assert (found.one_stage is None) == (p == 1 or n == 1)


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


def test_where_weights_stay_a_rank_has_its_share_of_the_work_and_all_updates() -> None:
    size, stay = {"ranks": 4, "layers": 6, "batches": 8}, ["weights_stay"]
    assert bounds("whole", stay, size, Cost(loss=0.5)) == Bounds(Fraction(2 * (12 + Fraction(1, 2)) + 3))
    assert bounds("whole", [], size, Cost()) is None  # a rank may get new weights and states from others
    assert bounds("whole", stay, size | {"hosts": 1}, Cost()) is None  # hosts update meanwhile
    assert bounds("whole", stay, size | {"batches": 1}, Cost()) == Bounds(Fraction(25, 2))  # all the way, and an update


def test_with_frozen_shards_nobody_computes_before_the_first_gather() -> None:
    """And the updates of six adapters are shared out, since adapters may travel."""
    size = {"ranks": 4, "layers": 6, "batches": 4, "train": "adapters"}
    assert bounds("frozen_shards", [], size, Cost()) == Bounds(Fraction(123 - 30, 10) + Fraction(6, 2) / 4)
    assert bounds("frozen_shards", [], size, Cost(backward_input=1)) == Bounds(
        Fraction(153 - 30, 10) + Fraction(6, 2) / 4
    )
    assert bounds("frozen_shards", [], size | {"ranks": 1}, Cost()) == Bounds(Fraction(4 * 9 + 3))


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
            above = (
                (("F", top, mb), exact(cost.loss)) if layer == top else ((down, layer + 1, mb), way(layer + 1, layer))
            )
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


def quickest(pieces: Mapping[Name, Piece]) -> Fraction:
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
            rivals = [name for name in could if name == first or (pieces[name].rank == rank and could[name] < end)]
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
    # ranks, layers of each, micro-batches, and whether backwards are in halves
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
TINY_PRICES = {
    "free": Cost(send=0, receive=0),
    "default": Cost(),
    "long": Cost(backward=2, send=0.5, receive=0.5, backward_input=1.5, backward_weight=0.5),
    "loss": Cost(loss=2, update=2),
}
GAPS = {
    ((2, 2, 2, False), "default"): ("0.8", "0"),  # each micro-batch goes up twice over two hops more
    ((2, 2, 2, False), "long"): ("3", "0"),
    ((2, 2, 2, False), "loss"): ("1", "0"),
    ((2, 1, 2, True), "loss"): ("0.5", "0.5"),
    ((2, 1, 3, True), "loss"): ("0.4", "0.4"),
}
"""Where nothing meets the bound: how far the best of all schedules is above it, and the best with one stage a rank."""
CASES = list(itertools.product(TINY, TINY_PRICES))


@cache
def best_of(case: tuple[int, int, int, bool], prices: str) -> tuple[Fraction, Fraction]:
    """The time of the best schedule, whoever has which layers, and of the best with one stage a rank."""
    (p, n, m, halves), cost = case, TINY_PRICES[prices]
    in_line = [rank for rank in range(p) for _ in range(n)]
    any_layers = min(quickest(work(owner, m, cost, halves)) for owner in dealt(p, n))
    return any_layers, quickest(work(in_line, m, cost, halves, at_home=True))


def above(case: tuple[int, int, int, bool], prices: str) -> tuple[Fraction, Fraction]:
    """How far the best schedules are above their bounds."""
    (p, n, m, halves), (best, best_in_line) = case, best_of(case, prices)
    found = of_stages(p, p * n, m, TINY_PRICES[prices], HALVES if halves else ())
    return best - found.time, best_in_line - (found.one_stage or found.time)


@pytest.mark.parametrize(("case", "prices"), CASES)
def test_no_schedule_at_all_is_below_the_bound_and_nearly_everywhere_one_meets_it(
    case: tuple[int, int, int, bool], prices: str
) -> None:
    gaps = GAPS.get((case, prices), ("0", "0"))
    assert above(case, prices) == (Fraction(gaps[0]), Fraction(gaps[1]))


# -- against searches: the machine ------------------------------------------------------------------------------


async def follow(model: Model, owner: Sequence[int], order: Sequence[Name]) -> Model:
    """Do the rank's pieces of work in this order. All receives are there from the beginning, no send is waited for."""
    me, top = model.rank, model.LAYERS - 1
    mine = [name for name in order if owner[name[1]] == me]
    stores: dict[str, Any] = {"F": model.activations, "G": model.grad_activations}
    for layer in sorted({layer for _, layer, _ in mine}):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    comes = [
        name
        for name in mine
        if (name[0] == "F" and name[1] > 0 and owner[name[1] - 1] != me)
        or (name[0] in "BI" and name[1] < top and owner[name[1] + 1] != me)
        or (name[0] == "W" and name[1] == 0 and owner[1] != me)
    ]
    mail, sends = [model.receive() for _ in comes], []

    async def take() -> None:
        got = await mail.pop(0)
        store = model.activations if isinstance(got, Activation) else model.grad_activations
        store[got.layer, min(got.batches)] = got

    def hand_on(kind: str, layer: int, mb: int, tensor: Any) -> None:
        if owner[layer] == me:
            stores[kind][layer, mb] = tensor
        else:
            sends.append(model.pass_to(owner[layer], tensor))

    for what, layer, mb in mine:
        if what == "U":
            grad, weight, state = model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
            new, model.opt_states[layer] = model.update(layer, grad, weight, state)
            model.weights["new", layer] = new  # a half for the input may still need the old one
            model.set_final_weight(layer, new)
            continue
        if (what, layer) == ("F", 0):
            model.activations[0, mb] = model.get_activation([mb])
        needs = "F" if what == "F" else "G"
        while (layer, mb) not in stores[needs]:
            await take()
        inp, weight = model.activations[layer, mb], model.weights[layer]
        if what == "F":
            out = model.forward(layer, inp, weight)
            if layer == top:
                model.grad_activations[top, mb] = model.loss(out)
            else:
                hand_on("F", layer + 1, mb, out)
            continue
        grad_out, grad, grad_in = model.grad_activations[layer, mb], None, None
        if what == "B":
            grad, grad_in = model.backward(layer, inp, grad_out, weight)
        elif what == "I":
            grad_in = model.backward_input(layer, inp, grad_out, weight)
        else:
            grad = model.backward_weight(layer, inp, grad_out, weight)
        if grad is not None:
            model.grad_weights[layer] = model.grad_weights[layer] + grad if layer in model.grad_weights else grad
        if grad_in is not None and layer > 0:
            hand_on("G", layer - 1, mb, grad_in)
    for send in sends:
        await send
    return model


def at_random(pieces: Mapping[Name, Piece], random: Random) -> list[Name]:
    """A schedule of the plain model in which no rank waits while it has something to do, as an order of all pieces."""
    ends: dict[Name, Fraction] = {}
    free: dict[int | None, Fraction] = {}
    while len(ends) < len(pieces):
        could = {
            name: max([free.get(piece.rank, Fraction(0)), *[ends[one] + way for one, way in piece.after]])
            for name, piece in pieces.items()
            if name not in ends and all(one in ends for one, _ in piece.after)
        }
        soon = min(could.values())
        name = random.choice([name for name, start in could.items() if start == soon])
        ends[name] = free[pieces[name].rank] = soon + pieces[name].takes
    return list(ends)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("prices", TINY_PRICES)
@pytest.mark.parametrize(("p", "n", "m"), [(2, 1, 4), (2, 2, 3), (3, 1, 3), (3, 2, 4), (4, 2, 8)])
def test_no_schedule_found_at_random_is_below_the_bound(p: int, n: int, m: int, prices: str, halves: bool) -> None:
    random, cost = Random(f"{p} {n} {m} {prices}"), TINY_PRICES[prices]
    for _ in range(12):
        owner = [rank for rank in range(p) for _ in range(n)]
        random.shuffle(owner)
        order = at_random(work(owner, m, cost, halves, at_home=True), random)
        done = run(lambda model: follow(model, owner, order), p, p * n, m, cost=cost)  # noqa: B023
        done.verify()
        found = of_stages(p, p * n, m, cost, HALVES if halves else ())
        assert exact(done.time) >= found.time


def breadth_first(p: int, n: int, m: int) -> list[Name]:
    """Layer by layer, all micro-batches. All but the first rank update at the end, when it still has work to do."""
    layers, batch = range(p * n), range(m)
    order = [("F", layer, mb) for layer in layers for mb in batch]
    for layer in reversed(layers):
        order += [("B", layer, mb) for mb in batch] + [("U", layer, 0)] * (layer % p == 0)
    return order + [("U", layer, 0) for layer in reversed(layers) if layer % p]


MET = [
    *[(p, n, m, PRICES["free links"]) for p in (2, 3, 4) for n in (1, 2, 3) for m in (p + 1, 2 * p, 13)],
    (4, 2, 8, Cost()),
    (4, 2, 8, cost_named("quick_messages")),
    (3, 3, 12, Cost(backward=2)),
]


@pytest.mark.parametrize(("p", "n", "m", "cost"), MET)
def test_breadth_first_is_above_the_bound_by_no_more_than_updates(p: int, n: int, m: int, cost: Cost) -> None:
    """The bound counts one update."""
    owner, order, found = [layer % p for layer in range(p * n)], breadth_first(p, n, m), of_stages(p, p * n, m, cost)
    done = run(lambda model: follow(model, owner, order), p, p * n, m, cost=cost)
    done.verify()
    assert exact(done.time) == found.time + (n - 1) * exact(cost.update)
