"""No composition of messages is cheaper than the collective that it replaces.

A composition is a list of moves: who sends which pieces of a tensor to whom, in an order in which it has them. Each of
them gathers a weight, of which every rank has a piece. Turned round it sums up gradients, piece by piece, and one after
the other is an all-reduce.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import pytest

from lib import Cost, Dist, Model, Weight, WeightGrad, WireCost
from lib.basics.units import Elements
from lib.course.specs import COSTS, puzzles
from lib.learner.watch import Watch
from lib.machine.cost import Shape, TimeUnits
from lib.machine.mesh import Group
from lib.machine.simulator import new_simulator
from lib.real.prices import RealCost
from lib.record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from lib.record.labels import Labels
from tests.slow import some


class Move(NamedTuple):
    src: int
    dst: int
    pieces: frozenset[int]


class Machine(NamedTuple):
    ranks: int
    node_size: int
    fine: int = 1  # into so many crumbs a rank's piece is cut

    @property
    def nodes(self) -> int:
        return self.ranks // self.node_size

    @property
    def total(self) -> int:
        return self.ranks * self.fine

    def of(self, *owners: int) -> frozenset[int]:
        """The pieces that these ranks begin with."""
        return frozenset(owner * self.fine + crumb for owner in owners for crumb in range(self.fine))

    def node(self, rank: int) -> range:
        """The ranks of a rank's node."""
        first = rank - rank % self.node_size
        return range(first, first + self.node_size)


MACHINES = {
    "one node": Machine(4, 4),
    "nodes": Machine(6, 3),
    "each in a node of its own": Machine(4, 1),
    "more nodes": Machine(8, 2),
    "fine": Machine(4, 2, 4),
}


def ring(machine: Machine) -> Iterator[Move]:
    for step in range(machine.ranks - 1):
        for rank in range(machine.ranks):
            yield Move(rank, (rank + 1) % machine.ranks, machine.of((rank - step) % machine.ranks))


def each_to_all(machine: Machine) -> Iterator[Move]:
    for step in range(1, machine.ranks):
        for rank in range(machine.ranks):
            yield Move(rank, (rank + step) % machine.ranks, machine.of(rank))


def doubling(machine: Machine) -> Iterator[Move]:
    """With each step a rank has twice as much, also where their number is no power of two (Bruck et al., 1997)."""
    step = 1
    while step < machine.ranks:
        for rank in range(machine.ranks):
            count = min(step, machine.ranks - step)
            held = [(rank + more) % machine.ranks for more in range(count)]
            yield Move(rank, (rank - step) % machine.ranks, machine.of(*held))
        step *= 2


