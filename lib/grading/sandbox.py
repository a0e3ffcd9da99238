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
from contextlib import suppress
from pathlib import Path

from .wire import Wire, shown

PACKAGE = Path(__file__).resolve().parent.parent
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/nix/store")
START = PACKAGE / "grading" / "start.py"
TEMPORARY = 1 << 26
MARK = "PUZZLE_WORKER"
OUTPUT = 2000
"""Characters of what was printed that a verdict repeats."""

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
        self.mechanism = mechanism
        self.temporary = tempfile.mkdtemp(prefix="puzzle-")
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the worker)
        ours, theirs = socket.socketpair()
        self.wire = Wire(ours)
        command = [sys.executable, "-I", "-B", "-X", "utf8", str(START), str(theirs.fileno())]
        if mechanism == "bubblewrap":
            command = [*_bubblewrap(folder), *command]
        if mechanism == "process":
            _adopt_orphans()
        inside = self.temporary if mechanism == "process" else "/tmp"
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                pass_fds=[theirs.fileno()],
                env={"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": inside, "TMPDIR": inside, MARK: self.temporary},
                cwd=self.temporary,
                start_new_session=True,
            )
        except BaseException:
            self._clean()
            raise
        finally:
            theirs.close()

    def printed(self) -> str:
        """What the process has printed, as much as a verdict repeats."""
        self.output.seek(0)
        return shown(self.output.read(4 * OUTPUT).decode(errors="replace"), OUTPUT)

    def end(self, patience: float = 0.0) -> int:
        """End the process, if it has not ended by itself after so many seconds, and all that it has started.

        Gives its exit status.
        """
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
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
        self.end()
        self._clean()

    def _clean(self) -> None:
        self.wire.close()
        self.output.close()
        shutil.rmtree(self.temporary, ignore_errors=True)


def _bubblewrap(folder: str | None) -> list[str]:
    options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--dir", "/dev"]
    options += ["--proc", "/proc", "--remount-ro", "/proc"]  # /proc/sys is the host's: root could write there
    for device in ("null", "zero", "random", "urandom"):
        options += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    options += ["--size", str(TEMPORARY), "--tmpfs", "/tmp"]
    for path in visible(folder):
        options += ["--ro-bind", path, path]
    return ["bwrap", *options, "--remount-ro", "/", "--chdir", "/tmp"]


def _adopt_orphans() -> None:
    """What loses its parent becomes a child of this process, where Linux can do that: so it can be found and ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _end_orphans(mark: str) -> None:
    """End what has left a worker's session: children of this process with its mark in their environment."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                os.waitpid(int(entry.name), 0)
