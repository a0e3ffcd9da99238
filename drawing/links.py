"""Arrows from sends to their receives, and ties between the ranks of a collective."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from lib.record.events import MARKS
from lib.record.table import RECEIVE, SEND

from . import theme
from .layout import Layout, Rect
from .marks import Diagram, Point, lines, poly, style

LINKS = ("auto", "none", "p2p", "groups", "all")
ROOM = 12.0
"""Pixels of width that each send of a row needs. With less, arrows would hide more than they show."""
GAP = 3.0
"""Pixels between rows that a tie needs to be seen."""

Line = tuple[float, float, float, float]


def draw_arrows(layout: Layout, links: str) -> list[Diagram]:
    """Return arrows from sends to receives over the boxes, if they are wanted or, with "auto", if there is room."""
    if not layout.fine or links in ("none", "groups") or (links == "auto" and not _has_room(layout)):
        return []
    arrows = list(_arrows(layout))
    if not arrows:
        return []
    how = style(None, theme.kind_color(SEND.kind), 1)
    heads = [poly(arrow_head(arrow), style(theme.kind_color(SEND.kind))) for arrow in arrows]
    return [lines(arrows, how), *heads]


def draw_ties(layout: Layout, links: str) -> list[Diagram]:
    """Return lines that join the boxes of a collective, to be drawn behind all boxes."""
    if not layout.fine or links in ("none", "p2p") or (links == "auto" and layout.gap < GAP):
        return []
    found: dict[str, list[Line]] = {}
    for kind, meetings in _together(layout):
        slots = _slots(meetings)
        for places, slot in zip(meetings, slots, strict=True):
            part = (slot + 1) / (max(slots) + 2)  # from box to box: measured ones do not begin at one moment
            points = [(x + width * part, y + height / 2) for x, y, width, height in places]
            found.setdefault(kind, []).extend((*above, *below) for above, below in pairwise(points))
    return [lines(items, style(None, theme.kind_color(kind), 1.6)) for kind, items in found.items()]


def _together(layout: Layout) -> Iterator[tuple[str, list[list[Rect]]]]:
    """Yield, by kind, the collectives that share a place on the time axis: of each, its boxes row by row."""
    meetings: dict[tuple[object, ...], tuple[str, list[Rect]]] = {}
    for row in layout.rows:
        for index, event in enumerate(row.events):
            if event.lane == "collective" and event.op is not None:
                meetings.setdefault(event.op, (event.kind, []))[1].append(layout.place(row, index))
    found: dict[tuple[str, float], list[list[Rect]]] = {}
    for kind, places in meetings.values():
        if len(places) > 1:
            found.setdefault((kind, places[0][0]), []).append(places)
    return ((kind, places) for (kind, _), places in found.items())


def _slots(meetings: list[list[Rect]]) -> list[int]:
    """Return a slot for the line of each collective, so that lines which pass the same row do not cover each other."""
    until: list[float] = []  # the lowest y that each slot is used to
    slots = []
    for places in meetings:  # in the order of their highest rows
        top, bottom = places[0][1], places[-1][1]
        slot = next((slot for slot, end in enumerate(until) if end < top), len(until))
        until[slot : slot + 1] = [bottom]
        slots.append(slot)
    return slots


def _has_room(layout: Layout) -> bool:
    sends = max((sum(e.kind == SEND.kind for e in row.events) for row in layout.rows), default=0)
    return layout.height >= 11 and sends * ROOM <= layout.x1 - layout.x0


def _arrows(layout: Layout) -> Iterator[Line]:
    """Yield lines from the middle of a send to the middle of its receive, in another row.

    A row shows its first rank; the receiver may be another rank of its own row, which did the same things.
    """
    rows = {rank: place for place, row in enumerate(layout.rows) for rank in row.ranks}
    shown = [[at for at, event in enumerate(row.events) if event.kind not in MARKS] for row in layout.rows]
    receives: dict[object, tuple[int, int]] = {}
    for rank, events in layout.trace.by_rank.items():
        operations = (event for event in events if event.kind not in MARKS)
        receives |= {event.op: (rank, nth) for nth, event in enumerate(operations) if event.kind == RECEIVE.kind}
    for here, row in enumerate(layout.rows):
        for index, event in enumerate(row.events):
            receiver, nth = receives.get(event.op, (-1, 0)) if event.kind == SEND.kind else (-1, 0)
            there = rows.get(receiver, here)
            if there != here:
                end = layout.place(layout.rows[there], shown[there][nth])
                down = there > here
                yield (*_edge(layout.place(row, index), down), *_edge(end, not down))


def _edge(place: Rect, below: bool) -> Point:
    x, y, width, height = place
    return x + width / 2, y + (height if below else 0.0)


def arrow_head(arrow: Line, size: float = 4.0) -> list[Point]:
    """Return the three corners of a head at the end of an arrow, in pixels."""
    x0, y0, x1, y1 = arrow
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1.0
    ux, uy = (x1 - x0) / length * size, (y1 - y0) / length * size
    back = (x1 - ux, y1 - uy)
    return [(x1, y1), (back[0] - uy * 0.5, back[1] + ux * 0.5), (back[0] + uy * 0.5, back[1] - ux * 0.5)]
