"""Arrows from sends to their receives."""

from __future__ import annotations

from collections.abc import Iterator

from . import theme
from .layout import Layout, Rect
from .marks import Diagram, Point, lines, poly, style

LINKS = ("auto", "none", "all")
ROOM = 12.0
"""Pixels for each send of a row below which arrows would hide more than they show."""

Arrow = tuple[Point, Point]


def draw_links(layout: Layout, links: str) -> list[Diagram]:
    """Arrows where they are wanted; with "auto", where there is room."""
    if links == "none" or not layout.fine or (links == "auto" and not _has_room(layout)):
        return []
    arrows = list(_arrows(layout))
    if not arrows:
        return []
    how = style(None, theme.KINDS["pass_to"], 1)
    heads = [poly(_head(arrow), style(theme.KINDS["pass_to"])) for arrow in arrows]
    return [lines([(*start, *end) for start, end in arrows], how), *heads]


def _has_room(layout: Layout) -> bool:
    sends = max((sum(e.kind == "pass_to" for e in row.events) for row in layout.rows), default=0)
    return layout.height >= 11 and sends * ROOM <= layout.x1 - layout.x0


def _arrows(layout: Layout) -> Iterator[Arrow]:
    """From the middle of a send to the middle of its receive, in another row."""
    receives = {
        row.events[index].op: (row.y, layout.place(row, index))
        for row in layout.rows
        for index in range(len(row.events))
        if row.events[index].kind == "receive"
    }
    for row in layout.rows:
        for index, event in enumerate(row.events):
            there = receives.get(event.op) if event.kind == "pass_to" else None
            if there is not None and there[0] != row.y:
                down = there[0] > row.y
                yield _edge(layout.place(row, index), down), _edge(there[1], not down)


def _edge(place: Rect, below: bool) -> Point:
    x, y, width, height = place
    return x + width / 2, y + (height if below else 0.0)


def _head(arrow: Arrow, size: float = 4.0) -> list[Point]:
    (x0, y0), (x1, y1) = arrow
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1.0
    ux, uy = (x1 - x0) / length * size, (y1 - y0) / length * size
    back = (x1 - ux, y1 - uy)
    return [(x1, y1), (back[0] - uy * 0.5, back[1] + ux * 0.5), (back[0] + uy * 0.5, back[1] - ux * 0.5)]
