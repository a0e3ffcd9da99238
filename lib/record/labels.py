"""What a tensor is, in words and sets: kind, layer, step, micro-batches, shards, partial sums.

Labels carry no numbers and no memory address. How they are cut, joined and summed is here, as pure functions from
labels to labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from math import lcm
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from ..basics.errors import NO_OTHERS, Fix, PuzzleError, numbered, show_set
from .causal import ALL, NOTHING, Slices, both, in_both, missing, show_heads, show_slices, to_meet
from .kinds import KINDS, QUERIES, SLICE
from .shards import NONE, WHOLE, Shards, check_fineness, coarsest, one_shard, refined, show_part, union

DEALT = "dealt_like_cards"
"""The rule of a puzzle in which layers go round the ranks, several on each: errors have fixes of their own there."""
IN_A_V = "in_a_v"
"""The rule of a puzzle in which the layers go down the ranks and up again."""
STAGES_IN_A_V = (
    "the stages are in a V here: stage r goes down on rank r, and stage 2 * model.RANKS - 1 - r comes up on it, each "
    "of model.LAYERS // (2 * model.RANKS) layers"
)
"""What to say of them in an error."""
GATHERED, RING = "keys_by_collectives", "keys_go_round"
"""The rules of puzzles in which keys and values are gathered, and in which they go from rank to rank."""
AROUND = (
    "the gradient goes round with the keys that it is of: in each step pass both on, and add what this rank's queries "
    "give to the gradient that has come with these keys, kv_grad + theirs"
)
"""What to say of gradients of keys where these go from rank to rank."""
PARTIAL, SLICES, LISTS, ADAPTER, HOSTS, AXES = "partial=True", "slices", "lists", "adapter", "hosts", "axes"
"""The features that a puzzle has to grant besides operations and their options, by their names in its spec: what a
communication may carry (partial sums, slices of a sequence, several tensors in one call, adapters), hosts, and
collectives over several axes of a mesh at once."""


class ExtraLabels(NamedTuple):
    """The labels that few tensors have. ``parts`` and ``of``: which partial sums, of how many, an activation or its
    gradient is the sum of; of a weight's gradient, over which slices of the sequence it is summed; of queries and keys
    in attention, which slices of the other side they are done with. ``keep``: how much of a layer's inner activations
    was kept. ``adapter``: whether it belongs to an adapter, and not to the layer's own weight. ``homes``: what each
    member of the group brought to the collective that dealt it out or joined it, micro-batches or a piece, for the one
    that brings it back. ``trips``: for each all-to-all that has dealt out tokens, which micro-batches each member of
    the group brought, so that they can go home; where they are home again from one that others have followed, these
    sets are empty. Of one that has turned slices into heads, which slices. Neither is ever shown. ``heads``: which
    heads of attention these are, and of how many pieces of all heads, where slices were turned into heads."""

    parts: Shards = WHOLE
    of: int = 1
    keep: str = ""
    adapter: bool = False
    homes: tuple[frozenset[int] | Slices, ...] = ()
    trips: tuple[tuple[Any, ...], ...] = ()
    heads: Slices = ALL


NO_EXTRA, OF_ADAPTER = ExtraLabels(), ExtraLabels(adapter=True)


class Labels(NamedTuple):
    """The labels of one tensor. ``step`` counts optimizer steps. Sets that do not apply are empty.

    Labels are made and changed by name only, so that a field which is added reaches every tensor. They are hashed and
    copied at each operation: a label that few tensors have belongs in ``ExtraLabels``, not in a field of its own. The
    shards of an activation are slices along the sequence; those of what forward leaves behind are the weight's.
    """

    kind: str
    layer: int
    layers: int
    step: int = 0
    batches: frozenset[int] = NONE
    total_batches: int = 0
    shards: Shards = WHOLE
    total: int = 1
    extra: ExtraLabels = NO_EXTRA

    @property
    def parts(self) -> Shards:
        """Which partial sums it is the sum of, or which slices it is done with."""
        return self.extra.parts

    @property
    def of(self) -> int:
        """How many of these there are."""
        return self.extra.of

    @property
    def keep(self) -> str:
        """How much of a layer's inner activations was kept."""
        return self.extra.keep

    @property
    def adapter(self) -> bool:
        """Whether it is of an adapter, and not of the layer's own weight."""
        return self.extra.adapter

    @property
    def heads(self) -> Shards:
        """Which pieces of all heads of attention it has."""
        return self.extra.heads[0]

    @property
    def of_heads(self) -> int:
        """In how many pieces the heads are cut."""
        return self.extra.heads[1]

    def __str__(self) -> str:
        row = KINDS[self.kind]
        unsaid = {*(("shards", "total") if self.total == 1 else ()), *(() if self.adapter else ("adapter",))}
        unsaid |= {"parts", "of"} if self.of == 1 and self.parts else set()
        unsaid |= {"heads", "of_heads"} if self.of_heads == 1 else set()
        fields = [(name, getattr(self, name)) for name in row.fields if name not in row.brief or name not in unsaid]
        named = [f"{name}={show_set(label) if isinstance(label, frozenset) else repr(label)}" for name, label in fields]
        return f"{self.kind}({', '.join(named)})"

    def changed(self, **labels: object) -> Labels:
        """Return these labels with others in the places of that name. (``_replace`` takes twice the time.)"""
        fields: list[object] = list(self)
        for name, label in labels.items():
            fields[_PLACES[name]] = label
        return _made(fields)

    def is_whole(self) -> bool:
        """Return whether all shards are here, and all partial sums; of slices in attention, whether they have met all
        that they have to meet."""
        if KINDS[self.kind].meets:
            return self.extra.heads == ALL and not self.unmet()[0]
        return len(self.shards) == self.total and len(self.extra.parts) == self.extra.of and self.extra.heads[1] == 1

    def piece(self) -> Slices:
        """Return which piece of its whole it is, in coarsest form."""
        return coarsest(self.shards, self.total)

    def done(self) -> Slices:
        """Return which slices of a sequence it is done with: those of the other side that queries or keys have met, and
        those over which the gradient of a weight is summed."""
        return self.extra.parts, self.extra.of

    def unmet(self) -> Slices:
        """Return which slices of the other side queries or keys have not met yet, of those that they have to meet."""
        return missing(to_meet(self.piece(), KINDS[self.kind].meets), self.done())

    def words(self) -> tuple[str, ...]:
        """Return the features that a puzzle has to grant before a communication may carry this."""
        extra = self.extra
        if extra is NO_EXTRA and self.total == 1:
            return ()
        row = KINDS[self.kind]
        sliced, partial = self.total != 1 and row.piece == SLICE, extra.of != 1 and row.adds == "parts"
        return (*(ADAPTER,) * extra.adapter, *(PARTIAL,) * partial, *(SLICES,) * (sliced and not row.granted))

    def coarse(self) -> Labels:
        """Return the same labels with the shards in their coarsest form: equal for equal tensors."""
        shards, total = coarsest(self.shards, self.total)
        return self.changed(shards=shards, total=total)


