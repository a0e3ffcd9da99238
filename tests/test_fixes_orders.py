"""What mistakes are told in the order of work, in rings, in cuts and in a learner's own dictionaries: rows as in
``test_fixes``."""

from __future__ import annotations

import pytest

from lib import Model, grade, run
from lib.basics.errors import OutOfTime
from lib.course.outlines import solution_order
from lib.course.specs import puzzles
from lib.grading.advice.ordering import Ordering, order_of
from lib.grading.verdict import FAIL
from lib.machine.log import awaited_by
from tests.corpus import changed
from tests.programs import solved
from tests.slow import some
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_at_a_shell, check_words

HOP = '            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None\n            acts["att", layer]'
EVEN = HOP.replace("if step < n - 1", "if step < n - 1 and r % 2 == 0")
COMES = '            if send:\n                acts["kv"] = await model.receive(before)\n                await send\n'
ALWAYS = '            if step < n - 1:\n                acts["kv"] = await model.receive(before)\n            if send:\n                await send\n'
MET = '            acts["att", layer] = model.attend(layer, acts["att", layer], acts.pop("kv"))\n'
ATTENDED = '        acts["att", layer] = model.attend(layer, acts["att", layer], kv)\n'
OWN = ATTENDED.replace(", kv)", ', acts["kv", layer])')

