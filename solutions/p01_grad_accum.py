# %% [markdown]
# # Puzzle 1: Gradient accumulation
#
# The same step in less memory. Nobody said that the micro-batches have to travel together.

# %%
from drawing import draw
from lib import Model, grade, hint, run, solution

# %% tags=["spec"]
# ruff: noqa: F401 (some are there for learners to call)
PUZZLE = {
    "number": 1,
    "name": "grad_accum",
    "title": "Gradient accumulation",
    "size": {"ranks": 1, "layers": 2, "batches": 4},
    "other_sizes": "one_rank",
    "target": {"time": 17.0, "memory": 1966080},
    "star": {"time": 17.0, "memory": 1966080},
    "frontier": [
        {"time": 17.0, "memory": 1966080, "by": "grad_accum"},
    ],
    "layout": "whole",
    "rules": ["one_micro_batch"],
    "difficulty": "easy",
    "minutes": 15,
    "hints": [
        "Look at the picture of puzzle 0. What is the peak made of, and what of it grows with the number of "
        "micro-batches?",
        "Take one micro-batch all the way up and down, then the next. Only the gradients of the weights have "
        "to survive from one to the next, and of those you need the sum.",
        "`model.grad_weights[layer] = grad` for the first micro-batch, `model.grad_weights[layer] + grad` for "
        "all others. Update after the last. A little over the target? See what is left in "
        "`grad_activations` when the next micro-batch begins.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train the same batch with the same result in the same time, but with less memory: micro-batch by micro-batch. Each
# `forward` and each `backward` works on one.
#
# Target, for 2 layers and 4 micro-batches: **17** ticks, peak memory **1,966,080** elements.
# That is the star as well: here whoever passes has it. (And the same program has the star of puzzle 0.)
#
# Gradients of one layer, for different micro-batches, add up with `+`. It takes no time, and it refuses a
# micro-batch that is in both.


# %%
def grad_accum(model: Model) -> Model:
    """One step of training on one rank, in less memory."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    for mb in range(model.BATCHES):
        model.activations[0] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            inp, weight = model.activations[layer], model.weights[layer]
            model.activations[layer + 1] = model.forward(layer, inp, weight)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(run(grad_accum, ranks=1, layers=2, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too? If you are stuck: hint("grad_accum")
grade(grad_accum)

# %% [markdown]
# ## Where real systems do this
#
# Every training framework has this loop. It is called `gradient_accumulation_steps`, or it is simply several
# calls of `backward()` before one `step()`. Thanks to it, the batch size is a question of how well training
# converges, and no longer of how much fits into memory.
#
# The picture shows what it costs: nothing here, since our ticks count micro-batches only. A real GPU is less
# busy with very small micro-batches, so people take the largest that fits.
#
# Keep the sum in mind. With several ranks there is a choice: share the gradients after each micro-batch, or
# once, after the last. PyTorch's `no_sync()` exists to make that choice. Puzzle 8 shows what is at stake.
