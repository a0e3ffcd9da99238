# %% [markdown]
# # Puzzle 27: Expert parallel
#
# A layer of DeepSeek-V3 has {{experts_deepseek}} large *experts*, and a token goes to {{chosen_deepseek:word}} of
# them, and to one that all tokens share (arXiv 2412.19437). FSDP gathers all of them on every GPU. The experts are
# large, and the tokens are small. Which of the two should travel?
#
# ![Before and after an all-to-all](picture:alltoall)
#
# Here every other layer has {{experts_a_layer:word}} experts; the others are *dense*. `model.experts(layer)` is 8 or
# 0. The weight of such a layer is its experts, one after the other, so shard `i` of `n` is a share of the experts.
# These are methods of `model`:
#
# | call | what goes in | what comes out |
# |---|---|---|
# | `await alltoall(inp, layer)` | whole micro-batches | `Tokens`: all ranks' tokens for the experts of this rank |
# | `expert(layer, tokens, weight)` | these tokens, and the experts | what the experts make of them |
# | `await alltoall(out, layer + 1)` | what `expert` gave | this rank's own micro-batches, whole again |
# | `backward_expert(layer, tokens, grad, weight)` | `grad`: sent out like the tokens | gradients of the experts and of the tokens |
#
# An all-to-all ends for all at the same time, and an expert with more tokens takes longer. So **everyone waits for
# the busiest expert.**

# %%
from dataclasses import replace
from typing import Any

