"""The figures of a puzzle, from its spec cell, and whether they are as they have to be."""

import ast
import re
from itertools import pairwise
from pathlib import Path

from lib.course.ideas import IDEAS
from lib.course.layouts import LAYOUTS, WITH_ADAPTERS
from lib.course.sizes import SIZES
from lib.course.specs import COSTS
from lib.record.table import grantable

from .blanks import check_markers
from .files import REPAIRS, BuildError, Json, read_cells, tagged

TAG = "spec"
FIGURES = {"time": (int, float), "memory": (int,)}
SIZE = {"ranks": (int,), "layers": (int,), "batches": (int,)}
MORE_SIZE = {
    "mesh": (dict,),
    "node_size": (int,),
    "hosts": (int,),
    "experts": (int,),
    "train": (str,),
    "links": (str,),
    "tokens": (list,),
    "quiet": (bool,),
    "tied": (bool,),
}
SPEC = {
    "number": (int, str),
    "name": (str,),
    "title": (str,),
    "size": (dict,),
    "other_sizes": (str,),
    "target": (dict,),
    "frontier": (list,),
    "layout": (str,),
    "ideas": (list,),
    "difficulty": (str,),
    "minutes": (int,),
    "hints": (list,),
}
"""The keys of a spec cell, all required, and their types."""
OPTIONAL = {
    "cost": (str,),
    "star": (dict,),
    "hints_for": (dict,),
    "star_hint": (str,),
    "begins_with": (str,),
    "tensor": (int,),
    "words": (list,),
}
"""Keys that a spec cell may have: without ``cost``, the machine's is the default one; a repair has no ``star``;
``hints_for`` says with which hint (from 1) to begin for a program that is right but slow, or large; ``star_hint`` is
a question for whoever has passed without the star, of each puzzle whose star is more than its target; ``begins_with``
names the puzzle whose answer is a good beginning, where that is not the one before; ``tensor`` is in how many pieces
generators have a weight, in a layout with generators; ``words`` are the operations and
options that it grants besides those that every puzzle has."""
OVER = {"slow": (int,), "large": (int,)}
WORDS = {
    "layout": (*LAYOUTS, *WITH_ADAPTERS),
    "other_sizes": tuple(SIZES),
    "ideas": tuple(IDEAS),
    "cost": tuple(COSTS),
    "words": grantable(),
    "difficulty": ("easy", "medium", "hard"),
}
"""Keys whose values are words, or lists of words, and the words that are known."""
HINTS = 3
"""So many are given for each puzzle, a program to be repaired among them."""


def specs_of(path: Path) -> list[Json]:
    """The figures of a source's puzzles, from their spec cells, and where they are from."""
    cells = read_cells(path)
    found = [_spec(path, cell) for cell in tagged(cells, TAG)]
    if len(found) != 1 and path.stem != REPAIRS:
        raise BuildError(f'{path.name}: exactly one cell with tags=["spec"] is needed, {len(found)} found')
    for puzzle in found:
        _check_name(path, puzzle["number"], puzzle["name"])
    check_markers(path, cells, found)
    return [{**puzzle, "file": path.stem} for puzzle in found]


def literal(path: Path, source: str) -> Json:
    """What a spec cell says, as it stands there."""
    match ast.parse(source).body:
        case [ast.Assign(targets=[ast.Name(id="PUZZLE")], value=ast.Dict() as value)]:
            pass
        case _:
            raise BuildError(f"{path.name}: the spec cell must be PUZZLE = {{...}} and nothing else")
    try:
        found: Json = ast.literal_eval(value)
    except ValueError as error:
        raise BuildError(f"{path.name}: PUZZLE must be a plain literal ({error})") from None
    return found


def _spec(path: Path, source: str) -> Json:
    found = literal(path, source)
    _check_keys(path, "PUZZLE", found, SPEC, OPTIONAL)
    _check_keys(path, 'PUZZLE["size"]', found["size"], SIZE, MORE_SIZE)
    for key in ("target", "star"):
        if key in found:
            _check_keys(path, f'PUZZLE["{key}"]', found[key], FIGURES)
    for point in found["frontier"]:
        _check_keys(path, 'PUZZLE["frontier"]', point, {**FIGURES, "by": (str,)})
    _check_keys(path, 'PUZZLE["hints_for"]', found.get("hints_for", {}), {}, OVER)
    check_order(path, found)
    _check_words(path, found)
    if (found["layout"] == "trainers_and_generators") != (found.get("tensor", 0) > 0):
        raise BuildError(f'{path.name}: a layout with generators, and no other, names "tensor", from 1 up')
    _check_hints(path, found)
    return found


def check_order(path: Path, found: Json) -> None:
    """The target is the loosest, then comes the star, which a point of the frontier reaches, then the frontier."""
    figures = [(point["time"], point["memory"]) for point in found["frontier"]]
    smaller = all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(figures))
    if not figures or not smaller:
        raise BuildError(f"{path.name}: the frontier goes from fast to small, each point smaller")
    target: Json = found["target"]
    star: Json = found.get("star", target)
    if any(time > target["time"] or memory > target["memory"] for time, memory in figures):
        raise BuildError(f"{path.name}: a point of the frontier is over the target")
    if any(star[key] > target[key] for key in FIGURES):
        raise BuildError(f"{path.name}: the star is over the target")
    if not any(time <= star["time"] and memory <= star["memory"] for time, memory in figures):
        raise BuildError(f"{path.name}: no point of the frontier reaches the star")


def _check_name(path: Path, number: object, name: str) -> None:
    """The number and the name of a puzzle are those of its file; repairs share one."""
    if path.stem == REPAIRS:
        if not re.fullmatch(r"R[1-9]\d*", str(number)):
            raise BuildError(f'{path.name}: number {number!r}; programs to be repaired have "R1", "R2" and so on')
    elif not isinstance(number, int) or path.stem != f"p{number:02}_{name}":
        raise BuildError(f"{path.name}: number {number} and name {name} need another file name")


def _check_words(path: Path, found: Json) -> None:
    for key, known in WORDS.items():
        words = found.get(key, [])
        for word in words if isinstance(words, list) else [words]:
            if word not in known:
                raise BuildError(f'{path.name}: PUZZLE["{key}"] has {word!r}, not one of {", ".join(known)}')


def _check_hints(path: Path, found: Json) -> None:
    hints = found["hints"]
    if len(hints) != HINTS or not all(isinstance(hint, str) and hint for hint in hints):
        raise BuildError(f'{path.name}: PUZZLE["hints"] has {len(hints)}; there are to be {HINTS}, each a text')
    if not all(number in range(1, HINTS) for number in found.get("hints_for", {}).values()):
        raise BuildError(f'{path.name}: PUZZLE["hints_for"] has a number that is none of 1 to {HINTS - 1}')
    if bool(found.get("star_hint")) != (found.get("star", found["target"]) != found["target"]):
        raise BuildError(f'{path.name}: PUZZLE has a "star_hint" exactly if its star is more than its target')


def _check_keys(path: Path, where: str, found: Json, needed: Json, optional: Json | None = None) -> None:
    allowed = needed | (optional or {})
    for problem, keys in (("lacks", needed.keys() - found.keys()), ("has unknown", found.keys() - allowed.keys())):
        if keys:
            raise BuildError(f"{path.name}: {where} {problem} {', '.join(sorted(map(repr, keys)))}")
    for key, value in found.items():
        if not isinstance(value, allowed[key]):
            wanted = " or ".join(kind.__name__ for kind in allowed[key])
            raise BuildError(f"{path.name}: {where} has {key!r}: {value!r}, which is no {wanted}")
