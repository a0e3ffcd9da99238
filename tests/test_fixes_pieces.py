"""What programs of puzzles 7 and 18 are told that mix up whose turn it is, or a piece and the whole of it: rows as in
``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words
from tests.test_fixes_readers import PIPELINE_FSDP
from tests.test_fixes_sums import edited

STAGE_BY_STAGE = """
async def pipeline_fsdp(model: Model) -> Model:
    S = 4
    s, mb = model.rank % S, model.rank // S
    n = model.LAYERS // S
    owner = {layer: layer // n for layer in range(model.LAYERS)}
    mine = [layer for layer, who in owner.items() if who == s]
    lo, hi = min(mine), max(mine)
    shards = {layer: model.load_weights(layer, model.rank, model.RANKS) for layer in owner}
    for layer, (w, o) in shards.items():
        model.weights[layer] = w
        model.opt_states[layer] = o
    del shards

    # forward, stage after stage
    for st in range(S):
        if st == s:
            x = model.get_activation([mb]) if s == 0 else await model.receive(src=model.rank - 1)
            model.activations[lo] = x
        for layer in [l for l in owner if owner[l] == st]:
            weight = await model.allgather(model.weights[layer], layer)
            if st == s:
                model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
        if st == s and s != S - 1:
            await model.pass_to(model.rank + 1, model.activations.pop(hi + 1))

    # backward, stage after stage
    for st in reversed(range(S)):
        if st == s:
            dy = model.loss(model.activations.pop(hi + 1)) if s == S - 1 else await model.receive(src=model.rank + 1)
            model.grad_activations[hi + 1] = dy
        for layer in [l for l in reversed(owner) if owner[l] == st]:
            weight = await model.allgather(model.weights[layer], layer)
            if st == s:
                dw, dx = model.backward(layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), weight)
                model.grad_activations[layer] = dx
            else:
                dw = model.fake_grad(layer, [])
            model.grad_weights[layer] = await model.scatterreduce(dw, layer)
        if st == s and s != 0:
            await model.pass_to(model.rank - 1, model.grad_activations.pop(lo))

    for layer in owner:
        new = model.update(layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer])
        model.weights[layer], model.opt_states[layer] = new
        model.set_final_weight(layer, new[0])
    return model
"""
RING = """
async def pipeline_fsdp(model: Model) -> Model:
    # the layers go round a ring: layer l is run by stage l % 4
    pipe, stage = divmod(model.rank, 4)
    right = pipe * 4 + (stage + 1) % 4
    left = pipe * 4 + (stage - 1) % 4
    top = model.LAYERS - 1
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    layer = 0
    while layer <= top:
        turn = layer % 4 == stage
        if turn and layer == 0:
            model.activations["in", 0] = model.get_activation([pipe])
        elif turn:
            model.activations["in", layer] = await model.receive(src=left)
        whole = await model.allgather(model.weights[layer], layer)
        if turn:
            model.activations["out"] = model.forward(layer, model.activations["in", layer], whole)
            if layer < top:
                await model.pass_to(right, model.activations.pop("out"))
        layer += 1

    layer = top
    while layer >= 0:
        turn = layer % 4 == stage
        if turn:
            if layer == top:
                model.grad_activations["g"] = model.loss(model.activations.pop("out"))
            else:
                model.grad_activations["g"] = await model.receive(src=right)
        whole = await model.allgather(model.weights[layer], layer)
        grad = model.fake_grad(layer, [])
        if turn:
            x = model.activations.pop(("in", layer))
            grad, model.grad_activations["g"] = model.backward(layer, x, model.grad_activations.pop("g"), whole)
        piece = await model.scatterreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(layer, piece, model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
        if turn:
            down = model.grad_activations.pop("g")
            if layer > 0:
                await model.pass_to(left, down)
        layer -= 1
    return model
"""
HELPER = """
async def sequence_parallel(model: Model) -> Model:
    async def whole(store, key, layer):
        return await model.allgather(store.pop(key), layer)

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    layer = 0
    cur = model.get_activation([0])
    while layer < model.LAYERS:
        model.activations[layer] = cur.shard(model.rank, model.RANKS)
        out = model.forward(layer, cur, model.weights[layer], partial=True)
        cur = await model.allreduce(out, layer + 1)
        layer += 1
    model.grad_activations["whole"] = model.loss(cur)

    while layer > 0:
        layer -= 1
        inp = await whole(model.activations, layer, layer)
        dw, dx = model.backward(layer, inp, model.grad_activations.pop("whole"), model.weights[layer], partial=True)
        model.grad_weights[layer] = dw
        if layer:
            model.grad_activations["piece"] = await model.scatterreduce(dx, layer - 1)
            model.grad_activations["whole"] = await whole(model.grad_activations, "piece", layer - 1)
        w, o = model.update(layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer])
        model.weights[layer], model.opt_states[layer] = w, o
        model.set_final_weight(layer, w)
    return model
