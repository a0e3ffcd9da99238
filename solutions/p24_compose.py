# %% [markdown]
# # Puzzle 24: Compose
#
# You have {{ranks * node}} A100, in {{ranks}} nodes of {{node:word}}, for GPT-3 with its {{GPT / BILLION}} billion
# parameters. Data parallel does not fit. FSDP fits, and waits for the network. {{GPT_LAYERS}} layers do not make
# {{ranks}} equal stages. What do you put together?
#
# ![FSDP, one micro-batch after the other, rank 0](picture:only_fsdp)
#
# This is rank 0 with FSDP. **A rank is a node** here: its GPUs share each layer (puzzles 17 and 18), and what they
# send each other is in the price of a layer. Time is in seconds, and memory is one GPU's, in bytes.
#
# You decide what the three axes of the mesh are for. Some ways:
#
# | replicas along | pipelines | stages in each |
# |---|---|---|
# | `z` | 4 | 16 |
# | `x` | 8 | 8 |
# | `x` and `y` | 16 | 4 |

# %%
from drawing import beside_target, compare, draw
from lib import Model, grade, hint, run, solution, why
from lib.real import A100_MEGATRON, GPT_175B, report

# %% tags=["spec"]
PUZZLE = {
    "number": 24,
    "name": "compose",
    "title": "Compose",
    "size": {
        "ranks": 64,
        "layers": 16,
        "batches": 256,
        "mesh": {"x": 8, "y": 2, "z": 4},
    },
    "other_sizes": "grid",
    "target": {"time": 14.0, "memory": 79_000_000_000},
    "star": {"time": 13.0, "memory": 49_000_000_000},
    "frontier": [
        {"time": 13.0, "memory": 49_000_000_000, "by": "compose_overlapped"},
        {"time": 14.0, "memory": 39_000_000_000, "by": "eight_small_stages"},
    ],
    "cost": "gpt_3_on_a100",
    "layout": "anywhere",
    "ideas": ["several_kinds"],
    "begins_with": "interleaved",
    "hints_for": {"slow": 1, "large": 2},
    "difficulty": "hard",
    "minutes": 90,
    "star_hint": "What is left to do when the last backward has ended, and which of these sums could "
    "have begun sooner? And how does the time in which stages wait change with the number "
    "of stages a rank has, and with the order of its micro-batches?",
    "hints": [
        "What has to go over the network, and how often? Weights are large here, and what goes from stage to "
        "stage is small: so the nodes become a pipeline. With sixteen stages the bubble takes much of the time, "
        "with two the memory is full. Try eight stages or four, thin ones (puzzle 14), and replicas of the whole "
        "pipeline on the axis that is left.",
        "If the data axis is `x`, rank `r` is stage `r % 8` of pipeline `r // 8`. Each pipeline takes its share "
        "of the batch, in rounds of as many micro-batches as there are stages. The weights of a stage fit in a "
        "node as they are. What does not fit in memory are whole optimizer states: each replica needs only a "
        "part of them (puzzle 9).",
        'Take puzzle 14\'s answer. `replica, replicas = model.axis_index("x"), model.axis_size("x")`, and `stages = '
        "model.RANKS // replicas` instead of `model.RANKS`. Keep `state.shard(replica, replicas)`, and at the end, "
        'for each layer: `scatterreduce(..., axis="x")`, `update` with `model.weights[layer].shard(replica, '
        'replicas)`, and `allgather(..., axis="x")`. For the star: four stages, a reduce-scatter after each round '
        "(puzzle 10), and the updates of a layer while others still go backward. Its replicas lie on `x` and `y`: "
        "scatter the sum over one of them, and your piece of it over the other (puzzle 20).",
    ],
}

# %% [markdown]
# ## Your task
#
# Train GPT-3. Each rank loads the weights and states that you choose, whole or in shards, and ends with the same
# ones, updated. Together the ranks have all of them.
#
# - {{ideas}}
# - One kind of parallelism is not enough: FSDP over all ranks is refused.
# - A collective goes over one axis, over several (`axis=("x", "y")`), or over all ranks.
# - Time and memory are rounded to two digits, since the prices are no more exact.
# - Other meshes are tried, too.
#
# Target: **{{target.time}}** seconds, peak memory **{{target.memory / BILLION}} GB**. A run takes some seconds of
# your own time, too.


