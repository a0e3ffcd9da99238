"""What the machine knows of one rank and of its tensors: which of them live, what memory they take, and the log of what
was done.

A tensor lives while it is stored. What an operation has just made, or what was just taken out, is one of a coroutine's
*temporaries*: it lives until that coroutine's next operation, which must use it or find it stored. So nothing can be
kept in a local variable, and no garbage collector is asked.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from weakref import WeakValueDictionary, ref

from ..basics.errors import NOWHERE, Arrival, Fix, Place, PuzzleError, numbered, show_call, show_set
from ..basics.units import Elements, SizeUnit
from ..record.attention import BACKWARD_PROJECT, PROJECT
from ..record.causal import NOTHING, Slices, both
from ..record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ..record.events import LOADS, MARKS
from ..record.kinds import INNER, KINDS, MEMORY_KINDS, SLOT
from ..record.labels import (
    AROUND,
    DEALT,
    HOSTS,
    RING,
    Labels,
    cut,
    experts_of,
    join,
    of_batches,
    same_pieces,
    total_of,
    within,
)
from ..record.operations import Computation, Value, Values
from ..record.rules.incomplete import not_in_place
from ..record.shards import NONE, Cuts
from ..record.table import OPERATIONS, RECEIVE, SEND, stream_of, sums, work_on_layers
from ..record.training import BACKWARD, BACKWARD_WEIGHT, FORWARD, LOSS
from .cost import Cost, TimeUnits
from .fingerprints import Fingerprints
from .interface import FinalState, Piece, Token, make_piece
from .mesh import Mesh
from .past.asked import Asked
from .past.own import Past, Taken
from .past.released import STORING, UPDATE, Lost, instead

MADE_UP = "made up"  # the origin of a tensor that no operation has computed
Origin = str | int | None
"""MADE_UP, how long the log was after the load, or the ``get_activation``, that a tensor comes from and has not been
taken from, or None: what the rank that owns it may use."""
_UNPRICED = Cost()
END = 1 << 60  # after every sample
Span = tuple[int, int, int, Elements, object]
"""Memory that counts late: first sample, sample after the last, place among MEMORY_KINDS, elements, and what it is: a
tensor, or the place in the log of the call that has brought it."""


Maker = tuple[int, int]
"""The place in the log of an operation, and for which tensor of its list: 0 where it got none."""


@dataclass(frozen=True)
class Terms:
    """What holds for all ranks of a machine."""

    cost: Cost
    values: Values
    graded: bool  # whether the rules of ``run`` hold: one owner, nothing made up, each piece and each input taken once
    strict: bool  # whether sets are checked at each operation; off, only the values can tell
    mesh: Mesh
    experts: int = 0  # of every other layer, from layer 1 on
    cuts: Cuts = field(default_factory=Cuts)
    ranks: WeakValueDictionary[int, Asked] = field(default_factory=WeakValueDictionary)
    """The ranks that are here: an error of one may ask what the others have done."""
    samples: dict[tuple[Elements, ...], tuple[Elements, ...]] = field(default_factory=dict)
    """Each sample of whole numbers once: ranks that do the same hold the same. A sixth of the memory of a run. (A
    fraction that is equal to a whole number is written in another way, so samples with fractions are not shared.)"""


class Done(NamedTuple):
    """An operation of the compute stream, or a mark, as it stands in the log until somebody reads it
    (``deferred_memory``). To write no more than this takes half the time and memory of an Event."""

    kind: str
    layer: int | None
    batches: frozenset[int]
    words: tuple[str, ...]
    issued: TimeUnits
    end: TimeUnits
    held: tuple[Elements, ...]

    @property
    def layers(self) -> tuple[int, ...]:
        """No list has been brought to it."""
        return ()

    @property
    def labels(self) -> None:
        """It carries nothing from rank to rank."""
        return None


make_done: Callable[[tuple[Any, ...]], Done] = partial(tuple.__new__, Done)  # without the constructor, as make_event


class Result(NamedTuple):
    """What a call brings its rank."""

    labels: Labels
    value: Value
    origin: Origin
    memory: Elements


class Results(NamedTuple):
    """What one collective of several layers brings its rank."""

    each: tuple[Result, ...]
    labels: tuple[Labels, ...]
    memory: Elements  # of all together

    @classmethod
    def of(cls, each: tuple[Result, ...]) -> Results:
        """Return these together."""
        return cls(each, tuple(one.labels for one in each), sum(one.memory for one in each))


class Temporaries:
    """The temporaries of one coroutine of a rank: what it has made or taken out since its last operation."""

    __slots__ = ("rank", "ended")

    def __init__(self, rank: RankState | None) -> None:
        self.rank = ref(rank) if rank is not None else None  # a rank holds them: no circle to be collected
        self.ended = 0  # how long the log was after that operation: what came among them before it is gone


NO_TEMPORARIES = Temporaries(None)


class TensorState(Token):
    """One tensor; the learner's side carries it as an opaque token. It lives as long as dictionaries hold it, and as a
    temporary of the coroutine that made it or took it out until that coroutine's next operation."""

    # In slots and all set from the start: a default of the class would be asked for many times more slowly.
    __slots__ = (
        "slot", "value", "rank", "temporaries", "since", "origin", "stored", "carriers", "unstored", "brought",
        "makers",
    )  # fmt: skip

    def __init__(
        self,
        labels: Labels,
        value: Value,
        memory: Elements,
        rank: RankState | None,
        temporaries: Temporaries = NO_TEMPORARIES,
        since: int = 0,
        origin: Origin = None,
    ) -> None:
        self.labels = labels
        self.value = value
        self.memory = memory
        self.slot = SLOT[labels.kind]
        self.rank = rank
        self.temporaries, self.since = temporaries, since
        """Among whose it is, or was last, and how long the log was when it came there; below zero, an operation has
        used it up: ``-1 - since`` is that one's place in the log."""
        self.origin = origin
        self.stored = 0  # how often dictionaries hold it
        self.carriers: list[Any] | None = None  # calls that carry it, or did after it had left storage (``in_flight``)
        self.unstored: list[int] | None = None  # samples [from, to) while it is carried and not stored
        self.brought = False  # whether a call has brought it, or something that it was made of by cuts and joins
        self.makers: tuple[Maker, ...] = ()  # what has made or brought it, until somebody uses it

    @property
    def size_unit(self) -> SizeUnit:
        """What its size is counted in: the unit of its machine's cost."""
        return super().size_unit if self.rank is None else self.rank.cost.size_unit

    def lives(self) -> bool:
        """Return whether it still exists."""
        return self.stored > 0 or self.since >= self.temporaries.ended

    def is_free(self, rank: RankState) -> bool:
        """Return whether this rank may use it with no question asked; ``rank.examine`` decides the others."""
        return self.rank is rank and self.origin is None and (self.stored > 0 or self.since >= self.temporaries.ended)

    def piece(self) -> Piece:
        """Return it as it is now."""
        return make_piece((self.labels, self.value, self.origin is MADE_UP))

    def arrivals(self, other: Token | None) -> Sequence[Arrival]:
        """Return how this tensor, and the ``other`` one to which it does not fit, have come, as far as by messages."""
        rank, second = self.rank, other.labels if isinstance(other, TensorState) else None
        if rank is None:
            return []
        return [*(rank.arrival(second) if second else []), *rank.arrival(self.labels, "the first one")]

    # -- what can be made of tensors without an operation --------------------------------

    def shard(self, index: int, total: int) -> TensorState:
        """Return piece ``index`` of ``total`` of this one."""
        labels = cut(self.labels, index, total)
        rank = _one_rank("shard", self)
        if rank is None:
            return made_by_hand(labels)
        rank.cuts.check(labels.total)
        return _derived(rank, labels, rank.values.cut(self.value, labels), self)

    def combine(self, other: Token) -> TensorState:
        """Return this part and that one as one."""
        assert isinstance(other, TensorState)
        labels = join((self.labels, other.labels), "combine")
        rank = _one_rank("combine", self, other, take=True)
        if rank is None:
            return made_by_hand(labels)
        return _derived(rank, labels, rank.values.join((self.value, other.value)), self, other)

    def add(self, other: Token) -> TensorState:
        """Return the sum of two gradients."""
        assert isinstance(other, TensorState)
        rank = _one_rank("+", self, other)
        try:
            labels = total_of((self.labels, other.labels), "+", strict=rank is None or rank.strict)
        except PuzzleError as error:
            twice, layer, plain = self.labels.batches & other.labels.batches, self.labels.layer, error.fix
            if rank is not None and twice and layer == other.labels.layer and not error.fix_for:
                fixes = [
                    partial(rank.counted_twice, layer, twice, plain, verb)
                    for verb in (ALLREDUCE.kind, SCATTERREDUCE.kind)
                ]
                error.fix, error.fix_for = fixes[0], {"no_whole_gradient": fixes[1]}
                error.came = rank.second_send(twice)
            if rank is not None and error.fix_for.get(RING) == AROUND:
                error.fix_for = {RING: partial(rank.not_with_its_keys, self.labels, other.labels)}
            raise
        if rank is None:
            return made_by_hand(labels)
        return _derived(rank, labels, rank.values.add((self.value, other.value)), self, other)


