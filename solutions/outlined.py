"""What lib keeps of a solution's run: half of its schedule, the busy times of its ranks, and a small silhouette."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from lib.course.outlines import BACKWARD, CELLS, FORWARD, IDLE, OTHER, TALK, Span
from lib.record.events import MARKS, Event
from lib.record.figures.score import peak_event
from lib.record.table import OPERATIONS

MOST = 800
"""The largest number of operations in half of a schedule: of a longer one a quarter is shown, or an eighth, and so
on."""
FINE = 5
"""Times are stored with this many digits relative to the whole time, more than a picture shows: 0.3 instead of
0.30000000000000004. A schedule in seconds then takes two thirds of the room."""
STEPS = 300
"""The largest number of steps of memory in an outline: of those that are nearer to each other the highest is kept."""
ROWS = 16
"""With more ranks, half of a schedule leaves out ranks that do the same as one before them."""


def as_kept(events: Iterable[Event], time: float) -> dict[str, Any]:
    """Return half of the schedule and the silhouette of a run as JSON. The build stores them for the solutions."""
    work = [event for event in events if event.kind not in MARKS]
    digits = _digits(time)
    done = _rounded(work, digits)
    ranks = _different(done)
    until = time / 2
    while sum(event.start < until and event.rank in ranks for event in done) > MOST:
        until /= 2
    until = round(until, digits)
    names: dict[object, int] = {}
    half = []
    for event in done:
        if event.start < until and event.rank in ranks:
            what = [event.rank, event.kind, event.layer, sorted(event.batches)]
            op = None if event.op is None else [names.setdefault(event.op, len(names))]
            half.append(
                [
                    *what,
                    event.start,
                    min(event.end, until),
                    op,
                    list(event.group),
                    *event.layers,
                ]
            )
    shown = {"ranks": sorted(ranks)} if any(event.rank not in ranks for event in done) else {}
    return {
        "sketch": {"until": until, "time": time, **shown, "events": half},
        "silhouette": _silhouette(work, time),
    }


def outline_of(
    events: Sequence[Event], time: float, hosts: Container[int] = ()
) -> dict[str, Any]:
    """Return the outline of a run as JSON (see ``outlines.Outline``)."""
    digits = _digits(time)
    done = _rounded((event for event in events if event.kind not in MARKS), digits)
    highest = peak_event(event for event in events if event.rank not in hosts)
    fullest = highest.rank if highest else 0
    cell, memory = (time or 1.0) / STEPS, dict[int, tuple[float, Any]]()
    for event in events:
        if event.rank == fullest:
            at = round(event.issued / cell)
            if at not in memory or event.memory > memory[at][1]:
                memory[at] = round(event.issued, digits), math.ceil(event.memory)
    return {
        "time": time,
        "compute": _by_ranks(event for event in done if event.stream == "compute"),
        "busy": _by_ranks(done),
        "fullest": fullest,
        "memory": [memory[at] for at in sorted(memory)],
    }


def _digits(time: float) -> int:
    return FINE - math.floor(math.log10(time or 1.0))


def _rounded(events: Iterable[Event], digits: int) -> list[Event]:
    return [
        event._replace(start=round(event.start, digits), end=round(event.end, digits))
        for event in events
    ]


def _different(events: Iterable[Event]) -> set[int]:
    """Return all ranks, or of more than ROWS ranks those that differ from all before them in operations or times."""
    does: dict[int, list[object]] = {}
    for event in events:
        does.setdefault(event.rank, []).append(
            (event.kind, event.layer, event.start, event.end)
        )
    first = {tuple(own): rank for rank, own in sorted(does.items(), reverse=True)}
    return {*does} if len(does) <= ROWS else {*first.values()}


def _silhouette(events: Iterable[Event], time: float) -> list[str]:
    by_rank: dict[int, list[dict[str, float]]] = {}
    for event in events:
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


def _by_ranks(events: Iterable[Event]) -> list[tuple[list[int], list[Span]]]:
    """Return the joined spans of the events, each list of spans with the ranks that share it."""
    own: dict[int, list[Span]] = {}
    for event in sorted(events, key=lambda event: event.start):
        spans = own.setdefault(event.rank, [])
        if spans and event.start <= spans[-1][1]:
            start, end = spans.pop()
            spans.append((start, max(end, event.end)))
        elif event.end > event.start:
            spans.append((event.start, event.end))
    found: dict[tuple[Span, ...], list[int]] = {}
    for rank, spans in sorted(own.items()):
        found.setdefault(tuple(spans), []).append(rank)
    return [(ranks, list(spans)) for spans, ranks in found.items()]
