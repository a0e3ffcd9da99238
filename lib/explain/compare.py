"""What a run does otherwise than a right one: where operands come from, which call comes once too often or never, what
a rank could go on with, and the first difference in the order of things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..basics.errors import NOWHERE, Place
from ..course.layouts import Size
from ..machine.cost import Cost
from ..record.kinds import KINDS
from ..record.training import FORWARD
from ..recording.verbs import VERBS
from ..recording.wire import ProtocolError
from .lineage import ancestors, leaves, like, on_the_way, origin, out_of, replaced_by, signature, stored_in
from .notes import ADD, LOADS, SCALE, SHARD, Call, Key, Notes, Tensor, noted
from .statement import LOOK_AT, Statement, say

CLOSE, DEEPEST = 3, 60  # steps back in a lineage at which something else is looked for, and at which anything is
STATE, AWAIT, ORTHOGONALIZE = "OptState", "await", "orthogonalize"
RANKS = {verb: [1] for verb in VERBS} | {"pass_to": [1, 3], "receive": [1, 3], "fetch": [1, 4]}
TAKEN = {"get_activation": [3], "fake_grad": [4]}
"""Where the numbers of ranks, and of micro-batches, stand in a call of a recording (see ``recording.verbs``)."""
Step = tuple[int, Key, Any]
NOTHING: Step = 0, ("",), None


class Found(NamedTuple):
    """The first difference between where two tensors come from: how they differ, the two, and what is behind them or
    read besides."""

    how: str
    own: Tensor
    right: Tensor
    behind: Tensor | None = None


class Comparison:
    """A run beside a right one at the same size."""

    def __init__(self, notes: Notes, reference: Reference) -> None:
        self.reference = reference
        self.notes, self.right = self.runs = notes, reference.notes

    # -- how near they are ---------------------------------------------------------------------------------------------

    def steps(self, notes: Notes, rank: int, awaits: bool = False) -> list[Step]:
        """Return the work of a rank in order; with ``awaits`` also where it awaits its communications."""
        work = notes.work(rank)
        steps = [(call.at, ("call", *call.key()), call) for call in work]
        if awaits:
            steps += [(one.fetched, (AWAIT, *one.key()), one) for one in work if one.fetched is not None]
        return sorted(steps, key=lambda step: step[0])

    def beyond(self, these: Notes, those: Notes, rank: int) -> list[Call]:
        """Return the calls of a rank in one of the two runs that it does not make in the other, or not so often."""
        done = Counter(key for _, key, call in self.steps(those, rank) if not call.failed)
        found = []
        for _, key, call in self.steps(these, rank):
            if not done[key]:
                found.append(call)
            done[key] -= done[key] > 0
        return found

    @cached_property
    def score(self) -> float:
        """How near they are: 2 for each rank that does the same in the same order, on the average."""
        total = 0.0
        for rank in self.right.calls:
            own, right = ([key for _, key, _ in self.steps(notes, rank)] for notes in self.runs)
            alike = (Counter(own) & Counter(right)).total() + sum(a == b for a, b in zip(own, right, strict=False))
            total += alike / (min(len(own), len(right)) or 1)
        return total / (len(self.right.calls) or 1)

    @cached_property
    def sends_elsewhere(self) -> bool:
        """Whether ranks send to others than in the right run, most of whom expect it."""
        sent, received = (_peers(self.notes, kind) for kind in ("pass_to", "receive"))
        right_sent = _peers(self.right, "pass_to")
        new = [(rank, peer) for rank in sent for peer in sent[rank] - right_sent[rank]]
        meant = [peer in sent and (rank in received[peer] or not received[peer]) for rank, peer in new]
        return 2 * sum(meant) > len(meant)

    # -- where operands come from --------------------------------------------------------------------------------------

    def counterpart(self, call: Call) -> Call | None:
        """Return the call of the right run that does the same: of the same layer, and as near as there is one. Of
        equally near ones the first that is not made here yet, or of the same turn."""
        own, right = ([one for one in notes.calls[call.rank] if _sort(one) == _sort(call)] for notes in self.runs)
        group = call.carries, call.axis
        same = [one for one in right if call.stream != "collective" or (one.carries, one.axis) == group]
        done = Counter(one.key() for one in own if not one.failed)
        turn = own.index(call) if call in own else len(own)

        def nearness(pair: tuple[int, Call]) -> tuple[object, ...]:
            at, one = pair
            matching = sum(self._same(*some) for some in zip(call.operands, one.operands, strict=False))
            return matching, not done[one.key()], -abs(at - turn)

        return max(enumerate(same), key=nearness, default=(0, None))[1]

    def _same(self, own: Tensor, right: Tensor) -> bool:
        """Return whether two tensors are made in the same way, and are of the same micro-batches."""
        by_batch = KINDS[own.labels.kind].by_batch
        return signature(own) == signature(right) and (not by_batch or own.labels.batches == right.labels.batches)

    def operands(self, call: Call) -> Iterator[Statement]:
        """Yield in what the operands of a call differ from those of its counterpart, first those that are visibly
        others; or what else differs."""
        right = self.counterpart(call)
        if right is None:
            yield from self.elsewhere(call)
            return
        theirs = [one for one in right.operands if not call.wants or one.labels.kind in call.wants.split()]
        pairs = [*zip(call.operands, theirs, strict=False)]
        same = [self._same(*pair) for pair in pairs if KINDS[pair[0].labels.kind].by_batch]
        told = []
        for own, other in sorted(pairs, key=lambda two: (two[0].labels.layer == two[1].labels.layer, _same_part(*two))):
            found = difference(own, other)
            batches = own.labels.batches == other.labels.batches
            turn = KINDS[own.labels.kind].by_batch and not batches and any(same)
            if found or turn or batches > _same_part(own, other):
                told.append(own)
                if own.how == other.how == "receive" and own.call.peer != other.call.peer:
                    sent = own.call.other and self.counterpart(own.call.other)
                    wrong = sent is not None and sent.peer != call.rank  # by the sender: to a rank that it was not for
                    pair = (own.call.other, sent) if wrong else (own.call, other.call)
                    yield say("other_peer", call=pair[0], right=pair[1])
                elif found:
                    yield from self.told(found, call)
                    yield from self.layers() if own.how == "receive" else ()
                    yield from self.lacking(own, other) if len(told) == 1 and call.kind != ADD else ()
                else:
                    yield from self.due(other, own)
                    yield say(LOOK_AT, call=call, tensor=own, out=out_of(own, call))
                    yield say("comes_from", tensor=own, right=other, call=call, out=out_of(own, call))
        if told:
            return
        for own, other in pairs if call.kind != ADD else ():  # of a sum another operand may have it
            yield from self.lacking(own, other)
        if call.peer is not None and right.peer not in (None, call.peer):
            yield say("other_peer", call=call, right=right)

    def due(self, right: Tensor, own: Tensor) -> Iterator[Statement]:
        """Yield where the tensor is that is due in the place of another one."""
        for one in (right, *leaves(right)):
            mine = like(one, self.notes)
            if mine is not None and mine is not own and _same_part(mine, one):
                yield from whereabouts(mine, self.notes)
                return

    def elsewhere(self, call: Call) -> Iterator[Statement]:
        """Yield the first collective that leads to a call, or itself, that the right run does not have, and what reads
        its operand there."""
        known = {one.key()[:-1] for one in self.right.all_calls()}
        for one in sorted([call, *(one.call for one, _ in on_the_way(None, call))], key=lambda one: one.at):
            if one.stream == "collective" and one.key()[:-1] not in known:
                for mine in (like(own, self.right) for own in one.operands):
                    if mine is not None and mine.readers:
                        facts = {"call": one, "tensor": one.operands[0], "right": mine, "right_reader": mine.readers[0]}
                        yield say("goes_elsewhere", **facts)
                        return

    def told(self, found: Found, call: Call) -> Iterator[Statement]:
        """Yield what is to say of a difference between where two tensors come from. ``call``: what has read them."""
        how, own, right, behind = found
        if how == "operand":
            yield say("lacks_operand", call=own.call, right=behind)
            return
        own, reader = self._reader(own, call)
        way = [origin(right), *ancestors(origin(right), CLOSE)]  # to what is behind, without messages
        steps = [one.call for one in way[: way.index(behind)]][::-1] if behind is not None else []
        earlier = {SCALE} & {one.how for one in ancestors(own, CLOSE)}
        if steps and (_sort(reader) == _sort(steps[0]) or {one.kind for one in steps} <= earlier):
            return  # it does that here, too, and only not so often, or earlier
        yield say(LOOK_AT, call=reader, tensor=own, out=out_of(own, reader))
        if how == "sum":
            yield from self._of_sums(own, right, reader)
            return
        if steps:
            yield say("first_through", tensor=own, reader=reader, right_steps=steps)
        else:
            yield say("comes_from", tensor=own, right=right, call=reader, out=out_of(own, reader))
        yield from self.due(right, own)

    def _reader(self, tensor: Tensor, call: Call) -> tuple[Tensor, Call]:
        """Return a tensor and the call that reads it on the way to another one; where it is sent in the same turn of
        the right run, what has come of it."""
        readers = [(one, reader) for one, reader in on_the_way(tensor, call) if tensor in (one, origin(one))]
        own, right = ([one for one in notes.work(tensor.call.rank) if one.kind == "pass_to"] for notes in self.runs)
        pairs = zip(own, right, strict=False)
        sent = [one for one, other in pairs if any(map(self._same, one.operands, other.operands))]
        return (readers[0] if readers[-1][1] in sent else readers[-1]) if readers else (tensor, call)

    def _of_sums(self, own: Tensor, right: Tensor, reader: Call) -> Iterator[Statement]:
        """Yield of two sums made by hand what is lacking in one."""
        parts, others = leaves(own), leaves(right)
        here, there = Counter(map(signature, parts)), Counter(map(signature, others))
        cut = own.labels.shards != right.labels.shards  # then it may lack a piece of any micro-batch
        sums = [one.labels for one in (own, *reader.results) if not cut or one.labels.is_whole()]
        have = {batch for labels in sums for batch in labels.batches}
        lack = [part for part in others if (there - here)[signature(part)] and not part.labels.batches & have]
        if lack:
            yield say("sum_lacks", tensor=own, reader=reader, right=lack[0], count=len(parts), right_count=len(others))

    def lacking(self, own: Tensor, right: Tensor) -> Iterator[Statement]:
        """Yield what has become of a micro-batch of which a gradient lacks its part."""
        lack = sorted(right.labels.batches - own.labels.batches)
        if not lack or KINDS[own.labels.kind].by_batch:
            return
        calls = [one for one in self.notes.all_calls() if one.stream == "compute" and one.tick <= self.notes.until]
        done = [one for one in calls if lack[0] in one.batches]
        of = own.labels.kind, own.labels.layer
        made = [one for call in done for one in call.results if (one.labels.kind, one.labels.layer) == of]
        made = [one for one in made if one.labels.shards == own.labels.shards] or made
        yield say("lacks_batch", batch=lack[0], tensor=made[-1] if made else None, labels=own.labels)
        yield from whereabouts(made[-1], self.notes) if made else self.taken_again()

    # -- calls too many, and too few -----------------------------------------------------------------------------------

    def taken_again(self) -> Iterator[Statement]:
        """Yield that a micro-batch is taken once more: by any rank, where the right run takes each once."""
        own, right = ([one for one in notes.all_calls() if one.kind == "get_activation"] for notes in self.runs)
        once = max(Counter(batch for call in right for batch in call.batches).values(), default=0) == 1
        taken: dict[object, Call] = {}
        for call in sorted(own, key=lambda one: one.at):
            keys = {batch if once else (call.rank, batch): batch for batch in call.batches}
            for key in [key for key in keys if key in taken][:1]:
                yield say("takes_again", call=call, earlier=taken[key], batches=frozenset({keys[key]}))
                return
            taken |= dict.fromkeys(keys, call)

    def otherwise(self, call: Call, rule: str) -> Iterator[Statement]:
        """Yield that a call with these operands is another one in the right run, or comes once too often."""
        own, right = ([one for one in notes.calls[call.rank] if one.kind == call.kind] for notes in self.runs)
        done = [(one.key(), one.options) for one in own if not one.failed]
        same = [one for one in right if len(one.operands) == len(call.operands) and one.operands]
        same = [one for one in same if all(map(self._same, call.operands, one.operands))]
        fits = [one for one in same if (one.layer, one.axis, one.options) == (call.layer, call.axis, call.options)]
        due = [one for one in same if (one.key(), one.options) not in done and not fits and rule != "not_kept"]
        made = [one for one in own if one.key() == call.key() and (call.stream or call.kind in LOADS)]
        count = [one.key() for one in right].count(call.key()) if call.kind != "receive" else 0
        if due:
            yield say("other_call", call=call, right=due[0])
        elif len(made) - 1 == count > 0 and made[-1].line not in [one.line for one in made[:-1]]:
            yield say("again", call=made[-1], earlier=made[0], right_count=count)
        elif call.kind == "get_activation" or rule == "counted_twice":
            yield from self.taken_again()

    def next_on(self, rank: int, store: str = "", place: Place = NOWHERE) -> Iterator[Statement]:
        """Yield what comes next on a rank in the right run, and where is what that reads. It is the first call that the
        rank has not made here, if there is one of those the first that reads what is kept in a dictionary, or that does
        what is done at a place."""
        left = self.beyond(self.right, self.notes, rank) if not self.sends_elsewhere else []
        made = {one.labels: call.kind for call in self.notes.calls[rank] for one in call.results}
        left = [one for one in left if {made.get(its.labels, one.kind) for its in one.results} <= {one.kind}]
        reading = [call for call in left if store in [KINDS[kind].store for kind in call.carries]]
        there = [call for call in left if _sort(call) == (place.operation, place.layer)]
        for call in [*reading, *there, *left][:1]:
            before = [one for one in self.notes.work(rank) if one.key() == call.key() and not one.failed]
            failed = [_sort(one) for one in self.notes.calls[rank] if one.failed]
            if call not in there and _sort(call) not in failed:
                yield say("comes_next", rank=rank, right=call, more=bool(before))
            yield from self.needs(call, store)

    def layers(self) -> Iterator[Statement]:
        """Yield that a rank loads or computes other layers than in the right run: the first one that does."""
        for kind in (*LOADS, FORWARD.kind):
            for rank in sorted(self.notes.calls):
                chosen = ([one for one in run.calls.get(rank, ()) if one.kind == kind] for run in self.runs)
                own, right = ({one.layer: one for one in calls if not one.failed} for calls in chosen)
                if own.keys() - right.keys() or (kind in LOADS and own.keys() != right.keys()):
                    texts = [tuple(sorted(map(str, some), key=int)) for some in (own, right)]
                    line = next((call.line for call in own.values()), None)
                    yield say("layers", rank=rank, verb=kind, line=line, layers=texts[0], right_layers=texts[1])
                    return

    def finals(self, rank: int | None, layer: int | None) -> Iterator[Statement]:
        """Yield in what the final weights differ: the first one that does."""
        for (of, number), right in sorted(self.right.finals.items(), key=lambda one: (one[0][1], one[0][0])):
            own = self.notes.finals.get((of, number))
            if rank in (None, of) and layer in (None, number):
                found = difference(own.operands[0], right.operands[0]) if own is not None else None
                if own is not None and found is not None:
                    yield from [*self.told(found, own), *self.lacking(found.own, found.right)]
                    return
                if own is None and of in self.notes.finished:
                    yield say("no_final", rank=of, layer=number, right=right.operands[0])
                    way = [like(one, self.notes) for one, _ in on_the_way(None, right) if one.how not in LOADS]
                    yield from whereabouts(next(filter(None, way)), self.notes) if any(way) else ()
                    return

    # -- order ---------------------------------------------------------------------------------------------------------

    def order(self, awaits: bool = False, streams: Sequence[str] = (), stuck: bool = False) -> list[Statement]:
        """Return for each rank the first place at which it does something else, the earliest first. ``streams``: of
        which calls the order matters, if not of all; ``stuck``: only where a rank may wait for ever because of it."""
        found = []
        for rank in sorted(self.right.calls) if not self.sends_elsewhere else ():
            own, right = (self.steps(notes, rank, awaits) for notes in self.runs)
            own, right = ([one for one in some if not streams or one[2].stream in streams] for some in (own, right))
            pairs = enumerate(zip(own, right, strict=False))
            at = next((at for at, pair in pairs if not _same_step(*pair)), min(len(own), len(right)))
            if at < max(len(own), len(right)) and (not stuck or self._holds_up(rank, own, right, at)):
                departure = self._departs(rank, own, right, at)
                found.append((at >= len(own), (own or right)[min(at, len(own or right) - 1)][2].tick, rank, departure))
        return [one[-1] for one in sorted(found, key=lambda one: one[:3])]

    def _holds_up(self, rank: int, own: list[Step], right: list[Step], at: int) -> bool:
        """Return whether what a rank does at a step may keep ranks waiting: that is not over, though its peer has not
        returned; or the right run does there what another rank waits for, and this one goes on, and never does it."""
        step, other = ([*some, NOTHING][at] for some in (own, right))
        if step[2] and step[2].fetched is None:
            return step[2].peer not in self.notes.finished or bool(self.beyond(self.notes, self.right, rank))
        waits = [call for call, wait, _ in self.notes.waits.values() if rank in (call.peer, *wait.others)]
        asked = [one for one in waits if other[2] and other[2].peer in (None, one.rank)]
        goes_on = step[2] or rank in self.notes.finished
        return bool(goes_on and asked) and other[1] not in [key for _, key, _ in own]

    def _departs(self, rank: int, own: list[Step], right: list[Step], at: int) -> Statement:
        """Return that a rank departs from the right run at a step. If it comes to that as well, and what comes there is
        lacking up to where it waits for ever, it is said of the call in which it waits."""
        step, other = ([*some, NOTHING][at] for some in (own, right))
        wait = self.notes.waits.get(rank, (None,))[0]
        there = next((place for place, one in enumerate(own) if one[2] is wait), 0)
        own_keys, right_keys = ([key for _, key, _ in some] for some in (own, right))
        first = there > at and other[2] and step[1] in right_keys and other[1] not in own_keys
        at, step = (there, own[there]) if first else (at, step)
        before = NOTHING if not at else own[at - 1] if step[2] else (0, ("",), self.notes.work(rank)[-1])
        call, awaits = (step if step[2] else before)[2], (step if step[2] else before)[1][0] == AWAIT
        facts = {"call": step[2], "before": before[2], "right": other[2], "when": "before it" if first else "there"}
        facts |= {"awaits": step[1][0] == AWAIT, "right_awaits": other[1][0] == AWAIT}
        facts |= {"line": call and (call.awaited if awaits else call.line)}
        return say("departs", rank=rank, ends="returns" if rank in self.notes.finished else "fails", **facts)

    def needs(self, call: Call, store: str = "") -> Iterator[Statement]:
        """Yield of what a call of the right run reads whether it has been made here, and where it is. ``store``: only
        of what is kept in that dictionary, if any is."""
        last = max((one.at for one in self.notes.calls[call.rank] if not one.failed), default=0)
        wanted = [one for one in call.operands if KINDS[one.labels.kind].store == store]
        for right in wanted or [one for one in call.operands if one.labels.kind != STATE]:
            mine = like(right, self.notes)
            came = right.how == "receive" and (mine is None or mine.call.rank != call.rank)
            if mine is None or came:
                anywhere = right.labels.batches and not came  # a piece of a weight is each rank's own
                calls = self.notes.all_calls() if anywhere else self.notes.calls[call.rank]
                if right.labels not in [one.labels for made in calls for one in made.results]:
                    yield say("not_made", right=right, right_reader=call)
                yield from whereabouts(mine, self.notes) if mine is not None else ()
            elif wanted or (stored_in(mine) is None and not (mine.kept and mine.kept[-1].at > last)):
                yield from whereabouts(mine, self.notes)


@dataclass(frozen=True)
class Reference:
    """The recording of a right run of a puzzle at a size, on a machine with these costs."""

    name: str
    recording: Mapping[str, Any]
    size: Size
    cost: str | Cost

    @cached_property
    def notes(self) -> Notes:
        """The notes of the run."""
        return noted(self.recording, self.size, self.cost)

    def numbered(self, places: Mapping[str, Sequence[int]], names: Mapping[int, int]) -> Reference:
        """Return the same run with other numbers: ``places`` says where they stand in a call of the recording."""

        def named(one: Any) -> Any:
            return sorted(map(named, one)) if isinstance(one, list) else names.get(one, one)

        calls = [[*call] for call in self.recording["calls"]]
        for call in calls:
            for at in places.get(call[0], ()):
                call[at] = named(call[at])
        lines, rows, kept = self.recording["diary"]  # a line that computes with its rank would be another one
        rows = [[number, text * (places is not RANKS), file] for number, text, file in rows]
        return replace(self, recording={**self.recording, "calls": calls, "diary": [lines, rows, kept]})


def nearest(notes: Notes, references: Sequence[Reference], any_way: bool = False) -> Comparison | None:
    """Return a run beside the right one that is nearest to it, or the first of these. Return None where there is none,
    or none in which ranks have the same shares, unless that may go about it in ``any_way``. Numbers of ranks with the
    same shares are exchanged, and those of micro-batches that are taken in the same turn."""
    runs = [*references]
    for places, of in ((RANKS, _shares), (TAKEN, _turns)):
        for run in [*runs]:
            if names := _paired(of(run.notes), of(notes)):
                other = run.numbered(places, names)
                with suppress(ProtocolError):  # what it waits for may come in another order now
                    runs += [other] if other.notes.outcome is not None else []
    alike = [Comparison(notes, run) for run in runs if any_way or not _another_way(notes, run.notes)]
    return max(alike, key=lambda one: one.score, default=None)


def _another_way(own: Notes, right: Notes) -> bool:
    """Return whether ranks have other shares than in a right run, and none is on more of them than one is there."""
    here, there = _shares(own, ORTHOGONALIZE), _shares(right, ORTHOGONALIZE)
    often = [max(Counter(one for its in some.values() for one in its).values(), default=0) for some in (here, there)]
    return often[0] <= often[1] and any(here[rank] - there[rank] for rank in here)


def _shares(notes: Notes, *more: str) -> dict[int, set[object]]:
    """Return by rank the layers that it loads, computes and does ``more`` with, and its slices of activations."""
    found: dict[int, set[object]] = {rank: set() for rank in notes.calls}
    for call in notes.all_calls():
        cut = [one.labels for one in call.results if call.kind == SHARD and KINDS[one.labels.kind].by_batch]
        has = call.kind in (*LOADS, FORWARD.kind, *more) and not call.failed
        found[call.rank] |= {(call.kind, call.layer)} if has else {one.piece() for one in cut}
    return found


def _peers(notes: Notes, kind: str) -> dict[int, set[int]]:
    """Return by rank to whom it sends, or from whom it receives."""
    of = {rank: [one.peer for one in own if one.kind == kind] for rank, own in notes.calls.items()}
    return {rank: {peer for peer in peers if type(peer) is int} for rank, peers in of.items()}


def _turns(notes: Notes) -> dict[int, set[object]]:
    """Return by micro-batch the first rank that takes it, and its turn there."""
    found: dict[int, set[object]] = {batch: set() for batch in range(notes.size["batches"])}
    for rank, own in sorted(notes.calls.items()):
        taken = [batch for call in own if call.kind == "get_activation" for batch in sorted(call.batches)]
        new = [batch for batch in dict.fromkeys(taken) if found.get(batch) == set()]
        found |= {batch: {(rank, turn)} for turn, batch in enumerate(new)}
    return found


def _paired(right: dict[int, set[object]], own: dict[int, set[object]]) -> dict[int, int]:
    """Return by a right run's numbers those of another one, where they differ, of what has done nothing else so far."""
    found, left = dict[int, int](), dict.fromkeys(right)
    fits = {number: [one for one in right if own[number] <= right[one]] for number in own}
    for number in sorted(own, key=lambda one: len(fits[one]) or len(own) + 1):  # what fits nowhere comes last
        free = [one for one in fits[number] if one in left] or [*left]
        for one in [number] if number in free else free[:1]:
            found[one] = number
            del left[one]
    return {one: number for one, number in found.items() if one != number}


