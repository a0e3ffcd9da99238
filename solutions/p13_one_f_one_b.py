# %% [markdown]
# # Puzzle 13: 1F1B
#
# More micro-batches make the bubble smaller. With 4 stages it is {{empty[4]:percent}} of the time for 4 micro-batches,
# {{empty[8]:percent}} for 8, and {{empty[16]:percent}} for {{more}}. But GPipe keeps the activations of all of them
# until its backwards begin: {{hill[0].memory}} elements for 4 micro-batches, {{hill[1].memory}} for 8, and
# {{hill[2].memory}} for {{more}}.
#
# ![GPipe with eight micro-batches](picture:the_hill)
#
# (In the picture the bubble is a little larger. The formula of puzzle 6 leaves out messages and updates.)
#
# The first micro-batch is through all stages long before the last one begins. Why is it still in memory?

# %%
from drawing import beside_target, draw, play
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 13,
    "name": "one_f_one_b",
    "title": "1F1B",
    "size": {"ranks": 4, "layers": 8, "batches": 8},
    "other_sizes": "pipeline",
    "target": {"time": 52.6, "memory": 3145728},
    "star": {"time": 47.4, "memory": 3145728},
    "frontier": [
        {"time": 45.1, "memory": 3145728, "by": "interleaved_in_40_5"},
        {"time": 46.9, "memory": 3014656, "by": "interleaved_in_41_9"},
        {"time": 51.4, "memory": 2883584, "by": "one_f_one_b_in_51_4"},
        {"time": 51.6, "memory": 2752512, "by": "one_f_one_b_in_51_6"},
    ],
    "layout": "stages",
    "begins_with": "gpipe",
    "hints_for": {"slow": 2, "large": 2},
    "ideas": ["own_layers"],
    "difficulty": "medium",
    "minutes": 30,
    "star_hint": "Where do the ranks wait: at the beginning, in between, or at the end? Which message "
    "could be sent before its rank goes on computing, and which receive could begin "
    "before it is needed?",
    "hints": [
        "A forward takes room, a backward gives it back. In GPipe, when could the last rank do its first backward at "
        "the earliest? And when could the other ranks then do their first backward?",
        "Begin with a few forwards, then take turns: one backward, which frees the activations of a micro-batch, then "
        "one forward, which needs room for the next. Only the order is new. How many forwards come first? The last "
        "rank needs one of them, the rank before it two, since its first gradient comes back later. With too few the "
        "rank waits, with too many it keeps what it need not keep. And there may be fewer micro-batches than that.",
        "Make two functions of the two loops of GPipe, `async def forward(mb)` and `async def backward(mb)`. Then, "
        "with `ahead = min(model.RANKS - model.rank, model.BATCHES)`: `forward(mb)` for the first `ahead` "
        "micro-batches; after that, for every `mb`, `backward(mb)`, and `forward(mb + ahead)` if there is such a "
        "micro-batch.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 6, now with 8 micro-batches. GPipe takes {{hill[1].time}} ticks for them, which is nearly fast
# enough. But it takes far too much memory.
#
# - Each layer is on one rank, with its weight and optimizer state, and every rank has the same number of layers.
# - {{ideas}}
#
# The order of the forwards and backwards is up to you.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def one_f_one_b(model: Model) -> Model:
    """A pipeline that keeps few micro-batches in memory."""
    ### BEGIN SOLUTION
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

    ahead = min(model.RANKS - model.rank, model.BATCHES)
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
    ### END SOLUTION
    return model


# %%
draw(run(one_f_one_b, ranks=4, layers=8, batches=8))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(one_f_one_b)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. To earn it, let messages travel while a rank computes,
# and find something to compute meanwhile. [Puzzle 12](p12_prefetch.ipynb) shows how to keep several things under way.
# To watch your own run, with the line that each rank is at:

# %%
play(run(one_f_one_b, ranks=4, layers=8, batches=8))

# %% [markdown]
# ### A hill and stairs
#
# Here is a program that passes. Compare the memory of its four ranks with that of GPipe, at the top of this page.
#
# ![1F1B](picture:the_stairs)
#
# With GPipe every rank climbs the same hill, eight micro-batches high. Here the ranks are stairs: there are four
# micro-batches on rank 0, then three, two and one. A micro-batch is *in flight* on a rank from its forward there to
# its backward. From rank r of p ranks it goes on through the p - r - 1 stages that follow. Meanwhile rank r can begin
# one more micro-batch for each of these stages. So **rank r has at most min(p - r, m) of m micro-batches in flight**,
# however many there are. Here are four stages again, with more and more micro-batches:
#
# | micro-batches | {{counts[0]}} | {{counts[1]}} | {{counts[2]}} | {{counts[3]}} |
# |---|---|---|---|---|
# | GPipe: elements | {{hill[0].memory}} | {{hill[1].memory}} | {{hill[2].memory}} | {{hill[3].memory}} |
# | 1F1B: elements | {{stairs[0].memory}} | {{stairs[1].memory}} | {{stairs[2].memory}} | {{stairs[3].memory}} |
# | GPipe: ticks | {{hill[0].time}} | {{hill[1].time}} | {{hill[2].time}} | {{hill[3].time}} |
# | 1F1B: ticks | {{stairs[0].time}} | {{stairs[1].time}} | {{stairs[2].time}} | {{stairs[3].time}} |
# | both, if messages took no time: ticks | {{free(4)}} | {{free(8)}} | {{free(16)}} | {{free(32)}} |
#
# **1F1B saves memory, not time.** Each rank does the same work as before, and the first and the last rank still wait
# for each other, at the beginning and at the end. The last row is the formula of puzzle 6: (m + p - 1)(F + B) and the
# update, where F and B are a stage's forward and backward. For 8 micro-batches that is
# {{(batches + before) * (F + B) + update:=}}. But now you can afford {{counts[3]}} micro-batches, and with them the
# bubble shrinks to {{empty[32]}}, {{empty[32]:percent}}.
#
# Take GPT-3 on {{stages}} stages of {{GPT_LAYERS // stages}} layers. If a GPU keeps only the input of each layer, a
# sequence of {{GPT_SEQUENCE}} tokens takes {{each:.1f}} GB on each stage. A bubble of
# {{Fraction(stages - 1, needed + stages - 1):percent}} needs {{needed}} sequences. With GPipe all of them are kept,
# {{needed * each:.0f}} GB on each stage. With 1F1B the first stage keeps {{stages}} of them ({{stages * each:.1f}}
# GB), and the last keeps one.
#
# ### How fast can it be?
#
# Look at the last rank. Before it can begin, a micro-batch has to come through three stages, with a message after
# each: {{before}} x ({{F}} + {{hop}}) ticks. Then it has {{batches}} x ({{F}} + {{B}}) ticks of work. After its last
# backward, that gradient has to go up through three stages, again {{before}} x ({{B}} + {{hop}}) ticks. Then rank 0
# can update its two layers, which takes {{update}} tick. Together:
# {{before * (F + hop) + batches * (F + B) + before * (B + hop) + update:=}}. That is the time of the star. With one
# stage on each rank, no schedule is faster, in whatever order it works and however much memory it takes.
#
# A rank may also have layers that do not follow each other, such as layers 0 and 4. Then the bound is lower. Each
# rank has a lowest layer. These are four different layers, so one of them is layer 3 or above. Its rank can begin
# when a micro-batch has come through three layers (not stages), with a message after each: {{before}} x ({{f}} +
# {{hop}}) ticks. Then it has as much work as before. After its last backward, the gradient still has to go through
# three layers, and one update follows. Together:
# {{before * (f + hop) + batches * (F + B) + before * (b + hop) + cost.update:=}} ticks. Puzzle 14 is about such
# pipelines. `grade` names both bounds.

# %% [markdown] tags=["solution"]
# ### The pictures, and other orders
#
# One program makes all of them. `most` says how many forwards come first, for each rank. If all forwards come first, it
# is GPipe.

# %% tags=["solution"]
from collections.abc import Callable
from functools import partial

from drawing import Figure, compare
from lib import Run


async def taking_turns(model: Model, most: Callable[[Model], int], hidden: str = "") -> Model:
    """First ``most`` forwards, then one backward and one forward by turns. ``hidden`` is "sends" or "sends and
    receives": no rank waits for these before it has to."""
    share = model.LAYERS // model.RANKS
    first, end = model.rank * share, (model.rank + 1) * share
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    some = min(most(model), model.BATCHES)
    work = [("forward", mb) for mb in range(some)]
    for mb in range(model.BATCHES):
        work.append(("backward", mb))
        if mb + some < model.BATCHES:
            work.append(("forward", mb + some))
    mine = {"forward": is_first, "backward": is_last}  # what this rank begins by itself
    sender = {"forward": model.rank - 1, "backward": model.rank + 1}
    senders = [sender[what] for what, _ in work if not mine[what]]
    mail, sends = [], []

    for what, mb in work:
        if not mine[what] and not mail:
            mail.append(model.receive(src=senders.pop(0)))
        got = None if mine[what] else await mail.pop(0)
        if what == "forward":
            model.activations[first, mb] = got or model.get_activation([mb])
        else:
            model.grad_activations[end] = got or model.loss(model.activations.pop((end, mb)))
        if hidden == "sends and receives" and senders and not mail:
            mail.append(model.receive(src=senders.pop(0)))

        if what == "forward":
            for layer in range(first, end):
                inp, weight = model.activations[layer, mb], model.weights[layer]
                model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
            if not is_last:
                sends.append(model.pass_to(model.rank + 1, model.activations.pop((end, mb))))
        else:
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
        while sends and not hidden:
            await sends.pop()

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    for send in sends:
        await send
    return model


def all_of_them(model: Model) -> int:
    """GPipe."""
    return model.BATCHES


def just_enough(model: Model) -> int:
    """1F1B."""
    return model.RANKS - model.rank


def one_more(model: Model) -> int:
    """1F1B on links that take time. The last rank begins its backwards by itself."""
    return 1 if model.rank == model.RANKS - 1 else model.RANKS - model.rank + 1


def two_more(model: Model) -> int:
    """And one more."""
    return 1 if model.rank == model.RANKS - 1 else model.RANKS - model.rank + 2


def twice_as_many(model: Model) -> int:
    """Eager 1F1B: two more than the next rank."""
    return 2 * (model.RANKS - model.rank) - 1


def in_flight(most: Callable[[Model], int], hidden: str = "", batches: int = 8) -> Run:
    """A run at the puzzle's size, or with other micro-batches."""
    fn = partial(taking_turns, most=most, hidden=hidden)
    return run(fn, ranks=4, layers=8, batches=batches)


def the_hill(static: bool = False) -> Figure:
    """GPipe."""
    done = in_flight(all_of_them)
    return draw(done, title="GPipe", memory_target=3_145_728, static=static)


def the_stairs(static: bool = False) -> Figure:
    """1F1B."""
    done = in_flight(just_enough)
    return draw(done, title="1F1B", memory_target=3_145_728, static=static)


compare(in_flight(all_of_them), in_flight(just_enough), titles=["GPipe", "1F1B"])

# %% [markdown] tags=["solution"]
# ### What one more forward buys
#
# A message takes {{hop}} ticks from rank to rank: {{cost.send}} to send it and {{cost.receive}} to receive it. So from
# the moment a micro-batch begins on rank 0 until it is done there, it takes {{ranks}} x {{F + B}} ticks of computing
# and {{2 * before}} messages, together {{trip}} ticks. In this time rank 0 could do {{trip / (F + B):=}} micro-batches.
# Four in flight are too few, and it waits. One more fills the time, and takes up room. (The last rank has nobody to
# wait for.)
#
# | forwards that come first on ranks 0 to 3 | each call awaited | no rank waits for messages |
# |---|---|---|
# | {{first(just_enough)}} | {{in_turn(just_enough)}} | {{in_turn(just_enough, ahead)}} |
# | {{first(one_more)}}: one more | {{in_turn(one_more)}} | {{in_turn(one_more, ahead)}} |
# | {{first(two_more)}}: two more | {{in_turn(two_more)}} | {{in_turn(two_more, ahead)}} |
#
# In the last column sends are awaited at the end, and the next message is asked for before this piece of work is
# computed. It takes both, one more forward and no waiting, to reach {{star.time}} ticks: no schedule with one stage on
# each rank is faster.
#
# Two more buy nothing here. In the long run, though, one more is not enough. A rank that has only one micro-batch more
# than the next rank falls behind a little with each turn. With {{counts[3]}} micro-batches, {{first(one_more)}}
# forwards at the start take {{late.time}} ticks. With **two more than the next rank**, {{first(twice_as_many)}}, it
# takes {{eager.time}}. That is again as fast as possible, for any number of micro-batches. This order is called *eager
# 1F1B* (arXiv 2211.05322).

# %% tags=["solution"]
one_f_one_b_in_47_4 = partial(taking_turns, most=one_more, hidden="sends and receives")
one_f_one_b_in_48_8 = partial(taking_turns, most=one_more, hidden="sends")
one_f_one_b_in_51_4 = partial(taking_turns, most=just_enough, hidden="sends and receives")
one_f_one_b_in_51_6 = partial(taking_turns, most=just_enough, hidden="sends")

draw(run(one_f_one_b_in_47_4, ranks=4, layers=8, batches=8))

# %% [markdown]
# ### Where real systems do this
#
# This order is called *one forward, one backward*, 1F1B, or PipeDream-flush (arXiv 2006.09503). Megatron-LM trains
# with it (arXiv 2104.04473), and PyTorch has it as `Schedule1F1B`. On every rank, PyTorch {{TORCH}} starts the same
# work and the same messages as our 1F1B. Its ranks begin with {{first(just_enough)}} forwards. Here that takes
# {{stairs[1].time}} ticks and {{stairs[1].memory}} elements. (It puts a send and the receive that follows into one
# batch, which changes no order.) `tests/torch_truth/TABLE.md` has the comparison. DeepSpeed has it, too, and reserves
# room for min(p - r, m) micro-batches on stage r, and for two at least.
#
# On links where a send waits for its receive ([puzzle 36](p36_sends_that_wait.ipynb)), 1F1B as it is written here
# hangs. Two ranks are in a send to each other, and neither has asked for what comes. A rank that starts its sends, and
# awaits them only at the end, does not hang: on such links (`links="rendezvous"`) the step then takes {{patient.time}}
# ticks, and {{stairs[1].time}} on ours with each send awaited.
#
# The stairs have a drawback, too. The first rank holds the activations of p micro-batches and the last rank those of
# one, and the model has to fit on the first. So in the largest Llama 3 (arXiv 2407.21783) two stages have one layer
# fewer: the first, which has the embedding and most micro-batches, and the last, which computes the loss.

# %% [markdown]
# ### On real GPUs
#
# The same model on the same {{priced.ranks * priced.cost.tensor}} GPUs as in puzzles 5 and 6. A stage is a node of
# {{priced.cost.tensor}} GPUs. It has one layer in this run, which stands for
# {{GPT_175B.layers // priced.layers:word}} layers of the model.
#
# ![What a step takes](picture:priced)
#
# This is as fast as puzzle 6, and it fits: no more than eight micro-batches are in flight.

# %% tags=["priced"]
from lib.real import A100_MEGATRON, GPT_175B, report

priced = run(
    one_f_one_b,
    ranks=8,
    layers=8,
    batches=64,
    cost=A100_MEGATRON.cost(
        GPT_175B, tensor=8, sequence_parallel=True, recompute="selective", gradients=4
    ),
)
print(report(priced))

# %% tags=["figures"]
from lib import Cost

counts, more = (4, 8, 16, 32), 16
hill, stairs = (
    [in_flight(most, batches=count) for count in counts] for most in (all_of_them, just_enough)
)
empty = {count: Fraction(ranks - 1, count + ranks - 1) for count in counts}

before, hop = ranks - 1, cost.send + cost.receive
f, b = cost.forward, cost.backward  # of a layer, and below of a stage
F, B, update = f * layers // ranks, b * layers // ranks, cost.update * layers / ranks
trip = ranks * (F + B) + 2 * before * hop
patient = run(one_f_one_b_in_51_6, **size, cost=cost, links="rendezvous")


def free(count: int) -> float:
    """The formula of puzzle 6."""
    return float((count + before) * (F + B) + update)


assert (
    free(8)
    == run(partial(taking_turns, most=just_enough), **size, cost=Cost(send=0, receive=0)).time
)
assert float(bounds.one_stage) == star.time

ahead = "sends and receives"


def first(most: Callable[[Model], int]) -> str:
    """With how many forwards ranks begin."""
    return ", ".join(str(most(model)) for model in stairs[3].models)


def in_turn(most: Callable[[Model], int], hidden: str = "") -> str:
    """Time and memory of such an order."""
    done = in_flight(most, hidden)
    return f"{show(done.time)} ticks, {show(done.memory)} elements"


late, eager = (in_flight(most, ahead, counts[3]) for most in (one_more, twice_as_many))
assert eager.time == 2 * before * (F + hop) + counts[3] * (F + B) + update

stages, needed = 8, 64
each = (
    GPT_LAYERS // stages * INPUT / BILLION
)  # GB of the inputs of a stage's layers, for a sequence
