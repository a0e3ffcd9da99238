"""What mistakes are told in sums of gradients that are awaited twice, too late or never, that bring one tensor twice, or
that are cut twice: rows as in ``test_fixes``, in puzzles 10 and 20."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import PASS
from tests.corpus import Program, whole
from tests.test_corpus import LONG, function
from tests.test_fixes import Row
from tests.test_fixes_later import check_words

NODES = """
import asyncio

async def hierarchical(model: Model) -> Model:
    L = model.LAYERS
    W, S, A, G, D = model.weights, model.opt_states, model.activations, model.grad_activations, model.grad_weights
    for k in range(L):
        W[k], S[k] = model.load_weights(k)
    x = model.get_activation([model.rank])
    for k in range(L):
        A[k] = x
        x = model.forward(k, x, W[k])
    G["g"] = model.loss(x)
    def step(k, g):
        W[k], S[k] = model.update(k, g, W[k], S[k])
        model.set_final_weight(k, W[k])
    def back(k):
        g, G["g"] = model.backward(k, A.pop(k), G.pop("g"), W[k])
        return g
    async def chain(k, call):
        p = await model.allreduce(await call, k, axis="replica")
        D[k] = await model.allgather(p, k, axis="shard")
"""
PIECES = """
import asyncio

async def zero2(model: Model) -> Model:
    L, r, n = model.LAYERS, model.rank, model.RANKS
    W, S, A, G, D = model.weights, model.opt_states, model.activations, model.grad_activations, model.grad_weights
    for k in range(L):
        W[k], s = model.load_weights(k)
        S[k] = s.shard(r, n)
    mine = range(r, model.BATCHES, n)
    def forth(b):
        x = model.get_activation([b])
        for k in range(L):
            A[k] = x
            x = model.forward(k, x, W[k])
        G["g"] = model.loss(x)
    def back(k):
        g, G["g"] = model.backward(k, A.pop(k), G.pop("g"), W[k])
        return g
    def keep(k, p):
        D[k] = p + D.pop(k) if k in D else p
    async def step(k):
        w, S[k] = model.update(k, D.pop(k), W.pop(k).shard(r, n), S[k])
        W[k] = await model.allgather(w, k)
        model.set_final_weight(k, W[k])
    async def add(k, call):
        keep(k, await call)
"""
DOWN = "    for k in reversed(range(L)):\n"
EACH = "    for b in mine:\n        forth(b)\n        for k in reversed(range(L)):\n"
LAST = "            if b == mine[-1]:\n                await step(k)\n"


def nodes(name: str, *lines: str, before: str = "") -> Program:
    """Return a program of puzzle 20 that does this with each layer, after its forward pass, and something ``before``."""
    body = "".join(f"        {line}\n" for line in lines)
    return whole("hierarchical", name, f"{NODES}{before}{DOWN}{body}    return model\n")


def pieces(name: str, *lines: str, before: str = "", after: str = LAST) -> Program:
    """Return a program of puzzle 10 that does this with each layer of each micro-batch, and something ``before`` the
    loop and ``after`` that."""
    body = "".join(f"            {line}\n" for line in lines)
    return whole("zero2", name, f"{PIECES}{before}{EACH}{body}{after}    return model\n")


SUM, OVER = 'p = await model.scatterreduce(back(k), k, axis="shard")', 'q = await model.allreduce(p, k, axis="replica")'
STEP = 'step(k, await model.allgather(q, k, axis="shard"))'
AGAIN = "has been given this gradient before: is a call awaited twice, or an entry of a list"
ONE_CALL = "has been given this gradient before, and nobody has awaited that call: one call for each gradient"
NOT_IN_PLACE = "does not change the gradient"
TAKES_ALL = "model.scatterreduce takes the whole gradient, and gives each rank its piece of the sum: one call"
LATE = "was brought to model.scatterreduce(..., 5), and that was not awaited by then: await it, or the task that does"
REPLACED, KEEP = "as if it was replaced or cleared away", "keep what it gives"
NOT_TAKEN = "has been called, and its result is not taken so far: await the task that awaits it"
CUT = "model.scatterreduce cuts the gradient into 4 pieces, and these are 16: it is cut once more"
NO_SHARE = "run no micro-batch"
DUE = "There are 8 for 4 ranks, so give each rank some: 2 for each rank"
UPDATES = "    for k in reversed(range(L)):\n        await step(k)\n"
QUEUE = """\
    queue = asyncio.Queue()
    async def work():
        while True:
            keep(*await add_next())
            queue.task_done()
    async def add_next():
        k, call = await queue.get()
        return k, await call
    worker = asyncio.create_task(work())
