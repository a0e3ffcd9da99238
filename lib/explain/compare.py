"""What a run does otherwise than a right one: where operands come from, which call comes once too often or never, what
a rank could go on with, and the first difference in the order of things. Numbers of micro-batches are interchangeable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import NamedTuple

from ..record.kinds import KINDS
from .lineage import ancestors, leaves, like, origin, out_of, reads, replaced_by, signature, stored_in
from .notes import LOADS, Call, Line, Notes, Tensor
from .statement import LOOK_AT, Statement, say

CLOSE = 3  # steps back in a lineage at which what two runs do differently is looked for
STATE, AWAIT = "OptState", "await"
Key = tuple[object, ...]
Step = tuple[int, Key, Call]


class Found(NamedTuple):
    """The first difference between where two tensors come from: how they differ, the two, what is behind them, and the
    parts of the two where they are sums."""

    how: str
    own: Tensor
    right: Tensor
    behind: Tensor | None = None
    parts: tuple[Sequence[Tensor], Sequence[Tensor]] = ((), ())
    by: Call | None = None  # the call on the way that reads the first of the two


class Comparison:
    """A run beside a right one at the same size."""

    def __init__(self, notes: Notes, right: Notes) -> None:
        self.notes, self.right = notes, right

    # -- how near they are ---------------------------------------------------------------------------------------------

    @cached_property
    def renamed(self) -> dict[int, int]:
        """By a micro-batch of this run the one that has its part in the right run: which the same rank takes, in the
        same turn. Empty where the ranks take the same ones."""
        own, right = _takers(self.notes), _takers(self.right)
        if own == right or own.keys() != right.keys() or sorted(own.values()) != sorted(right.values()):
            return {}
        return {own[turn]: right[turn] for turn in own}

    def key(self, call: Call) -> Key:
        """Return what a call of this run does, as it can be compared with those of the right run."""
        return _key(call, self.renamed)

    def steps(self, notes: Notes, rank: int, awaits: bool = False) -> list[Step]:
        """Return the work of a rank in order; with ``awaits`` also where it awaits its communications."""
        names, work = self.renamed if notes is self.notes else {}, notes.work(rank)
        steps = [(call.at, ("call", *_key(call, names)), call) for call in work]
        if awaits:
            steps += [(one.fetched, (AWAIT, *_key(one, names)), one) for one in work if one.fetched is not None]
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
        """How near they are: 3 for each rank that does the same in the same order, on the average."""
        total = 0.0
        for rank in self.right.calls:
            own, right = ([key for _, key, _ in self.steps(notes, rank)] for notes in (self.notes, self.right))
            common = sum((Counter(own) & Counter(right)).values())
            order = 0.0
            if len(self.right.calls) <= 16:
                order = SequenceMatcher(None, own, right[: len(own) + 8], autojunk=False).ratio()
            total += 2 * common / (min(len(own), len(right)) or 1) + order + 0.3 * (len(own) == len(right))
        return total / (len(self.right.calls) or 1)

    # -- where operands come from --------------------------------------------------------------------------------------

    def counterpart(self, call: Call) -> Call | None:
        """Return the call of the right run that does the same: of the same layer, and as near as there is one."""
        own, batches = self.notes.calls[call.rank], self._named(call)
        turn = [one for one in own if (one.kind, one.layer) == (call.kind, call.layer)].index(call)
        same = [
            ((one.batches == batches) + (one.batches == batches and one.axis == call.axis), one)
            for one in self.right.calls.get(call.rank, ())
            if (one.kind, one.layer) == (call.kind, call.layer)
            and (call.stream != "collective" or one.carries == call.carries)
        ]
        near = [one for score, one in same if score == max(score for score, _ in same)]
        return near[min(turn, len(near) - 1)] if near else None

    def _named(self, call: Call) -> frozenset[int]:
        """Return the micro-batches of the right run that have the parts of a call's."""
        return frozenset(self.renamed.get(one, one) for one in call.batches)

    def operands(self, call: Call) -> Iterator[Statement]:
        """Yield in what the operands of a call differ from those of its counterpart: the first one that does."""
        right = self.counterpart(call)
        pairs = [*zip(call.operands, right.operands if right else (), strict=False)]
        for own, other in sorted(pairs, key=lambda pair: _nearness(*pair)):  # first those that are visibly others
            if found := difference(own, other):
                yield from self.told(found, call)
                yield from self.lacking(own, other)
                return
            batches = {self.renamed.get(one, one) for one in own.labels.batches}
            others = KINDS[own.labels.kind].by_batch and right is not None and right.batches == self._named(call)
            if (others and batches != other.labels.batches) or (batches == other.labels.batches) > _alike(own, other):
                yield say(LOOK_AT, call=call, tensor=own, out=out_of(own, call))
                yield say("other_tensor", tensor=own, right=other, call=call)
                return
            yield from self.lacking(own, other)
        if right is not None and call.peer is not None and right.peer not in (None, call.peer):
            yield say("other_peer", call=call, right=right)

    def told(self, found: Found, call: Call) -> Iterator[Statement]:
        """Yield what is to say of a difference between where two tensors come from. ``call``: what has read them."""
        how, own, right, behind, (parts, others), by = found
        kind = by.kind if by is not None else call.kind
        readers = [*[one for one in own.readers if one in (by, call)], *own.readers]
        reader = next((one for one in readers if one.kind == kind), next(iter(readers), None))
        if reader is not None:
            yield say(LOOK_AT, call=reader, tensor=own, out=out_of(own, reader))
        if how == "through":
            assert behind is not None
            yield say("first_through", tensor=own, reader=reader, right_steps=_steps(right, behind))
        elif how == "not_through":
            assert behind is not None
            yield say("not_through", tensor=own, reader=reader, steps=_steps(own, behind), right=right)
        elif how == "sum":
            yield from self._of_sums(own, reader, parts, others)
        else:
            yield say("comes_from", tensor=own, reader=reader, right=right)
        if how in ("through", "other"):
            mine = like(right, self.notes)
            if mine is not None and mine is not own and mine.call.rank == own.call.rank:
                yield from whereabouts(mine, self.notes)

    def _of_sums(
        self, own: Tensor, reader: Call | None, parts: Sequence[Tensor], others: Sequence[Tensor]
    ) -> Iterator[Statement]:
        here, there = Counter(map(signature, parts)), Counter(map(signature, others))
        have = {batch for part in parts for batch in part.labels.batches}
        lack = [part for part in others if (there - here)[signature(part)]]
        lack = [part for part in lack if not part.labels.batches & have] or lack
        over = [part for part in parts if (here - there)[signature(part)]]
        if lack:
            yield say("sum_lacks", tensor=own, reader=reader, right=lack[0], count=len(parts), right_count=len(others))
        if over:
            yield say("sum_has", tensor=own, reader=reader, part=over[-1], often=here.keys() == there.keys())

    def lacking(self, own: Tensor, right: Tensor) -> Iterator[Statement]:
        """Yield what has become of a micro-batch of which a gradient lacks its part."""
        named = {self.renamed.get(one, one) for one in own.labels.batches}
        lack = sorted(right.labels.batches - named)
        if not lack or KINDS[own.labels.kind].by_batch:
            return
        back = {right: own for own, right in self.renamed.items()}
        batch = back.get(lack[0], lack[0])
        done = [one for one in self.notes.all_calls() if batch in one.batches and one.stream == "compute"]
        of = own.labels.kind, own.labels.layer
        made = [one for call in done for one in call.results if (one.labels.kind, one.labels.layer) == of]
        yield say("lacks_batch", batch=batch, tensor=made[-1] if made else None, labels=own.labels)
        if made:
            yield from whereabouts(made[-1], self.notes)

    # -- calls too many, and too few -----------------------------------------------------------------------------------

    def twice(self, call: Call) -> Iterator[Statement]:
        """Yield that a rank has made a call once too often."""
        if call.kind == "get_activation":
            taken = [one for one in self.notes.all_calls() if one.kind == call.kind and one.batches & call.batches]
            before = [one for one in taken if one.at < call.at]
            if before:
                yield say("takes_again", call=call, earlier=before[-1], batches=call.batches & before[-1].batches)
            return
        if call.kind == "receive" or not (call.stream or call.kind in LOADS):
            return
        own = [one for one in self.notes.calls[call.rank] if self.key(one) == self.key(call)]
        right = [one for one in self.right.calls.get(call.rank, ()) if _key(one, {}) == self.key(call)]
        if right and len(own) == len(right) + 1 and own[-1].line not in [one.line for one in own[:-1]]:
            yield say("again", call=own[-1], earlier=own[0], right_count=len(right))

    def other_layer(self, call: Call) -> Iterator[Statement]:
        """Yield with which layer the right run makes a call with these operands."""
        mine = [signature(one) for one in call.operands]
        if call.stream != "compute" or not mine:
            return
        for one in self.right.calls.get(call.rank, ()):
            same = one.kind == call.kind and one.batches == self._named(call)
            if same and one.layer != call.layer and [*map(signature, one.operands)] == mine:
                yield say("with_layer", call=call, right=one)
                return

    def next_call(self, rank: int, store: str = "") -> Call | None:
        """Return what comes next on a rank in the right run: the first call that it has not made here, and that reads
        what is kept in a dictionary, if one is named and there is such a call."""
        left = self.beyond(self.right, self.notes, rank)
        reading = [call for call in left if store in [KINDS[kind].store for kind in call.carries]]
        return next(iter([*reading, *left]), None)

    def next_on(self, rank: int, store: str = "") -> Iterator[Statement]:
        """Yield what comes next on a rank in the right run (see ``next_call``), and where is what that reads."""
        call = self.next_call(rank, store)
        if call is not None:
            before = [one for one in self.notes.work(rank) if self.key(one) == _key(call, {}) and not one.failed]
            yield say("comes_next", rank=rank, right=call, more=bool(before))
            yield from self.needs(call, store)

    def loads(self) -> Iterator[Statement]:
        """Yield that a rank loads other layers than in the right run."""
        for rank, kind in [(rank, kind) for rank in sorted(self.notes.calls) for kind in LOADS]:
            own, right = (
                {call.layer: call for call in notes.calls.get(rank, ()) if call.kind == kind and not call.failed}
                for notes in (self.notes, self.right)
            )
            if own.keys() != right.keys():
                layers, right_layers = (tuple(sorted(map(str, loads), key=int)) for loads in (own, right))
                first, twin = (next(iter(loads.values()), None) for loads in (own, right))
                yield say("loads", rank=rank, call=first, layers=layers, right=twin, right_layers=right_layers)
                return

    def finals(self, rank: int | None, layer: int | None) -> Iterator[Statement]:
        """Yield in what the final weights differ: the first one that does."""
        for (of, number), right in sorted(self.right.finals.items(), key=lambda one: (one[0][1], one[0][0])):
            if rank not in (None, of) or layer not in (None, number):
                continue
            own = self.notes.finals.get((of, number))
            if own is None:
                yield say("no_final", rank=of, layer=number, right=right.operands[0])
                return
            found = difference(own.operands[0], right.operands[0]) if own.operands else None
            if found:
                yield from self.told(found, own)
                yield from self.lacking(found.own, found.right)
                return

    # -- order ---------------------------------------------------------------------------------------------------------

    def order(self, awaits: bool = False) -> list[Statement]:
        """Return for each rank the first place at which it does something else, the earliest first."""
        found = []
        for rank in sorted(self.right.calls):
            own, right = (self.steps(notes, rank, awaits) for notes in (self.notes, self.right))
            pairs = enumerate(zip(own, right, strict=False))
            at = next((at for at, pair in pairs if not _same_step(*pair)), min(len(own), len(right)))
            step, other, before = ([*own, None][at], [*right, None][at], own[at - 1] if at else None)
            if step is None and other is None:
                continue
            last = step or before
            said = say(
                "departs",
                rank=rank,
                line=_line(last) if last else None,
                call=step and step[2],
                awaits=bool(step and step[1][0] == AWAIT),
                before=before and before[2],
                right=other and other[2],
                right_awaits=bool(other and other[1][0] == AWAIT),
                later=other is not None and other[1] in [key for _, key, _ in own[at:]],
                known=step is not None and step[1] in [key for _, key, _ in right[at:]],
            )
            found.append((step is None, last[2].tick if last else 0.0, rank, said))
        return [one[-1] for one in sorted(found, key=lambda one: one[:3])]

    def needs(self, call: Call, store: str = "") -> Iterator[Statement]:
        """Yield of what a call of the right run reads whether it has been made here, and where it is. ``store``: only
        of what is kept in that dictionary, if any is."""
        wanted = [one for one in call.operands if KINDS[one.labels.kind].store == store]
        for right in wanted or [one for one in call.operands if one.labels.kind != STATE]:
            mine = like(right, self.notes)
            if right.how == "receive" and (mine is None or mine.call.rank != call.rank):
                yield say("arrives", right=right.call, right_reader=call)
                yield from whereabouts(mine, self.notes) if mine is not None else ()
            elif mine is None:
                yield say("not_made", right=right, right_reader=call)
            elif wanted or stored_in(mine) is None:
                yield from whereabouts(mine, self.notes)

    def message(self, call: Call) -> Iterator[Statement]:
        """Yield what a receive that never ends would bring in the right run, and what has become of that here."""
        sender = call.peer
        ended = [one for one in self.notes.calls[call.rank] if one.kind == call.kind and one.results]
        due = [one for one in self.right.calls.get(call.rank, ()) if one.kind == call.kind and one.results]
        if sender is not None:
            ended, due = ([one for one in some if one.peer == sender] for some in (ended, due))
        if len(ended) >= len(due) or not due[len(ended)].results[0].parents:
            return
        right = due[len(ended)]
        sent = right.results[0].parents[0]
        mine = like(sent, self.notes, sent.call.rank)
        yield say("would_bring", call=call, sender=right.peer, right=sent, right_send=sent.readers[-1])
        if mine is None:
            yield say("not_made", right=sent, right_reader=None)
        else:
            yield from whereabouts(mine, self.notes)


