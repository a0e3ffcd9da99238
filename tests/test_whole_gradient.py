"""No rank receives a whole summed gradient, in whatever way it is brought; and every honest reduce-scatter may be."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lib import Model, PuzzleError, run
from lib.course.ideas import IDEAS
from lib.course.layouts import Size
from lib.course.sizes import other_sizes
from lib.course.specs import puzzles
from lib.grading.judge import check
from tests.programs import solutions
from tests.slow import some

Reduce = Callable[[Model, int], Awaitable[None]]
"""Takes the rank's own gradient of a layer, ``model.grad_weights["own"]``, and leaves in its place the sum of all, or
of a box: the whole of it, or this rank's piece."""

SAYS = "the rank receives a whole summed gradient"


async def put(model: Model, key: object, call: Awaitable[Any]) -> None:
    model.grad_weights[key] = await call


def add(model: Model, key: object, grad: Any) -> None:
    model.grad_weights[key] = model.grad_weights[key] + grad


def piece(model: Model, key: object = "own") -> Any:
    return model.grad_weights[key].shard(model.rank, model.RANKS)


# -- that bring a whole gradient ----------------------------------------------------------------------------


async def all_reduce(model: Model, layer: int) -> None:
    await put(model, "own", model.allreduce(model.grad_weights.pop("own"), layer))


async def all_reduce_cut_at_once(model: Model, layer: int) -> None:
    await all_reduce(model, layer)
    model.grad_weights["own"] = piece(model)


async def scatter_and_gather(model: Model, layer: int) -> None:
    await put(model, "own", model.scatterreduce(model.grad_weights.pop("own"), layer))
    await put(model, "own", model.allgather(model.grad_weights.pop("own"), layer))


async def all_reduce_of_pieces(model: Model, layer: int) -> None:
    for part in reversed(range(model.RANKS)):
        await put(model, ("part", part), model.allreduce(model.grad_weights["own"].shard(part, model.RANKS), layer))
    model.grad_weights["own"] = model.grad_weights["part", model.rank]
    for part in range(model.RANKS):
        del model.grad_weights["part", part]


async def server(model: Model, layer: int) -> None:
    if model.rank:
        await model.pass_to(0, model.grad_weights.pop("own"))
        await put(model, "own", model.receive(src=0))
        return
    for other in range(1, model.RANKS):
        add(model, "own", await model.receive(src=other))
    for other in range(1, model.RANKS):
        await model.pass_to(other, model.grad_weights["own"].shard(other, model.RANKS))
    model.grad_weights["own"] = piece(model)


async def everybody_to_everybody(model: Model, layer: int) -> None:
    others = {*range(model.RANKS)} - {model.rank}
    for other in others:
        await model.pass_to(other, model.grad_weights["own"])
    for other in others:
        add(model, "own", await model.receive(src=other))


async def one_gradient_and_zeros(model: Model, layer: int) -> None:
    """An all-reduce of one gradient and of nothing else is a broadcast."""
    for turn in range(model.RANKS):
        brought = model.grad_weights["own"] if turn == model.rank else model.fake_grad(layer, [])
        await put(model, turn, model.allreduce(brought, layer))
    model.grad_weights["own"] = piece(model, 0)
    for turn in range(1, model.RANKS):
        add(model, "own", piece(model, turn))
    for turn in range(model.RANKS):
        del model.grad_weights[turn]


async def ring(model: Model, layer: int) -> None:
    """A reduce-scatter: piece i goes round from rank i + 1 to rank i, and everyone on its way adds to it."""
    n, after, before = model.RANKS, (model.rank + 1) % model.RANKS, (model.rank - 1) % model.RANKS
    model.grad_weights["round"] = model.grad_weights["own"].shard(before, n)
    for step in range(2, n + 1):
        await model.pass_to(after, model.grad_weights.pop("round"))
        model.grad_weights["round"] = await model.receive(src=before)
        add(model, "round", model.grad_weights["own"].shard((model.rank - step) % n, n))
    model.grad_weights["own"] = model.grad_weights.pop("round")


