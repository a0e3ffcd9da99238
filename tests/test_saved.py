"""What forward leaves behind (``keep``, ``Saved``): time, memory, what is refused, and real graphs on the engines."""

import gc
import weakref
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import HIDDEN, LENGTH, Activation, ActivationGrad, Cost, Dist, Model, PuzzleError, Saved, Weight, run
from lib.machine.check import check_finals
from lib.machine.simulator import LocalSimulator
from tests.experts import finish
from tests.marks import needs_torch

A, WEIGHT = HIDDEN * LENGTH, HIDDEN * HIDDEN
COST = Cost(saved_elements=16 * A, saved_selective_elements=6 * A, recompute=1, recompute_selective=0.1)
Keep = Callable[[int], str | None]


def keeping(keep: Keep, *, halves: bool = False, take: Callable[[Model, int], Any] | None = None) -> Any:
    """Plain training that keeps of each layer what ``keep(layer)`` says. ``take(model, layer)``: what backward is given
    of it, if not that of its own layer."""

    async def program(model: Model) -> Model:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            inp, weight = model.activations[layer], model.weights[layer]
            if keep(layer) is None:
                model.activations[layer + 1] = model.forward(layer, inp, weight)
            else:
                out, saved = model.forward(layer, inp, weight, keep=keep(layer))
                model.activations[layer + 1], model.activations[layer, "saved"] = out, saved
        model.grad_activations[0] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            saved = take(model, layer) if take else model.activations.get((layer, "saved"))
            operands = (layer, model.activations[layer], model.grad_activations[0], model.weights[layer], saved)
            if halves:
                model.grad_weights[layer] = model.backward_weight(*operands)
                model.grad_activations[0] = model.backward_input(*operands)
            else:
                model.grad_weights[layer], model.grad_activations[0] = model.backward(*operands)
            del model.activations[layer]
            model.activations.pop((layer, "saved"), None)
        return finish(model)

    return program


GIVEN = {None: 0, "selective": 6, "all": 16}
AGAIN = {None: Fraction(1), "selective": Fraction(1, 10), "all": Fraction(0)}
CHOICES = st.lists(st.sampled_from(list(GIVEN)), min_size=1, max_size=7)


@settings(max_examples=30, deadline=None)
@given(CHOICES, st.booleans(), st.integers(1, 3))
def test_time_and_memory_are_those_of_the_contract(choices: list[str | None], halves: bool, batches: int) -> None:
    layers = len(choices)
    done = run(keeping(choices.__getitem__, halves=halves), layers=layers, batches=batches, cost=COST)
    again = sum(AGAIN[choice] for choice in choices) * (2 if halves else 1)
    assert done.time == float(batches * (2 * layers + again) + Fraction(layers, 2))
    weights = 2 * layers * WEIGHT
    # Backward of a layer: the gradients of those above it, of those up to it input and what was kept, the gradient of
    # its output, and what it makes again. With halves, its own gradient is there when the second one begins.
    samples = [
        weights
        + (layers - 1 - at + halves) * WEIGHT
        + batches * A * (at + 2 + sum(GIVEN[choice] for choice in choices[: at + 1]) + 16 - GIVEN[choices[at]])
        for at in range(layers)
    ]
    loss = weights + batches * A * (layers + 1 + sum(GIVEN[choice] for choice in choices))
    updates = weights + layers * WEIGHT + batches * A
    assert done.memory == max(*samples, loss, updates)


def test_without_keep_nothing_changes() -> None:
    plain = run(keeping(lambda layer: None), layers=3, batches=2)
    same = run(keeping(lambda layer: "all"), layers=3, batches=2)  # at default prices it costs nothing
    assert (plain.time, plain.memory) == (same.time, same.memory)
    assert {event.words for event in plain.events} == {()}
    assert {event.words for event in same.events} == {(), ("keep",), ("saved",)}


def test_a_piece_of_a_layer_leaves_its_share_behind() -> None:
    model = Model(0, Dist(1, cost=COST), layers=1)
    weight, _ = model.load_weights(0, 1, 4)
    out, saved = model.forward(0, model.get_activation([0]), weight, partial=True, keep="all")
    assert repr(saved) == "Saved(layer=0, layers=1, batches={0}, total_batches=1, keep='all', shards={1}, total=4)"
    assert (saved.memory(), out.memory(), model.time) == (4 * A, A, 0.25)


