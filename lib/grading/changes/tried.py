"""Runs a program with one small change after the other, until it passes.

What is found is true by trial: with that change alone the program passes, at the puzzle's size and at the others. A
program that is wrong by an idea, and not by a slip, has no such change. Nothing of the learner's is touched: each trial
is a program of its own, in names of its own.
"""

import gc
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial

from ...basics.units import Elements
from ...course.layouts import Size
from ...course.sizes import other_sizes
from ...course.specs import Puzzle, cost_named
from ...machine.outcome import Outcome
from ...running.limits import has_timers
from ...running.run import run
from ..judge import check, judge, over_target
from ..submission import Nowhere
from ..verdict import PASS, Verdict
from .edits import Edit, edits
from .program import Cell, Program
from .reached import reached
from .text import whole_statements

VARIABLE = "LLM_TRAINING_PUZZLES_SEARCH"
"""The environment variable that says how many seconds a search may take; 0 for none."""


def _seconds(said: str | None, otherwise: float) -> float:
    """Return the seconds that the variable says, or else those if it says no number.

    >>> _seconds("0", 2.0), _seconds("soon", 2.0), _seconds(None, 2.0), _seconds("-1", 2.0)
    (0.0, 2.0, 2.0, 0.0)
    """
    try:
        seconds = float(said or "")
    except ValueError:
        return otherwise
    return min(max(seconds, 0.0), MOST_SECONDS) if seconds == seconds else otherwise


MOST_SECONDS = 60.0
SECONDS = _seconds(os.environ.get(VARIABLE), 3.0)
"""Of processor time that a search may take, at most, beside the judging of what it finds."""
PATIENCE = 4
"""So many times as long on the clock, on a busy machine, or where a program sleeps."""
SHORT = 0.5
"""Seconds after which a trial that does not end is ended."""
FEW = 3
"""So many changes with which it is right at its own size are judged at all sizes, at most."""
LINE = re.compile(r"\bline (\d+)\b")
Made = Callable[[], Callable[..., object]]
"""Gives a learner's function, with a change or without, in names of its own."""
Costs = tuple[float, Elements]
"""The time and the memory of a run."""


def may_be_one_change(verdict: Verdict) -> bool:
    """Return whether a program is wrong in a way that one change may mend: not one that is only too slow or large. The
    bug of a program to be repaired is for the learner to find."""
    puzzle = verdict.puzzle
    return not puzzle.repair and verdict.right is False and verdict.error is not None and not verdict.too


def one_change(program: Program, puzzle: Puzzle, size: Size, line: str, seconds: float | None = None) -> str:
    """Return in a sentence the change with which a wrong program passes, or an empty text if none is found in time. It
    is wrong at this ``size``, and its error is about this ``line``. ``seconds``: of processor time, if not SECONDS."""
    seconds = SECONDS if seconds is None else seconds
    if not seconds or not has_timers():  # nobody would end a trial that never ends
        return ""
    near = [int(number) for number in LINE.findall(line)[:1]]
    left, judged = _Left(seconds), 0
    best: tuple[Costs, Cell, Edit] | None = None
    try:
        with _quietly():
            smallest = _smallest(program.function, puzzle, size, left)
            sizes = [smallest, *(one for one in (puzzle.size, size) if one != smallest)]
            if _costs_at(program.function, puzzle, sizes) and _judged(program.function, puzzle).right:
                return ""  # the text is not what has run: it was changed since, or it fails for what ran before it
            files = {cell.file for cell in program.cells}
            own_lines = reached(files, lambda: _costs_at(program.function, puzzle, sizes))
            every = ((cell, edit) for cell in program.cells for edit in edits(*program.around_cell(cell)))
            done = {cell.file: whole_statements(cell.source, own_lines[cell.file]) for cell in program.cells}
            found = [one for one in every if done[one[0].file] & one[1].lines(one[0].source)]
            for cell, edit in sorted(found, key=lambda one: one[1].order(near)):
                if not left or judged >= FEW or (best and edit.line != best[-1].line):
                    break
                made = partial(program.function, cell, edit)
                costs = _costs_at(made, puzzle, sizes)
                if costs is None or (best and costs >= best[0]):
                    continue
                if edit.keeps_lines(cell.source):
                    lines = reached(files, partial(_costs_at, made, puzzle, sizes))
                    if any(own_lines[file] - lines[file] for file in files):
                        continue  # it leaves a line without effect, and so hides what was meant
                judged += 1
                with left.stopped():
                    if _judged(made, puzzle).status == PASS:
                        best = costs, cell, edit  # of several in a line, what costs least
    except KeyboardInterrupt:
        pass  # who does not want to wait has the verdict all the same
    return _in_words(best[1].source, best[2]) if best else ""


class _Left:
    """The time that a search has left; false when there is none."""

    def __init__(self, seconds: float) -> None:
        self.end, self.latest = time.process_time() + seconds, time.monotonic() + PATIENCE * seconds

    def __bool__(self) -> bool:
        return time.process_time() < self.end and time.monotonic() < self.latest

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Count no processor time while this lasts."""
        begun = time.process_time()
        yield
        self.end += time.process_time() - begun


@contextmanager
def _quietly() -> Iterator[None]:
    """Say nothing of what trials print, nor of coroutines that a change leaves without their await."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with redirect_stdout(Nowhere()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            gc.collect()  # a coroutine in a cycle would print its complaint later
    finally:
        sys.unraisablehook = hook


def _smallest(made: Made, puzzle: Puzzle, size: Size, left: _Left) -> Size:
    """Return the smallest size at which a program is wrong, as it is at this one: there a trial takes the least."""
    smaller = [there for there in other_sizes(puzzle.other_sizes, puzzle.size) if _work(there) < _work(size)]
    for one in sorted(smaller, key=_work):
        if not left:
            break
        if _costs_at(made, puzzle, [one]) is None:
            return one
    return size


def _work(size: Size) -> int:
    return math.prod(int(size[part]) for part in ("ranks", "layers", "batches"))


def _costs_at(made: Made, puzzle: Puzzle, sizes: Sequence[Size]) -> Costs | None:
    """Return the time and memory of the function that ``made`` gives at the last of these sizes, if it is right at all
    of them, and within the target at the puzzle's own: a change that takes long is often an odd one, which hides what
    was meant."""
    try:
        function = made()
        for size in sizes:
            outcome = _run(function, puzzle, size, SHORT)
            check(outcome, puzzle, size)
            if size == puzzle.size and over_target(outcome, puzzle):
                return None
    except (Exception, SystemExit):  # of any kind: it is a program that nobody has written
        return None
    return outcome.time, outcome.memory


def _judged(made: Made, puzzle: Puzzle) -> Verdict:
    function = made()
    return judge(puzzle, lambda size: _run(function, puzzle, size, 4 * SHORT))


def _run(function: Callable[..., object], puzzle: Puzzle, size: Size, seconds: float) -> Outcome:
    return run(function, **size, cost=cost_named(puzzle.cost), timeout=seconds)


def _in_words(source: bytes, edit: Edit) -> str:
    """Return what to write, and what comes of it."""
    comes = "With this change alone it passes, which was tried."
    if edit.words:
        return f"in {edit.top}, {edit.words}. {comes}"
    before, behind = source.rfind(b"\n", 0, edit.start) + 1, source.find(b"\n", edit.end)
    rows = [text.decode() for text in (source[before:behind], edit.of(source[:behind])[before:])]
    old, new = (" ".join(row.strip() for row in text.split("\n")) for text in rows)
    return f"line {edit.line} in {edit.top}: {new}\nin place of: {old}\n{comes}"
