"""What is told of conditions that are true on one rank, or for one layer of a stage, of slices that are cut twice,
of calls that are awaited a turn later but for the last one, and of what grows at other sizes: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from lib.course.specs import find
from lib.grading.advice.sources import below_a_rank, one_layer_only
from tests.corpus import Program, changed
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words
from tests.test_fixes_readers import OWN, wrong

FORWARDS, BACKWARDS = f"        if {OWN}:\n            model.activations", f"        if {OWN}:\n            grad,"
ONE_LAYER = ("true for one layer of a stage only, and here a stage has 2", "first <= layer <= last")
FAKE = "model.fake_grad"


def own(name: str, *edits: tuple[str, str]) -> Program:
    """The solution of puzzle 7 with these edits."""
    return changed("pipeline_fsdp", name, *edits)


def below(condition: str, loop: str) -> tuple[str, str]:
    """An edit of the reader's program of puzzle 7: its forwards or its backwards below another condition."""
    return loop, loop.replace(OWN, condition)


LOSS_OF_OURS = "if layer == last and is_last:"
ONE_RANK = "only rank 15 calls model.loss, and rank 3 has run layer 3, too"
OURS = "        if first <= layer <= last:\n            inp, grad_out"
LATER = """        model.grad_weights[layer] = own
        if layer < model.LAYERS - 1:
            grad = await call
            model.weights[layer + 1], model.opt_states[layer + 1] = model.update(
                layer + 1, grad, model.weights[layer + 1], model.opt_states[layer + 1])
            model.set_final_weight(layer + 1, model.weights[layer + 1])
        call = model.%s(model.grad_weights.pop(layer), layer)
"""
AT_ONCE = """        grad = await model.%s(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
"""
UPDATED = "        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])\n        model.set_final_weight(layer, model.weights[layer])\n"
SUM = "        grad = await model.allreduce(grad, layer)\n"
AFTER_WORK = ("after the loop, and go on with it as with the others: those of layers",)
SECOND_GATHER = "        weight = await model.allgather(model.weights[layer], layer)\n        grad,"
CUT = ".shard(model.rank, model.RANKS)"
GIVEN = "gives each rank its slice already: leave out .shard(...)"
TWICE = ("model.scatterreduce(..., 1) " + GIVEN,)


def sliced(name: str, *edits: tuple[str, str]) -> Program:
    """The solution of puzzle 18 with these edits."""
    return changed("sequence_parallel", name, *edits)


RECEIVED = "        if layer == first and stage > 0:\n            model.activations[layer] = await model.receive(src=model.rank - 1)\n"
GATHERED = "        weight = await model.allgather(model.weights[layer], layer)\n"
IN_FULL = [("weight = await", "model.weights['full'] = await"), (", weight)", ", model.weights['full'])")]
AFTER_GATHER = [(RECEIVED + GATHERED, GATHERED + RECEIVED), *IN_FULL]
EACH_RECEIVES = (
    "        if layer == first and stage > 0:\n            model.activations[layer] = await model.receive(src=model.rank - 1)",
    "        if layer and first <= layer <= last:\n            model.activations[layer] = await model.receive(src=pipe * 4 + (stage - 1) % 4)",
)
EACH_SENDS = (
    "if layer == last and stage < 3:\n                await model.pass_to(model.rank + 1,",
    "if layer < model.LAYERS - 1:\n                await model.pass_to(pipe * 4 + (stage + 1) % 4,",
)
TOO_LONG = "has run layer {0} on micro-batch 0 itself, as its last layer, and this rank begins with it: one stage ends before the next begins, range(first, first + model.LAYERS // stages)"
NO_LOSS = "only a rank that runs the last layer calls model.loss; layer {0} is on rank {1}, and gradients come from there: await model.receive(src={1}), in place of the loss"
AWAITS = "let the call that the turn of layer {0} awaits be this one, and not allgather(layer {1})"
AHEAD_FORWARD = [
    (
        "\n    for layer in range(model.LAYERS):\n        model.weights['full'] = await model.allgather(model.weights[layer], layer)\n",
        "\n    call = model.allgather(model.weights[0], 0)\n    for layer in range(model.LAYERS):\n        model.weights['full'] = await call\n"
        "        if layer < model.LAYERS - 1:\n            call = model.allgather(model.weights[layer + 1], layer + 1)\n",
    ),
]
AHEAD_BACK = [
    (
        "    for layer in reversed(range(model.LAYERS)):\n",
        "    call = model.allgather(model.weights[model.LAYERS - 1], model.LAYERS - 1)\n    for layer in reversed(range(model.LAYERS)):\n",
    ),
    (
        GATHERED + "        if first <= layer <= last:\n            grad",
        "        if layer < model.LAYERS - 1:\n            weight = await call\n            if layer:\n                call = model.allgather(model.weights[layer - 1], layer - 1)\n        if first <= layer <= last:\n            grad",
    ),
    *IN_FULL,
]
KEPT = [
    (GATHERED + "        grad,", "        grad,"),
    ("weight = await", "model.weights['now'] = await"),
    (", weight)", ", model.weights['now'])"),
]


