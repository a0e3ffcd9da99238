"""How real tensors travel between processes: torch.distributed, in a thread of its own, in one order for all.

The host says what can be moved (see ``host``). Since every rank hears of everything in the same order, blocking
calls are enough, and no two ranks can wait for each other. The learner's code computes meanwhile: that is overlap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

from ..record.labels import Labels
from ..remote.wire import Wire, unpack_labels
from .numbers import Numbers


class Broken(RuntimeError):
    """Tensors cannot be moved any more: most often because another rank is gone."""


class Lane(threading.Thread):
    """Moves tensors as it is told. ``groups``: torch's process groups, by their ranks."""

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
        """What a collective or a send carries."""
        with self.changed:
            self.offered[call] = value
            self.changed.notify_all()

    def result(self, call: int) -> Any:
        """What has come of a collective or a receive, when it is there."""
        with self.changed:
            self.changed.wait_for(lambda: call in self.results or self.trouble is not None)
            if call in self.results:
                return self.results.pop(call)
        raise Broken(f"torch.distributed failed: {self.trouble}") from self.trouble

    # -- its own -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do as told until the end."""
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
        if kind != "pass_to" or ranks[0] == self.rank:
            with self.changed:
                self.changed.wait_for(lambda: call in self.offered)
                value = self.offered.pop(call)
        begun = time.monotonic()
        known = [unpack_labels(one) for one in inputs], [unpack_labels(one) for one in outputs]
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
        self, kind: str, value: Any, ranks: list[int], inputs: Sequence[Labels], outputs: Sequence[Labels]
    ) -> Any:
        numbers = self.numbers
        if kind == "pass_to":
            sender, receiver = ranks
            if sender == self.rank:
                dist.send(numbers.expand(value, inputs[0]), receiver)
                return None
            return self._received(inputs[0], sender)
        place, group = ranks.index(self.rank), self.groups[tuple(ranks)]
        if kind == "allreduce":
            whole = numbers.expand(value, outputs[0]).clone()
            dist.all_reduce(whole, group=group)
            return self._value(outputs[0], whole)
        if kind == "allgather":
            own = numbers.expand(value, inputs[place])
            parts = self._gather(own, [numbers.shape(labels) for labels in inputs], group)
            return numbers.join([self._value(labels, part) for labels, part in zip(inputs, parts, strict=True)])
        pieces = [numbers.expand(value, labels) for labels in outputs]
        return self._value(outputs[place], self._scatter(pieces, place, group))

    def _value(self, labels: Labels, flat: torch.Tensor) -> Any:
        """The value of what has come. Its fingerprint is not known here, where nobody asks for it."""
        mark = dict.fromkeys(labels.batches, 0) if labels.kind in ("Activation", "ActivationGrad") else 0
        return self.numbers.of(labels, mark, flat)

    def _received(self, labels: Labels, sender: int) -> Any:
        shape, numbers = self.numbers.shape(labels), self.numbers
        buffer = torch.empty(shape, dtype=numbers.dtype, device=numbers.device)
        dist.recv(buffer, sender)
        return self._value(labels, buffer)

    def _gather(self, own: Any, sizes: Sequence[Any], group: Any) -> list[Any]:
        """Everyone's part. Where they are not equally long they are filled up for the way."""
        longest = max(size[-1] for size in sizes)
        parts = [torch.empty((*own.shape[:-1], longest), dtype=own.dtype, device=own.device) for _ in sizes]
        dist.all_gather(parts, _filled(own, longest), group=group)
        return [part[..., : size[-1]].contiguous() for part, size in zip(parts, sizes, strict=True)]

    def _scatter(self, pieces: Sequence[Any], place: int, group: Any) -> Any:
        """The sum of everyone's piece for this rank."""
        longest = max(piece.shape[-1] for piece in pieces)
        mine = torch.empty((*pieces[0].shape[:-1], longest), dtype=pieces[0].dtype, device=pieces[0].device)
        dist.reduce_scatter(mine, [_filled(piece, longest) for piece in pieces], group=group)
        return mine[..., : pieces[place].shape[-1]].contiguous()


def _filled(tensor: Any, length: int) -> Any:
    missing = length - tensor.shape[-1]
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor.contiguous()
