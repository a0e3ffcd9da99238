"""What the text of a program shows: coroutines that nobody awaits, in which nothing is done, numbers of one size only,
and conditions that are true for one layer of a stage only, or on one rank."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set

from ...basics.errors import PuzzleError
from ...course.ideas import STAGES, four_stages, own_layers
from ...course.layouts import Size
from ...course.specs import Puzzle
from ...record.collectives import ALLGATHER, ALLREDUCE, SCATTERREDUCE
from ...record.table import OPERATIONS, in_stream
from ...record.training import BACKWARD, FORWARD

LONGEST = 100_000  # characters of a program that is searched
LONGEST_CALL = 60  # characters of a call that are shown


def never_awaited(source: str) -> str:
    """Return what to write for a call of a coroutine function or method that a program defines, where what it gives is
    dropped, or only kept where nobody reads it; an empty text where there is none.

    >>> never_awaited("async def sums(n): ...\\nasync def ddp(model):\\n    sums(3)")
    'await sums(3): it is called and never awaited, and a coroutine that nobody awaits does nothing'
    >>> never_awaited("async def sums(n): ...\\nasync def ddp(model):\\n    await sums(3)")
    ''
    """
    tree = parsed(source)
    own, does_nothing = _Coroutines(tree), "a coroutine that nobody awaits does nothing"
    for call in own.dropped():
        return f"await {_shown(call)}{own.where(call)}: it is called and never awaited, and {does_nothing}"
    for call, kept, gather in own.only_kept():
        if not gather:
            return f"await {_shown(call)}: it is put into {kept}, and never awaited, and {does_nothing}"
        return f"{_shown(call)} is put into {kept}, and never awaited: {gather} after that, since {does_nothing}"
    return ""


def parsed(source: str) -> ast.Module:
    """Return a program as a tree, which is empty where it cannot be read."""
    try:
        return ast.parse(source[:LONGEST])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _shown(call: ast.Call) -> str:
    """Return a call as it is written, or its name alone where that is long."""
    text = ast.unparse(call)
    return text if len(text) <= LONGEST_CALL else f"{ast.unparse(call.func)}(...)"


class _Coroutines:
    """The coroutine functions and methods of a program, and the calls of these that nobody awaits."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.names = {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
        self.names -= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        self.methods = {one.name for node in classes for one in node.body if isinstance(one, FUNCTIONS)}
        self.classes = {node.name for node in classes}
        self.objects = {name for name, given in assigned(tree) if self._makes(given)}
        for one in (one for node in classes for one in node.body if isinstance(one, FUNCTIONS)):
            self.objects |= {one.args.args[0].arg} if one.args.args and not one.decorator_list else set()

    def _makes(self, node: ast.expr) -> bool:
        """Return whether this makes an object of a class of the program."""
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.classes

    def is_call(self, node: ast.AST, among: Set[str] | None = None) -> bool:
        """Return whether this is a call of one of them, or of some, by the names ``among`` theirs. A name that the
        model has, too, is theirs where it is called on an object of the program."""
        names = self.names if among is None else self.names & among
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name in names
            case ast.Call(func=ast.Attribute(value=on, attr=name)) if name in names & self.methods:
                return name not in OPERATIONS or ast.unparse(on) in self.objects or self._makes(on)
        return False

    def dropped(self) -> Iterator[ast.Call]:
        """Yield the calls that are a statement by themselves, or all of a list that is one."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.ListComp(elt=ast.Call() as call)):
                    if self.is_call(call):
                        yield call

    def only_kept(self) -> Iterator[tuple[ast.Call, str, str]]:
        """Yield the calls whose results are kept where nobody reads them, each with the name of that, and what awaits
        all of a list or a dictionary that has it; an empty text where it is one call's result."""
        for node in ast.walk(self.tree):
            every = "await asyncio.gather(*{})"
            match node:
                case (
                    ast.Call(func=ast.Attribute(value=kept, attr="append"), args=[ast.Call() as call])
                    | ast.Assign(targets=[kept], value=ast.ListComp(elt=ast.Call() as call))
                ):
                    pass
                case ast.Assign(targets=[ast.Subscript(value=kept)], value=ast.Call() as call):
                    every = every if self._is_list(kept) else "await asyncio.gather(*{}.values())"
                case ast.Assign(targets=[kept], value=ast.Call() as call):
                    every = ""
                case _:
                    continue
            name = ast.unparse(kept)
            if self.is_call(call) and last_name(kept) and not self._is_read(last_name(kept)):
                yield call, name, every.format(name)

    def tasks(self) -> Iterator[tuple[ast.Call, str]]:
        """Yield the calls that are started as tasks, each with the name of what starts them."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="gather" | "create_task" | "ensure_future" as how)):
                    for part in ast.walk(node):
                        if isinstance(part, ast.Call) and part is not node and self.is_call(part):
                            yield part, how

    def _is_read(self, name: str) -> bool:
        """Return whether what has this name is used for anything but to put something into it."""
        reads = puts = 0
        for node in ast.walk(self.tree):
            reads += last_name(node) == name and isinstance(getattr(node, "ctx", None), ast.Load)
            match node:
                case ast.Attribute(value=kept, attr="append") | ast.Subscript(value=kept, ctx=ast.Store()):
                    puts += last_name(kept) == name
        return reads > puts

    def _is_list(self, kept: ast.expr) -> bool:
        """Return whether a name stands for a list, and not for a dictionary."""
        given = [one for name, one in assigned(self.tree) if name == ast.unparse(kept)]
        return any(isinstance(one, ast.List | ast.ListComp | ast.BinOp) for one in given)

    def where(self, call: ast.Call) -> str:
        """Return what the function around a call must become, where that is a plain one, which cannot await."""
        around = [node for node in ast.walk(self.tree) if isinstance(node, FUNCTIONS) and call in ast.walk(node)]
        if not around or isinstance(around[-1], ast.AsyncFunctionDef):
            return ""
        name = around[-1].name
        if name == "__init__":
            return " once the object is made, where it is made, as __init__ cannot await"
        return f", in async def {name}(...), which is awaited where it is called"


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def last_name(node: ast.AST) -> str:
    """Return the name of a variable, or of an attribute of whatever object; an empty text for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def asks_again(source: str, line: str = "") -> str:
    """Return what to do about a loop that asks again and again for what is not there yet, and lets others go on in
    between; an empty text where there is none. ``line``: the one in it at which a run was stopped, if that is known.

    >>> asks_again("async def zbv(model):\\n    while not model.weights:\\n        await asyncio.sleep(0)")[:45]
    'a loop such as `while not model.weights` asks'
    """
    for node in ast.walk(parsed(source)):
        match node:
            case ast.While(body=[ast.Expr(value=ast.Await(value=ast.Call(func=ast.Attribute(attr="sleep"))))]):
                if not line or any(line.endswith(one.strip()) for one in _lines_of(source, node)):
                    loop = f"a loop such as `while {ast.unparse(node.test)}` asks again and again"
                    ticks = "no message comes meanwhile, as time goes on only where all ranks wait for a call"
                    return (
                        f"{loop}, and {ticks}: receive there, or wait for an asyncio.Event that is set after a receive"
                    )
    return ""


