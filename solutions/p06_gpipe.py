# %% [markdown]
# # Puzzle 6: GPipe
#
# In puzzle 5 one rank worked while three waited. This waiting is called the *bubble*. Can you make it smaller?
#
# ![Puzzle 5: the whole batch goes from rank to rank, and back](picture:one_at_a_time)

# %%
from drawing import beside_target, compare, draw, play
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 6,
    "name": "gpipe",
    "title": "GPipe",
    "size": {"ranks": 4, "layers": 8, "batches": 4},
    "other_sizes": "pipeline",
    "target": {"time": 33.8, "memory": 4194304},
    "star": {"time": 31.4, "memory": 2490368},
    "frontier": [
        {"time": 28.1, "memory": 2490368, "by": "interleaved_ahead"},
    ],
    "layout": "stages",
    "ideas": ["own_layers", "one_micro_batch"],
    "difficulty": "medium",
    "minutes": 30,
    "hints_for": {"slow": 1, "large": 2},
    "star_hint": "When could the last rank do its first backward at the earliest, and what would be in "
    "memory at that time? And which message may still be on its way when the next "
    "micro-batch begins?",
    "hints": [
        "What could rank 0 do while rank 1 works on a micro-batch?",
        "While a rank waits for the whole batch, it loses time. So let the micro-batches follow one another: "
        "receive one, run your layers on it, pass it on, take the next. All of them forward, then all of them "
        "backward. Several micro-batches of one layer are in memory at once, so they need different keys. Of each, "
        "keep only what its backward will read.",
        "For each micro-batch keep in memory only the inputs of your layers, which its backward will read: `pop` what "
        "you pass on, and what is read for the last time. A key may be a pair: `model.activations[layer, mb]`. In the "
        "backward pass, for each `mb`: `receive` the gradient (or, on the last rank, call `loss`), `backward` through "
        "your layers, add to `grad_weights[layer]` as in puzzle 1, `pass_to` the rank before. Update after the last. "
        "For the star, let messages travel while the ranks work. And must all forwards come before all backwards?",
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step as in puzzle 5, but keep the ranks busy.
#
# - Each layer is on one rank, with its weight and optimizer state, and every rank has the same number of layers.
# - {{ideas}}
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def gpipe(model: Model) -> Model:
    """The layers spread over the ranks, the batch in several pieces."""
    ### BEGIN SOLUTION
    share = model.LAYERS // model.RANKS
    first, end = model.rank * share, (model.rank + 1) * share
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    for mb in range(model.BATCHES):
        if is_first:
            model.activations[first, mb] = model.get_activation([mb])
        else:
            model.activations[first, mb] = await model.receive(src=model.rank - 1)
        for layer in range(first, end):
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        if not is_last:
            await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))

    for mb in range(model.BATCHES):
        if is_last:
            model.grad_activations[end] = model.loss(model.activations.pop((end, mb)))
        else:
            model.grad_activations[end] = await model.receive(src=model.rank + 1)
        for layer in reversed(range(first, end)):
            inp, grad_out = (
                model.activations.pop((layer, mb)),
                model.grad_activations.pop(layer + 1),
            )
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad
        grad_in = model.grad_activations.pop(first)
        if not is_first:
            await model.pass_to(model.rank - 1, grad_in)

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(run(gpipe, ranks=4, layers=8, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(gpipe)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. To earn it, find an order of the work that frees memory
# earlier, and let messages travel while a rank computes ("start now, fetch later", as in [puzzle 2](p02_ddp.ipynb)). To
# watch your own run, with the line that each rank is at:

# %%
play(run(gpipe, ranks=4, layers=8, batches=4))

# %% [markdown]
# ### Side by side
#
# Here are our programs for puzzle 5 and for this one: {{naive.time}} ticks against {{piped.time}}, for the same batch.
#
# ![Puzzle 5 above puzzle 6](picture:side_by_side)
#
# `compare` draws several runs under one time axis. Try it with your own programs.
#
# ### How small can the bubble get?
#
# You are close to a limit. A *turn* is one forward and one backward of a micro-batch on a rank. With m micro-batches
# a rank works for m turns. But with p stages, the last one waits for p - 1 forwards before it can begin. And when it
# is done, p - 1 backwards still have to follow, one after the other, on the ranks before it. So with one stage for
# each rank, no order takes less than m + p - 1 turns.
#
# Here a rank needs {{each}} ticks for 4 micro-batches, so a turn is {{each / batches}}. The limit is
# {{batches + ranks - 1}} turns, or {{slower * each}} ticks, plus updates and messages. The bubble is p - 1 of the m + p
# - 1 turns: here {{empty}} of the time, or {{empty:percent}}. With {{more}} micro-batches it would be {{emptier}}, or
# {{emptier:percent}}. In puzzle 5 with {{stages}} stages it would be {{Fraction(stages - 1, stages):percent}}.

# %% [markdown] tags=["solution"]
# ### Smaller: one forward, one backward
#
# Who says that all forwards come before all backwards? After a few forwards to fill the pipeline, a rank can take
# turns: one backward, which frees the activations of a micro-batch, then one forward, which needs room for the next.
# How many forwards come first? Of p ranks, rank r needs p - r: when these are done, its first gradient is back. All
# ranks but the last need one forward more, to have work while messages travel.
#
# With 4 micro-batches that takes {{turns.time}} ticks and {{turns.memory}} elements. With {{more}} it takes
# {{turns_more.time}} ticks and {{turns_more.memory}} elements, where `gpipe` takes {{gpipe_more.time}} and
# {{gpipe_more.memory}}. PyTorch's `Schedule1F1B` has one forward fewer at the start, p - r. With {{more}} micro-batches
# that takes {{pytorch.time}} ticks and {{pytorch.memory}} elements. That schedule is puzzle 13.


# %% tags=["solution"]
async def one_forward_one_backward(model: Model) -> Model:
    """The pieces of gpipe in another order, with few micro-batches in memory at a time."""
    share = model.LAYERS // model.RANKS
    first, end = model.rank * share, (model.rank + 1) * share
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    async def forward(mb: int) -> None:
        if is_first:
            model.activations[first, mb] = model.get_activation([mb])
        else:
            model.activations[first, mb] = await model.receive(src=model.rank - 1)
        for layer in range(first, end):
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        if not is_last:
            await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))

    async def backward(mb: int) -> None:
        if is_last:
            model.grad_activations[end] = model.loss(model.activations.pop((end, mb)))
        else:
            model.grad_activations[end] = await model.receive(src=model.rank + 1)
        for layer in reversed(range(first, end)):
            inp, grad_out = (
                model.activations.pop((layer, mb)),
                model.grad_activations.pop(layer + 1),
            )
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad
        grad_in = model.grad_activations.pop(first)
        if not is_first:
            await model.pass_to(model.rank - 1, grad_in)

    ahead = 1 if is_last else min(model.RANKS - model.rank + 1, model.BATCHES)
    for mb in range(ahead):
        await forward(mb)
    for mb in range(model.BATCHES):
        await backward(mb)
        if mb + ahead < model.BATCHES:
            await forward(mb + ahead)

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(run(one_forward_one_backward, ranks=4, layers=8, batches=4))

