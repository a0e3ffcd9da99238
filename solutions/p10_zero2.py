# %% [markdown]
# # Puzzle 10: ZeRO-2
#
# In puzzle 9 a rank adds up whole gradients, from one micro-batch to the next. In the end it uses one shard of each
# sum, and gives the rest away. Does it ever need more than its own piece?
#
# ![Puzzle 9: six whole gradients wait for those of the second micro-batch](picture:whole_sums)

# %%
from drawing import beside_target, draw, play
from lib import Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 10,
    "name": "zero2",
    "title": "ZeRO-2",
    "size": {"ranks": 4, "layers": 6, "batches": 8},
    "other_sizes": "two_each",
    "target": {"time": 32.4, "memory": 3538944},
    "star": {"time": 27.6, "memory": 3276800},
    "frontier": [
        {"time": 27.3, "memory": 3276800, "by": "zero2_overlap"},
    ],
    "cost": "two_halves",
    "layout": "states_sharded",
    "hints_for": {"slow": 2, "large": 2},
    "ideas": ["one_micro_batch", "only_updated_weights"],
    "difficulty": "medium",
    "minutes": 20,
    "star_hint": "What is there to compute while a reduce-scatter is on its way? After the last backward, what is "
    "there to compute while a gather is on its way? And how many sums can be on their way before memory has to "
    "hold one more whole gradient?",
    "hints": [
        "Look at the gradients in your picture of puzzle 9. From the first micro-batch on, six whole ones are waiting. "
        "How many of their elements will this rank use?",
        "Reduce-scatter each gradient right after its `backward`, in every micro-batch, and add up the pieces. "
        "An all-reduce that is cut afterwards brings the same pieces, and takes twice the time. Whole gradients "
        "that are kept take up memory, and so do activations: `pop` each activation as its backward reads it.",
        "`grad = await model.scatterreduce(grad, layer)`, then add: `model.grad_weights[layer] + grad` from the "
        "second micro-batch on. Update and gather at the end as in puzzle 9. For the star, await each sum one layer "
        "later. A gradient on its way takes memory, so free some elsewhere: after the last backward of a layer, who "
        "still needs its whole weight?",
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step as in puzzle 9, with less memory for gradients. Calls take the same times, and each rank again has
# two micro-batches.
#
# - {{ideas}}
# - Every rank begins and ends with all weights. Of every optimizer state, rank `r` has only shard `r` of `RANKS`.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def zero2(model: Model) -> Model:
    """Data parallel, with optimizer states and the sums of gradients in shards."""
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
            grad = await model.scatterreduce(grad, layer)
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        piece = model.weights[layer].shard(model.rank, model.RANKS)
        piece, model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), piece, model.opt_states[layer]
        )
        model.weights[layer] = await model.allgather(piece, layer)
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = Cost(allreduce=0.6, allreduce_across=3.0)
draw(run(zero2, ranks=4, layers=6, batches=8, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(zero2)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. To earn it, let sums run while a rank works ("start now,
# fetch later", as in [puzzle 2](p02_ddp.ipynb)), and make room for them. After a layer's last backward you may cut its
# weight to the piece that this rank updates. To watch your own run, with the line that each rank is at:

# %%
play(run(zero2, ranks=4, layers=6, batches=8, cost=prices))

# %% [markdown]
# ### What it costs now
#
# The lunch is not quite free any more. In a step ZeRO-1 sends twice the model's size, for any number of
# micro-batches: one reduce-scatter of each gradient, one all-gather of each weight. Here every micro-batch has its
# own reduce-scatters. For K micro-batches on each rank, that comes to K + 1 times the model's size. At our size it
# takes {{ours.time - before.time}} ticks more than puzzle 9 if you wait for each sum. If the sums run during the next
# backward, it takes no more.
#
# | | ZeRO-1 | ZeRO-2 |
# |---|---|---|
# | what a rank sends in a step, K micro-batches | 2 (n - 1)/n | (K + 1) (n - 1)/n |
# | gradients that a rank keeps, in bytes per parameter | {{GRADIENT}} | {{GRADIENT}}/n |
# | what it keeps of {{MODEL / BILLION}} billion parameters on {{GPUS}} GPUs | {{stage_1:.1f}} GB | {{stage_2:.1f}} GB |
#
# (In the first row, 1 is the size of the model, and n the number of ranks. While one layer's gradient is on its way, it
# is still whole: a rank needs room for that, too.)
#
# Of the {{stage_1:.1f}} GB of ZeRO-1, {{gradients:.0f}} are gradients. A rank uses {{Fraction(1, GPUS):word}} of them
# for its update, {{gradients / GPUS:.2f}} GB.
#
# Was puzzle 3 a stage of ZeRO? No. There weights and states were in shards and gradients whole. Stage 1 shards the
# states, stage 2 also the gradients, stage 3 also the weights: the largest saving comes first, and the most expensive
# one last. Puzzle 3 took them out of order, to teach one thing at a time.

# %% [markdown] tags=["solution"]
# ### Faster: sums during other work
#
# Each sum is fetched one layer later. A micro-batch's last sum is fetched in the next forward pass. The gathers of the
# new weights run while other layers are updated, as in puzzle 9. A gradient in flight takes room. But after the last
# backward of a layer, a rank keeps only its own piece of the weight, which is all that its update needs. That takes
# {{overlap.time}} ticks and {{overlap.memory}} elements, less than the {{ours.memory}} of the first program.


# %% tags=["solution"]
from drawing import compare


async def zero2_overlap(model: Model) -> Model:
    """As above, but no rank waits for a sum or a gather before it has to."""
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        model.opt_states[layer] = state.shard(model.rank, model.RANKS)

    sums, gathers = {}, {}

    async def fetch(layer: int) -> None:
        """Add the sum of a layer that is on its way, if there is one."""
        if layer in sums:
            grad, so_far = await sums.pop(layer), model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad

    mine = range(model.rank, model.BATCHES, model.RANKS)
    for mb in mine:
        model.activations[0] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            inp, weight = model.activations[layer], model.weights[layer]
            model.activations[layer + 1] = model.forward(layer, inp, weight)
            await fetch(layer)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            if mb == mine[-1]:
                piece = model.weights[layer].shard(model.rank, model.RANKS)
                model.weights[layer] = piece
            sums[layer] = model.scatterreduce(grad, layer)
            await fetch(layer + 1)
        del model.grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        await fetch(layer)
        grad, piece = model.grad_weights.pop(layer), model.weights.pop(layer)
        piece, model.opt_states[layer] = model.update(
            layer, grad, piece, model.opt_states[layer]
        )
        gathers[layer] = model.allgather(piece, layer)
    for layer, call in gathers.items():
        model.weights[layer] = await call
        model.set_final_weight(layer, model.weights[layer])
    return model


compare(*[run(fn, ranks=4, layers=6, batches=8, cost=prices) for fn in (zero2, zero2_overlap)])

# %% [markdown] tags=["solution"]
# ### The picture of puzzle 9


# %% tags=["solution"]
from drawing import Figure


def whole_sums(static: bool = False) -> Figure:
    """Rank 0 of puzzle 9."""
    from solutions.p09_zero1 import zero1

    done = run(zero1, ranks=4, layers=6, batches=8, cost=prices)
    return draw(done.models[0], title="puzzle 9", static=static)


# %% [markdown]
# ### Where real systems do this
#
# DeepSpeed has it as `"stage": 2` (ZeRO, arXiv 1910.02054). It reduces gradients while the backward pass runs, in
# buckets, and each rank keeps its own part of the sum.
#
# PyTorch's `SHARD_GRAD_OP` is often called ZeRO-2. It keeps less: between steps a rank has only its shard of the
# weights, too. It gathers them in the forward pass of each micro-batch, keeps them whole until that micro-batch's
# backward pass is over, and then frees them. So it sends K all-gathers and K reduce-scatters in a step, 2K times the
# model's size, where ZeRO-2 sends K + 1. `fully_shard` with `reshard_after_forward=False` is the same. Recorded from
# PyTorch {{TORCH}} with six layers and two micro-batches, it makes {{recorded(twice, "all-gathers")}} all-gathers and
# {{recorded(twice, "reduce-scatters")}} reduce-scatters (`tests/torch_truth/TABLE.md`). Full sharding gathers again
# in each backward pass, and so sends 3K times the model's size.
#
# ### On real GPUs
#
# The same model and the same GPUs as in puzzle 9, with two micro-batches a rank.
#
# ![What a step takes](picture:priced)
#
# Only the weights are whole now, and the sum of each gradient goes over the links once for each micro-batch.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_8B, report

priced = run(
    zero2,
    ranks=16,
    layers=32,
    batches=32,
    cost=H100_TORCHTITAN.cost(LLAMA_3_8B, recompute="full"),
)
print(report(priced))

# %% tags=["figures"]
gradients = GRADIENT * MODEL / BILLION  # GB
stage_1 = MODEL / BILLION * (WEIGHT + GRADIENT + STATE / GPUS)
stage_2 = MODEL / BILLION * (WEIGHT + (GRADIENT + STATE) / GPUS)

from solutions.p09_zero1 import zero1

ours, overlap, before = (run(fn, **size, cost=cost) for fn in (zero2, zero2_overlap, zero1))
twice = "the same, 2 micro-batches"
