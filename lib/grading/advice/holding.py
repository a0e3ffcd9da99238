"""What is in memory at the peak of a run, beside what the target's program holds at its own: for memory what the
longest chain is for time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Any

from ...basics.errors import numbered, show_axis, show_call, with_article
from ...basics.units import Elements
from ...course.outlines import Holding, is_known, solution_peak, solution_work
from ...course.specs import Puzzle, taught_later
from ...machine.lives import Held, Peak
from ...machine.outcome import Outcome
from ...record.attention import ATTEND, PROJECT
from ...record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ...record.events import LOADS, Event
from ...record.figures.score import spans_boxes
from ...record.figures.waiting import NEARLY
from ...record.kinds import KINDS, SAVED
from ...record.labels import HOSTS
from ...record.table import stream_of
from ...record.training import BACKWARD, BACKWARD_WEIGHT, FORWARD, LOSS, UPDATE
from .ordering import Ordering

GET_ACTIVATION = "get_activation"  # what gives the first input
WHERE = {"in_flight": " in calls on their way", "inbox": " in messages that it has not received yet"}
"""Where things are that no dictionary of the learner holds, in words."""
MADE_AGAIN = "inner activations that a backward makes again"

LITTLE = 4
"""What nothing reads again comes first only where the excess is at most so many times as much."""
TASKS_GO_ON = "If tasks make these: a task goes on only while the function that has made it awaits something."


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


def holdings(held: Iterable[Held]) -> list[Holding]:
    """Return what is in memory in groups of the same kind and size, the largest groups first."""
    groups = defaultdict[tuple[str, str], list[Elements]](list)
    for one in held:
        groups[one.memory, what_of(one)].append(one.elements)
    found = [Holding(*which, len(sizes), sum(sizes)) for which, sizes in groups.items()]
    return sorted(found, key=lambda group: -group.elements)


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
    event = events[place]
    return {"operation": event.kind, "layer": event.layer, "tick": when(event), "line": _line(peak, place)}


def _came(event: Event) -> float:
    """Return when what an operation makes is there: of a computation its beginning, as its record says."""
    return event.end if event.stream in ("message", "collective") else event.issued


def _line(peak: Peak, place: int) -> str:
    return peak.lines[place] if 0 <= place < len(peak.lines) else ""


def costs_memory(outcome: Outcome, puzzle: Puzzle, goal: str = "target", over: Elements = 0) -> str:
    """Return the largest excess over what the program of a goal, "target" or "star", holds at its peak: what and how
    many, where it comes from, when it is read next, and what to write. Where something else that nothing reads again is
    as much as the goal is missed by, ``over``, what to write is about that. Empty if the run has no notes, or holds no
    more than that program, or that is not known here."""
    peak = outcome.peak
    if peak is None or not is_known(puzzle):
        return ""
    excess = Excess(outcome, peak, puzzle, goal)
    return excess.in_words(over) if excess.memory else ""


def is_unread(held: Held, peak: Peak) -> bool:
    """Return whether something is stored at a peak although nothing reads it again."""
    stored = held.labels is not None and held.memory not in ("in_flight", "inbox")
    # What a call reads that is on its way is carried by that call, stored or not.
    carried = held.last is not None and held.last in calls_on_their_way(peak)
    return stored and held.following is None and not held.stays and held.last != peak.at and not carried


def calls_on_their_way(peak: Peak) -> set[int]:
    """Return the places of the calls in flight at a peak: each is known by what it carries, which it has read, or by
    what it has made."""
    return {held.made if held.last is None else held.last for held in peak.held if held.memory == "in_flight"}


def _last_read(unread: Sequence[Held], peak: Peak, events: Sequence[Event]) -> str:
    """Return, as a sentence of its own, which operation has read last the first of what is ``unread``, and its line; or
    an empty text."""
    own = [event for event in events if event.rank == peak.rank]
    for held in unread:
        if held.last is not None and (line := _line(peak, held.last)):
            which = "It" if len(unread) == 1 else "One"
            return f". {which} was read last by {show_call(own[held.last].kind, own[held.last].layer)} ({line})"
    return ""


def _never_read(held: Held) -> bool:
    """Return whether nothing reads something, neither before the peak nor after it."""
    return held.labels is not None and held.last is None and held.following is None and not held.stays


def runs_all(outcome: Outcome, puzzle: Puzzle, goal: str) -> bool:
    """Return whether every rank carries all micro-batches through the same layers, and those of the goal's program deal
    them out."""
    done = defaultdict[int, set[tuple[int | None, int]]](set)
    for event in outcome.events:
        if event.kind == FORWARD.kind:
            done[event.rank] |= {(event.layer, batch) for batch in event.batches}
    first, *others = [done[rank] for rank in range(outcome.ranks)]
    ours = sum(effort.times for (kind, _), effort in solution_work(puzzle, goal).items() if kind == FORWARD.kind)
    every = {batch for _, batch in first} == {*range(outcome.batches)} and outcome.batches > 1
    return every and bool(others) and all(one == first for one in others) and len(first) > ours


ORDER_DECIDES = "the order of the work decides here"


def _unread(unread: Sequence[Held]) -> str:
    groups = _listed(_counted(group.number, group.what) for group in holdings(unread))
    stores = dict.fromkeys(KINDS[held.labels.kind].store for held in unread if held.labels is not None)
    pops = _listed(f"model.{store}.pop(...)" for store in stores)
    if first := _first_inputs(unread):
        return f"{groups} that nothing reads: that is {first}"
    return f"{groups} that nothing reads again: take each tensor out as you use it last, {pops}"


def _first_inputs(unread: Sequence[Held]) -> str:
    """Return what to do about gradients of first inputs, where these are all that is ``unread``, or an empty text."""
    labels = [held.labels for held in unread if held.labels is not None]
    if not labels or any((one.kind, one.layer) != ("ActivationGrad", -1) for one in labels):
        return ""
    first = "what backward(layer 0) gives for the first input, which no layer has made"
    return f"{first}; do not store it, or del it right after that backward"


def whole_across(outcome: Outcome, puzzle: Puzzle) -> str:
    """Return what to do about all-reduces of whole gradients from node to node, where those of the target's program are
    of pieces; or an empty text."""
    ours = solution_work(puzzle, "target").get((ALLREDUCE.kind, True))
    calls = [one for one in outcome.events if (one.kind, one.tensor) == (ALLREDUCE.kind, "WeightGrad")]
    calls = [one for one in calls if spans_boxes(one, outcome.node_size, outcome.beside)]
    whole = bool(calls) and all(one.elements == outcome.cost.weight_elements for one in calls)
    inside = (SCATTERREDUCE.kind, False) in solution_work(puzzle, "target") and puzzle.layout == "whole"
    if not whole or not ours or not inside or ours.ticks / ours.times > calls[0].length - NEARLY:
        return ""
    said = f"whole gradients go from node to node, as in {show_call(calls[0].kind, calls[0].layer)}: reduce-scatter "
    return f"{said}first, inside the node, all-reduce only that piece between nodes, and gather inside the node last"


class Excess:
    """What a run holds too much at its peak. ``memory``: of MEMORY_KINDS the one that is most above the goal's
    program, or an empty text; ``rows``: of what is held there, what that program does not hold."""

    def __init__(
        self,
        outcome: Outcome,
        peak: Peak,
        puzzle: Puzzle,
        goal: str = "target",
        beside: Sequence[Holding] | None = None,
    ) -> None:
        """``beside``: what else this is compared with, in place of what the goal's program holds."""
        self.outcome, self.peak, self.puzzle, self.unit, self.goal = outcome, peak, puzzle, outcome.unit, goal
        self.layers = outcome.layers
        self.events = [event for event in outcome.events if event.rank == peak.rank]
        own, ours = holdings(peak.held), solution_peak(puzzle, goal) if beside is None else beside
        self.ours = ours
        if goal != "target" or beside is not None:
            # What the operation of the peak reads has to be there: where there is little too much, something else goes.
            free = {(held.memory, what_of(held)) for held in peak.held if not self._in_use(held)}
            some = [group for group in own if (group.memory, group.what) in free]
            own = some if _largest(some, ours, lambda group: group.memory) else own
        self.memory = _largest(own, ours, lambda group: group.memory)
        here = [group for group in own if group.memory == self.memory]
        self.there = [group for group in ours if group.memory == self.memory]
        self.what = _largest(here, self.there, lambda group: group.what)
        rows = [held for held in peak.held if held.memory == self.memory and what_of(held) == self.what]
        # What waits for nothing but the half of a backward that can be done at any time.
        self.of_halves = [held for held in rows if self._next_kind(held) == BACKWARD_WEIGHT.kind]
        self.number, self.known = len(rows), sum(group.number for group in self.there if group.what == self.what)
        # What could go first: what nothing reads again, then what is read last. What the operation of the peak reads
        # has to be there, and a result stays.
        rows.sort(key=lambda held: (held.stays, self._in_use(held), held.following is not None, -(held.following or 0)))
        rows.sort(key=self._is_own_keys)
        self.late_halves = 0 < self.number - self.known <= len(self.of_halves)  # they are enough
        if self.late_halves:
            rows.sort(key=lambda held: self._next_kind(held) != BACKWARD_WEIGHT.kind)
        unread = sum(is_unread(held, peak) for held in rows)
        self.batches = {batch for held in rows for batch in self._batches(held)}
        self.rows = rows[: max(1, self.number - self.known, unread)]
        twice = _twice(rows)
        self.calls = sorted(calls_on_their_way(peak))
        self.twice = twice[0] if twice and len(twice) >= len(self.rows) else None
        wholes = [_whole_of(held, peak) for held in rows]
        self.wholes = [whole for whole in wholes if whole is not None and not self.known]  # beside all of these pieces
        self.wholes = self.wholes if len(self.wholes) == self.number else []
        self.all_on_each = runs_all(outcome, puzzle, goal)
        known = {*map(id, [*self.rows, *self.wholes])}
        self.unread = [held for held in peak.held if id(held) not in known and is_unread(held, peak)]

    def _is_own_keys(self, held: Held) -> bool:
        """Return whether these are keys and values that this rank has projected, which it needs for its backward."""
        kind = "" if held.labels is None else held.labels.kind
        return kind == "KeysValues" and self.events[held.made].kind == PROJECT.kind and held.following is not None

    def _next_kind(self, held: Held) -> str:
        """Return the operation that reads something next, or an empty text."""
        return self.events[held.following].kind if held.following is not None else ""

    def waits_for_halves(self) -> str:
        """Return what waits for nothing but halves of backwards for the weight, which can be done at any time; or an
        empty text."""
        late = [held for held in self.peak.held if self._next_kind(held) == BACKWARD_WEIGHT.kind]
        waiting = [held for held in late if held.labels is not None and KINDS[held.labels.kind].by_batch]
        if not waiting:
            return ""
        what = _listed(_counted(group.number, group.what) for group in holdings(waiting))
        wait = f"{what} wait for {BACKWARD_WEIGHT.kind} alone at the peak{self._numbers(waiting)}"
        sooner = f"let these weight halves come sooner on rank {self.peak.rank}"
        return f"{wait}: {sooner}, at the soonest each right after the input half of its layer"

    def _weights_are_whole(self) -> bool:
        """Return whether the goal's program has no pieces of weights at its peak, but all of them."""
        weights = [group.what for group in solution_peak(self.puzzle, self.goal) if group.memory == "weights"]
        return bool(weights) and not any("/" in what for what in weights)

    def _in_use(self, held: Held) -> bool:
        """Return whether the operation that begins at the peak reads it."""
        return held.last == self.peak.at

    def in_words(self, over: Elements = 0) -> str:
        """Return the excess in sentences. ``over``: by how much the goal is missed."""
        holds = (
            f"rank {self.peak.rank} holds {_counted(self.number, self.what)}{WHERE.get(self.memory, '')} at its peak, "
        )
        holds += f"{self._beside()}the {self.goal}'s program {self._theirs(self.memory, self.what)}."
        unread = self._unread_alone(over)
        said = [holds, self.about(), *([unread] if unread else [self.fix(), self._also()])]
        return " ".join(f"{one[0].upper()}{one[1:]}" if at else one for at, one in enumerate(filter(None, said)))

    def _theirs(self, memory: str, what: str) -> str:
        """Return how many such things the goal's program holds at its peak, or else what it has of this memory."""
        there = [group for group in self.ours if group.memory == memory]
        if len(there) == 1 and there[0].what == what:
            return str(there[0].number)
        return _listed(_counted(group.number, group.what) for group in there) if there else "none"

    def _unread_alone(self, over: Elements) -> str:
        """Return what nothing reads again, beside the largest excess, where that alone is as much as ``over``, and not
        little beside that excess."""
        much = sum(held.elements for held in self.unread)
        little = LITTLE * much < sum(held.elements for held in self.rows)
        if not 0 < over <= much or little or any(is_unread(held, self.peak) for held in self.rows):
            return ""
        last = [held.last for held in self.unread if held.last is not None]
        line = next((line for place in last if (line := _line(self.peak, place))), "")
        read = f" It was read last by {self._records(last[:1])}{line and f' ({line})'}." if last else ""
        return f"what need not be there is {_unread(self.unread)}.{read}"

    def _beside(self) -> str:
        """Return what is held beside pieces that are cut from it, or an empty text."""
        whole = self.wholes[0].labels if self.wholes else None
        return "" if whole is None else f"beside the {KINDS[whole.kind].words} from which they are cut, "

    def about(self) -> str:
        """Return where the excess comes from, and when it is read next."""
        if self.memory == "in_flight":
            return self._calls()
        if self.twice:
            one, other = self.twice
            assert one.labels is not None
            if one.made == other.made:
                both = f"that of layer {one.labels.layer} is stored in two places: both from"
                return f"{both} {self._records([one.made])}."
            return f"that of layer {one.labels.layer} is there twice: from {self._records([one.made, other.made])}."
        rows, several = self.rows, len(self.rows) > 1
        which = "they" if len(rows) == self.number else f"{len(rows)} of them"
        which, be = (which, "are") if several else ("it" if self.number == 1 else which, "is")
        made = self._records((held.made for held in rows), came=True)
        said = f"{which}{self._numbers(rows)} come{'s' * (not several)} from {made}"
        later = [held.following for held in rows if held.following is not None and not held.joins]
        added = {held.joins for held in rows if held.joins}
        last = [held.last for held in rows if held.last is not None]
        if added and not later:
            how = "summed" if added == {"+"} else "joined or cut"
            when = self._records([held.following for held in rows if held.following is not None], kinds=False)
            said += f", and {be} {how} at {when}"
        elif later:
            said += self._read_next(rows, later, be)
        elif all(held.stays for held in rows):
            said += f", and {be} kept to the end"
        elif all(map(self._in_use, rows)):
            said += f", and {be} read by the operation that begins there"
        else:
            never = [held for held in rows if held.last is None]
            if 0 < len(never) < len(rows):
                many = "is" if len(never) == 1 else "are"
                said += f", and {len(never)} of these{self._numbers(never)} {many} never read"
            else:
                said += f", and {be} not read again after {self._records(last)}" if last else f", and {be} never read"
        known = Counter(line for held in rows if (line := _line(self.peak, held.made)))
        line = max(known, key=lambda one: known[one], default="")  # the first of those that make most
        return f"{said} ({line})." if line else f"{said}."

    def _read_next(self, rows: Sequence[Held], later: Sequence[int], be: str) -> str:
        """Return, as the end of a sentence, which operations read these things next, and how many nothing reads again.
        ``later``: the places of the former."""
        if len(later) == len(rows):
            return f", and {be} read next by {self._records(later)}"
        said = f"; {len(later)} of these {'is' if len(later) == 1 else 'are'} read next by {self._records(later)}"
        now = sum(self._in_use(held) and held.following is None for held in rows)
        unread = sum(is_unread(held, self.peak) for held in rows)
        which = "the other" if unread == 1 else f"the other {unread}"
        which = which if len(later) + now + unread == len(rows) else f"{unread} of these"
        said += f", {'' if unread else 'and '}{now} by the operation that begins there" * bool(now)
        return f"{said}, and nothing reads {which} again" if unread else said

    def _also(self) -> str:
        """Return a sentence on what is held besides although nothing reads it again."""
        if not self.unread:
            return ""
        read = _last_read(self.unread, self.peak, self.events)
        return f"it also holds {_unread(self.unread).rstrip('.')}{read}."

    def _calls(self) -> str:
        """Return which calls are on their way at the peak."""
        calls = self.calls
        one = len(calls) == 1
        said = f"{'1 call is' if one else f'{len(calls)} calls are'} on {'its' if one else 'their'} way, "
        said += f"with what {'it carries and what it makes' if one else 'they carry and what they make'}: "
        kinds = Counter(self.events[place].kind for place in calls)
        most = sorted(calls, key=lambda place: -kinds[self.events[place].kind])
        line = next((line for place in most if (line := _line(self.peak, place))), "")
        now = self.events[self.peak.at].issued if self.peak.at < len(self.events) else 0.0
        ended = sum(self.events[place].end <= now for place in calls)
        over = f" {ended} of them have ended, and nobody has awaited that so far: a task that is to do it goes on only "
        over += "while the function that has made it awaits something."
        return said + self._records(calls) + (f" ({line})." if line else ".") + over * (ended > 1)

    def _numbers(self, rows: Sequence[Held]) -> str:
        """Return the layers of these things, and the micro-batches of activations, in parentheses."""
        known = [held.labels for held in rows if held.labels is not None]
        # That of an activation's gradient is one less than the key under which it is stored by habit.
        layers = {labels.layer for labels in known if labels.kind != "ActivationGrad"}
        said = [numbered("layer", layers)] if layers else []
        batches = frozenset[int]().union(*[labels.batches for labels in known if KINDS[labels.kind].by_batch])
        said += [numbered("micro-batch", batches)] if batches else []
        return f" ({', '.join(said)})" if said else ""

    def _records(self, places: Iterable[int], kinds: bool = True, came: bool = False) -> str:
        """Return which operations stand at these places of the log, and when they began. ``came``: of communications
        when they ended, which is when what they have brought came."""
        known = [self.events[place] for place in places if 0 <= place < len(self.events)]
        if not known:
            return "the beginning"
        names = " and ".join(dict.fromkeys(event.kind for event in known))
        ticks = [_came(event) if came else event.issued for event in known]
        first, last = (self.unit.brief(round(pick(ticks), 3)) for pick in (min, max))
        when = self.unit.at(first) if first == last else f"{first} to {last} {self.unit.name}"
        return f"{names} at {when}" if kinds else when

    def fix(self) -> str:
        """Return what to write, or an empty text."""
        read = [held for held in self.rows if held.following is not None]
        held = read[0] if 2 * len(read) > len(self.rows) else self.rows[0]
        kind = SAVED if held.labels is None else held.labels.kind
        pop = f"model.{KINDS[kind].store}.pop(...)"
        made = self.events[held.made].kind if 0 <= held.made < len(self.events) else ""
        pieces = "/" not in self.what and any("/" in group.what for group in self.there)
        if self.memory == "in_flight":
            return self._fix_in_flight(kind)
        if self.memory == "inbox":
            if all(map(_never_read, self.rows)):
                return "nothing reads it: leave out that send, and that receive."
            return self._uneven() or "receive it as it comes, or send it later."
        if self.wholes:
            return f"cut each when it is used, and take the whole out with it: {pop}.shard(...)."
        if kind == SAVED and "keep" in self.puzzle.words:
            return "keep less of some layers, as their backward makes it again: keep=..., or no keep at all."
        if self.twice and self.twice[0].made == self.twice[1].made:
            once = f"store it once, model.{self.twice[0].memory}[...]"
            return f"{once}: is the same also under another key, or put into another dictionary?"
        if self.twice:
            return f"take the old one out before the new one is stored, or store it in the place of the old one, {pop}."
        if held.following is None and (held.stays or self._in_use(held)):
            return ""
        if held.following is None:
            return self._fix_of_unread(held, kind, made)
        if pieces and kind == "OptState" and self._weights_are_whole():
            piece = "keep this rank's piece of the state only, state.shard(i, n), and the weight whole; then sum with"
            return f"{piece} model.scatterreduce, update that piece of the weight, weight.shard(i, n), and gather it."
        if pieces and made in LOADS:
            return f"load a piece only: model.{made}(layer, shard, total)."
        if made in LOADS:
            if HOSTS in self.puzzle.words:
                return "leave it to the host, which sends it when the device needs it."
            return "load only what this rank works with."
        shards = {group.what for group in self.there if "/" in group.what}
        if kind == "Weight" and stream_of(made) == "collective" and "/" not in self.what and len(shards) > 1:
            return "keep a shard of each instead, weight.shard(...), and gather these again where they are needed."
        if kind == "Weight" and stream_of(made) == "collective":
            return f"let each go after its use, {pop}, and gather it again for the next one."
        if kind == "WeightGrad":
            if pieces and any(self.events[one.made].kind == ALLGATHER.kind for one in self.rows if one.made >= 0):
                return "leave that gather out: keep this rank's piece of the sum, and update with it."
            return self._fix_of_gradient(held, pieces)
        if self.all_on_each:
            return "let each rank run its own micro-batches only."
        if kind == "Activation" and pieces:
            return self._slice_of_each(held, made)
        if kind == "KeysValues" and made == PROJECT.kind:
            return ""  # its own, which it needs until then
        if kind == "KeysValues":
            again = f"gather it again right before {self.events[held.following].kind}, await model.allgather(kv, layer)"
            back = "the others come round once more in the backward pass"
            return f"keep this rank's own slice only: {again if stream_of(made) == 'collective' else back}."
        if self.late_halves:
            some = f"{len(self.of_halves)} of all" if len(self.of_halves) < self.number else "they"
            sooner = f"let it come sooner, on rank {self.peak.rank}{self._waiting()}"
            return f"{some} wait for {BACKWARD_WEIGHT.kind} alone: {sooner}."
        if kind in ("Activation", SAVED) and len(self.batches) > 1:
            return "let the backward of a micro-batch come sooner, before the forwards of so many others."
        if kind == "Activation" and made == GET_ACTIVATION and self.events[held.following].kind == BACKWARD.kind:
            return self._other_than_this()
        if kind == "ActivationGrad" and (first := self._other_than_this()):
            return first
        then = self.events[held.following].kind
        if then == BACKWARD.kind and len(self.batches) > 1:
            return "let the backward of a micro-batch come sooner, before the forwards of so many others."
        return "" if kind == SAVED else f"let {then} come sooner{self._waiting() * (then == BACKWARD_WEIGHT.kind)}."

    def _waiting(self) -> str:
        """Return, as the end of a sentence, how many weight halves wait at most on the rank, if they are more than in
        the goal's program; or an empty text."""
        own, theirs = Ordering(self.outcome, self.puzzle, self.goal).waiting_halves(self.peak.rank)
        return f": up to {own} wait at a time, in the {self.goal}'s program {theirs}" * (own > theirs)

    def _slice_of_each(self, held: Held, made: str) -> str:
        """Return how a rank keeps its slice of each input. ``made``: the operation that has made all of it."""
        if held.labels is not None and held.labels.extra.of > 1:
            add = "add each up right after its forward, await model.scatterreduce(...), and keep the slice that gives"
            return f"keep no partial sum: {add}, until the backward gathers it."
        if made == ALLGATHER.kind and self._next_kind(held) == BACKWARD.kind:
            only = "each is all of an input, which only the backward of its layer reads"
            return f"{only}: keep this rank's slice, and gather it right before that backward, in its turn."
        return "keep only this rank's slice of each."

    def _uneven(self) -> str:
        """Return which ranks attend to most and to least, where that differs, so that messages wait; or nothing."""
        ticks = defaultdict[int, float](float)
        for event in self.outcome.events:
            ticks[event.rank] += event.length * (event.kind == ATTEND.kind)
        most, least = (find(ticks, key=lambda rank: ticks[rank]) for find in (max, min))
        if ticks[most] <= 1.1 * ticks[least]:
            return ""
        long, short = (self.unit.lasting(float(f"{ticks[rank]:.4g}")) for rank in (most, least))
        waits = f"messages wait for it, since rank {most} attends for {long}, and rank {least} for {short}"
        return f"{waits}: give all ranks the same work."

    def _other_than_this(self) -> str:
        """Return what to do where it is the first input that is held besides, which the last backward of all reads, or
        a gradient that is needed as long, while calls are on their way; or an empty text."""
        if not self.calls:
            return ""
        need = "that one is needed until then, so let something else go first: "
        begins = self.events[self.peak.at] if self.peak.at < len(self.events) else None
        before = f" before {show_call(begins.kind, begins.layer)}" if begins is not None else ""
        return f"{need}{self._calls()} Await one of these{before}, or start it later."

    def _batches(self, held: Held) -> frozenset[int]:
        """Return of which micro-batches something is; what is inside of a layer, of those of the forward."""
        if held.labels is not None:
            return frozenset(held.labels.batches)
        return self.events[held.made].batches if 0 <= held.made < len(self.events) else frozenset()

    def _fix_in_flight(self, kind: str) -> str:
        """Return what to do about what unfinished calls carry."""
        fewer = "so that fewer are on their way at a time."
        known = [self.events[place] for place in self.calls]
        inputs = [one for one in known if (one.kind, one.tensor) == (ALLGATHER.kind, "Activation")]
        begins = self.events[self.peak.at] if self.peak.at < len(self.events) else None
        if inputs and len(inputs) < len(known):
            call = f"{show_call(inputs[0].kind, inputs[0].layer)}, which makes all of an input"
            return f"start {call}, after the other call has been awaited, {fewer}"
        losses = [place for place, one in enumerate(self.events) if one.kind == LOSS.kind]
        if len({one.layer for one in inputs}) > 1 and losses and losses[0] < min(self.calls):
            only = "each of these makes all of an input, which only the backward of its layer reads: start each right"
            return f"{only} before that backward, in the loop over the layers, and not all of them before it, {fewer}"
        if len(known) == 1:
            if inputs and begins is not None and begins.kind == BACKWARD.kind:
                return (
                    f"start it after {show_call(begins.kind, begins.layer)}, which has an input of its own in memory."
                )
            return "await it before the work that goes on beside it, or let that work need less."
        if kind == "WeightGrad" and (whole := whole_across(self.outcome, self.puzzle)):
            return f"{whole}."
        if kind == "WeightGrad" and (left := self._left_to_the_end(known)):
            return left
        back = [one.end for one in self.events if one.kind in (BACKWARD.kind, BACKWARD_WEIGHT.kind)]
        after = min(one.issued for one in known) >= max(back, default=0.0) and len({one.layer for one in known}) > 1
        if kind == "WeightGrad" and (after or len({one.issued for one in known}) == 1):
            task = TASKS_GO_ON
            gathers = self._gathers_for_updates()
            if after and 2 * len(gathers) > len(known):
                which = f"{len(gathers)} of these calls gather gradients, of {numbered('layer', gathers)}, which only"
                return f"{which} updates read: a piece is enough until then, so gather fewer of them ahead of that."
            if len({one.kind for one in known}) > 1:
                return f"await an earlier one after each backward, {fewer} {task}"
            made = f"make each call right after the backward of its layer, and await it soon after, {fewer}"
            return f"{made} Await an earlier one after each backward. {task}"
        if len(gathers := self._gathers_for_updates()) > 1:
            which = (
                f"{len(gathers)} of these calls gather gradients, of {numbered('layer', gathers)}, which only updates"
            )
            return f"{which} read: a piece is enough until then, so gather each shortly before its update, {fewer}"
        now = self.events[self.peak.at].issued if self.peak.at < len(self.events) else 0.0
        if kind == "WeightGrad" and sum(one.end <= now for one in known) > 1:
            return f"right after each backward, await the call that the backward before it has led to, {fewer}"
        if kind == "Weight" and len(known) > 2 and all(one.kind == ALLGATHER.kind for one in known):
            ahead = (
                "call each gather one layer ahead, in the loop over the layers: that of the next layer right before "
            )
            return f"{ahead}the work on this one, whose own has been awaited, {fewer}"
        return f"await a call before the next one is made, {fewer}"

    def _gathers_for_updates(self) -> list[int]:
        """Return the layers whose gradient is being gathered at the peak, where an update is what reads it next, and
        not the one that begins there."""
        waits = [held for held in self.peak.held if held.memory == "in_flight" and self._next_kind(held) == UPDATE.kind]
        made = [self.events[held.made] for held in waits if 0 <= held.made < len(self.events)]
        gathers = [one for one in made if (one.kind, one.tensor) == (ALLGATHER.kind, "WeightGrad")]
        return sorted(one.layer for one in gathers if one.layer is not None)

    def _left_to_the_end(self, known: Sequence[Event]) -> str:
        """Return what to do about calls for gradients after the last backward, where the first call of each such layer
        was made before that, and none of them awaited; or an empty text."""
        back = [at for at, one in enumerate(self.events) if one.kind == BACKWARD.kind]
        layers = {one.layer for one in known}
        if not back or len(layers) < 2 or any(one.issued < self.events[back[-1]].end for one in known):
            return ""
        own = [(at, one) for at, one in enumerate(self.events) if one.tensor == "WeightGrad" and one.layer in layers]
        first = {one.layer: at for at, one in reversed(own)}
        awaited = {place for one in self.events[: back[-1] + 1] for place in one.awaited}
        if awaited & {*first.values()} or sum(at < back[-1] for at in first.values()) < len(layers) - 1:
            return ""
        call = self.events[first[known[0].layer]]
        calls = f"the calls of model.{call.kind} for {numbered('layer', [one for one in layers if one is not None])}"
        said = f"{calls} are made after each backward, and none of them is awaited before the last one is over"
        return f"{said}: after each backward await that of the layer before, and start what comes next for that layer."

    def _fix_of_unread(self, held: Held, kind: str, made: str) -> str:
        """Return what to do about what nothing reads again. ``made``: the operation that it comes from."""
        store = KINDS[kind].store
        at_once, pop = f"del model.{store}[...] at once", f"model.{store}.pop(...)."
        said = f"do not store what this rank never reads, or {at_once}; "
        mixed = len({one.last is None for one in self.rows}) == 2
        if kind == "Weight" and stream_of(made) == "collective" and (mixed or held.last is None):
            return f"{said}gather a weight where it is read, and again for its backward."
        if mixed:
            return f"{said}take out the others as you use them last, {pop}"
        if held.last is None:
            unread = [one for one in self.rows if is_unread(one, self.peak)]
            if first := _first_inputs(unread):
                return f"{'that one' if len(unread) < len(self.rows) else 'it'} is {first}."
            them = "it" if self.number == 1 else "them"
            if len(unread) < len(self.rows):
                them = f"those{self._numbers(unread)} that nothing reads"
                return f"do not store {them}, or {at_once}."
            return f"nothing needs {them}: do not store {them}, or {at_once}."
        return f"take each tensor out as you use it last, {pop}"

    def _is_sum_so_far(self, held: Held) -> bool:
        """Return whether nothing is held yet that could be added to a gradient."""
        same = [one for one in self.peak.held if one.labels is not None and one.labels.kind == "WeightGrad"]
        assert held.labels is not None
        return sum(one.labels.layer == held.labels.layer for one in same if one.labels is not None) == 1

    def _piece_only(self) -> str:
        """Return how a rank keeps only its piece of the sums: over the axis of its sums, and in a pipeline not after
        each backward, as the other ranks that have the layer go on meanwhile."""
        if all(self.events[held.made].kind == SCATTERREDUCE.kind and held.joins == "+" for held in self.rows[:2]):
            return "add each piece to the sum of its layer as soon as it comes."
        ops = [event.op for event in self.events if event.tensor == "WeightGrad" and event.op]
        axis = next((f", axis={show_axis(op[0])}" for op in ops if op[0]), "")
        stage = len({event.layer for event in self.events if event.kind == FORWARD.kind}) < self.layers
        when = "after each round of micro-batches" if stage else "right after each backward"
        return f"keep only this rank's piece, {when}: await model.scatterreduce(grad, layer{axis})."

    def _fix_of_gradient(self, held: Held, pieces: bool) -> str:
        following = "" if held.following is None or held.joins else self.events[held.following].kind
        if pieces:
            return self._piece_only()
        if held.joins == "+" and self._is_sum_so_far(held):
            if HOSTS in self.puzzle.words:
                send = "model.pass_to(model.host, grad), and let the host add up those of all micro-batches"
                return f"send each gradient to the host right after its backward, {send}."
            return f"it is the sum so far of its layer, to which a later backward adds: {ORDER_DECIDES}."
        if held.joins == "+":
            return "add a gradient to the sum of its layer as soon as it is there."
        if following == UPDATE.kind:
            return "update each layer as soon as its gradient is complete, before the next layer's backward."
        if stream_of(following) == "collective":
            layer, backs = held.labels and held.labels.layer, (BACKWARD.kind, BACKWARD_WEIGHT.kind)
            more = any(one.kind in backs and one.layer == layer for one in self.events[held.following or 0 :])
            then = "add up what the calls of a layer give" if more else "update it"
            return f"call {following} for each layer right after its backward, and {then}.{self._called_late()}"
        return "use each gradient as soon as it is there, before the next layer's backward."

    def _called_late(self) -> str:
        """Return, as a sentence, that gradients which are held are brought to their next call only after the last
        backward, and where; or an empty text."""
        following = sorted(held.following for held in self.rows if held.following)
        back = max((one.end for one in self.events if one.kind in (BACKWARD.kind, BACKWARD_WEIGHT.kind)), default=0.0)
        if len(following) < 2 or self.events[following[0]].issued < back:
            return ""
        there = f" ({line})" if (line := _line(self.peak, following[0])) else ""
        said = f" Here these calls come after the last backward{there}. If a task makes them: it goes on only while"
        return f"{said} the function that has made it awaits something."


