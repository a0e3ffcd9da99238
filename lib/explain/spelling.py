"""What never reaches the machine, from the text of a program: a coroutine that nobody awaits, a size that is written
out. The text is read, and never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ..course.layouts import Size
from ..record.table import stream_of
from .notes import Line
from .statement import Statement, say

SMALLEST = 3  # below this a number written out is rarely a size
SIZES: Mapping[str, str] = {"ranks": "model.RANKS", "layers": "model.LAYERS", "batches": "model.BATCHES"}


def spelled(source: str, size: Size, own: Size) -> Iterator[Statement]:
    """Yield what the text of a program shows. ``size``: at which it has failed; ``own``: the puzzle's own
    size. Nothing of a text that is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    yield from _never_awaited(tree)
    if size != own:
        yield from _written_out(tree, size, own)


def _never_awaited(tree: ast.Module) -> Iterator[Statement]:
    """Yield calls of coroutines, and of communications, that stand by themselves without `await`."""
    coroutines = {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = getattr(called, "id", getattr(called, "attr", ""))
            verb = isinstance(called, ast.Attribute) and stream_of(name) in ("collective", "message")
            if verb or (name in coroutines and isinstance(called, ast.Name)):
                yield say("without_await", line=Line(node.lineno), call=name)


def _written_out(tree: ast.Module, size: Size, own: Size) -> Iterator[Statement]:
    """Yield numbers that are those of the puzzle's own size, and not of this one."""
    known = {name: own[name] for name in SIZES if own.get(name, 0) >= SMALLEST and own[name] != size.get(name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in known.values():
            sizes = [f"{SIZES[name]} is {size.get(name)}" for name, value in known.items() if value == node.value]
            yield say("written_out", line=Line(node.lineno), number=node.value, sizes=" and ".join(sizes))
            return
