"""The learner's right attempts at a puzzle, as points in the chart of time and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, product

from lib.basics.units import TICKS
from lib.course.bounds import bounds_of
from lib.course.outlines import solution_figures
from lib.course.specs import Puzzle, find
from lib.grading.progress import Point, Progress

from ..ink import theme
from ..ink.figure import Figure
from ..ink.letters import overlap, place_of
from ..ink.marks import Diagram, Label, Rect, Titled, box, label, lines, poly, star, style, together
from ..ink.texts import capitalized, plural, si, size_of
from .time_memory import BOTTOM, LEFT, TOP, Chart, Meaning, draw_chart, stairs, target_area, target_sample

FASTER, BEYOND = "no schedule is faster", "beyond the edge"
MOST_NAMED = 5  # points of one kind whose figures the legend has


def draw_attempts(puzzle: str | Puzzle, *, static: bool = False) -> Figure:
    """A chart of your correct attempts at a puzzle, in the order in which you graded them: time to the right, memory
    upwards. It also has the target as a box, the star, the best figures that are known, and our solution. For a
    pipeline, a line is at the time that no schedule with its prices beats.

    The attempts are kept in progress.json beside the notebook. Raises PuzzleError for an unknown puzzle.
    """
    spec = puzzle if isinstance(puzzle, Puzzle) else find(getattr(puzzle, "__name__", puzzle))
    trail = Progress().trail.get(spec.name, [])
    texts = in_words(spec, trail)
    title, known = f"{spec.name}: your attempts", _landmarks(spec)
    [target] = known["target"]
    limits = [Point(time, target.memory, False) for time in _limits(spec).values()]
    points = [*(point for some in known.values() for point in some), *limits, *trail]
    chart_of = partial(Chart.of, points, target)  # with room for all that are not too far out

    def spot(chart: Chart, point: Point, *names: str) -> Diagram:
        return Titled(_title(point, spec, trail), together([_mark(name, *chart.at(point)) for name in names]))

    def inside(chart: Chart) -> Iterator[Diagram]:
        for words, time in _limits(spec).items():
            yield Titled(f"{FASTER}\n{words} ticks", _vertical_line(chart.x.at(time), TOP, BOTTOM - 24))
        yield Titled(_title(target, spec, trail), together(target_area(chart, target, "within the target")))
        best = [chart.at(point) for point in known["best known"]]
        steps = [(best[0][0], TOP), *best, (chart.x.end, best[-1][1])]
        yield stairs(steps, 1.4)
        for name in ("solution", "star", "best known"):
            yield from (spot(chart, point, name) for point in known.get(name, []))
        if len(trail) > 1:
            yield poly([chart.at(point) for point in trail], style(None, theme.STEP, 1.2), closed=False)
        for point in trail:
            newest = ["newest"] * (point is trail[-1])
            yield spot(chart, point, *newest, "passes" if point.passed else "over")
        yield from _beyond(spec, chart, trail, steps)

    words, legend = f"{title}. {' '.join(texts)}", _legend(spec, trail)
    return draw_chart(chart_of, spec.unit, spec.size_unit, title, texts[0], inside, legend, words, static)


def in_words(puzzle: Puzzle, trail: Sequence[Point]) -> list[str]:
    """Return the chart in words: the number of attempts, then all points."""
    passed = sum(point.passed for point in trail)
    count = f"{len(trail)} right attempt{plural(len(trail))}, {passed} within the target."
    texts = [
        count if trail else f"No right attempt yet: grade({puzzle.name}) puts a point here for each that is right."
    ]
    for name, points in _landmarks(puzzle).items():
        texts.append(f"The {name}: {'; '.join(_figures(one, puzzle) for one in points)}.")
    if bound := bounds_of(puzzle):
        texts.append(f"{capitalized(bound.in_words())}.")
    texts += [f"Attempt {number}: {_figures(point, puzzle)}{_how(point)}." for number, point in enumerate(trail, 1)]
    return texts


def _landmarks(puzzle: Puzzle) -> dict[str, list[Point]]:
    """Return the points that do not come from the learner, by name."""
    home, star = solution_figures(puzzle), puzzle.star
    found = {"target": [Point(puzzle.target["time"], puzzle.target["memory"], True)]}
    if star:
        found["star"] = [Point(star["time"], star["memory"], True)]
    found["best known"] = [Point(point["time"], point["memory"], True) for point in puzzle.frontier]
    return found | {"solution": [Point(*puzzle.scored(home.time, home.memory), True)]}


def _limits(puzzle: Puzzle) -> dict[str, float]:
    """Return the lower bounds of the time, by the text that follows "no schedule is faster"."""
    bound = bounds_of(puzzle)
    if bound is None:
        return {}
    found = {f"than {TICKS.brief(float(bound.time))}": float(bound.time)}
    if bound.one_stage is not None:
        found[f"one stage a rank: {TICKS.brief(float(bound.one_stage))}"] = float(bound.one_stage)
    return found


def _vertical_line(x: float, top: float, bottom: float) -> Diagram:
    return lines([(x, top, x, bottom)], style(None, theme.INK, 1.2, dash=(1.5, 3)))


def _beyond(
    puzzle: Puzzle, chart: Chart, trail: Sequence[Point], steps: Sequence[tuple[float, float]]
) -> Iterator[Diagram]:
    """Yield the figures of attempts beyond the edge, of the newest first, where there is room beside the stairs."""
    taken: list[Rect] = []
    for (x0, y0), (x1, y1) in pairwise(steps):
        taken += [(x0, y0, x1 - x0, 0.0), (x1, y0, 0.0, y1 - y0)]
    for point in [point for point in reversed(trail) if not chart.has(point)]:
        x, y = chart.at(point)
        room, side, anchor = max((x - LEFT - 10, -10, "end"), (chart.x.end - x - 10, 10, "start"))
        texts = [f"{_figures(point, puzzle, si)}, {BEYOND}", BEYOND]
        for text, at in product(texts, (y - 9, y + 13)):  # above the point, or below it
            place = place_of(Label(text, 10, anchor), x + side, at)
            if place[2] <= room and not any(overlap(place, other) for other in taken):
                taken.append(place)
                yield label(x + side, at, text, 10, style(theme.MUTE), anchor, passive=True)
                break


def _legend(puzzle: Puzzle, trail: Sequence[Point]) -> list[Meaning]:
    """Return what the marks mean, with their figures."""
    rows = [("newest", "your newest attempt", trail[-1:])] if trail else []
    rows += [("passes", "right, within the target", [])] if any(point.passed for point in trail) else []
    rows += [("over", "right, over the target", [])] if not all(point.passed for point in trail) else []
    rows += [(name, f"the {name}", points) for name, points in _landmarks(puzzle).items()]
    found: list[Meaning] = []
    for name, shown, points in rows:
        mark = _best_known if name == "best known" else partial(_mark, name)
        found.append((mark, shown, _some([_figures(point, puzzle) for point in points])))
    if limits := _limits(puzzle):
        found.append((lambda x, y: _vertical_line(x, y - 9, y + 9), FASTER, [f"{'; '.join(limits)} ticks"]))
    return found


def _some(figures: list[str]) -> list[str]:
    """Return the figures of points that the legend has room for. All of them are said where one points at a mark."""
    if len(figures) <= MOST_NAMED:
        return figures
    first = figures[: MOST_NAMED - 2]
    return [*first, f"and {len(figures) - len(first) - 1} between these and", figures[-1]]


def _mark(name: str, x: float, y: float) -> Diagram:
    """Return the mark of a kind of point."""
    if name == "target":
        return target_sample(x, y)
    if name == "star":
        return star(x, y, 14, style(theme.GOLD))
    if name == "solution":
        return poly([(x, y - 13), (x + 13, y), (x, y + 13), (x - 13, y)], style(theme.CARD, theme.MUTE, 1.6))
    radius, how = {
        "newest": (8.5, style(None, theme.INK, 1.6)),
        "best known": (3.5, style(theme.MUTE)),
        "passes": (5.0, style(theme.GOOD, theme.CARD, 1)),
        "over": (5.0, style(theme.CARD, theme.BAD, 2)),
    }[name]
    return box(x - radius, y - radius, 2 * radius, 2 * radius, how, radius)


def _best_known(x: float, y: float) -> Diagram:
    dashes = lines([(x - 14, y, x + 14, y)], style(None, theme.MUTE, 1.4, dash=(4, 3)))
    return together([dashes, _mark("best known", x, y)])


def _title(point: Point, puzzle: Puzzle, trail: Sequence[Point]) -> str:
    """Return the hover text of all marks at the place of a point, since the pointer finds only the last of them."""
    place = (point.time, point.memory)
    texts = [f"the {name}" for name, points in _landmarks(puzzle).items() if place in [one[:2] for one in points]]
    for number, one in enumerate(trail, 1):
        texts += [f"attempt {number} of {len(trail)}{_how(one)}"] if place == one[:2] else []
    return "\n".join([_figures(point, puzzle), *texts])


def _figures(point: Point, puzzle: Puzzle, shown: Callable[[float], str] = size_of) -> str:
    """Return time and memory with their units, with elements formatted by ``shown``."""
    size = puzzle.size_unit
    memory = size.describe(point.memory) if size.says_itself else f"{shown(point.memory)} {size.name}"
    return f"{puzzle.unit.lasting(point.time)}, {memory}"


def _how(point: Point) -> str:
    return ", within the target" if point.passed else ", over the target"
