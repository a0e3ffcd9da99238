"""What a worker finds around it is the same whoever grades, and whatever another worker has left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_referee import mechanism as mechanism
from tests.test_referee import printed_by

KEYS = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}
"""Numbers of add_key, request_key and keyctl."""
pytestmark = pytest.mark.skipif(
    os.uname().machine not in KEYS, reason="Linux's numbers of system calls are not known for this kind of processor"
)
ADD, REQUEST, CONTROL = KEYS.get(os.uname().machine, (0, 0, 0))

LEAVES = f"""
libc = ctypes.CDLL(None, use_errno=True)
for keyring in (-3, -4, -5):
    libc.syscall({ADD}, b"user", b"left behind", b"x", 1, keyring)
libc.semget(0x5EED, 1, 0o1666), libc.msgget(0x5EED, 0o1666), libc.shmget(0x5EED, 4096, 0o1666)
libc.mq_open(b"/left-behind", 0o102, 0o666, None)
ours = ctypes.create_string_buffer(1 << 16)
libc.sigaltstack((ctypes.c_void_p * 3)(ctypes.addressof(ours), 0, 1 << 16), None)
os.environ["LEFT"] = "behind"
os.umask(0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_VIRTUAL, 1000)
os.open("/", os.O_RDONLY)
"""
"""What a program does to its own process, and to what its user has. A teacher's shell may have done the same."""

LOOKS = f"""
import resource
libc = ctypes.CDLL(None, use_errno=True)
stack = (ctypes.c_void_p * 3)()
libc.sigaltstack(None, stack)
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status"))
home = os.environ["TMPDIR"]
found = {{name: status[name].strip() for name in ("SigBlk", "SigIgn", "SigPnd", "Umask", "Groups", "Threads")}}
found["environment"] = sorted(f"{{name}} {{os.environ[name].replace(home, '')}}" for name in os.environ)
found["folder"] = os.getcwd() == home, os.listdir(home)
found["timers"] = [signal.getitimer(one)[0] > 0 for one in range(3)]
found["stack"] = stack[0], stack[1]
found["open"] = len(os.listdir("/proc/self/fd"))
found["own session"] = os.getsid(0) == os.getpgrp() == os.getpid()
limits = {{name for name in dir(resource) if name.startswith("RLIMIT_")}} - {{"RLIMIT_CPU", "RLIMIT_NPROC"}}
found["limits"] = [resource.getrlimit(getattr(resource, name)) for name in sorted(limits)]
found["keys"] = os.path.exists("/proc/keys") and "left behind" in open("/proc/keys").read()
found["key"] = [libc.syscall({CONTROL}, 10, keyring, b"user", b"left behind", 0) for keyring in (-3, -4, -5)]
found["requested"] = libc.syscall({REQUEST}, b"user", b"left behind", None, 0)
found["shared"] = [libc.semget(0x5EED, 1, 0), libc.msgget(0x5EED, 0), libc.shmget(0x5EED, 4096, 0)]
found["shared"] += [libc.mq_open(b"/left-behind", 0)]
print(json.dumps(found))
"""

GRADER = f"""
import ctypes, json, os, signal, sys
from lib.referee import sandbox
from tests.test_referee import printed_by
libc = ctypes.CDLL(None)
libc.syscall({CONTROL}, 1, None)  # a session keyring of its own, so that this test leaves nothing behind
LOOKS, LEAVES, mechanism = sys.argv[1:]
def looks():
    print(printed_by(LOOKS, mechanism), end="")
looks()
printed_by(LEAVES, mechanism)
looks()
sandbox.idle.clear()
try:
    exec(LEAVES)
    looks()
finally:
    libc.semctl(libc.semget(0x5EED, 1, 0), 0, 0), libc.msgctl(libc.msgget(0x5EED, 0), 0, None)
    libc.shmctl(libc.shmget(0x5EED, 4096, 0), 0, None), libc.mq_unlink(b"/left-behind")
    for keyring in (-4, -5):  # of the user
        libc.syscall({CONTROL}, 9, libc.syscall({CONTROL}, 10, keyring, b"user", b"left behind", 0), keyring)
"""


def test_a_worker_finds_the_same_whoever_grades_and_whatever_was_left_behind(mechanism: str) -> None:
    # a name of its own, since Linux lists a key for some time after it is gone
    name = f"left by {os.getpid()}, {mechanism}"
    grader, looks, leaves = (text.replace("left behind", name) for text in (GRADER, LOOKS, LEAVES))
    done = subprocess.run(
        [sys.executable, "-c", grader, looks, leaves, mechanism],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, after_another, of_a_teacher = map(json.loads, done.stdout.splitlines())
    if mechanism == "process":
        of_a_teacher["keys"] = first["keys"]  # the names of a user's keys can be seen there
    assert after_another == first == of_a_teacher
    assert first["key"] == [-1] * 3 and first["shared"] == [-1] * 4


REACHES = """
import fcntl, resource, select
libc = ctypes.CDLL(None)
other = {other}
def tries(act, *arguments):
    with contextlib.suppress(OSError):
        act(*arguments)
def signals(own):
    reads, writes = os.pipe()
    own(reads)
    fcntl.fcntl(reads, fcntl.F_SETSIG, signal.SIGUSR1)
    fcntl.fcntl(reads, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writes, b"x")
number = (ctypes.c_int * 1)(other)
tries(os.kill, other, signal.SIGUSR1)
tries(signals, lambda reads: fcntl.fcntl(reads, fcntl.F_SETOWN, other))
tries(signals, lambda reads: fcntl.fcntl(reads, 15, bytes((ctypes.c_int * 2)(1, other))))
tries(signals, lambda reads: libc.ioctl(reads, 0x8901, number))
tries(resource.prlimit, other, resource.RLIMIT_CPU, (1000, 1000))
tries(os.sched_setaffinity, other, [0])
tries(os.sched_setscheduler, other, os.SCHED_BATCH, os.sched_param(0))
tries(os.setpriority, os.PRIO_PROCESS, other, 7)
"""


def test_a_worker_changes_no_other_process(mechanism: str) -> None:
    """Of the same user: how it is scheduled, what it may have, and which signals come."""
    blocked = "import signal, sys; signal.pthread_sigmask(0, [signal.SIGUSR1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", blocked], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout and other.stdin and other.stdout.readline()

        def state() -> list[object]:
            status = Path(f"/proc/{other.pid}/status").read_text()
            lines = [line for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd", "Cpus_allowed"))]
            scheduled = os.sched_getscheduler(other.pid), os.getpriority(os.PRIO_PROCESS, other.pid)
            return [lines, scheduled, Path(f"/proc/{other.pid}/limits").read_text()]

        before = state()
        printed_by(REACHES.format(other=other.pid), mechanism)
        assert state() == before
        other.stdin.close()
