# %% [markdown]
# # Puzzle 3: Weight-sharded data parallel
#
# {{GPUS}} GPUs of {{CARD}} GB have {{GPUS * CARD / 1000:.1f}} TB of memory between them. With data parallel they
# still cannot train a model of {{MODEL / BILLION}} billion parameters: each of them needs {{TRAINED}} bytes x
# {{MODEL / BILLION}} billion = {{trained(MODEL) / BILLION}} GB. They store {{GPUS}} copies of the same weights and
# the same optimizer states.
#
# Here are six layers on four ranks, so most of the memory goes to weights and states. Four identical copies. Do we
# need them?

# %%
from drawing import beside_target, draw, draw_group, play
from lib import Model, grade, hint, run, solution

# %% tags=["spec"]
PUZZLE = {
    "number": 3,
    "name": "wsdp",
    "title": "Weight-sharded data parallel",
    "size": {"ranks": 4, "layers": 6, "batches": 4},
    "other_sizes": "data_parallel",
    "target": {"time": 20.4, "memory": 2752512},
    "star": {"time": 17.1, "memory": 1966080},
    "frontier": [
        {"time": 15.3, "memory": 2228224, "by": "fsdp_in_15_3"},
        {"time": 15.6, "memory": 2097152, "by": "fsdp_in_15_6"},
        {"time": 15.9, "memory": 1966080, "by": "fsdp_in_15_9"},
    ],
    "layout": "sharded",
    "hints_for": {"slow": 2, "large": 2},
    "ideas": ["as_many_each"],
    "difficulty": "medium",
    "minutes": 20,
    "star_hint": "While a rank updates a layer, its network does nothing. Which gather, and which sum, "
    "could be on its way meanwhile?",
    "hints": [
        "A rank needs a whole weight only at the moments when it is used. How many such moments does a layer have "
        "in a step?",
        "A layer needs its whole weight at two moments: one in the forward pass, one in the backward pass. A "
        "gather takes time, so make one right before each of these moments, and no other. Do not store what it "
        "brings: a whole weight takes up memory, and is gone after the operation that reads it.",
        "`weight = await model.allgather(model.weights[layer], layer)` before `forward`, and again before "
        "`backward`. The gradient is all-reduced as in puzzle 2. `update` takes a whole gradient together "
        "with your shards of weight and state, and gives your shards back. For the star, let gathers run under other "
        "work: under a forward while there is room for two weights, and under an update when there is not. "
        "And sum with `model.scatterreduce`, of puzzle 4, which gives a rank its piece of the sum only.",
    ],
}

# %% [markdown]
# ## New tools: shards and all-gather
#
# `load_weights(layer, shard, total)` returns one *shard* of a weight and of its optimizer state: piece number
# `shard`, counted from 0, of `total` equal pieces. It takes 1/total of the memory. (To load all of it and cut it at
# once, `weight.shard(0, 4)`, is the same: a piece counts as loaded when it is stored or used.)
#
# `await model.allgather(v, layer)` is a collective that joins pieces. Each rank brings its shard, and
# {{cost.collective}} ticks later **every rank gets the whole**. In the picture, the filled part is what a rank has.
#
# ![before and after an all-gather](picture:allgather)
#
# Here three ranks do it.


# %%
async def join(model: Model) -> Model:
    """Each rank has one shard, then all have the whole."""
    model.weights["before"], _ = model.load_weights(0, model.rank, model.RANKS)
    model.weights["after"] = await model.allgather(model.weights["before"], 0)
    return model


draw_group({f"rank {m.rank}": m.weights for m in run(join, ranks=3, layers=1).models})

# %% [markdown]
# ## Your task
#
# As in puzzle 2, each rank trains on its own micro-batch. But rank `r` loads only shard `r` of `RANKS` of every
# weight and of every state, and gathers a whole weight to use it.
# It ends with its shards updated: the weights handed in with `set_final_weight`, the states in `opt_states`. Gradients
# may be whole.
#
# `forward` and `backward` need a whole weight. `update` needs a weight and a state with the same shards, and a
# gradient that has at least those shards (a whole one will do). Remember that a tensor in a local variable lives
# until the next operation, which may use it; after that it is gone, unless you have stored it.
#
# The grader holds you to this: {{ideas}}
#
# Target, for 4 ranks and 6 layers: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.
# The star: **{{star.time}}** ticks, **{{star.memory}}** elements.
#
# The star wants calls that are on their way while a rank computes. [Puzzle 12](p12_prefetch.ipynb) has a worked
# example of that, if you want it now.


# %%
async def wsdp(model: Model) -> Model:
    """Data parallel, with weights and optimizer states in shards."""
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
        grad = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(run(wsdp, ranks=4, layers=6, batches=4))

