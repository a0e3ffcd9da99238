"""Half of a schedule, and a schedule beside the outline of the target's."""

import re
from itertools import pairwise
from typing import Any

import pytest

from drawing import Figure, beside_target, draw_sketch
from drawing.notebook import _show_hint
from lib import Model, PuzzleError, RingCost, grade, hint, run
from lib.course.layouts import mesh_of
from lib.course.outlines import comparable_puzzle, half_schedule, outline
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.grading import page
from lib.grading.hints import Hint
from lib.record.events import MARKS, Event
from solutions.build.tables.outlines import MOST, outline_of
from tests.programs import slack, solutions

SOLUTIONS = {spec["name"]: (fn, spec) for fn, spec in solutions()}
EVERY = list(puzzles().values())


def each_puzzle() -> Any:
    return pytest.mark.parametrize("puzzle", EVERY, ids=list(puzzles()))


def words(figure: Figure) -> str:
    return " ".join(re.findall(r">([^<>]+)</text>", figure.svg()))


@each_puzzle()
def test_a_sketch_is_the_first_half_and_no_more(puzzle: Puzzle) -> None:
    half = half_schedule(puzzle)
    part = half.until / half.time  # of a long schedule less than half
    assert puzzle.unit.scored(half.time) <= puzzle.target["time"]
    assert part == pytest.approx(1 / 8 if puzzle.name == "compose" else 1 / 2, rel=1e-4)
    assert len(half.events) <= MOST + mesh_of(puzzle.size).everyone
    assert {event.rank for event in half.events} == {*half.ranks}
    assert [*half.ranks] == [*range(8 if puzzle.name == "compose" else mesh_of(puzzle.size).everyone)]
    assert 0 < max(event.end for event in half.events) <= half.until
    assert all(event.start < half.until and event.held == () for event in half.events)


@pytest.mark.parametrize("name", SOLUTIONS)
def test_sketch_and_outline_are_those_of_the_solution(name: str) -> None:
    fn, spec = SOLUTIONS[name]
    played = run(fn, **spec["size"], cost=cost_named(spec.get("cost", "default")))
    shown, half = outline(puzzles()[name]), half_schedule(puzzles()[name])
    by_rank: dict[int, list[Event]] = {rank: [] for rank in range(mesh_of(spec["size"]).everyone)}
    for event in played.events:
        if event.kind not in MARKS:
            by_rank[event.rank].append(event)
    for rank in range(played.ranks):
        own = by_rank[rank]
        like = rank if rank in half.ranks else rank % len(half.ranks)  # of those that do the same, the first
        begun = [event for event in own if event.start < half.until]
        drawn = [event for event in half.events if event.rank == like and event.kind not in MARKS]
        assert [(event.kind, event.layer) for event in drawn] == [(event.kind, event.layer) for event in begun]
        assert [event.start for event in drawn] == pytest.approx([event.start for event in begun], abs=1e-5 * half.time)
        computing = sum(event.length for event in own if event.stream == "compute")
        assert sum(end - start for start, end in shown.compute.get(rank, ())) == pytest.approx(computing, rel=2e-4)
        assert all(end < start for (_, end), (start, _) in pairwise(shown.busy.get(rank, ())))


@each_puzzle()
def test_an_outline_tells_when_and_not_what(puzzle: Puzzle) -> None:
    shown = outline(puzzle)
    assert shown.time == half_schedule(puzzle).time
    spans = [span for own in (*shown.compute.values(), *shown.busy.values()) for span in own]
    last = shown.time * (1 + 1e-5)  # times are stored with five digits, the last one rounded
    assert all(type(tick) in (int, float) and 0 <= tick <= last for span in spans for tick in span)


@each_puzzle()
def test_a_sketch_is_drawn(puzzle: Puzzle) -> None:
    figure = draw_sketch(puzzle.name)
    assert "the rest is yours to find" in words(figure)
    assert puzzle.name in figure.summary and "%" not in words(figure)
    assert len(draw_sketch(puzzle, static=True)._repr_html_()) < 400_000


def test_a_run_at_a_puzzles_own_size_can_stand_beside_its_target() -> None:
    async def nothing(model: Model) -> Model:
        return model

    for puzzle in puzzles().values():
        done = run(nothing, **puzzle.size, cost=cost_named(puzzle.cost))
        assert comparable_puzzle(done, puzzle.name, "") == puzzle


def test_equal_ranks_are_kept_once() -> None:
    fn, spec = SOLUTIONS["fsdp"]
    played = run(fn, **spec["size"])
    assert [ranks for ranks, _ in outline_of(played.events, played.time)["compute"]] == [[0, 1, 2, 3]]


def test_the_program_shown_as_the_stars_earns_it_with_little_time_to_spare() -> None:
    """A far faster one has another idea than the star's hint, and its order of work leads away from that."""
    for puzzle in [puzzle for puzzle in puzzles().values() if puzzle.star]:
        aim = outline(puzzle, "star")
        peak = max(elements for _, elements in aim.memory)
        assert puzzle.has_star(*puzzle.scored(aim.time, peak)), puzzle.name
        assert aim.time >= 0.97 * puzzle.star["time"], (puzzle.name, aim.time, puzzle.star)


