"""Memory over time, stacked by kind, one strip for each row."""

from __future__ import annotations

from typing import Any

from lib.events import MEMORY_KINDS, Event
from lib.units import show_elements

from . import theme
from .layout import Row, si
from .marks import Point, Titled, box, label, lines, poly, style
from .timeline import PAD, Timeline

STRIP, SHOWN = 44.0, 8
"""Height of a strip in pixels; strips at most (always with the one that has the peak)."""


def draw_memory(timeline: Timeline, y: float) -> tuple[list[Any], float]:
    """The panel from ``y`` down, and where it ends."""
    trace = timeline.trace
    peak = trace.peak
    assert peak is not None
    parts: list[Any] = [label(PAD, y + 6, "Memory", 12.5, style(theme.INK), "start", 600)]
    y += 20
    highest = float(max(peak.memory, trace.memory_target or 0)) * 1.08 or 1.0
    rows, left_out = _chosen(timeline.rows, peak.rank)
    for row in rows:
        parts += _strip(timeline, row, y, highest, peak)
        y += STRIP + 8
    if left_out:
        parts.append(label(timeline.x0, y + 2, f"{left_out} more rows", 9.5, style(theme.MUTE), "start"))
        y += 10
    axis, y = timeline.axis(y - 6)
    return [*parts, *axis], y


def _chosen(rows: list[Row], peak_rank: int) -> tuple[list[Row], int]:
    """The rows shown: the first ones and the one with the peak."""
    if len(rows) <= SHOWN:
        return rows, 0
    with_peak = next(row for row in rows if peak_rank in row.ranks)
    chosen = rows[: SHOWN - 1]
    chosen = rows[:SHOWN] if with_peak in chosen else [*chosen, with_peak]
    return chosen, len(rows) - len(chosen)


def _strip(timeline: Timeline, row: Row, top: float, highest: float, peak: Event) -> list[Any]:
    bottom, x1 = top + STRIP, timeline.x1
    parts: list[Any] = [box(timeline.x0, top, x1 - timeline.x0, STRIP, style(theme.LANE))]
    samples = _samples(timeline, row)
    base = [0.0] * len(samples)
    for slot, kind in enumerate(MEMORY_KINDS):
        upper = [low + float(held[slot]) for low, (_, held) in zip(base, samples, strict=True)]
        if upper != base:
            name, color = theme.MEMORY[kind]
            xs = [x for x, _ in samples] + [x1]
            ys = [[bottom - v * STRIP / highest for v in edge] for edge in (upper, base)]
            corners = _stairs(xs, ys[0]) + _stairs(xs, ys[1])[::-1]
            parts.append(Titled(f"{row.name}: {name}", poly(corners, style(color))))
        base = upper
    ink, mute = style(theme.INK), style(theme.MUTE)
    parts.append(label(timeline.x0 - 8, bottom - STRIP / 2, row.name, 10.5, ink, "end"))
    most = max((event.memory for event in row.events), default=0)
    parts.append(label(x1 + 8, bottom - STRIP / 2, f"max {si(float(most))}", 9.5, mute, "start"))
    target = timeline.trace.memory_target
    if target is not None:
        color = theme.GOOD if peak.memory <= target else theme.BAD
        y = bottom - float(target) * STRIP / highest
        parts.append(lines([(timeline.x0, y, x1, y)], style(None, color, 1.2, None, (5.0, 3.0))))
    if peak.rank in row.ranks:
        parts += _peak(timeline, bottom - float(peak.memory) * STRIP / highest, peak)
    return parts


def _samples(timeline: Timeline, row: Row) -> list[tuple[float, tuple[Any, ...]]]:
    """(x, elements by kind); samples in one half pixel are merged to the larger."""
    found: list[tuple[float, tuple[Any, ...]]] = []
    for event in row.events:
        x = timeline.x(event.issued)
        if found and x - found[-1][0] < 0.5:
            x = found[-1][0]
            held = max(found.pop()[1], event.held, key=sum)
            found.append((x, held))
        else:
            found.append((x, event.held))
    return found


def _stairs(xs: list[float], ys: list[float]) -> list[Point]:
    return [point for a, b, y in zip(xs, xs[1:], ys, strict=False) for point in ((a, y), (b, y))]


def _peak(timeline: Timeline, y: float, peak: Event) -> list[Any]:
    """A mark at the peak, its text on the side where there is room."""
    x = timeline.x(peak.issued)
    right = x < timeline.x1 - 80
    text = f"peak {si(float(peak.memory))}"
    mark = poly([(x, y), (x - 3.5, y - 6), (x + 3.5, y - 6)], style(theme.INK))
    said = label(x + (7 if right else -7), y - 3.5, text, 9.5, style(theme.INK), "start" if right else "end", 600)
    return [Titled(f"peak: {show_elements(peak.memory)} elements on rank {peak.rank}", mark), said]
