# %% [markdown]
# # Puzzle 19: Buckets
#
# Data parallel sums each gradient while the next is computed, as in puzzle 2. Take 16 GPUs in two nodes. A ring
# passes pieces of a layer's gradient around in {{hops}} hops. Its bytes take {{bytes_take:.0f}} µs, as long as the
# backward pass of a layer, so they are hidden. But each hop has a *latency* of {{hop}} µs, however little it carries:
# another {{hops * hop}} µs for each sum. So the network falls further behind with every layer. What would you do
# about it?
#
# ![Rank 0 with a call for each layer](picture:each_layer)
#
# A collective also takes a list of tensors, with the list of their layers. All ranks bring the same layers, in the
# same order. Such a list is a *bucket*:
#
# ```python
# # before: two calls, {{hops}} hops each
# sums = [await model.allreduce(grad_3, 3), await model.allreduce(grad_2, 2)]
# # after: one call with {{hops}} hops, and the bytes of both
# sums = await model.allreduce([grad_3, grad_2], [3, 2])
# ```

# %%
from drawing import beside_target, draw, play
from lib import Model, RingCost, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 19,
    "name": "buckets",
    "title": "Buckets",
    "size": {"ranks": 16, "layers": 24, "batches": 16, "node_size": 8},
    "other_sizes": "two_nodes",
    "target": {"time": 101.0, "memory": 23068672},
    "star": {"time": 95.0, "memory": 19791872},
    "frontier": [
        {"time": 94.5, "memory": 21233664, "by": "buckets_in_94_5"},
        {"time": 95.0, "memory": 19529728, "by": "buckets_in_95"},
        {"time": 97.0, "memory": 17694720, "by": "buckets_in_97"},
        {"time": 99.0, "memory": 17432576, "by": "buckets_in_99"},
    ],
    "cost": "long_hops",
    "layout": "whole",
    "ideas": ["as_many_each", "weights_stay"],
    "words": ["lists"],
    "begins_with": "ddp",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "medium",
    "minutes": 30,
    "star_hint": "When does the first bucket begin, and what is left to compute when the last one "
    "begins? How large should the first and the last one be, then?",
    "hints": [
        "Start from puzzle 2. A call for each layer pays for {{layers}} times {{hops}} hops. A single call for all layers pays for {{hops}}, but it begins when there is nothing left to compute beside it. What lies between the two?",
        "Collect the gradients of several layers in `model.grad_weights`. When there are enough, take them all out, "
        "since what is left there takes up memory, and start one all-reduce with the list of them and the list of "
        "their layers. Don't wait for it before the backward pass is done. How many are enough? Try a few sizes, "
        "and look at the network's row in the picture.",
        "Gradients that wait for their sum take up memory, so take them out as they are brought to it. In the "
        "loop of the backward pass: `model.grad_weights[layer], model.grad_activations[layer] = "
        "model.backward(...)`; then, if there are six in `model.grad_weights`, or if this is layer 0: `layers = "
        "list(model.grad_weights)`, `bucket = [model.grad_weights.pop(one) for one in layers]`, and "
        "`sums.append(model.allreduce(bucket, layers))`. After the loop: `for call in sums`, and in it `for grad "
        "in await call: model.grad_weights[grad.layer] = grad`, and then the updates of these layers. For the "
        "star: must all buckets have the same size?",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 2. A tick is the {{tick:.0f}} µs of a layer's forward, and a backward takes {{cost.backward}}. An
# all-reduce of n layers takes **{{h}} ticks for its hops, and {{t}}n for its bytes**. The network makes one call at a
# time.
#
# - Every rank begins and ends with all weights and all optimizer states.
# - {{ideas}}
# - Lists are allowed.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def buckets(model: Model) -> Model:
    """Data parallel, with one all-reduce for several layers."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    sums = []
    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        if len(model.grad_weights) == 6 or layer == 0:
            layers = list(model.grad_weights)
            bucket = [model.grad_weights.pop(one) for one in layers]
            sums.append(model.allreduce(bucket, layers))

    for call in sums:
        for grad in await call:
            model.grad_weights[grad.layer] = grad
        for layer in list(model.grad_weights):
            grad = model.grad_weights.pop(layer)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = RingCost(backward=2, latency_across=0.1, bandwidth_across=245_760)
draw(run(buckets, ranks=16, layers=24, batches=16, node_size=8, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(buckets)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. When does the network begin, and what is left when the
# last call is done? [Puzzle 12](p12_prefetch.ipynb) shows how to keep several calls under way. To watch your own run,
# with the line that rank 0 is at:

# %%
done = run(buckets, ranks=16, layers=24, batches=16, node_size=8, cost=prices)
play(done.models[0])

# %% [markdown]
# ### How many buckets?
#
# With a call for each layer, at the top of this page, the network is busy from the second backward on, and spends more
# than half of the time on hops. Here is rank 0 with two other answers. One call for all layers has the fewest hops, but
# nothing is hidden. Four buckets are in between.
#
# ![One call at the end](picture:all_at_the_end)
#
# ![Four buckets of six layers](picture:four_buckets)
#
# Let there be L layers in k equal buckets. A call costs h for its hops, and each layer costs t for its bytes, which
# is also what its backward pass takes. The network begins when the first bucket is full, L/k layers after the GPU
# began. From then on both need t for a layer. So the network stays behind by those L/k layers, and by h more with
# each call. When the backward pass is done, what is left for the network is
#
# k h + t L/k.
#
# Few buckets make the second part large, many buckets the first. The sum is smallest where both are equal, with **k =
# √(L t/h)** buckets: here √({{layers}} · {{t}}/{{h}}) = {{k}}, and {{k * h + t * layers / k:=}} ticks are left. The
# whole step takes {{layers * (cost.forward + cost.backward)}} ticks for forward and backward passes, those {{left}},
# and {{layers / k * cost.update}} for the updates of the last bucket. The other updates are made while the network
# works. Near its lowest point such a sum changes little: three buckets or six are nearly as good.
#
# The formula contains a latency, a speed and a size, so there is no best bucket for everybody. Here is the time of your
# step on three networks; ours is the middle row:
#
# | buckets | {{of[0]}} | {{of[1]}} | {{of[2]}} | {{of[3]}} | {{of[4]}} | {{of[5]}} | {{of[6]}} | {{of[7]}} | √(L t/h) |
# |---|---|---|---|---|---|---|---|---|---|
# | a hop takes {{short}} ticks | {{row(short)}} |
# | a hop takes {{usual}} ticks | {{row(usual)}} |
# | a hop takes {{long}} ticks | {{row(long)}} |
#
# (The formula leaves out the updates of the last bucket. They are why twelve buckets are as good as eight in the
# first row.)

# %% [markdown] tags=["solution"]
# ### The programs in the pictures
#
# The same program with buckets of other sizes: each takes the next size of a list, from the last layers to the first.
# With `ahead`, a rank does not keep all sums for later. When more than `ahead` calls are on their way, it waits for the
# oldest and updates with it, in the middle of the backward pass.

# %% tags=["solution"]
from collections.abc import Sequence
from functools import partial

from drawing import Figure, compare
from lib import Run


async def buckets_of(model: Model, sizes: Sequence[int], ahead: int = 24) -> Model:
    """Buckets of these sizes; all layers that are left over form one more."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    async def update() -> None:
        for grad in await sums.pop(0):
            model.grad_weights[grad.layer] = grad
        for layer in list(model.grad_weights):
            grad = model.grad_weights.pop(layer)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])

    sums, left = [], list(sizes)
    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        if len(model.grad_weights) == (left or [0])[0] or layer == 0:
            del left[:1]
            layers = list(model.grad_weights)
            bucket = [model.grad_weights.pop(one) for one in layers]
            sums.append(model.allreduce(bucket, layers))
            if len(sums) > ahead:
                await update()
    del model.grad_activations[0]
    while sums:
        await update()
    return model


