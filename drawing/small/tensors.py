"""Small pictures of tensors, alone or in dictionaries: which layer of how many, which shards, which micro-batches. A
slice of an activation is a part of the width; a partial sum, full of lines, has the sign of a sum and of how many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.learner.tensors import Tensor
from lib.record.kinds import KINDS, SHARD
from lib.record.labels import Labels
from lib.record.shards import WHOLE

from ..ink import theme
from ..ink.figure import Figure, at_any_width
from ..ink.letters import fit, text_width
from ..ink.marks import Diagram, Rect, Titled, box, boxes, in_lines, label, lines, style, tile, together, vcat
from ..ink.texts import plural, ranges
from ..schedule.layout import hatching

WIDE, TALL = 120.0, 92.0
"""Size of a picture in pixels."""
CELLS = 32
"""Shards or micro-batches drawn one by one at most. More are drawn as so many groups."""
SIGN = 10.0
"""Size of the sign of a sum in pixels."""
THIN = 0.36
"""How high the body of an adapter is, as a part of that of a weight: it is drawn as the thin thing that it is."""

MOST, LINES = 256, 64
"""The largest numbers of tensors and lines. Of further ones only the number is shown."""
NAMES = 140.0
"""The largest width of a line's name, in pixels."""
COLUMNS, FEW, GAP, KEY, PAD = 6, 2, 8.0, 16.0, 12.0
"""The largest number of pictures in a line, and in a line of a narrow place; in pixels the room between them, that for
a key above each, and that around all."""

Pieces = tuple[Iterable[int], int]
"""Some pieces, and of how many they are."""


def draw_tensor(tensor: Tensor) -> Figure:
    """Return one tensor as a picture."""
    frame = box(0.5, 0.5, WIDE - 1, TALL - 1, style(theme.CARD, theme.GRID, 1), 6)
    return Figure([frame, icon(tensor)], WIDE, TALL, in_words(tensor))


def in_words(tensor: Tensor) -> str:
    """Return a tensor in words, with its size."""
    labels = tensor._token.labels
    kind = KINDS[labels.kind]
    texts = [f"{_name(labels)} of layer {labels.layer} of {labels.layers}"]
    if _sliced(labels):
        texts += _pieces(labels)
        if kind.meets and labels.parts:
            all_or_some = (
                f"all {kind.meets}" if labels.of == 1 else f"{kind.meets} {ranges(labels.parts)} of {labels.of}"
            )
            texts.append(f"has met {all_or_some}")
    elif "shards" in kind.fields:
        texts.append(_shards(labels) or "complete")
    if kind.batched:
        batches = ranges(labels.batches) or "none"
        texts.append(f"micro-batch{plural(labels.batches, 'es')} {batches} of {labels.total_batches}")
    if kind.stepped:
        texts.append(f"step {labels.step}")
    return f"{', '.join(texts)}: {tensor._token.size_unit.describe(tensor.memory())}"


