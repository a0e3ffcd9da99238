# %% [markdown]
# # Puzzle 35: From trainer to generator
#
# Reinforcement learning has two machines. One trains a model. The other writes answers with it, and needs the newest
# weights after each step. Here each machine is a node with four GPUs. A trainer has a quarter of each weight, as in
# FSDP. A generator has a half, as in tensor parallel, so there are two copies of the model. Between the nodes, links
# are slow.
#
# The simplest way: trainer 0 gathers a weight, and sends it to every generator.
#
# ![Trainer 0 sends whole weights](picture:from_one_picture)
#
# That takes {{to_all.time}} ticks, of which the training takes {{alone.time}}. Which links stand still all that time?
# And what does a generator need of each weight?

# %%
from drawing import beside_target, draw, play
from lib import Model, RingCost, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 35,
    "name": "weight_sync",
    "title": "From trainer to generator",
    "size": {
        "ranks": 8,
        "layers": 6,
        "batches": 4,
        "mesh": {"side": 2, "place": 4},
        "node_size": 4,
    },
    "other_sizes": "two_sides",
    "target": {"time": 29.66, "memory": 1966080},
    "star": {"time": 22.75, "memory": 1966080},
    "frontier": [
        {"time": 22.743334, "memory": 1966080, "by": "sync_while_training"},
    ],
    "cost": "two_speeds",
    "layout": "trainers_and_generators",
    "tensor": 2,
    "ideas": ["generators_receive"],
    "begins_with": "fsdp",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "When is a layer ready to leave its trainer? Two generators want the same quarter: must it cross the "
    "slow links twice? And inside a node, which calls could be on their way while a rank computes?",
    "hints": [
        "Draw what each rank has of a weight at the end, in quarters: trainer `p` has quarter `p`. Generator `p` needs "
        "half `p % 2`, which is two neighboring quarters. Which trainers have these? So which ranks does a trainer send "
        "its quarter to, and in which order does a generator receive?",
        "A generator receives, and nothing else: for each layer the quarters of its half, which it joins with "
        "`combine`, and then `set_final_weight`. A trainer is puzzle 4's, with "
        '`axis="place"` in each call, and then sends. What it has to send are quarters: to gather a weight would cost '
        "time and memory. Messages between two ranks come in the order in which they were sent, so both go through the "
        "layers in the same order.",
        'With `trainers = model.axis_size("place")` and `pieces = trainers // 2` of them in a half, trainer `place` '
        "has a piece of half `place // pieces`, and sends it with `await model.pass_to(trainers + generator, "
        "model.weights[layer])` for each `generator in range(place // pieces, trainers, 2)`. A generator with "
        "`half = place % 2` receives from the ranks in `range(half * pieces, (half + 1) * pieces)`. For the star, "
        "each trainer sends its piece to one generator, as soon as the layer is updated, and awaits that send at the "
        "end; generators of the same half pass on what they have.",
    ],
}

