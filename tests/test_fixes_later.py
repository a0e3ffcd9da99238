"""What natural mistakes in the later puzzles are told: rows as in ``test_fixes``, graded in the same ways."""

from __future__ import annotations

import re

import pytest

from lib import grade
from lib.grading.verdict import FAIL, Verdict
from tests.corpus import changed, whole
from tests.corpus import function as solution_of
from tests.slow import some
from tests.test_corpus import LONG, function, near
from tests.test_fixes import Row

# -- coroutines that nobody awaits ------------------------------------------------------------------------------------

SUMS = """\
        grad = await model.scatterreduce(grad, layer, axis="shard")
        grad = await model.allreduce(grad, layer, axis="replica")
        grad = await model.allgather(grad, layer, axis="shard")
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
"""
BACKWARDS = "    for layer in reversed(range(model.LAYERS)):\n"
"""In the solution of puzzle 20: what is done for a layer after its backward, and the loop in which that is."""


def in_a_coroutine(name: str, call: str) -> Row:
    """Return the row of puzzle 20's solution with the sums of a layer in a coroutine that is called like this."""
    source = solution_of("hierarchical").replace(SUMS, f"        {call}\n")
    source = source.replace(BACKWARDS, f"    later = []\n\n    async def sums(layer, grad):\n{SUMS}\n{BACKWARDS}")
    return Row(whole("hierarchical", name, source), ())


WAITS_AT_ONCE = changed(
    "two_batch_overlap",
    "each all-to-all is awaited at once",
    ("    on_their_way = {}\n", ""),
    (
        "on_their_way[turn] = model.alltoall(out, layer + 1)",
        "acts[turn, 'next'] = await model.alltoall(out, layer + 1)",
    ),
    ("inp = await on_their_way.pop(turn) if layer", "inp = acts.pop((turn, 'next')) if layer"),
    ("model.loss(await on_their_way.pop(turn))", "model.loss(acts.pop((turn, 'next')))"),
    ("on_their_way[turn] = model.alltoall(grad,", "grads[turn] = await model.alltoall(grad,"),
    ("grad = await on_their_way.pop(turn)", "grad = grads.pop(turn)"),
)

ROWS = [
    in_a_coroutine("a coroutine is called and not awaited", "sums(layer, grad)")._replace(
        says=("await sums(layer, grad): it is called and never awaited",)
    ),
    in_a_coroutine("coroutines in a list that nobody awaits", "later.append(sums(layer, grad))")._replace(
        says=("sums(layer, grad) is put into later, and never awaited: await asyncio.gather(*later)",)
    ),
    Row(
        changed(
            "zbv",
            "no await for the half of the input",
            ("        await for_the_input(stage)", "        for_the_input(stage)"),
        ),
        ("await for_the_input(stage): it is called and never awaited",),
        ("model.loss makes the first gradient",),
    ),
    Row(
        changed(
            "interleaved", "later forwards are not awaited", ("            await forward(*f", "            forward(*f")
        ),
        ("await forward(*forwards[turn]): it is called and never awaited",),
    ),
]

# -- stages, halves, experts and slices --

