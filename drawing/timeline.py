"""The rows of ranks: what each does, and when."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from lib.record.events import MARKS, Event
from lib.record.table import training

from . import theme
from .coarse import draw_coarse
from .failure import draw_failure
from .hover import hover
from .layout import PAD, Layout, Rect, Row, hatching, idle_spans, ticks
from .links import draw_arrows, draw_ties
from .marks import Diagram, Titled, box, boxes, label, lines, style, text_width, together
from .numbering import Plan, Plans, fits, over_runs, runs_of
from .operations import color_of, operation
from .path import APART, Standing, Stop, draw_path, standings
from .words import plural, ranges, share_text

NO_NUMBERS = Plan()


def draw_timeline(layout: Layout, links: str, plans: Plans, notes: bool = True) -> list[Diagram]:
    """Return all rows with their names, links and the boxes of ranks. The time axis is drawn by ``axis``.

    ``notes``: at the right of each row, how idle its ranks are.
    """
    parts = [*empty_rows(layout), *draw_ties(layout, links)]
    if layout.fine:
        found = standings(layout)
        parts += [_row(layout, here, plans, found) for here in range(len(layout.rows))]
    else:
        parts += draw_coarse(layout)
    over = [*draw_arrows(layout, links), *draw_path(layout), *draw_failure(layout)]
    return [*parts, *over, *row_names(layout, notes)]


def empty_rows(layout: Layout) -> list[Diagram]:
    """Return what is behind the operations: the boxes of ranks, and rows that are hatched where a rank is idle."""
    parts: list[Diagram] = [*_boxes(layout), _lanes(layout), grid(layout, layout.top, layout.bottom)]
    hatch = [line for row in layout.rows for line in _idle(layout, row)] if layout.fine else []
    if hatch:  # chalk's own renderer refuses an empty path
        parts.append(lines(hatch, style(None, theme.HATCH, 0.75)))
    return parts


def grid(layout: Layout, top: float, bottom: float) -> Diagram:
    """Return vertical lines at round times."""
    at = [layout.x(tick) for tick in ticks(layout.scale)]
    return lines([(x, top - 2, x, bottom) for x in at], style(None, theme.GRID, 1))


def axis(layout: Layout, y: float) -> tuple[list[Diagram], float]:
    """Return the time axis below ``y``, and the y where it ends."""
    ink = style(theme.MUTE)
    at = ticks(layout.scale)
    return [
        lines([(layout.x0, y + 2, layout.x1, y + 2)], style(None, theme.HATCH, 1)),
        label(layout.x0 - 8, y + 12, layout.trace.unit.name, 10, ink, "end"),
        *[label(layout.x(time), y + 12, layout.trace.unit.show(time), 10, ink) for time in at],
    ], y + 18


def _row(layout: Layout, here: int, plans: Plans, found: Mapping[Stop, Standing]) -> Diagram:
    row = layout.rows[here]
    shown = [(index, event) for index, event in enumerate(row.events) if event.kind not in MARKS]
    shown.sort(key=lambda pair: not pair[1].length)  # moments on top
    joined = _joined(layout, row)
    boxes = [
        _operation(layout, row, index, plans, found.get(Stop(here, index), APART))
        for index, event in shown
        if id(event) not in joined
    ]
    runs = [_run(layout, row, run) for run in dict.fromkeys(joined.values())]
    return together([*runs, *boxes, *over_runs(layout, row, plans)])


def _joined(layout: Layout, row: Row) -> dict[int, tuple[Event, ...]]:
    """Return for each box that is drawn as one with its neighbors, by its id, all of them: a micro-batch on its way
    through the layers of a stage. Boxes of which only some are on the longest chain stay apart."""
    if not layout.trace.by_operation or layout.trace.chain is not None or not row.same_batches:
        return {}
    runs = [tuple(run) for kind in training() for run in runs_of(row, kind) if len(run) > 1]
    return {id(event): run for run in runs for event in run}


def _run(layout: Layout, row: Row, run: Sequence[Event]) -> Diagram:
    """Return several layers as one box, with a notch where one ends and the next begins, each with its hover text."""
    ends = [layout.x(run[0].start), *[layout.x(event.end) for event in run]]
    x, y, width, height = ends[0], row.y, ends[-1] - ends[0], layout.height
    body = operation(run[0].kind, (x, y, width, height), color_of(run[0], layout.trace))
    deep, see_through = min(3.5, height / 5), style(theme.LANE, None, 0, 0.0)
    notches = [(at, edge, at, edge + way * deep) for at in ends[1:-1] for edge, way in ((y, 1), (y + height, -1))]
    hovers = [
        Titled(hover(event, row, layout.trace.unit), box(left, y, right - left, height, see_through))
        for event, left, right in zip(run, ends, ends[1:], strict=False)
    ]
    return together([body, lines(notches, style(None, theme.CARD, 1.2)), *hovers])


def _operation(layout: Layout, row: Row, index: int, plans: Plans, standing: Standing) -> Diagram:
    event = row.events[index]
    numbers = plans.get(event.kind, NO_NUMBERS)
    text = ranges(event.batches) if numbers.size and numbers.each and row.same_batches else ""
    if not fits(layout, text, event.length, numbers.size):
        text = ""
    place, color = layout.place(row, index), color_of(event, layout.trace)
    said = hover(event, row, layout.trace.unit) + (f"\n{standing.said}" if standing.said else "")
    return Titled(said, operation(event.kind, place, color, text, numbers.size), standing.opacity)


# -- behind the rows ------------------------------------------------------------------------


def _lanes(layout: Layout) -> Diagram:
    width = (layout.trace.time or layout.until) * layout.per_tick
    return boxes([(layout.x0, row.y, width, layout.row_height) for row in layout.rows], style(theme.LANE))


def _idle(layout: Layout, row: Row) -> list[Rect]:
    """Return hatching where the rank does nothing."""
    return [
        line
        for start, end in idle_spans(row.events, layout.trace.time)
        for line in hatching(layout.x(start), row.y, (end - start) * layout.per_tick, layout.row_height)
    ]


def _boxes(layout: Layout) -> Iterator[Diagram]:
    """Yield a frame behind neighboring ranks of one box, named at its left."""
    found: list[tuple[int | None, list[Row]]] = []
    for row in layout.rows:
        node = layout.box_of(row)
        if not found or found[-1][0] != node:
            found.append((node, []))
        found[-1][1].append(row)
    if not layout.boxes:
        return
    for node, rows in found:
        if node is None:
            continue
        top, bottom = rows[0].y - 3, rows[-1].y + layout.row_height + 3
        ranks = ranges(rank for row in rows for rank in row.ranks if not row.devices)
        frame = box(PAD - 6, top, layout.x1 - PAD + 9, bottom - top, style(theme.CARD, theme.HATCH, 1), 4)
        yield Titled(f"box {node}: ranks {ranks}", frame)
        if bottom - top >= 12:
            yield label(PAD - 2, (top + bottom) / 2, f"box {node}", 9, style(theme.MUTE), "start")


# -- beside the rows ------------------------------------------------------------------------


def row_names(layout: Layout, notes: bool = True) -> Iterator[Diagram]:
    """Yield the name of every row at its left, and how idle it is at its right."""
    size = 11.0 if layout.height >= 14 else 9.0
    last = -99.0
    for row in layout.rows:
        middle = row.y + layout.height / 2
        if middle - last < size:
            continue
        last = middle
        layers = _layers(layout, row)
        name, ink = fitting(layout, row.name, size), style(theme.INK)
        yield Titled(row.full_name, label(layout.x0 - 8, middle - 5 * bool(layers), name, size, ink, "end"))
        if layers:
            yield label(layout.x0 - 8, middle + 7, layers, 8.5, style(theme.MUTE), "end")
        if notes:
            yield label(layout.x1 + 8, middle, _note(layout, row), 9.5, style(theme.MUTE), "start")


def _layers(layout: Layout, row: Row) -> str:
    """Return which layers a row runs, where colors do not tell and there is room for it."""
    own = {event.layer for event in row.operations if theme.in_layer_color(event.kind) and event.layer is not None}
    if not layout.trace.by_operation or layout.height < 20 or not own:
        return ""
    said = f"layer{plural(own)} {ranges(own)}"
    return said if text_width(said, 8.5) <= layout.names - 8 else ""


def fitting(layout: Layout, name: str, size: float) -> str:
    """Return the name of a row, without the word "ranks" where there is no room for it."""
    return name if text_width(name, size) <= layout.names - 8 else re.sub("ranks? ", "", name)


def _note(layout: Layout, row: Row) -> str:
    if len(row.ranks) > 1:
        return f"{len(row.ranks)} ranks"
    return f"{share_text(row.idle(layout.trace.time))} idle"
