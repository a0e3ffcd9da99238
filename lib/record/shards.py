"""Sets of pieces of a whole: pieces 4 and 5 of 8 are ``(frozenset({4, 5}), 8)``, or coarser, piece 2 of 4.

Shards of a weight, slices of a sequence and experts are all pieces. A set is kept in its coarsest form.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, lcm

from ..basics.errors import PuzzleError, show_set

Shards = frozenset[int]
WHOLE: Shards = frozenset([0])
NONE: Shards = frozenset()
FEW = 64  # pieces of which sets are small enough to be kept
FINEST = 1 << 16  # the most pieces that a tensor is cut into, as sets of pieces are written out


def coarsest(shards: Shards, total: int) -> tuple[Shards, int]:
    """Return the same part of the whole in the fewest, largest pieces.

    >>> coarsest(frozenset({4, 5}), 8)
    (frozenset({2}), 4)
    """
    count = len(shards)
    if count == total:
        return WHOLE, 1
    return _coarsest_of_few(shards, total) if total <= FEW else _coarsest(shards, total)


def _coarsest(shards: Shards, total: int) -> tuple[Shards, int]:
    count = len(shards)
    common = gcd(count, total)
    for factor in range(common, 1, -1):
        if common % factor == 0:
            coarse = frozenset([shard // factor for shard in shards])
            if len(coarse) * factor == count:
                return coarse, total // factor
    return shards, total


_coarsest_of_few = lru_cache(maxsize=1 << 10)(_coarsest)  # of many pieces the sets are large, and none is kept


def check_fineness(total: int) -> None:
    """Raise PuzzleError for a cut into more than FINEST pieces."""
    if total > FINEST:
        raise PuzzleError("too_many_pieces", expected=f"a number from 1 to {FINEST:,}", got=f"{total:,} pieces")


class Cuts:
    """The cuts of one machine's tensors. Sizes are exact fractions, whose sums must not need thousands of digits."""

    def __init__(self) -> None:
        self.common = 1

    def check(self, total: int) -> None:
        """Note a cut. Raise PuzzleError for too many cuts that do not go together."""
        if self.common % total:
            common = lcm(self.common, total)
            if common > 1 << 256:
                raise PuzzleError("too_many_cuts", total=total)
            self.common = common


def refined(shards: Shards, total: int, finer: int) -> Shards:
    """Return the same part in pieces of ``finer``, a multiple of ``total``."""
    factor = finer // total
    if factor == 1:
        return shards
    check_fineness(finer)
    return frozenset([shard * factor + part for shard in shards for part in range(factor)])


@lru_cache(maxsize=64)  # the gathers of all layers join the same parts, and so do their values
def union(parts: tuple[tuple[Shards, int], ...]) -> tuple[tuple[Shards, int], bool]:
    """Return the union of parts of one whole, in coarsest form, and whether no piece comes twice.

    >>> union(((frozenset({0}), 2), (frozenset({2}), 4)))
    ((frozenset({0, 1, 2}), 4), True)
    """
    total, count, shards = lcm(*{total for _, total in parts}), 0, set[int]()
    for part, other in parts:  # one after the other: written out finely, all of them together may be very large
        pieces = part if other == total else refined(part, other, total)
        count += len(pieces)
        shards |= pieces
    return coarsest(frozenset(shards), total), len(shards) == count


def show_part(shards: Shards, total: int) -> str:
    """Return a part of a whole as text.

    >>> show_part(frozenset({0}), 1), show_part(frozenset({1}), 4), show_part(frozenset({0, 2}), 4)
    ('all of it', 'shard {1} of 4', 'shards {0, 2} of 4')
    """
    if len(shards) == total:
        return "all of it"
    return f"{'shard' if len(shards) == 1 else 'shards'} {show_set(shards)} of {total}"


@lru_cache(maxsize=1 << 12)  # every rank has one of every layer, and keeps it: once made they cost no memory
def one_shard(shard: int) -> Shards:
    """Return the set of one shard, which is in coarsest form."""
    return frozenset([shard])
