"""``grade``, ``hint``, ``progress``, ``start_from``, ``attempt``, ``solution``: the functions for a notebook's cells.

Here everything shares one process, so the grader finds all mistakes, but cannot stop all cheats. ``python -m lib
grade`` at a shell can.
"""

import linecache
import re
import sys
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..basics.arguments import describe
from ..basics.errors import PuzzleError, numbered
from ..basics.folders import SOLUTIONS
from ..course.layouts import Size, mesh_of
from ..course.outlines import half_schedule
from ..course.specs import Puzzle, after, changed_table, cost_named, find, kept, written
from ..machine.cost import Cost, Shape
from ..machine.interface import AnySimulator
from ..record.codes import code_of, grid, legend
from ..record.events import Event
from ..record.operations import Message
from ..record.table import OPERATIONS
from ..record.training import FORWARD
from ..recording.recorder import Recorder, recorder_for
from ..running.execution import name_of
from ..running.limits import TIMEOUT
from ..running.run import Run, failed, run
from . import page
from . import why as why_
from .answers import answer_in, answer_of, renamed
from .judge import judge
from .progress import Ending, Progress, fitting_hint, keep, next_hint, notebook_of
from .reasons import Recording
from .references import references_of
from .seal import broken_seal
from .submission import load_quietly, summary
from .verdict import ERROR, FAIL, PASS, Verdict

_FIGURE = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
_CELL = re.compile(r"(?m)^# %%(.*)$")
_MARKS = re.compile(r"(?ms)^[ \t]*### (?:BEGIN SOLUTION\n|END SOLUTION\n|BROKEN\n(.*?)^[ \t]*### END SOLUTION\n)")


LARGEST = 20_000
"""The largest number of records of a run that a verdict keeps, to be drawn below its words."""


def without_notes(done: Run) -> Run:
    """Return a run without the notes on a peak."""
    plain = copy(done)
    plain.peak = None
    return plain


class ShownVerdict:
    """A verdict that shows itself in a cell. ``run`` is the run at the puzzle's own size, and ``noted`` the same with
    notes on the tensors at its peak, as far as they were made and are not too large."""

    def __init__(self, verdict: Verdict, run: Run | None = None, noted: Run | None = None) -> None:
        self.verdict, self.run, self.noted = verdict, run, noted

    def __getattr__(self, name: str) -> Any:
        return getattr(self.verdict, name)

    def __repr__(self) -> str:
        return page.text(self.verdict)

    def _repr_html_(self) -> str:
        return page.table(self.verdict)


class Recorded:
    """The runs of a function, each of them recorded."""

    def __init__(self, fn: Callable[[Any], object], cost: Cost, timeout: float | None) -> None:
        self.fn, self.cost, self.timeout = fn, cost, timeout
        self.done: Run | None = None  # the first run, which is that at the puzzle's own size
        self.recorders: list[Recorder] = []  # of the first run and of the latest one

    def run(self, size: Size) -> Run:
        """Run the function at a size."""
        done = run(self.fn, **size, cost=self.cost, timeout=self.timeout, _simulator=self._recorder)
        self.done = self.done or done
        return done

    def _recorder(self, shape: Shape) -> AnySimulator:
        for one in self.recorders[1:]:
            one.notes.clear()  # of a run that was right; it would hold on to all its tensors, and they to it
        self.recorders[1:] = [recorder_for(shape)]
        return self.recorders[-1].as_simulator

    def close(self) -> None:
        """Forget what was recorded, which hangs together in circles."""
        for one in self.recorders:
            one.notes.clear()

    def latest(self, size: Size) -> Recording | None:
        """Return what the latest run has called, which was at this size; None where it was refused."""
        return self.recorders[-1].whole() if self.recorders else None


