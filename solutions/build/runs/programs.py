"""What a source defines, and runs of it. The same program at the same size is run once in a build."""

import ast
import linecache
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from inspect import signature
from pathlib import Path
from typing import Any

import lib
from lib import Run

from ..sources.definitions import FIGURES, definitions
from ..sources.files import BuildError

PATIENCE = 300
"""Seconds for a run of a build, which ends what never ends. No page depends on how fast or busy a machine is."""
_done: dict[Any, Run] = {}
asked: list[Run] = []
"""The runs that were asked for, since this list was emptied."""


def defined_by(path: Path) -> dict[str, Any]:
    """Return what a source defines. Raise BuildError if that fails."""
    return program(path.name, path.read_text(encoding="utf-8"))


@cache
def program(file: str, text: str) -> dict[str, Any]:
    """Return what the text of a source defines, without its figures. Its runs are those of ``once``."""
    names: dict[str, Any] = {"__name__": "page"}
    text = text.partition(FIGURES.decode())[0]
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    kept = list(definitions(ast.parse(text, file).body))
    try:
        exec(compile(ast.Module(kept, []), file, "exec", dont_inherit=True), names)
    except Exception as error:  # whatever a source may raise
        raise BuildError(f"{file}: {type(error).__name__}: {error}") from error
    if "run" in names:
        names["run"] = once
    return names


def once(function: Callable[..., Any], *sizes: Any, **options: Any) -> Run:
    """Run a program, as ``lib.run`` does. The same program at the same size is run once in a build."""
    key = _same(function, sizes, options)
    found = _done.get(key) if key else None
    if found is None:
        found = lib.run(function, *sizes, **{"timeout": PATIENCE} | options)
    if key:
        _done[key] = found
    asked.append(found)
    return found


def _same(function: Callable[..., Any], sizes: Any, options: Any) -> Any:
    """Return something that is equal for equal runs, or nothing where a cost or a program cannot be compared."""
    with suppress(TypeError):
        call = signature(lib.run).bind(function, *sizes, **options)
        call.apply_defaults()
        return _key(call.arguments)
    return None


def _key(value: Any) -> Any:
    """Return something that is equal for equal arguments."""
    if isinstance(value, partial):
        return value.func, _key(value.args), _key(value.keywords)
    if isinstance(value, Mapping):
        return tuple(sorted((name, _key(one)) for name, one in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    hash(value)
    return type(value), value
