# %% [markdown]
# # Puzzle 25: Context parallel
#
# Llama 3 405B learned to read {{tokens}} tokens at once (arXiv 2407.21783). For that one sequence, the inputs of its
# {{layers}} layers alone take {{left / BILLION:.0f}} GB, and a GPU has {{CARD}}. Can each rank keep a slice of the
# sequence from the first layer to the last?
#
# Almost everything in a layer treats each token by itself. Only in *attention* do tokens look at others: the *query* of
# a token looks at the *keys* and *values* of itself and of the tokens before it. So a layer is done in steps, which are
# methods of `model`:
#
# ![One layer of a whole sequence, forward and back](picture:in_six_steps)
#
# | call | ticks | what comes out |
# |---|---|---|
# | `project(layer, inp, weight)` | {{cost.project}} | `att`: queries; `kv`: keys and values |
# | `attend(layer, att, kv)` | {{cost.attend}} | `att`, with what these keys add |
# | `rest(layer, inp, weight, att)` | {{cost.rest}} | the layer's output |
# | `backward_rest(layer, inp, grad, weight, att)` | {{cost.backward_rest}} | `att_grad`: the gradient of the queries |
# | `backward_attend(layer, att_grad, kv)` | {{cost.backward_attend}} | `att_grad`, updated; `kv_grad`, the part from these queries |
# | `backward_project(layer, inp, grad, weight, att_grad, kv_grad)` | {{cost.backward_project}} | gradients of weight and input |
#
# All of them take slices as well: `inp.shard(i, n)` is slice `i` of `n`. Queries attend to each slice of the keys once,
# in any order. Keys of later tokens cost nothing.

# %%
from drawing import beside_target, draw, play
from lib import Model, RingCost, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 25,
    "name": "context_parallel",
    "title": "Context parallel",
    "size": {"ranks": 4, "layers": 8, "batches": 1},
    "other_sizes": "one_for_all",
    "target": {"time": 47.0, "memory": 8585216},
    "star": {"time": 32.0, "memory": 8585216},
    "frontier": [
        {"time": 31.63, "memory": 8519680, "by": "zigzag_and_ahead"},
        {"time": 32.255, "memory": 8192000, "by": "context_parallel_in_32_255"},
        {"time": 32.88, "memory": 7864320, "by": "context_parallel_in_32_88"},
        {"time": 33.505, "memory": 7536640, "by": "context_parallel_in_33_505"},
        {"time": 34.13, "memory": 7208960, "by": "context_parallel_in_34_13"},
        {"time": 34.755, "memory": 6881280, "by": "context_parallel_in_34_755"},
        {"time": 35.38, "memory": 6553600, "by": "context_parallel_in_35_38"},
        {"time": 36.335, "memory": 6422528, "by": "context_parallel_in_36_335"},
        {"time": 36.665, "memory": 6356992, "by": "context_parallel_in_36_665"},
        {"time": 37.2, "memory": 6291456, "by": "context_parallel_in_37_2"},
        {"time": 37.53, "memory": 6225920, "by": "context_parallel_in_37_53"},
        {"time": 38.065, "memory": 6160384, "by": "context_parallel_in_38_065"},
    ],
    "cost": "long_context",
    "layout": "whole",
    "ideas": ["weights_stay", "keys_by_collectives", "each_slice_on_one_rank"],
    "words": ["project", "sliced=True"],
    "begins_with": "ddp",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 60,
    "star_hint": "Which rank works all the time, and which one waits for it at every gather? Each rank could have "
    "two slices: which two, so that all ranks have the same work? And which gathers could begin before they are "
    "needed?",
    "hints": [
        "Start from data parallel, in which every rank has all weights and all gradients are summed. Here the "
        "ranks share one micro-batch: each takes its slice of the input, and computes every layer of that. "
        "Which of the six steps needs something of other ranks, and which gradients do other ranks add to?",
        "`whole = await model.allgather(kv, layer)` comes before `attend`, and again before `backward_attend`: do "
        "not keep `whole`, which takes up much memory, but store `att` and `kv` of your own slice for the backward. "
        "After `backward_attend` comes `kv_grad = await model.scatterreduce(kv_grad, layer)`. Then "
        "`backward_project` gives what your slice adds to the gradient of the weight, and `model.allreduce` adds it "
        "up. Which of these results does nobody wait for?",
        "The sum of a weight's gradient takes long, and nobody waits for it but the update: start it, go on with the layer below, "
        "and update later, as in data parallel. Then look at the forwards of attention: the last rank sees all "
        "keys, and the first one next to none. If a rank had one slice from the front and one from the back, "
        "`inp.shard(i, n).combine(inp.shard(j, n))`, which pairs would give all ranks the same work?",
    ],
}

