"""Programs that leave out one sentence of a task, where no other program of the corpus is about it alone."""

from __future__ import annotations

from . import Program, after, changed, function


def afterwards(puzzle: str, name: str, line: str, says: str) -> Program:
    """The solution, and then a line more."""
    is_async = function(puzzle).startswith("async")
    head, call = ("async def", "await honest(model)") if is_async else ("def", "honest(model)")
    return after(puzzle, name, f"{head} {puzzle}(model):\n    {call}\n    {line}\n    return model", says)


def no_states(puzzle: str) -> Program:
    """The solution without the states that it ends with."""
    says = "it ends without the updated optimizer state"
    return afterwards(puzzle, "the states are not kept", "model.opt_states.clear()", says)


def slow(puzzle: str) -> Program:
    """The solution and many sums of nothing."""
    line = "for _ in range(400): await model.allreduce(model.fake_grad(0, []), 0)"
    return afterwards(puzzle, "it goes on and on", line, "over the target")


def neighbors_shards(puzzle: str, rank: str = "model.rank", ranks: str = "model.RANKS") -> Program:
    """The solution with the shards of the next rank."""
    edit = (f"layer, {rank}, {ranks}", f"layer, ({rank} + 1) % {ranks}, {ranks}")
    return changed(
        puzzle,
        "the shards of the next rank",
        edit,
        says="begins with the wrong part|does not cover the weight|hold different shards",
    )


WHOLE = "this is puzzle 3: the rank received a whole summed gradient and used"
IN_NODE = 'grad = await model.scatterreduce(grad, layer, axis="shard")'
STORED = (
    (
        "model.activations.pop(layer), model.grad_activations.pop(layer + 1)",
        "model.activations[layer], model.grad_activations[layer + 1]",
    ),
)

MISTAKES = [
    *map(no_states, ("wsdp", "pipeline", "checkpointing", "hierarchical", "one_f_one_b", "zero_bubble", "repair_skip", "repair_bargain", "repair_groups")),
    *map(slow, ("wsdp", "pipeline", "pipeline_fsdp", "replica_fsdp", "tensor_parallel", "repair_twice", "repair_quiet", "repair_deadlock", "repair_skip", "repair_groups")),
    *map(neighbors_shards, ("wsdp", "pipeline_fsdp", "prefetch", "lora")),
    neighbors_shards("breadth_first", "shard", "shards"),
    *[changed(puzzle, "nothing of the backward pass is given back", *edits, says="over the target") for puzzle, edits in (
        ("basic", (("inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)", "inp, grad = model.activations[layer], model.grad_activations[layer + 1]"),)),
        ("grad_accum", STORED),
    )],
    changed("zero1", "both micro-batches at once", ("for mb in mine:", "for mb in [[*mine]]:"), ("get_activation([mb])", "get_activation(mb)"), ("mb != mine[0]", "False"), ("mb != mine[-1]", "False"),
            says="it works on micro-batches {0, 4} at once"),
    changed("zero2", "both micro-batches at once", ("for mb in mine:", "for mb in [[*mine]]:"), ("get_activation([mb])", "get_activation(mb)"), says="it works on micro-batches {0, 4} at once"),
    changed("wsdp", "everybody trains micro-batch 0", ("[model.rank]", "[0]"), says="would be counted twice"),
    changed("wsdp", "the shard for the weight", ("weight = await model.allgather(model.weights[layer], layer)\n        model.act", "weight = model.weights[layer]\n        model.act"), says="the weight is not complete|model.allgather"),
    changed("checkpointing", "the first layer's output for the last", ("model.loss(model.activations.pop(model.LAYERS))", "model.loss(model.activations.pop(1))"), says="the loss reads the output of the last layer"),
    changed("offload", "a copy of a state sent to the device", ("    if model.is_host:\n        for mb", "    if model.is_host:\n        await model.pass_to(model.devices[0], model.opt_states[0])\n        for mb"),
            ("    for mb in range(model.BATCHES):\n        model.act", "    await model.receive()\n    for mb in range(model.BATCHES):\n        model.act"), says="it moves the optimizer state of layer 0"),
    changed("repair_deadlock", "one forward, one backward", base="one_forward_one_backward", says="it works on micro-batch 0 alone"),
    changed("zero_bubble", "two micro-batches at a time", ("model.BATCHES", "(-(-model.BATCHES // 2))"), ("get_activation([mb])", "get_activation([2 * mb, 2 * mb + 1][: model.BATCHES - 2 * mb])"), says="it works on micro-batches {0, 1} at once"),
    changed("repair_twice", "both micro-batches at once", ("(model.rank, model.rank + model.RANKS):", "[(model.rank, model.rank + model.RANKS)]:"), ("([batch])", "(batch)"), says="it works on micro-batches {0, 4} at once"),
    changed("repair_book", "all micro-batches of a rank at once", ("range(model.rank * share, (model.rank + 1) * share):", "[range(model.rank * share, (model.rank + 1) * share)]:"), ("([batch])", "(batch)"), says="it works on micro-batches {0-3} at once"),
    changed("repair_book", "all-reduced in the node and cut", (IN_NODE, 'grad = (await model.allreduce(grad, layer, axis="shard")).shard(shard, shards)'), says=WHOLE),
    changed("repair_bargain", "all-reduced and cut", ("await model.scatterreduce(grad, layer)", "(await model.allreduce(grad, layer)).shard(model.rank, model.RANKS)"), says=WHOLE),
    changed("checkpointing", "a little of every layer at any size but one", ("layer < model.LAYERS // 2", "layer < model.LAYERS // (2 if model.LAYERS == 12 else 1)"), says="right at its own size, but not with"),
    changed("repair_local", "the batch at once", ("for batch in range(model.BATCHES)", "for batch in [0]"), ("[batch]", "range(model.BATCHES)"), says="at once"),
]  # fmt: skip
