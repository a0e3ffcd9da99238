"""The verdict on a function: layout, rules, time and memory at the puzzle's own size and at others."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

from ..basics.errors import OutOfTime, Place, PuzzleError, show_axis, show_call
from ..basics.units import TICKS, Elements, at_tick
from ..course.bounds import bounds_of
from ..course.held import check_held
from ..course.layouts import Size, check_layout
from ..course.outlines import SolutionFigures, figures_elsewhere, solution_figures
from ..course.rules import RULES, one_at_a_time, one_micro_batch
from ..course.sizes import show_size
from ..course.specs import Puzzle, cost_named, subject_of
from ..course.used import check_used, wastes
from ..learner.model import written
from ..machine.advice.rounds import first_round, round_in_words, rounds_of
from ..machine.check import TRAINED, WRONG_VALUE, check_finals
from ..machine.outcome import Outcome
from ..record.attention import PROJECT
from ..record.collectives import ALLGATHER
from ..record.events import MARKS, Event
from ..record.figures.breakdown import idle_of, time_parts
from ..record.figures.chain import chain_of
from ..record.figures.score import memory_parts, peak_event
from ..record.labels import AXES, DEALT, HOSTS, IN_A_V, LISTS, SLICES, Labels
from ..record.table import OPERATIONS, in_stream, makes_weight_grads
from ..record.training import BACKWARD, FORWARD, UPDATE
from ..running.limits import collector_off
from .advice.events import never_set, not_waited_for
from .advice.holding import (
    ORDER_DECIDES,
    TASKS_GO_ON,
    costs_memory,
    gathered_early,
    growth_in_words,
    peak_in_words,
    spare_in_words,
    unread_in_words,
    whole_across,
)
from .advice.holding import as_json as peak_as_json
from .advice.ordering import Ordering, ahead_elsewhere, check_ahead_in_a_v, forwards_together, passes_left
from .advice.slips import ends_under_a_condition, from_its_text
from .advice.slowness import Slowness, run_twice, shares_of
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
from .fitting import fitting
from .verdict import FAIL, PASS, TODO, Mistake, Verdict

SLOWER = 1.3  # at other sizes an attempt takes less than so many times the solution's time
ALIKE, TICK = 1.06, 1  # where all ranks do the same, so many times what the target would be there, or a tick more
CLOSE = 1e-9  # what a time may be off because it is computed with floats
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
        error = in_unit(_broken_before(error, puzzle), puzzle)
        error.fix = (
            never_awaited(source()) or no_share(puzzle, error, source()) or _in_its_source(error, puzzle, source())
        )
        if isinstance(error, OutOfTime) and error.run is not None:
            asks = asks_again(source(), str(error.line))
            error.fix = run_twice(error.run.events, puzzle, "target") or asks or error.fix
        return replace(verdict, message=str(error), error=Mistake.of(error), right=False)
    if over := over_target(outcome, puzzle):
        return replace(explained(verdict, outcome, "target", watch, source), message=over, right=True)
    wasteful = wastes(outcome)  # if it is in time here, it may do the same at other sizes
    for there in figures_elsewhere(puzzle):
        size = there.size
        try:
            if (outcome_there := run(size)) is not None:
                check(outcome_there, puzzle, size)
                check_limits(outcome_there, puzzle, there, outcome, watch)
                if IN_A_V in puzzle.rules:
                    check_ahead_in_a_v(outcome_there)
                if not wasteful:
                    check_used(outcome_there, partial(_line_at, watch, size))
        except PuzzleError as error:
            error = in_unit(error, puzzle)
            only = never_awaited(source()) or one_layer_only(puzzle, size, source())
            error.fix = only or _in_its_source(error, puzzle, source())
            too = error.too if isinstance(error, OverLimit) else ""
            elsewhere = f"right at its own size, but not with {show_size(size)}"
            message = f"{elsewhere}{written_out(puzzle, source(), size)}\n{error}"
            wrong = Mistake.of(error)
            return replace(verdict, message=message, error=wrong, right=False, failed_at=show_size(size), too=too)
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
            fitting(puzzle, check_finals)(outcome.final_states, train, layers_done=outcome.layers_done)
        except PuzzleError as error:
            if WRONG_VALUE in str(error):
                error.fix = without_adapter(outcome) or error.fix
            raise
    updates = {(event.rank, event.layer) for event in outcome.events if event.kind == UPDATE.kind}
    fitting(puzzle, check_layout)(puzzle.layout, size, outcome.final_states, updates)
    for rule in puzzle.rules:
        RULES[rule](outcome)
    check_held(outcome)


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


def _broken_before(error: PuzzleError, puzzle: Puzzle) -> PuzzleError:
    """Return in place of an error that a puzzle is solved without lists, or that one of its plainest rules is broken,
    where that has happened before it: what follows from that has the wrong fix."""
    if error.run is not None:
        events = error.run.events
    elif error.so_far is not None:
        events = error.so_far()
    else:
        return error
    try:
        one_at_a_time(events if one_micro_batch.__name__ in puzzle.rules else ())
    except PuzzleError as first:
        return first
    with_lists = [event for event in events if LISTS in event.words and LISTS not in puzzle.words]
    return _not_granted(with_lists[0], LISTS, puzzle, puzzle.size["layers"]) if with_lists else error


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


EVERYWHERE = "do the same at every size, whatever model.RANKS, model.LAYERS and model.BATCHES are"


class OverLimit(PuzzleError):
    """A run at another size is right, and takes more than there is room for. ``too``: "slow" or "large"."""

    too = ""

    @classmethod
    def of(cls, too: str, takes: str, expected: str, fix: str, got: str = "") -> "OverLimit":
        """Return the error of a run that takes so much."""
        error = cls(f"it takes {takes}", expected=expected, got=got, fix=fix or EVERYWHERE, line="")
        error.too = too
        return error


def check_limits(
    outcome: Outcome, puzzle: Puzzle, there: SolutionFigures, home: Outcome, watch: Watch | None = None
) -> None:
    """Raise OverLimit for a run at another size that takes more than there is room for, so that no program is fast or
    small at the puzzle's own size only. ``home``: its run there."""
    slowest, largest = limits(puzzle, there, home.time, home.memory)
    if outcome.time >= slowest * (1 - CLOSE):
        takes, least, most = map(puzzle.unit.lasting, (outcome.time, there.time, slowest))
        expected = f"less than {'that' if takes == most else most}, where a solution takes {least}"
        fix = shares_of(outcome, puzzle) or ahead_elsewhere(outcome, home, puzzle, fewer=True)
        fix = fix or whole_across(outcome, puzzle)
        raise OverLimit.of("slow", takes, expected, fix)
    if outcome.memory >= largest:
        fits = math.ceil(largest) - 1  # whole elements, and less than ``largest``
        takes, least, most = map(puzzle.size_unit.describe, (outcome.memory, there.memory, fits))
        expected = f"{'less than that' if takes == most else f'at most {most}'}, where "
        smaller = "programs as small as this one at the puzzle's own size take no more"
        expected += f"a solution takes {least}" if there.memory < largest else smaller
        noted = with_peak(outcome, there.size, watch)
        peak, fix = ("", "") if noted is None else (peak_in_words(noted), unread_in_words(noted, outcome.memory - fits))
        fix = fix or (_round_too_large(outcome) if DEALT in puzzle.rules else "")
        fix = fix or ahead_elsewhere(outcome, home, puzzle) or _growth(noted, home, puzzle, there, watch)
        fix = (ORDER_DECIDES in fix and forwards_together(outcome, puzzle)) or fix
        fix = fix or ("" if noted is None else gathered_early(noted))
        raise OverLimit.of("large", takes, expected, fix, peak)


