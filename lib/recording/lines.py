"""A run whose recording says as well where each call was written, and under which key something is stored.

A replay needs none of it, and believes none of it: it is for what a run is explained with (see ``lib.explain``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..basics.errors import PuzzleError
from ..learner.dist import Dist
from ..learner.model import Model
from ..machine.cost import Shape
from ..running.execution import execute, left_over
from .recorder import READ, REPLACED, STORED, TAKEN, recorder_for

__all__ = ["READ", "REPLACED", "STORED", "TAKEN", "recorded_run"]


def recorded_run(
    fn: Callable[[Model], object], shape: Shape, layers: int, batches: int, timeout: float | None
) -> tuple[dict[str, Any], PuzzleError | None]:
    """Run a function on every rank. Return the recording of the run, and the error that has ended it, if one has."""
    recorder = recorder_for(shape)
    dist = Dist.of(shape, recorder.as_simulator)
    models = [Model(rank, dist, layers, batches) for rank in range(shape.mesh.everyone)]
    try:
        execute(fn, models, timeout)
        return recorder.whole(), left_over(models)
    except PuzzleError as error:
        return recorder.whole(), error
