"""What a collective does to its tensors: a pure rule from the inputs of a group to its outputs.

Inputs and outputs are in group order. A new collective is a rule here, a line in TAKES and in RULES, and its
verb in model.py; cost, lanes, log and pictures treat it like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..record.labels import Labels, cut, join, total_of
from .values import Fingerprints

Part = tuple[Labels, Any]
"""Labels and value of one tensor."""
Rule = Callable[[Sequence[Part], Fingerprints, bool], list[Part]]


def allreduce(parts: Sequence[Part], values: Fingerprints, strict: bool = True) -> list[Part]:
    """All-reduce: everyone gets the sum of all.

    >>> grad = Labels("WeightGrad", layer=0, layers=2, total_batches=2)
    >>> first, second = grad._replace(batches=frozenset({0})), grad._replace(batches=frozenset({1}))
    >>> for labels, _ in allreduce([(first, 1), (second, 2)], Fingerprints()):
    ...     print(labels)
    WeightGrad(layer=0, layers=2, batches={0, 1}, total_batches=2, shards={0}, total=1)
    WeightGrad(layer=0, layers=2, batches={0, 1}, total_batches=2, shards={0}, total=1)
    """
    labels = total_of([labels for labels, _ in parts], "", strict)
    return [(labels, values.add([value for _, value in parts]))] * len(parts)


def allgather(parts: Sequence[Part], values: Fingerprints, strict: bool = True) -> list[Part]:
    """All-gather: everyone gets the shards of all, joined.

    >>> weight = Labels("Weight", layer=0, layers=2, total=2)
    >>> first, second = weight, weight._replace(shards=frozenset({1}))
    >>> for labels, _ in allgather([(first, 7), (second, 7)], Fingerprints()):
    ...     print(labels)
    Weight(layer=0, layers=2, step=0, shards={0}, total=1)
    Weight(layer=0, layers=2, step=0, shards={0}, total=1)
    """
    labels = join([labels for labels, _ in parts], "")
    return [(labels, values.join([value for _, value in parts]))] * len(parts)


def scatterreduce(parts: Sequence[Part], values: Fingerprints, strict: bool = True) -> list[Part]:
    """Reduce-scatter: sum, then the i-th of the group keeps piece i.

    >>> grad = Labels("WeightGrad", layer=0, layers=2, total_batches=2)
    >>> first, second = grad._replace(batches=frozenset({0})), grad._replace(batches=frozenset({1}))
    >>> for labels, _ in scatterreduce([(first, 1), (second, 2)], Fingerprints()):
    ...     print(labels)
    WeightGrad(layer=0, layers=2, batches={0, 1}, total_batches=2, shards={0}, total=2)
    WeightGrad(layer=0, layers=2, batches={0, 1}, total_batches=2, shards={1}, total=2)
    """
    labels, value = allreduce(parts, values, strict)[0]
    pieces = [cut(labels, place, len(parts)) for place in range(len(parts))]
    return [(piece, values.cut(value, labels, piece)) for piece in pieces]


TAKES = {
    "allreduce": ("WeightGrad",),
    "allgather": ("Weight", "OptState", "WeightGrad"),
    "scatterreduce": ("WeightGrad",),
}
"""The kinds of tensor that a collective takes."""

RULES: dict[str, Rule] = {"allreduce": allreduce, "allgather": allgather, "scatterreduce": scatterreduce}
