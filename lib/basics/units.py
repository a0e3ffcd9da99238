"""Ticks and elements, the two units of the machine, kept exact; and milliseconds, where a clock has measured.

Time is counted in *ticks* (one micro-batch forward through one layer = 1 tick), memory in *elements*. Neither is ever a
sum of floats: times are whole numbers of a *time unit* (the largest fraction of a tick that divides every cost), sizes
are whole numbers or fractions. Only a time that leaves the simulator is a float, the one nearest to the exact value, so
that 20.4 ticks compare equal to ``20.4``.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm
from typing import Any, NamedTuple, TypeAlias

HIDDEN = 512  # width of a layer: a weight has HIDDEN x HIDDEN elements
LENGTH = 256  # tokens of a micro-batch: an activation has HIDDEN x LENGTH elements for each micro-batch
Elements: TypeAlias = int | Fraction
"""A size in elements. A third of a weight is a third, hence the fraction."""


class Ratio(Fraction):
    """A Fraction that adds and compares whole numbers, and its own kind, four times as fast: it asks for no types.

    It is written as a Fraction, and equal to one. Whatever it has no fast way for is done as a Fraction does it, and
    gives a Fraction. (Sizes of shards and times of slices add up at every operation: with Fractions this took a twelfth
    of the time of all verdicts, and a third of those on rings.)

    >>> Ratio(1, 3) + Ratio(1, 6), 1 + Ratio(2, 3), Ratio(5, 3) > 1, Ratio(1, 2) == Fraction(1, 2)
    (Fraction(1, 2), Fraction(5, 3), True, True)
    """

    __slots__ = ()
    _numerator: int  # the slots of a Fraction: its properties are asked ten times more slowly
    _denominator: int

    def __add__(self, other: Any) -> Any:
        if other.__class__ is int:
            return _lowest(self._numerator + other * self._denominator, self._denominator)
        if other.__class__ is Ratio:
            return _total(self, other._numerator, other._denominator)
        return super().__add__(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if other.__class__ is int:
            return _lowest(self._numerator - other * self._denominator, self._denominator)
        if other.__class__ is Ratio:
            return _total(self, -other._numerator, other._denominator)
        return super().__sub__(other)

    def __rsub__(self, other: Any) -> Any:
        if other.__class__ is int:
            return _lowest(other * self._denominator - self._numerator, self._denominator)
        return super().__rsub__(other)

    def __neg__(self) -> Any:
        return _lowest(-self._numerator, self._denominator)

    def __mul__(self, other: Any) -> Any:
        if other.__class__ is int:
            common = gcd(other, self._denominator)
            return _lowest(self._numerator * (other // common), self._denominator // common)
        return super().__mul__(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if other.__class__ is int and other > 0:
            common = gcd(self._numerator, other)
            return _lowest(self._numerator // common, self._denominator * (other // common))
        return super().__truediv__(other)

    def __lt__(self, other: Any) -> bool:
        if other.__class__ is int:
            return self._numerator < other * self._denominator
        if other.__class__ is Ratio:
            return self._numerator * other._denominator < other._numerator * self._denominator
        return super().__lt__(other)

    def __gt__(self, other: Any) -> bool:
        if other.__class__ is int:
            return self._numerator > other * self._denominator
        if other.__class__ is Ratio:
            return self._numerator * other._denominator > other._numerator * self._denominator
        return super().__gt__(other)

    def __repr__(self) -> str:
        return f"Fraction({self._numerator}, {self._denominator})"


def _lowest(numerator: int, denominator: int) -> Ratio:
    """Return a ratio that is known to be in lowest terms."""
    made = object.__new__(Ratio)
    made._numerator, made._denominator = numerator, denominator
    return made


def _total(one: Ratio, numerator: int, denominator: int) -> Ratio:
    """Return a ratio plus another, of which these are the terms."""
    top, below = one._numerator, one._denominator
    if below == denominator:
        top += numerator
    else:
        top, below = top * denominator + numerator * below, below * denominator
    common = gcd(top, below)
    return _lowest(top, below) if common == 1 else _lowest(top // common, below // common)


def whole_or_ratio(number: int | Fraction) -> int | Fraction:
    """Return a number as an int, if it is whole, else as one that adds up fast.

    >>> whole_or_ratio(Fraction(4, 2)), whole_or_ratio(Fraction(1, 3))
    (2, Fraction(1, 3))
    """
    if number.__class__ is int:
        return number
    if number.denominator == 1:
        return number.numerator
    return number if number.__class__ is Ratio else Ratio(number)


def exact(number: int | float | Fraction) -> Fraction:
    """Return the number as it is written: 0.3 means three tenths, not the float nearest to it.

    >>> exact(0.3)
    Fraction(3, 10)
    """
    return Fraction(str(number)) if isinstance(number, float) else Fraction(number)


def common_time_unit(durations: list[Fraction]) -> int:
    """Return how many time units a tick needs, so that every duration is a whole number of time units.

    >>> common_time_unit([Fraction(3, 10), Fraction(1, 2)])
    10
    """
    return lcm(*(duration.denominator for duration in durations))


@lru_cache(maxsize=1 << 10)  # one number for all pieces of a size, not one for each
def divided(elements: int, total: int) -> Elements:
    """Return ``elements / total`` exactly, as an int where it comes out even (ints are faster).

    >>> divided(6, 3), divided(1, 3)
    (2, Fraction(1, 3))
    """
    quotient, rest = divmod(elements, total)
    return Ratio(elements, total) if rest else quotient


def show_ticks(ticks: float) -> str:
    """Return a time for people: ``20.4``, and not ``20.400000000000002``."""
    return f"{ticks:.10g}"


def two_digits(figure: float | Fraction) -> float:
    """Return a figure with two digits, which is the accuracy of the model of a real machine.

    >>> two_digits(13.62), two_digits(68_060_000_000)
    (14.0, 68000000000.0)
    """
    return float(f"{float(figure):.2g}")


class Unit(NamedTuple):
    """The unit of the times of a run, and the way to write them.

    >>> TICKS.lasting(24.6133333333), TICKS.lasting(1), TICKS.at(TICKS.show(3.3))
    ('24.6133 ticks', '1 tick', 'tick 3.3')
    >>> MS.lasting(36.671), MS.at(MS.show(36.671))
    ('36.7 ms', '36.671 ms')
    """

    name: str  # plural
    one: str
    moment: str  # with a placeholder for the time
    show: Callable[[float], str]  # as exact as it is known, for moments that may be close to each other
    brief: Callable[[float], str]  # for the time of a whole run
    scored: Callable[[float], float] = lambda time: time  # the time that counts when a run is graded

    def lasting(self, time: float) -> str:
        """Return a duration with its unit."""
        shown = self.brief(time)
        return f"{shown} {self.one if shown == '1' and self.name == self.one + 's' else self.name}"

    def at(self, shown: str) -> str:
        """Return a moment with its unit. ``shown``: one time, or two, formatted by ``show`` or ``brief``."""
        return self.moment.format(shown)


TICKS = Unit("ticks", "tick", "tick {}", show_ticks, lambda ticks: show_ticks(round(ticks, 4) or ticks))
MS = Unit("ms", "ms", "{} ms", show_ticks, lambda ms: f"{ms:.0f}" if ms >= 1000 else f"{ms:.3g}")
SECONDS = Unit("s", "second", "{} s", lambda time: f"{time:.6g}", lambda time: f"{time:.4g}", two_digits)


def show_bytes(size: float | Fraction) -> str:
    """Return a size in bytes for people, in units of 1000.

    >>> show_bytes(16_060_522_496), show_bytes(512)
    ('16.1 GB', '512 B')
    """
    for name, scale in (("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if size < 999.5 * scale:
            return f"{float(size) / scale:.3g} {name}"
    return f"{float(size) / 1e12:.3g} TB"


def show_elements(elements: Elements | float) -> str:
    """Return a size for people: digits in threes, and two decimals for a fraction of an element.

    >>> show_elements(2621440), show_elements(Fraction(1, 3))
    ('2,621,440', '0.33')
    """
    return f"{int(elements):,}" if elements == int(elements) else f"{float(elements):,.2f}"


class SizeUnit(NamedTuple):
    """The unit of the sizes of a run, and the way to write them.

    >>> ELEMENTS.describe(2621440), BYTES.describe(16_060_522_496)
    ('2,621,440 elements', '16.1 GB')
    """

    name: str
    show: Callable[[Elements | float], str]  # the number, and its unit unless that is always the same
    says_itself: bool = False  # whether ``show`` adds the unit
    scored: Callable[[Elements | float], Elements | float] = lambda size: size  # the size that counts in grading

    def describe(self, size: Elements | float) -> str:
        """Return a size with its unit."""
        return self.show(size) if self.says_itself else f"{self.show(size)} {self.name}"


ELEMENTS = SizeUnit("elements", show_elements)
BYTES = SizeUnit("bytes", show_bytes, says_itself=True, scored=two_digits)
