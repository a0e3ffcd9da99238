"""Puzzle 35, from trainer to generator: honest styles, and natural mistakes."""

from __future__ import annotations

from . import Program, changed, whole

LOAD = "layer, place, trainers"
RECEIVES = "for trainer in range(half * pieces, (half + 1) * pieces):"
SENDS = "for generator in range(place // pieces, trainers, 2):"
SEND = "await model.pass_to(trainers + generator, model.weights[layer])"
SET = "            model.set_final_weight(layer, model.weights[layer])\n        return model"

ONCE = """
async def weight_sync(model):
    n, p, last = model.axis_size("place"), model.axis_index("place"), model.LAYERS - 1
    w, s, a, ga, gw = model.storage()
    def partner(trainer):
        return n + trainer // (n // 2) + 2 * (trainer % (n // 2))
    if model.axis_index("side"):
        own = next(t for t in range(n) if partner(t) == model.rank)
        like_me = [r for r in range(n + p % 2, 2 * n, 2) if r != model.rank]
        for l in range(model.LAYERS):
            w[l] = await model.receive(src=own)
            for r in like_me:
                await model.pass_to(r, w[l])
            for piece in await asyncio.gather(*[model.receive(src=r) for r in like_me]):
                w["more"] = piece
                w[l] = w[l].combine(w.pop("more"))
            model.set_final_weight(l, w[l])
        return model
    for l in range(model.LAYERS):
        w[l], s[l] = model.load_weights(l, p, n)
    a[0] = model.get_activation([p])
    for l in range(model.LAYERS):
        a[l + 1] = model.forward(l, a[l], await model.allgather(w[l], l, axis="place"))
    ga[last] = model.loss(a.pop(model.LAYERS))
    for l in range(last, -1, -1):
        whole = await model.allgather(w[l], l, axis="place")
        gw[l], ga[l - 1] = model.backward(l, a.pop(l), ga.pop(l), whole)
        gw[l] = await model.scatterreduce(gw.pop(l), l, axis="place")
    for l in range(model.LAYERS):
        w[l], s[l] = model.update(l, gw.pop(l), w[l], s[l])
        model.set_final_weight(l, w[l])
        await model.pass_to(partner(p), w[l])
    return model
"""
HONEST = [
    whole("weight_sync", "each piece crosses once, and is passed on", ONCE),
    changed("weight_sync", "sent as soon as a layer is updated", ("        for layer in range(model.LAYERS):\n            for trainer", "        for layer in reversed(range(model.LAYERS)):\n            for trainer"),
            ("        model.set_final_weight(layer, model.weights[layer])\n\n    for layer in range(model.LAYERS):\n        for generator", "        model.set_final_weight(layer, model.weights[layer])\n        for generator")),
]  # fmt: skip


def once(name: str, *edits: tuple[str, str]) -> Program:
    """The program in which each piece crosses once, with something changed."""
    source = ONCE
    for old, new in edits:
        assert old in source, f"{name}: {old!r}"
        source = source.replace(old, new)
    return whole("weight_sync", name, source)


MISTAKES = [
    changed("weight_sync", "halves in blocks: generators 0 and 1 get half 0", ("half = place % 2", "half = place // pieces"), (SENDS, "for generator in range(place // pieces * pieces, (place // pieces + 1) * pieces):")),
    changed("weight_sync", "a quarter for each generator", (RECEIVES, "for trainer in [place]:"), (SENDS, "for generator in [place]:")),
    changed("weight_sync", "whole weights for all", (RECEIVES, "for trainer in range(trainers):"), (SENDS, "for generator in range(trainers):")),
    changed("weight_sync", "old weights from the files", (RECEIVES, "model.weights[layer], _ = model.load_weights(layer, half, 2)\n            for trainer in ():"), (SENDS, "for generator in ():")),
    changed("weight_sync", "sent before the update", ("        model.weights[layer], model.opt_states[layer] = model.update(", f"        {SENDS}\n            {SEND}\n        model.weights[layer], model.opt_states[layer] = model.update("),
            (f"    for layer in range(model.LAYERS):\n        {SENDS}  # all that have this half\n            {SEND}\n", ""), ("        for layer in range(model.LAYERS):\n            for trainer", "        for layer in reversed(range(model.LAYERS)):\n            for trainer")),
    changed("weight_sync", "the layers in another order than they are sent", ("        for layer in range(model.LAYERS):\n            for trainer", "        for layer in reversed(range(model.LAYERS)):\n            for trainer")),
    changed("weight_sync", "gathers over both sides", ('layer, axis="place")', "layer)")),
    changed("weight_sync", "shards over all ranks", (LOAD, "layer, model.rank, model.RANKS")),
    changed("weight_sync", "no final weight on the generators", (SET, "        return model")),
    changed("weight_sync", "for four trainers", ("trainers // 2  #", "2  #")),
    once("not passed on", ("                await model.pass_to(r, w[l])", "                pass"), ("asyncio.gather(*[model.receive(src=r) for r in like_me])", "asyncio.gather()")),
    once("a generator computes the loss of micro-batch 0", ("    if model.axis_index(\"side\"):\n", "    if model.axis_index(\"side\"):\n        if p == 0:\n            await model.pass_to(0, model.loss(await model.receive(src=0)))\n"),
         ("ga[last] = model.loss(a.pop(model.LAYERS))", "if p == 0:\n        await model.pass_to(n, a.pop(model.LAYERS))\n        ga[last] = await model.receive(src=n)\n    else:\n        ga[last] = model.loss(a.pop(model.LAYERS))")),
]  # fmt: skip
