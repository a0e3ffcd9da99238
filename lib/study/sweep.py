"""Many runs at once: several programs at many sizes, as a table of time and memory."""

import csv
import io
import itertools
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple

from ..basics.arguments import describe, whole_number
from ..basics.columns import in_columns
from ..basics.errors import COLUMNS, PuzzleError
from ..basics.units import TICKS, Elements
from ..machine.check import TRAINED
from ..machine.cost import Cost
from ..record.figures.score import idle_share
from ..running.execution import name_of
from ..running.run import check_function, run

SIZES = ("ranks", "layers", "batches", "mesh", "node_size", "experts")
MOST = 2000  # runs of a sweep
BAR = 30  # characters of the progress bar
BOX = "max-height:24em;overflow:auto;margin-top:8px"
CELL = "white-space:nowrap;padding:2px 12px 2px 4px;font-variant-numeric:tabular-nums"
SAYS = "text-align:left;padding:2px 4px;white-space:normal;overflow-wrap:break-word;min-width:14em"
"""The looks of the table, of a figure in it, and of its last column."""


def beats(one: tuple[float, Elements], other: tuple[float, Elements]) -> bool:
    """Return whether one pair of time and memory is at least as good as another in both, and not the same."""
    return one != other and one[0] <= other[0] and one[1] <= other[1]


class Trial(NamedTuple):
    """A program at one size. With an ``error``, which says what is wrong, time and memory have no meaning."""

    name: str
    size: dict[str, Any]
    time: float = 0.0
    memory: Elements = 0
    idle: float = 0.0
    error: str = ""

    @property
    def figures(self) -> tuple[float, Elements]:
        """Time and memory."""
        return self.time, self.memory


class Sweep:
    """The result of a sweep: ``trials``, in the order of sizes and programs, at the prices of ``cost`` (None: the
    default ones), which also gives the units of times and sizes. It shows itself as a table."""

    def __init__(self, trials: Sequence[Trial], cost: Cost | None = None) -> None:
        self.trials, self.cost = list(trials), cost
        prices = Cost() if cost is None else cost
        self.unit, self.size_unit = prices.time_unit, prices.size_unit

    def front(self) -> list[Trial]:
        """Return the right trials that no other one of the same size beats in time and memory: the Pareto front."""
        right = [trial for trial in self.trials if not trial.error]
        return [
            trial
            for trial in right
            if not any(other.size == trial.size and beats(other.figures, trial.figures) for other in right)
        ]

    def rounded(self, time: float) -> float:
        """Return a time for people to read, in hundredths of a tick. (Other units are rounded where they are shown.)"""
        return round(time, 2) if self.unit is TICKS else time

    def rows(self) -> list[tuple[str, ...]]:
        """Return program, size, time, memory, idle share, and a mark for those on the front, as rounded texts."""
        front, shown = self.front(), list[tuple[str, ...]]()
        for trial in self.trials:
            size = ", ".join(f"{name} {describe(value)}" for name, value in trial.size.items() if value is not None)
            figures = (
                self.unit.brief(self.rounded(trial.time)),
                self.size_unit.show(trial.memory),
                f"{100 * trial.idle:.0f}%",
            )
            mark = trial.error or "front" * (trial in front)
            shown.append((trial.name, size, *(figures if not trial.error else ("", "", "")), mark))
        return shown

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all trials as a .csv file."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["program", *SIZES, self.unit.name, self.size_unit.name, "bubble", "front", "error"])
            front = self.front()
            for trial in self.trials:
                sizes = ["" if trial.size[name] is None else trial.size[name] for name in SIZES]
                memory = int(trial.memory) if trial.memory == int(trial.memory) else float(trial.memory)
                figures = [trial.time, memory, round(trial.idle, 4)] if not trial.error else ["", "", ""]
                table.writerow([trial.name, *sizes, *figures, int(trial in front), trial.error])

    def heads(self) -> tuple[str, ...]:
        """Return the names of the columns; the last one, which says what is wrong, has none."""
        return ("program", "size", self.unit.name, self.size_unit.name, "bubble", "")

    def __str__(self) -> str:
        lines = in_columns([self.heads(), *self.rows()], figures=(2, 3, 4))
        return "\n".join(part for line in lines for part in wrap(line, COLUMNS, subsequent_indent="    "))

    def html(self) -> str:
        """Return all trials as an HTML table, scrolled in its own box, with a column for each size that is given."""
        sizes = [name for name in SIZES if any(trial.size.get(name) is not None for trial in self.trials)]
        heads = ["program", *sizes, self.unit.name, self.size_unit.name, "bubble", ""]
        head = "".join(
            f'<th scope="col" style="{CELL};text-align:{"right" if at else "left"};position:sticky;top:0">'
            f"{escape(name)}</th>"
            for at, name in enumerate(heads)
        )
        body = ""
        for trial, row in zip(self.trials, self.rows(), strict=True):
            given = ["" if (value := trial.size.get(name)) is None else describe(value) for name in sizes]
            *figures, mark = row[2:]
            cells = "".join(f'<td style="{CELL};text-align:right">{escape(one)}</td>' for one in [*given, *figures])
            mark_cell = f'<td style="{SAYS}">{escape(mark)}</td>'
            body += f'<tr><th scope="row" style="{CELL};text-align:left">{escape(row[0])}</th>{cells}{mark_cell}</tr>'
        how = 'tabindex="0" role="region" aria-label="All runs of the sweep"'
        return f'<div style="{BOX}" {how}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

    __repr__ = __str__