def grade(
    fn: Callable[[Any], object],
    puzzle: str | None = None,
    *,
    timeout: float | None = TIMEOUT,
    represent: None = None,
) -> ShownVerdict:
    """The verdict on a function: whether it is right, at the puzzle's size and at others, and how its time and memory
    compare with the target.

    The puzzle is the one with the function's name, unless ``puzzle`` names another. ``timeout`` is in seconds, for each
    run (by default 10, and more on large machines). Raises PuzzleError for an unknown puzzle, for anything that is not
    a function, and for ``represent``: a verdict is about all ranks.
    """
    if not callable(fn):
        named = fn if isinstance(fn, str) else getattr(fn, "name", "fsdp")
        raise PuzzleError("grade takes a function", expected=f"grade({named})", got=describe(fn))
    if represent is not None:
        got = f"represent={describe(represent)}"
        raise PuzzleError("a verdict is about all ranks", where="grade", expected="no represent", got=got)
    named = fn.func if isinstance(fn, partial) else fn
    spec = find(puzzle if puzzle is not None else getattr(named, "__name__", fn))
    begun = time.perf_counter()
    try:
        runs = Recorded(fn, cost_named(spec.cost), timeout)
        verdict = judge(spec, runs.run, runs.latest, references_of, partial(_text_of, named))
        runs.close()
    except Exception as error:
        message = f"the grader failed: {type(error).__name__}: {error}. Please report it, with the code."
        verdict = Verdict(spec, ERROR, message)
    if changed := broken_seal() or changed_table(spec):
        message = f"{changed} is not what it was when lib was imported: restart the kernel, then grade again"
        verdict = Verdict(spec, FAIL, message)
    verdict = _with_next(_with_help(replace(verdict, seconds=time.perf_counter() - begun), fn))
    _last[spec.name] = Ending.of(verdict)
    code = _code_of(fn, spec.name) if verdict.status == PASS else ""
    verdict = replace(verdict, note="; ".join(filter(None, [verdict.note, keep([verdict], code=code)])))
    if "ipykernel" in sys.modules:
        first = "" if hasattr(sys.modules["__main__"], "draw_attempts") else "from drawing import draw_attempts; "
        verdict = replace(verdict, attempts=f'{first}draw_attempts("{spec.name}")')
    failed.clear()
    why_.last[:] = [verdict]
    done = runs.done if runs.done is not None and len(runs.done.events) <= LARGEST else None
    return ShownVerdict(verdict, done and without_notes(done), done if done and done.peak else None)


def _with_help(verdict: Verdict, fn: Callable[[Any], object]) -> Verdict:
    """Return a verdict with the calls that help: for the next hint, the target's outline, the solution."""
    spec = verdict.puzzle
    size = ", ".join(f"{name}={value!r}" for name, value in spec.size.items())
    size += "" if spec.cost == "default" else f", cost={written(spec.cost)}"
    named = "" if getattr(fn, "__name__", "") == spec.name else f', "{spec.name}"'
    return replace(
        verdict,
        next_hint=f'hint("{spec.name}")',
        asks_why="why()",
        beside=f"beside_target(run({name_of(fn)}, {size}){named})",
        draws_peak=f"draw(run({name_of(fn)}, {size}, peak=True))",
        solution=f'solution("{spec.name}")' if (SOLUTIONS / f"{spec.file}.py").exists() else "",
    )


def _with_next(verdict: Verdict) -> Verdict:
    """Return a verdict with the next puzzle, and the link to its notebook if it is known."""
    then = after(verdict.puzzle)
    if then is None or then.file == verdict.puzzle.file:
        return replace(verdict, following=then.heading if then else "")
    link = notebook_of(then)
    return replace(verdict, following=then.heading if link else f"{then.heading}, in {then.file}.ipynb", link=link)


def _text_of(fn: Callable[[Any], object]) -> str:
    """Return the text of the cell that defines a function."""
    return "".join(linecache.getlines(getattr(getattr(fn, "__code__", None), "co_filename", "")))


def _code_of(fn: Callable[[Any], object], name: str) -> str:
    """Return the code of a puzzle's function from the cell that defines it."""
    return answer_in([_text_of(fn)], name)