def _lines_of(source: str, node: ast.stmt) -> list[str]:
    return source.splitlines()[node.lineno - 1 : node.end_lineno]


def dropped_by_a_deque(problem: str, source: str) -> str:
    """Return what to do about a call that nobody awaits, where a program has a deque that drops what is too many.

    >>> dropped_by_a_deque("allgather was started and never awaited", "queue = deque(maxlen=1)")[:42]
    'deque(maxlen=1) drops a call where it is f'
    """
    for node in ast.walk(parsed(source if problem.endswith("was started and never awaited") else "")):
        if (
            isinstance(node, ast.Call)
            and last_name(node.func) == "deque"
            and any(one.arg == "maxlen" for one in node.keywords)
        ):
            drops = f"{_shown(node)} drops a call where it is full and one more is put in, and nobody awaits that one"
            return f"{drops}: without maxlen it keeps all"
    return ""


def begun_late(source: str) -> str:
    """Return what to do about calls of a coroutine function that a loop puts into a list, of which all are awaited at
    once after it; an empty text where there are none.

    >>> body = "async def last(i): ...\\nasync def wsdp(model):\\n    for i in range(4):\\n        todo.append({})\\n"
    >>> begun_late(body.format("last(i)") + "    await asyncio.gather(*todo)")[:64]
    'last(i) only begins where todo is awaited: a call of a coroutine'
    >>> begun_late(body.format("asyncio.create_task(last(i))") + "    await asyncio.gather(*todo)")
    ''
    """
    tree = parsed(source)
    own = _Coroutines(tree)
    for loop in (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))):
        inside = [*ast.walk(loop)]
        for node in inside:
            match node:
                case ast.Call(func=ast.Attribute(value=kept, attr="append"), args=[ast.Call() as call]):
                    name, shown = ast.unparse(kept), _shown(call)
                    gathers = [one for one in ast.walk(tree) if _gathers_all(one, name)]
                    if own.is_call(call) and gathers and not any(one in inside for one in gathers):
                        begins = f"{shown} only begins where {name} is awaited: a call of a coroutine function does "
                        task = (
                            f"{name}.append(asyncio.create_task({shown})) begins as soon as the loop awaits something."
                        )
                        return f"{begins}nothing by itself. {task}"
    return ""


