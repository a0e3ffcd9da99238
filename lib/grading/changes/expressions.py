"""What may have been meant by an expression: another number, name, key, comparison, order or call."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from ...record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from .text import SIZES, Function, Text, called

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
REDUCTIONS = (ALLREDUCE.kind, SCATTERREDUCE.kind, ALLGATHER.kind)
STORES = ("weights", "opt_states", "activations", "grad_activations", "grad_weights")
"""Names of a model that are taken for one another."""
ORDERS, COMPARED, SIMPLE, CALLS, STATEMENTS, NAMES, FAR = range(7)
"""How likely a change is: the order of two calls, from which end a list is taken, or a call of what is defined and
never called, or never awaited, comes first, as it is no accident where that passes; then comparisons, numbers and keys,
calls, statements, any other name, and what takes a statement far away."""
TRUTHS = (ast.BoolOp, ast.UnaryOp, ast.If, ast.While, ast.IfExp)
"""What asks whether a name is true: one more or less of it is not what anybody means."""


def instead(text: Text, node: ast.expr) -> Iterator[tuple[int, str]]:
    """Yield how likely another expression in place of this one is, and how it is written."""
    of = text.of
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool) and not _is_of_sleep(text, node):
            yield from _other_numbers(text, node, number)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for other in COMPARISONS[type(op)]:
                if (type(op), other, of(right)) == (ast.Eq, "<", "0"):
                    continue  # true of no number that counts: what is below it would be dead
                yield COMPARED, f"{of(left)} {other} {of(right)}"
        case ast.BoolOp(op=op, values=values):
            word, other = (" and ", " or ") if isinstance(op, ast.And) else (" or ", " and ")
            yield SIMPLE, other.join(map(of, values))
            for left_out in values:
                yield SIMPLE, word.join(of(one) for one in values if one is not left_out)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield SIMPLE, of(operand)
        case ast.BinOp(left=left, op=op, right=right):
            if isinstance(op, ast.Mod) and isinstance(right, ast.Attribute) and right.attr == "RANKS":
                yield SIMPLE, f"{of(right.value)}.rank"
            for sign in OPERATORS.get(type(op), ()):
                yield SIMPLE, f"{of(left)} {sign} {of(right)}"
            yield CALLS, of(left)
            if isinstance(op, (ast.Add, ast.Sub)) and text.role(node) in text.peers:
                yield from ((SIMPLE, f"({of(node)}) % {ranks}") for ranks in text.named_sizes("RANKS"))
        case ast.Attribute(attr=name) if name in SIZES:
            yield from ((SIMPLE, f"{of(node.value)}.{one}") for one in SIZES)
            yield from _one_off(text, node)
        case ast.Attribute(attr="rank"):
            yield from _one_off(text, node)
            yield from _compared(text, node)
        case ast.Attribute(attr=name) if name in REDUCTIONS:
            yield from ((CALLS, f"{of(node.value)}.{one}") for one in REDUCTIONS)
        case ast.Attribute(attr=name) if name in STORES and getattr(text.parents[node], "attr", "") != "clear":
            yield from ((CALLS, f"{of(node.value)}.{one}") for one in STORES)
        case ast.Name(ctx=ast.Load()):
            yield from _other_names(text, node)
        case ast.Subscript(value=ast.Attribute() as store, slice=key):
            yield from ((SIMPLE, f"{of(store)}[{one}]") for one in text.keys_at(node, store.attr))
            if isinstance(node.ctx, ast.Load):
                yield CALLS, f"{of(store)}.pop({of(key)})"
        case ast.Tuple(elts=[first, second]):
            calls = isinstance(first, ast.Call) and isinstance(second, ast.Call)
            yield ORDERS if calls else CALLS, _exchanged(text, node, first, second)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield from ((SIMPLE, of(one)) for one in (body, orelse))
            yield SIMPLE, f"{of(orelse)} if {of(test)} else {of(body)}"
            yield CALLS, f"{of(body)} if {of(test)} else {of(orelse)} + {of(body)}"
            yield CALLS, f"{of(body)} + {of(orelse)} if {of(test)} else {of(orelse)}"
        case ast.Await(value=value):
            if isinstance(value, ast.Call) and called(value) in REDUCTIONS and value.args:
                targets = getattr(text.parents[node], "targets", ())
                if of(value.args[0]) not in map(of, targets):  # to leave out the line says the same better
                    yield CALLS, of(value.args[0])
        case ast.Call():
            yield from _called_otherwise(text, node)
    if (role := text.role(node)) is not None:
        yield from ((NAMES, other) for other in text.roles[role])
    if isinstance(parent := text.parents[node], (ast.For, ast.comprehension)) and node is parent.iter:
        yield from _the_other_way(text, node)
    yield from ((CALLS, sums) for sums in _summed(text, node))
    if isinstance(parent, ast.Expr) and isinstance(node, (ast.Name, ast.Attribute)):
        yield from ((CALLS, f"{of(node)}()"), (CALLS, f"await {of(node)}()"))


def _the_other_way(text: Text, node: ast.expr) -> Iterator[tuple[int, str]]:
    """Yield what a loop goes through, from its other end."""
    of = text.of
    match node:
        case ast.Call(func=ast.Name(id="reversed"), args=[argument]):
            yield SIMPLE, of(argument)
        case ast.Subscript(value=whole, slice=ast.Slice(lower=None, upper=None)):
            yield SIMPLE, of(whole)
        case ast.Call(func=ast.Name(id="range")):
            yield SIMPLE, f"reversed({of(node)})"
        case _:
            yield SIMPLE, f"list({of(node)})"
            yield SIMPLE, f"list({of(node)})[::-1]"


def _called_otherwise(text: Text, node: ast.Call) -> Iterator[tuple[int, str]]:
    of = text.of
    match node:
        case ast.Call(func=ast.Name(id="reversed"), args=[argument]):
            yield SIMPLE, of(argument)
        case ast.Call(func=ast.Name(id="range")):
            yield CALLS, f"reversed({of(node)})"
        case ast.Call(func=ast.Name(id="zip") as name):
            yield CALLS, text.replaced(node, [name], "zip_longest")
        case ast.Call(func=ast.Attribute(value=place, attr="pop"), args=[]):
            yield from ((ORDERS, f"{of(place)}.{one}") for one in ("popleft()", "pop(0)"))
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=store) as place, attr="pop"), args=[key, *rest]):
            yield CALLS, f"{of(place)}[{of(key)}]"
            more = "".join(f", {of(one)}" for one in rest)
            yield from ((SIMPLE, f"{of(place)}.pop({one}{more})") for one in text.keys_at(node, store))
    if isinstance(text.function(node), ast.AsyncFunctionDef) and not isinstance(text.parents[node], ast.Await):
        dropped = isinstance(text.parents[node], ast.Expr) and called(node) in text.coroutines
        yield ORDERS if dropped else CALLS, f"await {of(node)}"
    for first, second in pairwise(node.args):
        yield CALLS, _exchanged(text, node, first, second)


def _summed(text: Text, node: ast.expr) -> Iterator[str]:
    """Yield calls that add up over the ranks what is stored as the gradient of a weight, or given to an update: as the
    program writes others of them, or the plain ones."""
    match text.parents[node]:
        case ast.Assign(targets=[ast.Subscript(ast.Attribute(model, "grad_weights"), layer)], value=grad):
            pass
        case ast.Call(func=ast.Attribute(model, "update"), args=[layer, grad, *_]):
            pass
        case _:
            return
    if grad is not node or not isinstance(text.function(node), ast.AsyncFunctionDef):
        return
    for one in ast.walk(text.top):
        if isinstance(one, ast.Call) and called(one) in REDUCTIONS and one.args:
            yield f"await {text.replaced(one, one.args[:1], text.of(node))}"
    for name in REDUCTIONS[:2]:
        yield f"await {text.of(model)}.{name}({text.of(node)}, {text.of(layer)})"


def _exchanged(text: Text, node: ast.expr, first: ast.expr, second: ast.expr) -> str:
    """Return an expression with two that are in it exchanged."""
    (start, end), (a, b), (c, d) = map(text.span, (node, first, second))
    source = text.source
    return (source[start:a] + source[c:d] + source[b:c] + source[a:b] + source[d:end]).decode()


def _other_names(text: Text, node: ast.Name) -> Iterator[tuple[int, str]]:
    """Yield what may be meant by a name: a number more or less, or another name of this function."""
    function, parent = text.function(node), text.parents[node]
    assert function is not None
    counts = counted(function)
    if node.id in counts:
        yield from _one_off(text, node)
        yield from ((SIMPLE, name) for name in counts)
    elif node.id in text.sizes:
        yield from ((SIMPLE, other) for size in SIZES for other in text.named_sizes(size))
        yield from _compared(text, node)
    elif isinstance(parent, ast.Compare):
        yield from _compared(text, node)
    elif not isinstance(parent, (ast.Attribute, ast.Call)) or node in getattr(parent, "args", ()):
        of = [one.value for one in ast.walk(function) if isinstance(one, ast.Attribute)]
        things = {one.id for one in of if isinstance(one, ast.Name)}
        alike = (name for name in _assigned(function) if (name in things) == (node.id in things))
        yield from ((NAMES, name) for name in alike if name not in counts)


def _other_numbers(text: Text, node: ast.expr, number: int) -> Iterator[tuple[int, str]]:
    """Yield one more and one less, and what counts here, where a number is handed on or is a key."""
    yield SIMPLE, str(number + 1)
    match text.parents[node]:
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=right) if right is node and number == 1:
            return  # without it all is tried
        case ast.Call() | ast.Subscript() | ast.List() | ast.keyword():
            function = text.function(node)
            assert function is not None
            yield from ((NAMES, name) for name in (*counted(function), *text.own_ranks))
    if number or not isinstance(text.parents[node], ast.Compare):
        yield SIMPLE, str(number - 1)


def _compared(text: Text, node: ast.expr) -> Iterator[tuple[int, str]]:
    """Yield what counts in this function, in place of something else that is compared."""
    function = text.function(node)
    if isinstance(text.parents[node], ast.Compare) and function is not None:
        yield from ((SIMPLE, name) for name in counted(function))


def _one_off(text: Text, node: ast.expr) -> Iterator[tuple[int, str]]:
    parent = text.parents[node]
    match parent:
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant()):
            return  # another number is meant there, and tried
        case ast.BinOp(op=ast.Add() | ast.Sub()) if _has_number(text.parents[parent]):
            return
        case ast.Subscript(value=ast.Attribute(attr="grad_weights" | "weights" | "opt_states")):
            value = getattr(text.parents[parent], "value", None)
            if isinstance(value, ast.Call) and value.args and text.of(value.args[0]) == text.of(node):
                return  # the layer of the call is that of its key
        case _ if isinstance(parent, TRUTHS):
            return
    zero = isinstance(parent, ast.Compare) and text.of(parent.comparators[0]) == "0"
    for sign in "-" if zero else "+-":
        more = f"{text.of(node)} {sign} 1"
        yield SIMPLE, f"({more})" if isinstance(text.parents[node], (ast.BinOp, ast.UnaryOp)) else more


def _has_number(node: ast.AST) -> bool:
    """Return whether a number is added here, or taken away."""
    return (
        isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and isinstance(node.right, ast.Constant)
    )


def _is_of_sleep(text: Text, node: ast.expr) -> bool:
    """Return whether a number is a time to sleep: to sleep longer is no way to wait for something."""
    match text.parents[node]:
        case ast.Call(func=ast.Attribute(attr="sleep") | ast.Name(id="sleep")):
            return True
    return False


# -- names ----------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def counted(function: ast.AST) -> list[str]:
    """Return the names of a function that count: of loops, and of arithmetic."""
    found: dict[str, None] = {}
    of = [one.value for one in ast.walk(function) if isinstance(one, ast.Attribute)]
    things = {one.id for one in of if isinstance(one, ast.Name)}
    for node in ast.walk(function):
        match node:
            case ast.For(target=target) | ast.comprehension(target=target):
                found |= dict.fromkeys(_names(target))
            case ast.Assign(targets=[target], value=ast.BinOp() | ast.Constant() | ast.Call(func=ast.Name())):
                found |= dict.fromkeys(_names(target))
            case ast.AugAssign(target=ast.Name(id=name)):
                found[name] = None
            case ast.Subscript(value=ast.Attribute(attr=store), slice=key) if store in STORES:
                found |= dict.fromkeys(name for name in _names(key) if name not in things)
            case ast.arg(arg=name) if name not in things and name != "self":
                found[name] = None
    several = set(_of_several(function))
    return [name for name in found if name not in several]


def _of_several(function: ast.AST) -> Iterator[str]:
    """Yield the names of a function that are no numbers: of what a loop goes through, or of which an item is taken."""
    for node in ast.walk(function):
        match node:
            case ast.For(iter=ast.Name(id=name)) | ast.comprehension(iter=ast.Name(id=name)):
                yield name
            case ast.Subscript(value=ast.Name(id=name)):
                yield name
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=name)]):
                yield name


@lru_cache(maxsize=32)
def _assigned(function: Function) -> list[str]:
    """Return the names to which a function assigns something."""
    targets = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return [*dict.fromkeys(node.id for node in targets)]


def _names(target: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
