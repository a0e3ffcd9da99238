"""A page that plays a schedule: what each rank does, stores, and at which line of code it is, at every moment."""

from __future__ import annotations

import inspect
import json
import linecache
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from lib.basics.errors import Line, PuzzleError, show_layers
from lib.basics.units import Elements
from lib.record.codes import code_of
from lib.record.events import MARKS, Event
from lib.record.kinds import MEMORY_KINDS

from . import theme
from .figure import Figure
from .files import page as page_of
from .files import write
from .layout import Row, rows_of
from .operations import color_of
from .picture import LARGEST, draw
from .svg import escape
from .trace import Trace, trace_of
from .words import ranges

TEMPLATE = Path(__file__).with_name("player.html")
CARDS, OPERATIONS = 64, 20_000
"""Cards (one for ranks that do the same) and operations at most."""
SECONDS = 14.0
"""Seconds for which a schedule plays at speed 1."""
MOST_CODE = 1000
"""Lines of code shown at most."""


class Player:
    """A page with a schedule to play. It shows itself in a notebook, and ``save`` writes it as one file."""

    def __init__(self, title: str, page: str, height: int) -> None:
        self.title, self.page, self.height = title, page, height

    def __repr__(self) -> str:
        return f"player of {self.title}: shows itself in a notebook; save('{self.title}.html') for a browser"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page: one ``.html`` file that needs nothing else. Raise PuzzleError if it cannot be written."""
        write(path, {".html": lambda: self.page})

    def _repr_html_(self) -> str:
        frame = escape(self.page)
        if len(frame) > LARGEST:
            return f"<p>{escape(f'This player takes {len(frame) / 1e6:.1f} MB, too much for a notebook.')} {_CURE}</p>"
        how = f"width:100%;max-width:1100px;height:{self.height}px;border:0"
        title = escape(f"player of {self.title}")
        # What stands inside is seen only where frames are taken out: in a notebook that is not trusted, say.
        inside = f"A player was here, and this page takes players out. Run the cell again, or: {_CURE}"
        return f'<iframe srcdoc="{frame}" title="{title}" style="{how}" loading="lazy">{inside}</iframe>'


_CURE = "play(run).save('player.html') writes a page to open in a browser."


def play(source: object, *, title: str | None = None, memory_target: Elements | float | None = None) -> Player:
    """A page that plays the schedule of a Run, or of models. You can watch it, step through it, or drag along the time.

    Raises PuzzleError for anything that is not a run, and for a run with too many operations.
    """
    trace = trace_of(source, title, None, memory_target)
    count = sum(event.kind not in MARKS for event in trace.events)
    if not trace.attempted:
        nothing = draw(trace)
        return Player(trace.title, page_of(nothing.summary, nothing.svg(fluid=True)), int(nothing.size[1]) + 40)
    every = rows_of(trace.by_rank, trace.apart, trace.hosts)
    rows = every[:CARDS]
    if sum(len(row.operations) for row in rows) > OPERATIONS:
        raise PuzzleError(
            "too many operations to play",
            where="play",
            expected=f"at most {OPERATIONS:,}",
            got=f"{count:,}",
            cure="draw(run) draws any size",
        )
    figure = draw(trace, memory=False, chain=False)
    # The template has braces and dollars of its own: only these three are ours.
    data = _data(trace, rows, figure) | {"more": sum(len(row.ranks) for row in every[CARDS:])}
    parts = {"title": escape(trace.title), "picture": figure.svg(), "data": _script(data)}
    page = re.sub(r"\$(title|picture|data)\b", lambda found: parts[found[1]], TEMPLATE.read_text(encoding="utf-8"))
    below = max(-(-len(rows) // 2) * 102, 430)  # about: where it can, the page tells the frame its height
    return Player(trace.title, page, int(figure.size[1] * 1.12) + 110 + below)


def _script(data: dict[str, Any]) -> str:
    """Return JSON that can stand in a script: no tag can end it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _data(trace: Trace, rows: Sequence[Row], figure: Figure) -> dict[str, Any]:
    words = Table()
    waits = [wait.line for wait in trace.waits.values() if wait.line]
    code = Code([*(line for lines in trace.lines.values() for line in lines if line), *waits])
    most, area = trace.peak.memory if trace.peak else 0, figure.area
    assert area is not None
    shown = [slot for slot in range(len(MEMORY_KINDS)) if any(event.held[slot] for event in trace.events)]
    return {
        "time": trace.until or 1.0,
        "opens": trace.until if trace.failure else 0,
        "moment": trace.unit.moment,
        "seconds": SECONDS,
        "box": {**dict(zip(("x0", "top", "x1", "bottom"), area, strict=True)), "width": figure.size[0]},
        "full": max(float(most), float(trace.memory_target or 0)) * 1.02 or 1.0,
        "target": float(trace.memory_target or 0),
        "kinds": [theme.MEMORY[MEMORY_KINDS[slot]] for slot in shown],
        "rows": [_row(trace, row, shown, words, code) for row in rows],
        "words": words.texts,
        "code": code.lines,
    }


