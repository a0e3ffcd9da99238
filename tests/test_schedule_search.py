"""The search for pipelines: its arithmetic is the machine's, its bounds hold, and it finds again what is known."""

from random import Random
from typing import Any

import pytest

from drawing.charts.sweep import draw_sweep
from lib import Cost, PuzzleError, run, schedule, search
from lib.schedules.figures import SENT, Prices, as_text, figures
from lib.schedules.moves import Rule, by_rule, look, moved, sent_later, with_another_send
from lib.schedules.task import PLACEMENTS, Rows, Task
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p16_zero_bubble import zb_h1, zb_in_20, zero_bubble
from tests.marks import compares_with_torch
from tests.torch_truth.schedules import torch_rows

FREE = Cost(send=0, receive=0)
PRICES = (
    FREE,
    Cost(send=0.1, receive=0.3),
    Cost(send=1.5, receive=0),
    Cost(forward=2, backward=5, backward_input=2, backward_weight=3, loss=0.4, update=0.7, activation_elements=7),
)


BUSY = Cost(forward=1, backward=2, backward_input=1, backward_weight=1, send=1.5, receive=0)
"""Prices at which links are busy."""


def rows_of(task: Task, seed: int, moves: int = 30) -> Rows:
    """Rows that a rule makes, and moves make worse."""
    random = Random(seed)
    while (rows := by_rule(task, Rule.drawn(task.ranks, random))) is None:
        pass
    found = {task.score(rows): rows}
    moved(task, found, task.score(rows), moves, random, lambda done: None)
    return random.choice([*found.values()])


@pytest.mark.parametrize("cost", PRICES)
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(("ranks", "batches"), [(1, 2), (2, 5), (4, 3)])
def test_figures_are_those_of_a_run_and_none_is_below_the_bound(
    ranks: int, batches: int, placement: str, halves: bool, cost: Cost
) -> None:
    task = Task(placement, ranks, batches, cost, halves, None)
    for seed in range(2):
        rows = rows_of(task, seed)
        plan = schedule(as_text(rows), receives="at once")
        done = run(plan, **plan.sizes, cost=cost)
        time, memory = figures(rows, task.rank_of, Prices.of(cost)) or (0, 0)
        assert (time / cost.per_tick, memory) == (pytest.approx(done.time, rel=1e-12), done.memory)
        for cap in (None, done.memory):
            assert Task(placement, ranks, batches, cost, halves, cap).bound() <= done.time + 1e-9


def test_rows_that_come_to_no_end_have_no_figures() -> None:
    rows = [[("F", 0, 0), ("B", 0, 0), ("F", 0, 1), ("B", 0, 1)], [("F", 1, 1), ("B", 1, 1), ("F", 1, 0), ("B", 1, 0)]]
    assert figures(rows, [0, 1], Prices.of(FREE)) is None


def test_when_to_send_matters_where_links_are_busy() -> None:
    """In the same order of work, it is faster if some results let others go first; a run confirms it, however messages
    are received."""
    task = Task("ring", 2, 4, BUSY, True, None)
    random = Random(11)
    rows = next(rows for _ in range(9) if (rows := by_rule(task, Rule.drawn(task.ranks, random))) is not None)
    best = rows
    for _ in range(400):
        place = random.randrange(task.ranks)
        if (row := with_another_send(task, best[place], random)) is not None:
            best = min(best, [*best[:place], row, *best[place + 1 :]], key=task.score)
    assert [[work for work in row if work[0] not in SENT] for row in best] == rows, "the order of work is the same"
    at_once, later = (task.score(one)[1] / BUSY.per_tick for one in (rows, best))
    assert later <= at_once - 1
    for receives in ("at once", "at use"):
        plan = schedule(as_text(best), receives)
        done = run(plan, **plan.sizes, cost=BUSY)
        assert done.verify().startswith("Correct")
        assert done.time == later
    assert not Task("ring", 2, 4, FREE, True, None).late, "where messages take no time, nothing is gained"


@pytest.mark.slow
def test_putting_off_sends_gains_what_more_moves_of_work_do_not() -> None:
    """In a V where a message takes longer than a forward: 67 ticks instead of 68.5, with a quarter more of tries. As
    many more moves of work gain nothing there (68.5 ticks after 2,000 tries, too)."""
    cost = Cost(backward=2, send=1.5, receive=0)
    at_once, later = (Task("v", 4, 8, cost, True, None, late) for late in (False, True))
    found = {at_once.score(rows): rows for rows in [look(at_once, 1600, Random(1), lambda done: None)]}
    before = min(found)
    sent_later(later, found, 400, Random(0))
    rows = found[min(found)]
    plan = schedule(as_text(rows), receives="at once")
    done = run(plan, **plan.sizes, cost=cost)
    assert done.verify().startswith("Correct") and done.time * cost.per_tick == min(found)[1]
    assert (before[1] / cost.per_tick, done.time) == (68.5, 67)


