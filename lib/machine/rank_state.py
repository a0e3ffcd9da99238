"""What the machine knows of one rank and of its tensors: which of them live, what memory they take, and the log of what
was done.

A tensor lives while it is stored. What an operation has just made, or what was just taken out, is one of a coroutine's
*temporaries*: it lives until that coroutine's next operation, which must use it or find it stored. So nothing can be
kept in a local variable, and no garbage collector is asked.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from weakref import ref

from ..basics.errors import NOWHERE, Place, PuzzleError, show_call
from ..basics.units import Elements, SizeUnit
from ..record.causal import Slices
from ..record.events import LOADS, MARKS
from ..record.kinds import INNER, KINDS, MEMORY_KINDS, SLOT
from ..record.labels import HOSTS, Labels, cut, join, scaled, total_of
from ..record.operations import Computation, Value, Values
from ..record.shards import NONE, Cuts
from ..record.table import OPERATIONS, RECEIVE, SEND, work_on_layers
from ..record.training import LOSS
from .cost import Cost, TimeUnits
from .fingerprints import Fingerprints
from .interface import FinalState, Piece, Token, make_piece

STORING = "storing it"  # the use of a tensor that is put into a dictionary, for an error
MADE_UP = "made up"  # the origin of a tensor that no operation has computed
Origin = str | int | None
"""MADE_UP, how long the log was after the load, or the ``get_activation``, that a tensor comes from and has not been
taken from, or None: what the rank that owns it may use."""
_UNPRICED = Cost()
END = 1 << 60  # after every sample
Span = tuple[int, int, int, Elements, object]
"""Memory that counts late: first sample, sample after the last, place among MEMORY_KINDS, elements, and what it is: a
tensor, or the place in the log of the call that has brought it."""


class Taken:
    """The pieces of a layer's weight, of its state, or of a micro-batch's input, that a rank has taken: labels, and the
    number of the load."""

    __slots__ = ("pieces", "starts", "parts")

    def __init__(self) -> None:
        self.pieces: list[tuple[Labels, int]] = []
        # What these cover, as parts of the whole apart from each other: where each starts, and its end, load and piece.
        self.starts: list[Fraction] = []
        self.parts: list[tuple[Fraction, int, Labels]] = []

    def note(self, labels: Labels, load: int) -> Labels | None:
        """Note a piece. If one of another load overlaps it, return that, and note nothing."""
        if self.pieces:  # most often it is the only one
            if not self.starts:
                self._cover(*self.pieces[0])
            for start, end in _spans(labels):
                first, last = self._within(start, end)
                for _, other, piece in self.parts[first:last]:
                    if other != load:
                        return piece
            self._cover(labels, load)
        self.pieces.append((labels, load))
        return None

    def _within(self, start: Fraction, end: Fraction) -> tuple[int, int]:
        """Return the places of the first part that overlaps a span, and of the one after the last."""
        first = bisect_right(self.starts, start)
        if first and self.parts[first - 1][0] > start:
            first -= 1
        return first, bisect_left(self.starts, end)

    def _cover(self, labels: Labels, load: int) -> None:
        """Make one part of a piece and of those of its load that it overlaps."""
        for start, end in _spans(labels):
            first, last = self._within(start, end)
            if first < last:
                start, end = min(start, self.starts[first]), max(end, self.parts[last - 1][0])
            self.starts[first:last] = [start]
            self.parts[first:last] = [(end, load, labels)]


def _spans(labels: Labels) -> Iterator[tuple[Fraction, Fraction]]:
    """Return where a piece lies in the whole, of which the end is 1."""
    shards, total = labels.shards, labels.total
    first, last = min(shards), max(shards)
    if last - first + 1 == len(shards):
        yield Fraction(first, total), Fraction(last + 1, total)
    else:
        yield from ((Fraction(shard, total), Fraction(shard + 1, total)) for shard in shards)


@dataclass(frozen=True)
class Terms:
    """What holds for all ranks of a machine."""

    cost: Cost
    values: Values
    graded: bool  # whether the rules of ``run`` hold: one owner, nothing made up, each piece and each input taken once
    strict: bool  # whether sets are checked at each operation; off, only the values can tell
    experts: int = 0  # of every other layer, from layer 1 on
    tokens: tuple[int, ...] = ()  # of each micro-batch, if they matter
    muon: bool = False  # whether an update takes an orthogonalized gradient
    tied: bool = False  # whether the last layer uses the weight of layer 0
    cuts: Cuts = field(default_factory=Cuts)
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
        "slot", "value", "rank", "temporaries", "since", "origin", "stored", "carriers", "unstored",
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
        labels = total_of((self.labels, other.labels), "+", strict=rank is None or rank.strict)
        if rank is None:
            return made_by_hand(labels)
        return _derived(rank, labels, rank.values.add((self.value, other.value)), self, other)

    def scale(self, factor: Fraction) -> TensorState | None:
        """Return this gradient times a number, where micro-batches count by their tokens."""
        rank = _one_rank("*", self)
        if rank is None or not rank.tokens:
            return None
        return _derived(rank, scaled(self.labels, factor), rank.values.scale(self.value, factor), self)


def _derived(rank: RankState, labels: Labels, value: Value, *sources: TensorState) -> TensorState:
    made_up = any(source.origin is MADE_UP for source in sources)
    # Of several sources none is still to be taken from its load: gradients are not loaded, and combine takes its parts.
    return rank.mint(labels, value, MADE_UP if made_up else sources[0].origin)


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
    what, call = tensor.labels.in_words(), show_call(kind, layer)
    error = PuzzleError("not_kept", where=where, operands=[tensor.labels], tensor=what, rank=rank.rank, call=call)
    made = rank.log[tensor.since - 1] if where.operation == STORING and tensor.since > 0 else None
    if made is not None and made.kind == RECEIVE.kind and made.labels == tensor.labels:
        error.entry = tensor.since - 1  # a helper may have returned it since
    return error


class RankState:
    """One rank: its clock, its tensors, its memory, its log."""

    __slots__ = (
        "rank", "layers", "batches", "is_host", "graded", "strict", "cost", "values", "cuts", "per_tick", "clock",
        "log", "fetched", "held", "inner", "samples", "finals", "temporaries", "several", "holder", "all_temporaries",
        "fractions", "writers", "taken", "lists", "late", "kept_loose", "received", "carried", "pieces", "experts",
        "overlap", "tokens", "muon", "tied", "__weakref__",
    )  # fmt: skip
    tensor_type: type[TensorState] = TensorState

    def __init__(self, rank: int, layers: int, batches: int, terms: Terms, is_host: bool = False) -> None:
        self.rank, self.layers, self.batches, self.is_host = rank, layers, batches, is_host
        self.graded, self.strict = terms.graded, terms.strict
        self.experts, self.tokens, self.muon, self.tied = terms.experts, terms.tokens, terms.muon, terms.tied
        self.overlap: tuple[int, TimeUnits] = 0, 0
        """How long the log was after the last backward that overlapped, and what it left of forwards."""
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
        return self.tensor_type(labels, value, memory, self, own, len(self.log), origin)

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
            where, expected = self.place("taking it out"), "a tensor that a dictionary of this rank holds"
            raise PuzzleError("never_stored", where=where, expected=expected, tensor=tensor.labels.in_words())
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
            where, expected = self.place(operation, layer), "a tensor that came out of load_weights, get_activation or "
            expected += "an operation"
            raise PuzzleError(
                "made_up", where=where, expected=expected, operands=[tensor.labels], tensor=tensor.labels.in_words()
            )
        if tensor.rank is not self:
            owner, what = f"rank {tensor.rank.rank}" if tensor.rank else "no rank", tensor.labels.in_words()
            where = self.place(operation, layer)
            raise PuzzleError(
                "other_rank", where=where, operands=[tensor.labels], tensor=what, owner=owner, rank=self.rank
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
                twice = self._taken_before(labels, other, which)
                twice.entry = load - 1
                raise twice
        tensor.origin = None

    def _taken_before(self, labels: Labels, other: Labels, which: int) -> PuzzleError:
        """Return the error of a piece of a weight or of a state that was loaded twice, or of an input."""
        got, verb = f"{labels} after {other}", LOADS[labels.adapter]
        if KINDS[labels.kind].stepped:
            where, expected = self.place(verb, labels.layer), "each piece loaded once"
            what = f"that piece of the {labels.kind} from {verb}"
            return PuzzleError("taken_before", where=where, expected=expected, got=got, what=what)
        where, expected = self.place("get_activation", None, labels.batches), "the input of each micro-batch taken once"
        what = f"the input of micro-batch {which}"
        return PuzzleError("taken_before", where=where, expected=expected, got=got, what=what)

    # -- samples and the log ------------------------------------------------------------

    def sample(self, operands: Sequence[TensorState], workspace: Elements = 0) -> tuple[Elements, ...]:
        """Return the memory held at the moment of an operation, by MEMORY_KINDS, and end the lives that end with it."""
        held, now = self.held, len(self.log)
        for tensor in operands:
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
            if not found and at + 1 == self.overlap[0]:  # it shares its forwards with the backward before it
                found, left = True, self.overlap[1]
                break
            if not row.trains or row.backward or record.batches & batches:
                break
            found, left = True, left + record.end - record.issued
        if not found:
            raise PuzzleError("nothing_beside", where=self.place(kind, layer, batches))
        both = min(left, length)
        self.overlap = now + 1, left - both
        return self.cost.saved_beside(both)

    def note_slices(self, operands: Sequence[Labels]) -> None:
        """Note which slices of a sequence the step of a layer that was recorded last was done with, for its record."""
        first = operands[0]
        heads = (first.extra.heads,) * (first.of_heads != 1)
        self.pieces[len(self.log) - 1] = tuple([one.piece() for one in operands if KINDS[one.kind].by_batch]) + heads

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
        """Return the operation at which a tensor that is not stored ceased to exist, and its layer or layers: the one
        that used it, or else the next operation of the coroutine that had it."""
        record = self.log[self.ended_at(tensor)]
        if record.kind == SEND.kind:
            return f"{record.kind}({record.peer})", None
        return record.kind, None if record.kind == RECEIVE.kind else record.layers or record.layer

    def ended_at(self, tensor: TensorState) -> int:
        """Return the place in the log of the operation that ended the life of a tensor."""
        if tensor.since < 0:
            return -1 - tensor.since
        later = range(tensor.since, len(self.log))
        own = (at for at in later if self.writers.get(at, self.temporaries) is tensor.temporaries)
        return next(at for at in own if self.log[at].kind not in MARKS)

    # -- the end --------------------------------------------------------------------------

    def final_state(self, stored: Iterable[TensorState]) -> FinalState:
        """Return what the rank ends with (see ``interface``): of ``stored`` counts what is known here as stored."""
        loaded = [taken for (kind, *_), taken in self.taken.items() if KINDS[kind].stepped]
        began = tuple([labels for taken in loaded for labels, _ in taken.pieces])
        kept = tuple([tensor.piece() for tensor in stored if tensor.stored and tensor.rank is self])
        late, finals, lists = self._loaded_late(), dict(self.finals), tuple(self.lists.items())
        return FinalState(self.rank, self.layers, self.batches, began, late, kept, finals, lists, self.tokens)

    def _loaded_late(self) -> tuple[Labels, ...]:
        """Return the states that were loaded only after work on their layer."""
        states = [one for (kind, *_), taken in self.taken.items() for one in taken.pieces if kind == "OptState"]
        work, first = work_on_layers(), dict[int | None, int]()
        for index, record in enumerate(islice(self.log, max((load for _, load in states), default=0))):
            # A collective of activations, or of their gradients, needs nothing of a layer, so it is no work on it.
            if record.kind in work and not (record.labels is not None and KINDS[record.labels.kind].by_batch):
                for layer in record.layers or (record.layer,):
                    first.setdefault(layer, index)
        return tuple(labels for labels, load in states if load > first.get(labels.layer, END))