"""
ROWS = [
    Row(nodes("pieces in a list that is gone through again", SUM, "sums.append((k, p))", "for j, p in sums:", '    q = await model.allreduce(p, j, axis="replica")', '    step(j, await model.allgather(q, j, axis="shard"))', before="    sums = []\n"), (AGAIN,), (NOT_IN_PLACE,)),
    Row(nodes("a call that is awaited by two", 'call = model.scatterreduce(back(k), k, axis="shard")', 'q, _ = await asyncio.gather(*[model.allreduce(await call, k, axis="replica") for _ in range(2)])', STEP), (AGAIN,), (NOT_IN_PLACE,)),
    Row(nodes("a sum is called ahead, and once more", "g = back(k)", 'model.scatterreduce(g, k, axis="shard")', 'p = await model.scatterreduce(g, k, axis="shard")', OVER, STEP), ("scatterreduce(layer 7) " + ONE_CALL,), (NOT_IN_PLACE,)),
    Row(pieces("a sum is called ahead, and once more", "g = back(k)", "call = model.scatterreduce(g, k)", "keep(k, await model.scatterreduce(g, k))"), ("scatterreduce(layer 5) " + ONE_CALL,), (NOT_IN_PLACE,)),
    Row(nodes("both sums of the same gradient", "g = back(k)", 'await model.allreduce(g, k, axis="shard")', 'q = await model.allreduce(g, k, axis="replica")', "step(k, q)"), ("write grad = await model.allreduce(grad, layer), and go on with that",)),
    Row(nodes("two calls at once for one gradient", "g = back(k)", 'call = model.scatterreduce(g, k, axis="shard")', 'q = await model.allreduce(g, k, axis="replica")', "await call", "step(k, q)"), ("and bring that to model.allreduce",), ("and update with that",)),
    Row(pieces("a call for each piece", "g = back(k)", "parts = [g.shard(i, n) for i in range(n)]", "keep(k, [await model.scatterreduce(part, k) for part in parts][r])"), (TAKES_ALL,), (NOT_IN_PLACE,)),
    Row(pieces("a call for each piece, cut one by one", "g = back(k)", "keep(k, [await model.scatterreduce(g.shard(i, n), k) for i in range(n)][r])"), (TAKES_ALL,), (NOT_IN_PLACE, "store it to keep it")),
    Row(pieces("updates before the second sum", "call = model.scatterreduce(back(k), k)", "if b == mine[0]:", "    keep(k, await call)", "else:", "    await step(k)", after=""), (LATE,), (REPLACED,)),
    Row(pieces("tasks of the last micro-batch are not awaited", "task = asyncio.create_task(add(k, model.scatterreduce(back(k), k)))", "if b != mine[-1]:", "    await task", after=UPDATES), (LATE,), (REPLACED, "as well: store the first one")),
    Row(pieces("a sum in place of the one before", "D[k] = await model.scatterreduce(back(k), k)"), (REPLACED,), ("not awaited by then",)),
    Row(pieces("no task is awaited before the updates", "asyncio.create_task(add(k, model.scatterreduce(back(k), k)))", after=UPDATES), ("model.scatterreduce(..., 5) " + NOT_TAKEN,), (KEEP,)),
    Row(nodes("no chain is awaited before its update", 'asyncio.ensure_future(chain(k, model.scatterreduce(back(k), k, axis="shard")))', "step(k, D.pop(k))"), ("model.scatterreduce(..., 7) " + NOT_TAKEN,), (KEEP,)),
    Row(nodes("the chain of another layer is awaited", 'tasks[k] = asyncio.create_task(chain(k, model.scatterreduce(back(k), k, axis="shard")))', "if k + 2 in tasks:", "    await tasks[k + 2]", "    step(k + 1, D.pop(k + 1))", before="    tasks = {}\n"), ("model.allgather(..., 6) " + NOT_TAKEN, "Or is model.grad_weights[7] meant, the only one that is there?"), (KEEP,)),
    Row(nodes("all layers in each turn", 'D[k] = await model.allreduce(await model.allreduce(back(k), k, axis="shard"), k, axis="replica")', "for j in range(L):", "    step(j, D.pop(j))"), ("Or is model.grad_weights[7] meant, the only one that is there?",)),
    Row(nodes("the piece is cut, and then gathered", SUM, 'p = p.shard(model.axis_index("shard"), model.axis_size("shard"))', OVER, STEP), (CUT,), ("gather the gradient",)),
    Row(nodes("the piece is cut, and never gathered", SUM, 'step(k, await model.allreduce(p.shard(model.axis_index("shard"), model.axis_size("shard")), k, axis="replica"))'), (CUT,), ("gather the gradient",)),
    Row(pieces("everything is cut twice", "keep(k, (await model.scatterreduce(back(k), k)).shard(r, n))", before="    for k in range(L):\n        S[k], W[k] = S.pop(k).shard(r, n), W[k]\n", after=LAST.replace("await step(k)", "W[k] = W.pop(k).shard(r, n)\n                await step(k)")), ("together these are 4 of 16: are weight, state and gradient cut twice?",)),
    Row(pieces("one call is added in each turn", "calls.append(model.scatterreduce(back(k), k))", "keep(5, await calls[0])", before="    calls = []\n", after=""), ("one call of model.scatterreduce(..., 5) has given these micro-batches, and its result is added twice",)),
    Row(nodes("most ranks bring nothing", "g = back(k)", 'g = model.fake_grad(k, []) if model.axis_index("shard") else g', 'p = await model.scatterreduce(g, k, axis="shard")', OVER, STEP), ("ranks 1-3, 5-7, 9-11, 13-15 have computed the gradient of layer 7, and brought another one to the sum",), ("add up the gradients of all ranks",)),
    Row(pieces("shares in a row of as many as ranks", "keep(k, await model.scatterreduce(back(k), k))", before="    mine = range(r * n, min(model.BATCHES, r * n + n))\n"), (f"ranks 2, 3 have {NO_SHARE}", DUE), ("fake_grad",)),
    Row(pieces("two ranks have no share", "keep(k, await model.scatterreduce(back(k), k))", before="    mine = [b for b in range(model.BATCHES) if b % 2 == r]\n", after=UPDATES), (DUE,), ("fake_grad",)),
    Row(pieces("the last of no share", "keep(k, await model.scatterreduce(back(k), k))", before="    mine = [b for b in range(model.BATCHES) if not r]\n", after=f"    last = mine[-1]\n{UPDATES}"), (f"this rank has {NO_SHARE}", DUE), ("count from 0",)),
    Row(pieces("a worker is cancelled at its work", "queue.put_nowait((k, model.scatterreduce(back(k), k)))", before=QUEUE, after="        await asyncio.sleep(0)\n    worker.cancel()\n"), ("a task that awaited scatterreduce(layer 5) was cancelled before that came: await the task",), ("none is awaited",)),
    Row(pieces("a worker is cancelled, and then awaited", "queue.put_nowait((k, model.scatterreduce(back(k), k)))", before=QUEUE, after="    worker.cancel()\n    await worker\n"), ("the function was cancelled by itself", "cancel it after `await queue.join()`", "await worker")),
    Row(pieces("a worker waits for an end mark", "queue.put_nowait((k, model.scatterreduce(back(k), k)))", before=QUEUE, after="    await worker\n"), ("await worker, a task that waits at", "await queue.get()")),
    Row(whole("zero2", "outputs under the key of the layer", PIECES.replace("A[k] = x\n            x = model.forward(k, x, W[k])", "x = model.forward(k, x, W[k])\n            A[k] = x") + EACH + "            keep(k, await model.scatterreduce(back(k), k))\n" + LAST + "    return model\n"), ("is in model.activations[4] here, under the layer whose forward gave it: store what a layer reads before its forward",), ("in all lines",)),
    Row(pieces("each rank gathers layers of its own", "keep(k, await model.scatterreduce(back(k), k))", after="    for k in range(r, L, n):\n        await step(k)\n"), ("every rank goes through all layers here",)),
    Row(whole("hierarchical", "a loop that ends before layer 0", NODES.replace('G.pop("g")', "G.pop(k + 1)").replace('G["g"] = model.loss', "G[L] = model.loss").replace('g, G["g"]', "g, G[k]") + "    for k in range(L - 1, 0, -1):\n        D[k] = back(k)\n    del G[0]\n    return model\n"), ("does the loop over the layers end before it? range(model.LAYERS - 1, -1, -1)",), ("Is that meant here",)),
    Row(nodes("the others' part is made up", "g = back(k)", "step(k, g + model.fake_grad(k, [b for b in range(model.BATCHES) if b != model.rank]))"), ("What others have computed comes by a sum over the ranks",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_lead_to_the_fix(row: Row) -> None:
    check_words(row)


def test_a_worker_that_is_cancelled_when_its_queue_is_empty_is_no_error() -> None:
    lines = "queue.put_nowait((k, model.scatterreduce(back(k), k)))", "await queue.join()"
    program = pieces("a worker", *lines, before=QUEUE, after=LAST + "    worker.cancel()\n")
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    assert verdict.status == PASS, verdict.message


FOUR = 'p = await model.scatterreduce(p, k, axis="replica")', 'q = await model.allgather(p, k, axis="replica")'
OLDEST = "calls.append((k, model.scatterreduce(back(k), k)))", "if len(calls) > 1:", "    await add(*calls.pop())"
AT_THE_END = """\
        while calls:
            await add(*calls.pop(0))
    for k in reversed(range(L)):
        W["new", k], S[k] = model.update(k, D.pop(k), W.pop(k).shard(r, n), S[k])
    for k in reversed(range(L)):
        W[k] = await model.allgather(W.pop(("new", k)), k)
        model.set_final_weight(k, W[k])
