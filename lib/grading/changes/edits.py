"""The small changes of a program's text: what people mean and do not write, one at a time.

Each changes one place: a number, a name, a comparison, a call, a condition, or where a statement stands. That is what
most mistakes are away from a program that is right. What is changed is text, so that all other lines stay as they are.
"""

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from ..advice.slips import changeable, changes
from .expressions import ORDERS, instead
from .statements import otherwise
from .text import DEFINITIONS, Definition, Text, of_loops


class Edit(NamedTuple):
    """A change of a program's text: what stands there from byte ``start`` to byte ``end`` becomes ``text``. ``top``:
    the definition that it changes; ``line``: the number of its first line that changes; ``words``: what to do, where
    that is not to write another line."""

    top: str
    likely: int
    line: int
    start: int
    end: int
    text: str
    words: str = ""

    def order(self, near: Collection[int]) -> tuple[bool, int, int, int]:
        """Return what puts the likeliest changes first: those in the lines ``near``, then those of the likeliest kind,
        then those that stand closest to these lines, or first."""
        return self.line not in near, self.likely, min((abs(self.line - one) for one in near), default=0), self.line

    def lines(self, source: bytes) -> set[int]:
        """Return the numbers of the lines that the change is about."""
        first, last = (source.count(b"\n", 0, at) + 1 for at in (self.start, max(self.start, self.end - 1)))
        return {self.line, *range(first, last + 1)}

    def keeps_lines(self, source: bytes) -> bool:
        """Return whether each line of the program stays where it is, and what it is but for a word."""
        return not self.words and self.text.count("\n") == source[self.start : self.end].count(b"\n")

    def of(self, source: bytes) -> bytes:
        """Return the program with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def edits(source: bytes, wanted: Collection[str], beside: Iterable[bytes] = ()) -> list[Edit]:
    """Return the changes of the definitions of these names in a program, each once. ``beside``: its other cells."""
    tree = ast.parse(source)
    own = [one for one in tree.body if isinstance(one, DEFINITIONS) and one.name in wanted]
    others = [one for text in beside for one in ast.parse(text).body if isinstance(one, DEFINITIONS)]
    texts = [Text(source, one, [*own, *others]) for one in own]
    found = [edit for text in texts for edit in (*_edits(text), *_made_inside(source, tree, text.top))]
    return [edit for edit in dict.fromkeys(found) if source[edit.start : edit.end] != edit.text.encode()]


def _edits(text: Text) -> Iterator[Edit]:
    """Yield all changes of a definition, in no order."""
    for node in ast.walk(text.top):
        if isinstance(node, ast.expr) and text.function(node) is not None:
            for likely, new in instead(text, node):
                if _are_there(text, node, new) and not _compares_with_itself(text, node, new):
                    yield Edit(text.top.name, likely, node.lineno, *text.span(node), new)
        if isinstance(node, ast.stmt):
            for likely, line, start, end, new, words in otherwise(text, node):
                yield Edit(text.top.name, likely, line, start, end, new, words)


def _are_there(text: Text, node: ast.expr, new: str) -> bool:
    """Return whether what counts a loop, and nothing else, is named inside of that loop only: behind it the name still
    says how often it went, which nobody means."""
    try:
        names = {one.id for one in ast.walk(ast.parse(new, mode="eval")) if isinstance(one, ast.Name)}
    except SyntaxError:
        return True
    function = text.function(node)
    loops = set() if function is None else of_loops(function) & names
    return loops <= text.counted_at(node) | text.names_in(node)


def _compares_with_itself(text: Text, node: ast.expr, new: str) -> bool:
    parent = text.parents[node]
    others = [parent.left, *parent.comparators] if isinstance(parent, ast.Compare) else []
    return new in [text.of(one) for one in others if one is not node]


def _made_inside(source: bytes, tree: ast.Module, top: Definition) -> Iterator[Edit]:
    """Yield what is made outside of a function, and changed in it, made inside it: for each rank its own."""
    if isinstance(top, ast.ClassDef):
        return
    first, at = top.body[0], Text(source, top).rows(top.body[0])[0]
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if not changeable(value) or not changes(top, name, False):
                    continue
                text = ast.unparse(statement)
                words = f"write `{text}` inside {top.name}, for each rank its own"
                yield Edit(top.name, ORDERS, first.lineno, at, at, f"{' ' * first.col_offset}{text}\n", words)