def tree(machine: Machine) -> Iterator[Move]:
    def below(rank: int) -> list[int]:
        return [rank, *(one for child in (2 * rank + 1, 2 * rank + 2) if child < machine.ranks for one in below(child))]

    everyone = machine.of(*range(machine.ranks))
    for rank in reversed(range(1, machine.ranks)):
        yield Move(rank, (rank - 1) // 2, machine.of(*below(rank)))
    for rank in range(1, machine.ranks):
        yield Move((rank - 1) // 2, rank, everyone - machine.of(*below(rank)))


def leaders(machine: Machine) -> Iterator[Move]:
    """Only the first ranks of the nodes speak with each other."""
    heads, everyone = range(0, machine.ranks, machine.node_size), machine.of(*range(machine.ranks))
    for head in heads:
        for rank in machine.node(head)[1:]:
            yield Move(rank, head, machine.of(rank))
    for head in heads:
        for other in heads:
            if head != other:
                yield Move(head, other, machine.of(*machine.node(head)))
    for head in heads:
        for rank in machine.node(head)[1:]:
            yield Move(head, rank, everyone - machine.of(rank))


def counterparts(machine: Machine) -> Iterator[Move]:
    """Each rank speaks with those at its place in other nodes, and then with its own node."""
    for rank in range(machine.ranks):
        for other in range(rank % machine.node_size, machine.ranks, machine.node_size):
            if other != rank:
                yield Move(rank, other, machine.of(rank))
    for rank in range(machine.ranks):
        for other in machine.node(rank):
            if other != rank:
                yield Move(rank, other, machine.of(*range(rank % machine.node_size, machine.ranks, machine.node_size)))


def gossip(seed: int) -> Callable[[Machine], Iterator[Move]]:
    """Anyone sends anyone anything that is new to it."""

    def moves(machine: Machine) -> Iterator[Move]:
        chance = random.Random(seed)
        held = [set(machine.of(rank)) for rank in range(machine.ranks)]
        pairs = [(src, dst) for src in range(machine.ranks) for dst in range(machine.ranks) if src != dst]
        while news := [(src, dst) for src, dst in pairs if held[src] - held[dst]]:
            src, dst = chance.choice(news)
            new = sorted(held[src] - held[dst])
            pieces = frozenset(chance.sample(new, chance.choice([len(new), chance.randint(1, len(new))])))
            held[dst] |= pieces
            yield Move(src, dst, pieces)

    return moves


COMPOSITIONS: dict[str, Callable[[Machine], Iterator[Move]]] = {
    **{fn.__name__: fn for fn in (*(ring, each_to_all, doubling, tree, leaders, counterparts),)},
    **{f"gossip {seed}": gossip(seed) for seed in range(2)},
}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_composition_brings_everyone_each_piece_once(name: str, machine: Machine) -> None:
    held = [set(machine.of(rank)) for rank in range(machine.ranks)]
    for src, dst, pieces in COMPOSITIONS[name](machine):
        assert pieces and pieces <= held[src] and not pieces & held[dst]
        held[dst] |= pieces
    assert all(len(own) == machine.total for own in held)


def turned_round(moves: Sequence[Move]) -> list[Move]:
    """What sums up gradients: everyone who has got a piece sends what it has added up of it back."""
    return [Move(move.dst, move.src, move.pieces) for move in reversed(moves)]


class Took(NamedTuple):
    """Times in ticks: those of the links of all ranks, added up, and the end."""

    links: float
    end: float


def by_messages(moves: Sequence[Move], machine: Machine, cost: Cost, make: "Make") -> Took:
    """What the moves take on the machine. A rank sends as soon as it has got all of a move's pieces."""
    shape = Shape.of(machine.ranks, node_size=machine.node_size, cost=cost, experts=getattr(cost, "experts", 0))
    simulator = new_simulator(shape)
    dist = Dist.of(shape, simulator)
    dist._watch = Watch(simulator)

    async def rank(model: Model) -> None:
        calls = {at: model.receive(src=move.src) for at, move in enumerate(moves) if move.dst == model.rank}
        sends = []
        for at, move in enumerate(moves):
            if move.src == model.rank:
                for before in [one for one in calls if one < at and moves[one].pieces & move.pieces]:
                    await calls.pop(before)
                pieces = [make(model, piece, machine.total) for piece in sorted(move.pieces)]
                sends.append(model.pass_to(move.dst, reduce(lambda one, other: one.combine(other), pieces)))
        for call in [*sends, *calls.values()]:
            await call

    async def everyone() -> list[Model]:
        models = [Model(rank=rank, dist=dist, layers=1, batches=1) for rank in range(machine.ranks)]
        await asyncio.gather(*map(rank, models))
        return models

    events = [event for model in asyncio.run(everyone()) for event in model.log]
    links = sum(event.end - event.start for event in events if event.kind == "pass_to")
    return Took(links, max(event.end for event in events))


Make = Callable[[Model, int, int], Any]
"""A piece of a tensor that a rank sends. By hand, anything may be loaded and made up at any time."""


def of_weight(model: Model, piece: int, total: int) -> Weight:
    return model.load_weights(0, piece, total)[0]


def of_gradient(model: Model, piece: int, total: int) -> WeightGrad:
    return model.fake_grad(0, [0]).shard(piece, total)


GRADIENT = Labels("WeightGrad", 0, 1, batches=frozenset({0}))


def by_collectives(kind: str, machine: Machine, cost: Cost) -> float:
    """The shortest time, in ticks, that one collective takes, or several on two levels."""
    k, nodes, everyone = machine.node_size, machine.nodes, machine.ranks
    labels = Labels("Weight", 0, 1) if kind == ALLGATHER.kind else GRADIENT

    def takes(kind: str, ranks: int, per_node: int, part: Fraction = Fraction(1)) -> float:
        """So many ranks put a part of the tensor together, or take it apart."""
        size = cost.sent(labels.changed(shards=frozenset(range(part.numerator)), total=part.denominator))
        group = Group(tuple(range(ranks)), {}, per_node, "")
        return float(Fraction(cost.meeting(kind, labels, size, group)) / cost.per_tick) if ranks > 1 else 0.0

    found = [takes(kind, everyone, k)]
    if kind == ALLREDUCE.kind:
        found.append(2 * takes(SCATTERREDUCE.kind, everyone, k))
        found.append(2 * takes(SCATTERREDUCE.kind, k, k) + takes(kind, nodes, 1, Fraction(1, k)))
    else:
        found.append(takes(kind, nodes, 1, Fraction(1, k)) + takes(kind, k, k))
        found.append(takes(kind, k, k, Fraction(1, nodes)) + takes(kind, nodes, 1))
    return min(found)


def cheaper(cost: Cost, machine: Machine, name: str) -> list[str]:
    """The collectives that this composition does with less time of the links, or sooner."""
    gather = [*COMPOSITIONS[name](machine)]
    took = {
        ALLGATHER.kind: by_messages(gather, machine, cost, of_weight),
        SCATTERREDUCE.kind: by_messages(turned_round(gather), machine, cost, of_gradient),
    }
    if machine.ranks == 4:  # which says as much, and takes less time
        took[ALLREDUCE.kind] = by_messages([*turned_round(gather), *gather], machine, cost, of_gradient)
    rounded = 2 * len(gather) / cost.per_tick if isinstance(cost, RealCost) else 1e-9
    """Times in seconds are rounded to nanoseconds, those of each message."""
    found = []
    for kind, (links, end) in took.items():
        least = by_collectives(kind, machine, cost) - rounded
        found += [kind] * (end < least or links < machine.ranks * least)
    return found


def machines_at(cost: Cost) -> Iterator[Machine]:
    """The machines that there are at these prices, which may know how large a node is."""
    for machine in MACHINES.values():
        if cost.node_size is None or machine.node_size == cost.node_size:
            yield machine


@pytest.mark.long
def test_no_composition_is_cheaper_than_the_collective_at_any_price() -> None:
    """With the default prices all of them, with others some: all together take minutes. Only where no collective may
    be called do messages cost what they cost."""
    everything = [
        (name, machine, composition)
        for name, cost in COSTS.items()
        for machine in machines_at(cost)
        for composition in COMPOSITIONS
        if not isinstance(cost, WireCost)
    ]
    by_hand = {puzzle.cost for puzzle in puzzles().values() if "by_hand" in puzzle.ideas}
    assert {name for name, *_ in everything} == COSTS.keys() - by_hand
    others = some([one for one in everything if one[0] != "default"], 60)
    tried = [*some([one for one in everything if one[0] == "default"], 5), *others]
    assert len(tried) > 8
    found = {(name, one, machine): cheaper(COSTS[name], machine, one) for name, machine, one in tried}
    assert not {case: kinds for case, kinds in found.items() if kinds}


class OneTick(Cost):
    """Each message takes the same, whatever it carries."""

    def message(self, labels: Labels | None, size: Elements, across: bool, ranks: int) -> TimeUnits:
        return self.transfer(size, across)


class OneGather(Cost):
    """A message takes as long as a collective, however many pieces it carries."""

    def message(self, labels: Labels | None, size: Elements, across: bool, ranks: int) -> TimeUnits:
        pair = Group((0, 1), {}, 1 if across else 2, "")
        return max(self.transfer(size, across), self.meeting(ALLGATHER.kind, GRADIENT, size, pair))


@pytest.mark.parametrize(
    ("cost", "name"),
    [
        (OneTick(collective_across=8), "counterparts"),  # puzzle 21 without a second copy
        (OneTick(send=0.1, collective=0.8), "each_to_all"),  # puzzle 15 without breadth
        (OneTick(), "leaders"),
        (OneGather(), "leaders"),
    ],
)
def test_a_cost_of_messages_that_ignores_what_they_carry_is_caught(cost: Cost, name: str) -> None:
    assert any(cheaper(cost, machine, name) for machine in machines_at(cost))
