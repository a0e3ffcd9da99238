"""One rank of a run, in a process of its own: the learner's function, real tensors, and a line to the host."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

from ..basics.asyncio_private import has_timers
from ..basics.errors import PuzzleError, is_learners
from ..learner.dist import Dist
from ..learner.model import Model
from ..machine.mesh import Mesh
from ..machine.tensor_state import Token
from ..record.labels import Labels
from ..remote.remote_books import RemoteAccount, RemoteBooks, RemoteEntry, RemoteFlight
from ..remote.wire import Wire, pack_error, pack_labels
from ..running.execution import play, waiting_line
from ..running.run import check_function
from ..running.workload import Workload
from .host import RECORDED
from .lane import Broken, Lane
from .meter import Meter
from .numbers import Numbers, elements
from .reference import compare


class Telling(Wire):
    """The line to the host. It hears with every question in which line of the learner's it is asked."""

    def send(self, message: Any, deadline: float | None = None) -> None:
        """Write a message."""
        super().send([message, _place()], deadline)


def _place() -> str:
    frame = sys._getframe(2)
    while frame is not None and not is_learners(frame.f_code):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return ""
    code = frame.f_code
    return f"line {frame.f_lineno} of {os.path.basename(code.co_filename)} in {code.co_name}"


class RealEntry(RemoteEntry):
    """A tensor of the host's books, with its numbers."""

    data: Any = None
    books: RankBooks

    def shard(self, index: int, total: int) -> Any:
        """Piece ``index`` of ``total`` of this one."""
        made = super().shard(index, total)
        made.data = self.books.numbers.cut(self.data, self.labels, made.labels)
        return made

    def combine(self, other: Any) -> Any:
        """This part and that one as one."""
        made = super().combine(other)
        made.data = self.books.numbers.join([self.data, other.data])
        return made

    def add(self, other: Any) -> Any:
        """The sum of two gradients."""
        made = super().add(other)
        made.data = self.books.numbers.add([self.data, other.data])
        return made


