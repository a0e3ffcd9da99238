"""A recorder that writes down as well where each call was written, and under which key something is stored.

A replay needs none of it, and believes none of it: it is for what a run is explained with (see ``lib.explain``).
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from ..basics.errors import PuzzleError, learner_frame
from ..learner.dist import Dist
from ..learner.model import Model
from ..learner.storage import Storage
from ..machine.cost import Shape
from ..running.execution import execute, left_over
from .recorder import RecordedSimulator, Recorder

LONGEST_KEY = 80  # characters of a key as it is written

STORED, REPLACED, TAKEN, READ = "stored", "replaced", "taken", "read"
"""What a dictionary does with a tensor: it is stored, another one is stored over it, it is taken out, it is read."""


class Diary(list[list[Any]]):
    """The calls of a recording. ``lines``: of each call the number of its place among ``places``, which are the number
    of a line, its text, and its file unless that is the first one. ``kept``: what dictionaries have done, each with the
    number of calls before, what it did (see ``STORED``), with which tensor, its name, the key, and the place."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []
        self.places: list[tuple[int, str, str]] = []
        self.kept: list[tuple[int, str, int, str, str, int]] = []
        self._known: dict[tuple[str, int], int] = {}

    def append(self, call: list[Any]) -> None:
        """Add a call, with the learner's line that makes it."""
        self.lines[len(self) :] = [self._place()]  # a call that was no call is taken back
        super().append(call)

    def keep(self, way: str, number: int, store: str, key: Hashable) -> None:
        """Add what a dictionary does with the tensor of that number."""
        self.kept.append((len(self), way, number, store, repr(key)[:LONGEST_KEY], self._place()))

    def _place(self) -> int:
        """Return the number of the learner's line that runs now."""
        frame = learner_frame()
        file, number = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        at = self._known.get((file, number))
        if at is None:
            at = self._known[file, number] = len(self.places)
            first = next(iter(self._known))[0]
            text = linecache.getline(file, number).strip() if file else ""
            self.places.append((number, text, "" if file == first else Path(file).name))
        return at


class NotingStorage(Storage):
    """A dictionary of a rank that notes what it does."""

    __slots__ = ()

    def __setitem__(self, key: Hashable, tensor: Any) -> None:
        before = self._held(key)
        super().__setitem__(key, tensor)
        if before is not tensor:
            self._note(STORED, key, tensor)
            self._note(REPLACED, key, before)

    def __getitem__(self, key: Hashable) -> Any:
        self._note(READ, key, self._held(key))
        return super().__getitem__(key)

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the tensor under a key, or what is given for the case that there is none."""
        self._note(READ, key, self._held(key))
        return super().get(key, default)

    def pop(self, key: Hashable, *default: Any) -> Any:
        """Take a tensor out, and return it."""
        self._note(TAKEN, key, self._held(key))
        return super().pop(key, *default)

    def _held(self, key: Hashable) -> Any:
        return dict.get(self, key)

    def _note(self, way: str, key: Hashable, tensor: Any) -> None:
        recorder: Any = self._simulator
        number = None if tensor is None else recorder.numbers.get(tensor._token)
        if number is not None:
            recorder.recorded.keep(way, number, self._name, key)


class LineRecorder(Recorder):
    """A recorder whose recording says where each call was written."""

    listed = Diary
    recorded: Diary

    def recording(self) -> dict[str, Any]:
        """Return what has been recorded. ``diary`` is what ``Diary`` says of it, as JSON can carry it."""
        diary = self.recorded
        return {**super().recording(), "diary": {"lines": diary.lines, "places": diary.places, "kept": diary.kept}}


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
    for model in models:
        for store in model.storage():
            store.__class__ = NotingStorage  # type: ignore[assignment]  # a Model makes its own
    try:
        execute(fn, models, timeout)
        return recorder.recording(), left_over(models)
    except PuzzleError as error:
        return recorder.recording(), error
