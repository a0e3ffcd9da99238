# %% [markdown]
# # Puzzle 17: Tensor parallel
#
# Data parallel, ZeRO and FSDP divide the batch, and a pipeline needs many micro-batches to keep its stages busy. Here
# are four ranks and a *single* micro-batch. What is left to divide?
#
# A layer is `x + gelu(x A) B`. Column `j` of `A` makes one inner number for each token, and row `j` of `B` says what
# this number adds to the output. So a rank that has some columns of `A` and the same rows of `B` computes what
# *these* add to the output, a *partial sum*:
#
# ```python
# out = model.forward(layer, inp, piece, partial=True)  # a share of the time
# grad, grad_in = model.backward(layer, inp, grad_out, piece, partial=True)
# out = await model.allreduce(out, layer + 1)           # all partial sums, added up
# ```
#
# ![Partial sums before an all-reduce, and the sum after it](picture:sum_of_all)
#
# The output and the gradient of the input are then partial sums, as large as the full ones. An input is always whole:
# `model.forward`, `model.backward` and `model.loss` refuse a partial sum. The `layer` of an all-reduce is the layer of
# the tensor: `forward(3, ...)` gives an activation of layer 4, and `backward(3, ...)` a gradient of layer 2.

# %%
from drawing import beside_target, draw, play
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 17,
    "name": "tensor_parallel",
    "title": "Tensor parallel",
    "size": {"ranks": 4, "layers": 8, "batches": 1},
    "other_sizes": "one_for_all",
    "target": {"time": 12.8, "memory": 2359296},
    "star": {"time": 10.4, "memory": 2293760},
    "frontier": [
        {"time": 10.4, "memory": 2293760, "by": "tensor_parallel_overlap"},
        {"time": 10.7, "memory": 2228224, "by": "tensor_parallel_one_later"},
    ],
    "layout": "sharded",
    "ideas": ["weights_stay"],
    "words": ["partial=True"],
    "begins_with": "basic",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "medium",
    "minutes": 30,
    "star_hint": "While the sum of an output, or of a gradient, is on its way, nothing is computed. Into which two "
    "parts could you divide the work of a layer, so that one part is computed while the sum of the other is on its "
    "way?",
    "hints": [
        "Start from plain training, puzzle 0. Every rank does all of it, with its own piece of each weight. What does "
        "a forward give then, and what does the next layer need?",
        "`out = model.forward(layer, inp, weight, partial=True)`, then `model.activations[layer + 1] = await "
        "model.allreduce(out, layer + 1)`. In the backward pass the gradient of the input is a partial sum, too. "
        "The gradient of the weight is not: it is the gradient of your piece, and goes into `update` as it is. Take "
        "activations and gradients out of their dictionaries once they are used, so that they take up no memory. "
        "And what could a rank do while a sum is on its way?",
        "The next backward waits for the all-reduce of the gradient, but an update does not. So start the all-reduce, "
        "`call = model.allreduce(grad, layer - 1)`, update the layer, and then "
        "`model.grad_activations[layer] = await call`. And whom does the gradient of the input of layer 0 serve?",
    ],
}

# %% [markdown]
# ## Your task
#
# Train on one micro-batch.
#
# - Rank `r` begins and ends with piece `r` of `RANKS` of every weight and optimizer state.
# - {{ideas}}
# - `partial=True` is allowed.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def tensor_parallel(model: Model) -> Model:
    """Each rank computes with its own piece of every layer, and the results are added up."""
    ### BEGIN SOLUTION
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
    ### END SOLUTION
    return model


# %%
draw(run(tensor_parallel, ranks=4, layers=8, batches=1))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(tensor_parallel)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. It wants something to compute while a sum is on its
# way, as in [puzzle 12](p12_prefetch.ipynb). To watch your own run, with the line that each rank is at:

# %%
play(run(tensor_parallel, ranks=4, layers=8, batches=1))

