"""Pictures of runs: structure, not pixels."""

import base64
import re
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import chalk
import pytest
from chalk.backend.svg import render as chalk_render
from hypothesis import given, settings
from hypothesis import strategies as st

from drawing import Figure, Trace, draw
from drawing.ink import theme
from drawing.ink.letters import text_width
from drawing.ink.trace import trace_of
from drawing.schedule.layout import FINE, Layout
from drawing.schedule.memory import steps_of
from drawing.schedule.peak import why_highest
from drawing.schedule.picture import LARGEST
from lib import Cost, Model, PuzzleError, Run, run
from lib.course.specs import cost_named
from lib.record.events import MARKS
from solutions.p26_ring_attention import ring_in_order
from tests.drawing_events import (
    SVG,
    chain,
    corners,
    event,
    operation_titles,
    outside,
    parse,
    sharded,
    sharded_run,
    staged_run,
    texts,
    titles,
    trace,
)
from tests.programs import solutions, solved
from tests.slow import EVERYTHING


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
        event(0, "unheard_of", 6, 7),
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
    "one narrow": lambda: draw(staged_run(1, 2), width=560),
    "chain": lambda: draw(staged_run(), chain=True),
    "chain in shared rows": lambda: draw(sharded_run(32, 2), chain=True),
    "no memory": lambda: draw(staged_run(), memory=False, links="none"),
    "not attempted": lambda: draw(run(lambda model: model)),
    "no time": lambda: draw(trace([event(0, "loss", 0, 0)])),
    "nothing held": lambda: draw(trace([event(0, "forward", 0, 1, held=(0,) * 7)])),
    "many layers": lambda: draw(trace(chain(0, 60, layers=40), layers=40)),
}


@pytest.fixture(scope="module", params=FIGURES)
def figure(request: pytest.FixtureRequest) -> Figure:
    made: Figure = FIGURES[request.param]()
    return made


def test_it_is_well_formed_and_refers_to_nothing_outside(figure: Figure) -> None:
    root, svg = parse(figure), figure.svg()
    assert root.tag == SVG + "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == figure.summary
    assert re.findall(r"\w+://[^\"' ]*", svg) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in svg
    assert "href" not in svg
    assert [element.tag for element in root.iter() if "style" in element.attrib] == []  # a sanitizer drops it


def test_nothing_lies_outside_the_view_box(figure: Figure) -> None:
    left, top, width, height = map(float, parse(figure).get("viewBox", "").split())
    assert (left, top) == (0, 0)
    assert (width, height) == pytest.approx(figure.size, abs=0.01)
    points = list(corners(figure))
    assert points
    assert [(x, y) for x, y in points if not (0 <= x <= width and 0 <= y <= height)] == []


def test_texts_do_not_run_out_of_the_picture(figure: Figure) -> None:
    for element in parse(figure).iter(SVG + "text"):
        if element.get("text-anchor") == "start" and float(element.get("x", 0)) > figure.size[0] / 2:
            width = text_width(element.text or "", float(element.get("font-size", 0)))
            assert float(element.get("x", 0)) + width <= figure.size[0], element.text


def test_chalks_own_renderer_draws_it(tmp_path: Path) -> None:
    chalk_render(draw(EVERY_KIND), str(tmp_path / "stock.svg"), height=300)
    assert (tmp_path / "stock.svg").read_text(encoding="utf-8").count("<path") > 0


# -- what is shown -------------------------------------------------------------------------


def test_hover_texts_tell_who_what_and_when() -> None:
    said = titles(draw(EVERY_KIND))
    assert any(title.startswith("rank 0: forward, layer 0, micro-batch 0\ntick 0 to 1\n") for title in said), said
    assert any("send" in title and "from rank 0 to rank 1" in title for title in said)
    assert any("all-gather" in title and "Weight, 4 elements\namong ranks 0, 1" in title for title in said)


def test_an_operation_that_nobody_has_given_a_look_is_drawn_and_explained() -> None:
    figure = draw(EVERY_KIND)
    assert any(title.startswith("rank 0: unheard_of") for title in titles(figure))
    assert "unheard_of" in texts(figure)


def test_the_legend_names_what_occurs_and_nothing_else() -> None:
    shown = texts(draw(sharded_run()))
    for name in ("forward (number: layer)", "loss", "backward", "update", "all-gather", "reduce-scatter"):
        assert shown.count(name) == 1, name
    for name in ("all-reduce", "send", "receive", "bubble: waits, or is done", "messages not received yet", "target"):
        assert shown.count(name) == 0, name
    staged = texts(draw(staged_run()))
    assert {"send", "receive", "messages not received yet", "bubble: waits, or is done"} <= set(staged)


