"""Marks on the operations that have made what is in memory at the peak, in a run that took notes of it."""

from __future__ import annotations

from collections import defaultdict

from lib.machine.lives import Held, Peak

from . import theme
from .layout import Layout
from .marks import Diagram, Titled, box, style

DOT, ROUND = 7.0, 3.5
"""Side and radius of a mark in pixels."""


def draw_held(layout: Layout) -> list[Diagram]:
    """Return a dot on each operation that has made something which is in memory at the peak, with a hover text on what,
    and on when it is read next. Operations at one place share a dot."""
    peak = layout.trace.noted
    row = None if peak is None else next((row for row in layout.rows if peak.rank in row.ranks), None)
    if peak is None or row is None or not layout.fine:
        return []
    texts = defaultdict[float, list[str]](list)
    for held in peak.held:
        if 0 <= held.made < len(row.events):
            event = row.events[held.made]
            texts[round(layout.x(event.start) + DOT / 2 + 1, 1)].append(_text(layout, peak, held))
    y = row.y + layout.row_height - DOT - 1
    return [
        Titled(
            "\n".join(["in memory at the peak:", *dict.fromkeys(said)]),
            box(x - DOT / 2, y, DOT, DOT, style(theme.INK, theme.CARD, 1), ROUND),
        )
        for x, said in sorted(texts.items())
    ]


def _text(layout: Layout, peak: Peak, held: Held) -> str:
    """Return what a thing is, and when it is read next, after the peak."""
    unit, events = layout.trace.unit, layout.trace.by_rank[peak.rank]
    of = f" of layer {held.labels.layer}" if held.labels is not None and held.labels.layer >= 0 else ""
    if held.following is None:
        later = "stays" if held.stays else "read now" if held.last == peak.at else "not read again"
    else:
        event = events[held.following]
        later = f"read next by {event.kind} at {unit.at(unit.brief(event.issued))}"
    return f"{held.what}{of}: {later}"
