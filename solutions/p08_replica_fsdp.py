# %% [markdown]
# # Puzzle 8: Replica-FSDP (hybrid sharding)
#
# Eight ranks in two boxes. Links inside a box are fast, links between boxes are slow: 0.3 ticks for a collective in one box, 1.5 across. Plain FSDP gathers every layer across the slow ones.

# %%
from drawing import draw
from lib import Model, grade, run

# %% tags=["spec"]
PUZZLE = {
    "number": 8,
    "name": "replica_fsdp",
    "title": "Replica-FSDP (hybrid sharding)",
    "size": {"ranks": 8, "layers": 6, "batches": 16, "mesh": {"replica": 2, "shard": 4}, "node_size": 4},
    "other_sizes": "replica_fsdp",
    "target": {"time": 55.8, "memory": 2162688},
    "best_known": {"time": 55.8, "memory": 2162688},
    "layout": "replica_sharded",
    "rules": [],
    "minutes": 45,
    "hints": [
        "Gather and reduce-scatter inside the box for every micro-batch: model.allgather(v, layer, axis='shard').",
        "Keep adding up your own gradient piece. Only after the last micro-batch, reduce-scatter the sum across the boxes, once for each layer: axis='replica'.",
        "state.shard(replica, replicas) of piece s of 4 is piece s * 2 + replica of 8. Update weight.shard(replica, replicas) with it, then all-gather the updated weight with axis='replica'.",
    ],
}

# %% [markdown]
# ## Meshes, boxes, slow links
#
# `mesh={"replica": 2, "shard": 4}` arranges ranks in a grid; the last axis runs fastest. `axis_index("shard")` tells where you are, `axis_size("shard")` how many there are.
# A collective with `axis="shard"` joins the ranks that differ from you in that coordinate only: with `node_size=4` these sit in one box. `axis="replica"` joins a rank with its twin in the other box.
#
# For comparison: FSDP of puzzle 4 over all 8 ranks and two micro-batches each takes **81.0** ticks and 1,769,472 elements on these boxes. Most of it is waiting for slow links:

# %%
async def fsdp_on_boxes(model: Model) -> Model:
    """Plain FSDP over all ranks, two micro-batches one after the other."""
    mine = model.BATCHES // model.RANKS
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    for batch in range(model.rank * mine, (model.rank + 1) * mine):
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            weight = await model.allgather(model.weights[layer], layer)
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            weight = await model.allgather(model.weights[layer], layer)
            grad, model.grad_activations[layer] = model.backward(
                layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), weight
            )
            grad = await model.scatterreduce(grad, layer)
            before = model.grad_weights.pop(layer, None)
            model.grad_weights[layer] = grad if before is None else before + grad
        del model.grad_activations[0]
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


boxes = {"mesh": {"replica": 2, "shard": 4}, "node_size": 4}
draw(run(fsdp_on_boxes, ranks=8, layers=6, batches=16, **boxes), memory=False, title="Plain FSDP on two boxes")

# %% [markdown]
# ## Your task
#
# Weights are sharded over `shard` (4 pieces, the same on both replicas), optimizer states over both axes (8 pieces: piece `shard_index * 2 + replica_index`). Rank `r` trains micro-batches `2r` and `2r + 1`, one after the other.
#
# For each micro-batch: gather each weight in the box, forward; gather, backward, reduce-scatter in the box, add to your own gradient piece. After the last one, for each layer: reduce-scatter across
# replicas, update the eighth whose state you have, all-gather across replicas. Each rank ends with its quarter of the weights and its eighth of the states, updated.
#
# The trap: across replicas, reducing every micro-batch is slow; reducing the running sum every time counts gradients twice; never reducing lets the replicas drift apart. Target: time **55.8** ticks, peak memory **2,162,688** elements.

# %%
async def replica_fsdp(model: Model) -> Model:
    """FSDP inside each box, data parallel between boxes, optimizer states sharded over everything."""
    ### BEGIN SOLUTION
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    replica, replicas = model.axis_index("replica"), model.axis_size("replica")
    mine = model.BATCHES // model.RANKS
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer, shard, shards)
        model.opt_states[layer] = state.shard(replica, replicas)

    for batch in range(model.rank * mine, (model.rank + 1) * mine):
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            weight = await model.allgather(model.weights[layer], layer, axis="shard")
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            weight = await model.allgather(model.weights[layer], layer, axis="shard")
            grad, model.grad_activations[layer] = model.backward(
                layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), weight
            )
            grad = await model.scatterreduce(grad, layer, axis="shard")
            before = model.grad_weights.pop(layer, None)
            model.grad_weights[layer] = grad if before is None else before + grad
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
draw(run(replica_fsdp, ranks=8, layers=6, batches=16, mesh={"replica": 2, "shard": 4}, node_size=4))

# %% [markdown]
# Right, fast enough, small enough, and at other sizes too?

# %%
grade(replica_fsdp)

# %% [markdown]
# ## Where this is in real systems, and when to use what
#
# Levanter calls this replica-FSDP (or partially sharded data parallel), MiCS (arXiv 2205.00119) sharding over groups, PyTorch HYBRID_SHARD. With N = r * s ranks a rank holds 4/s bytes a parameter of weights and gradients and 12/N of states. Across boxes it sends 2(r - 1)/r of its
# 1/s of the model once a step, where plain FSDP sends three times the whole for every micro-batch.
#
# **When to combine what.** If a model's states fit on one GPU, data parallel is hard to beat. If not, shard: over one box first, over more boxes only as far as memory demands. When links between boxes are too slow even for that, cut by layers: a pipeline sends the least.
# A pipeline wants many micro-batches, sharding wants large ones; the batch size that optimization allows decides between them.
#
# **What these nine leave out.** How many layers are wrapped into one gather (granularity: larger ones overlap better and take more memory). A tensor-parallel axis beside replica and shard, which splits every matrix inside a box. Sequence and expert parallelism. Recomputing activations.
# Offloading states to the CPU. LoRA, which trains few weights and so needs few states; and quantized weights or gradients, which make everything that is moved smaller.
