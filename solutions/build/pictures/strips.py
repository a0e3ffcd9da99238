"""Several schedules as one small strip."""

from collections.abc import Sequence

from drawing import theme
from drawing.course import MEANINGS
from drawing.figure import Figure
from drawing.layout import PAD
from drawing.marks import Bar, Bars, Diagram, box, label, leaf, style
from drawing.picture import WIDTH, card
from drawing.texts import share_text
from lib import Run
from lib.course.outlines import TALK
from lib.record.events import MARKS
from lib.record.figures.score import idle_share

from ..tables.silhouettes import letter_of

TITLE, ROW = 230.0, 9.0
"""In pixels: the room for titles, and the height of a row."""


def draw_strip(pieces: Sequence[tuple[str, Run]], title: str = "Three schedules") -> Figure:
    """Return several schedules as a strip: on one time scale, with a title beside each, and nothing else."""
    until = max(done.time for _, done in pieces)
    parts: list[Diagram] = []
    y = PAD - 4
    for name, done in pieces:
        parts += [*_titles(name, done, y + done.ranks * ROW / 2), *_rows(done, until, y)]
        y += done.ranks * ROW + 12
    words = "; ".join(f"{name}: {done.unit.lasting(done.time)}" for name, done in pieces)
    return card(parts, WIDTH, y + PAD - 16, f"One time scale. {words}.", True, title)


def _titles(name: str, done: Run, middle: float) -> list[Diagram]:
    idle = share_text(idle_share(done.events, done.ranks, done.time))
    figures = f"{done.unit.lasting(done.time)}, {idle} idle"
    return [
        label(PAD, middle - 8, name, 12.5, style(theme.INK), "start", 650),
        label(PAD, middle + 9, figures, 11.5, style(theme.MUTE), "start"),
    ]


def _rows(done: Run, until: float, y: float) -> list[Diagram]:
    left, wide = TITLE + PAD, WIDTH - 2 * PAD - TITLE
    found: dict[str, list[Bar]] = {MEANINGS[TALK][0]: []}  # below what computes
    for event in done.events:
        if event.kind not in MARKS and event.length:
            place = y + ROW * event.rank + ROW / 2 - 1
            bar = (left + wide * event.start / until, place, wide * event.length / until)
            found.setdefault(MEANINGS[letter_of(event)][0], []).append(bar)
    gap = box(left, y, wide * done.time / until, done.ranks * ROW - 2, style(theme.GAP))
    return [gap, *(leaf(Bars(bars, ROW - 2), style(color)) for color, bars in found.items())]
