"""A search for pipelines that are faster, or smaller: what it has found, what it costs, and what cannot be beaten."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from random import Random

from ..basics.arguments import describe, one_of_names, whole_number
from ..basics.columns import in_columns
from ..basics.errors import PuzzleError
from ..basics.units import Elements
from ..machine.cost import Cost
from ..record.figures.score import idle_share
from ..running.run import Run, run
from ..schedules.figures import as_text
from ..schedules.moves import look
from ..schedules.program import AWAITED, Schedule, schedule
from ..schedules.task import PLACEMENTS, Rows, Task
from .sweep import Sweep, Trial, show_progress

WHOLE = 5
"""Of so many rows that are tried, one has whole backwards only, though halves are allowed."""


@dataclass(frozen=True)
class Found:
    """A schedule whose ranks hold at most ``cap``, its ``run``, and what no such schedule is faster than: ``bound``."""

    schedule: Schedule
    run: Run
    cap: Elements | None
    bound: float

    @property
    def gap(self) -> float:
        """How much longer it takes than the bound, as a part of the bound."""
        return self.run.time / self.bound - 1


class Search(Sweep):
    """The result of a search: ``found`` has a schedule for each cap of memory, the fastest first. It shows itself as a
    table with bounds, and in a notebook as a chart of time and memory."""

    def __init__(self, found: Sequence[Found], cost: Cost) -> None:
        self.found = sorted(found, key=lambda one: (one.run.time, one.run.memory))
        trials = []
        for one in self.found:
            plan, idle = one.schedule, idle_share(one.run.events, one.run.ranks, one.run.time)
            size = {**plan.sizes, "mesh": None, "node_size": None, "experts": None}
            trials.append(Trial(plan.__name__, size, one.run.time, one.run.memory, idle))
        super().__init__(trials, cost)

    @property
    def schedule(self) -> Schedule:
        """The fastest schedule."""
        return self.found[0].schedule

    def __str__(self) -> str:
        heads = ("schedule", "cap", self.size_unit.name, self.unit.name, "bound", "above it")
        lines = [
            (
                one.schedule.__name__,
                "none" if one.cap is None else self.size_unit.show(one.cap),
                self.size_unit.show(one.run.memory),
                self.unit.brief(self.rounded(one.run.time)),
                self.unit.brief(self.rounded(one.bound)),
                f"{one.gap:.1%}",
            )
            for one in self.found
        ]
        return "\n".join(in_columns([heads, *lines], figures=(1, 2, 3, 4, 5)))

    __repr__ = __str__


def search(
    placement: str = "line",
    *,
    ranks: int = 4,
    batches: int = 8,
    cost: Cost | None = None,
    memory: Elements | Iterable[Elements] | None = None,
    halves: bool = True,
    tries: int = 5000,
    seed: int = 0,
) -> Search:
    """Looks for fast pipeline schedules in little memory: in which order each rank does its forwards and backwards.

    ``placement``: ``"line"`` is one stage on each rank; ``"ring"`` two, the second ones dealt in the same order;
    ``"v"`` two, the second ones dealt in the opposite order. A stage is one layer. ``memory``: how many elements a rank
    may hold at most, or several such caps, each of which is looked at; None for no cap. ``halves``: whether a backward
    may be done in two halves, I and W. ``tries``: rows that are tried for each cap, about a thousand in a second;
    ``seed``: of what is drawn at random. A result is sent as soon as it is made, or later, if others should go first:
    a rank sends one message after the other. It is received where it is read, or as soon as it is sent, for the whole
    schedule whichever is faster.

    Each schedule that is found is a ``Schedule`` and has run on the machine. A bound of its time is proved for all
    schedules in that memory; the search proves nothing, so what lies between is open. Raises PuzzleError for a cap
    within which it finds none.
    """
    one_of_names("placement", placement, tuple(PLACEMENTS))
    ranks, batches = whole_number("ranks", ranks), whole_number("batches", batches)
    tries = whole_number("tries", tries)
    prices = Cost() if cost is None else cost
    caps = [memory] if memory is None or isinstance(memory, (int, Fraction)) else memory
    if not isinstance(caps, Iterable) or not (caps := [*caps]) or not all(map(_is_cap, caps)):
        expected = "a number, or several: memory=[2_500_000, 3_000_000]"
        raise PuzzleError("a cap is a number of elements", where="search", expected=expected, got=describe(memory))
    found: list[Found] = []
    known: list[Rows] = []  # what holds little may be the best of what may hold more
    for at, cap in enumerate(sorted(caps, key=lambda cap: math.inf if cap is None else cap)):
        task = Task(placement, ranks, batches, prices, halves, cap)
        if halves:  # whole backwards hold less, which may be all that fits
            known += _with_whole_backwards(task, tries // WHOLE, seed)
        rows = look(task, tries, Random(seed), partial(_progress, len(caps) * tries, at * tries), known)
        known.append(rows)
        found.append(_run(task, rows))
    _progress(1, 0, 1)
    return Search(found, prices)


def _with_whole_backwards(task: Task, tries: int, seed: int) -> list[Rows]:
    """Return the best rows without halves of backwards, if any were found that hold as little as they may."""
    whole = Task(task.placement, task.ranks, task.batches, task.cost, False, task.cap)
    try:
        return [look(whole, tries, Random(seed), lambda done: None)]
    except PuzzleError:
        return []


def _is_cap(cap: object) -> bool:
    return cap is None or (isinstance(cap, (int, Fraction)) and not isinstance(cap, bool) and cap > 0)


def _run(task: Task, rows: Rows) -> Found:
    """Run rows that were found, and receive at once or at use, whatever is faster within the cap."""
    done: list[tuple[float, Elements, int, Found]] = []
    for receives in AWAITED:
        plan = schedule(as_text(rows), receives)
        plan.__name__ = task.placement + ("" if task.cap is None else f" in {task.cost.size_unit.show(task.cap)}")
        ran = run(plan, plan.ranks, plan.stages, plan.micro_batches, cost=task.cost, timeout=None)
        if receives == "at once" or task.cap is None or ran.memory <= task.cap:
            done.append((ran.time, ran.memory, len(done), Found(plan, ran, task.cap, float(task.bound()))))
    return min(done)[-1]


def _progress(total: int, before: int, more: int) -> None:
    """Show a progress line now and then; erase it at the end."""
    if not (done := before + more) % 100 or done >= total:
        show_progress(done, total, "schedules")
