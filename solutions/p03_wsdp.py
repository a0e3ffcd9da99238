# %% [markdown]
# # Puzzle 3: Weight-sharded data parallel
#
# In puzzle 2 four ranks store four identical copies of every weight and optimizer state. Do we need them?
#
# ![before and after an all-gather](picture:allgather)
#
# `load_weights(layer, r, n)` loads a **shard**: piece `r` of `n` equal pieces, counted from 0. An **all-gather** joins
# the shards of all ranks. It takes {{cost.collective}} ticks:
#
# ```python
# # before: model.weights[layer] is shard `model.rank` of the weight
# weight = await model.allgather(model.weights[layer], layer)
# # after: weight is whole, on every rank
# ```

# %%
from drawing import beside_target, draw, play
from lib import Model, grade, hint, run, solution, why

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
        "A layer needs its whole weight at two moments: one in the forward pass, one in the backward pass. A gather "
        "takes time, so make one right before each of these moments, and no other. Do not store the whole weight, "
        "which would only take up memory: pass it straight to the operation that reads it.",
        "`weight = await model.allgather(model.weights[layer], layer)` before `forward`, and again before `backward`. "
        "The gradient is all-reduced as in puzzle 2. `update` takes a whole gradient together with your shards of "
        "weight and state, and gives your shards back. For the star, let gathers run during other work: during a "
        "forward while there is room for two weights, and during an update when there is not. And sum with "
        "`model.scatterreduce`, of puzzle 4, which gives a rank its piece of the sum only.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step as in puzzle 2. The beginning and the end are given.
#
# - {{ideas}}
# - Rank `r` begins and ends with shard `r` of `RANKS` of every weight and optimizer state.
# - `forward` and `backward` read a whole weight. `update` takes your shards, with a whole gradient, and returns shards.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def wsdp(model: Model) -> Model:
    """Data parallel, with weights and optimizer states in shards."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
    model.activations[0] = model.get_activation([model.rank])

    ### BEGIN SOLUTION
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
    ### END SOLUTION

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(wsdp, ranks=4, layers=6, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(wsdp)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. To earn it, let gathers run while a rank computes: "start
# now, fetch later", as in [puzzle 2](p02_ddp.ipynb). To watch your own run, with the line that each rank is at:

# %%
play(run(wsdp, ranks=4, layers=6, batches=4))

# %% [markdown]
# ### What each GPU holds
#
# Here is a program that passes, at three moments: in the forward of layer 1, while layer 2 is gathered, and in the
# forward of layer 2. A GPU stores a quarter of each layer. A whole layer (pale) is there for one operation, and then
# it is gone.
#
# ![Four GPUs store a quarter of each weight; for one operation each has a whole layer](picture:around_a_gather)
#
# ### Why it matters
#
# {{GPUS}} GPUs of {{CARD}} GB have {{GPUS * CARD / 1000:.1f}} TB of memory between them. Yet with data parallel they
# cannot train a model of {{MODEL / BILLION}} billion parameters. Each of them needs {{TRAINED}} bytes for each
# parameter, which makes {{trained(MODEL) / BILLION}} GB. They store {{GPUS}} copies of the same weights and the same
# optimizer states.
#
# ### Two things to know
#
# You may also load a whole weight and cut it at once, with `weight.shard(r, n)`. If you store the shard alone, you
# have loaded no more than that.
#
# `update` needs the same shard of the weight and of the state. The gradient may cover more than this shard. Here it is
# whole.

# %% [markdown] tags=["solution"]
# ### The picture of what each GPU holds


# %% tags=["solution"]
from drawing import Figure, holds


def around_a_gather(static: bool = False) -> Figure:
    """The forward of layer 1, the gather of layer 2, and its forward."""
    return holds(run(wsdp, ranks=4, layers=6, batches=4), 2.5, 2.75, 3.4, static=static)


# %% [markdown] tags=["solution"]
# ### Faster: gather ahead
#
# If you start a gather one layer early, it is done when that layer begins. The forward pass has room for a second
# weight, because the activations have not piled up yet. Keep the weight of the last layer: the backward pass uses it
# first. That takes {{ahead.time}} ticks and no more memory.


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
# ### The star: calls during updates
#
# In the backward pass activations fill the memory, and there is no room for the next weight during a backward. But an
# update takes time as well. When the sum of a layer is there, start the next gather and then update. (At the last
# layer, memory is too full to gather even then.) When the backward pass comes to layer 1, enough activations have been
# freed. So you can await the sum of layer 1's gradient after the backward of layer 0. That takes {{under.time}} ticks,
# in the same memory.


# %% tags=["solution"]
async def wsdp_under_updates(model: Model) -> Model:
    """As above; in the backward pass, gathers run during updates, and the last two sums during other work."""
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
# ### Where real systems do this
#
# Shard what you only *store*; gather it for the moment you *use* it. That is the idea behind ZeRO (arXiv 1910.02054).
# ZeRO has three steps, which it calls stages. Stage 1 shards the optimizer states, stage 2 also the gradients, and
# stage 3 also the weights. You sharded weights and states and left the gradients whole. That is none of the three: it
# is a stepping stone.
#
# Sharding just the optimizer states already gives the biggest saving. Of the {{TRAINED}} bytes for each parameter,
# {{STATE}} belong to the optimizer. So with stage 1 on N ranks, each rank needs {{WEIGHT + GRADIENT}} + {{STATE}}/N
# bytes for each parameter.
#
# Real systems *prefetch*: they start a gather before its result is needed, so that it runs while the GPU computes.
#
# ### On real GPUs
#
# The same model and the same GPUs as in puzzle 2, in seconds and bytes.
#
# ![What a step takes](picture:priced)
#
# Weights and states are divided by {{priced.ranks}} now, only one gradient at a time is whole, and the model fits. The
# loss takes most of the memory at the peak: for each of {{LLAMA_3_8B.sequence}} tokens it keeps several numbers for
# each of the {{LLAMA_3_8B.vocabulary}} words of the vocabulary.

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
