"""One rank of a run, in a process of its own: the learner's function, real tensors, and a line to the host.

The methods of its simulator are those of ``machine.interface.Simulator``, where they are explained.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from ...basics.asyncio_private import has_timers
from ...basics.errors import Place, PuzzleError, learner_line
from ...learner.dist import Dist
from ...learner.model import Model
from ...machine.cost import Shape
from ...machine.interface import AnySimulator, Token
from ...machine.mesh import Mesh
from ...record.operations import NO_OPTIONS, Options
from ...record.table import computation
from ...remote.remote_simulator import RemoteCall, RemoteRank, RemoteSimulator, RemoteTensor
from ...remote.wire import Wire, encode, pack, pack_error
from ...running.execution import execute, waiting_line
from ...running.run import Settings, check_function
from ...running.workload import Workload
from ..numbers import Numbers, elements
from .host import RECORDED, this_machine
from .lane import Broken, Lane


class Telling(Wire):
    """The line to the host, which hears with every question in which line of the learner's it is asked."""

    def write(self, text: str, deadline: float | None = None) -> None:
        super().write(f"[{text},{encode(learner_line())}]", deadline)


class RealTensor(RemoteTensor):
    """A tensor of the host's simulator, with its numbers."""

    data: Any = None
    simulator: RankSimulator

    def shard(self, index: int, total: int) -> Any:
        made = super().shard(index, total)
        made.data = self.simulator.numbers.cut(self.data, made.labels)
        return made

    def combine(self, other: Any) -> Any:
        made = super().combine(other)
        made.data = self.simulator.numbers.join([self.data, other.data])
        return made

    def add(self, other: Any) -> Any:
        made = super().add(other)
        made.data = self.simulator.numbers.add([self.data, other.data])
        return made


