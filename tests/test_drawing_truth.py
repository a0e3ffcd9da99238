"""Nothing drawn is false: what a picture says in its own numbers, read back from the SVG, is what the log says."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from drawing import Figure, beside_target, draw
from drawing.ink import theme
from drawing.ink.figure import PHONE
from drawing.ink.trace import Trace, trace_of
from drawing.schedule.gaps import ENDS
from drawing.schedule.layout import CROWDED
from drawing.schedule.operations import is_drawn
from lib import run
from lib.course.outlines import is_known, outline
from lib.course.specs import Puzzle, cost_named, puzzles
from lib.record.figures.breakdown import share_text
from lib.record.figures.waiting import idle_spans
from tests.drawing_events import NUMBER, SVG, _own_corners, parse, sharded_run, staged_run
from tests.failures import CASES, failed
from tests.programs import COURSE, solved

NEAR, NEAR_ON_A_PHONE = 1.6, 2.5
"""Pixels within which samples may share a step, and by which the last one is moved away from the edge."""
EXACT = 0.08
"""Pixels by which rounding may move a line."""
Samples = Sequence[tuple[float, float]]
"""(time, elements) from then on."""


class Page:
    """A picture as its numbers: elements with hover texts, and a scale of time that is read from the axis."""

    def __init__(self, figure: Figure) -> None:
        self.root, self.near = parse(figure), NEAR if figure.size[0] > PHONE else NEAR_ON_A_PHONE
        self.texts = [(float(one.get("x", 0)), "".join(one.itertext())) for one in self.root.iter(SVG + "text")]
        shown = [text for _, text in self.texts]
        axis = next(at for at, text in enumerate(shown) if text == "0" and shown[at - 1] in ("ticks", "ms", "s"))
        marks = []
        for x, text in self.texts[axis:]:
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
                    yield said, list(group)[1:] or [group], list(parent)[at + 1 :]


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
        near = [bottom - other * per_element for at, other in places if abs(at - x) <= page.near]
        assert min(near) - EXACT <= drawn_at(line, min(x, line[-1][0]) + 0.01) <= bottom
        if end - x > 2 * page.near:  # between steps there is no doubt
            for inside in (x + page.near, (x + end) / 2, end - page.near):
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
    figure: Any = beside_target(made, puzzle.name, star=goal == "star")
    for form in (figure, figure.narrow):
        check_totals(Page(form), [(own.peak.rank, held_by(own, own.peak.rank)), (aim.fullest, aim.memory)])


SOURCES = {name: (lambda name=name: solved(name, small=True)) for name in COURSE} | {
    "coarse": lambda: staged_run(32, 64),
    "sharded": lambda: sharded_run(64, 60),
    "failed": lambda: failed(CASES[-1]).run,
}
MEMORIES = {color for _, color in theme.MEMORY.values()}


NARROW = ", on a phone"


@cache
def source_of(name: str) -> Trace:
    return trace_of(SOURCES[name.removesuffix(NARROW)]())  # type: ignore[no-untyped-call]


@cache
def page_of(name: str) -> Page:
    figure: Any = draw(source_of(name))
    return Page(figure.narrow if name.endswith(NARROW) else figure)


each_run = pytest.mark.parametrize("name", [name + form for name in SOURCES for form in ("", NARROW)])


@each_run
def test_the_strip_with_the_peak_is_the_memory_of_its_rank(name: str) -> None:
    page, made = page_of(name), source_of(name)
    assert made.peak is not None
    said, [mark], _ = next(page.titled(r"peak: ([\d,.]+ \w+) on rank (\d+) at (.*)\n"))
    rank, tip = int(said[2]), points(mark)[0]
    assert said[1] == made.size_unit.describe(max(event.memory for event in made.device_events))
    shapes = [(one, points(one)) for one in page.root.iter(SVG + "path")]
    areas = [at for one, at in shapes if one.get("fill") in MEMORIES]
    top, bottom = min((min(y for _, y in at), at[-1][1]) for at in areas if tip[1] - 1 < min(y for _, y in at))
    [line] = [
        at
        for one, at in shapes
        if one.get("class") == "s-ink" and len(at) > 2 and min(y for _, y in at) == pytest.approx(top, abs=EXACT)
    ]
    check_curve(page, line, tip, bottom, held_by(made, rank))


SPAN = r"((?:host of )?ranks? [^:]*): ([^,\n]*)[^\n]*\n(?:tick )?([\d.,]+)(?: to ([\d.,]+))?"


@each_run
def test_every_operation_is_where_the_log_has_it(name: str) -> None:
    page, made = page_of(name), source_of(name)
    drawn = Counter[tuple[str, float, float]]()
    for said, shapes, _ in page.titled(SPAN):
        start, end = float(said[3]), float(said[4] or said[3])
        xs = [x for one in shapes for part in one.iter() if part.get("class") != "a" for x, _ in points(part)]
        assert min(xs) == pytest.approx(page.x(start), abs=1 if start < end else 4), said[0]
        assert max(xs) == pytest.approx(page.x(end), abs=1 if start < end else 4), said[0]
        drawn[said[2], start, end] += 1
    operations = [event for event in made.events if is_drawn(event)]
    show = made.unit.show
    times = Counter((theme.name_of(e.kind), float(show(e.start)), float(show(e.end))) for e in operations)
    assert {*drawn} <= {*times}
    if made.operations <= CROWDED:  # all of them have a hover text
        assert {*drawn} == {*times}
        if len(list(page.titled("ranks? [^,:]*-.*: forward"))) == 0:
            assert drawn == times


@each_run
def test_a_message_that_ends_a_gap_is_received_there(name: str) -> None:
    page, made = page_of(name), source_of(name)
    rects = [one for one in page.root.iter(SVG + "rect") if one.get("fill") == theme.TALK]
    ends = [float(one.get("x", 0)) + float(one.get("width", 0)) for one in rects]
    sent = {event.op for event in made.events if event.kind == "pass_to" and event.length}
    for rank, own in made.by_rank.items() if made.operations <= CROWDED else ():
        gaps = {end: (end - start) * page.per_tick for start, end in idle_spans(own, made.time)}
        for event in own:
            if event.kind == "receive" and event.op in sent and not event.length and gaps.get(event.end, 0) >= ENDS:
                assert min(abs(page.x(event.end) - end) for end in ends) < 1, rank
                assert "receive" in [text for _, text in page.texts]


def bars(page: Page, role: str) -> list[tuple[float, float, float, float]]:
    """The bars of a role (left, right, top, bottom)."""
    found = []
    for one in page.root.iter(SVG + "path"):
        if role in (one.get("class") or "") and one.get("fill") == "none":
            x = y = 0.0
            half = float(one.get("stroke-width", 0)) / 2
            for command, first, second in re.findall(rf"([Mmh])({NUMBER})(?: ({NUMBER}))?", one.get("d", "")):
                if command == "h":
                    found.append((x, x + float(first), y - half, y + half))
                x = float(first) if command == "M" else x + float(first)
                y = float(second) if command == "M" else y
    return found


@each_run
def test_idle_at_a_row_is_what_is_tinted_there(name: str) -> None:
    page, made = page_of(name), source_of(name)
    tints = defaultdict[float, float](float)
    for left, right, top, _ in bars(page, "s-gap"):
        tints[top] += (right - left) / (made.time * page.per_tick)
    if max(tints.values(), default=0.0) < 0.999:  # rows that are not boxes have one ground
        said = [text.partition(" ")[2] for _, text in page.texts if re.fullmatch(r"bubble [<>]?\d+%", text)]
        shown = {share_text(share) for share in [0.0, 1.0, *tints.values()]}
        assert {*said} <= shown
        head = next(text for _, text in page.texts if text.startswith("where the time of"))
        on_devices = [*tints.values()][: len(tints) - len(made.hosts)]
        if (idle := re.search(r"bubble ([<>]?\d+%)", head)) and len(on_devices) == made.ranks:
            assert share_text(sum(on_devices) / made.ranks) == idle[1]


@each_run
def test_the_shares_in_the_head_are_those_of_the_log(name: str) -> None:
    page, made = page_of(name), source_of(name)
    bar = {said[1]: (said[2], shapes) for said, shapes, _ in page.titled(r"([^:]+): (\S+) of all ranks' time")}
    ends = {part: [x for one in shapes[0].iter() for x, _ in points(one)] for part, (_, shapes) in bar.items()}
    wide = {part: max(xs) - min(xs) + 1 for part, xs in ends.items()}
    spent = Counter[str]()
    for event in made.device_events:
        if event.stream == "compute" and event.length:
            spent[theme.name_of(event.kind)] += event.length / (made.time * made.ranks)
    spent["waits"] = sum(end - start for rank, own in made.by_rank.items() if rank not in made.hosts
                         for start, end in idle_spans(own, made.time)) / (made.time * made.ranks)  # fmt: skip
    spent["only communicates"] = 1 - sum(spent.values())
    drawn = Counter[str]()
    for part, (text, _) in bar.items():
        share = wide[part] / sum(wide.values())
        assert text[0] in "<>" or share == pytest.approx(float(text.removesuffix("%")) / 100, abs=0.012)
        drawn["waits" if part.startswith("waits") else part] += share
    assert drawn == pytest.approx({part: share for part, share in spent.items() if share > 1e-9}, abs=0.006)
