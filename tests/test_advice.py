"""What is said of mistakes that Python itself finds, and of functions that stop half-way: each leads to its fix."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lib import Model, PuzzleError, grade, run
from lib.course.specs import puzzles
from lib.grading.judge import judge
from lib.grading.submission import load
from lib.learner.model import written
from lib.record.table import OPERATIONS
from solutions.build.sources.files import ROOT
from tests.corpus import changed

LINES = {
    "model.grad_wieghts": ("model has no grad_wieghts", "did you mean model.grad_weights?"),
    "model.layers": ("model has no layers", "did you mean model.LAYERS?"),
    "model.Weights": ("model has no Weights", "did you mean model.weights?"),
    "model.allReduce(1, 0)": ("model has no allReduce", "did you mean await model.allreduce(v, layer)?"),
    "model.all_reduce(1, 0)": ("model has no all_reduce", "did you mean await model.allreduce(v, layer)?"),
    "model.world_size": ("model has no world_size", "did you mean model.RANKS?"),
    "model.barrier()": ("model has no barrier", "ranks wait for each other in a collective, or for a message"),
    "model.nonsense": ("model has no nonsense", ""),
    "model.dist.rank": ("model.dist has no rank", "did you mean model.dist.ranks?"),
    "model.activations.append(1)": (
        "model.activations has no append: it is a dictionary", "model.activations[layer] = tensor",
    ),
    "model.weights.itemss()": ("model.weights has no itemss", "did you mean model.weights.items?"),
    "model.load_weights(0)[0].layr": ("a Weight has no layr", "did you mean a Weight.layer?"),
    "model.allreduce(model.fake_grad(0, []), 0).nothing": (
        "<allreduce(layer 0) of rank 0, in flight> has no nothing yet", "did you forget `await`?",
    ),
    "model.forward(0, 1)": (
        "model.forward() missing 1 required positional argument: 'weight'", "model.forward(layer, inp, weight)",
    ),
    "modle.rank": ("the function raised NameError: name 'modle' is not defined", "did you mean model?"),
    "range(modl.RANKS)": ("the function raised NameError: name 'modl' is not defined", "did you mean model?"),
    "zzz": ("the function raised NameError: name 'zzz' is not defined", "zzz = ... before that: no line has given it a value yet"),
    "[].appendd": ("the function raised AttributeError: 'list' object has no attribute 'appendd'", ""),
    "model.allreduce(0, model.fake_grad(0, []))": (
        "allreduce takes a WeightGrad",
        "await model.allreduce(v, layer): first the tensor, then its layer; here they are exchanged",
    ),
    "model.get_activation(2)": (
        "batches must be whole numbers in brackets, one or several, for example [0] or [0, 1]", "one in brackets as well, as [model.rank] or [micro_batch]; those before it are range(2)",
    ),
    "model.get_activation(0)": ("batches must be whole numbers in brackets, one or several, for example [0] or [0, 1]", "one in brackets as well, as [model.rank] or [micro_batch]"),
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_mistake_leads_to_its_cure(line: str) -> None:
    names: dict[str, Any] = {}
    exec(f"async def program(model):\n    {line}\n", names)
    with pytest.raises(PuzzleError) as failed:
        run(names["program"], ranks=2, batches=4)
    assert (failed.value.problem, failed.value.fix) == LINES[line]
    assert failed.value.place.rank == 0


def test_names_that_torch_has_lead_to_ours_and_are_not_ours() -> None:
    """Each row says its own; so a new operation brings them along."""
    others = {other: row.kind for row in OPERATIONS.values() for other in row.elsewhere}
    assert {"all_reduce", "all_gather", "reduce_scatter", "send", "recv", "step"} <= others.keys()
    for other, kind in others.items():
        assert not hasattr(Model, other)
        names: dict[str, Any] = {}
        exec(f"def program(model):\n    model.{other}()\n", names)
        with pytest.raises(PuzzleError) as failed:
            run(names["program"])
        assert failed.value.fix == f"did you mean {written(kind)}?"


def test_a_reduction_whose_result_is_not_used_is_named() -> None:
    """In torch it works in place, so this is what people write first."""

    def program(line: str) -> Any:
        names: dict[str, Any] = {}
        source = f"""
