# %% [markdown]
# # Puzzle 1: Gradient accumulation
#
# The same step, in less memory. The batch stays the same; you choose how much of it is in flight at once.

# %%
from drawing import draw
from lib import Model, grade, run

# %% tags=["spec"]
PUZZLE = {
    "number": 1,
    "name": "grad_accum",
    "title": "Gradient accumulation",
    "size": {"ranks": 1, "layers": 2, "batches": 4},
    "other_sizes": "one_rank",
    "target": {"time": 17.0, "memory": 1966080},
    "best_known": {"time": 17.0, "memory": 1966080},
    "layout": "whole",
    "rules": [],
    "minutes": 15,
    "hints": [
        "Must all micro-batches be in memory at the same time?",
        "Take one micro-batch after the other through forward, loss and backward; only the weight gradients have to survive from one to the next.",
        "The first micro-batch stores its gradient; every other adds to it: model.grad_weights[l] = model.grad_weights.pop(l) + grad. Update after the last.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train the same batch with the same result, in the same time, and less memory. Target, for 2 layers and 4 micro-batches: time **17** ticks,
# peak memory **1,966,080** elements. Hints: `hint("grad_accum")`.

# %%
def grad_accum(model: Model) -> Model:
    """One step of training on one rank, a micro-batch at a time."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    for batch in range(model.BATCHES):
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            grad, model.grad_activations[layer] = model.backward(
                layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), model.weights[layer]
            )
            model.grad_weights[layer] = grad if batch == 0 else model.grad_weights[layer] + grad
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

# %% [markdown]
# Right, fast enough, small enough, and at other sizes too?

# %%
grade(grad_accum)

# %% [markdown]
# ## Where this is in real systems
#
# Every training framework has this loop (`gradient_accumulation_steps`, or several `backward()` calls before one `step()`). It makes the batch size
# a matter of optimization alone, not of memory. In a data-parallel program the gradients should be communicated only after the last micro-batch; PyTorch's
# `no_sync()` exists for that, and puzzle 8 shows what it costs to forget it.
