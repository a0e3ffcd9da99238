# %% [markdown]
# # Puzzle 16: Zero bubble
#
# With 4 stages and 8 micro-batches, 1F1B leaves {{empty:percent}} of the time empty, even if messages take no time.
# Thinner stages make it {{thin:percent}} (puzzle 14). Is there work that could fill it?
#
# ![1F1B with one layer on each rank](picture:whole_backwards)
#
# `backward` computes two gradients: one of the input and one of the weight. Now you can have them one by one. Each
# takes half of the time:
#
# ```python
# grad, grad_in = model.backward(layer, inp, grad_out, weight)   # before
# grad_in = model.backward_input(layer, inp, grad_out, weight)   # after: one half,
# grad = model.backward_weight(layer, inp, grad_out, weight)     # and the other
# ```
#
# The halves may be done in any order, and far apart. Both read `inp` and `grad_out`, so these stay in memory until
# the second half is done.

# %%
from drawing import beside_target, draw, play
from lib import Cost, Model, grade, hint, run, solution, why

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
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "Which ranks wait for the first gradient, and for how long? How many weight halves "
    "could each rank put off, so that it has something to do while it waits at the end?",
    "hints": [
        "A backward computes the gradient of the input and the gradient of the weight. Who waits for the first, and "
        "who for the second?",
        "One forward, one backward as in puzzle 13, with `backward_input` in place of `backward`: pass its "
        "gradient on at once. The `backward_weight` of that micro-batch may come later, but until then an input "
        "and a gradient are kept in memory for it. If it comes right after, you are at {{at_once.time}} ticks. "
        "Where does a rank wait, and what could it do there?",
        "At the start of the backward pass the first ranks wait for gradients from the last one. So the last rank "
        "should send them as soon as it can, and do its weight halves later. Let it do the weight half of "
        "micro-batch `mb - 1` after the input half of micro-batch `mb`, and the last weight half at the end. For "
        "the star, ask which other ranks have time at the end.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train a pipeline with one layer on each rank, so that thinner stages cannot help. Messages take no time.
#
# - Each layer is on one rank, with its weight and optimizer state, and every rank has the same number of layers.
# - {{ideas}}
# - `backward_input` and `backward_weight` are allowed, and so is `backward`.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def zero_bubble(model: Model) -> Model:
    """A pipeline whose backwards are done in halves."""
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
# Right? Fast and small enough? At other sizes, too?
grade(zero_bubble)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. It is the same idea, on every rank that waits. To watch
# your own run, with the line that each rank is at:

# %%
play(run(zero_bubble, ranks=4, layers=4, batches=8, cost=free_links))

# %% [markdown]
# ### Where the bubble went
#
# With whole backwards, at the top of this page, rank 0 stands still for {{whole.time - work}} ticks. It waits after
# its *warm-up*, the forwards before its first backward, and it waits while the last gradients come up to it. In the
# next picture, the last rank does each half for the weight one micro-batch later. So gradients start their way up
# sooner, and the bubble is {{halves.time - work}} ticks.
#
# ![Halves](picture:in_two_halves)
#
# Let F be the time of a forward, B of the input's half and W of the weight's half. Here F = {{F}} and B = W = {{B}}.
# With p stages:
#
# | the weight's half comes | bubble | here |
# |---|---|---|
# | with the input's | (p - 1)(F + B + W) | {{(ranks - 1) * (F + B + W):=}} |
# | a micro-batch later, on the last rank | (p - 1)(F + B - W) + (p - 2)W | {{(ranks - 1) * (F + B - W) + (ranks - 2) * W:=}} |
# | as late as the star wants | (p - 1)(F + B - W) | {{(ranks - 1) * (F + B - W):=}} |
#
# The second row holds if W is not longer than F. In a real layer all three take about the same time, and then the
# star leaves a third of the bubble.
#
# The price is memory. In the picture, the last rank keeps the inputs and gradients of {{kept(halves):word}}
# micro-batches. With whole backwards it keeps those of {{kept(whole):word}}, and in the schedule of the star those of
# {{kept(zb):word}}. The paper (see below) says that this schedule takes no more memory than 1F1B. A weight half that
# waits keeps an input and a gradient. In a real layer that is no more than what a forward has left behind. Here a
# forward leaves only its input, so a weight half that waits keeps twice as much. That is why the star takes
# {{zb.memory}} elements, and whole backwards take {{whole.memory}}.
#
# ### How fast can it be?
#
# A rank computes for {{batches * (F + B + W) + cost.update:=}} ticks. The last rank cannot begin before three forwards
# of others are done. So no schedule takes less than {{work + 3 * F}} ticks. That is the time of the star, and the bound
# that the verdict shows.

# %% [markdown] tags=["solution"]
# ### As fast as can be, and as small
#
# In the solution only the last rank does its weight halves later, and only one micro-batch later. That is enough to
# pass, with {{halves.time}} ticks in the memory of whole backwards. If every rank `r` does its weight halves `r`
# micro-batches later, a step takes {{zb.time}} ticks, and no schedule takes less. If every rank but rank 0 does them
# one micro-batch sooner, it takes {{less_late.time}} ticks and {{less_late.memory}} elements.
#
# In {{zb.time}} ticks nothing smaller is possible, either. After the last input half of rank 3, the other ranks do
# three more, and rank 0 a weight half and its update. So rank 3 must be done with its input halves by tick
# {{zb.time - 3 * B - W - cost.update}}. It begins at tick {{3 * F}}. In between it has time for its eight forwards, its
# eight input halves, and {{early_halves}} weight halves. So {{late_halves}} inputs and as many gradients are still in
# memory when the last input gradient is made. With the layer's weight, state and gradient, these are the {{zb.memory}}
# elements.

# %% tags=["solution"]
from collections.abc import Callable

from drawing import Figure, compare
from lib import Run, WeightGrad


async def one_by_one(
    model: Model, halves: bool, late: Callable[[Model], int], later: bool = False
) -> Model:
    """One forward, one backward; weight halves come ``late`` micro-batches later. ``later``: sends are awaited at the
    end."""
    share = model.LAYERS // model.RANKS
    mine = range(model.rank * share, (model.rank + 1) * share)
    first, end = mine.start, mine.stop
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    sends = []

    async def sent(call):
        """Wait for a send, now or at the end."""
        if later:
            sends.append(call)
        else:
            await call

    async def forward(mb: int) -> None:
        if is_first:
            model.activations[first, mb] = model.get_activation([mb])
        else:
            model.activations[first, mb] = await model.receive(src=model.rank - 1)
        for layer in mine:
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        if not is_last:
            await sent(model.pass_to(model.rank + 1, model.activations.pop((end, mb))))

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
            await sent(model.pass_to(model.rank - 1, grad))

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
    for send in sends:
        await send
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


async def sends_later(model: Model) -> Model:
    """ZB-H1, with sends that no rank waits for before the end."""
    return await one_by_one(model, True, lambda model: model.rank, later=True)


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
# ### Where real systems do this
#
# The idea and the formula are from *Zero Bubble Pipeline Parallelism* (Qi et al., arXiv 2401.10241). The schedule of
# the star is called ZB-H1 there. The same paper has schedules with no bubble at all, for twice the memory. PyTorch
# has `ScheduleInterleavedZeroBubble`, `ScheduleZBVZeroBubble` and `ScheduleDualPipeV` in
# `torch.distributed.pipelining`. With one stage on each rank, the first of them is ZB-H1: {{zb.time}} ticks and
# {{zb.memory}} elements here (recorded from PyTorch {{TORCH}}, `tests/torch_truth/TABLE.md`). DeepSeek-V3 was trained
# with DualPipe (arXiv 2412.19437), which splits the backward in the same way and hides the messages of its experts
# behind the halves.
#
# On links where a send waits for its receive ([puzzle 36](p36_sends_that_wait.ipynb)), our solution hangs, and so does
# ZB-H1. Two ranks are in a send to each other, and neither has asked for what comes. A rank that starts its sends, and
# awaits them only at the end, does not hang: on such links (`links="rendezvous"`) the step then takes {{patient.time}}
# ticks, as on links where no send waits.
#
# ### On real GPUs
#
# Llama 3 70B on {{gpus}} GPUs: a stage is a node of {{node}} GPUs, and its {{model.layers // priced.layers:word}}
# layers are one layer of this run. Everything is kept, and nothing is computed again, so a backward is just its two
# halves.
#
# ![What a step takes](picture:priced)
#
# 1F1B, with whole backwards, takes {{real[0]:.2f}} s there, and the star's schedule {{real[1]:.2f}} s, with
# {{real_bytes[1]:.0f}} GB instead of {{real_bytes[0]:.0f}} on the fullest GPU.
#
# On real GPUs the halves are not equally long. The half for the input has attention in it, and the traffic of the
# node. The half for the weight has matrix products only.

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
patient = run(sends_later, **size, cost=cost, links="rendezvous")
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


def halves_of_weights(done: Run, when: bool) -> int:
    """Weight halves of the last rank before its last input half, or after it."""
    kinds = [event.kind for event in done.models[-1].log]
    last = len(kinds) - 1 - kinds[::-1].index("backward_input")
    return (kinds[:last] if when else kinds[last:]).count("backward_weight")


early_halves, late_halves = (halves_of_weights(zb, when) for when in (True, False))
tensors = 2 * late_halves + 1
assert zb.memory == tensors * cost.activation_elements + 3 * cost.weight_elements

on_real_gpus = [
    run(fn, ranks=8, layers=8, batches=16, cost=priced.cost) for fn in (never_split, zb_h1)
]
real = [done.seconds for done in on_real_gpus]
real_bytes = [done.bytes / 1e9 for done in on_real_gpus]
