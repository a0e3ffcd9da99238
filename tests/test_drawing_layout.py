"""Rows, tracks, colors and words: numbers only."""

import ast
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drawing
from drawing.ink import theme
from drawing.ink.trace import trace_of
from drawing.schedule.layout import Layout, rows_of, ticks, tracks_of
from lib.record.events import MARKS, Event
from lib.record.figures.waiting import idle_spans
from lib.record.kinds import MEMORY_KINDS
from lib.record.table import OPERATIONS, TRACED, in_stream, training
from tests import drawing_events
from tests.drawing_events import chain, event, sharded_run, staged_run, trace


def overlaps(a: Event, b: Event) -> bool:
    return a.start < b.end and b.start < a.end


spans = st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda pair: (pair[0] / 10, sum(pair) / 10))


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """A rank's log: compute one by one, communication anywhere."""
    clock, events = 0, []
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=6)):
        events.append(event(0, "forward", (clock + gap) / 10, (clock + gap + length) / 10))
        clock += gap + length
    kinds = st.sampled_from(["allgather", "pass_to", "receive"])
    events += [event(0, kind, *span) for kind, span in draw(st.lists(st.tuples(kinds, spans), max_size=8))]
    return draw(st.permutations(events))


@given(logs())
def test_no_two_operations_lie_on_one_another(events: list[Event]) -> None:
    tracks = tracks_of(events)
    for (a, track), (b, other) in combinations(zip(events, tracks, strict=True), 2):
        assert track != other or not overlaps(a, b)


@given(logs())
def test_compute_is_in_the_row_and_what_it_hides_below(events: list[Event]) -> None:
    for one, track in zip(events, tracks_of(events), strict=True):
        if one.stream == "compute":
            assert track == 0
        elif any(overlaps(one, other) for other in events if other.stream == "compute"):
            assert track > 0


@pytest.mark.parametrize("run", [sharded_run(), staged_run()])
def test_boxes_of_a_real_run_do_not_overlap(run: object) -> None:
    layout = Layout(trace_of(run), 980, 74)
    for row in layout.rows:
        places = [layout.area(spot) for spot in row.spots if spot.event.kind not in MARKS and spot.event.length]
        assert places
        for (x, y, width, height), (x2, y2, width2, height2) in combinations(places, 2):
            beside = x + width <= x2 + 1e-9 or x2 + width2 <= x + 1e-9
            assert beside or y + height <= y2 + 1e-9 or y2 + height2 <= y + 1e-9
            assert row.y <= y <= row.y + layout.row_height - height + 1e-9


def test_blocking_communication_stays_in_the_row() -> None:
    assert Layout(trace_of(staged_run()), 980, 74).tracks == 0
    assert Layout(trace_of(sharded_run()), 980, 74).tracks == 1


def test_ranks_share_a_row_only_above_sixteen_and_only_when_equal() -> None:
    def rows(count: int, odd: int | None = None) -> list[list[int]]:
        ranks = {rank: chain(rank, 6, offset=rank == odd) for rank in range(count)}
        return [row.ranks for row in rows_of(trace(*ranks.values()))]

    assert rows(16) == [[rank] for rank in range(16)]
    assert rows(17) == [list(range(17))]
    assert rows(17, odd=3) == [[rank for rank in range(17) if rank != 3], [3]]


def test_a_shared_row_knows_whether_its_micro_batches_differ() -> None:
    alike = rows_of(trace(*[chain(rank, 4) for rank in range(20)]))
    unlike = rows_of(trace(*[[event(rank, "forward", 0, 1, batches=[rank])] for rank in range(20)]))
    assert [row.same_batches for row in alike] == [True]
    assert [row.same_batches for row in unlike] == [False]


