"""The rows of a schedule: what each rank does, and when."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from lib.record.figures.breakdown import share_text

from ..ink import theme
from ..ink.letters import around, first_fit, fit, places_of_texts
from ..ink.marks import Diagram, Titled, box, boxes, label, lines, style
from ..ink.texts import computes, loses_by_waiting, plural, ranges
from .boxes import Boxes
from .coarse import draw_coarse
from .gaps import draw_gaps, tints
from .layout import PAD, Layout, Row
from .links import TIE, arrow_of, arrows, links_of, ties_of
from .overlays import draw_chain, draw_failure, draw_held, draw_within

NOTE = 9.5
"""The height of the texts at the right of a row, in pixels."""


def draw_timeline(layout: Layout, notes: bool = True) -> list[Diagram]:
    """Return all rows with names, links and nodes. ``notes``: whether idle shares are at the right of the rows."""
    found = links_of(layout)
    ways = [arrow_of(layout, message) for message in found.arrows]
    gaps = [*draw_gaps(layout, notes, ways)]
    parts, texts = [*empty_rows(layout), *gaps], places_of_texts(gaps)
    for kind, ties in ties_of(layout).items():
        pieces = [piece for tie in ties for piece in (around(tie, texts) if tie[0] == tie[2] else [tie])]
        parts.append(lines(pieces, style(None, theme.kind_color(kind), TIE)))
    parts += arrows(ways)  # below the boxes, so that they strike through no number
    parts += Boxes(layout, found.on_hover).draw() if layout.fine else draw_coarse(layout)
    parts += draw_within(layout)
    over = [*draw_chain(layout), *draw_held(layout), *draw_failure(layout)]
    return [*parts, *over, *row_names(layout, notes)]


def empty_rows(layout: Layout) -> list[Diagram]:
    """Return the background of the rows: frames of nodes, and tints where a rank is idle."""
    width = (layout.trace.time or layout.until) * layout.per_tick
    ground = boxes([(layout.x0, row.y, width, layout.row_height) for row in layout.rows], style(theme.LANE))
    return [*_nodes(layout), ground, *tints(layout), grid(layout, layout.top, layout.bottom)]


def grid(layout: Layout, top: float, bottom: float) -> Diagram:
    """Return vertical lines at round times."""
    at = map(layout.x, layout.ticks)
    return lines([(x, top - 2, x, bottom) for x in at], style(None, theme.GRID, 1))


def axis(layout: Layout, y: float) -> tuple[list[Diagram], float]:
    """Return the time axis below ``y``, and the y where it ends."""
    ink, show = style(theme.MUTE), layout.trace.unit.show
    return [
        lines([(layout.x0, y + 2, layout.x1, y + 2)], style(None, theme.HATCH, 1)),
        label(layout.x0 - 20, y + 12, layout.trace.unit.name, 10, ink, "end"),
        *[label(layout.x(time), y + 12, show(time), 10, ink) for time in layout.ticks],
    ], y + 18


def _nodes(layout: Layout) -> Iterator[Diagram]:
    """Yield a frame with a name behind neighboring ranks of a node."""
    for node, neighbors in groupby(layout.rows, layout.node_of):
        if node is None or not layout.nodes:
            continue
        rows = [*neighbors]
        top, bottom = rows[0].y - 3, rows[-1].y + layout.row_height + 3
        ranks = ranges(rank for row in rows for rank in row.ranks if not row.devices)
        frame = box(PAD - 6, top, layout.x1 - PAD + 9, bottom - top, style(theme.CARD, theme.HATCH, 1), 4)
        yield Titled(f"node {node}: ranks {ranks}", frame)
        if bottom - top >= 12:
            yield label(PAD - 2, (top + bottom) / 2, f"node {node}", 9.5, style(theme.MUTE), "start")


def row_names(layout: Layout, notes: bool = True) -> Iterator[Diagram]:
    """Yield the name of every row at its left, and how idle it is at its right."""
    size = 11.0 if layout.height >= 14 else 9.5
    last = -99.0
    for row in layout.rows:
        middle = row.y + layout.height / 2
        if middle - last < size:
            continue
        last = middle
        layers = f"layer{plural(row.layers)} {ranges(row.layers)}"  # if colors do not show them and there is room
        listed = not layout.trace.by_layer and layout.height >= 20 and bool(row.layers)
        fitted = first_fit([layers], [9.5, 8.5], layout.names - 8) if listed else None
        yield row_name(layout, row, middle - 5 * (fitted is not None), size)
        if fitted:
            yield label(layout.x0 - 8, middle + 7, *fitted, style(theme.MUTE), "end")
    if notes and not layout.slim:
        yield from _notes(layout)


def _notes(layout: Layout) -> Iterator[Diagram]:
    """Yield the shares of time of the rows, once for neighbors with equal ones."""
    last, time, waits = -99.0, layout.trace.time, loses_by_waiting(layout.trace)

    def note(row: Row) -> str:
        return f"bubble {share_text(row.idle(time))}" if waits else computes(row.spent(time))

    for text, equal in groupby(layout.rows, note):
        rows = [*equal]
        several = 0 if all(row.one for row in rows) else sum(len(row.ranks) for row in rows)
        top, bottom = rows[0].y, rows[-1].y + layout.height
        middle = (top + bottom) / 2
        if middle - last < NOTE:
            continue
        last, x = middle, layout.x1 + 8
        if len(rows) > 1:
            yield lines([(x - 2, top + 2, x - 2, bottom - 2)], style(None, theme.HATCH, 1))
            x += 4
        texts = [f"{several} ranks", text] if several and bottom - top >= 2 * NOTE else [text]
        for line, words in enumerate(texts):
            y = middle + (line - (len(texts) - 1) / 2) * (NOTE + 2)
            yield label(x, y, words, NOTE, style(theme.MUTE), "start")


def row_name(layout: Layout, row: Row, middle: float, size: float) -> Diagram:
    """Return the name of a row in a size for which there is room; if there is none, without the word "ranks", or as
    their number."""
    room, shorter = layout.names - 8, re.sub("ranks? ", "", row.name)
    names = [row.name, shorter, f"{len(row.ranks)} ranks"]
    name, fitted = first_fit(names, [size, 8.5], room) or (fit(shorter, 8.5, room), 8.5)
    return Titled(row.full_name, label(layout.x0 - 8, middle, name, fitted, style(theme.INK), "end"))
