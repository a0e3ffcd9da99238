# %% [markdown]
# # Puzzle 34: Muon in shards
#
# Adam updates each number of a weight from its own gradient. So FSDP can cut weights, gradients and states into pieces,
# and each rank updates its own. **Muon** cannot do that. It replaces the gradient by the nearest matrix whose rows are
# orthogonal, and for that it needs the whole matrix. A piece on its own gives another matrix. A model trains with that,
# too, only worse, and nothing fails.
#
# ```python
# direction = model.orthogonalize(layer, grad)
# # grad: the whole gradient of the layer, summed over all micro-batches
# # direction: what `update` takes here. It can be cut, joined and sent; two of them do not add up
# ```
#
# Here `orthogonalize` takes {{cost.orthogonalize}} ticks. (Muon's momentum comes before it, number by number, in shards
# as ever. We leave it out.)
#
# ![Every rank gathers a gradient and makes the same matrix](picture:all_do_all)
#
# In this run of {{all_do.layers:word}} layers each rank gets every summed gradient, and all ranks make the same matrices.
# With {{layers:word}} layers that is {{layers * cost.orthogonalize}} ticks of the same work on each of them.
#
# **How few of these ticks can a rank have?**

# %%
from drawing import beside_target, draw
from lib import Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 34,
    "name": "muon",
    "title": "Muon in shards",
    "size": {"ranks": 4, "layers": 8, "batches": 4, "train": "muon"},
    "other_sizes": "data_parallel",
    "target": {"time": 35.0, "memory": 2949120},
    "star": {"time": 24.3, "memory": 2949120},
    "frontier": [
        {"time": 24.3, "memory": 2949120, "by": "muon_ahead"},
        {"time": 33.6, "memory": 2621440, "by": "muon_by_sums"},
        {"time": 35.0, "memory": 2490368, "by": "muon"},
    ],
    "cost": "orthogonal",
    "layout": "sharded",
    "ideas": ["as_many_each"],
    "words": ["orthogonalize"],
    "begins_with": "fsdp",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "After the last backward every rank has the same kinds of work left: matrices and updates. Which of it "
    "needs nothing that is still on its way? And which pieces could reach their owner during the backward pass?",
    "hints": [
        "There are as many matrices as layers. If each is done by one rank only, how many are left for a rank? And "
        "what does the owner of a matrix have to get from the others, and give back to them?",
        "Keep the pieces of the summed gradients, as in puzzle 4. Then go through the layers in rounds, a layer for "
        "each rank. In a round every rank sends its pieces to the owners, joins those of its layer, orthogonalizes "
        "it, and sends each its piece of the direction. All work at the same time, with one whole matrix in memory.",
        "For a round of layers, layer k of the round belongs to rank k. `send = model.pass_to(k, piece)` for all "
        "layers of others. Then, with your own layer, `whole = whole.combine(await model.receive(other))` for each "
        "other rank, `orthogonalize`, and `model.pass_to(other, whole.shard(other, model.RANKS))`. Update your own "
        "layer with `whole.shard(model.rank, model.RANKS)`, and the other layers of the round with what their owners "
        "send. Await your sends at the end. For the star, gather and reduce ahead as in puzzle 12, send the pieces of "
        "a layer two layers later, and start all receives before you need them.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 4, with Muon: `run(..., train="muon")`. Rank `r` begins and ends with shard `r` of `RANKS` of every
# weight and optimizer state.
#
# - {{ideas}}
# - Each update takes a direction, or a piece of one.
# - Other sizes have 1 to 8 ranks, with fewer or more layers than ranks.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def muon(model: Model) -> Model:
    """Fully sharded data parallel, with an update that needs the whole matrix."""
    ### BEGIN SOLUTION
    n, r, grads = model.RANKS, model.rank, model.grad_weights

    def update(layer: int) -> None:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grads.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, r, n)

    model.activations[0] = model.get_activation([r])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        grads[layer] = await model.scatterreduce(grad, layer)
    del model.grad_activations[0]

    for first in range(0, model.LAYERS, n):  # a round: layer first + k belongs to rank k
        layers = range(first, min(first + n, model.LAYERS))
        sends = [
            model.pass_to(layer - first, grads.pop(layer))
            for layer in layers
            if layer != first + r
        ]
        mine = first + r
        if mine in layers:
            for other in range(n):
                if other != r:
                    grads[mine] = grads[mine].combine(await model.receive(other))
            grads[mine] = model.orthogonalize(mine, grads.pop(mine))
            for other in range(n):
                if other != r:
                    sends.append(model.pass_to(other, grads[mine].shard(other, n)))
            grads[mine] = grads.pop(mine).shard(r, n)
            update(mine)
        for layer in layers:
            if layer != mine:
                grads[layer] = await model.receive(layer - first)
                update(layer)
        for send in sends:
            await send
    ### END SOLUTION
    return model


