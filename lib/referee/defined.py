"""Which puzzles a loaded file attempts: those of whose name it has something to call, unless that only helps others."""

import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType

from ..basics.errors import PuzzleError
from ..course.specs import puzzles
from ..grading.submission import names_read
from ..running.run import check_function


def defined(names: Mapping[str, object]) -> list[str]:
    """Return the names of puzzles that a file attempts.

    Constants are no attempts, and neither is what Python has built in. A helper is none either: it cannot be called
    with a model alone, and an attempt of the file uses it.
    """
    found = {name: names[name] for name in puzzles() if callable(names.get(name)) and not _built_in(names[name])}
    helpers = {name for name, value in found.items() if not _takes_a_model(value)}
    # Hardly any file has one. To read the code of 31 puzzles takes as long as to compile it.
    used = _used_by(filter(_can_be_run, found.values()), names) if helpers else set()
    return [name for name in found if name not in helpers or name not in used]


def _built_in(value: object) -> bool:
    return inspect.isbuiltin(value) or getattr(value, "__module__", "") == "builtins"


def _can_be_run(value: object) -> bool:
    with suppress(PuzzleError):
        check_function(value)
        return True
    return False


def _takes_a_model(value: object) -> bool:
    """Return whether this can be run. What takes any number of things alone, such as compose(*functions), cannot."""
    if isinstance(value, FunctionType) and not inspect.iscoroutinefunction(value):
        with suppress(ValueError):  # it says that it wraps itself
            kinds = [one.kind for one in inspect.signature(value).parameters.values()]
            if kinds == [inspect.Parameter.VAR_POSITIONAL]:
                return False
    return _can_be_run(value)


def _used_by(values: Iterable[object], names: Mapping[str, object]) -> set[str]:
    """Return the names of the file that the code of these reads, and the code of all that it reads."""
    todo, seen, used = [*values], set[int](), set[str]()
    while todo:
        value = todo.pop()
        if id(value) not in seen:
            seen.add(id(value))
            read = names_read(value.__code__) & names.keys() if isinstance(value, FunctionType) else set[str]()
            used |= read
            todo += [names[name] for name in read] + _parts(value, names)
    return used


def _parts(value: object, names: Mapping[str, object]) -> list[object]:
    """Return the callables that something to call is made of."""
    match value:
        case partial():
            return [value.func, *value.args]
        case MethodType():
            return [value.__func__, type(value.__self__)]
        case classmethod() | staticmethod():
            return [value.__func__]
        case FunctionType():
            return [cell.cell_contents for cell in value.__closure__ or () if cell != type(cell)()]
        case type() if value.__module__ == names.get("__name__"):
            return [*vars(value).values(), *value.__bases__]
    return [type(value)] if type(value).__module__ == names.get("__name__") else []
