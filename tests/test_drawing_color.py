"""What colors tell: the layer, or in a pipeline the operation and the micro-batch."""

from __future__ import annotations

from collections import Counter

import pytest

from drawing import compare, draw, theme
from drawing.numbering import LEAST_CONTRAST
from drawing.trace import trace_of
from lib import PuzzleError
from lib.record.events import MARKS
from lib.record.table import training
from tests.drawing_events import SVG, event, operation_titles, parse, sharded_run, staged_run, texts, trace

# What people see who lack the middle cones (Viénot, Brettel, Mollon, 1999): linear RGB by a matrix.
WITHOUT_GREEN = ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0))


def linear(color: str) -> list[float]:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def without_green(color: str) -> list[float]:
    return [sum(part * channel for part, channel in zip(row, linear(color), strict=True)) for row in WITHOUT_GREEN]


def fills(figure: object) -> set[str]:
    """The colors of all boxes."""
    return {str(element.get("fill")) for element in parse(figure).iter(SVG + "rect")}  # type: ignore[arg-type]


def test_a_pipeline_is_colored_by_operation_and_all_else_by_layer() -> None:
    assert trace_of(staged_run(4, 4)).by_operation
    assert not trace_of(sharded_run(4, 3)).by_operation
    assert not trace_of(staged_run(4, 4).models[0]).by_operation  # one rank alone says nothing of the others
    forward = {theme.work_color("forward", batch, 4) for batch in range(4)}
    assert forward <= fills(draw(staged_run(4, 4)))
    assert not forward & fills(draw(staged_run(4, 4), color="layer"))
    assert {theme.layer_color(layer, 4) for layer in range(4)} <= fills(draw(staged_run(4, 4), color="layer"))
    assert {theme.work_color("forward", batch, 4) for batch in range(4)} <= fills(
        draw(sharded_run(4, 3), color="operation")
    )


def test_head_and_legend_have_the_color_of_the_boxes_where_there_is_one_micro_batch() -> None:
    shown = fills(draw(staged_run(4, 1)))
    only, first = theme.work_color("forward", 0, 1), theme.work_color("forward", 0, 2)
    assert only in shown and first not in shown


@pytest.mark.parametrize("color", ["layers", "", None, 3])
def test_another_color_is_refused(color: object) -> None:
    with pytest.raises(PuzzleError, match="no such color") as refused:
        draw(staged_run(2, 2), color=color)  # type: ignore[arg-type]
    assert refused.value.expected == "one of auto, layer, operation"


@pytest.mark.parametrize("batches", [1, 2, 4, 8, 16, 64, 256])
def test_numbers_are_readable_and_later_micro_batches_lighter(batches: int) -> None:
    for kind in [*training(), "an operation that was added"]:
        colors = [theme.work_color(kind, batch, batches) for batch in range(batches)]
        assert min(theme.contrast(theme.text_on(color), color) for color in colors) >= LEAST_CONTRAST
        light = [theme.luminance(color) for color in colors]
        assert light == sorted(light) and len(set(colors)) >= min(batches, 64)


@pytest.mark.parametrize("other", ["backward", "backward_input"])
@pytest.mark.parametrize("batch", range(8))
def test_forward_and_backward_differ_without_green_too(other: str, batch: int) -> None:
    (*_, blue), (*_, orange) = (without_green(theme.work_color(kind, batch, 8)) for kind in ("forward", other))
    assert blue > 4 * orange  # one is blue, the other a yellow of the same lightness


def test_layers_of_a_micro_batch_are_one_box_and_keep_their_hover_texts() -> None:
    stages = [
        [event(rank, "forward", 2 * rank + at, 2 * rank + at + 1, 2 * rank + at % 2, [at // 2]) for at in range(4)]
        for rank in range(2)
    ]
    made = trace(*stages, layers=4, batches=2)
    assert made.by_operation
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
    apart = [
        float(element.get("width", 0))
        for element in parse(draw(made, memory=False, color="layer")).iter(SVG + "rect")
        if element.get("fill") == theme.layer_color(0, 4)
    ]
    assert max(wide) > 1.9 * max(apart) > 0


def test_schedules_side_by_side_have_one_kind_of_color() -> None:
    assert "micro-batches, from the first to the last" in texts(compare(staged_run(4, 4), staged_run(2, 4)))
    mixed = texts(compare(staged_run(4, 4), sharded_run(4, 4)))
    assert "layers" in mixed and "micro-batches, from the first to the last" not in mixed


def test_the_legend_says_what_colors_tell() -> None:
    assert "micro-batches, from the first to the last" in texts(draw(staged_run(4, 4)))
    assert "layers" in texts(draw(staged_run(4, 4), color="layer"))
    assert "layers" not in texts(draw(staged_run(4, 4)))
    assert not any("micro-batches, from" in text for text in texts(draw(staged_run(4, 1))))