# %%
# The same run, step by step, with the line of your code that each rank is at.
play(run(wsdp, ranks=4, layers=6, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too? If you are stuck: hint("wsdp")
grade(wsdp)

# %% [markdown] tags=["solution"]
# ## Faster: gather ahead
#
# If you start a gather one layer early, it is done when that layer begins. The forward pass has room for a second
# weight, because the activations have not piled up yet. And the weight of the last layer is used last in the forward
# pass and first in the backward pass: keep it. That takes {{ahead.time}} ticks and no more memory.


# %% tags=["solution"]
async def wsdp_prefetch(model: Model) -> Model:
    """As above, with the weight of the next layer gathered while this one computes."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    ahead = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        model.weights["whole"] = await ahead
        if layer + 1 < model.LAYERS:
            ahead = model.allgather(model.weights[layer + 1], layer + 1)
        inp, weight = model.activations[layer], model.weights["whole"]
        model.activations[layer + 1] = model.forward(layer, inp, weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer + 1 < model.LAYERS:
            model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        weight = model.weights.pop("whole")
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        grad = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(wsdp_prefetch, ranks=4, layers=6, batches=4))

# %% [markdown] tags=["solution"]
# ## The star: calls under updates
#
# In the backward pass there is no room for the next weight during a backward: activations still fill the memory. But an
# update takes time as well. When the sum of a layer is there, start the next gather and then update. (At the top layer
# there is no room for that either.) And by the time that layer 1 comes, enough activations have gone for a gradient on
# its way, so its sum can be awaited after the last backward. That takes {{under.time}} ticks, in the same memory.


# %% tags=["solution"]
async def wsdp_under_updates(model: Model) -> Model:
    """As above; in the backward pass, gathers run under updates, and the last two sums under other work."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    ahead = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        model.weights["whole"] = await ahead
        if layer + 1 < model.LAYERS:
            ahead = model.allgather(model.weights[layer + 1], layer + 1)
        inp, weight = model.activations[layer], model.weights["whole"]
        model.activations[layer + 1] = model.forward(layer, inp, weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    sums, gathers = {}, {}
    for layer in reversed(range(model.LAYERS)):
        if layer + 1 < model.LAYERS:
            call = gathers.pop(layer, None) or model.allgather(model.weights[layer], layer)
            model.weights["whole"] = await call
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights.pop("whole")
        )
        if layer == 1:
            gathers[0] = model.allgather(model.weights[0], 0)
        sums[layer] = model.allreduce(model.grad_weights.pop(layer), layer)
        if layer == 1:
            continue  # its sum is awaited one turn later
        for done in sorted(sums, reverse=True):
            model.grad_weights[done] = await sums.pop(done)
            if 1 < layer < model.LAYERS - 1:
                gathers[layer - 1] = model.allgather(model.weights[layer - 1], layer - 1)
            model.weights[done], model.opt_states[done] = model.update(
                done, model.grad_weights.pop(done), model.weights[done], model.opt_states[done]
            )
            model.set_final_weight(done, model.weights[done])
    return model


draw(run(wsdp_under_updates, ranks=4, layers=6, batches=4))

# %% [markdown]
# ## Where real systems do this
#
# Shard what you only *store*; gather it for the moment you *use* it. That is the idea behind ZeRO (arXiv 1910.02054).
# ZeRO has three stages. Stage 1 shards the optimizer states, stage 2 the gradients as well, and stage 3 even the
# weights. You sharded weights and states and left the gradients whole, which is none of the three: it is a stepping
# stone.
#
# Sharding just the optimizer states already gives the biggest saving. Of the {{TRAINED}} bytes for each parameter,
# {{STATE}} belong to the optimizer. So with stage 1 on N ranks, each rank needs {{WEIGHT + GRADIENT}} + {{STATE}}/N
# bytes for each parameter.
#
# Real systems *prefetch*: they start a gather before its result is needed, so that it runs while the GPU computes.
# You can do that here, too. Start with `ahead = model.allgather(...)`, compute something else, then `await ahead`.

# %% [markdown]
# ## On real GPUs
#
# The same model and the same GPUs as in puzzle 2, in seconds and bytes.
#
# ![What a step takes](picture:priced)
#
# Weights, gradients and states are divided by {{priced.ranks}} now, and it fits. Most of what is in memory at the
# peak is the loss: for each of {{LLAMA_3_8B.sequence}} tokens it takes a number for each of {{LLAMA_3_8B.vocabulary}}
# words, several times over.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_8B, report

priced = run(
    wsdp,
    ranks=16,
    layers=32,
    batches=16,
    cost=H100_TORCHTITAN.cost(LLAMA_3_8B, recompute="full"),
)
print(report(priced))

# %% tags=["figures"]
ours, ahead, under = (run(fn, **size) for fn in (wsdp, wsdp_prefetch, wsdp_under_updates))
assert ahead.memory <= ours.memory and under.memory <= ours.memory
