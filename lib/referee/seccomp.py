"""Keeps a process from starting, signaling and reaching into others. It may still have threads.

What the system limits for a process (memory, above all) is then limited for all that a learner's code does. This is
done with Linux's filter of system calls (seccomp), which needs no privilege.
"""

import ctypes
import errno
import os
import struct
import sys

from .namespaces import LIBC, NO_NEW_PRIVILEGES, prctl

LOAD, SAME, ANY_BIT, AT_LEAST, GIVE_BACK = 0x20, 0x15, 0x45, 0x35, 0x06  # instructions of a filter: linux/bpf_common.h
NUMBER, MACHINE, FIRST_ARGUMENT = 0, 4, 16  # where a filter finds them: struct seccomp_data
ALLOWED, REFUSED = 0x7FFF0000, 0x00050000  # with the number of an error: linux/seccomp.h
FILTER, BY_PROGRAM = 22, 2
A_THREAD = 0x00010000
OLD_NUMBERS = 0x40000000  # from here on x86-64 counts its 32-bit calls once more

CALLS = {  # numbers of the system's calls: machine, then those to start a thread or a process, to signal, and others
    "x86_64": (0xC000003E, 56, 435, (62, 200, 234, 129, 297), (57, 58, 59, 322, 101, 310, 311, 29, 424, 438)),
    "aarch64": (0xC00000B7, 220, 435, (129, 130, 131, 138, 240), (221, 281, 117, 270, 271, 194, 424, 438)),
}
"""The others: fork, vfork, execve, execveat, ptrace, process_vm_readv, process_vm_writev, shmget, pidfd_send_signal and
pidfd_getfd."""


def refuse_processes() -> bool:
    """Let the system refuse this process, from now on, to start others, to signal them and to reach into them. Return
    whether it does: elsewhere than on 64-bit Linux, on x86 or ARM, it does not."""
    if sys.platform != "linux" or os.uname().machine not in CALLS or sys.maxsize < 1 << 32:
        return False
    machine, clone, clone3, signals, others = CALLS[os.uname().machine]
    refused, unknown = (GIVE_BACK, 0, 0, REFUSED | errno.EPERM), (GIVE_BACK, 0, 0, REFUSED | errno.ENOSYS)
    steps = [(LOAD, 0, 0, MACHINE), (SAME, 1, 0, machine), refused, (LOAD, 0, 0, NUMBER)]
    steps += [(AT_LEAST, 0, 1, OLD_NUMBERS), refused, (SAME, 0, 1, clone3), unknown]  # then the C library takes clone
    for number in others:
        steps += [(SAME, 0, 1, number), refused]
    for number, holds, value in ((clone, ANY_BIT, A_THREAD), *((number, SAME, os.getpid()) for number in signals)):
        steps += [(SAME, 0, 4, number), (LOAD, 0, 0, FIRST_ARGUMENT), (holds, 1, 0, value), refused]
        steps += [(GIVE_BACK, 0, 0, ALLOWED)]
    steps += [(GIVE_BACK, 0, 0, ALLOWED)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    prctl(NO_NEW_PRIVILEGES, 1)
    filters = struct.pack("@HP", len(steps), ctypes.addressof(program))
    return bool(LIBC.prctl(FILTER, BY_PROGRAM, filters, 0, 0) == 0)
