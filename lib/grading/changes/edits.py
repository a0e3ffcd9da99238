"""The small changes of a program's text: what people mean and do not write, one at a time.

Each changes one place: a number, a name, a comparison, a call, a condition, or where a statement stands. That is what
most mistakes are away from a program that is right. What is changed is text, so that all other lines stay as they are.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">", "!="),
    ast.LtE: ("<", ">="),
    ast.Gt: (">=", "<", "!="),
    ast.GtE: (">", "<="),
    ast.Eq: ("!=", "<", ">"),
    ast.NotEq: ("==",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
}
OPERATORS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("-",),
    ast.Sub: ("+",),
    ast.Mod: ("//",),
    ast.FloorDiv: ("%",),
    ast.Mult: ("+",),
}
SIZES = ("RANKS", "LAYERS", "BATCHES")
REDUCTIONS = ("allreduce", "scatterreduce", "allgather")
"""Names of a model that are taken for one another."""
SIMPLE, CALLS, STATEMENTS, NAMES = range(4)
"""How likely a change is: numbers, comparisons and keys first, then calls, statements, and any other name."""
TRUTHS = (ast.BoolOp, ast.UnaryOp, ast.If, ast.While, ast.IfExp)
"""What asks whether a name is true: one more or less of it is not what anybody means."""
BLOCK = "    "
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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

    def order(self, near: Collection[int]) -> tuple[bool, int, int]:
        """Return what puts the likeliest changes first: those in the lines ``near``, then those of the likeliest kind,
        then those that stand first."""
        return self.line not in near, self.likely, self.line

    def of(self, source: bytes) -> bytes:
        """Return the program with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def edits(source: bytes, wanted: Collection[str]) -> list[Edit]:
    """Return the changes of the definitions of these names in a program, each once."""
    tree = ast.parse(source)
    own = [one for one in tree.body if isinstance(one, DEFINITIONS) and one.name in wanted]
    return [*dict.fromkeys(edit for one in own for edit in Editor(source, one).edits())]


