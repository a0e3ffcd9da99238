"""What mistakes are told in sums of gradients that are awaited twice, too late or never, that bring one tensor twice, or
that are cut twice: rows as in ``test_fixes``, in puzzles 10 and 20."""

from __future__ import annotations

import pytest

from lib import grade
from lib.grading.verdict import PASS
from tests.corpus import Program, changed, whole
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


def nodes(name: str, *lines: str, before: str = "", after: str = "") -> Program:
    """Return a program of puzzle 20 that does this with each layer, after its forward pass, and something ``before`` the
    loop and ``after`` it."""
    body = "".join(f"        {line}\n" for line in lines)
    return whole("hierarchical", name, f"{NODES}{before}{DOWN}{body}{after}    return model\n")


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
    Row(nodes("both sums of the same gradient", "g = back(k)", 'await model.allreduce(g, k, axis="shard")', 'q = await model.allreduce(g, k, axis="replica")', "step(k, q)"), ('write grad = await model.allreduce(grad, layer, axis="shard"), and go on with that',)),
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
    Row(pieces("each rank gathers layers of its own", "keep(k, await model.scatterreduce(back(k), k))", after="    for k in range(r, L, n):\n        await step(k)\n"), ("every rank has to go through all layers",)),
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


SHARD, REPLICA = 'axis="shard"', 'axis="replica"'
IN_NODE, ACROSS, BACK = (
    f'grad = await model.{call}, layer, axis="{axis}")'
    for call, axis in (("scatterreduce(grad", "shard"), ("allreduce(grad", "replica"), ("allgather(grad", "shard"))
)
ELSEWHERE = (IN_NODE, IN_NODE.replace(SHARD, REPLICA))
CUTS_INSIDE = (
    "The one that cuts comes first, and stays inside: piece = await model.scatterreduce(grad, 7, axis='shard')".replace(
        "'", '"'
    )
)
EXCHANGED = (
    'Exchange the axes of the two sums: piece = await model.scatterreduce(grad, 7, axis="shard") inside the node'
)
ONE_TOO_MANY = "one of these two calls is too many"
ONE_AFTER_THE_OTHER = "let each call take what the one before it gives"
SUM_IS_BELOW = "stands in this program: let it come before this update, and update with what it gives"
GATHER_AFTER = "gather this weight after its update, and not before"
ONE_KEY = "is there one key for all layers? Store each gradient under its own, model.grad_weights[5]"
LAST_SUM = "allreduce(layer 1) is not awaited either: does the loop take too few turns?"
KEPT = "    for k in range(L):\n        W[k] = W[k].shard(r, n)\n    calls = {k: model.allgather(W.pop(k), k) for k in reversed(range(L))}\n    for k, call in calls.items():\n        W[k], S[k] = model.update(k, D.pop(k), await call, S[k])\n"
TURN = """\
    node, over = {}, {}
    async def turn(k):
        if k + 1 in node:
            over[k + 1] = model.allreduce(await node.pop(k + 1), k + 1, axis="replica")
        if k + 2 in over:
            step(k + 2, await model.allgather(await over.pop(k + 2), k + 2, axis="shard"))
"""
OWN_CUT = 'p = g.shard(model.axis_index("shard"), model.axis_size("shard"))'
BY_PLACE = 'its place along axis="shard", which sums nothing: piece = await model.scatterreduce(grad, 7, axis="shard")'


def turns(
    name: str, turn: str = TURN, first: str = 'model.scatterreduce(back(k), k, axis="shard")', rest: str = "-1, -2"
) -> Program:
    """Return a program of puzzle 20 that starts a call after each backward, and takes a ``turn`` with those before it,
    and for the ``rest`` of the turns after the last one."""
    body = f"        node[k] = {first}\n        await turn(k)\n    G.clear()\n"
    return whole(
        "hierarchical",
        name,
        f"{NODES}{turn}{DOWN}{body}    for k in ({rest},):\n        await turn(k)\n    return model\n",
    )


