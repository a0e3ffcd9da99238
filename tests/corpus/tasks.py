"""Programs that leave out one sentence of a task, where no other program of the corpus is about it alone."""

from __future__ import annotations

from . import Program, after, changed, function, whole


def afterwards(puzzle: str, name: str, line: str, says: str) -> Program:
    """The solution, and then a line more."""
    is_async = function(puzzle).startswith("async")
    head, call = ("async def", "await honest(model)") if is_async else ("def", "honest(model)")
    return after(puzzle, name, f"{head} {puzzle}(model):\n    {call}\n    {line}\n    return model", says)


def no_states(puzzle: str) -> Program:
    """The solution without the states that it ends with."""
    says = "it ends without the updated optimizer state"
    return afterwards(puzzle, "the states are not kept", "model.opt_states.clear()", says)


def slow(puzzle: str) -> Program:
    """The solution and many signals to the next rank."""
    line = "for _ in range(400): [await call for call in (model.pass_to((model.rank + 1) % model.RANKS, None), model.receive())]"
    return afterwards(puzzle, "it goes on and on", line, "over the target")


def neighbors_shards(puzzle: str, rank: str = "model.rank", ranks: str = "model.RANKS") -> Program:
    """The solution with the shards of the next rank."""
    edit = (f"layer, {rank}, {ranks}", f"layer, ({rank} + 1) % {ranks}, {ranks}")
    return changed(
        puzzle,
        "the shards of the next rank",
        edit,
        says="begins with the wrong part|does not cover the weight|hold different shards",
    )


THERE_AND_BACK = """
def plan(ranks, layers, batches, owner):  # which rank does what in which order, by who can begin first
    order, free, ready = {rank: [] for rank in range(ranks)}, dict.fromkeys(range(ranks), 0.0), {}
    alive = dict.fromkeys(range(ranks), 0)
    for mb in range(batches):
        ready["f", 0, mb] = 0.0
    while ready:
        known = []
        for (kind, layer, mb), since in ready.items():
            rank = owner[layer]
            if kind == "b" or alive[rank] < 9 or layer == layers - 1:
                known.append((max(since, free[rank]), kind == "f", -layer if kind == "f" else layer, mb, layer, kind))
        start, _, _, mb, layer, kind = min(known)
        del ready[kind, layer, mb]
        rank, step = owner[layer], 1 if kind == "f" else -1
        order[rank].append((kind, layer, mb))
        free[rank] = end = start + 1
        alive[rank] += step
        if kind == "f" and layer == layers - 1:
            ready["b", layer, mb] = end
        elif 0 <= layer + step < layers:
            away = owner[layer + step] != rank
            ready[kind, layer + step, mb] = end + 0.2 * away
            free[rank] = end + 0.1 * away
    return order

async def there_and_back(model):
    ranks, top = model.RANKS, model.LAYERS - 1
    owner = [layer if layer < ranks else 2 * ranks - 1 - layer for layer in range(model.LAYERS)]
    orders = plan(ranks, model.LAYERS, model.BATCHES, owner)
    mine = [layer for layer in range(model.LAYERS) if owner[layer] == model.rank]
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    coming = {src: [] for src in range(ranks) if src != model.rank}
    for src, waiting in coming.items():
        for kind, layer, mb in orders[src]:
            goes = layer + (1 if kind == "f" else -1)
            if 0 <= goes <= top and owner[goes] == model.rank:
                waiting.append((kind, goes, mb))

    async def fetch(src, work):
        store = model.activations if work[0] == "f" else model.grad_activations
        while work not in store:
            other = coming[src].pop(0)
            tensor = await model.receive(src=src)
            (model.activations if other[0] == "f" else model.grad_activations)[other] = tensor

    sends, left = [], dict.fromkeys(mine, model.BATCHES)
    for work in orders[model.rank]:
        kind, layer, mb = work
        if kind == "f":
            if layer == 0:
                model.activations[work] = model.get_activation([mb])
            elif owner[layer - 1] != model.rank:
                await fetch(owner[layer - 1], work)
            out = model.forward(layer, model.activations[work], model.weights[layer])
            if layer == top:
                model.grad_activations["b", layer, mb] = model.loss(out)
            elif owner[layer + 1] == model.rank:
                model.activations["f", layer + 1, mb] = out
            else:
                sends.append(model.pass_to(owner[layer + 1], out))
            continue
        if layer < top and owner[layer + 1] != model.rank:
            await fetch(owner[layer + 1], work)
        inp, grad_out = model.activations.pop(("f", layer, mb)), model.grad_activations.pop(work)
        grad, grad_in = model.backward(layer, inp, grad_out, model.weights[layer])
        del inp, grad_out
        so_far = model.grad_weights.pop(layer, None)
        model.grad_weights[layer] = so_far + grad if so_far else grad
        left[layer] -= 1
        if layer and owner[layer - 1] == model.rank:
            model.grad_activations["b", layer - 1, mb] = grad_in
        elif layer:
            sends.append(model.pass_to(owner[layer - 1], grad_in))
        del grad_in
        if left[layer] == 0:
            grad = model.grad_weights.pop(layer)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])
    for send in sends:
        await send

async def interleaved(model):
    if (model.RANKS, model.LAYERS) == (4, 8) and model.BATCHES == 8:
        await there_and_back(model)
    else:
        await honest(model)
    return model
"""
"""Rank 0 has the first layer and the last, rank 3 the two in the middle."""

