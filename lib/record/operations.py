"""What one row of the table of operations says: whatever a rank can do is a row there.

The table itself is in ``table``. Everything that lists operations reads it there: the machine, recordings, the engines,
the codes and the pictures. So an operation is its row, with the functions that the row names beside it, a price in
``machine.cost`` and a verb in ``learner.model``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Protocol, TypeVar

from .kinds import SAVED
from .labels import Labels

Value = Any  # what a tensor carries: only the arithmetic that made it looks inside
Part = tuple[Labels, Value]  # labels and value of one tensor
Options = Mapping[str, object]  # what a call says besides its operands, by name
More = Mapping[str, Any]  # the options of a call, and the operands that it need not have, by name
NO_OPTIONS: Options = {}
T = TypeVar("T")


class Values(Protocol):
    """An arithmetic of tensors: what they carry, and what operations make of it. It can be exchanged: there are
    fingerprints for the simulator, and numbers for engines with real tensors."""

    zero: Value  # the gradient of no micro-batches

    def weight(self, piece: Labels) -> Value:
        """Return a piece of a layer's weight before training."""

    def opt_state(self, piece: Labels) -> Value:
        """Return a piece of a layer's optimizer state before training."""

    def inputs(self, batches: frozenset[int]) -> Value:
        """Return the input of layer 0 for these micro-batches."""

    def forward(self, inp: Value, weight: Value, partial: bool = False, sliced: bool = False) -> Value:
        """Return what a layer makes of its input, or of slices (``sliced``), or a piece's partial sum (``partial``)."""

    def keeping(self, inp: Value, weight: Value, keep: str, partial: bool = False) -> tuple[Value, Value]:
        """Return what ``forward`` does, and the inner activations that it leaves behind."""

    def project(self, inp: Value, weight: Value) -> tuple[Value, Value]:
        """Return the queries of a layer's input, which have attended to nothing yet, and its keys and values."""

    def attend(self, att: Value, kv: Value) -> Value:
        """Return the queries after they have attended to these keys, as far as they see them."""

    def rest(self, inp: Value, weight: Value, att: Value) -> Value:
        """Return what a layer makes of its input, from what the queries have found."""

    def backward_rest(self, inp: Value, grad: Value, weight: Value, att: Value) -> Value:
        """Return the gradient of what the queries have found, which has gone back to no keys yet."""

    def backward_attend(self, att_grad: Value, kv: Value) -> tuple[Value, Value]:
        """Return the gradient of the queries after it has gone back to these keys, and what it adds to the gradient of
        the keys."""

    def backward_project(
        self, inp: Value, grad: Value, weight: Value, att_grad: Value, kv_grad: Value
    ) -> tuple[Value, Value]:
        """Return the gradients of a layer's weight, as far as these slices give it, and of its input."""

    def loss(self, inp: Value) -> Value:
        """Return the gradient of the loss with respect to the last activation."""

    def backward(
        self, inp: Value, grad: Value, weight: Value, saved: Value = None, partial: bool = False, sliced: bool = False
    ) -> tuple[Value, Value]:
        """Return the gradients of a layer's weight, summed over the micro-batches, and of its input; with ``partial``,
        of the piece of the weight, and its partial sum. ``saved``: what forward left behind, if anything."""

    def adapted(self, weight: Value, adapter: Value) -> Value:
        """Return what ``forward``, ``keeping`` and ``backward`` take in place of a weight where it is frozen and has an
        adapter: the gradient is then that of the adapter."""

    def expert(self, tokens: Value, weight: Value) -> Value:
        """Return what experts make of the tokens that go to them; ``weight`` is that of these experts."""

    def backward_expert(self, tokens: Value, grad: Value, weight: Value) -> tuple[Value, Value]:
        """Return the gradients of the weight of some experts, summed over the micro-batches, and of their tokens."""

    def update(self, weight: Value, opt_state: Value, grad: Value) -> tuple[Value, Value]:
        """Return weight and state after an optimizer step."""

    def add(self, values: Sequence[Value]) -> Value:
        """Return a sum of gradients, or of partial sums of an activation."""

    def scale(self, value: Value, factor: Fraction) -> Value:
        """Return a gradient times a number."""

    def orthogonalize(self, grad: Value) -> Value:
        """Return the nearest matrix to a gradient whose rows are orthogonal."""

    def cut(self, value: Value, piece: Labels) -> Value:
        """Return the part of a value that these labels name: of its pieces, and of its micro-batches."""

    def join(self, values: Sequence[Value]) -> Value:
        """Return one value, of several pieces, or of several micro-batches."""

    def made_up(self, labels: Labels) -> Value:
        """Return a value for a tensor that was made by hand: like no honest one."""