def _derived(rank: RankState, labels: Labels, value: Value, *sources: TensorState) -> TensorState:
    made_up = any(source.origin is MADE_UP for source in sources)
    # Of several sources none is still to be taken from its load: gradients are not loaded, and combine takes its parts.
    made = rank.mint(labels, value, MADE_UP if made_up else sources[0].origin)
    made.brought = any(source.brought for source in sources)
    if rank.graded:
        made.makers = tuple({maker: None for source in sources for maker in source.makers})
    return made


def made_by_hand(labels: Labels) -> TensorState:
    """Return a tensor out of nothing: allowed in demonstrations, marked as made up."""
    value = Fingerprints().made_up(labels)
    return TensorState(labels, value, _UNPRICED.elements(labels), None, origin=MADE_UP)


def _one_rank(use: str, *tensors: TensorState, take: bool = False) -> RankState | None:
    """Return the one rank that owns these tensors. Raise PuzzleError if one is dead or another rank's. With ``take`` it
    takes what was loaded: parts that are joined could not be distinguished later."""
    rank = next((tensor.rank for tensor in tensors if tensor.rank), None)
    for tensor in tensors:
        if rank is None:
            if not tensor.lives():
                raise gone(tensor, NOWHERE)
            continue
        if not tensor.is_free(rank):
            rank.examine(tensor, use, take=take)
        if rank.several:
            rank.used(tensor)
    return rank


