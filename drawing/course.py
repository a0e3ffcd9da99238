"""The map of the course: all puzzles in order, with what each asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from lib.basics.units import show_elements, show_ticks
from lib.course.specs import Puzzle, puzzles
from lib.grading.progress import Point, notebook_of

from . import theme
from .figure import Figure, Link
from .header import fit
from .layout import PAD
from .links import arrow_head
from .marks import Diagram, Titled, box, label, lines, poly, star, style, together
from .picture import card
from .words import plural

COLUMNS, WIDE, TALL, GAP = 3, 292.0, 94.0, 26.0
"""Cards in a line, then their width and height and the room between them in pixels."""
LINE = 17.0
"""Height of a line of a card."""
Corner = tuple[float, float, float]  # where a card begins, and its height


def draw_course(
    solved: Collection[str] = (),
    starred: Collection[str] = (),
    trail: Mapping[str, Sequence[Point]] = MappingProxyType({}),
    static: bool = False,
) -> Figure:
    """Return a map of the puzzles, without the programs to be repaired. Those that are ``solved`` are ticked, those
    that are ``starred`` have a star, and those with right attempts on the ``trail`` have the newest. Unless it is
    ``static``, each leads to its notebook, if that is in this folder."""
    known = [puzzle for puzzle in puzzles().values() if not puzzle.repair]
    tall = TALL + LINE * any(trail.get(puzzle.name) for puzzle in known)
    places = [_place(at, tall) for at in range(len(known))]
    width = 2 * PAD + COLUMNS * WIDE + (COLUMNS - 1) * GAP
    height = places[-1][1] + tall + PAD
    ways = [_way(a, b, tall) for a, b in pairwise(places)]
    how = style(None, theme.MUTE, 1.4)
    parts: list[Diagram] = [lines(ways, how), *[poly(arrow_head(way, 6), style(theme.MUTE)) for way in ways]]
    parts += [
        _card(puzzle, (x, y, tall), theme.layer_color(at, len(known)), _done(puzzle, solved, starred), trail)
        for at, (puzzle, (x, y)) in enumerate(zip(known, places, strict=True))
    ]
    drawn = card(parts, width, height, _in_words(known, solved, starred, trail), static, "The course")
    drawn.links = [
        Link(x, y, WIDE, tall, there, f"Go to {puzzle.heading}")
        for puzzle, (x, y) in zip(known, places, strict=True)
        if (there := notebook_of(puzzle))
    ]
    return drawn


def _done(puzzle: Puzzle, solved: Collection[str], starred: Collection[str]) -> str:
    return ", solved" * (puzzle.name in solved) + ", with its star" * (puzzle.name in starred)


def _tried(points: Sequence[Point]) -> str:
    """Return the figures of the newest right attempt, with its number, or an empty text."""
    if not points:
        return ""
    return f"attempt {len(points)}: {show_ticks(points[-1].time)} ticks, {points[-1].memory:,.10g}"


def _place(at: int, tall: float) -> tuple[float, float]:
    """Return the corner of a card: every other line goes from right to left, so that the next is never far."""
    line, column = divmod(at, COLUMNS)
    column = column if line % 2 == 0 else COLUMNS - 1 - column
    return PAD + column * (WIDE + GAP), PAD + line * (tall + GAP)


def _way(a: tuple[float, float], b: tuple[float, float], tall: float) -> tuple[float, float, float, float]:
    (x, y), (x2, y2) = a, b
    if y == y2:
        left = x2 < x
        return x + (0 if left else WIDE), y + tall / 2, x2 + (WIDE if left else 0), y2 + tall / 2
    return x + WIDE / 2, y + tall, x2 + WIDE / 2, y2


def _card(puzzle: Puzzle, place: Corner, color: str, done: str, trail: Mapping[str, Sequence[Point]]) -> Diagram:
    x, y, tall = place
    points = trail.get(puzzle.name, ())
    ink, mute = style(theme.INK), style(theme.MUTE)
    ranks = puzzle.size["ranks"]
    wanted = [puzzle.target, *([puzzle.star] if puzzle.star else [])]
    figures = [f"{show_ticks(one['time'])} ticks, {show_elements(one['memory'])} elements" for one in wanted]
    parts: list[Diagram] = [
        box(x, y, WIDE, tall, style(theme.CARD, theme.HATCH, 1.2), 8),
        box(x + 12, y + 14, 34, 34, style(color), 8),
        label(x + 29, y + 31, str(puzzle.number), 16, style(theme.text_on(color)), weight=650),
        label(x + 58, y + 22, fit(puzzle.title, 12.0, WIDE - 60), 12.0, ink, "start", 650),
        label(x + 58, y + 40, f"{puzzle.name}, {ranks} rank{plural(ranks)}", 10.5, mute, "start"),
        label(x + WIDE - 12, y + 40, f"{puzzle.difficulty}, {puzzle.minutes} min", 10.5, mute, "end"),
        *[label(x + 74, y + 61 + 17 * line, text, 10.5, ink, "start") for line, text in enumerate(figures)],
        _tick(x + 63, y + 61, 0.55, theme.MUTE),
    ]
    if puzzle.star:
        parts.append(star(x + 63, y + 78, 5.5, style(theme.MUTE)))
    if "solved" in done:
        parts.append(_tick(x + 29, y + 61, 1.0, theme.GOOD))
    if "star" in done:
        parts.append(star(x + 29, y + 78, 8.5, style(theme.GOLD)))
    if points:
        below = y + 61 + 2 * LINE
        passed = points[-1].passed
        how = style(theme.GOOD, theme.CARD, 1) if passed else style(theme.CARD, theme.BAD, 1.6)
        parts += [box(x + 59, below - 4, 8, 8, how, 4), label(x + 74, below, _tried(points), 10.5, ink, "start")]
    said = f"\n{_tried(points)}" if points else ""
    return Titled(f"puzzle {puzzle.number}: {puzzle.title}{done}{said}", together(parts))


def _tick(x: float, y: float, size: float, color: str) -> Diagram:
    corners = [(x - 8 * size, y), (x - 3 * size, y + 6 * size), (x + 8 * size, y - 7 * size)]
    return poly(corners, style(None, color, 2.7 * size), closed=False)


def _in_words(
    known: Collection[Puzzle], solved: Collection[str], starred: Collection[str], trail: Mapping[str, Sequence[Point]]
) -> str:
    def said(puzzle: Puzzle) -> str:
        target = f"{show_ticks(puzzle.target['time'])} ticks and {show_elements(puzzle.target['memory'])} elements"
        if puzzle.star:
            star = puzzle.star
            target += f", star {show_ticks(star['time'])} ticks and {show_elements(star['memory'])} elements"
        done = _done(puzzle, solved, starred)
        done += f", {tried}" if (tried := _tried(trail.get(puzzle.name, ()))) else ""
        effort = f"{puzzle.difficulty}, {puzzle.minutes} minutes"
        return f"{puzzle.number}, {puzzle.title} ({puzzle.name}, {effort}): {target}{done}"

    return f"The course, {len(known)} puzzles. {'. '.join(map(said, known))}."
