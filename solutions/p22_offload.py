# %% [markdown]
# # Puzzle 22: Offload
#
# You have a model of {{gb}} billion parameters and one card with {{room}} GB. The weights fit, with {{WEIGHT * gb}}
# GB. Everything that training needs takes {{TRAINED * gb}} GB, and the only other memory is the ordinary, slow memory
# of the processor. Can the optimizer live there, without the card waiting for it?
#
# ![Everything one after the other](picture:one_after_the_other)
#
# Here the device (the GPU) and its host (the processor) take turns, so each of them mostly waits. Gradients pile up,
# and memory is over the target. In code, `hosts=1` adds a rank that is a host: it runs your function, too.
#
# ```python
# if model.is_host:  # it can load, add up gradients, update and send, but computes no layer
#     grad = await model.receive()  # from one of model.devices
# else:
#     await model.pass_to(model.host, grad)
# ```

# %%
from drawing import beside_target, draw, play
from lib import Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 22,
    "name": "offload",
    "title": "Offload",
    "size": {"ranks": 1, "layers": 6, "batches": 2, "hosts": 1},
    "other_sizes": "one_rank",
    "target": {"time": 68.0, "memory": 2359296},
    "star": {"time": 55.5, "memory": 1949696},
    "frontier": [
        {"time": 55.5, "memory": 1949696, "by": "offload_top_first"},
        {"time": 68.0, "memory": 1933312, "by": "offload"},
    ],
    "cost": "slow_host",
    "layout": "whole",
    "words": ["hosts"],
    "begins_with": "grad_accum",
    "hints_for": {"slow": 2, "large": 2},
    "ideas": ["one_micro_batch", "only_updated_weights", "updates_on_hosts"],
    "difficulty": "hard",
    "minutes": 40,
    "star_hint": "The host updates one layer after the other, mostly when the device is done. In which order of the "
    "work would the first gradients be complete sooner? And what is in memory besides the weights when memory is "
    "highest?",
    "hints": [
        "Two programs in one function: `if model.is_host:` begins the host's. Write the device's as in puzzle 1, but "
        "where it would update a layer it sends the gradient to `model.host`. The host receives, updates, and sends "
        "the new weight to its device, `model.devices[0]`. Both have to agree on the order of the layers.",
        "The gradient of a layer can be on its way while the layers below it are computed, and the host can update "
        "it meanwhile: start the send with `sends.append(model.pass_to(model.host, grad))` and await it at the end. "
        "The device needs no new weight before the next step, so it receives them all at the end, too. Its memory "
        "has no room for all gradients, and none for old weights beside new ones. For the star, ask when the host "
        "begins. What would the device have to compute first, so that the first gradient that has all micro-batches "
        "is there sooner?",
        "Send each gradient as soon as it is made. The host adds: `grad = model.grad_weights.pop(layer) + grad`, "
        "and updates after the last micro-batch. At the last backward of a layer take its weight out of storage, "
        "`model.weights.pop(layer)`. For the star, no gradient may wait on the device while all weights are there: "
        "each micro-batch can go back through the last layer as soon as its loss is computed.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train on two micro-batches. The device begins and ends with all weights, and has no optimizer states; the host makes
# the updates. Both call `load_weights`; the device keeps the weight, and drops the state.
#
# - {{ideas}}
# - A backward takes {{cost.backward}} ticks, a transfer {{cost.host_transfer}}, an update on the host
#   {{cost.host_update}}.
# - Only the device's memory counts.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def offload(model: Model) -> Model:
    """Layers on the device, updates on the host."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        if model.is_host:
            model.opt_states[layer] = state

    last, sends = model.BATCHES - 1, []
    if model.is_host:
        for mb in range(model.BATCHES):
            for layer in reversed(range(model.LAYERS)):
                grad = await model.receive()
                if mb > 0:
                    grad = model.grad_weights.pop(layer) + grad
                if mb < last:
                    model.grad_weights[layer] = grad
                    continue
                model.weights[layer], model.opt_states[layer] = model.update(
                    layer, grad, model.weights[layer], model.opt_states[layer]
                )
                sends.append(model.pass_to(model.devices[0], model.weights[layer]))
        for send in sends:
            await send
        return model

    for mb in range(model.BATCHES):
        model.activations[0] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            inp, weight = model.activations[layer], model.weights[layer]
            model.activations[layer + 1] = model.forward(layer, inp, weight)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            weight = model.weights[layer] if mb < last else model.weights.pop(layer)
            grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
            sends.append(model.pass_to(model.host, grad))
        del model.grad_activations[0]

    for send in sends:
        await send
    for layer in reversed(range(model.LAYERS)):
        model.weights[layer] = await model.receive()
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
prices = Cost(backward=3, receive=0, activation_elements=16_384, host_update=5.5)
draw(run(offload, ranks=1, hosts=1, layers=6, batches=2, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(offload)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. It asks in which order the device computes while sends
# are on their way; [puzzle 12](p12_prefetch.ipynb) is about such calls. To watch your own run, with the line that
# each rank is at:

# %%
play(run(offload, ranks=1, hosts=1, layers=6, batches=2, cost=prices))

# %% [markdown]
# ### What the host has time for
#
# The picture at the top shows everything one after the other: all gradients are made and added up, and then one layer
# after another goes down, is updated and comes back. The device waits for {{plain.time - busy}} ticks. It also keeps
# all gradients, which are as large as the weights: {{WEIGHT * gb}} GB more on a card of {{room}}.
#
# In the next program each gradient leaves as soon as it is made. The host adds up the gradients of both
# micro-batches. It begins to update while the device is still in its last backward pass.
#
# ![Overlapped](picture:as_they_are_made)
#
# That leaves the host little time. A gradient is complete only after the second micro-batch. From then on the device
# needs {{cost.backward}} ticks for the backward of a layer, and the host {{cost.host_update}} for its update. So the
# host falls behind, and in the end the device waits for it.
#
# In the last program the device computes in another order. Both micro-batches go forward first. In the backward pass
# both go through a layer before either goes on to the next. So the first complete gradient is there at tick
# {{complete(by_layer)[0]}} instead of {{complete(ours)[0]}}, and the next one comes every
# {{complete(by_layer)[1] - complete(by_layer)[0]}} ticks. Now the host keeps up. At the end the device waits only for
# the last layer: {{cost.host_transfer}} tick down, {{cost.host_update}} for the update, and {{cost.host_transfer}}
# up.
#
# ![Layer by layer](picture:layer_by_layer)
#
# No program is faster. The device computes for {{busy}} ticks, and the gradient that it computes last still has to go
# down, be used, and come back as a weight. The price is {{by_layer.memory / ours.memory - 1:percent}} more memory,
# because the inputs of both micro-batches are kept.
#
# How far does that go? Here are the last two programs with faster and slower hosts:
#
# | an update takes | {{row(updates)}} |
# |---|---|---|---|---|---|---|
# | micro-batch by micro-batch | {{row(by_micro_batch)}} |
# | layer by layer | {{row(layer_wise)}} |
#
# If an update takes up to {{cost.backward}} ticks, the backward of one micro-batch, the order makes no difference. Up
# to {{batches * cost.backward}}, the backward of both, the order "layer by layer" hides all updates but the last. If it
# takes more, the device waits for the host in any order.

# %% [markdown]
# ### Where the prices come from
#
# An RTX 4090 has {{room}} GB. At best it does {{peak / 1e12}} x 10¹² operations a second, and in practice some
# {{reached:percent}} of that. A step of {{gb}} billion parameters and {{tokens}} tokens takes {{OPERATIONS + 2}}
# operations for each parameter and token: 2 forward, {{OPERATIONS - 2}} backward, and 2 to compute the forward again
# (puzzle 11), since the card has no room for what is inside the layers. That makes **{{computing:.1f}} s**. The
# card's own memory brings {{own}} GB a second, and PCIe 4, the link to the processor, {{link}}. So the
# {{GRADIENT * gb}} GB of gradients go down in {{down:.2f}} s, and the weights come up in {{down:.2f}} s. For each
# parameter, Adam on the host reads and writes {{STATE}} bytes of states, reads {{GRADIENT}} bytes of gradient and
# writes {{WEIGHT}} bytes of weight: {{moved}} in all. The processor's memory has two channels and brings {{slow}} GB
# a second, so that takes {{adam:.1f}} s. One after the other, all this takes **{{together:.1f}} s**.
#
# There are {{deep}} layers. A layer takes {{1000 * tick:.0f}} ms forward for {{tokens // 2}} tokens: this is a tick. A
# transfer of {{1000 * WEIGHT * gb / deep}} MB takes {{1000 * down / deep:.0f}} ms, and an update
# {{1000 * adam / deep:.0f}} ms, or {{adam / deep / tick:.1f}} ticks. The input of a layer, {{tokens // 2}} tokens of
# {{hidden}} numbers, is {{Fraction(1, round(gb * BILLION / deep / (tokens // 2 * hidden))):word}} of its weight. The
# weights take {{Fraction(layers * cost.weight_elements, target.memory):word}} of the target's memory, just as
# {{WEIGHT * gb}} GB are {{Fraction(2 * gb, room):word}} of {{room}} GB. On a real machine the host's own copy of the
# weights has 32 bits, and is counted among the states.

# %% [markdown] tags=["solution"]
# ### The programs of the pictures
#
# One after the other, layer by layer, and the pictures.

# %% tags=["solution"]
from collections.abc import Callable
from typing import Any

from drawing import Figure, compare
from lib import Run, WeightGrad


async def offload_blocking(model: Model) -> Model:
    """All gradients on the device, and then one layer after the other."""
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        if model.is_host:
            model.opt_states[layer] = state

    if model.is_host:
        for layer in reversed(range(model.LAYERS)):
            grad = await model.receive()
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            await model.pass_to(model.devices[0], model.weights[layer])
        return model

    for mb in range(model.BATCHES):
        model.activations[0] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            inp, weight = model.activations[layer], model.weights[layer]
            model.activations[layer + 1] = model.forward(layer, inp, weight)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            if mb > 0:
                grad = model.grad_weights.pop(layer) + grad
            model.grad_weights[layer] = grad
        del model.grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        del model.weights[layer]
        await model.pass_to(model.host, model.grad_weights.pop(layer))
        model.weights[layer] = await model.receive()
        model.set_final_weight(layer, model.weights[layer])
    return model


async def offload_by_layer(model: Model) -> Model:
    """Both micro-batches through a layer, forwards and backwards, before the next layer."""
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        if model.is_host:
            model.opt_states[layer] = state

    sends = []
    if model.is_host:
        for layer in reversed(range(model.LAYERS)):
            grad = await model.receive()
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            sends.append(model.pass_to(model.devices[0], model.weights[layer]))
        for send in sends:
            await send
        return model

    for mb in range(model.BATCHES):
        model.activations[0, mb] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        model.grad_activations[mb] = model.loss(model.activations.pop((model.LAYERS, mb)))

    for layer in reversed(range(model.LAYERS)):
        for mb in range(model.BATCHES):
            inp, grad_out = model.activations.pop((layer, mb)), model.grad_activations.pop(mb)
            grad, model.grad_activations[mb] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            if mb > 0:
                grad = model.grad_weights.pop(layer) + grad
            model.grad_weights[layer] = grad
        del model.weights[layer]
        sends.append(model.pass_to(model.host, model.grad_weights.pop(layer)))
    model.grad_activations.clear()

    for send in sends:
        await send
    for layer in reversed(range(model.LAYERS)):
        model.weights[layer] = await model.receive()
        model.set_final_weight(layer, model.weights[layer])
    return model


def on_the_card(fn: Callable[[Model], Any], update: float = 5.5) -> Run:
    """A run at the puzzle's size, with a host that takes so long for an update."""
    card = Cost(backward=3, receive=0, activation_elements=16_384, host_update=update)
    return run(fn, ranks=1, hosts=1, layers=6, batches=2, cost=card)


def drawn(fn: Callable[[Model], Any], title: str, static: bool) -> Figure:
    """A picture of such a run."""
    models = on_the_card(fn).models
    return draw(models, title=title, memory_target=2_359_296, static=static)


def one_after_the_other(static: bool = False) -> Figure:
    """The device waits for the host, and the host for the device."""
    return drawn(offload_blocking, "one after the other", static)


def as_they_are_made(static: bool = False) -> Figure:
    """They work at the same time for a while."""
    return drawn(offload, "micro-batch by micro-batch", static)


def layer_by_layer(static: bool = False) -> Figure:
    """They work at the same time for nearly all updates."""
    return drawn(offload_by_layer, "layer by layer", static)


both = [on_the_card(fn) for fn in (offload, offload_by_layer)]
compare(*both, titles=["micro-batch by micro-batch", "layer by layer"])

# %% [markdown] tags=["solution"]
# ### The star: nothing waits beside all the weights
#
# Layer by layer, memory is highest at the second backward of the last layer. All weights are still there, and the
# first micro-batch's gradient waits for the second's. It need not wait. The first micro-batch can go back through the
# last layer before the second goes forward, and its gradient is sent at once. The host adds up the gradients of this
# layer, and the device adds up the others, as before. That takes {{small.time}} ticks, too, and {{small.memory}}
# elements instead of {{by_layer.memory}}.


# %% tags=["solution"]
async def offload_top_first(model: Model) -> Model:
    """Each micro-batch forward and back through the last layer; then both through one layer after the other."""
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer)
        if model.is_host:
            model.opt_states[layer] = state

    top, last, sends = model.LAYERS - 1, model.BATCHES - 1, []
    if model.is_host:
        for layer in reversed(range(model.LAYERS)):
            for _ in range(model.BATCHES if layer == top else 1):
                grad, so_far = await model.receive(), model.grad_weights.pop(layer, None)
                model.grad_weights[layer] = so_far + grad if so_far else grad
            grad = model.grad_weights.pop(layer)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, grad, model.weights[layer], model.opt_states[layer]
            )
            sends.append(model.pass_to(model.devices[0], model.weights[layer]))
        for send in sends:
            await send
        return model

    def backward(layer: int, mb: int) -> WeightGrad:
        inp, grad_out = model.activations.pop((layer, mb)), model.grad_activations.pop(mb)
        weight = model.weights[layer] if mb < last else model.weights.pop(layer)
        grad, model.grad_activations[mb] = model.backward(layer, inp, grad_out, weight)
        return grad

    for mb in range(model.BATCHES):
        model.activations[0, mb] = model.get_activation([mb])
        for layer in range(model.LAYERS):
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        model.grad_activations[mb] = model.loss(model.activations.pop((model.LAYERS, mb)))
        sends.append(model.pass_to(model.host, backward(top, mb)))

    for layer in reversed(range(top)):
        for mb in range(model.BATCHES):
            grad = backward(layer, mb)
            if mb > 0:
                grad = model.grad_weights.pop(layer) + grad
            model.grad_weights[layer] = grad
        sends.append(model.pass_to(model.host, model.grad_weights.pop(layer)))
    model.grad_activations.clear()

    for send in sends:
        await send
    for layer in reversed(range(model.LAYERS)):
        model.weights[layer] = await model.receive()
        model.set_final_weight(layer, model.weights[layer])
    return model


