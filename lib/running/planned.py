"""The programs that ``plan`` tries unless it is given others: sharded data parallel, and pipelines with replicas.

They are for any mesh with the axes that they name, and run, print and draw as any program does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from itertools import pairwise
from typing import Any

from ..learner.model import Model
from ..learner.tensors import Activation, Weight, WeightGrad

# -- sharded data parallel -----------------------------------------------------------------------------


async def sharded(model: Model) -> Model:
    """FSDP with gradient accumulation. Weights, gradients and states are divided along ``shard``; the pieces that
    ``replica`` has several of (HSDP) are summed along it at the end of a step. Each weight is gathered one layer ahead,
    and the sum of a gradient is awaited one layer later."""
    return await _sharded(model, "shard")


async def sharded_with_copies(model: Model) -> Model:
    """FSDP in which every node, along ``shard``, keeps a copy of the weights that were gathered once in a step (hpZ):
    all later gathers stay inside it. Along ``node`` and ``shard`` everything is divided."""
    return await _sharded(model, None)


async def _sharded(model: Model, divided: str | None) -> Model:
    """Train this rank's micro-batches one after the other, everything being ``divided`` along an axis, or all of
    them."""
    place, pieces = (model.rank, model.RANKS)
    if divided:
        place, pieces = model.axis_index(divided), model.axis_size(divided)
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, place, pieces)
    for mb in range(model.rank, model.BATCHES, model.RANKS):
        await _there(model, mb, divided)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        await _back(model, divided)
    if divided and model.axis_size("replica") > 1:
        sums = {
            layer: model.allreduce(model.grad_weights.pop(layer), layer, "replica") for layer in range(model.LAYERS)
        }
        for layer, coming in sums.items():
            model.grad_weights[layer] = await coming
            _update(model, layer, model.weights[layer])
        return model
    for layer in range(model.LAYERS):
        model.weights.pop(("node", layer), None)
        _update(model, layer, model.weights[layer])
    return model


def _gathered(model: Model, layer: int, divided: str | None) -> Awaitable[Weight]:
    """Ask for a whole weight: of the copy that the node has, if it has one."""
    if ("node", layer) in model.weights:
        return model.allgather(model.weights["node", layer], layer, "shard")
    return model.allgather(model.weights[layer], layer, divided)


async def _there(model: Model, mb: int, divided: str | None) -> None:
    """Do the forward pass of one micro-batch; each weight is gathered one layer ahead."""
    model.activations[0] = model.get_activation([mb])
    ahead = _gathered(model, 0, divided)
    for layer in range(model.LAYERS):
        weight = model.weights["whole"] = await ahead
        if divided is None and ("node", layer) not in model.weights:
            place, pieces = model.axis_index("shard"), model.axis_size("shard")
            model.weights["node", layer] = weight.shard(place, pieces)
        if layer + 1 < model.LAYERS:
            ahead = _gathered(model, layer + 1, divided)
        inp = model.activations[layer]
        model.activations[layer + 1] = model.forward(layer, inp, model.weights.pop("whole"))


async def _back(model: Model, divided: str | None) -> None:
    """Do the backward pass, and add its gradients' shards to those of earlier micro-batches."""
    sums: dict[int, Awaitable[WeightGrad]] = {}

    async def add(layer: int) -> None:
        piece, so_far = await sums.pop(layer), model.grad_weights.pop(layer, None)
        model.grad_weights[layer] = so_far + piece if so_far else piece

    ahead = _gathered(model, model.LAYERS - 1, divided)
    for layer in reversed(range(model.LAYERS)):
        model.weights["whole"] = await ahead
        if layer > 0:
            ahead = _gathered(model, layer - 1, divided)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, model.weights.pop("whole"))
        sums[layer] = model.scatterreduce(grad, layer, divided)
        if layer + 1 in sums:
            await add(layer + 1)
    model.grad_activations.pop(0)
    await add(0)


def _update(model: Model, layer: int, weight: Weight) -> Weight:
    """Update the shard of a layer's weight for which this rank has the optimizer state."""
    weight, model.opt_states[layer] = model.update(
        layer, model.grad_weights.pop(layer), weight, model.opt_states[layer]
    )
    model.weights[layer] = weight
    model.set_final_weight(layer, weight)
    return weight


