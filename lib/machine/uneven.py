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
        expected = "pairs of two ranks, for example Uneven(links={(0, 1): 2})"
        raise PuzzleError("a link is between two ranks", where="Uneven", expected=expected, got=describe(who))
    return tuple(sorted(whole_number("links", rank, least=0) for rank in who))


def _factor(name: str, factor: object, least: int = 1) -> Fraction:
    right = isinstance(factor, (int, float, Fraction)) and not isinstance(factor, bool)
    if not right or not least <= factor < float("inf"):  # type: ignore[operator]
        expected = f"a number from {least} up" + (": how many times as long" if least else "")
        raise PuzzleError(f"{name} cannot be", where="Uneven", expected=expected, got=describe(factor))
    return Fraction(exact(factor))  # type: ignore[arg-type]
