"""The books of one rank: which tensors live, what memory they take, and the log of what was done.

A tensor lives while it is stored. What an operation has just made, or what was just taken out,
is *loose*: it lives until the next operation of the coroutine that holds it, which must use it or
find it stored. So nothing can be kept in a local variable, and no garbage collector is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..basics.errors import PuzzleError
from ..basics.units import Elements
from ..record.events import COLLECTIVE, MEMORY_KINDS, Event, make_event
from ..record.labels import NONE, Cuts, Labels, overlap
from .cost import Cost
from .in_flight import Flight
from .tensor_state import Entry, gone
from .values import Fingerprints

LAYERED = ("forward", "backward", *COLLECTIVE)
"""Operations with a layer of the model."""
STORES = {
    "Weight": "weights",
    "OptState": "opt_states",
    "WeightGrad": "grad_weights",
    "Activation": "activations",
    "ActivationGrad": "grad_activations",
}
"""The dictionary in which a tensor is by habit."""
END = 1 << 60
"""After every sample."""


class Piece(NamedTuple):
    """A tensor as it was at one moment."""

    labels: Labels
    value: Any
    made_up: bool


class Closing(NamedTuple):
    """What a rank ends with, for the check: labels and values, no more to be changed."""

    rank: int
    layers: int
    batches: int
    began: tuple[Labels, ...]
    """Pieces of weights and states that it took from load_weights."""
    late: tuple[Labels, ...]
    """Of these the states that it loaded only after it had worked on their layer."""
    kept: tuple[Piece, ...]
    """What is stored at the end."""
    finals: dict[int, Piece]
    """What was set as final weight of each layer."""


class Account:
    """One rank's books: clock, lanes, stored memory, loose tensors, log."""

    def __init__(
        self,
        rank: int,
        layers: int,
        batches: int,
        cost: Cost,
        values: Fingerprints,
        cuts: Cuts,
        graded: bool,
        strict: bool,
    ) -> None:
        self.rank, self.layers, self.batches = rank, layers, batches
        self.cost, self.values, self.cuts = cost, values, cuts
        self.graded = graded  # in run and grade: one owner, nothing made up, each piece loaded once
        self.strict = strict  # the set rules, which may be switched off to let the values tell
        self.clock = 0  # in grains, like every time in the books
        self.grain = cost.grain
        self.held: list[Elements] = [0] * len(MEMORY_KINDS)
        self.log: list[Event | Flight] = []
        self.clocks: list[int] = []  # the clock at each sample
        self.loose: dict[object, list[Entry]] = {None: []}
        self.several = False  # whether more than one coroutine of this rank may be running
        self.holder: Any = _no_coroutine
        self.finals: dict[int, Piece] = {}
        self.loads: list[int] = []  # where in the log each load_weights is
        self.taken: dict[tuple[str, int], list[tuple[Labels, tuple[int, ...]]]] = {}
        # lanes (see network)
        self.lane: deque[Flight] = deque()
        self.lane_free = 0
        self.receives: list[Flight] = []
        self.receive_free = 0
        self.open: dict[int, Flight] = {}  # issued and not fetched, by issue number
        self.issued = 0
        self.sent: dict[int, int] = {}  # messages to each rank
        self.meetings: dict[str | None, list[Any]] = {}  # axis -> [group, collectives issued on it]
        # settled when the log is read: (from index, to index, elements) of samples that held more
        self.more: list[tuple[int, int, int, Elements]] = []
        self.kept_loose: list[tuple[int, int, int, Elements]] = []
        self.received: list[tuple[int, int, Elements]] = []
        self.carried: list[tuple[Entry, list[int]]] = []

    # -- lives --------------------------------------------------------------------------

    def share(self, holder: Any) -> None:
        """From now on several coroutines may run in this rank; ``holder()`` names the one that does."""
        if self.several:
            return
        self.several, self.holder = True, holder
        mine, loose = holder(), self.loose.pop(None)
        for entry in loose:
            entry.holder, entry.since = mine, len(self.log)
        self.loose[mine] = loose

    def mint(
        self,
        labels: Labels,
        value: Any,
        made_up: bool = False,
        memory: Elements | None = None,
        loads: tuple[int, ...] = (),
        issuer: object = None,
    ) -> Entry:
        """A new tensor, loose in the hands of the running coroutine (in a callback: of ``issuer``)."""
        entry = Entry(labels, value, self.cost.elements(labels) if memory is None else memory, self)
        if made_up or loads:
            entry.made_up, entry.loads, entry.home = made_up, loads, None
        if self.several:
            self._loosen(entry, self.holder() or issuer)
        else:
            self.loose[None].append(entry)
        return entry

    def _loosen(self, entry: Entry, holder: object) -> None:
        entry.holder = holder
        entry.since = len(self.log)
        loose = self.loose.get(holder)
        if loose is None:
            loose = self.loose[holder] = []
        loose.append(entry)

    def store(self, entry: Entry) -> None:
        """A dictionary of this rank now holds the tensor (once more)."""
        if entry.home is not self:
            self.examine(entry, "storing it")
        if self.several or entry.unstored is not None:
            self.used(entry)
        entry.stored += 1
        self.held[entry.slot] += entry.memory

    def drop(self, entry: Entry) -> None:
        """A dictionary of this rank no longer holds the tensor (once less)."""
        entry.stored -= 1
        self.held[entry.slot] -= entry.memory
        if not entry.stored:
            if self.several:
                self._loosen(entry, self.holder())
            else:
                entry.holder = None
                self.loose[None].append(entry)
            if entry.flights:
                self._carry_on(entry, len(self.log))

    def used(self, entry: Entry) -> None:
        """A loose tensor is put to use: what it took over other coroutines' operations counts."""
        now = len(self.log)
        if self.several and not entry.stored and entry.since < now and entry.account is self:
            self.kept_loose.append((entry.since, now, entry.slot, entry.memory))
            entry.since = now
        if entry.unstored is not None:
            entry.unstored[1] = now
            entry.unstored = None

    def _carry_on(self, entry: Entry, start: int) -> None:
        """A tensor that unfinished calls carry is no longer stored: it takes memory until their end."""
        if entry.unstored is None:
            entry.unstored = [start, END]
            self.carried.append((entry, entry.unstored))

    def examine(self, entry: Entry, use: str, take: bool = True) -> None:
        """Whether an entry that is not simply at home here may be used. Raises PuzzleError if not."""
        if entry.died:
            store = STORES[entry.labels.kind]
            cure = f"store it to keep it, in model.{store}[...], as soon as it is made"
            raise PuzzleError(gone(entry), where=f"rank {self.rank}, {use}", cure=cure)
        if not self.graded:
            return
        if entry.made_up:
            raise PuzzleError(
                f"{entry.labels} is made up: no operation of this run computed it",
                where=f"rank {self.rank}, {use}",
                expected="a tensor that came out of load_weights, get_activation or an operation",
                cure="fake_grad with micro-batches, and tensors made by hand, are for demonstrations",
            )
        if entry.account is not self:
            owner = f"rank {entry.account.rank}" if entry.account else "no rank"
            raise PuzzleError(
                f"{entry.labels} belongs to {owner}",
                where=f"rank {self.rank}, {use}",
                cure="tensors get from rank to rank by communication only",
            )
        if take and entry.loads:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        """Remember a loaded piece as taken. Raises PuzzleError when this rank took it before."""
        labels = entry.labels
        before = self.taken.setdefault((labels.kind, labels.layer), [])
        for other, loads in before:
            if overlap(labels, other) and not set(loads) & set(entry.loads):
                raise PuzzleError(
                    f"this rank has taken that piece of the {labels.kind} from load_weights before",
                    where=f"rank {self.rank}, load_weights({labels.layer})",
                    expected="each piece loaded once",
                    got=f"{labels} after {other}",
                    cure="keep it stored, or get it from another rank by communication",
                )
        before.append((labels, entry.loads))
        entry.loads, entry.home = (), self

    # -- samples and the log ------------------------------------------------------------

    def sample(self, kind: str, layer: int | None, operands: Sequence[Entry]) -> tuple[Elements, ...]:
        """Memory at the moment of an operation; ends the lives that end with it."""
        held, counted = self.held, None
        holder = self.holder() if self.several else None
        for entry in operands:
            if not entry.stored and entry.died is None:
                if self.several or entry.unstored is not None:
                    self.used(entry)
                counted = counted or list(held)
                counted[entry.slot] += entry.memory
                if entry.account is not self:
                    continue  # by hand: a tensor of another machine, or of none, is not ours to end
                entry.died, entry.home = (self.rank, kind, layer), None
                if entry.flights:
                    self._carry_on(entry, len(self.log) + 1)
        loose = self.loose.get(holder)
        if loose:
            for entry in loose:
                if not entry.stored and entry.died is None and entry.holder is holder:
                    entry.died, entry.home = (self.rank, kind, layer), None
            loose.clear()
        self.clocks.append(self.clock)
        return tuple(counted or held)

    def record(self, kind: str, layer: int, batches: frozenset[int], operands: Sequence[Entry], length: int) -> None:
        """An operation of the compute lane: sample, clock and log."""
        held = self.sample(kind, layer, operands)
        grain, start = self.grain, self.clock / self.grain
        self.clock += length
        end = self.clock / grain
        self.log.append(make_event((self.rank, kind, layer, batches, start, start, end, held, None, (), None, 0)))

    def mark(self, kind: str, layer: int | None, batches: frozenset[int] = NONE, tensor: str | None = None) -> None:
        """A sample at a moment that is no operation: it ends no life."""
        now = self.clock / self.grain
        self.clocks.append(self.clock)
        self.log.append(
            make_event((self.rank, kind, layer, batches, now, now, now, tuple(self.held), None, (), tensor, 0))
        )

    def closing(self, stored: Sequence[Entry]) -> Closing:
        """What the rank ends with; ``stored`` names what its dictionaries hold, of which only what
        the books know as stored counts."""
        began = tuple(labels for taken in self.taken.values() for labels, _ in taken)
        late = tuple(self._late())
        kept = tuple(
            Piece(entry.labels, entry.value, entry.made_up)
            for entry in stored
            if entry.stored and entry.account is self
        )
        return Closing(self.rank, self.layers, self.batches, began, late, kept, dict(self.finals))

    def _late(self) -> Iterator[Labels]:
        first: dict[int | None, int] = {}
        for index, record in enumerate(self.log):
            if record.kind in LAYERED:
                first.setdefault(record.layer, index)
        for (kind, layer), taken in self.taken.items():
            for labels, loads in taken if kind == "OptState" else ():
                if any(self.loads[load - 1] > first.get(layer, END) for load in loads):
                    yield labels


def _no_coroutine() -> None:
    return None
