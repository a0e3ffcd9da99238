"""How far the figures of this machine are from published ones, as a picture: a dot for each row, right of the middle
line where ours is larger."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from drawing import Figure
from drawing.ink import theme
from drawing.ink.marks import Diagram, Titled, box, label, lines, style
from drawing.schedule.layout import PAD
from drawing.schedule.picture import WIDTH, card

LEFT, STEP, HEAD, DOT = 470.0, 20.0, 26.0, 4.5
FAR = 0.1
"""The axis goes to so much more and so much less; what is beyond is at its end."""


class Row(Protocol):
    """A published figure and ours."""

    @property
    def table(self) -> str:
        """To which table it belongs."""

    @property
    def name(self) -> str:
        """What it is."""

    @property
    def fitted(self) -> bool:
        """Whether ours was made to be the same."""

    @property
    def residual(self) -> float:
        """How far ours is off, as a part of the published one."""


def picture(rows: Sequence[Row]) -> Figure:
    """Return all rows, table by table, under one axis from 10 percent less to 10 percent more."""
    ink, mute = style(theme.INK), style(theme.MUTE)
    right = WIDTH - 60
    parts: list[Diagram] = [
        label(
            PAD,
            26,
            "Published, and what the programs of the course give",
            17,
            ink,
            "start",
            650,
        ),
        label(PAD, 46, "How far ours is off: to the right it is larger", 11.5, mute, "start"),
    ]
    y, top = 78.0, 68.0
    for table, some in groupby(rows, key=lambda row: row.table):
        parts.append(label(PAD, y, table, 11.5, ink, "start", 600))
        y += HEAD
        for row in some:
            parts += [label(PAD + 12, y, row.name, 11, ink, "start"), *_dot(row, y, right)]
            y += STEP
        y += 8
    marks = [-FAR, -FAR / 2, 0.0, FAR / 2, FAR]
    grid = [(_x(part, right), top, _x(part, right), y) for part in marks if part]
    axis = [
        lines(grid, style(None, theme.GRID, 1)),
        lines([(_x(0, right), top, _x(0, right), y)], style(None, theme.MUTE, 1)),
    ]
    named = [label(_x(part, right), y + 12, f"{100 * part:+.0f} %" if part else "0", 10, mute) for part in marks]
    words = "; ".join(f"{row.name}: {100 * row.residual:+.1f} %" for row in rows)
    return card([*axis, *parts, *named], WIDTH, y + 32, words, False, "Published figures and ours")


def _x(part: float, right: float) -> float:
    return LEFT + (right - LEFT) * (max(-FAR, min(FAR, part)) + FAR) / (2 * FAR)


def _dot(row: Row, y: float, right: float) -> list[Diagram]:
    """Return a dot with a line from the middle to it, and the number."""
    x, middle = _x(row.residual, right), _x(0, right)
    said = "fitted" if row.fitted else f"{100 * row.residual:+.1f} %"
    how = style(theme.CARD, theme.INK, 1.5) if row.fitted else style(theme.INK)
    dot = box(x - DOT, y - DOT, 2 * DOT, 2 * DOT, how, DOT)
    return [
        lines([(middle, y, x, y)], style(None, theme.MUTE, 2)),
        Titled(f"{row.name}\n{said}", dot),
        label(right + 12, y, said, 10, style(theme.MUTE), "start"),
    ]
