"""The whole machine simulated in each process, and what one rank has to do for real, recorded meanwhile.

The simulated machine is deterministic: every process that runs the same function finds the same log. So each rank's
process knows, before anything real begins, all that the ranks will do and in which order tensors will travel. What it
then does with real tensors is its own rank's part of that, and none of it can wait for ever.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

from ...basics.errors import show_call
from ...learner.dist import Dist
from ...learner.model import Model
from ...machine.cost import Shape
from ...machine.in_flight import InFlight
from ...machine.interface import AnySimulator, FinalState, Piece
from ...machine.rank_state import RankState, TensorState
from ...machine.simulator import LocalSimulator
from ...record.labels import Labels
from ...record.operations import Values
from ...record.table import SEND
from ...running.execution import name_of
from ...running.run import Run, Settings, train_on
from ...running.workload import Workload
from ..pairs import Pair, Pairs


class Setup(NamedTuple):
    """What a function is run with: the machine, what is trained on it, and what else was asked for."""

    shape: Shape
    work: Workload
    settings: Settings

    @property
    def patient(self) -> Setup:
        """The same without a limit of time, which somebody else watches."""
        return self._replace(settings=replace(self.settings, timeout=None))


class Move(NamedTuple):
    """Tensors that travel at one moment: a collective, or a message. ``places``: where it stands in the log of each of
    the ``ranks``. ``inputs`` and ``outputs``: labels of what each of them brings and gets, lists of labels where a
    collective is one of lists, None for a plain message."""

    kind: str
    ranks: tuple[int, ...]
    places: tuple[int, ...]
    inputs: Sequence[Any]
    outputs: Sequence[Any]


class Moves(list[Move]):
    """All moves of a run, in an order that lets nobody wait for ever (``machine.network.Watcher``)."""

    def met(self, kind: str, calls: Sequence[InFlight], inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Note a collective."""
        ranks, places = tuple(call.rank.rank for call in calls), tuple(call.index for call in calls)
        self.append(Move(kind, ranks, places, inputs, outputs))

    def received(self, sent: InFlight, call: InFlight) -> None:
        """Note a message that has found its receive."""
        self.met(SEND.kind, [sent, call], [call.labels], [call.labels])


