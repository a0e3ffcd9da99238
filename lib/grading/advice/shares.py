"""Which rank has which micro-batches, in words, and how else the ranks could share them."""

from collections.abc import Mapping
from typing import Any


def dealt(ranks: int, batches: int) -> str:
    """Return which of these ranks has which micro-batch, where all of them train."""
    if ranks == batches:
        return "rank r has micro-batch r: model.get_activation([model.rank])"
    if ranks % batches == 0:
        share = f"{ranks // batches} ranks share a micro-batch: model.rank // {ranks // batches}"
        return f"{share}, which is model.rank // (model.RANKS // model.BATCHES)"
    each, more = divmod(batches, ranks)
    if more and ranks < batches:
        some = f"{numbered_ranks(more)} {each + 1}, and {numbered_ranks(ranks - more)} {each}"
        first = f"with a first of its own from 0 to {ranks - 1}, those from {more} on have less"
        each_one = f"give each of the {batches} micro-batches to one rank"
        return f"{each_one}, range(first, model.BATCHES, model.RANKS): {first} ({some})"
    return "deal them out to the ranks, range(model.rank, model.BATCHES, model.RANKS)"


def numbered_ranks(number: int) -> str:
    """Return how many ranks have something.

    >>> numbered_ranks(1), numbered_ranks(3)
    ('1 rank has', '3 ranks have')
    """
    return "1 rank has" if number == 1 else f"{number} ranks have"


def fair_shares(ranks: int, batches: int, slow: Mapping[int, Any]) -> dict[int, int]:
    """Return how many micro-batches each rank has where each goes to the rank that is done with it first. ``slow``: by
    rank, how many times as long a micro-batch takes it.

    >>> fair_shares(4, 43, {0: 1.1})
    {0: 10, 1: 11, 2: 11, 3: 11}
    """
    shares = dict.fromkeys(range(ranks), 0)
    for _ in range(batches):
        first = min(shares, key=lambda rank: ((shares[rank] + 1) * slow.get(rank, 1), rank in slow))
        shares[first] += 1
    return shares


def shares_in_words(shares: Mapping[int, int], slow: Mapping[int, Any]) -> str:
    """Return which rank has how many micro-batches.

    >>> shares_in_words({0: 10, 1: 11, 2: 11, 3: 11}, {0: 1.1})
    '10 for rank 0, which is slow (a forward takes it 1.1 times as long), and 11 for each of the others'
    >>> shares_in_words({0: 2, 1: 1}, {})
    '1 or 2 for each rank'
    """
    own = [
        f"{shares[rank]} for rank {rank}, which is slow (a forward takes it {float(factor):g} times as long)"
        for rank, factor in slow.items()
        if rank in shares
    ]
    others = [count for rank, count in shares.items() if rank not in slow]
    whom = ("for each of the others" if len(others) > 1 else "for the other") if own else "for each rank"
    rest = [f"{' or '.join(map(str, sorted({*others})))} {whom}"] * bool(others)
    return ", and ".join([", ".join(own), *rest] if own else rest)


def better_shares(counts: Mapping[int, int], slow: Mapping[int, Any]) -> str:
    """Return how else the ranks could share the batch, where the busiest one of them would then have less to do; or an
    empty text. ``counts``: how many micro-batches each rank has.

    >>> better_shares({0: 3, 1: 0}, {})
    'rank 0 has 3 micro-batches, and rank 1 has none: share them out, 1 or 2 for each rank'
    """
    fair = fair_shares(len(counts), sum(counts.values()), slow)
    most, least = (find(counts, key=lambda rank: counts[rank] * slow.get(rank, 1)) for find in (max, min))
    if max(fair[rank] * slow.get(rank, 1) for rank in fair) >= counts[most] * slow.get(most, 1):
        return ""
    if most in slow and max(counts.values()) - min(counts.values()) == 1:
        fewest = min(counts, key=lambda rank: counts[rank])
        is_slow = f"rank {most} is the slow one, a forward takes it {float(slow[most]):g} times as long, and it has"
        has = f"{is_slow} {numbered_batches(counts[most])}, rank {fewest} has {counts[fewest]}"
        return f"{has}: let the slow rank be the one that has {counts[fewest]}"
    has = f"rank {most} has {numbered_batches(counts[most])}, and rank {least} has {counts[least] or 'none'}"
    return f"{has}: share them out, {shares_in_words(fair, slow)}"


def numbered_batches(count: int) -> str:
    """Return so many micro-batches in words."""
    return f"{count} micro-batch{'es' * (count != 1)}"