def gone(tensor: TensorState, where: Place) -> PuzzleError:
    """Return the error that says why a tensor no longer exists."""
    holder = tensor.temporaries.rank
    rank = tensor.rank if tensor.since < 0 or holder is None else holder()
    assert rank is not None
    kind, layer = rank.ended_by(tensor)
    problem = f"{tensor.labels} was not stored when rank {rank.rank} issued {show_call(kind, layer)}"
    if where.operation == STORING:
        problem = f"it is too late: {problem}"
    handed = rank.several and tensor.since >= 0 and rank.temporaries_of(rank.holder()) is not tensor.temporaries
    at, used = rank.ended_at(tensor), tensor.since < 0
    fix, in_pieces = (
        instead(Lost(rank, tensor.labels, where, kind, layer, at, used, tensor.brought, handed, verb))
        for verb in (ALLREDUCE.kind, SCATTERREDUCE.kind)
    )
    fix_for: dict[str, Fix] = {"no_whole_gradient": in_pieces} if in_pieces != fix else {}
    of_grad = tensor.labels.kind == "WeightGrad" and sums(kind)
    if tensor.labels.kind == "OptState" and stream_of(where.operation) in ("collective", "message"):
        stays = "an optimizer state is not gathered or sent: each rank updates all of the layer that it has loaded, "
        stays += "weight and state, with a gradient that is as large: gather the gradient before that"
        fix_for |= dict.fromkeys(("weights_stay",), stays)
    if kind == ALLGATHER.kind and rank.log[rank.ended_at(tensor)].labels.kind == "Weight":
        piece = "the weight is not gathered here: forward and backward take this rank's piece of it, "
        fix_for["weights_stay"] = f"{piece}model.weights[{layer}], with partial=True"

    def unused() -> str:
        at = rank.ended_at(tensor)
        if rank.reduced(tensor.labels.layer, tensor.labels.batches) != kind:
            return fix
        if not rank.log[at].layers and rank.log[at].labels != tensor.labels:  # another gradient was brought to it
            return (not tensor.brought and rank.cut_by_hand(tensor.labels, rank.log[at].labels, kind)) or fix
        calls = [one.kind for one in rank.log[at:] if _is_of_gradient(one, tensor.labels.layer)]
        if where.operation == kind:
            return rank.brought_again(at, tensor.brought)
        if stream_of(where.operation) == "collective":
            return not_in_place(kind, rank.log[at].op, f"bring that to model.{where.operation}")
        if where.operation != UPDATE or len(calls) < 2:
            return not_in_place(kind, rank.log[at].op)
        last = f"are given: update with what the last of them gives, model.{calls[-1]}"
        return f"model.{kind} and the calls after it do not change the gradient that they {last}"

    error = PuzzleError(problem, where=where, fix=unused if of_grad else fix, fix_for=fix_for)
    made = rank.log[tensor.since - 1] if where.operation == STORING and tensor.since > 0 else None
    if made is not None and made.kind == RECEIVE.kind and made.labels == tensor.labels:
        error.entry = tensor.since - 1  # a helper may have returned it since
    return error


def _is_of_gradient(entry: Any, layer: int) -> bool:
    """Return whether a record is that of a collective with the gradient of a layer."""
    of = entry.labels if stream_of(entry.kind) == "collective" else None
    return of is not None and (of.kind, of.layer) == ("WeightGrad", layer)


def _has_come_home(record: Any, sent: Collection[Labels]) -> bool:
    """Return whether a record is of a message that has brought back a piece, of those that its rank had ``sent``."""
    if record.kind != RECEIVE.kind or not record.passed_on:
        return False
    return record.labels is not None and record.labels.total > 1 and record.labels in sent


