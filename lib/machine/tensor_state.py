"""What the books know of one tensor: labels, value, and where it is in its life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..basics.errors import PuzzleError
from ..basics.units import Elements
from ..record.events import MEMORY_KINDS
from ..record.labels import Labels, cut, join, total_of
from .cost import Cost
from .values import Fingerprints

if TYPE_CHECKING:
    from .in_flight import Flight
    from .rank_state import Account

SLOT = {
    kind: MEMORY_KINDS.index(name)
    for kind, name in (
        ("Weight", "weights"),
        ("OptState", "opt_states"),
        ("WeightGrad", "weight_grads"),
        ("Activation", "activations"),
        ("ActivationGrad", "activation_grads"),
    )
}
IN_FLIGHT, INBOX = MEMORY_KINDS.index("in_flight"), MEMORY_KINDS.index("inbox")
_UNPRICED = Cost()


class Token:
    """What the learner's side may know of a tensor in the books: ``labels`` and ``memory``, no more."""

    labels: Labels
    memory: Elements


class Entry(Token):
    """What the books know of one tensor; the tensor itself carries it as an opaque token.

    ``home`` is the account that may use it with no question asked; it is None for what has died,
    what was made by hand, and what was loaded and not yet taken, which ``Account.examine`` decides.
    """

    stored = 0
    died: tuple[int, str, int | None] | None = None  # (rank, operation, layer) that ended its life
    made_up = False
    loads: tuple[int, ...] = ()  # load_weights calls that it comes from and has not been taken from
    flights: list[Flight] | None = None  # unfinished calls that carry it
    unstored: list[int] | None = None  # samples [from, to) in which it is carried and not stored, while open
    holder: object = None
    since = 0

    def __init__(self, labels: Labels, value: Any, memory: Elements, account: Account | None) -> None:
        self.labels = labels
        self.slot = SLOT[labels[0]]
        self.value = value
        self.memory = memory
        self.account = self.home = account

    # -- what can be made of tensors without an operation --------------------------------

    def shard(self, index: int, total: int) -> Entry:
        """Piece ``index`` of ``total`` of this one."""
        labels = cut(self.labels, index, total)
        account = _one_account(self)
        if account:
            account.cuts.check(labels.total)
        values = account.values if account else Fingerprints()
        return self._derived(account, labels, values.cut(self.value, self.labels, labels), self)

    def combine(self, other: Entry) -> Entry:
        """This part and that one as one."""
        labels = join((self.labels, other.labels), "combine")
        account = _one_account(self, other, use="combine")
        values = account.values if account else Fingerprints()
        return self._derived(account, labels, values.join((self.value, other.value)), self, other)

    def add(self, other: Entry) -> Entry:
        """The sum of two gradients."""
        account = _one_account(self, other)
        labels = total_of((self.labels, other.labels), "+", strict=account is None or account.strict)
        values = account.values if account else Fingerprints()
        return self._derived(account, labels, values.add((self.value, other.value)), self, other)

    def _derived(self, account: Account | None, labels: Labels, value: Any, *sources: Entry) -> Entry:
        made_up = any(source.made_up for source in sources)
        loads = tuple(load for source in sources for load in source.loads)
        if account is None:
            return made_by_hand(labels)
        return account.mint(labels, value, made_up, loads=loads)


def made_by_hand(labels: Labels) -> Entry:
    """A tensor out of nothing: allowed in demonstrations, marked as made up."""
    entry = Entry(labels, Fingerprints().made_up(labels), _UNPRICED.elements(labels), None)
    entry.made_up = True
    return entry


def _one_account(*entries: Entry, use: str = "") -> Account | None:
    """The account that an expression belongs to; checks that all of it lives and is one rank's.

    With ``use`` it takes what was loaded: parts that are joined could not be told apart later.
    """
    account = next((entry.account for entry in entries if entry.account), None)
    for entry in entries:
        if entry.home is not account or account is None:
            if account is not None:
                account.examine(entry, use or "+ or shard", take=bool(use))
            elif entry.died:
                raise PuzzleError(gone(entry))
        if account is not None and account.several:
            account.used(entry)
    return account


def gone(entry: Entry) -> str:
    """Why a tensor no longer exists."""
    assert entry.died is not None
    rank, kind, layer = entry.died
    return f"{entry.labels} was not stored when rank {rank} issued {kind}" + (
        "" if layer is None else f"(layer {layer})"
    )
