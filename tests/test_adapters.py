"""Adapters beside frozen weights (``load_adapter``, ``adapter=``, ``train="adapters"``): figures, what is refused, what
is wrong by its value alone, and real tensors."""

import asyncio
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drawing import beside_target, draw, draw_tensor, perfetto
from lib import HIDDEN, LENGTH, Cost, Dist, Model, OptState, PuzzleError, Run, Weight, WeightGrad, grade, run
from lib.course.layouts import check_layout
from lib.course.specs import puzzles
from lib.engines import shell
from lib.grading.judge import check_features
from lib.machine.check import check_finals
from lib.real import presets
from lib.record.labels import ADAPTER, OF_ADAPTER, Labels
from lib.record.table import grantable
from solutions.p00_basic import basic
from solutions.p23_lora import lora
from tests.marks import needs_torch

W, A, SMALL = HIDDEN * HIDDEN, HIDDEN * LENGTH, 16 * HIDDEN
FOUR: dict[str, Any] = {"ranks": 4, "layers": 6, "batches": 4, "train": "adapters"}
ALONE: dict[str, Any] = {"layers": 3, "batches": 2, "train": "adapters"}
Change = Callable[..., Any]


@contextmanager
def refuses(says: str) -> Iterator[None]:
    """An error whose message, written in one line, says this."""
    with pytest.raises(PuzzleError) as refused:
        yield
    assert re.search(says, " ".join(str(refused.value).split())), str(refused.value)


def alone(
    *,
    forward: Change = lambda model, layer: {"adapter": model.weights["adapter", layer]},
    backward: Change = lambda model, layer: {"adapter": model.weights["adapter", layer]},
    before: Change = lambda model, layer: None,
    update: Change = lambda model, layer, grad: (grad, model.weights["adapter", layer], model.opt_states[layer]),
) -> Any:
    """Plain training of adapters on one rank, with something of it changed."""

    async def program(model: Model) -> Model:
        for layer in range(model.LAYERS):
            model.weights[layer], _ = model.load_weights(layer)
            model.weights["adapter", layer], model.opt_states[layer] = model.load_adapter(layer)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            before(model, layer)
            operands = layer, model.activations[layer], model.weights[layer]
            model.activations[layer + 1] = model.forward(*operands, **forward(model, layer))
        model.grad_activations[0] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad, weight = model.activations.pop(layer), model.grad_activations.pop(0), model.weights[layer]
            of_adapter, grad = model.backward(layer, inp, grad, weight, **backward(model, layer))
            model.grad_weights[layer], model.grad_activations[0] = of_adapter, grad
        for layer in range(model.LAYERS):
            updated, state = model.update(layer, *update(model, layer, model.grad_weights[layer]))
            model.weights["adapter", layer], model.opt_states[layer] = updated, state
            model.set_final_weight(layer, updated)
        return model

    return program


# -- figures ------------------------------------------------------------------------------------------------------


def test_sizes_and_prices_are_the_costs() -> None:
    model = Model()
    model.weights[0], model.opt_states[0] = model.load_adapter(0)
    assert model.weights[0].memory() == model.opt_states[0].memory() == Cost().adapter_elements == 16 * HIDDEN
    assert model.load_adapter(1, 1, 4)[0].memory() == 4 * HIDDEN
    assert WeightGrad(0, 2, [], 4, adapter=True).memory() == 0
    base = run(alone(), **ALONE).time
    assert base == 3 * (2 * 1 + 2 * 0.5 + 0.5)
    assert run(alone(), **ALONE, cost=Cost(backward_input=0.75)).time == base + 3 * 2 * 0.25
    # What is inside a layer is made again by such a backward, too, unless it was kept.
    inside = Cost(saved_elements=7 * A, recompute=0.25)
    again = run(alone(), **ALONE, cost=inside)
    assert again.time == base + 3 * 2 * 0.25
    assert again.memory == 3 * W + 6 * SMALL + 2 * A * (3 + 1 + 7)


