"""Memory over time, stacked by kind: one strip for each different profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lib.basics.units import Elements
from lib.record.events import Event
from lib.record.figures.score import memory_parts
from lib.record.kinds import INBOX, MEMORY_KINDS

from ..ink import theme
from ..ink.letters import BOLD, around, first_fit, places_of_texts, text_width, wrapped
from ..ink.marks import Diagram, Point, Rect, Titled, box, boxes, hovers, label, lines, poly, style
from ..ink.texts import brief_size
from ..ink.trace import Trace
from .layout import PAD, Layout, Row, in_rows
from .peak import beyond, held_at, moment
from .timeline import grid, row_name

GAP, SHOWN = 6.0, 8
"""Pixels between strips, and the largest number of strips."""
HEIGHTS = {1: 97.0, 2: 74.0, 4: 56.0, SHOWN: 38.0}
"""The height of the highest sample or target in each strip, in pixels, by the largest number of strips."""
ABOVE, LABELED = 4.0, 21.0
"""Room above that, in pixels, and in the strip with the peak, where it has a label."""
ZONE, WIDER = (6.0, 16.0), 4
"""Least width in pixels of a zone with its own hover text, in the tall strip and in others, and how many times wider it
is in a crowded picture."""
LINE = 13.0
"""Height of a line of the sum of what is held at the peak, in pixels."""
TOTAL = 34.0
"""The height of the strip of a whole run, in pixels."""
Target = Elements | float | None


def draw_memory(layout: Layout, y: float, above: Sequence[Diagram] = ()) -> tuple[list[Diagram], float]:
    """Return the panel from ``y`` down, and the y where it ends. The profile with the peak comes first; the strips of
    hosts are below, on a scale of their own. ``above``: what is drawn above it, whose texts the line to the peak's
    operation leaves out."""
    trace, profiles = layout.trace, profiles_of(layout)
    assert trace.peak is not None
    on_devices = [profile for profile in profiles if not profile.devices]
    parts, bottom = _strips(layout, on_devices, trace.peak, trace.memory_target, "Memory", y, above)
    if trace.host_peak is not None and trace.host_peak.memory > 0:
        on_hosts, title = [profile for profile in profiles if profile.devices], "Memory of hosts, on its own scale"
        more, bottom = _strips(layout, on_hosts, trace.host_peak, None, title, bottom + 2 * GAP)
        parts += more
    return parts, bottom


def _strips(
    layout: Layout,
    profiles: Sequence[Row],
    peak: Event,
    target: Target,
    title: str,
    y: float,
    above: Sequence[Diagram] = (),
) -> tuple[list[Diagram], float]:
    """Return a strip for each profile, or for some, below a title, and the y where the last one ends. All have one
    scale, so that ranks can be compared."""
    shown = _chosen(profiles, peak.rank)
    first, *others = sorted(shown, key=lambda profile: peak.rank not in profile.ranks)
    title += ", the rank with the peak first" * (first is not shown[0])
    title += f" ({len(shown)} of {len(profiles)} different profiles)" * (len(shown) < len(profiles))
    texts = wrapped(title, 12.5, layout.width - 2 * PAD, bold=True)
    top = y + 4 + 16 * len(texts)
    height = next(height for most, height in HEIGHTS.items() if len(shown) <= most)
    highest = Strip(layout, first, peak, target, top, (height, LABELED))
    note = PeakNote(highest)
    text, below = note.parts()
    tops = [below + place * (height + ABOVE + GAP) for place in range(len(others))]
    lower = [Strip(layout, profile, peak, target, y, (height, ABOVE)) for profile, y in zip(others, tops, strict=True)]
    strips = [highest, *lower]
    places = [(layout.x0, strip.top, layout.x1 - layout.x0, strip.bottom - strip.top) for strip in strips]
    bold = style(theme.INK)
    heading = [label(PAD, y + 6 + 16 * at, line, 12.5, bold, "start", 600) for at, line in enumerate(texts)]
    parts: list[Diagram] = [
        *heading,
        boxes(places, style(theme.CARD, theme.GRID, 1)),
        *[grid(layout, strip.top + 2, strip.bottom) for strip in strips],
    ]
    for strip in strips:
        parts += [*strip.area(), *strip.notes()]
        parts += hovers(strip.zones(ZONE[strip is not highest])) if not layout.slim else []
    # A line from the row of a host would cross the strips of the devices.
    parts += [*([] if first.devices else note.line([*above, *heading])), *text]
    return parts, strips[-1].bottom if others else below - GAP


def target_line(trace: Trace, x0: float, x1: float, y: float) -> Diagram:
    """Return the line of the target, which is neutral for a run with a fault."""
    color = {None: theme.MUTE, True: theme.GOOD, False: theme.BAD}[trace.small_enough]
    return lines([(x0, y, x1, y)], style(None, color, 1.2, None, (5.0, 3.0)))


def stairs(points: Sequence[Point], end: float) -> list[Point]:
    """Return a staircase through points from left to right, on to ``end``, with heights in tenths of a pixel."""
    corners: list[Point] = []
    for x, exact in points:
        y = round(exact, 1)
        if corners and corners[-1][1] != y and corners[-1][0] < x:
            corners.append((x, corners[-1][1]))
        if not corners or corners[-1][1] != y:
            corners.append((x, y))
    return [*corners, (max(end, corners[-1][0]), corners[-1][1])]


def profiles_of(layout: Layout) -> list[Row]:
    """Return the different profiles, in order of rank: as rows of the ranks whose memory is the same at all times."""
    hosts = layout.trace.hosts
    return in_rows(layout.trace, lambda rank, events: (rank in hosts, *((one.issued, one.held) for one in events)))


def _most(profile: Row) -> Elements:
    """Return the highest sample, in elements."""
    return max(map(sum, {event.held for event in profile.events}), default=0)


def _chosen(profiles: Sequence[Row], peak_rank: int) -> list[Row]:
    """Return at most SHOWN profiles: the one with the peak, the lowest, and others at even distances."""
    places = range(len(profiles))
    wanted = [
        next(place for place in places if peak_rank in profiles[place].ranks),
        min(places, key=lambda place: _most(profiles[place])),
        *(round(step * (len(profiles) - 1) / (SHOWN - 1)) for step in range(SHOWN)),
    ]
    return [profiles[place] for place in sorted(list(dict.fromkeys(wanted))[:SHOWN])]


class Strip:
    """The memory of one profile, from ``top`` down. ``heights``: that of the highest sample of all strips or of the
    target, and the room above it, in pixels. All strips of devices share one scale, and all of hosts another."""

    def __init__(
        self, layout: Layout, profile: Row, peak: Event, target: Target, top: float, heights: tuple[float, float]
    ) -> None:
        self.layout, self.profile, self.peak, self.target = layout, profile, peak, target
        self.top, self.bottom = top, top + sum(heights)
        self.per_element = heights[0] / (max(float(peak.memory), float(target or 0)) or 1.0)

        self.steps = steps_of(layout, profile.events)
        """The stored amounts and the x from which on they hold."""

    def y(self, elements: Elements | float) -> float:
        """Return the y of an amount of elements."""
        return self.bottom - float(elements) * self.per_element

    def area(self) -> list[Diagram]:
        """Return the stacked kinds, the highest first since those below are painted over it, and a line along all, and
        one below the messages, which are hardly seen otherwise."""
        base = [0.0] * len(self.steps)
        areas, edges = list[Diagram](), list[list[Point]]()
        for slot, kind in enumerate(MEMORY_KINDS):
            amounts = [held[slot] for _, held in self.steps]
            if any(amounts):
                base = [low + float(amount) for low, amount in zip(base, amounts, strict=True)]
                xs = [x for x, _ in self.steps]
                outline = stairs([(xs[0], self.bottom), *zip(xs, map(self.y, base), strict=True)], self.layout.x1)
                edges = [*edges, outline] if slot == INBOX else [outline]
                areas.append(poly([*outline, (outline[-1][0], self.bottom)], style(theme.MEMORY[kind][1])))
        looks = [style(None, theme.STEP, 0.5), style(None, theme.INK, 1)][2 - len(edges) :]
        drawn = zip(edges, looks, strict=True)
        return [*areas[::-1], *(poly(edge, look, closed=False) for edge, look in drawn)]

    def zones(self, least: float) -> Iterator[tuple[Rect, str]]:
        """Yield boxes with hover texts on what is held, each at least so many pixels wide. A box of several
        samples describes the highest one."""
        layout, least = self.layout, least * self.layout.rough * (WIDER if self.layout.crowded else 1)
        unit, sizes = layout.trace.unit, layout.trace.size_unit
        for start, end, samples in zones_of(layout, self.profile.events, least):
            most = max(samples, key=lambda event: event.memory)
            when = unit.at(unit.brief(most.issued))
            when = f"from {when}" if len(samples) == 1 else f"{when}, with the most here"
            held = [f"{theme.MEMORY[kind][0]} {sizes.show(size)}" for kind, size in memory_parts(most).items()]
            text = "\n".join([f"{self.profile.full_name}, {when}: {sizes.describe(most.memory)}", *held])
            yield (start, self.top, end - start, self.bottom - self.top), text

    def notes(self) -> Iterator[Diagram]:
        """Yield the name of the strip, its maximum, and the line of the target."""
        layout, middle, mute = self.layout, (self.top + self.bottom) / 2, style(theme.MUTE)
        ranks, words = len(self.profile.ranks), brief_size(layout.trace.size_unit, _most(self.profile))
        if layout.slim:  # then the maximum is below the name
            yield row_name(layout, self.profile, middle - 6, 11.0)
            yield label(layout.x0 - 8, middle + 7, words, 9.5, mute, "end")
        else:
            yield row_name(layout, self.profile, middle, 11.0)
            yield label(layout.x1 + 8, middle, f"max {words}", 10, mute, "start")
        if ranks > 1 and not layout.slim:
            yield label(layout.x1 + 8, middle + 13, f"{ranks} ranks", 10, mute, "start")
        if self.target is not None:
            yield target_line(layout.trace, layout.x0, layout.x1, self.y(self.target))


class PeakNote:
    """The explanation of the peak: a line up to its operation, what happens there, and what is held."""

    def __init__(self, strip: Strip) -> None:
        self.strip, self.peak, self.layout = strip, strip.peak, strip.layout
        self.x, self.y = self.layout.x(self.peak.issued), strip.y(self.peak.memory)
        self.held = held_at(self.peak, self.layout.trace)
        self.place, self.text = self._label()

    def parts(self) -> tuple[list[Diagram], float]:
        """Return the mark, its label, what is held as a sum below the strip, and the y where the next one begins."""
        strip, place, text = self.strip, self.place, self.text
        left, top, _, height = place
        mark = poly([(self.x, self.y), (self.x - 4, self.y - 7), (self.x + 4, self.y - 7)], style(theme.INK))
        drawn: list[Diagram] = [
            box(*place, style(theme.CARD, None, 0, 0.85), 2),
            label(left + 3, top + height / 2, text, 10.5, style(theme.INK), "start", 600, passive=True),
            Titled(self._hover(), mark),
        ]
        y = strip.bottom + 8
        for words in self._sum():
            drawn.append(label(self.layout.x0, y + 3, words, 10, style(theme.INK), "start"))
            y += LINE
        return drawn, y + GAP

    def _label(self) -> tuple[Rect, str]:
        """Return the longest label that there is room for, and its place beside or above the mark, and above the line
        of the target."""
        layout, trace, target = self.layout, self.layout.trace, self.strip.target
        size = f"peak {brief_size(trace.size_unit, self.peak.memory)}"
        happens = moment(self.peak, trace, self.strip.profile.one)
        texts = [f"{size}: {happens}", f"{size}: {happens.partition(', and ')[0]}", size]
        text, _ = first_fit(texts, [10.5 * BOLD], layout.x1 - layout.x0 - 6) or (size, 0)
        width, line = text_width(text, 10.5, bold=True) + 6, self.y if target is None else self.strip.y(target)
        top = (line if 0 < self.y - line < 22 else self.y) - 15
        if self.x + 7 + width <= layout.x1:
            return (self.x + 7, top, width, 14), text
        if self.x - 7 - width >= layout.x0:
            return (self.x - 7 - width, top, width, 14), text
        left = min(max(self.x - 0.8 * width, layout.x0), layout.x1 - width)
        return (left, top - 6, width, 13), text

    def _hover(self) -> str:
        peak, unit, size = self.peak, self.layout.trace.unit, self.layout.trace.size_unit
        when = unit.at(unit.brief(peak.issued))
        head = f"peak: {size.describe(peak.memory)} on rank {peak.rank} at {when}"
        held = [f"{part.text}: {size.show(part.elements)}" for part in self.held]
        return "\n".join([head, moment(peak, self.layout.trace), *held])

    def _sum(self) -> list[str]:
        """Return the peak as a sum, in lines that fit the width."""
        unit, room = self.layout.trace.size_unit, self.layout.x1 - self.layout.x0
        lines = [f"{brief_size(unit, self.peak.memory)} ="]
        words = [f"{'+ ' * (at > 0)}{one.text} {brief_size(unit, one.elements)}" for at, one in enumerate(self.held)]
        if self.peak is self.layout.trace.peak and (more := beyond(self.layout.trace)):
            words += [f"({more})"] if text_width(f"    ({more})", 10) <= room else f"({more})".split()
        for word in words:
            if text_width(f"{lines[-1]} {word}", 10) > room:
                lines.append(f"    {word}")
            else:
                lines[-1] += f" {word}"
        return lines

    def line(self, above: Sequence[Diagram]) -> list[Diagram]:
        """Return a dotted line from the row of the rank down to the peak, with gaps where ``above`` has texts."""
        layout = self.layout
        row = next((row for row in layout.rows if self.peak.rank in row.ranks), None)
        if row is None:
            return []
        start, end = row.y + layout.row_height, self.y - 7
        pieces = around((self.x, start, self.x, end), [*places_of_texts(above), self.place])
        under, dots = style(None, theme.CARD, 3), style(None, theme.INK, 1.2, None, (1.5, 2.5))
        dot = box(self.x - 2.5, start - 2.5, 5, 5, style(theme.INK, theme.CARD, 1), 2.5)
        return [lines(pieces, under), lines(pieces, dots), dot]


def zones_of(layout: Layout, samples: Sequence[Event], least: float) -> list[tuple[float, float, list[Event]]]:
    """Return pieces (x, end, samples) of the time axis, each at least so many pixels wide. Samples that repeat the one
    before are left out."""
    found: list[tuple[float, list[Event]]] = []
    for event in samples:
        x = layout.x(event.issued)
        if found and event.held == found[-1][1][-1].held:
            continue
        if found and x - found[-1][0] < least:
            found[-1][1].append(event)
        else:
            found.append((x, [event]))
    ends = [*[x for x, _ in found], layout.x1][1:]
    return [(x, end, events) for (x, events), end in zip(found, ends, strict=True)]


Step = tuple[float, tuple[Elements, ...]]
"""(x, elements by MEMORY_KINDS from there on)"""


def steps_of(layout: Layout, samples: Sequence[Event]) -> list[Step]:
    """Return what is stored from which x on. Of samples within half a pixel (more in a rough picture) the highest
    counts, so that a short peak is visible, and the last one half a pixel further on."""
    near = (0.5 + 0.25 * layout.slim) * layout.rough
    steps: list[Step] = []
    last: tuple[Elements, ...] = ()
    for event in samples:
        x = min(layout.x(event.issued), layout.x1 - 1.5)
        if steps and x - steps[-1][0] < near:
            steps[-1] = (steps[-1][0], max(steps[-1][1], event.held, key=sum))
        else:
            if steps and steps[-1][1] != last:
                steps.append((steps[-1][0] + near, last))
            steps.append((x, event.held))
        last = event.held
    if steps and steps[-1][1] != last and steps[-1][0] + near < layout.x1:
        steps.append((steps[-1][0] + near, last))
    return [step for place, step in enumerate(steps) if not place or step[1] != steps[place - 1][1]]


def most_memory(traces: Sequence[Trace]) -> float:
    """Return the highest peak or target of all, in elements, as the scale of the strips."""
    peaks = [trace.peak.memory for trace in traces if trace.peak is not None]
    targets = [trace.memory_target for trace in traces if trace.memory_target is not None]
    return max(map(float, [*peaks, *targets]), default=0.0)


def draw_total(layout: Layout, y: float, most: float, trace: Trace | None = None) -> tuple[list[Diagram], float]:
    """Return a strip from ``y`` down, ``most`` elements high, and the y where it ends. ``trace``: whose memory it is,
    if not that of the layout."""
    end = layout.x(layout.trace.time)
    trace = layout.trace if trace is None else trace
    peak = trace.peak
    bottom = y + TOTAL
    if peak is None or not most:
        return [], y

    def at(elements: Elements | float) -> float:
        return bottom - (TOTAL - 7) * float(elements) / most  # the sign of a peak stands above it

    corners = stairs([(x, at(sum(held))) for x, held in steps_of(layout, trace.by_rank[peak.rank])], end)
    unit, sizes, middle = trace.unit, trace.size_unit, (y + bottom) / 2
    x, top = min(layout.x(peak.issued), layout.x1 - 1.5), at(peak.memory)
    when = unit.at(unit.brief(peak.issued))
    text = f"memory of rank {peak.rank}, whose peak is the highest: {sizes.describe(peak.memory)} at {when}"
    end = max(end, x)
    highest = brief_size(sizes, peak.memory)
    parts: list[Diagram] = [
        box(layout.x0, y, end - layout.x0, TOTAL, style(theme.LANE)),
        Titled(text, poly([(layout.x0, bottom), *corners, (corners[-1][0], bottom)], style(theme.HATCH))),
        poly(corners, style(None, theme.INK, 1.2), closed=False),
        poly([(x, top), (x - 3.5, top - 6), (x + 3.5, top - 6)], style(theme.INK)),
        label(layout.x0 - 8, middle - 5, "memory", 11 - layout.slim, style(theme.INK), "end"),
    ]
    below = highest if layout.slim else f"rank {peak.rank}"
    parts.append(label(layout.x0 - 8, middle + 7, below, 9.5, style(theme.MUTE), "end"))
    notes = [(f"{'peak ' * (not sizes.says_itself)}{highest}", theme.INK, 600)]  # a unit leaves no room for a word
    if trace.memory_target is not None:
        parts.append(target_line(trace, layout.x0, end, at(trace.memory_target)))
        notes.append((f"target {brief_size(sizes, trace.memory_target)}", theme.MUTE, 400))
    for place, (note, color, weight) in enumerate(notes if not layout.slim else []):
        parts.append(label(layout.x1 + 8, middle - 5 + 12 * place, note, 10, style(color), "start", weight))
    return parts, bottom
