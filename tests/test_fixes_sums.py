"""What mistakes are told in sums over ranks of partial sums, of slices and in nodes, and what a rank is told whose keys
are micro-batches: rows as in ``test_fixes``, of programs in several styles."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from lib import Model, PuzzleError, grade, run
from lib.grading.advice.holding import unread_in_words
from lib.grading.verdict import PASS
from tests.corpus import Program, changed, whole
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_cards import BY_COUNT
from tests.test_fixes_conditions import AHEAD_BACK
from tests.test_fixes_later import check_words
from tests.test_fixes_readers import wrong

COUNTED = BY_COUNT.replace("if layer not in model.grad_weights else", "if mb == 0 else")
COUNTED = COUNTED.replace("for layer in range(r, model.LAYERS, p):", "for layer in list(model.weights):")
"""Puzzle 14 as in ``BY_COUNT``, with sums that begin with micro-batch 0, and updates of what the rank has loaded."""
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


LAST_FIRST = "it is read too soon: this rank has not run forward({1}, ...) for micro-batch {0} yet"
STAYS = "loss(...) gave it, and it was sent to rank {}. backward({}, ...), which reads it, runs on this rank, so keep it here"
DEALT = "rank 0 has loaded layers {}, and layers are dealt like cards here: mine = range(model.rank, model.LAYERS, model.RANKS)"
OTHER_KEY = "the input of layer {0}, micro-batch 0, is in model.activations["
NEXT_IN_ROUND = "So far this rank has run layer 0 on {}, and a round takes micro-batches 0-3, as many as there are ranks, through layer 0, and then the same ones through layer 4"
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
    Row(edited("interleaved", "weights under the chunk", COUNTED, ("model.weights[layer], model.opt_states[layer] = model.load", "model.weights[c], model.opt_states[c] = model.load"), ("x, model.weights[layer]", "x, model.weights[layer % p]")), ("the weight of layer 1 is in model.weights[0] here: is it stored under another key than it is looked for?",)),
    Row(edited("interleaved", "inputs under the count of forwards", COUNTED, ("model.activations[layer, mb] = x", "model.activations[k] = x"), ("model.activations.pop((layer, mb))", "model.activations.pop(k)")), (OTHER_KEY.format(7, 7),)),
    Row(edited("interleaved", "inputs under the chunk in its order", COUNTED, ("model.activations[layer, mb] = x", "model.activations[k // p % v, mb] = x"), ("model.activations.pop((layer, mb))", "model.activations.pop((k // p % v, mb))")), (OTHER_KEY.format(7, 7),)),
    Row(changed("interleaved", "inputs under the stage in its order", ("model.activations[layer, mb]", "model.activations[mine.index(layer), mb]"), ("model.activations.pop((layer, mb))", "model.activations.pop((len(mine) - 1 - mine.index(layer), mb))")), (OTHER_KEY.format(7, 7),)),
    Row(edited("interleaved", "micro-batches counted by the stages", COUNTED, ("k // (p * v) * p + k % p", "k // v")), (NEXT_IN_ROUND.format("micro-batch 0"),)),
    Row(changed("interleaved", "the first of each round only", ("[(layer, mb) for some in rounds for layer in mine for mb in some]", "[(layer, some[0]) for some in rounds for layer in mine for mb in some]")), (NEXT_IN_ROUND.format("micro-batch 0"),)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)


SLICED = """
async def sequence_parallel(model: Model) -> Model:
    L, r, R = model.LAYERS, model.rank, model.RANKS
    A, G = model.activations, model.grad_activations
    for k in range(L):
        model.weights[k], model.opt_states[k] = model.load_weights(k, r, R)
    A[0] = model.get_activation([0]).shard(r, R)
    for k in range(L):
        x = await model.allgather(A[k], k)
        part = model.forward(k, x, model.weights[k], partial=True)
        A[k + 1] = await model.scatterreduce(part, k + 1)
    G[L] = model.loss(await model.allgather(A.pop(L), L))
    for k in range(L - 1, -1, -1):
        x = await model.allgather(A.pop(k), k)
        model.grad_weights[k], dx = model.backward(k, x, G.pop(k + 1), model.weights[k], partial=True)
        if k:
            G[k] = await model.allreduce(dx, k - 1)
        model.weights[k], model.opt_states[k] = model.update(k, model.grad_weights.pop(k), model.weights[k], model.opt_states[k])
        model.set_final_weight(k, model.weights[k])
    return model
"""
NODES = """
async def hierarchical(model: Model) -> Model:
    L = model.LAYERS
    W, S, A, G = model.weights, model.opt_states, model.activations, model.grad_activations
    for k in range(L):
        W[k], S[k] = model.load_weights(k)
    n = model.BATCHES // model.RANKS
    x = model.get_activation(range(model.rank * n, model.rank * n + n))
    for k in range(L):
        A[k] = x
        x = model.forward(k, x, W[k])
    G["g"] = model.loss(x)

    async def summed(g, k):
        g = await model.scatterreduce(g, k, axis="shard")
        g = await model.allreduce(g, k, axis="replica")
        return await model.allgather(g, k, axis="shard")

    for k in range(L - 1, -1, -1):
        g, G["g"] = model.backward(k, A.pop(k), G.pop("g"), W[k])
        W[k], S[k] = model.update(k, await summed(g, k), W[k], S[k])
        model.set_final_weight(k, W[k])
    return model
