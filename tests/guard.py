"""Only a test that is marked ``process`` (or looks in a browser) may start a process or a server; any other fails.

So ``make quick``, which leaves these out with ``pytest -m``, starts none, and stays quick.
"""

import sys
from contextlib import suppress
from typing import Any

import pytest

from lib.basics import errors
from lib.grading.seal import seal

STARTS = frozenset(
    {
        "multiprocessing.spawn",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.system",
        "pty.spawn",
        "socket.bind",
        "subprocess.Popen",
        "_winapi.CreateProcess",
    }
)
"""What Python tells its audit hooks when a process is started, or a server, and a name for what it does not tell."""
FIXTURES = frozenset(
    {
        "address",
        "apart",
        "at_a_shell",
        "bare",
        "built",
        "cheats",
        "executed",
        "installed",
        "kernels",
        "lab",
        "machine",
        "mechanism",
        "truth",
    }
)
"""Fixtures that start processes: a test that asks for one of them is marked by itself."""
ALLOWED = frozenset({"browser", "process"})


class Guard:
    """Hears of every process that is started, and knows the test that runs."""

    def __init__(self) -> None:
        self.unmarked = ""
        self.started: list[str] = []

    def begin(self, item: pytest.Item) -> None:
        """This test runs now."""
        self.unmarked = "" if ALLOWED & {mark.name for mark in item.iter_markers()} else item.nodeid
        self.started.clear()

    def end(self) -> None:
        """No test runs."""
        self.unmarked = ""

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse what a test without the marker starts, and keep it in mind, should the refusal be swallowed."""
        if event in STARTS and self.unmarked:
            self.started.append(event)
            self.check()

    def check(self) -> None:
        """Fail a test without the marker that has started something."""
        if self.started:
            pytest.fail(f"{self.unmarked} is not marked `process`, and has called {', '.join(self.started)}")


guard = Guard()
errors._OURS += (__file__,)  # it hears of events in the middle of lib's work: no learner's code, to be interrupted
seal()  # with that
sys.addaudithook(guard.hear)
with suppress(ImportError):  # by this multiprocessing starts its fresh processes, past the audit hooks
    import _posixsubprocess

    def _noted(*arguments: Any, start: Any = _posixsubprocess.fork_exec) -> Any:
        guard.hear("multiprocessing.spawn", ())
        return start(*arguments)

    _posixsubprocess.fork_exec = _noted