AXES = [
    Row(changed("hierarchical", "both sums across", ELSEWHERE), (CUTS_INSIDE,), (ONE_TOO_MANY,)),
    Row(changed("hierarchical", "everything across, in pieces", ELSEWHERE, (BACK, BACK.replace(SHARD, REPLICA))), (CUTS_INSIDE,), (ONE_TOO_MANY,)),
    Row(nodes("both sums across", SUM.replace(SHARD, REPLICA), OVER, STEP), (CUTS_INSIDE,), (ONE_TOO_MANY,)),
    Row(changed("hierarchical", "both sums inside", (ACROSS, ACROSS.replace(REPLICA, SHARD))), ('this one is to be over axis="replica"',), (ONE_TOO_MANY,)),
    Row(changed("hierarchical", "the axes of the sums exchanged", ELSEWHERE, (ACROSS, ACROSS.replace(REPLICA, SHARD))), (EXCHANGED,), ("over the same axis",)),
    Row(nodes("the axes of the sums exchanged", SUM.replace(SHARD, REPLICA), OVER.replace(REPLICA, SHARD), STEP), (EXCHANGED,), ("over the same axis",)),
    Row(nodes("two sums beside each other", "D[k] = back(k)", 'call = model.scatterreduce(D[k], k, axis="shard")', 'q = await model.allreduce(D[k], k, axis="replica")', "await call", "del D[k]", STEP), (ONE_AFTER_THE_OTHER,), ("gradients of different micro-batches",)),
    Row(nodes("two sums at once", "D[k] = back(k)", 'p, q = await asyncio.gather(model.scatterreduce(D[k], k, axis="shard"), model.allreduce(D[k], k, axis="replica"))', "del D[k]", STEP), (ONE_AFTER_THE_OTHER,), ("gradients of different micro-batches",)),
    Row(nodes("its own piece, summed over all", "g = back(k)", OWN_CUT, "q = await model.allreduce(p, k)", STEP), (BY_PLACE,), ("gives piece i",)),
    Row(nodes("its own piece by divmod, summed over all", "g = back(k)", "p = g.shard(model.rank % 4, 4)", "q = await model.allreduce(p, k)", STEP), (BY_PLACE,), ("gives piece i",)),
    Row(nodes("updates before the sums", "g = back(k)", "step(k, g)", SUM.replace("back(k)", "g"), OVER), (SUM_IS_BELOW,)),
    Row(nodes("sums in a function that is called too late", "D[k] = back(k)", "step(k, D[k])", "await total(k)", before="    async def total(k):\n        D[k] = await model.allreduce(D.pop(k), k, axis='shard')\n"), (SUM_IS_BELOW,)),
    Row(turns("too few turns", rest="-9"), (LAST_SUM,)),
    Row(pieces("weights are gathered before their update", "keep(k, await model.scatterreduce(back(k), k))", "if b == mine[-1]:", "    W[k] = await model.allgather(W.pop(k).shard(r, n), k)", "    W[k], S[k] = model.update(k, D.pop(k), W.pop(k), S[k])", after=""), (GATHER_AFTER,), ("cut both alike",)),
    Row(pieces("all weights are gathered before their updates", "keep(k, await model.scatterreduce(back(k), k))", after=KEPT), (GATHER_AFTER,), ("cut both alike",)),
    Row(whole("zero2", "one slot for all gradients", f"{PIECES}{EACH}            D['last'] = back(k)\n        for k in reversed(range(L)):\n            keep(k, await model.scatterreduce(D['last'], k))\n{UPDATES}    return model\n"), (ONE_KEY,), ("name the layer of the tensor",)),
    Row(whole("zero2", "one slot, from which each sum takes", f"{PIECES}{EACH}            D['new'] = back(k)\n        for k in range(L)[::-1]:\n            keep(k, await model.scatterreduce(D.pop('new'), k))\n{UPDATES}    return model\n"), (ONE_KEY,), ("name the layer of the tensor",)),
]  # fmt: skip


