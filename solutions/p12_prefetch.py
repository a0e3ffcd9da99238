# %% [markdown]
# # Puzzle 12: Prefetching
#
# FSDP gathers each weight twice in a step, and every time the GPU waits for it. Everybody knows which weight will be
# needed next, and when. Why ask for it so late?
#
# ![Puzzle 4 at the prices of this page: the network waits while the rank computes, and the rank while the network works](picture:one_after_the_other)
#
# This is rank 0 with an answer to puzzle 4. Each node has only one network card, so a gather takes nearly as long as a
# forward. For {{waiting}} of the {{plain.time}} ticks nobody computes.
#
# As in puzzle 2, a collective begins when you call it. Only its `await` waits:
#
# ```python
# ahead = model.allgather(model.weights[layer], layer)  # begins now
# ...                                                   # compute something else
# weight = await ahead                                  # waits only if it is not there yet
# ```
#
# Two things about calls that are on their way:
#
# - The network of a rank makes one call at a time, in the order in which you start them.
# - They take up memory. A weight counts as whole as soon as you call `allgather`. A gradient counts until its sum is
#   there.

# %%
from drawing import beside_target, compare, draw, play
from lib import Cost, Model, WeightGrad, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 12,
    "name": "prefetch",
    "title": "Prefetching",
    "size": {"ranks": 4, "layers": 6, "batches": 4},
    "other_sizes": "data_parallel",
    "target": {"time": 23.4, "memory": 2621440},
    "star": {"time": 21.8, "memory": 2424832},
    "frontier": [
        {"time": 21.8, "memory": 2424832, "by": "prefetch_in_21_8"},
        {"time": 22.1, "memory": 2293760, "by": "prefetch_in_22_1"},
        {"time": 22.4, "memory": 2228224, "by": "prefetch_in_22_4"},
        {"time": 23.2, "memory": 2162688, "by": "prefetch_in_23_2"},
    ],
    "cost": "long_gathers",
    "layout": "sharded",
    "begins_with": "fsdp",
    "hints_for": {"slow": 2, "large": 2},
    "ideas": ["as_many_each", "no_whole_gradient"],
    "difficulty": "medium",
    "minutes": 30,
    "star_hint": "For which gathers and which sums does a rank still wait, at the beginning and at the end? What "
    "could be updated while the last of them are on their way?",
    "hints": [
        "A rank's network does nothing while the rank computes. Look at the picture of your answer to puzzle 4: which "
        "gather could begin earlier, during a forward or a backward, and how much earlier?",
        "Start the gather of the next weight before this layer's forward, or before its backward, and await it when "
        "that layer's turn comes. To start it after the backward is too late: then the network also has the sum of the "
        "gradient to make, and it makes one call at a time. Don't wait for that sum, either, before the next backward "
        "is done. What waits takes up memory: two whole weights and one whole gradient at a time are enough.",
        "A turn of the backward loop: `model.weights['whole'] = await ahead`; then `ahead = "
        "model.allgather(model.weights[layer - 1], layer - 1)`, if there is a layer below; then `backward` with "
        "`model.weights.pop('whole')`; then `sums[layer] = model.scatterreduce(grad, layer)`; and take the sum "
        "that you started one turn ago: `model.grad_weights[layer + 1] = await sums.pop(layer + 1)`. So no rank "
        "has more than two whole weights and one whole gradient in memory.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 4. Now a collective takes {{cost.collective}} ticks, and a backward {{cost.backward}}, twice as
# long as a forward.
#
# - Rank `r` begins and ends with shard `r` of `RANKS` of every weight and optimizer state.
# - {{ideas}}
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def prefetch(model: Model) -> Model:
    """Fully sharded data parallel, with the next weight on its way while this layer computes."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    ahead = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        model.weights["whole"] = await ahead
        if layer + 1 < model.LAYERS:
            ahead = model.allgather(model.weights[layer + 1], layer + 1)
        inp, weight = model.activations[layer], model.weights.pop("whole")
        model.activations[layer + 1] = model.forward(layer, inp, weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    sums = {}
    ahead = model.allgather(model.weights[model.LAYERS - 1], model.LAYERS - 1)
    for layer in reversed(range(model.LAYERS)):
        model.weights["whole"] = await ahead
        if layer > 0:
            ahead = model.allgather(model.weights[layer - 1], layer - 1)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        weight = model.weights.pop("whole")
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        sums[layer] = model.scatterreduce(grad, layer)
        if layer + 1 in sums:
            model.grad_weights[layer + 1] = await sums.pop(layer + 1)
    model.grad_weights[0] = await sums.pop(0)

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = Cost(backward=2, collective=0.8)
draw(run(prefetch, ranks=4, layers=6, batches=4, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(prefetch)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. In your picture, where does the rank still wait? To
# watch it, with the line that each rank is at:

# %%
play(run(prefetch, ranks=4, layers=6, batches=4, cost=prices))

# %% [markdown]
# ### What can be hidden
#
# Here is rank 0 in a program that passes. It makes the same {{calls}} calls as the one at the top of this page, and
# all but {{len(seen):word}} run while something is computed. The three are the first gather of each pass and the last
# sum. For the star, you leave out one of these three, and hide another one.
#
# ![The next gather ahead](picture:one_ahead)
#
# The price is memory: {{ours.memory}} elements instead of {{plain.memory}}. The band *in flight* is what is on its
# way. In the backward pass two whole weights are in memory at a time: the one in use, and the next one. Beside them
# is the gradient of the layer above, which is being summed. If you gather two ahead, there are three whole weights,
# and nothing is gained: the network is not done any earlier.
#
# How far does this go? Here are both programs with quicker and slower collectives:
#
# | a collective takes | {{dear[0]}} | {{dear[1]}} | {{dear[2]}} | {{dear[3]}} | {{dear[4]}} | {{dear[5]}} |
# |---|---|---|---|---|---|---|
# | each call awaited | {{awaited[0]}} | {{awaited[1]}} | {{awaited[2]}} | {{awaited[3]}} | {{awaited[4]}} | {{awaited[5]}} |
# | the next gather ahead | {{gone[0]}} | {{gone[1]}} | {{gone[2]}} | {{gone[3]}} | {{gone[4]}} | {{gone[5]}} |
#
# As long as a collective takes no more than {{dear[3]}} tick, the second program waits for {{len(seen):word}} calls
# instead of {{calls}}. A forward of {{cost.forward}} tick hides one gather, and a backward of {{cost.backward}} ticks
# hides a gather and a sum. When a collective takes longer, a rank waits for the rest of it. From {{dear[3]}} to
# {{dear[5]}} ticks for a collective, the second program loses {{gone[5] - gone[3]}} ticks, and the first
# {{awaited[5] - awaited[3]}}. Then no order of calls helps, only fewer calls, or more work for each of them.
#
# ### How many tokens hide a gather
#
# A layer of a model with {{LLAMA / BILLION}} billion parameters has {{LAYER / MILLION}} million weights,
# {{WEIGHT * LAYER / BILLION:.2f}} GB. A node whose GPUs share a card of {{CABLE}} Gbit/s receives {{BETWEEN}} GB a
# second, so that is {{gather * 1000:.0f}} ms. The forward pass on {{tokens}} tokens takes {{forward * 1000:.0f}} ms.
# (That is why a collective takes {{cost.collective}} ticks on this page.)
#
# A forward pass takes 2 operations for each weight and token, and a GPU does {{PER_SECOND / 1e14}} x 10¹⁴ operations
# a second. A gather brings {{WEIGHT}} bytes for each weight, and {{BETWEEN}} x 10⁹ bytes a second. They take equally
# long with {{PER_SECOND / 1e14}} x 10¹⁴ / ({{BETWEEN}} x 10⁹) = {{PER_SECOND / BETWEEN / BILLION}} tokens on each
# GPU, **however large the layer is**. A backward pass takes twice as long and has twice as much to hide, so it needs
# as many tokens. If each of a node's eight GPUs has such a card, a gather over whole nodes uses all eight, with
# {{8 * BETWEEN}} GB a second. Then {{PER_SECOND / (8 * BETWEEN) / BILLION}} tokens are enough. Over NVLink alone,
# with {{IN_NODE}} GB a second, {{round(PER_SECOND / IN_NODE / BILLION, -2)}} tokens are enough.
#
# ### A skill: several chains at once
#
# Many stars need this. What is done for a layer is a *chain*. In data parallel it is a backward, a sum and an update,
# and each needs the one before it. If you finish the chain of one layer before you begin the next, the rank waits for
# every sum. So have several chains under way. **In each turn of a loop, let every chain take one step**: start what can
# be started, compute, and take what has arrived meanwhile. A dictionary keeps the calls that are under way, by layer.
#
# In the second program below, a turn does the backward of this layer and starts its sum. Then it updates the layer
# above, whose sum was started one turn ago. After the loop, the last chain is brought to its end.


# %%
def forward_pass(model: Model) -> None:
    """All forwards of a rank in data parallel, and the loss."""
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        inp, weight = model.activations[layer], model.weights[layer]
        model.activations[layer + 1] = model.forward(layer, inp, weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))


def backward(model: Model, layer: int) -> None:
    """The first stage of a chain."""
    inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
    model.grad_weights[layer], model.grad_activations[layer] = model.backward(
        layer, inp, grad_out, model.weights[layer]
    )


def update(model: Model, layer: int, grad: WeightGrad) -> None:
    """The last stage."""
    model.weights[layer], model.opt_states[layer] = model.update(
        layer, grad, model.weights[layer], model.opt_states[layer]
    )
    model.set_final_weight(layer, model.weights[layer])


async def one_chain_after_the_other(model: Model) -> Model:
    """Each layer's backward, sum and update."""
    forward_pass(model)
    for layer in reversed(range(model.LAYERS)):
        backward(model, layer)
        update(model, layer, await model.allreduce(model.grad_weights.pop(layer), layer))
    return model


async def one_stage_a_turn(model: Model) -> Model:
    """In each turn, a backward and the start of its sum, and the update of the layer above."""
    forward_pass(model)
    sums = {}
    for layer in reversed(range(model.LAYERS)):
        backward(model, layer)
        sums[layer] = model.allreduce(model.grad_weights.pop(layer), layer)
        if layer + 1 in sums:
            update(model, layer + 1, await sums.pop(layer + 1))
    update(model, 0, await sums.pop(0))
    return model


chains = [
    run(fn, ranks=4, layers=6, batches=4)
    for fn in (one_chain_after_the_other, one_stage_a_turn)
]
compare(
    *[done.models[0] for done in chains],
    titles=["one chain after the other", "one stage a turn"],
)

# %% [markdown]
# That takes {{in_turns.time}} ticks instead of {{after_the_other.time}}. The price is memory, for the gradient on its
# way: {{in_turns.memory}} elements instead of {{after_the_other.memory}}. Longer chains work in the same way: keep a
# dictionary for each kind of call, and in each turn serve the oldest chains first.

# %% [markdown] tags=["solution"]
# ### The programs in the pictures
#
# Puzzle 4 as it was, and this puzzle.

# %% tags=["solution"]
from collections.abc import Callable
from functools import partial
from typing import Any

from drawing import Figure
from lib import Run


async def fsdp_blocking(model: Model) -> Model:
    """Every call is awaited at once."""
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
        model.grad_weights[layer] = await model.scatterreduce(grad, layer)

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def with_collectives_of(price: float, fn: Callable[[Model], Any]) -> Run:
    """A run at the puzzle's size, with this price for a collective."""
    return run(fn, ranks=4, layers=6, batches=4, cost=Cost(backward=2, collective=price))


def one_after_the_other(static: bool = False) -> Figure:
    """The network waits while the rank computes, and the rank while the network works."""
    first = with_collectives_of(0.8, fsdp_blocking).models[0]
    return draw(first, title="each call awaited", memory_target=2_621_440, static=static)


def one_ahead(static: bool = False) -> Figure:
    """They work at the same time."""
    first = with_collectives_of(0.8, prefetch).models[0]
    return draw(first, title="the next gather ahead", memory_target=2_621_440, static=static)


both = [with_collectives_of(0.8, fn) for fn in (fsdp_blocking, prefetch)]
compare(*both, titles=["each call awaited", "the next gather ahead"])

# %% [markdown] tags=["solution"]
# ### Faster, and in less memory
#
# Two of the three waits can be avoided. The last weight of the forward pass is the first of the backward pass, so
# keep it. And don't wait for the last sum before the first update: while it is on its way, update other layers. Then
# a step takes the first gather, all the computing, and nothing else: {{least.time}} ticks. No program can be faster,
# since nothing can be computed before the first weight is there.
#
# A gather can also begin after a layer's backward, before the gradient is summed. That takes less room, but the rank
# waits for part of the gather. Below, a letter for each layer says whether the next weight is gathered before the
# backward (`b`) or after it (`a`). Nothing that we have tried is as fast in less memory.


# %% tags=["solution"]
async def prefetch_overlapped(model: Model, gathers: str) -> Model:
    """Keep the last weight, gather ahead as the letters say, update while the last sum is on its way."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    ahead = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        model.weights["whole"] = await ahead
        if layer + 1 < model.LAYERS:
            ahead = model.allgather(model.weights[layer + 1], layer + 1)
        inp, weight = model.activations[layer], model.weights["whole"]
        model.activations[layer + 1] = model.forward(layer, inp, weight)
        if layer + 1 < model.LAYERS:
            del model.weights["whole"]
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    async def update(layer: int) -> None:
        grad = await sums.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    sums = {}
    for turn, layer in enumerate(reversed(range(model.LAYERS))):
        when = gathers[min(turn, len(gathers) - 1)] if layer else "never"
        if turn:
            model.weights["whole"] = await ahead
        if when == "b":
            ahead = model.allgather(model.weights[layer - 1], layer - 1)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights.pop("whole")
        )
        if when == "a":
            ahead = model.allgather(model.weights[layer - 1], layer - 1)
        sums[layer] = model.scatterreduce(model.grad_weights.pop(layer), layer)
        if turn and layer >= 2:  # the last three updates are for the time of the last sum
            await update(layer + 1)
    del model.grad_activations[0]
    for layer in list(sums):
        await update(layer)
    return model


prefetch_in_21_8 = partial(prefetch_overlapped, gathers="b")
prefetch_in_22_1 = partial(prefetch_overlapped, gathers="bab")
prefetch_in_22_4 = partial(prefetch_overlapped, gathers="baab")
prefetch_in_23_2 = partial(prefetch_overlapped, gathers="aaab")

draw(run(prefetch_in_21_8, ranks=4, layers=6, batches=4, cost=prices))

# %% [markdown]
# ### Where real systems do this
#
# PyTorch's FSDP does what you did. Its first version lets you choose when the next weights are gathered in the
# backward pass. `BACKWARD_PRE`, the default, begins before the gradient of the current layer is computed,
# `BACKWARD_POST` after it. The documentation says that the former "enables the most overlap but increases memory
# usage the most". FSDP2 (`fully_shard`) always begins before. We recorded PyTorch {{TORCH}} with six blocks: it
# starts {{recorded(fully, "all-gathers")}} gathers and {{recorded(fully, "reduce-scatters")}} sums, in the same order
# as our solution (`tests/torch_truth/TABLE.md`). Here that takes {{ours.time}} ticks and {{ours.memory}} elements.
# `llm-training-puzzles run my_prefetch.py:prefetch --like torch` compares yours.
#
# In the forward pass PyTorch need not start anything earlier. The CPU only *queues* work for the GPU, and runs ahead
# of it. When the forward of layer 0 is queued, the gather of layer 1 is queued right behind it, on a *stream* of its
# own, and both run at the same time. PyTorch calls this implicit prefetching. No more than two gathers are under way
# at a time, so that gathered weights do not fill the memory (FSDP, arXiv 2304.11277).
#
# By default FSDP2 frees the last block after its forward pass and gathers it again at once, for nothing. With
# `reshard_after_forward=False` for the last block it stays whole. torchtitan did so until July 2025. Since then only
# the final norm and the output layer stay whole, which come after the last block. DeepSpeed's ZeRO-3 notes in which
# order the layers are used, and gathers ahead by that list (ZeRO-Infinity, arXiv 2104.07857).

# %% [markdown]
# ### On real GPUs
#
# Llama 3 8B on two nodes, the same as in puzzle 4.
#
# ![What a step takes](picture:priced)
#
# Between the layers there are hardly any gaps. Each GPU has a card of its own here, and {{LLAMA_3_8B.sequence}}
# tokens. With cards of half the speed a step takes {{slower[0]:.2f}} s. With an eighth of the speed, as if all GPUs
# of a node shared one card, it takes {{slower[1]:.2f}} s. Try `replace(H100_TORCHTITAN, nic=25e9)`, with
# `from dataclasses import replace`.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_8B, report

priced = run(
    prefetch,
    ranks=16,
    layers=32,
    batches=16,
    cost=H100_TORCHTITAN.cost(LLAMA_3_8B, recompute="full"),
)
print(report(priced))

# %% tags=["figures"]
tokens = 10_000
gather, forward = (
    WEIGHT * LAYER / (BETWEEN * BILLION),
    2 * LAYER * tokens / PER_SECOND,
)  # seconds
assert float(cost.collective) == round(gather / forward, 1)

plain, ours, least = (
    run(fn, **size, cost=cost) for fn in (fsdp_blocking, prefetch, prefetch_in_21_8)
)


def seen_by(done: Run) -> list[Any]:
    """The calls of rank 0 during which it computes nothing."""
    work = [
        event for event in done.models[0].log if event.end > event.start and not event.group
    ]
    calls = [event for event in done.models[0].log if event.group]
    return [
        call
        for call in calls
        if not any(one.start < call.end and call.start < one.end for one in work)
    ]


everything, seen = seen_by(plain), seen_by(ours)
calls = sum(bool(event.group) for event in ours.models[0].log)
assert len(everything) == calls
assert [(call.kind, call.layer) for call in seen] == [
    ("allgather", 0),
    ("allgather", 5),
    ("scatterreduce", 0),
]
waiting = float(calls * cost.collective)
of_weights = show(Fraction(sum(call.kind == "allgather" for call in everything), calls), "word")

after_the_other, in_turns = (
    run(fn, **size) for fn in (one_chain_after_the_other, one_stage_a_turn)
)
for done in (after_the_other, in_turns):
    done.verify()

dear = 0.3, 0.5, 0.8, 1.0, 1.5, 2.0
awaited, gone = (
    [with_collectives_of(price, fn).time for price in dear] for fn in (fsdp_blocking, prefetch)
)
fully = "fully_shard, 6 layers, 1 micro-batch"

from dataclasses import replace

slower = [
    run(
        prefetch,
        ranks=16,
        layers=32,
        batches=16,
        cost=replace(H100_TORCHTITAN, nic=H100_TORCHTITAN.nic / part).cost(
            LLAMA_3_8B, recompute="full"
        ),
    ).seconds
    for part in (2, 8)
]
