"""Moves real tensors between processes with torch.distributed, in a thread of its own.

The host says what can be moved. Since every rank hears that in the same order, blocking calls are enough, and no two
ranks can wait for each other. The learner's code computes meanwhile: that is overlap.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ...record.labels import Labels
from ...record.table import collective, lane_of
from ...remote.wire import Wire, unpack_labels
from ..numbers import Numbers
from ..reference import compare


class Broken(RuntimeError):
    """Raised when tensors cannot be moved any more, most often because another rank is gone."""


class Lane(threading.Thread):
    """A thread that moves tensors as it is told. ``groups``: torch's process groups, by their ranks; ``hosts``: the
    ranks that have no GPU; ``watch()``: a context in which it does so."""

    def __init__(
        self,
        wire: Wire,
        numbers: Numbers,
        rank: int,
        groups: dict[tuple[int, ...], Any],
        hosts: Collection[int],
        watch: Callable[[], Any],
    ) -> None:
        super().__init__(daemon=True, name="lane")
        self.wire, self.numbers, self.rank, self.groups, self.watch = wire, numbers, rank, groups, watch
        self.hosts = hosts
        self.changed = threading.Condition()
        self.offered: dict[int, Any] = {}
        self.results: dict[int, Any] = {}
        self.times: dict[int, tuple[float, float]] = {}
        self.finals: dict[int, Any] = {}  # this rank's final weights, by layer: tensors with their numbers as ``data``
        self.trouble: BaseException | None = None

    # -- the learner's thread ---------------------------------------------------------------------

    def offer(self, call: int, value: Any) -> None:
        """Temporaries over what a call carries; None if it brings nothing."""
        self._note(self.offered, call, value)

    def result(self, call: int) -> Any:
        """Wait for the result of a collective or a receive, and return it. Raise Broken if it cannot come."""
        with self.changed:
            self.changed.wait_for(lambda: call in self.results or self.trouble is not None)
            if call in self.results:
                return self.results.pop(call)
        raise Broken(f"torch.distributed failed: {self.trouble}") from self.trouble

    # -- its own -------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while (message := self.wire.receive(longest=None))[0] != "end":
                if message[0] == "collect":
                    self._collect(message[1])
                else:
                    self._do(*message)
        except BaseException as error:
            with self.changed:
                self.trouble = error
                self.changed.notify_all()

    def _do(self, kind: str, call: int, ranks: list[int], inputs: list[Any], outputs: list[Any]) -> None:
        with self.changed:
            self.changed.wait_for(lambda: call in self.offered)
            value = self.offered.pop(call)
        begun = time.monotonic()
        with self.watch():
            if lane_of(kind) == "message":
                made = self._passed(value, unpack_labels(outputs[0]), *ranks)
            elif isinstance(value, list):  # one call for several layers: tensor by tensor, in the same order everywhere
                places = zip(value, zip(*inputs, strict=True), zip(*outputs, strict=True), strict=True)
                made = [self._met(kind, ranks, *place) for place in places]
            else:
                made = self._met(kind, ranks, value, inputs, outputs)
        self.times[call] = begun, time.monotonic()
        self._note(self.results, call, made)

    def _met(self, kind: str, ranks: Sequence[int], value: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Move one tensor of each member of a group. Return what this rank gets."""
        brought, got = ([labels and unpack_labels(labels) for labels in side] for side in (inputs, outputs))
        carrier = GroupCarrier(self.numbers, ranks, ranks.index(self.rank), self.groups[tuple(ranks)])
        return collective(kind).moved(carrier, value, brought, got)

    def _note(self, values: dict[int, Any], call: int, value: Any) -> None:
        with self.changed:
            values[call] = value
            self.changed.notify_all()

    def _passed(self, value: Any, labels: Labels, sender: int, receiver: int) -> Any:
        """Send or receive a value. Return it at the receiver, and None at the sender. Between a device and a host it
        goes through the memory of the processor."""
        through = "cpu" if sender in self.hosts or receiver in self.hosts else self.numbers.device
        if sender == self.rank:
            return dist.send(self.numbers.expand(value, labels).to(through), receiver)
        buffer = torch.empty_like(self.numbers.empty(labels), device=through)
        dist.recv(buffer, sender)
        return self.numbers.only_numbers(labels, buffer.to(self.numbers.device))

    def _collect(self, finals: list[list[Any]]) -> None:
        """Bring all final weights, (rank, layer, labels) of each, to rank 0, which reports how they compare. Each rank
        reports when everything was moved."""
        found: dict[int, dict[int, Any]] = {}
        for rank, layer, packed in finals:
            value = self.finals[layer].data if rank == self.rank else None
            if rank != 0 and self.rank in (rank, 0):
                value = self._passed(value, unpack_labels(packed), rank, 0)
            found.setdefault(rank, {})[layer] = value
        rows = compare(self.numbers.work, found).rows if self.rank == 0 else []
        self.wire.send([rows, list(self.times.items())])


class GroupCarrier:
    """One rank's end of the links to a group (``record.operations.Carrier``), by torch.distributed."""

    def __init__(self, numbers: Numbers, ranks: Sequence[int], place: int, group: Any) -> None:
        self.numbers = self.values = numbers
        self.ranks, self.place, self.group = ranks, place, group

    def total(self, value: Any, labels: Labels) -> Any:
        whole = self.numbers.expand(value, labels).clone()
        dist.all_reduce(whole, group=self.group)
        return self.numbers.only_numbers(labels, whole)

    def all_parts(self, value: Any, parts: Sequence[Labels]) -> list[Any]:
        """Return what each member brings. Parts that are not equally large are padded for the way."""
        own, shapes = self.numbers.expand(value, parts[self.place]).reshape(1, -1), [*map(self.numbers.shape, parts)]
        sizes = [rows * length for rows, length in shapes]
        found = [own.new_empty(1, max(sizes)) for _ in parts]
        dist.all_gather(found, _filled(own, max(sizes)), group=self.group)
        cut = [one[0, :size].view(shape).clone() for one, size, shape in zip(found, sizes, shapes, strict=True)]
        return [self.numbers.only_numbers(part, one) for part, one in zip(parts, cut, strict=True)]

    def my_piece(self, value: Any, pieces: Sequence[Labels]) -> Any:
        brought = [self.numbers.expand(value, piece) for piece in pieces]
        longest, own = max(piece.shape[1] for piece in brought), brought[self.place]
        mine = own.new_empty(len(own), longest)
        dist.reduce_scatter(mine, [_filled(piece, longest) for piece in brought], group=self.group)
        return self.numbers.only_numbers(pieces[self.place], mine[:, : own.shape[1]].contiguous())

    def sent_from(self, source: int, value: Any, labels: Labels) -> Any:
        own = self.place == source
        flat = self.numbers.expand(value, labels).clone() if own else self.numbers.empty(labels)
        dist.broadcast(flat, self.ranks[source], group=self.group)
        return self.numbers.only_numbers(labels, flat)


def _filled(tensor: torch.Tensor, length: int) -> torch.Tensor:
    missing = length - tensor.shape[1]
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor
