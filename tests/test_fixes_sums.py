"""What mistakes are told in sums over ranks of partial sums, of slices and in nodes, and what a rank is told whose keys
are micro-batches: rows as in ``test_fixes``, of programs in several styles."""

from __future__ import annotations

import pytest

from tests.corpus import Program, whole
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

COUNTED = """
async def interleaved(model: Model) -> Model:
    r, p = model.rank, model.RANKS
    v, nxt, prev = model.LAYERS // p, (r + 1) % p, (r - 1) % p
    total = v * model.BATCHES
    for c in range(v):
        layer = c * p + r
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def place(k, backwards=False):
        chunk, mb = k // p % v, k // (p * v) * p + k % p
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
        model.grad_weights[layer] = dw if mb == 0 else model.grad_weights[layer] + dw
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
    for layer in list(model.weights):
        model.weights[layer], model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
THICK = """
async def one_f_one_b(model: Model) -> Model:
    size = model.LAYERS // model.RANKS
    low, up = model.rank * size, (model.rank + 1) * size
    is_last = model.rank == model.RANKS - 1
    for l in range(low, up):
        model.weights[l], model.opt_states[l] = model.load_weights(l)
    async def go(i):
        x = model.get_activation([i]) if model.rank == 0 else await model.receive(model.rank - 1)
        for l in range(low, up):
            model.activations[i, l] = x
            x = model.forward(l, x, model.weights[l])
        if is_last:
            model.grad_activations[i] = model.loss(x)
        else:
            await model.pass_to(model.rank + 1, x)
    async def back(i):
        g = model.grad_activations.pop(i) if is_last else await model.receive(model.rank + 1)
        for l in reversed(range(low, up)):
            w, g = model.backward(l, model.activations.pop((i, l)), g, model.weights[l])
            model.grad_weights[l] = model.grad_weights[l] + w if l in model.grad_weights else w
        if model.rank:
            await model.pass_to(model.rank - 1, g)
    n = min(model.BATCHES, model.RANKS - model.rank)
    for i in range(n):
        await go(i)
    for i in range(model.BATCHES):
        await back(i)
        if n + i < model.BATCHES:
            await go(n + i)
    for l in range(low, up):
        model.weights[l], model.opt_states[l] = model.update(l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
"""


def edited(puzzle: str, name: str, source: str, *edits: tuple[str, str]) -> Program:
    """Return one of these programs with every ``old`` in it replaced by ``new``."""
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return whole(puzzle, name, source)


LAST_FIRST = "the keys here are micro-batches, and micro-batch {} has not gone through forward({}, ...) yet. What is there is that of micro-batch 0"
STAYS = "model.loss gave the gradient of micro-batch 0, and it was sent to rank {}: it stays here, model.grad_activations[0] = model.loss(output), where backward({}, ...) reads it"
DEALT = (
    "rank 0 has layers {}, and layers are dealt like cards here: mine = range(model.rank, model.LAYERS, model.RANKS)"
)
OF_A_LAYER = "backward goes from the last layer", "stored under the layer above", "layer 0 is on rank"
ROWS = [
    Row(edited("interleaved", "the last micro-batch goes back first", COUNTED, ("chunk = v - 1 - chunk", "chunk, mb = v - 1 - chunk, model.BATCHES - 1 - mb")), (LAST_FIRST.format(7, 7),), OF_A_LAYER),
    Row(edited("interleaved", "the last one of a round goes back first", COUNTED, ("chunk = v - 1 - chunk", "chunk, mb = v - 1 - chunk, mb - mb % p + p - 1 - mb % p")), (LAST_FIRST.format(3, 7),), OF_A_LAYER),
    Row(edited("one_f_one_b", "the last micro-batch goes back first", THICK, ("await back(i)", "await back(model.BATCHES - 1 - i)")), (LAST_FIRST.format(7, 7),), OF_A_LAYER),
    Row(edited("one_f_one_b", "one micro-batch too far", THICK, ("await back(i)", "await back(i + 1)")), (LAST_FIRST.format(1, 7),), OF_A_LAYER),
    Row(edited("interleaved", "the gradient of the loss goes on round the ring", COUNTED, ("model.grad_activations[mb] = model.loss(y)", "await model.pass_to(nxt, model.loss(y))")), (STAYS.format(0, 7),), OF_A_LAYER),
    Row(edited("one_f_one_b", "the gradient of the loss is sent back at once", THICK, ("model.grad_activations[i] = model.loss(x)", "await model.pass_to(model.rank - 1, model.loss(x))")), (STAYS.format(2, 7),), OF_A_LAYER),
    Row(edited("interleaved", "layers dealt by the number of chunks", COUNTED, ("        layer = c * p + r\n", "        layer = c * v + r\n")), (DEALT.format("0, 2"),), ("is that of rank",)),
    Row(edited("interleaved", "layers dealt from the last one on", COUNTED, ("        layer = c * p + r\n", "        layer = model.LAYERS - 1 - c * p - r\n")), (DEALT.format("3, 7"),), ("is that of rank",)),
    Row(edited("interleaved", "weights under the chunk", COUNTED, ("model.weights[layer], model.opt_states[layer] = model.load", "model.weights[c], model.opt_states[c] = model.load"), ("x, model.weights[layer]", "x, model.weights[layer % p]")), ("the line that loads it has stored it under another number",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)
