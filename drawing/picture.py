"""The whole picture of a run: head, timeline, memory, legend."""

from __future__ import annotations

from numbers import Real

from lib.errors import PuzzleError
from lib.tensors import describe
from lib.units import Elements

from . import theme
from .figure import Figure
from .header import HEIGHT, draw_header
from .layout import PAD, Layout
from .legend import draw_legend
from .links import LINKS
from .marks import Diagram, box, label, style
from .memory import draw_memory
from .timeline import axis, draw_timeline
from .trace import Trace, trace_of
from .words import summary

WIDTH, NARROWEST = 980.0, 480.0
"""Width of a picture in pixels: what a notebook's cell has room for, and the least."""


def draw(
    source: object,
    *,
    memory: bool = True,
    links: str = "auto",
    title: str | None = None,
    time_target: float | None = None,
    memory_target: Elements | float | None = None,
    width: float = WIDTH,
) -> Figure:
    """The schedule of a Run, of a model, or of the models of all ranks, as a picture (a chalk Diagram).

    ``memory``: with the memory of the ranks below; ``links``: arrows from sends to receives, "auto"
    (where there is room), "none" or "all"; ``time_target`` in ticks, ``memory_target`` in elements;
    ``width`` in pixels. Raises PuzzleError for anything that is no run.
    """
    if links not in LINKS:
        raise PuzzleError("no such links", where="draw", expected=f"one of {LINKS}", got=describe(links))
    if not isinstance(width, Real) or not NARROWEST <= width <= 100_000:
        raise PuzzleError("width is in pixels", where="draw", expected=f"{NARROWEST:g} or more", got=describe(width))
    trace = trace_of(source, title, time_target, memory_target)
    if not trace.attempted:
        return _not_attempted(trace, width)
    return _schedule(trace, width, links, memory)


def card(parts: list[Diagram], width: float, height: float, words: str) -> Figure:
    """A figure on a ground of its own, so that it can be read on any page."""
    back = box(0.5, 0.5, width - 1, height - 1, style(theme.CARD, theme.GRID, 1), 8)
    return Figure([back, *parts], width, height, words)


def _schedule(trace: Trace, width: float, links: str, memory: bool) -> Figure:
    layout = Layout(trace, width, HEIGHT)
    scale, y = axis(layout, layout.bottom)
    parts = [*draw_header(trace, width), *draw_timeline(layout, links), *scale]
    if memory:
        panel, y = draw_memory(layout, y + 12)
        parts += panel
    legend, y = draw_legend(layout, y + 12, memory)
    return card([*parts, *legend], width, y + 12, summary(trace))


def _not_attempted(trace: Trace, width: float) -> Figure:
    words = summary(trace)
    return card([label(PAD, 26, words, 13, style(theme.MUTE), "start")], min(width, NARROWEST), 52, words)
