"""The simulator of a run that is recorded: each call is noted, carried out, and written down when somebody asks.

A note is the call as it came, its result, and the learner's place in compiled code. What a replay needs is made of the
notes afterwards, so a run takes little longer for being recorded. A question (the clock, the log, what is stored) is
handed on and not noted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

from ..basics.errors import Deadlock, PuzzleError, is_learners_file, line_at, whole_call
from ..learner.dist import Dist
from ..learner.model import Model
from ..learner.storage import Storage
from ..machine.cost import Shape
from ..machine.in_flight import InFlight
from ..machine.interface import AnySimulator, Simulator
from ..machine.rank_state import RankState, TensorState
from ..machine.simulator import LocalSimulator
from ..record.operations import NO_OPTIONS
from ..running.execution import execute, left_over
from ..running.limits import TimeIsUp
from .diary import LONGEST_KEY, LONGEST_LINE, READ, REPLACED, STORED, TAKEN
from .replay import MOST, MOST_ERRORS
from .verbs import VERBS

PARTS = ("shard", "combine", "add", "scale")


def _recorded(verb: str) -> Any:
    """Return the method of a tensor that carries a verb out and records it."""
    return lambda tensor, *given: tensor.rank.verbs[verb](tensor.rank, tensor, *given)


class RecordedTensor(TensorState):
    """A tensor that is cut, joined and added up by calls which are recorded."""

    __slots__ = ()
    shard, combine, add, scale = map(_recorded, PARTS)


class RecordedRank(RankState):
    """A rank whose tensors are recorded. ``verbs``: what cuts, joins and adds up."""

    __slots__ = ("verbs",)
    tensor_type = RecordedTensor
    verbs: Mapping[str, Callable[..., Any]]


class RecordedSimulator(LocalSimulator):
    """A simulator of such ranks."""

    rank_type = RecordedRank


class RecordedStorage(Storage):
    """A dictionary of a rank that notes what it does with which key."""

    __slots__ = ()
    _simulator: Any  # its recorder

    def __setitem__(self, key: Hashable, tensor: Any) -> None:
        before = dict.get(self, key)
        super().__setitem__(key, tensor)
        if before is not tensor:
            code, at = _place(sys._getframe(1))
            self._simulator.notes.append((STORED, self._name, key, tensor._token, code, at, None))
            if before is not None:
                self._simulator.notes.append((REPLACED, self._name, key, before._token, code, at, None))

    def __getitem__(self, key: Hashable) -> Any:
        tensor = dict.get(self, key)
        if tensor is None:
            return self.__missing__(key)
        code, at = _place(sys._getframe(1))
        self._simulator.notes.append((READ, self._name, key, tensor._token, code, at, None))
        return tensor

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the tensor under a key, or what is given for the case that there is none."""
        return self[key] if key in self else super().get(key, default)

    def pop(self, key: Hashable, *default: Any) -> Any:
        """Take a tensor out, and return it."""
        tensor = dict.get(self, key)
        if tensor is not None:
            code, at = _place(sys._getframe(1))
            self._simulator.notes.append((TAKEN, self._name, key, tensor._token, code, at, None))
        return super().pop(key, *default)


def recorder_for(shape: Shape) -> Recorder:
    """Return a recorder of a run on a machine of this shape."""
    return Recorder(RecordedSimulator(shape, graded=True))


def recorded_run(
    fn: Callable[[Model], object], shape: Shape, layers: int, batches: int, timeout: float | None
) -> tuple[dict[str, Any], PuzzleError | None]:
    """Run a function on every rank. Return the recording of the run with its diary, and the error that has ended it, if
    one has."""
    recorder = recorder_for(shape)
    dist = Dist.of(shape, recorder.as_simulator)
    models = [Model(rank, dist, layers, batches) for rank in range(shape.mesh.everyone)]
    try:
        execute(fn, models, timeout)
        return recorder.whole(), left_over(models)
    except PuzzleError as error:
        return recorder.whole(), error


