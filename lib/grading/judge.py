"""Right or not: at the puzzle's own size and at others, with the layout, form, time and memory that it asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random, SystemRandom

from ..basics.errors import PuzzleError, show_call
from ..basics.units import show_elements, show_ticks
from ..course.layouts import SIZES, Size, check_layout, show_size
from ..course.rules import RULES
from ..course.specs import Puzzle
from ..machine.check import check_finals
from ..machine.outcome import Outcome
from ..record.kinds import MEMORY_KINDS
from ..record.score import idle_share, peak_event
from .verdict import FAIL, PASS, TODO, Mistake, Verdict

OTHER_SIZES = 3  # sizes besides the puzzle's own at which an attempt has to hold, if there are so many
DRAWS = 20  # so often are they drawn, to find some that are larger and some that are smaller


def new_seed() -> int:
    """A seed that nobody can know beforehand."""
    return SystemRandom().randrange(1_000_000)


def judge(puzzle: Puzzle, run: Callable[[Size], Outcome], seed: int) -> Verdict:
    """The verdict on what ``run(size)`` runs. It may raise PuzzleError, which is a FAIL."""
    verdict = Verdict(puzzle, FAIL, "", seed=seed)
    try:
        outcome = run(puzzle.size)
        if not outcome.attempted:
            return Verdict(puzzle, TODO, "not attempted yet")
        idle = idle_share(outcome.events, outcome.ranks)
        verdict = replace(verdict, time=outcome.time, memory=outcome.memory, idle=idle)
        check(outcome, puzzle, puzzle.size)
    except PuzzleError as error:
        return replace(verdict, message=str(error), error=Mistake.of(error), right=False, seed=None)
    if over := over_target(outcome, puzzle):
        return replace(verdict, message=over, right=True, seed=None)
    for size in other_sizes(puzzle, seed):
        try:
            check(run(size), puzzle, size)
        except PuzzleError as error:
            message = f"right at its own size, but not with {show_size(size)}\n{error}"
            wrong = Mistake.of(error)
            return replace(verdict, message=message, error=wrong, right=False, failed_at=show_size(size))
        verdict = replace(verdict, held_at=(*verdict.held_at, show_size(size)))
    return replace(verdict, status=PASS, right=True, message=praise(outcome, puzzle))


def check(outcome: Outcome, puzzle: Puzzle, size: Size) -> None:
    """Everything but time and memory. Raises PuzzleError."""
    if not outcome.attempted:
        raise PuzzleError("no operation was run", line="")
    check_finals(outcome.final_states)
    check_layout(puzzle.layout, size, outcome.final_states)
    for rule in puzzle.rules:
        RULES[rule](outcome.events, size["layers"])


def other_sizes(puzzle: Puzzle, seed: int) -> list[Size]:
    """Sizes drawn at random, none twice: of many draws one that goes far from the puzzle's own size in every way."""
    random = Random(seed)
    draws = [_draw(puzzle, random) for _ in range(DRAWS)]
    return max(draws, key=lambda sizes: len(_ways(puzzle.size, sizes)))


def _draw(puzzle: Puzzle, random: Random) -> list[Size]:
    sizes = [puzzle.size]
    for _ in range(5 * OTHER_SIZES):
        size = SIZES[puzzle.other_sizes](puzzle.size, random)
        if size not in sizes and len(sizes) <= OTHER_SIZES:
            sizes.append(size)
    return sizes[1:]


def _ways(own: Size, sizes: list[Size]) -> set[tuple[str, bool]]:
    """What varies, and whether upwards: more ranks, fewer ranks, more layers ..."""
    flat = [{**size, **(size.get("mesh") or {}), "mesh": 0} for size in (own, *sizes)]
    return {(key, size[key] > flat[0][key]) for size in flat for key in size if size[key] != flat[0][key]}


def over_target(outcome: Outcome, puzzle: Puzzle) -> str:
    """What is right but too slow or too big, and by how much."""
    target = puzzle.target
    over = []
    if outcome.time > target["time"]:
        over.append(f"{show_ticks(outcome.time)} ticks, target {show_ticks(target['time'])}")
    if outcome.memory > target["memory"]:
        own, most = show_elements(outcome.memory), show_elements(target["memory"])
        over.append(f"{own} elements, target {most} ({_peak(outcome)})")
    return "Correct, but over the target: " + "; ".join(over) if over else ""


def _peak(outcome: Outcome) -> str:
    """Where memory is highest, and what it is."""
    event = peak_event(outcome.events)
    assert event is not None  # there is none over a target
    what = show_call(event.kind, event.layer)
    parts = zip(MEMORY_KINDS, event.held, strict=True)
    held = ", ".join(f"{kind.replace('_', ' ')} {show_elements(size)}" for kind, size in parts if size)
    return f"on rank {event.rank} at tick {show_ticks(event.issued)}, when {what} began: {held}"


def praise(outcome: Outcome, puzzle: Puzzle) -> str:
    """How good it is."""
    best = puzzle.best_known
    faster, smaller = outcome.time < best["time"], outcome.memory < best["memory"]
    if outcome.time <= best["time"] and outcome.memory <= best["memory"]:
        better = faster or smaller
        return "Correct, and better than the best known!" if better else "Correct, and as good as the best known."
    praised = ", and faster than the best known" if faster else ", and smaller than the best known" if smaller else ""
    return f"Correct, within the target{praised}."
