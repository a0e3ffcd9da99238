"""What mistakes are told in a pipeline whose layers are dealt like cards, and by keys of a layer or of a micro-batch:
rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import Model, run
from lib.learner.missing import MissingTensor
from lib.record.labels import DEALT as DEALT_RULE
from tests.corpus import Program, changed, whole
from tests.slow import some
from tests.test_fixes import Row
from tests.test_fixes_later import check_at_a_shell, check_words

BY_COUNT = """
async def interleaved(model: Model) -> Model:
    p, r = model.RANKS, model.rank
    v = model.LAYERS // p
    total = v * model.BATCHES
    nxt, prev = (r + 1) % p, (r - 1) % p
    for c in range(v):
        layer = c * p + r
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def place(k, backwards=False):
        chunk = k // p % v
        mb = k // (p * v) * p + k % p
        if backwards:
            chunk = v - 1 - chunk
        return chunk * p + r, mb

    async def do_forward(k):
        layer, mb = place(k)
        x = model.get_activation([mb]) if layer == 0 else await model.receive(src=prev)
        model.activations[layer, mb] = x
        y = model.forward(layer, x, model.weights[layer])
        if layer + 1 == model.LAYERS:
            model.grad_activations[mb] = model.loss(y)
        else:
            await model.pass_to(nxt, y)

    async def do_backward(k):
        layer, mb = place(k, True)
        dy = model.grad_activations.pop(mb) if layer + 1 == model.LAYERS else await model.receive(src=nxt)
        dw, dx = model.backward(layer, model.activations.pop((layer, mb)), dy, model.weights[layer])
        model.grad_weights[layer] = dw if layer not in model.grad_weights else model.grad_weights[layer] + dw
        if layer:
            await model.pass_to(prev, dx)

    ahead = min(total, (p - r - 1) * 2 + (v - 1) * p)
    f = b = 0
    while b < total:
        if f < total and f - b <= ahead:
            await do_forward(f)
            f += 1
        else:
            await do_backward(b)
            b += 1
    for layer in range(r, model.LAYERS, p):
        dw, w, state = model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        model.weights[layer], model.opt_states[layer] = model.update(layer, dw, w, state)
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
"""Puzzle 14 as a learner may write it who counts the forwards and the backwards of a rank."""
BY_BATCH = """
async def one_f_one_b(model: Model) -> Model:
    R, r, n = model.RANKS, model.rank, model.LAYERS // model.RANKS
    mine = list(range(r * n, r * n + n))
    A, G, W = model.activations, model.grad_activations, model.weights
    for l in mine:
        W[l], model.opt_states[l] = model.load_weights(l)

    async def fwd(m):
        x = model.get_activation([m]) if r == 0 else await model.receive(src=r - 1)
        for l in mine:
            A[m, l] = x
            x = model.forward(l, x, W[l])
        if r == R - 1:
            G[m] = model.loss(x)
        else:
            await model.pass_to(r + 1, x)

    async def bwd(m):
        if r < R - 1:
            G[m] = await model.receive(src=r + 1)
        for l in mine[::-1]:
            g, G[m] = model.backward(l, A.pop((m, l)), G.pop(m), W[l])
            model.grad_weights[l] = model.grad_weights[l] + g if l in model.grad_weights else g
        d = G.pop(m)
        if r > 0:
            await model.pass_to(r - 1, d)

    warm = min(R - r, model.BATCHES)
    for m in range(warm):
        await fwd(m)
    for m in range(model.BATCHES):
        await bwd(m)
        if m + warm < model.BATCHES:
            await fwd(m + warm)
    for l in mine:
        W[l], model.opt_states[l] = model.update(l, model.grad_weights.pop(l), W[l], model.opt_states[l])
        model.set_final_weight(l, W[l])
    return model
"""
"""Puzzle 13 with keys of the micro-batch before the layer, and gradients under their micro-batch alone."""
CODED = """
async def interleaved(model: Model) -> Model:
    R, r, L, M = model.RANKS, model.rank, model.LAYERS, model.BATCHES
    mine = list(range(r, L, R))
    code = lambda l, m: l * M + m
    A, G, W, S, D = model.activations, model.grad_activations, model.weights, model.opt_states, model.grad_weights
    for l in mine:
        W[l], S[l] = model.load_weights(l)
    todo_f = [(l, m) for start in range(0, M, R) for l in mine for m in range(start, start + R)]
    todo_b = [(l, m) for start in range(0, M, R) for l in mine[::-1] for m in range(start, start + R)]

    async def f():
        l, m = todo_f.pop(0)
        A[code(l, m)] = model.get_activation([m]) if l == 0 else await model.receive(src=(r - 1) % R)
        out = model.forward(l, A[code(l, m)], W[l])
        if l == L - 1:
            G[code(l, m)] = model.loss(out)
        else:
            await model.pass_to((r + 1) % R, out)

    async def b():
        l, m = todo_b.pop(0)
        if l < L - 1:
            G[code(l, m)] = await model.receive(src=(r + 1) % R)
        dw, dx = model.backward(l, A.pop(code(l, m)), G.pop(code(l, m)), W[l])
        D[l] = D[l] + dw if l in D else dw
        if l > 0:
            await model.pass_to((r - 1) % R, dx)

    for _ in range(min(len(todo_f), (R - 1 - r) * 2 + (len(mine) - 1) * R + 1)):
        await f()
    while todo_b:
        await b()
        if todo_f:
            await f()
    for l in mine:
        W[l], S[l] = model.update(l, D.pop(l), W[l], S[l])
        model.set_final_weight(l, W[l])
    return model
"""
"""Puzzle 14 with keys in a code of the learner's own, in lists of what is to be done."""
BY_PLACE = """
async def pipeline(model: Model) -> Model:
    n, r = model.LAYERS // model.RANKS, model.rank
    a = r * n
    acts, grads = model.activations, model.grad_activations
    for i in range(n):
        model.weights[i], model.opt_states[i] = model.load_weights(a + i)
    x = model.get_activation(range(model.BATCHES)) if r == 0 else await model.receive(src=r - 1)
    for i in range(n):
        acts[i] = x
        x = model.forward(a + i, acts[i], model.weights[i])
    if r < model.RANKS - 1:
        await model.pass_to(r + 1, x)
        g = await model.receive(src=r + 1)
    else:
        g = model.loss(x)
    grads["now"] = g
    for i in reversed(range(n)):
        model.grad_weights[i], grads["now"] = model.backward(a + i, acts.pop(i), grads.pop("now"), model.weights[i])
    if r > 0:
        await model.pass_to(r - 1, grads.pop("now"))
    grads.clear()
    for i in range(n):
        grad, state = model.grad_weights.pop(i), model.opt_states[i]
        model.weights[i], model.opt_states[i] = model.update(a + i, grad, model.weights[i], state)
        model.set_final_weight(a + i, model.weights[i])
    return model
"""
"""Puzzle 5 with keys that count the layers of a rank."""
CODES = ("l * M + m", 'f"{l}/{m}"', "(l // R, m)")