async def program(model):
    weight, state = model.load_weights(0)
    model.weights[0], model.opt_states[0] = weight, state
    x = model.get_activation([model.rank])
    model.activations[0] = x
    grad, _ = model.backward(0, x, model.loss(model.forward(0, x, weight)), weight)
    model.grad_weights[0] = grad
    {line}
    model.update(0, grad, weight, state)
"""
        exec(source, names)
        return names["program"]

    unused = "model.{} does not change the gradient that it is given, it returns a new one: write grad = await model."
    lines = {
        "await model.allreduce(grad, 0)": unused.format("allreduce"),
        "model.allreduce(grad, 0)": unused.format("allreduce"),
        "later = await model.allreduce(grad, 0)": unused.format("allreduce"),
        "await model.scatterreduce(grad, 0)": unused.format("scatterreduce"),
        "pass": "add up the gradients of all ranks before the update: grad = await model.allreduce(grad, 0)",
    }
    for line, fix in lines.items():
        with pytest.raises(PuzzleError, match="the gradient is missing micro-batch 1") as failed:
            run(program(line), ranks=2, layers=1, batches=2)
        assert failed.value.fix.startswith(fix), line


STEPS = [
    "model.weights[0], model.opt_states[0] = model.load_weights(0)",
    "x = model.activations[0] = model.get_activation(range(model.BATCHES))",
    "x = model.forward(0, x, model.weights[0])",
    "grad = model.loss(x)",
    "model.grad_weights[0], _ = model.backward(0, model.activations[0], grad, model.weights[0])",
    "weight, _ = model.update(0, model.grad_weights.pop(0), model.weights[0], model.opt_states[0])",
    "model.set_final_weight(0, weight)",
]
COMES = [
    "", "after load_weights comes model.get_activation(batches)", "after get_activation comes model.forward(",
    "after forward comes model.loss(inp)", "after loss comes model.backward(", "after backward comes model.update(",
]  # fmt: skip


@pytest.mark.parametrize("steps", range(len(STEPS) + 1))
def test_half_written_code_is_told_what_comes_next(steps: int) -> None:
    lines = "".join(f"    {line}\n" for line in ["model.RANKS", *STEPS[:steps]])
    names: dict[str, Any] = {}
    exec(f"def basic(model):\n{lines}", names)
    puzzle = puzzles()["basic"]._replace(size={"ranks": 1, "layers": 1, "batches": 1})
    verdict = judge(puzzle, lambda size: run(names["basic"], **size))
    assert verdict.status == ("TODO" if steps < 3 else "FAIL")
    if 0 < steps < len(COMES):
        assert COMES[steps] in verdict.message
    else:
        says = {
            0: "not attempted yet",
            6: "layer 0: no rank has set a",
            7: "rank 0: it ends without the updated optimizer state",
        }
        assert verdict.message.startswith(says[steps])


def test_a_loop_of_awaits_that_never_ends_has_its_line() -> None:
    async def program(model: Model) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(PuzzleError, match="did not end within") as failed:
        run(program, timeout=0.5)
    # time is up at either line of the loop: a signal may also come as it goes back to its beginning
    assert "await asyncio.sleep(0)" in failed.value.line or "while True:" in failed.value.line
    assert "timeout" not in failed.value.fix
    with pytest.raises(PuzzleError) as failed:
        run(program, timeout=0.5, ranks=100)
    assert "a large machine may need a longer timeout" in failed.value.fix


OWN = "layer, model.rank, model.RANKS"
GATHER = "weight = await model.allgather(model.weights[layer], layer)\n        model.activations"
SHARDED = {
    "everybody loads shard 0": (OWN, "layer, 0, model.RANKS", "let each rank load its own shard, model.load_weights("),
    "everybody loads the next shard": (
        OWN, "layer, (model.rank + 1) % model.RANKS, model.RANKS", "model.load_weights(0, model.rank, model.RANKS) on this rank",
    ),
    "shard and total exchanged": (OWN, "layer, model.RANKS, model.rank", "number `shard` of `total` equal pieces"),
    "whole weights loaded": (OWN, "layer", "it is whole already, and a gather joins pieces: let each rank load its own shard"),
    "not gathered": (
        GATHER, "weight = model.weights[layer]\n        model.activations",
        "weight = await model.allgather(model.weights[0], 0)",
    ),
    "gathered over one's own": (
        GATHER, GATHER.replace("weight =", "weight = model.weights[layer] ="),
        "it was gathered before, and is whole already: keep the piece that each rank has loaded",
    ),
    "a smaller gradient": (
        "layer, grad, model.weights", "layer, grad.shard(0, 2), model.weights", "as a reduce-scatter gives piece i",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARDED)
def test_mistakes_with_shards_lead_to_their_cure(name: str) -> None:
    right, wrong, fix = SHARDED[name]
    source = (ROOT / "solutions" / "p03_wsdp.py").read_text(encoding="utf-8")
    assert right in source
    names, *_ = load("mine.py", source.replace(right, wrong, 1))
    verdict = grade(names["wsdp"], "wsdp")
    assert verdict.status == "FAIL" and fix in verdict.message


GRAD = "grad, model.grad_activations[layer] = model.backward("
BACKWARD = "model.grad_weights[layer], model.grad_activations[layer] = model.backward("
SUM = "grad = await model.allreduce(grad, layer)"
ADDED = "grad if mb == 0 else model.grad_weights[layer] + grad"
FIRST_INPUT = "        model.activations[0] = model.get_activation([mb])"
UPDATED = "        model.weights[layer], model.opt_states[layer] = model.update("
ALL_MICRO_BATCHES = "add up the gradients of all ranks before the update: grad = await model.allreduce(grad, 1)"
TABLE = [
    ("forgotten await", "ddp", [(SUM, "grad = model.allreduce(grad, layer)")],
     "weight_grad must be a WeightGrad", "did you forget `await`?", UPDATED),
    ("no final weight", "basic", [("        model.set_final_weight(layer, model.weights[layer])\n", "")],
     "layer 0: no rank has set a final weight", "after update: model.set_final_weight(0, weight)", ""),
    ("the old weight handed in", "basic",
     [(UPDATED, "        old = model.weights[layer]\n" + UPDATED), ("(layer, model.weights[layer])\n    ", "(layer, old)\n    ")],
     "no weight of this layer after one optimizer step", "weight, opt_state = model.update(0, ...)", ""),
    ("no all-reduce", "ddp", [("        " + SUM + "\n", "")],
     "the gradient is missing micro-batches 1-3", ALL_MICRO_BATCHES, UPDATED),
    ("an update for each micro-batch", "grad_accum",
     [("            model.grad_weights[layer] = " + ADDED, "    " + UPDATED + "layer, grad, model.weights[layer], model.opt_states[layer])")],
     "the gradient is missing micro-batches 1-3", "train on all micro-batches and add up their gradients, then update", UPDATED),
    ("replaced instead of added", "grad_accum", [(ADDED, "grad")], "the gradient is missing micro-batches 0-2",
     "this rank has computed the gradient of micro-batches 0-2 as well: store the first one, and add it to the others, "
     "model.grad_weights[0] = model.grad_weights[0] + grad", UPDATED),
    ("added to nothing", "grad_accum", [(ADDED, "model.grad_weights[layer] + grad")],
     "nothing is stored in grad_weights under 1", "store the first gradient as it is, and add to it from the second on",
     "model.grad_weights[layer] + grad"),
    ("the same micro-batch everywhere", "ddp", [("[model.rank])", "[0])")],
     "micro-batch 0 is in more than one gradient, and would be counted twice", "ranks 0-3 have run layer 1 on micro-batch 0, and only one of them should; rank r has micro-batch r", SUM),
    ("a running sum reduced each time", "repair_twice",
     [("            if layer in model.grad_weights", "            grad = await model.allreduce(grad, layer)\n            if layer in model.grad_weights")],
     "micro-batches 0-1, 4-5 are in more than one gradient|would be counted twice", "reduce each gradient once", "allreduce"),
    ("a result that is not assigned", "ddp", [(SUM, SUM.replace("grad = ", ""))], "was not stored when rank 0 issued allreduce(layer 1)",
     "model.allreduce does not change the gradient that it is given, it returns a new one: "
     "write grad = await model.allreduce(grad, layer), and update with that", UPDATED),
    ("only one rank reduces", "ddp", [("        " + SUM, "        if model.rank == 0:\n            " + SUM)],
     "the gradient is missing micro-batches 0, 2, 3", "rank 0 calls model.allreduce(..., 1), and rank 1 does not", UPDATED),
    ("layers in another order", "ddp",
     [("for layer in reversed(range(model.LAYERS)):\n        inp", "grads = {}\n    for layer in reversed(range(model.LAYERS)):\n        inp"),
      (SUM, "model.grad_weights[layer] = grad\n    for layer in range(model.LAYERS) if model.rank else reversed(range(model.LAYERS)):\n"
       "        grad = await model.allreduce(model.grad_weights.pop(layer), layer)")],
     "where rank 1 calls allreduce(layer 0)", "the same order", SUM.split("grad = ")[1][:20]),
    ("everybody receives first", "pipeline",
     [("        await model.pass_to(model.rank + 1, model.activations.pop(end))\n        model.grad_activations[end] = await model.receive(src=model.rank + 1)\n",
       "        model.grad_activations[end] = await model.receive(src=model.rank + 1)\n        await model.pass_to(model.rank + 1, model.activations.pop(end))\n")],
     "deadlock: no rank can ever go on", "some rank has to send before it receives", "model.receive(src=model.rank + 1)"),
    ("a dictionary replaced", "grad_accum", [(FIRST_INPUT, "        model.grad_weights = {}\n" + FIRST_INPUT)],
     "model.grad_weights cannot be replaced", "model.grad_weights.clear() empties it", "model.grad_weights = {}"),
    ("sizes written as numbers", "basic", [("range(model.LAYERS)", "range(2)"), ("model.LAYERS", "2")],
     "layer is out of range", "for layer in range(model.LAYERS), whatever their number is at this size", "model.load_weights(layer)"),
    ("an argument forgotten", "basic", [("            layer, model.activations[layer], model.weights[layer]\n", "            model.activations[layer], model.weights[layer]\n")],
     "model.forward() missing 1 required positional argument: 'weight'", "model.forward(layer, inp, weight)", "model.forward("),
    ("the wrong activation", "basic", [("model.activations.pop(layer), model.grad", "model.activations[min(layer + 1, model.LAYERS - 1)], model.grad")],
     "the input is that of layer 1", "keep what forward(0, ...) reads until then, stored under its layer: model.activations[0]", BACKWARD),
    ("no loss", "basic", [("model.loss(model.activations.pop(model.LAYERS))", "model.activations.pop(model.LAYERS)")],
     "grad must be an ActivationGrad", "model.loss makes the first gradient of the last activation", BACKWARD),
    ("two results in one place", "basic", [(BACKWARD, "model.grad_weights[layer] = model.backward(")],
     "only tensors can be stored in grad_weights",
     "each in a place of its own: model.grad_weights[1], model.grad_activations[1] = ...", "model.grad_weights[layer] = model.backward("),
    ("the weight of another layer", "ddp", [("model.activations[layer], model.weights[layer]", "model.activations[layer], model.weights[0]")],
     "the weight is that of layer 0", "what load_weights(1, ...) gives: model.weights[1]", "model.forward("),
    ("a gradient for another layer", "ddp", [("model.allreduce(grad, layer)", "model.allreduce(grad, 0)")],
     "the WeightGrad is of layer 1", "name the layer of the tensor, 1, or take the tensor of layer 0", SUM.replace("layer)", "0)")),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_a_natural_mistake_leads_to_its_cure(row: tuple[str, str, list[tuple[str, str]], str, str, str]) -> None:
    name, puzzle, edits, problem, fix, line = row
    program = changed(puzzle, name, *edits)
    names, *_ = load("mine.py", program.source)
    verdict = grade(names[puzzle], puzzle).verdict
    assert verdict.status == "FAIL" and verdict.error is not None, verdict.message
    assert any(words in verdict.message for words in problem.split("|")), verdict.message
    assert fix in verdict.error.fix and line.strip() in verdict.message, verdict.message
