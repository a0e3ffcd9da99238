"""What is told of calls that were started and are awaited too late, too soon or never: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import PASS
from tests.corpus import Program, changed
from tests.test_corpus import LONG, function, near
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

UPDATES = """\
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
"""
SUMMED = "        grad = await model.allreduce(grad, layer)\n"
FINISH = f"""\
    calls = {{}}

    async def finish(layer, call):
        grad = await call
{UPDATES}
"""
BACK = "    for layer in reversed(range(model.LAYERS)):\n"
GATHERED = '        grad = await model.allgather(grad, layer, axis="shard")\n'
KEPT = "        calls[layer] = model.allgather(grad, layer, axis='shard')\n"
NEXT_TURN = "        if layer + 1 in calls:\n            await finish(layer + 1, calls.pop(layer + 1))\n"
SENT = "            await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))\n"
CAME = "            model.activations[first, mb] = await model.receive(src=model.rank - 1)\n"
AHEAD = "            ahead = model.allgather(model.weights[layer + 1], layer + 1)\n"
ONE_BACK = "            ahead = model.allgather(model.weights[layer - 1], layer - 1)\n"

NEVER = [
    Row(
        changed("hierarchical", "gathers awaited a turn later", (GATHERED + UPDATES, KEPT + NEXT_TURN), (BACK, FINISH + BACK)),
        (
            "allgather(layer 0) was started and never awaited",
            "await that of layer 0 after the loop, and go on with it as with the others: those of layers 1-7 are awaited later (that of layer 1 after allgather(layer 0))",
        ),
    ),
    Row(
        changed(
            "hierarchical",
            "a second loop that is too short",
            (GATHERED + UPDATES, KEPT),
            (BACK, FINISH + BACK),
            ("    ### END", "    for layer in range(1, model.LAYERS):\n        await finish(layer, calls.pop(layer))\n    ### END"),
        ),
        ("await that of layer 0, too: those of layers 1-7 are awaited later",),
        ("after the loop",),
    ),
    Row(
        changed(
            "hierarchical",
            "gathers awaited below a condition",
            (GATHERED + UPDATES, KEPT + "        if layer % 2 == 0:\n            await finish(layer, calls.pop(layer))\n"),
            (BACK, FINISH + BACK),
        ),
        ("await those of layers 1, 3, 5, 7, too: those of layers 0, 2, 4, 6 are awaited, where they are called",),
    ),
    Row(
        changed("ddp", "sums awaited a turn later", (SUMMED + UPDATES, "        calls[layer] = model.allreduce(grad, layer)\n" + NEXT_TURN), (BACK, FINISH + BACK)),
        ("await that of layer 0, too: that of layer 1 is awaited later (after allreduce(layer 0))",),
    ),
    Row(
        changed(
            "fsdp",
            "sums awaited a turn later",
            (
                "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n",
                "        if layer + 1 < model.LAYERS:\n            model.grad_weights[layer + 1] = await call\n        call = model.scatterreduce(grad, layer)\n",
            ),
        ),
        ("model.scatterreduce(..., 0) was started on this rank, and never awaited, while those of layers 1-5 are awaited later",),
    ),
    Row(
        changed("gpipe", "sends awaited a turn later", (SENT, SENT.replace("await ", "if mb > 0:\n                await send\n            send = "))),
        ("await that of micro-batch 3 after the loop", "those of micro-batches 0-2 are awaited later (that of micro-batch 2 after forward(layer 1))"),
    ),
    Row(
        changed("gpipe", "sends that nobody awaits", (SENT, SENT.replace("await ", ""))),
        ("of 4 such calls on this rank none is awaited: keep what each gives",),
    ),
    Row(
        changed(
            "gpipe",
            "a receive more than there are messages",
            (CAME, CAME.replace("await model.receive(src=model.rank - 1)", "await ahead\n            ahead = model.receive(src=model.rank - 1)")),
            ("    for mb in range(model.BATCHES):\n        if is_first", "    ahead = model.receive(src=model.rank - 1) if model.rank else None\n    for mb in range(model.BATCHES):\n        if is_first"),
        ),
        ("this rank starts 5 receives from rank 0, and 4 messages come: start none after the last message",),
        ("on the spot", "layer 0"),
    ),
    Row(
        changed("prefetch", "gathered round the ring of layers", ("        if layer + 1 < model.LAYERS:\n" + AHEAD, AHEAD[4:].replace("layer + 1", "(layer + 1) % model.LAYERS"))),
        ("leave this one out, if nothing needs its result: this rank calls allgather 3 times for layer 0, and twice for layers 1-5",),
    ),
    Row(
        changed("prefetch", "gathered round the ring of layers in the backward", ("        if layer > 0:\n" + ONE_BACK, ONE_BACK[4:].replace("layer - 1", "(layer - 1) % model.LAYERS"))),
        ("this rank calls allgather 3 times for layer 5, and twice for layers 0-4",),
    ),
]  # fmt: skip


AXES = [
    Row(
        changed("hierarchical", "the first sum has no axis", ('scatterreduce(grad, layer, axis="shard")', "scatterreduce(grad, layer)")),
        (
            'model.scatterreduce(..., 7) before this has no axis, so it sums over all ranks, and nothing is left to sum over axis="replica": grad = await model.scatterreduce(grad, 7, axis="shard") there',
        ),
        ("reduce each gradient once",),
    ),
    Row(
        changed("hierarchical", "the first sum has no axis, and cuts nothing", ('scatterreduce(grad, layer, axis="shard")', "allreduce(grad, layer)")),
        ('grad = await model.allreduce(grad, 7, axis="shard") there',),
    ),
    Row(
        changed("hierarchical", "the second sum has no axis", ('allreduce(grad, layer, axis="replica")', "allreduce(grad, layer)")),
        ('sum over the axis that is left, grad = await model.allreduce(grad, 7, axis="replica")',),
        ("too many",),
    ),
    Row(
        changed("replica_fsdp", "the second sum has no axis", ('pop(layer), layer, axis="replica")', "pop(layer), layer)")),
        ('sum over the axis that is left, grad = await model.scatterreduce(grad, 0, axis="replica")',),
    ),
    Row(
        changed("hierarchical", "no sum has an axis", (', axis="shard"', ""), (', axis="replica"', "")),
        ('over one axis after the other: axis="shard" in the call before, and axis="replica" here',),
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", AXES, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_a_sum_without_an_axis_is_named(row: Row) -> None:
    check_words(row)


PIECE = """\
        mine, model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer].shard(place, shards), model.opt_states[layer].shard(place, shards)
        )
        model.weights[layer] = await model.allgather(mine, layer, axis="shard")
        model.set_final_weight(layer, model.weights[layer])