# %% [markdown]
# ## Your task
#
# Train {{ours.layers}} layers on one micro-batch. Every rank begins and ends with all weights and optimizer states,
# and makes all updates itself. Which slices a rank has is up to you.
#
# - {{ideas}}
# - Collectives take `kv` and `kv_grad`, too. `model.loss(out, sliced=True)` takes a slice.
# - To gather `kv` takes {{gather.length}} ticks, to sum a weight's gradient {{weight_sum.length}}.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def context_parallel(model: Model) -> Model:
    """Each rank trains slices of one sequence."""
    ### BEGIN SOLUTION
    acts, grads = model.activations, model.grad_activations
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    acts[0] = model.get_activation([0]).shard(model.rank, model.RANKS)
    for layer in range(model.LAYERS):
        inp, weight = acts[layer], model.weights[layer]
        acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)
        whole = await model.allgather(acts["kv", layer], layer)
        acts["att", layer] = model.attend(layer, acts["att", layer], whole)
        acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        inp, weight = acts[layer], model.weights[layer]
        att = acts.pop(("att", layer))
        grads["att"] = model.backward_rest(layer, inp, grads["out"], weight, att)
        whole = await model.allgather(acts.pop(("kv", layer)), layer)
        grads["att"], kv_grad = model.backward_attend(layer, grads["att"], whole)
        grads["kv"] = await model.scatterreduce(kv_grad, layer)
        of_weight, grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
        sums[layer] = model.allreduce(of_weight, layer)
    del grads["out"]

    for layer in reversed(range(model.LAYERS)):
        grad = await sums[layer]
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
long_context = RingCost(
    forward=4,
    project=0.5,
    attend=2,
    rest=1.5,
    backward=8,
    backward_rest=1.5,
    backward_attend=4,
    backward_project=2.5,
    activation_elements=524_288,
    keys_values_elements=262_144,
    attended_elements=1_048_576,
    latency=0.01,
    bandwidth=655_360,
)
draw(run(context_parallel, ranks=4, layers=8, batches=1, cost=long_context))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(context_parallel)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. See which rank never waits, and which calls could be on
# their way earlier ([puzzle 12](p12_prefetch.ipynb) shows how). To watch your own run, with the line that each rank
# is at:

# %%
play(run(context_parallel, ranks=4, layers=8, batches=1, cost=long_context))

# %% [markdown]
# ### What it costs
#
# Every rank keeps a share of the input of each layer, of its queries and of its keys and values. One rank with the
# whole sequence would keep {{alone.memory}} elements, and take {{alone.time}} ticks. Here four ranks take
# {{ours.time}}. That is more than a quarter, because there are gathers and sums to wait for, and the last rank has
# more to do than the others.
#
# Keys and values are gathered twice, forward and back. A program that keeps what was gathered for the forward takes
# {{kept.time}} ticks, and {{kept.memory}} elements, more than the target. The gather is so cheap because in this model
# {{group:word}} *heads* (parts) of the queries share one head of keys and values. In puzzle 26 each has its own.
#
# ### Why not in order
#
# Cut a sequence for n ranks in order, and the last rank sees every key. Count the pairs of a query and a key that it
# sees. The last rank has (2n - 1)/n² of them, and the first 1/n²: {{last_share:word}} and {{first_share:word}} for
# four ranks. At each gather the first waits for the last.
#
# Instead cut it into 2n slices, and give each rank one from the front and one from the back: slice r and slice 2n - 1
# - r. Where one slice sees few keys, the other sees many, so all ranks have the same work. This order is called
#   *zigzag*. `inp.shard(i, 2 * n).combine(inp.shard(j, 2 * n))` makes one tensor of two slices. In zigzag the same
#   program takes {{zigzag.time}} ticks instead of {{ours.time}}.
#
# ![Who attends to what, in order and in zigzag](picture:both_orders)

