"""Programs that must not pass, as people write them by mistake, or to get round the work by the public names alone."""

from __future__ import annotations

from . import Program, after, changed, of_each_puzzle, whole
from .again import MISTAKES as AGAIN
from .copies import COPIES
from .elsewhere import MISTAKES as ELSEWHERE
from .lists import MISTAKES as LISTS
from .needless import MISTAKES as NEEDLESS
from .tasks import MISTAKES as TASKS
from .whose_work import MISTAKES as WHOSE_WORK

FORWARD = "model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)"
KEPT = (
    "        model.activations[layer + 1] =",
    '        model.weights["whole", layer] = weight\n        model.activations[layer + 1] =',
)
LOAD = "layer, model.rank, model.RANKS"
SUM = "        grad = await model.allreduce(grad, layer)\n"
REDUCE = "        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n"
SET = "        model.set_final_weight(layer, model.weights[layer])\n"
OWN = "[model.rank]"
MINE = "range(model.RANKS - 1 - model.rank, model.BATCHES, model.RANKS)"
LOSS = "    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))\n"
POPS = "inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)"
CUT = "        model.grad_weights[layer] = model.grad_weights[layer].shard(model.rank, model.RANKS)\n"
WHOLE = "this is puzzle 3: the rank received a whole summed gradient and used"
UPDATE = "layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]"

TRAVEL = """
async def NAME(model):
    per = model.LAYERS // model.RANKS
    for layer in range(model.LAYERS):
        owner = layer // per
        if owner == model.rank:
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
            for other in range(model.RANKS):
                if other != model.rank:
                    await model.pass_to(other, model.weights[layer])
        else:
            model.load_weights(layer)
            model.weights[layer] = await model.receive(owner)
    mine = [batch for batch in range(model.BATCHES) if batch % model.RANKS == model.rank]
    for batch in mine:
        model.activations[batch, 0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[batch, layer + 1] = model.forward(layer, model.activations[batch, layer], model.weights[layer])
        grad = model.grad_activations[batch] = model.loss(model.activations.pop((batch, model.LAYERS)))
        for layer in reversed(range(model.LAYERS)):
            of_weight, grad = model.backward(layer, model.activations.pop((batch, layer)), grad, model.weights[layer])
            model.grad_activations[batch] = grad
            model.grad_weights[layer] = model.grad_weights[layer] + of_weight if layer in model.grad_weights else of_weight
    for layer in range(model.LAYERS):
        own = model.grad_weights.pop(layer) if mine else model.fake_grad(layer, [])
        model.grad_weights[layer] = await model.allreduce(own, layer)
        if layer // per == model.rank:
            model.weights[layer], model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer])
            model.set_final_weight(layer, model.weights[layer])
    return model
"""
"""Data parallel where the weights travel: whose layer it is loads it for all, the others load and drop it at once."""

WEIGHTS_TRAVEL = """
async def NAME(model):
    share = model.LAYERS // model.RANKS
    mine = range(model.rank * share, (model.rank + 1) * share)
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    if model.rank:
        for layer in mine:
            await model.pass_to(0, model.weights[layer])
        for layer in reversed(mine):
            model.grad_weights[layer] = await model.receive(src=0)
    else:
        for layer in range(share, model.LAYERS):
            model.weights[layer] = await model.receive(src=layer // share)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
        model.grad_activations[0] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            model.grad_weights[layer], model.grad_activations[0] = model.backward(
                layer, model.activations.pop(layer), model.grad_activations.pop(0), model.weights[layer]
            )
        for layer in reversed(range(share, model.LAYERS)):
            await model.pass_to(layer // share, model.grad_weights.pop(layer))
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
"""
"""One rank does all work on the layers, with weights that the others lend it, and gives back their gradients."""

DENSE_ONLY = "        if not model.experts(layer):\n            grad = await"
TOKENS_HOME = "acts[layer + 1] = await model.alltoall(out, layer + 1)"
SET_FINAL = "        model.set_final_weight(layer, model.weights[layer])\n"
KEYS_GATHERED = '        kv = await model.allgather(acts["kv", layer], layer)\n        ### BROKEN'
IN_ZIGZAG = "inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))"

ACROSS_AT_ONCE = (
    ("async def hybrid_overlapped(model: Model, gathers: str)", "async def repair_book(model)"),
    ("(layer: int) -> Any", "(layer)"),
    ("ahead, across = None, {}", 'ahead, across, gathers = None, {}, "s"'),
    (
        """            if layer in model.grad_weights:
                grad = model.grad_weights.pop(layer) + grad
            if batch < mine[-1]:
                model.grad_weights[layer] = grad
                continue
            across[layer] =""",
        """            await come((layer + 1) % model.LAYERS)
            await come(layer)
            across[layer] =""",
    ),
    (
        "            if layer < top:\n                await update(layer + 1)\n    await update(0)\n",
        "            if layer < top and batch == mine[-1]:\n                await update(layer + 1)\n    await update(0)\n",
    ),
    (
        "    async def update(layer: int) -> None:\n        grad = await across.pop(layer)\n",
        """    async def come(layer):
        if layer in across:
            grad = await across.pop(layer)
            so_far = model.grad_weights.pop(layer, None)
            model.grad_weights[layer] = so_far + grad if so_far else grad

    async def update(layer: int) -> None:
        await come(layer)
        grad = model.grad_weights.pop(layer)
""",
    ),
)
"""A gradient of each micro-batch is summed across the nodes while the next backward runs."""

