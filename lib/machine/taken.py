"""The pieces of weights, states and inputs that a rank has taken from its loads: each piece once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from fractions import Fraction

from ..record.labels import Labels


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
