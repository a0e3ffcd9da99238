"""What ranks do alike, written once: a text with gaps, into which each rank's own numbers are filled.

In data parallelism a thousand ranks do the same at the same time, each with a micro-batch of its own. To find that out
and to fill the gaps takes half of the time of writing each rank's text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lib.record.events import Event
from lib.record.table import in_lane

from .texts import ranges

Numbers = frozenset[int] | tuple[int, ...]
"""The micro-batches of an operation, or the ranks of its group."""
Columns = Mapping[str, tuple[Any, ...]]
"""What a rank has done, by the fields of its events."""

RANKS_OWN = ("batches", "group")  # what each rank has of its own, told by numbers
COMPARED = tuple(name for name in Event._fields if name not in ("rank", *RANKS_OWN, "op", "awaited"))
MESSAGES = frozenset(in_lane("message"))
MARK = "~"  # around a gap; in no other text of a schedule


def columns_of(events: Sequence[Event]) -> Columns:
    """Return the events of a rank by their fields."""
    return dict(zip(Event._fields, zip(*events, strict=True), strict=False))


def renaming(one: Columns, other: Columns) -> dict[Numbers, Numbers] | None:
    """Return which micro-batches and groups of one rank are others of another rank, and which ones, if it does the same
    at the same times, in as much memory. Return None if it does not, or for messages: each has a number of its own."""
    if any(one.get(name) != other.get(name) for name in COMPARED) or not MESSAGES.isdisjoint(one.get("kind", ())):
        return None
    same, renamed = list[Numbers](), dict[Numbers, Numbers]()
    for name in RANKS_OWN:
        ones, others = one.get(name, ()), other.get(name, ())
        if ones == others:
            continue
        # A few objects come many times, and to ask which they are is faster than whether they are equal.
        pairs = dict(zip(zip(map(id, ones), map(id, others), strict=True), zip(ones, others, strict=True), strict=True))
        for its, own in pairs.values():
            if its is own or its == own:
                same.append(its)
            elif not its or not own or renamed.setdefault(its, own) != own:
                return None
    return None if any(numbers in renamed for numbers in same) else renamed


class RangeTexts(dict[Numbers, str]):
    """Micro-batches and groups as texts. ``details``: larger texts that have some of these in them, to be kept by who
    writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.details: dict[tuple[object, ...], str] = {}

    def __missing__(self, numbers: Numbers) -> str:
        self[numbers] = text = ranges(numbers)
        return text


class Placeholders(RangeTexts):
    """Placeholders in the place of these texts."""

    def __missing__(self, numbers: Numbers) -> str:
        self[numbers] = gap = f"{MARK}{len(self)}{MARK}"
        return gap


class Template:
    """A text with gaps, of ``gaps``, and ``RANK`` for a rank's number."""

    RANK = f"{MARK}rank{MARK}"

    def __init__(self, text: str, gaps: Placeholders) -> None:
        self.parts, self.numbers = text.split(MARK), list(gaps)
        self.gaps = self.parts[1::2]

    def filled(self, rank: int, own: Mapping[Numbers, Numbers]) -> list[str]:
        """Return the text of a rank, with its own numbers, in parts: what all have in common is not written again."""
        texts = {str(at): ranges(own.get(numbers, numbers)) for at, numbers in enumerate(self.numbers)}
        texts["rank"] = str(rank)
        parts = self.parts.copy()
        parts[1::2] = map(texts.__getitem__, self.gaps)
        return parts
