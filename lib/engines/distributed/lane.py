"""Moves real tensors between processes with torch.distributed, in a thread of its own.

The host says what can be moved. Since every rank hears that in the same order, blocking calls are enough, and no two
ranks can wait for each other. The learner's code computes meanwhile: that is overlap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

from ...record.labels import Labels
from ...record.table import collective, lane_of
from ...remote.wire import Wire, unpack_labels
from ..numbers import Numbers


class Broken(RuntimeError):
    """Raised when tensors cannot be moved any more, most often because another rank is gone."""


class Lane(threading.Thread):
    """A thread that moves tensors as it is told. ``groups``: torch's process groups, by their ranks."""

    def __init__(self, wire: Wire, numbers: Numbers, rank: int, groups: dict[tuple[int, ...], Any]) -> None:
        super().__init__(daemon=True, name="lane")
        self.wire, self.numbers, self.rank, self.groups = wire, numbers, rank, groups
        self.changed = threading.Condition()
        self.offered: dict[int, Any] = {}
        self.results: dict[int, Any] = {}
        self.times: dict[int, tuple[float, float]] = {}
        self.finals: dict[int, Any] = {}
        self.compared: Callable[[dict[int, dict[int, Any]]], None] = lambda finals: None
        """Called on rank 0 with all ranks' final weights, at the end."""
        self.watch: Callable[[], Any] = nullcontext
        self.trouble: BaseException | None = None
        self.ended = threading.Event()

    # -- the learner's thread ---------------------------------------------------------------------

    def offer(self, call: int, value: Any) -> None:
        """Hand over what a collective or a send carries."""
        with self.changed:
            self.offered[call] = value
            self.changed.notify_all()

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
            while True:
                message = self.wire.receive(longest=None)
                if message[0] == "end":
                    return
                if message[0] == "collect":
                    self._collect(message[1])
                else:
                    self._do(*message)
        except BaseException as error:
            with self.changed:
                self.trouble = error
                self.changed.notify_all()
        finally:
            self.ended.set()

    def _do(self, kind: str, call: int, ranks: list[int], inputs: list[Any], outputs: list[Any]) -> None:
        value = None
        if lane_of(kind) != "message" or ranks[0] == self.rank:
            with self.changed:
                self.changed.wait_for(lambda: call in self.offered)
                value = self.offered.pop(call)
        begun = time.monotonic()
        known = [None if one is None else unpack_labels(one) for one in inputs], [unpack_labels(one) for one in outputs]
        with self.watch():
            made = self._move(kind, value, ranks, *known)
        with self.changed:
            self.times[call] = begun, time.monotonic()
            self.results[call] = made
            self.changed.notify_all()

    def _collect(self, finals: list[list[Any]]) -> None:
        """Bring all final weights, (rank, layer, labels) of each, to rank 0, which compares them."""
        found: dict[int, dict[int, Any]] = {}
        for rank, layer, packed in finals:
            labels = unpack_labels(packed)
            if rank == 0 == self.rank:
                found.setdefault(0, {})[layer] = self.finals[layer]
            elif rank == self.rank:
                dist.send(self.numbers.expand(self.finals[layer], labels), 0)
            elif self.rank == 0:
                found.setdefault(rank, {})[layer] = self._received(labels, rank)
        if self.rank == 0:
            self.compared(found)

    def _move(
        self, kind: str, value: Any, ranks: list[int], inputs: Sequence[Labels | None], outputs: Sequence[Labels]
    ) -> Any:
        if lane_of(kind) == "message":
            sender, receiver = ranks
            if sender == self.rank:
                dist.send(self.numbers.expand(value, outputs[0]), receiver)
                return None
            return self._received(outputs[0], sender)
        carrier = GroupCarrier(self.numbers, ranks, ranks.index(self.rank), self.groups[tuple(ranks)])
        return collective(kind).move(carrier, value, inputs, outputs)

    def _received(self, labels: Labels, sender: int) -> Any:
        buffer = self.numbers.empty(labels)
        dist.recv(buffer, sender)
        return self.numbers.only_numbers(labels, buffer)


class GroupCarrier:
    """One rank's end of the links to a group (``record.operations.Carrier``), by torch.distributed."""

    def __init__(self, numbers: Numbers, ranks: Sequence[int], place: int, group: Any) -> None:
        self.numbers, self.ranks, self.place, self.group = numbers, ranks, place, group

    def total(self, value: Any, labels: Labels) -> Any:
        whole = self.numbers.expand(value, labels).clone()
        dist.all_reduce(whole, group=self.group)
        return self.numbers.only_numbers(labels, whole)

    def all_parts(self, value: Any, parts: Sequence[Labels]) -> list[Any]:
        """Return what each member brings. Parts that are not equally long are padded for the way."""
        own, lengths = self.numbers.expand(value, parts[self.place]), [self.numbers.shape(part)[-1] for part in parts]
        longest = max(lengths)
        found = [torch.empty((*own.shape[:-1], longest), dtype=own.dtype, device=own.device) for _ in parts]
        dist.all_gather(found, _filled(own, longest), group=self.group)
        cut = [one[..., :length].contiguous() for one, length in zip(found, lengths, strict=True)]
        return [self.numbers.only_numbers(part, one) for part, one in zip(parts, cut, strict=True)]

    def my_piece(self, value: Any, pieces: Sequence[Labels]) -> Any:
        expanded = [self.numbers.expand(value, piece) for piece in pieces]
        longest = max(piece.shape[-1] for piece in expanded)
        mine = torch.empty((*expanded[0].shape[:-1], longest), dtype=expanded[0].dtype, device=expanded[0].device)
        dist.reduce_scatter(mine, [_filled(piece, longest) for piece in expanded], group=self.group)
        piece = pieces[self.place]
        return self.numbers.only_numbers(piece, mine[..., : expanded[self.place].shape[-1]].contiguous())

    def sent_from(self, source: int, value: Any, labels: Labels) -> Any:
        own = self.place == source
        flat = self.numbers.expand(value, labels).clone() if own else self.numbers.empty(labels)
        dist.broadcast(flat, self.ranks[source], group=self.group)
        return self.numbers.only_numbers(labels, flat)

    def joined(self, values: Sequence[Any]) -> Any:
        return self.numbers.join(values)


def _filled(tensor: Any, length: int) -> Any:
    missing = length - tensor.shape[-1]
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor.contiguous()
