# %% [markdown]
# # Puzzle 2: Distributed data parallel
#
# Four GPUs can train on four micro-batches at once. But an update needs the gradient of *all* of them. How does every
# rank get it?
#
# ![before and after an all-reduce](picture:allreduce)
#
# An **all-reduce** is a *collective*: all ranks call it together, and each gets the sum of their gradients.
# Nothing is divided: a gradient here is a sum over micro-batches, while PyTorch takes the average. It takes
# {{cost.collective}} ticks. `await` waits for the result, in an `async def`:
#
# ```python
# # before: of this rank's micro-batch only
# grad = await model.allreduce(grad, layer)
# # after: the sum over all
# ```

# %%
from drawing import beside_target, compare, draw, play
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 2,
    "name": "ddp",
    "title": "Distributed data parallel",
    "size": {"ranks": 4, "layers": 2, "batches": 4},
    "other_sizes": "data_parallel",
    "target": {"time": 5.6, "memory": 1835008},
    "star": {"time": 5.0, "memory": 1835008},
    "frontier": [
        {"time": 5.0, "memory": 1835008, "by": "ddp_overlap"},
        {"time": 5.6, "memory": 1572864, "by": "ddp"},
    ],
    "layout": "whole",
    "begins_with": "basic",
    "hints_for": {"slow": 2, "large": 2},
    "ideas": ["as_many_each", "weights_stay"],
    "difficulty": "easy",
    "minutes": 15,
    "star_hint": "Every rank waits for both all-reduces. While the sum of a layer's gradients is on its way, what is "
    "left to compute that does not need this sum?",
    "hints": [
        "Up to the update each rank does what you did in puzzle 0, for a single micro-batch. Which number "
        "tells a rank which micro-batch is its own?",
        "After `backward` each rank has the gradient of its own micro-batch only. The new tool turns it into the "
        "gradient of the whole batch: one call for each layer, since more would only take time. Then every rank "
        "makes the same update, and all ranks stay equal without ever exchanging a weight. How few of the gradients "
        "have to be in memory at a time?",
        "Let each rank compute only its own micro-batch, and sum each layer once. In the loop of the backward pass, "
        "layer by layer: `backward`, `grad = await model.allreduce(grad, layer)`, `update`. That way only one "
        "gradient is in memory at a time.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step on `model.RANKS` ranks; yours is `model.rank`. Beginning and end are given.
#
# - {{ideas}}
# - Other sizes, too, have as many micro-batches as ranks.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def ddp(model: Model) -> Model:
    """One step of training, the micro-batches spread over the ranks."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation([model.rank])

    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        grad = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
    ### END SOLUTION

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(ddp, ranks=4, layers=2, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(ddp)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. Most stars of this course need the idea of the next
# section: the network can work while the GPU computes.
#
# ### What each GPU holds
#
# Here is a program that passes, at the moment when memory is highest. All four GPUs hold the same weights and the same
# optimizer states. Only the micro-batches differ, and so do the gradients until they are summed.
#
# ![Each of four GPUs holds all weights and all optimizer states, and the activations of its own micro-batch](picture:four_copies)
#
# ### Optional: start now, fetch later
#
# A call such as `model.allreduce(grad, layer)` is on its way as soon as you make it. `await` only says when you want
# the result, and that may be later:
#
# ```python
# call = model.allreduce(grad, layer)  # it is on its way
# ...  # anything that does not need the sum
# grad = await call  # here it is; if it is not there yet, the rank waits
# ```
#
# Two programs do the same work. The first waits for a sum, and then runs a forward that does not need it. The second
# starts the sum, runs the forward, and fetches the sum after it.


# %%
async def a_gradient(model: Model) -> None:
    """Make a gradient of layer 0 and store it, so that there is something to sum."""
    model.weights[0], _ = model.load_weights(0)
    model.activations[0] = model.get_activation([model.rank])
    grad = model.loss(model.forward(0, model.activations[0], model.weights[0]))
    model.grad_weights[0], _ = model.backward(0, model.activations[0], grad, model.weights[0])


async def wait_at_once(model: Model) -> Model:
    """Sum, then compute."""
    await a_gradient(model)
    model.grad_weights["sum"] = await model.allreduce(model.grad_weights.pop(0), 0)
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    return model


async def wait_later(model: Model) -> Model:
    """Start the sum, compute, then fetch it."""
    await a_gradient(model)
    call = model.allreduce(model.grad_weights.pop(0), 0)
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    model.grad_weights["sum"] = await call
    return model


compare(*[run(fn, ranks=3, layers=1, batches=3) for fn in (wait_at_once, wait_later)])

# %% [markdown]
# In the second picture the all-reduces are thin bars below the forwards. They cost no time, because there is enough
# work in between. They cost memory: {{later.memory}} elements instead of {{at_once.memory}}. Until you fetch the sum,
# memory holds the gradient that you sent and the sum to come. (`draw` shows this memory in gray, as *in flight*.
# Communication that runs while the rank computes is called *hidden*.)
#
# To watch your own run step by step, with the line that each rank is at:

# %%
play(run(ddp, ranks=4, layers=2, batches=4))

# %% [markdown]
# ### Why it matters
#
# Suppose one GPU trains a model with {{MODEL / BILLION}} billion parameters. A step on {{tokens / MILLION:.0f}}
# million tokens takes {{OPERATIONS}} operations for each parameter and token, which makes {{work / 1e17:.1f}} x 10¹⁷.
# At about {{PER_SECOND / 1e14:.0f}} x 10¹⁴ operations a second, the GPU needs {{step / 60:.1f}} minutes for it. Half a
# million such steps, enough for {{steps * tokens / 1e12:.0f}} trillion tokens, take
# {{round(steps * step / YEAR):word}} years. Split over {{many}} GPUs, they take {{steps * step / many / DAY:.1f}} days.

# %% [markdown] tags=["solution"]
# ### The picture of what each GPU holds


# %% tags=["solution"]
from drawing import Figure, holds


def four_copies(static: bool = False) -> Figure:
    """What each GPU holds when memory is highest."""
    return holds(run(ddp, ranks=4, layers=2, batches=4), static=static)


# %% [markdown] tags=["solution"]
# ### Faster: sum while computing
#
# While the sum for one layer is on its way, the backward of the layer below can run. That takes {{overlap.time}} ticks
# and {{overlap.memory}} elements, because some gradients are in flight while others are being made. No program is
# faster: the forwards, backwards and updates of a rank alone take {{bounds.time}} ticks.


# %% tags=["solution"]
async def ddp_overlap(model: Model) -> Model:
    """As above, but no rank waits for a sum before it has to."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        sums[layer] = model.allreduce(grad, layer)
    del model.grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, await sums[layer], model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(ddp_overlap, ranks=4, layers=2, batches=4))