def _gathers_all(node: ast.AST, name: str) -> bool:
    """Return whether this awaits all of a list of that name at once."""
    match node:
        case ast.Call(func=ast.Attribute(attr="gather"), args=[ast.Starred(value=kept)]):
            return ast.unparse(kept) == name
    return False


def in_tasks(source: str) -> str:
    """Return the name of a coroutine function that computes and is called for several tasks of a rank, side by side; an
    empty text where there is none.

    >>> body = "async def half(model):\\n    model.forward(0)\\nasync def zbv(model):\\n    "
    >>> in_tasks(body + "await asyncio.gather(half(model), half(model))")
    'half'
    >>> in_tasks(body + "await half(model)")
    ''
    """
    tree = parsed(source)
    own, verbs, computes = _Coroutines(tree), {*in_stream("compute")}, set[str]()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
    for _ in functions:  # as deep as they can call each other
        for one in functions:
            if any(own.is_call(node, computes) or _is_verb(node, verbs) for node in ast.walk(one)):
                computes.add(one.name)
    found = list[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="gather" | "create_task")):
                calls = [part for part in ast.walk(node) if part is not node and own.is_call(part, computes)]
                found += [ast.unparse(call.func) for call in calls if isinstance(call, ast.Call)]
                if any(isinstance(part, (ast.ListComp, ast.GeneratorExp)) for part in ast.walk(node)):
                    found *= 2  # one call for several tasks
    return found[0] if len(found) > 1 else ""


