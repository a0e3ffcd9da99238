"""A process that has imported torch once, and forks the ranks of each run, so that a second run starts at once.

It computes nothing itself and has one thread, so that a fork is safe. When its parent hangs up, it ends all ranks and
itself.
"""

import base64
import ctypes
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ...remote.wire import Wire

LAZY = ("sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")
"""What torch imports when it first differentiates or makes an optimizer. It takes a second, here once for all ranks."""
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def main(descriptor: int) -> None:
    """Fork ranks and report how they end, until the parent hangs up."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded
    for name in LAZY:
        with suppress(ImportError):
            importlib.import_module(name)
    from . import rank  # this takes more than a second

    gc.collect()
    gc.freeze()  # a collection in a rank would touch all of this, and so copy the memory that it shares with us

    wire = Wire(socket.socket(fileno=descriptor))
    children: dict[int, int] = {}
    wire.send(["ready"])
    while True:
        ready, _, _ = select.select([wire.end], [], [], 0.02 if children else None)
        if ready:
            try:
                verb, task = wire.receive(longest=None)
            except (EOFError, OSError):
                _kill(children)
                os._exit(0)
            if verb == "kill":
                _kill(children)
            else:
                children |= _forked(rank, task, wire)
        _reap(wire, children)


def _forked(rank: Any, task: Mapping[str, Any], wire: Wire) -> dict[int, int]:
    """Return the ranks of a run, which begin now, by the ids of their processes."""
    children: dict[int, int] = {}
    with socket.create_server(("127.0.0.1", 0), backlog=task["ranks"]) as meeting:
        for place in range(task["ranks"]):
            pid = os.fork()
            if pid == 0:
                wire.close()
                _be(rank, task, place, meeting)
            children[pid] = place
    return children


def _reap(wire: Wire, children: dict[int, int]) -> None:
    """Tell of the ranks that have ended or were stopped: (rank, whether it has ended, how)."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return
        stopped = os.WIFSTOPPED(status)
        with suppress(OSError):
            wire.send([children[pid] if stopped else children.pop(pid), not stopped, _how(status)])


def _how(status: int) -> str:
    if os.WIFSTOPPED(status):
        return f"was stopped by {_signal(os.WSTOPSIG(status))}"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit status {code}"
    often = " (often because the machine ran out of memory)" if -code == signal.SIGKILL else ""
    return f"was killed by {_signal(-code)}{often}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _kill(children: Mapping[int, int]) -> None:
    for pid in children:
        for target in (-pid, pid):  # with what it has started, if it has a group already
            with suppress(OSError):
                os.kill(target, signal.SIGKILL)


def _be(rank: Any, task: Mapping[str, Any], place: int, meeting: socket.socket) -> None:
    """Run a rank in a child of the fork, and exit with 0 if all went well. ``meeting``: where the store listens."""
    code = 1
    try:
        import torch

        os.setsid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.path[:] = list(dict.fromkeys([*task["path"], *sys.path]))
        shape, work, settings = _unpickled(task["machine"])
        gpus = torch.cuda.device_count() if settings.device == "auto" and torch.cuda.is_available() else 0
        device = f"cuda:{place}" if place < shape.ranks <= gpus else "cpu"  # a host has none
        store, function = _store(meeting, place), partial(_unpickled, task["function"])
        code = int(not rank.be_a_rank(task, place, device, store, shape, work, settings, function))
    finally:
        os._exit(code)


def _store(meeting: socket.socket, place: int) -> Any:
    """Return a rank's way to the store through which all meet. Rank 0 has it in memory: of a file something could be
    left."""
    from torch.distributed import TCPStore

    port, listener = meeting.getsockname()[1], meeting.detach()
    if place != 0:
        os.close(listener)
        return TCPStore("127.0.0.1", port, wait_for_workers=False)
    keeps: dict[str, Any] = {"is_master": True, "master_listen_fd": listener}
    return TCPStore("127.0.0.1", port, wait_for_workers=False, use_libuv=False, **keeps)  # libuv: from torch 2.8 on


def _unpickled(pickled: str) -> Any:
    return pickle.loads(base64.b64decode(pickled))


if __name__ == "__main__":
    main(int(sys.argv[1]))
