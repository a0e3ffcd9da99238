"""Moves real tensors between processes with torch.distributed, in threads of their own.

What travels, and in which order, is known from the simulated run. Since that order is the same on every rank, blocking
calls are enough, and no two ranks can wait for each other. The rank computes meanwhile: that is overlap. As on the
simulated machine it has two links, one for collectives and sends, and one for receives. So what goes round a ring moves
on all ranks at once. An exchange is one call, made when the rank comes to it (not on GPUs: NCCL's batches meet only
batches).
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

import torch
import torch.distributed as dist

from ...machine.mesh import Mesh
from ...record.labels import Labels
from ...record.operations import Value
from ...record.table import collective, stream_of
from ..numbers import Numbers
from .recording import Move


class Broken(RuntimeError):
    """Raised when tensors cannot be moved any more, most often because another rank is gone."""


class Links:
    """Threads that carry out the moves of one rank, those of a link in order, each as soon as the rank has started it,
    in a context that ``watch()`` gives. ``times``: by place in the log, when each began and ended (of time.monotonic).
    On GPUs there is one link only: there a pair of ranks has one queue for both directions.
    """

    def __init__(
        self, rank: int, numbers: Numbers, mesh: Mesh, moves: Sequence[Move], watch: Callable[[], Any]
    ) -> None:
        self.rank, self.numbers, self.watch = rank, numbers, watch
        self.links: tuple[list[Move], list[Move]] = [], []
        for move in moves:
            receives = stream_of(move.kind) == "message" and move.ranks[1] == rank and numbers.device == "cpu"
            if rank in move.ranks:
                self.links[receives].append(move)
        self.groups, self.hosts = _groups(mesh, moves), mesh.devices_of.keys()
        self.moves = {move.places[move.ranks.index(rank)]: move for link in self.links for move in link}
        self.started = {place: Future[Value]() for place in self.moves}
        self.results = {place: Future[Value]() for place in self.moves}
        self.exchange: dict[int, Value] | None = None  # of one that has begun, what its parts carry
        self.parts: dict[int, tuple[dist.P2POp, Any, float]] = {}  # with torch's call, and when it was started
        self.times: dict[int, tuple[float, float]] = {}
        self.ended = list[Future[None]]()

    def start(self) -> None:
        """Start the threads."""
        pool = ThreadPoolExecutor(len(self.links), "links")
        self.ended = [pool.submit(self._carry_out, moves) for moves in self.links]

    def start_call(self, place: int, value: Value) -> None:
        """The rank has started the call at a place in its log, with what it carries; None if it brings nothing."""
        if self.exchange is None:
            self.started[place].set_result(value)
        else:
            self.exchange[place] = value

    def group(self, begins: bool) -> None:
        """An exchange begins, or has all its parts, which are started now. Raise Broken if they cannot be."""
        parts, self.exchange = self.exchange, {} if begins and self.numbers.device == "cpu" else None
        if parts:
            ends, begun = [self._end(value, self.moves[place]) for place, value in parts.items()], time.monotonic()
            try:
                calls = dist.batch_isend_irecv(ends)
            except RuntimeError as error:
                raise Broken(f"torch.distributed failed: {error}") from error
            for place, end, call in zip(parts, ends, calls, strict=True):
                self.parts[place] = end, call, begun
                self.started[place].set_result(None)

    def result(self, place: int) -> Value:
        """Wait for the result of a collective or a receive, and return it. Raise Broken if it cannot come."""
        value = self.results[place].result()
        del self.results[place]  # nothing is kept here that the rank has dropped
        return value

    def finish(self) -> None:
        """Wait until everything was moved. Raise Broken if something cannot be."""
        for ended in as_completed(self.ended):
            ended.result()

    def _carry_out(self, moves: Sequence[Move]) -> None:
        try:
            for move in moves:
                self._do(move, move.places[move.ranks.index(self.rank)])
        except BaseException as error:
            broken = Broken(f"torch.distributed failed: {error}")
            for result in [*self.results.values()]:
                if not result.done():
                    result.set_exception(broken)
            raise broken from error

    def _do(self, move: Move, place: int) -> None:
        value = self.started[place].result()
        del self.started[place]
        begun = time.monotonic()
        with self.watch():
            if place in self.parts:
                end, call, begun = self.parts.pop(place)
                call.wait()
                made = self._came(end, move)
            elif stream_of(move.kind) == "message":
                made = self.passed(value, move)
            elif isinstance(value, list):  # one call for several layers: tensor by tensor, in the same order everywhere
                places = zip(value, zip(*move.inputs, strict=True), zip(*move.outputs, strict=True), strict=True)
                made = [self._met(move, *each) for each in places]
            else:
                made = self._met(move, value, move.inputs, move.outputs)
        self.times[place] = begun, time.monotonic()
        self.results[place].set_result(made)

    def _met(self, move: Move, value: Value, inputs: Sequence[Value], outputs: Sequence[Value]) -> Value:
        """Move one tensor of each member of a group. Return what this rank gets."""
        carrier = GroupCarrier(self.numbers, move.ranks, move.ranks.index(self.rank), self.groups[move.ranks])
        return collective(move.kind).moved(carrier, value, inputs, outputs)

    def passed(self, value: Value, move: Move) -> Value:
        """Send or receive a value. Return it at the receiver, and None at the sender."""
        end = self._end(value, move)
        end.op(end.tensor, end.peer, tag=end.tag).wait()
        return self._came(end, move)

    def _end(self, value: Value, move: Move) -> dist.P2POp:
        """Return this rank's end of a message. Between a device and a host it goes through the memory of the processor.
        Of a plain message, which has no labels, a single number travels: what it says is known from the simulated run.
        Messages are told apart by where they stand in the log of the sender."""
        (sender, receiver), labels = move.ranks, move.outputs[0]
        through = "cpu" if sender in self.hosts or receiver in self.hosts else self.numbers.device
        tensor = torch.empty(1) if labels is None else self.numbers.empty(labels)
        if sender == self.rank:
            tensor = tensor if labels is None else self.numbers.expand(value, labels)
            return dist.P2POp(dist.isend, tensor.to(through), receiver, tag=move.places[0])
        return dist.P2POp(dist.irecv, torch.empty_like(tensor, device=through), sender, tag=move.places[0])

    def _came(self, end: dist.P2POp, move: Move) -> Value:
        """Return what a message has brought."""
        nothing = end.op is dist.isend or move.outputs[0] is None
        return None if nothing else self.numbers.of(move.outputs[0], end.tensor.to(self.numbers.device))


def _groups(mesh: Mesh, moves: Sequence[Move]) -> dict[tuple[int, ...], Any]:
    """Return a process group for every group of ranks that meets. All ranks make all of them, in the same order."""
    parts = dict.fromkeys(move.ranks for move in moves if stream_of(move.kind) == "collective")
    groups = {ranks: dist.new_group(list(ranks)) for ranks in parts if len(ranks) < mesh.ranks}
    everyone = tuple(range(mesh.ranks))
    return {**groups, everyone: dist.new_group(list(everyone)) if mesh.hosts else dist.group.WORLD}


class GroupCarrier:
    """One rank's end of the links to a group (``record.operations.Carrier``), by torch.distributed."""

    def __init__(self, numbers: Numbers, ranks: Sequence[int], place: int, group: Any) -> None:
        self.numbers = self.values = numbers
        self.ranks, self.place, self.group = ranks, place, group

    def total(self, value: Value, labels: Labels) -> Value:
        whole = self.numbers.expand(value, labels).clone()
        dist.all_reduce(whole, group=self.group)
        return self.numbers.of(labels, whole)

    def all_parts(self, value: Value, parts: Sequence[Labels]) -> list[Value]:
        """Return what each member brings. Parts that are not equally large are padded for the way."""
        own, sizes = self.numbers.expand(value, parts[self.place]).reshape(1, -1), self._sizes(parts)
        found = [own.new_empty(1, max(sizes)) for _ in parts]
        dist.all_gather(found, _filled(own, max(sizes)), group=self.group)
        return self._values([one[0, :size] for one, size in zip(found, sizes, strict=True)], parts)

    def my_piece(self, value: Value, pieces: Sequence[Labels]) -> Value:
        brought = [self.numbers.expand(value, piece) for piece in pieces]
        longest, own = max(piece.shape[1] for piece in brought), brought[self.place]
        mine = own.new_empty(len(own), longest)
        dist.reduce_scatter(mine, [_filled(piece, longest) for piece in brought], group=self.group)
        return self.numbers.of(pieces[self.place], mine[:, : own.shape[1]].contiguous())

    def exchanged(self, parts: Sequence[tuple[Value, Labels]], coming: Sequence[Labels]) -> list[Value]:
        sizes = self._sizes(coming)
        going = [self.numbers.expand(value, labels).reshape(-1) for value, labels in parts]
        came = going[0].new_empty(sum(sizes))
        dist.all_to_all_single(came, torch.cat(going), sizes, [*map(len, going)], group=self.group)
        return self._values(came.split(sizes), coming)

    def sent_from(self, source: int, value: Value, labels: Labels) -> Value:
        own = self.place == source
        flat = self.numbers.expand(value, labels).clone() if own else self.numbers.empty(labels)
        dist.broadcast(flat, self.ranks[source], group=self.group)
        return self.numbers.of(labels, flat)

    def _sizes(self, parts: Sequence[Labels]) -> list[int]:
        return [math.prod(self.numbers.shape(part)) for part in parts]

    def _values(self, came: Sequence[torch.Tensor], parts: Sequence[Labels]) -> list[Value]:
        """Return what these numbers are, which are views."""
        pairs = zip(parts, came, strict=True)
        return [self.numbers.of(part, one.view(self.numbers.shape(part)).clone()) for part, one in pairs]


def _filled(tensor: torch.Tensor, length: int) -> torch.Tensor:
    missing = length - tensor.shape[1]
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor
