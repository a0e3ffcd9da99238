"""What mistakes are told of keys with a name and a layer, of states that were taken out, and of gradients of weights that
are sent in place of being summed: rows as in ``test_fixes``, in puzzles 7 and 18."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import PASS
from tests.corpus import whole
from tests.test_corpus import function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words
from tests.test_fixes_sums import edited

NAMED = """
async def sequence_parallel(model: Model) -> Model:
    layers, part, saved = list(range(model.LAYERS)), (model.rank, model.RANKS), model.activations
    for k in layers:
        model.weights[k], model.opt_states[k] = model.load_weights(k, *part)
    saved["x", 0] = model.get_activation([0]).shard(*part)
    for k, nxt in zip(layers, layers[1:] + [model.LAYERS]):
        full = await model.allgather(saved["x", k], k)
        saved["x", nxt] = await model.scatterreduce(model.forward(k, full, model.weights[k], partial=True), nxt)
    full = await model.allgather(saved.pop(("x", model.LAYERS)), model.LAYERS)
    model.grad_activations["g"] = model.loss(full)
    for k in layers[::-1]:
        full = await model.allgather(saved.pop(("x", k)), k)
        dw, dx = model.backward(k, full, model.grad_activations.pop("g"), model.weights[k], partial=True)
        model.grad_weights[k] = dw
        if k:
            model.grad_activations["g"] = await model.allgather(await model.scatterreduce(dx, k - 1), k - 1)
        model.weights[k], model.opt_states[k] = model.update(k, model.grad_weights.pop(k), model.weights[k], model.opt_states[k])
        model.set_final_weight(k, model.weights[k])
    return model
"""
STAGES = """
async def pipeline_fsdp(model: Model) -> Model:
    n = model.LAYERS // 4
    own = range(model.rank % 4 * n, model.rank % 4 * n + n)
    for l in range(model.LAYERS):
        model.weights[l], model.opt_states[l] = model.load_weights(l, model.rank, model.RANKS)
    for l in range(model.LAYERS):
        if l == own[0]:
            model.activations[l] = await model.receive(model.rank - 1) if l else model.get_activation([model.rank // 4])
        w = await model.allgather(model.weights[l], l)
        if l in own:
            model.activations[l + 1] = model.forward(l, model.activations[l], w)
            if l == own[-1] and l + 1 < model.LAYERS:
                await model.pass_to(model.rank + 1, model.activations.pop(l + 1))
    if model.LAYERS in model.activations:
        model.grad_activations["g"] = model.loss(model.activations.pop(model.LAYERS))
    for l in range(model.LAYERS)[::-1]:
        if l == own[-1] and l + 1 < model.LAYERS:
            model.grad_activations["g"] = await model.receive(model.rank + 1)
        w = await model.allgather(model.weights[l], l)
        if l in own:
            model.grad_weights[l], model.grad_activations["g"] = model.backward(l, model.activations.pop(l), model.grad_activations.pop("g"), w)
            if l == own[0] and l:
                await model.pass_to(model.rank - 1, model.grad_activations.pop("g"))
        else:
            model.grad_weights[l] = model.fake_grad(l, [])
        model.grad_weights[l] = await model.scatterreduce(model.grad_weights.pop(l), l)
    while model.grad_weights:
        l, g = model.grad_weights.popitem()
        model.weights[l], model.opt_states[l] = model.update(l, g, model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
"""
FIRST_ONE = "forward(0, ...) comes first, and has not run here: does the loop begin after layer 0"
KEPT = "forward(0, ...) has read that, and it was not stored here: store it, or this rank's slice of it, before that"
SUM = "        model.grad_weights[l] = await model.scatterreduce("
SENT = "        if l in own and model.rank < 12:\n            await model.pass_to(model.rank + 4, model.grad_weights.pop(l))\n            model.grad_weights[l] = model.fake_grad(l, [])\n"
ROWS = [
    Row(edited("sequence_parallel", "a zip that is one short", NAMED, ("zip(layers, layers[1:] + [model.LAYERS])", "zip(layers, layers[1:])")), ("forward(7, ...) has not run on this rank. Does the loop over the layers end too soon, as that of a `zip`",), ("there is no layer",)),
    Row(edited("sequence_parallel", "a loop that begins late", NAMED, ("zip(layers, layers[1:] + ", "zip(layers[1:], layers[2:] + ")), (FIRST_ONE,)),
    Row(edited("sequence_parallel", "layers that a condition leaves out", NAMED, (":] + [model.LAYERS]):\n", ":] + [model.LAYERS]):\n        if k % model.RANKS != model.rank:\n            continue\n")), (FIRST_ONE,)),
    Row(edited("sequence_parallel", "the first input is not kept", NAMED, ('    saved["x", 0] = model.get_activation([0]).shard(*part)\n', ""), ('full = await model.allgather(saved["x", k], k)', 'full = await model.allgather(saved["x", k], k) if k else model.get_activation([0])')), (KEPT,), ("another backward now", "backward If")),
    Row(edited("pipeline_fsdp", "a state is taken out in place of a gradient", STAGES, ("while model.grad_weights", "while model.opt_states"), ("l, g = model.grad_weights.popitem", "l, g = model.opt_states.popitem")), ("was stored, and was taken out before this", "leave it there for model.update("), ("load_weights",)),
    Row(edited("pipeline_fsdp", "gradients go to the next pipeline", STAGES, (SUM, SENT + SUM)), ("has sent its gradient of micro-batch 0 to rank 4, so it is not in this sum", "to model.scatterreduce of layer"), ("store the first one",)),
    Row(edited("pipeline_fsdp", "gradients go to the owner of a layer", STAGES, (SUM, "        if l in own:\n            await model.pass_to(l, model.grad_weights[l])\n" + SUM)), ("goes into a sum, and in no message", "model.fake_grad("), ("to a neighbor",)),
    Row(edited("pipeline_fsdp", "the backward ends before layer 0", STAGES, ("range(model.LAYERS)[::-1]", "range(model.LAYERS - 1, 0, -1)"), ("while model.grad_weights:\n        l, g = model.grad_weights.popitem()", "for l in range(model.LAYERS):\n        g = model.grad_weights.pop(l)")), ("and not that of layer 0: does the backward loop end before it",), ("So far this rank", "or does a condition")),
]  # fmt: skip


@pytest.mark.parametrize("puzzle, source", [("sequence_parallel", NAMED), ("pipeline_fsdp", STAGES)])
def test_programs_are_right(puzzle: str, source: str) -> None:
    assert grade(function(whole(puzzle, "as it is", source)), puzzle).verdict.status == PASS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_layer(row: Row) -> None:
    check_words(row)
