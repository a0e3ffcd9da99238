"""The verdict on a function: layout, rules, time and memory at the puzzle's own size and at others."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from ..basics.errors import OutOfTime, Place, PuzzleError, show_axis, show_call
from ..basics.units import TICKS, at_tick
from ..course.bounds import bounds_of
from ..course.ideas import IDEAS
from ..course.layouts import Size, check_layout
from ..course.sizes import other_sizes, show_size
from ..course.specs import Puzzle, subject_of
from ..learner.model import written
from ..machine.check import TRAINED, check_finals
from ..machine.outcome import Outcome
from ..record.attention import PROJECT
from ..record.collectives import ALLGATHER
from ..record.events import MARKS, Event
from ..record.figures.breakdown import idle_of, time_parts
from ..record.figures.chain import chain_of
from ..record.figures.score import memory_parts, peak_event
from ..record.labels import AXES, HOSTS, LISTS, SLICES
from ..record.table import OPERATIONS, in_stream, makes_weight_grads
from ..record.training import BACKWARD, FORWARD, UPDATE
from ..running.limits import collector_off
from .advice.events import never_set, not_waited_for
from .advice.holding import (
    TASKS_GO_ON,
    costs_memory,
    spare_in_words,
)
from .advice.holding import as_json as peak_as_json
from .advice.ordering import Ordering, passes_left
from .advice.slips import ends_under_a_condition, from_its_text
from .advice.slowness import Slowness, run_twice
from .advice.sources import (
    asks_again,
    begun_late,
    below_a_rank,
    dropped_by_a_deque,
    in_tasks,
    never_awaited,
    no_share,
    not_reached,
    one_for_several,
    one_layer_only,
    stored_in_a_task,
    sums_later,
    written_out,
)
from .verdict import FAIL, PASS, TODO, Mistake, Verdict

Watch = Callable[[Size, int], Outcome]
"""Runs a function again at a size, with notes on the tensors of a rank (see ``machine.lives``)."""


Rerun = Callable[[Size], Outcome | None]
"""Runs a function at a size. None: at this other size it does just what was found right before."""


def judge(puzzle: Puzzle, run: Rerun, watch: Watch | None = None, source: Callable[[], str] = lambda: "") -> Verdict:
    """Return the verdict on the outcomes of ``run(size)``. A PuzzleError that it raises is a FAIL.
    ``watch(size, rank)`` gives the outcome again with notes on the tensors of a rank (see ``machine.lives``);
    ``source()`` the program's text, if it is known."""
    with collector_off(cycles=True):
        return _judged(puzzle, run, watch, Verdict(puzzle, FAIL, ""), cache(source))


def _judged(
    puzzle: Puzzle,
    run: Rerun,
    watch: Watch | None,
    verdict: Verdict,
    source: Callable[[], str],
) -> Verdict:
    try:
        outcome = run(puzzle.size)
        assert outcome is not None
        if not outcome.attempted:
            begun = any(event.kind != MARKS[-1] for event in outcome.events)
            left = f"not finished yet: {comes_next(outcome)}" if begun else "not attempted yet"
            return Verdict(puzzle, TODO, "; ".join(filter(None, [left, never_awaited(source())])))
        parts = time_parts(*outcome.shares, outcome.time)
        idle = float(idle_of(parts))
        time, memory = puzzle.scored(outcome.time, outcome.memory)
        verdict = replace(verdict, time=time, memory=memory, idle=idle, parts=parts)
        try:
            check(outcome, puzzle, puzzle.size, watch=watch)
        except PuzzleError as error:
            error.line = error.line or _line_about(error, outcome, puzzle.size, watch)
            raise
    except PuzzleError as error:
        error = in_unit(error, puzzle)
        error.fix = (
            never_awaited(source()) or no_share(puzzle, error, source()) or _in_its_source(error, puzzle, source())
        )
        if isinstance(error, OutOfTime) and error.run is not None:
            asks = asks_again(source(), str(error.line))
            error.fix = run_twice(error.run.events, puzzle, "target") or asks or error.fix
        return replace(verdict, message=str(error), error=Mistake.of(error), right=False)
    if over := over_target(outcome, puzzle):
        return replace(explained(verdict, outcome, "target", watch, source), message=over, right=True)
    for size in other_sizes(puzzle.other_sizes, puzzle.size):  # right or wrong: time and memory count at its own
        try:
            if (outcome_there := run(size)) is not None:
                check(outcome_there, puzzle, size)
        except PuzzleError as error:
            error = in_unit(error, puzzle)
            only = never_awaited(source()) or one_layer_only(puzzle, size, source())
            error.fix = only or _in_its_source(error, puzzle, source())
            elsewhere = f"right at its own size, but not with {show_size(size)}"
            message = f"{elsewhere}{written_out(puzzle, source(), size)}\n{error}"
            wrong = Mistake.of(error)
            return replace(verdict, message=message, error=wrong, right=False, failed_at=show_size(size))
        verdict = replace(verdict, held_at=(*verdict.held_at, show_size(size)))
    verdict = replace(verdict, status=PASS, right=True, message=praise(outcome, puzzle))
    return explained(verdict, outcome, "star", watch) if puzzle.star and not verdict.starred else verdict