# %% [markdown]
# ### Why the batch is not enough
#
# Llama 3 405B was trained on {{gpus}} GPUs, with {{batch / 2**20:.0f}} million tokens in a batch (arXiv 2407.21783).
# That is {{batch // tokens}} sequences of {{tokens}} tokens. If every GPU took one sequence,
# {{gpus - batch // tokens}} GPUs would have none: {{8 - 8 * (batch // tokens) // gpus:word}} of eight would stand
# still. With a larger batch a model hardly learns faster. So it ran with {{node}} tensor-parallel ranks in each of
# {{stages}} stages of a pipeline. The batch is divided over {{gpus // (stages * node)}} such pipelines, and every GPU
# has work.
#
# ### One sequence, four ranks
#
# In the first picture one rank trains by itself. In the second there are four. Each forward and each backward is a
# quarter as long, and after each of them all ranks meet.
#
# ![One rank](picture:on_one_rank)
#
# ![Four ranks](picture:on_four_ranks)
#
# With t ranks, forwards and backwards, the weights, their gradients and the states are divided by t. (An update takes
# {{cost.update}} ticks on our machine, whatever piece it updates. On a GPU it is divided by t, too.) The activations
# between the layers are not divided: every rank has all of them. The next puzzle is about that.
#
# There is an all-reduce for each layer in the forward pass, and another in the backward pass. With L layers that
# would be 2L, but nobody needs the gradient of the first input. So it is 2L - 1. What travels is small. For one
# sequence of {{GPT_SEQUENCE}} tokens, an activation of GPT-3 is {{INPUT / MILLION:.0f}} MB and a layer's weights are
# {{GPT_LAYER / BILLION:.1f}} GB. A Transformer's layer takes two all-reduces in each direction, one for attention and
# one for the MLP. So on {{node}} ranks each rank sends {{sums * 2 * sent * INPUT / MILLION:.0f}} MB for each layer.
# With FSDP it would send {{times * sent * GPT_LAYER / BILLION:.1f}} GB. (A ring of {{node}} sends 2 x {{sent}} of a
# tensor for an all-reduce. FSDP gathers the weights twice and reduces the gradient once, each {{sent}} of a layer.)
#
# But look where these all-reduces are. A gather of FSDP can run while another layer is computed. Here the next layer
# begins with the sum, so every rank waits for it. That is why tensor parallel stays where links are fast. On most
# machines that is a node of {{node}} GPUs. In a GB200 NVL72, NVLink joins {{GB200_NVL72.gpus_per_box}} GPUs, and
# there it can be more.

# %% [markdown] tags=["solution"]
# ### Faster: updates while the sum is under way
#
# In the forward pass nothing can be done while the sum is under way. In the backward pass there is an update to do.
# That makes {{overlap.time}} ticks: {{computing}} of computing, and the {{layers}} sums of the forward pass, for
# which everybody waits.

# %% tags=["solution"]
from drawing import Figure, draw_primitive
from lib import Cost, Run


