"""A rank's number that knows what it would be on the ranks for which this one stands.

It is a column, the number at every place. A function computes with it as with any number, and every number that comes
of it is a column, too. Where it asks a question whose answer is not the same on all those ranks, as
``if model.rank == 5`` does, a rank with the other answer has to be run as well: only then is seen whether it does the
same. What is given to a verb of the model (a shard, micro-batches, the rank at the other end) is known for all ranks.

Where a function takes the plain number instead, as ``range(model.rank, ...)``, ``table[model.rank]`` and
``f"{model.rank}"`` do, nobody can see what it makes of that, so the others are run beside the first ones (``follow``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from ..basics.errors import learner_frame
from ..machine.mesh import Axis, Mesh

Place = tuple[int, ...]  # where a rank is on each folded axis
Column = Sequence[Any]  # something for every place, in their order
MOST = 24
"""So many places may be asked for in one run. A question that is another one for each rank asks for all of them."""


class Survey:
    """What is found out about the code of all ranks that are run. ``wanted``: the places that have to be run as well;
    ``taken``: what took a plain number, in words, if anything did."""

    def __init__(self, sizes: Sequence[int], run: frozenset[Place]) -> None:
        self.places: list[Place] = [*product(*map(range, sizes))]
        self.at = {place: number for number, place in enumerate(self.places)}
        self.sizes = tuple(sizes)
        self.run = frozenset([self.at[place] for place in run])
        self.wanted = set[Place]()
        self.taken = ""
        self._steps: dict[int, tuple[Column, Place | None]] = {}  # by identity of a column

    def take(self, what: str) -> None:
        """Note that the code of a rank has got a plain number, or something else that its number is in."""
        self.taken = self.taken or what

    def steps(self, column: Column) -> Place | None:
        """By how much a column moves on along each axis, if it does so by the same step everywhere; else None."""
        known = self._steps.get(id(column))
        if known is None or known[0] is not column:
            seconds = [tuple(map(axis.__eq__, range(len(self.sizes)))) for axis in range(len(self.sizes))]
            steps = tuple([column[self.at.get(second, 0)] - column[0] for second in seconds])
            expected = [column[0] + sum(map(operator.mul, place, steps)) for place in self.places]
            known = self._steps[id(column)] = column, steps if expected == [*column] else None
        return known[1]


class Questions:
    """What the code of one rank has asked. ``alike``: the places at which every answer so far is the same as here;
    ``sources``: what it has given to the model, in order, each number as that of the first place and its steps."""

    def __init__(self, survey: Survey, here: Place, ranks: Column) -> None:
        self.survey, self.here, self.ranks = survey, survey.at[here], ranks
        self.same = set(range(len(survey.places)))
        self.sources: list[tuple[object, Place | None]] = []
        self.known: dict[object, Any] = {}  # numbers that are asked for again

    def ask(self, answers: Column) -> bool:
        """Return the answer here, and note whose answer is another one."""
        own, survey = bool(answers[self.here]), self.survey
        if len(self.same) > 1 and len(survey.wanted) < MOST:
            others = {place for place in self.same if bool(answers[place]) != own}
            self.same -= others
            if others and others.isdisjoint(survey.run):
                places = {survey.places[place] for place in others}
                if places.isdisjoint(survey.wanted):
                    survey.wanted.add(min(places))
        return own

    def number(self, column: Column) -> int | Coordinate:
        """Return a number, given for every place: a plain one, if it is the same everywhere."""
        own = column[self.here]
        return own if column.count(own) == len(column) else Coordinate(self, column)

    def once(self, name: object, column: Callable[[], Column]) -> Any:
        """Return a number that is computed when it is first asked for."""
        if name not in self.known:
            self.known[name] = self.number(column())
        return self.known[name]

    def rank_at(self, mesh: Mesh, coordinates: Mapping[str, Any]) -> Any:
        """Return the rank at these coordinates, and on the other axes where this rank is."""
        found, stride = self.rank, mesh.ranks
        for axis, size in mesh.axes.items():
            stride //= size
            if axis in coordinates:
                found = found + (coordinates[axis] - self.index(mesh, axis)) * stride
        return found

    def _places(self, mesh: Mesh, axis: Axis) -> Column:
        return [mesh.index(rank, axis) for rank in self.ranks]

    def index(self, mesh: Mesh, axis: Axis) -> Any:
        """Return the place of the rank along an axis, or in the group along several."""
        return self.once(("axis", axis), partial(self._places, mesh, axis))

    # -- what a rank gives to its model ---------------------------------------------------------------

    def given(self, value: Any) -> Any:
        """Return a number as it is here, and note it for all places; anything else as it is."""
        if type(value) is not Coordinate:
            self.sources.append((value, None))
            return value
        steps = self.survey.steps(value._column)
        if steps is None:
            self.survey.take("a number that does not move on by the same step from rank to rank")
        self.sources.append((value._column[0], steps))
        return value._column[self.here]

    def end(self, rank: Any) -> Any:
        """Return the rank at the other end of a message, as ``given`` does: it has to be as far along as this one."""
        if type(rank) is Coordinate and self.survey.steps(rank._column) != self.survey.steps(self.ranks):
            self.survey.take("a message along a folded axis")
        return self.given(rank)

    def batches(self, batches: Any) -> Any:
        """Return micro-batches as they are here, and note each as ``given`` does."""
        try:
            return [*map(self.given, batches)]
        except TypeError:
            return batches  # refused as ever

    @property
    def rank(self) -> Any:
        """The rank's own number."""
        return self.once("rank", lambda: self.ranks)