class RankSimulator(RemoteSimulator):
    """Simulator that ask the host, and compute what it allows. ``pace``: seconds that a tick takes at least, or 0."""

    tensor_type = RealTensor

    def __init__(self, wire: Wire, lane: Lane, pace: float) -> None:
        super().__init__(wire)
        self.lane, self.numbers, self.pace = lane, lane.numbers, pace
        self.stored_now = 0
        self.stored_at: list[int] = []  # how many numbers the dictionaries really had, at each record of the log
        self.took: list[tuple[float, float] | int] = []
        """For each record when it began and ended (of time.monotonic), or the number of its call."""

    def ask(self, verb: str, rank: RemoteRank, *arguments: Any) -> Any:
        """Return the host's answer. If the question leaves a record in the log, note the time and what is stored."""
        if verb in RECORDED:
            self.stored_at.append(self.stored_now)
            now = time.monotonic()
            self.took.append((now, now))
        return super().ask(verb, rank, *arguments)

    counts = False
    tell = soon = start = ask  # each rank has a line of its own, and the host numbers the calls of all

    def load_weights(self, rank: RemoteRank, layer: Any, shard: Any, total: int) -> Any:
        return self._loaded(*super().load_weights(rank, layer, shard, total))

    def load_adapter(self, rank: RemoteRank, layer: Any, shard: Any, total: int) -> Any:
        return self._loaded(*super().load_adapter(rank, layer, shard, total))

    def _loaded(self, weight: Any, state: Any) -> tuple[Any, Any]:
        weight.data, state.data = self.numbers.weight(weight.labels), self.numbers.opt_state(state.labels)
        return weight, state

    def get_activation(self, rank: RemoteRank, batches: frozenset[int]) -> Any:
        made = super().get_activation(rank, batches)
        made.data = self.numbers.inputs(made.labels.batches)
        return made

    def fake_grad(self, rank: RemoteRank, layer: Any, batches: frozenset[int]) -> Any:
        made = super().fake_grad(rank, layer, batches)
        made.data = self.numbers.made_up(made.labels)
        return made

    def compute(
        self,
        rank: RemoteRank,
        kind: str,
        layer: Any,
        operands: Sequence[Any],
        options: Options = NO_OPTIONS,
    ) -> Any:
        """Ask the host whether the operation may be and what it makes, then make the numbers here."""
        tick = self.time(rank) if self.pace else 0.0
        made = super().compute(rank, kind, layer, operands, options)
        ticks = self.time(rank) - tick if self.pace else 0.0
        begun = time.monotonic()
        row = computation(kind)
        names = row.following([operand.labels.kind for operand in operands])
        values = row.value(self.numbers, *row.given(names, [operand.data for operand in operands], options))
        for tensor, value in zip(made, values, strict=True):
            tensor.data = value
        time.sleep(max(0.0, begun + self.pace * ticks - time.monotonic()))
        self.took[-1] = begun, time.monotonic()
        return made

    def set_final_weight(self, rank: RemoteRank, layer: Any, weight: Any) -> None:
        super().set_final_weight(rank, layer, weight)
        self.lane.finals[int(layer)] = weight

    def meet(self, rank: RemoteRank, kind: str, operand: Any, layer: Any, axis: Any) -> RemoteCall:
        return self._offered(super().meet(rank, kind, operand, layer, axis), operand and operand.data)

    def meet_list(
        self, rank: RemoteRank, kind: str, operands: Sequence[Any], layers: Sequence[Any], axis: Any
    ) -> RemoteCall:
        values = [operand and operand.data for operand in operands]
        return self._offered(super().meet_list(rank, kind, operands, layers, axis), values)

    def pass_to(self, rank: RemoteRank, receiver: Any, operand: Any, value: object) -> RemoteCall:
        call = super().pass_to(rank, receiver, operand, value)
        return call if operand is None else self._offered(call, operand.data)

    def receive(self, rank: RemoteRank, src: Any) -> RemoteCall:
        return self._offered(super().receive(rank, src), None)

    def _offered(self, call: RemoteCall, value: Any) -> RemoteCall:
        self.took[-1] = call.number
        self.lane.offer(call.number, value)
        return call

    def fetch(self, call: RemoteCall) -> Any:
        """Return the result of an ended call, with its numbers, once they are here."""
        result = super().fetch(call)
        if isinstance(result, RealTensor):
            result.data = self.lane.result(call.number)
        elif isinstance(result, list):
            for tensor, value in zip(result, self.lane.result(call.number), strict=True):
                tensor.data = value
        return result

    def decide_next(self) -> bool:
        """Wait until something of this rank can go on. Return False if that is only a timer."""
        timer = has_timers(asyncio.get_running_loop())
        lines = filter(None, map(waiting_line, asyncio.all_tasks()))
        return bool(self.ask("decide_next", RemoteRank(self.lane.rank), timer, next(lines, "")[:200]))

    def store(self, rank: RemoteRank, token: Token) -> None:
        super().store(rank, token)
        self.stored_now += elements(token.data)  # type: ignore[attr-defined]

    def drop(self, rank: RemoteRank, token: Token) -> None:
        super().drop(rank, token)
        self.stored_now -= elements(token.data)  # type: ignore[attr-defined]


class Printing:
    """The rank's stdout, which sends whole lines to the host to be printed there."""

    encoding = "utf-8"

    def __init__(self, wire: Wire) -> None:
        self.wire, self.line = wire, ""

    def write(self, text: str) -> int:
        self.line += text
        if "\n" in self.line:
            self.flush()
        return len(text)

    def flush(self) -> None:
        if self.line:
            self.wire.send(["print", self.line])
            self.line = ""


