"""The legend, which explains only what occurs in the picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib.basics.units import MS
from lib.record.attention import ATTEND, BACKWARD_ATTEND
from lib.record.experts import EXPERT_BACKWARD, EXPERT_FORWARD
from lib.record.kinds import MEMORY_KINDS
from lib.record.table import OPERATIONS, RECEIVE, stream_of
from lib.record.training import BACKWARD, FORWARD

from ..ink import theme
from ..ink.letters import text_width
from ..ink.marks import Diagram, box, label, lines, style, together
from ..ink.trace import Trace, of_stream
from .coarse import column_of
from .gaps import ONLY_TALKS, arrivals_of, exposed
from .layout import HIDDEN, MESSAGE, PAD, Layout, message_top
from .links import TIE, arrows, links_of, ties_of
from .memory import target_line
from .numbering import joined, plan_numbers
from .operations import ink_on, notches, operation, sample_color, stripes
from .overlays import DOT, THICK, draw_held, flag, for_ever, held_dot

TALL, WIDE, LINE = 14.0, 16.0, 19.0
"""Height and width of a sample, height of a line, in pixels."""


WHY_UNEQUAL = {
    **dict.fromkeys((ATTEND.kind, BACKWARD_ATTEND.kind), "longer where queries see more keys"),
    **dict.fromkeys((EXPERT_FORWARD.kind, EXPERT_BACKWARD.kind), "longer where more tokens go"),
}
"""Why an operation takes some ranks longer than others."""


class Entry(NamedTuple):
    """A meaning, and a sample drawn from (0, 0) to (width, TALL)."""

    text: str
    sample: Sequence[Diagram]
    width: float = WIDE


Legend = Sequence[Sequence[Entry]]
"""Groups of entries, each of which begins a line."""


def legend_of(layouts: Sequence[Layout], memory: bool = False) -> Legend:
    """Return the legend of schedules with equally many layers."""
    rows = [*_colors(layouts), *_operations(layouts), *_signs(layouts)]
    return [rows, [entry for layout in layouts for entry in _memory(layout)] if memory else []]


def draw_legend(legend: Legend, width: float, y: float, size: float = 10.5) -> tuple[list[Diagram], float]:
    """Return a legend in so many pixels of width from ``y`` down, with texts of this size, and the y where it ends."""
    parts: list[Diagram] = []
    for group in filter(None, legend):
        x = PAD
        for entry in group:
            wide = entry.width + 5 + text_width(entry.text, size)
            if x > PAD and x + wide > width - PAD:
                x, y = PAD, y + LINE
            sample = entry.sample[0] if len(entry.sample) == 1 else together(entry.sample)
            parts.append(sample.translate(x, y))
            parts.append(label(x + entry.width + 5, y + 7, entry.text, size, style(theme.INK), "start"))
            x += wide + 14
        y += LINE
    return parts, y - LINE + TALL


def patch(color: str, text: str) -> Entry:
    """Return a patch of a color as an entry."""
    return Entry(text, [box(0, 0, WIDE, TALL, style(color), 2)])


def _operations(layouts: Sequence[Layout]) -> Iterator[Entry]:
    trace, numbered = layouts[0].trace, {kind for layout in layouts for kind in plan_numbers(layout)}
    events = [event for layout in layouts for event in layout.trace.events]
    lasting = {event.kind for event in events if event.end > event.start}
    lasting |= {RECEIVE.kind for layout in layouts if arrivals_of(layout)}
    moments = {event.kind for event in of_stream(events, "compute") if event.end == event.start}
    happened, known = lasting | moments, list(OPERATIONS)
    for kind in [*filter(happened.__contains__, known), *sorted(happened - {*known})]:
        text, color = theme.name_of(kind), sample_color(kind, trace)
        if kind == min(numbered, default="", key=known.index):
            told = {"layer" if layout.trace.by_layer else "micro-batch" for layout in layouts}
            text += f" (number: {' or '.join(sorted(told))})"
        if kind in WHY_UNEQUAL and any(_unequal(layout.trace, kind) for layout in layouts):
            text += f" ({WHY_UNEQUAL[kind]})"
        if kind in moments:
            yield Entry(text, [operation(kind, (4, 4.5, 0, TALL), color)], 8)
            continue
        wide = WIDE if stream_of(kind) == "compute" else 13.0
        y, tall = (TALL * message_top(kind), TALL * MESSAGE) if stream_of(kind) == "message" else (0.0, TALL)
        number = label(wide / 2, TALL / 2, "0", 9.5, style(ink_on(kind, color)), weight=600)
        yield Entry(text, [operation(kind, (0.0, y, wide, tall), color), *[number] * (kind in numbered)], wide)


def _unequal(trace: Trace, kind: str) -> bool:
    """Return whether some ranks spend more time on as many operations of a kind as others."""
    lengths = ([event.length for event in own if event.kind == kind] for own in trace.by_rank.values())
    spent = {(len(own), round(sum(own), 6)) for own in lengths}
    return len({count for count, _ in spent}) < len(spent)


def _signs(layouts: Sequence[Layout]) -> Iterator[Entry]:
    """Yield the signs in the rows besides operations."""
    traces, middle, gray = [layout.trace for layout in layouts], TALL / 2, box(0, 0, WIDE, TALL, style(theme.MUTE), 2)
    fine = [layout for layout in layouts if layout.fine]
    if any(joined(layout, row) for layout in layouts for row in layout.rows):
        yield Entry("notch: the next layer", [gray, notches([WIDE / 2], 0, TALL)])
    foot = [gray, *stripes(1, (0, 0, WIDE, TALL))]
    if any(layout.trace.turned for layout in fine):
        yield Entry("foot: comes from the other end of the pipeline", foot)
    if any(any(row.chunks.values()) for layout in fine if not layout.trace.turned for row in layout.rows):
        yield Entry("foot: the rank's next chunk of layers", foot)
    if ties := [kind for layout in layouts for kind in ties_of(layout)]:
        color, x = theme.kind_color(ties[0]), WIDE / 2
        ends = [box(x - 4, y, 8, 3, style(color)) for y in (0, TALL - 3)]
        yield Entry("joins the ranks of a collective", [*ends, lines([(x, 0, x, TALL)], style(None, color, TIE))])
    if any(links_of(layout).arrows for layout in layouts):
        late = "a late " * (layouts[0].links == "auto")
        yield Entry(f"from send to {late}receive", arrows([(1.0, 2.0, WIDE - 1, TALL - 2)]))
    if any(trace.idle > 1e-9 for trace in traces):
        between = "between operations" if any(trace.unit is MS for trace in traces) else "done"
        gap = box(0, 0, WIDE, TALL, style(theme.GAP, theme.WAITS, 0.5), 2)
        yield Entry(f"bubble: waits, or is {between}", [gap])
    if any(trace.waits for trace in traces):
        yield Entry("waits for ever", [*for_ever([(0, 0, WIDE, TALL)], step=5)])
    if any(trace.failure is not None for trace in traces):
        yield Entry("where it stopped", [flag(2, 1, TALL)])
    if any(not layout.fine and column_of(layout, layout.rough) for layout in layouts):
        halves = [(0.0, theme.work_color(FORWARD.kind, 0, 1)), (middle, theme.work_color(BACKWARD.kind, 0, 1))]
        sample = [box(0, y, WIDE, middle, style(color)) for y, color in halves]
        yield Entry("height: how much of the time", sample)
    lanes = list[tuple[float | None, str]]()
    if any(layout.network for layout in layouts):
        lanes += [(HIDDEN, "communicates, hidden by compute"), (None, "only communicates")]
    elif any(exposed(layout, row) for layout in layouts for row in layout.rows):
        yield Entry("only communicates", [box(0, 0, WIDE, TALL, ONLY_TALKS, 2)])
    if any(layout.within for layout in layouts):
        lanes += [(HIDDEN, "traffic within layers, hidden by products"), (None, "and exposed")]
    for look, text in lanes:
        yield Entry(text, [box(0, TALL * 0.35, WIDE, TALL * 0.4, style(theme.TALK, None, 0, look))])
    if any(map(draw_held, layouts)):
        yield Entry("made what is in memory at the peak", [held_dot(WIDE / 2, middle - DOT / 2)])
    if any(layout.trace.chain is not None for layout in fine):
        line = lines([(0, middle, WIDE, middle)], style(None, theme.CHAIN, THICK))
        yield Entry("the longest chain (all else is pale)", [line])


def _memory(layout: Layout) -> Iterator[Entry]:
    held = {event.held for event in layout.trace.events}
    for slot, kind in enumerate(MEMORY_KINDS):
        if any(one[slot] for one in held if one):
            name, color = theme.MEMORY[kind]
            yield patch(color, name)
    peak, target = layout.trace.peak, layout.trace.memory_target
    if target is not None and peak is not None:
        yield Entry("target", [target_line(layout.trace, 0, WIDE, 7)])


def _colors(layouts: Sequence[Layout]) -> list[Entry]:
    """Return the meaning of shades: micro-batches, if several occur."""
    trace = layouts[0].trace
    works = {(event.kind, event.batches) for layout in layouts for row in layout.rows for event in row.events}
    if len({min(batches) for kind, batches in works if batches and theme.is_pass(kind)}) < 2:
        return []
    steps = min(trace.order[1], 16)
    colors = [theme.work_color(FORWARD.kind, step, steps) for step in range(steps)]
    band = [box(40 * step / steps, 0, 40 / steps + 0.3, TALL, style(color)) for step, color in enumerate(colors)]
    return [Entry("micro-batches, from the first to the last", band, 40)]
