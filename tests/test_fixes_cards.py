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


def counted(name: str, *edits: tuple[str, str]) -> Program:
    """That program with each ``old`` replaced by ``new``."""
    source = BY_COUNT
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return whole("interleaved", name, source)


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
ROWS = [*CARDS]  # fmt: skip
AT_A_SHELL_TODAY = examples(ROWS, "course", 4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    here = check_words(row)
    if row in AT_A_SHELL_TODAY:
        strip = lambda text: re.sub(r"\n +at: .*", "", text)  # noqa: E731
        assert strip(near(row.program).message) == strip(here.message)