class Editor:
    """Finds the changes of one definition of a program."""

    def __init__(self, source: bytes, top: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.source, self.top = source, top
        self.lines = [0]  # the byte at which each line begins
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.parents = {child: node for node in ast.walk(top) for child in ast.iter_child_nodes(node)}
        self.keys = self._keys()

    def edits(self) -> Iterator[Edit]:
        """Yield all changes, in no order."""
        for node in ast.walk(self.top):
            if isinstance(node, ast.expr) and self._function(node) is not None:
                for likely, text in self._instead(node):
                    start, end = self._span(node)
                    if self.source[start:end] != text.encode():
                        yield Edit(self.top.name, likely, node.lineno, start, end, text)
            if isinstance(node, ast.stmt):
                yield from self._moved(node)

    # -- expressions ------------------------------------------------------------------------------

    def _instead(self, node: ast.expr) -> Iterator[tuple[int, str]]:
        """Yield what may have been meant by an expression, and how likely that is."""
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool) and not self._is_of_sleep(node):
                yield from ((SIMPLE, str(number + 1)), (SIMPLE, str(number - 1)))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                for other in COMPARISONS[type(op)]:
                    yield SIMPLE, f"{self._text(left)} {other} {self._text(right)}"
            case ast.BoolOp(op=op, values=values):
                word, other = (" and ", " or ") if isinstance(op, ast.And) else (" or ", " and ")
                yield SIMPLE, other.join(map(self._text, values))
                for left_out in values:
                    yield SIMPLE, word.join(self._text(one) for one in values if one is not left_out)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield SIMPLE, self._text(operand)
            case ast.BinOp(left=left, op=op, right=right):
                if isinstance(op, ast.Mod) and isinstance(right, ast.Attribute) and right.attr == "RANKS":
                    yield SIMPLE, f"{self._text(right.value)}.rank"
                for sign in OPERATORS.get(type(op), ()):
                    yield SIMPLE, f"{self._text(left)} {sign} {self._text(right)}"
                yield SIMPLE, self._text(left)
            case ast.Attribute(attr=name) if name in SIZES:
                yield from ((SIMPLE, f"{self._text(node.value)}.{one}") for one in SIZES)
                yield from self._one_off(node)
            case ast.Attribute(attr="rank"):
                yield from self._one_off(node)
            case ast.Attribute(attr=name) if name in REDUCTIONS:
                yield from ((CALLS, f"{self._text(node.value)}.{one}") for one in REDUCTIONS)
            case ast.Name(ctx=ast.Load()):
                yield from self._other_names(node)
            case ast.Subscript(value=ast.Attribute() as store, slice=key):
                yield from ((SIMPLE, f"{self._text(store)}[{one}]") for one in self.keys.get(store.attr, ()))
                if isinstance(node.ctx, ast.Load):
                    yield CALLS, f"{self._text(store)}.pop({self._text(key)})"
            case ast.Tuple(elts=[first, second]) if self.source[self._span(node)[0] :].startswith(b"("):
                yield CALLS, f"({self._text(second)}, {self._text(first)})"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yield from ((SIMPLE, self._text(one)) for one in (body, orelse))
                yield SIMPLE, f"{self._text(orelse)} if {self._text(test)} else {self._text(body)}"
            case ast.Await(value=value):
                yield CALLS, self._text(value)
            case ast.Call():
                yield from self._called_otherwise(node)

    def _called_otherwise(self, node: ast.Call) -> Iterator[tuple[int, str]]:
        function, awaits = self._function(node), isinstance(self.parents[node], ast.Await)
        match node:
            case ast.Call(func=ast.Name(id="reversed"), args=[argument]):
                yield SIMPLE, self._text(argument)
            case ast.Call(func=ast.Name(id="range")):
                yield SIMPLE, f"reversed({self._text(node)})"
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=store) as place, attr="pop"), args=[key, *rest]):
                yield CALLS, f"{self._text(place)}[{self._text(key)}]"
                more = "".join(f", {self._text(one)}" for one in rest)
                yield from ((SIMPLE, f"{self._text(place)}.pop({one}{more})") for one in self.keys.get(store, ()))
        if isinstance(function, ast.AsyncFunctionDef) and not awaits:
            yield CALLS, f"await {self._text(node)}"
        for first, second in pairwise(node.args):
            start, end = self._span(node)
            (a, b), (c, d) = self._span(first), self._span(second)
            text = self.source
            yield CALLS, (text[start:a] + text[c:d] + text[b:c] + text[a:b] + text[d:end]).decode()

    def _other_names(self, node: ast.Name) -> Iterator[tuple[int, str]]:
        """Yield what may be meant by a name: a number more or less, or another name of this function."""
        function = self._function(node)
        assert function is not None
        counts = _counts(function)
        if node.id in counts:
            yield from self._one_off(node)
            yield from ((SIMPLE, name) for name in counts)
        elif not isinstance(self.parents[node], (ast.Attribute, ast.Call)) or node in getattr(
            self.parents[node], "args", ()
        ):
            yield from ((NAMES, name) for name in _assigned(function) if name not in counts)

    def _one_off(self, node: ast.expr) -> Iterator[tuple[int, str]]:
        if isinstance(self.parents[node], TRUTHS):
            return
        for sign in "+-":
            text = f"{self._text(node)} {sign} 1"
            yield SIMPLE, f"({text})" if isinstance(self.parents[node], (ast.BinOp, ast.UnaryOp)) else text

    def _is_of_sleep(self, node: ast.expr) -> bool:
        """Return whether a number is a time to sleep: to sleep longer is no way to wait for something."""
        match self.parents[node]:
            case ast.Call(func=ast.Attribute(attr="sleep") | ast.Name(id="sleep")):
                return True
        return False

    # -- statements -------------------------------------------------------------------------------

    def _moved(self, node: ast.stmt) -> Iterator[Edit]:
        """Yield the changes of the blocks of a statement: of what is in them, and of where it stands."""
        for block in (getattr(node, "body", []), getattr(node, "orelse", [])):
            if not block or isinstance(node, ast.ClassDef):
                continue
            for statement in block:
                if not isinstance(statement, (*DEFINITIONS, ast.Pass, ast.Return)):
                    yield from self._left_out(statement)
            for first, second in pairwise(block):
                defines = isinstance(first, DEFINITIONS) or isinstance(second, (*DEFINITIONS, ast.Return))
                if not defines and not (_awaits(first) and self._starts(second)):
                    yield self._exchanged(first, second)
            if isinstance(node, (ast.For, ast.If, ast.While)) and not node.orelse:
                yield from self._out_and_in(node, block)

    def _left_out(self, statement: ast.stmt) -> Iterator[Edit]:
        start, end = self._rows(statement)
        begin, margin = statement.lineno, self._margin(statement)
        text = f"{margin}pass\n" + "\n" * (statement.end_lineno - begin if statement.end_lineno else 0)
        yield Edit(self.top.name, STATEMENTS, begin, start, end, text, f"leave out {self._named(statement)}")
        if isinstance(statement, ast.If) and not statement.orelse:
            inner = self._shifted(statement.body, -len(BLOCK))
            text = "\n" * (statement.body[0].lineno - begin) + inner
            words = f"leave out `if {self._text(statement.test)}:`, and do what is below it in any case"
            yield Edit(self.top.name, STATEMENTS, begin, start, end, text, words)

    def _starts(self, statement: ast.stmt) -> bool:
        """Return whether a statement starts a call that is awaited later: not to await it at once is meant."""
        calls = [one for one in ast.walk(statement) if isinstance(one, ast.Call)]
        return any(
            isinstance(one.func, ast.Attribute)
            and one.func.attr in REDUCTIONS
            and not isinstance(self.parents[one], ast.Await)
            for one in calls
        )

    def _exchanged(self, first: ast.stmt, second: ast.stmt) -> Edit:
        (start, middle), (begin, end) = self._rows(first), self._rows(second)
        text = (self.source[begin:end] + self.source[middle:begin] + self.source[start:middle]).decode()
        words = f"exchange {self._named(first)} and {self._named(second)}"
        return Edit(self.top.name, CALLS, first.lineno, start, end, text, words)

    def _out_and_in(self, node: ast.stmt, block: Sequence[ast.stmt]) -> Iterator[Edit]:
        """Yield the last statement of a block moved out of it, and the one behind the block moved in."""
        last, what = block[-1], type(node).__name__.lower()
        at = f"the `{what}` of line {node.lineno}"
        if len(block) > 1 and not isinstance(last, ast.Return):
            start, end = self._rows(last)
            words = f"move {self._named(last)} out of {at}, behind it"
            yield Edit(self.top.name, STATEMENTS, last.lineno, start, end, self._shifted([last], -len(BLOCK)), words)
        siblings = getattr(self.parents[node], "body", [])
        behind = siblings[siblings.index(node) + 1 :] if node in siblings else []
        if behind and not isinstance(behind[0], (*DEFINITIONS, ast.Return)):
            start, end = self._rows(behind[0])
            words = f"move {self._named(behind[0])} into {at}, to its end"
            yield Edit(
                self.top.name, STATEMENTS, behind[0].lineno, start, end, self._shifted(behind[:1], len(BLOCK)), words
            )

    # -- text -------------------------------------------------------------------------------------

    def _named(self, statement: ast.stmt) -> str:
        first = self._text(statement).partition("\n")[0]
        if hasattr(statement, "body"):
            return f"line {statement.lineno}, `{first}` with what is below it"
        last = statement.end_lineno or statement.lineno
        which = f"line {last}" if last == statement.lineno else f"lines {statement.lineno} to {last}"
        return f"{which}, `{first}`"

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _rows(self, statement: ast.stmt) -> tuple[int, int]:
        """Return where the lines of a statement begin and end."""
        assert statement.end_lineno is not None
        return self.lines[statement.lineno - 1], self.lines[statement.end_lineno]

    def _margin(self, statement: ast.stmt) -> str:
        return " " * statement.col_offset

    def _shifted(self, statements: Sequence[ast.stmt], by: int) -> str:
        """Return the lines of statements moved to the right or to the left."""
        start, end = self._rows(statements[0])[0], self._rows(statements[-1])[1]
        rows = self.source[start:end].decode().splitlines(keepends=True)
        return "".join(" " * by + row if by > 0 else row[min(-by, len(row) - len(row.lstrip(" "))) :] for row in rows)

    # -- names ------------------------------------------------------------------------------------

    def _function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the innermost function around an expression."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, FUNCTIONS):
                return node
        return None

    def _keys(self) -> dict[str, list[str]]:
        """Return the keys under which each dictionary of a model is used, as text."""
        keys: dict[str, dict[str, None]] = {}
        for node in ast.walk(self.top):
            match node:
                case ast.Subscript(value=ast.Attribute(attr=store), slice=key):
                    keys.setdefault(store, {})[self._text(key)] = None
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=store), attr="pop"), args=[key, *_]):
                    keys.setdefault(store, {})[self._text(key)] = None
        return {store: [*texts] for store, texts in keys.items()}


def _awaits(statement: ast.stmt) -> bool:
    """Return whether a statement awaits something, and no more."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Await)


def _counts(function: ast.AST) -> list[str]:
    """Return the names of a function that count: of loops, and of arithmetic."""
    found: dict[str, None] = {}
    for node in ast.walk(function):
        match node:
            case ast.For(target=target) | ast.comprehension(target=target):
                found |= dict.fromkeys(_names(target))
            case ast.Assign(targets=[target], value=ast.BinOp() | ast.Constant() | ast.Call(func=ast.Name())):
                found |= dict.fromkeys(_names(target))
            case ast.AugAssign(target=ast.Name(id=name)):
                found[name] = None
            case ast.arg(arg=name) if name not in ("model", "self"):
                found[name] = None
    return [*found]


def _assigned(function: ast.AST) -> list[str]:
    """Return the names to which a function assigns something."""
    targets = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return [*dict.fromkeys(node.id for node in targets)]


def _names(target: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
