"""Why a run takes as long as it does: the longest chain of operations that wait for each other, and how much room the
others have.

The times in a log follow from each other, and the log says how:

- A rank's clock stands, at each of its records, where its compute has ended, or at the end of what it has awaited since
  (``Event.awaited``), whichever is later. That holds for a rank with several coroutines, too: they share its clock.
- Compute begins at its rank's clock. A call is issued at it.
- A collective begins when the last of its group has issued it, and has nothing before it on its link (one for
  each tier of links, of which there is one by default; an exchange has one place there). A send does the same alone,
  and where sends wait, the receive that takes it was posted by then.
- A receive begins when it was issued, its message is there, and the receive before it is over.

So everything begins at the latest of what it waits for, and one that waited from the end of the run to tick 0 leads
through operations of which each begins when the one before it ends: their lengths add up to the time of the run. Where
several are the latest, the chain stays on its rank if it can.

All this is true of one order of things: which coroutine of a rank goes on first, and which message a receive takes. An
operation that becomes so long that another overtakes it may lead to another schedule, of which this one tells nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import groupby
from math import fsum
from typing import NamedTuple

from ...basics.errors import PuzzleError
from ...basics.units import TICKS, Unit, show_ticks
from ..events import MARKS, Event
from ..table import RECEIVE, SEND, row_of

MESSAGES = "messages"
ROUNDED = 9
"""Decimals of a tick that count: times in a log are floats, the nearest to exact ones."""
EXACT = TICKS._replace(brief=TICKS.show)  # so that a sum adds up


class Link(NamedTuple):
    """An operation on the longest chain: its record on the rank that waited longest for it to begin (``entered``), and
    on the rank that goes on when it ends (``left``). They differ only in collectives."""

    entered: Event
    left: Event


@dataclass(frozen=True)
class Chain:
    """The operations from tick 0 to the end of a run, each of which begins when the one before it ends."""

    links: tuple[Link, ...]

    @cached_property
    def events(self) -> list[Event]:
        """The records that the chain goes through, in its order."""
        return [event for came, went in self.links for event in ((came,) if came is went else (came, went))]

    @cached_property
    def time(self) -> float:
        """The end of the last operation, in ticks: the time of the run."""
        return self.links[-1].left.end if self.links else 0.0

    @cached_property
    def parts(self) -> list[tuple[float, str]]:
        """The ticks that the chain spends on each kind of operation, most first. Sends and receives are messages."""
        lengths = defaultdict[str, list[float]](list)
        for word, length in self.spent():
            lengths[word].append(length)
        parts = [(round(fsum(each), ROUNDED), word) for word, each in lengths.items()]
        return sorted((part for part in parts if part[0] > 0), key=lambda part: -part[0])

    def spent(self) -> list[tuple[str, float]]:
        """Return the word for each operation on the chain, and the time that the chain spends on it."""
        return [(word_of(event.kind), event.length) for _, event in self.links]

    def describe(self, unit: Unit = EXACT) -> str:
        """Return the chain as a sum: ``33.8 = 14 forward + 14 backward + 4.8 messages + 1 update``."""
        parts = [f"{unit.brief(length)} {word}" for length, word in self.parts]
        return f"{unit.brief(self.time)} = {' + '.join(parts) or 'nothing'}"

    __str__ = describe


def word_of(kind: str) -> str:
    """Return what a chain calls an operation: sends and receives are messages."""
    return kind if (row := row_of(kind)) is None else MESSAGES if row.stream == "message" else row.word


Tier = Callable[[Event], object]
"""A function that gives the tier of links that a communication goes over. Each tier has a queue of its own."""


def one_tier(event: Event) -> object:
    """Return the only tier of links that there is by default."""
    return None


def chain_of(events: Iterable[Event], tier: Tier = one_tier) -> Chain:
    """Return the longest chain of a run: ``events`` are those of all its ranks, of each in the order of its log. Raise
    PuzzleError if their times do not follow from each other: they were measured, or a rank is missing."""
    return Causes(events, tier).chain()


def slack_of(events: Iterable[Event], tier: Tier = one_tier) -> list[float]:
    """Return for each record by how many ticks its operation may become longer without making the run longer, if all
    else keeps its length and order: 0 on a longest chain. A mark of the log has as much slack as its rank's clock."""
    return Causes(events, tier).slack()


