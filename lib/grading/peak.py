"""What a run holds where its memory is highest, as facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Any

from ..basics.errors import with_article
from ..machine.lives import Held, Peak
from ..machine.outcome import Outcome
from ..record.events import Event
from ..record.kinds import KINDS

MADE_AGAIN = "inner activations that a backward makes again"


def what_of(held: Held) -> str:
    """Return what something in memory is, in words. ``{s}`` stands for the ending of a plural."""
    labels = held.labels
    if labels is None:
        return MADE_AGAIN if held.made == held.last else "layer{s} of inner activations"
    row = KINDS[labels.kind]
    plain = row.of_adapter if labels.adapter else row.word
    head, _, of = plain.partition(" of ")
    several = head.endswith("s")  # keys and values, which nobody counts one by one
    word = f"set{{s}} of {plain}" if several else f"{head}{{s}}{of and f' of {of}'}"
    if labels.keep:
        word += f" (keep={labels.keep!r})"
    share = Fraction(len(labels.shards), labels.total)
    if share != 1:
        word = f"{row.piece}{{s}} ({share}) of {plain if several else with_article(word.format(s=''))}"
    if row.by_batch and len(labels.batches) > 1:
        word += f" of {len(labels.batches)} micro-batches"
    return word


def as_json(outcome: Outcome) -> list[dict[str, Any]]:
    """Return each thing that was held at the peak as JSON values, the largest first: the sizes add up to the peak."""
    peak, rows = outcome.peak, list[dict[str, Any]]()
    if peak is None:
        return rows
    events = [event for event in outcome.events if event.rank == peak.rank]
    for held in sorted(peak.held, key=lambda one: -one.elements):
        labels = held.labels
        rows.append({
            "memory": held.memory, "what": what_of(held).format(s=""), "labels": "" if labels is None else str(labels),
            "layer": events[held.made].layer if labels is None else labels.layer,
            "elements": held.elements if isinstance(held.elements, int) else float(held.elements),
            "made": _moment(events, peak, held.made, _came), "last_read": _moment(events, peak, held.last),
            "read_next": _moment(events, peak, held.following), "result": held.stays,
        })  # fmt: skip
    return rows


def _moment(
    events: Sequence[Event], peak: Peak, place: int | None, when: Callable[[Event], float] = attrgetter("issued")
) -> dict[str, Any] | None:
    if place is None or not 0 <= place < len(events):
        return None
    event, line = events[place], peak.lines[place] if place < len(peak.lines) else ""
    return {"operation": event.kind, "layer": event.layer, "tick": when(event), "line": line}


def _came(event: Event) -> float:
    """Return when what an operation makes is there: of a computation its beginning, as its record says."""
    return event.end if event.stream in ("message", "collective") else event.issued
