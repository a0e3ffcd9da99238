# %% [markdown]
# # Puzzle 0: Plain training
#
# One rank, two layers, one batch. This is ordinary training: forward, loss, backward, update. All that
# follows is this, spread out.

# %%
from drawing import draw
from lib import Model, grade, hint, run, solution

# %% tags=["spec"]
# ruff: noqa: F401 (some are there for learners to call)
PUZZLE = {
    "number": 0,
    "name": "basic",
    "title": "Plain training",
    "size": {"ranks": 1, "layers": 2, "batches": 4},
    "other_sizes": "one_rank",
    "target": {"time": 17.0, "memory": 2621440},
    "star": {"time": 17.0, "memory": 1966080},
    "frontier": [
        {"time": 17.0, "memory": 1966080, "by": "grad_accum"},
    ],
    "layout": "whole",
    "hints_for": {"large": 2},
    "rules": [],
    "difficulty": "easy",
    "minutes": 10,
    "hints": [
        "All micro-batches can go through the layers together, as one activation: "
        "`model.get_activation(range(model.BATCHES))`.",
        "Walk up the layers with `forward` and store every activation. Then `loss`. Then walk down with "
        "`backward`, which needs the input of each layer a second time. Is there anything in memory, at the "
        "moment of the peak, that nobody will read again?",
        "An activation has done its service once it was used on the way back, and the last one once "
        "`loss` has read it. Take it out as you pass it: `model.activations.pop(layer)`. The same goes for "
        "`model.grad_activations.pop(layer + 1)`.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train all `LAYERS` layers for one step on all `BATCHES` micro-batches. Hand in the updated weights with
# `set_final_weight`, and leave the updated optimizer states in `opt_states`.
#
# Target, for 2 layers and 4 micro-batches: **17** ticks, peak memory **2,621,440** elements.
# The star: **17** ticks, **1,966,080** elements. It takes the idea of puzzle 1, so you may come back for it.
#
# - `model.get_activation(range(model.BATCHES))` is the input of all micro-batches at once.
# - The time takes care of itself: 4 micro-batches through 2 layers, there and back, and 2 updates.
# - The memory does not. It is measured at the beginning of every operation: all that is stored, and what the
#   operation reads.
# - Write `model.LAYERS` and `model.BATCHES`, not 2 and 4. The grader tries other sizes as well.


# %%
def basic(model: Model) -> Model:
    """One step of training on one rank."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad, model.weights[layer]
        )

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(run(basic, ranks=1, layers=2, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too? If you are stuck: hint("basic")
grade(basic)

# %% [markdown]
# ## Where real systems do this
#
# Everywhere. And the picture is the real one: memory climbs on the way up, because each layer's input has to
# wait for the way back, and falls on the way down. In a transformer that hill is high. By the formula of
# Korthikanti et al. (arXiv 2205.05198), one layer of GPT-3 175B keeps about 2.9 GB of activations for a single
# sequence of 2,048 tokens, and it has 96 layers.
#
# Weights, gradients and optimizer states come on top. With Adam in mixed precision they take 16 bytes a
# parameter (ZeRO, arXiv 1910.02054), whatever the batch.
#
# On one GPU there are two remedies for activations. One is to throw them away and compute them again on the
# way back. The other is to have fewer of them at a time: the next puzzle.
