# %% [markdown]
# # Puzzle 11: Activation checkpointing
#
# One layer of GPT-3 leaves {{KEPT / BILLION:.1f}} GB of activations behind for a single sequence. With {{GPT_LAYERS}}
# layers that is {{GPT_LAYERS * KEPT / BILLION:.0f}} GB, on a GPU that has {{CARD}}. Nearly all of it is made *inside*
# the layers, and could be computed again from their inputs. What is worth keeping?
#
# So far the machine has counted the input of each layer. Here it also counts what is inside, and you decide what
# stays:
#
# ```python
# out = model.forward(layer, inp, weight)                     # keeps nothing, as before
# out, saved = model.forward(layer, inp, weight, keep="all")  # "selective" keeps less
# grad, grad_in = model.backward(layer, inp, grad_out, weight, saved=saved)
# ```
#
# ![One layer three times: nothing is kept of it, a part, and all](picture:three_ways_to_keep)
#
# | `keep` | takes the room of | a backward takes | ticks, if all layers do this | elements |
# |---|---|---|---|---|
# | nothing | 0 inputs | {{cost.backward + cost.recompute}} ticks | {{nothing.time:.2f}} | {{nothing.memory}} |
# | `"selective"` | {{part}} inputs | {{cost.backward + cost.recompute_selective}} ticks | {{selective.time:.2f}} | {{selective.memory}} |
# | `"all"` | {{whole}} inputs | {{cost.backward}} ticks | {{everything.time:.2f}} | {{everything.memory}} |
#
# Store `saved` in `model.activations`. `"selective"` keeps what is slow to make again, and leaves out what is large
# and quick to make. While a backward runs, everything inside its layer is in memory, whether it was kept or made
# again.

