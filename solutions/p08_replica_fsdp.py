# %% [markdown]
# # Puzzle 8: Replica-FSDP (hybrid sharding)
#
# Here are two nodes of four ranks. A collective takes {{cost.collective}} ticks in a node, and
# **{{cost.collective_across}}** between nodes. So FSDP over all ranks mostly waits. What must leave a node?
#
# ![Puzzle 4 on two nodes: rank 0 waits for collectives](picture:all_across)
#
# The ranks are a grid; each row is a node:
#
# ```python
# place, places = model.axis_index("shard"), model.axis_size("shard")
# await model.allgather(v, layer, axis="shard")  # along your row; axis="replica": your column
# half = v.shard(0, 2)
# ```

# %%
from drawing import beside_target, compare, draw, play
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 8,
    "name": "replica_fsdp",
    "title": "Replica-FSDP (hybrid sharding)",
    "size": {
        "ranks": 8,
        "layers": 6,
        "batches": 16,
        "mesh": {"replica": 2, "shard": 4},
        "node_size": 4,
    },
    "other_sizes": "replica_fsdp",
    "target": {"time": 55.8, "memory": 2162688},
    "star": {"time": 41.7, "memory": 2162688},
    "frontier": [
        {"time": 41.5, "memory": 2162688, "by": "replica_fsdp_in_41_5"},
    ],
    "layout": "replica_sharded",
    "begins_with": "fsdp",
    "ideas": ["as_many_each", "no_whole_gradient", "summed_across_once"],
    "difficulty": "hard",
    "minutes": 60,
    "hints_for": {"slow": 2, "large": 2},
    "star_hint": "Between the nodes a call takes long, and the ranks only wait for it. What could be "
    "on its way between the nodes while the micro-batches are still being computed?",
    "hints": [
        "Start from puzzle 4, over all ranks. Which of its collectives have to cross the nodes? "
        "Which could stay inside, if each node held all weights? And how often do the others have to cross?",
        "What crosses the nodes takes most of the time. So for each micro-batch do what FSDP does, but with "
        '`axis="shard"`, inside a node. That leaves you a quarter of each gradient in memory, summed over your '
        'node and both micro-batches. After the last micro-batch, a reduce-scatter with `axis="replica"` '
        "gives you half of that quarter, the part of your state, summed over all ranks. Which weight do you update "
        "with it?",
        "Begin: `model.weights[layer], state = model.load_weights(layer, shard, shards)` and "
        "`model.opt_states[layer] = state.shard(replica, replicas)`. End, for each layer: "
        '`grad = await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="replica")`, `update` with '
        "`model.weights[layer].shard(replica, replicas)`, and "
        '`model.weights[layer] = await model.allgather(weight, layer, axis="replica")`.',
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step, two micro-batches a rank.
#
# - Each node holds all weights, one shard on each rank. Each shard's state is cut again, a piece for each node.
# - {{ideas}}
# - Other grids are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def replica_fsdp(model: Model) -> Model:
    """Weights sharded in each node, the nodes as replicas, states sharded over everything."""
    ### BEGIN SOLUTION
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    replica, replicas = model.axis_index("replica"), model.axis_size("replica")
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer, shard, shards)
        model.opt_states[layer] = state.shard(replica, replicas)

    share = model.BATCHES // model.RANKS
    for mb in range(model.rank * share, (model.rank + 1) * share):
        model.activations[0] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            weight = await model.allgather(model.weights[layer], layer, axis="shard")
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], weight
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            weight = await model.allgather(model.weights[layer], layer, axis="shard")
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
            grad = await model.scatterreduce(grad, layer, axis="shard")
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        grad = await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="replica")
        weight, model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer].shard(replica, replicas), model.opt_states[layer]
        )
        model.weights[layer] = await model.allgather(weight, layer, axis="replica")
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(
    run(
        replica_fsdp,
        ranks=8,
        layers=6,
        batches=16,
        mesh={"replica": 2, "shard": 4},
        node_size=4,
    )
)

