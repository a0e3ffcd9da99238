# %% [markdown]
# # Puzzle 36: Sends that wait
#
# Until now a send went off at once. On a real network it may have to wait until its receiver has asked for it. Here is
# puzzle 13's answer on links where it does:
#
# ![1F1B on links where a send waits for its receive](picture:stuck)
#
# After {{hung.time}} ticks nothing moves any more. **Who waits for whom?**
#
# On the links of this puzzle all calls of a rank stand in one queue, receives too. A call begins when the one before
# it is over. A send goes off when it is first in its queue, *and* its receive is first in the receiver's. One call
# is new: it takes one place in the queue, and what is in it goes side by side.
#
# ```python
# # before: `out` is for rank 1, which has `grad` for this rank
# [grad] = await model.exchange([(1, out)], [1])  # sends, as (rank, tensor), and from whom to receive
# # after: `out` has been taken, and `grad` is here
# ```

# %%
from drawing import beside_target, draw, play
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 36,
    "name": "sends_that_wait",
    "title": "Sends that wait",
    "size": {"ranks": 4, "layers": 8, "batches": 8, "links": "ordered"},
    "other_sizes": "pipeline",
    "target": {"time": 52.6, "memory": 3014656},
    "star": {"time": 48.6, "memory": 3014656},
    "frontier": [
        {"time": 48.6, "memory": 3014656, "by": "one_more_forward"},
        {"time": 52.6, "memory": 2752512, "by": "sends_that_wait"},
    ],
    "layout": "stages",
    "begins_with": "one_f_one_b",
    "hints_for": {"slow": 2, "large": 2},
    "ideas": ["own_layers"],
    "words": ["exchange"],
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "For which message does the last rank wait in each turn? How long before could it have asked for it, and "
    "what would the rank before it have to do sooner?",
    "hints": [
        "Find the two ranks that wait for each other. One has an output for the rank after it, the other a gradient "
        "for the rank before it. Each wants to send, and only then to receive. Which of their calls belong together?",
        "Keep the order of forwards and backwards of puzzle 13: it has little in memory, and no rank waits long. Change "
        "the messages only. A rank that sends its output down, and then needs a gradient from there, does both in one "
        "`exchange`. The same holds upward. At the beginning and at the end there is only a send or only a receive.",
        "With `ahead = min(model.RANKS - model.rank, model.BATCHES)`: at the beginning, receive an input, do the "
        "forward, and send the output, `ahead` times; but the last of these sends is one exchange with the receive of "
        "the first gradient. Then, for every `mb`: a backward; if there is a forward left, one exchange with the rank "
        "before (gradient up, input down), the forward, and one exchange with the rank after (output down, gradient "
        "up). If there is none left, send the gradient up, and receive the next one.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 13, on links where sends wait (`links="ordered"`).
#
# - Each layer is on one rank, and all ranks have equally many.
# - {{ideas}}
# - A receive says from which rank.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def sends_that_wait(model: Model) -> Model:
    """1F1B on links where a send waits for its receive."""
    ### BEGIN SOLUTION
    share = model.LAYERS // model.RANKS
    first, end = model.rank * share, (model.rank + 1) * share
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    above, below = [model.rank - 1] * (not is_first), [model.rank + 1] * (not is_last)
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def forward(mb, came):
        model.activations[first, mb] = model.get_activation([mb]) if is_first else came[0]
        for layer in range(first, end):
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        return None if is_last else model.activations.pop((end, mb))

    def backward(mb, came):
        if is_last:
            came = [model.loss(model.activations.pop((end, mb)))]
        model.grad_activations[end] = came[0]
        for layer in reversed(range(first, end)):
            inp, grad_out = (
                model.activations.pop((layer, mb)),
                model.grad_activations.pop(layer + 1),
            )
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad
        return model.grad_activations.pop(first)

    ahead = min(model.RANKS - model.rank, model.BATCHES)
    work = [(forward, mb) for mb in range(ahead)]
    for mb in range(model.BATCHES):
        work.append((backward, mb))
        if mb + ahead < model.BATCHES:
            work.append((forward, mb + ahead))
    to, source = {forward: below, backward: above}, {forward: above, backward: below}

    came = await model.exchange([], above)
    for (do, mb), (then, _) in zip(work, [*work[1:], (None, 0)], strict=True):
        out = do(mb, came)  # and now pass it on, and take what comes next
        came = await model.exchange([(rank, out) for rank in to[do]], source.get(then, []))

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(run(sends_that_wait, ranks=4, layers=8, batches=8, links="ordered"))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(sends_that_wait)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. Here a send is fast only if its receive is there before
# it. Which rank asks too late? [Puzzle 12](p12_prefetch.ipynb) shows how to keep several things under way. To watch
# your own run, with the line that each rank is at:

# %%
play(run(sends_that_wait, ranks=4, layers=8, batches=8, links="ordered"))

# %% [markdown]
# ### In a circle
#
# Look at the picture on top again. Rank {{circle[0]}} is in a send to rank {{circle[1]}}, and rank {{circle[1]}} is in
# a send to rank {{circle[0]}}. Each would receive next, but a rank comes to its next call only when this one is over.
# So neither send ever begins, and the other ranks wait for these two. **It takes a circle of ranks that wait for each
# other**, and any two ranks that both send first are one.
#
# There are three ways out. Somebody receives first. Or nobody waits for a send before its own receive is posted. Or
# both are one call. Here are two hands of 1F1B, a send and the receive that belongs to it, written in three ways, on
# the three kinds of links of our machine:
#
# | in puzzle 13's order | `links="eager"` | `"rendezvous"` | `"ordered"` |
# |---|---|---|---|
# | `await model.pass_to(...)`, then `await model.receive(...)` | {{ends["each"]["eager"]}} | {{ends["each"]["rendezvous"]}} | {{ends["each"]["ordered"]}} |
# | start both, then await both | {{ends["both"]["eager"]}} | {{ends["both"]["rendezvous"]}} | {{ends["both"]["ordered"]}} |
# | `await model.exchange(...)` | {{ends["exchange"]["eager"]}} | {{ends["exchange"]["rendezvous"]}} | {{ends["exchange"]["ordered"]}} |
#
# On *eager* links, those of all other puzzles, a send waits for nobody. On *rendezvous* links it waits until its
# receive has been posted, and `model.receive` posts it at once. On *ordered* links a receive is posted only when it is
# first in its rank's queue, and there the sends of both ranks stand before both receives. So it helps to start both,
# but not everywhere. An exchange ends everywhere.
#
# The circle is not at the point that an error shows first. A rank that waits in it holds up its neighbors, and after a
# moment all are waiting. So look for the ranks that wait for each other, and for nobody else.

# %% [markdown] tags=["solution"]
# ### Asking sooner
#
# The last rank has work all the time, so what it waits for counts. In each turn it takes an input from the rank before
# it, and gives a gradient back. If it asks for the next input only after its backward, it waits there until that input
# has come. So it always has one receive more in its queue: in the exchange that sends a gradient, it asks for the
# input *after* the next one, and does not wait for it. Then the send of the rank before it finds its receive at once,
# and the input travels while the backward is computed. For that the other ranks begin with one forward more, as for the
# star of puzzle 13. It takes {{star_run.time}} ticks and {{star_run.memory}} elements.
#
# A random search over orders and receives found nothing faster in this memory. In {{more_memory}} elements it found
# {{fastest}} ticks, in an order without a rule. That is the bound of puzzle 13 for one stage on each rank.

# %% tags=["solution"]
from functools import partial

from drawing import Figure
from lib import Deadlock, Run


async def in_turns(model: Model, how: str = "exchange", sooner: bool = False) -> Model:
    """1F1B. ``how`` a rank sends, and receives what it needs next: "each" call awaited, "both" started before one is
    awaited, or in an "exchange". ``sooner``: one forward more comes first, and the last rank asks for an input
    two turns before it needs it."""
    share = model.LAYERS // model.RANKS
    first, end = model.rank * share, (model.rank + 1) * share
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    above, below = [model.rank - 1] * (not is_first), [model.rank + 1] * (not is_last)
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    async def talk(sends, sources):
        if how == "exchange":
            return await model.exchange(sends, sources)
        sent = [model.pass_to(rank, out) for rank, out in sends]
        if how == "each":
            for one in sent:
                await one
        coming = [model.receive(rank) for rank in sources]
        if how == "both":
            for one in sent:
                await one
        return [await one for one in coming]

    def forward(mb, came):
        model.activations[first, mb] = model.get_activation([mb]) if is_first else came[0]
        for layer in range(first, end):
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        return None if is_last else model.activations.pop((end, mb))

    def backward(mb, came):
        if is_last:
            came = [model.loss(model.activations.pop((end, mb)))]
        model.grad_activations[end] = came[0]
        for layer in reversed(range(first, end)):
            inp, grad_out = (
                model.activations.pop((layer, mb)),
                model.grad_activations.pop(layer + 1),
            )
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad
        return model.grad_activations.pop(first)

    coming = []
    if sooner and is_last:
        coming = [model.exchange([], above), model.exchange([], above * (model.BATCHES > 1))]
        for mb in range(model.BATCHES):
            forward(mb, await coming.pop(0))
            grad = backward(mb, [])
            more = above if mb + 2 < model.BATCHES else []
            coming.append(model.exchange([(rank, grad) for rank in above], more))
    else:
        ahead = min(model.RANKS - model.rank + sooner, model.BATCHES)
        work = [(forward, mb) for mb in range(ahead)]
        for mb in range(model.BATCHES):
            work.append((backward, mb))
            if mb + ahead < model.BATCHES:
                work.append((forward, mb + ahead))
        to, source = {forward: below, backward: above}, {forward: above, backward: below}
        came = await talk([], above)
        for (do, mb), (then, _) in zip(work, [*work[1:], (None, 0)], strict=True):
            out = do(mb, came)
            came = await talk([(rank, out) for rank in to[do]], source.get(then, []))

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    for call in coming:
        await call
    return model


async def deferred_in_exchanges(model: Model) -> Model:
    """For R19 of the repairs: its rows, with each send and the receive that follows in one exchange."""
    order = ("F00 F01 F20 F21 B20 B21 B00 B01", "F10 F11 F30 B30 F31 B31 B10 B11")[model.rank]
    work, thick, other = order.split(), model.LAYERS // 4, 1 - model.rank
    for stage in (model.rank, model.rank + 2):
        for layer in range(stage * thick, (stage + 1) * thick):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    came = await model.exchange([], [other] * model.rank)
    for piece, then in zip(work, [*work[1:], ""], strict=True):
        stage, mb = int(piece[1]), int(piece[2])
        layers, out = range(stage * thick, (stage + 1) * thick), None
        if piece[0] == "F":
            model.activations[layers[0], mb] = came[0] if came else model.get_activation([mb])
            for layer in layers:
                inp, weight = model.activations[layer, mb], model.weights[layer]
                model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
            if stage < 3:
                out = model.activations.pop((layers[-1] + 1, mb))
        else:
            out = came[0] if came else model.loss(model.activations.pop((model.LAYERS, mb)))
            for layer in reversed(layers):
                inp, weight = model.activations.pop((layer, mb)), model.weights[layer]
                grad, out = model.backward(layer, inp, out, weight)
                model.grad_weights[layer] = grad + model.grad_weights[layer] if mb else grad
        sends = [(other, out)] if out and piece[:2] != "B0" else []
        came = await model.exchange(
            sends, [other] if then and then[:2] not in ("F0", "B3") else []
        )

    for layer in sorted(model.weights):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def on_links(links: str, **how) -> Run:
    """The run at the puzzle's size on such links, or the run up to where it hangs."""
    try:
        return run(partial(in_turns, **how), ranks=4, layers=8, batches=8, links=links)
    except Deadlock as error:
        return error.run


def stuck(static: bool = False) -> Figure:
    """Puzzle 13's answer where sends wait."""
    return draw(
        on_links("ordered", how="each"),
        title="1F1B where sends wait",
        memory=False,
        static=static,
    )


one_more_forward = partial(in_turns, sooner=True)

draw(run(one_more_forward, ranks=4, layers=8, batches=8, links="ordered"))

# %% [markdown]
# ### Where real systems do this
#
# This is the commonest way in which a pipeline hangs, and it is a treacherous one. NCCL says that a blocking send may
# wait for its receive. Small messages often do not, since they fit into a buffer. So a program runs for months, until
# somebody trains with longer sequences. gloo, PyTorch's library for CPUs, waits at any size: docs/real-processes.md of
# the project shows such a hang there, with the words of PyTorch.
#
# A hang has no error. The GPUs even look busy, since a kernel that waits counts as one that runs. After the time limit
# of the process group ({{limit}} minutes with NCCL, unless you give `init_process_group` another one) PyTorch's
# watchdog ends the job, and each rank says which of its calls has timed out. The first of these calls is the one to
# look at, and the rank that never came to it.
#
# In PyTorch, `exchange` is `dist.batch_isend_irecv`, and in NCCL a group: `ncclGroupStart`, the sends and receives,
# `ncclGroupEnd`. NCCL's documentation asks for it where ranks send to each other. Megatron-LM's 1F1B has the calls
# `send_forward_recv_backward` and `send_backward_recv_forward`, which are the two exchanges of a turn, and PyTorch's
# `Schedule1F1B` puts the same pairs into one batch. In docs/schedules.md of the project you find how PyTorch's
# interleaved schedule hung when its receives came late, and what has mended it.

# %% [markdown]
# ### On real GPUs
#
# The model and the GPUs of puzzle 13, on links where sends wait.
#
# ![What a step takes](picture:priced)
#
# Puzzle 13's answer takes {{unhurried.seconds:.4g}} s there if no send waits, and hangs on these links. The star's
# program takes {{sooner_there.seconds:.4g}} s. Messages are short beside the layers of so large a model. So what you
# lose with sends that wait is not time, but the step.

# %% tags=["priced"]
from lib.real import A100_MEGATRON, GPT_175B, report

priced = run(
    sends_that_wait,
    ranks=8,
    layers=8,
    batches=64,
    links="ordered",
    cost=A100_MEGATRON.cost(
        GPT_175B, tensor=8, sequence_parallel=True, recompute="selective", gradients=4
    ),
)
print(report(priced))

# %% tags=["figures"]
LINKS_OF = ("eager", "rendezvous", "ordered")
hung = on_links("ordered", how="each")
circle = hung.failure.knot()
star_run = run(one_more_forward, **size)
tries = {
    how: {links: on_links(links, how=how) for links in LINKS_OF}
    for how in ("each", "both", "exchange")
}
ends = {
    how: {
        links: f"hangs at {show(done.time)}" if done.failure else f"{show(done.time)} ticks"
        for links, done in row.items()
    }
    for how, row in tries.items()
}
limit = published(10, "init_process_group")
fastest, more_memory = 47.4, 3_538_944

from solutions.p13_one_f_one_b import one_f_one_b

there = {"ranks": priced.ranks, "layers": priced.layers, "batches": priced.batches}
unhurried = run(one_f_one_b, **there, cost=priced.cost)
sooner_there = run(one_more_forward, **there, links="ordered", cost=priced.cost)
try:
    run(one_f_one_b, **there, links="ordered", cost=priced.cost)
except Deadlock:
    pass
else:
    raise AssertionError("puzzle 13's answer is said to hang on these links")
