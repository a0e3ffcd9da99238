# %% [markdown]
# # Puzzle 16: Zero bubble
#
# With 4 stages and 8 micro-batches, 1F1B leaves {{empty}} of the time empty even if messages take no time:
# {{empty:percent}}, more than one GPU in four. At the start the last rank waits for the first micro-batch, at the end
# the first rank waits for the last gradient. More micro-batches make that share smaller, and so do several thin
# stages on each rank: in puzzle 14 it was {{thin:percent}}. But nothing has filled it.
#
# Is there work that nobody waits for?

# %%
from drawing import beside_target, compare, draw, play
from lib import Cost, Model, grade, hint, run, solution

# %% tags=["spec"]
PUZZLE = {
    "number": 16,
    "name": "zero_bubble",
    "title": "Zero bubble",
    "size": {"ranks": 4, "layers": 4, "batches": 8},
    "other_sizes": "one_layer_each",
    "target": {"time": 20.5, "memory": 2097152},
    "star": {"time": 19.5, "memory": 1966080},
    "frontier": [
        {"time": 19.5, "memory": 1966080, "by": "zb_h1"},
        {"time": 20.0, "memory": 1703936, "by": "zb_in_20"},
        {"time": 20.5, "memory": 1572864, "by": "zero_bubble"},
    ],
    "cost": "free_links",
    "layout": "stages",
    "ideas": ["own_layers"],
    "words": ["backward_input", "backward_weight"],
    "begins_with": "one_f_one_b",
    "hints_for": {"slow": 3, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "Which ranks wait for the first gradient, and for how long? How many weight halves "
    "could each rank put off, so that it has something to do while it waits at the end?",
    "hints": [
        "In a backward, two gradients are computed. Who waits for the one of the input, and who for the one of the "
        "weight?",
        "One forward, one backward as in puzzle 13, with `backward_input` in place of `backward`: pass its "
        "gradient on at once. The `backward_weight` of that micro-batch may come later, but until then an input "
        "and a gradient are kept in memory for it. If it comes right after, you are at {{at_once.time}} ticks. "
        "Where does a rank wait, and what could it do there?",
        "At the start of the backward pass the first ranks wait for gradients from the last one. So the last rank is "
        "to send them as soon as it can, and do its weight halves later. Let it do the weight half "
        "of micro-batch `mb - 1` after the input half of micro-batch `mb`, and the one that is left at the end. For "
        "the star, ask which other ranks have time at the end.",
    ],
}

# %% [markdown]
# ## New tools: the halves of a backward
#
# `backward` returns two gradients. The one of the input is urgent: the rank before waits for it. The one of the weight
# is needed only for the update. So there are two operations, each with one half of the work, and each takes half of
# the time:
#
# - `model.backward_input(layer, inp, grad, weight)` returns the gradient of the input,
# - `model.backward_weight(layer, inp, grad, weight)` returns the gradient of the weight.
#
# They may be done in any order and at any distance. But both read the layer's input and the gradient of its output, so
# these have to stay in memory until the second half is done.


# %%
def in_halves(model: Model) -> Model:
    """One layer trained on two micro-batches, the weight's halves last."""
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    for mb in range(2):
        model.activations[0, mb] = model.get_activation([mb])
        model.grad_activations[1, mb] = model.loss(
            model.forward(0, model.activations[0, mb], model.weights[0])
        )
        model.backward_input(
            0, model.activations[0, mb], model.grad_activations[1, mb], model.weights[0]
        )
    for mb in range(2):
        model.grad_weights[0, mb] = model.backward_weight(
            0, model.activations[0, mb], model.grad_activations[1, mb], model.weights[0]
        )
    return model


draw(run(in_halves, layers=1, batches=2))

# %% [markdown]
# ## Your task
#
# A pipeline with one layer on each rank, so that there are no smaller chunks to help. Messages take no time here:
# `cost=Cost(send=0, send_across=0, receive=0)`.
#
# The grader holds you to this: {{ideas}}
#
# Target, for 4 ranks, 4 layers and 8 micro-batches: **{{target.time}}** ticks, peak memory **{{target.memory}}**
# elements. The star: **{{star.time}}** ticks, **{{star.memory}}** elements.
#
# A rank computes for {{batches * (F + B + W) + cost.update:=}} ticks. The last rank cannot begin before three
# forwards of others are done. So no schedule takes less than {{work + 3 * F}}: that is the bound that the verdict
# tells.


# %%
async def zero_bubble(model: Model) -> Model:
    """One forward, one backward, with the weight's half of a backward where the rank would wait."""
    ### BEGIN SOLUTION
    share = model.LAYERS // model.RANKS
    mine = range(model.rank * share, (model.rank + 1) * share)
    first, end = mine.start, mine.stop
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    async def forward(mb: int) -> None:
        if is_first:
            model.activations[first, mb] = model.get_activation([mb])
        else:
            model.activations[first, mb] = await model.receive(src=model.rank - 1)
        for layer in mine:
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        if not is_last:
            await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))

    async def for_the_input(mb: int) -> None:
        if is_last:
            model.grad_activations[end, mb] = model.loss(model.activations.pop((end, mb)))
        else:
            model.grad_activations[end, mb] = await model.receive(src=model.rank + 1)
        for layer in reversed(mine):
            inp, grad = model.activations[layer, mb], model.grad_activations[layer + 1, mb]
            model.grad_activations[layer, mb] = model.backward_input(
                layer, inp, grad, model.weights[layer]
            )
        grad = model.grad_activations.pop((first, mb))
        if not is_first:
            await model.pass_to(model.rank - 1, grad)

    def for_the_weight(mb: int) -> None:
        for layer in mine:
            inp = model.activations.pop((layer, mb))
            grad = model.grad_activations.pop((layer + 1, mb))
            of_weight = model.backward_weight(layer, inp, grad, model.weights[layer])
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + of_weight if so_far else of_weight

    ahead, late = min(model.RANKS - model.rank, model.BATCHES), int(is_last)
    for mb in range(ahead):
        await forward(mb)
    for mb in range(model.BATCHES):
        await for_the_input(mb)
        if mb >= late:
            for_the_weight(mb - late)
        if mb + ahead < model.BATCHES:
            await forward(mb + ahead)
    for mb in range(max(model.BATCHES - late, 0), model.BATCHES):
        for_the_weight(mb)

    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