# %%
cost = Cost(orthogonalize=2)
draw(run(muon, ranks=4, layers=8, batches=4, train="muon", cost=cost))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(muon)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. That is {{star.time - bound}} ticks more than nothing at
# all: the first weight has to be gathered, and then no rank ever waits. [Puzzle 12](p12_prefetch.ipynb) shows how to
# start now and fetch later.
#
# ### Why orthogonal rows
#
# A gradient is often large in a few directions, and small in all others. Then an update by the gradient moves the weight
# along those few only. The nearest matrix with orthogonal rows has the same directions, all equally large. Muon (Keller
# Jordan, 2024) finds it without a decomposition, by five rounds of matrix products, the *Newton-Schulz* iteration. The
# large models that Moonshot AI has trained with it needed about half of the computation that AdamW needs for the same
# loss ("Muon is scalable for LLM training", arXiv 2502.16982). Embeddings, gains and biases still get Adam.
#
# With a momentum, its average takes the place of the gradient. It is computed number by number, so each rank averages its
# own pieces, and they are gathered after that. PyTorch has the optimizer since version 2.9 (`torch.optim.Muon`). It takes whole
# matrices: how they come to be whole is left to the program.
#
# ### Where real systems do this
#
# - **All do all.** Moonlight, which the paper describes, gathers on every rank, and so did VeOmni at first.
# - **Owners.** Since its PR 973, VeOmni deals whole matrices out in rounds, as your program does, with one all-to-all for
#   the pieces of a round and another one for the directions. torchtitan tries a third way (PR 3502): a matrix is never
#   cut, and lies on its owner from the beginning. Then `update` needs no message at all, and
#   the weights travel from their owners before each forward.
# - Matrices of a real layer differ in size. So owners are chosen such that all have about as much to do.
#
# Which way wins depends on the batch. The matrices take the same time for a small batch and for a large one. With few
# tokens for each GPU, they are a large part of a step.

# %% [markdown] tags=["solution"]
# ### Ahead, and by sums
#
# `muon_ahead` needs {{ahead.time}} ticks and {{ahead.memory}} elements. Each rank computes {{passes}} ticks of forwards and
# backwards, {{updates}} of updates, and its share of the matrices, {{layers}} x {{cost.orthogonalize}} / {{ranks}} =
# {{matrices}} ticks. Before all that comes the first gather: {{passes}} + {{updates}} + {{matrices}} +
# {{cost.collective}} = {{bound + cost.collective}}. So nothing is faster.
#
# ![That program: pieces go to their owners during the backward pass, and directions come back during updates](picture:ahead)
#
# `muon_by_sums` has no message. Every rank receives the whole sum of each gradient, and only the owner keeps it. To deal
# a direction out, the owner brings it to a reduce-scatter, to which all others bring nothing (`fake_grad(layer, [])`):
# {{by_sums.time}} ticks and {{by_sums.memory}} elements. On our machine an all-reduce costs no more than a
# reduce-scatter. On a real network it carries twice as much.

# %% tags=["solution"]
from functools import partial

from drawing import Figure
from lib import Run, WeightGrad


