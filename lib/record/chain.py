"""Why a run takes as long as it does: the longest chain of operations that wait for each other, and how much room the
others have.

The times in a log follow from each other, and the log says how:

- A rank's clock stands, at each of its records, where its compute has ended, or at the end of what it has awaited since
  (``Event.awaited``), whichever is later. That holds for a rank with several coroutines, too: they share its clock.
- Compute begins at its rank's clock. A call is issued at it.
- A collective begins when the last of its group has issued it, and has nothing before it in its network lane (one for
  each tier of links, of which there is one by default). A send does the same alone.
- A receive begins when it was issued, its message is there, and the receive before it is over.

So everything begins at the latest of what it waits for, and one that waited from the end of the run to tick 0 leads
through operations of which each begins when the one before it ends: their lengths add up to the time of the run. Where
several are the latest, the chain stays on its rank if it can.

All this is true of one order of things: which coroutine of a rank goes on first, and which message a receive takes. An
operation that becomes so long that another overtakes it may lead to another schedule, of which this one tells nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import NamedTuple

from ..basics.errors import PuzzleError
from ..basics.units import TICKS, Unit, show_ticks
from .events import MARKS, Event
from .table import OPERATIONS, RECEIVE, SEND

MESSAGES = "messages"
ROUNDED = 9
"""Decimals of a tick that count: times in a log are floats, the nearest to exact ones."""


class Link(NamedTuple):
    """An operation of the chain, as the rank sees it for which it waited, and as that sees it which waited for it. Both
    are the same record, except of a collective that begins when one rank comes and lets another go on."""

    entered: Event
    left: Event


@dataclass(frozen=True)
class Chain:
    """The operations from tick 0 to the end of a run of which each begins when the one before it ends, and so causes
    its start."""

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
        """How many ticks of the chain are spent on what, most first, and of equally many what comes first in the chain.
        Sends and receives are messages."""
        lengths = defaultdict[str, list[float]](list)
        for _, event in self.links:
            lengths[_word(event.kind)].append(event.length)
        parts = [(round(fsum(each), ROUNDED), word) for word, each in lengths.items()]
        return sorted((part for part in parts if part[0]), key=lambda part: -part[0])

    def told(self, unit: Unit = TICKS) -> str:
        """Return the chain as a sum: ``33.8 = 14 forward + 14 backward + 4.8 messages + 1 update``."""
        said = [f"{unit.brief(length)} {word}" for length, word in self.parts]
        return f"{unit.brief(self.time)} = {' + '.join(said) or 'nothing'}"

    def __str__(self) -> str:
        return self.told()


def _word(kind: str) -> str:
    row = OPERATIONS.get(kind)
    return kind if row is None else MESSAGES if row.lane == "message" else row.word


Tier = Callable[[Event], object]
"""Which tier of links a communication goes over: each has a lane of its own."""


def one_tier(event: Event) -> object:
    """Return the only tier of links that there is by default."""
    return None


def chain_of(events: Iterable[Event], tier: Tier = one_tier) -> Chain:
    """Return the longest chain of a run: ``events`` are those of all its ranks, of each in the order of its log.

    Raise PuzzleError if their times do not follow from each other: they were measured, or a rank is missing.
    """
    return Causes(events, tier).chain()


def slack_of(events: Iterable[Event], tier: Tier = one_tier) -> list[float]:
    """Return for each record how many ticks more its operation may take, if nothing else changes its length or its
    order, and the run not its time: 0 on the chain, and on others that are as long. A mark of the log has as much room
    as its rank's clock."""
    return Causes(events, tier).slack()