"""
LOADED, WHOLE = "model.load_weights(k, r, R)", "model.load_weights(k)"
ALONE = "and computes with that piece alone: with partial=True its forward and backward give partial sums"
ONCE = "model.{} has added it up before: leave this call out"
CUT_FIRST = "each rank has cut its partial sum before it is added up, so that these are different slices: leave out .shard(...) before this call"
EXCHANGED = "or are they exchanged where they are stored, each in the other's dictionary or name? What asyncio.gather gives is in the order of its calls"
GATHER_BEFORE = 'so gather the gradient before the update, and no weight after it: grad = await model.allgather(grad, 7, axis="shard")'
IN_PIECES = 'where it is in pieces, after model.scatterreduce and before model.allgather, grad = await model.allreduce(grad, 7, axis="replica")'
NO_SUM = 'and a gather adds nothing up: grad = await model.allreduce(grad, 7, axis="replica") in place of this call'
CUT_TWICE = 'the reduce-scatter over axis="replica" cuts the pieces again: in its place grad = await model.allreduce(grad, 7, axis="replica") sums them'
SUMS_AND_CUTS = 'model.scatterreduce sums and cuts, so leave out model.allreduce before it. The pieces are summed over axis="replica" after that'
AGAIN = (
    'has been summed over all axes already, over axis="replica", too, and once is enough: join the pieces as they are'
)
ENDS_EARLY = "no rank has run the backward of layer 0: does a loop end too soon?"
IN_NODE, ACROSS, JOINED = ('await model.scatterreduce(g, k, axis="shard")', 'await model.allreduce(g, k, axis="replica")', 'await model.allgather(g, k, axis="shard")')  # fmt: skip
CUT, SUM, JOIN = (one.replace("(g, k", "(grad, layer") for one in (IN_NODE, ACROSS, JOINED))
GATHERED_BOTH = "x, G[k + 1] = await asyncio.gather(model.allgather(A.pop(k), k), model.allgather(G.pop(k + 1), k))"
SENT_ROUND = """for other in range(R):
            if other != r:
                await model.pass_to(other, A[k])
        x = A.pop(k)
        for other in range(R):
            if other != r:
                x = x + await model.receive(src=other)"""
SENT_IN_A_LIST = """        own = model.activations[layer]
        others = [rank for rank in range(model.RANKS) if rank != model.rank]
        await asyncio.gather(*[model.pass_to(rank, own) for rank in others])
        del model.activations[layer]
        inp = sum([await model.receive(src=rank) for rank in others], start=own)
        grad_out"""
LAST_OF_THEM = "model.scatterreduce and the calls after it do not change the gradient that they are given: update with what the last of them gives, model.allgather"
SENT_AFTER_LOSS = [
    ("model.loss(model.activations.pop(end))\n    else:\n        await model.pass_to(model.rank + 1, model.activations.pop(end))\n", "model.loss(out)\n    await model.pass_to((model.rank + 1) % model.RANKS, out)\n    if not is_last:\n"),
    ("    if is_last:\n        model.grad_activations[end] =", "    out = model.activations.pop(end)\n    if is_last:\n        model.grad_activations[end] ="),
]  # fmt: skip
FROM_LAYER_1 = (
    "range(model.LAYERS):\n        if layer == first and",
    "range(1, model.LAYERS):\n        if layer == first and",
)
SLICE_OF_LOSS = (
    "G[L] = model.loss(await model.allgather(A.pop(L), L))",
    "G[L] = model.loss(await model.allgather(A.pop(L), L)).shard(r, R)",
)
SLICES_BACK = ("G[k] = await model.allreduce(dx, k - 1)", "G[k] = await model.scatterreduce(dx, k - 1)")
IN_SUMS = [
    Row(edited("sequence_parallel", "whole weights, in slices by hand", SLICED, (LOADED, WHOLE), (", partial=True", ""), ("await model.scatterreduce(part, k + 1)", "part.shard(r, R)"), ("await model.allreduce(dx, k - 1)", "dx")), (ALONE,), ("gathers the whole weight",)),
    Row(changed("tensor_parallel", "whole weights", ("(\n            layer, model.rank, model.RANKS\n        )", "(layer)"), (", partial=True", ""), ("await model.allreduce(out, layer + 1)", "out"), ("await model.allreduce(grad, layer - 1)", "grad")), (ALONE,), ("gathers the whole weight",)),
    Row(edited("sequence_parallel", "slices are summed again", SLICED, ("        A[k + 1] = await", "        part ="), ("(part, k + 1)\n", "(part, k + 1)\n        A[k + 1] = await model.allreduce(part, k + 1)\n"), (" = model.scatter", " = await model.scatter")), (ONCE.format("scatterreduce"),)),
    Row(edited("sequence_parallel", "slices of a sum are summed", SLICED, ("await model.scatterreduce(part, k + 1)", "await model.scatterreduce((await model.allreduce(part, k + 1)).shard(r, R), k + 1)")), (ONCE.format("allreduce"),)),
    Row(edited("sequence_parallel", "gradients in slices are summed again", SLICED, ("G[k] = await model.allreduce(dx, k - 1)", "dx = await model.scatterreduce(dx, k - 1)\n            G[k] = await model.allreduce(dx, k - 1)")), (ONCE.format("scatterreduce"),)),
    Row(edited("sequence_parallel", "slices are sent to all and added up", SLICED, ("x = await model.allgather(A.pop(k), k)", SENT_ROUND)), ("these are slices of one tensor, and are joined, not added up: await model.allgather(..., 7) on every rank",), ("partial sums",)),
    Row(changed("sequence_parallel", "slices are sent to all and added up", ("        inp = await model.allgather(model.activations.pop(layer), layer)\n        grad_out", SENT_IN_A_LIST)), ("these are slices of one tensor, and are joined, not added up",), ("partial sums",)),
    Row(edited("sequence_parallel", "the slice of the layer above", SLICED, ("x = await model.allgather(A.pop(k), k)\n        model.grad", "x = await model.allgather(A.pop(k + 1), k + 1)\n        model.grad"), ("A.pop(L)", "A[L]")), ("the input of layer 7 is in model.activations[7] here, in slices: gather that, await model.allgather(model.activations[7], 7)",)),
    Row(edited("sequence_parallel", "the slice of the layer above, under names", SLICED, ("x = await model.allgather(A.pop(k), k)\n        model.grad", "x = await model.allgather(A.pop(f'in{k + 1}'), k + 1)\n        model.grad"), ("A.pop(L)", "A[f'in{L}']"), ("A[k + 1]", "A[f'in{k + 1}']"), ("A[k], k", "A[f'in{k}'], k"), ("A[0]", "A['in0']")), ("the input of layer 7 is in model.activations['in7'] here, in slices: gather that",)),
    Row(edited("sequence_parallel", "whole weights, and a piece for each call", SLICED, (LOADED, WHOLE), ("model.weights[k], partial", "model.weights[k].shard(r, R), partial")), ("here each rank loads, keeps and updates its piece of every layer: model.load_weights(7, model.rank, model.RANKS). The gradient is that of this piece already",), ("neither cut nor gathered",)),
    Row(edited("hierarchical", "the state is cut where it is loaded", NODES, ("W[k], S[k] = model.load_weights(k)", "W[k], S[k] = model.load_weights(k)\n        S[k] = S[k].shard(model.rank, model.RANKS)")), ("leave the state whole, as model.load_weights(7) gives it",), ("gather the gradient before",)),
    Row(changed("ddp", "the state is cut where it is loaded", ("model.load_weights(layer)\n", "model.load_weights(layer)\n        model.opt_states[layer] = model.opt_states[layer].shard(model.rank, model.RANKS)\n")), ("leave the state whole, as model.load_weights(1) gives it",)),
    Row(changed("pipeline", "the output of the last layer is sent, too", *SENT_AFTER_LOSS), ("goes into model.loss, and to no other rank: leave out this send where the loss is called",), ("leave pop to its last use",)),
    Row(changed("pipeline_fsdp", "the loop over the layers begins with layer 1", FROM_LAYER_1), ("No rank has run forward(0, ...): does the loop over the layers begin with layer 1",), ("ever true",)),
    Row(edited("sequence_parallel", "pieces of as many layers", SLICED, (LOADED, "model.load_weights(k, r, L)"), ("await model.scatterreduce(part, k + 1)", "(await model.allreduce(part, k + 1)).shard(r, R)")), ("the weight is cut in 8, and there are 4 ranks",), ("cut in 2",)),
    Row(changed("ddp", "sums before the backward", ("        grad, model", "        model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer)\n        grad, model")), ("backward(1, ...) gives it, and has not run on this rank: this comes after that",), ("store the first gradient",)),
    Row(edited("hierarchical", "updates with what was before the sums", NODES, ("W[k], S[k] = model.update(k, await summed(g, k), W", "await summed(g, k)\n        W[k], S[k] = model.update(k, g, W")), (LAST_OF_THEM,)),
    Row(edited("sequence_parallel", "a partial sum is cut before the all-reduce", SLICED, ("await model.scatterreduce(part, k + 1)", "await model.allreduce(part.shard(r, R), k + 1)")), (CUT_FIRST, "await model.scatterreduce(partial, 1) adds up all of it")),
    Row(edited("sequence_parallel", "a gradient is cut before the reduce-scatter", SLICED, ("await model.allreduce(dx, k - 1)", "await model.scatterreduce(dx.shard(r, R), k - 1)")), (CUT_FIRST, "await model.scatterreduce(partial, 6) adds up all of it")),
    Row(changed("tensor_parallel", "a partial sum is cut before the all-reduce", ("await model.allreduce(out, layer + 1)", "await model.allreduce(out.shard(model.rank, model.RANKS), layer + 1)")), (CUT_FIRST,), ("scatterreduce",)),
    Row(edited("sequence_parallel", "results of a gather are exchanged", SLICED, SLICE_OF_LOSS, SLICES_BACK, ("x = await model.allgather(A.pop(k), k)", GATHERED_BOTH.replace("x, G[k + 1] =", "G[k + 1], x ="))), (EXCHANGED,)),
    Row(edited("hierarchical", "each in the other's dictionary", NODES, ("A[k] = x", "G[k] = x"), ('G["g"] = model.loss', 'A["g"] = model.loss'), ('A.pop(k), G.pop("g")', 'A.pop("g"), G.pop(k)')), (EXCHANGED,)),
    Row(edited("sequence_parallel", "the output in place of the input", SLICED, ("A[k + 1] = await model.scatterreduce(part, k + 1)", "A[k] = A[k + 1] = await model.scatterreduce(part, k + 1)"), ("G.pop(k + 1)", "G.pop(k + 1, None)")), ("Is the input of layer 7 meant, for its backward? Then keep a slice of what forward(7, ...) reads",)),
    Row(changed("sequence_parallel", "the output in place of the input, by its key", ("model.activations.pop(layer), layer)\n        grad_out", "model.activations.pop(layer + 1), layer)\n        grad_out"), ("model.allgather(model.activations.pop(model.LAYERS)", "model.allgather(model.activations[model.LAYERS]")), ("Is the input of layer 7 meant, for its backward? Then keep a slice of what forward(7, ...) reads",)),
    Row(edited("sequence_parallel", "a task is awaited after the backward", SLICED, ("        x = await model.allgather(A.pop(k), k)\n        model.grad_weights[k],", "        async def fetch(k=k):\n            A['whole', k] = await model.allgather(A.pop(k), k)\n        task = asyncio.create_task(fetch())\n        model.grad_weights[k],"), ("(k, x, G.pop", "(k, A.pop(('whole', k)), G.pop"), ("        if k:", "        await task\n        if k:")), ("If a task gathers it, await that task before this line",)),
    Row(edited("hierarchical", "the weight is gathered after the update", NODES, ("        return " + JOINED, "        return g"), ("W[k], S[k] = model.update(k, await summed(g, k), W[k], S[k])", 'i, n = model.axis_index("shard"), model.axis_size("shard")\n        w, s = model.update(k, await summed(g, k), W[k].shard(i, n), S[k].shard(i, n))\n        S[k] = s\n        W[k] = await model.allgather(w, k, axis="shard")\n        S[k] = await model.allgather(S[k], k, axis="shard")')), (GATHER_BEFORE,)),
    Row(changed("ddp", "the weight is gathered after the update", ("grad = await model.allreduce(grad, layer)", "grad = await model.scatterreduce(grad, layer)"), ("model.weights[layer], model.opt_states[layer] = model.update(\n            layer, grad, model.weights[layer], model.opt_states[layer]\n        )", "w, s = model.update(layer, grad, model.weights[layer].shard(model.rank, model.RANKS), model.opt_states[layer].shard(model.rank, model.RANKS))\n        model.opt_states[layer] = s\n        model.weights[layer] = await model.allgather(w, layer)\n        model.opt_states[layer] = await model.allgather(s, layer)")), (GATHER_BEFORE.replace("(grad, 7", "(grad, {}").partition("{}")[0],)),
    Row(edited("hierarchical", "no sum across", NODES, (f"        g = {ACROSS}\n", "")), (IN_PIECES,)),
    Row(changed("hierarchical", "no sum across", (f"        grad = {SUM}\n", "")), (IN_PIECES,)),
    Row(edited("hierarchical", "pieces of all nodes are gathered", NODES, (ACROSS, ACROSS.replace("allreduce", "allgather"))), (NO_SUM,), ("Were these pieces made by shard",)),
    Row(changed("hierarchical", "pieces of all nodes are gathered, last", (f"        grad = {SUM}\n", ""), (JOIN, SUM.replace("allreduce", "allgather"))), (NO_SUM,), ("Were these pieces made by shard",)),
    Row(edited("hierarchical", "two reduce-scatters", NODES, (ACROSS, ACROSS.replace("allreduce", "scatterreduce"))), (CUT_TWICE,)),
    Row(changed("hierarchical", "two reduce-scatters and no gather", (SUM, SUM.replace("allreduce", "scatterreduce")), (f"        grad = {JOIN}\n", "")), (CUT_TWICE,)),
    Row(edited("hierarchical", "summed in the node before it is cut", NODES, ("        g = " + IN_NODE, '        g = await model.allreduce(g, k, axis="shard")\n        g = ' + IN_NODE)), (SUMS_AND_CUTS,)),
    Row(changed("hierarchical", "summed in the node, cut, and no more", (f"        grad = {CUT}", f'        grad = await model.allreduce(grad, layer, axis="shard")\n        grad = {CUT}'), (f"        grad = {SUM}\n", "")), (SUMS_AND_CUTS,)),
    Row(edited("hierarchical", "the loop ends before layer 0", NODES, ("range(L - 1, -1, -1)", "range(L - 1, 0, -1)")), (ENDS_EARLY,)),
    Row(changed("ddp", "the loop ends before layer 0", ("reversed(range(model.LAYERS))", "range(model.LAYERS - 1, 0, -1)")), (ENDS_EARLY,)),
    Row(edited("hierarchical", "the piece of its number among all ranks", NODES, (IN_NODE, '(await model.allreduce(g, k, axis="shard")).shard(model.rank, model.axis_size("shard"))')), ("tensor.shard(model.axis_index(axis), model.axis_size(axis))",)),
    Row(changed("hierarchical", "counted from 1", (CUT, '(await model.allreduce(grad, layer, axis="shard")).shard(model.axis_index("shard") + 1, 4)')), ("tensor.shard(model.axis_index(axis), model.axis_size(axis))",)),
    Row(edited("hierarchical", "cut by the place in the node, and summed there", NODES, (IN_NODE, 'await model.allreduce(g.shard(model.axis_index("shard"), model.axis_size("shard")), k, axis="shard")')), ('in place of that cut and this sum, grad = await model.scatterreduce(grad, 7, axis="shard")',), ('model.axis_index("replica")',)),
    Row(changed("hierarchical", "cut by the place in the node, and summed there", (CUT, 'await model.allreduce(grad.shard(model.axis_index("shard"), model.axis_size("shard")), layer, axis="shard")')), ('in place of that cut and this sum, grad = await model.scatterreduce(grad, 7, axis="shard")',), ('model.axis_index("replica")',)),
    Row(edited("hierarchical", "summed across twice", NODES, (ACROSS + "\n", ACROSS + "\n        g = " + ACROSS + "\n")), (AGAIN,)),
    Row(changed("hierarchical", "summed across twice, in one line", (SUM, SUM.replace("(grad,", f"({SUM},"))), (AGAIN,)),
    Row(edited("hierarchical", "the piece is the final weight", NODES, ("        return " + JOINED, "        return g"), ("await summed(g, k), W[k], S[k])", 'await summed(g, k), W[k].shard(model.axis_index("shard"), 4), S[k].shard(model.axis_index("shard"), 4))')), ("gather the gradient before the update, and not the weight after it",), ("gather what update gives",)),
    Row(changed("ddp", "the piece is the final weight", ("await model.allreduce", "await model.scatterreduce"), ("grad, model.weights[layer], model.opt_states[layer]\n", "grad, model.weights[layer].shard(model.rank, 4), model.opt_states[layer].shard(model.rank, 4)\n")), ("gather the gradient before the update, and not the weight after it",), ("gather what update gives",)),
]  # fmt: skip


@pytest.mark.parametrize("row", IN_SUMS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_on_sums_lead_to_the_fix(row: Row) -> None:
    check_words(row)


ONLY_THERE = "only rank 0 calls model.get_activation: is a condition above that call true there alone?"
LOOP_ENDS = "Does the loop over the layers end too soon? range ends before its second number"
NOT_ADDED = (
    "backward({0}, ...) gave a partial sum of it, which {1}. Is a condition above that call false for layer {0}?"
)
NOT_AS_OTHERS = "has gone into no model.{}, as those of layers 2-7 have: await model.{}(..., 0) adds it up"
GO_ON = "this is only one of the partial sums that {0}(layer {1}) adds up: go on with the sum, which that call gives, total = await model.{0}(..., {1})"
GATHERED_TOO = "the weight of layer {0} was gathered, and here weights stay where they are: leave that gather out, {1}({0}, ..., model.weights[{0}], partial=True)"
NO_INPUT = ("    model.activations[0] = model.get", "    if not model.rank:\n        model.activations[0] = model.get")
WHOLE_FORWARD = (
    "        part = model.forward(k, x, model.weights[k], partial=True)",
    "        A['x'] = x\n        w = await model.allgather(model.weights[k], k)\n        part = model.forward(k, A.pop('x'), w)",
)
WHOLE_BACKWARD = (
    "        model.grad_weights[layer], grad = model.backward(\n            layer, inp, grad_out, model.weights[layer], partial=True",
    "        model.activations['i'], model.grad_activations['g'] = inp, grad_out\n        w = await model.allgather(model.weights[layer], layer)\n        model.grad_weights[layer], grad = model.backward(\n            layer, model.activations.pop('i'), model.grad_activations.pop('g'), w",
)
PARTIAL = [
    Row(changed("sequence_parallel", "only one rank takes the input", NO_INPUT), (ONLY_THERE,)),
    Row(changed("ddp", "only one rank takes an input", NO_INPUT), (ONLY_THERE,)),
    Row(changed("pipeline_fsdp", "each stage begins with the first input", ("        elif layer == first:\n            model.activations[first] = await model.receive(src=model.rank - 1)\n", ""), ("layer, model.activations[layer], weight", "layer, model.activations[0], weight")), ("nothing is stored in activations under 0",), ("true there alone",)),
    Row(changed("tensor_parallel", "the forwards end too soon", ("range(model.LAYERS):\n        inp", "range(model.LAYERS - 1):\n        inp")), (LOOP_ENDS,), ("in each turn",)),
    Row(edited("sequence_parallel", "the forwards end too soon", SLICED, ("for k in range(L):\n        x", "for k in range(L - 1):\n        x")), (LOOP_ENDS,), ("in each turn",)),
    Row(changed("sequence_parallel", "the sum of layer 1 is left out", ("if layer > 0", "if layer > 1")), (NOT_ADDED.format(1, NOT_AS_OTHERS.format("scatterreduce", "scatterreduce")),), ("grad, model",)),
    Row(changed("tensor_parallel", "the sum of layer 1 is left out", ("if layer > 0", "if layer > 1")), (NOT_ADDED.format(1, NOT_AS_OTHERS.format("allreduce", "allreduce")),), ("grad, model",)),
    Row(edited("sequence_parallel", "the sum of the last layer is left out", SLICED, ("        if k:\n", "        if 0 < k < L - 1:\n")), (NOT_ADDED.format(7, "no call has added up over the ranks, as what forward gave was"),), ("grad, model",)),
    Row(edited("sequence_parallel", "the sum is dropped", SLICED, ("A[k + 1] = await model.scatterreduce(part, k + 1)", "await model.scatterreduce(part, k + 1)\n        A[k + 1] = part")), (GO_ON.format("scatterreduce", 1),), ("leave pop",)),
    Row(changed("sequence_parallel", "the sum is dropped, and a partial sum gathered", ("grad = await model.scatterreduce(grad, layer - 1)", "await model.scatterreduce(grad, layer - 1)")), (GO_ON.format("scatterreduce", 6),), ("leave pop",)),
    Row(changed("tensor_parallel", "the sum is dropped", ("model.activations[layer + 1] = await model.allreduce(out, layer + 1)", "await model.allreduce(out, layer + 1)\n        model.activations[layer + 1] = out")), (GO_ON.format("allreduce", 1),), ("as soon as it is made",)),
    Row(edited("sequence_parallel", "whole weights forward", SLICED, WHOLE_FORWARD), (GATHERED_TOO.format(0, "forward"),), ("cut it",)),
    Row(changed("tensor_parallel", "whole weights back", WHOLE_BACKWARD), (GATHERED_TOO.format(7, "backward"),), ("as it is",)),
]  # fmt: skip


@pytest.mark.parametrize("row", PARTIAL, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_on_partial_sums_lead_to_the_fix(row: Row) -> None:
    check_words(row)


EARLY_UPDATE = (
    "        model.weights[layer], model.opt_states[layer] = model.update",
    "        pass\n    for layer in reversed(range(model.LAYERS)):\n        model.weights[layer], model.opt_states[layer] = model.update",
)
WHOLE_OUTPUTS = """
async def sequence_parallel(model: Model) -> Model:
    L, r, R = model.LAYERS, model.rank, model.RANKS
    A, G = model.activations, model.grad_activations
    for k in range(L):
        model.weights[k], model.opt_states[k] = model.load_weights(k, r, R)
    A["x"] = model.get_activation([0])
    A[0] = A["x"].shard(r, R)
    for k in range(L):
        A["x"] = await model.allreduce(model.forward(k, A.pop("x"), model.weights[k], partial=True), k + 1)
        if k < L - 1:
            A[k + 1] = A["x"].shard(r, R)
    G[L] = model.loss(A.pop("x"))
    for k in range(L - 1, -1, -1):
        x = await model.allgather(A.pop(k), k)
        model.grad_weights[k], dx = model.backward(k, x, G.pop(k + 1), model.weights[k], partial=True)
        total = model.allreduce(dx, k - 1) if k else None
        model.weights[k], model.opt_states[k] = model.update(k, model.grad_weights.pop(k), model.weights[k], model.opt_states[k])
        model.set_final_weight(k, model.weights[k])
        if k:
            G[k] = await total
    return model
