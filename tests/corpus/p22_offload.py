"""Puzzle 22, offload: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import after, changed

LOAD = "        model.weights[layer], state = model.load_weights(layer)\n        if model.is_host:\n            model.opt_states[layer] = state\n"
HOST = "    if model.is_host:\n        for mb in range(model.BATCHES):\n"
ORDER = "            for layer in reversed(range(model.LAYERS)):\n                grad = await model.receive()\n"
ADD = "                if mb > 0:\n                    grad = model.grad_weights.pop(layer) + grad\n"
WAIT = "                if mb < last:\n                    model.grad_weights[layer] = grad\n                    continue\n"
UPDATE = "                model.weights[layer], model.opt_states[layer] = model.update(\n                    layer, grad, model.weights[layer], model.opt_states[layer]\n                )\n"
BACK = "                sends.append(model.pass_to(model.devices[0], model.weights[layer]))\n"
TAKEN = "weight = model.weights[layer] if mb < last else model.weights.pop(layer)"
DOWN = "            sends.append(model.pass_to(model.host, grad))\n"
END = "    for send in sends:\n        await send\n    for layer"
NEW = "        model.weights[layer] = await model.receive()\n"
SUMS = "        sends.append(model.pass_to(model.host, model.grad_weights.pop(layer)))\n"
ANSWER = "        model.set_final_weight(layer, model.weights[layer])\n"
ON_DEVICE = (
    (WAIT, ""), (ADD, ""), (HOST, "    if model.is_host:\n        for mb in [last]:\n"),
    (DOWN, "            if mb > 0:\n                grad = model.grad_weights.pop(layer) + grad\n            model.grad_weights[layer] = grad\n"
     "            if mb == last:\n                sends.append(model.pass_to(model.host, model.grad_weights.pop(layer)))\n"),
)  # fmt: skip
"""Gradients are added up where they are made."""

FIRST_ON_DEVICE = (
    ("        if model.is_host:\n", "        if model.is_host == (layer > 0):\n"),
    ("for layer in reversed(range(model.LAYERS)):\n            grad", "for layer in reversed(range(1, model.LAYERS)):\n            grad"),
    ("        del model.weights[layer]\n        sends", "        if layer == 0:\n            continue\n        del model.weights[layer]\n        sends"),
    ("    for send in sends:\n        await send\n    for layer in reversed(range(model.LAYERS)):\n        model.weights[layer] =", "    model.weights[0], model.opt_states[0] = model.update(0, model.grad_weights.pop(0), model.weights[0], model.opt_states[0])\n"
     "    model.set_final_weight(0, model.weights[0])\n    for send in sends:\n        await send\n    for layer in reversed(range(1, model.LAYERS)):\n        model.weights[layer] ="),
)  # fmt: skip
"""All but layer 0 is updated by the host."""

HONEST = [
    changed("offload", "layer by layer", base="offload_by_layer"),
    changed("offload", "each micro-batch back through the last layer first", base="offload_top_first"),
    changed("offload", "the ranks by their numbers", ("model.devices[0]", "0"), ("model.host", "1"), ("model.is_host", "model.rank == 1")),
    changed("offload", "each sends and receives by name", ("await model.receive()\n                if", "await model.receive(model.devices[0])\n                if"),
            (NEW, NEW.replace("receive()", "receive(model.host)"))),
    changed("offload", "weights are taken as they come", (END, "    comes = [model.receive() for _ in range(model.LAYERS)]\n" + END),
            (NEW, "        model.weights[layer] = await comes.pop(0)\n")),
    changed("offload", "all is gathered at the end", ("    for send in sends:\n        await send\n    for", "    await asyncio.gather(*sends)\n    for")),
    changed("offload", "the host hands in its weights, too", (BACK, "                model.set_final_weight(layer, model.weights[layer])\n" + BACK)),
]  # fmt: skip

MISTAKES = [
    changed("offload", "one after the other", base="offload_blocking"),
    changed("offload", "each gradient awaited on its way", (DOWN, "            await model.pass_to(model.host, grad)\n")),
    changed("offload", "gradients added up on the device", *ON_DEVICE),
    changed("offload", "old weights kept until new ones come", (TAKEN, "weight = model.weights[layer]")),
    changed("offload", "the host begins with the first layer", (ORDER, ORDER.replace("reversed(range(model.LAYERS))", "range(model.LAYERS)"))),
    changed("offload", "weights in another order than they come in", ("    for layer in reversed(range(model.LAYERS)):\n" + NEW, "    for layer in range(model.LAYERS):\n" + NEW)),
    changed("offload", "the weight of layer 0 comes from the device", ("            grad = model.grad_weights.pop(layer)\n", "            if layer == 0 and top:\n                model.weights[0] = await model.receive()\n            grad = model.grad_weights.pop(layer)\n"),
            ("if mb < last else model", "if mb < last or (layer == 0 and top) else model"), (SUMS, SUMS + "        if layer == 0:\n            sends.append(model.pass_to(model.host, model.weights.pop(0)))\n"), base="offload_top_first"),
    changed("offload", "the weight goes back before its update", (BACK, ""), (UPDATE, BACK + UPDATE)),
    changed("offload", "new weights are not handed in", (ANSWER, "")),
    changed("offload", "everyone does the device's part", (HOST, "    if False:\n        for mb in range(model.BATCHES):\n")),
    changed("offload", "an all-reduce with the host", (ORDER, ORDER.replace("await model.receive()", "await model.allreduce(model.fake_grad(layer, []), layer)"))),
    changed("offload", "the host's states are dropped", ("model.weights[layer], model.opt_states[layer] = model.update(", "model.weights[layer], _ = model.update(")),
    changed("offload", "states on the device, too", ("        if model.is_host:\n            model.opt_states[layer] = state\n", "        model.opt_states[layer] = state\n")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("offload", "states sent to the device and back, updates there", (HOST, "    if model.is_host:\n        for mb in [last]:\n"), (ADD, ""), (WAIT, ""), (BACK, ""),
            ("                grad = await model.receive()\n", "                await model.pass_to(model.devices[0], model.opt_states.pop(layer))\n"), (UPDATE, "                model.opt_states[layer] = await model.receive()\n"),
            (DOWN, ON_DEVICE[-1][1].partition("            if mb == last")[0] + "            if mb == last:\n                model.opt_states[layer] = await model.receive()\n"
             "                model.weights[layer], state = model.update(layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states.pop(layer))\n"
             "                await model.pass_to(model.host, state)\n"), (TAKEN, "weight = model.weights[layer]"), (NEW, "")),
    changed("offload", "the states never leave the device", (HOST, "    if model.is_host:\n        return model\n        for mb in range(model.BATCHES):\n"), (LOAD, "        if model.is_host:\n            continue\n        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)\n"),
            (DOWN, "            if mb > 0:\n                grad = model.grad_weights.pop(layer) + grad\n            model.grad_weights[layer] = grad\n"), (TAKEN, "weight = model.weights[layer]"),
            (NEW, "        model.weights[layer], model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer])\n")),
    changed("offload", "the weights come and go, too", base="offload_weights_too"),
    changed("offload", "the state of layer 0 stays on the device, and is updated there", *FIRST_ON_DEVICE, base="offload_by_layer"),
    changed("offload", "the host makes the gradient up", ("grad = await model.receive()\n                if", "await model.receive()\n                grad = model.fake_grad(layer, [mb])\n                if")),
    changed("offload", "the same gradient twice", ("[mb])\n        for layer", "[0])\n        for layer")),
    changed("offload", "both micro-batches at once", ("range(model.BATCHES):\n        model.activations[0]", "[last]:\n        model.activations[0]"), ("model.get_activation([mb])", "model.get_activation(range(model.BATCHES))"),
            (HOST, "    if model.is_host:\n        for mb in [last]:\n"), (ADD, "")),
    changed("offload", "a new weight made by hand", (NEW, "        await model.receive()\n        model.weights[layer] = Weight(layer, model.LAYERS, 1)\n")),
    after("offload", "a host that says it is none", "async def offload(model: Model) -> Model:\n    model.is_host = False\n    return await honest(model)"),
    after("offload", "the device takes the part of the host, too", "async def offload(model: Model) -> Model:\n    if not model.is_host:\n        model = Model(1, model.dist, model.LAYERS, model.BATCHES)\n    return await honest(model)"),
]  # fmt: skip
