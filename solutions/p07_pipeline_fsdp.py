# %% [markdown]
# # Puzzle 7: Pipeline and FSDP
#
# Four pipelines side by side are four times as fast as one, but they keep four copies of the model. FSDP keeps a single
# one, in shards. Can 16 ranks do both?
#
# ![Sixteen ranks as four pipelines of four stages, each rank with the input of its layer](picture:sixteen_ranks)
#
# All ranks join in each collective. To a sum of gradients, those that did not run the layer bring zero:
#
# ```python
# grad = model.fake_grad(layer, [])  # zero, from no micro-batch; takes no memory
# ```

# %%
from drawing import beside_target, draw, play
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 7,
    "name": "pipeline_fsdp",
    "title": "Pipeline and FSDP",
    "size": {"ranks": 16, "layers": 4, "batches": 4},
    "other_sizes": "pipeline_fsdp",
    "target": {"time": 16.0, "memory": 966656},
    "star": {"time": 11.9, "memory": 950272},
    "frontier": [
        {"time": 11.7, "memory": 933888, "by": "pipeline_fsdp_in_11_7"},
        {"time": 12.0, "memory": 786432, "by": "pipeline_fsdp_in_12"},
        {"time": 12.3, "memory": 688128, "by": "pipeline_fsdp_in_12_3"},
        {"time": 13.2, "memory": 671744, "by": "pipeline_fsdp_in_13_2"},
        {"time": 14.5, "memory": 655360, "by": "pipeline_fsdp_in_14_5"},
    ],
    "layout": "sharded",
    "begins_with": "fsdp",
    "ideas": ["four_stages", "no_whole_gradient"],
    "difficulty": "hard",
    "minutes": 45,
    "hints_for": {"slow": 2, "large": 2},
    "star_hint": "All ranks take part in the gather of every layer, and wait for each other there. Which gathers, and "
    "which sums, could be on their way while a stage computes?",
    "hints": [
        "Write it as one loop over *all* layers forward, and one over all layers backward. Each rank joins all "
        "collectives. What it does between them depends on whether the layer is its own.",
        "Which rank has to wait for what? A rank that waits for a message cannot take part in the gather of an "
        "earlier layer, and then nobody can. So receive in the turn of your own first layer, not before the loop, "
        "and pass on in the turn of your last. Every collective costs all ranks time: how few does a layer "
        "need? And nothing whole has to stay in memory from one turn to the next.",
        "Make one gather of each layer on the way forward, and one gather and one sum on the way back. Keep no "
        "whole weight and no whole gradient in memory. In each turn of the loop back over all layers: if this is "
        "your last layer, `receive` the gradient (or call `loss`). Then `allgather`. If the layer is yours, call "
        "`backward`; if not, `grad = model.fake_grad(layer, [])`. Then `model.grad_weights[layer] = await "
        "model.scatterreduce(grad, layer)`. If this is your first layer, `pass_to` the rank before. At the end each "
        "rank updates its shard of every layer.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step. The picture shows one way to place the ranks.
#
# - {{ideas}}
# - Rank `r` begins and ends with shard `r` of 16 of every weight and optimizer state.
# - Other sizes have more layers, a multiple of 4.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def pipeline_fsdp(model: Model) -> Model:
    """Four pipelines side by side, with everything that is kept sharded over all ranks."""
    ### BEGIN SOLUTION
    stages = model.RANKS // model.BATCHES
    stage, mb = model.rank % stages, model.rank // stages
    is_first, is_last = stage == 0, stage == stages - 1
    share = model.LAYERS // stages
    first, last = stage * share, (stage + 1) * share - 1
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    for layer in range(model.LAYERS):
        if layer == first and is_first:
            model.activations[first] = model.get_activation([mb])
        elif layer == first:
            model.activations[first] = await model.receive(src=model.rank - 1)
        weight = await model.allgather(model.weights[layer], layer)
        if first <= layer <= last:
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], weight
            )
        if layer == last and not is_last:
            await model.pass_to(model.rank + 1, model.activations.pop(last + 1))

    for layer in reversed(range(model.LAYERS)):
        if layer == last and is_last:
            model.grad_activations[last + 1] = model.loss(model.activations.pop(last + 1))
        elif layer == last:
            model.grad_activations[last + 1] = await model.receive(src=model.rank + 1)
        weight = await model.allgather(model.weights[layer], layer)
        grad = model.fake_grad(layer, [])
        if first <= layer <= last:
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        model.grad_weights[layer] = await model.scatterreduce(grad, layer)
        if layer == first and not is_first:
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

