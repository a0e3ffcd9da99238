# %% [markdown]
# # Puzzle 21: hpZ
#
# Puzzle 4's answer gathers every weight twice and sums every gradient once, over all ranks. Now four ranks share a
# node, and a node has a single, slow network card. All that goes to other nodes has to pass through it. How much of
# that traffic is needed?
#
# ![Puzzle 4's answer on four nodes, rank 0](picture:all_across)
#
# With puzzle 4's answer, rank 0 makes three calls between nodes for each layer, of {{across}} ticks each. A forward
# takes {{cost.forward}}.

# %%
from drawing import beside_target, draw, play
from lib import Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 21,
    "name": "hpz",
    "title": "hpZ",
    "size": {
        "ranks": 16,
        "layers": 6,
        "batches": 16,
        "mesh": {"replica": 4, "shard": 4},
        "node_size": 4,
    },
    "other_sizes": "replica_fsdp",
    "target": {"time": 125.4, "memory": 1179648},
    "star": {"time": 102.5, "memory": 1114112},
    "frontier": [
        {"time": 102.5, "memory": 1097728, "by": "hpz_overlapped"},
        {"time": 105.5, "memory": 1064960, "by": "hpz_in_105_5"},
        {"time": 106.5, "memory": 1032192, "by": "hpz_in_106_5"},
        {"time": 109.5, "memory": 983040, "by": "hpz_in_109_5"},
        {"time": 110.5, "memory": 966656, "by": "hpz_in_110_5"},
        {"time": 113.5, "memory": 901120, "by": "hpz_where_there_is_room"},
    ],
    "cost": "one_card",
    "layout": "sharded",
    "ideas": ["as_many_each", "no_whole_gradient"],
    "begins_with": "fsdp",
    "hints_for": {"slow": 1, "large": 2},
    "difficulty": "medium",
    "minutes": 30,
    "star_hint": "Calls between the nodes take most of the time. Which of them could be on their way while a "
    "rank computes, and what is the price in memory?",
    "hints": [
        "A rank of FSDP drops the gathered weight after forward, and keeps its sixteenth. So it gathers it a "
        "second time, and what crosses the nodes takes most of the time. What would it have to keep instead, so "
        'that the four ranks of a node can put the weight together by themselves? `axis="shard"` are the ranks '
        "of your node.",
        "After the gather across, each rank of a node keeps a different quarter of the weight, beside its own "
        "sixteenth. The gather before backward is then one in the node. The gradient goes across to all ranks as in "
        "FSDP, since their sixteenths of the states are updated. What can leave memory once it has been read?",
        'Forward: `model.weights["node", layer] = weight.shard(model.axis_index("shard"), '
        'model.axis_size("shard"))`. Backward: `await model.allgather(model.weights.pop(("node", layer)), layer, '
        'axis="shard")`. Take activations and gradients out of their dictionaries once they are used, so that '
        "they take up no memory. For the star, start the gather across of the next layer before you compute this "
        "one, and await the sum of a layer only after all of backward.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step on 16 ranks, four to a node. As in puzzle 4, rank `r` begins and ends with shard `r` of `RANKS` of
# every weight and optimizer state. What else it stores in between is up to you.
#
# - {{ideas}}
# - `axis="shard"` joins the four ranks of a node; `axis="replica"` joins those with the same place in each node.
# - A collective takes {{cost.collective_across}} ticks if it leaves a node, and {{cost.collective}} inside one. Along
#   `replica`, too, it takes {{cost.collective_across}}: each rank of a node then brings only a shard, but four ranks
#   share the card.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def hpz(model: Model) -> Model:
    """FSDP on nodes with one network card each."""
    ### BEGIN SOLUTION
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.weights["node", layer] = weight.shard(shard, shards)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        in_node = model.weights.pop(("node", layer))
        weight = await model.allgather(in_node, layer, axis="shard")
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        grad = await model.scatterreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = Cost(
    backward=3,
    collective=0.4,
    collective_across=8,
    activation_elements=16_384,
    allreduce=0.8,
    allreduce_across=16,
)
nodes = {"ranks": 16, "layers": 6, "batches": 16, "node_size": 4}
draw(run(hpz, mesh={"replica": 4, "shard": 4}, cost=prices, **nodes))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(hpz)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. It wants calls that are on their way while a rank
# computes; [puzzle 12](p12_prefetch.ipynb) shows how. To watch your own run, with the line that rank 0 is at:

# %%
play(run(hpz, mesh={"replica": 4, "shard": 4}, cost=prices, **nodes).models[0])

# %% [markdown]
# ### What the second copy costs
#
# After a layer's forward, each rank of a node keeps a quarter of its weight. Together these are a second copy, which
# the backward gathers inside the node. Here is rank 0.
#
# ![hpZ](picture:copy_in_the_node)
#
# In the forward pass memory climbs like stairs, because every layer leaves a quarter of a weight behind. In the
# backward pass it goes down again. Two slow calls for each layer are left, where puzzle 4 has three.
#
# Why not keep the whole model in each node from the start? Because then each node must also hold all gradients until
# the end of the step (puzzle 8), and perhaps all optimizer states. Here are the options for a model of
# {{theirs / BILLION}} billion parameters on four nodes of eight GPUs, with {{TRAINED}} bytes for each parameter:
#
# | | GB for each GPU | trips across, for each layer |
# |---|---|---|
# | FSDP over {{gpus}} GPUs | {{TRAINED * gb / gpus}} | {{three}} for each micro-batch |
# | hpZ: a second copy of the weights in each node | {{TRAINED * gb / gpus + WEIGHT * gb / node}} | {{three - 1}} for each micro-batch |
# | puzzle 8: weights and gradients over the node, states over all | {{(WEIGHT + GRADIENT) * gb / node + STATE * gb / gpus:.1f}} | 2 for each step |
# | everything over the node (HSDP) | {{TRAINED * gb / node}} | 2 for each step |
#
# A *trip* is a gather or a reduce-scatter; an all-reduce makes two. With one micro-batch in a step, as here, the last
# three make the same number of trips, so the smallest of them is the best. With gradient accumulation, the last two
# make fewer trips, if there is memory for them. HSDP takes {{over_the_node.memory}} elements on this puzzle's ranks.
#
# There is a fourth way: keep the gathered weights whole after the forward. That saves the second gather, and puts the
# whole model on each GPU: {{WEIGHT * gb}} GB.
#
# ### Where the prices come from
#
# The model is Llama 2 13B, on four nodes of eight A100. A layer has {{weights / MILLION:.0f}} million weights,
# {{WEIGHT * weights / MILLION:.0f}} MB. The one card of a node carries {{card / BILLION}} GB a second
# ({{8 * card / BILLION}} Gbit/s). To gather a layer over all {{gpus}} GPUs takes {{trip:.0f}} ms; inside a node, at
# {{inside / BILLION}} GB a second, it takes {{short:.1f}} ms. A forward of the layer takes {{tick:.1f}} ms, for
# {{tokens}} tokens and at {{reached:word}} of the GPU's peak: this is a tick. A backward, which computes the forward
# again, takes {{3 * tick:.1f}} ms. So for {{4 * tick:.0f}} ms of computing, FSDP keeps the card busy for
# {{3 * trip:.0f}}.

# %% [markdown] tags=["solution"]
# ### The programs of the pictures and the table
#
# Puzzle 4 on this machine, and HSDP: sums in the node first, then an all-reduce across of the quarter that is left.

# %% tags=["solution"]
from collections.abc import Callable
from typing import Any

from drawing import Figure, compare
from lib import Run


async def fsdp_through_one_card(model: Model) -> Model:
    """Everything over all ranks: two gathers and a reduce-scatter across for each layer."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        grad = await model.scatterreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def hsdp(model: Model) -> Model:
    """Everything over the node, and the nodes as replicas."""
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, shards)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer, axis="shard")
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer, axis="shard")
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        model.grad_weights[layer] = await model.scatterreduce(grad, layer, axis="shard")
    del model.grad_activations[0]

    for layer in range(model.LAYERS):  # after the last micro-batch, if there were several
        grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def with_one_card(fn: Callable[[Model], Any]) -> Run:
    """A run at the puzzle's size and prices."""
    cost = Cost(
        backward=3,
        collective=0.4,
        collective_across=8,
        activation_elements=16_384,
        allreduce=0.8,
        allreduce_across=16,
    )
    mesh = {"replica": 4, "shard": 4}
    return run(fn, ranks=16, layers=6, batches=16, mesh=mesh, node_size=4, cost=cost)


def all_across(static: bool = False) -> Figure:
    """FSDP on these nodes."""
    return draw(with_one_card(fsdp_through_one_card).models[0], title="FSDP", static=static)


def copy_in_the_node(static: bool = False) -> Figure:
    """The puzzle's program."""
    return draw(with_one_card(hpz).models[0], title="hpZ", static=static)


compare(
    *[with_one_card(fn).models[0] for fn in (fsdp_through_one_card, hpz, hsdp)],
    titles=["FSDP", "hpZ", "HSDP"],
)

# %% [markdown] tags=["solution"]
# ### Faster: a card that is never idle
#
# The card has {{2 * layers}} trips of {{across}} ticks to make, {{2 * layers * across}} ticks in all, and a rank
# computes for {{computing}}. So start to gather the next layer before you compute this one, and start the sum of a
# layer before the backward of the next. The gathers in the node need care. All collectives of a rank wait in one line,
# and a gather that is started after a sum comes {{across}} ticks later. So start each of them before the sum of the
# layer above. The last layer is not dropped at all between forward and backward. That makes {{star_s.time}} ticks.
#
# What is on its way takes memory, and memory is highest where forward ends and backward begins. So the copy for the
# node is cut out after the forward, not before: {{star_s.memory}} elements. Overlapped only in the lower half of the
# layers, where there is room, it takes {{roomy.time}} ticks and {{roomy.memory}} elements, fewer than the first
# program. Between these two are the functions with their ticks in their names.
#
# FSDP can overlap, too: {{ahead.time}} ticks, which is still more than the first program took. With
# {{three * layers - 1}} trips of {{across}} ticks it cannot take less than {{(three * layers - 1) * across}}. No
# overlap helps a card that has too much to carry.

# %% tags=["solution"]
from functools import partial


async def overlapped(model: Model, in_node: bool, ahead: int, beside: int) -> Model:
    """In the lowest ``ahead`` layers, the next weight is on its way during forward; in the lowest ``beside``, the sum of
    the layer above during backward."""
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    top, coming, sums = model.LAYERS - 1, None, {}
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        coming = coming or model.allgather(model.weights[layer], layer)
        weight = model.weights["whole"] = await coming
        coming = None
        if layer < min(ahead, top):
            coming = model.allgather(model.weights[layer + 1], layer + 1)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
        if layer < top and in_node:
            model.weights["node", layer] = weight.shard(shard, shards)
        if layer < top:
            del model.weights["whole"]
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    async def gather_again(layer: int) -> None:
        """Gather a weight a second time."""
        piece = model.weights.pop(("node", layer)) if in_node else model.weights[layer]
        axis = "shard" if in_node else None
        model.weights["whole"] = await model.allgather(piece, layer, axis=axis)

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights.pop("whole")
        )
        if 0 < layer < beside:
            await gather_again(layer - 1)
        sums[layer] = model.scatterreduce(model.grad_weights.pop(layer), layer)
        if layer >= max(beside, 1):
            model.grad_weights[layer] = await sums.pop(layer)
            await gather_again(layer - 1)
    del model.grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad = await sums[layer] if layer in sums else model.grad_weights.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def hpz_overlapped(model: Model) -> Model:
    """With the second copy, and everything overlapped."""
    return await overlapped(model, in_node=True, ahead=model.LAYERS, beside=model.LAYERS)


