"""The rows of drawing/reference.json: the whole interface from its docstrings, for every puzzle what it needs of it."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, cast

from drawing import beside_target, compare, draw, draw_attempts, draw_group, draw_primitive, draw_sweep, holds, play
from lib import grade, hint, progress, run, solution, sweep
from lib.basics.units import HIDDEN, LENGTH
from lib.course.specs import find, puzzles
from lib.learner.model import Model
from lib.learner.tensors import Weight, WeightGrad
from lib.machine.cost import Cost
from lib.record.table import in_stream, operation, stream_of

MODEL: dict[str, tuple[str, ...]] = {
    "What a rank knows about itself": ("rank", "RANKS", "LAYERS", "BATCHES", "time", "log"),
    "Where tensors come from": ("load_weights", "get_activation", "fake_grad"),
    "Operations": (),
    "Communication": (),
    "Looking at a rank": ("memory", "status", "storage", "lines", "check"),
    "Mesh, from puzzle 8 on": ("axis_index", "axis_size", "rank_at"),
    "Hosts, in puzzle 22": ("is_host", "host", "devices"),
    "Adapters, in puzzle 23": ("load_adapter",),
    "Layers with experts, in puzzle 27": ("experts",),
    "Tokens, in puzzle 33": ("tokens",),
    "Where sends wait, in puzzle 36: run(..., links=...)": ("exchange",),
}
CUTS = ("shard", "combine")
"""What is done with tensors, and taught by a puzzle."""
TENSORS = "Tensors"
PIECES = ("__add__", "shard", "combine", "memory", "is_complete")
"""What a tensor can do."""
WORDS: dict[str, str] = {
    "ddp": r"\ball-reduce\b|^(collective|allreduce|send|receive)$",
    "wsdp": r"^(shard|total)$|\bWith shard and total\b|^Each piece\b",
    "replica_fsdp": r"\baxis\b|\bmesh\b|\bnode_size\b|_across\b|\brepresent\b",
    "checkpointing": r"^keep$|\bkeep=|\b[sS]aved\b|^saved_|^recompute",
    "zero_bubble": r"\bbackward_(input|weight)\b",
    "tensor_parallel": r"\bpartial\b",
    "sequence_parallel": r"\bslices?\b",
    "buckets": r"\bthe list of their layers\b",
    "offload": r"\b[hH]osts?\b|^host_",
    "lora": r"\badapters?\b|^adapter_|^train$|^train:",
    "context_parallel": r"\bsliced\b|^(backward_)?(project|attend|rest)$|^keys_values_|^attended_",
    "expert_parallel": r"\bexperts?\b",
    "dualpipe": r"\boverlapped\b",
    "token_mean": r"^tokens$|\btokens=",
    "muon": r"\bmuon\b|\borthogonalize\b",
    "sends_that_wait": r"\blinks\b",
}
"""The puzzles that are about some of the parameters, prices and sentences of what there is before, and these."""
NODES = "node_size"
CROSSES = re.compile(r" \([^()]* between nodes\)")
"""What a price of an operation adds for nodes."""
ALLOWED = "Only some puzzles allow "
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    run,
    grade,
    hint,
    progress,
    solution,
    draw,
    compare,
    beside_target,
    draw_attempts,
    sweep,
    draw_sweep,
    play,
    holds,
    draw_group,
    draw_primitive,
)
TALK = ("collective", "message")
PRICES = "Prices: Cost(...), in ticks (_across: between nodes), and sizes in elements"
SIZES = (
    f"Times are in ticks, sizes in elements. A weight has {HIDDEN * HIDDEN:,} elements, and so have its optimizer "
    f"state and its gradient; the activation of a micro-batch has {HIDDEN * LENGTH:,}. The five dictionaries weights, "
    "opt_states, activations, grad_activations and grad_weights are the memory of a rank; a tensor that is in none of "
    "them is gone after the next operation."
)
IN_NODES = f"Ranks may sit in nodes ({NODES}) and along the axes of a mesh, from puzzle 8 on."


def table_of_reference() -> str:
    """The table: a line for each thing as some puzzles show it, with its group, how it is written, what it does, and
    the first and the last number of these puzzles."""
    last = max(int(puzzle.number) for puzzle in puzzles().values() if not puzzle.repair)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in _rows(last))
    return f"[\n{lines}\n]\n"


def _rows(last: int) -> Iterator[tuple[str, str, str, int, int]]:
    shown = [_shown(number) for number in range(last + 1)]
    for group, name in shown[-1]:
        first = 0
        for number in range(last + 1):
            own, after = (shown[at].get((group, name)) if at <= last else None for at in (number, number + 1))
            if own != after:
                if own is not None:
                    yield group, *own, first, number
                first = number + 1


def _shown(number: int) -> Mapping[tuple[str, str], tuple[str, str]]:
    """How each thing is written and what it does, by its group and its name: what is for the puzzle of that number and
    those before, without the parameters, sentences and prices that later ones are about."""
    later = "|".join(words for name, words in WORDS.items() if int(find(name).number) > number)
    words = re.compile(later) if later else None
    found = {("", "sizes"): (SIZES, "")}
    if not (words and words.search(IN_NODES)):
        found["", "nodes"] = (IN_NODES, "")
    verbs = {"Operations": (*in_stream("compute"), "set_final_weight"), "Communication": in_stream(*TALK)}
    for group, names in (MODEL | verbs | {TENSORS: PIECES}).items():
        for name in names:
            if not _is_later(name, number):
                found[group, name] = (_piece if group == TENSORS else _method)(name, words)
    for function in FUNCTIONS:
        own = words if function in (run, sweep) else None
        found["Running, grading, drawing", function.__name__] = (
            _written(function.__name__, function, own),
            _says(function, own),
        )
    for field in fields(Cost):
        price = Cost().price(field.name)
        if price is not None and not (words and words.search(field.name)):
            found[PRICES, field.name] = (field.name, f"{float(price):,.10g}")
    return found


def _is_later(name: str, number: int) -> bool:
    """Whether a name is the subject of a puzzle after that number, or of none yet. What only looks at a rank is no
    subject."""
    groups: list[tuple[str, ...]] = [(verb,) for verb in in_stream("compute", *TALK)] + [CUTS]
    groups += [names for group, names in MODEL.items() if "puzzle" in group]
    own = next((names for names in groups if name in names), ())
    taught = [int(puzzle.number) for puzzle in puzzles().values() if {*own} & {*puzzle.teaches}]
    if not taught and len(own) and own in MODEL.values():
        taught = [max(int(puzzle.number) for puzzle in puzzles().values() if not puzzle.repair)]
    return bool(taught) and taught[0] > number


def _method(name: str, later: re.Pattern[str] | None = None) -> tuple[str, str]:
    """Return how a method of Model is written, or what an operation has in place of one, and what it does, without the
    parameters and sentences with words of ``later`` puzzles."""
    owner = "Model" if isinstance(Model.__dict__.get(name), staticmethod) else "model"
    verb = getattr(Model, name, None) or partial(cast(Any, operation(name).verb), None)
    return _written(f"{owner}.{name}", verb, later), _says(verb, later)


def _piece(name: str, later: re.Pattern[str] | None = None) -> tuple[str, str]:
    """Return the same of a method of tensors."""
    if name == "__add__":
        return "grad + other_grad", _says(WeightGrad.__add__, later)
    method = getattr(Weight, name)
    return _written(f"tensor.{name}", method, later), _says(method, later)


def _written(name: str, thing: Any, later: re.Pattern[str] | None = None) -> str:
    """Return a call as one writes it, with the names of its parameters and their defaults."""
    if isinstance(thing, property):
        return name
    parameters = [
        p for p in inspect.signature(thing).parameters.values() if p.name not in ("self", "model") and p.name[0] != "_"
    ]
    # A default that is a function has no short name.
    shown = [
        f"{p.name}=..." if inspect.isfunction(p.default) else str(p.replace(annotation=p.empty))
        for p in parameters
        if not (later and later.search(p.name))
    ]
    awaited = "await " if stream_of(name.removeprefix("model.")) in TALK else ""
    return f"{awaited}{name}({', '.join(shown)})"


def _says(thing: Any, later: re.Pattern[str] | None = None) -> str:
    """Return what a docstring says, without its example."""
    said = (inspect.getdoc(thing) or "").split("\n\nExample, ")[0].replace("``", "")
    paragraphs = [" ".join(one.split()) for one in said.split("\n\n")]
    return " ".join(filter(None, [_up_to(one, later) for one in paragraphs] if later else paragraphs))


def _up_to(paragraph: str, later: re.Pattern[str]) -> str:
    """Return a paragraph without the sentences that have words of later puzzles, or nothing if it begins with one."""
    if later.search(NODES):
        paragraph = CROSSES.sub("", paragraph)
    sentences = re.split(r"(?<=\.) (?=\S)", paragraph)
    if later.search(sentences[0]):
        return ""
    kept = [one for one in sentences if not later.search(one)]
    if kept != sentences and not any("=True" in one or '="' in one for one in kept):
        kept = [one for one in kept if not one.startswith(ALLOWED)]
    return " ".join(kept).replace("allow these three", "allow that" if kept != sentences else "allow these three")
