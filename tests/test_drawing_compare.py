"""Several schedules under one time axis."""

from __future__ import annotations

import re
from random import Random

import pytest

from drawing import Trace, compare, draw
from drawing.marks import text_width
from drawing.picture import LARGEST
from drawing.trace import trace_of
from lib import Model, PuzzleError, run
from tests.drawing_events import (
    SVG,
    chain,
    corners,
    event,
    operation_titles,
    parse,
    sharded_run,
    staged_run,
    texts,
    trace,
)


async def nothing(model: Model) -> Model:
    return model


def test_one_axis_and_a_box_for_every_operation() -> None:
    a, b = staged_run(4, 4), sharded_run(4, 3)
    figure = compare(a, b)
    assert len(operation_titles(figure)) == len(operation_titles(draw(a))) + len(operation_titles(draw(b)))
    assert texts(figure).count("ticks") == 2  # the axis, and the unit in the table


def test_a_moment_is_at_the_same_place_in_all() -> None:
    def made(end: float, ranks: int, node_size: int | None) -> Trace:
        events = [[event(rank, "forward", 0, 2), event(rank, "backward", 2, end)] for rank in range(ranks)]
        return trace(*events, node_size=node_size)

    short, long = made(4, 2, 1), made(8, 1, None)
    places = re.findall(
        r'<title>rank 0: backward[^<]*</title><rect x="([\d.]+)"[^>]* width="([\d.]+)"', compare(short, long).svg()
    )
    assert len(places) == 2
    (x, width), (x2, width2) = [(float(a), float(b)) for a, b in places]
    assert x == pytest.approx(x2, abs=0.5)
    assert width2 / width == pytest.approx(3, rel=0.02)


def test_the_table_has_the_figures_and_marks_the_best() -> None:
    a, b = staged_run(4, 4), sharded_run(4, 3)
    figure = compare(a, b, titles=["first", "second"])
    shown = texts(figure)
    for made in (a, b):
        assert f"{made.memory:,}" in shown
        assert f"{made.time:g}" in shown
    assert {"first", "second", "peak memory", "communication"} <= set(shown)
    assert "sent between" not in shown
    bold = set(re.findall(r'font-weight="700"[^>]*>([^<]+)<', figure.svg()))
    assert {f"{min(a.time, b.time):g}", f"{min(a.memory, b.memory):,}"} <= bold
    assert f"{max(a.time, b.time):g}" not in bold


def test_communication_inside_and_between_boxes() -> None:
    # of 10 ticks, rank 0 gathers 1 inside its box and 2 across; a send across takes 1
    events = [
        event(0, "allgather", 0, 1, op=(0,), group=(0, 1)),
        event(0, "allgather", 1, 3, op=(1,), group=(0, 2)),
        event(0, "pass_to", 3, 4, op=(2,), group=(0, 3)),
        event(0, "forward", 4, 10),
    ]
    made = trace(events, node_size=2)
    assert made.traffic(between=False) == pytest.approx(0.1)
    assert made.traffic(between=True) == pytest.approx(0.3)
    assert {"10%", "30%", "40%"} <= set(texts(compare(made, made)))
    whole = trace_of(sharded_run(4, 2, node_size=2))
    assert whole.traffic(between=False) == 0
    assert whole.traffic(between=True) == pytest.approx(whole.communication)
    assert trace_of(sharded_run(4, 2)).traffic(between=True) == 0


def test_everything_keeps_inside_and_is_told_in_words() -> None:
    figure = compare(staged_run(4, 4), sharded_run(4, 3), run(nothing, 4), titles=["a", "b", "c" * 90])
    width, height = figure.size
    assert [(x, y) for x, y in corners(figure) if not (0 <= x <= width and 0 <= y <= height)] == []
    assert figure.summary.startswith(
        "3 schedules under one time axis. a (4 ranks, 4 layers, 4 micro-batches): time 19.3"
    )
    assert figure.summary.endswith(": not attempted yet.")


def test_what_is_not_attempted_is_said() -> None:
    both = compare(run(nothing), run(nothing, 2))
    assert both.summary.count("not attempted yet") == 2
    assert "2 ranks · 2 layers · 1 micro-batch · not attempted yet" in texts(both)


def test_layers_have_one_color_in_all() -> None:
    two, eight = trace(chain(0, 4, layers=2), layers=2), trace(chain(0, 16, layers=8), layers=8)
    found = re.findall(
        r"<title>rank 0: forward, layer 0[^<]*</title><rect[^>]* fill=\"(#\w+)\"", compare(two, eight).svg()
    )
    assert len(set(found)) == 1


def test_long_titles_are_cut_and_iterables_taken() -> None:
    run_ = staged_run(2, 2)
    figure = compare(run_, run_, titles=(word * 60 for word in ("abc", "xyz")))
    width, _ = figure.size
    for element in parse(figure).iter(SVG + "text"):
        if element.get("text-anchor") == "start":
            reach = text_width(element.text or "", float(element.get("font-size", 0)))
            assert float(element.get("x", 0)) + reach <= width
    assert any(text.startswith("2 ranks") for text in texts(figure))


def test_large_runs_stay_small() -> None:
    large = trace(*(chain(rank, 400, offset=rank) for rank in range(100)))
    assert len(compare(large, large, large)._repr_html_()) <= LARGEST
    random = Random(1)
    kinds = ("forward", "backward")
    shapes = [[event(r, random.choice(kinds), at, at + 1, random.randrange(9)) for at in range(800)] for r in range(80)]
    for static in (False, True):
        assert len(compare(*[trace(*shapes)] * 3, static=static)._repr_html_()) <= LARGEST


@pytest.mark.parametrize(
    ("sources", "options"),
    [
        ((), {}),
        ((staged_run(2, 2),), {}),
        ((staged_run(2, 2), 3), {}),
        ((staged_run(2, 2),) * 2, {"titles": ["one"]}),
        ((staged_run(2, 2),) * 2, {"titles": "ab"}),
        ((staged_run(2, 2),) * 2, {"links": "some"}),
        ((staged_run(2, 2),) * 2, {"width": 700}),
    ],
)
def test_wrong_arguments_are_refused(sources: tuple[object, ...], options: dict[str, object]) -> None:
    with pytest.raises(PuzzleError):
        compare(*sources, **options)  # type: ignore[arg-type]