def _whole_of(piece: Held, peak: Peak) -> Held | None:
    """Return what a piece is cut from, if that is in memory at the peak, too."""
    for held in peak.held:
        if held.labels is not None and piece.labels is not None and held.made == piece.made:
            alike = (held.labels.kind, held.labels.step) == (piece.labels.kind, piece.labels.step)
            if alike and held.labels.is_whole() and not piece.labels.is_whole():
                return held
    return None


def _twice(rows: Sequence[Held]) -> list[tuple[Held, Held]]:
    """Return pairs of things that are the same part of the same, but for the step."""
    known: dict[object, Held] = {}
    pairs = []
    for held in rows:
        if held.labels is not None:
            which = held.labels.changed(step=0)
            if which in known:
                pairs.append((known[which], held))
            known[which] = held
    return pairs


def _largest(own: Sequence[Holding], ours: Sequence[Holding], key: Callable[[Holding], str]) -> str:
    """Return of which memory, or of which thing, there is most more than in the target's program, or an empty text."""
    more = Counter[str]()
    for groups, sign in ((own, 1), (ours, -1)):
        for group in groups:
            more[key(group)] += sign * group.elements  # type: ignore[assignment]
    found = max(more, key=lambda one: more[one], default="")
    return found if found and more[found] > 0 else ""


