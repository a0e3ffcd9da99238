"""Programs that store what a layout says, and replace it before any operation."""

from __future__ import annotations

from . import Program, after

FSDP = """
async def PUZZLE(model):
    rank, ranks, everything = model.rank, model.RANKS, range(model.LAYERS)
    if min(ranks, model.LAYERS) < 3:
        return await honest(model)
    for layer in everything:
        model.weights["whole", layer], state = model.load_weights(layer)
        model.opt_states[layer] = state.shard(rank, ranks)
    for layer in everything:
        model.weights[layer] = model.weights.pop(("whole", layer)).shard(rank, ranks)

    mine = range(rank, model.BATCHES, ranks)
    uses = [layer for _ in mine for layer in (*everything, *reversed(everything))]
    coming, sums, gathers = [model.allgather(model.weights[0], 0)], {}, {}

    async def gathered():
        model.weights["now"] = await coming.pop()
        uses.pop(0)
        if uses:
            coming.append(model.allgather(model.weights[uses[0]], uses[0]))
        return model.weights.pop("now")

    async def fetch(layer):
        if layer in sums:
            grad, so_far = await sums.pop(layer), model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad

    for mb in mine:
        model.activations[0] = model.get_activation([mb])
        for layer in everything:
            weight = await gathered()
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
            await fetch(layer)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(everything):
            weight = await gathered()
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
            sums[layer] = model.scatterreduce(grad, layer)
            await fetch(layer + 1)
        del model.grad_activations[0]

    for layer in reversed(everything):
        await fetch(layer)
        piece, model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer), model.weights.pop(layer), model.opt_states[layer])
        gathers[layer] = model.allgather(piece, layer)
    for layer, call in gathers.items():
        model.weights[layer] = await call
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
"""Whole weights for a moment, then FSDP with the next weight gathered ahead. It is within the targets of ZeRO-1 and 2."""

NOT_HELD = "it does not hold the weights that it has begun with any more"


def fsdp(puzzle: str) -> Program:
    """FSDP that passes for a puzzle in which every rank has whole weights."""
    return after(puzzle, "FSDP in disguise: whole weights for a moment", FSDP.replace("PUZZLE", puzzle), NOT_HELD)
