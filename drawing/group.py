"""Dictionaries of tensors as rows of their pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.learner.tensors import Tensor

from . import theme
from .figure import Figure
from .header import fit
from .marks import Diagram, box, label, style, text_width
from .tensors import TALL, WIDE, icon, in_words

MOST, LINES = 256, 64
"""The largest numbers of tensors and lines. Of further ones only the number is shown."""
NAMES = 140.0
"""The largest width of a line's name, in pixels."""
COLUMNS, GAP, KEY = 6, 8.0, 16.0
"""The largest number of pictures in a line, then the room between them and for a key above each, in pixels."""


class Line(NamedTuple):
    """A dictionary: its name, and its tensors by their keys."""

    name: str
    tensors: list[tuple[str, Tensor]]


def draw_group(group: object, *, static: bool = False) -> Figure:
    """A picture of a dictionary of tensors, such as ``model.weights``: one tensor beside the other, each with its key.

    It also takes a dictionary of named dictionaries, or several tensors. ``static=True``: an image without hover texts,
    for notebooks that are saved with their outputs. Raises PuzzleError for anything else.
    """
    lines, left_out = _shown(_lines(group))
    left = max((text_width(line.name, 11, bold=True) for line in lines), default=0.0)
    left = 12.0 + (left + 12.0 if left else 0.0)
    columns = min(COLUMNS, max([1, *(len(line.tensors) for line in lines)]))
    parts: list[Diagram] = []
    y = 8.0
    for line in lines:
        more, y = _row(line, left, y)
        parts += more
    if left_out:
        parts.append(label(left, y + 10, f"and {left_out:,} more", 10, style(theme.MUTE), "start"))
        y += 28
    width = left + columns * (WIDE + GAP) + 4
    frame = box(0.5, 0.5, width - 1, y - 1, style(theme.CARD, theme.GRID, 1), 6)
    words = " ".join(map(_in_words, lines)) + (f" And {left_out:,} more." if left_out else "")
    return Figure([frame, *parts], width, y, words, static, "Tensors")


def _lines(group: object) -> list[Line]:
    if isinstance(group, Mapping) and group and all(isinstance(inner, Mapping) for inner in group.values()):
        return [Line(fit(str(name), 11, NAMES), _named(inner)) for name, inner in group.items()]
    return [Line("", _named(group))]


def _shown(lines: list[Line]) -> tuple[list[Line], int]:
    """Return the first tensors of the first lines, and how many tensors, or lines, are left out."""
    room, shown = MOST, []
    for line in lines[:LINES]:
        shown.append(line._replace(tensors=line.tensors[:room]))
        room -= len(shown[-1].tensors)
        if not room:
            break
    left_out = sum(len(line.tensors) for line in lines) - (MOST - room)
    return shown, left_out or len(lines) - len(shown)


def _named(group: object) -> list[tuple[str, Tensor]]:
    """Return tensors with their keys, if they have any. Raise PuzzleError for anything else."""
    if isinstance(group, Mapping):
        pairs = [(fit(repr(key), 10, WIDE + GAP), tensor) for key, tensor in group.items()]
    elif isinstance(group, Iterable) and not isinstance(group, str):
        pairs = [("", tensor) for tensor in group]
    else:
        pairs = [("", group)]
    if not all(isinstance(tensor, Tensor) for _, tensor in pairs):
        fix = "a dictionary of them, such as model.weights"
        raise PuzzleError("draw_group takes tensors", got=describe(group), fix=fix)
    return pairs


def _row(line: Line, left: float, y: float) -> tuple[list[Diagram], float]:
    """Return the pictures of a line from ``y`` down, and the y where they end."""
    ink, mute = style(theme.INK), style(theme.MUTE)
    parts: list[Diagram] = [] if line.tensors else [label(left, y + 10, "empty", 10, mute, "start")]
    if line.name:
        middle = y + (KEY + TALL / 2 if line.tensors else 10)
        parts.append(label(12, middle, line.name, 11, ink, "start", 600))
    keyed = any(key for key, _ in line.tensors)
    step = TALL + GAP + (KEY if keyed else 0.0)
    for place, (key, tensor) in enumerate(line.tensors):
        x, top = left + place % COLUMNS * (WIDE + GAP), y + place // COLUMNS * step
        if keyed:
            parts.append(label(x + WIDE / 2, top + KEY / 2, key, 10, mute))
            top += KEY
        parts.append(box(x, top, WIDE, TALL, style(theme.CARD, theme.GRID, 1), 4))
        parts.append(icon(tensor, x, top))
    rows = -(-len(line.tensors) // COLUMNS)
    return parts, y + (rows * step if rows else 28.0)


def _in_words(line: Line) -> str:
    name = f"{line.name}: " if line.name else ""
    named = (f"{key}: {in_words(tensor)}" if key else in_words(tensor) for key, tensor in line.tensors)
    return f"{name}{'; '.join(named) or 'empty'}."
