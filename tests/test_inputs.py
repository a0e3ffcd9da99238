"""The input of a micro-batch is taken once by each rank, as pieces of weights are."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, PuzzleError, run

AGAIN = "before"


def trained(model: Model) -> None:
    model.weights[0], model.opt_states[0] = model.load_weights(0)


def stored_twice(model: Model) -> None:
    model.activations["a"] = model.get_activation([2])
    model.activations["b"] = model.get_activation([2])


def read_again_for_backward(model: Model) -> None:
    trained(model)
    model.grad_activations[1] = model.loss(model.forward(0, model.get_activation([2]), model.weights[0]))
    model.backward(0, model.get_activation([2]), model.grad_activations[1], model.weights[0])


def among_others(model: Model) -> None:
    model.activations["a"] = model.get_activation([1, 2])
    model.activations["b"] = model.get_activation([2, 3])


def slices_of_two(model: Model) -> None:
    model.activations["a"] = model.get_activation([2]).shard(0, 2)
    model.activations["b"] = model.get_activation([2]).shard(0, 3)


def a_slice_joined(model: Model) -> None:
    model.activations["a"] = model.get_activation([2]).shard(0, 2)
    model.activations["b"] = model.get_activation([2]).shard(1, 2).combine(model.get_activation([2]).shard(0, 2))


async def sent_and_stored(model: Model) -> None:
    if model.rank == 0:
        await model.pass_to(1, model.get_activation([2]))
        model.activations["b"] = model.get_activation([2])
    else:
        await model.receive()


async def in_two_coroutines(model: Model) -> None:
    async def one(key: str) -> None:
        model.activations[key] = model.get_activation([2])

    await asyncio.gather(one("a"), one("b"))


@pytest.mark.parametrize(
    "fn",
    [
        stored_twice,
        read_again_for_backward,
        among_others,
        slices_of_two,
        a_slice_joined,
        sent_and_stored,
        in_two_coroutines,
    ],
)
def test_an_input_is_taken_once(fn: Callable[[Model], Any]) -> None:
    with pytest.raises(PuzzleError, match=f"taken the input of micro-batch 2 {AGAIN}") as refused:
        run(fn, ranks=2, layers=1, batches=4)
    assert refused.value.place.operation == "get_activation"
    assert "the input of each micro-batch taken once" in refused.value.expected


def looked_at(model: Model) -> None:
    """What is dropped at once is not taken."""
    for _ in range(3):
        model.get_activation([2]).memory()
    model.activations["a"] = model.get_activation([2])


def other_slices(model: Model) -> None:
    for part in range(2):
        model.activations[part] = model.get_activation([2]).shard(part, 2)


def of_one_source(model: Model) -> None:
    inp = model.get_activation([2])
    model.activations["a"], model.activations["b"] = inp, inp.shard(0, 2)


def one_by_one(model: Model) -> None:
    """Each rank may take all of them."""
    for mb in range(model.BATCHES):
        model.activations[mb] = model.get_activation([mb])


async def back_again(model: Model) -> None:
    """What comes back as a message is no input taken twice."""
    if model.rank == 0:
        await model.pass_to(1, model.get_activation([2]))
        model.activations[0] = await model.receive(src=1)
    else:
        model.activations[0] = await model.receive(src=0)
        await model.pass_to(0, model.activations.pop(0))


@pytest.mark.parametrize("fn", [looked_at, other_slices, of_one_source, one_by_one, back_again])
def test_what_is_taken_once_may_be_used_at_will(fn: Callable[[Model], Any]) -> None:
    run(fn, ranks=2, layers=1, batches=4)


def test_an_input_is_nothing_that_a_rank_begins_with() -> None:
    def both(model: Model) -> None:
        trained(model)
        one_by_one(model)

    [state] = run(both, ranks=1, layers=1, batches=4).final_states
    assert {labels.kind for labels in state.began} == {"Weight", "OptState"}
