"""A machine's shape: so many ranks, on a mesh, in boxes, at a cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..basics.arguments import describe
from ..basics.errors import PuzzleError
from .cost import Cost
from .mesh import Mesh


@dataclass(frozen=True)
class Shape:
    """Where ranks sit, and what everything costs."""

    mesh: Mesh
    cost: Cost

    @classmethod
    def of(
        cls, ranks: int, mesh: Mapping[str, int] | None = None, node_size: int | None = None, cost: Cost | None = None
    ) -> Shape:
        """Return the shape that a learner describes. Raise PuzzleError when the parts do not fit together."""
        if mesh is not None and not isinstance(mesh, Mapping):
            example = 'for example {"replica": 2, "shard": 4}'
            raise PuzzleError("mesh must be a dict of axes", got=describe(mesh), cure=example)
        if cost is not None and not isinstance(cost, Cost):
            raise PuzzleError("cost must be a Cost", got=describe(cost), cure="for example Cost(collective=0.5)")
        return cls(Mesh(ranks, mesh, node_size), Cost() if cost is None else cost)

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.mesh.ranks