_PLACES = {name: place for place, name in enumerate(Labels._fields)}
_made: Callable[[Iterable[object]], Labels] = partial(tuple.__new__, Labels)


@lru_cache(maxsize=1 << 14)  # every rank makes the same ones, and again for every step: found in a third of the time
def of_batches(kind: str, layer: int, layers: int, batches: frozenset[int], total_batches: int) -> Labels:
    """Return the labels of something whole that belongs to these micro-batches."""
    return Labels(kind, layer, layers, batches=batches, total_batches=total_batches)


def of_weight(
    kind: str, layer: int, layers: int, step: int, shards: Shards, total: int, extra: ExtraLabels = NO_EXTRA
) -> Labels:
    """Return the labels of a weight, or of its state. (By position it takes a third of the time.)"""
    return _made((kind, layer, layers, step, NONE, 0, shards, total, extra))


def another_part(labels: Labels, shards: Shards, total: int) -> Labels:
    """Return the labels of another part of the same whole. (As ``changed`` does, in a third of the time.)"""
    kind, layer, layers, step, batches, total_batches, _, _, extra = labels
    return _made((kind, layer, layers, step, batches, total_batches, shards, total, extra))


def others_than(*names: str) -> Callable[[Labels], object]:
    """Return a function that gives all labels but these: equal for parts of one thing."""
    return itemgetter(*[place for place, name in enumerate(Labels._fields) if name not in names])


_thing, _unsummed = others_than("shards", "total"), others_than("extra")
_part, kind_of = attrgetter("shards", "total"), attrgetter("kind")  # functions of C: asked for each member of a group


