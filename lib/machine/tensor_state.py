"""What the machine knows of one tensor: labels, value, and where it is in its life."""

from __future__ import annotations

from typing import Protocol

from ..basics.errors import NOWHERE, Place, PuzzleError, show_call
from ..basics.units import Elements
from ..record.kinds import KINDS, SLOT
from ..record.labels import Cuts, Labels, cut, join, total_of
from ..record.operations import Value, Values
from .cost import Cost, Grains
from .fingerprints import Fingerprints
from .interface import Token

_UNPRICED = Cost()


MADE_UP = "made up"  # the origin of a tensor that no operation has computed


class Owner(Protocol):
    """What a tensor asks of the rank that it belongs to (``rank_state``)."""

    rank: int
    values: Values
    cuts: Cuts
    strict: bool
    several: bool

    def examine(self, tensor: TensorState, operation: str, layer: int | None = None, take: bool = True) -> None:
        """Raise PuzzleError unless the tensor may be used."""

    def used(self, tensor: TensorState) -> None:
        """Note the use of a tensor."""

    def mint(self, labels: Labels, value: Value, origin: Origin = None) -> TensorState:
        """Create the record of a new tensor."""

    def ended_by(self, tensor: TensorState) -> tuple[str, int | None]:
        """Return the operation that ended the life of a tensor, and its layer."""


class Carrying(Protocol):
    """A call that carries a tensor (``in_flight``)."""

    index: int  # where in the log it was issued
    end: Grains | None


class Hand:
    """What one coroutine of a rank has in hand: what it has made or taken out since its last operation."""

    __slots__ = ("rank", "ended")

    def __init__(self, rank: Owner | None) -> None:
        self.rank = rank
        self.ended = 0  # how long the log was after that operation: what came to hand before it is gone


Origin = str | tuple[int, ...] | None
"""MADE_UP, the load_weights calls that a tensor comes from and has not been taken from, or None: what any rank may use
that owns it."""
NO_HAND = Hand(None)


class TensorState(Token):
    """One tensor; the learner's side carries it as an opaque token.

    It lives as long as dictionaries hold it, and in the hand of the coroutine that made it or took it out until that
    coroutine's next operation.
    """

    # In slots and all set from the start: a default of the class would be asked for many times more slowly.
    __slots__ = ("slot", "value", "rank", "hand", "since", "origin", "stored", "carriers", "unstored")

    def __init__(
        self,
        labels: Labels,
        value: Value,
        memory: Elements,
        rank: Owner | None,
        hand: Hand = NO_HAND,
        since: int = 0,
        origin: Origin = None,
    ) -> None:
        self.labels = labels
        self.value = value
        self.memory = memory
        self.slot = SLOT[labels.kind]
        self.rank = rank
        self.hand, self.since = hand, since
        """In whose hand it is, or was last, and how long the log was when it came there; below zero, an operation has
        used it up: ``-1 - since`` is that one's place in the log."""
        self.origin = origin
        self.stored = 0  # how often dictionaries hold it
        self.carriers: list[Carrying] | None = None  # unfinished calls that carry it
        self.unstored: list[int] | None = None
        """Samples [from, to) in which it is carried and not stored, while that lasts."""

    def lives(self) -> bool:
        """Return whether it still exists."""
        return self.stored > 0 or self.since >= self.hand.ended

    def is_free(self, rank: Owner) -> bool:
        """Return whether this rank may use it with no question asked; ``rank.examine`` decides the others."""
        return self.rank is rank and self.origin is None and (self.stored > 0 or self.since >= self.hand.ended)

    # -- what can be made of tensors without an operation --------------------------------

    def shard(self, index: int, total: int) -> TensorState:
        """Return piece ``index`` of ``total`` of this one."""
        labels = cut(self.labels, index, total)
        rank = _one_rank(self)
        if rank is None:
            return made_by_hand(labels)
        rank.cuts.check(labels.total)
        return _derived(rank, labels, rank.values.cut(self.value, labels), self)

    def combine(self, other: Token) -> TensorState:
        """Return this part and that one as one."""
        assert isinstance(other, TensorState)
        labels = join((self.labels, other.labels), "combine")
        rank = _one_rank(self, other, use="combine")
        if rank is None:
            return made_by_hand(labels)
        return _derived(rank, labels, rank.values.join((self.value, other.value)), self, other)

    def add(self, other: Token) -> TensorState:
        """Return the sum of two gradients."""
        assert isinstance(other, TensorState)
        rank = _one_rank(self, other)
        labels = total_of((self.labels, other.labels), "+", strict=rank is None or rank.strict)
        if rank is None:
            return made_by_hand(labels)
        return _derived(rank, labels, rank.values.add((self.value, other.value)), self, other)


def _derived(rank: Owner, labels: Labels, value: Value, *sources: TensorState) -> TensorState:
    origins = [source.origin for source in sources]
    if MADE_UP in origins:
        return rank.mint(labels, value, MADE_UP)
    loads = tuple(load for origin in origins if isinstance(origin, tuple) for load in origin)
    return rank.mint(labels, value, loads or None)


def made_by_hand(labels: Labels) -> TensorState:
    """Return a tensor out of nothing: allowed in demonstrations, marked as made up."""
    value = Fingerprints().made_up(labels)
    return TensorState(labels, value, _UNPRICED.elements(labels), None, origin=MADE_UP)


def _one_rank(*tensors: TensorState, use: str = "") -> Owner | None:
    """Return the one rank that owns these tensors. Raise PuzzleError if one is dead or another rank's.

    With ``use`` it takes what was loaded: parts that are joined could not be told apart later.
    """
    rank = next((tensor.rank for tensor in tensors if tensor.rank), None)
    for tensor in tensors:
        if rank is None:
            if not tensor.lives():
                raise gone(tensor, NOWHERE)
            continue
        if not tensor.is_free(rank):
            rank.examine(tensor, use or "+ or shard", take=bool(use))
        if rank.several:
            rank.used(tensor)
    return rank


def gone(tensor: TensorState, where: Place) -> PuzzleError:
    """Return the error that says why a tensor no longer exists."""
    rank = tensor.rank if tensor.since < 0 else tensor.hand.rank
    assert rank is not None
    kind, layer = rank.ended_by(tensor)
    return PuzzleError(
        f"{tensor.labels} was not stored when rank {rank.rank} issued {show_call(kind, layer)}",
        where=where,
        cure=f"store it to keep it, in model.{KINDS[tensor.labels.kind].store}[...], as soon as it is made",
    )
