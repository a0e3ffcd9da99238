# %% [markdown]
# # Puzzle 27: Expert parallel
#
# A layer of DeepSeek-V3 has {{experts_deepseek}} *experts*, and a token goes to {{chosen_deepseek:word}} of them (arXiv 2412.19437). FSDP does not know
# that: it gathers all {{experts_deepseek}} on every GPU, {{of_a_layer / BILLION:.1f}} GB, forward and backward, and reduces their gradients, for
# {{with_experts}} layers. Over the fastest links that these GPUs have, that would take {{gathering:.0f}} s. **A whole step of its training took {{step:.0f}} s.**
#
# The experts are large, and the tokens are small. Which of the two should travel?

# %%
from dataclasses import replace
from typing import Any

from drawing import beside_target, compare, draw, draw_primitive, draw_tokens, play
from lib import ExpertRingCost, Model, grade, hint, run, solution

# %% tags=["spec"]
PUZZLE = {
    "number": 27,
    "name": "expert_parallel",
    "title": "Expert parallel",
    "size": {"ranks": 4, "layers": 8, "batches": 4, "experts": 8},
    "other_sizes": "experts",
    "target": {"time": 38.1, "memory": 9699328},
    "star": {"time": 35.0, "memory": 8650752},
    "frontier": [{"time": 34.9475, "memory": 8650752, "by": "tokens_before_sums"}],
    "cost": "experts",
    "layout": "experts_sharded",
    "ideas": ["as_many_each", "weights_stay"],
    "words": ["alltoall", "expert"],
    "begins_with": "ddp",
    "hints_for": {"slow": 3, "large": 3},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "In the backward pass, who waits behind the sum of a dense layer's gradient? And what could every rank "
    "compute while its tokens travel?",
    "hints": [
        "Start from data parallel. In a layer with experts, a rank has the experts `model.rank` of `model.RANKS`. What does it need "
        "from the other ranks before it can compute, and what do these need from it afterwards? Which gradients does "
        "`backward_expert` give you that data parallel would have to sum?",
        "`tokens = await model.alltoall(model.activations.pop(layer), layer)`, then `out = model.expert(layer, tokens, model.weights[layer])`, then `model.activations[layer + 1] = "
        "await model.alltoall(out, layer + 1)`. Store the tokens for the backward pass. Backwards it is the same way: the gradient goes out by `alltoall(grad, layer)` and home "
        "by `alltoall(grad, layer - 1)`. Only dense layers need `allreduce`.",
        "A link does one thing after the other. Start the sum of a dense layer only after the all-to-all of the tokens that "
        "everyone waits for, and await it later. While tokens travel, update a layer whose gradient is complete: "
        "that of the experts you have just left. Then its gradient is gone, too, before memory is at its peak.",
    ],
}

# %% [markdown]
# ## New tools: a layer with experts
#
# With `run(..., experts=8)`, every other layer has {{experts_a_layer:word}} *experts*: `model.experts(layer)` is 8 for layers 1, 3 and so
# on, and 0 for the others, which are *dense*. An expert is the part of a layer that treats each token by itself, and there are
# many of it. A small part of the layer, which we leave out, has decided which token goes to which experts, and how much each of them counts.
#
# The weight of such a layer is all of its experts, one after the other. So `model.load_weights(layer, i, n)` is the `i`-th `n`-th of the experts.
#
# - `tokens = await model.alltoall(inp, layer)` sends tokens out. Every rank brings whole micro-batches of its own, and
#   rank `i` gets `Tokens`: those of all micro-batches that go to the `i`-th part of the experts.
# - `out = model.expert(layer, tokens, weight)` computes these experts. It takes as long as they have tokens.
# - `await model.alltoall(out, layer + 1)` brings tokens home: every rank gets its own micro-batches back. What several
#   experts have made of a token is added up there, weighted.
# - `of_weight, grad = model.backward_expert(layer, tokens, grad, weight)` goes back. Its gradients go the same way:
#   `alltoall(grad, layer)` sends them out, and `alltoall(grad, layer - 1)` brings them home.
#
# ![What each rank has before and after an all-to-all](picture:out)
#
# `of_weight` has the micro-batches of all ranks already, since their tokens came here. So nobody else has anything to
# add to it. The gradient of a dense layer is summed over all ranks, as in data parallel.
#
# Below are two layers forward, the first dense and the second with experts. Each of four ranks has two experts.


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
draw(there)

# %% [markdown]
# The tokens are not shared out evenly. Of every {{loads_in_all}} of them, {{hottest_load}} go to expert 0, and one to each of the
# last two. Each token goes to {{chosen:word}} experts, so its numbers travel twice. An
# all-to-all lasts as long as the largest tensor that anyone brings or gets. And none goes home before all ranks have come to it: **everyone waits
# for the hottest expert.**

# %%
draw_tokens(there)

# %% [markdown]
# ## Your task
#
# Train {{ours.layers}} layers on {{ours.ranks}} ranks, with a micro-batch each. Every rank holds all of each dense layer, and its part of the experts of
# the others: rank `r` piece `r`. Tokens travel to the experts; of dense layers gradients are summed.
#
# The machine is the one above, `cost=uneven`. From a layer with experts to the next the loads turn by one, so each layer has another hottest expert.
# At the other sizes, too, each dense layer is followed by one with experts.
#
# The grader holds you to this: {{ideas}}
#
# Target, for 4 ranks, 8 layers and 4 micro-batches: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.
# The star: **{{star.time}}** ticks, **{{star.memory}}** elements.
#
# The star wants several chains under way at once, as in the worked example of [puzzle 12](p12_prefetch.ipynb).


