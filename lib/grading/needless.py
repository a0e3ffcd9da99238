"""Calls that a rank awaits while it has something else to compute: of a right run that is slow, what could be on its
way meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ..basics.errors import numbered, show_call
from ..record.events import Event
from ..record.kinds import KINDS
from ..record.training import UPDATE


class Needless(NamedTuple):
    """A collective that its rank has waited for, and what it computes next, which does not need the result."""

    call: Event
    then: Event


def needless_waits(events: Sequence[Event]) -> Iterator[Needless]:
    """Yield the collectives during which their rank computes nothing, although the next thing that it computes does not
    need their result: another layer's or micro-batch's. ``events``: of all ranks, of each in its order."""
    by_rank = defaultdict[int, list[Event]](list)
    for event in events:
        by_rank[event.rank].append(event)
    for own in by_rank.values():
        computed = [event for event in own if event.stream == "compute" and event.length]
        after = 0
        for call in own:
            if call.stream != "collective" or call.layers or not call.length:
                continue
            while after < len(computed) and computed[after].end <= call.start:
                after += 1
            if after < len(computed) and computed[after].start >= call.end and not _needs(computed[after], call):
                yield Needless(call, computed[after])


def _needs(event: Event, call: Event) -> bool:
    """Return whether something computed may need what a collective has brought."""
    if call.tensor == "WeightGrad":
        return event.kind == UPDATE.kind
    if call.tensor in KINDS and KINDS[call.tensor].by_batch:
        return bool(event.batches & call.batches) or not event.batches
    return True


def in_words(waits: Sequence[Needless], among: Collection[Event], kind: str = "") -> str:
    """Return which of these calls a rank awaits too soon, those of one verb together: of the verb ``kind``, or of the
    one that takes longest, of those that are ``among`` the given events; an empty text where there is none."""
    by_verb = defaultdict[str, list[Needless]](list)
    for one in waits:
        if one.call in among and kind in ("", one.call.kind):
            by_verb[one.call.kind].append(one)
    if not by_verb:
        return ""
    verb = max(by_verb, key=lambda name: sum(one.call.length for one in by_verb[name]))
    call, then = by_verb[verb][0]
    which = f"{show_call(verb, call.layer)} of {numbered('micro-batch', call.batches)}"
    does = show_call(then.kind, then.layer) + (f" of {numbered('micro-batch', then.batches)}" if then.batches else "")
    until = (
        f"a turn later, at the latest before model.{UPDATE.kind}({call.layer}, ...)"
        if call.tensor == "WeightGrad"
        else "in its next turn"
    )
    what = show_call(verb, call.layer) if call.tensor == "WeightGrad" else which
    said = f"rank {call.rank} computes nothing while {what} is on its way, and then {does}, which does not need it"
    return f"{said}: keep the call, and await it {until}"
