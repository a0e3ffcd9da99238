"""The head of a picture: title, size of the machine, figures with targets, and where the time of all ranks goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lib.record.figures.breakdown import MEANING, TALK, WAITS, name_of, share_text

from ..ink import theme
from ..ink.letters import BOLD, first_fit, fit, text_width, wrapped
from ..ink.marks import Diagram, Rect, Titled, box, label, lines, poly, style
from ..ink.texts import idle_and_hidden, machine, size_of, who
from ..ink.trace import Trace
from .layout import PAD
from .operations import operation, sample_color

STACKED, LOW, MORE, UNDER = 50.0, 58.0, 16.0, 16.0
"""In pixels: how much lower the figures are without room beside the title, the y where title and figures end, the
height of each line on the run (its fault, its longest chain), and the room below the head."""
BETWEEN, TITLE = 20.0, 160.0
"""In pixels: the room between figures, and the least width of a title."""
LEAST_BAR, WIDEST_BAR = 360.0, 500.0
"""In pixels: the least width of the time bar beside the figures, and its largest width anywhere."""
BAR, SAMPLE, LINE, NEXT = 15.0, 9.0, 15.0, 12.0
"""In pixels: height of the bar, side of a sample, height of a line of the legend, room between two entries."""
TITLES = (17.0, 15.0, 13.0, 11.0)
"""Sizes of a title, the first that fits."""
LONGEST = 200
"""Letters of a title that count for the room that it gets."""
SIZE = 10.0
"""Of letters, in pixels."""


class HeaderFigure(NamedTuple):
    """A figure of the head. ``met`` says whether it meets its target, None if it has none."""

    name: str
    value: str
    note: str
    met: bool | None = None


def draw_header(trace: Trace, width: float) -> tuple[list[Diagram], float]:
    """Return title, figures, time bar, the fault and the longest chain of the run, and the y where all that ends."""
    shown = figures(trace)
    widths = [_width(figure) for figure in shown]
    inner, wide = width - 2 * PAD, sum(widths) + BETWEEN * len(widths)
    known = wrapped(machine(trace), 11.5, inner)
    full, least = (text_width(trace.title[:LONGEST], size, bold=True) for size in (TITLES[0], TITLES[-1]))
    named = max(*(text_width(line, 11.5) for line in known), min(full, max(least, TITLE)))
    stacked, room = inner - wide < named, inner - wide - named - BETWEEN
    bar = min(room, WIDEST_BAR) if room >= LEAST_BAR else 0.0
    left = inner if stacked else inner - wide - (bar + BETWEEN if bar else 0.0)
    title = first_fit([trace.title], TITLES, left / BOLD) or (fit(trace.title, TITLES[-1], left), TITLES[-1])
    parts: list[Diagram] = [
        label(PAD, 26, *title, style(theme.INK), "start", 650),
        *[label(PAD, 46 + MORE * at, line, 11.5, style(theme.MUTE), "start") for at, line in enumerate(known)],
    ]
    x, y = (PAD, STACKED + MORE * (len(known) - 1)) if stacked else (PAD + left + BETWEEN, 0.0)
    for figure, one in zip(shown, widths, strict=True):
        parts += _figure(x, y, figure)
        x += one + BETWEEN
    low = LOW + y
    place = (width - PAD - bar, 13.0, bar) if bar else (PAD, low + 8, min(inner, WIDEST_BAR))
    spent, end = _time_bar(trace, *place)
    low = max(low, end + 4)
    texts = [(theme.BAD, trace.fault)] if trace.fault else []
    chain, unit = trace.chain, trace.unit
    texts += [(theme.CHAIN, f"the longest chain, in {unit.name}: {chain.describe(unit)}")] if chain else []
    for color, text in texts:
        for line in wrapped(text, 12, inner, bold=True):
            low += MORE
            parts.append(Titled(text, label(PAD, low - 5, line, 12, style(color), "start", 600)))
    return [*parts, *spent], low + UNDER


def _width(figure: HeaderFigure) -> float:
    value = text_width(figure.value, 18, bold=True) + (0 if figure.met is None else 20)
    return 6 + max(text_width(figure.name, 10), value, text_width(figure.note, 10))


def figures(trace: Trace) -> list[HeaderFigure]:
    """Return the figures of the head, time and peak memory. Those of a run with a fault meet no target."""
    peak, unit = trace.peak, trace.unit
    size = trace.size_unit.show if trace.size_unit.says_itself else size_of
    time = HeaderFigure("time", unit.brief(trace.time), f"{unit.name}, until it failed" if trace.failure else unit.name)
    if trace.time_target is not None:
        time = time._replace(note=f"target {unit.lasting(trace.time_target)}", met=trace.fast_enough)
    if peak is None:
        return [time]
    text = "peak memory" if trace.size_unit.says_itself else f"peak memory, {trace.size_unit.name}"
    memory = HeaderFigure(text, size(peak.memory), f"rank {peak.rank}, {unit.at(unit.brief(peak.issued))}")
    if trace.memory_target is not None:
        memory = memory._replace(note=f"target {size(trace.memory_target)}", met=trace.small_enough)
    on_host = trace.host_peak
    hosts = [HeaderFigure("on a host", size(on_host.memory), f"rank {on_host.rank}")] if on_host else []
    return [time, memory, *hosts]


def _figure(x: float, y: float, figure: HeaderFigure) -> Iterator[Diagram]:
    yield label(x, y + 18, figure.name, 10, style(theme.MUTE), "start")
    yield label(x, y + 35, figure.value, 18, style(theme.INK), "start", 600)
    yield label(x, y + 52, figure.note, 10, style(theme.BAD if figure.met is False else theme.MUTE), "start")
    x, y = x + text_width(figure.value, 18, bold=True) + 10, y + 35
    if figure.met is True:
        yield poly([(x - 5, y), (x - 1.5, y + 4), (x + 5, y - 5)], style(None, theme.GOOD, 2.2), closed=False)
    if figure.met is False:
        yield lines([(x - 4, y - 4, x + 4, y + 4), (x - 4, y + 4, x + 4, y - 4)], style(None, theme.BAD, 2.2))


def _time_bar(trace: Trace, x: float, y: float, width: float) -> tuple[list[Diagram], float]:
    """Return a caption, the bar and its legend at (x, y), and the y where they end; nothing if no time passes."""
    if not trace.parts:
        return [], y
    more = idle_and_hidden(trace)
    caption = f"where the time of {who(trace)} goes" + (f" ({more})" if more else "")
    mute = style(theme.MUTE)
    texts = wrapped(caption, SIZE, width)
    parts: list[Diagram] = [label(x, y + 5 + LINE * at, line, SIZE, mute, "start") for at, line in enumerate(texts)]
    y += LINE * (len(texts) - 1)
    parts += _bar(trace, (x, y + 14, width, BAR))
    at, y = 0.0, y + 14 + BAR + 10
    for part, share in trace.parts.items():
        text = f"{name_of(part)} {share_text(share)}"
        wide = SAMPLE + 4 + text_width(text, SIZE)
        if at and at + wide > width:
            at, y = 0.0, y + LINE
        sample = _part(trace, part, (x + at, y - SAMPLE / 2, SAMPLE, SAMPLE))
        parts += [sample, label(x + at + SAMPLE + 4, y, text, SIZE, style(theme.INK), "start")]
        at += wide + NEXT
    return parts, y + 6


def _bar(trace: Trace, place: Rect) -> Iterator[Diagram]:
    """Yield the parts from left to right, each with its hover text, a pixel apart."""
    x, y, width, height = place
    for part, share in trace.parts.items():
        wide = float(share) * width
        took = f"{trace.unit.brief(float(share) * trace.time * trace.ranks)} {trace.unit.name}"
        text = f"{name_of(part)}: {share_text(share)} of all ranks' time, {took} of all ranks together"
        text += f"\n{MEANING[part]}" if part in MEANING else ""
        yield Titled(text, _part(trace, part, (x, y, max(wide - 1, min(wide, 0.5)), height)))
        x += wide


def _part(trace: Trace, part: str, place: Rect) -> Diagram:
    """Return a box in the look of an operation, of communication alone, or of waiting."""
    if part in WAITS:
        x, y, width, height = place
        return box(x + 0.25, y + 0.25, max(width - 0.5, 0.1), height - 0.5, style(theme.GAP, theme.WAITS, 0.5), 2)
    if not theme.is_pass(part):
        return box(*place, style(theme.TALK if part == TALK else theme.kind_color(part)), 2)
    return operation(part, place, sample_color(part, trace))
