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
from contextlib import ExitStack, suppress
from pathlib import Path

from ..basics.folders import LIB, SECRET
from ..recording.safe import shown
from ..recording.wire import ProtocolError, Wire
from .fork_server import END, FORK, READY
from .namespaces import DEVICES, landlock

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/nix/store")
BEGIN = "import sys; sys.path.insert(0, sys.argv[1]); from lib.referee import fork_server; fork_server.serve()"
"""How the fork server is started: the package need not be installed."""
ROOM = 1 << 26  # bytes of the folder of its own in which a worker may write, where it is cut off
OUTPUT = 2000  # characters of what was printed that a verdict repeats, at most
MORE_TASKS = 64  # processes and threads that a worker may have, besides those that its user has already
ALONE = True  # whether a worker is kept from starting processes, where the system can do that
PATIENCE = 60.0  # seconds for a process to start, on a machine that is busy with other things
CLEARING = 2.0  # seconds for all that is left of a worker to be ended

MECHANISMS = {
    "namespaces": "in a process of its own, without network, files and other processes in view (user namespaces)",
    "bubblewrap": "in a process of its own, without network, files and other processes in view (bubblewrap)",
    "process": f"in a process of its own with limits; NOT cut off from network{'' if landlock() else ' and files'}, as "
    "this platform offers neither user namespaces nor bubblewrap",
}
"""The ways to keep a worker apart, the best first, and what a report says of each.

The first two do the same. Namespaces of our own come first, since a process that has imported lib can enter them: to
start a program in bubblewrap takes thirty times as long. Some systems allow them to bubblewrap alone.
"""


def available() -> list[str]:
    """Return the mechanisms that may work here, the best first."""
    linux = sys.platform == "linux"
    may_work = {"namespaces": linux, "bubblewrap": linux and shutil.which("bwrap"), "process": True}
    return [mechanism for mechanism in MECHANISMS if may_work[mechanism]]


def view(folder: str | None, secret: Sequence[str] = ()) -> list[tuple[str, bool]]:
    """Return the paths of a worker's file system as (path, visible), outer folders first. A path that is not visible is
    masked by an empty folder; it is listed only where it lies inside of a visible one.

    Visible are the system's libraries, Python, this package without its secrets, and the learner's folder; masked are
    the rest of the project (solutions, tests, history) and what is ``secret``.
    """
    own = [folder] if folder else []
    if folder and LIB.is_relative_to(folder):
        own = sorted(map(str, Path(folder).glob("*.py")))  # the folder has solutions and history in it, too
    wanted = [*SYSTEM, sys.base_prefix, sys.prefix, str(LIB), *own]
    seen = [path for path in dict.fromkeys(wanted) if os.path.exists(path) and path != "/"]
    masks = [path for path in (str(LIB.parent), str(SECRET), *secret) if path not in seen and os.path.exists(path)]
    around = [path for path in masks if any(Path(path).is_relative_to(outer) for outer in seen)]
    parts = [*((path, True) for path in seen), *((path, False) for path in around)]
    return sorted(parts, key=lambda part: len(Path(part[0]).parts))


def hidden(folder: str | None, secret: Sequence[str]) -> list[str]:
    """Return paths that a worker must not find, to be tried before it gets any code."""
    own = [LIB.parent / name for name in ("solutions", "tests", ".git")]
    others = [path for place in (*secret, str(SECRET)) for path in sorted(Path(place).glob("*"))[:50]]
    return [str(path) for path in (*own, *others) if path.exists() and not Path(folder or "/").is_relative_to(path)]


