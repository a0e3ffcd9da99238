# %% [markdown]
# # Puzzle 26: Ring attention
#
# In puzzle 25 a few heads of keys and values served all queries. Here every head of queries has its own keys and
# values, so these are {{more:word}} times as large, and puzzle 25's answer puts all of them on every rank. But queries
# attend to the keys of one slice after the other. Does anyone ever need all of them at once?
#
# ![Puzzle 25's answer on two layers, at the prices of this puzzle](picture:gathers)
#
# This is puzzle 25's answer at this puzzle's prices, on two layers. Everyone waits for the gathers, and then holds
# all keys and values.
#
# There is no new operation. `pass_to` and `receive` carry keys, values and their gradients, too. Such gradients can
# be added:
#
# ```python
# # before: `kv_grad` is what this rank's queries add to a slice's gradient, `theirs` what other ranks' queries add
# kv_grad = kv_grad + theirs
# # after: what both add
# ```

# %%
from drawing import beside_target, draw, draw_attention, play
from lib import Model, RingCost, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 26,
    "name": "ring_attention",
    "title": "Ring attention",
    "size": {"ranks": 4, "layers": 8, "batches": 1},
    "other_sizes": "one_for_all",
    "target": {"time": 34.5, "memory": 10485760},
    "star": {"time": 28.32, "memory": 10092544},
    "frontier": [
        {"time": 28.32, "memory": 10092544, "by": "ring_attention_in_28_32"},
        {"time": 29.015, "memory": 9568256, "by": "ring_attention_in_29_015"},
        {"time": 29.71, "memory": 9043968, "by": "ring_attention_in_29_71"},
        {"time": 30.405, "memory": 8519680, "by": "ring_attention_in_30_405"},
        {"time": 31.1, "memory": 7995392, "by": "ring_attention_in_31_1"},
        {"time": 31.795, "memory": 7471104, "by": "ring_attention_in_31_795"},
        {"time": 32.49, "memory": 6946816, "by": "ring_attention_in_32_49"},
        {"time": 33.185, "memory": 6553600, "by": "ring_attention_in_33_185"},
    ],
    "cost": "all_heads",
    "layout": "whole",
    "ideas": ["weights_stay", "keys_go_round"],
    "words": ["project", "sliced=True"],
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "While a block is computed, the keys of the next one come. Could the gradient of the previous "
    "block's keys come meanwhile, too? And what could be computed while the last gradient comes home?",
    "hints": [
        "Start from puzzle 25, in zigzag. In place of the gather there are as many steps as ranks. In each, let your "
        "queries attend to the keys that are here, pass these keys on to the next rank, and take those of the rank before. "
        "In the backward pass, what must travel together with the keys?",
        "Keep in memory only the keys of your own slice and those that have come last. Forward, in each of "
        "`model.RANKS` steps: `send = model.pass_to(after, acts['kv'])`, then `att = model.attend(layer, att, "
        "acts['kv'])`, then `acts['kv'] = await model.receive(before)` and `await send`. The last step only "
        "attends. Do the same backward, and after each step pass on the sum of `kv_grad` so far, too: the last hop "
        "brings it home. Do all ranks have as much to do in each step, or do some wait?",
        "Pass the keys on before you attend to them: then they travel while everyone computes. Start the sum of a weight's "
        "gradient and update later. And in which order have you cut the sequence? In order, some rank has a full block in "
        "every step, and others wait for it with nothing to do. For the star, receive the gradient of keys that comes "
        "round the ring only when you have one to add to it: until then it travels while you compute.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train {{ours.layers}} layers on one micro-batch, as in puzzle 25: every rank begins and ends with all weights and
# optimizer states, makes all updates itself, and trains the slices that you choose.
#
# - {{ideas}}
# - The six steps and `sliced=True` are those of puzzle 25; the links are {{faster:word}} times as fast.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def ring_attention(model: Model) -> Model:
    """Each rank trains slices of one sequence, and never holds all keys and values."""
    ### BEGIN SOLUTION
    acts, grads = model.activations, model.grad_activations
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    n, r = model.RANKS, model.rank
    after, before = (r + 1) % n, (r - 1) % n
    inp = model.get_activation([0])
    acts[0] = inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        inp, weight = acts[layer], model.weights[layer]
        acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)
        acts["kv"] = acts["kv", layer]
        for step in range(n):
            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None
            acts["att", layer] = model.attend(layer, acts["att", layer], acts.pop("kv"))
            if send:
                acts["kv"] = await model.receive(before)
                await send
        acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        inp, weight = acts[layer], model.weights[layer]
        att = acts.pop(("att", layer))
        grads["att"] = model.backward_rest(layer, inp, grads["out"], weight, att)
        acts["kv"] = acts.pop(("kv", layer))
        for step in range(n):
            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None
            grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts.pop("kv"))
            grads["kv"] = kv_grad + grads.pop("kv") if step else kv_grad
            if send:
                acts["kv"] = await model.receive(before)
                await send
            if n > 1:
                send = model.pass_to(after, grads.pop("kv"))
                grads["kv"] = await model.receive(before)
                await send
        of_weight, grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
        sums[layer] = model.allreduce(of_weight, layer)
    del grads["out"]

    for layer in reversed(range(model.LAYERS)):
        grad = await sums[layer]
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
all_heads = RingCost(
    forward=4,
    project=0.5,
    attend=2,
    rest=1.5,
    backward=8,
    backward_rest=1.5,
    backward_attend=4,
    backward_project=2.5,
    activation_elements=524_288,
    keys_values_elements=1_048_576,
    attended_elements=1_048_576,
    latency=0.01,
    bandwidth=2_621_440,
)
draw(run(ring_attention, ranks=4, layers=8, batches=1, cost=all_heads))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(ring_attention)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. Every hop can be on its way while a rank computes
# ([puzzle 12](p12_prefetch.ipynb) shows how). To watch your own run, with the line that each rank is at:

