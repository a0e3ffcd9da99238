"""The whole picture of a run: head, timeline, memory, legend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, TypeVar

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.basics.units import Elements
from lib.running.limits import collector_off

from ..ink import svg, theme
from ..ink.figure import PHONE, Figure, Narrow
from ..ink.letters import fit, largest, text_width, wrapped
from ..ink.marks import Diagram, box, label, style
from ..ink.texts import summary
from ..ink.trace import Trace, trace_of, with_chain
from .header import draw_header
from .layout import PAD, Layout
from .legend import Legend, draw_legend, legend_of
from .links import LINKS
from .memory import draw_memory
from .overlays import said_of
from .peak import why_highest
from .timeline import axis, draw_timeline

WIDTH, NARROWEST, WIDEST = 980.0, 560.0, 20_000.0
"""Width of a picture in pixels: that of a notebook's cell, the least, and the largest."""
CLOSER, LEGEND = 8, 298.0
"""Of a picture that is played: the largest number of rows that are as high as in any other picture, and the width of
its legend in pixels, which a phone has."""
LARGEST, ROUGHEST = 1_450_000, 256
"""The largest output of a notebook in bytes, and how rough a picture may become for that."""

Shown = TypeVar("Shown")


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
    chain: bool | None = None,
    **unknown: object,
) -> Figure:
    """A picture (a Diagram of the chalk library) of the schedule of a Run, of one model, or of the models of all ranks;
    or of the profile of a real run (``trace``).

    ``memory``: whether the memory of each rank is drawn below; ``links``: arrows from sends to receives ("p2p"), ties
    between the ranks of a collective ("groups"), "all", "none", or "auto" (those that there is room for);
    ``time_target`` and ``memory_target``: targets to draw, in ticks (ms for a run measured in real time), in elements;
    ``width``: in pixels; ``static=True``: an image without hover texts, for notebooks that are saved with their
    outputs; ``chain=True``: why it takes so long, the longest chain of operations that wait for each other, as a line
    through their boxes (the others are pale) and as a sum. Without a wish it is shown of a run that is right and over
    its target in time. Colors tell the operation, forward or backward, with the first micro-batches dark and the last
    ones light; the layer is a number, or in the row's name. Raises PuzzleError for anything that is not a run, for an
    option that there is not, and for a chain where times were measured or ranks are missing.
    """
    for name in unknown:
        known = [name for name, one in signature(draw).parameters.items() if one.kind is one.KEYWORD_ONLY]
        raise PuzzleError(f"no option {name}", where="draw", expected=f"one of {', '.join(known)}", got=name)
    check_choice("links", links, LINKS, "draw")
    check_width(width, "draw")
    if not (chain is None or isinstance(chain, bool)):
        raise PuzzleError("no such chain", where="draw", expected="True, False or None", got=describe(chain))
    trace = with_chain(trace_of(source, title, time_target, memory_target, few=True), chain)
    if not trace.attempted:
        words = label(PAD, 26, fit(summary(trace), 13, NARROWEST - 2 * PAD), 13, style(theme.MUTE), "start")
        return card([words], min(width, NARROWEST), 52, summary(trace), static, trace.title)
    if trace.chain is not None and links == "auto":
        links = "none"  # the chain leads from rank to rank itself, and other lines would hide it
    return small_enough(lambda rough: _schedule(trace, width, links, memory, static, rough))


def small_enough(make: Callable[[int], Shown], most: int = LARGEST, size: Callable[[Any], int] | None = None) -> Shown:
    """Return the finest ``make(rough)`` with at most so many bytes, by default of its output in a notebook."""
    size = size or (lambda figure: len(figure._repr_html_()))
    with collector_off():  # it would take half of the time to look for cycles, of which there are none
        figure, rough = make(0), 1.0
        reached = size(figure)
        while reached > most and rough < ROUGHEST:
            figure = make(int(rough))
            reached = size(figure)
            rough = max(2 * rough, rough * reached / most)
    return figure


def picture_for_player(trace: Trace, rough: int, room: float = 0.0) -> Figure:
    """Return the picture of a schedule for a page that plays it, with ``room`` empty pixels below the time axis, where
    the page itself shows the memory, and who waits in a failed run; its legend is a picture of its own, and many rows
    are lower, so that there is room for the code below. Without room it is an image that has all of that."""
    return _schedule(replace(trace, chain=None), WIDTH, "auto", not room, not room, rough, room)


def check_choice(name: str, choice: object, choices: Sequence[str], where: str) -> None:
    """Raise PuzzleError unless this is one of the choices."""
    if choice not in choices:
        raise PuzzleError(f"no such {name}", where=where, expected=f"one of {', '.join(choices)}", got=describe(choice))