# %%
async def compose(model: Model) -> Model:
    """Train GPT-3. You choose what the axes x, y and z are for."""
    ### BEGIN SOLUTION
    replica, replicas = model.axis_index("x"), model.axis_size("x")
    stages, stage = model.RANKS // replicas, model.rank % (model.RANKS // replicas)
    first, top = replica * stages, model.LAYERS - 1
    before, after = first + (stage - 1) % stages, first + (stage + 1) % stages
    mine = range(stage, model.LAYERS, stages)
    for layer in mine:
        model.weights[layer], state = model.load_weights(layer)
        model.opt_states[layer] = state.shard(replica, replicas)

    async def forward(layer: int, mb: int) -> None:
        if layer == 0:
            model.activations[layer, mb] = model.get_activation([mb])
        else:
            model.activations[layer, mb] = await model.receive(src=before)
        out = model.forward(layer, model.activations[layer, mb], model.weights[layer])
        if layer == top:
            model.activations[top + 1, mb] = out
        else:
            await model.pass_to(after, out)

    async def backward(layer: int, mb: int) -> None:
        if layer == top:
            grad_out = model.loss(model.activations.pop((top + 1, mb)))
        else:
            grad_out = await model.receive(src=after)
        inp = model.activations.pop((layer, mb))
        grad, grad_in = model.backward(layer, inp, grad_out, model.weights[layer])
        so_far = model.grad_weights.get(layer)
        model.grad_weights[layer] = so_far + grad if so_far else grad
        if layer > 0:
            await model.pass_to(before, grad_in)

    share = model.BATCHES // replicas
    mbs = range(replica * share, (replica + 1) * share)
    rounds = [mbs[start : start + stages] for start in range(0, share, stages)]
    forwards = [(layer, mb) for some in rounds for layer in mine for mb in some]
    backwards = [(layer, mb) for some in rounds for layer in reversed(mine) for mb in some]
    ahead = 2 * (stages - 1 - stage) + (len(mine) - 1) * stages + 1
    for work in forwards[:ahead]:
        await forward(*work)
    for turn, work in enumerate(backwards, ahead):
        await backward(*work)
        if turn < len(forwards):
            await forward(*forwards[turn])

    for layer in mine:
        grad = await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="x")
        piece = model.weights[layer].shard(replica, replicas)
        piece, state = model.update(layer, grad, piece, model.opt_states[layer])
        model.opt_states[layer] = state
        model.weights[layer] = await model.allgather(piece, layer, axis="x")
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = A100_MEGATRON.cost(
    GPT_175B,
    micro_batch=2,
    tensor=8,
    sequence_parallel=True,
    recompute="selective",
    gradients=4,
    reduced=2,
)
nodes = {"ranks": 64, "layers": 16, "batches": 256, "mesh": {"x": 8, "y": 2, "z": 4}}
draw(run(compose, cost=prices, **nodes))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(compose)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} seconds, **{{star.memory / BILLION}} GB**. Think of the bubble, and of what could travel
# while the nodes compute ([puzzle 12](p12_prefetch.ipynb) shows how). This is where time and memory go in your own
# run, and what goes over which links:

# %% tags=["raises-exception"]
print(report(run(compose, cost=prices, **nodes)))

