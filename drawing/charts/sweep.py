"""A sweep as points in a chart of time and memory, with the Pareto front of each size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from lib.basics.errors import PuzzleError
from lib.course.specs import cost_named, puzzles
from lib.machine.cost import Cost
from lib.study.sweep import Sweep, Trial

from ..ink import theme
from ..ink.figure import Figure
from ..ink.marks import Diagram, Titled, box, poly, style, together
from ..ink.texts import plural
from ..schedule.memory import stairs
from .time_memory import STAIRS, Chart, Meaning, draw_chart, figures_of, target_area, target_sample

TITLE = "Time and memory"
SHOWN, DESCRIBED = 14, 4
"""The largest number of programs in the legend, and of runs in the alternative text: the table below has all."""


def draw_sweep(sweep: Sweep, *, static: bool = False) -> Figure:
    """The trials of a sweep as points, time to the right and memory upwards. The points of a size that no other one of
    that size beats are filled, and joined by a line: the Pareto front. Programs that are wrong at a size are left out.
    Where the function of one puzzle is among them, and all are at its size and prices, what is within its target is a
    box.

    Raises PuzzleError for anything that is not a sweep, and for one in which no trial is right.
    """
    if not isinstance(sweep, Sweep):
        expected = "draw_sweep(sweep([ddp, fsdp], ranks=4))"
        raise PuzzleError("draw_sweep takes a sweep", where="draw_sweep", expected=expected)
    right, front = [trial for trial in sweep.trials if not trial.error], sweep.front()
    if not right:
        expected = "a size at which one is right: print(sweep) shows them"
        raise PuzzleError("no program of the sweep is right at any size", where="draw_sweep", expected=expected)
    names = list(dict.fromkeys(trial.name for trial in right))
    target = _target(right, sweep.cost)
    chart_of = partial(Chart.of, [*right, *([target] if target else [])], None)
    wrong = len(sweep.trials) - len(right)
    text = f"{len(right)} run{plural(len(right))}"
    text += f", and {wrong} that {'is' if wrong == 1 else 'are'} wrong" * (wrong > 0)

    def inside(chart: Chart) -> Iterator[Diagram]:
        if target:
            yield from target_area(chart, target, f"within the target of {target.name}")
        for _, alike in groupby(sorted(front, key=_size), key=_size):
            steps = [chart.at(trial) for trial in sorted(alike, key=lambda trial: trial.time)]  # from fast to small
            yield from [poly(stairs(steps, 0.0), STAIRS, closed=False)] * (len(steps) > 1)
        places = [chart.at(trial) for trial in right]
        for at, trial in enumerate(right):
            above = places[at + 1 :].count(places[at])  # what coincides is seen around what lies on it
            mark = _mark(names.index(trial.name), len(names), *places[at], trial in front, 5.5 + 4.0 * above)
            yield Titled(f"{trial.name}\n{_size(trial)}\n{_figures(trial, sweep)}", mark)

    aim = f"; the target of {target.name}: {_figures(target, sweep)}" if target else ""
    best = "; ".join(f"{trial.name}, {_size(trial)}: {_figures(trial, sweep)}" for trial in front[:DESCRIBED])
    best += f"; and {len(front) - DESCRIBED} more" if len(front) > DESCRIBED else ""
    words = f"{TITLE}: {text}{aim}. What no other of the same size beats: {best}."
    legend: list[Meaning] = [(partial(_mark, at, len(names)), name, []) for at, name in enumerate(names[:SHOWN])]
    if len(names) > SHOWN:
        legend.append((lambda *_: together([]), f"and {len(names) - SHOWN} more", []))
    if target:
        legend.append((target_sample, "the target", [_figures(target, sweep)]))
    filled = style(theme.MUTE)
    legend.append((lambda x, y: box(x - 5, y - 5, 10, 10, filled, 5), "filled", ["no other of its size beats it"]))
    return draw_chart(chart_of, sweep, TITLE, text, inside, legend, words, static)


def _target(trials: Sequence[Trial], cost: Cost | None) -> Trial | None:
    """Return the target of the puzzle of these trials, if there is one puzzle, and all have its size and prices."""
    known = [puzzles()[name] for name in dict.fromkeys(trial.name for trial in trials) if name in puzzles()]
    if len(known) != 1 or cost_named(known[0].cost) != (cost or Cost()):
        return None
    size, target = known[0].size, known[0].target
    if any(size.get(name) != value for trial in trials for name, value in trial.size.items()):
        return None
    return trials[0]._replace(name=known[0].name, time=target["time"], memory=target["memory"])


def _mark(number: int, of: int, x: float, y: float, best: bool = True, k: float = 5.5) -> Diagram:
    """Return the mark of a program, with a color and one of four shapes, so that color is not the only difference."""
    color = theme.layer_color(number, max(of, 2))
    how = style(color, theme.CARD, 1) if best else style(theme.CARD, color, 2)
    shapes = (
        None,
        [(x, y - k - 1), (x + k + 1, y), (x, y + k + 1), (x - k - 1, y)],
        [(x, y - k - 1), (x + k + 1, y + k), (x - k - 1, y + k)],
        [(x - k, y - k), (x + k, y - k), (x + k, y + k), (x - k, y + k)],
    )
    shape = shapes[number % len(shapes)]
    return box(x - k, y - k, 2 * k, 2 * k, how, k) if shape is None else poly(shape, how)


def _size(trial: Trial) -> str:
    return ", ".join(f"{name} {value}" for name, value in trial.size.items() if value is not None)


def _figures(trial: Trial, sweep: Sweep) -> str:
    return figures_of(trial._replace(time=sweep.rounded(trial.time)), sweep)