NOWHERE = ("store", "drop", "wait", "finish", "decide_next", "share", "deadlock")
"""Verbs of which nobody asks where they were written: of a dictionary, that is noted with its key."""
DEPTHS = {**dict.fromkeys(("load_weights", "load_adapter", "meet", "meet_list", "pass_to", *PARTS), 3), "fetch": 4}
"""How far up the learner's line is at least, where that is more than two functions: to look at each took runs 3 percent
longer."""


def _place(frame: FrameType | None) -> tuple[CodeType | None, int]:
    """Return the learner's code that has led to a frame, and the place in it."""
    while frame is not None:
        if is_learners_file((code := frame.f_code).co_filename):
            return code, frame.f_lasti
        frame = frame.f_back
    return None, 0


class Notes(list[tuple[Any, ...]]):
    """What was asked of a simulator: each call that was carried out to its end, as verb, rank, coroutine, arguments,
    the learner's code and the place in it, and the result or the error; and of dictionaries what they do, their name,
    key, tensor, and the same."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False  # whether nothing more is carried out
        self.errors_left = 0
        self.coroutines: dict[object, int] = {}  # keeps the tasks alive, so that no two get the same number
        self.holders: dict[int, Callable[[], object]] = {}  # by rank: what names the coroutine that runs

    def noting(self, verb: str, act: Callable[..., Any], of_rank: bool = True) -> Callable[..., Any]:
        """Return what carries a verb out and notes it. ``of_rank``: whether it is told the rank as well."""
        holders, depth = self.holders, 0 if verb in NOWHERE else DEPTHS.get(verb, 2)

        def noting(rank: RankState, *arguments: Any) -> Any:
            running = self._begin(rank.rank) if holders or self.over or len(self) >= MOST else None
            code, at = _place(sys._getframe(depth)) if depth else (None, 0)
            try:
                result = act(rank, *arguments) if of_rank else act(*arguments)
            except BaseException as error:
                self._failed(error, verb, rank.rank, running, arguments, code, at)
                raise
            self.append((verb, rank.rank, running, arguments, code, at, result))
            return result

        return noting

    def _begin(self, rank: int) -> int | None:
        """Return the number of the coroutine that runs, where a rank has several."""
        if self.over:
            raise TimeIsUp  # it was raised while a call was carried out, and caught: the machine is half way in it
        if len(self) >= MOST:
            raise PuzzleError(f"more than {MOST:,} calls in one run")
        holder = self.holders.get(rank)
        if holder is None or (running := holder()) is None:
            return None
        return self.coroutines.setdefault(running, len(self.coroutines))

    def _failed(self, error: BaseException, *note: Any) -> None:
        if isinstance(error, PuzzleError):
            self.append((*note, error))
            self.errors_left -= 1
        self.over = self.errors_left < 0 or not isinstance(error, PuzzleError)


class Recorder:
    """The simulator that a learner's function runs beside (see ``machine.interface``), and what it has been asked."""

    storage_type = RecordedStorage

    def __init__(self, simulator: LocalSimulator) -> None:
        self.simulator, self.notes = simulator, Notes()
        self.ranks: list[RankState] = []
        noting = self.notes.noting
        self.parts = {verb: noting(verb, getattr(TensorState, verb), of_rank=False) for verb in PARTS}
        verbs = ("wait", "fetch", "decide_next", "deadlock")
        self.others = {verb: noting(verb, getattr(simulator, verb), of_rank=False) for verb in verbs}
        self._share = noting("share", simulator.share)
        for name in vars(Simulator):
            if not name.startswith("_") and not hasattr(Recorder, name):
                act = getattr(simulator, name)  # a question is asked, and not noted
                setattr(self, name, noting(name, act) if name in VERBS else act)

    @property
    def as_simulator(self) -> AnySimulator:
        """This, for a learner's side that looks into no handle."""
        return cast(AnySimulator, self)

    def whole(self) -> dict[str, Any]:
        """Return ``calls`` and ``failed`` as ``Replay.play`` takes them, and the diary (see ``Writer``), for JSON."""
        writer = Writer(self.notes)
        diary = [writer.lines, writer.places, writer.kept]
        return {"calls": writer.calls, "failed": writer.failed, "diary": diary}

    # -- what is called in another way than it is recorded ---------------------------------------------------------

    def open(self, rank: int, layers: int, batches: int) -> RankState:
        state = self.simulator.open(rank, layers, batches)
        cast(RecordedRank, state).verbs = self.parts
        self.ranks.append(state)
        self.notes.errors_left += MOST_ERRORS
        return state

    def wait(self, call: InFlight, waiter: Callable[[], None]) -> bool:
        return self.others["wait"](call.rank, call, waiter)  # type: ignore[no-any-return]

    def fetch(self, call: InFlight) -> object:
        return self.others["fetch"](call.rank, call)

    def decide_next(self) -> bool:
        return self.others["decide_next"](self.ranks[0])  # type: ignore[no-any-return]

    def share(self, rank: RankState, holder: Callable[[], object]) -> None:
        if rank.rank not in self.notes.holders:
            self.notes.holders[rank.rank] = holder
            self._share(rank, holder)

    def deadlock(self, lines: Mapping[int, str], finished: frozenset[int] | None = None) -> Deadlock:
        return self.others["deadlock"](self.ranks[0], lines, finished)  # type: ignore[no-any-return]