def test_what_forward_leaves_behind_is_of_weight_and_adapter() -> None:
    def keeping(take: Change) -> Any:
        async def program(model: Model) -> Model:
            (weight, _), (adapter, state) = model.load_weights(0), model.load_adapter(0)
            model.weights[0], model.weights[1], model.opt_states[0] = weight, adapter, state
            model.activations[0] = model.get_activation([0])
            model.activations[2], model.activations[3] = model.forward(0, model.activations[0], weight, keep="all")
            out, saved = model.forward(0, model.activations[0], weight, keep="all", adapter=adapter)
            model.activations[1], model.activations[4] = out, saved
            grad = model.loss(model.activations[1])
            grad, _ = model.backward(0, model.activations[0], grad, weight, take(model), adapter=adapter)
            model.weights[1], model.opt_states[0] = model.update(0, grad, adapter, state)
            model.set_final_weight(0, model.weights[1])
            return model

        return program

    size = {"layers": 1, "train": "adapters", "cost": Cost(saved_elements=A, recompute=0.25)}
    right = run(keeping(lambda model: model.activations[4]), **size)
    right.check()
    assert right.time == 1 + 1 + 0.5 + 0.5
    with refuses("wrong value"):
        run(keeping(lambda model: model.activations[3]), **size).check()