# %% [markdown]
# ## Your task
#
# `model.axis_index("side")` is 0 for trainers, ranks 0 to 3, and 1 for generators. Along `axis="place"` are the ranks of
# one node. The prices are those of puzzle 20, so a message with a quarter takes {{inside:.3f}} ticks in a node and
# {{across:.3f}} between nodes. A whole weight takes {{whole:.2f}} between nodes.
#
# - Trainers train one step. Trainer `p` begins and ends with piece `p` of every weight and optimizer state, as in FSDP.
# - Generators load nothing. Generator `p` ends with half `p % 2` of every updated weight: `set_final_weight`.
# - {{ideas}}
# - Other sizes have nodes of 2 to 8 ranks, always an even number. The weights of generators are halves at each of them.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def weight_sync(model: Model) -> Model:
    """FSDP on the trainers, and the updated weights for the generators."""
    ### BEGIN SOLUTION
    trainers, place = model.axis_size("place"), model.axis_index("place")
    pieces = trainers // 2  # of the trainers' pieces, in a half
    if model.axis_index("side") == 1:
        half = place % 2
        for layer in range(model.LAYERS):
            for trainer in range(half * pieces, (half + 1) * pieces):
                piece = await model.receive(src=trainer)
                so_far = model.weights.pop(layer, None)
                model.weights[layer] = so_far.combine(piece) if so_far else piece
            model.set_final_weight(layer, model.weights[layer])
        return model

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, place, trainers
        )
    model.activations[0] = model.get_activation([place])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer, axis="place")
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer, axis="place")
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        grad = await model.scatterreduce(grad, layer, axis="place")
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

    for layer in range(model.LAYERS):
        for generator in range(place // pieces, trainers, 2):  # all that have this half
            await model.pass_to(trainers + generator, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = RingCost(
    backward=2, latency=0.03, bandwidth=2_457_600, latency_across=0.1, bandwidth_across=245_760
)
nodes = {"ranks": 8, "layers": 6, "batches": 4, "node_size": 4}
draw(run(weight_sync, mesh={"side": 2, "place": 4}, cost=prices, **nodes))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(weight_sync)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. How often must a quarter cross the slow links? How could
# it leave sooner? See [puzzle 12](p12_prefetch.ipynb). To watch your own run, with the line that each rank is at:

# %%
play(run(weight_sync, mesh={"side": 2, "place": 4}, cost=prices, **nodes))

# %% [markdown]
# ### What crosses the slow links
#
# | | weights that cross, for each layer | of these from one card | ticks |
# |---|---|---|---|
# | trainer 0 sends whole weights to all | {{crossing(to_all)[0]}} | {{crossing(to_all)[1]}} | {{to_all.time}} |
# | each trainer gathers, and sends a half to one generator | {{crossing(halves)[0]}} | {{crossing(halves)[1]}} | {{halves.time}} |
# | each trainer sends its quarter to both that need it | {{crossing(ours)[0]}} | {{crossing(ours)[1]}} | {{ours.time}} |
# | each trainer sends its quarter to one, which passes it on | {{crossing(once)[0]}} | {{crossing(once)[1]}} | {{once.time:.2f}} |
# | the same, while training goes on | {{crossing(early)[0]}} | {{crossing(early)[1]}} | {{early.time:.2f}} |
#
# In the second row, weights are put together to be taken apart again: that costs
# {{halves.time - ours.time:.2f}} ticks for nothing. In the third row each quarter crosses twice, since two copies of
# the model want it. But one copy can get it from the other one, over the quick links of their node. That is the fourth
# row.
#
# The last row saves nearly as much. A layer is ready as soon as it is updated, while the layers below it still have their
# backward before them. So its quarter crosses under the next backward:
#
# ![A trainer and a generator in the program of the last row](picture:while_training)
#
# For that, a rank has to start the send after the gather that the next backward needs. Calls of a rank go one after the
# other, and a gather that waits for a slow send makes everybody wait.

# %% [markdown] tags=["solution"]
# ### The programs of the table

# %% tags=["solution"]
from collections.abc import Awaitable, Callable
from typing import Any

from drawing import Figure
from lib import Run, WeightGrad

Step = Callable[[Model, int], Awaitable[None]]  # what a rank does for a layer


async def train(model: Model, under: Callable[[int], object] = lambda layer: None) -> None:
    """FSDP on the trainers. ``under`` is called with each layer that is updated, once the next gather is on its way."""
    trainers, place = model.axis_size("place"), model.axis_index("place")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, place, trainers
        )
    model.activations[0] = model.get_activation([place])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer, axis="place")
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        model.weights["now"] = await model.allgather(model.weights[layer], layer, axis="place")
        if layer + 1 < model.LAYERS:
            under(layer + 1)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights.pop("now")
        )
        grad = await model.scatterreduce(grad, layer, axis="place")
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    del model.grad_activations[0]
    under(0)


async def afterwards(model: Model, send: Step, receive: Step) -> Model:
    """Trainers send when they have trained."""
    if model.axis_index("side") == 0:
        await train(model)
    for layer in reversed(range(model.LAYERS)):
        await (receive if model.axis_index("side") else send)(model, layer)
    return model


