"""Programs that do something for nothing: what it gives is used by nobody. There is time for it; at other sizes only, it
is a mistake."""

from __future__ import annotations

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
IDLE = """    if is_first and not is_last:
        model.forward(first, model.activations[first, 0], model.weights[first])
"""
CLAMPED = (
    (
        "        if layer + 1 < model.LAYERS:\n            ahead = model.allgather(model.weights[layer + 1], layer + 1)\n",
        "        after = min(layer + 1, model.LAYERS - 1)\n"
        "        ahead = model.allgather(model.weights[after], after)\n",
    ),
    ("    sums = {}\n", "    sums = {}\n    await ahead\n"),
)
"""The next weight is gathered ahead, and after the last one it again."""
ZEROS = (
    (
        "            layers = list(model.grad_weights)\n",
        "            layers = list(model.grad_weights)\n"
        "            more = [one for one in [(layer - 1) % model.LAYERS] if one not in layers]\n",
    ),
    (
        "model.allreduce(bucket, layers)",
        "model.allreduce(bucket + [model.fake_grad(one, []) for one in more], layers + more)",
    ),
    ("        for grad in await call:\n", "        for grad in [one for one in await call if one.batches]:\n"),
)
NOTHING_SUMMED = "    await model.CALL(model.fake_grad(LAYER, []), LAYER)\n"
NOTHING_SENT = """    if model.RANKS > 1:
        model.grad_weights[1] = model.fake_grad(1, [])
        send = model.pass_to((model.rank + 1) % model.RANKS, model.grad_weights[1])
        await model.receive(src=(model.rank - 1) % model.RANKS)
        await send
"""
AT_OTHERS = "if model.RANKS != 4:"
NO_RANK = "no rank uses what"
GATHER = "    await model.allgather(model.weights[0], 0)\n"
CUT = "    (await model.allgather(model.weights[0], 0)).shard(model.rank, model.RANKS)\n"


def elsewhere(lines: str) -> str:
    """The same at other sizes only."""
    return f"    {AT_OTHERS}\n" + "".join(f"    {line}\n" for line in lines.splitlines())


HONEST = [
    changed("ddp", "a barrier at the end", (RETURN, BARRIER + RETURN), base="ddp_overlap"),
    changed("prefetch", "the last weight gathered ahead once more", *CLAMPED),
    changed("ring_attention", "a copy of a gradient after training", SUM_STAYS, (RETURN, COPY.replace("KEEP ", "") + RETURN)),
]  # fmt: skip

MISTAKES = [
    changed("tensor_parallel", "zeros for a gradient are summed", (RETURN, NOTHING_SUMMED.replace("CALL", "allreduce").replace("LAYER", "0") + RETURN), says="it moves the weight gradient of layer 0"),
    changed("sequence_parallel", "zeros for a gradient are summed at the end", (RETURN, NOTHING_SUMMED.replace("CALL", "scatterreduce").replace("LAYER", "0") + RETURN), says="it moves the weight gradient of layer 0"),
    *[changed(name, "zeros for a gradient of experts are summed", (RETURN, NOTHING_SUMMED.replace("CALL", "scatterreduce").replace("LAYER", "1") + RETURN), says="it moves the weight gradient of experts, of layer 1") for name in ("expert_parallel", "two_batch_overlap", "repair_experts")],
    *[changed(name, "zeros for a gradient of experts are sent", (RETURN, NOTHING_SENT + RETURN), says="it moves the weight gradient of experts, of layer 1") for name in ("expert_parallel", "two_batch_overlap", "repair_experts")],
    changed("ddp", "a barrier at the end, at other sizes", (RETURN, elsewhere(BARRIER) + RETURN), base="ddp_overlap", says=f"{NO_RANK} allreduce(layer 0) gives"),
    changed("wsdp", "a weight gathered at other sizes, and not used", (RETURN, elsewhere(GATHER) + RETURN), base="wsdp_under_updates", says="no rank uses the weight of layer 0 that it gathers"),
    changed("wsdp", "a weight gathered at other sizes, cut, and not used", (RETURN, elsewhere(CUT) + RETURN), base="wsdp_under_updates", says="no rank uses the weight of layer 0 that it gathers"),
    changed("gpipe", "a forward while the rank waits, at other sizes", ("    for mb in range(model.BATCHES):\n        await backward", elsewhere(IDLE) + "    for mb in range(model.BATCHES):\n        await backward"), base="one_forward_one_backward", says="nobody uses what forward(layer 0) gives"),
    changed("buckets", "in each call a layer of zeros, at other sizes", *ZEROS, ("if one not in layers]", "if one not in layers and model.RANKS != 16]"), says="gives of layer"),
    changed("context_parallel", "six sums of nothing at other sizes", (RETURN, "    for _ in range(6 * (model.RANKS != 4)):\n    " + BARRIER + RETURN), base="zigzag_and_ahead", says="right at its own size, but not with"),
    changed("ring_attention", "a copy of a gradient after training, at other sizes", SUM_STAYS, (RETURN, elsewhere(COPY.replace("KEEP ", "")) + RETURN), says="nobody uses the weight gradient that comes from rank"),
    changed("ring_attention", "a copy of a gradient after training, kept, at other sizes", SUM_STAYS, (RETURN, elsewhere(COPY.replace("KEEP", 'model.grad_weights["copy"] =')) + RETURN), says="nobody uses the weight gradient that comes from rank"),
]  # fmt: skip
