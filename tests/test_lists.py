"""One call for several layers: a collective that gets a list of tensors, with the list of their layers."""

import asyncio
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest

from drawing import draw, perfetto, play
from lib import HIDDEN, LENGTH, Cost, Dist, Model, PuzzleError, RingCost, Run, Weight, run
from lib.course.ideas import no_whole_gradient
from lib.course.specs import puzzles
from lib.grading.judge import judge
from lib.grading.submission import load
from lib.grading.verdict import FAIL
from lib.machine.cost import Shape
from lib.machine.simulator import LocalSimulator
from lib.record.codes import Code, code_of, read_code
from lib.record.events import MARKS, Event
from lib.record.labels import Labels
from lib.record.table import OPERATIONS
from lib.recording.replay import Replay
from lib.recording.wire import ProtocolError
from solutions.build.tables.outlines import half_of
from tests.corpus import changed
from tests.corpus.lists import MISTAKES as WITH_LISTS
from tests.corpus.mistakes import REDUCE
from tests.drawing_events import event, trace
from tests.experts import finish
from tests.marks import needs_torch
from tests.programs import SMALLER
from tests.test_recording import through_a_recording
from tests.toys import TOY_BROADCAST, register, unregister

WEIGHT, ACTIVATION = HIDDEN * HIDDEN, HIDDEN * LENGTH
Program = Callable[[Model], Any]


