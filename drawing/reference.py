"""The whole interface on one page, from the docstrings: what there is, what it costs, what it insists on."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, cast

from lib.basics.units import HIDDEN, LENGTH
from lib.course.specs import Puzzle, find, puzzles
from lib.grading.notebook import grade, hint, progress, solution
from lib.grading.progress import Progress
from lib.learner.model import Model
from lib.learner.tensors import Weight, WeightGrad
from lib.machine.cost import Cost
from lib.record.table import in_stream, operation, stream_of
from lib.running.run import run
from lib.study.sweep import sweep

from .attempts import draw_attempts
from .compare import compare
from .figure import page, write
from .outline import beside_target
from .picture import draw
from .player import play
from .primitives import draw_primitive, primitives
from .svg import escape
from .sweep import draw_sweep
from .tensors import draw_group

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
}
ALL = 'reference("all")'
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
    draw_group,
    draw_primitive,
)
TALK = ("collective", "message")
RANKS = 4
"""In the pictures of collectives: a number by which sizes can be divided."""
PRICES = "Prices: Cost(...), in ticks (_across: between nodes), and sizes in elements"
ROW = "display:flex;flex-wrap:wrap;gap:2px 14px;padding:4px 0"
CALL, SAYS = "flex:38 1 0;min-width:min(100%,270px)", "flex:62 1 0;min-width:min(100%,316px);margin:0"
"""How a call stands beside what it does: in columns that begin at the same place everywhere, as far as both have their
least widths, which makes 600 pixels with the gap, and else one below the other."""
GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,240px),1fr));gap:0 28px"
PRICE = "display:flex;justify-content:space-between;gap:10px;padding:2px 0"
PICTURE = "flex:1 1 560px;max-width:640px;min-width:0"
WRAPS = "white-space:pre-wrap;overflow-wrap:break-word"


SIZES = (
    f"Times are in ticks, sizes in elements. A weight has {HIDDEN * HIDDEN:,} elements, and so have its optimizer "
    f"state and its gradient; the activation of a micro-batch has {HIDDEN * LENGTH:,}. The five dictionaries weights, "
    "opt_states, activations, grad_activations and grad_weights are the memory of a rank; a tensor that is in none of "
    "them is gone after the next operation."
)
IN_NODES = f"Ranks may sit in nodes ({NODES}) and along the axes of a mesh, from puzzle 8 on."


Entries = dict[str, list[tuple[str, str]]]
"""Group by group, how each thing is written, and what it does."""


class Reference:
    """A page to look things up: shows itself in a notebook and as text, and can be saved. What puzzles after ``puzzle``
    are about comes apart, where one opens it."""

    def __init__(self, puzzle: Puzzle | None = None) -> None:
        self.puzzle = puzzle

    def entries(self, later: bool | None = None) -> Entries:
        """Return all there is, or only what is for the puzzle and those before it, or for ``later`` ones. What is for
        the puzzle comes without the parameters, sentences and prices that later ones are about."""
        words = re.compile("|".join(self._later_words()) or "$.") if later is False else None
        verbs = {"Operations": (*in_stream("compute"), "set_final_weight"), "Communication": in_stream(*TALK)}
        wanted = {
            group: [name for name in names if later is None or self._is_later(name) == later]
            for group, names in (MODEL | verbs | {TENSORS: PIECES}).items()
        }
        found = {
            group: [(_piece if group == TENSORS else _method)(name, words) for name in names]
            for group, names in wanted.items()
            if names
        }
        if not later:
            found["Running, grading, drawing"] = [
                (_written(f.__name__, f, own), _says(f, own))
                for f in FUNCTIONS
                for own in (words if f in (run, sweep) else None,)
            ]
            prices = [(field.name, Cost().price(field.name)) for field in fields(Cost)]
            found[PRICES] = [
                (name, f"{float(price):,.10g}")
                for name, price in prices
                if price is not None and not (words and words.search(name))
            ]
        return found

    def rest(self) -> Entries:
        """Return what is not shown of all there is, or not all of which is."""
        shown = {row for rows in self.entries(later=False).values() for row in rows}
        rest = {group: [row for row in rows if row not in shown] for group, rows in self.entries().items()}
        return {group: rows for group, rows in rest.items() if rows}

    def _reached(self) -> int:
        """Return the number of the puzzle up to which one has come, which of a program to be repaired is one before."""
        assert self.puzzle is not None
        number = self.puzzle.comes_after if self.puzzle.repair else self.puzzle.number
        return int(number or 0)

    def _later_words(self) -> list[str]:
        """Return the patterns of the words that later puzzles are about."""
        if self.puzzle is None:
            return []
        return [words for name, words in WORDS.items() if int(find(name).number) > self._reached()]

    def _is_later(self, name: str) -> bool:
        """Return whether a name is the subject of a puzzle after this one. What only looks at a rank is no subject."""
        groups: list[tuple[str, ...]] = [(verb,) for verb in in_stream("compute", *TALK)] + [CUTS]
        groups += [names for group, names in MODEL.items() if "puzzle" in group]
        own = next((names for names in groups if name in names), ())
        taught = [int(puzzle.number) for puzzle in puzzles().values() if {*own} & {*puzzle.teaches}]
        return self.puzzle is not None and bool(taught) and taught[0] > self._reached()

    def __str__(self) -> str:
        lines = [self._sizes()]
        for group, entries in self.entries(later=False).items():
            lines += ["", group, *(f"  {written}\n      {says}" for written, says in entries)]
        rest = sum(map(len, self.rest().values()))
        more = f"\n{rest} more, or more of these, are for later puzzles: {ALL} has them all"
        return "\n".join([*lines, *([more] if rest else [])])

    def __repr__(self) -> str:
        return "reference(): the whole interface on one page; print it, show it in a notebook, or save it as .html"

    def _repr_html_(self) -> str:
        here = self.entries(later=False)
        rest = self._html(self.rest(), drawn=_drawn(here))
        more = (
            f'<details><summary style="margin:14px 0">All of it: what later puzzles are about</summary>{rest}</details>'
        )
        return f"<p>{escape(self._sizes())}</p>" + self._html(here) + (more if rest else "")

    def _sizes(self) -> str:
        words = "|".join(self._later_words())
        return SIZES if words and re.search(words, IN_NODES) else f"{SIZES} {IN_NODES}"

    def _html(self, groups: Entries, drawn: Sequence[str] = ()) -> str:
        """Return groups of entries as HTML, the collectives with their pictures, except for those ``drawn`` before."""
        parts = []
        for group, entries in groups.items():
            how, call, says = (PRICE, "", "margin:0") if group == PRICES else (ROW, CALL, SAYS)
            rows = (
                f'<div style="{how}"><dt style="{call};{WRAPS};font-weight:normal"><code>{escape(written)}</code></dt>'
                f'<dd style="{says}">{escape(said)}</dd></div>'
                for written, said in entries
            )
            parts.append(f'<p style="font-weight:bold;margin:14px 0 2px">{escape(group)}</p>')
            parts.append(f'<dl style="margin:0;{GRID if group == PRICES else ""}">{"".join(rows)}</dl>')
            if group == "Communication":
                shown = [kind for kind in _drawn({group: entries}) if kind not in drawn]
                pictures = (draw_primitive(kind, ranks=RANKS) for kind in shown)
                cells = (f'<div style="{PICTURE}">{picture._repr_html_()}</div>' for picture in pictures)
                parts.append(f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(cells)}</div>')
        return "".join(parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.html`` page. Raise PuzzleError if it cannot be written."""
        write(path, {".html": lambda: page("LLM training puzzles: reference", self._repr_html_(), titled=False)})


def reference(puzzle: str | None = None) -> Reference:
    """Return the interface on one page: operations, what they cost and insist on, and what collectives do. First comes
    what is needed up to a puzzle, and all the rest is one click away.

    ``puzzle``: by default the one after the last that you have solved; ``"all"`` for everything at once. Raises
    PuzzleError for an unknown puzzle.
    """
    if puzzle == "all":
        return Reference()
    course = [one for one in puzzles().values() if not one.repair]
    solved = [at for at, one in enumerate(course) if one.name in Progress().solved]
    due = course[min(max(solved, default=-1) + 1, len(course) - 1)]
    return Reference(due if puzzle is None else find(getattr(puzzle, "__name__", puzzle)))


def _drawn(groups: Entries) -> list[str]:
    """Return the collectives among these entries, of which there are pictures."""
    written = [written for entries in groups.values() for written, _ in entries]
    return [kind for kind in primitives() if any(f".{kind}(" in one for one in written)]


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