# %%
# Right? Fast and small enough? At other sizes, too?
grade(pipeline_fsdp)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. To earn it, let gathers and sums run while a stage
# computes ("start now, fetch later", as in [puzzle 2](p02_ddp.ipynb)). To watch your own run, with the line that each
# rank is at:

# %%
play(run(pipeline_fsdp, ranks=16, layers=4, batches=4))

# %% [markdown]
# ### Why it matters
#
# Training a model of {{LLAMA / BILLION}} billion parameters takes {{trained(LLAMA) / 1e12:.2f}} TB. A pipeline of four
# stages divides that by four: {{trained(LLAMA) / BILLION / 4}} GB on each GPU, which has {{CARD}}. Four such pipelines
# need just as much on each. If all 16 GPUs share everything, each keeps {{trained(LLAMA) / 1e12:.2f}} TB / {{ranks}} =
# {{trained(LLAMA) / ranks / BILLION}} GB, and the model fits.
#
# ### Other ways to deal the layers
#
# With more layers a stage runs two or three. They may follow each other: then the first stage has layers 0 and 1. Or
# the stages take turns: then it has layers 0 and 4, a micro-batch goes round all stages twice, and the last stage sends
# to the first one.

# %% [markdown] tags=["solution"]
# ### Faster: gather for the next stage while this one computes
#
# While one stage computes, the other ranks have nothing to do but gather, and the network is free. In the forward pass
# that is the time to gather the weight of the next layer. In the backward pass the next weight may be gathered before
# this layer's backward (`b`), after it (`a`), or only when it is needed (`n`). Update a layer while the sum of the next
# one is on its way. And ask for a message before you await the weight of its layer: then both come at the same time.
# The last weight of the forward pass is the first of the backward pass, and stays. Each program is named after its
# ticks.


# %% tags=["solution"]
from functools import partial

from lib import WeightGrad


async def pipeline_fsdp_overlapped(
    model: Model, up: bool, down: str, late: bool, wait: bool = True
) -> Model:
    """``up``: gather ahead in the forward pass. ``down``: in the backward pass, gather the next weight before a
    backward (``b``), after it (``a``), or when it is needed (``n``). ``late``: sums are awaited one layer later;
    ``wait``: sends are awaited at once."""
    stages = model.RANKS // model.BATCHES
    stage, mb = model.rank % stages, model.rank // stages
    share, top = model.LAYERS // stages, model.LAYERS - 1
    first, last = stage * share, (stage + 1) * share - 1
    is_first, is_last = stage == 0, stage == stages - 1
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    sends = []
    early = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        mail = model.receive(src=model.rank - 1) if layer == first and not is_first else None
        model.weights["whole"] = await (early or model.allgather(model.weights[layer], layer))
        if not first <= layer <= last:
            del model.weights["whole"]
        early = None
        if up and layer < top:
            early = model.allgather(model.weights[layer + 1], layer + 1)
        if layer == first:
            model.activations[first] = await mail if mail else model.get_activation([mb])
        if first <= layer <= last:
            inp, weight = model.activations[layer], model.weights["whole"]
            model.activations[layer + 1] = model.forward(layer, inp, weight)
            if layer < top:
                del model.weights["whole"]
        if layer == last and not is_last:
            sends.append(model.pass_to(model.rank + 1, model.activations.pop(last + 1)))
            if wait:
                await sends.pop()

    def update(layer: int, grad: WeightGrad) -> None:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        mail = model.receive(src=model.rank + 1) if layer == last and not is_last else None
        if layer < top:
            model.weights["whole"] = await (
                early or model.allgather(model.weights[layer], layer)
            )
            if not first <= layer <= last:
                del model.weights["whole"]
        early = None
        if down == "b" and layer:
            early = model.allgather(model.weights[layer - 1], layer - 1)
        if layer == last and is_last:
            model.grad_activations[last + 1] = model.loss(model.activations.pop(last + 1))
        elif layer == last:
            model.grad_activations[last + 1] = await mail
        model.grad_weights["own"] = model.fake_grad(layer, [])
        if first <= layer <= last:
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            model.grad_weights["own"], model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights.pop("whole")
            )
        if layer == first:
            grad_in = model.grad_activations.pop(first)
            if not is_first:
                sends.append(model.pass_to(model.rank - 1, grad_in))
                if wait:
                    await sends.pop()
        if down == "a" and layer:
            early = model.allgather(model.weights[layer - 1], layer - 1)
        sums[layer] = model.scatterreduce(model.grad_weights.pop("own"), layer)
        if layer + late in sums:
            update(layer + late, await sums.pop(layer + late))
    for layer, call in sums.items():
        update(layer, await call)
    for send in sends:
        await send
    return model