ROWS = [
    # A condition that is true for one layer of a stage only.
    Row(wrong("pipeline_fsdp", "forwards of one layer", below("layer == stage", FORWARDS)), ("`layer == stage` above model.forward is", *ONE_LAYER), (FAKE,)),
    Row(wrong("pipeline_fsdp", "backwards of one layer", below("layer == stage", BACKWARDS)), ("`layer == stage` above model.backward is", *ONE_LAYER), (FAKE,)),
    Row(wrong("pipeline_fsdp", "backwards of the first layer", below("first == layer", BACKWARDS)), ("`first == layer` above model.backward is", *ONE_LAYER), (FAKE,)),
    Row(own("backwards of the last layer", (OURS, OURS.replace("first <= layer <= last", "layer == model.rank % stages"))), ("`layer == model.rank % stages` above model.backward is", *ONE_LAYER), (FAKE,)),
    Row(wrong("pipeline_fsdp", "one layer in each stage", ("per = model.LAYERS // 4", "per = 1")), ("no rank has run layers 4-7 of 8: a stage has model.LAYERS // stages layers",), (FAKE,)),
    Row(wrong("pipeline_fsdp", "one layer in each stage, and no last rank", ("per = model.LAYERS // 4", "per = 1"), ("stage < 3", "layer < model.LAYERS - 1")), ("which has run layer 3 so far: each stage runs model.LAYERS // stages layers; or, where layers go round a ring",), (FAKE,)),
    Row(wrong("pipeline_fsdp", "one layer in each stage, and round", ("per = model.LAYERS // 4", "per = 1"), ("stage < 3", "layer < model.LAYERS - 1"), ("pass_to(model.rank + 1", "pass_to(model.rank + 1 if stage < 3 else model.rank - 3"), ("model.receive(src=model.rank + 1)", "model.receive(src=model.rank + 1 if stage < 3 else model.rank - 3)")), ("model.LAYERS // stages",), (FAKE,)),
    Row(own("a stage ends with its first layer", ("stage * share, (stage + 1) * share - 1", "stage * share, stage * share")), ("no rank has run layer 1: does rank 0 end too soon", "model.LAYERS // stages")),
    # A backward, or the loss, below a condition of a rank.
    Row(wrong("pipeline_fsdp", "backwards of one pipeline", below(f"{OWN} and pipe == 0", BACKWARDS)), ("ranks 7, 11, 15 have run forward(3, ...), and not the backward of layer 3", "is a condition above that backward false there?"), ("scatterreduce(grad",)),
    Row(wrong("pipeline_fsdp", "the loss of the last rank", ("    if stage == 3:\n", "    if model.rank == model.RANKS - 1:\n")), (ONE_RANK, "is a condition above that call true on rank 15 alone?"), ("receive(",)),
    Row(own("the loss of the last rank, else a message", (LOSS_OF_OURS, "if layer == last and model.rank == model.RANKS - 1:")), (ONE_RANK,)),
    Row(own("the loss of the first pipeline", (LOSS_OF_OURS, "if layer == last and model.rank == 3:")), ("only rank 3 calls model.loss, and rank 15 has run layer 3, too",)),
    Row(wrong("pipeline_fsdp", "nothing for the layers of others", ("            grad = model.fake_grad(layer, [])\n        grad = await model.scatterreduce(grad, layer)", "            model.grad_weights[layer] = None\n        grad = await model.scatterreduce(grad, layer)")), ("it brings model.fake_grad(3, [])",), ("store the first gradient",)),
    # A collective below a condition of a rank.
    Row(wrong("wsdp", "the second gather on rank 0", (SECOND_GATHER, SECOND_GATHER.replace("        weight", "        if model.rank == 0:\n            weight"))), ("a model.allgather(...) stands below `if model.rank == 0`, and every rank of its group has to call it",)),
    Row(wrong("wsdp", "the sum of a layer on one rank", (SUM, SUM.replace("        grad", "        if model.rank == layer:\n            grad"))), ("a model.allreduce(...) stands below `if model.rank == layer`",)),
    Row(wrong("zero2", "the sum on rank 0", ("            grad = await model.scatterreduce(grad, layer)\n", "            if model.rank == 0:\n                grad = await model.scatterreduce(grad, layer)\n")), ("only rank 0 calls model.scatterreduce(..., 5): is a condition above it true there alone?",), ("give it to rank",)),
    Row(sliced("the gather on rank 0", ("        inp = await model.allgather(model.activations[layer], layer)\n", "        inp = model.activations[layer]\n        if model.rank == 0:\n            inp = await model.allgather(model.activations[layer], layer)\n")), ("a model.allgather(...) stands below `if model.rank == 0`",)),
    # Calls that are awaited a turn later, but for the last one.
    Row(wrong("wsdp", "sums a turn later", ("grad, model.grad_activations[layer]", "own, model.grad_activations[layer]"), (SUM + UPDATED, LATER % "allreduce")), AFTER_WORK),
    Row(wrong("pipeline_fsdp", "sums a turn later", ("grad, model.grad_activations[layer]", "own, model.grad_activations[layer]"), ("            grad = model.fake_grad", "            own = model.fake_grad"), (AT_ONCE % "scatterreduce", LATER % "scatterreduce")), AFTER_WORK),
    Row(wrong("zero2", "gathers a turn later", ("        model.weights[layer] = await model.allgather(weight, layer)\n        model.set_final_weight(layer, model.weights[layer])\n", "        if layer:\n            model.weights[layer - 1] = await ahead\n            model.set_final_weight(layer - 1, model.weights[layer - 1])\n        ahead = model.allgather(weight, layer)\n")), AFTER_WORK),
    # What is called, or stored, on some ranks or in some turns only.
    Row(own("gathers of the last layer alone", ("        weight = await model.allgather(model.weights[layer], layer)\n        grad = model.fake", "        if layer == last:\n            weight = await model.allgather(model.weights[layer], layer)\n        grad = model.fake")), ("rank 3 calls allgather(layer 3) before that sum, and rank 0 does not: is a condition above that gather true on some ranks only?",)),
    Row(changed("context_parallel", "the sums of rank 0", ("        sums[layer] = model.allreduce(of_weight, layer)\n", "        if model.rank == 0:\n            sums[layer] = model.allreduce(of_weight, layer)\n")), ("rank 1 has computed its gradient of layer 7, and goes on without that sum: is a condition above it true on some ranks only?",)),
    Row(sliced("one gradient for all layers, and not in each turn", ("model.grad_activations.pop(layer + 1)", 'model.grad_activations.pop("out")'), ("model.grad_activations[model.LAYERS]", 'model.grad_activations["out"]'), ("model.grad_activations[layer] = await", 'model.grad_activations["out"] = await'), ("if layer > 0", "if layer > 1")), ("the backward of that layer has read it: what it gives is to be stored here, and was not",), ("without pop",)),
    # Slices that are cut twice, or in another number.
    Row(sliced("a sum in slices is cut", ("await model.scatterreduce(out, layer + 1)", f"(await model.scatterreduce(out, layer + 1)){CUT}")), TWICE, ("gather the slices",)),
    Row(sliced("a slice is cut before its gather", ("await model.allgather(model.activations[layer], layer)", f"await model.allgather(model.activations[layer]{CUT}, layer)")), ("it is cut twice, in 4 slices and each of these in 4",), ("gather the slices",)),
    Row(changed("context_parallel", "each layer cuts its slice again", ('        inp, weight = acts[layer], model.weights[layer]\n        acts["att"', '        inp, weight = acts[layer].shard(model.rank, model.RANKS), model.weights[layer]\n        acts["att"')), ("it is cut twice, in 4 slices and each of these in 4",)),
    Row(sliced("more slices than ranks", (CUT, ".shard(model.rank, 2 * model.RANKS)")), ("it is cut in 8, and there are 4 ranks",), ("gather the slices",)),
    Row(sliced("four slices", (CUT, ".shard(model.rank, 4)")), ("it is cut in 4, and there is 1 rank: cut as many slices as there are ranks",), ("gather the slices",)),
    Row(sliced("the loss is cut", ("= model.loss(inp)", f"= model.loss(inp){CUT}")), ("model.loss gives each rank all of this gradient: leave out its .shard(...)",), ("gather the slices",)),
    Row(sliced("weights are cut twice", ("            layer, model.rank, model.RANKS\n        )\n", f"            layer, model.rank, model.RANKS\n        )\n        model.weights[layer] = model.weights[layer]{CUT}\n")), ("the weight is cut in 16, and there are 4 ranks, each with one piece of it",), ("allreduce",)),
    # Buckets, hosts, adapters and experts.
    Row(changed("buckets", "the last bucket is never full", (" or layer == 0", "")), ("model.update stands in the program, and is not reached", "one that waits to be full may never be")),
    Row(changed("buckets", "each bucket once more", ("            layers = list(model.grad_weights)\n", "            layers = [*range(layer, model.LAYERS)][::-1]\n")), ("model.allreduce(..., 23) was started on this rank", "Or is layer 23 left over in the list of another call?")),
    Row(changed("offload", "fewer messages than there come", ("        for mb in range(model.BATCHES):\n            for layer in reversed(range(model.LAYERS)):\n                grad = await model.receive()", "        for mb in range(1, model.BATCHES):\n            for layer in reversed(range(model.LAYERS)):\n                grad = await model.receive()"), ("if mb > 0", "if mb > 1")), ("those of micro-batch 1 for layer 5 have not been received by then",), ("keep the gradient of the first",)),
    Row(changed("offload", "a gradient for rank 0", ("model.pass_to(model.host, grad)", "model.pass_to(0, grad)")), ("model.host is the number of the host",), ("n - 1 hops",)),
    Row(changed("offload", "states come back", ("model.pass_to(model.devices[0], model.weights[layer])", "model.pass_to(model.devices[0], model.opt_states[layer])")), ("it came from rank 1", "let that rank send the Weight in place of this")),
    Row(changed("lora", "a forward without its adapter", ("inp, weight, adapter=adapter)\n    model.grad", "inp, weight)\n    model.grad")), ("forward(layer 0) has run without its adapter",), ("counts twice",)),
    Row(changed("lora", "pieces of the sums", ("await model.allreduce(grad, layer)", "await model.scatterreduce(grad, layer)")), ("grad = await model.allreduce(grad, 5) in place of model.scatterreduce",), ("allgather",)),
    Row(changed("lora", "adapters in place of weights", ('model.weights["adapter", layer], model.opt_states[layer] = model.load', "model.weights[layer], model.opt_states[layer] = model.load")), ("the adapter of layer 0 is in model.weights[0], in place of its own weight",)),
    Row(changed("expert_parallel", "inputs are gathered", ("await model.alltoall(acts.pop(layer), layer)", "await model.allgather(acts.pop(layer), layer)")), ("await model.alltoall(..., 1)",)),
    Row(changed("two_batch_overlap", "shares that overlap", ("range(model.rank, model.BATCHES, model.RANKS)", "range(model.rank, model.rank + 2)")), ("ranks 0, 1 have run layer 0 on micro-batch 1, and only one of them should",), ("add the gradient of each micro-batch once",)),
    # What cuts in place of a sum, and shares of no layer.
    Row(wrong("zero2", "gradients are cut by hand", ("grad = await model.scatterreduce(grad, layer)", "grad = grad.shard(model.rank, model.RANKS)")), ("shard cuts, and sums nothing over the ranks: in place of it grad = await model.scatterreduce(grad, 0)",), ("allreduce",)),
    Row(own("eight stages", ("stages = model.RANKS // model.BATCHES", "stages = 8")), ("model.LAYERS // stages would be 0 here, 4 // 8: a stage has model.LAYERS // stages layers, and there are 4 stages",)),
    Row(wrong("pipeline_fsdp", "each output is sent", ("            if layer == last and stage < 3:\n", "            if stage < 3:\n")), ("If this rank runs layer 1, too, it sends nothing here: pass_to comes after its last layer",)),
    Row(sliced("None for the loss of others", ("= model.loss(inp)", "= model.loss(inp) if model.rank == 3 else None")), ("only rank 3 calls model.loss, and rank 0 has run layer 7, too",)),
    Row(changed("lora", "one adapter for all layers", ("model.load_adapter(layer)", "model.load_adapter(0)")), ("Or does each turn of a loop load layer 0?",)),
    Row(own("as many stages as ranks", ("stages = model.RANKS // model.BATCHES", "stages, deep = model.RANKS, model.LAYERS"), ("share = model.LAYERS // stages", "share = deep // stages")), ("deep // stages would be 0 here, 4 // 16",)),
    Row(own("backwards without that of the first layer", (OURS, OURS.replace("first <= layer", "first < layer"))), ("backward(3, ...) has to run first, on this rank",)),
    # Stages of which one ends after the next has begun, what is sent in place of the result, and losses of other stages.
    Row(wrong("pipeline_fsdp", "a layer too many, received after the gather", ("(stage + 1) * per - 1", "(stage + 1) * per"), *AFTER_GATHER), (TOO_LONG.format(1, 0),), ("goes on with layer",)),
    Row(changed("gpipe", "a layer too many", ("(model.rank + 1) * share\n", "min((model.rank + 1) * share + 1, model.LAYERS)\n")), (TOO_LONG.format(2, 0),), ("goes on with layer",)),
    Row(own("the input is sent", ("model.activations.pop(last + 1))\n\n", "model.activations[last])\n\n")), ("await model.pass_to(1, ...) on rank 0, with what forward(0, ...) gave there. What it has sent is read by layer 0 of its own",), ("model.activations[1]",)),
    Row(changed("gpipe", "the input is sent", ("model.activations.pop((end, mb)))\n\n", "model.activations[end - 1, mb])\n\n")), ("await model.pass_to(1, ...) on rank 0, with what forward(1, ...) gave there",)),
    Row(wrong("pipeline_fsdp", "the gradient of the output is sent", ("model.grad_activations.pop(layer + 1), weight", "model.grad_activations[layer + 1], weight"), ("model.grad_activations.pop(layer))", "model.grad_activations.pop(layer + 1))")), ("await model.pass_to(2, ...) on rank 3, with what backward(3, ...) gave there for the input",)),
    Row(changed("gpipe", "a loss on each rank", ("model.activations.pop((end, mb)))\n\n", "model.activations[end, mb])\n\n"), ("        if is_last:\n            model.grad", "        if True:\n            model.grad")), (NO_LOSS.format(2, 1),), ("run every layer",)),
    Row(wrong("pipeline_fsdp", "a loss on each rank", ("model.activations.pop(layer + 1))\n    if stage == 3:\n        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))", "model.activations[layer + 1])\n    model.grad_activations[last + 1] = model.loss(model.activations.pop(last + 1))")), (NO_LOSS.format(1, 1),), ("run every layer",)),
    Row(wrong("pipeline_fsdp", "messages between layers of a stage, on a ring", *AFTER_GATHER, *AHEAD_FORWARD, EACH_RECEIVES, EACH_SENDS), ("rank 0, which has layer 1, waits for a message of rank 3 before that", "store what forward gives"), ("begin too late",)),
    Row(wrong("pipeline_fsdp", "ahead from the wrong layer on", *AHEAD_BACK), (AWAITS.format(2, 3),)),
    Row(wrong("wsdp", "backwards without a gather", *KEPT), (AWAITS.format(4, 5),)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)


KEPT = f"            model.weights['own', layer] = weight\n{FORWARDS.partition(chr(10))[2]}"
GATHER_BACK = f"        weight = await model.allgather(model.weights[layer], layer)\n{BACKWARDS}"
OWN_KEPT = [
    (f"        if {OWN}:\n            model.activations", f"        if {OWN}:\n{KEPT}"),
    (GATHER_BACK, BACKWARDS.replace("grad,", "weight = model.weights.pop(('own', layer))\n            grad,")),
]
AFTER = "        grad = await model.scatterreduce(grad, layer)\n        model.weights[layer], model.opt_states"
GROWN = [
    (wrong("pipeline_fsdp", "own weights kept, and not gathered again", *OWN_KEPT), "weights", "gather it again"),
    (
        wrong("pipeline_fsdp", "own weights kept, updates at the end", *OWN_KEPT,
            ("        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, grad,", "        model.grad_weights[layer] = grad\n        if layer == first and stage > 0:\n            await model.pass_to(model.rank - 1, model.grad_activations.pop(layer))\n    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, model.grad_weights.pop(layer),"),
            ("        model.set_final_weight(layer, model.weights[layer])\n        if layer == first and stage > 0:\n            await model.pass_to(model.rank - 1, model.grad_activations.pop(layer))\n", "        model.set_final_weight(layer, model.weights[layer])\n")),
        "weights", "gather it again",
    ),
    (
        own("own gradients kept to the end",
            ("        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n        if", "        model.grad_weights[layer] = grad\n        if"),
            ("            layer, model.grad_weights.pop(layer),", "            layer, await model.scatterreduce(model.grad_weights.pop(layer), layer),")),
        "2 weight gradients", "Call scatterreduce for each layer right after its backward",
    ),
]  # fmt: skip


@pytest.mark.parametrize("program, what, says", GROWN, ids=[program.name for program, *_ in GROWN])
def test_what_a_solution_holds_as_well_is_not_blamed(program: Program, what: str, says: str) -> None:
    """The input of a layer whose backward is to come is needed, and a gradient of no micro-batches takes nothing."""
    here = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.failed_at and here.too == "large" and here.error is not None, here.message
    assert f"{what}." in here.error.fix and says in here.error.fix, here.error.fix
    assert "get_activation" not in here.error.fix and "11 weight gradients" not in here.message


PASSED_ON = [
    ("zero2", "await model.scatterreduce(grad, layer)"),
    ("zero1", "await model.scatterreduce(grad, layer)"),
]


@pytest.mark.parametrize("puzzle, call", PASSED_ON)
def test_a_whole_sum_that_is_cut_is_told_one_thing(puzzle: str, call: str) -> None:
    program = changed(puzzle, "whole sums are cut", (call, f"(await model.allreduce(grad, layer)){CUT}"))
    verdict = grade(function(program), puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.right and "await model.scatterreduce(grad, layer) in place of each of these" in verdict.costs_time
    assert "add up the gradients" not in verdict.costs_time


def test_a_gradient_of_the_loss_that_is_cut_and_gathered_is_told_as_that() -> None:
    program = sliced(
        "the loss is cut and gathered",
        ("= model.loss(inp)", f"= await model.allgather(model.loss(inp){CUT}, model.LAYERS - 1)"),
    )
    verdict = grade(function(program), "sequence_parallel", timeout=LONG).verdict  # type: ignore[arg-type]
    assert "leave out its cut and its gather" in verdict.costs_time, verdict.costs_time


def test_conditions_that_mean_something_else_are_not_named() -> None:
    puzzle = find("pipeline_fsdp")
    size = puzzle.size | {"layers": 8}
    lines = "for layer in range(8):\n    if %s:\n        model.forward(layer, a, b)\n"
    assert one_layer_only(puzzle, size, lines % "layer == stage")
    for condition in ("layer % 4 == stage", "layer == 0", "first <= layer", "layer in mine", "mb == stage"):
        assert not one_layer_only(puzzle, size, lines % condition), condition
    assert not one_layer_only(puzzle, puzzle.size, lines % "layer == stage")
    two = "    if layer == first:\n        model.forward(layer, a, b)\n    else:\n        model.forward(layer, c, d)\n"
    assert not one_layer_only(puzzle, size, f"for layer in range(8):\n{two}")
    assert not one_layer_only(
        puzzle, size, "for layer in a:\n  for each in mine:\n    if layer == each:\n      model.forward(layer)"
    )
    gather = "if model.rank == 0:\n    w = await model.allgather(w, layer%s)\n"
    asks = "weight = await model.allgather(w, 0)"
    assert below_a_rank(asks, gather % "") != asks
    for source in (gather % ', axis="shard"', gather % "" + "else:\n    await model.allgather(w, layer)", "x", ""):
        assert below_a_rank(asks, source) == asks


@pytest.mark.parametrize("most", [12, 24])
def test_lists_that_are_too_long_are_told(most: int) -> None:
    program = changed(
        "buckets", f"{most} layers in a call", ("len(model.grad_weights) == 6", f"len(model.grad_weights) == {most}")
    )
    verdict = grade(function(program), "buckets", timeout=LONG).verdict  # type: ignore[arg-type]
    assert f"a call takes up to {most} layers" in verdict.costs_time and "let it take fewer" in verdict.costs_time
