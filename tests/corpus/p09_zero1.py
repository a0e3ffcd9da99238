"""Puzzle 9, ZeRO-1: honest styles, natural mistakes, and ways round the work by the public names alone."""

from __future__ import annotations

from . import changed, whole
from .disguised import fsdp

SUM = "            grad = await model.scatterreduce(grad, layer)\n"
PIECE = "            piece = model.weights[layer].shard(model.rank, model.RANKS)\n"
STATE = "model.opt_states[layer] = state.shard(model.rank, model.RANKS)"
MINE = "range(model.rank, model.BATCHES, model.RANKS)"
GATHER = "model.weights[layer] = await model.allgather(piece, layer)"
LAST = "            if mb != mine[-1]:\n                model.grad_weights[layer] = grad\n                continue\n"

WHOLE_UPDATE = """        piece, model.opt_states[layer] = model.update(
            layer, grad, piece, model.opt_states[layer]
        )
"""
HALF_BY_HALF = """        model.grad_weights[layer], model.weights[layer] = grad, piece
        for half in range(2):
            weight, state = model.weights[layer].shard(half, 2), model.opt_states[layer].shard(half, 2)
            new = model.update(layer, model.grad_weights[layer].shard(half, 2), weight, state)
            model.weights["new", half], model.opt_states["new", half] = new
        del model.grad_weights[layer], model.weights[layer]
        piece = model.weights.pop(("new", 0)).combine(model.weights.pop(("new", 1)))
        model.opt_states[layer] = model.opt_states.pop(("new", 0)).combine(model.opt_states.pop(("new", 1)))
"""

HONEST = [
    changed("zero1", "updates in halves", (WHOLE_UPDATE, HALF_BY_HALF), base="zero1_overlap"),
    changed("zero1", "sums and gathers under other work", base="zero1_overlap"),
    changed("zero1", "neighbors take neighboring micro-batches",
            (MINE, "range(model.rank * model.BATCHES // model.RANKS, (model.rank + 1) * model.BATCHES // model.RANKS)")),
    changed("zero1", "a piece is given back under its own name", (PIECE, PIECE.replace("piece =", "part =")),
            ("layer, grad, piece, model", "layer, grad, part, model")),
    changed("zero1", "a gather awaited one layer later", ("    mine = ", "    ahead = None\n    mine = "),
            (GATHER + "\n            model.set_final_weight(layer, model.weights[layer])\n",
             "if ahead:\n                model.weights[layer + 1] = await ahead\n                model.set_final_weight(layer + 1, model.weights[layer + 1])\n            ahead = model.allgather(piece, layer)\n"),
            ("        del model.grad_activations[0]\n", "        del model.grad_activations[0]\n    model.weights[0] = await ahead\n    model.set_final_weight(0, model.weights[0])\n")),
    changed("zero1", "the answer is handed in at the end", ("            model.set_final_weight(layer, model.weights[layer])\n", ""),
            ("    return model", "    for layer, weight in model.weights.items():\n        model.set_final_weight(layer, weight)\n    return model")),
]  # fmt: skip

BY_LAYER = """
async def zero1(model):
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        model.opt_states[layer] = state.shard(model.rank, model.RANKS)
    mine = range(model.rank, model.BATCHES, model.RANKS)
    for mb in mine:
        model.activations[0, mb] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            model.activations[layer + 1, mb] = model.forward(layer, model.activations[layer, mb], model.weights[layer])
        model.grad_activations[mb] = model.loss(model.activations.pop((model.LAYERS, mb)))
    for layer in reversed(range(model.LAYERS)):
        for mb in mine:
            inp, grad_out = model.activations.pop((layer, mb)), model.grad_activations.pop(mb)
            grad, model.grad_activations[mb] = model.backward(layer, inp, grad_out, model.weights[layer])
            model.grad_weights[layer] = grad if mb == mine[0] else model.grad_weights.pop(layer) + grad
        grad = await model.scatterreduce(model.grad_weights.pop(layer), layer)
        piece = model.weights[layer].shard(model.rank, model.RANKS)
        piece, model.opt_states[layer] = model.update(layer, grad, piece, model.opt_states[layer])
        model.weights[layer] = await model.allgather(piece, layer)
        model.set_final_weight(layer, model.weights[layer])
    return model
"""

