"""Notes of a run, from its recording: each call with its line, and where each tensor comes from and goes to.

A recording is carried out once more, on a simulator of its own, and nothing but that is believed: only lines and keys
are taken from what was written down beside it (see ``recording.diary``). No line of a learner's code runs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from ..basics.errors import PuzzleError
from ..course.layouts import Size
from ..course.specs import machine_of
from ..machine.check import TRAINED
from ..machine.cost import Cost
from ..machine.failure import Wait
from ..machine.in_flight import InFlight
from ..machine.lives import Peak, WatchedSimulator
from ..machine.outcome import Outcome
from ..machine.rank_state import RankState
from ..machine.simulator import LocalSimulator
from ..record.labels import Labels
from ..record.table import SEND, stream_of
from ..recording.diary import READ, Diary, read_diary
from ..recording.replay import Replay
from ..recording.wire import ProtocolError

SECONDS = 10.0
"""How long a replay may take: it is left where it is then, and what is noted so far is explained."""
SHARD, COMBINE, ADD, SCALE = "shard", "combine", "add", "scale"
PARTS = (SHARD, COMBINE, ADD, SCALE)
"""What is done with tensors beside the operations: they are cut, joined, added up and multiplied."""
LOADS, FINAL, STORE = ("load_weights", "load_adapter"), "set_final_weight", "store"


@dataclass(frozen=True)
class Line:
    """A line of a program. ``file`` is empty for the one that most is in."""

    number: int = 0
    text: str = ""
    file: str = ""

    def __str__(self) -> str:
        return f"line {self.number}{f' of {self.file}' if self.file else ''}: {self.text}"


NO_LINE = Line()
Key = tuple[object, ...]


@dataclass(eq=False)
class Call:
    """A call of a rank."""

    at: int  # its place among the calls of the recording: a call comes after all that it could know of
    rank: int
    kind: str  # the learner's verb
    layer: int | tuple[int, ...] | None
    line: Line
    tick: float  # the rank's clock
    entry: int  # how many records of the rank's log come before it
    operands: list[Tensor]
    batches: frozenset[int] = frozenset()  # that it takes or works on
    axis: object = None
    options: tuple[str, ...] = ()  # as they are written, such as partial=True
    peer: int | None = None  # of a message: the other rank
    other: Call | None = None  # of a message that has come: the call at its other end
    results: list[Tensor] = field(default_factory=list)
    failed: bool = False
    wants: str = ""  # of one that was refused: the kind that it takes
    fetched: int | None = None  # where its result was fetched among the calls of the recording
    awaited: Line = NO_LINE

    @property
    def stream(self) -> str:
        """``compute``, ``collective`` or ``message``, or an empty text for anything else."""
        return stream_of(self.kind)

    def key(self) -> Key:
        """Return what the call does, as it can be compared with one of another run."""
        by_batch = self.stream == "compute" or self.kind == "pass_to"
        carries = tuple(sorted(set(self.carries))) if self.stream == "collective" else ()
        layer = None if self.kind == "receive" else self.layer
        return self.kind, layer, self.batches if by_batch else None, carries, str(self.axis or ""), self.peer

    @property
    def carries(self) -> tuple[str, ...]:
        """The kinds of tensors that it takes."""
        return tuple(one.labels.kind for one in self.operands)


@dataclass(eq=False)
class Kept:
    """What a dictionary has done with a tensor: ``way`` is ``recording.diary.STORED`` or another."""

    at: float  # between two calls of the recording
    way: str
    store: str
    key: str
    line: Line
    tensor: Tensor


@dataclass(eq=False)
class Tensor:
    """A tensor: what has made it, from which others, what has read it, and where it was stored."""

    call: Call
    index: int  # among the results of the call
    labels: Labels
    parents: list[Tensor]
    readers: list[Call] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    looked_up: list[Kept] = field(default_factory=list)

    @property
    def how(self) -> str:
        """What has made it: a verb, or a part of ``PARTS``."""
        return self.call.kind


class Notes:
    """What was noted of a run."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.calls: dict[int, list[Call]] = {}  # by rank, in order
        self.finals: dict[tuple[int, int], Call] = {}  # by rank and layer: what has set its final weight
        self.kept: dict[tuple[int, str, str], list[Kept]] = defaultdict(list)  # by rank, dictionary and key
        self.waits: dict[int, tuple[Call, Wait, Call]] = {}  # by rank what it awaits at the end, and its first call
        self.finished: frozenset[int] = frozenset()
        self.end = 0  # how many calls were recorded
        self.until = inf  # the tick of the error: what other ranks call later has no part in it
        self.outcome: Outcome | None = None
        self.peak: Peak | None = None  # what was held when memory was highest, of a rank that was watched

    def all_calls(self) -> list[Call]:
        """Return the calls of all ranks, rank by rank."""
        return [call for own in self.calls.values() for call in own]

    def work(self, rank: int) -> list[Call]:
        """Return the calls of a rank that stand in its log."""
        return [call for call in self.calls.get(rank, ()) if call.stream]

    def lines(self, rank: int) -> dict[int, str]:
        """Return the learner's lines of a rank by their places in its log."""
        return {call.entry: str(call.line) for call in self.calls.get(rank, ()) if call.line.number}

    def failed(self, rank: int | None, operands: Collection[str]) -> Call | None:
        """Return the first call that has failed, of a rank if one is given; if it can be, one that was given these."""
        failed = [call for call in self.all_calls() if call.failed and rank in (None, call.rank)]
        fitting = [call for call in failed if any(str(one.labels) in operands for one in call.operands)]
        return min(fitting or failed, key=lambda call: (call.tick, call.rank), default=None)