def test_with_little_memory_backwards_are_whole() -> None:
    """Halves hold an input and a gradient for longer: 52.5 ticks, where only they are tried."""
    [found] = search("line", cost=FREE, memory=1_179_648, tries=1500).found
    assert found.run.time <= 44.5
    assert found.bound == 23 > Task("line", 4, 8, FREE, True, None).bound()
    with pytest.raises(PuzzleError):
        Task("line", 4, 8, FREE, True, 500_000).bound()


@pytest.mark.parametrize("cost", [FREE, BUSY, Cost(forward=2, activation_elements=7)])
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_memory_that_a_refusal_names_is_enough(placement: str, ranks: int, cost: Cost) -> None:
    """And an element less is not, for nothing holds less than one micro-batch after the other."""
    with pytest.raises(PuzzleError) as refused:
        search(placement, ranks=ranks, batches=3, cost=cost, memory=100, tries=2)
    least = int(str(refused.value).split("take ")[1].split(", enough")[0].replace(",", ""))
    [found] = search(placement, ranks=ranks, batches=3, cost=cost, memory=least, tries=2).found
    assert found.run.memory == least and found.run.verify().startswith("Correct")
    with pytest.raises(PuzzleError):
        search(placement, ranks=ranks, batches=3, cost=cost, memory=least - 1, tries=20)


SIZE = {"ranks": 4, "layers": 4, "batches": 8}


@pytest.mark.slow
def test_it_finds_what_is_known_in_its_own_memory() -> None:
    """1F1B, and three kinds of zero bubble: as fast as the programs. The build prints the same search in the docs."""
    known = run(one_f_one_b, **SIZE, cost=FREE)
    found = search("line", cost=FREE, memory=known.memory, halves=False, tries=200).found[0]
    assert found.bound == found.run.time == known.time
    caps = [1_179_648, 1_310_720, 1_441_792, 1_572_864, 1_703_936, 1_966_080]
    search_run = search("line", cost=FREE, tries=1500, memory=caps)
    for program in (zb_h1, zb_in_20, zero_bubble):
        known = run(program, **SIZE, cost=FREE)
        [mine] = [one for one in search_run.found if one.cap == known.memory]
        assert mine.run.memory <= known.memory
        assert mine.bound <= mine.run.time <= known.time


@pytest.mark.slow
@compares_with_torch
def test_it_finds_zb_v_in_its_own_memory() -> None:
    plan = schedule(torch_rows("ZBVZeroBubble", 3, 6))
    done = run(plan, **plan.sizes, cost=FREE)
    found = search("v", ranks=3, batches=6, cost=FREE, memory=done.memory, tries=600).found[0]
    assert found.run.time <= done.time


def test_what_lies_between_is_a_front() -> None:
    """Less memory takes more time; what is found runs by itself, and is right."""
    caps = [1_441_792, None, 1_572_864]
    found = search("line", cost=FREE, memory=caps, tries=400)
    by_cap = {one.cap: one.run for one in found.found}
    assert by_cap[None].time <= by_cap[1_572_864].time < by_cap[1_441_792].time
    assert all(cap is None or done.memory <= cap for cap, done in by_cap.items())
    again = run(found.schedule, **found.schedule.sizes, cost=FREE)
    assert again.verify().startswith("Correct")
    assert again.time == found.found[0].run.time == by_cap[None].time
    assert "above it" in str(found)
    assert "<svg" in draw_sweep(found)._repr_html_()
    assert str(search("line", cost=FREE, memory=caps, tries=400)) == str(found), "the same seed finds the same"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"placement": "w"}, "there is no such placement"),
    ({"ranks": 0}, "ranks must be a whole number"),
    ({"tries": 0.5}, "tries must be a whole number"),
    ({"memory": -1}, "a cap is a number of elements"),
    ({"memory": []}, "a cap is a number of elements"),
    ({"memory": ["3 GB"]}, "a cap is a number of elements"),
    ({"memory": 1000}, "no schedule was found that holds at most 1,000 elements"),
    ({"memory": 1_048_575, "tries": 20}, "weights, their gradients and two activations take 1,048,576"),
    (
        {"placement": "v", "memory": 1_835_008, "tries": 20},
        "weights, their gradients and three activations take 1,966,080",
    ),
]


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_searched_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PuzzleError, match=said):
        search(**given)
