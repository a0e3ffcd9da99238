"""Causal attention, in sets: which slices of a sequence see which.

A query sees the keys up to its own place. So slice q of the queries sees slices k <= q of the keys, after both are cut
equally fine, and of a block on the diagonal a half. A piece is (slices, of how many), as everywhere.

>>> seen((frozenset({1}), 4), ALL)  # of all keys those that slice 1 of 4 sees
(frozenset({0}), 2)
>>> share((frozenset({0}), 2), (frozenset({0}), 2)), share((frozenset({1}), 2), (frozenset({0}), 2))
(Fraction(1, 4), Fraction(1, 2))
"""

from fractions import Fraction
from functools import lru_cache
from math import lcm

from ..basics.errors import show_set
from ..basics.units import Ratio
from .kinds import KEYS
from .shards import NONE, WHOLE, Shards, coarsest, refined

Slices = tuple[Shards, int]
"""Which slices of a sequence, and of how many: in coarsest form, but for what is missing somewhere."""
NOTHING: Slices = (NONE, 1)
ALL: Slices = (WHOLE, 1)


def equally_fine(one: Slices, other: Slices) -> tuple[Shards, Shards, int]:
    """Return two pieces cut equally fine, and how fine."""
    finer = lcm(one[1], other[1])
    return refined(*one, finer), refined(*other, finer), finer


@lru_cache(maxsize=1 << 10)  # each layer asks the same, and the machine for labels, values and prices
def seen(queries: Slices, keys: Slices) -> Slices:
    """Return which of these keys any of the queries sees."""
    mine, theirs, finer = equally_fine(queries, keys)
    last = max(mine, default=-1)
    return coarsest(frozenset([key for key in theirs if key <= last]), finer)


@lru_cache(maxsize=1 << 10)
def seeing(keys: Slices, queries: Slices) -> Slices:
    """Return which of these queries see any of the keys."""
    mine, theirs, finer = equally_fine(keys, queries)
    first = min(mine, default=finer)
    return coarsest(frozenset([query for query in theirs if query >= first]), finer)


@lru_cache(maxsize=1 << 10)
def share(queries: Slices, keys: Slices) -> Fraction:
    """Return the share of a whole sequence's attention that these queries have with these keys."""
    mine, theirs, finer = equally_fine(queries, keys)
    pairs = sum(2 * (key < query) + (key == query) for query in mine for key in theirs)
    return Ratio(pairs, finer * finer)


@lru_cache(maxsize=1 << 10)
def missing(needed: Slices, there: Slices) -> Slices:
    """Return what of a piece is not there: of the slices that are needed, in the same cut as these."""
    mine, theirs, finer = equally_fine(needed, there)
    return mine - theirs, finer


@lru_cache(maxsize=1 << 10)
def in_both(one: Slices, other: Slices) -> Slices:
    """Return what two pieces have in common."""
    mine, theirs, finer = equally_fine(one, other)
    return coarsest(mine & theirs, finer)


def show_slices(piece: Slices) -> str:
    """Return slices of a sequence as text.

    >>> show_slices((frozenset({1, 6}), 8))
    'slice {1, 6} of 8'
    """
    return f"slice {show_set(piece[0])} of {piece[1]}"


def show_heads(heads: Slices) -> str:
    """Return which heads of attention something is of, as text.

    >>> show_heads((frozenset({1}), 4)), show_heads(ALL)
    ('part {1} of 4 of the heads', 'all heads')
    """
    return "all heads" if heads[1] == 1 else f"part {show_set(heads[0])} of {heads[1]} of the heads"


@lru_cache(maxsize=1 << 10)
def both(one: Slices, other: Slices) -> Slices:
    """Return two pieces together."""
    mine, theirs, finer = equally_fine(one, other)
    return coarsest(mine | theirs, finer)


def to_meet(own: Slices, side: str) -> Slices:
    """Return what a piece has to meet: queries the ``keys`` that they see, keys the ``queries`` that see them."""
    return seen(own, ALL) if side == KEYS else seeing(own, ALL)
