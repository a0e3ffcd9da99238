"""What never reaches the machine, from the text of a program: a coroutine that nobody awaits, a name without a value,
arguments in another order, a size that is written out. The text is read, and never run."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ..course.layouts import Size
from ..learner.model import Model
from ..record.table import stream_of
from .notes import Line
from .statement import Statement, say

SMALLEST = 3
"""Below this a number written out is rarely a size."""
SIZES: Mapping[str, str] = {"ranks": "model.RANKS", "layers": "model.LAYERS", "batches": "model.BATCHES"}


def spelled(source: str, line: int, size: Size, own: Size) -> Iterator[Statement]:
    """Yield what the text of a program shows. ``line``: that of the error, or 0; ``size``: at which it has failed;
    ``own``: the puzzle's own size. Nothing of a text that is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    lines = source.splitlines()

    def at(node: ast.AST) -> Line:
        number: int = getattr(node, "lineno", 0)
        return Line(number, lines[number - 1].strip())

    yield from _never_awaited(tree, at)
    yield from _without_value(tree, line, at)
    yield from _exchanged(tree, line, at)
    if size != own:
        yield from _written_out(tree, size, own, at)


def _never_awaited(tree: ast.Module, at: Any) -> Iterator[Statement]:
    """Yield calls of coroutines, and of communications, that stand by themselves without `await`."""
    coroutines = {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = node.value.func.id if isinstance(node.value.func, ast.Name) else ""
            name = name if name in coroutines else _verb(node.value)
            if name in coroutines or stream_of(name) in ("collective", "message"):
                yield say("without_await", line=at(node), call=name)


def _without_value(tree: ast.Module, line: int, at: Any) -> Iterator[Statement]:
    """Yield the names of a line to which no line gives a value, or only lines from there on."""
    given: dict[str, list[int]] = {}
    for node in ast.walk(tree):
        name = node.id if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else None
        name = name or next(filter(None, (getattr(node, part, None) for part in ("asname", "name", "arg"))), None)
        if isinstance(name, str):
            given.setdefault(name.partition(".")[0], []).append(getattr(node, "lineno", 0))
    if "*" in given:
        return
    here = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.lineno == line]
    for name, node in {node.id: node for node in here if isinstance(node.ctx, ast.Load)}.items():
        if name not in given and not hasattr(builtins, name):
            yield say("no_value", line=at(node), given=name)
        elif min(given.get(name, [0])) > line:
            yield say("no_value_yet", line=at(node), given=name, later=min(given[name]))


def _exchanged(tree: ast.Module, line: int, at: Any) -> Iterator[Statement]:
    """Yield arguments of a verb that are named as another one of its parameters is."""
    for node in ast.walk(tree):
        verb = _verb(node)
        if not isinstance(node, ast.Call) or not verb or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        wanted = [name for name in inspect.signature(getattr(Model, verb)).parameters if name != "self"]
        for place, (name, argument) in enumerate(zip(wanted, node.args, strict=False)):
            given = argument.id if isinstance(argument, ast.Name) else ""
            if given != name and given in wanted[: len(node.args)]:
                yield say("exchanged", line=at(node), call=verb, given=given, wanted=name, place=place + 1)
                return


def _written_out(tree: ast.Module, size: Size, own: Size, at: Any) -> Iterator[Statement]:
    """Yield numbers that are those of the puzzle's own size, and not of this one."""
    known = {own[name]: name for name in SIZES if own.get(name, 0) >= SMALLEST and own[name] != size.get(name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in known:
            name = known[node.value]
            yield say("written_out", line=at(node), number=node.value, size=SIZES[name], here=size.get(name))
            return


def _verb(node: ast.AST) -> str:
    """Return the verb of ``model.verb(...)``, or an empty text."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="model"), attr=verb)) if hasattr(Model, verb):
            return verb
    return ""
