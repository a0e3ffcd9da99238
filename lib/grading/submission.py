"""Loads a learner's notebook or script: imports, definitions, classes and constants. Nothing else in it is run.

So a file may end in ``grade(fsdp)``, draw pictures and try things out; none of that happens here.
"""

import ast
import codeop
import json
import linecache
import re
import sys
from types import ModuleType
from typing import Any

from ..basics.errors import PuzzleError, shown_files

EXPERIMENTS = ("lib", "drawing", "asyncio")
"""Packages: what is assigned from a call of something in them is an experiment, and no constant."""

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
if sys.version_info >= (3, 12):
    DEFINITIONS += (ast.TypeAlias,)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
GUARDS = (ast.If, ast.Try)


def sources(name: str, text: str) -> list[tuple[str, str]]:
    """Return (name in messages, text) of a script or of a notebook's cells. Raise PuzzleError if it cannot be read."""
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
"""A line that only IPython understands, unless it is inside something that Python understands."""


def _plain_python(source: str) -> str:
    """Return a cell without the lines that only IPython understands. It keeps its number of lines."""
    if source.lstrip().startswith("%%"):
        first, _, rest = source.lstrip().partition("\n")
        if first.split()[0] not in ("%%time", "%%timeit", "%%capture"):
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


def load(name: str, text: str, left_out: list[str] | None = None) -> tuple[dict[str, Any], list[str]]:
    """Return the names that a file defines, and a line for each of its statements that failed.

    A line is appended to ``left_out`` for each assignment that was not run. Raise PuzzleError for a notebook that
    cannot be read.
    """
    module = sys.modules["submission"] = ModuleType("submission")  # dataclasses and pickle look there
    names: dict[str, Any] = module.__dict__
    trouble: list[str] = []
    origins: dict[str, str] = {}
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
            if _is_taken(statement, origins):
                try:
                    exec(compiled(ast.Module([statement], []), place, "exec"), names)  # type: ignore[arg-type]
                except Exception as error:
                    trouble.append(f"{place}, line {statement.lineno}: {type(error).__name__}: {error}"[:300])
            elif isinstance(statement, ASSIGNMENTS) and left_out is not None:
                left_out.append(f"{place}, line {statement.lineno}: it runs something")
    return names, trouble


def _origins(statement: ast.stmt) -> dict[str, str]:
    """Return the names that a statement imports, each with the package that it comes from."""
    found: dict[str, str] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.split(".")[0]
                found[alias.asname or package] = package
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: node.module.split(".")[0] for alias in node.names}
    return found


def _is_taken(statement: ast.stmt, origins: dict[str, str]) -> bool:
    """Return whether a statement at the top level is an import, a definition, a class or a constant."""
    if isinstance(statement, ASSIGNMENTS):
        return not any(_experiments(node, origins) for node in ast.walk(statement))
    if isinstance(statement, GUARDS):
        blocks, fields = [statement, *getattr(statement, "handlers", ())], ("body", "orelse", "finalbody")
        inside = [inner for block in blocks for field in fields for inner in getattr(block, field, ())]
        return all(_is_taken(inner, origins) or isinstance(inner, ast.Pass) for inner in inside)
    return isinstance(statement, DEFINITIONS)


def _experiments(node: ast.AST, origins: dict[str, str]) -> bool:
    """Return whether an expression awaits, or calls something of the machine."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Await)
    called: ast.expr = node.func
    while isinstance(called, (ast.Attribute, ast.Call, ast.Subscript)):
        called = called.func if isinstance(called, ast.Call) else called.value
    return isinstance(called, ast.Name) and origins.get(called.id) in EXPERIMENTS
