"""Where ranks sit: axes, groups and nodes, and hosts beside their devices."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple, cast

from ..basics.arguments import whole_number
from ..basics.errors import PuzzleError

Axis = str | tuple[str, ...] | None
"""Along which axes of a mesh ranks form a group: one, several in the order of the mesh, or None for all ranks."""


class Group(NamedTuple):
    """The ranks of one collective, in group order."""

    ranks: tuple[int, ...]
    position: dict[int, int]  # of each rank that is run its index: some may stand for others (``represent``)
    per_node: int  # how many of its ranks, at the most, share a node
    name: str

    @property
    def across(self) -> bool:
        """Whether the group spans nodes."""
        return self.per_node < len(self.ranks)

    def __str__(self) -> str:
        return f"{self.name}: ranks {', '.join(map(str, self.ranks))}" if self.name else "all ranks"


class Mesh:
    """``ranks`` devices on named axes (last axis fastest), in nodes of ``node_size``, and beside them ``hosts`` hosts,
    which are on no axis: their ranks follow those of the devices, one for each device, or one for each node. Raises
    PuzzleError when the axes do not multiply to the ranks, hosts do not fit, or a number is no number."""

    def __init__(
        self, ranks: int, axes: Mapping[str, int] | None = None, node_size: int | None = None, hosts: int = 0
    ) -> None:
        self.ranks = whole_number("ranks", ranks)
        self.axes = dict(axes) if axes else {}
        self.node_size = None if node_size is None else whole_number("node_size", node_size)
        for axis, size in self.axes.items():
            self.axes[axis] = whole_number(f"mesh axis {axis!r}", size)
        if self.axes and prod(self.axes.values()) != self.ranks:
            factors = " x ".join(f"{axis} {size}" for axis, size in self.axes.items())
            wrong = f"{factors} = {prod(self.axes.values())}, not {self.ranks}"
            raise PuzzleError(f"the mesh does not multiply to the ranks: {wrong}", where="mesh")
        self._groups: dict[tuple[Axis, int], Group] = {}
        self.run: frozenset[int] | None = None
        """The ranks that are run, if they stand for others (``represent``). None: all of them."""
        self.finals: Callable[[], Any] | None = None
        """What gives the final weights of all ranks, for a check of them, where only some are run."""
        self.hosts = whole_number("hosts", hosts, least=0)
        self.devices_of = self._devices_of_hosts()
        """The devices of each host, by its rank."""
        self._host_of = {device: host for host, devices in self.devices_of.items() for device in devices}

    def _devices_of_hosts(self) -> dict[int, tuple[int, ...]]:
        size, devices = self.node_size or self.ranks, range(self.ranks)
        nodes = [tuple(devices[first : first + size]) for first in range(0, self.ranks, size)]
        shares = [(device,) for device in devices] if self.hosts == self.ranks else nodes
        if self.hosts not in (0, len(shares)):
            expected = f"{self.ranks}, one for each device, or {len(nodes)}, one for each node"
            raise PuzzleError("hosts do not fit the devices", where="hosts", expected=expected, got=str(self.hosts))
        return dict(zip(range(self.ranks, self.everyone), shares, strict=False))

    @property
    def everyone(self) -> int:
        """How many ranks there are, devices and hosts."""
        return self.ranks + self.hosts

    @property
    def running(self) -> Sequence[int]:
        """The ranks that are run, devices before hosts."""
        return range(self.everyone) if self.run is None else sorted(self.run)

    def host_of(self, rank: int) -> int | None:
        """Return the host of a device; a host's is the host itself. None where there are no hosts."""
        return self._host_of.get(rank, rank if rank in self.devices_of else None)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return a rank's index on every axis of the mesh."""
        found: dict[str, int] = {}
        for axis in reversed(self.axes):
            rank, found[axis] = divmod(rank, self.axes[axis])
        return found

    def rank_at(self, coordinates: Mapping[str, int]) -> int:
        """Return the rank at these coordinates, an index for every axis."""
        rank = 0
        for axis, size in self.axes.items():
            rank = rank * size + coordinates[axis]
        return rank

    def size(self, axis: object) -> int:
        """Return how many ranks an axis has. Raise PuzzleError for an unknown axis."""
        if not isinstance(axis, str) or axis not in self.axes:
            example = 'a mesh, for example run(..., mesh={"replica": 2, "shard": 4})'
            expected = f"one of {', '.join(map(repr, self.axes))}" if self.axes else example
            raise PuzzleError("no_such_axis", expected=expected, got=repr(axis), axis=repr(axis))
        return self.axes[axis]

    def named(self, axis: object) -> Axis:
        """Return a group's axes in one form: the name of a single axis, a tuple of several names in the order of the
        mesh, or None for all axes. Raise PuzzleError for an unknown axis, one that comes twice, and for none."""
        if axis is None:
            return None
        if not isinstance(axis, (tuple, list)):
            self.size(axis)
            return cast("str", axis)
        for name in axis:
            self.size(name)
        names = tuple([name for name in self.axes if name in axis])
        if len(names) < len(axis) or not names:
            twice = next((name for name in names if axis.count(name) > 1), "")
            problem = f"the mesh axis {twice!r} comes twice" if twice else "no mesh axis is named"
            raise PuzzleError(problem, expected="each axis once", got=repr(axis))
        if len(names) == 1:
            return names[0]
        return None if len(names) == len(self.axes) else names

    def index(self, rank: int, axis: Axis) -> int:
        """Return the index of a rank in its group along axes in the form of ``named``."""
        here, place = self.coordinates(rank), 0
        for name in self.names(axis):
            place = place * self.axes[name] + here[name]
        return place

    def names(self, axis: Axis) -> tuple[str, ...]:
        """Return the names of the axes of a group, given in the form of ``named``."""
        if axis is None:
            return tuple(self.axes)
        return (axis,) if isinstance(axis, str) else axis

    def among(self, axes: Iterable[Axis]) -> set[str]:
        """Return the names of all axes of several groups."""
        return {name for axis in axes for name in self.names(axis)}

    def along(self, axis: Axis) -> int:
        """Return the number of ranks of a group along axes in the form of ``named``."""
        return self.ranks if axis is None else prod(map(self.size, self.names(axis)))

    def group(self, rank: int, axis: Axis) -> Group:
        """Return the group of ``rank`` along one or several axes: the ranks that differ from it on these only, in
        ascending order. None: all ranks."""
        first, step, count = 0, 1, self.ranks
        if isinstance(axis, str):
            count, names = self.size(axis), list(self.axes)
            step = prod(self.axes[name] for name in names[names.index(axis) + 1 :])
            first = rank - self.coordinates(rank)[axis] * step
        elif axis is not None:
            first = self.rank_at({**self.coordinates(rank), **dict.fromkeys(axis, 0)})
        group = self._groups.get((axis, first))
        if group is None:
            ranks = tuple(range(first, first + count * step, step))
            if isinstance(axis, tuple):
                places = product(*[range(self.size(name)) for name in axis])
                here = self.coordinates(rank)
                ranks = tuple([self.rank_at({**here, **dict(zip(axis, place, strict=True))}) for place in places])
            per_node = max(Counter(map(self.node, ranks)).values())
            present = (member for member in ranks if self.run is None or member in self.run)
            positions = {member: place for place, member in enumerate(present)}
            name = "" if axis is None else ", ".join(self.names(axis))
            group = self._groups[axis, first] = Group(ranks, positions, per_node, name)
        return group

    def node(self, rank: int) -> int:
        """Return the number of a rank's node; a host is in the node of its devices."""
        device = self.devices_of[rank][0] if rank in self.devices_of else rank
        return device // self.node_size if self.node_size else 0
