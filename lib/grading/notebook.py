"""``grade``, ``why``, ``hint``, ``progress``, ``attempt``, ``start_from``, ``solution``: the functions for a notebook.

Here everything shares one process, so the grader finds all mistakes, but cannot stop all cheats. ``python -m lib
grade`` at a shell can.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..basics.arguments import describe
from ..basics.cells import is_older, text_of
from ..basics.errors import PuzzleError
from ..basics.folders import link_to
from ..course.layouts import Size
from ..course.outlines import is_known
from ..course.solutions import explained, source_of
from ..course.specs import Puzzle, after, changed_table, cost_named, cost_source, find, puzzles
from ..explain import words
from ..explain.explanation import explain
from ..explain.statement import Explanation
from ..learner.dist import Dist
from ..machine.cost import Cost, Shape
from ..machine.interface import AnySimulator
from ..recording.recorder import Recorder, recorder_for
from ..running.execution import name_of
from ..running.limits import TIMEOUT, collector_off
from ..running.run import Failed, Run, failed, run
from ..running.trained import train_on
from . import page
from .answers import answer_in, answer_of, beginning
from .hints import Hint
from .judge import judge
from .progress import Progress, keep
from .reasons import Recording, is_explained, references_of
from .seal import broken_seal
from .submission import load_quietly, summary
from .verdict import ERROR, FAIL, PASS, Verdict

LARGEST = 20_000
"""The largest number of records of a run that a verdict keeps, to be drawn below its words."""


class ShownVerdict:
    """A verdict that shows itself in a cell. ``run``: that at the puzzle's own size, unless it failed or is large."""

    def __init__(self, verdict: Verdict, run: Run | None = None) -> None:
        self.verdict, self.run = verdict, run

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
        self.recorder: Recorder | None = None  # of the latest run

    def run(self, size: Size) -> Run:
        """Run the function at a size."""
        done = run(self.fn, **size, cost=self.cost, timeout=self.timeout, _simulator=self._simulator)
        self.done = self.done or done
        return done

    def _simulator(self, shape: Shape) -> AnySimulator:
        self.close()
        self.recorder = recorder_for(shape)
        return self.recorder.as_simulator

    def close(self) -> None:
        """Forget what was recorded, which would hold on to all tensors of its run, and they to it."""
        if self.recorder is not None:
            self.recorder.notes.clear()

    def latest(self, size: Size) -> Recording | None:
        """Return what the latest run has called, which was at this size; None where it was refused."""
        return self.recorder.whole() if self.recorder else None


@collector_off(cycles=True)  # until what is recorded is gone: to look at that took 2 percent longer
def grade(fn: Callable[[Any], object], puzzle: str | None = None, *, timeout: float | None = TIMEOUT) -> ShownVerdict:
    """The verdict on a function: whether it is right, at the puzzle's size and at others, and how its time and memory
    compare with the target.

    The puzzle is the one with the function's name, unless ``puzzle`` names another. ``timeout`` is in seconds, for each
    run (by default 10, and more on large machines). All ranks are run: none stands for another. Raises PuzzleError for
    an unknown puzzle, and for anything that is not a function.
    """
    if not callable(fn):
        named = fn if isinstance(fn, str) else getattr(fn, "name", "fsdp")
        raise PuzzleError("grade takes a function", expected=f"grade({named})", got=describe(fn))
    named = fn.func if isinstance(fn, partial) else fn
    spec = find(puzzle if puzzle is not None else getattr(named, "__name__", fn))
    begun = time.perf_counter()
    runs = Recorded(fn, cost_named(spec.cost), timeout)
    try:
        verdict = judge(spec, runs.run, runs.latest, references_of, partial(text_of, named))
        runs.close()
    except Exception as error:
        message = f"the grader failed: {type(error).__name__}: {error}. Please report it, with the code."
        verdict = Verdict(spec, ERROR, message)
    if changed := broken_seal() or changed_table(spec):
        message = f"{changed} is not what it was when lib was imported: restart the kernel, then grade again"
        verdict = Verdict(spec, FAIL, message)
    note = keep([verdict], code=answer_in([text_of(fn)], spec.name) if verdict.status == PASS else "")
    name = getattr(named, "__name__", "")
    older = f"the last cell with `def {name}` is no Python, and did not run: this is the one before" * is_older(name)
    following, link = _next(spec)
    verdict = replace(
        verdict,
        seconds=time.perf_counter() - begun,
        note="; ".join(filter(None, [verdict.note, older, note])),
        next_hint=f'hint("{spec.name}")',
        asks_why="why()",
        more=tuple(_more(verdict, fn)),
        following=following,
        link=link,
    )
    failed.clear()
    graded[:] = [verdict]
    return ShownVerdict(verdict, runs.done if runs.done is not None and len(runs.done.events) <= LARGEST else None)