# %% [markdown] tags=["solution"]
# ### Faster: zigzag, and gathered ahead
#
# In zigzag all ranks are equally fast, and what is left is waiting. While the gradient of one layer's keys and values
# is on its way, a rank can gather the keys and values of the layer below, and update the layer above, since its sum has
# arrived. That takes {{ahead.time}} ticks and {{ahead.memory}} elements. What was gathered for the forward of the last
# layer is kept, since its backward is next.
#
# Queries, keys and values can all be made again from the input of the layer. `project` comes once more, early enough to
# hide the gather behind the layer above, and then `attend`. `inputs_kept` keeps all three for the last layer, and for
# as many layers below it as you say. One layer fewer costs {{again.time - more.time}} ticks and saves
# {{more.memory - again.memory}} elements. With one layer below the last it takes {{again.time}} ticks and
# {{again.memory}} elements, far fewer than the star. With none, and with gathers and sums one after the other near the
# top (its arguments `gathers` and `waits`), {{least.memory}} elements are enough, for {{least.time}} ticks.

# %% tags=["solution"]
from collections.abc import Sequence
from functools import partial
from typing import Any

from drawing import Figure, draw_attention


async def zigzag_and_ahead(model: Model) -> Model:
    """In zigzag; keys and values are gathered a layer ahead, and layers updated while their gradients travel."""
    acts, grads = model.activations, model.grad_activations
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    n, r = model.RANKS, model.rank
    inp = model.get_activation([0])
    acts[0] = inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        inp, weight = acts[layer], model.weights[layer]
        acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)
        acts["whole"] = await model.allgather(acts["kv", layer], layer)
        acts["att", layer] = model.attend(layer, acts["att", layer], acts["whole"])
        acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
    del acts["kv", model.LAYERS - 1]

    sums, gather = {}, None

    async def update(layer: int) -> None:
        grad = await sums.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    for layer in reversed(range(model.LAYERS)):
        inp, weight = acts[layer], model.weights[layer]
        att = acts.pop(("att", layer))
        grads["att"] = model.backward_rest(layer, inp, grads["out"], weight, att)
        whole = await gather if gather else acts.pop("whole")
        grads["att"], kv_grad = model.backward_attend(layer, grads["att"], whole)
        scatter = model.scatterreduce(kv_grad, layer)
        if layer + 1 in sums:
            await update(layer + 1)
        if layer > 0:
            gather = model.allgather(acts.pop(("kv", layer - 1)), layer - 1)
        grads["kv"] = await scatter
        of_weight, grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
        sums[layer] = model.allreduce(of_weight, layer)
    del grads["out"]
    await update(0)
    return model


async def sliced(model: Model, order: str, keep: bool) -> Model:
    """The answer above, with slices ``"in order"`` or in ``"zigzag"``; ``keep``: what is gathered once is kept."""
    acts, grads = model.activations, model.grad_activations
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    n, r = model.RANKS, model.rank
    inp = model.get_activation([0])
    acts[0] = inp.shard(r, n)
    if order == "zigzag":
        acts[0] = inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        inp, weight = acts[layer], model.weights[layer]
        acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)
        whole = await model.allgather(acts["kv", layer], layer)
        if keep:
            acts["kv", layer] = whole
        acts["att", layer] = model.attend(layer, acts["att", layer], whole)
        acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        inp, weight = acts[layer], model.weights[layer]
        att = acts.pop(("att", layer))
        grads["att"] = model.backward_rest(layer, inp, grads["out"], weight, att)
        whole = acts.pop(("kv", layer))
        if not keep:
            whole = await model.allgather(whole, layer)
        grads["att"], kv_grad = model.backward_attend(layer, grads["att"], whole)
        grads["kv"] = await model.scatterreduce(kv_grad, layer)
        of_weight, grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
        sums[layer] = model.allreduce(of_weight, layer)
    del grads["out"]

    for layer in reversed(range(model.LAYERS)):
        grad = await sums[layer]
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


