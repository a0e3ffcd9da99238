# %% [markdown]
# # Puzzle 4: Fully sharded data parallel
#
# In puzzle 3 every rank received whole gradients, used a quarter of each, and threw the rest away.

# %%
from drawing import beside_target, draw, draw_group
from lib import Model, grade, hint, run, solution

# %% tags=["spec"]
# ruff: noqa: F401 (some are there for learners to call)
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
    "difficulty": "medium",
    "minutes": 20,
    "hints": [
        "Which part of the summed gradient does a rank need for its update? It holds one shard of the weight "
        "and one of the state.",
        "Begin with your answer to puzzle 3. One collective in it brings more than you need. Another one, "
        "for the same time, brings exactly your part.",
        "`model.grad_weights[layer] = await model.scatterreduce(grad, layer)` right after `backward`. Now weight, "
        "state and gradient hold the same shard, and `update` takes all three.",
    ],
}

# %% [markdown]
# ## A new tool: reduce-scatter
#
# `await model.scatterreduce(v, layer)` is the field's *reduce-scatter*. It sums the gradients of all ranks, and
# then **rank i keeps piece i of the sum**. It takes 0.3 ticks.
#
# ![before and after a reduce-scatter](picture:scatterreduce)
#
# Three ranks again. Each begins with the whole gradient of one micro-batch, and ends with a piece of the
# gradient of all micro-batches.


# %%
async def sum_and_split(model: Model) -> Model:
    """Each rank makes the gradient of its own micro-batch, then each gets a piece of the sum."""
    model.weights[0], _ = model.load_weights(0)
    model.activations[0] = model.get_activation([model.rank])
    model.grad_activations[1] = model.loss(
        model.forward(0, model.activations[0], model.weights[0])
    )
    model.grad_weights["before"], _ = model.backward(
        0, model.activations[0], model.grad_activations[1], model.weights[0]
    )
    model.grad_weights["after"] = await model.scatterreduce(model.grad_weights["before"], 0)
    return model


draw_group(
    {
        f"rank {m.rank}": m.grad_weights
        for m in run(sum_and_split, ranks=3, layers=1, batches=3).models
    }
)

# %% [markdown]
# ## Your task
#
# As in puzzle 3, but gradients stay whole no longer than they have to. Rank `r` holds shard `r` of `RANKS` of
# every weight and state, trains micro-batch `r`, and ends with its shards updated.
#
# Target, for 4 ranks and 6 layers: **20.4** ticks, peak memory **2,359,296** elements.


# %%
async def fsdp(model: Model) -> Model:
    """Data parallel, with weights, optimizer states and gradients in shards."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
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

# %%
# Right? Fast and small enough? At other sizes, too? If you are stuck: hint("fsdp")
grade(fsdp)

# %% [markdown]
# ## Where real systems do this
#
# This is ZeRO's stage 3, and PyTorch's FSDP with `FULL_SHARD`. What is kept is now divided by the number of
# ranks. For 7.5 billion parameters and 64 ranks, in GB on each GPU (ZeRO, arXiv 1910.02054):
#
# | data parallel | ZeRO-1 | ZeRO-2 | ZeRO-3, FSDP |
# |---|---|---|---|
# | 120 | 31.4 | 16.6 | 1.9 |
#
# A middle way has a name in PyTorch, too: `SHARD_GRAD_OP` keeps the weights whole from the way up to the way down, and so
# gathers once a micro-batch instead of twice. It is often called ZeRO-2, and is not quite: between steps it keeps
# only its shard of the weights, which ZeRO-2 keeps whole, and ZeRO-2 gathers them once a *step*.
#
# The price is communication. On n ranks, each rank sends three times (n - 1)/n of the model *for every
# micro-batch*: two gathers and a reduce-scatter. Data parallel sends twice (n - 1)/n, *once a step*. So FSDP
# likes fast links, and micro-batches large enough to hide the gathers behind. Gathering ahead, as at the end of
# puzzle 3, works here on the way up and on the way down. How many ticks does it save you, and for what memory?
