"""A check that this library is unchanged since it was imported.

It stops only the simplest tampering in a notebook, and reminds learners of forgotten experiments. Grading at a shell is
what counts.
"""

import builtins
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from ..record.table import OPERATIONS

BUILTINS = "abs all any dict frozenset hash int isinstance len list map max min range set sorted sum tuple type zip"

_PACKAGE = __name__.split(".")[0]


def _parts() -> Iterator[tuple[str, Any]]:
    """Yield the functions, methods and code of this package and the builtins that it needs, with their names."""
    for name, module in sorted(sys.modules.items()):
        if name == _PACKAGE or name.startswith(_PACKAGE + "."):
            for key, value in list(vars(module).items()):
                if isinstance(value, (FunctionType, type)) and value.__module__.split(".")[0] == _PACKAGE:
                    yield from _parts_of(f"{name}.{key}", value)
    for kind, row in OPERATIONS.items():
        yield f"operation {kind}", row
        yield from ((f"operation {kind}.{key}", value) for key, value in vars(row).items() if callable(value))
    yield from ((name, getattr(builtins, name)) for name in BUILTINS.split())


def _parts_of(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    yield name, thing
    if isinstance(thing, FunctionType):
        yield f"{name}.__code__", thing.__code__
    else:
        for key, value in list(vars(thing).items()):
            if isinstance(value, FunctionType):
                yield from _parts_of(f"{name}.{key}", value)


_sealed: dict[str, Any] = {}


def seal() -> None:
    """Record the present state of the library."""
    _sealed.update(_parts())


def broken_seal() -> str:
    """Return the name of something that has changed since ``seal``, or an empty text."""
    now = dict(_parts())
    return next((name for name, value in _sealed.items() if now.get(name) is not value), "")
