"""What mistakes are told in pipelines with halves of a backward and with several tasks on a rank, and in others where
stages or layers are taken in the wrong order: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import Model, grade, run
from lib.basics.errors import OutOfTime
from lib.course.layouts import Size
from lib.course.specs import puzzles
from lib.grading.judge import judge
from lib.grading.verdict import FAIL
from tests.corpus import Program, changed, whole
from tests.slow import some
from tests.test_corpus import function
from tests.test_fixes import Row
from tests.test_fixes_from_anyone import AS_IT_COMES
from tests.test_fixes_later import check_at_a_shell, check_words

STAGE = "stage, mb = model.rank % stages, model.rank // stages"
TURNED = (STAGE, "stage, mb = stages - 1 - model.rank % stages, model.rank // stages")
ON_A_RING = [(f"model.rank {one} 1", f"(model.rank {one} 1) % model.RANKS") for one in "+-"]
RECEIVES = "        elif layer == first:\n            model.activations[first] = await model.receive(src=model.rank - 1)\n        weight = await model.allgather(model.weights[layer], layer)\n"
GATHERS_FIRST = "        weight = await model.allgather(model.weights[layer], layer)\n        if layer == first and not is_first:\n            model.activations[first] = await model.receive(src=model.rank - 1)\n"
SEND_DOWN = ("send to model.rank - 1, receive from model.rank + 1, and gradients go the other way round",)
TAIL = "    for _ in range(ahead):\n        await backward(lower)\n\n"
UPDATE = """    for layer in [*lower, *upper]:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
"""
NEITHER = "neither half of the backward of layer {} has run for {} by then"
KEEP = "backward_input({0}, ...) has read it: both halves of a backward read it, so keep it until backward_weight({0}, ...)"
LOST = ("was it stored under this key", "was it taken out too soon")
TOO_HIGH = "{0}({1}, ...) reads the input of layer {1}, model.activations[{1}, 0]: is the layer one too high here?"
REVERSED = "the layers of a stage go back from the last one down, reversed(...)"
EACH = "what adds up are the gradients of the weight that the backward of each gives"
SAVES = "            so_far = model.grad_weights.get(layer)\n            model.grad_weights[layer] = so_far + grad if so_far else grad\n"
SUMMED = "            grad = await model.scatterreduce(grad, layer)\n"
KNOWS = "each gradient knows its own, grad.layer. A call that is awaited a turn later gives the layer of the turn that has made it"
ONE_TURN_LATE = """            before, now = now, model.scatterreduce(grad, layer)
            if before is not None:
                grad = await before
                model.grad_weights[layer] = model.grad_weights[layer] + grad if mb >= model.RANKS else grad
        grad = await now
        model.grad_weights[0] = model.grad_weights[0] + grad if mb >= model.RANKS else grad
"""
OF_ALL = """            calls.append(model.scatterreduce(grad, layer))
        for layer, call in enumerate(calls if mb >= model.RANKS else calls[::-1]):
            grad = await call
            model.grad_weights[layer] = model.grad_weights[layer] + grad if mb >= model.RANKS else grad
