"""Heads of attention: the all-to-all that turns slices of a sequence into heads, and back (Ulysses).

Heads do not see each other. So what goes into attention can be cut in two ways: by slices of the sequence, and by
heads. A rank that has some heads of the whole sequence needs no keys of other ranks. The two ways go together: some
heads of some slices are a piece, too, and queries attend to keys of the same heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..basics.errors import PuzzleError
from .causal import in_both, show_heads, show_slices
from .collectives import dealt
from .kinds import KINDS
from .labels import Labels, all_trips, another_part, cut, join
from .operations import Part, Values
from .shards import refined, union

IN_HEADS = tuple([name for name, row in KINDS.items() if row.by_heads])
"""The kinds of tensor that are cut by heads, too."""


def turned(parts: Sequence[Part], values: Values) -> list[Part]:
    """Turn slices into heads: member i gets piece i of the heads, of all slices that are brought. Or turn heads into
    slices: each member gets the slices that it had brought, with all heads. Raise PuzzleError for what does not go
    together."""
    brought = [labels for labels, _ in parts]
    if not _on_their_way_home(brought):
        _check(brought)
        pieces = _into_heads(brought)
    else:
        pieces = _into_slices(brought)
    return dealt((pieces[0], values.join([value for _, value in parts])), pieces, values)


def _into_heads(brought: Sequence[Labels]) -> list[Labels]:
    trips = (*all_trips(brought), tuple([one.piece() for one in brought]))
    whole = join([one.changed(extra=one.extra._replace(trips=())) for one in brought], "")
    by_heads = another_part(whole, *whole.extra.heads)
    pieces = [cut(by_heads, place, len(brought)).piece() for place in range(len(brought))]
    return [whole.changed(extra=whole.extra._replace(heads=heads, trips=trips)) for heads in pieces]


def _into_slices(brought: Sequence[Labels]) -> list[Labels]:
    first = brought[0]
    *earlier, whose = first.extra.trips
    heads, _ = union(tuple([one.extra.heads for one in brought]))
    whole = first.changed(extra=first.extra._replace(heads=heads, trips=tuple(earlier)))
    return [another_part(whole, *in_both(whole.piece(), own)) for own in whose]


def _on_their_way_home(brought: Sequence[Labels]) -> bool:
    """Return whether member i has piece i of the heads, as the last all-to-all has dealt them, of the same slices."""
    first, count = brought[0], len(brought)
    trips = first.extra.trips
    if not trips or len(trips[-1]) != count or any(one.extra.trips != trips or _differ(one, first) for one in brought):
        return False
    dealt_in = prod(map(len, trips))
    places = [{piece % count for piece in refined(*one.extra.heads, dealt_in)} for one in brought]
    return places == [{place} for place in range(count)]


def _differ(one: Labels, other: Labels) -> bool:
    """Return whether these are of different things or slices, or have met different ones, whatever their heads are."""
    same_heads = other.extra._replace(heads=one.extra.heads)
    return one.coarse() != other.coarse().changed(extra=same_heads)


def _check(brought: Sequence[Labels]) -> None:
    """Raise PuzzleError unless these are the same heads of one thing, which has met nothing yet."""
    first = brought[0]
    for one in brought:
        if one.extra.heads != first.extra.heads:
            got = "; ".join(f"{show_slices(one.piece())}, {show_heads(one.extra.heads)}" for one in brought[:4])
            raise PuzzleError("wrong_way_home", what="heads", expected="all heads of the same slices", got=got)
        if one.done() != first.done() and one.kind == first.kind:
            raise PuzzleError("not_one_thing", expected=str(first), got=str(one))
