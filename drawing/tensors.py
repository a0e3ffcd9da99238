"""Small pictures of tensors: which layer of how many, which shards, which micro-batches of how many. A slice of an
activation is a part of the width; a partial sum, full of lines, has the sign of a sum and of how many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lib.learner.tensors import Tensor
from lib.record.kinds import KINDS, SHARD
from lib.record.labels import WHOLE, Labels

from . import theme
from .figure import Figure
from .header import fit
from .layout import hatching
from .marks import Diagram, Rect, Titled, box, boxes, label, lines, style, text_width, together
from .texts import plural, ranges

WIDE, TALL = 120.0, 92.0
"""Size of a picture in pixels."""
CELLS = 32
"""Shards or micro-batches drawn one by one at most. More are drawn as so many groups."""
SIGN = 10.0
"""Size of the sign of a sum in pixels."""
THIN = 0.36
"""How high the body of an adapter is, as a part of that of a weight: it is drawn as the thin thing that it is."""

Pieces = tuple[Iterable[int], int]
"""Some pieces, and of how many they are."""


def draw_tensor(tensor: Tensor) -> Figure:
    """Return one tensor as a picture."""
    frame = box(0.5, 0.5, WIDE - 1, TALL - 1, style(theme.CARD, theme.GRID, 1), 6)
    return Figure([frame, icon(tensor, 0, 0)], WIDE, TALL, in_words(tensor))


def in_words(tensor: Tensor) -> str:
    """Return a tensor in words, with its size."""
    labels = tensor._token.labels
    kind = KINDS[labels.kind]
    said = [f"{_name(labels)} of layer {labels.layer} of {labels.layers}"]
    if _sliced(labels):
        said += _pieces(labels)
    elif "shards" in kind.fields:
        said.append(_shards(labels) or "complete")
    if kind.batched:
        batches = ranges(labels.batches) or "none"
        said.append(f"micro-batch{plural(labels.batches, 'es')} {batches} of {labels.total_batches}")
    if kind.stepped:
        said.append(f"step {labels.step}")
    return f"{', '.join(said)}: {tensor._token.size_unit.describe(tensor.memory())}"


def icon(tensor: Tensor, x: float, y: float) -> Diagram:
    """Return the picture of a tensor, WIDE by TALL, with its upper left corner at (x, y)."""
    labels, middle, ink = tensor._token.labels, x + WIDE / 2, style(theme.INK)
    step = f", step {labels.step}" if labels.step else ""
    parts: list[Diagram] = [
        box(x + 8, y + 17, WIDE - 16, 2.5, style(theme.MEMORY[KINDS[labels.kind].memory][1])),
        label(middle, y + 9.5, _name(labels), 10, ink, weight=600),
        # A column of all layers, the first at the bottom, with the tensor's own filled.
        *_cells((x + 10, y + 25, 7, 34), ([labels.layers - 1 - labels.layer], labels.layers), _color(labels), True),
        *_body(labels, (x + 23, y + 25, WIDE - 33, 34)),
        label(middle, y + 68, f"layer {labels.layer}{step}", 9.5, ink),
        label(middle, y + 80, _part(labels), 9, style(theme.MUTE)),
    ]
    return Titled(in_words(tensor), together(parts))


def _name(labels: Labels) -> str:
    """Return the field's word for a tensor."""
    kind = KINDS[labels.kind]
    return kind.of_adapter if labels.adapter else kind.word


def _sliced(labels: Labels) -> bool:
    """Return whether its shards are pieces of each micro-batch, such as slices of a sequence."""
    return KINDS[labels.kind].piece != SHARD


def _shards(labels: Labels) -> str:
    """Return which shards of how many, or an empty text for a complete tensor."""
    shards, piece = labels.shards, KINDS[labels.kind].piece
    return "" if labels.total == 1 else f"{piece}{plural(shards)} {ranges(shards) or 'none'} of {labels.total}"


