"""Advice on errors that Python raises in a learner's code, such as names from other libraries and missing arguments."""

import re
from collections import defaultdict
from collections.abc import Iterable
from difflib import get_close_matches
from inspect import iscoroutine
from traceback import walk_tb
from types import TracebackType
from typing import Any

from ..basics.arguments import describe
from ..basics.assigned import Assigned, Unset
from ..basics.errors import is_learners, show_line
from ..learner.calls import Call
from ..learner.dist import Dist
from ..learner.model import Model, written
from ..learner.storage import Answers, Storage
from ..learner.tensors import Activation, Tensor
from ..record.kinds import KINDS
from ..record.table import OPERATIONS
from ..record.training import BACKWARD

ELSEWHERE = {
    "get_rank": "rank", "world_size": "RANKS", "get_world_size": "RANKS", "num_layers": "LAYERS", "n_layers": "LAYERS",
    "num_batches": "BATCHES", "micro_batches": "BATCHES", "optimizer": "opt_states", "grads": "grad_weights",
}  # fmt: skip
"""Names from other libraries for attributes of a model. (For operations, see the table of operations.)"""
ABSENT = {
    "barrier": "ranks wait for each other in a collective, or for a message",
    "broadcast": "one rank sends to the others with model.pass_to",
    "zero_grad": "a gradient is gone when it is taken out: model.grad_weights.pop(layer)",
    "new_group": "the ranks along an axis of the mesh are a group: axis=... in a collective",
    "wait": "await what a collective, pass_to or receive returns",
}
"""Names that a model does not have, and what to do instead."""
STEP = "model.update(layer, grad, weight, opt_state) does the optimizer step, with learning rate and all"
SUMMED = "gradients are summed here, and the loss is already that of the whole batch: leave out the {}"
OF_TENSORS = {
    BACKWARD.kind: "a tensor has no graph: {backward}, layer by layer, from the last one down to the first",
    "grad": "a tensor does not keep its gradient: {backward} gives it",
    "requires_grad": "all layers are trained: leave it out",
    "zero_": ABSENT["zero_grad"],
    "data": "a tensor has no numbers in it: leave it out",
    "item": "a tensor has no numbers in it: leave it out",
    "detach": "a tensor has no graph: leave it out",
    "clone": "an operation never changes its operands, so no copy is needed",
    "shape": "its size is tensor.memory(), in elements",
    "size": "its size is tensor.memory(), in elements",
    "numel": "its size is tensor.memory(), in elements",
    "mean": SUMMED.format("mean"),
    "div": SUMMED.format("division"),
    "mul": SUMMED.format("factor"),
    "sum": "gradients are added up by grad + other on a rank, and over ranks by await model.allreduce(grad, layer)",
    "to": "a tensor is on the rank that has made it: await model.pass_to(rank, tensor) sends it",
    "chunk": "piece i of n equal ones is tensor.shard(i, n)",
    "split": "piece i of n equal ones is tensor.shard(i, n)",
}
"""Names that a tensor of torch has and ours have not, and what to do instead."""
NAMES = {
    "Weight": "weight", "OptState": "opt_state", "WeightGrad": "grad", "ActivationGrad": "grad_in", "Activation": "out",
}  # fmt: skip
"""How programs call tensors of several kinds."""
A_TENSOR = "|".join(KINDS)
SIGNS = {"*": "multiplied", "/": "divided", "-": "subtracted", "+": "added", "//": "divided", "@": "multiplied"}
UNAWAITED = "did you forget `await`? A function with async def gives its result when it is awaited: await name(...)"
WRONG_TYPES = {
    r"object method can't be used in 'await'": "a method is called with parentheses: await model.allreduce(v, layer)",
    rf"object (?:{A_TENSOR}|tuple|list|int) can't be used in 'await'":
        "only what communicates is awaited, and once, and this has been awaited already or needs no await. If it is "
        "called in one turn to be awaited here in the next, leave out await where the call is made; if not, leave it "
        "out here",
    r"object NoneType can't be used in 'await'":
        "this is None, and only what communicates is awaited: make the call that gives it before, and where none is "
        "made yet, as in a loop's first turn, await nothing. If it was made, was its name set to None since?",
    r"'float' object cannot be interpreted as an integer":
        "of whole numbers // gives a whole number, / does not: model.LAYERS // model.RANKS",
    r".*(?:'coroutine'|not coroutine$|coroutine object)": UNAWAITED,
    r"'Storage' object is not callable": "a dictionary takes square brackets: model.weights[layer]",
    r"'bool' object is not callable": "model.is_host is a value and no method: if model.is_host, without ()",
    r"'int' object is not (?:callable|iterable)":
        "model.rank, model.RANKS, model.LAYERS and model.BATCHES are numbers: range(model.LAYERS) counts up to one",
    r"Value after \* must be an iterable, not NoneType":
        "what stands after * is None, as next(it, None) gives at the end: ask whether it is None before",
    r"unsupported operand type\(s\) for .*'NoneType'":
        "one of them is None: get(key) gives None where nothing is stored, and so does a function without return",
    r"unhashable type: '(?:list|set|dict)'": "a pair as key is written without brackets: model.activations[layer, mb]",
    rf"'(?:<|>|<=|>=)' not supported between .*'(?:{A_TENSOR})'":
        "tensors have labels and no numbers: compare grad.layer, or model.rank",
}  # fmt: skip
"""How a TypeError begins, and what to write instead."""


