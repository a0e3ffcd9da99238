"""What mistakes in pipelines with shards, and in slices of the sequence, are told: of loops that end too soon, of turns
that some ranks leave out, and of what is whole already: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import PASS
from tests.corpus import whole
from tests.test_corpus import function
from tests.test_fixes import Row
from tests.test_fixes_later import check_at_a_shell, check_words
from tests.test_fixes_sums import edited

RING = """
STAGES = 4

async def pipeline_fsdp(model: Model) -> Model:
    pipe = model.rank // STAGES
    stage = model.rank % STAGES
    right = pipe * STAGES + (stage + 1) % STAGES
    left = pipe * STAGES + (stage - 1) % STAGES
    shards, states = {}, {}
    for l in range(model.LAYERS):
        shards[l], states[l] = model.load_weights(l, model.rank, model.RANKS)
    model.weights.update(shards)
    model.opt_states.update(states)
    if stage == 0:
        model.activations[0] = model.get_activation([pipe])

    l = 0
    while l < model.LAYERS:
        model.weights["full"] = await model.allgather(model.weights[l], l)
        if l % STAGES == stage:
            if l > 0:
                model.activations[l] = await model.receive(src=left)
            out = model.forward(l, model.activations[l], model.weights["full"])
            if l < model.LAYERS - 1:
                await model.pass_to(right, out)
            else:
                model.grad_activations["out"] = model.loss(out)
        del model.weights["full"]
        l += 1

    l = model.LAYERS - 1
    while l >= 0:
        model.weights["full"] = await model.allgather(model.weights[l], l)
        if l % STAGES == stage:
            if l < model.LAYERS - 1:
                model.grad_activations["out"] = await model.receive(src=right)
            gw, gx = model.backward(
                l,
                model.activations.pop(l),
                model.grad_activations.pop("out"),
                model.weights["full"],
            )
            model.grad_weights[l] = gw
            if l > 0:
                await model.pass_to(left, gx)
        else:
            model.grad_weights[l] = model.fake_grad(l, [])
        del model.weights["full"]
        model.grad_weights[l] = await model.scatterreduce(model.grad_weights[l], l)
        l -= 1

    for l in range(model.LAYERS):
        model.weights[l], model.opt_states[l] = model.update(
            l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l]
        )
        model.set_final_weight(l, model.weights[l])
    return model
"""
CLASS = """
class Trainer:
    def __init__(self, model):
        self.m = model
        self.column = model.rank % 4
        self.row = model.rank // 4
        self.depth = model.LAYERS // 4
        self.first = self.column * self.depth
        self.after = self.first + self.depth

    def load(self):
        m = self.m
        for layer in range(m.LAYERS):
            m.weights[layer], m.opt_states[layer] = m.load_weights(layer, m.rank, m.RANKS)

    def mine(self, layer):
        return self.first <= layer < self.after

    async def forwards(self):
        m = self.m
        for layer in range(m.LAYERS):
            weight = await m.allgather(m.weights[layer], layer)
            if not self.mine(layer):
                continue
            m.weights["now"] = weight
            if layer == 0:
                m.activations[0] = m.get_activation([self.row])
            elif layer == self.first:
                m.activations[layer] = await m.receive(m.rank - 1)
            m.activations[layer + 1] = m.forward(layer, m.activations[layer], m.weights.pop("now"))
            if layer + 1 == m.LAYERS:
                m.grad_activations[self.after] = m.loss(m.activations.pop(self.after))
            elif layer + 1 == self.after:
                await m.pass_to(m.rank + 1, m.activations.pop(self.after))

    async def backwards(self):
        m = self.m
        for layer in reversed(range(m.LAYERS)):
            weight = await m.allgather(m.weights[layer], layer)
            if self.mine(layer):
                m.weights["now"] = weight
                if layer + 1 == self.after and self.after < m.LAYERS:
                    m.grad_activations[layer + 1] = await m.receive(m.rank + 1)
                m.grad_weights["w"], m.grad_activations[layer] = m.backward(
                    layer,
                    m.activations.pop(layer),
                    m.grad_activations.pop(layer + 1),
                    m.weights.pop("now"),
                )
                if layer == self.first and layer > 0:
                    await m.pass_to(m.rank - 1, m.grad_activations.pop(layer))
            else:
                m.grad_weights["w"] = m.fake_grad(layer, [])
            m.grad_weights[layer] = await m.scatterreduce(m.grad_weights.pop("w"), layer)

    def finish(self):
        m = self.m
        for layer in range(m.LAYERS):
            new, state = m.update(
                layer, m.grad_weights.pop(layer), m.weights[layer], m.opt_states[layer]
            )
            m.weights[layer], m.opt_states[layer] = new, state
            m.set_final_weight(layer, new)

