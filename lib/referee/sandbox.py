"""Starts a worker with as little around it as the platform allows, and ends all that is left of it."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from ..recording.safe import shown
from ..recording.wire import ProtocolError, Wire
from .jail import DEVICES
from .nursery import CLEAR, FORK, READY

PACKAGE = Path(__file__).resolve().parent.parent
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/nix/store")
START = PACKAGE / "referee" / "start.py"
TEMPORARY = 1 << 26
OUTPUT = 2000  # characters of what was printed that a verdict repeats, at most
MORE_TASKS = 64  # processes and threads that a worker may have, besides those that its user has already
ALONE = True  # whether a worker is kept from starting processes, where the system can do that
PATIENCE = 60.0  # seconds for a process to start, on a machine that is busy with other things
CLEARING = 2.0  # seconds for all that is left of a worker to be ended

MECHANISMS = {
    "namespaces": "in a process of its own, without network, files and other processes in view (user namespaces)",
    "bubblewrap": "in a process of its own, without network, files and other processes in view (bubblewrap)",
    "process": "in a process of its own with limits; NOT cut off from network and files, as this platform "
    "offers neither user namespaces nor bubblewrap",
}
"""The ways to keep a worker apart, the best first, and what a report says of each.

The first two do the same. Namespaces of our own come first, since a process that has imported lib can enter them: to
start a program in bubblewrap takes three times as long. Some systems allow them to bubblewrap alone.
"""


def available() -> list[str]:
    """Return the mechanisms that may work here, the best first."""
    linux = sys.platform == "linux"
    may_work = {"namespaces": linux, "bubblewrap": linux and shutil.which("bwrap"), "process": True}
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


class Nursery:
    """The process from which workers come (see ``nursery``), with what it says if it does not start."""

    def __init__(self, wrapped: Sequence[str] = ()) -> None:
        """``wrapped``: the beginning of a command line, of a program that starts it."""
        self.output, written = _output()
        self.line, theirs = socket.socketpair()
        self.using, self.tasks = threading.Lock(), _tasks()
        try:
            self.process = subprocess.Popen(
                [*wrapped, sys.executable, "-I", "-B", "-X", "utf8", str(START), "nursery", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                pass_fds=[theirs.fileno()],
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self.line.close()
            self.output.close()
            raise
        finally:
            theirs.close()
            written.close()
        self.line.settimeout(PATIENCE)
        self.works = self._answers(READY)

    def fork(self, *ends: int) -> None:
        """Let it start a worker with these descriptors. If it is gone, nobody answers at the worker's line."""
        with self.using:
            try:
                self.works = self.works and socket.send_fds(self.line, [FORK], ends) == len(FORK)
            except OSError:
                self.works = False

    def clear(self) -> None:
        """Let it end what is left of workers that are gone."""
        with self.using:
            try:
                self.line.sendall(CLEAR)
                self.works = self._answers(CLEAR)
            except OSError:
                self.works = False

    def _answers(self, expected: bytes) -> bool:
        try:
            return self.line.recv(1) == expected
        except OSError:
            return False

    def close(self) -> None:
        """End it, and in bubblewrap all that is in there."""
        self.works = False
        self.line.close()
        try:
            self.process.wait(CLEARING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()


shared: list[Nursery] = []
"""The nursery of all workers that lock themselves in, once there is one. In bubblewrap each worker has its own."""
sharing = threading.Lock()


@atexit.register
def _close_shared() -> None:
    while shared:
        shared.pop().close()


def _nursery(wrapped: Sequence[str]) -> Nursery:
    """Return a nursery, which is new where it is to be in a sandbox, and whenever the shared one is gone."""
    if wrapped:
        return Nursery(wrapped)
    with sharing:
        if shared and not shared[0].works:
            shared.pop().close()
        if not shared:
            shared.append(Nursery())
        return shared[0]


class Worker:
    """A worker process, its end of the line, and what it prints."""

    def __init__(self, mechanism: str, folder: str | None, secret: Sequence[str] = ()) -> None:
        self.mechanism, self.folder, self.secret = mechanism, folder, secret
        self.found: list[str] = []  # what it must not find, and has found, before it got any code
        self.status: int | None = None
        self.home = ""
        self.nursery = _nursery(_bubblewrap(folder, secret) if mechanism == "bubblewrap" else ())
        self.output, written = _output()
        ours, theirs = socket.socketpair()
        self.reins, held = socket.socketpair()
        self.wire = Wire(ours)
        try:
            self.home = tempfile.mkdtemp(prefix="puzzle-")
            self.nursery.fork(theirs.fileno(), written.fileno(), held.fileno())
        except BaseException:
            self._hang_up()
            raise
        finally:
            theirs.close()
            held.close()
            written.close()

    def begin(self, timeout: float, probe: bool = False) -> bool:
        """Let it lock itself in, for a run of so many seconds. Return whether that worked. A ``probe`` gets no code: it
        is told what must not be found, and looks for it."""
        place = {
            "mechanism": self.mechanism, "view": view(self.folder, self.secret), "home": self.home, "timeout": timeout,
            "tasks": self.nursery.tasks + MORE_TASKS, "alone": ALONE,
            "hidden": hidden(self.folder, self.secret) if probe else [],
        }  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        try:
            self.wire.send(place, deadline)
            match self.wire.receive(deadline):
                case ["ready", list() as found]:
                    self.found = found
                    return True
        except (OSError, EOFError, ProtocolError):
            pass
        return False

    def printed(self, last: int | None = None) -> str:
        """Return what was printed, or its ``last`` bytes: at most OUTPUT characters, none if it cannot be read."""
        return _read(self.output, last)

    def said(self, last: int) -> str:
        """Return the last bytes that it has printed, or its nursery if that has not started."""
        return self.printed(last) or _read(self.nursery.output, last)

    def end(self, patience: float = 0.0) -> int:
        """Wait ``patience`` seconds for the process, then end it and all that it started. Return its exit status, with
        128 plus the number for a signal."""
        if self.status is None:
            self.status = self._heard(patience)
            with suppress(OSError):
                self.reins.shutdown(socket.SHUT_WR)
            self.status = self.status if self.status is not None else self._heard(CLEARING)
            if self.status is None:  # somebody has ended the process that would have told
                self.status = 128 + signal.SIGKILL
                self.nursery.clear()
        return self.status

    def _heard(self, patience: float) -> int | None:
        """Return the exit status if it is told in so many seconds."""
        self.reins.settimeout(max(patience, 0.001))
        with suppress(OSError, ValueError):
            return int(self.reins.recv(16))
        return None

    def close(self) -> None:
        """End the process, and remove its files."""
        try:
            self.end()
        finally:
            self._hang_up()
            with suppress(OSError):
                _remove(self.home)

    def _hang_up(self) -> None:
        self.wire.close()
        self.reins.close()
        self.output.close()
        if self.mechanism == "bubblewrap":
            self.nursery.close()


def _tasks() -> int:
    """Return how many processes and threads this one's user has: where the system counts threads, it has /proc."""
    user, count = os.getuid(), 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            count += len(os.listdir(entry / "task")) if entry.stat().st_uid == user else 0
    return count


def _read(output: FileIO, last: int | None) -> str:
    with suppress(OSError, ValueError):  # it may be closed
        start = 0 if last is None else max(0, os.fstat(output.fileno()).st_size - last)
        return shown(os.pread(output.fileno(), last or 4 * OUTPUT, start).decode(errors="replace"), OUTPUT)
    return ""


def _output() -> tuple[FileIO, FileIO]:
    """Return a file without a name twice, to be read and to be written, by two descriptors that share nothing.

    So whatever a worker sets on the one that it gets (flags, position, locks) does not matter to the other.
    """
    descriptor, path = tempfile.mkstemp(prefix="puzzle-")
    written = FileIO(descriptor, "w")
    try:
        return FileIO(path), written
    except BaseException:
        written.close()
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
