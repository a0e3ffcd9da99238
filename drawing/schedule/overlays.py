"""What lies over the boxes of the rows: the longest chain, what is held at the peak, the marks of a failed run, and the
traffic within operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib.machine.failure import Failure
from lib.machine.lives import Held, Peak
from lib.record.events import Event
from lib.record.figures.chain import Chain, slack_of
from lib.record.figures.measured import MeasuredChain

from ..ink import theme
from ..ink.letters import first_fit, text_width
from ..ink.marks import Diagram, Point, Rect, Titled, box, boxes, hovers, label, lines, poly, style, together
from .coarse import strips
from .layout import HIDDEN, Layout, Row, Spot, hatching

# -- the longest chain of a run, as one line through the boxes of its operations --

THICK, CASING = 3.0, 1.2
"""In pixels: the thickness of the line, and of the casing on both sides, which separates it from boxes of any color."""
FADED = 0.3
"""Opacity of operations that are not on the chain."""


def stops(layout: Layout) -> list[tuple[Spot, Spot]]:
    """Return for each operation of the chain where the chain arrives and where it leaves. A row shows its first rank;
    the chain may go through another rank of the row, which did the same."""
    chain = layout.trace.chain
    if chain is None or not layout.fine:
        return []
    return [(layout.spots[id(came)], layout.spots[id(went)]) for came, went in chain.links]


class ChainRole(NamedTuple):
    """The role of an operation for the chain: its opacity, and a line of its hover text."""

    opacity: float | None = None
    text: str = ""


def chain_roles(layout: Layout) -> dict[int, ChainRole]:
    """Return the role of each operation, by its id. In a row of one rank, it says how much longer it might take."""
    bright = {id(stop.event) for pair in stops(layout) for stop in pair}
    found = defaultdict[int, ChainRole](ChainRole)
    if not bright:
        return found
    events = layout.trace.events
    measured = layout.trace.profile is not None  # then nobody knows how much longer anything might take
    slack = {} if measured else dict(zip(map(id, events), slack_of(events, layout.trace.tier), strict=True))
    for row in layout.rows:
        for event in row.events:
            if id(event) in bright:
                text = "on the longest chain"
            elif measured:
                text = ""
            elif not slack[id(event)]:
                text = "on another chain that is as long"
            else:
                more = layout.trace.unit.lasting(slack[id(event)])
                text = f"may take {more} more, with all in this order, and the run takes as long"
            found[id(event)] = ChainRole(None if id(event) in bright else FADED, text if row.one else "")
    return found


def draw_chain(layout: Layout) -> list[Diagram]:
    """Return the line of the chain, if one is shown: along the boxes, and to the row of the rank that goes on."""
    chain = layout.trace.chain
    if chain is None or not layout.fine:
        return []
    corners = _corners(layout, chain)
    both = [
        poly(corners, style(None, color, wide), closed=False)
        for color, wide in ((theme.CARD, THICK + 2 * CASING), (theme.CHAIN, THICK))
    ]
    unit = layout.trace.unit
    return [Titled(f"the longest chain, in {unit.name}: {chain.describe(unit)}", together(both))]


def _corners(layout: Layout, chain: Chain) -> list[Point]:
    """Return the corners of the line. It runs along the lower edge of a box, where it hides no number."""
    whole = [(entered.start, entered.end) for entered, _ in chain.links]
    spans = chain.spans if isinstance(chain, MeasuredChain) else whole

    def level(spot: Spot) -> float:
        _, y, _, height = layout.area(spot)  # of a message, too: the line keeps its level
        return y + height - THICK / 2 - 0.5

    corners: list[Point] = []
    for (came, went), (start, end) in zip(stops(layout), spans, strict=True):
        x, width = layout.x(start), (end - start) * layout.per_tick
        turn = [] if came.row is went.row else [(x + width / 2, level(came)), (x + width / 2, level(went))]
        corners += [(x, level(came)), *turn, (x + width, level(went))]
    return corners


# -- what is in memory at the peak, in a run that took notes of it --

DOT = 7.0
"""The width of a dot in pixels."""


def draw_held(layout: Layout) -> list[Diagram]:
    """Return a dot on each operation that has made something which is in memory at the peak, with a hover text on what,
    and on when it is read next. Operations at one place share a dot."""
    peak = layout.trace.noted
    row = None if peak is None else next((row for row in layout.rows if peak.rank in row.ranks), None)
    if peak is None or row is None or not layout.fine:
        return []
    texts = defaultdict[float, list[str]](list)
    for held in peak.held:
        if 0 <= held.made < len(row.events):
            event = row.events[held.made]
            texts[round(layout.x(event.start) + DOT / 2 + 1, 1)].append(_text(layout, peak, held))
    y = row.y + layout.row_height - DOT - 1
    told = {x: "\n".join(["in memory at the peak:", *dict.fromkeys(text)]) for x, text in sorted(texts.items())}
    return [Titled(text, held_dot(x, y)) for x, text in told.items()]


def held_dot(x: float, y: float) -> Diagram:
    """Return a dot around x, from y down."""
    return box(x - DOT / 2, y, DOT, DOT, style(theme.INK, theme.CARD, 1), DOT / 2)


def _text(layout: Layout, peak: Peak, held: Held) -> str:
    """Return what a thing is, and when it is read next, after the peak."""
    unit, events = layout.trace.unit, layout.trace.by_rank[peak.rank]
    of = f" of layer {held.labels.layer}" if held.labels is not None and held.labels.layer >= 0 else ""
    if held.following is None:
        later = "stays" if held.stays else "read now" if held.last == peak.at else "not read again"
    else:
        event = events[held.following]
        later = f"read next by {event.kind} at {unit.at(unit.brief(event.issued))}"
    return f"{held.what}{of}: {later}"


# -- a failed run: a flag at the error, and ranks that wait for ever, hatched, with what they wait for --

TINT, MOST = 0.12, 6
"""The opacity of a row that waits, and the largest number of sentences."""
WRITTEN, HATCHED = 14.0, 6.0
"""The least height in pixels of rows with text, and of rows with hatching."""


def draw_failure(layout: Layout) -> Iterator[Diagram]:
    """Yield the marks of a failed run in its rows."""
    failure = layout.trace.failure
    if failure is None:
        return
    waiting = [(row, wait) for row in layout.rows if (wait := layout.trace.waits.get(row.ranks[0])) is not None]
    end, at, tall = layout.x(layout.trace.until), layout.x(failure.tick), layout.row_height
    places = [(x := layout.x(wait.since), row.y, end - x, tall) for row, wait in waiting]
    if places:
        yield from for_ever(places, 1 if layout.height >= WRITTEN else 0.5)
    flagged = [row for row in layout.rows if failure.place.rank in row.ranks]
    for (row, wait), place in zip(waiting, places, strict=True):
        verb = "wait" if len(row.ranks) > 1 else "waits"
        text = f"{verb} {wait.what}"
        yield from hovers([(place, f"{row.full_name}: {text}\nsince {failure.at(wait.since)}, and for ever")])
        texts = [text, text.partition(", which")[0], text.partition(" in ")[0], verb]
        x = max(place[0], at if not flagged or row in flagged else 0.0)  # right of the flag
        if layout.height >= WRITTEN and (fit := first_fit(texts, [10], end - x - 24)):
            middle = row.y + tall / 2
            yield box(x + 14, middle - 7, text_width(*fit) + 10, 14, style(theme.CARD, None, 0, 0.9), 3)
            yield label(x + 19, middle, *fit, style(theme.BAD), "start", passive=True)
    top, bottom = layout.top - 4, layout.bottom + 3
    for row in flagged:
        top, bottom = row.y - 3, row.y + layout.row_height + 2
    yield Titled(f"{failure.says}\n{failure.at(failure.tick)}", flag(at, top, bottom))


def for_ever(places: Sequence[Rect], width: float = 1, step: float = 7.0) -> Iterator[Diagram]:
    """Yield the look of places where ranks wait for ever: tinted and, if they are high enough, hatched."""
    yield boxes(places, style(theme.BAD, None, 0, TINT))
    hatch = [line for place in places if place[3] >= HATCHED for line in hatching(*place, step)]
    if hatch:
        yield lines(hatch, style(None, theme.BAD, width))


def flag(x: float, top: float, bottom: float) -> Diagram:
    """Return a flag whose pole stands at x."""
    corners = [(x - 1, bottom), (x - 1, top), (x + 11, top + 5), (x + 1, top + 10), (x + 1, bottom)]
    return poly(corners, style(theme.BAD, theme.CARD, 1))


def said_of(failure: Failure | None) -> list[str]:
    """Return what is said of a failed run above its rows."""
    said = [sentence for _, sentence in failure.sentences()] if failure is not None else []
    if len(said) > MOST:
        said[MOST - 1 :] = [f"and {len(said) - MOST + 1} more ranks or groups of ranks wait"]
    return said


# -- a lane of its own for traffic within operations, where tensor parallelism is asynchronous --

COLUMN, LEVELS = 4.0, 8
"""Where operations are not boxes, so many pixels are one column, whose height, in so many steps, is the share of its
time."""


def draw_within(layout: Layout) -> list[Diagram]:
    """Return a lane below each row: pale where traffic is hidden by what is computed, strong where it is exposed. In
    pictures of boxes each operation has a bar, and a hover text."""
    if not layout.within:
        return []
    if not layout.fine:
        spans = ((layout.foot(row) + layout.thin, _spans(layout, row)) for row in layout.rows)
        return strips(layout, COLUMN, LEVELS, spans)
    found: dict[bool, list[Rect]] = {True: [], False: []}
    texts: list[tuple[Rect, str]] = []
    unit, high = layout.trace.unit, layout.thin - 1
    for row in layout.rows:
        y = layout.foot(row) + 0.5
        for event, hidden, exposed in _traffic(layout, row):
            x, width, more = layout.x(event.start), hidden * layout.per_tick, exposed * layout.per_tick
            found[True].append((round(x, 2), y, round(width, 2), high))
            found[False].append((round(x + width, 2), y, round(more, 2), high))
            text = f"{row.full_name}: traffic within {theme.name_of(event.kind)}\n"
            text += f"{unit.lasting(hidden)} hidden by products, {unit.lasting(exposed)} exposed"
            texts.append(((x, y, width + more, high), text))
    bars: list[Diagram] = [
        boxes(found[True], style(theme.TALK, None, 0, HIDDEN)),
        boxes(found[False], style(theme.TALK)),
    ]
    return bars if layout.crowded else [*bars, *hovers(texts)]


def _spans(layout: Layout, row: Row) -> Iterator[tuple[float, float, bool]]:
    """Yield the spans of traffic within operations, and whether they are hidden."""
    for event, hidden, exposed in _traffic(layout, row):
        yield event.start, event.start + hidden, True
        yield event.start + hidden, event.start + hidden + exposed, False


def _traffic(layout: Layout, row: Row) -> Iterator[tuple[Event, float, float]]:
    """Yield the operations with such traffic, with the time in which it is hidden, and in which it is exposed."""
    within = layout.trace.within
    for event in row.events:
        if event.kind in within:
            hidden, exposed = within[event.kind]
            yield event, hidden * event.length, exposed * event.length