async def ring_all_the_way(model: Model, layer: int) -> None:
    """The other half of a ring all-reduce: the sums go round, too."""
    n, after, before = model.RANKS, (model.rank + 1) % model.RANKS, (model.rank - 1) % model.RANKS
    await ring(model, layer)
    model.grad_weights["round"] = model.grad_weights["own"]
    for _ in range(n - 1):
        await model.pass_to(after, model.grad_weights.pop("round"))
        model.grad_weights["round"] = await model.receive(src=before)
        model.grad_weights["own"] = model.grad_weights["own"].combine(model.grad_weights["round"])
    del model.grad_weights["round"]


async def all_but_a_crumb(model: Model, layer: int) -> None:
    n, fine = model.RANKS, 2 * model.RANKS
    crumb = model.grad_weights["own"].shard(fine - 1, fine)
    most = model.grad_weights["own"].shard(0, fine)
    for part in range(1, fine - 1):
        most = most.combine(model.grad_weights["own"].shard(part, fine))
    model.grad_weights["crumb"] = crumb
    await put(model, "most", model.allreduce(most, layer))
    if model.rank < n - 1:
        await model.pass_to(n - 1, model.grad_weights.pop("crumb"))
    else:
        for other in range(n - 1):
            add(model, "crumb", await model.receive(src=other))
        model.grad_weights["most"] = model.grad_weights["most"].combine(model.grad_weights.pop("crumb"))
    model.grad_weights["own"] = model.grad_weights.pop("most")


SMUGGLED: list[Reduce] = [
    all_reduce,
    all_reduce_cut_at_once,
    scatter_and_gather,
    all_reduce_of_pieces,
    server,
    everybody_to_everybody,
    one_gradient_and_zeros,
    ring_all_the_way,
    all_but_a_crumb,
]

# -- that do not --------------------------------------------------------------------------------------------


async def reduce_scatter(model: Model, layer: int) -> None:
    await put(model, "own", model.scatterreduce(model.grad_weights.pop("own"), layer))


async def each_its_piece(model: Model, layer: int) -> None:
    others = {*range(model.RANKS)} - {model.rank}
    for other in others:
        await model.pass_to(other, model.grad_weights["own"].shard(other, model.RANKS))
    model.grad_weights["own"] = piece(model)
    for other in others:
        add(model, "own", await model.receive(src=other))


