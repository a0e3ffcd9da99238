"""The board, a page on which a pipeline schedule is moved by hand: its files in one, with what is known of its levels.

A level's machine, its words, its start and its goal stand in drawing/board/levels.json, with the best order that is
known, or one that reaches the goal. What such an order takes is run here, and the bound is that of a search.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lib import Cost, Run, run, schedule
from lib.course.specs import cost_named
from lib.schedules.rows import read_rows
from lib.schedules.task import PLACEMENTS, Task

from ..notebooks.address import new_issue, site_of
from ..runs.course import Course
from .gallery_page import head

PAGE, SOURCE = "board.html", Path("drawing", "board")
SCRIPTS = ("engine", "orders", "text", "picture", "hands")
NAMED = (
    ("interleaved", "interleaved", "interleaved", "ring"),
    ("ZB-H1", "zero_bubble", "zb_h1", "line"),
    ("ZB-V", "zbv", "zb_v", "v"),
)
"""Orders with a name: it, its puzzle, the program there that has this order, and where the stages lie."""
DUALPIPE = "DualPipeV"


def board(course: Course, where: str = "") -> Iterator[tuple[str, str]]:
    """The name of the page in puzzles/, and its text. ``where``: the address of the project, if it has one."""
    folder = course.folder.parent / SOURCE
    if not folder.exists():
        return
    known = [*_known(course)]
    given = {"LEVELS": [*levels(folder)], "KNOWN": known, "SITE": site_of(where), "ISSUES": new_issue(where)}
    stored = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    scripts = "\n".join((folder / f"{name}.js").read_text(encoding="utf-8").strip() for name in SCRIPTS)
    plain = re.sub(r"^\s*//.*\n", "", scripts.replace('"use strict";\n', ""), flags=re.MULTILINE)
    page = (folder / "page.html").read_text(encoding="utf-8")
    home = f' · <a href="{site_of(where)}">The course</a>' if where else ""
    page = page.replace("<!--head-->", head(where)).replace("<!--home-->", home)
    yield PAGE, page.replace("/*scripts*/", f'"use strict";\n{stored}{plain}')


def levels(folder: Path) -> Iterator[dict[str, Any]]:
    """The levels, with the machine's words for what their orders take."""
    for level in json.loads((folder / "levels.json").read_text(encoding="utf-8")):
        machine = level["machine"] = {**FREE, **level["machine"]}
        done = played(level["best"], machine)
        best = {"rows": level["best"], "time": done.time, "memory": done.memory}
        bound = None if machine["overlapped"] else float(task_of(machine).bound())  # a search knows of no pairs
        yield {**level, "best": best, "bound": bound, "puzzle": f"{level['puzzle']}.ipynb"}


FREE = {"ranks": 4, "batches": 8, "place": "line", "halves": 0, "backward": 1, "message": 0, "overlapped": 0, "cap": 0}
"""What a level's machine is unless it says something else."""


def cost_of(machine: Mapping[str, Any]) -> Cost:
    """The prices of a machine of the board."""
    ends = machine["message"]
    return Cost(backward=machine["backward"], send=ends, receive=ends, overlapped=machine["overlapped"])


def task_of(machine: Mapping[str, Any]) -> Task:
    """What a search would look for on it."""
    ranks, batches, cap = machine["ranks"], machine["batches"], machine["cap"] or None
    return Task(machine["place"], ranks, batches, cost_of(machine), bool(machine["halves"]), cap)


def played(tokens: str, machine: Mapping[str, Any]) -> Run:
    """The run of an order."""
    plan = schedule(rows_of(tokens, PLACEMENTS[machine["place"]](machine["ranks"])))
    return run(plan, plan.ranks, plan.stages, plan.micro_batches, cost=cost_of(machine))


def rows_of(tokens: str, rank_of: list[int]) -> str:
    """An order that is written as a letter for each piece of work, as rows that ``schedule`` reads."""
    rows = []
    for rank, line in enumerate(tokens.split("/")):
        mine, count, row = [at for at, own in enumerate(rank_of) if own == rank], dict[str, int](), list[str]()
        for _, letters in re.findall(r"(\+?)((?<=\+)..|.)", line):
            both = []
            for letter in letters:
                both.append(f"{mine[letter.islower()]}{letter.upper()}{count.get(letter, 0)}")
                count[letter] = count.get(letter, 0) + 1
            row.append("_".join(both))
        rows.append(",".join(row))
    return "\n".join(rows) + "\n"


def tokens_of(rows: str) -> str:
    """The letters of rows whose work comes in the order of micro-batches."""
    _, read = read_rows(rows)
    lowest = [min(part.stage for cell in row for part in cell.action.parts()) for row in read]

    def letter(kind: str, stage: int, rank: int) -> str:
        return kind if stage == lowest[rank] else kind.lower()

    return "/".join(
        "".join(
            "+" * bool(cell.action.both) + "".join(letter(one.kind, one.stage, rank) for one in cell.action.parts())
            for cell in row
        )
        for rank, row in enumerate(read)
    )


def _known(course: Course) -> Iterator[dict[str, Any]]:
    """Orders that have a name, for the board's usual sizes, as the course's solutions give them."""
    puzzles = {puzzle.name: puzzle for puzzle in course.puzzles}
    for name, puzzle, program, place in NAMED:
        for ranks, batches in ((2, 4), (4, 8)):
            done = run(course.program(puzzles[puzzle], program), ranks, len(PLACEMENTS[place](ranks)), batches)
            yield _named(name, place, ranks, batches, done, halves=int(place != "ring"), overlapped=0)
    for ranks, batches in ((2, 4), (4, 8)):
        from_both_ends, mesh = course.solution(puzzles["dualpipe"]), {"half": 2, "place": ranks}
        both = run(from_both_ends, 2 * ranks, 4 * ranks, 2 * batches, mesh=mesh, cost=cost_named("pairs"))
        yield _named(DUALPIPE, "v", ranks, batches, both, halves=1, overlapped=1)


def _named(name: str, place: str, ranks: int, batches: int, done: Run, halves: int, overlapped: int) -> dict[str, Any]:
    machine = {"ranks": ranks, "batches": batches, "place": place, "halves": halves, "overlapped": overlapped}
    return {"name": name, "machine": machine, "rows": tokens_of(done.schedule())}
