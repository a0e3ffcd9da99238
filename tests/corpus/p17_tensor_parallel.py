"""Puzzle 17, tensor parallel: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

LOAD = "model.load_weights(\n            layer, model.rank, model.RANKS\n        )"
FORWARD = "out = model.forward(layer, inp, weight, partial=True)"
SUM = "model.activations[layer + 1] = await model.allreduce(out, layer + 1)"
BACK = "            model.grad_activations[layer] = await model.allreduce(grad, layer - 1)\n"
IF = "        if layer > 0:\n" + BACK
PARTIAL = "layer, inp, grad_out, model.weights[layer], partial=True"
POPPED = "model.activations.pop(layer), model.grad_activations.pop(layer + 1)"
ANSWER = "        model.set_final_weight(layer, model.weights[layer])\n"
WHOLE_OUT = "model.activations.pop(model.LAYERS)"

HONEST = [
    changed("tensor_parallel", "updates under the sums", (IF, "        call = model.allreduce(grad, layer - 1) if layer else None\n"),
            (ANSWER, ANSWER + "        if call:\n            model.grad_activations[layer] = await call\n")),
    changed("tensor_parallel", "the needless sum, too", (IF, IF.replace("        if layer > 0:\n    ", ""))),
    changed("tensor_parallel", "updates in a loop of their own",
            ("        model.weights[layer], model.opt_states[layer] = model.update(", "    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(")),
    changed("tensor_parallel", "gradients under the keys of activations, and no dictionary of gradients of weights",
            ("model.grad_activations.pop(layer + 1)", "model.grad_activations.pop(layer)"), ("model.grad_activations[model.LAYERS] =", "model.grad_activations[model.LAYERS - 1] ="),
            ("model.grad_activations[layer] = await", "model.grad_activations[layer - 1] = await")),
    changed("tensor_parallel", "the whole batch, however many micro-batches it is", ("get_activation([0])", "get_activation(range(model.BATCHES))")),
    changed("tensor_parallel", "the answer at the end", (ANSWER, ""), ("    return model", "    for layer, weight in model.weights.items():\n        model.set_final_weight(layer, weight)\n    return model")),
    changed("tensor_parallel", "the last gradient taken before the update", (IF, ""),
            (ANSWER, ANSWER + "        if layer:\n    " + BACK.replace("            model", "        model")),
            ("        model.weights[layer], model.opt_states[layer] = model.update(", "        model.grad_activations['partial sum'] = grad\n        model.weights[layer], model.opt_states[layer] = model.update("),
            ("allreduce(grad, layer - 1)", "allreduce(model.grad_activations.pop('partial sum'), layer - 1)")),
]  # fmt: skip

MISTAKES = [
    changed("tensor_parallel", "no sum in forward", (SUM, "model.activations[layer + 1] = out")),
    changed("tensor_parallel", "no sum in backward", (IF, "        model.grad_activations[layer] = grad\n")),
    changed("tensor_parallel", "no sum before the loss", (SUM, "model.activations[layer + 1] = await model.allreduce(out, layer + 1) if layer + 1 < model.LAYERS else out")),
    changed("tensor_parallel", "the word forgotten in forward", (", partial=True)\n        model.activations", ")\n        model.activations")),
    changed("tensor_parallel", "the word forgotten in backward", (PARTIAL, PARTIAL.replace(", partial=True", ""))),
    changed("tensor_parallel", "the layer of the weight, not of the output", ("allreduce(out, layer + 1)", "allreduce(out, layer)")),
    changed("tensor_parallel", "added up by hand", (SUM, "model.activations[layer + 1] = out + out")),
    changed("tensor_parallel", "all ranks with the same piece", (LOAD, "model.load_weights(layer, 0, model.RANKS)")),
    changed("tensor_parallel", "nothing is ever given back", (POPPED, "model.activations[layer], model.grad_activations[layer + 1]"), ("model.loss(" + WHOLE_OUT + ")", "model.loss(model.activations[model.LAYERS])")),
    changed("tensor_parallel", "FSDP, which has one micro-batch for each rank", base="fsdp"),
    changed("tensor_parallel", "the gradient of the layer below", ("allreduce(grad, layer - 1)", "allreduce(grad, layer)")),
    changed("tensor_parallel", "reduce-scatter, and the slice for the whole", (SUM, "model.activations[layer + 1] = await model.scatterreduce(out, layer + 1)")),
    changed("tensor_parallel", "summed over half of the ranks only", (SUM, "model.activations[layer + 1] = await model.allreduce(out, layer + 1, ranks=[model.rank // 2 * 2, model.rank // 2 * 2 + 1])")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("tensor_parallel", "each rank gathers the layer, and computes alone", (FORWARD, "weight = await model.allgather(weight, layer)\n        model.activations[layer + 1] = model.forward(layer, inp, weight)"),
            ("        " + SUM + "\n", ""), ("        inp, grad_out =", "        piece = await model.allgather(model.weights[layer], layer)\n        inp, grad_out ="), ("model.grad_weights[layer], grad = model.backward(", "of_weight, grad = model.backward("),
            (PARTIAL, "layer, inp, grad_out, piece"), (IF, "        model.grad_weights[layer] = of_weight.shard(model.rank, model.RANKS)\n        model.grad_activations[layer] = grad\n")),
    changed("tensor_parallel", "a partial sum made whole by its name", (SUM, "model.activations[layer + 1] = Activation(layer + 1, model.LAYERS, [0], 1)")),
    changed("tensor_parallel", "the states gathered to be looked at", ("late: int", "late: int = 1"), ("    return model", "    await model.allgather(model.opt_states[7], 7)\n    return model"), base="in_pieces"),
    changed("tensor_parallel", "the state of another piece", (LOAD, "model.load_weights(layer, model.rank, model.RANKS)\n        _, model.opt_states[layer] = model.load_weights(layer, model.rank ^ 1, model.RANKS)")),
    changed("tensor_parallel", "a slice of the sequence for each rank", ("model.activations[0] = model.get_activation([0])", "model.activations[0] = model.get_activation([0]).shard(model.rank, model.RANKS)")),
    changed("tensor_parallel", "slices gathered, which is the next puzzle", (SUM, "model.activations[layer + 1] = await model.allgather(await model.scatterreduce(out, layer + 1), layer + 1)")),
    changed("tensor_parallel", "the gradient made up", (IF, IF + "        model.grad_weights[layer] = model.fake_grad(layer, [0]).shard(model.rank, model.RANKS)\n")),
]  # fmt: skip