ROWS += [
    Row(
        changed(
            "dualpipe",
            "upper off by one",
            ("range(end - lower.stop, end - lower.start)", "range(end - lower.stop - 1, end - lower.start - 1)"),
        ),
        ("do two of this rank's ranges of layers overlap? It has loaded layers 2, 3 so far",),
    ),
    Row(
        changed(
            "dualpipe",
            "over to place 0",
            ("on = model.rank_at(half=1 - half, place=place)", "on = model.rank_at(half=1 - half, place=0)"),
        ),
        (
            "rank 3 has sent Activation of layer 4, micro-batch {4} to rank 0, which has not loaded layer 4; rank 1 has: await model.pass_to(1, ...) on rank 3",
        ),
        ("pass_to(2",),
    ),
    Row(
        changed(
            "dualpipe", "both stages the same micro-batches", ("upper: (1 - half) * share}", "upper: half * share}")
        ),
        (
            "Rank 1 has received Activation of layer 4, micro-batch {4}, from rank 3, and has not run layer 4 on it",
            "let it do what comes first, micro-batch 4",
        ),
        ("has not sent on",),
    ),
    Row(
        changed(
            "dualpipe",
            "upper stage from back",
            ("before = {lower: back, upper: on}", "before = {lower: back, upper: back}"),
        ),
        ("Is this for layer 6? Then layer 5 is on rank 1: await model.receive(src=1)",),
        ("what is stored can be used",),
    ),
    Row(
        changed("dualpipe", "summed over all ranks", ('layer, axis="half")', "layer)")),
        ('The ranks along axis="half" have the same layers: await model.allreduce(..., 6, axis="half")',),
    ),
    Row(
        changed("dualpipe", "summed over places", ('layer, axis="half")', 'layer, axis="place")')),
        ('The ranks along axis="half" have the same layers: await model.allreduce(..., 6, axis="half")',),
    ),
    Row(
        changed(
            "dualpipe",
            "a share of a rank",
            (
                "share = end // model.RANKS, model.BATCHES // 2",
                "share = end // model.RANKS, model.BATCHES // model.RANKS",
            ),
        ),
        ("the lower stage of a rank has the micro-batches of its half",),
    ),
    Row(
        changed(
            "dualpipe",
            "every backward overlapped",
            ("backward_of(layer, mb)\n", "backward_of(layer, mb, overlapped=True)\n"),
        ),
        ("where a backward has no forward beside it, leave overlapped=True out",),
    ),
    Row(
        changed(
            "dualpipe",
            "one more ahead",
            ("n, ahead = place + 1, places - place - 1", "n, ahead = place + 1, places - place"),
        ),
        ("this rank has carried micro-batches 4-7 through layer 0, which is its share, and asks for one more",),
        ("replica",),
    ),
    Row(
        changed(
            "dualpipe",
            "ends with the upper stage",
            (
                "    for _ in range(ahead):\n        await backward(lower)\n",
                "    for _ in range(ahead):\n        await backward(upper)\n",
            ),
        ),
        (
            "there is no micro-batch 8: BATCHES is 8",
            "The backward that is left on this rank is that of layer 0 for micro-batch 3",
        ),
        ("do that forward first",),
    ),
    Row(
        changed(
            "dualpipe",
            "no turn",
            ("    if place == places - 1:\n        on = model.rank_at(half=1 - half, place=place)\n", ""),
        ),
        ("layer 4 is on rank 3, too: await model.pass_to(3, ...)",),
        ("keep it stored",),
    ),
    Row(
        changed(
            "zbv",
            "a ring, not a V",
            (
                "range(end - (rank + 1) * thick, end - rank * thick)",
                "range(end // 2 + rank * thick, end // 2 + (rank + 1) * thick)",
            ),
        ),
        ("rank 0 has layer 4, and the stages are in a V here",),
    ),
    Row(
        changed("zbv", "turn sent", ("if stage.stop < end and not (turn and stage == lower):", "if stage.stop < end:")),
        ("layer 4 is on this rank itself, which goes on with it: keep it stored, and send nothing here",),
        ("in a row",),
    ),
    Row(
        changed(
            "zbv",
            "turn of the gradient sent",
            ("if stage.start > 0 and not (turn and stage == upper):", "if stage.start > 0:"),
        ),
        ("layer 3 is on this rank itself, which goes on with it: keep it stored, and send nothing here",),
        ("on a ring",),
    ),
    Row(
        changed(
            "zbv",
            "weight half with the gradient below",
            (
                "            grad = model.grad_activations.pop((layer, mb))\n",
                "            grad = model.grad_activations.pop((layer - 1, mb))\n",
            ),
        ),
        ("the gradient that backward_weight(7, ...) reads, of micro-batch 0, is model.grad_activations[7, 0]",),
        ("receive(src=1)",),
    ),
    Row(
        changed(
            "two_batch_overlap",
            "the same micro-batch twice",
            ("model.get_activation([mb])", "model.get_activation([model.rank])"),
        ),
        ("Or is another one meant? deal them out to the ranks, range(model.rank, model.BATCHES, model.RANKS)",),
    ),
    Row(
        changed(
            "expert_parallel",
            "forward in place of expert",
            (
                'out = model.expert(layer, acts["tokens", layer], model.weights[layer])',
                'out = model.forward(layer, acts["tokens", layer], model.weights[layer])',
            ),
        ),
        ("layer 1 has experts, and tokens are for these: out = model.expert(layer, tokens, weight)",),
        ("tokens are not home",),
    ),
    Row(
        changed(
            "expert_parallel",
            "dense in pieces, too",
            (
                "piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)",
                "piece = (model.rank, model.RANKS)",
            ),
        ),
        ("here each rank has all of a layer without experts: model.load_weights(0)",),
        ("allgather",),
    ),
    Row(
        changed(
            "expert_parallel",
            "input kept, not the tokens",
            (
                '            acts["tokens", layer] = await model.alltoall(acts.pop(layer), layer)\n            out = model.expert(layer, acts["tokens", layer], model.weights[layer])',
                "            tokens = await model.alltoall(acts[layer], layer)\n            out = model.expert(layer, tokens, model.weights[layer])",
            ),
            ('acts.pop(("tokens", layer))', "acts.pop(layer)"),
        ),
        ("model.expert(7, ...) has read the tokens that alltoall gave: keep those for the backward",),
    ),
    Row(
        changed(
            "expert_parallel",
            "update moved into the loop",
            (
                "            sums[layer] = model.allreduce(grad, layer)\n",
                "            grad = await model.allreduce(grad, layer)\n            model.grad_weights[layer] = grad\n            model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, model.opt_states[layer])\n",
            ),
        ),
        ("model.update has been called 2 times for layer 0",),
    ),
    Row(
        changed(
            "context_parallel",
            "queries gathered",
            (
                'whole = await model.allgather(acts["kv", layer], layer)',
                'whole = await model.allgather(acts["att", layer], layer)',
            ),
        ),
        ("these are queries: keys and values are the second of what model.project gives, and only they are gathered",),
    ),
    Row(
        changed(
            "context_parallel",
            "whole output gathered for the loss",
            (
                'grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)',
                'whole = await model.allgather(acts.pop(model.LAYERS), model.LAYERS)\n    grads["out"] = model.loss(whole).shard(model.rank, model.RANKS)',
            ),
        ),
        ("the loss takes each rank's slice of the output, and gives a slice: model.loss(out, sliced=True)",),
        ("`run` and `draw` take it",),
    ),
    Row(
        changed(
            "breadth_first",
            "pieces of all ranks",
            ("model.load_weights(layer, shard, shards)", "model.load_weights(layer, model.rank, model.RANKS)"),
        ),
        (
            'only the ranks along axis="shard" have this layer, so these have all of it together: model.load_weights(0, model.axis_index("shard"), model.axis_size("shard"))',
        ),
    ),
    Row(
        changed(
            "breadth_first",
            "sum without an axis",
            (
                'scatterreduce(model.grad_weights.pop(layer), layer, axis="shard")',
                "scatterreduce(model.grad_weights.pop(layer), layer)",
            ),
        ),
        ('The ranks along axis="shard" have the same layers: await model.scatterreduce(..., 4, axis="shard")',),
    ),
    Row(
        changed(
            "repair_book",
            "both sums",
            (
                '            grad = await model.scatterreduce(grad, layer, axis="shard")\n            ### BROKEN',
                '            grad = await model.scatterreduce(grad, layer, axis="shard")\n            grad = await model.allreduce(grad, layer, axis="replica")\n            ### BROKEN',
            ),
        ),
        ("and in pieces, as the weight is: it was summed over axis=",),
        ("join them",),
    ),
    Row(
        changed(
            "repair_experts",
            "gradients of experts travel",
            (
                "        if not model.experts(layer):\n            grad = await model.allreduce(grad, layer)\n",
                "        if not model.experts(layer):\n            grad = await model.allreduce(grad, layer)\n        else:\n            grad = await model.alltoall(grad, layer)\n",
            ),
        ),
        ("the gradient of experts stays with them, as their weights do",),
        ("comes first of what",),
    ),
    Row(
        changed(
            "repair_zigzag",
            "gathered keys stored over its own",
            (
                'kv = await model.allgather(acts["kv", layer], layer)',
                'kv = acts["kv", layer] = await model.allgather(acts["kv", layer], layer)',
            ),
        ),
        ("they were gathered before, and are whole already: keep what model.project has given this rank stored",),
        ("Let each rank project",),
    ),
    Row(
        changed("repair_zigzag", "neighbor slices", ("inp.shard(2 * n - 1 - r, 2 * n)", "inp.shard(r + 1, 2 * n)")),
        ("ranks 0 and 1 have both projected slice {1} of 8 of layer 0",),
        ("model.scatterreduce",),
    ),
]

