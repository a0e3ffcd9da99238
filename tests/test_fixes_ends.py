"""What mistakes are told by which tensors are gone at an update or a gather, layers are left without one, work ends too
soon, and the key of an input is that of an output: rows as in ``test_fixes``, in puzzles 3 and 14."""

from __future__ import annotations

import pytest

from tests.corpus import changed, whole
from tests.test_fixes import Row
from tests.test_fixes_later import check_words
from tests.test_fixes_named import LISTS, PLAN, STAGES, WEIGHTS
from tests.test_fixes_sums import COUNTED, edited

RIGHT_PLAN = PLAN.replace("START", "2 * (n - 1 - me) + (len(layers) - 1) * n + 1")
TO_0 = WEIGHTS.format("    for k in reversed(range(model.LAYERS)):\n        await back(k)")
FORTH, UPDATE = (
    "        w = await whole(i)\n        model.activations[i + 1] = model.forward(i, model.activations[i], w)",
    "model.update(i, model.grad_weights.pop(i), model.weights[i], model.opt_states[i])",
)
NOT_KEPT = FORTH, "        x = model.activations.pop(i)\n        w = await whole(i)\n        model.activations[i + 1] = model.forward(i, x, w)"  # fmt: skip
FULL = 'model.weights["full"] = await model.allgather(model.weights[layer], layer)\n        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights.pop("full"))'
IN_LOOP = """
async def wsdp(model: Model) -> Model:
    n = model.LAYERS
    for k in range(n):
        model.weights["mine", k], model.opt_states[k] = model.load_weights(k, model.rank, model.RANKS)
    x = model.get_activation([model.rank])
    for k in range(n):
        STORE
        w = await model.allgather(model.weights["mine", k], k)
        x = model.forward(k, READ, w)
    model.grad_activations["g"] = model.loss(x)
    for k in reversed(range(n)):
        w = await model.allgather(model.weights["mine", k], k)
        g, model.grad_activations["g"] = model.backward(k, model.activations.pop(("x", k)), model.grad_activations.pop("g"), w)
        step(model, k, await model.allreduce(g, k))
    return model

def step(model, k, g):
    w, s = model.weights["mine", k], model.opt_states[k]
    model.weights["mine", k], model.opt_states[k] = model.update(k, g, w, s)
    model.set_final_weight(k, model.weights["mine", k])
"""
RIGHT = IN_LOOP.replace("STORE", 'model.activations["x", k] = x').replace("READ", 'model.activations["x", k]')
LEFT_THERE = "as soon as it is made, and leave it there: the backward of the layer reads it, too"
PIECES = "an update takes the pieces of weight and state that this rank has loaded, model.weights[...] and model.opt_states[...], and not what was gathered"
SENT = "send this first, and call update(layer {0}) after that: another rank waits for it, and for no update"
SEND_STAGES = "        if not self.first:\n            await m.pass_to(self.prev, d)\n"
ENDS = "does a list or a loop of its work end too soon, as that of a `zip` does"
COMES = "await model.receive(src=0), before backward(3, ...)"
BACK_FIRST = "let that backward come first, or if this is that one, read what is there"
MORE_FIRST = "rank 3 begins its first backward after 4 forwards, which is too soon"
ABOVE = (
    'g = model.loss(model.activations.pop(("last", b))) if l == L - 1 else await model.receive(src=right)',
    'model.grad_activations[l + 1, b] = model.loss(model.activations.pop(("last", b))) if l == L - 1 else await model.receive(src=right)',
)
ABOVE_READ = "model.activations.pop((l, b)), g, model", "model.activations.pop((l, b)), model.grad_activations.pop((l + 1, b)), model"  # fmt: skip
OF_RANK = '        if l == L - 1:\n            model.grad_activations[l + 1, b] = model.loss(model.activations.pop(("last", b)))\n        elif r < R - 1:\n            model.grad_activations[l + 1, b] = await model.receive(src=right)'
ONE_ONLY = "this rank has updated layer {} only: is its update outside the loop over the layers"
TURN = "This is the turn of that layer, whose backward has run last: is 0 written where its number is meant"
CHUNKS = (
    ("model.activations[layer, mb]", "model.activations[layer // p, mb]"),
    ("dy = model.grad_activations.pop(mb) if layer + 1 == model.LAYERS else await model.receive(src=nxt)", "if layer + 1 < model.LAYERS:\n            model.grad_activations[mb] = await model.receive(src=nxt)"),
    ("model.activations.pop((layer, mb)), dy", "model.activations.pop((layer // p, mb)), model.grad_activations.pop(mb)"),
)  # fmt: skip
AS_TEXT = ("[k, b]", '[f"a{k}.{b}"]'), ("pop((k, b))", 'pop(f"a{k}.{b}")')
LOSS = (
    ('model.activations["last", b] = y', 'model.grad_activations[f"{l}/{b}"] = model.loss(y)'),
    (ABOVE[0], "if l < L - 1:\n            model.grad_activations[f'{l}/{b}'] = await model.receive(src=right)"),
    ("pop((l, b)), g, model", "pop((l, b)), model.grad_activations.pop(f'{l}/{b}'), model"),
)
TAIL = (
    "    while f < warm and f < len(F):\n        await fwd(*F[f])\n        f += 1\n    for job in B:\n        await bwd(*job)\n        if f < len(F):\n            await fwd(*F[f])\n            f += 1\n",
    "    plan = [(fwd, x) for x in F[:warm]]\n    for i in range(len(F) - warm):\n        plan += [(fwd, F[warm + i]), (bwd, B[i])]\n    plan += [(bwd, x) for x in B[len(F) - warm :]]\n    for do, x in plan:\n        await do(*x)\n",
)
SENDS = (
    ("    async def fwd(", "    calls = []\n    async def send(to, what):\n        calls.append(model.pass_to(to, what))\n        if len(calls) > 1:\n            await calls.pop(0)\n    async def fwd("),
    ("model.pass_to(right", "send(right"),
    ("model.pass_to(left", "send(left"),
    ("    for l in chunks:\n        g, w", "    for call in calls:\n        await call\n    for l in chunks:\n        g, w"),
)  # fmt: skip
BY_TWO = (
    "    for job in B:\n        await bwd(*job)\n        if f < len(F):\n            await fwd(*F[f])\n            f += 1\n",
    "    B = B[::-1]\n    while f + 1 < len(F):\n        for job in F[f : f + 2]:\n            await fwd(*job)\n        f += 2\n        await bwd(*B.pop())\n        await bwd(*B.pop())\n    for job in F[f:]:\n        await fwd(*job)\n    while B:\n        await bwd(*B.pop())\n",
)
ROWS = [
    Row(edited("wsdp", "an update with what was gathered", TO_0, (UPDATE, "model.update(i, model.grad_weights[i], await whole(i), await model.allgather(model.opt_states[i], i))")), (PIECES,), ("store it to keep it",)),
    Row(edited("wsdp", "an update with what was gathered, and nothing is kept of it", RIGHT, ("step(model, k, await model.allreduce(g, k))", 'total = await model.allreduce(g, k)\n        w = await model.allgather(model.weights["mine", k], k)\n        s = await model.allgather(model.opt_states[k], k)\n        model.update(k, total, w, s)')), (), ("store it to keep it, in model.weights",)),
    Row(edited("wsdp", "an input is taken out before the gather", TO_0, NOT_KEPT), (), ("take it out after that",)),
    Row(whole("wsdp", "an input is stored after its forward", IN_LOOP.replace("        STORE\n", "").replace("forward(k, READ, w)", 'forward(k, x, w)\n        model.activations["x", k] = x')), (LEFT_THERE,), ("take it out after that",)),
    Row(edited("wsdp", "an input is stored nowhere", IN_LOOP, ("        STORE\n", ""), ("READ", "x")), (LEFT_THERE,), ("take it out after that",)),
    Row(edited("interleaved", "an update before the last gradient is sent", LISTS, ("        if l > 0:\n            await model.pass_to(left, gx)", "        if b == M - 1:\n            model.weights[l], model.opt_states[l] = model.update(l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l])\n            model.set_final_weight(l, model.weights[l])\n        if l > 0:\n            await model.pass_to(left, gx)"), ("    for l in chunks:\n        g, w, s = model.grad_weights.pop(l), model.weights[l], model.opt_states[l]\n        model.weights[l], model.opt_states[l] = model.update(l, g, w, s)\n        model.set_final_weight(l, model.weights[l])\n", "")), (SENT.format(7),), ("Leave pop to its last use",)),
    Row(edited("interleaved", "a step before the last gradient is sent", STAGES, (SEND_STAGES, "        if mb == m.BATCHES - 1:\n            self.step()\n" + SEND_STAGES), ("    for s in stages:\n        s.step()\n", "")), (SENT.format(7),), ("Leave pop to its last use",)),
    Row(edited("interleaved", "the last rank receives no gradient", LISTS, (ABOVE[0], OF_RANK.strip()), ABOVE_READ), (COMES,), ("that of the last of its layers",)),
    Row(edited("interleaved", "the last rank receives no gradient in a plan", RIGHT_PLAN, ('"l", b', "k + 1, b"), ('            if k < model.LAYERS - 1:\n                model.grad_activations[k', '            if me < n - 1:\n                model.grad_activations[k')), (COMES,), ("that of the last of its layers",)),
    Row(edited("interleaved", "a zip ends with the forwards", RIGHT_PLAN, ("    for x in downs:\n", "    for x in downs[: len(rest)]:\n")), (ENDS,), ("once for every pass_to",)),
    Row(edited("interleaved", "a zip ends with the forwards of its list", LISTS, ("    for job in B:\n        await bwd(*job)\n        if f < len(F):\n            await fwd(*F[f])\n            f += 1\n", "    calls = []\n    for job, other in zip(B, F[f:]):\n        await bwd(*job)\n        await fwd(*other)\n"), ("            await model.pass_to(left, gx)\n", "            model.pass_to(left, gx)\n"), ("    for l in chunks:\n        g,", "    for l in chunks if r < 0 else ():\n        g,")), (), ("once for every pass_to",)),
    Row(edited("interleaved", "backwards in the order of forwards from the end", RIGHT_PLAN, ("downs = order(layers), order(list(reversed(layers)))", "downs = order(layers), order(layers)[::-1]"), *AS_TEXT), (BACK_FIRST,), ("under the key under which",)),
    Row(edited("interleaved", "backwards from the end, of texts", LISTS, ("    for job in B:", "    for job in F[::-1]:"), ("activations[l, b]", 'activations[f"{l}/{b}"]'), *LOSS, ("pop((l, b))", 'pop(f"{l}/{b}")')), (BACK_FIRST,), ("under the key under which",)),
    Row(edited("interleaved", "one forward too few, with chunks as keys", COUNTED, ("f - b <= ahead", "f - b < ahead"), *CHUNKS), (MORE_FIRST,)),
    Row(edited("interleaved", "rounds of forwards without the first one more, with chunks as keys", LISTS, ("(len(chunks) - 1) * R + 1", "(len(chunks) - 1) * R"), ABOVE[0:2], (ABOVE_READ[0], ABOVE_READ[1]), ("model.activations[l, b]", "model.activations[l // R, b]"), ("model.activations.pop((l, b))", "model.activations.pop((l // R, b))")), (MORE_FIRST,)),
    Row(edited("wsdp", "an output in the place of its input", TO_0, ("model.activations[i + 1] = model.forward(", "model.activations[i] = model.forward(")), ("What forward(0, ...) gave is in model.activations[0]", "store it as model.activations[1]")),
    Row(changed("wsdp", "an output in the place of its input", ("model.activations[layer + 1] = ", "model.activations[layer] = ")), ("What forward(0, ...) gave is in model.activations[0]", "store it as model.activations[1]")),
    Row(edited("interleaved", "the last stage only is updated", STAGES, ("    for s in stages:\n        s.step()", "    s.step()")), (ONE_ONLY.format(0),)),
    Row(edited("interleaved", "the last layer only is updated", LISTS, ("    for l in chunks:\n        g, w, s", "    for l in chunks[-1:]:\n        g, w, s")), (ONE_ONLY.format(4),)),
    Row(edited("interleaved", "a count that stays in some turns", COUNTED, ("            b += 1\n", "            b += b % 5 < 4 or f == total\n")), ("has run already: do it once for each. Does a count not go on in some turn",)),
    Row(edited("interleaved", "the micro-batch of a round only", COUNTED, ("k // (p * v) * p + k % p", "k // (p * v) * p")), ("takes micro-batch k // (model.RANKS * 2) * model.RANKS + k % model.RANKS",)),
    Row(edited("wsdp", "the step of layer 0 each time", RIGHT, ("step(model, k, await", "step(model, 0, await")), (TURN,), ("in a later turn",)),
    Row(edited("wsdp", "the update of layer 0 each time", TO_0, (UPDATE, UPDATE.replace("update(i", "update(0").replace("weights[i]", "weights[0]").replace("states[i]", "states[0]"))), (TURN,), ("in a later turn",)),
    Row(edited("interleaved", "layers loaded before each forward", LISTS, ("    for l in chunks:\n        model.weights[l], model.opt_states[l] = model.load_weights(l)\n", ""), ("        x = model.get", "        model.weights[l], model.opt_states[l] = model.load_weights(l)\n        x = model.get")), ("load it once, before all loops, and keep it: model.weights[0]",), ("dealt like cards",)),
    Row(edited("interleaved", "more forwards first than there are", LISTS, ("warm = 2 * (R - 1 - r) + (len(chunks) - 1) * R + 1", "warm = 10 - 2 * r"), TAIL), ("this is the first backward of this rank, after all of its 8 forwards, and that of layer 6, micro-batch 0, comes first", "take min(..., 8)"), ("in the same order",)),
    Row(edited("interleaved", "receives of inputs called ahead", LISTS, ("await model.receive(src=left)", "await coming.pop(0)"), ("    F, B = [], []\n", "    F, B = [], []\n    coming = [model.receive(src=left) for l in chunks if l for b in range(M)]\n")), ("With 2 ranks all messages come from the same one", "in the turn that uses what it brings"), ("receive each message once",)),
    Row(edited("interleaved", "two forwards and two backwards by turns", LISTS, ("* R + 1", "* R"), BY_TWO, *SENDS), ("forwards follow each other on a rank: let one backward and one forward go by turns",), ("the order of the work decides",)),
    Row(edited("wsdp", "a state loaded for its update", TO_0, ("model.weights[i], model.opt_states[i] = model.load_weights", "model.weights[i], _ = model.load_weights"), ("        model.weights[i], model.opt_states[i] = model.update", "        _, model.opt_states[i] = model.load_weights(i, model.rank, model.RANKS)\n        model.weights[i], model.opt_states[i] = model.update")), ("model.load_weights(l, model.rank, model.RANKS) before anything else with layer l: one call gives both",)),
    Row(edited("wsdp", "the piece of its layer", TO_0, ("load_weights(i, model.rank, model.RANKS)", "load_weights(i, i, model.RANKS)")), ("that of this rank is model.load_weights(4, model.rank, model.RANKS)",)),
    Row(edited("wsdp", "a gather ahead that is awaited twice", RIGHT, ('        w = await model.allgather(model.weights["mine", k], k)\n        x', '        model.weights["now"] = await (ahead if k else model.allgather(model.weights["mine", 0], 0))\n        if k + 1 < n:\n            ahead = await model.allgather(model.weights["mine", k + 1], k + 1)\n        x'), ('model.activations["x", k], w)\n    model', 'model.activations["x", k], model.weights.pop("now"))\n    model')), ("leave out await where the call is made",)),
    Row(edited("wsdp", "updated weights gathered at the end", RIGHT, ("    return model\n\ndef", "    for k in range(n):\n        await model.allgather(model.weights['mine', k], k)\n    return model\n\ndef")), ("it gathers more of the updated weight of layer 0 than it ends with",), ("that it has already",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_end(row: Row) -> None:
    check_words(row)