class Hint:
    """A hint: a text, and for the second one half of a schedule, which is a picture once ``drawing`` is imported. After
    the last one there is a question for the star. ``beyond``: what is said to whoever has had all of them."""

    def __init__(self, puzzle: Puzzle, number: int, why: str = "", beyond: str = "") -> None:
        self.puzzle, self.number, self.why, self.beyond = puzzle, number, why, beyond
        self.has_schedule = number == min(1, len(puzzle.hints) - 1)

    @property
    def text(self) -> str:
        """The hint in words."""
        hints = self.puzzle.hints
        if not hints:
            return f"{self.puzzle.name}: there are no hints"
        if self.number == len(hints):
            last = f'; hint("{self.puzzle.name}", {len(hints)}) says more of it' * ("the star" in hints[-1])
            return f"The question for the star of {self.puzzle.name}{self.why}{last}\n\n{self.puzzle.star_hint}"
        last = f'; that was the last. Still stuck? solution("{self.puzzle.name}", sure=True) shows ours'
        more = "; ask again for the next" if self.number + 1 < len(hints) else last
        said = f"Hint {self.number + 1} of {len(hints)} for {self.puzzle.name}{self.why}{more}\n\n{hints[self.number]}"
        return f"{said}\n\n{self.beyond}" if self.beyond else said

    def __str__(self) -> str:
        if not self.has_schedule:
            return self.text
        half = half_schedule(self.puzzle)
        unit = self.puzzle.unit
        until = f"The first {unit.brief(half.until)} of {unit.lasting(half.time)} of a schedule"
        until += ", without ranks that do the same" * (half.others > 0)
        forwards = [event for event in half.events if event.kind == FORWARD.kind]  # none where layers have steps
        alike = _alike(half.events)
        shown = [event for event in half.events if event.rank not in alike]
        if not forwards and len(shown) > MOST_SHOWN:
            shown = _once_each_way(shown)
            until = f"The first layer forward, and the first one back, of a schedule of {unit.lasting(half.time)}"
        happened = {event.kind for event in shown} - {FORWARD.kind}
        known = [
            f"{code_of(last)}: layer {last.layer} forward, {numbered('micro-batch', last.batches)}"
            for last in forwards[-1:]
        ]
        known += [legend(row.kind) for row in OPERATIONS.values() if row.kind in happened]
        drawn = grid(shown, unit, hosts=mesh_of(self.puzzle.size).beside)
        known += ["a + joins what starts at the same time"] * ("+" in drawn)
        same = (
            f"\n\n{numbered('rank', alike)} do the same as rank {shown[0].rank}, on their own micro-batches."
            if alike
            else ""
        )
        return f"{self.text}\n\n{until} ({'; '.join(known)}):\n\n{drawn}{same}"

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return self.text


ALIKE = 4  # ranks that do the same but for their micro-batches: of more, two are shown


MOST_SHOWN = 400  # operations of a schedule in text, where layers are in steps: of more, one layer each way is


def _once_each_way(events: Sequence[Event]) -> list[Event]:
    """Return what is done for the first layer before any backward, and for the first one that goes back."""
    back = [event for event in events if event.kind in OPERATIONS and OPERATIONS[event.kind].backward]
    turn = min(event.start for event in back)
    layers = (
        {event.layer for event in events if event.start < turn},
        {event.layer for event in back if event.start == turn},
    )
    first, last = (
        pick(layer for layer in of if layer is not None) for pick, of in zip((min, max), layers, strict=True)
    )
    return [event for event in events if event.layer == (first if event.start < turn else last)]


def _alike(events: Sequence[Event]) -> list[int]:
    """Return the ranks that need not be shown, since many do the same at the same time on other micro-batches."""
    done: dict[int, list[tuple[object, ...]]] = {}
    for event in events:
        peers = event.group if isinstance(OPERATIONS.get(event.kind), Message) else ()
        what = event.kind, event.layer, event.layers, len(event.batches), event.start, event.end, peers
        done.setdefault(event.rank, []).append(what)
    first, *others = sorted(done)
    alike = [rank for rank in others if done[rank] == done[first]]
    return alike[1:] if len(alike) >= ALIKE else []


_last: dict[str, Ending] = {}  # how the last attempt at each puzzle ended, in this session
_given: dict[str, int] = {}  # how many hints, in this session; longer than that where progress is kept


def hint(puzzle: str = "", number: int | None = None) -> Hint:
    """The next hint for a puzzle; with ``number``, the hint of that number, from 1 up. After the last, the last again,
    with the lines of a right program beside yours, if your last one was wrong.

    If your last program is right, but too slow or too large, if only at another size, it goes straight to the hint
    that is about that. If it passes and has no star, it is a question for the star. Raises PuzzleError for an unknown
    puzzle, and for a hint that does not exist.
    """
    spec = find(getattr(puzzle, "__name__", puzzle))
    if number is not None:
        if number not in range(1, len(spec.hints) + 1):
            raise PuzzleError(f"{spec.name} has no hint {number!r}", expected=f"1 to {len(spec.hints)}")
        return Hint(spec, number - 1)
    done = Progress() if "ipykernel" in sys.modules else None
    first, why = _fitting(spec, done)
    if first == len(spec.hints):
        return Hint(spec, first, why)
    before = max(_given.get(spec.name, 0), done.hints.get(spec.name, 0) if done else 0)
    _given[spec.name] = before
    number = next_hint(_given, spec, first)
    if done:
        done.take_hint(spec, number)
    beyond = why_.beside(spec) if before >= len(spec.hints) else ""
    earlier = f'; hint("{spec.name}", 1) shows the first' if first > before else ""
    return Hint(spec, number, f"{why[:-1]}{earlier})" if earlier else "", beyond)