# %% [markdown] tags=["solution"]
# ### For the repairs R2, R3 and R9
#
# In these three [programs to repair](repairs.ipynb) a rank has several micro-batches, one after the other. The sums can
# begin in the last backward pass, but that takes memory. Or each sum can run during the update of the layer above.


# %% tags=["solution"]
from functools import partial


async def sums_behind(model: Model, early: bool) -> Model:
    """Data parallel with several micro-batches for each rank. Micro-batch 0 goes to the last rank. ``early``: a
    gradient is summed as soon as it includes the rank's last micro-batch."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    mine, sums = range(model.RANKS - 1 - model.rank, model.BATCHES, model.RANKS), {}

    def begin(layer: int) -> None:
        sums[layer] = model.allreduce(model.grad_weights.pop(layer), layer)

    for batch in mine:
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
            if early and batch == mine[-1]:
                begin(layer)
        del model.grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        for one in (layer, layer - 1):
            if one in model.grad_weights:
                begin(one)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, await sums.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


sums_in_the_last_backward = partial(sums_behind, early=True)
sums_under_updates = partial(sums_behind, early=False)

# %% [markdown] tags=["solution"]
# ### As PyTorch does it
#
# PyTorch's DDP starts its sums in the same order, but its optimizer begins only when *all* of them have arrived. With
# one loop more, the program does the same: {{pytorch.time}} ticks and {{pytorch.memory}} elements. Both programs above
# update earlier than PyTorch would.


# %% tags=["solution"]
async def ddp_as_pytorch(model: Model) -> Model:
    """As above, but no update begins before the last sum is there."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        sums[layer] = model.allreduce(grad, layer)
    del model.grad_activations[0]

    for layer, call in sums.items():
        model.grad_weights[layer] = await call
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(ddp_as_pytorch, ranks=4, layers=2, batches=4))