# %%
play(run(ring_attention, ranks=4, layers=8, batches=1, cost=all_heads))

# %% [markdown]
# ### What it costs
#
# A step of the ring has one block of attention: {{block.length}} ticks forward, and twice that backward. A hop of the
# keys and values takes {{hop.length}}. In zigzag all ranks have equal blocks in every step, so nobody waits. In
# order, a rank's queries see all of an earlier slice, and nothing of a later one. So in each step some ranks have a
# full block and others have nothing, and all of them go at the pace of the full one, because they stand in one ring.
# If every hop is hidden as well as possible, a ring takes {{in_order.time}} ticks in order, and {{fast.time}} in
# zigzag.
#
# ![Who attends to what in which step, in order and in zigzag](picture:both_orders)
#
# A gather in zigzag would take {{gathering.time}} ticks and {{gathering.memory}} elements here. So a ring has two
# advantages. A rank holds {{slices_held:word}} slices of the keys and values at a time instead of all of them. And
# what is on its way can hide behind what is computed. But it sends a little more. For keys and values of size S on n
# ranks, puzzle 25 has two gathers and a reduce-scatter for each layer: `3 (n - 1)/n S` for each rank. The ring has
# n - 1 hops forward; backward it has n - 1 of the keys and n of their gradient: `(3n - 2)/n S`.
#
# With more ranks, less can be hidden. With twice the ranks a step has a quarter of the work, and a hop half the size.
# At the prices of puzzle 25, with {{many}} ranks, such a ring takes {{ring_of_many.time:.1f}} ticks, and a gather that
# is made ahead of time {{gather_of_many.time:.1f}}.
#
# How much would a gather hold in a real model? In Llama 3 405B, {{group}} heads of queries share one head of keys and
# values. If each of its {{heads}} heads had its own, all of one layer would take {{gathered / BILLION:.1f}} GB for
# {{tokens}} tokens (arXiv 2407.21783 has the sizes). With {{tensor}}-way tensor parallelism each GPU would gather
# {{gathered / tensor / BILLION:.1f}} GB, twice for each layer of its stage.
#
# ### Ulysses
#
# There is a third way. Heads of attention do not see each other. So before `attend`, an *all-to-all*, in which each
# rank sends a part to each other rank, turns slices of the sequence with all heads into the whole sequence with a share
# of the heads. After `attend` another one turns them back. DeepSpeed-Ulysses does this (arXiv 2309.14509). Each rank
# then has the whole sequence, so zigzag is not needed, and it sends about 1/n of what a gather does. But there can be
# no more ranks than heads of keys and values, {{kv_heads}} in Llama 3, unless these are copied.
#
# `alltoall` works both ways: it turns slices into heads, and heads back into each rank's own slices. (This puzzle does
# not allow it.) Here is one layer forward, with {{turns_forward:word}} all-to-alls: one for the queries, one for the
# keys and values, and one that brings home what the queries have attended to.


