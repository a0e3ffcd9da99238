"""Whether explanations lead: of systematic mistakes, in what share is the changed line named, or the verb left out?

    python -m tools.localize [--count 400] [--seed 0] [--only fsdp,gpipe] [--json FILE] [--missed]

Mistakes (see ``tools.mistakes``) are drawn from solutions and from the honest programs of tests/corpus. Each program is
graded by its recording, and explained three times: beside all honest programs but the changed one, beside the solution
alone, and with no reference. A line counts as named if the explanation has it, in whatever sentence, or the error; the
verb of a call that was left out, if a sentence on right runs has it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import io
import json
import random
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from lib.basics.errors import PuzzleError
from lib.course.layouts import Size
from lib.course.specs import Puzzle, machine_of, puzzles
from lib.explain.compare import Reference
from lib.explain.explanation import explain, facts_of
from lib.explain.notes import Line, noted
from lib.explain.statement import OWN, RIGHT, CallFact, Explanation, TensorFact
from lib.grading.judge import check, judge, over_target
from lib.grading.verdict import PASS, TODO, Verdict
from lib.machine.outcome import Outcome
from lib.record.labels import Labels
from lib.recording.recorder import recorded_run
from tests.corpus.honest import HONEST
from tools.mistakes import Mistake, a_mistake, sources

TIMEOUT = 20.0  # seconds of a run
MOST_REFERENCES = 14
SOLUTION = "solution"
MODES = ("all", SOLUTION, "none")
OF_SOLUTIONS = 0.6  # the share of mistakes in solutions


class Drawn(NamedTuple):
    """A program with one mistake: which program was changed, how, and which of its lines were."""

    program: str
    mistake: Mistake
    lines: frozenset[int]


class Tried(NamedTuple):
    """A program as it was graded: its verdict, and of the run that decided it the size, the recording and the error."""

    verdict: Verdict
    size: Size
    recording: dict[str, Any]
    error: Any
    source: str


def changed_lines(before: str, after: str) -> frozenset[int]:
    """Return the lines of a program that are others than before; where lines were left out, those around; of a line
    that stands there twice, both."""
    found: set[int] = set()
    own, new = before.split("\n"), after.split("\n")
    for tag, _, _, begin, end in difflib.SequenceMatcher(None, own, new, autojunk=False).get_opcodes():
        if tag != "equal":
            found |= {*range(begin + 1, end + 1)} or {begin, begin + 1}
            found |= {line - 1 for line in found if line > 1 and new[line - 2] == new[line - 1]}
            found |= {line + 1 for line in found if line < len(new) and new[line] == new[line - 1]}
    return frozenset(found)


def drawn(seed: int, only: Sequence[str] = ()) -> Iterator[Drawn]:
    """Yield mistakes in solutions and in honest programs of other styles, for ever, as the seed decides."""
    chance = random.Random(seed)
    solutions = [(SOLUTION, name, ast.unparse(ast.parse(text))) for name, text in sources() if not only or name in only]
    known = {name for _, name, _ in solutions}
    styles = [
        (one.name, one.puzzle, one.source)
        for one in HONEST
        if one.puzzle in known and "class " not in one.source and one.name != "as it is"
    ]
    while True:
        program, puzzle, text = chance.choice(solutions if chance.random() < OF_SOLUTIONS or not styles else styles)
        text = ast.unparse(ast.parse(text))
        if mistake := a_mistake(puzzle, text, chance):
            yield Drawn(program, mistake, changed_lines(text, mistake.source))


def loaded(source: str, name: str, file: str = "answer.py") -> Any:
    """Return what a program defines under a name, or None where it does not load."""
    names: dict[str, Any] = {"__name__": "answer"}
    try:
        exec(compile(source, file, "exec"), names)
    except Exception:
        return None
    return names.get(name)


def tried(fn: Any, puzzle: Puzzle, source: str) -> Tried:
    """Grade a function by its recordings, and return what decided the verdict."""
    kept: list[tuple[Size, dict[str, Any], PuzzleError | None]] = []

    def run(size: Size) -> Outcome:
        recording, error = recorded_run(fn, machine_of(size, puzzle.cost), size["layers"], size["batches"], TIMEOUT)
        kept.append((size, recording, error))
        if error is not None:
            raise error
        notes = noted(recording, size, puzzle.cost)
        if notes.outcome is None:
            raise PuzzleError("the run has no outcome", line="")
        return notes.outcome

    verdict = judge(puzzle, run)
    size, recording, error = kept[-1]
    return Tried(verdict, size, recording, error or verdict.error, source)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Let nothing be printed, and nobody be warned."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def _right(puzzle_name: str, size_text: str, name: str, within: bool) -> Reference | None:
    """Return the recording of the solution, or of an honest program, at a size; None where it is not right there, or
    not ``within`` the target."""
    puzzle = puzzles()[puzzle_name]
    size: Size = json.loads(size_text)
    if name == SOLUTION:
        fn: Any = getattr(import_module(f"solutions.{puzzle.file}"), puzzle.name)
    else:
        [source] = [one.source for one in HONEST if (one.puzzle, one.name) == (puzzle_name, name)][:1]
        fn = loaded(source, puzzle_name, "reference.py")
    try:
        with quietly():
            recording, error = recorded_run(fn, machine_of(size, puzzle.cost), size["layers"], size["batches"], TIMEOUT)
            outcome = noted(recording, size, puzzle.cost).outcome
            if error is not None or outcome is None:
                return None
            check(outcome, puzzle, size)
    except Exception:  # what an honest program does at other sizes is its own affair
        return None
    over = bool(over_target(outcome, puzzle)) if size == puzzle.size else False
    return Reference(name, recording, size, puzzle.cost) if not (over and within) else None


def references(puzzle: Puzzle, size: Size, mode: str, but: str = "", within: bool = False) -> list[Reference]:
    """Return the recordings of right programs at a size: all but one, or the solution alone, or none. ``within``: of
    those only that are within the target, as slower and larger runs are compared with these."""
    names = [one.name for one in HONEST if one.puzzle == puzzle.name and one.name != "as it is"]
    chosen = {"none": [], SOLUTION: [SOLUTION], "all": [name for name in [SOLUTION, *names] if name != but]}[mode]
    found: dict[str, Reference] = {}  # by what they call: many do the same
    for name in chosen:
        if len(found) < MOST_REFERENCES and (one := _right(puzzle.name, json.dumps(size), name, within)) is not None:
            found.setdefault(json.dumps(one.recording["calls"]), one)
    return [*found.values()]


def explained(one: Tried, puzzle: Puzzle, mode: str, but: str = "") -> Explanation:
    """Return the explanation of a program that was tried."""
    right = references(puzzle, one.size, mode, but, within=one.error is None)
    return explain(one.recording, one.error, right, one.size, puzzle.cost, one.source, puzzle.size)


def lines_of(explanation: Explanation, error: Any) -> set[int]:
    """Return the lines that an explanation names, with that of the error."""
    return lines_in([said.facts for said in explanation.statements()]) | (
        {facts_of(error).line} if error is not None and facts_of(error).line else set()
    )


def lines_in(thing: Any) -> set[int]:
    """Return the numbers of the learner's lines in the facts of statements."""
    if isinstance(thing, Line):
        return {thing.number} - {0}
    if getattr(thing, "run", OWN) == RIGHT or isinstance(thing, (str, Labels)):
        return set()
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (tuple, list)) else ()
    return set[int]().union(*map(lines_in, parts))


