"""Puzzle 9, ZeRO-1: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

SUM = "            grad = await model.scatterreduce(grad, layer)\n"
PIECE = "            piece = model.weights[layer].shard(model.rank, model.RANKS)\n"
STATE = "model.opt_states[layer] = state.shard(model.rank, model.RANKS)"
MINE = "range(model.rank, model.BATCHES, model.RANKS)"
GATHER = "model.weights[layer] = await model.allgather(piece, layer)"

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


MISTAKES = [
    changed("zero1", "whole states: data parallel", base="ddp_twice"),
    changed("zero1", "all-reduced and cut", (SUM, "            grad = await model.allreduce(grad, layer)\n")),
    changed("zero1", "its own pieces only, never gathered", (GATHER, "model.weights[layer] = piece")),
    changed("zero1", "the old weight gathered", (GATHER, "model.weights[layer] = await model.allgather(model.weights[layer].shard(model.rank, model.RANKS), layer)")),
    changed("zero1", "no state is kept", ("piece, model.opt_states[layer] = model.update(", "piece, _ = model.update(")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("zero1", "weights in shards, too", ("        model.weights[layer], state = model.load_weights(layer)\n        " + STATE,
            "        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)"),
            ("inp, weight = model.activations[layer], model.weights[layer]", "inp, weight = model.activations[layer], await model.allgather(model.weights[layer], layer)")),
    changed("zero1", "a state loaded late", ("    mine = ", "    model.opt_states.clear()\n    mine = "),
            (PIECE, PIECE + "            _, state = model.load_weights(layer)\n            model.opt_states[layer] = state.shard(model.rank, model.RANKS)\n")),
    changed("zero1", "a gradient made up", (SUM, SUM + "            grad = model.fake_grad(layer, range(model.BATCHES))\n")),
]  # fmt: skip