MISTAKES: list[Program] = [
    # -- micro-batches ----------------------------------------------------------------------------------------
    changed("ddp", "everybody trains micro-batch 0", (OWN, "[0]"), says="would be counted twice"),
    changed("ddp", "everybody trains all", (OWN, "range(model.BATCHES)"), says="would be counted twice"),
    changed("ddp", "no sum", (SUM, ""), says="the gradient is missing micro-batch"),
    changed("ddp", "summed twice", (SUM, SUM + SUM), says="would be counted twice"),
    changed("grad_accum", "the last micro-batch left out", ("range(model.BATCHES)", "range(model.BATCHES - 1)"), says="missing micro-batch 3"),
    changed("grad_accum", "the sum forgotten", ("grad if mb == 0 else model.grad_weights[layer] + grad", "grad"), says="missing micro-batches 0-2"),
    changed("grad_accum", "one twice", ("model.get_activation([mb])", "model.get_activation([mb // 2])"), says="micro-batch 0 was taken before"),
    changed("basic", "half the batch", ("range(model.BATCHES)", "range(model.BATCHES // 2)"), says="missing micro-batch"),
    changed("gpipe", "an input out of range", ("model.get_activation([mb])", "model.get_activation([mb + 1])"), says="from 0 to 3"),
    changed("gpipe", "a micro-batch's gradient twice", ("model.grad_weights[layer] + grad", "model.grad_weights[layer] + grad + grad"), says="would be counted twice"),
    changed("gpipe", "gradients of the wrong micro-batch", ("model.activations.pop((layer, mb))", "model.activations.pop((layer, model.BATCHES - 1 - mb))"), says="different micro-batches"),
    changed("replica_fsdp", "both replicas train the same", ("model.rank * share, (model.rank + 1) * share", "shard * share, (shard + 1) * share"), says="would be counted twice"),
    changed("replica_fsdp", "both micro-batches at once", ("for mb in range(model.rank * share, (model.rank + 1) * share):", "for mb in [range(model.rank * share, (model.rank + 1) * share)]:"), ("[mb]", "mb"), says="one micro-batch after the other"),
    changed("replica_fsdp", "never summed over the replicas", ('await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="replica")', "model.grad_weights.pop(layer).shard(replica, replicas)"), says="the gradient is missing micro-batch"),
    changed("replica_fsdp", "summed over the wrong axis", ('model.scatterreduce(grad, layer, axis="shard")', 'model.scatterreduce(grad, layer, axis="replica")'), says="gradients of different shards do not add up"),
    changed("replica_fsdp", "summed over all ranks at once", ('model.scatterreduce(grad, layer, axis="shard")', "model.scatterreduce(grad, layer)"), says="gradients of different shards do not add up"),
    changed("replica_fsdp", "the running sum reduced", ("model.grad_weights[layer] = so_far + grad if so_far else grad", 'model.grad_weights[layer] = await model.allreduce(so_far + grad if so_far else grad, layer, axis="replica")'), says="would be counted twice"),
    # -- layers, shards, versions ---------------------------------------------------------------------------------
    changed("fsdp", "one shard short", (LOAD, "layer, model.rank, model.RANKS + 1"), says="the weight is not complete"),
    changed("fsdp", "the same shard everywhere", (LOAD, "layer, 0, model.RANKS"), says="a shard would be counted twice"),
    changed("fsdp", "a shard out of range", (LOAD, "layer, model.rank + 1, model.RANKS"), says="from 0 to 3"),
    changed("fsdp", "no gather", ("await model.allgather(model.weights[layer], layer)", "model.weights[layer]"), says="weight = await model.allgather(model.weights[0], 0)"),
    changed("fsdp", "the gradient not scattered", (REDUCE, "        model.grad_weights[layer] = grad\n"), says="the gradient is missing micro-batch"),
    changed("fsdp", "a shard of another rank's", ("model.grad_weights.pop(layer), model.weights", "model.grad_weights.pop(layer).shard(0, 2), model.weights"), says="the gradient does not cover the weight"),
    changed("wsdp", "updated the whole weight with a shard of state", ("layer, grad, model.weights[layer]", "layer, grad, await model.allgather(model.weights[layer], layer)"), says="was not stored when rank"),
    changed("ddp", "the weight of the wrong layer", ("layer, model.activations[layer], model.weights[layer]", "layer, model.activations[layer], model.weights[0]"), says="the weight is that of layer 0"),
    changed("ddp", "the state of the wrong layer", ("model.opt_states[layer]\n        )\n        model.set", "model.opt_states[0]\n        )\n        model.set"), says="opt_state is of layer 0"),
    changed("ddp", "the layers in the wrong order", ("for layer in reversed(range(model.LAYERS))", "for layer in range(model.LAYERS)"), says="nothing is stored in grad_activations under 1"),
    changed("ddp", "updated before the other layers' backward, and used", ("            layer, inp, grad_out, model.weights[layer]", "            layer, inp, grad_out, model.weights[min(layer + 1, model.LAYERS - 1)]"), says="the weight is that of layer 1"),
    changed("grad_accum", "updated after every micro-batch", ("        del model.grad_activations[0]\n\n    for layer in range(model.LAYERS):\n        model.weights[layer], model", "        del model.grad_activations[0]\n        for layer in range(model.LAYERS):\n            model.weights[layer], model.opt_states[layer] = model.update(layer, model.grad_weights[layer], model.weights[layer], model.opt_states[layer])\n\n    for layer in range(model.LAYERS):\n        model.weights[layer], model"), says="missing micro-batches 1-3"),
    changed("basic", "updated and gone forward with", ("model.activations.pop(layer), model.grad", "model.activations[layer], model.grad"), ("    return model", "    model.forward(0, model.activations[0], model.weights[0])\n    return model"), says="the weight has been updated already"),
    changed("basic", "loss of the wrong layer", ("model.loss(model.activations.pop(model.LAYERS))", "model.loss(model.activations.pop(model.LAYERS - 1))"), says="the loss reads the output of the last layer"),
    changed("basic", "forward of the wrong layer", ("            layer, model.activations[layer]", "            layer, model.activations[0]"), says="the input is that of layer 0"),
    changed("pipeline", "the stages overlap", ("model.rank * share, (model.rank + 1) * share", "model.rank * share, (model.rank + 1) * share + (model.rank == 0)"), says="the input is that of layer 3"),
    # -- the end -----------------------------------------------------------------------------------------------------
    changed("fsdp", "no final weights", (SET, ""), says="no rank has set a final weight"),
    changed("fsdp", "final weights of rank 0 only", (SET, "        if model.rank == 0:\n    " + SET), says="the final weight is not complete"),
    changed("ddp", "final weights of rank 0 only", (SET, "        if model.rank == 0:\n    " + SET), says="rank 1: it ends without the final weight"),
    changed("ddp", "only rank 0 updates", ("        model.weights[layer], model.opt_states[layer] = model.update(", "        if model.rank:\n            continue\n        model.weights[layer], model.opt_states[layer] = model.update("), says="rank 1: it ends without the final weight"),
    changed("basic", "final weights before the update", (SET, ""), ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(", "    for layer in range(model.LAYERS):\n        model.set_final_weight(layer, model.weights[layer])\n        model.weights[layer], model.opt_states[layer] = model.update("), says="no weight of this layer after one optimizer step"),
    changed("basic", "the final weight of another layer", (SET, "        model.set_final_weight(0, model.weights[layer])\n"), says="the weight is that of layer 1"),
    changed("basic", "states not kept", ("        model.weights[layer], model.opt_states[layer] = model.update(", "        model.weights[layer], _ = model.update("), says="it ends without the updated optimizer state"),
    changed("fsdp", "states thrown away", ("    return model", "    model.opt_states.clear()\n    return model"), says="it ends without the updated optimizer state"),
    changed("basic", "one layer not trained", ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(", "    for layer in range(1, model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update("), says="layer 0: no rank has set a final weight"),
    changed("basic", "updated twice", (SET, "        model.weights[layer], model.opt_states[layer] = model.update(layer, model.grad_weights[layer], model.weights[layer], model.opt_states[layer])\n" + SET), ("model.grad_weights.pop(layer)", "model.grad_weights[layer]"), says="a Weight with layer=0, step=1"),
    # -- another technique in this puzzle's clothes ---------------------------------------------------------------------
    changed("fsdp", "data parallel", base="ddp", says="begins with the wrong part"),
    changed("ddp", "sharded", base="fsdp", says="begins with the wrong part"),
    changed("gpipe", "the pipeline without micro-batches", base="pipeline", says="one micro-batch after the other|over the target"),
    changed("pipeline", "micro-batches one by one: GPipe", base="gpipe", says="it works on micro-batch 0 alone"),
    changed("pipeline", "one forward, one backward", base="one_forward_one_backward", says="it works on micro-batch 0 alone"),
    changed("grad_accum", "all at once", base="basic", says="one micro-batch after the other"),
    changed("replica_fsdp", "sharded over everything", base="fsdp_on_nodes", says="begins with the wrong part"),
    changed("replica_fsdp", "states over the shard axis only", ("state.shard(replica, replicas)", "state"), ("model.weights[layer].shard(replica, replicas), model.opt_states[layer]", "model.weights[layer], model.opt_states[layer]"), ('await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="replica")', 'await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")'), ('await model.allgather(weight, layer, axis="replica")', "weight"), says="optimizer state of layer 0"),
    changed("replica_fsdp", "the axes changed places", ('model.axis_index("shard"), model.axis_size("shard")', 'model.axis_index("replica"), model.axis_size("replica")'), says="these are not parts of one thing|a shard would be counted twice"),
    changed("pipeline_fsdp", "a stage with every layer", ("if first <= layer <= last", "if layer <= last"), says="nothing is stored in activations|the function raised"),
    # -- a whole gradient where a piece is enough (test_whole_gradient.py has more ways) ----------------------------------
    changed("fsdp", "puzzle 3", base="wsdp", says=f"{WHOLE} 1/4 of it"),
    changed("fsdp", "puzzle 3, gathered ahead", base="wsdp_prefetch", says=f"{WHOLE} 1/4 of it"),
    changed("fsdp", "all-reduced and cut", (REDUCE, REDUCE.replace("scatterreduce", "allreduce") + CUT), says=WHOLE),
    changed("fsdp", "the pieces gathered again", (REDUCE, REDUCE + REDUCE.replace("scatterreduce(grad", "allgather(model.grad_weights.pop(layer)")), says=WHOLE),
    changed("fsdp", "piece by piece", (REDUCE, "        model.grad_weights[layer] = grad\n        for part in range(model.RANKS):\n            model.grad_weights[part, layer] = await model.allreduce(model.grad_weights[layer].shard(part, model.RANKS), layer)\n        for part in range(model.RANKS):\n            grad = model.grad_weights.pop((part, layer))\n            if part == model.rank:\n                model.grad_weights[layer] = grad\n"), says=WHOLE),
    changed("fsdp", "one rank sums for all", (REDUCE, "        model.grad_weights[layer] = grad\n        if model.rank:\n            await model.pass_to(0, model.grad_weights.pop(layer))\n            model.grad_weights[layer] = await model.receive()\n        else:\n            for other in range(1, model.RANKS):\n                model.grad_weights[layer] = model.grad_weights[layer] + await model.receive(src=other)\n            for other in range(1, model.RANKS):\n                await model.pass_to(other, model.grad_weights[layer].shard(other, model.RANKS))\n"), says="rank 0, receive(layer 5)"),
    changed("pipeline_fsdp", "all-reduced", ("model.scatterreduce(grad, layer)", "model.allreduce(grad, layer)"), says=f"{WHOLE} 1/16 of it"),
    changed("replica_fsdp", "all-reduced in the node and cut", ('grad = await model.scatterreduce(grad, layer, axis="shard")', 'grad = (await model.allreduce(grad, layer, axis="shard")).shard(shard, shards)'), says=f"{WHOLE} 1/8 of it"),
    changed("repair_groups", "all-reduced in the node and cut", ('        grad = await model.scatterreduce(grad, layer, axis="shard")\n        grad =', '        grad = (await model.allreduce(grad, layer, axis="shard")).shard(shard, shards)\n        grad ='), says=f"{WHOLE} 1/4 of it"),
    after("pipeline", "one rank does it all", """
async def pipeline(model):
    if model.rank == 0:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
        g = model.loss(model.activations[model.LAYERS])
        for layer in reversed(range(model.LAYERS)):
            model.grad_weights[layer], model.grad_activations[0] = model.backward(layer, model.activations.pop(layer), g, model.weights[layer])
            g = model.grad_activations.pop(0)
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer])
            model.set_final_weight(layer, model.weights[layer])
""", "2 layers for each rank"),
    changed("pipeline", "uneven stages", ("model.rank * share, (model.rank + 1) * share", "max(0, model.rank * share - 1), ((model.rank + 1) * share - 1 if model.rank < model.RANKS - 1 else model.LAYERS)"), says="for each rank"),
    # -- right, but ---------------------------------------------------------------------------------------------------------
    changed("fsdp", "a gather too many", (LOSS, "    await model.allgather(model.weights[0], 0)\n" + LOSS), says="Correct, but over the target: 20.7 ticks, target 20.4"),
    changed("gpipe", "one micro-batch all the way at a time", ("    for mb in range(model.BATCHES):\n        if is_last", "        if is_last"), says="over the target"),
    changed("ddp", "the activations kept", ("model.activations.pop(layer)", "model.activations[layer]"), ("model.activations.pop(model.LAYERS)", "model.activations[model.LAYERS]"), (SUM, SUM + '        model.weights["x", layer] = model.weights[layer]\n'), says="Correct, but over the target"),
    changed("fsdp", "the gathered weights kept", ("        " + FORWARD, "        model.weights['whole', layer] = weight\n        " + FORWARD), says="Correct, but over the target"),
    changed("fsdp", "the whole gradients kept", (REDUCE, REDUCE + "        model.grad_weights['whole', layer] = grad\n"), says="was not stored when rank"),
    changed("fsdp", "an all-reduce where a shard would do", ("await model.scatterreduce(grad, layer)", "await model.allreduce(grad, layer)"), says=WHOLE),
    # -- one size only --------------------------------------------------------------------------------------------------------
    changed("ddp", "four ranks in mind", ("[model.rank]", "[model.rank % 4]"), says="right at its own size, but not with"),
    changed("fsdp", "six layers in mind", ("range(model.LAYERS)", "range(6)"), ("model.grad_activations[model.LAYERS]", "model.grad_activations[6]"), ("activations.pop(model.LAYERS)", "activations.pop(6)"), says="right at its own size, but not with"),
    changed("basic", "two layers in mind", ("range(model.LAYERS)", "range(2)"), ("model.LAYERS", "2"), says="right at its own size, but not with"),
    changed("pipeline_fsdp", "four layers in mind", ("share = model.LAYERS // stages", "share = 1"), says="right at its own size, but not with"),
    changed("replica_fsdp", "two replicas in mind", ("model.axis_index(\"replica\"), model.axis_size(\"replica\")", "model.axis_index(\"replica\"), 2"), says="right at its own size, but not with"),
    changed("gpipe", "four micro-batches in mind", ("range(model.BATCHES)", "range(4)"), says="right at its own size, but not with"),
    # -- memory that is hidden ---------------------------------------------------------------------------------------------------
    changed("grad_accum", "activations in a list", ("    for mb in range", "    hidden = {}\n    for mb in range"), ("model.activations[layer + 1] =", "hidden[layer + 1] ="), ("inp, weight = model.activations[layer], ", "inp, weight = hidden.get(layer) or model.activations[layer], "), ("model.loss(model.activations.pop(model.LAYERS))", "model.loss(hidden[model.LAYERS])"), ("model.activations.pop(layer), ", "hidden.get(layer), "), says="was not stored when rank 0 issued"),
    changed("fsdp", "gathered once, kept in a local", ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = hidden[layer] = await model.allgather(model.weights[layer], layer)\n        model.act"), ("        weight = await model.allgather(model.weights[layer], layer)\n        inp", "        weight = hidden[layer]\n        inp"), ("    for layer in reversed", "    pass\n    for layer in reversed"), ("    model.activations[0] =", "    hidden = {}\n    model.activations[0] ="), says="was not stored when rank"),
    changed("fsdp", "gathered once, kept in a closure", ("        " + FORWARD, "        kept.append(lambda weight=weight: weight)\n        " + FORWARD), ("        weight = await model.allgather(model.weights[layer], layer)\n        inp", "        weight = kept[layer]()\n        inp"), ("    model.activations[0] =", "    kept = []\n    model.activations[0] ="), says="was not stored when rank"),
    changed("fsdp", "gathers in flight as a store", ("    model.activations[0] =", "    flying = [[model.allgather(model.weights[layer], layer) for layer in range(model.LAYERS)] for _ in range(2)]\n    model.activations[0] ="), ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = await flying[0][layer]\n        model.act"), ("weight = await model.allgather(model.weights[layer], layer)\n        inp", "weight = await flying[1][layer]\n        inp"), says="over the target"),
    changed("grad_accum", "activations in futures", ("    for mb in range", "    box = {}\n    for mb in range"), ("model.activations[layer + 1] = model.forward(layer, inp, weight)", "model.activations[layer + 1] = model.forward(layer, inp, weight)\n            box[layer] = concurrent.futures.Future(); box[layer].set_result(model.activations[layer])"), ("model.activations.pop(layer), model", "(model.activations.pop(layer, None), box[layer].result())[1], model"), ("        model.grad_activations[model.LAYERS] = model.loss(", "        model.activations.pop(0)\n        model.grad_activations[model.LAYERS] = model.loss("), says="was not stored when rank 0 issued"),
    changed("pipeline", "activations on the way to oneself", ("    if is_last:\n", "    await model.pass_to(model.rank, model.activations[first])\n    if is_last:\n"), says="a rank cannot pass to itself"),
    changed("fsdp", "a copy of the dictionary", ("    for layer in range(model.LAYERS):\n        weight = await", "    shards = model.weights.copy()\n    model.weights.clear()\n    for layer in range(model.LAYERS):\n        weight = await"), ("model.allgather(model.weights[layer], layer)", "model.allgather(shards[layer], layer)"), says="was not stored when rank"),
    changed("ddp", "the rest of the memory in another rank's mailbox", (LOSS, LOSS + "    await model.pass_to((model.rank + 1) % model.RANKS, model.activations[0])\n"), says="a message was sent and never received"),
    # -- communication that is got round -------------------------------------------------------------------------------------------
    changed("fsdp", "everything loaded instead of gathered", ("await model.allgather(model.weights[layer], layer)", "model.load_weights(layer)[0]"), says="taken that piece of the Weight from load_weights before"),
    changed("fsdp", "a global that all ranks share", ("async def fsdp", "SHARED = {}\n\nasync def fsdp"), ("    model.activations[0]", "    SHARED.update({(layer, model.rank): weight for layer, weight in model.weights.items()})\n    await model.allreduce(model.fake_grad(0, []), 0)\n    model.activations[0]"), ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = functools.reduce(lambda a, b: a.combine(b), [SHARED[layer, r] for r in range(model.RANKS)])\n        model.act"), says="belongs to rank"),
    changed("ddp", "gradients over a global", ("async def ddp", "SHARED = {}\n\nasync def ddp"), (SUM, "        SHARED[layer, model.rank] = grad\n        await asyncio.sleep(0)\n        grad = sum(SHARED[layer, r] for r in range(model.RANKS))\n"), says="belongs to rank|KeyError"),
    changed("pipeline", "several tensors in a message", ("model.activations.pop(end))", "[model.activations.pop(end)])"), says="sends one tensor"),
    changed("pipeline", "a tensor's name sent instead of it", ("model.activations.pop(end))", 'repr(model.activations.pop(end)))'), says="only tensors can be stored"),
    # -- tensors out of nothing --------------------------------------------------------------------------------------------------------
    changed("ddp", "a gradient made up", (SUM, "        grad = model.fake_grad(layer, range(model.BATCHES))\n"), says="is made up"),
    changed("ddp", "a gradient by hand", (SUM, "        grad = WeightGrad(layer, model.LAYERS, range(model.BATCHES), model.BATCHES)\n"), says="is made up"),
    changed("basic", "final weights by hand", ("        model.set_final_weight(layer, model.weights[layer])", "        model.set_final_weight(layer, Weight(layer, model.LAYERS, 1))"), says="is made up"),
    changed("fsdp", "a whole weight by hand", ("await model.allgather(model.weights[layer], layer)", "Weight(layer, model.LAYERS, 0)"), says="is made up"),
    changed("fsdp", "a copied tensor", (LOSS, "    model.weights['x'] = copy.copy(model.weights[0])\n" + LOSS), says="is made up"),
    changed("fsdp", "a deep copy", (LOSS, "    model.weights['x'] = copy.deepcopy(model.weights[0])\n" + LOSS), says="is made up"),
    changed("fsdp", "a pickled tensor", (LOSS, "    model.weights['x'] = pickle.loads(pickle.dumps(model.weights[0]))\n" + LOSS), says="is made up"),
    changed("fsdp", "a tensor edited", (LOSS, "    model.weights[0].total = 1\n" + LOSS), says="tensors are frozen"),
    # -- what is called and not done, and what is good at one size only --------------------------------------------------------------------
    *[whole(name, "data parallel: every layer is loaded and dropped at once", TRAVEL.replace("NAME", name), "whose weight it has not loaded") for name in ("pipeline", "gpipe", "repair_deadlock", "one_f_one_b", "interleaved", "zero_bubble")],
    changed("ddp", "deadlocks with one layer", ("    return model", "    if model.LAYERS == 1:\n        await model.receive()\n    return model"), says="but not with"),
    changed("gpipe", "deadlocks with one micro-batch", ("    return model", "    if model.BATCHES == 1:\n        await model.receive()\n    return model"), says="but not with"),
    changed("gpipe", "deadlocks where layers are as many as ranks", ("    return model", "    if model.LAYERS == model.RANKS:\n        await model.receive()\n    return model"), says="but not with"),
    changed("replica_fsdp", "deadlocks with one layer", ("    return model", "    if model.LAYERS == 1:\n        await model.receive()\n    return model"), says="but not with"),
    changed("fsdp", "weights kept whole at any size but one", ("        model.activations[layer + 1] =", "        if model.LAYERS != 6:\n            model.weights['whole', layer] = weight\n        model.activations[layer + 1] ="), says="elements"),
    # -- mistakes whose fix is said ------------------------------------------------------------------------------------------------------
    changed("fsdp", "a dictionary replaced", (LOSS, LOSS + "    model.activations = {}\n"), says="model.activations.clear() empties it"),
    changed("fsdp", "a rank replaced", (LOSS, LOSS + "    model.rank = 0\n"), says="model.rank cannot be replaced"),
    changed("fsdp", "an answer written by hand", (LOSS, LOSS + "    model.final_weights[0] = model.weights[0]\n"), says="model.set_final_weight(layer, weight)"),
    changed("fsdp", "a tensor behind the dictionary's back", (LOSS, LOSS + "    dict.__setitem__(model.weights, 'x', model.load_weights(0)[0])\n    model.weights.pop('x')\n"), says="was never stored"),
    changed("fsdp", "a pair in one dictionary", (LOSS, LOSS + "    model.weights['x'] = model.load_weights(0)\n"), says="each in a place of its own: model.weights['x'], model.opt_states['x'] = ..."),
    changed("fsdp", "a dictionary for a tensor", ("layer, inp, grad_out, weight)", "layer, model.activations, grad_out, weight)"), says="one tensor of it: model.activations[...]"),
    changed("fsdp", "the two gradients changed places", ("layer, inp, grad_out, weight)", "layer, inp, model.fake_grad(layer, []), weight)"), says="backward gives the gradient of the weight first"),
    changed("fsdp", "another kind than the operation takes", ("layer, inp, grad_out, weight)", "layer, weight, grad_out, inp)"), says="model.backward(layer, inp, grad, weight)"),
    changed("fsdp", "nothing added to a gradient", (LOSS, LOSS + "    model.fake_grad(0, []) + None\n"), says="store the first gradient as it is"),
    changed("fsdp", "gradients gathered", ("await model.scatterreduce(", "await model.allgather("), says="gradients of different micro-batches are summed"),
    changed("fsdp", "the gathered weight over its shard", ("        weight = await model.allgather(model.weights[layer], layer)\n", "        weight = model.weights[layer] = await model.allgather(model.weights[layer], layer)\n"), says="it was gathered before, and is whole already"),
    changed("fsdp", "shard and total changed places", ("model.rank, model.RANKS", "model.RANKS, model.rank"), says="model.load_weights(layer, shard, total)"),
    changed("fsdp", "weights in twice as many pieces", ("model.rank, model.RANKS", "model.rank, 2 * model.RANKS"), says="each rank loads one of as many pieces as there are ranks"),
    changed("replica_fsdp", "no axis at the gather", ('axis="shard"', "axis=None"), says='hold the same shard, as they have loaded it; the shards differ along axis="shard"'),
    # -- asyncio --------------------------------------------------------------------------------------------------------------------------
    changed("fsdp", "no await at the gather", ("weight = await model", "weight = model"), says="did you forget `await`?"),
    changed("fsdp", "no await at the reduce-scatter", ("= await model.scatterreduce", "= model.scatterreduce"), says="did you forget `await`?"),
    changed("ddp", "no await at the sum", ("grad = await model", "grad = model"), says="did you forget `await`?"),
    changed("ddp", "a sum that nobody takes", ("    return model", "    model.allreduce(model.fake_grad(0, []), 0)\n    return model"), says="was started and never awaited"),
    changed("pipeline", "a send that nobody awaits", ("        await model.pass_to(model.rank - 1", "        model.pass_to(model.rank - 1"), says="was started and never awaited"),
    changed("pipeline", "a message that nobody receives", ("    return model", "    if is_first:\n        await model.pass_to(1, 'bye')\n    return model"), says="a message was sent and never received"),
    changed("pipeline", "all receive first", ("    if is_first:\n        model.activations[first] = model.get_activation(range(model.BATCHES))\n    else:\n        model.activations[first] = await model.receive(src=model.rank - 1)\n", "    model.activations[first] = await model.receive()\n"), says="deadlock: no rank can ever go on"),
    changed("pipeline", "received from the wrong side", ("src=model.rank - 1", "src=(model.rank + 1) % model.RANKS"), says="deadlock: no rank can ever go on"),
    changed("ddp", "one rank skips a sum", (SUM, "        if model.rank or layer:\n    " + SUM), says="deadlock: no rank can ever go on|missing micro-batch"),
    changed("ddp", "ranks sum in different orders", ("for layer in reversed(range(model.LAYERS)):", "for layer in reversed(range(model.LAYERS)):\n        await model.allreduce(model.fake_grad(layer if model.rank else 0, []), layer if model.rank else 0)"), says="in the same order"),
    changed("fsdp", "ranks in different collectives", (REDUCE, "        model.grad_weights[layer] = await (model.scatterreduce if model.rank else model.allreduce)(grad, layer)\n"), says="calls scatterreduce(layer 5)"),
    changed("replica_fsdp", "an axis that is not there", ('axis="replica"', 'axis="replicas"'), says="there is no mesh axis 'replicas'"),
    changed("fsdp", "one rank returns early", ("    model.activations[0] =", "    if model.rank == 3:\n        return model\n    model.activations[0] ="), says="rank 3 has finished"),
    changed("fsdp", "a result awaited in the wrong place", (REDUCE, "        model.grad_weights[layer] = (await model.scatterreduce)(grad, layer)\n"), says="TypeError"),
    # -- Python ---------------------------------------------------------------------------------------------------------------------------
    changed("fsdp", "a name misspelt", ("model.grad_weights.pop", "model.grads_weight.pop"), says="did you mean model.grad_weights?"),
    changed("fsdp", "a local misspelt", ("grad_out, weight)", "grad_in, weight)"), says="name 'grad_in' is not defined"),
    changed("gpipe", "a key in two arguments", ("model.activations.pop((end, mb))", "model.activations.pop(end, mb)"), says="a pair as key"),
    changed("fsdp", "a number in place of a gradient", ("model.grad_weights[layer] = await model.scatterreduce(grad, layer)", "model.grad_weights[layer] = 0"), says="only tensors can be stored in grad_weights"),
    changed("fsdp", "the next layer is named", ("model.forward(layer, model.activations[layer]", "model.forward(layer + 1, model.activations[layer]"), says="are of layer 0"),
    changed("fsdp", "taken out twice", (POPS, POPS + "\n        model.activations.pop(layer)"), says="nothing is stored in activations under 5"),
    changed("fsdp", "a layer that is text", ("model.load_weights(\n            layer,", "model.load_weights(\n            str(layer),"), says="layer is out of range"),
    changed("fsdp", "None for a tensor", ("layer, inp, grad_out, weight)", "layer, None, grad_out, weight)"), says="inp must be an Activation"),
    changed("fsdp", "arguments in the wrong order", ("layer, inp, grad_out, weight)", "layer, grad_out, inp, weight)"), says="inp must be an Activation"),
    changed("fsdp", "a number for micro-batches", ("[model.rank]", "model.rank"), says="[0]"),
    changed("fsdp", "a model of its own", ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.load", "    model = Model(model.rank, model.dist, model.LAYERS, model.BATCHES)\n    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.load"), says="of this machine has its Model"),
    changed("fsdp", "its own error", (LOSS, LOSS + "    raise RuntimeError('not finished')\n"), says="RuntimeError: not finished"),
    changed("fsdp", "an error swallowed", (LOSS, "    try:\n        model.loss(model.activations[0])\n    except Exception:\n        pass\n" + LOSS), says="the loss reads the output of the last layer"),
    changed("fsdp", "an error swallowed whole", (LOSS, "    try:\n        model.load_weights(99)\n    except:\n        pass\n" + LOSS), says="layer is out of range"),
    changed("fsdp", "division by zero", ("model.load_weights(\n            layer", "model.load_weights(\n            layer // 0"), says="ZeroDivisionError"),
    whole("basic", "a generator", "def basic(model):\n    yield model.load_weights(0)", "await, not yield"),
    whole("basic", "a class", "class basic:\n    def __init__(self, model):\n        model.load_weights(0)", "run takes a function"),
    whole("basic", "no parameter", "def basic():\n    pass", "with one argument, the model"),
    whole("basic", "two parameters", "def basic(model, layers):\n    pass", "with one argument, the model"),
    whole("basic", "nothing but a load", "def basic(model):\n    model.weights[0], _ = model.load_weights(0)", "not finished yet: after load_weights comes model.get_activation(batches)"),
    whole("ddp", "nothing but a barrier", "async def ddp(model):\n    await model.allreduce(model.fake_grad(0, []), 0)", "first of all comes model.load_weights(layer)"),
    whole("fsdp", "a coroutine, not a function", "async def helper(model):\n    pass\n\nfsdp = helper(None)\nfsdp.close()", "run takes a function"),
    whole("ddp", "a thing that is no function", "ddp = 42", "run takes a function"),
    # -- one for each rule that none of the above comes to ---------------------------------------------------------------------------
    changed("basic", "an old state with a new weight", ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(", "    for layer in range(model.LAYERS):\n        model.opt_states['old', layer] = model.opt_states[layer]\n        model.weights[layer], model.opt_states[layer] = model.update("), ("model.grad_weights.pop(layer)", "model.grad_weights[layer]"), (SET, "        model.update(layer, model.grad_weights[layer], model.weights[layer], model.opt_states['old', layer])\n" + SET), says="weight and optimizer state are of different steps"),
    changed("wsdp", "half of the state", ("layer, grad, model.weights[layer], model.opt_states[layer]", "layer, grad, model.weights[layer], model.opt_states[layer].shard(0, 2)"), says="weight and optimizer state hold different shards"),
    changed("basic", "the input of another layer on the way down", ("layer, inp, grad, model.weights[layer]", "layer, model.activations.get(0, inp), grad, model.weights[layer]"), says="the input is that of layer 0"),
    changed("basic", "the gradient of another layer", ("model.grad_activations.pop(layer + 1)", "model.grad_activations[model.LAYERS]"), says="the gradient is that of layer 1"),
    *[whole(name, "the weights travel, not the activations", WEIGHTS_TRAVEL.replace("NAME", name), "it runs layer 2, whose weight it has not loaded") for name in ("pipeline", "repair_deadlock")],
    changed("pipeline_fsdp", "a rank runs all layers", ("first, last = stage * share, (stage + 1) * share - 1", "first, last = (0, model.LAYERS - 1) if stage == 0 else (99, -2)"), ("is_first, is_last = stage == 0, stage == stages - 1", "is_first = is_last = stage == 0"), says="it runs 2 of 4 layers"),
    whole("basic", "a cut through gaps", "def basic(model):\n    one, two = (model.load_weights(0, n, 4)[0] for n in (0, 2))\n    one.combine(two).shard(0, 2)", "a part with gaps cannot be cut"),
    whole("basic", "parts of two layers", "def basic(model):\n    one, two = (model.load_weights(n, n, 2)[0] for n in (0, 1))\n    one.combine(two)", "these are not parts of one thing"),
    whole("basic", "a weight and a state", "def basic(model):\n    one, two = model.load_weights(0)\n    one.combine(two)", "combine takes shards of one Weight"),
    changed("grad_accum", "gradients of two layers added", ("        del model.grad_activations[0]\n", "        del model.grad_activations[0]\n        if mb:\n            model.grad_weights[0] + model.fake_grad(1, [])\n"), says="gradients of different layers do not add up"),
    whole("basic", "a million shards", "def basic(model):\n    model.load_weights(0, 0, 10 ** 6)", "a weight cannot be cut into 1000000 shards"),
    whole("basic", "a number of shards that is text", "def basic(model):\n    model.load_weights(0, 0, '4')", "must be a whole number from 1 up"),
    whole("basic", "cut too fine", "def basic(model):\n    model.load_weights(0, 0, 4096)[0].shard(0, 4096)", "at most 65,536 pieces"),
    changed("ddp", "no micro-batch at all", (OWN, "[]"), says="get_activation takes at least one micro-batch"),
    changed("ddp", "summed for another layer", ("model.allreduce(grad, layer)", "model.allreduce(grad, 0)"), says="the WeightGrad is of layer 1"),
    changed("pipeline", "received from oneself", ("src=model.rank - 1", "src=model.rank"), says="a rank cannot receive from itself"),
    changed("grad_accum", "a gradient that is gone, added", ("            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad", "            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad\n            last = last + grad if layer == 0 and mb > 1 else grad"), ("    for mb in", "    last = None\n    for mb in"), says="was not stored when rank 0 issued"),
    changed("fsdp", "weights summed", ("await model.scatterreduce(grad, layer)", "await model.scatterreduce(weight, layer)"), says="scatterreduce takes a WeightGrad"),
    changed("fsdp", "weights added", (LOSS, "    model.weights[0] + model.weights[1]\n" + LOSS), says="a Weight and a Weight do not add up"),
    changed("fsdp", "a label deleted", (LOSS, "    del model.weights[0].total\n" + LOSS), says="tensors are frozen"),
    changed("fsdp", "taken out of nothing", (LOSS, "    model.grad_weights.popitem()\n" + LOSS), says="grad_weights is empty"),
    changed("pipeline", "a very long message", ("model.activations.pop(end))", "'x' * 2000)"), says="a plain message is at most 1,000 characters"),
    changed("fsdp", "a machine that does not fit together", (LOSS, "    Dist(8, mesh={'replica': 3, 'shard': 4})\n" + LOSS), says="replica 3 x shard 4 = 12, not 8"),
    changed("fsdp", "a model of no machine", (LOSS, "    Model(0, 4)\n" + LOSS), says="dist must be a Dist"),
    changed("fsdp", "checked without models", ("    return model", "    Model.check([])\n    return model"), says="check takes the models of all ranks"),
    changed("fsdp", "a call asked for what a tensor has", ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = model.allgather(model.weights[layer], layer)\n        weight.memory()\n        model.act"), says="did you forget `await`?"),
    changed("ddp", "a call added", (SUM, "        grad = model.allreduce(grad, layer) + model.fake_grad(layer, [])\n"), says="did you forget `await`?"),
    changed("fsdp", "labels out of range", (LOSS, "    Weight(0, 2, 0, {5}, 2)\n" + LOSS), says="out of range"),
    whole("basic", "weights loaded again and again, with a crumb of the first load in each", "async def basic(model):\n    crumbs, over = {}, asyncio.Event()\n\n    async def keep():\n        for layer in range(model.LAYERS):\n            crumbs[layer] = model.load_weights(layer)[0].shard(65535, 65536)\n        await over.wait()\n\n    def weight(layer):\n        fresh, whole = model.load_weights(layer)[0], crumbs[layer]\n        for k in range(16, 0, -1):\n            whole = whole.combine(fresh.shard(2**k - 2, 2**k))\n        return whole\n\n    asyncio.create_task(keep())\n    await asyncio.sleep(0)\n    for layer in range(model.LAYERS):\n        model.opt_states[layer] = model.load_weights(layer)[1]\n    model.activations[0] = model.get_activation(range(model.BATCHES))\n    for layer in range(model.LAYERS):\n        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight(layer))\n    model.grad_activations[0] = model.loss(model.activations.pop(model.LAYERS))\n    for layer in reversed(range(model.LAYERS)):\n        grad = model.grad_activations.pop(0)\n        model.grad_weights[layer], model.grad_activations[0] = model.backward(layer, model.activations.pop(layer), grad, weight(layer))\n    model.grad_activations.clear()\n    for layer in range(model.LAYERS):\n        new, model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer), weight(layer), model.opt_states.pop(layer))\n        model.set_final_weight(layer, new)\n    over.set()\n    return model\n", "load_weights before"),
    whole("basic", "gradients and states in the hands of the first coroutine", "async def basic(model):\n    await asyncio.create_task(asyncio.sleep(0))\n    states, grads = {}, {}\n    for layer in range(model.LAYERS):\n        model.weights[layer], states[layer] = model.load_weights(layer)\n    model.activations[0] = model.get_activation(range(model.BATCHES))\n    for layer in range(model.LAYERS):\n        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])\n    grad = model.loss(model.activations.pop(model.LAYERS))\n    for layer in reversed(range(model.LAYERS)):\n        grads[layer], grad = model.backward(layer, model.activations.pop(layer), grad, model.weights[layer])\n    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(layer, grads[layer], model.weights.pop(layer), states[layer])\n        model.set_final_weight(layer, model.weights[layer])\n    return model\n", "was not stored when"),
    whole("fsdp", "sizes with more digits than Python shows", "async def fsdp(model):\n    w = model.load_weights(0)[0]\n    model.weights[0] = w\n    for p in range(3, 14000, 2):\n        if all(p % q for q in range(3, int(p**0.5) + 1, 2)):\n            model.weights[p] = w.shard(0, p)\n    model.memory()", "too many different numbers of pieces"),
    changed("basic", "a state loaded when it is updated, by nobody held until then", ("model.weights[layer], model.opt_states[layer] = model.load_weights(layer)", "model.weights[layer] = model.load_weights(layer)[0]"), ("model.opt_states[layer]\n", "model.load_weights(layer)[1]\n"), says="only after work on that layer"),
    # -- programs not repaired, or not well -----------------------------------------------------------------------
    changed("repair_local", "as it is", ("sums = model.grad_weights", "sums = {}"), says="was not stored when rank 0 issued backward"),
    changed("repair_local", "the last gradient alone", ("sums[layer] + grad if layer in sums else grad", "grad"), says="missing micro-batches 0-2"),
    changed("repair_skip", "as it is", ("        grad = model.fake_grad(layer, [])\n", "        if not busy:\n            continue\n"), says="missing: rank 3"),
    changed("repair_skip", "a copy of a weight is given away", ("    busy =", "    last, odd = model.RANKS - 1, model.BATCHES < model.RANKS\n    call = model.pass_to(last, model.weights[0]) if odd and model.rank == 0 else model.receive(src=0) if odd and model.rank == last else None\n    busy ="),
            ("    return model", "    if call:\n        await call\n    return model"), says="it moves the weight of layer 0"),
    changed("repair_skip", "a made-up gradient of its own", ("fake_grad(layer, [])", "fake_grad(layer, [0])"), says="is made up"),
    changed("repair_twice", "as it is", ("model.grad_weights[layer] = grad\n", "model.grad_weights[layer] = await model.allreduce(grad, layer)\n"), says="would be counted twice"),
    changed("repair_twice", "never summed", ("grad = await model.allreduce(model.grad_weights.pop(layer), layer)", "grad = model.grad_weights.pop(layer)"), says="the gradient is missing micro-batch"),
    changed("repair_deadlock", "as it is", ("        await model.pass_to(1, model.activations.pop(half))\n        model.grad_activations[half] = await model.receive()\n        ### BROKEN", "        model.grad_activations[half] = await model.receive()\n        await model.pass_to(1, model.activations.pop(half))\n        ### BROKEN"), says="deadlock"),
    changed("repair_deadlock", "all of it on rank 0", ("half = model.LAYERS // 2", "half = model.LAYERS"), says="deadlock|layers"),
    changed("repair_groups", "as it is", ('scatterreduce(grad, layer, axis="shard")', 'scatterreduce(grad, layer, axis="replica")'), ('allreduce(grad, layer, axis="replica")', 'allreduce(grad, layer, axis="shard")'), says="does not cover the weight"),
    changed("repair_quiet", "as it is", ("mine = range(model.rank * share, (model.rank + 1) * share)", "mine = (2 * model.rank, 2 * model.rank + 1)"), says="right at its own size, but not with"),
    changed("repair_quiet", "four is written down elsewhere", ("share = model.BATCHES // model.RANKS", "share = model.BATCHES // 4"), says="right at its own size, but not with"),
    changed("repair_quiet", "cut where the batch ends", ("mine = range(model.rank * share, (model.rank + 1) * share)", "mine = [mb for mb in (2 * model.rank, 2 * model.rank + 1) if mb < model.BATCHES]"), says="right at its own size, but not with"),
    changed("repair_bargain", "as it is", KEPT, ("        weight = await model.allgather(model.weights[layer], layer)\n        ### BROKEN\n        # weight = model", '        weight = model.weights.pop(("whole", layer))\n        ### BROKEN\n        # weight = model'), says="over the target: 3,276,800 elements"),
    changed("repair_bargain", "every other weight is kept", KEPT, ("        weight = await model.allgather(model.weights[layer], layer)\n        ### BROKEN\n        # weight = model", '        weight = model.weights.pop(("whole", layer), None)\n        if layer % 2 == 0:\n            weight = await model.allgather(model.weights[layer], layer)\n        ### BROKEN\n        # weight = model'), says="over the target: 3,276,800 elements"),
    changed("repair_bargain", "gathered twice, and kept all the same", KEPT, says="over the target: "),
    changed("repair_book", "summed across after every micro-batch, under the next backward", *ACROSS_AT_ONCE, base="hybrid_overlapped", says="over the target: "),
    changed("repair_book", "as it is", ('            grad = await model.scatterreduce(grad, layer, axis="shard")\n            ### BROKEN', '            grad = await model.scatterreduce(grad, layer, axis="shard")\n            grad = await model.allreduce(grad, layer, axis="replica")\n            ### BROKEN'), ('grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")', "grad = model.grad_weights.pop(layer)"), says="over the target: 112.4 ticks"),
    changed("repair_book", "the running sum is summed across", ("model.grad_weights[layer] = so_far + grad if so_far else grad", 'grad = so_far + grad if so_far else grad\n            model.grad_weights[layer] = await model.allreduce(grad, layer, axis="replica")'), ('grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")', "grad = model.grad_weights.pop(layer)"), says="would be counted twice"),
    changed("repair_book", "never summed across", ('grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")', "grad = model.grad_weights.pop(layer)"), says="missing micro-batch"),
    changed("repair_skip", "a made-up gradient of a micro-batch that is not there", ("fake_grad(layer, [])", "fake_grad(layer, [model.BATCHES])"), says="out of range"),
    changed("zero_bubble", "the half for the weight reads what the half for the input gives", ("        grad = model.grad_activations.pop((first, mb))\n", "        grad = model.grad_activations[first, mb]\n"), ("grad = model.grad_activations.pop((layer + 1, mb))\n            of_weight", "grad = model.grad_activations.pop((layer, mb))\n            of_weight"), says="the gradient is that of layer"),
    changed("basic", "backward with the input of the layer below", ("inp, grad = model.activations.pop(layer)", "inp, grad = model.activations[max(layer - 1, 0)]"), says="the input is that of layer"),
    changed("repair_experts", "as it is", ("        if not model.experts(layer):\n            grad = await", "        if True:\n            grad = await"), says="no sum is needed, so update with what model.backward_expert gives"),
    changed("repair_experts", "no sum at all", ("        if not model.experts(layer):\n            grad = await", "        if False:\n            grad = await"), says="missing micro-batches 1-3"),
    changed("repair_experts", "the states of experts passed round", ("    del grads[\"last\"]\n", "    del grads[\"last\"]\n    await model.pass_to((model.rank + 1) % model.RANKS, model.opt_states[1])\n    await model.receive()\n"), says="it moves the optimizer state of experts, of layer 1"),
    changed("repair_zigzag", "as it is", ('        kv = await model.allgather(acts["kv", layer], layer)\n        ### BROKEN', '        kv = acts["kv", layer]\n        ### BROKEN'), says="the queries have not attended to slice {1-6} of 8"),
    changed("repair_zigzag", "keys sent to the next rank", ('        kv = await model.allgather(acts["kv", layer], layer)\n        ### BROKEN', '        send = model.pass_to((r + 1) % n, acts["kv", layer])\n        acts["theirs"] = await model.receive()\n        await send\n        del acts["theirs"]\n        kv = await model.allgather(acts["kv", layer], layer)\n        ### BROKEN'), says="it sends keys and values of layer 0"),
    changed("repair_zigzag", "own keys in the backward, too", ('kv = await model.allgather(acts.pop(("kv", layer)), layer)', 'kv = acts.pop(("kv", layer))'), says="comes before backward_attend, too"),
    changed("repair_experts", "tokens not sent home", (TOKENS_HOME, "acts[layer + 1] = out"), says="tokens are not home"),
    changed("repair_experts", "gradients of experts summed, and not those of dense layers", (DENSE_ONLY, DENSE_ONLY.replace("not model", "model")), says="no sum is needed, so update with what model.backward_expert gives"),
    changed("repair_experts", "the gradient goes to no experts", ('grad = await model.alltoall(grads.pop("last"), layer)', 'grad = grads.pop("last")'), says="send it to the experts of its layer first"),
    changed("repair_experts", "home as if from the layer before", (TOKENS_HOME, TOKENS_HOME.replace("out, layer + 1", "out, layer")), says="name the layer of the tensor, 2"),
    changed("repair_experts", "every rank has the first experts", ("(model.rank, model.RANKS) if", "(0, model.RANKS) if"), says="the tokens go to experts 2, 3, and the weight is that of experts 0, 1"),
    changed("repair_experts", "the same micro-batch on all ranks", ("get_activation([model.rank])", "get_activation([0])"), says="micro-batch 0 is brought more than once"),
    changed("repair_experts", "dense layers reduced and cut", ("model.allreduce(grad, layer)", "model.scatterreduce(grad, layer)"), says="the gradient does not cover the weight"),
    changed("repair_experts", "gradients of dense layers made up", ("grad = model.grad_weights.pop(layer)\n", "grad = model.grad_weights.pop(layer)\n        if not model.experts(layer):\n            grad = model.fake_grad(layer, [model.rank])\n"), says="is made up"),
    changed("repair_experts", "experts gathered", ('        if model.experts(layer):\n            acts["tokens"', '        if layer == 1:\n            whole = await model.allgather(model.weights[1], 1)\n            del whole\n        if model.experts(layer):\n            acts["tokens"'), says="it moves the weight of experts, of layer 1"),
    changed("repair_experts", "tokens made by hand", ('            out = model.expert(layer, acts["tokens", layer]', '            from lib import Tokens\n            acts["tokens", layer] = Tokens(layer, model.LAYERS, range(model.BATCHES), model.BATCHES, [model.rank], model.RANKS)\n            out = model.expert(layer, acts["tokens", layer]'), says="is made up"),
    changed("repair_experts", "final weights of rank 0 only", (SET_FINAL, "        if model.rank == 0:\n    " + SET_FINAL), says="the final weight is not complete"),
    changed("repair_zigzag", "gradients of weights not summed", ("await model.allreduce(model.grad_weights.pop(layer), layer)", "model.grad_weights.pop(layer)"), says="gradient is missing slice"),
    changed("repair_zigzag", "the loss of a slice, not said", (", sliced=True", ""), says="model.loss(out, sliced=True)"),
    changed("repair_zigzag", "the gradient of keys and values stays", ("await model.scatterreduce(kv_grad, layer)", "kv_grad"), says="the gradient of keys and values is of another slice"),
    changed("repair_zigzag", "own keys first, and then all", (KEYS_GATHERED, '        acts["att", layer] = model.attend(layer, acts["att", layer], acts["kv", layer])\n' + KEYS_GATHERED), says="have attended to slice {0, 7} of 8 before"),
    changed("repair_zigzag", "one slice for all ranks", (IN_ZIGZAG, "inp.shard(0, n)"), says="a shard would be counted twice"),
    changed("repair_zigzag", "keys of the first layer in every backward", ('acts.pop(("kv", layer)), layer)', 'acts["kv", 0], 0)'), says="kv is of layer 0"),
    changed("repair_zigzag", "slices in order", (IN_ZIGZAG, "inp.shard(r, n)"), says="it works on slice 0 of 4"),
    changed("repair_zigzag", "every rank trains the whole sequence", base="grad_accum", says="it works on slice 0 of 1"),
    changed("repair_zigzag", "queries made complete by hand", ("        acts[layer + 1] = model.rest", '        from lib import Attended\n        acts["att", layer] = Attended(layer, model.LAYERS, [0], 1, [r, 2 * n - 1 - r], 2 * n, range(2 * n - r), 2 * n)\n        acts[layer + 1] = model.rest'), says="is made up"),
    changed("repair_zigzag", "the gradient of keys made complete by hand", ("        model.grad_weights[layer], grads", '        from lib import KeysValuesGrad\n        grads["kv"] = KeysValuesGrad(layer, model.LAYERS, [0], 1, [r, 2 * n - 1 - r], 2 * n, range(r, 2 * n), 2 * n)\n        model.grad_weights[layer], grads'), says="is made up"),
    changed("repair_zigzag", "gradients made up", ("await model.allreduce(model.grad_weights.pop(layer), layer)", "model.fake_grad(layer, [0])"), says="is made up"),
    changed("repair_zigzag", "final weights of rank 0 only", (SET_FINAL, "        if model.rank == 0:\n    " + SET_FINAL), says="ends without the final weight of layer 0"),
    changed("repair_straggler", "as it is", (MINE, "range(model.rank, model.BATCHES, model.RANKS)"), says="over the target: 50.1 ticks"),
    changed("repair_straggler", "nothing for the warm rank to do", (MINE, "range(model.rank - 1, model.BATCHES, model.RANKS - 1) if model.rank else []"), ("grad = await model.allreduce(model.grad_weights.pop(layer), layer)", "grad = await model.allreduce(model.grad_weights.pop(layer, None) or model.fake_grad(layer, []), layer)"), says="over the target: "),
    changed("repair_straggler", "a micro-batch left out", (MINE, "range(model.RANKS - 1 - model.rank, model.BATCHES - 1, model.RANKS)"), says="missing micro-batch"),
    changed("repair_groups", "one reduction forgotten", ('        grad = await model.allreduce(grad, layer, axis="replica")\n', ""), says="missing micro-batch"),
    *AGAIN,
    *LISTS,
    *TASKS,
    *WHOSE_WORK,
    *COPIES,
    *ELSEWHERE,
    *NEEDLESS,
    *of_each_puzzle("MISTAKES"),
]  # fmt: skip