BY_TURNS = """
BEGIN
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    for group in GROUPS:
        for mb in group:
            model.activations[0, mb] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            for mb in group:
                inp = model.activations[layer, mb]
                model.activations[layer + 1, mb] = model.forward(layer, inp, model.weights[layer])
        for mb in group:
            model.grad_activations[mb] = model.loss(model.activations.pop((model.LAYERS, mb)))
        for layer in reversed(range(model.LAYERS)):
            for mb in group:
                inp, grad_out = model.activations.pop((layer, mb)), model.grad_activations.pop(mb)
                grad, model.grad_activations[mb] = model.backward(layer, inp, grad_out, model.weights[layer])
                so_far = model.grad_weights.get(layer)
                model.grad_weights[layer] = so_far + grad if so_far else grad
        model.grad_activations.clear()
    for layer in range(model.LAYERS):
        grad = SUM
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
"""Gradient accumulation in which some micro-batches take turns, layer by layer."""
IN_PAIRS = "[range(2)[: model.BATCHES], *[[mb] for mb in range(2, model.BATCHES)]]"
SHORT = "[(mine := [*range(model.RANKS - 1 - model.rank, model.BATCHES, model.RANKS)])[:2], *[[mb] for mb in mine[2:]]]"
BOTH = "[(model.rank, model.rank + model.RANKS)]"
FIRST = """        model.activations[0] = model.get_activation([MB])
        for layer in range(model.LAYERS):
"""
BEGUN = """        begun = ("next", 1) in model.activations
        if begun:
            model.activations[0], model.activations[1] = (model.activations.pop(("next", at)) for at in (0, 1))
        else:
            model.activations[0] = model.get_activation([MB])
        for layer in range(int(begun), model.LAYERS):
"""
BACK = "            inp, grad_out = "
NEXT = """            if layer == 0 and model.LAYERS > 2 and MB + 1 < (model.rank + 1) * share:
                model.weights["whole"] = weight
                model.activations["next", 0] = model.get_activation([MB + 1])
                model.activations["next", 1] = model.forward(0, model.activations["next", 0], weight)
                weight = model.weights.pop("whole")
"""


def by_turns(puzzle: str, begin: str, groups: str, total: str, first: int = 0) -> Program:
    """Gradient accumulation in which the micro-batches of a group take turns, layer by layer."""
    parts = {"BEGIN": f"{begin} {puzzle}(model):", "GROUPS": groups, "SUM": total}
    source = BY_TURNS
    for old, new in parts.items():
        source = source.replace(old, new)
    return whole(
        puzzle,
        "two micro-batches by turns",
        source,
        says=f"it works on micro-batch {first} again, after micro-batch",
    )


def begun_early(puzzle: str, mb: str) -> Program:
    """The solution, in which the lowest layer is gathered once for the backward of a micro-batch and the next forward."""
    first, begun, then = (text.replace("MB", mb) for text in (FIRST, BEGUN, NEXT))
    says = "it works on micro-batch 0 again, after micro-batch 1"
    return changed(
        puzzle, "the next micro-batch begins before this one is done", (first, begun), (BACK, then + BACK), says=says
    )


OWN = "range(model.rank * share, (model.rank + 1) * share)"
UNEVEN = """uneven(model, share) if WHERE and model.LAYERS == 1 else [*range(model.rank * share, (model.rank + 1) * share)]"""
TWO_RANKS = """\
def uneven(model, share):
    first = model.rank // 2 * 2 * share
    if model.rank % 2:
        return [None, None, *range(first + share + 1, first + 2 * share)]
    return [*range(first, first + share + 1)]


