"""The collectives: what each does to its tensors, how their numbers move between processes, and its row.

A result is a pure function of what the ranks of a group bring, both in the order of the group.

>>> from unittest.mock import Mock  # any arithmetic will do: only labels are shown
>>> from lib.record.labels import Labels
>>> grad = Labels("WeightGrad", layer=0, layers=2, total_batches=2)
>>> weight = Labels("Weight", layer=0, layers=2, total=2)
>>> grads = [(grad.changed(batches=frozenset({0})), 1), (grad.changed(batches=frozenset({1})), 2)]
>>> weights = [(weight, 7), (weight.changed(shards=frozenset({1})), 7)]
>>> for labels, _ in allreduce(grads, Mock()) + allgather(weights, Mock()) + scatterreduce(grads, Mock()):
...     print(labels)
WeightGrad(layer=0, layers=2, batches={0, 1}, total_batches=2, shards={0}, total=1)
WeightGrad(layer=0, layers=2, batches={0, 1}, total_batches=2, shards={0}, total=1)
Weight(layer=0, layers=2, step=0, shards={0}, total=1)
Weight(layer=0, layers=2, step=0, shards={0}, total=1)
WeightGrad(layer=0, layers=2, batches={0, 1}, total_batches=2, shards={0}, total=2)
WeightGrad(layer=0, layers=2, batches={0, 1}, total_batches=2, shards={1}, total=2)
"""

from collections.abc import Sequence
from typing import Any

from .kinds import JOINED, KINDS, SUMMED
from .labels import Labels, another_part, cut, join, total_of
from .operations import Collective, Part, Values


def allreduce(parts: Sequence[Part], values: Values, strict: bool = True) -> list[Part]:
    """All-reduce: return the sum of all parts, for everyone."""
    return [_total(parts, values, strict)] * len(parts)


def allgather(parts: Sequence[Part], values: Values, strict: bool = True) -> list[Part]:
    """All-gather: return the shards of all, joined, for everyone."""
    labels = join([labels for labels, _ in parts], "")
    if KINDS[labels.kind].returns:
        labels = labels.changed(extra=labels.extra._replace(homes=tuple([labels.piece() for labels, _ in parts])))
    return [(labels, values.join([value for _, value in parts]))] * len(parts)


def scatterreduce(parts: Sequence[Part], values: Values, strict: bool = True) -> list[Part]:
    """Reduce-scatter: return piece i of the sum of all parts, for the i-th of the group."""
    whole = _total(parts, values, strict)
    homes = whole[0].extra.homes
    if len(homes) == len(parts):  # it goes back from a gather: each rank gets what it had brought there
        gone_home = whole[0].changed(extra=whole[0].extra._replace(homes=()))
        return dealt(whole, [another_part(gone_home, *home) for home in homes], values)
    return dealt(whole, [cut(whole[0], place, len(parts)) for place in range(len(parts))], values)


def dealt(whole: Part, pieces: Sequence[Labels], values: Values) -> list[Part]:
    """Return a tensor dealt out: to each member the part of it that these labels name."""
    return [(piece, values.cut(whole[1], piece)) for piece in pieces]


def _total(parts: Sequence[Part], values: Values, strict: bool) -> Part:
    return total_of([labels for labels, _ in parts], "", strict), values.add([value for _, value in parts])


def own_shard(model: Any) -> Any:
    """Return a rank's shard of a weight: what it brings to a gather in a small example."""
    return model.load_weights(0, model.rank, model.RANKS)[0]


def own_gradient(model: Any) -> Any:
    """Return the gradient of a rank's own micro-batch: what it brings to a reduction in a small example."""
    model.weights[0], _ = model.load_weights(0)
    model.activations[0] = model.get_activation([model.rank])
    grad = model.loss(model.forward(0, model.activations[0], model.weights[0]))
    return model.backward(0, model.activations[0], grad, model.weights[0])[0]


def own_partial_sum(model: Any) -> Any:
    """Return what a rank's piece of a layer gives: what it brings to a sum of activations in a small example."""
    weight, _ = model.load_weights(0, model.rank, model.RANKS)
    return model.forward(0, model.get_activation([0]), weight, partial=True)


def own_slice(model: Any) -> Any:
    """Return a rank's slice of an activation: what it brings to a gather of activations in a small example."""
    return model.get_activation([0]).shard(model.rank, model.RANKS)


ALLREDUCE = Collective(
    kind="allreduce",
    code="AR",
    word="all-reduce",
    elsewhere=("all_reduce",),
    takes=SUMMED,
    sums=True,
    result=allreduce,
    move=lambda carrier, value, inputs, outputs: carrier.total(value, outputs[carrier.place]),
    example=own_gradient,
    of_activations=own_partial_sum,
    unless_given=("collective", 1),
    rounds=2,
)

ALLGATHER = Collective(
    kind="allgather",
    code="AG",
    word="all-gather",
    elsewhere=("all_gather", "all_gather_into_tensor"),
    takes=JOINED,
    result=allgather,
    move=lambda carrier, value, inputs, outputs: carrier.values.join(carrier.all_parts(value, inputs)),
    example=own_shard,
    of_activations=own_slice,
)

SCATTERREDUCE = Collective(
    kind="scatterreduce",
    code="RS",
    word="reduce-scatter",
    elsewhere=("reduce_scatter", "reduce_scatter_tensor"),
    takes=SUMMED,
    sums=True,
    result=scatterreduce,
    move=lambda carrier, value, inputs, outputs: carrier.my_piece(value, outputs),
    example=own_gradient,
    of_activations=own_partial_sum,
)

ROWS = (ALLREDUCE, ALLGATHER, SCATTERREDUCE)
"""The collectives, in the order in which they are listed for people."""
