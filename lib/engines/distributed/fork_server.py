"""A process that has imported torch once, and forks the ranks of each run, so that a second run starts at once.

It computes nothing itself and has one thread, so that a fork is safe. When its parent hangs up, it ends all ranks and
itself.
"""

import ctypes
import gc
import os
import pickle
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def main(descriptor: int) -> None:
    """Fork ranks and report how they end, until the parent hangs up."""
    from . import rank  # this takes more than a second

    rank.load_lazy()  # once for all ranks
    gc.collect()
    gc.freeze()  # a collection in a rank would touch all of this, and so copy the memory that it shares with us

    line = Connection(descriptor)
    children: dict[int, int] = {}
    line.send("ready")
    while True:
        if line.poll(0.02 if children else None):
            try:
                task = line.recv()
            except (EOFError, OSError):
                _kill(children)
                os._exit(0)
            if task is None:
                _kill(children)
            else:
                children |= _forked(rank, task, line)
        _reap(line, children)


def _forked(rank: Any, task: Mapping[str, Any], line: Connection) -> dict[int, int]:
    """Return the ranks of a run, which begin now, by the ids of their processes."""
    children: dict[int, int] = {}
    with socket.create_server(("127.0.0.1", 0), backlog=task["ranks"]) as meeting:
        for place in range(task["ranks"]):
            pid = os.fork()
            if pid == 0:
                line.close()
                _be(rank, task, place, meeting)
            children[pid] = place
    return children


def _reap(line: Connection, children: dict[int, int]) -> None:
    """Tell of the ranks that have ended or were stopped: (rank, whether it has ended, how)."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return
        stopped = os.WIFSTOPPED(status)
        with suppress(OSError):
            line.send((children[pid] if stopped else children.pop(pid), not stopped, _how(status)))


def _how(status: int) -> str:
    if os.WIFSTOPPED(status):
        return f"was stopped by {signal.Signals(os.WSTOPSIG(status)).name}"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit status {code}"
    often = " (often because the machine ran out of memory)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{often}"


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

        from .recording import record

        os.setsid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.path[:] = list(dict.fromkeys([*task["path"], *sys.path]))
        setup = pickle.loads(task["setup"])
        gpus = torch.cuda.device_count() if setup.settings.device == "auto" and torch.cuda.is_available() else 0
        device = f"cuda:{place}" if place < setup.shape.ranks <= gpus else "cpu"  # a host has none

        def recorded(numbers: Any) -> Any:
            # How long it may take is watched from outside: here it shares the processors with all the others.
            return record(pickle.loads(task["function"]), setup.patient, place, numbers)

        code = int(not rank.be_a_rank(task, place, device, _store(meeting, place), setup, recorded))
    finally:
        os._exit(code)


def _store(meeting: socket.socket, place: int) -> Any:
    """Return a rank's client of the store through which all meet. Rank 0 keeps it in memory, not in a file."""
    from torch.distributed import TCPStore

    port, listener = meeting.getsockname()[1], meeting.detach()
    if place != 0:
        os.close(listener)
        return TCPStore("127.0.0.1", port, wait_for_workers=False)
    keeps: dict[str, Any] = {"is_master": True, "master_listen_fd": listener}
    return TCPStore("127.0.0.1", port, wait_for_workers=False, use_libuv=False, **keeps)  # libuv: from torch 2.8 on


if __name__ == "__main__":
    main(int(sys.argv[1]))
