"""A small picture of a run in letters: for each rank what fills most of each part of the time."""

from collections.abc import Iterable, Mapping

from lib.course.outlines import BACKWARD, CELLS, FORWARD, IDLE, OTHER, TALK
from lib.record.events import MARKS, Event
from lib.record.table import OPERATIONS


def silhouette_of(events: Iterable[Event], time: float) -> list[str]:
    """Return a text for each rank, with a letter for each part of the time."""
    by_rank: dict[int, list[dict[str, float]]] = {}
    for event in events:
        if event.kind in MARKS:
            continue
        cells = by_rank.setdefault(event.rank, [{} for _ in range(CELLS)])
        start, end = (moment * CELLS / (time or 1.0) for moment in (event.start, event.end))
        for at in range(int(start), min(int(end) + 1, CELLS)):
            letter, here = letter_of(event), cells[at]
            here[letter] = here.get(letter, 0.0) + min(end, at + 1) - max(start, at)
    return ["".join(map(_most, cells)) for _, cells in sorted(by_rank.items())]


def letter_of(event: Event) -> str:
    """The letter of an operation in a silhouette."""
    row = OPERATIONS.get(event.kind)
    if event.stream != "compute":
        return TALK
    return OTHER if row is None or not row.trains else BACKWARD if row.backward else FORWARD


def _most(cell: Mapping[str, float]) -> str:
    """Return the letter that fills most of a cell. Compute counts before communication beside it."""
    busy = {letter: length for letter, length in cell.items() if letter != TALK}
    if sum(busy.values()) < 0.5:
        busy = dict(cell)
    return max(busy, key=busy.__getitem__) if sum(cell.values()) >= 0.5 else IDLE
