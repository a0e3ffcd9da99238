"""What to do where a rank runs several tasks, and one of them waits for what the rank's own code has to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...basics.errors import numbered, show_call
from ...record.table import sums
from ...record.training import BACKWARD, FORWARD
from ..in_flight import InFlight

TASK = ", a task that waits at "
"""What stands between the lines at which the tasks of a rank wait, first that of its function."""
OWN = ", for what this rank's own code does"
"""What stands after a line at which a task waits for no call, but for an Event, a Future or a queue."""


def place_of(call: InFlight, line: str, kinds: Sequence[str]) -> str:
    """Return at which of the lines of its rank a call is awaited, where that is known. ``kinds``: of all its calls."""
    known = [one for one in line.split(TASK) if f".{call.kind}(" in one]
    return known[0] if TASK in line and len(known) == 1 == kinds.count(call.kind) else line


def own_waits(line: str) -> list[str]:
    """Return the lines at which tasks of a rank wait for what its own code does."""
    return [one.removesuffix(OWN) for one in line.split(TASK) if one.endswith(OWN)]


def held_up(waits: Sequence[InFlight], lines: Mapping[int, str]) -> str:
    """Return what to do where ranks are missing from a collective, as their own code waits for itself; or nothing.
    ``waits``: the calls for which ranks wait; ``lines``: where each rank stands."""
    calls: dict[int, list[InFlight]] = {}
    for call in waits:
        calls.setdefault(call.rank.rank, []).append(call)
    missing = sorted({rank for call in waits if call.group is not None for rank in call.missing()})
    idle = sorted(rank for rank in lines if rank not in calls)
    for rank in [*(one for one in missing if one in lines), *(one for one in idle if one not in missing)]:
        own, line = own_waits(lines[rank]), lines[rank]
        if rank not in calls and len(own) == 1:
            return _alone(numbered("rank", [one for one in idle if lines[one] == line]), own[0])
        if rank not in calls and len(own) > 1:
            both = f"rank {rank} waits at {own[0]}, and at {own[1]}, each for what its own code does"
            return f"{both}: they wait for each other. Let one of them do its part, .set() or put, before it waits"
        if own:
            call = next((one for one in calls[rank] if one.group is None), calls[rank][0])
            return _in_turn(rank, own[0], call, place_of(call, line, [one.kind for one in calls[rank]]))
    return ""


def sums_from_below(waits: Sequence[InFlight]) -> str:
    """Return that the sum of a lower layer is called before those of the layers above, where a rank is missing from it
    that has not gone back through that layer; or an empty text."""
    for call in waits:
        layer = call.layer
        if not sums(call.kind) or type(layer) is not int or layer + 1 >= call.rank.layers:
            continue
        ranks = call.rank.ranks
        above = [one for other in ranks.values() for one in other.log if sums(one.kind) and (one.layer or 0) > layer]
        late = [rank for rank in call.missing() if rank in ranks and not ranks[rank].has_run(BACKWARD.kind, layer)]
        if late and not above and any(ranks[rank].has_run(FORWARD.kind, layer) for rank in late):
            said = f"{show_call(*call.what)} is called before that of any later layer, and {numbered('rank', late)} "
            said += (
                f"{'has' if len(late) == 1 else 'have'} not run backward({layer}, ...): backward goes from the last "
            )
            return f"{said}layer down, so call the sums in that order, for layer in reversed(range(model.LAYERS))"
    return ""


def one_for_all(waits: Sequence[InFlight], lines: Mapping[int, str]) -> str:
    """Return that an object of one rank serves others, where they wait and have no call, while that one has several at
    the very line; or an empty text."""
    ranks = [call.rank.rank for call in waits]
    for rank in sorted({rank for rank in ranks if ranks.count(rank) > 1 and rank in lines}):
        idle = [one for one, line in sorted(lines.items()) if one not in ranks and line == lines[rank] != ""]
        if idle and OWN not in lines[rank] and TASK not in lines[rank]:
            stand = f"{numbered('rank', idle)} stand{'s' * (len(idle) == 1)} at {lines[rank]}, and the calls made there"
            stand += f" are those of rank {rank}: an object that keeps its model serves other ranks, too. Make one for "
            return f"{stand}each rank, inside of the function, and keep none in a global name or a default argument"
    return ""


def _alone(ranks: str, line: str) -> str:
    """Return what to do where nothing of a rank is at work beside a line at which it waits for its own code."""
    wait = "s" * ("ranks" not in ranks)
    said = f"{ranks} wait{wait} at {line}, and nothing else of {'this rank' if wait else 'these ranks'} is at work that"
    said += " could end that wait. Is what it waits for, such as .set() or put, left out, or is it in code that comes"
    said += (
        " after this line? Do it before; or let both run side by side, await asyncio.gather(one(), other()), and not"
    )
    return f"{said} one after the other"


def _in_turn(rank: int, own: str, call: InFlight, line: str) -> str:
    """Return what to do where a rank waits for its own code, and its other task for a call."""
    verb = show_call(*call.what) if call.group is not None else f"a message of rank {call.peer}"
    if call.group is None and call.peer is None:
        verb = "a message"
    verb = f"{call.kind} to rank {call.peer}" if call.sends else verb
    said = (
        f"rank {rank} waits at {own}, for what its own code does, and another task of it waits for {verb}, at {line}. "
    )
    said += (
        f"That comes only when rank {rank} goes on: is what the first line waits for, such as .set(), done on the way "
    )
    return f"{said}to the second one? If it comes after that, or nowhere, the two wait for each other"
