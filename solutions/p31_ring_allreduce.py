# %% [markdown]
# # Puzzle 31: Ring all-reduce, by hand
#
# Until now a sum over all ranks was one call, `model.allreduce`. What is inside it?
#
# ![Everybody sends to rank 0, which sends the sum to everybody](picture:through_rank_0)
#
# This program sums with messages, on 4 ranks and one layer: all send their gradients to rank 0, and it sends the sum
# back. Meanwhile most links wait. On 8 ranks the link of rank 0 carries {{2 * (ranks - 1)}} whole gradients. **Can
# every link carry less than two, however many ranks there are?**
#
# Nothing is new. A gradient can be cut, added, joined and sent:
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
        {"time": 28.48, "memory": 2883584, "by": "halving"},
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
        "adds the piece that comes from the left to its own piece of the same number. After `model.RANKS - 1` steps "
        "each rank has the complete sum of one piece. As many steps again, without adding, bring these sums to all. "
        "Which piece does rank r send in step s?",
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
# - A message takes {{cost.latency}} ticks, and a tick more for each {{cost.bandwidth}} elements. So a whole gradient
#   takes {{whole}}, as long as its backward.
# - A rank sends one message at a time, and takes in one at a time. It can do both at once.
# - Other sizes have 1 to 8 ranks, with a micro-batch each.
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
# [Puzzle 12](p12_prefetch.ipynb) shows how to start now and fetch later.

# %% [markdown] tags=["solution"]
# ### Other ways to sum

# %% tags=["solution"]
from asyncio import Task, create_task
from collections.abc import Awaitable, Callable
from functools import partial

from drawing import Figure

Sum = Callable[[Model, int], Awaitable[None]]
"""Replaces this rank's gradient of a layer, which is in ``grad_weights``, by the sum over all ranks."""


async def trained(model: Model, total: Sum, behind: int = 0) -> Model:
    """Data parallel, with gradients that ``total`` sums. So many sums may be on their way ``behind`` the backward."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    sums: dict[int, Task[None]] = {}

    async def update() -> None:
        layer = max(sums)
        await sums.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        sums[layer] = create_task(total(model, layer))
        if len(sums) > behind:
            await update()
    del model.grad_activations[0]
    while sums:
        await update()
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
        mine = 1 if r & apart else 0
        whole = grads.pop(layer)
        grads[layer] = whole.shard(mine, 2)
        send = model.pass_to(r ^ apart, whole.shard(1 - mine, 2))
        del whole
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


halving = partial(trained, total=by_halves)
halving_behind = partial(trained, total=by_halves, behind=1)


async def to_owners(model: Model) -> Model:
    """Rank r owns piece r of every sum. All others send it theirs during the next backward, and it sends the sum to
    all of them at the end."""
    n, r, grads = model.RANKS, model.rank, model.grad_weights
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([r])
    for layer in range(model.LAYERS):
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    sends = {}

    def send_pieces(layer: int) -> None:
        whole = grads.pop(layer)
        for i in range(n):
            grads[layer, i] = whole.shard(i, n)
        others = [(r + k) % n for k in range(1, n)]
        sends[layer] = [model.pass_to(i, grads.pop((layer, i))) for i in others]
        grads[layer] = grads.pop((layer, r))

    async def add_pieces(layer: int) -> None:
        for k in range(1, n):
            grads[layer] = grads[layer] + await model.receive((r - k) % n)
        for send in sends.pop(layer):
            await send

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grads[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        if layer + 1 < model.LAYERS:
            await add_pieces(layer + 1)
        send_pieces(layer)
    del model.grad_activations[0]
    await add_pieces(0)

    for layer in reversed(range(model.LAYERS)):
        sends[layer] = [model.pass_to((r + k) % n, grads[layer]) for k in range(1, n)]
    for layer in reversed(range(model.LAYERS)):
        for k in range(1, n):
            grads[layer] = grads[layer].combine(await model.receive((r - k) % n))
        for send in sends.pop(layer):
            await send
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grads.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def through_rank_0(static: bool = False) -> Figure:
    """A sum through one rank."""
    cost = WireCost(backward=2, latency=0.02, bandwidth=131_072)
    done = run(partial(trained, total=to_one), ranks=4, layers=1, batches=4, cost=cost)
    return draw(done, title="through rank 0", memory=False, static=static)


# %% tags=["figures"]
whole = 65536 * 4 / cost.bandwidth
through = run(partial(trained, total=to_one), ranks=4, layers=1, batches=4, cost=cost)
