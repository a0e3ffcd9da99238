# %% [markdown]
# # Puzzle 9: ZeRO-1
#
# With data parallel every rank keeps every optimizer state. FSDP divides them, but it also gathers every weight twice
# for each micro-batch. Can you divide the states alone, and what does it cost?
#
# ![Data parallel with two micro-batches on each rank: rank 0 keeps all states](picture:with_whole_states)
#
# Calls take other times here: an all-reduce takes {{cost.allreduce}} ticks, and a reduce-scatter or an all-gather takes
# half of that, since each sends half as much. And what you hold can be cut, at no cost:
#
# ```python
# weight, state = model.load_weights(layer)
# model.opt_states[layer] = state.shard(model.rank, model.RANKS)
# ```

# %%
from drawing import beside_target, draw, play
from lib import Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 9,
    "name": "zero1",
    "title": "ZeRO-1",
    "size": {"ranks": 4, "layers": 6, "batches": 8},
    "other_sizes": "two_each",
    "target": {"time": 30.6, "memory": 4587520},
    "star": {"time": 27.6, "memory": 4456448},
    "frontier": [
        {"time": 27.3, "memory": 3276800, "by": "zero2_overlap"},
    ],
    "cost": "two_halves",
    "layout": "states_sharded",
    "begins_with": "grad_accum",
    "ideas": ["one_micro_batch", "only_updated_weights"],
    "difficulty": "medium",
    "minutes": 25,
    "hints_for": {"slow": 2, "large": 2},
    "star_hint": "What could be on its way during a backward? And which layer could be updated before "
    "the last sum has arrived?",
    "hints": [
        "Start from data parallel with two micro-batches on each rank: accumulate as in puzzle 1, and sum after the "
        "second. Which part of the update can a rank do, if it has one piece of the optimizer state?",
        "An all-reduce is a reduce-scatter followed by an all-gather. Take it apart: reduce-scatter the gradient, "
        "update your piece of the weight, all-gather the pieces of the new weight. That takes the same time as the "
        "all-reduce did. How much of each optimizer state has to be in memory for it?",
        "Keep in memory only your piece of each optimizer state, `state.shard(model.rank, model.RANKS)`. `piece "
        "= model.weights[layer].shard(model.rank, model.RANKS)` is your piece of a weight. `update` takes it "
        "with your piece of the summed gradient and of the state, and gives both back updated. Then "
        "`model.weights[layer] = await model.allgather(piece, layer)`.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step, data parallel, with two micro-batches for each rank.
#
# - {{ideas}}
# - Every rank begins and ends with all weights. Of every optimizer state, rank `r` has only shard `r` of `RANKS`.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def zero1(model: Model) -> Model:
    """Data parallel, with every optimizer state in shards."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        model.opt_states[layer] = state.shard(model.rank, model.RANKS)

    mine = range(model.rank, model.BATCHES, model.RANKS)
    for mb in mine:
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
            if mb != mine[0]:
                grad = model.grad_weights.pop(layer) + grad
            if mb != mine[-1]:
                model.grad_weights[layer] = grad
                continue
            grad = await model.scatterreduce(grad, layer)
            piece = model.weights[layer].shard(model.rank, model.RANKS)
            piece, model.opt_states[layer] = model.update(
                layer, grad, piece, model.opt_states[layer]
            )
            model.weights[layer] = await model.allgather(piece, layer)
            model.set_final_weight(layer, model.weights[layer])
        del model.grad_activations[0]
    ### END SOLUTION
    return model


# %%
prices = Cost(allreduce=0.6, allreduce_across=3.0)
draw(run(zero1, ranks=4, layers=6, batches=8, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(zero1)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. To earn it, let sums and gathers run while a rank works
# ("start now, fetch later", as in [puzzle 2](p02_ddp.ipynb)). To watch your own run, with the line that each rank is
# at:

# %%
play(run(zero1, ranks=4, layers=6, batches=8, cost=prices))

# %% [markdown]
# ### A free lunch
#
# Here is a program that passes. Compare it with data parallel, at the top of this page. There, six all-reduces run in
# the backward pass of the second micro-batch. Here each of them is cut in two, and the update slides in between.
#
# ![ZeRO-1](picture:with_sharded_states)
#
# Both take {{ours.time}} ticks. Data parallel holds {{plain.memory}} elements, and this holds {{ours.memory}}: all
# weights and gradients, and a quarter of the states.
#
# ![Four GPUs hold all weights and gradients, and a quarter of the optimizer states each](picture:quarters_of_states)
#
# Nothing was given in exchange. In data parallel all ranks make the same update of the same weight: three of the four
# do work that the first has done already. Let each rank update a quarter. The all-gather, which used to be the second
# half of the all-reduce, then collects the results. It carries weights now instead of gradients, and they have the same
# size. On n ranks each rank sends (n - 1)/n of the model twice in a step: just what an all-reduce sends. (On our
# machine the update of a quarter takes {{cost.update}} ticks, as long as that of the whole. On a GPU it takes a quarter
# of the time.)
#
# ### Why it matters
#
# A model of {{MODEL / BILLION}} billion parameters takes {{trained(MODEL) / BILLION}} GB to train, and {{states}} of
# them belong to the optimizer: {{STATE}} of the {{TRAINED}} bytes for each parameter. With data parallel on {{GPUS}}
# GPUs, every GPU keeps the same {{states}} GB.

# %% [markdown] tags=["solution"]
# ### Data parallel with whole states, and the pictures


# %% tags=["solution"]
from collections.abc import Callable
from typing import Any

from drawing import Figure, compare, holds
from lib import Run


async def ddp_twice(model: Model) -> Model:
    """Data parallel with several micro-batches on each rank, summed after the last."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    mine = range(model.rank, model.BATCHES, model.RANKS)
    for mb in mine:
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
            if mb != mine[0]:
                grad = model.grad_weights.pop(layer) + grad
            if mb != mine[-1]:
                model.grad_weights[layer] = grad
                continue
            grad = await model.allreduce(grad, layer)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])
        del model.grad_activations[0]
    return model