draw(on_the_card(offload_top_first))

# %% [markdown] tags=["solution"]
# ### Beyond the task: the weights can go, too
#
# The task keeps all weights on the device from beginning to end. But the device uses one at a time, so why keep six?
# Here it drops a weight after its forward. The host has the same one, and sends it back two layers before its
# backward. New weights are handed in as they arrive, and dropped as well. That is as fast, in less than half the
# memory: {{without.memory}} elements, fewer than the six weights alone ({{layers * cost.weight_elements}}). So
# `grade` does not take it for an answer. (In the forward pass a weight is loaded when it is first needed. That is
# free here. On a real machine it would be one more transfer for each layer, {{cost.host_transfer}} tick beside
# {{batches * cost.forward}} of work.)


# %% tags=["solution"]
async def offload_weights_too(model: Model) -> Model:
    """Layer by layer, with two or three weights on the device at a time."""
    top, everything, sends = model.LAYERS - 1, range(model.BATCHES), []
    if model.is_host:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        for layer in reversed(range(model.LAYERS)):
            model.grad_weights[layer] = await model.receive()
            if layer >= 2:
                sends.append(model.pass_to(model.devices[0], model.weights[layer - 2]))
            model.weights[layer], model.opt_states[layer] = model.update(
                layer,
                model.grad_weights.pop(layer),
                model.weights[layer],
                model.opt_states[layer],
            )
            sends.append(model.pass_to(model.devices[0], model.weights[layer]))
        for send in sends:
            await send
        return model

    for mb in everything:
        model.activations[0, mb] = model.get_activation([mb])
    for layer in range(model.LAYERS):
        model.weights[layer], _ = model.load_weights(layer)
        for mb in everything:
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        if layer < top - 1:
            del model.weights[layer]
    for mb in everything:
        model.grad_activations[mb] = model.loss(model.activations.pop((model.LAYERS, mb)))

    for layer in reversed(range(model.LAYERS)):
        if layer < top - 1:
            model.weights[layer] = await model.receive()
            updated = model.receive()
        for mb in everything:
            if mb == everything[-1] and layer < top - 1:
                model.set_final_weight(layer + 2, await updated)
            inp, grad_out = model.activations.pop((layer, mb)), model.grad_activations.pop(mb)
            weight = model.weights.pop(layer) if mb == everything[-1] else model.weights[layer]
            grad, model.grad_activations[mb] = model.backward(layer, inp, grad_out, weight)
            if mb > 0:
                grad = model.grad_weights.pop(layer) + grad
            model.grad_weights[layer] = grad
        sends.append(model.pass_to(model.host, model.grad_weights.pop(layer)))
    model.grad_activations.clear()
    for send in sends:
        await send
    for layer in reversed(range(min(2, model.LAYERS))):
        model.set_final_weight(layer, await model.receive())
    return model


