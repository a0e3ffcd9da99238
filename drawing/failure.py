"""A failed run: a flag at the error, and ranks that wait for ever, hatched, with what they wait for."""

from __future__ import annotations

from collections.abc import Iterator

from . import theme
from .layout import PAD, Layout, Row, hatching
from .marks import Detail, Diagram, Titled, box, boxes, first_fit, label, lines, poly, style, text_width
from .trace import Trace

TINT, LINE, MOST = 0.12, 18.0, 6
"""The opacity of a row that waits, the height of a sentence in pixels, and the largest number of sentences."""
WRITTEN, HATCHED = 14.0, 6.0
"""The least height in pixels of rows with text, and of rows with hatching."""


def draw_failure(layout: Layout) -> Iterator[Diagram]:
    """Yield the marks of a failed run in its rows."""
    failure = layout.trace.failure
    if failure is None:
        return
    waiting = [(row, wait) for row in layout.rows if (wait := layout.trace.waits.get(row.ranks[0])) is not None]
    end, tall = layout.x(layout.trace.until), layout.row_height
    places = [(x := layout.x(wait.since), row.y, end - x, tall) for row, wait in waiting]
    if places:
        yield boxes(places, style(theme.BAD, None, 0, TINT))
        hatch = [line for place in places if place[3] >= HATCHED for line in hatching(*place)]
        if hatch:
            yield lines(hatch, style(None, theme.BAD, 1 if layout.height >= WRITTEN else 0.5))
    for (row, wait), place in zip(waiting, places, strict=True):
        see_through = box(*place, style(theme.BAD, None, 0, 0.0))
        verb = "wait" if len(row.ranks) > 1 else "waits"
        yield Titled(f"{row.full_name}: {verb} {wait.what}\nsince {failure.at(wait.since)}, and for ever", see_through)
        said = f"{verb} {wait.what}"
        texts = [f"{said}, since {failure.at(wait.since)}", said, said.partition(" in ")[0], verb]
        x, y, width, height = place
        if layout.height >= WRITTEN and (fit := first_fit(texts, [10], width - 24)):
            middle = y + height / 2
            yield Detail(box(x + 14, middle - 7, text_width(*fit) + 10, 14, style(theme.CARD, None, 0, 0.9), 3))
            yield label(x + 19, middle, *fit, style(theme.BAD), "start", passive=True)
    at = layout.x(failure.tick)
    flagged = [row for row in layout.rows if failure.place.rank in row.ranks]
    top, bottom = layout.top - 4, layout.bottom + 3
    for row in flagged:
        top, bottom = row.y - 3, row.y + layout.row_height + 2
        last = all(event.end <= failure.tick for event in row.operations)
        if last and row.ranks[0] not in layout.trace.waits:
            yield from _note(layout, row, at + 14, f"error in {failure.where}" if failure.where else "error", theme.BAD)
    for row in layout.rows:
        if waiting and row.ranks[0] in failure.ended and row not in flagged:
            yield from _note(layout, row, layout.x(layout.trace.time) + 8, "has returned", theme.MUTE)
    yield Titled(f"{failure.says}\n{failure.at(failure.tick)}", flag(at, top, bottom))


def flag(x: float, top: float, bottom: float) -> Diagram:
    """Return a flag whose pole stands at x."""
    corners = [(x - 1, bottom), (x - 1, top), (x + 11, top + 5), (x + 1, top + 10), (x + 1, bottom)]
    return poly(corners, style(theme.BAD, theme.CARD, 1))


def _note(layout: Layout, row: Row, x: float, text: str, color: str) -> Iterator[Diagram]:
    if layout.height >= WRITTEN and x + text_width(text, 10, bold=True) < layout.x1:
        yield label(x, row.y + layout.height / 2, text, 10, style(color), "start", 600)


def draw_sentences(trace: Trace, y: float) -> tuple[list[Diagram], float]:
    """Return sentences on the failure from ``y`` down, and the y where they end."""
    failure = trace.failure
    said = failure.sentences() if failure is not None else []
    parts: list[Diagram] = []
    if not said:
        return parts, y
    y -= LINE / 2
    if len(said) > MOST:
        said[MOST - 1 :] = [("", f"and {len(said) - MOST + 1} more ranks or groups of ranks wait")]
    for mark, sentence in said:
        y += LINE
        if mark == "~":
            tint, hatch = style(theme.BAD, None, 0, TINT), style(None, theme.BAD, 1)
            parts.append(Detail(box(PAD, y - 6, 14, 12, tint), lines(hatching(PAD, y - 6, 14, 12, 5), hatch)))
        elif mark:
            parts.append(Detail(flag(PAD + 2, y - 7, y + 6)))
        parts.append(label(PAD + 22, y, sentence, 11.5, style(theme.INK), "start"))
    return parts, y + LINE