def at_these_prices(fn: Callable[[Model], Any]) -> Run:
    """A run at the puzzle's size."""
    cost = Cost(allreduce=0.6, allreduce_across=3.0)
    return run(fn, ranks=4, layers=6, batches=8, cost=cost)


def with_whole_states(static: bool = False) -> Figure:
    """Every rank updates everything."""
    first = at_these_prices(ddp_twice).models[0]
    return draw(first, title="data parallel", memory_target=4_587_520, static=static)


def with_sharded_states(static: bool = False) -> Figure:
    """Every rank updates its quarter."""
    first = at_these_prices(zero1).models[0]
    return draw(first, title="ZeRO-1", memory_target=4_587_520, static=static)


def quarters_of_states(static: bool = False) -> Figure:
    """What each GPU holds when memory is highest."""
    return holds(at_these_prices(zero1), static=static)


compare(at_these_prices(ddp_twice), at_these_prices(zero1))

# %% [markdown] tags=["solution"]
# ### Faster: both halves during other work
#
# The reduce-scatters run while the backward pass goes on, and the all-gathers while other layers are updated. Only
# the first sum and the last gather are waited for: {{overlap.time}} ticks, in the same memory.


# %% tags=["solution"]
async def zero1_overlap(model: Model) -> Model:
    """As above, but no rank waits for a sum or a gather before it has to."""
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        model.opt_states[layer] = state.shard(model.rank, model.RANKS)

    sums, gathers = {}, {}
    mine = range(model.rank, model.BATCHES, model.RANKS)
    for mb in mine:
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
            if mb != mine[0]:
                grad = model.grad_weights.pop(layer) + grad
            if mb == mine[-1]:
                sums[layer] = model.scatterreduce(grad, layer)
            else:
                model.grad_weights[layer] = grad
        del model.grad_activations[0]

    for layer, call in sums.items():
        grad = await call
        piece = model.weights.pop(layer).shard(model.rank, model.RANKS)
        piece, model.opt_states[layer] = model.update(
            layer, grad, piece, model.opt_states[layer]
        )
        gathers[layer] = model.allgather(piece, layer)
    for layer, call in gathers.items():
        model.weights[layer] = await call
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(zero1_overlap, ranks=4, layers=6, batches=8, cost=prices))

# %% [markdown]
# ### Where real systems do this
#
# This is stage 1 of ZeRO (arXiv 1910.02054), the *distributed optimizer* of Megatron-LM, and PyTorch's
# `ZeroRedundancyOptimizer`, which broadcasts the new weights in place of the all-gather. Every GPU keeps
# {{WEIGHT + GRADIENT}} + {{STATE}}/n bytes for each parameter. For {{MODEL / BILLION}} billion parameters on {{GPUS}}
# GPUs that is {{MODEL / BILLION * (WEIGHT + GRADIENT + STATE / GPUS):.1f}} GB instead of
# {{trained(MODEL) / BILLION}}.
#
# Where weights and gradients fit, it is what people use most, together with tensor and pipeline parallelism. With a
# pipeline, a rank works on many micro-batches in a step, and gradients are summed only once, after the last
# micro-batch.
#
# ### On real GPUs
#
# Llama 3 8B on two nodes, as in puzzles 2 to 4, with two micro-batches a rank.
#
# ![What a step takes](picture:priced)
#
# Puzzle 2 did not fit, mostly because of its optimizer states. Now they are divided by {{priced.ranks}}. Weights and
# gradients are whole.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_8B, report

priced = run(
    zero1,
    ranks=16,
    layers=32,
    batches=32,
    cost=H100_TORCHTITAN.cost(LLAMA_3_8B, recompute="full"),
)
print(report(priced))

# %% tags=["figures"]
states = STATE * MODEL / BILLION  # GB
plain, ours = map(at_these_prices, (ddp_twice, zero1))
overlap = at_these_prices(zero1_overlap)
assert plain.time == ours.time and overlap.memory <= ours.memory