def experts_of(layer: int, experts: int) -> int:
    """Return how many experts a layer has, where layers with experts have so many: even layers have none."""
    return experts if layer % 2 else 0


def same_pieces(a: Labels, b: Labels) -> bool:
    """Return whether two tensors are the same part of their wholes."""
    return (a.shards == b.shards and a.total == b.total) or (coarsest(a.shards, a.total) == coarsest(b.shards, b.total))


def within(inner: Labels, outer: Labels) -> bool:
    """Return whether the part that ``inner`` is lies inside the part that ``outer`` is."""
    if outer.shards is WHOLE and outer.total == 1:
        return True
    if inner.total == outer.total:
        return inner.shards <= outer.shards
    finer = lcm(inner.total, outer.total)
    return refined(inner.shards, inner.total, finer) <= refined(outer.shards, outer.total, finer)


def overlap(a: Labels, b: Labels) -> bool:
    """Return whether two parts have a piece in common."""
    finer = lcm(a.total, b.total)
    return not refined(a.shards, a.total, finer).isdisjoint(refined(b.shards, b.total, finer))


def cut(labels: Labels, index: int, pieces: int) -> Labels:
    """Return piece ``index`` when this part is cut into ``pieces`` equal ones. Raise PuzzleError for a part with gaps,
    or an index out of range."""
    if not 0 <= index < pieces:
        expected = f"an index from 0 to {pieces - 1}"
        where = f"shard({index}, {pieces}) of {labels}"
        raise PuzzleError(f"there is no piece {index} of {pieces}", where=where, expected=expected)
    count, first = len(labels.shards), min(labels.shards, default=0)
    if not count or max(labels.shards) - first + 1 != count:
        problem, fix = "a part with gaps cannot be cut into equal pieces", "combine the missing shards first"
        raise PuzzleError(problem, where=f"shard({index}, {pieces})", got=str(labels), fix=fix)
    total = labels.total * pieces
    check_fineness(total)
    if count == 1:
        return another_part(labels, one_shard(first * pieces + index), total)
    start = first * pieces + index * count
    return another_part(labels, *coarsest(frozenset(range(start, start + count)), total))


def join(parts: Sequence[Labels], where: str) -> Labels:
    """Return the union of disjoint parts of one thing: same kind, layer, step and micro-batches. Raise PuzzleError when
    the parts are of different things or a piece comes twice."""
    first, thing = parts[0], _thing(parts[0])
    if [*map(_thing, parts)].count(thing) < len(parts):  # in C: asked of every gather
        if KINDS[first.kind].by_heads and any(part.extra.trips != first.extra.trips for part in parts):
            trips = all_trips(parts)
            return join([part.changed(extra=part.extra._replace(trips=trips)) for part in parts], where)
        other = next(part for part in parts if _thing(part) != thing)
        raise _not_one_thing(other, parts, where)
    (shards, total), disjoint = union(tuple(map(_part, parts)))
    if not disjoint:
        raise _comes_twice(parts, where)
    return another_part(first, shards, total)


def all_trips(parts: Sequence[Labels]) -> tuple[tuple[Slices, ...], ...]:
    """Return which slices of all these parts the members of a group brought to each all-to-all that turned them into
    heads. Several groups may have met, each in its own."""
    calls = [zip(*whose, strict=False) for whose in zip(*[part.extra.trips for part in parts], strict=False)]
    return tuple([tuple([union(own)[0] for own in call]) for call in calls])