def _in_its_source(error: PuzzleError, puzzle: Puzzle, source: str) -> str:
    """Return what to write, by what a program's text shows: of a call that is there, and has not been reached."""
    problem = str(getattr(error, "problem", ""))  # a learner's class of errors may have none
    if problem.startswith(NOT_FINISHED):
        return error.fix or ends_under_a_condition(source, puzzle.name) or not_reached(problem, source)
    if unheard := not_waited_for(problem, source) or dropped_by_a_deque(problem, source):
        return unheard
    fix = sums_later(stored_in_a_task(problem, never_set(problem, error.fix, source), source), source)
    return from_its_text(error, puzzle.name, source, one_for_several(below_a_rank(fix, source), source))


NOT_FINISHED = "the function is not finished yet"


def explained(
    verdict: Verdict, outcome: Outcome, goal: str, watch: Watch | None, source: Callable[[], str] = lambda: ""
) -> Verdict:
    """Return a verdict with what costs time, and what costs memory, of a run that is slower or larger than a goal,
    "target" or "star"."""
    puzzle = verdict.puzzle
    most = puzzle.target if goal == "target" else puzzle.star
    time, memory = puzzle.scored(outcome.time, outcome.memory)
    if most and time > most["time"]:
        chain = chain_of(outcome.events)
        slow = Slowness(outcome, chain, puzzle, goal, partial(_lines_at, puzzle, watch))
        verdict = replace(
            verdict,
            chain=chain.describe(puzzle.unit),
            costs_time=slow.in_words(first=_of_tasks(slow.order, source())),
        )
    if most and memory > most["memory"]:
        noted = with_peak(outcome, puzzle.size, watch)
        if noted is not None:
            spare = spare_in_words(noted, puzzle, goal, memory - most["memory"]) if goal == "star" else ""
            held = spare or costs_memory(noted, puzzle, goal, memory - most["memory"])
            ordering = Ordering(outcome, puzzle, goal)
            if held and not verdict.costs_time:
                order = ordering.in_words()
                tasks = _of_tasks(ordering, source())
                said = [held, tasks and f"{tasks}.", order and f"{order[0].upper()}{order[1:]}."]
                held = " ".join(filter(None, said))
            if TASKS_GO_ON in held:
                held = held.replace(TASKS_GO_ON, begun_late(source()) or TASKS_GO_ON)
            rows = peak_as_json(noted)
            verdict = replace(verdict, peak_memory=noted.memory, peak=rows, costs_memory=held)
    if first := never_awaited(source()):
        longer, held = (
            one and f"{first}. {one[:1].upper()}{one[1:]}" for one in (verdict.costs_time, verdict.costs_memory)
        )
        return replace(verdict, costs_time=longer, costs_memory=verdict.costs_memory if longer else held)
    return verdict


def _of_tasks(order: Ordering, source: str) -> str:
    """Return that the order of the work in a pipeline is left to several tasks of a rank, where it differs from that of
    the target's program; or an empty text."""
    name = in_tasks(source) if order.own.turns and order.own.turns != order.theirs.turns else ""
    several = f"{name}(...) computes in several tasks of a rank, which go on as what they need comes"
    return f"{several}: one loop that takes turns in a fixed order decides it" if name else ""


def check(outcome: Outcome, puzzle: Puzzle, size: Size, proved: bool = False, watch: Watch | None = None) -> None:
    """Check everything but time and memory, and not the final weights again if they are ``proved``. Raise PuzzleError
    if something is wrong."""
    if not outcome.attempted:
        raise PuzzleError("no operation was run", line="")
    if half_done := comes_next(outcome):
        raise PuzzleError(f"{NOT_FINISHED}: {half_done}", fix=passes_left(outcome), line="")
    check_features(outcome, puzzle, watch)
    if not proved:
        try:
            train = size.get("train", TRAINED[0])
            check_finals(outcome.final_states, train)
        except PuzzleError as error:
            if error.rule == "wrong_value":
                error.fix = without_adapter(outcome) or error.fix
            raise
    updates = {(event.rank, event.layer) for event in outcome.events if event.kind == UPDATE.kind}
    check_layout(puzzle.layout, size, outcome.final_states, updates)
    for name in puzzle.ideas:
        IDEAS[name].check(outcome)