class RankBooks(RemoteBooks):
    """Asks the host, and computes what it allows. ``pace``: seconds that a tick takes at least, or 0."""

    entry_type = RealEntry

    def __init__(self, wire: Wire, rank: int, lane: Lane, numbers: Numbers, pace: float) -> None:
        super().__init__(wire)
        self.rank = rank
        self.lane, self.numbers, self.pace = lane, numbers, pace
        self.finals: dict[int, Any] = {}
        self.labels: dict[int, Labels] = {}
        self.stored_now = 0
        self.stored_at: list[int] = []
        """Real elements in the dictionaries, at each record of the log."""
        self.took: list[tuple[float, float] | int] = []
        """For each record from when to when it took, or its call's number."""

    def ask(self, verb: str, account: RemoteAccount, *arguments: Any) -> Any:
        """The host's answer."""
        if verb in RECORDED or verb == "finish":
            self.stored_at.append(self.stored_now)
            now = time.monotonic()
            self.took.append((now, now))
        return super().ask(verb, account, *arguments)

    def _computed(self, ticks: float, work: Callable[[], Any]) -> Any:
        begun = time.monotonic()
        made = work()
        left = self.pace * ticks - (time.monotonic() - begun)
        if left > 0:
            time.sleep(left)
        self.took[-1] = begun, time.monotonic()
        return made

    # -- what has numbers ------------------------------------------------------------------------------

    def load_weights(self, account: RemoteAccount, layer: Any, shard: Any, total: int) -> Any:
        """A piece of the weight and of the optimizer state of a layer."""
        weight, state = super().load_weights(account, layer, shard, total)
        weight.data, state.data = self.numbers.weight(weight.labels), self.numbers.opt_state(state.labels)
        return weight, state

    def get_activation(self, account: RemoteAccount, batches: frozenset[int]) -> Any:
        """The input of layer 0 for these micro-batches."""
        made = super().get_activation(account, batches)
        made.data = self.numbers.inputs(made.labels.batches)
        return made

    def fake_grad(self, account: RemoteAccount, layer: Any, batches: frozenset[int]) -> Any:
        """A gradient out of nothing."""
        made = super().fake_grad(account, layer, batches)
        made.data = self.numbers.made_up(made.labels) if made.labels.batches else self.numbers.zero
        return made

    def forward(self, account: RemoteAccount, layer: Any, *operands: Any) -> Any:
        """The activation that a layer makes of its input."""
        inp, weight = (one.data for one in operands)
        made = super().forward(account, layer, *operands)
        made.data = self._computed(len(made.labels.batches), lambda: self.numbers.forward(inp, weight))
        return made

    def loss(self, account: RemoteAccount, inp: Any) -> Any:
        """The gradient of the loss."""
        made = super().loss(account, inp)
        made.data = self._computed(0, lambda: self.numbers.loss(inp.data))
        return made

    def backward(self, account: RemoteAccount, layer: Any, *operands: Any) -> Any:
        """The gradients of the weight and of the input of a layer."""
        inp, grad, weight = (one.data for one in operands)
        of_weight, of_input = super().backward(account, layer, *operands)
        work = lambda: self.numbers.backward(inp, grad, weight)  # noqa: E731
        of_weight.data, of_input.data = self._computed(len(of_weight.labels.batches), work)
        return of_weight, of_input

    def update(self, account: RemoteAccount, layer: Any, *operands: Any) -> Any:
        """Weight and state after an optimizer step."""
        grad, weight, state = (one.data for one in operands)
        new, kept = super().update(account, layer, *operands)
        new.data, kept.data = self._computed(0.5, lambda: self.numbers.update(weight, state, grad, True))
        return new, kept

    def set_final_weight(self, account: RemoteAccount, layer: Any, weight: Any) -> None:
        """What the rank answers for a layer."""
        super().set_final_weight(account, layer, weight)
        self.finals[int(layer)] = weight.data
        self.labels[int(layer)] = weight.labels

    # -- calls -----------------------------------------------------------------------------------------

    def meet(self, account: RemoteAccount, kind: str, operand: Any, layer: Any, axis: Any) -> RemoteFlight:
        """Start a collective."""
        value = operand.data
        flight = super().meet(account, kind, operand, layer, axis)
        return self._started(flight, value)

    def pass_to(self, account: RemoteAccount, rank: Any, operand: Any, value: object) -> RemoteFlight:
        """Start a send."""
        data = None if operand is None else operand.data
        flight = super().pass_to(account, rank, operand, value)
        return flight if operand is None else self._started(flight, data)

    def receive(self, account: RemoteAccount, src: Any) -> RemoteFlight:
        """Start a receive."""
        flight = super().receive(account, src)
        self.took[-1] = flight.number
        return flight

    def _started(self, flight: RemoteFlight, value: Any) -> RemoteFlight:
        self.took[-1] = flight.number
        self.lane.offer(flight.number, value)
        return flight

    def fetch(self, flight: RemoteFlight) -> Any:
        """The result of an ended call, when its numbers are here, too."""
        result = super().fetch(flight)
        if isinstance(result, RealEntry):
            result.data = self.lane.result(flight.number)
        return result

    def settle(self) -> bool:
        """All coroutines wait: until something of this rank can go on."""
        timer = has_timers(asyncio.get_running_loop())
        lines = filter(None, map(waiting_line, asyncio.all_tasks()))
        return bool(self.ask("settle", RemoteAccount(self.rank), timer, next(lines, "")[:200]))

    # -- what is stored ---------------------------------------------------------------------------------

    def store(self, account: RemoteAccount, token: Token) -> None:
        """A dictionary of this rank now holds the tensor (once more)."""
        super().store(account, token)
        self.stored_now += elements(token.data)  # type: ignore[attr-defined]

    def drop(self, account: RemoteAccount, token: Token) -> None:
        """A dictionary of this rank no longer holds the tensor (once less)."""
        super().drop(account, token)
        self.stored_now -= elements(token.data)  # type: ignore[attr-defined]