def test_yours_is_drawn_beside_the_outline_of_the_stars_too_with_the_memory_of_both() -> None:
    fn, spec = SOLUTIONS["fsdp"]
    figure = beside_target(run(fn, **spec["size"]), star=True)
    assert figure.summary == "Yours: 20.4 ticks, computes 74%. One that meets the star: 15.6 ticks, computes 96%."
    shown = words(figure)
    most = max(held for _, held in outline(puzzles()["fsdp"], "star").memory)
    assert "one that meets the star" in shown and "peak 1.97M" in shown and f"peak {most / 1e6:.3g}M" in shown
    with pytest.raises(PuzzleError, match="repair_twice has no star"):
        beside_target(run(idle, **puzzles()["repair_twice"].size), "repair_twice", star=True)


def test_yours_is_drawn_beside_the_outline_of_the_targets() -> None:
    fn, _ = SOLUTIONS["pipeline"]
    size = puzzles()["gpipe"].size
    figure = beside_target(run(fn, **size), "gpipe")
    assert figure.summary == "Yours: 67.4 ticks, bubble 74%. One that meets the target: 33.8 ticks, bubble 43%."
    shown = words(figure)
    assert "yours (pipeline)" in shown and "one that meets the target" in shown
    assert figure.svg().count("the target computes") == 1
    assert beside_target(run(slack("fsdp"), **puzzles()["fsdp"].size), "fsdp").summary.startswith("Yours: 20.4 ticks")


def idle(model: Model) -> None:
    model.get_activation([0])


def test_of_the_target_no_operation_is_named() -> None:
    figure = beside_target(run(idle, **puzzles()["fsdp"].size), "fsdp")
    told = figure.svg() + figure.summary
    for word in ("forward", "all-gather", "reduce-scatter", "layer 1", "backward"):
        assert word not in told


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: beside_target(SOLUTIONS["fsdp"][0]), "takes a run"),  # type: ignore[arg-type]
        (lambda: beside_target(run(SOLUTIONS["fsdp"][0], ranks=2, batches=2)), "ranks=4, layers=6, batches=4"),
        (lambda: beside_target(run(idle, 4, 6, 4, cost=RingCost()), "fsdp"), r"other prices(?s:.*)cost=Cost\(\)"),
        (lambda: beside_target(run(idle, ranks=4)), "no puzzle 'idle'"),
        (lambda: draw_sketch("fdsp"), "did you mean 'fsdp'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call: Any, says: str) -> None:
    with pytest.raises(PuzzleError, match=says):
        call()


@each_puzzle()
def test_the_second_hint_has_half_a_schedule(puzzle: Puzzle) -> None:
    shown = [Hint(puzzle, number) for number in range(3)]
    assert ["<img" in _show_hint(one) for one in shown] == [False, True, False]
    assert ["rank 0" in str(one).partition("\n\n")[2] and f"\n{puzzle.unit.one} " in str(one) for one in shown][1]
    assert all(one.text in _show_hint(one) and one.text == one._repr_markdown_() for one in shown)
    last = half_schedule(puzzle).ranks[-1]  # it has a row, or does the same as the first
    assert re.search(rf"\nrank {last}\b|\nranks 2-{last} do the same as rank 0, on their own", str(shown[1]))
    assert ("without ranks that do the same" in str(shown[1])) == (puzzle.name == "compose")


def test_who_is_too_slow_is_told_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(fn: Any) -> str:
        return page.text(grade(fn, "gpipe").verdict, why=True)

    fn, _ = SOLUTIONS["pipeline"]
    slow = told(fn)
    assert 'beside_target(run(pipeline, ranks=4, layers=8, batches=4), "gpipe")' in slow and "solution(" not in slow
    monkeypatch.setitem(puzzles(), "gpipe", puzzles()["gpipe"]._replace(cost="ring"))
    monkeypatch.setattr("lib.grading.notebook.changed_table", lambda spec: "")
    monkeypatch.setattr("lib.grading.notebook.broken_seal", lambda: "")
    assert 'beside_target(run(pipeline, ranks=4, layers=8, batches=4, cost=RingCost()), "gpipe")' in told(fn)
    monkeypatch.undo()
    passed = told(SOLUTIONS["gpipe"][0])  # without the star
    star = "beside_target(run(gpipe, ranks=4, layers=8, batches=4), star=True) draws yours beside the star's outline"
    assert star in passed and 'solution("gpipe") shows ours' in passed
    assert "half" not in hint("gpipe").text


@pytest.mark.long
def test_a_schedule_in_seconds_stands_beside_its_target() -> None:
    fn, spec = SOLUTIONS["compose"]
    figure = beside_target(run(fn, **spec["size"], cost=cost_named(spec["cost"])))
    assert "Yours: 13.91 s, bubble 11%. One that meets the target: 13.91 s, bubble 11%." in figure.summary
    with pytest.raises(PuzzleError, match="for another size"):
        beside_target(run(fn, **spec["size"], node_size=2, cost=cost_named(spec["cost"])))
