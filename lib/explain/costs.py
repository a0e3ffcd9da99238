"""What makes a right run slower or larger than the one that it is compared with: calls by verb, where it first departs
from the other's order, and what is held at the peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..basics.units import Elements
from ..record.events import Event
from ..record.figures.score import memory_parts, peak_event
from ..record.kinds import KINDS
from ..recording.diary import REPLACED, STORED
from .compare import Comparison
from .lineage import origin, out_of
from .notes import COMBINE, LOADS, SHARD, Call, Kept, Notes
from .statement import Statement, say

MOST = 2  # sentences on what comes more often, and on what is held


def slower(comparison: Comparison) -> Iterator[Statement]:
    """Yield what a run does more often than the right one."""
    own, right = ([one for one in run.all_calls() if one.stream and one.kind != "receive"] for run in comparison.runs)
    twins = {(call.rank, call.key()): call for call in right}
    pairs = [(call, twins.get((call.rank, call.key()), call)) for call in own if call.stream == "compute"]
    for call, twin in [pair for pair in pairs if len({(len(one.operands), one.options) for one in pair}) > 1][:1]:
        lacks = twin.operands[len(call.operands) :]
        yield say("lacks_operand", call=call, right=lacks[0]) if lacks else say("other_call", call=call, right=twin)
    more = [one for at in comparison.right.calls for one in comparison.beyond(comparison.notes, comparison.right, at)]
    counts, others = Counter(map(_what, own)), Counter(map(_what, right))
    for what, count in (counts - others).most_common(MOST):
        calls = [call for call in more if _what(call) == what]
        line = Counter(call.line for call in calls).most_common(1)[0][0]
        yield say("more_often", call=calls[0], count=count, line=line)


def larger(comparison: Comparison) -> Iterator[Statement]:
    """Yield what is held at the peak, and not in the right run at that call, or at its peak if it has none like it."""
    peak, other = _peak(comparison.notes), _peak(comparison.right)
    if peak is None or other is None:
        return
    other = comparison.counterpart(peak) or other
    excess = Counter(memory_parts(_log(comparison.notes, peak.rank)[peak.entry]))
    excess.subtract(memory_parts(_log(comparison.right, other.rank)[other.entry]))
    found: dict[object, tuple[Elements, Statement, float]] = {}
    stored, dead, flying = _held(comparison.notes, peak)
    theirs, right_dead, right_flying = _held(comparison.right, other)
    for name, own, right in (("dead", dead, right_dead), ("held", stored, theirs)):
        more = Counter((_sort(one), one.tensor.labels.layer) for one in own)
        more.subtract((_sort(one), one.tensor.labels.layer) for one in right)
        for sort, count in (Counter(map(_sort, own)) - Counter(map(_sort, right))).most_common(MOST):
            one = next(kept for kept in own if _sort(kept) == sort and more[sort, kept.tensor.labels.layer] > 0)
            before = [call for call in one.tensor.readers if call.at <= peak.at]
            following = next((call for call in one.tensor.readers if call.at > peak.at), None)
            out = out_of(one.tensor, before[-1]) if before else None
            facts = {"tensor": one.tensor, "kept": one, "count": count, "reader": following, "out": out}
            size = count * len(one.tensor.labels.shards) / one.tensor.labels.total
            if sort not in found or size > 2 * found[sort][2]:  # leftovers come first, unless they are few
                found[sort] = excess[KINDS[sort[0]].memory], say(name, call=peak, right=other, **facts), size
    if len(flying) > len(right_flying):
        facts = {"count": len(flying), "right_count": len(right_flying), "peak": peak, "right": other}
        found["flying"] = excess["in_flight"], say("flying", call=flying[0], **facts), 0
    told = sorted(found.values(), key=lambda one: (-one[0], -one[2]))
    yield from (statement for excess, statement, _ in told if excess > 0)


def _log(notes: Notes, rank: int) -> list[Event]:
    """Return the records of a rank."""
    return [one for one in notes.outcome.events if one.rank == rank] if notes.outcome is not None else []


def _peak(notes: Notes) -> Call | None:
    """Return the call that begins where memory is highest, or None where that is not known."""
    if notes.outcome is None or (highest := peak_event(notes.outcome.device_events)) is None:
        return None
    entry = _log(notes, highest.rank).index(highest)
    return next((call for call in notes.calls[highest.rank] if (call.kind, call.entry) == (highest.kind, entry)), None)


def _held(notes: Notes, call: Call) -> tuple[list[Kept], list[Kept], list[Call]]:
    """Return what a rank holds where a call of it begins: what is stored, of that what nothing reads any more, and what
    is not awaited yet."""
    own = [some for key, some in notes.kept.items() if key[0] == call.rank]
    before = [[kept for kept in some if kept.at <= call.at and kept.way != REPLACED] for some in own]
    flying = [one for one in notes.work(call.rank) if one.stream != "compute" and one.at < call.at]
    open_calls = [one for one in flying if one.fetched is None or one.fetched > call.at]
    stored = [history[-1] for history in before if history and history[-1].way == STORED]
    # What is loaded or updated, or cut of that, has to be there at the end.
    passing = [one for one in stored if origin(one.tensor, ("receive", SHARD, COMBINE)).how not in (*LOADS, "update")]
    return stored, [one for one in passing if all(by.at < call.at for by in one.tensor.readers)], open_calls


def _sort(kept: Kept) -> tuple[str, bool, bool, str]:
    labels = kept.tensor.labels
    return labels.kind, labels.is_whole(), labels.adapter, labels.extra.keep


def _what(call: Call) -> tuple[str, tuple[str, ...]]:
    return call.kind, tuple(sorted(set(call.carries))) if call.stream != "compute" else ()
