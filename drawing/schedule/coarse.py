"""Rows of many events: every cell of a row shows what fills most of it, or where operations are too narrow, how much of
its time goes to what. A strip below shows the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TypeVar

from lib.record.figures.breakdown import share_text
from lib.record.table import OPERATIONS, stream_of

from ..ink import theme
from ..ink.marks import Diagram, Rect, boxes, hovers, style
from ..ink.texts import plural
from ..ink.trace import of_stream
from .gaps import covered
from .layout import HIDDEN, MESSAGE, Layout, Row
from .miniature import colored, fill, most_of, runs_of
from .numbering import draw_numbers, plan_numbers
from .operations import color_of

CELLS = 120_000
"""The largest number of cells in a picture. Each takes about eight bytes."""
LEVELS, SEEN = 4, 0.08
"""The heights of a bar in the strip of the network, and the least part of such a step that is shown."""
NARROW, SEVERAL, STEPS, DIVIDED = 2.5, 8, 8, 4.0
"""Where operations are usually narrower than so many pixels, a column is as wide as several of them, and its height is
divided in so many steps, if the row has so many pixels."""
L = TypeVar("L")
Look = tuple[str, bool]
"""(color, whether it is a thin bar)"""
Cells = Sequence[dict[Look, float] | None]
"""For how long each look fills each cell of a row, in parts of the cell."""
Work = tuple[str, frozenset[int]]
"""(kind, micro-batches)"""
Span = tuple[float, float, bool]
"""(start, end, whether it is hidden)"""


def draw_coarse(layout: Layout) -> list[Diagram]:
    """Return the rows, one mark for each look, with a hover text for each row, and numbers where there is room."""
    width = layout.x1 - layout.x0
    cell = max(float(layout.rough), width * len(layout.rows) * layout.rough / CELLS)
    looks = _looks(layout)
    kinds = {look: kind for (kind, _), look in looks.items()}
    talks = {look for look, kind in kinds.items() if _talks(kind)}
    found = defaultdict[tuple[str, float], list[Rect]](list)
    texts: list[tuple[Rect, str]] = []
    numbers: list[Diagram] = []
    wide, plans = column_of(layout, cell), plan_numbers(layout)
    for row in layout.rows:
        cells = _cells(layout, row, wide or cell, looks)
        if wide:
            for (color, _), thick, at, first, last in columns(cells, kinds, STEPS, 0.5):
                tall = layout.height * thick / STEPS
                found[color, tall].append(_bar(layout, wide, first, last, row.y + layout.height * at / STEPS, tall))
        else:
            most = most_of(cells, 0.5, talks)
            for first, last, (color, thin) in runs_of(most):
                tall = layout.height * (MESSAGE if thin else 1.0)
                found[color, tall].append(_bar(layout, cell, first, last, row.y + (layout.height - tall) / 2, tall))
        if not layout.slim:  # there is hardly a pointer
            count, idle = len(row.operations), share_text(row.idle(layout.trace.time))
            text = f"{row.full_name}: {count:,} operation{plural(count)}, bubble {idle}"
            texts.append(((layout.x0, row.y, width, layout.height), text))
        numbers += draw_numbers(layout, row, plans)
    talk = ((layout.foot(row), _talk(row)) for row in layout.rows if layout.network)
    return [*colored(found), *strips(layout, cell, LEVELS, talk), *hovers(texts), *numbers]


def _bar(layout: Layout, cell: float, first: int, last: int, y: float, tall: float) -> Rect:
    x = layout.x0 + first * cell
    return x, y, min((last - first) * cell, layout.x1 - x), tall


def strips(layout: Layout, cell: float, levels: int, rows: Iterable[tuple[float, Iterable[Span]]]) -> list[Diagram]:
    """Return strips of communication, each up from some y: in each cell a bar as high as the share of its time, in so
    many steps, strong for what is exposed, and pale above that for what is hidden by compute."""
    found = defaultdict[tuple[int, str], list[Rect]](list)
    count, per_tick = int((layout.x1 - layout.x0) / cell) + 2, layout.per_tick / cell
    high, kinds = (layout.thin - 1) / levels, {look: look for look in ("exposed", "hidden")}
    for foot, spans in rows:
        cells = fill(((start * per_tick, end * per_tick, [*kinds][hidden]) for start, end, hidden in spans), count)
        for look, thick, at, first, last in columns(cells, kinds, levels, SEEN):
            found[thick, look].append(_bar(layout, cell, first, last, foot - (at + thick) * high, thick * high))
    return [
        boxes(some, style(theme.TALK, None, 0, HIDDEN if look == "hidden" else None))
        for (_, look), some in found.items()
    ]


def columns(
    cells: Iterable[dict[L, float] | None], kinds: Mapping[L, str], steps: int, least: float
) -> Iterator[tuple[L, int, int, int, int]]:
    """Yield (look, height, what is before it, first cell, cell after the last), heights in steps: each column is
    divided by how much of its time goes to each kind of look, if that is not less than the ``least`` part of a step,
    and shows of each kind the look that takes longest."""
    known = [*OPERATIONS, *sorted({*kinds.values()} - {*OPERATIONS})]
    order = {kind: (_talks(kind), at) for at, kind in enumerate(known)}

    def divided(here: dict[L, float]) -> tuple[tuple[L, int, int], ...]:
        parts = defaultdict[str, list[tuple[float, L]]](list)
        for look, long in here.items():
            parts[kinds[look]].append((long, look))
        column: list[tuple[L, int, int]] = []
        at = 0
        for kind in sorted(parts, key=order.__getitem__):
            part = steps * sum(long for long, _ in parts[kind])
            thick = 0 if part < least else min(steps - at, max(1, round(part)))
            if thick:
                column.append((max(parts[kind])[1], thick, at))
            at += thick
        return tuple(column)

    for first, last, column in runs_of(divided(here) if here else None for here in cells):
        yield from ((look, thick, at, first, last) for look, thick, at in column)


def _talk(row: Row) -> Iterator[Span]:
    """Yield the spans of a row's communication, and whether they are hidden by compute."""
    computes = sorted((one.start, one.end) for one in of_stream(row.events, "compute") if one.end > one.start)
    for event in of_stream(row.events, "collective", "message"):
        yield from covered(event.start, event.end, computes)


def _talks(kind: str) -> bool:
    return stream_of(kind) != "compute"


def _looks(layout: Layout) -> dict[Work, Look]:
    """Return the look of each kind of operation with each set of micro-batches."""
    events = {(event.kind, event.batches): event for row in layout.rows for event in row.operations}
    return {work: (color_of(event, layout.trace), stream_of(event.kind) == "message") for work, event in events.items()}


def _cells(layout: Layout, row: Row, cell: float, looks: Mapping[Work, Look]) -> Cells:
    """Return for how long each look fills each cell."""
    per_tick = layout.per_tick / cell
    spans = (
        (event.start * per_tick, event.end * per_tick, looks[event.kind, event.batches]) for event in row.operations
    )
    return fill(spans, int((layout.x1 - layout.x0) / cell) + 2)


def column_of(layout: Layout, cell: float) -> float:
    """Return the width of a column that holds several operations where most are narrower than can be seen, in pixels;
    zero where they are not, or rows are too low to be divided."""
    computes = [event.end - event.start for row in layout.rows for event in of_stream(row.events, "compute")]
    usual = median(computes) * layout.per_tick if computes else 0.0
    return max(2 * cell, SEVERAL * usual) if 0 < usual < NARROW and layout.height >= DIVIDED else 0.0
