"""What calls of the network launch on a GPU besides kernels of NCCL: copies to the host and back for gloo, and copies
on the GPU itself where NCCL needs no more. They belong to the call, and are no work."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

_START = attrgetter("start")


@dataclass(frozen=True, eq=False, slots=True)
class Inside:
    """A span of a thread of the CPU in which the network is called. ``about``: what it says of the call, if it does."""

    thread: object
    start: float
    end: float
    about: dict[str, Any] | None = None


class Launches:
    """In which of these spans something was launched."""

    def __init__(self, spans: Iterable[Inside]) -> None:
        by_thread = defaultdict[object, list[Inside]](list)
        for span in spans:
            by_thread[span.thread].append(span)
        self._spans: dict[object, Sequence[Inside]] = {}
        for thread, own in by_thread.items():
            over: list[Inside] = []
            for span in sorted(own, key=_START):
                if not over or span.start >= over[-1].end:  # else it is inside of that one
                    over.append(span)
            self._spans[thread] = over

    def at(self, thread: object, moment: float) -> Inside | None:
        """Return the span in which a thread is at a moment, if there is one."""
        own = self._spans.get(thread, ())
        at = bisect_right(own, moment, key=_START) - 1
        return own[at] if at >= 0 and moment <= own[at].end else None
