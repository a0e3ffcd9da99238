"""The operations of the rows, each a box: with room for all that can be told, or crowded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from lib.record.events import MARKS, Event

from . import theme
from .chain import NO_CHAIN, ChainRole, Stop, chain_roles
from .hover import carried, hover, operation_in_words, when
from .layout import Layout, Rect, Row
from .links import Message, Place, arrow_head, arrow_of
from .marks import (
    ArrowHover,
    Bar,
    Diagram,
    Titled,
    WithArrow,
    arrow_hovers,
    hovers,
    label,
    merged,
    style,
    together,
    unseen,
)
from .numbering import NumberPlan, NumberPlans, fits, joined, over_runs
from .operations import color_of, lower, notches, operation
from .texts import ranges

NO_NUMBERS = NumberPlan()
MOMENT = 6.0
"""Width of the sign of an operation that takes no time, in pixels."""


class Boxes:
    """The operations of all rows, each a box. ``asked``: messages whose arrows are seen when the pointer asks for them.
    Where the picture is crowded, boxes of one style are one mark, and less is told of each."""

    def __init__(self, layout: Layout, plans: NumberPlans, asked: Sequence[Message]) -> None:
        self.layout, self.plans, self.asked = layout, plans, asked
        self.chain_roles: Mapping[Stop, ChainRole] = chain_roles(layout)
        self.apart: Set[Place] = {place for message in asked for place in (message.sent, message.received)}
        """What is drawn with its arrow, and not with its row."""
        self.joined = [joined(layout, row) for row in layout.rows]

    def draw(self) -> list[Diagram]:
        """Return the boxes, the numbers over them, the hover texts and the arrows that are not seen yet."""
        here = range(len(self.layout.rows))
        return self._together(here) if self.layout.crowded else [*map(self._row, here), *self._messages()]

    def _shown(self, here: int) -> list[tuple[int, Event]]:
        """Return the operations of a row with their places, moments last: they lie on top."""
        events = enumerate(self.layout.rows[here].events)
        shown = [(index, event) for index, event in events if event.kind not in MARKS]
        return sorted(shown, key=lambda pair: not pair[1].length)

    def _pale(self, here: int) -> set[int]:
        """Return the ids of the events of a row that are not on the longest chain, if one is shown."""
        events = enumerate(self.layout.rows[here].events)
        return {id(event) for at, event in events if self.chain_roles.get(Stop(here, at), NO_CHAIN).opacity}

    def _row(self, here: int) -> Diagram:
        row, runs = self.layout.rows[here], self.joined[here]
        own = [
            self._operation((here, index))
            for index, event in self._shown(here)
            if id(event) not in runs and (here, index) not in self.apart
        ]
        stages = [self._stage(row, run) for run in dict.fromkeys(runs.values())]
        return together([*stages, *own, *over_runs(self.layout, row, self.plans, self._pale(here))])

    def _operation(self, place: Place) -> Diagram:
        row, role = self.layout.rows[place[0]], self.chain_roles.get(Stop(*place), NO_CHAIN)
        said = hover(row.events[place[1]], row, self.layout.trace)
        said += f"\n{role.said}" if role.said else ""
        if role.opacity is None:
            return Titled(said, self._body(place, self._number(place)))
        pale = Titled(said, self._body(place), role.opacity)
        return together([pale, *self._on_pale(place)])

    def _number(self, place: Place) -> str:
        """Return the micro-batches that are written into a box, if there is room."""
        row, event = self.layout.rows[place[0]], self.layout.rows[place[0]].events[place[1]]
        numbers = self.plans.get(event.kind, NO_NUMBERS)
        text = ranges(event.batches) if numbers.size and numbers.each and row.same_batches else ""
        return text if fits(self.layout, text, event.length, numbers.size) else ""

    def _on_pale(self, place: Place) -> list[Diagram]:
        """Return the number of a faded box, which itself is not faded: it can still be read."""
        text, row = self._number(place), self.layout.rows[place[0]]
        if not text:
            return []
        x, y, width, height = self.layout.shape(row, place[1])
        size = self.plans[row.events[place[1]].kind].size
        return [label(x + width / 2, y + height / 2, text, size, style(theme.INK), weight=600, passive=True)]

    def _body(self, place: Place, text: str = "") -> Diagram:
        layout, row, index = self.layout, self.layout.rows[place[0]], place[1]
        event = row.events[index]
        shape, color, full = layout.shape(row, index), color_of(event, layout.trace), layout.trace.by_operation
        return operation(event.kind, shape, color, text, self.plans.get(event.kind, NO_NUMBERS).size, full)

    def _stage(self, row: Row, run: Sequence[Event]) -> Diagram:
        """Return several layers as one box, with a notch where one ends and the next begins, each with its hover
        text."""
        ends = [self.layout.x(run[0].start), *[self.layout.x(event.end) for event in run]]
        told = [
            unseen(hover(event, row, self.layout.trace), (left, row.y, right - left, self.layout.height))
            for event, left, right in zip(run, ends, ends[1:], strict=False)
        ]
        return together([*self._run_body(row, run), *told])

    def _run_body(self, row: Row, run: Sequence[Event]) -> list[Diagram]:
        layout = self.layout
        place = layout.x(run[0].start), row.y, (run[-1].end - run[0].start) * layout.per_tick, layout.height
        inside = [layout.x(event.end) for event in run[:-1]]
        kind, edge = run[0].kind, lower(run[0].kind, layout.height)
        return [
            operation(kind, place, color_of(run[0], layout.trace), full=True),
            notches(inside, row.y + edge, layout.height - 2 * edge),
        ]

    def _messages(self) -> Iterator[Diagram]:
        """Yield the boxes of messages, each pair with its arrow."""
        drawn: set[Place] = set()
        for message in self.asked:
            ends = [place for place in (message.sent, message.received) if place not in drawn]
            drawn |= set(ends)
            yield self._with_arrow(together(map(self._operation, ends)), message)

    def _with_arrow(self, ends: Diagram, message: Message) -> Diagram:
        arrow = arrow_of(self.layout, message)
        return WithArrow(ends, [[arrow[:2], arrow[2:]], arrow_head(arrow)])

    # -- many of them ------------------------------------------------------------------------

    def _together(self, rows: Sequence[int]) -> list[Diagram]:
        bright: list[Diagram] = []
        pale: list[Diagram] = []
        told: list[tuple[Bar, str]] = []
        for here in rows:
            row, runs = self.layout.rows[here], self.joined[here]
            for run in dict.fromkeys(runs.values()):
                bright += self._run_body(row, run)
                told.append(self._hover_text(row, run))
            for index, event in self._shown(here):
                if id(event) not in runs:
                    role = self.chain_roles.get(Stop(here, index), NO_CHAIN)
                    if role.opacity is None:
                        bright.append(self._body((here, index), self._number((here, index))))
                    else:
                        pale.append(self._body((here, index)))
                        bright += self._on_pale((here, index))
                    if (here, index) not in self.apart:
                        told.append(self._hover_text(row, [event], self.layout.place(row, index)[1]))
            bright += over_runs(self.layout, row, self.plans, self._pale(here))
        faded = [Titled("", together(merged(pale)), next(iter(self._opacities())))] if pale else []
        return [
            *faded,
            *merged(bright),
            hovers(told, self.layout.height),
            arrow_hovers([*map(self._arrow_hover, self.asked)]),
        ]

    def _opacities(self) -> Set[float]:
        return {role.opacity for role in self.chain_roles.values() if role.opacity is not None}

    def _hover_text(self, row: Row, run: Sequence[Event], y: float | None = None) -> tuple[Bar, str]:
        """Return the place of some layers that follow each other, and what they do, and when."""
        layout = self.layout
        x, end = layout.x(run[0].start), layout.x(run[-1].end)
        x, end = (x, end) if end > x else (x - MOMENT / 2, x + MOMENT / 2)
        layers = tuple(event.layer for event in run if event.layer is not None)
        whole = run[0]._replace(end=run[-1].end, layers=layers if len(run) > 1 else run[0].layers)
        said = f"{row.full_name}: {operation_in_words(whole, row, brief=True)}\n{when(whole, layout.trace.unit)}"
        y = (row.y if y is None else y) + layout.height / 2
        return (round(x, 1), round(y, 1), round(end - x, 1)), said

    def _arrow_hover(self, message: Message) -> ArrowHover:
        """Return what is told of a message and both its ends, and its arrow, all as short as may be."""
        layout = self.layout
        (here, sent), (there, received) = message.sent, message.received
        sender, receiver = layout.rows[here], layout.rows[there]
        whole = sender.events[sent]._replace(end=receiver.events[received].end)
        places = [_short(_found(layout.place(*end))) for end in ((sender, sent), (receiver, received))]
        arrow = _short(arrow_of(layout, message))
        what = f"{sender.full_name} to {receiver.full_name}{carried(whole, sender, brief=True)}"
        shaft = [arrow[:2], arrow[2:]]
        return ArrowHover(places, f"{what}\n{when(whole, layout.trace.unit)}", [shaft, arrow_head(arrow)])


def _found(place: Rect) -> Rect:
    """Return where the pointer finds an operation: that of a moment has a width."""
    x, y, width, height = place
    return (x, y, width, height) if width else (x - MOMENT / 2, y, MOMENT, height)


def _short(rect: Rect) -> Rect:
    """Return numbers with one decimal: what is not seen need not be more exact."""
    a, b, c, d = (round(at, 1) for at in rect)
    return a, b, c, d
