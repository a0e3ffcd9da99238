"""The learner's right attempts at a puzzle, as points in the chart of time and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from lib.basics.units import TICKS
from lib.course.bounds import bounds_of
from lib.course.outlines import solution_figures
from lib.course.specs import Puzzle, find
from lib.grading.progress import Point, Progress

from ..ink import theme
from ..ink.figure import Figure
from ..ink.marks import Diagram, Titled, box, lines, poly, star, style, together
from ..ink.texts import capitalized, plural
from ..schedule.memory import stairs
from .time_memory import BOTTOM, STAIRS, TOP, Chart, Meaning, draw_chart, figures_of, target_area, target_sample

FASTER = "none that passes is faster"
MOST_NAMED = 5  # points of one kind whose figures the legend has


def draw_attempts(puzzle: str | Puzzle, *, static: bool = False) -> Figure:
    """A chart of your correct attempts at a puzzle, in the order in which you graded them: time to the right, memory
    upwards. It also has the target as a box, the star, the best figures that are known, and our solution. For a
    pipeline, a line is at the time that no schedule with its prices beats.

    The attempts are kept in progress.json beside the notebook. Raises PuzzleError for an unknown puzzle.
    """
    spec = puzzle if isinstance(puzzle, Puzzle) else find(getattr(puzzle, "__name__", puzzle))
    trail, known, limits = Progress().trail.get(spec.name, []), _landmarks(spec), _limits(spec)
    [target] = known["target"]
    points = [*(point for some in known.values() for point in some), *trail]
    points += [Point(time, target.memory, False) for time in limits.values()]
    chart_of = partial(Chart.of, points, target)  # with room for all that are not too far out
    title, texts = f"{spec.name}: your attempts", _in_words(spec, known, trail)

    def said(point: Point) -> str:
        """Return the hover text of all marks at the place of a point, since the pointer finds only the last of them."""
        here = [f"the {name}" for name, some in known.items() if any(one[:2] == point[:2] for one in some)]
        own = [f"attempt {at} of {len(trail)}{_how(one)}" for at, one in enumerate(trail, 1) if one[:2] == point[:2]]
        return "\n".join([figures_of(point, spec), *here, *own])

    def spot(chart: Chart, point: Point, *names: str) -> Diagram:
        return Titled(said(point), together([_mark(name, *chart.at(point)) for name in names]))

    def inside(chart: Chart) -> Iterator[Diagram]:
        for words, time in limits.items():
            yield Titled(f"{FASTER}\n{words} ticks", _upright(chart.x.at(time), TOP, BOTTOM - 24))
        yield Titled(said(target), together(target_area(chart, target, "within the target")))
        best = [chart.at(point) for point in known["best known"]]
        yield poly(stairs([(best[0][0], TOP), *best], chart.x.end), STAIRS, closed=False)
        for name in ("solution", "star", "best known"):
            yield from (spot(chart, point, name) for point in known.get(name, []))
        if len(trail) > 1:
            yield poly([chart.at(point) for point in trail], style(None, theme.STEP, 1.2), closed=False)
        for point in trail:
            yield spot(chart, point, *["newest"] * (point is trail[-1]), "passes" if point.passed else "over")

    far = [point for point in trail if not chart_of().has(point)]
    rows = [("newest", "your newest attempt", trail[-1:])] * bool(trail)
    rows += [("passes", "right, within the target", [])] * any(point.passed for point in trail)
    rows += [("over", "right, over the target", [])] * (not all(point.passed for point in trail))
    rows += [("over", "beyond the edge", far)] * bool(far)
    rows += [({"best known": "stairs"}.get(name, name), f"the {name}", some) for name, some in known.items()]
    legend: list[Meaning] = [
        (partial(_mark, name), words, _some([figures_of(point, spec) for point in some])) for name, words, some in rows
    ]
    if limits:
        legend.append((lambda x, y: _upright(x, y - 9, y + 9), FASTER, [f"{'; '.join(limits)} ticks"]))
    return draw_chart(chart_of, spec, title, texts[0], inside, legend, f"{title}. {' '.join(texts)}", static)


def _in_words(puzzle: Puzzle, known: dict[str, list[Point]], trail: Sequence[Point]) -> list[str]:
    """Return the chart in words: the number of attempts, then all points."""
    count = f"{len(trail)} right attempt{plural(trail)}, {sum(one.passed for one in trail)} within the target."
    none = f"No right attempt yet: grade({puzzle.name}) puts a point here for each that is right."
    texts = [count if trail else none]
    texts += [f"The {name}: {'; '.join(figures_of(one, puzzle) for one in some)}." for name, some in known.items()]
    if bound := bounds_of(puzzle):
        texts.append(f"{capitalized(bound.in_words())}.")
    return texts + [f"Attempt {at}: {figures_of(point, puzzle)}{_how(point)}." for at, point in enumerate(trail, 1)]


def _landmarks(puzzle: Puzzle) -> dict[str, list[Point]]:
    """Return the points that do not come from the learner, by name."""
    home, found = solution_figures(puzzle), {"target": [Point(**puzzle.target, passed=True)]}
    if puzzle.star:
        found["star"] = [Point(**puzzle.star, passed=True)]
    found["best known"] = [Point(point["time"], point["memory"], True) for point in puzzle.frontier]
    return found | {"solution": [Point(*puzzle.scored(home.time, home.memory), True)]}


def _limits(puzzle: Puzzle) -> dict[str, float]:
    """Return the lower bounds of the time, by the text that follows "none that passes is faster"."""
    bound = bounds_of(puzzle)
    found = {"than": bound.time, "one stage a rank:": bound.one_stage} if bound else {}
    return {f"{text} {TICKS.brief(float(time))}": float(time) for text, time in found.items() if time is not None}


def _upright(x: float, top: float, bottom: float) -> Diagram:
    return lines([(x, top, x, bottom)], style(None, theme.INK, 1.2, dash=(1.5, 3)))


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
    if name == "stairs":
        return together([lines([(x - 14, y, x + 14, y)], STAIRS), _mark("best known", x, y)])
    if name == "solution":
        return poly([(x, y - 13), (x + 13, y), (x, y + 13), (x - 13, y)], style(theme.CARD, theme.MUTE, 1.6))
    radius, how = {
        "newest": (8.5, style(None, theme.INK, 1.6)),
        "best known": (3.5, style(theme.MUTE)),
        "passes": (5.0, style(theme.GOOD, theme.CARD, 1)),
        "over": (5.0, style(theme.CARD, theme.BAD, 2)),
    }[name]
    return box(x - radius, y - radius, 2 * radius, 2 * radius, how, radius)


def _how(point: Point) -> str:
    return ", within the target" if point.passed else ", over the target"
