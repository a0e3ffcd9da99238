# %% [markdown]
# # Puzzle 1: Gradient accumulation
#
# In puzzle 0 all micro-batches went through the layers at once. So memory had to hold what all of them leave behind.
# Do they have to go together?
#
# ![The schedule of puzzle 0, with its peak at the loss](picture:all_at_once)

# %%
from drawing import draw
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
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
    "ideas": ["one_micro_batch"],
    "difficulty": "easy",
    "minutes": 15,
    "hints_for": {"slow": 2, "large": 2},
    "hints": [
        "Look at your picture of puzzle 0. What is the peak made of? Which part of it grows with the number of "
        "micro-batches?",
        "Take one micro-batch all the way forward and backward, then the next. Only the gradients of the weights "
        "have to stay in memory from one to the next, and all you need of those is their sum. So one update of each "
        "layer, after the last micro-batch, is enough. More updates would only take time.",
        "For each layer keep only the sum of the weight gradients: for the first micro-batch store the `grad` that "
        "`backward` gives in `model.grad_weights[layer]`; for all others store `model.grad_weights[layer] + grad`. "
        "Update after the last. A little over the memory of the target? See what is left in `grad_activations` when "
        "the next micro-batch begins.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train on the same batch as in puzzle 0, in the same time and in less memory. The beginning and the end are given.
#
# - {{ideas}}
# - The gradient of a layer must include each micro-batch exactly once. Gradients of the same layer are added with `+`,
#   which takes no time.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
def grad_accum(model: Model) -> Model:
    """One step of training on one rank, in less memory."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    for mb in range(model.BATCHES):
        model.activations[0] = model.get_activation([mb])
        ### BEGIN SOLUTION
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
    ### END SOLUTION

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(grad_accum, ranks=1, layers=2, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(grad_accum)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. Every program that passes earns it. Under the name
# `basic`, it earns the star of puzzle 0, too.
#
# ### Why it matters
#
# A layer of GPT-3 keeps {{KEPT / BILLION:.2f}} GB of activations for one sequence. Its {{GPT_LAYERS}} layers keep
# {{GPT_LAYERS * KEPT / BILLION:.0f}} GB. And GPT-3 was trained on {{tokens / MILLION:.1f}} million tokens at a time
# (arXiv 2005.14165), which is about {{round(sequences, -1)}} sequences of {{GPT_SEQUENCE}} tokens. All together they
# would take {{GPT_LAYERS * KEPT * sequences / 1e12:.0f}} TB.
#
# ### Where real systems do this
#
# Every training framework has this loop. You turn it on with an option such as `gradient_accumulation_steps`, or you
# call `backward()` several times before one step of the optimizer. So you can choose the batch size that trains best,
# even if the batch does not fit into memory.
#
# In our picture it costs nothing: four micro-batches take four ticks in a layer, together or one by one. On a real GPU
# very small micro-batches are slow, so people pick the largest that fits.
#
# With several GPUs it also matters *when* they share these gradients: after each micro-batch, or once, after the last.
# With PyTorch's `no_sync()` they share once. With three layers and two micro-batches, PyTorch {{TORCH}} makes
# {{synced}} sums with it and {{every_time}} without (`tests/torch_truth/TABLE.md`). Puzzle 8 shows how much that can
# save.

# %% [markdown] tags=["solution"]
# ### The picture of puzzle 0

# %% tags=["solution"]
from drawing import Figure


def all_at_once(static: bool = False) -> Figure:
    """Puzzle 0: the whole batch goes through the layers together."""
    from solutions.p00_basic import basic

    return draw(run(basic, ranks=1, layers=2, batches=4), title="puzzle 0", static=static)


# %% tags=["figures"]
from solutions.p00_basic import basic

together = run(basic, **size)
tokens = published(3.2e6, "arXiv 2005.14165")
sequences = tokens / GPT_SEQUENCE
every_time = recorded("DDP, 2 micro-batches, 3 layers", "all-reduces")
synced = recorded("DDP, 2 micro-batches, 3 layers, no_sync() in the first", "all-reduces")
