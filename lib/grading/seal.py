"""A check that this library is unchanged since it was imported.

It stops only the simplest tampering in a notebook, and reminds learners of forgotten experiments. Grading at a shell is
what counts.
"""

import builtins
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from types import CodeType, FunctionType, MappingProxyType
from typing import Any, NamedTuple

from ..record.table import OPERATIONS

BUILTINS = "abs all any dict frozenset hash int isinstance len list map max min range set sorted sum tuple type zip"

_PACKAGE = __name__.split(".")[0]


class _Part(NamedTuple):
    """A function, a class, a table or a row of one, and where it stands: looking there again is nearly all that a check
    does, as each verdict waits for it."""

    name: str
    names: Mapping[str, Any]
    key: str
    value: Any


def _parts() -> Iterator[_Part]:
    """Yield the functions, methods and tables of this package and the builtins that it needs, each where it stands."""
    seen = set[type]()
    for name, module in sorted(sys.modules.items()):
        if name == _PACKAGE or name.startswith(_PACKAGE + "."):
            yield _Part(name, sys.modules, name, module)
            for key, value in list(vars(module).items()):
                own = isinstance(value, (FunctionType, type)) and value.__module__.split(".")[0] == _PACKAGE
                if own or (key.isupper() and _is_table(value)):
                    yield _Part(f"{name}.{key}", vars(module), key, value)
                if own and isinstance(value, type) and value not in seen:
                    seen.add(value)
                    methods = [(one, code) for one, code in vars(value).items() if isinstance(code, FunctionType)]
                    yield from (_Part(f"{name}.{key}.{one}", vars(value), one, code) for one, code in methods)
    for kind, row in OPERATIONS.items():
        yield _Part(f"operation {kind}", OPERATIONS, kind, row)
        rules = [(rule, value) for rule, value in vars(row).items() if callable(value)]
        yield from (_Part(f"operation {kind}.{rule}", vars(row), rule, value) for rule, value in rules)
    yield from (_Part(name, vars(builtins), name, getattr(builtins, name)) for name in BUILTINS.split())


def _is_table(value: object) -> bool:
    """Return whether something holds others, and does not grow as a cache does."""
    plain = type(value) in (dict, list, set, frozenset, MappingProxyType)
    return plain or isinstance(value, tuple) or (is_dataclass(value) and not isinstance(value, type))


def _held(table: Any) -> set[str]:
    rows = table.items() if isinstance(table, Mapping) else table
    return {*map(repr, rows)} if isinstance(table, (Mapping, list, set, frozenset)) else {repr(table)}


_sealed: list[_Part] = []
_codes: list[tuple[str, FunctionType, CodeType]] = []
"""The code of each function among these."""
_tables: list[tuple[str, object, set[str]]] = []
"""What each table among these holds, as texts."""


def seal() -> None:
    """Record the present state of the library."""
    _sealed[:] = _parts()
    first = {id(part.value): part for part in reversed(_sealed)}.values()  # of what stands at several places
    functions = [part for part in first if isinstance(part.value, FunctionType)]
    _codes[:] = [(f"{part.name}.__code__", part.value, part.value.__code__) for part in functions]
    _tables[:] = [(part.name, part.value, _held(part.value)) for part in first if _is_table(part.value)]


def broken_seal() -> str:
    """Return the name of something that has changed since ``seal``, or an empty text."""
    parts = (name for name, names, key, value in _sealed if names.get(key) is not value)
    codes = (name for name, function, code in _codes if function.__code__ is not code)
    tables = (name for name, table, held in _tables if not held <= _held(table))  # a new class may add a row of its own
    return next(parts, "") or next(codes, "") or next(tables, "")
