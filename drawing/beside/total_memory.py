"""The memory of a run as one line: that of the rank with the highest peak, since only that counts."""

from __future__ import annotations

from collections.abc import Sequence

from lib.basics.units import Elements

from ..ink import svg, theme
from ..ink.marks import Diagram, Titled, box, label, poly, style
from ..ink.texts import brief_size
from ..ink.trace import Trace
from ..schedule.layout import Layout
from ..schedule.memory import stairs, steps_of, target_line

HEIGHT = 34.0
"""The height of a strip, in pixels."""


def most_memory(traces: Sequence[Trace]) -> float:
    """Return the highest peak or target of all, in elements, as the scale of the strips."""
    peaks = [trace.peak.memory for trace in traces if trace.peak is not None]
    targets = [trace.memory_target for trace in traces if trace.memory_target is not None]
    return max(map(float, [*peaks, *targets]), default=0.0)


def draw_total(layout: Layout, y: float, most: float, trace: Trace | None = None) -> tuple[list[Diagram], float]:
    """Return a strip from ``y`` down, ``most`` elements high, and the y where it ends. ``trace``: whose memory it is,
    if not that of the layout."""
    end = layout.x(layout.trace.time)
    trace = layout.trace if trace is None else trace
    peak = trace.peak
    bottom = y + HEIGHT
    if peak is None or not most:
        return [], y

    def at(elements: Elements | float) -> float:
        return bottom - (HEIGHT - 7) * float(elements) / most  # the sign of a peak stands above it

    corners = stairs([(x, at(sum(held))) for x, held in steps_of(layout, trace.by_rank[peak.rank])], end)
    unit, sizes, middle = trace.unit, trace.size_unit, (y + bottom) / 2
    x, top = min(layout.x(peak.issued), layout.x1 - 1.5), at(peak.memory)
    when = unit.at(unit.brief(peak.issued))
    text = f"memory of rank {peak.rank}, whose peak is the highest: {sizes.describe(peak.memory)} at {when}"
    end = max(end, x)
    highest = "peak " * (not sizes.says_itself) + brief_size(sizes, peak.memory)  # a unit leaves no room for a word
    parts: list[Diagram] = [
        box(layout.x0, y, end - layout.x0, HEIGHT, style(theme.LANE)),
        Titled(text, poly([(layout.x0, bottom), *corners, (corners[-1][0], bottom)], style(theme.HATCH))),
        poly(corners, style(None, theme.INK, 1.2), closed=False),
        poly([(x, top), (x - 3.5, top - 6), (x + 3.5, top - 6)], style(theme.INK)),
        label(layout.x0 - 8, middle - 5, "memory", 11, style(theme.INK), "end", most=svg.KEPT),
        label(layout.x0 - 8, middle + 7, f"rank {peak.rank}", 8.5, style(theme.MUTE), "end"),
        label(layout.x1 + 8, middle - 5, highest, 9.5, style(theme.INK), "start", 600),
    ]
    if trace.memory_target is not None:
        parts.append(target_line(trace, layout.x0, end, at(trace.memory_target)))
        goal = f"target {brief_size(sizes, trace.memory_target)}"
        parts.append(label(layout.x1 + 8, middle + 7, goal, 9.5, style(theme.MUTE), "start"))
    return parts, bottom
