"""Messages that cost what they cost, whatever they carry (``WireCost``), and sums made of them."""

from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from random import Random
from typing import Any

import pytest

from lib import HIDDEN, Model, RingCost, Run, WireCost, run
from lib.basics.units import exact
from lib.course.specs import cost_named, puzzles

WEIGHT = HIDDEN * HIDDEN
WIRES: Any = cost_named("wires")
SMALL: Any = cost_named("small_messages")
RANKS = range(2, 17)


def solved(name: str, ranks: int, layers: int = 2, **options: Any) -> Run:
    """A run of a puzzle's solution, or of another program beside it (``puzzle.program``)."""
    puzzle, _, program = name.partition(".")
    fn = getattr(import_module(f"solutions.{puzzles()[puzzle].file}"), program or puzzle)
    return run(fn, ranks=ranks, layers=layers, batches=ranks, **options)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("node_size", [None, 2])
@pytest.mark.parametrize("cost", [WIRES, SMALL, WireCost(latency=Fraction(1, 7), bandwidth=99_991)], ids=str)
def test_a_ring_by_hand_takes_what_a_ring_is_priced(cost: WireCost, node_size: int | None, ranks: int) -> None:
    """In nodes, too, if links between them are slower than those inside."""
    cost = replace(cost, latency_across=1, bandwidth_across=50_000)
    by_hand, official = (solved(name, ranks, cost=cost, node_size=node_size) for name in ("ring_allreduce", "ddp"))
    ring = RingCost(**{name: getattr(cost, name) for name in cost.prices})
    assert by_hand.time == official.time == solved("ddp", ranks, cost=ring, node_size=node_size).time
    sums = [sum(event.elements for event in model.log if event.kind == "pass_to") for model in by_hand.models]
    assert {*sums} == {2 * 2 * Fraction(ranks - 1, ranks) * WEIGHT}


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_a_tree_takes_two_ways_both_partners_one_and_halves_the_bytes_of_a_ring(ranks: int) -> None:
    hop, whole, log = exact(SMALL.latency), Fraction(WEIGHT, SMALL.bandwidth), ranks.bit_length() - 1
    sums = {"small_messages": 2 * log * (hop + whole), "small_messages.at_once": log * (hop + whole)}
    sums["ring_allreduce.halving"] = 2 * (log * hop + Fraction(ranks - 1, ranks) * whole)
    for name, took in sums.items():
        assert exact(solved(name, ranks, 3, cost=SMALL).time) == 3 * (Fraction(5, 2) + took), name


def test_the_star_of_the_ring_is_near_what_no_program_can_go_below() -> None:
    star = solved("ring_allreduce.to_owners", 8, 4, cost=WIRES).time
    least = 4 + 2 + 4 * Fraction(2 * 7, 8) * WEIGHT / WIRES.bandwidth + Fraction(1, 2)
    assert least == Fraction(41, 2) < star < Fraction(108, 100) * least
    assert star == (puzzles()["ring_allreduce"].star or {})["time"]


@pytest.mark.parametrize("seed", range(12))
def test_a_rank_takes_in_one_message_at_a_time_in_the_order_of_its_receives(seed: int) -> None:
    """Each is in when its send is over, and not sooner after the one before than its bytes take. A receive that is made
    later than that takes no time."""
    chance = Random(seed)
    sizes = [[chance.randint(1, 4) for _ in range(chance.randint(1, 3))] for _ in range(3)]  # of senders 1 to 3
    busy = chance.randint(0, 3)  # forwards that the receiver does first
    order = [sender for sender, own in enumerate(sizes, 1) for _ in own]
    chance.shuffle(order)
    cost = WireCost(latency=Fraction(1, 10), bandwidth=3 * WEIGHT)

    async def program(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        if model.rank:
            for cut in sizes[model.rank - 1]:
                await model.pass_to(0, model.weights[0].shard(0, cut))
            return
        model.activations[0] = model.get_activation([0])
        for _ in range(busy):
            model.forward(0, model.activations[0], model.weights[0])
        for at, sender in enumerate(order):
            model.weights["got", at] = await model.receive(sender)

    log = run(program, ranks=4, layers=1, batches=1, cost=cost).models[0].log
    sent = {sender: [Fraction(0)] for sender in (1, 2, 3)}
    for sender, own in enumerate(sizes, 1):
        for cut in own:
            sent[sender].append(sent[sender][-1] + Fraction(1, 10) + Fraction(1, 3 * cut))
    arrived, clock, ends = Fraction(0), Fraction(busy), []
    taken = dict.fromkeys(sent, 0)
    for sender in order:
        taken[sender] += 1
        there = sent[sender][taken[sender]]
        arrived = max(there, arrived + there - sent[sender][taken[sender] - 1] - Fraction(1, 10))
        clock = max(clock, arrived)
        ends.append(float(clock))
    assert [event.end for event in log if event.kind == "receive"] == ends
