# %% [markdown]
# # Puzzle 20: Hierarchical all-reduce
#
# Sum {{small / MILLION}} MB of gradients over {{gpus}} GPUs, in {{node}} nodes of {{node}}. One ring through all of
# them has {{2 * (gpus - 1)}} hops, and goes at the pace of its slowest link: {{one_card(small):.1f}} ms. Meanwhile
# fast links inside the nodes are idle nine tenths of the time, and of the {{node}} network cards of each node only one
# works. (NCCL has several rings: see below.)
#
# The sum of {{gpus}} gradients is the sum of {{node}} sums of {{node}}. Can you use that?
#
# ![Rank 0 of this puzzle with one ring for all](picture:one_ring)

# %%
from drawing import beside_target, draw, play
from lib import Model, RingCost, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 20,
    "name": "hierarchical",
    "title": "Hierarchical all-reduce",
    "size": {
        "ranks": 16,
        "layers": 8,
        "batches": 16,
        "mesh": {"replica": 4, "shard": 4},
        "node_size": 4,
    },
    "other_sizes": "replica_fsdp",
    "target": {"time": 38.72, "memory": 5898240},
    "star": {"time": 28.5, "memory": 5701632},
    "frontier": [
        {"time": 28.0, "memory": 5701632, "by": "hierarchical_in_28"},
        {"time": 29.02, "memory": 5505024, "by": "hierarchical_in_29_02"},
    ],
    "cost": "two_speeds",
    "layout": "whole",
    "ideas": ["as_many_each", "weights_stay"],
    "begins_with": "ddp",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "medium",
    "minutes": 30,
    "star_hint": "A rank waits for three calls, one after the other, for each layer. While one of them is on its way, "
    "what could be computed for another layer, a backward or an update? Which call should start next, so that no "
    "slow one is in the way?",
    "hints": [
        'A collective takes an axis, as in puzzle 8: `axis="shard"` joins the ranks of your node, and '
        '`axis="replica"` those with the same place in each node. Which of them are fast? To sum in the node and '
        "then between nodes is right, but all of the gradient then crosses the slow links. How little of it must a "
        "single rank send there?",
        "Three calls take less time than one here, since little goes over the slow links: a reduce-scatter in the "
        "node, after which each rank has a quarter of the node's sum; an all-reduce of this quarter with the same "
        "quarter of the other nodes; and an all-gather in the node. What else can leave memory once it has been "
        "read?",
        'After backward: `grad = await model.scatterreduce(grad, layer, axis="shard")`, `grad = await '
        'model.allreduce(grad, layer, axis="replica")`, `grad = await model.allgather(grad, layer, axis="shard")`. '
        "Take activations and gradients out of their dictionaries once they are used, so that they take up no "
        "memory. For the star, start the first of these for a layer, compute the next backward, and only then await "
        "it and start the second. And leave some updates for the end, when there is no backward left to hide the "
        "last calls.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train with data parallel on 4 nodes of 4 ranks, a micro-batch on each. As in puzzle 8, `axis="shard"` joins the ranks
# of your node, and `axis="replica"` those with the same place in each node. Layers are those of puzzle 19: a forward
# takes {{cost.forward}} tick, a backward {{cost.backward}}.
#
# | | a hop takes | elements in a tick |
# |---|---|---|
# | inside a node | {{cost.latency}} ticks | {{cost.bandwidth}} |
# | as soon as a ring leaves its node | {{cost.latency_across}} ticks | {{cost.bandwidth_across}} |
#
# A rank's calls go one after the other, in the order in which you start them. So a quick call inside the node waits
# if a slow one was started before it.
#
# - Every rank begins and ends with all weights and all optimizer states.
# - {{ideas}}
# - A collective takes one layer here, not a list. Other meshes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def hierarchical(model: Model) -> Model:
    """Data parallel, with sums that are made in the nodes first."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        grad = await model.scatterreduce(grad, layer, axis="shard")
        grad = await model.allreduce(grad, layer, axis="replica")
        grad = await model.allgather(grad, layer, axis="shard")
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = RingCost(
    backward=2, latency=0.03, bandwidth=2_457_600, latency_across=0.1, bandwidth_across=245_760
)
nodes = {"ranks": 16, "layers": 8, "batches": 16, "node_size": 4}
draw(run(hierarchical, mesh={"replica": 4, "shard": 4}, cost=prices, **nodes))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(hierarchical)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. While a call is on its way for a layer, what can be
# computed for another one, and in which order should the calls start? (On real GPUs, calls along two axes do not wait
# for each other. In the section "On real GPUs", ours do not either.) [Puzzle 12](p12_prefetch.ipynb) shows how to
# keep several chains under way. To watch your own run, with the line that rank 0 is at:

# %%
done = run(hierarchical, mesh={"replica": 4, "shard": 4}, cost=prices, **nodes)
play(done.models[0])

# %% [markdown]
# ### Where the time goes
#
# Here is rank 0 with three calls instead of one ring:
#
# ![In the node, across, in the node](picture:three_calls)
#
# | ticks for the sum of a layer | for hops | for bytes | together |
# |---|---|---|---|
# | one ring of 16 | {{2 * (ranks - 1)}} x {{slow}} | {{flat_bytes}} | {{of_a_layer(flat)}} |
# | all-reduce in the node, then all-reduce of the whole sum between nodes | {{few}} x {{quick}} + {{few}} x {{slow}} | {{in_node:.2f}} + {{all_across:.1f}} | {{of_a_layer(across)}} |
# | reduce-scatter, all-reduce of a quarter, all-gather | {{few}} x {{quick}} + {{few}} x {{slow}} | {{in_node:.2f}} + {{all_across / 4:.1f}} | {{of_a_layer(ours)}} |
#
# There are two gains. Only {{few}} of {{2 * few}} hops are slow ones, instead of all {{2 * (ranks - 1)}}. And four
# rings run between the nodes at the same time, one for each place in the node. Each carries a quarter, over a card of
# its own.
#
# **Half of this comes from the way our machine counts, so be careful with it.** Our one ring through all nodes uses one
# card of each node. But NCCL, the library that does this on NVIDIA's GPUs, runs *a ring for each card*, and then no
# card is idle. Compared with that, your program only saves latency, and large sums hardly care about latency. Here are
# the {{gpus}} GPUs of the top of this page, with hops of {{far * MILLION:.0f}} µs between nodes, cards of
# {{card / BILLION}} GB/s and links of {{inside / BILLION}} GB/s inside:
#
# | | {{small / MILLION}} MB | {{large / BILLION}} GB |
# |---|---|---|
# | one ring, one card of each node | {{one_card(small):.2f}} ms | {{one_card(large):.1f}} ms |
# | eight rings, eight cards | {{all_cards(small):.2f}} ms | {{all_cards(large):.1f}} ms |
# | in the node, across, in the node | {{in_levels(small):.2f}} ms | {{in_levels(large):.1f}} ms |
#
# For {{large / BILLION}} GB the eight flat rings win. They use the links in the nodes and the cards at the same time,
# while each of your three calls waits for the one before. For small sums, for many nodes, and where eight GPUs share a
# card, the hierarchy wins.

# %% [markdown] tags=["solution"]
# ### The programs of the table
#
# Puzzle 2 on this machine, and the program of the table's second row: it sums in the node, and then everything between
# nodes.

# %% tags=["solution"]
from collections.abc import Callable
from typing import Any

from drawing import Figure, compare
from lib import Run


async def summed_by(model: Model, *calls: tuple[str, str | None]) -> Model:
    """Data parallel with a gradient that goes through these collectives, each with its axis."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        for kind, axis in calls:
            grad = await getattr(model, kind)(grad, layer, axis=axis)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def flat_ring(model: Model) -> Model:
    """One ring for all."""
    return await summed_by(model, ("allreduce", None))


async def everything_across(model: Model) -> Model:
    """A ring in the node, then one across, with all of the gradient."""
    return await summed_by(model, ("allreduce", "shard"), ("allreduce", "replica"))


def in_nodes(fn: Callable[[Model], Any]) -> Run:
    """A run at the puzzle's size and prices."""
    cost = RingCost(
        backward=2,
        latency=0.03,
        bandwidth=2_457_600,
        latency_across=0.1,
        bandwidth_across=245_760,
    )
    mesh = {"replica": 4, "shard": 4}
    return run(fn, ranks=16, layers=8, batches=16, mesh=mesh, node_size=4, cost=cost)


def one_ring(static: bool = False) -> Figure:
    """One call for each layer."""
    first = in_nodes(flat_ring).models[0]
    return draw(first, title="one ring", memory=False, static=static)


def three_calls(static: bool = False) -> Figure:
    """Three calls for each layer."""
    first = in_nodes(hierarchical).models[0]
    return draw(first, title="three calls", memory=False, static=static)


compare(
    *[in_nodes(fn).models[0] for fn in (flat_ring, everything_across, hierarchical)],
    titles=["one ring", "everything across", "a quarter across"],
)

# %% [markdown] tags=["solution"]
# ### Faster: one call in each backward
#
# The three calls of a layer take {{of_a_layer(ours)}} ticks, and a backward takes {{cost.backward}}. So they fit beside
# the backward passes of other layers. But each call needs the result of the call before, so a rank can start it only
# later. After each backward the rank takes what has arrived, starts the next call of each of the two layers above, and
# starts the first call of this layer. That makes {{overlap.time}} ticks.


# %% tags=["solution"]
async def hierarchical_overlap(model: Model) -> Model:
    """The next stage of every sum on its way is started after each backward."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    scattered, summed, gathered = {}, {}, {}

    async def go_on(layer: int) -> None:
        """Start what comes next for the two layers above this one, and update the third."""
        if layer + 1 in scattered:
            piece = await scattered.pop(layer + 1)
            summed[layer + 1] = model.allreduce(piece, layer + 1, axis="replica")
        if layer + 2 in summed:
            piece = await summed.pop(layer + 2)
            gathered[layer + 2] = model.allgather(piece, layer + 2, axis="shard")
        if layer + 3 in gathered:
            done = layer + 3
            model.weights[done], model.opt_states[done] = model.update(
                done,
                await gathered.pop(done),
                model.weights[done],
                model.opt_states[done],
            )
            model.set_final_weight(done, model.weights[done])

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        scattered[layer] = model.scatterreduce(
            model.grad_weights.pop(layer), layer, axis="shard"
        )
        await go_on(layer)
    del model.grad_activations[0]
    for layer in (-1, -2, -3):
        await go_on(layer)
    return model


draw(in_nodes(hierarchical_overlap).models[0])

# %% [markdown] tags=["solution"]
# ### The star: updates fill the gaps
#
# Computing alone takes {{computing}} ticks, since every rank updates all layers itself. The program above takes longer,
# since the last calls have no backward to hide behind. But updates can wait, and a rank that has some left does them
# meanwhile. A layer that waits needs little memory: a quarter of its gradient is enough until its gather starts,
# shortly before its update. That takes {{filled.time}} ticks, with no wait at all, and less memory: {{filled.memory}}
# elements.
#
# From layer 3 down, an update follows each backward. When the update ends, the sum in the node is done, so the sum
# between nodes can run during the next backward. Four updates are left to hide the calls of layer 0: one during each
# call in the node, and two during the call between nodes.
#
# The second program below needs no more memory than the first answer, and takes {{tight.time}} ticks. When the backward
# pass begins, there is no room for two gradients, one on its way and the next. So the top layer's sum in the node is
# awaited at once. So are the sums of the three lowest layers, since the gathers need them.


# %% tags=["solution"]
async def hierarchical_in_28(model: Model) -> Model:
    """A layer that waits keeps a quarter of its sum, and updates fill the time of the last calls."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    scattered, summed, gathered = {}, {}, {}  # calls under way, by layer, from the top down

    async def sum_across(layer: int) -> None:
        if layer in scattered:
            piece = await scattered.pop(layer)
            summed[layer] = model.allreduce(piece, layer, axis="replica")

    async def gather(most: int) -> None:
        for layer in list(summed)[:most]:
            piece = await summed.pop(layer)
            gathered[layer] = model.allgather(piece, layer, axis="shard")

    async def update(most: int) -> None:
        for layer in list(gathered)[:most]:
            grad = await gathered.pop(layer)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        grad = model.grad_weights.pop(layer)
        scattered[layer] = model.scatterreduce(grad, layer, axis="shard")
        del grad
        await sum_across(layer + 1)
        if layer == 0:
            del model.grad_activations[0]
            await gather(1)
        if layer <= 3:
            await update(1)
            await sum_across(layer)
        if layer == 1:
            await gather(len(summed) - 1)  # all that have been summed by now
        elif 1 < layer <= 4:
            await gather(1)
    await update(len(gathered) - 1)
    await gather(1)  # layer 0
    await update(2)
    return model


async def hierarchical_in_29_02(model: Model) -> Model:
    """With no more memory than the first answer: the first sum in the node, and the last three, are awaited at once."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    scattered, summed, gathered = {}, {}, {}  # calls under way, by layer, from the top down

    async def sum_across(layer: int) -> None:
        if layer in scattered:
            piece = await scattered.pop(layer)
            summed[layer] = model.allreduce(piece, layer, axis="replica")

    async def gather_two() -> None:
        for layer in list(summed)[:2]:
            piece = await summed.pop(layer)
            gathered[layer] = model.allgather(piece, layer, axis="shard")

    async def update(most: int) -> None:
        for layer in list(gathered)[:most]:
            grad = await gathered.pop(layer)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        scattered[layer] = model.scatterreduce(grad, layer, axis="shard")
        del grad
        if layer == 0:
            del model.grad_activations[0]
        await sum_across(layer + 1)
        if layer == model.LAYERS - 1 or layer < 3:
            await sum_across(layer)
        if layer == 0:
            await update(2)
        if layer <= 1:
            await gather_two()
    await update(len(gathered))
    while summed:
        await gather_two()
        await update(1)
    await update(len(gathered))
    return model


draw(in_nodes(hierarchical_in_28).models[0])

# %% [markdown]
# ### Where real systems do this
#
# Horovod has these three steps, as `HOROVOD_HIERARCHICAL_ALLREDUCE`. NCCL decides by itself. For large sums it uses
# its many rings. For small ones it uses trees (since version 2.4), in which the number of hops grows only with the
# logarithm of the ranks. Where the switch of a node can add (NVLS, on an H100), NCCL lets it sum inside the node, and
# since version 2.18 combines this with a tree between the nodes. Hybrid sharding (puzzle 8) has the same three steps
# by its nature: a reduce-scatter in the node, an all-reduce of each piece across, and an all-gather in the node, of
# weights instead of gradients. ZeRO++ (arXiv 2306.10209) reduces its gradients in two levels, too.
#
# ### On real GPUs
#
# The model and the machine of puzzle 19.
#
# ![What a step takes](picture:priced)
#
# That is more than the {{bucketed.seconds:.3f}} s of puzzle 19, since our solution waits for each of its calls. With
# the idea of the star it is {{priced_overlap.seconds:.3f}} s. A flat ring for each layer, awaited at once, takes
# {{priced_flat.seconds:.3f}} s. It is not so far behind as in the puzzle: here a ring between nodes uses the cards of
# all GPUs, as NCCL does.

# %% tags=["priced"]
from lib.real import A100_40_P4D, GPT_2_XL, report

priced = run(
    hierarchical,
    ranks=16,
    layers=48,
    batches=16,
    mesh={"replica": 2, "shard": 8},
    cost=A100_40_P4D.cost(GPT_2_XL),
)
print(report(priced))

# %% tags=["figures"]
small, large, node = 64e6, 1e9, 8  # bytes; GPUs of a node, and nodes
gpus, far, near = node * node, 10e-6, 3e-6  # seconds of a hop between nodes, and inside
card, inside, tick = 25e9, 240e9, 75  # bytes a second; microseconds


def one_card(size: float) -> float:
    """Milliseconds of one ring through everything."""
    return 2e3 * ring(gpus, size, far, card)


def all_cards(size: float) -> float:
    """Of a ring for each card, with a part of the sum."""
    return 2e3 * ring(gpus, size, far, node * card)


def in_levels(size: float) -> float:
    """Of a sum in the node, across and in the node."""
    return 2e3 * ring(node, size, near, inside) + 2e3 * ring(node, size / node, far, card)


assert in_levels(small) < all_cards(small) and all_cards(large) < in_levels(large)

flat, across, ours, overlap, filled = map(
    in_nodes,
    (flat_ring, everything_across, hierarchical, hierarchical_overlap, hierarchical_in_28),
)
tight = in_nodes(hierarchical_in_29_02)
computing = layers * (cost.forward + cost.backward + cost.update)
assert filled.time == computing
quick, slow, few = float(cost.latency), float(cost.latency_across), 2 * (4 - 1) * 1


def of_a_layer(done: Run) -> float:
    """Ticks of the sum of a layer, where a rank waits for it."""
    return (done.time - computing) / layers


each = cost.weight_elements
flat_bytes = 2 * (ranks - 1) / ranks * each / cost.bandwidth_across
in_node, all_across = (
    2 * 3 / 4 * each / speed for speed in (cost.bandwidth, cost.bandwidth_across)
)
flat_bytes, in_node, all_across = (
    round(float(one), 6) for one in (flat_bytes, in_node, all_across)
)
assert abs(of_a_layer(ours) - (few * (quick + slow) + in_node + all_across / 4)) < 1e-6

from solutions.p02_ddp import ddp
from solutions.p19_buckets import buckets


def there(fn: Callable[[Model], Any]) -> Run:
    """A run on the machine of the priced one."""
    size = {"ranks": priced.ranks, "layers": priced.layers, "batches": priced.batches}
    return run(fn, **size, mesh={"replica": 2, "shard": 8}, cost=priced.cost)


priced_overlap, bucketed, priced_flat = map(there, (hierarchical_overlap, buckets, flat_ring))
