"""Schedules for a web page, without head, targets and hover texts, in the same colors and with one legend for all."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from drawing.ink.figure import PHONE, Figure, at_any_width
from drawing.ink.texts import summary
from drawing.ink.trace import Trace, trace_of
from drawing.schedule.layout import PAD, Layout
from drawing.schedule.legend import Legend, draw_legend, legend_of
from drawing.schedule.memory import draw_total, most_memory
from drawing.schedule.picture import WIDTH, card
from drawing.schedule.timeline import axis, draw_timeline


def draw_schedule(source: object, rough: int = 0, family: Sequence[object] = (), *, alone: bool = False) -> Figure:
    """Return a schedule without head and legend, and the memory of the rank with the highest peak. ``rough``: 0 draws a
    box for each operation, 1 what fills most of each pixel, which takes fewer bytes for many operations. It is on the
    scale of all of its ``family``: of its longest for time, of its largest for memory. With ``alone`` it is an image
    with a legend of its own."""
    trace, others = _trace(source), [_trace(one) for one in family or [source]]
    until = max(one.until for one in others)

    def drawn(width: float) -> Figure:
        layout = Layout(trace, width, PAD, until, rough=rough, beside=others)
        total, y = draw_total(layout, layout.bottom + 5, most_memory(others))
        scale, y = axis(layout, y)
        legend, y = draw_legend(_legend([trace], width), width, y + 8) if alone else ([], y)
        return card([*draw_timeline(layout), *total, *scale, *legend], width, y + 8, summary(trace), title=trace.title)

    return at_any_width(drawn, WIDTH, PHONE, static=alone)


def in_files(name: str, figure: Figure) -> Iterator[tuple[Path, str]]:
    """The files of a picture that a page shows: as it is, and as it is in a narrow place."""
    for ending, one in {"": figure, "_narrow": figure.narrow}.items():
        if one is not None:
            yield Path("puzzles", f"{name}{ending}.svg"), one.svg() + "\n"


def draw_shared_legend(sources: Sequence[object]) -> Figure:
    """Return the legend of all these schedules."""

    def drawn(width: float) -> Figure:
        legend, y = draw_legend(_legend([_trace(source) for source in sources], width), width, PAD - 6)
        words = "What the colors and signs of the schedules mean."
        return card(legend, width, y + 10, words, title="Legend")

    return at_any_width(drawn, WIDTH, PHONE)


def _trace(source: object) -> Trace:
    return replace(trace_of(source), memory_target=None, time_target=None)


def _legend(traces: Sequence[Trace], width: float) -> Legend:
    """Return one legend. The schedule with the most micro-batches comes first, since it explains their colors."""
    most = sorted(traces, key=lambda trace: -trace.batches)
    layouts = [Layout(trace, width, 0.0) for trace in most]
    return legend_of(layouts)