# %% [markdown]
# ### Each alone, and together
#
# | | seconds | GB for each GPU | |
# |---|---|---|---|
# | data parallel, {{ranks}} replicas of a node | | {{bytes_each * GPT / BILLION / node:.0f}} and more | does not fit |
# | FSDP, one micro-batch after the other | {{row(fsdp_one_by_one)}} |
# | FSDP, all four at once | {{row(fsdp_at_once)}} |
# | FSDP, all four at once, gathered ahead | {{row(fsdp_at_once_ahead)}} |
# | FSDP, two at once, gathered ahead | {{row(fsdp_two_at_once_ahead)}} |
# | sixteen stages, four replicas, states in pieces | {{row(sixteen_stages)}} |
# | eight thin stages, eight replicas, all-reduce | {{row(whole_states)}} |
# | eight thin stages, eight replicas, states in pieces | {{row(compose)}} |
# | the same, overlapped, with fewer forwards ahead | {{row(eight_stages)}} |
# | the same, and sums of gradients in pieces | {{row(eight_small_stages)}} |
# | four thin stages, {{mesh["x"] * mesh["y"]}} replicas, states and sums of gradients in pieces | {{row(compose_overlapped)}} |
#
# ![FSDP, and pipelines of sixteen stages, of eight thin ones and of four](picture:four_ways)
#
# The ranks compute for {{computing:.1f}} seconds, so there is not much left to win. But look at what each way asks for.
# FSDP is the fastest if there are enough tokens to hide its communication, but then these tokens take all memory. With
# half of the tokens at a time it fits, but then it has to wait for its links. A pipeline hardly needs links, and pays
# with its bubble: with m micro-batches in each pipeline, p stages and v thin pieces of each, the bubble is (p - 1)/(v
# m) of the time. Sharded states cost nothing at all, since a reduce-scatter and an all-gather are an all-reduce. And
# tensor parallelism makes everything eight times smaller, as long as it stays in the node.
#
# All replicas do the same. With `run(compose, represent="x", cost=prices, **nodes)` only four of the eight are
# simulated, and they stand for all. For the others your function is run just to compare its calls, which have to be
# the same. So what they do is proved, and not assumed. `grade` runs all {{ranks}} ranks.
#
# ### Where the prices come from
#
# - **A rank is a node** of eight GPUs. All eight do the same at the same time, so one rank stands for them. This much
#   of the mesh is chosen for you.
# - **A layer of the run is {{GPT_LAYERS // layers:word}} of the {{GPT_LAYERS}}** of the model. A micro-batch is two
#   sequences of {{GPT_SEQUENCE}} tokens; there are {{batches}} micro-batches.
# - What is inside a layer is kept, except for the scores of attention, which backward computes again (puzzle 11).
# - For each parameter there are {{WEIGHT}} bytes for the weight, {{gradient}} for the gradient, and {{STATE}} for the
#   optimizer state. A gradient is sent in {{GRADIENT}} bytes. Data parallel would need {{bytes_each * GPT / BILLION}}
#   GB on a GPU.
# - Everything between ranks goes over the network: {{nic / BILLION}} GB a second for each GPU, of which
#   {{used:percent}} are reached.
# - Our seconds are within {{off}} percent of what was measured with this software on this machine. More digits would
#   mean nothing, so {{ours.time:.1f}} seconds count as {{ours.time:.0f}}. The target's memory is {{FITS:percent}} of
#   the {{card:.1f}} GB that a card has: no more can be filled.
# - GPT-3 read {{read / BILLION}} billion tokens, {{round(steps)}} such steps. Each second that a step takes is
#   {{steps / HOUR:.0f}} hours of your life.

# %% [markdown] tags=["solution"]
# ### Faster: the network works while the nodes compute
#
# Four stages instead of eight have half the bubble, and twice the weights and gradients. These fit if the sum of the
# gradients is in pieces, too. After each round of a layer its gradient goes into a reduce-scatter over `x`, and is
# added to the rank's own eighth. When the last sum of a layer is there, a reduce-scatter over `y` leaves the rank half
# of its eighth. The layer is updated and gathered while the layers below still go backward, so that only the lowest one
# is left for the end. The sends are not awaited before the end. A stage is ahead by one forward for each stage after
# it, as in 1F1B, and by one more, which is enough to hide such short messages. That makes {{best.time:.1f}} seconds,
# which count as {{best.time:.0f}}, and {{best.memory / BILLION:.0f}} GB.

# %% tags=["solution"]
from collections.abc import Awaitable, Callable
from typing import Any

from drawing import Figure
from lib import Run