ROWS = [
    Row(
        changed("ring_attention", "a send left out on odd ranks", (HOP, EVEN), (COMES + "        acts", ALWAYS + "        acts")),
        ("Ranks 1, 3 have sent fewer messages to the next rank than ranks 0, 2 (0 and 1)", "below no `if` of a rank"),
        ("rank 2 has sent to rank 3 once",),
    ),
    Row(
        changed("ring_attention", "a hop left out on odd ranks", (HOP, EVEN)),
        ("rank 0 has sent this rank KeysValues of layer 0: await model.receive(src=0)",),
        ("without pop",),
    ),
    Row(
        changed(
            "ring_attention",
            "the next keys come before the own ones are used",
            (MET + COMES, COMES + MET.replace('acts.pop("kv")', 'acts["kv"]')),
        ),
        ("this rank has attended to these in the step before", "its own keys first, then receive the next ones"),
        ("has sent these keys and values twice",),
    ),
    Row(
        changed("ring_attention", "a hop more than there are ranks", (HOP, HOP.replace(" if step < n - 1 else None", ""))),
        ("with one rank there is nobody to send to: n ranks have n - 1 hops, range(model.RANKS - 1)",),
    ),
    Row(
        changed(
            "two_batch_overlap",
            "a key of a dictionary of its own",
            ("            grad = await on_their_way.pop(turn)", "            grad = await on_their_way.pop((turn, layer))"),
        ),
        ("on_their_way has keys [0, 1] here, and nothing under this key",),
    ),
    Row(
        changed("repair_zigzag", "attended to its own keys and then to all", (ATTENDED, OWN + ATTENDED)),
        ("one attend with all of them is enough",),
        ("store it",),
    ),
    Row(
        changed("replica_fsdp", "the state cut by the shard's place", ("state.shard(replica, replicas)", "state.shard(shard, shards)")),
        ('weight.shard(model.axis_index("replica"), model.axis_size("replica")) and opt_state.shard(model.axis_index("replica")',),
        ("(0, 16)",),
    ),
    Row(
        changed(
            "pipeline_fsdp",
            "only the ranks of the stage sum",
            (
                "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n",
                "        if first <= layer <= last:\n            model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n",
            ),
            ("        grad = model.fake_grad(layer, [])\n", ""),
        ),
        ("only ranks 3, 7, 11, 15 call scatterreduce(layer 3)", "brings model.fake_grad(layer, [])"),
        ("go past it: a condition above it is true on ranks 0",),
    ),
    Row(
        changed(
            "pipeline",
            "the stages from the last rank on",
            ("model.rank * share, (model.rank + 1) * share", "(model.RANKS - 1 - model.rank) * share, (model.RANKS - model.rank) * share"),
        ),
        ("the input is for layer 0, which is on rank 3; layer 5 is on rank 1: await model.receive(src=1)",),
    ),
    Row(
        changed("dualpipe", "both halves the same micro-batches", ("first = {lower: half * share, upper: (1 - half) * share}", "first = {lower: 0, upper: 0}")),
        ('the lower stage of a rank has the micro-batches of its half, from model.axis_index("half") * share on', "the upper stage those that begin in the other half"),
        ("replica",),
    ),
    Row(
        changed(
            "repair_skip",
            "ranks without a micro-batch return early",
            ("    for layer in reversed(range(model.LAYERS)):\n        ### BEGIN", "    if not busy:\n        return model\n    for layer in reversed(range(model.LAYERS)):\n        ### BEGIN"),
        ),
        ("also one that has nothing to add, which brings model.fake_grad(1, [])",),
    ),
    Row(
        changed("one_f_one_b", "the forwards ahead from the batch", ("min(model.RANKS - model.rank, model.BATCHES)", "max(1, model.BATCHES // 2 - model.rank)")),
        ("the ranks do 1, 1 forwards here, with 2 stages, and 8, 6, 4, 2 at its own size, with 4", "neither from model.BATCHES"),
    ),
    Row(
        changed("zbv", "the forwards ahead from the batch", ("ahead, in_turn = ranks - rank,", "ahead, in_turn = max(model.BATCHES // 2 - rank, ranks - rank),")),
        ("let that number follow from the number of stages",),
    ),
    Row(
        changed("checkpointing", "six layers are kept at every size", ("if layer < model.LAYERS // 2:", "if layer < 6:")),
        ("is there a number, such as 6, where model.RANKS, model.LAYERS or model.BATCHES is meant?",),
    ),
    Row(
        changed("grad_accum", "micro-batches from 1 on", ("for mb in range(model.BATCHES):", "for mb in range(1, model.BATCHES + 1):")),
        ("here micro-batch 1 comes first, and not micro-batch 0", "model.grad_weights.get(1)"),
    ),
    Row(
        changed("ddp", "only rank 0 updates", ("        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, grad, model.weights[layer], model.opt_states[layer]\n        )\n", "        if model.rank == 0:\n            model.weights[layer], model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])\n")),
        ("rank 0 has updated it, and rank 1 has not: each rank updates what it has, below no `if` of a rank",),
        ("hand in",),
    ),
    Row(
        changed("pipeline_fsdp", "on to the same stage", ("model.pass_to(model.rank + 1, model.activations", "model.pass_to(model.rank + stages, model.activations")),
        ("model.rank + 4 is the same stage of another pipeline", "await model.pass_to(model.rank + 1, ...)"),
        ("on a ring",),
    ),
    Row(
        changed("replica_fsdp", "both nodes the same micro-batches", ("range(model.rank * share, (model.rank + 1) * share)", "range(shard * share, (shard + 1) * share)")),
        ("ranks 0, 4 have run layer 0 on micro-batch 0, and only one of them should",),
        ("has cut the gradient",),
    ),
    Row(
        changed("zero1", "the state is not cut", ("state.shard(model.rank, model.RANKS)", "state")),
        ("cut the state as the weight is cut: opt_state.shard(model.rank, model.RANKS)",),
        ("load_weights",),
    ),
    Row(
        changed("interleaved", "the loss by the rank, not by the layer", ("        if layer == top:\n            grad_out", "        if model.rank == ranks - 1:\n            grad_out")),
        ("For layer 3 no loss is needed: layer 4 is on rank 0, and gradients come from there: await model.receive(src=0)",),
    ),
    Row(
        changed("ring_attention", "a hop too few", (HOP, HOP.replace("n - 1", "n - 2"))),
        ("each rank attends to the keys of every rank, its own and those of n - 1 receives",),
        ("without pop",),
    ),
    Row(
        changed(
            "prefetch",
            "all weights gathered at once",
            (
                "    ahead = model.allgather(model.weights[0], 0)\n    for layer in range(model.LAYERS):\n        model.weights[\"whole\"] = await ahead\n        if layer + 1 < model.LAYERS:\n            ahead = model.allgather(model.weights[layer + 1], layer + 1)\n",
                "    aheads = [model.allgather(model.weights[layer], layer) for layer in range(model.LAYERS)]\n    for layer in range(model.LAYERS):\n        model.weights[\"whole\"] = await aheads[layer]\n",
            ),
        ),
        ("it holds more than at its own size, in proportion: 11 weights. 11 calls are on their way", "Call each gather one layer ahead, in the loop over the layers"),
    ),
]  # fmt: skip
COSTS = [
    Row(
        changed(
            "zbv",
            "forwards of the two stages exchanged",
            ("        await forward(upper)\n        await forward(lower)\n", "        await forward(lower)\n        await forward(upper)\n"),
        ),
        ("he order differs first on rank 3: after 1 computation it does forward(layer 3), the target's program forward(layer 4) there",),
    ),
    Row(
        changed("checkpointing", "what was kept is not used", (", saved=saved", "")),
        ("make all inner activations again: hand in what forward has kept, model.backward(..., saved=saved)",),
    ),
    Row(
        changed("dualpipe", "no backward beside a forward", ("overlapped=True", "overlapped=False")),
        ("no backward runs beside a forward: right after a forward of another micro-batch, model.backward(..., overlapped=True)",),
    ),
]  # fmt: skip
# -- what readers of the notebooks were told ---------------------------------------------------------------------------

