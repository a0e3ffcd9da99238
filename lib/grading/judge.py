"""The verdict on a function: layout, rules, time and memory at the puzzle's own size and at others."""

from collections.abc import Callable
from dataclasses import replace

from ..basics.errors import Place, PuzzleError, show_call
from ..basics.units import TICKS, at_tick
from ..course.bounds import bounds_of
from ..course.ideas import IDEAS
from ..course.layouts import Size, check_layout
from ..course.sizes import other_sizes, show_size
from ..course.specs import Puzzle, subject_of
from ..learner.model import written
from ..machine.check import TRAINED, check_finals
from ..machine.outcome import Outcome
from ..record.events import MARKS, Event
from ..record.figures.breakdown import idle_of, time_parts
from ..record.figures.chain import chain_of
from ..record.figures.score import memory_parts, peak_event
from ..record.labels import AXES, HOSTS, LISTS, SLICES
from ..record.table import OPERATIONS, in_stream, makes_weight_grads
from ..record.training import BACKWARD, UPDATE
from ..running.limits import collector_off
from .peak import as_json
from .reasons import Reasons, Recording, References, no_references
from .verdict import FAIL, PASS, TODO, Mistake, Verdict

Runs = Callable[[Size], Outcome | None]
"""Runs a function at a size. None: at this other size it does just what was found right before."""
Recorded = Callable[[Size], Recording | None]
"""Returns what the run at a size has called, or None where that is not known."""


def judge(
    puzzle: Puzzle,
    run: Runs,
    recorded: Recorded = lambda size: None,
    references: References = no_references,
    source: Callable[[], str] = str,
) -> Verdict:
    """Return the verdict on the outcomes of ``run(size)``. A PuzzleError that it raises is a FAIL. ``recorded``,
    ``references`` and ``source`` are what the verdict is explained with: the recordings of these runs, right ones, and
    the text of the program, as far as it is known."""
    with collector_off(cycles=True):
        return _judged(puzzle, run, lambda size: Reasons(puzzle, size, recorded(size), references, source()))


def _judged(puzzle: Puzzle, run: Runs, reasons: Callable[[Size], Reasons]) -> Verdict:
    verdict = Verdict(puzzle, FAIL, "")
    try:
        outcome = run(puzzle.size)
        assert outcome is not None
        if not outcome.attempted:
            begun = any(event.kind != MARKS[-1] for event in outcome.events)
            left = f"not finished yet: {comes_next(outcome)}" if begun else "not attempted yet"
            known = reasons(puzzle.size)
            return Verdict(puzzle, TODO, left, explanation=known.of_text(), note=known.trouble)
        parts = time_parts(*outcome.shares, outcome.time)
        idle = float(idle_of(parts))
        time, memory = puzzle.scored(outcome.time, outcome.memory)
        verdict = replace(verdict, time=time, memory=memory, idle=idle, parts=parts)
        check(outcome, puzzle, puzzle.size)
    except PuzzleError as error:
        return _failed(verdict, error, outcome if verdict.time is not None else None, reasons(puzzle.size))
    if over := over_target(outcome, puzzle):
        return _explained(replace(verdict, message=over, right=True), outcome, reasons(puzzle.size))
    for size in other_sizes(puzzle.other_sizes, puzzle.size):  # right or wrong: time and memory count at its own
        outcome_there = None
        try:
            if (outcome_there := run(size)) is not None:
                check(outcome_there, puzzle, size)
        except PuzzleError as error:
            there = replace(verdict, failed_at=show_size(size))
            return _failed(there, error, outcome_there, reasons(size))
        verdict = replace(verdict, held_at=(*verdict.held_at, show_size(size)))
    return replace(verdict, status=PASS, right=True, message=praise(outcome, puzzle))


def _failed(verdict: Verdict, error: PuzzleError, outcome: Outcome | None, reasons: Reasons) -> Verdict:
    """Return the verdict on a run that is wrong. ``outcome``: of one that has come to its end."""
    if outcome is not None:
        reasons.find_line(error, outcome)
    explanation = reasons.explanation(error)
    error = in_unit(error, verdict.puzzle)
    message = f"right at its own size, but not with {verdict.failed_at}\n{error}" if verdict.failed_at else str(error)
    verdict = replace(verdict, message=message, error=Mistake.of(error), right=False)
    return replace(verdict, explanation=explanation, note=reasons.trouble)


def _explained(verdict: Verdict, outcome: Outcome, reasons: Reasons) -> Verdict:
    """Return the verdict on a right run over the target with its longest chain, if it is slow, with what it holds at
    its peak, if it is large, and with what it does otherwise than the target's program."""
    puzzle = verdict.puzzle
    verdict = replace(verdict, explanation=reasons.explanation(None), note=reasons.trouble)
    if verdict.time is not None and verdict.time > puzzle.target["time"]:
        verdict = replace(verdict, chain=chain_of(outcome.events).describe(puzzle.unit))
    if verdict.memory is not None and verdict.memory > puzzle.target["memory"]:
        outcome.peak = reasons.peak(outcome)
        verdict = replace(verdict, peak_memory=outcome.memory, peak=as_json(outcome))
    return verdict


