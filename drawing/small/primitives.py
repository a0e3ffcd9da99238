"""What each rank has before and after a collective or a send, drawn from a small run."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.basics.units import TICKS, show_elements
from lib.learner.model import Model
from lib.learner.tensors import Tensor, Weight, WeightGrad
from lib.record.events import Event
from lib.record.table import SEND, collective, in_stream, stream_of
from lib.running.run import run

from ..ink import theme
from ..ink.figure import Figure, at_any_width
from ..ink.marks import Diagram, label, style
from ..schedule.links import arrows
from ..schedule.operations import operation
from ..schedule.picture import card, check_choice
from .tensors import GAP, PAD, WIDE, Line, line_in_words, row

MOST, FEW = 16, 2
"""Ranks at most: more have no room beside each other. In a narrow place, so many are beside each other."""
LEFT, TOP, SIGN, BETWEEN = 64.0, 60.0, 18.0, 52.0
"""In pixels: room for the names at the left and at the top, the height of the operation, and room for it between before
and after."""
MEANS = {Weight: "bar: layer, block: shards", WeightGrad: "bar: layer, block: shards, strip: micro-batches summed"}
"""What is to be seen in the picture of a tensor."""


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
    sends = stream_of(kind) == "message"
    before, after = dict[int, Tensor | None](), dict[int, Tensor | None]()
    of_activations = None if sends or not activations else collective(kind).of_activations

    async def program(model: Model) -> Model:
        if sends:
            own = None if model.rank else model.get_activation([model.rank])
            result: Awaitable[Any] = model.receive(0) if own is None else model.pass_to(1, own)
        else:
            own = (of_activations or collective(kind).example)(model)
            result = getattr(model, kind)(own, own.layer if own else 0)
        before[model.rank], after[model.rank] = own, await result
        return model

    ranks = 2 if sends else ranks
    done = run(program, ranks=ranks, layers=1, batches=1 if of_activations else ranks, experts=ranks)
    first = next(event for event in done.events if event.kind == kind)
    held = {"before": before, "after": after}
    lines = {word: (word, [(f"rank {rank}", one) for rank, one in sorted(some.items())]) for word, some in held.items()}
    return at_any_width(partial(_drawn, first, lines), ranks, FEW, static)


def _drawn(event: Event, lines: Mapping[str, Line], many: int) -> Figure:
    """Return the picture with so many ranks beside each other."""
    name, ticks, size = theme.name_of(event.kind), TICKS.brief(event.length), show_elements(event.elements)
    [(_, brought), (_, got)] = lines.values()
    notes = [f"{ticks} ticks; each rank takes part with {size} elements", MEANS.get(type(brought[0][1]), "")]
    if event.kind == SEND.kind:
        name, notes = "send and receive", [f"{ticks} ticks on each side, {size} elements"]
    upper, y = row(lines["before"], LEFT, TOP, many)
    lower, end = row(lines["after"], LEFT, y + BETWEEN, many)
    middles = [LEFT + WIDE / 2 + at % many * (WIDE + GAP) for at in range(len(brought))]
    wide, at = many * (WIDE + GAP) - GAP, y + (BETWEEN - GAP - SIGN) / 2
    ways = {(x, y - GAP + 1, x, at - 2) for x, (_, one) in zip(middles, brought, strict=True) if one is not None}
    ways |= {
        (x, at + SIGN + 2, x, y + BETWEEN + 1) for x, (_, one) in zip(middles, got, strict=True) if one is not None
    }
    parts: list[Diagram] = [
        label(PAD, 20, name, 14, style(theme.INK), "start", 650),
        *(label(PAD, 36 + 14 * at, line, 10.5, style(theme.MUTE), "start") for at, line in enumerate(notes) if line),
        *upper,
        operation(event.kind, (LEFT, at, wide, SIGN), theme.layer_color(0, 1)),
        *arrows(sorted(ways), theme.MUTE, 1.2, 6),
        *lower,
    ]
    words = f"{name}, {ticks} ticks. {' '.join(map(line_in_words, lines.values()))}"
    return card(parts, LEFT + wide + PAD, end + 4, words, title=name)
