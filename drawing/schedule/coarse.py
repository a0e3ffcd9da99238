"""Rows of many events: every cell of a row shows what fills most of it, or where operations are too narrow, how much of
its time goes to what. A strip below shows the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from lib.record.table import OPERATIONS, stream_of

from ..ink import theme
from ..ink.marks import Bar, Bars, Diagram, Rect, hovers, leaf, style
from ..ink.texts import plural, share_text
from ..ink.trace import of_stream
from .gaps import covered
from .layout import HIDDEN, MESSAGE, Layout, Row
from .miniature import colored, fill, most_of, runs_of
from .numbering import NumberPlans, draw_numbers
from .operations import color_of

CELLS = 120_000
"""The largest number of cells in a picture. Each takes about eight bytes."""
LEVELS, SEEN = 4, 0.08
"""The heights of a bar in the strip of the network, and the least part of such a step that is shown."""
NARROW, SEVERAL, STEPS, DIVIDED = 2.5, 8, 8, 4.0
"""Where operations are usually narrower than so many pixels, a column is as wide as several of them, and its height is
divided in so many steps, if the row has so many pixels."""
Look = tuple[str, bool]
"""(color, whether it is a thin bar)"""
Cells = Sequence[dict[Look, float] | None]
"""For how long each look fills each cell of a row, in parts of the cell."""
Span = tuple[float, float, bool]
"""(start, end, whether it is hidden)"""


def draw_coarse(layout: Layout, plans: NumberPlans) -> list[Diagram]:
    """Return the rows, one mark for each look, with a hover text for each row, and numbers where there is room."""
    width = layout.x1 - layout.x0
    cell = max(float(layout.rough), width * len(layout.rows) * layout.rough / CELLS)
    looks: dict[tuple[str, object], Look] = {}
    bars: dict[tuple[str, float], list[Bar]] = {}
    texts: list[tuple[Rect, str]] = []
    numbers: list[Diagram] = []
    wide = column_of(layout, cell)
    for row in layout.rows:
        middle = row.y + layout.height / 2
        cells, hidden = _cells(layout, row, wide or cell, looks)
        if wide:
            for (color, _), thick, at, first, last in _shares(cells, len(row.parts), looks):
                x, y = layout.x0 + first * wide, row.y + layout.height * (at + thick / 2) / STEPS
                bar = (x, y, min((last - first) * wide, layout.x1 - x))
                bars.setdefault((color, layout.height * thick / STEPS), []).append(bar)
        most = most_of(cells, 0.5 * len(row.parts), hidden)
        for first, last, (color, thin) in runs_of(most) if not wide else ():
            x, tall = layout.x0 + first * cell, layout.height * (MESSAGE if thin else 1.0)
            bars.setdefault((color, tall), []).append((x, middle, min((last - first) * cell, layout.x1 - x)))
        count, idle = len(row.operations), row.idle(layout.trace.time)
        text = f"{row.full_name}: {count:,} operation{plural(count)}, bubble {share_text(idle)}"
        texts.append(((layout.x0, row.y, width, layout.height), text))
        numbers += draw_numbers(layout, row, plans)
    talk = ((row, layout.foot(row), _talk(row)) for row in layout.rows if layout.network)
    return [*colored(bars), *strips(layout, cell, LEVELS, talk), *hovers(texts), *numbers]


def strips(
    layout: Layout, cell: float, levels: int, rows: Iterable[tuple[Row, float, Iterable[Span]]]
) -> list[Diagram]:
    """Return strips of communication, each up from some y: in each cell a bar as high as the share of its time, in so
    many steps, strong for what is exposed, and pale above that for what is hidden by compute."""
    found: dict[tuple[int, bool], list[Bar]] = {}
    count, per_tick = int((layout.x1 - layout.x0) / cell) + 2, layout.per_tick / cell
    high = (layout.thin - 1) / levels
    for row, foot, spans in rows:
        cells = fill(((start * per_tick, end * per_tick, hidden) for start, end, hidden in spans), count)
        whole = len(row.parts) / levels
        steps = (_steps(here, whole, levels) if here else None for here in cells)
        for first, last, both in runs_of(steps):
            x, level = layout.x0 + first * cell, 0
            for hidden, more in enumerate(both):
                if more:
                    bar = (x, foot - (level + more / 2) * high, min((last - first) * cell, layout.x1 - x))
                    found.setdefault((more, bool(hidden)), []).append(bar)
                level += more
    return [
        leaf(Bars(bars, level * high), style(theme.TALK, None, 0, HIDDEN if hidden else None))
        for (level, hidden), bars in found.items()
    ]


def _talk(row: Row) -> Iterator[Span]:
    """Yield the spans of a row's communication, and whether they are hidden by compute."""
    for events in row.parts:
        computes = sorted((one.start, one.end) for one in of_stream(events, "compute") if one.end > one.start)
        for event in of_stream(events, "collective", "message"):
            yield from covered(event.start, event.end, computes)