async def in_pieces(model: Model, late: int) -> Model:
    """While the gradient of a layer's input is added up, that layer is updated, or with ``late=1`` the layer above
    it."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    def update(layer: int) -> None:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

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
        call = model.allreduce(grad, layer - 1) if layer else None
        if layer + late < model.LAYERS:
            update(layer + late)
        if call:
            model.grad_activations[layer] = await call
    for layer in reversed(range(min(late, model.LAYERS))):
        update(layer)
    return model


async def tensor_parallel_overlap(model: Model) -> Model:
    """A layer is updated while the gradient of its input is added up."""
    return await in_pieces(model, late=0)


async def tensor_parallel_one_later(model: Model) -> Model:
    """The layer above is updated meanwhile: a little slower, and in less memory."""
    return await in_pieces(model, late=1)


def sum_of_all(static: bool = False) -> Figure:
    """An all-reduce of partial sums."""
    return draw_primitive("allreduce", static=static, activations=True)


def on_one_rank(static: bool = False) -> Figure:
    """The same program on one rank, which has nothing to add."""
    alone = run(tensor_parallel, ranks=1, layers=8, batches=1, cost=Cost(collective=0))
    return draw(alone, title="one rank", memory_target=2_359_296, static=static)


def on_four_ranks(static: bool = False) -> Figure:
    """A quarter of each layer on each rank."""
    together = run(tensor_parallel, ranks=4, layers=8, batches=1)
    return draw(together, title="four ranks", memory_target=2_359_296, static=static)


draw(run(tensor_parallel_overlap, ranks=4, layers=8, batches=1))

# %% [markdown]
# ### A third axis
#
# Puzzle 8 divided the ranks by two axes: replicas, and shards within each of them. Here is the third. The mesh is
# `(replica, shard, tensor)`, and this is what each rank does:
#
# - A weight is cut into pieces along `tensor`, and each of these into shards along `shard`. A rank gathers the shards
#   of *its piece* before it computes, as in FSDP, and never more than the piece.
# - What it computes with a piece is a partial sum, which is added up along `tensor`.
# - Optimizer states are cut once more along `replica`. So the states of a piece are spread over `replica` times
#   `shard` ranks.
# - The ranks of one `tensor` group work on the same micro-batches, all others on different ones.
#
# This is the mesh `(R, DP, TP)` of Levanter's issue 325, on which puzzle 8 was built. On two nodes of four ranks,
# with a replica in each, such a program takes {{cube_of_8.time}} ticks and {{cube_of_8.memory}} elements. With
# `tensor` as the last axis, the ranks of a `tensor` group sit in the same node, as they should: it is the axis on
# which everybody waits.


# %% tags=["solution"]
async def replica_fsdp_tensor(model: Model) -> Model:
    """Replica-FSDP of pieces of layers: a mesh of replicas, shards and tensor-parallel ranks."""
    replica, replicas = model.axis_index("replica"), model.axis_size("replica")
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    tensor, tensors = model.axis_index("tensor"), model.axis_size("tensor")
    for layer in range(model.LAYERS):
        mine = tensor * shards + shard  # shard `shard` of piece `tensor`
        model.weights[layer], state = model.load_weights(layer, mine, tensors * shards)
        model.opt_states[layer] = state.shard(replica, replicas)

    share = model.BATCHES // (replicas * shards)
    first = (replica * shards + shard) * share
    for mb in range(first, first + share):
        model.activations[0] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            piece = await model.allgather(model.weights[layer], layer, axis="shard")
            out = model.forward(layer, model.activations[layer], piece, partial=True)
            model.activations[layer + 1] = await model.allreduce(out, layer + 1, axis="tensor")
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            piece = await model.allgather(model.weights[layer], layer, axis="shard")
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            model.grad_weights["piece"], grad = model.backward(
                layer, inp, grad_out, piece, partial=True
            )
            if layer > 0:
                total = await model.allreduce(grad, layer - 1, axis="tensor")
                model.grad_activations[layer] = total
            of_weight = model.grad_weights.pop("piece")
            of_weight = await model.scatterreduce(of_weight, layer, axis="shard")
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + of_weight if so_far else of_weight

    for layer in range(model.LAYERS):
        of_weight = model.grad_weights.pop(layer)
        of_weight = await model.scatterreduce(of_weight, layer, axis="replica")
        own = model.weights[layer].shard(replica, replicas)
        own, model.opt_states[layer] = model.update(
            layer, of_weight, own, model.opt_states[layer]
        )
        model.weights[layer] = await model.allgather(own, layer, axis="replica")
        model.set_final_weight(layer, model.weights[layer])
    return model


# Two nodes of four ranks, a replica in each.
cube = {"mesh": {"replica": 2, "shard": 2, "tensor": 2}, "node_size": 4}
three_axes = run(replica_fsdp_tensor, ranks=8, layers=6, batches=8, **cube)
Model.check(three_axes.models)
draw(three_axes, memory=False)

# %% [markdown]
# ### Where real systems do this
#
# The cut, first by columns and then by rows, is from *Megatron-LM* (Shoeybi et al., arXiv 1909.08053). In attention a
# rank takes whole heads. PyTorch has `parallelize_module` with `ColwiseParallel` and `RowwiseParallel`, and its
# `DTensor` calls a partial sum `Partial`.

# %% [markdown]
# ### On real GPUs
#
# {{MEGATRON_22B.size / BILLION:.0f}} billion parameters on one node, four sequences at a time. A layer of the model
# has two parts, attention and the feed-forward part, and each needs a sum of its own. So one all-reduce of this run
# is priced as two.
#
# ![What a step takes](picture:priced)
#
# Here each rank computes the whole loss. Megatron-LM divides it as well, by the words of the vocabulary.

# %% tags=["priced"]
from lib.real import A100_MEGATRON, MEGATRON_22B, report

priced = run(
    tensor_parallel,
    ranks=8,
    layers=48,
    cost=A100_MEGATRON.cost(MEGATRON_22B, micro_batch=4, recompute="selective", gradients=4),
)
print(report(priced))

# %% tags=["figures"]
gpus, stages = (published(value, "arXiv 2407.21783") for value in (16_384, 16))
batch, tokens = 2**24, published(8192, "arXiv 2407.21783")
node = 8
sent = Fraction(node - 1, node)  # of a tensor, in a gather or half an all-reduce
sums, times = 4, 3  # all-reduces of a layer; two gathers and a reduction

from lib.real import GB200_NVL72

overlap = run(tensor_parallel_overlap, **size)
ours, one_rank = (
    run(tensor_parallel, **size),
    run(tensor_parallel, **{**size, "ranks": 1}, cost=Cost(collective=0)),
)
computing = layers * ((cost.forward + cost.backward) / ranks + cost.update)
cube_of_8 = run(replica_fsdp_tensor, ranks=8, layers=6, batches=8, **cube)
cube_of_8.verify()
