"""What mistakes are told in which ranks share a list, dictionary or flag, a loop ends in its first turn, or a function
reads a name late; and that code to paste has its axis, and speaks of what has run: rows as in ``test_fixes``."""

from __future__ import annotations

import pytest

from tests.corpus import Program, changed, whole
from tests.test_fixes import Row
from tests.test_fixes_awaited import DOWN, EACH, LAST, NODES, OVER, PIECES, STEP, SUM, UPDATES, nodes, pieces
from tests.test_fixes_later import check_words

FROM_1 = "forward(0, ...) has not run on this rank for micro-batch 0, and this is the input of layer 0: run it before"
FORWARD = "            inp, weight = model.activations[layer], model.weights[layer]\n            model.activations[layer + 1] = model.forward(layer, inp, weight)\n"
FROM = "            if layer:\n                model.activations[layer] = model.forward(layer, model.activations[layer - 1], model.weights[layer])\n"
COUNTED_EARLY = "            A[k] = x\n            x = model.forward(k, x, W[k])\n"
ACROSS = '        grad = await model.allreduce(grad, layer, axis="replica")\n'
INSIDE = '        grad = await model.scatterreduce(grad, layer, axis="shard")\n'
GATHERED = 'step(k, await model.allgather({}, k, axis="shard"))'
NO_AXIS = ("without an axis", "(grad, layer)")

FETCHED = "            p = await jobs.pop(k)\n"
FOR_ALL = "is one dictionary for all ranks"
INSIDE_IT = "ends {} in the first turn: move it below the loop"
LATE = "only when it goes on, and by then the loop may have changed it: give it as an argument, "
MODULE = "jobs = {}\n"
TASK = "jobs[k] = asyncio.create_task(total())"
UPDATE_ALL = "    for k in reversed(range(L)):\n        await jobs[k]\n        step(k, D.pop(k))\n"
STEP_AHEAD = (
    "jobs[k] = model.scatterreduce(back(k), k)",
    "for j in [j for j in jobs if j != k]:",
    "    keep(j, await jobs.pop(j))",
)
ENDS = "    for j in [*jobs]:\n        keep(j, await jobs.pop(j))\n" + UPDATES
CLASS = "class Calls:\n    jobs = {}\n    def __init__(self, model):\n        self.model = model\n"
COUNT = "turn = 0\n"


def with_top(program: Program, top: str) -> Program:
    """Return a program with lines before all functions."""
    return program._replace(source=top + program.source)


