"""Who attends to what, and when: the blocks of queries and keys that each rank computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import reduce
from math import lcm
from typing import NamedTuple

from ...basics.errors import numbered
from ...basics.units import Unit
from ..causal import ALL, NOTHING, Slices, both, seen, share
from ..events import Event
from ..shards import refined


class Block(NamedTuple):
    """Queries of a rank that attend to some keys. ``step``: which of its rank's blocks this is, counted from 1."""

    step: int
    queries: Slices
    keys: Slices
    start: float
    end: float
    heads: Slices = ALL


class Own(NamedTuple):
    """What the queries of a rank attend to, and of those that do the same with the same slices."""

    ranks: Sequence[int]
    blocks: Sequence[Block]
    heads: Slices = ALL
    """Which heads all of them have together."""

    @property
    def share(self) -> Fraction:
        """The share of all pairs of a query and a key that it sees, in each head, which one of these ranks has."""
        shares = (
            share(block.queries, block.keys) * Fraction(len(block.heads[0]), block.heads[1]) for block in self.blocks
        )
        return sum(shares, Fraction(0))

    @property
    def name(self) -> str:
        """The name of the first rank, with a plus sign if there are others."""
        return f"rank {self.ranks[0]}{'+' * (len(self.ranks) > 1)}"

    @property
    def full_name(self) -> str:
        """The names of all."""
        return numbered("rank", self.ranks)

    @property
    def ticks(self) -> float:
        """For how long each of them attends, in the unit of the run."""
        return sum(block.end - block.start for block in self.blocks)


class Triangle(NamedTuple):
    """The attention of one layer, to one micro-batch, in one run."""

    title: str
    note: str
    owns: Sequence[Own]
    unit: Unit

    @property
    def start(self) -> float:
        """When the first block begins, in ``unit``."""
        return min(block.start for own in self.owns for block in own.blocks)

    @property
    def end(self) -> float:
        """When the last one is done."""
        return max(block.end for own in self.owns for block in own.blocks)

    @property
    def steps(self) -> int:
        """The largest number of blocks of a rank."""
        return max(len(own.blocks) for own in self.owns)

    @property
    def cut(self) -> int:
        """Into how many slices the sequence has to be cut so that each block is made of whole ones."""
        return lcm(*[piece[1] for own in self.owns for block in own.blocks for piece in (block.queries, block.keys)])

    def missing(self) -> list[tuple[int, int]]:
        """Return the blocks, (query, key) in slices of ``cut``, that see each other and that nobody has computed."""
        heads = defaultdict[tuple[int, int], Slices](lambda: NOTHING)
        for own in self.owns:
            for block in own.blocks:
                for pair in pairs_of(block, self.cut):
                    heads[pair] = both(heads[pair], own.heads)
        done = {pair for pair, which in heads.items() if which == ALL}
        return [(query, key) for query in range(self.cut) for key in range(query + 1) if (query, key) not in done]


def attention_of(events: Iterable[Event]) -> list[Own]:
    """Return what the queries of each rank attend to in these steps of attention, which are of one layer and of one
    micro-batch."""
    by_rank = defaultdict[int, list[Event]](list)
    for event in events:
        by_rank[event.rank].append(event)
    by_blocks = defaultdict[tuple[tuple[Slices, Slices], ...], list[int]](list)
    blocks = {rank: _first_time(own) for rank, own in sorted(by_rank.items())}
    for rank, own in blocks.items():
        by_blocks[tuple((block.queries, block.keys) for block in own)].append(rank)
    heads = [reduce(both, [blocks[rank][0].heads for rank in ranks]) for ranks in by_blocks.values()]
    return [Own(ranks, blocks[ranks[0]], own) for ranks, own in zip(by_blocks.values(), heads, strict=True)]


def _first_time(events: Sequence[Event]) -> list[Block]:
    """Return the blocks of a rank in its order, up to where it begins to compute again what it has computed before."""
    found = list[Block]()
    done = set[tuple[Slices, Slices]]()
    for event in events:
        queries, keys, *heads = event.slices
        pair = queries, seen(queries, keys)
        if pair in done and pair[1][0]:
            break
        done.add(pair)
        found.append(Block(len(found) + 1, queries, keys, event.start, event.end, *heads))
    return found


def pairs_of(block: Block, cut: int) -> list[tuple[int, int]]:
    """Return the blocks, (query, key) in slices of ``cut``, that see each other."""
    queries, keys = (sorted(refined(*piece, cut)) for piece in (block.queries, block.keys))
    return [(query, key) for query in queries for key in keys if key <= query]