def test_idle_is_when_a_rank_neither_computes_nor_communicates() -> None:
    events = [event(0, "forward", 1, 2), event(0, "allgather", 1.5, 3), event(0, "end", 9, 9)]
    assert idle_spans(events, 5) == [(0, 1), (3, 5)]
    made = trace(events)
    assert made.time == 9
    assert made.hidden == pytest.approx(0.5 / 9)


@pytest.mark.parametrize("end", [1e-3, 0.3, 1, 7.3, 20.4, 99, 12345])
def test_ticks_are_round_and_inside(end: float) -> None:
    found = ticks(end)
    assert found[0] == 0
    assert 4 <= len(found) <= 14
    assert found[-1] <= end * (1 + 1e-6)
    assert max(len(f"{tick:g}") for tick in found) <= 7


@pytest.mark.parametrize("layers", [1, 2, 3, 6, 8, 12, 96])
def test_text_on_a_layer_can_be_read(layers: int) -> None:
    colors = [theme.layer_color(layer, layers) for layer in range(layers)]
    assert min(theme.contrast(theme.text_on(color), color) for color in colors) >= 4.5


@pytest.mark.parametrize("layers", [2, 3, 6, 8, 12])
def test_the_ramp_of_layers_brightens_all_the_way(layers: int) -> None:
    colors = [theme.luminance(theme.layer_color(layer, layers)) for layer in range(layers)]
    assert colors == sorted(set(colors))


def mixed(top: str, below: str, opacity: float) -> str:
    parts = ((int(top[at : at + 2], 16), int(below[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a * opacity + b * (1 - opacity)):02x}" for a, b in parts)


@pytest.mark.parametrize("page", [0, 1])
def test_everything_written_can_be_read_on_both_pages(page: int) -> None:
    roles = {role: colors[page] for role, colors in theme.ROLES.items()}
    for ink in ("ink", "mute", "good", "bad"):
        assert theme.contrast(roles[ink], roles["card"]) >= 4.5, ink
    assert theme.contrast(roles["card"], roles["step"]) >= 4.5
    for kind in theme.BANDS:
        half = mixed(theme.work_color(kind, 0, 1), roles["lane"], theme.HALF)
        assert theme.contrast(roles["ink"], half) >= 4.2


def test_signs_stand_out_on_their_boxes() -> None:
    for kind in theme.GLYPHS:
        color = theme.kind_color(kind)
        assert theme.contrast(theme.text_on(color), color) >= 4.5, kind


def test_roles_are_known_by_their_light_color() -> None:
    light = [color for color, _ in theme.ROLES.values()]
    fixed = {color for _, color in theme.MEMORY.values()} | {theme.text_on("#000000"), theme.text_on("#ffffff")}
    fixed |= {theme.layer_color(layer, layers) for layers in range(1, 97) for layer in range(layers)}
    assert len(set(light)) == len(light)
    assert not fixed & set(light)


def test_every_kind_has_a_name_and_every_memory_a_color() -> None:
    assert set(theme.MEMORY) == set(MEMORY_KINDS)
    known = {*OPERATIONS, *TRACED, "collective", "message"}
    assert set(theme.OPERATION_COLORS) | set(training()) <= known
    assert all(theme.kind_color(kind) != theme.MUTE for kind in OPERATIONS if kind not in training())
    assert {kind for kind in OPERATIONS if theme.glyph_of(kind)} == set(in_stream("collective", "message"))


def test_only_marks_svg_and_figure_know_chalk() -> None:
    folder = Path(drawing.__file__).parent
    knowing = set()
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "chalk" in text or "colour" in text else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.split(".")[0] in ("chalk", "colour") for name in names):
                knowing.add(path.stem)
    assert knowing == {"marks", "svg", "figure"}


def test_the_helpers_of_these_tests_see_what_lies_outside() -> None:
    from drawing import Figure
    from drawing.ink.marks import box, style

    outside = Figure([box(5, 5, 100, 2, style("#000000"))], 50, 50, "")
    assert max(x for x, _ in drawing_events.corners(outside)) == 105
