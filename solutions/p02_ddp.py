# %% [markdown]
# # Puzzle 2: Distributed data parallel
#
# Four ranks, four micro-batches: the work can be done at the same time. But an update needs the gradient of
# *all* of them.

# %%
from drawing import beside_target, draw, draw_group
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
    "best_known": {"time": 5.6, "memory": 1572864},
    "layout": "whole",
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
# ## Your task
#
# Train 4 micro-batches on 4 ranks, one on each. Every rank holds all weights and all states from beginning to
# end, and every rank ends with all of them updated. `model.rank` says who you are, `model.RANKS` how many you
# are; there are always as many micro-batches as ranks.
#
# Target, for 4 ranks and 2 layers: **5.6** ticks, peak memory **1,835,008** elements.
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
# A call that communicates starts at once. `await` only says when you want the result, and it may come later.
# So the sum for one layer can travel while the layer below is computed. That takes 5.0 ticks, and all the
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
# This is PyTorch's `DistributedDataParallel`. It goes one step further than the target: a call that
# communicates starts when you make it, and `await` may come later. So the sum for one layer can be on its way
# while the layer below is still computing. Try it: 5.0 ticks are possible, within the memory of the target (the best known above uses less memory, and more time).
#
# DDP does not sum layer by layer, but in *buckets* of about 25 MiB (the first of 1 MiB, so that the sums start early): a
# sum of many small tensors would cost many latencies. And it updates all layers at the end, after all sums.
#
# On real links the price of an all-reduce depends on how much is sent. The usual ring algorithm makes each of
# n ranks send 2(n - 1)/n times the gradient: less than twice its size, however many ranks there are.
#
# So time is in good hands, and memory is not: every rank still keeps everything, 16 bytes for each parameter.
# A model of 7.5 billion parameters needs 120 GB on *each* GPU. The next two puzzles are about that.
