"""The life rule, memory, storage and loading."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from weakref import ref

import pytest

from lib import Activation, Model, PuzzleError, Weight, WeightGrad, run
from lib.machine.rank_state import RankState
from solutions.p04_fsdp import fsdp

WEIGHT, ACTIVATION = 512 * 512, 512 * 256


def ready() -> Model:
    model = Model(layers=2, batches=2)
    for layer in range(2):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation([0])
    return model


def test_what_is_not_stored_is_gone_and_the_message_says_when() -> None:
    model = ready()
    out = model.forward(0, model.activations[0], model.weights[0])
    model.forward(0, model.activations[0], model.weights[0])
    with pytest.raises(PuzzleError, match=r"was not stored when rank 0 issued forward\(layer 0\)"):
        model.forward(1, out, model.weights[1])
    with pytest.raises(PuzzleError, match="was not stored"):
        model.activations[1] = out


@pytest.mark.parametrize("between", [0, 2])
def test_it_is_an_operation_that_ends_a_life_and_the_next_one(between: int) -> None:
    """Taking an input, or loading, ends none and is not named."""
    model = ready()
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    out = model.forward(0, model.activations[0], model.weights[0])
    for _ in range(between):
        model.activations["more"] = model.get_activation([0])
    model.forward(1, model.activations[1], model.weights[1])
    model.forward(0, model.activations[0], model.weights[0])
    model.forward(0, model.activations[0], model.weights[0])
    with pytest.raises(PuzzleError, match=r"was not stored when rank 0 issued forward\(layer 1\)"):
        model.activations[2] = out


def test_an_operand_that_is_not_stored_is_gone_after_its_operation() -> None:
    model = ready()
    inp = model.activations.pop(0)
    model.activations[1] = model.forward(0, inp, model.weights[0])
    with pytest.raises(PuzzleError, match="was not stored"):
        model.activations[0] = inp


def test_a_refused_operation_ends_no_life() -> None:
    model = ready()
    out = model.forward(0, model.activations[0], model.weights[0])
    with pytest.raises(PuzzleError, match="layer 0"):
        model.forward(1, out, model.weights[0])
    model.activations[1] = model.forward(1, out, model.weights[1])


def test_dictionaries_do_what_dicts_do() -> None:
    model = ready()
    size = model.memory()
    store = model.activations
    store["again"] = store[0]
    assert model.memory() == size + ACTIVATION
    assert store.pop("again") is store[0]
    assert store.pop("missing", None) is None
    store.update({"b": store[0]})
    store |= {"c": store[0]}
    assert store.setdefault("c") is store[0]
    assert store.popitem()[0] == "c"
    assert set(store.copy()) == {0, "b"}
    with pytest.raises(KeyError, match="nothing is stored"):
        store["no"]
    with pytest.raises(PuzzleError, match="only tensors"):
        store["x"] = 3
    store.clear()
    assert model.memory() == size - ACTIVATION
    del model.weights[0]
    assert model.memory() == size - ACTIVATION - WEIGHT


def test_a_caught_key_error_is_no_mistake() -> None:
    def program(model: Model) -> None:
        try:
            model.weights["no"]
        except KeyError:
            model.weights[0], _ = model.load_weights(0)

    run(program)


def test_each_piece_is_loaded_once() -> None:
    def twice(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        del model.weights[0]
        model.weights[0], _ = model.load_weights(0)

    def dropped(model: Model) -> None:
        model.load_weights(0)
        model.weights[0], _ = model.load_weights(0)
        _, state = model.load_weights(1)
        model.opt_states[0] = state.shard(0, 2)
        _, state = model.load_weights(1)
        model.opt_states[1] = state.shard(1, 2)

    def overlapping(model: Model) -> None:
        for shard, total in ((0, 4), (3, 4), (1, 2)):
            model.weights[shard, total], _ = model.load_weights(0, shard, total)

    run(dropped)
    for program in (twice, overlapping):
        with pytest.raises(PuzzleError, match="load_weights before"):
            run(program)


def test_made_up_tensors_are_refused_in_a_run() -> None:
    def by_hand(model: Model) -> None:
        model.weights[0] = Weight(0, 2, 0)

    def copied(model: Model) -> None:
        import copy

        weight, _ = model.load_weights(0)
        model.weights[0] = copy.copy(weight)

    for program in (by_hand, copied):
        with pytest.raises(PuzzleError, match="made up"):
            run(program)


def test_what_was_never_counted_cannot_be_taken_out() -> None:
    def behind(model: Model) -> None:
        weight, _ = model.load_weights(0)
        dict.__setitem__(model.weights, 0, weight)
        model.weights.pop(0)

    with pytest.raises(PuzzleError, match="was never stored"):
        run(behind)


def test_tensors_are_frozen() -> None:
    grad = WeightGrad(0, 2, [0], 4)
    with pytest.raises(PuzzleError, match="frozen"):
        grad.batches = frozenset(range(4))  # type: ignore[misc]
    with pytest.raises(AttributeError):
        object.__setattr__(grad, "batches", frozenset(range(4)))
    assert Activation(0, 2, [1], 4).memory() == ACTIVATION


def test_what_came_to_hand_before_anything_was_done_counts_and_goes_as_all_else() -> None:
    used, unused = Model(layers=2, batches=2), Model(layers=2, batches=2)
    grads = [one.fake_grad(0, [0]) for one in (used, unused)]
    for one, grad in zip((used, unused), grads, strict=True):
        one.allreduce(grad if one is used else one.fake_grad(1, []), 0 if one is used else 1)
        assert one.log[0].memory == (WEIGHT if one is used else 0)
        one.loss(
            one.forward(1, one.forward(0, one.get_activation([0]), one.load_weights(0)[0]), one.load_weights(1)[0])
        )
        with pytest.raises(
            PuzzleError, match=rf"was not stored when rank 0 issued allreduce\(layer {int(one is unused)}\)"
        ):
            one.grad_weights[0] = grad


def test_what_was_in_hand_at_a_receive_is_gone_by_a_receive_of_whatever_came() -> None:
    """When it was issued nobody knew what would come, so no layer is named."""

    async def program(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, model.load_weights(1)[0])
        else:
            weight, _ = model.load_weights(0)
            model.weights[1] = await model.receive()
            model.weights[0] = weight

    with pytest.raises(PuzzleError, match=r"was not stored when rank 1 issued receive$|issued receive\n") as raised:
        run(program, ranks=2, layers=2)
    assert (raised.value.place.rank, raised.value.place.operation) == (1, "storing it")


def test_what_another_coroutine_has_used_up_is_gone() -> None:
    async def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        made, used = asyncio.get_running_loop().create_future(), asyncio.Event()

        async def make() -> None:
            made.set_result(model.forward(0, model.activations[0], model.weights[0]))
            await used.wait()
            model.activations[1] = made.result()

        async def use() -> None:
            model.grad_activations[1] = model.loss(await made)
            used.set()

        await asyncio.gather(make(), use())

    with pytest.raises(PuzzleError, match=r"was not stored when rank 0 issued loss\(layer 1\)"):
        run(program, layers=1)


def test_what_a_coroutine_will_use_is_in_memory_while_another_one_works() -> None:
    async def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([0])

        async def uses_later() -> None:
            out = model.forward(0, model.activations[0], model.weights[0])
            await asyncio.sleep(0)
            model.grad_activations[1] = model.loss(out)

        async def works() -> None:
            model.activations[1] = model.forward(0, model.activations[0], model.weights[0])

        await asyncio.gather(uses_later(), works())

    held = [event.held[3] for event in run(program, layers=1).events if event.stream == "compute"]
    assert held == [ACTIVATION, 2 * ACTIVATION, 3 * ACTIVATION]


def test_a_run_leaves_next_to_nothing_to_the_collector() -> None:
    """Circles of objects live until the collector comes, which a run holds off: they would cost memory, and time."""

    def left(layers: int) -> tuple[int, int]:
        gc.collect()
        result = run(fsdp, ranks=4, layers=layers, batches=4)
        return gc.collect(), len(result.events)

    gc.disable()
    gc.freeze()  # what other tests have left
    try:
        (few, events), (many, more) = left(8), left(40)
    finally:
        gc.unfreeze()
        gc.enable()
    assert many - few < 0.1 * (more - events)


async def gathers(model: Model) -> None:
    model.weights[0] = await model.allgather(model.weights[0], 0)


def works(model: Model) -> None:
    if 0 not in model.activations:
        model.activations[0] = model.get_activation([0])
    model.forward(0, model.activations[0], model.weights[0])


def loads_all(model: Model) -> None:
    model.weights[0], model.opt_states[0] = model.load_weights(0)


def loads_weight(model: Model) -> None:
    model.weights[0], _ = model.load_weights(0)


def loads_state(model: Model) -> None:
    _, model.opt_states[0] = model.load_weights(0)


def loads_half(model: Model) -> None:
    _, model.opt_states["half"] = model.load_weights(0, 0, 2)


def loads_other_half(model: Model) -> None:
    _, model.opt_states["other half"] = model.load_weights(0, 1, 2)


def loads_halves_as_one(model: Model) -> None:
    model.opt_states[0] = model.load_weights(0, 0, 2)[1].combine(model.load_weights(0, 1, 2)[1])


def works_elsewhere(model: Model) -> None:
    model.weights[1], model.opt_states[1] = model.load_weights(1)
    model.loss(model.forward(1, model.forward(0, model.activations[0], model.weights[0]), model.weights[1]))


@pytest.mark.parametrize(
    ("steps", "late"),
    [
        ([loads_all, works], []),
        ([loads_weight, loads_state, works], []),
        ([loads_weight, works, loads_state], ["whole"]),
        ([loads_weight, gathers, loads_state], ["whole"]),
        ([loads_weight, works, loads_halves_as_one], ["part", "part"]),
        ([loads_weight, loads_half, works, loads_other_half], ["part"]),
        ([loads_weight, works, loads_half, loads_other_half], ["part", "part"]),
        ([loads_all, works, works, works_elsewhere], []),
    ],
)
def test_a_state_that_comes_after_the_first_work_on_its_layer_is_late(steps: list[Any], late: list[str]) -> None:
    """Work is what carries micro-batches through the layer, or brings its parts together. Layer 1 is another matter."""

    async def program(model: Model) -> None:
        for step in steps:
            if (waits := step(model)) is not None:
                await waits

    [state] = run(program, layers=2, batches=1).final_states
    assert [("part" if labels.total > 1 else "whole") for labels in state.late] == late
    assert {(labels.kind, labels.layer) for labels in state.late} <= {("OptState", 0)}


async def failing_with_an_error(model: Model) -> Model:
    """It stops in the middle."""
    await fsdp(model)
    model.forward(0, None, None)  # type: ignore[arg-type]
    return model


def ranks_known() -> int:
    """How many ranks of machines there are among what is not older than the test."""
    return sum(type(one) is RankState for one in gc.get_objects())


@pytest.fixture
def nothing_older() -> Iterator[None]:
    """The collector looks at what the test makes, and at nothing that others have left."""
    gc.freeze()
    yield
    gc.unfreeze()


class Something:
    """Something that can be watched."""


@pytest.mark.usefixtures("nothing_older")
def test_runs_that_nobody_holds_are_given_back() -> None:
    """At once, and with no collector, which is told that what a run has made is old: a notebook in which thousands of
    runs are made does not grow."""
    gc.disable()
    try:
        for _ in range(3):
            run(fsdp, ranks=4, layers=4, batches=4)
        assert ranks_known() == 0
    finally:
        gc.enable()


@pytest.mark.usefixtures("nothing_older")
def test_runs_that_failed_are_found_by_the_collector_s_next_look_at_what_is_young() -> None:
    for _ in range(3):
        with suppress(PuzzleError):
            run(failing_with_an_error, ranks=4, layers=4, batches=4)
    gc.collect(1)
    assert ranks_known() == 0


@pytest.mark.usefixtures("nothing_older")
def test_a_collector_that_was_on_is_on_afterwards_and_finds_what_is_garbage_elsewhere() -> None:
    circle: list[Any] = [Something()]
    circle.append(circle)
    watched = ref(circle[0])
    del circle
    run(fsdp, ranks=4, layers=4, batches=4)
    assert gc.isenabled()
    gc.collect()
    assert watched() is None
