"""Errors as data: which rule is broken, where, what was expected and what came. Why is worked out elsewhere."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from textwrap import wrap
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, NamedTuple

from .rules import ARGUMENT, RULES

COLUMNS = 88
"""Letters in a line of an error in a notebook: so many fit into a cell of 733 pixels."""
_LABEL = re.compile(r"  \w[\w ]*: +")
_LIB = Path(__file__).parent.parent
_OURS = (str(_LIB), str(_LIB.parent / "drawing"), sysconfig.get_paths()["stdlib"], "<frozen")

witnessed: ContextVar[list[PuzzleError] | None] = ContextVar("witnessed", default=None)
"""The list in which a graded run collects the errors raised in it, so that one that is swallowed still counts."""

shown_files: set[str] = set()
"""File names of code that exists only in memory and may be shown: cells of a notebook that is being graded."""


class Place(NamedTuple):
    """A place in a run. A message begins with it, and other programs read its fields.

    ``tick`` is the rank's clock; ``detail`` is what the other fields cannot say, such as the name of an argument.

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

LINES_OF_A_CALL = 6  # after its first one, that are shown beside it
AROUND, CALLS, MOST = 2, 3, 8
"""The number of lines shown before and after the learner's, the largest number of calls that led there, and of groups
of ranks that wait."""


def show_call(operation: str, layer: int | Sequence[int] | None) -> str:
    """Return an operation as text: ``forward(layer 3)``, ``allgather(layers [0, 1])``, ``receive``."""
    return operation if layer is None else f"{operation}({show_layers(layer)})"


def show_layers(layer: int | Sequence[int]) -> str:
    """Return a layer or a list of layers as text. Of a long list only the first ones and the last are shown.

    >>> show_layers(3), show_layers([1, 0]), show_layers(range(100))
    ('layer 3', 'layers [1, 0]', 'layers [0, 1, 2, 3, 4, ... 99]')
    """
    if not isinstance(layer, Sequence):
        return f"layer {layer}"
    shown = [*map(str, layer)]
    if len(shown) > MOST:
        shown[5:-1] = ["..."]
    return f"layers [{', '.join(shown).replace('..., ', '... ')}]"


def told(rule: str, facts: Mapping[str, Any]) -> str:
    """Return the sentence of a rule, filled in with facts: sets of numbers as ranges."""
    sets = {name: show_set(fact) for name, fact in facts.items() if isinstance(fact, frozenset)}
    return RULES[rule].format(**{**facts, **sets})


class PuzzleError(AssertionError):
    """The error that a learner sees when something is wrong.

    ``rule`` is the name of the rule that is broken (``rules``), and ``problem`` its sentence, filled in with the
    ``facts``. A text that is no name of a rule is the problem itself, of an argument. ``place``, ``expected`` and
    ``got`` say where, and how it should be and is; ``operands`` are the labels of the tensors that an operation was
    given; ``line`` is the line of your code. ``run`` is the Run up to the error, if there was one. It is an
    AssertionError, so code that catches AssertionError keeps working; it is raised under ``python -O``, too.
    """

    sticks = True  # whether it fails a graded run even if it is caught
    run: Any = None
    so_far: Callable[[], Sequence[Any]] | None = None  # returns the events up to it, where there is no ``run``
    entry: int | None = None
    """Where in its rank's log the call stands that is the mistake, if that is not the one which has raised this."""
    about: tuple[str, int] | None = None
    """Of a check after a run: the operation, by verb and layer, whose last line on this rank is to be shown."""
    rule = ARGUMENT  # defaults: a learner's own kind of error may set none of its parts

    def __init__(
        self,
        rule: str,
        *,
        where: Place | str = NOWHERE,
        expected: str = "",
        got: str = "",
        operands: Sequence[Any] = (),
        line: str | None = None,
        **facts: Any,
    ) -> None:
        self.rule, self.problem = (rule, told(rule, facts)) if rule in RULES else (ARGUMENT, rule)
        super().__init__(self.problem)
        self.facts, self.operands = facts, tuple(operands)
        self.expected, self.got = expected, got
        self.place = where if isinstance(where, Place) else Place(detail=where)
        self.line = learner_line() if line is None else line
        errors = witnessed.get()
        if self.sticks and errors is not None:
            errors.append(self)

    def __str__(self) -> str:
        return "\n".join([self.head, *_rows(*self._parts(), ("at", self.line))])

    @property
    def head(self) -> str:
        """The place of the error, and what is wrong."""
        place = str(self.place)
        return f"{place}: {self.problem}" if place else self.problem

    def _parts(self) -> list[tuple[str, str]]:
        return [("expected", self.expected), ("got", self.got)]

    def _render_traceback_(self) -> list[str]:
        """Return the text that IPython shows in place of a traceback, most of which would be ours: the message, and the
        learner's line with its neighbors."""
        seen = around(self.line) if isinstance(self.line, Spot) else ""
        rows = [*self._parts(), *_origins(self.__cause__), ("at", "" if seen else self.line)]
        texts = _wrapped([f"{type(self).__name__}: {self.head}", *_rows(*rows)])
        return [*texts, *([f"\n{seen}"] if seen else [])]

    def __reduce__(self) -> tuple[Any, ...]:
        parts: dict[str, Any] = {name: getattr(self, name) for name in ("expected", "got", "operands", "line")}
        state = {"rule": self.rule, "problem": self.problem, "facts": self.facts}
        return partial(type(self), where=self.place, **parts), (self.problem,), state


