"""How much work Python does, in lines that it runs: the same on every machine, however busy it is."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(work: Callable[[], object]) -> int:
    """Return how many lines of Python a piece of work runs."""
    lines = 0

    def seen(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return seen

    tracing = sys.gettrace()
    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(tracing)
    return lines