# %%
# Right? Fast and small enough? At other sizes, too?
grade(replica_fsdp)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements (the best known program takes {{ahead.time}} ticks). To
# earn it, let the slow calls run while a rank computes ("start now, fetch later", as in [puzzle 2](p02_ddp.ipynb)).
# Here a rank makes one call at a time, so a call in the node waits for an earlier call between nodes. (On real GPUs,
# calls along two axes do not wait for each other. In the section "On real GPUs", ours do not either.) To watch your
# own run, with the line that each rank is at:

# %%
play(
    run(
        replica_fsdp,
        ranks=8,
        layers=6,
        batches=16,
        mesh={"replica": 2, "shard": 4},
        node_size=4,
    )
)

# %% [markdown]
# ### What each GPU holds
#
# Here is a program that passes, at the moment when memory is highest. The four GPUs of a node (0 to 3, 4 to 7) have all
# weights between them, a quarter each. Of the optimizer states each GPU has an eighth.
#
# ![Eight GPUs of two nodes: a quarter of each weight, and an eighth of each optimizer state](picture:two_nodes)
#
# ### Plain FSDP on the same machine
#
# Here is puzzle 4 over all 8 ranks, with two micro-batches for each, one after the other. It takes {{flat.time}} ticks
# and {{flat.memory}} elements. Each rank computes for {{each}} ticks. For the other {{flat.time - each}} it waits for
# {{crossings}} collectives, which all cross the nodes.


