"""A lane of its own for the traffic within operations that products hide, where tensor parallelism is asynchronous."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lib.record.events import Event

from . import theme
from .coarse import HIDDEN
from .layout import Layout, Row
from .marks import Bar, Bars, Diagram, Hovers, leaf, style

COLUMN, LEVELS = 4.0, 8
"""Where operations are not boxes, so many pixels are one column, whose height, in so many steps, is the share of its
time."""


def draw_within(layout: Layout) -> list[Diagram]:
    """Return a lane below each row: pale where traffic is hidden by what is computed, strong where it is exposed. In
    pictures of boxes each operation has a bar, and a hover text."""
    if not layout.within:
        return []
    return _boxes(layout) if layout.fine else _columns(layout)


def _look(bars: Sequence[Bar], high: float, hidden: bool) -> Diagram:
    return leaf(Bars(bars, high), style(theme.TALK, None, 0, HIDDEN if hidden else None))


def _boxes(layout: Layout) -> list[Diagram]:
    bars: dict[bool, list[Bar]] = {True: [], False: []}
    texts: list[tuple[Bar, str]] = []
    unit, high = layout.trace.unit, layout.thin - 1
    for row in layout.rows:
        y = layout.foot(row) + layout.thin / 2
        for event, hidden, exposed in _traffic(layout, row):
            x, width, more = layout.x(event.start), hidden * layout.per_tick, exposed * layout.per_tick
            bars[True].append((round(x, 2), y, round(width, 2)))
            bars[False].append((round(x + width, 2), y, round(more, 2)))
            said = f"{row.full_name}: traffic within {theme.name_of(event.kind)}\n"
            said += f"{unit.lasting(hidden)} hidden by products, {unit.lasting(exposed)} exposed"
            texts.append(((round(x, 1), round(y, 1), round(width + more, 1)), said))
    found = [_look(bars[hidden], high, hidden) for hidden in bars]
    return found if layout.crowded else [*found, leaf(Hovers(texts, high))]


def _columns(layout: Layout) -> list[Diagram]:
    found: dict[tuple[int, bool], list[Bar]] = {}
    high = (layout.thin - 1) / LEVELS
    for row in layout.rows:
        bottom = layout.foot(row) + layout.thin
        times: dict[int, list[float]] = {}
        for event, hidden, exposed in _traffic(layout, row):
            here = times.setdefault(int((layout.x((event.start + event.end) / 2) - layout.x0) / COLUMN), [0.0, 0.0])
            here[0], here[1] = here[0] + exposed, here[1] + hidden
        for column, both in times.items():
            x, level = layout.x0 + column * COLUMN, 0
            for hidden, took in enumerate(both):
                more = round(min(LEVELS - level, max(1, round(took * layout.per_tick / COLUMN * LEVELS)) * (took > 0)))
                if more:
                    middle = bottom - (level + more / 2) * high
                    found.setdefault((more, bool(hidden)), []).append((x, middle, min(COLUMN, layout.x1 - x)))
                level += more
    return [_look(bars, level * high, hidden) for (level, hidden), bars in found.items()]


def _traffic(layout: Layout, row: Row) -> Iterator[tuple[Event, float, float]]:
    """Yield the operations with such traffic, with the time in which it is hidden, and in which it is exposed."""
    within = layout.trace.within
    for event in row.parts[0]:
        if event.kind in within:
            hidden, exposed = within[event.kind]
            yield event, hidden * event.length, exposed * event.length
