"""Programs that train the model in time and do something for nothing: what it gives is used by nobody."""

from __future__ import annotations

from . import changed

RETURN = "    return model"
BARRIER = "    await model.allreduce(model.fake_grad(0, []), 0)\n"
COPY = """    if model.RANKS > 1:
        send = model.pass_to((model.rank + 1) % model.RANKS, model.weights[0])
        KEEP await model.receive(src=(model.rank - 1) % model.RANKS)
        await send
"""
"""At its end each rank sends the next one a weight, which this one has as well."""
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
NOBODY, NO_RANK = "nobody uses what", "no rank uses what"

MISTAKES = [
    changed("ddp", "a barrier at the end", (RETURN, BARRIER + RETURN), base="ddp_overlap", says=f"{NO_RANK} allreduce(layer 0) gives"),
    changed("wsdp", "a weight gathered, and not used", (RETURN, "    await model.allgather(model.weights[0], 0)\n" + RETURN), base="wsdp_under_updates", says=f"{NO_RANK} allgather(layer 0) gives"),
    changed("wsdp", "a weight gathered, cut, and not used", (RETURN, "    (await model.allgather(model.weights[0], 0)).shard(model.rank, model.RANKS)\n" + RETURN), base="wsdp_under_updates", says=f"{NO_RANK} allgather(layer 0) gives"),
    changed("gpipe", "a forward while the rank waits", ("    for mb in range(model.BATCHES):\n        await backward", IDLE + "    for mb in range(model.BATCHES):\n        await backward"), base="one_forward_one_backward", says=f"{NOBODY} forward(layer 0) gives"),
    changed("prefetch", "the last weight gathered ahead once more", *CLAMPED, says=f"{NO_RANK} allgather(layer 5) gives"),
    changed("buckets", "in each call a layer of zeros, too", *ZEROS, says="gives of layer"),
    changed("context_parallel", "six sums of nothing", (RETURN, "    for _ in range(6):\n    " + BARRIER + RETURN), base="zigzag_and_ahead", says=f"{NO_RANK} allreduce(layer 0) gives"),
    changed("context_parallel", "six sums of nothing at other sizes", (RETURN, "    for _ in range(6 * (model.RANKS != 4)):\n    " + BARRIER + RETURN), base="zigzag_and_ahead", says="right at its own size, but not with"),
    changed("ring_attention", "a copy of a weight after training", (RETURN, COPY.replace("KEEP ", "") + RETURN), says="nobody uses the weight that comes from rank"),
    changed("ring_attention", "a copy of a weight after training, kept", (RETURN, COPY.replace("KEEP", 'model.weights["copy"] =') + RETURN), says="nobody uses the weight that comes from rank"),
]  # fmt: skip
