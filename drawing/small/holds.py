"""What each GPU holds at a moment: a card for each rank, a row for each layer, a cell for each shard or micro-batch."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.basics.units import Elements
from lib.machine.pieces import PASSING, STORED, TRAVELS, Piece, pieces_of
from lib.record.events import Event
from lib.record.kinds import KINDS, MEMORY_KINDS
from lib.running.run import Run, Timed

from ..ink import theme
from ..ink.figure import PHONE, Figure, at_any_width
from ..ink.letters import first_fit, fit
from ..ink.marks import Classed, Diagram, Rect, Titled, box, boxes, in_lines, label, lines, style, tile, vcat
from ..ink.texts import brief_size, capitalized, full_ranks
from ..ink.trace import Trace, trace_of
from ..schedule.layout import PAD, Row, rows_of
from ..schedule.legend import TALL, Entry, draw_legend, patch
from ..schedule.legend import WIDE as SAMPLE
from ..schedule.links import arrows
from ..schedule.operations import words_of
from ..schedule.picture import card

MOST, MANY, FEW = 16, 4, 2
"""The largest number of ranks, and how many cards are beside each other, as a rule and in a narrow place."""
WIDE, BETWEEN, HEAD, FOOT = 160.0, 18.0, 20.0, 20.0
"""In pixels: the width of a card, the room between cards, in which something may travel, and the heights of what is
above the rows of a card and below them."""
NAMES, EDGE, APART = 24.0, 6.0, 5.0
"""In pixels: the width of the names of rows, the room at the edges of a card, and that between its columns."""
ROW, LEAST, ROOM = 14.0, 3.0, 260.0
"""In pixels: the height of a row, its least one, and the height that all rows of a card share if they are many."""
PAGE, PART = MANY * (WIDE + BETWEEN) + 2 * PAD - 8, "part"
"""The width of what a player shows, in pixels, and the class of what it shows only at times."""
THIN = 4.0
"""Cells that are narrower, in pixels, have no outline."""
LOOKS = {STORED: (None, theme.MUTE, 0.5), PASSING: (0.55, theme.MUTE, 0.5), TRAVELS: (0.55, theme.TALK, 1)}
"""Opacity, outline and its width, by how something is held."""
SAID = {STORED: "stored", PASSING: "not stored: here for one operation", TRAVELS: "on its way, or just come"}


@dataclass(frozen=True)
class Contents:
    """What the ranks of a run hold, all of it or at some moments."""

    trace: Trace
    pieces: Mapping[int, Sequence[Piece]]

    @cached_property
    def every(self) -> list[Piece]:
        """The pieces of all ranks."""
        return [piece for own in self.pieces.values() for piece in own]

    @cached_property
    def columns(self) -> dict[str, int]:
        """The kinds of memory, with how many tensors of a layer are below each other at most."""
        lines = {kind: [1 + one.line for one in self.every if one.memory == kind] for kind in MEMORY_KINDS}
        return {kind: max(some) for kind, some in lines.items() if some}

    @cached_property
    def layers(self) -> list[int]:
        """The layers, and what comes before the first one or behind the last one, if that is held."""
        return sorted({*range(self.trace.layers), *(piece.layer for piece in self.every)})

    @cached_property
    def row(self) -> float:
        """The height of a row in pixels."""
        return max(LEAST, min(ROW, ROOM / len(self.layers)))

    @property
    def tall(self) -> float:
        """The height of all rows."""
        return self.row * len(self.layers)

    @cached_property
    def rows(self) -> dict[int, Row]:
        """The rows of a schedule with all these ranks, which know their names."""
        return {row.ranks[0]: row for row in rows_of(self.trace, len(self.trace.by_rank))}

    def lane(self, layer: int, kind: str) -> Rect:
        """Return the place of a whole layer's tensor of a kind."""
        at, many = [*self.columns].index(kind), len(self.columns)
        wide = (WIDE - NAMES - EDGE - APART * (many - 1)) / many
        return NAMES + at * (wide + APART), self.layers.index(layer) * self.row + 0.75, wide, self.row - 1.5

    def sample(self, rank: int, tick: float) -> int:
        """Return the place of the sample of memory that holds at a tick: of several that are taken then the fullest."""
        own = self.trace.by_rank[rank]
        last = bisect_right(own, tick + 1e-9, key=attrgetter("issued")) - 1
        same = [at for at in range(last + 1) if own[at].issued > own[last].issued - 1e-9]
        return max(same, key=lambda at: own[at].memory, default=-1)

    def held(self, rank: int, tick: float) -> list[Piece]:
        """Return what a rank holds at a tick."""
        at = self.sample(rank, tick)
        return [piece for piece in self.pieces[rank] if piece.start <= at < piece.stop]

    def now(self, rank: int, tick: float) -> list[Event]:
        """Return the operations of a rank that go on at a tick, compute first."""
        found = [one for one in self.trace.by_rank[rank] if one.start - 1e-9 <= tick < one.end - 1e-9]
        return sorted(found, key=lambda one: one.stream != "compute")


