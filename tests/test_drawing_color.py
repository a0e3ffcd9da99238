"""What colors tell: the layer, or in a pipeline the operation and the micro-batch."""

from collections import Counter

import pytest

from drawing import compare, draw
from drawing.ink import theme
from lib import PuzzleError
from lib.record.events import MARKS
from lib.record.table import training
from tests.drawing_events import SVG, event, operation_titles, parse, sharded_run, staged_run, texts, trace

# What people see who lack the long or the middle cones (Viénot, Brettel, Mollon, 1999): linear RGB by a matrix.
WITHOUT_RED = ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0))
WITHOUT_GREEN = ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0))


def linear(color: str) -> list[float]:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def limited(color: str, by: tuple[tuple[float, ...], ...]) -> list[float]:
    return [sum(part * channel for part, channel in zip(row, linear(color), strict=True)) for row in by]


def fills(figure: object) -> set[str]:
    """The colors of all boxes."""
    return {str(element.get("fill")) for element in parse(figure).iter(SVG + "rect")}  # type: ignore[arg-type]


def test_colors_tell_the_operation_and_shades_the_micro_batch() -> None:
    for done in (staged_run(4, 4), sharded_run(4, 3)):
        assert {theme.work_color("forward", batch, 4) for batch in range(4)} <= fills(draw(done))


def test_head_and_legend_have_the_color_of_the_boxes_where_there_is_one_micro_batch() -> None:
    shown = fills(draw(staged_run(4, 1)))
    only, first = theme.work_color("forward", 0, 1), theme.work_color("forward", 0, 2)
    assert only in shown and first not in shown


def test_an_option_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(PuzzleError, match="no option color") as refused:
        draw(staged_run(2, 2), color="layer")
    assert refused.value.expected == "one of memory, links, title, time_target, memory_target, width, static, chain"


@pytest.mark.parametrize("batches", [1, 2, 4, 8, 16, 64, 256])
def test_numbers_are_readable_and_later_micro_batches_lighter(batches: int) -> None:
    for kind in [*training(), "an operation that was added"]:
        colors = [theme.work_color(kind, batch, batches) for batch in range(batches)]
        assert min(theme.contrast(theme.text_on(color), color) for color in colors) >= 4.5
        light = [theme.luminance(color) for color in colors]
        assert light == sorted(light)
        shades = 1 if theme.HUES.get(kind) not in (theme.ON, theme.BACK) else min(batches, 64)
        assert len(set(colors)) >= shades


@pytest.mark.parametrize("other", ["backward", "backward_input"])
@pytest.mark.parametrize("batch", range(8))
def test_forward_and_backward_differ_without_red_or_green_too(other: str, batch: int) -> None:
    for by in (WITHOUT_RED, WITHOUT_GREEN):
        (*_, blue), (*_, orange) = (limited(theme.work_color(kind, batch, 8), by) for kind in ("forward", other))
        assert blue > 4 * orange  # one is blue, the other a yellow of the same lightness


def test_layers_of_a_micro_batch_are_one_box_and_keep_their_hover_texts() -> None:
    stages = [
        [event(rank, "forward", 2 * rank + at, 2 * rank + at + 1, 2 * rank + at % 2, [at // 2]) for at in range(4)]
        for rank in range(2)
    ]
    made = trace(*stages, layers=4, batches=2)
    figure = draw(made, memory=False)
    done = [one for events in stages for one in events if one.kind not in MARKS]
    assert len(operation_titles(figure)) == len(done) == 8
    numbers = Counter(text for text in texts(figure) if text in "01")
    assert numbers["0"] >= 2 and "layers 0, 1" in texts(figure) and "layers 2, 3" in texts(figure)
    wide = [
        float(element.get("width", 0))
        for element in parse(figure).iter(SVG + "rect")
        if element.get("fill") == theme.work_color("forward", 0, 2)
    ]
    alone = draw(trace(*[[one for one in events if one.batches == {0}] for events in stages], layers=4), memory=False)
    assert texts(alone).count("0") >= 1 and len(operation_titles(alone)) == 4  # one micro-batch: numbers tell layers
    assert len(wide) == 3  # one box in each of two rows, and a sample in the legend


def test_the_legend_says_what_shades_and_numbers_tell() -> None:
    shades = "micro-batches, from the first to the last"
    assert {shades, "forward (number: micro-batch)"} <= set(texts(draw(staged_run(4, 4))))
    assert "forward (number: layer)" in texts(draw(sharded_run(4, 3)))
    assert shades not in texts(draw(staged_run(4, 1)))
    assert shades in texts(compare(staged_run(4, 4), sharded_run(4, 4)))