def _more(verdict: Verdict, fn: Callable[[Any], object]) -> Iterator[tuple[str, str]]:
    """Yield the calls that help after a verdict: pictures beside the target's outline, and the solution."""
    spec, passes = verdict.puzzle, verdict.status == PASS
    size = ", ".join(f"{name}={value!r}" for name, value in spec.size.items())
    ran = f"run({name_of(fn)}, {size}{'' if spec.cost == 'default' else f', cost={cost_source(spec.cost)}'}"
    named = "" if getattr(fn, "__name__", "") == spec.name else f', "{spec.name}"'
    if verdict.slow:
        yield "too slow?", f"beside_target({ran}){named}) draws yours beside the outline of the target's"
    if verdict.large:
        yield "too large?", f"draw({ran}, peak=True)) marks what has made the tensors at the peak"
    starless = passes and spec.star is not None and not verdict.starred
    if starless and is_known(spec):
        yield "and the star?", f"beside_target({ran}){named}, star=True) draws yours beside the star's outline"
    if verdict.right and "ipykernel" in sys.modules:
        call = f'from drawing import draw_attempts; draw_attempts("{spec.name}")'
        yield "attempts", f"{call} draws yours as points of time and memory"
    if passes and source_of(spec).exists():
        yield "and now?", f'solution("{spec.name}") shows ours{", and may give the star away" * starless}'


def _next(puzzle: Puzzle) -> tuple[str, str]:
    """Return the next puzzle of the course, and the link to its notebook if it is another one that is known."""
    then = after(puzzle)
    if then is None or then.file == puzzle.file:
        return then.heading if then else "", ""
    link = link_to(f"{then.file}.ipynb")
    return then.heading if link else f"{then.heading}, in {then.file}.ipynb", link


graded: list[Verdict] = []
"""The last verdict, if there is one."""


class Words(str):
    """A text that shows itself."""

    __repr__ = str.__str__


class Answer(Words):
    """A Markdown text: a solution, the question whether it is wanted, or where code has been put."""

    _repr_markdown_ = str.__str__


def why(level: int = 2) -> Words:
    """Why the last attempt that was graded, or the last run that failed, is wrong, slow or large.

    ``level``: 1 what is wrong with which tensor, and where; 2 what right runs do there; 3 their lines beside yours. A
    run that has failed is run once more, and its calls are noted. Raises PuzzleError where there is nothing to explain.
    """
    if level not in (1, 2, 3):
        raise PuzzleError("why has three levels", expected="1, 2 or 3", got=repr(level))
    if not failed and not graded:
        raise PuzzleError("nothing has failed here", expected="a run that fails, or a verdict that is no pass", line="")
    sentences = _sentences(_of_run(failed[0]) if failed else graded[0].explanation, level)
    return Words("\n".join(sentences) or "the calls of this run show no more")


def right_lines(puzzle: Puzzle) -> str:
    """Return the lines of a right run that differ from those of the last attempt at a puzzle, or an empty text."""
    explanation = graded[0].explanation if graded and graded[0].puzzle.name == puzzle.name else None
    known = _sentences(explanation, 2)
    return "\n".join(line for line in _sentences(explanation, 3) if line not in known)


def _sentences(explanation: Explanation | None, level: int) -> list[str]:
    return [] if explanation is None else words.why(explanation, level)


