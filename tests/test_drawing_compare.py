"""Several schedules under one time axis."""

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import Trace, compare, draw
from drawing.beside.compare import change_in_words as in_words
from drawing.ink.letters import text_width
from drawing.ink.trace import trace_of
from drawing.schedule.picture import LARGEST
from lib import Model, PuzzleError, run
from lib.basics.units import MS
from lib.record.figures.difference import changes, parts_of, rounded
from lib.record.table import OPERATIONS
from tests.drawing_events import (
    SVG,
    chain,
    event,
    operation_titles,
    outside,
    parse,
    sharded_run,
    staged_run,
    texts,
    titles,
    trace,
)
from tests.failures import CASES, failed

Spans = list[list[tuple[int, int, str]]]


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
    svg = compare(short, long).svg()
    places = re.findall(r'<path d="M([\d.]+) [\d.]+h([\d.]+)v[^"]*"><title>rank 0: backward', svg)
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
    assert {"first", "second", "peak memory", "computes", "bubble"} <= set(shown)
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
    both = compare(made, made)
    assert {"10%", "30%", "40%", "60%"} <= set(texts(both))
    shares = "computes 60% of rank time, only communicates 40%, bubble 0% of rank time"
    assert f"{shares}, sent inside nodes 10%, sent between nodes 30%, hidden " in both.summary
    whole = trace_of(sharded_run(4, 2, node_size=2))
    assert whole.traffic(between=False) == 0
    assert whole.traffic(between=True) == pytest.approx(whole.communication)
    assert trace_of(sharded_run(4, 2)).traffic(between=True) == 0


def test_everything_keeps_inside_and_is_told_in_words() -> None:
    figure = compare(staged_run(4, 4), sharded_run(4, 3), run(nothing, 4), titles=["a", "b", "c" * 90])
    assert outside(figure) == []
    assert figure.summary.startswith(
        "3 schedules under one time axis. a (4 ranks, 4 layers, 4 micro-batches): time 19.3"
    )
    assert ": not attempted yet." in figure.summary


def test_what_is_not_attempted_is_said() -> None:
    both = compare(run(nothing), run(nothing, 2))
    assert both.summary.count("not attempted yet") == 2
    assert "2 ranks · 2 layers · 1 micro-batch · not attempted yet" in texts(both)


def test_long_titles_are_cut_and_iterables_taken() -> None:
    run_ = staged_run(2, 2)
    figure = compare(run_, run_, titles=(word * 60 for word in ("abc", "xyz")))
    width, _ = figure.size
    for element in parse(figure).iter(SVG + "text"):
        if element.get("text-anchor") == "start":
            reach = text_width(element.text or "", float(element.get("font-size", 0)))
            assert float(element.get("x", 0)) + reach <= width
    assert any(text.startswith("2 ranks") for text in texts(figure))


@pytest.mark.slow
def test_large_runs_stay_small() -> None:
    large = trace(*(chain(rank, 400, offset=rank) for rank in range(100)))
    assert len(compare(large, large, large)._repr_html_()) <= LARGEST
    random = Random(1)
    kinds = ("forward", "backward")
    shapes = [[event(r, random.choice(kinds), at, at + 1, random.randrange(9)) for at in range(800)] for r in range(80)]
    made = trace(*shapes)
    for static in (False, True):
        assert len(compare(*[made] * 3, static=static)._repr_html_()) <= LARGEST


def test_the_parts_of_a_run_by_hand() -> None:
    # rank 0 computes from 0 to 4, communicates from 3 to 6, and is idle to 10; rank 1 does nothing before its update
    busy = [event(0, "forward", 0, 4), event(0, "allgather", 3, 6, op=(0,))]
    made = trace(busy, [event(1, "update", 8, 10)])
    assert parts_of(made.time, made.parts) == {"forward": 2, "update": 1, "only communicates": 1, "waits": 6}
    assert sum(parts_of(made.time, made.parts).values()) == made.time == 10


def test_what_changed_is_said_in_figures_that_add_up() -> None:
    before = trace([event(0, "forward", 0, 4), event(0, "allgather", 4, 7), event(0, "backward", 10, 14)], title="old")
    after = trace([event(0, "forward", 0, 4), event(0, "allgather", 3, 5), event(0, "backward", 5, 9)], title="new")
    told = ("5 ticks shorter than old", "waits 3 ticks less, only communicates 2 ticks less; peak memory is the same")
    assert in_words(before, after) == told
    figure, said = compare(before, after), f"new is {told[0]}; {told[1]}."
    assert said in texts(figure) and said in figure.summary
    assert in_words(after, before)[0] == "5 ticks longer than new"
    assert in_words(before, before) == ("as long as old", "peak memory is the same")


def test_a_mean_over_ranks_says_so_and_so_does_a_change_of_memory() -> None:
    head, made = in_words(trace_of(staged_run(4, 8)), trace_of(staged_run(4, 4)))
    assert head.endswith(" ticks shorter than staged")
    assert made.startswith("a rank on average: ") and made.endswith(" elements less") and "; peak memory " in made


