"""The notes on a peak, of a run that is known: from another run with few ranks, where these tell as much.

To say what a peak is made of, a program is run once more, with notes on the tensors of one rank. What the other ranks
do is known from the first run. So where ranks stand for others, a few of them are enough, if each does again, record by
record, what it has done on the whole machine.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

from ..basics.errors import PuzzleError
from ..learner.dist import Dist
from ..machine.cost import Shape
from ..machine.lives import WatchedSimulator
from ..machine.mesh import Mesh
from ..machine.outcome import Outcome
from ..record.operations import Values
from ..record.table import RECEIVE, SEND
from ..represent.links import Represented
from ..represent.symmetry import Symmetry
from .effects import only_its_model
from .limits import TIMEOUT, collector_off, limit
from .run import Run, Settings, train_on
from .workload import Workload

MANY = 32
"""From so many ranks on, few are run. With less, it would save nothing."""

LIKELIEST = 0
"""The rank whose memory is the highest in nearly all programs: among ranks that do the same, it is the first that
counts, and in a pipeline the first stage holds most. If the first run notes what it does, no other run is needed."""


def without_notes(done: Outcome) -> Any:
    """Return an outcome without the notes on a peak, if it has any."""
    plain = copy(done)
    plain.peak = None
    return plain


def noted_by_few(fn: Callable[[Any], object], whole: Run, watched: int, timeout: float | None = TIMEOUT) -> Run | None:
    """Return a run with notes on what a rank held when its memory was highest, as ``run(..., peak=True)`` makes them.
    None where a run of few ranks may not tell, or takes more than ``timeout`` seconds."""
    if whole.ranks < MANY or whole.hosts or whole.cost.uneven is not None or not only_its_model(fn):
        return None
    mesh = Mesh(whole.ranks, whole.mesh, whole.node_size)
    axes = _without_messages(whole, mesh)
    if not axes:
        return None
    shape = Shape(mesh, whole.cost, whole.experts)
    work = Workload(whole.layers, whole.batches, train=whole.train)
    settings = Settings(limit(timeout, whole.ranks, whole.layers, whole.batches))
    try:
        symmetry = Symmetry(mesh, axes, [], whole.cost, least=watched)
        simulator = WatchedSimulator(
            shape,
            watched,
            values=cast(Values, symmetry.values),
            network=partial(Represented, symmetry),
        )
        models = train_on(fn, Dist.of(shape, simulator.as_simulator), work, settings)
    except PuzzleError:
        return None
    with collector_off():
        known = {rank: [*own] for rank, own in groupby(whole.events, attrgetter("rank"))}
        logs = models[0]._simulator.finish_logs([model._handle for model in models])
        if any([*log] != known.get(model._rank) for model, log in zip(models, logs, strict=True)):
            return None
    [lines] = [model.lines() for model in models if model._rank == watched]
    noted = copy(whole)
    noted.peak = simulator.peak._replace(lines=tuple([str(line or "") for line in lines]))
    return noted


def _without_messages(whole: Run, mesh: Mesh) -> list[str]:
    """Return the axes of a machine along which no message was sent."""
    grid = Symmetry.grid_of(mesh)
    sent = {event.group for event in whole.events if event.kind in (SEND.kind, RECEIVE.kind)}
    ends = [[grid.coordinates(rank) for rank in group] for group in sent]
    return [axis for axis in grid.axes if all(len({place[axis] for place in both}) == 1 for both in ends)]
