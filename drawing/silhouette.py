"""A schedule as small as a stamp: what each rank does, and where it is idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from lib.course.outlines import BACKWARD as BACK
from lib.course.outlines import CELLS, IDLE, OTHER, TALK
from lib.course.outlines import FORWARD as FORTH
from lib.record.table import SEND
from lib.record.training import BACKWARD, FORWARD, UPDATE

from . import theme
from .marks import Bar, Bars, Diagram, box, label, leaf, lines, style, text_width

COLORS: Mapping[str, str] = {
    FORTH: theme.work_color(FORWARD.kind, 1, 4),
    BACK: theme.work_color(BACKWARD.kind, 1, 4),
    OTHER: theme.STEP,
    TALK: theme.kind_color(SEND.kind),
}
NAMES: Mapping[str, str] = {
    FORTH: FORWARD.word,
    BACK: BACKWARD.word,
    OTHER: UPDATE.word,
    TALK: "communication",
    IDLE: "idle",
}
"""What the colors mean."""


def draw_silhouette(rows: Sequence[str], x: float, y: float, width: float, height: float) -> list[Diagram]:
    """Return the rows of ``lib.course.outlines.silhouette`` in this rectangle. Ranks that do the same are one block
    with thin lines between them."""
    tall, wide = height / len(rows), width / CELLS
    found: dict[str, list[tuple[float, Bar]]] = {}
    top = y
    for row, equal in groupby(rows):
        thick = tall * len(list(equal))
        at = 0
        for letter, cells in groupby(row):
            length = len(list(cells))
            if letter != IDLE:
                found.setdefault(letter, []).append((thick, (x + at * wide, top + thick / 2, length * wide)))
            at += length
        top += thick
    parts: list[Diagram] = [box(x, y, width, height, style(theme.LANE))]
    for letter, items in found.items():
        for thick in dict.fromkeys(thick for thick, _ in items):
            parts.append(leaf(Bars([bar for own, bar in items if own == thick], thick), style(COLORS[letter])))
    between = [(x, y + tall * place, x + width, y + tall * place) for place in range(1, len(rows))]
    if between:  # chalk's own renderer refuses an empty path
        parts.append(lines(between, style(None, theme.CARD, min(1.0, 0.25 * tall))))
    return parts


def draw_meanings(x: float, y: float) -> list[Diagram]:
    """Return a line that explains the colors of silhouettes."""
    parts: list[Diagram] = []
    for letter, name in NAMES.items():
        parts.append(box(x, y - 5, 14, 10, style(COLORS.get(letter, theme.LANE)), 2))
        parts.append(label(x + 19, y, name, 10.5, style(theme.INK), "start"))
        x += 19 + text_width(name, 10.5) + 14
    return parts