def test_it_is_said_why_one_rank_takes_longer_and_holds_more_than_another() -> None:
    in_order = run(ring_in_order, ranks=4, layers=2, batches=1, cost=cost_named("all_heads"))
    why = why_highest(trace_of(in_order))
    assert why.startswith("Memory of rank 3") and why.endswith("above all by messages not received yet.")
    said = [text for text in texts(draw(in_order)) if text.endswith(" (longer where queries see more keys)")]
    assert {text.partition(" (")[0] for text in said} == {"attention", "backward of attention"}
    assert "longer where" not in " ".join(texts(draw(solved("ring_attention"))))
    assert why_highest(trace_of(solved("gpipe"))).endswith(": more than rank 0 above all by 3 activations.")
    assert "more than" not in why_highest(trace_of(solved("fsdp")))


def test_micro_batches_are_written_into_the_boxes() -> None:
    shown = texts(draw(staged_run(2, 4), memory=False))
    for batch in "0123":  # two stages, forward and backward
        assert shown.count(batch) >= 4
    assert texts(draw(MANY, memory=False)).count("1") == 0  # no room


def test_the_head_compares_figures_with_targets_exactly() -> None:
    result = staged_run()
    met = draw(result, time_target=result.time, memory_target=result.memory)
    missed = draw(result, time_target=result.time - 1e-9, memory_target=result.memory - 1)
    assert "(target 19.3, met)" in met.summary
    assert met.summary.count("met)") == 2
    assert missed.summary.count("missed)") == 2
    assert f"{result.memory:,}" in texts(met)
    assert f"target {result.memory - 1:,}" in texts(missed)


@pytest.mark.parametrize(("fn", "spec"), list(solutions()), ids=[spec["name"] for _, spec in solutions()])
def test_a_puzzle_at_its_own_size_is_drawn_beside_its_targets(fn: Any, spec: dict[str, Any]) -> None:
    figure = draw(run(fn, **spec["size"], cost=cost_named(spec.get("cost", "default"))))
    assert figure.summary.count("met)") == 2
    told = "79 GB" if spec["name"] == "compose" else f"{spec['target']['memory']:,}"
    assert f"target {told}" in texts(figure)


def test_a_target_is_drawn_at_its_own_size_and_cost_only_or_as_asked() -> None:
    fn, spec = next((fn, spec) for fn, spec in solutions() if spec["name"] == "fsdp")
    larger = spec["size"] | {"layers": 2 * spec["size"]["layers"]}
    assert "target" not in draw(run(fn, **larger)).summary
    assert "target" not in draw(run(fn, **spec["size"], cost=Cost(forward=2))).summary
    assert "(target 1,000, met)" in draw(run(fn, **spec["size"]), time_target=1000).summary


def test_the_alternative_text_tells_figures_and_shape() -> None:
    words = draw(staged_run()).summary
    assert words.startswith("staged: 4 ranks, 4 layers, 4 micro-batches; time 19.3 ticks; peak memory 1,703,936")
    assert "Each rank runs 4 forward, 0 to 4 loss, 4 backward, 1 update, 4 to 8 send, 4 to 8 receive." in words
    assert "Ranks begin to compute at tick 0 to 4.2 and end at tick 14.7 to 19.3." in words


def test_memory_shows_each_profile_once_with_its_kinds() -> None:
    def held_at_first(figure: Figure) -> list[tuple[str, str]]:
        """The strips, and what each holds at tick 0 as the pointer reads it."""
        first = re.compile(r"(ranks? [\d-]+), (?:from )?tick 0(?:, with the most here)?: [\d,]+ elements\n(\w+) ")
        found = map(first.match, titles(figure))
        return [(one[1], one[2]) for one in found if one]

    assert held_at_first(draw(sharded_run(4))) == [("ranks 0-3", "weights")]
    assert sorted(held_at_first(draw(staged_run(4)))) == [(f"rank {rank}", "weights") for rank in range(4)]
    assert held_at_first(draw(staged_run(4), memory=False)) == []


def test_at_most_eight_profiles_are_shown_among_them_the_peak() -> None:
    ranks = [[event(rank, "forward", 0, 1, held=(rank, 0, 0, 0, 0, 0, 0))] for rank in range(1, 30)]
    ranks[17] = [event(17, "forward", 0, 1, held=(99, 0, 0, 0, 0, 0, 0))]
    figure = draw(trace(*ranks))
    assert "Memory, the rank with the peak first (8 of 29 different profiles)" in texts(figure)
    assert any(title.startswith("peak: 99 elements on rank 17 ") for title in titles(figure))
    assert sum(text.startswith("max ") for text in texts(figure)) == 8


