"""Puzzle 15, breadth-first pipeline: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed, whole

HEADS = (
    "    for layer in mine:\n        whole = await model.allgather",
    "    for layer in reversed(mine):\n        whole = await model.allgather",
)
GATHER = (
    'whole = await model.allgather(model.weights[layer], layer, axis="shard")\n        model.weights["whole"] = whole\n'
)
DROP = '        del model.weights["whole"]\n'
REDUCE = 'grad = await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="shard")'
SUM = "model.grad_weights[layer] = so_far + grad if so_far else grad"
PASSED, PASSED_BACK = "await model.pass_to(after, out)", "await model.pass_to(before, grad_in)"
BATCH = "batch = range(stage, model.LAYERS, stages), range(shard, model.BATCHES, shards)"
LOADED = "model.load_weights(layer, shard, shards)"
NEIGHBORS = "before, after = (model.rank - shards) % model.RANKS, (model.rank + shards) % model.RANKS"

CHUNKS = """
async def breadth_first(model):
    stage, stages = model.axis_index("stage"), model.axis_size("stage")
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    up, down = (stage + 1) % stages * shards + shard, (stage - 1) % stages * shards + shard
    each = model.BATCHES // shards
    batch = range(shard * each, (shard + 1) * each)  # neighbors
    chunks = [chunk * stages + stage for chunk in range(model.LAYERS // stages)]
    work = [("F", layer) for layer in chunks] + [("B", layer) for layer in chunks[::-1]]
    for layer in chunks:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, shards)
    for what, layer in work:
        model.weights["full"] = await model.allgather(model.weights[layer], layer, "shard")
        for mb in batch:
            if what == "F":
                model.activations[mb, layer] = await model.receive(down) if layer else model.get_activation([mb])
                model.activations[mb, layer + 1] = model.forward(layer, model.activations[mb, layer], model.weights["full"])
                if layer + 1 < model.LAYERS:
                    await model.pass_to(up, model.activations.pop((mb, layer + 1)))
                continue
            ends = layer + 1 == model.LAYERS
            model.grad_activations[mb] = model.loss(model.activations.pop((mb, layer + 1))) if ends else await model.receive(up)
            model.grad_weights["new"], model.grad_activations[mb] = model.backward(
                layer, model.activations.pop((mb, layer)), model.grad_activations[mb], model.weights["full"])
            new = model.grad_weights.pop("new")
            model.grad_weights[layer] = model.grad_weights.pop(layer) + new if mb != batch[0] else new
            grad = model.grad_activations.pop(mb)
            if layer:
                await model.pass_to(down, grad)
        model.weights.pop("full")
        if what == "B":
            model.grad_weights[layer] = await model.scatterreduce(model.grad_weights.pop(layer), layer, "shard")
    for layer in chunks:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
"""

HONEST = [
    whole("breadth_first", "one loop over the passes, neighboring micro-batches, updates at the end", CHUNKS),
    changed("breadth_first", "a weight is gathered when the first input is there",
            *[(head + '(model.weights[layer], layer, axis="shard")\n        model.weights["whole"] = whole\n', head.split("\n")[0] + "\n") for head in HEADS],
            ("            out = model.forward(", "            if mb == batch[0]:\n                " + GATHER.replace("\n        model", "\n                model")
             + '            whole = model.weights["whole"]\n            out = model.forward('),
            ("            if layer == top:\n                grad_out = model.loss(model.activations.pop((top + 1, mb)))\n            else:\n                grad_out = await model.receive(src=after)\n",
             '            if layer == top:\n                model.grad_activations["in"] = model.loss(model.activations.pop((top + 1, mb)))\n            else:\n                '
             'model.grad_activations["in"] = await model.receive(src=after)\n            if mb == batch[0]:\n                '
             + GATHER.replace("\n        model", "\n                model") + '            whole = model.weights["whole"]\n'),
            ("inp, grad_out, whole", 'inp, model.grad_activations.pop("in"), whole')),
    changed("breadth_first", "backwards from the last micro-batch to the first, as PyTorch does",
            (HEADS[1] + '(model.weights[layer], layer, axis="shard")\n        model.weights["whole"] = whole\n        for mb in batch:',
             HEADS[1] + '(model.weights[layer], layer, axis="shard")\n        model.weights["whole"] = whole\n        for mb in reversed(batch):')),
    changed("breadth_first", "the last weight of the forward pass stays",
            (DROP + "\n    for layer in reversed", "        if layer != mine[-1]:\n    " + DROP + "\n    for layer in reversed"),
            (HEADS[1], HEADS[1].replace("        whole", "        if layer == mine[-1]:\n            whole = model.weights[\"whole\"]\n        else:\n            whole"))),
    changed("breadth_first", "sends that nobody waits for until the end", ("    top = model", "    sends = []\n    top = model"),
            (PASSED, "sends.append(model.pass_to(after, out))"), (PASSED_BACK, "sends.append(model.pass_to(before, grad_in))"),
            ("    return model", "    for send in sends:\n        await send\n    return model")),
    changed("breadth_first", "no rank waits for messages", ("model: Model, early: bool", "model: Model, early: bool = False"), ("store: Any, key: Any", "store, key"),
            base="breadth_first_overlapped"),
]  # fmt: skip

MISTAKES = [
    changed("breadth_first", "depth first", ("model: Model, kept: bool", "model: Model, kept: bool = False"), base="depth_first_overlapped"),
    changed("breadth_first", "depth first, weights kept", ("model: Model, kept: bool", "model: Model, kept: bool = True"), base="depth_first_overlapped"),
    changed("breadth_first", "gathered for each micro-batch",
            *[(head + '(model.weights[layer], layer, axis="shard")\n        model.weights["whole"] = whole\n        for mb in batch:\n',
               head.split("\n")[0] + "\n        for mb in batch:\n            " + GATHER.replace("\n        model", "\n            model")) for head in HEADS],
            ("model.forward(layer, model.activations[layer, mb], whole)", 'model.forward(layer, model.activations[layer, mb], model.weights["whole"])')),
    changed("breadth_first", "reduced after every micro-batch", ("            " + SUM, '            grad = await model.scatterreduce(grad, layer, axis="shard")\n            ' + SUM),
            (REDUCE, "grad = model.grad_weights.pop(layer)")),
    changed("breadth_first", "all whole weights are kept", ('model.weights["whole"]', 'model.weights["whole", layer]'),
            (DROP.replace('"whole"', '"whole", layer'), "")),
    changed("breadth_first", "all-reduced and cut", (REDUCE, 'grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="shard")\n        grad = grad.shard(shard, shards)')),
    changed("breadth_first", "never reduced", (REDUCE, "grad = model.grad_weights.pop(layer).shard(shard, shards)")),
    changed("breadth_first", "whole weights, no shards", (LOADED, "model.load_weights(layer)"), ('whole = await model.allgather(model.weights[layer], layer, axis="shard")', "whole = model.weights[layer]"),
            (REDUCE, 'grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="shard")')),
    changed("breadth_first", "the next rank instead of the next stage", (NEIGHBORS, "before, after = (model.rank - 1) % model.RANKS, (model.rank + 1) % model.RANKS")),
    changed("breadth_first", "all micro-batches in both pipelines", (BATCH, BATCH.replace("range(shard, model.BATCHES, shards)", "range(model.BATCHES)"))),
    changed("breadth_first", "layers in a row", (BATCH, BATCH.replace("range(stage, model.LAYERS, stages)", "range(stage * (model.LAYERS // stages), (stage + 1) * (model.LAYERS // stages))"))),
    changed("breadth_first", "four stages, whatever their number", ('stage, stages = model.axis_index("stage"), model.axis_size("stage")', 'stage, stages = model.axis_index("stage"), 4')),
    changed("breadth_first", "the weight is not kept for the second micro-batch", ('        model.weights["whole"] = whole\n', ""), (DROP, "")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("breadth_first", "all micro-batches at once", ("for mb in batch:", "for mb in [batch]:"), ("get_activation([mb])", "get_activation(mb)")),
    changed("breadth_first", "one pipeline does nothing", ("range(shard, model.BATCHES, shards)", "range(0, model.BATCHES if shard == 0 else 0)"),
            ("model.grad_weights.pop(layer), layer", "model.grad_weights.pop(layer, model.fake_grad(layer, [])), layer")),
    changed("breadth_first", "the other pipeline's gradient made up", ("range(shard, model.BATCHES, shards)", "range(0, model.BATCHES, shards)"),
            (REDUCE, "mine_now = model.grad_weights.pop(layer)\n        rest = model.fake_grad(layer, range(1, model.BATCHES, shards))\n        "
             + REDUCE.replace("model.grad_weights.pop(layer)", "mine_now if shard == 0 else rest"))),
    changed("breadth_first", "weights loaded again instead of gathered", ('await model.allgather(model.weights[layer], layer, axis="shard")',
            "model.weights[layer].combine(model.load_weights(layer, 1 - shard, shards)[0])")),
    changed("breadth_first", "every stage is all stages", (BATCH, BATCH.replace("range(stage, model.LAYERS, stages)", "range(model.LAYERS)")),
            ("for layer in mine:\n        whole", "for layer in range(stage, model.LAYERS, stages):\n        whole"),
            ("for layer in reversed(mine)", "for layer in reversed(range(stage, model.LAYERS, stages))")),
]  # fmt: skip
