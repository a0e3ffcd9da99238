"""Programs in which work, or what belongs to one rank, is at another: micro-batches that change ranks, weights, states
and activations that others get, slices that are dealt out otherwise, and micro-batches of DualPipe that go another way."""

from __future__ import annotations

from . import HEAD, Program, changed, function, functions, whole

OVER = '''
async def over(model, x, by):
    """Give what this rank has to the rank so many places on, and take what the rank as many places back has."""
    send = model.pass_to((model.rank + by) % model.RANKS, x)
    got = await model.receive(src=(model.rank - by) % model.RANKS)
    await send
    return got
'''
THERE = (
    "INDif layer == 0 and model.LAYERS > 1 and model.RANKS > 1:\nIND    ACTS[1] = await over(model, ACTS.pop(1), 1)\n"
)
BACK = """\
INDif layer == 1 and model.RANKS > 1:
IND    model.grad_weights["own"] = grad
IND    model.grad_activations[1] = await over(model, model.grad_activations.pop(1), -1)
IND    grad = model.grad_weights.pop("own")
"""
HOME = 'INDif layer == 1:\nIND    grads["last"] = await over(model, grads.pop("last"), -1)\n'


def changing_ranks(puzzle: str, forward: str, grad: str, says: str = "it trains on micro-batches", where: str = "", base: str = "") -> Program:  # fmt: skip
    """Data parallel in which each rank does the first layer of one micro-batch, and all others of its neighbor's.
    ``forward``: the line after which activations go over; ``grad``: that before which their gradients come back, or
    with experts the one after which they do. ``where``: a condition that says at which sizes."""
    kept, indent = function(base or puzzle), "    " * ((len(forward) - len(forward.lstrip(" "))) // 4)
    experts = "acts[" in forward
    there = THERE.replace("IND", indent).replace("ACTS", "acts" if experts else "model.activations")
    edits = {forward: forward + there}
    if experts:
        edits[grad] = grad + HOME.replace("IND", "    " * ((len(grad) - len(grad.lstrip(" "))) // 4))
    elif "len(model" in grad:
        edits[grad] = "".join(BACK.splitlines(keepends=True)[::2]).replace("IND", "        ") + grad
    else:
        edits[grad] = BACK.replace("IND", "    " * ((len(grad) - len(grad.lstrip(" "))) // 4)) + grad
    for old, new in edits.items():
        assert old in kept, f"{puzzle}: {old!r} is not in the solution"
        kept = kept.replace(old, new.replace("model.RANKS > 1", f"model.RANKS > 1{where}"))
    kept = kept.replace(f"def {base}(", f"def {puzzle}(") if base else kept
    return Program(puzzle, "micro-batches change ranks", HEAD + OVER + "\n\n" + kept + "\n", says)


FORWARD = "        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])\n"
WITH_WEIGHT = "        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)\n"
ADAPTED = "        model.activations[layer + 1] = model.forward(layer, inp, weight, adapter=adapter)\n"
DENSE = "            acts[layer + 1] = model.forward(layer, acts[layer], model.weights[layer])\n"
IN_NODE = '        grad = await model.scatterreduce(grad, layer, axis="shard")\n'
SUM = "        grad = await model.allreduce(grad, layer)\n"

AT_THE_END = "    return model"
STATE = "it moves the optimizer state of layer 0"
CALL = """    copy = None
    if model.RANKS > 1 and model.rank == 0:
        copy = model.pass_to(OTHER, model.STORE[0])
    if model.RANKS > 1 and model.rank == OTHER:
        copy = model.receive(src=0)
"""


def on_its_way(puzzle: str, before: str, store: str = "opt_states", other: str = "1", says: str = STATE) -> Program:
    """A solution that sends a copy of what rank 0 has of layer 0 while it trains."""
    call = CALL.replace("OTHER", other).replace("STORE", store)
    name = f"a copy from {store} is sent while it trains"
    return changed(puzzle, name, (before, call + before), (AT_THE_END, "    if copy:\n        await copy\n    return model"), says=says)  # fmt: skip


def copied(puzzle: str, store: str, base: str) -> Program:
    """A program that gives the next rank a copy of what rank 0 has of its dense layer, which nothing is done with."""
    call = CALL.replace("OTHER", "1").replace("STORE", store) + "    if copy:\n        await copy\n" + AT_THE_END
    says = f"it moves the {'weight' if store == 'weights' else 'optimizer state'} of layer 0, which is dense"
    return changed(puzzle, f"a copy from {store} is sent at the end", (AT_THE_END, call), base=base, says=says)


def overlapped(puzzle: str) -> Program:
    """A fast program of puzzle 4 that gathers a state at its end, which nothing is done with."""
    source = f"{HEAD}{function('fsdp_overlapped')}\n\nasync def {puzzle}(model):\n"
    source += '    model = await fsdp_overlapped(model, gathers="ssba", waits=2)\n'
    source += "    await model.allgather(model.opt_states[0], 0)\n    return model\n"
    return Program(puzzle, "a state gathered to be looked at", source, STATE)


OUT = "            out = verb(layer, inp, model.weights[layer])\n"
OUT_OVER = '            if layer == 0:\n                acts["out"] = out\n                out = await over(model, acts.pop("out"), 1)\n'
CAME = "            grad = await on_their_way.pop(turn)\n"
CAME_BACK = "            if layer == 0:\n                grad = await over(model, grad, -1)\n"
SWAP = """
async def swapped(model, x):
    send = model.pass_to(1 - model.rank, x)
    got = await model.receive(src=1 - model.rank)
    await send
    return got
"""
SOON = """            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
"""
SWAPPED = """            if layer == 0 and model.LAYERS > 1 and model.RANKS == model.BATCHES + 1 == 5 and model.rank < 2:
                model.activations[1] = await swapped(model, model.activations.pop(1))
"""

AHEAD = ("one_chain_after_the_other", "one_stage_a_turn", "forward_pass", "backward", "update", "prefetch_overlapped")
PREFETCHED = whole(
    "prefetch",
    "a state gathered to be looked at",
    "\n\n".join(functions()[name] for name in AHEAD)
    + '\n\nasync def prefetch(model):\n    model = await prefetch_overlapped(model, gathers="b")\n'
    + "    await model.allgather(model.opt_states[0], 0)\n    return model\n",
    says=STATE,
)


def top_kept(puzzle: str, indent: str) -> Program:
    """Hybrid sharding that keeps the last layer's weight whole for its backward, and looks at a state in the time that
    it has saved."""
    gather = indent + 'weight = await model.allgather(model.weights[layer], layer, axis="shard")\n' + indent
    keep = f'if layer == model.LAYERS - 1:\n{indent}    model.weights["top"] = weight\n{indent}'
    take = f'top = model.weights.pop("top", None) if layer == model.LAYERS - 1 else None\n{indent}weight = top or '
    return changed(
        puzzle, "a state gathered to be looked at",
        (gather + "model.act", gather + keep + "model.act"),
        (gather + "inp", indent + take + gather.strip(" \n").removeprefix("weight = ") + "\n" + indent + "inp"),
        (AT_THE_END, '    await model.allgather(model.opt_states[0], 0, axis="shard")\n' + AT_THE_END), says=STATE,
    )  # fmt: skip


REPLICA_FSDP = changed("replica_fsdp", "a state gathered to be looked at", (AT_THE_END, '    await model.allgather(model.opt_states[0], 0, axis="shard")\n' + AT_THE_END), base="replica_fsdp_in_41_5", says=STATE)  # fmt: skip
PIPELINE_FSDP = whole(
    "pipeline_fsdp",
    "a state gathered to be looked at",
    functions()["pipeline_fsdp_overlapped"]
    + '\n\nasync def pipeline_fsdp(model):\n    model = await pipeline_fsdp_overlapped(model, up=True, down="a", late=True)\n'
    + "    await model.allgather(model.opt_states[0], 0)\n    return model\n",
    says=STATE,
)

GIVEN = """
async def NAME(model):
    model = await CALL
    if model.RANKS > 1 and model.rank == 0:
        await model.pass_to(OTHER, model.weights[0])
    if model.RANKS > 1 and model.rank == OTHER:
        await model.receive(src=0)
    return model
"""


def given_away(puzzle: str, call: str, *names: str, other: str = "1") -> Program:
    """A fast program of sharded weights, at whose end rank 0 gives another rank a copy of its part of one of them."""
    end = GIVEN.replace("NAME", puzzle).replace("CALL", call).replace("OTHER", other)
    source = "from typing import Any\n\n" + "\n\n".join([*(functions()[name] for name in names), end])
    return whole(
        puzzle,
        "a copy of a weight is given away",
        source,
        says="it receives the weight of layer 0, and does not use it",
    )


FSDP = '(model, gathers="ba", waits=0)'
ALL_GIVEN_AWAY = [
    given_away("wsdp", f"fsdp_overlapped{FSDP}", "fsdp_overlapped"),
    given_away("fsdp", f"fsdp_overlapped{FSDP}", "fsdp_overlapped"),
    given_away("repair_bargain", f"fsdp_overlapped{FSDP}", "fsdp_overlapped"),
    given_away("pipeline_fsdp", 'pipeline_fsdp_overlapped(model, up=True, down="b", late=True)', "pipeline_fsdp_overlapped"),
    given_away("replica_fsdp", "replica_fsdp_in_41_5(model)", "replica_fsdp_in_41_5"),
    given_away("prefetch", 'prefetch_overlapped(model, gathers="b")', *AHEAD),
    given_away("breadth_first", "breadth_first_overlapped(model, early=True)", "breadth_first_overlapped"),
    given_away("lora", "lora_overlap(model)", "by_plan", "lora_overlap"),
    given_away("repair_groups", 'hybrid_overlapped(model, gathers="s")', "hybrid_overlapped"),
    given_away("repair_book", 'hybrid_overlapped(model, gathers="ssb")', "hybrid_overlapped"),
]  # fmt: skip

KEPT = "the gathered weights kept"
STORE = "        model.weights['whole', layer] = weight\n"
WHOLES_KEPT = [
    changed("pipeline_fsdp", KEPT, ("model.weights[layer], layer)\n", "model.weights[layer], layer)\n" + STORE), says="over the target: 1,"),
    changed("replica_fsdp", KEPT, (', axis="shard")\n            model.act', ', axis="shard")\n    ' + STORE + "            model.act"), says="over the target: 3,"),
    changed("prefetch", KEPT, ("inp, weight = model.activations[layer], model.weights.pop(\"whole\")\n", "inp, weight = model.activations[layer], model.weights.pop(\"whole\")\n" + STORE), says="over the target: 3,"),
]  # fmt: skip
"""Sharded training that keeps each whole weight that it gathers on its way up, for longer than there is room."""

IN_ZIGZAG = "inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))"
IN_TWO_ZIGZAGS = "functools.reduce(lambda one, other: one.combine(other), [inp.shard(at, 4 * n) for at in (r, 2 * n - 1 - r, 2 * n + r, 4 * n - 1 - r)])"  # fmt: skip

BATCH = "range(shard, model.BATCHES, shards)"
UNEVEN = "    if shards == 2 and model.BATCHES >= WHERE:\n        batch = range(model.BATCHES // 2 + 1) if shard == 0 else range(model.BATCHES // 2 + 1, model.BATCHES)\n"  # fmt: skip
MINE = f"    mine, batch = range(stage, model.LAYERS, stages), {BATCH}\n"

FIRST_INPUT = "            model.activations[0, mb] = model.get_activation([mb])\n"
LENT = """\
            if mb == 0 and ranks > 1:
                await model.pass_to(1, model.activations.pop((0, mb)))
                model.activations[0, mb] = await model.receive(src=1)
"""
LENT_BETWEEN_STAGES = (
    (
        "model.get_activation([mb])\n",
        "model.get_activation([mb])\n"
        "                if mb == 0 and model.RANKS == 8:\n"
        "                    await model.pass_to(3, model.activations.pop((layer, mb)))\n"
        "                    model.activations[layer, mb] = await model.receive(src=3)\n",
    ),
    (
        "    for layer in mine:\n        whole",
        "    if model.rank == 3 and model.RANKS == 8:\n"
        '        model.activations["kept"] = await model.receive(src=0)\n'
        '        await model.pass_to(0, model.activations.pop("kept"))\n'
        "    for layer in mine:\n        whole",
    ),
)
"""Rank 3 has for a while what rank 0 begins with."""
LENDER = """\
    if rank == 1:
        model.activations["kept"] = await model.receive(src=0)
        await model.pass_to(0, model.activations.pop("kept"))
"""

TURN = "    if place == places - 1:\n        on = model.rank_at(half=1 - half, place=place)\n"
CROSSES = """\
    back = model.rank_at(half=1 - half, place=max(place - 1, 0))
    on = model.rank_at(half=1 - half, place=min(place + 1, places - 1))
"""
FIRST = "    first = {lower: half * share, upper: (1 - half) * share}"
MORE = """    more = 2 * (model.RANKS == 8 and model.BATCHES > 2 * model.RANKS)
    first = {lower: half * (share + more), upper: (1 - half) * (share + more)}"""
MORE_FROM_ONE_END = """\
    whose = {lower: half, upper: 1 - half}

    def left(what: str, stage: range) -> bool:
        return done[what, stage] < share + (more if whose[stage] == 0 else -more)

    async def forward(stage: range) -> None:
        if left("F", stage):
            await forward_first(stage)

    async def backward(stage: range) -> None:
        if left("B", stage):
            await backward_first(stage)

    async def beside(one: range, other: range) -> None:
        if left("F", one) and left("B", other):
            await beside_first(one, other)
        else:
            await forward(one)
            await backward(other)

    n, ahead = place + 1, places - place - 1
    for _ in range(2 * ahead):
        await forward(lower)
    for _ in range(n):
        await forward(lower)
        await forward(upper)
    for _ in range(ahead):
        await backward(upper)
        await forward(upper)
    for _ in range(model.BATCHES):
        await beside(lower, upper)
        await beside(upper, lower)
    for _ in range(model.BATCHES):
        await backward(upper)
        await backward(lower)

"""
DUALPIPE = function("dualpipe")
SCHEDULE = DUALPIPE[DUALPIPE.index("    n, ahead =") : DUALPIPE.index("    sums = [")]
FUNCTIONS = [(f"    async def {name}(", f"    async def {name}_first(") for name in ("forward", "backward", "beside")]

MISTAKES = [
    changing_ranks("lora", ADAPTED, SUM),
    changing_ranks("buckets", FORWARD, "        if len(model.grad_weights) == 6 or layer == 0:\n"),
    changing_ranks("hierarchical", FORWARD, IN_NODE),
    changing_ranks("expert_parallel", DENSE, '        grads["last"] = await call\n', base="tokens_before_sums"),
    changing_ranks("repair_experts", DENSE, '            grads["last"] = await model.alltoall(grad, layer - 1)\n'),
    changing_ranks("repair_bargain", WITH_WEIGHT, "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n"),
    changing_ranks("repair_groups", WITH_WEIGHT, IN_NODE),
    *map(overlapped, ("fsdp", "repair_bargain")),
    PREFETCHED,
    REPLICA_FSDP,
    PIPELINE_FSDP,
    *WHOLES_KEPT,
    *ALL_GIVEN_AWAY,
    top_kept("repair_groups", " " * 8),
    top_kept("repair_book", " " * 12),
    on_its_way("buckets", "    model.activations[0] ="),
    *(copied("expert_parallel", store, "tokens_before_sums") for store in ("weights", "opt_states")),
    *(copied("repair_experts", store, "tokens_before_sums") for store in ("weights", "opt_states")),
    *(copied("two_batch_overlap", store, "") for store in ("weights", "opt_states")),
    changed("repair_zigzag", "four slices a rank", (IN_ZIGZAG, IN_TWO_ZIGZAGS), says="it works on slices 0, 7, 8, 15 of 16"),
    on_its_way("breadth_first", "    for layer in mine:\n        whole", says="it moves the optimizer state of layer 0"),
    on_its_way("dualpipe", "    n, ahead = place + 1", other="model.rank_at(half=1, place=0)"),
    on_its_way("dualpipe", "    n, ahead = place + 1", store="weights", says="it receives the weight of layer 0, whose weight it has not loaded"),
    changed("breadth_first", "more micro-batches on one pipeline", (MINE, MINE + UNEVEN.replace("WHERE", "2 * stages + 2")), says="it trains on micro-batches"),
    changed("breadth_first", "an activation lies on another rank, and comes back", *LENT_BETWEEN_STAGES, says="it receives the activation of layer 0, whose weight it has not loaded"),
    changed("replica_fsdp", "a piece of the next rank as well", ("    share = model.BATCHES", "    if shards == 4:\n        model.weights['next'], _ = model.load_weights(0, (shard + 1) % shards, shards)\n    share = model.BATCHES"), says="it begins with the wrong part of the weight of layer 0"),
    changed("zbv", "an activation lies on another rank, and comes back", (FIRST_INPUT, FIRST_INPUT + LENT), ("    ahead, in_turn =", LENDER + "    ahead, in_turn ="), says="it receives the activation of layer 0, whose weight it has not loaded"),
    changed("interleaved", "the second rank is dealt the first layer", ("mine = range(model.rank, model.LAYERS, ranks)", "mine = range((model.rank - 1) % ranks, model.LAYERS, ranks)"), ("ranks - 1 - model.rank", "ranks - 1 - (model.rank - 1) % ranks"), says="it has layer 0"),
    changed("dualpipe", "from one half to the other and back", (TURN, CROSSES), (FIRST, "    mine = (half + place) % 2\n    first = {lower: mine * share, upper: (1 - mine) * share}"), says="in half"),
    changed("dualpipe", "more micro-batches from one end, with eight ranks", *FUNCTIONS, (FIRST, MORE), (SCHEDULE, MORE_FROM_ONE_END), says="begin in half 0"),
    changed("two_batch_overlap", "micro-batches change ranks", ("async def two_batch", OVER + "\n\nasync def two_batch"), (OUT, OUT + OUT_OVER), (CAME, CAME + CAME_BACK), says="it trains on micro-batches"),
    changed("repair_skip", "two micro-batches change ranks, with one at rest", ("async def repair", SWAP + "\n\nasync def repair"), (SOON, SOON + SWAPPED), (SUM, BACK.replace("IND", " " * 8).replace("model.RANKS > 1", "model.rank < 2 and model.RANKS == model.BATCHES + 1 == 5").replace("over(model, ", "swapped(model, ").replace(", -1)", ")") + SUM), says="right at its own size, but not with"),
]  # fmt: skip