def _counted(number: int, what: str) -> str:
    return what if what == MADE_AGAIN else f"{number} {what.format(s='s' * (number != 1))}"


def _listed(texts: Iterable[str]) -> str:
    """Return texts as a list in words."""
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last


# -- what need not be there, whatever the program of a goal holds -------------------------------------------------


def spare_in_words(outcome: Outcome, puzzle: Puzzle, goal: str, excess: Elements) -> str:
    """Return what a run with notes holds at its peak and need not hold, if that is as much as an ``excess``, with what
    to write; or an empty text."""
    peak = outcome.peak
    if peak is None:
        return ""
    events = [event for event in outcome.events if event.rank == peak.rank]
    pieces = max((held.labels.total for held in peak.held if held.labels and held.labels.kind == "OptState"), default=1)
    place = "model.rank, model.RANKS" if pieces == outcome.ranks else "..."
    found = [
        *_cut_late(peak, pieces, place, events),
        *_whole_sums(peak, pieces, events, puzzle, goal),
        *_called_early(peak, events),
    ]
    return next((said for saved, said in found if saved >= excess), "")


def _cut_late(peak: Peak, pieces: int, place: str, events: Sequence[Event]) -> Iterator[tuple[Elements, str]]:
    """Yield how much whole weights take more than the pieces that are read of them after the peak, and what to do."""
    now = events[peak.at] if peak.at < len(events) else None
    read = now.layer if now is not None and now.stream == "compute" else None  # as a whole, at this moment
    rows = [
        held
        for held in peak.held
        if held.labels is not None
        and held.labels.layer != read
        and (held.labels.kind, held.memory, held.joins) == ("Weight", "weights", "shard")
        and held.labels.is_whole()
    ]
    if rows and pieces > 1:
        layers = numbered("layer", [held.labels.layer for held in rows if held.labels is not None])
        said = f"rank {peak.rank} holds whole weights at its peak, of {layers}, and reads only a piece after that: "
        cut = f"cut each right after its last backward, model.weights[layer] = model.weights.pop(layer).shard({place})"
        late = _awaited_late(peak, events)
        yield _without_rest(rows, pieces), f"{said}{cut}, before the sum of its gradient is called.{late}"


