"""The gaps of a rank, in which it does nothing: a warm tint, with whom it waits for and for how long."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import product
from operator import itemgetter

from lib.basics.units import TICKS
from lib.record.figures.waiting import Gap
from lib.record.table import RECEIVE, SEND

from ..ink import theme
from ..ink.letters import text_width
from ..ink.marks import Diagram, Rect, boxes, hovers, label, style
from ..ink.texts import plural, ranges
from ..ink.trace import Trace
from .layout import MESSAGE, Layout, Row, message_top
from .operations import operation, operation_in_words

LOWEST, ROOM = 14.0, 4.0
"""The least height of a row with text, and the room beside a text, in pixels."""
SIZES = (10.5, 9.5)
ONLY_TALKS = style(theme.TALK, None, 0, 0.5)
THIN, THIN_TALKS = 4.0, style(theme.TALK, None, 0, 0.75)
"""The look of a row that is empty while its rank communicates; where that is narrower than so many pixels, stronger."""
FOUND = 6.0
"""The least width in pixels of a gap with a hover text in a crowded picture."""
ENDS, COMES = 16.0, 9.0
"""In pixels: the least width of a gap at whose end the receive is shown that ends it, and how wide that is."""
LONG = 0.1
"""Gaps of at least this part of a run are labeled with their length even where there is no room for more."""


def gaps_of(trace: Trace, row: Row) -> list[Gap]:
    """Return the gaps of a row, with the ranks that it waits for where these are the same for all its ranks."""
    own = trace.waiting.gaps(row.ranks[0])
    if row.one or not own:
        return own
    others = [trace.waiting.gaps(rank) for rank in row.ranks[1:] if rank in trace.by_rank]
    return [
        gap if all(other[at].ranks == gap.ranks for other in others) else gap._replace(ranks=())
        for at, gap in enumerate(own)
    ]


def tints(layout: Layout) -> list[Diagram]:
    """Return the tint of all gaps, and of the time in which a rank computes nothing while it communicates below its
    row. Behind coarse rows there is a tint of the whole row, which is visible between operations."""
    waits, talks = list[Rect](), list[Rect]()
    tall = layout.row_height if layout.fine else layout.height  # strips of the network have none
    for row in layout.rows:
        spans = (
            [(gap.start, gap.length) for gap in gaps_of(layout.trace, row)] if layout.fine else [(0, layout.trace.time)]
        )
        waits += [(layout.x(start), row.y, length * layout.per_tick, tall) for start, length in spans]
        for start, end in exposed(layout, row):
            talks.append((layout.x(start), row.y, (end - start) * layout.per_tick, layout.height))
    wide, thin = [place for place in talks if place[2] >= THIN], [place for place in talks if place[2] < THIN]
    looks = (waits, style(theme.GAP)), (wide, ONLY_TALKS), (thin, THIN_TALKS)
    return [boxes(places, look) for places, look in looks if places]


def covered(start: float, end: float, busy: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float, bool]]:
    """Yield the parts of a span, with whether one of the ``busy`` spans, in order and apart, covers them."""
    for at in range(bisect_right(busy, start, key=itemgetter(1)), len(busy)):
        first, last = busy[at]
        if first >= end or start >= end:
            break
        if first > start:
            yield start, first, False
        yield max(first, start), min(last, end), True
        start = last
    if start < end:
        yield start, end, False


def exposed(layout: Layout, row: Row) -> list[tuple[float, float]]:
    """Return the spans in which a row is empty while there is communication in a track below it."""
    if not layout.fine or not max(row.tracks, default=0):
        return []
    tracks = [(event.start, event.end, track) for event, track in zip(row.events, row.tracks, strict=True)]
    busy = sorted((start, end) for start, end, track in tracks if not track and end > start)
    found: list[tuple[float, float]] = []
    reached = 0.0
    for start, end in sorted((start, end) for start, end, track in tracks if track and end > start):
        found += [(first, last) for first, last, over in covered(max(start, reached), end, busy) if not over]
        reached = max(reached, end)
    return found


def arrivals_of(layout: Layout) -> set[int]:
    """Return the ids of the receives that end a gap and take no time of their own, since what they get came in it."""
    sent = {event.op for event in layout.trace.events if event.kind == SEND.kind and event.length}
    calls = [gap.call for row in layout.rows if layout.fine for gap in gaps_of(layout.trace, row)]
    return {id(one) for one in calls if one and one.kind == RECEIVE.kind and not one.length and one.op in sent}


def draw_gaps(layout: Layout, notes: bool = True, ways: Sequence[Rect] = ()) -> Iterator[Diagram]:
    """Yield the labels of the gaps and their hover texts. ``notes``: whether a last gap is known to be the last;
    ``ways``: the arrows, which labels stay away from."""
    if not layout.fine:
        return
    texts = []
    arrivals = arrivals_of(layout)
    for row in layout.rows:
        for gap in gaps_of(layout.trace, row):
            if gap.over and (layout.trace.failure is not None or not notes):
                continue
            x, width = layout.x(gap.start), gap.length * layout.per_tick
            if not layout.crowded or width >= FOUND:
                place = (x, row.y, width, layout.row_height)
                texts.append((place, in_words(gap, row, layout.trace, brief=layout.crowded)))
            if id(gap.call) in arrivals and width >= ENDS:
                width -= COMES
                place = x + width, row.y + layout.height * message_top(RECEIVE.kind), COMES, layout.height * MESSAGE
                yield operation(RECEIVE.kind, place, theme.TALK)
            lines = gap_labels(gap, row, layout.trace)
            if not gap.over and gap.length < LONG * layout.trace.time:
                lines = lines[:1]
            near = [way for way in ways if way[0] < x + width and way[2] > x]
            middle = row.y + layout.height / 2
            for text, size in product(lines, SIZES) if layout.height >= LOWEST else ():
                if (at := _free(x, width, middle, text_width(text, size), size, near)) is not None:
                    yield label(at, middle, text, size, style(theme.WAITS), passive=True)
                    break
    yield from hovers(texts)


def _free(x: float, width: float, middle: float, text: float, size: float, ways: Sequence[Rect]) -> float | None:
    """Return where in a gap the middle of a text is free of arrows: in its middle, or else left or right of it; None if
    there is no room."""
    rest = width / 2 - text / 2 - ROOM
    for off in (0.0, -0.5, 0.5, -1.0, 1.0) if rest >= 0 else ():
        at = x + width / 2 + off * rest
        place = at - text / 2, middle - size / 2 + 1, text, size - 2  # no letter reaches from edge to edge
        if not any(crosses(way, place) for way in ways):
            return at
    return None


def crosses(line: Rect, place: Rect) -> bool:
    """Return whether a straight line goes through a rectangle (Liang and Barsky, 1984)."""
    x0, y0, x1, y1 = line
    left, top, width, height = place
    first, last = 0.0, 1.0
    for step, before, after in ((x1 - x0, x0 - left, left + width - x0), (y1 - y0, y0 - top, top + height - y0)):
        if step == 0 and (before < 0 or after < 0):
            return False
        if step:
            enter, leave = sorted((-before / step, after / step))
            first, last = max(first, enter), min(last, leave)
    return first <= last


def waits_for(gap: Gap, row: Row, trace: Trace) -> str:
    """Return for whom a row waits in a gap: ``waits for rank 1``, or for its host."""
    if gap.over:
        return "is done" if row.one else "are done"
    if gap.call is None:
        return "does nothing" if row.one else "do nothing"
    wait = "waits" if row.one else "wait"
    if gap.ranks and trace.hosts.keys() >= set(gap.ranks):
        return f"{wait} for {'its' if row.one else 'their'} host{plural(gap.ranks)}"
    return f"{wait} for rank{plural(gap.ranks)} {ranges(gap.ranks, 4)}" if gap.ranks else wait


def gap_labels(gap: Gap, row: Row, trace: Trace) -> list[str]:
    """Return the possible labels of a gap, from the longest to the shortest."""
    unit = trace.unit
    long = unit.brief(round(gap.length, 2)) if unit is TICKS else unit.lasting(gap.length)
    if gap.over:
        text = f"done {long} early" if any(event.end for event in row.operations) else "nothing to do"
        return [text, "done"]
    if gap.call is None:
        return []
    verb, _, whom = waits_for(gap, row, trace).partition(" ")
    return [f"{verb} {long} {whom}".rstrip(), f"{verb} {long}"]


def in_words(gap: Gap, row: Row, trace: Trace, brief: bool = False) -> str:
    """Return the hover text of a gap, or a ``brief`` one."""
    text, unit = f"{row.full_name} {waits_for(gap, row, trace)}", trace.unit
    between = unit.at(f"{unit.show(gap.start)} to {unit.show(gap.end)}")
    if brief:
        return f"{text}\n{between}"
    call = f"\nin {operation_in_words(gap.call, row)}" if gap.call is not None else ""
    return f"{text}{call}\n{between}: {unit.lasting(gap.length)}"
