"""The figures in texts. Each is computed by the build, from runs and names that the page itself gives.

The last cell of a source, tagged ``figures``, gives names: to runs (``halves = run(...)``), to what is published or
assumed (``gpus = published(16_384, "arXiv 2407.21783")``), and to what follows from these. A text has an expression of
such names between double braces, and after a colon how to write it: ``{{halves.time}} ticks, {{idle:percent}}``.

- Without a way of writing, a number stands as it is, exactly, with commas. One with more than three decimals is refused.
- ``percent`` and ``%`` write a share, ``word`` a small number or fraction in letters, and any of Python's formats, such
  as ``.1f``, the rounded number.
- ``=`` writes the whole sum, with numbers for names: ``{{batches * 2 + 1:=}}`` is ``8 x 2 + 1 = 17``. Python's format
  may follow: ``{{bytes / speed:=.1f}}``.

A figure that a text gives in any other way fails the build, so that no page contradicts a run. The exceptions are names
("puzzle 4", "layer 0", "H100"), code, the size of the puzzle, and numbers up to two without a unit.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import lib
from lib import Cost, PuzzleError, RingCost, Run
from lib.basics.units import exact
from lib.course.bounds import bounds_of
from lib.course.ideas import IDEAS
from lib.course.specs import Puzzle, cost_named
from lib.engines.torch_order import TORCH
from lib.record.figures.breakdown import idle_of, time_parts
from lib.record.kinds import MEMORY_KINDS

from . import facts
from .definitions import FIGURES, definitions

TAG = "figures"
PLACE = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
DECIMALS = 3
WORDS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
]
PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth"}
PARTS |= {9: "ninth", 10: "tenth", 15: "fifteenth", 16: "sixteenth", 32: "32nd", 64: "64th"}


class FigureError(ValueError):
    """A figure that cannot be computed, or that no name stands behind. The message quotes it."""


# --- what a cell of figures may use --------------------------------------------------------------


class Published:
    """A number with its source."""

    source: str


class PublishedInt(int, Published):
    """A whole one."""


class PublishedFloat(float, Published):
    """Any other."""


def published(value: float, source: str) -> Any:
    """Return a number that was measured or said by others. A text of the page has to name the source."""
    number = PublishedInt(value) if value == int(value) else PublishedFloat(value)
    number.source = source
    return number


def shares(parts: Sequence[Any]) -> list[Fraction]:
    """Return shares of a whole, each a whole percent, that add up: what is cut off goes to those that lose most by it.

    >>> [str(share) for share in shares([1, 1, 1])]
    ['17/50', '33/100', '33/100']
    """
    whole = sum(map(exact, parts))
    percents = [exact(part) * 100 / whole for part in parts]
    floors = [int(percent) for percent in percents]
    by_loss = sorted(range(len(parts)), key=lambda i: floors[i] - percents[i])
    for i in by_loss[: 100 - sum(floors)]:
        floors[i] += 1
    return [Fraction(floor, 100) for floor in floors]


def idle(done: Run) -> float:
    """Return the part of all ranks' time in which they compute nothing, as pictures say it."""
    return float(idle_of(time_parts(done.events, done.ranks, done.time)))


def most(done: Run, rank: int, *kinds: str) -> Any:
    """Return the most elements of these kinds (see MEMORY_KINDS) that a rank holds at any time."""
    slots = [MEMORY_KINDS.index(kind) for kind in kinds]
    held = (event.held for event in done.events if event.rank == rank and event.held)
    return max(sum(one[slot] for slot in slots) for one in held)


def broken(source: str) -> dict[str, Any]:
    """Return what the notebook of a source defines as learners get it, with its mistakes."""
    from . import build  # which imports this module

    code = [
        cell
        for cell in build.read_cells(build.source(source))
        if cell.kind == "code" and TAG not in cell.tags
    ]
    return program(
        f"{source}, as it is given", "\n".join(build.blank(cell.source) for cell in code)
    )


RECORDED = Path(__file__).parent.parent / "tests" / "torch_truth" / "TABLE.md"