# %%
async def in_heads(model: Model) -> Model:
    """One layer forward: each rank has all of the sequence, and a share of the heads."""
    acts, weight = model.activations, model.load_weights(0)[0]
    model.weights[0] = weight
    acts["inp"] = model.get_activation([0]).shard(model.rank, model.RANKS)
    acts["att"], acts["kv"] = model.project(0, acts["inp"], weight)
    acts["att"] = await model.alltoall(acts.pop("att"), 0)
    acts["kv"] = await model.alltoall(acts.pop("kv"), 0)
    acts["att"] = model.attend(0, acts.pop("att"), acts.pop("kv"))
    acts["att"] = await model.alltoall(acts.pop("att"), 0)
    acts["out"] = model.rest(0, acts["inp"], weight, acts["att"])
    return model


by_heads = run(in_heads, ranks=4, layers=1, batches=1, cost=all_heads)
draw_attention(by_heads)

# %% [markdown]
# The backward of a layer needs {{turns_backward:word}} more: two for the gradient of the queries, out and home, and
# one that brings home the gradient of the keys and values. We ran a whole step, in which nothing is hidden, all
# updates come at the end, and each rank keeps the keys and values of its heads for the backward. It takes
# {{whole_step.time}} ticks and {{whole_step.memory}} elements: {{computing}} ticks of computing, {{turning:.2f}} of
# all-to-alls, and {{updating}} of updates. The plain ring takes {{ours.time}}, and a gather in zigzag
# {{gathering.time}}.

# %% [markdown] tags=["solution"]
# ### Faster: hide the gradient's hop behind the next block
#
# In the program above every rank waits for the gradient after each block. But the gradient that comes with the keys is
# needed only after the next block is computed, when there is something to add to it. So pass it on, compute the next
# block, and only then await it. When the last one comes home, there is an update to make. And call `receive` before you
# attend. Memory is measured when an operation begins. In this order none begins while two gradients, one just made and
# one just received, wait to be added. That takes {{fast.time}} ticks and {{fast.memory}} elements. With {{ours.ranks}}
# ranks, every hop is hidden by a block. What is left is {{bound}} ticks of computing, the last sum and a hop.
#
# As in puzzle 25, queries, keys and values can be made again from the input of a layer. Here that takes another trip
# around the ring. If that is done for all layers but the last, it takes {{small.time}} ticks and {{small.memory}}
# elements.

# %% tags=["solution"]
from functools import partial

from drawing import Figure

from solutions.p25_context_parallel import context_parallel