whole_ones_kept = partial(sliced, order="in order", keep=True)
plain_zigzag = partial(sliced, order="zigzag", keep=False)


async def inputs_kept(model: Model, layers: int, gathers: str = "k", waits: int = 0) -> Model:
    """In zigzag. Only the input of a layer is kept, except in the last layer and in ``layers`` layers below it. What is
    not kept is computed again before the backward.

    ``gathers`` says, by a letter for each layer from the top, when the keys and values of the layer below are gathered:
    while the gradient of keys is on its way (``k``), after the layer's last backward (``a``), or after the sum of its
    weight's gradient is called (``s``). The last letter is for all other layers. The first ``waits`` of these sums are
    awaited at once."""
    acts, grads, sums, on_its_way = model.activations, model.grad_activations, {}, {}
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    n, r, top = model.RANKS, model.rank, model.LAYERS - 1
    kept = range(max(top - layers, 0), top)
    inp = model.get_activation([0])
    acts[0] = inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        weight = model.weights[layer]
        acts["att"], kv = model.project(layer, acts[layer], weight)
        if layer in kept:
            acts["kv", layer] = kv
        acts["whole"] = await model.allgather(kv, layer)
        acts["att", layer] = model.attend(layer, acts.pop("att"), acts["whole"])
        if layer < top:
            del acts["whole"]
        acts[layer + 1] = model.rest(layer, acts[layer], weight, acts["att", layer])
        if layer < top and layer not in kept:
            del acts["att", layer]
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)

    def gather(layer: int) -> Any:
        if layer in kept:
            return model.allgather(acts.pop(("kv", layer)), layer)
        acts["att"], kv = model.project(layer, acts[layer], model.weights[layer])
        return model.allgather(kv, layer)

    async def update(layer: int) -> None:
        grad = await sums.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    for turn, layer in enumerate(reversed(range(model.LAYERS))):
        when = gathers[min(turn, len(gathers) - 1)] if layer else "never"
        weight = model.weights[layer]
        if layer < top and layer not in kept:
            acts["whole"] = await on_its_way.pop(layer)
            acts["att", layer] = model.attend(layer, acts.pop("att"), acts["whole"])
        grads["att"] = model.backward_rest(
            layer, acts[layer], grads["out"], weight, acts.pop(("att", layer))
        )
        if layer in kept:
            acts["whole"] = await on_its_way.pop(layer)
        grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts.pop("whole"))
        scatter = model.scatterreduce(kv_grad, layer)
        del kv_grad
        if layer + 1 in sums:
            await update(layer + 1)
        if when == "k":
            on_its_way[layer - 1] = gather(layer - 1)
        grads["kv"] = await scatter
        model.grad_weights[layer], grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
        if when == "a":
            on_its_way[layer - 1] = gather(layer - 1)
        sums[layer] = model.allreduce(model.grad_weights.pop(layer), layer)
        if when == "s":
            on_its_way[layer - 1] = gather(layer - 1)
        if turn < waits:
            await update(layer)
    del grads["out"]
    for layer in [*sums]:
        await update(layer)
    return model


context_parallel_in_32_255 = partial(inputs_kept, layers=6)
context_parallel_in_32_88 = partial(inputs_kept, layers=5)
context_parallel_in_33_505 = partial(inputs_kept, layers=4)
context_parallel_in_34_13 = partial(inputs_kept, layers=3)
context_parallel_in_34_755 = partial(inputs_kept, layers=2)
context_parallel_in_35_38 = partial(inputs_kept, layers=1)
context_parallel_in_36_335 = partial(inputs_kept, layers=0, gathers="ak")
context_parallel_in_36_665 = partial(inputs_kept, layers=0, gathers="aak")
context_parallel_in_37_2 = partial(inputs_kept, layers=0, gathers="sak", waits=1)
context_parallel_in_37_53 = partial(inputs_kept, layers=0, gathers="saak", waits=1)
context_parallel_in_38_065 = partial(inputs_kept, layers=0, gathers="ssak", waits=2)


