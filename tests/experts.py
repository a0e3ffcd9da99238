"""Programs that train layers with experts: tokens go to the ranks that have their experts, and home again."""

from collections.abc import Iterable, Sequence
from typing import Any

from lib import Model


def load(model: Model, experts: tuple[int, int] | None = None) -> None:
    """Load all of every dense layer, and of a layer with experts the piece (index, total) of this rank."""
    for layer in range(model.LAYERS):
        piece = (experts or (model.rank, model.RANKS)) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)


def finish(model: Model, layers: Iterable[int] | None = None) -> Model:
    """Update every layer, or these, and set its final weight."""
    for layer in range(model.LAYERS) if layers is None else layers:
        grad = model.grad_weights.pop(layer)
        weight, state = model.weights[layer], model.opt_states[layer]
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)
        model.set_final_weight(layer, model.weights[layer])
    return model


async def travel(model: Model, tensor: Any, layer: int, axes: Sequence[str | None], store: Any) -> Any:
    """Carry a tensor through one all-to-all after the other."""
    for axis in axes:
        store["way"] = await model.alltoall(tensor, layer, axis=axis)
        tensor = store.pop("way")
    return tensor


def own_batches(model: Model) -> list[int]:
    """The micro-batches of this rank, which are not next to each other."""
    return list(range(model.rank, model.BATCHES, model.RANKS))


async def train(
    model: Model,
    out: Sequence[str | None] = (None,),
    home: Sequence[str | None] = (None,),
    copies: str | None = None,
    groups: int = 1,
) -> Model:
    """Forward and backward of all layers, in ``groups`` of micro-batches of this rank. ``copies``: the axis along which
    ranks have the same experts."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    mine = own_batches(model)
    for group in range(groups):
        acts[0] = model.get_activation(mine[group::groups])
        for layer in range(model.LAYERS):
            if model.experts(layer):
                acts["tokens", layer] = await travel(model, acts.pop(layer), layer, out, acts)
                acts["out"] = model.expert(layer, acts["tokens", layer], model.weights[layer])
                acts[layer + 1] = await travel(model, acts.pop("out"), layer + 1, home, acts)
            else:
                acts[layer + 1] = model.forward(layer, acts[layer], model.weights[layer])
        grad = model.loss(acts.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            weight = model.weights[layer]
            if model.experts(layer):
                grad = await travel(model, grad, layer, out, grads)
                of_weight, grad = model.backward_expert(layer, acts.pop(("tokens", layer)), grad, weight)
                grads["grad"] = grad
                sums[layer] = sums[layer] + of_weight if layer in sums else of_weight
                grad = await travel(model, grads.pop("grad"), layer - 1, home, grads)
            else:
                of_weight, grad = model.backward(layer, acts.pop(layer), grad, weight)
                grads["grad"] = grad
                sums[layer] = sums[layer] + of_weight if layer in sums else of_weight
                grad = grads.pop("grad")
            grads["grad"] = grad
        del grads["grad"]
    for layer in range(model.LAYERS):
        if copies is not None or not model.experts(layer):
            axis = copies if model.experts(layer) else None
            sums[layer] = await model.allreduce(sums.pop(layer), layer, axis=axis)
    return finish(model)


async def plain(model: Model) -> Model:
    """Every rank has a piece of the experts."""
    load(model)
    return await train(model)


async def in_two_groups(model: Model) -> Model:
    """The same, with half of the micro-batches at a time."""
    load(model)
    return await train(model, groups=2)


def in_two_levels(home: Sequence[str]) -> Any:
    """Tokens go out along the axis gpu first, and then along box; experts are numbered along gpu first."""

    async def two_levels(model: Model) -> Model:
        boxes = model.axis_size("box")
        load(model, (model.axis_index("gpu") * boxes + model.axis_index("box"), model.RANKS))
        return await train(model, out=("gpu", "box"), home=home)

    return two_levels


async def copies(model: Model) -> Model:
    """Ranks along the axis replica have the same experts, those along expert divide them."""
    load(model, (model.axis_index("expert"), model.axis_size("expert")))
    return await train(model, out=("expert",), home=("expert",), copies="replica")
