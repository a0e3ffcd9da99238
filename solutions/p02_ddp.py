# %% [markdown]
# # Puzzle 2: Distributed data parallel
#
# Four ranks, four micro-batches: the work can be done at the same time. But an update needs the gradient of *all* micro-batches.

# %%
from drawing import draw, draw_group
from lib import Model, grade, run

# %% tags=["spec"]
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
    "minutes": 15,
    "hints": [
        "Every rank trains one micro-batch: its own, number model.rank.",
        "After backward, every rank has the gradient of its own micro-batch only. The update needs the sum of all: await model.allreduce(grad, layer).",
        "Everyone holds all weights, gets the same sum, and does the same update: so all ranks stay equal without ever exchanging weights.",
    ],
}

# %% [markdown]
# ## All-reduce
#
# `await model.allreduce(v, layer)` is a *collective*: all ranks call it, for the same layer, in the same order. Each brings a gradient, and everyone gets the sum.
# It takes 0.3 ticks and begins when the last rank is there. Here three ranks do it; the picture shows what each holds before and after.

# %%
async def share(model: Model) -> Model:
    """Every rank makes the gradient of its own micro-batch; then they all-reduce."""
    weight, _ = model.load_weights(0)
    model.weights[0] = weight
    model.activations[0] = model.get_activation([model.rank])
    grad_out = model.loss(model.forward(0, model.activations[0], weight))
    model.grad_weights["before"], _ = model.backward(0, model.activations[0], grad_out, weight)
    model.grad_weights["after"] = await model.allreduce(model.grad_weights["before"], 0)
    return model


draw_group({f"rank {m.rank}": m.grad_weights for m in run(share, ranks=3, layers=1, batches=3).models})

# %% [markdown]
# ## Your task
#
# Train 4 micro-batches on 4 ranks, one on each (`model.rank` and `model.RANKS` tell who you are). Every rank holds all weights and states, and ends with all of them
# updated. Target, for 2 layers: time **5.6** ticks, peak memory **1,835,008** elements.
#
# The function is a coroutine now: `async def`, and `await` before a collective. Without `run` you would write
#
# ```python
# models = [Model(rank=rank, dist=dist, layers=2, batches=4) for rank in range(4)]
# await asyncio.gather(*[ddp(model) for model in models])
# Model.check(models)
# ```

# %%
async def ddp(model: Model) -> Model:
    """Data parallel: every rank trains its own micro-batch, gradients are summed over all ranks."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        grad, model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), model.weights[layer]
        )
        model.grad_weights[layer] = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model

# %%
draw(run(ddp, ranks=4, layers=2, batches=4))

# %% [markdown]
# Right, fast enough, small enough, and at other sizes too?

# %%
grade(ddp)

# %% [markdown]
# ## Where this is in real systems
#
# This is PyTorch's `DistributedDataParallel`, and Horovod before it. Real ones start the all-reduce of a layer while the backward pass of the layers below goes on. You can,
# too: a call starts when it is made, and `await` may come later. A ring all-reduce over n ranks sends 2(n - 1)/n times the gradient, however many ranks there are.
# What does not shrink is memory: every rank holds 16 bytes a parameter. The next two puzzles are about that.
