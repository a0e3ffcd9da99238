"""The legend, which explains only what occurs in the picture."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from lib.basics.units import MS
from lib.record.attention import ATTEND, BACKWARD_ATTEND
from lib.record.experts import EXPERT_BACKWARD, EXPERT_FORWARD
from lib.record.kinds import MEMORY_KINDS
from lib.record.table import OPERATIONS, RECEIVE, stream_of
from lib.record.training import BACKWARD, FORWARD

from ..ink import theme
from ..ink.letters import text_width
from ..ink.marks import Diagram, box, boxes, label, lines, style, together
from ..ink.trace import Trace, of_stream
from .coarse import column_of
from .gaps import ONLY_TALKS, arrivals_of, exposed
from .layout import HIDDEN, PAD, Layout
from .links import TIE, arrows, links_of, ties_of
from .memory import target_line
from .numbering import NumberPlans, joined
from .operations import ink_on, notches, operation, sample_color, stripes
from .overlays import DOT, ROUND, THICK, draw_held, flag, for_ever

TALL, WIDE, LINE = 14.0, 16.0, 19.0
"""Height and width of a sample, height of a line, in pixels."""


WHY_UNEQUAL = {
    **dict.fromkeys((ATTEND.kind, BACKWARD_ATTEND.kind), "longer where queries see more keys"),
    **dict.fromkeys((EXPERT_FORWARD.kind, EXPERT_BACKWARD.kind), "longer where more tokens go"),
}
"""Why an operation takes some ranks longer than others."""


class Entry(NamedTuple):
    """A sample drawn from (0, 0) to (width, TALL), and its meaning."""

    sample: Diagram
    width: float
    text: str


Legend = Sequence[Sequence[Entry]]
"""Groups of entries, each of which begins a line."""


def legend_of(
    layouts: Sequence[Layout], plans: Sequence[NumberPlans], memory: bool = False, links: str = "auto"
) -> Legend:
    """Return the legend of schedules with equally many layers. ``links``: the option with which rows were drawn."""
    numbered = {kind for numbers in plans for kind, how in numbers.items() if how.size}
    rows = [*_colors(layouts), *_operations(layouts, numbered), *_signs(layouts, links)]
    return [rows, [entry for layout in layouts for entry in _memory(layout)] if memory else []]


def draw_legend(
    legend: Legend, width: float, y: float, size: float = 10.5, most: float = 0.0
) -> tuple[list[Diagram], float]:
    """Return a legend in so many pixels of width from ``y`` down, and the y where it ends. Its texts have a ``size``,
    and room for the ``most`` that they are where the picture is shown much smaller."""
    parts: list[Diagram] = []
    line = max(LINE, most + 3)
    for group in filter(None, legend):
        x = PAD
        for entry in group:
            wide = entry.width + 5 + text_width(entry.text, max(size, most))
            if x > PAD and x + wide > width - PAD:
                x, y = PAD, y + line
            parts.append(entry.sample.translate(x, y))
            text = label(x + entry.width + 5, y + 7, entry.text, size, style(theme.INK), "start", most=most)
            parts.append(text)
            x += wide + 14
        y += line
    return parts, y - line + TALL


def patch(color: str, text: str) -> Entry:
    """Return a patch of a color as an entry."""
    return Entry(box(0, 0, WIDE, TALL, style(color), 2), WIDE, text)


def _operations(layouts: Sequence[Layout], numbered: Collection[str]) -> Iterator[Entry]:
    trace = layouts[0].trace
    events = [event for layout in layouts for event in layout.trace.events]
    lasting = {event.kind for event in events if event.end > event.start}
    lasting |= {RECEIVE.kind for layout in layouts if arrivals_of(layout)}
    moments = {event.kind for event in of_stream(events, "compute") if event.end == event.start}
    happened = lasting | moments
    known = list(OPERATIONS)
    for kind in [*known, *sorted(happened - {*known})]:
        if kind not in happened:
            continue
        text, color = theme.name_of(kind), sample_color(kind, trace)
        if kind == min(numbered, default="", key=known.index):
            told = {"layer" if layout.trace.by_layer else "micro-batch" for layout in layouts}
            text += f" (number: {' or '.join(sorted(told))})"
        if kind in WHY_UNEQUAL and any(_unequal(layout.trace, kind) for layout in layouts):
            text += f" ({WHY_UNEQUAL[kind]})"
        if kind in moments:
            yield Entry(operation(kind, (4, 4.5, 0, TALL), color), 8, text)
        else:
            wide = WIDE if stream_of(kind) == "compute" else 13.0
            place = (0.0, TALL * 0.3, wide, TALL * 0.4) if stream_of(kind) == "message" else (0.0, 0.0, wide, TALL)
            sample = [operation(kind, place, color)]
            if kind in numbered:
                sample.append(label(wide / 2, TALL / 2, "0", 9.5, style(ink_on(kind, color)), weight=600))
            yield Entry(together(sample), wide, text)


def _unequal(trace: Trace, kind: str) -> bool:
    """Return whether some ranks spend more time on as many operations of a kind as others."""
    lengths = ([event.length for event in own if event.kind == kind] for own in trace.by_rank.values())
    spent = {(len(own), round(sum(own), 6)) for own in lengths}
    return len({count for count, _ in spent}) < len(spent)


def _signs(layouts: Sequence[Layout], links: str) -> Iterator[Entry]:
    """Yield the signs in the rows besides operations."""
    if any(joined(layout, row) for layout in layouts for row in layout.rows):
        notched = together([box(0, 0, WIDE, TALL, style(theme.MUTE), 2), notches([WIDE / 2], 0, TALL)])
        yield Entry(notched, WIDE, "notch: the next layer")
    striped = [layout for layout in layouts if layout.fine]
    turned = [layout for layout in striped if layout.trace.turned]
    sample = together([box(0, 0, WIDE, TALL, style(theme.MUTE), 2), *stripes(1, (0, 0, WIDE, TALL))])
    if turned:
        yield Entry(sample, WIDE, "foot: comes from the other end of the pipeline")
    if any(any(row.chunks.values()) for layout in striped if layout not in turned for row in layout.rows):
        yield Entry(sample, WIDE, "foot: the rank's next chunk of layers")
    ties = [kind for layout in layouts for kind in ties_of(layout, links)]
    if ties:
        color, middle = theme.kind_color(ties[0]), WIDE / 2
        ends = boxes([(middle - 4, 0, 8, 3), (middle - 4, TALL - 3, 8, 3)], style(color))
        tie = lines([(middle, 0, middle, TALL)], style(None, color, TIE))
        yield Entry(together([ends, tie]), WIDE, "joins the ranks of a collective")
    if any(links_of(layout, links).arrows for layout in layouts):
        late = "a late " * (links == "auto")
        yield Entry(together(arrows([(1.0, 2.0, WIDE - 1, TALL - 2)])), WIDE, f"from send to {late}receive")
    if any(layout.trace.idle > 1e-9 for layout in layouts):
        measured = any(layout.trace.unit is MS for layout in layouts)
        text = f"bubble: waits, or is {'between operations' if measured else 'done'}"
        yield Entry(box(0, 0, WIDE, TALL, style(theme.GAP, theme.WAITS, 0.5), 2), WIDE, text)
    failed = [layout.trace for layout in layouts if layout.trace.failure is not None]
    if any(trace.waits for trace in failed):
        yield Entry(together(for_ever([(0, 0, WIDE, TALL)], step=5)), WIDE, "waits for ever")
    if failed:
        yield Entry(flag(2, 1, TALL), WIDE, "where it stopped")
    if any(not layout.fine and column_of(layout, layout.rough) for layout in layouts):
        halves = [(0.0, theme.work_color(FORWARD.kind, 0, 1)), (TALL / 2, theme.work_color(BACKWARD.kind, 0, 1))]
        sample = together([box(0, y, WIDE, TALL / 2, style(color)) for y, color in halves])
        yield Entry(sample, WIDE, "height: how much of the time")
    lanes = list[tuple[float | None, str]]()
    if any(layout.network for layout in layouts):
        lanes += [(HIDDEN, "communicates, hidden by compute"), (None, "only communicates")]
    elif any(exposed(layout, row) for layout in layouts for row in layout.rows):
        yield Entry(box(0, 0, WIDE, TALL, ONLY_TALKS, 2), WIDE, "only communicates")
    if any(layout.within for layout in layouts):
        lanes += [(HIDDEN, "traffic within layers, hidden by products"), (None, "and exposed")]
    for look, text in lanes:
        yield Entry(box(0, TALL * 0.35, WIDE, TALL * 0.4, style(theme.TALK, None, 0, look)), WIDE, text)
    if any(map(draw_held, layouts)):
        dot = box(WIDE / 2 - DOT / 2, TALL / 2 - DOT / 2, DOT, DOT, style(theme.INK, theme.CARD, 1), ROUND)
        yield Entry(dot, WIDE, "made what is in memory at the peak")
    if any(layout.fine and layout.trace.chain is not None for layout in layouts):
        line = lines([(0, TALL / 2, WIDE, TALL / 2)], style(None, theme.CHAIN, THICK))
        yield Entry(line, WIDE, "the longest chain (all else is pale)")


def _memory(layout: Layout) -> Iterator[Entry]:
    held = {event.held for event in layout.trace.events}
    for slot, kind in enumerate(MEMORY_KINDS):
        if any(one[slot] for one in held if one):
            name, color = theme.MEMORY[kind]
            yield patch(color, name)
    peak, target = layout.trace.peak, layout.trace.memory_target
    if target is not None and peak is not None:
        yield Entry(target_line(layout.trace, 0, WIDE, 7), WIDE, "target")


def _colors(layouts: Sequence[Layout]) -> list[Entry]:
    """Return the meaning of shades: micro-batches, if several occur."""
    trace = layouts[0].trace
    works = {(event.kind, event.batches) for layout in layouts for row in layout.rows for event in row.events}
    if len({min(batches) for kind, batches in works if batches and theme.is_pass(kind)}) < 2:
        return []
    steps = min(trace.order[1], 16)
    colors = [theme.work_color(FORWARD.kind, step, steps) for step in range(steps)]
    band = [box(40 * step / steps, 0, 40 / steps + 0.3, TALL, style(color)) for step, color in enumerate(colors)]
    return [Entry(together(band), 40, "micro-batches, from the first to the last")]
