"""What a file says of one rank: its work, and its calls of the network. Times are in microseconds, from ``base`` on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NOBODY: frozenset[int] = frozenset()
ROUGHLY = 20.0
"""Microseconds by which times of one clock may contradict each other."""


def natural(value: object, most: int = 1 << 31) -> int | None:
    """Return a value if it is a whole number from 0 to ``most``, as a rank or a count is, and None if it is not."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


class Work(NamedTuple):
    """A span in which a rank computes."""

    kind: str
    start: float
    end: float
    layer: int | None = None
    batches: frozenset[int] = NOBODY


@dataclass(slots=True)
class Call:
    """A call of the network as its own rank sees it: from when the rank is there to its end."""

    kind: str
    start: float
    end: float | None
    """None for a call that was not over when the file was written."""
    group: tuple[int, ...] | None = None
    """The ranks that meet, if the file says who they are."""
    group_name: str = ""
    number: int | None = None
    """The place of a collective among those of its group, which all its ranks count alike, if the file has it."""
    ends: tuple[int, int] | None = None
    """The sender and the receiver of a message, if the file says who they are."""
    size: int = 0
    """Bytes of what this rank brings or gets, whichever is more; 0 if it is not known."""


@dataclass(slots=True)
class Rank:
    """One rank's part of a profile. ``source``: the name of its file; ``base``: nanoseconds from which its times count,
    by its own clock; ``world``: the number of all ranks, if it is known."""

    rank: int
    source: str
    base: int = 0
    world: int | None = None
    backend: str = ""
    device: str = ""
    groups: int = 1
    """The number of its process groups of different ranks, as far as the file says."""
    work: Sequence[Work] = ()
    calls: list[Call] = field(default_factory=list)
    others: list[Call] = field(default_factory=list)
    """Calls of other steps, beside which this one runs, as ``work`` is that of all steps."""
    begins: float | None = None
    """When the step begins, where the file has steps; ``ends``: when its own work ends; ``next``: when the next one
    begins, if there is one."""
    ends: float | None = None
    next: float | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What cannot be true in its file, in sentences."""
    unknown: Counter[str] = field(default_factory=Counter)
    """How many events of its file are of a kind that is not known here, by kind."""
