"""A machine that is not even: slow ranks, slow links, and operations that take a little longer now and then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, cast
from zlib import crc32

from ..basics.arguments import describe, whole_number
from ..basics.errors import PuzzleError
from ..basics.units import Ratio, exact

EVEN = Ratio(1)
STEPS = 1000  # parts into which jitter is cut, so that times stay short fractions


@dataclass(frozen=True)
class Uneven:
    """What is slower than a ``Cost`` says: ``Cost(uneven=Uneven(slow={2: 1.1}))``, or ``replace(cost, uneven=...)``.

    ``slow``: by rank, how many times as long its operations take; ``links``: by pair of ranks, how many times as long
    what goes between them takes, a collective that has both as much as that; ``jitter``: the part by which an operation
    takes longer at the most, drawn evenly for each from ``seed``, always the same. Ranks wait for each other as ever.
    Raises PuzzleError for a factor below 1.
    """

    slow: Mapping[int, float] | Sequence[tuple[int, Any]] = ()
    links: Mapping[tuple[int, int], float] | Sequence[tuple[tuple[int, int], Any]] = ()
    jitter: float = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("slow", "links"):
            given = getattr(self, name)
            pairs = given.items() if isinstance(given, Mapping) else given
            kept = tuple(sorted((_who(name, who), _factor(name, factor)) for who, factor in pairs))
            object.__setattr__(self, name, kept)  # it is frozen, and hashed
        object.__setattr__(self, "jitter", _factor("jitter", self.jitter, least=0))
        whole_number("seed", self.seed, least=0)

    def __repr__(self) -> str:
        """Return what was given, as source code."""
        given = {"slow": dict(self.slow), "links": dict(self.links), "jitter": self.jitter, "seed": self.seed}
        own = [f"{name}={_plain(value)}" for name, value in given.items() if value]
        return f"Uneven({', '.join(own)})"

    def of_computing(self, rank: int, number: int) -> Fraction:
        """Return how many times as long the operation of this number takes on a rank."""
        factor = self._factors.get(rank, EVEN)
        if self.jitter:
            drawn = crc32(f"{self.seed} {rank} {number}".encode()) % STEPS
            factor *= 1 + exact(self.jitter) * Fraction(drawn, STEPS)
        return factor

    @cached_property
    def _factors(self) -> dict[int, Fraction]:
        """By rank, how many times as long its operations take, if it is slow: asked for at every operation."""
        return {rank: Ratio(factor) for rank, factor in dict(self.slow).items()}

    def of_sending(self, *ranks: int) -> Fraction:
        """Return how many times as long it takes what these ranks send each other."""
        among = set(ranks)
        return max(
            (Fraction(factor) for pair, factor in self.links if among.issuperset(cast("tuple[int, int]", pair))),
            default=Fraction(1),
        )


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


def _plain(value: Any) -> str:
    """Return factors as plain numbers, which is how they are given."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{who!r}: {_plain(factor)}" for who, factor in value.items()) + "}"
    return repr(int(value) if value == int(value) else float(value))


def _who(name: str, who: object) -> Any:
    """Return a rank, or a pair of ranks in order."""
    if name == "slow":
        return whole_number("slow", who, least=0)
    if not isinstance(who, tuple) or len(who) != 2 or who[0] == who[1]:
        problem, fix = "a link is between two ranks", "Uneven(links={(0, 1): 2})"
        raise PuzzleError(problem, where="Uneven", got=describe(who), fix=fix)
    return tuple(sorted(whole_number("links", rank, least=0) for rank in who))


def _factor(name: str, factor: object, least: int = 1) -> Fraction:
    right = isinstance(factor, (int, float, Fraction)) and not isinstance(factor, bool)
    if not right or not least <= factor < float("inf"):  # type: ignore[operator]
        expected = f"a number from {least} up" + (": how many times as long" if least else "")
        raise PuzzleError(f"{name} cannot be", where="Uneven", expected=expected, got=describe(factor))
    return Fraction(exact(factor))  # type: ignore[arg-type]
