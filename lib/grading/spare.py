"""What is in memory at a peak, and need not be: whole tensors of which only a piece is read, and calls that begin too
early. It is named where it is all that is too much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..basics.errors import numbered, show_call
from ..basics.units import Elements
from ..course.outlines import solution_work
from ..course.specs import Puzzle
from ..machine.lives import Held, Peak
from ..machine.outcome import Outcome
from ..record.collectives import ALLREDUCE, SCATTERREDUCE
from ..record.events import Event


def spare_in_words(outcome: Outcome, puzzle: Puzzle, goal: str, excess: Elements) -> str:
    """Return what a run with notes holds at its peak and need not hold, if that is as much as an ``excess``, with what
    to write; or an empty text."""
    peak = outcome.peak
    if peak is None:
        return ""
    events = [event for event in outcome.events if event.rank == peak.rank]
    pieces = max((held.labels.total for held in peak.held if held.labels and held.labels.kind == "OptState"), default=1)
    place = "model.rank, model.RANKS" if pieces == outcome.ranks else "..."
    found = [
        *_cut_late(peak, pieces, place),
        *_whole_sums(peak, pieces, events, puzzle, goal),
        *_called_early(peak, events),
    ]
    return next((said for saved, said in found if saved >= excess), "")


def _cut_late(peak: Peak, pieces: int, place: str) -> Iterator[tuple[Elements, str]]:
    """Yield how much whole weights take more than the pieces that are read of them after the peak, and what to do."""
    rows = [
        held
        for held in peak.held
        if held.labels is not None
        and (held.labels.kind, held.memory, held.joins) == ("Weight", "weights", "shard")
        and held.labels.is_whole()
    ]
    if rows and pieces > 1:
        layers = numbered("layer", [held.labels.layer for held in rows if held.labels is not None])
        said = f"rank {peak.rank} holds whole weights at its peak, of {layers}, and reads only a piece after that: "
        cut = f"cut each right after its last backward, model.weights[layer] = model.weights.pop(layer).shard({place})"
        yield _without_rest(rows, pieces), f"{said}{cut}."


def _whole_sums(
    peak: Peak, pieces: int, events: Sequence[Event], puzzle: Puzzle, goal: str
) -> Iterator[tuple[Elements, str]]:
    """Yield how much a whole sum of gradients takes more than the piece with which the rank updates, and what to do."""
    rows = [
        held
        for held in peak.held
        if held.labels is not None
        and held.labels.kind == "WeightGrad"
        and held.labels.is_whole()
        and 0 <= held.made < len(events)
        and events[held.made].kind == ALLREDUCE.kind
    ]
    cuts = any(kind == SCATTERREDUCE.kind for kind, _ in solution_work(puzzle, goal))
    if rows and cuts and pieces > 1:
        layers = numbered("layer", [held.labels.layer for held in rows if held.labels is not None])
        said = f"rank {peak.rank} holds the whole sum of the gradients of {layers} at its peak, and uses 1/{pieces} of"
        yield (
            _without_rest(rows, pieces),
            f"{said} it: grad = await model.scatterreduce(grad, layer) gives that piece only.",
        )


def _without_rest(rows: Sequence[Held], pieces: int) -> Elements:
    return sum(held.elements for held in rows) * (pieces - 1) / pieces  # type: ignore[return-value]


def _called_early(peak: Peak, events: Sequence[Event]) -> Iterator[tuple[Elements, str]]:
    """Yield how much a call brings that is on its way while the rank computes with something as large, where another
    computation comes before the one that reads what the call brings; and what to do."""
    now = events[peak.at] if peak.at < len(events) else None
    if now is None or now.stream != "compute":
        return
    for held in peak.held:
        if held.memory != "in_flight" or held.following is None or not 0 <= held.made < peak.at:
            continue
        call, reader = events[held.made], events[held.following]
        between = [
            one for one in events[peak.at + 1 : held.following] if one.stream == "compute" and one.length >= call.length
        ]
        if between and call.stream == "collective":
            does = show_call(now.kind, now.layer)
            said = (
                f"{show_call(call.kind, call.layer)} is on its way on rank {peak.rank} during {does}, where memory is "
            )
            said += f"highest, and {show_call(reader.kind, reader.layer)} reads what it brings: start it after {does}, "
            said += "beside "
            yield held.elements, f"{said}{show_call(between[0].kind, between[0].layer)}."
