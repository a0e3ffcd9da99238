"""Memory over time, stacked by kind: one strip for each profile that occurs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lib.basics.units import Elements, show_elements
from lib.record.events import Event
from lib.record.kinds import MEMORY_KINDS

from . import theme
from .layout import PAD, Layout
from .marks import Diagram, Point, Titled, box, boxes, label, lines, poly, style, text_width
from .timeline import axis, fitting, grid
from .trace import Trace
from .words import brief_ranks, full_ranks, si

GAP, SHOWN = 8.0, 8
"""Pixels between strips, and strips at most."""


@dataclass
class Profile:
    """Ranks that have the same in memory at all times, and the samples of the first."""

    ranks: list[int]
    samples: Sequence[Event]
    devices: Sequence[int] = ()
    """The devices beside which they are, if they are hosts."""

    @property
    def most(self) -> Elements:
        """The highest sample, in elements."""
        return max((event.memory for event in self.samples), default=0)


def draw_memory(layout: Layout, y: float) -> tuple[list[Diagram], float]:
    """Return the panel from ``y`` down, and the y where it ends. Hosts have strips of their own below, on a scale of
    their own."""
    trace = layout.trace
    assert trace.peak is not None
    profiles = profiles_of(layout)
    on_devices = [profile for profile in profiles if not profile.devices]
    parts, bottom = _strips(layout, on_devices, trace.peak, trace.memory_target, "Memory", y)
    if trace.host_peak is not None and trace.host_peak.memory > 0:
        on_hosts, title = [profile for profile in profiles if profile.devices], "Memory of hosts, on its own scale"
        more, bottom = _strips(layout, on_hosts, trace.host_peak, None, title, bottom + GAP)
        parts += more
    scale, end = axis(layout, bottom)
    return [*parts, *scale], end


def _strips(
    layout: Layout, profiles: Sequence[Profile], peak: Event, target: Elements | float | None, title: str, y: float
) -> tuple[list[Diagram], float]:
    """Return a strip for each profile, or some of them, below a title, and the y where the last one ends."""
    shown = _chosen(profiles, peak.rank)
    title += "" if len(shown) == len(profiles) else f" ({len(shown)} of {len(profiles)} different profiles)"
    top = y + 28  # the mark of a peak may stand above the first strip
    height = 64.0 if len(shown) == 1 else 46.0 if len(shown) <= 4 else 36.0
    strips = [
        Strip(layout, profile, peak, target, top + place * (height + GAP), height)
        for place, profile in enumerate(shown)
    ]
    bottom = strips[-1].bottom
    parts: list[Diagram] = [
        label(PAD, y + 6, title, 12.5, style(theme.INK), "start", 600),
        boxes([(layout.x0, strip.top, layout.x1 - layout.x0, height) for strip in strips], style(theme.LANE)),
        grid(layout, top, bottom),
    ]
    for strip in strips:
        parts += [*strip.area(), *strip.around()]
    for strip in strips:
        parts += strip.mark() if peak.rank in strip.profile.ranks else []
    return parts, bottom


def target_color(trace: Trace) -> str:
    """Return the color of the line of the target: of a run with a fault it says neither good nor bad."""
    if trace.fault or trace.peak is None or trace.memory_target is None:
        return theme.MUTE
    return theme.GOOD if trace.peak.memory <= trace.memory_target else theme.BAD


def profiles_of(layout: Layout) -> list[Profile]:
    """Return the profiles that occur, in order of rank."""
    found: dict[tuple[object, ...], Profile] = {}
    for rank, events in layout.trace.by_rank.items():
        near = layout.trace.hosts.get(rank, ())
        key = (bool(near), *((event.issued, event.held) for event in events))
        profile = found.setdefault(key, Profile([], events))
        profile.ranks.append(rank)
        profile.devices = [*profile.devices, *near]
    return list(found.values())


def _chosen(profiles: Sequence[Profile], peak_rank: int) -> list[Profile]:
    """Return at most SHOWN profiles: the one with the peak, the lowest, and others at even distances."""
    if len(profiles) <= SHOWN:
        return list(profiles)
    places = range(len(profiles))
    wanted = [
        next(place for place in places if peak_rank in profiles[place].ranks),
        min(places, key=lambda place: profiles[place].most),
        *(round(step * (len(profiles) - 1) / (SHOWN - 1)) for step in range(SHOWN)),
    ]
    return [profiles[place] for place in sorted(list(dict.fromkeys(wanted))[:SHOWN])]


class Strip:
    """The memory of one profile, from ``top`` down, ``height`` pixels high. All strips of devices share one scale, up
    to their ``peak`` or the ``target``, and all of hosts another."""

    def __init__(
        self,
        layout: Layout,
        profile: Profile,
        peak: Event,
        target: Elements | float | None,
        top: float,
        height: float,
    ) -> None:
        self.layout, self.profile, self.top, self.bottom = layout, profile, top, top + height
        self.highest, self.target = peak, target
        highest = max(float(peak.memory), float(target or 0)) * 1.08
        self.per_element = height / (highest or 1.0)

    def y(self, elements: Elements | float) -> float:
        """Return the y of an amount of elements."""
        return self.bottom - float(elements) * self.per_element

    def area(self) -> list[Diagram]:
        """Return the stacked kinds, the highest first: each is painted over by those below it."""
        layout, name = self.layout, full_ranks(self.profile.ranks, self.profile.devices)
        steps = steps_of(layout, self.profile.samples)
        base = [0.0] * len(steps)
        areas: list[Diagram] = []
        for slot, kind in enumerate(MEMORY_KINDS):
            amounts = [held[slot] for _, held in steps]
            if any(amounts):
                base = [low + float(amount) for low, amount in zip(base, amounts, strict=True)]
                title = f"{name}: {theme.MEMORY[kind][0]}, at most {show_elements(max(amounts))} elements"
                outline = self._stairs([x for x, _ in steps], base)
                areas.append(Titled(title, poly(outline, style(theme.MEMORY[kind][1]))))
        return areas[::-1]

    def _stairs(self, xs: Sequence[float], amounts: Sequence[float]) -> list[Point]:
        """Return corners from the ground up over the amounts and down again, rounded to tenths of a pixel."""
        corners: list[Point] = [(xs[0], self.bottom)]
        for x, amount in zip(xs, amounts, strict=True):
            y = round(self.y(amount), 1)
            if y != corners[-1][1]:
                corners += [(x, corners[-1][1]), (x, y)]
        return [*corners[1:], (self.layout.x1, corners[-1][1]), (self.layout.x1, self.bottom)]

    def around(self) -> list[Diagram]:
        """Return its name, its maximum, and the line of the target."""
        layout, middle, ranks = self.layout, (self.top + self.bottom) / 2, self.profile.ranks
        devices = self.profile.devices
        name, most = fitting(layout, brief_ranks(ranks, devices), 11.0), f"max {si(float(self.profile.most))}"
        parts: list[Diagram] = [
            Titled(full_ranks(ranks, devices), label(layout.x0 - 8, middle, name, 11, style(theme.INK), "end")),
            label(layout.x1 + 8, middle, most, 9.5, style(theme.MUTE), "start"),
        ]
        if len(ranks) > 1:
            parts.append(label(layout.x1 + 8, middle + 13, f"{len(ranks)} ranks", 9.5, style(theme.MUTE), "start"))
        if self.target is not None:
            color = target_color(layout.trace)
            y = self.y(self.target)
            parts.append(lines([(layout.x0, y, layout.x1, y)], style(None, color, 1.2, None, (5.0, 3.0))))
        return parts

    def mark(self) -> list[Diagram]:
        """Return a sign at the highest sample of all devices, or hosts, with its text on the side where there is
        room."""
        peak = self.highest
        x, y = self.layout.x(peak.issued), self.y(peak.memory)
        text = f"peak {si(float(peak.memory))}"
        width = text_width(text, 10) + 8
        right = x + width + 8 < self.layout.x1
        behind = box(x + 4 if right else x - 4 - width, y - 14, width, 13, style(theme.CARD, None, 0, 0.8), 2)
        mark = poly([(x, y), (x - 4, y - 7), (x + 4, y - 7)], style(theme.INK))
        said = label(x + (8 if right else -8), y - 7, text, 10, style(theme.INK), "start" if right else "end", 600)
        unit = self.layout.trace.unit
        when = unit.at(unit.brief(peak.issued))
        title = f"peak: {show_elements(peak.memory)} elements on rank {peak.rank} at {when}"
        return [behind, Titled(title, mark), said]


Step = tuple[float, tuple[Elements, ...]]
"""(x, elements by MEMORY_KINDS from there on)"""


def steps_of(layout: Layout, samples: Sequence[Event]) -> list[Step]:
    """Return what is stored from which x on. Samples within half a pixel (more in a rough picture) become the highest
    of them, so that a short peak is seen, and half a pixel further the last of them. The last one stays in sight."""
    near = 0.5 * layout.rough
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
