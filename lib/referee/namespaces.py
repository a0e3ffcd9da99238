"""Linux's user namespaces, which need no privilege: no network, no other processes, and no files but those in view.
Where they are refused, Landlock still keeps a process to the files in view.

The system may refuse any of these calls: then OSError is raised, nothing is promised, and the worker is started in
another way (see ``sandbox``).
"""

import ctypes
import os
import resource
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

# From Linux's headers: sched.h, mount.h, prctl.h, capability.h.
NEW_USER, NEW_MOUNTS, NEW_NETWORK, NEW_PROCESSES = 0x10000000, 0x00020000, 0x40000000, 0x20000000
NEW_SHARED_MEMORY, NEW_HOST_NAME, NEW_CONTROL_GROUPS = 0x08000000, 0x04000000, 0x02000000
READ_ONLY, NO_SUID, NO_DEVICES, BIND, RECURSIVE, PRIVATE = 0x1, 0x2, 0x4, 0x1000, 0x4000, 0x40000
SET_MOUNT_ATTRIBUTES, AT_HERE, AT_RECURSIVE = 442, -100, 0x8000
ON_PARENTS_DEATH, OPEN_TO_OTHERS, ADOPT_ORPHANS, NO_NEW_PRIVILEGES = 1, 4, 36, 38
CAPABILITIES_3 = 0x20080522

LIBC = ctypes.CDLL(None, use_errno=True)
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def call(function: str, *arguments: object) -> int:
    """Call a function of the C library. Return what it returns, or raise OSError if it fails."""
    if (answer := LIBC[function](*arguments)) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(answer)


def prctl(option: int, value: int) -> None:
    """Ask Linux for something about this process. Other systems do not know of it."""
    if sys.platform == "linux":
        call("prctl", option, value, 0, 0, 0)


def keep_private(private: bool = True) -> None:
    """Let no other process of this user read or change this one's memory, or open what it has open. Only Linux can.

    A worker that is not cut off belongs to the same user: without this it might write a verdict into the grader.
    """
    prctl(OPEN_TO_OTHERS, not private)


def limit(name: str, value: int, for_good: bool = True) -> None:
    """Set one of the limits of this process, such as ``"AS"``, to no more than it is: ``for_good``, or until it is set
    again."""
    which = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with suppress(ValueError, OSError):  # macOS knows some limits and refuses to set them
        resource.setrlimit(which, (value, value if for_good else hard))


def leave(view: Sequence[tuple[str, bool]], root: str, home: str, size: int) -> None:
    """Leave all of the system's namespaces, and build at ``root``, an empty folder, all that is to be seen.

    That is a view (see ``sandbox``), read only, and at ``home`` an empty folder of ``size`` bytes. Call it while there
    is only one thread. The next child process is the first one of its namespace: it has to call ``enter``.
    """
    user, group = os.getuid(), os.getgid()
    kinds = NEW_MOUNTS | NEW_NETWORK | NEW_PROCESSES | NEW_SHARED_MEMORY | NEW_HOST_NAME | NEW_CONTROL_GROUPS
    call("unshare", NEW_USER | kinds)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(None, "/", None, RECURSIVE | PRIVATE)
    _mount("tmpfs", root, "tmpfs", NO_SUID | NO_DEVICES)
    for folder in (home, "/proc"):
        Path(root + folder).mkdir(parents=True)
    for path, seen in (*view, *((device, True) for device in DEVICES)):
        target = Path(root + path)
        if seen and not os.path.isdir(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        else:
            target.mkdir(parents=True, exist_ok=True)
        if seen:
            _mount(path, str(target), None, BIND | RECURSIVE)
        else:
            _mount("tmpfs", str(target), "tmpfs", NO_SUID | NO_DEVICES)
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY, 0, 0, 0)
    size_of = ctypes.c_size_t(ctypes.sizeof(attributes))
    call("syscall", SET_MOUNT_ATTRIBUTES, AT_HERE, os.fsencode(root), AT_RECURSIVE, ctypes.byref(attributes), size_of)
    _mount("tmpfs", root + home, "tmpfs", NO_SUID | NO_DEVICES, f"size={size}")


def enter(root: str) -> None:
    """Go into what ``leave`` has built, and give up every right to change it."""
    with suppress(OSError):  # where /proc is masked, as in containers; Python needs none
        flags = NO_SUID | NO_DEVICES | READ_ONLY  # /proc/sys is the host's: root could write there
        _mount("proc", root + "/proc", "proc", flags)
        _mount(root + "/dev/null", root + "/proc/keys", None, BIND)  # the names of all keys that the user has
    os.chroot(root)
    os.chdir("/")
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    prctl(NO_NEW_PRIVILEGES, 1)  # and no program that it starts gets any


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [text if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])


# -- where namespaces are refused ------------------------------------------------------------------------------------

# Linux's Landlock needs none, and containers often have it. From linux/landlock.h, with the numbers of its calls, which
# all machines share.
NEW_RULES, ADD_RULE, RESTRICT = 444, 445, 446
ASK_VERSION, BENEATH = 1, 1
RUN, WRITE, READ, LIST, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights a version knows; later ones know one more."""


def landlock() -> int:
    """Return the version of Landlock here, 0 where there is none."""
    return max(0, LIBC.syscall(NEW_RULES, None, ctypes.c_size_t(0), ASK_VERSION)) if sys.platform == "linux" else 0


def keep_to(view: Sequence[tuple[str, bool]], home: str) -> None:
    """Let this process, from now on, read no files but those of a view (see ``sandbox``), and write in ``home`` only.

    Names of others can be seen, and programs be run. A rule is about a folder with all that is in it: one around
    something that is masked is opened part by part. Without Landlock nothing happens.
    """
    if not (here := landlock()):
        return
    every = (1 << RIGHTS.get(here, 16)) - 1 & ~RUN
    rules = call("syscall", NEW_RULES, struct.pack("=Q", every), ctypes.c_size_t(8), 0)
    masked = [os.path.realpath(path) for path, seen in view if not seen]
    for path in ("/proc", *(path for path, seen in view if seen)):
        for part in _parts(os.path.realpath(path), masked):
            _allow(rules, part, READ)
    for path, rights in (("/", LIST), (home, every), *((device, READ | WRITE) for device in DEVICES)):
        _allow(rules, path, rights)
    prctl(NO_NEW_PRIVILEGES, 1)
    call("syscall", RESTRICT, rules, 0)
    os.close(rules)


def _parts(path: str, masked: Sequence[str]) -> Iterator[str]:
    """Yield a path, or what is below it without what is masked."""
    if any(other.startswith(os.path.join(path, "")) for other in masked):
        for part in os.scandir(path):
            if not part.is_symlink():  # what it leads to is in view by itself, or not
                yield from _parts(part.path, masked)
    elif path not in masked:
        yield path


def _allow(rules: int, path: str, rights: int) -> None:
    with suppress(OSError):  # what cannot be opened here is not read later, either
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rights &= -1 if os.path.isdir(path) else READ | WRITE | TRUNCATE
            call("syscall", ADD_RULE, rules, BENEATH, struct.pack("=Qi", rights, file), 0)
        finally:
            os.close(file)