draw(run(offload_weights_too, ranks=1, hosts=1, layers=6, batches=2, cost=prices))

# %% [markdown]
# ### Where real systems do this
#
# ZeRO-Offload (arXiv 2101.06840) keeps weights on the GPU, sends gradients to the processor during the backward pass,
# and updates them there with an Adam that is written for the processor's vector instructions. It trains models of
# {{theirs}} billion parameters on one GPU with {{their_card}} GB. With several GPUs each sends only its shard of the
# sum, as in puzzle 10, so that all of their hosts share the work. Where the update is too slow to hide, it can be
# delayed by a step: the GPU goes on with the next batch and old weights. That is no longer plain training, and here
# it would be refused.
#
# ZeRO-Infinity (arXiv 2104.07857) sends away the weights as well, to the host or to a disk. PyTorch's FSDP2 does so
# with `CPUOffloadPolicy`: weights, gradients and states are on the host, and weights come to the GPU when a layer
# needs them. Its optimizer begins when the whole backward pass is done, as in the picture at the top.

# %% [markdown]
# ### On real GPUs
#
# One RTX 4090, alone in a computer with {{slow}} GB/s of memory bandwidth. This is the machine of the puzzle's
# prices. But there are {{priced.batches:word}} micro-batches of {{priced.cost.model.sequence}} tokens here, since the
# loss takes memory as well.
#
# ![What a step takes](picture:priced)
#
# Here, too, the host works until the end, and the device waits for it. So a good part of the
# {{together - computing:.0f}} seconds is not hidden. Layer by layer the same step takes {{in_order.seconds:.2f}} s.
#
# These prices leave one thing out: to add two gradients costs the host nothing. A real host reads both and writes
# their sum. To do that {{priced.batches - 1:word}} times for all layers takes about
# {{(priced.batches - 1) * 3 * GRADIENT * gb / slow:.1f}} s at {{slow}} GB a second. In the order "layer by layer",
# the device adds nearly all of them, in next to no time.

