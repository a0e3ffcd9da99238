"""A definition of a program as text: where each of its expressions and statements stands, and what is around it."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
NAME = re.compile(r"[A-Za-z_]\w*")
Definition = Function | ast.ClassDef
SIZES = ("RANKS", "LAYERS", "BATCHES")
PEER = "peer"  # the role of the rank to which a message goes, or from which it comes


class Text:
    """The text of a program, and one definition ``top`` in it, beside its ``others``."""

    def __init__(self, source: bytes, top: Definition, others: Sequence[Definition] = ()) -> None:
        self.source, self.top, self.others = source, top, others
        self.lines = [0]  # the byte at which each line begins
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.parents = {child: node for node in ast.walk(top) for child in ast.iter_child_nodes(node)}
        self.all_roles = dict(_roles(top))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the bytes at which an expression or a statement begins and ends."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return how an expression or a statement is written."""
        start, end = self.span(node)
        return self.source[start:end].decode()

    def replaced(self, whole: ast.expr | ast.stmt, parts: Iterable[ast.expr], new: str) -> str:
        """Return how an expression or a statement is written with something else in place of these parts of it."""
        (at, end), written = self.span(whole), b""
        for start, stop in sorted(map(self.span, parts)):
            written, at = written + self.source[at:start] + new.encode(), stop
        return (written + self.source[at:end]).decode()

    def rows(self, first: ast.stmt, last: ast.stmt | None = None) -> tuple[int, int]:
        """Return the bytes at which the lines of a statement, or from one to another, begin and end."""
        end = (last or first).end_lineno
        assert end is not None
        return self.lines[first.lineno - 1], self.lines[end]

    def shifted(self, statements: Sequence[ast.stmt], by: int) -> str:
        """Return the lines of statements, moved to the right or to the left."""
        start, end = self.rows(statements[0], statements[-1])
        rows = self.source[start:end].decode().splitlines(keepends=True)
        return "".join(" " * by + row if by > 0 else row[min(-by, len(row) - len(row.lstrip(" "))) :] for row in rows)

    def named(self, statement: ast.stmt) -> str:
        """Return the words that name a statement: its lines, and how it begins."""
        first = self.of(statement).partition("\n")[0]
        if hasattr(statement, "body"):
            return f"line {statement.lineno}, `{first}` with what is below it"
        last = statement.end_lineno or statement.lineno
        which = f"line {last}" if last == statement.lineno else f"lines {statement.lineno} to {last}"
        return f"{which}, `{first}`"

    def function(self, node: ast.AST) -> Function | None:
        """Return the innermost function around an expression or a statement."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, FUNCTIONS):
                return node
        return None

    # -- what stands in the same place elsewhere ------------------------------------------------------

    @cached_property
    def keys(self) -> dict[str, list[str]]:
        """The keys under which each dictionary of a model is used, as text."""
        keys: dict[str, dict[str, None]] = {}
        for node in ast.walk(self.top):
            match node:
                case ast.Subscript(value=ast.Attribute(attr=store), slice=key):
                    keys.setdefault(store, {})[self.of(key)] = None
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=store), attr="pop"), args=[key, *_]):
                    keys.setdefault(store, {})[self.of(key)] = None
        return {store: [*texts] for store, texts in keys.items()}

    def keys_at(self, node: ast.expr, store: str) -> list[str]:
        """Return those of them that may be meant here: not with the name of a loop that is over."""
        around, own, at = set[str](), self.function(node), self.parents.get(node)
        while at is not None and at is not own:
            around, at = around | _turns(at), self.parents.get(at)
        over = {name for one in ast.walk(own) for name in _turns(one)} - around if own is not None else set[str]()
        return [key for key in self.keys.get(store, ()) if not {*NAME.findall(key)} & over]

    def is_coroutine(self, node: ast.expr) -> bool:
        """Return whether this is a call of a coroutine function or method of the program."""
        all_of_it = [one for top in (self.top, *self.others) for one in ast.walk(top)]
        names = {one.name for one in all_of_it if isinstance(one, ast.AsyncFunctionDef)}
        return isinstance(node, ast.Call) and called(node) in names

    def role(self, node: ast.expr) -> object:
        """Return what an expression is there for, or None."""
        return self.all_roles.get(node)

    @cached_property
    def roles(self) -> dict[object, list[str]]:
        """What is written in each role: as the condition, say, or as the second argument of ``forward``."""
        roles: dict[object, dict[str, None]] = {}
        for node, role in self.all_roles.items():
            roles.setdefault(role, {})[self.of(node)] = None
        return {role: [*texts] for role, texts in roles.items()}

    def counted_at(self, node: ast.AST) -> set[str]:
        """Return the names with which the loops around an expression count."""
        found = set[str]()
        while node in self.parents:
            node = self.parents[node]
            generators = getattr(node, "generators", [node] if isinstance(node, ast.For) else [])
            found |= {name for one in generators for name in self.names_in(one.target)}
        return found

    @staticmethod
    def names_in(node: ast.AST) -> set[str]:
        """Return the names in an expression."""
        return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}

    @cached_property
    def sizes(self) -> dict[str, str]:
        """The names that stand for a size of the model in this program, with the name of that size."""
        given = (value for value in self.all_roles.items() if isinstance(value[0], ast.Attribute))
        return {str(name): value.attr for value, name in given if value.attr in SIZES and isinstance(name, str)}  # type: ignore[attr-defined]

    def named_sizes(self, size: str) -> list[str]:
        """Return how a size of the model is written in this program: by its names, and as it is."""
        named = [name for name, own in self.sizes.items() if own == size]
        models = {self.of(one.value) for one in self._attributes if one.attr in SIZES}
        return [*named, *sorted(f"{model}.{size}" for model in models)]

    @cached_property
    def own_ranks(self) -> list[str]:
        """How the number of a rank is written in this program."""
        return sorted({self.of(one) for one in self._attributes if one.attr == "rank"})

    @cached_property
    def _attributes(self) -> list[ast.Attribute]:
        return [node for node in ast.walk(self.top) if isinstance(node, ast.Attribute)]

    @cached_property
    def peers(self) -> set[object]:
        """The roles of what names the rank of a message: the role itself, and the names that are given there."""
        return {PEER, *(name.rpartition(".")[2] for name in self.roles.get(PEER, ()))}

    @cached_property
    def methods(self) -> set[ast.stmt]:
        """All that the classes of a program define."""
        classes = (node for one in (self.top, *self.others) for node in ast.walk(one) if isinstance(node, ast.ClassDef))
        return {statement for one in classes for statement in one.body}

    @cached_property
    def coroutines(self) -> set[str]:
        """The names of the functions and methods of a program whose calls are awaited."""
        every = (node for one in (self.top, *self.others) for node in ast.walk(one))
        return {node.name for node in every if isinstance(node, ast.AsyncFunctionDef)}

    @cached_property
    def uncalled(self) -> list[Function]:
        """The functions and methods of a program that nobody names."""
        all_of_it = [node for one in (self.top, *self.others) for node in ast.walk(one)]
        named = {last_name(node) for node in all_of_it if isinstance(node, (ast.Name, ast.Attribute))}
        inner = [node for node in all_of_it if isinstance(node, FUNCTIONS) and node not in (self.top, *self.others)]
        return [one for one in inner if one.name not in named and not one.name.startswith("__")]


def _turns(node: ast.AST) -> set[str]:
    """Return the names that a loop sets."""
    return (
        {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)} if isinstance(node, ast.For) else set()
    )


def whole_statements(source: bytes, lines: set[int]) -> set[int]:
    """Return all lines of the statements of which some are among these, of those with a body only the lines before."""
    found = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", [])
            own = {*range(node.lineno, body[0].lineno if body else (node.end_lineno or node.lineno) + 1), node.lineno}
            found |= set() if own.isdisjoint(lines) else own
    return found


def _roles(top: ast.AST) -> Iterator[tuple[ast.expr, object]]:
    """Yield expressions that may be taken for others, each with what it is there for."""
    for node in ast.walk(top):
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield test, "condition"
            case ast.BoolOp(values=values):
                yield from ((value, "condition") for value in values)
            case ast.For(iter=one) | ast.comprehension(iter=one):
                yield one, "loop"
            case ast.Call(args=arguments, keywords=keywords):
                name = called(node)
                given = [*enumerate(arguments), *((keyword.arg, keyword.value) for keyword in keywords)]
                peer = {"pass_to": 0, "receive": "src"}.get(name)
                yield from ((value, PEER if at == peer else (name, at)) for at, value in given)
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
                yield value, last_name(target)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                yield from ((v, last_name(n)) for n, v in zip(names, values, strict=True) if last_name(n))


@lru_cache(maxsize=32)
def of_loops(function: Function) -> set[str]:
    """Return the names with which the loops of a function count, and that are given nothing else in it."""
    loops = [one.target for one in ast.walk(function) if isinstance(one, (ast.For, ast.comprehension))]
    names = [one for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    in_loops = {one for target in loops for one in ast.walk(target)}
    others = {one.id for one in names if one not in in_loops} | {one.arg for one in function.args.args}
    return {one.id for one in names if one in in_loops} - others


def called(node: ast.Call) -> str:
    """Return the last name of what is called."""
    return last_name(node.func)


def last_name(node: ast.expr) -> str:
    """Return a name, or what stands behind its last dot."""
    return str(getattr(node, "attr", getattr(node, "id", "")))
