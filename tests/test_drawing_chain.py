"""The longest chain in a picture: a line through its boxes, a sum in the head, everything else pale."""

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from drawing import Trace, draw, play
from drawing.ink import theme
from drawing.ink.trace import trace_of, with_chain
from drawing.schedule.layout import Layout
from drawing.schedule.overlays import FADED, draw_chain, stops
from lib import Model, PuzzleError, run
from lib.basics.units import MS
from lib.course.specs import cost_named
from lib.record.events import MARKS
from lib.record.figures.chain import chain_of
from tests.drawing_events import SVG, chain, event, parse, sharded_run, staged_run, texts, titles, trace
from tests.programs import solutions, solved

ALL = [pytest.param(fn, spec, id=spec["name"]) for fn, spec in solutions(small=True)]
SUM = "33.8 = 14 forward + 14 backward + 4.8 messages + 1 update"


def laid_out(done: Any) -> Layout:
    return Layout(with_chain(trace_of(done), True), 980.0, 74.0)


def line_of(figure: Any) -> list[ElementTree.Element]:
    """The strokes in the color of the chain, the legend's among them."""
    return [one for one in parse(figure).iter(SVG + "path") if one.get("stroke") == theme.CHAIN]


def test_the_sum_stands_in_the_head_in_the_words_and_over_the_line() -> None:
    figure = draw(solved("gpipe"), chain=True)
    assert f"the longest chain, in ticks: {SUM}" in texts(figure)
    assert f"The longest chain of operations that wait for each other: {SUM}." in figure.summary
    assert titles(figure).count(f"the longest chain, in ticks: {SUM}") == 2  # in the head, and the line
    assert "the longest chain (all else is pale)" in texts(figure)
    assert len(line_of(figure)) == 2


@pytest.mark.parametrize(("fn", "spec"), ALL)
def test_the_line_goes_from_tick_0_to_the_end_through_the_boxes_of_the_chain(fn: Any, spec: dict[str, Any]) -> None:
    layout = laid_out(run(fn, **spec["size"], cost=cost_named(spec.get("cost", "default"))))
    if not layout.fine:  # where operations have no boxes of their own, the chain is told in the head only
        assert draw_chain(layout) == []
        return
    (corners,) = draw_chain(layout)[0].diagram.diagrams[1].shape.items  # type: ignore[attr-defined]
    assert corners[0][0] == pytest.approx(layout.x0) and corners[-1][0] == pytest.approx(layout.x1)
    for (x0, y0), (x1, y1) in pairwise(corners):
        assert x1 >= x0 - 1e-6 and (x1 == pytest.approx(x0) or y1 == y0)  # along a row, or from one to another
    rows = [(row.y, row.y + layout.row_height) for row in layout.rows]
    assert all(any(top <= y <= bottom for top, bottom in rows) for _, y in corners)
    chain = layout.trace.chain
    assert chain is not None
    for pair, link in zip(stops(layout), chain.links, strict=True):
        for stop, one in zip(pair, link, strict=True):
            assert one.rank in stop.row.ranks
            assert (stop.event.kind, stop.event.start, stop.event.end) == (one.kind, one.start, one.end)


def test_all_operations_but_those_of_the_chain_are_pale() -> None:
    done = solved("gpipe")
    groups = parse(draw(done, chain=True)).iter(SVG + "g")
    pale = [box for one in groups if one.get("opacity") == f"{FADED:g}" for box in one.iter(SVG + "rect")]
    on_chain = {id(event) for event in chain_of(done.events).events}
    others = [one for one in done.events if one.kind not in MARKS and one.length and id(one) not in on_chain]
    assert len(pale) == len(others) > 0
    assert "opacity=" not in draw(done).svg().replace("-opacity=", "")


def test_ranks_that_share_a_row_share_the_line() -> None:
    layout = laid_out(sharded_run(32, 2))
    assert len(layout.rows) == 1 and len(stops(layout)) > 5 and draw_chain(layout)