free_links = Cost(send=0, send_across=0, receive=0)
draw(run(zero_bubble, ranks=4, layers=4, batches=8, cost=free_links))

# %%
# The same run, step by step, with the line of your code that each rank is at.
play(run(zero_bubble, ranks=4, layers=4, batches=8, cost=free_links))

# %%
# Right? Fast and small enough? At other sizes, too? If you are stuck: hint("zero_bubble")
grade(zero_bubble)

# %% [markdown]
# ## Where the bubble went
#
# Here is the same pipeline with whole backwards, and with the halves. In the first, rank 0 stands still for
# {{whole.time - work}} ticks, between the last forward of its *warm-up* (those before its first backward) and that
# backward, and while the last gradients come up to it. In the second, the last rank does each half for the weight one
# micro-batch later, so that gradients start their way up sooner. The bubble is {{halves.time - work}} ticks.
#
# ![Whole backwards](picture:whole_backwards)
#
# ![Halves](picture:in_two_halves)
#
# Let F be the time of a forward, B of the input's half and W of the weight's half. With p stages and m micro-batches,
# one forward one backward has a bubble of (p - 1)(F + B + W), and the schedule in the picture one of (p - 1)(F + B -
# W) + (p - 2)W, as long as W is not more than F. Here F = {{F}} and B = W = {{B}}. The star asks for the whole idea, with a
# bubble of (p - 1)(F + B - W): {{zb.time - work}} ticks. Of a real layer all three take about the same time, and then
# the bubble shrinks to a third.
#
# The price is memory. In the picture the last rank keeps the inputs and gradients of {{kept(halves):word}}
# micro-batches, where it kept {{kept(whole):word}}; with the bubble of {{zb.time - work}} ticks it keeps
# {{kept(zb):word}}.

# %% [markdown] tags=["solution"]
# ## As fast as can be
#
# In the program above only the last rank does its weight halves later, and only one micro-batch later. That is enough
# to pass, with {{halves.time}} ticks in the memory of whole backwards. With every rank `r` late by `r` micro-batches
# it is {{zb.time}} ticks, and no schedule takes less. In between, each rank can be late by one micro-batch less: that
# is {{less_late.time}} ticks in {{less_late.memory}} elements.

# %% tags=["solution"]
from collections.abc import Callable

from drawing import Figure
from lib import Run, WeightGrad


async def one_by_one(model: Model, halves: bool, late: Callable[[Model], int]) -> Model:
    """One forward, one backward; the weight's halves so many micro-batches later."""
    share = model.LAYERS // model.RANKS
    mine = range(model.rank * share, (model.rank + 1) * share)
    first, end = mine.start, mine.stop
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    async def forward(mb: int) -> None:
        if is_first:
            model.activations[first, mb] = model.get_activation([mb])
        else:
            model.activations[first, mb] = await model.receive(src=model.rank - 1)
        for layer in mine:
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        if not is_last:
            await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))

    def add(layer: int, grad: WeightGrad) -> None:
        so_far = model.grad_weights.get(layer)
        model.grad_weights[layer] = so_far + grad if so_far else grad

    async def backward(mb: int) -> None:
        if is_last:
            model.grad_activations[end, mb] = model.loss(model.activations.pop((end, mb)))
        else:
            model.grad_activations[end, mb] = await model.receive(src=model.rank + 1)
        for layer in reversed(mine):
            weight = model.weights[layer]
            if halves:
                inp, grad = model.activations[layer, mb], model.grad_activations[layer + 1, mb]
                model.grad_activations[layer, mb] = model.backward_input(
                    layer, inp, grad, weight
                )
                continue
            inp, grad = (
                model.activations.pop((layer, mb)),
                model.grad_activations.pop((layer + 1, mb)),
            )
            of_weight, model.grad_activations[layer, mb] = model.backward(
                layer, inp, grad, weight
            )
            add(layer, of_weight)
        grad = model.grad_activations.pop((first, mb))
        if not is_first:
            await model.pass_to(model.rank - 1, grad)

    def for_the_weight(mb: int) -> None:
        for layer in mine if halves else ():
            inp, grad = (
                model.activations.pop((layer, mb)),
                model.grad_activations.pop((layer + 1, mb)),
            )
            add(layer, model.backward_weight(layer, inp, grad, model.weights[layer]))

    ahead, delay = min(model.RANKS - model.rank, model.BATCHES), min(late(model), model.BATCHES)
    for mb in range(ahead):
        await forward(mb)
    for mb in range(model.BATCHES):
        await backward(mb)
        if mb >= delay:
            for_the_weight(mb - delay)
        if mb + ahead < model.BATCHES:
            await forward(mb + ahead)
    for mb in range(model.BATCHES - delay, model.BATCHES):
        for_the_weight(mb)

    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def zb_h1(model: Model) -> Model:
    """The farther down a rank is, the later it does its weight halves."""
    return await one_by_one(model, True, lambda model: model.rank)