ROWS += [
    Row(
        changed(
            "dualpipe",
            "gradients asked of the rank before",
            ("(stage.stop - 1, mb), after[stage])", "(stage.stop - 1, mb), before[stage])"),
        ),
        ("if that is what rank 3 waits for, it asks the wrong rank: await model.receive(src=2)",),
    ),
    Row(
        changed(
            "dualpipe",
            "key of the gradient one layer up",
            (
                "model.grad_activations[end - 1, mb] = model.loss(out)",
                "model.grad_activations[end, mb] = model.loss(out)",
            ),
        ),
        ("model.loss has made the gradient of the output of layer 7 here, for micro-batch 4, so it needs no message",),
        ("from a neighbor",),
    ),
    Row(
        changed(
            "dualpipe",
            "halves start at the same place",
            ("first = {lower: half * share, upper: (1 - half) * share}", "first = {lower: 0, upper: share}"),
        ),
        ("Ranks 0, 2 have run layer 0 on micro-batch 0, and only one of them should",),
        ("let it do what comes first",),
    ),
    Row(
        changed(
            "dualpipe",
            "one pair too few",
            ("for _ in range(share - model.RANKS + n):", "for _ in range(share - model.RANKS + n - 1):"),
        ),
        ("layer 4 has not run on micro-batches 3, 7 by then, on any rank", "Is a loop too short?"),
    ),
    Row(
        changed(
            "dualpipe",
            "layers of each rank in a row",
            (
                "lower = range(place * thick, (place + 1) * thick)",
                "lower = range(model.rank * thick, (model.rank + 1) * thick)",
            ),
        ),
        ("rank 2 has loaded layers 2-5, and at its place, 0, are layers 0, 1, 6, 7",),
        ("receive(src=0)",),
    ),
    Row(
        changed(
            "zbv",
            "loss on the last rank",
            (
                "        if stage.stop == end:\n            out",
                "        if rank == ranks - 1 and stage == upper:\n            out",
            ),
        ),
        (
            "looks for model.grad_activations[7, 0], the first gradient, which no message brings: model.loss of micro-batch 0 comes first",
        ),
        ("a ring",),
    ),
    Row(
        changed(
            "zbv",
            "no forwards of the upper stage before the turn",
            (
                "    for _ in range(rank):\n        await forward(upper)\n        await forward(lower)\n",
                "    for _ in range(rank):\n        await forward(lower)\n",
            ),
        ),
        ("rank 3 has still to do forward(4, ...) of micro-batches 5-7",),
    ),
    Row(
        changed(
            "zbv",
            "gradient popped by the input half",
            (
                "inp, grad = model.activations[layer, mb], model.grad_activations[layer, mb]",
                "inp, grad = model.activations[layer, mb], model.grad_activations.pop((layer, mb))",
            ),
        ),
        ("both halves of a backward read it, so keep it until backward_weight(7, ...), and pop it there",),
        ("send it once",),
    ),
    Row(
        changed(
            "zbv",
            "weight half before the input half",
            (
                "        await for_the_input(stage)\n        for_the_weight(stage)",
                "        for_the_weight(stage)\n        await for_the_input(stage)",
            ),
        ),
        ("backward_input(7, ...) of micro-batch 0 has not run yet: it comes before backward_weight",),
    ),
    Row(
        changed(
            "zbv",
            "before for the upper stage is the rank before",
            ("before = {lower: rank - 1, upper: rank + 1}", "before = {lower: rank - 1, upper: rank - 1}"),
        ),
        ("Is this for layer 7? Then layer 6 is on rank 1: await model.receive(src=1)",),
        ("ring",),
    ),
    Row(
        changed("zbv", "thick of ranks", ("thick = end // (2 * ranks)", "thick = end // ranks")),
        ("rank 0 has layers 1, 6, and the stages are in a V here",),
        ("without the pass_to",),
    ),
    Row(
        changed(
            "two_batch_overlap",
            "next layer's call awaited for the other",
            ("inp = await on_their_way.pop(turn) if layer", "inp = await on_their_way.pop(1 - turn) if layer"),
        ),
        ("this is of layer 2, and not 1: is the result of another call taken here?",),
    ),
    Row(
        changed(
            "two_batch_overlap",
            "backward with expert's verb",
            ("verb = model.backward_expert if model.experts(layer) else model.backward", "verb = model.backward"),
        ),
        (
            "layer 7 has experts, and tokens are for these: of_weight, grad = model.backward_expert(layer, tokens, grad, weight)",
        ),
        ("not home",),
    ),
    Row(
        changed(
            "two_batch_overlap",
            "loss of both together",
            ("model.loss(await on_their_way.pop(turn))", "model.loss(acts[turn, model.LAYERS - 1])"),
        ),
        ("the loss reads the output of the last layer, when it is home: await model.alltoall(out, 8)",),
    ),
    Row(
        changed(
            "hierarchical",
            "the last gather's grad not kept",
            (
                '        grad = await model.allgather(grad, layer, axis="shard")\n',
                '        await model.allgather(grad, layer, axis="shard")\n',
            ),
        ),
        ("model.allgather does not change the gradient that it is given, it returns a new one",),
        ("leave out that gather",),
    ),
    Row(
        changed(
            "interleaved",
            "backwards in rounds of layers not reversed",
            (
                "for some in rounds for layer in reversed(mine) for mb in some",
                "for layer in reversed(mine) for some in rounds for mb in some",
            ),
        ),
        ("rank 3 has taken 4 micro-batches back through layer 7, and none through layer 3",),
        ("do that forward first",),
    ),
    Row(
        changed(
            "repair_book",
            "all-reduce in the node as well",
            (
                '            grad = await model.scatterreduce(grad, layer, axis="shard")\n            ### BROKEN',
                '            grad = await model.scatterreduce(grad, layer, axis="replica")\n            ### BROKEN',
            ),
        ),
        ('reduce-scatter over axis="shard" first',),
        ("one of these two calls is too many",),
    ),
]