def icon(tensor: Tensor) -> Diagram:
    """Return the picture of a tensor, WIDE by TALL."""
    labels, middle, ink = tensor._token.labels, WIDE / 2, style(theme.INK)
    step = f", step {labels.step}" if labels.step else ""
    parts: list[Diagram] = [
        box(8, 17, WIDE - 16, 2.5, style(theme.MEMORY[KINDS[labels.kind].memory][1])),
        label(middle, 9.5, _name(labels), 10, ink, weight=600),
        # A column of all layers, the first at the bottom, with the tensor's own filled.
        *_cells((10, 25, 7, 34), ([labels.layers - 1 - labels.layer], labels.layers), _color(labels), True),
        *_body(labels, (23, 25, WIDE - 33, 34)),
        label(middle, 68, f"layer {labels.layer}{step}", 9.5, ink),
        label(middle, 80, _part(labels), 9, style(theme.MUTE)),
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
    """Return of what an activation is a slice, of what a partial sum, and which heads of attention it has."""
    partial_sum = f"partial sum{plural(labels.parts)} {ranges(labels.parts) or 'none'} of {labels.of}"
    sums = [partial_sum] * (labels.of > 1 and not KINDS[labels.kind].by_heads)  # else these are slices that it has met
    heads = f"part{plural(labels.heads)} {ranges(labels.heads)} of {labels.of_heads} of the heads"
    return [*filter(None, [_shards(labels)]), *sums, *[heads] * (labels.of_heads > 1)]


def _part(labels: Labels) -> str:
    """Return which part of the whole, briefly."""
    texts, kind = _pieces(labels), KINDS[labels.kind]
    if kind.batched and not (texts and labels.total_batches == 1 and _sliced(labels)):
        texts.append(f"mb {ranges(labels.batches) or 'none'} of {labels.total_batches}")
    return fit(", ".join(texts) or "complete", 9, 1.2 * WIDE)


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
    """Return a row for each micro-batch: of a slice a part of its width, of some heads a part of its height, of a
    partial sum lines and a sign."""
    batches, slices = (labels.batches, labels.total_batches), (labels.shards, labels.total)
    cells = _cells(place, batches, _color(labels), True, slices, labels.extra.heads)
    if labels.of == 1 or KINDS[labels.kind].by_heads:
        return cells
    x, y, width, height = place
    middle, text = (x + width / 2, y + height / 2), f"\u03a3 {len(labels.parts)}/{labels.of}"
    wide = text_width(text, SIGN, bold=True) + 8
    return [
        *cells,
        lines(hatching(*place), style(None, theme.CARD, 1.2)),
        box(middle[0] - wide / 2, middle[1] - 7, wide, 14, style(theme.CARD, theme.GRID, 0.75), 3),
        label(*middle, text, SIGN, style(theme.INK), weight=600),
    ]


def _cells(
    place: Rect, pieces: Pieces, fill: str, down: bool = False, slices: Pieces = (WHOLE, 1), heads: Pieces = (WHOLE, 1)
) -> list[Diagram]:
    """Return the whole as cells, side by side or ``down``, with these pieces filled, or these slices of their width and
    these heads of their height."""
    cells = _divided(place, pieces[1], down)
    parts = [_divided(cells[at], slices[1], False)[part] for at in _places(*pieces) for part in _places(*slices)]
    filled = [_divided(part, heads[1], True)[at] for part in parts for at in _places(*heads)]
    whole = boxes(cells, style(theme.LANE, theme.HATCH, 0.75))
    return [whole, boxes(filled, style(fill, theme.CARD, 0.75))] if filled else [whole]


def _places(pieces: Iterable[int], total: int) -> list[int]:
    """Return in which cells pieces of so many are, where there may be fewer cells than pieces."""
    return sorted({piece * min(total, CELLS) // total for piece in pieces if 0 <= piece < total})


def _divided(place: Rect, total: int, down: bool) -> Sequence[Rect]:
    """Return a place in so many cells, or as many as the eye tells apart."""
    (x, y, width, height), count = place, max(1, min(total, CELLS))
    if down:
        return [(x, y + height * cell / count, width, height / count) for cell in range(count)]
    return [(x + width * cell / count, y, width / count, height) for cell in range(count)]


Line = tuple[str, Sequence[tuple[str, Tensor | None]]]
"""A dictionary: its name, and its tensors by their keys. In place of a tensor there may be nothing."""


def draw_group(group: object, *, static: bool = False) -> Figure:
    """A picture of a dictionary of tensors, such as ``model.weights``: one tensor beside the other, each with its key.

    It also takes a dictionary of named dictionaries, or several tensors. ``static=True``: an image without hover texts,
    for notebooks that are saved with their outputs. Raises PuzzleError for anything else.
    """
    return at_any_width(partial(_in_columns, *_shown(group)), COLUMNS, FEW, static)


def _in_columns(lines: Sequence[Line], left_out: int, most: int) -> Figure:
    """Return the tensors in at most so many columns."""
    left = max((text_width(name, 11, bold=True) for name, _ in lines), default=0.0)
    left = PAD + (left + PAD if left else 0.0)
    columns = min(most, max([1, *(len(tensors) for _, tensors in lines)]))
    parts, y = list[Diagram](), 8.0
    for line in lines:
        more, y = row(line, left, y, columns)
        parts += more
    if left_out:
        parts.append(label(left, y + 10, f"and {left_out:,} more", 10, style(theme.MUTE), "start"))
        y += 28
    width = left + columns * (WIDE + GAP) + 4
    frame = box(0.5, 0.5, width - 1, y - 1, style(theme.CARD, theme.GRID, 1), 6)
    words = " ".join(map(line_in_words, lines)) + (f" And {left_out:,} more." if left_out else "")
    return Figure([frame, *parts], width, y, words, title="Tensors")


def _shown(group: object) -> tuple[list[Line], int]:
    """Return the first tensors of the first lines, and how many tensors, or lines, are left out."""
    several = isinstance(group, Mapping) and group and all(isinstance(inner, Mapping) for inner in group.values())
    named = group.items() if several else [("", group)]  # type: ignore[attr-defined]
    lines = [(fit(str(name), 11, NAMES), _named(inner)) for name, inner in named]
    room, shown = MOST, list[Line]()
    for name, tensors in lines[:LINES]:
        if room:
            shown.append((name, tensors[:room]))
            room -= len(shown[-1][1])
    left_out = sum(len(tensors) for _, tensors in lines) - (MOST - room)
    return shown, left_out or len(lines) - len(shown)


def _named(group: object) -> list[tuple[str, Tensor]]:
    """Return tensors with their keys, if they have any. Raise PuzzleError for anything else."""
    if isinstance(group, Mapping):
        pairs = [(fit(str(key), 10, WIDE + GAP), tensor) for key, tensor in group.items()]
    else:
        several = isinstance(group, Iterable) and not isinstance(group, str)
        pairs = [("", tensor) for tensor in (group if several else [group])]  # type: ignore[attr-defined]
    if not all(isinstance(tensor, Tensor) for _, tensor in pairs):
        expected = "a dictionary of them, such as model.weights"
        raise PuzzleError("draw_group takes tensors", expected=expected, got=describe(group))
    return pairs


def row(line: Line, left: float, y: float, columns: int) -> tuple[list[Diagram], float]:
    """Return the pictures of a line from ``y`` down, and the y where they end."""
    name, tensors = line
    high = KEY if any(key for key, _ in tensors) else 0.0
    middle = y + (KEY + TALL / 2 if tensors else 10)
    parts: list[Diagram] = [label(PAD, middle, name, 11, style(theme.INK), "start", 600)] if name else []
    if not tensors:
        return [*parts, label(left, y + 10, "empty", 10, style(theme.MUTE), "start")], y + 28
    tiles = []
    for key, tensor in tensors:
        head = [label(WIDE / 2, KEY / 2, key, 10, style(theme.MUTE))] if high else []
        frame = box(0, 0, WIDE, TALL, style(theme.CARD, theme.GRID, 1), 4)
        nothing = label(WIDE / 2, TALL / 2, "nothing", 10, style(theme.MUTE))
        body = [frame, nothing if tensor is None else icon(tensor)]
        tiles.append(vcat([tile(WIDE + GAP, high, head), tile(WIDE + GAP, TALL + GAP, body)]))
    return [*parts, in_lines(tiles, columns).translate(left, y)], y + -(-len(tiles) // columns) * (TALL + GAP + high)


def line_in_words(line: Line) -> str:
    """Return a dictionary in words."""
    name, tensors = line
    named = (f"{key}{': ' * bool(key)}{'nothing' if one is None else in_words(one)}" for key, one in tensors)
    return f"{name}{': ' * bool(name)}{'; '.join(named) or 'empty'}."
