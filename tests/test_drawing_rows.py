"""The rows of a schedule: gaps and who is waited for, messages, and a legend that has every sign of the picture."""

import re
from functools import cache
from typing import Any

import pytest

from drawing import Figure, compare, draw, play
from drawing.ink import theme
from drawing.ink.trace import trace_of
from drawing.schedule.gaps import exposed, tints
from drawing.schedule.layout import CROWDED, FINE, HIDDEN, Layout
from drawing.schedule.links import links_of
from drawing.schedule.operations import is_drawn
from lib import Model, Run, run
from lib.basics.units import MS
from lib.course.specs import cost_named
from lib.record.events import MARKS
from lib.record.figures.waiting import Waiting, idle_spans
from lib.record.table import stream_of
from tests.drawing_events import (
    SVG,
    chain,
    data,
    event,
    operation_titles,
    parse,
    sharded_run,
    staged_run,
    texts,
    titles,
    trace,
)
from tests.programs import PATIENCE, solutions

SOLVED = list(solutions())
NAMES = [spec["name"] for _, spec in SOLVED]


@cache
def solved(name: str, **other: Any) -> Run:
    fn, spec = SOLVED[NAMES.index(name)]
    return run(fn, **(spec["size"] | other), cost=cost_named(spec.get("cost", "default")), timeout=PATIENCE)


@pytest.mark.parametrize(("fn", "spec"), list(solutions(small=True)), ids=NAMES)
def test_gaps_are_the_idle_time_and_each_ends_when_those_who_are_waited_for_have_come(fn: Any, spec: Any) -> None:
    trained = run(fn, **spec["size"], cost=cost_named(spec.get("cost", "default")), timeout=PATIENCE)
    made = trace_of(trained)
    waiting = Waiting(made.by_rank, made.time)
    for rank, events in made.by_rank.items():
        gaps = waiting.gaps(rank)
        spans = [span for span in idle_spans(events, made.time) if span[1] - span[0] > 1e-9]
        assert [(gap.start, gap.end) for gap in gaps] == spans
        for gap in gaps:
            assert gap.over == (gap.end == made.time and gap.call is None)
            assert gap.over or (gap.call is not None and gap.ranks and rank not in gap.ranks)
            for other in gap.ranks:  # who is waited for works until then: its last operation ends as the gap does
                ends = [one.end for one in made.by_rank[other] if one.kind not in MARKS]
                assert any(abs(end - gap.end) < 1e-6 for end in ends), (rank, gap)


def test_who_is_waited_for_is_written_into_the_gap_and_told_by_the_pointer() -> None:
    figure = draw(solved("gpipe"), memory=False)
    shown, said = texts(figure), titles(figure)
    assert {"waits 14.6 for rank 1", "waits 9.2 for rank 2", "waits 7 for rank 2", "done 7.6 early"} <= set(shown)
    assert "rank 0 waits for rank 1\nin receive, layer 1, micro-batch 0\ntick 8.8 to 23.4: 14.6 ticks" in said
    assert "rank 3 is done\ntick 26.2 to 33.8: 7.6 ticks" in said
    assert "rank 0 waits for rank 1\nin receive, layer 1, micro-batch 1\ntick 25.6 to 25.8: 0.2 ticks" in said
    assert not any("waits 0.2" in text for text in shown)


