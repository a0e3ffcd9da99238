"""The verdict on a function: layout, rules, time and memory at the puzzle's own size and at others."""

from collections.abc import Callable
from dataclasses import replace

from ..basics.errors import PuzzleError
from ..course.bounds import bounds_of
from ..course.ideas import IDEAS, place_at
from ..course.layouts import Size, check_layout
from ..course.sizes import other_sizes, show_size
from ..course.specs import FEATURES, Puzzle, subject_of
from ..learner.model import call_of
from ..machine.outcome import Outcome
from ..record.events import MARKS
from ..record.figures.breakdown import idle_of, time_parts
from ..record.figures.chain import chain_of
from ..running.limits import collector_off
from .reasons import Reasons, Recording, References
from .verdict import FAIL, PASS, TODO, Mistake, Verdict

Runs = Callable[[Size], Outcome | None]
"""Runs a function at a size. None: at this other size it does just what was found right before."""
Recorded = Callable[[Size], Recording | None]
"""Returns what the run at a size has called, or None where that is not known."""


@collector_off(cycles=True)
def judge(
    puzzle: Puzzle,
    run: Runs,
    recorded: Recorded = lambda size: None,
    references: References = lambda puzzle, size: (),
    source: Callable[[], str] = str,
) -> Verdict:
    """Return the verdict on the outcomes of ``run(size)``. A PuzzleError that it raises is a FAIL. ``recorded``,
    ``references`` and ``source`` are what the verdict is explained with: the recordings of these runs, right ones, and
    the text of the program, as far as it is known."""

    def reasons(size: Size) -> Reasons:
        return Reasons(puzzle, size, recorded(size), references, source())

    verdict, size = Verdict(puzzle, FAIL, ""), puzzle.size
    outcome = None
    try:
        outcome = run(size)
        assert outcome is not None
        if not outcome.attempted:
            begun = any(event.kind != MARKS[-1] for event in outcome.events)
            left = "not attempted yet" + (f": {comes_next(outcome)}" if begun else "")
            known = reasons(size)
            seen = known.explanation()
            return replace(verdict, status=TODO, message=left, explanation=seen, note=known.trouble)
        parts = time_parts(*outcome.shares, outcome.time)
        time, memory = puzzle.scored(outcome.time, outcome.memory)
        verdict = replace(verdict, time=time, memory=memory, idle=float(idle_of(parts)), parts=parts)
        check(outcome, puzzle, size)
        if over := over_target(outcome, puzzle):
            return _over(replace(verdict, message=over, right=True), outcome, reasons(size))
        praised = praise(outcome, puzzle)
        for size in other_sizes(puzzle.other_sizes, puzzle.size):  # right or wrong: time and memory count at its own
            outcome = None
            if (outcome := run(size)) is not None:
                check(outcome, puzzle, size)
            verdict = replace(verdict, held_at=(*verdict.held_at, show_size(size)))
    except PuzzleError as error:
        return _wrong(verdict, error, size, outcome, reasons(size))
    return replace(verdict, status=PASS, right=True, message=praised)


def _wrong(verdict: Verdict, error: PuzzleError, size: Size, outcome: Outcome | None, reasons: Reasons) -> Verdict:
    """Return the verdict on a run that is wrong. ``outcome``: of one that has come to its end."""
    if outcome is not None:
        reasons.find_line(error, outcome)
    elsewhere = show_size(size) if size != verdict.puzzle.size else ""
    return replace(
        verdict,
        right=False,
        failed_at=elsewhere,
        message=f"right at its own size, but not with {elsewhere}\n{error}" if elsewhere else str(error),
        error=Mistake.of(error),
        explanation=reasons.explanation(error),
        note=reasons.trouble,
    )


