"""Where a statement may have been meant to stand: elsewhere, nowhere, or in two places."""

import ast
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from .expressions import CALLS, FAR, ORDERS, REDUCTIONS, SIMPLE, STATEMENTS, counted, instead
from .text import DEFINITIONS, FUNCTIONS, Function, Text, called

BLOCK = "    "


class Otherwise(NamedTuple):
    """Lines of a program that are written otherwise: as ``text`` from byte ``start`` to ``end``; ``words``: what to
    do."""

    likely: int
    line: int
    start: int
    end: int
    text: str
    words: str


def otherwise(text: Text, node: ast.stmt) -> Iterator[Otherwise]:
    """Yield the changes of the blocks of a statement: of what is in them, and of where it stands."""
    for block in (getattr(node, "body", []), getattr(node, "orelse", [])):
        if not block or isinstance(node, ast.ClassDef):
            continue
        for statement in block:
            alone = len(block) == 1 and not isinstance(statement, ast.If)  # a block of nothing is no block
            if not alone and not isinstance(statement, (*DEFINITIONS, ast.Pass, ast.Return)):
                yield from _left_out(text, statement)
        for first, second in pairwise(block):
            defines = isinstance(first, DEFINITIONS) or isinstance(second, (*DEFINITIONS, ast.Return))
            if not defines and not (_awaits(first) and _starts(text, second)):
                yield _exchanged(text, first, second)
        yield from _farther(text, block)
        if isinstance(node, (ast.For, ast.If, ast.While)):
            yield from _out_and_in(text, node, block)
    if isinstance(node, FUNCTIONS):
        yield from _written(text, node)
    if not hasattr(node, "body"):
        yield from _all_of_one(text, node)


def _left_out(text: Text, statement: ast.stmt) -> Iterator[Otherwise]:
    start, end = text.rows(statement)
    begin, margin = statement.lineno, " " * statement.col_offset
    new = f"{margin}pass\n" + "\n" * (statement.end_lineno - begin if statement.end_lineno else 0)
    yield Otherwise(STATEMENTS, begin, start, end, new, f"leave out {text.named(statement)}")
    if isinstance(statement, ast.If) and not statement.orelse:
        inner = text.shifted(statement.body, -len(BLOCK))
        new = "\n" * (statement.body[0].lineno - begin) + inner
        words = f"leave out `if {text.of(statement.test)}:`, and do what is below it in any case"
        yield Otherwise(STATEMENTS, begin, start, end, new, words)


def _exchanged(text: Text, first: ast.stmt, second: ast.stmt) -> Otherwise:
    (start, middle), (begin, end) = text.rows(first), text.rows(second)
    source = text.source
    new = (source[begin:end] + source[middle:begin] + source[start:middle]).decode()
    likely = ORDERS if _is_call(first) and _is_call(second) else CALLS
    return Otherwise(likely, first.lineno, start, end, new, f"exchange {text.named(first)} and {text.named(second)}")


def _awaits(statement: ast.stmt) -> bool:
    """Return whether a statement awaits something, and no more."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Await)


def _awaits_all(statement: ast.stmt) -> bool:
    """Return whether a statement awaits all of several calls or tasks: to await each at once is not what was meant."""
    match statement:
        case ast.Expr(value=ast.Await(value=ast.Call() as call)):
            return called(call) in ("gather", "wait")
    return False


def _starts(text: Text, statement: ast.stmt) -> bool:
    """Return whether a statement starts a call that is awaited later: not to await it at once is meant."""
    calls = [one for one in ast.walk(statement) if isinstance(one, ast.Call) and called(one) in REDUCTIONS]
    return any(not isinstance(text.parents[one], ast.Await) for one in calls)


def _is_call(statement: ast.stmt) -> bool:
    """Return whether a statement is a call, awaited or not, of which nothing is kept."""
    match statement:
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            return True
    return False


def _farther(text: Text, block: Sequence[ast.stmt]) -> Iterator[Otherwise]:
    """Yield a statement of a block at other places in it, farther than its neighbour's."""
    for at, one in enumerate(block):
        if isinstance(one, (*DEFINITIONS, ast.Return)):
            continue
        start, end = text.rows(one)
        own = text.source[start:end]
        for other in block[: max(at - 1, 0)]:
            begin = text.rows(other)[0]
            if not isinstance(other, DEFINITIONS):
                new = (own + text.source[begin:start]).decode()
                words = f"move {text.named(one)} up, before {text.named(other)}"
                yield Otherwise(FAR, one.lineno, begin, end, new, words)
        for other in block[at + 2 :]:
            stop = text.rows(other)[1]
            if not isinstance(other, ast.Return):
                new = (text.source[end:stop] + own).decode()
                words = f"move {text.named(one)} down, behind {text.named(other)}"
                yield Otherwise(FAR, one.lineno, start, stop, new, words)