"""
GATHERED = """
async def sequence_parallel(model: Model) -> Model:
    r, n, L = model.rank, model.RANKS, model.LAYERS
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.load_weights(l, r, n)
    model.activations[0] = model.get_activation([0]).shard(r, n)
    for l in range(L):
        x = await model.allgather(model.activations[l], l)
        y = model.forward(l, x, model.weights[l], partial=True)
        model.activations[l + 1] = await model.scatterreduce(y, l + 1)
    x = await model.allgather(model.activations.pop(L), L)
    model.grad_activations[L] = model.loss(x)
    for l in range(L - 1, -1, -1):
        x = await model.allgather(model.activations.pop(l), l)
        model.grad_weights[l], dx = model.backward(
            l, x, model.grad_activations.pop(l + 1), model.weights[l], partial=True)
        if l > 0:
            model.grad_activations[l] = await model.allreduce(dx, l - 1)
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.update(
            l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
"""
PARTS_KEPT = """
async def sequence_parallel(model: Model) -> Model:
    r, n, L = model.rank, model.RANKS, model.LAYERS
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.load_weights(l, r, n)
    model.activations["x"] = model.get_activation([0])
    model.activations[0] = model.activations["x"].shard(r, n)
    for l in range(L):
        model.activations["part", l + 1] = model.forward(l, model.activations.pop("x"), model.weights[l], partial=True)
        model.activations["x"] = await model.allreduce(model.activations["part", l + 1], l + 1)
    model.grad_activations["g"] = model.loss(model.activations.pop("x"))
    for l in reversed(range(L)):
        if l:
            model.activations["x"] = await model.allreduce(model.activations.pop(("part", l)), l)
        else:
            model.activations["x"] = await model.allgather(model.activations.pop(0), 0)
        model.grad_weights[l], g = model.backward(l, model.activations.pop("x"), model.grad_activations.pop("g"), model.weights[l], partial=True)
        if l:
            model.grad_activations["g"] = await model.allreduce(g, l - 1)
        model.weights[l], model.opt_states[l] = model.update(l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
"""
LISTED = """
async def sequence_parallel(model: Model) -> Model:
    n = model.LAYERS
    kept = []
    i = 0
    while i < n:
        model.weights[i], model.opt_states[i] = model.load_weights(i, model.rank, model.RANKS)
        i += 1
    walk = [("up", k) for k in range(n)] + [("turn", n)] + [("down", k) for k in range(n - 1, -1, -1)]
    model.activations["whole"] = model.get_activation([0])
    kept.append(model.activations["whole"].shard(model.rank, model.RANKS))
    while walk:
        way, k = walk.pop(0)
        if way == "up":
            part = model.forward(k, model.activations.pop("whole"), model.weights[k], partial=True)
            kept.append(await model.scatterreduce(part, k + 1))
            model.activations["whole"] = await model.allgather(kept[-1], k + 1)
        elif way == "turn":
            kept.pop()
            model.grad_activations["whole"] = model.loss(model.activations.pop("whole"))
        else:
            model.activations["whole"] = await model.allgather(kept.pop(), k)
            model.grad_weights[k], part = model.backward(
                k, model.activations.pop("whole"), model.grad_activations.pop("whole"), model.weights[k], partial=True
            )
            if k != 0:
                model.grad_activations["slice"] = await model.scatterreduce(part, k - 1)
                model.grad_activations["whole"] = await model.allgather(model.grad_activations.pop("slice"), k - 1)
    for k in range(n):
        model.weights[k], model.opt_states[k] = model.update(
            k, model.grad_weights.pop(k), model.weights[k], model.opt_states[k]
        )
        model.set_final_weight(k, model.weights[k])
    return model
"""
SENT_BY_HAND = """
async def pipeline_fsdp(model: Model) -> Model:
    L, r = model.LAYERS, model.rank
    pipe, stage = divmod(r, 4)
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.load_weights(l, r, 16)
    x = {}
    for l in range(L):
        s = l % 4
        model.weights["w"] = await model.allgather(model.weights[l], l)
        if s == stage:
            if l:
                model.activations[l] = await model.receive(src=4 * pipe + (s - 1) % 4)
            else:
                model.activations[l] = model.get_activation([pipe])
            y = model.forward(l, model.activations[l], model.weights["w"])
            if l + 1 == L:
                model.grad_activations["g"] = model.loss(y)
            else:
                await model.pass_to(4 * pipe + (s + 1) % 4, y)
        del model.weights["w"]
    l = L
    while l:
        l -= 1
        s = l % 4
        model.weights["w"] = await model.allgather(model.weights[l], l)
        if s == stage:
            if l + 1 < L:
                model.grad_activations["g"] = await model.receive(src=4 * pipe + (s + 1) % 4)
            model.grad_weights["g"], dx = model.backward(l, model.activations.pop(l), model.grad_activations.pop("g"), model.weights.pop("w"))
            if l:
                await model.pass_to(4 * pipe + (s - 1) % 4, dx)
            for other in range(16):
                if other != r:
                    await model.pass_to(other, model.grad_weights["g"].shard(other, 16))
            parts = [model.grad_weights.pop("g").shard(r, 16)]
            model.grad_weights["mine"] = parts[0]
        else:
            del model.weights["w"]
        for p in range(4):
            src = 4 * p + s
            if src != r:
                model.grad_weights["in"] = await model.receive(src=src)
                if "mine" in model.grad_weights:
                    model.grad_weights["mine"] = model.grad_weights.pop("mine") + model.grad_weights.pop("in")
                else:
                    model.grad_weights["mine"] = model.grad_weights.pop("in")
        model.weights[l], model.opt_states[l] = model.update(l, model.grad_weights.pop("mine"), model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
"""
LOSS_AT_STAGE_0 = """
async def pipeline_fsdp(model: Model) -> Model:
    stage, pipe = model.rank % 4, model.rank // 4
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    # forward
    for layer in range(model.LAYERS):
        model.weights["full"] = await model.allgather(model.weights[layer], layer)
        if layer % 4 == stage:
            if layer == 0:
                model.activations[0] = model.get_activation([pipe])
            else:
                model.activations[layer] = await model.receive(src=4 * pipe + (layer - 1) % 4)
            out = model.forward(layer, model.activations[layer], model.weights["full"])
            if layer + 1 < model.LAYERS:
                await model.pass_to(4 * pipe + (layer + 1) % 4, out)
            else:
                await model.pass_to(4 * pipe, out)
        elif layer == model.LAYERS - 1 and stage == 0:
            model.activations["end"] = await model.receive(src=4 * pipe + 3)
            model.grad_activations[layer] = model.loss(model.activations.pop("end"))
            await model.pass_to(4 * pipe + 3, model.grad_activations.pop(layer))
        del model.weights["full"]
    # backward
    for layer in reversed(range(model.LAYERS)):
        model.weights["full"] = await model.allgather(model.weights[layer], layer)
        if layer % 4 == stage:
            model.grad_activations[layer] = await model.receive(src=4 * pipe + (layer + 1) % 4)
            model.grad_weights[layer], model.grad_activations["out"] = model.backward(
                layer, model.activations.pop(layer), model.grad_activations.pop(layer), model.weights.pop("full")
            )
            if layer > 0:
                await model.pass_to(4 * pipe + (layer - 1) % 4, model.grad_activations.pop("out"))
            else:
                del model.grad_activations["out"]
        else:
            del model.weights["full"]
            model.grad_weights[layer] = model.fake_grad(layer, [])
        model.grad_weights[layer] = await model.scatterreduce(model.grad_weights.pop(layer), layer)
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
INPUTS_SENT = """
async def sequence_parallel(model: Model) -> Model:
    r, n, L = model.rank, model.RANKS, model.LAYERS
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.load_weights(l, r, n)
    model.activations["x"] = model.get_activation([0])
    for l in range(L):
        if l % n == r:
            model.activations[l] = model.activations["x"]
        p = model.forward(l, model.activations.pop("x"), model.weights[l], partial=True)
        model.activations["x"] = await model.allreduce(p, l + 1)
    model.grad_activations["g"] = model.loss(model.activations.pop("x"))
    for l in reversed(range(L)):
        if l % n == r:
            for other in range(n):
                if other != r:
                    await model.pass_to(other, model.activations[l])
            model.activations["x"] = model.activations.pop(l)
        else:
            model.activations["x"] = await model.receive(src=l % n)
        model.grad_weights[l], g = model.backward(l, model.activations.pop("x"), model.grad_activations.pop("g"), model.weights[l], partial=True)
        if l:
            model.grad_activations["g"] = await model.allreduce(g, l - 1)
        model.weights[l], model.opt_states[l] = model.update(l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
"""
EVERY_OTHER = """
async def sequence_parallel(model: Model) -> Model:
    r, n, L = model.rank, model.RANKS, model.LAYERS
    act, grad = model.activations, model.grad_activations
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.load_weights(l, r, n)
    act["x"] = model.get_activation([0])
    for l in range(L):
        if l % 2 == 0:
            act[l] = act["x"].shard(r, n)
        act["x"] = await model.allreduce(model.forward(l, act.pop("x"), model.weights[l], partial=True), l + 1)
    grad["g"] = model.loss(act.pop("x"))
    for l in range(L - 1, -1, -1):
        if l % 2:
            act["x"] = await model.allgather(act[l - 1], l - 1)
            act["x"] = await model.allreduce(model.forward(l - 1, act.pop("x"), model.weights[l - 1], partial=True), l)
        else:
            act["x"] = await model.allgather(act.pop(l), l)
        model.grad_weights[l], grad["p"] = model.backward(l, act.pop("x"), grad.pop("g"), model.weights[l], partial=True)
        if l:
            grad["g"] = await model.allreduce(grad.pop("p"), l - 1)
        else:
            del grad["p"]
        model.weights[l], model.opt_states[l] = model.update(l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
"""
UPWARDS = ("[l for l in reversed(owner) if owner[l] == st]:\n            weight = await model.allgather(model.weights[layer], layer)\n            if st == s:\n                dw", "[l for l in owner if owner[l] == st]:\n            weight = await model.allgather(model.weights[layer], layer)\n            if st == s:\n                dw")  # fmt: skip
NAMED = ("model.grad_activations[layer", 'model.grad_activations["dy", layer'), ("model.grad_activations.pop(layer + 1)", 'model.grad_activations.pop(("dy", layer + 1))'), ("model.grad_activations[hi + 1]", 'model.grad_activations["dy", hi + 1]'), ("model.grad_activations.pop(lo)", 'model.grad_activations.pop(("dy", lo))')  # fmt: skip
ROUND = ("layer: layer // n for", "layer: layer % S for")
IN_ITS_TURN = 'elif turn:\n            model.activations["in", layer] = await model.receive(src=left)'
GRADIENT = '        if turn:\n            if layer == top:\n                model.grad_activations["g"] = model.loss(model.activations.pop("out"))\n            else:'
EVERY_TURN = '        if layer == top:\n            if turn:\n                model.grad_activations["g"] = model.loss(model.activations.pop("out"))\n        else:\n            if True:'
FIRST_TURN = "if layer == first and stage > 0:"
ALL_WEIGHTS = ("    # forward, stage after stage\n", '    for layer in owner:\n        model.weights["w", layer] = await model.allgather(model.weights[layer], layer)\n')  # fmt: skip
FROM_THERE = (
    "            weight = await model.allgather(model.weights[layer], layer)\n",
    '            weight = model.weights["w", layer]\n',
)
GATHERS = "        weight = await model.allgather(model.weights[layer], layer)\n"
ALL_FIRST = ("\n    for layer in range(model.LAYERS):\n        if layer == first", '\n    whole = model.weights\n    for layer in range(model.LAYERS):\n        whole["all", layer] = await model.allgather(model.weights[layer], layer)\n    for layer in range(model.LAYERS):\n        if layer == first')  # fmt: skip
INPUTS_FIRST = ("    for l in range(L - 1, -1, -1):\n        x = await model.allgather(model.activations.pop(l), l)\n", "    for l in range(L):\n        model.activations[l] = await model.allgather(model.activations[l], l)\n    for l in range(L - 1, -1, -1):\n        x = model.activations.pop(l)\n")  # fmt: skip
NEXT_ONE_BACK = "is what backward(7, ...) gives, which has not run yet"
GOES_BACK = "the layers of a stage go back from the last one down, reversed(...)"
ITS_OWN_TURN = "receive only in the turns of its own layers, below the `if` of its {}"
READ_BY_LOSS = (
    "forward(7, ...) gave it, for model.loss alone, which has read it. backward(7, ...) reads the input of layer 7, "
)
WHERE_IT_RUNS = "o not store what this rank never reads, or del model.weights[...] at once; gather a weight where it is read, and again for its backward"
ONE_INPUT = "ach is all of an input, which only the backward of its layer reads: keep this rank's slice, and gather it right before that backward"
NOT_THE_PART = "eep no partial sum"

BELOW_NO_IF = "below no `if` of a rank"
NOT_LOADED = "and rank {} has not loaded layer 0: each rank loads its piece of every layer, model.load_weights(0, model.rank, model.RANKS), and every rank calls allgather for every layer"
TAKES_IN = "        if layer == first and stage > 0:\n            model.activations[layer] = await model.receive(src=model.rank - 1)\n"
RING_GATHERS = "        whole = await model.allgather(model.weights[layer], layer)\n"
NO_GRADIENT = "no gradient of a weight: was it taken from another dictionary than model.grad_weights, or received in the place of one? A receive gives what its sender has sent first"
HELD_BY_NONE = "store it, in model.grad_activations[...], as soon as it is made, and take it out after that"
LEFT_THERE = "store it, in model.activations[...], as soon as it is made, and leave it there"
BY_A_SUM = "to be added up over the ranks by model.allreduce or model.scatterreduce"
ROWS = [
    Row(edited("pipeline_fsdp", "a stage goes back upwards", STAGE_BY_STAGE, UPWARDS), (NEXT_ONE_BACK, GOES_BACK), ("read it there",)),
    Row(edited("pipeline_fsdp", "a stage goes back upwards, under names", STAGE_BY_STAGE, UPWARDS, *NAMED), ("let that backward come first",), ("read it there",)),
    Row(edited("pipeline_fsdp", "own layers upwards", PIPELINE_FSDP, ("in reversed(range(model.LAYERS)):", "in [k for s in (3, 2, 1, 0) for k in range(s * per, s * per + per)]:"), ("if layer == last and stage < 3:\n            model", "if layer == first and stage < 3:\n            model"), ("model.grad_activations[layer + 1] = await", "model.grad_activations[last + 1] = await"), ("if layer == first and stage > 0:\n            await", "if layer == last and stage > 0:\n            await")), (NEXT_ONE_BACK, GOES_BACK), ("read it there",)),
    Row(edited("pipeline_fsdp", "blocks of a ring", STAGE_BY_STAGE, ROUND), ("no rank has run layers 1-3 yet", "model.activations[1], is still here", "in the turn of layer 4"), ("or is it under another key?",)),
    Row(edited("pipeline_fsdp", "each stage's part of a ring at once", PIPELINE_FSDP, ("    first, last = stage * per, (stage + 1) * per - 1\n", "    first, last = stage, stage + 4 * per - 4\n    order = [k for s in range(4) for k in range(s, model.LAYERS, 4)]\n"), ("    for layer in range(model.LAYERS):\n        if", "    for layer in order:\n        if"), ("in reversed(range(model.LAYERS))", "in reversed(order)"), ("if first <= layer <= last:", "if layer % 4 == stage:")), ("no rank has run layers 1-3 yet", "model.activations[1], is still here", "in the turn of layer 4"), ("or is it under another key?",)),
    Row(edited("pipeline_fsdp", "receives in every turn", RING, (IN_ITS_TURN, IN_ITS_TURN.replace("elif turn", "elif layer")), ), ("ank 1 has received the input of layer 1", ITS_OWN_TURN.format("forward")), (BELOW_NO_IF,)),
    Row(edited("pipeline_fsdp", "every stage receives in the turn of layer 1", PIPELINE_FSDP, (FIRST_TURN + "\n            model", "if layer == per and stage > 0:\n            model")), (ITS_OWN_TURN.format("forward"),), (BELOW_NO_IF,)),
    Row(edited("pipeline_fsdp", "every stage receives gradients in every turn", RING, (GRADIENT, EVERY_TURN)), ("in the turn",), ()),
    Row(edited("sequence_parallel", "one layer too high", HELPER, ("inp = await whole(model.activations, layer, layer)", "inp = await whole(model.activations, layer + 1, layer + 1)")), (READ_BY_LOSS,), ("read it once",)),
    Row(edited("sequence_parallel", "one too high, in a loop", GATHERED, ("    x = await model.allgather(model.activations.pop(L), L)\n", "    x = await model.allgather(model.activations[L], L)\n"), ("        x = await model.allgather(model.activations.pop(l), l)\n", "        if l < L - 1:\n            x = await model.allgather(model.activations.pop(l), l)\n        else:\n            x = await model.allgather(model.activations.pop(L), l + 1)\n")), ("the input is that of layer 8",), ()),
    Row(edited("sequence_parallel", "slices in a list", LISTED), ("store it to keep it, in model.activations[...]",), ("is it done twice?",)),
]  # fmt: skip
BACK_TO_ZERO = ("range(L - 1, -1, -1)", "range(L - 1, 0, -1)"), ("        model.weights[l], model.opt_states[l] = model.update(\n            l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l])\n", "        if l in model.grad_weights:\n            model.weights[l], model.opt_states[l] = model.update(\n                l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l])\n")  # fmt: skip
SETS = "        model.set_final_weight(layer, model.weights[layer])\n"
SETS_LATER = "    for layer in range(model.LAYERS):\n" + SETS
UPDATES = "        grad = await model.scatterreduce(grad, layer)\n        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, grad, model.weights[layer], model.opt_states[layer])\n"
ONE_LATE = "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n        if layer + 1 < model.LAYERS:\n            model.weights[layer + 1], model.opt_states[layer + 1] = model.update(\n                layer + 1, model.grad_weights.pop(layer + 1), model.weights[layer + 1], model.opt_states[layer + 1])\n"
BEFORE_IT = "this is the weight from before the update"
TWO_PIECES = "this rank has loaded two pieces of layer {}, shard {{0}} and shard {{1}} of 4: load one, and bring that to forward, backward and update"
OTHERS = [
    Row(edited("pipeline_fsdp", "own layers only, in shards of the pipelines", PIPELINE_FSDP, ("for layer in range(model.LAYERS):\n        model.weights", "for layer in range(first, last + 1):\n        model.weights"), ("for layer in range(model.LAYERS):\n        if", "for layer in range(first, last + 1):\n        if"), ("reversed(range(model.LAYERS))", "reversed(range(first, last + 1))"), (TAKES_IN, ""), ("        if first <= layer <= last:\n            model.act", TAKES_IN + "        if first <= layer <= last:\n            model.act")), (NOT_LOADED.format(1),), (BELOW_NO_IF,)),
    Row(edited("pipeline_fsdp", "own layers of a ring only", RING, ("    for layer in range(model.LAYERS):\n", "    for layer in range(stage, model.LAYERS, 4):\n"), ("    layer = 0\n", "    layer = stage\n"), ("        layer += 1\n", "        layer += 4\n"), ("        elif " + IN_ITS_TURN[5:] + "\n" + RING_GATHERS, "        pass\n"), ("            model.activations[\"out\"] = model.forward(", "            model.activations[\"in\", layer] = model.activations[\"in\", 0] if layer == 0 else await model.receive(src=left)\n            model.activations[\"out\"] = model.forward("), ("        turn = layer % 4 == stage\n        if turn and layer", RING_GATHERS + "        turn = layer % 4 == stage\n        if turn and layer")), (NOT_LOADED.format(1),), (BELOW_NO_IF,)),
    Row(edited("pipeline_fsdp", "gradients are sent by hand", SENT_BY_HAND), (NO_GRADIENT,), ("have a dictionary of their own",)),
    Row(edited("pipeline_fsdp", "gradients are sent by hand, and never stored", SENT_BY_HAND, ('model.grad_weights["in"] = await', "one = await"), ('model.grad_weights.pop("mine") + model.grad_weights.pop("in")', 'one + model.grad_weights.pop("mine")'), ('model.grad_weights["mine"] = model.grad_weights.pop("in")', 'model.grad_weights["mine"] = one')), (NO_GRADIENT,), ("have a dictionary of their own",)),
    Row(edited("pipeline_fsdp", "gradients in a dictionary of its own", PIPELINE_FSDP, ("    stage, pipe =", "    back = {}\n    stage, pipe ="), ("model.grad_activations", "back")), (HELD_BY_NONE,), ()),
    Row(edited("pipeline_fsdp", "an input in a local variable", RING, ('model.activations["in", layer] = await model.receive(src=left)', "x = await model.receive(src=left)"), ('model.activations["in", 0] = model.get_activation([pipe])', "x = model.get_activation([pipe])"), ('model.forward(layer, model.activations["in", layer], whole)', "model.forward(layer, x, whole)")), (LEFT_THERE,), ()),
    Row(edited("sequence_parallel", "the backward ends before layer 0", GATHERED, *BACK_TO_ZERO), ("no rank has run the backward of layer 0",), (BEFORE_IT,)),
    Row(edited("pipeline_fsdp", "the backward ends before layer 0", PIPELINE_FSDP, ("in reversed(range(model.LAYERS))", "in range(model.LAYERS - 1, 0, -1)"), ("            await model.pass_to(model.rank - 1, model.grad_activations.pop(layer))\n", "            await model.pass_to(model.rank - 1, model.grad_activations.pop(layer)) if stage > 1 else None\n"), (SETS, ""), ("    return model\n", SETS_LATER + "    return model\n")), ("no rank has run the backward of layer 0",), (BEFORE_IT,)),
    Row(edited("pipeline_fsdp", "updates are one turn late", PIPELINE_FSDP, (UPDATES, ONE_LATE), (SETS, ""), ("    return model\n", SETS_LATER + "    return model\n")), ("rank 0 has layer 0, and has not updated it", "Its gradient is still stored"), (BEFORE_IT,)),
    Row(edited("sequence_parallel", "the update of layer 0 is left out", HELPER, ("        w, o = model.update(", "        if not layer:\n            model.set_final_weight(layer, model.weights[layer])\n            break\n        w, o = model.update(")), ("rank 0 has layer 0, and has not updated it",), (BEFORE_IT,)),
    Row(edited("sequence_parallel", "what the update gives is dropped", HELPER, ("        model.weights[layer], model.opt_states[layer] = w, o\n        model.set_final_weight(layer, w)", "        model.set_final_weight(layer, model.weights[layer])")), (BEFORE_IT,), ("has not updated it",)),
    Row(edited("sequence_parallel", "another piece is loaded for the backward", GATHERED, ("model.grad_activations.pop(l + 1), model.weights[l]", "model.grad_activations.pop(l + 1), model.load_weights(l, (r + 1) % n, n)[0]")), (TWO_PIECES.format(0),), ("this rank has loaded shard",)),
    Row(edited("sequence_parallel", "another piece is kept for the backward", HELPER, ("    layer = 0\n    cur", "    for one in range(model.LAYERS):\n        model.weights['back', one], _ = model.load_weights(one, model.rank - 1 if model.rank else model.RANKS - 1, model.RANKS)\n    layer = 0\n    cur"), ('model.grad_activations.pop("whole"), model.weights[layer]', 'model.grad_activations.pop("whole"), model.weights["back", layer]')), ("this rank has loaded two pieces of layer 7",), ("this rank has loaded shard",)),
    Row(edited("sequence_parallel", "a slice with a piece of the weight", HELPER, ("model.forward(layer, cur, model.weights[layer], partial=True)", "model.forward(layer, model.activations[layer], model.weights[layer])"), ("model.allreduce(out", "model.allgather(out")), (BY_A_SUM,), ()),
    Row(edited("sequence_parallel", "partial=True is left out", GATHERED, ("y = model.forward(l, x, model.weights[l], partial=True)", "y = model.forward(l, x, model.weights[l])")), (BY_A_SUM,), ()),
]  # fmt: skip
SLICE_OF = "keep this rank's slice of the input of {}, .shard(model.rank, model.RANKS), and gather it right before its backward"
SENT_AWAY = [
    Row(edited("sequence_parallel", "whole inputs are sent", INPUTS_SENT), (SLICE_OF.format("layers 0-7"),), ()),
    Row(edited("sequence_parallel", "whole inputs are sent by rank 0", INPUTS_SENT, ("l % n", "0")), (SLICE_OF.format("layers 0-7"),), ()),
    Row(edited("sequence_parallel", "every other layer is run again", EVERY_OTHER), (SLICE_OF.format("layers 1, 3, 5, 7"),), ()),
    Row(edited("sequence_parallel", "every layer but the first is run again", EVERY_OTHER, ("if l % 2 == 0:", "if l in (0, 1, 4):"), ("if l % 2:", "if l in (2, 3, 5, 6, 7):") , ("            act[\"x\"] = await model.allgather(act[l - 1], l - 1)\n            act[\"x\"] = await model.allreduce(model.forward(l - 1, act.pop(\"x\"), model.weights[l - 1], partial=True), l)\n", "            start = 1 if l < 4 else 4\n            act[\"x\"] = await model.allgather(act[start], start)\n            for k in range(start, l):\n                act[\"x\"] = await model.allreduce(model.forward(k, act.pop(\"x\"), model.weights[k], partial=True), k + 1)\n")), ("slice of the input of layers 2, 3, 5-7",), ()),
    Row(edited("pipeline_fsdp", "the first stage takes the loss", LOSS_AT_STAGE_0), ("rank 3 sends away the output of the last layer", "calls model.loss itself"), ("keep the call, and await it after that",)),
    Row(edited("pipeline_fsdp", "the neighbor takes the loss", PIPELINE_FSDP, ("    if stage == 3:\n        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))\n", "    if stage == 3:\n        await model.pass_to(model.rank - 1, model.activations.pop(model.LAYERS))\n        model.grad_activations[model.LAYERS] = await model.receive(src=model.rank - 1)\n    if stage == 2:\n        out = await model.receive(src=model.rank + 1)\n        await model.pass_to(model.rank + 1, model.loss(out))\n")), ("sends away the output of the last layer", "calls model.loss itself"), ("keep the call, and await it after that",)),
]  # fmt: skip
COSTS = [
    Row(edited("pipeline_fsdp", "all weights gathered first", STAGE_BY_STAGE, ALL_WEIGHTS, FROM_THERE, ("            if st == s:\n                dw", '            del model.weights["w", layer]\n            if st == s:\n                dw')), (WHERE_IT_RUNS,), ("othing needs them",)),
    Row(edited("pipeline_fsdp", "all weights gathered first, in a plain loop", PIPELINE_FSDP, (GATHERS, '        weight = model.weights["all", layer]\n'), ALL_FIRST), (WHERE_IT_RUNS,), ("nothing needs them",)),
    Row(edited("sequence_parallel", "all inputs gathered first", GATHERED, INPUTS_FIRST), (ONE_INPUT,), ()),
    Row(edited("sequence_parallel", "all inputs gathered first, by a helper", HELPER, ("    while layer > 0:", '    for one in range(model.LAYERS):\n        model.activations["all", one] = await whole(model.activations, one, one)\n    while layer > 0:'), ("inp = await whole(model.activations, layer, layer)", 'inp = model.activations.pop(("all", layer))')), (ONE_INPUT,), ()),
    Row(edited("sequence_parallel", "partial sums are kept", PARTS_KEPT), (NOT_THE_PART,), ("Keep only this rank's slice of each",)),
    Row(edited("sequence_parallel", "partial sums are kept and scattered later", GATHERED, ("        model.activations[l + 1] = await model.scatterreduce(y, l + 1)\n", '        model.activations["part", l + 1] = y\n        model.activations[l + 1] = await model.scatterreduce(y, l + 1)\n'), ("        x = await model.allgather(model.activations.pop(l), l)\n", '        x = await (model.allreduce(model.activations.pop(("part", l)), l) if l else model.allgather(model.activations.pop(l), l))\n')), (NOT_THE_PART,), ("Keep only this rank's slice of each",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS + OTHERS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_on_turns_and_pieces_lead_to_the_fix(row: Row) -> None:
    check_words(row)


@pytest.mark.parametrize("row", COSTS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_what_holds_memory_leads_to_the_fix(row: Row) -> None:
    here = grade(function(row.program), row.program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    said = here.costs_memory
    assert here.right and all(words in said for words in row.says), said or here.message
    assert not any(words in said for words in row.never), said


@pytest.mark.parametrize("row", SENT_AWAY, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_what_costs_time_leads_to_the_fix(row: Row) -> None:
    here = grade(function(row.program), row.program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    said = here.costs_time
    assert here.right and all(words in said for words in row.says), said or here.message
    assert not any(words in said for words in row.never), said