"""
SLOW = [
    (nodes("a sum across in two steps", SUM, *FOUR, STEP), "while scatterreduce(layer 7) is on its way: start it"),
    (pieces("the newest call first", *OLDEST, before="    calls = []\n", after=f"        while calls:\n            await add(*calls.pop())\n{UPDATES}"), "await the oldest one first, calls.pop(0)"),
    (pieces("gathers after all updates", *OLDEST[:2], "    await add(*calls.pop(0))", before="    calls = []\n", after=AT_THE_END), "start it right after update(layer 5), before update(layer 4)"),
    (nodes("sums across after the last backward", "calls.append((k, model.scatterreduce(back(k), k, axis='shard')))", "if not k:", "    G.clear()", "    while calls:", "        j, call = calls.pop(0)", "        await chain(j, call)", "        step(j, D.pop(j))", before="    calls = []\n"), "rank 0 calls allreduce of layers 1-7 only after its last backward: call each as soon as what it reads is there"),
    (nodes("a task for each layer, awaited a turn later", "D['new', k] = back(k)", "tasks.append(asyncio.create_task(whole_way(k)))", "if k < L - 1:", "    await tasks[-2]", before='    async def whole_way(k):\n        await chain(k, model.scatterreduce(D.pop(("new", k)), k, axis="shard"))\n        step(k, D.pop(k))\n    tasks = []\n'), "if a task makes it: that goes on only while"),
    (nodes("sums from layer 0 on", "D[k] = back(k)", "for j in range(L) if not k else ():", '    await chain(j, model.scatterreduce(D.pop(j), j, axis="shard"))', "    step(j, D.pop(j))"), "These are summed from layer 1 on, and their backwards go the other way"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "words"), SLOW, ids=lambda one: getattr(one, "name", ""))
def test_what_costs_time_or_memory_leads_to_the_fix(program: Program, words: str) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    costs = f"{verdict.costs_time} {verdict.costs_memory}"
    assert words in costs, (verdict.message, costs)
