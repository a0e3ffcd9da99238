"""The places of a picture in numbers: which ranks share a row, and in which track of it an operation is."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from lib.record.events import MARKS, Event
from lib.record.figures.breakdown import time_parts
from lib.record.figures.waiting import idle_spans
from lib.record.table import SEND

from ..ink import theme
from ..ink.figure import PHONE
from ..ink.marks import Rect
from ..ink.texts import brief_ranks, full_ranks
from ..ink.trace import FEW, Trace, of_stream

LEFT, SLIM, HOST, NODE, RIGHT, PAD = 78.0, 54.0, 14.0, 32.0, 72.0, 16.0
"""Room in pixels: for the names of rows, or in a narrow place, how much more with hosts among them, for the names of
nodes, for notes beside rows, which a narrow place has not, and around everything."""
GROUP_ABOVE, FOLDED_FROM, FOLDED_NODES = FEW, 8, 4
"""Up to so many ranks, every rank has a row. With more, ranks that do the same share one; from so many ranks on they do
in a picture that would be crowded, and where all do the same, or all of each node, of so many nodes at most."""
ROOM_FOR_MORE, FOLDED, LANE = 2, 12.0, 0.55
"""Up to so many rows that stand for many ranks are higher, by so many pixels; and the height of a thin track below such
a row, as a part of the row's."""
FINE, USUAL = 2600, 980.0
"""Up to so many events, each is a box of its own, in a picture of the usual width in pixels: a narrow one has less."""
CROWDED = 1000
"""Up to so many events, each has a complete hover text and rounded corners."""
ROOMY = 5.0
"""Pixels for each operation of a row that leave room for numbers, even where operations are not boxes."""
LEGIBLE = 4.0
"""Rows lower than so many pixels are filled by pixel columns."""
MESSAGE, THIN_MESSAGE = 0.4, 11.0
"""Height of a message between computes, as a part of its row, and the least height of a row in which it is thin."""
HIDDEN = 0.5
"""The opacity of communication that is hidden by compute."""
NEXT_TO_NOTHING = 0.001
"""A share of the time that nobody sees."""
LANED = 7.0
"""Rows lower than so many pixels have no strip for the network."""
TICK = 48.0
"""The least distance of two times on the axis, as a rule, in pixels."""
ALL, LOWEST, TALLEST = 560.0, 1.0, 1500.0
"""In pixels: the height of many rows together, how low each may become for that, and how high all may become for that.
"""


@dataclass(eq=False)
class Row:
    """A row of the timeline: the ranks that share it, and their events."""

    ranks: list[int]
    events: Sequence[Event]
    """The events of its first rank, in the order of issue."""
    y: float = 0.0
    same_batches: bool = True
    """Whether all its ranks work on the same micro-batches."""
    same_memory: bool = True
    """Whether the memory of all its ranks is the same at all times."""
    devices: list[int] = field(default_factory=list)
    """The devices of its ranks, if these are hosts."""
    of: int = 0
    """The number of all ranks."""
    tracks: Sequence[int] = ()
    """The track of each event: 0 is the row itself, 1 and up are the thin tracks below it."""

    @cached_property
    def spots(self) -> list[Spot]:
        """Its events, each in its track, in a picture of boxes."""
        return [Spot(self, event, track) for event, track in zip(self.events, self.tracks, strict=True)]

    @property
    def name(self) -> str:
        """The name of the row, short enough for its label."""
        return brief_ranks(self.ranks, self.devices, self.of)

    @property
    def one(self) -> bool:
        """Whether it is the row of a single rank."""
        return len(self.ranks) == 1

    @cached_property
    def full_name(self) -> str:
        """The name of the row with all its ranks."""
        return full_ranks(self.ranks, self.devices)

    @cached_property
    def operations(self) -> list[Event]:
        """The events that are drawn."""
        return [event for event in self.events if event.kind not in MARKS]

    @cached_property
    def runs(self) -> list[list[Event]]:
        """Its passes: those of one kind and micro-batch that touch each other are together."""
        found: list[list[Event]] = []
        for event in self.events:
            if event.stream == "compute" and event.length:
                last = found[-1][-1] if found else None
                if last is None or (last.kind, last.batches, last.end) != (event.kind, event.batches, event.start):
                    found.append([])
                found[-1].append(event)
        return [run for run in found if theme.is_pass(run[0].kind)]

    @cached_property
    def layers(self) -> set[int]:
        """The layers that its operations work on."""
        return {one.layer for one in self.operations if one.layer is not None and theme.is_pass(one.kind)}

    @cached_property
    def chunks(self) -> dict[int | None, int]:
        """The number of the chunk that each layer is in: a rank may have several, with layers of others between."""
        layers = sorted(layer for layer in self.layers if layer is not None)
        begins = [layer for layer in layers if layer - 1 not in self.layers]
        return {layer: bisect_right(begins, layer) - 1 for layer in layers}

    def idle(self, time: float) -> float:
        """Return the share (0 to 1) of ``time`` in which its ranks neither compute nor communicate."""
        return sum(end - start for start, end in idle_spans(self.events, time)) / time if time else 0.0

    def spent(self, time: float) -> Mapping[str, Fraction]:
        """Return the parts of ``time``, as shares."""
        return time_parts(self.events, 1, time)


