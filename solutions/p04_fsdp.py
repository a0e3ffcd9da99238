# %% [markdown]
# # Puzzle 4: Fully sharded data parallel
#
# In puzzle 3 every rank received the whole sum of each gradient, used the shard that it owns, and threw the rest away.
# Can it receive just that shard?
#
# ![before and after a reduce-scatter](picture:scatterreduce)
#
# A **reduce-scatter** sums the gradients of all ranks, and leaves piece i of the sum on rank i. It takes
# {{cost.collective}} ticks:
#
# ```python
# # before: grad is whole, and comes from this rank's micro-batch only
# grad = await model.scatterreduce(grad, layer)
# # after: grad is shard `model.rank` of the sum over all micro-batches
# ```

# %%
from drawing import beside_target, draw, play
from lib import Model, RingCost, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 4,
    "name": "fsdp",
    "title": "Fully sharded data parallel",
    "size": {"ranks": 4, "layers": 6, "batches": 4},
    "other_sizes": "data_parallel",
    "target": {"time": 20.4, "memory": 2359296},
    "star": {"time": 15.6, "memory": 2097152},
    "frontier": [
        {"time": 15.3, "memory": 2228224, "by": "fsdp_in_15_3"},
        {"time": 15.6, "memory": 2097152, "by": "fsdp_in_15_6"},
        {"time": 15.9, "memory": 1966080, "by": "fsdp_in_15_9"},
    ],
    "layout": "sharded",
    "ideas": ["as_many_each", "no_whole_gradient"],
    "difficulty": "medium",
    "minutes": 20,
    "hints_for": {"slow": 2, "large": 2},
    "star_hint": "Nothing goes over the network while a rank computes, and nothing is computed while a gather is on "
    "its way. Which gather could begin while another layer is computed, and what could be updated while a sum is on "
    "its way?",
    "hints": [
        "Which part of the summed gradient does a rank need for its update? It holds one shard of the weight "
        "and one of the state.",
        "Start from your answer to puzzle 3. It gathers each weight right before its forward and right before its "
        "backward. More gathers would only take time, and to store a whole weight would only take memory. Its "
        "all-reduce brings more than you need. The new call takes the same time and brings exactly your part.",
        "`model.grad_weights[layer] = await model.scatterreduce(grad, layer)` right after `backward`. Now weight, "
        "state and gradient hold the same shard, and `update` takes all three. For the star, let calls run during "
        "other work. When most activations have been freed, gather the next weight right after a backward, and await "
        "the sum of the gradient one layer later. At the last layer there is no room for that: start the sum, then "
        "the gather, await the sum, and update while the gather runs.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step. Rank `r` begins and ends with shard `r` of `RANKS` of every weight and optimizer state.
#
# - {{ideas}}
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def fsdp(model: Model) -> Model:
    """Data parallel, with weights, optimizer states and gradients in shards."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        model.grad_weights[layer] = await model.scatterreduce(grad, layer)

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(run(fsdp, ranks=4, layers=6, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(fsdp)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. To earn it, let calls run while a rank computes: "start
# now, fetch later", as in [puzzle 2](p02_ddp.ipynb). To watch your own run, with the line that each rank is at:

# %%
play(run(fsdp, ranks=4, layers=6, batches=4))

# %% [markdown]
# ### What each GPU holds
#
# Here is a program that passes, at three moments: in the backward of layer 3, while the gradient of layer 3 is
# summed, and while layer 2 is gathered. The whole gradient (pale) goes into the sum, and a quarter of the sum stays.
#
# ![Four GPUs: a whole gradient goes into a reduce-scatter, and a quarter of the sum stays](picture:around_a_sum)
#
# ### Where it pays
#
# With one micro-batch for each rank, a gradient is used as soon as it is summed, so it hardly matters whether it is
# whole or a quarter. With **two** micro-batches for each rank, the sums of the first wait for those of the second, in
# all six layers. Here are two programs that differ in one word. The first says `allreduce`, and six whole gradients
# wait. (The pictures show rank 0. The others do the same.)
#
# ![All-reduce, two micro-batches a rank](picture:with_all_reduce)
#
# The second says `scatterreduce`, and six quarters wait:
#
# ![Reduce-scatter, two micro-batches a rank](picture:with_reduce_scatter)
#
# Compare the weight gradients in the two memory charts, from tick {{half}} on. The peaks are {{whole.memory}} and
# {{pieces.memory}} elements. The second is exactly this puzzle's target, now with twice as many micro-batches.
#
# Both take the same time, but only because every collective on our machine has the same price. A reduce-scatter leaves
# a piece of the sum on each rank, and an all-gather joins the pieces. So **an all-reduce is a reduce-scatter followed
# by an all-gather**. On real links, and here with `RingCost`, the price depends on how much is sent, and an all-reduce
# costs as much as the two together:


# %%
async def two_halves(model: Model) -> Model:
    """A sum for everyone in one operation, and the same in two."""
    model.weights[0], _ = model.load_weights(0)
    model.activations[0] = model.get_activation([model.rank])
    grad = model.loss(model.forward(0, model.activations[0], model.weights[0]))
    model.grad_weights["own"], _ = model.backward(
        0, model.activations[0], grad, model.weights[0]
    )

    model.grad_weights["at once"] = await model.allreduce(model.grad_weights["own"], 0)
    model.grad_weights["piece"] = await model.scatterreduce(model.grad_weights["own"], 0)
    model.grad_weights["in two"] = await model.allgather(model.grad_weights["piece"], 0)
    assert model.grad_weights["at once"] == model.grad_weights["in two"]
    return model


# The links carry 655,360 elements in a tick: a gather among four takes 0.3 ticks, as before, and an all-reduce 0.6.
draw(run(two_halves, ranks=4, layers=1, batches=4, cost=RingCost(latency=0, bandwidth=655_360)))

# %% [markdown]
# With `RingCost`, the program with `allreduce` takes {{dear.time}} ticks for its eight micro-batches. The one with
# `scatterreduce` takes {{cheap.time}}, as before. The difference of {{dear.time - cheap.time}} ticks goes into the
# second half of each all-reduce: all-gathers of gradients that no rank needs whole. That is the insight of ZeRO: **take
# the all-reduce apart, and update between its halves.** Reduce-scatter the gradients, update your piece, all-gather the
# *weights*. That sends no more bytes than data parallel, and each rank keeps only its share of the gradients and
# states. (FSDP gathers the weights once more, for the backward pass. That is the price of sharding them, too.)

# %% [markdown]
# ### How much to gather at once
#
# You gathered one layer at a time. PyTorch calls layers that are gathered together a *unit*: one call brings all
# their weights, and one call sums all their gradients. We ran this puzzle with 1, 2, {{some[2]}} and 6 layers in a
# unit, each at two prices. At the first, a call takes the usual {{cost.collective}} ticks for every layer in it. At
# the second, each *call* takes another {{latency}} ticks, its latency. With small layers, latency is what counts.
#
# | layers in a unit | calls | peak memory | ticks | ticks, with latency |
# |---|---|---|---|---|
# | {{some[0]}} | {{calls[0]}} | {{free[0].memory}} | {{free[0].time}} | {{late[0].time}} |
# | {{some[1]}} | {{calls[1]}} | {{free[1].memory}} | {{free[1].time}} | {{late[1].time}} |
# | {{some[2]}} | {{calls[2]}} | {{free[2].memory}} | {{free[2].time}} | {{late[2].time}} |
# | {{some[3]}}, all of them | {{calls[3]}} | {{free[3].memory}} | {{free[3].time}} | {{late[3].time}} |
#
# ![Units of one to six layers as points of time and memory, without latency and with it](picture:units)
#
# The line on the left is without latency, the one on the right with it. Large units save calls and pay in memory: all
# their weights are whole at the same time, and so are their gradients. Without latency they save one thing only: the
# last unit is needed again at once, so it is gathered only once. With latency, going from one layer to two saves
# {{late[0].time - late[1].time}} ticks for {{late[1].memory - late[0].memory}} elements. Going from three to six
# saves only {{late[2].time - late[3].time}} ticks, for {{late[3].memory - late[2].memory}} elements.
#
# PyTorch users nearly always choose **one transformer block as the unit**: `fully_shard` on every block and then on
# the model, or, in the older FSDP, `transformer_auto_wrap_policy`. A block of a model with {{LLAMA / BILLION}}
# billion parameters is {{WEIGHT * LAYER / BILLION:.2f}} GB. NVLink is the fast link in a *node* (one machine, mostly
# with eight GPUs). It carries {{IN_NODE}} GB/s and gathers such a block in {{WEIGHT * LAYER / IN_NODE / MILLION:.1f}}
# ms, so the latency of a call hardly matters. For many small layers, `size_based_auto_wrap_policy` groups layers
# until a unit has {{auto / MILLION}} million parameters. If you forget to make each block a unit (to *wrap* it), the
# whole model is a single unit, as in the last row. Then all {{LLAMA * WEIGHT / BILLION}} GB of its weights are on
# each GPU at once.

# %% [markdown] tags=["solution"]
# ### Two micro-batches a rank
#
# The picture of what each GPU holds, and the two programs in the others, in one: `reduce` is the name of the collective that sums the gradients.


# %% tags=["solution"]
from functools import partial

from drawing import Figure, compare, holds
from lib import Cost, Run, WeightGrad


def around_a_sum(static: bool = False) -> Figure:
    """The backward of layer 3, the sum of its gradient, and the next gather."""
    return holds(run(fsdp, ranks=4, layers=6, batches=4), 12, 12.45, 12.75, static=static)


async def two_each(model: Model, reduce: str) -> Model:
    """Two micro-batches for each rank, one after the other, with this collective for the gradients."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    for mb in (model.rank, model.rank + model.RANKS):
        model.activations[0] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            weight = await model.allgather(model.weights[layer], layer)
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], weight
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            weight = await model.allgather(model.weights[layer], layer)
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
            grad = await getattr(model, reduce)(grad, layer)
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def summed_by(reduce: str, cost: Cost | None = None) -> Run:
    """Two micro-batches on each of four ranks."""
    return run(partial(two_each, reduce=reduce), ranks=4, layers=6, batches=8, cost=cost)


