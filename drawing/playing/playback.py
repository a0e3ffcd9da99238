"""The data of a page that plays a schedule: when each rank does and stores what, and its line of code."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import dedent
from types import CodeType
from typing import Any

from lib.basics.errors import AROUND, Line, PuzzleError, Spot
from lib.basics.units import MS
from lib.record.events import MARKS, Event
from lib.record.figures.chain import chain_of
from lib.record.kinds import MEMORY_KINDS

from ..ink import theme
from ..ink.figure import Figure
from ..ink.trace import Trace
from ..schedule.gaps import gaps_of, waits_for
from ..schedule.layout import Row
from ..schedule.memory import most_memory
from ..schedule.operations import color_of, words_of

CARDS = 16
"""The largest number of rows with a card at the same time. The page can show others in their place."""
SECONDS = 14.0
"""Seconds that a schedule plays at speed 1."""
MOST_CODE = 1000
"""The largest number of lines of code shown."""
OPENS = (0.5, 0.475, 0.525, 0.45, 0.55, 0.425, 0.575, 0.4, 0.6)
"""Where in its time a run may be shown at first: where most ranks are busy, and the first of several."""


class Table(dict[Hashable, int]):
    """Equal items once, each with its index: a new item gets the next one."""

    def __missing__(self, item: Hashable) -> int:
        self[item] = index = len(self)
        return index


def playback(trace: Trace, rows: Sequence[Row], left_out: str) -> dict[str, Any]:
    """Return the data of the page without its picture, ready for JSON. What occurs many times is in a table, and an
    index stands for it. ``left_out``: a sentence on the ranks that are not among ``rows``, if any."""
    words, looks, held, failure = Table(), Table(), Table(), trace.failure
    waits = [wait.line for wait in trace.waits.values() if wait.line]
    spot = failure.line if failure is not None and isinstance(failure.line, Spot) else None
    code = Code([*(line for lines in trace.lines.values() for line in lines if line), *waits], spot)
    opens = trace.until if failure else _opens(trace, rows)
    busy = [at for at, row in enumerate(rows) if not row.devices and _busy(row, opens)]
    stands = [at for rank in failed_ranks(trace) for at, row in enumerate(rows) if rank in row.ranks]
    shown = [slot for slot in range(len(MEMORY_KINDS)) if any(event.held[slot] for event in trace.events)]
    return {
        "time": trace.until or 1.0,
        "stop": trace.time if failure else trace.until or 1.0,
        "opens": opens,
        "moment": trace.unit.moment,
        "seconds": SECONDS,
        "full": most_memory([trace]) * 1.02 or 1.0,
        "target": float(trace.memory_target or 0),
        "kinds": [theme.MEMORY[MEMORY_KINDS[slot]] for slot in shown],
        "rows": [_row(trace, row, shown, words, looks, held, code) for row in rows],
        "cards": CARDS,
        "chosen": [*(stands if failure else busy), 0][0],
        "chain": _chain(trace, rows, words),
        "words": list(words),
        "looks": list(looks),
        "held": list(held),
        "code": code.lines,
        "error": failure and {"says": failure.says, "line": str(failure.line), "sentences": failure.sentences()},
        "left_out": left_out,
    }


def places(figure: Figure, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the places of the picture's parts: the timeline, the empty room, and top and height of each row."""
    assert figure.area is not None
    lines = {rank: (y, height) for ranks, y, height in figure.rows for rank in ranks}
    box = dict(zip(("x0", "top", "x1", "bottom"), figure.area, strict=True))
    return {**box, "width": figure.size[0], "room": figure.room, "rows": [lines[row.ranks[0]] for row in rows]}


def _opens(trace: Trace, rows: Sequence[Row]) -> float:
    """Return the moment at which the page shows a run first: in its middle, where many ranks are busy."""
    return max((part * trace.until for part in OPENS), key=lambda time: sum(_busy(row, time) for row in rows))


def _busy(row: Row, time: float) -> bool:
    return any(event.start <= time < event.end for event in row.operations)


def _chain(trace: Trace, rows: Sequence[Row], words: Table) -> list[list[float]]:
    """Return the longest chain of a run that went to its end, in its order: of each operation that takes time the index
    of the row, or -1 if that is not played, start, length, and the index of what it is. There is none of times that do
    not follow from each other, as those that were measured."""
    if trace.failure or trace.unit is MS:
        return []
    try:
        links = chain_of(trace.events, trace.tier).links
    except PuzzleError:
        return []
    places = {rank: at for at, row in enumerate(rows) for rank in row.ranks}
    found: list[list[float]] = []
    for event, _ in links:
        if event.length:
            at = places.get(event.rank, -1)
            what = words_of(event, rows[at].one, rows[at].same_batches) if at >= 0 else theme.name_of(event.kind)
            found.append([at, round(event.start, 6), round(event.length, 6), words[f"rank {event.rank}'s {what}"]])
    return found