def _steps(here: dict[bool, float], whole: float, levels: int) -> tuple[int, int]:
    """Return how much of a cell is exposed and hidden communication, in steps."""
    exposed, hidden = (_step(here.get(look, 0.0), whole, levels) for look in (False, True))
    return exposed, min(hidden, levels - exposed)


def _step(part: float, whole: float, most: int) -> int:
    """Return a part in steps of a whole, at least one for all that can be seen."""
    return 0 if part < SEEN * whole else min(most, max(1, round(part / whole)))


def _cells(layout: Layout, row: Row, cell: float, looks: dict[tuple[str, object], Look]) -> tuple[Cells, set[Look]]:
    """Return for how long each look fills each cell, and the looks of communication."""
    per_tick, trace = layout.per_tick / cell, layout.trace

    def spans() -> Iterator[tuple[float, float, Look]]:
        for event in row.operations:
            kind, hue = event.kind, event.batches
            look = looks.get((kind, hue))
            if look is None:
                look = looks[kind, hue] = (color_of(event, trace), stream_of(kind) == "message")
            yield event.start * per_tick, event.end * per_tick, look

    cells = fill(spans(), int((layout.x1 - layout.x0) / cell) + 2)
    return cells, {look for (kind, _), look in looks.items() if stream_of(kind) != "compute"}


def column_of(layout: Layout, cell: float) -> float:
    """Return the width of a column that holds several operations where most are narrower than can be seen, in pixels;
    zero where they are not, or rows are too low to be divided."""
    computes = [event.end - event.start for row in layout.rows for event in of_stream(row.events, "compute")]
    usual = median(computes) * layout.per_tick if computes else 0.0
    return max(2 * cell, SEVERAL * usual) if 0 < usual < NARROW and layout.height >= DIVIDED else 0.0


def _shares(
    cells: Cells, whole: int, looks: dict[tuple[str, object], Look]
) -> Iterator[tuple[Look, int, int, int, int]]:
    """Yield (look, height, its top, first cell, cell after the last), heights in steps: a column is divided by how much
    of its time goes to each kind of operation, in the color of the one that takes longest."""
    kinds, known = {look: kind for (kind, _), look in looks.items()}, [*OPERATIONS]

    def order(kind: str) -> tuple[bool, int, str]:
        return stream_of(kind) != "compute", known.index(kind) if kind in OPERATIONS else len(known), kind

    found = []
    for here in cells:
        parts = defaultdict[str, list[tuple[float, Look]]](list)
        for look, long in (here or {}).items():
            parts[kinds[look]].append((long, look))
        column: list[tuple[Look, int, int]] = []
        top = 0
        for kind in sorted(parts, key=order):
            thick = min(STEPS - top, round(STEPS * sum(long for long, _ in parts[kind]) / whole))
            if thick:
                column.append((max(parts[kind])[1], thick, top))
            top += thick
        found.append(tuple(column))
    for first, last, divided in runs_of(found):
        yield from ((look, thick, top, first, last) for look, thick, top in divided)
