"""The rows of a schedule: what each rank does, and when."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import groupby

from lib.record.figures.breakdown import share_text

from ..ink import svg, theme
from ..ink.letters import around, first_fit, largest, places_of_texts, text_width
from ..ink.marks import Diagram, Titled, box, boxes, label, lines, style
from ..ink.texts import computes, loses_by_waiting, plural, ranges
from .boxes import Boxes
from .coarse import draw_coarse
from .gaps import draw_gaps, tints
from .layout import PAD, Layout, Row, ticks
from .links import TIE, arrow_of, arrows, links_of, ties_of
from .overlays import draw_chain, draw_failure, draw_held, draw_within

LARGE = 1.0
"""The least distance of two names, as a part of their size."""
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
    at = [layout.x(tick) for tick in ticks(layout.scale)]
    return lines([(x, top - 2, x, bottom) for x in at], style(None, theme.GRID, 1))


def axis(layout: Layout, y: float) -> tuple[list[Diagram], float]:
    """Return the time axis below ``y``, and the y where it ends."""
    ink, show = style(theme.MUTE), layout.trace.unit.show
    at = ticks(layout.scale)
    step = (at[-1] - at[0]) * layout.per_tick / max(len(at) - 1, 1)
    # Where the picture is shown much smaller, there is room for larger letters at each second time, or each third.
    widest = max(text_width(show(time), svg.KEPT) for time in at) + 6
    each = math.ceil(widest / step) if step else 1
    return [
        lines([(layout.x0, y + 2, layout.x1, y + 2)], style(None, theme.HATCH, 1)),
        label(layout.x0 - 20, y + 12, layout.trace.unit.name, 10, ink, "end", most=svg.KEPT),
        *[
            label(layout.x(time), y + 12, show(time), 10, ink, most=0.0 if place % each else svg.KEPT)
            for place, time in enumerate(at)
        ],
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
            yield label(PAD - 2, (top + bottom) / 2, f"node {node}", 9, style(theme.MUTE), "start")


def row_names(layout: Layout, notes: bool = True) -> Iterator[Diagram]:
    """Yield the name of every row at its left, and how idle it is at its right."""
    size = 11.0 if layout.height >= 14 else 9.0
    last = large = -99.0
    for row in layout.rows:
        middle = row.y + layout.height / 2
        if middle - last < size:
            continue
        last = middle
        free = middle - large >= LARGE * svg.KEPT  # where the picture is shown much smaller, for some of the rows
        large = middle if free else large
        layers = f"layer{plural(row.layers)} {ranges(row.layers)}"  # if colors do not show them and there is room
        listed = not layout.trace.by_layer and layout.height >= 20 and bool(row.layers)
        listed = listed and text_width(layers, 8.5) <= layout.names - 8
        named = row_name(layout, row, middle - 5 * listed, size, svg.KEPT if free else 0.0)
        yield Titled(row.full_name, named)
        if listed:
            yield label(layout.x0 - 8, middle + 7, layers, 8.5, style(theme.MUTE), "end")
    if notes:
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


def row_name(layout: Layout, row: Row, middle: float, size: float, height: float) -> Diagram:
    """Return the name of a row in a size for which there is room; without the word "ranks" if there is none, now or
    where the picture is shown much smaller and the name is as high as ``height``."""
    shorter = re.sub("ranks? ", "", row.name)
    name, fitted = first_fit([row.name, shorter], [size, 8.5], layout.names - 8) or (shorter, 8.5)
    most = largest(name, layout.x0 - 10, height)
    lead = ""
    if height and not most >= svg.KEPT and name.startswith("rank"):
        lead = name.removesuffix(shorter)
        most = largest(shorter, layout.x0 - 10, height)
    return label(layout.x0 - 8, middle, name, fitted, style(theme.INK), "end", most=most, lead=lead)
