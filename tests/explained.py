"""What is explained in tests: systematic mistakes drawn by seed, and what is said of some of them, as data.

python -m tests.explained    write explained.json anew; read the difference before you keep it
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lib.course.specs import puzzles
from lib.explain.statement import Explanation, as_json
from lib.grading.verdict import PASS, TODO
from tools.localize import SOLUTION, Drawn, Tried, drawn, explained, loaded, quietly, references, tried

FILE = Path(__file__).with_name("explained.json")
SEED, COUNT, GOLDEN = 2718, 150, 30


def failing(seed: int) -> Iterator[tuple[Drawn, Tried]]:
    """Yield mistakes that fail, with how they were graded."""
    for one in drawn(seed):
        puzzle = puzzles()[one.mistake.puzzle]
        with quietly():
            fn = loaded(one.mistake.source, puzzle.name)
            program = None if fn is None else tried(fn, puzzle, one.mistake.source)
        if program is not None and program.verdict.status not in (PASS, TODO):
            yield one, program


@cache
def table() -> list[tuple[Drawn, Tried, Explanation]]:
    """Return mistakes with their explanations, each beside the solution alone."""
    rows = []
    for one, program in failing(SEED):
        puzzle = puzzles()[one.mistake.puzzle]
        rows.append((one, program, explained(program, puzzle, SOLUTION)))
        if len(rows) == COUNT:
            break
    return rows


def right_recording(one: Drawn, program: Tried) -> dict[str, Any]:
    """Return the recording of the solution beside which a program is explained."""
    [reference] = references(puzzles()[one.mistake.puzzle], program.size, SOLUTION)
    return dict(reference.recording)


def golden() -> dict[str, Any]:
    """Return the explanations of the first mistakes, as data, by what was done to which program."""
    rows = {}
    for one, _, explanation in table()[:GOLDEN]:
        what = f"{one.mistake.puzzle}, {one.program}: {one.mistake.line} {one.mistake.what}"
        rows[what] = json.loads(json.dumps(as_json(explanation)))
    return rows


if __name__ == "__main__":
    FILE.write_text(json.dumps(golden(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
