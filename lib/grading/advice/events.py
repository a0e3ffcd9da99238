"""What the text of a program shows of its own events and futures, by which its tasks wait for each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from .sources import FUNCTIONS, assigned, called_in_tasks, last_name, parsed

MAKERS = frozenset({"Event", "Future", "create_future"})
SETS, ASKS = frozenset({"set", "set_result"}), frozenset({"wait", "is_set", "done", "result"})
WAITS_FOR_OWN = "a Future, an Event or a Queue of your own"
"""How the fix of a deadlock begins in which nobody waits for a call."""


EACH_OTHER = "they wait for each other"
"""How the fix of a deadlock goes on in which two tasks of a rank wait for what its own code does."""


class Use(NamedTuple):
    """A line at which an event is set, or awaited."""

    event: str  # its name, or that of the list or the dictionary that has it
    text: str  # the event, as it is written there
    call: str  # all that stands there
    function: str  # the innermost function around it
    loop: frozenset[str]  # the names that the loops around it set, in this function
    test: str  # the innermost condition above it, in this function
    line: int
    turns: str = ""  # the innermost loop around it, in this function, as it is written

    @property
    def another(self) -> str:
        """The event, with whatever index."""
        return f"{self.event}[...]" if self.text.endswith("]") else self.text


class _Events:
    """The events and futures of a program that it does nothing with but set them and wait for them."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        made = {name: given for name, given in _given(tree) if MAKERS & _called(given)}
        self.sets, self.waits, self.uses = list[Use](), list[Use](), dict[str, int]()
        for node in tree.body:
            self._look(node, Use("", "", "", "", frozenset(), "", 0), {*made})
        reads = [_name_read(node) for node in ast.walk(tree)]
        inside = [_name_read(node) for given in made.values() for node in ast.walk(given)]
        passed = [_name_read(one) for node in ast.walk(tree) if isinstance(node, ast.Call) for one in node.args]
        taken = {one.arg for node in ast.walk(tree) if isinstance(node, FUNCTIONS) for one in node.args.args}
        self.known = {
            name
            for name in made
            if reads.count(name)
            == self.uses.get(name, 0) + inside.count(name) + (passed.count(name) if name in taken else 0)
        }
        self.sets = [one for one in self.sets if one.event in self.known]
        self.waits = [one for one in self.waits if one.event in self.known]

    def _look(self, node: ast.AST, at: Use, made: set[str]) -> None:
        """Note what a part of the program does with events. ``at``: where it stands."""
        on = node
        match node:
            case ast.Await(value=ast.Call(func=ast.Attribute(value=on, attr="wait"))) | ast.Await(value=on):
                if _root(on) in made:
                    self.waits.append(_use(on, node, at))
            case ast.Call(func=ast.Attribute(value=on, attr=verb)) if verb in SETS and _root(on) in made:
                self.sets.append(_use(on, node, at))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                at = at._replace(function=name, loop=frozenset(), test="", turns="")
            case ast.For(target=target, iter=over):
                turns = f"for {ast.unparse(target)} in {ast.unparse(over)}"
                names = {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
                at = at._replace(loop=at.loop | names, turns=turns.replace("for (", "for ").replace(") in", " in"))
            case ast.If(test=test):
                at = at._replace(test=ast.unparse(test))
        match node:
            case ast.Call(func=ast.Attribute(value=on, attr=verb)) if verb in SETS | ASKS and _root(on) in made:
                self.uses[_root(on)] = self.uses.get(_root(on), 0) + 1
            case ast.Await(value=ast.Name() | ast.Attribute() | ast.Subscript() as on) if _root(on) in made:
                self.uses[_root(on)] = self.uses.get(_root(on), 0) + 1
        for child in ast.iter_child_nodes(node):
            self._look(child, at, made)


def _use(on: ast.expr, node: ast.expr, at: Use) -> Use:
    return at._replace(event=_root(on), text=ast.unparse(on), call=ast.unparse(node), line=node.lineno)


def _root(node: ast.expr) -> str:
    """Return the name of a variable, or of the list or the dictionary of which this is an item."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return last_name(node)


def _given(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the last names of what a program assigns, or adds to, each with what it is given."""
    yield from ((name.rpartition(".")[2], given) for name, given in assigned(tree))
    yield from ((_root(node.target), node.value) for node in ast.walk(tree) if isinstance(node, ast.AugAssign))


def _called(tree: ast.AST) -> set[str]:
    return {last_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def _name_read(node: ast.AST) -> str:
    return last_name(node) if isinstance(getattr(node, "ctx", None), ast.Load) else ""


def not_waited_for(problem: str, source: str) -> str:
    """Return which event a program sets after it has stored, in a task, what is not there, as a problem says, where
    nothing in it waits for that event; or an empty text.

    >>> task = "async def first(m):\\n    m.weights['w'] = 1\\n    there.set()\\n"
    >>> both = task + "async def ddp(m):\\n    there = asyncio.Event()\\n    await asyncio.gather(first(m), second(m))"
    >>> not_waited_for("nothing is stored in weights under 'w'", both)[:56]
    'there.set() in first() comes after what stores this, and'
    """
    store, _, key = problem.removeprefix("nothing is stored in ").partition(" under ")
    if not key:
        return ""
    tree = parsed(source)
    events, tasks = _Events(tree), called_in_tasks(tree)
    awaited = {one.event for one in events.waits}
    for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.name in tasks):
        stored = min((line for node in ast.walk(function) if (line := _stored_at(node, store, key))), default=0)
        own = [one for one in events.sets if one.function == function.name and one.line > stored > 0]
        if own and (first := min(own, key=lambda one: one.line)).event not in awaited:
            wait = first.another if "set_result" in first.call else f"{first.another}.wait()"
            after = f"{first.call} in {first.function}() comes after what stores this, and nothing in the program waits"
            return f"{after} for {first.event}: await {wait} before this line, with the index of what is read here"
    return ""


def _stored_at(node: ast.AST, store: str, key: str) -> int:
    """Return the line at which this stores something in a dictionary of the model, under a key that may be this one; or
    0."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr=attr), slice=index, ctx=ast.Store()) if attr == store:
            return node.lineno * (not isinstance(index, ast.Constant) or repr(index.value) == key)
    return 0


def never_set(problem: str, fix: str, source: str) -> str:
    """Return which event a program waits for in vain in a deadlock, as far as its text shows it; or the fix alone."""
    if not problem.startswith("deadlock"):
        return fix
    events = _Events(parsed(source))
    if said := _one_after_the_other(events):
        return said
    if not fix.startswith(WAITS_FOR_OWN):
        said, each_other, _ = fix.partition(EACH_OTHER)
        loops = _in_other_loops(events, said) if each_other else ""
        return f"{said}{each_other}. {loops}" if loops else fix
    causes = (_set_nowhere, _set_once, _set_below_a_condition)
    own = {wait: [one for one in events.sets if one.event == wait.event] for wait in events.waits}
    known = (cause(wait, sets) for cause in causes for wait, sets in own.items())
    return next(filter(None, known), "") or _each_by_its_index(events) or fix


def _one_after_the_other(events: _Events) -> str:
    """Return that a function waits for an event that only one sets which is awaited after it; or an empty text."""
    for body in (node.body for node in ast.walk(events.tree) if isinstance(node, FUNCTIONS)):
        awaits = [node.value for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Await)]
        calls = [node.value for node in awaits if isinstance(node.value, ast.Call)]
        for at, first in enumerate(calls):
            for second in calls[at + 1 :]:
                names = last_name(first.func), last_name(second.func)
                for wait in events.waits:
                    setters = {one.function for one in events.sets if one.event == wait.event}
                    if not wait.test and names[0] == wait.function != names[1] and setters == {names[1]}:
                        both = f"{ast.unparse(first)}, {ast.unparse(second)}"
                        said = f"{wait.call} in {names[0]}() waits for what only {names[1]}() sets, which begins when "
                        said += f"{names[0]}() is through: let both run side by side, await asyncio.gather({both}), "
                        return f"{said}in place of one await after the other"
    return ""


def _in_other_loops(events: _Events, said: str) -> str:
    """Return in which loops the events are awaited at which tasks stand, as far as that is ``said``, and in which other
    ones they are set, and not all below a condition; or an empty text."""
    known = list[str]()
    for wait in events.waits:
        sets = [one for one in events.sets if one.event == wait.event]
        turns, stands = [one.turns for one in sets], wait.call in said.replace('"', "'")
        if stands and wait.turns and all(turns) and wait.turns not in turns and not all(one.test for one in sets):
            where = " and ".join(f"`{one}`" for one in dict.fromkeys(turns))
            known.append(f"{wait.function}() waits for {wait.text} in `{wait.turns}`, and it is set in {where}")
    return (
        f"{'; '.join(known)}: is each one set on this rank that is waited for, and in the same order?" if known else ""
    )


def _set_nowhere(wait: Use, sets: list[Use]) -> str:
    if sets:
        return ""
    verb = ".set()" if wait.call.endswith(".wait()") else ".set_result(...)"
    said = f"{wait.function}() waits, {wait.call}, and nothing in the program calls {wait.another}{verb}"
    return f"{said}: do it where what it waits for is done"


def _set_once(wait: Use, sets: list[Use]) -> str:
    """Of events of which only one is set, where one is awaited in each turn of a loop."""
    index = {one.id for one in ast.walk(ast.parse(wait.text)) if isinstance(one, ast.Name)}
    if len(sets) != 1 or sets[0].loop or not index & wait.loop:
        return ""
    once = (
        f"{wait.function}() waits in each turn of a loop, {wait.call}, and {sets[0].call} in {sets[0].function}() is "
    )
    return f"{once}in no loop, so that it sets only one of them: set each of the others, too, where its turn comes"


def _set_below_a_condition(wait: Use, sets: list[Use]) -> str:
    if not all(one.test for one in sets) or len({one.test for one in sets}) != 1:
        return ""
    said = f"{wait.function}() waits, {wait.call}, and {sets[0].call} in {sets[0].function}() stands below "
    return f"{said}`if {sets[0].test}`: is that true for the one that is waited for, on the rank that waits?"


def _each_by_its_index(events: _Events) -> str:
    """Return by which index each event is awaited, and by which it is set, where these are written differently."""
    said = list[str]()
    for wait in events.waits:
        own = [one.text for one in events.sets if one.event == wait.event]
        if wait.text not in own:
            said.append(f"{wait.function}() waits for {wait.text}, and what is set is {' and '.join(own)}")
    return f"{'; '.join(dict.fromkeys(said))}: is each one set that is waited for, before that wait?" if said else ""
