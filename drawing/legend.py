"""The legend: only what occurs in the picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lib.events import COLLECTIVE, MEMORY_KINDS, POINT_TO_POINT

from . import theme
from .marks import box, glyph, label, lines, poly, style, text_width, together
from .timeline import PAD, Timeline, hatching

Entry = tuple[list[Any], float, str]
"""Marks around (0, 0) .. (width, 14), their width, the text."""


def draw_legend(timeline: Timeline, y: float, memory: bool) -> tuple[list[Any], float]:
    """The legend from ``y`` down, and where it ends."""
    parts: list[Any] = []
    groups = [_operations(timeline, y)] + ([_memory(timeline)] if memory else [])
    for number, group in enumerate(groups):
        x, y = PAD, y + (18 if number else 0)
        for make, width, text in group:
            need = width + 5 + text_width(text, 10.5) + 14
            if x + need > timeline.width - PAD and x > PAD:
                x, y = PAD, y + 18
            parts.append(together(make(x, y)))
            parts.append(label(x + width + 5, y + 7, text, 10.5, style(theme.INK), "start"))
            x += need
    return parts, y + 14


def _operations(timeline: Timeline, y: float) -> Iterator[Any]:
    trace = timeline.trace
    kinds = {event.kind for event in trace.events}
    yield (lambda x, y: _layers(x, y, trace.layers)), _layers_width(trace.layers), "layer"
    middle = theme.layer_color(trace.layers // 2, trace.layers)
    number = "0" if any(timeline.number_size.values()) else ""
    if "forward" in kinds:
        ink = style(theme.text_on(middle))
        text = "forward (its micro-batch)" if number else "forward"
        yield (lambda x, y: [box(x, y, 16, 14, style(middle), 2), label(x + 8, y + 7, number, 9.5, ink)]), 16, text
    if "backward" in kinds:
        how, dark = style(middle, middle, 1.5, 0.22), style(theme.INK)
        yield (
            (lambda x, y: [box(x + 0.75, y + 0.75, 14.5, 12.5, how, 2), label(x + 8, y + 7, number, 9.5, dark)]),
            16,
            "backward",
        )
    if "loss" in kinds:
        lozenge = style(theme.KINDS["loss"])
        yield (lambda x, y: [poly([(x + 4, y + 2), (x + 8, y + 7), (x + 4, y + 12), (x, y + 7)], lozenge)]), 9, "loss"
    if "update" in kinds:
        card = style(theme.CARD)
        yield (lambda x, y: [box(x, y, 12, 14, style(theme.STEP), 2), label(x + 6, y + 7, "U", 9.5, card)]), 12, "update"
    for kind in (*COLLECTIVE, *POINT_TO_POINT):
        if kind in kinds:
            yield _sign(kind), 12, theme.NAMES[kind]
    if trace.idle > 1e-9 and timeline.fine:
        hatch = style(None, theme.HATCH, 0.75)
        yield (lambda x, y: [box(x, y, 16, 14, style(theme.LANE)), lines(hatching(x, y, 16, 14), hatch)]), 16, "idle"


def _sign(kind: str) -> Any:
    def make(x: float, y: float) -> list[Any]:
        shape = glyph(theme.GLYPHS[kind], x + 6, y + 7, 3.4)
        return [box(x, y, 12, 14, style(theme.KINDS[kind]), 2), poly(shape, style(theme.GLYPH))]

    return make


def _memory(timeline: Timeline) -> Iterator[Any]:
    for slot, kind in enumerate(MEMORY_KINDS):
        if any(event.held[slot] for event in timeline.trace.events):
            name, color = theme.MEMORY[kind]
            yield (lambda x, y, color=color: [box(x, y, 16, 14, style(color), 2)]), 16, name
    if timeline.trace.memory_target is not None:
        how = style(None, theme.MUTE, 1.2, None, (5.0, 3.0))
        yield (lambda x, y: [lines([(x, y + 7, x + 16, y + 7)], how)]), 16, "target"


def _layers_width(layers: int) -> float:
    return 17.0 * layers if layers <= 12 else 176.0


def _layers(x: float, y: float, layers: int) -> list[Any]:
    """The ramp: a numbered box a layer, or a band from the first to the last."""
    parts: list[Any] = []
    if layers <= 12:
        for layer in range(layers):
            color = theme.layer_color(layer, layers)
            parts.append(box(x + 17 * layer, y, 16, 14, style(color), 2))
            ink = style(theme.text_on(color))
            parts.append(label(x + 17 * layer + 8, y + 7, str(layer), 9.5, ink, weight=600))
        return parts
    ink = style(theme.INK)
    wide = 140.0 / layers
    parts += [label(x + 4, y + 7, "0", 9.5, ink), label(x + 164, y + 7, str(layers - 1), 9.5, ink)]
    for layer in range(layers):
        parts.append(box(x + 12 + layer * wide, y, wide + 0.3, 14, style(theme.layer_color(layer, layers))))
    return parts
