"""Programs with slices of a sequence: a layer in three steps, keys and values gathered or passed round a ring.

``mistake`` names what a program does wrong, for tests of what is said of it.
"""

from collections.abc import Callable
from typing import Any

from lib import Activation, Model
from tests.experts import finish


def whole_layers(model: Model) -> None:
    """Load all of every layer."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)


def own_slices(model: Model, whole: Activation, axis: str | None, zigzag: bool) -> Activation:
    """Return a rank's slices of its input: the i-th, or the i-th from either end."""
    n, i = (model.RANKS, model.rank) if axis is None else (model.axis_size(axis), model.axis_index(axis))
    if not zigzag:
        return whole.shard(i, n)
    return whole.shard(i, 2 * n).combine(whole.shard(2 * n - 1 - i, 2 * n))


async def updated(model: Model, layer: int, grad: Any, sums: bool = True) -> None:
    """Sum a gradient over all ranks, and update with it."""
    model.grad_weights[layer] = grad
    if sums:
        model.grad_weights[layer] = await model.allreduce(grad, layer)
    finish(model, [layer])


def gathering(zigzag: bool = False, axis: str | None = None, mistake: str = "") -> Callable[[Model], Any]:
    """A program in which every rank gathers all keys and values, and again for the backward."""

    async def context_parallel(model: Model) -> Model:
        acts, grads = model.activations, model.grad_activations
        whole_layers(model)
        n = model.RANKS if axis is None else model.axis_size(axis)
        batches = [0] if axis is None else [model.rank // n]
        acts[0] = own_slices(model, model.get_activation(batches), axis, zigzag)
        if mistake == "a slice of nobody" and model.rank == 0:
            acts[0] = acts[0].shard(1, 2)
        for layer in range(model.LAYERS):
            acts["att", layer], acts["kv", layer] = model.project(layer, acts[layer], model.weights[layer])
            whole = acts["kv", layer]
            if mistake != "own keys only":
                whole = await model.allgather(whole, layer, axis)
            acts["whole"] = whole
            if mistake == "own, and then all":
                acts["att", layer] = model.attend(layer, acts["att", layer], acts["kv", layer])
            of = layer - 1 if mistake == "keys of another layer" and layer else layer
            if of != layer:
                acts["whole"] = acts["kv", of]
            acts["att", layer] = model.attend(layer, acts["att", layer], acts.pop("whole"))
            acts[layer + 1] = model.rest(layer, acts[layer], model.weights[layer], acts["att", layer])
        grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
        for layer in reversed(range(model.LAYERS)):
            acts["all"] = await model.allgather(acts.pop(("kv", layer)), layer, axis)
            grads["att"] = model.backward_rest(
                layer, acts[layer], grads["out"], model.weights[layer], acts.pop(("att", layer))
            )
            grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts.pop("all"))
            grads["kv"] = kv_grad
            if mistake == "keys not summed":
                place = model.rank
                grads["kv"] = kv_grad.shard(place, model.RANKS)
            elif mistake != "keys not sent home":
                grads["kv"] = await model.scatterreduce(kv_grad, layer, axis)
            of_weight, grads["out"] = model.backward_project(
                layer, acts.pop(layer), grads["out"], model.weights[layer], grads.pop("att"), grads.pop("kv")
            )
            await updated(model, layer, of_weight, mistake != "weights not summed")
        return model

    return context_parallel


def ring(zigzag: bool = False, steps: int = 0, mistake: str = "") -> Callable[[Model], Any]:
    """A program in which keys and values go round a ring, and so do their gradients. ``steps``: more than ranks."""

    async def ring_attention(model: Model) -> Model:
        acts, grads, n, r = model.activations, model.grad_activations, model.RANKS, model.rank
        after, before, around = (r + 1) % n, (r - 1) % n, model.RANKS + steps
        whole_layers(model)
        acts[0] = own_slices(model, model.get_activation([0]), None, zigzag)
        for layer in range(model.LAYERS):
            acts["att", layer], acts["kv", layer] = model.project(layer, acts[layer], model.weights[layer])
            acts["kv"] = acts["kv", layer]
            for step in range(around):
                send = model.pass_to(after, acts["kv"]) if step < around - 1 else None
                if mistake != "only step <= rank" or step <= r:
                    acts["att", layer] = model.attend(layer, acts["att", layer], acts["kv"])
                if send:
                    acts["kv"] = await model.receive(before)
                    await send
            acts[layer + 1] = model.rest(layer, acts[layer], model.weights[layer], acts["att", layer])
        grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
        for layer in reversed(range(model.LAYERS)):
            grads["att"] = model.backward_rest(
                layer, acts[layer], grads["out"], model.weights[layer], acts.pop(("att", layer))
            )
            acts["kv"] = acts.pop(("kv", layer))
            for step in range(n):
                send = model.pass_to(after, acts["kv"]) if step < n - 1 else None
                grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts["kv"])
                if step:
                    kv_grad = kv_grad + grads.pop("kv")
                if mistake == "added twice" and step:
                    kv_grad = kv_grad + kv_grad
                grads["kv"] = kv_grad
                if send:
                    acts["kv"] = await model.receive(before)
                    await send
                if mistake != "not sent home" or step < n - 1:
                    send = model.pass_to(after, grads["kv"])
                    grads["kv"] = await model.receive(before)
                    await send
            of_weight, grads["out"] = model.backward_project(
                layer, acts.pop(layer), grads["out"], model.weights[layer], grads.pop("att"), grads.pop("kv")
            )
            await updated(model, layer, of_weight)
        return model

    return ring_attention