class Causes:
    """What each operation of a log waits for. Records are known by their places among all; a collective has one for
    each member, and goes by the first. (The order of a rank's records is only found when it is asked for.)"""

    def __init__(self, events: Iterable[Event], tier: Tier = one_tier) -> None:
        self.events, self.tier = [*events], tier
        self.logs = defaultdict[int, list[int]](list)
        for at, event in enumerate(self.events):
            self.logs[event.rank].append(at)
        self.orders: dict[int, Order] = {}

    @cached_property
    def members(self) -> Mapping[object, Sequence[int]]:
        """The records of all ranks of a collective, by its ``op``."""
        members = defaultdict[object, list[int]](list)
        for at, event in enumerate(self.events):
            if event.stream == "collective":
                members[event.op].append(at)
        return members

    @cached_property
    def ends(self) -> Mapping[tuple[str, object], int]:
        """The record of each send and receive, by its kind and its ``op``."""
        return {(event.kind, event.op): at for at, event in enumerate(self.events) if event.stream == "message"}

    def taker(self, at: int) -> int | None:
        """Return the record of the receive that a send waits for, if it does."""
        event = self.events[at]
        waits = event.kind == SEND.kind and event.ready is not None
        return self.ends.get((RECEIVE.kind, event.op)) if waits else None

    def parts(self, at: int) -> Sequence[int]:
        """Return the records of all ranks of a collective, or that of any other operation alone."""
        event = self.events[at]
        return self.members[event.op] if event.stream == "collective" else (at,)

    def before(self, at: int) -> int | None:
        """Return the record before this one in the log of its rank."""
        return self._order(at).before.get(at)

    def _order(self, at: int) -> "Order":
        rank = self.events[at].rank
        if rank not in self.orders:
            self.orders[rank] = Order(self.events, self.logs[rank], self.tier)
        return self.orders[rank]

    # -- what a moment waits for ------------------------------------------------------------

    def of_clock(self, at: int) -> Iterator[int]:
        """Yield the operations that may have moved the clock of a record's rank since the record before it."""
        order = self._order(at)
        before = order.before.get(at)
        if before is not None and self.events[before].stream == "compute":
            yield before
        for place in self.events[at].awaited:
            yield order.log[place]

    def of_links(self, at: int) -> Iterator[int]:
        """Yield the operations, besides what moved the clock, that one rank's part in an operation waits for."""
        event, order = self.events[at], self._order(at)
        if event.kind == RECEIVE.kind and (sent := self.ends.get((SEND.kind, event.op))) is not None:
            yield sent
        yield from order.in_queue.get(at, ())
        if (before := order.received.get(at)) is not None:
            yield before
        if (taker := self.taker(at)) is not None:
            yield from self._order(taker).in_queue.get(taker, ())

    # -- the chain --------------------------------------------------------------------------

    def chain(self) -> Chain:
        """Return the chain, from the operation that ends last back to tick 0."""
        links: list[Link] = []
        last = max((event.end for event in self.events if event.kind not in MARKS), default=0.0)
        ends = [at for at, event in enumerate(self.events) if event.end == last and event.kind not in MARKS]
        cause = max(ends, key=lambda at: (-self.events[at].rank, at), default=None)
        while cause is not None:
            at = self._last_part(cause)
            links.append(Link(self.events[at], self.events[cause]))
            cause = self._cause(at)
        return Chain(tuple(reversed(links)))

    def _last_part(self, at: int) -> int:
        """Return the record of the rank that came last to an operation: this one, if it did."""
        start = self.events[at].start
        if self._explains(at, start):
            return at
        for part in self.parts(at):
            if self._explains(part, start):
                return part
        raise _unexplained(self.events[at])

    def _explains(self, part: int, start: float) -> bool:
        """Return whether an operation has begun at ``start`` because of one rank's part in it."""
        events, taker = self.events, self.taker(part)
        at_once = events[part].issued == start or (taker is not None and events[taker].issued == start)
        return at_once or any(events[before].end == start for before in self.of_links(part))

    def _cause(self, at: int) -> int | None:
        """Return what the start of an operation has waited for, as its rank sees it; None at tick 0."""
        start = self.events[at].start
        if not start:
            return None
        if self.events[at].issued == start:
            return self._moved(at)
        before = next((before for before in self.of_links(at) if self.events[before].end == start), None)
        return self._moved(self.taker(at)) if before is None else before  # the receive was posted

    def _moved(self, at: int | None) -> int:
        """Return what has moved the clock of a record's rank to where it stands there."""
        assert at is not None
        tick, record = self.events[at].issued, at
        while at is not None and self.events[at].issued == tick:
            for cause in self.of_clock(at):
                if self.events[cause].end == tick:
                    return cause
            at = self.before(at)
        raise _unexplained(self.events[record])

    # -- slack ------------------------------------------------------------------------------

    def slack(self) -> list[float]:
        """Return the slack of each record's operation, in ticks (see ``slack_of``)."""
        events = self.events
        firsts = [self.parts(at)[0] for at in range(len(events))]  # the record by which an operation goes
        waits = [self._clock_waits(at, firsts) for at in range(len(events))]
        waits += [self._waits(at, firsts) if firsts[at] == at else [] for at in range(len(events))]
        time = max((event.end for event in events if event.kind not in MARKS), default=0.0)
        latest = [time] * len(waits)  # when a clock may be at that moment, and an operation may end
        for node in reversed([*TopologicalSorter(dict(enumerate(waits))).static_order()]):  # after all that wait for it
            at = node - len(events)
            begin = latest[node] if at < 0 else latest[node] - events[at].length
            for cause in waits[node]:
                if begin < latest[cause]:
                    latest[cause] = begin
        rooms = [
            latest[at] - event.issued if event.kind in MARKS else latest[len(events) + first] - event.end
            for at, (event, first) in enumerate(zip(events, firsts, strict=True))
        ]
        return [round(room, ROUNDED) + 0.0 for room in rooms]

    def _clock_waits(self, at: int, firsts: Sequence[int]) -> list[int]:
        """Return the nodes that the clock of a record's rank waits for: clocks come first, and then operations."""
        before = self.before(at)
        operations = [len(firsts) + firsts[cause] for cause in self.of_clock(at)]
        return operations if before is None else [before, *operations]

    def _waits(self, at: int, firsts: Sequence[int]) -> list[int]:
        """Return the nodes that an operation waits for: clocks come first, and then operations."""
        parts, taker = self.parts(at), self.taker(at)
        posted = [] if taker is None else [taker]
        return [*parts, *posted, *[len(firsts) + firsts[cause] for part in parts for cause in self.of_links(part)]]