def load_shards(model: Model) -> list[Weight]:
    """Store this rank's shard of each layer; return the shards of the weights."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    return [model.weights[layer] for layer in range(model.LAYERS)]


async def gathered(model: Model) -> None:
    """One call for the shards of all layers."""
    layers = range(model.LAYERS)
    for layer, weight in zip(layers, await model.allgather(load_shards(model), layers), strict=True):
        model.weights["whole", layer] = weight


def fsdp_of(verb: str = "scatterreduce", backwards: bool = True, **where: Any) -> Program:
    """FSDP with one gather before all forwards, and one sum after all backwards."""

    async def fsdp(model: Model) -> Model:
        place, places = (model.axis_index(**where), model.axis_size(**where)) if where else (model.rank, model.RANKS)
        layers = list(range(model.LAYERS))
        for layer in layers:
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, place, places)
        for layer, whole in enumerate(
            await model.allgather(tuple(model.weights[at] for at in layers), layers, **where)
        ):
            model.weights["whole", layer] = whole
        model.activations[0] = model.get_activation([model.rank])
        for layer in layers:
            out = model.forward(layer, model.activations[layer], model.weights["whole", layer])
            model.activations[layer + 1] = out
        grad = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(layers):
            whole = model.weights.pop(("whole", layer))
            model.grad_weights[layer], grad = model.backward(layer, model.activations.pop(layer), grad, whole)
            model.grad_activations["g"] = grad
        order = layers[::-1] if backwards else layers
        sums = await getattr(model, verb)([model.grad_weights.pop(layer) for layer in order], order)
        for layer, total in zip(order, sums, strict=True):
            model.grad_weights[layer] = total
        for layer in layers:
            if verb == "allreduce":
                model.grad_weights[layer] = model.grad_weights[layer].shard(place, places)
        return finish(model)

    return fsdp


def of_lists(done: Any) -> list[Event]:
    """The records of calls for several layers."""
    return [one for one in done.events if one.layers]


# -- what comes out -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["scatterreduce", "allreduce"])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_a_step_of_training_with_lists_is_right(verb: str, order: list[int]) -> None:
    done = run(fsdp_of(verb), ranks=3, layers=4, batches=3, _order=order)
    done.check()
    assert done.time == 10.6  # 0.3 + 4 + 4 + 0.3 + 4 * 0.5: two calls of a flat price, whatever they carry


def test_a_record_says_all_of_it() -> None:
    first, second = of_lists(run(gathered, ranks=2, layers=3, batches=1))
    assert (first.layer, first.layers, first.words) == (0, (0, 1, 2), ("lists",))
    assert (first.elements, first.tensor, first.group, first.op) == (3 * WEIGHT // 2, "Weight", (0, 1), second.op)
    single = run(fsdp_of(), ranks=1, layers=1, batches=1).events
    assert {one.layers for one in single if one.stream != "collective"} == {()}
    assert {one.words for one in single if one.stream != "collective"} == {()}


def test_a_list_is_what_comes_of_a_list_or_a_tuple() -> None:
    async def program(model: Model) -> None:
        load_shards(model)
        pair = (model.weights[0], model.weights[1])
        for tensors, layers in ((list(pair), [0, 1]), (pair, (0, 1)), (pair, range(2)), ([pair[1]], (1,))):
            call = model.allgather(tensors, layers)
            assert asyncio.isfuture(call) and repr([*layers]) in repr(call)
            got = await call
            assert type(got) is list and [one.layer for one in got] == [*layers]
            assert await call is got

    run(program, ranks=2, layers=2, batches=1)


def test_along_an_axis_and_by_hand() -> None:
    size: dict[str, Any] = {"mesh": {"replica": 2, "shard": 2}, "node_size": 2}

    async def program(model: Model) -> None:
        index = model.axis_index("shard")
        shards = [model.load_weights(layer, index, 2)[0] for layer in range(2)]
        for layer in range(2):
            model.weights[layer] = shards[layer]
        model.weights["a"], model.weights["b"] = await model.allgather(shards, [0, 1], axis="shard")
        state = model.load_weights(1, model.rank, 4)[1].shard(0, 1)
        await model.allgather([state], [1], axis="replica")

    async def main() -> list[Model]:
        dist = Dist(4, **size)
        models = [Model(rank, dist, layers=2, batches=1) for rank in range(4)]
        await asyncio.gather(*map(program, models))
        return models

    async def single(model: Model) -> None:
        await model.allgather(model.load_weights(0)[0], [0])  # type: ignore[arg-type]

    models = asyncio.run(main())
    assert [model.time for model in models] == [1.8] * 4  # 0.3 in a box and 1.5 between nodes
    assert {one.group for one in models[3].log if one.layers} == {(2, 3), (1, 3)}
    with pytest.raises(PuzzleError, match="comes with the list of their tensors"):
        asyncio.run(single(Model()))


# -- what it costs ------------------------------------------------------------------------------------------------


def test_a_ring_takes_one_latency_and_the_sum_of_the_sizes() -> None:
    cost = RingCost(latency=1, bandwidth=WEIGHT)
    # Around 4 ranks: three hops of one tick, and three quarters of each of five weights at a weight a tick.
    assert run(gathered, ranks=4, layers=5, batches=1, cost=cost).time == 3 * 1 + 5 * Fraction(3, 4)

    async def one_by_one(model: Model) -> None:
        for layer, shard in enumerate(load_shards(model)):
            model.weights["whole", layer] = await model.allgather(shard, layer)

    assert run(one_by_one, ranks=4, layers=5, batches=1, cost=cost).time == 5 * (3 * 1 + Fraction(3, 4))

    async def zeros(model: Model) -> None:
        await model.allreduce([model.fake_grad(layer, []) for layer in range(2)], [0, 1])

    assert run(zeros, ranks=2, layers=2, batches=1, cost=cost).time == 2  # an all-reduce goes around twice


def test_a_cost_of_ones_own_hears_of_the_sum() -> None:
    class Heard(Cost):
        def meeting(self, kind: str, tensor: Labels, size: Any, group: Any) -> Any:
            heard.append((kind, tensor.layer, size, group.ranks))
            return self.in_time_units(2)

    heard: list[Any] = []
    assert run(gathered, ranks=2, layers=3, batches=1, cost=Heard()).time == 2
    assert heard == [("allgather", 0, 3 * WEIGHT, (0, 1))]


# -- memory and lives ---------------------------------------------------------------------------------------------


def test_a_state_that_is_loaded_after_a_list_with_its_layer_is_late() -> None:
    async def program(model: Model) -> None:
        for layer in range(2):
            model.weights[layer], state = model.load_weights(layer, model.rank, 2)
            if layer == 0:
                model.opt_states[0] = state
        await model.allgather([model.weights[0], model.weights[1]], [0, 1])
        model.opt_states[1] = model.load_weights(1, model.rank, 2)[1]

    done = run(program, ranks=2, layers=2, batches=1)
    assert [[labels.layer for labels in state.late] for state in done.final_states] == [[1], [1]]


# -- what is refused ----------------------------------------------------------------------------------------------


def bringing(*by_rank: Callable[[Model, Sequence[Weight]], Any], layers: int = 3) -> Callable[[], Run]:
    """A run in which each rank starts one call; the last function is for all further ranks."""

    async def program(model: Model) -> None:
        shards = load_shards(model)
        await by_rank[min(model.rank, len(by_rank) - 1)](model, shards)

    return lambda: run(program, ranks=2, layers=layers, batches=2)


REFUSED: dict[str, tuple[Callable[[Model, Sequence[Weight]], Any], str, str]] = {
    "too few layers": (lambda m, w: m.allgather(w, [0, 1]), "3 tensors with 2 layers", "for each tensor its layer"),
    "no tensors": (lambda m, w: m.allgather([], []), "no tensors with no layers", "at least one tensor"),
    "no layers": (lambda m, w: m.allgather(w, []), "3 tensors with no layers", "at least one tensor"),
    "a layer twice": (lambda m, w: m.allgather([w[0], w[0]], [0, 0]), "layer 0 is in the list 2 times", "once"),
    "two kinds": (
        lambda m, w: m.allgather([w[0], m.opt_states[1]], [0, 1]),
        "Weight and OptState in one list",
        "tensors of one kind",
    ),
    "another layer": (lambda m, w: m.allgather(w[:2], [0, 2]), "the Weight is that of layer 1", "expected: layer 2"),
    "nothing in it": (lambda m, w: m.allgather([w[0], None], [0, 1]), "allgather takes a Weight", "None"),
    "nothing to add": (
        lambda m, w: m.allreduce([m.fake_grad(0, []), None], [0, 1]),  # type: ignore[list-item]
        "allreduce takes a WeightGrad",
        "None",
    ),
    "another kind": (lambda m, w: m.scatterreduce(w[:2], [0, 1]), "scatterreduce takes a WeightGrad", "Weight(layer=0"),  # type: ignore[arg-type]
    "one layer for all": (lambda m, w: m.allgather(w[:2], 0), "comes with the list of their layers", ", 0"),
    "a list of layers": (lambda m, w: m.allgather(w[0], [0]), "comes with the list of their tensors", ", [0]"),
    "a dictionary": (lambda m, w: m.allgather(m.weights, [0, 1]), "comes with the list of their tensors", "[0, 1]"),
    "a layer that is text": (lambda m, w: m.allgather(w[:2], [0, "1"]), "layer is out of range", "from 0 to 2"),  # type: ignore[list-item]
    "a call in it": (lambda m, w: m.allgather([w[0], m.allgather(w[1], 1)], [0, 1]), "takes a Weight", "`await`"),
    "made up": (lambda m, w: m.allreduce([m.fake_grad(0, []), m.fake_grad(1, [0])], [0, 1]), "is made up", "layer 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_list_is_refused(name: str) -> None:
    call, problem, says = REFUSED[name]
    with pytest.raises(PuzzleError) as near:
        bringing(call)()
    error = near.value
    assert problem in error.problem and says in str(error)
    assert error.place.rank == 0 and "test_lists.py" in error.line

    async def program(model: Model) -> None:
        await call(model, load_shards(model))

    with pytest.raises(PuzzleError) as far:
        through_a_recording(program, {"ranks": 2, "layers": 3, "batches": 2})
    assert str(far.value) == str(error)


MIXED: dict[str, tuple[Any, Any, str]] = {
    "another order": (
        lambda m, w: m.allgather(w[:2], [0, 1]),
        lambda m, w: m.allgather([w[1], w[0]], [1, 0]),
        "rank 0 calls allgather(layers [0, 1]) where rank 1 calls allgather(layers [1, 0])",
    ),
    "a list and a tensor": (
        lambda m, w: m.allgather([w[0]], [0]),
        lambda m, w: m.allgather(w[0], 0),
        "rank 0 calls allgather(layers [0]) where rank 1 calls allgather(layer 0)",
    ),
    "more layers": (
        lambda m, w: m.allgather(w[:2], [0, 1]),
        lambda m, w: m.allgather(w, [0, 1, 2]),
        "rank 0 calls allgather(layers [0, 1]) where rank 1 calls allgather(layers [0, 1, 2])",
    ),
    "another collective": (
        lambda m, w: m.allreduce([m.fake_grad(0, [])], [0]),
        lambda m, w: m.scatterreduce([m.fake_grad(0, [])], [0]),
        "rank 0 calls allreduce(layers [0]) where rank 1 calls scatterreduce(layers [0])",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_ranks_that_bring_other_lists_are_named_side_by_side(name: str) -> None:
    one, other, problem = MIXED[name]
    with pytest.raises(PuzzleError) as caught:
        bringing(one, other)()
    assert caught.value.problem == problem
    assert caught.value.run.failure.waits  # and it can be drawn
    assert "layers [" in draw(caught.value.run).svg()


def test_a_tensor_that_does_not_fit_is_named_by_its_layer() -> None:
    async def program(model: Model) -> None:
        load_shards(model)
        model.weights["whole", 1] = await model.allgather(model.weights[1], 1)
        await model.allgather([model.weights[0], model.weights["whole", 1]], [0, 1])

    with pytest.raises(PuzzleError, match="more than once") as caught:
        run(program, ranks=2, layers=2, batches=1)
    place = caught.value.place
    assert (place.operation, place.layer) == ("allgather", 1)
    assert place.detail == "of all ranks, in one call for layers [0, 1]"
    assert "allgather(layer 1)" in str(caught.value)


def test_a_list_that_is_not_awaited_is_told() -> None:
    async def never(model: Model) -> None:
        model.allgather(load_shards(model), [0, 1])

    async def unpacked(model: Model) -> None:
        model.weights["a"], model.weights["b"] = model.allgather(load_shards(model), [0, 1])  # type: ignore[misc]

    with pytest.raises(PuzzleError, match=r"allgather\(layers \[0, 1\]\) was started and never awaited"):
        run(never, ranks=2, layers=2, batches=1)
    with pytest.raises(PuzzleError, match="did you forget `await`"):
        run(unpacked, ranks=2, layers=2, batches=1)


def test_a_list_meets_lists_of_its_length_only_even_where_sets_are_not_checked() -> None:
    with pytest.raises(PuzzleError, match="where rank 1 calls"):
        run(mixing, ranks=2, layers=3, batches=1, _strict=False)


async def mixing(model: Model) -> None:
    shards = load_shards(model)
    await (model.allgather(shards[:2], [0, 1]) if model.rank else model.allgather(shards[0], 0))


# -- what puzzles grant -------------------------------------------------------------------------------------------


EACH = [
    pytest.param(one, marks=pytest.mark.slow if one.puzzle in SMALLER else (), id=f"{one.puzzle}: {one.name}")
    for one in WITH_LISTS
]


@pytest.mark.parametrize("program", EACH)
def test_puzzles_that_do_not_grant_lists_refuse_them(program: Any) -> None:
    """They are right, and some are faster than all that is known: that is why."""
    spec, fn = puzzles()[program.puzzle], load("attempt.py", program.source)[0][program.puzzle]
    verdict = judge(spec, lambda size: run(fn, **size))
    assert verdict.status == FAIL and verdict.error is not None and verdict.time is not None
    assert f"puzzle {spec.number} must be solved without lists of tensors in one call" in verdict.message
    assert verdict.error.place.operation in ("allreduce", "allgather", "scatterreduce")
    granting = spec._replace(words=("lists",))
    run(fn, **spec.size).check()
    assert "lists of tensors" not in judge(granting, lambda size: run(fn, **size)).message


def test_ddp_with_one_list_takes_what_the_contract_says() -> None:
    [program] = [one for one in WITH_LISTS if one.name == "one list for all sums"]
    done = run(load("attempt.py", program.source)[0]["ddp"], **puzzles()["ddp"].size)
    assert (done.time, done.memory) == (5.3, 1703936)
    done.check()


# -- the rule about whole gradients --------------------------------------------------------------------------------


def test_a_list_is_seen_layer_by_layer() -> None:
    done = run(fsdp_of(), ranks=4, layers=3, batches=4)
    seen = [one for one in done.layer_by_layer if one.kind == "scatterreduce" and one.rank == 1]
    assert [(one.layer, one.elements, one.batches, one.layers) for one in seen] == [
        (layer, WEIGHT, frozenset({1}), ()) for layer in (2, 1, 0)
    ]
    assert len({one.op for one in seen}) == 3
    assert [one for one in done.layer_by_layer if one.kind != "scatterreduce" and one.kind != "allgather"] == [
        one for one in done.events if not one.layers
    ]


@pytest.mark.parametrize("layers", [1, 2, 6])
def test_no_whole_gradient_sees_every_layer_of_a_list(layers: int) -> None:
    no_whole_gradient.check(run(fsdp_of("scatterreduce"), ranks=4, layers=layers, batches=4))
    with pytest.raises(PuzzleError, match="receives a whole summed gradient") as caught:
        no_whole_gradient.check(run(fsdp_of("allreduce"), ranks=4, layers=layers, batches=4))
    assert caught.value.place.operation == "allreduce"


def test_zeros_beside_a_gradient_do_not_hide_it() -> None:
    """One layer summed whole, in a list with zeros of all the others."""
    hidden = changed("fsdp", "one sum among zeros", (REDUCE, """\
        zeros = [model.fake_grad(other, []) for other in range(model.LAYERS) if other != layer]
        whole, *_ = await model.allreduce([grad, *zeros], [layer, *(zero.layer for zero in zeros)])
        model.grad_weights[layer] = whole.shard(model.rank, model.RANKS)
