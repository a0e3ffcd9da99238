"""The whole picture of a run: head, timeline, memory, legend."""

from __future__ import annotations

from collections.abc import Sequence

from lib.errors import PuzzleError
from lib.limits import collector_off
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

WIDTH, NARROWEST, WIDEST = 980.0, 480.0, 20_000.0
"""Width of a picture in pixels: what a notebook's cell has room for, the least, and the most."""


LARGEST = 1_450_000
"""Bytes of an output in a notebook at most, with what is around the picture."""


def draw(
    source: object,
    *,
    memory: bool = True,
    links: str = "auto",
    title: str | None = None,
    time_target: float | None = None,
    memory_target: Elements | float | None = None,
    width: float = WIDTH,
    static: bool = False,
) -> Figure:
    """The schedule of a Run, of a model, or of the models of all ranks, as a picture (a chalk Diagram).

    ``memory``: with the memory of the ranks below; ``links``: arrows from sends to receives ("p2p"), ties
    between the ranks of a collective ("groups"), "all", "none", or "auto", where there is room;
    ``time_target`` in ticks, ``memory_target`` in elements; ``width`` in pixels; ``static``: an image without
    hover texts, for notebooks that are kept with their outputs. Raises PuzzleError for anything that is no run.
    """
    check_choice("links", links, LINKS, "draw")
    check_width(width, "draw")
    trace = trace_of(source, title, time_target, memory_target)
    if not trace.attempted:
        return _not_attempted(trace, width)
    with collector_off():  # it looks for cycles among boxes that have none, half of the time
        figure = _schedule(trace, width, links, memory, static)
        if len(figure._repr_html_()) > LARGEST:
            figure = _schedule(trace, width, links, memory, static, detail=False)
    return figure


def check_choice(name: str, choice: object, choices: Sequence[str], where: str) -> None:
    """Raises PuzzleError for what is none of the choices."""
    if choice not in choices:
        raise PuzzleError(f"no such {name}", where=where, expected=f"one of {', '.join(choices)}", got=describe(choice))


def check_width(width: object, where: str) -> None:
    """Raises PuzzleError for what is no width of a picture."""
    if not isinstance(width, (int, float)) or not NARROWEST <= width <= WIDEST:
        expected = f"{NARROWEST:g} to {WIDEST:g}"
        raise PuzzleError("width is in pixels", where=where, expected=expected, got=describe(width))


def card(parts: list[Diagram], width: float, height: float, words: str, static: bool = False) -> Figure:
    """A figure on a ground of its own, so that it can be read on any page."""
    back = box(0.5, 0.5, width - 1, height - 1, style(theme.CARD, theme.GRID, 1), 8)
    return Figure([back, *parts], width, height, words, static)


def _schedule(trace: Trace, width: float, links: str, memory: bool, static: bool, detail: bool = True) -> Figure:
    layout = Layout(trace, width, HEIGHT, detail=detail)
    scale, y = axis(layout, layout.bottom)
    parts = [*draw_header(trace, width), *draw_timeline(layout, links), *scale]
    if memory:
        panel, y = draw_memory(layout, y + 12)
        parts += panel
    legend, y = draw_legend([layout], y + 12, memory)
    return card([*parts, *legend], width, y + 12, summary(trace), static)


def _not_attempted(trace: Trace, width: float) -> Figure:
    words = summary(trace)
    return card([label(PAD, 26, words, 13, style(theme.MUTE), "start")], min(width, NARROWEST), 52, words)
