"""Who attends to what, and when: the blocks of the triangle, their times, and what is said of them."""

from collections.abc import Callable
from functools import cache, partial
from itertools import combinations
from typing import Any

import pytest

from drawing import draw_attention
from drawing.ink import theme
from drawing.ink.letters import overlap, places_of_texts
from drawing.ink.marks import Polys
from drawing.small.attention import PALE, STRONG, color_of_rank
from lib import Cost, PuzzleError, Run, run
from lib.course.specs import COSTS
from solutions.p25_context_parallel import context_parallel_in_36_335
from tests import experts
from tests.drawing_events import outside, texts, titles
from tests.slices import gathering, heads, in_steps, ring
from tests.test_drawing_layout import mixed

LONG, HEADS = COSTS["long_context"], COSTS["all_heads"]
SIZE: dict[str, Any] = {"ranks": 4, "layers": 2, "batches": 1}
RUNS: dict[str, Callable[[], Run]] = {
    "gather": partial(run, gathering(), **SIZE, cost=LONG),
    "gather, zigzag": partial(run, gathering(zigzag=True), **SIZE, cost=LONG),
    "ring": partial(run, ring(), **SIZE, cost=HEADS),
    "ring, zigzag": partial(run, ring(zigzag=True), **SIZE, cost=HEADS),
    "one rank": partial(run, in_steps, 1, 2, 1),
    "three ranks": partial(run, ring(), 3, 2, 1),
    "sixteen": partial(run, ring(zigzag=True), 16, 1, 1),
    "two axes": partial(run, gathering(True, axis="context"), 6, 2, 2, mesh={"data": 2, "context": 3}),
    "computed again": partial(run, context_parallel_in_36_335, 4, 3, 1, cost=LONG),
}
PLACES = ("wide", "narrow")


@cache
def done(name: str) -> Run:
    return RUNS[name]()


def blocks(figure: Any) -> dict[str, list[Any]]:
    """Return the polygons of each block of the triangle, by its hover text."""
    found = [node for node in figure.diagrams if getattr(node, "title", "").count("attend to")]
    inside = [[leaf.shape for leaf in node.diagram.diagrams] for node in found]
    shapes = [[one for shape in own if isinstance(shape, Polys) for one in shape.items] for own in inside]
    return dict(zip([node.title for node in found], shapes, strict=True))


def area(corners: Any) -> float:
    turned = [*corners[1:], corners[0]]
    return abs(sum(x * b - a * y for (x, y), (a, b) in zip(corners, turned, strict=True))) / 2


@pytest.mark.parametrize("backward", [False, True])
def test_heads_are_drawn_as_one_triangle_of_all_ranks(backward: bool) -> None:
    """Each rank has a quarter of the work, in a quarter of the heads, and all of them fill the triangle."""
    drawn = draw_attention(run(heads(), **SIZE, cost=HEADS), backward=backward)
    (said,) = blocks(drawn)
    assert said.startswith("ranks 0-3, each in its part of the heads: queries of slice {0} of 1 attend to all keys")
    assert "heads in 4 parts" in " ".join(texts(drawn)) and "each rank has 25% of the work" in drawn.summary
    on_nodes = run(heads(mesh=True), 4, 2, 1, mesh={"node": 2, "gpu": 2})
    assert (
        "heads in 2 parts" in " ".join(texts(draw_attention(on_nodes))) and len(blocks(draw_attention(on_nodes))) == 3
    )


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", [name for name in RUNS if name != "one rank"])
def test_the_blocks_fill_the_triangle_as_the_work_is_shared(name: str, backward: bool) -> None:
    """The area of a rank's blocks is its share of the time that all of them take, as the log has it."""
    figure, kind = draw_attention(done(name), backward=backward), "backward_attend" if backward else "attend"
    own: dict[str, float] = {}
    for said, shapes in blocks(figure).items():
        rank = said.partition(",")[0]
        own[rank] = own.get(rank, 0.0) + sum(map(area, shapes))
    assert sum(own.values()) == pytest.approx(264**2 / 2)
    ticks: dict[str, float] = {}
    for event in done(name).events:
        if event.kind == kind and event.layer == 0 and 0 in event.batches and f"rank {event.rank}" in own:
            ticks[f"rank {event.rank}"] = ticks.get(f"rank {event.rank}", 0.0) + event.length
    assert all(own[rank] / sum(own.values()) == pytest.approx(t / sum(ticks.values())) for rank, t in ticks.items())
    assert ticks.keys() == own.keys()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", RUNS)