def ended(model: Model) -> tuple[Any, Any, Any]:
    """Run layer 0 of a model by hand: its input, its weight, and what it leaves behind."""
    weight, _ = model.load_weights(0)
    model.weights[0], model.activations[0] = weight, model.get_activation([0])
    _, saved = model.forward(0, model.activations[0], model.weights[0], keep="all")
    return model.activations[0], weight, saved


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda model, saved: model.pass_to(1, saved), "pass_to takes no inner activations"),
        (lambda model, saved: model.allgather(saved, 0), "allgather takes"),
        (lambda model, saved: model.allreduce(saved, 0), "allreduce takes"),
        (lambda model, saved: saved.shard(0, 2), "inner activations are not cut"),
        (lambda model, saved: saved + saved, "a Saved and a Saved do not add up"),
        (lambda model, saved: model.weights.update({0: saved}), "inner activations are not stored in weights"),
        (
            lambda model, saved: model.grad_weights.update({0: saved}),
            "inner activations are not stored in grad_weights",
        ),
        (lambda model, saved: model.forward(0, saved, model.weights[0]), "inp must be an Activation"),
    ],
)
def test_it_stays_where_it_was_made(use: Callable[[Model, Any], object], says: str) -> None:
    model = Model(0, Dist(2), layers=2, batches=2)
    *_, saved = ended(model)
    model.activations["saved"] = saved
    with pytest.raises(PuzzleError, match=says):
        use(model, saved)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Saved(1, 2, {0}, 2), "of another layer"),
        (Saved(0, 2, {1}, 2), "of another micro-batch"),
        (Saved(0, 2, {0}, 2, "all", {0}, 2), "of another piece of the weight"),
        (Activation(0, 2, {0}, 2), "saved must be a Saved"),
    ],
)
@pytest.mark.parametrize("verb", ["backward", "backward_input", "backward_weight"])
def test_that_of_another_is_refused(given: Any, says: str, verb: str) -> None:
    model = Model(0, Dist(1), layers=2, batches=2)
    inp, weight, _ = ended(model)
    with pytest.raises(PuzzleError, match=says) as refused:
        getattr(model, verb)(0, inp, ActivationGrad(0, 2, {0}, 2), weight, given)
    assert refused.value.place.operation == verb


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"keep": "most"}, "'all' or 'selective' or None"),
        ({"keep": True}, "'all' or 'selective' or None"),
        ({"partial": 1}, "True or False"),
        ({"partial": "yes"}, "True or False"),
    ],
)
def test_an_option_has_one_of_its_values(options: dict[str, Any], expected: str) -> None:
    model = Model(0, Dist(1), layers=2)
    with pytest.raises(PuzzleError, match=r"unknown value for (keep|partial)") as refused:
        model.forward(0, Activation(0, 2, {0}, 1), Weight(0, 2, 0), **options)
    assert refused.value.expected == expected


@pytest.mark.parametrize("below", [3, 1])
def test_without_the_rules_the_values_tell(below: int) -> None:
    """Backward is given what the forward of another layer has left behind: of layer 0, or of the one below."""
    take = lambda model, layer: model.activations.get((max(0, layer - below), "saved"))  # noqa: E731
    program = keeping(lambda layer: "all", take=take)
    with pytest.raises(PuzzleError, match="the inner activations are of another layer"):
        run(program, layers=3, cost=COST)
    done = run(program, layers=3, cost=COST, _strict=False)
    with pytest.raises(PuzzleError, match="wrong value"):
        check_finals(done.final_states)


@needs_torch
@pytest.mark.parametrize("layer", ["mlp", "block"])
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real_tensors_agree(layer: str, halves: bool, dtype: str) -> None:
    choices = [None, "selective", "all", "selective"]
    program = keeping(choices.__getitem__, halves=halves)
    done = run(program, layers=4, batches=2, cost=COST, engine="local", layer=layer, dtype=dtype, timeout=None)
    done.check()
    wanted = run(program, layers=4, batches=2, cost=COST)
    assert done.events == wanted.events


@pytest.mark.long
@needs_torch
@pytest.mark.parametrize("layer", [pytest.param("mlp", marks=pytest.mark.slow), "block"])
def test_what_is_kept_is_autograds_graph_and_goes_with_it(layer: str) -> None:
    import torch

    from lib.engines.numbers import Graphs, Numbers
    from lib.engines.pairs import Pairs
    from lib.machine.cost import Shape
    from lib.running.workload import Workload

    kept: dict[str, int] = {}
    for keep in ("all", "selective"):
        values: Any = Pairs(Numbers(Workload(layers=1, layer=layer)), at_once=True)
        simulator = LocalSimulator(Shape.of(1), values=values)
        rank = simulator.open(0, 1, 1)
        weight, _ = simulator.load_weights(rank, 0, 0, 1)
        inp = simulator.get_activation(rank, frozenset({0}))
        sizes: dict[int, int] = {}

        def pack(tensor: Any, sizes: dict[int, int] = sizes) -> Any:
            sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out, saved = simulator.compute(rank, "forward", 0, [inp, weight], {"keep": keep})
        kept[keep] = sum(sizes.values())
        graphs = saved.value.made()
        assert isinstance(graphs, Graphs) and not out.value.made()[0].flat.requires_grad
        lives = weakref.ref(graphs.by_batch[0][1])
        assert lives() is not None
        del graphs, saved, out, values
        simulator.terms = rank = None  # type: ignore[assignment]
        gc.collect()
        assert lives() is None
    assert kept["all"] > kept["selective"] > 0


def test_the_picture_says_what_is_kept_and_what_is_used() -> None:
    from drawing import draw

    drawn = draw(run(keeping(["all", None].__getitem__), layers=2, cost=COST)).svg()
    for said, kind in (("is kept for its backward", "forward"), ("with what forward has kept", "backward")):
        titles = [title for title in drawn.split("<title>") if said in title.split("</title>")[0]]
        assert len(titles) == 1 and f"{kind}, layer 0" in titles[0]