def holds(source: object, *ticks: float, static: bool = False) -> Figure:
    """A picture of what each rank of a Run has in memory at a tick, or at several; without any, when memory is highest.

    A row is a layer, and a cell a shard of a weight, a state or a gradient, or a micro-batch of activations. What is
    pale is not stored: an operation has it in memory while it goes on. A frame is round what travels. The function is
    run once more for this, with notes, and what it prints is not shown again. Raises PuzzleError for a tick before or
    after the run, for more than 16 ranks, and for a run without such notes: one that has failed, in which ranks stand
    for others, or with real tensors.
    """
    contents = contents_of(source)
    trace = contents.trace
    moments = ticks if ticks and trace.attempted else (trace.peak.issued if trace.peak else 0.0,)
    for tick in moments:
        if isinstance(tick, bool) or not isinstance(tick, (int, float)) or not 0 <= tick <= trace.time:
            expected = f"0 to {trace.unit.brief(trace.time)}"
            raise PuzzleError("no moment of this run", where="holds", expected=expected, got=describe(tick))
    shown = {rank: list({id(one): one for tick in moments for one in contents.held(rank, tick)}.values())
             for rank in contents.pieces}  # fmt: skip
    contents = replace(contents, pieces=shown)
    return at_any_width(partial(_drawn, contents, moments), MANY, FEW, static)


def contents_of(source: object) -> Contents:
    """Return what the ranks of a run hold. Raise PuzzleError if nobody can say."""
    expected = "a simulated run of all ranks that has gone to its end, such as run(fsdp, ranks=4)"
    if not isinstance(source, Run):
        raise PuzzleError("holds takes a run", where="holds", expected=expected, got=describe(source))
    if source.ranks > MOST:
        got = f"{source.ranks:,} ranks"
        raise PuzzleError("there is no room for so many", where="holds", expected=f"up to {MOST} ranks", got=got)
    if source.again is None:
        why = "it has failed" if source.failed else "it has real tensors, or comes from elsewhere"
        why = "some of its ranks stand for others" if isinstance(source, Timed) else why
        raise PuzzleError(f"nothing notes what each rank of this run holds: {why}", where="holds", expected=expected)
    noted = source if len(source.stays) == source.ranks + source.hosts else source.again()
    if [*noted.events] != [*source.events]:
        problem = "the function does something else each time that it runs, so nobody knows what this run has held"
        raise PuzzleError(problem, where="holds", expected="the same operations each time")
    trace = trace_of(source)
    return Contents(trace, {rank: [*pieces_of(noted.stays[rank], trace.batches)] for rank in trace.by_rank})


# -- a card: its head, its rows, its foot, and what travels to the next ones --


def strip(contents: Contents, piece: Piece) -> Diagram:
    """Return the cells of a tensor, in the rows of a card."""
    x, y, wide, tall = contents.lane(piece.layer, piece.memory)
    high, least = tall / contents.columns[piece.memory], min(end - start for start, end in piece.cells) * wide
    room, color, (opacity, outline, width) = min(0.5, least / 6), theme.MEMORY[piece.memory][1], LOOKS[piece.how]
    places = [(x + start * wide + room, y + piece.line * high + 0.25, (end - start) * wide - 2 * room, high - 0.5)
              for start, end in piece.cells]  # fmt: skip
    size = contents.trace.size_unit.describe(piece.elements)
    text = f"{capitalized(piece.what)} of layer {piece.layer}, {SAID[piece.how]}: {size}"
    return Titled(text, boxes(places, style(color, outline if least >= THIN else None, width, opacity)))


