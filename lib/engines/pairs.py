"""What a tensor carries on an engine with real tensors: a fingerprint, and numbers. Nothing here needs torch.

Each tensor has the fingerprint that it would have in the simulator, so that every rule and every check goes on working,
and its numbers. The two are independent: each operation is carried out in both, and the end is checked in both.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ..machine.fingerprints import Fingerprints
from ..record.operations import Values

GIVE_TWO = frozenset(
    name for name, method in vars(Values).items() if "tuple" in getattr(method, "__annotations__", {}).get("return", "")
)
"""The methods of ``Values`` that give two values."""


class Pair:
    """The value of a tensor: ``mark``, its fingerprint, and its ``numbers``. ``make()`` makes them; it is None when
    they are there, where a call brings them, or where they are on another rank."""

    __slots__ = ("mark", "make", "numbers")

    def __init__(self, mark: Any, make: Callable[[], Any] | None = None) -> None:
        self.mark, self.make, self.numbers = mark, make, None

    def made(self) -> Any:
        """Return the numbers, which are made when they are first asked for."""
        if self.make is not None:
            self.numbers, self.make = self.make(), None
        return self.numbers


class Pairs:
    """The arithmetic of such values (``record.operations.Values``): fingerprints at once, and by ``numbers`` the same
    operations with real numbers, ``at_once`` or later. Without ``numbers`` these are never made."""

    def __init__(self, numbers: Any = None, at_once: bool = False) -> None:
        self.fingerprints, self.numbers, self.at_once = Fingerprints(), numbers, at_once
        self.zero = Pair(Fingerprints.zero, numbers and (lambda: numbers.zero))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of ``Values``."""
        mark: Callable[..., Any] = getattr(self.fingerprints, name)
        number: Callable[..., Any] | None = getattr(self.numbers, name, None)

        def paired(*given: Any, **options: Any) -> Any:
            def make() -> Any:
                assert number is not None
                return number(*_of_each(Pair.made, given), **_of_each(Pair.made, options))

            found = mark(*_of_each(_mark, given), **_of_each(_mark, options))
            whole = Pair(found, number and make)
            made: Any = whole
            if name in GIVE_TWO:
                made = tuple(Pair(one, number and (lambda at=at: whole.made()[at])) for at, one in enumerate(found))
            if self.at_once:
                _of_each(Pair.made, made)
            return made

        return paired


_mark = attrgetter("mark")


def _of_each(what: Callable[[Pair], Any], given: Any) -> Any:
    """Return arguments with ``what`` of each value in them."""
    if isinstance(given, Pair):
        return what(given)
    if type(given) is dict:
        return {name: _of_each(what, one) for name, one in given.items()}
    return [_of_each(what, one) for one in given] if type(given) in (list, tuple) else given
