# %% [markdown]
# # Puzzle 18: Sequence parallel
#
# Tensor parallel divides everything among its ranks, except the activations between the layers. With GPT-3 and one
# sequence of {{GPT_SEQUENCE}} tokens, {{left(whole):.0f}} GB of activations are the same on all {{t}} tensor-parallel
# GPUs. Every rank needs them, twice, for a moment. Must it keep them all the time?
#
# An activation has a row for each token. A *slice* is some of these rows, and takes that share of the memory:
#
# ```python
# rows = activation.shard(i, n)                         # slice i of n
# rows = await model.scatterreduce(partial_sum, layer)  # adds up; rank i gets slice i of the sum
# whole = await model.allgather(rows, layer)            # joins the slices of all ranks, for everyone
# ```
#
# ![Partial sums before a reduce-scatter, and slices of the sum after it](picture:sum_in_slices)
#
# `model.forward`, `model.backward` and `model.loss` want the whole sequence, since in attention each token looks at
# all before it.

# %%
from drawing import beside_target, draw, play
from lib import Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 18,
    "name": "sequence_parallel",
    "title": "Sequence parallel",
    "size": {"ranks": 4, "layers": 8, "batches": 1},
    "other_sizes": "one_for_all",
    "target": {"time": 19.7, "memory": 3145728},
    "star": {"time": 15.0, "memory": 3080192},
    "frontier": [
        {"time": 14.6, "memory": 3145728, "by": "sequence_parallel_in_14_6"},
        {"time": 14.85, "memory": 3080192, "by": "sequence_parallel_in_14_85"},
        {"time": 15.6, "memory": 3014656, "by": "sequence_parallel_in_15_6"},
    ],
    "cost": "long_sequences",
    "layout": "sharded",
    "ideas": ["weights_stay"],
    "words": ["partial=True", "slices"],
    "begins_with": "tensor_parallel",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 40,
    "star_hint": "A gather and a reduce-scatter stand between any two layers. Which of them could begin before it "
    "is needed: during an update, or during the backward of the layer above?",
    "hints": [
        "Start from tensor parallel, and take each all-reduce of the forward pass apart: a reduce-scatter after the "
        "layer, an all-gather before the next one. What do you have to keep in between?",
        "`inp = await model.allgather(model.activations[layer], layer)` before a forward, and "
        "`model.activations[layer + 1] = await model.scatterreduce(out, layer + 1)` after it. Each of these two "
        "takes half of the time of an all-reduce, so an all-reduce that is cut afterwards is no bargain. Do not "
        "store `inp`, which takes up four times the memory of a slice: gather it once more right before the "
        "backward. The first input comes whole, so cut it like the others: `model.activations[0] = "
        "model.get_activation([0]).shard(model.rank, model.RANKS)`.",
        "First the sums: start one, update the layer meanwhile, and await the sum afterwards. `model.allreduce` is "
        "both halves in one call. Then the gathers: before a backward, start to gather the input of the layer "
        "below. A whole input takes the place of four slices, so do it where there is room, for the lowest layers. "
        "And is the input of the last layer ever to be gathered twice?",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 17, with long sequences. An activation has {{cost.activation_elements}} elements,
# {{cost.activation_elements // default.activation_elements:word}} times as many as before. An all-reduce takes
# {{cost.allreduce}} ticks, each of its halves {{cost.collective}}.
#
# - Rank `r` begins and ends with piece `r` of `RANKS` of every weight and optimizer state.
# - {{ideas}}
# - `partial=True` and slices are allowed.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def sequence_parallel(model: Model) -> Model:
    """Tensor parallel, with activations kept in slices along the sequence."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([0]).shard(model.rank, model.RANKS)
    for layer in range(model.LAYERS):
        inp = await model.allgather(model.activations[layer], layer)
        out = model.forward(layer, inp, model.weights[layer], partial=True)
        model.activations[layer + 1] = await model.scatterreduce(out, layer + 1)
    inp = await model.allgather(model.activations.pop(model.LAYERS), model.LAYERS)
    model.grad_activations[model.LAYERS] = model.loss(inp)

    for layer in reversed(range(model.LAYERS)):
        inp = await model.allgather(model.activations.pop(layer), layer)
        grad_out = model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], grad = model.backward(
            layer, inp, grad_out, model.weights[layer], partial=True
        )
        if layer > 0:
            grad = await model.scatterreduce(grad, layer - 1)
            model.grad_activations[layer] = await model.allgather(grad, layer - 1)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
long_sequences = Cost(activation_elements=524_288, allreduce=0.6)
draw(run(sequence_parallel, ranks=4, layers=8, batches=1, cost=long_sequences))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(sequence_parallel)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. Where memory has room, it wants collectives that are on
# their way while a rank computes, as in [puzzle 12](p12_prefetch.ipynb). To watch your own run, with the line that each
# rank is at:

# %%
play(run(sequence_parallel, ranks=4, layers=8, batches=1, cost=long_sequences))

# %% [markdown]
# ### What it costs
#
# Here is tensor parallel at the same prices, then sequence parallel. In the first, the band of activations grows by a
# whole input with each layer. In the second, it grows by a quarter.
#
# ![Tensor parallel](picture:whole_activations)
#
# ![Sequence parallel](picture:in_slices)
#
# In the forward pass, nothing more is sent between the layers. An all-reduce is a reduce-scatter and an all-gather
# anyway, and now the slices in the middle are kept. In the backward pass there is one gather more for each layer,
# since its input is gathered again.
#
# There is a trap. A program that gathers an input once and stores it for the backward keeps whole inputs, as before.
# It takes {{trap.time}} ticks and {{trap.memory}} elements, just what tensor parallel takes.
#
# With t ranks, each keeps 1/t of every activation. Now everything that belongs to a layer is divided by t: work,
# weights, gradients, states, and what is kept for the backward pass.

# %% [markdown] tags=["solution"]
# ### Faster: gather ahead where there is room
#
# The sums of gradients run while a layer is updated, and the gathers of inputs while the layer above is computed. But
# a gather ahead brings a whole input into memory, while the whole input of the layer above is still there. At first
# there is no room for two. Each layer that is done gives back a slice, and for the inputs of the three lowest layers
# there is room enough. That takes {{overlap.time}} ticks, and fewer elements than the target.

# %% tags=["solution"]
from collections.abc import Callable
from functools import partial
from typing import Any

from drawing import Figure, draw_primitive
from lib import Run


async def sequence_parallel_overlapped(model: Model, ahead: float, late: int) -> Model:
    """The inputs of the lowest layers (``ahead`` is their share) are gathered during the backward of the layer above;
    layers are updated while gradients are added up, ``late`` layers later."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    def update(layer: int) -> None:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    top = model.LAYERS - 1
    model.activations["whole"] = model.get_activation([0])
    for layer in range(model.LAYERS):
        inp = model.activations["whole"]
        out = model.forward(layer, inp, model.weights[layer], partial=True)
        if layer < top:
            model.activations[layer] = inp.shard(model.rank, model.RANKS)
            model.activations["whole"] = await model.allreduce(out, layer + 1)
        else:  # the backward of this layer is next, so its input stays
            model.activations["last"] = await model.allreduce(out, layer + 1)
    model.grad_activations["whole"] = model.loss(model.activations.pop("last"))

    early = None
    for layer in reversed(range(model.LAYERS)):
        if layer < top and not early:
            gather = model.allgather(model.activations.pop(layer), layer)
            model.activations["whole"] = await gather
        early = None
        if 0 < layer <= ahead * model.LAYERS:
            early = model.allgather(model.activations.pop(layer - 1), layer - 1)
        inp, grad_out = model.activations.pop("whole"), model.grad_activations.pop("whole")
        model.grad_weights[layer], model.grad_activations["partial"] = model.backward(
            layer, inp, grad_out, model.weights[layer], partial=True
        )
        if early:  # before the sum starts: then the slice that was gathered is freed
            model.activations["whole"] = await early
        grad = model.grad_activations.pop("partial")
        call = model.allreduce(grad, layer - 1) if layer else None
        if layer + late <= top:
            update(layer + late)
        if call:
            model.grad_activations["whole"] = await call
    for layer in reversed(range(min(late, model.LAYERS))):
        update(layer)
    return model


sequence_parallel_in_14_6 = partial(sequence_parallel_overlapped, ahead=4 / 8, late=0)
sequence_parallel_in_14_85 = partial(sequence_parallel_overlapped, ahead=3 / 8, late=0)
sequence_parallel_in_15_6 = partial(sequence_parallel_overlapped, ahead=2 / 8, late=1)


async def tensor_parallel_long(model: Model) -> Model:
    """Tensor parallel: every rank keeps all activations."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([0])
    for layer in range(model.LAYERS):
        inp, weight = model.activations[layer], model.weights[layer]
        out = model.forward(layer, inp, weight, partial=True)
        model.activations[layer + 1] = await model.allreduce(out, layer + 1)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], grad = model.backward(
            layer, inp, grad_out, model.weights[layer], partial=True
        )
        if layer > 0:
            model.grad_activations[layer] = await model.allreduce(grad, layer - 1)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def whole_inputs_kept(model: Model) -> Model:
    """The trap: what was gathered for the forward is kept for the backward."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([0])
    for layer in range(model.LAYERS):
        if layer > 0:
            piece = model.activations.pop(layer)
            model.activations[layer] = await model.allgather(piece, layer)
        inp, weight = model.activations[layer], model.weights[layer]
        out = model.forward(layer, inp, weight, partial=True)
        model.activations[layer + 1] = await model.scatterreduce(out, layer + 1)
    inp = await model.allgather(model.activations.pop(model.LAYERS), model.LAYERS)
    model.grad_activations[model.LAYERS] = model.loss(inp)

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], grad = model.backward(
            layer, inp, grad_out, model.weights[layer], partial=True
        )
        if layer > 0:
            grad = await model.scatterreduce(grad, layer - 1)
            model.grad_activations[layer] = await model.allgather(grad, layer - 1)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def with_long_sequences(fn: Callable[[Model], Any]) -> Run:
    """A run at the puzzle's size."""
    cost = Cost(activation_elements=524_288, allreduce=0.6)
    return run(fn, ranks=4, layers=8, batches=1, cost=cost)


