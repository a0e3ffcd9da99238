"""Programs to which a weight comes that they have already, or that nobody uses; and one that keeps a whole gradient."""

from . import HEAD, Program, changed, functions


def built(puzzle: str, name: str, base: str, call: str, edits: list[tuple[str, str]]) -> Program:
    """A program that calls another one of solutions/, with so many arguments and with something changed in it."""
    source = functions()[base]
    for old, new in edits:
        assert old in source, f"{puzzle}, {name}: {old!r} is not in {base}"
        source = source.replace(old, new)
    parts = [source.replace(f"def {base}(", "def honest(")]
    parts.append(f"async def {puzzle}(model):\n    return await honest(model{call})\n")
    return Program(puzzle, name, "from __future__ import annotations\n" + HEAD + "\n\n".join(parts))


END = "    return model"
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
FETCHED = "    for layer in reversed(range(model.LAYERS)):\n        await fetch(layer)\n"
BESIDE = (
    "        sums[layer] = model.scatterreduce(",
    "        model.grad_weights['kept'] = model.grad_weights[layer]\n        sums[layer] = model.scatterreduce(",
)

MISTAKES = [
    changed("wsdp", "a weight gathered at the end, and not used", (END, "    await model.allgather(model.weights[0], 0)\n" + END), base="wsdp_under_updates"),
    *[
        changed(puzzle, "a weight gathered once more, and not used", (FETCHED, "    await model.allgather(model.weights[0], 0)\n" + FETCHED), base="zero2_overlap")
        for puzzle in ("zero1", "zero2")
    ],
    built("repair_bargain", "a whole gradient kept beside its sum", "fsdp_overlapped", ', "ba", 0', [BESIDE]),
    *[changed(puzzle, "a weight gathered that is there", (USED, USED + GATHERED), base="zero2_overlap") for puzzle in ("zero1", "zero2")],
    built("offload", "a weight comes to the device that it has", "offload_top_first", "", [(HOST, GIVES), (INPUT, GETS)]),
]  # fmt: skip
