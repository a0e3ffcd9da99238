"""Who attends to what, and when, as blocks of a triangle that fills: ``draw_attention``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError, numbered, runs_of
from lib.record.attention import ATTEND, BACKWARD_ATTEND
from lib.record.causal import ALL, seen, show_slices
from lib.record.figures.attending import Block, Own, Triangle, attention_of, pairs_of
from lib.record.figures.breakdown import share_text
from lib.record.shards import refined
from lib.running.run import Run

from ..ink import theme
from ..ink.figure import Figure, at_any_width
from ..ink.letters import fit, text_width
from ..ink.marks import Diagram, Point, Polys, Titled, box, label, leaf, lines, poly, style, together
from ..ink.texts import capitalized
from ..ink.trace import texts_for
from ..schedule.layout import PAD
from ..schedule.picture import card, sentences

NAMES, SIDE, SHARES = 46.0, 264.0, 38.0
"""In pixels: room for the names of ranks, the side of the square that has the triangle, and room for shares."""
PANEL, BETWEEN = NAMES + SIDE + SHARES, 5.0
"""In pixels: the width of what is drawn of one run, and the room between two of them."""
TOP, LANE, APART = 84.0, 16.0, 3.0
"""In pixels: where a square begins, how high the row of a rank is below it, and the room between two rows."""
LEGIBLE, SIZE = 11.0, 10.0
"""The least side of a block with a number, and the size of that, in pixels."""
STRONG, PALE = 0.5, 0.28
"""How opaque the first block is, and the last one."""
MOST_RUNS, MOST_RANKS, MOST_SLICES = 3, 16, 64
"""There is no room for more."""
FEW = 4
"""So many blocks that nobody has computed are named one by one."""


def draw_attention(
    *runs: Run,
    layer: int = 0,
    batch: int | None = None,
    backward: bool = False,
    titles: Iterable[str] | None = None,
    static: bool = False,
) -> Figure:
    """Who attends to what in a layer of one run, or of up to three runs beside each other: blocks of a square, with
    queries from top to bottom and keys from left to right. A query sees no later key, so the blocks fill a triangle.
    Each rank has a color. A block has the number of the step in which its rank computes it, and the first ones have
    the strongest color. Below it are the times at which each rank computes its blocks, and its share of all the work.

    ``batch``: the micro-batch, by default the first; ``backward``: whether it is about the backward of attention;
    ``titles`` names the runs; ``static=True``: an image without hover texts. Raises PuzzleError for what are no runs,
    for a layer without attention in steps, and for more ranks or slices than there is room for.
    """
    if not runs or len(runs) > MOST_RUNS or not all(isinstance(run, Run) for run in runs):
        got = describe(next((run for run in runs if not isinstance(run, Run)), f"{len(runs)} runs"))
        problem, expected = f"draw_attention takes one to {MOST_RUNS} runs", "draw_attention(run(ring_attention, ...))"
        raise PuzzleError(problem, where="draw_attention", expected=expected, got=got)
    names = texts_for(runs, titles, "title", "draw_attention")
    found = [_triangle(one, name or one.name, layer, batch, backward) for one, name in zip(runs, names, strict=True)]
    most, cut = max(len(triangle.owns) for triangle in found), max(triangle.cut for triangle in found)
    if most > MOST_RANKS or cut > MOST_SLICES:
        expected, got = f"up to {MOST_RANKS} ranks and {MOST_SLICES} slices", f"{most} ranks, {cut} slices"
        raise PuzzleError("there is no room for so many", where="draw_attention", expected=expected, got=got)
    return at_any_width(partial(_drawn, found), len(found), 1, static)


def _triangle(run: Run, title: str, layer: int, batch: int | None, backward: bool) -> Triangle:
    """Return the attention of a layer of a run. Raise PuzzleError if there is none."""
    kind = (BACKWARD_ATTEND if backward else ATTEND).kind
    everything = [event for event in run.events if event.kind == kind]
    of_layer = [event for event in everything if type(layer) is int and event.layer == layer]
    if batch is None:
        batch = min((number for event in of_layer for number in event.batches), default=0)
    events = [event for event in of_layer if batch in event.batches]
    if not events:
        problem = f"nobody attends to anything in layer {describe(layer)} of {title}"
        expected = "a run in which model.attend(...) is called: draw_attention(run(ring_attention, ranks=4, ...))"
        if of_layer:
            problem += f", micro-batch {describe(batch)}"
            expected = numbered("micro-batch", {number for event in of_layer for number in event.batches})
        elif everything:
            expected = numbered("layer", {event.layer for event in everything if event.layer is not None})
        raise PuzzleError(problem, where="draw_attention", expected=expected)
    owns = attention_of(events)
    note = f"layer {layer}" + f", micro-batch {batch}" * (run.batches > 1) + ", backward" * backward
    parts = max(block.heads[1] for own in owns for block in own.blocks)
    if parts > 1:
        note += f", heads in {parts} parts"
    return Triangle(title, note, owns, run.unit)


# -- in words ---------------------------------------------------------------------------------------


def _sentences(triangle: Triangle, several: bool) -> list[str]:
    """Return what is said of a run below its picture."""
    least, most = (pick(triangle.owns, key=lambda own: own.share) for pick in (min, max))
    lasting = triangle.unit.lasting
    subject = f"{triangle.title}: it" if several else "It"
    text = f"{subject} takes {lasting(triangle.end - triangle.start)}"
    if least.share < most.share:
        (largest, its), (smallest, _) = map(_work_of, (most, least))
        computes = f"compute{'s' * (len(least.ranks) == 1)} for {lasting(least.ticks)} of that time"
        text += f". {largest} of the work, since {its} queries see the most keys. {smallest}, and {computes}"
    elif most.share < 1:
        text += f", and each rank has {share_text(float(most.share))} of the work"
    texts = [f"{text}."]
    if missing := triangle.missing():
        named = "; ".join(f"queries of slice {query} to keys of slice {key}" for query, key in missing[:FEW])
        more = f"; and {len(missing) - FEW} blocks more" if len(missing) > FEW else ""
        texts.append(f"Nobody has attended, of {triangle.cut} slices: {named}{more}.")
    return texts


def _work_of(own: Own) -> tuple[str, str]:
    """Return the share of the work that ranks have, and whose that is."""
    has, its = ("has", "its") if len(own.ranks) == 1 else ("each have", "their")
    return f"{capitalized(own.full_name)} {has} {share_text(float(own.share))}", its


def _in_words(triangle: Triangle) -> str:
    """Return who attends to what, and when, rank by rank."""
    texts = []
    for own in triangle.owns:
        steps = ", then ".join(_said(triangle, block) for block in own.blocks if seen(block.queries, block.keys)[0])
        queries = show_slices(own.blocks[0].queries)
        each = "" if own.blocks[0].heads == ALL else ", each in its part of the heads"
        texts.append(f"queries of {own.full_name}, {queries}{each}, attend to {steps or 'no key that they see'}")
    return f"{triangle.title}, {triangle.note}: {'; '.join(texts)}."


def _said(triangle: Triangle, block: Block) -> str:
    unit = triangle.unit
    keys = "all keys" if block.keys == ALL else f"keys of {show_slices(block.keys)}"
    return f"{keys} at {unit.at(f'{unit.show(block.start)} to {unit.show(block.end)}')}"


# -- drawn ------------------------------------------------------------------------------------------


def _drawn(found: Sequence[Triangle], abreast: int) -> Figure:
    """Return the picture, with so many runs beside each other."""
    width = 2 * PAD + abreast * (PANEL + BETWEEN) - BETWEEN
    longest = {one.unit: max(o.end - o.start for o in found if o.unit is one.unit) for one in found}
    parts, y, below = list[Diagram](), 0.0, 0.0
    for at, triangle in enumerate(found):
        y = y if at % abreast else below
        panel = _Panel(triangle, longest[triangle.unit], PAD + at % abreast * (PANEL + BETWEEN), y)
        parts += panel.parts()
        below = max(below, panel.bottom)
    texts = [sentence for one in found for sentence in _sentences(one, len(found) > 1)]
    said, y = sentences(texts, below + 6, width)
    words = " ".join(["Who attends to what.", *map(_in_words, found), *texts])
    return card([*parts, *said], width, y + 4, words, title="Who attends to what")


def color_of_rank(rank: int, ranks: int) -> str:
    """Return the color of a rank: none of the darkest or the palest, which would be lost on a dark or a light page."""
    edge = ranks // 3 + 1
    return theme.layer_color(edge + rank, ranks + 2 * edge)


def _has_room(number: str, side: float) -> bool:
    """Return whether there is room for a number in so many pixels."""
    return side >= max(LEGIBLE, text_width(number, SIZE, bold=True) + 1)


class _Panel:
    """What is drawn of one run: its triangle, and below it when each rank computes its blocks."""

    def __init__(self, triangle: Triangle, longest: float, x: float, y: float) -> None:
        self.triangle, self.cut, self.longest = triangle, triangle.cut, longest or 1.0
        self.x, self.y = x, y
        self.left, self.top, self.side = x + NAMES, y + TOP, SIDE / self.cut
        self.lanes = self.top + SIDE + 26
        self.bottom = self.lanes + len(triangle.owns) * (LANE + APART) + 16

    def parts(self) -> Iterator[Diagram]:
        """Yield everything, from top to bottom."""
        yield from self._head()
        yield from self._names()
        yield poly(self._cell(0, 0, self.cut), style(None, theme.GRID, 1))
        for at, own in enumerate(self.triangle.owns):
            yield from (self._block(at, own, block) for block in own.blocks if seen(block.queries, block.keys)[0])
        yield from self._missing()
        yield from self._times()

    def _cell(self, query: int, key: int, wide: int = 1) -> list[Point]:
        """Return the corners of what queries of a slice see of a slice of keys: on the diagonal a triangle."""
        x, y, side = self.left + key * self.side, self.top + query * self.side, wide * self.side
        return [(x, y), *[(x + side, y)] * (key < query), (x + side, y + side), (x, y + side)]

    def _head(self) -> Iterator[Diagram]:
        mute, title = style(theme.MUTE), fit(self.triangle.title, 13, PANEL * 0.8)
        yield label(self.x, self.y + 24, title, 13, style(theme.INK), "start", 650)
        note = self.triangle.note + "; number: the step" * (self.triangle.steps > 1)
        yield label(self.x, self.y + 41, note, 10.5, mute, "start")
        yield label(self.left + SIDE, self.y + 60, f"keys, in {self.cut} slices", 10.5, mute, "end")
        yield label(self.x, self.y + 60, "queries", 10.5, mute, "start")
        for key in range(self.cut) if _has_room(str(self.cut), self.side) else ():
            yield label(self.left + (key + 0.5) * self.side, self.top - 9, str(key), SIZE, mute)

    def _names(self) -> Iterator[Diagram]:
        """Yield whose queries are in which rows: once for rows of one rank that follow each other."""
        whose = dict[int, str]()
        for own in self.triangle.owns:
            whose |= dict.fromkeys(refined(*own.blocks[0].queries, self.cut), own.name)
        for name in dict.fromkeys(whose.values()):
            for first, last in runs_of([row for row in whose if whose[row] == name]):
                tall, y = (last - first + 1) * self.side, self.top + (first + last + 1) * self.side / 2
                if tall >= LEGIBLE:
                    yield label(self.left - 6, y, name, min(10.5, tall - 0.5), style(theme.INK), "end")

    def _shade(self, at: int, block: Block) -> tuple[str, float]:
        """Return the color of a rank's block, and how opaque it is."""
        late = (block.step - 1) / max(1, self.triangle.steps - 1)
        return color_of_rank(at, len(self.triangle.owns)), STRONG - (STRONG - PALE) * late

    def _block(self, at: int, own: Own, block: Block) -> Diagram:
        """Return a block, slice by slice, with the number of its step where there is room."""
        color, opacity = self._shade(at, block)
        cells = pairs_of(block, self.cut)
        look = style(color, theme.CARD, 1, opacity)
        shapes: list[Diagram] = [leaf(Polys([self._cell(*cell) for cell in cells]), look)]
        if self.triangle.steps > 1 and _has_room(str(block.step), 0.8 * self.side):
            for query, key in cells:
                x, y = (0.32, 0.7) if query == key else (0.5, 0.5)
                x, y = self.left + (key + x) * self.side, self.top + (query + y) * self.side
                shapes.append(label(x, y, str(block.step), SIZE, style(theme.INK), weight=600))
        which = f"step {block.step}" if block.heads == ALL else "each in its part of the heads"
        queries = f"queries of {show_slices(block.queries)}"
        return Titled(f"{own.full_name}, {which}: {queries} attend to {_said(self.triangle, block)}", together(shapes))

    def _missing(self) -> Iterator[Diagram]:
        """Yield crosses where nobody has attended to anything that is seen."""
        for query, key in self.triangle.missing():
            x, low = self.left + (key + 0.2) * self.side, self.top + (query + 0.8) * self.side
            long = self.side * (0.3 if query == key else 0.55)
            cross = [(x, low - long, x + long, low), (x, low, x + long, low - long)]
            text = f"nobody: queries of slice {query}, keys of slice {key} of {self.cut}"
            yield Titled(text, lines(cross, style(None, theme.BAD, 1)))

    def _times(self) -> Iterator[Diagram]:
        """Yield when each rank computes its blocks, and its share of the work."""
        triangle, mute, ink = self.triangle, style(theme.MUTE), style(theme.INK)
        scale, right, y = SIDE / self.longest, self.left + SIDE + SHARES, self.lanes
        long = (triangle.end - triangle.start) * scale
        yield label(self.left, y - 9, "when each rank attends", 10.5, mute, "start")
        yield label(right, y - 9, "work", 10.5, mute, "end")
        for at, own in enumerate(triangle.owns):
            yield label(self.left - 6, y + LANE / 2, own.name, 10.5, ink, "end")
            yield box(self.left, y, long, LANE, style(theme.LANE), 2)
            for block in [one for one in own.blocks if one.end > one.start]:
                x, wide = self.left + (block.start - triangle.start) * scale, (block.end - block.start) * scale
                color, opacity = self._shade(at, block)
                looks = [style(theme.CARD), style(color, color, 0.75, opacity)]
                shapes: list[Diagram] = [box(x, y, wide, LANE, look, 2) for look in looks]
                if _has_room(str(block.step), wide) and len(own.blocks) > 1:
                    shapes.append(label(x + wide / 2, y + LANE / 2, str(block.step), SIZE, ink, weight=600))
                yield Titled(f"{own.full_name}, step {block.step}: {_said(triangle, block)}", together(shapes))
            yield label(right, y + LANE / 2, share_text(float(own.share)), 10.5, ink, "end")
            y += LANE + APART
        begins, ends = (triangle.unit.at(triangle.unit.brief(time)) for time in (triangle.start, triangle.end))
        room = text_width(begins, SIZE) + text_width(ends, SIZE) + 8
        yield label(self.left, y + 7, begins, SIZE, mute, "start")
        yield label(self.left + max(long, room), y + 7, ends, SIZE, mute, "end")