@pytest.mark.parametrize("row", AXES, ids=lambda row: f"{row.program.puzzle}: {row.program.name}")
def test_words_on_axes_and_orders_lead_to_the_fix(row: Row) -> None:
    check_words(row)


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
CUT_LATE = "            call = model.scatterreduce(back(k), k)\n            if b == mine[-1]:\n                W[k] = W.pop(k).shard(r, n)\n"
CUT_IN_TIME = (
    CUT_LATE.replace("call = model.scatterreduce(back(k), k)", "D['new'] = back(k)")
    + "            calls.append((k, model.scatterreduce(D.pop('new'), k)))\n            if len(calls) > 1:\n                await add(*calls.pop(0))\n"
)


def cut_late(name: str, body: str, after: str) -> Program:
    """Return a program of puzzle 10 that does this after each backward and its sum, and this after the last one, and
    cuts its weights itself."""
    begin = PIECES.replace("W.pop(k).shard(r, n), S[k])", "W.pop(k), S[k])") + f"    calls = []\n{EACH}{body}"
    return whole("zero2", name, f"{begin}        G.clear()\n{after}{UPDATES}    return model\n")


DRAIN = "        while calls:\n            await add(*calls.pop(0))\n"
SOON = "And await each of these sums right after the next backward"
QUEUED = "rank 0 calls the gather of layer 7 behind allreduce(layer 6), and computes nothing until that is over, since the links carry calls in the order in which they were made"
NEXT_STAGE = "rank 0 could call allreduce(layer 7) before backward(layer 5), as scatterreduce(layer 7) is over by then: after each backward, await the call of the layer before it"
NO_PIECE = "Whole gradients go from node to node, as in allreduce(layer 7): reduce-scatter first, inside the node"
FIRST_ACROSS = TURN.replace(
    'allreduce(await node.pop(k + 1), k + 1, axis="replica")',
    'scatterreduce(await node.pop(k + 1), k + 1, axis="shard")',
)
FIRST_WHOLE = "        for k in range(L if b == mine[0] else 0):\n            keep(k, await model.scatterreduce(D.pop(('first', k)), k))\n"
LAST_SUMS = "            if b == mine[0]:\n                D['first', k] = back(k)\n            else:\n                keep(k, await model.scatterreduce(back(k), k))\n                await step(k)\n"
SLOW = [
    (whole("zero2", "the first gradients wait as a whole", PIECES + EACH + LAST_SUMS + FIRST_WHOLE + "    return model\n"), "Keep only this rank's piece, right after each backward"),
    (changed("zero2", "gradients are summed after each micro-batch", ("            grad = await model.scatterreduce(grad, layer)\n            so_far = model.grad_weights.get(layer)\n            model.grad_weights[layer] = so_far + grad if so_far else grad\n", "            model.grad_weights['new', layer] = grad\n        for layer in range(model.LAYERS):\n            grad = await model.scatterreduce(model.grad_weights.pop(('new', layer)), layer)\n            so_far = model.grad_weights.get(layer)\n            model.grad_weights[layer] = so_far + grad if so_far else grad\n")), "right after each backward"),
    (cut_late("sums in tasks", CUT_LATE + "            calls.append(asyncio.create_task(add(k, call)))\n            await asyncio.sleep(0)\n", "        await asyncio.gather(*calls)\n"), SOON),
    (cut_late("sums in a list", CUT_LATE + "            calls.append((k, call))\n", DRAIN), SOON),
    (turns("a gather behind a sum across"), QUEUED),
    (turns("a gather behind a sum across, in a call", TURN.replace('await model.allgather(await over.pop(k + 2), k + 2, axis="shard")', 'await call').replace("            step(", '            call = model.allgather(await over.pop(k + 2), k + 2, axis="shard")\n            step(')), QUEUED),
    (nodes("a chain in a task, two turns", 'tasks[k] = asyncio.create_task(chain(k, model.scatterreduce(back(k), k, axis="shard")))', "await asyncio.sleep(0)", "for j in [j for j in tasks if j > k + 1 or k == 0]:", "    await tasks.pop(j)", "    step(j, D.pop(j))", before="    tasks = {}\n"), NEXT_STAGE),
    (nodes("chains in a queue of tasks", 'tasks.append((k, asyncio.ensure_future(chain(k, model.scatterreduce(back(k), k, axis="shard")))))', "while len(tasks) == 3 or tasks and k == 0:", "    j, task = tasks.pop(0)", "    await task", "    step(j, D.pop(j))", before="    tasks = []\n"), NEXT_STAGE),
    (turns("the sum across comes first", FIRST_ACROSS, 'model.allreduce(back(k), k, axis="replica")'), NO_PIECE),
    (nodes("a sum across in two steps", SUM, *FOUR, STEP), "while scatterreduce(layer 7) is on its way: start it"),
    (pieces("the newest call first", *OLDEST, before="    calls = []\n", after=f"        while calls:\n            await add(*calls.pop())\n{UPDATES}"), "await the oldest one first, calls.pop(0)"),
    (pieces("gathers after all updates", *OLDEST[:2], "    await add(*calls.pop(0))", before="    calls = []\n", after=AT_THE_END), "start it right after update(layer 5), before update(layer 4)"),
    (nodes("sums across after the last backward", "calls.append((k, model.scatterreduce(back(k), k, axis='shard')))", "if not k:", "    G.clear()", "    while calls:", "        j, call = calls.pop(0)", "        await chain(j, call)", "        step(j, D.pop(j))", before="    calls = []\n"), "rank 0 calls allreduce of layers 1-7 only after its last backward: call each as soon as what it reads is there"),
    (nodes("a task for each layer, awaited a turn later", "D['new', k] = back(k)", "tasks.append(asyncio.create_task(whole_way(k)))", "if k < L - 1:", "    await tasks[-2]", before='    async def whole_way(k):\n        await chain(k, model.scatterreduce(D.pop(("new", k)), k, axis="shard"))\n        step(k, D.pop(k))\n    tasks = []\n'), "If a task is to do that: it goes on only while"),
    (nodes("sums from layer 0 on", "D[k] = back(k)", "for j in range(L) if not k else ():", '    await chain(j, model.scatterreduce(D.pop(j), j, axis="shard"))', "    step(j, D.pop(j))"), "Here these calls come after the last backward (line "),
]  # fmt: skip


