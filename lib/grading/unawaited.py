"""Coroutines of a learner's own that are called and never awaited: Python makes them, and nothing in them is done."""

import ast
from collections.abc import Iterator

LONGEST = 100_000  # characters of a program that is searched
LONGEST_CALL = 60  # characters of a call that are shown


def never_awaited(source: str) -> str:
    """Return what to write for a call of a coroutine function that a program defines, where what it gives is dropped,
    or only kept in a list that nobody reads; an empty text where there is none.

    >>> never_awaited("async def sums(n): ...\\nasync def ddp(model):\\n    sums(3)")
    'await sums(3): it is called and never awaited, and a coroutine that nobody awaits does nothing'
    >>> never_awaited("async def sums(n): ...\\nasync def ddp(model):\\n    await sums(3)")
    ''
    """
    try:
        tree = ast.parse(source[:LONGEST])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    names -= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    does_nothing = "a coroutine that nobody awaits does nothing"
    for call in _dropped(tree, names):
        return f"await {_shown(call)}: it is called and never awaited, and {does_nothing}"
    for call, kept in _only_kept(tree, names):
        gather = f"await asyncio.gather(*{kept})"
        return f"{_shown(call)} is put into {kept}, and never awaited: {gather} after that, since {does_nothing}"
    return ""


def _shown(call: ast.Call) -> str:
    """Return a call as it is written, or its name alone where that is long."""
    text = ast.unparse(call)
    return text if len(text) <= LONGEST_CALL else f"{ast.unparse(call.func)}(...)"


def _is_call(node: ast.AST, names: set[str]) -> bool:
    """Return whether this is a call of one of these functions."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _dropped(tree: ast.Module, names: set[str]) -> Iterator[ast.Call]:
    """Yield the calls of these functions that are a statement by themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _is_call(node.value, names):
            yield node.value


def _only_kept(tree: ast.Module, names: set[str]) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls of these functions whose results are appended to a list that is read nowhere, each with the name
    of that list."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=kept), attr="append"), args=[ast.Call() as call]):
                if _is_call(call, names) and not _is_read(tree, kept):
                    yield call, kept


def _is_read(tree: ast.Module, name: str) -> bool:
    """Return whether a list is used for anything but to append to it."""
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    reads = [node for node in uses if isinstance(node.ctx, ast.Load)]
    appends = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "append"]
    return len(reads) > sum(_names(node.value, name) for node in appends)


def _names(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
