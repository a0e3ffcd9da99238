"""The verdict on an attempt at a puzzle, and its hints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from random import Random, SystemRandom
from typing import Any

from .check import check_finals
from .errors import PuzzleError
from .layouts import SIZES, check_layout, show_size
from .run import Run, run
from .specs import Puzzle, find
from .tensors import describe
from .units import Elements, show_elements, show_ticks

OTHER_SIZES = 3
"""Sizes besides the puzzle's own at which an attempt has to hold."""


@dataclass(frozen=True)
class Verdict:
    """What came of an attempt. ``status`` is a word: PASS, FAIL, or TODO (not attempted)."""

    puzzle: Puzzle
    status: str
    message: str
    time: float | None = None
    memory: Elements | None = None
    held_at: tuple[str, ...] = ()
    seed: int | None = None

    def __str__(self) -> str:
        lines = [f"{self.status}  puzzle {self.puzzle.number}  {self.puzzle.title}: {self.message}"]
        lines += [f"      {name}: {text}" for name, text in self._facts()]
        return "\n".join(lines)

    __repr__ = __str__

    def _facts(self) -> list[tuple[str, str]]:
        facts = []
        if self.time is not None and self.memory is not None:
            target, best = self.puzzle.target, self.puzzle.best_known
            facts.append(
                (
                    "time",
                    f"{show_ticks(self.time)} ticks (target {show_ticks(target['time'])}, "
                    f"best known {show_ticks(best['time'])})",
                )
            )
            facts.append(
                (
                    "peak memory",
                    f"{show_elements(self.memory)} elements (target {show_elements(target['memory'])}, "
                    f"best known {show_elements(best['memory'])})",
                )
            )
        if self.held_at:
            facts.append(("also right at", "; ".join(self.held_at)))
        if self.seed is not None:
            facts.append(("seed", str(self.seed)))
        if self.status != "PASS" and self.puzzle.hints:
            facts.append(("stuck?", f'hint("{self.puzzle.name}")'))
        return facts

    def _repr_html_(self) -> str:
        color = {"PASS": "#1a7f37", "FAIL": "#b3261e"}.get(self.status, "#57606a")
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left;vertical-align:top">{escape(name)}</th>'
            f'<td style="text-align:left;white-space:pre-wrap">{escape(text)}</td></tr>'
            for name, text in [("verdict", self.message), *self._facts()]
        )
        badge = f'<span style="background:{color};color:#ffffff;padding:1px 8px;border-radius:4px">{self.status}</span>'
        title = f"Puzzle {self.puzzle.number}: {escape(self.puzzle.title)}"
        return (
            '<table style="color:var(--jp-content-font-color1, inherit)">'
            f'<caption style="text-align:left;font-weight:bold">{title} {badge}</caption>'
            f"<tbody>{rows}</tbody></table>"
        )


def grade(fn: Callable[[Any], Any], puzzle: str | None = None, *, seed: int | None = None) -> Verdict:
    """The verdict on a function: right or not, at the puzzle's size and others; time and memory against the target.

    The puzzle is found by the function's name, or named. The other sizes are drawn at random; the seed
    is shown, and can be given again. Raises PuzzleError for an unknown puzzle or what is no function.
    """
    if not callable(fn):
        raise PuzzleError("grade takes a function", got=describe(fn), cure="grade(fsdp)")
    spec = find(puzzle if puzzle is not None else getattr(fn, "__name__", fn))
    if seed is None:
        seed = SystemRandom().randrange(10_000)
    result = None
    try:
        result = run(fn, **spec.size)
        if not result.attempted:
            return Verdict(spec, "TODO", "not attempted yet")
        _check(result, spec, spec.size)
    except PuzzleError as error:
        return Verdict(spec, "FAIL", str(error), *_figures(result))
    over = _over_target(result, spec)
    if over:
        return Verdict(spec, "FAIL", over, result.time, result.memory)
    held: list[str] = []
    random = Random(seed)
    for _ in range(OTHER_SIZES):
        size = SIZES[spec.other_sizes](spec.size, random)
        try:
            _check(run(fn, **size), spec, size)
        except PuzzleError as error:
            message = f"right at its own size, but not with {show_size(size)}\n{error}"
            return Verdict(spec, "FAIL", message, result.time, result.memory, tuple(held), seed)
        held.append(show_size(size))
    return Verdict(spec, "PASS", _praise(result, spec), result.time, result.memory, tuple(dict.fromkeys(held)), seed)


def _check(result: Run, spec: Puzzle, size: dict[str, Any]) -> None:
    check_finals(result.closings)
    check_layout(spec.layout, size, result.closings)


def _figures(result: Run | None) -> tuple[float | None, Elements | None]:
    return (None, None) if result is None else (result.time, result.memory)


def _over_target(result: Run, spec: Puzzle) -> str:
    """What is right but too slow or too big, and by how much."""
    over = []
    if result.time > spec.target["time"]:
        over.append(f"{show_ticks(result.time)} ticks, target {show_ticks(spec.target['time'])}")
    if result.memory > spec.target["memory"]:
        over.append(f"{show_elements(result.memory)} elements, target {show_elements(spec.target['memory'])}")
    return "Correct, but over the target: " + "; ".join(over) if over else ""


def _praise(result: Run, spec: Puzzle) -> str:
    best = spec.best_known
    if result.time <= best["time"] and result.memory <= best["memory"]:
        if (result.time, result.memory) != (best["time"], best["memory"]):
            return "Correct, and better than the best known!"
        return "Correct, and as good as the best known."
    return "Correct, within the target."


class Hint:
    """One hint, shown as text."""

    def __init__(self, puzzle: Puzzle, number: int) -> None:
        self.puzzle, self.number = puzzle, number

    def __str__(self) -> str:
        hints = self.puzzle.hints
        if not hints:
            return f"{self.puzzle.name}: there are no hints"
        more = "; call hint again for the next" if self.number + 1 < len(hints) else "; that was the last"
        return f"Hint {self.number + 1} of {len(hints)} for {self.puzzle.name}{more}\n\n{hints[self.number]}"

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return str(self)


_given: dict[str, int] = {}  # hints given so far in this session


def hint(puzzle: str) -> Hint:
    """The next hint of a puzzle; after the last one, the last again. Raises PuzzleError for an unknown puzzle."""
    spec = find(getattr(puzzle, "__name__", puzzle))
    number = min(_given.get(spec.name, 0), max(0, len(spec.hints) - 1))
    _given[spec.name] = number + 1
    return Hint(spec, number)
