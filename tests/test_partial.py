"""Layers in pieces (``partial=True``), partial sums, slices: figures, refusals, wrong values, and real tensors."""

import copy
import pickle
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawing import draw, play
from lib import Activation, ActivationGrad, Cost, Dist, Model, OptState, PuzzleError, Weight, WeightGrad, grade, run
from lib.grading.verdict import FAIL, PASS
from lib.machine.check import check_finals
from lib.record.codes import Code, read_code
from tests.experts import finish
from tests.marks import NO_TORCH, needs_torch
from tests.test_closed_forms import program

A = Cost().activation_elements
W = Cost().weight_elements
Sum = Callable[[Model, Any, int], Any]
Piece = tuple[Sequence[int], int]  # shards of how many


async def summed(model: Model, partial_sum: Any, layer: int) -> Any:
    return await model.allreduce(partial_sum, layer)


async def raw(model: Model, partial_sum: Any, layer: int) -> Any:
    return partial_sum


async def halves(model: Model, partial_sum: Any, layer: int) -> Any:
    return await model.allgather(await model.scatterreduce(partial_sum, layer), layer)


async def first_slice(model: Model, partial_sum: Any, layer: int) -> Any:
    return await model.scatterreduce(partial_sum, layer)


def load(model: Model, layer: int, piece: Piece) -> None:
    """Load a piece of a layer, all at once or shard by shard."""
    shards, total = piece
    loaded = [model.load_weights(layer, shard, total) for shard in shards]
    weight, state = loaded[0]
    for more, other in loaded[1:]:
        weight, state = weight.combine(more), state.combine(other)
    model.weights[layer], model.opt_states[layer] = weight, state


def pieces(
    cut: Callable[[Model], Piece],
    up: Sum = summed,
    down: Sum = summed,
    split: bool = False,
    at_use: bool = False,
    to_the_input: bool = False,
) -> Any:
    """Tensor parallel: a rank has the piece ``cut(model)`` of each layer, loaded first or ``at_use``. Outputs are added
    up by ``up``, gradients by ``down``, that of the first input only if asked for; ``split``: backward in halves."""

    async def training(model: Model) -> Model:
        for layer in range(0 if at_use else model.LAYERS):
            load(model, layer, cut(model))
        model.activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            if at_use:
                load(model, layer, cut(model))
            out = model.forward(layer, model.activations[layer], model.weights[layer], partial=True)
            model.activations[layer + 1] = await up(model, out, layer + 1)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            operands = (layer, model.activations[layer], model.grad_activations[layer + 1], model.weights[layer])
            if split:
                model.grad_activations["partial sum"] = model.backward_input(*operands, partial=True)
                model.grad_weights[layer] = model.backward_weight(*operands, partial=True)
            else:
                of_weight, model.grad_activations["partial sum"] = model.backward(*operands, partial=True)
                model.grad_weights[layer] = of_weight
            del model.activations[layer], model.grad_activations[layer + 1]
            if layer or to_the_input:
                model.grad_activations[layer] = await down(model, model.grad_activations.pop("partial sum"), layer - 1)
            finish(model, [layer])
        return model

    return training


def even(model: Model) -> Piece:
    return [model.rank], model.RANKS


# -- figures ---------------------------------------------------------------------------------------------------------


@st.composite
def cuts(draw: st.DrawFn) -> list[Piece]:
    """A cut of a layer for some ranks: each has some of all shards, and every shard is with one of them."""
    total = draw(st.integers(2, 12))
    owners = draw(st.lists(st.integers(0, 3), min_size=total, max_size=total))
    ranks = sorted(set(owners))
    return [([shard for shard in range(total) if owners[shard] == rank], total) for rank in ranks]


@settings(max_examples=60, deadline=None)
@given(cuts(), st.integers(1, 4), st.integers(1, 2), st.booleans())
def test_any_cut_is_right_and_costs_its_share(cut: list[Piece], layers: int, batches: int, split: bool) -> None:
    ranks = len(cut)
    done = run(pieces(lambda model: cut[model.rank], split=split), ranks, layers, batches)
    done.check()
    slowest = max(Fraction(len(shards), total) for shards, total in cut)
    sums = (2 * layers - 1) * Fraction(3, 10)
    assert done.time == float(2 * layers * batches * slowest + sums + layers * Fraction(1, 2))
    assert [model.weights[0].memory() for model in done.models] == [W * Fraction(len(s), n) for s, n in cut]
    computing = [event for event in done.events if event.kind in ("forward", "backward")]
    for event in computing:
        shards, total = cut[event.rank]
        assert event.end - event.start == pytest.approx(float(batches * Fraction(len(shards), total)), abs=1e-9)


