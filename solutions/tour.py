# %% [markdown]
# # A tour of the machine
#
# These puzzles are about one question: how do many GPUs train one large model together? You will write
# the answer as short Python functions. A simulated machine runs them, times them, and tells you whether
# they really train the model.
#
# There are no numbers in the tensors, you need no GPU, and every run is over in a blink. What is left is
# what matters here: which piece of what is where, and when. This notebook walks through the life of one
# update, by hand. There is nothing to solve. Run the cells one by one, then change them and break things.

# %%
from drawing import draw, draw_group
from lib import Model, PuzzleError, WeightGrad, run

# %% [markdown]
# ## A rank, its memory, its clock
#
# A *rank* is one simulated GPU, and a `Model` is what a rank sees of the world. This one trains a model
# of 2 layers. Its batch is cut into 4 *micro-batches*, numbered 0 to 3.
#
# A rank has five dictionaries: `weights`, `opt_states`, `activations`, `grad_activations` and
# `grad_weights`. **They are its memory.** Which keys you use is up to you.
#
# `load_weights(layer)` gives the weight of a layer, and the state that the optimizer keeps beside it (for
# Adam: the averages of the gradient and of its square). It takes no time.

# %%
model = Model(layers=2, batches=4)
for layer in range(model.LAYERS):
    model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

model.status()
draw_group({"weights": model.weights, "opt_states": model.opt_states})

# %% [markdown]
# ## Forward
#
# `get_activation` gives the input of layer 0 for some micro-batches, in no time. We take only three of
# the four. Remember that, it will come back to us.
#
# `forward(layer, inp, weight)` makes the input of the next layer. It takes 1 *tick* for each micro-batch.
# Store every activation: the way back needs them all. In the picture, an activation is filled where it
# has micro-batches.

# %%
model.activations[0] = model.get_activation([0, 2, 3])
for layer in range(model.LAYERS):
    model.activations[layer + 1] = model.forward(
        layer, model.activations[layer], model.weights[layer]
    )

print("tick", model.time)
draw_group({"activations": model.activations})

# %% [markdown]
# ## Loss, and the first thing to forget
#
# `loss` turns the last activation into the first gradient, in no time. By habit it is stored under the key
# of the activation that it belongs to: here 2. (Its own `layer` says which layer's output that is, one less; so the
# gradient of the very first input is shown as one of layer -1.)
#
# Memory is counted in *elements*: a weight has 512 x 512, an activation 512 x 256 for each micro-batch.
# The peak is what counts, and it is measured at the beginning of every operation: all that is stored, and what the
# operation reads. So what is deleted before the next operation begins never counts. Nobody will read the last activation
# again. Look at the memory before and after `del`.

# %%
model.grad_activations[2] = model.loss(model.activations[2])

before = model.memory()
del model.activations[2]
print(f"memory: {before:,} elements before, {model.memory():,} after")
draw_group({"activations": model.activations, "grad_activations": model.grad_activations})

# %% [markdown]
# ## Backward
#
# `backward(layer, inp, grad, weight)` reads *the same input* that `forward` read, and the gradient of what
# `forward` made. It gives two things: the gradient of the weight, and the gradient of the input, on which
# the layer below goes on. Like forward, it takes 1 tick for each micro-batch.
#
# `pop` takes a tensor out of the dictionary as it is used, so that it is forgotten at once.

# %%
for layer in reversed(range(model.LAYERS)):
    inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
    model.grad_weights[layer], model.grad_activations[layer] = model.backward(
        layer, inp, grad, model.weights[layer]
    )

print("tick", model.time)
draw_group({"grad_weights": model.grad_weights, "grad_activations": model.grad_activations})

# %% [markdown]
# ## Update, and a micro-batch that is missing
#
# `update` is the step of the optimizer. It needs the gradient of the *whole* batch, every micro-batch
# exactly once. Micro-batch 1 was never trained. An error says where it happened, what was expected, what
# came, and what to do instead.

# %%
try:
    model.update(0, model.grad_weights[0], model.weights[0], model.opt_states[0])
except PuzzleError as error:
    print(error)

# %% [markdown]
# Gradients of different micro-batches add up with `+`. To go on with the tour, we make up the missing one:
# `fake_grad` exists for demonstrations. (`WeightGrad(0, 2, [1], 4)`, written by hand, is the same thing.) In
# a puzzle a made-up gradient is refused, with one honest exception that puzzle 7 will show you.
#
# `update` takes 0.5 ticks and gives the weight and the state at `step=1`. `set_final_weight` hands in your
# answer, and `Model.check` compares it with training on one device.

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
# Everything that a rank did is in its log, and `draw` shows the log: time from left to right, a color for
# each layer, the memory below. Rest the pointer on a box to read what it is. The peak of the memory is what
# you will try to lower, and the right end is what you will try to reach sooner.

# %%
draw(model)

# %% [markdown]
# ## Nothing hides in a local variable
#
# A real GPU has no memory that is not counted, and neither has this one. A variable of yours may hold a
# tensor **until the next operation**, and that operation may use it. A tensor that is not stored in one of
# the dictionaries by then is gone. (Operations are `forward`, `loss`, `backward`, `update`, and everything
# that communicates.)
#
# So `b = forward(0, a, w)` followed by `forward(1, b, v)` is fine, but then `b` is gone for `backward`.
# Here a second model forgets to store something.

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
# A puzzle asks for a function of one model. `run` calls it once on every rank, and each rank finds out
# from `model.rank` and `model.RANKS` what its part is.


# %%
def hello(model: Model) -> None:
    """What every rank knows of the machine."""
    print(
        f"rank {model.rank} of {model.RANKS}, {model.LAYERS} layers, {model.BATCHES} micro-batches"
    )


machine = run(hello, ranks=3, layers=2, batches=6)

# %% [markdown]
# From puzzle 2 on the ranks talk to each other. Then the function is a *coroutine*: `async def`, and
# `await` in front of every call that talks to others. `run` takes care of the rest.
#
# There is nothing magic about `run`. In plain asyncio the same looks as follows, and gives the same figures:
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
# `await` works in a cell as it stands. If you would rather write `asyncio.run(...)` in a cell, call
# `allow_nested_loops()` (from `lib`) first. That is optional, and no puzzle needs it: it patches asyncio for
# the whole process. So it is never done unasked, and it is refused, with the reason, where the patch would
# break things: nest-asyncio 1.6.0 on Python 3.14 and later, and event loops that are not asyncio's own, such
# as uvloop.
#
# Now to puzzle 0. `grade(basic)` says whether your function is right, `hint("basic")` gives one hint at a time, and
# `progress()` shows all puzzles and your best so far. At a shell, in the project's folder,
# `.venv/bin/python -m lib grade` grades your notebooks in a process of their own: it is the referee where somebody has
# to be.
