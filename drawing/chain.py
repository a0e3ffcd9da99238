"""The longest chain of a run, as one line through the boxes of its operations."""

from __future__ import annotations

from typing import NamedTuple

from lib.record.chain import slack_of
from lib.record.events import MARKS

from . import theme
from .layout import Layout
from .marks import Diagram, Point, Titled, lines, poly, style, together

THICK, CASING = 3.0, 1.2
"""In pixels: how thick the line is, and the casing on both sides, which parts it from boxes of any color."""
FADED = 0.3
"""Opacity of operations that are not on the chain."""


class Stop(NamedTuple):
    """An operation of the chain: its row, and its place among the events of that row."""

    row: int
    at: int


def stops(layout: Layout) -> list[tuple[Stop, Stop]]:
    """Return where the chain comes to each of its operations, and where it goes on. A row shows its first rank; the
    chain may go through another rank of it, which did the same things."""
    chain = layout.trace.chain
    if chain is None or not layout.fine:
        return []
    places: dict[int, Stop] = {}
    for here, row in enumerate(layout.rows):
        shown = [at for at, event in enumerate(row.events) if event.kind not in MARKS]
        for rank in row.ranks:
            operations = (event for event in layout.trace.by_rank[rank] if event.kind not in MARKS)
            places |= {id(event): Stop(here, at) for event, at in zip(operations, shown, strict=True)}
    return [(places[id(came)], places[id(went)]) for came, went in chain.links]


class ChainRole(NamedTuple):
    """How an operation stands to the chain: how opaque it is for that, and what its hover text says of it."""

    opacity: float | None = None
    said: str = ""


NO_CHAIN = ChainRole()
"""Of an operation in a picture without a chain."""


def chain_roles(layout: Layout) -> dict[Stop, ChainRole]:
    """Return how each operation stands to the chain; nothing if none is shown. How much longer it may take is said
    where a row is one rank's."""
    bright = {stop for pair in stops(layout) for stop in pair}
    if not bright:
        return {}
    events = layout.trace.events
    rooms = dict(zip(map(id, events), slack_of(events, layout.trace.tier), strict=True))
    found = {}
    for here, row in enumerate(layout.rows):
        for at, event in enumerate(row.events):
            on_chain = Stop(here, at) in bright
            said = _said(on_chain, rooms[id(event)], layout) if len(row.ranks) == 1 else ""
            found[Stop(here, at)] = ChainRole(None if on_chain else FADED, said)
    return found


def _said(on_chain: bool, room: float, layout: Layout) -> str:
    if on_chain:
        return "on the longest chain"
    if not room:
        return "on another chain that is as long"
    return f"may take {layout.trace.unit.lasting(room)} more, with all in this order, and the run takes as long"


def draw_chain(layout: Layout) -> list[Diagram]:
    """Return the line, if there is a chain to be shown: along the boxes, and from row to row where another rank goes
    on."""
    corners, chain = _corners(layout), layout.trace.chain
    if not corners or chain is None:
        return []
    both = [
        poly(corners, style(None, color, wide), closed=False)
        for color, wide in ((theme.CARD, THICK + 2 * CASING), (theme.CHAIN, THICK))
    ]
    return [Titled(f"the longest chain: {chain.describe(layout.trace.unit)}", together(both))]


def _corners(layout: Layout) -> list[Point]:
    corners: list[Point] = []
    for came, went in stops(layout):
        x, y, width, _ = _line_at(layout, came)
        on = _line_at(layout, went)[1]
        turn = [] if came.row == went.row else [(x + width / 2, y), (x + width / 2, on)]
        corners += [(x, y), *turn, (x + width, on)]
    return corners


def _line_at(layout: Layout, stop: Stop) -> tuple[float, float, float, float]:
    """Return where the line passes an operation: along its lower edge, where it hides no number."""
    x, y, width, height = layout.place(layout.rows[stop.row], stop.at)  # of a message, too: the line keeps its level
    return x, y + height - THICK / 2 - 0.5, width, 0.0


def chain_sample(width: float, height: float) -> Diagram:
    """Return a piece of the line, for the legend."""
    return lines([(0, height / 2, width, height / 2)], style(None, theme.CHAIN, THICK))