def failed_ranks(trace: Trace) -> list[int | None]:
    """Return the rank of the error of a failed run, and the ranks that wait for each other there."""
    return [trace.failure.place.rank, *trace.failure.knot()] if trace.failure else []


def _row(
    trace: Trace, row: Row, shown: Sequence[int], words: Table, looks: Table, held: Table, code: Code
) -> dict[str, Any]:
    ops: list[list[float]] = []
    for event, line in zip(row.events, trace.lines[row.ranks[0]], strict=True):
        if event.kind not in MARKS and event.length:
            when = [round(time, 6) for time in (event.start - event.issued, event.start, event.length)]
            what = [looks[color_of(event, trace)], words[words_of(event, row.one, row.same_batches)], code.place(line)]
            ops.append([*when, *what, int(event.stream != "compute")])
    ops.sort(key=lambda op: op[1])
    fullest = max(row.ranks, key=lambda rank: max((e.memory for e in trace.by_rank[rank]), default=0))
    return {
        "name": row.name,
        "brief": str(row.ranks[0]) + ("+" if len(row.ranks) > 1 else ""),
        "holder": "" if row.same_memory else f"rank {fullest}: ",
        "ops": ops,
        "held": _held(trace.by_rank[fullest], shown, held),
        "full": float(trace.host_peak.memory) * 1.02 if trace.host_peak and row.devices else 0.0,
        "gaps": [[gap.start, gap.end, words[waits_for(gap, row, trace)]] for gap in gaps_of(trace, row)],
        "stuck": _stuck(trace, row, code),
    }


def _held(events: Sequence[Event], shown: Sequence[int], held: Table) -> list[float]:
    """Return the changes of a rank's memory as one flat list: the time since the last change, then what is stored."""
    found: list[float] = []
    since, before = 0.0, -1
    for event in events:
        place = held[tuple(float(event.held[slot]) for slot in shown)]
        if place != before:
            time = round(event.issued, 6)
            found += [round(time - since, 6), place]
            since, before = time, place
    return found


def _stuck(trace: Trace, row: Row, code: Code) -> list[Any] | None:
    """Return since when a row of a failed run is stuck, a text, and the index of its line of code."""
    failure, wait = trace.failure, trace.waits.get(row.ranks[0])
    if wait is not None:
        return [wait.since, f"wait{'s' * row.one} {wait.what}", code.place(wait.line)]
    if failure is None or row.ranks[0] in failure.ended:
        return None
    since = max((event.end for event in row.operations), default=0.0)
    if row.ranks[0] != failure.place.rank:
        return [since, "was stopped", -1]
    return [since, f"error in {failure.where}" if failure.where else "error", code.spot]


class Code:
    """The source of the functions that operations come from, as far as it is available; of code outside functions, the
    whole cell or file. What ran first comes first. ``spot``: the line of an error, which is always included."""

    def __init__(self, ran: Iterable[Line], spot: Spot | None = None) -> None:
        found: dict[tuple[str, int], str] = {}
        for code in dict.fromkeys(line.code for line in ran):
            found |= {(code.co_filename, number): text for number, text in _source(code)}
        if spot is not None and (spot.file, spot.number) not in found:
            first, last = max(1, spot.number - AROUND), spot.number + AROUND
            around = linecache.getlines(spot.file)[first - 1 : last]
            found |= {(spot.file, number): text for number, text in enumerate(around, first)}
        files = {file: place for place, file in enumerate(dict.fromkeys(file for file, _ in found))}
        known = sorted(found, key=lambda place: (files[place[0]], place[1]))[:MOST_CODE]
        self.lines = [*zip((number for _, number in known), _to_the_left(known, found), strict=True)]
        self._places = {place: at for at, place in enumerate(known)}
        self.spot = -1 if spot is None else self._places.get((spot.file, spot.number), -1)
        """The index of the line of the error, or -1."""

    def place(self, line: Line | None) -> int:
        """Return the index of a line, or -1 for one that is not known."""
        return self._places.get((line.code.co_filename, line.number), -1) if line else -1


def _to_the_left(known: Sequence[tuple[str, int]], found: dict[tuple[str, int], str]) -> list[str]:
    """Return the texts of lines without the common indentation of each piece."""
    texts: list[str] = []
    for _, piece in groupby(enumerate(known), key=lambda one: (one[1][0], one[1][1] - one[0])):  # lines in a row
        texts += dedent("\n".join(found[place].rstrip("\n").expandtabs(4) for _, place in piece)).split("\n")
    return texts


def _source(code: CodeType) -> Iterator[tuple[int, str]]:
    if code.co_name.startswith(("<module", "<cell")):  # each statement of a cell is compiled by itself
        return enumerate(linecache.getlines(code.co_filename), 1)
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        return iter(())
    return enumerate(lines, first)