"""))  # fmt: skip
    done = run(load("attempt.py", hidden.source)[0]["fsdp"], ranks=4, layers=4, batches=4)
    done.check()
    with pytest.raises(PuzzleError, match="receives a whole summed gradient"):
        no_whole_gradient.check(done)


# -- the line to the grader ----------------------------------------------------------------------------------------


@pytest.fixture
def office() -> Replay:
    """A replay whose two ranks have loaded their shards of two layers: tensors 0 to 3, and 4 to 7."""
    replay = Replay(LocalSimulator(Shape.of(2), graded=True), 2, 2)
    for rank in range(2):
        for layer in range(2):
            replay.carry_out(["load_weights", rank, None, layer, rank, 2])
    return replay


GARBLED: dict[str, list[Any]] = {
    "no list of tensors": ["allgather", 0, [0, 1], None],
    "no list of layers": ["allgather", [0, 2], 0, None],
    "a tensor that is not there": ["allgather", [0, 99], [0, 1], None],
    "a tensor below 0": ["allgather", [-1, 0], [0, 1], None],
    "a tensor that is true": ["allgather", [0, True], [0, 1], None],
    "a tensor that is a list": ["allgather", [[0], [2]], [0, 1], None],
    "nothing": ["allgather", [0, None], [0, 1], None],
    "a kind that this takes not": ["allreduce", [0, 2], [0, 1], None],
    "no collective": ["forward", [0, 2], [0, 1], None],
    "a layer that is a list": ["allgather", [0, 2], [[0], [1]], None],
    "a layer beyond all bounds": ["allgather", [0, 2], [0, 1 << 80], None],
    "an axis that is a number": ["allgather", [0, 2], [0, 1], 1],
}


@pytest.mark.parametrize("name", GARBLED)
def test_what_the_library_would_not_have_written_is_refused(office: Replay, name: str) -> None:
    with pytest.raises(ProtocolError):
        office.carry_out(["meet_list", 0, None, *GARBLED[name]])
    assert not office.calls and not office.ranks[0].lists


WRONG_LISTS: dict[str, tuple[list[Any], str]] = {
    "other lengths": ([[0, 2], [0]], "2 tensors with 1 layer"),
    "empty": ([[], []], "no tensors with no layers"),
    "the same twice": ([[0, 0], [0, 0]], "is in the list 2 times"),
    "two kinds": ([[0, 3], [0, 1]], "Weight and OptState in one list"),
    "another layer": ([[0, 2], [1, 0]], "the Weight is that of layer 0"),
    "another rank's": ([[0, 6], [0, 1]], "belongs to rank 1"),
    "a layer that is text": ([[0, 2], [0, "\x1b[2J"]], "layer is out of range"),
    "a layer that is nothing": ([[0, 2], [0, None]], "layer is out of range"),
}


@pytest.mark.parametrize("name", WRONG_LISTS)
def test_wrong_lists_are_refused_in_a_replay(office: Replay, name: str) -> None:
    """As somebody could write them, past Model."""
    (tensors, layers), says = WRONG_LISTS[name]
    with pytest.raises(PuzzleError) as failed:
        office.carry_out(["meet_list", 0, None, "allgather", tensors, layers, None])
    assert says in failed.value.problem and not office.calls
    assert str(failed.value).replace("\n", "").isprintable()


def test_a_list_is_fetched_once(office: Replay) -> None:
    for rank, at in ((0, 0), (1, 4)):
        office.carry_out(["meet_list", rank, None, "allgather", [at, at + 2], [0, 1], None])
    assert [one.labels.is_whole() for one in office.carry_out(["fetch", 0, None, 0, None])] == [True, True]
    for call in (0, 1):
        with pytest.raises(ProtocolError):
            office.carry_out(["fetch", 0, None, call, None])


# -- text and pictures ---------------------------------------------------------------------------------------------

CODES = {
    (0, 1): "0-1AG",
    (0, 1, 2, 3): "0-3AG",
    (3, 2, 1, 0): "3-0AG",
    (0, 2): "0,2AG",
    (1, 0, 5, 6, 7, 3): "1-0,5-7,3AG",
    (2,): "2-2AG",
    (-1, 0): "-1-0AG",
    (10, 12, 11): "10,12-11AG",
}


@pytest.mark.parametrize("layers", CODES, ids=str)
def test_every_list_of_layers_has_a_code_that_reads_back(layers: tuple[int, ...]) -> None:
    code = code_of(event(0, "allgather", 0, 1, layer=layers[0])._replace(layers=layers))
    assert str(code) == CODES[layers]
    assert read_code(CODES[layers]) == code == Code("allgather", layers[0], frozenset(), layers)


def test_codes_of_one_layer_are_as_ever() -> None:
    assert read_code("2AG") == Code("allgather", 2) and read_code("-1AR") == Code("allreduce", -1)
    for wrong in ("0-AG", ",1AG", "0,AG", "0--AG", "0 1AG"):
        with pytest.raises(PuzzleError, match="no code of an operation"):
            read_code(wrong)


def test_a_run_prints_pages_and_plays_with_all_layers() -> None:
    done = run(fsdp_of(), ranks=2, layers=3, batches=2)
    rank = next(line for line in str(done).splitlines() if line.startswith("rank 0 ")).split()
    assert "0-2AG" in rank and "2-0RS" in rank
    texts = [cell for cell in rank[2:] if cell not in "-."]
    found = [read_code(text) for cell in texts for text in cell.split("+")]
    assert found == [code_of(one) for one in done.events if one.rank == 0 and one.kind not in MARKS]
    for page in (draw(done).svg(), play(done)._repr_html_(), perfetto(done)):
        assert "layers [0, 1, 2]" in page and "layers [2, 1, 0]" in page


def test_many_ranks_share_a_row_only_with_the_same_lists() -> None:
    from drawing.schedule.layout import rows_of

    same = event(0, "allgather", 0, 1, layer=0)
    logs = [[same._replace(rank=rank, layers=(0, 1) if rank % 2 else (0, 2))] for rank in range(40)]
    assert [row.ranks for row in rows_of(trace(*logs))] == [[*range(0, 40, 2)], [*range(1, 40, 2)]]


def test_a_sketch_keeps_the_layers() -> None:
    rows = half_of(run(fsdp_of(), ranks=2, layers=3, batches=2).events, 1e9)["events"]
    of_all = [row for row in rows if len(row) > 8]
    assert [row[8:] for row in of_all] == [[0, 1, 2], [2, 1, 0]] * 2
    assert all(len(row) == 8 for row in rows if row[1] not in ("allgather", "scatterreduce"))


# -- collectives from outside, and real tensors -------------------------------------------------------------------


def test_a_collective_that_was_added_takes_lists() -> None:
    """One to which only the first brings tensors."""

    async def program(model: Model) -> None:
        weights = [model.load_weights(layer)[0] for layer in range(2)] if model.rank == 0 else [None, None]
        got = await model.toy_broadcast(weights, [0, 1])  # type: ignore[attr-defined]
        assert [one.layer for one in got] == [0, 1] and all(one.is_complete() for one in got)

    async def nobody(model: Model) -> None:
        await model.toy_broadcast([None], [0])  # type: ignore[attr-defined]

    known = TOY_BROADCAST.kind in OPERATIONS
    register()
    try:
        done = run(program, ranks=3, layers=2, batches=1)
        assert [one.elements for one in of_lists(done)] == [2 * WEIGHT, 0, 0] and done.time == 0.3
        assert through_a_recording(program, {"ranks": 3, "layers": 2, "batches": 1}).events == done.events
        with pytest.raises(PuzzleError, match="no rank brings a tensor"):
            run(nobody, ranks=2, layers=1, batches=1)
    finally:
        if not known:
            unregister()


@needs_torch
@pytest.mark.process
@pytest.mark.parametrize(("verb", "hidden"), [("scatterreduce", 14), ("allreduce", 14), ("scatterreduce", 18)])
def test_processes_move_a_list_tensor_by_tensor(verb: str, hidden: int) -> None:
    """A weight of 14 x 14 is in no three equal pieces: parts are padded for the way."""
    size: dict[str, Any] = {"ranks": 3, "layers": 3, "batches": 3}
    done: Any = run(fsdp_of(verb), **size, engine="processes", dtype="float64", hidden=hidden)
    done.check()
    assert done.agreement.relative < 1e-9
    assert done.events == run(fsdp_of(verb), **size).events
    equal, count = done.stored
    assert equal == count or hidden == 14
    measured = [one for one in done.measured.events if one.layers]
    assert len(measured) == 6 and all(one.end > one.start for one in measured)


@needs_torch
@pytest.mark.process
def test_processes_tell_of_other_lists_and_of_zeros() -> None:
    async def zeros(model: Model) -> None:
        await model.allreduce([model.fake_grad(layer, []) for layer in range(2)], [0, 1])
        await model.scatterreduce([model.fake_grad(layer, []) for layer in range(2)], [0, 1])

    async def other(model: Model) -> None:
        order = [0, 1] if model.rank else [1, 0]
        await model.allreduce([model.fake_grad(layer, []) for layer in order], order)

    with pytest.raises(PuzzleError, match="no rank has set"):
        run(zeros, ranks=2, layers=2, batches=1, engine="processes").check()
    with pytest.raises(PuzzleError, match=r"rank 0 calls allreduce\(layers \[1, 0\]\) where rank 1 calls"):
        run(other, ranks=2, layers=2, batches=1, engine="processes")
