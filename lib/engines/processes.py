"""One process a rank, and torch.distributed between them: the proof that a function is truly distributed.

This process keeps the simulator (see ``distributed.host``) and needs no torch. The ranks are forked by a zygote, which
is started at the first run and stays for the next ones.
"""

from __future__ import annotations

import atexit
import base64
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..basics.errors import PuzzleError, is_learners_file, witnessed
from ..learner.model import Model
from ..machine.cost import Shape
from ..remote.wire import Wire
from ..running.execution import name_of
from ..running.limits import collector_off
from ..running.run import Settings, keep_run
from ..running.workload import Workload
from .agreement import Agreement, LayerError
from .distributed.host import Door, Host, Supervisor, open_standard_streams
from .result import ProcessRun

for _name in ("torch", "cloudpickle"):
    if find_spec(_name) is None:  # the ranks import it, not this process
        raise ModuleNotFoundError(f"No module named {_name!r}", name=_name)

_alone = threading.Lock()
"""A second run of this process, in another thread, waits: there is one zygote."""
START = 60.0  # seconds within which the ranks have to be there


def run(fn: Callable[[Model], Any], shape: Shape, work: Workload, settings: Settings) -> ProcessRun:
    """Run as ``lib.run``, with a process for each rank. ``settings.timeout``: seconds for which one may be silent."""
    name = name_of(fn)
    pickled = {"function": _pickled(fn, fn, name), "machine": _pickled((shape, work, settings), shape.cost, "cost")}
    task = {**pickled, "ranks": shape.everyone, "path": [entry or os.getcwd() for entry in sys.path]}
    with _alone:
        open_standard_streams()
        with closing(Door("127.0.0.1", shape.everyone)) as door:
            zygote = Zygote.get()
            try:
                zygote.start({**task, **door.place("127.0.0.1")})
                return keep_books(name, shape, work, settings, door, zygote)
            finally:
                zygote.clear()


def keep_books(
    name: str, shape: Shape, work: Workload, settings: Settings, door: Door, supervisor: Supervisor
) -> ProcessRun:
    """Keep the simulator for the ranks that come to a door. Return the run when all have ended."""
    host = Host(name, shape, work, settings.timeout, door.admit(START, supervisor), supervisor)
    token = witnessed.set(host.clerk.errors)
    try:
        host.serve()
        agreement = Agreement(work, host.numbers_of_a_layer, tuple(LayerError(*row) for row in host.collect()))
        wall = time.monotonic() - door.opened
        with collector_off(cycles=True):
            return ProcessRun(host, supervisor.engine, wall, agreement, settings.pace)
    except PuzzleError as error:
        keep_run(error, name, host.models, work.train)
        raise
    finally:
        witnessed.reset(token)


def _pickled(thing: object, learners: object, name: str) -> str:
    """Return something pickled, with what the learner's part of it needs of a notebook. Raise PuzzleError if it cannot
    be."""
    import cloudpickle

    module = sys.modules.get(getattr(learners, "__module__", None) or "__main__")
    file = getattr(module, "__file__", None) or ""
    # What a learner's own module defines is sent along: another process need not find it.
    elsewhere = module is None or module.__name__ == "__main__" or "site-packages" in file
    own = not elsewhere and is_learners_file(file)
    try:
        if own:
            cloudpickle.register_pickle_by_value(module)
        return base64.b64encode(cloudpickle.dumps(thing)).decode()
    except Exception as error:
        raise PuzzleError(
            f"it cannot be sent to other processes: {type(error).__name__}: {error}",
            where=name,
            fix="let it use only what can be pickled: functions, classes, constants",
            line="",
        ) from None
    finally:
        if own:
            cloudpickle.unregister_pickle_by_value(module)


class Zygote:
    """The process that forks the ranks (``Supervisor``)."""

    engine, patience = "processes", 1.0
    _one: Zygote | None = None

    def __init__(self) -> None:
        mine, its = socket.socketpair()
        root = str(Path(__file__).absolute().parents[2])
        environment = {
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo" + "0" * (sys.platform == "darwin"),
            "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        }
        with its:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lib.engines.distributed.zygote", str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **environment},
            )
        self.wire, self.left = Wire(mine), 0
        self.dead: dict[int, str] = {}
        try:
            self.wire.receive(time.monotonic() + START)
        except (EOFError, OSError):
            self.end()
            raise PuzzleError(
                "the process that starts the ranks did not come up",
                fix="see what it says: python -c 'import torch, torch.distributed'",
                line="",
            ) from None
        mine.settimeout(None)

    @classmethod
    def get(cls) -> Zygote:
        """Return the zygote that is there, or a new one."""
        if cls._one is None or cls._one.process.poll() is not None:
            cls._one = cls()
            atexit.register(cls._one.end)
        return cls._one

    def start(self, task: Mapping[str, Any]) -> None:
        """Fork the ranks of a run."""
        self.dead, self.left = {}, task["ranks"]
        self.wire.send(["start", task])

    def deaths(self) -> dict[int, str]:
        """Return the ranks that have ended or were stopped, and how. Raise PuzzleError if the zygote is gone."""
        self.wire.end.settimeout(0.0)
        try:
            while True:
                rank, ended, how = self.wire.receive()
                self.left -= ended
                self.dead[rank] = how
        except (BlockingIOError, TimeoutError):
            pass
        except (EOFError, OSError):
            raise PuzzleError("the process that starts the ranks is gone", fix="run it again", line="") from None
        finally:
            self.wire.end.settimeout(None)
        return self.dead

    def clear(self) -> None:
        """End what is left of the last run."""
        deadline = time.monotonic() + 5
        with suppress(PuzzleError, OSError):
            if self.left:
                self.wire.send(["kill", None])
            while self.left and time.monotonic() < deadline:
                self.deaths()
                time.sleep(0.005)
        if self.left:
            self.end()

    def end(self) -> None:
        """End the zygote, and all that it has forked."""
        self.wire.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
