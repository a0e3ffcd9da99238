# %% [markdown]
# # The laboratory
#
# A puzzle asks for one program at one size. Which program would you choose for *your* machine: eight GPUs, or many
# more? A few large micro-batches, or many small ones? Here you can try them all.

# %%
from collections.abc import Sequence

from drawing import explore
from lib import Model, PuzzleError, RingCost, attempt, progress, sweep

# %% [markdown]
# ## Your programs
#
# `attempt("fsdp")` takes your function out of the notebook of its puzzle beside this one, as you last saved it. A
# puzzle that you have not solved yet is left out. (In Colab, where the other notebooks are not beside this one, paste
# your functions into this cell instead, and put them into the list.)

# %%
programs = []
for name in ("ddp", "wsdp", "fsdp", "zero1", "zero2"):
    try:
        program = attempt(name)
    except PuzzleError as error:
        print(error.problem)
        continue
    if name in progress().solved:
        programs.append(program)
    else:
        print(f"{name} is not solved yet, and left out")


# %% [markdown]
# So that there is something to see in any case, here are two programs that need no puzzle. Both are data parallel,
# and wait for every sum. The first takes the micro-batches of a rank one by one, the second all of them together.
# [Puzzle 12](p12_prefetch.ipynb) has a worked example of what to do instead of waiting.


# %%
async def data_parallel(model: Model) -> Model:
    """Data parallel with any number of micro-batches on each rank, one after the other."""
    own = range(model.rank, model.BATCHES, model.RANKS)
    return await data_parallel_in(model, [[mb] for mb in own])


async def all_together(model: Model) -> Model:
    """The same with all micro-batches of a rank at once."""
    return await data_parallel_in(model, [range(model.rank, model.BATCHES, model.RANKS)])


async def data_parallel_in(model: Model, pieces: Sequence[Sequence[int]]) -> Model:
    """Data parallel, with these pieces of the batch one after the other."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    for piece in pieces:
        model.activations[0] = model.get_activation(piece)
        for layer in range(model.LAYERS):
            inp, weight = model.activations[layer], model.weights[layer]
            model.activations[layer + 1] = model.forward(layer, inp, weight)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]
    for layer in reversed(range(model.LAYERS)):
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


programs += [data_parallel, all_together]

# %% [markdown]
# ## Time against memory
#
# `sweep` runs all programs at all sizes, and draws each as a point: time to the right, memory upwards. Further to the
# left and further down is better. A point is filled if no other program is better in both: choose among the filled
# points, which together are called the *Pareto front*. Each size (`ranks`, `layers`, `batches`) is a value, a list of
# values, or a function of the number of ranks.

# %%
swept = sweep(
    programs,
    ranks=[2, 4, 8],
    layers=[2, 4, 6, 8],
    batches=lambda ranks: [ranks, 2 * ranks, 4 * ranks],
)
swept

# %% [markdown]
# A program that was written for one micro-batch on each rank is wrong if there are more, and its row says so. Rest
# the pointer on a point to see what it is. All figures can be saved for a spreadsheet: `swept.save("sweep.csv")`.
#
# The prices decide, too. With `RingCost` an all-reduce costs twice as much as a gather, and every collective costs
# more the more ranks there are:

# %%
sweep(programs, ranks=[2, 4, 8, 16], layers=6, batches=lambda ranks: ranks, cost=RingCost())

# %% [markdown]
# ## One program, with sliders
#
# `explore` draws a program at a size that you choose with four sliders. Move one and let go of it. When does
# communication take more time than computing? Do more layers change that, or more micro-batches?

# %%
explore(data_parallel)