def test_the_picture_keeps_inside_and_no_text_lies_on_another(name: str, place: str) -> None:
    names = ["a title that goes on for longer than there is room", "b"]
    figure = draw_attention(done(name), done("ring, zigzag"), titles=names)
    if place == "narrow":
        assert figure.narrow is not None
        figure = figure.narrow
    assert outside(figure) == []
    places = places_of_texts(figure.diagrams)
    assert [(one, other) for one, other in combinations(places, 2) if overlap(one, other)] == []
    assert len(figure.svg()) < 300_000


def test_in_zigzag_all_ranks_have_as_much() -> None:
    order, zigzag = draw_attention(done("ring")), draw_attention(done("ring, zigzag"))
    assert [said for said in texts(order) if said.endswith("%")] == ["6%", "19%", "31%", "44%"]
    assert [said for said in texts(zigzag) if said.endswith("%")] == ["25%"] * 4
    assert "Rank 3 has 44% of the work, since its queries see the most keys. Rank 0 has 6%" in order.summary
    assert "each rank has 25% of the work" in zigzag.summary
    both = draw_attention(done("ring"), done("ring, zigzag"), titles=["in order", "zigzag"])
    assert "in order: it takes" in both.summary and "zigzag: it takes" in both.summary


def test_a_block_says_its_step_its_slices_and_when() -> None:
    said = titles(draw_attention(done("ring, zigzag")))
    events = [event for event in done("ring, zigzag").events if event.kind == "attend" and event.layer == 0]
    own = [event for event in events if event.rank == 1]
    for step, (event, keys) in enumerate(zip(own, ("1, 6", "0, 7", "3, 4", "2, 5"), strict=True), 1):
        [one] = [text for text in said if text.startswith(f"rank 1, step {step}: queries")]
        assert f"queries of slice {{1, 6}} of 8 attend to keys of slice {{{keys}}} of 8" in one
        assert one.endswith(f"at tick {event.start:g} to {event.end:g}")


def test_each_micro_batch_has_a_picture_of_its_own() -> None:
    figure = draw_attention(done("two axes"), batch=1)
    assert "micro-batch 1" in figure.summary and "queries of rank 3" in figure.summary
    assert "queries of rank 0" not in figure.summary


def test_what_nobody_has_attended_to_is_crossed_out_and_named() -> None:
    with pytest.raises(PuzzleError) as caught:
        run(gathering(mistake="own keys only"), **SIZE)
    assert caught.value.run is not None
    figure = draw_attention(caught.value.run)
    assert "Nobody has attended, of 4 slices: queries of slice 1 to keys of slice 0" in figure.summary
    assert sum(said.startswith("nobody:") for said in titles(figure)) >= 4 and theme.BAD in figure.svg()
    assert theme.BAD not in draw_attention(done("gather")).svg()


@pytest.mark.parametrize("dark", [False, True])
def test_numbers_can_be_read_on_all_shades(dark: bool) -> None:
    """WCAG asks for a contrast of 4.5. The palest shade differs from the card, too."""
    card, ink = (theme.ROLES[role][dark] for role in ("card", "ink"))
    for ranks in range(1, 17):
        for rank in range(ranks):
            strong, pale = (mixed(color_of_rank(rank, ranks), card, shade) for shade in (STRONG, PALE))
            assert theme.contrast(strong, ink) > 4.5 and theme.contrast(pale, card) > 1.2, (rank, ranks)


def test_what_has_no_attention_is_refused() -> None:
    many = partial(run, ring(zigzag=True), 17, 1, 1, cost=Cost())
    for wrong, said in (
        (lambda: draw_attention(), "draw_attention takes one to 3 runs"),
        (lambda: draw_attention(3), "(?s)draw_attention takes one to 3 runs.*3"),  # type: ignore[arg-type]
        (lambda: draw_attention(*[done("ring")] * 4), "(?s)draw_attention takes one to 3 runs.*4 runs"),
        (lambda: draw_attention(done("ring"), layer=2), "(?s)nobody attends to anything in layer 2.*layers 0-1"),
        (lambda: draw_attention(done("ring"), batch=1), "(?s)in layer 0 of .*, micro-batch 1.*micro-batch 0"),
        (lambda: draw_attention(done("ring"), titles=["one", "two"]), "a title for each run"),
        (lambda: draw_attention(done("ring"), titles="r"), "a title for each run"),
        (lambda: draw_attention(run(experts.plain, 2, 2, 2, experts=8)), r"(?s)nobody attends.*model\.attend"),
        (lambda: draw_attention(many()), "(?s)no room for so many.*17 ranks, 34 slices"),
    ):
        with pytest.raises(PuzzleError, match=said):
            wrong()