# %%
from drawing import beside_target, draw, play
from lib import HIDDEN, LENGTH, Activation, Cost, Model, grade, hint, run, solution, why

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
    "layer? And when could a layer with a complete gradient be updated?",
    "hints": [
        "You have a little memory to spend, and you buy time with it. If a layer keeps everything, how many ticks "
        "does it save, and how many inputs would take as much memory? And with `selective`? Which of the two is the "
        "better buy?",
        "Start from your answer to puzzle 0. What is inside a layer takes up memory, so keep it for some layers "
        'only. For half of the layers, `out, saved = model.forward(layer, inp, weight, keep="selective")`, and '
        'store both: `model.activations[layer, "saved"] = saved`. In the backward pass take it out as you use '
        'it, `saved=model.activations.pop((layer, "saved"), None)`: then it is None for the layers that kept '
        "nothing.",
        "For the star: memory is highest at the beginning of the backward pass. Which layer goes first there, and "
        "what does its backward hold, with `saved` and without? That is why it costs nothing to keep everything for "
        "this one layer.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train plainly, as in puzzle 0, with the times and sizes in the table.
#
# - The rank begins and ends with all weights and all optimizer states.
# - `keep=` and `saved=` are allowed. The grader tries other sizes, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


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
prices = Cost(
    backward=2,
    saved_elements=56 * HIDDEN * LENGTH,
    saved_selective_elements=16 * HIDDEN * LENGTH,
    recompute=1,
    recompute_selective=0.03,
)
draw(run(checkpointing, layers=12, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(checkpointing)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. Memory is highest at one moment. What is in memory then,
# even if you keep nothing? To watch your own run, with the line that the rank is at:

# %%
play(run(checkpointing, layers=12, cost=prices))

# %% [markdown]
# ### What memory buys
#
# A layer that is kept whole saves {{cost.recompute}} tick, and takes the room of {{whole}} inputs. One that is kept
# selectively saves {{saves}} ticks for {{part}} inputs. That saves {{saves / part * whole:.1f}} times as much time for
# each element. So the target's memory is best spent on selective layers, with perhaps one exception.
#
# ![Nothing is kept](picture:nothing_kept)
#
# ![Half of the layers keep a little](picture:half_kept)
#
# In the second picture six backwards are shorter. What their layers keep makes the peak higher.
#
# ### The figures are those of GPT-3
#
# In 16 bits each number takes {{WEIGHT}} bytes. So the input of a layer takes 2sbh bytes, with s tokens, b sequences
# and width h. With everything inside, a layer takes {{sbh}}sbh, {{sbh // 2}} times the input. Without the scores of
# attention, which have a number for each pair of tokens, it is {{linear}}sbh, {{linear // 2}} times the input. If all
# {{GPT_LAYERS}} layers keep selectively, one sequence takes
# {{GPT_LAYERS * linear * GPT_SEQUENCE * GPT_HIDDEN / BILLION:.0f}} GB. That is still too much for one GPU: some
# layers have to be computed again, or other GPUs have to help. The scores are quick to make: they take s/(6h) of a
# forward, which is {{Fraction(GPT_SEQUENCE, 6 * GPT_HIDDEN)}} for s = {{GPT_SEQUENCE}} and h = {{GPT_HIDDEN}}
# (Korthikanti et al., arXiv 2205.05198).
#
# ### Across layers
#
# Now let the inside of a layer be small, and the model very deep. Then the inputs themselves are too much. Keep only
# every fourth of them, the *checkpoints*. In the backward pass, run the three layers after a checkpoint forward again,
# and go back through all four. That needs no new call:


# %%
from functools import partial


def across_layers(model: Model, every: int) -> Model:
    """Plain training that keeps one input for each ``every`` layers, and makes the others again."""
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
# The same layers without checkpoints, and with them. The triangle of activations has turned into a saw.
#
# ![Every input is kept](picture:triangle)
#
# ![Every fourth input is kept](picture:saw)
#
# Let there be L layers and a checkpoint every k layers. Then L/k checkpoints are in memory. While the backward pass
# is in the last k layers, memory also holds the k - 1 inputs after the last checkpoint, and a gradient. Together that
# is L/k + k. It is least where both are equal, at k = √L: then it is 2√L, here {{at_peak[3]}} instead of
# {{at_peak[0]}}. (Another k near √L can take as little, even if it does not divide L.) The price is L - L/k forwards.
# That is less than one forward pass, whatever k is:
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
    """The peak memory and the time of a run."""
    done = run(partial(across_layers, every=every), layers=layers, cost=wide)
    return done.memory, done.time


best = min(map(figures, range(1, layers + 1)))
memory, time = figures(guess)
praise = ": there is none better!" if (memory, time) == best else ""
print(f"every={guess}: {memory:,} elements, {time:g} ticks{praise}")

# %% [markdown] tags=["solution"]
# ### The last layer is free
#
# Memory is highest as the backward pass begins: all that was kept is still there. The first backward is that of the
# *last* layer, and it holds everything inside that layer in any case, kept or just made again. So keeping all of the
# last layer costs no memory at the peak, and saves a whole tick. If the lower layers keep selectively what the target
# allows, that is {{free.time}} ticks and {{free.memory}} elements. In 1F1B (puzzle 13) the last layer of the last stage
# is free in this way for every micro-batch.

# %% tags=["solution"]
from collections.abc import Callable, Collection

from drawing import Figure, compare
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
    """Each layer keeps all but what is quick to make again."""
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


def at_these_prices(fn: Callable[[Model], object], layers: int = 12, batches: int = 1) -> Run:
    """A run at the puzzle's size, or at another."""
    size = HIDDEN * LENGTH
    cost = Cost(
        backward=2,
        saved_elements=56 * size,
        saved_selective_elements=16 * size,
        recompute=1,
        recompute_selective=0.03,
    )
    return run(fn, layers=layers, batches=batches, cost=cost)


def three_ways_to_keep(static: bool = False) -> Figure:
    """One layer with nothing kept, a part, and all."""
    done = at_these_prices(three_ways, layers=1, batches=3)
    return draw(done, title="three ways to keep", static=static)


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
# ### Inputs that will be made again anyway
#
# There is one more thing to give away. If layer 4 keeps nothing, it goes forward again in the backward pass, and so
# makes the input of layer 5 a second time. Why keep that input, then? Throw it away, too. Before the backward of layer
# 5, let layer 4 go forward again with `keep="all"`: its own backward would have to do that anyway. It takes no more
# time, and saves an input at the peak. But now the insides of two layers are in memory at once. So do this only in the
# lower layers, when most activations have been freed: {{again.time}} ticks and {{again.memory}} elements.
#
# With one selective layer fewer it is {{fewer.time}} ticks and {{fewer.memory}} elements.


# %% tags=["solution"]
def without_inputs(model: Model, fewer: int) -> Model:
    """Every second one of the lower layers goes forward again to give the input of the next. Of all other layers,
    ``LAYERS // 2 - fewer`` keep selectively."""
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
# ### The layers after the last checkpoint
#
# With {{try_it}} layers, `every` = {{best[0]}}, {{best[1]}}, {{best[2]}} and {{best[3]}} all take {{least}}
# activations. The fastest of these is {{best[0]}}, which has the most checkpoints.
#
# The backward pass begins with the layers after the last checkpoint, and their inputs have only just been made. Keep
# these, and no forward is done twice there. With {{deep}} layers that saves {{saws[3].time - kept_again.time}} of the
# {{saws[3].time - saws[0].time}} extra ticks, in the same memory.


# %% tags=["solution"]
def last_segment_kept(model: Model, every: int = 4) -> Model:
    """As above, but what the layers after the last checkpoint have made stays."""
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
# ### Where real systems do this
#
# In PyTorch, `torch.utils.checkpoint` keeps the input of whatever you call through it, and runs it again in the
# backward pass. With a policy (`create_selective_checkpoint_contexts`) you say for each kind of operation whether its
# result is kept. In Megatron-LM, `--recompute-granularity selective` recomputes the core of attention in every layer,
# and `full` recomputes whole layers. With `--recompute-method uniform`, `--recompute-num-layers` says how many layers
# share a checkpoint. The large models of the paper by Korthikanti et al. would take {{dearer[0]}} to {{dearer[1]}}
# percent more time if everything was recomputed. Selective recomputation, with activations cut along the sequence as
# well, saved more than {{came_back}} percent of that time (arXiv 2205.05198).
#
# FlashAttention (arXiv 2205.14135) never stores the scores of attention: it makes them again in its backward. So
# attention now recomputes its own inner results, and people choose which of the other results to keep. The square root
# is from Chen et al., *Training Deep Nets with Sublinear Memory Cost* (arXiv 1604.06174).

# %% [markdown]
# ### On real GPUs
#
# {{MEGATRON_22B.size / BILLION:.0f}} billion parameters on one node of A100. Its {{priced.cost.tensor}} GPUs are one
# rank here, and share each layer. What a forward leaves behind, and how long it takes to make again, follow from the
# model's sizes. `recompute="full"` says that nothing inside a layer is kept unless the program keeps it.
#
# ![What a step takes](picture:priced)
#
# Half of the layers keep all but the scores. On this machine Megatron-LM took {{full:.2f}} s with nothing kept of any
# layer. With all but the scores of every layer, and sequence parallelism as here, it took {{present:.2f}} s (arXiv
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

nothing, selective, everything = map(
    at_these_prices, (keep_nothing, keep_selectively, keep_everything)
)
ours = at_these_prices(checkpointing)
three = at_these_prices(three_ways, layers=1, batches=3)
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
