# %% [markdown]
# # Puzzle 15: Breadth-first pipeline
#
# Cut a model of {{LLAMA / BILLION}} billion parameters into eight stages, and each stage still takes
# {{trained(stage) / BILLION}} GB to train. A GPU has {{CARD}}. So each stage has to be sharded, too. But a pipeline
# wants many micro-batches, and FSDP gathers all weights twice for each of them. Must it?
#
# ![Rank 0 with FSDP in each stage, in the order of puzzle 14](picture:depth)
#
# Gathers are marked ▲ and reduce-scatters ▼. `mesh={"stage": 4, "shard": 2}` gives two pipelines, side by side.
# Layers are dealt to the stages like cards. Each of the two ranks of a stage has one half of its weights and states:
#
# | | layers 0, 4 | layers 1, 5 | layers 2, 6 | layers 3, 7 |
# |---|---|---|---|---|
# | micro-batches 0, 2, 4, ... | rank 0 | rank 2 | rank 4 | rank 6 |
# | micro-batches 1, 3, 5, ... | rank 1 | rank 3 | rank 5 | rank 7 |
#
# `model.axis_index("stage")` is your stage, and `axis="shard"` joins its ranks. The next rank of a pipeline is
# `(model.rank + model.axis_size("shard")) % model.RANKS`.

