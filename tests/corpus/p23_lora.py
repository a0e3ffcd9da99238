"""Puzzle 23, LoRA: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

LOAD = "model.weights[layer], _ = model.load_weights(layer, model.rank, model.RANKS)"
ADAPTER = 'model.weights["adapter", layer], model.opt_states[layer] = model.load_adapter(layer)'
GATHER = "weight = await model.allgather(model.weights[layer], layer)\n"
FORWARD = "model.activations[layer + 1] = model.forward(layer, inp, weight, adapter=adapter)"
SUM = "grad = await model.allreduce(grad, layer)"
ANSWER = "        model.set_final_weight(layer, adapter)\n"
BACKWARD = "layer, inp, grad_out, weight, adapter=adapter"
LOSS = "model.loss(model.activations.pop(model.LAYERS))"
POPPED = "model.activations.pop(layer), model.grad_activations.pop(layer + 1)"
UPDATE = "layer, grad, adapter, model.opt_states[layer]"

HONEST = [
    changed("lora", "the last weight is kept for its backward", ("        model.activations[layer + 1] = ", "        if layer + 1 == model.LAYERS:\n            model.weights['last'] = weight\n        model.activations[layer + 1] = "),
            ("(range(model.LAYERS)):\n        " + GATHER, "(range(model.LAYERS)):\n        weight = model.weights.pop('last', None) or await model.allgather(model.weights[layer], layer)\n")),
    changed("lora", "the last activation stays stored", (LOSS, "model.loss(model.activations[model.LAYERS])")),
    changed("lora", "adapters under other keys, and states beside them", ('model.weights["adapter", layer]', "model.weights[f'lora {layer}']"), ("model.opt_states[layer]", "model.opt_states['lora', layer]")),
    changed("lora", "updates in a loop of their own", (SUM, "model.grad_weights[layer] = await model.allreduce(grad, layer)"),
            ("        adapter, model.opt_states[layer] = model.update(", "    for layer in range(model.LAYERS):\n        grad, adapter = model.grad_weights.pop(layer), model.weights['adapter', layer]\n        adapter, model.opt_states[layer] = model.update(")),
    changed("lora", "the next weight gathered under a forward", ("    for layer in range(model.LAYERS):\n        inp,", "    coming = model.allgather(model.weights[0], 0)\n    for layer in range(model.LAYERS):\n        inp,"),
            ('model.weights["adapter", layer]\n        ' + GATHER, 'model.weights["adapter", layer]\n        model.weights["now"] = weight = await coming\n        if layer + 1 < model.LAYERS:\n            coming = model.allgather(model.weights[layer + 1], layer + 1)\n        del model.weights["now"]\n')),
    changed("lora", "the answer at the end", (ANSWER, ""), ("    return model", "    for layer in range(model.LAYERS):\n        model.set_final_weight(layer, model.weights['adapter', layer])\n    return model")),
    changed("lora", "gradients of activations stay stored", ("model.grad_activations.pop(layer + 1)", "model.grad_activations[layer + 1]")),
    changed("lora", "every name is written out", (FORWARD, "model.activations[layer + 1] = model.forward(layer=layer, inp=inp, weight=weight, adapter=adapter)"), (BACKWARD, "layer=layer, inp=inp, grad=grad_out, weight=weight, adapter=adapter"),
            (UPDATE, "layer=layer, weight_grad=grad, weight=adapter, opt_state=model.opt_states[layer]")),
]  # fmt: skip

UPDATED = "        adapter, model.opt_states[layer] = model.update(\n"
BY_TURNS = "        if layer == model.LAYERS - 1 and model.rank % 2:\n            continue\n"
SENDS = "        if layer == model.LAYERS - 1:\n            sends = [model.pass_to(model.rank + 1, one) for one in (adapter, model.opt_states[layer])]\n"
TAKEN = """    layer = model.LAYERS - 1
    if model.rank % 2:
        model.weights["adapter", layer] = await model.receive(src=model.rank - 1)
        model.opt_states[layer] = await model.receive(src=model.rank - 1)
        model.set_final_weight(layer, model.weights["adapter", layer])
    else:
        for send in sends:
            await send