def test_a_piece_of_a_piece_is_a_piece() -> None:
    model = Model(0, Dist(1), layers=1)
    quarter, _ = model.load_weights(0, 1, 4)
    inp = model.activations[0] = model.get_activation([0])
    model.weights[0] = quarter
    cuts_of_it: list[tuple[Callable[[Weight], Weight], set[int], int]] = [
        (lambda weight: weight, {1}, 4),
        (lambda weight: weight.shard(1, 2), {3}, 8),
        (lambda weight: weight.shard(0, 3).combine(weight.shard(1, 3)), {3, 4}, 12),
        (lambda weight: weight.shard(0, 2).combine(weight.shard(1, 2)), {1}, 4),
    ]
    for cut, parts, of in cuts_of_it:
        out = model.forward(0, inp, cut(quarter), partial=True)
        assert (out.parts, out.of, out.memory(), out.is_complete()) == (frozenset(parts), of, A, False)


def test_a_whole_weight_gives_the_whole_sum() -> None:
    model = Model(0, Dist(1), layers=1)
    weight, _ = model.load_weights(0)
    inp = model.activations[0] = model.get_activation([0])
    model.weights[0] = weight
    out = model.activations["pieces"] = model.forward(0, inp, weight, partial=True)
    other = model.activations["whole"] = model.forward(0, inp, weight)
    assert out == other and out.is_complete() and repr(out) == repr(other)
    grad = model.grad_activations[0] = model.loss(out)
    model.grad_weights[0], model.grad_activations[1] = model.backward(0, inp, grad, weight, partial=True)
    assert (model.grad_weights[0], model.grad_activations[1]) == model.backward(0, inp, grad, weight)


def test_several_partial_sums_of_one_rank_are_added_up_by_collectives() -> None:
    """Each of two ranks computes with two pieces, one after the other. Two meetings give two sums of two, and a third
    one the whole."""

    async def training(model: Model) -> Model:
        for half in range(2):
            piece, state = model.load_weights(0, 2 * half + model.rank, 4)
            model.weights[half], model.opt_states[half] = piece, state
        model.activations["in"] = model.get_activation([0])
        for half in range(2):
            out = model.forward(0, model.activations["in"], model.weights[half], partial=True)
            model.activations[half] = await model.allreduce(out, 1)
            assert (model.activations[half].parts, model.activations[half].of) == ({half}, 2)
        model.activations["out"] = await model.allreduce(model.activations.pop(model.rank), 1)
        assert model.activations["out"].is_complete()
        model.grad_activations[0] = model.loss(model.activations.pop("out"))
        for half in range(2):
            weight, state = model.weights[half], model.opt_states[half]
            inp, grad = model.activations["in"], model.grad_activations[0]
            model.grad_weights[half], _ = model.backward(0, inp, grad, weight, partial=True)
            updated = model.update(0, model.grad_weights.pop(half), weight, state)
            model.weights[half], model.opt_states[half] = updated
        model.set_final_weight(0, model.weights[0].combine(model.weights[1]))
        return model

    done = run(training, 2, 1, 1)
    done.check()
    assert done.time == 2 * 0.25 + 3 * 0.3 + 2 * 0.25 + 2 * 0.5


def test_a_sum_over_one_axis_of_two_is_still_a_partial_sum() -> None:
    async def both(model: Model, partial_sum: Any, layer: int) -> Any:
        once = await model.allreduce(partial_sum, layer, axis="row")
        assert not once.is_complete() and len(once.parts) * 3 == once.of * 1 and once.memory() == A
        return await model.allreduce(once, layer, axis="column")

    done = run(pieces(even, both, both), 6, 3, 1, mesh={"column": 3, "row": 2})
    done.check()
    assert done.time == pytest.approx(6 / 6 + 5 * 0.6 + 1.5, abs=1e-9)


