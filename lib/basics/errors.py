"""Errors that say where, what was expected, what came, and what to write instead."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Iterable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

_LIB = Path(__file__).parent.parent
_OURS = (str(_LIB), str(_LIB.parent / "drawing"), sysconfig.get_paths()["stdlib"], "<frozen")

witnessed: ContextVar[list[PuzzleError] | None] = ContextVar("witnessed", default=None)
"""The list in which a graded run collects the errors made in it, so that one that is swallowed still counts."""

shown_files: set[str] = set()
"""Names of code that may be shown though there is no such file: cells of a notebook that is being graded."""


class Place(NamedTuple):
    """Where in a run something is. A message begins with it, and other programs read its fields.

    ``tick`` is the rank's clock; ``detail`` is whatever the other fields cannot say, such as the name of an argument.

    >>> print(Place(rank=2, operation="forward", layer=3, batches=frozenset({0})))
    rank 2, forward(layer 3), micro-batch {0}
    """

    rank: int | None = None
    operation: str = ""
    layer: int | None = None
    batches: frozenset[int] | None = None
    tick: float | None = None
    detail: str = ""

    def __str__(self) -> str:
        parts = [f"rank {self.rank}"] if self.rank is not None else []
        if self.operation:
            parts.append(show_call(self.operation, self.layer))
        elif self.layer is not None:
            parts.append(f"layer {self.layer}")
        if self.batches is not None:
            parts.append(f"micro-batch {show_set(self.batches)}")
        return ", ".join([*parts, *filter(None, [self.detail])])


NOWHERE = Place()


def show_call(operation: str, layer: int | None) -> str:
    """Return an operation for people: ``forward(layer 3)``, or ``receive`` where there is no layer."""
    return operation if layer is None else f"{operation}(layer {layer})"


class PuzzleError(AssertionError):
    """What a learner sees when something is not right.

    Its parts stay apart to the end: ``problem`` (what is wrong), ``place`` (where), ``expected``, ``got``, ``cure``
    (what to write instead) and ``line`` (the learner's). ``run`` is the Run up to the error, where there was one.

    An AssertionError, so that code that catches those goes on working; raised under ``python -O`` as well.
    """

    sticks = True  # whether it fails a graded run even if it is caught
    run: Any = None

    def __init__(
        self,
        problem: str,
        *,
        where: Place | str = NOWHERE,
        expected: str = "",
        got: str = "",
        cure: str = "",
        line: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.expected, self.got, self.cure = problem, expected, got, cure
        self.place = where if isinstance(where, Place) else Place(detail=where)
        self.line = learner_line() if line is None else line
        errors = witnessed.get()
        if self.sticks and errors is not None:
            errors.append(self)

    def __str__(self) -> str:
        place = str(self.place)
        head = f"{place}: {self.problem}" if place else self.problem
        parts = [("expected", self.expected), ("got", self.got), ("instead", self.cure), ("at", self.line)]
        return "\n".join([head, *(f"  {name + ':':9} {text}" for name, text in parts if text)])

    def __reduce__(self) -> tuple[Any, ...]:
        parts = {"expected": self.expected, "got": self.got, "cure": self.cure, "line": self.line}
        return partial(type(self), where=self.place, **parts), (self.problem,)


class Deadlock(PuzzleError):
    """Raised when no rank can ever go on. The message lists every rank and what it waits for."""

    sticks = False  # the run that reports it fails in any case


def learner_line() -> str:
    """Return the innermost line on the stack that is the learner's, or an empty text where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_learners(frame.f_code):
        frame = frame.f_back
    return "" if frame is None else show_line(frame.f_code, frame.f_lineno)


def is_learners(code: CodeType) -> bool:
    """Return whether code was written by the learner rather than by this library or the standard one. What namedtuple
    and dataclass generate is compiled from a string, as a program of ``python -c`` is."""
    generated = code.co_filename == "<string>" and code.co_name in ("<lambda>", "__init__", "__eq__")
    return not generated and is_learners_file(code.co_filename)


def is_learners_file(name: str) -> bool:
    """Return whether a file belongs neither to this library nor to the standard one."""
    return not name.startswith(_OURS)


class Line(NamedTuple):
    """A line of the learner's code."""

    code: CodeType
    number: int

    def __str__(self) -> str:
        return show_line(self.code, self.number)


def line_at(code: CodeType, place: int) -> int:
    """Return the number of the line that a place in compiled code (a frame's ``f_lasti``) comes from."""
    return next((line for start, end, line in code.co_lines() if start <= place < end and line), code.co_firstlineno)


def show_line(code: CodeType, number: int) -> str:
    """Return a line of code for people: its function, number and text, without the machine's paths."""
    text = linecache.getline(code.co_filename, number).strip()
    path = Path(code.co_filename)
    known = code.co_filename in shown_files or (path.is_file() and "ipykernel" not in code.co_filename)
    file = f" of {path.name}" if known else ""
    place = "" if code.co_name == "<module>" else f" in {code.co_name}"
    return f"line {number}{file}{place}" + (f": {text}" if text else "")


def show_set(numbers: Iterable[int]) -> str:
    """Return a set of numbers for people, with ranges folded. Of very many ranges only the first ones are shown.

    >>> show_set({0, 1, 2, 5})
    '{0-2, 5}'
    """
    shown = folded(numbers)
    return "{" + ", ".join(shown[:50]) + (f", ... in {len(shown):,} ranges" if len(shown) > 50 else "") + "}"


def numbered(what: str, numbers: Iterable[int]) -> str:
    """Return numbered things for people.

    >>> numbered("rank", {3}), numbered("micro-batch", {0, 1, 2})
    ('rank 3', 'micro-batches 0-2')
    """
    numbers = list(numbers)
    several = ("es" if what.endswith("ch") else "s") * (len(numbers) != 1)
    return f"{what}{several} {show_set(numbers)[1:-1]}"


def folded(numbers: Iterable[int]) -> list[str]:
    """Return numbers in order, as the texts of ranges.

    >>> folded({0, 1, 2, 5, 7, 8})
    ['0-2', '5', '7, 8']
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [f"{a}" if a == b else f"{a}, {b}" if b == a + 1 else f"{a}-{b}" for a, b in runs]
