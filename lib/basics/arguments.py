"""Checks of a learner's arguments: whole numbers, sets of them, and descriptions of anything else."""

import inspect
from collections.abc import Iterable, Sequence
from operator import index

from .errors import NOWHERE, Place, PuzzleError

AS_NUMBERS = "layers are numbers and no texts, used as a loop gives them: "


def whole_number(name: str, value: object, least: int = 1, where: Place = NOWHERE, fix: str = "") -> int:
    """Return the value as an int. Raise PuzzleError unless it is a whole number from ``least`` up."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise PuzzleError(f"{name} must be a whole number from {least} up", where=where, got=describe(value), fix=fix)
    return number


def one_of(name: str, value: object, count: int, where: Place = NOWHERE, fix: str = "") -> int:
    """Return the value as an int. Raise PuzzleError unless it is a whole number from 0 to ``count - 1``."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number < count:
        expected = f"a whole number from 0 to {count - 1}"
        raise PuzzleError(f"{name} is out of range", where=where, expected=expected, got=describe(value), fix=fix)
    return number


def one_of_names(option: str, value: object, known: tuple[str, ...]) -> None:
    """Raise PuzzleError unless the value of an option is one of the known names."""
    if not isinstance(value, str) or value not in known:
        raise PuzzleError(f"there is no such {option}", expected=" or ".join(map(repr, known)), got=describe(value))


def instance_of(name: str, value: object, kind: type, example: str) -> None:
    """Raise PuzzleError, with an example, unless a value is of a type."""
    if not isinstance(value, kind):
        raise PuzzleError(f"{name} must be a {kind.__name__}", got=describe(value), fix=example)


def set_of(name: str, numbers: Iterable[int], count: int | None = None, where: Place = NOWHERE) -> frozenset[int]:
    """Return any iterable of whole numbers (below ``count``) as a frozenset. Raise PuzzleError for anything else."""
    try:
        found = frozenset(index(number) for number in numbers)
    except TypeError:
        problem = f"{name} must be whole numbers in brackets, one or several, for example [0] or [0, 1]"
        instead = ""
        if isinstance(numbers, int):
            instead = "one in brackets as well, as [model.rank] or [micro_batch]"
            instead += f"; those before it are range({numbers})" * (numbers > 0)
        elif isinstance(numbers, (list, tuple, set)) and any(isinstance(one, float) for one in numbers):
            instead = "of whole numbers // gives a whole number, and / does not"
        fix = forgotten_await(numbers) or instead
        raise PuzzleError(problem, where=where, got=describe(numbers), fix=fix) from None
    if count is not None and not all(0 <= number < count for number in found):
        expected = f"numbers from 0 to {count - 1}"
        fix = f"there are {count} of them, and the first has number 0"
        raise PuzzleError(f"{name} out of range", where=where, expected=expected, got=describe(found), fix=fix)
    return found


def forgotten_await(thing: object) -> str:
    """Return the fix for something that should have been awaited, or an empty text."""
    return "did you forget `await`?" if inspect.isawaitable(thing) else ""


def describe(thing: object) -> str:
    """Return the repr of something, cut off after 120 characters."""
    text = repr(thing)
    return text if len(text) <= 120 else text[:117] + "..."


def either(choices: Sequence[str]) -> str:
    """Return several things of which one is to be chosen, as text.

    >>> either(["one", "two"]), either(["one", "two", "three"]), either([])
    ('one or two', 'one, two, or three', '')
    """
    if len(choices) < 3:
        return " or ".join(choices)
    return f"{', '.join(choices[:-1])}, or {choices[-1]}"