# -- pipelines -----------------------------------------------------------------------------------------


async def pipelined(model: Model) -> Model:
    """One-forward-one-backward along ``stage``, interleaved where a rank has several layers, with replicas along
    ``replica``. These divide the optimizer's states (ZeRO-1): each gradient is reduce-scattered at the end of a step,
    each replica updates its piece, and the new weight is gathered."""
    replica, replicas = model.axis_index("replica"), model.axis_size("replica")
    for layer in range(model.axis_index("stage"), model.LAYERS, model.axis_size("stage")):
        model.weights[layer], _ = model.load_weights(layer)
        _, model.opt_states[layer] = model.load_weights(layer, replica, replicas)
    batches = [*range(replica, model.BATCHES, replicas)]
    await _stages(model, batches)
    for layer in reversed(range(model.axis_index("stage"), model.LAYERS, model.axis_size("stage"))):
        if replicas == 1:
            _update(model, layer, model.weights[layer])
            continue
        model.grad_weights[layer] = await model.scatterreduce(model.grad_weights.pop(layer), layer, "replica")
        weight = _update(model, layer, model.weights[layer].shard(replica, replicas))
        model.weights[layer] = await model.allgather(weight, layer, "replica")
        model.set_final_weight(layer, model.weights[layer])
    return model


async def _stages(model: Model, batches: list[int]) -> None:
    """Take micro-batches through all stages and back. The next message is asked for while this rank computes."""
    stage, stages, top = model.axis_index("stage"), model.axis_size("stage"), model.LAYERS - 1
    before, after = model.rank_at(stage=(stage - 1) % stages), model.rank_at(stage=(stage + 1) % stages)
    acts, grads = model.activations, model.grad_activations
    work = [*_work(model, len(batches))]
    sources = [before if forward else after for forward, layer, _ in work if layer != (0 if forward else top)]
    mail = [model.receive(sources.pop(0))] if sources else []
    sends: list[Awaitable[Any]] = []
    for forward, layer, number in work:
        mb, store = batches[number], acts if forward else grads
        if forward and layer == 0:
            acts[0, mb] = model.get_activation([mb])
        if not forward and layer == top:
            grads[top, mb] = model.loss(acts.pop((top + 1, mb)))
        while (layer, mb) not in store:
            got = await mail.pop()
            (acts if isinstance(got, Activation) else grads)[got.layer, min(got.batches)] = got
            if sources:
                mail.append(model.receive(sources.pop(0)))
        if forward:
            out = model.forward(layer, acts[layer, mb], model.weights[layer])
            if layer < top:
                sends.append(model.pass_to(after, out))
            else:
                acts[top + 1, mb] = out
            continue
        grad, grad_in = model.backward(layer, acts.pop((layer, mb)), grads.pop((layer, mb)), model.weights[layer])
        so_far = model.grad_weights.pop(layer, None)
        model.grad_weights[layer] = so_far + grad if so_far else grad
        if layer > 0:
            sends.append(model.pass_to(before, grad_in))
    for send in sends:
        await send


def _work(model: Model, batches: int) -> Iterator[tuple[bool, int, int]]:
    """Yield what this rank does in order: whether it is a forward, the layer, and the number of the micro-batch. Layers
    take turns after as many micro-batches as there are stages."""
    stage, stages = model.axis_index("stage"), model.axis_size("stage")
    layers = [*range(stage, model.LAYERS, stages)]
    ends = [*range(0, batches, stages), batches]
    rounds = [range(*both) for both in pairwise(ends)]
    forwards = [(True, layer, number) for some in rounds for layer in layers for number in some]
    backwards = [(False, layer, number) for some in rounds for layer in reversed(layers) for number in some]
    ahead = stages - stage
    if len(layers) > 1:
        ahead = (len(layers) - 1) * stages + 2 * (stages - stage - 1) + 1
    yield from forwards[:ahead]
    for turn, backward in enumerate(backwards, ahead):
        yield backward
        yield from forwards[turn : turn + 1]
