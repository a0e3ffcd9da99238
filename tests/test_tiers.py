"""Links of several tiers work at the same time, and what is sent may be smaller than what is kept."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from lib import Cost, Model, run
from lib.basics.units import Elements
from lib.record.events import Event
from lib.record.figures.chain import chain_of, slack_of
from lib.record.figures.waiting import Waiting
from lib.record.labels import Labels
from tests.drawing_events import event
from tests.programs import solutions

MESH = {"mesh": {"replica": 2, "shard": 4}, "node_size": 4, "ranks": 8, "layers": 9, "batches": 8}
LONG, SHORT = 50, 1


@dataclass(frozen=True)
class TwoTiers(Cost):
    """Links in a box and links between nodes, each with a lane of its own."""

    tiers: ClassVar[tuple[str, ...]] = ("in a box", "between nodes")


async def one_long_many_short(model: Model) -> None:
    """A gather between nodes is started first, and then eight small ones in the box, awaited one by one."""
    if model.rank % 4 == 0:
        model.weights[0], _ = model.load_weights(0, model.rank // 4, 2)
    for layer in range(1, 9):
        model.weights[layer], _ = model.load_weights(layer, model.rank % 4, 4)
    mine = model.load_weights(0, model.rank // 4, 2)[0] if model.rank % 4 else model.weights[0]
    long = model.allgather(mine, 0, axis="replica")
    for layer in range(1, 9):
        await model.allgather(model.weights[layer], layer, axis="shard")
    await long


@pytest.mark.parametrize(
    ("kind", "first", "last"), [(Cost, LONG + SHORT, LONG + 8 * SHORT), (TwoTiers, SHORT, 8 * SHORT)]
)
def test_each_tier_of_links_has_a_lane_of_its_own(kind: type[Cost], first: int, last: int) -> None:
    done = run(one_long_many_short, **MESH, cost=kind(collective=SHORT, collective_across=LONG))
    short = [event.end for event in done.events if event.kind == "allgather" and event.layer]
    assert (min(short), max(short)) == (first, last)
    assert [event.end for event in done.events if event.layer == 0 and event.kind == "allgather"] == [LONG] * 8


def between_boxes(event: Event) -> bool:
    return len({rank // 4 for rank in event.group}) > 1


def test_the_longest_chain_knows_the_tiers() -> None:
    cost = TwoTiers(collective=7, collective_across=LONG)
    done = run(one_long_many_short, **MESH, cost=cost)
    chain = chain_of(done.events, between_boxes)
    assert chain.time == 56 and [event.layer for event in chain.events if event.start >= 0][-1] == 8
    room = slack_of(done.events, between_boxes)
    assert {left for event, left in zip(done.events, room, strict=True) if event.end == LONG} == {6}


def test_who_is_waited_for_knows_the_tiers() -> None:
    """What goes on between nodes keeps nobody in a box waiting: rank 2 waits for rank 1, who computes longest."""
    whole = {"op": ("sum",), "group": (0, 1, 2)}
    sums = [event(rank, "allreduce", 20, 21, **whole)._replace(issued=at) for rank, at in enumerate((10.0, 20.0, 0.0))]
    across = event(0, "allgather", 0, 50, op=("gather",), group=(0, 3))
    logs = {
        0: [across, event(0, "forward", 0, 10), sums[0]],
        1: [event(1, "forward", 0, 20), sums[1]],
        2: [sums[2], event(2, "update", 21, 22)._replace(awaited=(0,))],
    }
    [gap, _] = Waiting(logs, 50.0, lambda one: one.group == (0, 3)).gaps(2)
    assert (gap.start, gap.end, gap.ranks) == (0.0, 20.0, (1,))
    assert Waiting(logs, 50.0).gaps(2)[0].ranks == (0,)  # whose one lane is taken


@pytest.mark.parametrize(("fn", "spec"), [pytest.param(*one, id=one[1]["name"]) for one in solutions(small=True)])
def test_every_solution_is_right_with_two_tiers_and_none_is_slower(fn: Any, spec: dict[str, Any]) -> None:
    done = run(fn, **spec["size"], cost=TwoTiers())
    done.check()
    assert done.time <= run(fn, **spec["size"]).time


@dataclass(frozen=True)
class HalfSent(Cost):
    """Whatever is sent has half the size that it has in memory."""

    collective_price: int = 0

    def sent(self, labels: Labels) -> Elements:
        return self.elements(labels) // 2

    def meeting(self, kind: str, tensor: Labels, size: Elements, group: object) -> int:  # type: ignore[override]
        return int(size) * self.per_tick

    def transfer(self, size: Elements, across: bool) -> int:
        return int(size) * self.per_tick


async def gather_and_pass(model: Model) -> None:
    model.weights[0], _ = model.load_weights(0, model.rank, 2)
    model.weights["whole"] = await model.allgather(model.weights[0], 0)
    if model.rank == 0:
        await model.pass_to(1, model.get_activation([0]))
    else:
        await model.receive()


def test_links_carry_what_is_sent_and_memory_holds_what_is_stored() -> None:
    cost = HalfSent(weight_elements=8, activation_elements=6)
    done = run(gather_and_pass, ranks=2, layers=1, batches=1, cost=cost)
    carried = {event.kind: (event.elements, event.length) for event in done.events if event.op}
    assert carried["allgather"] == (2, 4) and carried["pass_to"] == (3, 3)
    assert done.memory == 12 + 6