"""
WAITS = "let this one wait until it is there, as with an asyncio.Event that the other one sets"
OTHER_SIDE = (
    "Is this for layer 4 itself? Then layer 5 is on rank 2, and gradients come from there: await model.receive(src=2)"
)
NONE_LEFT = "If these are micro-batches, there are model.BATCHES of them: ask first whether one is left"
SENT_NONE = "if it came from await model.receive(...), that rank has sent None"
OWN_INPUT = "forward(layer 3) gives the input of layer 4 on this rank itself, with no message"
INPUT_FIRST = "has run already, and backward_input comes first: both halves read this, and the second one pops it"
NOT_RUN = "forward(7, ...) of micro-batch 7 has not run on this rank, which has run layer 0 for micro-batches 0-6, layer 7 for micro-batch 0. If this is for its backward, that of micro-batch 0 comes first"
IN_TASKS = """
async def zbv(model: Model) -> Model:
    p, r, m = model.RANKS, model.rank, model.BATCHES
    acts, grads, gw, thick = model.activations, model.grad_activations, model.grad_weights, model.LAYERS // (2 * model.RANKS)
    ready = {(what, mb): asyncio.Event() for what in "FB" for mb in range(m)}

    async def fetch(store, key, src):
        while key not in store:
            got = await model.receive(src)
            if isinstance(got, Activation): acts[got.layer, min(got.batches)] = got
            else: grads[got.layer + 1, min(got.batches)] = got

    async def stage(s):
        mine = range(s * thick, (s + 1) * thick)
        back, on = (r - 1, r + 1) if s < p else (r + 1, r - 1)
        for l in mine:
            model.weights[l], model.opt_states[l] = model.load_weights(l)
        lead = 2 * p - s - 1
        for step in range(m + lead):
            if step < m:
                if s == 0: acts[0, step] = model.get_activation([step])
                elif s != p: await fetch(acts, (mine[0], step), back)
                FORWARD_WAITS
                for l in mine:
                    acts[l + 1, step] = model.forward(l, acts[l, step], model.weights[l])
                if s == 2 * p - 1: grads[model.LAYERS, step] = model.loss(acts.pop((model.LAYERS, step)))
                elif s == p - 1: ready["F", step].set()
                else: await model.pass_to(on, acts.pop((mine[-1] + 1, step)))
            if step >= lead:
                mb = step - lead
                if s not in (p - 1, 2 * p - 1): await fetch(grads, (mine[-1] + 1, mb), on)
                BACKWARD_WAITS
                for l in reversed(mine):
                    grads[l, mb] = model.backward_input(l, acts[l, mb], grads[l + 1, mb], model.weights[l])
                if s == 0: del grads[0, mb]
                elif s == p: ready["B", mb].set()
                else: await model.pass_to(back, grads.pop((mine[0], mb)))
                for l in reversed(mine):
                    g = model.backward_weight(l, acts.pop((l, mb)), grads.pop((l + 1, mb)), model.weights[l])
                    gw[l] = gw[l] + g if l in gw else g
        for l in mine:
            model.weights[l], model.opt_states[l] = model.update(l, gw.pop(l), model.weights[l], model.opt_states[l])
            model.set_final_weight(l, model.weights[l])

    await asyncio.gather(stage(r), stage(2 * p - 1 - r))
    return model
"""
"""Puzzle 29 in two tasks on each rank, one for each stage, with what it writes in place of two waits."""
FORTH, BACK = 'if s == p: await ready["F", step].wait()', 'if s == p - 1: await ready["B", mb].wait()'
FORTH_AND_BACK = """
async def one_f_one_b(model: Model) -> Model:
    p, r, m = model.RANKS, model.rank, model.BATCHES
    share = model.LAYERS // p
    mine, last = range(r * share, (r + 1) * share), r == p - 1
    acts, grads, gw = model.activations, model.grad_activations, model.grad_weights
    for l in mine:
        model.weights[l], model.opt_states[l] = model.load_weights(l)

    async def forth():
        for mb in range(m):
            acts[mine[0], mb] = await model.receive(r - 1) if r else model.get_activation([mb])
            for l in mine: acts[l + 1, mb] = model.forward(l, acts[l, mb], model.weights[l])
            if not last: await model.pass_to(r + 1, acts.pop((mine.stop, mb)))

    async def back():
        for mb in range(m):
            grads[mine.stop, mb] = model.loss(acts.pop((mine.stop, mb))) if last else await model.receive(r + 1)
            for l in reversed(mine):
                g, grads[l, mb] = model.backward(l, acts.pop((l, mb)), grads.pop((l + 1, mb)), model.weights[l])
                gw[l] = gw[l] + g if l in gw else g
            if r: await model.pass_to(r - 1, grads.pop((mine[0], mb)))

    await asyncio.gather(forth(), back())
    return model
