"""Carries the calls of a recording out, on a simulator of its own, and believes nothing else.

Every argument is checked, and tensors and calls are known by their numbers only. So a right outcome needs the calls of
a right run, whoever writes them: to tamper with a recording is not forbidden, it is pointless.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..basics.errors import Deadlock, PuzzleError, witnessed
from ..machine.check import TRAINED
from ..machine.in_flight import InFlight
from ..machine.mesh import Axis
from ..machine.outcome import Outcome
from ..machine.rank_state import RankState, TensorState
from ..machine.simulator import LocalSimulator
from ..record.events import Event
from ..record.labels import NO_EXTRA, Labels
from ..record.table import collective, computation
from ..running.execution import cause, place_at
from .safe import LONGEST_TEXT, number, presentable, shown
from .verbs import AFTERWARDS, MOST_PIECES, VERBS, of_kind, read_layer
from .wire import ProtocolError

MOST, MOST_BYTES = 500_000, 1 << 25
"""Calls of one recording, and bytes of it: what comes of them is in memory, and takes time."""
MOST_ERRORS = 100
"""Errors of each rank: a run in which every rank makes the same mistake comes to its end, and tells where it is."""
OFTEN = 256  # calls between two looks at the clock


class Replay:
    """One run, carried out call by call."""

    waiter: Callable[[], None] = staticmethod(lambda: None)
    """What is called when the call that is waited for can be fetched: here the recording says when it is fetched."""

    def __init__(self, simulator: LocalSimulator, layers: int, batches: int, train: str = TRAINED[0]) -> None:
        """``train``: what is to be trained (see ``machine.check``)."""
        self.simulator, self.layers, self.train = simulator, layers, train
        self.ranks = [simulator.open(rank, layers, batches) for rank in simulator.mesh.running]
        self.by_number = {state.rank: state for state in self.ranks}
        self.tensors: list[TensorState] = []
        self.calls: list[InFlight] = []
        self.pieces = self.failures = 0
        self.state, self.operation = self.ranks[0], ""
        self.coroutine: int | None = None  # the number of the one that makes the call
        self.finished: set[int] = set()
        self.errors: list[PuzzleError] = []
        self.stuck: Deadlock | None = None
        self.acts = {
            verb: (getattr(self, f"_{verb}", getattr(simulator, verb, _of_tensor(verb))), [kind.read for kind in kinds])
            for verb, kinds in VERBS.items()
        }

    # -- a recording -----------------------------------------------------------------------------------------------

    def play(self, recording: object, deadline: float) -> None:
        """Carry out the calls of a recording. Stop at the first one that fails and is not marked as failed.

        Raise ProtocolError for what is no recording, for a call that is marked as failed and succeeds here, and for one
        that fetches a message before it comes. Raise TimeoutError after the deadline (of time.monotonic)."""
        calls, lines = _parts(recording)
        token = witnessed.set(self.errors)
        try:
            for place, call in enumerate(calls):
                if not place % OFTEN and time.monotonic() > deadline:
                    raise TimeoutError
                made = len(self.errors)
                try:
                    self.carry_out(call)
                except PuzzleError as error:
                    self.failures += 1
                    for one in self.errors[made:]:
                        place_at(one, self.state.rank, self.state.tick)
                    error.line = lines.get(place, "")
                    if place not in lines or self.failures > MOST_ERRORS * len(self.ranks):
                        return
                else:
                    if place in lines:
                        raise ProtocolError(f"{call[0]} is marked as failed, and succeeds")
        finally:
            witnessed.reset(token)

    def carry_out(self, call: object) -> Any:
        """Return the result of one call. Raise PuzzleError for a mistake, and ProtocolError for what is no call."""
        if type(call) is not list or len(call) < 3 or type(call[0]) is not str or call[0] not in self.acts:
            raise ProtocolError("no call")
        rank, coroutine = call[1], call[2]
        if len(call) != 3 + len(self.acts[call[0]][1]) or not (coroutine is None or type(coroutine) is int):
            raise ProtocolError(f"other arguments than those of {call[0]}")
        if type(rank) is not int or (state := self.by_number.get(rank)) is None:
            raise ProtocolError("no rank")
        return self.act(state, call)

    def act(self, state: RankState, call: list[Any]) -> Any:
        """Return the result of a call of a rank, whose arguments are as they are written. Raise as ``carry_out``."""
        verb = call[0]
        self.state, self.operation, self.coroutine = state, verb, call[2]
        if state.rank in self.finished and verb not in AFTERWARDS:
            if verb == "drop":
                return None  # by an object that Python frees late: it matters no more
            raise ProtocolError(f"{verb} of a rank that has finished")
        act, reads = self.acts[verb]
        result = act(state, *[read(self, argument) for read, argument in zip(reads, call[3:], strict=True)])
        if result is not None and result.__class__ is not bool:
            self._enter(result)
        return result

    def _enter(self, result: object) -> None:
        """Number the tensors and calls that a call has made."""
        if isinstance(result, TensorState):
            self.count(result.labels)
            self.tensors.append(result)
        elif isinstance(result, InFlight):
            self.calls.append(result)
        elif isinstance(result, (tuple, list)):
            for one in result:
                self._enter(one)

    def count(self, labels: Labels) -> None:
        """Count the pieces of a tensor. Raise PuzzleError for too many in a run."""
        self.pieces += len(labels.shards)
        if labels.extra is not NO_EXTRA:
            self.pieces += len(labels.extra.parts) + len(labels.extra.heads[0])
        if self.pieces > MOST_PIECES:
            problem = "the tensors of this run have too many pieces"
            raise PuzzleError(problem, expected=f"at most {MOST_PIECES:,}, all together")

    # -- verbs of which more is to be checked than their arguments -------------------------------------------------

    def _compute(
        self, state: RankState, kind: str, layer: Any, operands: Sequence[TensorState], options: dict[str, Any]
    ) -> list[TensorState]:
        row = computation(kind)
        if row.layered:
            layer = read_layer(self, layer)
        elif layer is not None:
            raise ProtocolError("a layer where there is none")
        kinds, needed = [operand.labels.kind for operand in operands], [*row.takes.values()]
        if kinds != needed:  # there are optional ones besides
            try:
                row.following(kinds)
            except ValueError:
                kinds = []
            if kinds[: len(needed)] != needed:
                raise ProtocolError("other operands than those of the operation")
        return self.simulator.compute(state, kind, layer, operands, options)

    def _meet(self, state: RankState, kind: str, operand: TensorState | None, layer: int, axis: Axis) -> InFlight:
        self._check_brought(kind, [operand])
        return self.simulator.meet(state, kind, operand, layer, self._named(axis))

    def _meet_list(
        self, state: RankState, kind: str, operands: Sequence[TensorState | None], layers: list[Any], axis: Axis
    ) -> InFlight:
        self._check_brought(kind, operands)
        return self.simulator.meet_list(state, kind, operands, layers, self._named(axis))

    def _named(self, axis: Axis) -> Axis:
        """Return axes as a Model names them: anybody may have written these."""
        return self.simulator.mesh.named(axis) if isinstance(axis, tuple) else axis

    def _check_brought(self, kind: str, operands: Sequence[TensorState | None]) -> None:
        row = collective(kind)
        for operand in operands:
            if operand is not None:
                of_kind(operand, row.takes)
            elif row.everyone:
                raise ProtocolError("no tensor where every rank brings one")

    def _wait(self, state: RankState, call: InFlight) -> bool:
        if call.fetched or call.rank is not state:
            raise ProtocolError("waiting for what cannot be fetched")
        return self.simulator.wait(call, self.waiter)

    def _fetch(self, state: RankState, call: InFlight, peer: int | None) -> object:
        if not call.over or call.fetched or call.rank is not state:
            raise ProtocolError("fetching what is not there")
        if call.peer != peer:
            raise ProtocolError("a message from another rank than the one that comes first")
        return self.simulator.fetch(call)

    def _decide_next(self, state: RankState) -> bool:
        return self.simulator.decide_next()

    def _drop(self, state: RankState, tensor: TensorState) -> None:
        if tensor.rank is not state:
            raise ProtocolError("dropping what another rank has")
        self.simulator.drop(state, tensor)

    def _combine(self, state: RankState, one: TensorState, other: TensorState) -> TensorState:
        return one.combine(of_kind(other, [one.labels.kind]))

    def _share(self, state: RankState) -> None:
        self.simulator.share(state, lambda: self.coroutine)

    def _finish(self, state: RankState) -> None:
        self.finished.add(state.rank)
        self.simulator.finish(state)

    def _deadlock(self, state: RankState, lines: dict[int, str]) -> Deadlock:
        if self.stuck is not None:
            raise ProtocolError("a second deadlock")
        self.stuck = self.simulator.deadlock(lines, frozenset(self.finished))
        return self.stuck

    def so_far(self) -> list[Event]:
        """Return the events of all ranks up to here: only calls whose times are known."""
        return [event for state in self.ranks for event in self.simulator.events(state)]

    # -- what comes of it ------------------------------------------------------------------------------------------

    def outcome(self, name: str) -> Outcome:
        """Return the outcome of the run. Raise PuzzleError for what was wrong in it, or is unfinished."""
        if self.errors:
            raise presentable(cause(self.errors))
        for state in self.ranks:
            if state.rank not in self.finished:
                self.simulator.finish(state)
        if (unfinished := self.simulator.unfinished()) is not None:
            raise presentable(unfinished)
        stored: dict[int, list[TensorState]] = {state.rank: [] for state in self.ranks}
        for tensor in self.tensors:
            if tensor.rank is not None:
                stored[tensor.rank.rank] += [tensor] * tensor.stored  # as often as it is in a dictionary
        states = [self.simulator.final_state(state, stored[state.rank]) for state in self.ranks]
        outcome = Outcome(name, self.simulator.shape, states, self.simulator.finish_logs(self.ranks), self.train)
        self._let_go()
        return outcome

    def _let_go(self) -> None:
        """Forget what names this, after the run, so that nothing of it hangs together in a circle. The collector is off
        while a puzzle is graded: the runs at all sizes would be kept."""
        self.acts.clear()
        for state in self.ranks:
            state.holder = lambda: None


def _of_tensor(verb: str) -> Callable[..., Any]:
    return lambda state, tensor, *arguments: getattr(tensor, verb)(*arguments)


def _parts(recording: object) -> tuple[list[Any], dict[int, str]]:
    """Return the calls of a recording, and the learner's line of each that has failed, by its place. Raise
    ProtocolError for anything else, and for a recording that is too long."""
    match recording:
        case {"calls": list() as calls, "failed": list() as failed, **others} if not others:
            if len(calls) > MOST:
                raise ProtocolError(f"more than {MOST:,} calls in one run")
            lines = {}
            for row in failed:
                if type(row) is not list or len(row) != 2 or type(row[1]) is not str:
                    raise ProtocolError("no line")
                lines[number(row[0])] = shown(row[1], LONGEST_TEXT)
            return calls, lines
    raise ProtocolError("no recording")