def test_a_collective_leads_from_the_rank_that_comes_last_to_the_one_that_goes_on() -> None:
    def turns(model: Model) -> Any:
        async def body() -> None:
            weight, _ = model.load_weights(0)
            model.activations[0] = model.get_activation([model.rank])
            model.weights[0] = weight
            for _ in range(1 + 2 * model.rank):
                model.forward(0, model.activations[0], model.weights[0])
            await model.allreduce(model.fake_grad(0, []), 0)
            for _ in range(3 - 2 * model.rank):
                model.forward(0, model.activations[0], model.weights[0])

        return body()

    layout = laid_out(run(turns, ranks=2, layers=1, batches=2))
    assert str(layout.trace.chain) == "6.3 = 6 forward + 0.3 all-reduce"
    [meeting] = [pair for pair in stops(layout) if pair[0].row != pair[1].row]
    assert [end.row.ranks for end in meeting] == [[1], [0]]


def test_hover_texts_tell_how_much_longer_an_operation_may_take() -> None:
    async def uneven(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([model.rank])
        for _ in range((3, 1, 3)[model.rank]):
            model.forward(0, model.activations[0], model.weights[0])
        await model.allreduce(model.fake_grad(0, []), 0)

    done = run(uneven, ranks=3, layers=1, batches=3)
    last = {}
    for title in titles(draw(done, chain=True)):
        if ": forward" in title:
            last[title.split(":")[0]] = title.split("\n")[-1]
    assert last == {
        "rank 0": "on the longest chain",
        "rank 1": "may take 2 ticks more, with all in this order, and the run takes as long",
        "rank 2": "on another chain that is as long",
    }
    assert not any("chain" in title or "may take" in title for title in titles(draw(done)))


def test_a_picture_without_boxes_has_the_sum_only() -> None:
    done = staged_run(4, 200)
    figure = draw(done, chain=True)
    assert f"the longest chain, in ticks: {chain_of(done.events)}" in texts(figure)
    assert line_of(figure) == [] and "the longest chain (all else is pale)" not in texts(figure)


def test_it_is_shown_by_itself_where_a_right_run_is_over_its_target_in_time() -> None:
    done = solved("gpipe")
    slow = draw(done, time_target=33.7)
    assert f"the longest chain, in ticks: {SUM}" in texts(slow)
    shown = {"met": draw(done), "at the target": draw(done, time_target=33.8), "unwanted": draw(
        done, time_target=33.7, chain=False
    ), "played": play(done)}  # fmt: skip
    for name, other in shown.items():
        text = other.page if name == "played" else other.svg()  # type: ignore[union-attr]
        assert "the longest chain, in ticks: " not in text, name


def test_it_is_not_shown_by_itself_of_what_is_wrong_or_unknown() -> None:
    wrong = trace(chain(0, 3), time_target=1, fault="does not train the model")
    holes = trace([event(0, "forward", 1, 2)], time_target=1)
    measured = trace(chain(0, 3), time_target=1, unit=MS)
    for one in (wrong, holes, measured):
        assert with_chain(one, None) is one
    assert with_chain(trace(chain(0, 3), time_target=1), None).chain is not None


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (lambda: trace(chain(0, 3), unit=MS), "measured"),
        (lambda: trace([event(0, "forward", 1, 2)]), "nothing explains why forward begins when it does"),
        (lambda: staged_run().models[2], "nothing explains why receive begins when it does"),
    ],
)
def test_a_chain_that_cannot_be_known_is_refused(source: Any, says: str) -> None:
    made: Trace | Model = source()
    with pytest.raises(PuzzleError, match=says):
        draw(made, chain=True)
    assert draw(made).svg()


def test_a_run_that_failed_has_a_chain_up_to_there() -> None:
    async def stops_early(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        if model.rank == 0:
            model.forward(0, model.activations[0], model.weights[0])
            await model.pass_to(1, "x")
            await model.receive()
        never = model.allreduce(model.fake_grad(0, []), 0)
        await model.receive()
        model.forward(0, model.activations[0], model.weights[0])
        await never

    with pytest.raises(PuzzleError) as caught:
        run(stops_early, ranks=2, layers=1, batches=1)
    assert caught.value.run is not None
    assert "the longest chain, in ticks: 2.4 = 2 forward + 0.4 messages" in texts(draw(caught.value.run, chain=True))
