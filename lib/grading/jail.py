"""A process of its own view: no network, no files but those it needs (read only), no other processes.

By Linux's user namespaces, which need no privilege; used where bubblewrap, which does the same, is not
installed. Every call here may be refused by the system: then OSError, and nothing is promised.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# From Linux's headers: sched.h, mount.h, prctl.h.
NEW_USER, NEW_MOUNTS, NEW_NETWORK, NEW_PROCESSES = 0x10000000, 0x00020000, 0x40000000, 0x20000000
BIND, RECURSIVE, PRIVATE, NO_SUID, NO_DEVICES = 0x1000, 0x4000, 0x40000, 0x2, 0x4
SET_MOUNT_ATTRIBUTES, AT_HERE, AT_RECURSIVE, READ_ONLY = 442, -100, 0x8000, 0x1
ON_PARENTS_DEATH, DROP_BOUND, NO_NEW_PRIVILEGES = 1, 24, 38
CAPABILITIES_3 = 0x20080522

DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def enter(visible: Iterable[str], root: str, size: int) -> None:
    """Go on in a child process that sees ``visible`` only, read only, besides an empty /tmp of ``size`` bytes.

    ``root``: an empty folder to build the view in. Call it while there is one thread. Raises OSError where the
    system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    _did(libc.unshare(NEW_USER | NEW_MOUNTS | NEW_NETWORK | NEW_PROCESSES))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(libc, None, "/", None, RECURSIVE | PRIVATE)
    _mount(libc, "tmpfs", root, "tmpfs", NO_SUID | NO_DEVICES, f"size={size}")
    for folder in ("/tmp", "/proc"):
        Path(root + folder).mkdir(exist_ok=True)
    _mount(libc, "tmpfs", root + "/tmp", "tmpfs", NO_SUID | NO_DEVICES, f"size={size}")
    for path in (*visible, *DEVICES):
        target = Path(root + path)
        if Path(path).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        _mount(libc, path, str(target), None, BIND | RECURSIVE)
        _read_only(libc, str(target), AT_RECURSIVE)
    _fork(libc)
    with suppress(OSError):  # where /proc is masked, as in containers: Python does without
        flags = NO_SUID | NO_DEVICES | READ_ONLY  # /proc/sys is the host's: root could write there
        _mount(libc, "proc", root + "/proc", "proc", flags)
    _read_only(libc, root, 0)
    os.chroot(root)
    os.chdir("/tmp")
    _drop_capabilities(libc)


def _did(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _mount(
    libc: ctypes.CDLL, source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    texts = [text if text is None else text.encode() for text in (source, target, kind, options)]
    _did(libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]))


def _read_only(libc: ctypes.CDLL, target: str, flags: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _did(libc.syscall(SET_MOUNT_ATTRIBUTES, AT_HERE, target.encode(), flags, ctypes.byref(attributes), size))


def _fork(libc: ctypes.CDLL) -> None:
    """The child goes on as first of its process tree; this process only waits for it and ends as it ended."""
    child = os.fork()
    if child:
        os.closerange(0, 256)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)  # as a shell says that a signal ended something
    _did(libc.prctl(ON_PARENTS_DEATH, signal.SIGKILL, 0, 0, 0))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    for capability in range(64):
        libc.prctl(DROP_BOUND, capability, 0, 0, 0)  # fails beyond the last one
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    _did(libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())))
    _did(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
