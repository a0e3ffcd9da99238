"""Small pictures of tensors, and of dictionaries of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lib.errors import PuzzleError
from lib.labels import SHARDED
from lib.tensors import Tensor

from . import theme
from .figure import Figure
from .layout import ranges
from .marks import Titled, box, label, style, together

WIDE, TALL = 96.0, 84.0
CELL = 60.0
CELLS = 64
"""Pieces drawn one by one at most."""
SHORT = {
    "Weight": ("weight", "weights"),
    "OptState": ("opt. state", "opt_states"),
    "WeightGrad": ("weight grad", "weight_grads"),
    "Activation": ("activation", "activations"),
    "ActivationGrad": ("act. grad", "activation_grads"),
}


def draw_tensor(tensor: Tensor) -> Figure:
    """One tensor: its layer, its shards of how many, its micro-batches of how many."""
    return Figure([_frame(WIDE, TALL), _icon(tensor, 0, 0)], WIDE, TALL, repr(tensor))


def draw_group(group: object) -> Figure:
    """A dictionary of tensors (``model.weights``) as a row of pictures with their keys.

    Also a dictionary of such dictionaries, or several tensors. Raises PuzzleError for anything else.
    """
    rows = _rows(group)
    most = max((len(tensors) for _, tensors in rows), default=0)
    named = any(name for name, _ in rows)
    left = 96.0 if named else 8.0
    columns = min(max(most, 1), 8)
    parts: list[Any] = []
    y = 8.0
    for name, tensors in rows:
        if name:
            parts.append(label(12, y + TALL / 2, name, 11, style(theme.INK), "start", 600))
        for index, (key, tensor) in enumerate(tensors):
            x, line = left + (index % columns) * (WIDE + 6), index // columns
            parts.append(_icon(tensor, x, y + line * (TALL + 22)))
            if key is not None:
                parts.append(label(x + WIDE / 2, y + line * (TALL + 22) + TALL + 7, repr(key), 10, style(theme.MUTE)))
        if not tensors:
            parts.append(label(left, y + TALL / 2, "empty", 11, style(theme.MUTE), "start"))
        y += max(1, -(-len(tensors) // columns)) * (TALL + 22)
    width = left + columns * (WIDE + 6) + 8
    summary = "; ".join(
        f"{name + ': ' if name else ''}" + (", ".join(repr(tensor) for _, tensor in tensors) or "empty")
        for name, tensors in rows
    )
    return Figure([_frame(width, y + 4), *parts], width, y + 4, summary)


Named = list[tuple[Any, Tensor]]


def _rows(group: object) -> list[tuple[str, Named]]:
    if isinstance(group, Mapping) and group and all(isinstance(value, Mapping) for value in group.values()):
        return [(str(name), _named(inner)) for name, inner in group.items()]
    return [("", _named(group))]


def _named(group: object) -> Named:
    if isinstance(group, Tensor):
        return [(None, group)]
    found: Named = []
    if isinstance(group, Mapping):
        found = list(group.items())
    elif isinstance(group, Iterable):
        found = [(None, tensor) for tensor in group]
    else:
        found = [(None, group)]  # type: ignore[list-item]
    if not all(isinstance(tensor, Tensor) for _, tensor in found):
        raise PuzzleError(
            "draw_group takes tensors", got=repr(group)[:120], cure="a dictionary such as model.weights"
        )
    return found


def _frame(width: float, height: float) -> Any:
    return box(0.5, 0.5, width - 1, height - 1, style(theme.CARD, theme.GRID, 1), 6)


def _icon(tensor: Tensor, x: float, y: float) -> Any:
    kind = type(tensor).__name__
    name, memory_kind = SHORT[kind]
    layer = min(max(tensor.layer, 0), tensor.layers - 1)
    fill = theme.layer_color(layer, tensor.layers)
    if kind in SHARDED:
        have, total, said = tensor.shards, tensor.total, "shard"  # type: ignore[attr-defined]
    else:
        have, total, said = tensor.batches, tensor.total_batches, "mb"  # type: ignore[attr-defined]
    parts = [_cells(x + (WIDE - CELL) / 2, y + 22, have, total, fill, across=kind not in SHARDED)]
    stripe = theme.MEMORY[memory_kind][1]
    parts.append(box(x + 6, y + 4, 4, TALL - 8, style(stripe), 1))
    ink, mute = style(theme.INK), style(theme.MUTE)
    parts.append(label(x + WIDE / 2 + 3, y + 11, name, 10.5, ink, weight=600))
    below = f"layer {tensor.layer}"
    if kind == "WeightGrad":
        below += f", mb {ranges(tensor.batches) or 'none'}"  # type: ignore[attr-defined]
    elif kind in SHARDED and tensor.step:  # type: ignore[attr-defined]
        below += f", step {tensor.step}"  # type: ignore[attr-defined]
    parts.append(label(x + WIDE / 2 + 3, y + TALL - 21, below, 9.5, ink))
    if total > 1 or said == "mb":
        part = f"{said} {ranges(have) or 'none'} of {total}"
        parts.append(label(x + WIDE / 2 + 3, y + TALL - 9, part, 9.5, mute))
    return Titled(repr(tensor), together(parts))


def _cells(x: float, y: float, have: Iterable[int], total: int, fill: str, across: bool) -> Any:
    """The whole as a box; the pieces that are here are filled."""
    height = 30.0
    parts: list[Any] = [box(x, y, CELL, height, style(theme.LANE, theme.HATCH, 1), 2)]
    count = min(total, CELLS)
    for piece in sorted({index * count // total for index in have}):
        if across:  # micro-batches lie on one another, shards stand beside one another
            parts.append(box(x + 1, y + 1 + piece * (height - 2) / count, CELL - 2, (height - 2) / count, style(fill)))
        else:
            parts.append(box(x + 1 + piece * (CELL - 2) / count, y + 1, (CELL - 2) / count, height - 2, style(fill)))
    return together(parts)