def advice(error: BaseException) -> tuple[str, str]:
    """Return what is wrong and what to write instead, or empty texts where there is no advice."""
    if isinstance(error, AttributeError) and error.name is not None and not error.name.startswith("_"):
        return _attribute(error.obj, error.name)
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError) and error.name is not None:
        near = _near(error.name, _names_at(error.__traceback__))
        made = f"{error.name} = ... before that: no line has given it a value yet{_maker(error.name, error)}"
        if not near:
            return "", made
        return "", f"did you mean {near}?" + f" If not: {made}" * ("_" in error.name)
    if isinstance(error, TypeError) and (call := re.match(r"Model\.(\w+)\(\) (.*)", str(error))):
        if "unexpected keyword argument 'keep'" in call[2]:
            kept = "keep=... is for forward, which then gives two things: out, saved = model.forward(..., keep=...)"
            return f"model.{call[1]}() {call[2]}", f"{kept}; backward takes the second one, saved=saved"
        if call[1] == "fake_grad":
            zero = (
                "model.fake_grad(layer, []) is the gradient of no micro-batches: it is zero, for a layer of other ranks"
            )
            return f"model.{call[1]}() {call[2]}", zero
        more = ", and anything more by its name: name=value" * ("positional arguments but" in call[2])
        none = "; a rank that has nothing to add brings model.fake_grad(layer, [])" * (call[1] == "fake_grad")
        return f"model.{call[1]}() {call[2]}", f"{written(call[1])}{more}{none}"
    if isinstance(error, TypeError):
        said = _of_tensors(str(error))
        return said or ("", next((fix for begins, fix in WRONG_TYPES.items() if re.match(begins, str(error))), ""))
    if isinstance(error, ValueError) and re.match(r"(?:not enough|too many) values to unpack", str(error)):
        fix = "as many names to the left of the = as there are results: load_weights, backward and update give two"
        return "", fix
    if isinstance(error, KeyError):
        asked = "was it put in on this rank, before that, and in each turn?"
        again = " And pop takes out what it gives, so a second time nothing is there"
        pops = f"{again}: does this run twice for it" if "pop(" in _line_of(error) else ""
        if (found := _dictionary_of(error)) is None:
            return "", f"nothing is in that dictionary under this key: {asked}{pops}{'?' * bool(pops)}"
        name, known = found
        has = f"keys {describe(known)}" if known else "nothing in it"
        pops += ", or once in the place of one of these?" if pops and known else "?" * bool(pops)
        return "", f"{name} has {has} here, and nothing under this key: {asked}{pops or again * (not known)}"
    if isinstance(error, IndexError) and str(error).startswith("pop from"):
        left = "nothing is left in it here: is something taken out once more than there is, or before it is put in?"
        return "", f"{left} If these are micro-batches, there are model.BATCHES of them: ask first whether one is left"
    if isinstance(error, IndexError):
        zero = "count from 0: the last of model.LAYERS layers is model.LAYERS - 1, and likewise for ranks"
        return "", _beyond_its_end(error) or zero
    if isinstance(error, StopIteration):
        fewer = "next(...) asks for one more than there is: at some sizes, and on some ranks, there are fewer"
        return "", f"{fewer}. Take no more than min(..., how many there are), or ask with next(..., None)"
    if isinstance(error, ZeroDivisionError):
        return (
            "",
            "a share is 0 at this size: there may be fewer layers or micro-batches than ranks, or a // is turned round",
        )
    if isinstance(error, UnboundLocalError):
        return "", _without_value(error)
    return "", ""


