"""What is told of calls that were started and are awaited too late, too soon or never: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from tests.corpus import changed
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


@pytest.mark.parametrize("row", NEVER, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_calls_that_nobody_awaits_are_told_beside_those_that_are(row: Row) -> None:
    check_words(row)