def _not_one_thing(part: Labels, parts: Sequence[Labels], where: str) -> PuzzleError:
    """Return the error about a part that is of something else than the first one."""
    first = parts[0]
    over = "+ on a rank, model.allreduce or model.scatterreduce over ranks"
    differ = part.kind == first.kind and KINDS[first.kind].adds == "batches" and part.batches != first.batches
    fix, on_a_ring = "join shards of one kind, layer and step", ""
    if part.adapter != first.adapter:
        fix = "gather adapters with adapters, and the layer's own weight in a call of its own"
    elif part.extra.heads != first.extra.heads:
        fix = "these are of different heads: heads become slices again, all of them, where those of the same slices "
        fix += f"meet, await model.alltoall(..., {first.layer})"
    elif KINDS[part.kind].meets:
        fix = "parts that are joined have met the same slices: join what is read first, and then attend to it"
        if part.kind == first.kind == "KeysValuesGrad" and (part.layer, part.batches) == (first.layer, first.batches):
            fix, on_a_ring = _of_several_keys(part, first, where)
    elif part.extra != first.extra:
        fix = f"add up the partial sums first: await model.scatterreduce(..., {first.layer}) gives each rank its "
        fix += "slice of the sum"
        if part.extra.of > 1 and 1 not in (part.total, first.total):
            fix += ". Were they cut by .shard(...)? That sums nothing: leave it out, and keep what scatterreduce gives"
    elif KINDS[part.kind].by_batch and part.batches != first.batches:
        fix = "these are of different micro-batches, and stay apart: let each rank go on with its own"
    fix = f"gradients of different micro-batches are summed: {over}" if differ else fix
    if differ and not any(one.is_whole() for one in parts):
        fix += ". Were these pieces made by shard, which cuts and sums nothing? await model.scatterreduce(grad, "
        fix += f"{first.layer}) does both"
    problem, expected = "these are not parts of one thing", f"more of {first}"
    fix_for = {RING: on_a_ring} if on_a_ring else {"slices": fix}
    if part.extra.of != 1:
        fix_for["partial=True"] = f"add up the partial sums, and do not join them: model.allreduce(..., {first.layer})"
    if part.kind == first.kind == "Activation" and part.batches != first.batches:
        fix_for["alltoall"] = f"{fix}; to the experts of a layer it goes by await model.alltoall(..., {first.layer})"
    return PuzzleError(problem, where=where, expected=expected, got=str(part), fix=fix, fix_for=fix_for)


def _of_several_keys(part: Labels, first: Labels, where: str) -> tuple[str, str]:
    """Return what to do about gradients of keys and values that are joined before all queries have added to them, where
    keys are gathered, and where they go round a ring."""
    which, sums = "the same", "add up"
    if _part(part.coarse()) != _part(first.coarse()):
        which, sums = "different", "each lacks what other queries give"
    fix = f"these are gradients of {which} keys and values, and {sums}: "
    ring = "kv_grad + theirs" if which == "the same" else AROUND
    reduced = f"kv_grad = await model.scatterreduce(kv_grad, {first.layer})"
    gathered = "kv_grad + theirs" if where == "combine" and which == "the same" else reduced
    return fix + gathered, fix + ring


def _comes_twice(parts: Sequence[Labels], where: str) -> PuzzleError:
    """Return the error about parts of one thing that overlap."""
    first = parts[0]
    load = f"model.load_{'adapter' if first.adapter else 'weights'}(layer, model.rank, model.RANKS)"
    fix, fix_for = f"let each rank load its own shard, {load}", dict[str, str]()
    if first.kind == "WeightGrad":
        fix = "each rank brings a piece of its own, as model.scatterreduce gives them"
        fix = "it is whole already, and needs no gather" if any(part.is_whole() for part in parts) else fix
    elif KINDS[first.kind].by_batch:
        fix = "each rank brings a slice of its own, as model.scatterreduce gives them, or by hand "
        fix += "tensor.shard(model.rank, model.RANKS)"
        if all(part.is_whole() for part in parts):
            fix = "every rank has all of it, and needs no gather; or let each store its slice only, and gather "
            fix += "these: tensor.shard(model.rank, model.RANKS) gives it, and leaves the tensor as it is"
            if first.kind == "KeysValues":
                fix = "these are of the whole sequence already: gathered before, or made by a projection of all of it. "
                fix += "Let each rank project its own slice only, model.project(layer, inp, weight) with "
                fix += "inp = inp.shard(model.rank, model.RANKS), keep what that gives, and gather it where attention "
                fix += "reads it"
    elif all(part.is_whole() for part in parts):
        load = f"it is whole already, and a gather joins pieces: {fix}, and do not store what was gathered over it"
        fix_for = {} if first.adapter else dict.fromkeys(("sharded", "frozen_shards"), load)
        fix = f"every rank has all of it, and needs no gather; or {fix}"
    elif any(part.is_whole() for part in parts):
        fix = f"it is whole already, and a gather joins pieces: {fix}"
    elif any(part.shards != first.shards for part in parts):
        fix = ""  # not the same for all: the group may be another than is meant
    found = Counter(show_part(part.shards, part.total) for part in parts)
    got = ", ".join(f"{part} from {many} ranks" if many > 1 else part for part, many in found.items())
    if where == "combine" and KINDS[first.kind].by_batch and len({part.total for part in parts}) > 1:
        finest = max(part.total for part in parts)
        fix = "one of these has the other in it: cut both into as many, "
        fix += f"tensor.shard(i, {finest}) and tensor.shard(k, {finest}); in a zigzag k is {finest} - 1 - i"
    elif where == "combine" and first.kind == "Activation" and all(part.is_whole() for part in parts):
        fix = (
            "each of these is all of it, as shard(0, 1) gives it: two pieces for each rank are 2 * model.RANKS pieces, "
        )
        fix += "at every size; and combine joins different ones"
    elif where == "combine":
        fix += "; combine joins different pieces that this rank has, and those of other ranks come by "
        fix += f"await model.allgather(..., {first.layer})"
    if where == "combine":
        got = " and ".join(show_part(part.shards, part.total) for part in parts)
    problem, expected = "a shard comes twice", "every shard once"
    return PuzzleError(problem, where=where, expected=expected, got=got, fix=fix, fix_for=fix_for)