ROWS += [
    Row(
        changed("dualpipe", "turn at place 0", ("if place == places - 1:", "if place == 0:")),
        (
            "rank 0 has sent the Activation of layer 2, micro-batch 0, to rank 2, which has not loaded layer 2; rank 1 has: await model.pass_to(1, ...) on rank 0",
        ),
        ("more forwards",),
    ),
    Row(
        changed(
            "zbv",
            "weight half twice",
            ("        for_the_weight(stage)\n\n", "        for_the_weight(stage)\n        for_the_weight(stage)\n\n"),
        ),
        (
            "both halves of the backward of layer 7 are done for micro-batch 0, as far as it has run: is backward_weight called once too often here?",
        ),
        ("receive(src=1)",),
    ),
    Row(
        changed(
            "two_batch_overlap",
            "experts' gradients dealt",
            (
                "grad = await totals[layer] if layer in totals else sums.pop(layer)",
                "grad = await totals[layer] if layer in totals else sums.pop(layer).shard(model.rank, model.RANKS)",
            ),
        ),
        ("what model.backward_expert gives is the gradient of this rank's experts already: leave it whole",),
        ("allgather",),
    ),
    Row(
        changed(
            "expert_parallel",
            "expert weights gathered",
            (
                'out = model.expert(layer, acts["tokens", layer], model.weights[layer])',
                'out = model.expert(layer, acts["tokens", layer], await model.allgather(model.weights[layer], layer))',
            ),
        ),
        ("this rank has loaded just these, and needs no others: model.weights[1] without a gather",),
        ("load_weights",),
    ),
    Row(
        changed(
            "ring_attention",
            "sums of keys by all-reduce at the end",
            (
                '        of_weight, grads["out"] = model.backward_project(',
                '        grads["kv"] = await model.allreduce(grads.pop("kv"), layer)\n        of_weight, grads["out"] = model.backward_project(',
            ),
        ),
        ("ranks add nothing to it here, so leave this call out",),
        ("in each step pass both on",),
    ),
    Row(
        changed(
            "context_parallel",
            "gather of the gradient of queries",
            (
                'grads["kv"] = await model.scatterreduce(kv_grad, layer)',
                'grads["kv"] = await model.scatterreduce(kv_grad, layer)\n        grads["att"] = await model.allgather(grads["att"], layer)',
            ),
        ),
        ("only keys and values are gathered: leave this call out",),
        ("join what is read first",),
    ),
    Row(
        changed(
            "context_parallel",
            "kv of the layer after",
            (
                'whole = await model.allgather(acts.pop(("kv", layer)), layer)',
                'whole = await model.allgather(acts.pop(("kv", layer + 1)), layer)',
            ),
        ),
        ("there is no layer 8: LAYERS is 8, and the last layer is 7",),
    ),
    Row(
        changed(
            "context_parallel",
            "loss of all ranks summed",
            (
                'grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)',
                'grads["out"] = await model.allreduce(model.loss(acts.pop(model.LAYERS), sliced=True), model.LAYERS - 1)',
            ),
        ),
        (
            "each rank goes on with the gradient of its own slice, which needs nothing of the others: leave this call out",
        ),
        ("allgather",),
    ),
    Row(
        changed(
            "zero_bubble",
            "weight half of the layer below's gradient",
            (
                "grad = model.grad_activations.pop((layer + 1, mb))\n            of_weight",
                "grad = model.grad_activations.pop((layer, mb))\n            of_weight",
            ),
        ),
        ("the gradient that backward_weight(2, ...) reads, of micro-batch 0, is model.grad_activations[3, 0]",),
        ("send it once",),
    ),
    Row(
        changed(
            "pipeline_fsdp",
            "stage by rank",
            ("stage, mb = model.rank % stages, model.rank // stages", "stage, mb = model.rank, model.rank // stages"),
        ),
        ("ranks 4-15 have run no layer, and brought no gradient", "model.rank % stages is the stage"),
    ),
]