# %%
async def fsdp_on_nodes(model: Model) -> Model:
    """Everything sharded over all ranks, as if all links were the same."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    share = model.BATCHES // model.RANKS
    for mb in range(model.rank * share, (model.rank + 1) * share):
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
            grad = await model.scatterreduce(grad, layer)
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


nodes = {"mesh": {"replica": 2, "shard": 4}, "node_size": 4}
draw(run(fsdp_on_nodes, ranks=8, layers=6, batches=16, **nodes), memory=False)

# %%
# Side by side, the same batch. Look at what goes between the nodes.
compare(
    run(fsdp_on_nodes, ranks=8, layers=6, batches=16, **nodes),
    run(replica_fsdp, ranks=8, layers=6, batches=16, **nodes),
)

# %% [markdown]
# ### The trap
#
# *When* do you sum across the nodes? Summing after every micro-batch is slow. If each sum takes all that a rank has
# added up so far, early gradients count twice. If you never do it, you have two models that drift apart.
#
# A program with an all-reduce between the nodes passes, too, since it takes no longer on our machine. On real links it
# sends twice as much, and your update would use only half of what it brings.
#
# ### Why it matters
#
# In a node of H100s a GPU sends {{IN_NODE}} GB a second over NVLink. To another node it sends {{BETWEEN}} over its
# network card ({{CABLE}} Gbit/s), {{IN_NODE // BETWEEN:word}} times less. But a collective over whole nodes uses all of
# their cards at once ([puzzle 20](p20_hierarchical.ipynb)). So it matters whether each GPU has a card of its own, and
# whether calls are awaited. Here are our estimates for a step of Llama 2 7B with two micro-batches on each GPU, in
# seconds:
#
# | | FSDP, calls awaited | your task, calls awaited | FSDP, gathers ahead | the star's idea, gathers ahead |
# |---|---|---|---|---|
# | 2 nodes of 8 A100s that share {{gbits}} Gbit/s, {{CONTEXT}} tokens a micro-batch | {{p4d[0]:.2f}} | {{p4d[1]:.2f}} | {{p4d[2]:.2f}} | {{p4d[3]:.2f}} |
# | the same, {{CONTEXT // 2}} tokens | {{short[0]:.2f}} | {{short[1]:.2f}} | {{short[2]:.2f}} | {{short[3]:.2f}} |
# | 2 nodes of 8 H100s, a card for each, {{CONTEXT}} tokens | {{few[0]:.2f}} | {{few[1]:.2f}} | {{few[2]:.2f}} | {{few[3]:.2f}} |
#
# If calls are awaited, your program is faster where the GPUs of a node share a card. On two nodes of H100s the
# difference is too small to mean anything. On many nodes it depends on the latency between nodes, which we have not
# measured. If weights are gathered ahead, as real systems do, FSDP is slower only where a micro-batch is too short to
# hide the gathers. Elsewhere a copy of the weights in each node only takes memory.

# %% [markdown] tags=["solution"]
# ### Faster: the slow links work while no rank waits
#
# Calls between the nodes are slow, and every rank stands still for them. So start a layer's sum between the nodes right
# after its last sum in the node, and fetch it when all layers have started theirs. In the node, gather the next weight
# while this layer is computed, and take the sum of a layer when the next one has been computed. The weight of layer 0
# is the last of a micro-batch and the first of the next, so keep it.
#
# In the last backward pass the network is busy to the end, and it makes its calls in the order in which they are
# started. So there the order counts: start the next gather in the node before the slow sum between the nodes, or else
# the rank waits for both. In that pass, also await each sum in the node at once, since the sum between the nodes needs
# it. That takes {{ahead.time}} ticks, and not an element more.


# %% tags=["solution"]
async def replica_fsdp_in_41_5(model: Model) -> Model:
    """As above, with the collectives of both axes under way while the rank computes."""
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    replica, replicas = model.axis_index("replica"), model.axis_size("replica")
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer, shard, shards)
        model.opt_states[layer] = state.shard(replica, replicas)

    share, top = model.BATCHES // model.RANKS, model.LAYERS - 1
    mine = range(model.rank * share, (model.rank + 1) * share)
    gathers, sums, across, updated = {}, {}, {}, {}  # calls under way, by layer

    def gather(layer: int) -> None:
        gathers[layer] = model.allgather(model.weights[layer], layer, axis="shard")

    async def add(layer: int) -> None:
        if layer in sums:
            grad = await sums.pop(layer)
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad

    gather(0)
    for mb in mine:
        model.activations[0] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            if layer in gathers:
                model.weights["whole"] = await gathers.pop(layer)
            if layer < top:
                gather(layer + 1)
            inp, weight = model.activations[layer], model.weights["whole"]
            model.activations[layer + 1] = model.forward(layer, inp, weight)
            if layer < top:
                del model.weights["whole"]
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

        for layer in reversed(range(model.LAYERS)):
            if layer in gathers:
                model.weights["whole"] = await gathers.pop(layer)
            if mb < mine[-1] and 0 < layer < top:
                gather(layer - 1)
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            weight = model.weights["whole"]
            if layer > 0 or mb == mine[-1]:
                del model.weights["whole"]
            grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
            sums[layer] = model.scatterreduce(grad, layer, axis="shard")
            del grad, weight
            if layer > 0 and layer - 1 not in gathers:
                gather(layer - 1)
            if mb < mine[-1]:
                await add(layer + 1)
            else:
                await add(layer)
                grad = model.grad_weights.pop(layer)
                across[layer] = model.scatterreduce(grad, layer, axis="replica")
        await add(0)
        del model.grad_activations[0]

    for layer, call in across.items():
        grad, piece = await call, model.weights.pop(layer).shard(replica, replicas)
        weight, model.opt_states[layer] = model.update(
            layer, grad, piece, model.opt_states[layer]
        )
        updated[layer] = model.allgather(weight, layer, axis="replica")
    for layer, call in updated.items():
        model.weights[layer] = await call
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(replica_fsdp_in_41_5, ranks=8, layers=6, batches=16, **nodes))

# %% [markdown] tags=["solution"]
# ### For the repairs R7 and R8
#
# In these two [programs to repair](repairs.ipynb) a rank keeps the states of its whole quarter, so an all-reduce
# between the nodes is enough. The letters in `gathers` say when the next weight is gathered in the backward pass, as in
# puzzle 4: before the backward (`b`) or after the sum in the node (`s`). The last letter also holds for all layers
# below. Each program is named after its ticks, and stays within the target's memory.


# %% tags=["solution"]
from functools import partial
from typing import Any


async def hybrid_overlapped(model: Model, gathers: str) -> Model:
    """Hybrid sharding in which calls run while the rank works; the last letter of ``gathers`` is for all other
    layers."""
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, shards)

    share, top = model.BATCHES // model.RANKS, model.LAYERS - 1
    mine = range(model.rank * share, (model.rank + 1) * share)
    ahead, across = None, {}  # calls under way

    def gather(layer: int) -> Any:
        return model.allgather(model.weights[layer], layer, axis="shard")

    async def update(layer: int) -> None:
        grad = await across.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    model.weights["whole"] = await gather(0)
    for batch in mine:
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            if layer:
                model.weights["whole"] = await ahead
            if layer < top:
                ahead = gather(layer + 1)
            inp, weight = model.activations[layer], model.weights["whole"]
            model.activations[layer + 1] = model.forward(layer, inp, weight)
            if layer < top:
                del model.weights["whole"]
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

        for turn, layer in enumerate(reversed(range(model.LAYERS))):
            when = gathers[min(turn, len(gathers) - 1)] if layer else "never"
            if turn:
                model.weights["whole"] = await ahead
            if when == "b":
                ahead = gather(layer - 1)
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            weight = model.weights["whole"]
            if layer or batch == mine[-1]:
                del model.weights["whole"]
            grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
            call = model.scatterreduce(grad, layer, axis="shard")
            del grad, weight
            if when == "s":
                ahead = gather(layer - 1)
            if not layer:
                del model.grad_activations[0]
            grad = await call
            if layer in model.grad_weights:
                grad = model.grad_weights.pop(layer) + grad
            if batch < mine[-1]:
                model.grad_weights[layer] = grad
                continue
            across[layer] = model.allreduce(grad, layer, axis="replica")
            if layer < top:
                await update(layer + 1)
    await update(0)
    return model


hybrid_in_7_7 = partial(hybrid_overlapped, gathers="s")
hybrid_in_53_3 = partial(hybrid_overlapped, gathers="ssb")

# %% [markdown] tags=["solution"]
# ### The pictures of what each GPU holds, and of plain FSDP


# %% tags=["solution"]
from drawing import Figure, holds


def two_nodes(static: bool = False) -> Figure:
    """What each GPU holds when memory is highest."""
    return holds(run(replica_fsdp, ranks=8, layers=6, batches=16, **nodes), static=static)


def all_across(static: bool = False) -> Figure:
    """Rank 0 of plain FSDP on two nodes."""
    done = run(fsdp_on_nodes, ranks=8, layers=6, batches=16, **nodes)
    return draw(done.models[0], memory=False, title="puzzle 4 on two nodes", static=static)


# %% [markdown]
# ### Where real systems do this
#
# The name "replica FSDP" is from issue 325 of Levanter. What you have built, with weights over the node and states over
# all ranks, is what Megatron-FSDP calls HFSDP: ZeRO-1 outside, ZeRO-3 inside. MiCS (arXiv 2205.00119), which shards
# over groups of ranks, is a relative. PyTorch's FSDP has `HYBRID_SHARD`: full sharding in the node, and each node a
# replica. It shards the states over the node only, which takes {{TRAINED}}/s bytes for each parameter with s ranks in a
# node. With states over all N ranks, as here, it is {{WEIGHT + GRADIENT}}/s + {{STATE}}/N.
#
# With r replicas, a rank sends 2(r - 1)/r of its *piece* of the gradient between nodes, *once a step*. And the trap
# is real. Take two nodes of eight A100, with Ethernet in between. With gradients reduced between the nodes after
# every micro-batch, each micro-batch took {{every_time}} s, and a step of four took {{4 * every_time:.1f}} s. With
# gradients reduced once, such a step took {{once_least}} to {{once_most}} s (NVIDIA cosmos-framework, issue 161; how
# much it saves depends on the links).
#
# In PyTorch you call `set_requires_all_reduce(False)` for all micro-batches but the last. The reduce-scatter in the
# node stays, and only the all-reduce between the nodes waits. Without that call you are in the trap. So was torchtitan
# until 2026. With six layers and two micro-batches, a rank of PyTorch {{TORCH}} makes
# {{recorded(hybrid, "all-reduces")}} all-reduces between the nodes. With that call it makes
# {{recorded(hybrid_once, "all-reduces")}}, each right after the reduce-scatter of its layer in the last backward pass
# (`tests/torch_truth/TABLE.md`). An all-reduce is enough there, because every node has all states and needs no gather
# from the other.
#
# ### On real GPUs
#
# Two nodes with eight GPUs each, which share one connection of {{gbits}} Gbit/s. That is slow beside NVLink, so here it
# matters what goes between the nodes.
#
# ![What a step takes](picture:priced)
#
# Plain FSDP takes {{p4d[0]:.2f}} s on the same two nodes, since all its gathers and sums go over the slow connection.
# To bring your answer to puzzle 4 here, write `from lib import attempt` and `fsdp = attempt("fsdp")`.

# %% tags=["priced"]
from lib.real import A100_40_P4D, LLAMA_2_7B, report

priced = run(
    replica_fsdp,
    ranks=16,
    layers=32,
    batches=32,
    mesh={"replica": 2, "shard": 8},
    cost=A100_40_P4D.cost(LLAMA_2_7B, recompute="full"),
)
print(report(priced))

# %% [markdown]
# ### When to combine what
#
# - Everything fits on one GPU: plain data parallel (puzzle 2). It sends little, and hides it well.
# - The model does not fit on one GPU: shard it (puzzle 4), first inside a node, where links are fast. Shard over more
#   nodes when memory demands it, or where the gathers hide behind the work. Otherwise make each node a replica
#   (puzzle 8).
# - Links are too slow even for that, or one node is too small for the model: cut it into stages (puzzles 5 and 6). A
#   pipeline sends the least. It needs many micro-batches, while sharding needs large ones, and the batch can only be so
#   large (puzzle 7).
# - Gradient accumulation (puzzle 1) goes with all of them, and makes what is sent once a step cheaper.
#
# ### What comes next
#
# The puzzles that follow are about what people do when this is not enough. Puzzles 9 and 10 shard the states, but not
# the weights. Puzzle 11 computes activations again, and puzzle 22 moves states to the host. Puzzle 12 gathers ahead of
# time, and from puzzle 13 on bubbles shrink. Tensor parallelism is a third axis beside replica and shard. LoRA trains
# small matrices beside frozen weights, even weights of 4 bits (puzzle 23). Puzzles 25 to 28 have very long sequences
# and mixtures of experts. Real machines can also compute in 8 bits (`fp8=True` in `cost`). You know enough to judge
# each of them: what does it keep, what does it send, and who waits?

# %% tags=["figures"]
ours, ahead, flat = (
    run(fn, **size) for fn in (replica_fsdp, replica_fsdp_in_41_5, fsdp_on_nodes)
)
assert ahead.memory <= ours.memory
each = layers * 2 * (cost.forward + cost.backward + 0.0) + layers * cost.update
crossings = 2 * 3 * layers

every_time, once_least, once_most = (
    published(value, "cosmos-framework, issue 161") for value in (22.2, 54.3, 54.9)
)
hybrid = "hybrid mesh, 6 layers, 2 micro-batches"
hybrid_once = "the same, set_requires_all_reduce(False) in the first"
gbits = 400  # of a p4d.24xlarge, for all its GPUs

from dataclasses import replace

from lib.real import H100_DGX, Cluster
from lib.study.planned import sharded


def seconds(cluster: Cluster, nodes: int, tokens: int) -> list[float]:
    """Seconds of a step of FSDP and of this puzzle, each call awaited, and of both with weights gathered ahead."""
    cost = cluster.cost(replace(LLAMA_2_7B, sequence=tokens), recompute="full")
    programs = (
        (fsdp_on_nodes, nodes),
        (replica_fsdp, nodes),
        (sharded, 1),
        (replica_fsdp_in_41_5, nodes),
    )
    size = {"ranks": 8 * nodes, "layers": 32, "batches": 16 * nodes, "cost": cost}
    return [
        run(
            fn,
            mesh={"replica": parts, "shard": 8 * nodes // parts},
            represent=True,
            **size,
        ).seconds
        for fn, parts in programs
    ]


p4d, short = (seconds(A100_40_P4D, 2, tokens) for tokens in (CONTEXT, CONTEXT // 2))
few = seconds(H100_DGX, 2, CONTEXT)
assert p4d[1] == priced.seconds