# %%
from drawing import beside_target, draw, play
from lib import Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 15,
    "name": "breadth_first",
    "title": "Breadth-first pipeline",
    "size": {"ranks": 8, "layers": 8, "batches": 16, "mesh": {"stage": 4, "shard": 2}},
    "other_sizes": "rings",
    "target": {"time": 54.4, "memory": 12058624},
    "star": {"time": 43.0, "memory": 11403264},
    "frontier": [
        {"time": 42.2, "memory": 11272192, "by": "breadth_first_in_42_2"},
    ],
    "cost": "large_weights",
    "layout": "sharded_stages",
    "ideas": ["own_layers", "no_whole_gradient"],
    "hints_for": {"slow": 1, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "Could the last stage do a backward before all forwards are done? And what does the "
    "network do while the other micro-batches of a layer are computed?",
    "hints": [
        "Look at the times at which a rank works with layer 0 when it takes one forward and one backward by turns. "
        "How often does it drop the whole weight and gather it again, and how much time does that take? In which "
        "order of the work would a rank finish one layer before it begins another?",
        "Two loops, one in the other: over the layers of this rank, and in it over the micro-batches of this "
        "pipeline. Gather the weight before the inner loop and drop it after: so only one whole weight is in "
        "memory at a time. First all forwards in this order, then all backwards, from the last layer to the "
        "first. Gradients add up in the inner loop, and are reduced after it.",
        "For the forwards, in the loop over the micro-batches of a layer: `receive(src=(model.rank - shards) % "
        'model.RANKS)`, `forward` with `model.weights["whole"]`, `pass_to((model.rank + shards) % model.RANKS, '
        'out)`, where `shards = model.axis_size("shard")`. For the backwards it is the other way round, and after '
        'that loop: `grad = await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="shard")`, and '
        "`update` of your piece.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train this pipeline. Weights are large, as in real models: a layer's weight has as many elements as
# {{cost.weight_elements // cost.activation_elements:word}} activations. A collective takes {{cost.collective}} ticks,
# a send and a receive {{cost.send}} each.
#
# - A rank begins and ends with its shard of its stage's layers: `model.load_weights(layer, shard, shards)`.
# - {{ideas}}
# - Other meshes are tried, too. Each pipeline has as many micro-batches as stages, or more.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def breadth_first(model: Model) -> Model:
    """A pipeline on a ring of stages, and FSDP within each stage."""
    ### BEGIN SOLUTION
    stage, stages = model.axis_index("stage"), model.axis_size("stage")
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    before, after = (model.rank - shards) % model.RANKS, (model.rank + shards) % model.RANKS
    top = model.LAYERS - 1
    mine, batch = range(stage, model.LAYERS, stages), range(shard, model.BATCHES, shards)
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, shards)

    for layer in mine:
        whole = await model.allgather(model.weights[layer], layer, axis="shard")
        model.weights["whole"] = whole
        for mb in batch:
            if layer == 0:
                model.activations[layer, mb] = model.get_activation([mb])
            else:
                model.activations[layer, mb] = await model.receive(src=before)
            out = model.forward(layer, model.activations[layer, mb], whole)
            if layer == top:
                model.activations[top + 1, mb] = out
            else:
                await model.pass_to(after, out)
        del model.weights["whole"]

    for layer in reversed(mine):
        whole = await model.allgather(model.weights[layer], layer, axis="shard")
        model.weights["whole"] = whole
        for mb in batch:
            if layer == top:
                grad_out = model.loss(model.activations.pop((top + 1, mb)))
            else:
                grad_out = await model.receive(src=after)
            inp = model.activations.pop((layer, mb))
            grad, grad_in = model.backward(layer, inp, grad_out, whole)
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
            if layer > 0:
                await model.pass_to(before, grad_in)
        del model.weights["whole"]
        grad = await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="shard")
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = Cost(weight_elements=2_097_152, collective=0.8, send=0.1, receive=0.1)
machine = {"ranks": 8, "layers": 8, "batches": 16, "mesh": {"stage": 4, "shard": 2}}
draw(run(breadth_first, **machine, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(breadth_first)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. It wants messages and gathers that are on their way
# while a rank computes, as in [puzzle 12](p12_prefetch.ipynb). To watch your own run, with the line that each rank is
# at:

# %%
play(run(breadth_first, **machine, cost=prices))

# %% [markdown]
# ### Two gathers instead of sixteen
#
# The picture at the top has the order of puzzle 14, *depth first*. Each micro-batch goes on as far as it can. Each
# time a layer is needed, its weight is gathered. *Breadth first*, a layer does all micro-batches before another
# begins:
#
# ![Breadth first](picture:breadth)
#
# | of each layer | gathers | reductions |
# |---|---|---|
# | depth first | {{gathers(deep)}} | {{reductions(deep)}} |
# | breadth first | {{gathers(broad)}} | {{reductions(broad)}} |
#
# With m micro-batches, depth first gathers a layer 2m times in a step and reduces its gradient m times. Breadth first
# gathers it twice and reduces it once, however many micro-batches there are. A stage of the
# {{LLAMA / BILLION}}-billion model has {{weights}} GB of weights. Between nodes, two gathers and a reduction take
# {{times * weights / BETWEEN:=.2f}} s. To compute a micro-batch of {{CONTEXT}} tokens takes {{computing:.2f}} s. So
# depth first spends {{fetching:percent}} of its time on fetching weights that were there a moment ago.
#
# The bubble has the same size in both. Let F and B be the times of all of a rank's layers for one micro-batch. A rank
# works for m(F + B) and, with free links, waits for (p - 1)/v (F + B). So it waits (p - 1)/(v m) times as long as it
# works.
#
# It is not free. All micro-batches have gone through all layers of a rank before the first backward begins. So m v
# activations are in memory, where depth first has p v + p - 1 at most: here {{m * v}} instead of {{p * v + p - 1}}.
# That is a bargain as long as weights are larger than activations. In GPT-3 the weights of a layer are
# {{GPT_LAYER / BILLION:.1f}} GB in 16 bits. Its activations take {{KEPT / BILLION:.1f}} GB for each sequence of
# {{GPT_SEQUENCE}} tokens if all of them are kept, and {{INPUT / BILLION:.2f}} GB if all but the layer's input are
# computed again (puzzle 11).

# %% [markdown] tags=["solution"]
# ### Depth first
#
# The program of the first picture: puzzle 14, with FSDP in each stage. It takes {{deep.time}} ticks and
# {{deep.memory}} elements. If it keeps the weights and gathers each only once, it takes {{kept.time}} ticks and
# {{kept.memory}} elements. Then sharding has saved nothing.

# %% tags=["solution"]
from functools import partial
from typing import Any

from drawing import Figure, compare


async def depth_first_overlapped(model: Model, kept: bool) -> Model:
    """Interleaved 1F1B on sharded stages. ``kept``: weights and gradients stay whole for the whole step."""
    stage, stages = model.axis_index("stage"), model.axis_size("stage")
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    before, after = (model.rank - shards) % model.RANKS, (model.rank + shards) % model.RANKS
    top = model.LAYERS - 1
    mine, batch = range(stage, model.LAYERS, stages), range(shard, model.BATCHES, shards)
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, shards)

    async def gather(layer: int) -> None:
        if ("whole", layer) not in model.weights:
            whole = await model.allgather(model.weights[layer], layer, axis="shard")
            model.weights["whole", layer] = whole

    async def forward(layer: int, mb: int) -> None:
        if layer == 0:
            model.activations[layer, mb] = model.get_activation([mb])
        else:
            model.activations[layer, mb] = await model.receive(src=before)
        await gather(layer)
        inp, whole = model.activations[layer, mb], model.weights["whole", layer]
        out = model.forward(layer, inp, whole)
        if layer == top:
            model.activations[top + 1, mb] = out
        else:
            await model.pass_to(after, out)
        if not kept:
            del model.weights["whole", layer]

    async def backward(layer: int, mb: int) -> None:
        if layer == top:
            model.grad_activations[layer] = model.loss(model.activations.pop((top + 1, mb)))
        else:
            model.grad_activations[layer] = await model.receive(src=after)
        await gather(layer)
        inp, grad_out = model.activations.pop((layer, mb)), model.grad_activations.pop(layer)
        whole = model.weights["whole", layer]
        grad, model.grad_activations["in"] = model.backward(layer, inp, grad_out, whole)
        if not kept:
            del model.weights["whole", layer]
            grad = await model.scatterreduce(grad, layer, axis="shard")
        so_far = model.grad_weights.get(layer)
        model.grad_weights[layer] = so_far + grad if so_far else grad
        grad_in = model.grad_activations.pop("in")
        if layer > 0:
            await model.pass_to(before, grad_in)

    rounds = [batch[first : first + stages] for first in range(0, len(batch), stages)]
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
        grad = model.grad_weights.pop(layer)
        if kept:
            del model.weights["whole", layer]
            grad = await model.scatterreduce(grad, layer, axis="shard")
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


depth_first = partial(depth_first_overlapped, kept=False)
depth_first_kept = partial(depth_first_overlapped, kept=True)


def first_rank(program: Any, title: str, static: bool) -> Figure:
    """What rank 0 does at the puzzle's size."""
    cost = Cost(weight_elements=2_097_152, collective=0.8, send=0.1, receive=0.1)
    mesh = {"stage": 4, "shard": 2}
    done = run(program, ranks=8, layers=8, batches=16, mesh=mesh, cost=cost)
    return draw(done.models[0], title=title, memory_target=12_058_624, static=static)


def depth(static: bool = False) -> Figure:
    """Puzzle 14 with FSDP in each stage."""
    return first_rank(depth_first, "FSDP in the order of puzzle 14", static)


def breadth(static: bool = False) -> Figure:
    """This puzzle."""
    return first_rank(breadth_first, "breadth first", static)


compare(
    run(depth_first, **machine, cost=prices),
    run(depth_first_kept, **machine, cost=prices),
    run(breadth_first, **machine, cost=prices),
    titles=["depth first", "depth first, weights kept", "breadth first"],
)

# %% [markdown] tags=["solution"]
# ### Faster: no rank waits for messages, and gathers are ahead
#
# Sends need not be awaited at once, and the next message can be asked for while this piece of work is done:
# {{no_waits.time}} ticks, and still {{no_waits.memory}} elements.
#
# In the forward pass there is room for the next weight beside this one, so it can be gathered meanwhile. The last
# weight of the forward pass is the first of the backward pass, and stays. On the last stage a micro-batch can go back
# as soon as it has come through the last layer, so that its output is never kept. A layer's sum can be awaited after
# the next layer's backward. In the backward pass there is no room for a second whole weight. But once a weight has been
# used, the next one can be gathered before the gradient is summed. That makes {{early.time}} ticks and {{early.memory}}
# elements.

# %% tags=["solution"]
from lib import Weight, WeightGrad


async def breadth_first_overlapped(model: Model, early: bool) -> Model:
    """No rank waits for messages. ``early``: it waits for fewer gathers and sums, too, and each micro-batch goes back
    from the last layer at once."""
    stage, stages = model.axis_index("stage"), model.axis_size("stage")
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    before, after = (model.rank - shards) % model.RANKS, (model.rank + shards) % model.RANKS
    top = model.LAYERS - 1
    mine, batch = range(stage, model.LAYERS, stages), range(shard, model.BATCHES, shards)
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, shards)

    senders = [before for layer in mine if layer > 0 for _ in batch]
    senders += [after for layer in mine if layer < top for _ in batch]
    mail, sends = [model.receive(src=senders.pop(0))], []

    async def take(store: Any, key: Any) -> None:
        store[key] = await mail.pop()
        if senders:
            mail.append(model.receive(src=senders.pop(0)))

    def backward(layer: int, mb: int, whole: Weight) -> None:
        inp, grad_out = model.activations.pop((layer, mb)), model.grad_activations.pop(layer)
        grad, grad_in = model.backward(layer, inp, grad_out, whole)
        so_far = model.grad_weights.get(layer)
        model.grad_weights[layer] = so_far + grad if so_far else grad
        if layer > 0:
            sends.append(model.pass_to(before, grad_in))

    gathers = {}
    for layer in mine:
        call = gathers.pop(layer, None)
        whole = await (call or model.allgather(model.weights[layer], layer, axis="shard"))
        model.weights["whole"] = whole
        for mb in batch:
            if layer == 0:
                model.activations[layer, mb] = model.get_activation([mb])
            else:
                await take(model.activations, (layer, mb))
            if early and mb == batch[0] and layer != mine[-1]:
                after_this = layer + stages
                piece = model.weights[after_this]
                gathers[after_this] = model.allgather(piece, after_this, axis="shard")
            out = model.forward(layer, model.activations[layer, mb], whole)
            if layer < top:
                sends.append(model.pass_to(after, out))
            elif early:
                model.grad_activations[layer] = model.loss(out)
                backward(layer, mb, whole)
            else:
                model.activations[top + 1, mb] = out
        if not early or layer != mine[-1]:
            del model.weights["whole"]

    def update(layer: int, grad: WeightGrad) -> None:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    sums = {}
    for layer in reversed(mine):
        if not early or layer != mine[-1]:
            call = gathers.pop(layer, None)
            whole = await (call or model.allgather(model.weights[layer], layer, axis="shard"))
            model.weights["whole"] = whole
        for mb in batch if layer < top or not early else ():
            if layer == top:
                last = model.activations.pop((top + 1, mb))
                model.grad_activations[layer] = model.loss(last)
            else:
                await take(model.grad_activations, layer)
            backward(layer, mb, whole)
        del model.weights["whole"], whole
        if early and layer != mine[0]:
            below = layer - stages
            gathers[below] = model.allgather(model.weights[below], below, axis="shard")
        sums[layer] = model.scatterreduce(model.grad_weights.pop(layer), layer, axis="shard")
        due = layer + stages if early else layer
        if due in sums:
            update(due, await sums.pop(due))
    for layer, call in sums.items():
        update(layer, await call)
    for send in sends:
        await send
    return model