async def hpz_where_there_is_room(model: Model) -> Model:
    """Overlapped in the lower half only: where the copies are not there yet, or not any more."""
    few = model.LAYERS // 2
    return await overlapped(model, in_node=True, ahead=few, beside=few)


async def hpz_less_overlapped(model: Model, forwards: int, backwards: int) -> Model:
    """No gather runs beside ``forwards`` of the forwards, and no sum beside ``backwards`` of the backwards."""
    ahead, beside = model.LAYERS - forwards, model.LAYERS - backwards
    return await overlapped(model, in_node=True, ahead=ahead, beside=beside)


hpz_in_105_5 = partial(hpz_less_overlapped, forwards=1, backwards=1)
hpz_in_106_5 = partial(hpz_less_overlapped, forwards=2, backwards=1)
hpz_in_109_5 = partial(hpz_less_overlapped, forwards=2, backwards=2)
hpz_in_110_5 = partial(hpz_less_overlapped, forwards=3, backwards=2)


async def fsdp_ahead(model: Model) -> Model:
    """Overlapped, without the second copy: every gather goes across."""
    return await overlapped(model, in_node=False, ahead=model.LAYERS, beside=model.LAYERS)


draw(with_one_card(hpz_overlapped).models[0])

# %% [markdown]
# ### Where real systems do this
#
# hpZ, *hierarchical partitioning*, is one of the three parts of ZeRO++ (arXiv 2306.10209). In DeepSpeed you set
# `zero_hpz_partition_size` to the number of GPUs in a node. The other two parts send fewer bits: weights go in 8 bits
# instead of 16 bits, and gradients in 4 bits. ZeRO-3 makes {{three}} trips with 16 bits each. hpZ saves one of them.
# With fewer bits, one of the other two is half as large, and one a quarter. Altogether ZeRO++ sends
# {{Fraction(weight_bits + gradient_bits, three * bits):word}} of what ZeRO-3 sends between nodes.
#
# In PyTorch it is an argument of FSDP2: `fully_shard(module, reshard_after_forward=8)`. After forward, a weight is
# sharded again, but over {{node}} ranks only. `True` shards it over all (FSDP), and `False` leaves it whole.

