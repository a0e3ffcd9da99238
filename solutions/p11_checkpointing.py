# %% [markdown]
# # Puzzle 11: Activation checkpointing
#
# One layer of GPT-3 leaves {{KEPT / BILLION:.1f}} GB of activations behind for a single sequence of {{GPT_SEQUENCE}}
# tokens, and there are {{GPT_LAYERS}} layers. That makes {{GPT_LAYERS * KEPT / BILLION:.0f}} GB, on a GPU that has
# {{CARD}}. FSDP does not help: it divides weights, gradients and optimizer states. And a micro-batch cannot well be
# smaller than one sequence.
#
# But nearly all of these {{GPT_LAYERS * KEPT / BILLION:.0f}} GB are made *inside* the layers: queries, keys and
# values, the scores of attention, what goes into each matrix product. From the input of a layer they can be computed
# again at any time, and the inputs of all {{GPT_LAYERS}} layers are only {{GPT_LAYERS * INPUT / BILLION:.0f}} GB. So
# throw the rest away, and compute it again when the backward pass needs it. Then it fits. But every layer goes
# forward twice, and a step takes {{Fraction(cost.forward, cost.forward + cost.backward):word}} longer.
#
# How much of that third can you get back, if there is a little room left?

# %%
from drawing import beside_target, compare, draw, play
from lib import HIDDEN, LENGTH, Activation, Cost, Model, grade, hint, run, solution

# %% tags=["spec"]
PUZZLE = {
    "number": 11,
    "name": "checkpointing",
    "title": "Activation checkpointing",
    "size": {"ranks": 1, "layers": 12, "batches": 1},
    "other_sizes": "one_rank",
    "target": {"time": 48.18, "memory": 28573696},
    "star": {"time": 47.18, "memory": 27918336},
    "frontier": [
        {"time": 47.18, "memory": 27394048, "by": "checkpointing_in_47_18"},
        {"time": 48.15, "memory": 25296896, "by": "checkpointing_in_48_15"},
    ],
    "cost": "inner_activations",
    "layout": "whole",
    "ideas": [],
    "words": ["keep", "saved"],
    "begins_with": "basic",
    "hints_for": {"slow": 1, "large": 2},
    "difficulty": "medium",
    "minutes": 25,
    "star_hint": "At the beginning of the backward pass memory is highest, and the last layer makes "
    "its inner activations again just there. What would it cost to keep those of this one "
    "layer? And when could a gradient that is complete be updated?",
    "hints": [
        "You have a little memory to spend, and you buy time with it. One layer kept whole: how many ticks does that "
        "save, for how many inputs' room? And one layer kept with `selective`? Which of the two is the better buy?",
        "Start from your answer to puzzle 0. What is inside a layer takes up memory, so keep it for some layers "
        'only. For half of the layers, `out, saved = model.forward(layer, inp, weight, keep="selective")`, and '
        'store both: `model.activations[layer, "saved"] = saved`. In the backward pass take it out as you use '
        'it, `saved=model.activations.pop((layer, "saved"), None)`: then it is None for the layers that kept '
        "nothing.",
        "For the star: memory is highest at the beginning of the backward pass. Which layer goes first there, and "
        "what does its backward hold, with `saved` and without? So for one layer it costs nothing at all to keep "
        "everything.",
    ],
}

# %% [markdown]
# ## New tools: what a forward leaves behind
#
# So far the machine has counted the input of each layer, and nothing that is inside. Here it counts both. Inside a
# layer there is {{whole}} times as much as in its input, and you decide how much of it is kept:
#
# - `model.forward(layer, inp, weight)` keeps nothing, as ever.
# - `out, saved = model.forward(layer, inp, weight, keep="all")` gives the output and, as a second tensor, everything
#   inside the layer. Store it in `model.activations`, under any key. It takes the room of **{{whole}}** inputs.
# - `keep="selective"` keeps only what is slow to make again, the results of the large matrix products, and leaves out
#   the scores of attention, which are large and quick to make. That takes the room of **{{part}}** inputs.
# - `model.backward(layer, inp, grad, weight, saved=saved)` uses what was kept.
#
# A backward takes {{cost.backward}} ticks, which is more like a real one than the one tick of the first puzzles. If
# it gets nothing it has to make everything again, and takes **{{cost.recompute}}** tick more, a whole forward. If it
# gets a selective `saved`, it takes **{{cost.recompute_selective}}** ticks more. In either case the inside of the
# layer is complete while its backward runs: what it makes again is in memory, too, from the beginning of this
# backward to its end.
#
# Here is one layer in all three ways. Look at the length of the three backwards, and at what is in memory meanwhile.


