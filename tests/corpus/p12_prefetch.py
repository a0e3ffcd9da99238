"""Puzzle 12, prefetching: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed, whole

LAST = "    ahead = model.allgather(model.weights[model.LAYERS - 1], model.LAYERS - 1)\n"
DOWN = "        if layer > 0:\n            ahead = model.allgather(model.weights[layer - 1], layer - 1)\n"
INTO = '        model.weights["whole"] = await ahead\n'
POP = '        weight = model.weights.pop("whole")\n'
SUM = "        sums[layer] = model.scatterreduce(grad, layer)\n"
TAKE = "        if layer + 1 in sums:\n            model.grad_weights[layer + 1] = await sums.pop(layer + 1)\n"
REST = "    model.grad_weights[0] = await sums.pop(0)\n"
BACKWARD = "        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)\n"
UPDATES = """\
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
"""
LOAD = "layer, model.rank, model.RANKS\n"

IN_ONE_LOOP = """
async def prefetch(model):
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    model.activations[0] = model.get_activation([model.rank])
    layers, sums = list(range(model.LAYERS)), []
    order = [("up", layer) for layer in layers] + [("down", layer) for layer in reversed(layers)]
    gathers = (model.allgather(model.weights[layer], layer) for _, layer in order)  # each begins when it is asked for
    ahead = next(gathers)
    for way, layer in order:
        model.weights["now"] = await ahead
        ahead = next(gathers, None)
        if way == "up":
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights.pop("now"))
            if layer == model.LAYERS - 1:
                model.grad_activations[layer + 1] = model.loss(model.activations.pop(layer + 1))
        else:
            grad_out = model.grad_activations.pop(layer + 1)
            model.grad_weights[layer], model.grad_activations[layer] = model.backward(
                layer, model.activations.pop(layer), grad_out, model.weights.pop("now")
            )
            sums.append((layer, model.scatterreduce(model.grad_weights.pop(layer), layer)))
    del model.grad_activations[0]
    for layer, call in sums:
        grad = await call
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""

HONEST = [
    changed("prefetch", "one queue of gathers, up and down again", base="in_one_queue"),
    changed("prefetch", "the last weight kept, one gather late", ("model: Model, gathers: str", 'model: Model, gathers: str = "bab"'),
            base="prefetch_overlapped"),
    whole("prefetch", "one loop over both passes, sums awaited at the end", IN_ONE_LOOP),
    changed("prefetch", "updated as the sums arrive", (TAKE, "        if layer + 1 in sums:\n            update(layer + 1, await sums.pop(layer + 1))\n"),
            (REST, "    update(0, await sums.pop(0))\n"), ("\n" + UPDATES, ""),
            ("    sums = {}\n", "    def update(layer, grad):\n        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])\n"
             "        model.set_final_weight(layer, model.weights[layer])\n\n    sums = {}\n")),
    changed("prefetch", "weights on their way in a dictionary", (INTO, '        model.weights["whole", layer] = await ahead.pop(layer)\n'),
            ("ahead = model.allgather(model.weights[0], 0)", "ahead = {0: model.allgather(model.weights[0], 0)}"),
            ("            ahead = model.allgather(model.weights[layer + 1]", "            ahead[layer + 1] = model.allgather(model.weights[layer + 1]"),
            ("            ahead = model.allgather(model.weights[layer - 1]", "            ahead[layer - 1] = model.allgather(model.weights[layer - 1]"),
            ("    ahead = model.allgather(model.weights[model.LAYERS - 1]", "    ahead[model.LAYERS - 1] = model.allgather(model.weights[model.LAYERS - 1]"),
            ('model.weights.pop("whole")', 'model.weights.pop(("whole", layer))')),
    changed("prefetch", "the last weight of the way up is the first of the way down", (LAST, ""),
            (INTO + DOWN, "        if layer + 1 < model.LAYERS:\n    " + INTO + DOWN),
            ('model.activations[layer], model.weights.pop("whole")\n', 'model.activations[layer], model.weights["whole"]\n'),
            ("model.forward(layer, inp, weight)\n", 'model.forward(layer, inp, weight)\n        if layer + 1 < model.LAYERS:\n            del model.weights["whole"]\n')),
    changed("prefetch", "a weight is dropped after its turn, not in it", (POP, ""), ("inp, grad_out, weight)", 'inp, grad_out, model.weights["whole"])'),
            (SUM, SUM + '        del model.weights["whole"]\n')),
]  # fmt: skip