class OutOfTime(PuzzleError):
    """A run that did not end within its time. A rank may have been interrupted in the middle of a record of its log."""


class Deadlock(PuzzleError):
    """Raised when no rank can ever go on. The message lists what the ranks wait for, or some of many ranks."""

    sticks = False  # the run that reports it fails in any case
    lines: Mapping[int, str] = {}
    """The line at which each rank waits, as far as it is known."""
    briefly: Sequence[str] = ()
    """Sentences on who waits for whom, one for all ranks that do the same, the most important first."""

    def _render_traceback_(self) -> list[str]:
        ranks: dict[str, list[int]] = {}
        for rank, line in sorted(self.lines.items()):
            ranks.setdefault(line, []).append(rank)
        seen = [(own, around(line)) for line, own in ranks.items() if isinstance(line, Spot)]
        shown = [f"\n{numbered('rank', own)} wait{'s' * (len(own) == 1)} here:\n{text}" for own, text in seen if text]
        if not self.briefly:
            return [*super()._render_traceback_(), *shown[:CALLS]]
        more = len(self.briefly) - MOST
        sentences = [*self.briefly[:MOST], *([f"and {more} more like these"] if more > 0 else [])]
        head = self.head.partition("\n")[0].removeprefix("deadlock: ")
        rows = [*(f"  {line}" for line in sentences), *_rows(*self._parts())]
        return [*_wrapped([f"{type(self).__name__}: {head}", *rows]), *shown[:CALLS]]


def _wrapped(texts: Iterable[str]) -> list[str]:
    """Return texts with line breaks between words: a notebook would break long lines within words."""
    return ["\n".join(_folded(line)) for text in texts for line in text.split("\n")]


def _folded(line: str) -> list[str]:
    """Return a line in pieces that fit, the later ones below the text of the first."""
    label = _LABEL.match(line)
    deeper = " " * (label.end() if label else 4)
    if len(line) <= COLUMNS:
        return [line]
    return wrap(line, COLUMNS, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False)


def _rows(*parts: tuple[str, str]) -> list[str]:
    return [f"  {name + ':':9} {text}" for name, text in parts if text]


def _origins(raised: BaseException | None) -> Iterator[tuple[str, str]]:
    """Yield the origins of a learner's own exception: the calls in their code, and the exception it was raised from."""
    if raised is None:
        return
    stack = [(frame.f_code, line) for frame, line in walk_tb(raised.__traceback__) if is_learners(frame.f_code)]
    for code, line in stack[:-1][-CALLS:]:
        yield "called at", show_line(code, line)
    before = raised.__cause__ or (None if raised.__suppress_context__ else raised.__context__)
    if before is not None and not isinstance(before, PuzzleError):
        yield "after", f"{type(before).__name__}: {before}"


def learner_line() -> str:
    """Return the innermost line on the stack that is the learner's, or an empty text where there is none."""
    frame = learner_frame()
    return "" if frame is None else show_line(frame.f_code, frame.f_lineno)


