"""Who waits for a message that its sender could have sent sooner, and what the sender computes before that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from ...basics.errors import numbered
from ...machine.outcome import Outcome
from ...record.collectives import ALLGATHER
from ...record.events import Event
from ...record.figures.waiting import NEARLY, Waiting
from ...record.table import RECEIVE, SEND
from ...record.training import BACKWARD_WEIGHT, BESIDE, FORWARD, UPDATE

MOST = 1000
"""Records before a send in which one looks for what has delayed it."""
ASIDE = (UPDATE.kind, BACKWARD_WEIGHT.kind)
"""Operations for which no other rank waits."""


class Late(NamedTuple):
    """A message for which a rank waits idle, although its sender could have sent it sooner."""

    delay: float  # how much of the waiting that has cost, in ticks
    rank: int  # that waits
    send: Event
    ready: float  # when it could have been sent, in ticks
    between: tuple[Event, ...]  # all that the sender has computed besides since what it needs for it has come


def late_messages(outcome: Outcome, on_chain: Container[Event]) -> Iterator[Late]:
    """Yield the messages for which a rank waits idle though they could have been sent sooner: their senders compute
    something else first, which stands on the longest chain."""
    by_rank = defaultdict[int, list[Event]](list)
    for event in outcome.events:
        by_rank[event.rank].append(event)
    sends = {event.op: (own, at) for own in by_rank.values() for at, event in enumerate(own) if event.kind == SEND.kind}
    waiting = Waiting(by_rank, outcome.time)
    for rank in by_rank:
        for gap in waiting.gaps(rank):
            if gap.call is None or gap.call.kind != RECEIVE.kind or gap.call.op not in sends:
                continue
            own, at = sends[gap.call.op]
            ready, others = _ready(own, at)
            begun = max(ready, gap.start)
            delay = min(own[at].issued, gap.end) - begun
            # Other work before that is in nobody's way, unless it is work for which nobody waits.
            late = (event for event in others if event.end > begun or event.kind in ASIDE)
            if delay > NEARLY and any(event in on_chain for event in late):
                yield Late(delay, rank, own[at], ready, tuple(others))


def _ready(own: Sequence[Event], at: int) -> tuple[float, list[Event]]:
    """Return when a send could have begun, had its rank gone on with these micro-batches alone since what it needs for
    them has come, and all that it has computed besides since then. ``own``: the rank's log, in which it stands at
    ``at``."""
    send, before = own[at], own[max(0, at - MOST) : at]
    needed = _needed(before, send)
    came = [event.end for event in before if _brings(event, send)]
    if not any(event.kind == RECEIVE.kind and _brings(event, send) for event in before):
        return send.issued, []
    layers = {event.layer for event in needed if event.start >= max(came)}
    weights = (event for event in before if (event.kind, event.tensor) == (ALLGATHER.kind, "Weight"))
    came += [event.end for event in weights if layers & {event.layer, *event.layers} and event.end <= send.issued]
    since, work = max(came), [event for event in before if event.stream == "compute" and event.length]
    begins = max([since, *(event.end for event in work if event.start < since)])  # what runs there comes to its end
    rest = [event for event in work if event.end > since]
    ready = begins + sum(event.length for event in needed if event.start >= begins)
    # What its rank has begun to send by then goes first over its links.
    queue = [event.end for event in before if event.kind == SEND.kind and event.issued <= begins]
    return max([ready, *queue]), [event for event in rest if event not in needed]


def _brings(event: Event, send: Event) -> bool:
    """Return whether a communication brings something that a message may be made from."""
    of_batch = event.stream in ("message", "collective") and event.kind != SEND.kind and event.tensor != "WeightGrad"
    return of_batch and bool(event.batches & send.batches) and event.end <= send.issued


def _needed(before: Sequence[Event], send: Event) -> set[Event]:
    """Return the computations that may make what a message carries, and the forwards beside which one of them runs."""
    needed, beside = set[Event](), False
    for event in reversed(before):
        if event.stream != "compute":
            continue
        beside = beside and event.kind == FORWARD.kind
        if beside or (event.batches & send.batches and event.kind not in ASIDE):
            needed.add(event)
            beside = beside or BESIDE in event.words
    return needed


def named_in_words(events: Sequence[Event], layers: bool) -> str:
    """Return computations in words, those of a kind together. ``layers``: and of a layer, which is named."""
    batches: dict[str, frozenset[int]] = {}
    for event in events:
        name = f"{event.kind}(layer {event.layer})" if layers else event.kind
        batches[name] = batches.get(name, frozenset()) | event.batches
    known = batches.items()
    *others, last = [f"{kind} of {numbered('micro-batch', own)}" if own else kind for kind, own in known]
    return f"{', '.join(others)} and {last}" if others else last
