# %% [markdown]
# # Puzzle 6: GPipe
#
# The ranks of the last puzzle wait most of the time. That waiting is called the *bubble*.

# %%
from drawing import draw
from lib import Model, grade, run

# %% tags=["spec"]
PUZZLE = {
    "number": 6,
    "name": "gpipe",
    "title": "GPipe",
    "size": {"ranks": 4, "layers": 8, "batches": 4},
    "other_sizes": "pipeline",
    "target": {"time": 33.8, "memory": 4194304},
    "best_known": {"time": 33.2, "memory": 2621440},
    "layout": "stages",
    "rules": [],
    "minutes": 25,
    "hints": [
        "While rank 1 works on one micro-batch, rank 0 could begin the next.",
        "Loop over the micro-batches: receive one, run your layers, pass it on. All forwards first, then all backwards, in the same order.",
        "Keep the activations of all micro-batches under keys such as (layer, batch), and add up the weight gradients as in puzzle 1.",
    ],
}

# %% [markdown]
# ## Your task
#
# The same split of layers, but send the micro-batches through one after the other. Target, for 4 ranks, 8 layers and 4 micro-batches: time **33.8** ticks, peak memory **4,194,304** elements.
#
# With p stages and m micro-batches, no such schedule is faster than (m + p - 1)/m times the work of one rank: the rest is bubble. Can you do it in less memory, in the same time?

# %%
async def gpipe(model: Model) -> Model:
    """All micro-batches forward through the stages, then all of them back."""
    ### BEGIN SOLUTION
    per_stage = model.LAYERS // model.RANKS
    first, end = model.rank * per_stage, (model.rank + 1) * per_stage
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    for batch in range(model.BATCHES):
        if is_first:
            model.activations[first, batch] = model.get_activation([batch])
        else:
            model.activations[first, batch] = await model.receive(src=model.rank - 1)
        for layer in range(first, end):
            model.activations[layer + 1, batch] = model.forward(
                layer, model.activations[layer, batch], model.weights[layer]
            )
        if not is_last:
            await model.pass_to(model.rank + 1, model.activations.pop((end, batch)))

    for batch in range(model.BATCHES):
        if is_last:
            model.grad_activations[end] = model.loss(model.activations.pop((end, batch)))
        else:
            model.grad_activations[end] = await model.receive(src=model.rank + 1)
        for layer in reversed(range(first, end)):
            grad, model.grad_activations[layer] = model.backward(
                layer, model.activations.pop((layer, batch)), model.grad_activations.pop(layer + 1), model.weights[layer]
            )
            model.grad_weights[layer] = grad if batch == 0 else model.grad_weights[layer] + grad
        grad = model.grad_activations.pop(first)
        if not is_first:
            await model.pass_to(model.rank - 1, grad)

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model

# %% [markdown] tags=["solution"]
# A rank need not wait for the last forward before its first backward: *one forward, one backward* frees activations earlier.

# %% tags=["solution"]
async def one_forward_one_backward(model: Model) -> Model:
    """1F1B: after a warm-up, every stage alternates, so few micro-batches are in flight."""
    per_stage = model.LAYERS // model.RANKS
    first, end = model.rank * per_stage, (model.rank + 1) * per_stage
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    async def forward(batch: int) -> None:
        if is_first:
            model.activations[first, batch] = model.get_activation([batch])
        else:
            model.activations[first, batch] = await model.receive(src=model.rank - 1)
        for layer in range(first, end):
            model.activations[layer + 1, batch] = model.forward(
                layer, model.activations[layer, batch], model.weights[layer]
            )
        if not is_last:
            await model.pass_to(model.rank + 1, model.activations.pop((end, batch)))

    async def backward(batch: int) -> None:
        if is_last:
            model.grad_activations[end] = model.loss(model.activations.pop((end, batch)))
        else:
            model.grad_activations[end] = await model.receive(src=model.rank + 1)
        for layer in reversed(range(first, end)):
            grad, model.grad_activations[layer] = model.backward(
                layer, model.activations.pop((layer, batch)), model.grad_activations.pop(layer + 1), model.weights[layer]
            )
            model.grad_weights[layer] = grad if batch == 0 else model.grad_weights[layer] + grad
        grad = model.grad_activations.pop(first)
        if not is_first:
            await model.pass_to(model.rank - 1, grad)

    warm_up = min(model.RANKS - 1 - model.rank, model.BATCHES)
    for batch in range(warm_up):
        await forward(batch)
    for batch in range(model.BATCHES - warm_up):
        await forward(warm_up + batch)
        await backward(batch)
    for batch in range(model.BATCHES - warm_up, model.BATCHES):
        await backward(batch)

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(one_forward_one_backward, ranks=4, layers=8, batches=4))

# %%
draw(run(gpipe, ranks=4, layers=8, batches=4))

# %% [markdown]
# Right, fast enough, small enough, and at other sizes too?

# %%
grade(gpipe)

# %% [markdown]
# ## Where this is in real systems
#
# GPipe (arXiv 1811.06965) trains this way; PipeDream-flush and Megatron-LM start a backward as soon as they can (*one forward, one backward*). That takes the same time, but a stage holds at most p micro-batches
# instead of m: it saves memory, not time. Interleaved stages (several pieces of the model on each rank) and zero-bubble schedules, which split the backward in two, make the bubble smaller.
