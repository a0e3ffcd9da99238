"""Calls of a right run that is slow which could be made, or awaited, at another time: those that a rank awaits while it
has something else to compute, sends round a ring, and sums of a layer that follow one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...basics.errors import numbered, show_call
from ...record.attention import ATTEND, BACKWARD_ATTEND, BACKWARD_PROJECT, PROJECT
from ...record.collectives import ALLGATHER
from ...record.events import Event
from ...record.figures.waiting import NEARLY
from ...record.kinds import KINDS
from ...record.table import OPERATIONS, RECEIVE, SEND
from ...record.training import FORWARD, UPDATE

GIVEN_BY = {"KeysValues": PROJECT.kind, "KeysValuesGrad": BACKWARD_ATTEND.kind}
"""By what operation a rank makes what goes round a ring."""
READ_BY = {"KeysValues": (ATTEND.kind, BACKWARD_ATTEND.kind), "KeysValuesGrad": (BACKWARD_PROJECT.kind,)}
"""Which operations read it. (A sum is none.)"""
IN_A_ROW = "the calls of a layer follow one another"
AT_THE_END = "that is after the last backward"
IN_ORDER = "the links carry calls in the order in which they were made"
IF_A_TASK = "; if a task makes it: that goes on only while the function that has made the task awaits something"


class Needless(NamedTuple):
    """A collective that its rank has waited for, and what it computes next, which does not need the result."""

    call: Event
    then: Event
    own: Sequence[Event] = ()  # all events of their rank


class Told(NamedTuple):
    """What to do about a message of the longest chain. ``at``: the place of that message in the chain."""

    at: int
    words: str


def needless_waits(events: Sequence[Event]) -> Iterator[Needless]:
    """Yield the collectives during which their rank computes nothing, although the next thing that it computes does not
    need their result: another layer's or micro-batch's. ``events``: of all ranks, of each in its order."""
    for own in by_rank(events).values():
        computed = [event for event in own if event.stream == "compute" and event.length]
        after = 0
        for call in own:
            if call.stream != "collective" or call.layers or not call.length:
                continue
            while after < len(computed) and computed[after].end <= call.start:
                after += 1
            if after < len(computed) and computed[after].start >= call.end and not _needs(computed[after], call):
                yield Needless(call, computed[after], own)


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
    call, then, own = by_verb[verb][0]
    which = f"{show_call(verb, call.layer)} of {numbered('micro-batch', call.batches)}"
    does = show_call(then.kind, then.layer) + (f" of {numbered('micro-batch', then.batches)}" if then.batches else "")
    until = (
        f"a turn later, at the latest before model.{UPDATE.kind}({call.layer}, ...)"
        if call.tensor == "WeightGrad"
        else "in its next turn"
    )
    what = show_call(verb, call.layer) if call.tensor == "WeightGrad" else which
    said = f"rank {call.rank} computes nothing while {what} is on its way, and then {does}, which does not need it"
    if older := _older(call, own):
        first = f"{show_call(verb, older.layer)} has been on its way for longer, and is awaited after it"
        return f"{said}: {first}. Of the calls that you keep, await the oldest one first, calls.pop(0)"
    return f"{said}: keep the call, and await it {until}"


def _older(call: Event, own: Sequence[Event]) -> Event | None:
    """Return the first call like this one that its rank has made before it, and awaits after it, if there is one."""
    taken = {place: at for at, one in enumerate(own) for place in one.awaited}
    here = next(at for at, one in enumerate(own) if one is call)
    alike = [at for at, one in enumerate(own[:here]) if (one.kind, one.tensor) == (call.kind, call.tensor)]
    late = [at for at in alike if at in taken and taken[at] > taken.get(here, len(own))]
    return own[late[0]] if late else None


def by_rank(events: Iterable[Event]) -> dict[int, list[Event]]:
    """Return the events of each rank, in order."""
    known = defaultdict[int, list[Event]](list)
    for event in events:
        known[event.rank].append(event)
    return dict(known)


def late_send(events: Collection[Event], on_chain: Sequence[Event]) -> tuple[Event, int, Event] | None:
    """Return the first send of the longest chain that begins after a computation which does not make what it carries,
    though that was there before, its place in the rank's log, and that computation. Only of what goes round a ring:
    ``lateness.late_messages`` is for stages."""
    ranks, arrives = by_rank(events), _arrivals(events)
    for event in on_chain:
        if event.kind != SEND.kind or event.tensor not in GIVEN_BY:
            continue
        own = ranks[event.rank]
        at = next(place for place, one in enumerate(own) if one is event)
        before = [one for one in own[:at] if one.stream == "compute" and one.length and one.end <= event.start]
        came = [one.end for one in own[:at] if _gives(one, event)]
        late = came and before and not _gives(before[-1], event) and before[-1].start >= max(came) - NEARLY
        if late and not _could_wait(own, at, arrives):
            return event, at, before[-1]
    return None


def _arrivals(events: Iterable[Event]) -> dict[object, float]:
    """Return when each message is there, by its ``op``."""
    return {event.op: event.end for event in events if event.kind == SEND.kind}


def _could_wait(own: Sequence[Event], at: int, arrives: Mapping[object, float]) -> bool:
    """Return whether a rank awaits a send before its next computation, and receives nothing in between that comes as
    late as that ends: then it is the await that comes too soon. ``own``: the rank's events, in which the send stands
    ``at`` a place; ``arrives``: when each message is there."""
    then = next((one for one in own[at + 1 :] if one.stream == "compute" and one.length), None)
    if then is None or own[at].end > then.start + NEARLY or not _is_awaited(own, own[at], then):
        return False
    between = [one for one in own[at + 1 : own.index(then, at)] if one.kind == RECEIVE.kind]
    late = own[at].end - NEARLY
    return not any(one.end <= then.start + NEARLY and arrives.get(one.op, 0.0) >= late for one in between)


def early_receive(events: Iterable[Event], on_chain: Sequence[Event]) -> tuple[Event, int, Event] | None:
    """Return which message of the longest chain, of what goes round a ring, a rank awaits before a computation that
    does not read it: its receive, the place of that in its rank's log, and that computation; or None."""
    carried = {event.op for event in on_chain if event.kind == SEND.kind}
    for own in by_rank(events).values():
        for at, event in enumerate(own):
            then = next((one for one in own[at:] if one.stream == "compute" and one.length), None)
            for place in event.awaited if then is not None else ():
                came = own[place]
                reads = READ_BY.get(came.tensor or "")
                if came.kind != RECEIVE.kind or came.op not in carried or reads is None:
                    continue
                if then.start <= came.end + NEARLY and then.kind not in reads:  # type: ignore[union-attr]
                    return came, place, then  # type: ignore[return-value]
    return None