def stored_in_a_task(problem: str, fix: str, source: str) -> str:
    """Return a fix for a tensor that is not there, as a problem says, with where the program stores such tensors, if
    that is in a coroutine which it starts as a task; or the fix alone."""
    store = problem.removeprefix("nothing is stored in ").partition(" ")[0]
    own = _Coroutines(parsed(source if store != problem.partition(" ")[0] and "before that" in fix else ""))
    names = {store} | {name for name, given in assigned(own.tree) if getattr(given, "attr", "") == store}
    filled = {
        node.name for node in ast.walk(own.tree) if isinstance(node, ast.AsyncFunctionDef) and _fills(node, names)
    }
    for _ in range(2):  # also what awaits one that fills it
        calls = {
            node.name
            for node in ast.walk(own.tree)
            if isinstance(node, ast.AsyncFunctionDef)
            and any(isinstance(one, ast.Await) and own.is_call(one.value, filled) for one in ast.walk(node))
        }
        filled |= calls
    for call, how in own.tasks():
        if own.is_call(call, filled):
            begins = (
                "which may not be through here: a task begins only when the function that has made it awaits something"
            )
            first = f"await it before what it stores is read. Is that task made in every turn? Else {fix}"
            if how == "gather":
                begins = "which runs side by side with the others of its asyncio.gather"
                wait = "read it only once it is there, as with an asyncio.Event that is set after it is stored, and "
                first = f"{wait}awaited before this line. Else {fix}"
            return f"model.{store} is filled in {_shown(call)}, {begins}: {first}"
    return fix


def _fills(function: ast.AsyncFunctionDef, names: Set[str]) -> bool:
    """Return whether a function stores something in a dictionary of the model that has one of these names."""
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
    return any(last_name(node.value) in names for node in nodes)


def called_in_tasks(tree: ast.Module) -> set[str]:
    """Return the names of the coroutine functions and methods that a program starts as tasks."""
    return {last_name(call.func) for call, _ in _Coroutines(tree).tasks()}


def _is_verb(node: ast.AST, verbs: Set[str]) -> bool:
    """Return whether this is a call of a method with one of these names."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in verbs


# -- numbers of one size ----------------------------------------------------------------------------------------------


def written_out(puzzle: Puzzle, source: str = "", there: Size | None = None) -> str:
    """Return what is asked of a program that is good at its own size only, where a number of that size stands in its
    ``source``; nothing of numbers if that is not known, as all may be general. ``there``: a size
    at which it is not, if that is known; axes that are as long as each other there are not taken for each other."""
    size = puzzle.size
    own = {size["ranks"], size["layers"], size["batches"], *(size.get("mesh") or {}).values()}
    own |= {one // other for one in own for other in [*own, 2]} - {2}  # ``2 * model.RANKS`` stands in many a program
    own -= {STAGES} if four_stages.name in puzzle.ideas else set()  # a number that every size has there
    numbers = _numbers(source)
    counts = numbers - _factors(source)  # 6 * model.BATCHES are six pieces of work of each micro-batch
    some = {number for number in counts if size["ranks"] <= number < size["batches"]}  # of a micro-batch
    found = max(own & numbers, default=0) or max(some, default=0)
    if each := _numbers_of_ranks(source, size["ranks"]):
        return f" (are there numbers for these ranks, such as {each}, where model.rank and model.RANKS give them?)"
    axes_there = {1, 2} if there is None else {*(there.get("mesh") or {}).values()}
    several = len(size.get("mesh") or ()) > 1 < len(axes_there)
    if not found:
        by_axis = re.search(r"\baxis_size\b|\bmesh\b", source) is not None or not source
        return " (is the size of one axis taken where that of another is meant?)" * (several and by_axis)
    such = f", such as {found},"
    axes = ", or the size of one axis where another is" * several
    return f" (is there a number{such} where model.RANKS, model.LAYERS or model.BATCHES is meant{axes}?)"


def _numbers_of_ranks(source: str, ranks: int) -> str:
    """Return a list or tuple of as many different whole numbers as there are ranks, as it stands in a program; or an
    empty text."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) == ranks > 2:
            values = {one.value for one in node.elts if isinstance(one, ast.Constant) and type(one.value) is int}
            if len(values) == ranks:
                return ast.unparse(node)
    return ""


