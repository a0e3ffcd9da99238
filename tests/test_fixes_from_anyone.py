"""What ranks are told that all wait for a message of anyone: what was made and not sent on or stored, and which forward
or backward could run. Rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from tests.corpus import Program, changed, whole
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

ANYONE = ("model.receive(src=src)", "model.receive()")
AS_IT_COMES = """
async def zbv(model: Model) -> Model:
    r, p, thick = model.rank, model.RANKS, model.LAYERS // (2 * model.RANKS)
    stages = [range(s * thick, (s + 1) * thick) for s in (r, 2 * p - 1 - r)]
    acts, grads, sums, sends, ran, ahead = model.activations, model.grad_activations, model.grad_weights, [], [0, 0], 0
    to_run, to_go_back = ([], []), ([], [])
    where = lambda layer: min(layer // thick, 2 * p - 1 - layer // thick)

    def put(tensor):
        kept, waiting = (acts, to_run) if isinstance(tensor, Activation) else (grads, to_go_back)
        kept[tensor.layer, min(tensor.batches)] = tensor
        waiting[tensor.layer in stages[1]].append(min(tensor.batches))

    def hand_on(tensor):
        if where(tensor.layer) == r:
            put(tensor)
        else:
            sends.append(model.pass_to(where(tensor.layer), tensor))

    for layer in [*stages[0], *stages[1]]:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    if r == 0:
        to_run[0].extend(range(model.BATCHES))
    left = 4 * model.BATCHES
    while left:
        if s := [one for one in (1, 0) if to_go_back[one]]:
            stage, mb = stages[s[0]], to_go_back[s[0]].pop(0)
            for layer in reversed(stage):
                grad = model.backward_input(layer, acts[layer, mb], grads[layer, mb], model.weights[layer])
                if layer > stage[0]:
                    grads[layer - 1, mb] = grad
            if stage[0]:
                hand_on(grad)
            for layer in stage:
                half = model.backward_weight(layer, acts.pop((layer, mb)), grads.pop((layer, mb)), model.weights[layer])
                sums[layer] = sums.pop(layer) + half if layer in sums else half
            ahead -= 1
        elif s := [one for one in (1, 0) if to_run[one] and (one or (ran[0] - ran[1] < 2 * (p - r) - 1 and ahead < 2 * p))]:
            stage, mb = stages[s[0]], to_run[s[0]].pop(0)
            if stage[0] == 0:
                acts[0, mb] = model.get_activation([mb])
            for layer in stage:
                acts[layer + 1, mb] = model.forward(layer, acts[layer, mb], model.weights[layer])
            out = acts.pop((stage.stop, mb))
            if stage.stop == model.LAYERS:
                put(model.loss(out))
            else:
                hand_on(out)
            ran[s[0]] += 1
            ahead += 1
        else:
            put(await model.receive())
            continue
        left -= 1
    for call in sends:
        await call
    for layer in [*stages[0], *stages[1]]:
        model.weights[layer], model.opt_states[layer] = model.update(layer, sums.pop(layer), model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
"""Puzzle 29 in a loop that does what has come: a backward, or a forward if there is room, or else it receives."""
ONE_STAGE = """
async def one_f_one_b(model: Model) -> Model:
    r, p, thick = model.rank, model.RANKS, model.LAYERS // model.RANKS
    stage, acts, grads, sums, ahead = range(r * thick, (r + 1) * thick), model.activations, model.grad_activations, model.grad_weights, 0
    inputs, back, done = [] if r else list(range(model.BATCHES)), [], 0
    for layer in stage:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    while done < model.BATCHES:
        if back:
            mb = back.pop(0)
            for layer in reversed(stage):
                grad, grads[layer, mb] = model.backward(layer, acts.pop((layer, mb)), grads.pop((layer + 1, mb)), model.weights[layer])
                sums[layer] = sums.pop(layer) + grad if layer in sums else grad
            out = grads.pop((stage[0], mb))
            if r: await model.pass_to(r - 1, out)
            ahead, done = ahead - 1, done + 1
        elif inputs and ahead < p - r:
            mb = inputs.pop(0)
            if r == 0: acts[0, mb] = model.get_activation([mb])
            for layer in stage:
                acts[layer + 1, mb] = model.forward(layer, acts[layer, mb], model.weights[layer])
            out, ahead = acts.pop((stage.stop, mb)), ahead + 1
            if r == p - 1:
                grads[stage.stop, mb] = model.loss(out)
                back.append(mb)
            else: await model.pass_to(r + 1, out)
        else:
            got = await model.receive()
            mb = min(got.batches)
            if isinstance(got, Activation): acts[stage[0], mb], inputs = got, inputs + [mb]
            else: grads[stage.stop, mb], back = got, back + [mb]
    for layer in stage:
        model.weights[layer], model.opt_states[layer] = model.update(layer, sums.pop(layer), model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
NEVER = ("compare who sends",)


def as_it_comes(name: str, old: str, new: str) -> Program:
    assert old in AS_IT_COMES, old
    return whole("zbv", name, AS_IT_COMES.replace(old, new))


def one_stage(name: str, old: str, new: str) -> Program:
    assert old in ONE_STAGE, old
    return whole("one_f_one_b", name, ONE_STAGE.replace(old, new))


LIMIT = "to_run[one] and (one or (ran[0] - ran[1] < 2 * (p - r) - 1 and ahead < 2 * p))"
UNSENT = "rank 3 has not sent on what backward_input(layer 3), micro-batch {0"
ROOM = "of layer {0}: if a limit holds that one back, let fewer forwards of layer {1} come before it"
INPUT = "rank 3 has the input of layer 4, micro-batch 0, which forward(layer 3) gave there, and has not run forward(layer 4)"
# fmt: off
ROWS = [
    Row(changed("zbv", "no gradient leaves the lower stage", ANYONE, ("if stage.start > 0 and not (turn and stage == upper):", "if stage == upper and not turn:")), (UNSENT, "and layer 2 is on rank 2: await model.pass_to(2, ...)"), NEVER),
    Row(as_it_comes("no gradient leaves the lower stage", "if stage[0]:\n", "if stage[0] >= p * thick:\n"), (UNSENT,), NEVER),
    Row(one_stage("no gradient is sent", "if r: await model.pass_to(r - 1, out)", "pass"), ("rank 3 has not sent on what backward(", "is on rank 2: await model.pass_to(2, ...)"), NEVER),
    Row(changed("zbv", "as many first forwards on each rank as the last has", ANYONE, ("ahead, in_turn = ranks - rank,", "ahead, in_turn = rank + 1,")), (INPUT, "since it looks for model.activations[3, 1]: let that forward come first"), NEVER),
    Row(as_it_comes("the lower stage takes all the room", LIMIT, "to_run[one] and ahead < 2 * p"), ("rank 0 has the input of layer 7, micro-batch 0, which has come to it", ROOM.format(7, 0)), NEVER),
    Row(as_it_comes("no forward of the upper stage", LIMIT, "not one and to_run[one] and ahead < 2 * p"), ("rank 3 has the input of layer 4, micro-batch", "which forward(layer 3) gave there", ROOM.format(4, 3)), NEVER),
    Row(as_it_comes("no count down", "            ahead -= 1\n", ""), ("and has not run forward(layer", "each backward has to count one less"), NEVER),
    Row(one_stage("no count down", "ahead, done = ahead - 1, done + 1", "done += 1"), ("and has not run forward(layer", "each backward has to count one less"), NEVER),
    Row(changed("zbv", "the gradient between a rank's own stages is not stored", ANYONE, ("            if layer > 0:\n                model.grad_", "            if layer > stage.start:\n                model.grad_"), ("            grad = model.grad_activations.pop((stage.start - 1, mb))\n", "")), ("rank 3 looks for model.grad_activations[3, 0], which backward_input(layer 4) of micro-batch 0 gave on this rank itself, and it is in no dictionary: store it there",), NEVER),
    Row(changed("zbv", "the loss is not stored", ANYONE, ("model.grad_activations[end - 1, mb] = model.loss(out)", "model.loss(out)")), ("rank 0 looks for model.grad_activations[7, 0]", "and it is in no dictionary: store it there"), NEVER),
    Row(as_it_comes("the loss is not stored", "put(model.loss(out))", "model.loss(out)"), ("rank 0 has the gradient of the output of layer 7, micro-batches 0-3, from model.loss", "It stores no gradient: keep this one in model.grad_activations"), NEVER),
    Row(one_stage("the loss is not stored", "                grads[stage.stop, mb] = model.loss(out)\n                back.append(mb)", "                model.loss(out)"), ("rank 3 has the gradient of the output of layer", "keep this one in model.grad_activations"), NEVER),
]
# fmt: on


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_ranks_that_wait_for_anyone_are_told_what_to_do_first(row: Row) -> None:
    check_words(row)
