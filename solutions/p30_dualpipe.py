# %% [markdown]
# # Puzzle 30: DualPipe
#
# In a pipeline the last ranks wait at the beginning, and the first ones at the end. DeepSeek-V3 filled its pipeline
# from both ends at once. **How much of 1F1B's bubble is left?**
#
# ![1F1B on this model](picture:from_one_end)
#
# For that, every stage is there twice. The mesh has two halves:
#
# | stage → next rank | rank 0 | rank 1 | rank 2 | rank 3 |
# |---|---|---|---|---|
# | half, place | 0, 0 | 0, 1 | 1, 0 | 1, 1 |
# | half of the micro-batches | stage 0 → rank 1 | stage 1 → rank 3 | stage 3 | stage 2 → rank 2 |
# | the other half | stage 3 | stage 2 → rank 0 | stage 0 → rank 3 | stage 1 → rank 1 |
#
# Gradients go back the same way. Messages are as in puzzle 29. One call is new:
#
# ```python
# # before: the input of one micro-batch and the gradient of another are here
# out = model.forward(low, inp, weight)
# model.backward(high, its_inp, its_grad, its_weight, overlapped=True)
# # after: both are done, in the time of the longer one
# ```

# %%
from drawing import beside_target, draw, play
from lib import Activation, ActivationGrad, Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 30,
    "name": "dualpipe",
    "title": "DualPipe",
    "size": {"ranks": 4, "layers": 8, "batches": 8, "mesh": {"half": 2, "place": 2}},
    "other_sizes": "both_ends",
    "target": {"time": 50.5, "memory": 4980736},
    "star": {"time": 44.3, "memory": 4718592},
    "frontier": [
        {"time": 44.0, "memory": 4718592, "by": "in_halves_sums_behind"},
    ],
    "cost": "pairs",
    "layout": "both_ends",
    "ideas": ["own_layers", "through_all_ranks"],
    "words": ["backward_input", "backward_weight", "overlapped=True"],
    "begins_with": "zbv",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 60,
    "star_hint": "Some backwards have no forward beside them. If their weight halves wait, the gradients of their inputs "
    "are out sooner: which backwards are these?",
    "hints": [
        "A rank has a lower and an upper stage, as in puzzle 29. Only the turn is different: the rank at the last "
        "place of a half sends its output to the rank at the last place of the other half. Which micro-batches go "
        "through the lower stage of a rank, and which through the upper one?",
        "Write `forward(stage)`, `backward(stage)` and `beside(one, other)`: a forward of one stage and a backward "
        "of the other. `beside` first awaits the input and the gradient. Then it takes turns, layer by layer: "
        "`model.forward(...)` of one, `model.backward(..., overlapped=True)` of the other. At the end both results "
        "are sent. How many forwards come first? With too few a rank waits, with too many its memory fills.",
        "In this order a rank waits little, and keeps few inputs in memory. `place` is its place on the axis of "
        "`places` ranks. Let `n = place + 1` and `ahead = places - n`. First do `2 * ahead` forwards of the lower "
        "stage. Then, `n` times: a forward of the lower and one of the upper stage. Then, `ahead` times: a backward "
        "and a forward of the upper stage. Then, `model.BATCHES // 2 - model.RANKS + n` times: two pairs, a forward "
        "of the lower stage beside a backward of the upper, and the reverse. Now the lower stage has no more "
        "forwards. So, `ahead` times: a backward of the upper stage, and a forward of it beside a backward of the "
        "lower. Then, `n` times: a backward of each stage. At last do `ahead` backwards of the lower stage.",
    ],
}

