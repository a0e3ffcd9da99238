"""Advice on errors that Python raises in a learner's code, such as names from other libraries and missing arguments."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from traceback import walk_tb
from types import TracebackType
from typing import Any

from ..basics.errors import is_learners
from ..learner.calls import Call
from ..learner.dist import Dist
from ..learner.model import Model, written
from ..learner.storage import Answers, Storage
from ..learner.tensors import Tensor
from ..record.kinds import KINDS
from ..record.table import OPERATIONS

ELSEWHERE = {
    "get_rank": "rank", "world_size": "RANKS", "get_world_size": "RANKS", "num_layers": "LAYERS", "n_layers": "LAYERS",
    "num_batches": "BATCHES", "micro_batches": "BATCHES", "optimizer": "opt_states", "grads": "grad_weights",
}  # fmt: skip
"""Names from other libraries for attributes of a model. (For operations, see the table of operations.)"""
ABSENT = {
    "barrier": "ranks wait for each other in a collective, or for a message",
    "broadcast": "one rank sends to the others with model.pass_to",
    "zero_grad": "a gradient is gone when it is taken out: model.grad_weights.pop(layer)",
    "wait": "await what a collective, pass_to or receive returns",
}
"""Names that a model does not have, and what to do instead."""
WRONG_TYPES = {
    "object method can't be used in 'await'": "a method is called with parentheses: await model.allreduce(v, layer)",
    **{f"object {one} can't be used in 'await'": "only what communicates is awaited: leave out await" for one in KINDS},
    "unsupported operand type(s) for /: 'WeightGrad'":
        "gradients are summed here, and the loss is already that of the whole batch: leave out the division",
    "'float' object cannot be interpreted as an integer":
        "of whole numbers // gives a whole number, / does not: model.LAYERS // model.RANKS",
}  # fmt: skip
"""How a TypeError begins, and what to write instead."""


def advice(error: BaseException) -> tuple[str, str]:
    """Return what is wrong and what to write instead, or empty texts where there is no advice."""
    if isinstance(error, AttributeError) and error.name is not None and not error.name.startswith("_"):
        return _attribute(error.obj, error.name)
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError) and error.name is not None:
        near = _near(error.name, _names_at(error.__traceback__))
        return "", f"did you mean {near}?" if near else ""
    if isinstance(error, TypeError) and (call := re.match(r"Model\.(\w+)\(\) (.*)", str(error))):
        return f"model.{call[1]}() {call[2]}", written(call[1])
    if isinstance(error, TypeError):
        return "", next((fix for begins, fix in WRONG_TYPES.items() if str(error).startswith(begins)), "")
    return "", ""


def _attribute(owner: object, name: str) -> tuple[str, str]:
    if isinstance(owner, Call):
        return f"{owner!r} has no {name} yet", "did you forget `await`?"
    called = _called(owner)
    if not called:
        return "", ""
    problem = f"{called} has no {name}"
    if isinstance(owner, Model) and name in ABSENT:
        return problem, ABSENT[name]
    known = [one for one in dir(owner) if not one.startswith("_")]
    near = _near(name, known)
    if isinstance(owner, Model):
        operations = {other: row.kind for row in OPERATIONS.values() for other in row.elsewhere}
        near = (ELSEWHERE | operations).get(name.lower(), near)
    if isinstance(owner, Storage) and not near:
        return f"{problem}: it is a dictionary", f"{called}[layer] = tensor"
    if callable(getattr(Model, near, None)) and isinstance(owner, Model):
        return problem, f"did you mean {written(near)}?"
    return problem, f"did you mean {called}.{near}?" if near else ""


def _called(owner: object) -> str:
    """Return a learner's name for an object of this library, or an empty text for another object."""
    if isinstance(owner, Storage):
        return f"model.{owner._name}"
    names = ((Model, "model"), (Dist, "model.dist"), (Answers, "model.final_weights"))
    kind = type(owner).__name__
    return next((name for known, name in names if isinstance(owner, known)), f"a {kind}" * isinstance(owner, Tensor))


def _near(name: str, known: Iterable[str]) -> str:
    """Return the most similar known name, ignoring case, or an empty text."""
    plain = {one.lower().replace("_", ""): one for one in known}
    found = get_close_matches(name.lower().replace("_", ""), plain, n=1, cutoff=0.8)
    return plain[found[0]] if found else ""


def _names_at(trace: TracebackType | None) -> list[str]:
    """Return the names that are visible where an error was raised."""
    names: dict[str, Any] = {}
    for frame, _ in walk_tb(trace):
        if is_learners(frame.f_code):
            names = {**frame.f_builtins, **frame.f_globals, **frame.f_locals}
    return [name for name in names if not name.startswith("_")]