async def zigzag_with_sums_behind(model: Model) -> Model:
    """For R11 of the repairs, in its memory: each gradient of keys and values is awaited at once, and the sum of a
    weight's gradient is called only after the next layer's."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    acts, grads, n, r = model.activations, model.grad_activations, model.RANKS, model.rank
    inp, top = model.get_activation([0]), model.LAYERS - 1
    acts[0] = inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        inp, weight = acts[layer], model.weights[layer]
        acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)
        acts["whole"] = await model.allgather(acts["kv", layer], layer)
        acts["att", layer] = model.attend(layer, acts["att", layer], acts["whole"])
        acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
    del acts["kv", top]

    async def update(layer: int, grad: Any) -> None:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, await grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    def summed(layer: int) -> Any:
        return model.allreduce(model.grad_weights.pop(layer), layer)

    ahead, call = None, None
    for layer in reversed(range(model.LAYERS)):
        inp, weight, att = acts[layer], model.weights[layer], acts.pop(("att", layer))
        grads["att"] = model.backward_rest(layer, inp, grads["out"], weight, att)
        whole = await ahead if ahead else acts.pop("whole")
        grads["att"], kv_grad = model.backward_attend(layer, grads["att"], whole)
        grads["kv"] = await model.scatterreduce(kv_grad, layer)
        del whole, kv_grad
        if layer < top:
            call = summed(layer + 1)
        model.grad_weights[layer], grads["out"] = model.backward_project(
            layer, acts.pop(layer), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
        if layer > 0:
            ahead = model.allgather(acts.pop(("kv", layer - 1)), layer - 1)
        if layer == 0:
            del grads["out"]
            last = summed(0)
        if layer < top:
            await update(layer + 1, call)
    await update(0, last)
    return model


def both_orders(static: bool = False) -> Figure:
    """Who attends to what in the first layer."""
    in_order, in_zigzag = (
        run(fn, ranks=4, layers=8, batches=1, cost=long_context)
        for fn in (context_parallel, plain_zigzag)
    )
    return draw_attention(in_order, in_zigzag, titles=["in order", "zigzag"], static=static)


def there_and_back(model: Model) -> Model:
    """One layer of a whole sequence, forward and back, in six steps."""
    acts, grads, weight = model.activations, model.grad_activations, model.load_weights(0)[0]
    model.weights[0] = weight
    acts["inp"] = model.get_activation([0])
    acts["att"], acts["kv"] = model.project(0, acts["inp"], weight)
    acts["att"] = model.attend(0, acts["att"], acts["kv"])
    grads["out"] = model.loss(model.rest(0, acts["inp"], weight, acts["att"]))

    grads["att"] = model.backward_rest(0, acts["inp"], grads["out"], weight, acts.pop("att"))
    grads["att"], grads["kv"] = model.backward_attend(0, grads["att"], acts.pop("kv"))
    model.grad_weights[0], grads["inp"] = model.backward_project(
        0, acts.pop("inp"), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
    )
    return model


def in_six_steps(static: bool = False) -> Figure:
    """One layer of a whole sequence, forward and back, in six steps."""
    one = run(there_and_back, ranks=1, layers=1, batches=1, cost=long_context)
    return draw(one, title="one layer in six steps", static=static)


draw(run(zigzag_and_ahead, ranks=4, layers=8, batches=1, cost=long_context))

# %% [markdown]
# ### Context and other axes
#
# With a mesh, replicas and context are two axes. Only the ranks along `context` meet for keys and values. For the
# gradients of weights the two axes are like one: each micro-batch and each slice adds its part to the same sum. So a
# collective takes several axes, too: `axis=("replica", "context")`. In practice FSDP shards over both, so that no
# weight is there twice, however long the context. (The run at real prices, below, does not: there each rank of a
# context holds its own copy.)

# %% [markdown] tags=["solution"]
# ### Three axes at once
#
# Here tensor parallel is the third axis. Even layers are computed in slices. Odd ones are divided as in puzzle 17: each
# rank computes with its shard of the weight. Both are divided along context and tensor at once. Every weight and every
# state is sharded over all ranks. The shards of an odd layer go along `("context", "tensor")`, and each of them is cut
# once more along `replica`. The axes may have any lengths, in any order. Try other meshes.

# %% tags=["solution"]
Axes = str | Sequence[str]  # one name, or several


def pieces(model: Model, axes: Axes) -> tuple[int, int]:
    """Which piece, of how many, a rank has of what is divided along these axes."""
    return model.axis_index(axes), model.axis_size(axes)


async def forward_of_slices(model: Model, layer: int, shards: Axes, context: Axes) -> None:
    """Compute a layer in three steps, for the slices of a rank."""
    acts = model.activations
    model.weights["whole"] = await model.allgather(model.weights[layer], layer, axis=shards)
    acts["att", layer], acts["kv", layer] = model.project(
        layer, acts[layer], model.weights["whole"]
    )
    acts["all"] = await model.allgather(acts["kv", layer], layer, axis=context)
    acts["att", layer] = model.attend(layer, acts["att", layer], acts.pop("all"))
    acts[layer + 1] = model.rest(
        layer, acts[layer], model.weights.pop("whole"), acts["att", layer]
    )


async def backward_of_slices(model: Model, layer: int, shards: Axes, context: Axes) -> Any:
    """Go back through a layer in three steps. Return the gradient of the weight, the part from these slices."""
    acts, grads = model.activations, model.grad_activations
    model.weights["whole"] = await model.allgather(model.weights[layer], layer, axis=shards)
    acts["all"] = await model.allgather(acts.pop(("kv", layer)), layer, axis=context)
    whole = model.weights["whole"]
    grads["att"] = model.backward_rest(
        layer, acts[layer], grads["out"], whole, acts.pop(("att", layer))
    )
    grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts.pop("all"))
    grads["kv"] = await model.scatterreduce(kv_grad, layer, axis=context)
    whole = model.weights.pop("whole")
    of_weight, grads["out"] = model.backward_project(
        layer, acts.pop(layer), grads["out"], whole, grads.pop("att"), grads.pop("kv")
    )
    return of_weight


async def replica_fsdp_context_tensor(model: Model) -> Model:
    """Three axes: even layers are divided by slices of the sequence, odd ones by their units, both along context and
    tensor at once. Along replica every weight is sharded once more."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    group, everyone = ("context", "tensor"), ("replica", "context", "tensor")
    for layer in range(model.LAYERS):
        piece = pieces(model, everyone)
        if layer % 2:  # units are divided along the group first, and then along replica
            (unit, units), (copy, copies) = pieces(model, group), pieces(model, "replica")
            piece = unit * copies + copy, units * copies
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)
    for batch in range(model.axis_index("replica"), model.BATCHES, model.axis_size("replica")):
        acts[0] = model.get_activation([batch]).shard(*pieces(model, group))
        for layer in range(model.LAYERS):
            if layer % 2 == 0:
                await forward_of_slices(model, layer, everyone, group)
                continue
            model.weights["own"] = await model.allgather(
                model.weights[layer], layer, axis="replica"
            )
            acts["whole"] = await model.allgather(acts[layer], layer, axis=group)
            acts["sum"] = model.forward(
                layer, acts.pop("whole"), model.weights.pop("own"), partial=True
            )
            acts[layer + 1] = await model.scatterreduce(acts.pop("sum"), layer + 1, axis=group)
        grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
        for layer in reversed(range(model.LAYERS)):
            if layer % 2 == 0:
                of_weight = await backward_of_slices(model, layer, everyone, group)
                grads["kept"], axis = grads.pop("out"), everyone
            else:
                model.weights["own"] = await model.allgather(
                    model.weights[layer], layer, axis="replica"
                )
                acts["whole"] = await model.allgather(acts.pop(layer), layer, axis=group)
                grads["all"] = await model.allgather(grads.pop("out"), layer, axis=group)
                of_weight, back = model.backward(
                    layer,
                    acts.pop("whole"),
                    grads.pop("all"),
                    model.weights.pop("own"),
                    partial=True,
                )
                grads["sum"] = back
                sums["piece"] = of_weight
                grads["kept"] = await model.scatterreduce(
                    grads.pop("sum"), layer - 1, axis=group
                )
                of_weight, axis = sums.pop("piece"), "replica"
            of_weight = await model.scatterreduce(of_weight, layer, axis=axis)
            sums[layer] = sums[layer] + of_weight if layer in sums else of_weight
            grads["out"] = grads.pop("kept")
        del grads["out"]
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, sums.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


