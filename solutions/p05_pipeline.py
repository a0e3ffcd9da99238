# %% [markdown]
# # Puzzle 5: Pipeline parallel
#
# Another way to share the work: not the batch, but the layers. Each rank holds a few layers, whole, and hands activations on.

# %%
from drawing import draw, draw_group
from lib import Model, grade, run

# %% tags=["spec"]
PUZZLE = {
    "number": 5,
    "name": "pipeline",
    "title": "Pipeline parallel",
    "size": {"ranks": 4, "layers": 8, "batches": 4},
    "other_sizes": "pipeline",
    "target": {"time": 67.4, "memory": 3145728},
    "best_known": {"time": 67.4, "memory": 2621440},
    "layout": "stages",
    "rules": [],
    "minutes": 20,
    "hints": [
        "Rank r runs layers r * n to (r + 1) * n - 1, with n = LAYERS / RANKS. It needs no other weights.",
        "The first rank begins with get_activation, every other one with receive; the last rank calls loss, every other one passes its output on.",
        "Backward runs the other way round: receive the gradient from the rank above, walk your layers down, pass the gradient to the rank below.",
    ],
}

# %% [markdown]
# ## Point to point
#
# `await model.pass_to(rank, v)` sends one tensor, in 0.2 ticks; `await model.receive()` takes the next message, or `receive(src=1)` the next from rank 1, in 0.2 ticks once it is there. A send never waits for its
# receiver. A message that waits is memory of the receiver.

# %%
async def hand_over(model: Model) -> Model:
    """Rank 0 computes something, rank 1 gets it."""
    if model.rank == 0:
        model.weights[0], _ = model.load_weights(0)
        model.activations["made"] = model.forward(0, model.get_activation([0]), model.weights[0])
        await model.pass_to(1, model.activations["made"])
    else:
        model.activations["received"] = await model.receive(src=0)
    return model


draw_group({f"rank {m.rank}": m.activations for m in run(hand_over, ranks=2, layers=1).models})

# %% [markdown]
# ## Your task
#
# Split the layers over the ranks: every layer on one rank, every rank the same number of layers. Train the whole batch (all micro-batches in one activation). Target, for 4 ranks, 8 layers and
# 4 micro-batches: time **67.4** ticks, peak memory **3,145,728** elements.
#
# Look at the picture when you are done. Something is wrong with this schedule; the next puzzle mends it.

# %%
async def pipeline(model: Model) -> Model:
    """Layers are split over the ranks; the whole batch goes through them."""
    ### BEGIN SOLUTION
    per_stage = model.LAYERS // model.RANKS
    first, end = model.rank * per_stage, (model.rank + 1) * per_stage
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    if is_first:
        model.activations[first] = model.get_activation(range(model.BATCHES))
    else:
        model.activations[first] = await model.receive(src=model.rank - 1)
    for layer in range(first, end):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])

    if is_last:
        model.grad_activations[end] = model.loss(model.activations.pop(end))
    else:
        await model.pass_to(model.rank + 1, model.activations.pop(end))
        model.grad_activations[end] = await model.receive(src=model.rank + 1)
    for layer in reversed(range(first, end)):
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), model.weights[layer]
        )
    if not is_first:
        await model.pass_to(model.rank - 1, model.grad_activations.pop(first))

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model

# %%
draw(run(pipeline, ranks=4, layers=8, batches=4))

# %% [markdown]
# Right, fast enough, small enough, and at other sizes too?

# %%
grade(pipeline)

# %% [markdown]
# ## Where this is in real systems
#
# Splitting a model by layers without more is what people call naive model parallelism (`device_map="auto"` does it for inference): it fits a model that one GPU cannot hold, and keeps one GPU busy at a time.
# Its strength is communication: only activations at the cuts cross the links, so it works over slow ones.