async def pipeline_fsdp(model: Model) -> Model:
    trainer = Trainer(model)
    trainer.load()
    await trainer.forwards()
    await trainer.backwards()
    trainer.finish()
    return model
"""
HELPERS = """
def load(model):
    for i in range(model.LAYERS):
        model.weights[i], model.opt_states[i] = model.load_weights(i, model.rank, model.RANKS)

async def gather(model, i):
    model.weights["full", i] = await model.allgather(model.weights[i], i)

async def step(model, i, grad):
    model.grad_weights[i] = await model.scatterreduce(grad, i)
    model.weights[i], model.opt_states[i] = model.update(
        i, model.grad_weights.pop(i), model.weights[i], model.opt_states[i]
    )
    model.set_final_weight(i, model.weights[i])

def stage_of(model, i):
    return i // (model.LAYERS // 4)

async def forward_one(model, i, me, batch):
    if i == 0:
        model.activations[0] = model.get_activation([batch])
    elif stage_of(model, i - 1) != me:
        model.activations[i] = await model.receive()
    out = model.forward(i, model.activations[i], model.weights["full", i])
    if i + 1 == model.LAYERS:
        model.grad_activations[i] = model.loss(out)
    elif stage_of(model, i + 1) != me:
        await model.pass_to(model.rank + 1, out)
    else:
        model.activations[i + 1] = out

async def backward_one(model, i, me):
    if i + 1 < model.LAYERS and stage_of(model, i + 1) != me:
        model.grad_activations[i] = await model.receive()
    gw, ga = model.backward(
        i, model.activations.pop(i), model.grad_activations.pop(i), model.weights["full", i]
    )
    model.grad_weights["mine"] = gw
    if i > 0:
        if stage_of(model, i - 1) != me:
            await model.pass_to(model.rank - 1, ga)
        else:
            model.grad_activations[i - 1] = ga
    return model.grad_weights.pop("mine")

async def pipeline_fsdp(model: Model) -> Model:
    load(model)
    batch, me = divmod(model.rank, 4)
    for i in range(model.LAYERS):
        await gather(model, i)
        if stage_of(model, i) == me:
            await forward_one(model, i, me, batch)
        del model.weights["full", i]
    for i in range(model.LAYERS - 1, -1, -1):
        await gather(model, i)
        if stage_of(model, i) == me:
            grad = await backward_one(model, i, me)
        else:
            grad = model.fake_grad(i, [])
        del model.weights["full", i]
        await step(model, i, grad)
    return model
