"""Schedules for a web page, without head, targets and hover texts, in the same colors and with one legend for all; and
several schedules on one sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from drawing import theme
from drawing.figure import Figure
from drawing.layout import PAD, Layout
from drawing.legend import draw_legend
from drawing.marks import Diagram, label, style, together
from drawing.numbering import NumberPlans, plan_numbers
from drawing.picture import WIDTH, card
from drawing.texts import size_of, summary
from drawing.timeline import axis, draw_timeline
from drawing.total_memory import draw_total, most_memory
from drawing.trace import Trace, trace_of

COLOR = "operation"
"""The meaning of colors in all of them."""
COLUMNS, TOP, HEAD, GAP = 2, 74.0, 44.0, 22.0
"""Of a sheet: the schedules in a line; then in pixels the room for its title, for each schedule's title and below
it."""


class Piece(NamedTuple):
    """A schedule of a sheet: its title, a line of text, and the run."""

    title: str
    words: str
    source: object


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


def draw_shared_legend(sources: Sequence[object], width: float = WIDTH) -> Figure:
    """Return the legend of all these schedules."""
    legend, y = _legend([_trace(source) for source in sources], width, PAD - 6)
    return card(
        legend,
        width,
        y + 10,
        "What the colors and signs of the schedules mean.",
        title="Legend",
    )


def draw_poster(
    pieces: Sequence[Piece], title: str, words: str, width: float = WIDTH
) -> Figure:
    """Return several schedules on one sheet, each on a time scale of its own, with one legend."""
    wide, y = width / COLUMNS, TOP
    parts: list[Diagram] = [
        label(PAD, 28, title, 17, style(theme.INK), "start", 650),
        label(PAD, 50, words, 11.5, style(theme.MUTE), "start"),
    ]
    traces = [_trace(piece.source) for piece in pieces]
    for first in range(0, len(pieces), COLUMNS):
        reached = y
        for column, (piece, trace) in enumerate(
            list(zip(pieces, traces, strict=True))[first : first + COLUMNS]
        ):
            drawn, bottom = _cell(piece, trace, wide, y)
            parts.append(together(drawn).translate(column * wide, 0))
            reached = max(reached, bottom)
        y = reached + GAP
    legend, y = _legend(traces, width, y)
    texts = "; ".join(
        f"{piece.title}, {piece.words}: {_figures(trace)}"
        for piece, trace in zip(pieces, traces, strict=True)
    )
    return card([*parts, *legend], width, y + 12, f"{title}. {words} {texts}.", title=title)


def _cell(piece: Piece, trace: Trace, wide: float, y: float) -> tuple[list[Diagram], float]:
    layout = Layout(trace, wide, y + HEAD, beside=[trace])
    scale, bottom = axis(layout, layout.bottom)
    return [
        label(PAD, y + 8, piece.title, 13, style(theme.INK), "start", 650),
        label(PAD, y + 27, piece.words, 11, style(theme.MUTE), "start"),
        label(layout.x1 + 46, y + 8, _figures(trace), 11, style(theme.MUTE), "end"),
        *draw_timeline(layout, "auto", plan_numbers(layout)),
        *scale,
    ], bottom


def _trace(source: object) -> Trace:
    return replace(trace_of(source), color=COLOR, memory_target=None, time_target=None)


def _figures(trace: Trace) -> str:
    peak = "" if trace.peak is None else f", peak {size_of(trace.peak.memory)} elements"
    return f"{trace.unit.lasting(trace.time)}{peak}"


def _legend(traces: Sequence[Trace], width: float, y: float) -> tuple[list[Diagram], float]:
    """Return one legend. The schedule with the most micro-batches comes first, since it explains their colors."""
    most = sorted(traces, key=lambda trace: -trace.batches)
    layouts = [Layout(trace, width, 0.0) for trace in most]
    plans: list[NumberPlans] = [plan_numbers(layout) for layout in layouts]
    return draw_legend(layouts, plans, y, memory=False)
