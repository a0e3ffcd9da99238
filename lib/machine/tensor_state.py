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


class Owner(Protocol):
    """What a tensor asks of the rank that it belongs to (``rank_state``)."""

    values: Values
    cuts: Cuts
    strict: bool
    several: bool

    def examine(self, tensor: TensorState, operation: str, layer: int | None = None, take: bool = True) -> None:
        """Raise PuzzleError unless the tensor may be used."""

    def used(self, tensor: TensorState) -> None:
        """Note the use of a tensor."""

    def mint(
        self, labels: Labels, value: Value, made_up: bool = False, loads: tuple[int, ...] = (), issuer: object = None
    ) -> TensorState:
        """Create the record of a new tensor."""


class Carrying(Protocol):
    """A call that carries a tensor (``in_flight``)."""

    index: int
    """Where in the log it was issued."""
    end: Grains | None


class TensorState(Token):
    """One tensor; the learner's side carries it as an opaque token.

    ``home`` is the rank that may use it with no question asked; it is None for what has died,
    what was made by hand, and what was loaded and not yet taken, which ``examine`` decides.
    """

    # All set from the start, in slots: a default of the class would be asked for many times more slowly.
    __slots__ = (
        "slot", "value", "rank", "home", "stored", "died", "made_up", "loads", "carriers", "unstored", "holder", "since"
    )  # fmt: skip

    def __init__(self, labels: Labels, value: Value, memory: Elements, rank: Owner | None) -> None:
        self.labels = labels
        self.slot = SLOT[labels.kind]
        self.value = value
        self.memory = memory
        self.rank = self.home = rank
        self.stored = 0
        """How often dictionaries hold it."""
        self.died: tuple[int, str, int | None] | None = None
        """Rank, operation and layer that ended its life."""
        self.made_up = False
        self.loads: tuple[int, ...] = ()
        """The load_weights calls that it comes from and has not been taken from."""
        self.carriers: list[Carrying] | None = None
        """Unfinished calls that carry it."""
        self.unstored: list[int] | None = None
        """Samples [from, to) in which it is carried and not stored, while that lasts."""
        self.holder: object = None
        """The coroutine that has it in hand."""
        self.since = 0
        """The sample from which it is in that coroutine's hand."""

    # -- what can be made of tensors without an operation --------------------------------

    def shard(self, index: int, total: int) -> TensorState:
        """Return piece ``index`` of ``total`` of this one."""
        labels = cut(self.labels, index, total)
        rank = _one_rank(self)
        if rank:
            rank.cuts.check(labels.total)
        values = rank.values if rank else Fingerprints()
        return _derived(rank, labels, values.cut(self.value, labels), self)

    def combine(self, other: Token) -> TensorState:
        """Return this part and that one as one."""
        assert isinstance(other, TensorState)
        labels = join((self.labels, other.labels), "combine")
        rank = _one_rank(self, other, use="combine")
        values = rank.values if rank else Fingerprints()
        return _derived(rank, labels, values.join((self.value, other.value)), self, other)

    def add(self, other: Token) -> TensorState:
        """Return the sum of two gradients."""
        assert isinstance(other, TensorState)
        rank = _one_rank(self, other)
        labels = total_of((self.labels, other.labels), "+", strict=rank is None or rank.strict)
        values = rank.values if rank else Fingerprints()
        return _derived(rank, labels, values.add((self.value, other.value)), self, other)


def _derived(rank: Owner | None, labels: Labels, value: Value, *sources: TensorState) -> TensorState:
    if rank is None:
        return made_by_hand(labels)
    made_up = any(source.made_up for source in sources)
    loads = tuple(load for source in sources for load in source.loads)
    return rank.mint(labels, value, made_up, loads)


def made_by_hand(labels: Labels) -> TensorState:
    """Return a tensor out of nothing: allowed in demonstrations, marked as made up."""
    tensor = TensorState(labels, Fingerprints().made_up(labels), _UNPRICED.elements(labels), None)
    tensor.made_up = True
    return tensor


def _one_rank(*tensors: TensorState, use: str = "") -> Owner | None:
    """Return the one rank that owns these tensors. Raise PuzzleError if one is dead or another rank's.

    With ``use`` it takes what was loaded: parts that are joined could not be told apart later.
    """
    rank = next((tensor.rank for tensor in tensors if tensor.rank), None)
    for tensor in tensors:
        if tensor.home is not rank or rank is None:
            if rank is not None:
                rank.examine(tensor, use or "+ or shard", take=bool(use))
            elif tensor.died:
                raise gone(tensor, NOWHERE)
        if rank is not None and rank.several:
            rank.used(tensor)
    return rank


def gone(tensor: TensorState, where: Place) -> PuzzleError:
    """Return the error that says why a tensor no longer exists."""
    assert tensor.died is not None
    rank, kind, layer = tensor.died
    return PuzzleError(
        f"{tensor.labels} was not stored when rank {rank} issued {show_call(kind, layer)}",
        where=where,
        cure=f"store it to keep it, in model.{KINDS[tensor.labels.kind].store}[...], as soon as it is made",
    )
