"""Calls of a slow run that could be made, or awaited, at another time: sends round a ring, and sums of a layer that
follow one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..record.attention import BACKWARD_ATTEND, PROJECT
from ..record.events import Event
from ..record.table import OPERATIONS, RECEIVE, SEND
from ..record.training import UPDATE
from ..record.waiting import NEARLY

GIVEN_BY = {"KeysValues": PROJECT.kind, "KeysValuesGrad": BACKWARD_ATTEND.kind}
"""By what operation a rank makes what goes round a ring."""
IN_A_ROW = (
    "the calls of a layer follow one another: start one, compute the next backward, and only then await it and start "
    "the next one"
)
AT_THE_END = "that is after the last backward: keep some updates for then, which do not need it"


def by_rank(events: Iterable[Event]) -> dict[int, list[Event]]:
    """Return the events of each rank, in order."""
    known = defaultdict[int, list[Event]](list)
    for event in events:
        known[event.rank].append(event)
    return dict(known)


def late_send(events: Iterable[Event], on_chain: Sequence[Event]) -> tuple[Event, int, Event] | None:
    """Return the first send of the longest chain that begins after a computation which does not make what it carries,
    though that was there before, its place in the rank's log, and that computation. Only of what goes round a ring:
    ``slowness.late_messages`` is for stages."""
    ranks = by_rank(events)
    for event in on_chain:
        if event.kind != SEND.kind or event.tensor not in GIVEN_BY:
            continue
        own = ranks[event.rank]
        at = next(place for place, one in enumerate(own) if one is event)
        before = [one for one in own[:at] if one.stream == "compute" and one.length and one.end <= event.start]
        came = [one.end for one in own[:at] if _gives(one, event)]
        if came and before and not _gives(before[-1], event) and before[-1].start >= max(came) - NEARLY:
            return event, at, before[-1]
    return None


def _gives(event: Event, send: Event) -> bool:
    """Return whether an operation brings, or makes, what a send carries round a ring."""
    made = event.kind == GIVEN_BY.get(send.tensor or "")
    return event.layer == send.layer and (made or (event.kind == RECEIVE.kind and event.tensor == send.tensor))


def sums_in_words(events: Iterable[Event], on_chain: Sequence[Event], kind: str) -> str:
    """Return what to do about sums of weight gradients by this verb on the longest chain that all come after the last
    backward of their rank, or one right after another of the same layer; or an empty text."""
    ranks = by_rank(events)
    calls = [event for event in on_chain if event.kind == kind and event.tensor == "WeightGrad" and event.length]
    last = {rank: max((one.end for one in own if _goes_back(one)), default=0.0) for rank, own in ranks.items()}
    updates = any(event.kind == UPDATE.kind for event in ranks.get(calls[0].rank, ())) if calls else False
    if updates and all(event.start >= last[event.rank] - NEARLY for event in calls):
        return AT_THE_END
    for event in calls:
        before = [one for one in ranks[event.rank] if one.stream == "collective" and one.layer == event.layer]
        follows = any(one is not event and one.length and abs(one.end - event.start) <= NEARLY for one in before)
        if follows and event.end < last[event.rank]:
            return IN_A_ROW
    return ""


def _goes_back(event: Event) -> bool:
    return event.kind in OPERATIONS and OPERATIONS[event.kind].backward