def with_buckets(sizes: Sequence[int], latency: float = 0.1) -> Run:
    """A run at the puzzle's size, with buckets of these sizes and this latency of a hop between nodes."""
    cost = RingCost(backward=2, latency_across=latency, bandwidth_across=245_760)
    fn = partial(buckets_of, sizes=sizes)
    return run(fn, ranks=16, layers=24, batches=16, node_size=8, cost=cost)


def each_layer(static: bool = False) -> Figure:
    """24 calls."""
    first = with_buckets([1] * 24).models[0]
    return draw(first, title="a call for each layer", memory=False, static=static)


def all_at_the_end(static: bool = False) -> Figure:
    """One call."""
    return draw(
        with_buckets([24]).models[0], title="one call at the end", memory=False, static=static
    )


def four_buckets(static: bool = False) -> Figure:
    """Four calls."""
    return draw(
        with_buckets([6] * 4).models[0], title="four buckets", memory=False, static=static
    )


compare(
    *[with_buckets(sizes).models[0] for sizes in ([1] * 24, [24], [6] * 4)],
    titles=["a call for each layer", "one call at the end", "four buckets"],
)

# %% [markdown] tags=["solution"]
# ### Faster: growing buckets
#
# The network begins when the first bucket is full, so the first one should be small. While its sum is on its way, the
# GPU goes on. By the time the network is free, more gradients are waiting than before: with each call the GPU gets
# ahead by the time of the hops, {{h}} ticks, or one and a half layers. So each bucket may be one and a half layers
# larger than the one before, and the network never waits. With {{listed(growing)}} layers it begins after
# {{growing[0] * t}} ticks, and pays for the hops of {{len(growing):word}} calls, {{len(growing) * h}} ticks. So it is
# {{growing[0] * t + len(growing) * h}} behind instead of {{left}}: {{grows.time}} ticks.
#
# If the last bucket has one layer, one update is left for the end instead of eight: {{fastest.time}} ticks, with
# {{listed(buckets_in_94_5.keywords["sizes"])}} layers. And while the network is behind anyway, a rank can use the
# gradients that are summed early. With `ahead` a step takes less memory, and with smaller buckets much less. Of all
# that we have tried, nothing as fast takes less memory.

