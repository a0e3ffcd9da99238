"""What mistakes are told whose fix is a key, a summand or a stage that is not where a learner looks: rows as in
``test_fixes``."""

from __future__ import annotations

import pytest

from lib import Model, run
from lib.basics.errors import PuzzleError
from tests.corpus import changed
from tests.slow import some
from tests.test_fixes import Row
from tests.test_fixes_later import check_at_a_shell, check_words

SUM = "            so_far = model.grad_weights.get(layer)\n            model.grad_weights[layer] = so_far + grad if so_far else grad\n"
ADDED = "model.grad_weights.pop(layer) + model.grad_weights.pop(({0}))"
STORED = "            model.grad_weights[{0}] = grad\n            {1}\n"
NOT_FIRST = "if mb != mine[0]: model.grad_weights[layer] = model.grad_weights.pop({0})\n            else: model.grad_weights[layer] = "
UNDER_MB = 'if mb == mine[0]: model.grad_weights["of", mb] = model.grad_weights.pop("new")\n            else: model.grad_weights[layer] = '
BACK = "        weight = await model.allgather(model.weights[layer], layer)\n        grad = model.fake"
READ = "            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)\n"
STAGE = "stage, mb = model.rank % stages, model.rank // stages"
INPUT = "        if layer == first and is_first:\n            model.activations[first] = model.get"
COMES = "        weight = await model.allgather(model.weights[layer], layer)\n        if first <= layer <= last:\n            model.act"
IN_TURN = COMES.replace("        weight = await model.allgather(model.weights[layer], layer)\n", "")
FIRST = "        weight = await model.allgather(model.weights[layer], layer)\n" + INPUT
GATHER = "        weight = await model.allgather(model.weights[layer], layer)\n        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)\n"
ON_SOME = "        if {0}:\n            model.weights[{1}] = await model.allgather(model.weights[layer], layer)\n        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[{1}])\n"


def summand(name: str, shown: str, stores: str) -> Row:
    """Return the row of a program that looks for a sum before its first summand is there."""
    pops = f"({shown})" if "," in shown else shown
    return Row(
        changed("zero2", f"a sum of {name} before its first", (SUM, STORED.format(name, stores + ADDED.format(name)))),
        (
            f"model.grad_weights[{shown}] has micro-batches 0-3 of layer 5",
            f"the first one is stored as it is, model.grad_weights[5] = model.grad_weights.pop({pops})",
        ),
        ("is there under another key", "did you mean"),
    )


