"""Starts a worker with as little around it as the platform allows, and ends all that is left of it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..remote.wire import Garbled, Wire, shown
from .jail import ADOPT_ORPHANS, DEVICES, LIBC, children

PACKAGE = Path(__file__).resolve().parent.parent
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/nix/store")
START = PACKAGE / "referee" / "start.py"
TEMPORARY = 1 << 26
TAG = "PUZZLE_WORKER"
OUTPUT = 2000  # characters of what was printed that a verdict repeats, at most
SEND_SIGNAL, OPEN_PIDFD = 424, 434  # pidfd_send_signal and pidfd_open, which not every Python offers
PATIENCE = 60.0  # seconds for a process to start, on a machine that is busy with other things
CLEARING = 2.0  # seconds for the kernel, or the process above it, to end what is left of a process

MECHANISMS = {
    "bubblewrap": "in a process of its own, without network, files and other processes in view (bubblewrap)",
    "namespaces": "in a process of its own, without network, files and other processes in view (user namespaces)",
    "process": "in a process of its own with limits; NOT cut off from network and files, as this platform "
    "offers neither bubblewrap nor user namespaces",
}
"""The ways to keep a worker apart, the best first, and what a report says of each."""


def available() -> list[str]:
    """Return the mechanisms that may work here, the best first."""
    linux = sys.platform == "linux"
    may_work = {"bubblewrap": linux and shutil.which("bwrap"), "namespaces": linux, "process": True}
    return [mechanism for mechanism in MECHANISMS if may_work[mechanism]]


def view(folder: str | None, secret: Sequence[str] = ()) -> list[tuple[str, bool]]:
    """Return what a worker sees, and what is masked where something that it sees lies around it: (path, whether it is
    seen), the outer before the inner.

    It sees the system's libraries, Python, this package and the learner's folder; masked is the rest of the project
    (solutions, tests, history) and what is ``secret``, wherever they lie.
    """
    own = [folder] if folder else []
    if folder and PACKAGE.is_relative_to(folder):
        own = sorted(map(str, Path(folder).glob("*.py")))  # the folder has solutions and history in it, too
    wanted = [*SYSTEM, sys.base_prefix, sys.prefix, str(PACKAGE), *own]
    seen = [path for path in dict.fromkeys(wanted) if os.path.exists(path) and path != "/"]
    masks = [path for path in (str(PACKAGE.parent), *secret) if path not in seen]
    around = [path for path in masks if any(Path(path).is_relative_to(outer) for outer in seen)]
    parts = [*((path, True) for path in seen), *((path, False) for path in around)]
    return sorted(parts, key=lambda part: len(Path(part[0]).parts))


def hidden(folder: str | None, secret: Sequence[str]) -> list[str]:
    """Return paths that a worker must not find, to be tried before it gets any code."""
    own = [PACKAGE.parent / name for name in ("solutions", "tests", ".git")]
    others = [path for place in secret for path in sorted(Path(place).iterdir())[:50]]
    return [str(path) for path in (*own, *others) if path.exists() and not Path(folder or "/").is_relative_to(path)]


class Worker:
    """A worker process, its end of the line, and what it prints."""

    def __init__(self, mechanism: str, folder: str | None, secret: Sequence[str] = ()) -> None:
        self.mechanism, self.folder, self.secret = mechanism, folder, secret
        self.found: list[str] = []  # what it must not find, and has found, before it got any code
        self.first: int | None = None
        self.output, written = _output()
        ours, theirs = socket.socketpair()
        self.wire = Wire(ours)
        self.temporary = ""
        try:
            self.temporary = tempfile.mkdtemp(prefix="puzzle-")
            command = [sys.executable, "-I", "-B", "-X", "utf8", str(START), str(theirs.fileno())]
            if mechanism == "bubblewrap":
                command = [*_bubblewrap(folder, secret), *command]
            if mechanism == "process" and sys.platform == "linux":
                LIBC.prctl(ADOPT_ORPHANS, 1, 0, 0, 0)  # so that what loses its parent can be found and ended
            inside = self.temporary if mechanism == "process" else "/tmp"
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                pass_fds=[theirs.fileno()],
                env={"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": inside, "TMPDIR": inside, TAG: self.temporary},
                cwd=self.temporary,
                start_new_session=True,
            )
        except BaseException:
            self._clean()
            raise
        finally:
            theirs.close()
            os.close(written)

    def begin(self, timeout: float, probe: bool = False) -> bool:
        """Let it lock itself in, for a run of so many seconds. Return whether that worked. A ``probe`` gets no code: it
        is told what must not be found, and looks for it."""
        place = {
            "mechanism": self.mechanism, "view": view(self.folder, self.secret), "root": self.temporary,
            "timeout": timeout, "hidden": hidden(self.folder, self.secret) if probe else [],
        }  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        try:
            self.wire.send(place, deadline)
            match self.wire.receive(deadline):
                case ["ready", list() as found]:
                    self.found = found
                case _:
                    return False
        except (OSError, EOFError, Garbled):
            return False
        if sys.platform == "linux" and (below := children(self.process.pid)):
            pidfd = LIBC.syscall(OPEN_PIDFD, below[0], 0)  # a number that is used again cannot be mistaken for it
            self.first = pidfd if pidfd >= 0 else None
        return True

    def printed(self, last: int | None = None) -> str:
        """Return what was printed, or its ``last`` bytes: at most OUTPUT characters, none if it cannot be read."""
        with suppress(OSError):
            start = 0 if last is None else max(0, os.fstat(self.output).st_size - last)
            return shown(os.pread(self.output, last or 4 * OUTPUT, start).decode(errors="replace"), OUTPUT)
        return ""

    def end(self, patience: float = 0.0) -> int:
        """Wait ``patience`` seconds for the process, then end it and all that it started. Return its exit status."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        if self.first is not None:
            LIBC.syscall(SEND_SIGNAL, self.first, signal.SIGKILL, None, 0)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(CLEARING)  # meanwhile the kernel, or the process that waits for it, ends the rest
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self.process.kill()
        status = self.process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # children that outlived it, of the same session
        if self.mechanism == "process":
            _end_orphans(self.temporary)
        return status

    def close(self) -> None:
        """End the process, and remove its files."""
        try:
            self.end()
        finally:
            self._clean()

    def _clean(self) -> None:
        self.wire.close()
        os.close(self.output)
        if self.first is not None:
            os.close(self.first)
        if self.temporary:
            with suppress(OSError):
                _remove(self.temporary)


