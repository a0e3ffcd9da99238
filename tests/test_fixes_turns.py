"""What mistakes in turns of a loop are told: one that ends too soon, a call that a later one replaces, a gradient that
is cut and not summed; and what programs are told that only miss the star."""

from __future__ import annotations

import pytest

from lib import Model, PuzzleError, grade, run
from lib.course.specs import puzzles
from lib.grading.advice.sources import written_out
from tests.corpus import Program, changed, whole
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words
from tests.test_fixes_sums import COUNTED, THICK, edited

THREE_LOOPS = (
    "    for i in range(model.BATCHES):\n        await back(i)\n        if n + i < model.BATCHES:\n            await go(n + i)\n",
    "    for i in range(n, END):\n        await go(i)\n        await back(i - n)\n    for i in range(model.BATCHES - n, model.BATCHES):\n        await back(i)\n",
)  # fmt: skip
WITHOUT_ONE = (
    "n = min(model.BATCHES, model.RANKS - model.rank)",
    "n = min(model.BATCHES, model.RANKS - model.rank - 1)",
)
FIRST_ONES = "    for work in forwards[:ahead]:\n        await forward(*work)\n    for turn, work in enumerate(backwards, ahead):\n        await backward(*work)\n        if turn < len(forwards):\n            await forward(*forwards[turn])\n"  # fmt: skip
PAIRED = """    ahead -= 1
    for work in forwards[:ahead]:
        await forward(*work)
    for one, other in list(zip(forwards[ahead:], backwards))[:-1]:
        await forward(*one)
        await backward(*other)
    for work in backwards[len(forwards) - ahead:]:
        await backward(*work)
"""
BY_TURN = PAIRED.replace("backwards))[:-1]", "backwards[ahead:]))").replace("[len(forwards) - ahead:]", "[ahead:]")
ENDS_TOO_SOON = "does the loop with a forward and a backward in each turn end too soon, by 1 turn?"
ENTRY_0 = "It is the first backward of rank 3: of a list of backwards, entry 0 comes then"
OVER_THE_INPUT = "gives: was it stored in the place of the input? Then give it a key of its own"
CUT_AT_LAST = "if mb == mine[-1]:\n                own[layer] = grad.shard(model.rank, model.RANKS)\n            else:\n                sums[layer] = model.scatterreduce(grad, layer)"
ADDED = "        if layer in own:\n            model.grad_weights[layer] = model.grad_weights[layer] + own.pop(layer)\n        if layer in sums:"
FETCHES = "            await fetch(layer)\n        model.grad_activations[model.LAYERS] = model.loss("
NEVER_AWAITED = "was started on this rank, and never awaited"
NOT_SUMMED = "this piece was cut from the gradient of micro-batch 4, which this rank has brought to no sum over the ranks, as it has another one of layer 5: in place of the cut, grad = await model.scatterreduce(grad, 5)"
ROWS = [
    Row(edited("one_f_one_b", "the loop of turns ends one too soon", THICK, THREE_LOOPS, ("END", "model.BATCHES - 1"), WITHOUT_ONE), (ENDS_TOO_SOON,), ("right after the backward of its first layer",)),
    Row(changed("interleaved", "the last pair is left out", (FIRST_ONES, PAIRED)), (ENDS_TOO_SOON,), ("right after the backward of its first layer",)),
    Row(changed("interleaved", "backwards are counted with the forwards", (FIRST_ONES, BY_TURN)), (ENTRY_0,)),
    Row(edited("interleaved", "backwards are counted from the second round on", COUNTED, ("place(k, True)", "place(k + p, True)")), (ENTRY_0,)),
    Row(edited("interleaved", "the output is stored over the input", COUNTED, ("y = model.forward(", "y = model.activations[layer, mb] = model.forward(")), (OVER_THE_INPUT,)),
    Row(changed("interleaved", "the output is stored over the input", ("        out = model.forward(", "        out = model.activations[layer, mb] = model.forward(")), (OVER_THE_INPUT,)),
    Row(changed("zero2", "the sum of layer 0 is replaced", (FETCHES, FETCHES.replace("fetch(layer)", "fetch(layer or -1)")), base="zero2_overlap"), (NEVER_AWAITED, "await it before the next call of the layer takes its place"), ("this rank has had the sum",)),
    Row(changed("zero2", "no sum of the first round is awaited", (FETCHES, FETCHES.partition("\n")[2]), ("            await fetch(layer + 1)\n", ""), base="zero2_overlap"), (NEVER_AWAITED, "await it before the next call of the layer takes its place"), ("this rank has had the sum",)),
    Row(changed("zero2", "the second gradient is cut", ("sums[layer] = model.scatterreduce(grad, layer)", CUT_AT_LAST), ("        if layer in sums:", ADDED), ("sums, gathers = {}, {}", "sums, gathers, own = {}, {}, {}"), base="zero2_overlap"), (NOT_SUMMED,), ("as soon as it is made",)),
    Row(changed("zero2", "the last gradients wait as pieces", ("sums[layer] = model.scatterreduce(grad, layer)", CUT_AT_LAST.replace("own", "pieces")), ("sums, gathers = {}, {}", "sums, gathers, pieces = {}, {}, {}"), ("        await fetch(layer)\n        grad, piece = model.grad_weights.pop(layer),", "        await fetch(layer)\n        grad, piece = model.grad_weights.pop(layer) + pieces.pop(layer),"), base="zero2_overlap"), (NOT_SUMMED,), ("as soon as it is made",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_on_turns_lead_to_the_fix(row: Row) -> None:
    check_words(row)


class Kept:
    """Calls under way, in a dictionary of an object."""

    def __init__(self, *layers: int) -> None:
        self.calls = dict.fromkeys(layers, "call")

    def take(self, layer: int) -> str:
        return self.calls.pop(layer)


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        ((5, 3), "self.calls has keys [5, 3] here, and nothing under this key"),
        ((5, 3), "does this run twice for it, or once in the place of one of these?"),
        ((), "self.calls has nothing in it here, and nothing under this key"),
    ],
)
def test_a_dictionary_of_an_object_is_named(layers: tuple[int, ...], says: str) -> None:
    async def attempt(model: Model) -> Model:
        Kept(*layers).take(0)
        return model

    with pytest.raises(PuzzleError) as raised:
        run(attempt, ranks=2, layers=2, batches=3)
    assert says in raised.value.fix, raised.value.fix


def test_the_size_of_an_axis_is_asked_for_only_where_one_is_taken() -> None:
    there = puzzles()["hierarchical"].size | {"mesh": {"replica": 2, "shard": 3}}
    asked = "is the size of one axis taken where that of another is meant?"
    assert asked in written_out(puzzles()["hierarchical"], 'grad.shard(0, model.axis_size("shard"))', there)
    assert asked not in written_out(puzzles()["hierarchical"], 'model.allreduce(grad, layer, axis="shard")', there)


BACK = "            grad = await model.scatterreduce(grad, layer - 1)\n            model.grad_activations[layer] = await model.allgather(grad, layer - 1)"
SET = "        model.set_final_weight(layer, model.weights[layer])"
SLICES = changed("sequence_parallel", "gathers and sums in turn")
SUMS = changed(
    "sequence_parallel",
    "gradients by all-reduce",
    (BACK, "            model.grad_activations[layer] = await model.allreduce(grad, layer - 1)"),
)
BESIDE = changed("sequence_parallel", "sums beside updates", (BACK, "            call = model.allreduce(grad, layer - 1)"), (SET, SET + "\n        if layer > 0:\n            model.grad_activations[layer] = await call"))  # fmt: skip
NODES_FIRST = '        grad = await model.allreduce(grad, layer, axis="replica")'
IN_FOUR = changed("hierarchical", "four calls", (NODES_FIRST, '        grad = await model.scatterreduce(grad, layer, axis="replica")\n        grad = await model.allgather(grad, layer, axis="replica")'))  # fmt: skip
STAGES = """
class Sums:
    def __init__(self, model: Model) -> None:
        self.model, self.first, self.second, self.third = model, {}, {}, {}

    async def turn(self) -> None:
        model = self.model
        for layer in list(self.third):
            grad = await self.third.pop(layer)
            model.weights[layer], model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])
            model.set_final_weight(layer, model.weights[layer])
        for layer in list(self.second):
            self.third[layer] = model.allgather(await self.second.pop(layer), layer, axis="shard")
        for layer in list(self.first):
            self.second[layer] = model.allreduce(await self.first.pop(layer), layer, axis="replica")


async def hierarchical(model: Model) -> Model:
    sums = Sums(model)
    x = model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        x = model.activations[layer + 1] = model.forward(layer, x, model.weights[layer])
    model.grad_activations["grad"] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        grad, model.grad_activations["grad"] = model.backward(layer, model.activations.pop(layer), model.grad_activations.pop("grad"), model.weights[layer])
        call = model.scatterreduce(grad, layer, axis="shard")
        await sums.turn()
        sums.first[layer] = call
    del model.grad_activations["grad"]
    for _ in range(3):
        await sums.turn()
    return model
"""
"""Puzzle 20 with one stage of each sum in a turn."""
IN_TURNS = whole("hierarchical", "a stage in each turn", STAGES)
UPDATE_LAST = STAGES[
    STAGES.index("        for layer in list(self.third)") : STAGES.index("        for layer in list(self.second)")
]
THEN = 'axis="replica")\n'
NEWEST = edited(
    "hierarchical", "a turn awaits what it has begun", STAGES, (UPDATE_LAST, ""), (THEN, THEN + UPDATE_LAST)
)
SELDOM = edited(
    "hierarchical",
    "a turn after every other backward",
    STAGES,
    (
        "        await sums.turn()\n        sums.first[layer] = call",
        "        sums.first[layer] = call\n        if layer % 2 == 0:\n            await sums.turn()",
    ),
    ("range(3)", "range(4)"),
)
LAST = edited(
    "hierarchical",
    "all turns come last",
    STAGES,
    ("        await sums.turn()\n        sums.first", "        sums.first"),
)
AT_LAST = changed("hierarchical", "all later calls come last", ("        await go_on(layer)\n    del", "    del"), ("    for layer in (-1, -2, -3):\n        await go_on(layer)\n", "    for layer in scattered:\n        summed[layer] = model.allreduce(await scattered[layer], layer, axis='replica')\n    for layer in summed:\n        gathered[layer] = model.allgather(await summed[layer], layer, axis='shard')\n    for layer in gathered:\n        model.weights[layer], model.opt_states[layer] = model.update(layer, await gathered[layer], model.weights[layer], model.opt_states[layer])\n        model.set_final_weight(layer, model.weights[layer])\n"), base="hierarchical_overlap")  # fmt: skip
OVERLAP = changed("hierarchical", "no update is kept for the end", base="hierarchical_overlap")
NOT_COUNTED = "beside {} that with a reduce-scatter each take as long as its all-reduces. Those that it has not are of activations of layers 0, 7: get_activation gives that of layer 0 whole: run its forward before it is cut, and backward(7, ...) comes first: keep the input of layer 7 whole"
STARS: list[tuple[Program, str, tuple[str, ...], tuple[str, ...]]] = [
    (SLICES, "costs_time", (NOT_COUNTED.format(15), "8 updates (4 ticks) are on the longest chain"), ("the star has none",)),
    (SUMS, "costs_time", (NOT_COUNTED.format(8), "8 updates (4 ticks) are on the longest chain"), ("the star has none",)),
    (BESIDE, "costs_time", (NOT_COUNTED.format(8), "no call is on its way during backward(layer 1), which does not need what allgather(layer 0) brings"), ()),
    (IN_FOUR, "costs_time", ("start it, do backward(layer 6), which does not need it",), ("the star has none; ",)),
    (NEWEST, "costs_time", ("ank 0 computes nothing while allgather(layer 7) is on its way: start it, do backward(layer",), ()),
    (OVERLAP, "costs_time", ("for then, and until then only pieces of their gradients. Start each gather before allreduce(layer 0) is called, and await it after that",), ("keep some",)),
    (IN_TURNS, "costs_time", ("rank 0 computes nothing for 1.51 ticks: keep up to 3 more updates", "scatterreduce(layer 1) is there before backward(layer 0) begins: await it and start allreduce(layer 1) before that"), ("keep some",)),
    (IN_TURNS, "costs_memory", ("allgather(layer 7) makes all of a gradient on rank 0 during backward(layer 4)", "let that update come a turn later"), ("scatterreduce(layer 5) is on its way",)),
    (SELDOM, "costs_time", ("Rank 0 computes nothing while scatterreduce(layer 6) is on its way: start it, do backward(layer 5)",), ()),
    (SELDOM, "costs_memory", ("Await an earlier one after each backward",), (". A task goes on only",)),
    (LAST, "costs_memory", ("The calls of model.scatterreduce for layers 0-6 are made after each backward, and none of them is awaited", "after each backward await that of the layer before"), ("before the next one is made",)),
    (AT_LAST, "costs_memory", ("The calls of model.scatterreduce for layers", "after each backward await that of the layer before"), ("before the next one is made",)),
]  # fmt: skip


@pytest.mark.parametrize("program, field, says, never", STARS, ids=[f"{one.name}: {field}" for one, field, *_ in STARS])
def test_a_program_that_is_right_is_told_what_costs(
    program: Program, field: str, says: tuple[str, ...], never: tuple[str, ...]
) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    told = getattr(verdict, field)
    assert verdict.right and all(words in told for words in says), told
    assert not any(words in told for words in never), told
