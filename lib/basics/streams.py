"""Standard streams that cannot fail: some programs are started with one of them closed, or write to a full disk."""

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

closed: set[int] = set()
"""Those of the three streams that this process was started without."""


def open_closed() -> None:
    """Open what is closed of stdin, stdout and stderr, to nowhere. Else the next file that is opened would be taken for
    it, and would get what is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            os.open(os.devnull, os.O_RDWR)  # this takes the lowest number that is free
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process)


def send_nowhere(stream: TextIO) -> None:
    """Send what is still in the buffer of a stream to nowhere, so that nothing complains at exit: nobody reads on."""
    with suppress(OSError, ValueError, AttributeError):  # it is no file, or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


COMMANDS = re.compile(r"^\s*:(?=:)|#(?=#(?:\[|vso\[|teamcity\[))", re.MULTILINE)
"""What a line begins with, or has in it, that GitHub Actions, Azure Pipelines or TeamCity take for a command."""


def without_commands(text: str) -> str:
    """Return a text with a blank in each command to a CI system, so that it is read as words: it may repeat what others
    have written.

    >>> without_commands("      ::error::lost")
    '      : :error::lost'
    """
    return COMMANDS.sub(r"\g<0> ", text)


def print_to_stderr(text: str, end: str = "\n") -> None:
    """Print to stderr. Where it is closed, or its disk full, print nothing: nothing that matters depends on it."""
    try:
        print(without_commands(text), end=end, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):  # full, or closed
        send_nowhere(sys.stderr)  # or Python would try again at its end, and choose an exit status of its own
