"""A small picture of a run in letters: for each rank what fills most of each part of the time."""

from collections.abc import Iterable

from drawing.schedule.miniature import fill, most_of
from lib.course.outlines import BACKWARD, CELLS, FORWARD, IDLE, OTHER, TALK
from lib.record.events import MARKS, Event
from lib.record.table import OPERATIONS


def silhouette_of(events: Iterable[Event], time: float) -> list[str]:
    """Return a text for each rank, with a letter for each part of the time."""
    by_rank: dict[int, list[tuple[float, float, str]]] = {}
    scale = CELLS / (time or 1.0)
    for event in events:
        if event.kind not in MARKS:
            by_rank.setdefault(event.rank, []).append((event.start * scale, event.end * scale, letter_of(event)))
    filled = (fill(spans, CELLS + 1)[:CELLS] for _, spans in sorted(by_rank.items()))
    return ["".join(letter or IDLE for letter in most_of(cells, 0.5, TALK)) for cells in filled]


def letter_of(event: Event) -> str:
    """The letter of an operation in a silhouette."""
    row = OPERATIONS.get(event.kind)
    if event.stream != "compute":
        return TALK
    return OTHER if row is None or not row.trains else BACKWARD if row.backward else FORWARD