"""

OWN_LAYER = (
    "reads the gradient of its output, which is stored under the layer above, model.grad_activations[8, 0]. Is that meant here? Then read it there, or store it as model.grad_activations[7, 0]",
)
READ_ABOVE = ("it is stored under its own layer, model.grad_activations[7, 0]: read it there",)
MADE_AGAIN = (
    "backward(7, ...) of micro-batch 0 has given the gradient of the weight, too, and backward_weight(7, ...) has made it again: call backward_input",
)
NOT_THE_FIRST = (
    "there is no layer -1",
    "model.grad_activations[2, 0], and layer 2 is on rank 2: await model.pass_to(2, ...)",
)
LOSS_ABOVE = (
    "model.grad_activations[end - 1, mb] = model.loss(out)",
    "model.grad_activations[end, mb] = model.loss(out)",
)


def as_it_comes(name: str, *edits: tuple[str, str]) -> Program:
    source = AS_IT_COMES
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return whole("zbv", name, source)


ROWS = [
    Row(changed("pipeline_fsdp", "stages counted from the last rank on, on a ring", TURNED, *ON_A_RING), SEND_DOWN, ("let all ranks do both",)),
    Row(changed("pipeline_fsdp", "stages counted from the last rank on, gathers first", TURNED, (RECEIVES, GATHERS_FIRST), *ON_A_RING), SEND_DOWN, ("let all ranks do both",)),
    Row(changed("zbv", "updates before the last backwards", (TAIL + UPDATE, UPDATE + TAIL)), (NEITHER.format(0, "micro-batches 4-7"), "have one for each of these?"), ("still to come",)),
    Row(changed("zero_bubble", "the last backward is left out", ("for mb in range(model.BATCHES):\n        await for_the_input", "for mb in range(model.BATCHES - 1):\n        await for_the_input"), ("range(max(model.BATCHES - late, 0), model.BATCHES)", "range(model.BATCHES - 1 - late, model.BATCHES - 1)")), (NEITHER.format(2, "micro-batch 7"),), ("still to come",)),
    Row(changed("zbv", "the input half takes the gradient", ("model.grad_activations[layer, mb]\n            grad = model.backward_input", "model.grad_activations.pop((layer, mb))\n            grad = model.backward_input")), (KEEP.format(7),), LOST),
    Row(changed("zero_bubble", "the input half takes the gradient", ("model.grad_activations[layer + 1, mb]\n", "model.grad_activations.pop((layer + 1, mb))\n")), (KEEP.format(2),), LOST),
    Row(changed("zbv", "the weight half of the layer above", ("inp = model.activations.pop((layer, mb))", "inp = model.activations.pop((layer + 1, mb))")), (TOO_HIGH.format("backward_weight", 7),), ("no loss is needed", "pop takes it out")),
    Row(changed("zero_bubble", "the weight half of the layer above", ("inp = model.activations.pop((layer, mb))", "inp = model.activations.pop((layer + 1, mb))")), (TOO_HIGH.format("backward_weight", 2),), ("pop takes it out",)),
    Row(changed("one_f_one_b", "the output for the input", ("model.activations.pop((layer, mb)),", "model.activations.pop((layer + 1, mb)),")), ("backward(7, ...) reads the input of layer 7, model.activations[7, 0]",), ("no loss is needed",)),
    Row(changed("gpipe", "backwards from a stage's first layer up", ("for layer in reversed(range(first, end))", "for layer in range(first, end)")), (REVERSED,)),
    Row(changed("one_f_one_b", "backwards from a stage's first layer up", ("for layer in reversed(range(first, end))", "for layer in range(first, end)")), (REVERSED,)),
    Row(changed("zero_bubble", "a weight half with summed inputs", ("            inp = model.activations.pop((layer, mb))\n", "            inp = model.activations.pop((layer, mb)) + model.activations.pop((layer, mb + 1))\n"), ("        if mb >= late:\n            for_the_weight(mb - late)\n", ""), ("range(max(model.BATCHES - late, 0), model.BATCHES)", "range(0, model.BATCHES, 2)")), (EACH,), ("the place of the old one",)),
    Row(changed("zero2", "sums one turn late, under the layer of that turn", ("    for mb in mine:\n", "    for mb in mine:\n        now = None\n"), (SUMMED + SAVES, ONE_TURN_LATE)), (KNOWS,)),
    Row(changed("zero2", "sums of all layers, in the wrong order", ("    for mb in mine:\n", "    for mb in mine:\n        calls = []\n"), (SUMMED + SAVES, OF_ALL)), (KNOWS,)),
    Row(whole("zbv", "two tasks, one stage does not wait for the other's outputs", IN_TASKS.replace("FORWARD_WAITS", "pass").replace("BACKWARD_WAITS", BACK)), (WAITS,), ("some come before its first backward",)),
    Row(whole("zbv", "two tasks, one stage does not wait for the other's gradients", IN_TASKS.replace("FORWARD_WAITS", FORTH).replace("BACKWARD_WAITS", "pass")), (WAITS,)),
    Row(changed("zbv", "the upper stage's gradient from the rank after", ("(stage.stop - 1, mb), after[stage])", "(stage.stop - 1, mb), before[stage])")), (OTHER_SIDE,)),
    Row(whole("zbv", "two tasks, gradients from where inputs come", IN_TASKS.replace("FORWARD_WAITS", FORTH).replace("BACKWARD_WAITS", BACK).replace("(mine[-1] + 1, mb), on)", "(mine[-1] + 1, mb), back)")), ("Is this the gradient for layer 0? Then layer 1 is on rank 1, and gradients come from there: await model.receive(src=1)",)),
    Row(changed("zbv", "the turn is forgotten for inputs", ("await come(Activation, (stage.start, mb), before[stage])", "if not (turn and stage == upper): await come(Activation, (stage.start, mb), before[stage])\n        else: model.activations[stage.start, mb] = await model.receive(src=before[stage])")), (OWN_INPUT,), ("first rank of a row",)),
    Row(whole("zbv", "two tasks, the turn is forgotten for inputs", IN_TASKS.replace("FORWARD_WAITS", "pass").replace("BACKWARD_WAITS", BACK).replace("elif s != p: await fetch", "else: await fetch").replace("stage(r), stage(2 * p - 1 - r)", "stage(2 * p - 1 - r), stage(r)")), ("with no message", "on this rank itself"), ("first rank of a row",)),
    Row(changed("zbv", "weight halves before input halves", ("        await for_the_input(stage)\n        for_the_weight(stage)", "        if stage.stop == end:\n            model.grad_activations[end - 1, done['I', stage]] = model.loss(model.activations[end, done['I', stage]])\n        for_the_weight(stage)\n        await for_the_input(stage)")), (INPUT_FIRST,), ("do it once for each",)),
    Row(changed("zero_bubble", "weight halves before input halves", ("        await for_the_input(mb)\n        if mb >= late:\n            for_the_weight(mb - late)", "        if is_last:\n            model.grad_activations[end, mb] = model.loss(model.activations[end, mb])\n            for_the_weight(mb)\n        await for_the_input(mb)")), (INPUT_FIRST,), ("do it once for each",)),
    Row(changed("zbv", "backwards from the last micro-batch on", ("        mb = done[what, stage]\n", "        mb = done[what, stage] if what == 'F' else model.BATCHES - 1 - done[what, stage]\n"), ("        if mb == model.BATCHES:\n", "        if done[what, stage] == model.BATCHES:\n"), ("            out = model.activations.pop((end, mb))\n            model.grad_activations[end - 1, mb] = model.loss(out)", "            out = model.activations[end - 1, mb]\n            model.grad_activations[end - 1, mb] = model.loss(out)")), (NOT_RUN,)),
    Row(changed("gpipe", "None is sent for an output", ("await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))", "await model.pass_to(model.rank + 1, model.activations.get((end + 1, mb)))"), ("model.activations[first, mb] = await model.receive(src=model.rank - 1)", "came = await model.receive(src=model.rank - 1)\n            model.activations[first, min(came.batches)] = came")), (SENT_NONE,)),
    Row(changed("zbv", "None is sent for a gradient", ("grad = model.grad_activations.pop((stage.start - 1, mb))", "grad = model.grad_activations.get((stage.start, mb + 1))")), (SENT_NONE,)),
    Row(changed("gpipe", "one micro-batch more than there are", ("    for mb in range(model.BATCHES):\n", "    left = list(range(model.BATCHES))\n    for mb in range(model.BATCHES + 1):\n        mb = left.pop(0)\n")), (NONE_LEFT,), ("count from 0",)),
    Row(changed("one_f_one_b", "one micro-batch more than there are", ("    for mb in range(ahead):\n        await forward(mb)", "    left = __import__('collections').deque(range(model.BATCHES))\n    for _ in range(model.BATCHES + 1):\n        await forward(left.popleft())")), (NONE_LEFT,), ("count from 0",)),
    Row(whole("one_f_one_b", "a task for forwards and one for backwards", FORTH_AND_BACK), (WAITS,)),
    Row(changed("zbv", "the loss above, gradients under their layer", ("await come(ActivationGrad,", "if stage.stop < end: await come(ActivationGrad,"), LOSS_ABOVE), OWN_LAYER),
    Row(as_it_comes("the loss above, gradients under their layer", ("put(model.loss(out))", "grads[model.LAYERS, mb] = model.loss(out)\n                to_go_back[1].append(mb)")), OWN_LAYER),
    Row(changed("zbv", "gradients under their layer, and read above", ("model.grad_activations[layer, mb]\n            grad = model.b", "model.grad_activations[layer + 1, mb]\n            grad = model.b")), READ_ABOVE, ("has not run yet",)),
    Row(as_it_comes("gradients under their layer, and read above", ("model.backward_input(layer, acts[layer, mb], grads[layer, mb]", "model.backward_input(layer, acts[layer, mb], grads[layer + 1, mb]")), READ_ABOVE, ("has not run yet",)),
    Row(changed("zbv", "a whole backward, and the half", ("grad = model.backward_input(layer, inp, grad, model.weights[layer])", "made, grad = model.backward(layer, inp, grad, model.weights[layer])\n            so_far = model.grad_weights.get(layer)\n            model.grad_weights[layer] = so_far + made if so_far else made")), MADE_AGAIN, ("was it added before",)),
    Row(as_it_comes("a whole backward, and the half", ("grad = model.backward_input(layer, acts[layer, mb], grads[layer, mb], model.weights[layer])", "made, grad = model.backward(layer, acts[layer, mb], grads[layer, mb], model.weights[layer])\n                sums[layer] = sums.pop(layer) + made if layer in sums else made")), MADE_AGAIN, ("was it added before",)),
    Row(changed("zbv", "the lower stage has no gradient for others", ("        if stage.start > 0 and not (turn and stage == upper):\n", "        if stage == lower:\n            model.grad_activations.pop((-1, mb))\n        elif not turn:\n")), NOT_THE_FIRST, ("backward_weight(3, ...) reads",)),
    Row(as_it_comes("the lower stage has no gradient for others", ("                if layer > stage[0]:\n                    grads", "                if layer:\n                    grads"), ("            if stage[0]:\n                hand_on(grad)", "            if stage[0] >= p * thick:\n                hand_on(grads.pop((stage[0] - 1, mb)))\n            else:\n                grads.pop((-1, mb))")), NOT_THE_FIRST, ("backward_weight(3, ...) reads",)),
]  # fmt: skip
AT_A_SHELL = some(ROWS, 5)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    here = check_words(row)
    if row in AT_A_SHELL:
        check_at_a_shell(row, here)


EVENTS = (
    ("    async def forth():", "    done = [asyncio.Event() for _ in range(m)]\n\n    async def forth():"),
    (
        "            for l in mine: acts[l + 1, mb] = model.forward(l, acts[l, mb], model.weights[l])\n",
        "            for l in mine: acts[l + 1, mb] = model.forward(l, acts[l, mb], model.weights[l])\n            done[mb].set()\n",
    ),
    ("            grads[mine.stop, mb] =", "            await done[mb].wait()\n            grads[mine.stop, mb] ="),
)
UPDATES = """            if r: await model.pass_to(r - 1, grads.pop((mine[0], mb)))

    await asyncio.gather(forth(), back())
    for l in mine:
        model.weights[l], model.opt_states[l] = model.update(l, gw.pop(l), model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
"""


def in_two_tasks() -> str:
    source = FORTH_AND_BACK
    for old, new in (*EVENTS, (UPDATES[: UPDATES.index("    for l")], UPDATES)):
        assert old in source
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (whole("zbv", "", IN_TASKS.replace("FORWARD_WAITS", FORTH).replace("BACKWARD_WAITS", BACK)), "stage"),
        (whole("one_f_one_b", "", in_two_tasks()), "forth"),
    ],
)
def test_tasks_of_a_rank_leave_the_order_open(program: Program, name: str) -> None:
    here = grade(function(program), program.puzzle).verdict  # type: ignore[arg-type]
    assert here.status == FAIL and here.right, here.message
    said = f"{name}(...) computes in several tasks of a rank, which go on as what they need comes: one loop that"
    assert said in here.costs_time + here.costs_memory


def test_a_loop_that_asks_again_and_again_is_told_that_no_message_comes() -> None:
    listens = """    inbox = {}

    async def listen() -> None:
        while model.rank:
            got = await model.receive(src=model.rank - 1)
            inbox[min(got.batches)] = got

    asyncio.create_task(listen())
"""
    asks = "await model.receive(src=model.rank - 1)"
    edits = [("    for mb in range(model.BATCHES):\n", f"{listens}    for mb in range(model.BATCHES):\n")]
    waits = "            while mb not in inbox:\n                await asyncio.sleep(0)\n            model.activations[first, mb] = inbox.pop(mb)"
    program = changed("gpipe", "", *edits, (f"            model.activations[first, mb] = {asks}", waits))
    told = grade(function(program), "gpipe", timeout=0.5).verdict.message  # type: ignore[arg-type]
    assert "did not end" in told and "such as `while mb not in inbox` asks again and again, and no message" in told


def test_a_run_that_was_stopped_names_ranks_that_do_the_same_work() -> None:
    """As pipelines do that all train every micro-batch of a large machine, until their time is up."""

    async def all_of_them(model: Model) -> None:
        stage = model.rank % 4
        model.weights[stage], model.opt_states[stage] = model.load_weights(stage)
        for mb in range(model.BATCHES):
            model.activations[stage] = await model.receive(model.rank - 1) if stage else model.get_activation([mb])
            out = model.forward(stage, model.activations.pop(stage), model.weights[stage])
            if stage < 3:
                await model.pass_to(model.rank + 1, out)

    puzzle = puzzles()["pipeline_fsdp"]

    def stopped(size: Size) -> None:
        error = OutOfTime("the run did not end", fix="look for a loop that never ends")
        error.run = run(all_of_them, **size)  # type: ignore[arg-type]
        raise error

    told = judge(puzzle, stopped).message
    assert "ranks 0, 4, 8, 12 all run layer 0 on micro-batches 0-3, where one rank is enough for each" in told, told
