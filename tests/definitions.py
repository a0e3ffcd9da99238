"""Puzzles' sources as tests import them: what they define, without what they run, draw and grade.

All of their cells are run in real kernels (test_notebooks.py). In a process that only needs their functions that would
take several seconds, and each process that runs tests would begin with it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

SOURCE = re.compile(r"solutions\.p\d\d_\w+")
"""The names of these modules."""
RUNS = ("lib", "drawing")
"""Packages: to call a function of theirs is to run, draw or grade something."""


def definitions(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Imports, functions, classes and what is assigned, but for what calls a function of the machine or of the file
    itself, and for what needs the outcome of that."""
    running: set[str] = set()  # functions that are not called here
    missing: set[str] = set()  # names that are given to nothing here
    for one in statements:
        names = [node for node in ast.walk(one) if isinstance(node, ast.Name)]
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            running.add(one.name)
        elif isinstance(one, ast.ImportFrom) and (one.module or "").split(".")[0] in RUNS:
            running |= {alias.asname or alias.name for alias in one.names if alias.name.islower()}
        elif not isinstance(one, ast.Import | ast.ImportFrom | ast.ClassDef):
            called = {
                node.func.id for node in ast.walk(one) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            used = {name.id for name in names if isinstance(name.ctx, ast.Load)}
            given = {name.id for name in names if isinstance(name.ctx, ast.Store)}
            if isinstance(one, ast.Expr) or called & running or used & missing:
                missing |= given
                continue
            missing -= given
        yield one


class Definitions(SourceFileLoader):
    """Loads these of a module. The file of compiled code that Python keeps is that of the whole, and not used."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        kept = list(definitions(ast.parse(self.get_data(path), path).body))
        code: CodeType = compile(ast.Module(kept, []), path, "exec", dont_inherit=True)
        return code


class Finder(MetaPathFinder):
    """Finds the sources of puzzles, to be loaded so."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path) if SOURCE.fullmatch(fullname) else None
        if found is not None and found.origin:
            found.loader = Definitions(fullname, found.origin)
        return found


def use() -> None:
    """From now on, this process imports the sources of puzzles so."""
    sys.meta_path.insert(0, Finder())