class Meter:
    """Counts the bytes of all tensors that are alive in a rank, stored or not (``now``), and the most ever (``peak``).

    torch knows every tensor that is made: a dispatch mode sees it, and a finalizer of its storage says when it is gone.
    Besides what is stored there are the inputs of operations while they run, their gradients, buffers of collectives,
    and m, v and the update of Adam.
    """

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.known: set[int] = set()
        self.lock = threading.RLock()

    def watch(self) -> Any:
        """Return a context that each thread which computes has to enter."""
        return _Watch(self)

    def saw(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor, unless it is known already."""
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        with self.lock:
            if key in self.known or not size:
                return
            self.known.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        with self.lock:
            self.known.discard(key)
            self.now -= size


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Looks at what every operation of torch makes."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in tree_iter(made):
            if isinstance(one, torch.Tensor):
                self.meter.saw(one)
        return made


# -- the process -----------------------------------------------------------------------------------------


def connect(place: Mapping[str, Any], rank: int, line: str, about: Mapping[str, Any]) -> socket.socket:
    """Return a socket to the host of a run, on which the rank has said who it is."""
    end = socket.create_connection((place["address"], place["port"]), timeout=30)
    end.settimeout(None)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    Wire(end).send({"token": place["token"], "rank": rank, "line": line, "pid": os.getpid(), **about})
    return end


def be_a_rank(
    place: Mapping[str, Any],
    rank: int,
    device: str,
    store: Any,
    shape: Shape,
    work: Workload,
    settings: Settings,
    fn: Callable[[], Callable[[Model], Any]],
) -> bool:
    """Compute, communicate, report. Return whether all went well. ``place``: that of the host's door; ``store``: one of
    torch's, through which the ranks meet; ``fn()``: the learner's function."""
    torch.set_num_threads(1)
    if device != "cpu":
        torch.cuda.set_device(device)
    backend = "gloo" if device == "cpu" else "nccl"
    everywhere = "cpu:gloo,cuda:nccl" if shape.mesh.hosts and torch.cuda.is_available() else backend
    numbers = Numbers(work, device)
    about = {
        "backend": backend,
        "device": device,
        "sizes": [numbers.parameters, work.length * work.hidden, numbers.of_adapter],
    }
    ask, lane_wire = Telling(connect(place, rank, "ask", about)), Wire(connect(place, rank, "lane", about))
    meter = Meter() if settings.meter else None
    watch, lane = meter.watch if meter else nullcontext, None
    try:
        dist.init_process_group(everywhere, store=store, rank=rank, world_size=shape.everyone)
        lane = Lane(lane_wire, numbers, rank, _groups(shape.mesh), shape.mesh.beside.keys(), watch)
        _, said_at = lane_wire.receive(longest=None)  # "start": all are there
        clock = time.monotonic() - said_at if place["boot"] != this_machine() else 0.0
        with redirect_stdout(Printing(ask)):
            report = _train(RankSimulator(ask, lane, settings.pace), shape, fn)
        live = meter.peak // numbers.dtype.itemsize if meter else None
        said: list[object] = ["done", {**report, "clock": clock, "live": live}]
    except PuzzleError as error:
        said = ["failed", pack_error(error), isinstance(error.__cause__, Broken)]
    except BaseException as error:
        what = "the code raised" if lane else "it cannot join the other ranks:"
        failed = PuzzleError(f"{what} {type(error).__name__}: {error}", where=Place(rank), line="")
        said = ["failed", pack_error(failed), False]
    ask.send(said)
    if lane is not None and lane.is_alive():
        lane.join()
    return said[0] == "done"


def _train(simulator: RankSimulator, shape: Shape, fn: Callable[[], Callable[[Model], Any]]) -> dict[str, Any]:
    """Run the learner's function. Return what there is to report of it."""
    lane, work = simulator.lane, simulator.numbers.work
    model = Model(lane.rank, Dist.of(shape, cast(AnySimulator, simulator)), work.layers, work.batches)
    function = fn()
    check_function(function)
    lane.start()
    with lane.watch():
        execute(function, [model], None)
    sys.stdout.flush()
    return {
        "took": simulator.took,
        "stored": simulator.stored_at,
        "finals": [[layer, pack(weight.labels)] for layer, weight in lane.finals.items()],
    }


def _groups(mesh: Mesh) -> dict[tuple[int, ...], Any]:
    """Return a process group for every group of ranks that can meet. All ranks make all of them, in the same order."""
    parts = dict.fromkeys(mesh.group(rank, axis).ranks for axis in mesh.axes for rank in range(mesh.ranks))
    groups = {ranks: dist.new_group(list(ranks)) for ranks in parts if len(ranks) < mesh.ranks}
    everyone = tuple(range(mesh.ranks))
    return {**groups, everyone: dist.new_group(list(everyone)) if mesh.hosts else dist.group.WORLD}