ROWS = [
    Row(with_top(pieces("calls outside of the function", *STEP_AHEAD, after=ENDS), MODULE), ("jobs " + FOR_ALL + ": `jobs = {}` stands outside of the functions",)),
    Row(with_top(nodes("calls outside of the function", SUM, "jobs[k] = model.allreduce(p, k, axis='replica')", "for j in [j for j in jobs if j != k or not k]:", "    q = await jobs.pop(j)", "    " + STEP.replace("k, ", "j, ")), MODULE), ("jobs " + FOR_ALL,)),
    Row(with_top(pieces("calls in a class", *[line.replace("jobs", "all.jobs") for line in STEP_AHEAD], before="    all = Calls(model)\n", after=ENDS.replace("jobs", "all.jobs")), CLASS), ("jobs " + FOR_ALL + ": `jobs = {}` stands in the class Calls itself", "Make it in __init__, self.jobs = {}")),
    Row(pieces("calls as a default", *STEP_AHEAD, after=ENDS)._replace(source=pieces("", *STEP_AHEAD, after=ENDS).source.replace("(model: Model)", "(model: Model, jobs={})")), ("jobs " + FOR_ALL + ": `jobs={}` in the first line of zero2 is made once",)),
    Row(with_top(pieces("a flag outside of the function", "global turn", "turn += 1", "p = await model.scatterreduce(back(k), k)", "D[k] = p if turn <= L else p + D.pop(k)"), COUNT), ("turn is one value for all ranks",)),
    Row(nodes("a task reads the layer late", "D[k] = back(k)", TASK, before="    jobs = {}\n    async def total():\n        p = await model.scatterreduce(D.pop(k), k, axis='shard')\n        p = await model.allreduce(p, k, axis='replica')\n        D[k] = await model.allgather(p, k, axis='shard')\n", after=UPDATE_ALL), ("total is started here and reads k " + LATE + "async def total(k), and total(k)",)),
    Row(pieces("a function without a name reads the layer late", "p = model.scatterreduce(back(k), k)", "jobs.append(lambda: add(k, p))", before="    jobs = []\n", after="    for job in jobs:\n        await job()\n" + UPDATES), ("`lambda: add(k, p)` reads k only when it goes on",)),
    Row(changed("zero2", "returns after one layer", ("    ### END SOLUTION\n    return", "        return")), (INSIDE_IT.format("zero2"),), ("does an `if` take one",)),
    Row(nodes("returns after one layer", SUM, OVER, STEP, "return model"), (INSIDE_IT.format("hierarchical"), "`for k in reversed(range(L))`")),
    Row(changed("zero2", "returns after one micro-batch", ("        del model.grad_activations[0]\n", "        del model.grad_activations[0]\n        if mb != mine[1]:\n            return model\n")), ("`return model` stands inside `for mb in mine`, below `if mb != mine[1]`",), ("goes through empty",)),
    Row(pieces("a helper returns in its loop", "keep(k, await model.scatterreduce(back(k), k))")._replace(source=pieces("", "keep(k, await model.scatterreduce(back(k), k))").source.replace("            x = model.forward(k, x, W[k])\n", "            x = model.forward(k, x, W[k])\n            return x\n", 1)), ("`return x` stands inside `for k in range(L)`, and ends forth in the first turn",)),
    Row(whole("zero2", "a helper gives nothing", PIECES.replace("        return g\n", "") + EACH + "            keep(k, await model.scatterreduce(back(k), k))\n" + LAST + "    return model\n"), ("back(k) gives None, as back has no `return`",)),
    Row(whole("hierarchical", "a helper gives nothing", NODES + "    async def sums(k):\n        p = await model.scatterreduce(back(k), k, axis='shard')\n        p = await model.allreduce(p, k, axis='replica')\n" + DOWN + "        step(k, await model.allgather(await sums(k), k, axis='shard'))\n    return model\n"), ("sums(k) gives None, as sums has no `return`",)),
    Row(nodes("a gradient in place of its call", "g = back(k)", "calls[k] = g", 'p = await model.allreduce(await calls.pop(k), k, axis="replica")', 'step(k, await model.allgather(p, k, axis="shard"))', before="    calls = {}\n"), ("`calls[k] = g` puts the gradient there as it is", "calls[k] = model.scatterreduce(g, ...)", "no model.scatterreduce stands in this program")),
    Row(pieces("a gradient in place of its call", "g = back(k)", "calls[k] = g", "keep(k, await calls[k])", before="    calls = {}\n"), ("calls[k] = model.scatterreduce(g, ...)",)),
    Row(changed("zero2", "the gather is thrown away", ("model.weights[layer] = await model.allgather(piece, layer)", "await model.allgather(piece, layer)\n        model.weights[layer] = piece")), ("`await model.allgather(piece, layer)` changes nothing, and what it gives is thrown away",)),
    Row(changed("zero2", "the cut of a state is thrown away", ("model.opt_states[layer] = state.shard(model.rank, model.RANKS)", "model.opt_states[layer] = state\n        state.shard(model.rank, model.RANKS)")), ("`state.shard(model.rank, model.RANKS)` changes nothing",)),
    Row(changed("zero2", "forward begins with layer 1", (FORWARD, FROM)), (FROM_1,), ("store what forward(0",)),
    Row(whole("zero2", "forward counts up before its call", PIECES.replace(COUNTED_EARLY, "            x = model.forward(k + 1, x, W[k + 1])\n") + "    for b in mine:\n        forth(b)\n    return model\n"), (FROM_1,), ("store what forward(0",)),
    Row(changed("hierarchical", "the sum across is thrown away", (ACROSS, ACROSS.replace("grad = ", ""))), ('write grad = await model.allreduce(grad, layer, axis="replica")',), NO_AXIS),
    Row(nodes("the sum inside is thrown away", "g = back(k)", 'await model.scatterreduce(g, k, axis="shard")', 'p = await model.allreduce(g, k, axis="replica")', GATHERED.format("p")), ('write grad = await model.scatterreduce(grad, layer, axis="shard")',), NO_AXIS),
    Row(nodes("one piece is added to its sum", SUM, 'p = p + await model.allreduce(p, k, axis="replica")', GATHERED.format("p")), ('model.allreduce(grad, layer, axis="replica")',), NO_AXIS),
    Row(changed("hierarchical", "the sum across is over both axes", (ACROSS, ACROSS.replace('"replica"', '("replica", "shard")'))), ("and this call is over all ranks", 'axis="replica"'), NO_AXIS),
    Row(nodes("the sum across is over both axes", SUM, 'p = await model.allreduce(p, k, axis=("replica", "shard"))', GATHERED.format("p")), ("and this call is over all ranks",), NO_AXIS),
    Row(changed("hierarchical", "leaders sum across", (ACROSS, '        if model.axis_index("shard") == 0:\n    ' + ACROSS)), ('of ranks 0-3 only rank 0 took part in the sum over axis="replica"',)),
    Row(nodes("ranks with an even number sum across", SUM, 'if model.rank % 2 == 0:', '    p = await model.allreduce(p, k, axis="replica")', GATHERED.format("p")), ('of ranks 0-3 only ranks 0, 2 took part in the sum over axis="replica"',)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)