async def from_one(model: Model) -> Model:
    """Trainer 0 gathers every weight, and sends all of it to each generator."""

    async def send(model: Model, layer: int) -> None:
        weight = await model.allgather(model.weights[layer], layer, axis="place")
        if model.rank == 0:
            model.weights["whole"] = weight
            for generator in range(model.axis_size("place")):
                await model.pass_to(model.RANKS // 2 + generator, model.weights["whole"])
            del model.weights["whole"]

    async def receive(model: Model, layer: int) -> None:
        weight = await model.receive(src=0)
        model.weights[layer] = weight.shard(model.axis_index("place") % 2, 2)
        model.set_final_weight(layer, model.weights[layer])

    return await afterwards(model, send, receive)


async def gathered(model: Model) -> Model:
    """Each trainer gathers every weight, and sends a half to one generator."""

    async def send(model: Model, layer: int) -> None:
        weight = await model.allgather(model.weights[layer], layer, axis="place")
        await model.pass_to(model.RANKS // 2 + model.rank, weight.shard(model.rank % 2, 2))

    async def receive(model: Model, layer: int) -> None:
        model.weights[layer] = await model.receive(src=model.rank - model.RANKS // 2)
        model.set_final_weight(layer, model.weights[layer])

    return await afterwards(model, send, receive)


async def receive_and_pass_on(model: Model, layer: int) -> None:
    """A generator gets one piece of its half from a trainer, and the others from the generators of that half."""
    trainers, place = model.axis_size("place"), model.axis_index("place")
    half, copy = place % 2, place // 2
    others = [trainers + other for other in range(half, trainers, 2) if other != place]
    model.weights[layer] = own = await model.receive(src=half * (trainers // 2) + copy)
    passed_on = [model.pass_to(other, own) for other in others]
    for other in others:
        model.weights[layer] = model.weights[layer].combine(await model.receive(src=other))
    for call in passed_on:
        await call
    model.set_final_weight(layer, model.weights[layer])


def generator_of(model: Model) -> int:
    """The generator to which a trainer sends its piece."""
    half, copy = divmod(model.axis_index("place"), model.axis_size("place") // 2)
    return model.axis_size("place") + half + 2 * copy


async def crosses_once(model: Model) -> Model:
    """Each trainer sends its piece to one generator, which passes it on."""

    async def send(model: Model, layer: int) -> None:
        await model.pass_to(generator_of(model), model.weights[layer])

    return await afterwards(model, send, receive_and_pass_on)


async def crosses_early(model: Model) -> Model:
    """The same, under the next backward."""
    if model.axis_index("side") == 1:
        for layer in reversed(range(model.LAYERS)):
            await receive_and_pass_on(model, layer)
        return model
    sends: list[Any] = []
    await train(
        model,
        lambda layer: sends.append(model.pass_to(generator_of(model), model.weights[layer])),
    )
    for send in sends:
        await send
    return model


def on_two_nodes(fn: Callable[[Model], Any]) -> Run:
    """A run at the puzzle's size and prices."""
    cost = RingCost(
        backward=2,
        latency=0.03,
        bandwidth=2_457_600,
        latency_across=0.1,
        bandwidth_across=245_760,
    )
    mesh = {"side": 2, "place": 4}
    return run(fn, ranks=8, layers=6, batches=4, mesh=mesh, node_size=4, cost=cost)


def from_one_picture(static: bool = False) -> Figure:
    """All slow links but one stand still."""
    return draw(
        on_two_nodes(from_one),
        title="trainer 0 sends whole weights",
        memory=False,
        static=static,
    )


def while_training(static: bool = False) -> Figure:
    """A trainer, and the generator to which it sends."""
    done = on_two_nodes(crosses_early)
    return draw(
        [done.models[0], done.models[4]],
        title="while training goes on",
        memory=False,
        static=static,
    )


# %% [markdown] tags=["solution"]
# ### Faster: gathers behind work
#
# The program below also hides calls inside the node. In the forward pass, the next weight is gathered while this
# one is used, as in puzzle 12, and the last one is kept for its backward. In the backward pass, memory has room for one
# whole weight or gradient besides. So each sum is awaited, and the next weight is gathered under the update. That is
# {{star_run.time:.2f}} ticks, with no more memory than the first answer.
#
# How fast could it be? A trainer that has a micro-batch computes for {{computing}} ticks. Before that it has to gather
# the first weight, and after the last update its quarter has to cross:
# {{first:.2f}} + {{computing}} + {{across:.2f}} = {{first + computing + across:.2f}}.


# %% tags=["solution"]
async def sync_while_training(model: Model) -> Model:
    """A quarter crosses once, under the next backward; of gathers the first is waited for, and few others."""
    if model.axis_index("side") == 1:
        for layer in reversed(range(model.LAYERS)):
            await receive_and_pass_on(model, layer)
        return model
    trainers, place, end = model.axis_size("place"), model.axis_index("place"), model.LAYERS
    for layer in range(end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, place, trainers
        )
    model.activations[0] = model.get_activation([place])
    ahead = model.allgather(model.weights[0], 0, axis="place")
    for layer in range(end):
        model.weights["now"] = await ahead
        if layer < end - 1:
            ahead = model.allgather(model.weights[layer + 1], layer + 1, axis="place")
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights["now"]
        )
        if layer < end - 1:
            del model.weights["now"]
    model.grad_activations[end] = model.loss(model.activations.pop(end))

    sends = []

    def finish(layer: int, grad: WeightGrad) -> None:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
        sends.append(model.pass_to(generator_of(model), model.weights[layer]))

    weight = model.weights.pop("now")
    for layer in reversed(range(end)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        model.grad_weights[layer] = await model.scatterreduce(grad, layer, axis="place")
        del grad
        if layer > 0:
            ahead = model.allgather(model.weights[layer - 1], layer - 1, axis="place")
        finish(layer, model.grad_weights.pop(layer))
        if layer > 0:
            weight = await ahead
    for send in sends:
        await send
    return model


# %% [markdown]
# ### In real systems
#
# - In verl, trainers used to gather whole weights and broadcast them. Since PR 7324 each trainer can send its own
#   shards, and of these only what has changed. For a model of {{VERL_MODEL}} billion parameters, from {{VERL_TRAINERS}} GPUs to
#   {{VERL_COPIES}} copies of it, each on two GPUs, that took {{VERL[1]}} seconds instead of {{VERL[0]}}.
# - LlamaRL of Meta (arXiv 2505.24034) lets the GPUs of generators and trainers reach into each other's memory: a model
#   of {{LLAMA_RL}} billion parameters is there in about {{LLAMA_RL_SECONDS:word}} seconds.
# - Moonshot's checkpoint-engine brings a trillion parameters to thousands of GPUs in about {{KIMI}} seconds. Each
#   machine gets a part, and they pass the parts on.
#
# Often the generators do not stop meanwhile: they go on to write with the old weights until the new ones are complete.
# Then some answers are a step old, and the trainers have to correct for that, but no GPU waits.

# %% [markdown]
# ### On real GPUs
#
# The model and the GPUs of puzzle 4, in two nodes: {{priced.ranks // 2:word}} GPUs train, and there are
# {{priced.ranks // 4:word}} copies on the others, each on two GPUs.
#
# ![What a step takes](picture:priced)
#
# Half of the GPUs do not train, so the MFU can be half of the usual at most. The training alone takes
# {{trained_there.seconds:.3g}} s. If trainer 0 sends whole weights to all, it is {{from_one_there.seconds:.3g}} s, and
# {{early_there.seconds:.3g}} s if each piece crosses once, under the next backward.
#
# Be careful with one thing. These prices let a GPU take in several messages at once, each as fast as if it were alone.
# In our solution the trainers of a half all send to the same generator, and then to the next one. On a real network
# they would share that generator's link, so begin at a different one on each trainer.

# %% tags=["priced"]
from lib.real import H100_TORCHTITAN, LLAMA_3_8B, report

priced = run(
    weight_sync,
    ranks=16,
    layers=32,
    batches=8,
    mesh={"side": 2, "place": 8},
    cost=H100_TORCHTITAN.cost(LLAMA_3_8B, recompute="full"),
)
print(report(priced))

# %% tags=["figures"]
ours, to_all, halves, once, early, star_run = map(
    on_two_nodes,
    (weight_sync, from_one, gathered, crosses_once, crosses_early, sync_while_training),
)
VERL, VERL_MODEL = (34.26, 3.34), 8  # verl PR 7324: Qwen3-8B, FSDP2 to SGLang TP2
VERL_TRAINERS, VERL_COPIES = 16, 8
LLAMA_RL, LLAMA_RL_SECONDS = 405, 2  # arXiv 2505.24034
KIMI = 20  # README of checkpoint-engine: Kimi K2


async def train_alone(model: Model) -> Model:
    """The step without generators."""
    if model.axis_index("side") == 0:
        await train(model)
    return model


def sent(done: Run, rank: int) -> list[Any]:
    """The messages of a rank."""
    return [event for event in done.events if event.rank == rank and event.kind == "pass_to"]


def crossing(done: Run) -> tuple[float, float]:
    """How many weights cross for each layer, from all trainers and from the busiest."""
    each = [sum(event.elements for event in sent(done, rank)) for rank in range(ranks // 2)]
    return tuple(float(some / layers / cost.weight_elements) for some in (sum(each), max(each)))


def lasts(event: Any) -> float:
    """How long a message takes."""
    return float(event.end - event.start)


alone = on_two_nodes(train_alone)
inside, across, whole = (
    lasts(sent(done, rank)[0]) for done, rank in ((once, 4), (ours, 0), (to_all, 0))
)
first = min(float(event.end) for event in ours.events if event.kind == "allgather")
computing = layers * (cost.forward + cost.backward + cost.update)

trained_there, from_one_there, early_there = (
    run(fn, ranks=16, layers=32, batches=8, mesh={"side": 2, "place": 8}, cost=priced.cost)
    for fn in (train_alone, from_one, crosses_early)
)