def learner_frame() -> FrameType | None:
    """Return the innermost frame on the stack that is the learner's, if there is one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_learners(frame.f_code):
        frame = frame.f_back
    return frame


def is_learners(code: CodeType) -> bool:
    """Return whether code was written by the learner, and not by this library or the standard one. Code generated by
    namedtuple and dataclass is compiled from a string, like a program of ``python -c``."""
    generated = code.co_filename == "<string>" and code.co_name in ("<lambda>", "__init__", "__eq__")
    return not generated and is_learners_file(code.co_filename)


@lru_cache(maxsize=1 << 10)  # asked again and again of the same few
def is_learners_file(name: str) -> bool:
    """Return whether a file belongs neither to this library nor to the standard one."""
    return not name.startswith(_OURS)


class Line(NamedTuple):
    """A line of the learner's code."""

    code: CodeType
    number: int

    def __str__(self) -> str:
        return show_line(self.code, self.number)


@lru_cache(maxsize=1 << 10)  # asked again at each size: a sixth of what it takes to write a recording down
def line_at(code: CodeType, place: int) -> int:
    """Return the line number of a place in compiled code (a frame's ``f_lasti``)."""
    return next((line for start, end, line in code.co_lines() if start <= place < end and line), code.co_firstlineno)


class Spot(str):
    """A line of the learner's code as text, with its ``file`` and ``number``."""

    file = ""
    number = 0


def around(spot: Spot) -> str:
    """Return a line with those around it, and an arrow at it; an empty text if the code is not available."""
    lines = linecache.getlines(spot.file)
    if not 0 < spot.number <= len(lines):
        return ""
    first, last = max(1, spot.number - AROUND), min(len(lines), spot.number + AROUND)
    wide = len(str(last))
    shown = [
        f"{'---->' if number == spot.number else '':5} {number:{wide}} {lines[number - 1].rstrip()}".rstrip()
        for number in range(first, last + 1)
    ]
    return "\n".join(shown)


def whole_call(file: str, number: int) -> str:
    """Return a line of a file with those that go on with its call, as one line."""
    text = linecache.getline(file, number).strip()
    for more in range(number + 1, number + 1 + LINES_OF_A_CALL):
        if text.count("(") <= text.count(")"):
            return text
        following = linecache.getline(file, more).strip()
        text += following if text.endswith("(") or following.startswith(")") else f" {following}"
    return text if text.count("(") <= text.count(")") else f"{text} ..."


def show_line(code: CodeType, number: int) -> Spot:
    """Return a line of code as text: its function, number and source, without the machine's paths."""
    text = whole_call(code.co_filename, number)
    path = Path(code.co_filename)
    known = code.co_filename in shown_files or (path.is_file() and "ipykernel" not in code.co_filename)
    file = f" of {path.name}" if known else ""
    place = "" if code.co_name == "<module>" else f" in {code.co_name}"
    spot = Spot(f"line {number}{file}{place}" + (f": {text}" if text else ""))
    spot.file, spot.number = code.co_filename, number
    return spot


def show_set(numbers: Iterable[int]) -> str:
    """Return a set of numbers as text with ranges. Of very many ranges only the first ones are shown.

    >>> show_set({0, 1, 2, 5})
    '{0-2, 5}'
    """
    shown = number_ranges(numbers)
    return "{" + ", ".join(shown[:50]) + (f", ... in {len(shown):,} ranges" if len(shown) > 50 else "") + "}"


def numbered(what: str, numbers: Iterable[int]) -> str:
    """Return numbered things as text. Of very many ranges only the first ones are shown.

    >>> numbered('rank', {3}), numbered("micro-batch", {0, 1, 2, 5})
    ('rank 3', 'micro-batches 0-2, 5')
    """
    shown = number_ranges(numbers)
    some = ", ".join(shown[:6]) + (" ..." if len(shown) > 6 else "")
    several = ("es" if what.endswith("ch") else "s") * (not some.isdecimal())
    return f"{what}{several} {some}"


def number_ranges(numbers: Iterable[int]) -> list[str]:
    """Return numbers in order, as texts of ranges.

    >>> number_ranges({0, 1, 2, 5, 7, 8})
    ['0-2', '5', '7, 8']
    """
    runs = runs_of(numbers)
    return [f"{a}" if a == b else f"{a}, {b}" if b == a + 1 else f"{a}-{b}" for a, b in runs]


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of numbers that follow each other.

    >>> runs_of({0, 1, 5})
    [(0, 1), (5, 5)]
    """
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


def with_article(word: str) -> str:
    """Return a noun behind its article.

    >>> with_article("OptState"), with_article("weight")
    ('an OptState', 'a weight')
    """
    return f"{'an' if word[0] in 'aeiouAEIOU' else 'a'} {word}"