ROWS += [
    Row(
        changed(
            "dualpipe",
            "backwards in the layers' order",
            (
                "        for layer in reversed(stage):\n            backward_of(layer, mb)",
                "        for layer in stage:\n            backward_of(layer, mb)",
            ),
        ),
        ("instead:  backward goes from the last layer down to the first: backward(6, ...) comes first, and gives it",),
    ),
    Row(
        changed(
            "zbv",
            "gradient stored one up",
            ("model.grad_activations[layer - 1, mb] = grad", "model.grad_activations[layer, mb] = grad"),
        ),
        (
            "the gradient of layer 6 is in model.grad_activations[7, 0], where it has taken the place of that of layer 7",
        ),
        ("receive(src=1)",),
    ),
    Row(
        changed(
            "zbv",
            "input half of the lower stage only",
            (
                "    async def backward(stage: range) -> None:\n        await for_the_input(stage)",
                "    async def backward(stage: range) -> None:\n        await for_the_input(lower)",
            ),
        ),
        ("which no message brings: backward(layer 4) of micro-batch 0 gives it on this rank itself, and comes first",),
        ("neighbor",),
    ),
    Row(
        changed(
            "expert_parallel",
            "scatter of dense gradients",
            ("sums[layer] = model.allreduce(grad, layer)", "sums[layer] = model.scatterreduce(grad, layer)"),
        ),
        (
            "grad = await model.allreduce(grad, 6) in place of model.scatterreduce",
            "here each rank updates all of a layer without experts",
        ),
        ("allgather",),
    ),
    Row(
        changed(
            "ring_attention",
            "queries' gradient sent too",
            (
                'grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts.pop("kv"))',
                'kv_grad, grads["att"] = model.backward_attend(layer, grads["att"], acts.pop("kv"))',
            ),
        ),
        ("the gradient of queries is the first of what backward_attend gives",),
    ),
    Row(
        changed(
            "zero_bubble",
            "weight half for each layer again",
            (
                "        if mb >= late:\n            for_the_weight(mb - late)",
                "        for_the_weight(mb)\n        if mb >= late:\n            for_the_weight(mb - late)",
            ),
        ),
        ("backward_weight(2, ...) of micro-batch 0 has run already: do it once for each",),
        ("Keep it to its last use",),
    ),
]