class Coordinate:
    """A whole number that depends on the place of its rank."""

    __slots__ = ("_column", "_questions")

    def __init__(self, questions: Questions, column: Column) -> None:
        self._questions, self._column = questions, column

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What ``isinstance`` asks for: to a learner it is an int."""
        return int

    def _taken(self) -> int:
        """Return the plain number here, and note that it was taken."""
        frame = learner_frame()
        line = f", in line {frame.f_lineno} of {frame.f_code.co_name}" if frame else ""
        self._questions.survey.take(f"the plain number of a rank{line}")
        number: int = self._column[self._questions.here]
        return number

    def __bool__(self) -> bool:
        return self._questions.ask(self._column)

    def __divmod__(self, other: Any) -> Any:
        return operator.floordiv(self, other), operator.mod(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return operator.floordiv(other, self), operator.mod(other, self)

    def __index__(self) -> int:
        return self._taken()

    __int__ = __trunc__ = __floor__ = __ceil__ = __hash__ = __index__

    def __float__(self) -> float:
        return float(self._taken())

    def __repr__(self) -> str:
        return repr(self._taken())

    def __str__(self) -> str:
        return str(self._taken())

    def __format__(self, how: str) -> str:
        return format(self._taken(), how)

    def __reduce__(self) -> Any:
        return int, (self._taken(),)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._taken(), name)


def _with(self: Coordinate, other: Any) -> Column | None:
    """Return the other operand for every place, or None for one that is no whole number."""
    if type(other) is Coordinate:
        return other._column
    return [other] * len(self._column) if isinstance(other, int) else None


def _each(self: Coordinate, work: Callable[..., Any], *columns: Column) -> list[Any]:
    """Return what comes of the operands at every place. Where that is an error, it is asked whether it is one here."""
    try:
        return [*map(work, *columns)]
    except ArithmeticError:
        done, fails = list[Any](), list[bool]()
        for operands in zip(*columns, strict=True):
            try:
                done.append(work(*operands))
                fails.append(False)
            except ArithmeticError:
                done.append(0)
                fails.append(True)
        if self._questions.ask(fails):
            work(*[column[self._questions.here] for column in columns])
        return done


def _computing(name: str, turned: bool) -> Callable[[Coordinate, Any], Any]:
    work = getattr(operator, name)

    def compute(self: Coordinate, other: Any) -> Any:
        theirs = _with(self, other)
        if theirs is None:  # a fraction, a list that is repeated: the number as it is here
            return work(other, self._taken()) if turned else work(self._taken(), other)
        column = _each(self, work, *((theirs, self._column) if turned else (self._column, theirs)))
        if not all([isinstance(one, int) for one in column]):
            self._taken()
            return column[self._questions.here]
        return self._questions.number(column)

    return compute


def _comparing(name: str) -> Callable[[Coordinate, Any], Any]:
    work = getattr(operator, name)

    def compare(self: Coordinate, other: Any) -> Any:
        if type(other) is Coordinate or isinstance(other, int):
            return self._questions.ask([*map(work, self._column, _with(self, other) or ())])
        return work(self._taken(), other)

    return compare


def _alone(name: str) -> Callable[[Coordinate], Any]:
    work = getattr(operator, name)
    return lambda self: self._questions.number([*map(work, self._column)])


for _name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift"):
    _plain = _name.rstrip("_")
    setattr(Coordinate, f"__{_plain}__", _computing(_name, turned=False))
    setattr(Coordinate, f"__r{_plain}__", _computing(_name, turned=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Coordinate, f"__{_name}__", _comparing(_name))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Coordinate, f"__{_name}__", _alone(_name))
