# %% [markdown]
# # A tour of the machine
#
# How do thousands of GPUs train one large model together? In these puzzles you write the answer as short Python
# functions. A simulated machine runs them, times them, and tells you whether they really train the model.
#
# The tensors hold no numbers, you need no GPU, and every run finishes in the blink of an eye. What remains is exactly
# what matters here: which piece of data is where, and when.
#
# In this notebook we follow a single training step, by hand. There is nothing to solve. Run the cells one by one
# (Shift+Enter), then change them and break things.

# %%
from drawing import draw, draw_group, play
from lib import Model, PuzzleError, WeightGrad, run

# %% [markdown]
# ## A rank, its memory, its clock
#
# A *rank* is one simulated GPU, and a `Model` is everything that a rank can see and do. The one below trains a model
# of 2 layers. Its batch is cut into four *micro-batches*, with the numbers 0 to 3.
#
# A rank has five dictionaries: `weights`, `opt_states`, `activations`, `grad_activations` and `grad_weights`. **They
# are its memory.** You may use any keys you like.
#
# `load_weights(layer)` returns a layer's weight and its optimizer state (for Adam: running averages of the gradient
# and of its square). It takes no time. In what is printed, `step=0` means that a tensor has not been updated yet, and
# `shards={0}, total=1` that it is whole; from puzzle 3 on, weights are cut into shards.

# %%
model = Model(layers=2, batches=4)
for layer in range(model.LAYERS):
    model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

model.status()
draw_group({"weights": model.weights, "opt_states": model.opt_states})

# %% [markdown]
# ## Forward
#
# The *forward pass* takes the data through the layers, from first to last. `get_activation` returns the input of
# layer 0 for the micro-batches that you list. That takes no time. Here we take only three of the four. Remember that;
# it will come back to bite us.
#
# `forward(layer, inp, weight)` computes the input of the next layer. It takes {{cost.forward}} *tick* for each
# micro-batch: the tick is our unit of time. Keep the input of every layer, because the backward pass will need it. In
# the picture, an activation is filled in for the micro-batches that it has.

# %%
model.activations[0] = model.get_activation([0, 2, 3])
for layer in range(model.LAYERS):
    model.activations[layer + 1] = model.forward(
        layer, model.activations[layer], model.weights[layer]
    )

print("tick", model.time)
draw_group({"activations": model.activations})

# %% [markdown]
# ## Loss, and the first tensor to delete
#
# `loss` turns the last activation into the first gradient, in no time. We store that gradient under the same key as
# its activation: here, 2. (The pictures label gradients differently. An activation is labeled with the layer that it
# goes into, so the last one is labeled 2. A gradient is labeled with the layer whose output it belongs to, so this
# one, stored under key 2, is labeled 1. The gradient of the very first input, which no layer made, is labeled -1.)
#
# Memory is counted in *elements*, and an element is one number in a tensor. A weight has {{HIDDEN}} x {{HIDDEN}}
# elements, an optimizer state just as many, and an activation has {{HIDDEN}} x {{LENGTH}} for each micro-batch. (In
# reality the optimizer keeps more than that: {{STATE}} of the {{TRAINED}} bytes for each parameter, the precise copy
# of the weight among them.)
#
# The memory that counts is the *peak*, the most that a rank holds at any time. It is measured at the start of every
# operation: everything stored, plus whatever the operation reads that is not stored any more. Anything you delete
# before the next operation starts does not count. Nothing will read the last activation again, so we delete it.
# Compare the memory before and after.

# %%
model.grad_activations[2] = model.loss(model.activations[2])

before = model.memory()
del model.activations[2]
print(f"memory: {before:,} elements before, {model.memory():,} after")
draw_group({"activations": model.activations, "grad_activations": model.grad_activations})

# %% [markdown]
# ## Backward
#
# The *backward pass* goes through the layers from last to first. `backward(layer, inp, grad, weight)` reads *the same
# input* that `forward` read, and the gradient of what `forward` returned. It returns two gradients: the gradient of
# the weight, and the gradient of the input, which `backward` of layer `layer - 1` needs next. Like `forward`, it
# takes {{cost.backward}} tick for each micro-batch.
#
# `pop` takes a tensor out of its dictionary as you pass it on, so it takes memory for this one operation and no
# longer.

# %%
for layer in reversed(range(model.LAYERS)):
    inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
    model.grad_weights[layer], model.grad_activations[layer] = model.backward(
        layer, inp, grad, model.weights[layer]
    )

print("tick", model.time)
draw_group({"grad_weights": model.grad_weights, "grad_activations": model.grad_activations})