def with_all_reduce(static: bool = False) -> Figure:
    """Every rank receives whole sums."""
    first = summed_by("allreduce").models[0]
    return draw(first, title="all-reduce", memory_target=2_359_296, static=static)


def with_reduce_scatter(static: bool = False) -> Figure:
    """Every rank receives its quarter."""
    first = summed_by("scatterreduce").models[0]
    return draw(first, title="reduce-scatter", memory_target=2_359_296, static=static)


by_size = RingCost(latency=0, bandwidth=655_360)
both = [summed_by(reduce, by_size) for reduce in ("allreduce", "scatterreduce")]
compare(*both, titles=["all-reduce", "reduce-scatter"])

# %% [markdown] tags=["solution"]
# ### Units
#
# This program made the table. A call on our machine is for one layer. So `OneCall` counts the latency only once for the
# calls of a unit. (The network makes them one after the other, so they take as long as one large call.)


# %% tags=["solution"]
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from drawing import draw_sweep
from lib import Sweep
from lib.study.sweep import Trial


async def fsdp_in_units(model: Model, unit: int) -> Model:
    """Gather ``unit`` layers at once, and sum their gradients at once."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
    units = [
        range(model.LAYERS)[first : first + unit] for first in range(0, model.LAYERS, unit)
    ]

    async def gather(layers: range) -> None:
        calls = {layer: model.allgather(model.weights[layer], layer) for layer in layers}
        for layer, call in calls.items():
            model.weights["whole", layer] = await call

    model.activations[0] = model.get_activation([model.rank])
    for layers in units:
        await gather(layers)
        for layer in layers:
            inp, weight = model.activations[layer], model.weights["whole", layer]
            model.activations[layer + 1] = model.forward(layer, inp, weight)
        if layers != units[-1]:
            for layer in layers:
                del model.weights["whole", layer]
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layers in reversed(units):
        if layers != units[-1]:
            await gather(layers)
        for layer in reversed(layers):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            model.grad_weights[layer], model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights.pop(("whole", layer))
            )
        sums = {
            layer: model.scatterreduce(model.grad_weights.pop(layer), layer) for layer in layers
        }
        for layer, call in sums.items():
            model.grad_weights[layer] = await call

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


@dataclass(frozen=True)
class OneCall(RingCost):
    """The layers of a unit travel in one call: only the first has a latency."""

    latency: Fraction = Fraction(1, 10)
    bandwidth: int = 655_360
    unit: int = 1

    def meeting(self, kind: str, tensor: Any, size: Any, group: Any) -> int | Fraction:
        price = super().meeting(kind, tensor, size, group)
        latency = self.in_time_units(self.latency) * (len(group.ranks) - 1)
        return price if tensor.layer % self.unit == 0 else price - latency


def in_units(unit: int, latency: bool) -> Run:
    """A run with ``unit`` layers in a unit."""
    cost = OneCall(unit=unit) if latency else None
    return run(partial(fsdp_in_units, unit=unit), ranks=4, layers=6, batches=4, cost=cost)


def units(static: bool = False) -> Figure:
    """Each unit as a point, without latency and with it."""
    trials = []
    for latency in (False, True):
        for unit in (1, 2, 3, 6):
            done = in_units(unit, latency)
            name = f"{unit} layer{'s' * (unit > 1)} in a unit"
            prices = {"prices": "with latency" if latency else "without latency"}
            trials.append(Trial(name, prices, done.time, done.memory))
    return draw_sweep(Sweep(trials), static=static)


compare(*[in_units(unit, latency=True) for unit in (1, 2, 3, 6)], titles=["1", "2", "3", "6"])

# %% [markdown] tags=["solution"]
# ### The fastest that we know
#
# In the backward pass the next gather can start at three moments: before a layer's backward (`b`), after the backward
# but before the sum of the gradient (`a`), or after that sum (`s`), so that the gather runs during an update. And a sum
# can be awaited one layer later. `a` and `b` take room, and so does a sum that is awaited later. The farther the
# backward pass has come, the more room there is, since activations are freed. So for up to two layers, the last of the
# model, the programs use `s` and await the sums at once. For the next layer down they use `b`, since no sum is running
# then, and for all other layers `a`. Each program is named after its ticks. Nothing that we have tried is as fast in
# less memory.


# %% tags=["solution"]
async def fsdp_overlapped(model: Model, gathers: str, waits: int) -> Model:
    """``gathers`` says when the next weight is gathered: one letter for each layer, from the last layer down. The final
    letter also holds for all layers below. The first ``waits`` sums are awaited at once."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    ahead = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        model.weights["whole"] = await ahead
        if layer + 1 < model.LAYERS:
            ahead = model.allgather(model.weights[layer + 1], layer + 1)
        inp, weight = model.activations[layer], model.weights["whole"]
        model.activations[layer + 1] = model.forward(layer, inp, weight)
        if layer + 1 < model.LAYERS:
            del model.weights["whole"]
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    def update(layer: int, grad: WeightGrad) -> None:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    sums, early = {}, None
    for turn, layer in enumerate(reversed(range(model.LAYERS))):
        when = gathers[min(turn, len(gathers) - 1)] if layer else "never"
        if turn:
            model.weights["whole"] = await early
        if when == "b":
            early = model.allgather(model.weights[layer - 1], layer - 1)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        weight = model.weights.pop("whole")
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, weight
        )
        if when == "a":
            early = model.allgather(model.weights[layer - 1], layer - 1)
        sums[layer] = model.scatterreduce(model.grad_weights.pop(layer), layer)
        if when == "s":
            early = model.allgather(model.weights[layer - 1], layer - 1)
        if not layer:
            del model.grad_activations[layer]
        if layer + 1 in sums:
            update(layer + 1, await sums.pop(layer + 1))
        if turn < waits:
            update(layer, await sums.pop(layer))
    for layer, call in sums.items():
        update(layer, await call)
    return model


