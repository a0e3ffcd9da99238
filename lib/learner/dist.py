"""The machine as the learner names it: so many ranks, on a mesh, in nodes."""

from __future__ import annotations

from collections.abc import Mapping

from ..machine.cost import Cost, Shape
from ..machine.interface import AnySimulator
from ..machine.simulator import new_simulator
from .watch import Watch


class Dist:
    """``ranks`` simulated GPUs, the devices, that can communicate.

    ``mesh={"replica": 2, "shard": 4}`` arranges the ranks along named axes, whose sizes multiply to ``ranks``; they are
    numbered along the last axis first.
    ``node_size=4`` puts ranks 0 to 3 in one node, 4 to 7 in the next; links between nodes are slower.
    ``cost`` holds the prices. ``hosts``: so many processors beside the devices, one for each device or one for each
    node. They are ranks, too, numbered after the devices. With ``experts=8`` every other layer has 8 experts.
    Raises PuzzleError if all these do not fit together.
    """

    def __init__(
        self,
        ranks: int,
        mesh: Mapping[str, int] | None = None,
        node_size: int | None = None,
        cost: Cost | None = None,
        hosts: int = 0,
        experts: int = 0,
    ) -> None:
        shape = Shape.of(ranks, mesh, node_size, cost, hosts, experts)
        simulator = new_simulator(shape)
        # By hand, somebody has to watch a loop of the host's; in run, the loop knows when everyone waits.
        self._assemble(shape, simulator, Watch(simulator))

    @classmethod
    def of(cls, shape: Shape, simulator: AnySimulator) -> Dist:
        """Return the machine of a run, with the simulator that decides for it."""
        dist = cls.__new__(cls)
        dist._assemble(shape, simulator, None)
        return dist

    def _assemble(self, shape: Shape, simulator: AnySimulator, watch: Watch | None) -> None:
        mesh = shape.mesh
        self._mesh, self._simulator, self._watch, self.cost = mesh, simulator, watch, shape.cost
        self._experts, self._shape = shape.experts, shape
        self.ranks, self.mesh = mesh.ranks, dict(mesh.axes) or None
        self.node_size, self.hosts = mesh.node_size, mesh.hosts

    def __repr__(self) -> str:
        mesh = f", mesh={self.mesh}" if self.mesh else ""
        nodes = f", node_size={self.node_size}" if self.node_size else ""
        hosts = f", hosts={self.hosts}" if self.hosts else ""
        experts = f", experts={self._experts}" if self._experts else ""
        return f"Dist(ranks={self.ranks}{mesh}{nodes}{hosts}{experts})"
