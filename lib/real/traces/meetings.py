"""Which calls of several ranks belong together: those of one collective, and the two ends of a message.

All ranks of a group make its collectives in one order. So they are identified by their number, which newer profiles
have (``Seq``), or else by their place in that order; gloo's say no group either, and are counted by their kind. The
n-th message from one rank to another is the n-th that the other receives from it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...basics.errors import numbered
from ...record.collectives import ROWS as COLLECTIVES
from ...record.table import row_of
from .calls import Call, Rank
from .labels import EXCHANGE, MESSAGES, OTHER_CALL

EQUAL = [row.kind for row in COLLECTIVES]
"""Collectives to which all ranks bring as much."""
ALONE = (EXCHANGE, OTHER_CALL)
"""Calls for which a file does not name the other ranks."""


@dataclass(slots=True)
class Meeting:
    """A collective, or a message. ``members``: the call of each rank, of those whose files were read; ``group``: all
    ranks that meet; ``missing``: the ranks among them that did not come, though their files were read; ``name``: how
    messages name it."""

    members: dict[int, Call]
    group: tuple[int, ...]
    name: str
    missing: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """The verb for it."""
        return next(iter(self.members.values())).kind

    @property
    def message(self) -> bool:
        """Whether it is a message from one rank to another."""
        return self.kind in MESSAGES


@dataclass
class Meetings:
    """All meetings of a profile. ``problems``: calls that do not fit together, in sentences; ``notes``: what is not
    known of them."""

    found: list[Meeting] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


Key = tuple[object, ...]


class Whole(NamedTuple):
    """Whether files begin, and end, with the same call: then one that only some ranks have made is one to which others
    did not come. Steps do both, a flight recorder only ends so: what is too long ago, it has forgotten."""

    begins: bool
    ends: bool


def meetings_of(ranks: Sequence[Rank], whole: Whole) -> Meetings:
    """Return which calls belong together."""
    found = Meetings()
    here = [rank.rank for rank in ranks]
    queues = defaultdict[Key, dict[int, list[Call]]](lambda: defaultdict(list))
    lonely = defaultdict[str, int](int)
    for rank in ranks:
        for call in sorted(rank.calls, key=lambda call: call.start):
            ends = call.ends if call.kind in MESSAGES else None
            if ends is not None and rank.rank in ends and ends[0] != ends[1]:
                queues["message", call.group_name, *ends][rank.rank].append(call)
            elif call.kind in (*MESSAGES, *ALONE):
                lonely[call.kind] += 1
            elif call.group is not None or call.group_name:
                queues["group", call.group or call.group_name][rank.rank].append(call)
            else:
                queues["kind", call.kind][rank.rank].append(call)
    for key, queue in queues.items():
        if key[0] == "message":
            _messages(found, key, queue, here)
        else:
            _collectives(found, queue, here, whole)
    _notes(found, ranks, lonely, queues)
    return found


def _messages(found: Meetings, key: Key, queue: Mapping[int, list[Call]], here: Sequence[int]) -> None:
    source, target = int(str(key[-2])), int(str(key[-1]))
    both = [queue.get(rank, []) for rank in (source, target)]
    name = f"message from rank {source} to rank {target}"
    for at in range(max(map(len, both))):
        members = {rank: own[at] for rank, own in zip((source, target), both, strict=True) if at < len(own)}
        missing = tuple(rank for rank in (source, target) if rank in here and rank not in members)
        found.found.append(Meeting(members, (source, target), name, missing))
    counts = [len(own) for own in both]
    if counts[0] != counts[1] and source in here and target in here:
        problem = f"rank {source} sends {counts[0]} messages to rank {target}, which receives {counts[1]}"
        found.problems.append(problem)


def _collectives(found: Meetings, queue: Mapping[int, list[Call]], here: Sequence[int], whole: Whole) -> None:
    calls = [call for own in queue.values() for call in own]
    known = all(call.number is not None for call in calls)
    by_number: dict[int, dict[int, Call]] = defaultdict(dict)
    for rank, own in queue.items():
        for at, call in enumerate(own):
            number = call.number if known and call.number is not None else at + 1
            while known and rank in by_number[number] and call.number is None:
                number += 1
            by_number[number][rank] = call
    group = next((call.group for call in calls if call.group is not None), tuple(sorted(here)))
    expected = [rank for rank in group if rank in here]
    spans = [[number for number, members in by_number.items() if rank in members] for rank in expected]
    least, most = max((min(own) for own in spans if own), default=0), min((max(own) for own in spans if own), default=0)
    edges = 0
    for number, members in sorted(by_number.items()):
        outside = (number < least and not whole.begins) or (number > most and not whole.ends)
        if known and len(members) < len(expected) and outside:
            edges += 1  # of a part of the run of which other files say nothing
            found.found += [Meeting({rank: call}, group, _name(call, number)) for rank, call in members.items()]
            continue
        _meet(found, members, number, group, expected)
    if edges:
        found.notes.append(f"{edges} collectives are only in some of the files, which begin or end at other moments")


def _meet(found: Meetings, members: dict[int, Call], number: int, group: tuple[int, ...], here: list[int]) -> None:
    """Take the calls of a group with one number."""
    kinds = defaultdict[str, dict[int, Call]](dict)
    for rank, call in members.items():
        kinds[call.kind][rank] = call
    missing = tuple(rank for rank in here if rank not in members)
    for kind, own in kinds.items():
        others = tuple(rank for rank in here if rank not in own)
        found.found.append(Meeting(own, group, _name(next(iter(own.values())), number), others))
        sizes = {call.size for call in own.values()} - {0}
        if len(sizes) > 1 and kind in EQUAL:
            each = ", ".join(f"rank {rank} {call.size:,} bytes" for rank, call in sorted(own.items())[:4])
            found.problems.append(f"{_name(next(iter(own.values())), number)}: ranks bring different sizes: {each}")
    if len(kinds) > 1:
        where = ", ".join(f"{numbered('rank', [*own])} in {_word(kind)}" for kind, own in kinds.items())
        found.problems.append(f"ranks meet in different collectives: {where} (number {number}{_of(members)})")
    if missing:
        call = next(iter(members.values()))
        found.problems.append(f"{numbered('rank', [*missing])} did not come to {_name(call, number)}")


def _word(kind: str) -> str:
    row = row_of(kind)
    return row.word if row is not None else kind


def _of(members: Mapping[int, Call]) -> str:
    call = next(iter(members.values()))
    return f" of group {call.group_name}" if call.group_name else ""


def _name(call: Call, number: int) -> str:
    return f"{_word(call.kind)} {number}{_of({0: call})}"


def _notes(found: Meetings, ranks: Sequence[Rank], lonely: Mapping[str, int], keys: Iterable[Key]) -> None:
    if count := sum(lonely[kind] for kind in MESSAGES):
        found.notes.append(f"{count} messages do not say with whom: profile with record_shapes=True")
    if lonely[EXCHANGE]:
        found.notes.append(f"{lonely[EXCHANGE]} batches of sends and receives do not say with whom")
    if any(key[0] == "kind" for key in keys) and any(rank.groups > 1 for rank in ranks):
        found.notes.append("gloo's collectives do not say their group: all ranks are taken to meet")