async def laid_out(
    model: Model, axes: str, pieces: bool, each_round: bool, lead: int = 2, more: int = 0
) -> Model:
    """Thin stages, and replicas on some axes: ``"x"``, ``"xy"`` or ``"yz"``. With optimizer states in ``pieces``, or
    whole; gradients are summed over the replicas after each round, or at the end. A stage is ahead by ``lead`` forwards
    for each stage after it: 2 as in puzzle 14, or 1, which keeps less and has no room for late messages. All stages but
    the last are ahead by another ``more`` forwards."""
    replica, replicas = 0, 1
    for axis in axes:
        replica = replica * model.axis_size(axis) + model.axis_index(axis)
        replicas *= model.axis_size(axis)
    stages, last_axis = model.RANKS // replicas, axes[-1] == "z"
    stage = model.rank // replicas if last_axis else model.rank % stages

    def rank_of(stage: int) -> int:
        """The rank of another stage of this pipeline, counted round and round."""
        stage %= stages
        return stage * replicas + replica if last_axis else replica * stages + stage

    before, after = rank_of(stage - 1), rank_of(stage + 1)
    mine, top = range(stage, model.LAYERS, stages), model.LAYERS - 1
    for layer in mine:
        model.weights[layer], state = model.load_weights(layer)
        model.opt_states[layer] = state.shard(replica, replicas) if pieces else state

    share, add = model.BATCHES // replicas, model.scatterreduce if pieces else model.allreduce
    left = dict.fromkeys(mine, share)
    sends: list[Awaitable[Any]] = []
    sums: dict[int, Awaitable[Any]] = {}
    gathers: dict[int, Awaitable[Any]] = {}

    async def forward(layer: int, mb: int) -> None:
        if layer == 0:
            model.activations[layer, mb] = model.get_activation([mb])
        else:
            model.activations[layer, mb] = await model.receive(src=before)
        out = model.forward(layer, model.activations[layer, mb], model.weights[layer])
        if layer == top:
            model.activations[top + 1, mb] = out
        else:
            sends.append(model.pass_to(after, out))

    async def backward(layer: int, mb: int) -> None:
        if layer == top:
            grad_out = model.loss(model.activations.pop((top + 1, mb)))
        else:
            grad_out = await model.receive(src=after)
        inp = model.activations.pop((layer, mb))
        grad, grad_in = model.backward(layer, inp, grad_out, model.weights[layer])
        so_far = model.grad_weights.get(layer)
        model.grad_weights[layer] = so_far + grad if so_far else grad
        if layer > 0:
            sends.append(model.pass_to(before, grad_in))
        left[layer] -= 1
        if left[layer] % stages == 0 and (each_round or not left[layer]):
            await add_up(layer)
            sums[layer] = add(model.grad_weights.pop(layer), layer, axis=axes[0])
        if (
            left[layer] == stages - 1 and layer + stages in mine
        ):  # the sum above had time to arrive
            await finish(layer + stages)

    async def add_up(layer: int) -> None:
        """Take the sum of a round that is on its way."""
        if layer in sums:
            part, so_far = await sums.pop(layer), model.grad_weights.get(("sum", layer))
            model.grad_weights["sum", layer] = so_far + part if so_far else part

    async def finish(layer: int) -> None:
        """Update a layer whose sum is complete, and start to gather what is new."""
        await add_up(layer)
        grad = model.grad_weights.pop(("sum", layer))
        for axis in axes[1:]:
            grad = await add(grad, layer, axis=axis)
        weight = model.weights.pop(layer)
        piece = weight.shard(replica, replicas) if pieces else weight
        piece, model.opt_states[layer] = model.update(
            layer, grad, piece, model.opt_states[layer]
        )
        if pieces:
            for axis in reversed(axes[1:]):
                piece = await model.allgather(piece, layer, axis=axis)
            gathers[layer] = model.allgather(piece, layer, axis=axes[0])
        else:
            model.weights[layer] = piece
            model.set_final_weight(layer, piece)

    mbs = range(replica * share, (replica + 1) * share)
    rounds = [mbs[start : start + stages] for start in range(0, share, stages)]
    forwards = [(layer, mb) for some in rounds for layer in mine for mb in some]
    backwards = [(layer, mb) for some in rounds for layer in reversed(mine) for mb in some]
    later = stages - 1 - stage
    if stages == 2:  # each is before and after the other: it receives in the order of sends
        lead, more = 2, 0
    ahead = lead * later + more * (later > 0) + (len(mine) - 1) * stages + 1
    for work in forwards[:ahead]:
        await forward(*work)
    for turn, work in enumerate(backwards, ahead):
        await backward(*work)
        if turn < len(forwards):
            await forward(*forwards[turn])

    await finish(stage)
    for layer, call in gathers.items():
        model.weights[layer] = await call
        model.set_final_weight(layer, model.weights[layer])
    for send in sends:
        await send
    return model


async def compose_overlapped(model: Model) -> Model:
    """Four thin stages, 16 replicas on two axes, states and sums of gradients in pieces."""
    return await laid_out(model, axes="xy", pieces=True, each_round=True, lead=1, more=1)


