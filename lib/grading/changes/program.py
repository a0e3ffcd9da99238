"""What a learner's function is made of: the definitions that it needs, in its own cell or file and in others."""

import ast
import linecache
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ..submission import EXPERIMENTS
from .edits import Edit
from .text import DEFINITIONS


class Cell(NamedTuple):
    """A cell, or a file: its text without all that a function does not need, and the names of what it does need."""

    file: str
    source: bytes
    wanted: frozenset[str]


class Program(NamedTuple):
    """A function by its name: the cells that define it and what it needs, its own last, and all names around it."""

    name: str
    cells: tuple[Cell, ...]
    around: Mapping[str, object]

    @classmethod
    def of(cls, function: object, around: Mapping[str, object]) -> "Program | None":
        """Return the program of a function among such names, or None where its text is not known, or another function
        has made it."""
        code = getattr(function, "__code__", None)
        if code is None or getattr(function, "__closure__", None):
            return None
        texts, needed = _Texts(around), [(code.co_filename, code.co_name)]
        if not isinstance(texts.of(code.co_filename).get(code.co_name), DEFINITIONS):
            return None
        for file, name in needed:
            needed += [one for one in texts.read_by(file, name) if one not in needed]
        files = reversed(dict.fromkeys(file for file, _ in needed))
        cells = [texts.cell(file, frozenset(name for one, name in needed if one == file)) for file in files]
        return cls(code.co_name, tuple(cells), around)

    def around_cell(self, cell: Cell) -> tuple[bytes, frozenset[str], list[bytes]]:
        """Return the text of a cell, the names that are needed of it, and the texts of the other cells."""
        return cell.source, cell.wanted, [one.source for one in self.cells if one is not cell]

    def function(self, changed: Cell | None = None, edit: Edit | None = None) -> Callable[..., object]:
        """Return the function, with an edit of a cell or without, in names of its own. Raise whatever a text raises."""
        names = dict(self.around)
        for cell in self.cells:
            source = edit.of(cell.source) if edit is not None and cell is changed else cell.source
            exec(compile(source, cell.file, "exec", dont_inherit=True), names)
        function = names[self.name]
        assert callable(function)
        return function


class _Texts:
    """The texts of cells and files, and what they define. ``around``: the names of a notebook or a file."""

    def __init__(self, around: Mapping[str, object]) -> None:
        self.around = around
        self.known: dict[str, dict[str, ast.stmt]] = {}

    def of(self, file: str) -> dict[str, ast.stmt]:
        """Return the statements of a text that define something, by its name."""
        if file not in self.known:
            try:
                tree = ast.parse("".join(linecache.getlines(file)))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                tree = ast.Module([], [])
            self.known[file] = {name: statement for statement in tree.body for name in _made(statement)}
        return self.known[file]

    def read_by(self, file: str, name: str) -> Iterator[tuple[str, str]]:
        """Yield what a definition reads that is defined in its own text, or in another cell: its file and name."""
        for node in ast.walk(self.of(file)[name]):
            if isinstance(node, ast.Name):
                where = file if node.id in self.of(file) else self._elsewhere(node.id)
                if where and node.id in self.of(where):
                    yield where, node.id

    def _elsewhere(self, name: str) -> str:
        """Return the file of a function, or of a class with methods, that is defined among these names; or nothing."""
        one = self.around.get(name)
        methods = vars(one).values() if isinstance(one, type) else [one]
        for method in methods:
            code = getattr(method, "__code__", None)
            if code is not None and getattr(method, "__globals__", None) is self.around:
                return str(code.co_filename)
        return ""

    def cell(self, file: str, wanted: frozenset[str]) -> Cell:
        """Return a text with the definitions of these names, each in its own lines, and nothing else."""
        own = {at for name in wanted for at in _rows(self.of(file)[name])}
        rows = "".join(linecache.getlines(file)).split("\n")
        kept = "\n".join(row if at in own else "" for at, row in enumerate(rows, 1))
        return Cell(file, kept.encode(), wanted)


def _made(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a cell gives, if it can be run again for a trial."""
    if isinstance(statement, DEFINITIONS):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
        called = {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)}
        if called.isdisjoint(EXPERIMENTS):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _rows(statement: ast.stmt) -> range:
    """Return the numbers of the lines of a statement, with those of its decorators."""
    assert statement.end_lineno is not None
    first = [one.lineno for one in getattr(statement, "decorator_list", [])]
    return range(min([statement.lineno, *first]), statement.end_lineno + 1)
