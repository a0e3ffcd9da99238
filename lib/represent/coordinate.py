"""A rank's number that knows what it would be on the ranks for which this one stands.

A function may compute with it as it likes. Where it asks a question whose answer is not the same on all those ranks,
as ``if model.rank == 5`` does, a rank with the other answer has to be run, too: only then is seen whether it does the
same. (What is made of the number by ``range`` or as an index of a list is a plain number, and asks nothing.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

Place = tuple[int, ...]  # where a rank is on each folded axis
MOST = 24
"""So many places may be asked for in one run. A question that is another one for each rank asks for all of them."""


class Questions:
    """What the code of one rank has asked. ``alike``: the places at which every answer so far is the same as here;
    ``run``: the places that are run; ``wanted``: those that have to be run as well."""

    def __init__(self, here: Place, places: frozenset[Place], run: frozenset[Place], wanted: set[Place]) -> None:
        self.here, self.alike, self.run, self.wanted = here, places, run, wanted

    def ask(self, answer: Callable[[Place], object]) -> bool:
        """Return the answer here, and note whose answer is another one."""
        own = bool(answer(self.here))
        if len(self.alike) > 1 and len(self.wanted) < MOST:
            others = frozenset([place for place in self.alike if bool(answer(place)) != own])
            self.alike -= others
            if others and others.isdisjoint(self.run) and others.isdisjoint(self.wanted):
                self.wanted.add(min(others))
        return own


class Coordinate(int):
    """A whole number that depends on the place of its rank. ``at`` gives it for every place."""

    _questions: Questions
    _at: Callable[[Place], int]

    @classmethod
    def of(cls, questions: Questions, at: Callable[[Place], int]) -> Coordinate:
        """Return the number that ``at`` gives for the rank that asks these questions."""
        number = cls(at(questions.here))
        number._questions, number._at = questions, at
        return number

    def __bool__(self) -> bool:
        return self._questions.ask(self._at)

    __hash__ = int.__hash__


def _value_at(value: Any, place: Place) -> Any:
    return value._at(place) if isinstance(value, Coordinate) else value


def _computing(name: str, turned: bool) -> Callable[[Coordinate, Any], Any]:
    work = getattr(operator, name)

    def compute(self: Coordinate, other: Any) -> Any:
        if not isinstance(other, int):  # a fraction, a list that is repeated: the number as it is here
            return work(other, int(self)) if turned else work(int(self), other)

        def at(place: Place) -> Any:
            mine, theirs = self._at(place), _value_at(other, place)
            return work(theirs, mine) if turned else work(mine, theirs)

        result = at(self._questions.here)
        return Coordinate.of(self._questions, at) if isinstance(result, int) else result

    return compute


def _comparing(name: str) -> Callable[[Coordinate, Any], Any]:
    work = getattr(operator, name)

    def compare(self: Coordinate, other: Any) -> Any:
        if not isinstance(other, int):
            return getattr(int, f"__{name}__")(int(self), other)
        return self._questions.ask(lambda place: work(self._at(place), _value_at(other, place)))

    return compare


for _name in ("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift"):
    _plain = _name.rstrip("_")
    setattr(Coordinate, f"__{_plain}__", _computing(_name, turned=False))
    setattr(Coordinate, f"__r{_plain}__", _computing(_name, turned=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Coordinate, f"__{_name}__", _comparing(_name))
