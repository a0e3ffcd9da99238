"""What is told of shares of the batch that are not even, or that one rank has not, and of what only looks like a way
out: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import FAIL
from tests.answers import ANSWERS
from tests.corpus import Program, changed, whole
from tests.corpus.mistakes import MINE
from tests.corpus.p24_compose import GATHER, PIECE, STATE, SUM
from tests.test_corpus import LONG, function, near
from tests.test_fixes import Row
from tests.test_fixes_later import BACKWARDS, SUMS, check_words

IN_TURN = "range(model.rank, model.BATCHES, model.RANKS)"
FAIR = "10 for rank 0, which is slow (a forward takes it 1.1 times as long), and 11 for each of the others"


def straggler(name: str, mine: str) -> Program:
    """The solution of R9 with another share of the batch for each rank."""
    return changed("repair_straggler", name, (MINE, mine))


def on(rank: str) -> str:
    """The micro-batches of a rank: ``rank`` says on which one ``b`` is."""
    return f"[b for b in range(model.BATCHES) if ({rank}) == model.rank]"


DEALT = "b % model.RANKS"
BLOCKS = "[*range({0} * (model.BATCHES // 4) + 3, model.BATCHES)][: model.BATCHES // 4] if {0} else [*range(13)]"
BY_SPEED = """\
    speed = [1 / 1.1] + [1.0] * (model.RANKS - 1)
    cut = [round(model.BATCHES * sum(speed[:i]) / sum(speed)) for i in range(model.RANKS + 1)]
    mine = range(cut[model.rank], cut[model.rank + 1])
