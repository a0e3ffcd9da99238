"""The map of the course: all puzzles in order, with what each asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from types import MappingProxyType

from lib.course import outlines
from lib.course.specs import Puzzle, puzzles
from lib.grading.progress import Point, notebook_of
from lib.record.table import SEND
from lib.record.training import BACKWARD, FORWARD, UPDATE

from . import theme
from .figure import Figure, Link
from .header import fit
from .layout import PAD
from .links import arrow_head
from .marks import Bar, Bars, Diagram, Titled, box, label, leaf, lines, poly, star, style, text_width, together
from .picture import card
from .texts import plural

COLUMNS, WIDE, TALL, GAP = 3, 292.0, 97.0, 26.0
"""The number of cards in a line, then their width and height and the room between them in pixels."""
LINE, HEAD = 17.0, 34.0
"""Height of a line of a card, and of a heading between cards."""
TICKS, ELEMENTS, STAMP = 106.0, 180.0, 194.0
"""Places in a card, in pixels: the ends of the columns of figures, and the left edge of the silhouette."""
TARGET_MEANS, STAR_MEANS = "the target", "the star: ticks, and elements of peak memory"
Corner = tuple[float, float, float]  # where a card begins, and its height
Trail = Mapping[str, Sequence[Point]]  # right attempts at each puzzle
MEANINGS = {
    outlines.FORWARD: (theme.work_color(FORWARD.kind, 1, 4), FORWARD.word),
    outlines.BACKWARD: (theme.work_color(BACKWARD.kind, 1, 4), BACKWARD.word),
    outlines.OTHER: (theme.STEP, UPDATE.word),
    outlines.TALK: (theme.kind_color(SEND.kind), "communication"),
    outlines.IDLE: (theme.LANE, "idle"),
}
"""The color and the meaning of each letter of a silhouette."""


def draw_course(
    solved: Collection[str] = (),
    starred: Collection[str] = (),
    trail: Trail = MappingProxyType({}),
    static: bool = False,
) -> Figure:
    """Return a map of the puzzles in order, and below it of the programs to be repaired, each with its target and the
    silhouette of its solution's schedule. ``solved`` puzzles have a tick, ``starred`` ones a star, and those with right
    attempts on the ``trail`` show the newest. Unless ``static``, each links to its notebook in this folder."""
    course = [puzzle for puzzle in puzzles().values() if not puzzle.repair]
    repairs = [puzzle for puzzle in puzzles().values() if puzzle.repair]
    width = 2 * PAD + COLUMNS * WIDE + (COLUMNS - 1) * GAP
    places, y = _places(course, PAD, trail)
    parts: list[Diagram] = [*_ways(places), *_meanings(y + 2, width)]
    y += 22
    if repairs:
        title = "What is wrong here? Programs to be repaired"
        parts.append(label(PAD, y + HEAD / 2, title, 13, style(theme.INK), "start", 650))
        more, y = _places(repairs, y + HEAD, trail)
        places += more
    known = [*course, *repairs]
    done = {one.name: ", solved" * (one.name in solved) + ", with its star" * (one.name in starred) for one in known}
    for at, (puzzle, place) in enumerate(zip(known, places, strict=True)):
        color = theme.STEP if puzzle.repair else theme.layer_color(at, len(course))
        parts.append(_card(puzzle, place, color, done[puzzle.name], trail.get(puzzle.name, ())))
    words = _in_words(course, repairs, done, trail)
    drawn = card(parts, width, y - GAP + PAD, words, static, "The course")
    drawn.links = [
        Link(x, y, WIDE, tall, there, f"Go to {puzzle.heading}")
        for puzzle, (x, y, tall) in zip(known, places, strict=True)
        if (there := notebook_of(puzzle))
    ]
    return drawn


def _meanings(y: float, width: float) -> Iterator[Diagram]:
    """Yield a line that explains the colors of silhouettes, and the figures."""
    ink, x = style(theme.INK), PAD
    for color, name in MEANINGS.values():
        yield box(x, y - 5, 14, 10, style(color), 2)
        yield label(x + 19, y, name, 10.5, ink, "start")
        x += 19 + text_width(name, 10.5) + 14
    star_x = width - PAD - text_width(STAR_MEANS, 10.5)
    target_x = star_x - 36 - text_width(TARGET_MEANS, 10.5)
    yield _tick(target_x - 11, y, 0.55, theme.MUTE)
    yield label(target_x, y, TARGET_MEANS, 10.5, ink, "start")
    yield star(star_x - 11, y, 5.5, style(theme.MUTE))
    yield label(star_x, y, STAR_MEANS, 10.5, ink, "start")


def _places(known: Sequence[Puzzle], y: float, trail: Trail) -> tuple[list[Corner], float]:
    """Return the places of cards, from ``y`` down in lines from left to right, and the y below them."""
    places = []
    for first in range(0, len(known), COLUMNS):
        line = known[first : first + COLUMNS]
        tall = TALL + LINE * (any(trail.get(puzzle.name) for puzzle in line) - all(one.star is None for one in line))
        places += [(PAD + column * (WIDE + GAP), y, tall) for column in range(len(line))]
        y += tall + GAP
    return places, y


def _ways(places: Sequence[Corner]) -> Iterator[Diagram]:
    """Yield an arrow from each card to the next, which may begin the next line."""
    for (x, y, tall), (x2, y2, tall2) in pairwise(places):
        if y == y2:
            way = [(x + WIDE, y + tall / 2), (x2, y2 + tall2 / 2)]
        else:
            turn = y2 - GAP / 2
            way = [(x + WIDE / 2, y + tall), (x + WIDE / 2, turn), (x2 + WIDE / 2, turn), (x2 + WIDE / 2, y2)]
        yield poly(way, style(None, theme.MUTE, 1.4), closed=False)
        yield poly(arrow_head((*way[-2], *way[-1]), 6), style(theme.MUTE))


def _tried(puzzle: Puzzle, points: Sequence[Point]) -> str:
    """Return the figures of the newest right attempt, with its number, or an empty text."""
    if not points:
        return ""
    time, memory = puzzle.unit.lasting(points[-1].time), puzzle.brief(0, points[-1].memory)[1]
    return f"attempt {len(points)}: {time}, {memory}"


def _card(puzzle: Puzzle, place: Corner, color: str, done: str, points: Sequence[Point]) -> Diagram:
    x, y, tall = place
    ink, mute = style(theme.INK), style(theme.MUTE)
    ranks, on_color = puzzle.size["ranks"], theme.CARD if color == theme.STEP else theme.text_on(color)
    parts: list[Diagram] = [
        box(x, y, WIDE, tall, style(theme.CARD, theme.HATCH, 1.2), 8),
        box(x + 12, y + 14, 34, 34, style(color), 8),
        label(x + 29, y + 31, str(puzzle.number), 16, style(on_color), weight=650),
        label(x + 58, y + 22, fit(puzzle.title, 12.0, WIDE - 60), 12.0, ink, "start", 650),
        label(x + 58, y + 40, f"{puzzle.name}, {ranks} rank{plural(ranks)}", 10.5, mute, "start"),
        label(x + WIDE - 12, y + 40, f"{puzzle.difficulty}, {puzzle.minutes} min", 10.5, mute, "end"),
        *_figures(puzzle, x, y + 63, puzzle.target["time"], puzzle.target["memory"]),
        _tick(x + 63, y + 63, 0.55, theme.MUTE),
        *draw_silhouette(outlines.silhouette(puzzle), x + STAMP, y + 54, WIDE - 12 - STAMP, 30 if tall >= TALL else 20),
    ]
    below = y + 63
    if puzzle.star:
        below += LINE
        parts.append(star(x + 63, below, 5.5, style(theme.MUTE)))
        parts += _figures(puzzle, x, below, puzzle.star["time"], puzzle.star["memory"])
    if "solved" in done:
        parts.append(_tick(x + 29, y + 63, 1.0, theme.GOOD))
    if "star" in done:
        parts.append(star(x + 29, y + 80, 8.5, style(theme.GOLD)))
    if points:
        below += LINE
        passed = points[-1].passed
        how = style(theme.GOOD, theme.CARD, 1) if passed else style(theme.CARD, theme.BAD, 1.6)
        parts.append(box(x + 59, below - 4, 8, 8, how, 4))
        parts += _figures(puzzle, x, below, points[-1].time, points[-1].memory)
        parts.append(label(x + STAMP, below, f"your attempt {len(points)}", 10.5, mute, "start"))
    said = f"\n{_tried(puzzle, points)}" if points else ""
    return Titled(f"puzzle {puzzle.number}: {puzzle.title}{done}{said}", together(parts))


def _figures(puzzle: Puzzle, x: float, y: float, time: float, memory: float) -> list[Diagram]:
    """Return ticks and elements, or seconds and bytes, in their columns."""
    ink, shown = style(theme.INK), puzzle.brief(time, memory)
    return [label(x + right, y, one, 10.5, ink, "end") for right, one in zip((TICKS, ELEMENTS), shown, strict=True)]


def _tick(x: float, y: float, size: float, color: str) -> Diagram:
    corners = [(x - 8 * size, y), (x - 3 * size, y + 6 * size), (x + 8 * size, y - 7 * size)]
    return poly(corners, style(None, color, 2.7 * size), closed=False)


def draw_silhouette(rows: Sequence[str], x: float, y: float, width: float, height: float) -> Iterator[Diagram]:
    """Yield the rows of a silhouette in this rectangle: ranks that do the same are one block with thin lines."""
    tall, wide = height / len(rows), width / outlines.CELLS
    found: dict[tuple[str, float], list[Bar]] = {}
    top = y
    for row, equal in groupby(rows):
        thick = tall * len(list(equal))
        at = 0
        for letter, cells in groupby(row):
            length = len(list(cells))
            if letter != outlines.IDLE:
                found.setdefault((letter, thick), []).append((x + at * wide, top + thick / 2, length * wide))
            at += length
        top += thick
    yield box(x, y, width, height, style(theme.LANE))
    for (letter, thick), bars in found.items():
        yield leaf(Bars(bars, thick), style(MEANINGS[letter][0]))
    between = [(x, y + tall * place, x + width, y + tall * place) for place in range(1, len(rows))]
    if between:  # chalk's own renderer refuses an empty path
        yield lines(between, style(None, theme.CARD, min(1.0, 0.25 * tall)))


def _in_words(course: Sequence[Puzzle], repairs: Sequence[Puzzle], done: Mapping[str, str], trail: Trail) -> str:
    def said(puzzle: Puzzle) -> str:
        target = " and ".join(puzzle.describe(puzzle.target["time"], puzzle.target["memory"]))
        if puzzle.star:
            target += f", star {' and '.join(puzzle.describe(puzzle.star['time'], puzzle.star['memory']))}"
        tried = f", {found}" if (found := _tried(puzzle, trail.get(puzzle.name, ()))) else ""
        effort = f"{puzzle.difficulty}, {puzzle.minutes} minutes"
        return f"{puzzle.number}, {puzzle.title} ({puzzle.name}, {effort}): {target}{done[puzzle.name]}{tried}"

    text = f"The course, {len(course)} puzzles. {'. '.join(map(said, course))}."
    return text + (f" {len(repairs)} programs to be repaired. {'. '.join(map(said, repairs))}." if repairs else "")
