"""What a reader was told who wrote these programs of puzzles 26, 29 and R9 from the pages alone, and then made mistakes
in them: rows as in ``test_fixes``. What comes is stored under what it is, and looked for until it is there."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import FAIL, PASS
from tests.corpus import Program, whole
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

ZBV = """
async def zbv(model: Model) -> Model:
    acts, grads, n, r = model.activations, model.grad_activations, model.RANKS, model.rank
    per = model.LAYERS // (2 * n)  # layers of a stage
    low = list(range(r * per, (r + 1) * per))
    high = list(range((2 * n - 1 - r) * per, (2 * n - r) * per))
    for layer in low + high:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def rank_of(stage):
        return stage if stage < n else 2 * n - 1 - stage

    async def get(box, kind, layer, mb, src):
        # messages of a rank, until the one that is wanted is here
        while (layer, mb) not in box:
            got = await model.receive(src)
            key = (got.layer if isinstance(got, Activation) else got.layer + 1, min(got.batches))
            if isinstance(got, Activation):
                acts[key] = got
            else:
                grads[key] = got

    async def forward(chunk, mb):
        layers = (low, high)[chunk]
        stage = r if chunk == 0 else 2 * n - 1 - r
        for layer in layers:
            if layer == 0:
                acts[0, mb] = model.get_activation([mb])
            elif (layer, mb) not in acts:
                await get(acts, Activation, layer, mb, rank_of(stage - 1))
            out = model.forward(layer, acts[layer, mb], model.weights[layer])
            if layer == model.LAYERS - 1:
                grads[model.LAYERS, mb] = model.loss(out)
            elif layer == layers[-1] and rank_of(stage + 1) != r:
                await model.pass_to(rank_of(stage + 1), out)
            else:
                acts[layer + 1, mb] = out

    async def backward_input(chunk, mb):
        layers = (low, high)[chunk]
        stage = r if chunk == 0 else 2 * n - 1 - r
        for layer in reversed(layers):
            if (layer + 1, mb) not in grads:
                await get(grads, ActivationGrad, layer + 1, mb, rank_of(stage + 1))
            grad = model.backward_input(
                layer, acts[layer, mb], grads[layer + 1, mb], model.weights[layer]
            )
            if layer == 0:
                pass
            elif layer == layers[0] and rank_of(stage - 1) != r:
                await model.pass_to(rank_of(stage - 1), grad)
            else:
                grads[layer, mb] = grad

    async def backward_weight(chunk, mb):
        for layer in reversed((low, high)[chunk]):
            grad = model.backward_weight(
                layer, acts.pop((layer, mb)), grads.pop((layer + 1, mb)), model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad

    m = model.BATCHES
    done = {"F0": 0, "F1": 0, "B0": 0, "B1": 0}

    async def F(chunk):
        if done["F%d" % chunk] < m:
            await forward(chunk, done["F%d" % chunk])
            done["F%d" % chunk] += 1

    async def B(chunk):
        if done["B%d" % chunk] < m:
            mb = done["B%d" % chunk]
            await backward_input(chunk, mb)
            await backward_weight(chunk, mb)
            done["B%d" % chunk] += 1

    for _ in range(2 * (n - r) - 1):
        await F(0)
    for _ in range(r):
        await F(1)
        await F(0)
    for _ in range(n - r):
        await F(1)
        await B(1)
    while done["F0"] < m or done["F1"] < m:
        await F(0)
        await B(0)
        await F(1)
        await B(1)
    while done["B1"] < m:
        await B(0)
        await B(1)
    while done["B0"] < m:
        await B(0)

    for layer in low + high:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
RING = """
async def ring_attention(model: Model) -> Model:
    acts, grads, n, r = model.activations, model.grad_activations, model.RANKS, model.rank
    after, before = (r + 1) % n, (r - 1) % n
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    inp = model.get_activation([0])
    acts[0] = inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        weight = model.weights[layer]
        acts["att", layer], acts["kv", layer] = model.project(layer, acts[layer], weight)
        acts["kv"] = acts["kv", layer]
        for step in range(n):
            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None
            acts["att", layer] = model.attend(layer, acts["att", layer], acts.pop("kv"))
            if send:
                acts["kv"] = await model.receive(before)
                await send
        acts[layer + 1] = model.rest(layer, acts[layer], weight, acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)

    for layer in reversed(range(model.LAYERS)):
        weight = model.weights[layer]
        grads["att"] = model.backward_rest(layer, acts[layer], grads["out"], weight, acts.pop(("att", layer)))
        acts["kv"] = acts.pop(("kv", layer))
        for step in range(n):
            send_kv = model.pass_to(after, acts["kv"]) if step < n - 1 else None
            grads["att"], theirs = model.backward_attend(layer, grads["att"], acts.pop("kv"))
            if step > 0:
                theirs = grads.pop("kv") + theirs
            if n == 1:
                grads["kv"] = theirs
                break
            send_grad = model.pass_to(after, theirs)
            if send_kv:
                acts["kv"] = await model.receive(before)
                await send_kv
            grads["kv"] = await model.receive(before)
            await send_grad
        model.grad_weights[layer], grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, weight, model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
STRAGGLER = """
async def repair_straggler(model: Model) -> Model:
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    mine = range(model.rank, model.BATCHES, model.RANKS)
    for batch in mine:
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
SOURCES = {"zbv": ZBV, "ring_attention": RING, "repair_straggler": STRAGGLER}
MINE = "range(model.rank, model.BATCHES, model.RANKS)"
STEADY = "        await F(0)\n        await B(0)\n        await F(1)\n        await B(1)\n"
UPPER_FIRST = "        await F(1)\n        await B(1)\n        await F(0)\n        await B(0)\n"
TURNS = "    for _ in range(n - r):\n        await F(1)\n        await B(1)\n"
HALVES = "            await backward_input(chunk, mb)\n            await backward_weight(chunk, mb)\n"
KEPT = "            if isinstance(got, Activation):\n                acts[key] = got\n            else:\n                grads[key] = got\n"
TAIL = """    while done["B1"] < m:
        await B(0)
        await B(1)
    while done["B0"] < m:
        await B(0)
"""
LATE = """    late = []

    async def I(chunk):
        if done["B%d" % chunk] < m:
            mb = done["B%d" % chunk]
            await backward_input(chunk, mb)
            late.append((chunk, mb))
            done["B%d" % chunk] += 1

    while done["B1"] < m:
        await I(0)
        await I(1)
        if len(late) > 2:
            await backward_weight(*late.pop(0))
            await backward_weight(*late.pop(0))
    while done["B0"] < m:
        await I(0)
        if late:
            await backward_weight(*late.pop(0))
    while late:
        await backward_weight(*late.pop(0))
"""
LATER = """            await backward_input(chunk, mb)
            if mb:
                await backward_weight(chunk, mb - 1)
"""
ENDS = "    for layer in low + high:\n        model.weights[layer], model.opt_states[layer] = model.update("
LEFT = "    for chunk in (0, 1):\n        await backward_weight(chunk, m - 1)\n"


def wrong(puzzle: str, name: str, *edits: tuple[str, str]) -> Program:
    """The reader's program of a puzzle with a mistake in it."""
    source = SOURCES[puzzle]
    for old, new in edits:
        assert old in source, f"{puzzle}, {name}: {old!r} is not in the program"
        source = source.replace(old, new)
    return whole(puzzle, name, source)


ROWS = [
    Row(
        wrong("zbv", "a gradient is stored a layer too low", ("else got.layer + 1", "else got.layer")),
        (
            "rank 1 looks for model.grad_activations[7, 0], and ActivationGrad of layer 6, micro-batch 0, is in "
            "model.grad_activations[6, 0]: store it where it is looked for",
        ),
        ("The order of the work is the mistake",),
    ),
    Row(
        wrong("zbv", "all that comes is stored among the activations", (KEPT, "            acts[key] = got\n")),
        ("rank 1 looks for model.grad_activations[7, 0]", "is in model.activations[7, 0]: store it where it is looked for"),
        ("The order of the work is the mistake",),
    ),
    Row(
        wrong("zbv", "what comes is dropped", (KEPT, "            del got\n")),
        ("and Activation of layer 1, micro-batch 0, has come to it, and is in no dictionary any more: store each message",),
    ),
    Row(
        wrong("zbv", "the upper stage before the lower one", (STEADY, UPPER_FIRST)),
        (
            "rank 3 looks for model.activations[4, 4], which no message brings: forward(layer 3) of micro-batch 4 gives "
            "it on this rank itself, and comes first",
        ),
        ("src=model.rank - 1",),
    ),
    Row(
        wrong("zbv", "the same, with a rank that asks the one before for its own", (STEADY, UPPER_FIRST), ("receive(src)", "receive(src if src != r else r - 1)")),
        ("rank 3 looks for model.activations[4, 4], which no message brings: forward(layer 3)",),
        ("The order of the work is the mistake", "it asks the wrong rank"),
    ),
    Row(
        wrong("zbv", "no turns before the steady state", (TURNS, "")),
        ("rank 3 looks for model.grad_activations[4, 0], which no message brings", "gives it on this rank itself"),
        ("src=model.rank - 1",),
    ),
    Row(
        wrong("zbv", "a backward before its forward", (TURNS, TURNS.replace("        await F(1)\n        await B(1)\n", "        await B(1)\n        await F(1)\n"))),
        ("rank 0 looks for model.grad_activations[8, 0], the first gradient, which no message brings: forward(layer 7) of micro-batch 0 comes first, and then model.loss",),
        ("src=1",),
    ),
    Row(
        wrong("zbv", "the upper stage's input is sent on, and asked of the rank before", ("stage if stage < n else 2 * n - 1 - stage", "stage if stage < n else stage - n"), ("receive(src)", "receive(src if src != r else r - 1)")),
        ("looks for model.activations[4, 0], which forward(layer 3) of micro-batch 0 gave on this rank itself, and it was sent to rank 0: keep it stored",),
        ("receive(src=3)",),
    ),
    Row(
        wrong("zbv", "the half for the weight comes first", (HALVES, "".join(reversed(HALVES.splitlines(keepends=True))))),
        ("backward_weight(layer 7) of micro-batch 0 has run before backward_input, which comes first",),
        ("another key",),
    ),
    Row(
        wrong("zbv", "the gradient's key is one too low", ("acts[layer, mb], grads[layer + 1, mb], model.weights", "acts[layer, mb], grads[layer, mb], model.weights")),
        ("stored under the layer above, model.grad_activations[8, 0]",),
        ("And with halves",),
    ),
    Row(
        wrong("zbv", "weight halves a pair late", (TAIL, LATE)),
        ("wait for backward_weight alone at the peak", "let these weight halves come sooner on rank"),
        ("do the same at every size", "such as 2", "Add a gradient to the sum"),
    ),
    Row(
        wrong("ring_attention", "slices of two sizes", ("combine(inp.shard(2 * n - 1 - r, 2 * n))", "combine(inp.shard(r, n))")),
        ("cut both into as many, tensor.shard(i, 8) and tensor.shard(k, 8); in a zigzag k is 8 - 1 - i",),
        ("tensor.shard(model.rank",),
    ),
    Row(
        wrong("ring_attention", "the backward begins with the last keys of the forward", ('acts["kv", layer] = model.project(layer, acts[layer], weight)\n        acts["kv"] = acts["kv", layer]\n', 'acts["kv"] = model.project(layer, acts[layer], weight)\n'), ('acts["att", layer], acts.pop("kv"))', 'acts["att", layer], acts["kv"])'), ('        acts["kv"] = acts.pop(("kv", layer))\n', "")),
        ("the backward of layer 7 has begun with the keys and values of rank 1: begin with this rank's own",),
        ("one hop more",),
    ),
    Row(
        wrong("ring_attention", "the gradient that goes on is used here", ('            grads["kv"] = await model.receive(before)\n', '            if step < n - 1:\n                grads["kv"] = await model.receive(before)\n'), ('grads.pop("att"), grads.pop("kv")', 'grads.pop("att"), theirs')),
        ("this is the gradient of another rank's keys and values", "take this rank's own, which comes last"),
        ("store it before that",),
    ),
    Row(
        wrong("ring_attention", "one key for what attention gives", ('acts["att", layer]', 'acts["att"]'), ('acts.pop(("att", layer))', 'acts.pop("att")')),
        ("each backward reads its own, model.activations['att', layer]",),
        ("without pop",),
    ),
    Row(
        wrong("ring_attention", "own keys are popped in the forward", ('acts["kv"] = acts["kv", layer]', 'acts["kv"] = acts.pop(("kv", layer))')),
        ("model.activations['kv', 7]",),
        ("7, layer]",),
    ),
    Row(
        wrong("repair_straggler", "shifted by one", (MINE, MINE.replace("model.rank,", "model.rank + 1,"))),
        ("has not run on micro-batch 0 by then, on any rank; rank 0 has 11, rank 1 has 11, rank 2 has 10, rank 3 has 10; they begin with micro-batches 1-4: let them begin with 0-3",),
        (MINE, "model.rank + a multiple", "give it to rank 2"),
    ),
    Row(
        wrong("repair_straggler", "the slow rank drops one", (MINE, "list(" + MINE + ")[: None if model.rank else -1]")),
        ("rank 0 has 10, rank 1 has 11, rank 2 has 11, rank 3 has 10: give it to rank 3",),
        (MINE,),
    ),
    Row(
        wrong("repair_straggler", "numbers written out", (MINE, "range(10) if model.rank == 0 else range(10 + 11 * (model.rank - 1), 10 + 11 * model.rank)")),
        ("such as 10", "give each of the 3 micro-batches to one rank, range(first, model.BATCHES, model.RANKS)"),
        (MINE,),
    ),
    Row(
        wrong("repair_straggler", "a micro-batch written out", (MINE, "[*" + MINE + "]"), ("    for batch in mine:", "    if model.rank == 0:\n        mine.pop()\n    if model.rank == 3:\n        mine.append(40)\n    for batch in mine:")),
        ("such as 40",),
        (MINE,),
    ),
    Row(
        wrong("repair_straggler", "a sum after each micro-batch", ("            so_far =", "            grad = await model.allreduce(grad, layer)\n            so_far ="), ("await model.allreduce(model.grad_weights.pop(layer), layer)", "model.grad_weights.pop(layer)")),
        ("rank 3 has called model.allreduce for layer 1 10 times, and rank 0 11 times", "sum over the ranks once, at the end"),
    ),
    Row(
        wrong("repair_straggler", "a sum after each micro-batch, and one more", ("            so_far =", "            grad = await model.allreduce(grad, layer)\n            so_far =")),
        ("has called model.allreduce for layer 1 11 times", "sum over the ranks once, at the end"),
        ("was it added before",),
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)


def test_the_slow_rank_is_compared_with_what_it_could_do() -> None:
    given = wrong("repair_straggler", "as given")
    here = grade(function(given), "repair_straggler", timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.costs_time.endswith("it has 11 micro-batches, rank 3 has 10: let the slow rank be the one that has 10")
    assert "rank 0 is the slow one" in here.costs_time and "those of the target take 1" not in here.costs_time


def test_what_is_awaited_too_soon_in_a_ring_is_named_for_the_star() -> None:
    passes = wrong("ring_attention", "within the target")
    here = grade(function(passes), "ring_attention", timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == PASS and not here.starred, here.message
    assert 'grads["kv"] = await model.receive(before)) before backward_attend' in here.costs_time, here.costs_time
    assert "await that receive a step later, right before what came is added" in here.costs_time, here.costs_time


def test_the_first_forwards_come_first_where_they_are_the_difference() -> None:
    at_once = wrong(
        "zbv",
        "all forwards first",
        ("range(2 * (n - r) - 1)", "range(m)"),
        ("    for _ in range(r):\n", "    for _ in range(m):\n"),
    )
    here = grade(function(at_once), "zbv", timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL and here.right, here.message
    assert here.costs_time.startswith("before their first backward") or "do more forwards" in here.costs_time
    assert "through its first layer" not in here.costs_time, here.costs_time


def test_weight_halves_that_are_late_are_named_for_their_memory() -> None:
    late = wrong("zbv", "weight halves a micro-batch late", (HALVES, LATER), (ENDS, LEFT + ENDS))
    here = grade(function(late), "zbv", timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL and here.right, here.message
    assert "are read next by backward_weight" in here.costs_memory, here.costs_memory
    assert "wait for backward_weight alone: let it come sooner, on rank 2" in here.costs_memory, here.costs_memory
    assert "the forwards of so many others" not in here.costs_memory, here.costs_memory
