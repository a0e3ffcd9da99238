"""What a tensor is, in words and sets: kind, layer, step, micro-batches, shards, partial sums.

Labels carry no numbers and no memory address. How they are cut, joined and summed is here, as pure functions from
labels to labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from math import lcm
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from ..basics.errors import PuzzleError, numbered, show_set
from .causal import ALL, NOTHING, Slices, both, in_both, missing, show_heads, show_slices, to_meet
from .kinds import KINDS, QUERIES, SLICE
from .shards import NONE, WHOLE, Shards, check_fineness, coarsest, one_shard, refined, show_part, union

PARTIAL, SLICES, LISTS, ADAPTER, HOSTS, AXES = "partial=True", "slices", "lists", "adapter", "hosts", "axes"
EXCHANGES = "exchange"
"""The features that a puzzle has to grant besides operations and their options, by their names in its spec: what a
communication may carry (partial sums, slices of a sequence, several tensors in one call, adapters), hosts, and
collectives over several axes of a mesh at once."""


class ExtraLabels(NamedTuple):
    """The labels that few tensors have. ``parts`` and ``of``: which partial sums, of how many, an activation or its
    gradient is the sum of; of a weight's gradient, over which slices of the sequence it is summed; of queries and keys
    in attention, which slices of the other side they are done with. ``keep``: how much of a layer's inner activations
    was kept. ``adapter``: whether it belongs to an adapter, and not to the layer's own weight. ``homes``: what each
    member of a group brought to the collective that made this tensor, micro-batches or a piece, so that the opposite
    collective can give it back. ``trips``: the same for each all-to-all so far: the micro-batches of each member, or
    the slices where slices were turned into heads; empty sets for one whose tokens are home again. Neither is ever
    shown. ``heads``: which heads of attention these are, and of how many pieces of all heads, where slices were turned
    into heads."""

    parts: Shards = WHOLE
    of: int = 1
    keep: str = ""
    adapter: bool = False
    homes: tuple[frozenset[int] | Slices, ...] = ()
    trips: tuple[tuple[Any, ...], ...] = ()
    heads: Slices = ALL
    factors: tuple[tuple[int, Fraction], ...] = ()  # of a weight's gradient the micro-batches that do not count once
    uses: frozenset[tuple[int, int]] = frozenset()  # of one of a tied weight: of which micro-batches in which layer
    direction: bool = False  # whether such a gradient has been orthogonalized


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
        named += [f"use in {numbered('layer', {layer for _, layer in self.extra.uses})}"] * bool(self.extra.uses)
        named += [f"{count} x {batch}" for batch, count in self.extra.factors] + ["direction"] * self.extra.direction
        return f"{self.kind}({', '.join(named)})"

    def in_words(self) -> str:
        """Return the tensor by what it is: ``the weight gradient of layer 3, micro-batch 0``."""
        row = KINDS[self.kind]
        word = row.of_adapter if self.adapter and row.of_adapter else row.word
        of = f"layer {self.layer}" if self.layer >= 0 else "the input"
        batches = f", {numbered('micro-batch', self.batches)}" if self.batches else ""
        is_part = self.total > 1 and len(self.shards) < self.total
        return f"the {word} of {of}{batches}" + is_part * f", {row.piece} {show_set(self.shards)} of {self.total}"

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
        where, expected = f"shard({index}, {pieces}) of {labels}", f"an index from 0 to {pieces - 1}"
        raise PuzzleError("out_of_range", where=where, expected=expected, what=f"piece {index} of {pieces}")
    count, first = len(labels.shards), min(labels.shards, default=0)
    if not count or max(labels.shards) - first + 1 != count:
        raise PuzzleError("part_with_gaps", where=f"shard({index}, {pieces})", got=str(labels))
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
        raise PuzzleError("not_one_thing", where=where, expected=f"more of {first}", got=str(other))
    (shards, total), disjoint = union(tuple(map(_part, parts)))
    if not disjoint:
        raise _comes_twice(parts, where)
    return another_part(first, shards, total)


def all_trips(parts: Sequence[Labels]) -> tuple[tuple[Slices, ...], ...]:
    """Return which slices of all these parts the members of a group brought to each all-to-all that turned them into
    heads. Several groups may have met, each in its own."""
    calls = [zip(*whose, strict=False) for whose in zip(*[part.extra.trips for part in parts], strict=False)]
    return tuple([tuple([union(own)[0] for own in call]) for call in calls])


def _comes_twice(parts: Sequence[Labels], where: str) -> PuzzleError:
    """Return the error about parts of one thing that overlap."""
    found = Counter(show_part(part.shards, part.total) for part in parts)
    got = ", ".join(f"{part} from {many} ranks" if many > 1 else part for part, many in found.items())
    if where == "combine":
        got = " and ".join(show_part(part.shards, part.total) for part in parts)
    return PuzzleError("counted_twice", where=where, expected="every shard once", got=got, what="a shard")


def total_of(parts: Sequence[Labels], where: str, strict: bool = True) -> Labels:
    """Return the labels of a sum of tensors of one kind, over the labels that its row names. Raise PuzzleError for
    tensors that do not add up, unless ``strict`` is off: then the values have to tell."""
    kinds = {*map(kind_of, parts)}
    if len(kinds) > 1:
        raise not_addable("tensors of several kinds", where, "tensors of one kind", ", ".join(sorted(kinds)))
    return TOTALS[KINDS[kinds.pop()].adds](parts, where, strict)


def not_addable(what: str, where: str, expected: object, got: object) -> PuzzleError:
    """Return the error of tensors that do not add up. ``what``: what they are."""
    return PuzzleError("not_addable", where=where, expected=str(expected), got=str(got), what=what)


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
        count += len(part.extra.uses or part.batches)
        same_pieces_there = (part.shards is shards or part.shards == shards) and part.total == total
        if strict and not same_pieces_there and not same_pieces(part, first):
            raise not_addable("gradients of different shards", where, first, part)
        if part.extra is not extra and part.extra != extra:
            if part.done() != first.done() and part.adapter == first.adapter:
                return _sum_over_slices(real, where, strict)
            if strict and part.adapter != first.adapter:
                raise not_addable("the gradient of an adapter and that of a weight", where, first, part)
            factors = tuple(sorted({*extra.factors, *part.extra.factors}))
            extra = extra._replace(factors=factors, uses=extra.uses | part.extra.uses)
    if strict:
        for part in parts:
            if part.layer != layer:
                raise not_addable("gradients of different layers", where, first, part)
    if len(real) == 1:
        return first
    if strict and extra.direction:
        raise not_addable("orthogonalized gradients", where, "gradients, whose sum is orthogonalized", first)
    batches = NONE.union(*[part.batches for part in real])
    if strict and len(extra.uses or batches) != count:
        terms = Counter(term for part in real for term in part.extra.uses or part.batches)
        twice = numbered("micro-batch", {_batch(term) for term, often in terms.items() if often > 1})
        got = ", ".join(show_set(part.batches) for part in real[:8]) + " ..." * (len(real) > 8)
        raise PuzzleError(
            "counted_twice", where=where, expected="each micro-batch in one gradient", got=got, what=twice
        )
    return first.changed(batches=batches, extra=extra)


def _batch(term: int | tuple[int, int]) -> int:
    """Return the micro-batch of a part of a gradient, which is a use of a weight where that has two."""
    return term if isinstance(term, int) else term[0]


def scaled(labels: Labels, factor: Fraction) -> Labels:
    """Return the labels of a gradient times a number. Raise PuzzleError where a program makes it longer and longer."""
    counts = [(batch, dict(labels.extra.factors).get(batch, 1) * factor) for batch in sorted(labels.batches)]
    if any(max(abs(count.numerator), count.denominator) > 10**200 for _, count in counts):
        raise PuzzleError("out_of_range", where="*", what="what a gradient is multiplied by")
    return labels.changed(extra=labels.extra._replace(factors=tuple([one for one in counts if one[1] != 1])))


def _sum_over_slices(parts: Sequence[Labels], where: str, strict: bool) -> Labels:
    """Return the labels of a sum of gradients over micro-batches and slices of the sequence, with each slice of each
    micro-batch once, and the same slices of all of them. Raise PuzzleError for what does not add up."""
    first, slices = parts[0], dict[Any, Slices]()
    for part in parts:
        own = part.done()
        for term in part.extra.uses or part.batches:
            twice = in_both(slices.get(term, NOTHING), own)
            if strict and twice[0]:
                what, expected = f"{show_slices(twice)} of micro-batch {_batch(term)}", "each slice in one gradient"
                raise PuzzleError("counted_twice", where=where, expected=expected, got=str(part), what=what)
            slices[term] = both(slices.get(term, NOTHING), own)
    if strict and len({*slices.values()}) > 1:
        got = ", ".join(f"micro-batch {_batch(term)}: {show_slices(part)}" for term, part in sorted(slices.items())[:4])
        raise not_addable("gradients of different slices of the sequence", where, "the same slices of each", got)
    summed, of = next(iter(slices.values()))
    factors = tuple(sorted({pair for part in parts for pair in part.extra.factors}))
    extra = first.extra._replace(parts=summed, of=of, factors=factors, uses=first.extra.uses and frozenset(slices))
    return first.changed(batches=frozenset(map(_batch, slices)), extra=extra)


def sum_over_queries(parts: Sequence[Labels], where: str, strict: bool = True) -> Labels:
    """Return the labels of a sum of gradients of keys and values, over the queries that have read them, each once.
    Raise PuzzleError for what does not add up."""
    first, queries = parts[0], NOTHING
    for part in parts:
        if part.extra.heads != first.extra.heads:
            expected, got = show_heads(first.extra.heads), show_heads(part.extra.heads)
            raise not_addable("gradients of different heads", where, expected, got)
        if _unsummed(part.coarse()) != _unsummed(first.coarse()):
            raise not_addable("gradients of different keys and values", where, f"of the same as {first}", part)
        # Queries that see none of these keys have added nothing to their gradient.
        own = in_both(part.done(), to_meet(part.piece(), QUERIES))
        twice = in_both(queries, own)
        if strict and twice[0]:
            what, expected = f"what the queries of {show_slices(twice)} give", "each slice of the queries once"
            raise PuzzleError("counted_twice", where=where, expected=expected, got=str(part), what=what)
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
            raise not_addable("partial sums of different things", where, f"another partial sum of {first}", part)
        if strict and part.extra.of == 1 and len(parts) > 1:
            what = f"{KINDS[part.kind].word} is whole" if part.total == 1 else "slice is added up"
            raise PuzzleError("nothing_to_add", where=where, expected="partial sums", got=str(part), what=what)
    (partial_sums, of), disjoint = union(tuple([(part.extra.parts, part.extra.of) for part in parts]))
    if strict and not disjoint:
        got = ", ".join(f"{show_set(part.parts)} of {part.of}" for part in parts[:8])
        raise PuzzleError("counted_twice", where=where, expected="each partial sum once", got=got, what="a partial sum")
    return first.changed(extra=ExtraLabels(partial_sums, of))


TOTALS: Mapping[str, Callable[[Sequence[Labels], str, bool], Labels]] = {
    "batches": sum_over_batches,
    "parts": sum_over_parts,
    QUERIES: sum_over_queries,
}
"""How labels add up, by the labels over which they are summed (``Kind.adds``)."""