breadth_first_in_45_2 = partial(breadth_first_overlapped, early=False)
breadth_first_in_42_2 = partial(breadth_first_overlapped, early=True)

draw(run(breadth_first_in_42_2, **machine, cost=prices))

# %% [markdown]
# ### Where real systems do this
#
# The idea and the name are from arXiv 2211.05953, which trained a model of {{theirs}} billion parameters up to
# {{faster}} percent faster than Megatron-LM did. PyTorch has the order as `ScheduleLoopedBFS`. Its forwards and sends
# are the same, and its backwards go from the last micro-batch to the first (recorded from PyTorch {{TORCH}},
# `tests/torch_truth/TABLE.md`). Llama 3 (arXiv 2407.21783) was trained with a schedule in between, whose rounds can
# have any size.
#
# Not everybody needs it. Where a GPU has room for its whole stage, the weights can stay for a step. torchtitan keeps
# them when FSDP meets a pipeline. Megatron-LM's optimizer shards only states, as in puzzle 9. Its Megatron-FSDP shards
# weights and gradients, too.
#
# On links where a send waits for its receive ([puzzle 36](p36_sends_that_wait.ipynb)), our solution hangs. Two ranks
# are in a send to each other, and neither has asked for what comes. A rank that starts its sends, and awaits them only
# at the end, does not hang: on such links (`links="rendezvous"`) the step then takes {{patient.time}} ticks, against
# {{no_waits.time}} on links where no send waits.