def _fitting(spec: Puzzle, done: Progress | None) -> tuple[int, str]:
    """Return the index of the hint that fits the last attempt, in this kernel or before, and why it fits."""
    if (last := _last.get(spec.name)) is not None:
        return fitting_hint(spec, last)
    return done.fitting(spec) if done else (0, "")


def progress() -> Progress:
    """All puzzles with your best results so far, from progress.json beside the notebook or the script."""
    return Progress()


def attempt(puzzle: str) -> Callable[[Any], Any]:
    """Your own function for a puzzle, read from its notebook in this folder.

    Raises PuzzleError for an unknown puzzle, and if that notebook is not here (in Colab).
    """
    spec = find(getattr(puzzle, "__name__", puzzle))
    for path in (Path(f"{spec.file}{ending}") for ending in (".ipynb", ".py")):
        if path.is_file():
            names, trouble, *_ = load_quietly(path.name, path.read_text(encoding="utf-8"))
            if callable(found := names.get(spec.name)):
                return found
            raise PuzzleError(f"{path.name} defines no function {spec.name}", got=summary(trouble), line="")
    there = f"{spec.file}.ipynb in the same folder"
    raise PuzzleError(f"there is no notebook of {spec.name} here", expected=there, line="")


class Answer(str):
    """A Markdown text: a solution, the question whether it is wanted, or where code has been put."""

    __repr__ = _repr_markdown_ = str.__str__


def start_from(puzzle: str, new: str = "") -> Answer:
    """Puts your own answer to a puzzle into a new cell below, renamed to ``new`` or, without it, to the next puzzle.

    It comes from the puzzle's notebook in this folder as it was last saved or, if there is none, it is the code that
    has passed. Raises PuzzleError for an unknown puzzle, and if there is no answer of yours.
    """
    old = find(getattr(puzzle, "__name__", puzzle))
    into = find(getattr(new, "__name__", new)) if new else after(old)
    if into is None:
        expected = f'the puzzle to begin, such as start_from("{old.name}", "fsdp")'
        raise PuzzleError(f"no puzzle comes after {old.name}", expected=expected, line="")
    path = Path(f"{old.file}.ipynb")
    code = answer_of(path, old.name) or Progress().answers.get(old.name, "")
    if not code:
        expected = f"a function {old.name} in {path} in the same folder, saved, or a pass of it"
        raise PuzzleError(f"there is no answer of yours to {old.name} here", expected=expected, line="")
    code = renamed(code, old.name, into.name)
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return Answer(code)
    shell.set_next_input(code)
    return Answer(
        f"Your answer to puzzle {old.number} is in a new cell below, as `{into.name}`. "
        "Run that cell, and not the blank above, from now on."
    )


def solution(puzzle: str, sure: bool = False) -> Answer:
    """The solution of a puzzle, explained: once you have solved it, or at any time with ``sure=True``.

    Raises PuzzleError for an unknown puzzle, and if the solutions are not here, as where they were taken out.
    """
    spec = find(getattr(puzzle, "__name__", puzzle))
    if spec.name not in Progress().solved and not sure:
        return Answer(
            f"{spec.name} is not solved yet. `hint({spec.name!r})` gives the next hint. "
            f"If you are sure that you want to see the solution: `solution({spec.name!r}, sure=True)`"
        )
    return explained(spec)


def explained(spec: Puzzle) -> Answer:
    """Return the solution of a puzzle. Raise PuzzleError if the solutions are not here."""
    path = SOLUTIONS / f"{spec.file}.py"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        got = f"no {path.name} in a folder solutions beside lib"
        expected = "a clone of the project, or the package llm-training-puzzles as it is published"
        raise PuzzleError(f"the solution of {spec.name} is not here", expected=expected, got=got, line="") from None
    figures = kept("figures.json").get(spec.file, {})  # that the build has computed
    parts = [
        _FIGURE.sub(lambda at: figures.get(" ".join(at[1].split()), at[0]), one) for one in _sections(text, spec.name)
    ]
    return Answer("\n\n".join([f"## {spec.title}", *parts]))


def _sections(text: str, name: str) -> list[str]:
    """Return the function of a solution, and the texts that only the solved notebook has."""
    pieces = _CELL.split(text)
    parts = []
    ours = False  # from the puzzle's spec to the next one's
    for head, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if 'tags=["spec"]' in head:
            ours = f'"name": "{name}"' in body
        elif ours and ("### BEGIN SOLUTION" in body or "solution" in head):
            body = _MARKS.sub("", body).strip("\n")
            prose = "[markdown]" in head
            parts.append(re.sub(r"^# ?", "", body, flags=re.MULTILINE) if prose else f"```python\n{body}\n```")
    return parts
