"""A recorder that writes down as well where each call was written, and under which key something is stored.

A replay needs none of it, and believes none of it: it is for what a run is explained with (see ``lib.explain``).
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

from ..basics.errors import PuzzleError, is_learners
from ..learner.dist import Dist
from ..learner.model import Model
from ..learner.storage import Storage
from ..machine.cost import Shape
from ..running.execution import execute, left_over
from .recorder import RecordedSimulator, Recorder
from .safe import shown
from .wire import ProtocolError

LONGEST_KEY, LONGEST_LINE = 80, 400  # characters of a key as it is written, and of a line

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
        self._own: dict[CodeType, bool] = {}  # whether a code is the learner's
        self._known: dict[tuple[CodeType | None, int], int] = {}  # by a place in a code
        self._first = ""  # the file of the first call

    def append(self, call: list[Any]) -> None:
        """Add a call, with the learner's line that makes it."""
        self.lines[len(self) :] = [self._place()]  # a call that was no call is taken back
        super().append(call)

    def keep(self, way: str, number: int, store: str, key: Hashable) -> None:
        """Add what a dictionary does with the tensor of that number."""
        self.kept.append((len(self), way, number, store, repr(key)[:LONGEST_KEY], self._place()))

    def _place(self) -> int:
        """Return the number of the learner's line that runs now. (It is asked at each call: a place in the code costs
        less than a line.)"""
        frame: FrameType | None = sys._getframe(2)
        own = self._own
        while frame is not None:
            code = frame.f_code
            known = own.get(code)
            if known is None:
                known = own[code] = is_learners(code)
            if known:
                break
            frame = frame.f_back
        key = (None, 0) if frame is None else (frame.f_code, frame.f_lasti)
        at = self._known.get(key)
        return self._new_place(key, frame) if at is None else at

    def _new_place(self, key: tuple[CodeType | None, int], frame: FrameType | None) -> int:
        file, number = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        text = linecache.getline(file, number).strip()[:LONGEST_LINE] if file else ""
        first = self._first = self._first or file
        row = (number, text, "" if file == first else Path(file).name)
        if row not in self.places:
            self.places.append(row)
        self._known[key] = self.places.index(row)
        return self._known[key]


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
        kept = cast(Diary, cast(Any, self._simulator).recorded).kept
        before = len(kept)
        tensor = super().pop(key, *default)
        if len(kept) > before:  # it was read to be taken out
            kept[-1] = (kept[-1][0], TAKEN, *kept[-1][2:])
        return tensor

    def _held(self, key: Hashable) -> Any:
        return dict.get(self, key)

    def _note(self, way: str, key: Hashable, tensor: Any) -> None:
        recorder: Any = self._simulator
        number = None if tensor is None else recorder.numbers.get(tensor._token)
        if number is not None:
            recorder.recorded.keep(way, number, self._name, key)


ReadDiary = tuple[list[int], list[list[Any]], list[list[Any]]]
NO_DIARY: ReadDiary = ([], [], [])


def read_diary(diary: object) -> ReadDiary:
    """Return the lines, the places and what dictionaries did (see ``Diary``), of what may come from anybody; none for
    None. Raise ProtocolError for what no recorder has written."""
    if diary is None:
        return NO_DIARY
    if type(diary) is not list or [*map(type, diary)] != [list, list, list]:
        raise ProtocolError("no diary")
    lines, places, kept = diary
    numbered = [type(line) is int and 0 <= line < len(places) for line in lines]
    written = [_is_row(row, int, str, str) for row in places]
    done = [_is_row(row, int, str, int, str, str, int) and row[5] < len(places) and row[2] >= 0 for row in kept]
    if not all([*numbered, *written, *done]):
        raise ProtocolError("no diary")
    places = [[number, *(shown(text, LONGEST_LINE) for text in texts)] for number, *texts in places]
    kept = [
        [at, shown(way, 20), tensor, shown(store, 20), shown(key, LONGEST_KEY), place]
        for at, way, tensor, store, key, place in kept
    ]
    return lines, places, kept


def _is_row(row: object, *types: type) -> bool:
    return type(row) is list and tuple(map(type, row)) == types


class LineRecorder(Recorder):
    """A recorder whose recording says where each call was written."""

    listed = Diary
    recorded: Diary

    def recording(self) -> dict[str, Any]:
        """Return what has been recorded. ``diary`` is what ``Diary`` says of it, as JSON can carry it."""
        diary = self.recorded
        return {**super().recording(), "diary": [diary.lines, [*map(list, diary.places)], [*map(list, diary.kept)]]}


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
            store.__class__ = NotingStorage  # a Model makes its own
    try:
        execute(fn, models, timeout)
        return recorder.recording(), left_over(models)
    except PuzzleError as error:
        return recorder.recording(), error