def difference(own: Tensor, right: Tensor) -> Found | None:
    """Return the first difference between where two tensors come from, the deepest first."""
    return _difference(own, right, set(), 0)


def _difference(own: Tensor, right: Tensor, seen: set[tuple[int, int]], depth: int) -> Found | None:
    if (id(own), id(right)) in seen or depth > 60:
        return None
    seen.add((id(own), id(right)))
    parts, others = leaves(own), leaves(right)
    if not parts or not others:
        return None
    here, there = Counter(map(signature, parts)), Counter(map(signature, others))
    if len(parts) == len(others) == 1 or here == there:
        pairs = zip(sorted(parts, key=_order), sorted(others, key=_order), strict=True)
        return next(filter(None, (_pair(one, other, seen, depth) for one, other in pairs)), None)
    made, theirs = ([(part.how, part.labels.kind) for part in some] for some in (parts, others))
    if made == theirs and not here & there:  # they are those of another layer
        return Found("other", parts[0], others[0])
    return Found("sum", own, right, parts=(parts, others))


def _pair(own: Tensor, right: Tensor, seen: set[tuple[int, int]], depth: int) -> Found | None:
    """Return the first difference between where two tensors come from that are no sums made by hand."""
    one, other = signature(own), signature(right)
    if one == other:
        own, right = origin(own), origin(right)
        for parent, twin in zip(own.parents, right.parents, strict=False):
            if found := _difference(parent, twin, seen, depth + 1):
                return found if found.by else found._replace(by=own.call)
        return None
    for behind in ancestors(right, CLOSE):
        if one in map(signature, leaves(behind)):
            return Found("through", own, right, behind)
    for behind in ancestors(own, CLOSE):
        if signature(behind) == other:
            return Found("not_through", own, right, behind)
    return Found("other", own, right)