# %%
def three_ways(model: Model) -> Model:
    """One layer that is trained on three micro-batches, and keeps more each time."""
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    for mb, keep in enumerate([None, "selective", "all"]):
        inp = model.activations["in"] = model.get_activation([mb])
        if keep is None:
            out = model.forward(0, inp, model.weights[0])
        else:
            out, model.activations["saved"] = model.forward(0, inp, model.weights[0], keep=keep)
        model.grad_activations["out"] = model.loss(out)
        model.grad_weights[mb], _ = model.backward(
            0,
            model.activations.pop("in"),
            model.grad_activations.pop("out"),
            model.weights[0],
            saved=model.activations.pop("saved", None),
        )
    return model


prices = Cost(
    backward=2,
    saved_elements=56 * HIDDEN * LENGTH,
    saved_selective_elements=16 * HIDDEN * LENGTH,
    recompute=1,
    recompute_selective=0.03,
)
draw(run(three_ways, layers=1, batches=3, cost=prices))

# %% [markdown]
# ## Your task
#
# Train plainly, on one rank, as in puzzle 0, with these prices. This is what happens if you treat all layers alike:
#
# | kept of every layer | ticks | elements |
# |---|---|---|
# | nothing | {{nothing.time:.2f}} | {{nothing.memory}} |
# | `"selective"` | {{selective.time:.2f}} | {{selective.memory}} |
# | `"all"` | {{everything.time:.2f}} | {{everything.memory}} |
#
# (These update each layer as soon as its gradient is there. An answer to puzzle 0 that updates when the backward pass
# is over keeps all gradients until then, and takes {{late.memory}} elements.)
#
# Your GPU has room for something in between: the weights, the optimizer states and the gradients, the input of every
# layer, the inside of the one layer that is in its backward, and beyond that, what `"selective"` keeps of **half of
# the layers** (rounded down).
#
# Target, for 12 layers and 1 micro-batch: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.
# The star: **{{star.time}}** ticks, **{{star.memory}}** elements.