def test_nodes_of_ranks_are_framed_and_named() -> None:
    figure = draw(sharded_run(4, node_size=2))
    assert {"node 0: ranks 0, 1", "node 1: ranks 2, 3"} <= set(titles(figure))
    assert not any(title.startswith("node ") for title in titles(draw(sharded_run(4))))


def test_a_frame_holds_ranks_of_its_own_node_only() -> None:
    odd = (0, 7, 8, 15)
    ranks = [chain(rank, 4, offset=rank in odd and 1 + rank) for rank in range(32)]
    layout = Layout(trace(*ranks, node_size=8), 980, 74)
    frames = [title for title in titles(draw(trace(*ranks, node_size=8))) if title.startswith("node ")]
    assert len(layout.rows) == 5
    assert frames == ["node 0: ranks 0", "node 0: ranks 7", "node 1: ranks 8, 15"]


def test_a_peak_at_the_very_end_can_be_seen() -> None:
    events = [event(0, "forward", 0, 9, held=(1, 0, 0, 0, 0, 0, 0)), event(0, "end", 9, 9, held=(5, 0, 0, 0, 0, 0, 0))]
    layout = Layout(trace(events), 980, 74)
    assert [held[0] for _, held in steps_of(layout, events)] == [1, 5]
    assert steps_of(layout, events)[-1][0] <= layout.x1 - 1


def test_arrows_find_their_receivers_in_shared_rows() -> None:
    async def cross(model: Model) -> None:
        if model.rank < 20:
            await model.pass_to(20 + (model.rank + 3) % 20, "hello")
        else:
            await model.receive()

    figure = draw(run(cross, 40), links="all")
    assert shafts(figure, theme.ARROW) == 1


@pytest.mark.parametrize("width", [560, 800])
def test_the_head_has_no_text_on_another_at_any_width(width: float) -> None:
    figure = draw(sharded_run(8, 6, node_size=4), width=width, time_target=1, memory_target=1, title="A title " * 9)
    head = [e for e in parse(figure).iter(SVG + "text") if float(e.get("y", 0)) < 112]
    places = []
    for element in head:
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        size = float(element.get("font-size", 0))
        if element.get("text-anchor") == "start" and x < width - 80 and size not in (9.0, 9.5, 11.0):
            places.append((x, x + text_width(element.text or "", size), y - size, y))
    assert len(places) >= 8
    for (a, b, top, low), (c, d, top2, low2) in combinations(places, 2):
        assert b <= c or d <= a or low <= top2 + 2 or low2 <= top + 2
    assert all(b <= width for _, b, _, _ in places)


def test_many_equal_ranks_share_a_row() -> None:
    result = sharded_run(32, 2)
    figure = draw(result)
    assert len(operation_titles(figure)) * 32 == operations(result)
    assert "32 ranks" in texts(figure)


def shafts(figure: Figure, color: str) -> int:
    """Straight lines of a color."""
    paths = (element for element in parse(figure) if element.tag == SVG + "path" and element.get("stroke") == color)
    return sum(path.get("d", "").count("M") for path in paths)


@pytest.mark.parametrize(("links", "count"), [("none", 0), ("p2p", 24), ("groups", 0), ("all", 24), ("auto", 0)])
def test_arrows_lead_from_sends_to_receives(links: str, count: int) -> None:
    figure = draw(staged_run(), links=links, memory=False)
    assert shafts(figure, theme.ARROW) == count
    heads = [e for e in parse(figure) if e.tag == SVG + "path" and e.get("fill") == theme.ARROW]
    assert len(heads) == count


@pytest.mark.parametrize("links", ["none", "p2p", "groups", "all", "auto"])
def test_ties_join_the_ranks_of_a_collective(links: str) -> None:
    result = sharded_run(4, 3)
    gathers = len({event.op for event in result.events if event.kind == "allgather"})
    ties = shafts(draw(result, links=links, memory=False), theme.OPERATION_COLORS["allgather"])
    assert ties == (0 if links in ("none", "p2p") else 3 * gathers)


# -- as a figure ---------------------------------------------------------------------------


def test_a_notebook_gets_one_picture_that_scales() -> None:
    from IPython.core.formatters import DisplayFormatter

    figure = draw(staged_run())
    data, _ = DisplayFormatter().format(figure)
    assert sorted(data) == ["text/html", "text/plain"]
    assert data["text/html"].count("<svg ") - data["text/html"].count('class="ltp narrow"') == 1
    assert 'style="max-width:100%;height:auto;vertical-align:top' in data["text/html"]
    assert len(data["text/plain"]) < 1000


