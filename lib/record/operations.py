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

from .causal import Slices
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

    def forward(self, inp: Value, weight: Value, partial: bool = False) -> Value:
        """Return what a layer makes of its input; with ``partial``, the partial sum that a piece gives."""

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
        self, inp: Value, grad: Value, weight: Value, saved: Value = None, *, partial: bool = False
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

    def place(self, operation: str, layer: int | None, batches: frozenset[int] | None = None) -> Any:
        """Return where this is, for an error."""

    def reduced(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought a gradient of these micro-batches, or an empty text."""

    def reduced_over(self, layer: int, batches: frozenset[int]) -> Sequence[object]:
        """Return what names the reduction to which this rank has brought a gradient of these micro-batches: its axis,
        and more."""

    def reduced_alone(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought a gradient of these micro-batches, and the others of its
        group nothing more, or an empty text."""

    def never_reduced(self) -> tuple[str, list[int]]:
        """Return a reduction to which this rank has brought gradients, and the layers whose gradients it has brought to
        none; an empty text where it has brought all or none."""

    def with_gradients(self, layer: int) -> frozenset[int]:
        """Return the micro-batches for which this rank has computed the gradient of a layer's weight."""

    def has_run(self, verb: str, layer: int) -> frozenset[int]:
        """Return the micro-batches that this rank has carried through a layer with an operation."""

    def blocks(self, verb: str, layer: int, batches: frozenset[int]) -> list[Slices]:
        """Return of which slices the keys were with which this rank has run an operation on a layer, one a block."""

    def passes_on(self, kind: str, layer: int) -> bool:
        """Return whether such a tensor of a layer has come to this rank as a message, or was sent by it."""

    def a_step_less(self, grad: Labels) -> str:
        """Return that this rank has gone back to the keys of fewer ranks than there are, where some queries have not
        added to the gradient of keys and values that it has; or an empty text."""

    def projected_again(self, layer: int, batches: frozenset[int]) -> int:
        """Return how often this rank has projected a layer since its rest was made last, if queries have attended to
        something in between; else 0."""

    def layers_loaded(self) -> set[int]:
        """Return the layers of which this rank has loaded a weight, or a piece of it."""

    def others_have(self, layer: int) -> bool:
        """Return whether other ranks work on a layer as well, as far as is known."""

    def sender(self, labels: Labels) -> tuple[int, int] | None:
        """Return the rank from which a tensor with these labels has come, and the place of that receive in the log."""

    def sent_to(self, kind: str, layer: int, batches: frozenset[int]) -> int | None:
        """Return the rank to which this one has sent such a tensor, if it has."""

    def comes_from(self, kind: str, layer: int, batches: frozenset[int] = ...) -> str:
        """Return from which other rank an activation of a layer, or its gradient, comes, and how to get it; an empty
        text where no other rank makes it."""

    def elsewhere(self, layer: int, batches: frozenset[int] = ...) -> int | None:
        """Return another rank that has run a layer on these micro-batches, or else the only one that has loaded it."""

    def dealt_otherwise(self) -> str:
        """Return which rank has other layers than it is dealt where layers are dealt like cards, or an empty text."""

    def numbers_of(self, piece: Labels) -> str:
        """Return the two arguments that say which piece of how many this is on this rank, as code."""

    def not_in_a_v(self) -> str:
        """Return which rank has other layers than it has where they go down the ranks and up again, or nothing."""

    def out_of_turn(self, labels: Labels) -> str:
        """Return what to do about an activation that is for another layer of this rank, or an empty text."""

    def nobodys(self, layer: int) -> str:
        """Return what to say of a tensor of a layer that no rank has, or of the output of the last one, or nothing."""

    def has_brought_what_it_loaded(self, weight: Labels) -> bool:
        """Return whether a piece is the one that this rank has taken from its load."""

    def lacks_inputs(self) -> bool:
        """Return whether this rank stores fewer activations than it has inputs whose backward is still to come."""

    def summed_in_part(self, layer: int, grad: Labels) -> str:
        """Return what to do about a gradient of which a part is summed over the ranks, or an empty text."""

    def fetches(self) -> int:
        """Return how many calls this rank has awaited so far."""

    def replaced_sum(self, layer: int, grad: Labels, fetches: int) -> str:
        """Return what to do about a sum over the ranks that is not in a gradient, or an empty text."""

    def cut_further(self, layer: int, grad: Labels) -> str:
        """Return what to do about a gradient that is cut more than its reduce-scatters cut it, or an empty text."""

    def not_theirs(self, layer: int, missing: frozenset[int]) -> str:
        """Return which ranks have brought another gradient to a sum than theirs, or an empty text."""

    def axis_by_axis(self, layer: int) -> str:
        """Return, as the end of a sentence, over which axes of a mesh ranks add up one after the other, or nothing."""

    def updates_alone(self, layer: int) -> str:
        """Return, as a sentence, which ranks have gone on without the update of a layer, or an empty text."""

    def over_copies(self, layer: int) -> str:
        """Return how this rank sums the gradient of experts of which other ranks have copies, or an empty text."""

    def left_to_sum(self, layer: int, grad: Labels) -> str:
        """Return how this rank goes on with a gradient that is a sum over some axes of the mesh only, or nothing."""

    def owns_piece(self, piece: Labels) -> bool:
        """Whether a piece is the one of this rank, where each rank has one."""

    def left_out(self, layer: int) -> str:
        """What to do about the output of a layer that goes to the loss, where no rank has run the next one: who
        reads it, or that no rank has that layer."""

    def axis_of_pieces(self, layer: int) -> str | tuple[str, ...] | None:
        """Return the axis, or several, along which ranks have loaded different pieces of a weight that are all of it
        together, an empty text where these are all ranks, and None where that is not so, or not known."""

    def cut_of(self, layer: int) -> str:
        """Return over which ranks reduce-scatters have cut the gradient of a layer, and over which ones its weight is
        cut, where these are not all ranks; or an empty text."""

    def sum_of_some(self) -> str:
        """Return that other ranks alone sum gradients of a layer that this one has as well, or an empty text."""

    def cut_once(self, layer: int) -> str:
        """Return over which axis the gradient of a layer is to be cut, as its weight is, and over which one summed as a
        whole, where reduce-scatters have cut it otherwise; or an empty text."""

    def other_piece(self, layer: int, grad: Labels) -> str:
        """Return which piece of a weight a rank has loaded, where it gets another one of the gradient; or nothing."""

    def not_sent_by(self, sender: int, kind: str, layer: int, batches: frozenset[int]) -> bool:
        """Return whether another rank has sent no such tensor of these micro-batches to anybody."""

    def other_way(self, sender: int, layer: int, batches: frozenset[int]) -> str:
        """Return that an activation went to another rank than the one that has sent its gradient, or an empty text."""

    def goes_back_without(self, sender: int, layer: int, batches: frozenset[int]) -> str:
        """Return that another rank has run the backward of a layer on other micro-batches only, or an empty text."""

    def is_cut(self, layer: int) -> bool:
        """Return whether this rank has brought a gradient of a layer to a reduce-scatter."""

    def cut_twice(self, layer: int) -> str:
        """Return what sums the pieces of a gradient that reduce-scatters have cut over two axes, or an empty text."""

    def last_cut(self, layer: int) -> str:
        """Return the argument that names the axis of the last reduce-scatter of a layer, if it had one."""

    def whole_from_pieces(self, weight: Labels) -> str:
        """Return how this rank gets all of a weight of which it has these pieces."""

    def whole_weight(self, layer: int) -> str:
        """Return how this rank gets all of the weight of a layer, where it has loaded a piece of it; or nothing."""

    def not_gathered_again(self, layer: int) -> bool:
        """Return whether this rank has run a layer, and has made no gather of that layer since."""

    def has_called_gather(self, layer: int, kind: str = "Weight") -> bool:
        """Return whether this rank has brought a weight of a layer, or a tensor of another kind, to a gather."""

    def has_awaited_gather(self, layer: int) -> bool:
        """Return whether this rank has called a gather of a layer, and awaited it."""

    def has_gathered(self, weight: Labels) -> bool:
        """Return whether this rank has loaded only a part of what it has here of a weight."""

    def stages_in_a_row(self) -> str:
        """Return, as a sentence, which stage a rank is, where only the first ranks have run layers, as a pipeline."""

    def left_undone(self) -> str:
        """Return, as the end of a sentence, how many forwards and backwards of its layers this rank has done, if it is
        a stage and has not done all, or an empty text."""

    def went_back_last(self, layer: int) -> bool:
        """Return whether the last backward of this rank was that of a layer."""

    def ran_nothing(self) -> str:
        """Return which ranks have run no layer at all, as the beginning of a sentence, or an empty text."""

    def whole_on_mesh(self, weight: Labels) -> str:
        """Return how this rank gets all of a weight of which it has these pieces, where all ranks along one axis have
        it together."""

    def axes_of_layers(self) -> list[str]:
        """Return the axes along which other ranks have the same layers as this one, and not all, as far as is known."""

    def run_by_none(self, layer: int, batches: frozenset[int]) -> frozenset[int]:
        """Return those of these micro-batches that no rank has carried through a layer, as far as is known."""

    def not_gone_back(self, layer: int, batches: frozenset[int]) -> str:
        """Return which ranks have carried these micro-batches forward through a layer, and none of them back, or that
        no rank has run the layer; or an empty text."""

    def left_between(self, sender: int, labels: Labels, layer: int) -> str:
        """Return that no rank has run the layers between an activation with these labels, from the rank before, and the
        layer that reads it; or an empty text."""

    def left_out_at_the_end(self, grad: Labels) -> str:
        """Return which backward the rank may have left out after its last forward, or an empty text. ``grad``: what it
        takes for another one."""

    def has_fewest(self, none: frozenset[int]) -> str:
        """Return how many micro-batches each rank has, where some have less than others, or an empty text."""

    def sums_often(self, layer: int) -> str:
        """Return that this rank has summed the gradient of a layer over the ranks several times, or an empty text."""

    def slices_of_none(self, layer: int, batches: frozenset[int], slices: Slices) -> Slices:
        """Return those of these slices of a sequence that no rank has projected, as far as is known."""

    def home_of(self, layer: int, batches: frozenset[int], slices: Slices) -> str:
        """Return to which other rank a gradient of these slices of keys and values goes, or an empty text."""

    def own_not_received(self, layer: int, batches: frozenset[int], slices: Slices, otherwise: str) -> str:
        """Return that the gradient of this rank's own keys and values, of these slices, has been sent to it and is not
        received, or the other text."""

    def began_with(self, layer: int, batches: frozenset[int], own: Slices) -> str:
        """Return that the backward of attention began with keys of another rank than those of its ``own`` slices, and
        what to do; or an empty text."""

    def share_slices(self, layer: int, batches: frozenset[int]) -> str:
        """Return which ranks have projected the same slices of a sequence, or an empty text where no two have."""

    def has_not_come(self, layer: int, batches: frozenset[int]) -> bool:
        """Return whether no gradient of a layer's weight of any of these micro-batches has come as a message."""

    def came_once(self, labels: Labels) -> bool:
        """Return whether a tensor with these labels has come as a message, and not again."""

    def has_copy(self, layer: int) -> bool:
        """Return whether this rank has loaded all of the weight of a layer."""

    def cut_again(self, slices: Labels) -> str:
        """Return what to do about slices of a sequence that are cut in another number than there are ranks, or an empty
        text."""

    def weights_cut_again(self, partial: Labels) -> str:
        """Return what to do about partial sums of which there are more than ranks, or an empty text."""

    def cut_along(self, piece: Labels) -> str:
        """Return the two arguments that cut a piece out of what a rank has loaded, as code, or an empty text."""

    def dealt(self) -> str:
        """Return which rank has which micro-batch, where all ranks train."""

    def met_by_others(self, kind: str, layer: int) -> str:
        """Return which other rank has brought a tensor of a kind and a layer to a collective, where this one has not,
        and what to do; or an empty text."""

    def not_brought(self, layer: int, batches: frozenset[int]) -> str:
        """Return the reduction to which this rank has brought another gradient of a layer than the one of these micro-
        batches, which it has computed; or an empty text."""

    def sent_instead(self, sender: int, kind: str, labels: Labels, layer: int) -> str:
        """Return what to write where a rank has sent a tensor with these labels, and not the one of a layer that it has
        made as well; an empty text where it has sent both."""


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
