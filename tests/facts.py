"""What the judge says of every program of the corpus that ends, as facts: no sentence is among them.

    python -m tests.facts             write facts.json anew; read the difference before you keep it
    python -m tests.facts --check 10  name what differs, of one program in ten (of those that take long in thirty)

A row has the status, the size at which it failed where that is not the puzzle's own, the place of the error, the number
of the line, and time and memory at the puzzle's own size. A program that is right within the target passes, whatever
list of the corpus it is in.
"""

import io
import json
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from lib.course.specs import cost_named, puzzles
from lib.grading.judge import judge
from lib.grading.notebook import Recorded
from lib.grading.submission import load
from lib.grading.verdict import Verdict
from tests.corpus import Program
from tests.corpus.honest import HONEST
from tests.corpus.mistakes import MISTAKES
from tests.corpus.told import told

FILE = Path(__file__).with_name("facts.json")
SECONDS = 120.0
"""The limit of a run, also where the machine is busy."""
LONG = ("compose", "ring_attention")
"""Puzzles of which a verdict takes seconds."""


def title(program: Program) -> str:
    return f"{program.puzzle}: {program.name}"


@cache
def kept() -> dict[str, list[Any]]:
    """The rows that are kept, by title."""
    return json.loads(FILE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@cache
def graded(program: Program) -> Verdict | None:
    """The verdict on a program in this process. None: what it calls a function is none."""
    puzzle = puzzles()[program.puzzle]
    with redirect_stdout(io.StringIO()):
        fn = load("attempt.py", program.source)[0][program.puzzle]
        if not callable(fn):
            if hasattr(fn, "close"):
                fn.close()
            return None
        runs = Recorded(fn, cost_named(puzzle.cost), SECONDS)
        return judge(puzzle, runs.run, runs.latest)


def facts(program: Program) -> list[Any]:
    """The row of a program."""
    verdict = graded(program)
    return ["no function"] if verdict is None else of(verdict)


def of(verdict: Verdict) -> list[Any]:
    """The row of a verdict."""
    place, number = "", None
    if verdict.error is not None:
        where = verdict.error.place
        place = str(where._replace(tick=None, detail=""))
        ours = Path(__file__).name in verdict.error.line  # where no line is the program's
        line = None if ours else re.match(r"line (\d+)", verdict.error.line)
        number = line and int(line[1])
    memory = None if verdict.memory is None else str(verdict.memory)
    return [verdict.status, verdict.failed_at, place, number, verdict.time, memory]


def row(program: Program) -> str:
    """The row of a program as a line of the file, without the comma."""
    return f"{json.dumps(title(program), ensure_ascii=False)}: {json.dumps(facts(program))}"


def differences(programs: Sequence[Program]) -> list[str]:
    """The lines of these programs that are not in the file."""
    lines = {line.rstrip(",") for line in FILE.read_text(encoding="utf-8").splitlines()}
    return [one for one in map(row, programs) if one not in lines]


def some(every: int) -> list[Program]:
    """One program in so many, and where a verdict takes seconds one in thrice as many."""
    known = [*HONEST, *MISTAKES, *told()]
    long = [one for one in known if one.puzzle in LONG]
    return [*[one for one in known if one.puzzle not in LONG][::every], *(long[:: 3 * every] if every > 1 else long)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        found = differences(some(int(sys.argv[2])))
        print("\n".join(found))
        sys.exit(bool(found))
    FILE.write_text("{\n" + ",\n".join(map(row, [*HONEST, *MISTAKES, *told()])) + "\n}\n", encoding="utf-8")