def check_width(width: object, where: str, least: float = NARROWEST) -> None:
    """Raise PuzzleError unless this is a possible width of a picture, in pixels."""
    if not isinstance(width, (int, float)) or not least <= width <= WIDEST:
        expected = f"{least:g} to {WIDEST:g}"
        raise PuzzleError("width is in pixels", where=where, expected=expected, got=describe(width))


def card(
    parts: list[Diagram], width: float, height: float, words: str, static: bool = False, title: str = ""
) -> Figure:
    """Return a figure with a background, so that it can be read on any page."""
    back = box(0.5, 0.5, width - 1, height - 1, style(theme.CARD, theme.GRID, 1), 8)
    return Figure([back, *parts], width, height, words, static, title)


def heading(title: str, note: str, y: float) -> tuple[list[Diagram], float]:
    """Return the title of one of several schedules, a note beside it, and the x where that ends."""
    end = PAD + text_width(title, 13, bold=True) + 10
    most = largest(title, WIDTH - 2 * PAD, svg.KEPT, bold=True)
    parts: list[Diagram] = [label(PAD, y + 8, title, 13, style(theme.INK), "start", 650, most=most)]
    if note:
        parts.append(label(end, y + 9, note, 11, style(theme.MUTE), "start"))
        end += 14 + text_width(note, 11)
    return parts, end


def beside_narrow(parts: list[Diagram], end: float) -> Figure:
    """Return what stands above or below a part of a picture in a narrow place."""
    return Figure([box(0, 0, PHONE, end, style(theme.CARD)), *parts], PHONE, end, "")


def sentences(lines: Iterable[str], y: float, width: float = PHONE) -> tuple[list[Diagram], float]:
    """Return sentences from ``y`` down in a picture of this width, and the y where they end."""
    parts: list[Diagram] = []
    for text in lines:
        for line in wrapped(text, 11.5, width - 2 * PAD):
            y += 16
            parts.append(label(PAD, y - 6, line, 11.5, style(theme.INK), "start"))
        y += 5
    return parts, y + 4 * bool(parts)


def in_pieces(lines: Sequence[str], legend: Legend, part: tuple[float, float]) -> Narrow:
    """Return what is shown in a narrow place: what is said, a part of the picture, and the legend."""
    above, below = sentences(lines, 8), draw_legend(legend, PHONE, 4)
    return Narrow(part, beside_narrow(*above) if lines else None, beside_narrow(below[0], below[1] + 10))


def _schedule(
    trace: Trace, width: float, links: str, memory: bool, static: bool, rough: int, room: float = 0.0
) -> Figure:
    head, top = draw_header(trace, width)
    text, top = sentences(said_of(trace.failure) if not room else [], top, width)
    layout = Layout(trace, width, top, rough=rough, fold=not room, links=links)  # a player has rows of its own
    if room and len(layout.rows) > CLOSER:
        layout = Layout(trace, width, top, rough=rough, fold=False, beside=[trace])
    scale, y = axis(layout, layout.bottom)
    below = y + 8, y + 8 + room
    y = below[1] if room else y
    rows = [*draw_timeline(layout), *scale]
    parts = [*head, *text, *rows]
    memory = memory and trace.peak is not None and trace.peak.memory > 0
    if memory:
        panel, y = draw_memory(layout, y + 12, rows)
        parts += panel
    panel_ends = y + 4
    legend = legend_of([layout], memory and not room)
    if not room:
        drawn, y = draw_legend(legend, width, y + 12)
        parts += drawn
    words = f"{summary(trace)} {why_highest(trace)}" if memory else summary(trace)
    figure = card(parts, width, y + (8 if room else 12), words, static, trace.title)
    figure.area = (layout.x0, layout.top, layout.x1, layout.bottom)
    figure.rows = [(row.ranks, row.y, layout.row_height) for row in layout.rows]
    if not room:
        figure.narrow = _for_phone(trace, legend, memory, (top - 8, panel_ends))
    if room:
        drawn, end = draw_legend(legend, LEGEND, PAD - 6)
        figure.legend = card(drawn, LEGEND, end + 10, "What the colors and signs mean.", title="Legend")
        figure.room = below
    return figure


def _for_phone(trace: Trace, legend: Legend, memory: bool, part: tuple[float, float]) -> Narrow:
    """Return what is shown in a narrow place: the head, who waits in a failed run and the legend with letters of the
    usual size, and in between the rows and the memory (``part``)."""
    head, top = draw_header(trace, PHONE)
    waits, top = sentences(said_of(trace.failure), top)
    texts, y = sentences([why_highest(trace)] if memory else [], 4)
    drawn, end = draw_legend(legend, PHONE, y + 6)
    return Narrow(part, beside_narrow([*head, *waits], top), beside_narrow([*texts, *drawn], end + 8))
