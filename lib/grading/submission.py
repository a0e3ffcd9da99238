"""Load a learner's notebook or script: every statement is run as a notebook runs it, but for those that experiment.

What calls ``run``, ``grade`` or ``draw`` ends there, and the next statement begins: only definitions count here.
"""

import ast
import asyncio
import codeop
import dis
import importlib
import inspect
import io
import json
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from ..basics.errors import PuzzleError, is_learners_file, shown_files
from ..basics.folders import PACKAGE
from ..course.specs import puzzles
from ..recording.safe import shown
from ..running.execution import says

EXPERIMENTS = ("run", "sweep", "plan", "grade", "hint", "progress", "solution", "attempt", "start_from", "reset")
"""What a file imports of lib to try its functions. All of drawing is of that kind, too."""
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)  # their bodies run only when called
READS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS")
"""Python's instructions that read a name that is not local."""
STARTED = "__started__"  # the name of a module that is started, for the conditions of a file
AWAITS = "'await' outside async function"  # what Python says of an await in a plain function
LONGEST, MOST_LINES = 300, 3
"""Characters of a line on a statement, and lines of one kind, that are shown at most."""


class Loading(NamedTuple):
    """The names that a file defines. Of its statements there is a line for each that ``failed``, and for each that was
    ``left_out`` although it changes what a function uses."""

    names: dict[str, object]
    failed: list[str]
    left_out: list[str]


def summary(lines: Sequence[str]) -> str:
    """Return the first few lines on statements, none of them too long, as one text that is safe to show."""
    return "; ".join(shown(line, LONGEST) for line in lines[:MOST_LINES]) + " ..." * (len(lines) > MOST_LINES)


LONGEST_SUMMARY = len(summary(["x" * (LONGEST + 1)] * (MOST_LINES + 1)))


class Skipped(BaseException):
    """Raised by an experiment, so that its statement ends there."""