fsdp_in_15_3 = partial(fsdp_overlapped, gathers="ba", waits=0)
fsdp_in_15_6 = partial(fsdp_overlapped, gathers="sba", waits=1)
fsdp_in_15_9 = partial(fsdp_overlapped, gathers="ssba", waits=2)

draw(run(fsdp_in_15_3, ranks=4, layers=6, batches=4))

# %% [markdown]
# ### Where real systems do this
#
# This is ZeRO's stage 3, and PyTorch's FSDP with `FULL_SHARD`. The weights, gradients and optimizer states that a
# rank keeps are now divided by the number of ranks. For {{MODEL / BILLION}} billion parameters and {{GPUS}} ranks, in
# GB on each GPU (ZeRO, arXiv 1910.02054):
#
# | data parallel | ZeRO-1 | ZeRO-2 | ZeRO-3, FSDP |
# |---|---|---|---|
# | {{trained(MODEL) / BILLION}} | {{MODEL / BILLION * (WEIGHT + GRADIENT + STATE / GPUS):.1f}} | {{MODEL / BILLION * (WEIGHT + kept / GPUS):.1f}} | {{MODEL / BILLION * TRAINED / GPUS:.1f}} |
#
# PyTorch's `fully_shard` makes the same calls as our solution, but in another order. For six layers PyTorch {{TORCH}}
# starts {{recorded(fully, "all-gathers")}} gathers and {{recorded(fully, "reduce-scatters")}} reduce-scatters, as you
# do. But it begins to gather a layer *before* the backward of the layer above. In that order, and with early gathers
# in the forward pass, too, this puzzle takes {{ahead.time}} ticks and {{ahead.memory}} elements instead of
# {{ours.time}} and {{ours.memory}}. Puzzle 12 is about that. `llm-training-puzzles run my_fsdp.py:fsdp --like torch`
# shows where your program first differs.
#
# There is a trap: if you call `fully_shard` on every block but not on the model itself, no block is freed after its
# forward. Then there are {{recorded(unwrapped, "all-gathers")}} gathers, and all weights are whole at once. (The
# recordings are in `tests/torch_truth/TABLE.md`.)
#
# PyTorch's `SHARD_GRAD_OP` is not quite ZeRO-2. It keeps weights whole from the forward to the backward pass, and so
# gathers once for each micro-batch. ZeRO-2 keeps them whole between steps, too, and gathers once a *step*.
#
# The price is communication. On n ranks, each rank sends {{sends}}(n - 1)/n times the size of the model *for every
# micro-batch*: two gathers and a reduce-scatter. Data parallel sends 2(n - 1)/n times its size, *once a step*. So
# FSDP likes fast links, and micro-batches large enough to hide the gathers behind.
#
# ### On real GPUs
#
# The same model and the same GPUs as in puzzles 2 and 3, in seconds and bytes.
#
# ![What a step takes](picture:priced)
#
# The thin gaps are the gathers that nothing hides. They are short beside the layers of so large a model, with
# {{LLAMA_3_8B.sequence}} tokens at a time. On slow links they are not: try `RTX_4090`.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_8B, report