def ways_of(event: Event) -> Iterator[tuple[int, str, str, str]]:
    """Yield the layers and the kind of what a communication carries, with the side of a card where it leaves, and where
    it comes in: collectives go round a ring, to the right."""
    if event.layer is None or event.tensor is None or len(event.group) < 2:
        return
    leaves, comes = "right", "left"
    if event.stream == "message":
        [other] = {*event.group} - {event.rank}
        side, sends = "right" if other > event.rank else "left", event.rank == event.group[0]
        leaves, comes = side * sends, side * (not sends)
    for layer in event.layers or (event.layer,):
        yield layer, KINDS[event.tensor].memory, leaves, comes


def travel(contents: Contents, layer: int, kind: str, leaves: str, comes: str) -> list[Diagram]:
    """Return the frame round what travels, and its ways from a card and into it."""
    if layer not in contents.layers or kind not in contents.columns:
        return []
    x, y, wide, tall = contents.lane(layer, kind)
    near, far = {"left": 4.0, "right": WIDE - 4}, {"left": -BETWEEN / 2, "right": WIDE + BETWEEN / 2}
    parts: list[Diagram] = [box(x - 1.5, y - 1, wide + 3, tall + 2, style(None, theme.TALK, 1.2), 2)]
    middle = y + tall / 2
    if leaves:
        parts.append(lines([(near[leaves], middle, far[leaves], middle)], style(None, theme.TALK, 1.5)))
    return [*parts, *arrows([(far[comes], middle, near[comes], middle)] if comes else [], theme.TALK, 1.5, 6)]


def framed(
    contents: Contents, rank: int, parts: Iterable[Diagram], head: Iterable[Diagram] = (), foot: Iterable[Diagram] = ()
) -> Diagram:
    """Return the card of a rank: its name and more in its head, rows with what is in them, and what is below these."""
    high, tall = HEAD + contents.tall + (FOOT if foot else EDGE), contents.row
    lanes = [contents.lane(layer, kind) for kind in contents.columns for layer in contents.layers]
    names = {-1: "input", contents.trace.layers: "loss"}
    named = [
        label(NAMES - 3, (at + 0.5) * tall, names.get(layer, str(layer)), 9.0, style(theme.MUTE), "end")
        for at, layer in enumerate(contents.layers)
        if at % max(1, round(9 / tall)) == 0
    ]
    name = label(EDGE, 10.5, contents.rows[rank].name, 10.5, style(theme.INK), "start", 600)
    body = tile(WIDE, contents.tall, [boxes(lanes, style(theme.LANE)), *named, *parts])
    inside = vcat([tile(WIDE, HEAD, [name, *head]), body, tile(WIDE, FOOT, foot)])
    return tile(WIDE + BETWEEN, high + 10, [box(0, 0, WIDE, high, style(theme.CARD, theme.GRID, 1), 5), inside])


def _card(contents: Contents, rank: int, tick: float) -> Diagram:
    """Return what a rank holds at a tick."""
    row, now = contents.rows[rank], contents.now(rank, tick)
    texts = [" + ".join(words_of(one, row.one, batches) for one in now) for batches in (True, False)]
    texts = texts if now else ["done" if tick >= row.events[-1].end else "waits"]
    does = first_fit(texts, (9.5, 8.5), WIDE - 58) or (fit(texts[-1], 8.5, WIDE - 58), 8.5)
    marks = [mark for event in now for way in ways_of(event) for mark in travel(contents, *way)]
    parts = [*(strip(contents, piece) for piece in contents.held(rank, tick)), *marks]
    head = label(WIDE - EDGE, 10.5, *does, style(theme.MUTE), "end")
    return framed(contents, rank, parts, [head], _sum(contents, rank, tick))


def _sum(contents: Contents, rank: int, tick: float) -> Iterator[Diagram]:
    """Yield all that a rank holds as a bar, on the scale of the peak of all devices or of all hosts."""
    trace, at, x, wide = contents.trace, contents.sample(rank, tick), EDGE, WIDE - 2 * EDGE - 42
    peak = trace.host_peak if rank in trace.hosts else trace.peak
    held = trace.by_rank[rank][at].held if at >= 0 else ()
    yield box(x, 8, wide, 6, style(theme.LANE))
    for kind, amount in zip(MEMORY_KINDS, held, strict=False):
        part = wide * float(amount) / float(peak.memory) if peak and amount else 0.0
        yield from [box(x, 8, part, 6, style(theme.MEMORY[kind][1]))] * bool(part)
        x += part
    yield label(WIDE - EDGE, 11, brief_size(trace.size_unit, sum(held)), 9.5, style(theme.INK), "end")


# -- the picture --