# %% [markdown]
# ### Why not the obvious way?
#
# There is a more obvious way to share a batch: PyTorch's `DataParallel`. For years, people tried that one first. One
# process drives all GPUs, and the model lives on the first of them. In each step, rank 0
#
# - sends its weights to all the others, and one micro-batch to each,
# - collects their outputs, computes the losses, and sends each rank the gradient of its output,
# - sums the weight gradients that they send back, and updates its model. The copies on the others are thrown away.
#
# Here it is, message by message, beside your `ddp`. (`pass_to(rank, v)` sends a tensor to one rank, which gets it with
# `receive(src)`. Puzzle 5 is about them.)


# %%
async def data_parallel(model: Model) -> Model:
    """Rank 0 has the model, and the others work for it."""
    at_home, others = model.rank == 0, range(1, model.RANKS)
    for layer in range(model.LAYERS):
        if at_home:
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
            for rank in others:
                await model.pass_to(rank, model.weights[layer])
        else:
            model.weights[layer] = await model.receive(src=0)
    if at_home:
        for rank in others:
            await model.pass_to(rank, model.get_activation([rank]))
        model.activations[0] = model.get_activation([0])
    else:
        model.activations[0] = await model.receive(src=0)

    for layer in range(model.LAYERS):
        inp, weight = model.activations[layer], model.weights[layer]
        model.activations[layer + 1] = model.forward(layer, inp, weight)

    output = model.activations.pop(model.LAYERS)
    if at_home:
        model.grad_activations[model.LAYERS] = model.loss(output)
        for rank in others:
            grad = model.loss(await model.receive(src=rank))
            await model.pass_to(rank, grad)
    else:
        await model.pass_to(0, output)
        model.grad_activations[model.LAYERS] = await model.receive(src=0)

    for layer in reversed(range(model.LAYERS)):
        inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad, model.weights[layer]
        )
        if not at_home:
            await model.pass_to(0, model.grad_weights.pop(layer))
            continue
        for rank in others:
            model.grad_weights[layer] = model.grad_weights[layer] + await model.receive(
                src=rank
            )
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


sizes = {"ranks": 4, "layers": 2, "batches": 4}
compare(run(data_parallel, **sizes), run(ddp, **sizes), titles=["DataParallel", "DDP"])

