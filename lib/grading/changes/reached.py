"""Which lines of a program run: a change that leaves one without effect hides a mistake, and mends none."""

import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any


def reached(files: Collection[str], work: Callable[[], object]) -> dict[str, set[int]]:
    """Return the numbers of the lines of these files that run while ``work`` does."""
    found = {file: set[int]() for file in files}

    def called(frame: FrameType, event: str, argument: object) -> Any:
        return at_line if frame.f_code.co_filename in found else None

    def at_line(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            found[frame.f_code.co_filename].add(frame.f_lineno)
        return at_line

    tracing = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(tracing)
    return found