LOADS = "    for layer in [*lower, *upper]:\n        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)"
NO_TURN = ("turn = lower.stop == upper.start", "turn = False and lower.stop == upper.start")
FROM_ITSELF = ("upper: rank + 1}  #", "upper: min(rank + 1, ranks - 1)}  #")
STEADY = "        await forward(lower)\n        await backward(lower)\n        await forward(upper)\n        await backward(upper)\n"
UPPER_FIRST = "        await forward(upper)\n        await backward(upper)\n        await forward(lower)\n        await backward(lower)\n"
SCATTERED = 'grad = await model.scatterreduce(grad, layer, axis="shard")\n'
MINE = "range(model.RANKS - 1 - model.rank, model.BATCHES, model.RANKS)"
ROWS += [
    Row(
        changed(
            "sequence_parallel",
            "the slice in a variable alone",
            (
                "        inp = await model.allgather(model.activations[layer], layer)\n        out",
                "        inp = await model.allgather(part, layer)\n        out",
            ),
            (
                "        model.activations[layer + 1] = await model.scatterreduce(out, layer + 1)\n",
                "        part = await model.scatterreduce(out, layer + 1)\n",
            ),
            ("    model.activations[0] = model.get", "    part = model.get"),
            ("model.activations.pop(model.LAYERS), model.LAYERS", "part, model.LAYERS"),
        ),
        ("forward(6, ...) gave it, and no line has stored it under this key: model.activations[7] = ...",),
        ("with pop",),
    ),
    Row(
        changed(
            "hierarchical",
            "lists in a puzzle without them",
            (SCATTERED, '[grad] = await model.scatterreduce([grad], [layer], axis="shard")\n'),
            (
                "        model.weights[layer], model.opt_states[layer] = model.update(",
                "        model.loss(grad)\n        model.weights[layer], model.opt_states[layer] = model.update(",
            ),
        ),
        (
            "puzzle 20 is solved without lists of tensors in one call",
            'one call for each layer: await model.scatterreduce(grad, layer, axis="shard")',
        ),
    ),
    Row(
        changed(
            "one_f_one_b",
            "two micro-batches at once",
            ("get_activation([mb])", "get_activation([mb, (mb + 1) % model.BATCHES])"),
        ),
        ("it works on micro-batches {0, 1} at once", "model.get_activation([micro_batch]) in a loop"),
    ),
    Row(
        changed(
            "zbv",
            "the last rank sends its first stage's output away",
            ("after = {lower: rank + 1,", "after = {lower: (rank + 1) % ranks,"),
            FROM_ITSELF,
            NO_TURN,
        ),
        (
            "rank 3 looks for model.activations[4, 0], which forward(layer 3) of micro-batch 0 gave on this rank itself, and it was sent to rank 0: keep it stored",
        ),
    ),
    Row(
        changed(
            "zbv",
            "the upper stage goes back first",
            (STEADY, UPPER_FIRST),
            ("after = {lower: rank + 1,", "after = {lower: min(rank + 1, ranks - 1),"),
        ),
        ("which no message brings: forward(layer 3) of micro-batch 4 gives it on this rank itself, and comes first",),
        ("src=model.rank - 1",),
    ),
    Row(
        changed(
            "zbv",
            "the upper stage before the lower one",
            ("for _ in range(2 * ahead - 1):", "for _ in range(2 * ahead - 2):"),
            FROM_ITSELF,
        ),
        ("which no message brings: forward(layer 3) of micro-batch 0 gives it on this rank itself, and comes first",),
    ),
    Row(
        changed("zbv", "all layers are loaded", (LOADS, LOADS.replace("[*lower, *upper]", "range(end)"))),
        ("here stages are in a V: stage r goes down on rank r",),
        ("dealt out",),
    ),
    Row(
        changed(
            "zbv",
            "gradients under a key that nobody looks for",
            ("            own[got.layer, min", "            own[got.layer - (own is model.grad_activations), min"),
        ),
        (
            "ActivationGrad of layer 6, micro-batch 0, is in model.grad_activations[5, 0]: store it where it is looked for",
        ),
        ("The order of the work is the mistake",),
    ),
    Row(
        changed(
            "one_f_one_b",
            "forwards ahead as a list",
            ("ahead = min(model.RANKS - model.rank, model.BATCHES)", "ahead = [4, 3, 2, 1][model.rank]"),
        ),
        ("are there numbers for these ranks, such as [4, 3, 2, 1], where model.rank and model.RANKS give them?",),
    ),
    Row(
        changed(
            "ring_attention",
            "one key for the keys of all layers",
            (
                'acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)\n        acts["kv"] = acts["kv", layer]\n',
                'acts["att", layer], acts["kv"] = model.project(layer, inp, weight)\n',
            ),
            ('        acts["kv"] = acts.pop(("kv", layer))\n', ""),
        ),
        ("the backward of a layer begins with this rank's own again, so keep them, model.activations['kv', layer]",),
    ),
    Row(
        changed(
            "ring_attention",
            "the last slice from 2 * n",
            ("inp.shard(2 * n - 1 - r, 2 * n)", "inp.shard(2 * n - r, 2 * n)"),
        ),
        ("pieces count from 0, so the last of 8 is number 7",),
    ),
    Row(
        changed(
            "ring_attention",
            "a list is combined",
            (
                "inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))",
                "inp.combine([inp.shard(r, 2 * n), inp.shard(2 * n - 1 - r, 2 * n)])",
            ),
        ),
        ("one after the other: first.combine(second)",),
    ),
    Row(
        changed(
            "repair_straggler",
            "no micro-batch for the slow rank",
            (MINE, "range(model.rank - 1, model.BATCHES, model.RANKS - 1) if model.rank else range(0)"),
        ),
        (
            "this rank has run no micro-batch: is its share empty? There are 43 for 4 ranks, so give each rank some: 10 for rank 0",
        ),
        ("own layers", "fake_grad"),
    ),
    Row(
        changed(
            "repair_straggler",
            "a micro-batch is dropped",
            (MINE, "range(model.rank, model.BATCHES, model.RANKS)[: 10 if model.rank == 0 else None]"),
        ),
        ("rank 0 has 10, rank 1 has 11, rank 2 has 11, rank 3 has 10: give it to rank 3",),
        ("deal them out",),
    ),
]
ROWS += [
    Row(
        changed(
            "replica_fsdp",
            "a sum across nodes for each micro-batch",
            (
                '            grad = await model.scatterreduce(grad, layer, axis="shard")\n',
                '            grad = await model.scatterreduce(grad, layer, axis="shard")\n            grad = await model.scatterreduce(grad, layer, axis="replica")\n',
            ),
            (
                'await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="replica")',
                "model.grad_weights.pop(layer)",
            ),
        ),
        ("it sums the gradient of micro-batches 0, 2, 4, 6 across the nodes", "go across after the last one"),
    ),
    Row(
        changed(
            "interleaved",
            "too many forwards ahead",
            ("2 * (ranks - 1 - model.rank) +", "3 * (ranks - 1 - model.rank) +"),
        ),
        ("rank 0 has done 13 forwards and no backward, and 11 come before its first one",),
    ),
    Row(
        changed(
            "interleaved",
            "inputs from the rank after",
            (
                "model.activations[layer, mb] = await model.receive(src=before)",
                "model.activations[layer, mb] = await model.receive(src=after)",
            ),
        ),
        ("rank 0 has sent to rank 1, and rank 2 has not: await model.receive(src=0) on rank 1",),
        ("More forwards",),
    ),
    Row(
        changed(
            "offload",
            "new weights are not sent",
            ("                sends.append(model.pass_to(model.devices[0], model.weights[layer]))\n", ""),
        ),
        (
            "the host, rank 1, has finished, and has sent it no weight",
            "model.pass_to(model.devices[0], model.weights[layer])",
        ),
        ("compare who sends",),
    ),
    Row(
        changed(
            "context_parallel",
            "keys of the forward in the backward",
            (
                '        whole = await model.allgather(acts.pop(("kv", layer)), layer)\n        grads["att"], kv',
                '        grads["att"], kv',
            ),
        ),
        ("gather them again right before backward_attend, kv = await model.allgather(kv, 7)",),
    ),
]
COSTS += [
    Row(
        changed(
            "sequence_parallel",
            "the gradient of the first input is summed",
            (
                "        if layer > 0:\n            grad = await model.scatterreduce(grad, layer - 1)\n            model.grad_activations[layer] = await model.allgather(grad, layer - 1)\n",
                "        model.grad_activations[layer] = await model.allreduce(grad, layer - 1)\n",
            ),
        ),
        (
            "8 all-reduces, the target has none: one of these is of activation gradients of the first input, which nobody needs",
        ),
    ),
    Row(
        changed(
            "ring_attention",
            "keys are sent after they are used",
            (
                '            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None\n            acts["att", layer] = model.attend(layer, acts["att", layer], acts.pop("kv"))\n',
                '            acts["att", layer] = model.attend(layer, acts["att", layer], acts["kv"])\n            send = model.pass_to(after, acts.pop("kv")) if step < n - 1 else acts.pop("kv") and None\n',
            ),
            (
                '            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None\n            grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts.pop("kv"))\n',
                '            grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts["kv"])\n            grads["mine"] = kv_grad\n            send = model.pass_to(after, acts.pop("kv")) if step < n - 1 else acts.pop("kv") and None\n            kv_grad = grads.pop("mine")\n',
            ),
        ),
        (
            "sends the keys and values (line",
            "after attend(layer",
            "which does not change them: make that pass_to before it",
        ),
    ),
    Row(
        changed("repair_straggler", "as given", (MINE, "range(model.rank, model.BATCHES, model.RANKS)")),
        ("rank 0 is the slow one", "let the slow rank be the one that has 10"),
        ("the same work",),
    ),
]
AT_A_SHELL = some(ROWS, 4)
TWO_A_TURN = changed(
    "interleaved",
    "two forwards a turn",
    (
        "        if turn < len(forwards):\n            await forward(*forwards[turn])",
        "        for work in forwards[2 * turn - ahead : 2 * turn - ahead + 2]:\n            await forward(*work)",
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    here = check_words(row)
    if row in AT_A_SHELL:
        check_at_a_shell(row, here)


@pytest.mark.parametrize("row", COSTS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_what_costs_time_leads_to_the_fix(row: Row) -> None:
    here = grade(function(row.program), row.program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL and here.right, here.message
    assert all(words in here.costs_time for words in row.says), here.costs_time


def test_the_order_stands_beside_what_costs_memory() -> None:
    here = grade(function(TWO_A_TURN), "interleaved", timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL and here.right and not here.costs_time, here.message
    assert "After the first backward 2 forwards follow each other" in here.costs_memory, here.costs_memory


@pytest.mark.parametrize("name", ["pipeline", "one_f_one_b", "interleaved", "zero_bubble", "zbv", "dualpipe"])
def test_the_targets_own_program_has_the_targets_order(name: str) -> None:
    puzzle = puzzles()[name]
    done = solved(name)
    own, kept = order_of(done.events, done.ranks), solution_order(puzzle)
    assert [*own.ahead] == [*kept.ahead] and [*own.turns] == [*kept.turns] and own[1:3] == kept[1:3]
    assert own.turns
    assert Ordering(done, puzzle, "target").in_words() == ""


def test_a_log_that_was_cut_off_in_the_middle_of_a_pair_is_read() -> None:
    assert awaited_by([1, 0, 3, 2, 5]) == {1: (0,), 3: (2,)}  # where the time for a run was up


def test_a_run_out_of_time_is_told_although_its_log_ends_in_the_middle_of_a_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half_written(*_: object) -> None:
        raise AttributeError("'Message' object has no attribute 'end'")

    async def program(model: Model) -> None:
        raise OutOfTime("the run did not end within 1 second")

    monkeypatch.setattr("lib.running.trained.explain", half_written)
    with pytest.raises(OutOfTime, match="did not end") as caught:
        run(program)
    assert caught.value.run is None
