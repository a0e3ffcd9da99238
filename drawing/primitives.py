"""What each rank has before and after a collective or a send, drawn from a small run."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any, NamedTuple

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.basics.units import show_elements, show_ticks
from lib.learner.model import Model
from lib.learner.tensors import Tensor, Weight, WeightGrad
from lib.record.events import Event
from lib.record.table import RECEIVE, SEND, collective, in_stream, stream_of
from lib.running.run import run

from . import theme
from .figure import PHONE, Figure, Narrow
from .layout import PAD
from .links import arrows
from .marks import Diagram, Point, box, label, lines, style
from .operations import operation
from .picture import card, check_choice
from .tensors import TALL, WIDE, icon, in_words

MOST = 16
"""Ranks at most: more have no room beside each other."""
SIGN = 34.0, 24.0
"""Width and height of the sign of an operation, in pixels."""
LEFT, TOP, BETWEEN = 52.0, 80.0, 64.0
"""In pixels: room for the names at the left and at the top, and for the operation between before and after."""


class Exchange(NamedTuple):
    """What a run of one primitive left behind, by rank, and None for a rank that has nothing."""

    kind: str
    before: dict[int, Tensor | None]
    after: dict[int, Tensor | None]
    events: dict[int, Event]


class Way(NamedTuple):
    """How far apart the tensors of two ranks are, and what a rank has before and after."""

    ranks: Point
    stages: Point

    def at(self, rank: int, stage: int) -> Point:
        """Return the corner of the tensor of a rank before (0) or after (1)."""
        x, y = (self.ranks[side] * rank + self.stages[side] * stage for side in (0, 1))
        return PAD + LEFT + x, TOP + y

    def between(self, rank: int) -> Point:
        """Return the middle of the operation of a rank."""
        (x, y), (right, bottom) = self.at(rank, 0), self.at(rank, 1)
        return (x + right + WIDE) / 2, (y + bottom + TALL) / 2


BESIDE = Way((WIDE + 10, 0), (0, TALL + BETWEEN))
BELOW = Way((0, TALL + 10), (WIDE + BETWEEN, 0))
"""The ranks beside each other, or in a narrow place one below the other."""


def primitives() -> tuple[str, ...]:
    """Return the names of what ``draw_primitive`` draws."""
    return (*in_stream("collective"), SEND.kind)


def draw_primitive(kind: str, ranks: int = 4, static: bool = False, *, activations: bool = False) -> Figure:
    """A picture of a collective, such as ``allgather``, or of ``pass_to``: what each rank brings, and what it gets.

    It is drawn from a run with this number of ranks (always two for ``pass_to``). ``activations=True``: of partial
    sums or slices of activations, where there are any, and of keys and values whose slices become heads. Raises
    PuzzleError for any other name.
    """
    check_choice("primitive", kind, primitives(), "draw_primitive")
    if type(ranks) is not int or not 2 <= ranks <= MOST:
        expected = f"2 to {MOST} ranks"
        raise PuzzleError("no such machine", where="draw_primitive", expected=expected, got=describe(ranks))
    activations = activations and kind != SEND.kind and collective(kind).of_activations is not None
    exchange = _exchange(kind, 2 if stream_of(kind) == "message" else ranks, activations)
    figure = _drawn(exchange, BESIDE, static)
    if figure.size[0] > PHONE:
        figure.narrow = Narrow(above=_drawn(exchange, BELOW, static))
    return figure


def _drawn(exchange: Exchange, way: Way, static: bool) -> Figure:
    """Return the picture with the ranks beside each other, or one below the other."""
    parts: list[Diagram] = [*_head(exchange)]
    for rank in exchange.before:
        parts.append(_name(f"rank {rank}", way.at(rank, 0), way is BESIDE, theme.INK, 600))
    for stage, (word, held) in enumerate((("before", exchange.before), ("after", exchange.after))):
        parts.append(_name(word, way.at(0, stage), way is BELOW, theme.MUTE, 400))
        for rank, tensor in held.items():
            parts += _holding(tensor, *way.at(rank, stage))
    parts += _operations(exchange, way)
    x, y = way.at(len(exchange.before) - 1, 1)
    words = _in_words(exchange)
    return card(parts, x + WIDE + PAD, y + TALL + PAD, words, static, theme.name_of(exchange.kind))


def _exchange(kind: str, ranks: int, activations: bool) -> Exchange:
    """Run the collective. Return the tensors that the machine has made, and the events of its log."""
    before: dict[int, Tensor | None] = {}
    after: dict[int, Tensor | None] = {}

    async def program(model: Model) -> Model:
        before[model.rank], result = _brought(kind, model, activations)
        after[model.rank] = await result
        return model

    done = run(program, ranks=ranks, layers=1, batches=1 if activations else ranks, experts=ranks)
    wanted = (SEND.kind, RECEIVE.kind) if kind == SEND.kind else (kind,)
    events = {event.rank: event for event in done.events if event.kind in wanted}
    return Exchange(kind, dict(sorted(before.items())), dict(sorted(after.items())), events)


def _brought(kind: str, model: Model, activations: bool) -> tuple[Tensor | None, Awaitable[Any]]:
    """Return what a rank has before, and the operation that turns it into what it has after."""
    if kind != SEND.kind:
        row = collective(kind)
        brought = (row.of_activations if activations and row.of_activations else row.example)(model)
        return brought, getattr(model, kind)(brought, brought.layer if brought else 0)
    if model.rank:
        return None, model.receive(0)
    own = model.get_activation([model.rank])
    return own, model.pass_to(1, own)


def _head(exchange: Exchange) -> list[Diagram]:
    name, ticks = theme.name_of(exchange.kind), show_ticks(exchange.events[0].length)
    size, mute = show_elements(exchange.events[0].elements), style(theme.MUTE)
    key = {Weight: "bar: layer, block: shards", WeightGrad: "bar: layer, block: shards, strip: micro-batches"}
    said = [f"{ticks} ticks, each with {size} elements", key.get(type(exchange.before[0]), "")]
    if exchange.kind == SEND.kind:
        name, said = "send and receive", [f"{ticks} ticks on each side, {size} elements"]
    return [
        label(PAD, 20, name, 14, style(theme.INK), "start", 650),
        *(label(PAD, 36 + 14 * n, line, 10.5, mute, "start") for n, line in enumerate(said) if line),
    ]


def _name(text: str, place: Point, above: bool, color: str, weight: int) -> Diagram:
    """Return the name of a column above its first tensor, or of a row at its left."""
    x, y = place
    if above:
        return label(x + WIDE / 2, y - 10, text, 11, style(color), weight=weight)
    return label(PAD, y + TALL / 2, text, 11, style(color), "start", weight)


def _holding(tensor: Tensor | None, x: float, y: float) -> Iterator[Diagram]:
    yield box(x, y, WIDE, TALL, style(theme.CARD, theme.GRID, 1), 4)
    if tensor is None:
        yield label(x + WIDE / 2, y + TALL / 2, "nothing", 10, style(theme.MUTE))
    else:
        yield icon(tensor, x, y)


def _operations(exchange: Exchange, way: Way) -> list[Diagram]:
    """Return a sign for each rank's operation, joined to what went in, what came out, and to one another."""
    wide, tall = SIGN
    down = way is BESIDE  # then time goes down, otherwise to the right
    middles = {rank: way.between(rank) for rank in exchange.before}
    color = theme.kind_color(exchange.kind)
    (x, y), (last_x, last_y) = middles[0], middles[len(middles) - 1]
    if exchange.kind == SEND.kind:
        across = (x, y, last_x - wide / 2 * down, last_y - tall / 2 * (not down))
        joined = arrows([across], color, 1.6, 7)
    else:
        joined = [lines([(x, y, last_x, last_y)], style(None, color, 1.6))]
    ways = []
    for rank, (x, y) in middles.items():
        half, reach = (tall / 2, BETWEEN / 2) if down else (wide / 2, BETWEEN / 2)
        for here, first, last in ((exchange.before, -reach + 3, -half - 2), (exchange.after, half + 2, reach - 3)):
            if here[rank] is not None:
                ways.append((x, y + first, x, y + last) if down else (x + first, y, x + last, y))
    signs = [
        operation(exchange.events[rank].kind, (x - wide / 2, y - tall / 2, wide, tall), theme.layer_color(0, 1))
        for rank, (x, y) in middles.items()
    ]
    return [*joined, *arrows(ways, theme.MUTE, 1.2, 6), *signs]


def _in_words(exchange: Exchange) -> str:
    def said(held: dict[int, Tensor | None]) -> str:
        return "; ".join(f"rank {rank} {'nothing' if t is None else in_words(t)}" for rank, t in held.items())

    name, ticks = theme.name_of(exchange.kind), show_ticks(exchange.events[0].length)
    return f"{name}, {ticks} ticks. Before: {said(exchange.before)}. After: {said(exchange.after)}."
