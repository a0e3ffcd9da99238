"""What a rank may bring to one collective of several layers: a list of tensors, and the list of their layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..basics.arguments import one_of
from ..basics.errors import PuzzleError, show_layers
from ..record.kinds import KINDS
from ..record.labels import Labels
from ..record.operations import Collective, Rank


def check_list(
    rank: Rank, row: Collective, labels: Sequence[Labels | None], layers: Sequence[object]
) -> tuple[int, ...]:
    """Return the layers as whole numbers. Raise PuzzleError unless there is one tensor of one kind for each layer, and
    each layer once. A tensor is None where the rank brings nothing."""
    kind, example = row.kind, f"for example await model.{row.kind}([one, two], [0, 1])"
    if not labels or len(labels) != len(layers):
        problem = f"{_many(len(labels), 'tensor')} with {_many(len(layers), 'layer')}"
        expected = "at least one tensor, and for each tensor its layer"
        raise PuzzleError(problem, where=rank.place(kind, None), expected=expected, fix=example)
    known = tuple(
        layer if type(layer) is int else one_of("layer", layer, rank.layers, rank.place(kind, None), example)
        for layer in layers
    )
    layer, times = Counter(known).most_common(1)[0]
    if times > 1:
        problem, expected = f"layer {layer} is in the list {times} times", "each layer once"
        got, fix = show_layers(known), "one call for each, or add the gradients up before"
        raise PuzzleError(problem, where=rank.place(kind, layer), expected=expected, got=got, fix=fix)
    for layer, one in zip(known, labels, strict=True):
        if one is None and row.everyone:
            where = rank.place(kind, layer)
            raise PuzzleError(f"every rank brings a tensor of each layer to {kind}", where=where, fix=example)
    kinds = [name for name in KINDS if any(one is not None and one.kind == name for one in labels)]
    if len(kinds) > 1:
        problem, expected = f"{' and '.join(kinds)} in one list", "tensors of one kind"
        fix = f"one {kind} for each kind"
        raise PuzzleError(problem, where=rank.place(kind, known[0]), expected=expected, fix=fix)
    if len({one.adapter for one in labels if one is not None and (one.batches or not KINDS[one.kind].batched)}) > 1:
        problem, fix = "tensors of adapters and of the layers' own weights in one list", f"one {kind} for each"
        raise PuzzleError(problem, where=rank.place(kind, known[0]), expected="either of them", fix=fix)
    return known


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'s' * (count != 1)}"
