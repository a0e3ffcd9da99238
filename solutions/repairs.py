# %% [markdown]
# # What is wrong here?
#
# Five short programs, each with one mistake that people really make. Run a cell and read what the error says. Below
# it is a picture of the run up to there: a flag where the error is, and hatched in red who waits, and for whom. Then
# repair the program. Nothing has to be written anew, a few lines are enough, and what comes out is graded like any
# other puzzle. You need puzzle 1 for the first, puzzle 2 for the two after it, puzzle 5 for the fourth, and
# puzzle 8 for the last.

# %%
from drawing import draw
from lib import Model, grade, hint, run, solution

# %% [markdown]
# ## 9. Gradients that are gone
#
# Gradient accumulation, as in puzzle 1: one micro-batch after the other, and an update with the sum of their
# gradients. The gradient of each micro-batch is there, and still nothing can be added.
#
# Target, for 1 rank, 2 layers, 4 micro-batches: **17.0** ticks, peak memory **1,966,080** elements.

# %% tags=["spec"]
# ruff: noqa: F401 (some are there for learners to call)
PUZZLE = {
    "number": 9,
    "name": "repair_local",
    "title": "Gradients that are gone",
    "size": {"ranks": 1, "layers": 2, "batches": 4},
    "other_sizes": "one_rank",
    "target": {"time": 17.0, "memory": 1966080},
    "frontier": [
        {"time": 17.0, "memory": 1966080, "by": "repair_local"},
    ],
    "layout": "whole",
    "rules": ["one_micro_batch"],
    "difficulty": "easy",
    "minutes": 5,
    "hints": [
        "The error names a tensor, and the operation at which it was lost. Where was that tensor kept then?",
        "`sums` is a variable of your function, and a variable is on no device: what is only there is gone with the "
        "next operation. A device's memory is the five dictionaries of `model`, and nothing else.",
        "There is a dictionary for gradients of weights, `model.grad_weights`. Use it in place of `sums`.",
    ],
}


