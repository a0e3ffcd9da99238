"""Programs that leave out one sentence of a task, where no other program of the corpus is about it alone."""

from . import Program, after, changed, function, whole


def afterwards(puzzle: str, name: str, line: str) -> Program:
    """The solution, and then a line more."""
    is_async = function(puzzle).startswith("async")
    head, call = ("async def", "await honest(model)") if is_async else ("def", "honest(model)")
    return after(puzzle, name, f"{head} {puzzle}(model):\n    {call}\n    {line}\n    return model")


def no_states(puzzle: str) -> Program:
    """The solution without the states that it ends with."""
    return afterwards(puzzle, "the states are not kept", "model.opt_states.clear()")


def slow(puzzle: str) -> Program:
    """The solution and many signals to the next rank."""
    line = "for _ in range(400): [await call for call in (model.pass_to((model.rank + 1) % model.RANKS, None), model.receive())]"
    return afterwards(puzzle, "it goes on and on", line)


def neighbors_shards(puzzle: str, rank: str = "model.rank", ranks: str = "model.RANKS") -> Program:
    """The solution with the shards of the next rank."""
    edit = (f"layer, {rank}, {ranks}", f"layer, ({rank} + 1) % {ranks}, {ranks}")
    return changed(puzzle, "the shards of the next rank", edit)


BY_TURNS = """
def grad_accum(model):
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    for group in [range(2)[: model.BATCHES], *[[mb] for mb in range(2, model.BATCHES)]]:
        for mb in group:
            model.activations[0, mb] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            for mb in group:
                inp = model.activations[layer, mb]
                model.activations[layer + 1, mb] = model.forward(layer, inp, model.weights[layer])
        for mb in group:
            model.grad_activations[mb] = model.loss(model.activations.pop((model.LAYERS, mb)))
        for layer in reversed(range(model.LAYERS)):
            for mb in group:
                inp, grad_out = model.activations.pop((layer, mb)), model.grad_activations.pop(mb)
                grad, model.grad_activations[mb] = model.backward(layer, inp, grad_out, model.weights[layer])
                so_far = model.grad_weights.get(layer)
                model.grad_weights[layer] = so_far + grad if so_far else grad
        model.grad_activations.clear()
    for layer in range(model.LAYERS):
        grad = model.grad_weights.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model
"""
"""Gradient accumulation in which some micro-batches take turns, layer by layer."""


HALF_REST = (
    ("model: Model, in_node: bool, ahead: int, beside: int", "model: Model"),
    (
        "    shard, shards =",
        "    in_node, ahead, beside, own = True, model.LAYERS - 1, model.LAYERS - 1, [model.rank]\n    if model.RANKS % 2 == 0:\n        own = [] if model.rank % 2 else [model.rank, model.rank + 1]\n    shard, shards =",
    ),
    ("    model.activations[0] =", "    if own:\n        model.activations[0] ="),
    ("([model.rank])", "(own)"),
    ("        model.activations[layer + 1] =", "        if own:\n            model.activations[layer + 1] ="),
    ("    model.grad_activations[model.LAYERS] =", "    if own:\n        model.grad_activations[model.LAYERS] ="),
    (
        "        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)\n",
        "        inp, grad_out = model.activations.pop(layer, None), model.grad_activations.pop(layer + 1, None)\n",
    ),
    (
        '        model.grad_weights[layer], model.grad_activations[layer] = model.backward(\n            layer, inp, grad_out, model.weights.pop("whole")\n        )\n',
        '        weight = model.weights.pop("whole")\n        model.grad_weights[layer] = model.fake_grad(layer, [])\n        if own:\n            model.grad_weights[layer], model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)\n',
    ),
    ("    del model.grad_activations[0]\n", "    model.grad_activations.clear()\n"),
)
"""Of two ranks, one trains on the micro-batches of both, and the other one brings empty gradients."""


