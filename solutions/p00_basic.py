# %% [markdown]
# # Puzzle 0: Plain training
#
# A training step goes up through the layers, then down again. What fills the memory on the way, and what can be freed
# early?
#
# | call | what goes in | what comes out |
# |---|---|---|
# | `forward(layer, inp, weight)` | input and weight of a layer | the input of the next layer |
# | `loss(out)` | what the last layer gave | its gradient |
# | `backward(layer, inp, grad, weight)` | the same input, the gradient of the output | gradients of weight and input |
# | `update(layer, grad, weight, state)` | the gradient of the whole batch | weight and state, updated |
# | `set_final_weight(layer, weight)` | the updated weight | |
#
# All are methods of `model`.

# %%
from drawing import draw
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
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
    "hints_for": {"slow": 2, "large": 2},
    "ideas": [],
    "difficulty": "easy",
    "minutes": 10,
    "star_hint": "When is memory highest? Which of the tensors in memory would then be a quarter as large if each "
    "micro-batch went forward and backward through all layers before the next one began?",
    "hints": [
        "The tour takes these very steps with a single layer. Here each of them is a loop: forward through the layers "
        "from first to last, backward from last to first, then an update of each.",
        "Go once through the layers with `forward`, storing every activation. Then `loss`. Then go back once through "
        "the layers with `backward`, which needs the input of each layer a second time. Computing anything else "
        "wastes time. At the moment of the peak, is there anything in memory that will never be read again?",
        "What is never read again takes up memory for nothing. The input of a layer is read for the last time by "
        "its `backward`, and the last activation by `loss`. Take each out of its dictionary in that very call: "
        "`model.activations.pop(layer)`. The same goes for `model.grad_activations.pop(layer + 1)`.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train all layers on the whole batch. Beginning and end are given; change them freely.
#
# - Write `model.LAYERS`, not 2: the grader tries other sizes, too.
# - When nothing reads a tensor again, take it out of memory: `model.activations.pop(layer)`.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
def basic(model: Model) -> Model:
    """One step of training on one rank."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation(range(model.BATCHES))

    ### BEGIN SOLUTION
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
    ### END SOLUTION

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
# The number in a block is the layer here. (In the tour it was the micro-batch.)
draw(run(basic, ranks=1, layers=2, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(basic)

# %% [markdown]
# ## When it passes
#
# Memory is measured at the start of every operation. Everything stored at that moment counts, and so does everything
# that the operation reads. What you deleted earlier does not count.
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. It needs the idea of puzzle 1. Come back for it.
#
# ### How large a model fits?
#
# Your GPU has {{CARD}} GB. A model of {{CARD / WEIGHT}} billion parameters would just fit, at {{WEIGHT}} bytes for each
# weight. But training takes {{TRAINED}} bytes for each parameter: {{WEIGHT}} for the weight, {{GRADIENT}} for the
# gradient, {{MASTER}} for a precise copy of the weight, and {{AVERAGE}} + {{AVERAGE}} for the averages that the Adam
# optimizer keeps. That leaves room for {{CARD / TRAINED}} billion parameters, and none for activations. So memory is
# what training runs out of first.
#
# ### Where real systems do this
#
# Everywhere. And real training has a picture like yours: memory climbs during the forward pass, because each layer's
# input has to be kept for the backward pass, and falls during the backward pass. In a transformer that hill is high.
# By the formula of Korthikanti et al. (arXiv 2205.05198), one layer of GPT-3 175B keeps about {{KEPT / BILLION:.1f}}
# GB of activations for a single sequence of {{GPT_SEQUENCE}} tokens, and the model has {{GPT_LAYERS}} layers.
#
# Weights, gradients and optimizer states come on top: the {{TRAINED}} bytes for each parameter (ZeRO, arXiv
# 1910.02054), however small the batch.
#
# On one GPU there are two common ways to flatten this hill. You can throw activations away and compute them again
# during the backward pass (puzzle 11). Or you can have fewer of them at a time, which is the next puzzle.

# %% tags=["figures"]
computing = batches * layers * (cost.forward + cost.backward)
assert run(basic, layers=layers, batches=batches).time == computing + layers * cost.update
