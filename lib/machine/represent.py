"""Ranks that stand for others: of an axis along which all do the same, a few are run, and the machine works out what
the others bring to a collective.

A tensor's labels say which micro-batches, which shards and which summands it has. Along a folded axis these move on
by the same step from each rank to the next, as ``model.rank`` does in ``load_weights(layer, model.rank, model.RANKS)``
and in ``range(model.rank, model.BATCHES, model.RANKS)``. So the tensors of ranks 0 and 1 tell those of all others, and
some more that are run have to be as foretold. Values are not computed: nothing is proved of the final weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

from .mesh import Mesh

RANKS = "ranks"
"""The one axis of a machine without a mesh."""
EVERY = 4
"""An axis of up to so many ranks is run whole."""
INSTEAD = "leave it out of represent=..., or run without it"


class Nothing:
    """An arithmetic in which no tensor carries anything (see ``record.operations.Values``): for runs that are timed."""

    zero = None

    def __getattr__(self, operation: str) -> Any:
        return _NOTHING[operation]


_NOTHING = {
    name: (lambda *args, **named: None)
    for name in ("weight", "opt_state", "inputs", "forward", "loss", "adapted", "add", "cut", "join", "made_up")
} | {name: (lambda *args, **named: (None, None)) for name in ("keeping", "backward", "update")}


class Step(NamedTuple):
    """By how much the labels of a tensor move on from one rank of an axis to the next."""

    batches: int
    shards: int
    total: int  # the shards are counted in so many pieces
    parts: int
    of: int


class Fold:
    """Which ranks of a machine are run for all the others, and who stands for whom."""

    def __init__(self, mesh: Mesh, axes: Iterable[str]) -> None:
        self.grid = mesh if mesh.axes else Mesh(mesh.ranks, {RANKS: mesh.ranks}, mesh.node_size)
        self.axes = tuple(axes)
        choices = [
            range(size) if axis not in self.axes or size <= EVERY else sorted({0, 1, size // 2, size - 1})
            for axis, size in self.grid.axes.items()
        ]
        devices = [self.grid.rank_at(dict(zip(self.grid.axes, place, strict=True))) for place in product(*choices)]
        self.run = frozenset(devices) | {host for one in devices if (host := mesh.host_of(one)) is not None}