def _row(trace: Trace, row: Row, shown: Sequence[int], words: Table, code: Code) -> dict[str, Any]:
    ops: list[list[Any]] = []
    for event, line in zip(row.events, trace.lines[row.ranks[0]], strict=True):
        if event.kind not in MARKS and event.length:
            opacity = theme.STRONG_TINT if theme.outlined(event.kind) else 1
            own = theme.in_layer_color(event.kind)
            color = color_of(event, trace) if own else theme.kind_color(event.kind)
            text = words.place(_words(event, row))
            hides = int(event.lane != "compute")
            ops.append([event.issued, event.start, event.length, color, opacity, text, code.place(line), hides])
    ops.sort(key=lambda op: op[1])
    fullest = max(row.ranks, key=lambda rank: max((e.memory for e in trace.by_rank[rank]), default=0))
    held = [[event.issued, *[float(event.held[slot]) for slot in shown]] for event in trace.by_rank[fullest]]
    brief = str(row.ranks[0]) + ("+" if len(row.ranks) > 1 else "")
    holder = "" if row.same_memory else f"rank {fullest}: "
    stuck = _stuck(trace, row, code)
    full = float(trace.host_peak.memory) * 1.02 if trace.host_peak and row.devices else 0.0
    about = {"name": row.name, "brief": brief, "holder": holder, "full": full}
    return about | {"ops": ops, "held": held, "stuck": stuck}


def _stuck(trace: Trace, row: Row, code: Code) -> list[Any] | None:
    """Return since when a row of a failed run goes on no more, what it says then, and its line of the code."""
    failure, wait = trace.failure, trace.waits.get(row.ranks[0])
    if wait is not None:
        return [wait.since, f"wait{'s' * (len(row.ranks) == 1)} {wait.what}", code.place(wait.line)]
    if failure is None or row.ranks[0] in failure.ended:
        return None
    words = "was stopped"
    if row.ranks[0] == failure.place.rank:
        words = f"error in {failure.where}" if failure.where else "error"
    return [max((event.end for event in row.operations), default=0.0), words, -1]


def _words(event: Event, row: Row) -> str:
    said = theme.name_of(event.kind)
    if event.lane == "message":
        sender, receiver = event.group
        other = f" to rank {receiver}" if event.rank == sender else f" from rank {sender}"
        return said + other if len(row.ranks) == 1 else said
    code = code_of(event)
    if code.layer is not None:
        said += f" {show_layers(code.layers or code.layer)}"
    if code.numbers and row.same_batches:
        said += f", mb {ranges(event.batches)}"
    return said


class Table:
    """Texts that occur many times, each stored once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Return the index of a text."""
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]


class Code:
    """The source of the functions in which operations were written, as far as it can be had: of code that is in no
    function, the whole cell or file. What ran first comes first."""

    def __init__(self, lines: Iterable[Line]) -> None:
        found: dict[tuple[str, int], str] = {}
        for code in dict.fromkeys(line.code for line in lines):
            found |= {(code.co_filename, number): text for number, text in _source(code)}
        files = {file: place for place, file in enumerate(dict.fromkeys(file for file, _ in found))}
        known = sorted(found, key=lambda place: (files[place[0]], place[1]))[:MOST_CODE]
        self.lines = [(number, found[file, number]) for file, number in known]
        self._places = {place: at for at, place in enumerate(known)}

    def place(self, line: Line | None) -> int:
        """Return the index of a line, or -1 for one that is not known."""
        return self._places.get((line.code.co_filename, line.number), -1) if line else -1


def _source(code: CodeType) -> list[tuple[int, str]]:
    if code.co_name.startswith(("<module", "<cell")):  # each of a cell's own statements is compiled by itself
        return [(at, line.rstrip("\n")) for at, line in enumerate(linecache.getlines(code.co_filename), 1)]
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        return []
    return [(first + at, line.rstrip("\n")) for at, line in enumerate(lines)]
