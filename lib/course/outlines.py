"""What lib keeps of the solutions, which are not in lib. The build makes it by running them (solutions/build/tables).

``OUTLINES`` has what a learner may see before solving the puzzle: half of a schedule, the busy times of the ranks, a
small silhouette. ``PROGRAMS`` has what is secret: the outline of the program with the star. Only a grader reads that:
no code that is graded at a shell can, and an agent does not get it (see THREATS.md). Without the file all works.
Whatever else is secret belongs into its folder.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..basics.errors import PuzzleError
from ..basics.units import MS, Elements
from ..record.events import Event
from ..running.run import Run
from .layouts import Size, mesh_of
from .specs import Puzzle, cost_named, cost_source, find, kept

OUTLINES, PROGRAMS = "outlines.json", "secret/programs.json"
"""The two tables, in lib."""

Span = tuple[float, float]  # (start, end) in ticks


CELLS = 48
"""The number of cells in a row of a silhouette."""
FORWARD, BACKWARD, OTHER, TALK, IDLE = "FBUC."
"""The letters of a silhouette: forward, backward, other compute, communication alone, and idle."""


class HalfSchedule(NamedTuple):
    """The first half of a schedule, or less of a long one, without memory: the events of ``ranks`` until ``until``, in
    a run that takes ``time``. The number of ``others`` counts ranks that do the same at the same time."""

    events: Sequence[Event]
    until: float
    time: float
    ranks: Sequence[int]
    others: int


class Outline(NamedTuple):
    """The busy times of each rank, without its operations, and the memory of the rank with the highest peak. ``time``
    is that of the whole run, in ticks."""

    compute: Mapping[int, Sequence[Span]]  # for each rank the spans in which it computes
    busy: Mapping[int, Sequence[Span]]  # for each rank the spans in which it computes or communicates
    time: float
    fullest: int  # the rank with the highest peak
    memory: Sequence[tuple[float, Elements]]  # its memory from which tick on, in elements


def half_schedule(puzzle: Puzzle) -> HalfSchedule:
    """Return half of the schedule of a puzzle's solution."""
    table = kept(OUTLINES)[puzzle.name]["sketch"]
    everyone = range(mesh_of(puzzle.size).everyone)
    ranks = table.get("ranks", everyone)
    # every rank has a row, even if it is always idle
    events = [Event(rank, "load_weights", None, frozenset(), 0.0, 0.0, 0.0, ()) for rank in ranks]
    events += [
        Event(
            *(rank, kind, layer, frozenset(batches), start, start, end, (), op and tuple(op), tuple(group)),
            layers=tuple(layers),
        )
        for rank, kind, layer, batches, start, end, op, group, *layers in table["events"]
    ]
    return HalfSchedule(events, table["until"], table["time"], ranks, len(everyone) - len(ranks))


class SolutionFigures(NamedTuple):
    """A size, and the time and memory of the solution at that size."""

    size: Size
    time: float
    memory: float


def solution_figures(puzzle: Puzzle) -> SolutionFigures:
    """Return the time and memory of the solution at the puzzle's own size."""
    return SolutionFigures(puzzle.size, *kept(OUTLINES)[puzzle.name]["at_home"])


def programs() -> Mapping[str, Any]:
    """Return what is secret, by puzzle: nothing where it is not to be read."""
    try:
        return kept(PROGRAMS)
    except OSError:
        return {}


def is_known(puzzle: Puzzle) -> bool:
    """Return whether the program with the star of a puzzle is known here."""
    return "star" in programs().get(puzzle.name, {})


def outline(puzzle: Puzzle, goal: str = "target") -> Outline:
    """Return the outline of the program that reaches a goal, "target" or "star". That of a star is secret: raise
    PuzzleError where it is not to be read."""
    table = kept(OUTLINES)[puzzle.name]["target"]["outline"]
    if goal != "target":
        if not is_known(puzzle):
            raise PuzzleError(f"the outline of the {goal} of {puzzle.name} is not here", line="")
        table = programs()[puzzle.name][goal]["outline"]
    compute, busy = (
        {rank: [(start, end) for start, end in spans] for ranks, spans in table[key] for rank in ranks}
        for key in ("compute", "busy")
    )
    return Outline(compute, busy, table["time"], table["fullest"], [(at, held) for at, held in table["memory"]])


def silhouette(puzzle: Puzzle) -> list[str]:
    """Return a text of CELLS letters for each rank of a puzzle's solution: what fills most of each cell of time."""
    return list(kept(OUTLINES)[puzzle.name]["silhouette"])


def comparable_puzzle(source: Run, name: str | None, where: str) -> Puzzle:
    """Return the puzzle beside whose target a run can stand: that of its function, or the one of this name. Raise
    PuzzleError, for the function ``where`` this is asked, if the run has another size, unit, or other prices."""
    spec, error = find(source.name if name is None else name), partial(PuzzleError, where=where)
    prices = f"cost={cost_source(spec.cost)}"
    if source.unit is not spec.unit:
        measured = f"{where}(run), not {where}(run.measured)"
        expected = measured if source.unit is MS else f"a run at the puzzle's own prices, {prices}"
        raise error(f"the target is in {spec.unit.name}, and this run is in {source.unit.name}", expected=expected)
    sizes = spec.size, source.size
    if sizes[0] != sizes[1]:
        expected, got = (", ".join(f"{name}={value!r}" for name, value in size.items()) for size in sizes)
        raise error(f"the target of {spec.name} is for another size", expected=expected, got=got)
    if source.cost != cost_named(spec.cost):
        raise error(f"the target of {spec.name} is for other prices", expected=prices)
    return spec
