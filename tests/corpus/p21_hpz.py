"""Puzzle 21, hpz: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

FIRST = "weight = await model.allgather(model.weights[layer], layer)"
KEEP = 'model.weights["node", layer] = weight.shard(shard, shards)'
POP = 'in_node = model.weights.pop(("node", layer))'
SECOND = 'weight = await model.allgather(in_node, layer, axis="shard")'
SUM = "grad = await model.scatterreduce(grad, layer)"
LOSS = "model.loss(model.activations.pop(model.LAYERS))"
POPPED = "model.activations.pop(layer), model.grad_activations.pop(layer + 1)"
UPDATE = "layer, grad, model.weights[layer], model.opt_states[layer]"
ANSWER = "        model.set_final_weight(layer, model.weights[layer])\n"
LOADED = """        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
"""

HONEST = [
    changed("hpz", "the copies stay stored", (POP, 'in_node = model.weights["node", layer]')),
    changed("hpz", "the last activation stays stored", (LOSS, "model.loss(model.activations[model.LAYERS])")),
    changed("hpz", "all activations stay stored", (POPPED, "model.activations[layer], model.grad_activations.pop(layer + 1)")),
    changed("hpz", "its place counted by hand", ('model.axis_index("shard"), model.axis_size("shard")', 'model.rank % model.axis_size("shard"), model.axis_size("shard")')),
    changed("hpz", "copies in a storage of their own", (KEEP, "model.weights[layer + 1000] = weight.shard(shard, shards)"), (POP, "in_node = model.weights.pop(layer + 1000)")),
    changed("hpz", "the last layer is gathered once", (SECOND, 'weight = model.weights.pop("top") if layer == model.LAYERS - 1 else await model.allgather(in_node, layer, axis="shard")'), (KEEP, KEEP + '\n        if layer == model.LAYERS - 1:\n            model.weights["top"] = weight')),
    changed("hpz", "a call, and its await at once", (SUM, "call = model.scatterreduce(grad, layer)\n        grad = await call")),
    changed("hpz", "the answer at the end", (ANSWER, ""), ("    return model", "    for layer in range(model.LAYERS):\n        model.set_final_weight(layer, model.weights[layer])\n    return model")),
]  # fmt: skip

MISTAKES = [
    changed("hpz", "FSDP", base="fsdp_through_one_card"),
    changed("hpz", "everything over the node", base="hsdp"),
    changed("hpz", "weights over the node, states over all", (LOADED, '        model.weights["node", layer], state = model.load_weights(layer, shard, shards)\n        model.opt_states[layer] = state.shard(model.axis_index("replica"), model.axis_size("replica"))\n'), (FIRST, 'weight = await model.allgather(model.weights["node", layer], layer, axis="shard")'), (f"        {KEEP}\n", ""), (SUM, 'grad = await model.scatterreduce(grad, layer, axis="shard")\n        grad = await model.scatterreduce(grad, layer, axis="replica")'), (UPDATE, 'layer, grad, model.weights["node", layer].shard(model.axis_index("replica"), model.axis_size("replica")), model.opt_states[layer]'), (ANSWER, '        model.weights[layer] = await model.allgather(model.weights[layer], layer, axis="replica")\n' + ANSWER), (POP, 'in_node = model.weights["node", layer]')),
    changed("hpz", "all that was gathered is kept", (KEEP, 'model.weights["node", layer] = weight'), (SECOND, "weight = in_node")),
    changed("hpz", "a copy for each replica instead of each node", ('axis_index("shard"), model.axis_size("shard")', 'axis_index("replica"), model.axis_size("replica")'), (SECOND, SECOND.replace("shard", "replica"))),
    changed("hpz", "sums in the node alone", (SUM, 'grad = await model.scatterreduce(grad, layer, axis="shard")')),
    changed("hpz", "a whole sum", (SUM, "grad = await model.allreduce(grad, layer)")),
    changed("hpz", "the copy is the one that is updated", (UPDATE, "layer, grad, in_node, model.opt_states[layer]")),
    changed("hpz", "the first copy is forgotten", (KEEP, "")),
    changed("hpz", "a gather without await", (SECOND, SECOND.replace("await ", ""))),
    # -- round the work -------------------------------------------------------------------------------------
    changed("hpz", "other ranks' gradients made up", (SUM, "grad = grad + model.fake_grad(layer, [mb for mb in range(model.BATCHES) if mb != model.rank])\n        grad = grad.shard(model.rank, model.RANKS)")),
    changed("hpz", "a gradient made by hand", (SUM, SUM + "\n        grad = WeightGrad(layer, model.LAYERS, range(model.BATCHES), model.BATCHES)")),
    changed("hpz", "a weight made by hand", (SECOND, "weight = Weight(layer, model.LAYERS, 0)")),
    changed("hpz", "the copy is loaded again", (KEEP, 'model.weights["node", layer], _ = model.load_weights(layer, shard, shards)')),
    changed("hpz", "one call for several layers", (SUM, "(grad,) = await model.scatterreduce([grad], [layer])")),
]  # fmt: skip
