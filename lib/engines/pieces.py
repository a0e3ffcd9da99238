"""Parts of a weight: which numbers of the flat whole each has, so that parts of any cut fit together.

Piece i of n of a weight with p parameters is numbers ``i * p // n`` up to ``(i + 1) * p // n``. Pieces of a finer cut
make up those of a coarser one exactly, for every p, so nothing is padded; of more pieces than numbers some are empty.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from ..record.shards import WHOLE

Span = tuple[int, int]  # (start, stop): numbers of the flat whole
Spans = tuple[Span, ...]  # spans that do not touch, in ascending order


class Pieces(NamedTuple):
    """A part of a weight, of a gradient or of an optimizer state. It never changes: ranks may share it."""

    spans: Spans  # which numbers of the whole these are
    flat: torch.Tensor  # (rows, numbers), ascending: one row, or Adam's two, m and v
    step: int = 0  # for an optimizer state, the steps before it
    layer: int = 0  # for a weight, the layer that it belongs to
    heads: tuple[frozenset[int], int] = (WHOLE, 1)  # in attention, which parts of all heads, and of how many


def spans_of(shards: Iterable[int], total: int, parameters: int) -> Spans:
    """Return which numbers of the flat whole some shards are.

    >>> spans_of({0, 1, 3}, 4, 10)
    ((0, 5), (7, 10))
    """
    return merged([(shard * parameters // total, (shard + 1) * parameters // total) for shard in sorted(shards)])


def merged(spans: Iterable[Span]) -> Spans:
    """Return the spans in order, with those that touch or overlap put together."""
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


def size(spans: Iterable[Span]) -> int:
    """Return how many numbers the spans have."""
    return sum(stop - start for start, stop in spans)


def nothing(like: torch.Tensor, spans: Spans) -> torch.Tensor:
    """Return (rows, numbers) of nan, which stands for numbers that are missing."""
    return like.new_full((len(like), size(spans)), math.nan)


def select(part: Pieces, spans: Spans) -> torch.Tensor:
    """Return the numbers of a part in these spans, (rows, numbers), with nan for what it lacks: a copy, unless it is
    all of the part, since a view would keep all of it in memory."""
    if part.spans == spans:
        return part.flat
    taken = nothing(part.flat, spans)
    _lay(taken, spans, part)
    return taken


def together(parts: Sequence[Pieces]) -> Pieces:
    """Return parts as one, with nan everywhere if they share a number, or are no parts of one thing."""
    first = parts[0]
    spans = merged(span for part in parts for span in part.spans)
    whole = nothing(first.flat, spans)
    kinds = {(part.step, part.heads, len(part.flat)) for part in parts}
    if len(kinds) == 1 and size(spans) == sum(size(part.spans) for part in parts):
        for part in parts:
            _lay(whole, spans, part)
    return Pieces(spans, whole, first.step, first.layer, first.heads)


def _lay(flat: torch.Tensor, spans: Spans, part: Pieces) -> None:
    """Write the numbers of a part into those of some spans, wherever both have them."""
    for (start, stop), target in _by_span(flat, spans):
        for (first, last), source in _by_span(part.flat, part.spans):
            low, high = max(start, first), min(stop, last)
            if low < high:
                target[:, low - start : high - start] = source[:, low - first : high - first]


def _by_span(flat: torch.Tensor, spans: Spans) -> Iterable[tuple[Span, torch.Tensor]]:
    """Return each span with its own numbers, which are views."""
    return zip(spans, flat.split([stop - start for start, stop in spans], 1), strict=True)
