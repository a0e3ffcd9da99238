"""One rank of a run, in a process of its own: what was recorded of it, done with real tensors."""

import gc
import importlib
import os
import signal
import socket
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, record_function

from ...basics.errors import Place, PuzzleError
from ...record.labels import Labels
from ...record.table import SEND
from ...running.run import Settings
from ..agreement import Agreement
from ..numbers import Numbers, elements
from ..pairs import Pair
from ..reference import compare
from .links import Broken, Links
from .meter import Meter
from .recording import Move, Plan, Rehearsal, Setup
from .supervisor import this_machine


class Replay:
    """Does the steps of a plan, in order. ``settings``: among other things the ``pace``, seconds that a tick takes at
    least, and at which record the process of which rank is to ``kill`` itself.

    ``took``: for each record of the rank's log when it began and ended (of time.monotonic). ``stored``: how many
    numbers were stored then, really and by the labels of what is stored.
    """

    def __init__(self, plan: Plan, links: Links, settings: Settings, line: Connection) -> None:
        self.plan, self.links, self.settings, self.line, self.group = plan, links, settings, line, links.group
        self.took: list[tuple[float, float]] = []
        self.stored: list[tuple[int, int]] = []
        self.really_stored, self.known_stored = 0, 0
        self.held = Counter[Pair]()  # what is stored, and how often

    def run(self) -> None:
        """Do everything, and wait until all was moved."""
        steps = self.plan.steps
        with self.links.watch():
            while steps:
                step, *arguments = steps.popleft()  # whatever nobody needs any more is gone
                getattr(self, step)(*arguments)
        self._report(waits=True)
        self.links.finish()
        self.took = [self.links.times.get(place, times) for place, times in enumerate(self.took)]

    def record(self) -> None:
        """Something begins that the log has a record of, or the rank's function has ended."""
        now = time.monotonic()
        self.took.append((now, now))
        self.stored.append((self.really_stored, self.known_stored))
        self._report(waits=False)
        if self.settings.kill == (self.plan.rank, len(self.took)):
            os.kill(os.getpid(), signal.SIGKILL)

    def _report(self, waits: bool) -> None:
        """Say how many records of the log have begun, and whether this rank waits for others."""
        self.line.send(("at", len(self.took), waits))

    def load(self, values: list[Pair]) -> None:
        """Make numbers that no operation makes."""
        self.record()
        for value in values:
            value.made()

    def compute(self, values: list[Pair], ticks: float) -> None:
        """Carry out an operation."""
        self.record()
        begun = time.monotonic()
        with record_function(self.plan.labels[len(self.took) - 1]) if self.settings.profile else nullcontext():
            for value in values:
                value.made()
            time.sleep(max(0.0, begun + self.settings.pace * ticks - time.monotonic()))
        self.took[-1] = begun, time.monotonic()

    def start(self, place: int, value: Pair | list[Pair | None] | None) -> None:
        """Start a communication, which goes on while the rank does something else."""
        self.record()
        made = [one and one.made() for one in value] if isinstance(value, list) else value and value.made()
        self.links.start_call(place, made)

    def wait(self, place: int, values: list[Pair]) -> None:
        """Wait for what a collective or a receive brings."""
        if not self.links.results[place].done():  # then it takes a while
            self._report(waits=True)
        result = self.links.result(place)
        for value, numbers in zip(values, result if isinstance(result, list) else [result], strict=False):
            value.numbers = numbers

    def store(self, value: Pair, labels: Labels, times: int = 1) -> None:
        """A dictionary of the rank holds a tensor once more, or so many times."""
        self.held[value] += times
        self.really_stored += times * elements(value.made())
        self.known_stored += times * self.links.numbers.count(labels)
        if not self.held[value]:
            del self.held[value]

    def compared(self) -> Agreement | None:
        """Bring all final weights to rank 0. Return there how far they are from the reference."""
        found: dict[int, dict[int, Any]] = {}
        for rank, layer, labels in self.plan.finals:
            value = self.plan.answers[layer].made() if rank == self.plan.rank else None
            if rank != 0 and self.plan.rank in (rank, 0):
                value = self.links.passed(value, Move(SEND.kind, (rank, 0), (0, 0), [labels], [labels]))
            found.setdefault(rank, {})[layer] = value
        return compare(self.links.numbers.work, found) if self.plan.rank == 0 else None


