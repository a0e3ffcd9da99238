"""The process in which a learner's code runs: it loads a file once, and runs its functions as often as it is asked.

It gets the code, and for each run a size and its limits, but no targets. What one run leaves behind in the file's own
names the next one finds, as in a notebook.
"""

import gc
import io
import os
import sys
import time
from contextlib import suppress
from typing import Any

import lib

from ..basics.errors import PuzzleError
from ..course.specs import machine_of
from ..grading.submission import load, summary, switch_off
from ..recording.recorder import recorded_run
from ..recording.safe import pack_error
from ..recording.wire import Wire
from ..running.limits import TimeIsUp, alarm
from ..running.run import check_function
from . import namespaces
from .defined import defined
from .namespaces import limit
from .seccomp import refuse_processes

LIMITS = {"AS": 2 << 30, "FSIZE": 1 << 20, "NOFILE": 64, "CORE": 0}
"""What the system allows this process: bytes of memory and of a file, open files, no core file."""
MOST_LINKS = 500  # files of a learner's folder that can be opened by their names alone, at most
MOST_PRINTED = 100_000  # bytes that may be printed


REFUSED = (
    "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "subprocess.Popen",
    "socket.bind", "socket.connect",
)  # fmt: skip
"""What no honest program of a puzzle does. It is refused for the sake of the message, not as a protection."""


def main(wire: Wire, place: dict[str, Any]) -> None:
    """Load a file, run what is asked for, and end, whatever threads and handlers the learner's code has left.

    The learner's code is sent only after this process is locked in.
    """
    try:
        if place["mechanism"] == "namespaces":
            namespaces.enter(place["root"])
        elif place["mechanism"] == "process":
            namespaces.keep_to(place["view"], place["home"])
        os.chdir(place["home"])
        os.environ.update(HOME=place["home"], TMPDIR=place["home"])
        for name, value in (LIMITS | {"NPROC": place["tasks"]}).items():
            limit(name, value)
        if place["alone"]:
            refuse_processes()
        gc.disable()  # it would look through each call of a recording, in a process that ends soon
        wire.send(["ready", [path for path in place["hidden"] if os.path.exists(path)]])
        _work(wire, wire.receive(longest=None))
    except EOFError:
        pass  # the grader has hung up
    except OSError as error:
        print(error.strerror, file=sys.stderr, flush=True)  # without the path, which may be very long
    finally:
        os._exit(0)


def _settle(file: str, folder: str | None) -> None:
    """Let the code find what lies beside it, files and modules, and no words of ours on its command line."""
    sys.argv = [file]
    if folder:
        sys.path.append(folder)
        for name in os.listdir(folder)[:MOST_LINKS]:
            with suppress(OSError):
                os.symlink(os.path.join(folder, name), name)


def _limit_next(seconds: float) -> None:
    """Limit the processor time of what is next."""
    limit("CPU", int(time.process_time() + seconds) + 3, for_good=False)


def _work(wire: Wire, task: dict[str, Any]) -> None:
    """Load a file, and say what it defines. Then run what is asked for, and send its calls and how it ended."""
    _make_quiet(task["hidden"])
    _settle(task["file"], task["folder"])
    names: dict[str, object] = {}
    _limit_next(task["timeout"])
    try:
        path = os.path.join(task["folder"] or os.getcwd(), task["file"])
        with alarm(task["timeout"]) as late, suppress(TimeIsUp):
            names, *notes = load(task["file"], task["text"], path)
        if late:
            raise PuzzleError("the code did not load in time", line=late[0])
        Printed.left = MOST_PRINTED  # whatever was printed so far
        wire.send(["loaded", defined(names), [*map(summary, notes)]])
    except BaseException as error:
        wire.send(["failed", pack_error(_puzzle_error(error))])
    diaries: list[object] = []
    while True:
        request = wire.receive()
        wire.send(diaries[request["diary"]] if "diary" in request else _run(names, request, diaries))


def _run(names: dict[str, Any], task: dict[str, Any], diaries: list[object]) -> list[Any]:
    """Run a function at a size. Return what has been called, and how it ended. Its diary is for who asks for it."""
    diaries.append(None)
    if task["name"] not in names:
        return [None, "missing"]
    _limit_next(task["timeout"])
    recording: dict[str, Any] | None = None
    error: BaseException | None
    try:
        check_function(names[task["name"]])
        size, machine = task["size"], machine_of(task["size"], task["cost"])
        recording, error = recorded_run(names[task["name"]], machine, size["layers"], size["batches"], task["timeout"])
        diaries[-1] = recording.pop("diary")
    except BaseException as raised:
        error = raised
    if error is None:
        return [recording, "done"]
    return [recording, "failed", pack_error(_puzzle_error(error, task["name"]))]


def _puzzle_error(error: BaseException, name: str = "") -> PuzzleError:
    if isinstance(error, PuzzleError):
        return error
    happened = "took too long" if isinstance(error, TimeIsUp) else f"raised {type(error).__name__}"
    return PuzzleError(f"the code {happened}", where=name, line="")  # sys.exit at load, an interrupt


def _make_quiet(hidden: list[str]) -> None:
    """Switch off drawing, grading and running, limit what is printed, and refuse what no puzzle needs."""
    switch_off()
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.dirname(lib.__file__))]
    sys.stdout = sys.stderr = io.TextIOWrapper(Printed(1, "w"), "utf-8", "surrogateescape", write_through=True)
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 (as long as the process)
    folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in hidden)

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in REFUSED:
            raise PuzzleError(f"a program of a puzzle does not call {event}: the machine is simulated")
        path = arguments[0] if event == "open" else None
        if isinstance(path, (str, bytes)) and os.path.realpath(os.fsdecode(path)).startswith(folders):
            raise PuzzleError("what is secret is not to be read while a puzzle is graded")

    sys.addaudithook(look)


class Printed(io.FileIO):
    """The file below stdout and stderr, which drops everything after so many bytes."""

    left = MOST_PRINTED  # of all there are: they write to the same file

    def write(self, data: Any) -> int:
        data = bytes(data)
        super().write(data[: Printed.left])
        Printed.left -= min(len(data), Printed.left)
        return len(data)

    def close(self) -> None:
        """Stay open: whoever closes it, it is that of the whole process."""
