"""What the text of a program shows of its names and lines: a list, a dictionary or a flag that all ranks share, a name
that a function reads late, a loop that ends in its first turn, a function without ``return``, and a result that is
thrown away."""

import ast
from collections.abc import Iterator

from ...basics.errors import PuzzleError
from ...record.collectives import ALLREDUCE, SCATTERREDUCE
from ...record.table import OPERATIONS, stream_of
from .sources import FUNCTIONS, called_in_tasks, last_name, parsed

KINDS_OF = {
    ast.Dict: "dictionary", ast.DictComp: "dictionary", ast.List: "list", ast.ListComp: "list", ast.Set: "set",
    "dict": "dictionary", "defaultdict": "dictionary", "OrderedDict": "dictionary", "Counter": "dictionary",
    "list": "list", "deque": "list", "set": "set",
}  # fmt: skip
"""What makes something that can be changed, and the word for that."""
CHANGES = {"append", "extend", "insert", "pop", "popleft", "popitem", "remove", "discard", "add", "update", "clear"} | {
    "setdefault",
    "appendleft",
}
"""Methods that change a list, a dictionary or a set."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def from_its_text(error: PuzzleError, name: str, source: str, fix: str) -> str:
    """Return what the text of the function of that name and of what it needs shows of a mistake, before its fix; or the
    fix alone."""
    problem, got = (str(getattr(error, part, "")) for part in ("problem", "got"))
    goes_on = bool(getattr(error, "line", "")) and not problem.startswith("deadlock")  # no return has ended it
    if ends := ends_in_a_loop(source, name, helpers=goes_on):
        return f"{ends}. Else {fix}" if fix and (goes_on or ends.startswith("`break`")) else ends
    tree = parsed(source)
    if "object WeightGrad can't be used in 'await'" in problem:
        fix = no_call(tree) or fix
    none = no_return(tree) if got == "None" or "NoneType" in problem else ""
    if said := shared_by_ranks(tree) or none or read_late(tree) or thrown_away(tree, problem, fix):
        return f"{said}. Else {fix}" if fix else said
    return fix


# -- what all ranks share ----------------------------------------------------------------------------------------------


def shared_by_ranks(tree: ast.Module) -> str:
    """Return that something which functions change is one for all ranks, and where to make one for each; or an empty
    text.

    >>> shared_by_ranks(ast.parse("jobs = {}\\ndef ddp(model):\\n    jobs[0] = model.loss()"))[:40]
    'jobs is one dictionary for all ranks: `j'
    >>> shared_by_ranks(ast.parse("jobs = {}\\ndef ddp(model):\\n    jobs[model.rank] = 0"))
    ''
    """
    several = "what one rank changes in it has changed for the others, too"
    for statement in tree.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                kind = changeable(value) or "value" * _is_global(tree, name)
                if kind and any(changes(one, name, False) for one in _outer(tree)):
                    made = f"`{ast.unparse(statement)}` stands outside of the functions, and {several}"
                    return f"{name} is one {kind} for all ranks: {made}. Make it inside, for each rank its own"
            case ast.ClassDef(name=owner):
                for name, kind, text in _attributes(statement):
                    if any(changes(one, name, True) for one in _outer(tree)):
                        made = f"`{text}` stands in the class {owner} itself, and {several}"
                        return f"{name} is one {kind} for all ranks: {made}. Make it in __init__, self.{text}"
    for function in _outer(tree):
        for name, kind, text in _defaults(function):
            if changes(function, name, None):
                made = f"`{name}={text}` in the first line of {function.name} is made once, and {several}"
                return f"{name} is one {kind} for all ranks: {made}. Make it inside, for each rank its own"
    return ""


def _outer(tree: ast.Module) -> list[Function]:
    """Return the functions and methods of a program that are in no other function."""
    classes = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    return [one for body in (tree.body, *(each.body for each in classes)) for one in body if isinstance(one, FUNCTIONS)]


def changeable(value: ast.expr) -> str:
    """Return the word for what an expression makes, if that can be changed; or an empty text."""
    return KINDS_OF.get(last_name(value.func) if isinstance(value, ast.Call) else type(value), "")


def _is_global(tree: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.Global) and name in node.names for node in ast.walk(tree))


def _attributes(owner: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield what stands in a class itself and can be changed, but for what its objects replace, as a name, a word and
    the statement. Of a dataclass such a thing is refused by Python."""
    own = {node.attr for node in ast.walk(owner) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for statement in owner.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if changeable(value) and name not in own:
                yield name, changeable(value), ast.unparse(statement)


def _defaults(function: Function) -> Iterator[tuple[str, str, str]]:
    """Yield the arguments with a default that can be changed, each as a name, a word and the default."""
    given = function.args
    late = list(zip(given.args[len(given.args) - len(given.defaults) :], given.defaults, strict=True))
    late += [(one, value) for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None]
    yield from ((one.arg, changeable(value), ast.unparse(value)) for one, value in late if changeable(value))


def changes(function: Function, name: str, attribute: bool | None) -> bool:
    """Return whether a function changes what has this name, under keys that are not the numbers of ranks.
    ``attribute``: of an object; None for an argument of this function, which no other name hides."""
    nodes = [*ast.walk(function)]
    if attribute is False:
        stored = {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        stored |= {one.arg for one in nodes if isinstance(one, ast.arg)}
        if name in stored:
            return any(isinstance(one, ast.Global) and name in one.names for one in nodes)
    ranks = {"rank", *(last_name(one.targets[0]) for one in nodes if isinstance(one, ast.Assign) and _of_rank(one))}
    for node in nodes:
        match node:
            case ast.Subscript(value=kept, slice=key, ctx=ast.Store() | ast.Del()):
                keys = [key]
            case ast.Call(func=ast.Attribute(value=kept, attr=how), args=keys) if how in CHANGES:
                pass
            case _:
                continue
        named = isinstance(kept, ast.Attribute) if attribute else isinstance(kept, ast.Name)
        of_rank = any(last_name(one) in ranks for key in keys[:1] for one in ast.walk(key))
        if named and last_name(kept) == name and not of_rank:
            return True
    return False


def _of_rank(statement: ast.Assign) -> bool:
    return isinstance(statement.value, ast.Attribute) and statement.value.attr == "rank"


# -- what a function reads late, or does not give ----------------------------------------------------------------------


def read_late(tree: ast.Module) -> str:
    """Return that a function which is started in a loop, and not awaited at once, reads a name that the loop changes;
    or an empty text."""
    for outer in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
        inner = {
            node.name: node for node in ast.walk(outer) if isinstance(node, ast.AsyncFunctionDef) and node != outer
        }
        for loop in (node for node in ast.walk(outer) if isinstance(node, (ast.For, ast.While))):
            turns = _turns(loop)
            for call in _started(loop):
                own = inner.get(last_name(call.func)) if isinstance(call, ast.Call) else call
                reads = sorted(turns & _free(own)) if own else []
                if reads:
                    return _late(call, reads)
    return ""


def _late(call: ast.Call | ast.Lambda, reads: list[str]) -> str:
    names, them = " and ".join(reads), "it" if len(reads) == 1 else "them"
    given = ", ".join(reads)
    if isinstance(call, ast.Lambda):
        once = ", ".join(f"{one}={one}" for one in reads)
        begins, argument = f"`{ast.unparse(call)}` reads", f"lambda {once}: ..."
    else:
        name = last_name(call.func)
        given = ", ".join(filter(None, [*map(ast.unparse, call.args), given]))
        begins, argument = f"{name} is started here and reads", f"async def {name}({given}), and {name}({given})"
    late = f"only when it goes on, and by then the loop may have changed {them}"
    return f"{begins} {names} {late}: give {them} as an argument, {argument}"


def _turns(loop: ast.For | ast.While) -> set[str]:
    """Return the names that a loop changes from turn to turn."""
    if isinstance(loop, ast.For):
        return {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    tested = {one.id for one in ast.walk(loop.test) if isinstance(one, ast.Name)}
    return tested & {one.id for one in ast.walk(loop) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _started(loop: ast.For | ast.While) -> Iterator[ast.Call | ast.Lambda]:
    """Yield the calls in a loop that no await is around, and the functions without a name that are kept in it."""
    awaited = {one for node in ast.walk(loop) if isinstance(node, ast.Await) for one in ast.walk(node)}
    for node in ast.walk(loop):
        match node:
            case ast.Call() if node not in awaited:
                yield node
                if last_name(node.func) == "append":
                    yield from (one for one in node.args if isinstance(one, ast.Lambda))
            case ast.Assign(targets=[ast.Subscript()], value=ast.Lambda() as value):
                yield value


def _free(function: ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """Return the names that a function reads and takes from around it."""
    names = [one for one in ast.walk(function) if isinstance(one, ast.Name)]
    own = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    own |= {one.id for one in names if not isinstance(one.ctx, ast.Load)}
    return {one.id for one in names} - own


def no_return(tree: ast.Module) -> str:
    """Return that a function whose result is used has no ``return``; or an empty text.

    >>> no_return(ast.parse("def cut(s):\\n    s.shard(0, 4)\\ndef ddp(model):\\n    state = cut(s)"))[:32]
    'cut(s) gives None, as cut has no'
    """
    used, tasks = _used(tree), called_in_tasks(tree)
    for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
        own = [node for node in ast.walk(function) if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom))]
        if any(one.value for one in own) or function.name in tasks or function.name not in used:
            continue
        call = used[function.name]
        return f"{ast.unparse(call)} gives None, as {function.name} has no `return`: let it return what it makes"
    return ""


def _used(tree: ast.Module) -> dict[str, ast.Call]:
    """Return the calls whose results are used, by what they call."""
    alone, bare = set[ast.expr](), {one.name for one in ast.walk(tree) if isinstance(one, ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Await(value=one)) | ast.Expr(value=one):
                alone.add(one)
    awaited = {node.value for node in ast.walk(tree) if isinstance(node, ast.Await)}
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and one not in alone]
    calls = [one for one in calls if isinstance(one.func, ast.Name) or last_name(one.func) not in OPERATIONS]
    return {last_name(one.func): one for one in calls if one in awaited or last_name(one.func) not in bare}


def no_call(tree: ast.Module) -> str:
    """Return that what is awaited under a key is a tensor that was put there as it is, and no call; or an empty text.

    >>> no_call(ast.parse("sums[l] = grad\\nasync def go(l):\\n    await sums.pop(l)"))[:60]
    '`sums[l] = grad` puts the gradient there as it is, and only '
    """
    awaited = [node.value for node in ast.walk(tree) if isinstance(node, ast.Await)]
    taken = {last_name(_taken_from(one)) for one in awaited} - {""}
    text = ast.unparse(tree)
    left = [verb for verb in (SCATTERREDUCE.kind, ALLREDUCE.kind) if f".{verb}(" not in text]
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=kept) as place], value=ast.Name(id=name)):
                if last_name(kept) not in taken:
                    continue
                puts = f"`{ast.unparse(node)}` puts the gradient there as it is, and only a call can be awaited"
                call = f"{ast.unparse(place)} = model.{left[0] if left else ALLREDUCE.kind}({name}, ...)"
                none = f", and no model.{left[0]} stands in this program" if left else ""
                return f"{puts}: {call}, if a sum is missing there{none}; or else leave out await"
    return ""