"""
OWN_PIECES = changed(
    "hierarchical",
    "each rank updates a piece",
    (GATHERED + UPDATES, PIECE),
    (BACK, '    shards, place = model.axis_size("shard"), model.axis_index("shard")\n' + BACK),
)


def test_what_a_rank_ends_with_has_the_line_of_its_update() -> None:
    verdict = check_words(Row(OWN_PIECES, ("gather the gradient before the update",)))
    assert verdict.error is not None and "mine, model.opt_states[layer] = model.update(" in verdict.error.line
    assert verdict.message == near(OWN_PIECES).message


HIDDEN = (
    """\
    async def finish(layer, call):
        grad = await model.allreduce(await call, layer, axis="replica")
        grad = await model.allgather(grad, layer, axis="shard")
"""
    + UPDATES
)
ONE_IS_HIDDEN = changed(
    "hierarchical",
    "the reduce-scatter alone is hidden",
    (BACK, HIDDEN + "\n" + BACK),
    (
        '        grad = await model.scatterreduce(grad, layer, axis="shard")\n        grad = await model.allreduce(grad, layer, axis="replica")\n' + GATHERED + UPDATES,
        "        model.grad_weights[layer] = grad\n        if layer + 1 < model.LAYERS:\n            await finish(layer + 1, call)\n        call = model.scatterreduce(model.grad_weights.pop(layer), layer, axis='shard')\n",
    ),
    ("    ### END", "    await finish(0, call)\n    ### END"),
)  # fmt: skip
STARS = [
    (ONE_IS_HIDDEN, "rank 0 computes nothing while allreduce(layer 7) is on its way: start it, do backward(layer 5), which does not need it"),
    (changed("hierarchical", "as it is"), "while allreduce(layer 7) is on its way: start it, do backward(layer 6), which does not need it"),
    (changed("wsdp", "as it is"), "while allgather(layer 1) is on its way: start it before forward(layer 0), and await it after that"),
    (changed("fsdp", "as it is"), "while allgather(layer 1) is on its way: start it before forward(layer 0), and await it after that"),
]  # fmt: skip


@pytest.mark.parametrize("program, words", STARS, ids=[f"{one.puzzle}: {one.name}" for one, _ in STARS])
def test_the_work_beside_which_a_call_could_be_on_its_way_is_named(program: Program, words: str) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.status == PASS and words in verdict.costs_time, verdict.costs_time


@pytest.mark.parametrize("row", NEVER, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_calls_that_nobody_awaits_are_told_beside_those_that_are(row: Row) -> None:
    check_words(row)
