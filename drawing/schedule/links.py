"""Arrows from sends to their receives, and ties between the ranks of a collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from lib.record.table import RECEIVE, SEND

from ..ink import theme
from ..ink.marks import Diagram, Point, Rect, lines, poly, style
from .layout import Layout, Spot
from .operations import is_drawn

LINKS = ("auto", "none", "p2p", "groups", "all")
ROOM = 60.0
"""Pixels of width that each arrow from a row needs. With less, arrows would hide more than they show."""
LOW = 11.0
"""Rows lower than so many pixels have no arrows by themselves."""
GAP = 3.0
"""Pixels between rows that a tie needs to be seen."""
TIE = 1.6
"""How thick a tie is, in pixels."""


class Message(NamedTuple):
    """A message from one row to another: where it is sent, and where received."""

    sent: Spot
    received: Spot

    @property
    def waits(self) -> float:
        """How long it waits in between."""
        return self.received.event.start - self.sent.event.end


class Links(NamedTuple):
    """The messages of a picture: those that have an arrow, and those whose arrow appears ``on_hover`` only."""

    arrows: Sequence[Message] = ()
    on_hover: Sequence[Message] = ()


def links_of(layout: Layout) -> Links:
    """Return which messages have an arrow. With "auto" these are the messages that wait for longer than a box is wide:
    for the others an arrow would say what everybody sees."""
    if not layout.fine or layout.links in ("none", "groups"):
        return Links()
    found = list(_messages(layout))
    if layout.links != "auto":
        return Links(found)
    lengths = [run[-1].end - run[0].start for row in layout.rows for run in row.runs]
    usual = median(lengths) if lengths else 0.0
    late, others = list[Message](), list[Message]()
    for one in found:
        (late if one.waits > usual else others).append(one)
    most = max(Counter(one.sent.row.y for one in late).values(), default=0)
    if layout.height < LOW or most * ROOM > layout.x1 - layout.x0:
        late, others = [], found
    return Links(late, [one for one in others if is_drawn(one.sent.event) or is_drawn(one.received.event)])


def arrows(ways: Sequence[Rect], color: str = theme.ARROW, width: float = 1, head: float = 4.0) -> list[Diagram]:
    """Return arrows, each from (x0, y0) to (x1, y1)."""
    heads = [poly(arrow_head(way, head), style(color)) for way in ways]
    return [lines(ways, style(None, color, width)), *heads] if ways else []


def arrow_of(layout: Layout, message: Message) -> Rect:
    """Return the arrow of a message, from edge to edge."""
    down = message.received.row.y > message.sent.row.y
    (x0, y0, wide0, tall0), (x1, y1, wide1, tall1) = layout.shape(message.sent), layout.shape(message.received)
    return x0 + wide0 / 2, y0 + tall0 * down, x1 + wide1 / 2, y1 + tall1 * (not down)


def ties_of(layout: Layout) -> dict[str, list[Rect]]:
    """Return the lines that join the boxes of a collective, by its kind."""
    if not layout.fine or layout.links in ("none", "p2p") or (layout.links == "auto" and layout.gap < GAP):
        return {}
    found: dict[str, list[Rect]] = {}
    for kind, meetings in _collectives(layout):
        slots = _slots(meetings)
        for places, slot in zip(meetings, slots, strict=True):
            part = (slot + 1) / (max(slots) + 2)  # of each box: measured ones do not begin at one moment
            points = [(x + width * part, y + height / 2) for x, y, width, height in places]
            found.setdefault(kind, []).extend((*above, *below) for above, below in pairwise(points))
    return found


def _collectives(layout: Layout) -> Iterator[tuple[str, list[list[Rect]]]]:
    """Yield for each kind the collectives that start at one time: the boxes of each, row by row."""
    meetings: dict[tuple[object, ...], tuple[str, list[Rect]]] = {}
    for spot in (spot for row in layout.rows for spot in row.spots):
        if spot.event.stream == "collective" and spot.event.op is not None:
            meetings.setdefault(spot.event.op, (spot.event.kind, []))[1].append(layout.area(spot))
    found: dict[tuple[str, float], list[list[Rect]]] = {}
    for kind, places in meetings.values():
        if len(places) > 1:
            found.setdefault((kind, places[0][0]), []).append(places)
    return ((kind, places) for (kind, _), places in found.items())


def _slots(meetings: list[list[Rect]]) -> list[int]:
    """Return a slot for the line of each collective, so that lines through the same row do not cover each other."""
    until: list[float] = []  # the lowest y that each slot is used to
    slots = []
    for places in meetings:  # in the order of their highest rows
        top, bottom = places[0][1], places[-1][1]
        slot = next((slot for slot, end in enumerate(until) if end < top), len(until))
        until[slot : slot + 1] = [bottom]
        slots.append(slot)
    return slots


def _messages(layout: Layout) -> Iterator[Message]:
    """Yield the messages from one row to another. The receiver may be any rank of its row."""
    receives = {event.op: event for event in layout.trace.events if event.kind == RECEIVE.kind}
    for spot in (spot for row in layout.rows for spot in row.spots if spot.event.kind == SEND.kind):
        receive = receives.get(spot.event.op)
        if receive is not None and (there := layout.spots[id(receive)]).row is not spot.row:
            yield Message(spot, there)


def arrow_head(arrow: Rect, size: float = 4.0) -> list[Point]:
    """Return the three corners of a head at the end of an arrow, in pixels."""
    x0, y0, x1, y1 = arrow
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1.0
    ux, uy = (x1 - x0) / length * size, (y1 - y0) / length * size
    back = (x1 - ux, y1 - uy)
    return [(x1, y1), (back[0] - uy * 0.5, back[1] + ux * 0.5), (back[0] + uy * 0.5, back[1] - ux * 0.5)]
