"""The machine as the learner names it: so many ranks, on a mesh, in boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..basics.errors import PuzzleError
from ..machine.books import Books
from ..machine.cost import Cost
from ..machine.mesh import Mesh
from .watch import Watch


class Dist:
    """``ranks`` simulated GPUs that can communicate.

    ``mesh={"replica": 2, "shard": 4}`` names axes (last axis fastest); their product is ``ranks``.
    ``node_size=4`` puts ranks 0 to 3 in one box, 4 to 7 in the next; links between boxes are slower.
    ``cost`` holds the prices. Raises PuzzleError when these do not fit together.
    """

    def __init__(
        self,
        ranks: int,
        mesh: Mapping[str, int] | None = None,
        node_size: int | None = None,
        cost: Cost | None = None,
        *,
        _graded: bool = False,
        _strict: bool = True,
        _books: Any = None,
    ) -> None:
        if mesh is not None and not isinstance(mesh, Mapping):
            raise PuzzleError(
                "mesh must be a dict of axes", got=repr(mesh), cure='for example {"replica": 2, "shard": 4}'
            )
        if cost is not None and not isinstance(cost, Cost):
            raise PuzzleError("cost must be a Cost", got=repr(cost), cure="for example Cost(collective=0.5)")
        self._mesh = Mesh(ranks, mesh, node_size)
        self.ranks = self._mesh.ranks
        self.mesh = dict(self._mesh.axes) or None
        self.node_size = self._mesh.node_size
        self.cost = cost or Cost()
        self._books = _books or Books(self._mesh, self.cost, _graded, _strict)
        # In run, the loop knows when everyone waits; by hand, somebody has to watch a loop of the host's.
        self._watch = None if _graded else Watch(self._books)

    def __repr__(self) -> str:
        mesh = f", mesh={self.mesh}" if self.mesh else ""
        boxes = f", node_size={self.node_size}" if self.node_size else ""
        return f"Dist(ranks={self.ranks}{mesh}{boxes})"
