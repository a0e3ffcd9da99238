"""Runs a program with one small change after the other, until it is right.

What is found is true by trial: with that change alone the program is right at the puzzle's size and at the others. A
program that is wrong by an idea, and not by a slip, has no such change. Nothing of the learner's is touched: each trial
is a program of its own, in names of its own.
"""

import ast
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from typing import NamedTuple

from ...course.layouts import Size
from ...course.specs import Puzzle
from ...machine.outcome import Outcome
from ..judge import check, judge
from ..submission import EXPERIMENTS, Nowhere
from ..verdict import PASS, Verdict
from .edits import DEFINITIONS, Edit, edits

SECONDS = 2.0
"""Of processor time that a search may take, at most, beside the judging of what it finds."""
SHORT = 0.5
"""Seconds after which a trial that does not end is ended."""
FEW = 3
"""So many changes that are right at one size are judged at all sizes, at most."""
LINE = re.compile(r"\bline (\d+)\b")

Run = Callable[[Callable[..., object], Size, float], Outcome]
"""Runs a function at a size, for so many seconds at most. Raises PuzzleError if it fails."""


class Program(NamedTuple):
    """What a function is made of: the text of its cell or file without all else, and the names around it."""

    source: bytes
    name: str
    wanted: frozenset[str]
    around: Mapping[str, object]

    @classmethod
    def of(cls, text: str, name: str, around: Mapping[str, object]) -> "Program | None":
        """Return the program of a function in a text, or None where the text does not define it."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        given = {made: one for one in tree.body for made in _made(one)}
        if not isinstance(given.get(name), DEFINITIONS):
            return None
        wanted, new = {name}, {name}
        while new:
            new = {node.id for one in new for node in ast.walk(given[one]) if isinstance(node, ast.Name)}
            new = (new & given.keys()) - wanted
            wanted |= new
        own = {at for one in wanted for at in _rows(given[one])}
        rows = text.split("\n")
        kept = "\n".join(row if at in own else "" for at, row in enumerate(rows, 1))
        return cls(kept.encode(), name, frozenset(wanted), around)

    def function(self, file: str, edit: Edit | None = None) -> Callable[..., object]:
        """Return the function, with a change or without, in names of its own. Raise whatever its text raises."""
        source = edit.of(self.source) if edit is not None else self.source
        names = dict(self.around)
        exec(compile(source, file, "exec", dont_inherit=True), names)
        function = names[self.name]
        assert callable(function)
        return function


def one_change(program: Program, file: str, puzzle: Puzzle, verdict: Verdict, size: Size, run: Run) -> str:
    """Return in a sentence the change that makes a wrong program right, or an empty text if none is found in time.
    ``verdict``: the one on the program as it is, which was wrong at this ``size``."""
    near = [int(number) for number in LINE.findall(str(verdict.error and verdict.error.line))]
    best, judged, end = "", 0, time.process_time() + SECONDS
    try:
        with redirect_stdout(Nowhere()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coroutines that a change leaves without their await
            for edit in edits(program.source, program.wanted, near):
                if time.process_time() > end or judged >= FEW:
                    break
                if not _is_right_at(program, file, puzzle, edit, size, run):
                    continue
                begun, judged = time.process_time(), judged + 1
                then = _judged(program, file, puzzle, edit, run)
                end += time.process_time() - begun
                if then.right and (then.status == PASS or not best):
                    best = _in_words(program.source, edit, then)
                if then.status == PASS:
                    break
    except KeyboardInterrupt:
        pass  # who does not want to wait has the verdict all the same
    return best


def _is_right_at(program: Program, file: str, puzzle: Puzzle, edit: Edit, size: Size, run: Run) -> bool:
    try:
        check(run(program.function(file, edit), size, SHORT), puzzle, size)
    except (Exception, SystemExit):  # of any kind: it is a program that nobody has written
        return False
    return True


def _judged(program: Program, file: str, puzzle: Puzzle, edit: Edit, run: Run) -> Verdict:
    function = program.function(file, edit)
    return judge(puzzle, lambda size: run(function, size, 4 * SHORT))


def _in_words(source: bytes, edit: Edit, then: Verdict) -> str:
    """Return what to write, and what comes of it."""
    puzzle = then.puzzle
    if then.status == PASS:
        comes = "With this change alone it passes, which was tried."
    else:
        assert then.time is not None and then.memory is not None
        figures = " and ".join(puzzle.describe(then.time, then.memory))
        comes = f"With this change alone it is right, which was tried: {figures}."
    if edit.words:
        return f"{edit.words}. {comes}"
    old, new = (text.decode().split("\n")[edit.line - 1].strip() for text in (source, edit.of(source)))
    return f"line {edit.line}: {new}\nin place of: {old}\n{comes}"


def _made(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a cell gives, if it can be run again for a trial."""
    if isinstance(statement, DEFINITIONS):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
        called = {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)}
        if called.isdisjoint(EXPERIMENTS):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _rows(statement: ast.stmt) -> range:
    """Return the numbers of the lines of a statement, with those of its decorators."""
    assert statement.end_lineno is not None
    first = [one.lineno for one in getattr(statement, "decorator_list", [])]
    return range(min([statement.lineno, *first]), statement.end_lineno + 1)
