"""The narrow interface between what a learner touches and what decides.

``Model`` and tensors hold labels and opaque handles only. Everything that decides right or wrong (lives, values,
clocks, log) is behind ``Simulator``: ``simulator`` decides, and ``recording`` writes down what it is asked to do. A
handle is given out by the simulator and handed back to the same simulator; nobody else looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from ..basics.errors import Arrival, Deadlock, PuzzleError
from ..basics.units import ELEMENTS, Elements, SizeUnit
from ..record.events import Event
from ..record.labels import Labels
from ..record.operations import NO_OPTIONS, Options, Value
from .failure import Wait
from .mesh import Axis


class Token:
    """What the learner's side may know of a tensor: its labels, its size, and how it is cut, joined and added."""

    __slots__ = ("labels", "memory")
    labels: Labels
    memory: Elements

    @property
    def size_unit(self) -> SizeUnit:
        """What its size is counted in."""
        return ELEMENTS

    @property
    def seen(self) -> Labels:
        """Its labels, as the code of its rank asks for them."""
        return self.labels

    def given(self, number: Any) -> Any:
        """Return a number that its rank's code gives to it."""
        return number

    def shard(self, index: int, total: int) -> Token:
        """Return piece ``index`` of ``total`` of this one."""
        raise NotImplementedError

    def combine(self, other: Token) -> Token:
        """Return this part and that one as one."""
        raise NotImplementedError

    def arrivals(self, other: Token | None) -> Sequence[Arrival]:
        """Return, for an error, how this one and the ``other`` one, to which it does not fit, came as messages."""
        return ()

    def add(self, other: Token) -> Token:
        """Return the sum of two gradients."""
        raise NotImplementedError


class RankHandle(Protocol):
    """A rank in the simulator."""

    rank: int
    layers: int
    batches: int


class CallHandle(Protocol):
    """A communication call in the simulator, from its issue to its end."""

    kind: str  # the learner's verb
    layer: int | None  # the layer that it names, if any: of a list the first
    layers: tuple[int, ...]  # all layers of a collective that got a list


class Piece(NamedTuple):
    """A tensor as it was at one moment."""

    labels: Labels
    value: Value
    made_up: bool


make_piece: Callable[[tuple[Any, ...]], Piece] = partial(tuple.__new__, Piece)  # without the constructor: half the time


class FinalState(NamedTuple):
    """What a rank begins and ends with, for the check: labels and values, no more to be changed."""

    rank: int
    layers: int
    batches: int
    began: tuple[Labels, ...]  # pieces of weights and states that it took from load_weights, and of adapters
    late: tuple[Labels, ...]  # of these the states that it loaded only after it had worked on their layer
    kept: tuple[Piece, ...]  # what is stored at the end
    finals: dict[int, Piece]  # what was set as final weight of each layer
    lists: tuple[tuple[object, tuple[Labels | None, ...]], ...] = ()
    """Of each collective of lists: the ``op`` of its record, and the labels of what the rank brought, if anything."""
    regained: tuple[Labels, ...] = ()
    """Of the weights that it took from load_weights, what it has updated, or keeps, as it came back from others."""
    unread: tuple[tuple[int, int], ...] = ()
    """The operations of which this rank has used no result: by place in its log, and of a list which of its tensors."""


R = TypeVar("R", bound=RankHandle)
T = TypeVar("T", bound=Token)
C = TypeVar("C", bound=CallHandle)