def check(outcome: Outcome, puzzle: Puzzle, size: Size, proved: bool = False) -> None:
    """Check everything but time and memory, and not the final weights again if they are ``proved``. Raise PuzzleError
    if something is wrong."""
    if not outcome.attempted:
        raise PuzzleError("no operation was run", line="")
    if half_done := comes_next(outcome):
        raise PuzzleError("not_finished", line="", next=half_done)
    check_features(outcome, puzzle)
    if not proved:
        check_finals(outcome.final_states, size.get("train", TRAINED[0]))
    updates = {(event.rank, event.layer) for event in outcome.events if event.kind == UPDATE.kind}
    check_layout(puzzle.layout, size, outcome.final_states, updates)
    for name in puzzle.ideas:
        IDEAS[name].check(outcome)


FEATURE_NAMES = {
    SLICES: "slices of activations",
    LISTS: "lists of tensors in one call",
    HOSTS: "hosts",
    AXES: "collectives over several axes at once",
}
"""The names of features that are not keywords or operations."""


def in_unit(error: PuzzleError, puzzle: Puzzle) -> PuzzleError:
    """Return the error of a rule, which says a moment in ticks, with that moment in the puzzle's own unit."""
    place = getattr(error, "place", None)  # a learner's class of errors may have none
    if puzzle.unit is not TICKS and place and place.tick is not None and place.detail == at_tick(place.tick):
        error.place = place._replace(detail=f"at {puzzle.unit.at(puzzle.unit.brief(place.tick))}")
    return error


def check_features(outcome: Outcome, puzzle: Puzzle) -> None:
    """Raise PuzzleError for a feature (an operation or an option) that the puzzle does not grant."""
    for event in outcome.distinct:
        for feature in event.words:
            if feature not in puzzle.words:
                raise _not_granted(event, feature, puzzle)


def _not_granted(event: Event, feature: str, puzzle: Puzzle) -> PuzzleError:
    """Return the error of an operation with a feature that the puzzle does not grant."""
    subject, when = subject_of(feature), puzzle.unit.brief(event.issued)
    about = f", which is the subject of puzzle {subject.number}" if subject else ""
    place = Place(event.rank, event.kind, event.layer, tick=event.issued, detail=f"at {puzzle.unit.at(when)}")
    name = FEATURE_NAMES.get(feature, f"`{feature}`")
    return PuzzleError("not_granted", where=place, line="", number=puzzle.number, feature=name, about=about)


def comes_next(outcome: Outcome) -> str:
    """Return the next step of a function that stops half-way, or an empty text if it has all steps of training."""
    steps = ["load_weights", "get_activation", *(kind for kind in in_stream("compute") if not OPERATIONS[kind].words)]
    done = {event.kind for event in outcome.distinct}
    done |= {BACKWARD.kind} if any(makes_weight_grads(kind) for kind in done) else set()
    left = [step for step in steps if step not in done]
    if not left or any(step in done for step in steps[steps.index(left[0]) :]):
        return ""
    so_far = f"after {steps[steps.index(left[0]) - 1]}" if left[0] != steps[0] else "first of all"
    return f"{so_far} comes {written(left[0])}"


def over_target(outcome: Outcome, puzzle: Puzzle) -> str:
    """Return a sentence on a right run that is too slow or too large, or an empty text."""
    target, over = puzzle.target, []
    time, memory = puzzle.scored(outcome.time, outcome.memory)
    own, most = puzzle.describe(time, memory), puzzle.brief(target["time"], target["memory"])
    if time > target["time"]:
        over.append(f"{own[0]}, target {most[0]}")
    if memory > target["memory"]:
        over.append(f"{own[1]}, target {most[1]} ({_peak(outcome, puzzle)})")
    return "Correct, but over the target: " + "; ".join(over) if over else ""


def _peak(outcome: Outcome, puzzle: Puzzle) -> str:
    """Return where memory is highest, and what is stored there."""
    event = peak_event(outcome.device_events)
    assert event is not None  # there is none over a target
    what, unit, size_unit = show_call(event.kind, event.layers or event.layer), puzzle.unit, puzzle.size_unit
    held = ", ".join(f"{kind.replace('_', ' ')} {size_unit.show(size)}" for kind, size in memory_parts(event).items())
    return f"on rank {event.rank} at {unit.at(unit.brief(event.issued))}, when {what} began: {held}"


def praise(outcome: Outcome, puzzle: Puzzle) -> str:
    """Return the praise for a pass: the star or what is missing for it, and the comparison with the best known."""
    time, memory = puzzle.scored(outcome.time, outcome.memory)
    star = puzzle.star
    said = ["Correct, and the star is yours." if puzzle.has_star(time, memory) else "Correct, within the target."]
    if star:
        ticks, elements = round(time - star["time"], 9), memory - star["memory"]
        missing = [puzzle.unit.lasting(ticks)] if ticks > 0 else []
        missing += [puzzle.size_unit.describe(elements)] if elements > 0 else []
        said += [f"For the star, save another {' and '.join(missing)}."] if missing else []
    bound = bounds_of(puzzle)
    said += [met] if bound and (met := bound.praise(time)) else []
    if (time, memory) in [(point["time"], point["memory"]) for point in puzzle.frontier]:
        said.append("These figures are among the best known.")
    elif puzzle.beats_all(time, memory):
        said.append("Better than the best known: nothing that we know is as fast in so little memory!")
    return " ".join(said)