def whole_activations(static: bool = False) -> Figure:
    """Every rank keeps every activation."""
    done = with_long_sequences(tensor_parallel_long)
    return draw(done, title="tensor parallel", memory_target=3_145_728, static=static)


def in_slices(static: bool = False) -> Figure:
    """Every rank keeps a quarter of every activation."""
    done = with_long_sequences(sequence_parallel)
    return draw(done, title="sequence parallel", memory_target=3_145_728, static=static)


def sum_in_slices(static: bool = False) -> Figure:
    """A reduce-scatter of partial sums."""
    return draw_primitive("scatterreduce", static=static, activations=True)


draw(run(sequence_parallel_in_14_85, ranks=4, layers=8, batches=1, cost=long_sequences))

# %% [markdown]
# ### Where real systems do this
#
# This is Megatron-LM's sequence parallelism (Korthikanti et al., arXiv 2205.05198), an option of tensor parallel
# there: `--sequence-parallel`. A Transformer also does some work between the matrices of its layers: layer norms,
# dropout, the sums with the input. All of it treats each token by itself, so every rank does it for its own slice.
# Megatron, too, gathers the input again in the backward pass, while the gradient of the input is computed. PyTorch
# has `SequenceParallel` for `parallelize_module`.
#
# Take sequence length s, batch b and hidden size h, and keep no matrices of attention. Then a layer of a Transformer
# leaves {{whole + divided}} sbh bytes behind. Tensor parallel makes that ({{whole}} + {{divided}}/t) sbh, sequence
# parallel {{whole + divided}} sbh/t. With GPT-3's {{GPT_LAYERS}} layers and t = {{t}}, that is
# {{left(whole + divided / t):.0f}} GB and {{left((whole + divided) / t):.0f}} GB.
#
# The name is used for other things as well. *Context parallel* keeps slices of the sequence inside the layers, too,
# and moves keys and values (puzzles 25 and 26).
#
# ### On real GPUs
#
# The model and the node of puzzle 17.
#
# ![What a step takes](picture:priced)
#
# Norms and residuals are divided now, and so is what they leave behind. Megatron-LM took {{measured:.2f}} s for this
# (arXiv 2205.05198, table 5). It also divides the loss, which here each rank computes in full. And it computes
# something else while an input is gathered again for the backward pass.

# %% tags=["priced"]
from lib.real import A100_MEGATRON, MEGATRON_22B, report

priced = run(
    sequence_parallel,
    ranks=8,
    layers=48,
    cost=A100_MEGATRON.cost(
        MEGATRON_22B, micro_batch=4, sequence_parallel=True, recompute="selective", gradients=4
    ),
)
print(report(priced))

# %% tags=["figures"]
whole, divided, t = 10, 24, 8  # bytes a number, by arXiv 2205.05198, and ranks
default = Cost()


def left(each: float) -> float:
    """GB of all layers, for one sequence."""
    return GPT_LAYERS * GPT_SEQUENCE * GPT_HIDDEN * each / BILLION


from lib.real import MEGATRON_22B
from tools.published import MEGATRON

trap, long = map(with_long_sequences, (whole_inputs_kept, tensor_parallel_long))
ours = with_long_sequences(sequence_parallel)
assert (trap.time, trap.memory) == (long.time, long.memory)
overlap = with_long_sequences(sequence_parallel_in_14_85)
assert overlap.memory < target.memory
measured = published(
    next(row for row in MEGATRON if row.model == MEGATRON_22B).present, "arXiv 2205.05198"
)