"""
COSTS = [
    Row(straggler("two of the slow rank for the last", on(f"model.RANKS - 1 if b in (36, 40) else {DEALT}")), ("rank 3 has 12 micro-batches, and rank 0 has 9: share them out, " + FAIR,)),
    Row(straggler("one of the slow rank for the second", on(f"1 if b == 40 else {DEALT}")), ("rank 1 has 12 micro-batches, and rank 3 has 10: share them out, " + FAIR,)),
    Row(straggler("the rest for the slow rank", BLOCKS.format("model.rank")), ("rank 0 has 13 micro-batches, and rank 1 has 10: share them out, " + FAIR,), ("let the slow rank",)),
    Row(straggler("the rest for the second rank", BLOCKS.format("(model.rank - 1) % 4")), ("rank 1 has 13 micro-batches, and rank 2 has 10: share them out, " + FAIR,)),
    Row(straggler("in turn", IN_TURN), ("rank 0 is the slow one", "it has 11 micro-batches, rank 3 has 10: let the slow rank be the one that has 10"), ("share them out",)),
]  # fmt: skip
ROWS = [
    Row(straggler("one too late", "range(model.rank + 1, model.BATCHES, model.RANKS)"), ("they begin with micro-batches 1-4: let them begin with 0-3, range(first, model.BATCHES, model.RANKS)", "those that begin with 3 have one less, so let rank 0, which is slow, be one of these"), ("give it to",)),
    Row(straggler("one too late, in reverse", "range(model.RANKS - model.rank, model.BATCHES, model.RANKS)"), ("they begin with micro-batches 1-4: let them begin with 0-3",), ("give it to",)),
    Row(straggler("two too late", "range(model.rank + 2, model.BATCHES, model.RANKS)"), ("they begin with micro-batches 2-5: let them begin with 0-3",), ("give each",)),
    Row(straggler("one is left out", on(f"None if b == 40 else {DEALT}")), ("rank 3 has 10: give it to rank 3",), ("begin with",)),
    Row(straggler("one of the last is left out", on(f"None if b == 39 else {DEALT}")), ("rank 3 has 9: share out all 43, " + FAIR,), ("begin with", "give it to")),
    Row(straggler("the last ones are left out", on(f"None if b >= 41 else {DEALT}")), ("rank 3 has 10: share out all 43, " + FAIR,), ("begin with", "give each of them")),
    Row(straggler("none for the slow rank", "range(model.rank - 1, model.BATCHES, model.RANKS - 1) if model.rank else []"), ("There are 43 for 4 ranks, so give each rank some: " + FAIR,), ("fake_grad",)),
    Row(changed("repair_straggler", "by speed", ("    mine = " + MINE + "\n", BY_SPEED)), ("with 3 ranks, 3 layers, 5 micro-batches", "rank 0 is the slow one", "it has 2 micro-batches, rank 1 has 1: let the slow rank be the one that has 1"), ("whatever model.RANKS",)),
]  # fmt: skip


# -- sums that the experts need not, pieces of the state, several micro-batches at once -------------------------------

OF_EXPERTS = "        if not model.experts(layer):\n            grad = await model.allreduce(grad, layer)\n"
UPDATE_WITH = "update with what model.backward_expert gives"


def experts(name: str, *lines: str) -> Program:
    """The solution of R10 with these lines in place of the sum."""
    return changed("repair_experts", name, (OF_EXPERTS, "".join(f"        {line}\n" for line in lines)))


MISSING = "model.fake_grad(layer, [b for b in range(model.BATCHES) if b != model.rank])"
ROWS += [
    Row(experts("an axis of experts", 'grad = await model.allreduce(grad, layer, axis="expert" if model.experts(layer) else None)'), ("no sum is needed", UPDATE_WITH), ("leave out axis", "give it one")),
    Row(experts("an axis of experts, and a scatter", "if model.experts(layer):", '    grad = await model.scatterreduce(grad, layer, axis="expert")', "else:", "    grad = await model.allreduce(grad, layer)"), ("no sum is needed", UPDATE_WITH), ("leave out axis",)),
    Row(experts("an axis for all others", 'if not model.experts(layer):', '    grad = await model.allreduce(grad, layer, axis="data")'), ("leave out axis, and all ranks take part",), ("no sum is needed",)),
    Row(experts("the others are made up", "if model.experts(layer):", f"    grad = grad + {MISSING}", "else:", "    grad = await model.allreduce(grad, layer)"), ("their gradient lacks nothing: leave what is made up out", UPDATE_WITH), ("fake_grad(layer, [])",)),
    Row(experts("the others are made up for all", f"grad = grad + {MISSING}"), ("their gradient lacks nothing: leave what is made up out",)),
]  # fmt: skip
PIECE_OF = "piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)"
ROWS += [
    Row(
        changed("repair_experts", name, (PIECE_OF, f"piece = {piece}")),
        ("the tokens go to experts", "model.load_weights(1, model.rank, model.RANKS)"),
        ("expected:", "got:"),
    )
    for name, piece in (
        ("whole experts", "(0, 1)"),
        ("the first experts everywhere", "(0, model.RANKS) if model.experts(layer) else (0, 1)"),
    )
]
WHOLE = changed(
    "compose",
    "whole states",
    (STATE, "state"),
    (SUM, SUM.replace("scatterreduce", "allreduce")),
    (PIECE, "piece = model.weights[layer]"),
    (GATHER, "model.weights[layer] = piece"),
)


def thick(name: str, *edits: tuple[str, str]) -> Program:
    """Puzzle 24 with thick stages, with these edits."""
    source = ANSWERS["compose"]
    for old, new in edits:
        assert old in source, f"{name}: {old!r} is not in the program"
        source = source.replace(old, new)
    return whole("compose", name, source)


FOUR = [("get_activation([b])", "get_activation(b)"), ("    todo = list(range(copy, model.BATCHES, copies))\n", "    todo = list(range(copy, model.BATCHES, copies))\n    todo = [tuple(todo[i : i + 4]) for i in range(0, len(todo), 4)]\n")]  # fmt: skip
BY_Z = [
    ('stage = model.axis_index("y") * model.axis_size("z") + model.axis_index("z")', 'stage, stages = model.axis_index("z"), model.axis_size("z")'),
    ('    stages = model.axis_size("y") * model.axis_size("z")\n', ""),
    ('copy, copies = model.axis_index("x"), model.axis_size("x")', 'y, ys = model.axis_index("y"), model.axis_size("y")\n    copy, copies = model.axis_index("x") * ys + y, model.axis_size("x") * ys'),
    ('l, axis="x")\n        piece = model', 'l, axis="x")\n        grad = await model.scatterreduce(grad, l, axis="y")\n        piece = model'),
    ('        model.set_final_weight(l, await model.allgather(piece, l, axis="x"))', '        piece = await model.allgather(piece, l, axis="y")\n        model.set_final_weight(l, await model.allgather(piece, l, axis="x"))'),
]  # fmt: skip
AT_ONCE = "each forward is of 4 micro-batches at once, in the target's program of one"
COSTS += [
    Row(thick("four at once", *FOUR), (AT_ONCE,), ("sum over the ranks once",)),
    Row(thick("four at once, and sums over two axes", *FOUR, *BY_Z), (AT_ONCE, "deal the layers out"), ("sum over the ranks once",)),
    Row(thick("sums over two axes", *BY_Z), ("deal the layers out",), ("sum over the ranks once", "at once")),
]  # fmt: skip


# -- backwards that are left out after the last forward ---------------------------------------------------------------

BY_TURNS = """\
    for turn, work in enumerate(backwards, ahead):
        await backward(*work)
        if turn < len(forwards):
            await forward(*forwards[turn])
