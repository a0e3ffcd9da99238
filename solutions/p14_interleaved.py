# %% [markdown]
# # Puzzle 14: Interleaved 1F1B
#
# Llama 3 405B was trained in pipelines of {{stages}} stages, with {{batch // pipelines}} sequences for each pipeline
# (arXiv 2407.21783). With one sequence in a micro-batch and the schedule of puzzle 13, the bubble takes {{lost}} of
# each step. More micro-batches would make the batch too large. With fewer stages the model does not fit. What else
# could change?
#
# ![1F1B with one stage of two layers on each rank, if messages took no time: the empty parts are the bubble](picture:in_one_piece)
#
# Now each rank has *several* stages of one layer, its *chunks*. Of 8 layers on 4 ranks, rank 0 has layers 0 and 4,
# rank 1 has layers 1 and 5, and so on. After layer 3 a micro-batch goes back to rank 0 for layer 4. So the pipeline
# is a ring, and every micro-batch goes round it twice.

# %%
from drawing import beside_target, draw, play
from lib import Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 14,
    "name": "interleaved",
    "title": "Interleaved 1F1B",
    "size": {"ranks": 4, "layers": 8, "batches": 8},
    "other_sizes": "rounds",
    "target": {"time": 45.2, "memory": 3407872},
    "star": {"time": 41.0, "memory": 3145728},
    "frontier": [
        {"time": 40.5, "memory": 3145728, "by": "interleaved_in_40_5"},
        {"time": 41.9, "memory": 3014656, "by": "interleaved_in_41_9"},
    ],
    "cost": "quick_messages",
    "layout": "stages",
    "begins_with": "one_f_one_b",
    "ideas": ["own_layers", "dealt_like_cards"],
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "Which receive could begin one turn before its micro-batch comes, and which send could be awaited "
    "one turn later? And must the first group of micro-batches be as small as the groups after it?",
    "hints": [
        "Draw the first ticks of four ranks. When is the first micro-batch back at rank 0 for its second layer, and "
        "what can rank 0 do until then? So how many micro-batches go through its first layer before that, and what "
        "comes after them? Backwards go in the same rounds, from the last layer to the first. When can the last rank "
        "begin its first backward?",
        "Write `forward(layer, mb)` and `backward(layer, mb)`, each with its `receive` and its `pass_to`. A round "
        "is as many micro-batches as there are ranks. List the order of the forwards: `for some in rounds: for layer "
        "in mine: for mb in some`. List the backwards in the same way, with `reversed(mine)`. Then "
        "do some of the forwards, and after that one backward and one forward by turns. How many forwards come "
        "first? With too few a rank waits, with too many its memory fills.",
        "How many forwards come before the first backward? With v layers on each of p ranks, the last rank needs (v - "
        "1) * p + 1: a round for each of its layers except the last, and one more forward. Each rank before it needs "
        "two more than the next: `2 * (p - 1 - model.rank) + (v - 1) * p + 1`. With fewer, a rank needs a tensor that "
        "cannot be there yet; with many more, the step takes longer, and more memory. Take each activation out, "
        "`pop`, as its backward reads it.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 13. There are twice as many messages now, and they are quick: a send and a receive take
# {{cost.send}} ticks each.
#
# - {{ideas}}
# - Each layer is on one rank, with its weight and optimizer state, and every rank has the same number of layers.
# - At other sizes, `LAYERS` is a multiple of `2 * RANKS`, and `BATCHES` is a multiple of `RANKS`.
#
# The order in which a rank does its work is the whole puzzle.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def interleaved(model: Model) -> Model:
    """Layers dealt out to the ranks like cards, and one forward, one backward by turns."""
    ### BEGIN SOLUTION
    ranks, top = model.RANKS, model.LAYERS - 1
    before, after = (model.rank - 1) % ranks, (model.rank + 1) % ranks
    mine = range(model.rank, model.LAYERS, ranks)
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    async def forward(layer: int, mb: int) -> None:
        if layer == 0:
            model.activations[layer, mb] = model.get_activation([mb])
        else:
            model.activations[layer, mb] = await model.receive(src=before)
        out = model.forward(layer, model.activations[layer, mb], model.weights[layer])
        if layer == top:
            model.activations[top + 1, mb] = out
        else:
            await model.pass_to(after, out)

    async def backward(layer: int, mb: int) -> None:
        if layer == top:
            grad_out = model.loss(model.activations.pop((top + 1, mb)))
        else:
            grad_out = await model.receive(src=after)
        inp = model.activations.pop((layer, mb))
        grad, grad_in = model.backward(layer, inp, grad_out, model.weights[layer])
        model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad
        if layer > 0:
            await model.pass_to(before, grad_in)

    rounds = [range(first, first + ranks) for first in range(0, model.BATCHES, ranks)]
    forwards = [(layer, mb) for some in rounds for layer in mine for mb in some]
    backwards = [(layer, mb) for some in rounds for layer in reversed(mine) for mb in some]
    ahead = 2 * (ranks - 1 - model.rank) + (len(mine) - 1) * ranks + 1
    for work in forwards[:ahead]:
        await forward(*work)
    for turn, work in enumerate(backwards, ahead):
        await backward(*work)
        if turn < len(forwards):
            await forward(*forwards[turn])

    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = Cost(send=0.1, receive=0.1)
draw(run(interleaved, ranks=4, layers=8, batches=8, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(interleaved)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. It wants messages that travel while a rank computes;
# [puzzle 12](p12_prefetch.ipynb) shows how to keep several things under way. To watch your own run, with the line
# that each rank is at:

# %%
play(run(interleaved, ranks=4, layers=8, batches=8, cost=prices))

# %% [markdown]
# ### Half of the bubble
#
# Here is the order of our solution. A *round* has as many micro-batches as there are ranks. On each rank, all of them
# go through its first layer, and then all of them through its second. Then comes the next round. Backwards go in the
# same rounds, from the last layer to the first.
#
# ![Two thin stages a rank](picture:in_two_pieces)
#
# Messages take no time in this picture, as in the one at the top of the page. The bubble takes {{thin_gaps:percent}}
# of the ranks' time. With one thick stage on each rank it takes {{thick_gaps:percent}}. A rank still has {{work}}
# ticks of forwards and backwards to do, and {{updates}} tick of updates. But the last rank gets its first micro-batch
# after three thin stages instead of three thick ones. In the same way rank 0 gets its last gradient sooner. So the
# bubble is {{thin.time - work - updates}} ticks instead of {{thick.time - work - updates}}. With v chunks on each
# rank, the bubble is 1/v of what it was. Let F and B be the times of all of a rank's layers, forward and backward,
# for one micro-batch. Then p ranks take (m + (p - 1)/v)(F + B) for m micro-batches, plus updates.
#
# It is not free. Every micro-batch is sent v times as often. If a send and a receive take {{default.send}} ticks
# each, as in puzzle 6, this schedule takes {{usual.time}} ticks. At these prices 1F1B with one thick stage takes
# {{one_f.time}}, or {{one_f_more.time}} with one more forward at the start. So nothing is left of the gain. And more
# is in flight. With one thick stage, rank 0 has at most p micro-batches of v layers in memory, which is as much as
# {{ranks * v}} micro-batches of one layer. With thin stages, rank 0 has as much as 2(p - 1) + (v - 1)p + 1 = p v + p
# - 1 micro-batches of one layer: {{ranks * v + ranks - 1}}.

# %% [markdown] tags=["solution"]
# ### Faster: no rank waits for messages
#
# Sends need not be awaited at once, and the next message can be asked for while this piece of work is done. With the
# same order of work, that takes {{ahead.time}} ticks and {{ahead.memory}} elements. That is
# {{star.time - ahead.time}} ticks less than the star, because rank 0 updates layer 4 while it waits for the last
# gradients of layer 0.
#
# There is still a gap after each round. When rank 0 has taken four micro-batches through layer 0, the first of them
# has been through four forwards and four messages, so it is not back yet. With one micro-batch more in the first
# round there is something to do meanwhile: {{wide.time}} ticks and {{wide.memory}} elements.
#
# With only two ranks, the rank before and the rank after are the same. Then activations and gradients come from one
# sender, and not always in the order in which they are needed. So the program stores each message under its kind, layer
# and micro-batch, and takes it out when its turn comes.

# %% tags=["solution"]
from functools import partial
from itertools import pairwise
from typing import Any

from drawing import compare
from lib import Activation, Run


async def looped(model: Model, work: list[tuple[str, int, int]]) -> Model:
    """A pipeline in which the rank does its ``work`` in order: each piece is "forward" or "backward", a layer and a
    micro-batch."""
    ranks, top = model.RANKS, model.LAYERS - 1
    before, after = (model.rank - 1) % ranks, (model.rank + 1) % ranks
    for layer in range(model.rank, model.LAYERS, ranks):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    stores: dict[str, Any] = {"forward": model.activations, "backward": model.grad_activations}
    sender = {"forward": before, "backward": after}
    here = ("forward", 0), ("backward", top)  # what begins on this rank
    senders = [sender[what] for what, layer, _ in work if (what, layer) not in here]
    mail = [model.receive(src=senders.pop(0))] if senders else []
    sends = []
    for what, layer, mb in work:
        if (what, layer) == ("forward", 0):
            model.activations[0, mb] = model.get_activation([mb])
        if (what, layer) == ("backward", top):
            model.grad_activations[top, mb] = model.loss(model.activations.pop((top + 1, mb)))
        while (layer, mb) not in stores[what]:
            got = await mail.pop()
            kind = "forward" if isinstance(got, Activation) else "backward"
            stores[kind][got.layer, min(got.batches)] = got
            if senders:
                mail.append(model.receive(src=senders.pop(0)))

        if what == "forward":
            out = model.forward(layer, model.activations[layer, mb], model.weights[layer])
            if layer == top:
                model.activations[top + 1, mb] = out
            else:
                sends.append(model.pass_to(after, out))
            continue
        inp, grad_out = (
            model.activations.pop((layer, mb)),
            model.grad_activations.pop((layer, mb)),
        )
        grad, grad_in = model.backward(layer, inp, grad_out, model.weights[layer])
        so_far = model.grad_weights.get(layer)
        model.grad_weights[layer] = so_far + grad if so_far else grad
        if layer > 0:
            sends.append(model.pass_to(before, grad_in))
        if len(model.grad_weights[layer].batches) == model.BATCHES:
            grad = model.grad_weights.pop(layer)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])
    for send in sends:
        await send
    return model


def by_turns(
    model: Model, ahead: int, wide: int = 0, wide_back: int = 0
) -> list[tuple[str, int, int]]:
    """First ``ahead`` forwards, then one backward and one forward by turns. The first round of forwards has ``wide``
    micro-batches more than there are ranks, the first round of backwards ``wide_back`` more."""
    mine = range(model.rank, model.LAYERS, model.RANKS)

    def order(kind: str, layers: list[int], more: int) -> list[tuple[str, int, int]]:
        ends = [0, *range(model.RANKS + more, model.BATCHES, model.RANKS), model.BATCHES]
        rounds = [range(start, end) for start, end in pairwise(ends)]
        return [(kind, layer, mb) for some in rounds for layer in layers for mb in some]

    forwards = order("forward", [*mine], wide)
    work = forwards[:ahead]
    for turn, backward in enumerate(order("backward", [*reversed(mine)], wide_back), ahead):
        work += [backward, *forwards[turn : turn + 1]]
    return work


async def interleaved_ahead(model: Model) -> Model:
    """The order of the solution above, but no rank waits for messages. Micro-batches that full
    rounds leave over are added to the first round."""
    later, rounds = model.RANKS - 1 - model.rank, model.LAYERS // model.RANKS - 1
    over = model.BATCHES % model.RANKS
    ahead = 2 * later + rounds * min(model.RANKS + over, model.BATCHES) + 1
    return await looped(model, by_turns(model, ahead, over, over))


async def interleaved_overlapped(model: Model, wide_back: int, more: int) -> Model:
    """The first round is larger by one micro-batch. Before its first backward a rank does as few forwards as possible,
    plus ``more``."""
    later, rounds = model.RANKS - 1 - model.rank, model.LAYERS // model.RANKS - 1
    ahead = later + (later > 0) + rounds * min(model.RANKS + 1, model.BATCHES) + 1 + more
    return await looped(model, by_turns(model, ahead, 1, wide_back))


interleaved_in_40_5 = partial(interleaved_overlapped, wide_back=0, more=1)
interleaved_in_41_9 = partial(interleaved_overlapped, wide_back=1, more=0)

compare(
    run(interleaved, ranks=4, layers=8, batches=8, cost=prices),
    run(interleaved_ahead, ranks=4, layers=8, batches=8, cost=prices),
    run(interleaved_in_40_5, ranks=4, layers=8, batches=8, cost=prices),
)

# %% [markdown] tags=["solution"]
# ### The pictures
#
# A thick stage is drawn as one layer that takes twice as long, and has twice as much to keep.

# %% tags=["solution"]
from dataclasses import replace

from drawing import Figure


async def one_layer_each(model: Model) -> Model:
    """1F1B: rank r of p begins with p - r forwards."""
    return await looped(model, by_turns(model, model.RANKS - model.rank))


def one_thick_stage() -> Run:
    """1F1B: four layers, each of them as large as two."""
    thin = Cost(send=0, receive=0)
    weight, activation = 2 * thin.weight_elements, 2 * thin.activation_elements
    cost = replace(
        thin,
        forward=2,
        backward=2,
        update=1,
        weight_elements=weight,
        activation_elements=activation,
    )
    return run(one_layer_each, ranks=4, layers=4, batches=8, cost=cost)


def in_one_piece(static: bool = False) -> Figure:
    """A layer that counts for two on each rank."""
    done = one_thick_stage()
    return draw(done, title="one thick stage a rank", memory=False, links="none", static=static)


def in_two_pieces(static: bool = False) -> Figure:
    """Interleaved: eight layers, two on each rank."""
    cost = Cost(send=0, receive=0)
    done = run(interleaved, ranks=4, layers=8, batches=8, cost=cost)
    return draw(done, title="two thin stages a rank", memory=False, links="none", static=static)


in_two_pieces()

# %% [markdown]
# ### Where real systems do this
#
# Megatron-LM introduced it (arXiv 2104.04473), and measured more than ten percent more throughput. Its option is
# `--num-layers-per-virtual-pipeline-stage`. Before the first backward it does as many forwards as our solution. By
# default, the number of micro-batches has to be a multiple of the number of stages. PyTorch has it as
# `ScheduleInterleaved1F1B`. In PyTorch {{TORCH}}, every rank starts all work and all sends in the order of our
# solution. It asks for many messages earlier than it needs them (`tests/torch_truth/TABLE.md`). Interleaved 1F1B
# keeps 1 + (p - 1)/(p v) times as many activations as 1F1B (arXiv 2205.05198).
#
# On links where a send waits for its receive ([puzzle 36](p36_sends_that_wait.ipynb)), our solution hangs. Two ranks
# are in a send to each other, and neither has asked for what comes. A rank that starts its sends, and awaits them only
# at the end, does not hang: on such links (`links="rendezvous"`) the step then takes {{patient.time}} ticks, if it
# also asks for each message one piece of work ahead.
#
# Rounds can have other sizes. Megatron's `--microbatch-group-size-per-virtual-pipeline-stage` sets one, and Llama 3
# was trained with a schedule in which rounds can have any size. Larger rounds leave more time for messages, and cost
# memory.
#
# ### On real GPUs
#
# GPT-3 on {{priced.ranks * priced.cost.tensor}} GPUs, as in puzzle 13, with {{priced.layers // priced.ranks:word}}
# chunks on each stage. A chunk is one layer of this run, and stands for {{GPT_175B.layers // priced.layers:word}}
# layers of the model.
#
# ![What a step takes](picture:priced)
#
# Megatron-LM trained this model on such GPUs, with this schedule, in {{measured}} s a step (arXiv 2205.05198, table 5).
# We fitted one number to another row of that table: how close matrix products come to the GPU's peak speed.

# %% tags=["priced"]
from lib.real import A100_MEGATRON, GPT_175B, report

priced = run(
    interleaved,
    ranks=8,
    layers=24,
    batches=64,
    cost=A100_MEGATRON.cost(
        GPT_175B, tensor=8, sequence_parallel=True, recompute="selective", gradients=4
    ),
)
print(report(priced))

# %% tags=["figures"]
from tools.published import MEGATRON

from solutions.p06_gpipe import one_forward_one_backward
from solutions.p13_one_f_one_b import one_f_one_b

thick, thin = one_thick_stage(), run(interleaved, **size, cost=Cost(send=0, receive=0))
thick_gaps, thin_gaps = idle(thick), idle(thin)
v, default = layers // ranks, Cost()
work, updates = batches * v * (default.forward + default.backward), v * default.update
usual, one_f, one_f_more = (
    run(fn, **size) for fn in (interleaved, one_f_one_b, one_forward_one_backward)
)
ahead, wide = (run(fn, **size, cost=cost) for fn in (interleaved_ahead, interleaved_in_40_5))
patient = run(interleaved_ahead, **size, cost=cost, links="rendezvous")

gpus, stages, to_a_stage, batch = (
    published(value, "arXiv 2407.21783") for value in (16_384, 16, 8, 2048)
)
pipelines = gpus // (stages * to_a_stage)
lost = Fraction(stages - 1, batch // pipelines + stages - 1)
measured = published(
    next(row for row in MEGATRON if row.model == GPT_175B).present, "arXiv 2205.05198"
)