class Plan:
    """What one rank has to do for real, or with ``rank`` None nothing. ``steps``: names and arguments of methods of
    ``rank.Replay``, in order. ``moves``: those of all ranks. ``finals``: rank, layer and labels of each final weight,
    ``answers``: the values of the rank's own by layer.
    ``log``: what all ranks do, a line each, by which plans are compared. ``labels``: for each record of the rank's log
    what a profiler calls it (see ``real.traces.labels``)."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.steps: deque[tuple[Any, ...]] = deque()
        self.moves = Moves()
        self.finals: list[tuple[int, int, Labels]] = []
        self.answers: dict[int, Pair] = {}
        self.log: list[str] = []
        self.labels: list[str] = []

    @property
    def fingerprint(self) -> str:
        """A text that is equal for plans of the same log."""
        return hashlib.sha256("\n".join(self.log).encode()).hexdigest()

    def complete(self, done: Run) -> None:
        """Take from a run that has ended what is known only then."""
        self.finals = [(one.rank, layer, of.labels) for one in done.final_states for layer, of in one.finals.items()]
        for one in done.events:
            call = show_call(one.kind, one.layers or one.layer)
            of = f", micro-batches {sorted(one.batches)}" if one.batches else ""
            if one.rank == self.rank:
                layer, batches = "" if one.layer is None else f" layer {one.layer}", map(str, sorted(one.batches))
                self.labels.append(f"{one.kind}{layer}{' mb ' * bool(one.batches)}{' '.join(batches)}")
            self.log.append(f"rank {one.rank}: {call}{of}, from {one.start:g} to {one.end:g}, {one.elements} elements")
        self.log += [f"ranks {[*move.ranks]}: {move.kind}" for move in self.moves]
        self.log += [f"rank {rank}: final weight of layer {layer}, {labels}" for rank, layer, labels in self.finals]


class Rehearsal(NamedTuple):
    """A run on the simulated machine, what a rank then has to do for real, and the seconds that all of it took."""

    done: Run
    plan: Plan
    seconds: float


def record(fn: Callable[[Model], object], setup: Setup, rank: int | None = None, numbers: Any = None) -> Rehearsal:
    """Run a function on the simulated machine, all ranks of it, and note what ``rank`` has to do for real with these
    ``numbers`` (``engines.numbers``). Raise PuzzleError as ``lib.run`` does."""
    begun, plan = time.monotonic(), Plan(rank)
    simulator = cast(AnySimulator, Recorder(setup.shape, setup.settings.strict, plan, numbers))
    models = train_on(fn, Dist.of(setup.shape, simulator), setup.work, setup.settings)
    done = Run(name_of(fn), models, setup.work.train)
    plan.complete(done)
    return Rehearsal(done, plan, time.monotonic() - begun)


def only_fingerprints(state: FinalState) -> FinalState:
    """Return what a rank ends with, with fingerprints in the place of values that have numbers as well."""

    def bare(piece: Piece) -> Piece:
        return piece._replace(value=getattr(piece.value, "mark", piece.value))

    return state._replace(kept=tuple(map(bare, state.kept)), finals={at: bare(one) for at, one in state.finals.items()})


def _values(tokens: Iterable[TensorState | None]) -> list[Any]:
    return [token and token.value for token in tokens]


NOTED: Mapping[str, tuple[str, Callable[..., Sequence[Any]]]] = {
    "load_weights": ("load", lambda made, *given: [_values(made)]),
    "load_adapter": ("load", lambda made, *given: [_values(made)]),
    "get_activation": ("load", lambda made, batches: [_values([made])]),
    "meet": ("start", lambda call, kind, operand, layer, axis: [call.index, operand and operand.value]),
    "meet_list": ("start", lambda call, kind, operands, layers, axis: [call.index, _values(operands)]),
    "pass_to": ("start", lambda call, receiver, operand, plain: [call.index, operand and operand.value]),
    "receive": ("start", lambda call, src: [call.index, None]),
    "finish": ("record", lambda nothing: []),
    "group": ("group", lambda nothing, begins: [begins]),
    "store": ("store", lambda nothing, token: [token.value, token.labels]),
    "drop": ("store", lambda nothing, token: [token.value, token.labels, -1]),
}
"""The step that stands for a call of the simulator, and its arguments, from the result and the arguments of the call.
What takes more than that (``compute`` and ``fetch``) is a method of the ``Recorder``."""


class Recorder(LocalSimulator):
    """A simulator that notes the steps of one rank's plan (see ``machine.interface.Simulator`` for its methods)."""

    def __init__(self, shape: Shape, strict: bool, plan: Plan, numbers: Any) -> None:
        super().__init__(shape, graded=True, strict=strict, values=cast(Values, Pairs()), watcher=plan.moves)
        self.plan, self.own_values = plan, cast(Values, Pairs(numbers))
        self.fetch = self._fetch
        for verb, (step, arguments) in NOTED.items():
            setattr(self, verb, partial(self._carry_out, getattr(self, verb), step, arguments))

    def open(self, rank: int, layers: int, batches: int) -> RankState:
        state = super().open(rank, layers, batches)
        if rank == self.plan.rank:
            state.values = self.own_values
        return state

    def _carry_out(
        self, act: Callable[..., Any], step: str, arguments: Callable[..., Sequence[Any]], rank: RankState, *given: Any
    ) -> Any:
        """Carry out a call of a rank, note it as a step of the plan, and return its result."""
        result = act(rank, *given)
        self._note(rank, step, *arguments(result, *given))
        return result

    def compute(self, rank: RankState, *call: Any, **options: Any) -> list[TensorState]:
        before = rank.tick
        made = super().compute(rank, *call, **options)
        self._note(rank, "compute", _values(made), rank.tick - before)
        return made

    def _fetch(self, call: InFlight) -> object:
        """Return what a call has brought. (A send brings nothing, and nobody waits for its receiver.)"""
        rank = call.rank
        brought = self.network.fetch(call)
        tokens = [one for one in (brought if isinstance(brought, list) else [brought]) if isinstance(one, TensorState)]
        if rank.rank == self.plan.rank and not call.sends:
            for token in tokens:
                token.value = Pair(token.value.mark)
            self._note(rank, "wait", call.index, _values(tokens))
        return brought

    def final_state(self, rank: RankState, stored: Iterable[TensorState]) -> FinalState:
        state = super().final_state(rank, stored)
        if rank.rank == self.plan.rank:
            self.plan.answers = {layer: piece.value for layer, piece in state.finals.items()}
        return only_fingerprints(state)

    def _note(self, rank: RankState, step: str, *arguments: Any) -> None:
        if rank.rank == self.plan.rank:
            self.plan.steps.append((step, *arguments))