def _taken_from(node: ast.expr) -> ast.expr:
    """Return the dictionary or list of which an expression is an entry, or else the expression."""
    match node:
        case ast.Call(func=ast.Attribute(value=kept, attr="pop")) | ast.Subscript(value=kept):
            return kept
    return node


# -- what is thrown away, and what ends too soon -----------------------------------------------------------------------


def thrown_away(tree: ast.Module, problem: str, fix: str) -> str:
    """Return that what a call gives, of which a problem or a fix speaks, is thrown away; or an empty text.

    >>> thrown_away(ast.parse("s.shard(0, 4)"), "", "cut it: state.shard(model.rank, model.RANKS)")
    '`s.shard(0, 4)` changes nothing, and what it gives is thrown away: keep that, s = s.shard(0, 4)'
    """
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=on, attr="shard" as verb))):
                pass
            case ast.Expr(value=ast.Await(value=ast.Call(func=ast.Attribute(attr=verb), args=[on, *_]))):
                if stream_of(verb) != "collective":
                    continue
            case _:
                continue
        if (
            f"{verb}(" in problem + fix
            and "it returns a new one" not in fix
            and isinstance(on, ast.Name | ast.Attribute | ast.Subscript)
        ):
            text, name = ast.unparse(node), ast.unparse(on)
            return f"`{text}` changes nothing, and what it gives is thrown away: keep that, {name} = {text}"
    return ""