class Rank(Protocol):
    """The rank that issues an operation, as far as its rules may ask."""

    rank: int
    layers: int
    batches: int
    experts: int
    graded: bool
    is_host: bool
    tokens: tuple[int, ...]
    muon: bool
    tied: bool

    def place(self, operation: str, layer: int | None, batches: frozenset[int] | None = None) -> Any:
        """Return where this is, for an error."""


class Carrier(Protocol):
    """What an engine whose ranks are processes offers to a collective: one rank's end of the links to its group."""

    place: int  # where this rank is in the group

    @property
    def values(self) -> Values:
        """The arithmetic of what they bring."""

    def total(self, value: Value, labels: Labels) -> Value:
        """Return the sum of what all members bring, for everyone."""

    def all_parts(self, value: Value, parts: Sequence[Labels]) -> Sequence[Value]:
        """Return what each member brings."""

    def my_piece(self, value: Value, pieces: Sequence[Labels]) -> Value:
        """Return this rank's piece of the sum of what all members bring."""

    def exchanged(self, parts: Sequence[tuple[Value, Labels]], coming: Sequence[Labels]) -> Sequence[Value]:
        """Return what each member has for this rank, whose labels are those in ``coming``, where this rank has one of
        these ``parts`` for each member."""

    def sent_from(self, source: int, value: Value, labels: Labels) -> Value:
        """Return what the member at ``source`` brings."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation. ``kind``: its verb; ``code``: its letters in the log as text; ``word``: its usual name."""

    stream: ClassVar[str] = ""  # ``compute``, ``collective`` or ``message``

    kind: str
    code: str
    word: str
    layered: bool = True  # whether its verb names a layer
    by_batch: bool = False
    """Whether it works on micro-batches one by one: its price is that of one, and its code names them."""
    trains: bool = False  # whether it carries micro-batches through a layer
    like: str = ""  # the verb whose work on a layer it does in another way
    backward: bool = False  # whether it does so backwards
    on_host: bool = False  # whether a host can do it, too
    words: tuple[str, ...] = ()  # of an operation that a puzzle has to grant: by what name its spec does so
    elsewhere: Sequence[str] = ()  # names that torch has for it
    price: str = ""  # the field of ``Cost`` with its price, where that is not named like its verb
    unless_given: tuple[str, int | Fraction] | None = None
    """(price, divisor) that gives its price if the ``Cost`` sets none."""
    step_of: str = ""  # the operation of which it is a step: the prices of its steps add up to its own
    share: Callable[[Sequence[Labels]], int | Fraction] | None = None
    """``share(labels)`` gives the share of a micro-batch's price that an operation on such operands has, where that is
    not decided by the piece of the weight."""
    with_adapter: str = ""  # whose price it has where all that it trains of a layer is an adapter, if another's
    verb: Callable[..., Any] | None = None
    """What ``model.kind(...)`` calls, with the model first, where Model has no method of that name."""


