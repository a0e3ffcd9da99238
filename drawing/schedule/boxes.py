"""The operations of the rows as boxes, with hover texts: shorter ones, and shapes merged, where it is crowded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from lib.record.events import Event

from ..ink import theme
from ..ink.marks import ArrowHovers, Diagram, Polys, Rect, Titled, hovers, leaf, lines, merged, style, together
from .layout import Layout, Place, Row
from .links import Message, arrow_of, arrow_shape
from .numbering import NumberPlans, draw_numbers, joined
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

    def __init__(self, layout: Layout, plans: NumberPlans, on_hover: Sequence[Message]) -> None:
        self.layout, self.plans, self.on_hover = layout, plans, on_hover
        self.roles = chain_roles(layout)
        self.apart: Set[Place] = {place for message in on_hover for place in (message.sent, message.received)}
        """What has its hover text with its arrow."""
        self.joined = [joined(layout, row) for row in layout.rows]

    def draw(self) -> list[Diagram]:
        """Return the boxes, the numbers over them, the hover texts, and the arrows that appear on hover."""
        crowded, texts = self.layout.crowded, list[tuple[Rect, str]]()
        bright, pale = list[Diagram](), list[Diagram]()
        for here, row in enumerate(self.layout.rows):
            for run in dict.fromkeys(self.joined[here].values()):
                bright += self._stage(row, run)
                texts += [self._text(row, some) for some in ([run] if crowded else [[event] for event in run])]
            for place in self._single(here):
                (bright if self.roles[place].opacity is None else pale).append(self._body(place))
                texts += [self._end(place)] * (place not in self.apart)
            bright += self._numbers(here)
        faded = [Titled("", together(merged(pale) if crowded else pale), FADED)] if pale else []
        arrows = [leaf(ArrowHovers([*map(self._message, self.on_hover)]))] if self.on_hover else []
        return [*faded, *(merged(bright) if crowded else bright), *hovers(texts), *arrows]

    def _single(self, here: int) -> list[Place]:
        """Return the operations of a row that are boxes of their own, moments last: they lie on top."""
        shown = [(index, event) for index, event in enumerate(self.layout.rows[here].events) if is_drawn(event)]
        shown.sort(key=lambda pair: not pair[1].length)
        return [Place(here, index) for index, event in shown if id(event) not in self.joined[here]]

    def _numbers(self, here: int) -> Iterator[Diagram]:
        """Yield the numbers of a row, which are not faded, so that they can be read."""
        row = self.layout.rows[here]
        faded = {id(event) for index, event in enumerate(row.events) if self.roles[Place(here, index)].opacity}
        return draw_numbers(self.layout, row, self.plans, faded)

    def _body(self, place: Place) -> Diagram:
        trace, event, row = self.layout.trace, self.layout.event(place), self.layout.rows[place.row]
        shape = self.layout.shape(place)
        body = operation(event.kind, shape, color_of(event, trace))
        waits = []
        if row.tracks[place.at] and event.waited:  # while its rank computes
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

    def _end(self, place: Place) -> tuple[Rect, str]:
        """Return where the pointer finds an operation, also one that takes no time, and its hover text."""
        x, y, width, height = self.layout.area(place)
        _, text = self._text(self.layout.rows[place.row], [self.layout.event(place)])
        if not self.layout.crowded and self.roles[place].text:
            text += f"\n{self.roles[place].text}"
        return ((x, y, width, height) if width > 0 else (x - MOMENT[0] / 2, y - 1.5, *MOMENT)), text

    def _message(self, message: Message) -> tuple[list[tuple[list[Rect], str]], Polys]:
        """Return the two ends of a message, with one short text for both in a crowded picture, and its arrow."""
        layout, arrow = self.layout, arrow_shape(_short(arrow_of(self.layout, message)))
        ends = [self._end(end) for end in (message.sent, message.received) if is_drawn(layout.event(end))]
        if not layout.crowded:
            return [([_short(place)], text) for place, text in ends], arrow
        sender, receiver = layout.rows[message.sent.row], layout.rows[message.received.row]
        whole = layout.event(message.sent)._replace(end=layout.event(message.received).end)
        what = f"{sender.full_name} to {receiver.full_name}{carried(whole, sender, brief=True)}"
        return [([_short(place) for place, _ in ends], f"{what}\n{when(whole, layout.trace.unit)}")], arrow


def _short(rect: Rect) -> Rect:
    """Return the numbers with one decimal: what is invisible need not be more exact."""
    a, b, c, d = (round(at, 1) for at in rect)
    return a, b, c, d
