"""The marker ``process`` is where it belongs: a test without it that starts something fails, whatever it does then."""

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.guard import guard


def server() -> None:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))


STARTS: dict[str, Callable[[], object]] = {
    "a program": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "a shell": lambda: os.system("true"),
    "a fork": os.fork,
    "a worker": multiprocessing.get_context("fork").Process(target=print).start,
    "a worker of its own": multiprocessing.get_context("spawn").Process(target=print).start,
    "a server": server,
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork a process")
@pytest.mark.parametrize("what", STARTS)
def test_a_test_without_the_marker_starts_nothing(what: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"without_the_marker.* is not marked `process`, and has called "):
        STARTS[what]()
    assert guard.unmarked == request.node.nodeid and guard.started
    guard.started.clear()


def test_a_refusal_that_is_swallowed_still_fails_the_test() -> None:
    with suppress(BaseException):
        subprocess.run(["true"], check=True)
    with pytest.raises(pytest.fail.Exception, match=r"swallowed.* is not marked `process`, .*subprocess.Popen"):
        guard.check()
    guard.started.clear()


@pytest.mark.process
def test_a_test_with_the_marker_may() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert not guard.started