def _gives(event: Event, send: Event) -> bool:
    """Return whether an operation brings, or makes, what a send carries round a ring."""
    made = event.kind == GIVEN_BY.get(send.tensor or "")
    return event.layer == send.layer and (made or (event.kind == RECEIVE.kind and event.tensor == send.tensor))


def at_the_end(own: Sequence[Event], calls: Sequence[Event], lasting: Callable[[float], str]) -> str:
    """Return what to do about sums of gradients after the last backward of a rank: which could begin before that, and
    how many updates fill the time in which it computes nothing. ``own``: the rank's events."""
    computed = [one for one in own if one.stream == "compute" and one.length]
    back = [one for one in computed if _goes_back(one)][-1]
    idle = own[-1].end - back.end - sum(one.length for one in computed if one.start >= back.end - NEARLY)
    before = [one for one in computed if one.kind == UPDATE.kind and one.end <= back.end + NEARLY]
    more = min(len(before), max(1, round(idle / before[-1].length))) if before and idle > NEARLY else 0
    said = f"{AT_THE_END}: keep some updates for then, which do not need it"
    if called_late := _called_late(own, calls[0].kind, back.end):
        return called_late
    if not before:
        said = f"{AT_THE_END}: start a call, do the updates of layers that are summed already, and await it after them"
    if more > 0:
        nothing = f"{AT_THE_END}, after which rank {back.rank} computes nothing for {lasting(idle)}"
        those = "another update, which does" if more == 1 else f"up to {more} more updates, which do"
        said = f"{nothing}: keep {those} not need it, for then"
        said += _gathered_ahead(own, before[-1], more)
    for call in calls:
        same = [
            one for one in own if (one.tensor, one.layer) == ("WeightGrad", call.layer) and one.issued < call.issued
        ]
        late = call.rank == back.rank and call.layer != back.layer and call.issued >= back.end - NEARLY
        if late and same and same[-1].end <= back.start + NEARLY and same[-1].batches <= call.batches:
            ready, does = show_call(same[-1].kind, call.layer), show_call(back.kind, back.layer)
            start = f"await it and start {show_call(call.kind, call.layer)} before that backward"
            said += f". {ready} is there before {does} begins: {start}"
            break
    return said