from drawing import beside_target, compare, draw, draw_tokens, play
from lib import ExpertRingCost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 27,
    "name": "expert_parallel",
    "title": "Expert parallel",
    "size": {"ranks": 4, "layers": 8, "batches": 4, "experts": 8},
    "other_sizes": "experts",
    "target": {"time": 38.5, "memory": 9699328},
    "star": {"time": 35.0, "memory": 8650752},
    "frontier": [{"time": 34.9475, "memory": 8650752, "by": "tokens_before_sums"}],
    "cost": "experts",
    "layout": "experts_sharded",
    "ideas": ["as_many_each", "weights_stay"],
    "words": ["alltoall", "expert"],
    "begins_with": "ddp",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "In the backward pass, what waits behind the sum of a dense layer's gradient? And what could every rank "
    "compute while its tokens travel?",
    "hints": [
        "Start from data parallel. In a layer with experts, a rank has the experts `model.rank` of `model.RANKS`. What does it need "
        "from the other ranks before it can compute, and what do these need from it afterwards? Which gradients does "
        "`backward_expert` give you that data parallel would have to sum?",
        "`tokens = await model.alltoall(model.activations.pop(layer), layer)`, then `out = model.expert(layer, "
        "tokens, model.weights[layer])`, then `model.activations[layer + 1] = await model.alltoall(out, layer + "
        "1)`. Store the tokens for the backward pass. Backwards it is the same way: the gradient goes out by "
        "`alltoall(grad, layer)` and home by `alltoall(grad, layer - 1)`. Only dense layers need `allreduce`. What "
        "could be updated while tokens travel, so that its gradient leaves memory?",
        "A link does one thing after the other. Start the sum of a dense layer only after the all-to-all of the "
        "tokens that everyone waits for, and await it later. While tokens travel, update a layer whose gradient is "
        "complete: the experts you have just left. Then its gradient is gone, too, before memory is at its peak.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train {{ours.layers}} layers on {{ours.ranks}} ranks, with a micro-batch each. Every rank begins and ends with weights
# and optimizer states: all of each dense layer, and shard `r` of `RANKS` of each layer with experts.
#
# - {{ideas}}
# - Of every {{loads_in_all}} tokens, {{hottest_load}} go to the busiest expert, and one to each of the two idlest. In
#   each layer with experts a different expert is the busiest.
# - A token goes to {{chosen:word}} experts, so its numbers travel twice.
# - Other sizes are tried, too, always with dense layers and layers with experts by turns.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def expert_parallel(model: Model) -> Model:
    """Dense layers on every rank, experts on one rank each."""
    ### BEGIN SOLUTION
    acts, grads = model.activations, model.grad_activations
    for layer in range(model.LAYERS):
        piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    acts[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        if model.experts(layer):
            acts["tokens", layer] = await model.alltoall(acts.pop(layer), layer)
            out = model.expert(layer, acts["tokens", layer], model.weights[layer])
            acts[layer + 1] = await model.alltoall(out, layer + 1)
        else:
            acts[layer + 1] = model.forward(layer, acts[layer], model.weights[layer])
    grads["last"] = model.loss(acts.pop(model.LAYERS))

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        weight = model.weights[layer]
        if model.experts(layer):
            grad = await model.alltoall(grads.pop("last"), layer)
            tokens = acts.pop(("tokens", layer))
            grad, grads["last"] = model.backward_expert(layer, tokens, grad, weight)
            model.grad_weights[layer] = grad
            grads["last"] = await model.alltoall(grads.pop("last"), layer - 1)
        else:
            grad, grads["last"] = model.backward(
                layer, acts.pop(layer), grads.pop("last"), weight
            )
            sums[layer] = model.allreduce(grad, layer)
    del grads["last"]

    for layer in reversed(range(model.LAYERS)):
        grad = await sums[layer] if layer in sums else model.grad_weights.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
uneven = ExpertRingCost(
    backward=2,
    experts=8,
    loads=(4, 2, 2, 2, 2, 2, 1, 1),
    chosen=2,
    expert_elements=262_144,
    latency=0.02,
    bandwidth=1_310_720,
)
draw(run(expert_parallel, ranks=4, layers=8, batches=4, experts=8, cost=uneven))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(expert_parallel)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. It asks in which order calls share a link, and what to
# compute while tokens travel ([puzzle 12](p12_prefetch.ipynb) shows how). To watch your own run, with the line that
# each rank is at:

# %%
play(run(expert_parallel, ranks=4, layers=8, batches=4, experts=8, cost=uneven))

# %% [markdown]
# ### Who waits for whom
#
# Here are two layers forward, the first dense and the second with experts, and which tokens go where. A small part of
# the layer, which we leave out, has decided where they go, and how much each expert counts. On the way home, what
# several experts have made of a token is added up, weighted.


# %%
async def out_and_home(model: Model) -> Model:
    """A dense layer and one with experts, forward."""
    acts, weights = model.activations, model.weights
    weights[0], model.opt_states[0] = model.load_weights(0)
    weights[1], model.opt_states[1] = model.load_weights(1, model.rank, model.RANKS)
    acts[0] = model.get_activation([model.rank])
    acts[1] = model.forward(0, acts[0], weights[0])
    acts["tokens"] = await model.alltoall(acts.pop(1), 1)
    acts["out"] = model.expert(1, acts["tokens"], weights[1])
    acts[2] = await model.alltoall(acts.pop("out"), 2)
    return model


there = run(out_and_home, ranks=4, layers=2, batches=4, experts=8, cost=uneven)
draw_tokens(there)

# %% [markdown]
# ### What it costs
#
# Write f and b for a forward and a backward of a dense layer, and a for an all-to-all. Write h for how much the
# busiest rank has to compute, compared with the mean. A pair of layers, one dense and one with experts, takes f + h
# f + 2a forward and b + h b + 2a backward. If the tokens were shared out evenly, h would be 1, and the same program
# would take {{even.time}} ticks instead of {{ours.time}}.
#
# FSDP gathers the experts, and sends their gradients back in pieces: {{fsdp.time}} ticks and {{fsdp.memory}}
# elements. The traffic tells why. Tokens cross the links four times, out and home, forward and backward. Each time
# that is the size of the micro-batches, times the number of experts that a token goes to. All experts of a layer
# cross them three times, whatever the number of tokens: gathered forward, gathered backward, and reduced once. But a
# gather waits for no busy expert. Where a gather and an all-to-all cost the same, whatever their sizes, gathering is
# faster: {{flat_fsdp.time}} ticks against {{flat.time}}.
#
# ### All-to-all in two levels
#
# Between nodes links are slow. In one all-to-all over two nodes, all tokens wait for the slow links, even those that
# stay in the node. So let tokens go out along one axis of a mesh, and then along the other. First they go, inside the
# node, to the GPU that has the same place as the GPU of their experts. This GPU sends on what belongs to the other
# node. So only that crosses the slow links.
#
# The experts are then numbered GPU by GPU: a rank has piece `gpu * boxes + box`, where a box is a node. Tokens go home
# along the two axes in either order, here in reverse.


# %%
async def in_two_levels(model: Model) -> Model:
    """The two layers above, forward, with tokens that go inside of a node first, and then between nodes."""
    acts, weights = model.activations, model.weights
    box, boxes, gpu = model.axis_index("box"), model.axis_size("box"), model.axis_index("gpu")
    weights[0], model.opt_states[0] = model.load_weights(0)
    weights[1], model.opt_states[1] = model.load_weights(1, gpu * boxes + box, model.RANKS)
    acts[0] = model.get_activation([model.rank])
    acts[1] = model.forward(0, acts[0], weights[0])
    acts["tokens"] = await model.alltoall(acts.pop(1), 1, axis="gpu")
    acts["tokens"] = await model.alltoall(acts.pop("tokens"), 1, axis="box")
    acts["out"] = model.expert(1, acts["tokens"], weights[1])
    acts["out"] = await model.alltoall(acts.pop("out"), 2, axis="box")
    acts[2] = await model.alltoall(acts.pop("out"), 2, axis="gpu")
    return model


nodes: dict[str, Any] = {
    "ranks": 8,
    "layers": 2,
    "batches": 8,
    "experts": 8,
    "mesh": {"box": 2, "gpu": 4},
    "node_size": 4,
    "cost": replace(uneven, latency_across=0.1, bandwidth_across=327_680),
}
one_level, two_levels = run(out_and_home, **nodes), run(in_two_levels, **nodes)
compare(one_level, two_levels, titles=["one level", "two levels"])

# %% [markdown]
# One level takes {{one_level.time}} ticks, and two take {{two_levels.time}}. Real systems have one more reason. A
# token that goes to two experts of one node need cross only once, and is copied there. That is why DeepSeek-V3 sends
# each token to four nodes at most.

# %% [markdown] tags=["solution"]
# ### Faster: tokens before sums
#
# In the backward pass the sum of a dense layer's gradient starts just before the tokens of the next layer want to
# leave, and they wait behind it on the link. Call the sum after them, and it runs while the experts compute. And
# while tokens travel, every rank can make an update. That takes {{early.time:.2f}} ticks and {{early.memory}}
# elements: each gradient of the experts is gone before the next one comes.
#
# How much faster could it be? Each rank brings one micro-batch, so every all-to-all carries all of them, and in every
# layer all wait for the busiest rank. Add up, forward and backward, each dense layer, and for each layer with experts
# an all-to-all, the busiest rank's experts and an all-to-all home. Add the last update and a message before it. That is
# {{bound}} ticks, the bound that the verdict shows; no schedule takes less.


# %% tags=["solution"]
async def tokens_before_sums(model: Model) -> Model:
    """Each all-to-all is called before the sum of the dense layer above, and an update is made while tokens travel."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    for layer in range(model.LAYERS):
        piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    acts[0] = model.get_activation(range(model.rank, model.BATCHES, model.RANKS))
    for layer in range(model.LAYERS):
        if model.experts(layer):
            acts["tokens", layer] = await model.alltoall(acts.pop(layer), layer)
            out = model.expert(layer, acts["tokens", layer], model.weights[layer])
            acts[layer + 1] = await model.alltoall(out, layer + 1)
        else:
            acts[layer + 1] = model.forward(layer, acts[layer], model.weights[layer])
    grads["last"] = model.loss(acts.pop(model.LAYERS))

    ready = []  # layers whose gradient is complete

    def update_one() -> None:
        if ready:
            layer = ready.pop(0)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, sums.pop(layer), model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])

    for layer in reversed(range(model.LAYERS)):
        weight = model.weights[layer]
        if not model.experts(layer):
            grad, grads["last"] = model.backward(
                layer, acts.pop(layer), grads.pop("last"), weight
            )
            sums[layer] = grad
            continue
        call = model.alltoall(grads.pop("last"), layer)
        update_one()
        above = layer + 1
        total = model.allreduce(sums.pop(above), above) if above in sums else None
        grad, tokens = await call, acts.pop(("tokens", layer))
        sums[layer], grads["last"] = model.backward_expert(layer, tokens, grad, weight)
        call = model.alltoall(grads.pop("last"), layer - 1)
        ready.append(layer)
        if total is not None:
            sums[above] = await total
            ready.append(above)
        update_one()
        grads["last"] = await call
    del grads["last"]
    last = model.allreduce(sums.pop(0), 0)
    while ready:
        update_one()
    sums[0] = await last
    ready.append(0)
    update_one()
    return model


async def experts_gathered(model: Model) -> Model:
    """As FSDP does it: experts are gathered for forward and backward."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    for layer in range(model.LAYERS):
        piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    acts[0] = model.get_activation(range(model.rank, model.BATCHES, model.RANKS))
    for layer in range(model.LAYERS):
        own = model.weights[layer]
        weight = await model.allgather(own, layer) if model.experts(layer) else own
        acts[layer + 1] = model.forward(layer, acts[layer], weight)
    grads["last"] = model.loss(acts.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        own = model.weights[layer]
        weight = await model.allgather(own, layer) if model.experts(layer) else own
        grad, grads["last"] = model.backward(layer, acts.pop(layer), grads.pop("last"), weight)
        sums[layer] = await model.scatterreduce(grad, layer) if model.experts(layer) else grad
    del grads["last"]
    dense = range(0, model.LAYERS, 2)
    calls = {layer: model.allreduce(sums.pop(layer), layer) for layer in dense}
    for layer in [*range(1, model.LAYERS, 2), *dense]:
        grad = await calls[layer] if layer in calls else sums.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(tokens_before_sums, ranks=4, layers=8, batches=4, experts=8, cost=uneven))

# %% [markdown]
# ### Where real systems do this
#
# GShard (arXiv 2006.16668) and Switch Transformer (arXiv 2101.03961) brought experts to every other layer of a
# Transformer, and tokens to them by all-to-all. Megatron-LM has `--expert-model-parallel-size`, DeepSpeed `ep_size`. In
# Mixtral 8x7B (arXiv 2401.04088) all layers have experts. In DeepSeek-V3 all but the first {{without:word}} have them,
# with {{ways}}-way expert parallelism over {{nodes_deepseek:word}} nodes. To gather its experts as FSDP does,
# {{of_a_layer / BILLION:.1f}} GB for each of {{with_experts}} layers, would take {{gathering:.0f}} s over the fastest
# links that these GPUs have. A whole step of its training took {{step:.0f}} s.
#
# If a GPU has {{micro}} tokens, this is what would travel for a layer, forward and backward:
#
# | | Mixtral 8x7B | DeepSeek-V3 |
# |:--|--:|--:|
# | experts of a layer, and how many of them a token goes to | {{experts_mixtral}}, {{chosen_mixtral}} | {{experts_deepseek}}, {{chosen_deepseek}} |
# | all experts, three times | {{3 * mixtral_layer / BILLION:.1f}} GB | {{3 * of_a_layer / BILLION:.1f}} GB |
# | tokens, four times, to each of their experts | {{tokens_mixtral / BILLION:.2f}} GB | {{tokens_deepseek / BILLION:.2f}} GB |
# | tokens on a GPU at which both are equal | {{equal_mixtral}} | {{equal_deepseek}} |
#
# (The shared expert of DeepSeek-V3 is on every GPU, like a dense layer, so it is not counted.) The last line does not
# depend on links. It grows with the number and the width of the experts, and it is smaller where a token goes to more
# of them. Few GPUs have so many tokens at a time, so tokens travel.
#
# In real models a small layer decides which token goes where. It is trained, too, with a loss or a bias that keeps
# the loads even. Here the loads are given, and no token is dropped, however many want the same expert.

# %% [markdown]
# ### On real GPUs
#
# Four layers of Mixtral 8x7B on one node, an expert of each layer on every GPU. Attention and experts are layers of
# their own here, so the program has eight.
#
# ![What a step takes](picture:priced)

# %% tags=["priced"]
from lib.real import H100_DGX, MIXTRAL_8X7B, report

stage = replace(MIXTRAL_8X7B, layers=4, name="A stage of Mixtral 8x7B")
priced = run(
    expert_parallel,
    ranks=8,
    layers=8,
    batches=8,
    experts=8,
    cost=H100_DGX.cost(stage, experts=8),
)
print(report(priced))

# %% tags=["figures"]
from lib import ExpertCost
from lib.course.bounds import bounds_of
from lib.course.specs import COSTS, find

assert uneven == COSTS["experts"]
size: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 4, "experts": 8}
ours, early = (run(fn, **size, cost=uneven) for fn in (expert_parallel, tokens_before_sums))
even = run(expert_parallel, **size, cost=replace(uneven, loads=()))
fsdp = run(experts_gathered, **size, cost=uneven)
flat, flat_fsdp = (
    run(fn, **size, cost=ExpertCost(loads=uneven.loads))
    for fn in (expert_parallel, experts_gathered)
)
one_level, two_levels = run(out_and_home, **nodes), run(in_two_levels, **nodes)
bound = float(bounds_of(find("expert_parallel")).time)
experts_a_layer, chosen = uneven.experts, uneven.chosen
loads_in_all, hottest_load = sum(uneven.loads), max(uneven.loads)


def deepseek(value: float) -> Any:
    return published(value, "arXiv 2412.19437")


def mixtral(value: float) -> Any:
    return published(value, "arXiv 2401.04088")


experts_deepseek, chosen_deepseek, hidden, width = map(deepseek, (256, 8, 7168, 2048))
layers_deepseek, without, ways, nodes_deepseek, nvlink = map(deepseek, (61, 3, 64, 8, 160e9))
with_experts = layers_deepseek - without
of_a_layer = (
    2 * 3 * hidden * width * experts_deepseek
)  # three matrices an expert, two bytes a number
gathering = 3 * with_experts * of_a_layer / nvlink
gpu_hours, gpus, sequences, length = map(deepseek, (180e3, 2048, 15_360, 4096))
step = gpu_hours * HOUR / gpus * sequences * length / 1e12  # hours for a trillion tokens
experts_mixtral, chosen_mixtral, hidden_mixtral, width_mixtral = map(
    mixtral, (8, 2, 4096, 14_336)
)
mixtral_layer = 2 * 3 * hidden_mixtral * width_mixtral * experts_mixtral
micro = length
tokens_mixtral = 4 * 2 * micro * hidden_mixtral * chosen_mixtral
tokens_deepseek = 4 * 2 * micro * hidden * chosen_deepseek
equal_mixtral = 3 * mixtral_layer * micro // tokens_mixtral
equal_deepseek = 3 * of_a_layer * micro // tokens_deepseek
