"""A process that has imported lib already, from which workers are forked, one after the other.

No code of a learner's runs in it. It has no environment, and is no fork of the grader, so it knows nothing of a run
(the servers of multiprocessing know both). For each worker it forks a supervisor, which forks the worker, waits for the
grader's word or end, and ends all that the worker has started. What a killed supervisor leaves behind is ended here.
"""

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from ..recording.wire import Wire
from . import namespaces, worker
from .namespaces import ADOPT_ORPHANS, ON_PARENTS_DEATH, keep_private, prctl
from .seccomp import leave_keys

READY, FORK, END = b"r", b"f", b"e"


def serve() -> None:
    """Do as the grader says, at the socket that the command line names, until it hangs up: FORK brings the worker's end
    of the line and the file for what it prints, END ends that worker. When all of it has ended, the answer is a byte:
    its exit status, or 128 plus the number of a signal."""
    grader = socket.socket(fileno=int(sys.argv[2]))
    _start_afresh()
    prctl(ADOPT_ORPHANS, 1)
    keep_private()  # what would change it could change the next student's worker
    gc.freeze()  # what is there is shared with all workers: no collector is to touch it
    grader.sendall(READY)
    while (heard := socket.recv_fds(grader, 1, 2))[0]:
        if descriptors := heard[1]:  # else the END of one whose supervisor hears nothing any more
            supervisor = os.fork()
            if not supervisor:
                _supervise(grader, *descriptors)
            for number in descriptors:
                os.close(number)
            status = _end_children(os.waitpid(supervisor, 0)[1])
            with suppress(OSError):  # it may have hung up meanwhile
                grader.sendall(bytes([status]))


def _start_afresh() -> None:
    """Let go of what a new program still has of the one that has started it. Limits and the priority stay."""
    leave_keys()
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # which Python itself ignores
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _supervise(grader: socket.socket, line: int, output: int) -> None:
    """Start a worker, wait for the grader's word, end all that is left of it, and exit as it did."""
    status = 1
    keep_private(False)  # else it may not say who is who in its namespace
    try:
        with open(os.devnull, "rb") as nothing:
            for number, here in enumerate((nothing.fileno(), output, output)):
                os.dup2(here, number)
        os.close(output)
        wire = Wire(socket.socket(fileno=line))
        place = wire.receive(longest=None)
        if place["mechanism"] == "namespaces":
            namespaces.leave(place["view"], place["root"], place["home"], place["room"])
        else:
            prctl(ADOPT_ORPHANS, 1)
        child = os.fork()
        if not child:
            grader.close()
            os.setsid()  # so that signals to its group do not come here
            prctl(ON_PARENTS_DEATH, signal.SIGKILL)
            worker.main(wire, place)
        wire.close()  # so that the grader hears when the worker ends
        grader.recv(1)
        for target in (-child, child):  # its session as well: elsewhere than on Linux none of that comes here
            with suppress(OSError):
                os.kill(target, signal.SIGKILL)
        status = _end_children(os.waitpid(child, 0)[1])
    except OSError as error:
        print(error.strerror, file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _end_children(ending: int) -> int:
    """End all children until there are none: when one is gone, those that it has started come here. Return the exit
    status of the one that has ended in this way, or 128 plus the number of a signal."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, os.WNOHANG)
            for child in _children():
                with suppress(OSError):
                    if (group := os.getpgid(child)) != os.getpgrp():
                        os.killpg(group, signal.SIGKILL)  # one that forks and ends may escape, its group not
                with suppress(OSError):
                    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(ending)
    return code if code >= 0 else 128 - code


def _children() -> list[int]:
    with suppress(OSError):  # at once, before they have others; not every kernel has this
        return [int(child) for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(process))
    return found