def _output() -> tuple[int, int]:
    """Return two descriptors of a file without a name, which share nothing: one to read it, one to write it.

    So whatever a worker sets on the one that it gets (flags, position, locks) does not matter to the other.
    """
    written, path = tempfile.mkstemp(prefix="puzzle-")
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), written
    except BaseException:
        os.close(written)
        raise
    finally:
        os.unlink(path)


def _remove(folder: str) -> None:
    """Remove a folder in which a program may have closed folders, and nested them deeper than a path can be long."""
    end = time.monotonic() + PATIENCE  # in case something is still alive that fills it
    while (entries := list(os.scandir(folder))) and time.monotonic() < end:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            for below in list(os.scandir(entry.path)):
                if below.is_dir(follow_symlinks=False):
                    os.chmod(below.path, 0o700)  # a closed folder cannot be moved
                os.rename(below.path, os.path.join(folder, os.urandom(16).hex()))
            os.rmdir(entry.path)
    os.rmdir(folder)


def _bubblewrap(folder: str | None, secret: Sequence[str]) -> list[str]:
    options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--dir", "/dev"]
    options += ["--proc", "/proc", "--remount-ro", "/proc"]  # /proc/sys is the host's: root could write there
    for device in DEVICES:
        options += ["--dev-bind", device, device]
    options += ["--size", str(TEMPORARY), "--tmpfs", "/tmp"]
    parts = view(folder, secret)
    for path, seen in parts:
        options += ["--ro-bind", path, path] if seen else ["--tmpfs", path]
    for path, seen in parts:
        options += [] if seen else ["--remount-ro", path]
    return [shutil.which("bwrap") or "bwrap", *options, "--remount-ro", "/", "--chdir", "/tmp"]


def _end_orphans(tag: str) -> None:
    """End processes that have left a worker's session: children of this one with its tag in their environment."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and f"{TAG}={tag}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                os.waitpid(int(entry.name), 0)
