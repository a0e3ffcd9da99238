"""Puzzle 20, hierarchical: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

FIRST = 'grad = await model.scatterreduce(grad, layer, axis="shard")'
THIRD = 'grad = await model.allgather(grad, layer, axis="shard")'
LOSS = "model.loss(model.activations.pop(model.LAYERS))"
INPUT = "model.get_activation([model.rank])"
UPDATE = "layer, grad, model.weights[layer], model.opt_states[layer]"
ANSWER = "        model.set_final_weight(layer, model.weights[layer])\n"

HONEST = [
    changed("hierarchical", "stage by stage beside the backward passes", base="hierarchical_overlap"),
    changed("hierarchical", "its micro-batch by its place in the mesh", (INPUT, 'model.get_activation([model.axis_index("replica") * model.axis_size("shard") + model.axis_index("shard")])')),
    changed("hierarchical", "the last activation stays stored", (LOSS, "model.loss(model.activations[model.LAYERS])")),
    changed("hierarchical", "each call beside its await", (FIRST, 'call = model.scatterreduce(grad, layer, axis="shard")\n        grad = await call')),
    changed("hierarchical", "the answer at the end", (ANSWER, ""), ("    return model", "    for layer in range(model.LAYERS):\n        model.set_final_weight(layer, model.weights[layer])\n    return model")),
    changed("hierarchical", "every name is written out", (UPDATE, "layer=layer, weight_grad=grad, weight=model.weights[layer], opt_state=model.opt_states[layer]")),
]  # fmt: skip

UPDATED = "        model.weights[layer], model.opt_states[layer] = model.update(\n"
BY_TURNS = "        if layer == model.LAYERS - 1 and model.rank % 2:\n            continue\n"
SENDS = "        if layer == model.LAYERS - 1:\n            sends = [model.pass_to(model.rank + 1, one) for one in (model.weights[layer], model.opt_states[layer])]\n"
TAKEN = """    layer = model.LAYERS - 1
    if model.rank % 2:
        model.weights[layer] = await model.receive(src=model.rank - 1)
        model.opt_states[layer] = await model.receive(src=model.rank - 1)
        model.set_final_weight(layer, model.weights[layer])
    else:
        for send in sends:
            await send
"""

MISTAKES = [
    changed("hierarchical", "a layer updated on every second rank, and sent to its neighbor", (UPDATED, BY_TURNS + UPDATED), (ANSWER, ANSWER + SENDS + TAKEN)),
    changed("hierarchical", "one ring for all", base="flat_ring"),
    changed("hierarchical", "an axis that is not there", (FIRST, FIRST.replace("shard", "node"))),
    changed("hierarchical", "a call without await", (THIRD, THIRD.replace("await ", ""))),
    # -- round the work -------------------------------------------------------------------------------------
    changed("hierarchical", "one call for several layers", (FIRST, '(grad,) = await model.scatterreduce([grad], [layer], axis="shard")')),
    changed("hierarchical", "a gradient made by hand", (THIRD, THIRD + "\n        grad = WeightGrad(layer, model.LAYERS, range(model.BATCHES), model.BATCHES)")),
]  # fmt: skip
