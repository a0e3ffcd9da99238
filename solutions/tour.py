# %% [markdown]
# # A tour of the machine
#
# These puzzles are about one question: how do many GPUs train one large model together? You will write the answer as short
# Python functions, and a simulated machine will run them, time them, and tell you whether they train the model correctly.
#
# There are no numbers in the tensors, no GPU is needed, and nothing takes longer than a blink. What is left is what matters: which
# piece of what is where, and when. This notebook walks through the life of a single update, by hand.

# %%
from drawing import draw, draw_group
from lib import Dist, Model, PuzzleError, WeightGrad, allow_nested_loops

# %% [markdown]
# ## A rank, its memory, its clock
#
# A `Model` is one rank (one GPU). Ours trains 2 layers on a batch of 4 *micro-batches*, numbered 0 to 3. A rank has five dictionaries:
# `weights`, `opt_states`, `activations`, `grad_activations`, `grad_weights`. **They are its memory.** Keys are yours to choose.
#
# `load_weights` gives a layer's weight and the state that its optimizer keeps; `get_activation` gives the input of layer 0. Both take no time.

# %%
model = Model(layers=2, batches=4)
for layer in range(model.LAYERS):
    model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
model.activations[0] = model.get_activation([0, 2, 3])
model.status()
draw_group({"weights": model.weights, "opt_states": model.opt_states, "activations": model.activations})

# %% [markdown]
# ## Forward, loss, backward
#
# `forward(layer, inp, weight)` takes 1 tick for each micro-batch and makes the input of the next layer. `loss` turns the last activation into the
# first gradient, in no time. `backward` needs the *same input* that forward read, and makes two gradients: of the weight, and of the input.
#
# Memory is counted in elements: a weight has 512 x 512, an activation 512 x 256 for each micro-batch. Watch it before and after `del`.

# %%
for layer in range(model.LAYERS):
    model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
model.grad_activations[2] = model.loss(model.activations[2])
before = model.memory()
del model.activations[2]  # the loss has read it, nobody will again
print("memory", before, "->", model.memory(), "at tick", model.time)
for layer in (1, 0):
    model.grad_weights[layer], model.grad_activations[layer] = model.backward(
        layer, model.activations[layer], model.grad_activations[layer + 1], model.weights[layer]
    )
draw_group({"activations": model.activations, "grad_weights": model.grad_weights})

# %% [markdown]
# ## Nothing hides in a local variable
#
# A real GPU has no free memory, and neither has this one. What an operation has made lives in your variable **until the next operation**:
# by then it must be stored in a dictionary, or be handed to that operation. Otherwise it is gone.

# %%
lost = model.forward(0, model.activations[0], model.weights[0])
model.forward(0, model.activations[0], model.weights[0])  # `lost` was not stored when this was issued
try:
    model.forward(1, lost, model.weights[1])
except PuzzleError as error:
    print(error)

# %% [markdown]
# ## Every micro-batch, exactly once
#
# An optimizer step needs the gradient of the whole batch. We have not trained micro-batch 1, and the machine notices.

# %%
try:
    model.update(0, model.grad_weights[0], model.weights[0], model.opt_states[0])
except PuzzleError as error:
    print(error)

# %% [markdown]
# Gradients of different micro-batches add up with `+`. For a demonstration, `fake_grad` makes up the missing one (a tensor made by hand, such as
# `WeightGrad(0, 2, [1], 4)`, would do as well). In a puzzle, made-up gradients are refused.

# %%
print(WeightGrad(0, 2, [1], 4), "is as good as", model.fake_grad(0, [1]))
for layer in range(model.LAYERS):
    model.grad_weights[layer] = model.grad_weights[layer] + model.fake_grad(layer, [1])
    model.weights[layer], model.opt_states[layer] = model.update(
        layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
    )
    model.set_final_weight(layer, model.weights[layer])
Model.check([model])

# %% [markdown]
# ## The picture
#
# Everything a rank did is in its log, and `draw` shows it: time from left to right, colors by layer, below it the memory. Rest the pointer on a box
# to read what it is.

# %%
draw(model)

# %% [markdown]
# ## Many ranks
#
# In a puzzle you write a function of one model, and `run` calls it once for every rank. Ranks that communicate are *coroutines*:
# `async def`, and `await` in front of every call that talks to others. Calls that talk start at once; `await` waits for the result.
# `await` works in a notebook's cell as it is. If you insist on `asyncio.run` in a cell, call `allow_nested_loops()` first; it patches asyncio, so it is never
# done unasked, and it is refused where the patch breaks things (Python 3.14 with nest-asyncio 1.6.0, uvloop).
#
# Without `run`, in plain asyncio, the same looks like this:
#
# ```python
# dist = Dist(ranks=4)
# models = [Model(rank=rank, dist=dist, layers=2, batches=4) for rank in range(4)]
# await asyncio.gather(*[ddp(model) for model in models])
# Model.check(models)
# ```

# %%
print(Dist(ranks=4), allow_nested_loops.__doc__.splitlines()[0], sep="\n")
