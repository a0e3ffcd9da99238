# %% [markdown]
# # Puzzle 22: Offload
#
# You have a model of {{gb}} billion parameters, and one card with {{room}} GB. Training takes {{TRAINED}} bytes for
# each parameter, {{TRAINED * gb}} GB in all, and there is no second card to share them with. But the computer around
# the card has a processor, and that has {{TRAINED * gb}} GB of ordinary memory. The weights alone take
# {{WEIGHT * gb}} GB, so they fit on the card. The other {{(TRAINED - WEIGHT) * gb}} GB can live with the processor,
# which can do the optimizer's work, too.
#
# It is slow, though. The card's own memory brings {{own}} GB a second, the processor's {{slow}}, and the link between
# the two (PCIe) {{link}}. If everything happens one after the other, a step that the card computes in
# {{computing:.1f}} seconds takes {{together:.1f}}. How much of the other {{together - computing:.0f}} seconds can you
# hide?

# %%
from drawing import beside_target, compare, draw, play
from lib import Cost, Model, grade, hint, run, solution

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
    "hints_for": {"slow": 2, "large": 3},
    "ideas": ["one_micro_batch", "only_updated_weights", "updates_on_hosts"],
    "difficulty": "hard",
    "minutes": 40,
    "star_hint": "The host updates one layer after the other, and most of that comes after the device "
    "is done. Which gradient could be complete sooner, if the last micro-batch's came "
    "first, or if layers took turns? And what is beside all the weights when memory is "
    "highest?",
    "hints": [
        "Two programs in one function: `if model.is_host:` begins the host's. Write the device's as in puzzle 1, but "
        "where it would update a layer it sends the gradient to `model.host`. The host receives, updates, and sends "
        "the new weight to its device, `model.devices[0]`. Both have to agree on the order of the layers.",
        "The gradient of a layer can be on its way while the layers below it are computed, and the host can update "
        "it meanwhile: start the send with `sends.append(model.pass_to(model.host, grad))` and await it at the end. "
        "The device needs no new weight before the next step, so it receives them all at the end, too. For the star, "
        "ask when the host begins. What would the device have to compute first, so that the first gradient that has "
        "all micro-batches is there sooner?",
        "There is no room for all gradients on the device, and none for old weights beside new ones. Send each "
        "gradient as soon as it is made. The host adds: `grad = model.grad_weights.pop(layer) + grad`, and updates "
        "after the last micro-batch. At the last backward of a layer take its weight out of storage, "
        "`model.weights.pop(layer)`. For the star, no gradient may wait on the device while all weights are there: each "
        "micro-batch can go back through the last layer as soon as its loss is computed.",
    ],
}

# %% [markdown]
# ## A host
#
# `hosts=1` puts a *host* beside the device: the processor, with its memory. (*Device* is the word for the GPU here.)
# A host is a rank, too. It runs your function like all others, and its number comes after those of the devices.
#
# - `model.is_host` tells which of the two you are. A device finds the rank of its host in `model.host`; a host finds
#   the ranks of its devices in `model.devices`.
# - A host can do `load_weights`, `update`, `pass_to` and `receive`, and it can add up gradients. It computes no layer,
#   and takes part in no collective.
# - What a host stores is in its own memory. The peak memory that counts is the device's.
# - A send between the two takes `host_transfer` ticks, an update on the host `host_update` ticks.
#
# ```python
# run(offload, ranks=1, hosts=1, layers=6, batches=2, cost=...)
# ```

