"""A chart of time and memory: time to the right, memory upwards, in round figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from lib.course.specs import Puzzle
from lib.grading.progress import Point
from lib.study.sweep import Sweep, Trial

from ..ink import theme
from ..ink.figure import PHONE, Figure, at_any_width
from ..ink.letters import text_width, wrapped
from ..ink.marks import Diagram, box, label, lines, style
from ..ink.texts import brief_size, size_of
from ..schedule.layout import PAD, ticks
from ..schedule.picture import WIDTH, card

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = PAD + 46.0, 700.0, 92.0, 392.0, 436.0
"""In pixels: where the chart is, and the height of the picture."""
NARROW = PHONE - PAD
"""The right end of the chart in a narrow place, where the legend is below it, in pixels."""
ROOM, FARTHEST = 0.14, 2.0
"""Room around the points, as a part of their span; points beyond so many times a target are at the edge."""
BESIDE, BELOW = (RIGHT + 38, TOP), (PAD + 14, HEIGHT + 8)
"""Where the legend has its first mark: beside the chart, or in a narrow place below it."""
TEXTS, LINE, NEXT = 22.0, 16.0, 25.0
"""Of the legend, in pixels: how far a text is from its mark, a line from the one before, and a mark from it."""
WITHIN = style(theme.GOOD, theme.GOOD, 1.4, opacity=0.1)
STAIRS = style(None, theme.MUTE, 1.4, dash=(4, 3))
"""The looks of the area within a target, and of a staircase through points."""


Figures = Point | Trial
"""Anything with a time and a memory."""


def figures_of(point: Figures, of: Puzzle | Sweep) -> str:
    """Return time and memory with their units."""
    sizes, time = of.size_unit, of.unit.lasting(point.time)
    return (
        f"{time}, {brief_size(sizes, point.memory) if sizes.says_itself else f'{size_of(point.memory)} {sizes.name}'}"
    )


class Scale(NamedTuple):
    """A linear scale from figures to pixels."""

    least: float
    most: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a figure, which is at the end of the scale for one beyond it."""
        part = (min(max(value, self.least), self.most) - self.least) / (self.most - self.least)
        return self.start + part * (self.end - self.start)

    def ticks(self, about: int) -> list[float]:
        """Return about so many round figures of the scale."""
        steps = ticks(self.most - self.least, about)
        first = math.ceil(self.least / steps[1])
        return [place * steps[1] for place in range(first, int(self.most / steps[1]) + 1)]


class Chart(NamedTuple):
    """Time to the right, memory upwards."""

    x: Scale
    y: Scale

    @classmethod
    def of(cls, points: Sequence[Figures], target: Figures | None = None, right: float = RIGHT) -> Chart:
        """Return a chart up to ``right`` that has room for all points, but for those that are far beyond a target."""

        def scale(values: list[float], target: float, start: float, end: float) -> Scale:
            near = [value for value in values if value <= FARTHEST * target]
            least, most = min(near), max(near)
            room = max(ROOM * (most - least), 0.06 * most)
            return Scale(max(0.0, least - room), most + room, start, end)

        times, sizes = [point.time for point in points], [float(point.memory) for point in points]
        limits = (target.time, float(target.memory)) if target else (math.inf, math.inf)
        return cls(scale(times, limits[0], LEFT, right), scale(sizes, limits[1], BOTTOM, TOP))

    def at(self, point: Figures) -> tuple[float, float]:
        """Return the place of a point, which is at the edge for one that is beyond it."""
        return self.x.at(point.time), self.y.at(float(point.memory))

    def has(self, point: Figures) -> bool:
        """Return whether a point is not beyond the edge."""
        return point.time <= self.x.most and float(point.memory) <= self.y.most


Inside = Callable[[Chart], Iterable[Diagram]]
"""What is in a chart."""
Meaning = tuple[Callable[[float, float], Diagram], str, Sequence[str]]
"""What draws a mark around a place, what that means, and notes in the lines below."""


def draw_chart(
    chart_of: Callable[[float], Chart],
    of: Puzzle | Sweep,
    title: str,
    note: str,
    inside: Inside,
    legend: Sequence[Meaning],
    words: str,
    static: bool,
) -> Figure:
    """Return a picture in the units of what it is ``of``: title, note, grid with figures, names of the axes, what is
    inside, and the legend. ``chart_of`` returns the chart up to some x; ``words`` describe it."""

    unit, sizes, mute, ink = of.unit, of.size_unit, style(theme.MUTE), style(theme.INK)

    def drawn(right: float) -> Figure:
        chart, slim = chart_of(right), right == NARROW
        times, amounts = chart.x.ticks(4 if slim else 8), chart.y.ticks(6)
        grid = [(chart.x.at(time), TOP, chart.x.at(time), BOTTOM) for time in times]
        grid += [(LEFT, chart.y.at(size), right, chart.y.at(size)) for size in amounts]
        said = enumerate(wrapped(note, 11.5, right - PAD)[:2])
        parts: list[Diagram] = [
            label(PAD, 26, title, 17, ink, "start", 650),
            *[label(PAD, 43 + 13 * at, line, 11.5, mute, "start") for at, line in said],
            lines(grid, style(None, theme.GRID, 1)),
            *[label(chart.x.at(time), BOTTOM + 13, unit.show(time), 10, mute) for time in times],
            *[label(LEFT - 8, chart.y.at(size), brief_size(sizes, size), 10, mute, "end") for size in amounts],
            label(PAD, TOP - 17, f"\N{UPWARDS ARROW} peak memory, in {sizes.name}", 11, ink, "start"),
            label(right, BOTTOM + 31, f"time, in {unit.name} \N{RIGHTWARDS ARROW}", 11, ink, "end"),
            *inside(chart),
        ]
        x, y = BELOW if slim else BESIDE
        for mark, text, notes in legend:
            parts += [mark(x, y), label(x + TEXTS, y, text, 11.5, ink, "start", 600)]
            parts += [label(x + TEXTS, y + LINE * at, one, 10.5, mute, "start") for at, one in enumerate(notes, 1)]
            y += LINE * len(notes) + NEXT
        return card(parts, PHONE if slim else WIDTH, y if slim else max(y, HEIGHT), words, title=title)

    return at_any_width(drawn, RIGHT, NARROW, static)


def target_area(chart: Chart, target: Figures, words: str) -> Iterator[Diagram]:
    """Yield the area of all points within a target, with a text in its corner."""
    x, y = chart.at(target)
    yield box(LEFT, y, x - LEFT, BOTTOM - y, WITHIN)
    if text_width(words, 10) + 16 < x - LEFT and BOTTOM - y > 24:
        yield label(LEFT + 8, BOTTOM - 12, words, 10, style(theme.MUTE), "start", passive=True)


def target_sample(x: float, y: float) -> Diagram:
    """Return the sample of a target for a legend."""
    return box(x - 12, y - 7, 24, 14, WITHIN)