# %%
async def expert_parallel(model: Model) -> Model:
    """Tokens travel to their experts and home again; only dense gradients are summed."""
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
draw(run(expert_parallel, ranks=4, layers=8, batches=4, experts=8, cost=uneven))

# %%
# The same run, step by step, with the line of your code that each rank is at.
play(run(expert_parallel, ranks=4, layers=8, batches=4, experts=8, cost=uneven))

# %%
# Right? Fast and small enough? At other sizes, too? If you are stuck: hint("expert_parallel")
grade(expert_parallel)

# %% [markdown]
# ## What it costs
#
# Write f and b for a forward and a backward, a for an all-to-all, and h for what the hottest rank has to compute, against the mean. A pair of layers, dense and with experts,
# takes f + h f + 2a forward and b + h b + 2a backward. If the tokens were shared out evenly, h would be 1, and the same program would take {{even.time}} ticks in place of {{ours.time}}.
#
# FSDP gathers the experts, and sends their gradients back in pieces: {{fsdp.time}} ticks and {{fsdp.memory}} elements.
# What is sent tells why. Tokens cross the links four times, out and home, forward and backward: as many numbers as the
# micro-batches have, times the experts that a token goes to. All experts of a layer cross them three times, gathered
# forward and backward, and reduced once, whatever the number of tokens. Gathering waits for no hot expert, though: where a gather
# and an all-to-all cost the same, whatever their sizes, it is the faster one, {{flat_fsdp.time}} ticks against {{flat.time}}.
#
# ## All-to-all in two levels
#
# Between nodes links are slow. In one all-to-all over two nodes, all wait for the slow links, even what stays in the node. So let tokens go out
# along one axis of a mesh, and then along the other. First they go, inside the node, to the GPU that has the same place as that of their experts.
# This one sends on what belongs to the other node: only that crosses the slow links.
#
# The experts are then numbered along the node first: a rank has piece `gpu * boxes + box`. Home they go in any order, here the other way round.


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
# One level takes {{one_level.time}} ticks, and two take {{two_levels.time}}. In real systems there is one more reason. A token that goes to two experts of one node need
# cross only once, and is copied there. DeepSeek-V3 sends each token to four nodes at most for that.

# %% [markdown] tags=["solution"]
# ## Faster: tokens before sums
#
# In the backward pass the sum of a dense layer's gradient is started just before the tokens of the next layer want to leave, and
# they wait behind it on the link. Called after them, it runs while the experts compute. And while tokens travel, every rank
# can make an update. That takes {{early.time:.2f}} ticks and {{early.memory}} elements: each gradient of the experts is gone before the next one comes.
#
# How much faster could it be? Each rank brings one micro-batch, so every all-to-all carries all of them, and in every layer all wait for the hottest rank. One forward or backward
# of a dense layer, an all-to-all, the hottest rank's experts and an all-to-all home: one after the other, for all layers and back, that takes {{bound}} ticks with
# the last update and a message before it. No schedule takes less: this is the bound that the verdict tells.

# %% tags=["solution"]
from drawing import Figure


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


def out(static: bool = False) -> Figure:
    """An all-to-all of micro-batches."""
    return draw_primitive("alltoall", static=static)


draw(run(tokens_before_sums, ranks=4, layers=8, batches=4, experts=8, cost=uneven))

# %% [markdown]
# ## Where real systems do this
#
# GShard (arXiv 2006.16668) and Switch Transformer (arXiv 2101.03961) brought experts to every other layer of a Transformer, and tokens to them by all-to-all. Megatron-LM has
# `--expert-model-parallel-size`, DeepSpeed `ep_size`. In DeepSeek-V3 all layers but the first {{without:word}} have experts, with {{ways}} ways of expert parallel over
# {{nodes_deepseek:word}} nodes, and in Mixtral 8x7B (arXiv 2401.04088) all.
#
# What would travel for a layer, if a GPU has {{micro}} tokens, forward and backward:
#
# | | Mixtral 8x7B | DeepSeek-V3 |
# |:--|--:|--:|
# | experts of a layer, and those that a token goes to | {{experts_mixtral}}, {{chosen_mixtral}} | {{experts_deepseek}}, {{chosen_deepseek}} |
# | all experts, three times | {{3 * mixtral_layer / BILLION:.1f}} GB | {{3 * of_a_layer / BILLION:.1f}} GB |
# | tokens, four times, to each of their experts | {{tokens_mixtral / BILLION:.2f}} GB | {{tokens_deepseek / BILLION:.2f}} GB |
# | tokens of a GPU with which both are equal | {{equal_mixtral}} | {{equal_deepseek}} |
#
# The last line depends on no link. It grows with the number of experts and their width, and falls with how many a token goes to. Few GPUs have so many tokens
# at a time, so tokens travel.
#
# Which token goes where is decided by a small layer that is trained, too, with a loss or a bias that keeps the loads even. Here it is given, and no
# token is dropped, however many want the same expert.

# %% [markdown]
# ## On real GPUs
#
# Four layers of Mixtral 8x7B on one node, an expert of each layer on every GPU. Attention and experts are layers of their own here, so the program
# has eight.
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
