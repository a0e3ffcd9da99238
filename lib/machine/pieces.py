"""What a rank holds as pieces of the layers: which shards of a weight, which micro-batches of an activation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from ..basics.units import Elements
from ..record.kinds import IN_FLIGHT, INBOX, KINDS, MEMORY_KINDS
from ..record.shards import refined
from .lives import Stay

STORED, PASSING, TRAVELS = "stored", "passing", "travels"
"""How something is held: in a dictionary, for an operation only, or by a call that has not been awaited yet."""
Span = tuple[float, float]
"""From where to where, in parts of the whole."""


class Piece(NamedTuple):
    """A tensor that a rank holds from the sample at one place in its log (``start``) up to another (``stop``)."""

    layer: int
    memory: str  # of what kind it is, one of MEMORY_KINDS: in flight, it is of the kind that it has
    line: int  # among those of its layer and kind that have a cell in common at the same time: 0 is the first
    cells: tuple[Span, ...]  # which shards it is or, of an activation, which micro-batches: places in the whole layer
    how: str  # STORED, PASSING or TRAVELS
    elements: Elements
    what: str  # what it is, in words
    start: int
    stop: int


def pieces_of(stays: Iterable[Stay], batches: int) -> Iterator[Piece]:
    """Yield what a rank holds, in a training with so many micro-batches. Their sizes add up to each of its samples."""
    stays, rows = [*stays], defaultdict[tuple[int, str], list[Piece]](list)
    finest = defaultdict[str, int](int)  # of how many shards the smallest one is, by kind
    for stay in stays:
        finest[stay.kind] = max(finest[stay.kind], stay.labels.total if stay.labels else 1)
    for stay in sorted(stays, key=lambda stay: (stay.start, not stay.stored, -stay.stop)):
        travels = stay.memory in (MEMORY_KINDS[IN_FLIGHT], MEMORY_KINDS[INBOX])
        cells, row = cells_of(stay, batches, finest[stay.kind]), rows[stay.layer, stay.kind]
        taken = {one.line for one in row if one.start < stay.stop and stay.start < one.stop and _meet(one.cells, cells)}
        line = next(line for line in count() if line not in taken)
        how = STORED if stay.stored or stay.labels is None else TRAVELS if travels else PASSING
        what = stay.held(stay.start, {}).what
        row.append(Piece(stay.layer, stay.kind, line, cells, how, stay.elements, what, stay.start, stay.stop))
    for row in rows.values():
        yield from row


def cells_of(stay: Stay, batches: int, finest: int) -> tuple[Span, ...]:
    """Return the cells of a tensor: its shards, where the smallest is one of ``finest``, or of an activation its
    micro-batches, and its slices of each."""
    labels, own, of = stay.labels, sorted(stay.batches), batches
    shards, total = (frozenset({0}), 1) if labels is None else (labels.shards, labels.total)
    if labels is not None and not KINDS[labels.kind].by_batch:
        own, of = [0], 1
        shards, total = (refined(shards, total, finest), finest) if finest % total == 0 else (shards, total)
    places = [batch * total + shard for batch in own for shard in sorted(shards)]
    return tuple([(at / (of * total), (at + 1) / (of * total)) for at in places])


def _meet(some: Sequence[Span], others: Sequence[Span]) -> bool:
    return any(start < end - 1e-9 and first < stop - 1e-9 for start, stop in some for first, end in others)