# %% [markdown]
# ## Update, and a missing micro-batch
#
# `update` is the optimizer's step. It needs the gradient of the *whole* batch, with every micro-batch in it exactly
# once. We never trained on micro-batch 1. The error says where this happened, what `update` expected, what it got,
# and what to do instead.

# %%
try:
    model.update(0, model.grad_weights[0], model.weights[0], model.opt_states[0])
except PuzzleError as error:
    print(error)

# %% [markdown]
# Gradients of different micro-batches are added with `+`. To go on with the tour, we make up the missing one with
# `fake_grad`, which exists for demonstrations. (`WeightGrad(0, 2, [1], 4)`, written by hand, is the same thing: layer
# 0 of two, micro-batch 1 of four.) Puzzles reject made-up gradients like this one.
#
# `update` takes {{cost.update}} ticks and returns the updated weight and state, marked `step=1`. `set_final_weight`
# hands in your answer, and `Model.check` compares it with training on one device.

# %%
print(model.fake_grad(0, [1]) == WeightGrad(0, 2, [1], 4))

for layer in range(model.LAYERS):
    grad = model.grad_weights.pop(layer) + model.fake_grad(layer, [1])
    model.weights[layer], model.opt_states[layer] = model.update(
        layer, grad, model.weights[layer], model.opt_states[layer]
    )
    model.set_final_weight(layer, model.weights[layer])

Model.check([model])
draw_group({"weights": model.weights, "opt_states": model.opt_states})

# %% [markdown]
# ## The picture
#
# Everything a rank did is in its log, and `draw` shows the log: time runs from left to right, each layer has a color,
# and the memory is drawn below. (Pipelines have other colors, which the legend explains.) Point at a box to read what
# it is. In the puzzles you try to lower the memory peak and to finish earlier, so that the picture ends further to
# the left.

# %%
draw(model)

# %% [markdown]
# `play` shows the same log step by step, with the line of code that the rank is at. Press play, or use the arrow
# keys.

# %%
play(model)

# %% [markdown]
# ## Nothing hides in a local variable
#
# On a real GPU every tensor takes memory, whatever variable it is in. Here, too. A local variable may hold a tensor
# **until the next operation**, which may still use it. After that the tensor is gone, unless you stored it in one of
# the dictionaries before. (Operations are `forward`, `loss`, `backward`, `update`, and everything that communicates.)
#
# So `b = forward(0, a, w)` followed by `forward(1, b, v)` is fine. But after that `b` is gone, and `backward` can no
# longer use it. Here a second model forgets to store something.

# %%
other = Model(layers=2, batches=1)
for layer in range(other.LAYERS):
    other.weights[layer], other.opt_states[layer] = other.load_weights(layer)

first = other.forward(0, other.get_activation([0]), other.weights[0])
second = other.forward(
    1, first, other.weights[1]
)  # reads `first`: fine, but `first` is not stored
try:
    other.backward(1, first, other.loss(second), other.weights[1])
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## Many ranks
#
# In a puzzle you write a function that takes one `Model`, that is, one rank. `run` calls it once on every rank, and
# `model.rank` and `model.RANKS` tell each rank which part of the work is its own.


# %%
def hello(model: Model) -> None:
    """What every rank knows about the machine."""
    print(
        f"rank {model.rank} of {model.RANKS}, {model.LAYERS} layers, {model.BATCHES} micro-batches"
    )


machine = run(hello, ranks=3, layers=2, batches=6)

# %% [markdown]
# From puzzle 2 on, the ranks talk to each other. Your function is then a *coroutine*: you write `async def`, and you
# `await` the result of every call that talks to others. `run` takes care of the rest.
#
# There is no magic in `run`. Here is what `run(ddp, ranks=4, layers=2, batches=4)` does, in plain asyncio, with the
# same ticks and memory (`ddp` is the function that you will write in puzzle 2):
#
# ```python
# import asyncio
# from lib import Dist
#
# dist = Dist(ranks=4)
# models = [Model(rank=rank, dist=dist, layers=2, batches=4) for rank in range(4)]
# await asyncio.gather(*[ddp(model) for model in models])
# Model.check(models)
# ```
#
# Now to puzzle 0. `grade(basic)` says whether your function is right, `hint("basic")` gives one hint at a time, and
# `progress()` shows all puzzles with your best results so far. If a result has to count, in a class for example, type
# `llm-training-puzzles grade` in a terminal of JupyterLab. It grades your notebooks outside of them, every run in a
# process of its own.

# %% tags=["figures"]
from lib import HIDDEN, LENGTH