# %%
def checkpointing(model: Model) -> Model:
    """One step of training, in which some layers keep what is inside them."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        inp, weight = model.activations[layer], model.weights[layer]
        if layer < model.LAYERS // 2:
            out, saved = model.forward(layer, inp, weight, keep="selective")
            model.activations[layer, "saved"] = saved
        else:
            out = model.forward(layer, inp, weight)
        model.activations[layer + 1] = out
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        saved = model.activations.pop((layer, "saved"), None)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad, model.weights[layer], saved=saved
        )

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(run(checkpointing, layers=12, cost=prices))

# %%
# The same run, step by step, with the line of your code that each rank is at.
play(run(checkpointing, layers=12, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too? If you are stuck: hint("checkpointing")
grade(checkpointing)

# %% [markdown]
# ## What memory buys
#
# Kept whole, a layer saves {{cost.recompute}} tick for the room of {{whole}} inputs. Kept selectively, it saves
# {{saves}} ticks for {{part}}. For each element that is {{saves / part * whole:.1f}} times as much, so in the memory
# of the target no layer should be kept whole, with perhaps one exception.
#
# ![Nothing is kept](picture:nothing_kept)
#
# ![Half of the layers keep a little](picture:half_kept)
#
# In the second picture six backwards are shorter, and the hill of activations is higher by what makes them so.
#
# The figures are those of GPT-3. In 16 bits the input of its layers takes {{WEIGHT}} bytes for each number; with the
# usual letters, s for the tokens, b for the sequences and h for the width, that is 2sbh. With everything inside, a
# layer takes {{sbh}}sbh: {{sbh // 2}} times as much. Without what belongs to the scores of attention it is
# {{linear}}sbh: {{linear // 2}} times as much. For all {{GPT_LAYERS}} layers and one sequence, with `selective` they
# are {{GPT_LAYERS * linear * GPT_SEQUENCE * GPT_HIDDEN / BILLION:.0f}} GB. That is still too much for one GPU, and
# the other layers have to be computed again, or other GPUs have to help. And making these again takes s/(6h) of a
# forward, {{Fraction(GPT_SEQUENCE, 6 * GPT_HIDDEN)}} for s = {{GPT_SEQUENCE}} and h = {{GPT_HIDDEN}} (Korthikanti et
# al., arXiv 2205.05198).
#
# ## Across layers
#
# Now let the inside of a layer be small, and the model very deep. Then the inputs themselves are too much. Keep only
# every fourth of them, the *checkpoints*. When the backward pass comes to four layers whose inputs are gone, run them
# forward again from their checkpoint, and go back through them. Nothing new is needed for that, only `forward`:


# %%
from functools import partial


def across_layers(model: Model, every: int) -> Model:
    """Plain training that keeps the input of every so many layers, and makes the others again."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def forward(layer: int, inp: Activation) -> None:
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])

    stored = model.activations
    stored[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        forward(layer, stored[layer] if layer % every == 0 else stored.pop(layer))
    model.grad_activations[model.LAYERS] = model.loss(stored.pop(model.LAYERS))

    for first in reversed(range(0, model.LAYERS, every)):
        segment = range(first, min(first + every, model.LAYERS))
        for layer in segment[:-1]:
            forward(layer, stored[layer])
        for layer in reversed(segment):
            inp, grad = stored.pop(layer), model.grad_activations.pop(layer + 1)
            model.grad_weights[layer], model.grad_activations[layer] = model.backward(
                layer, inp, grad, model.weights[layer]
            )
            model.weights[layer], model.opt_states[layer] = model.update(
                layer,
                model.grad_weights.pop(layer),
                model.weights[layer],
                model.opt_states[layer],
            )
            model.set_final_weight(layer, model.weights[layer])
    return model


wide = Cost(backward=2, activation_elements=16 * HIDDEN * LENGTH)
draw(run(partial(across_layers, every=4), layers=16, cost=wide))

# %% [markdown]
# The triangle of activations has turned into a saw. Here are both, for {{deep}} layers whose inputs are large:
#
# ![Every input is kept](picture:triangle)
#
# ![Every fourth input is kept](picture:saw)
#
# With L layers and a checkpoint every k layers there are L/k checkpoints, and, while the last k layers are worked on,
# the k - 1 inputs between and a gradient: L/k + k in all. That is least where both are equal, at k = √L: then it is
# 2√L, here {{at_peak[3]}} instead of {{at_peak[0]}}. (Near it, where k does not divide L, it can be as little.) What
# it costs is L - L/k forwards, less than one forward pass, whatever k is:
#
# | `every` | {{every[0]}} | {{every[1]}} | {{every[2]}} | {{every[3]}} | {{every[4]}} | {{every[5]}} | {{every[6]}} |
# |---|---|---|---|---|---|---|---|
# | ticks | {{saws[0].time}} | {{saws[1].time}} | {{saws[2].time}} | {{saws[3].time}} | {{saws[4].time}} | {{saws[5].time}} | {{saws[6].time}} |
# | activations at the peak | {{at_peak[0]}} | {{at_peak[1]}} | {{at_peak[2]}} | {{at_peak[3]}} | {{at_peak[4]}} | {{at_peak[5]}} | {{at_peak[6]}} |
#
# **Try it.** For a model of {{try_it}} layers, which `every` takes the least memory? Several do. Which of them is the
# fastest? Put your guess into the cell.

# %%
layers, guess = 36, 4


def figures(every: int) -> tuple[float, float]:
    """Its peak memory and its time."""
    done = run(partial(across_layers, every=every), layers=layers, cost=wide)
    return done.memory, done.time


best = min(map(figures, range(1, layers + 1)))
memory, time = figures(guess)
praise = ": there is none better!" if (memory, time) == best else ""
print(f"every={guess}: {memory:,} elements, {time:g} ticks{praise}")

# %% [markdown] tags=["solution"]
# ## The last layer is free
#
# Memory is highest as the backward pass begins: all that was kept is still there. Then the first backward is that of
# the *last* layer. It holds everything inside that layer in any case, kept or just made again. So to keep all of the
# last layer costs no memory at the peak, and saves a whole tick: {{free.time}} ticks and {{free.memory}} elements, if
# the lower layers keep selectively what the target allows. In 1F1B the last layer of the last stage has the same luck
# with every micro-batch.

# %% tags=["solution"]
from collections.abc import Callable, Collection

from drawing import Figure
from lib import Run

Keep = Callable[[int, int], str | None]


def training(model: Model, keep: Keep, forgotten: Collection[int] = ()) -> Model:
    """Plain training that keeps of each layer what ``keep(layer, layers)`` says. Inputs of the layers in ``forgotten``
    are not kept: the layer before goes forward again, and this time keeps all."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def forward(layer: int, inp: Activation, kept: str | None) -> None:
        if kept is None:
            model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
            return
        model.activations[layer + 1], model.activations[layer, "saved"] = model.forward(
            layer, inp, model.weights[layer], keep=kept
        )

    model.activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        stored = model.activations
        inp = stored.pop(layer) if layer in forgotten else stored[layer]
        forward(layer, inp, keep(layer, model.LAYERS))
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer in forgotten:
            forward(layer - 1, model.activations[layer - 1], "all")
        inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        saved = model.activations.pop((layer, "saved"), None)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad, model.weights[layer], saved=saved
        )
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def keep_nothing(model: Model) -> Model:
    """Every layer is computed again."""
    return training(model, lambda layer, layers: None)


def keep_everything(model: Model) -> Model:
    """No layer is computed again."""
    return training(model, lambda layer, layers: "all")


def keep_selectively(model: Model) -> Model:
    """Of every layer, all but what is quick to make again."""
    return training(model, lambda layer, layers: "selective")


def last_one_free(model: Model) -> Model:
    """All of the last layer, a little of those before it."""
    return training(
        model,
        lambda layer, layers: (
            "all"
            if layer == layers - 1
            else "selective"
            if layer >= (layers - 1) // 2
            else None
        ),
    )


def at_these_prices(fn: Callable[[Model], object]) -> Run:
    """A run at the puzzle's size."""
    size = HIDDEN * LENGTH
    cost = Cost(
        backward=2,
        saved_elements=56 * size,
        saved_selective_elements=16 * size,
        recompute=1,
        recompute_selective=0.03,
    )
    return run(fn, layers=12, cost=cost)


def nothing_kept(static: bool = False) -> Figure:
    """Every backward makes everything again."""
    return draw(
        at_these_prices(keep_nothing).models[0],
        title="nothing is kept",
        memory_target=28_573_696,
        static=static,
    )


def half_kept(static: bool = False) -> Figure:
    """The first half of the layers keeps a little."""
    return draw(
        at_these_prices(checkpointing).models[0],
        title="half of the layers keep a little",
        memory_target=28_573_696,
        static=static,
    )


compare(*map(at_these_prices, (keep_nothing, checkpointing, last_one_free)))

# %% [markdown] tags=["solution"]
# ## Inputs that will be made again anyway
#
# There is one more thing to give away. If layer 4 keeps nothing, it goes forward again in the backward pass, and so it
# gives the input of layer 5 a second time. So why keep that? Throw it away, too. Before the backward of layer 5 let
# layer 4 go forward again with `keep="all"`, which is the forward that its own backward would have to pay for. It
# takes no more time, and an input less of memory at the peak. But now the insides of two layers are in memory at once,
# so it is for the lower layers only, when much of the rest is gone: {{again.time}} ticks and {{again.memory}} elements.
#
# With one selective layer fewer you are at {{fewer.time}} ticks and {{fewer.memory}} elements.


# %% tags=["solution"]
def without_inputs(model: Model, fewer: int) -> Model:
    """Every second one of the lower layers goes forward again to give the input of the next. Of the others, half of
    all layers keep selectively, or so many fewer."""
    again = range(0, model.LAYERS - 4, 2)
    others = [layer for layer in range(model.LAYERS - 1) if layer not in again]
    some = others[len(others) - max(model.LAYERS // 2 - fewer, 0) :]
    return training(
        model,
        lambda layer, layers: (
            "all" if layer == layers - 1 else "selective" if layer in some else None
        ),
        [layer + 1 for layer in again],
    )


def checkpointing_in_47_18(model: Model) -> Model:
    """Half of the layers keep a little, and the last keeps all."""
    return without_inputs(model, 0)


def checkpointing_in_48_15(model: Model) -> Model:
    """One selective layer fewer."""
    return without_inputs(model, 1)


draw(at_these_prices(checkpointing_in_47_18))

# %% [markdown] tags=["solution"]
# ## The last ones again
#
# With {{try_it}} layers, every {{best[0]}}, {{best[1]}}, {{best[2]}} and {{best[3]}} take {{least}} activations. The
# fastest of these is {{best[0]}}, which has the most checkpoints.
#
# And the last checkpoint is not needed for much: the backward pass begins with the layers behind it, when their
# inputs have only just been made. Keep these, and no forward is done twice there. In the picture of {{deep}} layers
# that saves {{saws[3].time - kept_again.time}} ticks of the {{saws[3].time - saws[0].time}}, in the same memory.


# %% tags=["solution"]
def last_segment_kept(model: Model, every: int = 4) -> Model:
    """As above, but what the last segment has made stays."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def forward(layer: int, inp: Activation) -> None:
        model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])

    stored, last = model.activations, (model.LAYERS - 1) // every * every
    stored[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        checkpoint = layer % every == 0 or layer > last
        forward(layer, stored[layer] if checkpoint else stored.pop(layer))
    model.grad_activations[model.LAYERS] = model.loss(stored.pop(model.LAYERS))

    for first in reversed(range(0, model.LAYERS, every)):
        segment = range(first, min(first + every, model.LAYERS))
        for layer in segment[:-1] if first < last else ():
            forward(layer, stored[layer])
        for layer in reversed(segment):
            inp, grad = stored.pop(layer), model.grad_activations.pop(layer + 1)
            model.grad_weights[layer], model.grad_activations[layer] = model.backward(
                layer, inp, grad, model.weights[layer]
            )
            model.weights[layer], model.opt_states[layer] = model.update(
                layer,
                model.grad_weights.pop(layer),
                model.weights[layer],
                model.opt_states[layer],
            )
            model.set_final_weight(layer, model.weights[layer])
    return model


def with_large_inputs(fn: Callable[[Model], object]) -> Run:
    """A run of 16 layers whose inputs take most of the memory."""
    cost = Cost(backward=2, activation_elements=16 * HIDDEN * LENGTH)
    return run(fn, layers=16, cost=cost)


def triangle(static: bool = False) -> Figure:
    """Every input is kept."""
    done = with_large_inputs(partial(across_layers, every=1))
    return draw(done.models[0], title="every input is kept", static=static)


def saw(static: bool = False) -> Figure:
    """Every fourth input is kept."""
    done = with_large_inputs(partial(across_layers, every=4))
    return draw(done.models[0], title="every fourth input is kept", static=static)


compare(
    with_large_inputs(partial(across_layers, every=4)), with_large_inputs(last_segment_kept)
)

# %% [markdown]
# ## Where real systems do this
#
# In PyTorch, `torch.utils.checkpoint` is the first row of the table above: whatever you call through it keeps its
# input, and runs again in the backward pass. With a policy (`create_selective_checkpoint_contexts`) you say for each
# kind of operation whether to keep its result. In Megatron-LM, `--recompute-granularity selective` recomputes the
# core of attention in every layer, and `full`, with `--recompute-num-layers`, whole layers, some or all. It takes one
# layer at a time or several, and then keeps the input of the first, as you have just done. The large models of that
# paper would take {{dearer[0]}} to {{dearer[1]}} percent more time if everything was recomputed. With the selective
# kind, and with the activations cut along the sequence as well, more than {{came_back}} percent of that time came
# back (arXiv 2205.05198).
#
# FlashAttention (arXiv 2205.14135) has made the scores of attention again in its backward ever since it was written,
# and never stores them at all. So the selective kind is built in now, and what people choose today is which of the
# other results to keep. The square root is from Chen et al., *Training Deep Nets with Sublinear Memory Cost* (arXiv
# 1604.06174).

# %% [markdown]
# ## On real GPUs
#
# {{MEGATRON_22B.size / BILLION:.0f}} billion parameters on one node of A100, whose {{priced.cost.tensor}} GPUs are
# one rank here: they share each layer among them. What forward leaves behind, and what it takes to make it again,
# follow from the model's sizes: `recompute="full"` says that nothing is kept but what the program keeps.
#
# ![What a step takes](picture:priced)
#
# Half of the layers keep all but the scores. On this machine Megatron-LM took {{full:.2f}} s with nothing kept of any
# layer, and {{present:.2f}} s with all but the scores of every layer and sequence parallelism, as here (arXiv
# 2205.05198, table 5).

# %% tags=["priced"]
from lib.real import A100_MEGATRON, MEGATRON_22B, report

priced = run(
    checkpointing,
    layers=48,
    cost=A100_MEGATRON.cost(
        MEGATRON_22B,
        micro_batch=4,
        tensor=8,
        sequence_parallel=True,
        recompute="full",
        gradients=4,
    ),
)
print(report(priced))

# %% tags=["figures"]
inputs = cost.activation_elements
whole, part = cost.saved_elements // inputs, cost.saved_selective_elements // inputs
saves = cost.recompute - cost.recompute_selective

from solutions.p00_basic import basic

nothing, selective, everything = map(
    at_these_prices, (keep_nothing, keep_selectively, keep_everything)
)
late = at_these_prices(basic)
ours = at_these_prices(checkpointing)
assert late.memory > nothing.memory
free, again, fewer = map(
    at_these_prices, (last_one_free, checkpointing_in_47_18, checkpointing_in_48_15)
)

linear = 34  # this and the 5 are from arXiv 2205.05198
sbh = linear + 5 * GPT_HEADS * GPT_SEQUENCE // GPT_HIDDEN

deep, every = 16, (1, 2, 3, 4, 5, 8, 16)
many = Cost(backward=2, activation_elements=16 * HIDDEN * LENGTH)
saws = [run(partial(across_layers, every=one), layers=deep, cost=many) for one in every]


def inputs_at_peak(done: Run) -> int:
    """How many activations are in memory beside weights and states."""
    return int(
        (done.memory - 2 * done.layers * many.weight_elements) // many.activation_elements
    )


at_peak = [inputs_at_peak(done) for done in saws]
kept_again = with_large_inputs(last_segment_kept)
assert kept_again.memory == saws[3].memory

try_it = 36
tried = {
    one: run(partial(across_layers, every=one), layers=try_it, cost=many)
    for one in range(1, try_it + 1)
}
least = min(map(inputs_at_peak, tried.values()))
best = [one for one, done in tried.items() if inputs_at_peak(done) == least]
assert len(best) == 4 and all(tried[best[0]].time < tried[one].time for one in best[1:])

dearer, came_back = (
    [published(value, "arXiv 2205.05198") for value in (30, 40)],
    published(90, "arXiv 2205.05198"),
)
full, present = (published(value, "arXiv 2205.05198") for value in (1.42, 1.10))