def test_several_ranks_are_waited_for_together() -> None:
    async def uneven(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([model.rank])
        for _ in range(1 if model.rank == 4 else 4):
            model.forward(0, model.activations[0], model.weights[0])
        await model.allreduce(model.fake_grad(0, []), 0)

    figure = draw(run(uneven, ranks=5, layers=1, batches=5), memory=False)
    assert "waits 3 for ranks 0-3" in texts(figure)
    in_rows = [text for text in texts(figure) if text.startswith("waits") and not text.endswith("%")]
    assert in_rows == ["waits 3 for ranks 0-3"]


def test_measured_times_have_gaps_in_milliseconds() -> None:
    done = solved("gpipe")
    events = [
        one._replace(issued=7 * one.start, start=7 * one.start, end=7 * one.end) if one.kind not in MARKS else one
        for one in done.events
    ]
    by_rank = {rank: [one for one in events if one.rank == rank] for rank in range(4)}
    said = texts(draw(trace(*by_rank.values(), layers=8, unit=MS), memory=False))
    assert "waits 102 ms for rank 1" in said
    assert "bubble: waits, or is between operations" in said and "bubble: waits, or is done" not in said


def test_time_in_which_nobody_is_waited_for_is_not_called_waiting() -> None:
    events = [event(0, "forward", 0, 1), event(0, "forward", 9, 10)]
    figure = draw(trace(events), memory=False)
    assert "rank 0 does nothing\ntick 1 to 9: 8 ticks" in titles(figure)
    assert not any(re.match(r"waits \d", text) for text in texts(figure))


def test_ranks_that_share_a_row_name_only_whom_all_of_them_wait_for() -> None:
    async def late(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([model.rank])
        if model.rank % 2 == 0:
            for _ in range(4):
                model.forward(0, model.activations[0], model.weights[0])
        if model.rank % 2 == 0:
            await model.pass_to(model.rank + 1, model.activations[0])
        else:
            await model.receive()

    figure = draw(run(late, ranks=20, layers=1, batches=20), memory=False)
    assert "wait 4.2" in " ".join(texts(figure))
    assert not any("for rank" in text for text in texts(figure))


def test_the_player_says_the_same_as_the_gaps() -> None:
    done = solved("gpipe")
    shown = data(play(done))
    told = {f"{row['name']} {shown['words'][words]}" for row in shown["rows"] for _, _, words in row["gaps"]}
    said = {one.split("\n")[0] for one in titles(draw(done)) if re.match(r"rank \d (waits|is done)", one)}
    assert told == said and "rank 0 waits for rank 1" in told
    first = shown["rows"][0]["gaps"][0]
    assert first[:2] == pytest.approx([8.8, 23.4])


def test_neighbors_that_are_as_idle_are_told_once() -> None:
    figure = draw(staged_run(1), memory=False)
    assert texts(figure).count("bubble 0%") == 1
    said = [text for text in texts(draw(solved("gpipe"), memory=False)) if text.startswith("bubble ")]
    assert said == ["bubble 45%", "bubble 40%", "bubble 45%"]


def test_a_message_between_computes_is_a_thin_bar_a_send_above_and_a_receive_below() -> None:
    layout = Layout(trace_of(staged_run()), 980, 74)
    for spot in (spot for row in layout.rows for spot in row.spots if spot.event.kind not in MARKS):
        x, y, width, height = layout.shape(spot)
        top, middle = spot.row.y, spot.row.y + layout.height / 2
        least, most = {"pass_to": (top, middle), "receive": (middle, top + layout.height)}.get(
            spot.event.kind, (top, top + layout.height)
        )
        assert (height < layout.height / 2) == (spot.event.stream == "message") and least <= y < y + height <= most
        assert (x, width) == layout.area(spot)[::2]


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b", "interleaved", "zero_bubble"])
def test_by_themselves_only_late_messages_have_arrows_and_the_pointer_asks_for_the_others(name: str) -> None:
    layout = Layout(trace_of(solved(name)), 980, 74)
    found, layout.links = links_of(layout), "p2p"
    every = links_of(layout).arrows
    unseen = [one for one in every if not any(is_drawn(end.event) for end in one)]
    assert {*found.arrows, *found.on_hover, *unseen} == {*every}
    on_hover = max((one.waits for one in found.on_hover), default=0)
    assert not found.arrows or min(one.waits for one in found.arrows) > on_hover
    figure = draw(solved(name), memory=False)
    asked = [one for one in parse(figure).iter(SVG + "path") if one.get("class") == "a"]
    assert len(asked) == len(found.on_hover) and (asked or unseen)
    assert all(one.get("fill") == "none" and one.get("stroke") is None for one in asked)
    assert ".m:hover>.a{" in figure.svg()
    assert not [one for one in parse(draw(solved(name), links="none")).iter(SVG + "path") if one.get("class") == "a"]


RUNS: dict[str, Any] = {
    **{name: (lambda name=name: draw(solved(name))) for name in NAMES},
    **{f"{name}, chain": (lambda name=name: draw(solved(name), chain=True)) for name in ("gpipe", "fsdp", "ddp")},
    **{f"{name}, all": (lambda name=name: draw(solved(name), links="all")) for name in ("gpipe", "pipeline_fsdp")},
    **{f"{name}, none": (lambda name=name: draw(solved(name), links="none")) for name in ("gpipe", "fsdp")},
    "32 ranks": lambda: draw(sharded_run(32, 2)),
    "crowded": lambda: draw(solved("gpipe", ranks=16, layers=16, batches=16)),
    "coarse": lambda: draw(solved("gpipe", ranks=16, layers=32, batches=64)),
    "compared": lambda: compare(solved("gpipe"), solved("one_f_one_b", ranks=4, layers=8, batches=4)),
}


def signs(figure: Figure, end: float) -> set[str]:
    """The signs that are seen above ``end``, told from the shapes."""
    ties = {theme.kind_color(kind) for kind in theme.GLYPHS if stream_of(kind) == "collective"}
    found = set()
    for one in parse(figure).iter():
        fill, stroke, width = one.get("fill"), one.get("stroke"), one.get("stroke-width")
        path = one.get("d", "")
        y = float(one.get("y") or (re.search(r"^M[\d.]+ ([\d.]+)", path) or ["", "0"])[1])
        if y >= end:
            continue
        if theme.GAP in (fill, stroke):
            found.add("bubble: waits, or is done")
        if stroke == theme.ARROW and width == "1":
            found.add("from send to receive")
        if stroke in ties and width == "1.6":
            found.add("joins the ranks of a collective")
        if stroke == theme.CARD and width == "1.2":
            found.add("notch: the next layer")
        if stroke == theme.CHAIN:
            found.add("the longest chain (all else is pale)")
    return found


@pytest.mark.parametrize("name", RUNS)
def test_every_sign_of_a_picture_is_in_its_legend_and_no_other(name: str) -> None:
    figure = RUNS[name]()
    shown = [(float(one.get("y", 0)), one.text or "") for one in parse(figure).iter(SVG + "text")]
    known = {
        "bubble: waits, or is done",
        "from send to receive",
        "joins the ranks of a collective",
        "notch: the next layer",
        "the longest chain (all else is pale)",
    }
    axis = min(y for y, text in shown if text in ("ticks", "s") and y > 90)
    assert {plain for _, text in shown if (plain := text.replace("a late ", "")) in known} == signs(figure, axis)


@pytest.mark.parametrize("page", [0, 1])
def test_what_is_written_into_gaps_can_be_read_and_gaps_be_seen(page: int) -> None:
    roles = {role: colors[page] for role, colors in theme.ROLES.items()}
    assert theme.contrast(roles["waits"], roles["gap"]) >= 4.5
    assert theme.contrast(roles["gap"], roles["card"]) >= 1.15


def test_where_more_time_is_lost_to_communication_than_to_waiting_rows_say_how_much_they_compute() -> None:
    """Beside 79 percent of only communicating, "bubble 0%" would read as a perfect run."""
    for name, said in (("hpz", "computes 22%"), ("gpipe", "bubble 45%"), ("fsdp", "computes 74%")):
        figure = draw(solved(name), memory=False)
        assert said in texts(figure)
        assert any("bubble" in text for text in texts(figure)) != ("computes" in said), name
    folded = texts(draw(sharded_run(64, 60)))
    assert "64 ranks" in folded and "computes 81%" in folded


def bars(figure: Figure, color: str, opacity: float | None = None) -> float:
    """The total length of horizontal bars of a color, in pixels."""
    found = 0.0
    for one in parse(figure).iter(SVG + "path"):
        if one.get("stroke") == color and one.get("stroke-opacity") == (opacity and str(opacity)):
            found += sum(float(length) for length in re.findall(r"h([\d.]+)", one.get("d", "")))
    return found


def test_a_picture_that_would_be_crowded_folds_ranks_that_do_the_same_from_eight_on() -> None:
    for ranks, rows in ((7, 7), (8, 1), (16, 1)):
        layout = Layout(trace_of(sharded_run(ranks, 60)), 980, 74)
        assert len(layout.rows) == rows and layout.folded == (rows == 1)
    assert len(Layout(trace_of(sharded_run(8, 3)), 980, 74).rows) == 8  # there is room
    assert len(Layout(trace_of(sharded_run(8, 60)), 980, 74, fold=False).rows) == 8


def test_all_collectives_of_folded_ranks_are_below_their_computes() -> None:
    layout = Layout(trace_of(sharded_run(16, 40)), 980, 74)
    [row] = layout.rows
    collectives = {track for one, track in zip(row.events, row.tracks, strict=True) if one.stream == "collective"}
    assert layout.fine and collectives == {1} and exposed(layout, row)


def test_what_is_hidden_and_what_is_exposed_are_told_apart_in_boxes() -> None:
    """Of a communication from 1 to 6 beside computes until 2 and from 4 to 5."""
    computes = [event(0, "forward", 0, 2), event(0, "forward", 4, 5), event(0, "forward", 8, 9)]
    one = Layout(trace([*computes, event(0, "allgather", 1, 6)]), 980, 74)
    assert exposed(one, one.rows[0]) == [(2, 4), (5, 6)]
    figure = draw(trace([*computes, event(0, "allgather", 1, 6)]), memory=False)
    assert bars(figure, theme.TALK, 0.5) == pytest.approx(3 * one.per_tick, abs=0.2)
    assert "only communicates" in texts(figure)
    alone = trace([*computes, event(0, "allgather", 2, 4)])
    assert "only communicates" not in texts(draw(alone, memory=False))  # its box is in the row itself


@pytest.mark.parametrize("layers", [1, 8])
def test_rows_without_boxes_have_a_lane_for_the_network(layers: int) -> None:
    """Half of its time hidden, a quarter exposed: as much of the lane, however short the operations are."""
    events = []
    for at in range(4000):
        start, layer = 4 * at, at % layers
        events += [event(0, "forward", start, start + 3, layer), event(0, "allgather", start + 1, start + 4, layer)]
    made = trace(events, layers=layers)
    layout = Layout(made, 980, 74)
    assert layout.network and not layout.fine
    high = [place[3] for leaf in tints(layout) for place in leaf.shape.items]
    assert high == [layout.height]  # a bubble has no strip of the network
    figure = draw(made, memory=False)
    wide = layout.x1 - layout.x0
    assert bars(figure, theme.TALK) == pytest.approx(wide, rel=0.02)
    assert bars(figure, theme.TALK, HIDDEN) == pytest.approx(wide, rel=0.02)
    tall = {one.get("stroke-opacity"): float(one.get("stroke-width", 0)) for one in parse(figure).iter()
            if one.get("stroke") == theme.TALK}  # fmt: skip
    assert tall[f"{HIDDEN}"] == pytest.approx(2 * tall[None]) and tall[None] * 4 <= layout.thin
    assert {"only communicates", "communicates, hidden by compute"} <= set(texts(figure))


def test_rows_of_computes_alone_have_no_lane() -> None:
    layout = Layout(trace(chain(0, 5000)), 980, 74)
    assert not layout.fine and not layout.network and layout.row_height == layout.height


LARGEST_OF_BOXES = 500_000
"""Bytes of a picture of boxes, of the usual width."""
NEAR = [
    ("gpipe", {"ranks": 16, "layers": 16, "batches": 32}),
    ("fsdp", {"ranks": 16, "layers": 31, "batches": 16}),
    ("pipeline_fsdp", {"ranks": 16, "layers": 40, "batches": 4}),
]
"""Sizes a little below and above the limit."""


@pytest.mark.long
@pytest.mark.parametrize(("name", "size"), NEAR, ids=[f"{name} {size['batches']}" for name, size in NEAR])
def test_pictures_of_boxes_are_small_up_to_the_limit(name: str, size: dict[str, int]) -> None:
    grows = "layers" if "fsdp" in name else "batches"
    step = 4 if name == "pipeline_fsdp" else 1
    for number in range(size[grows] + 2 * step, 0, -step):
        done = solved(name, **size | {grows: number})
        count = sum(one.kind not in MARKS for one in done.events)
        if count <= FINE:
            break
    assert count > 0.9 * FINE
    size = len(draw(done)._repr_html_())
    assert size <= LARGEST_OF_BOXES and (size > LARGEST_OF_BOXES / 2.5 or Layout(trace_of(done), 980, 74).folded)


def test_a_crowded_picture_still_tells_what_each_operation_is_and_when() -> None:
    done = solved("gpipe", ranks=16, layers=16, batches=16)
    count = sum(one.kind not in MARKS for one in done.events)
    assert CROWDED < count <= FINE
    figure = draw(done)
    said = titles(figure)
    layout = Layout(trace_of(done), 980, 74)
    messages = len(links_of(layout).on_hover)
    told = [one for one in operation_titles(figure) if not re.search("waits for|is done", one)]
    assert len(told) == count - messages  # the two ends of a message are told at once
    assert "rank 3: forward, micro-batch 5\ntick 11.2 to 12.2" in said, said[200:230]
    assert any(re.match(r"rank 3 to rank 4, micro-batch 5\ntick [\d.]+ to [\d.]+$", one) for one in said)
    root = parse(figure)
    assert sum(one.get("class") == "m" for one in root.iter(SVG + "g")) == messages


def test_many_narrow_operations_are_shares_of_a_column() -> None:
    """One forward, two backwards and as long a wait, again and again: a quarter, a half and a quarter of the height."""
    events = [
        event(0, kind, 4 * at + start, 4 * at + end, 0, [at % 4])
        for at in range(2000)
        for kind, start, end in (("forward", 0, 1), ("backward", 1, 3))
    ]
    layout = Layout(made := trace(events), 980, 74)
    assert not layout.fine
    figure = draw(made, memory=False)
    for kind, share in (("forward", 0.25), ("backward", 0.5)):
        colors = {theme.work_color(kind, at, 4) for at in range(4)}
        shown = [one for one in parse(figure).iter(SVG + "path") if one.get("stroke") in colors]
        assert {float(one.get("stroke-width", 0)) for one in shown} == {layout.height * share}
        long = sum(float(length) for one in shown for length in re.findall(r"h([\d.]+)", one.get("d", "")))
        assert long == pytest.approx(layout.x1 - layout.x0, rel=0.02)
    assert "height: how much of the time" in texts(figure)
    assert "height: how much of the time" not in texts(draw(staged_run(32, 64)))  # these are wide enough


def test_chunks_of_a_rank_have_feet_of_their_own() -> None:
    done = solved("interleaved")
    layout = Layout(trace_of(done), 980, 74)
    assert [row.chunks for row in layout.rows] == [{at: 0, at + 4: 1} for at in range(4)]
    figure = draw(done, memory=False)
    feet = [one for one in parse(figure).iter(SVG + "rect")
            if one.get("fill") == theme.INK and one.get("fill-opacity") == "0.55"]  # fmt: skip
    second = [
        one for one in done.events if one.kind in ("forward", "backward") and one.layer is not None and one.layer > 3
    ]
    assert len(feet) == len(second) + 1  # and in the legend
    assert "foot: the rank's next chunk of layers" in texts(figure)
    assert not any("foot" in text for text in texts(draw(solved("one_f_one_b"), memory=False)))


def test_colors_show_the_order_among_a_ranks_own_micro_batches() -> None:
    """Of replicas of a pipeline, each with many micro-batches, every one goes from dark to light."""
    made = trace(
        [event(0, "forward", at, at + 1, 0, [at]) for at in range(4)],
        [event(1, "forward", at, at + 1, 1, [at]) for at in range(4)],
        [event(2, "forward", at, at + 1, 0, [at + 4]) for at in range(4)],
        [event(3, "forward", at, at + 1, 1, [at + 4]) for at in range(4)],
        batches=8,
    )
    assert made.order == ({at: at % 4 for at in range(8)}, 4)
    few = trace(*([event(rank, "forward", 0, 1, 0, [rank])] for rank in range(4)))
    assert few.order == ({at: at for at in range(4)}, 4)