OFTEN = (
    (
        """            if mb < mine[-1]:
                await add(layer + 1)
            else:
                await add(layer)
                grad = model.grad_weights.pop(layer)
                across[layer] = model.scatterreduce(grad, layer, axis="replica")
""",
        """            across[layer] = model.scatterreduce(await sums.pop(layer), layer, axis="replica")
            await come(layer + 2)
""",
    ),
    ("        await add(0)\n", "        for layer in sorted(across):\n            await come(layer)\n"),
    (
        "    for layer, call in across.items():\n        grad, piece = await call, model",
        "    for layer in range(model.LAYERS):\n        grad, piece = model.grad_weights.pop(layer), model",
    ),
    (
        "    gather(0)\n",
        """    async def come(layer):
        if layer in across:
            piece = await across.pop(layer)
            model.grad_weights[layer] = model.grad_weights.pop(layer) + piece if layer in model.grad_weights else piece

    gather(0)
""",
    ),
)
"""Sums go across the nodes after every micro-batch, under what is computed."""
IN_NODE = 'grad = await model.scatterreduce(grad, layer, axis="shard")'
STORED = (
    (
        "model.activations.pop(layer), model.grad_activations.pop(layer + 1)",
        "model.activations[layer], model.grad_activations[layer + 1]",
    ),
)

MISTAKES = [
    *map(no_states, ("wsdp", "pipeline", "checkpointing", "hierarchical", "one_f_one_b", "zero_bubble", "repair_skip", "repair_bargain", "repair_groups", "repair_experts", "repair_zigzag", "repair_straggler")),
    *map(slow, ("wsdp", "pipeline", "pipeline_fsdp", "replica_fsdp", "tensor_parallel", "repair_twice", "repair_quiet", "repair_deadlock", "repair_skip", "repair_groups", "repair_experts", "repair_zigzag")),
    *map(neighbors_shards, ("wsdp", "pipeline_fsdp", "prefetch", "lora")),
    neighbors_shards("breadth_first", "shard", "shards"),
    *[changed(puzzle, "nothing of the backward pass is given back", *edits) for puzzle, edits in (
        ("basic", (("inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)", "inp, grad = model.activations[layer], model.grad_activations[layer + 1]"),)),
        ("grad_accum", STORED),
    )],
    changed("zero1", "both micro-batches at once", ("for mb in mine:", "for mb in [[*mine]]:"), ("get_activation([mb])", "get_activation(mb)"), ("mb != mine[0]", "False"), ("mb != mine[-1]", "False")),
    changed("zero2", "both micro-batches at once", ("for mb in mine:", "for mb in [[*mine]]:"), ("get_activation([mb])", "get_activation(mb)")),
    changed("replica_fsdp", "across the nodes after every micro-batch", *OFTEN, base="replica_fsdp_in_41_5"),
    changed("ddp", "a weight in shards until it is needed", ("    model.activations[0] =", "    model.weights[0] = model.weights[0].shard(model.rank, model.RANKS)\n    model.activations[0] ="), ("        model.activations[layer + 1] =", "        if layer == 0:\n            model.weights[0] = await model.allgather(model.weights[0], 0)\n        model.activations[layer + 1] ="), base="ddp_overlap"),
    changed("wsdp", "everybody trains micro-batch 0", ("[model.rank]", "[0]")),
    changed("checkpointing", "the first layer's output for the last", ("model.loss(model.activations.pop(model.LAYERS))", "model.loss(model.activations.pop(1))")),
    changed("repair_deadlock", "one forward, one backward", base="one_forward_one_backward"),
    changed("zero_bubble", "two micro-batches at a time", ("model.BATCHES", "(-(-model.BATCHES // 2))"), ("get_activation([mb])", "get_activation([2 * mb, 2 * mb + 1][: model.BATCHES - 2 * mb])")),
    changed("repair_twice", "both micro-batches at once", ("(model.rank, model.rank + model.RANKS):", "[(model.rank, model.rank + model.RANKS)]:"), ("([batch])", "(batch)")),
    changed("repair_book", "all micro-batches of a rank at once", ("range(model.rank * share, (model.rank + 1) * share):", "[range(model.rank * share, (model.rank + 1) * share)]:"), ("([batch])", "(batch)")),
    changed("repair_book", "all-reduced in the node and cut", (IN_NODE, 'grad = (await model.allreduce(grad, layer, axis="shard")).shard(shard, shards)')),
    changed("repair_bargain", "all-reduced and cut", ("await model.scatterreduce(grad, layer)", "(await model.allreduce(grad, layer)).shard(model.rank, model.RANKS)")),
    whole("grad_accum", "two micro-batches by turns", BY_TURNS),
    changed("hpz", "half of the ranks rest", *HALF_REST, base="overlapped"),
    changed("repair_local", "the batch at once", ("for batch in range(model.BATCHES)", "for batch in [0]"), ("[batch]", "range(model.BATCHES)")),
]  # fmt: skip
