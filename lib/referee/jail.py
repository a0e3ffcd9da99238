"""A process that sees no network, no other processes, and no files but those it needs, which it cannot write to.

This is done with Linux's user namespaces, which need no privilege. The system may refuse any of these calls: then
OSError is raised, nothing is promised, and the worker is started in another way (see ``sandbox``).

Where there are no namespaces either, at least all that a process has started ends with it.
"""

import ctypes
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

# From Linux's headers: sched.h, mount.h, prctl.h.
NEW_USER, NEW_MOUNTS, NEW_NETWORK, NEW_PROCESSES = 0x10000000, 0x00020000, 0x40000000, 0x20000000
NEW_SHARED_MEMORY, NEW_HOST_NAME, NEW_CONTROL_GROUPS = 0x08000000, 0x04000000, 0x02000000
BIND, RECURSIVE, PRIVATE, NO_SUID, NO_DEVICES = 0x1000, 0x4000, 0x40000, 0x2, 0x4
SET_MOUNT_ATTRIBUTES, AT_HERE, AT_RECURSIVE, READ_ONLY = 442, -100, 0x8000, 0x1
ON_PARENTS_DEATH, DROP_BOUND, ADOPT_ORPHANS, NO_NEW_PRIVILEGES = 1, 24, 36, 38
CAPABILITIES_3 = 0x20080522

LIBC = ctypes.CDLL(None, use_errno=True)
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
GLANCE = 0.01  # seconds after which one looks again whether a process has ended


def enter(view: Sequence[tuple[str, bool]], root: str, size: int, reins: socket.socket) -> None:
    """Go on in a child process that sees only a view (see ``sandbox``), read only, and an empty /tmp of ``size`` bytes.

    ``root``: an empty folder to build that view in; ``reins``: see ``keep_together``. Call it while there is only one
    thread. Raise OSError if the system refuses.
    """
    user, group = os.getuid(), os.getgid()
    _did(LIBC.unshare(NEW_USER | NEW_MOUNTS | NEW_NETWORK | NEW_PROCESSES))
    for kind in (NEW_SHARED_MEMORY, NEW_HOST_NAME, NEW_CONTROL_GROUPS):
        if LIBC.unshare(kind) != 0 and ctypes.get_errno() != errno.EINVAL:  # invalid: a kernel built without it
            _did(-1)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(None, "/", None, RECURSIVE | PRIVATE)
    _mount("tmpfs", root, "tmpfs", NO_SUID | NO_DEVICES, f"size={size}")
    for folder in ("/tmp", "/proc"):
        Path(root + folder).mkdir(exist_ok=True)
    _mount("tmpfs", root + "/tmp", "tmpfs", NO_SUID | NO_DEVICES, f"size={size}")
    for path, seen in (*view, *((device, True) for device in DEVICES)):
        target = Path(root + path)
        if not seen:
            target.mkdir(parents=True, exist_ok=True)
            _mount("tmpfs", str(target), "tmpfs", NO_SUID | NO_DEVICES, f"size={size}")
            continue
        if Path(path).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        _mount(path, str(target), None, BIND | RECURSIVE)
        _read_only(str(target), AT_RECURSIVE)
    for path, seen in view:
        if not seen:
            _read_only(root + path, 0)
    _fork(reins)
    with suppress(OSError):  # where /proc is masked, as in containers; Python needs none
        flags = NO_SUID | NO_DEVICES | READ_ONLY  # /proc/sys is the host's: root could write there
        _mount("proc", root + "/proc", "proc", flags)
    _read_only(root, 0)
    os.chroot(root)
    os.chdir("/tmp")
    _drop_capabilities()


def keep_together(reins: socket.socket) -> None:
    """Go on in a child process. When it ends, all that it has started ends, even in a session of its own.

    When the other end of ``reins`` is closed, the child is ended. How it ended is written there: its exit status, and
    128 plus the number if it was a signal, as a shell says it.
    """
    adopt_orphans()
    _fork(reins)


def adopt_orphans() -> None:
    """From now on those that lose their parent come to this process, if they have come from it; elsewhere than on
    Linux to nobody."""
    if sys.platform == "linux":
        _did(LIBC.prctl(ADOPT_ORPHANS, 1, 0, 0, 0))


def _did(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [text if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _did(LIBC.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]))


def _read_only(target: str, flags: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _did(LIBC.syscall(SET_MOUNT_ATTRIBUTES, AT_HERE, os.fsencode(target), flags, ctypes.byref(attributes), size))


def _fork(reins: socket.socket) -> None:
    """Return in a child process. This one only waits for it or for the end of the reins, then ends it with all that it
    has started, and exits."""
    child = os.fork()
    if not child:
        reins.close()
        os.setsid()  # so that signals to its group do not come here
        if sys.platform == "linux":
            _did(LIBC.prctl(ON_PARENTS_DEATH, signal.SIGKILL, 0, 0, 0))
        return
    os.closerange(0, reins.fileno())  # all of a worker's: who waits at their other ends must hear that it has ended
    os.closerange(reins.fileno() + 1, 256)
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and not select.select([reins], [], [], GLANCE)[0]:
        pass
    if not ended[0]:
        _end(child)
        ended = os.waitpid(child, 0)
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)  # those of its session that outlived it, where they do not come here
    end_children()
    code = os.waitstatus_to_exitcode(ended[1])
    with suppress(OSError):  # nobody may be there any more
        reins.send(b"%d" % (code if code >= 0 else 128 - code))
    os._exit(0)


def _end(process: int) -> None:
    with suppress(OSError):
        if (group := os.getpgid(process)) != os.getpgrp():
            os.killpg(group, signal.SIGKILL)  # one that forks and ends may escape, its group not
    with suppress(OSError):
        os.kill(process, signal.SIGKILL)


def end_children(kept: Collection[int] = ()) -> None:
    """End all children but those until there are none: when one is gone, those that it has started come here."""
    while strays := [child for child in children(os.getpid()) if child not in kept]:
        for child in strays:
            _end(child)
        for child in strays:
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def children(process: int) -> list[int]:
    """Return the processes whose parent this one is, as far as can be seen."""
    with suppress(OSError):  # not every kernel has this
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(entry.name))
    return found


def _drop_capabilities() -> None:
    for capability in range(64):
        LIBC.prctl(DROP_BOUND, capability, 0, 0, 0)  # fails beyond the last one
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    _did(LIBC.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())))
    _did(LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
