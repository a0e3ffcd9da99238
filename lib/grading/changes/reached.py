"""Which lines of a program run: a change that leaves one without effect hides a mistake, and mends none."""

import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

Line = tuple[str, int]
"""A file, and the number of a line in it."""


def reached(files: Collection[str], work: Callable[[], object]) -> set[Line]:
    """Return which lines of these files run while ``work`` does."""
    found = set[Line]()

    def called(frame: FrameType, event: str, argument: object) -> Any:
        return at_line if frame.f_code.co_filename in files else None

    def at_line(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            found.add((frame.f_code.co_filename, frame.f_lineno))
        return at_line

    tracing = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(tracing)
    return found