def staged(passes: str) -> Any:
    """A pipeline of two stages, each of tensor-parallel ranks, that pass on slices, or sums that lack some."""

    async def training(model: Model) -> Model:
        stage, stages = model.axis_index("stage"), model.axis_size("stage")
        tensor, tensors = model.axis_index("tensor"), model.axis_size("tensor")
        share = model.LAYERS // stages
        mine = range(stage * share, (stage + 1) * share)
        for layer in mine:
            load(model, layer, ([tensor], tensors))

        async def hand(partial_sum: Any, layer: int, to: int) -> None:
            if passes == "slices":
                partial_sum = await model.scatterreduce(partial_sum, layer, axis="tensor")
            await model.pass_to(model.rank + to * tensors, partial_sum)

        async def take(came_from: int) -> Any:
            came = await model.receive(model.rank + came_from * tensors)
            join = model.allgather if passes == "slices" else model.allreduce
            return await join(came, came.layer, axis="tensor")

        model.activations[mine[0]] = model.get_activation([0]) if stage == 0 else await take(-1)
        for layer in mine:
            out = model.forward(layer, model.activations[layer], model.weights[layer], partial=True)
            if layer == mine[-1] and stage < stages - 1:
                await hand(out, layer + 1, 1)
            else:
                model.activations[layer + 1] = await model.allreduce(out, layer + 1, axis="tensor")
        if stage == stages - 1:
            model.grad_activations[mine[-1] + 1] = model.loss(model.activations.pop(model.LAYERS))
        else:
            model.grad_activations[mine[-1] + 1] = await take(1)
        for layer in reversed(mine):
            inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            model.grad_weights[layer], back = model.backward(layer, inp, grad, model.weights[layer], partial=True)
            if layer > mine[0]:
                model.grad_activations[layer] = await model.allreduce(back, layer - 1, axis="tensor")
            elif stage:
                await hand(back, layer - 1, -1)
            finish(model, [layer])
        return model

    return training


@pytest.mark.parametrize("passes", ["slices", "partial sums"])
@pytest.mark.parametrize("t", [2, 3, 4])
def test_slices_and_partial_sums_can_be_passed_on(passes: str, t: int) -> None:
    done = run(staged(passes), 2 * t, 4, 1, mesh={"stage": 2, "tensor": t})
    done.check()
    sent = [event for event in done.events if event.kind == "pass_to"]
    assert len(sent) == 2 * t
    assert {event.elements for event in sent} == {Fraction(A, t) if passes == "slices" else A}
    assert {event.words for event in sent} == {("slices",) if passes == "slices" else ("partial=True",)}


def test_states_loaded_layer_by_layer_are_not_late() -> None:
    """To add up what a layer gives is no work on the next one."""
    program = pieces(even, at_use=True)
    assert [state.late for state in run(program, 4, 3, 1).final_states] == [()] * 4
    assert grade(program, "tensor_parallel").status == PASS


def test_the_sum_that_nobody_needs_is_drawn_and_written_as_any_other() -> None:
    """That of the gradient of the first input, which has layer -1."""
    done = run(pieces(even, to_the_input=True), 2, 1, 1)
    done.check()
    assert "0F0 1AR L0+0B0 -1AR 0U" in str(done)
    assert read_code("-1AR") == Code("allreduce", -1)
    assert draw(done)._repr_html_() and play(done)._repr_html_()


# -- labels ----------------------------------------------------------------------------------------------------------

SHOWN = [
    (Activation(1, 4, {0}, 2), "Activation(layer=1, layers=4, batches={0}, total_batches=2)"),
    (
        Activation(1, 4, {0}, 2, {1}, 4),
        "Activation(layer=1, layers=4, batches={0}, total_batches=2, shards={1}, total=4)",
    ),
    (
        Activation(1, 4, {0}, 2, parts={1, 2}, of=4),
        "Activation(layer=1, layers=4, batches={0}, total_batches=2, parts={1, 2}, of=4)",
    ),
    (
        ActivationGrad(-1, 4, {0, 1}, 2, {2, 3}, 8, {0, 1}, 4),
        "ActivationGrad(layer=-1, layers=4, batches={0, 1}, total_batches=2, shards={1}, total=4, parts={0}, of=2)",
    ),
]


@pytest.mark.parametrize(("tensor", "shown"), SHOWN)
def test_what_is_not_whole_is_shown_and_copied(tensor: Any, shown: str) -> None:
    assert repr(tensor) == shown
    for same in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert same == tensor and hash(same) == hash(tensor) and repr(same) == shown
    for other, _ in SHOWN:
        assert (other == tensor) == (other is tensor)