def _without_value(error: UnboundLocalError) -> str:
    """Return where a name of a function would get its value, which has none at a line that reads it."""
    name = found[1] if (found := re.search(r"'(\w+)'", str(error))) else ""
    unset = _unset(name, error)
    known = unset.assigned() if unset else []
    before, after = ([one for one in known if one.is_before is first] for first in (True, False))
    if known and not before:
        none = f"no line before this one gives {name} a value"
        if other := next((one for one in after if not one.reads_it), None):
            there = f"line {other.line} does, `{other.text}`, and it comes after"
            return f"{none}; {there}: let it stand above this line, or a line like it"
        return f"{none}: {name} = ... before that{_maker(name, error)}"
    below = [one for one in before if one.below]
    where = f", on line {below[-1].line} below `{below[-1].below}`" if below else ""
    some = f"it is assigned on some ranks or in some turns only{where}: assign it before, or use it only where it was; "
    some += "and if a collective gives it, every rank of the group calls that, below no `if` of a rank"
    if "grad" not in name:
        return some + _maker(name, error)
    zero = "; a rank that has not run the layer has model.fake_grad(layer, [])"
    return some + zero * any(_is_of_weight(one) for one in known)


def _is_of_weight(one: Assigned) -> bool:
    """Return whether a line gives a gradient of a weight, or a sum of them."""
    return re.search(r"\.(?:backward|backward_weight|allreduce|scatterreduce|fake_grad)\(", one.text) is not None


def _unset(name: str, error: BaseException) -> Unset | None:
    """Return what the text says of a name without a value; None where no line of a learner's raised the error."""
    lines = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__) if is_learners(frame.f_code)]
    return Unset(*lines[-1], name) if lines else None


def _maker(name: str, error: Exception) -> str:
    """Return what gives a learner what a name stands for, as the end of a sentence, or an empty text."""
    unset = _unset(name, error)
    reader = unset.read_by() if unset else ""
    sent = reader in ("pass_to", "alltoall") or reader.startswith(BACKWARD.kind)
    backward = written(BACKWARD.kind)
    kinds = {
        "of_weight": "a backward, as the first of two, gives it",
        "grad": f"model.loss(out) gives that of the last output, {backward}, as the second of two, of a layer's input"
        if sent
        else f"{backward} gives it, as the first of two",
        "weight": "model.load_weights(layer) gives it, and where that is a piece, await "
        "model.allgather(model.weights[layer], layer) gives it whole",
        "state": "model.load_weights(layer) gives both, weight and optimizer state",
        "out": "model.forward(layer, inp, weight) gives what a layer makes of its input, and of experts model.expert",
    }
    if re.search(rf"await {re.escape(name)}\b", _line_of(error)):
        return "; what is awaited is a call that communicates, such as model.allreduce(grad, layer), made before that"
    return next((f"; {gives}" for part, gives in kinds.items() if part in name.lower()), "")