def test_where_a_page_takes_the_picture_out_words_stay() -> None:
    figure = draw(staged_run(), title="a<b")
    shown = figure._repr_html_()
    root = ElementTree.fromstring(f"<body>{shown}</body>")
    words, live = root
    assert (words.text or "").startswith(figure.summary)
    assert "static=True" in (words.text or "")
    assert live.get("hidden") and "display:none" in live.get("style", "")
    assert [child.tag for child in live] == [*[SVG + "svg"] * 2, "style", "style"]
    assert ".ltp-live svg" in (live[-1].text or "")


def test_a_static_picture_is_an_image_with_words() -> None:
    figure = draw(staged_run(), static=True)
    image = ElementTree.fromstring(figure._repr_html_().replace('"></div>', '"/></div>'))[0]
    assert image.tag == "img"
    assert image.get("alt") == figure.summary
    kind, _, data = image.get("src", "").partition(",")
    assert kind == "data:image/svg+xml;base64"
    still = base64.b64decode(data).decode()
    _, wide, slim = [*ElementTree.fromstring(still)]
    assert (wide.get("class"), slim.get("class")) == ("wide", "slim")
    assert [one for part in wide for one in seen(part)] == [
        one for part in parse(figure) if part.tag != SVG + "style" for one in seen(part)
    ]
    assert figure.narrow is not None
    assert ["".join(one.itertext()) for one in slim.iter(SVG + "text")] == texts(figure.narrow)
    assert len(still) < 0.7 * len(figure.in_place())
    assert "<title>" in figure.svg() and "<title>" not in still and 'opacity="0"' not in still  # nobody can point there


def seen(element: ElementTree.Element) -> list[tuple[str, dict[str, str], str]]:
    """What can be seen of a picture, in order: no hover texts, and nothing that only a pointer finds."""
    if element.tag == SVG + "title" or "0" in (element.get("fill-opacity"), element.get("stroke-opacity")):
        return []
    if element.get("class") == "a":
        return []
    bare = element.tag == SVG + "g" and not (element.keys() and element.get("class") != "m")
    own = [] if bare else [(element.tag, dict(element.attrib), element.text or "")]
    return [*own, *(one for child in element for one in seen(child))]


def test_a_page_has_the_whole_title(tmp_path: Path) -> None:
    draw(staged_run(), title="GPipe: four ranks").save(tmp_path / "x.html")
    assert '<h1 class="unseen">GPipe: four ranks</h1>' in (tmp_path / "x.html").read_text(encoding="utf-8")
    with pytest.raises(PuzzleError, match="name of a file"):
        draw(staged_run()).save(None)  # type: ignore[arg-type]


