"""What is said where a line of the solution was left out, stands too early, names another layer or is there twice: rows
as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from tests.corpus import changed
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

SOME = "assigned on some ranks or in some turns only"
GATHERED = '            weight = await model.allgather(model.weights[layer], layer, axis="shard")\n'
FORWARD = "            model.activations[layer + 1] = model.forward("
KEYS = '        whole = await model.allgather(acts["kv", layer], layer)\n'
BACKWARD = """\
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
"""
LOADED = "        model.weights[layer], state = model.load_weights(layer, shard, shards)\n"
LOSS = "        grad = model.loss(await on_their_way.pop(turn))\n"
SENT = "        on_their_way[turn] = model.alltoall(grad, model.LAYERS - 1)\n"
POPPED = "            grad = model.grad_activations.pop((layer + 1, mb))\n"
HALF = "            of_weight = model.backward_weight(layer, inp, grad, model.weights[layer])\n"
TOTALS = "    totals = {layer: model.allreduce(sums.pop(layer), layer) for layer in dense}\n"
EXPERT = '            out = model.expert(layer, acts["tokens", layer], model.weights[layer])\n'
SEND = '                send = model.pass_to(after, grads.pop("kv"))\n'
OUT = "        out = model.forward(layer, model.activations[layer, mb], model.weights[layer])\n"
OF_THE_NEXT = (
    "names layer",
    "as `layer + 1`, and the gradient is that of layer",
    "name its own layer, model.allreduce(..., layer)",
)
PROJECT = '        acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)\n'
ROWS = [
    Row(changed("context_parallel", "no gather in the forward", (KEYS, "")), ("no line before this one gives whole a value; line ", '`whole = await model.allgather(acts.pop(("kv", layer)), layer)`, and it comes after'), (SOME,)),
    Row(changed("replica_fsdp", "no gather in the forward", (GATHERED + FORWARD, FORWARD)), ("no line before this one gives weight a value; line ", '`weight = await model.allgather(model.weights[layer], layer, axis="shard")`, and it comes after'), (SOME,)),
    Row(changed("ddp", "no backward", (BACKWARD, "")), ("no line before this one gives grad a value: grad = ... before that; model.backward(layer, inp, grad, weight) gives it, as the first of two",), (SOME, "fake_grad")),
    Row(changed("two_batch_overlap", "the gradient is sent before the loss", (LOSS + SENT, SENT + LOSS)), ("`grad = model.loss(await on_their_way.pop(turn))`, and it comes after",), (SOME, "model.backward(")),
    Row(changed("zero_bubble", "the half before its gradient", (POPPED + HALF, HALF + POPPED)), ("`grad = model.grad_activations.pop((layer + 1, mb))`, and it comes after",), (SOME, "model.backward(")),
    Row(changed("ddp", "the gradient is there below a condition", ("        grad = await model.allreduce(grad, layer)\n", "        if layer < 0:\n            total = await model.allreduce(grad, layer)\n        grad = total\n")), (SOME, "below `if layer < 0`: assign it before")),
    Row(changed("replica_fsdp", "nothing is loaded", (LOADED, "")), ("model.load_weights(layer) gives both",), ("model.opt_states[layer] gives it",)),
    Row(changed("two_batch_overlap", "no sums", (TOTALS, "")), ("such as model.allreduce(grad, layer), made before that",)),
    Row(changed("expert_parallel", "the experts do nothing", (EXPERT, "")), ("and of experts model.expert",)),
    Row(changed("expert_parallel", "the sum of the next layer", ("model.allreduce(grad, layer)", "model.allreduce(grad, layer + 1)")), OF_THE_NEXT, ("one key for all",)),
    Row(changed("two_batch_overlap", "the sums of the next layers", ("model.allreduce(sums.pop(layer), layer)", "model.allreduce(sums.pop(layer), layer + 1)")), OF_THE_NEXT, ("one key for all",)),
    Row(changed("dualpipe", "the sums of the next layers", ("model.allreduce(model.grad_weights.pop(layer), layer,", "model.allreduce(model.grad_weights.pop(layer), layer + 1,")), OF_THE_NEXT, ("one key for all",)),
    Row(changed("ring_attention", "gradients are sent twice", (SEND, 2 * SEND)), ("it was sent to rank 1 just before this", "is this send there twice?"), ("model.receive(src=3)",)),
    Row(changed("context_parallel", "no projection", (PROJECT, "")), ("model.project(layer, inp, weight) gives queries, and keys and values",), ("If a task gathers it",)),
    Row(changed("fsdp", "no sum", ("        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n", "")), ("backward(0, ...) gave the gradient, as the first of two: store that, or what its sum over ranks gives",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_on_what_is_missing_lead_to_the_fix(row: Row) -> None:
    check_words(row)


def test_a_forward_that_is_there_twice_is_told_as_that() -> None:
    program = changed("interleaved", "every forward twice", (OUT, 2 * OUT))
    verdict = grade(function(program), "interleaved", timeout=LONG).verdict  # type: ignore[arg-type]
    said = "rank 0 runs forward(0, ...) on micro-batch 0 twice, one right after the other, and so it does each"
    assert said in verdict.costs_time.replace("Rank 0", "rank 0")
    assert "takes 8 micro-batches" not in verdict.costs_time
