"""Programs that bring lists to their collectives, in puzzles that do not grant them: right, fast, and refused."""

from . import Program, changed, function
from .forged import raw

SAYS = "must be solved without lists of tensors in one call"

# Data parallel: all sums at once.
SUM = "        grad = await model.allreduce(grad, layer)\n"
UPDATE = function("ddp").partition(SUM)[2].partition("    ### END")[0]
AT_ONCE = """        model.grad_weights[layer] = grad
    order = list(reversed(range(model.LAYERS)))
    for layer, grad in zip(order, await model.allreduce([model.grad_weights.pop(layer) for layer in order], order)):
        model.grad_weights[layer] = grad
    for layer in order:
        grad = model.grad_weights.pop(layer)
"""
# FSDP: the second layer of a pair is gathered with the first, and both gradients go together.
GATHER = "        weight = await model.allgather(model.weights[layer], layer)\n"
FORWARD_PAIR = """        if layer % 2 == 0:
            pair = range(layer, min(layer + 2, model.LAYERS))
            for other, whole in zip(pair, await model.allgather([model.weights[at] for at in pair], pair)):
                model.weights["whole", other] = whole
        weight = model.weights.pop(("whole", layer))
"""
BACKWARD_PAIR = """        if layer % 2 == 1 or layer == model.LAYERS - 1:
            pair = [layer, layer - 1] if layer % 2 else [layer]
            for other, whole in zip(pair, await model.allgather([model.weights[at] for at in pair], pair)):
                model.weights["whole", other] = whole
        weight = model.weights.pop(("whole", layer))
"""
REDUCE = "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n"
REDUCE_PAIR = """        model.grad_weights[layer] = grad
        if layer % 2 == 0:
            pair = range(layer, min(layer + 2, model.LAYERS))
            sums = await model.scatterreduce([model.grad_weights.pop(at) for at in pair], pair)
            for other, total in zip(pair, sums):
                model.grad_weights[other] = total
"""
BACKWARDS = "    for layer in reversed(range(model.LAYERS)):\n"
# Replica-FSDP: across the nodes, one sum and one gather of all layers.
ACROSS = function("replica_fsdp").partition("        del model.grad_activations[0]\n\n")[2].partition("    ### END")[0]
ALL_ACROSS = """    layers = range(model.LAYERS)
    sums = await model.scatterreduce([model.grad_weights.pop(layer) for layer in layers], layers, axis="replica")
    for layer, total in zip(layers, sums):
        model.grad_weights[layer] = total
    for layer in layers:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer].shard(replica, replicas), model.opt_states[layer]
        )
    wholes = await model.allgather([model.weights[layer] for layer in layers], layers, axis="replica")
    for layer, weight in zip(layers, wholes):
        model.weights[layer] = weight
    for layer in layers:
        model.set_final_weight(layer, model.weights[layer])
"""

MISTAKES: list[Program] = [
    changed("ddp", "one list for all sums", (SUM + UPDATE, AT_ONCE + UPDATE)),
    changed("wsdp", "a list of one, once", (SUM, SUM.replace("await model.allreduce(grad, layer)", "(await model.allreduce((grad,), (layer,)))[0] if layer == 0 else await model.allreduce(grad, layer)"))),
    changed("fsdp", "layers in pairs", (BACKWARDS + GATHER, BACKWARDS + BACKWARD_PAIR), (GATHER, FORWARD_PAIR), (REDUCE, REDUCE_PAIR)),
    changed("replica_fsdp", "two lists across the nodes", (ACROSS, ALL_ACROSS)),
    changed("fsdp", "gathers of one", ("weight = await model.allgather(model.weights[layer], layer)", "[weight] = await model.allgather([model.weights[layer]], [layer])")),
    changed("pipeline_fsdp", "gathers of one", ("weight = await model.allgather(model.weights[layer], layer)", "[weight] = await model.allgather([model.weights[layer]], [layer])")),
]  # fmt: skip

TAMPERING: list[Program] = [
    changed("ddp", "a list whose word is taken out of the library", (SUM + UPDATE, AT_ONCE + UPDATE),
            ("async def ddp", "import lib.machine.in_flight, lib.record.labels, lib.course.specs\nlib.machine.in_flight.LISTS = lib.record.labels.LISTS = ''\nfor spec in lib.course.specs.kept('specs.json').values(): spec['words'] = ['lists', '']\n\nasync def ddp"), says=SAYS),
    changed("ddp", "a list sent past Model", (SUM + UPDATE, AT_ONCE.replace("await model.allreduce([model.grad_weights.pop(layer) for layer in order], order)", "await past(model, order)") + UPDATE),
            ("async def ddp", "async def past(model, order):\n    from lib.learner.calls import Call\n    tokens = [model.grad_weights[layer]._token for layer in order]\n    return await Call(model._caller, model._simulator.meet_list(model._handle, 'allreduce', tokens, order, None), sys._getframe())\n\nasync def ddp"), says=SAYS),
    raw("fsdp", "tensors of another rank in a list", ("    model.activations[0] =", "    everyone.append(model.weights[0]._token)\n    if model.rank == 3:\n        model._simulator.notes.append(Raw(['meet_list', model.rank, None, 'allgather', everyone[:1], [0], None]))\n    model.activations[0] ="),
            ("async def fsdp", "everyone = []\n\nasync def fsdp"), says="belongs to rank"),
    raw("fsdp", "a list that is none", ("    model.activations[0] =", "    model._simulator.notes.append(Raw(['meet_list', model.rank, None, 'allgather', {'0': 0}, [0], None]))\n    model.activations[0] ="), says="no recording of a run"),
    raw("fsdp", "one tensor a thousand times", ("    model.activations[0] =", "    model._simulator.notes.append(Raw(['meet_list', model.rank, None, 'allgather', [model.weights[0]._token] * 1000, [0] * 1000, None]))\n    model.activations[0] ="), says="is in the list 1000 times"),
]  # fmt: skip