MISTAKES = [
    whole("zero1", "both micro-batches forward, and back layer by layer", BY_LAYER, says="it works on micro-batch 0 again, after micro-batch 4"),
    changed("zero1", "whole states: data parallel", base="ddp_twice", says="optimizer state of layer 0"),
    changed("zero1", "all-reduced and cut", (SUM, "            grad = await model.allreduce(grad, layer)\n"), says="over the target: 32.4 ticks"),
    changed("zero1", "reduced in every micro-batch", (LAST, "            pass\n"), says="missing micro-batches"),
    changed("zero1", "the second micro-batch replaces the first", ("grad = model.grad_weights.pop(layer) + grad", "grad = grad"), says="missing micro-batches 0-3"),
    changed("zero1", "only one micro-batch", (MINE, "[model.rank]"), says="missing micro-batches 4-7"),
    changed("zero1", "its own pieces only, never gathered", (GATHER, "model.weights[layer] = piece"), says="ends with the wrong part"),
    changed("zero1", "the old weight gathered", (GATHER, "model.weights[layer] = await model.allgather(model.weights[layer].shard(model.rank, model.RANKS), layer)"), says="after one optimizer step|of different steps"),
    changed("zero1", "the neighbor's piece of the weight", (PIECE, PIECE.replace("model.rank,", "(model.rank + 1) % model.RANKS,")), says="weight and optimizer state hold different shards"),
    changed("zero1", "the neighbor's state", (STATE, STATE.replace("model.rank,", "(model.rank + 1) % model.RANKS,")), says="hold different shards|the updated optimizer state|of the optimizer state"),
    changed("zero1", "the whole weight updated", ("layer, grad, piece, model", "layer, grad, model.weights[layer], model"), says="hold different shards"),
    changed("zero1", "the gradients cut, not summed", (SUM, "            grad = grad.shard(model.rank, model.RANKS)\n"), says="missing micro-batch"),
    changed("zero1", "no state is kept", ("piece, model.opt_states[layer] = model.update(", "piece, _ = model.update("), says="optimizer state"),
    changed("zero1", "whole states for a moment", ("        " + STATE + "\n", '        model.opt_states["whole", layer] = state\n'),
            ("    mine = ", '    for layer in range(model.LAYERS):\n        model.opt_states[layer] = '
             'model.opt_states.pop(("whole", layer)).shard(model.rank, model.RANKS)\n\n    mine = '),
            says="begins with the wrong part of the optimizer state"),
    fsdp("zero1"),
    # -- round the work -------------------------------------------------------------------------------------
    changed("zero1", "weights in shards, too", ("        model.weights[layer], state = model.load_weights(layer)\n        " + STATE,
            "        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)"),
            ("inp, weight = model.activations[layer], model.weights[layer]", "inp, weight = model.activations[layer], await model.allgather(model.weights[layer], layer)"),
            says="begins with the wrong part|the weight is not complete"),
    changed("zero1", "rank 0 updates for all", (PIECE, PIECE + "            if model.rank: piece = model.weights[layer].shard(0, model.RANKS)\n"), says="hold different shards"),
    changed("zero1", "a state loaded late", ("    mine = ", "    model.opt_states.clear()\n    mine = "),
            (PIECE, PIECE + "            _, state = model.load_weights(layer)\n            model.opt_states[layer] = state.shard(model.rank, model.RANKS)\n"),
            says="has taken that piece of the OptState from load_weights before"),
    changed("zero1", "a gradient made up", (SUM, SUM + "            grad = model.fake_grad(layer, range(model.BATCHES))\n"), says="made up"),
]  # fmt: skip
