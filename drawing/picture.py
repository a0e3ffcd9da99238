"""The whole picture of a run: header, timeline, memory, legend."""

from __future__ import annotations

from typing import Any

from lib.units import show_ticks

from . import theme
from .figure import Figure
from .layout import si
from .legend import draw_legend
from .marks import box, label, lines, poly, style, text_width
from .memory import draw_memory
from .timeline import PAD, Timeline
from .trace import Trace, trace_of

WIDTH = 980.0
Stat = tuple[str, str, str, bool | None]
"""Name, value, note, and whether the target is met."""


def draw(
    thing: object,
    *,
    memory: bool = True,
    links: str = "auto",
    title: str | None = None,
    time_target: float | None = None,
    memory_target: float | None = None,
    width: float = WIDTH,
) -> Figure:
    """The schedule of a Run, or of the models of all ranks, as a picture (a chalk Diagram).

    ``memory``: with the memory of each rank; ``links``: arrows from sends to receives, "auto", "none"
    or "all"; ``time_target`` in ticks, ``memory_target`` in elements; ``width`` in pixels.
    Raises PuzzleError for anything that is no run.
    """
    trace = trace_of(thing, title, time_target, memory_target)
    if not trace.attempted:
        return _not_attempted(trace, width)
    timeline = Timeline(trace, width, links)
    parts, y = _header(trace, width), 74.0
    for draw_part in (timeline.draw, *([lambda y: draw_memory(timeline, y)] if memory else [])):
        more, y = draw_part(y)
        parts += more
        y += 12
    more, y = draw_legend(timeline, y, memory)
    return _card([*parts, *more], width, y + 12, trace.summary)


def _card(parts: list[Any], width: float, height: float, summary: str) -> Figure:
    back = box(0.5, 0.5, width - 1, height - 1, style(theme.CARD, theme.GRID, 1), 8)
    return Figure([back, *parts], width, height, summary)


def _not_attempted(trace: Trace, width: float) -> Figure:
    text = label(PAD, 26, trace.summary, 13, style(theme.MUTE), "start")
    return _card([text], width, 52, trace.summary)


def _header(trace: Trace, width: float) -> list[Any]:
    plural = "" if trace.ranks == 1 else "s"
    many = "" if trace.batches == 1 else "es"
    size = f"{trace.ranks} rank{plural} · {trace.layers} layers · {trace.batches} micro-batch{many}"
    parts: list[Any] = [
        label(PAD, 26, trace.title, 17, style(theme.INK), "start", 650),
        label(PAD, 46, size, 11.5, style(theme.MUTE), "start"),
    ]
    x = width - PAD
    for stat in reversed(_stats(trace)):
        name, value, note, met = stat
        wide = max(text_width(name, 10), text_width(value, 18) * 1.12 + (20 if met is not None else 0), text_width(note, 10))
        x -= wide + 6
        parts += _stat(x, stat)
        x -= 20
    return parts


def _stats(trace: Trace) -> list[Stat]:
    peak = trace.peak
    assert peak is not None
    time_note = memory_note = ""
    time_met = memory_met = None
    if trace.time_target is not None:
        time_note, time_met = f"target {show_ticks(trace.time_target)}", trace.time <= trace.time_target
    if trace.memory_target is not None:
        memory_note, memory_met = f"target {si(float(trace.memory_target))}", peak.memory <= trace.memory_target
    return [
        ("time", show_ticks(trace.time), time_note or "ticks", time_met),
        ("peak memory", si(float(peak.memory)), memory_note or f"rank {peak.rank}, tick {peak.issued:.4g}", memory_met),
        ("idle", f"{trace.idle:.0%}", "of all time", None),
        ("communication", f"{trace.communication:.0%}", "of all time", None),
    ]


def _stat(x: float, stat: Stat) -> list[Any]:
    name, value, note, met = stat
    note_color = theme.BAD if met is False else theme.MUTE
    parts: list[Any] = [
        label(x, 18, name, 10, style(theme.MUTE), "start"),
        label(x, 35, value, 18, style(theme.INK), "start", 600),
        label(x, 52, note, 10, style(note_color), "start"),
    ]
    at = x + text_width(value, 18) * 1.12 + 12
    if met:
        check = [(at - 5, 35.0), (at - 1.5, 39.0), (at + 5, 30.0)]
        parts.append(poly(check, style(None, theme.GOOD, 2.2), closed=False))
    elif met is False:
        parts.append(lines([(at - 4, 31, at + 4, 39), (at - 4, 39, at + 4, 31)], style(None, theme.BAD, 2.2)))
    return parts