def test_parts_and_slices_are_in_their_coarsest_form() -> None:
    assert Activation(1, 4, {0}, 2, {0, 1}, 2, {0, 1, 2}, 3) == Activation(1, 4, {0}, 2)
    assert Activation(1, 4, {0}, 2, {2, 3}, 4) == Activation(1, 4, {0}, 2, {1}, 2)
    slice_of = Activation(1, 4, {0}, 2).shard(1, 4)
    assert slice_of == Activation(1, 4, {0}, 2, {1}, 4) and slice_of.memory() == A // 4
    joined = slice_of.combine(Activation(1, 4, {0}, 2).shard(0, 4))
    assert joined == Activation(1, 4, {0}, 2, {0}, 2) and not joined.is_complete()
    partial_sum = ActivationGrad(1, 4, {0}, 2, parts={1}, of=2)
    assert partial_sum.memory() == A and not partial_sum.is_complete()
    assert partial_sum.shard(1, 2).memory() == A // 2 and partial_sum.shard(1, 2).parts == {1}


BY_HAND = [{"parts": {4}, "of": 4}, {"parts": {0}, "of": 0}, {"parts": {0}, "of": 1 << 20}, {"shards": {3}, "total": 2}]


@pytest.mark.parametrize("wrong", BY_HAND)
def test_labels_by_hand_make_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(PuzzleError):
        Activation(1, 4, {0}, 2, **wrong)


# -- what is refused -------------------------------------------------------------------------------------------------

PARTIAL_SUM, SLICE = {"parts": {1}, "of": 4}, {"shards": {1}, "total": 4}
NOT_SUMMED, NOT_JOINED = "is not the whole sum", "is a slice of the sequence"


def act(layer: int = 0, **part: Any) -> Activation:
    return Activation(layer, 2, {0}, 1, **part)


def grad(layer: int = 0, **part: Any) -> ActivationGrad:
    return ActivationGrad(layer, 2, {0}, 1, **part)


WHOLE_WEIGHT, QUARTER = Weight(0, 2, 0), Weight(0, 2, 0, {1}, 4)


BACKWARDS = ("backward", "backward_input", "backward_weight")
Use = Callable[[Model], object]


def refusals() -> list[Any]:
    """What by-hand tensors are refused with, by verb."""
    cases: list[tuple[str, Use, str]] = []

    def add(name: str, problem: str, use: Use) -> None:
        cases.append((name, use, problem))

    def with_part(said: str, part: dict[str, Any], problem: str) -> None:
        for partial in (False, True):
            how: dict[str, Any] = {"partial": True} if partial else {}
            weight, end = (QUARTER if partial else WHOLE_WEIGHT), f"{said}{', partial' * partial}"
            with_forward(end, part, problem, weight, how)
            for verb in BACKWARDS:
                with_backward(verb, end, part, problem, weight, how)
        add(f"loss of a {said}", f"the input {problem}", lambda m: m.loss(act(2, **part)))
        sums = "do not add up"
        add(f"{said}s added by hand", sums, lambda m: act(1, **part) + act(1, **part))

    def with_forward(end: str, part: Any, problem: str, weight: Weight, how: Any) -> None:
        add(f"forward of a {end}", f"the input {problem}", lambda m: m.forward(0, act(**part), weight, **how))

    def with_backward(verb: str, end: str, part: Any, problem: str, weight: Weight, how: Any) -> None:
        for name, operands in (("input", (act(**part), grad())), ("gradient", (act(), grad(**part)))):
            called = lambda m, operands=operands: getattr(m, verb)(0, *operands, weight, **how)  # noqa: E731
            add(f"{verb} with {name} a {end}", f"the {name} {problem}", called)

    with_part("partial sum", PARTIAL_SUM, NOT_SUMMED)
    with_part("slice", SLICE, NOT_JOINED)
    incomplete, other = "the weight is not complete", Weight(1, 2, 0, {1}, 4)
    add("a piece, no word", incomplete, lambda m: m.forward(0, act(), QUARTER))
    add("a piece, no word, backward", incomplete, lambda m: m.backward(0, act(), grad(), QUARTER))
    add("another layer's piece", "that of layer 1", lambda m: m.forward(0, act(), other, partial=True))
    one, two = act(1, **SLICE, parts={0}, of=2), act(1, shards={2}, total=4, parts={1}, of=2)
    add("slices of two partial sums", "not parts of one tensor", lambda m: one.combine(two))
    add("a slice twice", "a shard would be counted more than once", lambda m: one.combine(one))
    of_piece, state = WeightGrad(0, 2, {0}, 1, {1}, 4), OptState(0, 2, 0)
    add("the gradient of a piece", "piece|shard", lambda m: m.update(0, of_piece, WHOLE_WEIGHT, state))
    add("two kinds", "do not add up", lambda m: act(1, **PARTIAL_SUM) + grad(1, **PARTIAL_SUM))
    return [pytest.param(*case[1:], id=case[0]) for case in cases]


