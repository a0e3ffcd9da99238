"""What each rank has before and after a collective or a send, drawn from a small run."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any, NamedTuple

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.basics.units import show_elements, show_ticks
from lib.learner.model import Model
from lib.learner.tensors import Tensor
from lib.record.events import Event
from lib.record.table import RECEIVE, SEND, collective, in_stream, stream_of
from lib.running.run import run

from . import theme
from .figure import Figure
from .layout import PAD
from .links import arrows
from .marks import Diagram, box, label, lines, style
from .operations import operation
from .picture import card, check_choice
from .tensors import TALL, WIDE, icon, in_words

MOST = 16
"""Ranks at most: more have no room beside each other."""
STEP, SIGN = WIDE + 10.0, (34.0, 24.0)
"""In pixels: distance of two columns, and (width, height) of the sign of an operation."""
LEFT, BETWEEN = 52.0, 64.0
"""In pixels: room for the words at the left, and for the operation between before and after."""


class Exchange(NamedTuple):
    """What a run of one primitive left behind, by rank, and None for a rank that has nothing."""

    kind: str
    before: dict[int, Tensor | None]
    after: dict[int, Tensor | None]
    events: dict[int, Event]


def primitives() -> tuple[str, ...]:
    """Return the names of what ``draw_primitive`` draws."""
    return (*in_stream("collective"), SEND.kind)


def draw_primitive(kind: str, ranks: int = 4, static: bool = False, *, activations: bool = False) -> Figure:
    """A picture of a collective, such as ``allgather``, or of ``pass_to``: what each rank brings, and what it gets.

    It is drawn from a run with this number of ranks (always two for ``pass_to``). ``activations=True``: of partial
    sums or slices of activations, where there are any. Raises PuzzleError for any other name.
    """
    check_choice("primitive", kind, primitives(), "draw_primitive")
    if type(ranks) is not int or not 2 <= ranks <= MOST:
        expected = f"2 to {MOST} ranks"
        raise PuzzleError("no such machine", where="draw_primitive", expected=expected, got=describe(ranks))
    activations = activations and kind != SEND.kind and collective(kind).of_activations is not None
    exchange = _exchange(kind, 2 if stream_of(kind) == "message" else ranks, activations)
    width = PAD + LEFT + STEP * len(exchange.before) + PAD - 10
    upper, lower = 68.0, 68.0 + TALL + BETWEEN
    parts = [
        *_head(exchange),
        *_holdings("before", exchange.before, upper),
        *_operations(exchange, upper + TALL),
        *_holdings("after", exchange.after, lower),
    ]
    return card(parts, width, lower + TALL + PAD, _in_words(exchange), static, theme.name_of(kind))


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


def _x(rank: int) -> float:
    return PAD + LEFT + STEP * rank


def _head(exchange: Exchange) -> list[Diagram]:
    name, ticks = theme.name_of(exchange.kind), show_ticks(exchange.events[0].length)
    size = show_elements(exchange.events[0].elements)
    ink, mute = style(theme.INK), style(theme.MUTE)
    said = f"{ticks} ticks, each with {size} elements"
    if exchange.kind == SEND.kind:
        name, said = "send and receive", f"{ticks} ticks on each side, {size} elements"
    return [
        label(PAD, 20, name, 14, ink, "start", 650),
        label(PAD, 36, said, 10.5, mute, "start"),
        *[label(_x(rank) + WIDE / 2, 58, f"rank {rank}", 11, ink, weight=600) for rank in exchange.before],
    ]


def _holdings(word: str, held: dict[int, Tensor | None], y: float) -> Iterator[Diagram]:
    yield label(PAD, y + TALL / 2, word, 11, style(theme.MUTE), "start")
    for rank, tensor in held.items():
        yield box(_x(rank), y, WIDE, TALL, style(theme.CARD, theme.GRID, 1), 4)
        if tensor is None:
            yield label(_x(rank) + WIDE / 2, y + TALL / 2, "nothing", 10, style(theme.MUTE))
        else:
            yield icon(tensor, _x(rank), y)


def _operations(exchange: Exchange, y: float) -> list[Diagram]:
    """Return a sign for each rank's operation, joined to what went in, what came out, and to one another."""
    middle, (wide, tall) = y + BETWEEN / 2, SIGN
    centers = [_x(rank) + WIDE / 2 for rank in exchange.before]
    color = theme.kind_color(exchange.kind)
    across = (centers[0], middle, centers[-1] - (wide / 2 if exchange.kind == SEND.kind else 0), middle)
    joined = (
        arrows([across], color, 1.6, 7) if exchange.kind == SEND.kind else [lines([across], style(None, color, 1.6))]
    )
    downs = []
    for rank, x in enumerate(centers):
        if exchange.before[rank] is not None:
            downs.append((x, y + 3, x, middle - tall / 2 - 2))
        if exchange.after[rank] is not None:
            downs.append((x, middle + tall / 2 + 2, x, y + BETWEEN - 3))
    signs = [
        operation(exchange.events[rank].kind, (x - wide / 2, middle - tall / 2, wide, tall), theme.layer_color(0, 1))
        for rank, x in enumerate(centers)
    ]
    return [*joined, *arrows(downs, theme.MUTE, 1.2, 6), *signs]


def _in_words(exchange: Exchange) -> str:
    def said(held: dict[int, Tensor | None]) -> str:
        return "; ".join(f"rank {rank} {'nothing' if t is None else in_words(t)}" for rank, t in held.items())

    name, ticks = theme.name_of(exchange.kind), show_ticks(exchange.events[0].length)
    return f"{name}, {ticks} ticks. Before: {said(exchange.before)}. After: {said(exchange.after)}."
