"""Schedules for a web page, without head, targets and hover texts, in the same colors and with one legend for all; and
several schedules as one small strip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drawing import theme
from drawing.course import MEANINGS
from drawing.figure import PHONE, Figure, Narrow
from drawing.layout import PAD, Layout
from drawing.legend import draw_legend
from drawing.marks import Bar, Bars, Diagram, box, label, leaf, style
from drawing.numbering import NumberPlans, plan_numbers
from drawing.picture import WIDTH, card
from drawing.texts import share_text, summary
from drawing.timeline import axis, draw_timeline
from drawing.total_memory import draw_total, most_memory
from drawing.trace import Trace, trace_of
from lib import Run
from lib.course.outlines import TALK
from lib.record.events import MARKS
from lib.record.figures.score import idle_share

from .outlined import letter_of

COLOR = "operation"
"""The meaning of colors in all of them."""
STRIP_TITLE, STRIP_ROW = 230.0, 9.0
"""Of a strip, in pixels: the room for titles, and the height of a row."""


def draw_schedule(
    source: object, rough: int = 0, width: float = WIDTH, *, alone: bool = False
) -> Figure:
    """Return a schedule without head and legend, and the memory of the rank with the highest peak. ``rough``: 0 draws a
    box for each operation, 1 what fills most of each pixel, which takes fewer bytes for many operations. With ``alone``
    it is an image with a legend of its own."""
    trace = _trace(source)
    layout = Layout(trace, width, PAD, rough=rough, beside=[trace])
    total, y = draw_total(layout, layout.bottom + 5, most_memory([trace]))
    scale, y = axis(layout, y)
    parts = [*draw_timeline(layout, "auto", plan_numbers(layout)), *total, *scale]
    if alone:
        legend, y = _legend([trace], width, y + 8)
        parts += legend
    return card(parts, width, y + 8, summary(trace), alone, title=trace.title)


def draw_family(source: object, family: Sequence[object], rough: int = 0) -> Figure:
    """Return a schedule of a family on the scale of all of it: of its longest for time, of its largest for memory."""
    trace, others = _trace(source), [_trace(one) for one in family]
    until = max(one.until for one in others)
    layout = Layout(trace, WIDTH, PAD, until, rough=rough, beside=others)
    total, y = draw_total(layout, layout.bottom + 5, most_memory(others))
    scale, y = axis(layout, y)
    parts = [*draw_timeline(layout, "auto", plan_numbers(layout)), *total, *scale]
    return card(parts, WIDTH, y + 8, summary(trace), title=trace.title)


def draw_shared_legend(sources: Sequence[object], width: float = WIDTH) -> Figure:
    """Return the legend of all these schedules."""
    figure = _shared_legend(sources, width)
    figure.narrow = Narrow(above=_shared_legend(sources, PHONE))
    return figure


def _shared_legend(sources: Sequence[object], width: float) -> Figure:
    legend, y = _legend([_trace(source) for source in sources], width, PAD - 6)
    words = "What the colors and signs of the schedules mean."
    return card(legend, width, y + 10, words, title="Legend")


def draw_strip(pieces: Sequence[tuple[str, Run]], title: str = "Three schedules") -> Figure:
    """Return several schedules as a strip: on one time scale, with a title beside each, and nothing else."""
    until = max(done.time for _, done in pieces)
    left, wide = STRIP_TITLE + PAD, WIDTH - 2 * PAD - STRIP_TITLE
    parts: list[Diagram] = []
    y = PAD - 4
    for name, done in pieces:
        middle = y + done.ranks * STRIP_ROW / 2
        figures = f"{done.unit.lasting(done.time)}, {share_text(idle_share(done.events, done.ranks, done.time))} idle"
        parts.append(label(PAD, middle - 8, name, 12.5, style(theme.INK), "start", 650))
        parts.append(label(PAD, middle + 9, figures, 11.5, style(theme.MUTE), "start"))
        high = done.ranks * STRIP_ROW
        parts.append(box(left, y, wide * done.time / until, high - 2, style(theme.GAP)))
        found: dict[str, list[Bar]] = {MEANINGS[TALK][0]: []}  # below what computes
        for event in done.events:
            if event.kind not in MARKS and event.length:
                place = y + STRIP_ROW * event.rank + STRIP_ROW / 2 - 1
                bar = (left + wide * event.start / until, place, wide * event.length / until)
                found.setdefault(MEANINGS[letter_of(event)][0], []).append(bar)
        parts += [
            leaf(Bars(bars, STRIP_ROW - 2), style(color)) for color, bars in found.items()
        ]
        y += high + 12
    texts = [f"{name}: {done.unit.lasting(done.time)}" for name, done in pieces]
    return card(
        parts,
        WIDTH,
        y + PAD - 16,
        f"One time scale. {'; '.join(texts)}.",
        True,
        title,
    )


def _trace(source: object) -> Trace:
    return replace(trace_of(source), color=COLOR, memory_target=None, time_target=None)


def _legend(traces: Sequence[Trace], width: float, y: float) -> tuple[list[Diagram], float]:
    """Return one legend. The schedule with the most micro-batches comes first, since it explains their colors."""
    most = sorted(traces, key=lambda trace: -trace.batches)
    layouts = [Layout(trace, width, 0.0) for trace in most]
    plans: list[NumberPlans] = [plan_numbers(layout) for layout in layouts]
    return draw_legend(layouts, plans, y, memory=False)