@pytest.mark.parametrize(("use", "says"), refusals())
def test_a_partial_sum_or_a_slice_is_refused_where_a_whole_is_wanted(use: Callable[[Model], object], says: str) -> None:
    model = Model(0, Dist(2), layers=2, batches=1)
    with pytest.raises(PuzzleError, match=says):
        use(model)


async def met(model: Model, brought: Sequence[Any], verb: str, layers: Sequence[int] = (1, 1)) -> Model:
    """Both ranks bring something to a collective."""
    await getattr(model, verb)(brought[model.rank](model), layers[model.rank])
    return model


def own(model: Model, part: Callable[[Any], Any] = lambda out: out, index: int | None = None, batch: int = 0) -> Any:
    weight, _ = model.load_weights(0, model.rank if index is None else index, 2)
    return part(model.forward(0, model.get_activation([batch]), weight, partial=True))


def complete(model: Model) -> Any:
    weight, _ = model.load_weights(0)
    return model.forward(0, model.get_activation([0]), weight)


def of_the_input(model: Model) -> Any:
    """The gradient of the input of layer 1 of 2, which has layer 0; that of layer 2 has the layer of the output."""
    model.weights[0], model.weights[1] = model.load_weights(0)[0], model.load_weights(1)[0]
    model.activations[0] = model.get_activation([0])
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    return model.loss(model.forward(1, model.activations[1], model.weights[1]))


MET = [
    ("allreduce", (complete, complete), "this activation is whole already"),
    ("scatterreduce", (complete, complete), "this activation is whole already"),
    ("allreduce", (own, complete), "this activation is whole already"),
    (
        "allreduce",
        (lambda m: own(m, index=0), lambda m: own(m, index=0)),
        "a partial sum would be counted more than once",
    ),
    (
        "scatterreduce",
        (lambda m: own(m, index=1), lambda m: own(m, index=1)),
        "a partial sum would be counted more than once",
    ),
    ("allreduce", (own, lambda m: own(m, batch=1)), "partial sums of different things do not add up"),
    ("scatterreduce", (own, lambda m: own(m, lambda out: out.shard(0, 2))), "of different things do not add up"),
    ("allreduce", (lambda m: complete(m).shard(0, 2),) * 2, "this slice is added up already"),
    ("allgather", (own, own), "these are not parts of one tensor"),
    ("allgather", (lambda m: own(m, lambda out: out.shard(m.rank, 2)),) * 2, "these are not parts of one tensor"),
    ("allgather", (complete, complete), "a shard would be counted more than once"),
    ("allgather", (lambda m: complete(m).shard(0, 2),) * 2, "a shard would be counted more than once"),
    ("allreduce", (own, of_the_input), "tensors of several kinds do not add up"),
]


@pytest.mark.parametrize(("verb", "brought", "says"), MET)
def test_what_does_not_add_up_or_join_is_refused(verb: str, brought: Any, says: str) -> None:
    with pytest.raises(PuzzleError, match=says):
        run(lambda model: met(model, brought, verb), 2, 2, 2)


# -- with the rules off the values tell ------------------------------------------------------------------------------


async def same(model: Model, partial_sum: Any, layer: int) -> Any:
    """The sum over half of the ranks only."""
    return await model.allreduce(partial_sum, layer, axis="half")


