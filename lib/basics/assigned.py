"""Where the text of a learner's function gives a name its value, and what reads it, seen from a line that found it
without one."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

_OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try)
MOST = 100  # letters of a quoted line


class Assigned(NamedTuple):
    """A statement that gives a name its value."""

    line: int
    text: str
    is_before: bool  # it stands above the line that reads the name
    reads_it: bool  # it reads the name itself
    below: str  # the nearest branch above it that is not above the line that reads the name, or an empty text


class Unset:
    """A name that a line of a function found without a value. Of a text that cannot be read there is nothing."""

    def __init__(self, code: CodeType, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.source = "".join(linecache.getlines(code.co_filename))
        self.statements = [*self._statements(code.co_name)]

    def assigned(self) -> list[Assigned]:
        """Return which statements give the name its value, in their order; none where it is also deleted."""
        found = []
        for statement, around in self.statements:
            uses = [type(node.ctx) for node in _own(statement) if isinstance(node, ast.Name) and node.id == self.name]
            if ast.Del in uses:
                return []
            if ast.Store in uses:
                apart = [one for one in around if not self._has_line(one)]
                below = self._first_line(apart[-1]) if apart else ""
                reads = ast.Load in uses or isinstance(statement, ast.AugAssign)
                before = (statement.end_lineno or 0) < self.number
                found.append(Assigned(statement.lineno, self._first_line(statement), before, reads, below))
        return found

    def read_by(self) -> str:
        """Return the method of a model that the line calls with the name, or an empty text."""
        for statement, _ in self.statements:
            for call in ast.walk(statement) if self._has_line(statement) else ():
                args = call.args if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else []
                if any(isinstance(one, ast.Name) and one.id == self.name for one in args):
                    return call.func.attr  # type: ignore[attr-defined, no-any-return]
        return ""

    def _statements(self, function: str) -> Iterator[tuple[ast.stmt, tuple[ast.stmt, ...]]]:
        try:
            nodes = [*ast.walk(ast.parse(self.source))]
        except (SyntaxError, ValueError):
            return
        named = [one for one in nodes if isinstance(one, _OWN_SCOPE[:2]) and one.name == function]
        if around := [one for one in named if self._has_line(one)]:
            yield from _below(max(around, key=lambda one: one.lineno), ())

    def _has_line(self, node: ast.stmt) -> bool:
        return node.lineno <= self.number <= (node.end_lineno or 0)

    def _first_line(self, statement: ast.stmt) -> str:
        """Return how a statement is written; of one with others below it the first line."""
        text = ast.get_source_segment(self.source, statement) or ""
        if isinstance(statement, _BRANCHES):
            text = text.partition("\n")[0].rstrip(": ")
        text = " ".join(text.split())
        return text if len(text) <= MOST else text[: MOST - 3] + "..."


def _below(top: ast.AST, around: tuple[ast.stmt, ...]) -> Iterator[tuple[ast.stmt, tuple[ast.stmt, ...]]]:
    """Yield the statements of a function, each with the branches around it, the outermost first."""
    for child in ast.iter_child_nodes(top):
        if isinstance(child, ast.stmt):
            yield child, around
        if not isinstance(child, _OWN_SCOPE):
            yield from _below(child, (*around, child) if isinstance(child, _BRANCHES) else around)


def _own(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a statement that are in no statement below it and have no names of their own."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler, *_OWN_SCOPE, *_COMPREHENSIONS)):
            yield child
            yield from _own(child)
