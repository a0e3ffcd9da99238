"""Puzzle 23, LoRA: honest styles, natural mistakes, and ways round the work by the public names alone."""

from __future__ import annotations

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
    changed("lora", "an adapter updated on every second rank, and sent to its neighbor", (UPDATED, BY_TURNS + UPDATED), (ANSWER, ANSWER + SENDS + TAKEN), says="it moves the optimizer state of layer 5"),
    changed("lora", "the adapter forgotten in forward", (FORWARD, FORWARD.replace(", adapter=adapter", "")), says="wrong value"),
    changed("lora", "the adapter forgotten in backward", (BACKWARD, BACKWARD.replace(", adapter=adapter", "")), says="an adapter is updated with its own gradient and state"),
    changed("lora", "its own piece let go while the whole is there", (GATHER, GATHER.replace("[layer]", ".pop(layer)") + "        model.weights[layer] = weight.shard(model.rank, model.RANKS)\n"), says="cut out of a gathered weight"),
    changed("lora", "the gradients are not summed", (SUM, "pass"), says="the gradient is missing micro-batches"),
    changed("lora", "one adapter for all layers", ('inp, adapter = model.activations[layer], model.weights["adapter", layer]', 'inp, adapter = model.activations[layer], model.weights["adapter", 0]'), says="the adapter is that of layer 0"),
    changed("lora", "the shard for the weight", ("(range(model.LAYERS)):\n        " + GATHER, "(range(model.LAYERS)):\n        weight = model.weights[layer]\n"), says="the weight is not complete"),
    changed("lora", "the state of the frozen weight is kept", (LOAD, LOAD.replace(", _ =", ", model.opt_states['frozen', layer] =")), says="keeps the optimizer state of the frozen weight"),
    changed("lora", "every rank has all weights", (LOAD, "model.weights[layer], _ = model.load_weights(layer)"), (GATHER, "weight = model.weights[layer]\n"), says="begins with the wrong part of the weight"),
    changed("lora", "reduce-scatter, as in FSDP", (SUM, "grad = await model.scatterreduce(grad, layer)"), says="the gradient does not cover the weight"),
    changed("lora", "adapters in pieces, as the weights", (ADAPTER, ADAPTER.replace("(layer)", "(layer, model.rank, model.RANKS)")), says="the adapter is not complete"),
    changed("lora", "adapters in pieces, gathered and reduced", (ADAPTER, ADAPTER.replace("(layer)", "(layer, model.rank, model.RANKS)")),
            (FORWARD, "model.weights['whole'] = weight\n        adapter = await model.allgather(adapter, layer)\n        weight = model.weights.pop('whole')\n        " + FORWARD),
            ('        adapter = model.weights["adapter", layer]\n        grad,', "        model.weights['whole'], model.activations['now'], model.grad_activations['now'] = weight, inp, grad_out\n        adapter = await model.allgather(model.weights['adapter', layer], layer)\n"
             "        weight, inp, grad_out = model.weights.pop('whole'), model.activations.pop('now'), model.grad_activations.pop('now')\n        grad,"),
            (SUM, "grad = await model.scatterreduce(grad, layer)\n        adapter = model.weights['adapter', layer]"), says="begins with the wrong part of the adapter of layer 0"),
    changed("lora", "the adapter in the place of the weight", (FORWARD, FORWARD.replace("inp, weight, adapter=adapter", "inp, adapter")), says="an adapter is no weight of its own"),
    changed("lora", "the weight in the place of the adapter", (BACKWARD, BACKWARD.replace("adapter=adapter", "adapter=weight")), says="that is no adapter, but the layer's own weight"),
    changed("lora", "the weight for an answer", (ANSWER, "        model.set_final_weight(layer, model.weights[layer])\n"), says="that is the layer's own weight, and only adapters are trained"),
    changed("lora", "all weights are trained, as in puzzle 4", base="fsdp", says="a frozen weight has been changed"),
    changed("lora", "frozen weights are thrown away after their last use", (ANSWER, ANSWER + "        del model.weights[layer]\n"), says="ends without the frozen weight"),
    changed("lora", "the gathered weight is kept", (FORWARD, "model.weights['all', layer] = weight\n        " + FORWARD), says="ends with the wrong part of the frozen weight"),
    changed("lora", "all weights gathered at the beginning", ("    model.activations[0] =", "    for layer in range(model.LAYERS):\n        model.weights['all', layer] = await model.allgather(model.weights[layer], layer)\n    model.activations[0] ="),
            (GATHER, "weight = model.weights['all', layer]\n"), ("    return model", "    for layer in range(model.LAYERS):\n        del model.weights['all', layer]\n    return model"), says="over the target"),
    changed("lora", "nothing is ever given back", (POPPED, "model.activations[layer], model.grad_activations[layer + 1]"), (LOSS, "model.loss(model.activations[model.LAYERS])"), says="over the target"),
    changed("lora", "updated before the sum", (SUM, ""), (ANSWER, "        adapter = await model.allreduce(adapter, layer)\n" + ANSWER), says="missing micro-batches"),
    changed("lora", "adapters joined to their weights", (GATHER, GATHER.rstrip() + ".combine(model.weights['adapter', layer])\n"), says="did you forget `await`|not parts of one thing"),
    changed("lora", "states of adapters not kept", ("adapter, model.opt_states[layer] = model.update(", "adapter, _ = model.update("), says="ends without the updated adapter state"),
    changed("lora", "layers in pieces beside an adapter", (FORWARD, FORWARD.replace("adapter=adapter", "adapter=adapter, partial=True")), says="a layer that is computed in pieces takes no adapter"),
    changed("lora", "a forward with an adapter that has been updated", (POPPED, "model.activations[layer], model.grad_activations[layer + 1]"), (ANSWER, ANSWER + "        weight = await model.allgather(model.weights[layer], layer)\n        model.forward(layer, inp, weight, adapter=adapter)\n"), says="the adapter has been updated already"),
    changed("lora", "the gradient of the weight added to that of its adapter", (POPPED, "model.activations[layer], model.grad_activations[layer + 1]"), (LOSS, "model.loss(model.activations[model.LAYERS])"), (GATHER + "        inp, grad_out", "model.weights['all', layer] = weight = await model.allgather(model.weights[layer], layer)\n        inp, grad_out"), ("        grad, model.grad_activations[layer] = model.backward(", "        model.grad_weights[layer], _ = model.backward(layer, inp, grad_out, weight)\n        grad, model.grad_activations[layer] = model.backward("), (SUM, "grad = grad + model.grad_weights.pop(layer)\n        " + SUM), says="the gradient of an adapter and that of a weight do not add up"),
    changed("fsdp", "an adapter where there is no word for it", base="lora", says="is solved without `adapter`, which is the subject of puzzle 23"),
    # -- round the work -------------------------------------------------------------------------------------
    changed("lora", "the other micro-batches made up", (SUM, "grad = grad + model.fake_grad(layer, [mb for mb in range(model.BATCHES) if mb != model.rank])"), says="made up|do not add up"),
    changed("lora", "an adapter made by hand", (ADAPTER, ADAPTER.replace("model.load_adapter(layer)", "Weight(layer, model.LAYERS, 0, adapter=True), OptState(layer, model.LAYERS, 0, adapter=True)")), says="made up"),
    changed("lora", "an updated adapter made by hand", (ANSWER, "        model.set_final_weight(layer, Weight(layer, model.LAYERS, 1, adapter=True))\n"), says="made up"),
    changed("lora", "layers gathered in one call", (GATHER, "(weight,) = await model.allgather([model.weights[layer]], [layer])\n"), says="lists of tensors in one call"),
    changed("lora", "layers in pieces, without a gather", (FORWARD, "model.activations[layer + 1] = await model.allreduce(model.forward(layer, inp, model.weights[layer], partial=True), layer + 1)"), says="is solved without|partial sum|the same"),
    changed("lora", "each layer loaded whole beside its shard", (GATHER, "weight, _ = model.load_weights(layer)\n"), says="has taken that piece of the Weight from load_weights before"),
    changed("lora", "a half of a backward only", ("grad, model.grad_activations[layer] = model.backward(", "model.grad_activations[layer] = model.backward_input("), (BACKWARD, "layer, inp, grad_out, weight"), (SUM, "grad = await model.allreduce(model.fake_grad(layer, []), layer)"), says="the gradient is missing micro-batches"),
]  # fmt: skip
