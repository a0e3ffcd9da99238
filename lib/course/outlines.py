"""The parts of a solution that a learner may see before solving the puzzle: half of a schedule, the busy times of the
ranks, a small silhouette, and the time and memory at other sizes.

They are read from outlines.json, which the build makes by running the solutions. The solutions are not in lib.
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
"""The largest number of operations in half of a schedule: of a longer one a quarter is shown, or an eighth, and so
on."""
FINE = 5
"""Times are stored with this many digits relative to the whole time, more than a picture shows: 0.3 instead of
0.30000000000000004. A schedule in seconds then takes two thirds of the room."""
ROWS = 16
"""With more ranks, half of a schedule leaves out ranks that do the same as one before them."""
CELLS = 48
"""The number of cells in a row of a silhouette."""
FORWARD, BACKWARD, OTHER, TALK, IDLE = "FBUC."
"""The letters of a silhouette: forward, backward, other compute, communication alone, and idle."""


class HalfSchedule(NamedTuple):
    """The first half of a schedule, or less of a long one, without memory: the events of ``ranks`` until ``until``, in
    a run that takes ``time``. The number of ``others`` counts ranks that do the same at the same time."""

    events: Sequence[Event]
    until: float
    time: float
    ranks: Sequence[int]
    others: int


class Outline(NamedTuple):
    """The busy times of each rank, without its operations. ``time`` is that of the whole run, in ticks."""

    compute: Mapping[int, Sequence[Span]]  # for each rank the spans in which it computes
    busy: Mapping[int, Sequence[Span]]  # for each rank the spans in which it computes or communicates
    time: float


def half_schedule(puzzle: Puzzle) -> HalfSchedule:
    """Return half of the schedule of a puzzle's solution."""
    table = kept("outlines.json")[puzzle.name]["sketch"]
    everyone = range(mesh_of(puzzle.size).everyone)
    ranks = table.get("ranks", everyone)
    # every rank has a row, even if it is always idle
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
    """A size, and the time and memory of the solution at that size."""

    size: Size
    time: float
    memory: float


def solution_figures(puzzle: Puzzle) -> SolutionFigures:
    """Return the time and memory of the solution at the puzzle's own size."""
    return SolutionFigures(puzzle.size, *kept("outlines.json")[puzzle.name]["at_home"])


def solution_work(puzzle: Puzzle) -> dict[tuple[str, bool], int]:
    """Return the largest counts of operations on a rank of the solution (see ``score.work``), at its own size."""
    return {(kind, across): count for kind, across, count in kept("outlines.json")[puzzle.name]["work"]}


def figures_elsewhere(puzzle: Puzzle) -> list[SolutionFigures]:
    """Return the other sizes at which a puzzle is graded, with the time and memory of the solution."""
    rows = kept("outlines.json")[puzzle.name]["elsewhere"]
    return [SolutionFigures(puzzle.size | changed, time, memory) for changed, time, memory in rows]


def outline(puzzle: Puzzle) -> Outline:
    """Return the busy times of the ranks of a puzzle's solution."""
    table = kept("outlines.json")[puzzle.name]["outline"]
    compute, busy = (
        {rank: [(start, end) for start, end in spans] for ranks, spans in table[key] for rank in ranks}
        for key in ("compute", "busy")
    )
    return Outline(compute, busy, table["time"])


def silhouette(puzzle: Puzzle) -> list[str]:
    """Return a text of CELLS letters for each rank of a puzzle's solution: what fills most of each cell of time."""
    return list(kept("outlines.json")[puzzle.name]["silhouette"])


def as_kept(events: Iterable[Event], time: float) -> dict[str, Any]:
    """Return half of the schedule, outline and silhouette of a run as JSON. The build stores them for the solutions."""
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
    """Return all ranks, or of more than ROWS ranks those that differ from all before them in operations or times."""
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