"""

MISTAKES = [
    changed("lora", "an adapter updated on every second rank, and sent to its neighbor", (UPDATED, BY_TURNS + UPDATED), (ANSWER, ANSWER + SENDS + TAKEN)),
    changed("lora", "the adapter forgotten in forward", (FORWARD, FORWARD.replace(", adapter=adapter", ""))),
    changed("lora", "the adapter forgotten in backward", (BACKWARD, BACKWARD.replace(", adapter=adapter", ""))),
    changed("lora", "its own piece let go while the whole is there", (GATHER, GATHER.replace("[layer]", ".pop(layer)") + "        model.weights[layer] = weight.shard(model.rank, model.RANKS)\n")),
    changed("lora", "the gradients are not summed", (SUM, "pass")),
    changed("lora", "one adapter for all layers", ('inp, adapter = model.activations[layer], model.weights["adapter", layer]', 'inp, adapter = model.activations[layer], model.weights["adapter", 0]')),
    changed("lora", "the shard for the weight", ("(range(model.LAYERS)):\n        " + GATHER, "(range(model.LAYERS)):\n        weight = model.weights[layer]\n")),
    changed("lora", "the state of the frozen weight is kept", (LOAD, LOAD.replace(", _ =", ", model.opt_states['frozen', layer] ="))),
    changed("lora", "every rank has all weights", (LOAD, "model.weights[layer], _ = model.load_weights(layer)"), (GATHER, "weight = model.weights[layer]\n")),
    changed("lora", "reduce-scatter, as in FSDP", (SUM, "grad = await model.scatterreduce(grad, layer)")),
    changed("lora", "adapters in pieces, as the weights", (ADAPTER, ADAPTER.replace("(layer)", "(layer, model.rank, model.RANKS)"))),
    changed("lora", "adapters in pieces, gathered and reduced", (ADAPTER, ADAPTER.replace("(layer)", "(layer, model.rank, model.RANKS)")),
            (FORWARD, "model.weights['whole'] = weight\n        adapter = await model.allgather(adapter, layer)\n        weight = model.weights.pop('whole')\n        " + FORWARD),
            ('        adapter = model.weights["adapter", layer]\n        grad,', "        model.weights['whole'], model.activations['now'], model.grad_activations['now'] = weight, inp, grad_out\n        adapter = await model.allgather(model.weights['adapter', layer], layer)\n"
             "        weight, inp, grad_out = model.weights.pop('whole'), model.activations.pop('now'), model.grad_activations.pop('now')\n        grad,"),
            (SUM, "grad = await model.scatterreduce(grad, layer)\n        adapter = model.weights['adapter', layer]")),
    changed("lora", "the adapter in the place of the weight", (FORWARD, FORWARD.replace("inp, weight, adapter=adapter", "inp, adapter"))),
    changed("lora", "the weight in the place of the adapter", (BACKWARD, BACKWARD.replace("adapter=adapter", "adapter=weight"))),
    changed("lora", "the weight for an answer", (ANSWER, "        model.set_final_weight(layer, model.weights[layer])\n")),
    changed("lora", "all weights are trained, as in puzzle 4", base="fsdp"),
    changed("lora", "the gathered weight is kept", (FORWARD, "model.weights['all', layer] = weight\n        " + FORWARD)),
    changed("lora", "all weights gathered at the beginning", ("    model.activations[0] =", "    for layer in range(model.LAYERS):\n        model.weights['all', layer] = await model.allgather(model.weights[layer], layer)\n    model.activations[0] ="),
            (GATHER, "weight = model.weights['all', layer]\n"), ("    return model", "    for layer in range(model.LAYERS):\n        del model.weights['all', layer]\n    return model")),
    changed("lora", "nothing is ever given back", (POPPED, "model.activations[layer], model.grad_activations[layer + 1]"), (LOSS, "model.loss(model.activations[model.LAYERS])")),
    changed("lora", "adapters joined to their weights", (GATHER, GATHER.rstrip() + ".combine(model.weights['adapter', layer])\n")),
    changed("lora", "layers in pieces beside an adapter", (FORWARD, FORWARD.replace("adapter=adapter", "adapter=adapter, partial=True"))),
    changed("lora", "a forward with an adapter that has been updated", (POPPED, "model.activations[layer], model.grad_activations[layer + 1]"), (ANSWER, ANSWER + "        weight = await model.allgather(model.weights[layer], layer)\n        model.forward(layer, inp, weight, adapter=adapter)\n")),
    changed("lora", "the gradient of the weight added to that of its adapter", (POPPED, "model.activations[layer], model.grad_activations[layer + 1]"), (LOSS, "model.loss(model.activations[model.LAYERS])"), (GATHER + "        inp, grad_out", "model.weights['all', layer] = weight = await model.allgather(model.weights[layer], layer)\n        inp, grad_out"), ("        grad, model.grad_activations[layer] = model.backward(", "        model.grad_weights[layer], _ = model.backward(layer, inp, grad_out, weight)\n        grad, model.grad_activations[layer] = model.backward("), (SUM, "grad = grad + model.grad_weights.pop(layer)\n        " + SUM)),
    changed("fsdp", "an adapter where there is no word for it", base="lora"),
    # -- round the work -------------------------------------------------------------------------------------
    changed("lora", "the other micro-batches made up", (SUM, "grad = grad + model.fake_grad(layer, [mb for mb in range(model.BATCHES) if mb != model.rank])")),
    changed("lora", "an adapter made by hand", (ADAPTER, ADAPTER.replace("model.load_adapter(layer)", "Weight(layer, model.LAYERS, 0, adapter=True), OptState(layer, model.LAYERS, 0, adapter=True)"))),
    changed("lora", "an updated adapter made by hand", (ANSWER, "        model.set_final_weight(layer, Weight(layer, model.LAYERS, 1, adapter=True))\n")),
    changed("lora", "layers gathered in one call", (GATHER, "(weight,) = await model.allgather([model.weights[layer]], [layer])\n")),
    changed("lora", "layers in pieces, without a gather", (FORWARD, "model.activations[layer + 1] = await model.allreduce(model.forward(layer, inp, model.weights[layer], partial=True), layer + 1)")),
    changed("lora", "each layer loaded whole beside its shard", (GATHER, "weight, _ = model.load_weights(layer)\n")),
]  # fmt: skip