def recorded(row: str, what: str) -> Any:
    """Return how many of these calls PyTorch made in what a row of tests/torch_truth/TABLE.md is named for."""
    [said] = [
        line
        for line in RECORDED.read_text("utf-8").split("\n")
        if line.startswith(f"| {row} |")
    ]
    [count] = re.findall(rf"(\d+) {what}\b", said)
    return int(count)


def recorded_buckets(row: str) -> list[int]:
    """Return how many layers are in each of the sums of such a row."""
    [said] = [
        line
        for line in RECORDED.read_text("utf-8").split("\n")
        if line.startswith(f"| {row} |")
    ]
    return [
        int(last or first) - int(first) + 1
        for first, last in re.findall(r"(\d+)(?:-(\d+))?AR", said)
    ]


PATIENCE = 300
"""Seconds for a run of a build, which ends what never ends. No page depends on how fast or busy a machine is."""
_done: dict[Any, Run] = {}
asked: list[Run] = []
"""The runs that were asked for, since this list was emptied."""


def once(function: Callable[..., Any], *sizes: Any, **options: Any) -> Run:
    """Run a program, as ``lib.run`` does. The same program at the same size is run once in a build."""
    key = _same(function, sizes, options)
    found = _done.get(key) if key else None
    if found is None:
        found = lib.run(function, *sizes, **{"timeout": PATIENCE} | options)
    if key:
        _done[key] = found
    asked.append(found)
    return found


_taken: dict[Any, tuple[Any, Any]] = {}