priced = run(
    fsdp,
    ranks=16,
    layers=32,
    batches=16,
    cost=H100_TORCHTITAN.cost(LLAMA_3_8B, recompute="full"),
)
print(report(priced))

# %% tags=["figures"]
kept = WEIGHT + STATE  # bytes: puzzle 3 divides these

ours = run(fsdp, **size)
whole, pieces = summed_by("allreduce"), summed_by("scatterreduce")
half = layers * (cost.forward + cost.backward + 3 * cost.collective) + 0.0
dear, cheap = (
    summed_by(reduce, RingCost(latency=0, bandwidth=655_360))
    for reduce in ("allreduce", "scatterreduce")
)
assert whole.time == pieces.time == cheap.time and pieces.memory == target.memory

some = 1, 2, 3, 6
free = [in_units(unit, latency=False) for unit in some]
late = [in_units(unit, latency=True) for unit in some]
latency = float(OneCall().latency * (ranks - 1))
calls = [
    sum(
        event.kind in ("allgather", "scatterreduce") and event.layer % unit == 0
        for event in done.models[0].log
    )
    for unit, done in zip(some, late, strict=True)
]
auto = 1e8  # the default of size_based_auto_wrap_policy

from solutions.p12_prefetch import prefetch

sends = 3  # gathers and a reduce-scatter
ahead = run(prefetch, **size)
fully = "fully_shard, 6 layers, 1 micro-batch"
unwrapped = "fully_shard, 6 layers, the model itself not wrapped"
