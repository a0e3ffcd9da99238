"""The rows of ranks: what each does, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lib.events import COLLECTIVE, COMPUTE, MARKS, POINT_TO_POINT, Event
from lib.units import show_elements, show_ticks

from . import theme
from .layout import Row, ranges, rows_of, ticks
from .marks import Rect, Titled, box, boxes, glyph, label, lines, poly, style, text_width, together
from .trace import Trace

LEFT, RIGHT, PAD = 78.0, 62.0, 16.0
FINE = 3000
"""Up to so many events shown, each is a box of its own with a hover text."""
THIN = 0.3
"""Height of the lane of overlapped communication, beside that of the row."""


class Timeline:
    """Geometry shared by the parts of a picture, and the timeline itself."""

    def __init__(self, trace: Trace, width: float, links: str) -> None:
        self.trace, self.width = trace, width
        self.rows = rows_of(trace.by_rank)
        count = len(self.rows)
        self.height = next((h for most, h in ((4, 26.0), (8, 23.0), (16, 18.0)) if count <= most), max(3.0, 480 / count))
        self.gap = 5.0 if count <= 8 else 3.0 if count <= 16 else 1.0 if self.height > 6 else 0.0
        self.x0, self.x1 = PAD + LEFT, width - PAD - RIGHT
        self.scale = (self.x1 - self.x0) / (trace.time or 1.0)
        shown = sum(len(row.events) for row in self.rows)
        self.fine = shown <= FINE and self.height >= 8
        for row in self.rows:
            row.overlapped = _overlapped(row.events) if self.fine else set()
        self.thin = self.height * THIN if any(row.overlapped for row in self.rows) else 0.0
        sends = max((sum(e.kind == "pass_to" for e in row.events) for row in self.rows), default=0)
        fits = self.fine and self.height >= 11 and sends * 12 <= self.x1 - self.x0
        self.arrows = fits if links == "auto" else links != "none"
        self.number_size = {kind: self._number_size(kind) for kind in ("forward", "backward")}

    def x(self, ticks: float) -> float:
        """Where a moment is."""
        return self.x0 + ticks * self.scale

    def draw(self, y: float) -> tuple[list[Any], float]:
        """The rows from ``y`` down, and where they end."""
        top, box_before = y, None
        for row in self.rows:
            node = row.ranks[0] // self.trace.node_size if self.trace.node_size else None
            if box_before is not None and node != box_before:
                y += 8  # the next box
            box_before = node
            row.y = y
            y += self.height + self.thin + self.gap
        bottom = y - self.gap
        lanes = [(self.x0, row.y, self.x1 - self.x0, self.height + self.thin) for row in self.rows]
        parts: list[Any] = [boxes(lanes, style(theme.LANE)), self.grid(top, bottom)]
        parts += [self._row(row) if self.fine else self._coarse(row) for row in self.rows]
        parts += self._names()
        if self.arrows:
            parts += self._arrows()
        if self.trace.node_size:
            parts += self._boxes()
        axis, y = self.axis(bottom)
        return [*parts, *axis], y

    def grid(self, top: float, bottom: float) -> Any:
        """Vertical lines at round times."""
        at = [self.x(t) for t in ticks(self.trace.time, 12)]
        return lines([(x, top - 2, x, bottom) for x in at], style(None, theme.GRID, 1))

    def axis(self, y: float) -> tuple[list[Any], float]:
        """The time axis below ``y``."""
        ink = style(theme.MUTE)
        marks: list[Any] = [lines([(self.x0, y + 2, self.x1, y + 2)], style(None, theme.HATCH, 1))]
        marks += [label(self.x(t), y + 12, show_ticks(round(t, 6)), 10, ink) for t in ticks(self.trace.time, 12)]
        return [*marks, label(self.x0 - 8, y + 12, "ticks", 10, ink, "end")], y + 18

    # -- one row --------------------------------------------------------------------------

    def _row(self, row: Row) -> Any:
        hatch = self._idle(row)  # chalk's own renderer refuses an empty path
        parts: list[Any] = [lines(hatch, style(None, theme.HATCH, 0.75))] if hatch else []
        texts: list[Any] = []
        for index, event in enumerate(row.events):
            if event.kind in MARKS:
                continue
            if event.kind == "loss":
                parts.append(Titled(hover(event, row), self._lozenge(event, row)))
                continue
            y, height = self._lane(row, index, event)
            parts.append(Titled(hover(event, row), self._box(event, y, height)))
            texts += self._inscription(event, row, y, height)
        return together(parts + texts)

    def _lane(self, row: Row, index: int, event: Event) -> tuple[float, float]:
        """Top and height of the lane of an event: thin and below if it goes on beside another."""
        if index not in row.overlapped:
            return row.y, self.height
        half = self.thin / 2
        return row.y + self.height + (half if event.kind == "receive" else 0.0), half

    def _box(self, event: Event, y: float, height: float) -> Any:
        x, w = self.x(event.start), max(event.length * self.scale, 0.4)
        pad = min(0.5, w * 0.06)
        x, w, radius = x + pad, w - 2 * pad, min(2.5, height / 5, w / 5)
        if event.kind in ("forward", "backward"):
            color = theme.layer_color(event.layer or 0, self.trace.layers)
            if event.kind == "forward":
                return box(x, y, w, height, style(color), radius)
            inset = 0.75 if w >= 8 and height >= 8 else 0.0  # an outline and a tint: told apart without hue
            how = style(color, color, 2 * inset, 0.22 if inset else 0.42)
            return box(x + inset, y + inset, w - 2 * inset, height - 2 * inset, how, radius)
        inset = height * 0.1 if event.kind != "update" else 0.0
        body = box(x, y + inset, w, height - 2 * inset, style(theme.kind_color(event.kind)), radius)
        sign = theme.GLYPHS.get(event.kind)
        parts = [body]
        if event.kind in COLLECTIVE and height >= 8:
            strip = max(2.0, height * 0.12)
            color = theme.layer_color(event.layer or 0, self.trace.layers)
            parts.append(box(x, y + height - inset - strip, w, strip, style(color)))
        if sign and w >= 4.5 and height >= 8:
            k = min(w * 0.32, height * 0.17, 4.0)
            parts.append(poly(glyph(sign, x + w / 2, y + height / 2, k), style(theme.GLYPH)))
        return together(parts)

    def _lozenge(self, event: Event, row: Row) -> Any:
        x, y = self.x(event.start), row.y
        return poly([(x, y - 1.5), (x + 3, y + 2.5), (x, y + 6.5), (x - 3, y + 2.5)], style(theme.KINDS["loss"]))

    def _inscription(self, event: Event, row: Row, y: float, height: float) -> list[Any]:
        """The micro-batches of a forward or backward; U for an update."""
        middle = self.x((event.start + event.end) / 2)
        if event.kind == "update" and height >= 11 and event.length * self.scale >= 9:
            return [label(middle, y + height / 2, "U", min(10, height * 0.55), style(theme.CARD), weight=600)]
        size = self.number_size.get(event.kind, 0.0)
        if not size or not row.same_batches:
            return []
        fill = theme.layer_color(event.layer or 0, self.trace.layers)
        ink = theme.text_on(fill) if event.kind == "forward" else theme.INK
        return [label(middle, y + height / 2, ranges(event.batches), size, style(ink), weight=600)]

    def _number_size(self, kind: str) -> float:
        """One size at which the numbers of this kind fit into all its boxes; 0 if there is none."""
        events = [e for row in self.rows for e in row.events if e.kind == kind]
        for size in (11.0, 9.0, 7.5):
            if self.height < size + 3 or not self.fine:
                continue
            if all(text_width(ranges(e.batches), size) + 2 <= e.length * self.scale for e in events):
                return size
        return 0.0

    def _idle(self, row: Row) -> list[Rect]:
        """Hatching where the rank does nothing."""
        hatch: list[Rect] = []
        reached = 0.0
        spans = sorted((e.start, e.end) for e in row.events if e.kind not in MARKS)
        for start, end in [*spans, (self.trace.time, self.trace.time)]:
            if start - reached > 1e-9:
                hatch += hatching(self.x(reached), row.y, (start - reached) * self.scale, self.height)
            reached = max(reached, end)
        return hatch

    def _coarse(self, row: Row) -> Any:
        """More events than pixels: every pixel column shows what fills most of it."""
        columns: dict[tuple[str, float | None], dict[int, float]] = {}
        for event in row.events:
            if event.length <= 0:
                continue
            fill = columns.setdefault(self._coarse_style(event), {})
            a, b = event.start * self.scale, event.end * self.scale
            for column in range(int(a), int(b) + 1):
                part = min(b, column + 1) - max(a, column)
                fill[column] = fill.get(column, 0.0) + part
        runs: dict[tuple[str, float | None], list[Rect]] = {}
        before, start = None, 0
        for column in range(int(self.x1 - self.x0) + 2):
            parts = {key: fill[column] for key, fill in columns.items() if column in fill}
            best = max(parts, key=lambda key: parts[key]) if sum(parts.values()) >= 0.5 else None
            if best != before:
                if before is not None:
                    end = min(float(column), self.x1 - self.x0)
                    runs.setdefault(before, []).append((self.x0 + start, row.y, end - start, self.height))
                before, start = best, column
        shapes = [boxes(rects, style(color, None, 0, opacity)) for (color, opacity), rects in runs.items()]
        return Titled(f"{row.name}: {len(row.events)} events", together(shapes))

    def _coarse_style(self, event: Event) -> tuple[str, float | None]:
        if event.kind in ("forward", "backward"):
            color = theme.layer_color(event.layer or 0, self.trace.layers)
            return color, (None if event.kind == "forward" else 0.45)
        return theme.kind_color(event.kind), None

    # -- around the rows --------------------------------------------------------------------

    def _names(self) -> Iterator[Any]:
        size = 11.0 if self.height >= 14 else 9.0
        last = -99.0
        for row in self.rows:
            middle = row.y + self.height / 2
            if middle - last < size:
                continue
            last = middle
            name = row.name if text_width(row.name, size) <= LEFT - 8 else row.name.split(" ", 1)[1]
            full = f"ranks {ranges(row.ranks)}" if len(row.ranks) > 1 else row.name
            yield Titled(full, label(self.x0 - 8, middle, name, size, style(theme.INK), "end"))
            note = f"x {len(row.ranks)}" if len(row.ranks) > 1 else f"{self._idle_share(row):.0%} idle"
            yield label(self.x1 + 8, middle, note, 9.5, style(theme.MUTE), "start")

    def _idle_share(self, row: Row) -> float:
        reached = busy = 0.0
        for start, end in sorted((e.start, e.end) for e in row.events):
            busy += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return 1 - busy / self.trace.time if self.trace.time else 0.0

    def _arrows(self) -> Iterator[Any]:
        """From the end of a send to the start of its receive."""
        rows = {rank: row for row in self.rows for rank in row.ranks}
        received = {e.op: e for e in self.trace.events if e.kind == "receive"}
        how = style(None, theme.KINDS["pass_to"], 1)
        for send in self.trace.events:
            there = received.get(send.op) if send.kind == "pass_to" else None
            if there is None or rows[send.rank] is rows[there.rank] or send.rank != rows[send.rank].ranks[0]:
                continue
            down = rows[there.rank].y > rows[send.rank].y
            a = (self.x(send.end), rows[send.rank].y + (self.height if down else 0.0))
            b = (self.x(there.start), rows[there.rank].y + (0.0 if down else self.height))
            yield lines([(*a, *b)], how)
            tip = 3.0 if down else -3.0
            yield poly([b, (b[0] - 2, b[1] - tip), (b[0] + 2, b[1] - tip)], style(theme.KINDS["pass_to"]))

    def _boxes(self) -> Iterator[Any]:
        """A bracket at the left for each box of ranks."""
        size = self.trace.node_size or 1
        nodes: dict[int, list[Row]] = {}
        for row in self.rows:
            if len({rank // size for rank in row.ranks}) == 1:
                nodes.setdefault(row.ranks[0] // size, []).append(row)
        for node, rows in nodes.items():
            top, bottom = rows[0].y, rows[-1].y + self.height + self.thin
            bracket = lines(
                [(PAD, top, PAD, bottom), (PAD, top, PAD + 4, top), (PAD, bottom, PAD + 4, bottom)],
                style(None, theme.MUTE, 1.5),
            )
            yield Titled(f"box {node}: ranks {ranges(r for row in rows for r in row.ranks)}", bracket)


def _overlapped(events: Sequence[Event]) -> set[int]:
    """Indices of communication that goes on beside compute, or beside other communication."""
    spans = sorted((e.start, e.end) for e in events if e.kind in COMPUTE and e.length > 0)
    found, reached, at = set(), -1.0, 0
    talk = [(e.start, e.end, i) for i, e in enumerate(events) if e.kind in (*COLLECTIVE, *POINT_TO_POINT)]
    for start, end, index in sorted(talk):
        while at < len(spans) and spans[at][1] <= start:
            at += 1
        beside_compute = at < len(spans) and spans[at][0] < end
        if beside_compute or start < reached:
            found.add(index)
        else:
            reached = end
    return found


def hover(event: Event, row: Row) -> str:
    """What a box says when the pointer rests on it."""
    said = [f"rank {ranges(row.ranks)}: {theme.NAMES.get(event.kind, event.kind)}"]
    if event.layer is not None:
        said[0] += f", layer {event.layer}"
    if event.batches and row.same_batches:
        said[0] += f", micro-batch {ranges(event.batches)}"
    said.append(f"from {show_ticks(event.start)} to {show_ticks(event.end)} ticks")
    if event.tensor:
        said.append(f"{event.tensor}, {show_elements(event.elements)} elements")
    if event.kind in POINT_TO_POINT:
        said.append(f"rank {event.group[0]} to rank {event.group[1]}")
    elif event.kind in COLLECTIVE:
        said.append(f"ranks {ranges(event.group)}")
    said.append(f"memory {show_elements(event.memory)} elements")
    return "\n".join(said)


def hatching(x: float, y: float, w: float, h: float, step: float = 7.0) -> list[Rect]:
    """Slanted lines inside a box, on one lattice so that neighbors line up."""
    found: list[Rect] = []
    if w < 3:
        return found
    c = ((x + y) // step + 1) * step
    while c < x + w + y + h:
        xa, xb = max(x, c - y - h), min(x + w, c - y)
        if xb - xa > 0.5:
            found.append((xa, c - xa, xb, c - xb))
        c += step
    return found