# %% [markdown]
# ## Your task
#
# Train on two micro-batches. Each forward and each backward takes one of them, as in puzzle 1; in which order is up to
# you. The device begins with all weights and no optimizer states, and ends with all weights, updated. The states are on
# the host, which makes all updates. Since an update takes a weight as well, the host has weights of its own: both call `load_weights`, and
# the device keeps only the first of what it gives. (On a real machine the host's copy has 32 bits, and is counted
# among the states.)
#
# The prices are those of the model and the card above, with a batch of {{tokens}} tokens in two micro-batches. A
# forward takes {{cost.forward}} tick, a backward {{cost.backward}}, since it computes the forward again (puzzle 11).
# A transfer takes {{cost.host_transfer}}, an update on the host {{cost.host_update}}: `cost=Cost(backward=3,
# receive=0, activation_elements=16_384, host_update=5.5)`.
#
# The grader holds you to this: {{ideas}}
#
# Target, for 1 rank with its host, 6 layers and 2 micro-batches: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements:
# {{Fraction(target.memory, layers * cost.weight_elements) - 1:word}} more than the weights, as {{room}} GB are {{Fraction(room, 2 * gb) - 1:word}} more than {{WEIGHT * gb}}. The star: **{{star.time}}** ticks, **{{star.memory}}** elements.
#
# Sends that go on while a rank computes are chains under way, as in the worked example of
# [puzzle 12](p12_prefetch.ipynb).


# %%
async def offload(model: Model) -> Model:
    """Weights and work on the device, optimizer states and updates on the host."""
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
# The same run, step by step, with the line of your code that each rank is at.
play(run(offload, ranks=1, hosts=1, layers=6, batches=2, cost=prices))

# %%
# Right? Fast and small enough? At other sizes, too? If you are stuck: hint("offload")
grade(offload)

# %% [markdown]
# ## What the host has time for
#
# Three programs. In the first everything comes one after the other: all gradients are made and added up, and then a
# layer goes down, is updated and comes back, and the next one after it. The device waits for {{plain.time - busy}}
# ticks. It also has no room for what it keeps: the gradients are as large as the weights, {{WEIGHT * gb}} GB more on
# a card of {{room}}.
#
# ![One after the other](picture:one_after_the_other)
#
# In the second, gradients leave as they are made. The host adds up those of both micro-batches, and begins to update
# while the device is still at its last backward pass.
#
# ![Overlapped](picture:as_they_are_made)
#
# It has little time for that. There are two micro-batches, and only after the second is a gradient complete. From
# then on the device needs {{cost.backward}} ticks for the backward of a layer, and the host {{cost.host_update}} for
# its update. So the host falls behind, and in the end the device waits for it.
#
# In the third program the device computes in another order. Both micro-batches go forward first. In the backward pass
# both go through a layer before either goes on to the next, so the first complete gradient is there at tick
# {{complete(by_layer)[0]}} and not at {{complete(ours)[0]}}, and the next one comes every
# {{complete(by_layer)[1] - complete(by_layer)[0]}} ticks. The host keeps up. Nothing else is left to wait for than
# the last layer's way: {{cost.host_transfer}} tick down, {{cost.host_update}} for the update, and
# {{cost.host_transfer}} up.
#
# ![Layer by layer](picture:layer_by_layer)
#
# No program is faster. The device computes for {{busy}} ticks, and whatever it computes last is a gradient that still
# has to go down, be used, and come back. The price is {{by_layer.memory / ours.memory - 1:percent}} more memory,
# since the inputs of both micro-batches are kept.
#
# How far does that go? Here are the last two programs with slower and faster hosts:
#
# | an update takes | {{row(updates)}} |
# |---|---|---|---|---|---|---|
# | micro-batch by micro-batch | {{row(by_micro_batch)}} |
# | layer by layer | {{row(layer_wise)}} |
#
# Up to {{cost.backward}} ticks, the backward of one micro-batch, the order makes no difference. Up to
# {{batches * cost.backward}}, the backward of both, layer by layer hides all updates but the last. Beyond that, the
# host is what you wait for, in any order.