def no_share(puzzle: Puzzle, error: PuzzleError, source: str) -> str:
    """Return what to write in place of a share of the layers that is 0 at the puzzle's own size, as there are fewer
    layers than what they are divided by, in a program that hangs, or asks for one of no layers; or an empty text."""
    size = puzzle.size
    problem = str(getattr(error, "problem", ""))  # from a shell it comes as a plain PuzzleError
    stuck = problem.startswith("deadlock") or problem.endswith("index out of range")
    tree = parsed(source if stuck else "")
    known = {f"model.{name.upper()}": size[name] for name in ("ranks", "layers", "batches")}
    all_layers = {"model.LAYERS"}  # and what else stands for them
    for name, given in assigned(tree):
        if (value := _value(given, known)) is not None:
            known[name] = value
            all_layers |= {name} if ast.unparse(given) in all_layers else set()
    shares = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)]
    for node in shares:
        if ast.unparse(node.left) in all_layers and _value(node, known) == 0:
            would = f"{ast.unparse(node)} would be 0 here, {size['layers']} // {_value(node.right, known)}"
            stages = f"there are {STAGES} stages" if four_stages.name in puzzle.ideas else "there are fewer stages"
            return f"{would}: a stage has model.LAYERS // stages layers, and {stages}"
    return ""


def assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a program assigns, each with what it is given."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=given)) if len(names) == len(given):
                yield from ((ast.unparse(name), one) for name, one in zip(names, given, strict=True))
            case ast.Assign(targets=[name], value=one):
                yield ast.unparse(name), one


def _value(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """Return what a quotient or a product of known names and numbers is, if it is one."""
    match node:
        case ast.Constant(value=int() as value):
            return int(value)
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mult() as sign, right=right):
            one, other = _value(left, known), _value(right, known)
            if one is None or not other:
                return None
            return one // other if isinstance(sign, ast.FloorDiv) else one * other
    return known.get(ast.unparse(node))


def _factors(source: str) -> set[int]:
    """Return the whole numbers that something is multiplied by in a program."""
    products = [
        node for node in ast.walk(parsed(source)) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    ]
    sides = [side for node in products for side in (node.left, node.right)]
    return {side.value for side in sides if isinstance(side, ast.Constant) and type(side.value) is int}


def _numbers(source: str) -> set[int]:
    """Return the whole numbers from 2 up that stand in a program's source."""
    nodes = ast.walk(parsed(source))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is int} - {0, 1}


# -- conditions that are true for one layer only -----------------------------------------------------------------------


def one_layer_only(puzzle: Puzzle, size: Size, source: str) -> str:
    """Return what to write in place of a condition below which all forwards of a program stand, or all its backwards,
    and which is true for one layer of a stage only, at a ``size`` where stages have several, while they have one at the
    puzzle's own; or an empty text."""
    fours, in_a_row = four_stages.name in puzzle.ideas, own_layers.name in puzzle.ideas and not size.get("mesh")
    stages, home = (STAGES if fours else one["ranks"] for one in (size, puzzle.size))
    if not (fours or in_a_row) or size["layers"] <= stages or puzzle.size["layers"] != home:
        return ""
    tree = parsed(source)
    turns = {one.id for node in ast.walk(tree) if isinstance(node, ast.For) for one in _names_in(node.target)}
    for verb in (FORWARD.kind, BACKWARD.kind):
        found = [*_tests_above(tree, verb, turns, ())]
        if found and all(found):
            several = f"one layer of a stage only, and here a stage has {size['layers'] // stages}"
            whole = (
                "first <= layer <= last, where these are the first and the last of its model.LAYERS // stages layers"
            )
            return f"{found[0]} for {several}: run all of them, {whole}".replace(ABOVE, f"above model.{verb}")
    return ""


ABOVE = "above it"
Tests = tuple[tuple[str, str], ...]
"""Conditions that are true for one layer only: for each the name of the layer, and what is said of it."""