# %% [markdown]
# ## Your task
#
# Each rank begins and ends with weights and states of its two stages.
#
# - {{ideas}}
# - `model.allreduce(grad, layer, axis="half")` sums what the two ranks of a layer have.
# - A forward, `backward_input` and `backward_weight` take {{cost.forward}} tick each, messages none.
# - Other sizes: layers are a multiple of the ranks; micro-batches are even, at least twice the ranks.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def dualpipe(model: Model) -> Model:
    """Micro-batches from both ends."""
    ### BEGIN SOLUTION
    half, place = model.axis_index("half"), model.axis_index("place")
    places, end = model.axis_size("place"), model.LAYERS
    thick, share = end // model.RANKS, model.BATCHES // 2
    lower = range(place * thick, (place + 1) * thick)
    upper = range(end - lower.stop, end - lower.start)
    back = model.rank_at(half=half, place=max(place - 1, 0))
    on = model.rank_at(half=half, place=min(place + 1, places - 1))
    if place == places - 1:
        on = model.rank_at(half=1 - half, place=place)
    before = {lower: back, upper: on}  # where a stage's input comes from
    after = {lower: on, upper: back}
    first = {lower: half * share, upper: (1 - half) * share}  # its first micro-batch
    for layer in [*lower, *upper]:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    done = {(what, stage): 0 for what in "FB" for stage in (lower, upper)}

    def next_one(what: str, stage: range) -> int:
        done[what, stage] += 1
        return first[stage] + done[what, stage] - 1

    async def come(what: type, key: tuple[int, int], src: int) -> None:
        store = model.activations if what is Activation else model.grad_activations
        while key not in store:  # whatever comes is stored under what it is
            got = await model.receive(src=src)
            own = model.activations if isinstance(got, Activation) else model.grad_activations
            own[got.layer, min(got.batches)] = got

    async def get_input(stage: range, mb: int) -> None:
        if stage.start == 0:
            model.activations[0, mb] = model.get_activation([mb])
        await come(Activation, (stage.start, mb), before[stage])

    async def get_grad(stage: range, mb: int) -> None:
        if stage.stop == end:
            out = model.activations.pop((end, mb))
            model.grad_activations[end - 1, mb] = model.loss(out)
        await come(ActivationGrad, (stage.stop - 1, mb), after[stage])

    def forward_of(layer: int, mb: int) -> None:
        inp, weight = model.activations[layer, mb], model.weights[layer]
        model.activations[layer + 1, mb] = model.forward(layer, inp, weight)

    def backward_of(layer: int, mb: int, overlapped: bool = False) -> None:
        inp, grad = model.activations.pop((layer, mb)), model.grad_activations.pop((layer, mb))
        of_weight, grad = model.backward(
            layer, inp, grad, model.weights[layer], overlapped=overlapped
        )
        if layer > 0:
            model.grad_activations[layer - 1, mb] = grad
        so_far = model.grad_weights.get(layer)
        model.grad_weights[layer] = so_far + of_weight if so_far else of_weight

    async def pass_output(stage: range, mb: int) -> None:
        if stage.stop < end:
            await model.pass_to(after[stage], model.activations.pop((stage.stop, mb)))

    async def pass_grad(stage: range, mb: int) -> None:
        if stage.start > 0:
            await model.pass_to(
                before[stage], model.grad_activations.pop((stage.start - 1, mb))
            )

    async def forward(stage: range) -> None:
        mb = next_one("F", stage)
        await get_input(stage, mb)
        for layer in stage:
            forward_of(layer, mb)
        await pass_output(stage, mb)

    async def backward(stage: range) -> None:
        mb = next_one("B", stage)
        await get_grad(stage, mb)
        for layer in reversed(stage):
            backward_of(layer, mb)
        await pass_grad(stage, mb)

    async def beside(one: range, other: range) -> None:
        mb, earlier = next_one("F", one), next_one("B", other)
        await get_input(one, mb)
        await get_grad(other, earlier)
        for low, high in zip(one, reversed(other), strict=True):
            forward_of(low, mb)
            backward_of(high, earlier, overlapped=True)
        await pass_output(one, mb)
        await pass_grad(other, earlier)

    n, ahead = place + 1, places - place - 1
    for _ in range(2 * ahead):
        await forward(lower)
    for _ in range(n):
        await forward(lower)
        await forward(upper)
    for _ in range(ahead):
        await backward(upper)
        await forward(upper)
    for _ in range(share - model.RANKS + n):
        await beside(lower, upper)
        await beside(upper, lower)
    for _ in range(ahead):
        await backward(upper)
        await beside(upper, lower)
    for _ in range(n):
        await backward(upper)
        await backward(lower)
    for _ in range(ahead):
        await backward(lower)

    sums = [
        model.allreduce(model.grad_weights.pop(layer), layer, axis="half")
        for layer in [*upper, *lower]
    ]
    for layer, grad in zip([*upper, *lower], sums, strict=True):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, await grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
