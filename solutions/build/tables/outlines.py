"""What lib keeps of a run: half of its schedule, and the busy times of its ranks with the memory of the fullest one."""

import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

from lib.course.outlines import Span
from lib.record.events import MARKS, Event
from lib.record.figures.score import peak_event

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


def half_of(events: Iterable[Event], time: float) -> dict[str, Any]:
    """Return half of the schedule of a run as JSON (see ``outlines.HalfSchedule``)."""
    digits = _digits(time)
    done = _rounded(events, digits)
    ranks = _different(done)
    until = time / 2
    while sum(event.start < until and event.rank in ranks for event in done) > MOST:
        until /= 2
    until = round(until, digits)
    names: dict[object, int] = {}  # operations are numbered as they come
    half: list[Any] = []
    for event in done:
        if event.start < until and event.rank in ranks:
            what = [event.rank, event.kind, event.layer, sorted(event.batches)]
            op = None if event.op is None else [names.setdefault(event.op, len(names))]
            half.append([*what, event.start, min(event.end, until), op, list(event.group), *event.layers])
    shown = {"ranks": sorted(ranks)} if any(event.rank not in ranks for event in done) else {}
    return {"until": until, "time": time, **shown, "events": half}


def outline_of(events: Sequence[Event], time: float, hosts: Container[int] = ()) -> dict[str, Any]:
    """Return the outline of a run as JSON (see ``outlines.Outline``)."""
    digits = _digits(time)
    done = _rounded(events, digits)
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
    """Return the operations of a run, with rounded times."""
    return [
        event._replace(start=round(event.start, digits), end=round(event.end, digits))
        for event in events
        if event.kind not in MARKS
    ]


def _different(events: Iterable[Event]) -> set[int]:
    """Return all ranks, or of more than ROWS ranks those that differ from all before them in operations or times."""
    does: dict[int, list[object]] = {}
    for event in events:
        does.setdefault(event.rank, []).append((event.kind, event.layer, event.start, event.end))
    first = {tuple(own): rank for rank, own in sorted(does.items(), reverse=True)}
    return {*does} if len(does) <= ROWS else {*first.values()}


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
