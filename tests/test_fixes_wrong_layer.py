"""What mistakes are told by which calls are awaited under the key of another layer, added to nothing, called on one rank
or after all backwards, or set under another layer: rows as in ``test_fixes``, in puzzles 10 and 20."""

from __future__ import annotations

import pytest

from tests.corpus import changed, whole
from tests.test_fixes import Row
from tests.test_fixes_awaited import EACH, NODES, PIECES, STEP, SUM, UPDATES, nodes, pieces
from tests.test_fixes_later import check_words

FETCH = "            await fetch(layer + 1)\n", "            await fetch(layer - 1)\n"
NO_FETCH = "        await fetch(layer)\n        grad, piece", "        grad, piece"
ADDED = "D[k] = D[k] + p if k in calls else p"
TRIPLE = '        grad = await model.scatterreduce(grad, layer, axis="shard")\n        grad = await model.allreduce(grad, layer, axis="replica")\n        grad = await model.allgather(grad, layer, axis="shard")\n'  # fmt: skip
UPDATED = "        model.weights[layer], model.opt_states[layer] = model.update("
ALONE = (
    "        if model.rank == 0:\n    "
    + UPDATED
    + "layer, grad, model.weights[layer], model.opt_states[layer])\n        continue\n"
    + UPDATED
)
ALL_GRADIENT = """\
    for k in range(L):
        g = await model.allgather(D.pop(k), k)
        W[k], S[k] = model.update(k, g, W[k], S[k])
        model.set_final_weight(k, W[k])
"""
NEW_FIRST = """\
    for k in range(L):
        W[k], S[k] = model.update(k, D.pop(k), W.pop(k).shard(r, n), S[k])
    new = await asyncio.gather(*[model.allgather(W.pop(k), k) for k in range(L)])
    for k, w in zip(reversed(range(L)), new):
        model.set_final_weight(k, w)
        W[k] = w
"""
PIECE = '        piece = model.weights[layer].shard(model.rank, model.RANKS)\n        piece, model.opt_states[layer] = model.update(\n            layer, model.grad_weights.pop(layer), piece, model.opt_states[layer]\n        )\n        model.weights[layer] = await model.allgather(piece, layer)\n'  # fmt: skip
WHOLE_GRADIENT = (
    "        grad = await model.allgather(model.grad_weights.pop(layer), layer)\n"
    + UPDATED
    + "layer, grad, model.weights[layer], model.opt_states[layer])\n"
)
IN_TURN = "for layer, call in gathers.items():", "for layer, call in zip(range(model.LAYERS), gathers.values()):"
NOT_THERE = "Does a condition leave the others out, such as `if layer in calls` of a layer that is not there yet?"
ALL_BUT_0 = "those of layers 1-5 are not awaited, and of layer 0 it is"
LATE = "Here these calls come after the last backward (line "
SETS = "If a condition decides whether to add, it asks what is in model.grad_weights"
ON_ALL = "Ranks 1-15 have gone on without update(7, ...): every rank makes that sum and that update"
NO_GATHER = "leave out model.allgather of that, and gather the weight that update gives"
ORDER = "allgather was called for layer {} first and for layer {} last, and a list of what they give has this order"
CALLS = "    calls = {}\n"
PIECES_DO, WAS_CUT = (
    "leave out that gather: to add up, pieces are enough",
    "and only then cut this layer, model.weights[",
)
WENT, ONE = (
    "it went, or was cut, after backward(layer 5) of micro-batch 0, and this rank's micro-batch 4 comes later",
    "are one and the same here: `",
)
GATHERED_SUM = "            grad = await model.scatterreduce(grad, layer)\n", "            if layer in model.grad_weights:\n                grad = await model.allgather(model.grad_weights.pop(layer), layer) + grad\n            grad = await model.scatterreduce(grad, layer)\n"  # fmt: skip
CUT_BELOW = "                piece = model.weights[layer].shard(model.rank, model.RANKS)\n                model.weights[layer] = piece\n"
CUT_AT_ONCE = "            grad = await model.scatterreduce(grad, layer)\n", "            model.weights[layer] = model.weights[layer].shard(model.rank, model.RANKS)\n            grad = await model.scatterreduce(grad, layer)\n"  # fmt: skip
GATHER_AGAIN = "        model.activations[0] =", "        for layer in range(model.LAYERS if mb != mine[0] else 0):\n            model.weights[layer] = await model.allgather(model.weights[layer], layer)\n        model.activations[0] ="  # fmt: skip
FIRST_WHOLE = "        if b == mine[0]:\n            G.clear()\n            for k in reversed(range(L)):\n                keep(k, await model.scatterreduce(D.pop(('first', k)), k))\n"
ADDS_UP = "Call scatterreduce for each layer right after its backward, and add up what the calls of a layer give"
LOWERED = "A loop that begins at {0} lowers it first, layer -= 1"
DOWN = "    k = L\n    while k:\n        step(k, back(k))\n        k -= 1\n    return model\n"
STAGES = (
    "    inside = across = {}\n",
    "inside[k] = model.scatterreduce(back(k), k, axis='shard')",
    "for j in [*across]:",
    "    step(j, await model.allgather(await across.pop(j), j, axis='shard'))",
    "for j in [*inside]:",
    "    across[j] = model.allreduce(await inside.pop(j), j, axis='replica')",
)
ROWS = [
    Row(pieces("the sum so far is gathered", "g = back(k)", "if k in D:", "    g = await model.allgather(D.pop(k), k) + g", "D[k] = await model.scatterreduce(g, k)"), (PIECES_DO,), ("store it to keep it",)),
    Row(changed("zero2", "the sum so far is gathered", GATHERED_SUM, ("            so_far = model.grad_weights.get(layer)\n            model.grad_weights[layer] = so_far + grad if so_far else grad", "            model.grad_weights[layer] = grad")), (PIECES_DO,), ("store it to keep it",)),
    Row(changed("zero2", "the layer below is cut", (CUT_BELOW, CUT_BELOW.replace("[layer]", "[layer - 1]").replace("                ", "                if layer:\n                    ", 1).replace("\n                model", "\n                    model")), base="zero2_overlap"), (WAS_CUT,)),
    Row(pieces("the layer below is cut", "keep(k, await model.scatterreduce(back(k), k))", "if b == mine[-1] and k:", "    W[k - 1] = W[k - 1].shard(r, n)"), (WAS_CUT,)),
    Row(changed("zero2", "weights are cut after each backward", CUT_AT_ONCE, GATHER_AGAIN, ("piece = model.weights[layer].shard(model.rank, model.RANKS)", "piece = model.weights[layer]")), (WENT,)),
    Row(pieces("weights are cut, and gathered when they are read", "g = back(k)", "W[k] = W[k].shard(r, n)", "keep(k, await model.scatterreduce(g, k))", "if b != mine[-1]:", "    W[k] = await model.allgather(W[k], k)", after=UPDATES.replace("await step(k)", "W[k], S[k] = model.update(k, D.pop(k), W[k], S[k])\n        W[k] = await model.allgather(W[k], k)\n        model.set_final_weight(k, W[k])")), (WENT,)),
    Row(whole("zero2", "the first gradients wait as a whole", PIECES + EACH + "            if b == mine[0]:\n                D['first', k] = back(k)\n            else:\n                g = back(k)\n                if not k:\n                    G.clear()\n                keep(k, await model.scatterreduce(g, k))\n                await step(k)\n" + FIRST_WHOLE + "    return model\n"), (ADDS_UP,), ("and update it",)),
    Row(changed("zero2", "whole gradients of all micro-batches but the last", ("            grad = await model.scatterreduce(grad, layer)\n            so_far = model.grad_weights.get(layer)\n            model.grad_weights[layer] = so_far + grad if so_far else grad\n        del model.grad_activations[0]\n", "            if not layer:\n                del model.grad_activations[0]\n            if mb == mine[-1]:\n                grad = await model.scatterreduce(grad, layer)\n                grad = grad + model.grad_weights.pop(layer) if layer in model.grad_weights else grad\n            model.grad_weights[layer] = grad\n        for layer in range(model.LAYERS if mb != mine[-1] else 0):\n            model.grad_weights[layer] = await model.scatterreduce(model.grad_weights.pop(layer), layer)\n")), (ADDS_UP,), ("and update it",)),
    Row(whole("hierarchical", "a number is lowered after the backward", NODES.replace("A[k] = x", "A['x', k] = x").replace('G["g"] = model.loss(x)', "A['x', L] = x\n    G['g'] = model.loss(A.pop(('x', L)))").replace("A.pop(k)", "A.pop(('x', k))") + DOWN), (LOWERED.format(8),), ("without pop keeps it",)),
    Row(whole("zero2", "a number is lowered after the backward", PIECES.replace("A[k] = x", "A['x', k] = x").replace('G["g"] = model.loss(x)', "A['x', L] = x\n        G['g'] = model.loss(A.pop(('x', L)))").replace("A.pop(k)", "A.pop(('x', k))") + "    for b in mine:\n        forth(b)\n        k = L\n        while k:\n            keep(k, await model.scatterreduce(back(k), k))\n            k -= 1\n    return model\n"), (LOWERED.format(6),), ("without pop keeps it",)),
    Row(nodes("one dictionary for two stages", *STAGES[1:], before=STAGES[0]), ("inside and across " + ONE,)),
    Row(nodes("one dictionary in a list of stages", *[line.replace("inside", "stages[0]").replace("across", "stages[1]") for line in STAGES[1:]], before="    stages = [{}] * 2\n"), ("all entries of stages " + ONE,)),
    Row(nodes("sums across are asked for a layer too low", SUM, 'calls[k] = model.allreduce(p, k, axis="replica")', "j = max(k - 1, 0)", "if j in calls:", '    step(j, await model.allgather(await calls.pop(j), j, axis="shard"))', before=CALLS), ("await those of layers 1-7, too, which all come before", NOT_THERE)),
    Row(nodes("only the last task is awaited", 'calls[k] = model.allreduce(await model.scatterreduce(back(k), k, axis="shard"), k, axis="replica")', 'for j in [j for j in calls if j < 1]:', '    step(j, await model.allgather(await calls[j], j, axis="shard"))', before=CALLS), ("await those of layers 1-7, too, which all come before", NOT_THERE)),
    Row(changed("zero2", "each sum is fetched for a layer too low", FETCH, NO_FETCH, ("    for layer in reversed(range(model.LAYERS)):\n        grad", "    await fetch(0)\n    for layer in range(1, model.LAYERS):\n        grad"), base="zero2_overlap"), (ALL_BUT_0, NOT_THERE)),
    Row(pieces("sums are asked for a layer too low", "calls[k] = model.scatterreduce(back(k), k)", "if b == mine[0] or k == 0:", "    keep(k, await calls.pop(k))", before=CALLS, after=UPDATES.replace("range(L)", "range(1, L)")), (ALL_BUT_0, NOT_THERE)),
    Row(pieces("a sum is looked for among calls", "calls[k] = model.scatterreduce(back(k), k)", "p = await calls.pop(k)", ADDED, before=CALLS), (SETS,)),
    Row(changed("zero2", "a sum is looked for among weights of another key", ("model.grad_weights.get(layer)", 'model.grad_activations.get(("sum", layer))')), (SETS,)),
    Row(changed("hierarchical", "only rank 0 updates", (TRIPLE, ""), (UPDATED, ALONE)), (ON_ALL,)),
    Row(nodes("only rank 0 updates", "g = back(k)", "if not model.rank:", "    step(k, g)"), (ON_ALL,)),
    Row(nodes("every rank updates, and no one sums", "step(k, back(k))"), ('one axis after the other, axis="replica" and axis="shard"',), ("have gone on without",)),
    Row(pieces("summed gradients are gathered", "keep(k, await model.scatterreduce(back(k), k))", after=ALL_GRADIENT), (NO_GATHER,)),
    Row(changed("zero2", "summed gradients are gathered", (PIECE, WHOLE_GRADIENT)), (NO_GATHER,)),
    Row(pieces("new weights beside layers in another order", "keep(k, await model.scatterreduce(back(k), k))", after=NEW_FIRST), (ORDER.format(0, 5),)),
    Row(changed("zero2", "gathers beside layers in another order", IN_TURN, base="zero2_overlap"), (ORDER.format(5, 0),)),
    Row(nodes("gathers after all backwards", "g = back(k)", "if not k:", "    G.clear()", SUM.replace("back(k)", "g"), 'D[k] = await model.allreduce(p, k, axis="replica")', "for j in range(L) if not k else ():", "    " + STEP.replace("k, ", "j, ").replace("(q,", "(D.pop(j),")), (LATE,), ("the other way",)),
    Row(changed("hierarchical", "gathers in a loop of their own", (TRIPLE, "        model.grad_activations.pop(0, None)\n" + TRIPLE[: TRIPLE.index("        grad = await model.allgather")] + "        model.grad_weights[layer] = grad\n    for layer in range(model.LAYERS):\n" + '        grad = await model.allgather(model.grad_weights.pop(layer), layer, axis="shard")\n')), (LATE,), ("the other way",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_right_layer(row: Row) -> None:
    check_words(row)