# %% [markdown]
# Rank 0 handles every message itself, one after the other, while the others wait. So the time grows with the number of
# ranks:
#
# | ranks | 4 | {{eight}} | {{sixteen}} |
# |---|---|---|---|
# | `DataParallel`, ticks | {{of[4].time}} | {{of[8].time}} | {{of[16].time}} |
# | `ddp`, ticks | {{ours.time}} | {{ours.time}} | {{ours.time}} |
#
# (On our machine a collective has the same price at any size. With prices by size, `RingCost`, {{sixteen}} ranks take
# {{by_size[0].time:.1f}} ticks with `DataParallel` and {{by_size[1].time:.1f}} with `ddp`.)
#
# Rank 0 also runs out of memory first, because everything that the others send piles up there: {{of[4].memory}}
# elements on 4 ranks, and {{of[16].memory}} on {{sixteen}}. With our `ddp` no rank holds more than {{ours.memory}} in
# either case: no rank is special, and weights and outputs never travel.
#
# ### Where real systems do this
#
# Your `ddp` is PyTorch's `DistributedDataParallel`. While it sums one layer's gradient, it already runs the backward of
# the layer below. That saves time and takes memory: you can solve this puzzle in {{overlap.time}} ticks or in
# {{ours.memory}} elements, but no program does both.
#
# DDP sums in *buckets* of about {{bucket:.0f}} MB, not layer by layer, because every call has a latency and many small
# tensors would mean many calls. The first bucket is {{first_bucket:.0f}} MB, so that the sums start early.
#
# We have recorded which calls PyTorch {{TORCH}} starts, and in which order (`tests/torch_truth/TABLE.md`). Each layer
# of {{bucket:.0f}} MB or more is a bucket of its own. Forty layers of {{first_bucket:.0f}} MB each make
# {{len(forty):word}} buckets, of {{forty[0]}}, {{forty[1]}} and {{forty[2]}} layers. In PyTorch's order this puzzle
# takes {{pytorch.time}} ticks and {{pytorch.memory}} elements, since DDP keeps all gradients until the last is
# summed, and then updates. `llm-training-puzzles run my_ddp.py:ddp --like torch` shows your program beside that
# order.
#
# On real links the price of an all-reduce depends on how much is sent. Usually the ranks form a ring, and each passes
# pieces of the gradient on to its neighbor. In all, each of n ranks sends 2(n - 1)/n times the gradient: less than
# twice its size, however many ranks there are.
#
# So the ranks share the work now, but not the memory. Every rank keeps {{TRAINED}} bytes for each parameter. The model
# of {{MODEL / BILLION}} billion parameters takes {{trained(MODEL) / BILLION}} GB on *every* GPU. The next two puzzles
# are about that.
#
# ### On real GPUs
#
# The machine can also count in seconds and bytes, for a real model on a real cluster. From here on, nearly every page
# ends with such figures of our solution. Here the backward pass computes the inner activations of a layer again instead
# of keeping them (puzzle 11). So memory holds little else than weights, gradients and states.
#
# ![What a step takes](picture:priced)
#
# (torchtitan is PyTorch's own program for the training of large models.)
#
# The model does not fit, since every GPU holds all weights, all gradients and all states. (MFU is the part of the GPUs'
# computing power that goes into the model. What is computed again does not count.) The next cell prints these figures
# for your function. Try more ranks, or another model or cluster from `lib.real`; docs/real-machines.md of the project
# says how far you can trust such figures.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_8B, report

priced = run(
    ddp,
    ranks=16,
    layers=32,
    batches=16,
    cost=H100_TORCHTITAN.cost(LLAMA_3_8B, recompute="full"),
)
print(report(priced))

# %% tags=["figures"]
from lib import RingCost

tokens, steps, many = 4e6, 500_000, 1_000
work = operations(MODEL, tokens)
step = work / PER_SECOND

three = {"ranks": 3, "layers": 1, "batches": 3}
at_once, later = run(wait_at_once, **three), run(wait_later, **three)
ours, overlap, pytorch = (run(fn, **size) for fn in (ddp, ddp_overlap, ddp_as_pytorch))

eight, sixteen = 8, 16
of = {n: run(data_parallel, ranks=n, layers=2, batches=n) for n in (4, eight, sixteen)}
for n in of:
    alike = run(ddp, ranks=n, layers=2, batches=n)
    assert (alike.time, alike.memory) == (ours.time, ours.memory)
at_16 = {"ranks": sixteen, "layers": 2, "batches": sixteen, "cost": RingCost()}
by_size = [run(fn, **at_16) for fn in (data_parallel, ddp)]

first_bucket, bucket = (
    size * 2**20 / 1e6 for size in (1, 25)
)  # MB, the defaults of DistributedDataParallel
forty = recorded_buckets("DDP, 40 layers of 1 MiB")