async def a_tree_for_each_piece(model: Model, layer: int) -> None:
    """Each piece is summed along a binary tree whose root is the rank that it belongs to."""
    n = model.RANKS
    for part in range(n):
        place = (model.rank - part) % n
        model.grad_weights[part] = model.grad_weights["own"].shard(part, n)
        for child in (2 * place + 1, 2 * place + 2):
            if child < n:
                add(model, part, await model.receive(src=(child + part) % n))
        if place:
            await model.pass_to(((place - 1) // 2 + part) % n, model.grad_weights.pop(part))
    model.grad_weights["own"] = model.grad_weights.pop(model.rank)


async def zeros_with_it(model: Model, layer: int) -> None:
    add(model, "own", model.fake_grad(layer, []))
    await reduce_scatter(model, layer)


HONEST: list[Reduce] = [reduce_scatter, ring, each_its_piece, a_tree_for_each_piece, zeros_with_it]


# -- puzzle 4 -----------------------------------------------------------------------------------------------


def sharded(
    reduce: Reduce, each: int = 1, at_the_end: str = "", across: Reduce | None = None, states: bool = False
) -> Callable[[Model], Any]:
    """FSDP with this in place of the reduce-scatter, after each of ``each`` micro-batches; or once at the end, of all
    layers, ``up`` or ``down``. ``across``: in boxes, with what is done with sums across these. ``states``: over both
    axes, as in puzzle 8, or over the box, as in the repair."""
    axis = "shard" if across else None

    async def program(model: Model) -> None:
        place, pieces = (model.axis_index("shard"), model.axis_size("shard")) if across else (model.rank, model.RANKS)
        replica, replicas = (model.axis_index("replica"), model.axis_size("replica")) if states else (0, 1)
        every = range(model.LAYERS)
        for layer in every:
            model.weights[layer], state = model.load_weights(layer, place, pieces)
            model.opt_states[layer] = state.shard(replica, replicas)
        for mb in range(model.rank * each, (model.rank + 1) * each):
            model.activations[0] = model.get_activation([mb])
            for layer in every:
                weight = await model.allgather(model.weights[layer], layer, axis)
                model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
            model.grad_activations["g"] = model.loss(model.activations.pop(model.LAYERS))
            for layer in reversed(every):
                weight = await model.allgather(model.weights[layer], layer, axis)
                inp, grad_out = model.activations.pop(layer), model.grad_activations.pop("g")
                grad, model.grad_activations["g"] = model.backward(layer, inp, grad_out, weight)
                model.grad_weights["own"] = grad
                if not at_the_end:
                    await reduce(model, layer)
                grad = model.grad_weights.pop("own")
                so_far = model.grad_weights.get(("sum", layer))
                model.grad_weights["sum", layer] = so_far + grad if so_far else grad
            del model.grad_activations["g"]
        for layer in reversed(every) if at_the_end == "down" else every:
            model.grad_weights["own"] = model.grad_weights.pop(("sum", layer))
            if at_the_end:
                await reduce(model, layer)
            if across:
                await across(model, layer)
            model.grad_weights["sum", layer] = model.grad_weights.pop("own")
        for layer in every:
            grad, weight = model.grad_weights.pop(("sum", layer)), model.weights[layer].shard(replica, replicas)
            weight, model.opt_states[layer] = model.update(layer, grad, weight, model.opt_states[layer])
            model.weights[layer] = await model.allgather(weight, layer, axis="replica") if states else weight
            model.set_final_weight(layer, model.weights[layer])

    return program


def every_size(name: str) -> list[Size]:
    """The puzzle's own size, and all others."""
    puzzle = puzzles()[name]
    others = other_sizes(puzzle.other_sizes, puzzle.size)
    return [puzzle.size, *[size for size in others if size["ranks"] > 1]]  # one rank receives nothing


def sizes(name: str) -> list[Size]:
    """The puzzle's own size, and some of all others."""
    own, *others = every_size(name)
    return [own, *some(others, 3)]


TWO_EACH = every_size("zero1")[::3]
"""Sizes with two micro-batches a rank."""


def accepted(fn: Callable[[Model], Any], name: str, size: Size) -> None:
    check(run(fn, **size), puzzles()[name], size)


def refused(fn: Callable[[Model], Any], name: str, size: Size) -> PuzzleError:
    with pytest.raises(PuzzleError, match=SAYS) as raised:
        accepted(fn, name, size)
    return raised.value


@pytest.mark.parametrize("how", ["", "up", "down"])
@pytest.mark.parametrize("reduce", SMUGGLED)
def test_a_whole_gradient_is_found_however_it_is_brought(reduce: Reduce, how: str) -> None:
    for size in sizes("fsdp"):
        refused(sharded(reduce, at_the_end=how), "fsdp", size)


@pytest.mark.parametrize("how", ["", "up", "down"])
@pytest.mark.parametrize("reduce", HONEST)
def test_any_reduce_scatter_may_be_written(reduce: Reduce, how: str) -> None:
    """Puzzle 4 itself wants each sum before the next backward; puzzle 12 does not."""
    for size in sizes("fsdp"):
        accepted(sharded(reduce, at_the_end=how), "prefetch" if how else "fsdp", size)


@pytest.mark.parametrize("reduce", [*HONEST, *SMUGGLED])
def test_several_micro_batches_a_rank_are_several_sums(reduce: Reduce) -> None:
    judged = accepted if reduce in HONEST else refused
    for size in TWO_EACH:
        judged(sharded(reduce, each=2), "fsdp", size)
        judged(sharded(reduce, each=2, at_the_end="up"), "prefetch", size)


async def first_half_each_time_second_half_at_the_end(model: Model, layer: int) -> None:
    """Called after each of two micro-batches: of the first half of the weight each is all-reduced by itself, of the
    second the sum of both. In no single sum is there a whole weight."""
    one, two = (model.grad_weights["own"].shard(half, 2) for half in (0, 1))
    kept = model.grad_weights.get(("two", layer))
    model.grad_weights["two", layer] = kept + two if kept else two
    await put(model, "own", model.allreduce(one, layer))
    if kept:
        await put(model, "both", model.allreduce(model.grad_weights.pop(("two", layer)), layer))
        first = model.grad_weights["sum", layer] + model.grad_weights["own"]
        whole = first.combine(model.grad_weights.pop("both"))
        del model.grad_weights["sum", layer]
        model.grad_weights["own"] = whole


def test_a_gradient_in_sums_of_different_micro_batches_is_found() -> None:
    for size in TWO_EACH:
        refused(sharded(first_half_each_time_second_half_at_the_end, each=2), "fsdp", size)


def test_one_whole_sum_among_honest_ones_is_found() -> None:
    async def mixed(model: Model, layer: int) -> None:
        second = ("sum", layer) in model.grad_weights
        await (all_reduce_cut_at_once if second else reduce_scatter)(model, layer)

    for size in TWO_EACH:
        refused(sharded(mixed, each=2), "fsdp", size)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_the_error_says_where(ranks: int) -> None:
    error = refused(sharded(all_reduce), "fsdp", {"ranks": ranks, "layers": 3, "batches": ranks})
    assert (error.place.rank, error.place.operation, error.place.layer) == (0, "allreduce", 2)
    assert error.problem == SAYS
    late = refused(sharded(scatter_and_gather), "fsdp", {"ranks": ranks, "layers": 3, "batches": ranks})
    assert late.place.operation == "allgather"  # the last that it takes


# -- puzzles 7 and 8, and the repair with boxes ---------------------------------------------------------------


async def in_the_box(model: Model, layer: int) -> None:
    await put(model, "own", model.scatterreduce(model.grad_weights.pop("own"), layer, axis="shard"))


def cut_for_the_box(model: Model) -> None:
    model.grad_weights["own"] = model.grad_weights["own"].shard(model.axis_index("shard"), model.axis_size("shard"))


async def whole_in_the_box(model: Model, layer: int) -> None:
    await put(model, "own", model.allreduce(model.grad_weights.pop("own"), layer, axis="shard"))
    cut_for_the_box(model)


async def gathered_in_the_box(model: Model, layer: int) -> None:
    await in_the_box(model, layer)
    await put(model, "own", model.allgather(model.grad_weights.pop("own"), layer, axis="shard"))
    cut_for_the_box(model)


async def scattered_across(model: Model, layer: int) -> None:
    await put(model, "own", model.scatterreduce(model.grad_weights.pop("own"), layer, axis="replica"))


async def summed_across(model: Model, layer: int) -> None:
    await put(model, "own", model.allreduce(model.grad_weights.pop("own"), layer, axis="replica"))


async def scattered_and_gathered_across(model: Model, layer: int) -> None:
    await scattered_across(model, layer)
    await put(model, "own", model.allgather(model.grad_weights.pop("own"), layer, axis="replica"))


async def nothing(model: Model, layer: int) -> None:
    """Leave the gradient as it is."""


PUZZLE = [pytest.param("replica_fsdp", 2, True, id="puzzle 8"), pytest.param("repair_groups", 1, False, id="repair")]
WAYS = [pytest.param("", id="after each micro-batch"), pytest.param("up", id="once")]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("box", [whole_in_the_box, gathered_in_the_box])
@pytest.mark.parametrize(("name", "each", "states"), PUZZLE)
def test_no_box_sums_whole_gradients(name: str, each: int, states: bool, box: Reduce, how: str) -> None:
    for size in sizes(name):
        refused(sharded(box, each, how, scattered_across if states else summed_across, states), name, size)


async def everything_everywhere(model: Model, layer: int) -> None:
    await all_reduce(model, layer)
    cut_for_the_box(model)


@pytest.mark.parametrize(("name", "each", "states"), PUZZLE)
def test_nor_do_all_ranks_together(name: str, each: int, states: bool) -> None:
    for size in sizes(name):
        refused(sharded(everything_everywhere, each, across=nothing, states=states), name, size)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("across", [scattered_across, summed_across, scattered_and_gathered_across])
@pytest.mark.parametrize(("name", "each", "states"), PUZZLE)
def test_a_piece_may_be_summed_across_boxes_in_any_way(
    name: str, each: int, states: bool, across: Reduce, how: str
) -> None:
    if not states and across is scattered_across:
        return  # the states of a box are its own piece's: an eighth of the gradient is too little
    for size in sizes(name):
        accepted(sharded(in_the_box, each, how, across, states), name, size)


def test_a_piece_that_is_summed_across_boxes_after_every_micro_batch_crosses_too_often() -> None:
    """No rank receives a whole gradient, but what is to cross the boxes is the sum of all micro-batches."""

    async def both(model: Model, layer: int) -> None:
        await in_the_box(model, layer)
        await summed_across(model, layer)

    several = [size for size in sizes("replica_fsdp") if size["mesh"]["replica"] > 1]
    assert several
    for size in several:
        with pytest.raises(PuzzleError, match="goes to another node"):
            accepted(sharded(both, 2, across=nothing, states=True), "replica_fsdp", size)


def stages(reduce: Reduce) -> Callable[[Model], Any]:
    """Puzzle 7 with another reduction."""
    own = {spec["name"]: fn for fn, spec in solutions()}["pipeline_fsdp"]

    class Other:
        def __init__(self, model: Model) -> None:
            self.model = model

        def __getattr__(self, name: str) -> Any:
            return getattr(self.model, name)

        async def scatterreduce(self, grad: Any, layer: int) -> Any:
            self.model.grad_weights["own"] = grad
            await reduce(self.model, layer)
            return self.model.grad_weights.pop("own")

    async def pipeline_fsdp(model: Model) -> None:
        await own(Other(model))  # type: ignore[arg-type]

    return pipeline_fsdp


@pytest.mark.parametrize("reduce", [all_reduce_cut_at_once, scatter_and_gather, all_reduce_of_pieces])
def test_no_stage_receives_a_whole_gradient(reduce: Reduce) -> None:
    for size in sizes("pipeline_fsdp"):
        refused(stages(reduce), "pipeline_fsdp", size)


# -- alone ----------------------------------------------------------------------------------------------------


def test_what_a_rank_has_made_it_has_not_received() -> None:
    """One rank alone, or a group of one, receives nothing; and where weights are whole, whole gradients are meant."""

    async def alone(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([model.rank])
        grad = model.loss(model.forward(0, model.activations[0], model.weights[0]))
        grad, _ = model.backward(0, model.activations[0], grad, model.weights[0])
        await model.allreduce(grad, 0, axis="shard")

    IDEAS["no_whole_gradient"].check(run(alone, ranks=2, layers=1, batches=2, mesh={"replica": 2, "shard": 1}))
    with pytest.raises(PuzzleError, match=SAYS):
        IDEAS["no_whole_gradient"].check(run(alone, ranks=2, layers=1, batches=2, mesh={"replica": 1, "shard": 2}))


def test_the_price_of_a_machine_decides_what_a_whole_gradient_is() -> None:
    from lib import Cost

    size: Size = {"ranks": 3, "layers": 2, "batches": 3, "cost": Cost(weight_elements=7)}
    IDEAS["no_whole_gradient"].check(run(sharded(ring), **size))
    with pytest.raises(PuzzleError, match=SAYS):
        IDEAS["no_whole_gradient"].check(run(sharded(ring_all_the_way), **size))