def without_adapter(outcome: Outcome) -> str:
    """Return which operation was run without the adapter of its layer, where adapters are trained; or an empty text."""
    for event in outcome.events:
        if event.kind in (FORWARD.kind, BACKWARD.kind) and outcome.train != TRAINED[0] and "adapter" not in event.words:
            took = f"{show_call(event.kind, event.layer)} has run without its adapter"
            return f"{took}: model.{event.kind}({event.layer}, ..., adapter=adapter)"
    return ""


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


def check_features(outcome: Outcome, puzzle: Puzzle, watch: Watch | None = None) -> None:
    """Raise PuzzleError for a feature (an operation or an option) that the puzzle does not grant. ``watch`` finds the
    learner's line, in a run at the puzzle's own size."""
    for event in outcome.distinct:
        for feature in event.words:
            if feature not in puzzle.words:
                error = _not_granted(event, feature, puzzle, outcome.layers)
                own = [one for one in outcome.events if one.rank == event.rank]
                at = next(at for at, one in enumerate(own) if one is event)
                error.line = next(iter(_lines_at(puzzle, watch, event.rank, [at])), "")
                raise error


def _not_granted(event: Event, feature: str, puzzle: Puzzle, layers: int) -> PuzzleError:
    """Return the error of an operation with a feature that the puzzle does not grant."""
    subject, when = subject_of(feature), puzzle.unit.brief(event.issued)
    about = f", which is the subject of puzzle {subject.number}" if subject else ""
    place = Place(event.rank, event.kind, event.layer, tick=event.issued, detail=f"at {puzzle.unit.at(when)}")
    problem = f"puzzle {puzzle.number} is solved without {FEATURE_NAMES.get(feature, f'`{feature}`')}{about}"
    fix = "`run` and `draw` take it, if you want to see what it would do"
    if feature == LISTS:
        axis = f", axis={show_axis(event.op[0])}" if event.op and event.op[0] else ""
        name = {"WeightGrad": "grad", "Weight": "weight"}.get(event.tensor or "", "tensor")
        fix = f"one call for each layer: await model.{event.kind}({name}, layer{axis})"
    if feature == SLICES and PROJECT.kind in puzzle.words:
        fix = _of_slices(event, layers)
    if feature == AXES and event.op:
        names: Any = event.op[0]
        over = " and then ".join(f"axis={show_axis(name)}" for name in names)
        fix = f"one collective over each axis, one after the other: {over}"
    return PuzzleError(problem, where=place, fix=fix, line="")


def _of_slices(event: Event, layers: int) -> str:
    """Return what to do about a collective of activations where each rank trains a slice of the sequence."""
    if event.layer == layers:
        return "the loss takes each rank's slice of the output, and gives a slice: model.loss(out, sliced=True)"
    need = "each step of a layer takes this rank's slice, and of the other ranks it needs keys and values only"
    return f"{need}: await model.{ALLGATHER.kind}(kv, layer), before attend and before backward_attend"


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


def _lines_at(puzzle: Puzzle, watch: Watch | None, rank: int, places: Sequence[int]) -> list[str]:
    """Return the learner's lines at these places of a rank's log, as far as they are known, from another run."""
    lines = _lines_of(watch, puzzle.size, rank) if places else ()
    return [lines[place] for place in places if place < len(lines)]


def _line_at(watch: Watch | None, size: Size, rank: int, place: int) -> str:
    """Return the learner's line at a place of a rank's log at a size, or an empty text where it is not known."""
    return next(iter(_lines_of(watch, size, rank)[place : place + 1]), "")


def _line_about(error: PuzzleError, outcome: Outcome, size: Size, watch: Watch | None) -> str:
    """Return the learner's line of the operation that an error of a whole run is about, or an empty text: the last of
    those that ``error.about`` names, or the one at the moment that its place names."""
    place = error.place
    if place.rank is None or (error.about is None and place.tick is None):
        return ""
    which = error.about or (place.operation, place.layer)
    own = [event for event in outcome.events if event.rank == place.rank]
    places = [
        at
        for at, event in enumerate(own)
        if (event.kind, event.layer) == which and (error.about is not None or event.issued == place.tick)
    ]
    return _line_at(watch, size, place.rank, places[-1]) if places else ""


def _lines_of(watch: Watch | None, size: Size, rank: int) -> Sequence[str]:
    """Return the learner's line of each record of a rank's log, from another run; none where they are not known."""
    if watch is None:
        return ()
    try:
        peak = watch(size, rank).peak
    except PuzzleError:
        return ()  # the function is another at its second run
    return peak.lines if peak is not None else ()


def with_peak(outcome: Outcome, size: Size, watch: Watch | None) -> Outcome | None:
    """Return another run of the same function, with notes on what the rank with the highest peak held there, or None
    where that does not come out the same."""
    highest = peak_event(outcome.device_events)
    if watch is None or highest is None:
        return None
    try:
        noted = watch(size, highest.rank)
    except PuzzleError:
        return None  # the function is another at its second run
    return noted if (noted.time, noted.memory) == (outcome.time, outcome.memory) else None


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