def meaning(contents: Contents, travels: bool) -> list[Entry]:
    """Return what colors and frames mean."""
    found = [patch(theme.MEMORY[kind][1], theme.MEMORY[kind][0]) for kind in contents.columns]
    ways, color = {piece.how for piece in contents.every}, theme.MEMORY["weights"][1]
    signs = {"pale: here for one operation only": style(color, theme.MUTE, 0.5, 0.55)} if PASSING in ways else {}
    signs |= {"travels, or has just come": style(None, theme.TALK, 1.2)} if travels or TRAVELS in ways else {}
    return found + [Entry(text, [box(0, 0, SAMPLE, TALL, look, 2)], SAMPLE) for text, look in signs.items()]


def _drawn(contents: Contents, moments: Sequence[float], many: int) -> Figure:
    """Return the picture with so many cards beside each other."""
    trace, ranks = contents.trace, [*contents.pieces]
    wide = max(PHONE, min(many, len(ranks)) * (WIDE + BETWEEN) + 2 * PAD - 8)
    now = [event for tick in moments for rank in ranks for event in contents.now(rank, tick)]
    legend, y = draw_legend([meaning(contents, any(any(ways_of(event)) for event in now))], wide, 40)
    title = f"What each GPU holds: {trace.title}"
    parts: list[Diagram] = [label(PAD, 22, fit(title, 14, wide - 2 * PAD), 14, style(theme.INK), "start", 650), *legend]
    words = [f"{title}."]
    for tick in moments:
        text = trace.unit.at(trace.unit.show(tick))
        parts.append(label(PAD, y + 21, text, 12, style(theme.INK), "start", 600))
        parts.append(in_lines([_card(contents, rank, tick) for rank in ranks], many).translate(PAD + 4, y + 34))
        y += 24 + -(-len(ranks) // many) * (HEAD + FOOT + 10 + contents.tall)
        words.append(f"{capitalized(text)}: {_in_words(contents, tick)}.")
    return card(parts, wide, y + 16, " ".join(words), title=title)


def moving(contents: Contents) -> tuple[Figure, list[list[list[float]]]]:
    """Return all that is ever held and travels in one picture, for a player, which shows what is there at a time. Each
    part of it has the class PART, and two lists: when it comes, and when it goes."""
    trace, cards, times = contents.trace, list[Diagram](), list[list[list[float]]]()
    for rank, own in contents.pieces.items():
        log, parts = trace.by_rank[rank], list[Diagram]()
        moments = [*map(attrgetter("issued"), log), *[2 * trace.until + 1] * 2]
        spans = defaultdict[tuple[Any, ...], list[tuple[float, float]]](list)
        for piece in own:
            end = min(piece.stop, len(log))
            spans[piece._replace(start=0, stop=0)].append((moments[piece.start], moments[end]))
        for event in log:
            for way in ways_of(event):
                spans[way].append((event.start, event.end))
        for what, when in spans.items():
            drawn = [strip(contents, what)] if isinstance(what, Piece) else travel(contents, *what)
            parts.append(Classed(PART, drawn))
            times.append([sorted(round(time, 6) for time in side) for side in zip(*when, strict=True)])
        cards.append(framed(contents, rank, parts))
    legend, y = draw_legend([meaning(contents, travels=True)], PAGE, 6)
    high = -(-len(cards) // MANY) * (HEAD + EDGE + 10 + contents.tall)
    words = "What each GPU holds at the moment that this page shows."
    return card([*legend, in_lines(cards, MANY).translate(PAD + 4, y + 8)], PAGE, y + high + 8, words), times


def _in_words(contents: Contents, tick: float) -> str:
    """Return what the ranks hold at a tick in words: those that do and hold the same are said once."""
    trace, words = contents.trace, defaultdict[str, list[int]](list)
    for rank in contents.pieces:
        now = [words_of(event, batches=False) for event in contents.now(rank, tick)]
        sizes = defaultdict[str, Elements](int)
        for piece in contents.held(rank, tick):
            sizes[theme.MEMORY[piece.memory][0] + f" ({SAID[piece.how]})" * (piece.how != STORED)] += piece.elements
        held = [f"{name} {trace.size_unit.show(size)}" for name, size in sizes.items()]
        words[f"{' and '.join(now) or 'nothing goes on'}; in memory {', '.join(held) or 'nothing'}"].append(rank)
    return ". ".join(f"{full_ranks(ranks)}: {text}" for text, ranks in words.items())
