"""A slow and plain machine, written from the contract alone, to compare the real one with.

It says what must come out of a program (see plain_programs): the log of every rank, or that nobody can go on. Nothing
is clever here: everyone runs until all wait, then every start and end that follows from what was issued is worked out
anew, and the one goes on that waits for what ends first. What memory held is asked when all is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from lib import HIDDEN, LENGTH, Cost
from tests.plain_programs import STORED, Program, Step, carried

KINDS = (*STORED, "in flight", "inbox")
MARKS = ("load_weights", "load_adapter", "get_activation", "end")


@dataclass(eq=False)
class Thing:
    """A tensor, as far as time and memory go."""

    kind: str
    elements: Fraction
    layer: int = 0
    batches: frozenset[int] = frozenset()
    whole: Fraction = Fraction(HIDDEN * HIDDEN)  # elements of what it is a piece of, if that is a weight's


@dataclass(eq=False)
class Operation:
    """A record of a rank's log. ``at`` is its place in the rank's story, ``fetched`` that of its await."""

    rank: int
    kind: str
    at: int
    issued: Fraction
    operands: list[Thing]
    group: tuple[int, ...] = ()
    axis: str | None = None
    start: Fraction | None = None
    end: Fraction | None = None
    result: list[Thing] = field(default_factory=list)
    message: Operation | None = None
    fetched: float = float("inf")


@dataclass
class Rank:
    """Its clock, its log, and its story: what was stored and what was in a hand, from where to where."""

    clock: Fraction = Fraction(0)
    at: int = 0
    log: list[Operation] = field(default_factory=list)
    stored: list[list[Any]] = field(default_factory=list)
    held: list[tuple[int, int, Thing]] = field(default_factory=list)
    open: int = 0


class Stuck(Exception):
    """Nobody can go on."""


class LeftOver(Exception):
    """All have ended, but a call was not awaited or a message not received."""


class Plain:
    """All ranks of a program: again and again, the one goes on that waits for what ends first.

    Nothing that is issued later can change that end, as long as a collective takes time, and a message does, in all.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.cost = program, Cost(**program.prices)
        self.trained = Fraction(16 * HIDDEN if program.adapters else HIDDEN * HIDDEN)  # elements of a gradient
        self.ranks = [Rank() for _ in program.scripts]
        self.waiting: list[tuple[Operation, int, Iterator[Any]]] = []
        self.mains = [self.main(rank) for rank in range(len(self.ranks))]
        for rank, main in enumerate(self.mains):
            self.go_on(rank, main)
        while self.waiting:
            self.settle()
            ready = [(call.end, call.at, at) for at, (call, _, _) in enumerate(self.waiting) if call.end is not None]
            if not ready:
                raise Stuck
            call, rank, task = self.waiting.pop(min(ready)[2])
            self.ranks[rank].clock = max(self.ranks[rank].clock, call.end)
            call.fetched = self.step(rank)
            self.go_on(rank, task)
        calls = [call for rank in self.ranks for call in rank.log if call.group]
        received = {id(call.message) for call in calls}
        if any(call.fetched == float("inf") or (call.kind == "pass_to" and id(call) not in received) for call in calls):
            raise LeftOver

    def go_on(self, rank: int, task: Iterator[Any]) -> None:
        """Let a coroutine run until it waits, or has ended."""
        for wish in task:
            if isinstance(wish, Operation):
                self.waiting.append((wish, rank, task))
                return
            self.ranks[rank].open = len(wish)
            for branch in wish:
                self.go_on(rank, branch)
            return
        if task is not self.mains[rank]:
            self.ranks[rank].open -= 1
            if self.ranks[rank].open == 0:
                self.go_on(rank, self.mains[rank])

    def step(self, rank: int) -> int:
        """The next place in a rank's story."""
        self.ranks[rank].at += 1
        return self.ranks[rank].at

    # -- lanes

    def group(self, rank: int, axis: str | None) -> tuple[int, ...]:
        stride = len(self.ranks)
        for name, size in (self.program.mesh or {}).items():
            stride //= size
            if name == axis:
                first = rank - rank // stride % size * stride
                return tuple(range(first, first + stride * size, stride))
        return tuple(range(len(self.ranks)))

    def price(self, kind: str, group: tuple[int, ...] = (), times: int = 1) -> Fraction:
        boxes = {rank // (self.program.node_size or len(self.ranks)) for rank in group}
        name = {"pass_to": "send", "allreduce": "collective", "allgather": "collective", "scatterreduce": "collective"}
        across = "_across" if len(boxes) > 1 and kind != "receive" else ""
        price = getattr(self.cost, name.get(kind, kind) + across)
        times = Fraction(times, 2) if kind == "backward" and self.program.adapters else times
        return Fraction(str(price) if isinstance(price, float) else price) * times

    def takes(self, call: Operation) -> Fraction:
        """How long a call takes its network link: a message of weights or gradients at least a gather of two for each
        piece of a rank, and at least one."""
        price, carried = self.price(call.kind, call.group), sum(thing.elements for thing in call.operands)
        if call.kind != "pass_to" or not carried or call.operands[0].kind not in KINDS[:3]:
            return price
        pieces = carried / call.operands[0].whole * len(self.ranks)
        return max(price, max(1, pieces) * self.price("allgather", call.group))

    def settle(self) -> None:
        """The start and end of every call, as far as they follow from the calls that were issued."""
        moved = True
        while moved:
            moved = False
            for rank in range(len(self.ranks)):
                call = next((call for call in self.network(rank) if call.end is None), None)
                members = [call] if call is None or call.kind == "pass_to" else self.meeting(call)
                if call is not None and members:
                    begin = max(max(member.issued, self.lane_end(member)) for member in members)
                    for member in members:
                        member.start, member.end = begin, begin + self.takes(call)
                        member.result = self.collected(member, members)
                    moved = True
        for rank in range(len(self.ranks)):
            self.settle_receives(rank)

    def meeting(self, call: Operation) -> list[Operation]:
        """The calls that meet in a collective, if all are there and each is next in its rank's network link."""
        met = []
        mine = self.network(call.rank, call)
        for member in call.group:
            first = next((other for other in self.network(member) if other.end is None), None)
            same = self.network(member, call)
            met += [other for other in same if same.index(other) == mine.index(call) and other is first]
        return met if len(met) == len(call.group) else []

    def network(self, rank: int, like: Operation | None = None) -> list[Operation]:
        """What is in a rank's network link; only collectives of the same axis and group, if one is given."""
        lane = [call for call in self.ranks[rank].log if call.group and call.kind != "receive"]
        if like is None:
            return lane
        return [call for call in lane if call.kind != "pass_to" and (call.axis, call.group) == (like.axis, like.group)]

    def lane_end(self, call: Operation) -> Fraction:
        """When the calls before it have left the network link."""
        lane = self.network(call.rank)
        return max((before.end for before in lane[: lane.index(call)]), default=Fraction(0))

    def settle_receives(self, rank: int) -> None:
        """Messages in the order in which they are there, each to the first receive that takes it."""
        sends = [call for other in self.ranks for call in other.log if call.kind == "pass_to" and call.group[1] == rank]
        free = [call for call in self.ranks[rank].log if call.kind == "receive"]
        pairs = []
        for send in sorted(
            (send for send in sends if send.end is not None), key=lambda send: (send.end, send.rank, send.at)
        ):
            for call in free:
                if call.group[0] in (-1, send.rank):
                    pairs.append((max(send.end, call.issued), send.end, send.rank, send.at, send, call))
                    free.remove(call)
                    break
        lane = Fraction(0)
        for there, *_, send, call in sorted(pairs, key=lambda pair: pair[:4]):
            call.message, call.start = send, max(there, lane)
            call.end = lane = call.start + self.price("receive")
            sent = send.operands[0] if send.operands else None
            if call.fetched == float("inf"):
                call.result = [replace(sent)] if sent else []

    def collected(self, call: Operation, members: list[Operation]) -> list[Thing]:
        """What a member gets from a collective, for each tensor that it brings one."""
        if call.kind == "pass_to":
            return []
        found = []
        for place, own in enumerate(call.operands):
            batches = frozenset().union(*[member.operands[place].batches for member in members])
            whole = Fraction(HIDDEN * HIDDEN) if own.kind == "Weight" else self.trained if batches else Fraction(0)
            part = len(members) if call.kind == "scatterreduce" else 1
            found.append(Thing(own.kind, whole / part, own.layer, batches, own.whole))
        return found

    # -- what the ranks do

    def main(self, rank: int) -> Iterator[Any]:
        before, branches, after = self.program.scripts[rank]
        for _ in range(self.program.layers):
            base = self.issue(rank, "load_weights", [])
            for kind in KINDS[:2]:
                self.ranks[rank].stored.append([base.at, float("inf"), Thing(kind, Fraction(HIDDEN * HIDDEN))])
            if self.program.adapters:
                beside = self.issue(rank, "load_adapter", [])
                for kind in KINDS[:2]:
                    self.ranks[rank].stored.append([beside.at, float("inf"), Thing(kind, self.trained)])
        slots: dict[Any, list[Any]] = {}
        yield from self.act(rank, slots, "before", before)
        yield [self.act(rank, slots, str(place), steps) for place, steps in enumerate(branches)]
        yield from self.act(rank, slots, "after", after)
        self.issue(rank, "end", [])

    def issue(self, rank: int, kind: str, operands: list[Thing], group: tuple[int, ...] = ()) -> Operation:
        me = self.ranks[rank]
        me.log.append(Operation(rank, kind, self.step(rank), me.clock, operands, group))
        if not group:
            me.log[-1].start = me.log[-1].end = me.clock
        return me.log[-1]

    def act(self, rank: int, slots: dict[Any, list[Any]], name: str, steps: list[Step]) -> Iterator[Operation]:
        """The steps of one coroutine."""
        me, own = self.ranks[rank], self.program.own
        calls: dict[str, Operation] = {}
        hand: tuple[int, Thing] | None = None

        def keep(slot: str | None, thing: Thing) -> None:
            nonlocal hand
            now = self.step(rank)
            if slot is None:
                hand = (now, thing)
                return
            drop(slot)
            slots[key(slot)] = [now, float("inf"), thing]
            me.stored.append(slots[key(slot)])

        def drop(slot: str) -> None:
            if key(slot) in slots:
                slots.pop(key(slot))[1] = self.step(rank)

        def key(slot: str) -> tuple[str, str]:
            return ("before" if slot.isupper() else name, slot)

        def at(slot: str | None) -> Thing | None:
            return (hand and hand[1]) if slot is None else slots[key(slot)][2] if key(slot) in slots else None

        def fits(slot: str | None, kind: str, layer: int) -> bool:
            thing = at(slot)
            return thing is not None and (thing.kind, thing.layer) == (kind, layer)

        def derive(of: str | None, to: str | None, part: int) -> None:
            """Keep something that is made of a tensor without an operation: of what is in the hand, that is a use."""
            nonlocal hand
            thing = at(of)
            assert thing is not None
            if of is None:
                now = self.step(rank)
                me.held.append((hand[0], now, thing))
                hand = (now, thing)
            keep(to, replace(thing, elements=thing.elements / part))

        def use(kind: str, *of: str | None, group: tuple[int, ...] = ()) -> Operation:
            """Issue an operation; what is in the hand is used by it, or gone."""
            nonlocal hand
            done = self.issue(rank, kind, [at(slot) for slot in of if at(slot) is not None], group)
            if None in of and hand is not None:
                me.held.append((hand[0], done.at, hand[1]))
            hand = None
            return done

        def compute(kind: str, *of: str | None, makes: str, layer: int = 0, whole: bool = True) -> None:
            nonlocal hand
            first = at(of[0])
            done = use(kind, *of)
            me.clock += self.price(kind, times=len(first.batches) if kind in ("forward", "backward") else 1)
            done.end = me.clock
            size = self.trained if makes in KINDS[:3] else HIDDEN * LENGTH * len(first.batches)
            hand = (done.at, Thing(makes, Fraction(size), layer, first.batches, self.trained))

        for verb, *rest in steps:
            match verb, *rest:
                case "take", count, to:
                    self.issue(rank, "get_activation", [])
                    batches = frozenset(range(rank * own, rank * own + count))
                    keep(to, Thing("Activation", Fraction(HIDDEN * LENGTH * count), 0, batches))
                case "cut", axis, to, layer:
                    keep(to, Thing("Weight", Fraction(HIDDEN * HIDDEN, len(self.group(rank, axis))), layer))
                case "zero", to, layer:
                    keep(to, Thing("WeightGrad", Fraction(0), layer, whole=self.trained))
                case "pop", slot if at(slot) is not None:
                    hand = (me.at + 1, at(slot))
                    drop(slot)
                case "store", slot if hand is not None:
                    me.held.append((hand[0], me.at + 1, hand[1]))
                    keep(slot, hand[1])
                    hand = None
                case "copy", slot, other if at(slot) is not None and slot != other:
                    keep(other, at(slot))
                case "drop", slot:
                    drop(slot)
                case "half", of, to if fits(of, "Weight", 0) or fits(of, "WeightGrad", 0):
                    derive(of, to, 2)
                case "plus", of, to if fits(of, "WeightGrad", 0):
                    derive(of, to, 1)
                case "forward", of if fits(of, "Activation", 0):
                    compute("forward", of, makes="Activation", layer=1)
                case "loss", of if fits(of, "Activation", self.program.layers):
                    compute("loss", of, makes="ActivationGrad")
                case "backward", of, grad if fits(of, "Activation", 0) and fits(grad, "ActivationGrad", 0):
                    if at(of).batches == at(grad).batches:
                        compute("backward", of, grad, makes="WeightGrad")
                case "update", of if fits(of, "WeightGrad", 0) and self.complete(at(of)):
                    compute("update", of, makes="Weight")
                case "meet", kind, axis, of, call if at(of) is not None:
                    calls[call] = use(kind, of, group=self.group(rank, axis))
                    calls[call].axis = axis
                case "meets", kind, axis, of, call if all(
                    fits(slot, carried(kind), layer) for layer, slot in enumerate(of)
                ):
                    calls[call] = use(kind, *of, group=self.group(rank, axis))
                    calls[call].axis = axis
                case "send", other, of, call if of == "text" or at(of) is not None:
                    calls[call] = use("pass_to", of, group=(rank, other))
                case "receive", source, call:
                    calls[call] = use("receive", group=(-1 if source is None else source, rank))
                case "await", call, to if call in calls:
                    done = calls.pop(call)
                    yield done
                    for slot, thing in zip(to if isinstance(to, tuple) else (to,), done.result, strict=False):
                        keep(slot, thing)

    def complete(self, grad: Thing) -> bool:
        every = len(self.ranks) * self.program.own
        return len(grad.batches) == every and grad.elements == self.trained

    # -- memory, afterwards

    def events(self) -> list[tuple[Any, ...]]:
        """Rank by rank what the log must say: rank, kind, group, elements, issued, start, end, memory by kind."""
        return [(rank, *self.event(call)) for rank, me in enumerate(self.ranks) for call in me.log]

    def event(self, call: Operation) -> tuple[Any, ...]:
        carrier = call.message or call  # a receive carries what the send did
        size = sum(thing.elements for thing in carrier.operands) if call.group else 0
        times = (float(call.issued), float(call.start), float(call.end))
        return (call.kind, carrier.group, size, *times, self.held(call))

    def held(self, sample: Operation) -> tuple[Fraction, ...]:
        """Memory when an operation is issued, by kind."""
        me, now, held = self.ranks[sample.rank], sample.issued, dict.fromkeys(KINDS, Fraction(0))
        stored = [thing for since, until, thing in me.stored if since < sample.at < until]
        for thing in stored:
            held[thing.kind] += thing.elements
        in_hands = set(sample.operands)
        if sample.kind not in MARKS:
            in_hands |= {thing for since, until, thing in me.held if since < sample.at < until}
        for thing in in_hands - set(stored):
            held[thing.kind] += thing.elements
        earlier = [call for call in me.log if call.group and call.at < sample.at]
        # What is in a hand while a call still carries it counts in both.
        on_the_way = {thing for call in earlier if call.end > now for thing in call.operands}
        held["in flight"] += sum(thing.elements for thing in on_the_way - set(stored) - set(sample.operands))
        held["in flight"] += sum(
            thing.elements
            for call in earlier
            if call.fetched > sample.at and call.message is None
            for thing in call.result
        )
        taken = {call.message: call for call in me.log if call.message is not None}
        for send in [call for other in self.ranks for call in other.log if call.group[1:] == (sample.rank,)]:
            if send.kind == "pass_to" and send.operands and send.end <= now:
                receive = taken.get(send)
                if receive is None or receive.fetched > sample.at:
                    held["inbox"] += send.operands[0].elements
        return tuple(held.values())

    @property
    def time(self) -> float:
        """The end of the last operation."""
        return float(max(call.end for me in self.ranks for call in me.log))

    @property
    def memory(self) -> Fraction:
        """The peak."""
        return max(sum(self.held(call)) for me in self.ranks for call in me.log)
