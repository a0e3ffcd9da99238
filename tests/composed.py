"""Programs on a mesh of several axes, in which collectives go over two of them at once.

Weights are sharded as in replica-FSDP, here over replicas and slices together (torchtitan does so, too): every rank has
another piece, whichever micro-batch and slice of the sequence it trains on.
"""

from collections.abc import Callable
from typing import Any

from lib import Activation, Model
from solutions.p25_context_parallel import backward_of_slices, forward_of_slices, pieces
from tests.experts import finish

Axes = Any  # one name, or several


def zigzag(model: Model, whole: Activation, axes: Axes) -> Activation:
    """Return the slices of a rank: one from the beginning of the sequence, and one from its end."""
    place, count = pieces(model, axes)
    return whole.shard(place, 2 * count).combine(whole.shard(2 * count - 1 - place, 2 * count))


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
