"""Puzzle 10, ZeRO-2: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed
from .p09_zero1 import HALF_BY_HALF, WHOLE_UPDATE

SUM = "            grad = await model.scatterreduce(grad, layer)\n"
ADD = "model.grad_weights[layer] = so_far + grad if so_far else grad"
PIECE = "        piece = model.weights[layer].shard(model.rank, model.RANKS)\n"
MINE = "range(model.rank, model.BATCHES, model.RANKS)"
GATHER = "model.weights[layer] = await model.allgather(piece, layer)"

HONEST = [
    changed("zero2", "updates in halves", (WHOLE_UPDATE, HALF_BY_HALF), base="zero2_overlap"),
    changed("zero2", "sums and gathers under other work", base="zero2_overlap"),
    changed("zero2", "neighbors take neighboring micro-batches",
            (MINE, "range(model.rank * model.BATCHES // model.RANKS, (model.rank + 1) * model.BATCHES // model.RANKS)")),
    changed("zero2", "all gathers started before the first is awaited", ("    for layer in range(model.LAYERS):\n" + PIECE, "    calls = {}\n    for layer in reversed(range(model.LAYERS)):\n" + PIECE),
            ("        " + GATHER + "\n", "        calls[layer] = model.allgather(piece, layer)\n    for layer, call in calls.items():\n        model.weights[layer] = await call\n")),
    changed("zero2", "from the last layer down", ("    for layer in range(model.LAYERS):\n" + PIECE, "    for layer in reversed(range(model.LAYERS)):\n" + PIECE)),
    changed("zero2", "pieces kept by micro-batch, and added at once",
            ("            so_far = model.grad_weights.get(layer)\n            " + ADD, "            model.grad_weights[layer, mb] = grad"),
            ("    for layer in range(model.LAYERS):\n" + PIECE,
             "    for layer in range(model.LAYERS):\n        for mb in mine:\n            grad = model.grad_weights.pop((layer, mb))\n"
             "            model.grad_weights[layer] = model.grad_weights[layer] + grad if mb != mine[0] else grad\n" + PIECE)),
    changed("zero2", "sums awaited together", (SUM, "            sums[layer] = model.scatterreduce(grad, layer)\n            grad = await sums.pop(layer)\n"),
            ("    mine = ", "    sums = {}\n    mine = ")),
]  # fmt: skip

MISTAKES = [
    changed("zero2", "ZeRO-1: whole gradients", base="zero1"),
    changed("zero2", "all-reduced and cut", (SUM, "            grad = (await model.allreduce(grad, layer)).shard(model.rank, model.RANKS)\n")),
    changed("zero2", "data parallel", base="ddp_twice"),
    changed("zero2", "replaced, not added", (ADD, "model.grad_weights[layer] = grad")),
    changed("zero2", "the same micro-batches on all", (MINE, "range(2)")),
    changed("zero2", "never gathered", (GATHER, "model.weights[layer] = piece")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("zero2", "the second half made up", (SUM, SUM + "            grad = grad + model.fake_grad(layer, [(mb + 1) % model.BATCHES]).shard(model.rank, model.RANKS)\n")),
    changed("zero2", "one rank's final weight for all", ("model.set_final_weight(layer, model.weights[layer])", "model.set_final_weight(layer, model.weights[layer]) if model.rank == 0 else None")),
]  # fmt: skip