def _growth(noted: Outcome | None, home: Outcome, puzzle: Puzzle, there: SolutionFigures, watch: Watch | None) -> str:
    """Return what grows more than it should from the puzzle's own size to another one, or an empty text. ``noted``: the
    run there, and ``home``: the one at its own size."""
    own = with_peak(home, puzzle.size, watch)
    if noted is None or own is None:
        return ""
    growth = Fraction(there.memory) / Fraction(solution_figures(puzzle).memory)
    return growth_in_words(noted, own, puzzle, growth)


def _round_too_large(outcome: Outcome) -> str:
    """Return, where layers are dealt like cards, that rank 0 takes more micro-batches than a round has through its
    first layer before the next one; or an empty text."""
    forwards = [event for event in outcome.events if event.kind == FORWARD.kind and event.rank == 0]
    steps = [(event.layer, event.batches) for event in forwards if event.layer is not None]
    took, then = first_round(steps)
    batches = len({batch for _, own in steps for batch in own})
    large = then is not None and took > max(rounds_of(outcome.ranks))
    return round_in_words(0, FORWARD.kind, steps, outcome.ranks, batches) if large else ""


def limits(puzzle: Puzzle, there: SolutionFigures, took: float, held: Elements) -> tuple[float, Elements]:
    """Return the time and the memory that an attempt does not reach at another size. ``took``, ``held``: its time and
    its memory at the puzzle's own.

    Time: more than the solution takes there, and also by as much as the target leaves at the puzzle's own size. In a
    pipeline, an order that is as good at one size may wait longer at another. Where all ranks do the same work, once,
    hardly anything depends on the size, and what is slower there does something for nothing.

    Memory: one tensor more than any of our programs takes there which takes no more than the attempt at the puzzle's
    own size. So an answer may keep what one of ours keeps, and none holds a whole tensor more at some size only. What
    it takes beyond them at home it may take there, too, in proportion. A fast program often keeps more there. Where
    nothing else is traded for memory, it counts for attempts only that are faster than the solution at home.
    Who takes at home just what the solution takes does as it does, and is held to what programs take that do so, too.
    """
    known, target = solution_figures(puzzle), puzzle.target
    time = _as_target(there.time, known.time, target["time"])
    slowest = SLOWER * there.time
    if alike(puzzle):
        slowest = min(slowest, max(ALIKE * time, time + TICK))
    as_small = [one for one in there.room if one.memory <= math.ceil(held)]
    as_small = as_small or [min(there.room, key=lambda one: one.memory)]
    like_it = as_small
    if took >= known.time * (1 - CLOSE) and alike(puzzle) and not CHOICES & {*puzzle.words}:
        like_it = [one for one in as_small if one.time >= known.time * (1 - CLOSE)] or as_small
    if held == known.memory and abs(took - known.time) <= known.time * CLOSE:
        like_it = [one for one in as_small if one[:2] == (known.time, known.memory)] or like_it
    home, most = max(one.memory for one in like_it), max(one.there for one in like_it)
    more = max(Fraction(held) - home, Fraction(0)) * max(Fraction(most, home), Fraction(1))
    return slowest, most + more + one_tensor(puzzle, there.size)


CHOICES = {LISTS, "keep"}
"""What lets a program hold more, or less, as it likes: layers that are summed at once, and what is computed again."""


def one_tensor(puzzle: Puzzle, size: Size) -> Elements:
    """Return the size of a whole weight, or of an activation if that is larger."""
    layers, batches = size["layers"], size["batches"]
    weight = Labels("Weight", 0, layers)
    activation = Labels("Activation", 0, layers, batches=frozenset([0]), total_batches=batches)
    return max(map(cost_named(puzzle.cost).elements, (weight, activation)))


HAS_STAGES = {"own_layers", "four_stages", "several_kinds"}
"""Rules of puzzles in which ranks run different layers."""


def alike(puzzle: Puzzle) -> bool:
    """Return whether all ranks do the same work, and each thing once: there are no stages, and no steps of a layer that
    a program may do again, in order to keep less."""
    return not HAS_STAGES & {*puzzle.rules} and PROJECT.kind not in puzzle.words


def _as_target(there: float, known: float, target: float) -> float:
    """Return the target for a size where a solution takes ``there``. At the puzzle's own size it takes ``known``."""
    return max(there * target / known, there + target - known)


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