def difference(own: Tensor, right: Tensor, seen: set[Any] | None = None, depth: int = DEEPEST) -> Found | None:
    """Return the first difference between where two tensors come from, the deepest first. ``seen``: what need not be
    compared again."""
    seen = set() if seen is None else seen
    if (id(own), id(right)) in seen or not depth:
        return None
    seen.add((id(own), id(right)))
    parts, others = leaves(own), leaves(right)
    here, there = Counter(map(signature, parts)), Counter(map(signature, others))
    if len(parts) == len(others) == 1 or here == there:
        pairs = zip(sorted(parts, key=_order), sorted(others, key=_order), strict=True)
        return next(filter(None, (_pair(one, other, seen, depth) for one, other in pairs)), None)
    of = [(one.labels.kind, one.labels.layer, len(others) > 1 or one.labels.piece()) for one in (own, right)]
    if of[0] != of[1]:
        return Found("other", own, right)
    return _behind(own, right, parts, others) or Found("sum", own, right)


def _pair(own: Tensor, right: Tensor, seen: set[Any], depth: int) -> Found | None:
    """Return the first difference between where two tensors come from that are no sums made by hand."""
    if signature(own) != signature(right):
        return _behind(own, right, [own], [right]) or Found("other", own, right)
    own, right = origin(own), origin(right)
    for parent, twin in zip(own.parents, right.parents, strict=False):
        if found := difference(parent, twin, seen, depth - 1):
            return found
    if own.how == SCALE and own.call.options != right.call.options and own.labels.batches == right.labels.batches:
        return Found("other", own, right)
    more = right.parents[len(own.parents) :] if own.call.stream == "compute" else []
    return Found("operand", own, right, more[0]) if more else None


