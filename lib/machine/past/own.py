"""What a rank has done before, in its own log. No record is looked at twice, however often a program asks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ...record.collectives import SCATTERREDUCE
from ...record.events import LOADS, MARKS
from ...record.labels import Labels
from ...record.table import OPERATIONS, SEND, makes_weight_grads, stream_of, sums
from ...record.training import BACKWARD, FORWARD
from ..mesh import Group

Brought = Mapping[object, Sequence[Labels | None]]
"""What a rank has brought to its collectives as a list, by the ``op`` of each."""
Step = tuple[int, frozenset[int]]
"""A forward or a backward: its layer, and its micro-batches."""


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

    __slots__ = (
        "looked_at", "came", "reduced", "summed", "brought", "gradients", "ran", "loaded", "senders", "sent", "cuts",
        "operations", "met", "axes", "steps",
    )  # fmt: skip

    def __init__(self) -> None:
        self.looked_at = self.came = 0  # records, and messages that came
        self.reduced: dict[tuple[int | None, frozenset[int]], tuple[str, object, Group]] = {}
        """By layer and micro-batches: the last reduction to which the rank has brought such a gradient, its op, and the
        ranks in it."""
        self.summed: dict[int | None, str] = {}
        """By layer: the last reduction to which the rank has brought a gradient."""
        self.brought: dict[tuple[object, int | None], frozenset[int]] = {}
        """By the op of a reduction, and layer: the micro-batches of the gradient that the rank has brought."""
        self.gradients = defaultdict[int | None, set[int]](set)
        """By layer: the micro-batches for which the rank has computed the gradient of the weight."""
        self.ran = defaultdict[tuple[str, int | None], set[int]](set)
        """By verb and layer: the micro-batches that the rank has carried through the layer."""
        self.loaded: set[int | None] = set()
        """The layers of which the rank has loaded a weight, or a piece of it."""
        self.cuts = defaultdict[int | None, dict[object, None]](dict)
        """By layer: the axes over which its gradient was brought to reductions that cut it, in order."""
        self.sent = defaultdict[tuple[str, int], dict[int, int]](dict)
        """By kind and layer of a tensor: the rank to which that of a micro-batch was sent last."""
        self.senders: dict[Labels, tuple[int, int]] = {}
        """Of each tensor that came as a message: the rank that has sent it last, and the place of the receive."""
        self.operations = defaultdict[object, list[int]](list)
        """Of each coroutine, the places of its operations in the log."""
        self.axes = defaultdict[int | None, dict[object, None]](dict)
        """By layer: the axes over which its gradient was brought to reductions, in order."""
        self.steps: dict[str, list[Step]] = {FORWARD.kind: [], BACKWARD.kind: []}
        """The forwards and the backwards, in their order."""
        self.met: dict[tuple[str, int | None], str] = {}
        """By kind of a tensor, and layer: the last collective to which the rank has brought one."""

    def look(
        self,
        log: Sequence[Any],
        writers: Mapping[int, object],
        first: object,
        lists: Brought,
        received: Sequence[tuple[Any, ...]],
    ) -> Past:
        """Add what is new in the log, and return this. ``writers``: by place, who wrote it if not the ``first``;
        ``received``: the messages that came, each with the place of its receive as the last item."""
        for at in range(self.looked_at, len(log)):
            record = log[at]
            if record.kind not in MARKS:
                self.operations[writers.get(at, first)].append(at)
            labels = record.labels
            if labels is None:
                if makes_weight_grads(record.kind):
                    self.gradients[record.layer] |= record.batches
                if record.kind in LOADS:
                    self.loaded.add(record.layer)
                elif stream_of(record.kind) == "compute":
                    for verb in {record.kind, OPERATIONS[record.kind].like} - {""}:
                        self.ran[verb, record.layer] |= record.batches
                    if record.kind in self.steps:
                        self.steps[record.kind].append((record.layer, record.batches))
            elif record.kind == SEND.kind:
                self.sent[labels.kind, labels.layer] |= dict.fromkeys(labels.batches, record.peer)
            elif record.group is not None:
                self.met |= dict.fromkeys([(labels.kind, one) for one in record.layers or [record.layer]], record.kind)
            if labels is not None and labels.kind == "WeightGrad" and sums(record.kind):
                brought = [(record.layer, labels.batches)]
                if record.layers:
                    brought = [(one.layer, one.batches) for one in lists[record.op] if one is not None]
                for layer, batches in brought:
                    self.reduced[layer, batches] = record.kind, record.op, record.group
                    if record.kind == SCATTERREDUCE.kind:
                        self.cuts[layer][record.op[0]] = None
                    self.axes[layer][record.op[0]] = None
                    self.summed[layer], self.brought[record.op, layer] = record.kind, batches
        self.looked_at = len(log)
        for *_, at in received[self.came :]:
            if log[at].labels is not None:
                self.senders[log[at].labels] = log[at].peer, at
        self.came = len(received)
        return self