ROWS += [
    Row(
        changed(
            "dualpipe",
            "other half's place next",
            (
                "on = model.rank_at(half=half, place=min(place + 1, places - 1))",
                "on = model.rank_at(half=1 - half, place=min(place + 1, places - 1))",
            ),
        ),
        ("Rank 3, which has layer 2, too, waits for it: await model.pass_to(3, ...) on rank 2",),
        ("receive(src=2) on rank 1",),
    ),
    Row(
        changed("zbv", "upper thick one less", ("end - rank * thick)", "end - rank * thick - 1)")),
        ("no rank has loaded layers 4-7, and rank 0 has layer 0: are its ranges right?",),
        ("The order of the work",),
    ),
    Row(
        changed(
            "ring_attention",
            "gradients added to the own",
            ('kv_grad + grads.pop("kv") if step else kv_grad', 'grads["att"] + kv_grad if step else kv_grad'),
        ),
        ("the gradient of queries does not add up with that of keys and values",),
    ),
    Row(
        changed(
            "repair_book",
            "sum across before the loop ends",
            (
                "        del model.grad_activations[0]\n",
                '        del model.grad_activations[0]\n        for layer in range(model.LAYERS):\n            model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer, axis="replica")\n',
            ),
            (
                'grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")',
                "grad = model.grad_weights.pop(layer)",
            ),
        ),
        ("or in an earlier turn of a loop, and once is enough: after the last micro-batch",),
    ),
]