def _behind(own: Tensor, right: Tensor, parts: Sequence[Tensor], others: Sequence[Tensor]) -> Found | None:
    """Return that a tensor is what the one of the right run comes from, a few steps back."""
    for behind in ancestors(others[0], CLOSE) if len(others) == 1 else ():
        same = len({(one.labels.piece(), len(one.labels.batches)) for one in (own, behind)}) == 1
        if same and Counter(map(signature, parts)) == Counter(map(signature, leaves(behind))):
            return Found("through", own, others[0], behind)
    return None


def _same_part(own: Tensor, right: Tensor) -> bool:
    """Return whether two tensors have the same labels, but for the micro-batches."""
    return len({one.labels.coarse().changed(batches=frozenset()) for one in (own, right)}) == 1


def _order(tensor: Tensor) -> tuple[str, int]:
    return str(signature(tensor)), min(tensor.labels.batches, default=0)


def _sort(call: Call) -> Key:
    return call.kind, call.layer


def _same_step(own: Step, right: Step) -> bool:
    """Return whether two ranks do the same. A receive to which nothing has come has no sender yet."""
    waits = own[2].kind == right[2].kind == "receive" and not own[2].results
    return own[1] == right[1] or (waits and own[2].peer in (None, right[2].peer))


def whereabouts(tensor: Tensor, notes: Notes) -> Iterator[Statement]:
    """Yield where a tensor is at the end of what is noted, or how far it has come. Messages and sums are followed."""

    def reads() -> list[Call]:
        return [call for call in tensor.readers if not call.failed and call.tick <= notes.until]

    while stored_in(tensor) is None and reads():
        came = reads()[-1] if reads()[-1].kind == ADD else reads()[-1].other
        if came is None or not came.results:
            break
        [tensor] = came.results
    there, last = stored_in(tensor), next(reversed(reads()), None)
    kept = there or next(reversed(tensor.kept), None)
    left = [one for one in last.results if one.labels.kind == tensor.labels.kind and not one.readers] if last else []
    over, unread = replaced_by(tensor, notes), not last and not tensor.looked_up
    if over is not None:
        yield say("stored_over", tensor=tensor, kept=over[0], over=over[1].tensor, line=over[1].line, unread=unread)
    elif there is not None:
        yield say("is_in", tensor=tensor, kept=there, rank=tensor.call.rank)
    elif last is None:  # or the call that has failed reads it
        yield from () if tensor.readers else (say("unread", tensor=tensor, kept=kept),)
    elif last.kind == "pass_to":
        yield say("not_received", tensor=tensor, call=last)
    elif left or (last.stream == "collective" and last.fetched is None):
        yield say("result_lost", tensor=tensor, call=last, flying=not left)
    else:
        yield say("read_last", tensor=tensor, call=last, kept=kept)