# %% [markdown]
# ### On real GPUs
#
# Llama 3 70B on {{priced.ranks * priced.cost.tensor}} GPUs, in four stages. A stage is four groups of four GPUs, and
# the GPUs of a group share each layer among them.
#
# ![What a step takes](picture:priced)
#
# Each rank holds shards of its layers only, so little memory is in use. Gathers and reduce-scatters run while layers
# are computed, over links of their own.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_70B, report

priced = run(
    breadth_first,
    ranks=16,
    layers=80,
    batches=16,
    mesh={"stage": 4, "shard": 4},
    cost=H100_TORCHTITAN.cost(LLAMA_3_70B, tensor=4, sequence_parallel=True, recompute="full"),
)
print(report(priced))

# %% tags=["figures"]
from lib import Run

stage, times = LLAMA / 8, 3  # parameters; two gathers and a reduction
weights = stage * WEIGHT / BILLION
computing, sending = operations(stage, CONTEXT) / PER_SECOND, times * weights / BETWEEN
fetching = sending / (sending + computing)
patient = run(breadth_first_in_45_2, **size, cost=cost, links="rendezvous")

deep, kept, broad, no_waits, early = (
    run(fn, **size, cost=cost)
    for fn in (
        depth_first,
        depth_first_kept,
        breadth_first,
        breadth_first_in_45_2,
        breadth_first_in_42_2,
    )
)
p, v, m = mesh["stage"], layers // mesh["stage"], batches // mesh["shard"]


def of_a_layer(done: Run, kind: str) -> int:
    """How often rank 0 takes part in such a call for one layer."""
    return sum(event.kind == kind and event.layer == 0 for event in done.models[0].log)


def gathers(done: Run) -> int:
    """Gathers of a layer."""
    return of_a_layer(done, "allgather")


def reductions(done: Run) -> int:
    """Reductions of its gradient."""
    return of_a_layer(done, "scatterreduce")


theirs, faster = (published(value, "arXiv 2211.05953") for value in (52, 43))