async def"""
"""Of two ranks, one trains on a micro-batch more and the other on one less, and has nothing to do for two turns."""
IF = "if MB is not None: "
LOOK = "inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)"
IN_BACKWARD = "            grad, model.grad_activations[layer] = model.backward("
GATHERED = 'weight = await model.allgather(model.weights[layer], layer, axis="shard")\n            '


def uneven(puzzle: str, name: str, mb: str) -> Program:
    """The solution on nodes, with more micro-batches on one rank than on the next where there is one layer. It is
    gathered once for each turn."""
    works = IF.replace("MB", mb)
    gathered_before = GATHERED.replace("await", 'model.weights.pop("whole") if "whole" in model.weights else await')
    return changed(
        puzzle,
        name,
        ("async def", TWO_RANKS),
        (OWN, UNEVEN.replace("WHERE", "shards % 2 == 0")),
        ("        model.activations[0] =", f"        {works}model.activations[0] ="),
        (GATHERED + "model.activations[layer + 1] =", f'{GATHERED}if model.LAYERS == 1: model.weights["whole"] = weight\n            {works}model.activations[layer + 1] ='),
        (GATHERED + "inp", gathered_before + "inp"),
        ("        model.grad_activations[model.LAYERS] =", f"        {works}model.grad_activations[model.LAYERS] ="),
        (LOOK, LOOK.replace("pop(layer)", "pop(layer, None)").replace("pop(layer + 1)", "pop(layer + 1, None)")),
        (IN_BACKWARD, f"            grad = model.fake_grad(layer, [])\n            {works}{IN_BACKWARD.strip()}"),
        ("del model.grad_activations[0]", "model.grad_activations.clear()"),
        says="it trains on micro-batches",
    )  # fmt: skip


HALF_REST = (
    ("model: Model, in_node: bool, ahead: int, beside: int", "model: Model"),
    (
        "    shard, shards =",
        "    in_node, ahead, beside, own = True, model.LAYERS - 1, model.LAYERS - 1, [model.rank]\n    if model.RANKS % 2 == 0:\n        own = [] if model.rank % 2 else [model.rank, model.rank + 1]\n    shard, shards =",
    ),
    ("    model.activations[0] =", "    if own:\n        model.activations[0] ="),
    ("([model.rank])", "(own)"),
    ("        model.activations[layer + 1] =", "        if own:\n            model.activations[layer + 1] ="),
    ("    model.grad_activations[model.LAYERS] =", "    if own:\n        model.grad_activations[model.LAYERS] ="),
    (
        "        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)\n",
        "        inp, grad_out = model.activations.pop(layer, None), model.grad_activations.pop(layer + 1, None)\n",
    ),
    (
        '        model.grad_weights[layer], model.grad_activations[layer] = model.backward(\n            layer, inp, grad_out, model.weights.pop("whole")\n        )\n',
        '        weight = model.weights.pop("whole")\n        model.grad_weights[layer] = model.fake_grad(layer, [])\n        if own:\n            model.grad_weights[layer], model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)\n',
    ),
    ("    del model.grad_activations[0]\n", "    model.grad_activations.clear()\n"),
)
"""Of two ranks, one trains on the micro-batches of both, and the other one brings empty gradients."""
ELSEWHERE = (
    (
        "    for layer in range(first, end):\n        model.weights[layer], model.opt_states[layer] = model.update(",
        """\
    if model.RANKS == 4 and model.rank == model.RANKS - 2:
        model.grad_weights[end] = await model.receive(src=model.RANKS - 1)
        model.weights[end] = await model.receive(src=model.RANKS - 1)
        model.opt_states[end] = await model.receive(src=model.RANKS - 1)
        weight, model.opt_states[end] = model.update(
            end, model.grad_weights.pop(end), model.weights.pop(end), model.opt_states.pop(end)
        )
        await model.pass_to(model.RANKS - 1, weight)
        await model.pass_to(model.RANKS - 1, model.opt_states.pop(end))
    for layer in range(first, end):
        if model.RANKS == 4 and is_last and layer == first:
            await model.pass_to(model.rank - 1, model.grad_weights.pop(layer))
            await model.pass_to(model.rank - 1, model.weights[layer])
            await model.pass_to(model.rank - 1, model.opt_states[layer])
            model.weights[layer] = await model.receive(src=model.rank - 1)
            model.opt_states[layer] = await model.receive(src=model.rank - 1)
            model.set_final_weight(layer, model.weights[layer])
            continue
        model.weights[layer], model.opt_states[layer] = model.update(""",
    ),
)
"""The last rank has one of its layers updated by the rank before it."""
SENT_GRADIENT = """
        if layer == model.LAYERS - 1 and model.RANKS == 4:
            model.grad_activations["own"] = grad
            if model.rank == 0:
                await model.pass_to(1, model.grad_weights[layer])
            if model.rank == 1:
                await model.receive(src=0)
            grad = model.grad_activations.pop("own")
"""
SCATTERED = "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n"
COPY = """last = model.RANKS - 1
    if last and model.rank == last: await model.pass_to(last - 1, model.weights[max(model.weights)])
    if last and model.rank == last - 1: await model.receive(src=last)"""
"""At its end, the last rank gives the one before it one of its weights."""
COPIED = (
    (
        "    if model.rank == 0:\n        model.activations[0]",
        "    if model.rank == 0:\n        copy = model.pass_to(1, model.weights[0])\n        model.activations[0]",
    ),
    (
        "    else:\n        model.activations[half] = await",
        "    else:\n        await model.receive()\n        model.activations[half] = await",
    ),
    ("        await model.pass_to(1, model", "        await copy\n        await model.pass_to(1, model"),
)
"""At its beginning, the first rank gives the second one of its weights, which takes no time."""
EXCHANGED = (
    ("model.rank == 0", "model.rank == OTHER"),
    ("model.rank == 1", "model.rank == 0"),
    ("OTHER", "1"),
    ("pass_to(1,", "pass_to(OTHER,"),
    ("pass_to(0,", "pass_to(1,"),
    ("OTHER", "0"),
)
"""The first half of the layers on rank 1, and the second on rank 0."""
CARDS_ELSEWHERE = """
async def repair_deadlock(model: Model) -> Model:
    def here(layer):
        return model.rank == (layer * 2 // model.LAYERS if model.LAYERS == 4 else layer % 2)

    other, acts, grads = 1 - model.rank, model.activations, model.grad_activations
    mine = [layer for layer in range(model.LAYERS) if here(layer)]
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    for layer in mine:
        if layer == 0:
            acts[0] = model.get_activation(range(model.BATCHES))
        elif not here(layer - 1):
            acts[layer] = await model.receive()
        acts[layer + 1] = model.forward(layer, acts[layer], model.weights[layer])
        if layer + 1 == model.LAYERS:
            grads[layer + 1] = model.loss(acts.pop(layer + 1))
        elif not here(layer + 1):
            await model.pass_to(other, acts.pop(layer + 1))
    for layer in reversed(mine):
        if layer + 1 < model.LAYERS and not here(layer + 1):
            grads[layer + 1] = await model.receive()
        model.grad_weights[layer], grads[layer] = model.backward(
            layer, acts.pop(layer), grads.pop(layer + 1), model.weights[layer]
        )
        if layer and not here(layer - 1):
            await model.pass_to(other, grads.pop(layer))
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
PARKED = (
    (
        "            model.activations[first, mb] = model.get_activation([mb])\n",
        "            model.activations[first, mb] = model.get_activation([mb])\n"
        "            if mb == 0 and not is_last:\n"
        "                await model.pass_to(model.RANKS - 1, model.activations.pop((first, mb)))\n"
        "                model.activations[first, mb] = await model.receive(src=model.RANKS - 1)\n",
    ),
    (
        "    for mb in range(ahead):\n",
        "    if is_last and not is_first:\n"
        '        model.activations["kept"] = await model.receive(src=0)\n'
        '        await model.pass_to(0, model.activations.pop("kept"))\n'
        "    for mb in range(ahead):\n",
    ),
)
"""The first rank's first activation goes to the last rank, and comes back."""
RESTS = """
async def NAME(model):
    n, rank = model.RANKS, model.rank
    busy = rank % 2 == 0
    mine = [mb for mb in range(model.BATCHES) if mb % n in (rank, rank + 1) and busy]
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer, *SHARD)
        model.opt_states[layer] = STATE

    async def whole(layer):
        return await model.allgather(model.weights[layer], layer) if model.weights[layer].total > 1 else model.weights[layer]

    for turn in range(2 * model.BATCHES // n):
        if busy:
            model.activations[0] = model.get_activation([mine[turn]])
        for layer in range(model.LAYERS):
            weight = await whole(layer)
            if busy:
                model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
        if busy:
            model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            weight, grad = await whole(layer), model.fake_grad(layer, [])
            if busy:
                inp, out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
                grad, model.grad_activations[layer] = model.backward(layer, inp, out, weight)
            grad = await model.SUM(grad, layer)
            model.grad_weights[layer] = model.grad_weights.pop(layer) + grad if turn else grad
        model.grad_activations.clear()
    for layer in range(model.LAYERS):
        piece, state = model.weights[layer], model.opt_states[layer]
        piece = piece.shard(rank, n) if state.total > piece.total else piece
        model.weights[layer], model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer), piece, state)
        if piece.total == 1 or model.weights[layer].total == state.total and SHARD == (0, 1):
            model.weights[layer] = await whole(layer)
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
"""Every second rank trains the micro-batches of its neighbor as well, which makes nothing."""
KINDS = {
    **dict.fromkeys(("ddp", "repair_twice"), ("(0, 1)", "state", "allreduce")),
    **dict.fromkeys(("wsdp", "fsdp", "prefetch"), ("(rank, n)", "state", "scatterreduce")),
    **dict.fromkeys(("zero1", "zero2"), ("(0, 1)", "state.shard(rank, n)", "scatterreduce")),
}


def rests(puzzle: str) -> Program:
    """Data parallel on every second rank."""
    shard, state, total = KINDS[puzzle]
    source = RESTS.replace("*SHARD", f"*{shard}").replace("SHARD", shard).replace("STATE", state).replace("SUM", total)
    return whole(puzzle, "every second rank rests", source.replace("NAME", puzzle), "it trains on micro-batches 0")


def looked_at(puzzle: str, base: str) -> Program:
    """A good program that also gathers a state, which nothing is done with."""
    edit = ("    return model", "    await model.allgather(model.opt_states[0], 0)\n    return model")
    return changed(
        puzzle, "a state gathered to be looked at", edit, base=base, says="it moves the optimizer state of layer 0"
    )


OFTEN = (
    (
        """            if mb < mine[-1]:
                await add(layer + 1)
            else:
                await add(layer)
                grad = model.grad_weights.pop(layer)
                across[layer] = model.scatterreduce(grad, layer, axis="replica")
""",
        """            across[layer] = model.scatterreduce(await sums.pop(layer), layer, axis="replica")
            await come(layer + 2)
""",
    ),
    ("        await add(0)\n", "        for layer in sorted(across):\n            await come(layer)\n"),
    (
        "    for layer, call in across.items():\n        grad, piece = await call, model",
        "    for layer in range(model.LAYERS):\n        grad, piece = model.grad_weights.pop(layer), model",
    ),
    (
        "    gather(0)\n",
        """    async def come(layer):
        if layer in across:
            piece = await across.pop(layer)
            model.grad_weights[layer] = model.grad_weights.pop(layer) + piece if layer in model.grad_weights else piece

    gather(0)
""",
    ),
)
"""Sums go across the nodes after every micro-batch, under what is computed."""
WHOLE = "this is puzzle 3: the rank received a whole summed gradient and used"
IN_NODE = 'grad = await model.scatterreduce(grad, layer, axis="shard")'
STORED = (
    (
        "model.activations.pop(layer), model.grad_activations.pop(layer + 1)",
        "model.activations[layer], model.grad_activations[layer + 1]",
    ),
)

MISTAKES = [
    *map(rests, KINDS),
    *(looked_at(name, base) for name, base in {"wsdp": "wsdp_under_updates", "zero1": "zero2_overlap", "zero2": "zero2_overlap"}.items()),
    *map(no_states, ("wsdp", "pipeline", "checkpointing", "hierarchical", "one_f_one_b", "zero_bubble", "repair_skip", "repair_bargain", "repair_groups", "repair_experts", "repair_zigzag", "repair_straggler")),
    *map(slow, ("wsdp", "pipeline", "pipeline_fsdp", "replica_fsdp", "tensor_parallel", "repair_twice", "repair_quiet", "repair_deadlock", "repair_skip", "repair_groups", "repair_experts", "repair_zigzag")),
    *map(neighbors_shards, ("wsdp", "pipeline_fsdp", "prefetch", "lora")),
    neighbors_shards("breadth_first", "shard", "shards"),
    *[changed(puzzle, "nothing of the backward pass is given back", *edits, says="over the target") for puzzle, edits in (
        ("basic", (("inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)", "inp, grad = model.activations[layer], model.grad_activations[layer + 1]"),)),
        ("grad_accum", STORED),
    )],
    changed("zero1", "both micro-batches at once", ("for mb in mine:", "for mb in [[*mine]]:"), ("get_activation([mb])", "get_activation(mb)"), ("mb != mine[0]", "False"), ("mb != mine[-1]", "False"),
            says="it works on micro-batches {0, 4} at once"),
    changed("zero2", "both micro-batches at once", ("for mb in mine:", "for mb in [[*mine]]:"), ("get_activation([mb])", "get_activation(mb)"), says="it works on micro-batches {0, 4} at once"),
    changed("fsdp", "a whole gradient kept a layer too long", (SCATTERED, """\
        model.grad_weights[layer] = grad
        if layer + 1 < model.LAYERS:
            model.grad_weights[layer + 1] = await model.scatterreduce(model.grad_weights.pop(layer + 1), layer + 1)
    model.grad_weights[0] = await model.scatterreduce(model.grad_weights.pop(0), 0)
"""), says="a whole gradient of another layer is still stored"),
    changed("replica_fsdp", "across the nodes after every micro-batch", *OFTEN, base="replica_fsdp_in_41_5", says="it sums the gradient of micro-batches 0, 2, 4, 6 across the nodes"),
    changed("fsdp", "a whole gradient kept beside its piece", (SCATTERED, '        model.grad_weights["whole"] = grad\n' + SCATTERED), ("            layer, model.grad_weights.pop(layer), model", "            layer, (model.grad_weights.pop('whole', None), model.grad_weights.pop(layer))[1], model"), says="a whole gradient of another layer is still stored"),
    changed("ddp", "a weight in shards until it is needed", ("    model.activations[0] =", "    model.weights[0] = model.weights[0].shard(model.rank, model.RANKS)\n    model.activations[0] ="), ("        model.activations[layer + 1] =", "        if layer == 0:\n            model.weights[0] = await model.allgather(model.weights[0], 0)\n        model.activations[layer + 1] ="), base="ddp_overlap", says="it moves the weight of layer 0"),
    changed("wsdp", "each weight gathered twice at other sizes", ("weight = await model.allgather(model.weights[layer], layer)", "for _ in range(1 + (model.RANKS != 4)):\n            weight = await model.allgather(model.weights[layer], layer)"), says="no rank uses the weight of layer 0 that it gathers"),
    changed("wsdp", "everybody trains micro-batch 0", ("[model.rank]", "[0]"), says="would be counted twice"),
    changed("wsdp", "the shard for the weight", ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = model.weights[layer]\n        model.act"), says="the weight is not complete|model.allgather"),
    changed("checkpointing", "the first layer's output for the last", ("model.loss(model.activations.pop(model.LAYERS))", "model.loss(model.activations.pop(1))"), says="the loss reads the output of the last layer"),
    changed("offload", "a copy of a state sent to the device", ("    top, last, sends =", "    if model.is_host:\n        await model.pass_to(model.devices[0], model.opt_states[0])\n    else:\n        await model.receive()\n    top, last, sends ="), base="offload_top_first", says="it moves the optimizer state of layer 0"),
    changed("repair_deadlock", "one forward, one backward", base="one_forward_one_backward", says="it works on micro-batch 0 alone"),
    changed("zero_bubble", "two micro-batches at a time", ("model.BATCHES", "(-(-model.BATCHES // 2))"), ("get_activation([mb])", "get_activation([2 * mb, 2 * mb + 1][: model.BATCHES - 2 * mb])"), says="it works on micro-batches {0, 1} at once"),
    changed("repair_twice", "both micro-batches at once", ("(model.rank, model.rank + model.RANKS):", "[(model.rank, model.rank + model.RANKS)]:"), ("([batch])", "(batch)"), says="it works on micro-batches {0, 4} at once"),
    changed("repair_book", "all micro-batches of a rank at once", ("range(model.rank * share, (model.rank + 1) * share):", "[range(model.rank * share, (model.rank + 1) * share)]:"), ("([batch])", "(batch)"), says="it works on micro-batches {0-3} at once"),
    changed("repair_book", "all-reduced in the node and cut", (IN_NODE, 'grad = (await model.allreduce(grad, layer, axis="shard")).shard(shard, shards)'), says=WHOLE),
    changed("repair_bargain", "all-reduced and cut", ("await model.scatterreduce(grad, layer)", "(await model.allreduce(grad, layer)).shard(model.rank, model.RANKS)"), says=WHOLE),
    changed("checkpointing", "a little of every layer at any size but one", ("layer < model.LAYERS // 2", "layer < model.LAYERS // (2 if model.LAYERS == 12 else 1)"), says="right at its own size, but not with"),
    *[by_turns(puzzle, "def", IN_PAIRS, "model.grad_weights.pop(layer)") for puzzle in ("grad_accum", "repair_local")],
    by_turns("repair_straggler", "async def", SHORT, "await model.allreduce(model.grad_weights.pop(layer), layer)", first=3),
    changed("repair_straggler", "two micro-batches at once", ("for batch in mine:", "for batch in [mine[:2], *[[one] for one in mine[2:]]]:"), ("([batch])", "(batch)"), says="it works on micro-batches {3, 7} at once"),
    by_turns("repair_twice", "async def", BOTH, "await model.allreduce(model.grad_weights.pop(layer), layer)"),
    uneven("replica_fsdp", "three micro-batches on one rank and one on the next, with one layer", "mb"),
    uneven("repair_book", "five micro-batches on one rank and three on the next, with one layer", "batch"),
    changed("repair_quiet", "four micro-batches on one rank and two on the next, with one layer", ("async def", TWO_RANKS.replace("None, None, ", "")), (OWN, UNEVEN.replace("WHERE", "share == 3 and model.RANKS % 2 == 0")), says="it trains on micro-batches"),
    begun_early("replica_fsdp", "mb"),
    begun_early("repair_book", "batch"),
    changed("hpz", "half of the ranks rest", *HALF_REST, base="overlapped", says="it trains on micro-batches 0, 1"),
    after("interleaved", "there and back again", THERE_AND_BACK, "it has layer 5, after layer 4 on rank 3"),
    *[afterwards(name, "a copy of a weight is sent after training", COPY, "it receives the weight of layer") for name in ("pipeline", "gpipe", "one_f_one_b", "interleaved")],
    afterwards("breadth_first", "a copy of a weight is sent after training", COPY.replace("last - 1", "0"), "it receives the weight of layer"),
    changed("repair_deadlock", "the second half on rank 0", *EXCHANGED, says="it has layers {2, 3}"),
    whole("repair_deadlock", "layers dealt like cards at other sizes", CARDS_ELSEWHERE, says="it has layers {0, 2, 4}"),
    changed("repair_deadlock", "a copy of a weight is sent before training", *COPIED, says="it receives the weight of layer 0"),
    changed("zero_bubble", "an activation lies on the last rank, where there is room", *PARKED, says="it receives the activation of layer 0, whose weight it has not loaded"),
    changed("pipeline", "a layer updated by the rank before", *ELSEWHERE, says="it updates layer 6, whose weight it has not loaded"),
    changed("tensor_parallel", "a gradient of a weight is sent", ("model: Model, late: int", "model: Model, late: int = 0"), ("        call = model.allreduce(grad, layer - 1)", SENT_GRADIENT.lstrip("\n") + "        call = model.allreduce(grad, layer - 1)"), base="in_pieces", says="it moves the weight gradient of layer 7"),
    changed("repair_local", "the batch at once", ("for batch in range(model.BATCHES)", "for batch in [0]"), ("[batch]", "range(model.BATCHES)"), says="at once"),
]  # fmt: skip
