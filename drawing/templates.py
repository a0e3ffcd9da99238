"""Templates for ranks that do the same: a text with placeholders for each rank's own numbers.

In data parallelism a thousand ranks do the same at the same time, each with its own micro-batch. To find that out and
to fill in a template takes half of the time of writing each rank's text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lib.record.events import Event
from lib.record.table import in_stream

from .texts import ranges

Numbers = frozenset[int] | tuple[int, ...]
"""The micro-batches of an operation, or the ranks of its group."""
Columns = Mapping[str, tuple[Any, ...]]
"""The events of a rank as columns, by field."""

RANKS_OWN = ("batches", "group")  # fields in which ranks with the same events may differ
COMPARED = tuple(name for name in Event._fields if name not in ("rank", *RANKS_OWN, "op", "awaited"))
MESSAGES = frozenset(in_stream("message"))
MARK = "~"  # around a placeholder; in no other text of a schedule


def columns_of(events: Sequence[Event]) -> Columns:
    """Return the events of a rank as columns."""
    return dict(zip(Event._fields, zip(*events, strict=True), strict=False))


def renaming(one: Columns, other: Columns) -> dict[Numbers, Numbers] | None:
    """Return the micro-batches and groups of one rank that are different ones of another rank with otherwise equal
    events, or None if the events differ, or if there are messages, each of which has its own number."""
    if any(one.get(name) != other.get(name) for name in COMPARED) or not MESSAGES.isdisjoint(one.get("kind", ())):
        return None
    same, renamed = list[Numbers](), dict[Numbers, Numbers]()
    for name in RANKS_OWN:
        ones, others = one.get(name, ()), other.get(name, ())
        if ones == others:
            continue
        # The same few objects occur many times, and comparing identities is faster.
        pairs = dict(zip(zip(map(id, ones), map(id, others), strict=True), zip(ones, others, strict=True), strict=True))
        for its, own in pairs.values():
            if its is own or its == own:
                same.append(its)
            elif not its or not own or renamed.setdefault(its, own) != own:
                return None
    return None if any(numbers in renamed for numbers in same) else renamed


class RangeTexts(dict[Numbers, str]):
    """A cache of the texts of micro-batches and groups. ``details`` is a cache of larger texts made with them."""

    def __init__(self) -> None:
        super().__init__()
        self.details: dict[tuple[object, ...], str] = {}

    def __missing__(self, numbers: Numbers) -> str:
        self[numbers] = text = ranges(numbers)
        return text


class Placeholders(RangeTexts):
    """A cache that gives a placeholder in place of each text."""

    def __missing__(self, numbers: Numbers) -> str:
        self[numbers] = mark = f"{MARK}{len(self)}{MARK}"
        return mark


class Template:
    """A text with placeholders, and ``RANK`` for the number of a rank."""

    RANK = f"{MARK}rank{MARK}"

    def __init__(self, text: str, placeholders: Placeholders) -> None:
        self.parts, self.numbers = text.split(MARK), list(placeholders)
        self.places = self.parts[1::2]

    def filled(self, rank: int, own: Mapping[Numbers, Numbers]) -> list[str]:
        """Return the text of a rank with its own numbers, in parts, so that common ones are not copied."""
        texts = {str(at): ranges(own.get(numbers, numbers)) for at, numbers in enumerate(self.numbers)}
        texts["rank"] = str(rank)
        parts = self.parts.copy()
        parts[1::2] = map(texts.__getitem__, self.places)
        return parts