@pytest.mark.parametrize(("program", "words"), SLOW, ids=lambda one: getattr(one, "name", ""))
def test_what_costs_time_or_memory_leads_to_the_fix(program: Program, words: str) -> None:
    verdict = grade(function(program), program.puzzle, timeout=LONG).verdict  # type: ignore[arg-type]
    costs = f"{verdict.costs_time} {verdict.costs_memory}"
    assert words in costs, (verdict.message, costs)


def test_what_is_told_of_weights_cut_late_leads_to_less_memory_everywhere() -> None:
    late = cut_late("sums in a list", CUT_LATE + "            calls.append((k, call))\n", DRAIN)
    mended = cut_late("as told", CUT_IN_TIME, DRAIN)
    before, after = (grade(function(one), "zero2", timeout=LONG).verdict for one in (late, mended))  # type: ignore[arg-type]
    assert before.status == after.status == PASS and after.memory < before.memory and after.time <= before.time  # type: ignore[operator]


def test_what_is_told_of_gathers_in_a_queue_makes_them_faster() -> None:
    lines = TURN.splitlines(keepends=True)
    told = turns("as told", "".join([*lines[:2], *lines[4:], *lines[2:4]]))
    before, after = (grade(function(one), "hierarchical", timeout=LONG).verdict for one in (turns("behind"), told))  # type: ignore[arg-type]
    assert before.status == after.status == PASS and after.time < before.time  # type: ignore[operator]