WRONG = {
    "no sum": (even, raw, raw),
    "no sum in forward": (even, raw, summed),
    "no sum in backward": (even, summed, raw),
    "a slice as a whole in forward": (even, first_slice, summed),
    "a slice as a whole in backward": (even, summed, first_slice),
    "over half of the ranks": (even, same, summed),
    "over half of the ranks in backward": (even, summed, same),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("layers", [2, 4])
@pytest.mark.parametrize("engine", ["simulator", "local"])
def test_values_tell_a_wrong_program_without_the_rules(name: str, layers: int, engine: str) -> None:
    cut, up, down = WRONG[name]
    size: dict[str, Any] = {"ranks": 4, "layers": layers, "batches": 2, "mesh": {"other": 2, "half": 2}}
    more: dict[str, Any] = {}
    if engine == "local":
        pytest.importorskip("torch", reason=NO_TORCH)
        more = {"engine": "local", "hidden": 16, "dtype": "float64"}
    with pytest.raises(PuzzleError):
        run(pieces(cut, up, down), **size, **more)
    done = run(pieces(cut, up, down), **size, **more, _strict=False)
    with pytest.raises(PuzzleError, match="wrong value"):
        check_finals(done.final_states)


# -- what a puzzle grants --------------------------------------------------------------------------------------------


def test_a_record_says_what_was_used() -> None:
    done = run(pieces(even, halves, summed), 2, 2, 1)
    words = {(event.kind, event.words) for event in done.events if event.words}
    partial_sums, slices = ("partial=True",), ("slices",)
    assert words == {
        *(("forward", partial_sums), ("backward", partial_sums), ("allreduce", partial_sums)),
        *(("scatterreduce", partial_sums), ("allgather", slices)),
    }


def test_most_puzzles_do_not_grant_it() -> None:
    verdict = grade(pieces(even), "fsdp")
    assert verdict.status == FAIL
    assert "puzzle 4 must be solved without `partial=True`, which is the subject of puzzle 17" in verdict.message
    verdict = grade(program("p18_sequence_parallel", "sequence_parallel"), "tensor_parallel")
    assert "puzzle 17 must be solved without slices of activations, which is the subject of" in verdict.message


# -- real tensors ----------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("how", [summed, halves])
def test_real_tensors_agree(dtype: str, split: bool, how: Sum) -> None:
    for cut, hidden in (
        ([([0], 4), ([1], 4), ([2], 4), ([3], 4)], 16),
        ([([0, 5], 6), ([1, 2, 3], 6), ([4], 6)], 12),
        ([([1], 2), ([0], 2)], 4),
    ):
        training = pieces(lambda model, cut=cut: cut[model.rank], how, how, split)  # type: ignore[misc]
        size: dict[str, Any] = {"ranks": len(cut), "layers": 3, "batches": 2}
        done = run(training, **size, engine="local", dtype=dtype, hidden=hidden, length=5)
        done.check()  # five tokens in slices for two, three or four ranks
        assert done.agreement is not None
        assert done.agreement.relative <= {"float32": 1e-4, "float64": 1e-10}[dtype]
        assert done.events == run(training, **size).events


@needs_torch
@pytest.mark.parametrize("passes", ["slices", "partial sums"])
def test_real_slices_and_partial_sums_are_passed_on(passes: str) -> None:
    size: dict[str, Any] = {"ranks": 6, "layers": 4, "batches": 1, "mesh": {"stage": 2, "tensor": 3}}
    run(staged(passes), **size, engine="local", dtype="float64", hidden=12, length=7).check()


FITS = [(16, 4, True), (24, 3, True), (10, 2, False), (16, 3, False), (6, 4, False)]


@needs_torch
@pytest.mark.parametrize(("hidden", "ranks", "fits"), FITS)
def test_a_cut_inside_of_a_unit_names_the_hidden_size(hidden: int, ranks: int, fits: bool) -> None:
    """A layer has half as many units as its hidden size; those of a piece have to be whole."""
    assert (hidden // 2 % ranks == 0) == fits
    if fits:
        run(pieces(even), ranks, 2, 1, engine="local", hidden=hidden).check()
        return
    with pytest.raises(PuzzleError, match=f"the weight is cut inside of a unit: with hidden={hidden}") as refused:
        run(pieces(even), ranks, 2, 1, engine="local", hidden=hidden)
    assert "hidden=" in refused.value.expected


@needs_torch
def test_a_block_is_not_computed_in_pieces() -> None:
    with pytest.raises(PuzzleError, match="a layer of kind 'block' is not computed in pieces here") as refused:
        run(pieces(even), 2, 2, 1, engine="local", layer="block", hidden=32)
    assert refused.value.expected == 'layer="mlp"'