cube = {"replica": 2, "context": 2, "tensor": 2}
three_axes = run(
    replica_fsdp_context_tensor, ranks=8, layers=4, batches=4, mesh=cube, node_size=4
)
Model.check(three_axes.models)
draw(three_axes, memory=False)

# %% [markdown]
# ### Where real systems do this
#
# Llama 3 405B was trained on such sequences with {{ways}}-way context parallelism. Its mesh of {{gpus}} GPUs was
# {{tensor}} (tensor) x {{ways}} (context) x {{stages}} (stages) x {{replicas}} (replicas), by arXiv 2407.21783. It
# gathers keys and values, as you did, and cuts the sequence into twice as many slices as ranks, in zigzag. The paper
# gives two reasons for the gather. Any *mask* is easy, such as one that keeps documents apart. (A mask says what a
# token may look at.) And with {{kv_heads}} heads of keys for {{heads}} of queries there is little to gather. The work
# of attention grows with the square of the sequence, and a gather only with its length: so with long sequences, the
# gather hardly counts.
#
# Megatron-LM has `--context-parallel-size`, and PyTorch `context_parallel` in
# `torch.distributed.tensor.experimental`, with the gather or a ring.

# %% [markdown]
# ### On real GPUs
#
# This is a stage of that model on {{ways}} ranks, each of {{tensor}} GPUs.
#
# ![What a step takes](picture:priced)
#
# The slices are in order here, so the last rank computes attention almost all of the time, and the others wait. In
# zigzag they would not.