def total_of(parts: Sequence[Labels], where: str, strict: bool = True) -> Labels:
    """Return the labels of a sum of tensors of one kind, over the labels that its row names. Raise PuzzleError for
    tensors that do not add up, unless ``strict`` is off: then the values have to tell."""
    kinds = {*map(kind_of, parts)}
    if len(kinds) > 1:
        fix = "every rank of the group brings the same kind of tensor"
        raise PuzzleError("tensors of several kinds do not add up", got=", ".join(sorted(kinds)), fix=fix)
    return TOTALS[KINDS[kinds.pop()].adds](parts, where, strict)


def sum_over_batches(parts: Sequence[Labels], where: str, strict: bool = True) -> Labels:
    """Return the labels of a sum of gradients of one layer and of the same shards, with every micro-batch once. A
    gradient of no micro-batches adds nothing, so it fits any shard form. Raise PuzzleError for gradients that do not
    add up, unless ``strict`` is off: then the values have to tell."""
    real = [part for part in parts if part.batches]
    if not real:
        return parts[0]
    first = real[0]
    layer, shards, total, extra, count = first.layer, first.shards, first.total, first.extra, 0
    for part in real:
        count += len(part.batches)
        alike = (part.shards is shards or part.shards == shards) and part.total == total
        if strict and not alike and not same_pieces(part, first):
            raise _of_other_shards(part, first, where)
        if part.extra is not extra and part.extra != extra:
            if part.adapter == first.adapter:
                return _sum_over_slices(real, where, strict)
            if not strict:
                continue
            problem = "the gradient of an adapter and that of a weight do not add up"
            fix = "give adapter=... to every forward and backward of a layer that has one"
            raise PuzzleError(problem, where=where, expected=str(first), got=str(part), fix=fix)
    if strict:
        for part in parts:
            if part.layer != layer:
                problem = "gradients of different layers do not add up"
                fix = (
                    "keep a sum for each layer, model.grad_weights[layer]: each gradient knows its own, grad.layer. A "
                )
                fix += (
                    "call that is awaited a turn later gives the layer of the turn that has made it; and if messages "
                )
                fix += "bring these, loop over layers and micro-batches as the sender does"
                raise PuzzleError(problem, where=where, expected=str(first), got=str(part), fix=fix)
    if len(real) == 1:
        return first
    batches = NONE.union(*[part.batches for part in real])
    if strict and len(batches) != count:
        raise _counted_twice(real, batches, where)
    return first.changed(batches=batches)


