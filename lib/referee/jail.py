"""A process that sees no network, no other processes, and no files but those it needs, which it cannot write to.

This is done with Linux's user namespaces, which need no privilege. It is used where bubblewrap, which does the same, is
not installed. The system may refuse any of these calls: then OSError is raised, and nothing is promised.

Where there are no namespaces either, at least all that a process has started ends with it.
"""

import ctypes
import errno
import os
import signal
from collections.abc import Sequence
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


def enter(view: Sequence[tuple[str, bool]], root: str, size: int) -> None:
    """Go on in a child process that sees only a view (see ``sandbox``), read only, and an empty /tmp of ``size`` bytes.

    ``root``: an empty folder to build that view in. Call it while there is only one thread. Raise OSError if the
    system refuses.
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
    _fork()
    with suppress(OSError):  # where /proc is masked, as in containers; Python needs none
        flags = NO_SUID | NO_DEVICES | READ_ONLY  # /proc/sys is the host's: root could write there
        _mount("proc", root + "/proc", "proc", flags)
    _read_only(root, 0)
    os.chroot(root)
    os.chdir("/tmp")
    _drop_capabilities()


def keep_together() -> None:
    """Go on in a child process. When it ends, all that it has started ends, even in a session of its own."""
    _did(LIBC.prctl(ADOPT_ORPHANS, 1, 0, 0, 0))
    _fork()


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


def _fork() -> None:
    """Return in a child process. This one only waits for it, ends what it leaves behind, and exits with its status."""
    child = os.fork()
    if child:
        os.closerange(0, 256)
        _, status = os.waitpid(child, 0)
        _end_children()
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)  # as a shell says that a signal ended something
    os.setsid()  # so that signals to its group do not come here
    _did(LIBC.prctl(ON_PARENTS_DEATH, signal.SIGKILL, 0, 0, 0))


def _end_children() -> None:
    """End children until there are none: when one is gone, those that it has started come here."""
    with suppress(ChildProcessError):
        while True:
            for child in children(os.getpid()):
                with suppress(OSError):
                    os.killpg(os.getpgid(child), signal.SIGKILL)  # one that forks and ends may escape, its group not
                with suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


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