async def hops_hidden(model: Model, again: float, in_order: bool = False) -> Model:
    """Each hop is hidden by a block: the hop of the keys by this block, the hop of their gradient by the next. Of the
    lowest layers (``again`` is their share) only the input is kept. ``in_order``: not in zigzag."""
    acts, grads = model.activations, model.grad_activations
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    n, r = model.RANKS, model.rank
    remade = range(int(again * model.LAYERS))
    after, before = (r + 1) % n, (r - 1) % n
    inp = model.get_activation([0])
    front, back = inp.shard(r, 2 * n), inp.shard(2 * n - 1 - r, 2 * n)
    acts[0] = inp.shard(r, n) if in_order else front.combine(back)

    async def attended(layer: int) -> None:
        acts["att", layer], acts["kv", layer] = model.project(
            layer, acts[layer], model.weights[layer]
        )
        acts["kv"] = acts["kv", layer]
        for step in range(n):
            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None
            come = model.receive(before) if send else None
            acts["att", layer] = model.attend(layer, acts["att", layer], acts.pop("kv"))
            if send:
                acts["kv"] = await come
                await send

    for layer in range(model.LAYERS):
        await attended(layer)
        inp, att = acts[layer], acts["att", layer]
        if layer in remade:
            del acts["att", layer], acts["kv", layer]
        acts[layer + 1] = model.rest(layer, inp, model.weights[layer], att)
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)

    sums = {}

    async def update(layer: int) -> None:
        grad = await sums.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    for layer in reversed(range(model.LAYERS)):
        inp, weight = acts[layer], model.weights[layer]
        if layer in remade:
            await attended(layer)
        att = acts.pop(("att", layer))
        grads["att"] = model.backward_rest(layer, inp, grads["out"], weight, att)
        acts["kv"], home, theirs_come = acts.pop(("kv", layer)), None, None
        for step in range(n):
            send = model.pass_to(after, acts["kv"]) if step < n - 1 else None
            come = model.receive(before) if send else None
            grads["att"], grads["kv"] = model.backward_attend(
                layer, grads["att"], acts.pop("kv")
            )
            if home:  # what the others have added so far has come meanwhile
                theirs = await theirs_come
                grads["kv"] = grads.pop("kv") + theirs
                await home
            if n > 1:
                home, theirs_come = model.pass_to(after, grads.pop("kv")), model.receive(before)
            if send:
                acts["kv"] = await come
                await send
        if layer + 1 in sums:
            await update(layer + 1)
        if home:
            grads["kv"] = await theirs_come
            await home
        of_weight, grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
        sums[layer] = model.allreduce(of_weight, layer)
    del grads["out"]
    await update(0)
    return model


ring_attention_in_28_32 = partial(hops_hidden, again=0)
ring_attention_in_29_015 = partial(hops_hidden, again=1 / 8)
ring_attention_in_29_71 = partial(hops_hidden, again=2 / 8)
ring_attention_in_30_405 = partial(hops_hidden, again=3 / 8)
ring_attention_in_31_1 = partial(hops_hidden, again=4 / 8)
ring_attention_in_31_795 = partial(hops_hidden, again=5 / 8)
ring_attention_in_32_49 = partial(hops_hidden, again=6 / 8)
ring_attention_in_33_185 = partial(hops_hidden, again=7 / 8)

ring_in_order = partial(hops_hidden, again=0, in_order=True)


def gathers(static: bool = False) -> Figure:
    """Puzzle 25's answer on two layers, with larger keys and values."""
    two = run(context_parallel, ranks=4, layers=2, batches=1, cost=all_heads)
    return draw(two, title="puzzle 25's answer, two layers", static=static)


def both_orders(static: bool = False) -> Figure:
    """Who attends to what in the first layer, step by step."""
    in_order, in_zigzag = (
        run(fn, ranks=4, layers=8, batches=1, cost=all_heads)
        for fn in (ring_in_order, ring_attention_in_28_32)
    )
    return draw_attention(in_order, in_zigzag, titles=["in order", "zigzag"], static=static)


draw(run(ring_attention_in_28_32, ranks=4, layers=8, batches=1, cost=all_heads))

# %% [markdown] tags=["solution"]
# ### A whole step of Ulysses
#
# It is no answer to this puzzle, since keys and values do not go round a ring.


# %% tags=["solution"]
async def ulysses(model: Model) -> Model:
    """All-to-alls turn slices of the sequence into heads before attention, and back after it."""
    acts, grads = model.activations, model.grad_activations
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    acts[0] = model.get_activation([0]).shard(model.rank, model.RANKS)
    for layer in range(model.LAYERS):
        inp, weight = acts[layer], model.weights[layer]
        acts["att"], acts["kv"] = model.project(layer, inp, weight)
        acts["att"] = await model.alltoall(acts.pop("att"), layer)
        acts["kv", layer] = await model.alltoall(acts.pop("kv"), layer)
        acts["att"] = model.attend(layer, acts["att"], acts["kv", layer])
        acts["att", layer] = await model.alltoall(acts.pop("att"), layer)
        acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        inp, weight = acts[layer], model.weights[layer]
        att = acts.pop(("att", layer))
        grads["att"] = model.backward_rest(layer, inp, grads["out"], weight, att)
        grads["att"] = await model.alltoall(grads.pop("att"), layer)
        grads["att"], grads["kv"] = model.backward_attend(
            layer, grads["att"], acts.pop(("kv", layer))
        )
        grads["att"] = await model.alltoall(grads.pop("att"), layer)
        grads["kv"] = await model.alltoall(grads.pop("kv"), layer)
        of_weight, grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
        sums[layer] = model.allreduce(of_weight, layer)
    del grads["out"]

    for layer in reversed(range(model.LAYERS)):
        grad = await sums[layer]
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(ulysses, ranks=4, layers=8, batches=1, cost=all_heads))

