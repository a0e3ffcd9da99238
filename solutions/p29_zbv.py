# %% [markdown]
# # Puzzle 29: ZB-V
#
# In a pipeline a micro-batch goes down the ranks, and its gradient comes up again. What if the second half of the
# model came up, too?
#
# ![Puzzle 16's answer, with stages of two layers](picture:in_a_line)
#
# This is puzzle 16's answer. Now each rank has two thin stages:
#
# | | lower stage | upper stage |
# |---|---|---|
# | of rank `r` | stage `r` | stage `2 * RANKS - 1 - r` |
# | input from | rank `r - 1` | rank `r + 1` |
# | output to | rank `r + 1` | rank `r - 1` |
#
# Gradients go back the same way. At the turn of the V the last rank has both stages, and nothing is sent. So a
# neighbor sends activations of one stage and gradients of the other:
#
# - `receive(src=r)` brings what `r` has sent, in that order.
# - `isinstance(tensor, Activation)` tells their kind, `tensor.batches` the micro-batches, and `tensor.layer` the layer
#   whose `forward` (of a gradient, whose `backward`) reads it.
# - Not the one that you need? Store it, and receive again.
# - A send never waits for its receiver. Await each, at once or before your function ends.

# %%
from drawing import beside_target, draw, play
from lib import Activation, ActivationGrad, Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 29,
    "name": "zbv",
    "title": "ZB-V",
    "size": {"ranks": 4, "layers": 8, "batches": 8},
    "other_sizes": "rounds",
    "target": {"time": 55.0, "memory": 3538944},
    "star": {"time": 52.0, "memory": 3145728},
    "frontier": [
        {"time": 52.0, "memory": 3145728, "by": "zb_v"},
        {"time": 55.0, "memory": 2883584, "by": "zbv_in_55"},
    ],
    "cost": "even_thirds",
    "layout": "stages",
    "ideas": ["own_layers", "in_a_v"],
    "words": ["backward_input", "backward_weight"],
    "begins_with": "zero_bubble",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 60,
    "star_hint": "At the end, ranks wait for gradients once more. Which weight halves could they keep for that?",
    "hints": [
        "Draw the way of one micro-batch, forwards and backwards, over four ranks. It turns round on the last rank, and "
        "comes home to rank 0, where its loss and its first gradient are made. So rank 0 has the first backward and the "
        "last one, and needs forwards of its lower stage to do until then. How many fit in?",
        "Write `forward(stage)` and `backward(stage)` that take the next micro-batch of one of the rank's two "
        "stages. What comes from a neighbor may be an activation of one stage or a gradient of the other: store it "
        "under what it is. A rank begins with `2 * (model.RANKS - model.rank) - 1` forwards of its lower stage, and "
        "no more, since it keeps their inputs in memory; then it takes turns. Which of its four kinds of work does "
        "a neighbor wait for?",
        "In this order no rank waits long. First come `2 * (model.RANKS - model.rank) - 1` forwards of the lower "
        "stage. Then, `model.rank` times: a forward of the upper stage and one of the lower. Then, `model.RANKS - "
        "model.rank` times: a forward of the upper stage and its backward, both halves. So the first backward of "
        "each rank comes after `2 * model.RANKS` forwards, if there are enough micro-batches. From then on all four "
        "in turn: forward and backward of the lower stage, forward and backward of the upper one. When no forwards "
        "are left, do backwards of the lower and the upper stage in turn, and at last the lower stage's remaining "
        "backwards. For the star, leave the upper stage's weight halves of those last turns to the very end.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train with these stages. A rank begins and ends with their weights and optimizer states.
#
# - {{ideas}}
# - `backward_input` and `backward_weight` are allowed: {{F}} tick each, like a forward. Messages take none.
# - Other sizes have a multiple of `2 * RANKS` layers and of `RANKS` micro-batches.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def zbv(model: Model) -> Model:
    """Two stages on each rank, in a V."""
    ### BEGIN SOLUTION
    ranks, rank, end = model.RANKS, model.rank, model.LAYERS
    thick = end // (2 * ranks)
    lower = range(rank * thick, (rank + 1) * thick)
    upper = range(end - (rank + 1) * thick, end - rank * thick)
    before = {lower: rank - 1, upper: rank + 1}  # where a stage's input comes from
    after = {lower: rank + 1, upper: rank - 1}
    turn = lower.stop == upper.start  # the last rank has both
    for layer in [*lower, *upper]:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    done = {(what, stage): 0 for what in "FIW" for stage in (lower, upper)}

    def next_one(what: str, stage: range) -> int | None:
        mb = done[what, stage]
        if mb == model.BATCHES:
            return None
        done[what, stage] += 1
        return mb

    async def come(what: type, key: tuple[int, int], src: int) -> None:
        store = model.activations if what is Activation else model.grad_activations
        while key not in store:  # whatever comes is stored under what it is
            got = await model.receive(src=src)
            own = model.activations if isinstance(got, Activation) else model.grad_activations
            own[got.layer, min(got.batches)] = got

    async def forward(stage: range) -> None:
        if (mb := next_one("F", stage)) is None:
            return
        if stage.start == 0:
            model.activations[0, mb] = model.get_activation([mb])
        await come(Activation, (stage.start, mb), before[stage])
        for layer in stage:
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        if stage.stop < end and not (turn and stage == lower):
            await model.pass_to(after[stage], model.activations.pop((stage.stop, mb)))

    async def for_the_input(stage: range) -> None:
        if (mb := next_one("I", stage)) is None:
            return
        if stage.stop == end:
            out = model.activations.pop((end, mb))
            model.grad_activations[end - 1, mb] = model.loss(out)
        await come(ActivationGrad, (stage.stop - 1, mb), after[stage])
        for layer in reversed(stage):
            inp, grad = model.activations[layer, mb], model.grad_activations[layer, mb]
            grad = model.backward_input(layer, inp, grad, model.weights[layer])
            if layer > 0:
                model.grad_activations[layer - 1, mb] = grad
        if stage.start > 0 and not (turn and stage == upper):
            grad = model.grad_activations.pop((stage.start - 1, mb))
            await model.pass_to(before[stage], grad)

    def for_the_weight(stage: range) -> None:
        if (mb := next_one("W", stage)) is None:
            return
        for layer in stage:
            inp = model.activations.pop((layer, mb))
            grad = model.grad_activations.pop((layer, mb))
            of_weight = model.backward_weight(layer, inp, grad, model.weights[layer])
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + of_weight if so_far else of_weight

    async def backward(stage: range) -> None:
        await for_the_input(stage)
        for_the_weight(stage)

    ahead, in_turn = ranks - rank, max(model.BATCHES, 2 * ranks - 1) - ranks
    for _ in range(2 * ahead - 1):
        await forward(lower)
    for _ in range(rank):
        await forward(upper)
        await forward(lower)
    for _ in range(ahead):
        await forward(upper)
        await backward(upper)
    for _ in range(in_turn):
        await forward(lower)
        await backward(lower)
        await forward(upper)
        await backward(upper)
    for _ in range(rank):
        await backward(lower)
        await backward(upper)
    for _ in range(ahead):
        await backward(lower)

    for layer in [*lower, *upper]:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
even_thirds = Cost(backward=2, send=0, send_across=0, receive=0)
draw(run(zbv, ranks=4, layers=8, batches=8, cost=even_thirds))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(zbv)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. At the end, look for work that could wait. To watch
# your own run, with the line that each rank is at:

# %%
play(run(zbv, ranks=4, layers=8, batches=8, cost=even_thirds))

# %% [markdown]
# ### Why a V
#
# Here is 1F1B, with one stage of two layers on each rank, and below it the V.
#
# ![1F1B with one thick stage a rank, and the V](picture:beside_1f1b)
#
# 1F1B takes {{line.time}} ticks, and the V {{v.time}}. In the V, too, the first micro-batch needs {{(ranks - 1) * F}}
# ticks to come down to the last rank, half as many as before, because the stages are half as thick. But there it is in
# the middle of the model, and goes on at once, up the ranks. On rank 0 it is done. That rank makes the loss, and begins
# its backward without a wait. Gradients go down the ranks and up again in the same way. So ranks hardly wait for
# gradients. With the star, the only bubble is at the start: (p - 1)F for p ranks, where F is the forward of a stage,
# half as long as before. That is {{star.time - work - updates}} ticks of {{star.time}}.
#
# Puzzle 16's star has a bubble of (p - 1)(F + B - W), where B and W are the halves of a backward. With its thick
# stages that is {{zb.time - work - updates}} ticks, and {{zb.time}} in all. Its memory is uneven, too. Rank 0 keeps
# {{kept(zb, 0)}} activations and gradients at most, and the last rank, whose weight halves come late, keeps
# {{kept(zb, 3)}}. In the V rank 0 keeps {{kept(v, 0)}} at most, the last rank {{kept(v, most_kept)}}, and no rank
# keeps more. On rank 0 a micro-batch stays long in the lower stage, and only a moment in the upper one. On the last
# rank it stays about equally long in both.
#
# The price is twice as many messages, which do cost something on real links.

# %% [markdown] tags=["solution"]
# ### Without a bubble at the end
#
# The program above does each weight half at once, and takes {{v.time}} ticks. At its end ranks wait for gradients. The
# last gradients go down the V and up, and each rank first does a weight half, for which nobody waits. If the upper
# stage's weight halves of those micro-batches come last, the gradients need not wait for them. That is {{late.time}}
# ticks in {{late.memory}} elements. A rank computes for {{work + updates}} ticks, and the last rank cannot begin before
# others have done three forwards: {{work + updates}} + {{(ranks - 1) * F}} = {{late.time}}. So no schedule whose ranks
# update their own layers is faster.
#
# `zbv_in_55` has no turns. In each tick a rank does what is ready, a backward before a forward, and the upper stage
# before the lower one. Fewer messages wait to be received, and on most ranks memory is highest before there are
# gradients of the lower stage's weights. That is {{small.memory}} elements, in {{small.time}} ticks.

# %% tags=["solution"]
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from drawing import Figure, compare
from lib import Run

from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p16_zero_bubble import zb_h1, zero_bubble

Piece = tuple[str, str]  # what is done, and of the "lower" stage or the "upper" one


def by_turns(model: Model, late: str) -> list[Piece]:
    """In turns. ``late``: the stages whose last weight halves come at the very end, "", "upper", or "both"."""
    ranks, rank = model.RANKS, model.rank
    ahead, in_turn = ranks - rank, max(model.BATCHES, 2 * ranks - 1) - ranks
    down, up = [("forward", "lower")], [("forward", "upper")]
    down_back = [("for_the_input", "lower"), ("for_the_weight", "lower")]
    up_back = [("for_the_input", "upper"), ("for_the_weight", "upper")]
    work = down * (2 * ahead - 1) + (up + down) * rank + (up + up_back) * ahead
    work += (down + down_back + up + up_back) * in_turn
    last = (down_back[:1] if late == "both" else down_back) + (up_back[:1] if late else up_back)
    return work + last * rank + down_back * ahead


def as_soon_as_ready(model: Model) -> list[Piece]:
    """In each tick what is ready: backwards before forwards, and the upper stage before the lower one."""
    turn = 2 * model.RANKS - 1  # the last stage, in which forwards turn into backwards
    done: Counter[tuple[str, int]] = Counter()  # how many micro-batches, in each stage
    orders: list[list[Piece]] = [[] for _ in range(model.RANKS)]

    def ready(what: str, stage: int, before: Counter[tuple[str, int]]) -> bool:
        if what == "forward":
            come = before[what, stage - 1] if stage > 0 else model.BATCHES
        else:
            come = before[what, stage + 1] if stage < turn else before["forward", stage]
        return before[what, stage] < come

    while done["for_the_input", 0] < model.BATCHES:
        before = done.copy()
        for rank, order in enumerate(orders):
            if order and order[-1][0] == "for_the_input":
                order.append(("for_the_weight", order[-1][1]))
                continue
            stages = {"upper": turn - rank, "lower": rank}
            for what, name in product(("for_the_input", "forward"), stages):
                if ready(what, stages[name], before):
                    done[what, stages[name]] += 1
                    order.append((what, name))
                    break
    return orders[model.rank]


async def forth_and_back(
    model: Model, order: Callable[[Model], list[Piece]], later: bool = False
) -> Model:
    """A V that works in a given order, and at last does the weight halves that are not in it. ``later``: sends are
    awaited at the end."""
    ranks, rank, end = model.RANKS, model.rank, model.LAYERS
    thick = end // (2 * ranks)
    lower = range(rank * thick, (rank + 1) * thick)
    upper = range(end - (rank + 1) * thick, end - rank * thick)
    before, after = {lower: rank - 1, upper: rank + 1}, {lower: rank + 1, upper: rank - 1}
    turn = lower.stop == upper.start
    for layer in [*lower, *upper]:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    sends = []

    async def sent(call):
        """Wait for a send, now or at the end."""
        if later:
            sends.append(call)
        else:
            await call

    async def come(what: type, key: tuple[int, int], src: int) -> None:
        store = model.activations if what is Activation else model.grad_activations
        while key not in store:
            got = await model.receive(src=src)
            own = model.activations if isinstance(got, Activation) else model.grad_activations
            own[got.layer, min(got.batches)] = got

    async def forward(stage: range, mb: int) -> None:
        if stage.start == 0:
            model.activations[0, mb] = model.get_activation([mb])
        await come(Activation, (stage.start, mb), before[stage])
        for layer in stage:
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        if stage.stop < end and not (turn and stage == lower):
            await sent(model.pass_to(after[stage], model.activations.pop((stage.stop, mb))))

    async def for_the_input(stage: range, mb: int) -> None:
        if stage.stop == end:
            out = model.activations.pop((end, mb))
            model.grad_activations[end - 1, mb] = model.loss(out)
        await come(ActivationGrad, (stage.stop - 1, mb), after[stage])
        for layer in reversed(stage):
            inp, grad = model.activations[layer, mb], model.grad_activations[layer, mb]
            grad = model.backward_input(layer, inp, grad, model.weights[layer])
            if layer > 0:
                model.grad_activations[layer - 1, mb] = grad
        if stage.start > 0 and not (turn and stage == upper):
            grad = model.grad_activations.pop((stage.start - 1, mb))
            await sent(model.pass_to(before[stage], grad))

    async def for_the_weight(stage: range, mb: int) -> None:
        for layer in stage:
            inp = model.activations.pop((layer, mb))
            grad = model.grad_activations.pop((layer, mb))
            of_weight = model.backward_weight(layer, inp, grad, model.weights[layer])
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + of_weight if so_far else of_weight

    stages = {"upper": upper, "lower": lower}
    pieces: dict[str, Callable[[range, int], Any]] = {
        one.__name__: one for one in (forward, for_the_input, for_the_weight)
    }
    left = [("for_the_weight", name) for name in stages for _ in range(model.BATCHES)]
    done: Counter[Piece] = Counter()
    for what, name in [*order(model), *left]:
        if (mb := done[what, name]) < model.BATCHES:
            done[what, name] += 1
            await pieces[what](stages[name], mb)

    for layer in [*lower, *upper]:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    for send in sends:
        await send
    return model


async def zb_v(model: Model) -> Model:
    """The upper stage's last weight halves come at the very end."""
    return await forth_and_back(model, partial(by_turns, late="upper"))


async def as_pytorch_does(model: Model) -> Model:
    """The last weight halves of both stages come at the very end."""
    return await forth_and_back(model, partial(by_turns, late="both"))


async def zbv_in_55(model: Model) -> Model:
    """Each rank does what is ready, without turns."""
    return await forth_and_back(model, as_soon_as_ready)


async def sends_later(model: Model) -> Model:
    """ZB-V, with sends that no rank waits for before the end."""
    return await forth_and_back(model, partial(by_turns, late="upper"), later=True)


def at_these_prices(fn: Any) -> Run:
    """A run at the puzzle's size."""
    return run(fn, ranks=4, layers=8, batches=8, cost=even_thirds)


def in_a_line(static: bool = False) -> Figure:
    """Puzzle 16's answer with one stage of two layers on each rank."""
    return draw(at_these_prices(zero_bubble), title="one thick stage a rank", static=static)


def beside_1f1b(static: bool = False) -> Figure:
    """1F1B with thick stages, and the V."""
    both = map(at_these_prices, (one_f_one_b, zbv))
    return compare(*both, titles=["1F1B", "a V"], static=static)


compare(*map(at_these_prices, (zbv, zb_v, zbv_in_55, as_pytorch_does)))

# %% [markdown]
# ### Where real systems do this
#
# ZB-V is from *Zero Bubble Pipeline Parallelism* (Qi et al., Sea AI Lab, arXiv 2401.10241), and PyTorch {{TORCH}} has
# it as `ScheduleZBVZeroBubble`. Its order of work is the one here, but the lower stage's last weight halves come at
# the end as well. That takes {{torch.time}} ticks and {{torch.memory}} elements. DualPipeV is a V, too, in which the
# forward of one micro-batch overlaps with the backward of another. Sea AI Lab made it of DeepSeek's DualPipe (puzzle
# 30), and DeepSeek took it into their code (github.com/deepseek-ai/DualPipe). `docs/schedules.md` shows both in the
# rows that PyTorch prints, and `search("v", ...)`, which looks for Vs in less memory.
#
# On links where a send waits for its receive ([puzzle 36](p36_sends_that_wait.ipynb)), our solution hangs. Two ranks
# are in a send to each other, and neither has asked for what comes. A rank that starts its sends, and awaits them only
# at the end, does not hang: on such links (`links="rendezvous"`) the step then takes {{patient.time}} ticks, against
# {{late.time}} where no send waits.

# %% [markdown]
# ### On real GPUs
#
# The model and the GPUs of puzzle 16. Each stage is cut in two, and its second half is on the rank where the V comes
# back.
#
# ![What a step takes](picture:priced)
#
# Puzzle 16's program takes {{by_halves.seconds:.3g}} s there, and {{by_halves.bytes / BILLION:.0f}} GB.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_70B, report

priced = run(
    zbv,
    ranks=8,
    layers=16,
    batches=16,
    cost=H100_TORCHTITAN.cost(LLAMA_3_70B, tensor=8, sequence_parallel=True),
)
print(report(priced))

# %% tags=["figures"]
v, late, small, zb, torch = map(at_these_prices, (zbv, zb_v, zbv_in_55, zb_h1, as_pytorch_does))
line, halves = map(at_these_prices, (one_f_one_b, zero_bubble))
most_kept = 3  # the rank that keeps most in the V
F = cost.forward
work, updates = 2 * batches * (cost.forward + cost.backward), 2 * cost.update
zb_gap = zb.time - work - updates
patient = run(sends_later, **size, cost=cost, links="rendezvous")


def kept(done: Run, rank: int) -> int:
    """How many activations and gradients of activations a rank has at most."""
    both = most(done, rank, "activations", "activation_grads")
    return int(both // cost.activation_elements)


assert max(kept(v, rank) for rank in range(ranks)) == kept(v, most_kept)

from lib.real.prices import RealCost

assert isinstance(priced.cost, RealCost)
by_halves = run(zero_bubble, ranks=8, layers=8, batches=16, cost=priced.cost)
