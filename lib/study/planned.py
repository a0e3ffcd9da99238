"""The programs that ``plan`` tries unless it is given others: sharded data parallel, and pipelines with replicas.

They are for any mesh with the axes that they name, and run, print and draw as any program does. On a machine with a
host for each rank (``run(..., hosts=ranks)``) the optimizer's states are there, and the hosts make the updates. Those
for adapters are run with ``train="adapters"``: an adapter is divided, gathered and reduced as its frozen weight is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from ..learner.model import Model
from ..learner.tensors import Activation, Weight, WeightGrad

# -- what a rank begins and ends with --------------------------------------------------------------------


class Piece(NamedTuple):
    """Which piece of each layer a rank has: number ``place`` of ``pieces``; and whether adapters are trained."""

    place: int
    pieces: int
    adapters: bool


def _trained(layer: int, adapters: bool) -> Any:
    """The key under which what is trained of a layer is stored."""
    return ("adapter", layer) if adapters else layer


def _load(model: Model, layer: int, mine: Piece) -> None:
    """Load a piece of a layer, and the state of what is trained of it, unless a host beside this rank has that."""
    weight, state = model.load_weights(layer, mine.place, mine.pieces)
    if not model.is_host or not mine.adapters:
        model.weights[layer] = weight
    if mine.adapters:
        model.weights["adapter", layer], state = model.load_adapter(layer, mine.place, mine.pieces)
    if model.is_host or model.host is None:
        model.opt_states[layer] = state


def _update(model: Model, layer: int, weight: Weight, adapters: bool = False) -> Weight:
    """Update what this rank has the state of."""
    weight, model.opt_states[layer] = model.update(
        layer, model.grad_weights.pop(layer), weight, model.opt_states[layer]
    )
    model.weights[_trained(layer, adapters)] = weight
    if not model.is_host:
        model.set_final_weight(layer, weight)
    return weight


async def _on_host(model: Model, layers: Iterator[int] | range, mine: Piece) -> Model:
    """Update the layers of a device one after the other, as their gradients come, and send each weight back."""
    sends = list[Awaitable[Any]]()
    for layer in layers:
        _load(model, layer, mine)
    for layer in layers:
        model.grad_weights[layer] = await model.receive(model.devices[0])
        weight = _update(model, layer, model.weights[_trained(layer, mine.adapters)], mine.adapters)
        sends.append(model.pass_to(model.devices[0], weight))
    for send in sends:
        await send
    return model


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


async def sharded_adapters(model: Model) -> Model:
    """The same as ``sharded``, where adapters are trained beside frozen weights (LoRA)."""
    return await _sharded(model, "shard", adapters=True)


async def sharded_adapters_with_copies(model: Model) -> Model:
    """The same as ``sharded_with_copies``, where adapters are trained beside frozen weights."""
    return await _sharded(model, None, adapters=True)


async def _sharded(model: Model, divided: str | None, adapters: bool = False) -> Model:
    """Train this rank's micro-batches one after the other, everything being ``divided`` along an axis, or all of
    them."""
    pieces = model.axis_size(divided) if divided else model.RANKS
    if model.is_host:
        mine = Piece(model.devices[0] % pieces, pieces, adapters)
        return await _on_host(model, range(model.LAYERS - 1, -1, -1), mine)
    mine = Piece(model.axis_index(divided) if divided else model.rank, pieces, adapters)
    for layer in range(model.LAYERS):
        _load(model, layer, mine)
    for mb in range(model.rank, model.BATCHES, model.RANKS):
        await _there(model, mb, divided, adapters)
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        await _back(model, divided, adapters)
    for layer in range(model.LAYERS):
        model.weights.pop(("node", layer), None)
    await _step(model, "replica" if divided and model.axis_size("replica") > 1 else None, adapters)
    return model


async def _step(model: Model, axis: str | None, adapters: bool) -> None:
    """Update all layers with gradients that are complete, or summed along an axis first."""
    layers, sums = range(model.LAYERS - 1, -1, -1), dict[int, Awaitable[WeightGrad]]()
    for layer in layers if axis else ():
        sums[layer] = model.allreduce(model.grad_weights.pop(layer), layer, axis)
    sends = list[Awaitable[Any]]()
    for layer in layers:
        key = _trained(layer, adapters)
        if axis:
            model.grad_weights[layer] = await sums.pop(layer)
        if model.host is None:
            _update(model, layer, model.weights[key], adapters)
        else:
            sends.append(model.pass_to(model.host, model.grad_weights.pop(layer)))
    for layer in layers if model.host is not None else ():
        key = _trained(layer, adapters)
        model.weights.pop(key)
        model.weights[key] = await model.receive(model.host)
        model.set_final_weight(layer, model.weights[key])
    for send in sends:
        await send


def _gathered(model: Model, layer: int, divided: str | None, adapters: bool) -> list[Awaitable[Weight]]:
    """Ask for a whole weight: of the copy that the node has, if it has one; and for its adapter."""
    if ("node", layer) in model.weights:
        calls = [model.allgather(model.weights["node", layer], layer, "shard")]
    else:
        calls = [model.allgather(model.weights[layer], layer, divided)]
    if adapters:
        calls.append(model.allgather(model.weights["adapter", layer], layer, divided))
    return calls


async def _there(model: Model, mb: int, divided: str | None, adapters: bool) -> None:
    """Do the forward pass of one micro-batch; each weight is gathered one layer ahead."""
    model.activations[0] = model.get_activation([mb])
    ahead = _gathered(model, 0, divided, adapters)
    for layer in range(model.LAYERS):
        await _whole(model, ahead)
        if divided is None and ("node", layer) not in model.weights:
            place, pieces = model.axis_index("shard"), model.axis_size("shard")
            model.weights["node", layer] = model.weights["whole"].shard(place, pieces)
        if layer + 1 < model.LAYERS:
            ahead = _gathered(model, layer + 1, divided, adapters)
        inp, adapter = model.activations[layer], model.weights.pop("adapter", None)
        model.activations[layer + 1] = model.forward(layer, inp, model.weights.pop("whole"), adapter=adapter)


async def _whole(model: Model, calls: list[Awaitable[Weight]]) -> None:
    """Store a whole weight, and its adapter."""
    for name, coming in zip(("whole", "adapter"), calls, strict=False):
        model.weights[name] = await coming


async def _back(model: Model, divided: str | None, adapters: bool) -> None:
    """Do the backward pass, and add the shards of its gradients to those of earlier micro-batches."""
    sums: dict[int, Awaitable[WeightGrad]] = {}

    async def add(layer: int) -> None:
        piece, so_far = await sums.pop(layer), model.grad_weights.pop(layer, None)
        model.grad_weights[layer] = so_far + piece if so_far else piece

    ahead = _gathered(model, model.LAYERS - 1, divided, adapters)
    for layer in reversed(range(model.LAYERS)):
        await _whole(model, ahead)
        if layer > 0:
            ahead = _gathered(model, layer - 1, divided, adapters)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        weight, adapter = model.weights.pop("whole"), model.weights.pop("adapter", None)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight, adapter=adapter)
        sums[layer] = model.scatterreduce(grad, layer, divided)
        if layer + 1 in sums:
            await add(layer + 1)
    model.grad_activations.pop(0)
    await add(0)


async def zero1(model: Model) -> Model:
    """Data parallel with gradient accumulation, in which ranks divide the optimizer's states (ZeRO-1). In the last
    backward pass the gradient of each layer is reduce-scattered while the next one is made; each rank updates its
    piece, and new weights are gathered."""
    weights, grads, acts, layers = model.weights, model.grad_weights, model.activations, range(model.LAYERS)
    for layer in layers:
        weights[layer], _ = model.load_weights(layer)
        _, model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    mine, sums = [*range(model.rank, model.BATCHES, model.RANKS)], dict[int, Awaitable[WeightGrad]]()
    for mb in mine:
        acts[0] = model.get_activation([mb])
        for layer in layers:
            acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
        model.grad_activations["last"] = model.loss(acts.pop(model.LAYERS))
        for layer in layers[::-1]:
            operands = acts.pop(layer), model.grad_activations.pop("last"), weights[layer]
            grad, model.grad_activations["last"] = model.backward(layer, *operands)
            so_far = grads.pop(layer, None)
            grads[layer] = so_far + grad if so_far else grad
            if mb == mine[-1] and model.RANKS > 1:
                sums[layer] = model.scatterreduce(grads.pop(layer), layer)
        model.grad_activations.pop("last")
    gathers = dict[int, Awaitable[Weight]]()
    for layer in layers[::-1]:
        if model.RANKS > 1:
            grads[layer], weights[layer] = await sums.pop(layer), weights[layer].shard(model.rank, model.RANKS)
        _update(model, layer, weights[layer])
        gathers |= {layer: model.allgather(weights[layer], layer)} if model.RANKS > 1 else {}
    for layer in gathers:
        weights[layer] = await gathers[layer]
        model.set_final_weight(layer, weights[layer])
    return model


# -- pipelines -----------------------------------------------------------------------------------------


async def pipelined(model: Model) -> Model:
    """One-forward-one-backward along ``stage``, interleaved where a rank has several layers, with replicas along
    ``replica``. These divide the optimizer's states (ZeRO-1): each gradient is reduce-scattered at the end of a step,
    each replica updates its piece, and the new weight is gathered."""
    return await _pipelined(model, adapters=False)


async def pipelined_adapters(model: Model) -> Model:
    """The same, where adapters are trained beside frozen weights (LoRA)."""
    return await _pipelined(model, adapters=True)


async def _pipelined(model: Model, adapters: bool) -> Model:
    stages, replicas = model.axis_size("stage"), model.axis_size("replica")
    if model.is_host:
        replica, stage = divmod(model.devices[0], stages)
        return await _on_host(model, _top_down(model, stage), Piece(replica, replicas, adapters))
    stage, replica = model.axis_index("stage"), model.axis_index("replica")
    for layer in range(stage, model.LAYERS, stages):
        _load_whole(model, layer, Piece(replica, replicas, adapters))
    await _stages(model, [*range(replica, model.BATCHES, replicas)], adapters)
    sends = list[Awaitable[Any]]()
    for layer in _top_down(model, stage):
        if replicas > 1:
            model.grad_weights[layer] = await model.scatterreduce(model.grad_weights.pop(layer), layer, "replica")
        if model.host is not None:
            sends.append(model.pass_to(model.host, model.grad_weights.pop(layer)))
            continue
        piece = model.weights[_trained(layer, adapters)]
        piece = piece.shard(replica, replicas) if replicas > 1 else piece
        await _put_together(model, layer, _update(model, layer, piece, adapters), adapters)
    for layer in _top_down(model, stage) if model.host is not None else ():
        model.weights.pop(_trained(layer, adapters))
        await _put_together(model, layer, await model.receive(model.host), adapters)
    for send in sends:
        await send
    return model


async def _put_together(model: Model, layer: int, piece: Weight, adapters: bool) -> None:
    """Gather the pieces that replicas have updated."""
    if model.axis_size("replica") > 1:
        piece = await model.allgather(piece, layer, "replica")
    model.weights[_trained(layer, adapters)] = piece
    model.set_final_weight(layer, piece)


def _top_down(model: Model, stage: int) -> range:
    """The layers of a stage, from the last one down."""
    stages = model.axis_size("stage")
    return range(stage, model.LAYERS, stages)[::-1]


def _load_whole(model: Model, layer: int, mine: Piece) -> None:
    """Load a whole layer, and this replica's piece of the state of what is trained of it."""
    load = model.load_adapter if mine.adapters else model.load_weights
    model.weights[layer], _ = model.load_weights(layer)
    if mine.adapters:
        model.weights["adapter", layer], _ = model.load_adapter(layer)
    if model.host is None:
        _, model.opt_states[layer] = load(layer, mine.place, mine.pieces)


