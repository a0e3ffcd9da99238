"""Small pictures of tensors: which layer of how many, which shards, which micro-batches of how many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lib.basics.units import Elements, show_elements
from lib.learner.tensors import Tensor
from lib.record.kinds import KINDS

from . import theme
from .figure import Figure
from .header import fit
from .layout import Rect
from .marks import Diagram, Titled, box, boxes, label, style, together
from .words import plural, ranges

WIDE, TALL = 120.0, 92.0
"""Size of a picture in pixels."""
CELLS = 32
"""Shards or micro-batches drawn one by one at most. More are drawn as so many groups."""


class View(NamedTuple):
    """What a picture shows of a tensor, with None for what its kind does not have."""

    name: str
    color: str
    """The color of its kind of memory."""
    layer: int
    layers: int
    shards: frozenset[int] | None
    total: int
    batches: frozenset[int] | None
    total_batches: int
    step: int | None
    memory: Elements


def view_of(tensor: Tensor) -> View:
    """Return what a picture shows of a tensor."""
    row = KINDS[type(tensor).__name__]
    return View(
        row.word,
        theme.MEMORY[row.memory][1],
        tensor.layer,
        tensor.layers,
        getattr(tensor, "shards", None) if row.size == "weight" else None,
        getattr(tensor, "total", 1),
        getattr(tensor, "batches", None),
        getattr(tensor, "total_batches", 0),
        getattr(tensor, "step", None),
        tensor.memory(),
    )


def draw_tensor(tensor: Tensor) -> Figure:
    """Return one tensor as a picture."""
    frame = box(0.5, 0.5, WIDE - 1, TALL - 1, style(theme.CARD, theme.GRID, 1), 6)
    return Figure([frame, icon(tensor, 0, 0)], WIDE, TALL, in_words(tensor))


def in_words(tensor: Tensor) -> str:
    """Return a tensor in words, with its size."""
    view = view_of(tensor)
    said = [f"{view.name} of layer {view.layer} of {view.layers}"]
    if view.shards is not None:
        said.append(_shards(view) or "complete")
    if view.batches is not None:
        batches = ranges(view.batches) or "none"
        said.append(f"micro-batch{plural(view.batches, 'es')} {batches} of {view.total_batches}")
    if view.step is not None:
        said.append(f"step {view.step}")
    return f"{', '.join(said)}: {show_elements(view.memory)} elements"


def icon(tensor: Tensor, x: float, y: float) -> Diagram:
    """Return the picture of a tensor, WIDE by TALL, with its upper left corner at (x, y)."""
    view, middle = view_of(tensor), x + WIDE / 2
    parts: list[Diagram] = [
        box(x + 8, y + 17, WIDE - 16, 2.5, style(view.color)),
        label(middle, y + 9.5, view.name, 10, style(theme.INK), weight=600),
        *_layers(view, (x + 10, y + 25, 7, 34)),
        *_body(view, (x + 23, y + 25, WIDE - 33, 34)),
        label(
            middle,
            y + 68,
            f"layer {view.layer}" + (f", step {view.step}" if view.step else ""),
            9.5,
            style(theme.INK),
        ),
        label(middle, y + 80, _part(view), 8.5, style(theme.MUTE)),
    ]
    return Titled(in_words(tensor), together(parts))


def _shards(view: View) -> str:
    """Return which shards of how many, or an empty text for a complete tensor."""
    shards = view.shards or frozenset()
    return "" if view.total == 1 else f"shard{plural(shards)} {ranges(shards) or 'none'} of {view.total}"


def _part(view: View) -> str:
    """Return which part of the whole, briefly."""
    said = [_shards(view)] if view.shards is not None else []
    if view.batches is not None:
        said.append(f"mb {ranges(view.batches) or 'none'} of {view.total_batches}")
    return fit(", ".join(filter(None, said)) or "complete", 8.5, 1.2 * WIDE)


def _layers(view: View, place: Rect) -> list[Diagram]:
    """Return a column of all layers, the first at the bottom, with the tensor's own filled."""
    return _cells(place, [view.layers - 1 - view.layer], view.layers, _color(view), down=True)


def _color(view: View) -> str:
    """Return the color of the layer. The last activation, which no layer reads, has that of the last layer."""
    return theme.layer_color(min(max(view.layer, 0), view.layers - 1), view.layers)


def _body(view: View, place: Rect) -> list[Diagram]:
    """Return shards side by side, micro-batches in rows, and for a weight gradient one above the other."""
    color, (x, y, width, height) = _color(view), place
    batches = view.batches or frozenset()
    if view.shards is None:
        return _cells(place, batches, view.total_batches, color, down=True)
    if view.batches is None:
        return _cells(place, view.shards, view.total, color)
    upper, lower = (x, y, width, height * 0.62), (x, y + height * 0.62 + 3, width, height * 0.38 - 3)
    filled = view.shards if batches else frozenset()
    activations = theme.MEMORY["activations"][1]
    return [
        *_cells(upper, filled, view.total, color),
        *_cells(lower, batches, view.total_batches, activations),
    ]


def _cells(place: Rect, have: Iterable[int], total: int, fill: str, *, down: bool = False) -> list[Diagram]:
    """Return the whole as ``total`` cells, side by side or going down, with those of ``have`` filled."""
    count = max(1, min(total, CELLS))
    wanted = {piece * count // max(total, 1) for piece in have if 0 <= piece < total}
    cells = _divided(place, count, down)
    parts: list[Diagram] = [boxes(cells, style(theme.LANE, theme.HATCH, 0.75))]
    filled = [cells[cell] for cell in sorted(wanted)]
    return [*parts, boxes(filled, style(fill, theme.CARD, 0.75))] if filled else parts


def _divided(place: Rect, count: int, down: bool) -> Sequence[Rect]:
    x, y, width, height = place
    if down:
        return [(x, y + height * cell / count, width, height / count) for cell in range(count)]
    return [(x + width * cell / count, y, width / count, height) for cell in range(count)]