def _over(verdict: Verdict, outcome: Outcome, reasons: Reasons) -> Verdict:
    """Return the verdict on a right run over the target with its longest chain, if it is slow, with what it holds at
    its peak, if it is large, and with what it does otherwise than the target's program."""
    over = ["time"] * verdict.slow + ["memory"] * verdict.large
    verdict = replace(verdict, explanation=reasons.explanation(over=over), note=reasons.trouble)
    if verdict.slow:
        verdict = replace(verdict, chain=chain_of(outcome.events).describe(verdict.puzzle.unit))
    if verdict.large:
        outcome.peak = peak = reasons.peak(outcome)
        verdict = replace(verdict, peak_memory=outcome.memory, peak=peak.as_json(outcome.events) if peak else ())
    return verdict


def check(outcome: Outcome, puzzle: Puzzle, size: Size, proved: bool = False) -> None:
    """Raise PuzzleError if anything but time and memory is wrong. ``proved``: the final weights are known."""
    if not outcome.attempted:
        raise PuzzleError("no operation was run", line="")
    if size == puzzle.size and (half_done := comes_next(outcome)):  # at others it skips a step that it knows
        raise PuzzleError("not_finished", line="", next=half_done)
    check_features(outcome, puzzle)
    if not proved:
        outcome.verify()
    check_layout(puzzle.layout, {**size, "tensor": puzzle.tensor}, outcome.final_states)
    for name in puzzle.ideas:
        IDEAS[name].check(outcome)


def check_features(outcome: Outcome, puzzle: Puzzle) -> None:
    """Raise PuzzleError for a feature (an operation or an option) that the puzzle does not grant."""
    for event in outcome.distinct:
        for feature in event.words:
            if feature not in puzzle.words:
                subject, name = subject_of(feature), FEATURES.get(feature, f"`{feature}`")
                about = f", which is the subject of puzzle {subject.number}" if subject else ""
                place = place_at(event, puzzle.unit)
                raise PuzzleError("not_granted", where=place, line="", number=puzzle.number, feature=name, about=about)


def comes_next(outcome: Outcome) -> str:
    """Return the next step of a function that stops half-way, or an empty text if it does not."""
    last, following = outcome.half_way or ("", "")
    return f"{f'after {last}' if last else 'first of all'} comes {call_of(following)}" if following else ""


def over_target(outcome: Outcome, puzzle: Puzzle) -> str:
    """Return a sentence on a right run that is too slow or too large, or an empty text."""
    target, over = puzzle.target, []
    time, memory = puzzle.scored(outcome.time, outcome.memory)
    own, most = puzzle.describe(time, memory), puzzle.brief(target["time"], target["memory"])
    if time > target["time"]:
        over.append(f"{own[0]}, target {most[0]}")
    if memory > target["memory"]:
        over.append(f"{own[1]}, target {most[1]} ({outcome.at_peak})")
    return "Correct at this size, but over the target: " + "; ".join(over) if over else ""


def praise(outcome: Outcome, puzzle: Puzzle) -> str:
    """Return the praise for a pass: the star or what is missing for it, and the comparison with the best known."""
    time, memory = puzzle.scored(outcome.time, outcome.memory)
    sentences = ["Correct, and the star is yours." if puzzle.has_star(time, memory) else "Correct, within the target."]
    if star := puzzle.star:
        ticks, elements = round(time - star["time"], 9), memory - star["memory"]
        missing = [puzzle.unit.lasting(ticks)] * (ticks > 0) + [puzzle.size_unit.describe(elements)] * (elements > 0)
        sentences += [f"For the star, save another {' and '.join(missing)}."] if missing else []
    if bound := bounds_of(puzzle):
        sentences += filter(None, [bound.praise(time)])
    if puzzle.listed(time, memory) in [(point["time"], point["memory"]) for point in puzzle.frontier]:
        sentences.append("These figures are among the best known.")
    elif puzzle.beats_all(time, memory):
        sentences.append("Better than the best known: nothing that we know is as fast in so little memory!")
    return " ".join(sentences)
