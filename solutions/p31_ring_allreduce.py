# %% [markdown]
# # Puzzle 31: Ring all-reduce, by hand
#
# Until now a sum over all ranks was one call, `model.allreduce`. What is inside it?
#
# ![Everybody sends to rank 0, which sends the sum to everybody](picture:through_rank_0)
#
# This program sums with messages, on 4 ranks and one layer: all send their gradients to rank 0, which sends the sum
# back. Meanwhile most links wait. On 8 ranks, rank 0 takes in {{ranks - 1}} whole gradients, and sends as many. **Can
# every rank send less than two, however many ranks there are?**
#
# There is no new call. A gradient can be cut, added, joined and sent:
#
# ```python
# piece = grad.shard(0, 4)  # the first of four pieces of a whole gradient
# piece = piece + theirs  # after: the sum of this piece and the same piece of another rank's gradient
# grad = piece.combine(other)  # after: both pieces as one tensor
# ```

# %%
from drawing import beside_target, draw, holds, play
from lib import Model, WireCost, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 31,
    "name": "ring_allreduce",
    "title": "Ring all-reduce, by hand",
    "size": {"ranks": 8, "layers": 4, "batches": 8},
    "other_sizes": "data_parallel",
    "target": {"time": 29.12, "memory": 3014656},
    "star": {"time": 21.95, "memory": 3014656},
    "frontier": [
        {"time": 21.95, "memory": 3014656, "by": "to_owners"},
        {"time": 23.3, "memory": 2883584, "by": "to_owners_in_23_3"},
    ],
    "cost": "wires",
    "layout": "whole",
    "ideas": ["as_many_each", "weights_stay", "by_hand"],
    "begins_with": "ddp",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "In the ring a rank sends what it has just received, so it has to be there, and cannot compute "
    "meanwhile. Which messages of a sum need nothing that comes from others?",
    "hints": [
        "Let the ranks stand in a ring, and each send to the next. If whole gradients go round, then all links work "
        "all the time. But each carries the gradients of all other ranks. So cut a gradient into as many pieces as "
        "there are ranks. Must every piece visit every rank before it is complete?",
        "Cut the gradient into `model.RANKS` pieces. In each step a rank sends one piece to its right neighbor, and "
        "adds the piece that comes from the left meanwhile to its own of that number. After `model.RANKS - 1` steps "
        "each rank has the complete sum of one piece. As many steps again, without adding, bring these sums to all. "
        "Which piece does rank r send in step s, and when may a piece leave memory?",
        "With `n = model.RANKS`, `r = model.rank`, and pieces stored as `model.grad_weights[layer, i]`. For `step` "
        "from 0 to `n - 2`: start `send = model.pass_to((r + 1) % n, ...)` with piece `(r - step) % n`, taken out "
        "with `pop`; with `i = (r - step - 1) % n`, add `await model.receive((r - 1) % n)` to piece `i`; `await "
        "send`. Now piece `(r + 1) % n` is complete. Then in each step send piece `(r + 1 - step) % n`, and store "
        "what comes as piece `(r - step) % n`. At the end `combine` all pieces, taking each out, and update.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 2, on 8 ranks, and sum the gradients with `pass_to` and `receive`.
#
# - Every rank begins and ends with all weights and all optimizer states.
# - {{ideas}}
# - A message takes {{cost.latency}} ticks, and one more for each {{cost.bandwidth}} elements: a whole gradient
#   {{whole}}, as long as its backward.
#   A rank sends one message at a time, and takes in one at a time. It can do both at once.
# - Other sizes have 1 to 8 ranks.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def ring_allreduce(model: Model) -> Model:
    """Data parallel, with sums that are made of messages."""
    ### BEGIN SOLUTION
    n, r, grads = model.RANKS, model.rank, model.grad_weights

    async def sum_up(layer: int) -> None:
        whole = grads.pop(layer)
        for i in range(n):
            grads[layer, i] = whole.shard(i, n)
        for step in range(n - 1):  # each piece collects the gradients of all ranks
            send = model.pass_to((r + 1) % n, grads.pop((layer, (r - step) % n)))
            i = (r - step - 1) % n
            grads[layer, i] = grads[layer, i] + await model.receive((r - 1) % n)
            await send
        for step in range(n - 1):  # the sums go round
            send = model.pass_to((r + 1) % n, grads[layer, (r + 1 - step) % n])
            grads[layer, (r - step) % n] = await model.receive((r - 1) % n)
            await send
        grads[layer] = grads.pop((layer, 0))
        for i in range(1, n):
            grads[layer] = grads[layer].combine(grads.pop((layer, i)))

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
prices = WireCost(backward=2, latency=0.02, bandwidth=131_072)
draw(run(ring_allreduce, ranks=8, layers=4, batches=8, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(ring_allreduce)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. In the ring a rank sends what it has just received. So it
# has to be there, and cannot compute meanwhile. Which messages of a sum need nothing that comes from others?
# [Puzzle 12](p12_prefetch.ipynb) shows how to start now and fetch later. To watch your own run, with the line that each
# rank is at:

# %%
play(run(ring_allreduce, ranks=8, layers=4, batches=8, cost=prices))

# %% [markdown]
# ### The steps of the ring
#
# Here 4 ranks sum one gradient. In each row every rank sends one piece to the right:
#
# ![Four ranks, and which pieces of a gradient each holds in five steps of the ring](picture:steps)
#
# In the first three rows it gives the piece away, so it is pale. The pieces collect gradients on their way, and a rank
# holds one piece less after each step. In the fourth row each rank has one piece left, and it is complete: this is a
# reduce-scatter. From then on a rank keeps what it sends, and each step brings it one more complete piece: this is an
# all-gather. Draw your own program in this way:

# %%
one_layer = run(ring_allreduce, ranks=4, layers=1, batches=4, cost=prices)
holds(one_layer, 3.1, 3.6, 4.1, 4.6, 6.1)

# %% [markdown]
# ### Nothing sends less
#
# Take a single number of the gradient. n ranks have a part of it, and each message can bring together two parts at
# most, so the sum takes n - 1 messages. The n - 1 ranks that do not have it then need one each. That makes 2(n - 1)
# messages for each number, which n ranks share. So some rank sends at least 2(n - 1)/n times the gradient, here
# {{2 * (ranks - 1) / ranks:=}}, and in the ring each sends just that. (Patarasuk and Yuan prove it in *Bandwidth
# optimal all-reduce algorithms for clusters of workstations*, 2009.)
#
# Your ring takes exactly as long as `model.allreduce` would at these prices. `RingCost` (puzzle 19) has priced it as
# this ring all along. Here are {{ranks:word}} ranks with other ways to sum, each awaited before the next backward:
#
# | | most that a rank sends for a sum, in gradients | ticks for the step |
# |---|---|---|
# | through rank 0 | {{ranks - 1}} | {{of["root"].time}} |
# | whole gradients round a ring | {{ranks - 1}} | {{of["whole"].time}} |
# | pieces round a ring | {{2 * (ranks - 1) / ranks}} | {{of["ring"].time}} |
# | halves, quarters, eighths, and back | {{2 * (ranks - 1) / ranks}} | {{of["halves"].time}} |
#
# ### Why halves win here, and not on every network
#
# In the last row partners exchange halves of their gradients, and each adds. Then they exchange halves of these halves
# with other partners, and so on. After {{log:word}} steps each rank has the sum of one piece, and as many steps bring
# the pieces to all. The bytes are those of the ring, but there are {{2 * log}} hops one after the other instead of
# {{2 * (ranks - 1)}}. (MPI libraries know this as Rabenseifner's algorithm: Thakur, Rabenseifner and Gropp, 2005.)
#
# That works for {{ranks}} ranks, and for any power of two. With {{odd.ranks}} ranks, two of them have no partner. They
# give their gradients to others first, whole, and the step takes {{odd.time:.2f}} ticks, against {{odd_ring.time:.2f}}
# with the ring.
#
# And it works on this machine, where each rank has a link of its own to every other, and no message is in the way of
# another. In the first step of the halves, every rank of the lower half sends half of its gradient to the upper half.
# If these are two racks with few cables between them, all these messages meet there. So they do in a node where GPUs
# share a card, and in a network where chips have links to their neighbors only, as TPUs have. A ring sends to
# neighbors only, and just one message at a time crosses from rack to rack in each direction.
#
# ### Where real systems do this
#
# Baidu brought the ring from supercomputers to deep learning (Gibiansky, *Bringing HPC Techniques to Deep Learning*,
# 2017), and Horovod made it popular (arXiv 1802.05799). NCCL sums large gradients in rings, one or more for each card,
# and cuts each piece into smaller ones, so that the hops of one overlap with the bytes of the next. Facebook's team
# that trained ResNet-50 in an hour used halves on its network. On {{servers}} servers that was {{faster:word}} times as
# fast as the ring (arXiv 1706.02677). PyTorch's Gloo has both.

# %% [markdown] tags=["solution"]
# ### Other ways to sum
#
# `trained` is data parallel with any sum. In `by_halves` partners are {{ranks // 2}} ranks apart at first, then
# {{ranks // 4}}, then {{ranks // 8}}. Each keeps one half of what it has, and sends the other half.

# %% tags=["solution"]
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from drawing import Figure

Sum = Callable[[Model, int], Awaitable[None]]
"""Replaces this rank's gradient of a layer, which is in ``grad_weights``, by the sum over all ranks."""


async def trained(model: Model, total: Sum) -> Model:
    """Data parallel, with gradients that ``total`` sums."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        await total(model, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def to_one(model: Model, layer: int) -> None:
    """All send to rank 0, which sends the sum to all."""
    grads = model.grad_weights
    if model.rank:
        await model.pass_to(0, grads.pop(layer))
        grads[layer] = await model.receive(0)
        return
    for other in range(1, model.RANKS):
        grads[layer] = grads[layer] + await model.receive(other)
    for other in range(1, model.RANKS):
        await model.pass_to(other, grads[layer])


async def all_round(model: Model, layer: int) -> None:
    """Each rank's whole gradient goes round a ring, and is added everywhere."""
    n, r, grads = model.RANKS, model.rank, model.grad_weights
    grads["on"] = grads[layer]
    for _ in range(n - 1):
        send = model.pass_to((r + 1) % n, grads.pop("on"))
        grads["on"] = await model.receive((r - 1) % n)
        grads[layer] = grads[layer] + grads["on"]
        await send
    del grads["on"]


async def by_halves(model: Model, layer: int) -> None:
    """Partners exchange halves, then quarters, and so on, until each rank has the sum of one piece; and back. Ranks
    beyond a power of two give theirs to others first."""
    n, r, grads = model.RANKS, model.rank, model.grad_weights
    power = 1 << (n.bit_length() - 1)
    if r >= power:
        await model.pass_to(r - power, grads.pop(layer))
        grads[layer] = await model.receive(r - power)
        return
    if r + power < n:
        grads[layer] = grads[layer] + await model.receive(r + power)
    apart = power // 2
    while apart:
        whole, mine = grads.pop(layer), 1 if r & apart else 0
        grads[layer], theirs = whole.shard(mine, 2), whole.shard(1 - mine, 2)
        send = model.pass_to(r ^ apart, theirs)
        grads[layer] = grads[layer] + await model.receive(r ^ apart)
        await send
        apart //= 2
    apart = 1
    while apart < power:
        send = model.pass_to(r ^ apart, grads[layer])
        grads[layer] = grads[layer].combine(await model.receive(r ^ apart))
        await send
        apart *= 2
    if r + power < n:
        await model.pass_to(r + power, grads[layer])


through_one = partial(trained, total=to_one)
whole_ring = partial(trained, total=all_round)
halving = partial(trained, total=by_halves)


def through_rank_0(static: bool = False) -> Figure:
    """A sum through one rank."""
    cost = WireCost(backward=2, latency=0.02, bandwidth=131_072)
    done = run(through_one, ranks=4, layers=1, batches=4, cost=cost)
    return draw(done, title="through rank 0", memory=False, static=static)


def steps(static: bool = False) -> Figure:
    """Five steps of the ring."""
    cost = WireCost(backward=2, latency=0.02, bandwidth=131_072)
    done = run(ring_allreduce, ranks=4, layers=1, batches=4, cost=cost)
    return holds(done, 3.1, 3.6, 4.1, 4.6, 6.1, static=static)


# %% [markdown] tags=["solution"]
# ### The star: to the owner, and back at the end
#
# In a ring every message but the first waits for the one before. Let piece r belong to rank r instead. Then a rank can
# send all its pieces to their owners at once, since they need nothing from others, and compute the next backward while
# they travel. The sums can wait until the backward pass is done: until then each rank holds one piece of each, and that
# takes little memory. Over each link go as many bytes as in the ring, and nearly all the time: {{owners.time}} ticks.
#
# All ranks together have to send {{2 * (ranks - 1)}} gradients for each layer. So the busiest one sends for at least
# {{layers * 2 * (ranks - 1) / ranks * whole}} ticks, and it cannot begin before the first backward is done, at
# {{begin}}. An update of {{cost.update}} follows the last message. So no program takes less than
# {{begin + layers * 2 * (ranks - 1) / ranks * whole + cost.update}} ticks. (What is left is mostly latency. By halves
# the gathers at the end would take fewer messages, and be a little faster still.)
#
# When the backward of layer {{layers - 2}} is done, pieces of all others have come for layer {{layers - 1}}, and no one
# has added them yet. That is why it takes {{owners.memory}} elements. With `early=(4, 1)` a rank first adds four pieces
# of the highest layer, and one of the next, before it goes on. No program takes less than these
# {{in_order.memory}} elements: {{layers}} weights and states, a gradient of a weight, the gradient of its input, and
# {{layers - 1}} activations are there when the first backward is done.


# %% tags=["solution"]
async def pieces_to_owners(model: Model, early: Sequence[int]) -> Model:
    """Rank r owns piece r of every sum. All others send it theirs during the next backward, and it sends the sum to
    all of them at the end. ``early``: so many pieces of the highest layer, of the next, and so on, are added before the
    next backward."""
    n, r, grads = model.RANKS, model.rank, model.grad_weights
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([r])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    sends = {}
    left = {}  # the ranks whose pieces have not been added yet

    def send_pieces(layer: int) -> None:
        whole = grads.pop(layer)
        for i in range(n):
            grads[layer, i] = whole.shard(i, n)
        others = [(r + k) % n for k in range(1, n)]
        sends[layer] = [model.pass_to(i, grads.pop((layer, i))) for i in others]
        grads[layer] = grads.pop((layer, r))
        left[layer] = [(r - k) % n for k in range(1, n)]

    async def add_pieces(layer: int, most: int) -> None:
        for other in left[layer][:most]:
            grads[layer] = grads[layer] + await model.receive(other)
        del left[layer][:most]

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grads[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        if layer + 1 < model.LAYERS:
            await add_pieces(layer + 1, n)
        send_pieces(layer)
        await add_pieces(layer, dict(enumerate(early)).get(model.LAYERS - 1 - layer, 0))
    del model.grad_activations[0]
    await add_pieces(0, n)

    for layer in reversed(range(model.LAYERS)):
        sends[layer] += [model.pass_to((r + k) % n, grads[layer]) for k in range(1, n)]
    for layer in reversed(range(model.LAYERS)):
        for k in range(1, n):
            grads[layer] = grads[layer].combine(await model.receive((r - k) % n))
        for send in sends[layer]:
            await send
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grads.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


to_owners = partial(pieces_to_owners, early=())
to_owners_in_23_3 = partial(pieces_to_owners, early=(4, 1))

draw(run(to_owners, ranks=8, layers=4, batches=8, cost=prices))

# %% tags=["figures"]
from math import log2

from lib import HIDDEN

at = {**size, "cost": cost}
whole = HIDDEN * HIDDEN / cost.bandwidth  # ticks for the bytes of a gradient
log = round(log2(ranks))
through = run(through_one, ranks=4, layers=1, batches=4, cost=cost)
in_steps = run(ring_allreduce, ranks=4, layers=1, batches=4, cost=cost)
ways = {"root": through_one, "whole": whole_ring, "ring": ring_allreduce, "halves": halving}
of = {name: run(fn, **at) for name, fn in ways.items()}
odd, odd_ring = (
    run(fn, ranks=6, layers=4, batches=6, cost=cost) for fn in (halving, ring_allreduce)
)
owners, in_order = (run(fn, **at) for fn in (to_owners, to_owners_in_23_3))
begin = layers * cost.forward + cost.backward
servers, faster = (published(number, "arXiv 1706.02677") for number in (32, 3))
