# %% [markdown]
# # Puzzle 0: Plain training
#
# One rank, two layers, one batch. This is ordinary training: forward, loss, backward, update. Everything later is this, spread out.

# %%
from drawing import draw
from lib import Model, grade, run

# %% tags=["spec"]
PUZZLE = {
    "number": 0,
    "name": "basic",
    "title": "Plain training",
    "size": {"ranks": 1, "layers": 2, "batches": 4},
    "other_sizes": "one_rank",
    "target": {"time": 17.0, "memory": 2621440},
    "best_known": {"time": 17.0, "memory": 2621440},
    "layout": "whole",
    "rules": [],
    "minutes": 10,
    "hints": [
        "One forward can take all micro-batches together: get_activation(range(model.BATCHES)).",
        "Walk the layers up with forward, store every activation, call loss on the last one, and walk down with backward. The input of layer l is needed twice: by forward and by backward.",
        "An activation that backward has read is of no more use: take it out with model.activations.pop(layer) as you pass it.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train `LAYERS` layers for one step on all `BATCHES` micro-batches, and set every layer's final weight with `set_final_weight`.
# Target, for 2 layers and 4 micro-batches: time **17** ticks, peak memory **2,621,440** elements.
#
# Time is given: 4 micro-batches through 2 layers, there and back, and 2 updates make 17. So look at the memory. Stuck? `hint("basic")`.

# %%
def basic(model: Model) -> Model:
    """One step of training on one rank."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), model.weights[layer]
        )
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model

# %%
draw(run(basic, ranks=1, layers=2, batches=4))

# %% [markdown]
# Right, fast enough, small enough, and at other sizes too?

# %%
grade(basic)

# %% [markdown]
# ## Where this is in real systems
#
# Activations, not weights, are what fills a GPU first: for a transformer layer they grow with sequence length times batch, and they must all be kept from the
# forward to the backward pass. Weights, gradients and Adam's two moments cost a fixed 16 bytes a parameter in mixed precision (ZeRO, arXiv 1910.02054).
# The two remedies that need no second GPU are recomputing activations, and smaller micro-batches: the next puzzle.