SPANS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60), st.sampled_from(sorted(OPERATIONS))), max_size=12)


@given(st.lists(SPANS, min_size=1, max_size=3), st.lists(SPANS, min_size=1, max_size=3), st.integers(1, 7))
def test_parts_add_up_exactly_whatever_happens(one: Spans, other: Spans, per_tick: int) -> None:
    def made(ranks: Spans) -> Trace:
        rows = [
            [event(rank, kind, start / per_tick, (start + length) / per_tick) for start, length, kind in row]
            for rank, row in enumerate(ranks)
        ]
        return trace(*rows)

    before, after = made(one), made(other)
    for known in (before, after):
        parts = parts_of(known.time, known.parts)
        assert sum(parts.values()) == Fraction(known.time)
        assert all(part >= 0 for part in parts.values())
        assert float(parts.get("waits", 0)) == pytest.approx(known.idle * known.time, abs=1e-6)
    found = changes(*(parts_of(known.time, known.parts) for known in (before, after)))
    difference = Fraction(after.time) - Fraction(before.time)
    assert sum(found.values()) == difference and 0 not in found.values()
    for places in range(4):
        shown = rounded(found, places)
        assert sum(shown.values()) == Fraction(round(difference * 10**places), 10**places)
        assert all(abs(shown[part] - found[part]) < Fraction(1, 10**places) for part in found)
    head, said = in_words(before, after)
    figures = [
        Decimal(size) * (1 if way == "more" else -1) for size, way in re.findall(r" ([\d.]+) ticks (more|less)", said)
    ]
    total = re.match(r"([\d.]+) ticks (shorter|longer)", head)
    assert sum(figures) == (Decimal(total[1]) * (1 if total[2] == "longer" else -1) if total else 0)


def test_what_fails_is_compared_with_nothing() -> None:
    done = failed(CASES[0]).run
    for order in ((done, staged_run(2, 2)), (staged_run(2, 2), done), (run(nothing, 2), staged_run(2, 2))):
        assert not re.search("shorter|longer|as long", compare(*order).summary)


def test_a_measured_run_is_compared_like_with_like() -> None:
    """Who waits for the others of a collective is idle in both: a measured one has begun when the last is there."""
    ticks = trace([event(0, "forward", 0, 1), event(0, "allgather", 3, 4)], title="simulated")
    clock = trace([event(0, "forward", 0, 30), event(0, "allgather", 90, 150)], title="measured", unit=MS, tick=30.0)
    told = "60 ms longer than simulated", "only communicates 30 ms more, waits 30 ms more"
    late = replace(clock, by_rank={0: [clock.events[0], clock.events[1]._replace(start=120, end=180)]})
    shown = compare(ticks, late)
    assert f"measured is {told[0]}; {told[1]}; peak memory is the same." in " ".join(texts(shown))


def test_memory_of_the_rank_with_the_peak_on_one_scale() -> None:
    small, large = (
        [event(rank, "forward", 0, 4, held=(0, 0, 0, size)) for size in sizes]
        for rank, sizes in ((0, (100, 300, 200)), (1, (100, 900, 400)))
    )
    one, two = trace(small, title="one"), trace(small, large, title="two", memory_target=600)
    shown = compare(one, two)
    assert {"peak 300", "peak 900", "target 600"} <= set(texts(shown))
    assert [title for title in titles(shown) if title.startswith("memory of rank")] == [
        "memory of rank 0, whose peak is the highest: 300 elements at tick 0",
        "memory of rank 1, whose peak is the highest: 900 elements at tick 0",
    ]
    outlines = re.findall(r'<title>memory of rank[^<]*</title><path[^>]* d="M[\d.]+ ([\d.]+)v(-?[\d.]+)', shown.svg())
    heights = [-float(height) for _, height in outlines]
    assert heights[1] / heights[0] == pytest.approx(3, rel=0.02)
    assert "peak" not in " ".join(texts(compare(*[replace(one, by_rank={0: ()})] * 2)))


@pytest.mark.parametrize(
    ("sources", "options"),
    [
        ((), {}),
        ((staged_run(2, 2),), {}),
        ((staged_run(2, 2), 3), {}),
        ((staged_run(2, 2),) * 5, {}),
        ((staged_run(2, 2),) * 2, {"titles": ["one"]}),
        ((staged_run(2, 2),) * 2, {"titles": "ab"}),
        ((staged_run(2, 2),) * 2, {"links": "some"}),
        ((staged_run(2, 2),) * 2, {"width": 500}),
    ],
)
def test_wrong_arguments_are_refused(sources: tuple[object, ...], options: dict[str, object]) -> None:
    with pytest.raises(PuzzleError):
        compare(*sources, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [560.0, 980.0])
def test_what_changed_is_said_to_its_end(width: float) -> None:
    before, after = trace_of(sharded_run(4, 2, node_size=2)), trace_of(staged_run())
    head, made = in_words(before, after)
    said = texts(compare(before, after, width=width))
    assert f"staged is {head}; {made}." in " ".join(said)
    assert not [text for text in said if text.endswith("\N{HORIZONTAL ELLIPSIS}")]