def _of_other_shards(part: Labels, first: Labels, where: str) -> PuzzleError:
    """Return the error about a gradient of another piece than the first one."""
    layer, fix = first.layer, "a sum is of the same piece of each: reduce over ranks that hold the same piece"
    if part.is_whole() or first.is_whole():
        fix = "one is whole and the other is cut: reduce-scatter the whole one by itself, "
        fix += f"grad = await model.scatterreduce(grad, {layer}), and then add it to the other: that is the sum, and "
        fix += "goes into no reduction again"
        uncut, piece = (part, first) if part.is_whole() else (first, part)
        if uncut.batches < piece.batches:
            own = numbered("micro-batch", uncut.batches)
            fix = f"the cut one is a sum, and {own} is in it: leave the whole one out"
    elif part.batches == first.batches and where != "+":
        fix = "these are pieces of one sum, as a reduce-scatter gives them: reduce each gradient once; "
        fix += "all-gather joins pieces"
    elif where == "+":
        fix = "a sum is of the same piece of each: cut both in the same way"
    elif part.total == first.total and part.shards.isdisjoint(first.shards):
        fix = "each rank brings another piece: bring whole gradients, and model.scatterreduce adds them up and "
        fix += "gives piece i to the i-th rank"
    problem = "gradients of different shards do not add up"
    own = "with partial=True each rank gets all of the gradient of its own piece of the weight, so there is "
    own += (
        "nothing to add up: leave the call out, and update with that gradient. Or is the second of what backward gives "
    )
    own += "meant, the gradient of its input? Then the two are exchanged where they are made"
    alone = {"partial=True": own} if where != "+" else {}
    return PuzzleError(problem, where=where, expected=str(first), got=str(part), fix=fix, fix_for=alone)


def _counted_twice(parts: Sequence[Labels], batches: frozenset[int], where: str) -> PuzzleError:
    """Return the error about micro-batches that are in more than one of these gradients."""
    twice = sorted(b for b in batches if sum(b in part.batches for part in parts) > 1)
    are = "is" if len(twice) == 1 else "are"
    problem = f"{numbered('micro-batch', twice)} {are} in more than one gradient, and would be counted twice"
    got = ", ".join(show_set(part.batches) for part in parts[:8]) + " ..." * (len(parts) > 8)
    fix = "train each micro-batch on one rank, and reduce each gradient once: then everyone has the whole sum"
    if where == "+":
        fix = "add the gradient of each micro-batch once: was it added before, or made of the same micro-batch?"
    return PuzzleError(problem, where=where, expected="each micro-batch in one gradient", got=got, fix=fix)


def _sum_over_slices(parts: Sequence[Labels], where: str, strict: bool) -> Labels:
    """Return the labels of a sum of gradients over micro-batches and slices of the sequence, with each slice of each
    micro-batch once, and the same slices of all of them. Raise PuzzleError for what does not add up."""
    first, slices = parts[0], dict[int, Slices]()
    for part in parts:
        own = part.done()
        for batch in part.batches:
            twice = in_both(slices.get(batch, NOTHING), own)
            if strict and twice[0]:
                problem = f"{show_slices(twice)} of micro-batch {batch} is in more than one gradient, and would be "
                problem += "counted twice"
                fix = "let each rank bring the gradient of its own slices, and sum it once"
                raise PuzzleError(problem, where=where, expected="each slice in one gradient", got=str(part), fix=fix)
            slices[batch] = both(slices.get(batch, NOTHING), own)
    if strict and len({*slices.values()}) > 1:
        problem = "a sum of gradients has the same slices of the sequence of each micro-batch"
        got = ", ".join(f"micro-batch {batch}: {show_slices(part)}" for batch, part in sorted(slices.items())[:4])
        fix = "add up the gradients of one micro-batch over the ranks that have its slices, or those of the same slice "
        fix += "of all micro-batches, and then the sums"
        raise PuzzleError(problem, where=where, expected="the same slices of each", got=got, fix=fix)
    summed, of = next(iter(slices.values()))
    extra = first.extra._replace(parts=summed, of=of)
    return first.changed(batches=frozenset(slices), extra=NO_EXTRA if extra == NO_EXTRA else extra)