class Experiment:
    """What stands for a function that experiments: while a file is loaded, its calls end a statement; later it is the
    function itself, or nothing where that is not to be had."""

    loading = False

    def __init__(self, name: str, function: Callable[..., Any] | None = None) -> None:
        self.name, self.function = name, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise Skipped while a file is loaded, and call the function later."""
        if Experiment.loading:
            raise Skipped(self.name)
        return self.function(*args, **kwargs) if self.function else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Experiment(f"{self.name}.{name}")


def switch_off(functions: bool = False) -> Callable[[], None]:
    """Put experiments in place of these, with the ``functions`` behind them or without. Return what undoes that."""
    package = vars(sys.modules[__name__.partition(".")[0]])
    known = {name: package[name] for name in EXPERIMENTS}
    pictures = {"drawing": sys.modules["drawing"]} if "drawing" in sys.modules else {}
    drawing = sys.modules["drawing"] = ModuleType("drawing")
    vars(drawing)["__getattr__"] = lambda name: Experiment(name, partial(_draw, name) if functions else None)
    package.update({name: Experiment(name, known[name] if functions else None) for name in EXPERIMENTS})

    def switch_on() -> None:
        package.update(known)
        del sys.modules["drawing"]
        sys.modules.update(pictures)

    return switch_on


def _draw(name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(importlib.import_module("drawing"), name)(*args, **kwargs)


def sources(name: str, text: str) -> list[tuple[str, str]]:
    """Return (name in messages, text) of a script or of each cell. Raise PuzzleError for an unreadable notebook."""
    if not name.endswith(".ipynb"):
        return [(name, text)]
    try:
        return [
            (f"cell {number} of {name}", _plain_python("".join(cell.get("source", ""))))
            for number, cell in enumerate(json.loads(text)["cells"], 1)
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
    while (at := _stops_at(lines)) >= 0 and (own := IPYTHONS.fullmatch(lines[at])):
        goes_on, lines[at] = lines[at].endswith("\\"), own[1] + "pass"
        while goes_on and at + 1 < len(lines):
            at += 1
            goes_on, lines[at] = lines[at].endswith("\\"), ""
    return "\n".join(lines)


def _stops_at(lines: list[str]) -> int:
    """Return the number, from 0, of the line at which Python does not understand a text any more, or -1."""
    try:
        ast.parse("\n".join(lines))
    except SyntaxError as error:
        return min(error.lineno or 0, len(lines)) - 1
    except (ValueError, RecursionError, MemoryError):
        pass
    return -1


@contextmanager
def imported_by(run: Callable[[Sequence[tuple[str, str]], dict[str, Any]], object], folder: str) -> Iterator[None]:
    """Let a function run the modules of a folder that are imported in the block: it is given texts, each after the name
    of its file, and the names that these see."""
    within = os.path.join(os.path.realpath(folder), "")

    class Loader(SourceFileLoader):
        """Runs a module in another way than Python."""

        def exec_module(self, module: ModuleType) -> None:
            run([(self.path, self.get_source(module.__name__) or "")], vars(module))

    class Finder:
        """Finds what Python finds, with that loader for the modules of the folder."""

        def find_spec(
            self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            spec = PathFinder.find_spec(name, path, target)
            file = spec.loader.path if spec is not None and type(spec.loader) is SourceFileLoader else ""
            if spec is None or not os.path.realpath(file).startswith(within):
                return None
            spec.loader = Loader(name, file)
            return spec if is_learners_file(file) and "site-packages" not in file else None

    finder = Finder()
    sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def load(name: str, text: str, path: str = "") -> Loading:
    """Run the statements of a file, and return what it defines. Raise PuzzleError for an unreadable notebook.

    ``path``: the ``__file__`` of a script."""
    cells = sources(name, text)
    sys.modules.setdefault(PACKAGE, ModuleType(PACKAGE))  # imported to find lib, which is here already
    module = sys.modules["submission"] = ModuleType("submission")  # dataclasses and pickle look there
    vars(module)[STARTED] = "__main__"
    if path and not name.endswith(".ipynb"):
        vars(module)["__file__"] = path
    switch_on = switch_off(functions=True)
    Experiment.loading = True
    try:
        with imported_by(partial(_loaded, imported=True), os.path.dirname(path) or os.getcwd()):
            return _loaded(cells, vars(module), notebook=name.endswith(".ipynb"))
    finally:
        Experiment.loading = False
        switch_on()


def load_quietly(name: str, text: str) -> Loading:
    """Load a file in this process, without what its statements print."""
    with redirect_stdout(io.StringIO()):
        return load(name, text)


def _loaded(
    cells: Sequence[tuple[str, str]], names: dict[str, object], notebook: bool = False, imported: bool = False
) -> Loading:
    """Run the statements of cells with these names. Of a file that is ``imported``, raise what one of them raises."""
    failed, skipped = list[str](), list[tuple[str, set[str]]]()  # what was skipped, with the names that it changes
    ran, lacking = list[CodeType](), set[str]()  # names that what was skipped would have defined or changed
    compiled = codeop.Compile()  # with the __future__ imports of the file, not of this one
    compiled.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if notebook else 0
    for place, source in cells:
        linecache.cache[place] = len(source), None, source.splitlines(keepends=True), place
        shown_files.add(place)
        try:
            tree = ast.parse(source, place)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if imported:
                raise
            at = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            failed.append(f"{place}{at}: {getattr(error, 'msg', error)}")
            continue
        for statement in tree.body:
            at, why = f"{place}, line {statement.lineno}", ""
            try:
                _run(code := compiled(_module(statement, imported), place, "exec"), names)  # type: ignore[arg-type]
                ran += [code] * (not isinstance(statement, ast.Expr))  # what only shows something uses nothing
            except Skipped as experiment:
                why = f"it calls {experiment}"
            except (Exception, SystemExit) as error:  # parse_args ends a program
                if type(error) is NameError and error.name in lacking and _changed(statement).isdisjoint(puzzles()):
                    why = f"it needs {error.name}, the outcome of lines that were not run"
                elif imported:
                    raise
                else:
                    failed.append(f"{at}: {type(error).__name__}{says(error)}")
                    if isinstance(statement, ast.FunctionDef) and AWAITS in str(error):
                        failed[-1] += f": write async def {statement.name}(...)"
            if why:
                skipped.append((f"{at} ({why})", _changed(statement)))
                lacking |= _changed(statement)
    used = set[str]().union(*map(names_read, ran)) if lacking else set()
    return Loading(names, failed, [line for line, changed in skipped if changed & used])


def _module(statement: ast.stmt, imported: bool) -> ast.Module:
    """Return a statement as a module, which is one that is started, as a notebook is, unless it is imported."""
    if isinstance(statement, ast.If) and not imported:
        for node in ast.walk(statement.test):
            if isinstance(node, ast.Name) and node.id == "__name__":
                node.id = STARTED
    return ast.Module([statement], [])


def _run(code: CodeType, names: dict[str, object]) -> None:
    result = eval(code, names)
    if inspect.iscoroutine(result):  # of a statement that awaits
        try:
            asyncio.run(result)
        finally:
            result.close()


def names_read(code: CodeType) -> set[str]:
    """Return the names of the file that code reads, in functions as well: no local names, and no attributes."""
    codes, found = [code], set()
    for one in codes:
        codes += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
        found |= {step.argval for step in dis.get_instructions(one) if step.opname in READS}
    return found


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
    """Return the names that a statement defines, assigns, or changes by items, attributes or methods."""
    changed = set()
    for node in [statement, *_run_now(statement)]:
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            changed.add(_first(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed.add(_first(node.func))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            changed.add(node.name)
    return changed