def heads(zigzag: bool = False, mesh: bool = False, mistake: str = "") -> Callable[[Model], Any]:
    """A program in which all-to-alls turn slices into heads, and back (Ulysses). On a ``mesh`` of nodes they do so
    inside of a node, and keys and values of the same heads go round a ring of all nodes."""

    async def ulysses(model: Model) -> Model:
        acts, grads, axis = model.activations, model.grad_activations, "gpu" if mesh else None
        whole_layers(model)
        acts[0] = own_slices(model, model.get_activation([0]), None, zigzag)
        nodes, node = (model.axis_size("node"), model.axis_index("node")) if mesh else (1, 0)
        after, before = (model.rank_at(node=(node + way) % nodes) if mesh else 0 for way in (1, -1))

        async def turned(tensor: Any, unless: str, way: str | None = axis) -> Any:
            return tensor if mistake == unless else await model.alltoall(tensor, layer, way)

        for layer in range(model.LAYERS):
            acts["att"], acts["kv"] = model.project(layer, acts[layer], model.weights[layer])
            if mistake == "attends first":
                acts["att"] = model.attend(layer, acts["att"], acts["kv"])
            acts["att"] = await turned(acts["att"], "queries not turned")
            acts["kv", layer] = await turned(acts.pop("kv"), "keys not turned")
            if mistake == "keys of the next rank":
                send = model.pass_to((model.rank + 1) % model.RANKS, acts["kv", layer])
                acts["kv", layer] = await model.receive((model.rank - 1) % model.RANKS)
                await send
            acts["kv"] = acts["kv", layer]
            for step in range(nodes):
                acts["att"] = model.attend(layer, acts["att"], acts["kv"])
                if step < nodes - 1:
                    send = model.pass_to(after, acts.pop("kv"))
                    acts["kv"] = await model.receive(before)
                    await send
            acts["att", layer] = await turned(acts.pop("att"), "not brought home")
            acts[layer + 1] = model.rest(layer, acts[layer], model.weights[layer], acts["att", layer])
        grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
        for layer in reversed(range(model.LAYERS)):
            weight, att = model.weights[layer], acts.pop(("att", layer))
            grads["att"] = model.backward_rest(layer, acts[layer], grads["out"], weight, att)
            grads["att"] = await turned(grads["att"], "gradient not turned")
            acts["kv"] = acts.pop(("kv", layer))
            for step in range(nodes):
                grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts["kv"])
                grads["kv"] = kv_grad + grads.pop("kv") if step else kv_grad
                for store in (acts, grads) if step < nodes - 1 else (grads,) * mesh:
                    send = model.pass_to(after, store.pop("kv"))
                    store["kv"] = await model.receive(before)
                    await send
            grads["att"] = await turned(grads["att"], "queries' gradient not home")
            if mistake == "keys' gradient summed":
                grads["kv"] = await model.scatterreduce(grads["kv"], layer)
            grads["kv"] = await turned(grads["kv"], "keys' gradient not home")
            of_weight, grads["out"] = model.backward_project(
                layer, acts.pop(layer), grads["out"], weight, grads.pop("att"), grads.pop("kv")
            )
            await updated(model, layer, of_weight)
        return model

    return ulysses


async def in_steps(model: Model) -> Model:
    """One rank, the whole sequence: three steps forward, and one backward."""
    acts = model.activations
    whole_layers(model)
    acts[0] = model.get_activation([0])
    for layer in range(model.LAYERS):
        acts["att"], acts["kv"] = model.project(layer, acts[layer], model.weights[layer])
        acts["att"] = model.attend(layer, acts["att"], acts.pop("kv"))
        acts[layer + 1] = model.rest(layer, acts[layer], model.weights[layer], acts.pop("att"))
    model.grad_activations["out"] = model.loss(acts.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        grad = model.grad_activations.pop("out")
        of_weight, model.grad_activations["out"] = model.backward(layer, acts.pop(layer), grad, model.weights[layer])
        await updated(model, layer, of_weight, sums=False)
    return model


PROGRAMS = {
    "gather": gathering(),
    "gather, zigzag": gathering(zigzag=True),
    "ring": ring(),
    "ring, zigzag": ring(zigzag=True),
}