pipeline_fsdp_in_11_7 = partial(pipeline_fsdp_overlapped, up=True, down="b", late=True)
pipeline_fsdp_in_12 = partial(pipeline_fsdp_overlapped, up=True, down="a", late=True)
pipeline_fsdp_in_12_3 = partial(pipeline_fsdp_overlapped, up=False, down="a", late=True)
pipeline_fsdp_in_13_2 = partial(
    pipeline_fsdp_overlapped, up=False, down="n", late=True, wait=False
)
pipeline_fsdp_in_14_5 = partial(pipeline_fsdp_overlapped, up=False, down="n", late=False)

draw(run(pipeline_fsdp_in_11_7, ranks=16, layers=4, batches=4))

# %% [markdown] tags=["solution"]
# ### The picture of the ranks


# %% tags=["solution"]
from drawing import Figure, draw_group


def loaded(model: Model) -> Model:
    """Each rank has the input of the layer that its stage runs, of the micro-batch of its pipeline."""
    inp = model.get_activation([model.rank // 4])
    for layer in range(model.rank % 4):
        inp = model.forward(layer, inp, model.load_weights(layer)[0])
    model.activations["its input"] = inp
    return model


def sixteen_ranks(static: bool = False) -> Figure:
    """A line of ranks for each pipeline."""
    models = run(loaded, ranks=16, layers=4, batches=4).models
    lines = {
        f"pipeline {line}": {
            f"rank {m.rank}": m.activations["its input"]
            for m in models[4 * line : 4 * line + 4]
        }
        for line in range(4)
    }
    return draw_group(lines, static=static)


# %% [markdown]
# ### Where real systems do this
#
# The largest models are trained with pipelines and data parallelism together, and the data-parallel part is sharded.
# Real systems shard a layer only over the ranks that run it: those with the same stage, one in each pipeline. Then no
# rank gathers what it does not need. Here all sixteen take part in everything. That saves the most memory, keeps the
# code short, and shows that a collective needs all its ranks.
#
# The two ideas get in each other's way when a pipeline runs several micro-batches. A *depth-first* schedule, such as
# 1F1B, lets each micro-batch go through as soon as it can, and gathers a layer m times forward and m times backward.
# A *breadth-first* one (arXiv 2211.05953) takes all micro-batches through a layer before the next. It gathers the
# layer once forward and once backward, and keeps more activations. That is why stages are often kept whole during the
# step: torchtitan does not gather again for the backward pass when it runs a pipeline.
#
# ### On real GPUs
#
# Here two nodes train Llama 3 70B, which takes {{trained(LLAMA) / 1e12:.1f}} TB.
#
# ![What a step takes](picture:priced)
#
# Each pipeline has one micro-batch and four stages, so at any time three of four GPUs have nothing to compute. That is
# what this puzzle pays for its memory, and why the later pipelines have many micro-batches in flight.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_70B, report

priced = run(
    pipeline_fsdp,
    ranks=16,
    layers=80,
    batches=4,
    cost=H100_TORCHTITAN.cost(LLAMA_3_70B, recompute="full"),
)
print(report(priced))
# %% tags=["figures"]
alone = run(loaded, **size)