Varied = object
"""One size, several sizes, or a function from the number of ranks to these."""


def sweep(
    programs: Iterable[Callable[[Any], object]],
    *,
    ranks: Varied = 4,
    layers: Varied = 6,
    batches: Varied = lambda ranks: ranks,
    mesh: Varied = None,
    node_size: Varied = None,
    experts: Varied = None,
    cost: Cost | None = None,
    timeout: float = 10.0,
    processes: int | None = None,
    train: str = TRAINED[0],
) -> Sweep:
    """Runs several programs at several sizes, and compares their time and memory.

    Every argument of a size is one value, or a list of values to be tried, or a function of the number of ranks:
    ``sweep([ddp, fsdp], ranks=[4, 8, 16], batches=lambda ranks: 2 * ranks)``. Every program runs at every combination,
    with what is wrong with it in its row. ``timeout``: seconds for each run; ``processes``: how many runs at a time (as
    many as there are processors, where the system can fork). ``experts``: how many every other layer has, from layer 1
    on (see run). ``train``: what they train (see run). Raises PuzzleError for what is not a function, and for more than
    2,000 runs.
    """
    if callable(programs):
        programs = [programs]
    functions = [*programs]
    for fn in functions:
        check_function(fn)
    sizes = _sizes(ranks, layers, batches, mesh, node_size, experts)
    tasks = [(at, size) for size in sizes for at in range(len(functions))]
    if not tasks or len(tasks) > MOST:
        raise PuzzleError(f"a sweep is of 1 to {MOST:,} runs", where="sweep", got=f"{len(tasks):,}")
    how = {"cost": cost, "timeout": timeout, "train": train}
    several = os.cpu_count() or 1 if processes is None else whole_number("processes", processes)
    if several > 1 and len(tasks) > 1 and "fork" in multiprocessing.get_all_start_methods() and sys.platform == "linux":
        return Sweep(_side_by_side(functions, tasks, how, several), cost)
    trials = []
    for at, size in tasks:
        trials.append(_trial(functions[at], size, how))
        show_progress(len(trials), len(tasks))
    return Sweep(trials, cost)


def _sizes(ranks: Varied, *others: Varied) -> list[dict[str, Any]]:
    """Return all combinations, as arguments of ``run``, the number of ranks varying slowest."""
    sizes = [(n, *rest) for n in _values(ranks, 0) for rest in itertools.product(*(_values(one, n) for one in others))]
    return [dict(zip(SIZES, size, strict=True)) for size in sizes]


def _values(given: Varied, ranks: Any) -> list[Any]:
    if callable(given):
        given = given(ranks)
    several = isinstance(given, Iterable) and not isinstance(given, (str, Mapping))
    return list(given) if several else [given]  # type: ignore[call-overload]


def _trial(fn: Callable[[Any], object], size: dict[str, Any], how: Mapping[str, Any]) -> Trial:
    name = name_of(fn)
    try:
        with redirect_stdout(io.StringIO()):  # of many runs at a time nobody could read what they print
            done = run(fn, **{**size, "experts": size["experts"] or 0, **how})
        done.verify()
    except PuzzleError as error:
        return Trial(name, size, error=str(error).split("\n", 1)[0])
    return Trial(name, size, done.time, done.memory, idle_share(*done.shares, done.time))


_shared: list[Any] = []  # filled in forked processes, to which functions of a notebook cannot be sent


def _side_by_side(
    functions: Sequence[Callable[[Any], object]], tasks: Sequence[Any], how: Mapping[str, Any], several: int
) -> list[Trial]:
    """Return the trials of all tasks, in order, carried out by so many processes at a time."""
    fork = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: of forks where there are threads
        with ProcessPoolExecutor(several, fork, _shared.extend, ((functions, how),)) as pool:
            waiting: list[Future[Trial]] = [pool.submit(_trial_in_fork, *task) for task in tasks]
            try:
                for count, _ in enumerate(as_completed(waiting), 1):
                    show_progress(count, len(tasks))
                return [one.result() for one in waiting]
            finally:  # after an interrupt no more is begun
                pool.shutdown(wait=False, cancel_futures=True)


def _trial_in_fork(at: int, size: dict[str, Any]) -> Trial:
    functions, how = _shared
    return _trial(functions[at], size, how)


def show_progress(count: int, total: int, what: str = "runs") -> None:
    """Show a progress line; erase it at the end. Where nobody watches, print nothing."""
    if not sys.stdout.isatty() and "ipykernel" not in sys.modules:
        return
    bar = f"[{'#' * (BAR * count // total):{BAR}}] {count:,} of {total:,} {what}"
    print(f"\r{bar}" if count < total else f"\r{' ' * len(bar)}\r", end="", flush=True)