def _gathered_ahead(own: Sequence[Event], update: Event, more: int) -> str:
    """Return, as the end of a sentence on updates that are kept for the end, how their gradients wait and when a rank
    gathers these, where it gathers gradients, and that takes less than an ``update``; or an empty text."""
    calls = [one for one in own if one.tensor == "WeightGrad" and one.length and one.stream == "collective"]
    gathers, others = ([one for one in calls if (one.kind == ALLGATHER.kind) == is_one] for is_one in (True, False))
    if not gathers or not others or gathers[-1].length >= update.length:
        return ""
    pieces, each = ("a piece of its gradient", "that") if more == 1 else ("pieces of their gradients", "each")
    last = show_call(others[-1].kind, others[-1].layer)
    start = f"Start {each} gather before {last} is called, and await it after that"
    return f", and until then only {pieces}. {start}: {IN_ORDER}, so a gather behind that one waits for it"


def _called_late(own: Sequence[Event], verb: str, last: float) -> str:
    """Return that nearly all sums of weight gradients by a verb are called after the ``last`` backward of their rank;
    or an empty text. ``own``: its events."""
    calls = [one for one in own if (one.kind, one.tensor) == (verb, "WeightGrad") and not one.layers]
    called, back = {one.layer: one.issued for one in calls}, {one.layer: one.end for one in own if _goes_back(one)}
    at_the_end = {layer for layer, tick in called.items() if layer is not None and tick >= last - NEARLY}
    late = sorted(layer for layer in at_the_end if back.get(layer, last) < last - NEARLY)
    if len(late) < 2 or len(late) < len(called) - 1:
        return ""
    soon = f"rank {own[0].rank} calls {verb} of {numbered('layer', late)} only after its last backward"
    task = "a task goes on only while the function that has made it awaits something, such as an earlier call"
    return f"{soon}: call each as soon as what it reads is there, between the backwards. If a task does: {task}"


