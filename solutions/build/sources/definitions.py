"""Sources of notebooks, imported as modules: what they define, without what they run and draw.

``from solutions.p04_fsdp import fsdp`` gives a function, at once, and prints nothing. Only a
notebook runs all cells.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

SOURCE = re.compile(r"solutions\.(p\d\d_\w+|index|tour|repairs|laboratory|for_real)")
"""Names of the modules that are sources."""
FIGURES = b'# %% tags=["figures"]'
"""Where the last cell of a source begins, which is for the build alone: the figures in its
texts (see figures/pages.py)."""
RUNS = ("lib", "drawing")
"""Packages: to call a function of theirs is to run, draw or grade something."""
MACHINE = ("Dist", "Model")
"""Classes of theirs that begin a run by hand."""


def definitions(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that define something.

    These are imports, functions, classes and assignments. Left out is what calls a function of
    the machine, or one of the file itself, or makes a model, and what needs its outcome.
    """
    running: set[str] = set()  # functions that are not called here
    missing: set[str] = set()  # names that are given to nothing here
    for one in statements:
        names = [node for node in ast.walk(one) if isinstance(node, ast.Name)]
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            running.add(one.name)
        elif isinstance(one, ast.ImportFrom) and (one.module or "").split(".")[0] in RUNS:
            running |= {
                alias.asname or alias.name for alias in one.names if alias.name in MACHINE or alias.name.islower()
            }
        elif not isinstance(one, ast.Import | ast.ImportFrom | ast.ClassDef):
            calls = [node.func for node in ast.walk(one) if isinstance(node, ast.Call)]
            called = {function.id for function in calls if isinstance(function, ast.Name)}
            used = {name.id for name in names if isinstance(name.ctx, ast.Load)}
            given = {name.id for name in names if isinstance(name.ctx, ast.Store)}
            if isinstance(one, ast.Expr) or called & running or used & missing:
                missing |= given
                continue
            missing -= given
        yield one


class Definitions(SourceFileLoader):
    """Loads the definitions of a module. Python's compiled file would be that of the whole."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled definitions."""
        path = self.get_filename(fullname)
        text = self.get_data(path).partition(FIGURES)[0]
        kept = list(definitions(ast.parse(text, path).body))
        code: CodeType = compile(ast.Module(kept, []), path, "exec", dont_inherit=True)
        return code


class Finder(MetaPathFinder):
    """Finds the sources of puzzles, to be loaded so."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of this package that is a source; others are none of its business."""
        found = PathFinder.find_spec(fullname, path) if SOURCE.fullmatch(fullname) else None
        if found is not None and found.origin:
            found.loader = Definitions(fullname, found.origin)
        return found


def use() -> None:
    """From now on, this process imports the sources of puzzles so."""
    sys.meta_path.insert(0, Finder())
