"""Programs that published set-ups ran and no puzzle asks for."""

from __future__ import annotations

from collections.abc import Awaitable

from lib import Model, WeightGrad


async def fsdp_accumulating(model: Model) -> Model:
    """FSDP with gradient accumulation: each rank trains several micro-batches, one after the other. Each of them
    gathers every weight twice, the next one while this layer computes, and reduces every gradient; the pieces are added
    up."""
    top = model.LAYERS - 1
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    for mb in range(model.rank, model.BATCHES, model.RANKS):
        await _forward(model, mb)
        model.grad_activations[top + 1] = model.loss(model.activations.pop(top + 1))
        await _backward(model)
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def _forward(model: Model, mb: int) -> None:
    """One micro-batch through all layers, each gathered one ahead."""
    model.activations[0] = model.get_activation([mb])
    ahead = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        model.weights["whole"] = await ahead
        if layer + 1 < model.LAYERS:
            ahead = model.allgather(model.weights[layer + 1], layer + 1)
        inp, weight = model.activations[layer], model.weights.pop("whole")
        model.activations[layer + 1] = model.forward(layer, inp, weight)


async def _backward(model: Model) -> None:
    """And back: the sum of a layer's gradient is awaited one turn later, and added to what there is of it."""

    async def add(layer: int) -> None:
        piece = await sums.pop(layer)
        so_far = model.grad_weights.pop(layer, None)
        model.grad_weights[layer] = so_far + piece if so_far else piece

    sums: dict[int, Awaitable[WeightGrad]] = {}
    ahead = model.allgather(model.weights[model.LAYERS - 1], model.LAYERS - 1)
    for layer in reversed(range(model.LAYERS)):
        model.weights["whole"] = await ahead
        if layer > 0:
            ahead = model.allgather(model.weights[layer - 1], layer - 1)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        weight = model.weights.pop("whole")
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        sums[layer] = model.scatterreduce(grad, layer)
        if layer + 1 in sums:
            await add(layer + 1)
    await add(0)