def ends_in_a_loop(source: str, name: str, helpers: bool = False) -> str:
    """Return that a ``return`` or a ``break`` ends a loop in its first turn, in the function of that name, or, with
    ``helpers``, in another one; or an empty text.

    >>> ends_in_a_loop("def ddp(model):\\n    for l in range(4):\\n        step(l)\\n        return model", "ddp")[:61]
    '`return model` stands inside `for l in range(4)`, and ends dd'
    """
    said = list[str]()
    for function in (node for node in ast.walk(parsed(source)) if isinstance(node, FUNCTIONS)):
        for loop in (node for node in _own(function) if isinstance(node, (ast.For, ast.While))):
            if helpers == (function.name != name) and not any(isinstance(one, ast.Continue) for one in ast.walk(loop)):
                said += _ends_at_once(function, loop)
    return next(iter(said), "")


def ends_under_a_condition(source: str, name: str) -> str:
    """Return that a ``return`` in a loop ends the function of that name where a condition is true, or in the first
    turn; or an empty text."""
    own = [node for node in ast.walk(parsed(source)) if isinstance(node, FUNCTIONS) and node.name == name]
    loops = [node for one in own for node in _own(one) if isinstance(node, (ast.For, ast.While))]
    return ends_in_a_loop(source, name) or next((said for loop in loops for said in _ends_if(loop)), "")


UNDER = "and where that is true, the function ends, with all that is left to do below it"


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a function, and in none that it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            yield child
            yield from _own(child)


def _ends_at_once(function: Function, loop: ast.For | ast.While) -> Iterator[str]:
    for one in loop.body:
        if isinstance(one, ast.Return | ast.Break):
            stands = f"`{ast.unparse(one)}` stands inside {_head(loop)}, and"
            if isinstance(one, ast.Break):
                yield f"{stands} ends that loop in its first turn: leave it out, unless one turn is all"
            else:
                below = f"move it below the loop, as far to the left as `{_head(loop)[1:].split()[0]}`"
                yield f"{stands} ends {function.name} in the first turn: {below}"


def _ends_if(loop: ast.For | ast.While) -> Iterator[str]:
    for one in loop.body:
        if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Return):
            where = f"below `if {ast.unparse(one.test)}`"
            yield f"`{ast.unparse(one.body[-1])}` stands inside {_head(loop)}, {where}, {UNDER}: return after the loop"


def _head(loop: ast.For | ast.While) -> str:
    """Return the first line of a loop."""
    if isinstance(loop, ast.While):
        return f"`while {ast.unparse(loop.test)}`"
    return f"`for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}`"