def _tests_above(node: ast.AST, verb: str, turns: Set[str], above: Tests) -> Iterator[str]:
    """Yield for each call ``model.verb`` in a tree the innermost condition above it that is true for one layer only, in
    words; an empty text where there is none. ``turns``: the names that loops set."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=called), args=[ast.Name(id=layer), *_]) if (
            called == verb
        ):
            yield next((said for name, said in reversed(above) if name == layer), "")
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=called)) if called == verb:
            yield ""
    for name, field in ast.iter_fields(node):
        below = above
        if name == "body" and isinstance(node, ast.If):
            below = (*above, *_of_one_layer(node.test, ast.Eq, turns))
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST):
                yield from _tests_above(child, verb, turns, below)
            if isinstance(child, ast.If) and isinstance(child.body[-1], ast.Continue) and not child.orelse:
                below = (*below, *_of_one_layer(child.test, ast.NotEq, turns))


def _of_one_layer(test: ast.expr, sign: type[ast.cmpop], turns: Set[str]) -> Tests:
    """Return the parts of a condition in which a layer is compared with a single other one."""
    joined = ast.And if sign is ast.Eq else ast.Or
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, joined) else [test]
    found = list[tuple[str, str]]()
    for part in parts:
        if not isinstance(part, ast.Compare) or not isinstance(part.ops[0], sign) or len(part.ops) > 1:
            continue
        for one, other in ((part.left, part.comparators[0]), (part.comparators[0], part.left)):
            plain = all(isinstance(each, PLAIN) for each in ast.walk(other)) and not isinstance(other, ast.Constant)
            if isinstance(one, ast.Name) and plain and not turns & {each.id for each in _names_in(other)}:
                said = f"`{ast.unparse(part)}` {ABOVE} is {'true' if sign is ast.Eq else 'false'}"
                found.append((one.id, said))
    return tuple(found)


def _names_in(tree: ast.AST) -> list[ast.Name]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name)]


PLAIN = ast.Name | ast.Attribute | ast.BinOp | ast.Constant | ast.operator | ast.expr_context
"""What stands in a sum or a product of names and numbers."""


# -- collectives below a condition of a rank ---------------------------------------------------------------------------

GATHERS = "gather it again"
"""What an error says of a gather without its name."""


def sums_later(fix: str, source: str) -> str:
    """Return that a sum of gradients which a fix asks for before an update stands in a program, and has not been
    reached; or the fix alone.

    >>> sums_later(f"{SUM_FIRST}: ...", "async def ddp(model):\\n    g = await model.allreduce(g, 0)")[:47]
    'model.allreduce(g, 0) stands in this program: l'
    """
    tree = parsed(source if fix.startswith(SUM_FIRST) else "")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_verb(node, {*SUMS})]
    if not calls:
        return fix
    first = _shown(min(calls, key=lambda node: node.lineno))
    return f"{first} stands in this program: let it come before this update, and update with what it gives. Else {fix}"


SUMS = ALLREDUCE.kind, SCATTERREDUCE.kind
SUM_FIRST = "add up the gradients of all ranks before the update"
"""How the fix begins for an update with a gradient that this rank has brought to no sum."""


def below_a_rank(fix: str, source: str) -> str:
    """Return that a collective which a fix asks for stands in a program below a condition of a rank, before that fix;
    or the fix alone."""
    known = "`if` of a rank" in fix or "condition above" in fix
    tree = parsed("" if known else source)
    for verb in in_stream("collective"):
        if f"model.{verb}(" in fix or (verb == ALLGATHER.kind and GATHERS in fix):
            for node in (one for one in ast.walk(tree) if isinstance(one, ast.If)):
                if _is_of_a_rank(node.test) and _calls(node.body, verb) and not _calls(node.orelse, verb):
                    below = f"a model.{verb}(...) stands below `if {ast.unparse(node.test)}`"
                    return f"{below}, and every rank of its group has to call it. Else {fix}"
    return fix


def _is_of_a_rank(test: ast.expr) -> bool:
    """Return whether a condition depends on the number of a rank."""
    names = {each.id for each in _names_in(test)} | {
        each.attr for each in ast.walk(test) if isinstance(each, ast.Attribute)
    }
    return "rank" in names


def _calls(body: Sequence[ast.stmt], verb: str) -> bool:
    """Return whether ``model.verb`` of all ranks is called in these statements."""
    nodes = [node for one in body for node in ast.walk(one) if isinstance(node, ast.Call)]
    found = [node for node in nodes if isinstance(node.func, ast.Attribute) and node.func.attr == verb]
    return any("axis" not in {word.arg for word in node.keywords} for node in found)


# -- one list or dictionary under several names ------------------------------------------------------------------------


def one_for_several(fix: str, source: str) -> str:
    """Return that one list or dictionary of a program has several names, before a fix; or the fix alone.

    >>> one_for_several("...", "inside = across = {}")[:60]
    'inside and across are one and the same here: `inside = acros'
    >>> one_for_several("...", "calls = [[]] * 3")[:60]
    'all entries of calls are one and the same here: `calls = [[]'
    >>> one_for_several("...", "inside, across = {}, {}"), one_for_several("...", "a = b = []\\na = [1]")
    ('...', '...')
    """
    tree = parsed(source)
    stored = [one.id for one in _names_in(tree) if isinstance(one.ctx, ast.Store)]
    for node in ast.walk(tree):
        names = [ast.unparse(one) for one in node.targets] if isinstance(node, ast.Assign) else []
        match node:
            case ast.Assign(targets=[_, _, *_], value=ast.Dict() | ast.List() | ast.Set()):
                several = f"{', '.join(names[:-1])} and {names[-1]}"
            case ast.Assign(value=ast.BinOp(left=ast.List(elts=[ast.Dict() | ast.List() | ast.Set()]), op=ast.Mult())):
                several = f"all entries of {names[0]}"
            case _:
                continue
        if any(stored.count(name) > 1 for name in names):
            continue
        shown = f"`{ast.unparse(node)}` makes one only, and what is stored in it under one name is there under all"
        return f"{several} are one and the same here: {shown}. Make one for each. Else {fix}"
    return fix


# -- what is not reached -----------------------------------------------------------------------------------------------


def not_reached(problem: str, source: str) -> str:
    """Return what to do about an operation that comes next, as a problem says, and that stands in a program, so that it
    was not reached; or an empty text."""
    tree = parsed(source)
    for verb in in_stream("compute"):
        calls = [node for node in ast.walk(tree) if _is_verb(node, {verb})]
        if calls and f"comes model.{verb}(" in problem:
            stands = f"model.{verb} stands in the program, and is not reached: "
            empty = "A list that is cleared is empty wherever it is kept; one that waits to be full may never be"
            return f"{stands}{_never_called(tree, calls) or f'is what the loop above it goes through empty? {empty}'}"
    return ""


def _never_called(tree: ast.Module, calls: Sequence[ast.AST], seen: Sequence[str] = ()) -> str:
    """Return that the function in which all of these calls stand is never called, or the one in which its own calls do;
    or an empty text."""
    around = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    inner = [[node for node in around if call in ast.walk(node)][-1:] for call in calls]  # those within come last
    if not inner or not all(inner) or len({node.name for [node] in inner}) > 1 or inner[0][0].name in seen:
        return ""
    [own] = inner[0]
    arguments = [one.arg for one in own.args.args if one.arg != "self"]
    if own in tree.body and len(arguments) == 1:
        return ""  # it may be the one that is graded
    named = [node for node in ast.walk(tree) if last_name(node) == own.name and isinstance(node, ast.expr)]
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and last_name(node.func) == own.name]
    alone = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and node.value in named]
    waits = "await " * isinstance(own, ast.AsyncFunctionDef)
    if alone and len(alone) == len(named):
        text = ast.unparse(alone[0])
        return f"`{text}` alone names a function and does not call it: {waits}{text}({', '.join(arguments)})"
    if not named:
        return (
            f"it is in {own.name}, which is never called: {waits}{own.name}({', '.join(arguments)}) where that is due"
        )
    return _never_called(tree, called, (*seen, own.name)) if len(called) == len(named) else ""
