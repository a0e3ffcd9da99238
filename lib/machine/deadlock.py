"""The report of a deadlock: what each rank waits for, since when and where, and which messages nobody has received."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..basics.errors import NOWHERE, Deadlock, numbered, show_call, show_set
from ..record.events import MARKS
from .failure import Failure, Wait
from .in_flight import InFlight, Message, RankLinks
from .rank_state import Done

Mailboxes = Mapping[int, deque[Message]]
"""The messages to a rank that it has not received, as sends, by sender."""
MOST_ROWS, MOST_SIMILAR = 32, 4
"""Rows of a report, at most, and how many of them may differ by nothing but numbers: of more there is the first, and
the ranks of the others."""
MOST_SIMILAR_MESSAGES = 8  # rows on messages that differ by nothing but numbers: of more there is the first
MOST_CALLS = 3  # of a rank
NOBODY = "something that no rank of this machine will do"
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def report(
    links: Mapping[int, RankLinks], mailboxes: Mapping[int, Mailboxes], lines: Mapping[int, str], ended: frozenset[int]
) -> Deadlock:
    """Return the error of a machine in which nobody can go on. ``mailboxes``: the messages that no receive has taken,
    by receiver; ``lines``: where each rank stands; ``ended``: the ranks that have finished."""
    stands: dict[str, list[int]] = {}  # ranks of which the same is to be said
    for rank, own in sorted(links.items()):
        where = f" [{lines[rank]}]" if lines.get(rank) else ""
        calls = [call for call in own.open.values() if call.awaited and call.end is None]
        waits = [f"{call}{_after(call)}{where}" for call in calls[:MOST_CALLS]]
        for what in waits or ["finished" if rank in ended else f"{NOBODY}{where}"]:
            if rank not in stands.setdefault(what, []):
                stands[what].append(rank)
    rows = list[str]()
    for several in _grouped(stands):
        shown = several if len(several) <= MOST_SIMILAR else several[:1]
        rows += [_row(what, stands[what]) for what in shown]
        if more := {rank for what in several[len(shown) :] for rank in stands[what]}:
            rows.append(f"{len(more)} more, {numbered('rank', more)}, wait in the same way, each for its own")
    for several in _grouped(_not_received(mailboxes)):
        rows += several if len(several) <= MOST_SIMILAR_MESSAGES else [several[0], f"{len(several) - 1} more such rows"]
    if len(rows) > MOST_ROWS:
        rows = [*rows[:MOST_ROWS], f"and {len(rows) - MOST_ROWS} more like these"]
    deadlock = Deadlock("deadlock", line="", waits="\n    ".join(rows))
    deadlock.lines = lines
    return deadlock


def in_circle(waits: Sequence[Wait], lines: Mapping[int, str], ended: frozenset[int]) -> Deadlock:
    """Return the error of a machine in which nobody can go on and sends wait: each rank's first call, and what that
    waits for. First come the ranks that wait for each other, in a circle."""
    known = {wait.rank: f"its first call is {wait.fact}" for wait in waits}
    order = dict.fromkeys([*Failure("", NOWHERE, 0.0, tuple(waits)).knot(), *sorted(known.keys() | lines.keys())])
    facts = [f"rank {rank}: {known.get(rank, f'it waits for {NOBODY}')}" for rank in order]
    rows = [fact + (f" [{lines[rank]}]" if lines.get(rank) else "") for rank, fact in zip(order, facts, strict=True)]
    rows[MOST_ROWS:] = [f"and {len(rows) - MOST_ROWS} more like these"] * (len(rows) > MOST_ROWS)
    deadlock = Deadlock(
        "deadlock", line="", waits="\n    ".join([*rows, *[_row("finished", sorted(ended))] * bool(ended)])
    )
    deadlock.lines = lines
    return deadlock


def _grouped(rows: Iterable[str]) -> list[list[str]]:
    """Return rows together that differ by nothing but numbers outside of the lines where ranks stand."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        text, bracket, place = row.partition(" [")
        groups.setdefault(_NUMBER.sub("0", text) + bracket + place, []).append(row)
    return [*groups.values()]


def _row(what: str, ranks: Sequence[int]) -> str:
    one, who = len(ranks) == 1, numbered("rank", ranks)
    if what == "finished":
        return f"{who} {'has' if one else 'have'} finished"
    return f"{who} {'waits' if one else 'wait'} for {what}"


def _not_received(mailboxes: Mapping[int, Mailboxes]) -> Iterator[str]:
    """Yield a row for each pair of ranks with messages that no receive has taken."""
    for rank, senders in sorted(mailboxes.items()):
        for sender, mailbox in sorted(senders.items()):
            if mailbox:
                one, way = len(mailbox) == 1, f"from rank {sender} to rank {rank}"
                what = "a message" if one else f"{len(mailbox)} messages"
                not_yet = "is not received yet:" if one else "are not received yet, first"
                yield f"{what} {way} {not_yet} {_carried(mailbox[0])}"


def _after(call: InFlight) -> str:
    """Return what a rank has done last before a call, as the end of a sentence; nothing where it has done nothing. What
    it has loaded counts only where it has done nothing else."""
    before = [*reversed(call.rank.log[: call.index])]
    done = (one for one in before if one.kind not in MARKS and one.end is not None)
    last = next(done, next((one for one in before if one.kind in MARKS), None))
    return "" if last is None else f", after {_in_words(last)}"


def _in_words(record: Done | InFlight) -> str:
    """Return a record of a rank's log as text."""
    if not isinstance(record, InFlight):
        batches = f", micro-batch {show_set(record.batches)}" if record.batches else ""
        return f"{show_call(record.kind, record.layer)}{batches}"
    if record.group is not None:
        return show_call(*record.what)
    if record.sends:
        return f"sending {_carried(record)} to rank {record.peer}"
    return f"receiving {_carried(record)}" + ("" if record.peer is None else f" from rank {record.peer}")


def _carried(call: InFlight) -> str:
    """Return what a message carries, as text."""
    if (labels := call.labels) is None:
        return "a plain value"
    batches = f", micro-batch {show_set(labels.batches)}" if labels.batches else ""
    return f"{labels.kind} of layer {labels.layer}{batches}"
