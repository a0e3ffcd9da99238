"""The dumps of NCCL's flight recorder: the last calls of the network that a rank has made, and which of them ended.

PyTorch writes them when a collective takes too long, one file a rank, as a pickle or as JSON. The recorder sees calls
only, so all other time of a rank is time of which it knows nothing.
"""

import re
from math import prod
from pathlib import Path
from typing import Any

from .calls import Call, Rank, Work, natural
from .kineto import groups_of, rank_named
from .labels import MESSAGES, UNRECORDED, bytes_of, call_of
from .streams import damaged

_ENDS = re.compile(r"(\d+)\s*(->|<-)\s*(\d+)")


def is_dump(value: Any) -> bool:
    """Return whether plain data is a dump of the flight recorder."""
    return isinstance(value, dict) and isinstance(value.get("entries"), (list, tuple)) and "version" in value


def rank_of(path: Path, dump: Any) -> Rank:
    """Return the calls in the data of a dump (in ``streams.values_of``). Raise PuzzleError if it is none."""
    if not is_dump(dump):
        expected = "the dump of torch.distributed's flight recorder, which has a version and a list of entries"
        raise damaged(path, "is no dump of a flight recorder", expected)
    known = natural(dump.get("rank"))
    rank = rank_named(path) if known is None else known
    if rank is None:
        expected = "a name that ends in the rank, as PyTorch gives them: nccl_trace_rank_3"
        raise damaged(path, "has no rank in it, nor in its name", expected)
    entries = [entry for entry in dump["entries"] if isinstance(entry, dict)]
    base = min((int(entry["time_created_ns"]) for entry in entries), default=0)
    config = dump.get("pg_config")
    groups = groups_of(config.items() if isinstance(config, dict) else ())
    found = Rank(rank, path.name, base, backend="nccl", groups=len(set(groups.values())) or 1)
    found.calls = [_call(entry, base, rank, groups) for entry in entries]
    _in_turn(found.calls, entries, base)
    found.world = max((len(group) for group in groups.values()), default=0) or None
    found.work = _between(found.calls)
    return found


def _call(entry: dict[str, Any], base: int, rank: int, groups: dict[str, tuple[int, ...]]) -> Call:
    """Return a call. It begins when the GPU has begun it, or else when Python has made it. Where it says how long it
    took, it ends so much later: the recorder looks only now and then, some 100 ms apart, whether calls are over."""

    def moment(name: str) -> float | None:
        nanoseconds = entry.get(name)
        return None if nanoseconds is None else (int(nanoseconds) - base) / 1e3

    name, begun = str(entry.get("profiling_name", "")), moment("time_created_ns") or 0.0
    end, took = moment("time_discovered_completed_ns"), entry.get("duration_ms")
    ended = end is not None and str(entry.get("state", "completed")) == "completed"
    if ended and end is not None and took is not None:
        end = min(end, begun + 1e3 * float(took))
    elif ended and end is not None:
        started = moment("time_discovered_started_ns")
        begun = max(begun, min(end, started if started is not None else begun))
    call = Call(call_of(name), begun, end if ended else None)
    group = entry.get("process_group") or (entry.get("pg_id", ""), "")
    call.group_name = str(group[0] if isinstance(group, (list, tuple)) and group else group)
    call.group = groups.get(call.group_name)
    if call.kind in MESSAGES:
        _set_ends(call, name, rank)
    else:
        number = entry.get("collective_seq_id", entry.get("seq_id"))
        call.number = natural(number, 1 << 62)
    for way in ("input", "output"):
        both = zip(entry.get(f"{way}_sizes") or (), entry.get(f"{way}_dtypes") or (), strict=False)
        call.size = max(call.size, sum(bytes_of(prod(map(int, size)), kind) for size, kind in both))
    return call


def _in_turn(calls: list[Call], entries: list[dict[str, Any]], base: int) -> None:
    """Let collectives of a group that say how long they took follow each other, as they do on a GPU, none of them later
    than the recorder has seen its end."""
    over = dict[str, float]()
    for call, entry in zip(calls, entries, strict=True):
        if call.end is None or entry.get("duration_ms") is None or call.kind in MESSAGES:
            continue
        took, seen = call.end - call.start, (int(entry["time_discovered_completed_ns"]) - base) / 1e3
        call.end = min(max(call.start, over.get(call.group_name, 0.0)) + took, max(seen, call.end))
        call.start = call.end - took
        over[call.group_name] = call.end


def _set_ends(call: Call, name: str, rank: int) -> None:
    """Find sender and receiver in the name of a message, ``nccl:send 0->1``: places in its group."""
    found = _ENDS.search(name)
    if found is None:
        return
    first, way, second = int(found[1]), found[2], int(found[3])
    source, target = (first, second) if way == "->" else (second, first)
    if call.group is not None and max(source, target) < len(call.group):
        source, target = call.group[source], call.group[target]
    if rank in (source, target):
        call.ends = source, target


def _between(calls: list[Call]) -> list[Work]:
    """Return the time between calls, of which the recorder says nothing."""
    found, over = [], 0.0
    for call in sorted(calls, key=lambda call: call.start):
        if call.start > over:
            found.append(Work(UNRECORDED, over, call.start))
        over = max(over, call.start if call.end is None else call.end)
    return found