"""
AHEAD = """
import asyncio
async def pipeline_fsdp(model: Model) -> Model:
    W, S, A, G = model.weights, model.opt_states, model.activations, model.grad_weights
    L, r = model.LAYERS, model.rank
    k = L // 4
    first, last = (r % 4) * k, (r % 4) * k + k - 1
    for l in range(L):
        W[l], S[l] = model.load_weights(l, r, model.RANKS)

    async def fetch(l):
        W["next"] = await model.allgather(W[l], l)

    ahead = asyncio.create_task(fetch(0))
    for l in range(L):
        await ahead
        W["now"] = W.pop("next")
        if l + 1 < L:
            ahead = asyncio.create_task(fetch(l + 1))
        if first <= l <= last:
            if l == 0:
                A[0] = model.get_activation([r // 4])
            elif l == first:
                A[l] = await model.receive(src=r - 1)
            A[l + 1] = model.forward(l, A[l], W["now"])
            if l == last and l < L - 1:
                await model.pass_to(r + 1, A.pop(l + 1))
        if l < L - 1:
            del W["now"]

    if last == L - 1:
        model.grad_activations[L] = model.loss(A.pop(L))

    for l in reversed(range(L)):
        if l < L - 1:
            W["now"] = await model.allgather(W[l], l)
        if first <= l <= last:
            if l == last and l < L - 1:
                model.grad_activations[l + 1] = await model.receive(src=r + 1)
            G["part"], model.grad_activations[l] = model.backward(
                l, A.pop(l), model.grad_activations.pop(l + 1), W.pop("now")
            )
            if l == first and l > 0:
                await model.pass_to(r - 1, model.grad_activations.pop(l))
            part = G.pop("part")
        else:
            del W["now"]
            part = model.fake_grad(l, [])
        G[l] = await model.scatterreduce(part, l)
        W[l], S[l] = model.update(l, G.pop(l), W[l], S[l])
        model.set_final_weight(l, W[l])
    return model
"""
SLICES = """
async def sequence_parallel(model: Model) -> Model:
    r, n, L = model.rank, model.RANKS, model.LAYERS
    for layer in range(L):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, r, n)
    model.activations["whole"] = model.get_activation(range(model.BATCHES))
    model.activations[0] = model.activations["whole"].shard(r, n)
    for layer in range(L):
        if layer > 0:
            model.activations["whole"] = await model.allgather(model.activations[layer], layer)
        partial = model.forward(layer, model.activations.pop("whole"), model.weights[layer], partial=True)
        model.activations[layer + 1] = await model.scatterreduce(partial, layer + 1)
    whole = await model.allgather(model.activations.pop(L), L)
    model.grad_activations[L] = model.loss(whole)
    for layer in reversed(range(L)):
        if layer < L - 1:
            model.grad_activations[layer + 1] = await model.allgather(
                model.grad_activations.pop(layer + 1), layer
            )
        inp = await model.allgather(model.activations.pop(layer), layer)
        grad, partial = model.backward(
            layer, inp, model.grad_activations.pop(layer + 1), model.weights[layer], partial=True
        )
        model.grad_weights[layer] = grad
        if layer > 0:
            model.grad_activations[layer] = await model.scatterreduce(partial, layer - 1)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
WHILE = """
async def sequence_parallel(model: Model) -> Model:
    me, n, last = model.rank, model.RANKS, model.LAYERS - 1
    acts, grads = model.activations, model.grad_activations
    for k in range(model.LAYERS):
        w, s = model.load_weights(k, me, n)
        model.weights[k] = w
        model.opt_states[k] = s

    async def whole_input(k):
        if k == 0 and "first" in acts:
            return acts.pop("first")
        return await model.allgather(acts[k], k)

    acts["first"] = model.get_activation(range(model.BATCHES))
    acts[0] = acts["first"].shard(me, n)
    k = 0
    while k <= last:
        x = await whole_input(k)
        y = model.forward(k, x, model.weights[k], partial=True)
        k += 1
        acts[k] = await model.scatterreduce(y, k)
    grads["whole"] = model.loss(await model.allgather(acts.pop(k), k))
    while k > 0:
        k -= 1
        x = await model.allgather(acts.pop(k), k)
        gw, gx = model.backward(k, x, grads.pop("whole"), model.weights[k], partial=True)
        model.grad_weights[k] = gw
        if k > 0:
            grads["slice"] = await model.scatterreduce(gx, k - 1)
            grads["whole"] = await model.allgather(grads.pop("slice"), k - 1)
    for k in range(model.LAYERS):
        model.weights[k], model.opt_states[k] = model.update(
            k, model.grad_weights.pop(k), model.weights[k], model.opt_states[k]
        )
        model.set_final_weight(k, model.weights[k])
    return model
"""
GATHERED = """
async def gathered(model, piece, layer):
    return await model.allgather(piece, layer)

async def summed(model, partial, layer):
    return await model.scatterreduce(partial, layer)

async def sequence_parallel(model: Model) -> Model:
    layers = list(range(model.LAYERS))
    mine = {layer: model.load_weights(layer, model.rank, model.RANKS) for layer in layers}
    model.weights.update({layer: pair[0] for layer, pair in mine.items()})
    model.opt_states.update({layer: pair[1] for layer, pair in mine.items()})
    first = model.get_activation(list(range(model.BATCHES)))
    model.activations[0] = first.shard(model.rank, model.RANKS)
    model.activations[1] = await summed(
        model, model.forward(0, first, model.weights[0], partial=True), 1
    )
    for layer in layers[1:]:
        inp = await gathered(model, model.activations[layer], layer)
        out = model.forward(layer, inp, model.weights[layer], partial=True)
        model.activations[layer + 1] = await summed(model, out, layer + 1)
    top = await gathered(model, model.activations.pop(model.LAYERS), model.LAYERS)
    model.grad_activations[model.LAYERS - 1] = model.loss(top).shard(model.rank, model.RANKS)
    for layer in layers[::-1]:
        model.grad_activations["whole"] = await gathered(
            model, model.grad_activations.pop(layer), layer
        )
        inp = await gathered(model, model.activations.pop(layer), layer)
        grad, below = model.backward(
            layer, inp, model.grad_activations.pop("whole"), model.weights[layer], partial=True
        )
        model.grad_weights[layer] = grad
        if layer:
            model.grad_activations[layer - 1] = await summed(model, below, layer - 1)
        new, state = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.weights[layer] = new
        model.opt_states[layer] = state
        model.set_final_weight(layer, new)
    return model
"""
PUZZLES = {"pipeline_fsdp": (RING, CLASS, HELPERS, AHEAD), "sequence_parallel": (SLICES, WHILE, GATHERED)}
F, S = "pipeline_fsdp", "sequence_parallel"
ENDS = "Gradients of layers 1-3 were summed here, and not that of layer 0: does the backward loop end before it?"
ROWS = [
    # A ring over all ranks.
    Row(edited(F, "one ring over all pipelines", RING, ("pipe * STAGES + (stage + 1) % STAGES", "(model.rank + 1) % model.RANKS"), ("pipe * STAGES + (stage - 1) % STAGES", "(model.rank - 1) % model.RANKS")), ("it works on micro-batches 0, 3", "its last stage sends to its first one")),
    Row(edited(F, "one ring over all pipelines, in functions", HELPERS, ("i // (model.LAYERS // 4)", "i % 4"), ("model.rank + 1, out", "(model.rank + 1) % 16, out"), ("model.rank - 1, ga", "(model.rank - 1) % 16, ga")), ("it works on micro-batches 0, 3", "its last stage sends to its first one")),
    # Loops that end before layer 0.
    Row(edited(F, "a count that ends before layer 0", RING, ("while l >= 0", "while l > 0")), (ENDS,)),
    Row(edited(F, "a range that ends before layer 0", CLASS, ("reversed(range(m.LAYERS))", "range(m.LAYERS - 1, 0, -1)")), (ENDS,)),
    # Turns that some ranks leave out, or do twice.
    Row(edited(F, "the count goes on below a condition", RING, ('        del model.weights["full"]\n        l += 1\n', '            l += 1\n        del model.weights["full"]\n')), ("rank 1 calls allgather(layer 0) again, after it and no other", "l += 1"), ("goes through",)),
    Row(edited(F, "a while that goes on only with work", CLASS, ("        for layer in range(m.LAYERS):\n            weight = await", "        layer = -1\n        while layer < m.LAYERS - 1:\n            layer += self.mine(layer) or layer < 0\n            weight = await")), ("rank 1 calls allgather(layer 0) again, after it and no other",), ("goes through",)),
    Row(edited(F, "only ranks with the layer go on", HELPERS, ("        await gather(model, i)\n        if stage_of(model, i) == me:\n            await f", "        if stage_of(model, i) != me:\n            continue\n        await gather(model, i)\n        if stage_of(model, i) == me:\n            await f"), ('        del model.weights["full", i]\n    for', '        del model.weights["full", i]\n    for')), ("rank 1 has not called allgather(layer 0) before that", "`continue`"), ("goes through",)),
    Row(edited(F, "gathered below the condition", RING, ('    while l < model.LAYERS:\n        model.weights["full"] = await model.allgather(model.weights[l], l)\n        if l % STAGES == stage:\n', '    while l < model.LAYERS:\n        if l % STAGES == stage:\n            model.weights["full"] = await model.allgather(model.weights[l], l)\n'), ('        del model.weights["full"]\n        l += 1', '            del model.weights["full"]\n        l += 1')), ("rank 1 has not called allgather(layer 0) before that", "`if` around it"), ("goes through",)),
    # The layer of a zero gradient.
    Row(edited(F, "summed as the layer of the stage", RING, ("model.scatterreduce(model.grad_weights[l], l)", "model.scatterreduce(model.grad_weights[l], stage)")), ("it is the turn of layer 3, whose weight was gathered again, and not that of layer 0: model.scatterreduce(grad, 3)",), ("the zero gradient is that",)),
    Row(edited(F, "summed as the first layer of the stage", CLASS, ('m.scatterreduce(m.grad_weights.pop("w"), layer)', 'm.scatterreduce(m.grad_weights.pop("w"), self.first)')), ("model.scatterreduce(grad, 3)",), ("the zero gradient is that",)),
    Row(edited(F, "a zero of the stage's layer", RING, ("model.fake_grad(l, [])", "model.fake_grad(stage, [])")), ("the zero gradient is that of the layer of this call: model.fake_grad(3, [])",)),
    # The input of layer 0 comes from no rank.
    Row(edited(F, "layer 0 receives, too", RING, ("            if l > 0:\n                model.activations[l] = await", "            if l >= 0:\n                model.activations[l] = await")), ("no rank sends the input of layer 0: model.get_activation gives it. Receive only where layer > 0",), ("ever true",)),
    Row(edited(F, "layer 0 receives, too, from any rank", HELPERS, ("    if i == 0:\n        model.activations[0] = model.get_activation([batch])\n    elif stage", "    if stage")), ("no rank sends the input of layer 0: model.get_activation gives it. Receive only where layer > 0",), ("ever true",)),
    # Layers on one stage, and none on others.
    Row(edited(F, "all layers on the first stage", HELPERS, ("i // (model.LAYERS // 4)", "i % (model.LAYERS // 4)")), ("ranks 1-3, 5-7, 9-11, 13-15 run no layer", "layer l on stage l // (model.LAYERS // 4)")),
    Row(edited(F, "all layers in the first column", AHEAD, ("k = L // 4", "k = L")), ("ranks 1-3, 5-7, 9-11, 13-15 run no layer", "layer l on stage l // (model.LAYERS // 4)")),
    # One layer too far.
    Row(edited(F, "one layer too many", CLASS, ("layer < self.after\n", "layer <= self.after\n")), ("If the layers of this rank end with layer 0, its condition goes one too far, as with <= in place of <",)),
    Row(edited(F, "a range one too long", AHEAD, ("if first <= l <= last:\n            if l == 0", "if l in range(first, last + 2):\n            if l == 0")), ("If the layers of this rank end with layer 0, its condition goes one too far, as with <= in place of <",)),
    # Tasks that are not awaited.
    Row(edited(F, "the task ahead is not awaited", AHEAD, ("        await ahead\n", "")), ("model.weights is filled in fetch(0), which may not be through here", "await it before what it stores is read")),
    Row(edited(F, "a gather in a task", HELPERS, ("    for i in range(model.LAYERS):\n        await gather(model, i)\n", "    for i in range(model.LAYERS):\n        gathering = asyncio.ensure_future(gather(model, i))\n")), ("model.weights is filled in gather(model, i), which may not be through here", "await it before what it stores is read")),
    # Sent after the loop.
    Row(edited(F, "sent after the loop", CLASS, ("            elif layer + 1 == self.after:\n                await m.pass_to(m.rank + 1, m.activations.pop(self.after))\n", ""), ("    async def backwards(self):\n        m = self.m\n", "    async def backwards(self):\n        m = self.m\n        if self.after < m.LAYERS:\n            await m.pass_to(m.rank + 1, m.activations.pop(self.after))\n")), ("let it send in the turn of each layer whose next one is on another rank, right after that forward",), ("of its own only",)),
    Row(edited(F, "sent after the loop, a task ahead", AHEAD, ("            if l == last and l < L - 1:\n                await model.pass_to(r + 1, A.pop(l + 1))\n", ""), ("    if last == L - 1:\n", "    if last < L - 1:\n        await model.pass_to(r + 1, A.pop(last + 1))\n    else:\n")), ("let it send in the turn of each layer whose next one is on another rank, right after that forward",), ("of its own only",)),
    # What is summed already.
    Row(edited(F, "a gradient and the sum that has it", HELPERS, ("    model.grad_weights[i] = await model.scatterreduce(grad, i)\n", "    model.grad_weights[i] = grad\n    model.grad_weights[i] = model.grad_weights[i] + await model.scatterreduce(grad, i)\n")), ("the cut one is a sum, and micro-batch 0 is in it: leave the whole one out",), ("reduce-scatter the whole one",)),
    Row(edited(F, "a gradient is added to its sum", CLASS, ('m.grad_weights[layer] = await m.scatterreduce(m.grad_weights.pop("w"), layer)', 'm.grad_weights[layer] = await m.scatterreduce(m.grad_weights["w"], layer)\n            m.grad_weights[layer] = m.grad_weights[layer] + m.grad_weights.pop("w")')), ("the cut one is a sum, and micro-batch 0 is in it: leave the whole one out",), ("reduce-scatter the whole one",)),
    # What is whole already.
    Row(edited(S, "what was gathered takes the place of the slice", WHILE, ("return await model.allgather(acts[k], k)", "acts[k] = await model.allgather(acts[k], k)\n        return acts[k]")), ("the activation of layer 7 was gathered before",), ("needs no gather",)),
    Row(edited(S, "what was gathered is stored over the slice", GATHERED, ("        inp = await gathered(model, model.activations[layer], layer)\n        out", "        inp = model.activations[layer] = await gathered(model, model.activations[layer], layer)\n        out")), ("the activation of layer 7 was gathered before",), ("needs no gather",)),
    Row(edited(S, "the gradient of the loss is not cut", GATHERED, ("model.loss(top).shard(model.rank, model.RANKS)", "model.loss(top)")), ("model.loss gives all of the gradient of layer 7 on every rank",)),
    Row(edited(S, "the gradient of the loss is gathered", SLICES, ("        if layer < L - 1:\n", "        if layer < L:\n")), ("model.loss gives all of the gradient of layer 7 on every rank",)),
    Row(edited(S, "the first input is not cut", SLICES, ('model.activations["whole"].shard(r, n)', 'model.activations["whole"]')), ("model.get_activation gives all of it on every rank", ".shard(model.rank, model.RANKS)"), ("needs no gather",)),
    Row(edited(S, "the first input is stored whole", GATHERED, ("first.shard(model.rank, model.RANKS)", "first")), ("model.get_activation gives all of it on every rank", ".shard(model.rank, model.RANKS)"), ("needs no gather",)),
    # An activation in place of its gradient.
    Row(edited(S, "the activation is gathered for the backward", WHILE, ('grads.pop("slice"), k - 1', "acts[k - 1], k - 1")), ("this is the activation of layer 6, which forward reads", "is it gathered or read where its gradient is meant?"), ("model.loss makes",)),
    Row(edited(S, "the input is handed in twice", GATHERED, ('layer, inp, model.grad_activations.pop("whole"), model.weights', 'layer, inp, inp if layer == 3 else model.grad_activations.pop("whole"), model.weights')), ("this is the activation of layer 3, which forward reads", "is it gathered or read where its gradient is meant?"), ("model.loss makes",)),
    # What a gather takes.
    Row(edited(S, "a gather of what is on its way", WHILE, ('grads["slice"] = await model.scatterreduce(gx, k - 1)', "slice = model.scatterreduce(gx, k - 1)"), ('grads.pop("slice"), k - 1', "slice, k - 1")), ("allgather takes a tensor", "did you forget `await`?"), ("OptState",)),
    Row(edited(S, "a gather of what is on its way, in a task", SLICES, ("model.grad_activations[layer] = await model.scatterreduce(partial, layer - 1)", "coming = model.scatterreduce(partial, layer - 1)"), ("model.grad_activations.pop(layer + 1), layer\n            )", "asyncio.ensure_future(coming), layer\n            )")), ("allgather takes a tensor", "did you forget `await`?"), ("OptState",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_on_shards_lead_to_the_fix(row: Row) -> None:
    check_words(row)


@pytest.mark.parametrize(("puzzle", "source"), [(name, one) for name, several in PUZZLES.items() for one in several])
def test_the_programs_with_these_mistakes_are_right_without_them(puzzle: str, source: str) -> None:
    assert grade(function(whole(puzzle, "right", source)), puzzle).verdict.status == PASS  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [ROWS[at] for at in (2, 4, 11, 17)], ids=lambda row: row.program.name)
def test_a_shell_says_the_same(row: Row) -> None:
    check_at_a_shell(row, check_words(row))