def _out_and_in(text: Text, node: ast.For | ast.If | ast.While, block: Sequence[ast.stmt]) -> Iterator[Otherwise]:
    """Yield the first statement of a block moved before it, the last behind it, and the one behind it moved in."""
    first, last, what = block[0], block[-1], type(node).__name__.lower()
    at = f"the `{what}` of line {node.lineno}"
    if len(block) > 1 and not isinstance(last, ast.Return):
        start, end = text.rows(last, None if block is node.orelse or not node.orelse else node.orelse[-1])
        behind = text.source[text.rows(last)[1] : end].decode()
        words = f"move {text.named(last)} out of {at}, behind it"
        new = behind + text.shifted([last], -len(BLOCK))
        yield Otherwise(STATEMENTS, last.lineno, start, end, new, words)
    if len(block) > 1 and not isinstance(first, ast.Return):
        start, end = text.rows(node)[0], text.rows(first)[1]
        new = text.shifted([first], -len(BLOCK)) + text.source[start : text.rows(first)[0]].decode()
        words = f"move {text.named(first)} out of {at}, before it"
        yield Otherwise(FAR, first.lineno, start, end, new, words)
    siblings = getattr(text.parents.get(node), "body", [])
    after = siblings[siblings.index(node) + 1 :] if node in siblings else []
    if after and not node.orelse and not isinstance(after[0], (*DEFINITIONS, ast.Return)) and not _awaits_all(after[0]):
        start, end = text.rows(after[0])
        words = f"move {text.named(after[0])} into {at}, to its end"
        yield Otherwise(STATEMENTS, after[0].lineno, start, end, text.shifted(after[:1], len(BLOCK)), words)


def _written(text: Text, function: Function) -> Iterator[Otherwise]:
    """Yield lines that a function lacks: calls of what is defined and called by nobody, and counting on."""
    blocks = [node for node in ast.walk(function) if isinstance(node, (ast.For, ast.While, ast.If))]
    ends = [node.body[-1] for node in blocks]
    for call in _uncalled(text, function):
        why = f"nobody calls `{call.removeprefix('await ').partition('(')[0]}`: "
        yield from (_added(text, call, place, why) for place in [*ends, *function.body])
    counting = {text.of(node) for node in ast.walk(function) if isinstance(node, ast.AugAssign)}
    for line in sorted(counting):
        if line.endswith((" 1", "=1")):
            yield from (_added(text, line, place) for place in ends)
    for node in blocks:
        if isinstance(node, ast.While) and not any(isinstance(one, ast.AugAssign) for one in ast.walk(node)):
            names = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}
            yield from (_added(text, f"{name} {sign}= 1", node.body[-1]) for name in sorted(names) for sign in "+-")


def _uncalled(text: Text, function: Function) -> Iterator[str]:
    """Yield how functions and methods that nobody calls may be called here."""
    for one in text.uncalled:
        word = "await " if isinstance(one, ast.AsyncFunctionDef) else ""
        method = one in text.methods
        wanted = len(one.args.args) - len(one.args.defaults) - method  # but for self
        arguments = ([""], counted(function), [])[min(wanted, 2)]
        if method:
            names = [f"{name}.{one.name}" for name in _objects(function) if one is not function]
        else:
            names = [one.name] * (one in function.body)
        yield from (f"{word}{name}({given})" for name in names for given in arguments)


def _objects(function: Function) -> list[str]:
    """Return the names in a function whose methods are called."""
    found: dict[str, None] = {}
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name != "model":
                found[name] = None
    return [*found]


def _added(text: Text, line: str, place: ast.stmt, why: str = "") -> Otherwise:
    """Return a line behind a statement, or before it where that returns."""
    returns = isinstance(place, ast.Return)
    at = text.rows(place)[0 if returns else 1]
    words = f"{why}write `{line}` {'before' if returns else 'behind'} {text.named(place)}"
    return Otherwise(ORDERS if why else CALLS, place.lineno, at, at, f"{' ' * place.col_offset}{line}\n", words)


def _all_of_one(text: Text, statement: ast.stmt) -> Iterator[Otherwise]:
    """Yield a statement in which what is written in it several times is meant otherwise each time."""
    places: dict[str, list[ast.expr]] = {}
    for node in ast.walk(statement):
        if isinstance(node, (ast.BinOp, ast.Name)):
            places.setdefault(text.of(node), []).append(node)
    for once, nodes in places.items():
        changes = [new for likely, new in instead(text, nodes[0]) if likely == SIMPLE] if len(nodes) > 1 else []
        for new in changes:
            words = f"in {text.named(statement)}, write `{new}` in place of `{once}` each time"
            yield Otherwise(CALLS, statement.lineno, *text.span(statement), text.replaced(statement, nodes, new), words)
