"""Rows of many events: every cell of a row shows what fills most of it, or where operations are too narrow, how much of
its time goes to what. A strip below shows the network."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from statistics import median

from lib.record.table import OPERATIONS, stream_of

from . import theme
from .layout import HIDDEN, MESSAGE, Layout, Row
from .marks import Bar, Bars, Diagram, leaf, style, unseen
from .miniature import fill, most_of, runs_of
from .numbering import NumberPlans, over_runs
from .operations import color_of
from .texts import plural, share_text
from .trace import of_stream

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


def draw_coarse(layout: Layout, plans: NumberPlans) -> list[Diagram]:
    """Return the rows, one mark for each look, with a hover text for each row, and numbers where there is room."""
    width = layout.x1 - layout.x0
    cell = max(float(layout.rough), width * len(layout.rows) * layout.rough / CELLS)
    looks: dict[tuple[str, object], Look] = {}
    filled: dict[Look, list[Bar]] = {}
    whole: list[Diagram] = []
    numbers: list[Diagram] = []
    stacked: dict[tuple[Look, int], list[Bar]] = {}
    wide = column_of(layout, cell)
    for row in layout.rows:
        middle = row.y + layout.height / 2
        cells, hidden = _cells(layout, row, wide or cell, looks)
        if wide:
            for look, thick, at, first, last in _shares(cells, len(row.parts), looks):
                x, y = layout.x0 + first * wide, row.y + layout.height * (at + thick / 2) / STEPS
                stacked.setdefault((look, thick), []).append((x, y, min((last - first) * wide, layout.x1 - x)))
        most = most_of(cells, 0.5 * len(row.parts), hidden)
        for first, last, look in runs_of(most) if not wide else ():
            x = layout.x0 + first * cell
            filled.setdefault(look, []).append((x, middle, min((last - first) * cell, layout.x1 - x)))
        count, idle = len(row.operations), row.idle(layout.trace.time)
        said = f"{row.full_name}: {count:,} operation{plural(count)}, bubble {share_text(idle)}"
        whole.append(unseen(said, (layout.x0, row.y, width, layout.height)))
        numbers += over_runs(layout, row, plans)
    shapes = [
        leaf(Bars(items, layout.height * (MESSAGE if thin else 1.0)), style(color))
        for (color, thin), items in filled.items()
    ]
    shapes += [
        leaf(Bars(items, layout.height * thick / STEPS), style(color)) for ((color, _), thick), items in stacked.items()
    ]
    return [
        *shapes,
        *_network(layout, cell),
        *whole,
        *numbers,
    ]


def _network(layout: Layout, cell: float) -> list[Diagram]:
    """Return the strips of the network: in each cell a bar as high as the share of its time with communication, strong
    for what is exposed, and pale above that for what is hidden by compute."""
    if not layout.network:
        return []
    found: dict[tuple[int, int], list[Bar]] = {}
    for row in layout.rows:
        foot, high = layout.foot(row), (layout.thin - 1) / LEVELS
        for (exposed, hidden), same in _levels(layout, row, cell):
            first, last = same
            x, width = layout.x0 + first * cell, (last - first) * cell
            width = min(width, layout.x1 - x)
            if exposed:
                found.setdefault((exposed, 0), []).append((x, foot - exposed * high / 2, width))
            if hidden:
                found.setdefault((hidden, 1), []).append((x, foot - (exposed + hidden / 2) * high, width))
    looks = (None, HIDDEN)
    return [
        leaf(Bars(bars, level * (layout.thin - 1) / LEVELS), style(theme.TALK, None, 0, looks[hidden]))
        for (level, hidden), bars in found.items()
    ]


def _levels(layout: Layout, row: Row, cell: float) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield how much of the time is exposed and hidden communication, in steps, for runs of cells that are the same."""
    count, per_tick = int((layout.x1 - layout.x0) / cell) + 2, layout.per_tick / cell
    exposed, hidden = [0.0] * count, [0.0] * count
    for events in row.parts:
        computes = sorted((one.start, one.end) for one in of_stream(events, "compute") if one.end > one.start)
        starts = [start for start, _ in computes]
        before = [0.0, *accumulate(end - start for start, end in computes)]

        def computed(until: float) -> float:
            """Return how long was computed until then."""
            at = bisect_right(starts, until)  # noqa: B023
            return before[at] - max(0.0, computes[at - 1][1] - until) if at else 0.0  # noqa: B023

        for event in events:
            if event.stream not in ("collective", "message"):
                continue
            for at in range(int(event.start * per_tick), int(event.end * per_tick) + 1):
                start, end = max(event.start, at / per_tick), min(event.end, (at + 1) / per_tick)
                beside = computed(end) - computed(start)
                hidden[at] += beside
                exposed[at] += end - start - beside
    whole = len(row.parts) / per_tick / LEVELS
    start = 0
    steps = [
        (_step(out, whole, LEVELS), _step(under, whole, LEVELS)) for out, under in zip(exposed, hidden, strict=True)
    ]
    for (out, under), same in groupby(steps):
        end = start + len(list(same))
        if out or under:
            yield (out, min(under, LEVELS - out)), (start, end)
        start = end


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
    start = 0
    for divided, same in groupby(found):
        end = start + len(list(same))
        yield from ((look, thick, top, start, end) for look, thick, top in divided)
        start = end
