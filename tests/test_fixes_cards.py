"""What mistakes are told in a pipeline whose layers are dealt like cards, and by keys of a layer or of a micro-batch:
rows as in ``test_fixes``."""

from __future__ import annotations

import re

import pytest

from tests.corpus import Program, changed, whole
from tests.test_corpus import near
from tests.test_fixes import Row
from tests.test_fixes_later import check_words
from tests.turns import examples

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
        counted("layers dealt by their number on a rank", ("layer = c * p + r\n", "layer = c * v + r\n")),
        ("rank 0 has layers 0, 2, and " + DEALT,),
        ("let each rank do",),
    ),
    Row(
        changed(
            "interleaved",
            "loads its layers from the back",
            (LOADED, LOADED.replace("in mine", "in range(top - model.rank, -1, -ranks)")),
        ),
        ("rank 0 has layers 3, 7, and " + DEALT,),
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
        ("this rank has run layers 6, 7, and each input has a key of its own, model.activations[layer, micro_batch]",),
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
            "or take what is ready, micro-batch 0: what has come first goes back first",
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
            "or take what is ready, micro-batch 0: what has come first goes back first",
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
            "a round takes micro-batches 0-3, as many as there are ranks, through layer 0, and then the same ones through layer 4: is the micro-batch of this turn counted right?",
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
ROWS = [*COUNTED, *ANYWHERE, *CARDS, *LONE]  # fmt: skip
AT_A_SHELL_TODAY = examples(ROWS, "course", 4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    here = check_words(row)
    if row in AT_A_SHELL_TODAY:
        strip = lambda text: re.sub(r"\n +at: .*", "", text)  # noqa: E731
        assert strip(near(row.program).message) == strip(here.message)