draw(run(compose_overlapped, represent="x", cost=prices, **nodes))

# %% [markdown] tags=["solution"]
# ### The programs of the table
#
# Other pipelines, and FSDP: one micro-batch after the other or several at once, with or without the next weight on
# its way.


# %% tags=["solution"]
async def eight_stages(model: Model) -> Model:
    """Eight thin stages, eight replicas, states in pieces."""
    return await laid_out(model, axes="x", pieces=True, each_round=False, lead=1)


async def eight_small_stages(model: Model) -> Model:
    """The same, and sums of gradients in pieces."""
    return await laid_out(model, axes="x", pieces=True, each_round=True, lead=1)


async def sixteen_stages(model: Model) -> Model:
    """1F1B, with a stage of one layer, and four replicas."""
    return await laid_out(model, axes="z", pieces=True, each_round=False, lead=1)


async def whole_states(model: Model) -> Model:
    """Eight thin stages, and an all-reduce between eight replicas."""
    return await laid_out(model, axes="x", pieces=False, each_round=False)


async def sharded(model: Model, at_once: int, ahead: bool) -> Model:
    """FSDP over all nodes; ``at_once`` micro-batches of a rank go through the layers together."""
    top = model.LAYERS - 1
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    async def whole(layer: int, following: int) -> None:
        """Gather a weight, unless it is on its way, and start the gather of the following one."""
        call = coming.pop(layer, None) or model.allgather(model.weights[layer], layer)
        model.weights["whole"] = await call
        if ahead and 0 <= following <= top:
            coming[following] = model.allgather(model.weights[following], following)

    async def add_up(layer: int) -> None:
        part, so_far = await sums.pop(layer), model.grad_weights.get(layer)
        model.grad_weights[layer] = so_far + part if so_far else part

    coming: dict[int, Awaitable[Any]] = {}
    sums: dict[int, Awaitable[Any]] = {}
    share = model.BATCHES // model.RANKS
    mbs = range(model.rank * share, (model.rank + 1) * share)
    for turn in range(0, share, at_once):
        model.activations[0] = model.get_activation(mbs[turn : turn + at_once])
        for layer in range(model.LAYERS):
            await whole(layer, layer + 1)
            inp, weight = model.activations[layer], model.weights.pop("whole")
            model.activations[layer + 1] = model.forward(layer, inp, weight)
        model.grad_activations[top + 1] = model.loss(model.activations.pop(top + 1))
        for layer in reversed(range(model.LAYERS)):
            await whole(layer, layer - 1)
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights.pop("whole")
            )
            sums[layer] = model.scatterreduce(grad, layer)
            if not ahead or layer < top:
                await add_up(layer + 1 if ahead else layer)
        if ahead:
            await add_up(0)
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


async def fsdp_one_by_one(model: Model) -> Model:
    """Puzzle 4, a micro-batch after the other."""
    return await sharded(model, at_once=1, ahead=False)


async def fsdp_at_once(model: Model) -> Model:
    """Puzzle 4, with all that a rank has to train at once."""
    return await sharded(model, at_once=model.BATCHES, ahead=False)


async def fsdp_at_once_ahead(model: Model) -> Model:
    """The same, with the next weight on its way (puzzle 12)."""
    return await sharded(model, at_once=model.BATCHES, ahead=True)


async def fsdp_two_at_once_ahead(model: Model) -> Model:
    """The same with two micro-batches at once, so that they fit."""
    return await sharded(model, at_once=2, ahead=True)


def on_all_nodes(fn: Callable[[Model], Any]) -> Run:
    """A run at the puzzle's size and prices."""
    cost = A100_MEGATRON.cost(
        GPT_175B,
        micro_batch=2,
        tensor=8,
        sequence_parallel=True,
        recompute="selective",
        gradients=4,
        reduced=2,
    )
    mesh = {"x": 8, "y": 2, "z": 4}
    return run(fn, ranks=64, layers=16, batches=256, mesh=mesh, cost=cost)


def only_fsdp(static: bool = False) -> Figure:
    """Rank 0 of FSDP, one micro-batch after the other."""
    first = on_all_nodes(fsdp_one_by_one).models[0]
    return draw(first, title="FSDP", static=static)


