# %% [markdown]
# # Puzzle 4: Fully sharded data parallel
#
# In the last puzzle, every rank received whole gradients and used a quarter of each. Let us not.

# %%
from drawing import draw, draw_group
from lib import Model, grade, run

# %% tags=["spec"]
PUZZLE = {
    "number": 4,
    "name": "fsdp",
    "title": "Fully sharded data parallel",
    "size": {"ranks": 4, "layers": 6, "batches": 4},
    "other_sizes": "data_parallel",
    "target": {"time": 20.4, "memory": 2359296},
    "best_known": {"time": 20.4, "memory": 1966080},
    "layout": "sharded",
    "rules": [],
    "minutes": 15,
    "hints": [
        "What does a rank do with the part of the gradient whose weight it does not hold?",
        "A reduce-scatter sums like an all-reduce, and leaves every rank only its own shard of the sum, in the same time.",
        "model.grad_weights[l] = await model.scatterreduce(grad, l) right after backward; then update shard by shard.",
    ],
}

# %% [markdown]
# ## Reduce-scatter
#
# `await model.scatterreduce(v, layer)` sums the gradients of all ranks, and the i-th rank keeps shard i of the sum. It costs what an all-gather costs; the two together are an all-reduce.

# %%
async def share(model: Model) -> Model:
    """Every rank makes the gradient of its own micro-batch; then they reduce-scatter."""
    weight, _ = model.load_weights(0)
    model.weights[0] = weight
    model.activations[0] = model.get_activation([model.rank])
    grad_out = model.loss(model.forward(0, model.activations[0], weight))
    model.grad_weights["before"], _ = model.backward(0, model.activations[0], grad_out, weight)
    model.grad_weights["after"] = await model.scatterreduce(model.grad_weights["before"], 0)
    return model


draw_group({f"rank {m.rank}": m.grad_weights for m in run(share, ranks=3, layers=1, batches=3).models})

# %% [markdown]
# ## Your task
#
# As before, with gradients sharded as well. Target, for 4 ranks and 6 layers: time **20.4** ticks, peak memory **2,359,296** elements.

# %%
async def fsdp(model: Model) -> Model:
    """Data parallel with weights, states and gradients sharded over all ranks."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        grad, model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), weight
        )
        model.grad_weights[layer] = await model.scatterreduce(grad, layer)

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model

# %%
draw(run(fsdp, ranks=4, layers=6, batches=4))

# %% [markdown]
# Right, fast enough, small enough, and at other sizes too?

# %%
grade(fsdp)

# %% [markdown]
# ## Where this is in real systems
#
# This is ZeRO stage 3, PyTorch's `FullyShardedDataParallel` (FULL_SHARD) and JAX's fully sharded arrays: model states take 16/N bytes a parameter on N ranks. Each micro-batch costs three times
# (N - 1)/N of the model in communication (two gathers, one reduce-scatter), where data parallel pays two, once a step. So it wants fast links, and large micro-batches to hide behind.