def _alike(own: Tensor, right: Tensor) -> bool:
    """Return whether two tensors have the same labels, but for the micro-batches."""
    one, other = (labels.coarse().changed(batches=frozenset()) for labels in (own.labels, right.labels))
    return one == other


def _nearness(own: Tensor, right: Tensor) -> tuple[bool, bool]:
    return own.labels.layer == right.labels.layer, _alike(own, right)


def _order(tensor: Tensor) -> tuple[str, int]:
    return str(signature(tensor)), min(tensor.labels.batches, default=0)


def _steps(tensor: Tensor, behind: Tensor) -> list[Call]:
    """Return the calls from one tensor to another that comes of it, in order, without messages."""
    way = [origin(tensor), *ancestors(origin(tensor), CLOSE)]
    return [one.call for one in way[: way.index(behind)]][::-1]


def _key(call: Call, names: dict[int, int]) -> Key:
    by_batch = call.stream == "compute" or call.kind == "pass_to"
    batches = frozenset(names.get(one, one) for one in call.batches) if by_batch else frozenset()
    carries = tuple(sorted(set(call.carries))) if call.stream == "collective" else ()
    layer = None if call.kind == "receive" else call.layer
    return call.kind, layer, batches, carries, str(call.axis or ""), call.peer


def _line(step: Step) -> Line:
    return step[2].awaited if step[1][0] == AWAIT else step[2].line


