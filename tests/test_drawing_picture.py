"""Pictures of runs: structure, not pixels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import chalk
import pytest
from chalk.backend.svg import render as chalk_render

from drawing import Figure, Trace, draw
from drawing.layout import FINE
from lib import Model, PuzzleError, Run, run
from lib.events import MARKS
from tests.drawing_events import (
    SVG,
    chain,
    corners,
    event,
    operation_titles,
    parse,
    sharded,
    sharded_run,
    staged_run,
    texts,
    titles,
    trace,
)


def operations(run: Run) -> int:
    return sum(event.kind not in MARKS for event in run.events)


MANY = trace(*(chain(rank, 400, offset=rank) for rank in range(30)))
EVERY_KIND = trace(
    [
        event(0, "forward", 0, 1),
        event(0, "allgather", 0.5, 2.5, op=(0,), group=(0, 1), tensor="Weight", elements=4),
        event(0, "loss", 1, 1, layer=4),
        event(0, "backward", 1, 2),
        event(0, "pass_to", 2.6, 2.8, op=(1,), group=(0, 1), tensor="Activation", elements=2),
        event(0, "update", 3, 3.5),
        event(0, "allreduce", 4, 4.3, op=(2,), group=(0, 1)),
        event(0, "scatterreduce", 5, 5.3, op=(3,), group=(0, 1)),
        event(0, "recompute", 6, 7),
        event(0, "end", 7, 7, layer=None, batches=()),
    ],
    [event(1, "receive", 2.8, 3, op=(1,), group=(0, 1), tensor="Activation", elements=2)],
    node_size=1,
    time_target=9,
    memory_target=7,
)
FIGURES = {
    "sharded": lambda: draw(sharded_run()),
    "staged": lambda: draw(staged_run(), time_target=1, memory_target=10**9),
    "two boxes": lambda: draw(sharded_run(node_size=2)),
    "every kind": lambda: draw(EVERY_KIND),
    "grouped": lambda: draw(sharded_run(32, 2)),
    "many events": lambda: draw(MANY),
    "one narrow": lambda: draw(staged_run(1, 2), width=480),
    "no memory": lambda: draw(staged_run(), memory=False, links="none"),
    "not attempted": lambda: draw(run(lambda model: model)),
    "no time": lambda: draw(trace([event(0, "loss", 0, 0)])),
    "nothing held": lambda: draw(trace([event(0, "forward", 0, 1, held=(0,) * 7)])),
    "many layers": lambda: draw(trace(chain(0, 60, layers=40), layers=40)),
}


@pytest.fixture(params=FIGURES)
def figure(request: pytest.FixtureRequest) -> Figure:
    made: Figure = FIGURES[request.param]()
    return made


def test_it_is_well_formed_and_has_a_text_alternative(figure: Figure) -> None:
    root = parse(figure)
    assert root.tag == SVG + "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == figure.summary


def test_nothing_lies_outside_the_view_box(figure: Figure) -> None:
    left, top, width, height = map(float, parse(figure).get("viewBox", "").split())
    assert (left, top) == (0, 0)
    assert (width, height) == pytest.approx(figure.size, abs=0.01)
    points = list(corners(figure))
    assert points
    assert [(x, y) for x, y in points if not (0 <= x <= width and 0 <= y <= height)] == []


def test_texts_do_not_run_out_of_the_picture(figure: Figure) -> None:
    from drawing.marks import text_width

    for element in parse(figure).iter(SVG + "text"):
        if element.get("text-anchor") == "start" and float(element.get("x", 0)) > figure.size[0] / 2:
            width = text_width(element.text or "", float(element.get("font-size", 0)))
            assert float(element.get("x", 0)) + width <= figure.size[0], element.text


def test_it_refers_to_nothing_outside(figure: Figure) -> None:
    svg = figure.svg()
    assert re.findall(r"\w+://[^\"' ]*", svg) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in svg
    assert "href" not in svg


def test_shapes_carry_attributes_that_survive_a_sanitizer(figure: Figure) -> None:
    styled = [element.tag for element in parse(figure).iter() if "style" in element.attrib]
    assert styled == []


def test_chalks_own_renderer_draws_it(figure: Figure, tmp_path: Path) -> None:
    chalk_render(figure, str(tmp_path / "stock.svg"), height=300)
    assert (tmp_path / "stock.svg").read_text(encoding="utf-8").count("<path") > 0


# -- what is shown -------------------------------------------------------------------------


@pytest.mark.parametrize("made", [sharded_run, staged_run])
def test_every_operation_is_one_box_with_its_hover_text(made: Any) -> None:
    result = made()
    assert len(operation_titles(draw(result))) == operations(result) > 0


def test_hover_texts_tell_who_what_and_when() -> None:
    said = titles(draw(EVERY_KIND))
    assert any(title.startswith("rank 0: forward, layer 0, micro-batch 0\ntick 0 to 1\n") for title in said), said
    assert any("send" in title and "from rank 0 to rank 1" in title for title in said)
    assert any("all-gather" in title and "Weight, 4 elements\namong ranks 0, 1" in title for title in said)


def test_an_operation_that_nobody_has_given_a_look_is_drawn_and_explained() -> None:
    figure = draw(EVERY_KIND)
    assert any(title.startswith("rank 0: recompute") for title in titles(figure))
    assert "recompute" in texts(figure)


def test_the_legend_names_what_occurs_and_nothing_else() -> None:
    shown = texts(draw(sharded_run()))
    for name in (
        "forward (number: micro-batch)",
        "loss",
        "backward",
        "update",
        "all-gather",
        "reduce-scatter",
    ):
        assert shown.count(name) == 1, name
    for name in ("all-reduce", "send", "receive", "idle", "inbox", "target"):
        # the head has a figure called idle
        assert shown.count(name) == (name == "idle"), name
    staged = texts(draw(staged_run()))
    assert {"send", "receive", "inbox"} <= set(staged)
    assert staged.count("idle") == 2


def test_micro_batches_are_written_into_the_boxes() -> None:
    shown = texts(draw(staged_run(2, 4), memory=False))
    for batch in "0123":  # two stages, forward and backward
        assert shown.count(batch) >= 4
    assert texts(draw(MANY, memory=False)).count("1") == 1  # no room: only layer 1 in the legend


def test_the_head_compares_figures_with_targets_exactly() -> None:
    result = staged_run()
    met = draw(result, time_target=result.time, memory_target=result.memory)
    missed = draw(result, time_target=result.time - 1e-9, memory_target=result.memory - 1)
    assert "(target 19.3, met)" in met.summary
    assert met.summary.count("met)") == 2
    assert missed.summary.count("missed)") == 2
    assert f"{result.memory:,}" in texts(met)
    assert f"target {result.memory - 1:,}" in texts(missed)


def test_the_alternative_text_tells_figures_and_shape() -> None:
    words = draw(staged_run()).summary
    assert words.startswith("staged: 4 ranks, 4 layers, 4 micro-batches; time 19.3 ticks; peak memory 1,703,936")
    assert "Each rank runs 4 forward, 0 to 4 loss, 4 backward, 1 update, 4 to 8 send, 4 to 8 receive." in words
    assert "Ranks begin to compute at ticks 0 to 4.2 and end at 14.7 to 19.3." in words


def test_memory_shows_each_profile_once_with_its_kinds() -> None:
    said = titles(draw(sharded_run(4)))
    assert [title for title in said if title.startswith("rank 0-3: weights, at most")]
    assert len([title for title in said if ": weights, at most" in title]) == 1
    assert len([title for title in titles(draw(staged_run(4))) if ": weights, at most" in title]) == 4
    assert not any("at most" in title for title in titles(draw(staged_run(4), memory=False)))


def test_at_most_eight_profiles_are_shown_among_them_the_peak() -> None:
    ranks = [[event(rank, "forward", 0, 1, held=(rank, 0, 0, 0, 0, 0, 0))] for rank in range(1, 30)]
    ranks[17] = [event(17, "forward", 0, 1, held=(99, 0, 0, 0, 0, 0, 0))]
    figure = draw(trace(*ranks))
    assert "Memory (8 of 29 different profiles)" in texts(figure)
    assert any(title.startswith("peak: 99 elements on rank 17 ") for title in titles(figure))
    assert sum(text.startswith("max ") for text in texts(figure)) == 8


def test_boxes_of_ranks_are_framed_and_named() -> None:
    figure = draw(sharded_run(4, node_size=2))
    assert {"box 0: ranks 0, 1", "box 1: ranks 2, 3"} <= set(titles(figure))
    assert not any(title.startswith("box") for title in titles(draw(sharded_run(4))))


def test_many_equal_ranks_share_a_row() -> None:
    result = sharded_run(32, 2)
    figure = draw(result)
    assert len(operation_titles(figure)) * 32 == operations(result)
    assert "32 ranks" in texts(figure)


@pytest.mark.parametrize(("links", "heads"), [("none", 0), ("all", 24), ("auto", 24)])
def test_arrows_lead_from_sends_to_receives(links: str, heads: int) -> None:
    arrows = [  # the shafts are one path, the heads are triangles in the color of sends
        element
        for element in parse(draw(staged_run(), links=links, memory=False))
        if element.tag == SVG + "path" and element.get("fill") == "#7a5cc8"
    ]
    assert len(arrows) == heads


# -- as a figure ---------------------------------------------------------------------------


def test_a_notebook_gets_one_picture_that_scales() -> None:
    from IPython.core.formatters import DisplayFormatter

    figure = draw(staged_run())
    data, _ = DisplayFormatter().format(figure)
    assert sorted(data) == ["text/html", "text/plain"]
    assert data["text/html"].startswith("<svg ")
    assert 'style="max-width:100%;height:auto"' in data["text/html"]
    assert len(data["text/plain"]) < 1000


def test_a_file_has_a_view_box_and_takes_the_size_it_is_given(tmp_path: Path) -> None:
    figure = draw(staged_run(), title="a<b> & \"c\" \x00\ud800 'd'")
    figure.save(tmp_path / "saved.svg")
    figure.render_svg(str(tmp_path / "large.svg"), height=1000)
    saved, large = ((tmp_path / name).read_text(encoding="utf-8") for name in ("saved.svg", "large.svg"))
    box = re.search('viewBox="[^"]*"', saved)
    assert box is not None
    assert box.group() in large
    assert 'height="1000"' in large
    assert "a<b>" not in saved


def test_it_composes_with_other_diagrams(tmp_path: Path) -> None:
    figure = draw(staged_run())
    width, height = figure.size
    pair = (figure | chalk.rectangle(100, height).align_tl()) / figure.scale(0.5)
    envelope = pair.get_envelope()
    assert (envelope.width, envelope.height) == pytest.approx((width + 100, height * 1.5))
    pair.render_svg(str(tmp_path / "pair.svg"), height=200)
    assert "pipeline" not in repr(figure)
    assert (tmp_path / "pair.svg").stat().st_size > 0


# -- sizes ---------------------------------------------------------------------------------


def test_tens_of_thousands_of_events_on_one_rank() -> None:
    figure = draw(trace(chain(0, 50_000, layers=96), layers=96))
    assert len(figure.svg()) < 400_000
    assert operation_titles(figure) == []


def test_the_size_of_a_picture_is_bounded_by_its_pixels() -> None:
    small, large = (
        len(draw(trace(*(chain(rank, count, offset=rank) for rank in range(20)))).svg()) for count in (500, 4000)
    )
    assert large < 2 * small


def test_detail_ends_where_events_are_too_many() -> None:
    assert len(operation_titles(draw(trace(chain(0, FINE))))) == FINE
    assert operation_titles(draw(trace(chain(0, FINE + 1)))) == []


# -- what can be drawn ---------------------------------------------------------------------


def test_models_run_and_trace_give_the_same_picture() -> None:
    result = staged_run()
    from_run = draw(result, title="same").svg()
    assert draw(result.models, title="same").svg() == from_run
    assert draw(reversed(result.models), title="same").svg() == from_run
    ranks = [[event for event in result.events if event.rank == rank] for rank in range(4)]
    assert draw(trace(*ranks, title="same")).svg() == from_run


def test_some_of_the_models_can_be_drawn() -> None:
    result = staged_run()
    figure = draw(result.models[1:3])
    assert {"rank 1", "rank 2"} <= set(texts(figure))
    assert "rank 0" not in texts(figure)
    assert draw(result.models[2]).summary.startswith("schedule: 1 rank, ")


def test_models_of_several_machines_are_numbered() -> None:
    models = [staged_run(1, 2).models[0] for _ in range(2)]
    assert {"rank 0", "rank 1"} <= set(texts(draw(models, memory=False)))


def test_a_function_without_a_body_is_not_attempted_yet() -> None:
    def fsdp(model: Model) -> Model:
        return model

    figure = draw(run(fsdp, 4, 2, 4))
    assert texts(figure) == [figure.summary] == ["fsdp: not attempted yet"]


async def _never_awaited(model: Model) -> Model:
    return await sharded(model)


@pytest.mark.parametrize(
    ("source", "cure"),
    [
        (None, "draw(run("),
        (17, "draw(run("),
        (sharded, "draw(run("),
        ([], "return model"),
        ([None, None], "return model"),
        ("run", "return model"),
        ([Model(), 3], "return model"),
    ],
)
def test_anything_else_is_refused_with_what_to_pass(source: object, cure: str) -> None:
    with pytest.raises(PuzzleError, match="draw takes a Run, or the models of all ranks") as caught:
        draw(source)
    assert cure in caught.value.cure


def test_a_coroutine_is_refused_without_a_warning_later() -> None:
    with pytest.raises(PuzzleError, match="did you forget `await`"):
        draw(_never_awaited(Model()))


@pytest.mark.parametrize(
    "wrong",
    [{"links": "some"}, {"width": 100}, {"width": None}, {"time_target": "x"}, {"memory_target": [1]}],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PuzzleError):
        draw(Trace({0: chain(0, 2)}, 4, 4), **wrong)
