"""A recorder that writes down as well where each call was written, and under which key something is stored.

A replay needs none of it, and believes none of it: it is for what a run is explained with (see ``lib.explain``).
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from ..basics.errors import PuzzleError, learner_frame
from ..learner.dist import Dist
from ..learner.model import Model
from ..learner.storage import Storage
from ..machine.cost import Shape
from ..running.execution import execute, left_over
from .recorder import RecordedSimulator, Recorder

STORED, REPLACED, TAKEN = "stored", "replaced", "taken"
"""What becomes of a tensor in a dictionary: it is stored, another one is stored over it, it is taken out."""
_WAYS = {Storage.__setitem__.__code__: {"store": STORED, "drop": REPLACED}, Storage.pop.__code__: {"drop": TAKEN}}


class Diary(list[list[Any]]):
    """The calls of a recording. ``lines``: of each call the number of its place among ``places``, which are the number
    of a line, its text, and its file unless that is the first one. ``kept``: of the calls that store a tensor or take it
    out, by their number, what they do (see ``STORED``), in which dictionary, and the key as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []
        self.places: list[tuple[int, str, str]] = []
        self.kept: dict[int, tuple[str, str, str]] = {}
        self._known: dict[tuple[str, int], int] = {}

    def append(self, call: list[Any]) -> None:
        """Add a call, with the learner's line that makes it."""
        at, frame = len(self), learner_frame()
        self.lines[at:] = [self._place(frame)]  # a call that was no call is taken back
        self.kept.pop(at, None)
        if call[0] in ("store", "drop") and (found := _dictionary(sys._getframe(1), call[0])) is not None:
            self.kept[at] = found
        super().append(call)

    def _place(self, frame: FrameType | None) -> int:
        file, number = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        at = self._known.get((file, number))
        if at is None:
            at = self._known[file, number] = len(self.places)
            first = next(iter(self._known))[0]
            text = linecache.getline(file, number).strip() if file else ""
            self.places.append((number, text, "" if file == first else Path(file).name))
        return at


def _dictionary(frame: FrameType | None, verb: str) -> tuple[str, str, str] | None:
    """Return what the dictionary does that has called, its name, and the key; None where nothing of that is known."""
    while frame is not None:
        if (ways := _WAYS.get(frame.f_code)) is not None:
            own = frame.f_locals
            return ways[verb], own["self"]._name, repr(own["key"])[:80]
        frame = frame.f_back
    return None


class LineRecorder(Recorder):
    """A recorder whose recording says where each call was written."""

    listed = Diary
    recorded: Diary

    def recording(self) -> dict[str, Any]:
        """Return what has been recorded. ``diary`` is what ``Diary`` says of it, as JSON can carry it."""
        diary = self.recorded
        kept = [[at, *what] for at, what in diary.kept.items()]
        return {**super().recording(), "diary": {"lines": diary.lines, "places": diary.places, "kept": kept}}


def line_recorder_for(shape: Shape, layers: int, batches: int) -> LineRecorder:
    """Return a recorder, which notes lines, of a run on a machine of this shape."""
    return LineRecorder(RecordedSimulator(shape, graded=True), layers, batches)


def recorded_run(
    fn: Callable[[Model], object], shape: Shape, layers: int, batches: int, timeout: float | None
) -> tuple[dict[str, Any], PuzzleError | None]:
    """Run a function on every rank. Return the recording of the run, and the error that has ended it, if one has."""
    recorder = line_recorder_for(shape, layers, batches)
    dist = Dist.of(shape, recorder.as_simulator)
    models = [Model(rank, dist, layers, batches) for rank in range(shape.mesh.everyone)]
    try:
        execute(fn, models, timeout)
        return recorder.recording(), left_over(models)
    except PuzzleError as error:
        return recorder.recording(), error
