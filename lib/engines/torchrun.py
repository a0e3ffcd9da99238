"""One rank of a run as torchrun starts it, on one machine or many. Rank 0 watches over all besides, in a thread."""

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from ..basics.errors import PuzzleError
from ..basics.streams import open_closed
from ..learner.model import Model
from .distributed.rank import be_a_rank, load_lazy
from .distributed.recording import Rehearsal, Setup, record
from .distributed.supervisor import Door
from .numbers import Numbers
from .processes import watch
from .result import ProcessRun

LOOKING, LEAVING = 0.5, 1.5
"""Seconds after SIGTERM for which the supervisor looks for a rank lost before, and after which a rank ends."""


class Torchrun:
    """What is known of torchrun, which has started the ranks (``Starter``): that it ends them. As soon as one rank has
    died, torchrun sends SIGTERM to all the others, also to the one with the supervisor. So that these can say who it
    was, a rank that is sent SIGTERM ends a moment later."""

    engine, patience = "torchrun", 0.0  # it says how a rank has ended only when the run is over

    def __init__(self) -> None:
        self.ending: float | None = None  # when SIGTERM came
        heard, signalled = socket.socketpair()
        signalled.setblocking(False)
        signal.set_wakeup_fd(signalled.fileno())  # at once, also while the main thread is inside of torch
        signal.signal(signal.SIGTERM, lambda *_: None)
        threading.Thread(target=self._end, args=(heard, signalled), daemon=True).start()

    def _end(self, heard: socket.socket, signalled: socket.socket) -> None:
        while heard.recv(1)[0] != signal.SIGTERM:
            pass
        self.ending = time.monotonic()
        time.sleep(LEAVING)
        leave(False)

    def deaths(self) -> Mapping[int, str]:
        """Return nothing. Raise PuzzleError when the run was ended, and nobody was lost before."""
        if self.ending and time.monotonic() > self.ending + LOOKING:
            raise PuzzleError("SIGTERM has ended the run, and no rank was lost before", line="")
        return {}


def work_for(function: Callable[[Model], object], setup: Setup, show: Callable[[ProcessRun], None]) -> NoReturn:
    """Be the rank that torchrun's environment names, and end this process. ``show(run)``: what rank 0 does with the
    run, where it may raise PuzzleError."""
    open_closed()  # or a socket would get the number of one
    load_lazy()
    torchrun = Torchrun()
    shape, work, settings = setup
    rank, ranks = int(os.environ["RANK"]), shape.everyone
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    # The store comes first: through it the ranks learn where the supervisor is.
    store, _, _ = next(dist.rendezvous("env://", rank, ranks))
    gpus = _all_have_gpus(store, rank, shape.ranks, local_rank) and settings.device == "auto"
    device = f"cuda:{local_rank}" if gpus and rank < shape.ranks else "cpu"
    if rank == 0:
        try:
            rehearsed = record(function, setup, rank, Numbers(work, device))
        except PuzzleError as error:
            print(error, file=sys.stderr)
            leave(False)
        door = Door("", ranks)
        store.set("supervisor", json.dumps(door.place(os.environ["MASTER_ADDR"])))
        watched = partial(watch, rehearsed, settings, door, torchrun)
        supervisor = threading.Thread(target=_supervise, args=(door, watched, show), name="supervisor", daemon=True)
        supervisor.start()

    def recorded(numbers: Numbers) -> Rehearsal:
        if rank == 0:
            return rehearsed
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # rank 0 has said it
            return record(function, setup.patient, rank, numbers)

    try:
        place = json.loads(store.get("supervisor"))
        store = dist.PrefixStore("ranks", store)
        right = be_a_rank(place, rank, device, store, setup, recorded)
    except (EOFError, OSError, RuntimeError):  # the supervisor is gone, or the store with it, and has said why
        right = False
    if rank == 0:
        supervisor.join()
        right = True  # or else it would have ended this process
    leave(right)


def _supervise(door: Door, watched: Callable[[], ProcessRun], show: Callable[[ProcessRun], None]) -> None:
    """Watch over the ranks that come to a door, and show their run. End this process if anything is wrong."""
    try:
        with closing(door):
            finished = watched()
        show(finished)
    except BaseException as error:
        print(error if isinstance(error, PuzzleError) else traceback.format_exc(), file=sys.stderr)
        leave(False)


def leave(right: bool) -> NoReturn:
    """End this process at once, so that torch's threads cannot complain. What it has printed is kept."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(not right)


def _all_have_gpus(store: Any, rank: int, ranks: int, local_rank: int) -> bool:
    """Return whether every device, of so many, has a GPU of its own: otherwise all of them use their processors."""
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    store.set(f"gpu {rank}", str(int(here > local_rank)))
    return all(store.get(f"gpu {other}") == b"1" for other in range(ranks))