def _of_tensors(said: str) -> tuple[str, str] | None:
    """Return what is wrong, and what to write instead, where Python says that a tensor cannot do something."""
    if found := re.match(r"unsupported operand type\(s\) for (\S+?)=?: '(\w+)' and '(\w+)'", said):
        sign, *sides = found.groups()
        kinds = [side for side in sides if side in KINDS]
        if not kinds:
            return None
        done = SIGNS.get(sign, f"used with {sign}")
        problem = f"there are no numbers in {_a(kinds[0])}, so it is not {done}"
        if done == "subtracted" and kinds == ["WeightGrad", "WeightGrad"]:
            return problem, "gradients are only added: sum each micro-batch once, and nothing has to be taken out again"
        if done == "subtracted" or (done == "multiplied" and len(kinds) > 1):
            return problem, STEP
        if kinds[0] == "WeightGrad" and done in ("multiplied", "divided"):
            what = SUMMED.format("division" if done == "divided" else "factor")
            return problem, f"{what}; {STEP}" if done == "multiplied" else what
        return problem, "only operations make new tensors: model.forward, model.loss, model.backward, model.update"
    if found := re.match(rf"cannot unpack non-iterable ({A_TENSOR}) object", said):
        fix = "one name to the left of the =: this gives one tensor; load_weights, backward and update give two"
        return f"{_a(found[1])} is one tensor, and not several", fix
    if found := re.match(rf"'({A_TENSOR})' object (?:is not|does not|doesn't) (\S+)", said):
        fix = "a tensor is used as a whole, or cut: tensor.shard(i, n); model.weights is a dictionary of tensors, and "
        fix += "model.weights[layer] is one of them"
        if found[1] == "WeightGrad" and found[2] == "iterable":
            fix = "this is one layer's gradient: grad = await model.allreduce(grad, layer) adds up those of all ranks"
        return f"{_a(found[1])} is no list and no function", fix
    if found := re.match(rf"(?:bad operand type for .*|object of type) '({A_TENSOR})'", said):
        return f"there are no numbers in {_a(found[1])}", STEP
    return None


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'AO' else 'a'} {kind}"


def _attribute(owner: object, name: str) -> tuple[str, str]:
    if isinstance(owner, Call):
        return f"{owner!r} has no {name} yet", "did you forget `await`?"
    if iscoroutine(owner):
        return f"{owner.__name__}(...) has no {name} yet", UNAWAITED
    if owner is None and name in dir(Activation):
        sent = "if it came from await model.receive(...), that rank has sent None: nothing was there to be sent"
        return "", f"this is None, and no tensor. get(key) gives None where nothing is stored; {sent}"
    called = _called(owner)
    if isinstance(owner, tuple) and owner and all(isinstance(one, Tensor) for one in owner):
        names = ", ".join(NAMES.get(type(one).__name__, type(one).__name__.lower()) for one in owner)
        return (
            f"this is a tuple of {len(owner)} tensors, and has no {name}",
            f"a name for each, in this order: {names} = ...",
        )
    if not called:
        return "", ""
    problem = f"{called} has no {name}"
    if isinstance(owner, Model) and name in ABSENT:
        return problem, ABSENT[name]
    if isinstance(owner, Tensor) and name in OF_TENSORS:
        return problem, OF_TENSORS[name].format(backward=written(BACKWARD.kind))
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
    return next((name for known, name in names if isinstance(owner, known)), _a(kind) * isinstance(owner, Tensor))


def _near(name: str, known: Iterable[str]) -> str:
    """Return the most similar known name, ignoring case, or an empty text."""
    plain = {one.lower().replace("_", ""): one for one in known}
    found = get_close_matches(name.lower().replace("_", ""), plain, n=1, cutoff=0.8)
    return plain[found[0]] if found else ""