"""
"""Puzzle 18 with all-reduces, during which a rank updates."""
LAST_WHOLE = [
    (
        "    for k in range(L):\n        A[",
        "    for k in range(L):\n        if k == L - 1:\n            A[k] = A['x']\n        A[",
    ),
    ("if k < L - 1:", "if k < L - 2:"),
    ("x = await model.allgather(A.pop(k), k)", "x = await model.allgather(A.pop(k), k) if k < L - 1 else A.pop(k)"),
]
LOWEST_AHEAD = [
    ("        x = await model", "        x = A.pop('ahead') if 'ahead' in A else await model"),
    (
        "        model.grad_weights[k], dx",
        "        A['x'] = x\n        call = model.allgather(A[0], 0) if k == 1 else None\n        model.grad_weights[k], dx",
    ),
    ("(k, x, G.pop", "(k, A.pop('x'), G.pop"),
    (
        "        total =",
        "        if call:\n            G['part'] = dx\n            A['ahead'] = await call\n            del A[0]\n            dx = G.pop('part')\n        total =",
    ),
]
RIGHT = [
    ("LAYERS - 1], model.LAYERS - 1)", "LAYERS - 2], model.LAYERS - 2)"),
    ("pop(layer + 1), model.weights['full'])", "pop(layer + 1), model.weights.pop('full'))"),
    ("grad = model.fake_grad", "del model.weights['full']\n            grad = model.fake_grad"),
]
TWICE_FORWARD = (
    "        if first <= layer <= last:\n            model.act",
    "        if layer == 2:\n            model.weights['full'] = await model.allgather(model.weights[layer], layer)\n        if first <= layer <= last:\n            model.act",
)
TWICE_BACK = (
    "            model.weights['full'] = await call\n",
    "            model.weights['full'] = await call\n            if layer == 1:\n                model.weights['full'] = await model.allgather(model.weights[layer], layer)\n",
)
TO_THE_STAR = [
    (changed("sequence_parallel", "updates at the end", EARLY_UPDATE), "8 updates (4 ticks) are on the longest chain"),
    (edited("sequence_parallel", "updates at the end", SLICED, ("        model.weights[k], model.opt_states[k] = model.update", "    for k in range(L):\n        model.weights[k], model.opt_states[k] = model.update")), "8 updates (4 ticks) are on the longest chain"),
    (edited("sequence_parallel", "whole outputs, and an update meanwhile", WHOLE_OUTPUTS), "the backward of that layer is the first, so keep its input whole until then"),
    (edited("sequence_parallel", "whole outputs, and an update meanwhile", WHOLE_OUTPUTS), "no call is on its way during backward(layer 1), which does not need what allgather(layer 0) brings: start that before it"),
    (edited("sequence_parallel", "the last input stays whole", WHOLE_OUTPUTS, *LAST_WHOLE), "no call is on its way during backward(layer 1), which does not need what allgather(layer 0) brings: start that before it"),
    (edited("sequence_parallel", "the lowest input is gathered ahead", WHOLE_OUTPUTS, *LAST_WHOLE, *LOWEST_AHEAD), "no call is on its way during backward(layer 2), which does not need what allgather(layer 1) brings"),
    (wrong("pipeline_fsdp", "gathered twice", *AHEAD_BACK, *RIGHT, TWICE_FORWARD), "8 all-gathers, the star has 7: allgather of layer 2 is called twice with nothing computed with the layer in between (line "),
    (wrong("pipeline_fsdp", "gathered twice, for the backward", *AHEAD_BACK, *RIGHT, TWICE_BACK), "8 all-gathers, the star has 7: allgather of layer 1 is called twice with nothing computed with the layer in between (line "),
]  # fmt: skip


@pytest.mark.parametrize(
    "program, words", TO_THE_STAR, ids=[f"{one.name} {at}" for at, (one, _) in enumerate(TO_THE_STAR)]
)
def test_what_is_slow_beside_the_star_leads_to_it(program: Program, words: str) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.right and words in verdict.costs_time, verdict.costs_time


AHEAD = edited("sequence_parallel", "the next input is gathered before the backward", SLICED,
    ("    for k in range(L - 1, -1, -1):\n        x = await model.allgather(A.pop(k), k)\n", "    call = model.allgather(A.pop(L - 1), L - 1)\n    for k in range(L - 1, -1, -1):\n        A['x'] = await call\n        if k:\n            call = model.allgather(A.pop(k - 1), k - 1)\n"),
    ("(k, x, G.pop", "(k, A.pop('x'), G.pop"), ("            G[k] = await", "            total ="),
    ("        model.set_final_weight", "        if k:\n            G[k] = await total\n        model.set_final_weight"))  # fmt: skip
REDUCED_AHEAD = edited("sequence_parallel", "the next input is gathered before the backward, and slices of the gradient", AHEAD.source,
    ("total = model.allreduce(dx", "total = model.scatterreduce(dx"), ("G[k] = await total", "G[k] = await model.allgather(await total, k - 1)"))  # fmt: skip


LATER = [
    (AHEAD, "Start allgather(layer 6), which makes all of an input, after the other call has been awaited"),
    (REDUCED_AHEAD, "Start it after backward(layer 7), which has an input of its own in memory"),
]


@pytest.mark.parametrize("program, words", LATER, ids=[one.name for one, _ in LATER])
def test_a_gather_that_begins_too_soon_is_named(program: Program, words: str) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert words in verdict.costs_memory, verdict.costs_memory


@pytest.mark.parametrize("source", [COUNTED, THICK, SLICED, NODES])
def test_the_programs_themselves_are_right(source: str) -> None:
    program = whole(re.findall(r"async def (\w+)", source)[0], "right", source)
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.status == PASS, verdict.message


@pytest.mark.parametrize(
    ("edit", "calls"),
    [
        (("await model.scatterreduce(part, k + 1)", "(await model.allreduce(part, k + 1)).shard(r, R)"), 8),
        (("G[k] = await model.allreduce(dx, k - 1)", "G['own'] = (await model.allreduce(dx, k - 1)).shard(r, R)\n            G[k] = await model.allgather(G.pop('own'), k - 1)"), 7),
    ],
    ids=["forward", "backward"],
)  # fmt: skip
def test_an_all_reduce_whose_result_is_gathered_again_is_named(edit: tuple[str, str], calls: int) -> None:
    program = edited("sequence_parallel", "all-reduced, cut and gathered", SLICED, edit)
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.right and f"what {calls} of them give is whole on every rank" in verdict.costs_time
    assert "model.scatterreduce in place of the all-reduce sums and cuts in one call (line " in verdict.costs_time


def beyond_a_list(model: Model) -> None:
    todo = [*range(model.BATCHES)]
    for place in range(2 * model.RANKS):
        todo[place] += 1


def beyond_an_iterator(model: Model) -> None:
    todo = iter(range(model.BATCHES))
    for _ in range(2 * model.RANKS):
        next(todo)


def of_a_layer(model: Model) -> None:
    own = [0] * model.LAYERS
    own[model.LAYERS] += 1


@pytest.mark.parametrize(
    ("mistake", "says", "line"),
    [
        (beyond_a_list, "todo has 3 entries here, and todo[2] is the last", "todo[place] += 1"),
        (beyond_an_iterator, "next(...) asks for one more than there is", "next(todo)"),
        (of_a_layer, "the last of model.LAYERS layers is model.LAYERS - 1", "own[model.LAYERS] += 1"),
    ],
)
def test_what_goes_beyond_an_end_is_told_how_much_there_is(
    mistake: Callable[[Model], None], says: str, line: str
) -> None:
    async def attempt(model: Model) -> Model:
        mistake(model)
        return model

    with pytest.raises(PuzzleError) as raised:
        run(attempt, ranks=2, layers=2, batches=3)
    assert says in raised.value.fix and raised.value.line.endswith(line)


def test_a_weight_that_is_read_at_the_peak_is_not_called_too_large() -> None:
    """The backward at the peak reads the whole weight; the output that the loss has read is what need not be there."""
    pop, kept = "model.loss(model.activations.pop(model.LAYERS))", "model.loss(model.activations[model.LAYERS])"
    program = changed("zero2", "the last output is kept", (pop, kept), base="zero2_overlap")
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert "1 activation that nothing reads again" in verdict.costs_memory
    assert "reads only a piece after that" not in verdict.costs_memory


def test_what_a_call_on_its_way_reads_is_not_called_useless() -> None:
    """A slice that the gather at the peak carries costs nothing: the gather that begins beside a sum is too much."""
    program = edited(
        "sequence_parallel",
        "a sum and a gather at a time, before an update",
        SLICED,
        ("        x = await model.allgather(A.pop(k), k)\n        model.grad", "        x = await ahead\n        A.pop(k)\n        model.grad"),
        ("    for k in range(L - 1, -1, -1):", "    ahead = model.allgather(A[L - 1], L - 1)\n    for k in range(L - 1, -1, -1):"),
        ("            G[k] = await model.allreduce(dx, k - 1)", "            part = model.scatterreduce(dx, k - 1)\n            ahead = model.allgather(A[k - 1], k - 1)"),
        ("model.opt_states[k])\n        model.set", "model.opt_states[k])\n        if k:\n            G[k] = await model.allgather(await part, k - 1)\n        model.set"),
    )  # fmt: skip
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.right and verdict.costs_memory and "that nothing reads again" not in verdict.costs_memory


@pytest.mark.parametrize(
    ("edit", "read"),
    [
        (("model.loss(model.activations.pop(model.LAYERS))", "model.loss(model.activations[model.LAYERS])"), "It was read last by loss"),
        (("model.activations.pop(layer), model", "model.activations[layer], model"), "read last by backward(layer "),
    ],
)  # fmt: skip
def test_what_nothing_reads_again_is_told_with_the_line_that_read_it_last(edit: tuple[str, str], read: str) -> None:
    program = changed("ddp", "kept", edit)
    outcome = run(function(program), ranks=4, layers=4, batches=4, peak=True)  # type: ignore[arg-type]
    said = unread_in_words(outcome)
    assert f"{read}" in said and said.endswith(")") and " (line " in said, said


def test_what_is_held_besides_is_told_with_its_line() -> None:
    program = edited("sequence_parallel", "the last slice stays", AHEAD.source, ("A.pop(L)", "A[L]"))
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert "It was read last by allgather(layer 8) (line " in verdict.costs_memory, verdict.costs_memory


def test_a_gradient_that_nobody_receives_names_the_backward_that_reads_it() -> None:
    async def two_stages(model: Model) -> Model:
        own = model.rank
        model.weights[own], model.opt_states[own] = model.load_weights(own)
        model.activations[own] = await model.receive(src=0) if own else model.get_activation([0])
        model.activations["out"] = model.forward(own, model.activations[own], model.weights[own])
        if not own:
            await model.pass_to(1, model.activations["out"])
            return model
        model.grad_activations[2] = model.loss(model.activations["out"])
        _, grad = model.backward(1, model.activations[1], model.grad_activations[2], model.weights[1])
        await model.pass_to(0, grad)
        return model

    with pytest.raises(PuzzleError, match="never received") as raised:
        run(two_stages, ranks=2, layers=2, batches=1)
    assert "rank 0 has run forward(0, ...), and not its backward, which reads this" in raised.value.fix
