"""Time and memory of rows of work, in a small part of what a run of them takes: a search looks at thousands of rows.

It is the machine's arithmetic for one kind of program: stages of a layer each, without a mesh, whose messages are
received at their use, ``schedule(rows, receives="at once")``, and sent at once, or where a row says ``SEND_F`` or
``SEND_B``. A test holds that a run gives the same time and the same memory, to the last element.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..basics.units import Elements
from ..machine.cost import Cost, TimeUnits
from ..record import training
from ..record.labels import Labels
from .actions import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, SEND_B, SEND_F

Work = tuple[str, int, int]
"""F, B, I or W, a stage, and a micro-batch; or SEND_F or SEND_B for a result that is not sent at once."""
SENT = {SEND_F: FORWARD, SEND_B: BACKWARD}
"""Whose result a send carries; a backward for the input counts as a backward."""
Plan = Sequence[Sequence[Work]]
"""A row of work for each rank."""
VERBS = {
    FORWARD: training.FORWARD.kind,
    BACKWARD: training.BACKWARD.kind,
    BACKWARD_INPUT: training.BACKWARD_INPUT.kind,
    BACKWARD_WEIGHT: training.BACKWARD_WEIGHT.kind,
}


class Prices(NamedTuple):
    """What a stage of one layer takes, in time units, and how large its tensors are, in elements."""

    work: Mapping[str, TimeUnits]
    loss: TimeUnits
    update: TimeUnits
    send: TimeUnits
    receive: TimeUnits
    kept: Elements  # a weight and its optimizer state
    grad: Elements  # a weight's gradient
    activation: Elements

    @classmethod
    def of(cls, cost: Cost) -> "Prices":
        """Return the prices of a machine without nodes."""

        def price(name: str) -> TimeUnits:
            return cost.in_time_units(cost.price(name))

        one = frozenset({0})
        weight, state, grad, activation = (
            Labels(kind, 0, 1, batches=one if kind.endswith(("Grad", "ion")) else frozenset(), total_batches=1)
            for kind in ("Weight", "OptState", "WeightGrad", "Activation")
        )
        return cls(
            {letter: price(verb) for letter, verb in VERBS.items()},
            price("loss"),
            price("update"),
            cost.message(activation, cost.sent(activation), False, 2),
            cost.receiving,
            cost.elements(weight) + cost.elements(state),
            cost.elements(grad),
            cost.elements(activation),
        )


class _Rank:
    """A rank that works through its row, what it holds as each operation begins, and what is on its way besides."""

    def __init__(self, row: Sequence[Work], stages: int, prices: Prices) -> None:
        self.row, self.at, self.stages = row, 0, stages
        self.clock: TimeUnits = 0
        self.link: TimeUnits = 0  # when it has sent all so far
        self.held: Elements = stages * prices.kept
        self.clocks: list[TimeUnits] = []
        self.samples: list[Elements] = []
        self.carried: list[tuple[int, TimeUnits]] = []  # from which sample on, until when: what it sends
        self.inbox: list[tuple[TimeUnits, int]] = []  # from when on, before which sample: what has come
        self.coming: dict[int, deque[tuple[Work, TimeUnits]]] = {}  # by sender
        self.there = set[Work]()  # what it has made or received, and not read
        self.summed = set[int]()  # stages with a gradient
        self.waits = {(SENT[kind], stage, mb) for kind, stage, mb in row if kind in SENT}  # what is not sent at once

    def works(self, length: TimeUnits) -> None:
        """An operation of the compute stream."""
        self.clocks.append(self.clock)
        self.samples.append(self.held)
        self.clock += length


class Figures:
    """The figures of a schedule's rows. ``rank_of``: the rank of each stage."""

    def __init__(self, plan: Plan, rank_of: Sequence[int], prices: Prices) -> None:
        self.rank_of, self.prices, self.last = rank_of, prices, len(rank_of) - 1
        self.ranks = [_Rank(row, rank_of.count(rank), prices) for rank, row in enumerate(plan)]

    def found(self) -> tuple[TimeUnits, Elements] | None:
        """Return the time, in time units, and the highest peak, in elements; None for rows that come to no end."""
        done = -1
        while done != (done := sum(rank.at for rank in self.ranks)):
            for place, rank in enumerate(self.ranks):
                while rank.at < len(rank.row) and self._does(place, rank, *rank.row[rank.at]):
                    rank.at += 1
        if any(rank.at < len(rank.row) for rank in self.ranks):
            return None
        update = self.prices.update
        for rank in self.ranks:
            rank.works(rank.stages * update)
        end = max(max(rank.clock, rank.link) for rank in self.ranks)
        return end, max(self._peak(rank) for rank in self.ranks)

    def _does(self, place: int, rank: _Rank, kind: str, stage: int, mb: int) -> bool:
        """Carry out a piece of work, if what it reads is there."""
        size, prices = self.prices.activation, self.prices
        if kind in SENT:
            made = SENT[kind], stage, mb
            if made not in rank.there:
                return False
            rank.there.remove(made)
            self._send(place, rank, made, stage + (1 if kind == SEND_F else -1))
            return True
        if kind == FORWARD:
            if not stage:
                rank.held += size
            elif not self._read(place, rank, FORWARD, stage - 1, mb):
                return False
            rank.works(prices.work[FORWARD])
            rank.held += size
            self._hand_on(place, rank, FORWARD, stage, stage + 1, mb)
            return True
        if kind != BACKWARD_WEIGHT:
            if stage < self.last:
                if not self._read(place, rank, BACKWARD, stage + 1, mb):
                    return False
            else:
                rank.works(prices.loss)
        rank.works(prices.work[kind])
        if kind != BACKWARD_INPUT:
            rank.held -= 2 * size
            if stage not in rank.summed:
                rank.summed.add(stage)
                rank.held += prices.grad
        if kind != BACKWARD_WEIGHT and stage:
            rank.held += size
            self._hand_on(place, rank, BACKWARD, stage, stage - 1, mb)
        return True

    def _read(self, place: int, rank: _Rank, kind: str, stage: int, mb: int) -> bool:
        """Wait for what a stage has made, and receive it if it comes from another rank, after all that was sent before
        it."""
        made, sender = (kind, stage, mb), self.rank_of[stage]
        if made in rank.there:
            rank.there.remove(made)
            return True
        coming = rank.coming.get(sender, ())
        if not any(made == work for work, _ in coming):
            return False
        assert not isinstance(coming, tuple)
        work = None
        while work != made:
            work, arrival = coming.popleft()
            rank.clocks.append(rank.clock)
            rank.samples.append(rank.held)
            rank.inbox.append((arrival, len(rank.clocks) - 1))
            rank.clock = max(rank.clock, arrival) + self.prices.receive
            rank.held += self.prices.activation
            if work != made:
                rank.there.add(work)
        return True

    def _hand_on(self, place: int, rank: _Rank, kind: str, stage: int, reader: int, mb: int) -> None:
        """Give a result to the stage that reads it, if there is one."""
        if reader > self.last:
            return
        made = kind, stage, mb
        if self.rank_of[reader] == place or made in rank.waits:
            rank.there.add(made)
        else:
            self._send(place, rank, made, reader)

    def _send(self, place: int, rank: _Rank, made: Work, reader: int) -> None:
        """Send a result to the rank of the stage that reads it, after all that was sent before."""
        rank.clocks.append(rank.clock)
        rank.samples.append(rank.held)
        rank.held -= self.prices.activation
        rank.link = max(rank.link, rank.clock) + self.prices.send
        rank.carried.append((len(rank.clocks), rank.link))
        self.ranks[self.rank_of[reader]].coming.setdefault(place, deque()).append((made, rank.link))

    def _peak(self, rank: _Rank) -> Elements:
        """Return the most that a rank holds as an operation begins, with what is on its way."""
        steps = [0] * (len(rank.clocks) + 1)
        spans = [(first, bisect_left(rank.clocks, until)) for first, until in rank.carried]
        spans += [(bisect_left(rank.clocks, arrival), stop) for arrival, stop in rank.inbox]
        for first, stop in spans:
            if first < stop:
                steps[first] += 1
                steps[stop] -= 1
        most: Elements = 0
        on_its_way = 0
        for held, step in zip(rank.samples, steps, strict=False):
            on_its_way += step
            most = max(most, held + on_its_way * self.prices.activation)
        return most


def figures(plan: Plan, rank_of: Sequence[int], prices: Prices) -> tuple[TimeUnits, Elements] | None:
    """Return the time of rows of work, in time units, and their highest peak, in elements; None if they come to no end.

    >>> rows = [[("F", 0, 0), ("B", 0, 0)], [("F", 1, 0), ("B", 1, 0)]]
    >>> cost = Cost(send=0, receive=0)
    >>> time, memory = figures(rows, [0, 1], Prices.of(cost))
    >>> time / cost.per_tick
    4.5
    """
    return Figures(plan, rank_of, prices).found()


def as_text(plan: Plan) -> str:
    """Return rows of work as a text that ``schedule`` reads, which puts in what is not sent later, and receives.

    >>> print(as_text([[("F", 0, 0), ("B", 0, 0)], [("F", 1, 0), ("B", 1, 0)]]))
    0F0,0B0
    1F0,1B0
    """
    return "\n".join(",".join(f"{stage}{kind}{mb}" for kind, stage, mb in row) for row in plan)
