"""What makes a right run slower or larger than the one that it is compared with: calls by verb, where it first departs
from the other's order, and what is held at the peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ..record.figures.score import peak_event
from ..recording.lines import STORED
from .compare import Comparison
from .lineage import out_of
from .notes import Call, Kept, Notes
from .statement import Statement, say

MOST = 2  # sentences on what comes more often, and on what is held


class Held(NamedTuple):
    """What a rank with the highest peak holds there: the call that begins, what is stored, and what is not awaited."""

    call: Call
    stored: list[Kept]
    flying: list[Call]


def slower(comparison: Comparison) -> Iterator[Statement]:
    """Yield what a run does more often than the right one, and what less often."""
    own, right = (_counted(notes) for notes in (comparison.notes, comparison.right))
    extra = [
        call for rank in comparison.notes.calls for call in comparison.beyond(comparison.notes, comparison.right, rank)
    ]
    for what, count in (own - right).most_common(MOST):
        calls = [call for call in extra if _what(call) == what]
        lines = [line for line, _ in Counter(call.line for call in calls).most_common(MOST)]
        yield say("more_often", call=calls[0], count=count, lines=tuple(lines))
    for what, count in (right - own).most_common(MOST):
        first = next(call for call in comparison.right.all_calls() if _what(call) == what)
        yield say("less_often", right=first, count=count)


def larger(comparison: Comparison) -> Iterator[Statement]:
    """Yield what is held at the peak, and not at that of the right run."""
    own, right = at_peak(comparison.notes), at_peak(comparison.right)
    if own is None or right is None:
        return
    extra = Counter(map(_sort, own.stored)) - Counter(map(_sort, right.stored))
    for sort, count in extra.most_common(MOST):
        one = next(kept for kept in own.stored if _sort(kept) == sort)
        before = [call for call in one.tensor.readers if call.at <= own.call.at]
        following = next((call for call in one.tensor.readers if call.at > own.call.at), None)
        out = out_of(one.tensor, before[-1]) if before else None
        yield say("held", call=own.call, tensor=one.tensor, kept=one, count=count, reader=following, out=out)
    if len(own.flying) > len(right.flying):
        yield say("flying", call=own.flying[0], count=len(own.flying), right_count=len(right.flying), peak=own.call)


def at_peak(notes: Notes) -> Held | None:
    """Return what is held where memory is highest, or None where that is not known."""
    if notes.outcome is None or (highest := peak_event(notes.outcome.device_events)) is None:
        return None
    entry = [one for one in notes.outcome.events if one.rank == highest.rank].index(highest)
    calls = notes.work(highest.rank)
    call = next((call for call in calls if call.entry == entry), calls[-1] if calls else None)
    if call is None:
        return None
    stored = []
    for (rank, _, _), history in notes.kept.items():
        before = [kept for kept in history if kept.at <= call.at]
        stored += [before[-1]] if rank == highest.rank and before and before[-1].way == STORED else []
    flying = [
        one
        for one in calls
        if one.stream != "compute" and one.at < call.at and (one.fetched is None or one.fetched > call.at)
    ]
    return Held(call, stored, flying)


def _what(call: Call) -> tuple[str, tuple[str, ...]]:
    return call.kind, tuple(sorted(set(call.carries))) if call.stream == "collective" else ()


def _counted(notes: Notes) -> Counter[tuple[str, tuple[str, ...]]]:
    return Counter(_what(call) for call in notes.all_calls() if call.stream)


def _sort(kept: Kept) -> tuple[str, bool]:
    return kept.tensor.labels.kind, kept.tensor.labels.is_whole()
