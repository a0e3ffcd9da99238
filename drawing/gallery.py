"""Schedules to be looked at before anything is installed: without head, targets and hover texts, all in the same
colors, with one legend for all of them; and several of them on one sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from . import theme
from .figure import Figure
from .layout import PAD, Layout
from .legend import draw_legend
from .marks import Diagram, label, style, together
from .numbering import NumberPlans, plan_numbers
from .picture import WIDTH, card
from .texts import size_of, summary
from .timeline import axis, draw_timeline
from .total_memory import draw_total, most_memory
from .trace import Trace, trace_of

COLOR = "operation"
"""What colors tell in all of them."""
COLUMNS, TOP, HEAD, GAP = 2, 74.0, 44.0, 22.0
"""Of a sheet: schedules in a line; in pixels, the room for its title, for that of each schedule, and below it."""


class Piece(NamedTuple):
    """A schedule of a sheet: its title, what is to be said of it in a line, and the run."""

    title: str
    words: str
    source: object


def draw_schedule(source: object, rough: int = 0, width: float = WIDTH, *, alone: bool = False) -> Figure:
    """Return a schedule without head and legend, and the memory of the rank whose peak is the highest. ``rough``: 0
    for a box for each operation, 1 for what fills each pixel, which takes fewer bytes where there are many; ``alone``:
    an image for a page on which no other picture has its legend, which it has itself."""
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
    return card(legend, width, y + 10, "What the colors and signs of the schedules mean.", title="Legend")


def draw_poster(pieces: Sequence[Piece], title: str, words: str, width: float = WIDTH) -> Figure:
    """Return several schedules on one sheet, each on a time scale of its own, with one legend."""
    wide, y = width / COLUMNS, TOP
    parts: list[Diagram] = [
        label(PAD, 28, title, 17, style(theme.INK), "start", 650),
        label(PAD, 50, words, 11.5, style(theme.MUTE), "start"),
    ]
    traces = [_trace(piece.source) for piece in pieces]
    for first in range(0, len(pieces), COLUMNS):
        reached = y
        for column, (piece, trace) in enumerate(list(zip(pieces, traces, strict=True))[first : first + COLUMNS]):
            drawn, bottom = _cell(piece, trace, wide, y)
            parts.append(together(drawn).translate(column * wide, 0))
            reached = max(reached, bottom)
        y = reached + GAP
    legend, y = _legend(traces, width, y)
    told = "; ".join(
        f"{piece.title}, {piece.words}: {_figures(trace)}" for piece, trace in zip(pieces, traces, strict=True)
    )
    return card([*parts, *legend], width, y + 12, f"{title}. {words} {told}.", title=title)


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
    """Return one legend. The schedule with the most micro-batches comes first: it says what their colors are."""
    most = sorted(traces, key=lambda trace: -trace.batches)
    layouts = [Layout(trace, width, 0.0) for trace in most]
    plans: list[NumberPlans] = [plan_numbers(layout) for layout in layouts]
    return draw_legend(layouts, plans, y, memory=False)
