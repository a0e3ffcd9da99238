"""The check by value: what is wrong fails with the set rules switched off, what is honest passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, PuzzleError, run

SIZE = {"ranks": 4, "layers": 2, "batches": 8, "mesh": {"replica": 2, "shard": 2}}


def hybrid(
    *,
    every_time: bool = False,
    reduce_axis: str = "replica",
    never: bool = False,
    same_data: bool = False,
    stale: bool = False,
    piece: int = 0,
    state: str = "",
) -> Callable[[Model], Any]:
    """Replica-FSDP of two micro-batches a rank, with one thing wrong (or none)."""

    async def program(model: Model) -> None:
        shard, replica = model.axis_index("shard"), model.axis_index("replica")
        for layer in range(model.LAYERS):
            model.weights[layer], opt_state = model.load_weights(layer, shard, 2)
            model.opt_states[layer] = opt_state.shard(replica, 2)
        if state == "other layer":
            model.opt_states[0], model.opt_states[1] = model.opt_states[1], model.opt_states[0]
        if state == "other shard":
            other = model.load_weights(0, 1 - shard, 2)[1]
            model.opt_states[0] = other.shard(replica, 2)
        who = model.axis_index("shard") if same_data else model.rank
        for batch in (2 * who, 2 * who + 1):
            model.activations[0] = model.get_activation([batch])
            for layer in range(model.LAYERS):
                weight = await model.allgather(model.weights[layer], layer, "shard")
                model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
            model.grad_activations[0] = model.loss(model.activations[model.LAYERS])
            for layer in reversed(range(model.LAYERS)):
                weight = await model.allgather(model.weights[layer], layer, "shard")
                grad, model.grad_activations[0] = model.backward(
                    layer, model.activations[layer], model.grad_activations[0], weight
                )
                grad = await model.scatterreduce(grad, layer, "shard")
                model.grad_weights[layer] = model.grad_weights[layer] + grad if layer in model.grad_weights else grad
                if every_time:
                    model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer, "replica")
            if stale and batch % 2 == 0:
                model.weights[1], _ = model.update(1, model.grad_weights[1], model.weights[1], model.opt_states[1])
        for layer in range(model.LAYERS):
            if every_time or never:
                grad = model.grad_weights[layer]
            else:
                grad = await model.allreduce(model.grad_weights[layer], layer, reduce_axis)
            model.grad_weights[layer] = grad.shard((replica + piece) % 2, 2)
            weight, model.opt_states[layer] = model.update(
                layer,
                model.grad_weights[layer],
                model.weights[layer].shard(replica, 2),
                model.opt_states[layer],
            )
            model.weights[layer] = await model.allgather(weight, layer, "replica")
            model.set_final_weight(layer, model.weights[layer])

    return program


def test_the_honest_one_passes() -> None:
    run(hybrid(), **SIZE).check()
    run(hybrid(), **SIZE, _strict=False).check()


WRONG = {
    "running sum reduced every micro-batch": {"every_time": True},
    "reduced over the wrong axis": {"reduce_axis": "shard"},
    "never reduced across replicas": {"never": True},
    "replicas read the same micro-batches": {"same_data": True},
    "forward with an updated weight": {"stale": True},
    "gradient piece of the wrong index": {"piece": 1},
    "state of another layer": {"state": "other layer"},
    "state of another shard": {"state": "other shard"},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_wrong_by_value_alone(wrong: dict[str, Any]) -> None:
    result = run(hybrid(**wrong), **SIZE, _strict=False)
    with pytest.raises(PuzzleError, match="wrong value"):
        result.check()


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_wrong_by_the_rules_too(wrong: dict[str, Any]) -> None:
    with pytest.raises(PuzzleError):
        run(hybrid(**wrong), **SIZE).check()


def test_honest_reorderings_pass() -> None:
    """Recomputed activations, gradients added in any tree, shards cut and joined in any way."""

    def program(model: Model) -> None:
        for layer in range(model.LAYERS):
            weight, state = model.load_weights(layer)
            model.weights[layer] = weight.shard(1, 2).combine(weight.shard(0, 4).combine(weight.shard(1, 4)))
            model.opt_states[layer] = state
        for batch in (2, 0, 3, 1):
            model.activations[0] = model.get_activation([batch])
            for _ in range(2):  # computed, thrown away, computed again
                for layer in range(model.LAYERS):
                    model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
            model.grad_activations[0] = model.loss(model.activations[model.LAYERS])
            for layer in reversed(range(model.LAYERS)):
                model.grad_weights[layer, batch], model.grad_activations[0] = model.backward(
                    layer, model.activations[layer], model.grad_activations[0], model.weights[layer]
                )
        for layer in range(model.LAYERS):
            parts = [model.grad_weights[layer, batch] for batch in (3, 1, 0, 2)]
            whole = parts[0] + (parts[1] + parts[2]) + parts[3] if layer else sum(parts)
            model.grad_weights[layer] = whole.shard(1, 2).combine(whole.shard(0, 2))
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, model.grad_weights[layer], model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])

    for strict in (True, False):
        run(program, layers=3, batches=4, _strict=strict).check()
