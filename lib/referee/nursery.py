"""A process that has imported lib already, and forks a worker for each run. No code of a learner's ever runs in it.

The grader is at the other end of a socket. For ``FORK`` it sends three descriptors: the worker's end of the line, the
file for what it prints, and its reins (see ``jail``). ``CLEAR`` is answered when nothing is left of workers that ended.
"""

import gc
import os
import select
import socket
import sys
from contextlib import suppress

from . import worker
from .jail import adopt_orphans, end_children

READY, FORK, CLEAR = b"r", b"f", b"c"
OFTEN = 0.2  # seconds between two looks whether a worker has left something


def main(descriptor: int) -> None:
    """Do as the grader says until it hangs up."""
    grader = socket.socket(fileno=descriptor)
    adopt_orphans()
    gc.freeze()  # what is there is shared with all workers: no collector is to touch it
    keepers: set[int] = set()
    grader.sendall(READY)
    while True:
        if not select.select([grader], [], [], OFTEN if keepers else None)[0]:
            _clear(keepers)
            continue
        request, descriptors, _, _ = socket.recv_fds(grader, 1, 3)
        if request == FORK:
            _fork(grader, keepers, descriptors)
        elif request == CLEAR:
            _clear(keepers)
            grader.sendall(CLEAR)
        else:
            break
    _clear(keepers)
    os._exit(0)


def _fork(grader: socket.socket, keepers: set[int], descriptors: list[int]) -> None:
    line, output, reins = descriptors
    try:
        child = os.fork()
    except OSError:  # for want of processes or memory: that the line ends says so
        child = -1
    if child == 0:
        grader.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, here in enumerate((nothing, output, output)):
            os.dup2(here, number)
        os.close(nothing)
        os.close(output)
        worker.main(socket.socket(fileno=line), socket.socket(fileno=reins))
    if child > 0:
        keepers.add(child)
    for number in descriptors:
        os.close(number)


def _clear(keepers: set[int]) -> None:
    """Forget the processes that have ended, and end those whose keeper is gone."""
    with suppress(ChildProcessError):
        while ended := os.waitpid(-1, os.WNOHANG)[0]:
            keepers.discard(ended)
    if sys.platform == "linux":
        end_children(keepers)
