"""Starting a worker with as little around it as the platform allows, and ending all that is left of it."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

from ..remote.wire import Garbled, Wire, shown
from .jail import children

PACKAGE = Path(__file__).resolve().parent.parent
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/nix/store")
START = PACKAGE / "referee" / "start.py"
TEMPORARY = 1 << 26
TAG = "PUZZLE_WORKER"
OUTPUT = 2000
"""Characters of what was printed that a verdict repeats."""
LAST_WORDS = 300
"""Bytes of what a process has said that did not start."""
SEND_SIGNAL, HOLD = 424, 434  # pidfd_send_signal and pidfd_open, which not every Python offers
PATIENCE = 60.0
"""Seconds for a process to start, on a machine that is busy with other things."""
CLEARING = 2.0
"""Seconds for what watches over a process to end the rest."""

MECHANISMS = {
    "bubblewrap": "in a process of its own, without network, files and other processes in view (bubblewrap)",
    "namespaces": "in a process of its own, without network, files and other processes in view (user namespaces)",
    "process": "in a process of its own with limits; NOT cut off from network and files, as this platform "
    "offers neither bubblewrap nor user namespaces",
}
"""How a worker is kept apart, the best first, and what a report says of it."""


def available() -> list[str]:
    """Mechanisms that may work here."""
    found = ["process"]
    if sys.platform == "linux":
        found.insert(0, "namespaces")
        if shutil.which("bwrap"):
            found.insert(0, "bubblewrap")
    return found


def visible(folder: str | None) -> list[str]:
    """What a worker sees: the system's libraries, Python, this package, and the learner's own folder."""
    own = [folder] if folder else []
    if folder and PACKAGE.is_relative_to(folder):
        own = sorted(map(str, Path(folder).glob("*.py")))  # solutions and history are in there, too
    wanted = [*SYSTEM, sys.base_prefix, sys.prefix, str(PACKAGE), *own]
    return [path for path in dict.fromkeys(wanted) if os.path.exists(path) and path != "/"]


class Worker:
    """A worker process, its end of the line, and what it prints."""

    def __init__(self, mechanism: str, folder: str | None) -> None:
        self.mechanism, self.folder = mechanism, folder
        self.first: int | None = None
        self.output, written = _output()
        ours, theirs = socket.socketpair()
        self.wire = Wire(ours)
        self.temporary = ""
        try:
            self.temporary = tempfile.mkdtemp(prefix="puzzle-")
            command = [sys.executable, "-I", "-B", "-X", "utf8", str(START), str(theirs.fileno())]
            if mechanism == "bubblewrap":
                command = [*_bubblewrap(folder), *command]
            if mechanism == "process":
                _adopt_orphans()
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

    def begin(self, timeout: float) -> bool:
        """Let it lock itself in, for a run of so many seconds, and take hold of it. Whether that worked."""
        place = {
            "mechanism": self.mechanism, "visible": visible(self.folder), "root": self.temporary, "timeout": timeout
        }  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        try:
            self.wire.send(place, deadline)
            if self.wire.receive(deadline) != ["ready"]:
                return False
        except (OSError, EOFError, Garbled):
            return False
        if sys.platform == "linux":
            self.first = _hold(children(self.process.pid))
        return True

    def printed(self) -> str:
        """What the process has printed, as much as a verdict repeats; nothing, where that cannot be read."""
        with suppress(OSError):
            return shown(os.pread(self.output, 4 * OUTPUT, 0).decode(errors="replace"), OUTPUT)
        return ""

    def last_words(self) -> str:
        """The end of what one has said that did not start: there it says why."""
        with suppress(OSError):
            size = os.fstat(self.output).st_size
            return shown(os.pread(self.output, LAST_WORDS, max(0, size - LAST_WORDS)).decode(errors="replace"), OUTPUT)
        return ""

    def end(self, patience: float = 0.0) -> int:
        """End the process, if it has not ended by itself after so many seconds, and all that it has started.

        Gives its exit status.
        """
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        if self.first is not None:
            ctypes.CDLL(None).syscall(SEND_SIGNAL, self.first, signal.SIGKILL, None, 0)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(CLEARING)  # while the kernel, or what waits for it, ends the rest
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
        """End it, and leave nothing behind."""
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
    """A file without a name: a descriptor to read it, and one to write it that shares nothing with the first.

    A worker may set what it likes on the one that it gets: flags, position, locks.
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
    names = (os.path.join(folder, f"{os.urandom(8).hex()}-{number}") for number in count())
    end = time.monotonic() + PATIENCE  # should something still live that fills it
    while (entries := list(os.scandir(folder))) and time.monotonic() < end:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            for below in list(os.scandir(entry.path)):
                if below.is_dir(follow_symlinks=False):
                    os.chmod(below.path, 0o700)  # what is closed cannot be moved
                os.rename(below.path, next(names))
            os.rmdir(entry.path)
    os.rmdir(folder)


def _bubblewrap(folder: str | None) -> list[str]:
    options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--dir", "/dev"]
    options += ["--proc", "/proc", "--remount-ro", "/proc"]  # /proc/sys is the host's: root could write there
    for device in ("null", "zero", "random", "urandom"):
        options += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    options += ["--size", str(TEMPORARY), "--tmpfs", "/tmp"]
    for path in visible(folder):
        options += ["--ro-bind", path, path]
    return ["bwrap", *options, "--remount-ro", "/", "--chdir", "/tmp"]


def _hold(processes: list[int]) -> int | None:
    """A descriptor of the first of these processes, which stays its own when its number is another's."""
    held = ctypes.CDLL(None).syscall(HOLD, processes[0], 0) if processes else -1
    return held if held >= 0 else None


def _adopt_orphans() -> None:
    """What loses its parent becomes a child of this process, where Linux can do that: so it can be found and ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _end_orphans(tag: str) -> None:
    """End what has left a worker's session: children of this process with its tag in their environment."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and f"{TAG}={tag}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                os.waitpid(int(entry.name), 0)
