"""The books of one rank: which tensors live, what memory they take, and the log of what was done.

A tensor lives while it is stored. What an operation has just made, or what was just taken out,
is *loose*: it lives until the next operation of the coroutine that holds it, which must use it or
find it stored. So nothing can be kept in a local variable, and no garbage collector is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from .cost import Cost
from .errors import PuzzleError
from .events import MARKS, MEMORY_KINDS, Event
from .labels import NONE, Labels, cut, join, overlap, total_of
from .units import Elements
from .values import Fingerprints

if TYPE_CHECKING:
    from .network import Flight

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
HELD = Event._fields.index("held")
END = 1 << 60
"""After every sample."""
# Skips the keyword-friendly constructor: events are made by the hundred thousand.
make_event: Callable[[tuple[Any, ...]], Event] = partial(tuple.__new__, Event)


class Entry:
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
        values = account.values if account else Fingerprints()
        return self._derived(account, labels, values.cut(self.value, self.labels, labels), self)

    def combine(self, other: Entry) -> Entry:
        """This part and that one as one."""
        labels = join((self.labels, other.labels), "combine")
        account = _one_account(self, other)
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


def _one_account(*entries: Entry) -> Account | None:
    """The account that an expression belongs to; checks that all of it lives and is one rank's."""
    account = next((entry.account for entry in entries if entry.account), None)
    for entry in entries:
        if entry.home is not account or account is None:
            if account is not None:
                account.examine(entry, "an expression", take=False)
            elif entry.died:
                raise PuzzleError(gone(entry))
        if account is not None and account.several:
            account.used(entry)
    return account


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
        graded: bool,
        strict: bool,
    ) -> None:
        self.rank, self.layers, self.batches = rank, layers, batches
        self.cost, self.values = cost, values
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
        self.loads = 0
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
            raise PuzzleError(gone(entry), where=f"rank {self.rank}, {use}", cure="store it to keep it")
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

    def events(self) -> list[Event]:
        """The log, settled: calls whose times are known, and memory that is known only now."""
        more = self._more_memory()
        settled = []
        for index, record in enumerate(self.log):
            event = record if record.__class__ is Event else record.event()  # type: ignore[union-attr]
            if event is not None:
                if index in more:
                    held = tuple(map(add, event.held, more[index]))
                    event = make_event((*event[:HELD], held, *event[HELD + 1 :]))
                settled.append(event)
        return settled

    def settle(self) -> list[Event]:
        """The log at the end of a run: from now on it is all there is."""
        self.log = settled = self.events()  # type: ignore[assignment]
        self.clocks.clear()
        for spans in (self.more, self.kept_loose, self.received, self.carried):
            spans.clear()
        self.open.clear()
        return settled

    def _more_memory(self) -> dict[int, list[Elements]]:
        """By sample, what it held besides stored tensors and operands, by kind.

        A difference array: every span adds at its start and takes away at its end.
        """
        steps: dict[int, list[Elements]] = {}
        for start, stop, slot, memory in self._spans():
            if start < stop and memory:
                for index, change in ((start, memory), (stop, -memory)):
                    if index not in steps:
                        steps[index] = [0] * len(MEMORY_KINDS)
                    steps[index][slot] += change
        more: dict[int, list[Elements]] = {}
        running: list[Elements] = [0] * len(MEMORY_KINDS)
        at = sorted(steps)
        for index, following in pairwise(at):
            running = list(map(add, running, steps[index]))
            if any(running):
                more.update(dict.fromkeys(range(index, following), running))
        return more

    def _spans(self) -> Iterator[tuple[int, int, int, Elements]]:
        """(first sample, sample after the last, slot, elements) of all memory that is settled late."""
        count = len(self.log)
        yield from self.more
        for start, stop, slot, memory in self.kept_loose:
            for index in range(start, stop):  # marks see stored tensors only
                if self.log[index].kind not in MARKS:
                    yield index, index + 1, slot, memory
        clocks = self.clocks
        for arrival, stop, memory in self.received:
            if stop and clocks[stop - 1] >= arrival:
                yield bisect_left(clocks, arrival), stop, INBOX, memory
        for flight in self.open.values():
            if flight.end is not None and flight.result_memory:
                yield flight.index + 1, count, IN_FLIGHT, flight.result_memory
        for entry, (start, stop) in self.carried:
            yield from self._carried_spans(entry, start, stop)

    def _carried_spans(self, entry: Entry, start: int, stop: int) -> Iterator[tuple[int, int, int, Elements]]:
        """Samples in which an unstored tensor is carried by an unfinished call, each counted once."""
        reached = start
        for flight in sorted(entry.flights or (), key=lambda flight: flight.index):
            last = len(self.log) if flight.end is None else bisect_left(self.clocks, flight.end)
            first, last = max(reached, flight.index + 1), min(stop, last)
            if first < last:
                yield first, last, IN_FLIGHT, entry.memory
                reached = last

    def closing(self, stored: Sequence[Entry]) -> Closing:
        """What the rank ends with; ``stored`` names what its dictionaries hold, of which only what
        the books know as stored counts."""
        began = tuple(labels for taken in self.taken.values() for labels, _ in taken)
        kept = tuple(
            Piece(entry.labels, entry.value, entry.made_up)
            for entry in stored
            if entry.stored and entry.account is self
        )
        return Closing(self.rank, self.layers, self.batches, began, kept, dict(self.finals))


def gone(entry: Entry) -> str:
    """Why a tensor no longer exists."""
    assert entry.died is not None
    rank, kind, layer = entry.died
    return f"{entry.labels} was not stored when rank {rank} issued {kind}" + (
        "" if layer is None else f"(layer {layer})"
    )


def _no_coroutine() -> None:
    return None
