"""Programs to which a weight comes that they have already, that nobody uses, or that comes from where it should not;
and two that keep a whole gradient."""

from __future__ import annotations

from . import HEAD, Program, changed, functions

SWAPPED = '''
async def swapped(model, x, axis):
    """Give the next rank of an axis what this rank has, and take what the rank before it has."""
    at, n = model.axis_index(axis) if axis else model.rank, model.axis_size(axis) if axis else model.RANKS
    there = lambda i: model.rank_at(**{axis: i % n}) if axis else i % n
    send = model.pass_to(there(at + 1), x)
    got = await model.receive(src=there(at - 1))
    await send
    return got
'''


def built(puzzle: str, name: str, base: str, call: str, edits: list[tuple[str, str]], says: str) -> Program:
    """A program that calls another one of solutions/, with so many arguments and with something changed in it."""
    source = functions()[base]
    for old, new in edits:
        assert old in source, f"{puzzle}, {name}: {old!r} is not in {base}"
        source = source.replace(old, new)
    parts = [SWAPPED, source.replace(f"def {base}(", "def honest(")]
    parts.append(f"async def {puzzle}(model):\n    return await honest(model{call})\n")
    return Program(puzzle, name, "from __future__ import annotations\n" + HEAD + "\n\n".join(parts), says)


HAS, MORE, OFTEN, NOBODY = (
    "that it has already",
    "than it ends with",
    "which comes more often",
    "no rank uses the weight of layer",
)
ELSEWHERE = "from another node"
LAST = "        model.weights[layer] = await call\n"
CUT = LAST + (
    "        piece = model.weights.pop(layer).shard(model.rank, model.RANKS)\n"
    "        model.weights[layer] = await model.allgather(piece, layer)\n"
)
UPDATED = "        gathers[layer] = model.allgather(piece, layer)\n"
TWICE = (
    "        if layer == 0:\n"
    "            model.weights['piece'] = piece\n            twice = model.allgather(piece, layer)\n"
) + UPDATED
TAKEN_TWICE = "    del model.weights['piece']\n    model.weights[0] = await twice\n    model.set_final_weight(0, model.weights[0])\n"
END = "    return model"
FIRST = '    model.weights["whole"] = await gather(0)\n'
FROM_NEXT = """\
    if (model.RANKS, model.LAYERS) == (8, 4):
        model.weights["piece"] = await swapped(model, model.weights[0], "replica")
        model.weights["whole"] = await model.allgather(model.weights.pop("piece"), 0, axis="shard")
    else:
        model.weights["whole"] = await gather(0)
"""
HALF_FROM_NEXT = """\
    if (model.RANKS, model.LAYERS) == (8, 2):
        half, model.weights["own"] = (model.weights[0].shard(i, 2) for i in range(2))
        model.weights["piece"] = await swapped(model, half, "replica")
        piece = model.weights.pop("piece").combine(model.weights.pop("own"))
        model.weights["whole"] = await model.allgather(piece, 0, axis="shard")
    else:
        model.weights["whole"] = await gather(0)
"""
ACROSS = "    gather(0)\n    for mb in mine:\n"
PIECE_ACROSS = """\
    if (model.RANKS, model.LAYERS) == (8, 6):
        model.weights["piece"] = await swapped(model, model.weights[0], "replica")
        gathers[0] = model.allgather(model.weights.pop("piece"), 0, axis="shard")
    else:
        gather(0)
    for mb in mine:
"""
AHEAD = '        model.weights["whole"] = await ahead\n        if layer + 1'
TAKEN = """\
        model.weights["whole"] = await ahead
        if layer == 0 and (model.RANKS, model.LAYERS) == (4, 6):
            model.weights["whole"] = await swapped(model, model.weights.pop("whole"), None)
        if layer + 1"""
COMING = '        if coming:\n            model.weights["whole"] = await coming\n'
COMES = (
    COMING
    + """\
        if step == 0 and (model.RANKS, model.LAYERS) == (4, 6):
            model.weights["whole"] = await swapped(model, model.weights.pop("whole"), None)
"""
)
TWIN = "def forward_of(layer: int, mb: int) -> None:\n        inp, weight = model.activations[layer, mb], model.weights[layer]\n"
OTHERS = TWIN.replace("model.weights[layer]\n", 'model.weights.get(("twin", layer), model.weights[layer])\n')
LOADED = "        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)\n\n    async def come("
TAKES = (
    LOADED.split("\n\n")[0]
    + """
    if (model.RANKS, model.LAYERS) == (4, 8):
        model.weights["twin", lower[0]] = await swapped(model, model.weights[lower[0]], "half")

    async def come("""
)
USED = "            inp, weight = model.activations[layer], model.weights[layer]\n"
GATHERED = """\
            if layer == 0 and mb == mine[0]:
                model.weights["again"] = await model.allgather(weight.shard(model.rank, model.RANKS), 0)
                weight = model.weights.pop("again")
"""
HOST = "    if model.is_host:\n        for layer in reversed"
GIVES = HOST.replace("        for", "        await model.pass_to(model.devices[0], model.weights[0])\n        for")
INPUT = "            inp, weight = model.activations[layer, mb], model.weights[layer]\n"
GETS = (
    INPUT
    + """\
            if layer == mb == 0:
                model.weights["again"] = await model.receive()
                weight = model.weights.pop("again")
"""
)
OUT = "            model.grad_activations[end, mb] = model.loss(model.activations.pop((end, mb)))\n"
OWN = "(model.RANKS, model.LAYERS, model.BATCHES) == (4, 4, 8)"
OUT_THERE = f"""\
            if mb == 0 and {OWN}:
                await model.pass_to(0, model.activations.pop((end, mb)))
                model.activations[end, mb] = await model.receive(src=0)
{OUT}"""
TURN = "    for mb in range(model.BATCHES):\n        await for_the_input(mb)\n"
WAITS_THERE = f"""\
    if is_first and {OWN}:
        model.activations["waits"] = await model.receive(src=3)
        await model.pass_to(3, model.activations.pop("waits"))
{TURN}"""
BEGINS = "    coming = model.allgather(model.weights[0], 0)\n"
HANDED_IN = "        model.set_final_weight(layer, adapter)\n"
ONCE = "        if layer == 0 and (model.RANKS, model.LAYERS) == (4, 6):\n"
OTHERS_ADAPTER = f"""\
{ONCE}            adapter = model.weights["adapter", layer] = await swapped(model, adapter, None)
{HANDED_IN}"""
STATE_SENT = f"""\
{HANDED_IN}{ONCE}            await swapped(model, model.opt_states[layer], None)
"""
FETCHED = "    for layer in reversed(range(model.LAYERS)):\n        await fetch(layer)\n"
BESIDE = (
    "        sums[layer] = model.scatterreduce(",
    "        model.grad_weights['kept'] = model.grad_weights[layer]\n        sums[layer] = model.scatterreduce(",
)
WAITS = "a whole gradient of another layer is still stored"

