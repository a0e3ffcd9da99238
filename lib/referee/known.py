"""What earlier replays have shown: the same calls at the same size need not be carried out again.

A replay depends on nothing but the calls. So what it has shown holds for whoever sends the very same ones, and in a
class many do. What has failed is not kept: its message is about one student's lines.
"""

import hashlib
from typing import NamedTuple

from ..course.layouts import Size
from ..machine.outcome import Outcome

MOST_BYTES = 1 << 24
"""Of recordings whose outcomes are kept, together: an outcome takes some ten times as much as its recording."""


class Recorded(NamedTuple):
    """What a worker says of a run, before anything of it is believed."""

    number: int  # of its runs, which one this is
    name: str
    size: Size
    cost: str
    line: bytes
    deadline: float  # when its replay must be over, of time.monotonic

    @property
    def digest(self) -> bytes:
        """What only the very same calls at the same size have."""
        return hashlib.sha256(repr((self.name, self.size, self.cost)).encode() + self.line).digest()


class Known:
    """The outcomes that one process has found."""

    def __init__(self) -> None:
        self.outcomes: dict[object, tuple[int, Outcome]] = {}  # with the bytes of each recording, the latest last

    def outcome(self, recorded: Recorded) -> Outcome | None:
        """Return the outcome of these calls if it is still known."""
        return self.outcomes.get(recorded.digest, (0, None))[1]

    def keep(self, recorded: Recorded, outcome: Outcome) -> None:
        """Keep an outcome, and forget the oldest, if they are too many."""
        self.outcomes[recorded.digest] = len(recorded.line), outcome
        while sum(size for size, _ in self.outcomes.values()) > MOST_BYTES:
            del self.outcomes[next(iter(self.outcomes))]