def _of_run(run: Failed) -> Explanation | None:
    """Return why a run has failed, by running it once more."""
    fn, shape, work, settings = run
    cost: Any = shape.cost  # in the place of a name
    recorder = recorder_for(shape)
    try:
        train_on(fn, Dist.of(shape, recorder.as_simulator), work, settings)
    except PuzzleError as error:
        if error.run is not None:
            size, puzzle = error.run.size, puzzles().get(error.run.name)
            references = references_of(puzzle, size, cost) if puzzle is not None and is_explained(size) else ()
            return explain(recorder.whole(), error, references, size, cost)
    return None


_given: dict[str, int] = {}  # how many hints, in this session; longer than that where progress is kept


def hint(puzzle: str = "", number: int | None = None) -> Hint:
    """The next hint for a puzzle; with ``number``, the hint of that number, from 1 up. After the last, the last again,
    with the lines of a right program beside yours, if your last one was wrong.

    If your last program is right, but too slow or too large, it goes straight to the hint that is about that. If it
    passes and has no star, it is a question for the star. Raises PuzzleError for an unknown puzzle, and for a hint that
    does not exist.
    """
    spec = find(getattr(puzzle, "__name__", puzzle))
    last = len(spec.hints)
    if number is not None:
        if number not in range(1, last + 1):
            raise PuzzleError(f"{spec.name} has no hint {number!r}", expected=f"1 to {last}")
        return Hint(spec, number - 1)
    kept = Progress()
    first, fits = kept.fitting(spec)
    if first == last:
        return Hint(spec, first, fits)
    in_kernel = "ipykernel" in sys.modules  # a script, which is run again and again, begins anew with each run
    given = max(_given.get(spec.name, 0), kept.hints.get(spec.name, 0) if in_kernel else 0)
    index = min(max(first, given), last - 1)
    _given[spec.name] = index + 1
    if in_kernel:
        kept.take_hint(spec, index)
    fits = f'{fits[:-1]}; hint("{spec.name}", 1) shows the first)' if first > given else ""
    return Hint(spec, index, fits, right_lines(spec) if given >= last else "")


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


def start_from(puzzle: str, new: str = "") -> Answer:
    """Puts your own answer to a puzzle into a new cell below, renamed to ``new`` or, without it, to the next puzzle.

    It is the code that has passed last or, if none has, that of the puzzle's notebook in this folder as it was last
    saved. Raises PuzzleError for an unknown puzzle, and if there is no answer of yours.
    """
    old = find(getattr(puzzle, "__name__", puzzle))
    into = find(getattr(new, "__name__", new)) if new else after(old)
    if into is None:
        expected = f'the puzzle to begin, such as start_from("{old.name}", "fsdp")'
        raise PuzzleError(f"no puzzle comes after {old.name}", expected=expected, line="")
    path, passed = Path(f"{old.file}.ipynb"), Progress().answers.get(old.name, "")
    code = passed or answer_of(path, old.name)
    if not code:
        expected = f"a pass of it, or a function {old.name} in {path} in the same folder, saved"
        raise PuzzleError(f"there is no answer of yours to {old.name} here", expected=expected, line="")
    code = beginning(code, old, into)
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return Answer(code)
    shell.set_next_input(code)
    left = f"No answer to puzzle {old.number} has passed here: what was in {path} when it was last saved"
    return Answer(
        f"{f'Your answer to puzzle {old.number}' if passed else left} is in a new cell below, as `{into.name}`. "
        f"{'' if passed else 'Not yours? Save that notebook, and do this again. '}"
        "Run that cell, and not the blank above, from now on."
    )


def solution(puzzle: str, sure: bool = False) -> Answer:
    """The solution of a puzzle, explained: once you have solved it, or at any time with ``sure=True``.

    Raises PuzzleError for an unknown puzzle, and if the solutions are not here, as where they were taken out.
    """
    spec = find(getattr(puzzle, "__name__", puzzle))
    if spec.name in Progress().solved or sure:
        return Answer(explained(spec))
    return Answer(
        f"{spec.name} is not solved yet. `hint({spec.name!r})` gives the next hint. "
        f"If you are sure that you want to see the solution: `solution({spec.name!r}, sure=True)`"
    )