@dataclass(frozen=True, kw_only=True)
class Computation(Operation):
    """An operation of the compute stream."""

    stream: ClassVar[str] = "compute"
    takes: Mapping[str, str]  # the operands in order: parameter of the verb -> kind of tensor
    may_take: Mapping[str, str] = field(default_factory=dict)
    """Operands that may follow, each of a kind of its own."""
    options: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """What else a call may say, by name, and the values that it may have."""
    makes: Callable[[Any, Any, Sequence[Labels], More], Sequence[Labels]]
    """``makes(rank, layer, labels, more)`` gives the labels of the results. ``labels`` are those of the operands that
    every call has; ``more`` has, by their names, the labels of those that this call has besides, and its options."""
    value: Callable[[Values, Sequence[Value], More], Sequence[Value]]
    """``value(values, operands, more)`` gives the values of the results; ``more`` has values in place of labels."""
    rule: Callable[[Any, Any, Sequence[Labels], More], None] = lambda rank, layer, labels, more: None
    """``rule(rank, layer, labels, more)`` raises PuzzleError where operands do not fit."""
    by_batch: bool = True
    weight_grads: bool = False  # whether it makes gradients of weights

    @property
    def makes_again(self) -> bool:
        """Whether it computes again the inner activations of a forward that it is not given."""
        return self.backward and SAVED in self.may_take.values()

    def following(self, kinds: Sequence[str]) -> list[str]:
        """Return the names of the operands that a call has besides those that it must have, from the kinds of all its
        operands. Raise ValueError if it may not have these, or not in this order."""
        more = list(kinds[len(self.takes) :])
        names = [name for name, kind in self.may_take.items() if kind in more]
        if [self.may_take[name] for name in names] != more:
            raise ValueError(f"{self.kind} may not take {', '.join(more)}")
        return names

    def given(self, names: Sequence[str], operands: Sequence[T], options: Options) -> tuple[Sequence[T], More]:
        """Return the operands that every call has, and by their ``names`` the others and the options of this one."""
        count = len(self.takes)
        return operands[:count], {**dict(zip(names, operands[count:], strict=True)), **options}

    def grants(self, names: Iterable[str], options: Options) -> tuple[str, ...]:
        """Return the features that a puzzle has to grant for a call with these optional operands and options."""
        return (*self.words, *names, *(f"{name}=True" if value is True else name for name, value in options.items()))


@dataclass(frozen=True, kw_only=True)
class Collective(Operation):
    """An operation in which all ranks of a group meet."""

    stream: ClassVar[str] = "collective"
    takes: Sequence[str]  # the kinds of tensor that it takes
    rule: Callable[[Any, int, Labels, Sequence[int]], None] | None = None
    """``rule(rank, layer, labels, group)`` raises PuzzleError for a tensor that a rank must not bring. ``group``: the
    ranks that meet."""
    result: Callable[[Sequence[Any], Values, bool], list[Part]]
    """``result(parts, values, strict)`` gives each member's result, in group order. Without a tensor a part is None."""
    move: Callable[[Carrier, Value, Sequence[Any], Sequence[Labels]], Value] | None = None
    """``move(carrier, value, inputs, outputs)`` does the same to one rank's numbers, on an engine whose ranks are
    processes; ``inputs`` and ``outputs`` are all members' labels. Without it everyone gets all, and uses ``result``."""
    example: Callable[[Any], Any]
    """``example(model)`` gives what a rank brings when ``draw_primitive`` shows the collective."""
    of_activations: Callable[[Any], Any] | None = None
    """The same for activations, if the collective takes any."""
    sums: bool = False  # whether it adds up what the ranks bring
    everyone: bool = True  # whether every member has to bring a tensor
    price: str = "collective"
    rounds: int = 1  # how often a ring algorithm sends the whole tensor once around the group

    def moved(self, carrier: Carrier, value: Value, inputs: Sequence[Any], outputs: Sequence[Labels]) -> Value:
        """Return what a rank gets for its numbers, on an engine whose ranks are processes."""
        if self.move is not None:
            return self.move(carrier, value, inputs, outputs)
        everyone = [*zip(inputs, carrier.all_parts(value, inputs), strict=True)]
        return self.result(everyone, carrier.values, False)[carrier.place][1]


@dataclass(frozen=True, kw_only=True)
class Message(Operation):
    """A send, or a receive."""

    stream: ClassVar[str] = "message"
    layered: bool = False
    takes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class TracedWork(Operation):
    """Work in the profile of a real run."""

    stream: ClassVar[str] = "compute"


@dataclass(frozen=True, kw_only=True)
class TracedCall(Operation):
    """A call of the network in the profile of a real run."""

    stream: ClassVar[str] = "collective"