async def _stages(model: Model, batches: list[int], adapters: bool) -> None:
    """Take micro-batches through all stages and back. The next message is calls for while this rank computes."""
    stage, stages, top = model.axis_index("stage"), model.axis_size("stage"), model.LAYERS - 1
    before, after = model.rank_at(stage=(stage - 1) % stages), model.rank_at(stage=(stage + 1) % stages)
    acts, grads = model.activations, model.grad_activations
    work = [*work_of(stage, stages, model.LAYERS, len(batches))]
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
            out = model.forward(layer, acts[layer, mb], model.weights[layer], adapter=_adapter(model, layer, adapters))
            if layer < top:
                sends.append(model.pass_to(after, out))
            else:
                acts[top + 1, mb] = out
            continue
        operands = acts.pop((layer, mb)), grads.pop((layer, mb)), model.weights[layer]
        grad, grad_in = model.backward(layer, *operands, adapter=_adapter(model, layer, adapters))
        del operands
        so_far = model.grad_weights.pop(layer, None)
        model.grad_weights[layer] = so_far + grad if so_far else grad
        if layer > 0:
            sends.append(model.pass_to(before, grad_in))
    for send in sends:
        await send


def _adapter(model: Model, layer: int, adapters: bool) -> Weight | None:
    """The adapter of a layer, if adapters are trained."""
    return model.weights["adapter", layer] if adapters else None


def work_of(stage: int, stages: int, count: int, batches: int) -> Iterator[tuple[bool, int, int]]:
    """Yield what a stage does in order, of so many layers (``count``): whether it is a forward, the layer, and the
    number of the micro-batch. Layers take turns after as many micro-batches as there are stages."""
    layers = [*range(stage, count, stages)]
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
