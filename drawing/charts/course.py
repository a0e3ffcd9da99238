"""The map of the course: all puzzles in order, with what is solved, what has its star, and what comes next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from lib.basics.folders import link_to
from lib.course import outlines
from lib.course.specs import Puzzle, due, puzzles
from lib.grading.progress import Point
from lib.record.table import SEND
from lib.record.training import BACKWARD, FORWARD, UPDATE

from ..ink import theme
from ..ink.figure import PHONE, Figure
from ..ink.letters import wrapped
from ..ink.marks import Diagram, Titled, box, label, poly, star, style, together
from ..ink.svg import escape, inside
from ..ink.texts import capitalized, plural
from ..schedule.layout import PAD
from ..schedule.legend import Entry, draw_legend, patch
from ..schedule.miniature import Span, draw_rows, runs_of
from ..schedule.picture import WIDTH

COLUMNS, GAP, TALL, HEAD = 5, 8.0, 67.0, 32.0
"""The number of cards in a line; in pixels the room between them, their height, and that of a heading above cards."""
WIDE = (WIDTH - 2 * PAD - (COLUMNS - 1) * GAP) / COLUMNS
"""The width of a card in pixels."""
TILE, INSIDE = 27.0, 7.0
"""In pixels: the side of the square with the number, and the room between the edge of a card and what is in it."""
TITLE = INSIDE + TILE + 8
"""Where the title begins, in pixels."""
EDGE = 1.5
"""Room around a card on a page for its frame, in pixels."""
CARD = (WIDE + 2 * EDGE, TALL + 2 * EDGE)
"""The size of a card's picture."""
PLACE = f"display:inline-block;vertical-align:top;width:19%;min-width:160px;max-width:{CARD[0]:.0f}px"
PLACE += ";margin:0 4px 4px 0"
SIGNS = f"width:{PHONE:.0f}px;max-width:100%;margin:0 0 6px"
"""The looks of a card and of the legend on a page."""
TOUR = "The tour of the machine: one step of training, in three minutes"
REPAIRS = "What is wrong here? Programs to be repaired, when you like"
TINT = 0.13
"""The opacity of the color of a card that is solved."""
Trail = Mapping[str, Sequence[Point]]  # right attempts at each puzzle
MEANINGS = {
    outlines.FORWARD: (theme.work_color(FORWARD.kind, 1, 4), FORWARD.word),
    outlines.BACKWARD: (theme.work_color(BACKWARD.kind, 1, 4), BACKWARD.word),
    outlines.OTHER: (theme.STEP, UPDATE.word),
    outlines.TALK: (theme.kind_color(SEND.kind), "communication"),
    outlines.IDLE: (theme.GAP, "bubble"),
}
"""The color and the meaning of each letter of a silhouette."""


class Standing(NamedTuple):
    """How far a learner has come with a puzzle."""

    solved: bool
    starred: bool
    due: bool
    points: Sequence[Point]

    def in_words(self) -> str:
        """Return the same in words, each with a comma before it, or an empty text."""
        text = ", solved" * self.solved + ", with its star" * self.starred + ", to be done next" * self.due
        return text + ", right but over its target" * (not self.solved and bool(self.points))


class Course(Figure):
    """The map: one picture in a file, and on a page a text with a picture for each card, as many in a line as there is
    room for. A card is a link to its notebook, if that is known."""

    so_far = ""
    signs = Figure([], 0, 0, "")
    cards: Sequence[Sequence[tuple[Figure, str]]] = ()
    """The cards of the course and of the repairs, each with the address of its notebook."""

    def in_place(self) -> str:
        """Return the map for a page, with the pictures in it."""
        return f"<style>{theme.css()}</style>{self._on_page(lambda one: inside(one._body, one.size))}"

    def image(self) -> str:
        """Return the map for a page that takes pictures out, with images of them."""
        return self._on_page(Figure.image)

    def _on_page(self, show: Callable[[Figure], str]) -> str:
        signs = f'<div style="{SIGNS}">{show(self.signs)}</div>'
        lists = ["".join(_linked(card, show(card), there) for card, there in cards) for cards in self.cards]
        titles = [f"<p><b>The course:</b> {self.so_far}</p>{signs}", f"<p><b>{REPAIRS}</b></p>"]
        return "".join(f"{title}<div>{cards}</div>" for title, cards in zip(titles, lists, strict=True) if cards)


def _linked(card: Figure, shown: str, there: str) -> str:
    """Return a card in its place, as a link to its notebook."""
    if not there:
        return f'<div role="img" aria-label="{escape(card.summary)}" style="{PLACE}">{shown}</div>'
    text = escape(f"Go to {card.summary}")
    return f'<a href="{escape(there)}" title="{text}" aria-label="{text}" style="{PLACE}">{shown}</a>'