ROWS = [
    summand('"new"', "'new'", NOT_FIRST.format('"new"')),
    summand('"part"', "'part'", "model.grad_weights[layer] = "),
    summand('"part", layer', "'part', 5", "model.grad_weights[layer] = "),
    summand("layer, mb", "5, 0", "model.grad_weights[layer] = "),
    Row(
        changed("zero2", "the first sums under one key", (SUM, STORED.format('"new"', UNDER_MB + ADDED.format('"new"')))),
        ("and the sum so far, with micro-batch 0, is not here: is it under another key, or was another stored over it?",),
        ("is there under another key",),
    ),
    Row(
        changed("zero2", "the weight is cut by the layers", ("model.weights[layer].shard(model.rank, model.RANKS)", "model.weights[layer].shard(model.rank, model.LAYERS)")),
        ("the weight is piece 0 of 6, and the state is cut by (model.rank, model.RANKS): cut both alike, the weight by (model.rank, model.RANKS)",),
        ("(0, 6)",),
    ),
    Row(
        changed("zero1", "the state is cut by the layers", ("state.shard(model.rank, model.RANKS)", "state.shard(model.rank, model.LAYERS)")),
        ("cut both alike, the state by (model.rank, model.RANKS)",),
    ),
    Row(
        changed("zero2", "the weight is cut after the first micro-batch", ("        del model.grad_activations[0]\n", "        del model.grad_activations[0]\n        for layer in range(model.LAYERS):\n            model.weights[layer] = model.weights[layer].shard(model.rank, model.RANKS)\n")),
        ("this rank has loaded all of the weight of layer 0, and cut it since", "those of the rank's last micro-batch"),
        ("load all of it",),
    ),
    Row(
        changed("zero2", "what was summed is not stored", ("            grad = await model.scatterreduce(grad, layer)\n" + SUM, '            model.grad_weights["new"] = grad\n            await model.scatterreduce(model.grad_weights.pop("new"), layer)\n            grad = model.grad_weights.pop("new")\n' + SUM)),
        ("what that gives goes on from there",),
        ("without pop",),
    ),
    Row(
        changed("pipeline_fsdp", "ranks of a stage follow one another", (STAGE, "stage, mb = model.rank // stages, model.rank % stages"), (COMES, "        weight = await call\n" + IN_TURN), (INPUT, FIRST.replace("weight = await", "call ="))),
        ("has run layer 1 on micro-batch 3 itself", "model.rank % stages is the stage, model.rank // stages the pipeline"),
        ("src=3",),
    ),
    Row(
        changed("pipeline_fsdp", "only rank 0 takes an input", (COMES, IN_TURN), (INPUT, FIRST.replace("is_first", "model.rank == 0"))),
        ("No rank has run layer 0 on micro-batches 1-3. Is layer 0 the first of rank 4?", "its input is model.get_activation(...)"),
    ),
    Row(
        changed("pipeline_fsdp", "a weight goes along", ("            await model.pass_to(model.rank + 1, model.activations.pop(last + 1))\n", "            await model.pass_to(model.rank + 1, model.activations.pop(last + 1))\n            await model.pass_to(model.rank + 1, model.weights[layer])\n")),
        ("leave out this pass_to",),
        ("must await model.receive() once for every pass_to",),
    ),
    Row(
        changed("pipeline_fsdp", "stages counted from the last rank on", ("model.rank % stages, model", "stages - 1 - model.rank % stages, model")),
        ("are the stages counted from the last rank on? Then the next stage is on model.rank - 1",),
        ("on a ring",),
    ),
    Row(
        changed("pipeline_fsdp", "the second gather of own layers only", (BACK, "        grad = model.fake"), (READ, "            weight = await model.allgather(model.weights[layer], layer)\n" + READ)),
        ("rank 3 calls allgather(layer 3) before that sum, and rank 0 does not", "Every rank brings its piece to it"),
        ("fake_grad",),
    ),
    Row(
        changed("pipeline_fsdp", "layers by four and messages after each", ("        if layer == last and not is_last:\n            await model.pass_to(model.rank + 1, model.activations.pop(last + 1))", "        if first <= layer <= last and layer < model.LAYERS - 1:\n            await model.pass_to(model.rank + 1, model.activations.pop(layer + 1))"), ("share = model.LAYERS // stages", "share = 4"), (COMES, IN_TURN), ("        if layer == first and is_first:\n            model.act", "        weight = await model.allgather(model.weights[layer], layer)\n        if layer == 0 and is_first:\n            model.act"), ("        elif layer == first:\n            model.activations[first] = await model.receive(src=model.rank - 1)", "        elif first <= layer <= last:\n            model.activations[layer] = await model.receive(src=model.rank - stage + (stage - 1) % stages)")),
        ("Rank 0 has sent the input of layer 1 to rank 1, and waits for a message before it goes on to layer 2", "is the stage of layer l"),
        ("ever true",),
    ),
    Row(
        changed("pipeline_fsdp", "gathered weights are kept for the backward", ("            model.activations[layer + 1] = model.forward(\n                layer, model.activations[layer], weight\n            )\n", '            model.weights["kept", layer] = weight\n            model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)\n'), (BACK, '        model.weights["now"] = await model.allgather(model.weights[layer], layer)\n        grad = model.fake'), ("grad_out, weight)\n        model.grad_weights", 'grad_out, model.weights.pop(("kept", layer)))\n        model.weights.pop("now")\n        model.grad_weights')),
        ("not with 16 ranks, 12 layers", "2 gathered weights are kept from a forward to the backward: gather each anew for its backward"),
    ),
    *[
        Row(
            changed("wsdp", f"a gather on some ranks, by {word}", (GATHER, ON_SOME.format(condition, word))),
            ("rank 0 calls model.allgather(..., 0), and rank 1 does not", "below no `if` of a rank"),
            ("under another key",),
        )
        for condition, word in (("layer % model.RANKS == model.rank", '"full"'), ("model.rank == 0", '"whole", layer'))
    ],
    *[
        Row(
            changed(puzzle, "the key of the layer above, of two parts", *[(old, old.replace("activations[layer", "activations['in', layer").replace("activations[0]", "activations['in', 0]").replace("activations.pop(layer)", "activations.pop(('in', layer + 1))").replace("activations.pop(model.LAYERS)", "activations.pop(('in', model.LAYERS))")) for old in edits]),
            ("it is the output of the last layer, which nothing else reads", "is the layer in this key one too high?"),
            ("without pop keeps it",),
        )
        for puzzle, edits in (
            ("fsdp", ("    model.activations[0] = model", "        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)\n", "model.loss(model.activations.pop(model.LAYERS))", "model.activations.pop(layer), model.grad")),
            ("wsdp", ("    model.activations[0] = model", "        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)\n", "model.loss(model.activations.pop(model.LAYERS))", "model.activations.pop(layer), model.grad")),
        )
    ],
    Row(
        changed("pipeline_fsdp", "one's own gradient is reduced, and then a zero one on every rank", ("grad_out, weight)\n        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n", "grad_out, weight)\n            model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n        model.grad_weights['none'] = await model.scatterreduce(model.fake_grad(layer, []), layer)\n")),
        ("call scatterreduce(layer 3) a second time, and every rank has called it once",),
        ("go past it",),
    ),
]  # fmt: skip
AT_A_SHELL = some(ROWS, 4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_words_lead_to_the_fix(row: Row) -> None:
    here = check_words(row)
    if row in AT_A_SHELL:
        check_at_a_shell(row, here)


def test_a_name_that_was_cleared_away_stands_for_no_other_key() -> None:
    async def clears(model: Model) -> Model:
        model.activations["x"] = model.get_activation([0])
        model.activations.clear()
        model.loss(model.activations["x"])
        return model

    with pytest.raises(PuzzleError) as caught:
        run(clears, 1, 1, 1)
    assert caught.value.fix.endswith("by model.activations.clear(): take out what is used last, and nothing else")
