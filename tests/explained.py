"""What is explained in tests: systematic mistakes drawn by seed, and what is said of some of them, as data.

python -m tests.explained    write explained.json anew; read the difference before you keep it
"""

import ast
import json
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lib.course.specs import puzzles
from lib.explain.compare import nearest
from lib.explain.notes import noted
from lib.explain.statement import Explanation, as_json
from lib.grading.verdict import PASS, TODO
from tests.corpus.honest import HONEST
from tests.slow import EVERYTHING
from tools.localize import SOLUTION, Drawn, Tried, changed_lines, explained, loaded, quietly, references, tried
from tools.mistakes import Mistake, a_mistake, sources

FILE = Path(__file__).with_name("explained.json")
MECHANISMS: dict[str, Any] = json.loads(Path(__file__).with_name("mechanisms.json").read_text(encoding="utf-8"))
"""Changes of solutions, and what one of the statements on them says."""
SEED, EACH, TRIES = 2718, 5, 9  # mistakes for each puzzle, and how many are drawn until one fails
ALONE = 1  # which of them are explained beside no right run, too
TURNS = range(EACH) if EVERYTHING else (ALONE, EACH - 1)


class Row(NamedTuple):
    """A mistake, how it was graded, and its explanation beside the solution alone. ``turn``: of the puzzle's mistakes
    the last one is in an honest program of another style, the others are in the solution."""

    drawn: Drawn
    program: Tried
    explanation: Explanation
    turn: int


@cache
def table(anew: bool = False) -> list[Row]:
    """Return some mistakes for each puzzle. What is drawn for one puzzle depends on nothing of another one. Unless it
    is drawn ``anew``, what is not kept is not graded: it has passed."""
    rows, kept = [], json.loads(FILE.read_text(encoding="utf-8"))
    for name, solution in sources():
        styles = sorted((one.name, one.source) for one in HONEST if one.puzzle == name and "class " not in one.source)
        for turn in TURNS:
            chance = random.Random(f"{SEED} {name} {turn}")
            program, text = (SOLUTION, solution) if turn < EACH - 1 or not styles else chance.choice(styles)
            puzzle, text = puzzles()[name], ast.unparse(ast.parse(text))
            for mistake in (a_mistake(name, text, chance) for _ in range(TRIES)):
                if mistake is None or not (anew or title(mistake, turn) in kept):
                    continue
                with quietly():
                    fn = loaded(mistake.source, name)
                    graded = None if fn is None else tried(fn, puzzle, mistake.source)
                if graded is not None and graded.verdict.status not in (PASS, TODO):
                    drawn = Drawn(program, mistake, changed_lines(text, mistake.source))
                    rows.append(Row(drawn, graded, explained(graded, puzzle, SOLUTION), turn))
                    break
    return rows


def title(mistake: Mistake, turn: int) -> str:
    """Return the name under which an explanation is kept."""
    return f"{mistake.puzzle} {turn}: {mistake.line} {mistake.what}"


def right_recording(one: Drawn, program: Tried) -> dict[str, Any]:
    """Return the recording of the solution beside which a program is explained."""
    puzzle = puzzles()[one.mistake.puzzle]
    right, notes = references(puzzle, program.size, SOLUTION), noted(program.recording, program.size, puzzle.cost)
    found = nearest(notes, right, any_way=True)
    assert found is not None
    return dict(found.reference.recording)


@cache
def mechanism(name: str) -> Row:
    """Return a solution with the changes of a mechanism, how it was graded, and its explanation."""
    solution, changes = (MECHANISMS[name][part] for part in ("solution", "changes"))
    before = text = dict(sources())[solution]
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    puzzle = next(one for one in puzzles().values() if f"def {one.name}(" in text)
    with quietly():
        program = tried(loaded(text, puzzle.name), puzzle, text)
        drawn = Drawn(SOLUTION, Mistake(puzzle.name, name, name, text), changed_lines(before, text))
        return Row(drawn, program, explained(program, puzzle, SOLUTION), 0)


def golden(anew: bool = False) -> dict[str, Any]:
    """Return all explanations as data, by the program and what was done to it, and some beside no right run."""
    rows = {title(one.drawn.mistake, one.turn): one for one in (table(True) if anew else table())}
    alone = {name: one for name, one in rows.items() if one.turn == ALONE}
    alone |= {name: mechanism(name) for name in MECHANISMS}
    said = {name: as_json(one.explanation) for name, one in (rows | alone).items()}
    for name, one in alone.items():
        said[f"{name}, alone"] = as_json(explained(one.program, puzzles()[one.drawn.mistake.puzzle], "none"))
    return dict(json.loads(json.dumps(said)))


if __name__ == "__main__":
    lines = [
        json.dumps({name: row}, separators=(",", ":"), ensure_ascii=False)[1:-1] for name, row in golden(True).items()
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