# %% [markdown] tags=["solution"]
# ### Faster: no rank waits for messages
#
# A send need not be awaited before the next piece of work, and you can ask for the next message while this piece is
# computed. With one stage on each rank, no schedule is faster: {{ahead.time}} ticks. GPipe then takes {{ahead.memory}}
# elements, and the schedule "one forward, one backward" takes {{turns_ahead.memory}}. The latter begins with one more
# forward, because a message takes so long to arrive.


# %% tags=["solution"]
async def in_order(model: Model, work: list[tuple[str, int]]) -> Model:
    """A pipeline. The rank does its ``work`` in order: each item is "forward" or "backward", with a micro-batch."""
    share = model.LAYERS // model.RANKS
    first, end = model.rank * share, (model.rank + 1) * share
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    mine = {"forward": is_first, "backward": is_last}  # what this rank begins by itself
    sender = {"forward": model.rank - 1, "backward": model.rank + 1}
    senders = [sender[what] for what, _ in work if not mine[what]]
    mail = [model.receive(src=senders.pop(0))] if senders else []
    sends = []
    for what, mb in work:
        got = None if mine[what] else await mail.pop(0)
        if what == "forward":
            model.activations[first, mb] = got or model.get_activation([mb])
        else:
            model.grad_activations[end] = got or model.loss(model.activations.pop((end, mb)))
        if senders and not mail:
            mail.append(model.receive(src=senders.pop(0)))
        if what == "forward":
            for layer in range(first, end):
                inp, weight = model.activations[layer, mb], model.weights[layer]
                model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
            if not is_last:
                sends.append(model.pass_to(model.rank + 1, model.activations.pop((end, mb))))
            continue
        for layer in reversed(range(first, end)):
            inp, grad_out = (
                model.activations.pop((layer, mb)),
                model.grad_activations.pop(layer + 1),
            )
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        grad_in = model.grad_activations.pop(first)
        if not is_first:
            sends.append(model.pass_to(model.rank - 1, grad_in))

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    for send in sends:
        await send
    return model


async def gpipe_ahead(model: Model) -> Model:
    """All forwards, then all backwards."""
    batch = range(model.BATCHES)
    work = [("forward", mb) for mb in batch] + [("backward", mb) for mb in batch]
    return await in_order(model, work)


async def one_forward_one_backward_ahead(model: Model) -> Model:
    """Some forwards, then one backward and one forward by turns."""
    some = 1 if model.rank == model.RANKS - 1 else model.RANKS - model.rank + 2
    work = [("forward", mb) for mb in range(min(some, model.BATCHES))]
    for mb in range(model.BATCHES):
        work.append(("backward", mb))
        if mb + some < model.BATCHES:
            work.append(("forward", mb + some))
    return await in_order(model, work)