class Writer:
    """Writes notes down as plain data. ``calls``, and which have ``failed`` at which line. ``lines``: of each call the
    number of its place among ``places``, which are the number of a line, its text, and its file unless that is the
    first one. ``kept``: what dictionaries have done, each with the number of calls before, what it did (see
    ``STORED``), with which tensor, its name, the key, and the place."""

    def __init__(self, notes: Sequence[tuple[Any, ...]]) -> None:
        self.calls: list[list[Any]] = []
        self.failed: list[list[Any]] = []
        self.lines: list[int] = []
        self.places: list[list[Any]] = []
        self.kept: list[list[Any]] = []
        self.numbers: dict[object, int] = {}  # of tensors
        self.numbers_of_calls: dict[object, int] = {}
        self.known: dict[tuple[int, int], int] = {}  # by code and the place in it the number of the line
        self.numbers_of_lines: dict[tuple[str, int], int] = {}
        for note in notes:
            self._write(note)

    def _write(self, note: tuple[Any, ...]) -> None:
        verb, rank, coroutine, arguments, code, place, result = note
        line = self._line(code, place)
        arguments = (*arguments, arguments[0].peer) if verb == "fetch" else arguments  # which is known by now
        if verb not in VERBS:
            if (number := self.numbers.get(arguments)) is not None:
                self.kept.append([len(self.calls), verb, number, rank, repr(coroutine)[:LONGEST_KEY], line])
            return
        try:
            values = [
                argument if kind.write is None else kind.write(self, argument)
                for kind, argument in zip(VERBS[verb], (*arguments, NO_OPTIONS), strict=False)
            ]
        except KeyError:
            if isinstance(result, PuzzleError):
                return  # a tensor made by hand, or of another run: nothing is recorded of what no call has made
            raise
        self.calls.append([verb, rank, coroutine, *values])
        self.lines.append(line)
        if isinstance(result, PuzzleError) and verb != "deadlock":
            self.failed.append([len(self.calls) - 1, str(result.line)])
        elif result is not None:
            self._enter(result)

    def _enter(self, result: object) -> None:
        """Number the tensors and calls that a call has made."""
        if isinstance(result, TensorState):
            self.numbers[result] = len(self.numbers)
        elif isinstance(result, InFlight):
            self.numbers_of_calls[result] = len(self.numbers_of_calls)
        elif isinstance(result, (tuple, list)):
            for one in result:
                self._enter(one)

    def _line(self, code: CodeType | None, place: int) -> int:
        """Return the number of a place."""
        key = id(code), place
        if key not in self.known:
            file, number = ("", 0) if code is None else (code.co_filename, line_at(code, place))
            self.known[key] = self.numbers_of_lines.setdefault((file, number), len(self.places))
            if self.known[key] == len(self.places):
                first = next((name for name, _ in self.numbers_of_lines if name), "")
                text = whole_call(file, number)[:LONGEST_LINE] if file else ""
                self.places.append([number, text, "" if file in ("", first) else Path(file).name])
        return self.known[key]