def coded(code: str, name: str, *edits: tuple[str, str]) -> Program:
    """The program of puzzle 14 with keys in this code, and each ``old`` replaced by ``new``."""
    return edited("interleaved", CODED.replace(CODES[0] + "\n", code + "\n"), f"{name}, keys {code}", *edits)


def by_place(name: str, *edits: tuple[str, str]) -> Program:
    """The program of puzzle 5 with each ``old`` replaced by ``new``."""
    return edited("pipeline", BY_PLACE, name, *edits)


def counted(name: str, *edits: tuple[str, str]) -> Program:
    """The program of puzzle 14 with each ``old`` replaced by ``new``."""
    return edited("interleaved", BY_COUNT, name, *edits)


def by_batch(name: str, *edits: tuple[str, str]) -> Program:
    """The program of puzzle 13 with each ``old`` replaced by ``new``."""
    return edited("one_f_one_b", BY_BATCH, name, *edits)


def edited(puzzle: str, source: str, name: str, *edits: tuple[str, str]) -> Program:
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return whole(puzzle, name, source)


LOADED = "    for layer in mine:\n        model.weights[layer], model.opt_states[layer] = model.load"
LOADS = "    for layer in range(first, end):\n        model.weights[layer], model.opt_states[layer] = model.load"
DEALT = "layers are dealt like cards here: mine = range(model.rank, model.LAYERS, model.RANKS)"
CARDS = [
    Row(
        counted(
            "one final weight after the loop",
            ("        model.set_final_weight(layer, m", "    model.set_final_weight(layer, m"),
        ),
        ("rank 0 has updated layers 0, 4, and has set the final weight of layer 4 only: model.set_final_weight(",),
    ),
    Row(
        changed(
            "ddp", "one final weight after the loop", ("        model.set_final_weight(", "    model.set_final_weight(")
        ),
        ("rank 0 has updated layers 0, 1, and has set the final weight of layer 0 only: model.set_final_weight(",),
    ),
    Row(
        counted(
            "the output of the last layer is sent, too",
            ("        else:\n            await model.pass_to(nxt, y)", "        await model.pass_to(nxt, y)"),
        ),
        ("goes into model.loss, and to no other rank: leave out this send where the loss is called",),
        ("leave pop to its last use",),
    ),
    Row(
        counted("layers dealt by their number on a rank", ("layer = c * p + r\n", "layer = c * v + r\n")),
        ("rank 0 has loaded layers 0, 2, and " + DEALT,),
        ("let each rank do",),
    ),
    Row(
        changed(
            "interleaved",
            "loads its layers from the back",
            (LOADED, LOADED.replace("in mine", "in range(top - model.rank, -1, -ranks)")),
        ),
        ("rank 0 has loaded layers 3, 7, and " + DEALT,),
        ("is that of rank 3",),
    ),
    Row(
        changed(
            "one_f_one_b",
            "loads layers like cards",
            (LOADS, LOADS.replace("range(first, end)", "range(model.rank, model.LAYERS, model.RANKS)")),
        ),
        ("layer 1 is that of rank 1", "This one has loaded layers 0, 4: are these the ones that it should have?"),
        (DEALT,),
    ),
    Row(
        changed(
            "pipeline",
            "loads layers like cards",
            (LOADS, LOADS.replace("range(first, end)", "range(model.rank, model.LAYERS, model.RANKS)")),
        ),
        ("This one has loaded layers 0, 4: are these the ones that it should have?",),
    ),
]
LONE = [
    Row(
        by_batch(
            "no gradient is received",
            ("        if r < R - 1:\n            G[m] = await model.receive(src=r + 1)\n", ""),
        ),
        ("Is this the gradient for layer 1? Then layer 2 is on rank 1, and gradients come from there",),
        ("backward(0", "comes first, and gives it"),
    ),
    Row(
        by_batch("what the backward gives is not stored", ("g, G[m] = model.backward", "g, d = model.backward")),
        (
            "an ActivationGrad of layer 7 was there and was taken out, and the backward of that layer has read it: what it gives is to be stored here",
        ),
        ("backward(0",),
    ),
    Row(
        by_batch(
            "inputs of all layers under the micro-batch", ("A[m, l] = x", "A[m] = x"), ("A.pop((m, l))", "A.pop(m)")
        ),
        ("this rank has layers 6, 7, and each input has a key of its own, model.activations[layer, micro_batch]",),
        ("get_activation",),
    ),
    Row(
        by_batch(
            "the gradient of the loss is sent on",
            ("            G[m] = model.loss(x)", "            await model.pass_to(r - 1, model.loss(x))"),
        ),
        ("loss(...) gave it, and it was sent to rank 2. backward(7, ...), which reads it, runs on this rank",),
        ("layer 0 is on rank 0",),
    ),
    Row(
        by_batch("the loss under the next micro-batch", ("G[m] = model.loss(x)", "G[m + 1] = model.loss(x)")),
        ("model.grad_activations[1], which is not its number",),
    ),
    Row(
        counted(
            "the last micro-batch goes back first",
            ("chunk = v - 1 - chunk", "chunk, mb = v - 1 - chunk, model.BATCHES - 1 - mb"),
        ),
        (
            "this rank has not run forward(7, ...) for micro-batch 7 yet",
            "take what is ready, micro-batch 0, as what has come first goes back first",
        ),
        ("layer above", "backward(7, ...) has to run first"),
    ),
    Row(
        counted(
            "each round goes back from its last micro-batch on",
            ("chunk = v - 1 - chunk", "chunk, mb = v - 1 - chunk, k // (p * v) * p + p - 1 - k % p"),
        ),
        (
            "this rank has not run forward(7, ...) for micro-batch 3 yet",
            "take what is ready, micro-batch 0, as what has come first goes back first",
        ),
        ("backward(3, ...)",),
    ),
    Row(
        counted(
            "the gradient of the loss goes round the ring",
            ("model.grad_activations[mb] = model.loss(y)", "await model.pass_to(nxt, model.loss(y))"),
        ),
        (
            "loss(...) gave it, and it was sent to rank 0. backward(7, ...), which reads it, runs on this rank, so keep it here, model.grad_activations[0] = model.loss(...)",
        ),
        ("backward(-1", "layer 0 is on rank 0"),
    ),
    Row(
        changed(
            "interleaved",
            "the gradient of the loss is sent to the first rank",
            (
                "            model.activations[top + 1, mb] = out\n",
                "            await model.pass_to(after, model.loss(out))\n",
            ),
            ("model.loss(model.activations.pop((top + 1, mb)))", "model.grad_activations.pop(mb)"),
        ),
        ("and it was sent to rank 0. backward(7, ...), which reads it, runs on this rank",),
        ("backward(-1", "layer 0 is on rank 0"),
    ),
    Row(
        counted("the micro-batch is the count", ("mb = k // (p * v) * p + k % p", "mb = k % model.BATCHES")),
        ("model.grad_activations[4], which is not its number: count the micro-batch right where it is stored",),
    ),
]
OWN = "is it stored under another key than it is looked for? Each has a key of its own, model."
ANYWHERE = [
    Row(
        counted(
            "weights under the chunk",
            (
                "model.weights[layer], model.opt_states[layer] = model.load",
                "model.weights[c], model.opt_states[layer] = model.load",
            ),
            ("model.forward(layer, x, model.weights[layer])", "model.forward(layer, x, model.weights[layer % p])"),
        ),
        ("the weight of layer 1 is in model.weights[0] here: " + OWN + "weights[layer]",),
        ("model.weights[1]",),
    ),
    Row(
        counted(
            "weights under the chunk, read from the last one on",
            (
                "model.weights[layer], model.opt_states[layer] = model.load",
                "model.weights[c], model.opt_states[layer] = model.load",
            ),
            (
                "model.forward(layer, x, model.weights[layer])",
                "model.forward(layer, x, model.weights[v - 1 - layer // p])",
            ),
        ),
        ("model.weights[0], where it is stored under its layer",),
    ),
    Row(
        counted(
            "inputs under the chunk of the count",
            ("model.activations[layer, mb] = x", "model.activations[k // p % v, mb] = x"),
            ("model.activations.pop((layer, mb))", "model.activations.pop((k // p % v, mb))"),
        ),
        (
            "the input of layer 7, micro-batch 0, is in model.activations[1, 0] here: "
            + OWN
            + "activations[layer, micro_batch]",
        ),
        ("keep what forward",),
    ),
    Row(
        counted(
            "inputs under the count",
            ("model.activations[layer, mb] = x", "model.activations[k] = x"),
            ("model.activations.pop((layer, mb))", "model.activations.pop(k)"),
        ),
        ("the input of layer 7, micro-batch 0, is in model.activations[4] here: " + OWN,),
        ("keep what forward",),
    ),
    Row(
        changed(
            "interleaved",
            "inputs of the layer below",
            ("inp = model.activations.pop((layer, mb))", "inp = model.activations.pop((layer - ranks, mb))"),
        ),
        ("the input of layer 7, micro-batch 0, is in model.activations[7, 0] here: take it from there",),
    ),
    Row(
        by_batch(
            "inputs by their place from the end",
            ("A[m, l] = x", "A[m, l - mine[0]] = x"),
            ("A.pop((m, l))", "A.pop((m, mine[-1] - l))"),
        ),
        ("the input of layer 7, micro-batch 0, is in model.activations[0, 1] here: " + OWN,),
        ("keep what forward",),
    ),
    Row(
        changed(
            "pipeline",
            "weights by their place from the end",
            (
                "model.forward(\n            layer, model.activations[layer], model.weights[layer]",
                "model.forward(\n            layer, model.activations[layer], model.weights[end - 1 - layer + first]",
            ),
        ),
        ("model.weights[0], where it is stored under its layer",),
    ),
]
COUNTED = [
    Row(
        counted(
            "two layers on each rank, whatever their number",
            ("chunk = k // p % v", "chunk = k // p % 2"),
            ("v = model.LAYERS // p\n", "v = model.LAYERS // p\n    assert model.LAYERS > 0\n"),
        ),
        (
            "micro-batch 0 has gone through layers 0, 2 of this rank, and layers 4, 6 come before the next input",
            "4 here. Is there a number, such as 2, in the place of that?",
        ),
        ("get_activation for layer",),
    ),
    Row(
        changed(
            "interleaved",
            "two of its layers in each round, whatever their number",
            (
                "for some in rounds for layer in mine for mb",
                "for some in rounds for layer in [*mine[:2], *mine[:2], *mine[2:]][: len(mine)] for mb",
            ),
        ),
        ("micro-batch 0 has gone through layers 0, 2 of this rank", "Is there a number, such as 2"),
    ),
    Row(
        counted("the micro-batch by the layers of a rank", ("mb = k // (p * v) * p + k % p", "mb = k // v")),
        (
            "a round takes micro-batches 0-3, as many as there are ranks, through layer 0, and then the same ones through layer 4, with inputs that come as messages: is the micro-batch of this turn counted right?",
        ),
        ("slice",),
    ),
    Row(
        changed(
            "interleaved",
            "an input twice in each round",
            (
                "for some in rounds for layer in mine for mb in some]",
                "for some in rounds for layer in mine for mb in [some[i // 2] for i in range(ranks)]]",
            ),
        ),
        ("So far this rank has run layer 0 on micro-batch 0, and a round takes micro-batches 0-3",),
        ("slice",),
    ),
]
COUNTED += [
    Row(
        counted("backwards begin one layer too high", ("chunk = v - 1 - chunk", "chunk = v - chunk")),
        (
            "backward(layer 7) takes it",
            "Counted from 0 it is number 1 of this rank's layers 3, 7, and after it comes number 0",
        ),
    ),
    Row(
        changed(
            "interleaved",
            "backwards begin with the first layer",
            ("for layer in reversed(mine) for mb", "for layer in mine for mb"),
        ),
        ("Counted from 0 it is number 1 of this rank's layers 3, 7, and after it comes number 0",),
    ),
]
FIRST = "let that backward come first, or if this is that one, read what is there"
NOT_HABIT = ("there is no layer", "is that of layer", "ran on rank", "never stored")
IN_CODE = [
    Row(
        counted(
            "the gradient of the loss by its layer",
            ("model.grad_activations.pop(mb) if", "model.grad_activations.pop(layer) if"),
        ),
        (
            "what is stored here has its micro-batch as its key, and no layer, so that 7 is micro-batch 7",
            "take what is ready, micro-batch 0",
        ),
    ),
    Row(
        counted(
            "one micro-batch goes back four times",
            ("return chunk * p + r, mb", "return chunk * p + r, (k // p if backwards else mb)"),
        ),
        (
            "backward(7, ...) of micro-batch 0 has run on this rank already, and has read it: do it once for each micro-batch. Of other micro-batches it is here, model.grad_activations[1]",
        ),
        ("is to be stored here",),
    ),
    Row(
        by_batch(
            "each micro-batch goes back twice",
            ("        d = G.pop(m)\n", "        d = G.pop(m)\n        if r == R - 1:\n            G.pop(m)\n"),
        ),
        ("grad_activations[0]",),
        ("was not. Is a condition",),
    ),
    Row(
        coded(CODES[0], "exchanged", ("A.pop(code(l, m))", "A.pop(code(m, l))")),
        (
            "backward(7, ...) of micro-batch 0, whose gradient has come, finds its input in model.activations[56]: "
            + FIRST,
        ),
        NOT_HABIT,
    ),
    Row(
        coded(CODES[0], "a layer too high", ("G.pop(code(l, m))", "G.pop(code(l + 1, m))")),
        ("finds its gradient in model.grad_activations[56]: " + FIRST,),
        NOT_HABIT,
    ),
    Row(
        coded(CODES[1], "the next micro-batch", ("A.pop(code(l, m))", "A.pop(code(l, m + 1))")),
        ("finds its input in model.activations['7/0']: " + FIRST,),
        NOT_HABIT,
    ),
    Row(
        coded(
            CODES[1],
            "rounds from the last one on",
            ("todo_b = [(l, m) for start in range(0, M, R)", "todo_b = [(l, m) for start in range(M - R, -1, -R)"),
        ),
        (
            "backward(7, ...) of micro-batch 0, whose gradient has come, finds its input in model.activations['7/0']: "
            + FIRST,
        ),
        NOT_HABIT,
    ),
    Row(
        coded(CODES[2], "the next chunk", ("A.pop(code(l, m))", "A.pop((l // R + 1, m))")),
        ("finds its input in model.activations[1, 0]: " + FIRST,),
        NOT_HABIT,
    ),
    Row(
        coded(
            CODES[2],
            "the micro-batch in its round",
            ("G[code(l, m)] = model.loss(out)", "G[code(l, m % R)] = model.loss(out)"),
        ),
        (
            "backward(7, ...) of micro-batch 4, whose gradient has come, finds its gradient in model.grad_activations[1, 0]",
        ),
        NOT_HABIT,
    ),
    Row(
        by_place("inputs one too high", ("acts.pop(i)", "acts.pop(i + 1)")),
        ("backward(7, ...) of micro-batches 0-3, whose gradient has come, finds its input in model.activations[1]",),
        NOT_HABIT,
    ),
    Row(
        by_place("loads layers by their place", ("model.load_weights(a + i)", "model.load_weights(i)")),
        ("this rank has loaded layers 0, 1, and not layer 2: load the layers that it runs",),
        ("where it is stored",),
    ),
    Row(
        counted("loads layers by their place", ("model.load_weights(layer)", "model.load_weights(c)")),
        ("rank 0 has loaded layers 0, 1, and " + DEALT,),
    ),
    Row(
        by_batch(
            "backwards from the last micro-batch on in the cool-down",
            (
                "        await bwd(m)\n",
                "        await bwd(m if m < model.BATCHES - 3 else 2 * model.BATCHES - 4 - m)\n",
            ),
        ),
        ("take what is ready, micro-batch 5, as what has come first goes back first",),
        ("micro-batches 0-5\n",),
    ),
    Row(
        by_batch(
            "a gradient received for each layer",
            (
                "        if r < R - 1:\n            G[m] = await model.receive(src=r + 1)\n        for l in mine[::-1]:\n",
                "        for l in mine[::-1]:\n            if r < R - 1:\n                G[m] = await model.receive(src=r + 1)\n",
            ),
        ),
        (
            "backward(5, ...) has run on this rank for micro-batch 0, and what it gave is the gradient for layer 4, with no message",
        ),
        ("same order",),
    ),
    Row(
        changed(
            "gpipe",
            "a gradient received for each layer",
            (
                "        for layer in reversed(range(first, end)):\n",
                "        for layer in reversed(range(first, end)):\n            if not is_last and layer < end - 1:\n"
                "                model.grad_activations[layer + 1] = await model.receive(src=model.rank + 1)\n",
            ),
        ),
        ("and what it gave is the gradient for layer",),
    ),
]
ROWS = [*IN_CODE, *COUNTED, *ANYWHERE, *CARDS, *LONE]  # fmt: skip
AT_A_SHELL = some(ROWS, 4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    here = check_words(row)
    if row in AT_A_SHELL:
        check_at_a_shell(row, here)


@pytest.mark.parametrize(("thick", "spoken"), [(1, False), (2, False), (4, True)])
def test_cards_of_several_layers_are_dealt_like_cards_too(thick: int, spoken: bool) -> None:
    async def dealt(model: Model) -> Model:
        for layer in range(model.LAYERS):
            if layer // thick % model.RANKS == model.rank:
                model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        model.set_final_weight(0, model.weights["own"])
        return model

    with pytest.raises(MissingTensor) as raised:
        run(dealt, ranks=2, layers=8, batches=2)
    assert (DEALT in str(raised.value.fix_for[DEALT_RULE])) is spoken


def test_an_input_of_layer_0_that_is_taken_for_its_backward_asks_for_the_forward() -> None:
    async def too_soon(model: Model) -> Model:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.activations[0, 0] = model.get_activation([0])
        model.grad_activations[1, 0] = model.loss(model.forward(0, model.activations[0, 0], model.weights[0]))
        model.activations.pop((0, 1))
        return model

    with pytest.raises(MissingTensor) as raised:
        run(too_soon, ranks=1, layers=1, batches=2)
    assert "forward(0, ...) of micro-batch 1 has not run on this rank" in raised.value.fix
