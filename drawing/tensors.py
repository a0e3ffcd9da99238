"""Small pictures of tensors: which layer of how many, which shards, which micro-batches of how many. A slice of an
activation is a part of the width; a partial sum, full of lines, has the sign of a sum and of how many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lib.basics.units import Elements
from lib.learner.tensors import Tensor
from lib.record.kinds import KINDS, SHARD
from lib.record.labels import WHOLE

from . import theme
from .figure import Figure
from .header import fit
from .layout import Rect, hatching
from .marks import Diagram, Titled, box, boxes, label, lines, style, text_width, together
from .texts import plural, ranges

WIDE, TALL = 120.0, 92.0
"""Size of a picture in pixels."""
CELLS = 32
"""Shards or micro-batches drawn one by one at most. More are drawn as so many groups."""
SIGN = 10.0
"""Size of the sign of a sum in pixels."""


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
    parts: frozenset[int] = WHOLE
    of: int = 1
    piece: str = SHARD
    """What a piece of it is called."""
    thin: bool = False
    """Whether it is of an adapter, which is drawn as the thin thing that it is."""

    @property
    def sliced(self) -> bool:
        """Whether its shards are pieces of each micro-batch, such as slices of a sequence."""
        return self.piece != SHARD


THIN = 0.36
"""How high the body of an adapter is, as a part of that of a weight."""


def view_of(tensor: Tensor) -> View:
    """Return what a picture shows of a tensor."""
    row, adapter = KINDS[type(tensor).__name__], getattr(tensor, "adapter", False)
    return View(
        row.of_adapter if adapter else row.word,
        theme.MEMORY[row.memory][1],
        tensor.layer,
        tensor.layers,
        getattr(tensor, "shards", None),
        getattr(tensor, "total", 1),
        getattr(tensor, "batches", None),
        getattr(tensor, "total_batches", 0),
        getattr(tensor, "step", None),
        tensor.memory(),
        getattr(tensor, "parts", WHOLE),
        getattr(tensor, "of", 1),
        row.piece,
        adapter,
    )


def draw_tensor(tensor: Tensor) -> Figure:
    """Return one tensor as a picture."""
    frame = box(0.5, 0.5, WIDE - 1, TALL - 1, style(theme.CARD, theme.GRID, 1), 6)
    return Figure([frame, icon(tensor, 0, 0)], WIDE, TALL, in_words(tensor))


def in_words(tensor: Tensor) -> str:
    """Return a tensor in words, with its size."""
    view = view_of(tensor)
    said = [f"{view.name} of layer {view.layer} of {view.layers}"]
    if not view.sliced and view.shards is not None:
        said.append(_shards(view) or "complete")
    elif view.sliced:
        said += _pieces(view)
    if view.batches is not None:
        batches = ranges(view.batches) or "none"
        said.append(f"micro-batch{plural(view.batches, 'es')} {batches} of {view.total_batches}")
    if view.step is not None:
        said.append(f"step {view.step}")
    return f"{', '.join(said)}: {tensor._token.size_unit.describe(view.memory)}"


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
        label(middle, y + 80, _part(view), 9, style(theme.MUTE)),
    ]
    return Titled(in_words(tensor), together(parts))


def _shards(view: View) -> str:
    """Return which shards of how many, or an empty text for a complete tensor."""
    shards = view.shards or frozenset()
    return "" if view.total == 1 else f"{view.piece}{plural(shards)} {ranges(shards) or 'none'} of {view.total}"


def _pieces(view: View) -> list[str]:
    """Return of what an activation is a slice, and of what a partial sum."""
    partial_sum = f"partial sum{plural(view.parts)} {ranges(view.parts) or 'none'} of {view.of}"
    return [*filter(None, [_shards(view)]), *[partial_sum] * (view.of > 1)]


def _part(view: View) -> str:
    """Return which part of the whole, briefly."""
    said = _pieces(view) if view.sliced else [_shards(view)]
    if view.batches is not None and not (said and view.total_batches == 1 and view.sliced):
        said.append(f"mb {ranges(view.batches) or 'none'} of {view.total_batches}")
    return fit(", ".join(filter(None, said)) or "complete", 9, 1.2 * WIDE)


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
    if view.sliced or view.shards is None:
        return _rows(view, place, batches)
    if view.batches is None:
        return _cells(_thinner(place) if view.thin else place, view.shards, view.total, color)
    upper, lower = (x, y, width, height * 0.62), (x, y + height * 0.62 + 3, width, height * 0.38 - 3)
    upper = _thinner(upper) if view.thin else upper
    filled = view.shards if batches else frozenset()
    activations = theme.MEMORY["activations"][1]
    return [
        *_cells(upper, filled, view.total, color),
        *_cells(lower, batches, view.total_batches, activations),
    ]


def _thinner(place: Rect) -> Rect:
    """Return a strip in the middle of a place."""
    x, y, width, height = place
    return x, y + height * (1 - THIN) / 2, width, height * THIN


def _rows(view: View, place: Rect, batches: frozenset[int]) -> list[Diagram]:
    """Return a row for each micro-batch: of a slice a part of its width, of a partial sum lines and a sign."""
    cells = _cells(
        place, batches, view.total_batches, _color(view), down=True, across=(view.shards or WHOLE, view.total)
    )
    if view.of == 1:
        return cells
    x, y, width, height = place
    middle, said = (x + width / 2, y + height / 2), f"\u03a3 {len(view.parts)}/{view.of}"
    wide = text_width(said, SIGN, bold=True) + 8
    return [
        *cells,
        lines(hatching(*place), style(None, theme.CARD, 1.2)),
        box(middle[0] - wide / 2, middle[1] - 7, wide, 14, style(theme.CARD, theme.GRID, 0.75), 3),
        label(*middle, said, SIGN, style(theme.INK), weight=600),
    ]


def _cells(
    place: Rect,
    have: Iterable[int],
    total: int,
    fill: str,
    *,
    down: bool = False,
    across: tuple[frozenset[int], int] = (WHOLE, 1),
) -> list[Diagram]:
    """Return the whole as ``total`` cells, side by side or going down, with those of ``have`` filled: of cells that go
    down, the parts of their width that ``across`` names."""
    count = max(1, min(total, CELLS))
    wanted = {piece * count // max(total, 1) for piece in have if 0 <= piece < total}
    cells = _divided(place, count, down)
    parts: list[Diagram] = [boxes(cells, style(theme.LANE, theme.HATCH, 0.75))]
    slices = sorted({piece * min(across[1], CELLS) // across[1] for piece in across[0]})
    filled = [
        part
        for cell in sorted(wanted)
        for part in ([_divided(cells[cell], min(across[1], CELLS), False)[piece] for piece in slices])
    ]
    return [*parts, boxes(filled, style(fill, theme.CARD, 0.75))] if filled else parts


def _divided(place: Rect, count: int, down: bool) -> Sequence[Rect]:
    x, y, width, height = place
    if down:
        return [(x, y + height * cell / count, width, height / count) for cell in range(count)]
    return [(x + width * cell / count, y, width / count, height) for cell in range(count)]
