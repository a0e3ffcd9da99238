"""Checks of a learner's arguments: whole numbers, sets of them, and descriptions of anything else."""

import inspect
from collections.abc import Iterable
from operator import index

from .errors import NOWHERE, Place, PuzzleError


def whole_number(name: str, value: object, least: int = 1, where: Place = NOWHERE) -> int:
    """Return the value as an int. Raise PuzzleError unless it is a whole number from ``least`` up."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise PuzzleError(f"{name} must be a whole number from {least} up", where=where, got=describe(value))
    return number


def one_of(name: str, value: object, count: int, where: Place = NOWHERE) -> int:
    """Return the value as an int. Raise PuzzleError unless it is a whole number from 0 to ``count - 1``."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number < count:
        expected = f"a whole number from 0 to {count - 1}"
        raise PuzzleError("out_of_range", where=where, expected=expected, got=describe(value), what=name)
    return number


def one_of_names(option: str, value: object, known: tuple[str, ...]) -> None:
    """Raise PuzzleError unless the value of an option is one of the known names."""
    if not isinstance(value, str) or value not in known:
        raise PuzzleError(f"there is no such {option}", expected=" or ".join(map(repr, known)), got=describe(value))


def instance_of(name: str, value: object, kind: type, example: str) -> None:
    """Raise PuzzleError, with an example, unless a value is of a type."""
    if not isinstance(value, kind):
        raise PuzzleError(f"{name} must be a {kind.__name__}", expected=f"for example {example}", got=describe(value))


def set_of(name: str, numbers: Iterable[int], count: int | None = None, where: Place = NOWHERE) -> frozenset[int]:
    """Return any iterable of whole numbers (below ``count``) as a frozenset. Raise PuzzleError for anything else."""
    try:
        found = frozenset(index(number) for number in numbers)
    except TypeError:
        if inspect.isawaitable(numbers):
            raise PuzzleError("forgot_await", where=where, got=describe(numbers), what=name) from None
        problem = f"{name} must be whole numbers in brackets, one or several, for example [0] or [0, 1]"
        raise PuzzleError(problem, where=where, got=describe(numbers)) from None
    if count is not None and not all(0 <= number < count for number in found):
        expected = f"numbers from 0 to {count - 1}"
        raise PuzzleError("out_of_range", where=where, expected=expected, got=describe(found), what=name)
    return found


def describe(thing: object) -> str:
    """Return the repr of something, cut off after 120 characters."""
    text = repr(thing)
    return text if len(text) <= 120 else text[:117] + "..."
