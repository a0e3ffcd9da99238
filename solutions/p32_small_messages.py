# %% [markdown]
# # Puzzle 32: Small messages
#
# In puzzle 31 it was the bytes that took time. Here {{ranks:word}} ranks sum small gradients: the bytes of a whole one
# take half as long as a hop.
#
# ![Puzzle 31's ring at these prices, on rank 0](picture:hop_by_hop)
#
# This ring makes {{2 * (ranks - 1)}} hops for each sum, one after the other. Nearly all of the time is latency, and
# smaller pieces help no more. **How few messages can come one after the other, until every rank has the sum of all?**
#
# There is no new call. A rank can send to any other, and wait for any other:
#
# ```python
# await model.pass_to(3, grad)  # on rank 5
# both = grad + await model.receive(5)  # on rank 3: the sum of two gradients, after one message
# ```

# %%
from drawing import beside_target, draw, play
from lib import Model, WireCost, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 32,
    "name": "small_messages",
    "title": "Small messages",
    "size": {"ranks": 16, "layers": 4, "batches": 16},
    "other_sizes": "data_parallel",
    "target": {"time": 14.8, "memory": 2883584},
    "star": {"time": 12.1, "memory": 2883584},
    "frontier": [
        {"time": 12.1, "memory": 2883584, "by": "both_send"},
    ],
    "cost": "small_messages",
    "layout": "whole",
    "ideas": ["as_many_each", "weights_stay", "by_hand"],
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "medium",
    "minutes": 30,
    "star_hint": "In a tree half of the ranks wait while the other half sends. What if both partners of a pair send? "
    "And what could a rank compute while the first message of a sum is on its way?",
    "hints": [
        "After one message a rank can have the sum of two gradients. If all ranks work in pairs, how many gradients "
        "can a sum have after two messages one after the other, and after three?",
        "Let each rank with an odd number send its gradient to the rank before, and wait. The even ones have sums of "
        "two, and go on in the same way: rank 2 sends to rank 0, rank 6 to rank 4, and so on, until rank 0 has the "
        "sum of all. The total goes back along the same ways. What does a rank do that has no partner, as where the "
        "number of ranks is odd? And can the gradient leave memory once it is sent?",
        "With `n = model.RANKS` and `r = model.rank`, begin with `step = 1`. While `step < n` and `r % (2 * step) == "
        "0`: if there is a rank `r + step`, add what comes from it; double `step`. Now a rank other than 0 sends its "
        "sum to rank `r - step`, taken out with `pop`, and receives the total from there. Then, while `step > 1`: "
        "halve `step`, and if there is a rank `r + step`, send it the total. With activations and gradients taken out "
        "once they are used, that meets the target.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 31, on {{ranks}} ranks.
#
# - Every rank begins and ends with all weights and all optimizer states.
# - {{ideas}}
# - A message takes {{cost.latency}} ticks, and the bytes of a whole gradient {{whole}} more. Forward and backward take
#   {{cost.forward}} each.
#   A rank sends one message at a time, and takes in one at a time.
# - Other sizes have fewer ranks, and not always a power of two.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def small_messages(model: Model) -> Model:
    """Data parallel, with sums that take few messages one after the other."""
    ### BEGIN SOLUTION
    n, r, grads = model.RANKS, model.rank, model.grad_weights

    async def sum_up(layer: int) -> None:
        step = 1
        while step < n and r % (2 * step) == 0:
            if r + step < n:
                grads[layer] = grads[layer] + await model.receive(r + step)
            step *= 2
        if r > 0:
            await model.pass_to(r - step, grads.pop(layer))
            grads[layer] = await model.receive(r - step)
        while step > 1:
            step //= 2
            if r + step < n:
                await model.pass_to(r + step, grads[layer])

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grads[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        await sum_up(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grads.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = WireCost(latency=0.1, bandwidth=5_242_880)
draw(run(small_messages, ranks=16, layers=4, batches=16, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(small_messages)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. In a tree half of the ranks wait while the other half
# sends. What if both partners of a pair send? And what could a rank compute while the first message of a sum is on its
# way? ([Puzzle 12](p12_prefetch.ipynb) shows how to start now and fetch later.) To watch your own run, with the line
# that each rank is at:

# %%
play(run(small_messages, ranks=8, layers=2, batches=8, cost=prices))

# %% [markdown]
# ### How few?
#
# A sum of some gradients can become a sum of twice as many with one message, and no more. So after k messages one after
# the other, a rank has at most 2 to the power of k gradients, and {{ranks}} ranks are at least {{log:word}} messages
# apart. Here are the first sums of rank 0, with the tree:
#
# ![A tree: rank 0 adds four times, and sends four times](picture:up_and_down)
#
# The tree takes {{2 * log}} hops: {{log:word}} until rank 0 has the total, and as many back. If both partners of a pair
# send, all ranks have the total after {{log:word}}. Each then carries its whole gradient {{log:word}} times, which
# hardly matters while gradients are small.
#
# ### Where is the border?
#
# Which sum is the best depends on what the bytes of a gradient take, against a hop. Here is the time of one sum of
# {{ranks:word}} ranks, counted in hops. (The halves are those of puzzle 31: {{2 * log}} messages one after the other,
# with as few bytes as the ring.)
#
# | the bytes of a gradient take | tree | both partners send | halves | ring |
# |---|---|---|---|---|
# | a tenth of a hop | {{row(0.1)}} |
# | half of a hop, as here | {{row(0.5)}} |
# | two hops | {{row(2)}} |
# | eight hops | {{row(8)}} |
# | sixty-four hops | {{row(64)}} |
#
# The ring comes close to the halves where messages are large, and it is the one that suits a network where far messages
# meet (puzzle 31 says why). So systems have several, and choose by size.
#
# ### Where real systems do this
#
# NCCL has rings and trees, and chooses by size. Its trees come in pairs: a rank at the end of one tree, which only
# sends, has others below it in the second, and each tree carries half (Sanders, Speck and Träff, *Two-Tree Algorithms
# for Full Bandwidth Broadcast, Reduction and Scan*, 2009; in NCCL since version 2.4). MPI libraries let both partners
# send when messages are short, and take halves when they are long (Thakur, Rabenseifner and Gropp, 2005).
#
# Gradients in training are large, and buckets make them larger (puzzle 19). Small sums are the daily bread of serving:
# with tensor parallel (puzzle 17), each new token takes two sums of a single row in each layer. vLLM and TensorRT-LLM
# have a sum of their own for that. In a node, every GPU reads what all others have, at once: "one shot", one hop. For
# larger sums they take two: each GPU sums its piece, and then reads the others' pieces. Those are the first and the
# second half of puzzle 31's star.

# %% [markdown] tags=["solution"]
# ### The star: both partners send
#
# In `both_send` partners are neighbors at first, and then twice as far apart in each step. Each sends the other what it
# has. That alone takes {{doubled.time}} ticks. While the first message of a sum is on its way, there is time for an
# update of the layer above, if its sum has been kept for that. At the highest layers there is no room in memory for
# this, so only the sums of the two layers above the lowest one are kept: {{both.time}} ticks, in the memory of the
# target. With `kept=3` it takes {{kept.time}} ticks and {{kept.memory}} elements.

# %% tags=["solution"]
from collections.abc import Callable
from functools import partial

from drawing import Figure

from solutions.p31_ring_allreduce import halving, ring_allreduce


async def exchanged(model: Model, kept: int) -> Model:
    """Partners exchange their sums. Ranks beyond a power of two give theirs to others first. The sums of ``kept``
    layers above the lowest one wait for their updates until the first message of the next sum is on its way."""
    n, r, grads = model.RANKS, model.rank, model.grad_weights
    power = 1 << (n.bit_length() - 1)

    async def sum_up(layer: int, meanwhile: Callable[[], None]) -> None:
        if r >= power:
            send = model.pass_to(r - power, grads.pop(layer))
            meanwhile()
            await send
            grads[layer] = await model.receive(r - power)
            return
        if r + power < n:
            grads[layer] = grads[layer] + await model.receive(r + power)
        apart = 1
        while apart < power:
            send = model.pass_to(r ^ apart, grads[layer])
            if apart == 1:
                meanwhile()
            grads[layer] = grads[layer] + await model.receive(r ^ apart)
            await send
            apart *= 2
        if r + power < n:
            await model.pass_to(r + power, grads[layer])

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([r])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    def update_from(lowest: int) -> None:
        for layer in sorted(set(grads) & set(range(lowest, model.LAYERS))):
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grads.pop(layer), model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grads[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        await sum_up(layer, partial(update_from, layer + 1))
        if layer > kept or n == 1:
            update_from(layer)
    update_from(0)
    return model


both_send = partial(exchanged, kept=2)
at_once = partial(exchanged, kept=0)
three_kept = partial(exchanged, kept=3)


def at_these_prices(
    fn: Callable[[Model], object], layers: int = 4, bytes_take: float = 0.5
) -> object:
    """Rank 0 of a run at the puzzle's size, where the bytes of a gradient take so many hops."""
    cost = WireCost(latency=0.1, bandwidth=262_144 / bytes_take * 10)
    return run(fn, ranks=16, layers=layers, batches=16, cost=cost).models[0]


def hop_by_hop(static: bool = False) -> Figure:
    """Puzzle 31's answer."""
    return draw(
        at_these_prices(ring_allreduce), title="hop by hop", memory=False, static=static
    )


def up_and_down(static: bool = False) -> Figure:
    """The tree."""
    return draw(
        at_these_prices(small_messages), title="up and down", memory=False, static=static
    )


draw(at_these_prices(both_send))

# %% tags=["figures"]
from math import log2

from lib import HIDDEN

at = {**size, "cost": cost}
whole = HIDDEN * HIDDEN / cost.bandwidth  # ticks for the bytes of a gradient
log = round(log2(ranks))
ring, tree, doubled, both, kept = (
    run(fn, **at) for fn in (ring_allreduce, small_messages, at_once, both_send, three_kept)
)


def row(bytes_take: float) -> str:
    """A row of the table: one sum in hops."""
    bandwidth = round(HIDDEN * HIDDEN / (0.1 * bytes_take))
    other = WireCost(latency=0.1, bandwidth=bandwidth)
    computing = other.forward + other.backward + other.update
    times = [
        (run(fn, ranks=ranks, layers=1, batches=ranks, cost=other).time - computing) / 0.1
        for fn in (small_messages, at_once, halving, ring_allreduce)
    ]
    return " | ".join(f"{time:.1f}" for time in times)
