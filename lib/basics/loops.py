"""Calls in a learner's code, read from its text: one that names the next layer, and one that sends."""

from __future__ import annotations

import ast
import linecache
from types import FrameType

from .errors import learner_frame


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
