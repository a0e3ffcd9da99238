# %% [markdown]
# # Puzzle 3: Weight-sharded data parallel
#
# Six layers now, and weights with their optimizer states take most of the memory. Every rank holds the same ones. Does it have to?

# %%
from drawing import draw, draw_group
from lib import Model, grade, run

# %% tags=["spec"]
PUZZLE = {
    "number": 3,
    "name": "wsdp",
    "title": "Weight-sharded data parallel",
    "size": {"ranks": 4, "layers": 6, "batches": 4},
    "other_sizes": "data_parallel",
    "target": {"time": 20.4, "memory": 2752512},
    "best_known": {"time": 20.1, "memory": 1966080},
    "layout": "sharded",
    "rules": [],
    "minutes": 20,
    "hints": [
        "Load only your own shard: model.load_weights(layer, model.rank, model.RANKS).",
        "Before a layer's forward, and again before its backward, gather its weight; use it, and do not store it. It is gone after the operation.",
        "The all-reduced gradient is complete, the weight and state are shards: update takes them as they are, because the gradient covers the shard.",
    ],
}

# %% [markdown]
# ## Shards and all-gather
#
# `load_weights(layer, shard, total)` gives one *shard* of a weight and of its state: 1/total of the memory. `await model.allgather(v, layer)` joins the shards of all ranks,
# for everyone, in 0.3 ticks. `w.shard(i, n)` cuts a tensor, `a.combine(b)` joins two pieces.

# %%
async def gather(model: Model) -> Model:
    """Every rank holds a shard; then all have the whole."""
    model.weights["before"], _ = model.load_weights(0, model.rank, model.RANKS)
    model.weights["after"] = await model.allgather(model.weights["before"], 0)
    return model


draw_group({f"rank {m.rank}": m.weights for m in run(gather, ranks=3, layers=1).models})

# %% [markdown]
# ## Your task
#
# Every rank holds one shard of every weight and of every state (rank r holds shard r), trains its own micro-batch, and ends with its shards updated. Gradients
# may be whole. Target, for 4 ranks and 6 layers: time **20.4** ticks, peak memory **2,752,512** elements.

# %%
async def wsdp(model: Model) -> Model:
    """Data parallel with sharded weights and states; gradients are whole."""
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
        model.grad_weights[layer] = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model

# %%
draw(run(wsdp, ranks=4, layers=6, batches=4))

# %% [markdown]
# Right, fast enough, small enough, and at other sizes too?

# %%
grade(wsdp)

# %% [markdown]
# ## Where this is in real systems
#
# Sharding what is only *stored*, and gathering it for the moment in which it is *used*, is the idea of ZeRO (arXiv 1910.02054). This variant, with weights and states sharded and
# gradients whole, is none of ZeRO's stages: stage 1 shards the states, stage 2 also the gradients, stage 3 also the weights. A gather that is started before it is needed
# (`handle = model.allgather(...)`, compute, `await handle`) hides behind compute: every real implementation prefetches the next layer.
