"""How a learner writes keys of two numbers: (layer, micro_batch), or (micro_batch, layer). What is stored tells."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from ..record.kinds import KINDS
from ..record.labels import Labels


def is_pair(key: Hashable) -> bool:
    """Return whether a key begins with two whole numbers."""
    return isinstance(key, tuple) and len(key) > 1 and type(key[0]) is int and type(key[1]) is int


def votes_for_batches(stored: Iterable[tuple[Hashable, Labels]]) -> int:
    """Return by how many the keys of one number that are the micro-batch of what they stand for outnumber those that
    are its layer. ``stored``: keys, with the labels of what is stored there."""
    votes = 0
    for key, labels in stored:
        if type(key) is int and KINDS[labels.kind].by_batch:
            layers = (labels.layer, labels.layer + (labels.kind == "ActivationGrad"))
            votes += (labels.batches == {key}) - (key in layers)
    return votes


def are_of_another_kind(key: Hashable, stored: Iterable[tuple[Hashable, Labels]]) -> bool:
    """Return whether keys like this one, of one number or of two, are mostly neither the layer nor the micro-batch of
    what they stand for, but a count, or a number in a code of the learner's own."""
    fit = []
    for other, labels in stored:
        if KINDS[labels.kind].by_batch and (is_pair(other) if is_pair(key) else type(other) is int):
            layers = {labels.layer, labels.layer + (labels.kind == "ActivationGrad")}
            numbers = other[:2] if isinstance(other, tuple) else (other,)
            fit.append(bool(layers & {*numbers}) or labels.batches == {other})
    return len(fit) > 1 and 2 * sum(fit) < len(fit)


def layer_comes_last(key: Hashable, stored: Iterable[tuple[Hashable, Labels]], fits: Callable[[int, int], int]) -> bool:
    """Return whether the layer is the second number of a learner's keys, and not the first. ``stored``: the keys of
    what this rank has stored, with its labels; ``fits``: how well a layer and a micro-batch fit to what the rank has
    done, as a number, which decides where what is stored does not."""
    votes = 0
    telling = {name for name, row in KINDS.items() if row.by_batch or name == "WeightGrad"}
    for other, labels in stored:  # all that a rank has had, so nothing is looked up here
        if labels.kind not in telling or not isinstance(other, tuple) or not is_pair(other):
            continue
        one, two, layer = other[0], other[1], labels.layer
        # That of an activation's gradient is one less than the key under which it is stored by habit.
        above = layer + (labels.kind == "ActivationGrad")
        votes += (two in (layer, above) and one in labels.batches) - (one in (layer, above) and two in labels.batches)
    if votes or not is_pair(key):
        return votes > 0
    one, two = key[0], key[1]  # type: ignore[index]
    return fits(two, one) > fits(one, two)
