"""Programs in which work, or what belongs to one rank, is at another: micro-batches that change ranks, weights, states
and activations that others get, slices that are dealt out otherwise, and micro-batches of DualPipe that go another way."""

from . import Program, changed, functions, whole

OVER = '''
async def over(model, x, by):
    """Give what this rank has to the rank so many places on, and take what the rank as many places back has."""
    send = model.pass_to((model.rank + by) % model.RANKS, x)
    got = await model.receive(src=(model.rank - by) % model.RANKS)
    await send
    return got
'''


AT_THE_END = "    return model"
CALL = """    copy = None
    if model.RANKS > 1 and model.rank == 0:
        copy = model.pass_to(1, model.STORE[0])
    if model.RANKS > 1 and model.rank == 1:
        copy = model.receive(src=0)
"""


def copied(puzzle: str, store: str, base: str) -> Program:
    """A program that gives the next rank a copy of what rank 0 has of its dense layer, which nothing is done with."""
    call = CALL.replace("STORE", store) + "    if copy:\n        await copy\n" + AT_THE_END
    return changed(puzzle, f"a copy from {store} is sent at the end", (AT_THE_END, call), base=base)


OUT = "            out = verb(layer, inp, model.weights[layer])\n"
OUT_OVER = '            if layer == 0:\n                acts["out"] = out\n                out = await over(model, acts.pop("out"), 1)\n'
CAME = "            grad = await on_their_way.pop(turn)\n"
CAME_BACK = "            if layer == 0:\n                grad = await over(model, grad, -1)\n"


GIVEN = """
async def fsdp(model):
    model = await fsdp_overlapped(model, gathers="ba", waits=0)
    if model.RANKS > 1 and model.rank == 0:
        await model.pass_to(1, model.weights[0])
    if model.RANKS > 1 and model.rank == 1:
        await model.receive(src=0)
    return model
"""


KEPT = "the gathered weights kept"
STORE = "        model.weights['whole', layer] = weight\n"
WHOLES_KEPT = [
    changed("pipeline_fsdp", KEPT, ("model.weights[layer], layer)\n", "model.weights[layer], layer)\n" + STORE)),
    changed("replica_fsdp", KEPT, (', axis="shard")\n            model.act', ', axis="shard")\n    ' + STORE + "            model.act")),
    changed("prefetch", KEPT, ("inp, weight = model.activations[layer], model.weights.pop(\"whole\")\n", "inp, weight = model.activations[layer], model.weights.pop(\"whole\")\n" + STORE)),
]  # fmt: skip
"""Sharded training that keeps each whole weight that it gathers on its way up, for longer than there is room."""

IN_ZIGZAG = "inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))"
IN_TWO_ZIGZAGS = "functools.reduce(lambda one, other: one.combine(other), [inp.shard(at, 4 * n) for at in (r, 2 * n - 1 - r, 2 * n + r, 4 * n - 1 - r)])"  # fmt: skip

BATCH = "range(shard, model.BATCHES, shards)"
UNEVEN = "    if shards == 2 and model.BATCHES >= WHERE:\n        batch = range(model.BATCHES // 2 + 1) if shard == 0 else range(model.BATCHES // 2 + 1, model.BATCHES)\n"  # fmt: skip
MINE = f"    mine, batch = range(stage, model.LAYERS, stages), {BATCH}\n"


TURN = "    if place == places - 1:\n        on = model.rank_at(half=1 - half, place=place)\n"
CROSSES = """\
    back = model.rank_at(half=1 - half, place=max(place - 1, 0))
    on = model.rank_at(half=1 - half, place=min(place + 1, places - 1))
"""
FIRST = "    first = {lower: half * share, upper: (1 - half) * share}"

MISTAKES = [
    *WHOLES_KEPT,
    whole("fsdp", "a copy of a weight is given away", "from typing import Any\n\n" + functions()["fsdp_overlapped"] + "\n\n" + GIVEN),
    changed("buckets", "a copy from opt_states is sent while it trains", ("    model.activations[0] =", CALL.replace("STORE", "opt_states") + "    model.activations[0] ="), (AT_THE_END, "    if copy:\n        await copy\n    return model")),
    *(copied("expert_parallel", store, "tokens_before_sums") for store in ("weights", "opt_states")),
    *(copied("two_batch_overlap", store, "") for store in ("weights", "opt_states")),
    changed("repair_zigzag", "four slices a rank", (IN_ZIGZAG, IN_TWO_ZIGZAGS)),
    changed("breadth_first", "more micro-batches on one pipeline", (MINE, MINE + UNEVEN.replace("WHERE", "2 * stages + 2"))),
    changed("interleaved", "the second rank is dealt the first layer", ("mine = range(model.rank, model.LAYERS, ranks)", "mine = range((model.rank - 1) % ranks, model.LAYERS, ranks)"), ("ranks - 1 - model.rank", "ranks - 1 - (model.rank - 1) % ranks")),
    changed("dualpipe", "from one half to the other and back", (TURN, CROSSES), (FIRST, "    mine = (half + place) % 2\n    first = {lower: mine * share, upper: (1 - mine) * share}")),
    changed("two_batch_overlap", "micro-batches change ranks", ("async def two_batch", OVER + "\n\nasync def two_batch"), (OUT, OUT + OUT_OVER), (CAME, CAME + CAME_BACK)),
]  # fmt: skip