def test_files_are_pictures_or_pages(tmp_path: Path) -> None:
    figure = draw(staged_run())
    figure.save(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert figure.in_place() in page
    for name, says in (("x.png", "no known ending"), ("no/x.svg", "cannot be written")):
        with pytest.raises(PuzzleError, match=says):
            figure.save(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.html"]


def test_a_file_has_a_view_box(tmp_path: Path) -> None:
    figure = draw(staged_run(), title="a<b> & \"c\" \x00\ud800 'd'")
    figure.save(tmp_path / "saved.svg")
    saved, (width, height) = (tmp_path / "saved.svg").read_text(encoding="utf-8"), figure.size
    assert f'viewBox="0 0 {width:g} {height:g}"' in saved and "a<b>" not in saved


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


def test_the_size_of_a_picture_is_bounded_by_its_pixels() -> None:
    ranks = 20 if EVERYTHING else 6
    small, large = (
        len(draw(trace(*(chain(rank, count, offset=rank) for rank in range(ranks)))).svg()) for count in (2_000, 16_000)
    )
    assert large < 2 * small


def test_detail_ends_where_events_are_too_many() -> None:
    assert len(operation_titles(draw(trace(chain(0, FINE))))) == FINE
    assert operation_titles(draw(trace(chain(0, FINE + 1)))) == []


def test_each_of_very_many_different_ranks_has_a_row() -> None:
    figure = draw(trace(*(chain(rank, 6, offset=rank) for rank in range(3000))), memory=False)
    lines = [title for title in titles(figure) if "operations, " in title]
    assert len(lines) == 3000 and figure.size[1] < 2000
    assert lines[0].startswith("rank 0: 6 operations, ")
    assert re.search(r", bubble [<>]?\d+%$", lines[0])


busy = st.tuples(
    st.sampled_from(["forward", "backward", "update", "allgather", "pass_to", "receive", "unheard_of"]),
    st.integers(0, 60),  # layer
    st.integers(1, 40),  # length
    st.integers(0, 3),  # gap before it
    st.frozensets(st.integers(0, 999), max_size=40),
)


@settings(max_examples=25 if EVERYTHING else 1, deadline=None)
@given(st.integers(1, 600), st.lists(busy, min_size=1, max_size=12), st.integers(1, 60), st.booleans())
def test_no_picture_is_too_large_for_a_notebook(ranks: int, kinds: list[Any], repeat: int, links: bool) -> None:
    def events(rank: int) -> list[Any]:
        clock, made = rank * 3.7, []
        for at in range(min(repeat * len(kinds), 24_000 // ranks + 1)):
            kind, layer, length, gap, batches = kinds[at % len(kinds)]
            held = ((at * 7919 + rank) % 97, (at * 31) % 89, at % 13, (at * 17 + rank) % 83, at % 7, at % 5, at % 3)
            op = (at, rank // 2) if kind in ("allgather", "pass_to", "receive") else None
            group = tuple(range(0, ranks, 2)) if kind == "allgather" else (rank, rank + 1)
            more = {"op": op, "group": group, "tensor": "Weight", "elements": 12345678} if op else {}
            made.append(event(rank, kind, clock + gap, clock + gap + length, layer, batches, held, **more))
            clock += gap + length
        return made

    figure = draw(trace(*map(events, range(ranks)), layers=61, batches=1000), links="all" if links else "auto")
    assert len(figure._repr_html_()) <= LARGEST
    assert figure.size[1] < 2000
    assert outside(figure) == []


@pytest.mark.parametrize("static", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_memory_of_any_shape_keeps_a_picture_small(static: bool) -> None:
    random = Random(1)
    ranks = [
        [
            event(rank, "forward", at, at + 1, at % 7, held=tuple(random.randrange(99) for _ in range(7)))
            for at in range(3000 if EVERYTHING else 800)
        ]
        for rank in range(4)  # with more ranks each row is told in less detail, and a picture is smaller
    ]
    made = trace(*ranks)
    assert len(draw(made, width=20_000, static=static)._repr_html_()) <= LARGEST


# -- what can be drawn ---------------------------------------------------------------------


def test_models_run_and_trace_give_the_same_picture() -> None:
    result = staged_run()
    from_run = draw(result, title="same").svg()
    assert draw(result.models, title="same").svg() == from_run
    assert draw(reversed(result.models), title="same").svg() == from_run
    ranks = [[event for event in result.events if event.rank == rank] for rank in range(4)]
    assert draw(trace(*ranks, title="same", models=result.models)).svg() == from_run


def test_some_of_the_models_can_be_drawn() -> None:
    result = staged_run()
    figure = draw(result.models[1:3])
    assert {"rank 1", "rank 2"} <= set(texts(figure))
    assert "rank 0" not in texts(figure)
    assert draw(result.models[2]).summary.startswith("schedule: rank 2 of 4, ")


def test_a_function_without_a_body_is_not_attempted_yet() -> None:
    def fsdp(model: Model) -> Model:
        return model

    figure = draw(run(fsdp, 4, 2, 4))
    assert texts(figure) == [figure.summary] == ["fsdp: not attempted yet"]
    assert draw(run(fsdp, 4, 2, 4), static=True)._repr_html_().count("<img ") == 1


async def _never_awaited(model: Model) -> Model:
    return await sharded(model)


@pytest.mark.parametrize(
    ("source", "passed"),
    [
        (None, "draw(run("),
        (sharded, "draw(run("),
        ([], "return model"),
        ([Model(), 3], "return model"),
        ([Model(), Model()], "return model"),
    ],
)
def test_anything_else_is_refused_with_what_to_pass(source: object, passed: str) -> None:
    with pytest.raises(PuzzleError, match="draw takes a Run, a profile, or the models of all ranks") as caught:
        draw(source)
    assert passed in caught.value.expected


def test_a_coroutine_is_refused_without_a_warning_later() -> None:
    with pytest.raises(PuzzleError, match="did you forget `await`"):
        draw(_never_awaited(Model()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"links": "some"},
        {"chain": "some"},
        {"width": 100},
        {"width": None},
        {"time_target": "x"},
        {"memory_target": [1]},
        {"memory_target": float("nan")},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PuzzleError):
        draw(Trace({0: chain(0, 2)}, 4, 4), **wrong)
