# %% [markdown]
# # Puzzle 2: Distributed data parallel
#
# Four ranks, four micro-batches: the work can be done at the same time. But an update needs the gradient of
# *all* of them.

# %%
from drawing import beside_target, compare, draw, draw_group
from lib import Model, grade, hint, run, solution

# %% tags=["spec"]
# ruff: noqa: F401 (some are there for learners to call)
PUZZLE = {
    "number": 2,
    "name": "ddp",
    "title": "Distributed data parallel",
    "size": {"ranks": 4, "layers": 2, "batches": 4},
    "other_sizes": "data_parallel",
    "target": {"time": 5.6, "memory": 1835008},
    "star": {"time": 5.0, "memory": 1835008},
    "frontier": [
        {"time": 5.0, "memory": 1835008, "by": "ddp_overlap"},
        {"time": 5.6, "memory": 1572864, "by": "ddp"},
    ],
    "layout": "whole",
    "begins_with": "basic",
    "hints_for": {"large": 3},
    "rules": [],
    "difficulty": "easy",
    "minutes": 15,
    "hints": [
        "There are as many micro-batches as ranks. Which one is yours? Everything up to the update is "
        "puzzle 0, for that one.",
        "After `backward` each rank knows the gradient of its own micro-batch. Make it the gradient of all: "
        "`grad = await model.allreduce(grad, layer)`. Then everyone does the same update, and all ranks stay "
        "equal without ever exchanging a weight.",
        "In the loop that walks down: `backward`, `await model.allreduce(...)`, `update`, "
        "`set_final_weight`, layer by layer. So only one gradient is in memory at a time.",
    ],
}

# %% [markdown]
# ## A new tool: all-reduce
#
# `await model.allreduce(v, layer)` is a *collective*: all ranks call it, for the same layer. Each brings a
# gradient, and **everyone gets the sum**. It begins when the last rank has arrived, and takes 0.3 ticks.
#
# ![before and after an all-reduce](picture:allreduce)
#
# Here three ranks do it for real. The picture shows, for each of them, what it has before and after: look at
# the micro-batches (`mb`) below each gradient.


# %%
async def sum_of_all(model: Model) -> Model:
    """Each rank makes the gradient of its own micro-batch, then all get the sum."""
    model.weights[0], _ = model.load_weights(0)
    model.activations[0] = model.get_activation([model.rank])
    model.grad_activations[1] = model.loss(
        model.forward(0, model.activations[0], model.weights[0])
    )
    model.grad_weights["before"], _ = model.backward(
        0, model.activations[0], model.grad_activations[1], model.weights[0]
    )
    model.grad_weights["after"] = await model.allreduce(model.grad_weights["before"], 0)
    return model


draw_group(
    {
        f"rank {m.rank}": m.grad_weights
        for m in run(sum_of_all, ranks=3, layers=1, batches=3).models
    }
)

# %% [markdown]
# ## Start now, take it later
#
# A call that communicates starts when you make it. `await` only says when you want its result, and that may be later:
#
# ```python
# call = model.allreduce(grad, layer)  # it is on its way
# ...  # anything that does not need the sum
# grad = await call  # here it is; if it is not there yet, the rank waits
# ```
#
# What lies in between costs no extra time, as long as there is enough of it. Below, each rank sums a gradient and runs
# a layer that has nothing to do with it, first one after the other, then at the same time. Look at the all-reduces: in
# the second picture they lie below the forwards, in the lane of the network. What it costs is memory. Until it is fetched,
# both what you bring and what will come are there, as *in flight*.


# %%
async def a_gradient(model: Model) -> None:
    """Make a gradient of layer 0 and store it, so that there is something to sum."""
    model.weights[0], _ = model.load_weights(0)
    model.activations[0] = model.get_activation([model.rank])
    grad = model.loss(model.forward(0, model.activations[0], model.weights[0]))
    model.grad_weights[0], _ = model.backward(0, model.activations[0], grad, model.weights[0])


async def wait_at_once(model: Model) -> Model:
    """Sum, then compute."""
    await a_gradient(model)
    model.grad_weights["sum"] = await model.allreduce(model.grad_weights.pop(0), 0)
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    return model


async def wait_later(model: Model) -> Model:
    """Start the sum, compute, then take it."""
    await a_gradient(model)
    call = model.allreduce(model.grad_weights.pop(0), 0)
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    model.grad_weights["sum"] = await call
    return model


compare(*[run(fn, ranks=3, layers=1, batches=3) for fn in (wait_at_once, wait_later)])

# %% [markdown]
# ## Your task
#
# Train 4 micro-batches on 4 ranks, one on each. Every rank holds all weights and all states from beginning to
# end, and every rank ends with all of them updated. `model.rank` says who you are, `model.RANKS` how many you
# are; there are always as many micro-batches as ranks.
#
# Target, for 4 ranks and 2 layers: **5.6** ticks, peak memory **1,835,008** elements.
# The star: **5.0** ticks, **1,835,008** elements.
#
# The function is a coroutine now: `async def`, and `await` in front of a collective. `run` starts one for each
# rank. Without `run` you would write:
#
# ```python
# dist = Dist(ranks=4)  # from lib import Dist
# models = [Model(rank=rank, dist=dist, layers=2, batches=4) for rank in range(4)]
# await asyncio.gather(*[ddp(model) for model in models])
# Model.check(models)
# ```


# %%
async def ddp(model: Model) -> Model:
    """One step of training, the micro-batches spread over the ranks."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
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
        grad = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(run(ddp, ranks=4, layers=2, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too? If you are stuck: hint("ddp")
grade(ddp)

# %% [markdown] tags=["solution"]
# ## Faster: sum while computing
#
# The sum for one layer can travel while the layer below is computed. That takes 5.0 ticks, and all the
# memory of the target: 1,835,008 elements, because gradients are now under way while others are made.


# %% tags=["solution"]
async def ddp_overlap(model: Model) -> Model:
    """As above, but no rank waits for a sum before it has to."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        sums[layer] = model.allreduce(grad, layer)
    del model.grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, await sums[layer], model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(ddp_overlap, ranks=4, layers=2, batches=4))

# %% [markdown]
# ## Where real systems do this
#
# This is PyTorch's `DistributedDataParallel`. It goes one step further than the target, to the star: while a layer is
# summed, the layer below is computed. That needs more memory than to wait for each sum, and less time. (It can be done in
# 1,572,864 elements, or in 5.0 ticks, and not in both: time and memory are a trade.)
#
# DDP does not sum layer by layer, but in *buckets* of about 25 MiB (the first of 1 MiB, so that the sums start early): a
# sum of many small tensors would cost many latencies. And it updates all layers at the end, after all sums.
#
# On real links the price of an all-reduce depends on how much is sent. The usual ring algorithm makes each of
# n ranks send 2(n - 1)/n times the gradient: less than twice its size, however many ranks there are.
#
# So time is in good hands, and memory is not: every rank still keeps everything, 16 bytes for each parameter.
# A model of 7.5 billion parameters needs 120 GB on *each* GPU. The next two puzzles are about that.