def sum_over_queries(parts: Sequence[Labels], where: str, strict: bool = True) -> Labels:
    """Return the labels of a sum of gradients of keys and values, over the queries that have read them, each once.
    Raise PuzzleError for what does not add up."""
    first, queries = parts[0], NOTHING
    for part in parts:
        if part.extra.heads != first.extra.heads:
            problem, fix = "these are gradients of different heads", "heads are not added up: what a rank has is that "
            fix += f"of its heads, and goes home by kv_grad = await model.alltoall(kv_grad, {first.layer})"
            raise PuzzleError(
                problem, where=where, expected=show_heads(first.extra.heads), got=show_heads(part.extra.heads), fix=fix
            )
        if _unsummed(part.coarse()) != _unsummed(first.coarse()):
            problem, expected = "these are not gradients of the same keys and values", f"of the same as {first}"
            fix = "add up what different queries give for the same keys: one layer, one micro-batch, one slice"
            fix_for: Mapping[str, Fix] = NO_OTHERS
            if part.layer != first.layer and part.batches == first.batches:
                fix = f"one is of layer {first.layer}, and the other of layer {part.layer}: begin a sum of its own in "
                fix += "each layer, and take it out as backward_project reads it, model.grad_activations.pop(...)"
            if part.layer == first.layer and part.batches == first.batches:
                fix_for = {RING: AROUND}
                fix = "all ranks go back to the keys of all of them: "
                fix += f"whole = await model.allgather(kv, {first.layer}) comes before backward_attend, too"
            raise PuzzleError(problem, where=where, expected=expected, got=str(part), fix=fix, fix_for=fix_for)
        # Queries that see none of these keys have added nothing to their gradient.
        own = in_both(part.done(), to_meet(part.piece(), QUERIES))
        twice = in_both(queries, own)
        if strict and twice[0]:
            problem = f"what the queries of {show_slices(twice)} give would be added twice"
            fix = "add the gradient of each block of queries and keys once: was this one in the sum already?"
            raise PuzzleError(problem, where=where, expected="each slice of the queries once", got=str(part), fix=fix)
        queries = both(queries, own)
    homes = next((part.extra.homes for part in parts if part.extra.homes), ())
    return first.changed(extra=first.extra._replace(parts=queries[0], of=queries[1], homes=homes))


def sum_over_parts(parts: Sequence[Labels], where: str, strict: bool = True) -> Labels:
    """Return the labels of a sum of partial sums of one activation, or of its gradient, with each partial sum once.
    Raise PuzzleError for what does not add up; with ``strict`` off, where a partial sum comes twice or the sum has been
    made already, the values have to tell."""
    first = parts[0]
    for part in parts:
        if _unsummed(part) != _unsummed(first):
            problem, expected = "these are not partial sums of one thing", f"another partial sum of {first}"
            fix, fix_for = "add up one layer, the same micro-batches and the same slice of each", dict[str, Fix]()
            if where != "+" and first.total != 1 and _unsummed(part) == _unsummed(another_part(first, *_part(part))):
                fix = "each rank has cut its partial sum before it is added up, so that these are different slices: "
                fix += "leave out .shard(...) before this call"
                both = (
                    f"; await model.scatterreduce(partial, {first.layer}) adds up all of it, and gives each rank its "
                )
                fix_for = {"slices": f"{fix}{both}slice of the sum"}
            raise PuzzleError(problem, where=where, expected=expected, got=str(part), fix=fix, fix_for=fix_for)
        if strict and part.extra.of == 1 and len(parts) > 1:
            whole = f"{KINDS[part.kind].word} is whole" if part.total == 1 else "slice is added up"
            fix = "use it as it is; what ranks add up is the gradient of the weight, the first that backward gives"
            partial = "only forward and backward with partial=True and a piece of the weight give partial sums, "
            partial += "model.load_weights(layer, model.rank, model.RANKS); use the whole one as it is"
            cut_it = {"slices": f"{partial}, or cut it: tensor.shard(model.rank, model.RANKS)"}
            fix_for = {**(cut_it if part.total == 1 else {}), "partial=True": partial}
            if part.total != 1:
                fix = fix_for["partial=True"] = f"slices are joined by await model.allgather(..., {part.layer})"
            problem = f"there is nothing to add to it: that {whole} already"
            raise PuzzleError(problem, where=where, expected="partial sums", got=str(part), fix=fix, fix_for=fix_for)
    (partial_sums, of), disjoint = union(tuple([(part.extra.parts, part.extra.of) for part in parts]))
    if strict and not disjoint:
        got = ", ".join(f"{show_set(part.parts)} of {part.of}" for part in parts[:8])
        fix = "let each rank of the group compute with its own piece of the weight, "
        fix += "model.load_weights(layer, model.rank, model.RANKS), and reduce over those ranks only"
        raise PuzzleError("a partial sum comes twice", where=where, expected="each partial sum once", got=got, fix=fix)
    return first.changed(extra=ExtraLabels(partial_sums, of) if of > 1 else NO_EXTRA)


TOTALS: Mapping[str, Callable[[Sequence[Labels], str, bool], Labels]] = {
    "batches": sum_over_batches,
    "parts": sum_over_parts,
    QUERIES: sum_over_queries,
}
"""How labels add up, by the labels over which they are summed (``Kind.adds``)."""
