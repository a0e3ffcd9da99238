"""The legend, which explains only what occurs in the picture."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from lib.record.events import MARKS
from lib.record.kinds import MEMORY_KINDS
from lib.record.table import OPERATIONS, lane_of
from lib.record.training import FORWARD

from . import theme
from .layout import PAD, Layout, hatching
from .marks import Diagram, box, label, lines, style, text_width, together
from .memory import target_color
from .numbering import Plans
from .operations import operation
from .path import sample
from .trace import Trace

TALL, WIDE, LINE = 14.0, 16.0, 19.0
"""Height and width of a sample, height of a line, in pixels."""
NUMBERED = 12
"""Up to so many layers, each has a numbered box."""


class Entry(NamedTuple):
    """A sample drawn from (0, 0) to (width, TALL), and what it means."""

    sample: Diagram
    width: float
    text: str


def draw_legend(
    layouts: Sequence[Layout], plans: Sequence[Plans], y: float, memory: bool
) -> tuple[list[Diagram], float]:
    """Return the legend of schedules with equally many layers from ``y`` down, and the y where it ends."""
    numbered = {kind for numbers in plans for kind, how in numbers.items() if how.size}
    parts: list[Diagram] = []
    width = layouts[0].width
    groups = [
        [*_colors(layouts[0].trace), *_operations(layouts, numbered)],
        [entry for layout in layouts for entry in _memory(layout)] if memory else [],
    ]
    for group in filter(None, groups):
        x = PAD
        for entry in group:
            wide = entry.width + 5 + text_width(entry.text, 10.5)
            if x > PAD and x + wide > width - PAD:
                x, y = PAD, y + LINE
            parts.append(entry.sample.translate(x, y))
            parts.append(label(x + entry.width + 5, y + 7, entry.text, 10.5, style(theme.INK), "start"))
            x += wide + 14
        y += LINE
    return parts, y - LINE + TALL


def _operations(layouts: Sequence[Layout], numbered: Collection[str]) -> Iterator[Entry]:
    trace = layouts[0].trace
    looks = {(event.kind, not event.length) for layout in layouts for event in layout.trace.events}
    happened, moments = {kind for kind, _ in looks}, {kind for kind, moment in looks if moment} - set(MARKS)
    known = list(OPERATIONS)
    for kind in [*known, *sorted(happened - {*known, *MARKS})]:
        if kind not in happened:
            continue
        text = theme.name_of(kind)
        color = theme.layer_color(trace.layers // 2, trace.layers)
        if trace.by_operation:
            color = theme.work_color(kind, trace.batches // 2, max(trace.batches, 2))
        if kind == min(numbered, default="", key=known.index):
            text += " (number: micro-batch)"
        if kind in moments:
            yield Entry(operation(kind, (4, 4.5, 0, TALL), color), 8, text)
        else:
            wide = WIDE if lane_of(kind) == "compute" else 13.0
            yield Entry(operation(kind, (0, 0, wide, TALL), color, "0" if kind in numbered else ""), wide, text)
    if any(layout.fine and layout.trace.idle > 1e-9 for layout in layouts):
        yield Entry(_idle(), WIDE, "idle")
    if any(layout.fine and layout.trace.chain is not None for layout in layouts):
        yield Entry(sample(WIDE, TALL), WIDE, "the longest chain (all else is pale)")


def _idle() -> Diagram:
    hatch = lines(hatching(0, 0, WIDE, TALL), style(None, theme.HATCH, 0.75))
    return together([box(0, 0, WIDE, TALL, style(theme.LANE)), hatch])


def _memory(layout: Layout) -> Iterator[Entry]:
    for slot, kind in enumerate(MEMORY_KINDS):
        if any(event.held[slot] for event in layout.trace.events):
            name, color = theme.MEMORY[kind]
            yield Entry(box(0, 0, WIDE, TALL, style(color), 2), WIDE, name)
    peak, target = layout.trace.peak, layout.trace.memory_target
    if target is not None and peak is not None:
        color = target_color(layout.trace)
        yield Entry(lines([(0, 7, WIDE, 7)], style(None, color, 1.2, None, (5.0, 3.0))), WIDE, "target")


def _colors(trace: Trace) -> list[Entry]:
    """Return what colors tell: the layers, or the micro-batches."""
    if not trace.by_operation:
        return [_layers(trace.layers)]
    if trace.batches == 1:
        return []
    steps = min(trace.batches, 16)
    colors = [theme.work_color(FORWARD.kind, step, steps) for step in range(steps)]
    band = [box(40 * step / steps, 0, 40 / steps + 0.3, TALL, style(color)) for step, color in enumerate(colors)]
    return [Entry(together(band), 40, "micro-batches, from the first to the last")]


def _layers(layers: int) -> Entry:
    """Return the colors of the layers: a numbered box for each, or a band from the first to the last."""
    if layers <= NUMBERED:
        return Entry(
            together(map(_layer, range(layers), [layers] * layers)),
            17.0 * layers - 1,
            f"layer{'s' * (layers > 1)}",
        )
    steps = min(layers, 64)
    wide, ink = 140.0 / steps, style(theme.INK)
    band: list[Diagram] = [
        box(12 + step * wide, 0, wide + 0.3, TALL, style(theme.layer_color(step, steps))) for step in range(steps)
    ]
    last = str(layers - 1)
    ends = [label(4, 7, "0", 9.5, ink), label(156, 7, last, 9.5, ink, "start")]
    return Entry(together([*band, *ends]), 158 + text_width(last, 9.5), "layers")


def _layer(layer: int, layers: int) -> Diagram:
    color = theme.layer_color(layer, layers)
    ink = style(theme.text_on(color))
    number = label(17 * layer + WIDE / 2, 7, str(layer), 9.5, ink, weight=600)
    return together([box(17 * layer, 0, WIDE, TALL, style(color), 2), number])
