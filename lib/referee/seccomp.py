"""Keeps a process from starting, signaling and reaching into others, and from what outlives it. It may have threads.

What the system limits for a process (memory, above all) is then limited for all that a learner's code does. This is
done with Linux's filter of system calls (seccomp), which needs no privilege.
"""

import ctypes
import errno
import os
import struct
import sys
from typing import NamedTuple

from .namespaces import LIBC, NO_NEW_PRIVILEGES, prctl

LOAD, SAME, ANY_BIT, AT_LEAST, GIVE_BACK = 0x20, 0x15, 0x45, 0x35, 0x06  # instructions of a filter: linux/bpf_common.h
NUMBER, MACHINE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24  # where a filter finds them: struct seccomp_data
ALLOWED, REFUSED = 0x7FFF0000, 0x00050000  # with the number of an error: linux/seccomp.h
FILTER, BY_PROGRAM = 22, 2
A_THREAD = 0x00010000
OLD_NUMBERS = 0x40000000  # from here on x86-64 counts its 32-bit calls once more
SET_OWNER, SET_SIGNAL, SET_OWNER_2 = 8, 10, 15  # fcntl lets the system signal another process when a file can be read
SET_GROUP, SET_GROUP_2 = 0x8901, 0x8902  # so does ioctl


class Numbers(NamedTuple):
    """Linux's numbers for a kind of processor (its asm/unistd.h), and of the processor (linux/audit.h)."""

    machine: int
    clone: int
    clone3: int
    fcntl: int
    ioctl: int
    keyctl: int
    signals: tuple[int, ...]
    """kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo"""
    settings: tuple[int, ...]
    """prlimit64, sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr"""
    others: tuple[int, ...]
    """fork, vfork, execve, execveat, ptrace, process_vm_readv, process_vm_writev, pidfd_send_signal, pidfd_getfd;
    setpriority and ioprio_set; add_key and request_key; shmget, semget, msgget and mq_open"""


CALLS = {
    "x86_64": Numbers(
        0xC000003E, 56, 435, 72, 16, 250, (62, 200, 234, 129, 297), (302, 203, 144, 142, 314),
        (57, 58, 59, 322, 101, 310, 311, 424, 438, 141, 251, 248, 249, 29, 64, 68, 240),
    ),
    "aarch64": Numbers(
        0xC00000B7, 220, 435, 25, 29, 219, (129, 130, 131, 138, 240), (261, 122, 119, 118, 274),
        (221, 281, 117, 270, 271, 424, 438, 140, 30, 217, 218, 194, 190, 186, 180),
    ),
}  # fmt: skip

JOIN_SESSION_KEYRING = 1  # of keyctl: linux/keyctl.h


def leave_keys() -> None:
    """Have an empty keyring in place of the one that has the keys of whoever has started this process."""
    if sys.platform == "linux" and os.uname().machine in CALLS:
        LIBC.syscall(CALLS[os.uname().machine].keyctl, JOIN_SESSION_KEYRING, None)  # if refused, a worker has no keyctl


def refuse_processes() -> bool:
    """Let the system refuse this process, from now on, to start others, to signal them, to reach into them, and to
    leave something in the kernel that outlives it. Return whether it does: elsewhere than on 64-bit Linux, on x86 or
    ARM, it does not."""
    if sys.platform != "linux" or os.uname().machine not in CALLS or sys.maxsize < 1 << 32:
        return False
    numbers, own = CALLS[os.uname().machine], os.getpid()
    allowed, refused = (GIVE_BACK, 0, 0, ALLOWED), (GIVE_BACK, 0, 0, REFUSED | errno.EPERM)
    unknown = (GIVE_BACK, 0, 0, REFUSED | errno.ENOSYS)
    steps = [(LOAD, 0, 0, MACHINE), (SAME, 1, 0, numbers.machine), refused, (LOAD, 0, 0, NUMBER)]
    steps += [(AT_LEAST, 0, 1, OLD_NUMBERS), refused]
    steps += [(SAME, 0, 1, numbers.clone3), unknown]  # then the C library takes clone
    for number in (numbers.keyctl, *numbers.others):
        steps += [(SAME, 0, 1, number), refused]
    for number, argument, holds, values, found, otherwise in (  # what an argument decides
        (numbers.clone, FIRST_ARGUMENT, ANY_BIT, (A_THREAD,), allowed, refused),
        *((number, FIRST_ARGUMENT, SAME, (own,), allowed, refused) for number in numbers.signals),
        *((number, FIRST_ARGUMENT, SAME, (own, 0), allowed, refused) for number in numbers.settings),
        (numbers.fcntl, SECOND_ARGUMENT, SAME, (SET_OWNER, SET_SIGNAL, SET_OWNER_2), refused, allowed),
        (numbers.ioctl, SECOND_ARGUMENT, SAME, (SET_GROUP, SET_GROUP_2), refused, allowed),
    ):
        steps += [(SAME, 0, 2 + 2 * len(values), number), (LOAD, 0, 0, argument)]
        for value in values:
            steps += [(holds, 0, 1, value), found]
        steps += [otherwise]
    steps += [allowed]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    prctl(NO_NEW_PRIVILEGES, 1)
    filters = struct.pack("@HP", len(steps), ctypes.addressof(program))
    return bool(LIBC.prctl(FILTER, BY_PROGRAM, filters, 0, 0) == 0)