pairs = Cost(backward=2, send=0, send_across=0, receive=0, overlapped=1)
of_two_halves = {"half": 2, "place": 2}
draw(run(dualpipe, ranks=4, layers=8, batches=8, mesh=of_two_halves, cost=pairs))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(dualpipe)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. Not every backward has a forward beside it. (Beyond the
# star, a sum can be on its way meanwhile; [puzzle 12](p12_prefetch.ipynb) shows how.) To watch your own run, with the
# line that each rank is at:

# %%
play(run(dualpipe, ranks=4, layers=8, batches=8, mesh=of_two_halves, cost=pairs))

# %% [markdown]
# ### What is left of the bubble
#
# Here is 1F1B, with one stage of two layers on each rank, and below it the plain answer to this puzzle.
#
# ![1F1B, and the pipeline from both ends](picture:beside_1f1b)
#
# 1F1B takes {{line.time}} ticks. Its bubble is (PP - 1)(F + B) for PP stages, where F and B are a forward and a whole
# backward of a stage: {{(stages - 1) * (F + B):=}} ticks. From both ends the plain answer takes {{whole.time}}. It does
# whole backwards, also at the beginning and at the end, where no forward is beside them. DeepSeek's own order does the
# weight halves of these later, so that the ranks that wait get their gradients sooner. It takes {{late.time}} ticks.
# The difference grows with the pipeline: on {{deep_plain.ranks:word}} ranks, with {{deep_plain.layers}} layers and
# {{deep_plain.batches}} micro-batches, it is {{deep_plain.time}} ticks against {{deep_late.time}}.
#
# In that order the bubble is (PP/2 - 1)(F&B + B - 3W), says DeepSeek's report (arXiv 2412.19437, table 2). W is the
# weight half of a backward, and F&B is a forward beside a backward. Here that is
# {{(stages / 2 - 1) * (longer + B - 3 * W):=}} ticks: the ranks at place 1 (ranks 1 and 3) wait that long, and then all
# wait for the first sum of gradients. That is the answer to the question at the top.
#
# ### What a pair is
#
# A large part of a layer with experts is communication: tokens travel to their experts and home again, as in
# puzzle 28. The forward of one micro-batch and the backward of another need nothing of each other, so the tokens of
# one travel while the other is computed. How much that saves depends on the machine, so it is a price, `overlapped`.
# With `Cost(overlapped=1)` the two take as long as the longer one. With `Cost(overlapped=0)` they take as long as one
# after the other, and the plain answer takes {{plain.time}} ticks instead of {{whole.time}}.
#
# ### What it costs, and how to cut it in half
#
# Every layer is on two ranks, with its gradient and its optimizer state. Of the {{late.memory}} elements at the peak,
# {{parameters}} are weights, gradients and states. DeepSeek-V3 has most of its weights in experts, which are divided
# among {{experts_over}} GPUs, so there a second copy is small.
#
# Now look at place 1, where a micro-batch goes over to the other half. Why does it, if this rank has the next stage
# as well? Sea AI Lab asked that. If each micro-batch stays in its half, the halves have nothing to do with each other
# but the sum of the gradients. So one of them can be left out. What remains is a V, as in puzzle 29, and DeepSeek
# took it into their code as DualPipeV (github.com/deepseek-ai/DualPipe). In DeepSeek's order:
#
# | | ticks | peak memory | messages |
# |---|---|---|---|
# | DualPipe, four stages, each on two ranks | {{late.time}} | {{late.memory}} | {{messages(late)}} |
# | the same, each micro-batch in its half | {{cut.time}} | {{cut.memory}} | {{messages(cut)}} |
# | DualPipeV, {{2 * ranks:word}} stages, each on one rank | {{alone.time}} | {{alone.memory}} | {{messages(alone)}} |
#
# **A rank with two stages can work in both directions, and that takes no second copy of the model.** On the same
# number of ranks, the V is as fast as DualPipe, with {{Fraction(alone.memory, late.memory):word}} of its memory. The
# price is in the last column: twice as many messages, which do cost something on real links.

# %% [markdown] tags=["solution"]
# ### Backwards with no forward beside them
#
# At the beginning and at the end there are backwards with no forward beside them, and other ranks wait for these. In
# `in_halves` their weight halves come later, as in DeepSeek's schedule: {{late.time}} ticks. The ranks at place 1
# wait for {{waited(late, 1)}}, before the gradients are summed.
#
# What is left then is the first sum of gradients, which nothing hides. With `behind=True` the two halves sum the
# gradients of a stage as soon as they have them, while other backwards go on: {{behind.time}} ticks. Nothing is faster.
# A rank at place 1 can begin its first backward only after all forwards of a micro-batch and the input halves of stage
# 3, {{layers * cost.forward + thick * cost.price("backward_input")}} ticks. Then it still has {{batches * B}} ticks of
# backwards and {{2 * thick * cost.update}} of updates.
#
# At most {{stages + 1}} micro-batches are in the stages of a rank at a time: PP + 1, as the report says. With
# `crosses=False` each micro-batch stays in its half, and on a mesh with one half that is DualPipeV.

# %% tags=["solution"]
from dataclasses import replace
from functools import partial
from typing import Any

from drawing import Figure, compare
from lib import Run

from solutions.p13_one_f_one_b import one_f_one_b


async def from_both_ends(
    model: Model, crosses: bool, behind: bool = False, later_sends: bool = False
) -> Model:
    """Weight halves wait where no forward is beside the backward. ``crosses``: whether a micro-batch goes over to the
    other half in the middle, or comes back in its own. ``behind``: whether the halves sum the gradients of a stage as
    soon as they have them, during other backwards, but after sending what others wait for. ``later_sends``: these are awaited at the end."""
    half, place = model.axis_index("half"), model.axis_index("place")
    halves, places, end = model.axis_size("half"), model.axis_size("place"), model.LAYERS
    thick, share = end // (2 * places), model.BATCHES // halves
    lower = range(place * thick, (place + 1) * thick)
    upper = range(end - lower.stop, end - lower.start)
    theirs = 1 - half if crosses else half
    back = model.rank_at(half=half, place=max(place - 1, 0))
    on = model.rank_at(half=half, place=min(place + 1, places - 1))
    if place == places - 1:
        on = model.rank_at(half=theirs, place=place)
    before, after = {lower: back, upper: on}, {lower: on, upper: back}
    first = {lower: half * share, upper: theirs * share}
    for layer in [*lower, *upper]:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    sends = []

    async def sent(call):
        """Wait for a send, now or at the end."""
        if later_sends:
            sends.append(call)
        else:
            await call

    async def come(what: type, key: tuple[int, int], src: int) -> None:
        store = model.activations if what is Activation else model.grad_activations
        while key not in store:
            got = await model.receive(src=src)
            own = model.activations if isinstance(got, Activation) else model.grad_activations
            own[got.layer, min(got.batches)] = got

    async def get_input(stage: range, mb: int) -> None:
        if stage.start == 0:
            model.activations[0, mb] = model.get_activation([mb])
        await come(Activation, (stage.start, mb), before[stage])

    async def get_grad(stage: range, mb: int) -> None:
        if stage.stop == end:
            out = model.activations.pop((end, mb))
            model.grad_activations[end - 1, mb] = model.loss(out)
        await come(ActivationGrad, (stage.stop - 1, mb), after[stage])

    async def pass_output(stage: range, mb: int) -> None:
        if stage.stop < end and after[stage] != model.rank:
            await sent(model.pass_to(after[stage], model.activations.pop((stage.stop, mb))))

    async def pass_grad(stage: range, mb: int) -> None:
        if stage.start > 0 and before[stage] != model.rank:
            grad = model.grad_activations.pop((stage.start - 1, mb))
            await sent(model.pass_to(before[stage], grad))

    def forward_of(layer: int, mb: int) -> None:
        inp, weight = model.activations[layer, mb], model.weights[layer]
        model.activations[layer + 1, mb] = model.forward(layer, inp, weight)

    def backward_of(layer: int, mb: int, overlapped: bool) -> None:
        inp, grad = model.activations.pop((layer, mb)), model.grad_activations.pop((layer, mb))
        of_weight, grad = model.backward(
            layer, inp, grad, model.weights[layer], overlapped=overlapped
        )
        if layer > 0:
            model.grad_activations[layer - 1, mb] = grad
        add(layer, of_weight)

    sums: dict[int, Any] = {}

    def add(layer: int, of_weight: Any) -> None:
        so_far = model.grad_weights.get(layer)
        model.grad_weights[layer] = so_far + of_weight if so_far else of_weight

    def begin_sums(stage: range) -> None:
        for layer in reversed(stage):
            if halves > 1 and len(model.grad_weights[layer].batches) == share:
                sums[layer] = model.allreduce(model.grad_weights.pop(layer), layer, axis="half")

    done: dict[tuple[str, range], int] = {}
    later: list[tuple[range, int]] = []  # weight halves

    def next_one(what: str, stage: range) -> int:
        done[what, stage] = done.get((what, stage), 0) + 1
        return first[stage] + done[what, stage] - 1

    async def forward(stage: range) -> None:
        mb = next_one("F", stage)
        await get_input(stage, mb)
        for layer in stage:
            forward_of(layer, mb)
        await pass_output(stage, mb)

    async def backward(stage: range) -> None:
        mb = next_one("B", stage)
        await get_grad(stage, mb)
        for layer in reversed(stage):
            backward_of(layer, mb, overlapped=False)
        await pass_grad(stage, mb)
        if behind:
            begin_sums(stage)

    async def for_the_input(stage: range) -> None:
        mb = next_one("B", stage)
        await get_grad(stage, mb)
        for layer in reversed(stage):
            inp, grad = model.activations[layer, mb], model.grad_activations[layer, mb]
            grad = model.backward_input(layer, inp, grad, model.weights[layer])
            if layer > 0:
                model.grad_activations[layer - 1, mb] = grad
        await pass_grad(stage, mb)
        later.append((stage, mb))

    def for_the_weight() -> None:
        stage, mb = later.pop(0)
        for layer in reversed(stage):
            inp = model.activations.pop((layer, mb))
            grad = model.grad_activations.pop((layer, mb))
            add(layer, model.backward_weight(layer, inp, grad, model.weights[layer]))
        if behind:
            begin_sums(stage)

    async def beside(one: range, other: range) -> None:
        mb, earlier = next_one("F", one), next_one("B", other)
        await get_input(one, mb)
        await get_grad(other, earlier)
        for low, high in zip(one, reversed(other), strict=True):
            forward_of(low, mb)
            backward_of(high, earlier, overlapped=True)
        await pass_output(one, mb)
        await pass_grad(other, earlier)

    n, ahead = place + 1, places - place - 1
    for _ in range(2 * ahead):
        await forward(lower)
    for _ in range(n):
        await forward(lower)
        await forward(upper)
    for _ in range(ahead):
        await for_the_input(upper)
        for_the_weight()
        await forward(upper)
    for _ in range(share - 2 * places + n):
        await beside(lower, upper)
        await beside(upper, lower)
    for _ in range(ahead):
        await backward(upper)
        await beside(upper, lower)
    for turn in range(2 * n):  # the second half of these with their weight halves late
        await (backward if turn < n else for_the_input)(lower if turn % 2 else upper)
    for _ in range(ahead):
        for_the_weight()
        await for_the_input(lower)
    while later:
        for_the_weight()

    for stage in (upper, lower):
        if not behind:
            begin_sums(stage)
    for layer in sums or [*upper, *lower]:
        grad = await sums[layer] if sums else model.grad_weights.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    for send in sends:
        await send
    return model


in_halves = partial(from_both_ends, crosses=True)
in_halves_sums_behind = partial(from_both_ends, crosses=True, behind=True)
cut_in_half = partial(from_both_ends, crosses=False)
sends_later = partial(from_both_ends, crosses=True, later_sends=True)


def at_these_prices(fn: Any) -> Run:
    """A run at the puzzle's size."""
    return run(fn, ranks=4, layers=8, batches=8, mesh=of_two_halves, cost=pairs)


def from_one_end(static: bool = False) -> Figure:
    """1F1B with one stage of two layers on each rank."""
    line = run(one_f_one_b, ranks=4, layers=8, batches=8, cost=pairs)
    return draw(line, title="1F1B", static=static)


def beside_1f1b(static: bool = False) -> Figure:
    """1F1B, and the answer."""
    both = run(one_f_one_b, ranks=4, layers=8, batches=8, cost=pairs), at_these_prices(dualpipe)
    return compare(*both, titles=["1F1B", "from both ends"], static=static)


compare(*map(at_these_prices, (dualpipe, in_halves, in_halves_sums_behind, cut_in_half)))

# %% [markdown]
# ### Where real systems do this
#
# DeepSeek's program is on github.com/deepseek-ai/DualPipe. PyTorch {{TORCH}} has the V as `ScheduleDualPipeV`, and
# `docs/schedules.md` lays it beside GPipe, 1F1B, interleaved, zero bubble, ZB-V and this one.
#
# On links where a send waits for its receive ([puzzle 36](p36_sends_that_wait.ipynb)), our solution hangs. Two ranks
# are in a send to each other, and neither has asked for what comes. A rank that starts its sends, and awaits them only
# at the end, does not hang: on such links (`links="rendezvous"`) the step then takes {{patient.time}} ticks, as on
# links where no send waits.

# %% [markdown]
# ### On real GPUs
#
# The model and the GPUs of puzzles 16 and 29. A dense model has little to send inside a layer, so here pairs save
# nothing.
#
# ![What a step takes](picture:priced)
#
# Puzzle 29's program takes {{in_a_v.seconds:.3g}} s there, and {{in_a_v.bytes / BILLION:.0f}} GB.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_70B, report

priced = run(
    dualpipe,
    ranks=8,
    layers=16,
    batches=16,
    mesh={"half": 2, "place": 4},
    cost=H100_TORCHTITAN.cost(LLAMA_3_70B, tensor=8, sequence_parallel=True),
)
print(report(priced))

# %% tags=["figures"]
whole, late, cut = map(at_these_prices, (dualpipe, in_halves, cut_in_half))
behind = at_these_prices(in_halves_sums_behind)
patient = run(sends_later, **size, cost=cost, links="rendezvous")
line = run(one_f_one_b, ranks=4, layers=8, batches=8, cost=pairs)
deep_plain, deep_late = (
    run(fn, ranks=8, layers=16, batches=16, mesh={"half": 2, "place": 4}, cost=pairs)
    for fn in (dualpipe, in_halves)
)
plain = run(
    dualpipe,
    ranks=4,
    layers=8,
    batches=8,
    mesh=of_two_halves,
    cost=replace(pairs, overlapped=0),
)
alone = run(cut_in_half, ranks=4, layers=8, batches=8, mesh={"half": 1, "place": 4}, cost=pairs)
stages, thick = ranks, layers // ranks
F, B, W = thick * cost.forward, thick * cost.backward, thick * cost.price("backward_weight")
longer = max(F, B)
experts_over = published(64, "arXiv 2412.19437")
parameters = most(late, 0, "weights", "weight_grads", "opt_states")


def waited(done: Run, rank: int) -> Any:
    """For how many ticks a rank computes nothing, until its last backward is done."""
    work = [
        one
        for one in done.events
        if one.rank == rank and one.kind.startswith(("forward", "backward"))
    ]
    return max(one.end for one in work) - sum(one.end - one.start for one in work)


def messages(done: Run) -> int:
    return sum(one.kind == "pass_to" for one in done.events)


from lib.real.prices import RealCost

from solutions.p29_zbv import zbv

assert isinstance(priced.cost, RealCost)
in_a_v = run(zbv, ranks=8, layers=16, batches=16, cost=priced.cost)

assert waited(late, 1) == (stages / 2 - 1) * (longer + B - 3 * W)
assert messages(alone) == 2 * messages(late)