# %% [markdown]
# ### Where real systems do this
#
# Ring attention is from arXiv 2310.01889, for sequences of millions of tokens. Its blocks were in order; striped
# attention (arXiv 2311.09431) was the first to balance them. Megatron-LM passes keys and values round a ring
# (`--cp-comm-type p2p`), gathers them (`all_gather`), or turns slices into heads (`a2a`). With `a2a+p2p` it does
# both: heads inside a node, where links are fast, and a ring between nodes. PyTorch's `context_parallel` does ring
# and gather, in zigzag, too.
#
# How can queries attend to one block after the other without having seen all scores? They carry a running maximum, a
# sum and a result, and rescale these with each block. FlashAttention does the same inside one GPU (arXiv 2205.14135).
# With `engine="local"` and `layer="block"`, your function does it with real tensors.

# %% [markdown]
# ### On real GPUs
#
# The stage of puzzle 25, with the ring.
#
# ![What a step takes](picture:priced)

# %% tags=["priced"]
from dataclasses import replace

from lib.real import H100_DGX, LLAMA_3_405B_LONG, report

stage = replace(LLAMA_3_405B_LONG, layers=8, name="A stage of Llama 3 405B")
priced = run(
    ring_attention,
    ranks=16,
    layers=8,
    cost=H100_DGX.cost(stage, tensor=8, sequence_parallel=True),
)
print(report(priced))

# %% tags=["figures"]
from typing import Any

from lib.course.bounds import bounds_of
from lib.course.specs import COSTS, find
from lib.real import LLAMA_3_405B

from solutions.p25_context_parallel import sliced, zigzag_and_ahead

cost, before = COSTS["all_heads"], COSTS["long_context"]
assert cost == all_heads
size: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 1, "cost": cost}
ours, fast = run(ring_attention, **size), run(ring_attention_in_28_32, **size)
small = run(ring_attention_in_33_185, **size)
in_order = run(ring_in_order, **size)
gathering = run(partial(sliced, order="zigzag", keep=False), **size)
two_layers = run(context_parallel, ranks=4, layers=2, batches=1, cost=cost)
hop = next(event for event in ours.events if event.kind == "pass_to")
block = next(event for event in ours.events if event.kind == "attend")
slices_held = 3  # its own, the one that it reads, and the one that comes
many = 8
large: dict[str, Any] = {"ranks": many, "layers": 8, "batches": 1, "cost": before}
ring_of_many, gather_of_many = (
    run(fn, **large) for fn in (ring_attention_in_28_32, zigzag_and_ahead)
)
bound = bounds_of(find("ring_attention")).time


def turn(elements: int) -> float:
    """How long an all-to-all takes that turns slices of so many elements into heads, or back."""
    others = ours.ranks - 1
    return others * cost.latency + others * elements / ours.ranks**2 / cost.bandwidth


attended, of_keys = cost.attended_elements, cost.keys_values_elements
forward_turns = [turn(attended), turn(of_keys), turn(attended)]
backward_turns = [turn(2 * attended), turn(2 * attended), turn(of_keys)]
turns_forward, turns_backward = len(forward_turns), len(backward_turns)
turning = ours.layers * sum(forward_turns + backward_turns)
computing = ours.layers * (cost.forward + cost.backward) // ours.ranks
updating = ours.layers * cost.update
whole_step = run(ulysses, **size)
assert round(computing + turning + updating, 9) == whole_step.time
more = cost.keys_values_elements // before.keys_values_elements
faster = cost.bandwidth // before.bandwidth
tokens, tensor = (published(each, "arXiv 2407.21783") for each in (131_072, 8))
heads, kv_heads = LLAMA_3_405B.heads, LLAMA_3_405B.kv_heads
group = heads // kv_heads
gathered = 2 * 2 * tokens * LLAMA_3_405B.hidden  # keys and values, two bytes each