# %% [markdown]
# ### On real GPUs
#
# Here are {{priced.ranks}} GPUs in nodes of {{node}}. The links between the nodes carry {{links}} GB a second,
# {{Fraction(links * BILLION, card):word}} times as much as the puzzle's card, so less of the step is spent waiting.
#
# ![What a step takes](picture:priced)
#
# The backward computes again what is inside a layer. To see what the second copy is worth here, price your answer to
# puzzle 4 in the same way.

# %% tags=["priced"]
from lib.real import A100_40_P4D, LLAMA_2_13B, report

priced = run(
    hpz,
    ranks=32,
    layers=40,
    batches=32,
    mesh={"replica": 4, "shard": 8},
    cost=A100_40_P4D.cost(LLAMA_2_13B, recompute="full"),
)
print(report(priced))

# %% tags=["figures"]
theirs, node, gpus, tokens = 13e9, 8, 32, 2048  # Llama 2 13B, four p4d with one card each
gb = theirs / BILLION
card, inside, peak, reached = 12_500_000_000, 240e9, 312e12, Fraction(2, 3)  # a second
weights = 12 * 5120**2
trip, short = (
    1000 * ring(ranks_of_it, WEIGHT * weights, 0, speed)
    for ranks_of_it, speed in ((gpus, card), (node, inside))
)
tick = 1000 * 2 * weights * tokens / (float(reached) * peak)
assert round(trip / tick) == cost.collective_across and round(short / tick, 1) == float(
    cost.collective
)

three, across = 3, cost.collective_across  # trips: two gathers and a reduce-scatter
computing = layers * (cost.forward + cost.backward + cost.update)
plain, ours, over_the_node, star_s, roomy, ahead = (
    run(fn, **size, cost=cost)
    for fn in (
        fsdp_through_one_card,
        hpz,
        hsdp,
        hpz_overlapped,
        hpz_where_there_is_room,
        fsdp_ahead,
    )
)
bits, weight_bits, gradient_bits = 16, 8, 4
links = 50