class Printing:
    """The rank's stdout: what is printed is printed by the host."""

    encoding = "utf-8"

    def __init__(self, wire: Wire) -> None:
        self.wire, self.line = wire, ""

    def write(self, text: str) -> int:
        """Take a text; whole lines go."""
        self.line += text
        if "\n" in self.line:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Send what there is."""
        if self.line:
            self.wire.send(["print", self.line])
            self.line = ""


# -- the process -----------------------------------------------------------------------------------------


def connect(task: Mapping[str, Any], rank: int, line: str, **more: Any) -> socket.socket:
    """A line to the host of a run."""
    end = socket.create_connection((task["address"], task["port"]), timeout=30)
    end.settimeout(None)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    Wire(end).send({"token": task["token"], "rank": rank, "line": line, "pid": os.getpid(), **more})
    return end


def work(
    task: Mapping[str, Any], rank: int, fn: Callable[[], Callable[[Model], Any]], join: Callable[[str], None]
) -> bool:
    """Be a rank of a run: compute, talk, hand in; whether all went well.

    ``fn()``: the learner's function; ``join(backend)``: initializes torch.distributed.
    """
    torch.set_num_threads(1)
    size, options = task["size"], task["options"]
    device = _device(options, rank, size["ranks"], task.get("local_rank"))
    backend = "nccl" if device.startswith("cuda") else "gloo"
    numbers = Numbers(Workload(size["layers"], size["batches"], **options["work"]), device)
    sizes = [numbers.parameters, numbers.work.length * numbers.work.hidden]
    ask = Telling(connect(task, rank, "ask", sizes=sizes, backend=backend, device=device))
    lane_wire = Wire(connect(task, rank, "lane"))
    join(backend)
    lane = Lane(lane_wire, numbers, rank, _groups(Mesh(size["ranks"], size.get("mesh"), size.get("node_size"))))
    lane_wire.receive(longest=None)  # "start": all are there
    printed, sys.stdout = sys.stdout, Printing(ask)
    try:
        ask.send(["done", _train(task, rank, fn, ask, lane)])
        done = True
    except PuzzleError as error:
        ask.send(["failed", pack_error(error), isinstance(error.__cause__, Broken)])
        done = False
    except BaseException as error:
        said = PuzzleError(f"the code raised {type(error).__name__}: {error}", where=f"rank {rank}", line="")
        ask.send(["failed", pack_error(said), False])
        done = False
    finally:
        sys.stdout = printed
    if lane.is_alive():
        lane.ended.wait()
    return done


def _train(
    task: Mapping[str, Any], rank: int, fn: Callable[[], Callable[[Model], Any]], ask: Wire, lane: Lane
) -> dict[str, Any]:
    """Run the learner's function; what there is to report of it."""
    size, options, numbers = task["size"], task["options"], lane.numbers
    books = RankBooks(ask, rank, lane, numbers, options["pace"])
    meter = Meter() if options["meter"] else None
    lane.watch = meter.watch if meter else nullcontext
    lane.finals = books.finals
    lane.compared = lambda finals: ask.send(["agreement", compare(numbers.work, finals).rows])
    begun = time.monotonic()
    machine = Dist(size["ranks"], size.get("mesh"), size.get("node_size"), _graded=True, _books=books)
    function = fn()
    check_function(function)
    lane.start()
    with lane.watch():
        play(function, [Model(rank, machine, size["layers"], size["batches"])], None)
    sys.stdout.flush()
    took = [lane.times.get(one) if isinstance(one, int) else one for one in books.took]
    return {
        "took": [None if one is None else [one[0] - begun, one[1] - begun] for one in took],
        "stored": books.stored_at,
        "finals": [[layer, pack_labels(labels)] for layer, labels in books.labels.items()],
        "live": meter.peak // numbers.dtype.itemsize if meter else None,
    }


def _device(options: Mapping[str, Any], rank: int, ranks: int, local_rank: int | None) -> str:
    """A GPU of its own, where there is one for each rank; else the CPU."""
    if options["device"] == "cpu" or not torch.cuda.is_available():
        return "cpu"
    place = rank if local_rank is None else local_rank
    here = torch.cuda.device_count()
    if (local_rank is None and ranks > here) or place >= here:
        return "cpu"
    torch.cuda.set_device(place)
    return f"cuda:{place}"


def _groups(mesh: Mesh) -> dict[tuple[int, ...], Any]:
    """A process group for every group of ranks that can meet. All ranks make all of them, in one order."""
    found: dict[tuple[int, ...], Any] = {tuple(range(mesh.ranks)): dist.group.WORLD}
    for axis in mesh.axes:
        for rank in range(mesh.ranks):
            ranks = mesh.group(rank, axis).ranks
            if ranks not in found:
                found[ranks] = dist.new_group(list(ranks))
    return found