def four_ways(static: bool = False) -> Figure:
    """Rank 0 of FSDP, and of three pipelines with replicas."""
    shown = {
        "FSDP, two at once": on_all_nodes(fsdp_two_at_once_ahead),
        "16 stages, 4 replicas": on_all_nodes(sixteen_stages),
        "8 thin stages, 8 replicas": on_all_nodes(compose),
        "4 thin stages, 16 replicas": on_all_nodes(compose_overlapped),
    }
    first = [done.models[0] for done in shown.values()]
    return compare(*first, titles=list(shown), static=static)


four_ways()

# %% [markdown]
# ### Where real systems do this
#
# Megatron-LM has tensor parallelism in the node, an interleaved pipeline of nodes, and replicas of it (arXiv
# 2104.04473). Our prices are fitted to NVIDIA's measurements of it (arXiv 2205.05198). Llama 3 405B had tensor
# parallelism of {{node}}, {{stages}} stages, and FSDP over the rest of {{gpus}} GPUs (arXiv 2407.21783). Both follow
# the same rule: tensor parallelism where links are quickest, replicas where they are slowest, the pipeline between.

# %% [markdown]
# ### Which technique when
#
# Begin at the top, and go on only as far as you have to. Each row buys something and costs something.
#
# | where it hurts | what to do | what it costs |
# |---|---|---|
# | one GPU is too slow, and the model fits | data parallel (puzzle 2), with sums in buckets (puzzle 19), in the nodes first (puzzle 20) | a sum of all gradients in each step, which hides well |
# | activations are too much | smaller micro-batches (puzzle 1); compute them again (puzzle 11) | nothing; up to a third more time |
# | optimizer states are too much | shard them (puzzle 9) | nothing |
# | gradients are too much | shard them, too (puzzle 10) | a sum for each micro-batch |
# | weights are too much | FSDP (puzzle 4), with the next gather on its way (puzzle 12) | two gathers for each micro-batch, so it wants large ones and fast links |
# | the links between nodes are slow | shard inside a node, and replicate (puzzle 8); or keep a second copy in each node (puzzle 21) | memory |
# | a layer is too large, or there are more GPUs than sequences | tensor parallel (puzzle 17), with slices of the sequence (puzzle 18), inside a node | sums that everybody waits for |
# | links are too slow for weights, and the model is too large for a node | a pipeline (puzzles 5 and 6), with few micro-batches in flight (puzzle 13) | a bubble |
# | the bubble is large, and the batch cannot grow | thin stages (puzzle 14); weight halves later (puzzle 16) | messages; memory |
# | the stages are too large, too | shard them, breadth first (puzzles 7 and 15) | activations |
# | there is only one GPU | accumulate (puzzle 1), compute again (puzzle 11), let the host update (puzzle 22) | time |
# | the model is trained already | adapters (puzzle 23) | some of what it could learn |
#
# Most large runs are tensor parallel in the node. Between nodes they have a pipeline, or FSDP, and replicas around
# that, with optimizer states sharded over everything. How many of each depends on the model, the links and the batch.
# `plan` (from `lib`) tries such compositions for any model and any cluster, with your own functions. You have all the
# parts now. What would you train?

# %% tags=["figures"]
from lib.real.hardware import FITS

node, read, gradient = 8, 300e9, 4  # tokens: arXiv 2005.14165
steps = read / (2 * batches * GPT_SEQUENCE)
bytes_each = WEIGHT + gradient + STATE
nic, used, off = 25e9, 0.8, 8  # A100_MEGATRON; its error: `make papers`
card = prices.cluster.memory / BILLION


def row(fn: Callable[[Model], Any]) -> str:
    """Seconds and GB, in two digits, and whether that fits."""
    done = on_all_nodes(fn)
    return (
        f"{done.time:.0f} | {done.memory / BILLION:.0f} | {'' if done.fits else 'does not fit'}"
    )


ours, best, two_at_once, deep, one_by_one = map(
    on_all_nodes,
    (compose, compose_overlapped, fsdp_two_at_once_ahead, sixteen_stages, fsdp_one_by_one),
)
computing = sum(
    event.end - event.start for event in ours.models[0].log if event.stream == "compute"
)
gpus, stages = (published(value, "arXiv 2407.21783") for value in (16_384, 16))