# %% [markdown]
# ## Where these seconds come from
#
# An RTX 4090 has {{room}} GB and makes {{peak / 1e12}} x 10¹² operations a second at best; count on
# {{reached:percent}}. A step of {{gb}} billion parameters and {{tokens}} tokens takes {{OPERATIONS + 2}} operations
# for each parameter and token: 2 forward, {{OPERATIONS - 2}} backward, and 2 to compute the forward again, since the
# card has no room for what is inside the layers. That makes **{{computing:.1f}} s**. Over PCIe 4, at {{link}} GB a
# second, the {{GRADIENT * gb}} GB of gradients go down in {{down:.2f}} s, and the weights come up in {{down:.2f}} s.
# Adam on the host reads and writes {{STATE}} bytes of states for each parameter, reads {{GRADIENT}} of a gradient and
# writes {{WEIGHT}} of a new weight, {{moved}} in all. Two channels of memory give {{slow}} GB a second, so that takes
# {{adam:.1f}} s. Together **{{together:.1f}} s**.
#
# Of {{deep}} layers, each takes {{1000 * tick:.0f}} ms forward for {{tokens // 2}} tokens: this is a tick. A transfer
# of {{1000 * WEIGHT * gb / deep}} MB takes {{1000 * down / deep:.0f}} ms, an update {{1000 * adam / deep:.0f}} ms, or
# {{adam / deep / tick:.1f}} ticks. And the input of a layer, {{tokens // 2}} tokens of {{hidden}} numbers, is
# {{Fraction(1, round(gb * BILLION / deep / (tokens // 2 * hidden))):word}} of its weight.

# %% [markdown] tags=["solution"]
# ## The programs above
#
# One after the other, layer by layer, and the pictures.

# %% tags=["solution"]
from collections.abc import Callable
from typing import Any

from drawing import Figure
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
# ## The star: nothing waits beside all the weights
#
# Layer by layer, memory is highest at the second backward of the last layer: all weights are still there, and the
# gradient of the first micro-batch waits to be added. It need not wait. The first micro-batch can go back through the
# last layer before the second goes forward, and its gradient is sent at once. The host adds up those of this layer, and
# the device those of the others, as before. That takes {{small.time}} ticks, too, and {{small.memory}} elements instead
# of {{by_layer.memory}}.


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
# ## Beyond the task: the weights can go, too
#
# The task leaves all weights on the device from beginning to end. But it uses one at a time, so why keep six? Here it
# drops a weight after its forward. The host has the same one, and sends it back two layers before its backward comes.
# New weights are handed in as they arrive and dropped as well. That is as fast, in less than half the memory:
# {{without.memory}} elements, fewer than the six weights alone would take ({{layers * cost.weight_elements}}), so
# `grade` does not take it for an answer. (In the forward pass a weight is loaded when it is first needed. That is free
# here; on a real machine it would be one more transfer for each layer, {{cost.host_transfer}} tick beside
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
# ## Where real systems do this
#
# ZeRO-Offload (arXiv 2101.06840) keeps weights on the GPU, sends gradients to the processor during the backward pass,
# and updates there with an Adam of its own, written for the processor's vector instructions. It trains models of
# {{theirs}} billion parameters on one GPU with {{their_card}} GB. With several GPUs each sends only its shard of the
# sum, as in puzzle 10, so that all of their hosts share the work. Where the update is too slow to hide, it can be
# delayed by a step: the GPU goes on with the next batch and old weights. That is no longer plain training, and here
# it would be refused.
#
# ZeRO-Infinity (arXiv 2104.07857) sends away the weights as well, to the host or to a disk. PyTorch's FSDP2 does so
# with `CPUOffloadPolicy`: weights, gradients and states are on the host, and weights come to the GPU when a layer
# needs them. The optimizer there begins when the whole backward pass is done, as in the first picture.

# %% [markdown]
# ## On real GPUs
#
# One RTX 4090, alone in its computer, which has {{slow}} GB/s of memory bandwidth: the machine from which this
# puzzle's prices come, with {{priced.batches:word}} micro-batches of {{priced.cost.model.sequence}} tokens, since the
# loss takes memory as well.
#
# ![What a step takes](picture:priced)
#
# The host works until the end, and the device waits for it, as in the second picture. So a good part of the
# {{together - computing:.0f}} seconds is not hidden. Layer by layer, in the order of the star, the same step takes
# {{in_order.seconds:.2f}} s.
#
# One thing is missing in these prices: to add two gradients costs the host nothing. It would have to read both and
# write their sum, and to do that {{priced.batches - 1:word}} times for all layers takes about
# {{(priced.batches - 1) * 3 * GRADIENT * gb / slow:.1f}} s at {{slow}} GB a second. In the order of the star the
# device adds nearly all of them, which takes it next to no time.

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