def be_a_rank(
    place: Mapping[str, Any], rank: int, device: str, store: Any, setup: Setup, recorded: Callable[[Numbers], Rehearsal]
) -> bool:
    """Record, compute, communicate, report. Return whether all went well. ``place``: that of the supervisor's door;
    ``store``: one of torch's, through which the ranks meet; ``recorded(numbers)`` says what the rank has to do."""
    shape, work, settings = setup
    torch.set_num_threads(1)
    if device != "cpu":
        torch.cuda.set_device(device)
        _warm_up(device)
    backend = "gloo" if device == "cpu" else "nccl"
    everywhere = "cpu:gloo,cuda:nccl" if shape.mesh.hosts and torch.cuda.is_available() else backend
    line = _connect(place, {"rank": rank, "pid": os.getpid(), "backend": backend, "device": device})
    doing, right, plan = "cannot run the function:", False, None
    try:
        numbers = Numbers(work, device)
        plan = recorded(numbers).plan
        gc.collect()  # the simulated machine is not needed any more, and must keep no tensors alive
        doing = "cannot join the other ranks:"
        dist.init_process_group(everywhere, store=store, rank=rank, world_size=shape.everyone)
        meter = Meter() if settings.meter else None
        links = Links(rank, numbers, shape.mesh, plan.moves, meter.watch if meter else nullcontext)
        line.send(("ready", plan.fingerprint))
        heard, sent_at = line.recv()
        clock = time.monotonic() - sent_at if place["boot"] != this_machine() else 0.0
        if heard == "show":  # others have found another log
            line.send(("log", plan.log))
        else:
            doing = "has failed:"
            line.send(("done", _report(Replay(plan, links, settings, line), meter, clock)))
            right = True
    except BaseException as error:
        wrong = error
        if not isinstance(error, PuzzleError):
            wrong = PuzzleError(f"its process {doing} {type(error).__name__}: {error}", where=Place(rank), line="")
        differs = wrong is error and plan is None  # the function was run without an error before
        line.send(("log", [str(error)]) if differs else ("failed", wrong, isinstance(error, Broken)))
    with suppress(EOFError, OSError):
        line.recv()  # until the supervisor hangs up: others may still need the store, or be about to come
    return right


def load_lazy() -> None:
    """Import what torch imports when it first differentiates or makes an optimizer, which takes a second or two."""
    for name in ("sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes"):
        with suppress(ImportError):
            importlib.import_module(name)


def _warm_up(device: str) -> None:
    """Let a GPU load what a first matrix product and a first backward need. Else the first operations that are measured
    wait for it, for seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the thread of the backward says that it begins without a context
        numbers = torch.ones(8, 8, device=device, requires_grad=True)
        torch.nn.functional.gelu(numbers @ numbers).sum().backward()
        torch.cuda.synchronize(device)


def _report(replay: Replay, meter: Meter | None, clock: float) -> dict[str, Any]:
    """Carry out a plan with real numbers. Return what was measured, and on rank 0 how far the weights are off.
    ``clock``: seconds that this machine's is ahead of the supervisor's."""
    profile = replay.settings.profile
    with _profiler(profile, replay.plan.rank, replay.links.numbers.device) if profile else nullcontext():
        replay.links.start()
        replay.run()
    live = meter.peak // replay.links.numbers.dtype.itemsize if meter else None
    took = [(start - clock, end - clock) for start, end in replay.took]
    return {"took": took, "stored": replay.stored, "live": live, "agreement": replay.compared()}


@contextmanager
def _profiler(folder: str, rank: int | None, device: str) -> Iterator[None]:
    """Write what PyTorch's profiler sees meanwhile, in all threads, to a file in a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device != "cpu" else [])]
    threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    profiler = torch.profiler.profile(activities=activities, record_shapes=True, experimental_config=threads)
    with profiler, record_function("ProfilerStep#0"):
        yield
    profiler.export_chrome_trace(os.path.join(folder, f"rank{rank}.json.gz"))


def _connect(place: Mapping[str, Any], hello: Mapping[str, Any]) -> Connection:
    """Return a line to the supervisor of a run, on which the rank has said who it is."""
    end = socket.create_connection((place["address"], place["port"]), timeout=30)
    end.settimeout(None)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line = Connection(end.detach())
    line.send_bytes(place["key"].encode())
    line.send(hello)
    return line
