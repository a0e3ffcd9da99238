"""Programs on a mesh of several axes, in which collectives go over two of them at once.

Weights are sharded as in replica-FSDP, here over replicas and slices together (torchtitan does so, too): every rank has
another piece, whichever micro-batch and slice of the sequence it trains on.
"""

from collections.abc import Callable
from typing import Any

from lib import Activation, Model

Axes = Any  # one name, or several


def pieces(model: Model, axes: Axes) -> tuple[int, int]:
    """Which piece, of how many, a rank has of what is divided along these axes."""
    return model.axis_index(axes), model.axis_size(axes)


def zigzag(model: Model, whole: Activation, axes: Axes) -> Activation:
    """Return the slices of a rank: one from the beginning of the sequence, and one from its end."""
    place, count = pieces(model, axes)
    return whole.shard(place, 2 * count).combine(whole.shard(2 * count - 1 - place, 2 * count))


def finish(model: Model) -> Model:
    """Update every layer with its gradient, and set its final weight."""
    for layer in range(model.LAYERS):
        grad, weight, state = model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)
        model.set_final_weight(layer, model.weights[layer])
    return model


async def forward_of_slices(model: Model, layer: int, shards: Axes, context: Axes) -> None:
    """Compute a layer in three steps, for the slices of a rank."""
    acts = model.activations
    model.weights["whole"] = await model.allgather(model.weights[layer], layer, axis=shards)
    acts["att", layer], acts["kv", layer] = model.project(layer, acts[layer], model.weights["whole"])
    acts["all"] = await model.allgather(acts["kv", layer], layer, axis=context)
    acts["att", layer] = model.attend(layer, acts["att", layer], acts.pop("all"))
    acts[layer + 1] = model.rest(layer, acts[layer], model.weights.pop("whole"), acts["att", layer])


async def backward_of_slices(model: Model, layer: int, shards: Axes, context: Axes) -> Any:
    """Go back through a layer in three steps. Return the gradient of the weight, as far as these slices give it."""
    acts, grads = model.activations, model.grad_activations
    model.weights["whole"] = await model.allgather(model.weights[layer], layer, axis=shards)
    acts["all"] = await model.allgather(acts.pop(("kv", layer)), layer, axis=context)
    whole = model.weights["whole"]
    grads["att"] = model.backward_rest(layer, acts[layer], grads["out"], whole, acts.pop(("att", layer)))
    grads["att"], kv_grad = model.backward_attend(layer, grads["att"], acts.pop("all"))
    grads["kv"] = await model.scatterreduce(kv_grad, layer, axis=context)
    whole = model.weights.pop("whole")
    of_weight, grads["out"] = model.backward_project(
        layer, acts.pop(layer), grads["out"], whole, grads.pop("att"), grads.pop("kv")
    )
    return of_weight


def fsdp_context(replica: Axes = "replica", context: Axes = "context", both: Axes = None) -> Callable[[Model], Any]:
    """Replica-FSDP with a context axis: each replica has its micro-batches, and the ranks along the context axis share
    the sequence. Weights and states are divided along ``both``."""
    shards = both if both is not None else (replica, context)

    async def replica_fsdp_context(model: Model) -> Model:
        acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *pieces(model, shards))
        for batch in range(model.axis_index(replica), model.BATCHES, model.axis_size(replica)):
            acts[0] = zigzag(model, model.get_activation([batch]), context)
            for layer in range(model.LAYERS):
                await forward_of_slices(model, layer, shards, context)
            grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
            for layer in reversed(range(model.LAYERS)):
                of_weight = await backward_of_slices(model, layer, shards, context)
                grads["kept"] = grads.pop("out")
                of_weight = await model.scatterreduce(of_weight, layer, axis=shards)
                sums[layer] = sums[layer] + of_weight if layer in sums else of_weight
                grads["out"] = grads.pop("kept")
            del grads["out"]
        return finish(model)

    return replica_fsdp_context


async def fsdp_context_tensor(model: Model) -> Model:
    """Three axes: even layers are divided by slices of the sequence, odd ones by their units, both along context and
    tensor at once. Along replica every weight is sharded once more."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    group, everyone = ("context", "tensor"), ("replica", "context", "tensor")
    for layer in range(model.LAYERS):
        piece = pieces(model, everyone)
        if layer % 2:  # units are divided along the group first, and then along replica
            (unit, units), (copy, copies) = pieces(model, group), pieces(model, "replica")
            piece = unit * copies + copy, units * copies
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)
    for batch in range(model.axis_index("replica"), model.BATCHES, model.axis_size("replica")):
        acts[0] = model.get_activation([batch]).shard(*pieces(model, group))
        for layer in range(model.LAYERS):
            if layer % 2 == 0:
                await forward_of_slices(model, layer, everyone, group)
                continue
            model.weights["own"] = await model.allgather(model.weights[layer], layer, axis="replica")
            acts["whole"] = await model.allgather(acts[layer], layer, axis=group)
            acts["sum"] = model.forward(layer, acts.pop("whole"), model.weights.pop("own"), partial=True)
            acts[layer + 1] = await model.scatterreduce(acts.pop("sum"), layer + 1, axis=group)
        grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)
        for layer in reversed(range(model.LAYERS)):
            if layer % 2 == 0:
                of_weight = await backward_of_slices(model, layer, everyone, group)
                grads["kept"], axis = grads.pop("out"), everyone
            else:
                model.weights["own"] = await model.allgather(model.weights[layer], layer, axis="replica")
                acts["whole"] = await model.allgather(acts.pop(layer), layer, axis=group)
                grads["all"] = await model.allgather(grads.pop("out"), layer, axis=group)
                of_weight, back = model.backward(
                    layer, acts.pop("whole"), grads.pop("all"), model.weights.pop("own"), partial=True
                )
                grads["sum"] = back
                sums["piece"] = of_weight
                grads["kept"] = await model.scatterreduce(grads.pop("sum"), layer - 1, axis=group)
                of_weight, axis = sums.pop("piece"), "replica"
            of_weight = await model.scatterreduce(of_weight, layer, axis=axis)
            sums[layer] = sums[layer] + of_weight if layer in sums else of_weight
            grads["out"] = grads.pop("kept")
        del grads["out"]
    return finish(model)
