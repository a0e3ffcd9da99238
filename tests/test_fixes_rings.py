"""What mistakes in a ring of ranks are told (puzzle 26), each in two programs that are written differently: one is the
solution, or its second version, the others are classes, closures and helpers. Rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade, hint
from lib.grading.verdict import PASS
from tests.corpus import Program, changed, whole
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words
from tests.test_fixes_messages import RING

CLASS = """
class Ring:
    def __init__(self, model):
        self.model, self.size = model, model.RANKS
        self.next, self.previous = (model.rank + 1) % self.size, (model.rank - 1) % self.size

    async def blocks(self, kv):
        store = self.model.activations
        store["block"] = kv
        for left in range(self.size - 1, -1, -1):
            sending = self.model.pass_to(self.next, store["block"]) if left else None
            yield store.pop("block")
            if sending:
                store["block"] = await self.model.receive(self.previous)
                await sending


async def ring_attention(model: Model) -> Model:
    ring, n, r = Ring(model), model.RANKS, model.rank
    acts, grads, states, weights = model.activations, model.grad_activations, model.opt_states, model.weights
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer)
    whole = model.get_activation([0])
    acts["in", 0] = whole.shard(r, 2 * n).combine(whole.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        acts["att", layer], acts["kv", layer] = model.project(layer, acts["in", layer], weights[layer])
        async for kv in ring.blocks(acts["kv", layer]):
            acts["att", layer] = model.attend(layer, acts["att", layer], kv)
        acts["in", layer + 1] = model.rest(layer, acts["in", layer], weights[layer], acts["att", layer])
    grads["out"] = model.loss(acts.pop(("in", model.LAYERS)), sliced=True)
    for layer in range(model.LAYERS - 1, -1, -1):
        grads["att"] = model.backward_rest(layer, acts["in", layer], grads["out"], weights[layer],
                                           acts.pop(("att", layer)))
        step = 0
        async for kv in ring.blocks(acts.pop(("kv", layer))):
            grads["att"], grads["own"] = model.backward_attend(layer, grads["att"], kv)
            if step > 0:
                grads["kv"] = await model.receive(ring.previous) + grads.pop("own")
            else:
                grads["kv"] = grads.pop("own")
            if n > 1:
                await model.pass_to(ring.next, grads.pop("kv"))
            step += 1
        if n > 1:
            grads["kv"] = await model.receive(ring.previous)
        model.grad_weights[layer], grads["out"] = model.backward_project(
            layer, acts.pop(("in", layer)), grads.pop("out"), weights[layer], grads.pop("att"), grads.pop("kv"))
        summed = await model.allreduce(model.grad_weights.pop(layer), layer)
        weights[layer], states[layer] = model.update(layer, summed, weights[layer], states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
"""
CLOSURES = """
async def ring_attention(model: Model) -> Model:
    n, r = model.RANKS, model.rank
    right, left = (r + 1) % n, (r - 1) % n
    A, G, W = model.activations, model.grad_activations, model.weights

    async def finish(layer):
        g = await model.allreduce(model.grad_weights.pop(layer), layer)
        W[layer], model.opt_states[layer] = model.update(layer, g, W[layer], model.opt_states[layer])
        model.set_final_weight(layer, W[layer])

    async def forward_layer(layer):
        A["q", layer], A["kv", layer] = model.project(layer, A[layer], W[layer])
        A["moving"] = A["kv", layer]
        hop = 1
        while hop < n:
            out = model.pass_to(right, A["moving"])
            A["q", layer] = model.attend(layer, A["q", layer], A.pop("moving"))
            A["moving"] = await model.receive(left)
            await out
            hop += 1
        A["q", layer] = model.attend(layer, A["q", layer], A.pop("moving"))
        A[layer + 1] = model.rest(layer, A[layer], W[layer], A["q", layer])

    async def backward_layer(layer):
        G["q"] = model.backward_rest(layer, A[layer], G["dy"], W[layer], A.pop(("q", layer)))
        A["moving"] = A.pop(("kv", layer))
        sent_grad = None
        for hop in range(n):
            out = model.pass_to(right, A["moving"]) if hop + 1 < n else None
            G["q"], G["mine"] = model.backward_attend(layer, G["q"], A.pop("moving"))
            if hop > 0:
                came = await model.receive(left)
                G["mine"] = G["mine"] + came
            if out:
                A["moving"] = await model.receive(left)
                await out
            if n > 1:
                if sent_grad:
                    await sent_grad
                sent_grad = model.pass_to(right, G.pop("mine"))
        if n > 1:
            await sent_grad
            G["mine"] = await model.receive(left)
        model.grad_weights[layer], G["dy"] = model.backward_project(
            layer, A.pop(layer), G.pop("dy"), W[layer], G.pop("q"), G.pop("mine"))

    for layer in range(model.LAYERS):
        W[layer], model.opt_states[layer] = model.load_weights(layer)
    inp = model.get_activation([0])
    A[0] = inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        await forward_layer(layer)
    G["dy"] = model.loss(A.pop(model.LAYERS), sliced=True)
    task = None
    for layer in reversed(range(model.LAYERS)):
        await backward_layer(layer)
        if task:
            await task
        task = asyncio.create_task(finish(layer))
    del G["dy"]
    await task
    return model
"""
EXCHANGE = """
async def exchange(model, tensor):
    n, r = model.RANKS, model.rank
    if n == 1:
        return tensor
    if r % 2 == 0:
        await model.pass_to((r + 1) % n, tensor)
        return await model.receive((r - 1) % n)
    model.activations["got"] = await model.receive((r - 1) % n)
    await model.pass_to((r + 1) % n, tensor)
    return model.activations.pop("got")


async def ring_attention(model: Model) -> Model:
    n, r = model.RANKS, model.rank
    acts, grads = model.activations, model.grad_activations
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    x = model.get_activation([0])
    acts[0] = x.shard(r, 2 * n).combine(x.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        acts["att", layer], acts["kv", layer] = model.project(layer, acts[layer], model.weights[layer])
        acts["now"] = acts["kv", layer]
        for step in range(n):
            if step:
                acts["now"] = await exchange(model, acts["now"])
            acts["att", layer] = model.attend(layer, acts["att", layer], acts["now"])
        del acts["now"]
        acts[layer + 1] = model.rest(layer, acts[layer], model.weights[layer], acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
    for layer in reversed(range(model.LAYERS)):
        grads["att"] = model.backward_rest(layer, acts[layer], grads["out"], model.weights[layer],
                                           acts.pop(("att", layer)))
        acts["now"] = acts.pop(("kv", layer))
        for step in range(n):
            if step:
                acts["now"] = await exchange(model, acts["now"])
                grads["kv"] = await exchange(model, grads["kv"])
            grads["att"], theirs = model.backward_attend(layer, grads["att"], acts["now"])
            grads["kv"] = grads["kv"] + theirs if step else theirs
        del acts["now"]
        grads["kv"] = await exchange(model, grads["kv"])
        model.grad_weights[layer], grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), model.weights[layer], grads.pop("att"), grads.pop("kv"))
        g = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(layer, g, model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
    return model
"""


def of(source: str, name: str, *edits: tuple[str, str]) -> Program:
    """One of these programs with every ``old`` in it replaced by ``new``."""
    for old, new in edits:
        assert old in source, f"{name}: {old!r} is not in the program"
        source = source.replace(old, new)
    return whole("ring_attention", name, source)


SOLUTION_HOP = """            if n > 1:
                send = model.pass_to(after, grads.pop("kv"))
                grads["kv"] = await model.receive(before)
                await send
"""
HOME = ("this gradient is home, so send and receive it only where there are others: if model.RANKS > 1",)
OTHER_KEYS = ("these are gradients of different keys and values", "in each step pass both on", "kv_grad + theirs")
OUTPUT = (
    "it is the output of the last layer, which model.loss alone reads",
    "read the input of layer 7, model.activations[",
)
SOON = ("backward_rest(7, ...) has read it, and it was taken out: backward_project of layer 7 reads it, too",)
NEXT = ("is there a number, such as 4", "on a ring the next rank is (model.rank + 1) % model.RANKS")
HOME_AGAIN = ("a message brings 1 slice (1/2) of keys and values that nothing reads", "leave out that send")
LAST = (
    "has sent the gradient of this rank's own keys and values, which comes last",
    "a receive of a gradient is left out",
)
SECOND = ("these are keys and values, the second of what project gives, and the queries are the first",)
BEFORE = ("await these 24, too, which all come before: ",)
STALE = ("one is of layer 7, and the other of layer 6: begin a sum of its own in each layer",)
LOSSES = ("model.loss makes the first gradient, on every rank, of its own slices", "= model.loss(output, sliced=True)")
KEEPS = ("without pop keeps it, to be sent and read here as well",)
FIRST_STEP = ("to which nothing has come yet that could be added: receive no gradient in the first step",)
NEXT_KEYS = (
    "as attend(0, ...) has read it: the next keys are to come",
    "and as many sends, the first one of its own keys",
)
AGAIN = ("project(0, ...) has run 5 times on this rank", "project once, before the steps")
LAYER_0 = ("model.activations[1] = model.rest(0, inp, weight, att) comes before that",)
PIECES = ("each of these is all of it, as shard(0, 1) gives it", "2 * model.RANKS pieces, at every size")
WRONG_WAY = ("is it the send that goes the wrong way?", "await model.pass_to(2, ...) on rank 1")
LEFT_OUT = ("a receive of what has come here is left out in a step before",)
MADE = ("or are they exchanged where they are made? att, kv = model.project(layer, inp, weight)",)
NOT_STORED = (
    "this rank has run attend with these as well",
    "each of the 4 begins with what the one before has given, so store that, att = model.attend(layer, att, kv)",
)
NOT_STORED_BACK = ("this rank has run backward_attend with these as well", "so store that, att_grad, kv_grad = model.")
IN_THE_LOOP = ("So far there is one attend in this layer: is rest in the loop? It comes once, after that",)
A_STEP_LESS = ("this rank has run backward_attend 3 times in this layer, with 4 ranks", "range(model.RANKS)")
EXCHANGED = ("the second of what backward_project gives, and the weight's gradient is the first: are they exchanged",)
OTHER_NEIGHBOR = ("rank 3 has sent to rank 0, and rank 1 has not: await model.receive(src=3) on rank 0",)
SOON_QUERIES = ("rest(7, ...) has read it, and it was taken out: backward_rest of layer 7 reads it, too",)
OTHER_WAY = ("keys and values come from rank 3 here, and their gradients from rank 1: a gradient goes round with the",)
NOT_GONE_ON = ("That of this rank's own keys, slice {0, 7} of 8, has not gone on, and the keys have",)
NO_KEYS = (
    "attend(0, ...) has run 2 times on this rank, and keys have come 1 time",
    "a step before the last one is without a send and a receive",
)
OWN = ('acts["att", layer]', 'acts[f"att{layer}"]')
TWICE = ("nothing is there: does this run twice for it?", "was it put in on this rank")
SUMMED = "summed = await model.allreduce(model.grad_weights.pop(layer), layer)"
LATER = """sums[layer] = model.allreduce(model.grad_weights.pop(layer), layer)
        summed = await sums.pop(layer)"""
ROWS = [
    Row(of(CLASS, "a sum taken out twice", (SUMMED, f"sums = {{}}\n        {LATER}\n        summed = await sums.pop(layer)")), TWICE),
    Row(of(CLOSURES, "a layer finished twice", ("g = await model.allreduce(model.grad_weights.pop(layer), layer)", "g = await sums.pop(layer)"), ("    task = None\n", "    task, sums = None, {}\n"), ("        if task:", "        sums[layer] = model.allreduce(model.grad_weights.pop(layer), layer)\n        if task:"), ('    del G["dy"]\n    await task', '    del G["dy"]\n    await task\n    await finish(0)')), TWICE),
    Row(of(CLASS, "queries taken out by the rest", ('acts.pop(("att", layer))', 'acts.pop(f"att{layer}")'), OWN, ('weights[layer], acts[f"att{layer}"])', 'weights[layer], acts.pop(f"att{layer}"))')), SOON_QUERIES, ("a key for all layers",)),
    Row(of(CLOSURES, "queries taken out by the rest", ('A[layer], W[layer], A["q", layer])', 'A[layer], W[layer], A.pop(("q", layer)))')), SOON_QUERIES, ("a key for all layers",)),
    Row(of(CLASS, "gradients the other way", ('await model.receive(ring.previous) + grads.pop("own")', 'await model.receive(ring.next) + grads.pop("own")'), ("model.pass_to(ring.next, grads", "model.pass_to(ring.previous, grads"), ('grads["kv"] = await model.receive(ring.previous)\n        model', 'grads["kv"] = await model.receive(ring.next)\n        model')), OTHER_WAY, ("in each step pass both on",)),
    Row(of(CLOSURES, "gradients the other way", ("came = await model.receive(left)", "came = await model.receive(right)"), ("model.pass_to(right, G", "model.pass_to(left, G"), ('G["mine"] = await model.receive(left)', 'G["mine"] = await model.receive(right)')), OTHER_WAY, ("in each step pass both on",)),
    Row(of(EXCHANGE, "the first gradient does not go on", ("            if step:\n                acts[\"now\"] = await exchange(model, acts[\"now\"])\n                grads[\"kv\"] =", "            if step:\n                acts[\"now\"] = await exchange(model, acts[\"now\"])\n            if step > 1:\n                grads[\"kv\"] =")), NOT_GONE_ON),
    Row(of(CLOSURES, "the first gradient does not go on", ("            if n > 1:\n                if sent_grad", "            if hop:\n                if sent_grad"), ("            if hop > 0:\n                came", "            if hop > 1:\n                came"), ('G["q"], G["mine"] = model.backward_attend(layer, G["q"], A.pop("moving"))', 'G["q"], got = model.backward_attend(layer, G["q"], A.pop("moving"))\n            G["mine"] = G["mine"] + got if hop == 1 else got')), NOT_GONE_ON),
    Row(of(CLASS, "a step without messages", ('store["block"]) if left else', 'store["block"]) if left not in (0, self.size - 2) else')), NO_KEYS, ("was sent to rank 1",)),
    Row(changed("ring_attention", "a step without messages", ('model.pass_to(after, acts["kv"]) if step < n - 1 else None\n            acts["att"', 'model.pass_to(after, acts["kv"]) if step < n - 1 and step != 1 else None\n            acts["att"')), NO_KEYS, ("was sent to rank 1",)),
    Row(of(CLASS, "what attend gives is not stored", ('            acts["att", layer] = model.attend(layer, acts["att", layer], kv)\n        acts["in", layer + 1] = model.rest(layer, acts["in", layer], weights[layer], acts["att", layer])', '            att = model.attend(layer, acts["att", layer], kv)\n        acts["in", layer + 1] = model.rest(layer, acts["in", layer], weights[layer], att)')), NOT_STORED, ("come from the other ranks",)),
    Row(of(CLOSURES, "what attend gives is stored under a name of its own", ('            A["q", layer] = model.attend(layer, A["q", layer], A.pop("moving"))', '            A["met"] = model.attend(layer, A["q", layer], A.pop("moving"))'), ('        A["q", layer] = model.attend(layer, A["q", layer], A.pop("moving"))\n        A[layer + 1]', '        A["q", layer] = model.attend(layer, A["q", layer], A.pop("moving"))\n        A.pop("met", None)\n        A[layer + 1]')), NOT_STORED, ("come from the other ranks",)),
    Row(of(CLOSURES, "what backward_attend gives is not stored", ('G["q"], G["mine"] = model.backward_attend', 'G["new"], G["mine"] = model.backward_attend'), ('G.pop("q"), G.pop("mine")', 'G.pop("new"), G.pop("mine")')), NOT_STORED_BACK, ("come from the other ranks",)),
    Row(of(EXCHANGE, "what backward_attend gives is not stored", ('grads["att"], theirs = model', 'grads["new"], theirs = model'), ('grads.pop("att"), grads.pop("kv")', 'grads.pop("new"), grads.pop("kv")')), NOT_STORED_BACK, ("come from the other ranks",)),
    Row(of(CLASS, "the rest in the loop", ('        acts["in", layer + 1] = model.rest', '            acts["in", layer + 1] = model.rest')), IN_THE_LOOP),
    Row(of(CLOSURES, "the rest in the loop", ('            hop += 1\n', '            hop += 1\n            A[layer + 1] = model.rest(layer, A[layer], W[layer], A["q", layer])\n')), IN_THE_LOOP),
    Row(of(CLOSURES, "a step less in the backward pass", ("for hop in range(n):", "for hop in range(n - 1):"), ("if hop + 1 < n else", "if hop + 2 < n else")), A_STEP_LESS, ("bring it home first",)),
    Row(changed("ring_attention", "a step less in the backward pass", ('acts["kv"] = acts.pop(("kv", layer))\n        for step in range(n):', 'acts["kv"] = acts.pop(("kv", layer))\n        for step in range(max(1, n - 1)):')), A_STEP_LESS, ("bring it home first",)),
    Row(of(CLASS, "results of backward_project exchanged", ('model.grad_weights[layer], grads["out"] = model', 'grads["out"], model.grad_weights[layer] = model')), EXCHANGED, ("name the layer",)),
    Row(of(CLOSURES, "results of backward_project exchanged", ('model.grad_weights[layer], G["dy"] = model', 'G["dy"], model.grad_weights[layer] = model')), ("backward_project gives the gradient of the weight first",)),
    Row(of(RING, "results of backward_project exchanged", ('model.grad_weights[layer], grads["out"] = model', 'grads["out"], model.grad_weights[layer] = model')), EXCHANGED, ("name the layer",)),
    Row(of(CLASS, "received from the next rank", ('store["block"] = await self.model.receive(self.previous)', 'store["block"] = await self.model.receive(self.next)')), OTHER_NEIGHBOR, ("goes the wrong way",)),
    Row(of(CLOSURES, "received from the next rank", ('            A["moving"] = await model.receive(left)\n            await out\n            hop', '            A["moving"] = await model.receive(right)\n            await out\n            hop')), OTHER_NEIGHBOR, ("goes the wrong way",)),
    Row(changed("ring_attention", "the last hop of one rank", (SOLUTION_HOP, SOLUTION_HOP.replace("if n > 1", "if True"))), HOME, ("range(model.RANKS - 1)",)),
    Row(of(CLASS, "the last hop of one rank", ("            if n > 1:\n                await model.pass_to", "            if True:\n                await model.pass_to")), HOME, ("range(model.RANKS - 1)",)),
    Row(changed("ring_attention", "gradients are combined", ('kv_grad + grads.pop("kv") if', 'grads.pop("kv").combine(kv_grad) if'), (SOLUTION_HOP, "")), OTHER_KEYS, ("scatterreduce", "the same keys")),
    Row(of(CLASS, "gradients are combined", ('await model.receive(ring.previous) + grads.pop("own")', 'grads["kv"].combine(grads.pop("own"))'), ('            if n > 1:\n                await model.pass_to(ring.next, grads.pop("kv"))\n', "")), OTHER_KEYS, ("scatterreduce", "the same keys")),
    Row(of(CLASS, "gradients of the same keys are combined", ('await model.receive(ring.previous) + grads.pop("own")', '(await model.receive(ring.previous)).combine(grads.pop("own"))')), ("these are gradients of the same keys and values, and add up: kv_grad + theirs",), ("scatterreduce",)),
    Row(of(CLOSURES, "the output for the input", ("model.backward_rest(layer, A[layer]", "model.backward_rest(layer, A[layer + 1]")), (*OUTPUT, "model.activations[7]"), ("forward(",)),
    Row(of(CLASS, "the output for the input", ('model.backward_rest(layer, acts["in", layer]', 'model.backward_rest(layer, acts["in", layer + 1]')), (*OUTPUT, "model.activations['in', 7]"), ("without pop",)),
    Row(of(RING, "the output for the input of the last step", ('layer, acts.pop(layer), grads.pop("out"), weight', 'layer, acts.pop(layer + 1), grads.pop("out"), weight')), (*OUTPUT, "model.activations[7]"), ("forward(",)),
    Row(of(CLOSURES, "the input taken out too soon", ("model.backward_rest(layer, A[layer]", "model.backward_rest(layer, A.pop(layer)")), SOON, ("forward(",)),
    Row(of(CLASS, "the input taken out too soon", ('model.backward_rest(layer, acts["in", layer]', 'model.backward_rest(layer, acts.pop(("in", layer))')), SOON, ("without pop",)),
    Row(of(CLASS, "the gradient taken out too soon", ('acts["in", layer], grads["out"], weights', 'acts["in", layer], grads.pop("out"), weights')), SOON),
    Row(of(RING, "the input taken out by the projection", ("model.project(layer, acts[layer], weight)", "model.project(layer, acts.pop(layer), weight)")), ("project(0, ...) has read it, and it was taken out: rest, backward_rest and backward_project of layer 0 read it, too",), ("under another key",)),
    Row(of(CLOSURES, "the loss of the last layer's input", ("model.loss(A.pop(model.LAYERS)", "model.loss(A.pop(model.LAYERS - 1)")), ("this is the input of layer 7, and rest(7, ...) has run: the loss reads what that gave",), ("forward(7", "pipeline")),
    Row(changed("ring_attention", "the loss of the last layer's input", ("acts.pop(model.LAYERS)", "acts[layer]")), ("this is the input of layer 7, and rest(7, ...) has run: the loss reads what that gave",), ("forward(7", "pipeline")),
    Row(changed("ring_attention", "four ranks", ("n, r = model.RANKS", "n, r = 4")), NEXT, ("goes on with it",)),
    Row(of(CLASS, "four ranks", ("model, model.RANKS\n        self", "model, 4\n        self"), ("Ring(model), model.RANKS", "Ring(model), 4")), NEXT, ("goes on with it",)),
    Row(of(CLASS, "sent to another rank in each step", ("self.model.pass_to(self.next,", "self.model.pass_to((self.model.rank + left) % self.size,")), WRONG_WAY),
    Row(of(CLOSURES, "both to the left", ("right, left = (r + 1) % n, (r - 1) % n", "right, left = (r - 1) % n, (r - 1) % n")), WRONG_WAY),
    Row(of(CLOSURES, "the first gradient not received", ("if hop > 0", "if hop > 1")), LEFT_OUT),
    Row(of(CLASS, "the first gradient not received", ("if step > 0", "if step > 1")), LEFT_OUT),
    Row(of(CLASS, "queries and keys exchanged", ('acts["att", layer], acts["kv", layer] = model.project', 'acts["kv", layer], acts["att", layer] = model.project')), MADE),
    Row(of(EXCHANGE, "queries and keys exchanged", ('acts["att", layer], acts["kv", layer] = model.project', 'acts["kv", layer], acts["att", layer] = model.project')), MADE),
    Row(of(EXCHANGE, "received in a helper, and not stored", ('model.activations["got"] = await', "got = await"), ('model.activations.pop("got")', "got")), ("store it to keep it", "got = await model.receive"), ("acts[\"now\"] = await",)),
    Row(of(CLASS, "a whole turn", ("if left else None", "if self.size > 1 else None")), HOME_AGAIN, ("Let backward_project",)),
    Row(of(CLOSURES, "the last but one gradient not received", ("            if hop > 0:", "            if 0 < hop < n - 1:")), LAST),
    Row(of(CLASS, "the last but one gradient not received", ("            if step > 0:", "            if 0 < step < n - 1:")), LAST),
    Row(of(CLASS, "pieces by the number of layers", ("whole.shard(r, 2 * n).combine(whole.shard(2 * n - 1 - r, 2 * n))", "whole.shard(r, model.LAYERS).combine(whole.shard(model.LAYERS - 1 - r, model.LAYERS))")), PIECES, ("needs no gather",)),
    Row(of(RING, "n pieces of one rank", ("    inp = model.get_activation([0])\n", "    inp = model.get_activation([0])\n    m = 2 * n if n > 1 else 1\n"), ("inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))", "inp.shard(r, m).combine(inp.shard(m - 1 - r, m))")), PIECES, ("needs no gather",)),
    Row(of(CLASS, "updated with a made-up gradient", ("model.update(layer, summed,", "model.update(layer, model.fake_grad(layer, [0]),")), ("grad, ... = model.backward_project(7, ...)",), ("model.backward(",)),
    Row(of(EXCHANGE, "the keys for the queries", ('model.weights[layer], acts["att", layer])\n    grads["out"]', 'model.weights[layer], acts["kv", layer])\n    grads["out"]')), SECOND),
    Row(of(CLOSURES, "the keys for the queries", ('W[layer], A["q", layer])', 'W[layer], A["kv", layer])')), SECOND),
    Row(changed("basic", "state and weight exchanged", ("model.weights[layer], model.opt_states[layer] = model.load", "model.opt_states[layer], model.weights[layer] = model.load")), ("this is an optimizer state, the second of what model.load_weights gives, and the weight is the first",)),
    Row(changed("sequence_parallel", "state and weight exchanged", ("model.weights[layer], model.opt_states[layer] = model.update", "model.opt_states[layer], model.weights[layer] = model.update")), ("this is an optimizer state, the second of what model.update gives, and the weight is the first",)),
    Row(of(CLASS, "sends of the forward pass never awaited", ("            if sending:\n                store[\"block\"] = await self.model.receive(self.previous)\n                await sending\n", "            if sending:\n                store[\"block\"] = await self.model.receive(self.previous)\n                if self.model.grad_activations:\n                    await sending\n")), BEFORE, ("take its place",)),
    Row(of(CLOSURES, "sends of the forward pass never awaited", ("            await out\n            hop += 1", "            hop += 1")), BEFORE, ("take its place",)),
    Row(of(EXCHANGE, "the sum of the layer above", ('grads["kv"] = grads["kv"] + theirs if step else theirs', 'grads["kv"] = grads["kv"] + theirs if "kv" in grads else theirs'), ('grads.pop("kv"))\n        g =', 'grads["kv"])\n        g =')), STALE),
    Row(of(CLASS, "the sum of the layer above", ("            if step > 0:\n", '            if "kv" in grads:\n                grads["kv"] = grads["kv"] + grads.pop("own")\n            elif step > 0:\n'), ('grads.pop("att"), grads.pop("kv"))', 'grads.pop("att"), grads["kv"])')), STALE),
    Row(of(CLOSURES, "the loss on one rank", ('    G["dy"] = model.loss', '    if r == n - 1:\n        G["dy"] = model.loss')), LOSSES, ("A sum begins",)),
    Row(of(RING, "the loss on one rank", ('    grads["out"] = model.loss', '    if r == n - 1:\n        grads["out"] = model.loss')), LOSSES, ("A sum begins",)),
    Row(of(EXCHANGE, "keys of the layer above", ('acts["now"] = acts["kv", layer]', 'acts["now"] = acts["kv", layer + 1]')), ("project(1, ...) gives it, and has not run",)),
    Row(of(CLOSURES, "keys of the layer above", ('A["moving"] = A["kv", layer]', 'A["moving"] = A["kv", layer + 1]')), ("project(1, ...) gives it, and has not run",)),
    Row(of(CLASS, "the output before it is there", ('model.rest(layer, acts["in", layer]', 'model.rest(layer, acts["in", layer + 1]')), ("the input of layer 0 is model.activations['in', 0]",)),
    Row(of(RING, "the output before it is there", ("model.rest(layer, acts[layer]", "model.rest(layer, acts[layer + 1]")), ("the input of layer 0 is model.activations[0]",), ("forward(",)),
    Row(changed("ring_attention", "popped for the send back", ('acts["kv"] = acts.pop(("kv", layer))\n        for step in range(n):\n            send = model.pass_to(after, acts["kv"])', 'acts["kv"] = acts.pop(("kv", layer))\n        for step in range(n):\n            send = model.pass_to(after, acts.pop("kv"))')), KEEPS, ("begins with this rank's own",)),
    Row(of(CLOSURES, "popped for the send back", ('model.pass_to(right, A["moving"]) if hop + 1 < n', 'model.pass_to(right, A.pop("moving")) if hop + 1 < n')), KEEPS, ("begins with this rank's own",)),
    Row(of(CLOSURES, "a gradient received in the first step", ("            if hop > 0:", "            if n > 1:")), FIRST_STEP, ("direction",)),
    Row(of(CLASS, "a gradient received in the first step", ("            if step > 0:", "            if n > 1:")), FIRST_STEP, ("direction",)),
    Row(of(CLASS, "no send of the own keys", ("if left else None", "if left < self.size - 1 else None")), NEXT_KEYS, ("without pop",)),
    Row(of(RING, "no send of the own keys", ('send = model.pass_to(after, acts["kv"]) if step < n - 1 else None', 'send = model.pass_to(after, acts["kv"]) if step else None')), NEXT_KEYS, ("without pop",)),
    Row(of(RING, "projected in each step", ('            acts["att", layer] = model.attend', '            acts["att", layer], _ = model.project(layer, acts[layer], weight)\n            acts["att", layer] = model.attend')), AGAIN, ("one attend for each",)),
    Row(of(EXCHANGE, "projected in each step", ('            acts["att", layer] = model.attend', '            acts["att", layer], _ = model.project(layer, acts[layer], model.weights[layer])\n            acts["att", layer] = model.attend')), AGAIN, ("one attend for each",)),
    Row(of(RING, "forward from layer 1 on", ("    for layer in range(model.LAYERS):\n        weight", "    for layer in range(1, model.LAYERS):\n        weight")), LAYER_0, ("forward(",)),
    Row(of(CLOSURES, "forward from layer 1 on", ("range(model.LAYERS):\n        await", "range(1, model.LAYERS):\n        await")), LAYER_0, ("forward(",)),
]  # fmt: skip
SLOW = [
    (of(CLASS, "a send awaited at once", ("            sending = self.model.pass_to(self.next, store[\"block\"]) if left else None\n", "            if left:\n                await self.model.pass_to(self.next, store[\"block\"])\n"), ("            if sending:\n", "            if left:\n"), ("                await sending\n", "")), ("and then attend(layer 0), which does not need that: keep the call, and await it after that",), ("backward_rest",)),
    (of(RING, "a send awaited at once", ('send = model.pass_to(after, acts["kv"]) if step < n - 1 else None', 'send = step < n - 1\n            if send:\n                await model.pass_to(after, acts["kv"])'), ("                await send\n        acts[", "        acts[")), ("and then attend(layer 0), which does not need that",), ("backward_rest",)),
    (of(EXCHANGE, "queries never taken out", ('acts.pop(("att", layer))', 'acts["att", layer]')), ("1 slice (1/4) of attended queries that nothing reads again", "It was read last by backward_rest"), ("Keep this rank's own slice only",)),
    (of(CLASS, "queries never taken out", ('acts.pop(("att", layer))', 'acts["att", layer]')), ("8 slices (1/4) of attended queries at its peak", "is not read again after backward_rest"), ("Keep this rank's own slice only",)),
]  # fmt: skip
STARS = [
    (of(CLASS, "gradients awaited at once"), ("and then backward_attend(layer 7), which does not need that: keep the call, and await it after that",)),
    (of(CLOSURES, "updates too soon"), ("update(layer 7), for which nothing here waits, comes before that: do it when this message and the one that comes are on their way",)),
    (changed("ring_attention", "a whole turn", ('model.pass_to(after, acts["kv"]) if step < n - 1 else None\n            acts["att"', 'model.pass_to(after, acts["kv"]) if n > 1 else None\n            acts["att"'), ("        acts[layer + 1] = model.rest", '        acts.pop("kv", None)\n        acts[layer + 1] = model.rest')), ("bring keys and values back to the rank that has them, and n ranks have n - 1 hops",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.program.name)
def test_words_on_a_ring_lead_to_the_fix(row: Row) -> None:
    check_words(row)


@pytest.mark.parametrize(("program", "says", "never"), SLOW, ids=lambda one: getattr(one, "name", ""))
def test_what_a_ring_waits_for_and_holds_is_told(
    program: Program, says: tuple[str, ...], never: tuple[str, ...]
) -> None:
    here = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    told = f"{here.costs_time}\n{here.costs_memory}"
    assert here.right and here.status != PASS, here.message
    assert all(words in told for words in says) and not any(words in told for words in never), told


@pytest.mark.parametrize(("program", "says"), STARS, ids=lambda one: getattr(one, "name", ""))
def test_what_a_ring_lacks_for_its_star_is_told(program: Program, says: tuple[str, ...]) -> None:
    here = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == PASS, here.message
    assert all(words in here.costs_time for words in says), here.costs_time


def test_a_schedule_in_steps_is_shown_for_one_layer_each_way() -> None:
    shown = str(hint("ring_attention", 2)).partition("The first layer forward, and the first one back, of a schedule")[
        2
    ]
    assert {"0P0", "<3+7BP0", "7AR"} <= {*shown.split()} and "1P0" not in shown and "loss" not in shown
    assert len(shown.splitlines()) < 20