def draw_course(
    solved: Collection[str] = (),
    starred: Collection[str] = (),
    trail: Trail = MappingProxyType({}),
    static: bool = False,
    folder: str | None = None,
) -> Figure:
    """Return a map of the puzzles in order, and below it of the programs to be repaired, each with the silhouette of
    its solution's schedule. ``solved`` puzzles are green and have a tick, ``starred`` ones are golden and have a star,
    and a frame is around those that come next. The pointer finds target, star and the newest right attempt on the
    ``trail``. Each links to its notebook, if that is in this folder, or else in the ``folder`` of that name."""
    known = [*puzzles().values()]
    course, repairs = ([one for one in known if one.repair is repair] for repair in (False, True))
    names, next_ones = [one.name for one in known], [one.name for one in due(solved)]
    now = {one: Standing(one in solved, one in starred, one in next_ones, trail.get(one, ())) for one in names}
    parts: list[Diagram] = [
        label(PAD, 24, "The course", 17, style(theme.INK), "start", 650),
        label(WIDTH - PAD, 25, _so_far(course, now), 11.5, style(theme.MUTE), "end"),
        *draw_legend([_signs()], WIDTH, 41)[0],
    ]
    [first, *places], y = _places(len(course) + 1, 66)
    if repairs:
        parts.append(label(PAD, y + HEAD / 2 - 4, REPAIRS, 13, style(theme.INK), "start", 650))
        more, y = _places(len(repairs), y + HEAD - 10)
        places += more
    parts.append(_tour(*first, new=not solved))
    cards = [(Figure([_tour(EDGE, EDGE, new=not solved)], *CARD, TOUR), _there("machine_tour", folder))]
    for at, (puzzle, place) in enumerate(zip([*course, *repairs], places, strict=True)):
        color = theme.STEP if puzzle.repair else theme.layer_color(at, len(course))
        one, alone = (_card(puzzle, *where, color, now[puzzle.name]) for where in (place, (EDGE, EDGE)))
        parts.append(one)
        cards.append((Figure([alone], *CARD, alone.title), _there(puzzle.file, folder)))
    back = box(0.5, 0.5, WIDTH - 1, y - GAP + PAD - 1, style(theme.CARD, theme.GRID, 1), 8)
    drawn = Course([back, *parts], WIDTH, y - GAP + PAD, _in_words(course, repairs, now), static, "The course")
    drawn.so_far = _so_far(course, now)
    signs, y = draw_legend([_signs()], PHONE, 4)
    back = box(0, 0, PHONE, y + 4, style(theme.CARD), 4)
    drawn.signs = Figure([back, *signs], PHONE, y + 4, "What colors and signs mean.")
    drawn.cards = cards[: len(course) + 1], cards[len(course) + 1 :]
    return drawn


def _there(file: str, folder: str | None) -> str:
    """Return the address of a notebook, or nothing where it is not known."""
    return link_to(f"{file}.ipynb") or ("" if folder is None else f"{folder}{file}.ipynb")


def _so_far(course: Sequence[Puzzle], now: Mapping[str, Standing]) -> str:
    done, stars = (sum(getattr(now[one.name], what) for one in course) for what in ("solved", "starred"))
    return f"{done} of {len(course)} puzzles solved, {stars} of {sum(one.star is not None for one in course)} stars"


def _signs() -> list[Entry]:
    """Return what the colors of silhouettes mean, and what cards say of the learner."""
    colors = [patch(*one) for one in MEANINGS.values()]
    return [
        *colors,
        Entry("solved", [_tick(7, 7, 0.8)], 15),
        Entry("solved with its star", [star(7, 7, 7, style(theme.GOLD))], 15),
        Entry("next", [box(0, 1, 14, 12, style(theme.CARD, theme.INK, 2), 3)], 15),
    ]


