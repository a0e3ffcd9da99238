"""Tokens on their way to experts: bands, the hottest ranks, and what is said of them."""

import re
from functools import cache
from itertools import combinations
from typing import Any

import pytest

from drawing import draw_tokens
from drawing.ink import theme
from drawing.ink.letters import overlap, places_of_texts
from drawing.ink.marks import Polys
from lib import PuzzleError, Run, run
from lib.course.specs import COSTS
from tests import experts
from tests.drawing_events import outside, texts, titles
from tests.test_closed_forms import program

UNEVEN = COSTS["experts"]
EXPERT_PARALLEL = program("p27_expert_parallel", "expert_parallel")
BY_TURNS = program("p28_two_batch_overlap", "two_batch_overlap")
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "puzzle 27": (EXPERT_PARALLEL, {"ranks": 4, "layers": 8, "batches": 4, "cost": UNEVEN}),
    "by turns": (BY_TURNS, {"ranks": 4, "layers": 4, "batches": 8, "cost": UNEVEN}),
    "even": (experts.plain, {"ranks": 2, "layers": 4, "batches": 4}),
    "two levels": (
        experts.in_two_levels(("box", "gpu")),
        {"ranks": 8, "layers": 4, "batches": 8, "mesh": {"box": 2, "gpu": 4}},
    ),
    "copies": (
        experts.copies,
        {"ranks": 4, "layers": 4, "batches": 4, "mesh": {"replica": 2, "expert": 2}, "cost": UNEVEN},
    ),
}


@cache
def done(name: str) -> Run:
    fn, size = RUNS[name]
    return run(fn, **size, experts=8)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_the_picture_keeps_inside_and_no_text_lies_on_another(name: str, narrow: bool) -> None:
    figure = draw_tokens(done(name))
    if narrow:
        assert figure.narrow is not None
        figure = figure.narrow
    assert outside(figure) == []
    places = places_of_texts(figure.diagrams)
    assert [(one, other) for one, other in combinations(places, 2) if overlap(one, other)] == []
    assert len(figure.svg()) < 100_000


@pytest.mark.parametrize("layer", [1, 3])
@pytest.mark.parametrize("name", RUNS)
def test_the_ranks_that_take_longest_are_red_and_named(name: str, layer: int) -> None:
    """Read from the log: how long the experts of each rank took."""
    ticks: dict[int, float] = {}
    for event in done(name).events:
        if event.kind == "expert" and event.layer == layer:
            ticks[event.rank] = round(ticks.get(event.rank, 0) + event.length, 9)
    hottest = [rank for rank, took in ticks.items() if took == max(ticks.values()) > min(ticks.values())]
    figure = draw_tokens(done(name), layer)
    assert (theme.CHAIN in figure.svg()) == bool(hottest)
    if hottest:
        assert f"The busiest {'is' if len(hottest) == 1 else 'are'} rank" in figure.summary
        for rank in hottest:
            assert str(rank) in figure.summary.partition("The busiest")[2].partition(":")[0]
    else:
        assert "every rank gets equally many tokens" in figure.summary.replace("Every", "every")
    for rank, took in ticks.items():
        [said] = re.findall(rf"rank {rank} computes experts? [\d, -]+, ([\d.]+) tick", figure.summary)
        assert float(said) == pytest.approx(took, rel=1e-3) and f"rank {rank}" in texts(figure)


@pytest.mark.parametrize("name", RUNS)
def test_each_micro_batch_has_a_band_to_each_expert_that_it_reaches(name: str) -> None:
    figure, size = draw_tokens(done(name)), RUNS[name][1]
    copies = (size.get("mesh") or {}).get("replica", 1)
    bands = [said for said in titles(figure) if said.startswith("micro-batch")]
    assert len(bands) == len(set(bands)) == size["batches"] * 8
    reached = {said.rpartition(" on ")[2].partition(":")[0] for said in bands}
    assert len(reached) == size["ranks"] and copies * 8 == sum(said.startswith("expert") for said in titles(figure))


def test_bands_are_as_thick_as_tokens_are_many() -> None:
    found = [node for node in draw_tokens(done("puzzle 27")).diagrams if hasattr(node, "title")]
    thick: dict[str, float] = {}
    for node in found:
        if node.title.startswith("micro-batch 2 of rank 2"):
            [corners] = node.diagram.shape.items  # type: ignore[attr-defined]
            assert isinstance(node.diagram.shape, Polys)  # type: ignore[attr-defined]
            thick[node.title.partition(" to ")[2].partition(" on ")[0]] = corners[-1][1] - corners[0][1]
    loads = [4, 2, 2, 2, 2, 2, 1, 1]
    assert [thick[f"expert {e}"] / thick["expert 7"] for e in range(8)] == pytest.approx(loads)


def test_what_is_no_run_with_experts_is_refused() -> None:
    dense = run(experts.plain, 2, 1, 2, experts=8)
    for wrong, said in (
        (lambda: draw_tokens(3), "draw_tokens takes a run"),  # type: ignore[arg-type]
        (lambda: draw_tokens(done("even"), 2), "no tokens of layer 2 .*\n.*layers 1, 3"),
        (lambda: draw_tokens(dense), r"(?s)no tokens of layer 1 .*model\.alltoall"),
        (lambda: draw_tokens(run(experts.plain, 4, 2, 4, experts=128)), "no room for so many"),
    ):
        with pytest.raises(PuzzleError, match=said):
            wrong()