def _is_of_lib(thing: object) -> bool:
    """Return whether this is one of the functions that a notebook imports: grade is not what is meant by grad."""
    return callable(thing) and str(getattr(thing, "__module__", "")).partition(".")[0] in ("lib", "drawing")


def _dictionary_of(error: KeyError) -> tuple[str, list[object]] | None:
    """Return the name and the keys of the dictionary of a learner's own that lacks a key, where the code that asked
    names one such dictionary only; else None."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if is_learners(frame.f_code)]
    if not frames or not error.args:
        return None
    frame, text = frames[-1], _line_of(error)
    known = {**frame.f_globals, **frame.f_locals}
    parts = {
        f"{name}.{part}": one
        for name, owner in frame.f_locals.items()
        if not isinstance(owner, Model)
        for part, one in getattr(owner, "__dict__", {}).items()
    }
    names = {name: one for name, one in {**known, **parts}.items() if type(one) in (dict, defaultdict)}
    found = [name for name, one in names.items() if re.search(rf"\b{re.escape(name)}\b", text) and _lacks(one, error)]
    return (found[0], list(names[found[0]])) if len(found) == 1 else None


def _beyond_its_end(error: IndexError) -> str:
    """Return how many entries a list of a learner's own has, where the line that asked names one such list only, and
    it is not as long as there are layers; or an empty text."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if is_learners(frame.f_code)]
    names = {**frames[-1].f_globals, **frames[-1].f_locals} if frames else {}
    lists = {name: one for name, one in names.items() if type(one) in (list, tuple, range)}
    text = _line_of(error)
    found = [name for name in lists if re.search(rf"\b{re.escape(name)}\[", text)]
    if len(found) != 1:
        return ""
    [name], number = found, len(lists[found[0]])
    layers = next((one.LAYERS for one in names.values() if isinstance(one, Model)), 0)
    if number == layers and re.search(rf"\b{re.escape(name)}\[[^\]]*\+ 1\]", text):
        outputs = "for outputs of layers, whose numbers go up to model.LAYERS, it takes LAYERS + 1: "
        own = "what is a layer's own, as the gradient of its weight, stands under the number of the layer"
        return f"{name} has LAYERS entries, 0 to {number - 1}; {outputs}[None] * (model.LAYERS + 1). Else {own}"
    if "LAYERS" in text:
        return ""
    if not number:
        return f"{name} has nothing in it here: is it filled on this rank, and at this size, before that?"
    entries = f"{name} has {number} {'entry' if number == 1 else 'entries'} here, and {name}[{number - 1}] is the last"
    if "assignment" in str(error):
        return (
            f"{entries}: make it as long as what is stored in it, or a dictionary, {name} = {{}}, which needs no length"
        )
    return f"{entries}. How many there are may depend on the size and on the rank: stop at min(..., len({name}))"


def _line_of(error: Exception) -> str:
    """Return the learner's own line that was the last to run before an error, or an empty text."""
    lines = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__) if is_learners(frame.f_code)]
    return show_line(*lines[-1]).partition(": ")[2] if lines else ""


def _lacks(known: dict[object, object], error: KeyError) -> bool:
    """Return whether a dictionary has no such key as an error names."""
    try:
        return error.args[0] not in known
    except Exception:  # a key of the learner's own that cannot be compared
        return False


def _names_at(trace: TracebackType | None) -> list[str]:
    """Return the names that are visible where an error was raised."""
    names: dict[str, Any] = {}
    for frame, _ in walk_tb(trace):
        if is_learners(frame.f_code):
            names = {**frame.f_builtins, **frame.f_globals, **frame.f_locals}
            names = {name: one for name, one in names.items() if not _is_of_lib(one)}
    return [name for name in names if not name.startswith("_")]
