"""Numbers of micro-batches or layers, planned for the whole picture: in every box of a kind, once over consecutive
boxes of the same micro-batch, or not at all. If every box decided by itself they would look random."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from lib.record.events import Event
from lib.record.table import training

from ..ink import svg, theme
from ..ink.marks import Diagram, label, largest, style, text_width
from ..ink.texts import ranges
from .layout import Layout, Row
from .operations import color_of

SIZES = (11.0, 9.5, 8.0)
LEAST_CONTRAST = 4.2
APART = 0.4
"""Free room in a box beside its number, in parts of the font size: the numbers of two boxes must not read as one."""


class NumberPlan(NamedTuple):
    """The way to write the numbers of a kind: ``size`` in pixels (0: not at all), in ``each`` box or over runs."""

    size: float = 0.0
    each: bool = True
    most: float = 0.0
    """The largest size for which there would be room everywhere."""


NumberPlans = dict[str, NumberPlan]
"""The plan for every kind with numbers."""


def plan_numbers(layout: Layout, cut: float | None = None) -> NumberPlans:
    """Return the plan for every kind. ``cut``: the tick where half of a schedule ends. A box that is cut there may be
    too narrow for its number, and does not count for the others."""
    return {kind: _plan(layout, kind, cut) for kind in training()}


def _plan(layout: Layout, kind: str, cut: float | None) -> NumberPlan:
    rows = [row for row in layout.rows if row.same_batches or layout.trace.by_layer] if layout.roomy else []
    runs = [run for row in rows for run in runs_of(row, kind) if run[0].batches]
    boxes = {(number_of(layout, event), event.length) for run in runs for event in run if event.end != cut}
    for size in SIZES if layout.fine and layout.trace.by_layer else ():  # else a run of layers is read as one box
        if boxes and layout.height >= size + 3 and all(fits(layout, *box, size) for box in boxes):
            return NumberPlan(size, most=_most(layout, boxes))
    if layout.trace.by_layer:
        return NumberPlan()
    spans = {(ranges(run[0].batches), run[-1].end - run[0].start) for run in runs}
    for size in SIZES:
        if runs and layout.height >= size + 3 and all(fits(layout, *span, size) for span in spans):
            legible = all(_ink(layout, run, size)[1] >= LEAST_CONTRAST for run in runs)
            return NumberPlan(size, each=False, most=_most(layout, spans)) if legible else NumberPlan()
    return NumberPlan()


def _most(layout: Layout, places: Iterable[tuple[str, float]]) -> float:
    widths = (largest(text, length * layout.per_tick - APART * svg.KEPT, layout.height) for text, length in places)
    return min(widths)


def over_runs(layout: Layout, row: Row, plans: NumberPlans, pale: Container[int] = ()) -> Iterator[Diagram]:
    """Yield the numbers of a row that stand over several boxes. ``pale``: the ids of events with faded boxes, where
    numbers have the color of other texts."""
    for kind, (size, each, most) in plans.items():
        if size and not each and row.same_batches:
            for run in filter(lambda run: run[0].batches, runs_of(row, kind)):
                x = layout.x((run[0].start + run[-1].end) / 2)
                faded = all(id(event) in pale for event in run)
                how = style(theme.INK if faded else _ink(layout, run, size)[0])
                text = ranges(run[0].batches)
                yield label(x, row.y + layout.height / 2, text, size, how, weight=600, passive=True, most=most)


def number_of(layout: Layout, event: Event) -> str:
    """Return the number of an event: of its layer, or of its micro-batches."""
    return str(event.layer) if layout.trace.by_layer else ranges(event.batches)


def fits(layout: Layout, text: str, length: float, size: float) -> bool:
    """Return whether a text fits into a box that is so many ticks long."""
    return text_width(text, size) + APART * size <= length * layout.per_tick


def runs_of(row: Row, kind: str) -> Iterator[Sequence[Event]]:
    """Yield runs of boxes of one kind and micro-batch that touch each other."""
    run: list[Event] = []
    for event in row.events:
        if event.stream != "compute" or not event.length:
            continue
        if run and (run[-1].kind, run[-1].batches, run[-1].end) != (event.kind, event.batches, event.start):
            yield run
            run = []
        if event.kind == kind:
            run.append(event)
    if run:
        yield run


def joined(layout: Layout, row: Row) -> dict[int, tuple[Event, ...]]:
    """Return the runs of boxes that are drawn as one, by the id of each event in them: a micro-batch on its way through
    the layers of a stage. With a longest chain all boxes stay separate."""
    trace = layout.trace
    if not layout.fine or trace.by_layer or trace.chain is not None or not row.same_batches:
        return {}
    runs = [tuple(run) for kind in training() for run in runs_of(row, kind) if len(run) > 1]
    return {id(event): run for run in runs for event in run}


def _ink(layout: Layout, run: Sequence[Event], size: float) -> tuple[str, float]:
    """Return the color of a number in the middle of a run, and its least contrast to the boxes behind it. On boxes that
    are pale it has the color of other texts."""
    kind = run[0].kind
    if kind in theme.BANDS:
        return theme.INK, theme.contrast(theme.INK, theme.CARD)
    middle = (run[0].start + run[-1].end) / 2
    half = (text_width(ranges(run[0].batches), size) / 2 + 1) / layout.per_tick
    covered = (event for event in run if event.start < middle + half and event.end > middle - half)
    colors = [color_of(event, layout.trace) for event in covered]
    ink = theme.text_on(*colors)
    return ink, min(theme.contrast(ink, color) for color in colors)
