"""Numbers of micro-batches or layers, planned for the whole picture: in every box of a kind, once over consecutive
boxes of the same micro-batch, or not at all. If every box decided by itself they would look random."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence

from lib.record.events import Event

from ..ink import theme
from ..ink.letters import text_width
from ..ink.marks import Diagram, label, style
from ..ink.texts import ranges
from .layout import Layout, Row
from .operations import color_of, ink_on

SIZES = (11.0, 9.5, 8.5)
APART = 0.4
"""Free room in a box beside its number, in parts of the font size: the numbers of two boxes must not read as one."""


def plan_numbers(layout: Layout) -> dict[str, float]:
    """Return the size of numbers, in pixels, for every kind that has some. A box where half of a schedule ends may be
    too narrow for its number, and does not count for the others."""
    spans = defaultdict[str, set[tuple[str, float]]](set)
    room = layout.fine if layout.trace.by_layer else layout.roomy  # else a run of layers is read as one box
    for run in (run for row in layout.rows if room for run in numbered(layout, row)):
        if run[-1].end != layout.cut:
            spans[run[0].kind].add(_written(layout, run))
    found: dict[str, float] = {}
    for kind, some in spans.items():
        high = (size for size in SIZES if layout.height >= size + 3)
        if size := next((size for size in high if all(_fits(layout, *one, size) for one in some)), 0.0):
            found[kind] = size
    return found


def draw_numbers(layout: Layout, row: Row, plans: Mapping[str, float], pale: Container[int] = ()) -> Iterator[Diagram]:
    """Yield the numbers of a row. ``pale``: the ids of events with faded boxes, where numbers have the color of other
    texts."""
    for run in numbered(layout, row) if plans else ():
        text, length = _written(layout, run)
        if (plan := plans.get(run[0].kind)) and _fits(layout, text, length, plan):
            faded = all(id(event) in pale for event in run)
            how = style(theme.INK if faded else ink_on(run[0].kind, color_of(run[0], layout.trace)))
            x, y = layout.x((run[0].start + run[-1].end) / 2), row.y + layout.height / 2
            yield label(x, y, text, plan, how, weight=600, passive=True)


def numbered(layout: Layout, row: Row) -> Iterator[Sequence[Event]]:
    """Yield what has one number: each box with that of its layer, or each run with that of its micro-batches."""
    for run in row.runs if layout.trace.by_layer or row.same_batches else ():
        if run[0].batches:
            yield from ([event] for event in run) if layout.trace.by_layer else [run]


def _written(layout: Layout, run: Sequence[Event]) -> tuple[str, float]:
    """Return the number over a run, and how many ticks that is long."""
    text = str(run[0].layer) if layout.trace.by_layer else ranges(run[0].batches)
    return text, run[-1].end - run[0].start


def _fits(layout: Layout, text: str, length: float, size: float) -> bool:
    return text_width(text, size) + APART * size <= length * layout.per_tick


def joined(layout: Layout, row: Row) -> dict[int, tuple[Event, ...]]:
    """Return the runs of boxes that are drawn as one, by the id of each event in them: a micro-batch on its way through
    the layers of a stage. With a longest chain all boxes stay separate."""
    trace = layout.trace
    if not layout.fine or trace.by_layer or trace.chain is not None or not row.same_batches:
        return {}
    return {id(event): tuple(run) for run in row.runs if len(run) > 1 for event in run}
