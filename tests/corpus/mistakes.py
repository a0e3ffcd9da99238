"""Programs that must not pass, as people write them by mistake, or to get round the work by the public names alone."""

from . import Program, after, changed, of_each_puzzle, whole
from .again import MISTAKES as AGAIN
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


TOKENS_HOME = "acts[layer + 1] = await model.alltoall(out, layer + 1)"
SET_FINAL = "        model.set_final_weight(layer, model.weights[layer])\n"
KEYS_GATHERED = '        kv = await model.allgather(acts["kv", layer], layer)\n        ### BROKEN'
IN_ZIGZAG = "inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))"


MISTAKES: list[Program] = [
    # -- micro-batches ----------------------------------------------------------------------------------------
    changed("ddp", "everybody trains micro-batch 0", (OWN, "[0]")),
    changed("ddp", "no sum", (SUM, "")),
    changed("grad_accum", "the last micro-batch left out", ("range(model.BATCHES)", "range(model.BATCHES - 1)")),
    changed("grad_accum", "one twice", ("model.get_activation([mb])", "model.get_activation([mb // 2])")),
    changed("basic", "half the batch", ("range(model.BATCHES)", "range(model.BATCHES // 2)")),
    changed("gpipe", "an input out of range", ("model.get_activation([mb])", "model.get_activation([mb + 1])")),
    changed("gpipe", "a micro-batch's gradient twice", ("model.grad_weights[layer] + grad", "model.grad_weights[layer] + grad + grad")),
    changed("gpipe", "gradients of the wrong micro-batch", ("model.activations.pop((layer, mb))", "model.activations.pop((layer, model.BATCHES - 1 - mb))")),
    changed("replica_fsdp", "both replicas train the same", ("model.rank * share, (model.rank + 1) * share", "shard * share, (shard + 1) * share")),
    changed("replica_fsdp", "both micro-batches at once", ("for mb in range(model.rank * share, (model.rank + 1) * share):", "for mb in [range(model.rank * share, (model.rank + 1) * share)]:"), ("[mb]", "mb")),
    changed("replica_fsdp", "never summed over the replicas", ('await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="replica")', "model.grad_weights.pop(layer).shard(replica, replicas)")),
    changed("replica_fsdp", "the running sum reduced", ("model.grad_weights[layer] = so_far + grad if so_far else grad", 'model.grad_weights[layer] = await model.allreduce(so_far + grad if so_far else grad, layer, axis="replica")')),
    # -- layers, shards, versions ---------------------------------------------------------------------------------
    changed("fsdp", "one shard short", (LOAD, "layer, model.rank, model.RANKS + 1")),
    changed("fsdp", "the same shard everywhere", (LOAD, "layer, 0, model.RANKS")),
    changed("fsdp", "a shard out of range", (LOAD, "layer, model.rank + 1, model.RANKS")),
    changed("fsdp", "no gather", ("await model.allgather(model.weights[layer], layer)", "model.weights[layer]")),
    changed("fsdp", "a shard of another rank's", ("model.grad_weights.pop(layer), model.weights", "model.grad_weights.pop(layer).shard(0, 2), model.weights")),
    changed("ddp", "the weight of the wrong layer", ("layer, model.activations[layer], model.weights[layer]", "layer, model.activations[layer], model.weights[0]")),
    changed("ddp", "the state of the wrong layer", ("grad, model.weights[layer], model.opt_states[layer]", "grad, model.weights[layer], model.opt_states[0]")),
    changed("ddp", "the layers in the wrong order", ("for layer in reversed(range(model.LAYERS))", "for layer in range(model.LAYERS)")),
    changed("ddp", "updated before the other layers' backward, and used", ("            layer, inp, grad_out, model.weights[layer]", "            layer, inp, grad_out, model.weights[min(layer + 1, model.LAYERS - 1)]")),
    changed("basic", "updated and gone forward with", ("model.activations.pop(layer), model.grad", "model.activations[layer], model.grad"), ("    return model", "    model.forward(0, model.activations[0], model.weights[0])\n    return model")),
    changed("basic", "loss of the wrong layer", ("model.loss(model.activations.pop(model.LAYERS))", "model.loss(model.activations.pop(model.LAYERS - 1))")),
    changed("basic", "forward of the wrong layer", ("            layer, model.activations[layer]", "            layer, model.activations[0]")),
    # -- the end -----------------------------------------------------------------------------------------------------
    changed("fsdp", "final weights of rank 0 only", (SET, "        if model.rank == 0:\n    " + SET)),
    changed("ddp", "final weights of rank 0 only", (SET, "        if model.rank == 0:\n    " + SET)),
    changed("basic", "final weights before the update", ("    for layer in range(model.LAYERS):\n" + SET, ""), ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(", "    for layer in range(model.LAYERS):\n        model.set_final_weight(layer, model.weights[layer])\n        model.weights[layer], model.opt_states[layer] = model.update(")),
    changed("basic", "the final weight of another layer", (SET, "        model.set_final_weight(0, model.weights[layer])\n")),
    changed("basic", "states not kept", ("        model.weights[layer], model.opt_states[layer] = model.update(", "        model.weights[layer], _ = model.update(")),
    changed("fsdp", "states thrown away", ("    return model", "    model.opt_states.clear()\n    return model")),
    changed("basic", "one layer not trained", ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(", "    for layer in range(1, model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(")),
    changed("basic", "updated twice", (SET, "        model.weights[layer], model.opt_states[layer] = model.update(layer, model.grad_weights[layer], model.weights[layer], model.opt_states[layer])\n" + SET), ("model.grad_weights.pop(layer)", "model.grad_weights[layer]")),
    # -- another technique in this puzzle's clothes ---------------------------------------------------------------------
    changed("fsdp", "data parallel", base="ddp"),
    changed("ddp", "sharded", base="fsdp"),
    changed("gpipe", "the pipeline without micro-batches", base="pipeline"),
    changed("pipeline", "micro-batches one by one: GPipe", base="gpipe"),
    changed("pipeline", "one forward, one backward", base="one_forward_one_backward"),
    changed("grad_accum", "all at once", base="basic"),
    changed("replica_fsdp", "the axes changed places", ('model.axis_index("shard"), model.axis_size("shard")', 'model.axis_index("replica"), model.axis_size("replica")')),
    # -- a whole gradient where a piece is enough (test_whole_gradient.py has more ways) ----------------------------------
    changed("fsdp", "puzzle 3", base="wsdp"),
    changed("fsdp", "puzzle 3, gathered ahead", base="wsdp_prefetch"),
    changed("fsdp", "piece by piece", (REDUCE, "        model.grad_weights[layer] = grad\n        for part in range(model.RANKS):\n            model.grad_weights[part, layer] = await model.allreduce(model.grad_weights[layer].shard(part, model.RANKS), layer)\n        for part in range(model.RANKS):\n            grad = model.grad_weights.pop((part, layer))\n            if part == model.rank:\n                model.grad_weights[layer] = grad\n")),
    changed("fsdp", "one rank sums for all", (REDUCE, "        model.grad_weights[layer] = grad\n        if model.rank:\n            await model.pass_to(0, model.grad_weights.pop(layer))\n            model.grad_weights[layer] = await model.receive()\n        else:\n            for other in range(1, model.RANKS):\n                model.grad_weights[layer] = model.grad_weights[layer] + await model.receive(src=other)\n            for other in range(1, model.RANKS):\n                await model.pass_to(other, model.grad_weights[layer].shard(other, model.RANKS))\n")),
    changed("pipeline_fsdp", "all-reduced", ("model.scatterreduce(grad, layer)", "model.allreduce(grad, layer)")),
    changed("replica_fsdp", "all-reduced in the node and cut", ('grad = await model.scatterreduce(grad, layer, axis="shard")', 'grad = (await model.allreduce(grad, layer, axis="shard")).shard(shard, shards)')),
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
"""),
    changed("pipeline", "uneven stages", ("model.rank * share, (model.rank + 1) * share", "max(0, model.rank * share - 1), ((model.rank + 1) * share - 1 if model.rank < model.RANKS - 1 else model.LAYERS)")),
    # -- right, but ---------------------------------------------------------------------------------------------------------
    changed("fsdp", "a gather too many", (LOSS, "    await model.allgather(model.weights[0], 0)\n" + LOSS)),
    changed("gpipe", "one micro-batch all the way at a time", ("    for mb in range(model.BATCHES):\n        if is_last", "        if is_last")),
    changed("ddp", "the activations kept", ("model.activations.pop(layer)", "model.activations[layer]"), ("model.activations.pop(model.LAYERS)", "model.activations[model.LAYERS]"), (SUM, SUM + '        model.weights["x", layer] = model.weights[layer]\n')),
    changed("fsdp", "the gathered weights kept", ("        " + FORWARD, "        model.weights['whole', layer] = weight\n        " + FORWARD)),
    changed("fsdp", "the whole gradients kept", (REDUCE, REDUCE + "        model.grad_weights['whole', layer] = grad\n")),
    changed("fsdp", "an all-reduce where a shard would do", ("await model.scatterreduce(grad, layer)", "await model.allreduce(grad, layer)")),
    # -- one size only --------------------------------------------------------------------------------------------------------
    changed("ddp", "four ranks in mind", ("[model.rank]", "[model.rank % 4]")),
    changed("fsdp", "six layers in mind", ("range(model.LAYERS)", "range(6)"), ("model.grad_activations[model.LAYERS]", "model.grad_activations[6]"), ("activations.pop(model.LAYERS)", "activations.pop(6)")),
    changed("basic", "two layers in mind", ("range(model.LAYERS)", "range(2)"), ("model.LAYERS", "2")),
    changed("replica_fsdp", "two replicas in mind", ("model.axis_index(\"replica\"), model.axis_size(\"replica\")", "model.axis_index(\"replica\"), 2")),
    # -- memory that is hidden ---------------------------------------------------------------------------------------------------
    changed("grad_accum", "activations in a list", ("    for mb in range", "    hidden = {}\n    for mb in range"), ("model.activations[layer + 1] =", "hidden[layer + 1] ="), ("inp, weight = model.activations[layer], ", "inp, weight = hidden.get(layer) or model.activations[layer], "), ("model.loss(model.activations.pop(model.LAYERS))", "model.loss(hidden[model.LAYERS])"), ("model.activations.pop(layer), ", "hidden.get(layer), ")),
    changed("fsdp", "gathered once, kept in a local", ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = hidden[layer] = await model.allgather(model.weights[layer], layer)\n        model.act"), ("        weight = await model.allgather(model.weights[layer], layer)\n        inp", "        weight = hidden[layer]\n        inp"), ("    for layer in reversed", "    pass\n    for layer in reversed"), ("    model.activations[0] =", "    hidden = {}\n    model.activations[0] =")),
    changed("fsdp", "gathers in flight as a store", ("    model.activations[0] =", "    flying = [[model.allgather(model.weights[layer], layer) for layer in range(model.LAYERS)] for _ in range(2)]\n    model.activations[0] ="), ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = await flying[0][layer]\n        model.act"), ("weight = await model.allgather(model.weights[layer], layer)\n        inp", "weight = await flying[1][layer]\n        inp")),
    changed("grad_accum", "activations in futures", ("    for mb in range", "    box = {}\n    for mb in range"), ("model.activations[layer + 1] = model.forward(layer, inp, weight)", "model.activations[layer + 1] = model.forward(layer, inp, weight)\n            box[layer] = concurrent.futures.Future(); box[layer].set_result(model.activations[layer])"), ("model.activations.pop(layer), model", "(model.activations.pop(layer, None), box[layer].result())[1], model"), ("        model.grad_activations[model.LAYERS] = model.loss(", "        model.activations.pop(0)\n        model.grad_activations[model.LAYERS] = model.loss(")),
    changed("pipeline", "activations on the way to oneself", ("    if is_last:\n", "    await model.pass_to(model.rank, model.activations[first])\n    if is_last:\n")),
    changed("fsdp", "a copy of the dictionary", ("    for layer in range(model.LAYERS):\n        weight = await", "    shards = model.weights.copy()\n    model.weights.clear()\n    for layer in range(model.LAYERS):\n        weight = await"), ("model.allgather(model.weights[layer], layer)", "model.allgather(shards[layer], layer)")),
    changed("ddp", "the rest of the memory in another rank's mailbox", (LOSS, LOSS + "    await model.pass_to((model.rank + 1) % model.RANKS, model.activations[0])\n")),
    # -- communication that is got round -------------------------------------------------------------------------------------------
    changed("fsdp", "everything loaded instead of gathered", ("await model.allgather(model.weights[layer], layer)", "model.load_weights(layer)[0]")),
    changed("fsdp", "a global that all ranks share", ("async def fsdp", "SHARED = {}\n\nasync def fsdp"), ("    model.activations[0]", "    SHARED.update({(layer, model.rank): weight for layer, weight in model.weights.items()})\n    await model.allreduce(model.fake_grad(0, []), 0)\n    model.activations[0]"), ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = functools.reduce(lambda a, b: a.combine(b), [SHARED[layer, r] for r in range(model.RANKS)])\n        model.act")),
    changed("ddp", "gradients over a global", ("async def ddp", "SHARED = {}\n\nasync def ddp"), (SUM, "        SHARED[layer, model.rank] = grad\n        await asyncio.sleep(0)\n        grad = sum(SHARED[layer, r] for r in range(model.RANKS))\n")),
    changed("pipeline", "several tensors in a message", ("model.activations.pop(end))", "[model.activations.pop(end)])")),
    changed("pipeline", "a tensor's name sent instead of it", ("model.activations.pop(end))", 'repr(model.activations.pop(end)))')),
    # -- tensors out of nothing --------------------------------------------------------------------------------------------------------
    changed("ddp", "a gradient made up", (SUM, "        grad = model.fake_grad(layer, range(model.BATCHES))\n")),
    changed("basic", "final weights by hand", ("        model.set_final_weight(layer, model.weights[layer])", "        model.set_final_weight(layer, Weight(layer, model.LAYERS, 1))")),
    changed("fsdp", "a whole weight by hand", ("await model.allgather(model.weights[layer], layer)", "Weight(layer, model.LAYERS, 0)")),
    changed("fsdp", "a copied tensor", (LOSS, "    model.weights['x'] = copy.copy(model.weights[0])\n" + LOSS)),
    changed("fsdp", "a tensor edited", (LOSS, "    model.weights[0].total = 1\n" + LOSS)),
    # -- what is called and not done, and what is good at one size only --------------------------------------------------------------------
    changed("ddp", "deadlocks with one layer", ("    return model", "    if model.LAYERS == 1:\n        await model.receive()\n    return model")),
    changed("gpipe", "deadlocks with one micro-batch", ("    return model", "    if model.BATCHES == 1:\n        await model.receive()\n    return model")),
    changed("gpipe", "deadlocks where layers are as many as ranks", ("    return model", "    if model.LAYERS == model.RANKS:\n        await model.receive()\n    return model")),
    changed("replica_fsdp", "deadlocks with one layer", ("    return model", "    if model.LAYERS == 1:\n        await model.receive()\n    return model")),
    changed("fsdp", "weights kept whole at any size but one", ("        model.activations[layer + 1] =", "        if model.LAYERS != 6:\n            model.weights['whole', layer] = weight\n        model.activations[layer + 1] =")),
    # -- mistakes whose fix is said ------------------------------------------------------------------------------------------------------
    changed("fsdp", "a dictionary replaced", (LOSS, LOSS + "    model.activations = {}\n")),
    changed("fsdp", "an answer written by hand", (LOSS, LOSS + "    model.final_weights[0] = model.weights[0]\n")),
    changed("fsdp", "a tensor behind the dictionary's back", (LOSS, LOSS + "    dict.__setitem__(model.weights, 'x', model.load_weights(0)[0])\n    model.weights.pop('x')\n")),
    changed("fsdp", "a pair in one dictionary", (LOSS, LOSS + "    model.weights['x'] = model.load_weights(0)\n")),
    changed("fsdp", "gradients gathered", ("await model.scatterreduce(", "await model.allgather(")),
    changed("fsdp", "the gathered weight over its shard", ("        weight = await model.allgather(model.weights[layer], layer)\n", "        weight = model.weights[layer] = await model.allgather(model.weights[layer], layer)\n")),
    changed("fsdp", "shard and total changed places", ("model.rank, model.RANKS", "model.RANKS, model.rank")),
    # -- asyncio --------------------------------------------------------------------------------------------------------------------------
    changed("fsdp", "no await at the gather", ("weight = await model", "weight = model")),
    changed("ddp", "no await at the sum", ("grad = await model", "grad = model")),
    changed("ddp", "a sum that nobody takes", ("    return model", "    model.allreduce(model.fake_grad(0, []), 0)\n    return model")),
    changed("pipeline", "a send that nobody awaits", ("        await model.pass_to(model.rank - 1", "        model.pass_to(model.rank - 1")),
    changed("pipeline", "a message that nobody receives", ("    return model", "    if is_first:\n        await model.pass_to(1, 'bye')\n    return model")),
    changed("pipeline", "all receive first", ("    if is_first:\n        model.activations[first] = model.get_activation(range(model.BATCHES))\n    else:\n        model.activations[first] = await model.receive(src=model.rank - 1)\n", "    model.activations[first] = await model.receive()\n")),
    changed("ddp", "ranks sum in different orders", ("for layer in reversed(range(model.LAYERS)):", "for layer in reversed(range(model.LAYERS)):\n        await model.allreduce(model.fake_grad(layer if model.rank else 0, []), layer if model.rank else 0)")),
    changed("fsdp", "ranks in different collectives", (REDUCE, "        model.grad_weights[layer] = await (model.scatterreduce if model.rank else model.allreduce)(grad, layer)\n")),
    changed("replica_fsdp", "an axis that is not there", ('axis="replica"', 'axis="replicas"')),
    changed("fsdp", "one rank returns early", ("    model.activations[0] =", "    if model.rank == 3:\n        return model\n    model.activations[0] =")),
    changed("fsdp", "a result awaited in the wrong place", (REDUCE, "        model.grad_weights[layer] = (await model.scatterreduce)(grad, layer)\n")),
    # -- Python ---------------------------------------------------------------------------------------------------------------------------
    changed("fsdp", "a name misspelt", ("model.grad_weights.pop", "model.grads_weight.pop")),
    changed("fsdp", "a local misspelt", ("grad_out, weight)", "grad_in, weight)")),
    changed("fsdp", "the next layer is named", ("model.forward(layer, model.activations[layer]", "model.forward(layer + 1, model.activations[layer]")),
    changed("fsdp", "a layer that is text", ("model.load_weights(\n            layer,", "model.load_weights(\n            str(layer),")),
    changed("fsdp", "None for a tensor", ("layer, inp, grad_out, weight)", "layer, None, grad_out, weight)")),
    changed("fsdp", "a number for micro-batches", ("[model.rank]", "model.rank")),
    changed("fsdp", "a model of its own", ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.load", "    model = Model(model.rank, model.dist, model.LAYERS, model.BATCHES)\n    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.load")),
    changed("fsdp", "its own error", (LOSS, LOSS + "    raise RuntimeError('not finished')\n")),
    changed("fsdp", "an error swallowed", (LOSS, "    try:\n        model.loss(model.activations[0])\n    except Exception:\n        pass\n" + LOSS)),
    changed("fsdp", "division by zero", ("model.load_weights(\n            layer", "model.load_weights(\n            layer // 0")),
    whole("basic", "a generator", "def basic(model):\n    yield model.load_weights(0)"),
    whole("basic", "a class", "class basic:\n    def __init__(self, model):\n        model.load_weights(0)"),
    whole("basic", "nothing but a load", "def basic(model):\n    model.weights[0], _ = model.load_weights(0)"),
    whole("ddp", "nothing but a barrier", "async def ddp(model):\n    await model.allreduce(model.fake_grad(0, []), 0)"),
    whole("fsdp", "a coroutine, not a function", "async def helper(model):\n    pass\n\nfsdp = helper(None)\nfsdp.close()"),
    whole("ddp", "a thing that is no function", "ddp = 42"),
    # -- one for each rule that none of the above comes to ---------------------------------------------------------------------------
    changed("basic", "an old state with a new weight", ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(", "    for layer in range(model.LAYERS):\n        model.opt_states['old', layer] = model.opt_states[layer]\n        model.weights[layer], model.opt_states[layer] = model.update("), ("model.grad_weights.pop(layer)", "model.grad_weights[layer]"), (SET, "        model.update(layer, model.grad_weights[layer], model.weights[layer], model.opt_states['old', layer])\n" + SET)),
    changed("basic", "the input of another layer on the way down", ("layer, inp, grad, model.weights[layer]", "layer, model.activations.get(0, inp), grad, model.weights[layer]")),
    changed("basic", "the gradient of another layer", ("model.grad_activations.pop(layer + 1)", "model.grad_activations[model.LAYERS]")),
    whole("basic", "a cut through gaps", "def basic(model):\n    one, two = (model.load_weights(0, n, 4)[0] for n in (0, 2))\n    one.combine(two).shard(0, 2)"),
    whole("basic", "parts of two layers", "def basic(model):\n    one, two = (model.load_weights(n, n, 2)[0] for n in (0, 1))\n    one.combine(two)"),
    whole("basic", "a weight and a state", "def basic(model):\n    one, two = model.load_weights(0)\n    one.combine(two)"),
    changed("grad_accum", "gradients of two layers added", ("        del model.grad_activations[0]\n", "        del model.grad_activations[0]\n        if mb:\n            model.grad_weights[0] + model.fake_grad(1, [])\n")),
    whole("basic", "a million shards", "def basic(model):\n    model.load_weights(0, 0, 10 ** 6)"),
    whole("basic", "a number of shards that is text", "def basic(model):\n    model.load_weights(0, 0, '4')"),
    whole("basic", "cut too fine", "def basic(model):\n    model.load_weights(0, 0, 4096)[0].shard(0, 4096)"),
    changed("ddp", "no micro-batch at all", (OWN, "[]")),
    changed("pipeline", "received from oneself", ("src=model.rank - 1", "src=model.rank")),
    changed("grad_accum", "a gradient that is gone, added", ("            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad", "            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad\n            last = last + grad if layer == 0 and mb > 1 else grad"), ("    for mb in", "    last = None\n    for mb in")),
    changed("fsdp", "weights added", (LOSS, "    model.weights[0] + model.weights[1]\n" + LOSS)),
    changed("fsdp", "taken out of nothing", (LOSS, "    model.grad_weights.popitem()\n" + LOSS)),
    changed("pipeline", "a very long message", ("model.activations.pop(end))", "'x' * 2000)")),
    changed("fsdp", "a call asked for what a tensor has", ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = model.allgather(model.weights[layer], layer)\n        weight.memory()\n        model.act")),
    changed("ddp", "a call added", (SUM, "        grad = model.allreduce(grad, layer) + model.fake_grad(layer, [])\n")),
    changed("fsdp", "labels out of range", (LOSS, "    Weight(0, 2, 0, {5}, 2)\n" + LOSS)),
    whole("basic", "weights loaded again and again, with a crumb of the first load in each", "async def basic(model):\n    crumbs, over = {}, asyncio.Event()\n\n    async def keep():\n        for layer in range(model.LAYERS):\n            crumbs[layer] = model.load_weights(layer)[0].shard(65535, 65536)\n        await over.wait()\n\n    def weight(layer):\n        fresh, whole = model.load_weights(layer)[0], crumbs[layer]\n        for k in range(16, 0, -1):\n            whole = whole.combine(fresh.shard(2**k - 2, 2**k))\n        return whole\n\n    asyncio.create_task(keep())\n    await asyncio.sleep(0)\n    for layer in range(model.LAYERS):\n        model.opt_states[layer] = model.load_weights(layer)[1]\n    model.activations[0] = model.get_activation(range(model.BATCHES))\n    for layer in range(model.LAYERS):\n        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight(layer))\n    model.grad_activations[0] = model.loss(model.activations.pop(model.LAYERS))\n    for layer in reversed(range(model.LAYERS)):\n        grad = model.grad_activations.pop(0)\n        model.grad_weights[layer], model.grad_activations[0] = model.backward(layer, model.activations.pop(layer), grad, weight(layer))\n    model.grad_activations.clear()\n    for layer in range(model.LAYERS):\n        new, model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer), weight(layer), model.opt_states.pop(layer))\n        model.set_final_weight(layer, new)\n    over.set()\n    return model\n"),
    whole("basic", "gradients and states in the hands of the first coroutine", "async def basic(model):\n    await asyncio.create_task(asyncio.sleep(0))\n    states, grads = {}, {}\n    for layer in range(model.LAYERS):\n        model.weights[layer], states[layer] = model.load_weights(layer)\n    model.activations[0] = model.get_activation(range(model.BATCHES))\n    for layer in range(model.LAYERS):\n        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])\n    grad = model.loss(model.activations.pop(model.LAYERS))\n    for layer in reversed(range(model.LAYERS)):\n        grads[layer], grad = model.backward(layer, model.activations.pop(layer), grad, model.weights[layer])\n    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(layer, grads[layer], model.weights.pop(layer), states[layer])\n        model.set_final_weight(layer, model.weights[layer])\n    return model\n"),
    whole("fsdp", "sizes with more digits than Python shows", "async def fsdp(model):\n    w = model.load_weights(0)[0]\n    model.weights[0] = w\n    for p in range(3, 14000, 2):\n        if all(p % q for q in range(3, int(p**0.5) + 1, 2)):\n            model.weights[p] = w.shard(0, p)\n    model.memory()"),
    changed("basic", "a state loaded when it is updated, by nobody held until then", ("model.weights[layer], model.opt_states[layer] = model.load_weights(layer)", "model.weights[layer] = model.load_weights(layer)[0]"), ("model.opt_states[layer]\n", "model.load_weights(layer)[1]\n")),
    # -- programs not repaired, or not well -----------------------------------------------------------------------
    changed("repair_local", "as it is", ("sums = model.grad_weights", "sums = {}")),
    changed("repair_local", "the last gradient alone", ("sums[layer] + grad if layer in sums else grad", "grad")),
    changed("repair_skip", "as it is", ("        grad = model.fake_grad(layer, [])\n", "        if not busy:\n            continue\n")),
    changed("repair_skip", "a copy of a weight is given away", ("    busy =", "    last, odd = model.RANKS - 1, model.BATCHES < model.RANKS\n    call = model.pass_to(last, model.weights[0]) if odd and model.rank == 0 else model.receive(src=0) if odd and model.rank == last else None\n    busy ="),
            ("    return model", "    if call:\n        await call\n    return model")),
    changed("repair_skip", "a made-up gradient of its own", ("fake_grad(layer, [])", "fake_grad(layer, [0])")),
    changed("repair_twice", "as it is", ("model.grad_weights[layer] = grad\n", "model.grad_weights[layer] = await model.allreduce(grad, layer)\n")),
    changed("repair_deadlock", "as it is", ("        await model.pass_to(1, model.activations.pop(half))\n        model.grad_activations[half] = await model.receive()\n        ### BROKEN", "        model.grad_activations[half] = await model.receive()\n        await model.pass_to(1, model.activations.pop(half))\n        ### BROKEN")),
    changed("repair_deadlock", "all of it on rank 0", ("half = model.LAYERS // 2", "half = model.LAYERS")),
    changed("repair_groups", "as it is", ('scatterreduce(grad, layer, axis="shard")', 'scatterreduce(grad, layer, axis="replica")'), ('allreduce(grad, layer, axis="replica")', 'allreduce(grad, layer, axis="shard")')),
    changed("repair_quiet", "as it is", ("mine = range(model.rank * share, (model.rank + 1) * share)", "mine = (2 * model.rank, 2 * model.rank + 1)")),
    changed("repair_quiet", "four is written down elsewhere", ("share = model.BATCHES // model.RANKS", "share = model.BATCHES // 4")),
    changed("repair_quiet", "cut where the batch ends", ("mine = range(model.rank * share, (model.rank + 1) * share)", "mine = [mb for mb in (2 * model.rank, 2 * model.rank + 1) if mb < model.BATCHES]")),
    changed("repair_bargain", "as it is", KEPT, ("        weight = await model.allgather(model.weights[layer], layer)\n        ### BROKEN\n        # weight = model", '        weight = model.weights.pop(("whole", layer))\n        ### BROKEN\n        # weight = model')),
    changed("repair_bargain", "every other weight is kept", KEPT, ("        weight = await model.allgather(model.weights[layer], layer)\n        ### BROKEN\n        # weight = model", '        weight = model.weights.pop(("whole", layer), None)\n        if layer % 2 == 0:\n            weight = await model.allgather(model.weights[layer], layer)\n        ### BROKEN\n        # weight = model')),
    changed("repair_bargain", "gathered twice, and kept all the same", KEPT),
    changed("repair_book", "as it is", ('            grad = await model.scatterreduce(grad, layer, axis="shard")\n            ### BROKEN', '            grad = await model.scatterreduce(grad, layer, axis="shard")\n            grad = await model.allreduce(grad, layer, axis="replica")\n            ### BROKEN'), ('grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")', "grad = model.grad_weights.pop(layer)")),
    changed("repair_book", "never summed across", ('grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")', "grad = model.grad_weights.pop(layer)")),
    changed("zero_bubble", "the half for the weight reads what the half for the input gives", ("        grad = model.grad_activations.pop((first, mb))\n", "        grad = model.grad_activations[first, mb]\n"), ("grad = model.grad_activations.pop((layer + 1, mb))\n            of_weight", "grad = model.grad_activations.pop((layer, mb))\n            of_weight")),
    changed("repair_experts", "as it is", ("        if not model.experts(layer):\n            grad = await", "        if True:\n            grad = await")),
    changed("repair_experts", "no sum at all", ("        if not model.experts(layer):\n            grad = await", "        if False:\n            grad = await")),
    changed("repair_experts", "the states of experts passed round", ("    del grads[\"last\"]\n", "    del grads[\"last\"]\n    await model.pass_to((model.rank + 1) % model.RANKS, model.opt_states[1])\n    await model.receive()\n")),
    changed("repair_zigzag", "as it is", ('        kv = await model.allgather(acts["kv", layer], layer)\n        ### BROKEN', '        kv = acts["kv", layer]\n        ### BROKEN')),
    changed("repair_zigzag", "keys sent to the next rank", ('        kv = await model.allgather(acts["kv", layer], layer)\n        ### BROKEN', '        send = model.pass_to((r + 1) % n, acts["kv", layer])\n        acts["theirs"] = await model.receive()\n        await send\n        del acts["theirs"]\n        kv = await model.allgather(acts["kv", layer], layer)\n        ### BROKEN')),
    changed("repair_zigzag", "own keys in the backward, too", ('kv = await model.allgather(acts.pop(("kv", layer)), layer)', 'kv = acts.pop(("kv", layer))')),
    changed("repair_experts", "tokens not sent home", (TOKENS_HOME, "acts[layer + 1] = out")),
    changed("repair_experts", "the gradient goes to no experts", ('grad = await model.alltoall(grads.pop("last"), layer)', 'grad = grads.pop("last")')),
    changed("repair_experts", "home as if from the layer before", (TOKENS_HOME, TOKENS_HOME.replace("out, layer + 1", "out, layer"))),
    changed("repair_experts", "the same micro-batch on all ranks", ("get_activation([model.rank])", "get_activation([0])")),
    changed("repair_experts", "dense layers reduced and cut", ("model.allreduce(grad, layer)", "model.scatterreduce(grad, layer)")),
    changed("repair_experts", "gradients of dense layers made up", ("grad = model.grad_weights.pop(layer)\n", "grad = model.grad_weights.pop(layer)\n        if not model.experts(layer):\n            grad = model.fake_grad(layer, [model.rank])\n")),
    changed("repair_experts", "experts gathered", ('        if model.experts(layer):\n            acts["tokens"', '        if layer == 1:\n            whole = await model.allgather(model.weights[1], 1)\n            del whole\n        if model.experts(layer):\n            acts["tokens"')),
    changed("repair_experts", "tokens made by hand", ('            out = model.expert(layer, acts["tokens", layer]', '            from lib import Tokens\n            acts["tokens", layer] = Tokens(layer, model.LAYERS, range(model.BATCHES), model.BATCHES, [model.rank], model.RANKS)\n            out = model.expert(layer, acts["tokens", layer]')),
    changed("repair_experts", "final weights of rank 0 only", (SET_FINAL, "        if model.rank == 0:\n    " + SET_FINAL)),
    changed("repair_zigzag", "gradients of weights not summed", ("await model.allreduce(model.grad_weights.pop(layer), layer)", "model.grad_weights.pop(layer)")),
    changed("repair_zigzag", "the loss of a slice, not said", (", sliced=True", "")),
    changed("repair_zigzag", "the gradient of keys and values stays", ("await model.scatterreduce(kv_grad, layer)", "kv_grad")),
    changed("repair_zigzag", "own keys first, and then all", (KEYS_GATHERED, '        acts["att", layer] = model.attend(layer, acts["att", layer], acts["kv", layer])\n' + KEYS_GATHERED)),
    changed("repair_zigzag", "keys of the first layer in every backward", ('acts.pop(("kv", layer)), layer)', 'acts["kv", 0], 0)')),
    changed("repair_zigzag", "slices in order", (IN_ZIGZAG, "inp.shard(r, n)")),
    changed("repair_zigzag", "every rank trains the whole sequence", base="grad_accum"),
    changed("repair_zigzag", "queries made complete by hand", ("        acts[layer + 1] = model.rest", '        from lib import Attended\n        acts["att", layer] = Attended(layer, model.LAYERS, [0], 1, [r, 2 * n - 1 - r], 2 * n, range(2 * n - r), 2 * n)\n        acts[layer + 1] = model.rest')),
    changed("repair_zigzag", "gradients made up", ("await model.allreduce(model.grad_weights.pop(layer), layer)", "model.fake_grad(layer, [0])")),
    changed("repair_zigzag", "final weights of rank 0 only", (SET_FINAL, "        if model.rank == 0:\n    " + SET_FINAL)),
    changed("repair_straggler", "as it is", (MINE, "range(model.rank, model.BATCHES, model.RANKS)")),
    *AGAIN,
    *LISTS,
    *TASKS,
    *WHOSE_WORK,
    *ELSEWHERE,
    *NEEDLESS,
    *of_each_puzzle("MISTAKES"),
]  # fmt: skip