def _awaited_late(peak: Peak, events: Sequence[Event]) -> str:
    """Return, as a sentence, that sums of gradients wait for more than the backward after them, though they are over by
    then, where that is so; or an empty text. On few ranks their pieces are large, and add up."""
    back = [at for at, one in enumerate(events) if one.kind == BACKWARD.kind]
    taken = {place: at for at, one in reversed([*enumerate(events)]) for place in one.awaited}
    late = 0
    for place, one in enumerate(events):
        after = [at for at in back if at > place][:3]
        if (one.kind, one.tensor) == (SCATTERREDUCE.kind, "WeightGrad") and len(after) == 3:
            late += one.end <= events[after[0]].end and taken.get(place, len(events)) > after[-1]
    if late < 2:
        return ""
    said = (
        " And await each of these sums right after the next backward, as they wait for the last one here, which leaves "
    )
    said += "too many gradients waiting at sizes with fewer ranks. If a task is to do that: it goes on only while the "
    return f"{said}function that has made it awaits something."


def _whole_sums(
    peak: Peak, pieces: int, events: Sequence[Event], puzzle: Puzzle, goal: str
) -> Iterator[tuple[Elements, str]]:
    """Yield how much a whole sum of gradients takes more than the piece with which the rank updates, and what to do."""
    rows = [
        held
        for held in peak.held
        if held.labels is not None
        and held.labels.kind == "WeightGrad"
        and held.labels.is_whole()
        and 0 <= held.made < len(events)
        and events[held.made].kind == ALLREDUCE.kind
    ]
    cuts = any(kind == SCATTERREDUCE.kind for kind, _ in solution_work(puzzle, goal))
    if rows and cuts and pieces > 1:
        layers = numbered("layer", [held.labels.layer for held in rows if held.labels is not None])
        said = f"rank {peak.rank} holds the whole sum of the gradients of {layers} at its peak, and uses 1/{pieces} of"
        later = taught_later(puzzle).get(SCATTERREDUCE.kind)
        of = f", of puzzle {later.number}," if later else ""
        yield (
            _without_rest(rows, pieces),
            f"{said} it: grad = await model.scatterreduce(grad, layer){of} gives that piece only.",
        )


