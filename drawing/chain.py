"""The longest chain of a run, as one line through the boxes of its operations."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from lib.real.traces.causes import MeasuredChain
from lib.record.figures.chain import slack_of

from . import theme
from .layout import Layout, Place
from .marks import Diagram, Point, Titled, poly, style, together

THICK, CASING = 3.0, 1.2
"""In pixels: the thickness of the line, and of the casing on both sides, which separates it from boxes of any color."""
FADED = 0.3
"""Opacity of operations that are not on the chain."""


def stops(layout: Layout) -> list[tuple[Place, Place]]:
    """Return for each operation of the chain where the chain arrives and where it leaves. A row shows its first rank;
    the chain may go through another rank of the row, which did the same."""
    chain = layout.trace.chain
    if chain is None or not layout.fine:
        return []
    places = layout.places()
    return [(places[id(came)], places[id(went)]) for came, went in chain.links]


def spans(layout: Layout) -> list[tuple[float, float]]:
    """Return for each operation of the chain from when to when it is on it."""
    chain = layout.trace.chain
    if chain is None or not layout.fine:
        return []
    whole = [(entered.start, entered.end) for entered, _ in chain.links]
    return [*chain.spans] if isinstance(chain, MeasuredChain) else whole


class ChainRole(NamedTuple):
    """The role of an operation for the chain: its opacity, and a line of its hover text."""

    opacity: float | None = None
    text: str = ""


def chain_roles(layout: Layout) -> dict[Place, ChainRole]:
    """Return the role of each operation. In a row of one rank, its text says how much longer it might take."""
    bright = {stop for pair in stops(layout) for stop in pair}
    found = defaultdict[Place, ChainRole](ChainRole)
    if not bright:
        return found
    events = layout.trace.events
    measured = layout.trace.profile is not None  # then nobody knows how much longer anything might take
    slack = {} if measured else dict(zip(map(id, events), slack_of(events, layout.trace.tier), strict=True))
    for here, row in enumerate(layout.rows):
        for index, event in enumerate(row.events):
            place = Place(here, index)
            if place in bright:
                text = "on the longest chain"
            elif measured:
                text = ""
            elif not slack[id(event)]:
                text = "on another chain that is as long"
            else:
                more = layout.trace.unit.lasting(slack[id(event)])
                text = f"may take {more} more, with all in this order, and the run takes as long"
            found[place] = ChainRole(None if place in bright else FADED, text if row.one else "")
    return found


def draw_chain(layout: Layout) -> list[Diagram]:
    """Return the line of the chain, if one is shown: along the boxes, and to the row of the rank that goes on."""
    corners, chain = _corners(layout), layout.trace.chain
    if not corners or chain is None:
        return []
    both = [
        poly(corners, style(None, color, wide), closed=False)
        for color, wide in ((theme.CARD, THICK + 2 * CASING), (theme.CHAIN, THICK))
    ]
    return [Titled(f"the longest chain: {chain.describe(layout.trace.unit)}", together(both))]


def _corners(layout: Layout) -> list[Point]:
    """Return the corners of the line. It runs along the lower edge of a box, where it hides no number."""

    def level(place: Place) -> float:
        _, y, _, height = layout.area(place)  # of a message, too: the line keeps its level
        return y + height - THICK / 2 - 0.5

    corners: list[Point] = []
    for (came, went), (start, end) in zip(stops(layout), spans(layout), strict=True):
        x, width = layout.x(start), (end - start) * layout.per_tick
        turn = [] if came.row == went.row else [(x + width / 2, level(came)), (x + width / 2, level(went))]
        corners += [(x, level(came)), *turn, (x + width, level(went))]
    return corners
