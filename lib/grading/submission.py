"""Load a learner's notebook or script: imports, definitions, constants, and loops and calls that fill these.

Other statements, such as ``grade(fsdp)``, pictures and experiments, are not run.
"""

import ast
import codeop
import json
import linecache
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ..basics.errors import PuzzleError, shown_files

EXPERIMENTS = ("lib", "drawing", "asyncio")
"""Packages whose calls are experiments: their results are no constants."""

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
if sys.version_info >= (3, 12):
    DEFINITIONS += (ast.TypeAlias,)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
GUARDS = (ast.If, ast.Try)
FILLS = (*ASSIGNMENTS, ast.For, ast.While, ast.With)
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)  # their bodies run only when called


def sources(name: str, text: str) -> list[tuple[str, str]]:
    """Return (name in messages, text) of a script or of each cell. Raise PuzzleError for an unreadable notebook."""
    if not name.endswith(".ipynb"):
        return [(name, text)]
    try:
        cells = json.loads(text)["cells"]
        return [
            (f"cell {number} of {name}", _plain_python("".join(cell.get("source", ""))))
            for number, cell in enumerate(cells, 1)
            if cell.get("cell_type") == "code"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        got = f"{type(error).__name__}: {error}"[:200]
        raise PuzzleError(f"{name} is no notebook that can be read", got=got, line="") from None


IPYTHONS = re.compile(r"(\s*)(?:[%!?].*|.*\?|[\w., *()\[\]]+=\s*[%!].*)\s*")
"""A line that only IPython understands, unless it is part of a longer Python statement."""


def _plain_python(source: str) -> str:
    """Return a cell with the lines that only IPython understands replaced. The number of lines stays the same."""
    if source.lstrip().startswith("%%"):
        first, _, rest = source.lstrip().partition("\n")
        if first.split()[0] not in ("%%time", "%%timeit", "%%capture", "%%prun", "%%debug"):
            return ""
        source = "\n" + rest
    lines = source.split("\n")
    for _ in range(len(lines)):  # each round replaces the line at which Python stops, if it is IPython's
        try:
            ast.parse("\n".join(lines))
            break
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            own = IPYTHONS.fullmatch(lines[at]) if 0 <= at < len(lines) else None
            if own is None:
                break
            goes_on = lines[at].endswith("\\")
            lines[at] = own[1] + "pass"
            while goes_on and at + 1 < len(lines):
                at += 1
                goes_on, lines[at] = lines[at].endswith("\\"), ""
        except (ValueError, RecursionError, MemoryError):
            break
    return "\n".join(lines)


def load(name: str, text: str, left_out: list[str] | None = None, path: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return the names that a file defines, and a line for each of its statements that failed.

    ``path``: the ``__file__`` of a script. A line is appended to ``left_out`` for each statement that was not run
    although it changes something that a function of the file uses. Raise PuzzleError for an unreadable notebook.
    """
    module = sys.modules["submission"] = ModuleType("submission")  # dataclasses and pickle look there
    names: dict[str, Any] = module.__dict__
    if path and not name.endswith(".ipynb"):
        names["__file__"] = path
    trouble: list[str] = []
    origins: dict[str, str] = {}
    used: set[str] = set()
    skipped: list[tuple[str, ast.stmt]] = []
    compiled = codeop.Compile()  # with the __future__ imports of the file, not of this one
    for place, source in sources(name, text):
        linecache.cache[place] = len(source), None, source.splitlines(keepends=True), place
        shown_files.add(place)
        try:
            tree = ast.parse(source, place)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            at = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
            trouble.append(f"{place}{at}: {getattr(error, 'msg', error)}")
            continue
        for statement in tree.body:
            origins |= _origins(statement)
            if not _is_taken(statement, origins, names):
                skipped.append((f"{place}, line {statement.lineno}", statement))
                continue
            used |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            try:
                exec(compiled(ast.Module([statement], []), place, "exec"), names)  # type: ignore[arg-type]
            except (Exception, SystemExit) as error:  # parse_args ends a program
                trouble.append(f"{place}, line {statement.lineno}: {type(error).__name__}: {error}"[:300])
    if left_out is not None:
        left_out += [f"{at} (it runs something)" for at, statement in skipped if _changed(statement) & used]
    return names, trouble


def _origins(statement: ast.stmt) -> dict[str, str]:
    """Return the names that a statement imports, with their packages."""
    found: dict[str, str] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.split(".")[0]
                found[alias.asname or package] = package
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: node.module.split(".")[0] for alias in node.names}
    return found


def _is_taken(statement: ast.stmt, origins: dict[str, str], names: dict[str, Any]) -> bool:
    """Return whether a statement at the top level is run: an import, a definition, a class, a constant, or a loop or a
    method call that fills one."""
    if isinstance(statement, GUARDS):
        blocks, fields = [statement, *getattr(statement, "handlers", ())], ("body", "orelse", "finalbody")
        inside = [inner for block in blocks for field in fields for inner in getattr(block, field, ())]
        return all(_is_taken(inner, origins, names) or isinstance(inner, ast.Pass) for inner in inside)
    called = statement.value if isinstance(statement, ast.Expr) else None
    method = isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) and _first(called.func) in names
    if method or isinstance(statement, FILLS):
        now = [*_run_now(statement)]
        calls = [_first(node.func) for node in now if isinstance(node, ast.Call)]
        awaits = any(isinstance(node, ast.Await) for node in now)
        return not awaits and not any(origins.get(name) in EXPERIMENTS for name in calls)
    return isinstance(statement, DEFINITIONS)


def _run_now(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, without those in functions that it defines."""
    for node in ast.iter_child_nodes(statement):
        if not isinstance(node, NESTED):
            yield node
            yield from _run_now(node)


def _first(expression: ast.expr) -> str:
    """Return the name at the beginning of calls, attributes and items, or an empty text."""
    while isinstance(expression, (ast.Attribute, ast.Call, ast.Subscript)):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def _changed(statement: ast.stmt) -> set[str]:
    """Return the names that a statement assigns, whose items or attributes it sets, or whose methods it calls."""
    changed = set()
    for node in [statement, *_run_now(statement)]:
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            changed.add(_first(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed.add(_first(node.func))
    return changed
