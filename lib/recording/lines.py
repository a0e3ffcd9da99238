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
from .recorder import LONGEST_KEY, LONGEST_LINE, READ, REPLACED, STORED, TAKEN, recorder_for
from .safe import shown
from .wire import ProtocolError

__all__ = ["LONGEST_KEY", "NO_DIARY", "READ", "REPLACED", "STORED", "TAKEN", "ReadDiary", "read_diary", "recorded_run"]

ReadDiary = tuple[list[int], list[list[Any]], list[list[Any]]]
NO_DIARY: ReadDiary = ([], [], [])


def read_diary(diary: object) -> ReadDiary:
    """Return the lines, the places and what dictionaries did (see ``recorder.Writer``), of what may come from anybody;
    nothing for None. Raise ProtocolError for what no recorder has written."""
    if diary is None:
        return NO_DIARY
    if type(diary) is not list or [*map(type, diary)] != [list, list, list]:
        raise ProtocolError("no diary")
    lines, places, kept = diary
    numbered = [type(line) is int and 0 <= line < len(places) for line in lines]
    known = [_is_row(row, int, str, str) for row in places]
    done = [_is_row(row, int, str, int, str, str, int) and row[5] < len(places) and row[2] >= 0 for row in kept]
    if not all([*numbered, *known, *done]):
        raise ProtocolError("no diary")
    places = [[number, *(shown(text, LONGEST_LINE) for text in texts)] for number, *texts in places]
    kept = [
        [at, shown(way, 20), tensor, shown(store, 20), shown(key, LONGEST_KEY), place]
        for at, way, tensor, store, key, place in kept
    ]
    return lines, places, kept


def _is_row(row: object, *types: type) -> bool:
    return type(row) is list and tuple(map(type, row)) == types


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
