"""What each rank has before and after a collective or a send, drawn from a small run."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any, NamedTuple

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.basics.units import TICKS, show_elements
from lib.learner.model import Model
from lib.learner.tensors import Tensor, Weight, WeightGrad
from lib.record.events import Event
from lib.record.table import RECEIVE, SEND, collective, in_stream, stream_of
from lib.running.run import run

from ..ink import theme
from ..ink.figure import Figure, at_any_width
from ..ink.marks import Diagram, hcat, label, lines, style, tile, vcat
from ..schedule.layout import PAD
from ..schedule.links import arrows
from ..schedule.operations import operation
from ..schedule.picture import card, check_choice
from .tensors import TALL, WIDE, framed, icon, in_words

MOST, FEW = 16, 2
"""Ranks at most: more have no room beside each other. In a narrow place, so many are beside each other."""
SIGN = 34.0, 24.0
"""Width and height of the sign of an operation, in pixels."""
LEFT, HEAD, TOP, BETWEEN, APART = 52.0, 20.0, 60.0, 64.0, 10.0
"""In pixels: room for the names at the left and at the top, for the head above all, for the operation between before
and after, and between two ranks."""


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
    sums or slices of activations, where there are any, and of keys and values whose slices become heads. Raises
    PuzzleError for any other name.
    """
    check_choice("primitive", kind, primitives(), "draw_primitive")
    if type(ranks) is not int or not 2 <= ranks <= MOST:
        expected = f"2 to {MOST} ranks"
        raise PuzzleError("no such machine", where="draw_primitive", expected=expected, got=describe(ranks))
    activations = activations and kind != SEND.kind and collective(kind).of_activations is not None
    exchange = _exchange(kind, 2 if stream_of(kind) == "message" else ranks, activations)
    return at_any_width(partial(_drawn, exchange), len(exchange.before), FEW, static)


def _drawn(exchange: Exchange, many: int) -> Figure:
    """Return the picture with so many ranks beside each other."""
    rooms, words = (HEAD, TALL, BETWEEN, TALL + APART), ("", "before", "", "after")
    texts = [label(0, TALL / 2, word, 11, style(theme.MUTE), "start") for word in words]
    names = vcat([tile(LEFT, room, [one]) for room, one in zip(rooms, texts, strict=True)])
    columns = []
    for rank in exchange.before:
        name = label(WIDE / 2, HEAD / 2, f"rank {rank}", 11, style(theme.INK), weight=600)
        before, after = _holding(exchange.before[rank]), _holding(exchange.after[rank])
        cells: list[Iterable[Diagram]] = [[name], before, _operation(exchange, rank), after]
        columns.append(vcat([tile(WIDE + APART, room, cell) for room, cell in zip(rooms, cells, strict=True)]))
    rows = [hcat([names, *columns[at : at + many]]) for at in range(0, len(columns), many)]
    wide, tall = 2 * PAD + LEFT + many * (WIDE + APART) - APART, TOP + len(rows) * sum(rooms) + PAD - APART
    parts = [*_head(exchange), vcat(rows).translate(PAD, TOP)]
    return card(parts, wide, tall, _in_words(exchange), title=theme.name_of(exchange.kind))


def _exchange(kind: str, ranks: int, activations: bool) -> Exchange:
    """Run the collective. Return the tensors that the machine has made, and the events of its log."""
    before, after = dict[int, Tensor | None](), dict[int, Tensor | None]()

    async def program(model: Model) -> Model:
        if kind == SEND.kind:
            own = None if model.rank else model.get_activation([model.rank])
            result: Awaitable[Any] = model.receive(0) if own is None else model.pass_to(1, own)
        else:
            row = collective(kind)
            own = (row.of_activations if activations and row.of_activations else row.example)(model)
            result = getattr(model, kind)(own, own.layer if own else 0)
        before[model.rank], after[model.rank] = own, await result
        return model

    done = run(program, ranks=ranks, layers=1, batches=1 if activations else ranks, experts=ranks)
    wanted = (SEND.kind, RECEIVE.kind) if kind == SEND.kind else (kind,)
    events = {event.rank: event for event in done.events if event.kind in wanted}
    return Exchange(kind, dict(sorted(before.items())), dict(sorted(after.items())), events)


def _head(exchange: Exchange) -> list[Diagram]:
    name, ticks = theme.name_of(exchange.kind), TICKS.brief(exchange.events[0].length)
    size, mute = show_elements(exchange.events[0].elements), style(theme.MUTE)
    key = {Weight: "bar: layer, block: shards", WeightGrad: "bar: layer, block: shards, strip: micro-batches summed"}
    texts = [f"{ticks} ticks; each rank takes part with {size} elements", key.get(type(exchange.before[0]), "")]
    if exchange.kind == SEND.kind:
        name, texts = "send and receive", [f"{ticks} ticks on each side, {size} elements"]
    return [
        label(PAD, 20, name, 14, style(theme.INK), "start", 650),
        *(label(PAD, 36 + 14 * n, line, 10.5, mute, "start") for n, line in enumerate(texts) if line),
    ]


def _holding(tensor: Tensor | None) -> list[Diagram]:
    nothing = label(WIDE / 2, TALL / 2, "nothing", 10, style(theme.MUTE))
    return framed([nothing if tensor is None else icon(tensor)])


def _operation(exchange: Exchange, rank: int) -> list[Diagram]:
    """Return the sign of a rank's operation, joined to what goes in, what comes out, and to the ranks beside it."""
    (wide, tall), color, x, y = SIGN, theme.kind_color(exchange.kind), WIDE / 2, BETWEEN / 2
    sends, last = exchange.kind == SEND.kind, len(exchange.before) - 1
    ends = (0.0 if rank else x), (WIDE + APART if rank < last else x - wide / 2 * sends)
    across = (ends[0], y, ends[1], y)
    joined = arrows([across], color, 1.6, 7) if sends and rank else [lines([across], style(None, color, 1.6))]
    ways = [(x, 3.0, x, y - tall / 2 - 2)] * (exchange.before[rank] is not None)
    ways += [(x, y + tall / 2 + 2, x, BETWEEN - 3)] * (exchange.after[rank] is not None)
    sign = operation(exchange.events[rank].kind, (x - wide / 2, y - tall / 2, wide, tall), theme.layer_color(0, 1))
    return [*joined, *arrows(ways, theme.MUTE, 1.2, 6), sign]


def _in_words(exchange: Exchange) -> str:
    def text(held: dict[int, Tensor | None]) -> str:
        return "; ".join(f"rank {rank} {'nothing' if t is None else in_words(t)}" for rank, t in held.items())

    name, ticks = theme.name_of(exchange.kind), TICKS.brief(exchange.events[0].length)
    return f"{name}, {ticks} ticks. Before: {text(exchange.before)}. After: {text(exchange.after)}."