def noted(
    recording: Mapping[str, Any], size: Size, cost: str | Cost, seconds: float = SECONDS, watched: int | None = None
) -> Notes:
    """Return the notes of a recorded run, with what the rank ``watched`` holds at its peak, or raise ProtocolError."""
    notes, machine = Notes(size), machine_of(size, cost)
    simulator = LocalSimulator(machine, graded=True) if watched is None else WatchedSimulator(machine, watched)
    replay = NotedReplay(simulator, size, notes, read_diary(recording.get("diary")))
    with suppress(TimeoutError):  # then what is noted so far is explained
        replay.play({part: recording[part] for part in ("calls", "failed")}, time.monotonic() + seconds)
    replay.link()
    notes.end = len(recording["calls"])
    notes.finished = frozenset(replay.finished)
    with suppress(PuzzleError, ProtocolError):  # it has come to no end, or to no right one
        notes.outcome = replay.outcome("")
    if isinstance(simulator, WatchedSimulator) and notes.outcome is not None:
        lines = notes.lines(simulator.peak.rank)
        known = tuple(lines.get(place, "") for place in range(max(lines, default=-1) + 1))
        notes.peak = simulator.peak._replace(lines=known)
    return notes


class NotedReplay(Replay):
    """A replay that notes each call before it is carried out, and what comes of it afterwards."""

    def __init__(self, simulator: LocalSimulator, size: Size, notes: Notes, diary: Diary) -> None:
        super().__init__(simulator, size["layers"], size["batches"], size.get("train", TRAINED[0]))
        self.notes = notes
        self.place = -1  # of the call among those of the recording
        self.lines, places, self.kept = diary
        self.places = [Line(*place) for place in places]
        self.noted: list[Tensor] = []  # by the numbers of the replay's tensors
        self.made_by: dict[InFlight, Call] = {}
        self.waiting: dict[int, InFlight] = {}
        notes.calls = {state.rank: [] for state in self.ranks}

    def act(self, state: RankState, call: list[Any]) -> Any:
        """Carry a call out as ``Replay`` does, and note it."""
        self.place += 1
        verb, arguments = call[0], call[3:]
        if verb in ("wait", "fetch"):
            return self._note_wait(state, call)
        if verb not in _READS:
            return super().act(state, call)
        made = self._noted(state, verb, arguments)
        before = len(self.tensors)
        try:
            result = super().act(state, call)
        except PuzzleError:
            made.failed = True
            raise
        finally:
            if verb != STORE or made.failed:
                self.notes.calls[state.rank].append(made)
                for tensor in made.operands:
                    tensor.readers.append(made)
        if isinstance(result, InFlight):
            self.made_by[result] = made
        self._made(made, before)
        if verb == FINAL:
            self.notes.finals[state.rank, int(made.layer)] = made  # type: ignore[arg-type]
        return result

    def _noted(self, state: RankState, verb: str, arguments: Sequence[Any]) -> Call:
        """Return the notes of a call, from its arguments as they are written."""
        named = [*zip(_READS[verb], arguments, strict=True)]
        known = dict(named)
        given = [one if isinstance(one, list) else [one] for name, one in named if name == OPERANDS]
        numbers = (one for some in given for one in some if type(one) is int and 0 <= one < len(self.noted))
        operands = [self.noted[one] for one in numbers]
        kind, layer, batches, axis = (known.get(name) for name in ("kind", "layer", "batches", "axis"))
        if layer is None and operands:
            layer = operands[0].labels.layer
        if batches is None and stream_of(kind or verb) in ("compute", SEND.stream):
            batches = next((one.labels.batches for one in operands if one.labels.batches), None)
        options = [f"{name}={one!r}" for name, one in known.get("options", {}).items()]
        return Call(
            at=self.place,
            rank=state.rank,
            kind=kind or verb,
            layer=tuple(layer) if isinstance(layer, list) else layer,
            line=self._line(),
            tick=state.tick,
            entry=len(state.log),
            operands=operands,
            batches=frozenset(batches or ()),
            axis=tuple(axis) if isinstance(axis, list) else axis,
            options=(f" (x {known['factor']})",) if verb == SCALE else tuple(options),
            peer=known.get("peer"),
        )

    def _line(self) -> Line:
        return self.places[self.lines[self.place]] if self.place < len(self.lines) else NO_LINE

    def _note_wait(self, state: RankState, call: list[Any]) -> Any:
        """Carry out that a rank waits for a communication, or fetches what it has brought."""
        handle, before = self.calls[call[3]], len(self.tensors)
        made = self.made_by[handle]
        try:
            result = super().act(state, call)
        except PuzzleError:
            made.failed = True
            raise
        self.waiting[state.rank] = handle
        if call[0] == "fetch":
            del self.waiting[state.rank]
            made.fetched, made.awaited = self.place, self._line()
            self._made(made, before)
            if made.kind == "receive" and made.results:
                made.layer, made.batches = made.results[0].labels.layer, made.results[0].labels.batches
        return result

    def _made(self, call: Call, before: int) -> None:
        """Note the tensors that a call has made, which are those from number ``before`` on."""
        made = [Tensor(call, at, one.labels, list(call.operands)) for at, one in enumerate(self.tensors[before:])]
        self.noted += made
        call.results += made

    def link(self) -> None:
        """Join what collectives and messages have brought; note what dictionaries have done, and who waits for whom."""
        for at, way, number, store, key, place in self.kept:
            if number < len(self.noted):
                tensor = self.noted[number]
                kept = Kept(at - 0.5, way, store, key, self.places[place], tensor)
                (tensor.looked_up if way == READ else tensor.kept).append(kept)
                if way != READ:
                    self.notes.kept[tensor.call.rank, store, key].append(kept)
        network = self.simulator.network
        for rank, handle in self.waiting.items():
            if not handle.over and rank not in self.finished:
                wait = network.wait_of(handle)
                self.notes.waits[rank] = self.made_by[handle], wait, self.made_by[network.links[rank].open[wait.at]]
        groups: dict[int, list[Call]] = defaultdict(list)
        sends: dict[object, Call] = {}
        for handle, call in self.made_by.items():
            if handle.meeting is not None:
                groups[id(handle.meeting)].append(call)
            elif handle.sends and handle.op:
                sends[handle.op] = call
        for calls in groups.values():
            calls.sort(key=lambda call: call.rank)
            for own in calls:
                brought = [*own.operands, *(one for call in calls if call is not own for one in call.operands)]
                for result in own.results:
                    layers = own.layer if isinstance(own.layer, int) else result.labels.layer
                    result.parents = [one for one in brought if one.labels.layer == layers] or brought
        for handle, call in self.made_by.items():
            sent = sends.get(handle.op) if call.kind == "receive" else None
            if sent is not None:
                call.peer, call.other = sent.rank, sent
                sent.other = call if call.results else None
                for result in call.results:
                    result.parents = list(sent.operands)


OPERANDS = "operands"
_READS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(LOADS, ("layer", "shard", "total")),
    "get_activation": ("batches",),
    "fake_grad": ("layer", "batches"),
    "compute": ("kind", "layer", OPERANDS, "options"),
    "set_final_weight": ("layer", OPERANDS),
    **dict.fromkeys(("meet", "meet_list"), ("kind", OPERANDS, "layer", "axis")),
    "pass_to": ("peer", OPERANDS, "plain"),
    "receive": ("peer",),
    STORE: (OPERANDS,),
    SHARD: (OPERANDS, "index", "total"),
    SCALE: (OPERANDS, "factor"),
    **dict.fromkeys((COMBINE, ADD), (OPERANDS, OPERANDS)),
}
"""What the arguments of a verb are, in the order of ``recording.verbs.VERBS``: of those of which notes are taken."""