async def zb_in_20(model: Model) -> Model:
    """The same, with each rank one micro-batch less late."""
    return await one_by_one(model, True, lambda model: max(0, model.rank - 1))


async def never_split(model: Model) -> Model:
    """Whole backwards."""
    return await one_by_one(model, False, lambda model: 0)


async def split_at_once(model: Model) -> Model:
    """Each weight half right after the gradient of the input is sent."""
    return await one_by_one(model, True, lambda model: 0)


def at_no_price(fn: Callable[[Model], object]) -> Run:
    """A run at the puzzle's size."""
    cost = Cost(send=0, send_across=0, receive=0)
    return run(fn, ranks=4, layers=4, batches=8, cost=cost)


def whole_backwards(static: bool = False) -> Figure:
    """One forward, one backward."""
    return draw(
        at_no_price(never_split),
        title="whole backwards",
        memory_target=2_097_152,
        static=static,
    )


def in_two_halves(static: bool = False) -> Figure:
    """The weight's halves later."""
    return draw(
        at_no_price(zero_bubble), title="halves", memory_target=2_097_152, static=static
    )


compare(*map(at_no_price, (never_split, split_at_once, zero_bubble, zb_h1)))

# %% [markdown]
# ## Where real systems do this
#
# The idea and the formula are from *Zero Bubble Pipeline Parallelism* (Qi et al., arXiv 2401.10241), where this
# schedule is called ZB-H1. The same paper has schedules with no bubble at all, for twice the memory. PyTorch has
# `ScheduleInterleavedZeroBubble`, `ScheduleZBVZeroBubble` and `ScheduleDualPipeV` in `torch.distributed.pipelining`.
# With one stage on each rank, the first of them is ZB-H1: in PyTorch {{TORCH}} rank r does its weight halves r
# micro-batches late, which takes {{zb.time}} ticks and {{zb.memory}} elements here (`tests/torch_truth/TABLE.md`).
# DeepSeek-V3 was trained with DualPipe (arXiv 2412.19437), which splits the backward in the same way and hides the
# messages of its experts behind the halves.

# %% [markdown]
# ## On real GPUs
#
# Llama 3 70B on {{gpus}} GPUs: a stage is a node of {{node}} GPUs, and its {{model.layers // priced.layers:word}}
# layers are one layer of this run. Everything is kept, and nothing computed again, so that the two halves of a
# backward share its work.
#
# ![What a step takes](picture:priced)
#
# On real GPUs the halves are not equally long: the half for the input has attention in it, and the traffic of the node,
# and the half for the weight has matrix products only.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_70B, report

priced = run(
    zero_bubble,
    ranks=8,
    layers=8,
    batches=16,
    cost=H100_TORCHTITAN.cost(LLAMA_3_70B, tensor=8, sequence_parallel=True),
)
print(report(priced))

# %% tags=["figures"]
# One forward, one backward, with whole backwards and with halves, and the schedule of the star.
whole, at_once, halves, zb = map(at_no_price, (never_split, split_at_once, zero_bubble, zb_h1))
less_late = at_no_price(zb_in_20)
F, B, W = cost.forward, cost.backward / 2, cost.backward / 2
work = batches * (F + B + W) + cost.update
empty = Fraction(ranks - 1, batches + ranks - 1)

from solutions.p14_interleaved import interleaved

thin = idle(run(interleaved, ranks=4, layers=8, batches=8, cost=Cost(send=0, receive=0)))


def kept(done: Run) -> int:
    """How many micro-batches the last rank has inputs and gradients of, at most."""
    both = most(done, ranks - 1, "activations", "activation_grads")
    return int(both // (2 * cost.activation_elements))


model, node = LLAMA_3_70B, priced.cost.tensor
gpus = priced.ranks * node