"""
STEADY = """\
    steady = len(forwards) - ahead
    for turn in range(steady):
        await backward(*backwards[turn])
        await forward(*forwards[turn + ahead])
    for work in {}:
        await backward(*work)
"""


def cools_down(name: str, work: str, *says: str) -> Row:
    """Return the row of the solution of puzzle 14 with these backwards after the last forward."""
    program = changed("interleaved", name, (BY_TURNS, STEADY.format(work)))
    return Row(program, says, ("in the same order", "one pass_to for each micro-batch"))


LEFT_OUT = "of micro-batch {}: is that one left out after the last forward, or in another place there?"
ROWS += [
    cools_down("the cool-down skips one", "backwards[steady + 1 :]", LEFT_OUT.format(1)),
    cools_down("the cool-down skips two", "backwards[steady + 2 :]", LEFT_OUT.format(1)),
    cools_down("the cool-down skips every other one", "backwards[steady::2]", LEFT_OUT.format(2)),
    cools_down("the cool-down begins too late", "backwards[ahead:]", LEFT_OUT.format(1)),
    cools_down("the cool-down has the last round only", "[(layer, mb) for layer in reversed(mine) for mb in rounds[-1]]", LEFT_OUT.format(1)),
]  # fmt: skip

QUEUED = """\
        part = await model.scatterreduce(grad, layer, axis="shard")
        queue.append((layer, model.allreduce(part, layer, axis="replica")))
        if len(queue) > 1:
            await finish(*queue.pop(0))
"""
FINISH = """\
    queue = []

    async def finish(layer, call):
        grad = await model.allgather(await call, layer, axis="shard")
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])

"""
LAST = "    return model"


def queued(name: str, last: str, *says: str) -> Row:
    """Return the row of the solution of puzzle 20 with sums that are awaited a turn later, and this after the loop."""
    return Row(
        changed("hierarchical", name, (SUMS, QUEUED), (BACKWARDS, FINISH + BACKWARDS), (LAST, last + LAST)), says
    )


ONE_LAYER = "with one layer no later turn of a loop over the layers does that: await what is left after it"
ROWS += [
    queued(
        "all but one of the queue", "    for one in queue[: model.LAYERS - 1]:\n        await finish(*one)\n", ONE_LAYER
    ),
    queued(
        "the last one, where there are others",
        "    if model.LAYERS > 1:\n        await finish(*queue.pop(0))\n",
        ONE_LAYER,
    ),
    queued("nothing after the loop", "", "await that of layer 0 after the loop, and go on with it as with the others"),
]


def test_whole_states_are_cut_and_the_weight_is_not() -> None:
    here = grade(function(WHOLE), "compose", timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL and here.right, here.message
    assert "state.shard(i, n), and the weight whole; then sum with model.scatterreduce" in here.costs_memory
    assert "model.load_weights(layer, shard, total)" not in here.costs_memory


def test_a_shell_says_the_same() -> None:
    for row in ROWS[::4]:
        here = grade(function(row.program), row.program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
        assert all(words in near(row.program).message for words in row.says), here.message


@pytest.mark.parametrize("row", COSTS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_what_costs_time_leads_to_the_fix(row: Row) -> None:
    here = grade(function(row.program), row.program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert here.status == FAIL and here.right, here.message
    assert all(words in here.costs_time for words in row.says), here.costs_time
    assert not any(words in here.costs_time for words in row.never), here.costs_time


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)
