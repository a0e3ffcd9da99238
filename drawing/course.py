"""The map of the course: all puzzles in order, with what each asks for."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from lib.basics.units import show_elements, show_ticks
from lib.course.specs import Puzzle, puzzles

from . import theme
from .figure import Figure
from .header import fit
from .layout import PAD
from .links import arrow_head
from .marks import Diagram, Titled, box, label, lines, poly, style, together
from .picture import card
from .words import plural

COLUMNS, WIDE, TALL, GAP = 3, 292.0, 84.0, 26.0
"""Cards in a line, then their width and height and the room between them in pixels."""


def draw_course(solved: Collection[str] = (), static: bool = False) -> Figure:
    """Return a map of the puzzles, without the programs to be repaired. Those that are ``solved`` are ticked."""
    known = [puzzle for puzzle in puzzles().values() if not puzzle.repair]
    places = [_place(at) for at in range(len(known))]
    width = 2 * PAD + COLUMNS * WIDE + (COLUMNS - 1) * GAP
    height = places[-1][1] + TALL + PAD
    ways = [_way(a, b) for a, b in pairwise(places)]
    how = style(None, theme.MUTE, 1.4)
    parts: list[Diagram] = [lines(ways, how), *[poly(arrow_head(way, 6), style(theme.MUTE)) for way in ways]]
    parts += [
        _card(puzzle, x, y, len(known), puzzle.name in solved) for puzzle, (x, y) in zip(known, places, strict=True)
    ]
    return card(parts, width, height, _in_words(known, solved), static, "The course")


def _place(at: int) -> tuple[float, float]:
    """Return the corner of a card: every other line goes from right to left, so that the next is never far."""
    line, column = divmod(at, COLUMNS)
    column = column if line % 2 == 0 else COLUMNS - 1 - column
    return PAD + column * (WIDE + GAP), PAD + line * (TALL + GAP)


def _way(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float, float, float]:
    (x, y), (x2, y2) = a, b
    if y == y2:
        left = x2 < x
        return x + (0 if left else WIDE), y + TALL / 2, x2 + (WIDE if left else 0), y2 + TALL / 2
    return x + WIDE / 2, y + TALL, x2 + WIDE / 2, y2


def _card(puzzle: Puzzle, x: float, y: float, count: int, solved: bool) -> Diagram:
    color = theme.layer_color(puzzle.number, count)
    ink, mute = style(theme.INK), style(theme.MUTE)
    ranks = puzzle.size["ranks"]
    target = f"{show_ticks(puzzle.target['time'])} ticks, {show_elements(puzzle.target['memory'])} elements"
    parts: list[Diagram] = [
        box(x, y, WIDE, TALL, style(theme.CARD, theme.HATCH, 1.2), 8),
        box(x + 12, y + 14, 34, 34, style(color), 8),
        label(x + 29, y + 31, str(puzzle.number), 16, style(theme.text_on(color)), weight=650),
        label(x + 58, y + 22, fit(puzzle.title, 12.0, WIDE - 60), 12.0, ink, "start", 650),
        label(x + 58, y + 40, f"{puzzle.name}, {ranks} rank{plural(ranks)}", 10.5, mute, "start"),
        label(x + WIDE - 12, y + 40, f"{puzzle.difficulty}, {puzzle.minutes} min", 10.5, mute, "end"),
        label(x + 58, y + 62, target, 10.5, ink, "start"),
    ]
    if solved:
        tick = [(x + 21, y + 64), (x + 26, y + 70), (x + 37, y + 57)]
        parts.append(poly(tick, style(None, theme.GOOD, 2.6), closed=False))
    return Titled(f"puzzle {puzzle.number}: {puzzle.title}{', solved' if solved else ''}", together(parts))


def _in_words(known: Collection[Puzzle], solved: Collection[str]) -> str:
    def said(puzzle: Puzzle) -> str:
        target = f"{show_ticks(puzzle.target['time'])} ticks and {show_elements(puzzle.target['memory'])} elements"
        done = ", solved" if puzzle.name in solved else ""
        effort = f"{puzzle.difficulty}, {puzzle.minutes} minutes"
        return f"{puzzle.number}, {puzzle.title} ({puzzle.name}, {effort}): {target}{done}"

    return f"The course, {len(known)} puzzles. {'. '.join(map(said, known))}."
