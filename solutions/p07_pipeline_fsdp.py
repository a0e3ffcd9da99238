# %% [markdown]
# # Puzzle 7: Pipeline and FSDP
#
# Sixteen ranks, four layers, four micro-batches. Four pipelines of four stages each, and the weights sharded over all sixteen.

# %%
from drawing import draw
from lib import Model, grade, run

# %% tags=["spec"]
PUZZLE = {
    "number": 7,
    "name": "pipeline_fsdp",
    "title": "Pipeline and FSDP",
    "size": {"ranks": 16, "layers": 4, "batches": 4},
    "other_sizes": "pipeline_fsdp",
    "target": {"time": 16.0, "memory": 966656},
    "best_known": {"time": 16.0, "memory": 704512},
    "layout": "sharded",
    "rules": [],
    "minutes": 40,
    "hints": [
        "Rank r is stage r % 4 of pipeline r // 4. Four pipelines run side by side, one micro-batch each; all 16 ranks hold 1/16 of every weight.",
        "A gather needs everyone: every rank takes part in the all-gather of every layer, in the order of the layers, and forgets the ones that it does not run.",
        "On the way back, every rank takes part in the reduce-scatter of every layer, too; those that did not run the layer bring model.fake_grad(layer, []).",
    ],
}

# %% [markdown]
# ## Your task
#
# Every weight and state is sharded over all 16 ranks. Rank `r` is stage `r % 4` of pipeline `r // 4`, which trains micro-batch `r // 4`. All ranks take part in the gathers and reduce-scatters of all layers;
# a rank that did not run a layer brings `model.fake_grad(layer, [])` to its reduce-scatter: the gradient of no micro-batches, which is zero.
#
# Target, for 4 layers: time **16.0** ticks, peak memory **966,656** elements.

# %%
async def pipeline_fsdp(model: Model) -> Model:
    """Four pipelines of four stages; weights, states and gradients sharded over all ranks."""
    ### BEGIN SOLUTION
    stages = 4
    stage, batch = model.rank % stages, model.rank // stages
    per_stage = model.LAYERS // stages
    first, end = stage * per_stage, (stage + 1) * per_stage
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        if layer == first:
            if stage == 0:
                model.activations[first] = model.get_activation([batch])
            else:
                model.activations[first] = await model.receive(src=model.rank - 1)
        weight = await model.allgather(model.weights[layer], layer)
        if first <= layer < end:
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
        if layer == end - 1 and stage < stages - 1:
            await model.pass_to(model.rank + 1, model.activations.pop(end))
    if stage == stages - 1:
        model.grad_activations[end] = model.loss(model.activations.pop(end))

    for layer in reversed(range(model.LAYERS)):
        if layer == end - 1 and stage < stages - 1:
            model.grad_activations[end] = await model.receive(src=model.rank + 1)
        weight = await model.allgather(model.weights[layer], layer)
        if first <= layer < end:
            grad, model.grad_activations[layer] = model.backward(
                layer, model.activations.pop(layer), model.grad_activations.pop(layer + 1), weight
            )
        else:
            grad = model.fake_grad(layer, [])
        model.grad_weights[layer] = await model.scatterreduce(grad, layer)
        if layer == first and stage > 0:
            await model.pass_to(model.rank - 1, model.grad_activations.pop(first))

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model

# %%
draw(run(pipeline_fsdp, ranks=16, layers=4, batches=4))

# %% [markdown]
# Right, fast enough, small enough, and at other sizes too?

# %%
grade(pipeline_fsdp)

# %% [markdown]
# ## Where this is in real systems
#
# Pipeline and data parallelism are combined in every training run of the largest models; with sharding over the data-parallel ranks the order of work matters. A pipeline that works depth-first gathers a layer once for every micro-batch; one that
# works breadth-first (arXiv 2211.05953) gathers it once for all. Here all ranks gather all layers, which keeps the code short and the links busy: real systems shard over the ranks of one stage only.
