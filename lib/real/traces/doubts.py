"""What in a file of PyTorch's profiler is odd, or cannot be true, though it is good JSON: a bit may have turned over.

Nothing is left out or corrected because of it. Whoever reads the profile learns how often it occurs, and where first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .calls import ROUGHLY

NEGATIVE = "events that last for less than no time, taken as if for none"
NO_LENGTH = "events that do not say how long they last, taken as if for no time"
NO_NAME = "events without a name"
NO_PHASE = "events that are left out, since the format knows no such ph"
UNKNOWN_KIND = "events that are left out, since no such kind (cat) is known here"
PHASES = frozenset("BEXiICbnesftSTpFPNODMVvRca()")
"""What an event may be in the Trace Event Format: ``X`` is one that lasts."""
OTHER_KINDS = frozenset(
    (
        *("gpu_user_annotation", "external_correlation", "python_function", "overhead", "trace", "collective_comm"),
        *("cuda_sync", "cuda_event", "cuda_profiler_range", "gpu_pm_counter", "ac2g", "async_cpu_to_gpu", "fwdbwd"),
        *("mtia_runtime", "mtia_ccp_events", "mtia_insight", "mtia_workloadd", "mtia_counters", "glow_runtime"),
        *("hpu_op", "xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver"),
    )
)
"""Kinds of events, in small letters, that Kineto writes and that are not read (its ActivityType.cpp)."""


class Doubts:
    """What is odd in one file. ``kinds``: all kinds of events that are known."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self.kinds = kinds | OTHER_KINDS
        self.counts, self.first = Counter[str](), dict[str, str]()

    def look(self, event: Mapping[str, Any]) -> None:
        """Look at an event, whatever it is."""
        phase, kind, length = event.get("ph"), event.get("cat"), event.get("dur")
        if phase not in PHASES:
            self._note(NO_PHASE, event)
        elif phase == "X":
            if not isinstance(kind, str) or kind.lower() not in self.kinds:
                self._note(UNKNOWN_KIND, event)
            if "name" not in event:
                self._note(NO_NAME, event)
            if length is None:
                self._note(NO_LENGTH, event)
            elif isinstance(length, (int, float)) and length < 0:
                self._note(NEGATIVE, event)

    def _note(self, what: str, event: Mapping[str, Any]) -> None:
        self.counts[what] += 1
        keys = [key for key in ("ph", "cat", "name", "ts", "dur") if key in event]
        self.first.setdefault(what, ", ".join(f"{key} {event[key]!r}"[:60] for key in keys))

    def sentences(self, source: str) -> list[str]:
        """Return what to say of a file of this name."""
        return [
            f"{source}: {what}: {number}, the first with {self.first[what]}" for what, number in self.counts.items()
        ]


class Taken(NamedTuple):
    """A kernel of a step: the stream that it ran on, when it began and ended, and when it was launched (None: the file
    does not say)."""

    stream: str
    start: float
    end: float
    launched: float | None


def of_kernels(kernels: Iterable[Taken], source: str) -> list[str]:
    """Return what cannot be true of the kernels of a step, in sentences: of those of one stream, each begins when the
    one before has ended, and none begins before it was launched."""
    last = dict[str, float]()
    together = early = 0.0
    stream_of = ""
    for stream, start, end, launched in sorted(kernels, key=lambda one: one.start):
        overlap = min(last.get(stream, start), end) - start
        if overlap > together:
            together, stream_of = overlap, stream
        last[stream] = max(last.get(stream, end), end)
        if launched is not None:
            early = max(early, launched - start)
    said = []
    if together > ROUGHLY:
        said.append(
            f"{source}: two kernels run at once on stream {stream_of}, for {together / 1e3:.3g} ms: "
            "a stream does one after the other, so a time is wrong, unless they are parts of a CUDA graph"
        )
    if early > ROUGHLY:
        said.append(
            f"{source}: a kernel begins {early / 1e3:.3g} ms before it was launched: a time is wrong, "
            "or the clocks of the GPU and of its CPU differ"
        )
    return said
