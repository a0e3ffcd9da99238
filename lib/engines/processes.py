"""One process a rank, and torch.distributed between them: the proof that a function's tensors travel as it says.

This process runs the function on the simulated machine first: what is wrong with it is said as in any run, and what it
prints is printed once. Then each rank's process does the same for itself, and its own part of it for real (see
``distributed.recording``). This process only watches (``distributed.supervisor``), and needs no torch. The ranks are
forked by a server that is started at the first run and stays for the next ones.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from importlib.util import find_spec
from multiprocessing import Pipe
from typing import Any

from ..basics.errors import PuzzleError, is_learners_file
from ..basics.folders import ROOT
from ..basics.streams import open_closed
from ..learner.model import Model
from ..machine.cost import Shape
from ..running.execution import name_of
from ..running.limits import collector_off
from ..running.run import Settings
from ..running.workload import Workload
from .distributed.recording import Rehearsal, Setup, record
from .distributed.supervisor import Door, Starter, Supervisor
from .result import ProcessRun

for _name in ("torch", "cloudpickle"):
    if find_spec(_name) is None:  # the ranks import it, not this process
        raise ModuleNotFoundError(f"No module named {_name!r}", name=_name)

_one_at_a_time = threading.RLock()
"""A second run of this process, in another thread, waits: there is one fork server."""
START = 60.0  # seconds within which the ranks have to be there


def run(fn: Callable[[Model], object], shape: Shape, work: Workload, settings: Settings) -> ProcessRun:
    """Run here first, then in a process for each rank. ``settings.timeout``: seconds for which one may be silent."""
    # Pickled first: what the function changes in its surroundings when it runs here must not travel.
    setup = Setup(shape, work, settings)
    function, pickled = _pickled(fn, fn, name_of(fn)), _pickled(setup, shape.cost, "cost")
    task = {"function": function, "setup": pickled, "path": [entry or os.getcwd() for entry in sys.path]}
    with _one_at_a_time:
        open_closed()  # or a socket would get the number of one
        with closing(Door("127.0.0.1", shape.everyone)) as door:
            rehearsed = record(fn, setup)
            server = ForkServer.get()
            try:
                server.start({**task, "ranks": shape.everyone, **door.place("127.0.0.1")})
                return watch(rehearsed, settings, door, server)
            finally:
                server.clear()


def watch(rehearsed: Rehearsal, settings: Settings, door: Door, starter: Starter) -> ProcessRun:
    """Watch the ranks that come to a door, and return their run."""
    begun = time.monotonic()
    ranks = door.admit(START, starter)
    Supervisor(rehearsed, ranks, starter, settings.timeout).serve()
    wall = time.monotonic() - begun
    with collector_off(cycles=True):
        return ProcessRun(rehearsed.done, ranks, starter.engine, wall, settings.pace)


def _pickled(thing: object, learners: object, name: str) -> bytes:
    """Return something pickled, with what it needs of the learner's module. Raise PuzzleError if it cannot be."""
    import cloudpickle

    module = sys.modules.get(getattr(learners, "__module__", None) or "__main__")
    file = getattr(module, "__file__", None) or ""
    # What a learner's own module defines is sent along: another process need not find it.
    elsewhere = module is None or module.__name__ == "__main__" or "site-packages" in file
    own = not elsewhere and is_learners_file(file)
    try:
        if own:
            cloudpickle.register_pickle_by_value(module)
        return bytes(cloudpickle.dumps(thing))
    except Exception as error:
        problem = f"it cannot be sent to other processes: {type(error).__name__}: {error}"
        raise PuzzleError(problem, where=name, expected="only what can be pickled", line="") from None
    finally:
        if own:
            cloudpickle.unregister_pickle_by_value(module)


class ForkServer:
    """The process that forks the ranks (``Starter``)."""

    engine, patience = "processes", 1.0
    _one: ForkServer | None = None

    def __init__(self) -> None:
        self.line, its = Pipe()
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        loop = "lo" + "0" * (sys.platform == "darwin")
        environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loop, "PYTHONPATH": path}
        with its:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lib.engines.distributed.fork_server", str(its.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[its.fileno()], start_new_session=True, env={**os.environ, **environment},
            )  # fmt: skip
        self.left, self.dead = 0, dict[int, str]()
        with suppress(EOFError, OSError):
            if self.line.poll(START):
                self.line.recv()
                return
        self.end()
        raise PuzzleError("the process that starts the ranks did not come up", line="")

    @classmethod
    def get(cls) -> ForkServer:
        """Return the server that is there, or a new one."""
        if cls._one is None or cls._one.process.poll() is not None:
            cls._one = cls()
            atexit.register(cls._one.end)
        return cls._one

    def start(self, task: Mapping[str, Any]) -> None:
        """Fork the ranks of a run."""
        self.dead, self.left = {}, task["ranks"]
        self.line.send(task)

    def deaths(self) -> dict[int, str]:
        """Return the ranks that have ended or were stopped, and how. Raise PuzzleError if the server is gone."""
        try:
            while self.line.poll():
                rank, ended, how = self.line.recv()
                self.left -= ended
                self.dead[rank] = how
        except (EOFError, OSError):
            raise PuzzleError("the process that starts the ranks is gone", line="") from None
        return self.dead

    def clear(self) -> None:
        """End what is left of the last run."""
        deadline = time.monotonic() + 5
        with suppress(PuzzleError, OSError):
            if self.left:
                self.line.send(None)
            while self.left and time.monotonic() < deadline:
                self.deaths()
                time.sleep(0.005)
        if self.left:
            self.end()

    def end(self) -> None:
        """End the server, and all that it has forked."""
        self.line.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        self.process.kill()  # nothing, where it has ended
        self.process.wait()
