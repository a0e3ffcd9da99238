"""More events than pixels: every pixel column of a row shows what fills most of it."""

from __future__ import annotations

from collections.abc import Iterator

from lib.events import Event

from . import theme
from .layout import Layout, Rect, Row
from .marks import Diagram, Titled, boxes, style, together
from .operations import color_of

Look = tuple[str, float | None]
"""A color and its opacity."""


def coarse_row(layout: Layout, row: Row) -> Diagram:
    """A row whose events are not drawn one by one."""
    filled: dict[Look, list[Rect]] = {}
    for look, start, end in _runs([_most(column) for column in _columns(layout, row)]):
        width = min(float(end), layout.x1 - layout.x0) - start
        if width > 0:
            filled.setdefault(look, []).append((layout.x0 + start, row.y, width, layout.height))
    shapes = [boxes(rects, style(color, None, 0, opacity)) for (color, opacity), rects in filled.items()]
    return Titled(f"{row.name}: {len(row.operations):,} operations", together(shapes))


def _columns(layout: Layout, row: Row) -> list[dict[Look, float]]:
    """What each pixel column shows, by how much of it is filled."""
    columns: list[dict[Look, float]] = [{} for _ in range(int(layout.x1 - layout.x0) + 2)]
    for event in row.operations:
        look = _look(event, layout.trace.layers)
        start, end = event.start * layout.per_tick, event.end * layout.per_tick
        for at in range(int(start), int(end) + 1):
            part = min(end, at + 1) - max(start, at)
            columns[at][look] = columns[at].get(look, 0.0) + part
    return columns


def _look(event: Event, layers: int) -> Look:
    if event.kind == "forward":
        return color_of(event, layers), None
    if event.kind == "backward":
        return color_of(event, layers), theme.STRONG_TINT
    return theme.kind_color(event.kind), None


def _most(column: dict[Look, float]) -> Look | None:
    """What fills most of a column, if it is at least half full."""
    return max(column, key=lambda look: column[look]) if sum(column.values()) >= 0.5 else None


def _runs(looks: list[Look | None]) -> Iterator[tuple[Look, int, int]]:
    """Neighboring columns of one look: (look, first, after the last)."""
    start = 0
    for at in range(1, len(looks) + 1):
        if at == len(looks) or looks[at] != looks[start]:
            look = looks[start]
            if look is not None:
                yield look, start, at
            start = at
