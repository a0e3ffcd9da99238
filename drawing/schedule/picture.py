"""The whole picture of a run: head, timeline, memory, legend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, TypeVar

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.basics.units import Elements
from lib.running.limits import collector_off

from ..ink import theme
from ..ink.figure import PHONE, Figure, at_any_width
from ..ink.letters import fit, text_width, wrapped
from ..ink.marks import Diagram, box, label, style
from ..ink.texts import summary
from ..ink.trace import Trace, trace_of, with_chain
from .header import draw_header
from .layout import PAD, USUAL, Layout
from .legend import draw_legend, legend_of
from .links import LINKS
from .memory import draw_memory
from .overlays import said_of
from .peak import why_highest
from .timeline import axis, draw_timeline

WIDTH, NARROWEST, WIDEST, NAME = USUAL, 560.0, 20_000.0, 22.0
"""In pixels: the width of a picture, that of a notebook's cell, the least, the largest, and the height of the title of
one of several."""
CLOSER, LEGEND = 8, 298.0
"""Of a picture that is played: the largest number of rows that are as high as in any other picture, and the width of
its legend in pixels, which a phone has."""
LARGEST, STILL, ROUGHEST = 1_450_000, 250_000, 256
"""The largest output of a notebook in bytes, that of an image, and how rough a picture may become for that."""

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
        nothing = label(PAD, 26, fit(summary(trace), 13, NARROWEST - 2 * PAD), 13, style(theme.MUTE), "start")
        return card([nothing], min(width, NARROWEST), 52, summary(trace), static, trace.title)
    if trace.chain is not None and links == "auto":
        links = "none"  # the chain leads from rank to rank itself, and other lines would hide it
    memory = memory and trace.peak_memory > 0
    words = _in_words(trace, memory)
    return small_enough(
        lambda rough: at_any_width(partial(_schedule, trace, words, links, memory, rough), width, PHONE, static)
    )


def _in_words(trace: Trace, memory: bool) -> str:
    return f"{summary(trace)} {why_highest(trace)}" if memory else summary(trace)


def small_enough(make: Callable[[int], Shown], most: int = 0, size: Callable[[Any], int] | None = None) -> Shown:
    """Return the finest ``make(rough)`` with at most so many bytes, by default of its output in a notebook."""
    size = size or (lambda figure: len(figure._repr_html_()))
    with collector_off():  # it would take half of the time to look for cycles, of which there are none
        figure, rough = make(0), 1.0
        reached, most = size(figure), most or (STILL if getattr(figure, "static", False) else LARGEST)
        while reached > most and rough < ROUGHEST:
            figure = make(int(rough))
            reached = size(figure)
            rough = max(2 * rough, rough * reached / most)
    return figure


def picture_for_player(trace: Trace, rough: int, room: float = 0.0) -> Figure:
    """Return the picture of a schedule for a page that plays it, with ``room`` empty pixels below the time axis, where
    the page itself shows the memory, and who waits in a failed run; its legend is a picture of its own, and many rows
    are lower, so that there is room for the code below. Without room it is an image that has all of that."""
    memory = not room and trace.peak_memory > 0
    drawn = partial(_schedule, replace(trace, chain=None), _in_words(trace, memory), "auto", memory, rough, room=room)
    return drawn(WIDTH) if room else at_any_width(drawn, WIDTH, PHONE, static=True)


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


def heading(title: str, notes: Mapping[str, str], y: float, width: float = WIDTH) -> tuple[list[Diagram], float]:
    """Return the title of one of several schedules, notes with their colors beside it, or below it where that has no
    room, and the y where its rows begin."""
    parts, x = list[Diagram](), PAD
    for text, color in {title: theme.INK, **notes}.items():
        size, weight = (13.0, 650) if text is title else (11.0, 400 if color == theme.MUTE else 600)
        wide = text_width(text, size, weight > 500)
        if x > PAD and x + wide > width - PAD:
            x, y = PAD, y + 16
        shown = text if x + wide <= width - PAD else fit(text, size, width - PAD - x)
        parts.append(label(x, y + 8, shown, size, style(color), "start", weight))
        x += wide + 12
    return parts, y + NAME


def sentences(lines: Iterable[str], y: float, width: float) -> tuple[list[Diagram], float]:
    """Return sentences from ``y`` down in a picture of this width, and the y where they end."""
    parts: list[Diagram] = []
    for text in lines:
        for line in wrapped(text, 11.5, width - 2 * PAD):
            y += 16
            parts.append(label(PAD, y - 6, line, 11.5, style(theme.INK), "start"))
        y += 5
    return parts, y + 4 * bool(parts)


def _schedule(
    trace: Trace, words: str, links: str, memory: bool, rough: int, width: float, room: float = 0.0
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
    if memory:
        panel, y = draw_memory(layout, y + 12, rows)
        parts += panel
    legend = legend_of([layout], memory and not room)
    if not room:
        drawn, y = draw_legend(legend, width, y + 12)
        parts += drawn
    figure = card(parts, width, y + (8 if room else 12), words, title=trace.title)
    figure.area = (layout.x0, layout.top, layout.x1, layout.bottom)
    figure.rows = [(row.ranks, row.y, layout.row_height) for row in layout.rows]
    if room:
        drawn, end = draw_legend(legend, LEGEND, PAD - 6)
        figure.legend = card(drawn, LEGEND, end + 10, "What the colors and signs mean.", title="Legend")
        figure.room = below
    return figure