def _stages(own: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield each two collectives of a rank that carry the gradient of one layer one after the other. ``own``: its
    events."""
    last = dict[int | None, Event]()
    for one in own:
        if one.stream == "collective" and one.tensor == "WeightGrad" and not one.layers:
            if one.layer in last:
                yield last[one.layer], one
            last[one.layer] = one
        elif _goes_back(one):
            last.pop(one.layer, None)


def _stages_late(own: Sequence[Event], calls: Collection[Event]) -> str:
    """Return which of these sums are called after a whole backward has gone by in which the call before them had ended;
    or an empty text where that is so of one layer at the most. ``own``: the rank's events."""
    back = [one for one in own if _goes_back(one)]
    found = list[tuple[Event, Event, Event]]()
    for before, call in _stages(own):
        free = [one for one in back if one.start >= before.end - NEARLY and one.end <= call.issued + NEARLY]
        if free and call in calls and call.kind != ALLGATHER.kind:  # a gather may wait for its update
            found.append((before, call, free[0]))
    if len(found) < 2:
        return ""
    before, late, between = found[0]
    over = f"as {show_call(before.kind, before.layer)} is over by then"
    said = f"rank {late.rank} could call {show_call(late.kind, late.layer)} before "
    said += f"{show_call(between.kind, between.layer)}, {over}"
    todo = "after each backward, await the call of the layer before it, and start what comes next for that layer"
    task = "it goes on only while the function that has made it awaits a call, and asyncio.sleep(0) brings no result"
    return f"{said}: {todo}. If a task is to do that: {task}"


def _queued(own: Sequence[Event], calls: Collection[Event]) -> str:
    """Return which gather of a gradient a rank calls behind one of these longer calls of another layer, though what it
    gathers is there before that, and computes nothing until both are over; or an empty text. ``own``: its events."""
    inputs, found = {id(call): before for before, call in _stages(own)}, list[tuple[Event, Event]]()
    for at, gather in enumerate(own):
        before = inputs.get(id(gather))
        if gather.kind != ALLGATHER.kind or gather.start <= gather.issued + NEARLY or before is None:
            continue
        on_way = [one for one in own[:at] if one in calls and gather.issued + NEARLY < one.end <= gather.start + NEARLY]
        found += [
            (gather, one)
            for one in on_way
            if one.layer != gather.layer and one.length > gather.length and before.end <= one.issued + NEARLY
        ]
    for gather, first in found:
        if not any(one.stream == "compute" and is_beside(one, gather.issued, gather.end) for one in own):
            layers = {one.layer for one, call in found if call is first and one.layer is not None}
            what = f"the gather{'s' * (len(layers) > 1)} of {numbered('layer', layers)}"
            ahead = show_call(first.kind, first.layer)
            said = f"rank {gather.rank} calls {what} behind {ahead}, and computes nothing until that is over, since "
            reads = "what it reads is" if len(layers) == 1 else "what they read is"
            return f"{said}{IN_ORDER}. As {reads} there before, call {what} first, and {ahead} after that"
    return ""


def sums_in_words(
    events: Iterable[Event], on_chain: Sequence[Event], kind: str, lasting: Callable[[float], str]
) -> str:
    """Return what to do about sums of weight gradients by this verb on the longest chain that all come after the last
    backward of their rank, or one right after another of the same layer; or an empty text. ``lasting``: shows a
    time."""
    ranks = by_rank(events)
    calls = [event for event in on_chain if event.kind == kind and event.tensor == "WeightGrad" and event.length]
    if calls and (behind := _queued(ranks[calls[0].rank], calls)):
        return behind
    last = {rank: max((one.end for one in own if _goes_back(one)), default=0.0) for rank, own in ranks.items()}
    updates = any(event.kind == UPDATE.kind for event in ranks.get(calls[0].rank, ())) if calls else False
    if updates and all(event.start >= last[event.rank] - NEARLY for event in calls):
        return at_the_end(ranks[calls[0].rank], calls, lasting)
    if calls and (late := _stages_late(ranks[calls[0].rank], calls)):
        return late
    for event in calls:
        before = [one for one in ranks[event.rank] if one.stream == "collective" and one.layer == event.layer]
        others = [one for one in before if one is not event and one.length]
        follows = any(min(abs(one.end - event.start), abs(event.end - one.start)) <= NEARLY for one in others)
        if follows and event.end < last[event.rank]:
            if named := beside_in_words(ranks, [event]):
                todo = named.removesuffix(IF_A_TASK)
                return f"{IN_A_ROW}, and {todo}, before the next call{named[len(todo) :]}"
            then = "start one, compute the next backward, and only then await it and start the next one"
            return f"{IN_A_ROW}: {then}"
    return beside_in_words(ranks, calls)


def beside_in_words(ranks: Mapping[int, Sequence[Event]], calls: Iterable[Event]) -> str:
    """Return which of these collectives a rank could have on its way during what it computes right before or after,
    which does not need it; or an empty text. ``ranks``: all events, by rank."""
    for call in calls:
        computed = [one for one in ranks[call.rank] if one.stream == "compute" and one.length]
        before = [one for one in computed if one.end <= call.start + NEARLY]
        then = [one for one in computed if one.start >= call.end - NEARLY]
        if len(before) + len(then) < len(computed):
            continue  # something is computed meanwhile
        what = show_call(call.kind, call.layers or call.layer)
        said = f"rank {call.rank} computes nothing while {what} is on its way"
        made = [at for at, one in enumerate(before) if one.kind == UPDATE.kind and one.layer == call.layer]
        updated = bool(made)
        if call.tensor == "Weight" and made and made[-1] + 1 < len(before):
            first, then_other = (_shown(before[made[-1] + one], computed) for one in (0, 1))
            return f"{said}: start it right after {first}, before {then_other}, and await it after that"
        if call.tensor == "Weight" and not updated:
            if before and before[-1].layer != call.layer and before[-1].end <= call.issued + NEARLY:
                return f"{said}: start it before {_shown(before[-1], computed)}, and await it after that"
            continue
        other = call.layer if call.tensor == "Weight" else None  # an update of the same layer may need the result
        free = [one for one in then if one.kind != UPDATE.kind or other not in (None, one.layer)]
        if free and call.tensor in ("Weight", "WeightGrad") and _is_awaited(ranks[call.rank], call, free[0]):
            back = [one.layer for one in before if _goes_back(one)]
            task = IF_A_TASK * (call.tensor == "WeightGrad" and call.layer in back[:-1])
            todo = f"start it, do {_shown(free[0], computed)}, which does not need it, and await it after that"
            return f"{said}: {todo}{task}"
    return ""


def behind_in_words(ranks: Mapping[int, Sequence[Event]], calls: Iterable[Event]) -> str:
    """Return which of these gathers of weights is on its way while its rank computes nothing, before another collective
    that is awaited first, and beside which computation after that it could be; or an empty text."""
    for call in calls:
        own = ranks[call.rank]
        computed = [one for one in own if one.stream == "compute" and one.length]
        then = next((one for one in computed if one.start >= call.end - NEARLY), None)
        idle = all(one.end <= call.start + NEARLY or one.start >= call.end - NEARLY for one in computed)
        if not idle or then is None or then.layer == call.layer or _is_awaited(own, call, then):
            continue
        later = [one for one in own if one.stream == "collective" and one.length and one.start >= call.end - NEARLY]
        if (behind := next((one for one in later if one.end <= then.start + NEARLY), None)) is not None:
            first, beside = show_call(behind.kind, behind.layer), show_call(then.kind, then.layer)
            said = (
                f"rank {call.rank} computes nothing while {show_call(call.kind, call.layer)} is on its way, and then "
            )
            after = f"start it after that, when what comes of it is stored, beside {beside}"
            return f"{said}awaits {first}, which comes behind it: {after}"
    return ""


def inputs_in_words(ranks: Mapping[int, Sequence[Event]], on_chain: Sequence[Event]) -> str:
    """Return which gather of an input for a backward stands on the longest chain, and could be on its way during the
    backward before it, in which no other collective is; or an empty text. The lowest layer comes first: there, most
    inputs have gone. ``ranks``: all events, by rank."""
    gathers = [one for one in on_chain if (one.kind, one.tensor) == (ALLGATHER.kind, "Activation") and one.length]
    for call in sorted(gathers, key=lambda one: (one.layer or 0, one.rank)):
        own = ranks[call.rank]
        before = [one for one in own if _goes_back(one) and one.length and one.end <= call.start + NEARLY]
        if not before or before[-1].layer == call.layer:
            continue
        start, end = before[-1].start, before[-1].end
        busy = any(one.stream == "collective" and is_beside(one, start, end) for one in own)
        busy = busy or any(one.stream == "compute" and is_beside(one, call.start, call.end) for one in own)
        ran = any(one.kind == FORWARD.kind and one.layer == call.layer and one.end <= start + NEARLY for one in own)
        if ran and not busy:
            what, does = show_call(call.kind, call.layer), show_call(before[-1].kind, before[-1].layer)
            said = f"no call is on its way during {does}, which does not need what {what} brings: start that before it"
            return f"{said}, and await it after it. Do so for as many of the lowest layers as memory allows"
    return ""


def is_beside(event: Event, start: float, end: float) -> bool:
    """Return whether something takes place between two times, at least in part."""
    return bool(event.length) and event.start < end - NEARLY and event.end > start + NEARLY


def messages_in_words(
    events: Collection[Event], on_chain: Sequence[Event], line: Callable[[Event, int], str]
) -> Told | None:
    """Return which message of the longest chain a rank sends or receives while it computes nothing, and what it could
    compute meanwhile. ``line``: finds the learner's line of an event, by its place in the log."""
    ranks, arrives = by_rank(events), _arrivals(events)
    for place, event in enumerate(on_chain):
        own = ranks[event.rank]
        computed = [one for one in own if one.stream == "compute" and one.length]
        before = [one for one in computed if one.end <= event.start + NEARLY]
        then = [one for one in computed if one.start >= event.end - NEARLY]
        idle = len(before) + len(then) == len(computed) and event.length and event.tensor in KINDS
        if not idle or event.kind not in (SEND.kind, RECEIVE.kind):
            continue
        at = next(number for number, one in enumerate(own) if one is event)
        what = f"the {KINDS[event.tensor or ''].word} of {numbered('micro-batch', event.batches)}"
        what += f" ({found})" if (found := line(event, at)) else ""
        nothing = f"rank {event.rank} computes nothing while it {'sends' if event.kind == SEND.kind else 'receives'}"
        if event.kind == SEND.kind and then and _could_wait(own, at, arrives):
            after = f"and then {_shown(then[0], computed)}, which does not need that"
            return Told(place, f"{nothing} {what}, {after}: keep the call, and await it after that")
        if event.kind == RECEIVE.kind and before and abs(before[-1].end - event.issued) <= NEARLY:
            first = f"start that receive before {_shown(before[-1], computed)}"
            return Told(place, f"{nothing} {what}: {first}, and await it after that")
        if event.kind == SEND.kind and (aside := _aside(own, before, event)):
            first = f"and {show_call(aside.kind, aside.layer)}, for which nothing here waits, comes before that"
            then_it = "do it when this message and the one that comes are on their way"
            return Told(place, f"{nothing} {what}, {first}: {then_it}")
    return None


def _aside(own: Sequence[Event], before: Sequence[Event], event: Event) -> Event | None:
    """Return the last update that a rank makes before a message, of another layer, where its weights never travel; or
    None. ``own``: its events; ``before``: what it computes until then."""
    if any(one.tensor == "Weight" and one.length and one.stream != "compute" for one in own):
        return None
    updates = [one for one in before if one.kind == UPDATE.kind and one.layer != event.layer]
    return updates[-1] if updates else None


def _is_awaited(own: Sequence[Event], call: Event, then: Event) -> bool:
    """Return whether a rank has awaited a call before something that it computes after that. ``own``: its events."""
    at, before = (next(place for place, one in enumerate(own) if one is event) for event in (call, then))
    return any(at in one.awaited for one in own[at + 1 : before + 1])


def _shown(event: Event, computed: Iterable[Event]) -> str:
    """Return a computation as text, with its micro-batches where others are carried through a layer, too."""
    several = len({one.batches for one in computed if one.kind != UPDATE.kind}) > 1 and event.kind != UPDATE.kind
    return show_call(event.kind, event.layer) + (f" of {numbered('micro-batch', event.batches)}" if several else "")


def _goes_back(event: Event) -> bool:
    return event.kind in OPERATIONS and OPERATIONS[event.kind].backward