# %%
def repair_local(model: Model) -> Model:
    """One micro-batch after the other, the gradients added up."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    ### BEGIN SOLUTION
    sums = model.grad_weights
    ### BROKEN
    # sums = {}
    ### END SOLUTION
    for batch in range(model.BATCHES):
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            sums[layer] = sums[layer] + grad if layer in sums else grad
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, sums.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %% tags=["raises-exception"]
draw(run(repair_local, ranks=1, layers=2, batches=4))

# %%
grade(repair_local)

# %% [markdown] tags=["solution"]
# `sums` was a plain dictionary, so the gradients in it were stored on no device. `model.grad_weights` is one that
# counts. On a real GPU the mistake shows as its opposite: a list of tensors that nobody thinks of keeps them all
# alive, and memory grows until there is none.

# %% [markdown]
# ## 10. Some have nothing to do
#
# Data parallel, as in puzzle 2, but there are fewer micro-batches than ranks: the last one of an epoch often comes
# up short. The ranks without one still have to end with all weights updated.
#
# Target, for 4 ranks, 2 layers, 3 micro-batches: **5.6** ticks, peak memory **1,572,864** elements.

# %% tags=["spec"]
PUZZLE = {
    "number": 10,
    "name": "repair_skip",
    "title": "Some have nothing to do",
    "size": {"ranks": 4, "layers": 2, "batches": 3},
    "other_sizes": "uneven",
    "target": {"time": 5.6, "memory": 1572864},
    "frontier": [
        {"time": 5.6, "memory": 1572864, "by": "repair_skip"},
    ],
    "layout": "whole",
    "rules": [],
    "difficulty": "medium",
    "minutes": 10,
    "hints": [
        "The list in the error says what each rank waits for, and which have finished. Who is missing where?",
        "A collective needs all ranks, also those that have nothing to bring. So the rank without a micro-batch has "
        "to come along to every `allreduce`, and needs its result for its own `update`.",
        "What it brings must change nothing: `grad = model.fake_grad(layer, [])` is the gradient of no micro-batches. "
        "Then `allreduce`, `update` and `set_final_weight` are for everyone.",
    ],
}


# %%
async def repair_skip(model: Model) -> Model:
    """One micro-batch for each rank, as far as there are any."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    busy = model.rank < model.BATCHES
    if busy:
        model.activations[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        ### BEGIN SOLUTION
        grad = model.fake_grad(layer, [])
        if busy:
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
        ### BROKEN
        # if not busy:
        #     continue
        # inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        # grad, model.grad_activations[layer] = model.backward(
        #     layer, inp, grad_out, model.weights[layer]
        # )
        ### END SOLUTION
        grad = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %% tags=["raises-exception"]
draw(run(repair_skip, ranks=4, layers=2, batches=3))

# %%
grade(repair_skip)

# %% [markdown] tags=["solution"]
# The rank without a micro-batch left the loop early, and the others met for a sum that could never be complete. Now
# it brings a zero. PyTorch has the same problem and the same cure: without its `join` context manager,
# `DistributedDataParallel` hangs when one rank runs out of data before the others. There nobody tells you who is missing;
# after ten minutes, with NCCL, there is a timeout.

# %% [markdown]
# ## 11. Counted twice
#
# Gradient accumulation *and* data parallel: every rank trains two micro-batches, one after the other, and the
# update needs the gradient of all.
#
# Target, for 4 ranks, 2 layers, 8 micro-batches: **9.6** ticks, peak memory **2,097,152** elements.

# %% tags=["spec"]
PUZZLE = {
    "number": 11,
    "name": "repair_twice",
    "title": "Counted twice",
    "size": {"ranks": 4, "layers": 2, "batches": 8},
    "other_sizes": "two_each",
    "target": {"time": 9.6, "memory": 2097152},
    "frontier": [
        {"time": 9.6, "memory": 1966080, "by": "repair_twice"},
    ],
    "layout": "whole",
    "rules": [],
    "difficulty": "medium",
    "minutes": 10,
    "hints": [
        "The first micro-batch of each rank goes well. What does `model.grad_weights[layer]` hold after it: your "
        "own gradient, or that of all ranks? And what happens to it the second time around?",
        "A sum over the ranks adds up whatever the ranks bring. What has been summed once must not be brought again.",
        "Add up your own gradients first: `model.grad_weights[layer] = grad`, the second time "
        "`model.grad_weights[layer] + grad`. One `allreduce` for each layer, in the loop of the updates.",
    ],
}


# %%
async def repair_twice(model: Model) -> Model:
    """Two micro-batches for each rank, one after the other."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    for batch in (model.rank, model.rank + model.RANKS):
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            if layer in model.grad_weights:
                grad = model.grad_weights[layer] + grad
            ### BEGIN SOLUTION
            model.grad_weights[layer] = grad
            ### BROKEN
            # model.grad_weights[layer] = await model.allreduce(grad, layer)
            ### END SOLUTION
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        ### BEGIN SOLUTION
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        ### BROKEN
        # grad = model.grad_weights.pop(layer)
        ### END SOLUTION
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %% tags=["raises-exception"]
draw(run(repair_twice, ranks=4, layers=2, batches=8))

# %%
grade(repair_twice)

# %% [markdown] tags=["solution"]
# After the first micro-batch every rank held the sum of all ranks, and the second reduction added that sum once for
# each rank. With real numbers there is no error: the gradient is merely wrong, and training gets worse without a
# word. It was also slower, for it communicated after each micro-batch. That is what `no_sync` is for in PyTorch: it keeps
# `DistributedDataParallel` from reducing before the last micro-batch.

# %% [markdown]
# ## 12. Both wait
#
# A pipeline of two stages, with all micro-batches at once. Each rank has half of the layers. Rank 0 passes an activation on
# and gets its gradient back.
#
# Target, for 2 ranks, 4 layers, 4 micro-batches: **34.8** ticks, peak memory **2,621,440** elements.

# %% tags=["spec"]
PUZZLE = {
    "number": 12,
    "name": "repair_deadlock",
    "title": "Both wait",
    "size": {"ranks": 2, "layers": 4, "batches": 4},
    "other_sizes": "two_stages",
    "target": {"time": 34.8, "memory": 2621440},
    "frontier": [
        {"time": 21.8, "memory": 2490368, "by": "one_forward_one_backward_ahead"},
    ],
    "layout": "stages",
    "rules": ["own_layers"],
    "difficulty": "easy",
    "minutes": 5,
    "hints": [
        "The error says what each of the two ranks waits for, and in which line. Could either of them go on?",
        "Rank 1 can do nothing before it has the activation. Is anything between rank 0 and sending it?",
        "Rank 0 must send before it receives: exchange the two lines.",
    ],
}


# %%
async def repair_deadlock(model: Model) -> Model:
    """The first half of the layers on rank 0, the second on rank 1."""
    half = model.LAYERS // 2
    mine = range(half) if model.rank == 0 else range(half, model.LAYERS)
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    if model.rank == 0:
        model.activations[0] = model.get_activation(range(model.BATCHES))
    else:
        model.activations[half] = await model.receive()
    for layer in mine:
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )

    if model.rank == 0:
        ### BEGIN SOLUTION
        await model.pass_to(1, model.activations.pop(half))
        model.grad_activations[half] = await model.receive()
        ### BROKEN
        # model.grad_activations[half] = await model.receive()
        # await model.pass_to(1, model.activations.pop(half))
        ### END SOLUTION
    else:
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(mine):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    if model.rank == 1:
        await model.pass_to(0, model.grad_activations.pop(half))
    return model


# %% tags=["raises-exception"]
draw(run(repair_deadlock, ranks=2, layers=4, batches=4))

# %%
grade(repair_deadlock)

# %% [markdown] tags=["solution"]
# Both ranks waited for a message that the other had not sent. On real machines this hangs, or worse: it hangs for large
# messages only, because small ones are buffered and a send returns before anyone has received. So libraries
# for pipelines issue their sends and receives in one batch, such as `batch_isend_irecv` in PyTorch.

# %% [markdown]
# ## 13. The wrong neighbors
#
# Hybrid sharding, in its simple form: two boxes of four ranks. Every box has a replica of everything, in four
# pieces, weight *and* state: rank `r` has piece `model.axis_index("shard")`. Each rank trains the micro-batch of its own number.
# Whole weights are gathered inside a box. A gradient is reduce-scattered inside the box, and what comes out is
# summed over the replicas, a fourth of the size, across the slow links.
#
# Target, for 8 ranks, mesh replica 2 x shard 4, 2 layers: **9.8** ticks, peak memory **917,504** elements.

# %% tags=["spec"]
PUZZLE = {
    "number": 13,
    "name": "repair_groups",
    "title": "The wrong neighbors",
    "size": {
        "ranks": 8,
        "layers": 2,
        "batches": 8,
        "mesh": {"replica": 2, "shard": 4},
        "node_size": 4,
    },
    "other_sizes": "replica_fsdp",
    "target": {"time": 9.8, "memory": 917504},
    "frontier": [
        {"time": 9.8, "memory": 917504, "by": "repair_groups"},
    ],
    "layout": "hybrid_sharded",
    "rules": ["no_whole_gradient"],
    "difficulty": "medium",
    "minutes": 10,
    "hints": [
        "Which piece of the weight does a rank have, and which piece of the gradient has it got? Follow one rank "
        "through the two reductions, and write down after each: which piece, of which micro-batches?",
        "`axis` names the ranks that meet: those that differ from you in that coordinate only. Along which axis are "
        "the pieces different? Along which are they the same?",
        "Reduce-scatter over `shard`, where everyone keeps another piece. Then all-reduce over `replica`, where "
        "all have the same one.",
    ],
}


# %%
async def repair_groups(model: Model) -> Model:
    """Sharded inside a box, replicated across boxes."""
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, shards)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer, axis="shard")
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer, axis="shard")
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        ### BEGIN SOLUTION
        grad = await model.scatterreduce(grad, layer, axis="shard")
        grad = await model.allreduce(grad, layer, axis="replica")
        ### BROKEN
        # grad = await model.scatterreduce(grad, layer, axis="replica")
        # grad = await model.allreduce(grad, layer, axis="shard")
        ### END SOLUTION
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %% tags=["raises-exception"]
draw(
    run(
        repair_groups,
        ranks=8,
        layers=2,
        batches=8,
        mesh={"replica": 2, "shard": 4},
        node_size=4,
    )
)

# %%
grade(repair_groups)

# %% [markdown] tags=["solution"]
# The groups were swapped: a reduce-scatter over two replicas leaves halves, which fit no fourth. Where both axes
# have the same size the halves would even have fitted in shape, on some ranks, and only the values would be wrong; that is
# why meshes have names for their axes, in PyTorch's `DeviceMesh` too. This is PyTorch's `HYBRID_SHARD`. Puzzle 8
# goes further and shards the states over both axes.