class RankState(Asked):
    """One rank: its clock, its tensors, its memory, its log."""

    __slots__ = (
        "rank", "layers", "batches", "is_host", "graded", "strict", "cost", "values", "cuts", "per_tick", "clock",
        "log", "fetched", "held", "inner", "samples", "finals", "temporaries", "several", "holder", "all_temporaries",
        "fractions", "writers", "taken", "regained", "lists", "late", "kept_loose", "received", "carried", "past",
        "unread", "mesh", "ranks", "slices", "pieces", "experts", "beside",
        "sought", "__weakref__",
    )  # fmt: skip
    tensor_type: type[TensorState] = TensorState

    def __init__(self, rank: int, layers: int, batches: int, terms: Terms, is_host: bool = False) -> None:
        self.rank, self.layers, self.batches, self.is_host = rank, layers, batches, is_host
        self.graded, self.strict = terms.graded, terms.strict
        self.mesh, self.ranks = terms.mesh, terms.ranks
        self.ranks[rank] = self
        self.experts = terms.experts
        self.beside: tuple[int, TimeUnits] = (
            0,
            0,
        )  # how long the log was after the last backward that overlapped; what it left of forwards
        self.cost, self.values, self.cuts = terms.cost, terms.values, terms.cuts
        self.per_tick = terms.cost.per_tick
        self.clock: TimeUnits = 0
        self.log: list[Any] = []  # ``Done``, and calls (``in_flight``), whose ends are known at some time
        self.fetched = array("i")  # of each call fetched: how long the log was, and the call's place in it
        self.held: list[Elements] = [0] * len(MEMORY_KINDS)  # what is stored now
        self.inner: dict[object, Elements] = {}  # inner activations that forward has left in memory by itself
        self.samples = terms.samples
        self.fractions = False  # whether a sample had any: then none is looked at any more, since they add up slowly
        self.finals: dict[int, Piece] = {}
        # The coroutines of the rank: the only one, or what names the one that runs, the temporaries of each, and who
        # wrote what in the log.
        self.temporaries = Temporaries(self)
        self.several = False
        self.holder: Callable[[], object] = lambda: None
        self.all_temporaries: dict[object, Temporaries] = {}
        self.writers: dict[int, Temporaries] = {}
        self.taken: dict[tuple[str, int, bool], Taken] = {}
        """What was loaded, by kind and layer, and the inputs that it got, by kind and micro-batch."""
        self.regained: list[Labels] = []  # of what it had taken of weights, what it updates as it came from others
        self.unread: set[Maker] = set()  # operations whose results nobody has used
        self.past = Past()
        self.sought: tuple[int, Any] | None = None  # how long the log was, and what it looked for then (``advice``)
        self.slices: dict[tuple[str, int, int], Slices] = {}  # by verb, layer and micro-batch: of the sequence
        self.pieces: dict[int, tuple[Slices, ...]] = {}  # of the operands of a layer's steps, by place in the log
        self.lists: dict[object, tuple[Labels | None, ...]] = {}  # by ``op``: what it brought to a collective as a list
        # Memory that only the future tells (see deferred_memory).
        self.late: list[Span] = []
        self.kept_loose: list[Span] = []
        self.received: list[tuple[TimeUnits, int, Elements, int]] = []
        """Arrival, sample after the last, elements, and the place of the receive in the log."""
        self.carried: list[tuple[TensorState, list[int]]] = []

    @property
    def tick(self) -> float:
        """The clock in ticks."""
        return float(self.clock / self.per_tick)

    def place(self, operation: str, layer: int | None = None, batches: frozenset[int] | None = None) -> Place:
        """Return where this is, for an error."""
        return Place(self.rank, operation, layer, batches, self.tick)

    # -- lives --------------------------------------------------------------------------

    def share(self, holder: Callable[[], object]) -> None:
        """Note that several coroutines may run in this rank from now on; ``holder()`` returns the running one."""
        if not self.several:
            self.several, self.holder = True, holder
            self.all_temporaries[holder()] = self.temporaries

    def temporaries_of(self, coroutine: object) -> Temporaries:
        """Return the temporaries of a coroutine."""
        own = self.all_temporaries.get(coroutine) if self.several else self.temporaries
        if own is None:
            own = self.all_temporaries[coroutine] = Temporaries(self)
        return own

    def mint(
        self, labels: Labels, value: Value, origin: Origin = None, call: int = -1, memory: Elements | None = None
    ) -> TensorState:
        """Create the record of a new tensor. Until it is stored it is a temporary of the running coroutine (in a
        done-callback, where none runs, of the one that issued the ``call``, named by its place in the log).
        ``memory``: what the cost says of it, where that is known."""
        own = self.temporaries
        if self.several:
            running = self.holder()
            own = self.writers[call] if running is None and call in self.writers else self.temporaries_of(running)
        if memory is None:
            memory = self.cost.elements(labels)
        tensor = self.tensor_type(labels, value, memory, self, own, len(self.log), origin)
        if call >= 0:
            tensor.brought = True
            self.owe((tensor,), call)
        return tensor

    def owe(self, made: Sequence[TensorState], place: int, number: int = 0) -> None:
        """Note what an operation has made or brought, for one tensor of a list: it was for nothing until somebody uses
        one of these."""
        if self.graded:
            maker = place, number
            self.unread.add(maker)
            for tensor in made:
                tensor.makers = (maker,)

    def read(self, tensor: TensorState) -> None:
        """Note that what has made or brought a tensor was not for nothing."""
        self.unread.difference_update(tensor.makers)
        tensor.makers = ()

    def store(self, tensor: TensorState) -> None:
        """Note that a dictionary of this rank holds the tensor, once more."""
        # As is_free has it, without the call.
        if tensor.rank is not self or tensor.origin or not (tensor.stored or tensor.since >= tensor.temporaries.ended):
            self.examine(tensor, STORING)
        if self.several or tensor.unstored is not None:
            self.used(tensor)
            self._settle(tensor)
        tensor.stored += 1
        self.held[tensor.slot] += tensor.memory

    def drop(self, tensor: TensorState) -> None:
        """Note that a dictionary of this rank has let the tensor go, once. Raise PuzzleError if none held it."""
        if not tensor.stored:
            problem, where = f"{tensor.labels} was never stored", self.place("taking it out")
            expected = "a tensor that was stored as model.weights[key] = tensor, and so counts as memory"
            fix = "leave dict.__setitem__ and its kin alone: the dictionaries count what they hold"
            raise PuzzleError(problem, where=where, expected=expected, fix=fix)
        tensor.stored -= 1
        self.held[tensor.slot] -= tensor.memory
        if not tensor.stored:
            tensor.temporaries = self.temporaries_of(self.holder()) if self.several else self.temporaries
            tensor.since = len(self.log)
            if tensor.carriers:
                self._carry_on(tensor, tensor.since)

    def used(self, tensor: TensorState) -> None:
        """Note the use of an unstored tensor, and count its memory in samples of the rank's other coroutines."""
        now = len(self.log)
        if self.several and not tensor.stored and 0 <= tensor.since < now and tensor.rank is self:
            self.kept_loose.append((tensor.since, now, tensor.slot, tensor.memory, tensor))
            tensor.since = now

    def _carry_on(self, tensor: TensorState, start: int) -> None:
        """Charge a tensor that has left storage for as long as a call in flight carries it."""
        if tensor.unstored is None:
            tensor.unstored = [start, END]
            self.carried.append((tensor, tensor.unstored))

    def _settle(self, tensor: TensorState) -> None:
        """Stop counting a tensor as carried: it is stored again, or an operand, and is counted as such. (What is only
        made of it does not end what calls still carry.)"""
        if tensor.unstored is not None:
            tensor.unstored[1] = len(self.log)
            tensor.unstored = None

    def examine(self, tensor: TensorState, operation: str, layer: int | None = None, take: bool = True) -> None:
        """Raise PuzzleError unless this rank may use a tensor that is dead, foreign, made up or not yet taken."""
        if not tensor.lives():
            raise gone(tensor, self.place(operation, layer))
        if not self.graded:
            return
        if tensor.origin is MADE_UP:
            problem = f"{tensor.labels} is made up: no operation of this run computed it"
            expected = "a tensor that came out of load_weights, get_activation or an operation"
            fix = "fake_grad with micro-batches, and tensors made by hand, are for demonstrations; a rank that has "
            fix += "nothing to add brings model.fake_grad(layer, [])"
            if tensor.labels.kind == "WeightGrad" and tensor.labels.batches and self.mesh.ranks > 1:
                fix += ". What others have computed comes by a sum over the ranks, "
                fix += f"{ALLREDUCE.kind} or {SCATTERREDUCE.kind}"
            own = experts_of(tensor.labels.layer, self.experts) and tensor.labels.kind == "WeightGrad"
            if own and not self.axes_of_copies(tensor.labels.layer):
                fix = "experts get the tokens of all ranks, so their gradient lacks nothing: leave what is made up "
                fix += "out, and update with what model.backward_expert gives"
            if operation == UPDATE:
                verb = BACKWARD_PROJECT.kind if self.has_run(PROJECT.kind, layer or 0) else BACKWARD.kind
                fix = f"an update takes what {verb} gives, after that: grad, ... = model.{verb}({layer}, ...)"
            raise PuzzleError(problem, where=self.place(operation, layer), expected=expected, fix=fix)
        if tensor.rank is not self:
            owner = f"rank {tensor.rank.rank}" if tensor.rank else "no rank"
            fix = (
                "ranks share nothing, so what a global name or a closure keeps is not there on another rank: send it, "
            )
            fix += "await model.pass_to(rank, tensor), or meet in a collective"
            raise PuzzleError(
                f"{tensor.labels} belongs to {owner}, and rank {self.rank} uses it",
                where=self.place(operation, layer),
                fix=fix,
            )
        if take and isinstance(tensor.origin, int):
            self._note_loaded(tensor, tensor.origin)

    def _note_loaded(self, tensor: TensorState, load: int) -> None:
        """Remember a loaded piece, or the input of micro-batches, as this rank's. Raise PuzzleError when it has taken
        that before."""
        labels = tensor.labels
        stepped = KINDS[labels.kind].stepped
        for which in (labels.layer,) if stepped else sorted(labels.batches):
            key = labels.kind, which, labels.adapter
            taken = self.taken.get(key)
            if taken is None:
                taken = self.taken[key] = Taken()
            if (other := taken.note(labels, load)) is not None:
                twice = self._taken_before(labels, other) if stepped else self._input_taken_before(labels, which, other)
                twice.entry = load - 1
                raise twice
        tensor.origin = None

    def is_regained(self, tensor: TensorState) -> bool:
        """Return whether this is a weight that the rank took from a load, and now has from others."""
        labels = tensor.labels
        if not tensor.brought or labels.kind != "Weight" or labels.step:
            return False
        taken = self.taken.get((labels.kind, labels.layer, labels.adapter))
        return taken is not None and taken.has(labels)

    def _taken_before(self, labels: Labels, other: Labels) -> PuzzleError:
        """Return the error of a piece of a weight or of a state that was loaded twice."""
        verb = LOADS[labels.adapter]
        problem = f"this rank has taken that piece of the {labels.kind} from {verb} before"
        where, expected = self.place(verb, labels.layer), "each piece loaded once"
        fix = "call this once, and keep it stored, or get it from another rank by communication"
        if within(labels, other) and not same_pieces(labels, other):
            fix = "this piece is in what was loaded before: cut it from that, tensor.shard(...), and load it once"
        elif within(other, labels) and not same_pieces(labels, other):
            fix = "load all of it once, and cut the piece from it, tensor.shard(...)"
        elif self.mesh.ranks > 1 and 1 < len(self.layers_loaded()) < self.layers:
            own = numbered("layer", self.layers_loaded())
            twice = f"do two of this rank's ranges of layers overlap? It has loaded {own} so far"
            fix = f"{twice}. Or does each turn of a loop load layer {labels.layer}? If not: {fix}"
        past = [one for one in self.log if one.layer == labels.layer]
        used = {one.kind for one in past if one.labels is None or one.labels.kind == "Weight"}
        gather = f"await model.allgather(..., {labels.layer})"
        keep = f"load it once, before all loops, and keep it: model.{KINDS[labels.kind].store}[{labels.layer}]"
        if same_pieces(labels, other) and (FORWARD.kind in used or ALLGATHER.kind in used):
            again = f", and gather it again for its backward, {gather}"
            again *= {FORWARD.kind, ALLGATHER.kind} <= used and BACKWARD.kind not in used
            gather = f"{keep}, without pop, until its update{again}"
        else:
            gather = f"leave this load out: this rank keeps its piece, and gets all of it from the others: {gather}"
        got, fix_for = f"{labels} after {other}", dict[str, Fix]({"sharded": gather} if labels.kind == "Weight" else {})
        plain = f"{keep}, without pop, until its update" if FORWARD.kind in used else fix
        right = self.layers_loaded() <= {*range(self.rank, self.layers, self.mesh.ranks)}
        fix_for[DEALT] = lambda: (not right and self.dealt_otherwise()) or plain
        return PuzzleError(problem, where=where, expected=expected, got=got, fix=fix, fix_for=fix_for)

    def _input_taken_before(self, labels: Labels, batch: int, other: Labels) -> PuzzleError:
        """Return the error of an input that a rank has asked for twice."""
        where, expected = self.place("get_activation", None, labels.batches), "the input of each micro-batch taken once"
        kept = "call this once, and keep it stored until its last use, model.activations[0] = model.get_activation(...)"
        kept += ", or send it to the rank that needs it; where all ranks keep a slice, gather these again"
        fix: Fix = kept
        fix_for: dict[str, Fix] = {}
        if len(labels.batches) > 1:
            one = f"model.get_activation([{max(labels.batches)}])"
            fix = f"call this once: ask for one micro-batch at a time, {one}, or for all at once, and keep each until "
            fix += "its last use"
        elif labels.batches <= self.has_run(FORWARD.kind, 0):
            fix, fix_for = partial(self._no_input, labels, kept), {DEALT: partial(self._in_rounds, labels, kept)}
        elif len(self.layers_loaded()) == self.layers and self.batches > self.mesh.ranks:
            fix = f"this rank has it already, and its other micro-batches are to come: {self.dealt()}"
        problem, got = f"micro-batch {batch} was taken before", f"{labels} after {other}"
        return PuzzleError(problem, where=where, expected=expected, got=got, fix=fix, fix_for=fix_for)

    def _in_rounds(self, labels: Labels, kept: str) -> str:
        """Return what to do about an input that layer 0 has read already, where the layers go round the ranks."""
        own = sorted(self.layers_loaded())
        gone = [layer for layer in own if labels.batches <= self.has_run(FORWARD.kind, layer)]
        if not own or len(gone) < len(own):
            return self._not_counted(own, gone, labels) or self._no_input(labels, kept)
        done = f"this rank has taken {numbered('micro-batch', labels.batches)} through all of its layers already: do "
        done += "each forward once. Is it in two rounds? A round has as many micro-batches as there are ranks, and the "
        return f"{done}next one begins after it: for first in range(0, model.BATCHES, model.RANKS)"

    def _not_counted(self, own: Sequence[int], done: Sequence[int], labels: Labels) -> str:
        """Return how the next forward is counted where layers go round the ranks, as far as a round is not over: after
        an input that has gone through these layers (``done``) of the rank's ``own``; or an empty text."""
        if len(done) > 1:
            through = (
                f"{numbered('micro-batch', labels.batches)} has gone through {numbered('layer', done)} of this rank"
            )
            left = f"{through}, and {numbered('layer', {*own} - {*done})} come before the next input"
            share = f"a rank has model.LAYERS // model.RANKS layers, {len(own)} here"
            return f"{left}: {share}. Is there a number, such as {len(done)}, in the place of that?"
        row = [batch for layer, batches in self.forwards() for batch in batches if layer == 0]
        if len(own) < 2 or len(self.forwards()) > len(row) or not 0 < len(row) < self.mesh.ranks:
            return ""
        first = min(row) // self.mesh.ranks * self.mesh.ranks
        a_round = f"{numbered('micro-batch', range(first, first + self.mesh.ranks))}, as many as there are ranks"
        said = (
            "layer 0 has read it already: ask for another one each time, model.get_activation([micro_batch]). So far "
        )
        said += (
            f"this rank has run layer 0 on {numbered('micro-batch', row)}, and a round takes {a_round}, through layer "
        )
        said += (
            f"0, and then the same ones through layer {own[1]}, with inputs that come as messages: is the micro-batch "
        )
        number = f"number k of the forwards, from 0, takes micro-batch k // (model.RANKS * {len(own)}) * model.RANKS + "
        return f"{said}of this turn counted right? In one count, {number}k % model.RANKS"

    def _no_input(self, labels: Labels, kept: str) -> str:
        """Return what to do about an input that layer 0 has read already. ``kept``: how it could be kept."""
        later = (one for one in range(1, self.layers) if self.has_loaded(one) and not self.has_loaded(one - 1))
        layer = next((one for one in later if not labels.batches <= self.has_run(FORWARD.kind, one)), 0)
        first = self.forwards() == [(0, labels.batches)] and not self.has_loaded(1)
        if self.batches > 1 and first:  # no other layer of this rank could be meant yet
            another = "for another forward, ask for another one each time, model.get_activation([micro_batch])"
            return f"this one has been read already: {another}; for its backward, {kept}"
        if layer and (there := self.comes_from("Activation", layer, labels.batches)):
            return f"it is for layer 0 only, which has read it already. Is this for layer {layer}? Then {there}"
        if len(self.layers_run()) == self.layers and self.batches > self.mesh.ranks:
            if all(labels.batches <= self.has_run(BACKWARD.kind, one) for one in range(self.layers)):
                done = (
                    f"this rank has taken {numbered('micro-batch', labels.batches)} through all layers and back already"
                )
                return f"{done}: here another one comes. {self.dealt()[:1].upper()}{self.dealt()[1:]}"
            return f"this rank has done that one already: {kept}. Or is another one meant? {self.dealt()}"
        read = f"layer 0 has read it already: other layers read what forward of the one before them gave; {kept}"
        several = len(self.layers_loaded()) == self.layers and self.batches > self.mesh.ranks
        return f"{read}. Or is another one meant? {self.dealt()}" if several else read

    def lacks_inputs(self) -> bool:
        """Return whether this rank stores fewer activations than it has inputs whose backward is still to come, but for
        the one that a backward has just taken out."""
        to_come, each = self._inputs_to_come()
        return self.held[SLOT["Activation"]] < (to_come - 1) * each

    def stores_an_input_more(self) -> bool:
        """Return whether this rank stores an activation beside the inputs whose backward is still to come."""
        to_come, each = self._inputs_to_come()
        return self.held[SLOT["Activation"]] >= (to_come + 1) * each

    def _inputs_to_come(self) -> tuple[int, Elements]:
        """Return of how many inputs the backward is still to come, and how large each is."""
        verbs = (BACKWARD.kind, BACKWARD_WEIGHT.kind)
        done = {layer: [self.has_run(verb, layer) for verb in verbs] for layer in self.layers_run()}
        to_come = sum(len(self.has_run(FORWARD.kind, layer).difference(*done[layer])) for layer in done)
        return to_come, self.cost.elements(of_batches("Activation", 0, self.layers, frozenset([0]), self.batches))

    # -- samples and the log ------------------------------------------------------------

    def _past(self) -> Past:
        """Return what errors ask of the log, as it is now."""
        return self.past.look(self.log, self.writers, self.temporaries, self.lists, self.received)

    def sample(self, operands: Sequence[TensorState], workspace: Elements = 0) -> tuple[Elements, ...]:
        """Return the memory held at the moment of an operation, by MEMORY_KINDS, and end the lives that end with it."""
        held, now = self.held, len(self.log)
        for tensor in operands:
            if tensor.makers and tensor.rank is self:
                self.read(tensor)
            if not tensor.stored and tensor.since >= 0:
                if self.several or tensor.unstored is not None:
                    self.used(tensor)
                    self._settle(tensor)
                if held is self.held:
                    held = held.copy()
                held[tensor.slot] += tensor.memory
                if tensor.rank is not self:
                    continue  # by hand: a tensor of another machine, or of none, is not ours to end
                tensor.since = -1 - now
                if tensor.carriers:
                    self._carry_on(tensor, now + 1)
        if self.several:
            self.writers[now] = own = self.temporaries_of(self.holder())
            own.ended = now + 1
        else:
            self.temporaries.ended = now + 1
        if workspace:
            held = held.copy()
            held[INNER] += workspace
        return self.shared(tuple(held))

    def shared(self, sample: tuple[Elements, ...]) -> tuple[Elements, ...]:
        """Return a sample, as the one object for all that are equal where it has whole numbers only (see ``Terms``)."""
        if self.fractions:
            return sample
        if sum(sample).__class__ is not int:
            self.fractions = True
            return sample
        return self.samples.setdefault(sample, sample)

    def record(
        self,
        kind: str,
        layer: int | None,
        batches: frozenset[int],
        words: tuple[str, ...],
        operands: Sequence[TensorState],
        length: TimeUnits,
        workspace: Elements = 0,
    ) -> None:
        """Carry out an operation of the compute stream that takes ``length`` time units and ``workspace`` elements more
        than its operands: sample, clock and log."""
        held, start = self.sample(operands, workspace), self.clock
        self.clock = end = start + length
        words = (*words, HOSTS) if self.is_host else words
        self.log.append(make_done((kind, layer, batches, words, start, end, held)))

    def saved_beside(self, kind: str, layer: int | None, batches: frozenset[int], length: TimeUnits) -> TimeUnits:
        """Return what a backward of this length saves beside the forwards right before it, in time units. Raise
        PuzzleError if there are none.

        On a GPU two pieces of work overlap where one computes while the other communicates. In the log they stand one
        after the other, and the backward is shorter by what both save. Right before it are the forwards since which the
        rank has awaited nothing: what the backward reads was there when they began. They are of other micro-batches, so
        neither reads what the other makes. Several backwards in a row share what there is of forwards. Where nothing is
        saved, nothing is asked.
        """
        if not self.cost.overlapped:
            return 0
        left: TimeUnits = 0
        found, now = False, len(self.log)
        for at in range(now - 1, (self.fetched[-2] if self.fetched else 0) - 1, -1):
            record, row = self.log[at], OPERATIONS.get(self.log[at].kind)
            if record.__class__ is not Done or row is None or row is LOSS:  # a call that has begun, a mark
                continue
            if not found and at + 1 == self.beside[0]:  # it shares its forwards with the backward before it
                found, left = True, self.beside[1]
                break
            if not row.trains or row.backward or record.batches & batches:
                break
            found, left = True, left + record.end - record.issued
        if not found:
            problem = "no forward of another micro-batch is right before it, with which it could overlap"
            fix = "first receive what both read, then model.forward(...), then model.backward(..., overlapped=True); "
            fix += "where a backward has no forward beside it, leave overlapped=True out"
            raise PuzzleError(problem, where=self.place(kind, layer, batches), fix=fix)
        both = min(left, length)
        self.beside = now + 1, left - both
        return self.cost.saved_beside(both)

    def note_slices(self, kind: str, operands: Sequence[Labels]) -> None:
        """Note which slices of a sequence the step of a layer that was recorded last was done with: for its record, and
        for errors, which ask for all that a step was done with so far."""
        first = operands[0]
        heads = (first.extra.heads,) * (first.of_heads != 1)
        self.pieces[len(self.log) - 1] = tuple([one.piece() for one in operands if KINDS[one.kind].by_batch]) + heads
        if first.total != 1:
            for batch in first.batches:
                which = kind, first.layer, batch
                self.slices[which] = both(self.slices.get(which, NOTHING), first.piece())

    def leave_behind(self, row: Computation, layer: int | None, labels: Sequence[Labels]) -> None:
        """Note what a forward leaves in memory by itself, until the backward that makes the weight's gradient."""
        which = layer, labels[0].batches
        if row.weight_grads:
            self.held[INNER] -= self.inner.pop(which, 0)
        elif not row.backward and which not in self.inner:
            self.inner[which] = left = self.cost.left_behind(row.kind, *labels)
            self.held[INNER] += left

    def mark(self, kind: str, layer: int | None, batches: frozenset[int] = NONE, words: tuple[str, ...] = ()) -> None:
        """Take a sample at a moment that is no operation: it ends no life."""
        self.log.append(make_done((kind, layer, batches, words, self.clock, self.clock, self.shared(tuple(self.held)))))

    def ended_by(self, tensor: TensorState) -> tuple[str, int | tuple[int, ...] | None]:
        """Return the operation that ended the life of a tensor, and its layer or layers: one that has used it up, or
        the next one of the coroutine whose temporary it was."""
        record = self.log[self.ended_at(tensor)]
        if record.kind == SEND.kind:
            return f"{record.kind}({record.peer})", None
        return record.kind, None if record.kind == RECEIVE.kind else record.layers or record.layer

    def ended_at(self, tensor: TensorState) -> int:
        """Return the place in the log of the operation that ended the life of a tensor."""
        if tensor.since < 0:
            return -1 - tensor.since
        own = self._past().operations[tensor.temporaries]
        return own[bisect_left(own, tensor.since)]

    def arrival(self, labels: Labels, what: str = "it") -> list[Arrival]:
        """Return how a tensor with these labels has come, if it was a message. ``what``: how it is called."""
        if (came := self.sender(labels)) is None:
            return []
        sender, at = came
        return [Arrival(f"{what} came from rank {sender} {self.moment(self.log[at].end)}", "received", self.rank, at)]

    def arrivals_of(self, got: str, operands: Iterable[Labels]) -> list[Arrival]:
        """Return how those of these operands have come that an error says it has ``got``."""
        meant = {labels: None for labels in operands if got in (str(labels), show_set(labels.batches))}
        return [arrival for labels in meant for arrival in self.arrival(labels)]

    def second_send(self, batches: Iterable[int]) -> list[Arrival]:
        """Return where a rank has sent the same of one of these micro-batches for the second time, if one has."""
        for sender, _, at in filter(None, map(self.sent_again, batches)):
            when = self.moment(self.ranks[sender].log[at].issued)
            return [Arrival(f"rank {sender} has sent it for the second time {when}", "sent", sender, at)]
        return []

    def moment(self, time: TimeUnits) -> str:
        """Return a time as text: ``at tick 7``."""
        unit = self.cost.time_unit
        return f"at {unit.at(unit.show(float(time / self.per_tick)))}"

    def past_record(self, index: int) -> Any:
        """Return the last record before a place in the log that is of something done to its end, or None."""
        done = (self.log[at] for at in range(index - 1, -1, -1))
        return next((one for one in done if one.kind not in MARKS and one.end is not None), None)

    # -- the end --------------------------------------------------------------------------

    def final_state(self, stored: Iterable[TensorState]) -> FinalState:
        """Return what the rank ends with (see ``interface``): of ``stored`` counts what is known here as stored."""
        loaded = [taken for (kind, *_), taken in self.taken.items() if KINDS[kind].stepped]
        began = tuple([labels for taken in loaded for labels, _ in taken.pieces])
        left = [tensor for tensor in stored if tensor.stored and tensor.rank is self]
        kept = tuple([tensor.piece() for tensor in left])
        late, finals, lists = self._loaded_late(), dict(self.finals), tuple(self.lists.items())
        trained = {layer for layer, final in finals.items() if not final.labels.adapter}
        frozen = [one for one in left if self.is_regained(one) and one.labels.layer not in trained]
        regained = (*self.regained, *[one.labels for one in frozen])
        for tensor in left:
            if tensor.makers and tensor.labels.kind == "OptState" and tensor.labels.step:
                self.read(tensor)  # a state that is updated is a result, as a final weight is
        unread = self._unread()
        return FinalState(self.rank, self.layers, self.batches, began, late, kept, finals, lists, regained, unread)

    def _unread(self) -> tuple[Maker, ...]:
        """Return the operations whose results nobody has used, but for messages that have brought home a piece which
        this rank had sent, and others have passed on: so a ring may be a full one."""
        home = set[Labels]()
        if any(self.log[place].kind == RECEIVE.kind for place, _ in self.unread):
            home = {record.labels for record in self.log if record.kind == SEND.kind and record.labels is not None}
        return tuple([maker for maker in sorted(self.unread) if not _has_come_home(self.log[maker[0]], home)])

    def _loaded_late(self) -> tuple[Labels, ...]:
        """Return the states that were loaded only after work on their layer."""
        states = [one for (kind, *_), taken in self.taken.items() for one in taken.pieces if kind == "OptState"]
        work, first = work_on_layers(), dict[int | None, int]()
        for index, record in enumerate(islice(self.log, max((load for _, load in states), default=0))):
            # A collective of activations, or of their gradients, needs nothing of a layer, so it is no work on it.
            of_activations = record.labels is not None and KINDS[record.labels.kind].by_batch
            if record.kind in work and not of_activations:
                for layer in record.layers or (record.layer,):
                    first.setdefault(layer, index)
        return tuple(labels for labels, load in states if load > first.get(labels.layer, END))
