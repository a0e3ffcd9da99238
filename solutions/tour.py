# %% [markdown]
# # A tour of the machine
#
# How do thousands of GPUs train one large model? Here you write the answer, in short Python functions. A simulated
# machine runs them, draws what each GPU does, and proves whether they train the model. It knows what each tensor is,
# but never computes the numbers in it, so you need no GPU and never wait.
#
# Three minutes: run each cell with Shift+Enter, then change it.
#
# ## One GPU, one layer
#
# A *rank* is one GPU. Its memory is five dictionaries, with any keys you like: `weights`, `opt_states` (what the
# optimizer keeps), `activations`, `grad_activations` and `grad_weights`. The batch is cut into *micro-batches*,
# numbered from 0. This is one training step.

# %%
from drawing import draw, play
from lib import Model, run


def step(model: Model) -> Model:
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    model.activations[0] = model.get_activation([0, 1, 2, 3])
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    model.grad_activations[1] = model.loss(model.activations[1])
    model.grad_weights[0], _ = model.backward(
        0, model.activations[0], model.grad_activations[1], model.weights[0]
    )
    model.weights[0], model.opt_states[0] = model.update(
        0, model.grad_weights[0], model.weights[0], model.opt_states[0]
    )
    model.set_final_weight(0, model.weights[0])
    return model


draw(run(step, ranks=1, layers=1, batches=4))

# %% [markdown]
# Time runs to the right, in *ticks*: {{cost.forward}} for each micro-batch that goes forward, {{cost.backward}} for
# each that comes back, {{cost.update}} for the update. The memory is drawn below, in *elements*: the numbers in a
# tensor. Its highest point, the *peak*, is what you pay for. (The *bubble*, at the right end of a rank's row, is the
# part of the time in which this rank waits.)
#
# **Change a line.** Nothing reads `activations[1]` after the loss. So write
# `model.loss(model.activations.pop(1))`, which takes it out of memory, and run the cell again. What has become of the
# peak?
#
# The same run as a film, with the line of code that the rank is at:

# %%
play(run(step, ranks=1, layers=1, batches=4))

# %% [markdown]
# ## Break it
#
# In the step above, take `1` out of `[0, 1, 2, 3]` and run it. The error says where it happened, what was expected,
# and what came. (*View*, *Show Line Numbers* numbers the lines.) Then put it back.
#
# One thing surprises everybody once. **A tensor has to be in a dictionary.** A local variable keeps it only until the
# next call of a `model` operation. Otherwise you could hide memory in variables.
#
# ## Many GPUs
#
# `run` calls your function once for every rank. `model.rank` says which one it is.

# %%
many = run(
    lambda model: print("rank", model.rank, "of", model.RANKS), ranks=3, layers=1, batches=3
)

# %% [markdown]
# That is all you need for [puzzle 0](p00_basic.ipynb). There, `grade(basic)` says whether your function is right, fast
# and small enough, and `hint("basic")` helps.
#
# When you want to know more: docs/machine.md of the project says how memory is counted, and how the
# machine works inside.