def test_pieces_of_adapters_are_gathered_and_reduced_as_those_of_weights_are() -> None:
    async def program(model: Model) -> Model:
        mine = model.rank, model.RANKS
        model.weights[0], _ = model.load_weights(0, *mine)
        model.weights["adapter"], model.opt_states[0] = model.load_adapter(0, *mine)
        model.weights["whole"] = await model.allgather(model.weights[0], 0)
        adapter = model.weights["both"] = await model.allgather(model.weights["adapter"], 0)
        assert adapter == Weight(0, 1, 0, adapter=True) != model.weights["whole"]
        model.activations[0] = model.get_activation([model.rank])
        model.activations[1] = model.forward(0, model.activations[0], model.weights["whole"], adapter=adapter)
        grad = model.loss(model.activations[1])
        grad, _ = model.backward(0, model.activations[0], grad, model.weights["whole"], adapter=adapter)
        (grad,) = await model.scatterreduce([grad], [0])
        new, model.opt_states[0] = model.update(0, grad, model.weights["adapter"], model.opt_states[0])
        model.weights["adapter"] = new
        if model.rank:
            await model.pass_to(0, new)
            model.set_final_weight(0, new)
        else:
            model.set_final_weight(0, model.weights["adapter"].combine(await model.receive()))
        return model

    done = run(program, ranks=2, layers=1, batches=2, train="adapters")
    done.check()
    gathered = [event for event in done.events if event.tensor == "Weight" and event.kind == "allgather"]
    assert [event.words for event in gathered] == [(), (ADAPTER,)] * 2
    assert [event.elements for event in gathered] == [W // 2, SMALL // 2] * 2
    assert {event.words for event in done.events if event.kind in ("pass_to", "receive", "update")} == {(ADAPTER,)}


def test_a_list_is_of_adapters_or_of_weights() -> None:
    async def program(model: Model) -> None:
        (weight, _), (adapter, _) = model.load_weights(0, model.rank, 2), model.load_adapter(1, model.rank, 2)
        model.weights[0], model.weights[1] = weight, adapter
        await model.allgather([weight, adapter], [0, 1])

    with refuses("tensors of adapters and of the layers' own weights in one list"):
        run(program, ranks=2)


def test_a_state_of_an_adapter_is_loaded_before_work_on_its_layer() -> None:
    states = run(lora, **FOUR).final_states
    late = [state._replace(late=(Labels("OptState", 2, 6, extra=OF_ADAPTER),)) for state in states]
    with refuses("only after work on that layer"):
        check_layout("frozen_shards", FOUR, late)


def test_a_rank_with_nothing_to_add_brings_the_zero_gradient() -> None:
    async def two(model: Model) -> Model:
        model.weights[0], _ = model.load_weights(0)
        model.weights[1], model.opt_states[0] = model.load_adapter(0)
        model.grad_weights[0] = model.fake_grad(0, [])
        if model.rank == 0:
            model.activations[0] = model.get_activation([0])
            out = model.forward(0, model.activations[0], model.weights[0], adapter=model.weights[1])
            operands = model.activations[0], model.loss(out), model.weights[0]
            model.grad_weights[0], _ = model.backward(0, *operands, adapter=model.weights[1])
        total = await model.allreduce(model.grad_weights[0], 0)
        assert total == WeightGrad(0, 1, [0], 1, adapter=True)
        model.weights[1], model.opt_states[0] = model.update(0, total, model.weights[1], model.opt_states[0])
        model.set_final_weight(0, model.weights[1])
        return model

    run(two, ranks=2, layers=1, train="adapters").check()


# -- labels -------------------------------------------------------------------------------------------------------


def test_labels_say_adapter_only_where_it_is_true() -> None:
    shards = {"shards": {1}, "total": 2}
    for kind, labels, shown in (
        (Weight, {"step": 1}, "Weight(layer=0, layers=2, step=1, shards={1}, total=2)"),
        (OptState, {"step": 0}, "OptState(layer=0, layers=2, step=0, shards={1}, total=2)"),
        (
            WeightGrad,
            {"batches": {1}, "total_batches": 4},
            "WeightGrad(layer=0, layers=2, batches={1}, total_batches=4, shards={1}, total=2)",
        ),
    ):
        plain, other = (kind(0, 2, **labels, **shards, **more) for more in ({}, {"adapter": True}))
        assert repr(plain) == shown and repr(other) == shown.replace(")", ", adapter=True)")
        assert (plain.adapter, other.adapter) == (False, True)
        assert plain != other and plain == kind(0, 2, **labels, **shards, adapter=False)
        for one in (plain, other):
            assert pickle.loads(pickle.dumps(one)) == one
            assert one.shard(0, 2).adapter is one.adapter
    with refuses("adapter is True or False"):
        Weight(0, 2, 0, adapter=1)  # type: ignore[arg-type]
    # Pieces by hand stay as they are written, as before.
    assert repr(Weight(0, 2, 0, {0, 1}, 4)) == "Weight(layer=0, layers=2, step=0, shards={0, 1}, total=4)"


def test_adapters_and_weights_are_not_parts_of_one_thing() -> None:
    model = Model()
    weight, adapter = model.load_weights(0, 0, 2)[0], model.load_adapter(0, 1, 2)[0]
    with refuses("not parts of one tensor"):
        weight.combine(adapter)
    with refuses("adapter and that of a weight do not add up"):
        WeightGrad(0, 2, [0], 2) + WeightGrad(0, 2, [1], 2, adapter=True)
    twice = "a shard would be counted more than once"
    with refuses(twice):
        Weight(0, 2, 0, {1}, 2, adapter=True).combine(Weight(0, 2, 0, {1}, 2, adapter=True))


# -- what is refused ------------------------------------------------------------------------------------------------


def adapter_of(key: Any) -> Change:
    return lambda model, layer: {"adapter": model.weights[key(layer)]}


REFUSED: dict[str, tuple[Any, str]] = {
    "the weight as its adapter": (alone(forward=adapter_of(lambda layer: layer)), "own weight, and not an adapter"),
    "another layer's": (alone(forward=adapter_of(lambda layer: ("adapter", 0))), "forward.*adapter is that of layer 0"),
    "another layer's in backward": (
        alone(backward=adapter_of(lambda layer: ("adapter", 0))),
        "backward.*layer 2.*the adapter is that of layer 0",
    ),
    "in pieces": (
        alone(forward=lambda model, layer: {"adapter": model.weights["adapter", layer], "partial": True}),
        "in pieces takes no adapter",
    ),
    "a piece of it": (
        alone(forward=lambda model, layer: {"adapter": model.weights["adapter", layer].shard(0, 2)}),
        "the adapter is not complete",
    ),
    "something else": (alone(forward=lambda model, layer: {"adapter": 3}), "adapter must be a Weight"),
    "a gradient of the weight": (alone(backward=lambda model, layer: {}), "updated with its own gradient and state"),
    "an update of the weight": (
        alone(update=lambda model, layer, grad: (grad, model.weights[layer], model.opt_states[layer])),
        "updated with its own gradient and state.*weight of a weight",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    program, says = REFUSED[name]
    with refuses(says):
        run(program, **ALONE)


def test_an_adapter_is_no_weight_and_only_it_is_trained() -> None:
    async def in_its_place(model: Model) -> None:
        model.weights[0], _ = model.load_adapter(0)
        model.activations[0] = model.get_activation([0])
        model.forward(0, model.activations[0], model.weights[0])

    with refuses("that is an adapter, and not the layer's own weight"):
        run(in_its_place)

    async def updated_before(model: Model) -> None:
        model.weights[0], (model.weights[1], model.opt_states[1]) = model.load_weights(0)[0], model.load_adapter(0)
        model.activations[0] = model.get_activation([0])
        out = model.forward(0, model.activations[0], model.weights[0], adapter=model.weights[1])
        operands = model.activations[0], model.loss(out), model.weights[0]
        grad, _ = model.backward(0, *operands, adapter=model.weights[1])
        model.weights[1], model.opt_states[1] = model.update(0, grad, model.weights[1], model.opt_states[1])
        model.forward(0, model.activations[0], model.weights[0], adapter=model.weights[1])

    with refuses("the adapter has been updated already"):
        run(updated_before, layers=1)


def test_a_piece_is_loaded_once_and_an_adapter_is_another_than_its_weight() -> None:
    async def twice(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.weights[1], model.opt_states[1] = model.load_adapter(0)
        model.weights[2], _ = model.load_adapter(0, 1, 2)

    with refuses("has taken that piece of the Weight from load_adapter before"):
        run(twice)


@pytest.mark.parametrize("call", ["load_adapter(2)", "load_adapter(0, 2, 2)", "load_adapter(0, 0, 0)"])
def test_there_are_only_so_many_pieces(call: str) -> None:
    with refuses("load_adapter"):
        eval(f"model.{call}", {"model": Model()})


@pytest.mark.parametrize("verb", ["backward_input", "backward_weight"])
def test_the_halves_take_none(verb: str) -> None:
    async def program(model: Model) -> None:
        getattr(model, verb)(0, None, None, None, adapter=None)

    with refuses("adapter"):
        run(program)


# -- what is wrong by its value alone ---------------------------------------------------------------------------------


WRONG: dict[str, Any] = {
    **{name: program for name, (program, _) in REFUSED.items() if name not in ("something else", "in pieces")},
    "no adapter in forward": alone(forward=lambda model, layer: {}),
    "no adapter in one forward": alone(
        forward=lambda model, layer: {} if layer == 1 else {"adapter": model.weights["adapter", layer]}
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_values_alone_find_it(name: str) -> None:
    with refuses("wrong value|has been changed|no weight of this layer|is an adapter"):
        run(WRONG[name], **ALONE, _strict=False).check()


# -- the check --------------------------------------------------------------------------------------------------------


def test_what_is_trained_has_to_be_said() -> None:
    done = run(alone(), **ALONE)
    assert check_finals(done.final_states, "adapters") is False
    with refuses("that is an adapter"):
        run(alone(), layers=3, batches=2).check()
    with pytest.raises(PuzzleError, match="there is no such train"):
        run(alone(), train="everything")
    with pytest.raises(PuzzleError, match="there is no such train"):
        Model.check(done.models, train="nothing")


def test_plain_training_is_not_that_of_adapters() -> None:
    run(basic, layers=1).check()
    with refuses("a frozen weight has been changed"):
        run(basic, layers=1, train="adapters").check()

    def forgotten(model: Model) -> Model:
        basic(model)
        del model.weights[0]
        return model

    with refuses("that is the layer's own weight, and not an adapter"):
        run(forgotten, layers=1, train="adapters").check()


def test_by_hand_too(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(dist=Dist(1), layers=2, batches=1)
    asyncio.run(alone()(model))
    Model.check([model], train="adapters")
    assert capsys.readouterr().out == "Correct!\n"
    with refuses("that is an adapter"):
        Model.check([model])


def test_frozen_weights_begin_and_end_where_the_layout_says() -> None:
    size = FOUR

    def with_end(change: Change) -> Run:
        async def program(model: Model) -> Model:
            await lora(model)
            return change(model) or model

        return run(program, **size)

    check_layout("frozen_shards", size, run(lora, **size).final_states)
    for change, says in (
        (lambda model: model.weights.pop(3) and None, "ends without the frozen weight of layer 3"),
        (lambda model: model.opt_states.pop(2) and None, "ends without the updated adapter state of layer 2"),
    ):
        with refuses(says):
            check_layout("frozen_shards", size, with_end(change).final_states)

    async def with_states(model: Model) -> Model:
        model.weights["w"], model.opt_states["w"] = model.load_weights(0, model.rank, model.RANKS)
        return model

    with refuses("begins with the optimizer state of the frozen weight of layer 0"):
        check_layout("frozen_shards", size, run(with_states, **size).final_states)


# -- who may use them -------------------------------------------------------------------------------------------------


def test_other_puzzles_refuse_the_word() -> None:
    assert ADAPTER in grantable()
    verdict = grade(alone(), puzzle="basic")
    assert not verdict.right and "must be solved without `adapter`" in verdict.message
    words = {event.kind: event.words for event in run(alone(), **ALONE).events}
    assert words == dict.fromkeys(("load_adapter", "forward", "backward", "update"), (ADAPTER,)) | dict.fromkeys(
        ("load_weights", "get_activation", "loss", "end"), ()
    )
    grants = puzzles()["basic"]._replace(words=(ADAPTER,))
    check_features(run(alone(), **ALONE), grants)


# -- real tensors -----------------------------------------------------------------------------------------------------


@needs_torch
def test_the_reference_trains_low_rank_factors_and_leaves_the_weight() -> None:
    import torch

    from lib.engines import data
    from lib.engines.layers import merged, parameters
    from lib.engines.numbers import Numbers
    from lib.engines.reference import reference
    from lib.running.workload import Workload

    for kind in ("mlp", "block"):
        work = Workload(2, 2, kind, "float64", 32, 5, train="adapters")
        flat, adapter = data.weight(work, 0), data.adapter(work, 0)
        assert len(adapter) == Numbers(work).of_adapter == len(reference(work)[0]) < parameters(kind, 32)
        added = merged(kind, 32, flat, adapter) - flat
        assert added.abs().max() > 0.01
        wide = added[: 16 * 64].view(16, 64) if kind == "mlp" else added[32 : 32 + 32 * 96].view(32, 96)
        assert torch.linalg.matrix_rank(wide) == 2
        if kind == "block":
            assert not added[:32].any()  # gains have no adapter


@needs_torch
@pytest.mark.parametrize("kind", ["mlp", "block"])
def test_the_gradient_of_a_frozen_weight_is_not_even_computed(kind: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from lib.engines import data
    from lib.engines.layers import apply as apply_layer
    from lib.engines.layers import merged
    from lib.engines.numbers import Numbers
    from lib.running.workload import Workload

    work = Workload(1, 1, kind, "float64", 64, 8, train="adapters")
    weight, adapter, x = data.weight(work, 0), data.adapter(work, 0), data.inputs(work, 0)
    both = [apply_layer(kind, x, weight, adapter=adapter), apply_layer(kind, x, merged(kind, 64, weight, adapter))]
    assert torch.allclose(*both, rtol=1e-12, atol=1e-12)
    numbers, done = Numbers(work), {}
    labels = Labels("Weight", 0, 1)
    frozen, inp = numbers.weight(labels), numbers.inputs(frozenset({0}))
    beside = numbers.weight(labels.changed(extra=OF_ADAPTER))
    for name, given in (("all", frozen), ("adapter", numbers.adapted(frozen, beside))):
        out, saved = numbers.keeping(inp, given, "all")
        with FlopCounterMode(display=False) as counter:
            numbers.backward(inp, numbers.loss(out), given, saved)
        done[name] = counter.get_total_flops()
    assert 0.5 <= done["adapter"] / done["all"] < 0.8  # a half, and the thin products


@needs_torch
@pytest.mark.parametrize("name", ["no adapter in one forward", "another layer's in backward"])
def test_wrong_adapters_are_wrong_as_numbers(name: str) -> None:
    done: Any = run(WRONG[name], **ALONE, engine="local", dtype="float64", hidden=16, length=4, _strict=False)
    assert done.agreement.relative > 1e-3


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_pictures_and_exports_say_adapter() -> None:
    done = run(lora, **FOUR)
    picture = draw(done)._repr_html_()
    assert "with the layer&#x27;s adapter; its own weight is frozen" in picture or "layer's adapter" in picture
    assert '"adapter": true' in perfetto(done) or '"adapter":true' in perfetto(done)
    model = done.models[0]
    shown = [draw_tensor(one)._repr_html_() for one in (model.weights["adapter", 0], model.opt_states[0])]
    shown.append(draw_tensor(WeightGrad(0, 2, [1], 4, adapter=True))._repr_html_())
    for html, name in zip(shown, ("adapter of layer 0", "adapter state", "adapter gradient"), strict=True):
        assert name in html
    assert "adapter" not in draw_tensor(model.weights[0])._repr_html_()


# -- on a cluster -----------------------------------------------------------------------------------------------------


def test_prices_of_a_cluster_have_a_rank_of_adapters() -> None:
    model, gpu = presets.LLAMA_2_7B, presets.A100_MEGATRON
    assert model.adapter_parameters(16) == 39_976_960  # as people who train Llama 7B so read it on their screens
    cost = gpu.cost(model, adapter_rank=16)
    assert cost.backward_input < 0.62 * cost.backward
    with refuses("does not say of which rank adapters are"):
        run(alone(), layers=2, train="adapters", cost=gpu.cost(replace(model, layers=2)))


# -- at a shell, and beside the target ------------------------------------------------------------------------------


def test_what_is_trained_can_be_said_at_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (Path(__file__).parent.parent / "solutions" / "p23_lora.py").read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(source.replace("def lora(", "def other("), encoding="utf-8")
    size = ["--ranks", "2", "--layers", "2", "--batches", "2"]
    assert shell.main(["run", f"{tmp_path / 'mine.py'}:other", *size]) == 1
    assert "that is an adapter" in capsys.readouterr().err
    assert shell.main(["run", f"{tmp_path / 'mine.py'}:other", *size, "--train", "adapters"]) == 0
    (tmp_path / "lora.py").write_text(source, encoding="utf-8")  # the puzzle of that name says it
    assert shell.main(["run", f"{tmp_path / 'lora.py'}:lora"]) == 0
    assert "time 17.4 ticks" in capsys.readouterr().out


def test_a_target_is_for_what_is_trained() -> None:
    puzzle = puzzles()["lora"]
    done = run(lora, **puzzle.size)
    done.name = "lora"
    assert "17.4" in beside_target(done)._repr_html_()
    other = run(lora, **(puzzle.size | {"train": "weights"}))
    other.name = "lora"
    with pytest.raises(PuzzleError, match="another size") as refused:
        beside_target(other)
    assert "train='adapters'" in refused.value.expected and "train" not in refused.value.got