def taken(function: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    """Return time and memory of such a run. At the many other sizes of a puzzle nothing else is kept of it."""
    key = _same(function, (), options)
    if key is None or key not in _taken:
        done = (_done.get(key) if key else None) or lib.run(
            function, **{"timeout": PATIENCE} | options
        )
        _taken[key] = done.time, done.memory
    return _taken[key]


def _same(function: Callable[..., Any], sizes: Any, options: Any) -> Any:
    """Return something that is equal for equal runs, or nothing where a cost or a program cannot be compared."""
    with suppress(TypeError):
        return _key(function), _key(sizes), _key(options)
    return None


def _key(value: Any) -> Any:
    """Return something that is equal for equal arguments."""
    if isinstance(value, partial):
        return value.func, _key(value.args), _key(value.keywords)
    if isinstance(value, Mapping):
        return tuple(sorted((name, _key(one)) for name, one in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    hash(value)
    return type(value), value


# --- a page --------------------------------------------------------------------------------------


class Goal:
    """Time and memory of a target or a star, in the units of the puzzle, and the sentences of its ``ideas``."""

    def __init__(self, time: Any, memory: Any, ideas: str = "") -> None:
        self.time, self.memory, self.ideas = time, memory, ideas


@cache
def program(file: str, text: str) -> dict[str, Any]:
    """Return what a source defines, without its figures. Its runs are those of ``once``. Raise FigureError if it fails."""
    names: dict[str, Any] = {"__name__": "page"}
    text = text.partition(FIGURES.decode())[0]
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    kept = list(definitions(ast.parse(text, file).body))
    try:
        exec(compile(ast.Module(kept, []), file, "exec", dont_inherit=True), names)
    except Exception as error:  # whatever a source may raise
        raise FigureError(f"{type(error).__name__}: {error}") from error
    if "run" in names:
        names["run"] = once
    return names


@cache
def names_of(
    file: str, text: str, cell: str, puzzles: tuple[str, ...], priced: Run | None
) -> dict[str, Any]:
    """Return what a page's figures may use: what the source defines, its ``puzzles`` (literals; of several, each
    target is named for its number), what its solution takes on real GPUs, and its cell."""
    names: dict[str, Any] = {**facts.NAMES, **program(file, text), "run": once, "TORCH": TORCH}
    names |= {
        "published": published,
        "show": show,
        "shares": shares,
        "most": most,
        "idle": idle,
        "broken": broken,
        "recorded": recorded,
        "recorded_buckets": recorded_buckets,
        "Fraction": Fraction,
        "MILLION": 10**6,
        "BILLION": 10**9,
    }
    names["cost"] = cost_named("default")
    specs = [ast.literal_eval(puzzle) for puzzle in puzzles]
    if len(specs) > 1:
        names |= {spec["number"]: Goal(**spec["target"], ideas=_ideas(spec)) for spec in specs}
    for spec in specs if len(specs) == 1 else ():
        cost = cost_named(spec.get("cost", "default"))
        names |= {key: Goal(**spec[key]) for key in ("target", "star") if key in spec}
        names |= {"ranks": 1, "batches": 1, **spec["size"], "size": spec["size"], "cost": cost}
        names["bounds"], names["ideas"] = bounds_of(Puzzle(**spec, file="")), _ideas(spec)
    if priced is not None:
        names["priced"] = priced
    try:
        exec(compile(cell, f"{file}, its figures", "exec"), names)
    except (
        PuzzleError,
        ArithmeticError,
        LookupError,
        NameError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise FigureError(f"its figures: {type(error).__name__}: {error}") from None
    return names


def _ideas(spec: Mapping[str, Any]) -> str:
    """Return the sentences of the ideas that a puzzle's spec names."""
    return " ".join(f"*{IDEAS[name].sentence}*" for name in spec["ideas"])


def runs_of(names: Mapping[str, Any]) -> Iterator[Run]:
    """Yield the runs that have a name, alone or in a list or a dictionary."""
    for value in names.values():
        if isinstance(value, Run):
            yield value
        elif isinstance(value, Mapping):
            yield from runs_of(value)
        elif isinstance(value, list | tuple):
            yield from (one for one in value if isinstance(one, Run))


def sources_of(names: Mapping[str, Any]) -> set[str]:
    """Return the sources of what was published, among the names of a page."""
    values = [
        one
        for value in names.values()
        for one in (value if isinstance(value, list | tuple) else [value])
    ]
    return {value.source for value in values if isinstance(value, Published)}


def filled(text: str, names: dict[str, Any]) -> str:
    """Return a text with its figures. Raise FigureError, with the placeholder, where one is no figure."""

    def figure(place: re.Match[str]) -> str:
        written = " ".join(place[1].split())
        try:
            return shown(written, names)
        except Exception as error:  # whatever an expression may raise
            raise FigureError(f"{{{{{written}}}}}: {type(error).__name__}: {error}") from None

    return PLACE.sub(figure, text)


def shown(written: str, names: dict[str, Any]) -> str:
    """Return what stands in the place of an expression, with or without a way to write it."""
    expression, way = _parts(written)
    tree = ast.parse(expression.strip(), mode="eval")
    if not any(isinstance(node, ast.Name) for node in ast.walk(tree)):
        raise FigureError("a figure needs a name: say what it is, in the cell of figures")
    value = eval(compile(tree, written, "eval"), names)
    if way.startswith("="):
        return f"{_sum(tree.body, names)} = {show(value, way[1:])}"
    return show(value, way)


def _parts(written: str) -> tuple[str, str]:
    expression, colon, way = written.rpartition(":")
    if colon:
        try:
            ast.parse(expression.strip(), mode="eval")
        except SyntaxError:
            return written, ""
        return expression, way.strip()
    return written, ""


def show(value: Any, way: str = "") -> str:
    """Write a figure.

    >>> show(2097152), show(20.5), show(45.0), show(Fraction(3, 11)), show(Fraction(3, 11), "percent")
    ('2,097,152', '20.5', '45', '3/11', '27 percent')
    >>> show(Fraction(2, 3), "word"), show(0.5, "word"), show(7, "word"), show(1.04, ".1f")
    ('two thirds', 'half', 'seven', '1.0')
    """
    if isinstance(value, str):
        return value
    if way == "percent":
        return f"{float(value):.0%}".replace("%", " percent")
    if way == "%":
        return f"{float(value):.0%}"
    if way == "word":
        return _word(exact(value))
    if way:
        return format(float(value), way)
    if isinstance(value, Fraction):
        return f"{value.numerator:,}" if value.denominator == 1 else str(value)
    if abs(value - round(value, DECIMALS)) > 1e-9 * max(1, abs(value)):
        raise FigureError(
            f"{value} has more than {DECIMALS} decimals: say how it is to be rounded"
        )
    value = round(float(value), DECIMALS)
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def _word(value: Fraction) -> str:
    if value.denominator == 1:
        return WORDS[value.numerator]
    part, count = PARTS[value.denominator], value.numerator
    if part == "half":
        return part
    return f"a {part}" if count == 1 else f"{WORDS[count]} {part}s"


SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "x", ast.Div: "/"}
RANK = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2}


def _sum(tree: ast.expr, names: dict[str, Any]) -> str:
    """Return an expression with numbers for its names."""
    if not isinstance(tree, ast.BinOp) or type(tree.op) not in SIGNS:
        return show(eval(compile(ast.Expression(tree), "a sum", "eval"), names))
    rank = RANK[type(tree.op)]

    def side(one: ast.expr, least: int) -> str:
        said = _sum(one, names)
        inner = (
            isinstance(one, ast.BinOp) and type(one.op) in RANK and RANK[type(one.op)] < least
        )
        return f"({said})" if inner else said

    after = rank + (type(tree.op) in (ast.Sub, ast.Div))
    return f"{side(tree.left, rank)} {SIGNS[type(tree.op)]} {side(tree.right, after)}"


PRICES = re.compile(r"`cost=((?:Ring)?Cost\([^`]*\))`")


def other_prices(text: str, cost: Cost) -> Iterator[str]:
    """Yield the prices that a text tells a learner to use, where they are not those of its puzzle."""
    for said in PRICES.findall(text):
        if eval(said, {"Cost": Cost, "RingCost": RingCost}) != cost:
            yield " ".join(said.split())


# --- figures that nothing computes ---------------------------------------------------------------

CELLS = re.compile(r"^ *```.*?^ *```|^ *\d+\. ", re.DOTALL | re.MULTILINE)
"""Blocks of code, and the numbers of a list."""
CODE = re.compile(r"`[^`]*`")
PLAIN = re.compile(r"\b10[⁰¹²³⁴-⁹]+|\b\d+[ -]bits?\b|(?<![\d.])20[0-2]\d(?![\d.,]\d|\d)")
"""Powers of ten, formats of numbers, years."""
ADDRESS = re.compile(r"\]\([^)\s]*\)|https?://\S+")
MANY = r"\d[\d.]*(?:(?:, and | and | to | or |, )\d[\d.]*)*\b"
NAMED = re.compile(
    rf"\b(?:puzzles?|layers?|ranks?|micro-batch(?:es)?|stages?|hints?|tables?|figures?|sections?|issues?|rows?|shards?|"
    rf"pieces?|slices?|nodes?|chunks?|keys?|numbers?|versions?|replicas?|pipelines?|arXiv|Llama|RTX|PCIe|PR|FlashAttention-?|GPT|"
    rf"sizes?) \(?{MANY}",
    re.IGNORECASE,
)
NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?!\w*[A-Za-z])")
UNIT = re.compile(
    r"[*\s]*(?:ticks?|elements?|percent|%|[KMGT]B|ms|µs|s|seconds?|minutes?|hours?|days?|years?|billion|million|"
    r"trillion|bytes?|/ ?\d)\b",
)
SMALL = ("0", "1", "2")


def by_hand(text: str, size: Mapping[str, Any]) -> Iterator[str]:
    """Yield the figures of a text that no placeholder computes, each with a few words around it."""
    counts = {*SMALL, *map(str, _numbers(size))}
    bare = " ".join(CELLS.sub("§ ", text).split())
    for pattern in (PLACE, CODE, ADDRESS, NAMED, PLAIN):
        bare = pattern.sub("§", bare)
    for found in NUMBER.finditer(bare):
        number = found[0].rstrip(",")
        if number not in counts or UNIT.match(bare, found.end()):
            yield bare[max(0, found.start() - 30) : found.end() + 20]


def _numbers(size: Mapping[str, Any]) -> Iterator[Any]:
    for value in size.values():
        if isinstance(value, Mapping):
            yield from value.values()
        elif not isinstance(value, str):
            yield value