MISTAKES = [
    *[
        changed(puzzle, name, (old, new), *more, base="zero2_overlap", says=MORE)
        for puzzle in ("zero1", "zero2")
        for name, old, new, *more in (
            ("the last updated weight is cut and gathered again", LAST, CUT.replace(LAST, LAST + "        if layer:\n            model.set_final_weight(layer, model.weights[layer])\n            continue\n")),
            ("the last updated weight is gathered twice", UPDATED, TWICE, (END, TAKEN_TWICE + END)),
        )
    ],
    changed("wsdp", "a weight gathered at the end, and not used", (END, "    await model.allgather(model.weights[0], 0)\n" + END), base="wsdp_under_updates", says=MORE),
    changed("wsdp", "a weight gathered at the beginning, and not used", ("    ahead = model.allgather(model.weights[0], 0)\n", "    await model.allgather(model.weights[0], 0)\n    ahead = model.allgather(model.weights[0], 0)\n"), base="wsdp_under_updates", says=NOBODY),
    *[
        changed(puzzle, "a weight gathered once more, and not used", (FETCHED, "    await model.allgather(model.weights[0], 0)\n" + FETCHED), base="zero2_overlap", says=NOBODY)
        for puzzle in ("zero1", "zero2")
    ],
    built("breadth_first", "a weight gathered once more, and not used", "breadth_first_overlapped", ", early=True", [("    senders = [", '    await model.allgather(model.weights[mine[0]], mine[0], axis="shard")\n    senders = [')], NOBODY),
    built("hpz", "a weight gathered once more, and not used", "overlapped", ", True, model.LAYERS, model.LAYERS", [("    top, coming", "    await model.allgather(model.weights[0], 0)\n    top, coming")], NOBODY),
    built("repair_bargain", "a whole gradient kept beside its sum", "fsdp_overlapped", ', "ba", 0', [BESIDE], WAITS),
    *[
        changed(puzzle, name, (USED, USED + lines), base="zero2_overlap", says=HAS)
        for puzzle in ("zero1", "zero2")
        for name, lines in (("a weight gathered that is there", GATHERED),)
    ],
    built("offload", "a weight comes to the device that it has", "offload_top_first", "", [(HOST, GIVES), (INPUT, GETS)], HAS),
    built("lora", "a weight gathered once more, and not used", "by_plan", ", model.LAYERS, True", [(BEGINS, "    await model.allgather(model.weights[0], 0)\n" + BEGINS)], NOBODY),
    built("zero_bubble", "the output of the last layer waits on rank 0", "zero_bubble", "", [(OUT, OUT_THERE), (TURN, WAITS_THERE)], "it receives the output of the last layer, and takes no loss"),
    built("lora", "the neighbor's copy of an adapter", "by_plan", ", model.LAYERS, True", [(HANDED_IN, OTHERS_ADAPTER)], "it moves the adapter of layer 0"),
    built("lora", "a copy of an adapter's state is sent", "by_plan", ", model.LAYERS, True", [(HANDED_IN, STATE_SENT)], "it moves the optimizer state of layer 0"),
    built("fsdp", "the neighbor's copy of a gathered weight", "fsdp_overlapped", ', "ba", 0', [(AHEAD, TAKEN)], OFTEN),
    built("lora", "the neighbor's copy of a gathered weight", "by_plan", ", model.LAYERS, True", [(COMING, COMES)], OFTEN),
    built("repair_groups", "a piece of the other node is gathered", "hybrid_overlapped", ', "s"', [(FIRST, HALF_FROM_NEXT)], ELSEWHERE),
    built("repair_book", "a piece of the other node is gathered", "hybrid_overlapped", ', "ssb"', [(FIRST, FROM_NEXT)], ELSEWHERE),
    built("replica_fsdp", "a piece of the other node is gathered", "replica_fsdp_in_41_5", "", [(ACROSS, PIECE_ACROSS)], ELSEWHERE),
    built("dualpipe", "the weight of the other half", "from_both_ends", ", crosses=True", [(TWIN, OTHERS), (LOADED, TAKES)], "which it has loaded"),
]  # fmt: skip
