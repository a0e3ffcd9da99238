"""The operations of the rows as boxes: with all details, or merged where a picture is crowded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from lib.record.events import Event

from ..ink import theme
from ..ink.marks import (
    ArrowHovers,
    Bar,
    Diagram,
    Hovers,
    Mark,
    Rect,
    Titled,
    WithArrow,
    label,
    leaf,
    lines,
    merged,
    style,
    together,
    unseen,
)
from .layout import Layout, Place, Row
from .links import Message, arrow_of, arrow_shape
from .numbering import NumberPlan, NumberPlans, fits, joined, number_of, over_runs
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

NO_NUMBERS = NumberPlan()
MOMENT = 6.0
"""Width of the sign of an operation that takes no time, in pixels."""


class Boxes:
    """The boxes of all rows. The arrows of the messages ``on_hover`` appear while the pointer rests on them.

    In a crowded picture, boxes of one style are merged into one mark, and hover texts are shorter.
    """

    def __init__(self, layout: Layout, plans: NumberPlans, on_hover: Sequence[Message]) -> None:
        self.layout, self.plans, self.on_hover = layout, plans, on_hover
        self.roles = chain_roles(layout)
        self.apart: Set[Place] = {place for message in on_hover for place in (message.sent, message.received)}
        """What is drawn with its arrow, and not with its row."""
        self.joined = [joined(layout, row) for row in layout.rows]

    def draw(self) -> list[Diagram]:
        """Return the boxes, the numbers over them, the hover texts, and the arrows that appear on hover."""
        if self.layout.crowded:
            return self._merged()
        parts: list[Diagram] = []
        for here, row in enumerate(self.layout.rows):
            own = [self._operation(place) for place in self._single(here) if place not in self.apart]
            parts += [*[self._stage(row, run) for run in self._stages(here)], *own, *self._numbers_over(here)]
        return [*parts, *self._messages()]

    def _stages(self, here: int) -> list[tuple[Event, ...]]:
        """Return the runs of a row that are drawn as one box each."""
        return list(dict.fromkeys(self.joined[here].values()))

    def _single(self, here: int) -> list[Place]:
        """Return the operations of a row that are boxes of their own, moments last: they lie on top."""
        shown = [(index, event) for index, event in enumerate(self.layout.rows[here].events) if is_drawn(event)]
        shown.sort(key=lambda pair: not pair[1].length)
        return [Place(here, index) for index, event in shown if id(event) not in self.joined[here]]

    def _numbers_over(self, here: int) -> Iterator[Diagram]:
        """Yield the numbers over several boxes of a row: on faded boxes they have the color of other texts."""
        row = self.layout.rows[here]
        faded = {id(event) for index, event in enumerate(row.events) if self.roles[Place(here, index)].opacity}
        return over_runs(self.layout, row, self.plans, faded)

    def _operation(self, place: Place) -> Diagram:
        role = self.roles[place]
        text = hover(self.layout.event(place), self.layout.rows[place.row], self.layout.trace)
        text += f"\n{role.text}" if role.text else ""
        if role.opacity is None:
            return Titled(text, self._body(place, self._number(place)))
        return together([Titled(text, self._body(place), role.opacity), *self._number_on_faded(place)])

    def _number(self, place: Place) -> str:
        """Return the micro-batches that are written into a box, if there is room."""
        row, event = self.layout.rows[place.row], self.layout.event(place)
        numbers = self.plans.get(event.kind, NO_NUMBERS)
        shown = numbers.size and numbers.each and (row.same_batches or self.layout.trace.by_layer)
        text = number_of(self.layout, event) if shown else ""
        return text if fits(self.layout, text, event.length, numbers.size) else ""

    def _number_on_faded(self, place: Place) -> Iterator[Diagram]:
        """Yield the number of a faded box. The number is not faded, so that it can be read."""
        if text := self._number(place):
            x, y, width, height = self.layout.shape(place)
            size, _, most = self.plans[self.layout.event(place).kind]
            ink = style(theme.INK)
            yield label(x + width / 2, y + height / 2, text, size, ink, weight=600, passive=True, most=most)

    def _body(self, place: Place, text: str = "") -> Diagram:
        trace, event = self.layout.trace, self.layout.event(place)
        plan, row = self.plans.get(event.kind, NO_NUMBERS), self.layout.rows[place.row]
        shape = self.layout.shape(place)
        body = operation(event.kind, shape, color_of(event, trace), text, plan.size, plan.most)
        waits = []
        if row.tracks[place.at] and event.waited:  # while its rank computes
            middle, begun = shape[1] + shape[3] / 2, self.layout.x(event.start - event.waited)
            waits = [lines([(begun, middle, shape[0], middle)], style(None, theme.TALK, 1))]
        return self._with_chunk(row, event, shape, [*waits, body])

    def _with_chunk(self, row: Row, event: Event, place: Rect, parts: list[Diagram]) -> Diagram:
        """Return a box with its feet."""
        if theme.is_pass(event.kind) and event.length:
            edge = lower(event.kind, place[3])
            x, y, width, height = place
            parts = [*parts, *stripes(feet_of(event, row, self.layout.trace), (x, y + edge, width, height - 2 * edge))]
        return parts[0] if len(parts) == 1 else together(parts)

    def _stage(self, row: Row, run: Sequence[Event]) -> Diagram:
        """Return several layers as one box, with a notch between two layers and a hover text for each."""
        ends = [self.layout.x(run[0].start), *[self.layout.x(event.end) for event in run]]
        texts = [
            unseen(hover(event, row, self.layout.trace), (left, row.y, right - left, self.layout.height))
            for event, left, right in zip(run, ends, ends[1:], strict=False)
        ]
        return together([*self._stage_body(row, run), *texts])

    def _stage_body(self, row: Row, run: Sequence[Event]) -> list[Diagram]:
        layout, kind = self.layout, run[0].kind
        area = layout.x(run[0].start), row.y, (run[-1].end - run[0].start) * layout.per_tick, layout.height
        inside, edge = [layout.x(event.end) for event in run[:-1]], lower(kind, layout.height)
        body = operation(kind, area, color_of(run[0], layout.trace))
        cuts = notches(inside, row.y + edge, layout.height - 2 * edge)
        return [self._with_chunk(row, run[0], area, [body, cuts])]

    def _messages(self) -> Iterator[Diagram]:
        """Yield the boxes of messages, each pair with its arrow."""
        drawn: set[Place] = set()
        for message in self.on_hover:
            ends = [place for place in (message.sent, message.received) if place not in drawn]
            ends = [place for place in ends if is_drawn(self.layout.event(place))]
            drawn |= set(ends)
            yield WithArrow(together(map(self._operation, ends)), arrow_shape(arrow_of(self.layout, message)))

    def _merged(self) -> list[Diagram]:
        bright: list[Diagram] = []
        pale: list[Diagram] = []
        texts: list[tuple[Bar, str]] = []
        for here, row in enumerate(self.layout.rows):
            for run in self._stages(here):
                bright += self._stage_body(row, run)
                texts.append(self._hover_text(row, run, row.y))
            for place in self._single(here):
                if self.roles[place].opacity is None:
                    bright.append(self._body(place, self._number(place)))
                else:
                    pale.append(self._body(place))
                    bright += self._number_on_faded(place)
                if place not in self.apart:
                    texts.append(self._hover_text(row, [self.layout.event(place)], self.layout.area(place)[1]))
            bright += self._numbers_over(here)
        faded = [Titled("", together(merged(pale)), FADED)] if pale else []
        arrows = leaf(ArrowHovers([*map(self._arrow_hover, self.on_hover)]))
        return [*faded, *merged(bright), leaf(Hovers(texts, self.layout.height)), arrows]

    def _hover_text(self, row: Row, run: Sequence[Event], y: float) -> tuple[Bar, str]:
        """Return the place and the short hover text of one operation, or of layers in a row."""
        layout = self.layout
        start = layout.x(run[0].start)
        x, y, width, height = _with_width((start, y, layout.x(run[-1].end) - start, layout.height))
        layers = tuple(event.layer for event in run if event.layer is not None)
        whole = run[0]._replace(end=run[-1].end, layers=layers if len(run) > 1 else run[0].layers)
        text = f"{row.full_name}: {operation_in_words(whole, row, brief=True)}\n{when(whole, layout.trace.unit)}"
        return (round(x, 1), round(y + height / 2, 1), round(width, 1)), text

    def _arrow_hover(self, message: Message) -> tuple[list[Rect], str, Mark]:
        """Return the hover text of a message for both its ends, and its arrow, all as short as possible."""
        layout = self.layout
        sender, receiver = layout.rows[message.sent.row], layout.rows[message.received.row]
        whole = layout.event(message.sent)._replace(end=layout.event(message.received).end)
        areas = [_short(_with_width(layout.area(end))) for end in (message.sent, message.received)]
        what = f"{sender.full_name} to {receiver.full_name}{carried(whole, sender, brief=True)}"
        arrow = arrow_shape(_short(arrow_of(layout, message)))
        return areas, f"{what}\n{when(whole, layout.trace.unit)}", arrow


def _with_width(area: Rect) -> Rect:
    """Return where the pointer finds an operation, also one that takes no time."""
    x, y, width, height = area
    return area if width > 0 else (x - MOMENT / 2, y, MOMENT, height)


def _short(rect: Rect) -> Rect:
    """Return the numbers with one decimal: what is invisible need not be more exact."""
    a, b, c, d = (round(at, 1) for at in rect)
    return a, b, c, d
