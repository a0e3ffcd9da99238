"""A check that this library is unchanged since it was imported.

It reminds learners of forgotten experiments, and stops the simplest tampering. Grading at a shell is what counts.
"""

import builtins
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from operator import is_
from types import CodeType, FunctionType, MappingProxyType
from typing import Any

BUILTINS = "abs all any dict frozenset hash int isinstance len list map max min range set sorted sum tuple type zip"

_Names = tuple[str, Mapping[str, Any], dict[str, Any]]
"""Of a module or a class: how its names begin in words, what they stand for now, and what they stood for."""


def _changed(of: str, now: Mapping[str, Any], before: dict[str, Any]) -> Iterator[str]:
    """Yield what is another by now. One by one names are looked at only if something differs: each verdict waits."""
    if not all(map(is_, map(now.get, before), before.values())):
        yield from (of + key for key, value in before.items() if now.get(key) is not value)


def _that_count(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return functions, properties, classes, modules and tables, and no other names: these are seven of ten."""
    marks = "__call__", "__get__", "__spec__"
    return {key: one for key, one in names.items() if key.isupper() or any(hasattr(one, mark) for mark in marks)}


def _names() -> Iterator[_Names]:
    """Yield the names of the modules and classes of this package, and the builtins that it needs."""
    package = __name__.split(".")[0]
    modules = {name: one for name, one in sorted(sys.modules.items()) if name.split(".")[0] == package}
    yield "", vars(builtins), {name: getattr(builtins, name) for name in BUILTINS.split()}
    yield "", sys.modules, modules
    for name, module in modules.items():
        yield f"{name}.", vars(module), _that_count(vars(module))
        for one in list(vars(module).values()):
            if isinstance(one, type) and one.__module__ == name:
                yield f"{name}.{one.__qualname__}.", vars(one), _that_count(vars(one))


def _tables_in(of: str, names: Mapping[str, Any], seen: set[int]) -> Iterator[tuple[str, Any, Any]]:
    """Yield dictionaries, lists and sets that are tables, or in rows of tables, and what they hold."""
    todo = [(of + key, value) for key, value in names.items() if key.isupper()]
    while todo:
        name, value = todo.pop()
        table = value if isinstance(value, _TABLES) else getattr(value, "__dict__", None)
        if table is not None and id(table) not in seen and (table is value or is_dataclass(value)):
            seen.add(id(table))
            rows = dict(_rows(table))
            if not isinstance(table, (tuple, frozenset)):
                yield name, table, rows
            todo += [(name, row) for row in rows.values() if type(row) not in _ATOMS]


_TABLES, _ATOMS = (dict, MappingProxyType, list, set, tuple, frozenset), (str, int, float, bool, FunctionType)


def _rows(table: Any) -> Mapping[Any, Any]:
    if isinstance(table, _TABLES[:2]):
        return table
    return {row: row for row in table} if isinstance(table, (set, frozenset)) else dict(enumerate(table))


_sealed: list[_Names] = []
_codes: list[tuple[FunctionType, CodeType]] = []  # of each function among these
_tables: list[tuple[str, Any, Any]] = []
"""What may be changed in each table among these, and its rows. (Texts of them took a verdict 2 percent longer.)"""


def seal() -> None:
    """Record the present state of the library."""
    _sealed[:] = _names()
    _codes[:] = {fn: fn.__code__ for *_, names in _sealed for fn in names.values() if type(fn) is FunctionType}.items()
    seen = set[int]()
    _tables[:] = [row for of, _, before in _sealed for row in _tables_in(of, before, seen)]


def broken_seal() -> str:
    """Return the name of something that has changed since ``seal``, or an empty text."""
    names = (key for names in _sealed for key in _changed(*names))
    codes = (f"{one.__module__}.{one.__qualname__}.__code__" for one, code in _codes if one.__code__ is not code)
    tables = (name for name, table, rows in _tables if not rows.items() <= _rows(table).items())  # it may have more
    return next(names, "") or next(codes, "") or next(tables, "")