def _same_step(own: Step, right: Step) -> bool:
    """Return whether two ranks do the same. A receive to which nothing has come has no sender yet."""
    waits = own[2].kind == right[2].kind == "receive" and not own[2].results
    return own[1] == right[1] or (waits and own[2].peer in (None, right[2].peer))


def _takers(notes: Notes) -> dict[tuple[int, int], int]:
    """Return each micro-batch by the first rank that takes it, and its turn there."""
    found: dict[tuple[int, int], int] = {}
    for rank, own in sorted(notes.calls.items()):
        taken = [batch for call in own if call.kind == "get_activation" for batch in sorted(call.batches)]
        new = [batch for batch in dict.fromkeys(taken) if batch not in found.values()]
        found |= {(rank, turn): batch for turn, batch in enumerate(new)}
    return found


# -- where a tensor is, and what has become of it, in one run ------------------------------------------------------


def whereabouts(tensor: Tensor, notes: Notes) -> Iterator[Statement]:
    """Yield where a tensor is at the end of what is noted, or how far it has come."""
    there, over, read = stored_in(tensor), replaced_by(tensor, notes), reads(tensor)
    kept = there or next(reversed(tensor.kept), None)
    if over is not None:
        yield say("stored_over", tensor=tensor, kept=tensor.kept[0], over=over.tensor, line=over.line)
    elif there is not None:
        yield say("is_in", tensor=tensor, kept=there, read=bool(tensor.looked_up))
    elif not tensor.readers:
        yield say("unread", tensor=tensor, kept=kept)
    elif read:
        last = read[-1]
        left = [one for one in last.results if one.labels.kind == tensor.labels.kind and not one.readers]
        over = replaced_by(left[0], notes) if left else None
        if over is not None:
            yield say("result_stored_over", tensor=tensor, call=last, over=over.tensor, line=over.line)
        elif left and last.kind != "pass_to":
            yield say("result_unread", tensor=tensor, call=last)
        elif last.stream == "collective" and last.fetched is None:
            yield say("not_awaited", tensor=tensor, call=last)
        else:
            yield say("read_last", tensor=tensor, call=last, kept=kept)