def _places(count: int, y: float) -> tuple[list[tuple[float, float]], float]:
    """Return the places of so many cards, from ``y`` down in lines from left to right, and the y below them."""
    places = [(PAD + at % COLUMNS * (WIDE + GAP), y + at // COLUMNS * (TALL + GAP)) for at in range(count)]
    return places, y + -(-count // COLUMNS) * (TALL + GAP)


def _frame(x: float, y: float, color: str, title: Sequence[str], foot: str, due: bool, tint: str = "") -> list[Diagram]:
    """Return a card with its square, its title and its foot. A frame is around one that is to be done next."""
    edge, middle = style(None, theme.INK, 2.2) if due else style(None, theme.HATCH, 1), y + INSIDE + TILE / 2
    tinted = [box(x, y, WIDE, TALL, style(tint, opacity=TINT), 8)] if tint else []
    ups = [middle + 14 * (at - (len(title) - 1) / 2) for at in range(len(title))]
    return [
        box(x, y, WIDE, TALL, style(theme.CARD), 8),
        *tinted,
        box(x, y, WIDE, TALL, edge, 8),
        box(x + INSIDE, y + INSIDE, TILE, TILE, style(color), 6),
        *(label(x + TITLE, up, one, 11.5, style(theme.INK), "start", 650) for one, up in zip(title, ups, strict=True)),
        label(x + INSIDE, y + TALL - 8.5, foot, 10, style(theme.MUTE), "start"),
    ]


def _tour(x: float, y: float, new: bool) -> Diagram:
    """Return the card of the tour, with a frame around it for whoever is new here."""
    parts = _frame(x, y, theme.INK, ["Start here:", "the tour"], "one step of training, 3 min", new)
    corners = [(x + INSIDE + dx, y + INSIDE + dy) for dx, dy in ((9, 7), (20, 13.5), (9, 20))]
    return Titled(TOUR, together([*parts, poly(corners, style(theme.CARD))]))


def _card(puzzle: Puzzle, x: float, y: float, color: str, now: Standing) -> Titled:
    on_color = theme.CARD if color == theme.STEP else theme.text_on(color)
    tint = (theme.GOLD if now.starred else theme.GOOD) if now.solved else ""
    title = wrapped(puzzle.title, 11.5, WIDE - 6 - TITLE, bold=True)[:2]
    parts = _frame(x, y, color, title, f"{puzzle.difficulty}, {puzzle.minutes} min", now.due, tint)
    number, low, right = str(puzzle.number), y + TALL - 9.5, x + WIDE - INSIDE
    size, middle = 14 if len(number) < 3 else 11.5, (x + INSIDE + TILE / 2, y + INSIDE + TILE / 2)
    parts.append(label(*middle, number, size, style(on_color), weight=650))
    parts += draw_rows(silhouette(puzzle), x + INSIDE, y + 37, WIDE - 2 * INSIDE, 14, theme.GAP)
    if now.starred:
        parts.append(star(right - 6, low, 7, style(theme.GOLD)))
    if now.solved:
        parts.append(_tick(right - 7 - 18 * now.starred, low, 0.75))
    elif now.points:
        parts.append(label(right, low + 1, "over the target", 10, style(theme.BAD), "end"))
    elif now.due:
        parts.append(label(right, low + 1, "next", 10.5, style(theme.INK), "end", 650))
    return Titled(_in_full(puzzle, now), together(parts))


def _tick(x: float, y: float, size: float) -> Diagram:
    corners = [(x - 8 * size, y), (x - 3 * size, y + 6 * size), (x + 8 * size, y - 7 * size)]
    return poly(corners, style(None, theme.GOOD, 2.7 * size), closed=False)


def silhouette(puzzle: Puzzle) -> list[list[Span]]:
    """Return the rows of the silhouette of a puzzle's solution."""
    scale = 1 / outlines.CELLS
    rows = (runs_of(row) for row in outlines.silhouette(puzzle))
    busy = ([one for one in row if one[2] != outlines.IDLE] for row in rows)
    return [[(start * scale, end * scale, MEANINGS[letter][0]) for start, end, letter in row] for row in busy]


def _in_full(puzzle: Puzzle, now: Standing) -> str:
    """Return a puzzle in words, in a few lines: the text below the pointer."""

    def figures(time: float, memory: float) -> str:
        return " and ".join(puzzle.describe(time, memory))

    ranks = puzzle.size["ranks"]
    lines = [f"{puzzle.heading} ({puzzle.name}, {ranks} rank{plural(ranks)}){now.in_words()}", puzzle.idea]
    lines += [f"target: {figures(puzzle.target['time'], puzzle.target['memory'])}"]
    lines += [f"star: {figures(puzzle.star['time'], puzzle.star['memory'])}"] if puzzle.star else []
    lines += [f"your attempt {len(now.points)}: {figures(*now.points[-1][:2])}"] if now.points else []
    return "\n".join(filter(None, lines))


def _in_words(course: Sequence[Puzzle], repairs: Sequence[Puzzle], now: Mapping[str, Standing]) -> str:
    def words(puzzle: Puzzle) -> str:
        text = _in_full(puzzle, now[puzzle.name]).replace("\n", "; ")
        return f"{capitalized(text)}; {puzzle.difficulty}, {puzzle.minutes} minutes."

    text = f"The course: {_so_far(course, now)}. {' '.join(map(words, course))}"
    return text + (f" {len(repairs)} programs to be repaired. {' '.join(map(words, repairs))}" if repairs else "")