# %% tags=["priced"]
from dataclasses import replace

from lib.real import H100_DGX, LLAMA_3_405B_LONG, report

stage = replace(LLAMA_3_405B_LONG, layers=8, name="A stage of Llama 3 405B")
priced = run(
    context_parallel,
    ranks=16,
    layers=8,
    cost=H100_DGX.cost(stage, tensor=8, sequence_parallel=True),
)
print(report(priced))

# %% tags=["figures"]
from lib.course.specs import COSTS
from lib.real import LLAMA_3_405B
from lib.record.causal import ALL, share

from solutions.p01_grad_accum import grad_accum

cost = COSTS["long_context"]
assert cost == long_context
size: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 1, "cost": cost}
ours, ahead = run(context_parallel, **size), run(zigzag_and_ahead, **size)
more, again = run(context_parallel_in_34_755, **size), run(context_parallel_in_35_38, **size)
least = run(context_parallel_in_38_065, **size)
one_layer = run(there_and_back, ranks=1, layers=1, batches=1, cost=cost)
kept, zigzag = run(whole_ones_kept, **size), run(plain_zigzag, **size)
alone = run(grad_accum, ranks=1, layers=8, batches=1, cost=cost)
gather = next(event for event in ours.events if event.kind == "allgather")
weight_sum = next(event for event in ours.events if event.kind == "allreduce")
first_share, last_share = (share((frozenset({one}), 4), ALL) for one in (0, 3))
group = cost.attended_elements // cost.keys_values_elements
tokens = published(131_072, "arXiv 2407.21783")
layers, hidden = LLAMA_3_405B.layers, LLAMA_3_405B.hidden
left = 2 * tokens * hidden * layers
ways, tensor, stages, replicas = (
    published(each, "arXiv 2407.21783") for each in (16, 8, 16, 8)
)
gpus = ways * tensor * stages * replicas
heads, kv_heads = LLAMA_3_405B.heads, LLAMA_3_405B.kv_heads