# %% tags=["solution"]
buckets_growing = partial(buckets_of, sizes=(2, 3, 5, 6, 8))
buckets_in_94_5 = partial(buckets_of, sizes=(2, 2, 5, 6, 8, 1))
buckets_in_95 = partial(buckets_of, sizes=(2, 2, 5, 6, 7, 2), ahead=2)
buckets_in_97 = partial(buckets_of, sizes=(2, 3, 4, 5, 5, 5), ahead=1)
buckets_in_99 = partial(buckets_of, sizes=(1, 3, 3, 4, 5, 6, 2), ahead=1)

draw(with_buckets([2, 3, 5, 6, 8]).models[0])

# %% [markdown]
# ### Where real systems do this
#
# PyTorch's DDP collects gradients in buckets of {{bucket:.0f}} MB (`bucket_cap_mb`; Li et al., arXiv 2006.15704,
# measure what other sizes do). That is a default: on a network with longer hops, or with more ranks, larger ones are
# better. The first bucket is smaller, {{first_bucket:.0f}} MB, so that the network begins early. We recorded PyTorch
# with {{sum(forty)}} layers of {{first_bucket:.0f}} MB: its calls have {{listed(forty)}} layers
# (`tests/torch_truth/TABLE.md`).
#
# Megatron-LM lets its default grow with the ranks: {{megatron / MILLION}} million parameters in a bucket, or a
# million for each rank if that is more, since a ring of more ranks has more hops. Horovod, which made rings popular
# for training, calls the idea *tensor fusion* (arXiv 1802.05799).
#
# In our prices a layer's bytes take as long as its backward pass. If they took longer, everybody would wait for the
# network, and it should begin early: make the first bucket small. If they took less, the network would be done with
# each bucket before the next is full. Only the last sum would be left at the end: make the last bucket small.
#
# ### On real GPUs
#
# A small model on two nodes with a slow connection, in seconds and bytes: {{priced.layers}} layers with
# {{12 * GPT_2_XL.hidden**2 / MILLION:.0f}} million parameters each.
#
# ![What a step takes](picture:priced)
#
# Here buckets matter less than in the puzzle. One call for each layer takes {{each_ahead.seconds:.3f}} s if no rank
# waits for it before the end, against {{priced.seconds:.3f}} s, and {{each_awaited.seconds:.3f}} s if each is awaited
# at once. These layers are {{12 * GPT_2_XL.hidden**2 / MILLION:.0f}} times as large as the puzzle's. So the bytes of
# a sum take far longer than its hops, and a layer is a good bucket by itself. What counts is to overlap. Try it with
# your answer to puzzle 2. To bring it here, write `from lib import attempt` and `ddp = attempt("ddp")`.

# %% tags=["priced"]
from lib.real import A100_40_P4D, GPT_2_XL, report

priced = run(buckets, ranks=16, layers=48, batches=16, cost=A100_40_P4D.cost(GPT_2_XL))
print(report(priced))

# %% tags=["figures"]
from math import sqrt

from solutions.p02_ddp import ddp, ddp_overlap

each, link, hop, hops = (
    2e6,
    25e9,
    7.5,
    2 * (ranks - 1),
)  # bytes; a second; microseconds; of a ring
bytes_take = hops / ranks * each / link * MILLION
tick = bytes_take / cost.backward
h, t = hops * hop / tick, bytes_take / tick
assert h == float(cost.latency_across) * hops
k = round(sqrt(layers * t / h))
left = k * h + t * layers / k

of = 24, 12, 8, 6, 4, 3, 2, 1
short, usual, long = 0.02, 0.1, 0.5


def row(latency: float) -> str:
    """A row of the table: ticks of so many equal buckets, and what the formula says is best."""
    times = [with_buckets([layers // count] * count, latency).time for count in of]
    best = sqrt(layers * t / (hops * latency))
    nearest = min(range(len(of)), key=lambda i: abs(of[i] - best))
    assert times[nearest] <= 1.01 * min(times)
    return " | ".join([*map(show, times), show(round(best, 1))])


def listed(sizes: Sequence[int]) -> str:
    """Sizes as a list."""
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"


growing = buckets_growing.keywords["sizes"]
grows, fastest = (run(fn, **size, cost=cost) for fn in (buckets_growing, buckets_in_94_5))
four = with_buckets([layers // k] * k)
each_alone, all_together = with_buckets([1] * layers), with_buckets([layers])
assert four.time == layers * (cost.forward + cost.backward) + left + layers / k * cost.update

first_bucket, bucket, megatron = (
    2**20 / 1e6,
    25 * 2**20 / 1e6,
    40e6,
)  # MB, but the last: defaults of PyTorch and Megatron-LM
forty = recorded_buckets("DDP, 40 layers of 1 MiB")
each_awaited, each_ahead = (
    run(fn, ranks=priced.ranks, layers=priced.layers, batches=priced.batches, cost=priced.cost)
    for fn in (ddp, ddp_overlap)
)
