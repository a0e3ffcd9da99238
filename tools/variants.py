"""Variants of puzzles, for another term: other sizes, other prices, and the targets that follow from them.

    python -m tools.variants DIR --seed fall-2027                  every puzzle that can be varied
    python -m tools.variants DIR --seed fall-2027 fsdp gpipe       some of them

It writes DIR/variants.json, for the grader (`grade --variants DIR/variants.json`), and a notebook for each variant,
which needs that file beside it. The same seed gives the same variants. A function keeps its name, its rules and its
hints. Size and prices are drawn from what the puzzle's text allows; solution and frontier are run with them, and what
they take makes target, star and frontier. A draw is thrown away in which these do not stand to each other as before.
At the end the solution has been graded, and passes.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from lib import PuzzleError, run
from lib.basics.saving import write_all
from lib.course.outlines import OUTLINES, PROGRAMS
from lib.course.sizes import other_sizes, show_size
from lib.course.specs import Puzzle, cost_named, cost_source, find, kept, puzzles
from lib.course.variants import use_variants
from lib.grading.judge import check, judge
from lib.grading.verdict import PASS
from lib.machine.cost import Cost, RingCost
from solutions.build.notebooks.around import STUCK
from solutions.build.notebooks.notebook import FIRST_CELL, of_cells
from solutions.build.runs.course import Course
from solutions.build.sources.files import BuildError, Cell, as_text
from solutions.build.sources.specs import check_order
from solutions.build.tables.outlined import outline_rows
from tools.tasks import blank, facts

Json = dict[str, Any]
DRAWS = 40  # of a puzzle, until one is as good as the puzzle
FACTORS = (Fraction(1, 2), Fraction(1), Fraction(2))
COMPUTE = ("backward", "update")
LINKS = ("collective", "collective_across", "send", "send_across", "receive", "allreduce", "allreduce_across")
RINGS = ("latency", "latency_across")
SPEEDS = ("bandwidth", "bandwidth_across")
SMALLER, LARGER = 0.4, 2.5  # times the work of the puzzle
NAMES = re.compile(r"\b[A-Z]\w+")


class NotVaried(Exception):
    """A puzzle of which no draw is as good as itself."""


def prices(name: str, size: Json, chance: random.Random) -> str:
    """Return a cost with other prices, of what a machine of this size has: all links are faster or slower together, so
    what is cheaper than what stays."""
    cost = cost_named(name)
    if type(cost) not in (Cost, RingCost):
        return name
    of_links, factors = chance.choice(FACTORS), {word: chance.choice(FACTORS) for word in COMPUTE}
    factors |= dict.fromkeys(LINKS + RINGS, of_links) | dict.fromkeys(SPEEDS, 1 / of_links)
    known = {word: getattr(cost, word) for word in factors if getattr(cost, word, None) and _counts(word, size)}
    changed = {word: _plain(price, factors[word]) for word, price in known.items()}
    others = {word: price for word, price in changed.items() if price != known[word]}
    if not others:
        return name
    base, _, before = name.rstrip(")").partition("(")
    assert not before, "a variant of a variant"
    return f"{base}({', '.join(f'{word}={json.dumps(price)}' for word, price in others.items())})"


def _counts(word: str, size: Json) -> bool:
    """Return whether a machine of this size has what a price is of."""
    if word in COMPUTE:
        return True
    return size["ranks"] > 1 and (not word.endswith("_across") or bool(size.get("node_size")))


def _plain(price: Any, factor: Fraction) -> int | float:
    new = Fraction(str(price)) * factor
    return int(new) if new.denominator == 1 else float(new)


def sizes(puzzle: Puzzle) -> list[Json]:
    """Return the sizes of a variant: those that the text allows, of about as much work, with more than one of all that
    the puzzle has more than one of; where there is none its own, of which the prices change."""
    own = puzzle.size

    def work(size: Json) -> int:
        return int(size["ranks"] * size["layers"] * size["batches"])

    def alike(size: Json) -> bool:
        several = all(size[word] > 1 or own[word] == 1 for word in ("ranks", "layers", "batches"))
        axes = all(count > 1 or own["mesh"][axis] == 1 for axis, count in (size.get("mesh") or {}).items())
        return several and axes and SMALLER <= work(size) / work(own) <= LARGER

    return [size for size in other_sizes(puzzle.other_sizes, own) if alike(size)] or [own]


def varied(puzzle: Puzzle, seed: str) -> Json:
    """Return the spec of a variant. Raise NotVaried if none is found."""
    chance = random.Random(f"{seed} {puzzle.name}")
    choices = sizes(puzzle)
    for _ in range(DRAWS):
        spec = kept("specs.json")[puzzle.name] | {"variant": seed, "size": chance.choice(choices)}
        spec["cost"] = prices(puzzle.cost, spec["size"], chance)
        if (spec["size"], spec["cost"]) != (puzzle.size, puzzle.cost) and (found := _with_targets(puzzle, spec)):
            return found
    raise NotVaried(puzzle.name)


def _with_targets(puzzle: Puzzle, spec: Json) -> Json | None:
    """Return a spec with target, star and frontier as its programs make them, or None where these do not fit."""
    known = _taken(Puzzle(**spec), [puzzle.name, *(point["by"] for point in puzzle.frontier)])
    starred = next((one for one in puzzle.frontier if puzzle.has_star(one["time"], one["memory"])), None)
    if puzzle.name not in known or (starred and starred["by"] not in known):
        return None
    at_home = dict(zip(("time", "memory"), _own_figures(puzzle), strict=True))
    spec["target"] = _loosened(known[puzzle.name], puzzle.target, at_home)
    if puzzle.star is not None and starred is not None:
        spec["star"] = _loosened(known[starred["by"]], puzzle.star, starred)
    points = [{**figures, "by": by} for by, figures in known.items() if _within(figures, spec["target"])]
    points.sort(key=lambda one: (one["time"], one["memory"]))
    spec["frontier"] = [one for at, one in enumerate(points) if all(one["memory"] < p["memory"] for p in points[:at])]
    try:
        check_order(Path(puzzle.file), spec)
    except BuildError:
        return None
    had_star = puzzle.has_star(at_home["time"], at_home["memory"])
    alike = Puzzle(**spec).has_star(**known[puzzle.name]) == had_star
    return spec if alike and (spec.get("star") == spec["target"]) == (puzzle.star == puzzle.target) else None


def _own_figures(puzzle: Puzzle) -> tuple[float, Any]:
    time, memory = kept(OUTLINES)[puzzle.name]["at_home"]
    return puzzle.scored(time, memory)


def _within(figures: Json, limits: Json) -> bool:
    return bool(figures["time"] <= limits["time"] and figures["memory"] <= limits["memory"])


def _taken(puzzle: Puzzle, names: Sequence[str]) -> dict[str, Json]:
    """Return the time and memory of these programs, of those that are right."""
    found: dict[str, Json] = {}
    course = Course([*puzzles().values()])
    for name in dict.fromkeys(names):
        try:
            program = course.solution(puzzle) if name == puzzle.name else course.program(puzzle, name)
            done = run(program, **puzzle.size, cost=cost_named(puzzle.cost))
            check(done, puzzle, puzzle.size)
        except PuzzleError:
            continue
        found[name] = dict(zip(("time", "memory"), puzzle.listed(*puzzle.scored(done.time, done.memory)), strict=True))
    return found


def _loosened(figures: Json, limits: Json, program: Json) -> Json:
    """Return limits that leave a program as much room as they did: exactly its figures, where they were exactly."""
    time, memory = (Fraction(str(limits[key])) / Fraction(str(program[key])) for key in ("time", "memory"))
    least, ticks = figures["time"], Fraction(str(figures["time"])) * time
    rounded = least if time == 1 else float(Fraction(math.ceil(ticks * 10), 10))
    return {"time": rounded, "memory": math.ceil(figures["memory"] * memory)}


# -- what is written -----------------------------------------------------------------------------------------------


def table(chosen: Sequence[Puzzle], seed: str) -> tuple[Json, list[str]]:
    """Return the contents of variants.json, and the names of puzzles that were not varied."""
    found: Json = {"seed": seed, "specs.json": {}, OUTLINES: {}, PROGRAMS: {}}
    left = []
    for puzzle in chosen:
        try:
            spec = varied(puzzle, seed)
        except NotVaried:
            left.append(puzzle.name)
            continue
        found["specs.json"][puzzle.name] = spec
        rows = outline_rows(Course([*puzzles().values()]), Puzzle(**spec))
        found[OUTLINES][puzzle.name], found[PROGRAMS][puzzle.name] = rows
    return found, left


def prove(names: Sequence[str]) -> None:
    """Grade the solution of each variant that is in use. Raise ValueError for one that does not pass."""
    for name in names:
        puzzle = find(name)
        solution, cost = Course([]).solution(puzzle), cost_named(puzzle.cost)
        verdict = judge(puzzle, lambda size: run(solution, **size, cost=cost))  # noqa: B023 - used at once
        if verdict.status != PASS:
            raise ValueError(f"the solution of {name} does not pass its variant: {verdict.message}")


def notebook(puzzle: Puzzle) -> Json:
    """Return the notebook of a variant that is in use."""
    size = ", ".join(f"{name}={value!r}" for name, value in puzzle.size.items())
    cost = "" if puzzle.cost == "default" else f", cost={cost_source(puzzle.cost)}"
    known = sorted({*NAMES.findall(cost)} & {"Cost", "RingCost"})
    real = sorted({*NAMES.findall(cost)} - {"Cost", "RingCost"})
    imports = ["from drawing import draw", f"from lib import {', '.join([*known, 'Model', 'grade', 'hint', 'run'])}"]
    imports += ["from lib.course.variants import use_variants"] + [f"from lib.real import {', '.join(real)}"] * bool(
        real
    )
    head = f"# Puzzle {puzzle.number}: {puzzle.title}, variant {puzzle.variant}\n\n"
    head += (
        f"The task and its rules are those of puzzle {puzzle.number}, `{puzzle.file}.ipynb`: read it first. Only its "
    )
    head += f"figures do not hold here.\n\n{facts(puzzle)}"
    code = blank(puzzle).partition("\n\n\n")[2].strip()
    cells = [
        Cell("markdown", head),
        Cell("code", FIRST_CELL),
        Cell("code", "\n".join([*imports, "", 'use_variants("variants.json")  # it lies beside this notebook'])),
        Cell("code", code),
        Cell("code", f"draw(run({puzzle.name}, {size}{cost}))"),
        Cell("code", f"# Right? Fast and small enough? At other sizes, too?\ngrade({puzzle.name})"),
        Cell("code", STUCK.format(name=puzzle.name)),
    ]
    return of_cells(cells, puzzle.file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the variants that a command line asks for. Return 0, 1 if some puzzles could not be varied, or 2."""
    parser = argparse.ArgumentParser(prog="python -m tools.variants", description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument(
        "puzzles", metavar="PUZZLE", nargs="*", help="names or numbers (all but programs to be repaired)"
    )
    parser.add_argument("--seed", required=True, help="any text, such as a term: the same text gives the same variants")
    options = parser.parse_intermixed_args(arguments)
    try:
        chosen = [find(name) for name in options.puzzles] or [one for one in puzzles().values() if not one.repair]
    except PuzzleError as error:
        print(error, file=sys.stderr)
        return 2
    found, left = table(chosen, options.seed)
    names, target = list(found["specs.json"]), options.folder / "variants.json"
    write_all({target: json.dumps(found) + "\n"})
    use_variants(target)
    prove(names)
    write_all({options.folder / f"{find(name).file}.ipynb": as_text(notebook(find(name)), 1) for name in names})
    for name in names:
        print(f"{name}: {show_size(find(name).size)}, {find(name).cost}")
    if left:
        print(f"Not varied, since no draw was as good as the puzzle: {', '.join(left)}", file=sys.stderr)
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
