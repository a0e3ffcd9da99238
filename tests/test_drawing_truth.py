"""Nothing drawn is false: what a picture says in its own numbers, read back from the SVG, is what the log says."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from drawing import Figure, beside_target, compare, draw, theme
from drawing.trace import Trace, trace_of
from lib import Run, run
from lib.course.outlines import is_known, outline
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.record.events import MARKS, Event
from lib.record.figures.waiting import idle_spans
from lib.record.table import OPERATIONS
from tests.drawing_events import SVG, _own_corners, parse, sharded_run, staged_run
from tests.failures import CASES, failed
from tests.programs import COURSE, SMALLER, solved

NEAR = 1.6
"""Pixels within which samples may share a step, and by which the last one is moved away from the edge."""
EXACT = 0.08
"""Pixels by which rounding may move a line."""
Samples = Sequence[tuple[float, float]]
"""(time, elements) from then on."""


class Page:
    """A picture as its numbers: elements with hover texts, and a scale of time that is read from the axis."""

    def __init__(self, figure: Figure) -> None:
        self.root = parse(figure)
        self.texts = [(float(one.get("x", 0)), "".join(one.itertext())) for one in self.root.iter(SVG + "text")]
        unit = next(at for at, (_, text) in enumerate(self.texts) if text in ("ticks", "ms", "s"))
        marks = []
        for x, text in self.texts[unit + 1 :]:
            if not re.fullmatch(r"[\d.,]+", text):
                break
            marks.append((x, float(text.replace(",", ""))))
        self.left, self.per_tick = marks[0][0], (marks[-1][0] - marks[0][0]) / marks[-1][1]

    def x(self, time: float) -> float:
        return self.left + time * self.per_tick

    def titled(self, pattern: str) -> Iterator[tuple[re.Match[str], list[Element], list[Element]]]:
        """Each group whose hover text matches: its shapes, and what follows it."""
        for parent in self.root.iter():
            for at, group in enumerate(parent):
                if len(group) and group[0].tag == SVG + "title" and (said := re.match(pattern, group[0].text or "")):
                    yield said, list(group)[1:], list(parent)[at + 1 :]


def points(shape: Element) -> list[tuple[float, float]]:
    return list(_own_corners(shape))


def drawn_at(line: Sequence[tuple[float, float]], x: float) -> float:
    """The height of a staircase right of an x."""
    return line[bisect_right([at for at, _ in line], x) - 1][1]


def check_curve(
    page: Page, line: Sequence[tuple[float, float]], tip: tuple[float, float], bottom: float, samples: Samples
) -> None:
    """A staircase is what is held at every sample, and its highest step is the mark of the peak."""
    most = max(held for _, held in samples)
    when = next(time for time, held in samples if held == most)
    assert tip[0] == pytest.approx(page.x(when), abs=2)
    assert min(y for _, y in line) == pytest.approx(tip[1], abs=EXACT)
    assert drawn_at(line, tip[0] + 0.01) == pytest.approx(tip[1], abs=EXACT)
    per_element = (bottom - tip[1]) / most
    places = [(page.x(time), held) for time, held in samples]
    ends = [*(x for x, _ in places[1:]), line[-1][0]]
    assert line[0][0] == pytest.approx(places[0][0], abs=1.6)
    for (x, held), end in zip(places, ends, strict=True):
        near = [bottom - other * per_element for at, other in places if abs(at - x) <= NEAR]
        assert min(near) - EXACT <= drawn_at(line, min(x, line[-1][0]) + 0.01) <= bottom
        if end - x > 2 * NEAR:  # between steps there is no doubt
            for inside in (x + NEAR, (x + end) / 2, end - NEAR):
                assert bottom - drawn_at(line, inside) == pytest.approx(held * per_element, abs=EXACT), (x, inside)


def held_by(source: Trace, rank: int) -> Samples:
    return [(event.issued, float(event.memory)) for event in source.by_rank[rank] if event.held]


def check_totals(page: Page, wanted: Sequence[tuple[int, Samples]]) -> None:
    found = list(page.titled(r"memory of rank (\d+), whose peak is the highest"))
    assert len(found) == len(wanted)
    for (said, shapes, after), (rank, samples) in zip(found, wanted, strict=True):
        assert int(said[1]) == rank
        line, mark = points(after[0]), points(after[1])
        check_curve(page, line, mark[0], max(y for _, y in points(shapes[0])), samples)


def goals() -> Iterator[Any]:
    for puzzle in puzzles().values():
        for goal in ("target", "star"):
            if goal == "target" or (puzzle.star and is_known(puzzle)):
                yield pytest.param(puzzle, goal, id=f"{puzzle.name}-{goal}")


async def one_activation(model: Any) -> None:
    model.activations[0] = model.get_activation([0])


@pytest.mark.parametrize(("puzzle", "goal"), [*goals()])
def test_the_memory_of_an_outline_is_drawn_as_it_is(puzzle: Puzzle, goal: str) -> None:
    made = run(one_activation, **puzzle.size, cost=cost_named(puzzle.cost))
    aim, own = outline(puzzle, goal), trace_of(made)
    assert own.peak is not None
    figure = beside_target(made, puzzle.name, star=goal == "star")
    check_totals(Page(figure), [(own.peak.rank, held_by(own, own.peak.rank)), (aim.fullest, aim.memory)])