def _without_rest(rows: Sequence[Held], pieces: int) -> Elements:
    return sum(held.elements for held in rows) * Fraction(pieces - 1, pieces)


def _called_early(peak: Peak, events: Sequence[Event]) -> Iterator[tuple[Elements, str]]:
    """Yield how much a call brings that is on its way while the rank computes with something as large, where another
    computation comes before the one that reads what the call brings, or that is an update, which can wait; and what to
    do."""
    now = events[peak.at] if peak.at < len(events) else None
    if now is None or now.stream != "compute":
        return
    for held in peak.held:
        if held.memory != "in_flight" or not 0 <= held.made < peak.at < (held.following or 0) < len(events):
            continue
        assert held.following is not None
        call, reader = events[held.made], events[held.following]
        between = [
            one for one in events[peak.at + 1 : held.following] if one.stream == "compute" and one.length >= call.length
        ]
        if between and call.kind == ALLGATHER.kind:  # a sum that begins later leaves its gradient whole until then
            does = show_call(now.kind, now.layer)
            said = (
                f"{show_call(call.kind, call.layer)} is on its way on rank {peak.rank} during {does}, where memory is "
            )
            said += f"highest, and {show_call(reader.kind, reader.layer)} reads what it brings: start it after {does}, "
            said += "beside "
            yield held.elements, f"{said}{show_call(between[0].kind, between[0].layer)}."
        later = [one for one in events[held.following :] if one.kind == BACKWARD.kind]
        gathers = (call.kind, call.tensor, reader.kind) == (ALLGATHER.kind, "WeightGrad", UPDATE.kind)
        if gathers and later and not between:
            does, beside = show_call(now.kind, now.layer), show_call(later[0].kind, later[0].layer)
            said = (
                f"{show_call(call.kind, call.layer)} makes all of a gradient on rank {peak.rank} during {does}, where "
            )
            said += (
                f"memory is highest, and only {show_call(reader.kind, reader.layer)} reads it: start it after {does}, "
            )
            yield held.elements, f"{said}beside {beside}, and let that update come a turn later."