async def muon_ahead(model: Model) -> Model:
    """Muon with owners, in which no rank ever waits after the first gather."""
    n, r, grads, top = model.RANKS, model.rank, model.grad_weights, model.LAYERS - 1
    others = [(r + k) % n for k in range(1, n)]
    mine = [layer for layer in range(top, -1, -1) if (top - layer) % n == r]
    theirs = [layer for layer in range(top, -1, -1) if layer not in mine]
    sends, sums, coming, back = [], {}, {}, {}

    def update(layer: int, direction: WeightGrad) -> None:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, direction, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    def deal(layer: int) -> None:
        if layer in mine:
            coming[layer] = [model.receive(other) for other in others]
        else:
            sends.append(model.pass_to((top - layer) % n, grads.pop(layer)))

    async def last_sum() -> None:  # it comes whole to everyone: there is no time to send pieces
        if 0 in sums:
            grads[0] = await sums.pop(0)
            if 0 in theirs:
                del grads[0]
            back.update({layer: model.receive((top - layer) % n) for layer in theirs})

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, r, n)

    model.activations[0] = model.get_activation([r])
    ahead = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        model.weights["now"] = await ahead
        if layer < top:
            ahead = model.allgather(model.weights[layer + 1], layer + 1)
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights["now"])
        if layer < top:
            del model.weights["now"]
    model.grad_activations["now"] = model.loss(model.activations.pop(model.LAYERS))

    summed = []
    for layer in reversed(range(model.LAYERS)):
        if layer < top:
            model.weights["now"] = await ahead
        if layer > 0:
            ahead = model.allgather(model.weights[layer - 1], layer - 1)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop("now")
        grads["new"], model.grad_activations["now"] = model.backward(
            layer, inp, grad_out, model.weights.pop("now")
        )
        if layer < top:
            grads[layer + 1] = await sums.pop(layer + 1)
            summed.append(layer + 1)
        while len(summed) > (2 if layer else 0):  # pieces would pile up at their owners
            deal(summed.pop(0))
        total = model.scatterreduce if layer else model.allreduce
        sums[layer] = total(grads.pop("new"), layer)
    del model.grad_activations["now"]

    for layer in mine:
        if layer == 0:
            await last_sum()
        for piece in coming.pop(layer, []):
            grads[layer] = grads[layer].combine(await piece)
        grads[layer] = model.orthogonalize(layer, grads.pop(layer))
        await last_sum()
        sends += [model.pass_to(other, grads[layer].shard(other, n)) for other in others]
        update(layer, grads.pop(layer).shard(r, n))
    await last_sum()
    for layer in theirs:
        update(layer, await back.pop(layer))
    for send in sends:
        await send
    return model


async def muon_with_sums(model: Model, owned: bool = True) -> Model:
    """Muon without messages: an owner keeps the whole sum, and the direction is dealt out by a reduce-scatter. Without
    owners every rank makes every direction."""
    n, r, grads = model.RANKS, model.rank, model.grad_weights
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, r, n)

    model.activations[0] = model.get_activation([r])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        whole = await model.allreduce(grad, layer)
        if not owned:
            grads[layer] = model.orthogonalize(layer, whole).shard(r, n)
        elif layer % n == r:
            grads[layer] = whole
    del model.grad_activations[0]

    for first in range(0, model.LAYERS, n):
        if owned and first + r in grads:
            grads[first + r] = model.orthogonalize(first + r, grads.pop(first + r))
        for layer in range(first, min(first + n, model.LAYERS)):
            direction = grads.pop(layer) if layer in grads else model.fake_grad(layer, [])
            if owned:
                direction = await model.scatterreduce(direction, layer)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, direction, model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])
    return model


muon_by_sums = partial(muon_with_sums, owned=True)


def of_muon(program: object, layers: int = 8) -> Run:
    """A run at the prices of this puzzle."""
    cost = Cost(orthogonalize=2)
    return run(program, ranks=4, layers=layers, batches=4, train="muon", cost=cost)


def all_do_all(static: bool = False) -> Figure:
    """Every rank does every matrix, of two layers."""
    return draw(
        of_muon(partial(muon_with_sums, owned=False), 2),
        title="all do all",
        memory=False,
        static=static,
    )


def ahead(static: bool = False) -> Figure:
    """The star."""
    return draw(of_muon(muon_ahead), title="ahead", static=static)


# %% tags=["figures"]
ahead, by_sums = of_muon(muon_ahead), of_muon(muon_by_sums)
all_do = of_muon(partial(muon_with_sums, owned=False), 2)
passes, updates = layers * (cost.forward + cost.backward), layers * cost.update
matrices = layers * cost.orthogonalize // ranks
bound = passes + updates + matrices
