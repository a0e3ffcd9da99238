"""Whether a function may do anything but work with its model.

Only a function that cannot may be run on fewer ranks, or once more, without anybody noticing: it prints nothing, keeps
nothing from one rank to the next, and takes nothing from a file or a clock. That is read off its code, and whatever is
not known to be harmless is taken for an effect.
"""

from __future__ import annotations

import asyncio
import builtins
import dis
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

from ..learner import tensors
from ..learner.model import Model

BUILTINS = (
    *(abs, all, any, bool, dict, divmod, enumerate, filter, float, frozenset, int, isinstance, iter, len, list, map),
    *(max, min, next, pow, range, reversed, round, set, slice, sorted, str, sum, tuple, type, zip),
)
"""The builtins that change nothing, and give the same each time."""
TENSORS = [getattr(tensors, name) for name in tensors.__all__]
HARMLESS = (*BUILTINS, asyncio, Model, *TENSORS)
CONSTANTS = (int, float, complex, str, bytes, bool, type(None), type(...))
OF_THE_LOG = {"check", "lines", "log", "status", "storage"}
"""What a model tells of a run so far."""
ATTRIBUTES = frozenset(
    name
    for kind in (Model, list, dict, set, frozenset, tuple, str, int, range, *TENSORS)
    for name in (*dir(kind), *getattr(kind, "__annotations__", ()))
    if not name.startswith("_")
) - OF_THE_LOG - {"dist"} | {"gather"}
"""The names that may stand behind a dot: what the model, tensors and plain containers have, and ``asyncio.gather``."""
STEPS = frozenset(
    ["STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "IMPORT_FROM", "PUSH_EXC_INFO"]
)
"""Steps of the interpreter that change what others see, or take something from elsewhere; with the last one an error is
caught, whose text may say anything."""
STEPS |= {"LOAD_BUILD_CLASS", "STORE_NAME", "DELETE_NAME", "LOAD_NAME", "LOAD_SUPER_ATTR", "LOAD_LOCALS"}
NAMED = frozenset(["LOAD_ATTR", "LOAD_METHOD"])


def only_its_model(fn: Callable[..., object]) -> bool:
    """Return whether a function, with all that it calls, is known to do nothing but work with its model."""
    return _harmless(fn, set())


def _harmless(thing: object, known: set[int]) -> bool:
    """Return whether something that code can name is a constant, or does nothing but what it is known for. ``known``:
    the functions that are being looked at."""
    if type(thing) in (tuple, frozenset):
        return all(_harmless(one, known) for one in thing)  # type: ignore[attr-defined]
    if type(thing) is not FunctionType:
        return type(thing) in CONSTANTS or any(thing is one for one in HARMLESS)
    if id(thing) in known:
        return True
    known.add(id(thing))
    cells = [cell.cell_contents for cell in thing.__closure__ or () if cell != CellType()]
    given = [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
    return _harmless_code(thing, known) and all(_harmless(one, known) for one in (*cells, *given))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code, and those of the functions in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _harmless_code(fn: FunctionType, known: set[int]) -> bool:
    outside = {*fn.__code__.co_freevars}
    for code in _codes(fn.__code__):
        if any("return_exceptions" in names for names in code.co_consts if type(names) is tuple):
            return False  # errors would be caught
        for step in dis.get_instructions(code):
            name = step.argval
            if step.opname in STEPS or (step.opname in NAMED and name not in ATTRIBUTES):
                return False
            if step.opname in ("STORE_DEREF", "DELETE_DEREF") and name in outside:
                return False
            if step.opname == "LOAD_GLOBAL":
                found = fn.__globals__.get(name, vars(builtins).get(name, fn.__globals__))
                if not _harmless(found, known):
                    return False
    return True


def frozen(fn: Callable[..., object]) -> Callable[..., object]:
    """Return a function that does what this one does now, also when somebody has given another value to a name that it
    reads. It has to be one that works with its model only."""
    known = dict[int, FunctionType]()

    def copied(thing: Any) -> Any:
        if type(thing) in (tuple, frozenset):
            return type(thing)(map(copied, thing))
        if type(thing) is not FunctionType:
            return thing
        if id(thing) not in known:
            names = dict[str, Any]({"__builtins__": thing.__globals__.get("__builtins__", builtins)})
            cells = tuple([CellType() for _ in thing.__closure__ or ()])
            known[id(thing)] = own = FunctionType(thing.__code__, names, thing.__name__, closure=cells or None)
            own.__defaults__ = copied(thing.__defaults__)
            own.__kwdefaults__ = {name: copied(one) for name, one in (thing.__kwdefaults__ or {}).items()} or None
            own.__qualname__, own.__module__ = thing.__qualname__, thing.__module__
            for code in _codes(thing.__code__):
                for name in code.co_names:
                    if name in thing.__globals__:
                        names[name] = copied(thing.__globals__[name])
            for cell, theirs in zip(cells, thing.__closure__ or (), strict=True):
                if theirs != CellType():
                    cell.cell_contents = copied(theirs.cell_contents)
        return known[id(thing)]

    return copied(fn)  # type: ignore[no-any-return]
