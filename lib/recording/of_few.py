"""A recording of few ranks that stand for all others: it is a recording of all, written shorter.

It says along which axes they stand for the others. What another rank calls is then what the first one calls, with
numbers that have moved on as they do from the first rank of an axis to the second, once for each place. Whoever sends
it could have sent all these calls, so it needs no more trust than the long one. That the code of the others does the
same is the worker's business, as it is that its code makes any call at all.

The few are carried out here, and what comes of the others is proved by what these call. Where it is not, the recording
is refused, and that of all is asked for.
"""

from collections.abc import Sequence
from functools import partial
from typing import cast

from ..machine.cost import Shape
from ..machine.mesh import Mesh
from ..machine.simulator import LocalSimulator
from ..represent.coordinate import MOST, Place
from ..represent.everyone import OutcomeOfAll
from ..represent.follow import unclear
from ..represent.links import simulator_of_few
from ..represent.symmetry import Symmetry, Unlike
from ..running.limits import watchdog
from .replay import Replay
from .safe import number
from .wire import ProtocolError


class ReplayOfFew:
    """One run of all ranks, of which few are carried out."""

    def __init__(self, shape: Shape, axes: Sequence[object], also: Sequence[object], noted: int | None = None) -> None:
        """``axes``, ``also``: which ranks are in the recording (see ``Symmetry``); ``noted``: one of them with notes on
        its tensors. Raise ProtocolError for what are no axes and places of this machine, or no rank of these."""
        mesh = Mesh(shape.mesh.ranks, shape.mesh.axes, shape.mesh.node_size)
        names = [axis for axis in Symmetry.grid_of(mesh).axes if axis in axes]
        if names != axes or len(also) > MOST:
            raise ProtocolError("no axes of this machine")
        sizes = [Symmetry.grid_of(mesh).axes[axis] for axis in names]
        self.symmetry = symmetry = Symmetry(mesh, names, [_place(one, sizes) for one in also], shape.cost, 0)
        symmetry.values.proving = True
        if noted is not None and noted not in symmetry.run:
            raise ProtocolError("no rank of the recording")
        self.simulator = simulator_of_few(Shape(mesh, shape.cost, shape.experts), symmetry, True, noted)

    def outcome(
        self, recording: object, layers: int, batches: int, train: str, name: str, seconds: float, deadline: float
    ) -> OutcomeOfAll:
        """Return the outcome of all ranks, within so many seconds, which are over at the deadline. Raise PuzzleError
        where anything fails or is not proved, and otherwise as ``Replay.play``."""
        with watchdog(seconds):
            replay = Replay(cast(LocalSimulator, self.simulator), layers, batches, train)
            replay.play(recording, deadline)
            outcome = replay.outcome(name, partial(OutcomeOfAll, symmetry=self.symmetry))
            self._prove()
            assert isinstance(outcome, OutcomeOfAll)
            outcome.final_states  # noqa: B018 (Unlike is raised here where they do not follow)
        outcome.peak = getattr(self.simulator, "peak", None)
        return outcome

    def _prove(self) -> None:
        """Raise Unlike unless it is proved what comes of the others."""
        symmetry = self.symmetry
        symmetry.unclear = symmetry.unclear or unclear(symmetry, self.simulator.scripts)
        symmetry.followed = True  # they do what the recording says
        if reason := symmetry.unproved():
            raise Unlike(reason)


def _place(place: object, sizes: Sequence[int]) -> Place:
    """Return a place on axes of these sizes. Raise ProtocolError for what is none."""
    if type(place) is not list or len(place) != len(sizes):
        raise ProtocolError("no place")
    numbers = tuple(map(number, place))
    if not all(0 <= at < size for at, size in zip(numbers, sizes, strict=True)):
        raise ProtocolError("no place of this machine")
    return numbers