AT_REAL_SIZE = [
    Row(
        changed(
            "compose",
            "rounds a micro-batch short",
            (
                "mbs[start : start + stages] for start in range(0, share, stages)",
                "mbs[start : start + stages - 1] for start in range(0, share, stages - 1)",
            ),
        ),
        (
            "rank 0 takes 7 micro-batches through forward(layer 0) before forward(layer 8): a round is as many micro-batches as there are stages, 8",
        ),
        ("let rank 7 do",),
    ),
    Row(
        changed(
            "compose",
            "replicas on z",
            (
                'replica, replicas = model.axis_index("x"), model.axis_size("x")',
                'replica, replicas = model.axis_index("z"), model.axis_size("z")',
            ),
        ),
        ("ranks 16-31, 48-63, 80-95, 112-127 have loaded no layer, and ended: are there more stages than layers?",),
        ("receive(src=0)",),
    ),
    Row(
        changed(
            "compose", "last gather along z", ('allgather(piece, layer, axis="x")', 'allgather(piece, layer, axis="z")')
        ),
        ('The ranks along axis="x" have the same layers: await model.allgather(..., 4, axis="x")',),
    ),
    Row(
        changed(
            "compose",
            "rounds of replicas",
            (
                "mbs[start : start + stages] for start in range(0, share, stages)",
                "mbs[start : start + replicas] for start in range(0, share, replicas)",
            ),
        ),
        (
            "rank 0 takes 16 micro-batches through forward(layer 0) before forward(layer 8): a round is as many micro-batches as there are stages, 8",
        ),
        ("do that forward first",),
    ),
    Row(
        changed("compose", "no ring before", ("first + (stage - 1) % stages", "first + stage - 1")),
        ("await model.receive(src=7)", "(stage - 1) % stages is the stage before"),
        ("model.RANKS",),
    ),
    Row(
        changed("compose", "next over all ranks", ("first + (stage + 1) % stages", "(model.rank + 1) % model.RANKS")),
        (
            "to rank 0, which is of another pipeline and has other micro-batches. Rank 120 has these, and waits for rank 127: await model.pass_to(120, ...) on rank 127",
            "15 more such rows",
        ),
        ("receive(src=127) on rank 0",),
    ),
    Row(
        changed(
            "compose",
            "pieces of the stage",
            ("state.shard(replica, replicas)", "state.shard(stage, stages)"),
            ("model.weights[layer].shard(replica, replicas)", "model.weights[layer].shard(stage, stages)"),
        ),
        ('this one is (model.axis_index("x"), model.axis_size("x")): weight.shard with these two numbers',),
    ),
    Row(
        changed(
            "compose",
            "1F1B's warm-up",
            ("ahead = 2 * (stages - 1 - stage) + (len(mine) - 1) * stages + 1", "ahead = stages - stage"),
        ),
        (
            "rank 7 begins its first backward after 1 forward, which is too soon",
            "the last rank needs (len(mine) - 1) * stages + 1, here 9",
        ),
        ("model.RANKS",),
    ),
    Row(
        changed(
            "compose",
            "thick stages",
            (
                "mine = range(stage, model.LAYERS, stages)",
                "thick = model.LAYERS // stages\n    mine = range(stage * thick, (stage + 1) * thick)",
            ),
        ),
        ("What it has sent is read by layer 1 of its own, and stays there",),
    ),
]
COSTS = [
    Row(
        changed("zero_bubble", "weight halves of all ranks late", ("int(is_last)", "1")),
        ("left after its last input half: do one where it is idle before",),
    ),
    Row(
        changed(
            "context_parallel",
            "all-reduces awaited layer by layer",
            (
                "sums[layer] = model.allreduce(of_weight, layer)",
                "model.grad_weights[layer] = await model.allreduce(of_weight, layer)",
            ),
            ("grad = await sums[layer]", "grad = model.grad_weights.pop(layer)"),
        ),
        (
            "computes nothing while allreduce(layer 7) is on its way, and then backward_rest(layer 6) of micro-batch 0, which does not need it: keep the call, and await it a turn later, at the latest before model.update(7, ...)",
        ),
    ),
    Row(
        changed("zero_bubble", "first rank late, not the last", ("int(is_last)", "int(is_first)")),
        ("do these afterwards, on rank 3: the weight half of a micro-batch after the input half of the next one",),
        ("ranks 0, 3",),
    ),
    Row(
        WAITS_AT_ONCE,
        (
            "rank 0 computes nothing while alltoall(layer 1) of micro-batch 0 is on its way, and then forward(layer 0) of micro-batch 4",
        ),
    ),
]

