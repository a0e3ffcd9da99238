"""Schedules as small as stamps: what fills most of each part of a row, and rows without texts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from ..ink import theme
from ..ink.marks import Diagram, Rect, box, boxes, lines, style

Look = TypeVar("Look")
Span = tuple[float, float, str]
"""(start, end, color), in parts of the width of a row."""


def fill(spans: Iterable[tuple[float, float, Look]], count: int) -> list[dict[Look, float] | None]:
    """Return for how long each look fills each of so many cells, in parts of a cell. Spans (start, end, look) are in
    cells."""
    cells: list[dict[Look, float] | None] = [None] * count
    for start, end, look in spans:
        first, last = int(start), int(end)
        if first == last:  # the usual case, and three times as fast
            here = cells[first]
            if here is None:
                cells[first] = {look: end - start}
            else:
                here[look] = here.get(look, 0.0) + end - start
            continue
        for at in range(first, last + 1):
            here = cells[at]
            if here is None:
                here = cells[at] = {}
            part = (end if at == last else at + 1) - (start if at == first else at)
            here[look] = here.get(look, 0.0) + part
    return cells


def most_of(cells: Iterable[dict[Look, float] | None], enough: float, hidden: Container[Look]) -> Iterator[Look | None]:
    """Yield the look that fills most of each cell, or None of a cell with less than enough. What is ``hidden`` counts
    half: so a row shows the compute beside its communication."""

    def most(here: dict[Look, float] | None) -> Look | None:
        if here is None or (len(here) > 1 and sum(here.values()) < enough):
            return None
        if len(here) == 1:  # the usual case
            [(look, part)] = here.items()
            return look if part >= enough else None
        return max(here, key=lambda look: here[look] * (0.5 if look in hidden else 1.0))

    return map(most, cells)


def runs_of(looks: Iterable[Look | None]) -> Iterator[tuple[int, int, Look]]:
    """Yield (first cell, cell after the last, look) for neighboring cells of one look."""
    start = 0
    for look, cells in groupby(looks):
        end = start + sum(1 for _ in cells)
        if look is not None:
            yield start, end, look
        start = end


def draw_rows(
    rows: Sequence[Sequence[Span]], x: float, y: float, width: float, height: float, ground: str
) -> Iterator[Diagram]:
    """Yield rows in this rectangle, on a ground: those that are the same are one block with thin lines."""
    tall, top = height / len(rows), y
    found: dict[tuple[str, float], list[Rect]] = {}
    for row, equal in groupby(rows):
        thick = tall * sum(1 for _ in equal)
        for start, end, color in row:
            found.setdefault((color, thick), []).append((x + start * width, top, (end - start) * width, thick))
        top += thick
    yield box(x, y, width, height, style(ground))
    yield from colored(found)
    between = [(x, y + tall * place, x + width, y + tall * place) for place in range(1, len(rows))]
    if between:  # chalk's own renderer refuses an empty path
        yield lines(between, style(None, theme.CARD, min(1.0, 0.25 * tall)))


def colored(found: Mapping[tuple[str, float], Sequence[Rect]]) -> list[Diagram]:
    """Return boxes by their color and height, one mark for all of a look."""
    return [boxes(some, style(color)) for (color, _), some in found.items()]
