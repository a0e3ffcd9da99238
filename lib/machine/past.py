"""What a rank has done before, for rules and errors. No record is looked at twice, however often a program asks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..record.events import MARKS
from ..record.labels import Labels
from ..record.table import makes_weight_grads, sums

Brought = Mapping[object, Sequence[Labels | None]]
"""What a rank has brought to its collectives as a list, by the ``op`` of each."""


class Taken:
    """The pieces of a layer's weight, of its state, or of a micro-batch's input, that a rank has taken: labels, and the
    number of the load."""

    __slots__ = ("pieces", "starts", "parts")

    def __init__(self) -> None:
        self.pieces: list[tuple[Labels, int]] = []
        # What these cover, as parts of the whole apart from each other: where each starts, and its end, load and piece.
        self.starts: list[Fraction] = []
        self.parts: list[tuple[Fraction, int, Labels]] = []

    def note(self, labels: Labels, load: int) -> Labels | None:
        """Note a piece. If one of another load overlaps it, return that, and note nothing."""
        if self.pieces:  # most often it is the only one
            if not self.starts:
                self._cover(*self.pieces[0])
            for start, end in _spans(labels):
                first, last = self._within(start, end)
                for _, other, piece in self.parts[first:last]:
                    if other != load:
                        return piece
            self._cover(labels, load)
        self.pieces.append((labels, load))
        return None

    def has(self, labels: Labels) -> bool:
        """Return whether these pieces are all of another."""
        if not self.starts:
            self._cover(*self.pieces[0])
        for start, end in _spans(labels):
            first, last = self._within(start, end)
            own = zip(self.starts[first:last], self.parts[first:last], strict=True)
            if sum(min(end, stop) - max(start, begin) for begin, (stop, _, _) in own) < end - start:
                return False
        return True

    def _within(self, start: Fraction, end: Fraction) -> tuple[int, int]:
        """Return the places of the first part that overlaps a span, and of the one after the last."""
        first = bisect_right(self.starts, start)
        if first and self.parts[first - 1][0] > start:
            first -= 1
        return first, bisect_left(self.starts, end)

    def _cover(self, labels: Labels, load: int) -> None:
        """Make one part of a piece and of those of its load that it overlaps."""
        for start, end in _spans(labels):
            first, last = self._within(start, end)
            if first < last:
                start, end = min(start, self.starts[first]), max(end, self.parts[last - 1][0])
            self.starts[first:last] = [start]
            self.parts[first:last] = [(end, load, labels)]


def _spans(labels: Labels) -> Iterator[tuple[Fraction, Fraction]]:
    """Return where a piece lies in the whole, of which the end is 1."""
    shards, total = labels.shards, labels.total
    first, last = min(shards), max(shards)
    if last - first + 1 == len(shards):
        yield Fraction(first, total), Fraction(last + 1, total)
    else:
        yield from ((Fraction(shard, total), Fraction(shard + 1, total)) for shard in shards)


class Past:
    """What errors ask of the log of a rank."""

    __slots__ = ("looked_at", "reduced", "gradients", "operations")

    def __init__(self) -> None:
        self.looked_at = 0  # records
        self.reduced: dict[tuple[int | None, frozenset[int]], str] = {}
        """By layer and micro-batches: the last reduction to which the rank has brought such a gradient."""
        self.gradients = defaultdict[int | None, set[int]](set)
        """By layer: the micro-batches for which the rank has computed the gradient of the weight."""
        self.operations = defaultdict[object, list[int]](list)
        """Of each coroutine, the places of its operations in the log."""

    def look(self, log: Sequence[Any], writers: Mapping[int, object], first: object, lists: Brought) -> Past:
        """Add what is new in the log, and return this. ``writers``: by place, who wrote it if not the ``first``."""
        for at in range(self.looked_at, len(log)):
            record = log[at]
            if record.kind not in MARKS:
                self.operations[writers.get(at, first)].append(at)
            labels = record.labels
            if labels is None:
                if makes_weight_grads(record.kind):
                    self.gradients[record.layer] |= record.batches
            elif labels.kind == "WeightGrad" and sums(record.kind):
                brought = [(record.layer, labels.batches)]
                if record.layers:
                    brought = [(one.layer, one.batches) for one in lists[record.op] if one is not None]
                self.reduced |= dict.fromkeys(brought, record.kind)
        self.looked_at = len(log)
        return self