def verbs_of(explanation: Explanation) -> set[str]:
    """Return the verbs of right runs that an explanation names."""
    found: set[str] = set()

    def look(thing: Any) -> None:
        if isinstance(thing, CallFact):
            if thing.run == RIGHT:
                found.add(thing.kind)
        elif isinstance(thing, TensorFact):
            look(thing.maker)
            look(thing.source)
        elif isinstance(thing, (tuple, list)):
            for part in thing:
                look(part)

    for said in explanation.statements():
        look(list(said.facts.values()))
        found |= {"set_final_weight"} if said.name == "no_final" else set()
    return found


def leads(one: Drawn, explanation: Explanation, error: Any) -> bool:
    """Return whether an explanation names the changed line, or the verb left out."""
    if one.mistake.what == "left out":
        verb = re.search(r"model\.(\w+)\(", one.mistake.line)
        return verb is not None and verb[1] in verbs_of(explanation)
    return bool(one.lines & lines_of(explanation, error))


def main(arguments: list[str] | None = None) -> None:
    """Draw mistakes, explain them, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="puzzles, by name, with commas between")
    parser.add_argument("--json", default="", help="a file for all of them, as a list")
    parser.add_argument("--missed", action="store_true", help="print those that are not named")
    options = parser.parse_args(arguments)
    hits: dict[str, Counter[str]] = defaultdict(Counter)
    named: dict[str, Counter[int]] = defaultdict(Counter)
    passed, rows = 0, []
    for one in drawn(options.seed, [name for name in options.only.split(",") if name]):
        if sum(hits["of"].values()) >= options.count:
            break
        puzzle = puzzles()[one.mistake.puzzle]
        with quietly():
            fn = loaded(one.mistake.source, puzzle.name)
            program = None if fn is None else tried(fn, puzzle, one.mistake.source)
        if program is None or program.verdict.status in (PASS, TODO):
            passed += 1
            continue
        what = f"{'solution' if one.program == SOLUTION else 'style':9} {one.mistake.what}"
        hits["of"][what] += 1
        row: dict[str, Any] = {**one.mistake._asdict(), "program": one.program, "lines": sorted(one.lines)}
        for mode in MODES:
            explanation = explained(program, puzzle, mode, one.program)
            right = leads(one, explanation, program.error)
            hits[mode][what] += right
            named[mode][len(lines_of(explanation, program.error))] += 1
            row[mode] = right
            if not right and options.missed and mode == "all":
                print_missed(one, program, explanation)
        rows.append(row)
    report(hits, named, passed)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


def print_missed(one: Drawn, program: Tried, explanation: Explanation) -> None:
    """Print an explanation that does not name what was changed."""
    print(f"--- {one.mistake.puzzle} ({one.program}): {one.mistake.line} {one.mistake.what}, line {sorted(one.lines)}")
    print("   ", program.verdict.failed_at, str(program.error).partition("\n")[0] if program.error else "over")
    for said in explanation.statements():
        print(
            "   ", said.name, sorted(lines_in(said.facts)), {key: str(thing)[:150] for key, thing in said.facts.items()}
        )


def report(hits: dict[str, Counter[str]], named: dict[str, Counter[int]], passed: int) -> None:
    """Print in what share the explanations lead, by kind of mistake."""
    print(f"{'mistake':40} {'of':>4} " + " ".join(f"{mode:>9}" for mode in MODES))
    for what, count in sorted(hits["of"].items()):
        print(f"{what:40} {count:4} " + " ".join(f"{hits[mode][what]:9}" for mode in MODES))
    whole = sum(hits["of"].values())
    for kind in ("", "solution", "style"):
        own = sum(count for what, count in hits["of"].items() if what.startswith(kind))
        shares = [sum(count for what, count in hits[mode].items() if what.startswith(kind)) for mode in MODES]
        if own:
            print(f"{kind or 'all':40} {own:4} " + " ".join(f"{100 * one / own:8.1f}%" for one in shares))
    lines = [sum(many * times for many, times in named[mode].items()) / (whole or 1) for mode in MODES]
    print(f"{'lines named, on the average':45} " + " ".join(f"{one:9.1f}" for one in lines))
    print(f"besides, {passed} programs pass all the same, or do not load")


if __name__ == "__main__":
    import_module("drawing")
    main()
