"""A learner's code for one puzzle, as the beginning of another."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from ..basics.errors import PuzzleError
from ..course.layouts import mesh_of
from ..course.specs import Puzzle
from .submission import sources

BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def answer_in(texts: Iterable[str], name: str) -> str:
    """Return the function of that name with everything it needs from these cells; nothing if it is missing or blank.

    >>> answer_in(["import math", "import sys", "n = 2", "def half(model):\\n    return math.sqrt(n)"], "half")
    'import math\\nn = 2\\n\\n\\ndef half(model):\\n    return math.sqrt(n)'
    """
    pieces: dict[str, tuple[ast.stmt, str]] = {}  # the statement that defines each name, and the text that it is in
    for text in texts:
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for statement in body:
            for given in _given(statement):
                pieces.pop(given, None)  # the last definition counts, and its place
                pieces[given] = statement, text
    if name not in pieces or not any(isinstance(node, ast.Call) for node in ast.walk(pieces[name][0])):
        return ""  # a blank calls nothing
    wanted, new = {name}, {name}
    while new:
        new = {node.id for one in new for node in ast.walk(pieces[one][0]) if isinstance(node, ast.Name)}
        new = (new & pieces.keys()) - wanted - {"Model"}  # which every notebook imports
        wanted |= new
    parts = [piece for given, piece in pieces.items() if given in wanted]
    short = [_source(*part) for part in parts if not isinstance(part[0], BLOCKS)]
    blocks = [_source(*part) for part in parts if isinstance(part[0], BLOCKS)]
    return "\n\n\n".join(["\n".join(dict.fromkeys(short)), *blocks] if short else blocks)


def answer_of(path: Path, name: str) -> str:
    """Return the answer in a saved notebook or script, or nothing if it cannot be read."""
    try:
        return answer_in((text for _, text in sources(path.name, path.read_text(encoding="utf-8"))), name)
    except (OSError, UnicodeDecodeError, PuzzleError):
        return ""


def beginning(source: str, old: Puzzle, new: Puzzle) -> str:
    """Return an answer as the beginning of another puzzle: by its name, under its title, and able to await, where there
    is somebody to wait for."""
    source = re.sub(rf"\b{re.escape(old.name)}\b", new.name, source)
    if mesh_of(new.size).everyone > 1:
        source = re.sub(rf"^def {new.name}\(", f"async def {new.name}(", source, flags=re.MULTILINE)
    docstring = rf'(^(?:async )?def {new.name}\([^\n]*\n +""").*?"""'
    return re.sub(docstring, lambda found: f'{found[1]}{new.title}."""', source, flags=re.MULTILINE | re.DOTALL)


def _given(statement: ast.stmt) -> Iterable[str]:
    """Yield each name that a statement at the top level defines."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.split(".")[0]
    elif isinstance(statement, BLOCKS):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _source(statement: ast.stmt, text: str) -> str:
    """Return the lines of a statement of this text."""
    first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
    return "\n".join(text.split("\n")[first - 1 : statement.end_lineno])