def _pieces(labels: Labels) -> list[str]:
    """Return of what an activation is a slice, and of what a partial sum."""
    partial_sum = f"partial sum{plural(labels.parts)} {ranges(labels.parts) or 'none'} of {labels.of}"
    return [*filter(None, [_shards(labels)]), *[partial_sum] * (labels.of > 1)]


def _part(labels: Labels) -> str:
    """Return which part of the whole, briefly."""
    said, kind = _pieces(labels), KINDS[labels.kind]
    if kind.batched and not (said and labels.total_batches == 1 and _sliced(labels)):
        said.append(f"mb {ranges(labels.batches) or 'none'} of {labels.total_batches}")
    return fit(", ".join(said) or "complete", 9, 1.2 * WIDE)


def _color(labels: Labels) -> str:
    """Return the color of the layer. The last activation, which no layer reads, has that of the last layer."""
    return theme.layer_color(min(max(labels.layer, 0), labels.layers - 1), labels.layers)


def _body(labels: Labels, place: Rect) -> list[Diagram]:
    """Return shards side by side, micro-batches in rows, and for a weight gradient one above the other."""
    kind, color, (x, y, width, height) = KINDS[labels.kind], _color(labels), place
    if _sliced(labels) or "shards" not in kind.fields:
        return _rows(labels, place)
    tall = height * 0.62 if kind.batched else height
    upper = (x, y + tall * (1 - THIN) / 2, width, tall * THIN) if labels.adapter else (x, y, width, tall)
    if not kind.batched:
        return _cells(upper, (labels.shards, labels.total), color)
    lower = (x, y + tall + 3, width, height - tall - 3)
    return [
        *_cells(upper, (labels.shards if labels.batches else (), labels.total), color),
        *_cells(lower, (labels.batches, labels.total_batches), theme.MEMORY["activations"][1]),
    ]


def _rows(labels: Labels, place: Rect) -> list[Diagram]:
    """Return a row for each micro-batch: of a slice a part of its width, of a partial sum lines and a sign."""
    batches, slices = (labels.batches, labels.total_batches), (labels.shards, labels.total)
    cells = _cells(place, batches, _color(labels), True, slices)
    if labels.of == 1:
        return cells
    x, y, width, height = place
    middle, said = (x + width / 2, y + height / 2), f"\u03a3 {len(labels.parts)}/{labels.of}"
    wide = text_width(said, SIGN, bold=True) + 8
    return [
        *cells,
        lines(hatching(*place), style(None, theme.CARD, 1.2)),
        box(middle[0] - wide / 2, middle[1] - 7, wide, 14, style(theme.CARD, theme.GRID, 0.75), 3),
        label(*middle, said, SIGN, style(theme.INK), weight=600),
    ]


def _cells(place: Rect, pieces: Pieces, fill: str, down: bool = False, slices: Pieces = (WHOLE, 1)) -> list[Diagram]:
    """Return the whole as cells, side by side or going down, with these pieces filled: of cells that go down, these
    slices of their width."""
    cells = _divided(place, pieces[1], down)
    filled = [_divided(cells[at], slices[1], False)[part] for at in _places(*pieces) for part in _places(*slices)]
    whole = boxes(cells, style(theme.LANE, theme.HATCH, 0.75))
    return [whole, boxes(filled, style(fill, theme.CARD, 0.75))] if filled else [whole]


def _places(pieces: Iterable[int], total: int) -> list[int]:
    """Return in which cells pieces of so many are, where there may be fewer cells than pieces."""
    return sorted({piece * min(total, CELLS) // total for piece in pieces if 0 <= piece < total})


def _divided(place: Rect, total: int, down: bool) -> Sequence[Rect]:
    """Return a place in so many cells, or as many as can be told apart."""
    (x, y, width, height), count = place, max(1, min(total, CELLS))
    if down:
        return [(x, y + height * cell / count, width, height / count) for cell in range(count)]
    return [(x + width * cell / count, y, width / count, height) for cell in range(count)]
