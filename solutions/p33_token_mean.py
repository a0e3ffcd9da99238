# %% [markdown]
# # Puzzle 33: A mean of means
#
# The texts of a batch are not equally long. Here micro-batches have so many tokens:
#
# | micro-batch | {{" | ".join(map(str, range(batches)))}} |
# |---|{{"---|" * batches}}
# | tokens | {{" | ".join(map(str, tokens))}} |
#
# The gradient of a micro-batch is that of the *mean* over its own tokens. Add those of all {{batches}} micro-batches,
# divide by {{batches}}, and you have a mean of means. In it a token of micro-batch 3 counts
# {{tokens[0] // tokens[3]:word}} times as much as one of micro-batch 0.
#
# ![Puzzle 2's answer with these tokens](picture:mean_of_means)
#
# In real training nothing fails: the loss goes down, a little differently for every cut of the batch.
#
# **How does every token of the batch count the same?**
#
# ```python
# n = model.tokens(batch)  # takes no time: the tokens of a micro-batch that this rank has taken
# grad = grad * n  # counts n times as much; grad / n divides
# await model.pass_to(other, n)  # a number can be sent, too (this takes time)
# ```

# %%
from drawing import beside_target, draw
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 33,
    "name": "token_mean",
    "title": "A mean of means",
    "size": {
        "ranks": 4,
        "layers": 4,
        "batches": 8,
        "tokens": [40, 10, 30, 5, 25, 20, 15, 35],
    },
    "other_sizes": "two_each",
    "target": {"time": 20.4, "memory": 3801088},
    "star": {"time": 18.0, "memory": 3211264},
    "frontier": [
        {"time": 18.0, "memory": 3211264, "by": "token_mean_in_pieces"},
    ],
    "layout": "whole",
    "ideas": ["as_many_each", "weights_stay"],
    "begins_with": "ddp",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "medium",
    "minutes": 30,
    "star_hint": "When does a rank know its own tokens, and when is the total needed? What else could be on its way "
    "while the ranks compute? And how much of a sum does a rank have to keep while it trains its second micro-batch?",
    "hints": [
        "Write the gradient of the mean over all tokens as a sum over micro-batches. In it the gradient that "
        "`backward` gives stands for a mean over n tokens. What has to stand before it, so that each token counts "
        "once? And by what is the whole sum divided?",
        "Multiply each gradient by the tokens of its micro-batch right after `backward`, and add up. So memory has one "
        "sum for each layer, and ranks wait for one all-reduce of it. The divisor comes last: it is the same for all. "
        "It is the sum of numbers that are on different ranks: how does each rank get all of them? (To divide by the "
        "own tokens and by the number of ranks is another mean of means.)",
        "`grad = grad * model.tokens(batch)` after each backward. Let `total` begin as the tokens of the rank's own "
        "micro-batches, and send them round: `model.RANKS - 1` times, `send = model.pass_to(right, n)`, `n = await "
        "model.receive(left)`, `total += n`, `await send`. Then for each layer all-reduce, divide by `total`, and "
        "update. For the star, send these numbers as soon as the second micro-batch is taken, and let reduce-scatters "
        "run beside the next backward, as in puzzle 10. After the last one each piece of a sum is divided, and "
        "gathered while another layer is updated.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train as in puzzle 2, with two micro-batches for each rank. Each update takes the gradient of the mean over all tokens:
# in it a micro-batch counts by its tokens out of all {{sum(tokens)}}.
#
# - Every rank begins and ends with all weights and all optimizer states.
# - {{ideas}}
# - Other sizes have other numbers of tokens. A rank knows those of its own micro-batches only.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def token_mean(model: Model) -> Model:
    """Data parallel, in which every token counts the same."""
    ### BEGIN SOLUTION
    n, r, total = model.RANKS, model.rank, 0
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    for batch in range(r, model.BATCHES, n):
        model.activations[0] = model.get_activation([batch])
        tokens = model.tokens(batch)
        total += tokens
        for layer in range(model.LAYERS):
            inp = model.activations[layer]
            model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad * tokens if so_far else grad * tokens
        del model.grad_activations[0]

    passed_on = total
    for _ in range(n - 1):  # the numbers of all ranks come round
        send = model.pass_to((r + 1) % n, passed_on)
        passed_on = await model.receive((r - 1) % n)
        total += passed_on
        await send

    for layer in reversed(range(model.LAYERS)):
        grad = await model.allreduce(model.grad_weights.pop(layer), layer) / total
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
tokens = (40, 10, 30, 5, 25, 20, 15, 35)
draw(run(token_mean, ranks=4, layers=4, batches=8, tokens=tokens))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(token_mean)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. A rank computes for {{work + updates}} ticks. So it never
# waits, and it keeps less. [Puzzle 12](p12_prefetch.ipynb) shows how to start now and fetch later.
#
# ### Nobody noticed
#
# Large training libraries took a mean of means for years, and still their models learned. In October 2024 somebody
# compared one large batch with many small ones, and the losses were apart. Within days Hugging Face's Trainer was
# repaired (transformers PR 34191), and torchtune as well (PR 1875, in honor of the day on which "the ML community first
# discovered" that two such means do not add up to one). Other libraries made the same repair as late as 2026 (mlx-lm
# PR 1544).
#
# Your program multiplies by the tokens of a micro-batch, and divides once, at the end. Torchtune does the same (PR 1917):
# each loss is a sum over tokens, one all-reduce adds up how many there are, and gradients are scaled right before the
# optimizer's step. Hugging Face counts the tokens of a whole step before its first forward, and hands
# the number (`num_items_in_batch`) to the loss. Then nothing is multiplied, and nothing has to wait for the total.
#
# There is one more trap with PyTorch. `DistributedDataParallel` and `fully_shard` take the *mean* over the ranks. So a
# sum over tokens has to be multiplied by the number of ranks first, or by `world_size / total` at the end.
#
# Is a mean over all tokens right, then? It lets long texts count more than short ones. Some people want that every text
# counts the same. Both can be argued for. A mean that depends on how the batch was cut cannot.

# %% [markdown] tags=["solution"]
# ### Always at work
#
# `token_mean_in_pieces` sends the counts while it computes the second micro-batch. It keeps a {{ranks}}th of each
# summed gradient, as in puzzle 10: {{small.memory}} elements, and {{small.time}} ticks. A rank trains
# {{batches // ranks:word}} micro-batches in {{layers}} layers, forwards and backwards, and makes {{layers}} updates:
# {{work}} + {{updates}} = {{work + updates}} ticks. So nothing is faster that shares the work evenly.
#
# ![That program: sums and gathers run beside the backward passes and the updates](picture:in_pieces)
#
# `token_mean_by_layers` needs no sums to be added up. It makes both forwards first, and then both backwards of a layer,
# one after the other: {{by_layers.time}} ticks, {{by_layers.memory}} elements. The activations of both micro-batches
# have to be kept, but no gradient waits for the second micro-batch.

# %% tags=["solution"]
from drawing import Figure


async def token_mean_in_pieces(model: Model) -> Model:
    """Data parallel by tokens, in which communication always runs beside work. A rank keeps its piece of each sum."""
    n, r, grads, top = model.RANKS, model.rank, model.grad_weights, model.LAYERS - 1
    mine, others, total = range(r, model.BATCHES, n), [o for o in range(n) if o != r], 0
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    sums, ready, whole = {}, [], {}  # on their way; pieces of the total; gathers on their way

    async def take(layer: int, last: bool) -> None:
        piece = await sums.pop(layer)
        grads[layer] = grads[layer] + piece if layer in grads else piece
        if last:
            ready.append(layer)

    def gather() -> None:
        for layer in ready[:1]:
            whole[layer] = model.allgather(grads.pop(layer) / total, layer)
            ready.remove(layer)

    for batch in mine:
        last = batch == mine[-1]
        model.activations[0] = model.get_activation([batch])
        tokens = model.tokens(batch)
        total += tokens
        if last:
            sends = [model.pass_to(other, total) for other in others]
            counts = [model.receive(other) for other in others]
        for layer in range(model.LAYERS):
            inp = model.activations[layer]
            model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
            if sums:
                await take(0, False)
        if last:
            total += sum([await count for count in counts])
            for send in sends:
                await send
        model.grad_activations["now"] = model.loss(model.activations.pop(model.LAYERS))

        for layer in reversed(range(model.LAYERS)):
            if last and layer == 0:
                gather()
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop("now")
            grads["new"], model.grad_activations["now"] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            grads["new"] = grads.pop("new") * tokens
            if layer < top:
                await take(layer + 1, last)
            if last and layer == 0:
                gather()
            sums[layer] = model.scatterreduce(grads.pop("new"), layer)
        model.grad_activations.clear()

    for layer in reversed(range(model.LAYERS)):
        while layer not in whole:
            if not ready:
                await take(max(sums), True)
            gather()
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, await whole.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
        if not ready and sums:
            await take(max(sums), True)
        gather()
    return model


async def token_mean_by_layers(model: Model) -> Model:
    """Data parallel by tokens: both forwards first, then layer by layer both backwards, a sum, and the update."""
    mine = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    for mb in mine:
        model.activations[0, mb] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            inp = model.activations[layer, mb]
            model.activations[layer + 1, mb] = model.forward(layer, inp, model.weights[layer])
        model.grad_activations[mb] = model.loss(model.activations.pop((model.LAYERS, mb)))

    own = sum(model.tokens(mb) for mb in mine)
    others = [rank for rank in range(model.RANKS) if rank != model.rank]
    sends = [model.pass_to(rank, own) for rank in others]
    total = own + sum([await model.receive(rank) for rank in others])
    for send in sends:
        await send

    for layer in reversed(range(model.LAYERS)):
        for mb in mine:
            inp, grad_out = model.activations.pop((layer, mb)), model.grad_activations.pop(mb)
            grad, model.grad_activations[mb] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            grad = grad * (model.tokens(mb) / total)
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


sizes = {"ranks": 4, "layers": 4, "batches": 8, "tokens": (40, 10, 30, 5, 25, 20, 15, 35)}


def in_pieces(static: bool = False) -> Figure:
    """The star."""
    return draw(run(token_mean_in_pieces, **sizes), title="never waiting", static=static)


async def as_puzzle_2(model: Model) -> Model:
    """Data parallel, with a sum of gradients in which nothing counts tokens."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    for batch in range(model.rank, model.BATCHES, model.RANKS):
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            inp = model.activations[layer]
            model.activations[layer + 1] = model.forward(layer, inp, model.weights[layer])
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad = await model.allreduce(model.grad_weights.pop(layer), layer) / model.BATCHES
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def mean_of_means(static: bool = False) -> Figure:
    """Puzzle 2's answer, which nothing stops."""
    done = run(as_puzzle_2, **sizes, quiet=True)
    return draw(done, title="a mean of means", memory=False, static=static)


# %% [markdown]
# ### On real GPUs
#
# The model and the GPUs of puzzle 19, with two micro-batches for each GPU. All are padded to {{max(counted)}} tokens,
# so they take equally long. But in one of them all tokens count, and in another {{min(counted)}}.
#
# ![What a step takes](picture:priced)
#
# The counts come round to all GPUs in {{round_trip * 1000:.2f}} ms of that. The star's program takes
# {{never_waits.seconds:.3f}} s, since its sums run beside the backward passes.

# %% tags=["priced"]
from lib.real import A100_40_P4D, GPT_2_XL, report

counted = (1024, 256, 768, 128, 640, 512, 384, 896) * 4  # tokens that are no padding
priced = run(
    token_mean,
    ranks=16,
    layers=48,
    batches=32,
    tokens=counted,
    cost=A100_40_P4D.cost(GPT_2_XL),
)
print(report(priced))

# %% tags=["figures"]
tokens = size["tokens"]
work = batches // ranks * layers * (cost.forward + cost.backward)
updates = layers * cost.update
small, by_layers = run(token_mean_in_pieces, **size), run(token_mean_by_layers, **size)
means = run(as_puzzle_2, **size, quiet=True)

there = {"ranks": priced.ranks, "layers": priced.layers, "batches": priced.batches}
never_waits = run(token_mean_in_pieces, **there, tokens=counted, cost=priced.cost)
messages = [event for event in priced.models[0].log if event.kind in ("pass_to", "receive")]
round_trip = float(max(one.end for one in messages) - min(one.start for one in messages))
assert never_waits.seconds < priced.seconds