MISTAKES = [
    changed("prefetch", "puzzle 4: each call awaited", base="fsdp_blocking"),
    changed("prefetch", "ahead in the forward pass only", (LAST, ""), (DOWN, ""), (INTO + "        inp, grad_out", '        model.weights["whole"] = await model.allgather(model.weights[layer], layer)\n        inp, grad_out')),
    changed("prefetch", "gathered after the backward (BACKWARD_POST)", (DOWN, ""), (SUM, "        model.grad_weights[layer] = grad\n" + DOWN + SUM.replace("grad,", "model.grad_weights.pop(layer),"))),
    changed("prefetch", "puzzle 4, each gather after the backward", ("gathers: str, waits: int", 'gathers: str = "a", waits: int = 0'), base="fsdp_overlapped"),
    changed("prefetch", "each sum awaited", (SUM + TAKE, "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n"), (REST, "")),
    changed("prefetch", "two ahead", (LAST, LAST + "    second = model.allgather(model.weights[model.LAYERS - 2], model.LAYERS - 2) if model.LAYERS > 1 else None\n"),
            (DOWN, "        ahead, second = second, None\n        if layer > 1:\n            second = model.allgather(model.weights[layer - 2], layer - 2)\n")),
    changed("prefetch", "every whole weight kept for the way down", (LAST, ""), (DOWN, ""), (INTO + "        inp, grad_out", "        inp, grad_out"),
            ('model.weights["whole"] = await', 'model.weights["whole", layer] = await'),
            ('model.activations[layer], model.weights.pop("whole")', 'model.activations[layer], model.weights["whole", layer]'),
            ('model.weights.pop("whole")', 'model.weights.pop(("whole", layer))')),
    changed("prefetch", "the gathered weight is not stored", (INTO + DOWN, "        weight = await ahead\n" + DOWN), (POP, "")),
    changed("prefetch", "the way down gathers upwards", ("ahead = model.allgather(model.weights[layer - 1], layer - 1)", "ahead = model.allgather(model.weights[layer], layer)")),
    changed("prefetch", "updated with a sum that has not arrived", (TAKE, ""), (REST, ""), ("model.grad_weights.pop(layer), model.weights[layer], model.opt", "sums[layer], model.weights[layer], model.opt")),
    changed("prefetch", "ranks begin in different orders", (DOWN, ""), (SUM, "        model.grad_weights[layer] = grad\n        if model.rank % 2 and layer:\n            ahead = model.allgather(model.weights[layer - 1], layer - 1)\n"
             "        sums[layer] = model.scatterreduce(model.grad_weights.pop(layer), layer)\n        if model.rank % 2 == 0 and layer:\n            ahead = model.allgather(model.weights[layer - 1], layer - 1)\n")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("prefetch", "whole weights from the start", (LOAD, "layer\n"), ("await ahead", "model.weights[layer]")),
    changed("prefetch", "its own piece let go while the whole is there", (LAST, LAST.replace("[model.LAYERS - 1]", ".pop(model.LAYERS - 1)")), (DOWN, DOWN.replace("[layer - 1]", ".pop(layer - 1)")), (POP, ""),
            (BACKWARD, BACKWARD.replace("weight)", 'model.weights["whole"])') + '        model.weights[layer] = model.weights.pop("whole").shard(model.rank, model.RANKS)\n')),
    changed("prefetch", "whole sums", ("model.scatterreduce(grad, layer)", "model.allreduce(grad, layer)")),
    changed("prefetch", "all-reduced and cut", ("sums[layer] = model.scatterreduce(", "sums[layer] = model.allreduce("), ("await sums.pop(layer + 1)", "(await sums.pop(layer + 1)).shard(model.rank, model.RANKS)"), ("await sums.pop(0)", "(await sums.pop(0)).shard(model.rank, model.RANKS)")),
    changed("prefetch", "no sum at all", ("sums[layer] = model.scatterreduce(grad, layer)", "model.grad_weights[layer] = grad.shard(model.rank, model.RANKS)"), (TAKE, ""), (REST, "")),
    changed("prefetch", "a gradient made up", ("sums[layer] = model.scatterreduce(grad, layer)", "model.grad_weights[layer] = model.fake_grad(layer, range(model.BATCHES)).shard(model.rank, model.RANKS)"), (TAKE, ""), (REST, "")),
]  # fmt: skip
