"""Only a test that is marked ``process`` (or looks in a browser) may start a process or a server; any other fails.

So ``make quick``, which leaves these out with ``pytest -m``, starts none, and stays quick.
"""

import sys
from contextlib import suppress
from functools import wraps
from pkgutil import resolve_name
from typing import Any

import pytest

STARTS = """os.execv os.execve os.fork os.forkpty os.posix_spawn os.posix_spawnp os.spawnv os.spawnve os.startfile
os.system subprocess.Popen.__init__ _posixsubprocess.fork_exec _winapi.CreateProcess socket.socket.bind"""
"""What starts a process or a server: each has a watcher before it. A hook of Python's audits would hear of all of them,
but also of every frame that is looked at: runs took half as long again."""
NAMES = "address apart at_a_shell bare built cheats executed installed kernels lab machine mechanism truth"
FIXTURES = frozenset(NAMES.split())
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

    def hear(self, what: str) -> None:
        """Refuse what a test without the marker starts, and keep it in mind, should the refusal be swallowed."""
        if self.unmarked:
            self.started.append(what)
            self.check()

    def check(self) -> None:
        """Fail a test without the marker that has started something."""
        if self.started:
            pytest.fail(f"{self.unmarked} is not marked `process`, and has called {', '.join(self.started)}")


guard = Guard()


def watch(what: str) -> None:
    """Let the guard hear of each call."""
    place, _, name = what.rpartition(".")
    owner = resolve_name(place)
    start = getattr(owner, name)

    @wraps(start)
    def watched(*arguments: Any, **more: Any) -> Any:
        guard.hear(what)
        return start(*arguments, **more)

    setattr(owner, name, watched)
    home = sys.modules.get(start.__module__)  # posix, of what is in os: there pickle looks for it
    if getattr(home, name, None) is start:
        setattr(home, name, watched)


for what in STARTS.split():
    with suppress(ImportError, AttributeError):  # another system's
        watch(what)
