"""Where the time of all ranks goes, as a bar of parts and a legend that names them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lib.basics.units import show_ticks
from lib.record.breakdown import MEANING, WORDS, name_of, percents
from lib.record.table import in_lane

from . import theme
from .layout import Rect
from .marks import Diagram, Titled, box, label, style, text_width
from .operations import operation
from .texts import idle_and_hidden, plural
from .trace import Trace

BAR, SAMPLE, LINE, NEXT = 15.0, 9.0, 15.0, 12.0
"""In pixels: height of the bar, side of a sample, height of a line of the legend, room between two entries."""
SIZE = 10.0
"""Of letters, in pixels."""


def draw_time_bar(trace: Trace, x: float, y: float, width: float) -> tuple[list[Diagram], float]:
    """Return a caption, the bar and its legend at (x, y), and the y where they end; nothing if no time passes."""
    if not trace.parts:
        return [], y
    more = f" ({idle_and_hidden(trace)})" if idle_and_hidden(trace) else ""
    caption = f"where the time of {trace.ranks} rank{plural(trace.ranks)} goes{more}"
    mute = style(theme.MUTE)
    parts: list[Diagram] = [label(x, y + 5, caption, SIZE, mute, "start"), *_bar(trace, (x, y + 14, width, BAR))]
    y += 14 + BAR + 10
    for line, entries in enumerate(_lines(trace, width)):
        for at, part, text in entries:
            middle = y + LINE * line
            sample = _part(trace, part, (x + at, middle - SAMPLE / 2, SAMPLE, SAMPLE))
            parts += [sample, label(x + at + SAMPLE + 4, middle, text, SIZE, style(theme.INK), "start")]
    return parts, y + LINE * (len(_lines(trace, width)) - 1) + 6


def _bar(trace: Trace, place: Rect) -> Iterator[Diagram]:
    """Yield the parts from left to right, each with its hover text, a pixel apart."""
    x, y, width, height = place
    shown = percents(trace.parts)
    for part, share in trace.parts.items():
        wide = float(share) * width
        total, brief = float(share) * trace.time * trace.ranks, trace.unit.brief
        took = brief(round(total, 3) if brief is show_ticks else total)
        said = f"{name_of(part)}: {shown[part]} of all ranks' time, {took} {trace.unit.name} of all ranks together"
        said += f"\n{MEANING[part]}" if part in MEANING else ""
        yield Titled(said, _part(trace, part, (x, y, max(wide - 1, min(wide, 0.5)), height)))
        x += wide


def _part(trace: Trace, part: str, place: Rect) -> Diagram:
    """Return a box in the look of an operation, or of waiting."""
    if part in theme.IDLE or not theme.in_layer_color(part):
        known = theme.IDLE.get(part) or theme.kind_color(_longest_communication(trace) if part in WORDS else part)
        return box(*place, style(known), 2)
    color = theme.layer_color(trace.layers // 2, trace.layers)
    if trace.by_operation:
        color = theme.work_color(part, trace.batches // 2, max(trace.batches, 2))
    return operation(part, place, color, full=trace.by_operation)


def _longest_communication(trace: Trace) -> str:
    """Return the kind of communication that takes the most time: its color stands for all."""
    lengths = defaultdict[str, float](float)
    talk = frozenset(in_lane("collective", "message"))
    for event in trace.device_events:
        if event.kind in talk:
            lengths[event.kind] += event.end - event.start
    return max(lengths, key=lambda kind: lengths[kind])


def _lines(trace: Trace, width: float) -> list[list[tuple[float, str, str]]]:
    """Return the entries of the legend (x, part, text) in lines of this width."""
    lines: list[list[tuple[float, str, str]]] = [[]]
    at = 0.0
    for part, shown in percents(trace.parts).items():
        text = f"{name_of(part)} {shown}"
        wide = SAMPLE + 4 + text_width(text, SIZE)
        if at and at + wide > width:
            lines.append([])
            at = 0.0
        lines[-1].append((at, part, text))
        at += wide + NEXT
    return lines