draw(run(one_forward_one_backward_ahead, ranks=4, layers=8, batches=4))

# %% [markdown] tags=["solution"]
# ### The two pictures


# %% tags=["solution"]
async def pipeline(model: Model) -> Model:
    """Puzzle 5: the whole batch in one piece."""
    share = model.LAYERS // model.RANKS
    first, end = model.rank * share, (model.rank + 1) * share
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    batch = range(model.BATCHES)
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    inp = model.get_activation(batch) if is_first else await model.receive()
    for layer in range(first, end):
        model.activations[layer] = inp
        inp = model.forward(layer, inp, model.weights[layer])
    if not is_last:
        await model.pass_to(model.rank + 1, inp)
    grad = model.loss(inp) if is_last else await model.receive()
    for layer in reversed(range(first, end)):
        model.grad_weights[layer], grad = model.backward(
            layer, model.activations.pop(layer), grad, model.weights[layer]
        )
    if not is_first:
        await model.pass_to(model.rank - 1, grad)
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


compare(
    run(pipeline, ranks=4, layers=8, batches=4),
    run(gpipe, ranks=4, layers=8, batches=4),
    run(one_forward_one_backward, ranks=4, layers=8, batches=4),
)

# %% tags=["solution"]
from drawing import Figure


def one_at_a_time(static: bool = False) -> Figure:
    """Puzzle 5: one rank works, the others wait."""
    naive = run(pipeline, ranks=4, layers=8, batches=4)
    return draw(naive, memory=False, title="puzzle 5", static=static)


def side_by_side(static: bool = False) -> Figure:
    """Puzzle 5 above puzzle 6."""
    naive, piped = (run(fn, ranks=4, layers=8, batches=4) for fn in (pipeline, gpipe))
    return compare(naive, piped, titles=["puzzle 5", "puzzle 6"], static=static)


# %% [markdown]
# ### Where real systems do this
#
# GPipe (arXiv 1811.06965) trains like this: all forwards, then all backwards. In PyTorch it is `ScheduleGPipe`. PyTorch
# {{TORCH}} starts the same forwards, backwards, sends and receives as our `gpipe`, on every rank and in the same order
# (`tests/torch_truth/TABLE.md`). Its weakness is memory. Every rank keeps the activations of all m micro-batches, and m
# has to be large to make the bubble small. (The paper keeps only the *input* of each stage, and computes the other
# activations again in the backward pass.)
#
# *One forward, one backward* (1F1B, called PipeDream-flush in arXiv 2006.09503 and used by Megatron-LM, arXiv
# 2104.04473) starts a backward as soon as it can. If messages took no time, it would take exactly as long as GPipe.
# **It saves memory, not time**: rank r of p keeps the activations of at most p - r micro-batches, however many there
# are.
#
# There are two ways to shrink the bubble itself. Each rank can hold several thin pieces of the model instead of one
# thick one (*interleaved* stages). With v pieces a step takes m + (p - 1)/v turns instead of m + p - 1, but more
# messages. Or the backward can be split in two. Only the update needs the gradient of the weight, so a rank can compute
# it when it has nothing else to do (*zero bubble* schedules, arXiv 2401.10241).
#
# ### On real GPUs
#
# The same model on the same {{priced.ranks * priced.cost.tensor}} GPUs as in puzzle 5. A stage is a node of
# {{priced.cost.tensor}} GPUs. It has one layer in this run, which stands for {{GPT_175B.layers // priced.layers:word}}
# layers of the model.
#
# ![What a step takes](picture:priced)
#
# It is fast enough, but takes too much memory: when the first backward begins, all {{priced.batches}} micro-batches are
# in flight.

# %% tags=["priced"]
from lib.real import A100_MEGATRON, GPT_175B, report

priced = run(
    gpipe,
    ranks=8,
    layers=8,
    batches=64,
    cost=A100_MEGATRON.cost(
        GPT_175B, tensor=8, sequence_parallel=True, recompute="selective", gradients=4
    ),
)
print(report(priced))

# %% tags=["figures"]
stages, more = 16, 16
each = batches * 2 * (cost.forward + cost.backward)
slower, empty = Fraction(batches + ranks - 1, batches), Fraction(ranks - 1, batches + ranks - 1)
emptier = Fraction(ranks - 1, more + ranks - 1)
messages = 2 * (ranks - 1) * (cost.send + cost.receive)
assert float(bounds.one_stage) == float(slower * each) + messages + 2 * cost.update

from solutions.p13_one_f_one_b import one_f_one_b

naive, piped, turns, ahead, turns_ahead = (
    run(fn, **size)
    for fn in (
        pipeline,
        gpipe,
        one_forward_one_backward,
        gpipe_ahead,
        one_forward_one_backward_ahead,
    )
)
assert turns_ahead.time == ahead.time
turns_more, gpipe_more, pytorch = (
    run(fn, **{**size, "batches": more})
    for fn in (one_forward_one_backward, gpipe, one_f_one_b)
)