class Simulator(Protocol[R, T, C]):
    """The simulator of all ranks of one machine: R, T and C are its handles of ranks, tensors and calls. Every method
    that acts for a rank raises PuzzleError for what is wrong with it."""

    def open(self, rank: int, layers: int, batches: int) -> R:
        """Open a rank's simulator, replacing those of an earlier run of the cell."""

    def load_weights(self, rank: R, layer: int, shard: int, total: int) -> Sequence[T]:
        """Return a piece of a layer's weight and of its optimizer state, of step 0."""

    def load_adapter(self, rank: R, layer: int, shard: int, total: int) -> Sequence[T]:
        """Return a piece of a layer's adapter and of its optimizer state, of step 0."""

    def get_activation(self, rank: R, batches: frozenset[int]) -> T:
        """Return the input of layer 0 for these micro-batches."""

    def fake_grad(self, rank: R, layer: int, batches: frozenset[int]) -> T:
        """Return a gradient out of nothing; of no micro-batches it is the honest zero."""

    def compute(
        self, rank: R, kind: str, layer: int | None, operands: Sequence[T], options: Options = NO_OPTIONS
    ) -> Sequence[T]:
        """Carry out an operation of the compute stream, with these options of its row. Return what it makes."""

    def set_final_weight(self, rank: R, layer: int, weight: T) -> None:
        """Note what the rank answers for a layer. It is no operation and no storage."""

    def meet(self, rank: R, kind: str, operand: T | None, layer: int, axis: Axis) -> C:
        """Start a collective; ``operand`` is None for a rank that brings nothing."""

    def meet_list(self, rank: R, kind: str, operands: Sequence[T | None], layers: Sequence[int], axis: Axis) -> C:
        """Start one collective of several layers, to which the rank brings a tensor of each."""

    def pass_to(self, rank: R, receiver: int, operand: T | None, plain: object) -> C:
        """Start a send of a tensor, or of a plain value where ``operand`` is None."""

    def seeks(
        self, rank: R, where: str, kind: str, layer: int, batches: frozenset[int], above: int, here: str, below: str
    ) -> None:
        """Note, for errors, what the rank has looked for before a receive (see ``advice.sought``)."""

    def receive(self, rank: R, src: int | None) -> C:
        """Start a receive of the next message, or of the next from ``src``."""

    def wait(self, call: C, waiter: Callable[[], None]) -> bool:
        """Return whether a call can be fetched now; if not, ``waiter`` is called when it can."""

    def fetch(self, call: C) -> object:
        """Return an ended call's token, list of tokens or plain value, and move the rank's clock to its end."""

    def decide_next(self) -> bool:
        """Wake one coroutine, when all of them wait. Return False if none can ever go on."""

    def store(self, rank: R, tensor: T) -> None:
        """Note that a dictionary of this rank holds the tensor, once more."""

    def drop(self, rank: R, tensor: T) -> None:
        """Note that a dictionary of this rank has let the tensor go, once."""

    def share(self, rank: R, holder: Callable[[], object]) -> None:
        """Note that several coroutines may run in this rank from now on; ``holder()`` returns the running one."""

    def time(self, rank: R) -> float:
        """Return the rank's clock, in ticks."""

    def stored(self, rank: R) -> Elements:
        """Return how much is stored now, in elements."""

    def events(self, rank: R) -> list[Event]:
        """Return the rank's log so far."""

    def finish(self, rank: R) -> None:
        """Take a last sample of memory, as the rank's function has ended."""

    def finish_logs(self, ranks: Iterable[R]) -> list[Sequence[Event]]:
        """Return the logs of all ranks at the end of a run, and drop the bookkeeping behind them."""

    def final_state(self, rank: R, stored: Iterable[T]) -> FinalState:
        """Return what the rank ends with. Of ``stored``, only tensors that the simulator has stored count."""

    def unfinished(self) -> PuzzleError | None:
        """Return what is wrong at the end of a run: a call never awaited, a message never received."""

    def sender(self, rank: R, tensor: T) -> tuple[int, int] | None:
        """Return the rank from which such a tensor has come, and the place of that receive in the log, for an error."""

    def moment(self, rank: R, at: int) -> str:
        """Return, for an error, when the call that stands there in the log has ended: ``at tick 7``."""

    def comes_from(self, rank: R, kind: str, layer: int, batches: frozenset[int]) -> str:
        """Return, for an error, from which other rank an activation of a layer, or its gradient, comes, and how to get
        it; an empty text where no other rank makes it."""

    def has_run(self, rank: R, verb: str, layer: int) -> frozenset[int]:
        """Return, for an error, the micro-batches that the rank has carried through a layer with an operation."""

    def has_loaded(self, rank: R, layer: int) -> bool:
        """Return, for an error, whether the rank has loaded a weight of a layer, or a piece of it."""

    def sent_to(self, rank: R, kind: str, layer: int, batches: frozenset[int]) -> int | None:
        """Return, for an error, the rank to which this one has sent such a tensor, if it has."""

    def empty_share(self, rank: R) -> str:
        """Return, for an error, which share of the batch the rank should have, where it has none and should have."""

    def has_tasks(self, rank: R) -> bool:
        """Return, for an error, whether several tasks of the rank have called operations."""

    def summed_by(self, rank: R, layer: int) -> str:
        """Return, for an error, the reduction to which this rank has brought a gradient of a layer, or nothing."""

    def met_by(self, rank: R, kind: str, layer: int) -> str:
        """Return, for an error, the last collective to which the rank has brought a tensor of a kind and a layer."""

    def not_summed(self, rank: R, layer: int) -> str:
        """Return, for an error, that the partial sums of other backwards were added up, and not that of this layer's;
        or an empty text."""

    def input_elsewhere(self, rank: R) -> str:
        """Return, for an error, which other ranks alone have called ``get_activation``, or an empty text."""

    def unawaited(self, rank: R, kind: str, layer: int) -> str:
        """Return, for an error, that the rank has brought such a tensor to a collective, and has never awaited that."""

    def not_taken(self, rank: R, kind: str, layer: int) -> str:
        """Return, for an error, the last collective to which the rank has brought such a tensor, and whose result it
        has not taken so far, or nothing."""

    def not_received(self, rank: R, kind: str, layer: int) -> str:
        """Return, for an error, from which rank such a tensor of a layer was sent to this one, which has not received
        it; or an empty text."""

    def just_sent(self, rank: R, kind: str, layer: int) -> bool:
        """Return, for an error, whether the last thing that the rank has done is to send such a tensor of a layer."""

    def not_replaced(self, rank: R, layer: int) -> str:
        """Return, for an error, that fewer keys of a layer have come round a ring than the rank has attended to, or
        nothing."""

    def too_few_received(self, rank: R, sender: int, layer: int) -> str:
        """Return, for an error, as the end of a sentence, that the rank has received less in the backward of a layer
        than comes round a ring from another rank, or nothing."""

    def against_rounds(self, rank: R, backward: bool) -> str:
        """Return, for an error of a rank that reads what is not there yet, as for a ``backward``, in what the order of
        work departs from rounds, or an empty text."""

    def left_undone(self, rank: R) -> str:
        """Return, as the end of a sentence, how many forwards and backwards of its layers a rank has done, if it is a
        stage and has not done all, or an empty text."""

    def not_by_turns(self, rank: R) -> str:
        """Return, for an error of a rank that reads a message of another kind, which one does its forwards and its
        backwards at other times than in interleaved 1F1B, or an empty text."""

    def dealt_otherwise(self, rank: R) -> str:
        """Return, for an error, which rank has other layers than it is dealt like cards, or an empty text."""

    def input_to_come(self, rank: R) -> str:
        """Return from where the input of a rank's next layer comes, where it has received no activation, or nothing."""

    def gradient_to_come(self, rank: R) -> str:
        """Return from where the next gradient comes that a rank needs, where none has come for it, or nothing."""

    def gradient_from(self, rank: R) -> str:
        """Return, for an error, from which rank the gradient comes that is next on this one, or an empty text."""

    def not_in_a_v(self, rank: R) -> str:
        """Return, for an error, which rank has other layers than it has in a V, or an empty text."""

    def run_by_nobody(self, rank: R) -> str:
        """Return, for an error, which layers no rank has run, the last one among them, or an empty text."""

    def loss_elsewhere(self, rank: R) -> str:
        """Return, for an error, which other ranks call the loss, where this one should and does not, or nothing."""

    def gathered_elsewhere(self, rank: R) -> str:
        """Return, for an error, which other rank gathers the next weight, and this one does not, or nothing."""

    def nobodys(self, rank: R, layer: int) -> str:
        """Return what to say of a tensor of a layer that no rank has, or of the output of the last one, or nothing."""

    def owner(self, rank: R, layer: int, batches: frozenset[int] = ...) -> int | None:
        """Return, for an error, the other rank that has a layer, or has run it on these micro-batches, if this one has
        not."""

    def waiting(self, rank: R) -> list[Wait]:
        """Return the rank's calls that have not ended, in the order in which they were issued."""

    def deadlock(self, lines: Mapping[int, str], finished: frozenset[int] | None = None) -> Deadlock:
        """Return the error of a machine in which nobody can go on. ``lines``: where each rank stands; ``finished``: the
        ranks that have ended (if not given, all that have no line)."""


AnySimulator = Simulator[RankHandle, Token, CallHandle]  # simulator whose handles nobody looks into
