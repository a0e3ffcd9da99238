"""The operations of the rows as boxes, with hover texts: shorter ones, and shapes merged, where it is crowded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lib.record.events import Event

from ..ink import theme
from ..ink.marks import Diagram, Hovers, Polys, Rect, Titled, hovers, leaf, lines, merged, style, together
from .layout import Layout, Row, Spot
from .links import Message, arrow_head, arrow_of
from .numbering import draw_numbers, joined, plan_numbers
from .operations import (
    carried,
    color_of,
    feet_of,
    hover,
    is_drawn,
    lower,
    notches,
    operation,
    operation_in_words,
    stripes,
    when,
)
from .overlays import FADED, chain_roles

MOMENT = 6.0, 8.0
"""Width and height of the sign of an operation that takes no time, in pixels."""


class Boxes:
    """The boxes of all rows. The arrows of the messages ``on_hover`` appear while the pointer rests on them.

    In a crowded picture, boxes of one style are merged into one mark, and hover texts are shorter.
    """

    def __init__(self, layout: Layout, on_hover: Sequence[Message]) -> None:
        self.layout, self.on_hover, self.roles = layout, on_hover, chain_roles(layout)

    def draw(self) -> list[Diagram]:
        """Return the boxes, the numbers over them, the hover texts, and the arrows that appear on hover."""
        crowded, texts, plans = self.layout.crowded, list[tuple[Rect, str]](), plan_numbers(self.layout)
        bright, pale = list[Diagram](), list[Diagram]()
        told = {id(end.event) for message in self.on_hover for end in message}  # with its arrow
        faded = {event for event, role in self.roles.items() if role.opacity}
        for row in self.layout.rows:
            runs = joined(self.layout, row)
            for run in dict.fromkeys(runs.values()):
                bright += self._stage(row, run)
                texts += [self._text(row, some) for some in ([run] if crowded else [[event] for event in run])]
            single = (spot for spot in row.spots if is_drawn(spot.event) and id(spot.event) not in runs)
            for spot in sorted(single, key=lambda spot: not spot.event.length):  # moments last: they lie on top
                (pale if id(spot.event) in faded else bright).append(self._body(spot))
                texts += [self._end(spot)] * (id(spot.event) not in told)
            bright += draw_numbers(self.layout, row, plans, faded)
        below = [Titled("", together(merged(pale) if crowded else pale), FADED)] if pale else []
        arrows = [leaf(self._message(message)) for message in self.on_hover]
        return [*below, *(merged(bright) if crowded else bright), *hovers(texts), *arrows]

    def _body(self, spot: Spot) -> Diagram:
        row, event, track = spot
        shape = self.layout.shape(spot)
        body = operation(event.kind, shape, color_of(event, self.layout.trace))
        waits = []
        if track and event.waited:  # while its rank computes
            middle, begun = shape[1] + shape[3] / 2, self.layout.x(event.start - event.waited)
            waits = [lines([(begun, middle, shape[0], middle)], style(None, theme.TALK, 1))]
        return together([*waits, body, *self._feet(row, event, shape)])

    def _feet(self, row: Row, event: Event, place: Rect) -> Iterable[Diagram]:
        x, y, width, height = place
        edge, passes = lower(event.kind, height), theme.is_pass(event.kind) and event.length
        feet = feet_of(event, row, self.layout.trace) if passes else 0
        return stripes(feet, (x, y + edge, width, height - 2 * edge))

    def _stage(self, row: Row, run: Sequence[Event]) -> list[Diagram]:
        """Return several layers as one box, with a notch between two layers."""
        layout, kind = self.layout, run[0].kind
        area = self._area(row, run)
        inside, edge = [layout.x(event.end) for event in run[:-1]], lower(kind, layout.height)
        cuts = notches(inside, row.y + edge, layout.height - 2 * edge)
        return [operation(kind, area, color_of(run[0], layout.trace)), cuts, *self._feet(row, run[0], area)]

    def _area(self, row: Row, run: Sequence[Event]) -> Rect:
        start, end = self.layout.x(run[0].start), self.layout.x(run[-1].end)
        return start, row.y, end - start, self.layout.height

    def _text(self, row: Row, run: Sequence[Event]) -> tuple[Rect, str]:
        """Return the place and the hover text of one operation, or a short one, that of layers in a row."""
        if not self.layout.crowded:
            return self._area(row, run), hover(run[0], row, self.layout.trace)
        layers = tuple(event.layer for event in run if event.layer is not None)
        whole = run[0]._replace(end=run[-1].end, layers=layers if len(run) > 1 else run[0].layers)
        text = f"{row.full_name}: {operation_in_words(whole, row, brief=True)}\n{when(whole, self.layout.trace.unit)}"
        return self._area(row, run), text

    def _end(self, spot: Spot) -> tuple[Rect, str]:
        """Return where the pointer finds an operation, also one that takes no time, and its hover text."""
        x, y, width, height = self.layout.area(spot)
        _, text = self._text(spot.row, [spot.event])
        if not self.layout.crowded and (role := self.roles[id(spot.event)].text):
            text += f"\n{role}"
        return ((x, y, width, height) if width > 0 else (x - MOMENT[0] / 2, y - 1.5, *MOMENT)), text

    def _message(self, message: Message) -> Hovers:
        """Return the two ends of a message, with one short text for both in a crowded picture, and its arrow."""
        way, (sent, received) = arrow_of(self.layout, message), message
        arrow = Polys([[way[:2], way[2:]], arrow_head(way)])
        ends = [self._end(end) for end in message if is_drawn(end.event)]
        if not self.layout.crowded:
            return Hovers([([place], text) for place, text in ends], arrow)
        whole = sent.event._replace(end=received.event.end)
        what = f"{sent.row.full_name} to {received.row.full_name}{carried(whole, sent.row, brief=True)}"
        text = f"{what}\n{when(whole, self.layout.trace.unit)}"
        return Hovers([([place for place, _ in ends], text)], arrow)
