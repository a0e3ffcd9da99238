"""Loops over layers in a learner's code, read from its text: one that goes a layer too far, and a call that names the
next layer."""

from __future__ import annotations

import ast
import linecache
from itertools import islice
from types import FrameType

from .errors import learner_frame

CALLS = {"range": range, "reversed": reversed, "sorted": sorted, "list": list}
_PARTS = (ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Call, ast.operator, ast.unaryop, ast.Load)
_OF_LISTS = ("append", "pop", "get", "add", "remove", "index", "extend")
MOST = 1000  # numbers of a loop that are looked at
SHOWN = 6


def loop_beyond(layers: int) -> str:
    """Return through which layers the loop around the learner's line goes, and what to write, where a layer comes after
    the last one of so many; or an empty text."""
    frame = learner_frame()
    if frame is None:
        return ""
    for loop in _loops_around(frame):
        numbers = _numbers_of(loop.iter, frame)
        if layers in numbers and _is_of_layers(loop):
            return _one_too_high(numbers, layers)
    return ""


def counted_on(verb: str) -> tuple[str, str]:
    """Return how the learner's line names the layer in a call of a verb, as ``layer + 1``, and what is counted on from
    there, ``layer``; or empty texts where it names it otherwise."""
    frame = learner_frame()
    for call in _nodes_of(frame) if frame is not None else ():
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != verb:
            continue
        named = [one.value for one in call.keywords if one.arg == "layer"] + call.args[1:2]
        here = frame is not None and call.lineno <= frame.f_lineno <= (call.end_lineno or 0)
        if here and named and isinstance(named[0], ast.BinOp) and isinstance(named[0].right, ast.Constant):
            return ast.unparse(named[0]), ast.unparse(named[0].left)
    return "", ""


def sends_here() -> bool:
    """Return whether the learner's line sends a message."""
    frame = learner_frame()
    return frame is not None and "pass_to(" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)


def _nodes_of(frame: FrameType) -> list[ast.AST]:
    """Return all that is in the learner's text; nothing where it cannot be read."""
    try:
        return [*ast.walk(ast.parse("".join(linecache.getlines(frame.f_code.co_filename))))]
    except SyntaxError:
        return []


def _loops_around(frame: FrameType) -> list[ast.For]:
    """Return the loops around a line, the innermost first."""
    loops = [one for one in _nodes_of(frame) if isinstance(one, ast.For) and isinstance(one.target, ast.Name)]
    around = [one for one in loops if one.lineno <= frame.f_lineno <= (one.end_lineno or 0)]
    return sorted(around, key=lambda one: -one.lineno)


def _numbers_of(over: ast.expr, frame: FrameType) -> list[int]:
    """Return the numbers that a loop over ranges goes through; none where it goes over something else."""
    calls = [node.func for node in ast.walk(over) if isinstance(node, ast.Call)]
    plain = all(isinstance(call, ast.Name) and call.id in CALLS for call in calls) and calls
    if not plain or not all(isinstance(node, _PARTS) for node in ast.walk(over)):
        return []
    names = {**frame.f_globals, **frame.f_locals, **CALLS, "__builtins__": {}}
    try:
        return [*islice(eval(compile(ast.Expression(over), "", "eval"), names), MOST)]
    except Exception:  # of a learner's own names
        return []


def _is_of_layers(loop: ast.For) -> bool:
    """Return whether the number of a loop is the first argument of an operation in it: that is a layer."""
    assert isinstance(loop.target, ast.Name)
    calls = [one for one in ast.walk(loop) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)]
    of_models = [one for one in calls if one.func.attr not in _OF_LISTS and one.args]  # type: ignore[attr-defined]
    return any(isinstance(one.args[0], ast.Name) and one.args[0].id == loop.target.id for one in of_models)


def _one_too_high(numbers: list[int], layers: int) -> str:
    shown = ", ".join(map(str, numbers[:SHOWN])) + ", ..." * (len(numbers) > SHOWN)
    left = ", and layer 0 is left out" * (min(numbers) == 1)
    said = f"the loop goes through layers {shown}: there is no layer {layers}, model.LAYERS - 1 is the last{left}"
    down = numbers[0] > numbers[-1]
    if min(numbers) <= 1:
        return f"{said}: {'reversed(range(model.LAYERS))' if down else 'range(model.LAYERS)'}"
    return f"{said}: {'reversed(range(first, end))' if down else 'range(first, end)'} goes from " + (
        "end - 1 down to first" if down else "first up to end - 1"
    )