class Order:
    """The order of one rank's records, in its log and on its links. ``log``: their places among all records;
    ``in_queue``: what has to be over before a call is first on its link; ``received``: the receive before a receive."""

    def __init__(self, events: Sequence[Event], log: Sequence[int], tier: Tier) -> None:
        self.log = log
        self.before = dict(zip(log[1:], log, strict=False))
        self.in_queue: dict[int, Sequence[int]] = {}
        queued = [at for at in log if events[at].slot is not None or events[at].kind != RECEIVE.kind]
        queued = [at for at in queued if events[at].stream in ("collective", "message")]
        last: dict[object, list[int]] = {}
        for _, group in groupby(queued, lambda at: (events[at].slot is None and at, events[at].slot)):
            parts = [*group]
            tiers = [tier(events[at]) for at in parts]
            own = next(filter(None, tiers), tiers[0])  # an exchange that leaves its node goes over the links out of it
            for place, at in enumerate(parts):
                to = events[at].kind, events[at].group
                ahead = [one for one in parts[:place] if to == (SEND.kind, events[one].group)]
                self.in_queue[at] = ahead[-1:] or last.get(own, ())
            last[own] = parts
        # A receive that takes no time keeps no other waiting, so it is left out: the order of several is not known.
        receives = [at for at in log if events[at].kind == RECEIVE.kind and events[at].length]
        receives.sort(key=lambda at: events[at].start)
        self.received = dict(zip(receives[1:], receives, strict=False))


def _unexplained(event: Event) -> PuzzleError:
    where = f"rank {event.rank}, tick {show_ticks(event.start)}"
    expected = "a run of all its ranks on the simulated machine"
    return PuzzleError(
        f"nothing explains why {event.kind} begins when it does", where=where, expected=expected, line=""
    )
