"""The narrow interface between what a learner touches and what decides.

``Model`` and tensors hold labels and opaque handles only. Everything that decides right or wrong (lives, values,
clocks, log) is behind ``Simulator``: ``simulator`` decides, and ``recording`` writes down what it is asked to do. A
handle is given out by the simulator and handed back to the same simulator; nobody else looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from ..basics.errors import Deadlock, PuzzleError
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

    def add(self, other: Token) -> Token:
        """Return the sum of two gradients."""
        raise NotImplementedError

    def scale(self, factor: Fraction) -> Token | None:
        """Return this gradient times a number. None where micro-batches do not count by their tokens."""
        return None


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
    tokens: tuple[int, ...] = ()  # of each micro-batch, if they matter


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

    def tokens(self, rank: R, batch: int) -> int:
        """Return how many tokens a micro-batch has whose input the rank has taken."""

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

    def receive(self, rank: R, src: int | None) -> C:
        """Start a receive of the next message, or of the next from ``src``."""

    def group(self, rank: R, begins: bool) -> None:
        """Begin an exchange, or end it: the sends and receives in between take one place in the rank's queue."""

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

    def waiting(self, rank: R) -> list[Wait]:
        """Return the rank's calls that have not ended, in the order in which they were issued."""

    def deadlock(self, lines: Mapping[int, str], finished: frozenset[int] | None = None) -> Deadlock:
        """Return the error of a machine in which nobody can go on. ``lines``: where each rank stands; ``finished``: the
        ranks that have ended (if not given, all that have no line)."""


AnySimulator = Simulator[RankHandle, Token, CallHandle]  # simulator whose handles nobody looks into