AT_A_SHELL = some(ROWS, 3)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_words_lead_to_the_fix(row: Row) -> None:
    here = check_words(row)
    if row in AT_A_SHELL:
        check_at_a_shell(row, here)


def check_words(row: Row) -> Verdict:
    """Check what a program is told in a notebook, and return it."""
    here = grade(function(row.program), row.program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL, here.message
    missing = [words for words in row.says if words not in here.message]
    wrong = [words for words in row.never if words in here.message]
    assert not missing and not wrong, f"missing {missing}, wrong {wrong}:\n{here.message}"
    return here


def check_at_a_shell(row: Row, here: Verdict) -> None:
    """Check that a program is told at a shell what it is told here, but for the place."""
    at_a_shell, in_a_notebook = (re.sub(r"\n +at: .*", "", said.message) for said in (near(row.program), here))
    assert at_a_shell == in_a_notebook


@pytest.mark.parametrize("row", AT_REAL_SIZE, ids=lambda row: row.program.name)
def test_words_lead_to_the_fix_at_real_size(row: Row) -> None:
    here = grade(function(row.program), row.program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL, here.message
    fix = here.message.partition("instead: ")[2]
    assert all(words in here.message for words in row.says), here.message
    assert not any(words in fix for words in row.never), here.message


@pytest.mark.parametrize("row", COSTS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_what_costs_time_leads_to_the_fix(row: Row) -> None:
    here = grade(function(row.program), row.program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL and here.right, here.message
    assert all(words in here.costs_time for words in row.says), here.costs_time
    assert not any(words in here.costs_time for words in row.never), here.costs_time
