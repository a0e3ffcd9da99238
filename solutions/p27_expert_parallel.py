# %% [markdown]
# # Puzzle 27: Expert parallel
#
# DeepSeek-V3 has {{total_parameters / BILLION:.0f}} billion parameters, and a token meets
# {{active_parameters / BILLION:.0f}} billion of them. The others belong to experts that this token does not go to. FSDP
# does not know that: **it gathers every expert of a layer on every GPU, for a handful of tokens each.**
#
# The experts are large and the tokens are small. Which of the two should travel?

# %%
from drawing import beside_target, draw, draw_primitive, play
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
    "rules": ["experts_stay"],
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
# on, and 0 for the others, which are *dense*. The weight of such a layer is all of its experts, one after the other.
# So `model.load_weights(layer, i, n)` is the `i`-th `n`-th of the experts.
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

# %% [markdown]
# ## Your task
#
# Train {{ours.layers}} layers on {{ours.ranks}} ranks, with a micro-batch each. Every rank holds all of each dense layer, and its part of the experts of
# the others: rank `r` piece `r`. No expert, no gradient of one and none of their states is gathered, summed or sent.
#
# The tokens are not shared out evenly. Of every {{loads_in_all}} of them, {{hottest_load}} go to one expert, and {{coldest_load}} to each of the
# last two. From a layer with experts to the next these numbers turn by one. Each token goes to {{chosen:word}} experts, so its numbers travel {{chosen:word}} times. An
# all-to-all lasts as long as the largest tensor that anyone brings or gets: **everyone waits for the hottest expert.**
#
# Target, for 4 ranks, 8 layers and 4 micro-batches: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.
# The star: **{{star.time}}** ticks, **{{star.memory}}** elements.


# %%
async def expert_parallel(model: Model) -> Model:
    """Tokens travel to their experts and home again; only dense gradients are summed."""
    ### BEGIN SOLUTION
    acts, grads = model.activations, model.grad_activations
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
    backward=2, loads=(4, 2, 2, 2, 2, 2, 1, 1), chosen=2, latency=0.02, bandwidth=1_310_720
)
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
# A pair of layers, dense and with experts, takes (f + f h + 2a) forward and (b + b h + 2a) backward: h is what the hottest rank has to
# compute, against the mean, and a is an all-to-all. If the tokens were shared out evenly, the same program would take {{even.time}} ticks in place of {{ours.time}}.
#
# FSDP gathers the experts, and sends their gradients back in pieces: {{fsdp.time}} ticks and {{fsdp.memory}} elements.
# What is sent tells why. Tokens cross the links four times, out and home, forward and backward: as many numbers as the
# micro-batches have, times the experts that a token goes to. All experts of a layer cross them three times, gathered
# forward and backward, and reduced once, whatever the number of tokens. Gathering waits for no hot expert, though: with
# flat prices it is the faster one, {{flat_fsdp.time}} ticks against {{flat.time}}.
#
# ## All-to-all in two levels
#
# Between nodes links are slow, and a token that goes to two experts of one node need not cross twice. So tokens may go out along one axis of a mesh and then along the other:
# `tokens = await model.alltoall(inp, layer, axis="gpu")`, then `await model.alltoall(tokens, layer, axis="box")`, with experts numbered along the node first:
# piece `gpu * boxes + box`. Home they go in any order.

# %% [markdown] tags=["solution"]
# ## Faster: tokens before sums
#
# In the backward pass the sum of a dense layer's gradient is started just before the tokens of the next layer want to leave, and
# they wait behind it on the link. Called after them, it runs while the experts compute. And while tokens travel, every rank
# can make an update. That takes {{early.time:.2f}} ticks and {{early.memory}} elements: each gradient of the experts is gone before the next one comes.

# %% tags=["solution"]
from typing import Any

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
# `--expert-model-parallel-size`, DeepSpeed `ep_size`. DeepSeek-V3 (arXiv 2412.19437) has {{deepseek_experts}} experts in a layer, of which each token chooses
# {{deepseek_chosen}}, {{deepseek_ways}} ways of expert parallel, and limits to how many nodes a token may go. In Mixtral 8x7B (arXiv 2401.04088) {{mixtral_chosen:word}} of {{mixtral_experts}} experts are chosen.
# Which token goes where is decided by a small layer that is trained, too, with a loss or a bias that keeps the loads even. Here it is given.

# %% tags=["figures"]
from dataclasses import replace

from lib import ExpertCost

size: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 4, "experts": 8}
ours, early = (run(fn, **size, cost=uneven) for fn in (expert_parallel, tokens_before_sums))
even = run(expert_parallel, **size, cost=replace(uneven, loads=()))
fsdp = run(experts_gathered, **size, cost=uneven)
flat, flat_fsdp = (
    run(fn, **size, cost=ExpertCost(loads=uneven.loads))
    for fn in (expert_parallel, experts_gathered)
)
experts_a_layer, chosen = uneven.experts, uneven.chosen
loads_in_all, hottest_load, coldest_load = (
    sum(uneven.loads),
    max(uneven.loads),
    min(uneven.loads),
)
total_parameters = published(671 * BILLION, "arXiv 2412.19437")
active_parameters = published(37 * BILLION, "arXiv 2412.19437")
deepseek_experts = published(256, "arXiv 2412.19437")
deepseek_chosen = published(8, "arXiv 2412.19437")
deepseek_ways = published(64, "arXiv 2412.19437")
mixtral_experts = published(8, "arXiv 2401.04088")
mixtral_chosen = published(2, "arXiv 2401.04088")