class Causes:
    """What each operation of a log waits for. Records are known by their places among all; a collective has one for
    each of its members, and goes by that of the first."""

    def __init__(self, events: Iterable[Event], tier: Tier = one_tier) -> None:
        self.events, self.tier = [*events], tier
        self.logs = defaultdict[int, list[int]](list)
        for at, event in enumerate(self.events):
            self.logs[event.rank].append(at)
        self.lanes = [event.lane for event in self.events]
        members = defaultdict[object, list[int]](list)
        for at, lane in enumerate(self.lanes):
            if lane == "collective":
                members[self.events[at].op].append(at)
        self.parts: list[Sequence[int]] = [
            members[event.op] if lane == "collective" else (at,)
            for at, (event, lane) in enumerate(zip(self.events, self.lanes, strict=True))
        ]
        """The records of all ranks of a collective, or that of any other operation alone."""
        self.before: list[int | None] = [None] * len(self.events)  # in the log of its rank
        self.in_lane: list[int | None] = [None] * len(self.events)  # in its lane of the network
        self.fetched: list[Sequence[int]] = [()] * len(self.events)  # what was awaited between that and this
        sends = {event.op: at for at, event in enumerate(self.events) if event.kind == SEND.kind}
        self.message = [sends.get(event.op) if event.kind == RECEIVE.kind else None for event in self.events]
        for log in self.logs.values():
            self._order(log)

    def _order(self, log: Sequence[int]) -> None:
        """Note what comes before what on one rank."""
        events, last = self.events, dict[object, int]()
        for before, at in zip([None, *log], log, strict=False):
            event = events[at]
            self.before[at] = before
            self.fetched[at] = [log[place] for place in event.awaited]
            if self.lanes[at] == "collective" or event.kind == SEND.kind:
                tier = self.tier(event)
                self.in_lane[at], last[tier] = last.get(tier), at
        # A receive that takes no time keeps no other waiting, so it is left out: the order of several is not known.
        receives = [at for at in log if events[at].kind == RECEIVE.kind and events[at].length]
        receives.sort(key=lambda at: events[at].start)
        for before, at in zip([None, *receives], receives, strict=False):
            self.in_lane[at] = before

    # -- what a moment waits for ------------------------------------------------------------

    def of_clock(self, at: int) -> Iterator[int]:
        """Yield the operations that may have moved the clock of a record's rank to where it stands there, since the
        record before."""
        before = self.before[at]
        if before is not None and self.lanes[before] == "compute":
            yield before
        yield from self.fetched[at]

    def of_lanes(self, at: int) -> Iterator[int]:
        """Yield the operations, besides what moved the clock, that one rank's part in an operation waits for."""
        for before in (self.message[at], self.in_lane[at]):
            if before is not None:
                yield before

    # -- the chain --------------------------------------------------------------------------

    def chain(self) -> Chain:
        """Return the chain, from the operation that ends last back to tick 0."""
        works = [at for at, event in enumerate(self.events) if event.kind not in MARKS]
        links: list[Link] = []
        cause = max(works, key=lambda at: (self.events[at].end, -self.events[at].rank, at), default=None)
        while cause is not None:
            at = self._last_part(cause)
            links.append(Link(self.events[at], self.events[cause]))
            cause = self._cause(at)
        return Chain(tuple(reversed(links)))

    def _last_part(self, at: int) -> int:
        """Return the record of the rank that came last to an operation: this one, if it did."""
        start = self.events[at].start
        for part in (at, *self.parts[at]):
            if start in (self.events[part].issued, *(self.events[before].end for before in self.of_lanes(part))):
                return part
        raise _unexplained(self.events[at])

    def _cause(self, at: int) -> int | None:
        """Return what the start of an operation has waited for, as its rank sees it; None at tick 0."""
        start = self.events[at].start
        if not start:
            return None
        if self.events[at].issued == start:
            return self._moved(at)
        return next(before for before in self.of_lanes(at) if self.events[before].end == start)

    def _moved(self, at: int | None) -> int:
        """Return what has moved the clock of a record's rank to where it stands there."""
        assert at is not None
        tick, record = self.events[at].issued, at
        while at is not None and self.events[at].issued == tick:
            for cause in self.of_clock(at):
                if self.events[cause].end == tick:
                    return cause
            at = self.before[at]
        raise _unexplained(self.events[record])

    # -- slack ------------------------------------------------------------------------------

    def slack(self) -> list[float]:
        """Return the room of each record's operation, in ticks."""
        events = self.events
        works = [event.end for event in events if event.kind not in MARKS]
        time = max(works, default=0.0)
        clocks, ends = [time] * len(events), [time] * len(events)  # when each may be at the latest
        for at, is_clock in self._backwards():
            if is_clock:
                latest, causes = clocks[at], [*self.of_clock(at)]
                if (before := self.before[at]) is not None:
                    clocks[before] = min(clocks[before], latest)
            else:
                latest = ends[at] - events[at].length
                causes = [before for part in self.parts[at] for before in self.of_lanes(part)]
                for part in self.parts[at]:
                    clocks[part] = min(clocks[part], latest)
            for cause in map(self._first, causes):
                ends[cause] = min(ends[cause], latest)
        room = [ends[self._first(at)] - event.end for at, event in enumerate(events)]
        marks = [event.kind in MARKS for event in events]
        clock_room = [clock - event.issued for clock, event in zip(clocks, events, strict=True)]
        return [round(clock_room[at] if marks[at] else room[at], ROUNDED) + 0.0 for at in range(len(events))]

    def _first(self, at: int) -> int:
        """Return the record by which an operation goes."""
        return self.parts[at][0]

    def _backwards(self) -> list[tuple[int, bool]]:
        """Return all clocks (True) and operations (False), each after everything that waits for it."""
        todo = [(at, is_clock) for at in range(len(self.events)) for is_clock in (True, False)]
        done: set[tuple[int, bool]] = set()
        order: list[tuple[int, bool]] = []
        while todo:
            node = todo.pop()
            at, is_clock = node
            if at < 0:  # everything that it waits for is in order
                order.append((~at, is_clock))
                continue
            if node in done or (not is_clock and self._first(at) != at):
                continue
            done.add(node)
            todo.append((~at, is_clock))
            todo += self._waits_for(at, is_clock)
        return order[::-1]

    def _waits_for(self, at: int, is_clock: bool) -> Iterator[tuple[int, bool]]:
        """Yield the clocks (True) and operations (False) for which a clock or an operation waits."""
        if is_clock:
            if (before := self.before[at]) is not None:
                yield before, True
            yield from ((self._first(cause), False) for cause in self.of_clock(at))
            return
        for part in self.parts[at]:
            yield part, True
            yield from ((self._first(cause), False) for cause in self.of_lanes(part))


def _unexplained(event: Event) -> PuzzleError:
    where = f"rank {event.rank}, tick {show_ticks(event.start)}"
    cure = "draw(run, chain=True), of a run of all its ranks on the simulated machine"
    return PuzzleError(f"nothing explains why {event.kind} begins when it does", where=where, cure=cure, line="")
