"""Draws rows of more events than pixels: every cell of a row shows what fills most of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import theme
from .layout import Layout, Row
from .marks import Bar, Diagram, Titled, bars, box, style
from .operations import color_of
from .words import plural, share_text

CELLS = 120_000
"""Cells of a picture at most. Each takes some eight bytes."""

Look = tuple[str, float | None]
"""(color, opacity)"""


def draw_coarse(layout: Layout) -> list[Diagram]:
    """Return all rows as one mark for each look, whatever the number of events, with a hover text for each row."""
    width = layout.x1 - layout.x0
    cell = max(float(layout.rough), width * len(layout.rows) * layout.rough / CELLS)
    looks: dict[tuple[str, object], Look] = {}
    filled: dict[Look, list[Bar]] = {}
    for row in layout.rows:
        middle = row.y + layout.height / 2
        for look, first, last in _runs(_cells(layout, row, cell, looks)):
            x = layout.x0 + first * cell
            filled.setdefault(look, []).append((x, middle, min((last - first) * cell, layout.x1 - x)))
    shapes = [bars(items, layout.height, style(color, None, 0, opacity)) for (color, opacity), items in filled.items()]
    see_through = style(theme.LANE, None, 0, 0.0)
    return [
        *shapes,
        *[Titled(_hover(layout, row), box(layout.x0, row.y, width, layout.height, see_through)) for row in layout.rows],
    ]


def _hover(layout: Layout, row: Row) -> str:
    count, idle = len(row.operations), row.idle(layout.trace.time)
    return f"{row.full_name}: {count:,} operation{plural(count)}, {share_text(idle)} idle"


def _cells(layout: Layout, row: Row, cell: float, looks: dict[tuple[str, object], Look]) -> Sequence[Look | None]:
    """Return the look that fills most of each cell, or None where it is less than half full."""
    per_tick, trace = layout.per_tick / cell, layout.trace
    cells: list[dict[Look, float] | None] = [None] * (int((layout.x1 - layout.x0) / cell) + 2)
    for event in row.operations:
        # What a color tells: a set of micro-batches, or a layer.
        kind, told = event.kind, event.batches if trace.by_operation else event.layer
        look = looks.get((kind, told))
        if look is None:
            look = looks[kind, told] = _look(kind, color_of(event, trace))
        start, end = event.start * per_tick, event.end * per_tick
        first, last = int(start), int(end)
        if first == last:  # the usual case, and three times as fast
            here = cells[first]
            if here is None:
                cells[first] = {look: end - start}
            else:
                here[look] = here.get(look, 0.0) + end - start
            continue
        for at in range(first, last + 1):
            here = cells[at]
            if here is None:
                here = cells[at] = {}
            here[look] = here.get(look, 0.0) + min(end, at + 1) - max(start, at)
    enough = 0.5 * len(row.parts)
    return [None if here is None or sum(here.values()) < enough else max(here, key=here.__getitem__) for here in cells]


def _look(kind: str, layer_color: str) -> Look:
    if theme.outlined(kind):
        return layer_color, theme.STRONG_TINT
    return layer_color if theme.in_layer_color(kind) else theme.kind_color(kind), None


def _runs(looks: Sequence[Look | None]) -> Iterator[tuple[Look, int, int]]:
    """Yield (look, first cell, cell after the last) for neighboring cells of one look."""
    start = 0
    for at in range(1, len(looks) + 1):
        if at == len(looks) or looks[at] != looks[start]:
            look = looks[start]
            if look is not None:
                yield look, start, at
            start = at