# %% tags=["priced"]
from dataclasses import replace

from lib.real import LLAMA_3_8B, RTX_4090, report

priced = run(
    offload,
    hosts=1,
    layers=32,
    batches=4,
    cost=replace(RTX_4090, gpus_per_box=1).cost(
        replace(LLAMA_3_8B, sequence=2048), recompute="full"
    ),
)
print(report(priced))

# %% tags=["figures"]
gb, room, own, slow, link, tokens = (
    8,
    24,
    1008,
    60,
    25,
    8192,
)  # GB, and GB a second: an RTX 4090 in its computer
peak, reached, deep, hidden = 165e12, 0.6, 32, 4096
computing = (OPERATIONS + 2) * gb * BILLION * tokens / (reached * peak)  # seconds
moved = 2 * STATE + GRADIENT + WEIGHT
down, adam = GRADIENT * gb / link, moved * gb / slow
together = computing + adam + 2 * down
tick = 2 * gb * BILLION / deep * (tokens // 2) / (reached * peak)

plain, ours, by_layer, small, without = map(
    on_the_card,
    (offload_blocking, offload, offload_by_layer, offload_top_first, offload_weights_too),
)
busy = batches * layers * (cost.forward + cost.backward)
updates = 2, 3, 4, 5.5, 6, 8
by_micro_batch, layer_wise = (
    [on_the_card(fn, update).time for update in updates] for fn in (offload, offload_by_layer)
)


def row(numbers: Any) -> str:
    """A row of the table."""
    return " | ".join(map(show, numbers))


def complete(done: Run) -> list[float]:
    """When the device sends gradients that have the last micro-batch."""
    return [
        event.issued
        for event in done.models[0].log
        if event.kind == "pass_to" and batches - 1 in event.batches
    ]


theirs, their_card = (published(value, "arXiv 2101.06840") for value in (13, 32))
in_order = run(
    offload_by_layer, hosts=1, layers=priced.layers, batches=priced.batches, cost=priced.cost
)
