"""The head of a picture: its title, how large the machine is, the figures beside their targets."""

from __future__ import annotations

from typing import NamedTuple

from . import theme
from .layout import PAD
from .marks import Diagram, Titled, label, lines, poly, style, text_width, together
from .trace import Trace
from .words import machine, share_text, size_of

HEIGHT, STACKED, MORE = 74.0, 50.0, 16.0
"""In pixels: height of the head, how much lower the figures are if they have no room beside the title, and how much
lower all is below each line on the run: its fault, its longest chain."""
BETWEEN, TITLE = 20.0, 160.0
"""In pixels: room between figures, and the width that a title gets at least."""


class Figures(NamedTuple):
    """One figure of the head. ``met``: whether it meets its target, or None if there is none."""

    name: str
    value: str
    note: str
    met: bool | None = None


def draw_header(trace: Trace, width: float) -> tuple[list[Diagram], float]:
    """Return the title at the left with the fault and the chain of the run below, the figures at the right or, without
    room there, below all that, and where it ends."""
    shown = figures(trace)
    widths = [_width(figure) for figure in shown]
    room = width - 2 * PAD - sum(widths) - BETWEEN * len(widths)
    below = room < max(text_width(machine(trace), 11.5), min(text_width(trace.title, 17, bold=True), TITLE))
    said = [(theme.BAD, trace.fault)] if trace.fault else []
    said += [(theme.CHAIN, f"the longest chain: {trace.chain}")] if trace.chain is not None else []
    more = MORE * len(said)
    x, y = (PAD, STACKED + more) if below else (width - PAD - sum(widths) - BETWEEN * (len(widths) - 1), 0.0)
    title = fit(trace.title, 17, width - 2 * PAD if below else room)
    parts: list[Diagram] = [
        label(PAD, 26, title, 17, style(theme.INK), "start", 650),
        label(PAD, 46, machine(trace), 11.5, style(theme.MUTE), "start"),
    ]
    for at, (color, text) in enumerate(said):
        shown_text = fit(text, 12, width - 2 * PAD)
        parts.append(Titled(text, label(PAD, 68 + MORE * at, shown_text, 12, style(color), "start", 600)))
    for figure, wide in zip(shown, widths, strict=True):
        parts.append(_figure(x, y, figure))
        x += wide + BETWEEN
    return parts, HEIGHT + (y if below else more)


def _width(figure: Figures) -> float:
    value = text_width(figure.value, 18, bold=True) + (0 if figure.met is None else 20)
    return 6 + max(text_width(figure.name, 10), value, text_width(figure.note, 10))


def fit(text: str, size: float, width: float) -> str:
    """Return the text, cut off with an ellipsis if it is wider than ``width`` pixels."""
    if len(text) * size <= 4 * width and text_width(text, size, bold=True) <= width:
        return text
    text = text[: int(4 * width / size)]  # no letter is narrower: a text of megabytes is measured in no time
    while text and text_width(text + "…", size, bold=True) > width:
        text = text[:-1]
    return text + "…"


def figures(trace: Trace) -> list[Figures]:
    """Return the figures of the head: time, peak memory, idle and communication. Those of a run with a fault meet no
    target, whatever they are."""
    peak, right, unit = trace.peak, not trace.fault, trace.unit
    time = Figures("time", unit.brief(trace.time), f"{unit.name}, until it failed" if trace.failure else unit.name)
    if trace.time_target is not None:
        met = trace.time <= trace.time_target if right else None
        time = time._replace(note=f"target {unit.brief(trace.time_target)}", met=met)
    if peak is None:
        return [time]
    memory = Figures("peak memory", size_of(peak.memory), f"rank {peak.rank}, {unit.at(unit.brief(peak.issued))}")
    if trace.memory_target is not None:
        target = trace.memory_target
        met = peak.memory <= target if right else None
        memory = memory._replace(note=f"target {size_of(target)}", met=met)
    on_hosts = (
        [Figures("on a host", size_of(trace.host_peak.memory), f"rank {trace.host_peak.rank}")]
        if trace.host_peak
        else []
    )
    hidden = f"{share_text(trace.hidden)} hidden" if trace.hidden > 1e-9 else "of rank time"
    return [
        time,
        memory,
        *on_hosts,
        Figures("idle", share_text(trace.idle), "of rank time"),
        Figures("communication", share_text(trace.communication), hidden),
    ]


def _figure(x: float, y: float, figure: Figures) -> Diagram:
    color = theme.BAD if figure.met is False else theme.MUTE
    parts: list[Diagram] = [
        label(x, y + 18, figure.name, 10, style(theme.MUTE), "start"),
        label(x, y + 35, figure.value, 18, style(theme.INK), "start", 600),
        label(x, y + 52, figure.note, 10, style(color), "start"),
    ]
    if figure.met is not None:
        parts.append(_verdict(x + text_width(figure.value, 18, bold=True) + 10, y + 35, figure.met))
    return together(parts)


def _verdict(x: float, y: float, met: bool) -> Diagram:
    if met:
        return poly([(x - 5, y), (x - 1.5, y + 4), (x + 5, y - 5)], style(None, theme.GOOD, 2.2), closed=False)
    cross = [(x - 4, y - 4, x + 4, y + 4), (x - 4, y + 4, x + 4, y - 4)]
    return lines(cross, style(None, theme.BAD, 2.2))