class ForkServer:
    """The process from which workers come, one at a time (see ``fork_server``)."""

    def __init__(self, output: int, wrapped: Sequence[str] = ()) -> None:
        """``output``: where it says why it does not start; ``wrapped``: the beginning of a command line, of a program
        that starts it."""
        self.line, theirs = socket.socketpair()
        number = theirs.fileno()
        command = [sys.executable, "-I", "-B", "-X", "utf8", "-c", BEGIN, str(LIB.parent), str(number)]
        self.tasks = _tasks()
        with theirs, ExitStack() as undo:
            undo.callback(self.line.close)
            self.process = subprocess.Popen(
                [*wrapped, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[number],
                env={"PATH": os.defpath, "LANG": "C.UTF-8"}, cwd="/", start_new_session=True,
            )  # fmt: skip
            undo.pop_all()
        if self.hear(PATIENCE) != READY[0]:
            self.close()

    def say(self, word: bytes, *descriptors: int) -> None:
        """Say FORK or END. If the process is gone, nobody answers at the worker's line."""
        with suppress(OSError):
            socket.send_fds(self.line, [word], descriptors)

    def hear(self, seconds: float) -> int | None:
        """Return what it says within so many seconds."""
        with suppress(OSError, IndexError):
            self.line.settimeout(seconds)
            return self.line.recv(1)[0]
        return None

    def close(self) -> None:
        """End it, and in bubblewrap all that is in there."""
        self.line.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(CLEARING)
        self.process.kill()  # nothing, where it has ended
        self.process.wait()


idle: list[ForkServer] = []
"""Servers without a worker, for the next ones that lock themselves in. In bubblewrap each worker has its own. They end
when they hear that this process has ended."""


def _server(output: int, wrapped: Sequence[str]) -> ForkServer:
    with suppress(IndexError):
        while not wrapped:
            if (server := idle.pop()).process.poll() is None:
                return server
            server.close()
    return ForkServer(output, wrapped)


class Worker:
    """A worker process, its end of the line, and what it prints."""

    def __init__(self, mechanism: str, folder: str | None, secret: Sequence[str] = ()) -> None:
        self.mechanism, self.view = mechanism, view(folder, secret)
        self.found: list[str] = []  # what it must not find, and has found, before it got any code
        self.status: int | None = None
        in_use = any(Path(path).is_relative_to("/tmp") for path, _ in self.view)
        with ExitStack() as undo:
            self.root = tempfile.mkdtemp(prefix="puzzle-")
            undo.callback(_remove, self.root)
            apart = f"/{Path(self.root).name}" if in_use else "/tmp"
            self.home = self.root if mechanism == "process" else apart
            ours, theirs = socket.socketpair()
            self.wire = Wire(ours)
            undo.callback(self.wire.close)
            # By two descriptors that share nothing: whatever a worker sets on its own (flags, position, locks) does not
            # matter to the other.
            with theirs, tempfile.NamedTemporaryFile(prefix="puzzle-") as printed:
                self.output = undo.enter_context(open(printed.name, "rb", buffering=0))
                wrapped = self._bubblewrap() if mechanism == "bubblewrap" else ()
                self.server = _server(printed.fileno(), wrapped)
                self.server.say(FORK, theirs.fileno(), printed.fileno())
            self.undo = undo.pop_all()

    def begin(self, secrets: Sequence[str] = ()) -> bool:
        """Let it lock itself in, and look for files that it must not find. Return whether it has."""
        place = {
            "mechanism": self.mechanism, "view": self.view, "root": self.root, "home": self.home, "room": ROOM,
            "tasks": self.server.tasks + MORE_TASKS, "alone": ALONE, "hidden": secrets,
        }  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        with suppress(OSError, EOFError, ProtocolError):
            self.wire.send(place, deadline)
            match self.wire.receive(deadline):
                case ["ready", list() as found]:
                    self.found = found
                    return True
        return False

    def printed_bytes(self) -> int:
        """Return how many bytes have been printed."""
        with suppress(OSError, ValueError):  # it may be closed
            return os.fstat(self.output.fileno()).st_size
        return 0

    def printed(self, start: int = 0) -> str:
        """Return what was printed after so many bytes: at most OUTPUT characters, none if it cannot be read."""
        with suppress(OSError, ValueError):
            return shown(os.pread(self.output.fileno(), 4 * OUTPUT, start).decode(errors="replace"), OUTPUT)
        return ""

    def end(self) -> int:
        """End the process and all that it started. Return its exit status: for a signal 128 plus its number."""
        self.wire.close()
        if self.status is None:
            self.server.say(END)
            self.status = self.server.hear(2 * CLEARING)  # by the supervisor, and then by the server
        if self.status is None:  # somebody has ended the process that would have said it
            self.server.close()
            self.status = 128 + signal.SIGKILL
        return self.status

    def close(self) -> None:
        """End the process, and remove its files."""
        with self.undo:
            self.end()
            if self.mechanism == "bubblewrap":
                self.server.close()
            else:
                idle.append(self.server)

    def _bubblewrap(self) -> list[str]:
        options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--dir", "/dev"]
        options += ["--proc", "/proc", "--remount-ro", "/proc"]  # /proc/sys is the host's: root could write there
        options += ["--dev-bind", "/dev/null", "/proc/keys"] if os.path.exists("/proc/keys") else []  # keys' names
        options += ["--size", str(ROOM), "--tmpfs", self.home]
        for device in DEVICES:
            options += ["--dev-bind", device, device]
        for path, seen in self.view:
            options += ["--ro-bind", path, path] if seen else ["--tmpfs", path]
        for path, seen in self.view:
            options += [] if seen else ["--remount-ro", path]
        return [shutil.which("bwrap") or "bwrap", *options, "--remount-ro", "/"]


def _tasks() -> int:
    """Return how many processes and threads this one's user has: where the system counts threads, it has /proc."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # who owns the files of a process that keeps others out does not say whose it is
            if f"\nUid:\t{os.getuid()}\t" in (process / "status").read_text():
                count += len(os.listdir(process / "task"))
    return count


def _remove(folder: str) -> None:
    """Remove a folder in which a program may have closed folders, and nested them deeper than a path can be long."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, folder], timeout=PATIENCE, check=False, stderr=subprocess.DEVNULL)
