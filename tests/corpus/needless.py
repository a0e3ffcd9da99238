"""Programs that do something for nothing: what it gives is used by nobody. There is time for it; at other sizes only, it
is a mistake."""

from . import changed

RETURN = "    return model"
BARRIER = "    await model.allreduce(model.fake_grad(0, []), 0)\n"
COPY = """    if model.RANKS > 1:
        send = model.pass_to((model.rank + 1) % model.RANKS, model.grad_weights[0])
        KEEP await model.receive(src=(model.rank - 1) % model.RANKS)
        await send
"""
"""At its end each rank sends the next one a summed gradient, which this one has as well."""
SUM_STAYS = (
    "        grad = await sums[layer]\n",
    "        grad = await sums[layer]\n        if layer == 0:\n            model.grad_weights[0] = grad\n",
)
CLAMPED = (
    (
        "        if layer + 1 < model.LAYERS:\n            ahead = model.allgather(model.weights[layer + 1], layer + 1)\n",
        "        after = min(layer + 1, model.LAYERS - 1)\n"
        "        ahead = model.allgather(model.weights[after], after)\n",
    ),
    ("    sums = {}\n", "    sums = {}\n    await ahead\n"),
)
"""The next weight is gathered ahead, and after the last one it again."""
NOTHING_SUMMED = "    await model.CALL(model.fake_grad(LAYER, []), LAYER)\n"
NOTHING_SENT = """    if model.RANKS > 1:
        model.grad_weights[1] = model.fake_grad(1, [])
        send = model.pass_to((model.rank + 1) % model.RANKS, model.grad_weights[1])
        await model.receive(src=(model.rank - 1) % model.RANKS)
        await send
"""
AT_OTHERS = "if model.RANKS != 4:"


def elsewhere(lines: str) -> str:
    """The same at other sizes only."""
    return f"    {AT_OTHERS}\n" + "".join(f"    {line}\n" for line in lines.splitlines())


HONEST = [
    changed("ddp", "a barrier at the end", (RETURN, BARRIER + RETURN), base="ddp_overlap"),
    changed("prefetch", "the last weight gathered ahead once more", *CLAMPED),
    changed("ring_attention", "a copy of a gradient after training", SUM_STAYS, (RETURN, COPY.replace("KEEP ", "") + RETURN)),
]  # fmt: skip

MISTAKES = [
    changed("tensor_parallel", "zeros for a gradient are summed", (RETURN, NOTHING_SUMMED.replace("CALL", "allreduce").replace("LAYER", "0") + RETURN)),
    *[changed(name, "zeros for a gradient of experts are summed", (RETURN, NOTHING_SUMMED.replace("CALL", "scatterreduce").replace("LAYER", "1") + RETURN)) for name in ("repair_experts",)],
    *[changed(name, "zeros for a gradient of experts are sent", (RETURN, NOTHING_SENT + RETURN)) for name in ("repair_experts",)],
    changed("ddp", "a barrier at the end, at other sizes", (RETURN, elsewhere(BARRIER) + RETURN), base="ddp_overlap"),
]  # fmt: skip
