"""What of a solution may be shown to those who have not solved the puzzle: half of a schedule, when ranks are idle, a
silhouette as small as a stamp, and what it takes at other sizes.

It is read from outlines.json, which the build makes by running the solutions. These themselves are not in lib.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..record.events import MARKS, Event
from ..record.table import OPERATIONS
from .layouts import Size, mesh_of
from .specs import Puzzle, kept

Span = tuple[float, float]  # (start, end) in ticks


MOST = 800
"""Operations of a sketch: of a schedule with more in its first half there is a quarter, or an eighth, and so on."""
FINE = 5
"""A moment is kept to a part in ten to this power of the whole time, which no picture shows: 0.3 instead of
0.30000000000000004, and a schedule in seconds in two thirds of the room."""
ROWS = 16
"""Of a schedule of more ranks, a sketch has those alone that do not do the same as one before them."""
CELLS = 48
"""Cells of a row of a silhouette."""
FORWARD, BACKWARD, OTHER, TALK, IDLE = "FBUC."
"""What a cell of a silhouette stands for: passes through layers, other compute, communication alone, and nothing."""


class HalfSchedule(NamedTuple):
    """The first half of a schedule, or less of a long one: what ``ranks`` do until ``until``, of a run that takes
    ``time``, without its memory. There are so many ``others``, which do the same as these at the same time."""

    events: Sequence[Event]
    until: float
    time: float
    ranks: Sequence[int]
    others: int


class Outline(NamedTuple):
    """When each rank works, and not what it does. ``time`` is that of the whole run, in ticks."""

    compute: Mapping[int, Sequence[Span]]  # for each rank the spans in which it computes
    busy: Mapping[int, Sequence[Span]]  # for each rank the spans in which it computes or communicates
    time: float


def half_schedule(puzzle: Puzzle) -> HalfSchedule:
    """Return half of the schedule of a puzzle's solution."""
    table = kept("outlines.json")[puzzle.name]["sketch"]
    everyone = range(mesh_of(puzzle.size).everyone)
    ranks = table.get("ranks", everyone)
    # each has a row, also one that is idle all the time
    events = [Event(rank, "load_weights", None, frozenset(), 0.0, 0.0, 0.0, ()) for rank in ranks]
    events += [
        Event(
            *(rank, kind, layer, frozenset(batches), start, start, end, (), op and tuple(op), tuple(group)),
            layers=tuple(layers),
        )
        for rank, kind, layer, batches, start, end, op, group, *layers in table["events"]
    ]
    return HalfSchedule(events, table["until"], table["time"], ranks, len(everyone) - len(ranks))


class SolutionFigures(NamedTuple):
    """A size, and what the solution takes there."""

    size: Size
    time: float
    memory: float


def solution_figures(puzzle: Puzzle) -> SolutionFigures:
    """Return what the solution takes at the puzzle's own size."""
    return SolutionFigures(puzzle.size, *kept("outlines.json")[puzzle.name]["at_home"])


def solution_work(puzzle: Puzzle) -> dict[tuple[str, bool], int]:
    """Return how often a rank of the solution at most does what (see ``score.work``), at the puzzle's own size."""
    return {(kind, across): count for kind, across, count in kept("outlines.json")[puzzle.name]["work"]}


def figures_elsewhere(puzzle: Puzzle) -> list[SolutionFigures]:
    """Return the other sizes at which a puzzle is graded."""
    rows = kept("outlines.json")[puzzle.name]["elsewhere"]
    return [SolutionFigures(puzzle.size | changed, time, memory) for changed, time, memory in rows]


def outline(puzzle: Puzzle) -> Outline:
    """Return when the ranks of a puzzle's solution work."""
    table = kept("outlines.json")[puzzle.name]["outline"]
    compute, busy = (
        {rank: [(start, end) for start, end in spans] for ranks, spans in table[key] for rank in ranks}
        for key in ("compute", "busy")
    )
    return Outline(compute, busy, table["time"])


def silhouette(puzzle: Puzzle) -> list[str]:
    """Return what each rank of a puzzle's solution does, in a text of CELLS letters: what fills most of each cell."""
    return list(kept("outlines.json")[puzzle.name]["silhouette"])


def as_kept(events: Iterable[Event], time: float) -> dict[str, Any]:
    """Return sketch, outline and silhouette of a run as outlines.json keeps them: the build makes it of the solutions'
    runs."""
    work = [event for event in events if event.kind not in MARKS]
    digits = FINE - math.floor(math.log10(time or 1.0))
    done = [event._replace(start=round(event.start, digits), end=round(event.end, digits)) for event in work]
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
            half.append([*what, event.start, min(event.end, until), op, list(event.group), *event.layers])
    compute = _by_ranks(event for event in done if event.lane == "compute")
    shown = {"ranks": sorted(ranks)} if any(event.rank not in ranks for event in done) else {}
    return {
        "sketch": {"until": until, "time": time, **shown, "events": half},
        "outline": {"time": time, "compute": compute, "busy": _by_ranks(done)},
        "silhouette": _silhouette(work, time),
    }


def _different(events: Iterable[Event]) -> set[int]:
    """Return all ranks, or of more than ROWS of them those that do something else than all before them, or at another
    time."""
    does: dict[int, list[object]] = {}
    for event in events:
        does.setdefault(event.rank, []).append((event.kind, event.layer, event.start, event.end))
    first = {tuple(own): rank for rank, own in sorted(does.items(), reverse=True)}
    return {*does} if len(does) <= ROWS else {*first.values()}


def _silhouette(events: Iterable[Event], time: float) -> list[str]:
    by_rank: dict[int, list[dict[str, float]]] = {}
    for event in events:
        cells = by_rank.setdefault(event.rank, [{} for _ in range(CELLS)])
        start, end = (moment * CELLS / (time or 1.0) for moment in (event.start, event.end))
        for at in range(int(start), min(int(end) + 1, CELLS)):
            letter, here = _letter(event), cells[at]
            here[letter] = here.get(letter, 0.0) + min(end, at + 1) - max(start, at)
    return ["".join(map(_most, cells)) for _, cells in sorted(by_rank.items())]


def _letter(event: Event) -> str:
    row = OPERATIONS.get(event.kind)
    if event.lane != "compute":
        return TALK
    return OTHER if row is None or not row.trains else BACKWARD if row.backward else FORWARD


def _most(cell: Mapping[str, float]) -> str:
    """Return what fills most of a cell: compute rather than what goes on beside it, and nothing if that is more."""
    busy = {letter: length for letter, length in cell.items() if letter != TALK}
    if sum(busy.values()) < 0.5:
        busy = dict(cell)
    return max(busy, key=busy.__getitem__) if sum(cell.values()) >= 0.5 else IDLE


def _by_ranks(events: Iterable[Event]) -> list[tuple[list[int], list[Span]]]:
    """Return the joined spans of the events, and with each list of spans the ranks that share it."""
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