class Spot(NamedTuple):
    """An event in a track of a row."""

    row: Row
    event: Event
    track: int


class Layout:
    """Where rows, tracks and moments are. ``top`` and ``bottom`` are the edges of the rows in pixels.

    ``until``: the tick at the right end (by default the end of the run); ``rough``: 0 if every operation may be a box,
    otherwise the least number of pixels in a cell; ``beside``: the schedules that it is drawn with, in lower rows;
    ``fold``: whether ranks that do the same may share a row where the picture would be crowded; ``links``: the option
    of ``draw``; ``cut``: the tick where half of a schedule ends.
    """

    def __init__(
        self,
        trace: Trace,
        width: float,
        top: float,
        until: float | None = None,
        rough: int = 0,
        beside: Sequence[Trace] = (),
        fold: bool = True,
        links: str = "auto",
        cut: float | None = None,
    ) -> None:
        self.trace, self.width, self.top, self.slim = trace, width, top, width <= PHONE
        self.rough = max(1 + self.slim, rough)
        self.until, self.links, self.cut = trace.until if until is None else until, links, cut
        every = beside or [trace]
        failed = any(one.failure is not None for one in every)
        self.scale = min(self.until, max(one.time for one in every)) if failed else self.until
        """The last tick on the axis: the room behind a failed run has none."""
        self.rows = rows_of(trace, FOLDED_FROM - 1 if fold else GROUP_ABOVE)
        few = trace.ranks > FOLDED_FROM and len(self.rows) <= FOLDED_NODES
        alike = few and len({self.node_of(row) for row in self.rows}) == len(self.rows)
        if not (rough or alike or trace.operations > CROWDED):
            self.rows = rows_of(trace)
        count = len(self.rows)
        self.folded = count < trace.ranks + len(trace.hosts) and count <= ROOM_FOR_MORE
        """Whether few rows stand for many ranks: then they are higher, and all communication is below the compute."""
        known = ((8, 17.0), (GROUP_ABOVE, 14.0)) if beside else ((4, 26.0), (8, 23.0), (GROUP_ABOVE, 18.0))
        lowest = 240 / count if beside else max(ALL / count, min(LOWEST, TALLEST / count))
        self.height = next((height for most, height in known if count <= most), lowest) + FOLDED * self.folded
        self.gap = 5.0 if count <= 8 else 3.0 if count <= GROUP_ABOVE else 1.0 if self.height >= LEGIBLE else 0.0
        self.nodes = len({self.node_of(row) for row in self.rows} - {None}) > 1  # then rows say on which node they are
        room = NODE if self.nodes or any(trace.node_size for trace in beside) else 0.0
        self.names = SLIM if self.slim else LEFT + HOST * any(one.hosts for one in every)
        self.x0, self.x1 = PAD + self.names + room, width - PAD - RIGHT * (not self.slim)
        self.per_tick = (self.x1 - self.x0) / (self.until or 1.0)
        shown = sum(len(row.operations) for row in self.rows)
        self.fine = not rough and self.height >= LEGIBLE and shown <= FINE * min(1.0, width / USUAL)
        most = max((len(row.operations) for row in self.rows), default=0)
        self.roomy = self.fine or (rough < 2 and most * ROOMY <= self.x1 - self.x0)
        """Whether there may be room for numbers."""
        self.crowded = self.fine and shown > CROWDED
        if self.fine:
            for row in self.rows:
                row.tracks = tracks_of(row.events, self.folded)
        self.thin = max(5.0, (LANE if self.folded else 0.3) * self.height)
        self.tracks = max((max(row.tracks, default=0) for row in self.rows), default=0)
        told = not self.fine and self.height >= LANED
        self.network = told and (bool(of_stream(trace.talk, "collective")) or trace.hidden > NEXT_TO_NOTHING)
        """Whether rows without boxes have a thin strip below them, with how busy the network is: where there is
        communication that a row of computes does not show, collectives or hidden messages."""
        self.tracks += self.network
        self.within = self.height >= LANED and bool(trace.within)
        """Whether rows have one more thin track, with the traffic within their operations."""
        self.tracks += self.within
        self.bottom = self._place(top)

    def _place(self, y: float) -> float:
        """Give every row its y, with room between nodes. Return the y where the last one ends."""
        before = None
        for row in self.rows:
            node = self.node_of(row)
            if before is not None and node != before:
                y += 8
            before, row.y = node, y
            y += self.row_height + self.gap
        return y - self.gap

    @property
    def ticks(self) -> list[float]:
        """The times on the axis."""
        return ticks(self.scale, min(12, int((self.x1 - self.x0) / TICK)))

    @property
    def row_height(self) -> float:
        """The height of a row with its thin tracks, in pixels."""
        return self.height + self.tracks * self.thin

    def x(self, tick: float) -> float:
        """Return the x of a tick."""
        return self.x0 + tick * self.per_tick

    def foot(self, row: Row) -> float:
        """Return the y where the tracks of messages and collectives of a row end, above that of traffic within its
        operations."""
        return row.y + (self.height + (self.tracks - self.within) * self.thin)

    def node_of(self, row: Row) -> int | None:
        """Return the number of the node of all ranks of a row, or None if there are several or none."""
        size = self.trace.node_size
        nodes = {rank // size for rank in row.devices or row.ranks} if size else set()
        return nodes.pop() if len(nodes) == 1 else None

    @cached_property
    def spots(self) -> dict[int, Spot]:
        """The spot of each operation by its id, as long as the picture is ``fine``. The ranks of a row did the same, so
        that their operations share spots."""
        found: dict[int, Spot] = {}
        for row in self.rows:
            shown = [spot for spot in row.spots if spot.event.kind not in MARKS]
            for rank in filter(self.trace.by_rank.__contains__, row.ranks):
                operations = (event for event in self.trace.by_rank[rank] if event.kind not in MARKS)
                found |= {id(event): spot for event, spot in zip(operations, shown, strict=True)}
        return found

    def area(self, spot: Spot) -> Rect:
        """Return the area of an event, which is that of its track for the time that it lasts."""
        row, event, track = spot
        x, width = self.x(event.start), event.length * self.per_tick
        if not track:
            return x, row.y, width, self.height
        return x, row.y + self.height + (track - 1) * self.thin + 1, width, self.thin - 1

    def shape(self, spot: Spot) -> Rect:
        """Return the part of an event's area that is drawn. A message between computes is a thin bar, so that the
        rhythm of forwards and backwards stays visible: a send in the upper half of the row, a receive in the lower."""
        x, y, width, height = self.area(spot)
        if spot.event.stream != "message" or spot.track or not width or height < THIN_MESSAGE:
            return x, y, width, height
        return x, y + height * message_top(spot.event.kind), width, height * MESSAGE


def message_top(kind: str) -> float:
    """Return where the thin bar of a message begins, as a part of the height of its row."""
    return 0.07 if kind == SEND.kind else 0.93 - MESSAGE


def rows_of(trace: Trace, most: int = GROUP_ABOVE) -> list[Row]:
    """Return the rows. With more than ``most`` ranks, those that do the same share a row, unless they differ in
    ``apart``, are in different nodes of a small machine, or only some of them are hosts."""
    every = trace.ranks + len(trace.hosts) <= most

    def alike(rank: int, events: Sequence[Event]) -> object:
        node = rank // trace.node_size if trace.node_size and trace.ranks <= GROUP_ABOVE else None
        did = [(e.kind, e.layer, e.layers, e.start, e.end, len(e.batches)) for e in events if e.kind not in MARKS]
        return rank if every else (*did, trace.apart.get(rank), rank in trace.hosts, node)

    return in_rows(trace, alike)


def in_rows(trace: Trace, alike: Callable[[int, Sequence[Event]], object]) -> list[Row]:
    """Return rows of the ranks for which ``alike`` is the same."""
    rows: dict[object, Row] = {}
    for rank, events in trace.by_rank.items():
        row = rows.setdefault(alike(rank, events), Row([], events, of=trace.ranks))
        row.ranks += trace.same_ranks(rank)
        row.devices += trace.hosts.get(rank, ())
        if row.events is not events:
            row.same_batches = row.same_batches and _batches(row.events) == _batches(events)
            row.same_memory = row.same_memory and [e.held for e in row.events] == [e.held for e in events]
    for row in rows.values():
        row.ranks.sort()
    return [*rows.values()]


def _batches(events: Sequence[Event]) -> list[frozenset[int]]:
    return [event.batches for event in events if event.kind not in MARKS]


def tracks_of(events: Sequence[Event], below: bool = False) -> list[int]:
    """Return the track of each event. Compute, and communication during which the rank stands still, are in track 0.

    Communication beside compute or beside other communication goes into the first thin track that is free, and with
    ``below`` all collectives do.
    """
    compute = sorted((e.start, e.end) for e in events if e.stream == "compute" and e.length > 0)
    starts, ends = [start for start, _ in compute], [end for _, end in compute]
    tracks = [0] * len(events)
    free = [0.0]  # until when each track is taken by communication
    talk = [i for i, e in enumerate(events) if e.stream in ("collective", "message")]
    for i in sorted(talk, key=lambda i: (events[i].start, events[i].end)):
        event = events[i]
        after = bisect_right(ends, event.start)
        hidden = after < len(ends) and starts[after] < event.end
        hidden = hidden or (below and event.stream == "collective" and event.length > 0)
        track = next((k for k in range(hidden, len(free)) if free[k] <= event.start), len(free))
        free += [0.0] * (track + 1 - len(free))
        tracks[i], free[track] = track, max(free[track], event.end)
    return tracks


def hatching(x: float, y: float, width: float, height: float, step: float = 7.0) -> list[Rect]:
    """Return slanted lines (x1, y1, x2, y2) inside a rectangle, on one lattice so that neighbors line up."""
    found: list[Rect] = []
    if width < 3:
        return found
    c = ((x + y) // step + 1) * step
    while c < x + width + y + height:
        left, right = max(x, c - y - height), min(x + width, c - y)
        if right - left > 0.5:
            found.append((left, c - left, right, c - right))
        c += step
    return found


def ticks(end: float, about: int = 12) -> list[float]:
    """Return about so many round numbers from 0 to ``end``.

    >>> ticks(20.4)
    [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    """
    if end <= 0:
        return [0]
    raw = end / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((s * power for s in (1, 2, 5) if s * power >= raw * 0.999), 10 * power)
    found = (float(f"{step * k:.10g}") for k in range(int(end / step + 1e-6) + 1))  # 0.3, not 0.30000000000000004
    return [int(tick) if tick == int(tick) else tick for tick in found]
